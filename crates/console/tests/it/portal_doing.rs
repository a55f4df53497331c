//! What customers do in the portal, and that what strangers wrote is text there as well.

use http::header;
use posthorn_domain::Capability;
use posthorn_engine::NewPortalLink;
use posthorn_store::{AuditFilter, Listing};

use crate::harness::{Browser, INNER, MARKUP, Site};
use crate::portal::furnish;

/// Makes an endpoint in three steps; its id and its secret.
async fn create(customer: &Browser, url: &str) -> (String, String) {
    let html = customer
        .submit("/portal/endpoints/new", &[("url", url), ("step", "which")])
        .await
        .expect(200);
    assert!(html.contains("Step 2 of 3"), "{html}");
    let form = [
        ("url", url),
        ("name", "mine"),
        ("events", "some"),
        ("types", "order.*"),
        ("step", "create"),
    ];
    let html = customer.submit("/portal/endpoints/new", &form).await.expect(200);
    assert!(html.contains("Step 3 of 3"), "{html}");
    let secret = html.split("<code>").nth(1).unwrap().split('<').next().unwrap().to_owned();
    let id = html.split("/portal/endpoints/").nth(1).unwrap().split('/').next().unwrap().to_owned();
    (id, secret)
}

#[tokio::test]
async fn an_endpoint_is_made_shown_changed_and_deleted() {
    let site = Site::open().await;
    let customer = site.customer(&Capability::ALL).await;
    // With none yet, the form stands where the list would.
    let html = customer.get("/portal/").await.expect(200);
    assert!(html.contains("There are no endpoints yet.") && html.contains("Step 1 of 3"), "{html}");
    let html = customer.submit("/portal/endpoints/new", &[("url", "nonsense")]).await.expect(400);
    assert!(html.contains("id=\"w-url\""), "{html}");
    let form = [("url", "https://ok.example/hook"), ("events", "some"), ("step", "create")];
    let html = customer.submit("/portal/endpoints/new", &form).await.expect(400);
    assert!(html.contains("Choose at least one type"), "{html}");
    let (id, secret) = create(&customer, "https://ok.example/hook").await;
    assert!(secret.starts_with("whsec_"), "{secret}");
    let page = format!("/portal/endpoints/{id}");
    let html = customer.get(&page).await.expect(200);
    assert!(html.contains("order.*") && !html.contains(&secret), "{html}");
    let html = customer.submit(&format!("{page}/test"), &[]).await.expect(200);
    assert!(html.contains("The endpoint answered 200."), "{html}");
    let html = customer.submit(&format!("{page}/secret"), &[]).await.expect(200);
    assert!(html.contains(&secret), "{html}");
    let html = customer.submit(&format!("{page}/rotate"), &[("overlap", "1h")]).await.expect(200);
    assert!(html.contains("whsec_") && !html.contains(&secret), "{html}");

    let change = format!("{page}/change");
    let form = [
        ("form", "settings"),
        ("url", "https://ok.example/other"),
        ("name", "new name"),
        ("events", "all"),
        ("headers", "X-Team: {a}"),
        ("rate", "5"),
    ];
    customer.submit(&change, &form).await.leads();
    let html = customer.get(&page).await.expect(200);
    assert!(
        html.contains("new name") && html.contains("X-Team: {a}") && html.contains("value=\"5.0\""),
        "{html}"
    );
    for (bad, field) in
        [(("headers", "Host: x"), "headers"), (("rate", "-1"), "rate"), (("url", "x"), "url")]
    {
        let mut form = form.to_vec();
        form.retain(|(name, _)| *name != bad.0);
        form.push(bad);
        let html = customer.submit(&change, &form).await.expect(400);
        assert!(html.contains(&format!("id=\"w-{field}\"")), "{field}: {html}");
    }
    customer.submit(&format!("{page}/pause"), &[]).await.leads();
    assert!(customer.get(&page).await.expect(200).contains("paused"));
    customer.submit(&format!("{page}/resume"), &[]).await.leads();
    customer.submit(&format!("{page}/delete"), &[]).await.expect(400);
    let place = customer.submit(&format!("{page}/delete"), &[("confirm", "yes")]).await.leads();
    assert_eq!(place, "/portal/?done=deleted");
    customer.get(&page).await.expect(404);
    // Each change has its line, with the session and its name.
    let lines =
        site.engine.store().audit(AuditFilter::default(), Listing::newest(200)).await.unwrap();
    let own: Vec<_> = lines.items.iter().filter(|line| line.origin.surface == "portal").collect();
    for action in [
        "subscription.created",
        "subscription.updated",
        "subscription.paused",
        "subscription.resumed",
        "subscription.deleted",
    ] {
        let line = own
            .iter()
            .find(|line| line.action.as_str() == action)
            .unwrap_or_else(|| panic!("{action}"));
        assert!(line.actor.id.as_deref().unwrap().starts_with("ses_"));
        assert_eq!(line.actor.name.as_deref(), Some(MARKUP));
    }
}

