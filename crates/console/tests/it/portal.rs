//! The portal's way in and its rights: a link works once, every form needs its capability and its token, and nothing of
//! another tenant is there.

use std::time::Duration;

use http::{Method, StatusCode, header};
use posthorn_console::portal::{Language, Options, routes};
use posthorn_domain::{Capability, Scope, TenantId};
use posthorn_engine::NewPortalLink;
use posthorn_store::{AuditFilter, Listing};
use serde_json::{Value, json};

use crate::harness::{Site, ask};

const BACK: &str = "https://app.example.com/settings";

/// Everything the table has, with ids in place of what is named.
fn filled(path: &str, names: &Names) -> String {
    let path = path.replace("{delivery}", &names.delivery).replace("{name}", &names.event_type);
    let id = match path.split('/').nth(2) {
        Some("endpoints") => &names.endpoint,
        Some("messages") => &names.message,
        _ => &names.job,
    };
    path.replace("{id}", id)
}

/// Things of one tenant.
pub(crate) struct Names {
    pub(crate) endpoint: String,
    pub(crate) message: String,
    pub(crate) delivery: String,
    pub(crate) job: String,
    pub(crate) event_type: String,
}

impl Names {
    fn none() -> Self {
        let none = || "none".to_owned();
        Self {
            endpoint: none(),
            message: none(),
            delivery: none(),
            job: none(),
            event_type: none(),
        }
    }
}

/// Gives a tenant an endpoint, a message that went there, and a job.
pub(crate) async fn furnish(site: &Site, tenant: TenantId, url: &str) -> Names {
    let scopes = vec![Scope::Read, Scope::Publish, Scope::Manage];
    let key = site.engine.create_key(Some(tenant), scopes, String::new(), None, None);
    let key = key.await.unwrap().text;
    ask(site, &key, "PUT", "/v1/topics/orders", json!({})).await;
    let made = json!({"url": url, "policy": {"schedule": {"max_attempts": 1}}});
    let made = ask(site, &key, "POST", "/v1/subscriptions", made).await;
    let endpoint = made["id"].as_str().unwrap().to_owned();
    let event = json!({"topic": "orders", "type": "order.paid", "payload": {"html": crate::harness::MARKUP}});
    let event = ask(site, &key, "POST", "/v1/events", event).await;
    let message = event["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/deliveries?event={message}");
    let mut delivery = ask(site, &key, "GET", &path, Value::Null).await;
    while delivery["items"][0]["ended_at"].is_null() {
        tokio::time::sleep(Duration::from_millis(10)).await;
        delivery = ask(site, &key, "GET", &path, Value::Null).await;
    }
    let path = format!("/v1/subscriptions/{endpoint}/replay");
    let job = ask(site, &key, "POST", &path, json!({"status": "missed"})).await;
    Names {
        delivery: delivery["items"][0]["id"].as_str().unwrap().to_owned(),
        job: job["id"].as_str().unwrap().to_owned(),
        event_type: "none".to_owned(),
        endpoint,
        message,
    }
}

async fn lines(site: &Site) -> usize {
    let all = site.engine.store().audit(AuditFilter::default(), Listing::newest(500)).await;
    all.unwrap().items.len()
}

#[tokio::test]
async fn every_form_is_refused_without_its_capability() {
    let site = Site::open().await;
    let names = furnish(&site, site.acme, "https://ok.example/hook").await;
    let mut tried = 0;
    for (method, path, needs) in routes().filter(|(_, _, needs)| *needs != Capability::View) {
        let others: Vec<Capability> =
            Capability::ALL.into_iter().filter(|own| *own != needs).collect();
        let customer = site.customer(&others).await;
        let path = filled(path, &names);
        let before = lines(&site).await;
        let answer = match *method {
            Method::GET => customer.get(&path).await,
            _ => {
                customer
                    .submit(
                        &path,
                        &[
                            ("confirm", "yes"),
                            ("url", "https://a.example"),
                            ("events", "all"),
                            ("step", "create"),
                        ],
                    )
                    .await
            }
        };
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}: {}", answer.text);
        assert!(answer.text.contains("Your link does not allow this."), "{path}: {}", answer.text);
        assert_eq!(lines(&site).await, before, "{path} changed something");
        tried += 1;
    }
    assert!(tried >= 13, "only {tried} forms");
    // Every form that is not in the list of rights only chooses language and theme.
    let open: Vec<&str> = routes()
        .filter(|(method, _, needs)| **method == Method::POST && *needs == Capability::View)
        .map(|(_, path, _)| path)
        .collect();
    assert_eq!(open, ["/portal/look"]);
}

