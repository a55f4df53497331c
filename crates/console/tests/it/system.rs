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

#[tokio::test]
async fn nodes_are_listed_with_their_shards_and_versions() {
    let site = Site::open().await;
    let operator = site.operator().await;
    let mut html = String::new();
    for _ in 0..500 {
        html = operator.get("/console/system").await.expect(200);
        if html.contains("0–63 (epoch 1)") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let (_, nodes) = html.split_once("<h2 id=\"nodes\">").unwrap();
    let row = nodes.split("</tr>").nth(1).unwrap();
    let node = site.engine.node().to_string();
    let wanted = [
        node.as_str(),
        "this node",
        "<span class=\"state good\">alive</span>",
        env!("CARGO_PKG_VERSION"),
        "<td class=\"number\">64</td>",
        "0–63 (epoch 1)",
    ];
    for text in wanted {
        assert!(row.contains(text), "{text}: {row}");
    }
}

#[tokio::test]
async fn the_configuration_is_shown_as_the_api_gives_it() {
    let entry = |key: &str, value, source: &str| posthorn_api::ConfigEntry {
        key: key.to_owned(),
        value,
        source: source.to_owned(),
    };
    let all = [
        entry("engine.slots", serde_json::json!(64), "flag --set engine.slots"),
        entry("store.url", serde_json::json!("postgres://u:redacted@h/d"), "file posthorn.yaml"),
        entry("log.level", serde_json::json!("<img src=x>"), "default"),
    ];
    let options = posthorn_api::Options { config: all.into(), ..posthorn_api::Options::default() };
    let site = Site::open_with(options).await;
    let operator = site.operator().await;
    let html = operator.get("/console/system/config").await.expect(200);
    for text in ["3 of 3 keys", "engine.slots", "redacted", "flag --set", "&#60;img src=x&#62;"] {
        assert!(html.contains(text), "{text}: {html}");
    }
    let html = operator.get("/console/system/config?changed=true&q=engine").await.expect(200);
    assert!(html.contains("1 of 3 keys") && !html.contains("log.level"), "{html}");
}

#[tokio::test]
async fn a_code_is_explained_as_on_the_command_line() {
    let site = Site::open().await;
    let operator = site.operator().await;
    let html = operator.get("/console/system/explain?code=unknown_topic").await.expect(200);
    let told = posthorn_api::error_codes().iter().find(|code| code.code == "unknown_topic");
    assert!(html.contains("<code>unknown_topic</code>") && html.contains(told.unwrap().title));
    let html = operator.get("/console/system/explain?code=75").await.expect(200);
    assert!(html.contains("exit code of the program") && html.contains("Stop the other process."));
    let html = operator.get("/console/system/explain?code=nonsense").await.expect(200);
    assert!(html.contains("No such code."), "{html}");
}
