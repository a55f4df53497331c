//! Many deliveries at once, dead letters in groups, the overview, and the filter of a subscription.

use std::time::Duration;

use posthorn_domain::{CatalogVersion, EventType, Labels, NodeId, Scope, Timestamp, TopicName};
use posthorn_engine::Publish;
use posthorn_store::Heartbeat;
use serde_json::json;

use crate::harness::{Browser, Site};

const HOME: &str = "/console/t/acme";

/// A tenant with one receiver that works, one that fails, and three events for both.
pub(crate) async fn furnish(site: &Site) -> Browser {
    let name = TopicName::new("orders").unwrap();
    site.engine
        .put_topic(site.acme, name, String::new(), Vec::new(), Labels::default())
        .await
        .unwrap();
    let acme = site.of_acme(&[Scope::Read, Scope::Manage, Scope::Publish]).await;
    for name in ["works", "fails"] {
        let once = json!({"schedule": {"max_attempts": 1}}).to_string();
        let url = format!("https://hook.example/{name}");
        let form = [("name", name), ("url", &url), ("topics", "orders"), ("policy", &once)];
        acme.submit(&format!("{HOME}/subscriptions/new"), &form).await.expect(200);
    }
    for number in ["1", "2", "3"] {
        let form = [("topic", "orders"), ("type", "order.paid"), ("payload", number)];
        acme.submit(&format!("{HOME}/events/new"), &form).await.leads();
    }
    site.settles(3, 3).await;
    acme
}