#[tokio::test]
async fn nothing_of_another_tenant_is_there() {
    let site = Site::open().await;
    let other = site.engine.catalog().tenant_named("other").unwrap().id;
    let own = furnish(&site, site.acme, "https://ok.example/hook").await;
    let foreign = furnish(&site, other, "https://secret-of-other.example/hook").await;
    let customer = site.customer(&Capability::ALL).await;
    let fields = [
        ("confirm", "yes"),
        ("url", "https://a.example"),
        ("events", "all"),
        ("endpoint", foreign.endpoint.as_str()),
    ];
    let before = lines(&site).await;
    let mut tried = 0;
    for (method, path, _) in routes().filter(|(_, path, _)| path.contains('{')) {
        for names in [&foreign, &Names::none()] {
            let path = filled(path, names);
            let answer = match *method {
                Method::GET => customer.get(&path).await,
                _ => customer.submit(&path, &fields).await,
            };
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{method} {path}: {}", answer.text);
            assert!(!answer.text.contains("secret-of-other"), "{path}");
            tried += 1;
        }
    }
    assert!(tried >= 30, "only {tried}");
    assert_eq!(lines(&site).await, before, "nothing was changed");
    for path in ["/portal/", "/portal/messages", "/portal/attempts", "/portal/notifications"] {
        let html = customer.get(path).await.expect(200);
        for id in [&foreign.endpoint, &foreign.message, &foreign.delivery] {
            assert!(!html.contains(id.as_str()), "{path} has {id}");
        }
        assert!(!html.contains("secret-of-other"), "{path}");
    }
    let html = customer.get("/portal/attempts").await.expect(200);
    assert!(html.contains(&own.delivery), "one's own is there: {html}");
    let path = format!("/portal/attempts?endpoint={}", foreign.endpoint);
    assert!(!customer.get(&path).await.text.contains(&foreign.delivery));
    // The example of a type goes to one's own endpoints only.
    let live = posthorn_domain::RealmName::default();
    let engine = &site.engine;
    let kind = posthorn_domain::KnownType {
        realm: live,
        name: posthorn_domain::EventType::new("order.paid").unwrap(),
        description: String::new(),
        group: None,
        schemas: Default::default(),
        examples: vec![json!({"id": 7})],
        archived: false,
        deprecated: false,
        feature_flags: Default::default(),
        created_at: engine.now(),
        updated_at: engine.now(),
    };
    engine.put_event_type(kind).await.unwrap();
    customer
        .submit("/portal/event-types/order.paid/send", &[("endpoint", &foreign.endpoint)])
        .await
        .expect(404);
    let html = customer
        .submit("/portal/event-types/order.paid/send", &[("endpoint", &own.endpoint)])
        .await
        .expect(200);
    assert!(html.contains("The endpoint answered 200."), "{html}");
}

#[tokio::test]
async fn every_form_is_refused_that_is_not_one_of_the_session() {
    let site = Site::open().await;
    let names = furnish(&site, site.acme, "https://ok.example/hook").await;
    let (one, other) =
        (site.customer(&Capability::ALL).await, site.customer(&Capability::ALL).await);
    let (own, foreign) = (one.token().await, other.token().await);
    let before = lines(&site).await;
    let forms = routes().filter(|(method, ..)| **method == Method::POST).map(|(_, path, _)| path);
    for path in forms.chain(["/portal/logout"]) {
        let path = filled(path, &names);
        let more = ("confirm", "yes");
        let cases = [
            ("no token", one.send(&path, &[more], &[]).await),
            ("another session's", one.send(&path, &[("csrf", &foreign), more], &[]).await),
            (
                "another site",
                one.send(&path, &[("csrf", &own), more], &[("sec-fetch-site", "cross-site")]).await,
            ),
            (
                "another origin",
                one.send(&path, &[("csrf", &own), more], &[("origin", "http://evil.test")]).await,
            ),
        ];
        for (case, answer) in cases {
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path} with {case}: {}", answer.text);
        }
    }
    assert_eq!(lines(&site).await, before, "nothing was changed");
    let link = site.link(NewPortalLink::default()).await;
    let stolen =
        one.send("/portal/redeem", &[("token", &link)], &[("origin", "http://evil.test")]).await;
    stolen.expect(403);
    assert_eq!(one.send("/portal/redeem", &[("token", &link)], &[]).await.leads(), "/portal/");
}

