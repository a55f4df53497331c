//! Every page: what it is made of, who may see it, and where its links lead.

use std::collections::{BTreeSet, HashSet};

use http::{Method, StatusCode};
use posthorn_domain::{
    FailureClass, Labels, NodeId, RealmName, RollupCounts, RollupScope, RollupStep, Scope, Span,
    TopicName,
};
use posthorn_engine::{Bound, NewTenant};
use posthorn_store::{MinuteRollup, Rollups};
use serde_json::json;

use crate::harness::{Browser, Shown, Site, ask};

/// Paths of pages that can be opened without an id.
fn pages() -> impl Iterator<Item = String> {
    let own = posthorn_console::routes().filter(|(method, path)| {
        let streams = path.ends_with("/live");
        **method == Method::GET && !streams && !path.replace("{tenant}", "").contains('{')
    });
    own.map(|(_, path)| path.replace("{tenant}", "acme"))
}

/// The tags of a page that begin so.
fn tags<'p>(html: &'p str, begin: &'p str) -> impl Iterator<Item = &'p str> {
    html.split(begin).skip(1).map(|rest| rest.split('>').next().unwrap())
}

/// What an attribute of a tag says.
fn attribute<'t>(tag: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
    rest.split('"').next()
}

/// What every page must and must not have.
#[track_caller]
pub(crate) fn check_page(path: &str, shown: &Shown) {
    let html = &shown.text;
    assert_eq!(shown.status, StatusCode::OK, "{path}: {html}");
    let policy = shown.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{path}: {policy}");
    assert!(!policy.contains("unsafe"), "{path}: {policy}");
    assert_eq!(shown.headers["cache-control"], "no-store", "{path}");
    assert_eq!(html.matches("<h1").count(), 1, "{path}");
    for script in tags(html, "<script") {
        assert!(attribute(script, "src").is_some(), "{path}: <script{script}>");
    }
    assert!(!html.contains("hx-trigger=\"every"), "{path}: pages do not poll");
    assert!(!html.contains("<style") && !html.contains(" style="), "{path}");
    for tag in html.split('<').skip(1).map(|rest| rest.split('>').next().unwrap()) {
        let handler =
            tag.split(' ').skip(1).any(|part| part.starts_with("on") && part.contains('='));
        assert!(!handler || !tag.chars().next().unwrap().is_ascii_alphabetic(), "{path}: <{tag}>");
    }
    assert_eq!(
        html.matches("<table").count(),
        html.matches("<caption").count() + 1,
        "{path}: captions"
    );
    for head in tags(html, "<th ") {
        assert!(head.contains("scope="), "{path}: <th {head}>");
    }
    assert!(!html.contains("<th>"), "{path}: heads say what they are the head of");
    let mut ids = HashSet::new();
    for id in html.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(ids.insert(id), "{path}: two things are called {id}");
    }
    for kind in ["<input", "<select", "<textarea"] {
        for tag in tags(html, kind) {
            if let Some(id) = attribute(tag, "id") {
                assert!(html.contains(&format!(" for=\"{id}\"")), "{path}: {id} has no label");
            } else {
                let boxed = ["hidden", "checkbox", "radio"];
                let kind = attribute(tag, "type").unwrap_or_default();
                assert!(boxed.contains(&kind), "{path}: {tag} has neither id nor label");
            }
        }
    }
    let described = html.split("aria-describedby=\"").skip(1);
    for names in described.map(|rest| rest.split('"').next().unwrap()) {
        for name in names.split(' ') {
            assert!(ids.contains(name), "{path}: nothing is called {name}");
        }
    }
}

#[tokio::test]
async fn every_page_opens_and_is_whole() {
    let site = Site::open().await;
    let operator = site.operator().await;
    let mut opened = 0;
    // The page of PCA Hub is there where a subscription has a gate.
    let bare = ["/console/switch", "/console/t/acme/pca-hub"];
    for path in pages().filter(|path| !bare.contains(&path.as_str())) {
        check_page(&path, &operator.get(&path).await);
        opened += 1;
    }
    assert!(opened >= 15, "only {opened} pages");
    let switched = operator.get("/console/switch?tenant=other&to=certificates").await;
    assert_eq!(switched.leads(), "/console/t/other/certificates");
}

