//! The page of the system, and the audit log.

use posthorn_domain::Scope;

use crate::harness::Site;

#[tokio::test]
async fn the_system_says_what_it_is_and_how_it_fares() {
    let site = Site::open().await;
    let operator = site.operator().await;
    let html = operator.get("/console/system").await.expect(200);
    let node = site.engine.node().to_string();
    let wanted = [
        node.as_str(),
        env!("CARGO_PKG_VERSION"),
        "Store: a model",
        "answers in ",
        "<span class=\"state good\">running</span>",
        "<span class=\"state good\">accepted</span>",
        "<dt>Dead letters</dt><dd>30 d</dd>",
        // acme and other, the default one, and that of the system.
        "<dt>Tenants</dt><dd>4</dd>",
        "this one",
    ];
    for text in wanted {
        assert!(html.contains(text), "{text}: {html}");
    }
    site.engine.admission().set_disk_full(true);
    let html = operator.get("/console/system").await.expect(200);
    assert!(html.contains("The disk is nearly full.") && html.contains("refused"), "{html}");
}

#[tokio::test]
async fn a_session_can_be_ended_by_an_operator() {
    let site = Site::open().await;
    let operator = site.operator().await;
    let acme = site.of_acme(&[Scope::Read]).await;
    acme.get("/console/audit").await.expect(200);
    let html = operator.get("/console/system").await.expect(200);
    let row = html.split("<tr data-row>").find(|row| row.contains("tenant acme")).unwrap();
    let (_, rest) = row.split_once("action=\"").unwrap();
    let path = rest.split('"').next().unwrap();
    assert_eq!(operator.submit(path, &[]).await.leads(), "/console/system?done=ended");
    assert!(acme.get("/console/audit").await.leads().starts_with("/console/login"));
    let html = operator.get("/console/system?done=ended").await.expect(200);
    assert!(html.contains("The session has ended.") && !html.contains("tenant acme"), "{html}");
    operator.submit(path, &[]).await.expect(404);
    // The operator did it, and the log says so.
    let html = operator.get("/console/audit?action=session.ended").await.expect(200);
    assert_eq!(html.matches("<tr data-row>").count(), 1, "{html}");
    assert!(html.contains("session a key"), "{html}");
}

#[tokio::test]
async fn changes_are_found_by_who_what_and_whose() {
    let site = Site::open().await;
    let operator = site.operator().await;
    operator.submit("/console/tenants/new", &[("name", "shop")]).await.leads();
    let rows = async |query: &str| {
        let html = operator.get(&format!("/console/audit?{query}")).await.expect(200);
        html.matches("<tr data-row>").count()
    };
    let shop = site.engine.catalog().tenant_named("shop").unwrap().id;
    assert_eq!(rows(&format!("object={shop}")).await, 1);
    assert_eq!(rows("tenant=shop").await, 1);
    assert_eq!(rows("action=tenant.created").await, 4, "acme, other, shop and that of the system");
    assert_eq!(rows("action=tenant.created&until=2020-01-01T00:00:00Z").await, 0);
    let html = operator.get(&format!("/console/audit?object={shop}")).await.expect(200);
    assert!(html.contains(&format!("href=\"/console/tenants/{shop}\"")), "{html}");
    let actor = html.split("/console/audit?actor=").nth(1).unwrap().split('"').next().unwrap();
    assert!(actor.starts_with("ses_"), "{actor}");
    assert_eq!(rows(&format!("actor={actor}&action=tenant.created")).await, 1);
    // Somebody of a tenant sees what concerns that.
    let acme = site.of_acme(&[Scope::Read]).await;
    let html = acme.get("/console/audit").await.expect(200);
    assert!(!html.contains("shop") && !html.contains("q-tenant"), "{html}");
    let html = acme.get("/console/audit?tenant=shop").await.expect(400);
    assert!(html.contains("f-wrong"), "{html}");
}