#[tokio::test]
async fn a_link_works_once_and_leads_back_when_it_does_not() {
    let site = Site::open().await;
    let mut visitor = site.visitor(Options::default());
    let new = || NewPortalLink { back: Some(BACK.to_owned()), ..NewPortalLink::default() };
    let html = visitor.get("/portal?lang=en").await.expect(200);
    assert!(html.contains("id=\"way-in\"") && html.contains("needs scripts, once"), "{html}");
    let link = site.link(new()).await;
    let answer = visitor.send("/portal/redeem", &[("token", &link)], &[]).await;
    let cookies: Vec<&str> = answer
        .headers
        .get_all(header::SET_COOKIE)
        .iter()
        .map(|value| value.to_str().unwrap())
        .collect();
    assert!(cookies[0].starts_with("posthorn-portal=ses_"), "{cookies:?}");
    assert!(cookies[0].contains("; Path=/portal; HttpOnly; SameSite=Lax; Max-Age="), "{cookies:?}");
    assert!(
        !cookies[0].contains("Secure") && cookies[1].starts_with("posthorn-portal-back="),
        "{cookies:?}"
    );
    // A second time: the same page as for every other token, with the way back from the cookie.
    let back = cookies[1].split(';').next().unwrap().to_owned();
    let fresh = site.visitor(Options::default());
    let html = fresh.send("/portal/redeem", &[("token", &link)], &[]).await.expect(410);
    assert!(html.contains("does not work any more") && !html.contains(BACK), "{html}");
    visitor.cookie = Some(back);
    let html = visitor.send("/portal/redeem", &[("token", &link)], &[]).await.expect(410);
    assert!(html.contains(&format!("href=\"{BACK}\"")), "{html}");
    // Expired: whoever has the token may know where it came from.
    let link = site.link(NewPortalLink { redeem_within: Duration::from_secs(1), ..new() }).await;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let html = fresh.send("/portal/redeem", &[("token", &link)], &[]).await.expect(410);
    assert!(html.contains("does not work any more"), "{html}");
    assert!(html.contains(&format!("href=\"{BACK}\"")), "{html}");
    for token in ["", "lnk_x", "ses_x.y", &link.replace("lnk_", "ses_")] {
        let html = fresh.send("/portal/redeem", &[("token", token)], &[]).await.expect(410);
        assert!(!html.contains(BACK), "{token}");
    }
    // A cookie that leads elsewhere than to the web leads nowhere.
    visitor.cookie = Some("posthorn-portal-back=to=javascript%3Aalert(1)".to_owned());
    let html = visitor.get("/portal/messages").await.expect(401);
    assert!(html.contains("Your session has ended") && !html.contains("javascript:"), "{html}");
    let options =
        Options { return_url: Some("https://shop.example/".to_owned()), ..Options::default() };
    let html = site.visitor(options).get("/portal/messages").await.expect(401);
    assert!(html.contains("href=\"https://shop.example/\""), "{html}");
}

#[tokio::test]
async fn a_session_ends_when_somebody_leaves_or_comes_in_anew() {
    let site = Site::open().await;
    let customer = site.customer(&Capability::ALL).await;
    customer.get("/portal/").await.expect(200);
    let place = customer.submit("/portal/logout", &[]).await.leads();
    assert_eq!(place, "/portal/left");
    customer.get("/portal/").await.expect(401);
    customer.get("/portal/left").await.expect(200);
    // Coming in with another link replaces who was in.
    let customer = site.customer(&Capability::ALL).await;
    let link = site.link(NewPortalLink::default()).await;
    customer.send("/portal/redeem", &[("token", &link)], &[]).await.leads();
    customer.get("/portal/").await.expect(401);
    // A session of the portal opens nothing of the console, and the other way round.
    let customer = site.customer(&Capability::ALL).await;
    let mut operator = site.operator().await;
    let (portal, console) = (customer.cookie.clone().unwrap(), operator.cookie.clone().unwrap());
    operator.cookie = Some(portal.replace("posthorn-portal=", "posthorn-console="));
    assert!(operator.get("/console/").await.leads().starts_with("/console/login"));
    let mut visitor = site.visitor(Options::default());
    visitor.cookie = Some(console.replace("posthorn-console=", "posthorn-portal="));
    visitor.get("/portal/").await.expect(401);
}