/// Who has looked is known, and what they saw is nowhere but on the page.
#[tokio::test]
async fn a_look_at_a_secret_is_in_the_audit_log_without_the_secret() {
    let site = Site::open().await;
    let customer = site.customer(&Capability::ALL).await;
    let (id, secret) = create(&customer, "https://hook.example/one").await;
    let viewed = async || {
        let lines = site.engine.store().audit(AuditFilter::default(), Listing::newest(200)).await;
        let mut lines = lines.unwrap().items;
        lines.retain(|line| line.action.as_str() == "secret.viewed");
        lines
    };
    customer.get(&format!("/portal/endpoints/{id}")).await.expect(200);
    assert!(viewed().await.is_empty(), "the page alone shows nothing");
    let path = format!("/portal/endpoints/{id}/secret");
    assert!(customer.submit(&path, &[]).await.expect(200).contains(&secret));
    let lines = viewed().await;
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert!(line.actor.id.as_deref().unwrap().starts_with("ses_"), "{line:?}");
    assert_eq!((line.origin.surface.as_str(), line.object.id.as_str()), ("portal", id.as_str()));
    assert!(!format!("{line:?}").contains(secret.trim_start_matches("whsec_")), "{line:?}");
    // Who may not, leaves no line either.
    let other = site.customer(&[Capability::View, Capability::ManageEndpoints]).await;
    other.submit(&path, &[]).await.expect(403);
    assert_eq!(viewed().await.len(), 1);
}

#[tokio::test]
async fn a_disabled_endpoint_says_why_and_is_enabled() {
    let site = Site::open().await;
    let customer = site.customer(&Capability::ALL).await;
    let (id, _) = create(&customer, "https://gone.example/hook").await;
    let scopes = vec![posthorn_domain::Scope::Publish, posthorn_domain::Scope::Manage];
    let key = site.engine.create_key(Some(site.acme), scopes, String::new(), None, None);
    let key = key.await.unwrap().text;
    crate::harness::ask(&site, &key, "PUT", "/v1/topics/orders", serde_json::json!({})).await;
    let event = serde_json::json!({"topic": "orders", "type": "order.paid", "payload": {}});
    crate::harness::ask(&site, &key, "POST", "/v1/events", event).await;
    let page = format!("/portal/endpoints/{id}");
    let mut html = customer.get(&page).await.expect(200);
    for _ in 0..200 {
        if html.contains("This endpoint is disabled.") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        html = customer.get(&page).await.expect(200);
    }
    assert!(html.contains("The endpoint answered that it is gone."), "{html}");
    assert!(html.contains(">Enable</button>") && !html.contains(">Resume</button>"), "{html}");
    assert!(customer.get("/portal/").await.expect(200).contains("answered that it is gone"));
    // Whoever may only look sees why, and no button.
    let reader = site.customer(&[Capability::View]).await;
    let html = reader.get(&page).await.expect(200);
    assert!(
        html.contains("answered that it is gone") && !html.contains(">Enable</button>"),
        "{html}"
    );
    let place = customer.submit(&format!("{page}/resume"), &[]).await.leads();
    assert_eq!(place, format!("{page}?done=resumed"));
}

#[tokio::test]
async fn notifications_are_addresses_and_no_endpoints() {
    let site = Site::open().await;
    let customer = site.customer(&Capability::ALL).await;
    create(&customer, "https://ok.example/hook").await;
    customer.submit("/portal/notifications", &[("url", "no")]).await.expect(400);
    let html = customer
        .submit("/portal/notifications", &[("url", "https://told.example/")])
        .await
        .expect(200);
    assert!(html.contains("whsec_"), "{html}");
    assert!(
        customer.get("/portal/notifications").await.expect(200).contains("https://told.example/")
    );
    assert!(!customer.get("/portal/").await.expect(200).contains("told.example"));
    let view = site.engine.catalog().subscriptions(site.acme);
    let told = view.iter().find(|view| view.subscription.name.is_none()).unwrap();
    let group = &told.subscription.filter.any_of[0];
    assert_eq!(group.topics[0].as_str(), "posthorn.operational");
    assert_eq!(group.types.len(), 3);
}