/// The ids of the boxes on a page.
fn ids(html: &str) -> Vec<String> {
    let boxes = html.split("name=\"delivery\" value=\"").skip(1);
    boxes.map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn selected_rows_are_asked_about_before_anything_is_done() {
    let site = Site::open().await;
    let acme = furnish(&site).await;
    let html = acme.get(&format!("{HOME}/deliveries?state=dead")).await.expect(200);
    let dead = ids(&html);
    assert_eq!(dead.len(), 3, "{html}");
    let path = format!("{HOME}/deliveries/selected");
    let two = [("delivery", dead[0].as_str()), ("delivery", dead[1].as_str())];
    let asked = [&two[..], &[("act", "forget")]].concat();
    let html = acme.submit(&path, &asked).await.expect(200);
    assert!(html.contains("2 deliveries.") && html.contains("Delete them for good"), "{html}");
    site.settles(3, 3).await;
    let sure = [&asked[..], &[("sure", "1")]].concat();
    let html = acme.submit(&path, &sure).await.expect(200);
    assert!(html.contains("2 were deleted."), "{html}");
    site.settles(3, 1).await;
    // What is gone cannot be retried, and the page says of which that is true.
    let retry = [
        ("delivery", dead[0].as_str()),
        ("delivery", dead[2].as_str()),
        ("act", "retry"),
        ("sure", "1"),
    ];
    let html = acme.submit(&path, &retry).await.expect(200);
    assert!(html.contains("1 was tried again. 1 could not be."), "{html}");
    assert!(html.contains(&format!("deliveries/{}", dead[0])), "{html}");
    site.settles(3, 1).await;
    let html = acme.submit(&path, &[("act", "cancel")]).await.expect(200);
    assert!(html.contains("No row is selected."), "{html}");
    let many: Vec<(String, String)> =
        (0..101).map(|n| ("delivery".to_owned(), format!("dlv_{n:026}"))).collect();
    let many: Vec<(&str, &str)> =
        many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let filtered = format!("{path}?status=5xx&state=dead");
    let html = acme.submit(&filtered, &many).await.expect(400);
    assert!(html.contains("101 rows are selected, and at most 100 can be at once."), "{html}");
    let all = format!("{HOME}/deliveries/matching?status=5xx&#38;state=dead&#38;act=retry");
    assert!(
        html.contains(&format!("href=\"{HOME}/deliveries?status=5xx&#38;state=dead\"")),
        "{html}"
    );
    assert!(html.contains(">All that match</a>") && html.contains(&all), "{html}");
    // Whoever acts on some rows comes back to the list as it was.
    let html = acme.get(&format!("{HOME}/dead-letters?status=5xx")).await.expect(200);
    let action =
        html.split(&format!("action=\"{path}?")).nth(1).unwrap().split('"').next().unwrap();
    let action = format!("{path}?{}", action.replace("&#38;", "&"));
    let back = format!("href=\"{HOME}/dead-letters?status=5xx\"");
    let rest = [("delivery", dead[2].as_str()), ("act", "retry")];
    assert!(acme.submit(&action, &rest).await.expect(200).contains(&back));
    let rest = [&rest[..], &[("sure", "1")]].concat();
    let html = acme.submit(&action, &rest).await.expect(200);
    assert!(html.contains("1 was tried again.") && html.contains(&back), "{html}");
    // Somebody who may only look has neither boxes nor buttons.
    let reader = site.of_acme(&[Scope::Read]).await;
    let html = reader.get(&format!("{HOME}/deliveries")).await.expect(200);
    assert!(ids(&html).is_empty() && !html.contains("/deliveries/matching"), "{html}");
}

#[tokio::test]
async fn all_that_match_become_a_job_with_the_count_first() {
    let site = Site::open().await;
    let acme = furnish(&site).await;
    let html = acme.get(&format!("{HOME}/deliveries/matching?state=dead")).await.expect(200);
    assert!(html.contains("<strong>3</strong> would be delivered again"), "{html}");
    let path = format!("{HOME}/deliveries/matching?state=dead");
    let html = acme.submit(&path, &[("per_second", "many")]).await.expect(400);
    assert!(
        html.contains("id=\"w-pace\" role=\"alert\">The pace must be a number.</p>")
            && html.contains("aria-describedby=\"w-pace\""),
        "beside its field: {html}"
    );
    let place = acme.submit(&path, &[("per_second", "50")]).await.leads();
    assert!(place.starts_with(&format!("{HOME}/jobs/job_")), "{place}");
    let html = acme.get(&place).await.expect(200);
    assert!(html.contains("Retry of deliveries") && html.contains("3 done"), "{html}");
    assert!(html.contains("at most 50 a second"), "{html}");
    assert!(html.contains("<dt>By</dt>"), "who has started it: {html}");
    site.settles(3, 3).await;

    let path = format!("{HOME}/deliveries/matching?state=delivered&subscription=works");
    let html = acme.get(&path).await.expect(200);
    assert!(html.contains("All deliveries that are delivered of works."), "{html}");
    assert!(html.contains("<strong>3</strong> would be delivered again"), "{html}");
    let place = acme.submit(&path, &[]).await.leads();
    assert!(place.starts_with(&format!("{HOME}/jobs/job_")), "{place}");
    for (filter, count) in [
        ("status=503", 3),
        ("state=dead&status=5xx&reason=exhausted&from=2026-01-01T00:00", 3),
        ("status=404", 0),
        ("state=dead&until=2026-01-01T00:00:00Z", 0),
    ] {
        let path = format!("{HOME}/deliveries/matching?{filter}");
        let html = acme.get(&path).await.expect(200);
        assert!(html.contains("All dead letters"), "{html}");
        let said = format!("<strong>{count}</strong> would be delivered again");
        assert!(html.contains(&said) && html.contains("Start the job"), "{filter}: {html}");
    }
    let waits = format!("{HOME}/deliveries/matching?state=pending&act=retry");
    let html = acme.get(&waits).await.expect(200);
    assert!(html.contains("tried by its schedule") && !html.contains("Start the job"), "{html}");
    let html = acme.get(&format!("{HOME}/deliveries/matching?state=dead&subscription=no")).await;
    assert!(html.expect(400).contains("no subscription has this id or name"));
}

#[tokio::test]
async fn all_that_match_are_cancelled_or_deleted_by_a_job_with_the_count_first() {
    let site = Site::open().await;
    let acme = furnish(&site).await;
    let path = format!("{HOME}/deliveries/matching?state=dead&status=5xx&act=forget");
    let html = acme.get(&path).await.expect(200);
    assert!(html.contains("<strong>3</strong> would be deleted for good"), "{html}");
    let html = acme.submit(&path, &[("per_second", "0")]).await.expect(400);
    assert!(html.contains("must be 1 to 5000"), "{html}");
    let place = acme.submit(&path, &[("per_second", "50")]).await.leads();
    assert!(place.starts_with(&format!("{HOME}/jobs/job_")), "{place}");
    let html = acme.get(&place).await.expect(200);
    assert!(html.contains("Deletion of deliveries") && html.contains("3 done"), "{html}");
    assert!(html.contains("<dt>By</dt>") && html.contains("at most 50 a second"), "{html}");
    site.settles(3, 0).await;
    let html = acme.get(&format!("{HOME}/deliveries/matching?state=pending")).await.expect(200);
    assert!(html.contains("<strong>0</strong> would be cancelled"), "{html}");
    let everything = format!("{HOME}/deliveries/matching?act=forget");
    let html = acme.get(&everything).await.expect(400);
    assert!(html.contains("at least one condition") && !html.contains("Start the job"), "{html}");
    acme.submit(&everything, &[]).await.expect(400);
    // Who may only look cannot start one either.
    let reader = site.of_acme(&[Scope::Read]).await;
    reader.get(&path).await.expect(403);
    reader.submit(&path, &[]).await.expect(403);
}

#[tokio::test]
async fn dead_letters_stand_in_groups_that_can_be_retried() {
    let site = Site::open().await;
    let acme = furnish(&site).await;
    let html = acme.get(&format!("{HOME}/dead-letters")).await.expect(200);
    let group = html.split("<tr id=\"g-").nth(1).unwrap();
    let group = group.split("</tr>").next().unwrap();
    assert!(group.contains(">fails</a>") && group.contains(">exhausted</span>"), "{group}");
    assert!(group.contains("<td class=\"number\">3</td>"), "{group}");
    let (_, rest) = group.split_once("class=\"button\" href=\"").unwrap();
    let path = rest.split('"').next().unwrap().replace("&#38;", "&").replace("&amp;", "&");
    let html = acme.get(&path).await.expect(200);
    assert!(
        html.contains("of <strong>fails</strong>") && html.contains("<strong>3</strong> of them"),
        "{html}"
    );
    let html = acme.get(&format!("{HOME}/dead-letters/redrive?reason=nonsense")).await.expect(400);
    assert!(html.contains("No dead letter has this reason."), "{html}");
    let path = format!("{HOME}/dead-letters/redrive");
    let html = acme.submit(&path, &[("per_second", "many")]).await.expect(400);
    assert!(html.contains("id=\"w-pace\" role=\"alert\">The pace must be a number.</p>"), "{html}");
    let place = acme.submit(&path, &[("per_second", "50")]).await.leads();
    assert!(place.starts_with(&format!("{HOME}/redrives/rdr_")), "{place}");
    let html = acme.get(&place).await.expect(200);
    assert!(html.contains("3 of 3 put back") && html.contains("at most 50 a second"), "{html}");
    assert!(html.contains("<dt>By</dt><dd>session a key</dd>"), "who has started it: {html}");
    // All of a filter are all of that filter.
    site.settles(3, 3).await;
    let html = acme.get(&format!("{HOME}/dead-letters?status=503")).await.expect(200);
    let all = format!(
        "class=\"button main-action\" href=\"{HOME}/deliveries/matching?status=503&#38;state=dead&#38;act=retry\""
    );
    assert!(html.contains(&all), "{html}");
}

#[tokio::test]
async fn the_overview_names_what_is_wrong_and_who_does_worst() {
    let site = Site::open().await;
    let operator = site.operator().await;
    let html = operator.get("/console/").await.expect(200);
    assert!(html.contains("Publish a first event") && !html.contains("id=\"arrived\""), "{html}");
    furnish(&site).await;
    let html = operator.get(HOME).await.expect(200);
    assert!(!html.contains("Publish a first event") && html.contains("It works: the first events"));
    let failing =
        html.split("<table id=\"failing\">").nth(1).unwrap().split("</table>").next().unwrap();
    assert!(failing.contains(">fails</a>") && !failing.contains(">works</a>"), "{failing}");
    assert!(failing.contains("<td class=\"number\">3</td>"), "at once: {failing}");
    let html = operator.get("/console/").await.expect(200);
    assert!(html.contains("<dt>Oldest due</dt><dd>nothing is late</dd>"), "{html}");
    assert!(html.contains("<dt>Commit wait</dt>") && html.contains("Nothing waits."), "{html}");
    assert!(!html.contains("class=\"notice bad\" role=\"alert\"><p><strong>"), "{html}");
    site.engine.admission().set_disk_full(true);
    site.engine.admission().set_disk_used(97);
    let html = operator.get("/console/").await.expect(200);
    let (_, banner) = html.split_once("<strong>The disk is full.</strong>").unwrap();
    let banner = banner.split("</div>").next().unwrap();
    for text in [
        " Since <time",
        "Every publish is refused",
        "as soon as there is space",
        "href=\"/console/system\"",
    ] {
        assert!(banner.contains(text), "{text}: {banner}");
    }
    assert!(html.contains("97 % used"), "{html}");
    // Whose server it is not is not told of its disk.
    let acme = site.of_acme(&[Scope::Read]).await;
    let html = acme.get(HOME).await.expect(200);
    assert!(!html.contains("The disk is full") && !html.contains("Commit wait"), "{html}");
}

/// Publishes that wait longer for their commits than they may, and a node that was heard of and is not any more.
#[tokio::test]
async fn the_overview_says_that_the_server_is_overloaded_and_that_a_node_is_gone() {
    let admission = posthorn_engine::AdmissionOptions {
        commit_delay: Duration::from_nanos(1),
        ..posthorn_engine::AdmissionOptions::default()
    };
    let options = posthorn_engine::Options { admission, ..posthorn_engine::Options::default() };
    let site = Site::open_on(posthorn_api::Options::default(), options).await;
    let operator = site.operator().await;
    let html = operator.get("/console/").await.expect(200);
    assert!(!html.contains("overloaded") && !html.contains("is gone."), "{html}");
    let node = NodeId::new(Timestamp::from_millis(0), 7);
    let ttl = Duration::from_millis(1);
    let beat = Heartbeat { node, ttl, catalog: CatalogVersion(0), version: "1" };
    site.engine.store().heartbeat(beat).await.unwrap();
    Browser::api(&site, "PUT", "/v1/topics/orders", json!({})).await;
    let publish = Publish {
        topic: TopicName::new("orders").unwrap(),
        event_type: EventType::new("a").unwrap(),
        attributes: std::collections::BTreeMap::new(),
        key: None,
        content_type: "application/json".to_owned(),
        payload: "1".into(),
        idempotency: None,
        publisher_id: None,
        deliver_at: None,
        retention: None,
        trace: None,
    };
    let mut html = String::new();
    for _ in 0..500 {
        // Late for a second, and overloaded for as long again.
        drop(site.engine.publish(site.acme, publish.clone()).await);
        html = operator.get("/console/").await.expect(200);
        if html.contains("The server is overloaded") && html.contains("is gone.") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for text in [
        "<strong>The server is overloaded: publishes come faster than they can be stored.</strong> Since <time",
        "Some publishes are refused with 503",
        &format!("<strong>Node {node} is gone.</strong> Since <time"),
        "The other nodes have its work now.",
    ] {
        assert!(html.contains(text), "{text}: {html}");
    }
    // Customers' own keys see neither.
    let html = site.of_acme(&[Scope::Read]).await.get(HOME).await.expect(200);
    assert!(!html.contains("overloaded") && !html.contains("is gone."), "{html}");
}

#[tokio::test]
async fn what_waits_is_counted_by_receiver() {
    let site = Site::open().await;
    let acme = furnish(&site).await;
    let works = site.engine.catalog().subscriptions(site.acme)[0].subscription.id;
    acme.submit(&format!("{HOME}/subscriptions/{works}/pause"), &[]).await.leads();
    let form = [("topic", "orders"), ("type", "order.paid"), ("payload", "4")];
    acme.submit(&format!("{HOME}/events/new"), &form).await.leads();
    let html = acme.get(HOME).await.expect(200);
    let rows =
        html.split("<table id=\"backlog\">").nth(1).unwrap().split("</table>").next().unwrap();
    assert!(rows.contains(">works</a>") && rows.contains(">paused</span>"), "{rows}");
}

#[tokio::test]
async fn a_filter_is_built_tried_and_saved() {
    let site = Site::open().await;
    let acme = furnish(&site).await;
    let works = site.engine.catalog().subscriptions(site.acme)[0].subscription.id;
    let path = format!("{HOME}/subscriptions/{works}/filter");
    let html = acme.get(&path).await.expect(200);
    assert!(html.contains("name=\"topics\" value=\"orders\""), "{html}");
    let recent = html.split("<option value=\"evt_").nth(1).unwrap().split('"').next().unwrap();
    let recent = format!("evt_{recent}");
    let other =
        [("topics", "orders"), ("types", "refund.*"), ("event_id", recent.as_str()), ("do", "try")];
    let html = acme.submit(&path, &other).await.expect(200);
    assert!(html.contains("It does not want that event:"), "{html}");
    assert!(html.contains("name=\"types\" value=\"refund.*\""), "what was typed stays: {html}");
    let pasted = r#"{"topic": "orders", "type": "refund.made", "payload": {}}"#;
    let form = [("types", "refund.*"), ("event", pasted), ("do", "try")];
    let html = acme.submit(&path, &form).await.expect(200);
    assert!(html.contains("This filter wants that event."), "{html}");
    let html = acme.submit(&path, &[("attributes", "region"), ("do", "save")]).await.expect(400);
    assert!(html.contains("id=\"w-attributes\""), "{html}");
    let form = [("types", "refund.*"), ("attributes", "region=eu, us"), ("do", "save")];
    let place = acme.submit(&path, &form).await.leads();
    assert_eq!(place, format!("{HOME}/subscriptions/{works}?done=changed"));
    let view = site.engine.catalog().subscription(site.acme, works).unwrap();
    let saved = serde_json::to_value(&view.subscription.filter).unwrap();
    assert_eq!(saved["any_of"][0]["attributes"]["region"], json!(["eu", "us"]));
    let html = acme.get(&place).await.expect(200);
    assert!(html.contains("A delivery is tried once, at once."), "the policy in words: {html}");
}

#[tokio::test]
async fn a_secret_is_rotated_with_an_overlap() {
    let site = Site::open().await;
    let acme = furnish(&site).await;
    let works = site.engine.catalog().subscriptions(site.acme)[0].subscription.id;
    let path = format!("{HOME}/subscriptions/{works}/rotate");
    let html = acme.submit(&path, &[("overlap", "2h"), ("sure", "1")]).await.expect(200);
    assert!(html.contains("whsec_"), "{html}");
    let html = acme.submit(&path, &[("overlap", "soon"), ("sure", "1")]).await.expect(400);
    assert!(html.contains("id=\"w-overlap\""), "{html}");
}