#[tokio::test]
async fn a_session_that_asks_too_often_has_to_wait() {
    let site = Site::open().await;
    let mut visitor = site.visitor(Options { requests_per_second: 3, ..Options::default() });
    let link = site.link(NewPortalLink::default()).await;
    let answer = visitor.send("/portal/redeem", &[("token", &link)], &[]).await;
    visitor.keep(&answer);
    let mut answers = Vec::new();
    for _ in 0..30 {
        answers.push(visitor.get("/portal/notifications").await);
    }
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
    assert!(refused.len() >= 10, "{} of 30", refused.len());
    assert!(
        refused[0].text.contains("Too many requests")
            && refused[0].headers.contains_key("retry-after")
    );
    // Files do not count, and others are not held up.
    let other = site.customer(&[Capability::View]).await;
    other.get("/portal/notifications").await.expect(200);
}

#[tokio::test]
async fn frames_are_for_those_who_are_configured() {
    let site = Site::open().await;
    let answer = site.visitor(Options::default()).get("/portal").await;
    let policy = answer.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(answer.headers["x-frame-options"], "DENY");
    let sites = vec!["https://app.example.com".to_owned()];
    let public = Some("https://hooks.example.com/in".to_owned());
    let framed = Options { frame_ancestors: sites, public_url: public, ..Options::default() };
    let mut visitor = site.visitor(framed);
    let answer = visitor.get("/portal").await;
    let policy = answer.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.ends_with("frame-ancestors https://app.example.com"), "{policy}");
    assert!(!answer.headers.contains_key("x-frame-options"));
    let redeem = async |browser: &crate::harness::Browser, framed: &str| {
        let link = site.link(NewPortalLink::default()).await;
        let look = "darkMode=true&primaryColor=28bb93&icon=https%3A%2F%2Fapp.example.com%2Fi.png";
        browser
            .send("/portal/redeem", &[("token", &link), ("framed", framed), ("look", look)], &[])
            .await
    };
    let answer = redeem(&visitor, "1").await;
    // Behind a proxy that adds a path, everything has it.
    assert_eq!(answer.leads(), "/in/portal/");
    let cookie = answer.headers[header::SET_COOKIE].to_str().unwrap();
    assert!(
        cookie.contains("Path=/in/portal; HttpOnly; SameSite=None; Secure; Partitioned;"),
        "{cookie}"
    );
    let own = redeem(&visitor, "").await;
    let cookie = own.headers[header::SET_COOKIE].to_str().unwrap();
    assert!(cookie.contains("SameSite=Lax; Secure;"), "{cookie}");
    visitor.keep(&own);
    let look = own.headers.get_all(header::SET_COOKIE).iter().nth(1).unwrap().to_str().unwrap();
    let (session, look) = (visitor.cookie.clone().unwrap(), look.split(';').next().unwrap());
    visitor.cookie = Some(format!("{session}; {look}"));
    let html = visitor.get("/portal/notifications").await.expect(200);
    assert!(
        html.contains("data-theme=\"dark\"") && html.contains("look.css?accent=28bb93"),
        "{html}"
    );
    assert!(html.contains("<img src=\"https://app.example.com/i.png\" alt=\"\">"), "{html}");
    for (name, _) in html.match_indices("=\"/") {
        let rest = &html[name + 2..];
        assert!(rest.starts_with("/in/portal"), "{}", &rest[..40]);
    }
    // Without a site that may frame it there is no such cookie.
    let answer = redeem(&site.visitor(Options::default()), "1").await;
    assert!(answer.headers[header::SET_COOKIE].to_str().unwrap().contains("SameSite=Lax"));
}