#[tokio::test]
async fn pages_with_things_on_them_are_whole_too() {
    let site = Site::open().await;
    let operator = site.operator().await;
    let types = [
        ("name", "order.paid"),
        ("realm", "live"),
        ("examples", "[1]"),
        ("schemas", r#"{"1": {}}"#),
    ];
    operator.submit("/console/event-types/new", &types).await.leads();
    let paths = [
        format!("/console/tenants/{}", site.acme),
        "/console/realms/live".to_owned(),
        "/console/event-types?realm=live".to_owned(),
        "/console/event-types/live/order.paid".to_owned(),
        "/console/event-types/live/order.paid/change".to_owned(),
        "/console/audit?action=tenant&order=oldest".to_owned(),
    ];
    for path in &paths {
        check_page(path, &operator.get(path).await);
    }
}

#[tokio::test]
async fn a_filter_that_cannot_be_read_is_shown_again_with_what_is_wrong() {
    let site = Site::open().await;
    let operator = site.operator().await;
    for (path, field) in [
        ("/console/audit?action=nonsense", "action"),
        ("/console/audit?from=yesterday", "from"),
        ("/console/tenants?realm=a+b", "realm"),
        ("/console/event-types?archived=perhaps", "archived"),
    ] {
        let shown = operator.get(path).await;
        let html = shown.expect(400);
        assert!(html.contains(&format!("<b>{field}</b>: ")), "{path}: {html}");
    }
    let html = operator.get("/console/audit?action=nonsense").await.text;
    assert!(
        html.contains("value=\"nonsense\"") && html.contains("aria-invalid=\"true\""),
        "{html}"
    );
}

/// Where the navigation leads.
fn navigation(html: &str) -> BTreeSet<String> {
    let (_, nav) = html.split_once("aria-label=\"Pages\">").unwrap();
    let nav = nav.split("</nav>").next().unwrap();
    tags(nav, "<a").map(|tag| attribute(tag, "href").unwrap().to_owned()).collect()
}

async fn check_navigation(browser: &Browser, from: &str) -> BTreeSet<String> {
    let links = navigation(&browser.get(from).await.expect(200));
    for link in &links {
        let status = browser.get(link).await.status;
        let first = link == "/console/" && status == StatusCode::SEE_OTHER;
        assert!(status == StatusCode::OK || first, "{link}: {status}");
    }
    links
}

#[tokio::test]
async fn the_navigation_leads_to_pages_that_open() {
    let site = Site::open().await;
    let operator = check_navigation(&site.operator().await, "/console/").await;
    for page in ["tenants", "realms", "keys", "event-types", "push", "system", "audit"] {
        assert!(operator.contains(&format!("/console/{page}")), "{page}");
    }
    assert!(operator.contains("/console/t/acme/notificaties"), "whichever tenant one looks at");
    assert!(!operator.iter().any(|link| link.ends_with("/pca-hub")), "nobody has a gate");

    let acme = site.of_acme(&[Scope::Read]).await;
    let own = check_navigation(&acme, "/console/t/acme").await;
    assert!(own.contains("/console/t/acme/certificates") && own.contains("/console/audit"));
    for page in ["tenants", "realms", "keys", "push", "system"] {
        assert!(!own.contains(&format!("/console/{page}")), "{page} is for operators");
    }

    // A realm without a tenant has pages of its own, and one with a tenant has those of that.
    let live = RealmName::new("live").unwrap();
    let realm = site.login(Bound::Realm(live.clone()), &[Scope::Read, Scope::Manage]).await;
    let bare = check_navigation(&realm, "/console/event-types").await;
    assert_eq!(bare.into_iter().collect::<Vec<_>>(), ["/console/audit", "/console/event-types"]);
    let new = NewTenant {
        name: "shop".to_owned(),
        realm: live,
        external_id: None,
        metadata: posthorn_domain::Metadata::default(),
        deliveries_per_second: None,
        ..NewTenant::default()
    };
    site.engine.create_tenant_in(new).await.unwrap();
    let whole = check_navigation(&realm, "/console/event-types").await;
    assert!(whole.contains("/console/t/shop/events"), "{whole:?}");
}

#[tokio::test]
async fn what_is_for_operators_is_closed_to_all_others() {
    let site = Site::open().await;
    let acme = site.of_acme(&[Scope::Read, Scope::Manage, Scope::Publish]).await;
    let live = RealmName::new("live").unwrap();
    let realm = site.login(Bound::Realm(live), &[Scope::Read, Scope::Manage]).await;
    let closed = [
        "tenants",
        "tenants/new",
        "realms",
        "keys",
        "keys/new",
        "push",
        "push/agents/00000000000040008000000000000000",
        "system",
        "system/config",
        "system/explain",
    ];
    for path in closed {
        for browser in [&acme, &realm] {
            let html = browser.get(&format!("/console/{path}")).await.expect(403);
            assert!(html.contains("it is for operators"), "{path}: {html}");
        }
    }
    let one = format!("/console/tenants/{}", site.acme);
    acme.get(&one).await.expect(403);
    for path in [
        "/console/t/other/certificates",
        "/console/t/other/events",
        "/console/t/other/topics",
        "/console/t/other/topics/orders",
        "/console/t/other/notificaties",
        "/console/t/other/efgs",
        "/console/t/other/cedros",
        "/console/t/other/pca-hub",
    ] {
        acme.get(path).await.expect(404);
        realm.get(path).await.expect(404);
    }
    // Event types are read by everybody of the realm, and changed by nobody of one tenant.
    acme.get("/console/event-types").await.expect(200);
    acme.get("/console/event-types/new").await.expect(403);
    acme.get("/console/event-types?realm=live").await.expect(400);
    realm.get("/console/event-types/new").await.expect(200);
}

#[tokio::test]
async fn the_overview_of_the_server_finds_the_worst_of_all_tenants() {
    let site = Site::open().await;
    let operator = site.operator().await;
    let other = site.engine.catalog().tenant_named("other").unwrap().id;
    for tenant in [site.acme, other] {
        let name = TopicName::new("orders").unwrap();
        let put = site.engine.put_topic(tenant, name, String::new(), vec![], Labels::default());
        put.await.unwrap();
    }
    // Of another tenant than the one that is looked at: one that fails every time, and one that fails every other time.
    let key = site.engine.create_key(
        Some(other),
        vec![Scope::Read, Scope::Manage, Scope::Publish],
        String::new(),
        None,
        None,
    );
    let key = key.await.unwrap().text;
    let once = json!({"schedule": {"max_attempts": 1}});
    let only = |url: &str, name: &str, types: &[&str]| {
        let filter = json!({"any_of": [{"topics": ["orders"], "types": types}]});
        json!({"url": url, "name": name, "policy": once, "filter": filter})
    };
    let made = [
        only("https://works.example/", "fine", &["good", "bad"]),
        only("https://x.example/fails", "sometimes", &["bad"]),
    ];
    for new in made {
        ask(&site, &key, "POST", "/v1/subscriptions", new).await;
    }
    for number in 0..6 {
        let kind = if number % 2 == 0 { "bad" } else { "good" };
        let event = json!({"topic": "orders", "type": kind, "payload": {}});
        ask(&site, &key, "POST", "/v1/events", event).await;
    }
    let mut page = String::new();
    for _ in 0..100 {
        page = operator.get("/console/").await.expect(200);
        if page.contains("<table id=\"failing\">") && page.contains("<table id=\"dead-rows\">") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let part = |id: &str| {
        let (_, rest) = page.split_once(&format!("<table id=\"{id}\">")).expect(&page);
        rest.split_once("</table>").unwrap().0.to_owned()
    };
    let failing = part("failing");
    assert!(failing.contains("sometimes") && failing.contains("tenant other"), "{failing}");
    assert!(failing.contains("/console/t/other/subscriptions/"), "{failing}");
    assert!(!failing.contains(">fine<"), "{failing}");
    let dead = part("dead-rows");
    assert!(dead.contains("/console/t/other/deliveries/dlv_"), "{dead}");
    assert!(dead.contains("<td>other</td>"), "{dead}");
    // The pages of a tenant have its own only.
    let own = operator.get("/console/t/acme").await.expect(200);
    assert!(!own.contains("sometimes") && !own.contains("/console/t/other/"), "{own}");
    let own = operator.get("/console/t/other").await.expect(200);
    assert!(own.contains("sometimes"), "{own}");
}

#[tokio::test]
async fn the_overview_names_the_ten_worst_of_many_receivers() {
    const MANY: u64 = 40;
    const MINUTES: u64 = 60;
    let site = Site::open().await;
    let operator = site.operator().await;
    let scopes = vec![Scope::Manage];
    let key = site.engine.create_key(Some(site.acme), scopes, String::new(), None, None);
    let key = key.await.unwrap().text;
    for number in 0..MANY {
        let new = json!({"url": "https://ok.example/", "name": format!("r-{number:04}")});
        ask(&site, &key, "POST", "/v1/subscriptions", new).await;
    }
    let all = site.engine.catalog().subscriptions(site.acme);
    let ids: Vec<_> = all.iter().map(|view| view.subscription.id).collect();
    // What another node has counted: receiver 7 fails most.
    let now = RollupStep::Minute.floor(site.engine.now());
    let node = NodeId::new(now, 99);
    for minute in 0..MINUTES {
        let minutes = ids.iter().zip(0_u64..).map(|(id, nth)| {
            let mut counts = RollupCounts::default();
            for _ in 0..if nth == 7 { 3 } else { 1 } {
                counts.attempted(Span::from_millis(5), Some(FailureClass::Broken));
            }
            let minute = now.minus(Span::from_secs(60 * minute));
            MinuteRollup { scope: RollupScope::Subscription(*id), minute, counts }
        });
        let rollups = Rollups { node, number: minute + 1, minutes: minutes.collect() };
        site.engine.store().record_with(vec![], Some(rollups)).await.unwrap();
    }
    let mut page = String::new();
    for _ in 0..100 {
        page = operator.get("/console/").await.expect(200);
        if page.contains(">r-0007</a>") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let (_, failing) = page.split_once("<table id=\"failing\">").expect(&page);
    let first = failing.split("<tr data-row").nth(1).unwrap();
    assert!(first.contains(">r-0007</a>") && first.contains(">180<"), "{first}");
    assert!(page.contains("and 30 more"), "{page}");
}
