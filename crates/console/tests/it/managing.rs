//! Tenants, keys and realms, as an operator changes them by hand.

use std::collections::BTreeSet;

use posthorn_domain::{Capability, RealmName, Scope};
use posthorn_store::{Listing, SessionFilter};
use serde_json::json;

use crate::harness::{Browser, MARKUP, Site};

#[tokio::test]
async fn a_tenant_is_created_changed_and_deleted() {
    let site = Site::open().await;
    let operator = site.operator().await;
    let new = [
        ("name", "shop"),
        ("realm", "live"),
        ("external_id", "c-7"),
        ("metadata", r#"{"plan": "gold"}"#),
        ("deliveries_per_second", "50"),
    ];
    let place = operator.submit("/console/tenants/new", &new).await.leads();
    let (path, _) = place.split_once("?done=created").unwrap();
    let html = operator.get(&place).await.expect(200);
    for text in ["<h1>shop</h1>", "c-7", "gold", "value=\"50\"", "Created."] {
        assert!(html.contains(text), "{text}: {html}");
    }
    let list = operator.get("/console/tenants?name_prefix=sh&realm=live").await.expect(200);
    assert!(list.contains(&format!("href=\"{path}\"")) && !list.contains(">acme<"), "{list}");
    let none = operator.get("/console/tenants?name_prefix=zzz").await.expect(200);
    assert!(none.contains("No tenant matches."), "{none}");

    let change =
        [("name", "shop-2"), ("external_id", ""), ("metadata", ""), ("deliveries_per_second", "")];
    let place = operator.submit(path, &change).await.leads();
    assert_eq!(place, format!("{path}?done=changed"));
    let shop = site.engine.catalog().tenant_named("shop-2").unwrap();
    assert!(shop.external_id.is_none() && shop.deliveries_per_second.is_none());
    assert!(shop.metadata.is_empty());

    // The name has to be typed, and to be right.
    let delete = format!("{path}/delete");
    let html = operator.submit(&delete, &[("confirm", "shop")]).await.expect(400);
    assert!(html.contains("is not the name of this tenant") && html.contains("value=\"shop\""));
    let place = operator.submit(&delete, &[("confirm", "shop-2")]).await.leads();
    let html = operator.get(&place).await.expect(200);
    assert!(html.contains("<h2 id=\"deletion\">"), "{html}");
    assert!(site.engine.catalog().tenant(shop.id).is_err(), "it is closed");
    assert!(!html.contains("Change it"), "there is nothing to change any more");
}

#[tokio::test]
async fn a_form_that_is_refused_keeps_what_was_typed() {
    let site = Site::open().await;
    let operator = site.operator().await;
    let form = [("name", "a b"), ("external_id", "kept"), ("metadata", "{}")];
    let html = operator.submit("/console/tenants/new", &form).await.expect(400);
    assert!(html.contains("value=\"kept\"") && html.contains("value=\"a b\""), "{html}");
    assert!(html.contains("id=\"w-name\"") && html.contains("aria-describedby=\"h-name w-name\""));
    let form = [("name", "fine"), ("metadata", "{"), ("realm", "none")];
    let html = operator.submit("/console/tenants/new", &form).await.expect(400);
    assert!(html.contains("id=\"w-metadata\">is not valid JSON"), "{html}");
    let form = [("name", "fine"), ("realm", "none")];
    let html = operator.submit("/console/tenants/new", &form).await.expect(400);
    assert!(html.contains("id=\"w-realm\">there is no such realm"), "{html}");
    let html = operator.submit("/console/tenants/new", &[("name", "acme")]).await.expect(400);
    assert!(html.contains("class=\"wrong\"") || html.contains("role=\"alert\""), "{html}");
    let path = format!("/console/tenants/{}", site.acme);
    let html = operator.submit(&path, &[("name", "acme"), ("deliveries_per_second", "many")]).await;
    assert!(html.expect(400).contains("id=\"w-deliveries_per_second\">must be a whole number"));
}

#[tokio::test]
async fn a_key_is_shown_once_and_can_be_taken_back() {
    let site = Site::open().await;
    let operator = site.operator().await;
    let html = operator.get(&format!("/console/keys/new?tenant={}", site.acme)).await.expect(200);
    assert!(html.contains(&format!("value=\"{}\"", site.acme)), "{html}");
    let new = [
        ("description", "ci of acme"),
        ("scopes", "read"),
        ("scopes", "publish"),
        ("tenant", "acme"),
    ];
    let html = operator.submit("/console/keys/new", &new).await.expect(200);
    let (_, rest) = html.split_once("data-copy=\"ph_").unwrap();
    let secret = format!("ph_{}", rest.split('"').next().unwrap());
    let principal = site.engine.authenticate(&secret).unwrap();
    assert_eq!(principal.key.scopes, [Scope::Publish, Scope::Read]);
    assert_eq!(principal.key.tenant, Some(site.acme));

    let list = operator.get("/console/keys").await.expect(200);
    assert!(list.contains("ci of acme") && !list.contains(&secret), "{list}");
    let id = principal.key.id;
    let tenant = operator.get(&format!("/console/tenants/{}", site.acme)).await.expect(200);
    assert!(tenant.contains(&id.to_string()), "{tenant}");
    let revoke = format!("/console/keys/{id}/revoke");
    let place = operator.submit(&revoke, &[("from", "tenant"), ("sure", "1")]).await.leads();
    assert_eq!(place, format!("/console/tenants/{}?done=revoked", site.acme));
    assert!(site.engine.authenticate(&secret).is_none());
    let list = operator.get("/console/keys").await.expect(200);
    assert!(list.contains("<span class=\"state off\">revoked</span>"), "{list}");
    assert!(!list.contains(&format!("{id}/revoke")), "once is enough");
}

#[tokio::test]
async fn a_key_that_cannot_be_is_refused_beside_its_field() {
    let site = Site::open().await;
    let operator = site.operator().await;
    for (form, field) in [
        (vec![("tenant", "acme")], "scopes"),
        (vec![("scopes", "read")], "tenant"),
        (vec![("scopes", "operator"), ("tenant", "acme")], "tenant"),
        (vec![("scopes", "read"), ("realm", "none")], "realm"),
        (
            vec![("scopes", "read"), ("tenant", "acme"), ("expires_at", "2020-01-01T00:00:00Z")],
            "expires_at",
        ),
        (vec![("scopes", "read"), ("tenant", "acme"), ("expires_at", "soon")], "expires_at"),
        (vec![("scopes", "read"), ("tenant", "acme"), ("rate_limit", "0")], "rate_limit"),
    ] {
        let html = operator.submit("/console/keys/new", &form).await.expect(400);
        assert!(html.contains(&format!("id=\"w-{field}\"")), "{form:?}: {html}");
    }
    assert_eq!(site.engine.catalog().keys().len(), 1, "only that of the operator");
}

#[tokio::test]
async fn a_realm_is_created_changed_and_deleted_when_it_is_empty() {
    let site = Site::open().await;
    let operator = site.operator().await;
    let name = RealmName::new("test/eu").unwrap();
    let new = [
        ("name", "test/eu"),
        ("description", "for tests"),
        ("validation", "known"),
        ("deliveries_per_second", "9"),
    ];
    assert_eq!(
        operator.submit("/console/realms", &new).await.leads(),
        "/console/realms?done=created"
    );
    let realm = site.engine.catalog().realm(&name).unwrap();
    assert_eq!(
        (realm.validation.as_str(), realm.defaults.deliveries_per_second),
        ("known", Some(9))
    );
    let html = operator.submit("/console/realms", &new).await.expect(400);
    assert!(html.contains("there is such a realm already"), "{html}");
    let html = operator.get("/console/realms").await.expect(200);
    assert!(html.contains("href=\"/console/realms/test%2Feu\""), "{html}");

    let path = "/console/realms/test%2Feu";
    let html = operator.get(path).await.expect(200);
    assert!(
        html.contains("value=\"for tests\"") && html.contains("value=\"known\" selected"),
        "{html}"
    );
    let html =
        operator.submit(path, &[("profile", "none"), ("validation", "off")]).await.expect(400);
    assert!(html.contains("id=\"w-profile\""), "{html}");
    operator.submit(path, &[("validation", "off")]).await.leads();
    let realm = site.engine.catalog().realm(&name).unwrap();
    assert_eq!((realm.validation.as_str(), realm.description.as_str()), ("off", ""));

    // A key that is not revoked keeps it.
    let key = [("scopes", "read"), ("realm", "test/eu")];
    operator.submit("/console/keys/new", &key).await.expect(200);
    let html = operator.submit(&format!("{path}/delete"), &[]).await.expect(409);
    assert!(html.contains("the realm has tenants, keys or event types"), "{html}");
    let keys = site.engine.catalog().keys();
    let own = keys.iter().find(|key| key.realm.as_ref() == Some(&name)).unwrap().id;
    operator.submit(&format!("/console/keys/{own}/revoke"), &[("sure", "1")]).await.leads();
    let place = operator.submit(&format!("{path}/delete"), &[]).await.leads();
    assert_eq!(place, "/console/realms?done=deleted");
    assert!(site.engine.catalog().realm(&name).is_err());
    operator.submit(path, &[("validation", "off")]).await.expect(404);
    assert!(
        site.engine.catalog().realm(&name).is_err(),
        "a form that is still open does not make it again"
    );
    let html = operator.get("/console/realms/default").await.expect(200);
    assert!(html.contains("always there") && !html.contains("/delete\""), "{html}");
}

#[tokio::test]
async fn a_portal_link_is_made_for_a_tenant_and_shown_once() {
    let site = Site::open().await;
    let operator = site.operator().await;
    let path = format!("/console/tenants/{}/portal-link", site.acme);
    let html = operator.submit(&path, &[("name", "Ada of acme")]).await.expect(200);
    let (_, rest) = html.split_once("<pre tabindex=\"0\">").unwrap();
    let link = rest.split('<').next().unwrap();
    assert!(link.starts_with("http://console.test/portal#lnk_"), "where the visitor is: {link}");
    let html = operator.get(&format!("/console/tenants/{}", site.acme)).await.expect(200);
    assert!(!html.contains("lnk_"), "it is shown once");
    // It is listed until it is ended or its time is over.
    assert!(html.contains("Ada of acme") && html.contains("link, not opened yet"), "{html}");
    let html = operator.get("/console/audit?action=portal_link.created").await.expect(200);
    assert_eq!(html.matches("<tr data-row>").count(), 1, "{html}");
    let long = "x".repeat(300);
    operator.submit(&path, &[("name", &long)]).await.expect(400);
    let gone = path.replace(&site.acme.to_string(), "ten_01hf7yat00000000000000000z");
    operator.submit(&gone, &[]).await.expect(404);
    let acme = site.of_acme(&[Scope::Read, Scope::Manage]).await;
    acme.submit(&path, &[]).await.expect(403);
}

#[tokio::test]
async fn many_tenants_page_quickly_with_their_counts() {
    let site = Site::open().await;
    let operator = site.operator().await;
    for number in 0..1_000 {
        site.engine.create_tenant(format!("many-{number:05}")).await.unwrap();
    }
    let began = std::time::Instant::now();
    let html = operator.get("/console/tenants?name_prefix=many-").await.expect(200);
    let took = began.elapsed();
    assert_eq!(html.matches("<tr data-row>").count(), 50);
    assert!(html.contains("of its quota") && html.contains("rel=\"next\""), "{html}");
    // Generous: builds for tests are slow, and so are machines that do other things.
    assert!(took < std::time::Duration::from_secs(2), "{took:?}");
    let (_, rest) = html.split_once("rel=\"next\" href=\"").unwrap();
    let next = rest.split('"').next().unwrap().replace("&#38;", "&");
    let names = |html: &str| -> BTreeSet<String> {
        let all = html.split("many-").skip(1).filter_map(|rest| rest.get(..5));
        all.filter(|name| name.bytes().all(|b| b.is_ascii_digit())).map(str::to_owned).collect()
    };
    let first = names(&html);
    // Those of one millisecond are in any order.
    let second = names(&operator.get(&format!("/console/tenants{next}")).await.expect(200));
    assert_eq!((first.len(), second.len()), (50, 50));
    assert!(first.is_disjoint(&second), "{first:?} {second:?}");
}

#[tokio::test]
async fn links_into_the_portal_have_capabilities_and_a_time_and_can_be_ended() {
    let site = Site::open().await;
    let operator = site.operator().await;
    let page = format!("/console/tenants/{}", site.acme);
    let path = format!("{page}/portal-link");
    let html = operator.get(&page).await.expect(200);
    assert!(html.contains("Nobody is in the portal of this tenant"), "{html}");
    let form = [
        ("chosen", "1"),
        ("name", "Ada"),
        ("capabilities", "view"),
        ("capabilities", "see_secret"),
        ("redeem_within", "2h"),
        ("expires_in", "30m"),
    ];
    let html = operator.submit(&path, &form).await.expect(200);
    let link = "see endpoints, messages and attempts; see the secrets that are in use.";
    assert!(html.contains(link), "{html}");
    let filter = SessionFilter { tenant: Some(site.acme), ..SessionFilter::default() };
    let all = site.engine.sessions(filter.clone(), Listing::newest(10)).await.unwrap().items;
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].capabilities, [Capability::View, Capability::SeeSecret]);
    assert_eq!(all[0].lasts, std::time::Duration::from_secs(30 * 60));
    let redeem = all[0].expires_at.as_millis() - all[0].created_at.as_millis();
    assert_eq!(redeem, 2 * 3_600_000);
    // What cannot be is said beside its field, and what was typed stays.
    let cases = [
        (vec![("chosen", "1")], "w-capabilities"),
        (
            vec![("chosen", "1"), ("capabilities", "view"), ("redeem_within", "soon")],
            "w-redeem_within",
        ),
        (vec![("chosen", "1"), ("capabilities", "view"), ("expires_in", "99d")], "w-expires_in"),
    ];
    for (form, wrong) in cases {
        let html = operator.submit(&path, &form).await.expect(400);
        assert!(html.contains(&format!("id=\"{wrong}\"")), "{wrong}: {html}");
    }
    // Somebody who is in, and the link: both are ended here.
    let customer = site.customer(&[Capability::View]).await;
    customer.get("/portal/").await.expect(200);
    let html = operator.get(&page).await.expect(200);
    assert!(html.contains("is in</span>") && html.contains("link, not opened yet"), "{html}");
    assert!(!html.contains(MARKUP), "{html}");
    let all = site.engine.sessions(filter, Listing::newest(10)).await.unwrap().items;
    assert_eq!(all.len(), 2);
    let tenant = site.acme.to_string();
    for session in all {
        let end = format!("/console/system/sessions/{}/end", session.id);
        let place = operator.submit(&end, &[("tenant", &tenant)]).await.leads();
        assert_eq!(place, format!("{page}?done=ended#portal"));
    }
    let html = operator.get(&page).await.expect(200);
    assert!(html.contains("Nobody is in the portal of this tenant"), "{html}");
    assert_ne!(customer.get("/portal/").await.status.as_u16(), 200);
}