#[tokio::test]
async fn a_language_is_chosen_by_address_cookie_browser_and_configuration() {
    let site = Site::open().await;
    let mut customer = site.customer(&[Capability::View]).await;
    let lang = |html: &str| html.split("<html lang=\"").nth(1).unwrap()[..2].to_owned();
    let path = "/portal/messages";
    let accept = [("accept-language", "nl-BE, en;q=0.5")];
    assert_eq!(lang(&customer.get(path).await.text), "en");
    assert_eq!(lang(&customer.get_with(path, &accept).await.text), "nl");
    let answer = customer.get(&format!("{path}?lang=fr")).await;
    assert_eq!(lang(&answer.text), "fr");
    let kept =
        answer.headers[header::SET_COOKIE].to_str().unwrap().split(';').next().unwrap().to_owned();
    customer.cookie = Some(format!("{}; {kept}", customer.cookie.clone().unwrap()));
    assert_eq!(lang(&customer.get_with(path, &accept).await.text), "fr");
    assert_eq!(lang(&customer.get(&format!("{path}?lang=xx")).await.text), "fr");
    let options = Options { language: Language::Japanese, ..Options::default() };
    assert_eq!(lang(&site.visitor(options).get(path).await.text), "ja");
    // A page chooses too, and leads back to where one was.
    let form = [("lang", "de"), ("theme", "dark"), ("here", "/portal/attempts?status=5xx")];
    let answer = customer.submit("/portal/look", &form).await;
    assert_eq!(answer.leads(), "/portal/attempts?status=5xx");
    let cookie = answer.headers[header::SET_COOKIE].to_str().unwrap();
    assert!(cookie.starts_with("posthorn-portal-look=theme=dark&lang=de;"), "{cookie}");
    let answer = customer.submit("/portal/look", &[("here", "//evil.test/")]).await;
    assert_eq!(answer.leads(), "/portal");
}

#[tokio::test]
async fn a_message_says_which_endpoints_did_not_get_it_and_waits_for_outcomes() {
    let site = Site::open().await;
    let names = furnish(&site, site.acme, "https://x.example/fails").await;
    let scopes = vec![Scope::Read, Scope::Publish, Scope::Manage];
    let key = site.engine.create_key(Some(site.acme), scopes, String::new(), None, None);
    let key = key.await.unwrap().text;
    let subscribe = async |name: &str, url: &str, group: Value| {
        let filter = json!({"any_of": [group]});
        let new = json!({"name": name, "url": url, "filter": filter});
        ask(&site, &key, "POST", "/v1/subscriptions", new).await
    };
    subscribe("Refunds", "https://ok.example/", json!({"types": ["refund.*"]})).await;
    let own = json!({"types": ["order.*"], "attributes": {"region": ["eu"]}});
    subscribe("Europe", "https://ok.example/", own).await;
    subscribe("told", "https://ok.example/told", json!({"topics": ["posthorn.operational"]})).await;
    let event = json!({
        "topic": "orders", "type": "order.paid", "attributes": {"region": "us"}, "payload": 1,
    });
    let event = ask(&site, &key, "POST", "/v1/events", event).await;
    let customer = site.customer(&[Capability::View, Capability::Resend]).await;
    let message = format!("/portal/messages/{}", event["id"].as_str().unwrap());
    let html = customer.get(&message).await.expect(200);
    let (_, missed) = html.split_once("id=\"missed\"").expect(&html);
    let missed = missed.split("</section>").next().unwrap();
    assert!(
        missed.contains("Refunds") && missed.contains("the event type matches none"),
        "{missed}"
    );
    assert!(missed.contains("Europe") && missed.contains("region"), "{missed}");
    assert!(missed.contains("lang=\"en\"") && !missed.contains("told"), "{missed}");
    let html = customer.get(&format!("{message}?lang=de")).await.expect(200);
    assert!(html.contains("Wohin sie nicht ging, und warum"), "{html}");

    // A page whose outcome is there asks for nothing; one that was just sent again does, for a while.
    let attempt = format!("/portal/attempts/{}", names.delivery);
    site.settles_dead(2).await;
    let html = customer.get(&attempt).await.expect(200);
    assert!(html.contains("<div id=\"live\">") && !html.contains("data-live"), "{html}");
    let hook = json!({"name": "Later", "url": "https://y.example/fails"});
    let hook = ask(&site, &key, "POST", "/v1/subscriptions", hook).await;
    let event = json!({"topic": "orders", "type": "other.made", "payload": 1});
    ask(&site, &key, "POST", "/v1/events", event).await;
    let path = format!("/v1/deliveries?subscription={}", hook["id"].as_str().unwrap());
    let row = &ask(&site, &key, "GET", &path, Value::Null).await["items"][0];
    let html = customer.get(&format!("/portal/attempts/{}", row["id"].as_str().unwrap())).await;
    assert!(html.expect(200).contains("data-live=\"1000\" data-asks=\"60\""));
}
