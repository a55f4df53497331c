//! Event types by hand, and from an OpenAPI document.

use posthorn_domain::{EventType, RealmName, Scope};
use posthorn_engine::Bound;
use serde_json::json;

use crate::harness::Site;

fn live() -> RealmName {
    RealmName::new("live").unwrap()
}

#[tokio::test]
async fn an_event_type_is_described_marked_changed_and_deleted() {
    let site = Site::open().await;
    let operator = site.operator().await;
    let name = EventType::new("order/paid").unwrap();
    let new = [
        ("realm", "live"),
        ("name", "order/paid"),
        ("description", "An order was paid."),
        ("group", "orders"),
        ("schemas", r#"{"1": {"type": "object"}, "10": {"type": "array"}, "2": {}}"#),
        ("examples", r#"[{"id": 7}]"#),
    ];
    let place = operator.submit("/console/event-types/new", &new).await.leads();
    assert_eq!(place, "/console/event-types/live/order%2Fpaid?done=created");
    let path = "/console/event-types/live/order%2Fpaid";
    let html = operator.get(path).await.expect(200);
    assert!(html.contains("An order was paid.") && html.contains("in use"), "{html}");
    let versions: Vec<&str> =
        html.split("<h3>Version ").skip(1).map(|rest| rest.split('<').next().unwrap()).collect();
    assert_eq!(versions, ["10", "2", "1"]);
    let html = operator.submit("/console/event-types/new", &new).await.expect(400);
    assert!(html.contains("there is such an event type already"), "{html}");

    let mark = format!("{path}/mark");
    operator.submit(&mark, &[("deprecated", "true")]).await.leads();
    operator.submit(&mark, &[("archived", "true")]).await.leads();
    let known = site.engine.catalog().event_type(&live(), &name).unwrap();
    assert!(known.archived && known.deprecated);
    assert_eq!((known.schemas.len(), known.examples.len()), (3, 1), "the rest stays");
    operator.submit(&mark, &[("archived", "false")]).await.leads();
    assert!(!site.engine.catalog().event_type(&live(), &name).unwrap().archived);

    let change = format!("{path}/change");
    let html = operator.get(&change).await.expect(200);
    assert!(
        html.contains("An order was paid.")
            && html.contains("name=\"deprecated\" value=\"true\" checked")
    );
    let html = operator
        .submit(&change, &[("schemas", r#"{"1": {"type": "nonsense"}}"#)])
        .await
        .expect(400);
    assert!(html.contains("id=\"w-schemas\"") && html.contains("nonsense"), "{html}");
    operator.submit(&change, &[("description", "Other words.")]).await.leads();
    let known = site.engine.catalog().event_type(&live(), &name).unwrap();
    assert_eq!(
        (known.description.as_str(), known.deprecated, known.schemas.len()),
        ("Other words.", false, 0)
    );

    let place = operator.submit(&format!("{path}/delete"), &[("sure", "1")]).await.leads();
    assert_eq!(place, "/console/event-types?realm=live&done=deleted");
    operator.get(path).await.expect(404);
    operator.submit(&change, &[("description", "x")]).await.expect(404);
}

#[tokio::test]
async fn a_list_is_filtered_by_realm_and_group() {
    let site = Site::open().await;
    let operator = site.operator().await;
    for (realm, name, group) in
        [("live", "a.one", "a"), ("live", "b.one", "b"), ("default", "c.one", "a")]
    {
        let form = [("realm", realm), ("name", name), ("group", group)];
        operator.submit("/console/event-types/new", &form).await.leads();
    }
    let named = async |path: &str| {
        let html = operator.get(path).await.expect(200);
        ["a.one", "b.one", "c.one"]
            .into_iter()
            .filter(|name| html.contains(name))
            .collect::<Vec<_>>()
    };
    assert_eq!(named("/console/event-types").await, ["c.one"]);
    assert_eq!(named("/console/event-types?realm=live").await, ["a.one", "b.one"]);
    assert_eq!(named("/console/event-types?realm=live&group=b").await, ["b.one"]);
    assert_eq!(named("/console/event-types?realm=live&prefix=a.").await, ["a.one"]);
    // Whoever is of a realm sees that, and writes into it.
    let realm = site.login(Bound::Realm(live()), &[Scope::Read, Scope::Manage]).await;
    let html = realm.get("/console/event-types").await.expect(200);
    assert!(
        html.contains("a.one") && !html.contains("c.one") && !html.contains("q-realm"),
        "{html}"
    );
    let place =
        realm.submit("/console/event-types/new", &[("name", "d.one"), ("realm", "default")]).await;
    assert_eq!(place.leads(), "/console/event-types/live/d.one?done=created");
    // Whoever is of a tenant looks.
    let acme = site.of_acme(&[Scope::Read, Scope::Manage]).await;
    acme.submit("/console/event-types/new", &[("name", "e.one")]).await.expect(403);
    acme.submit("/console/event-types/default/c.one/delete", &[("sure", "1")]).await.expect(403);
    acme.submit("/console/event-types/default/c.one/mark", &[("archived", "true")])
        .await
        .expect(403);
    assert_eq!(named("/console/event-types?archived=false").await, ["c.one"]);
}

#[tokio::test]
async fn an_import_is_tried_before_it_is_done() {
    let site = Site::open().await;
    let operator = site.operator().await;
    operator
        .submit("/console/event-types/new", &[("realm", "live"), ("name", "user.made")])
        .await
        .leads();
    let document = json!({
        "openapi": "3.1.0",
        "webhooks": {"order.made": {"post": {"description": "An order was made", "tags": ["orders"]}}},
    })
    .to_string();
    let form = [("realm", "live"), ("document", document.as_str()), ("replace_all", "true")];
    let html = operator.submit("/console/event-types/import", &form).await.expect(200);
    for text in ["New: 1", "order.made", "Archived: 1", "user.made", "Nothing is changed yet."] {
        assert!(html.contains(text), "{text}: {html}");
    }
    let made = EventType::new("order.made").unwrap();
    assert!(site.engine.catalog().event_type(&live(), &made).is_err(), "nothing is changed");
    assert!(html.contains("name=\"step\" value=\"import\""), "{html}");
    let form = [&form[..], &[("step", "import")]].concat();
    let place = operator.submit("/console/event-types/import", &form).await.leads();
    assert_eq!(place, "/console/event-types?realm=live&done=imported");
    assert!(site.engine.catalog().event_type(&live(), &made).is_ok());
    let gone = EventType::new("user.made").unwrap();
    assert!(site.engine.catalog().event_type(&live(), &gone).unwrap().archived);

    for (document, wanted) in [
        ("", "is missing"),
        ("openapi: 3.1.0", "is not valid JSON"),
        ("{\"openapi\": \"3.0.0\"}", "openapi"),
    ] {
        let form = [("realm", "live"), ("document", document)];
        let html = operator.submit("/console/event-types/import", &form).await.expect(400);
        let (_, wrong) = html.split_once("id=\"w-document\">").unwrap();
        assert!(wrong.split('<').next().unwrap().contains(wanted), "{document}: {wrong}");
        assert!(!html.contains("value=\"import\""), "there is nothing to be done");
    }
}