#[tokio::test]
async fn what_failed_is_counted_and_sent_again() {
    let site = Site::open().await;
    let customer = site.customer(&Capability::ALL).await;
    let names = furnish(&site, site.acme, "https://fails.example/hook").await;
    let page = format!("/portal/endpoints/{}", names.endpoint);
    let recover = format!("{page}/recover");
    let html = customer.submit(&recover, &[("since", "exact"), ("from", "soon")]).await.expect(400);
    assert!(html.contains("id=\"w-from\""), "{html}");
    let html = customer.submit(&recover, &[("since", "24h"), ("step", "count")]).await.expect(200);
    assert!(html.contains("Messages that would be sent again: 1."), "{html}");
    let from =
        html.split("name=\"counted_from\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    let place =
        customer.submit(&recover, &[("step", "start"), ("counted_from", from)]).await.leads();
    assert!(place.starts_with("/portal/jobs/job_"), "{place}");
    assert!(customer.get(&place).await.expect(200).contains("Sending again"));
    let attempt = format!("/portal/attempts/{}", names.delivery);
    let again = customer.submit(&format!("{attempt}/resend"), &[]).await.leads();
    assert_eq!(again, format!("{attempt}?done=resent"));
    // Nothing of what we met on the way is in any page.
    for path in [
        page,
        attempt,
        "/portal/attempts".to_owned(),
        format!("/portal/messages/{}", names.message),
        "/portal/".to_owned(),
    ] {
        let html = customer.get(&path).await.expect(200);
        assert!(
            !html.contains(INNER) && !html.contains("refused the connection"),
            "{path}: {html}"
        );
    }
    let html = customer
        .submit(&format!("/portal/endpoints/{}/test", names.endpoint), &[])
        .await
        .expect(200);
    assert!(html.contains("No connection could be made.") && !html.contains(INNER), "{html}");
}

#[tokio::test]
async fn stored_markup_is_shown_and_never_done() {
    let site = Site::open().await;
    let customer = site.customer(&Capability::ALL).await;
    let names = furnish(&site, site.acme, "https://ok.example/hook").await;
    let kind = posthorn_domain::KnownType {
        realm: posthorn_domain::RealmName::default(),
        name: posthorn_domain::EventType::new("order.paid").unwrap(),
        description: MARKUP.to_owned(),
        group: Some(MARKUP.to_owned()),
        schemas: [(posthorn_domain::SchemaVersion(1), serde_json::json!({"description": MARKUP}))]
            .into(),
        examples: vec![serde_json::json!(MARKUP)],
        archived: false,
        deprecated: false,
        feature_flags: Default::default(),
        created_at: site.engine.now(),
        updated_at: site.engine.now(),
    };
    site.engine.put_event_type(kind).await.unwrap();
    let change = format!("/portal/endpoints/{}/change", names.endpoint);
    let form = [
        ("url", "https://ok.example/hook"),
        ("name", MARKUP),
        ("events", "all"),
        ("headers", "X-A: <img src=x onerror=alert(1)>"),
    ];
    customer.submit(&change, &form).await.leads();
    let mut shown = 0;
    for path in [
        "/portal/".to_owned(),
        format!("/portal/endpoints/{}", names.endpoint),
        "/portal/messages".to_owned(),
        format!("/portal/messages/{}", names.message),
        "/portal/attempts".to_owned(),
        format!("/portal/attempts/{}", names.delivery),
        "/portal/event-types".to_owned(),
        "/portal/event-types/order.paid".to_owned(),
        format!("/portal/messages?type=\"><img src=x>&from={MARKUP}")
            .replace([' ', '<', '>', '"'], "%22%3E%3Cimg"),
    ] {
        let html = customer.get(&path).await.text;
        shown += html.matches("&#60;img src=x onerror=alert(1)&#62;").count();
        assert!(!html.contains("<img"), "{path} has it as markup: {html}");
    }
    assert!(shown >= 10, "only {shown}");
    let html = customer
        .submit(&format!("/portal/endpoints/{}/test", names.endpoint), &[])
        .await
        .expect(200);
    assert!(!html.contains("<img") && html.contains("&#60;img"), "{html}");
    // A payload is a file, whatever is in it.
    let file = customer.get(&format!("/portal/messages/{}/payload", names.message)).await;
    assert_eq!(file.headers[header::CONTENT_TYPE], "application/octet-stream");
    assert!(file.headers[header::CONTENT_DISPOSITION].to_str().unwrap().starts_with("attachment;"));
    assert_eq!(file.headers["x-content-type-options"], "nosniff");
    assert!(file.text.contains(MARKUP));
}

#[tokio::test]
async fn a_brand_is_shown_and_its_sheet_has_only_what_was_checked() {
    let site = Site::open().await;
    let options = posthorn_console::portal::Options {
        name: MARKUP.to_owned(),
        accent: "#28bb93".parse().ok(),
        terms_url: Some("https://shop.example/terms".to_owned()),
        ..Default::default()
    };
    let mut visitor = site.visitor(options);
    let answer = visitor
        .send("/portal/redeem", &[("token", &site.link(NewPortalLink::default()).await)], &[])
        .await;
    visitor.keep(&answer);
    let html = visitor.get("/portal/notifications").await.expect(200);
    assert!(!html.contains("<img") && html.contains("https://shop.example/terms"), "{html}");
    let css = visitor.get("/portal/look.css?accent=28bb93&font=Inter").await;
    assert_eq!(css.headers[header::CONTENT_TYPE], "text/css; charset=utf-8");
    assert!(css.text.contains("--accent:") && css.text.contains("\"Inter\""));
    assert_eq!(visitor.get("/portal/look.css?accent=red;}&font=%22;}").await.text, "");
    visitor.get("/portal/brand/none").await.expect(404);
}