#[tokio::test]
async fn tenants_show_what_they_published_and_what_failed() {
    let site = Site::open().await;
    let operator = site.operator().await;
    let ask = async |method: &str, path: &str, body| Browser::api(&site, method, path, body).await;
    ask("PUT", "/v1/topics/orders", json!({})).await;
    let once = json!({"schedule": {"max_attempts": 1}});
    let new = json!({"url": "https://x.example/fails", "name": "fails", "policy": once});
    ask("POST", "/v1/subscriptions", new).await;
    for _ in 0..3 {
        let event = json!({"topic": "orders", "type": "order.paid", "payload": {}});
        ask("POST", "/v1/events", event).await;
    }
    let mut row = String::new();
    for _ in 0..100 {
        let html = operator.get("/console/tenants?range=24h").await.expect(200);
        let rows = html.split("<tr data-row>");
        row = rows.clone().find(|row| row.contains(">acme<")).unwrap().to_owned();
        if row.contains(
            "<td class=\"number\">3</td><td class=\"number\"><span class=\"bad\">3</span></td>",
        ) {
            let other = rows.clone().find(|row| row.contains(">other<")).unwrap();
            assert!(
                other.contains("<td class=\"number\">0</td><td class=\"number\">0</td>"),
                "{other}"
            );
            row.clear();
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(row, "", "the figures never came");
    let html = operator.get(&format!("/console/tenants/{}?range=15m", site.acme)).await.expect(200);
    for fact in ["<dt>Published</dt><dd>3</dd>", "<dt>Failed attempts</dt><dd>3</dd>"] {
        assert!(html.contains(fact), "{html}");
    }
}
