//! What lists and the pages behind their rows say: counts, filters, the way back, and what comes next.

use posthorn_domain::{Labels, Scope, TopicName};
use serde_json::json;

use crate::bulk::furnish;
use crate::harness::{Browser, Site};

const HOME: &str = "/console/t/acme";

/// The part of a page between two texts.
#[track_caller]
fn between<'p>(page: &'p str, from: &str, until: &str) -> &'p str {
    let (_, rest) = page.split_once(from).unwrap_or_else(|| panic!("no {from}: {page}"));
    rest.split(until).next().unwrap()
}

/// The id of the newest event.
async fn newest(acme: &Browser) -> String {
    let html = acme.get(&format!("{HOME}/events")).await.expect(200);
    format!("evt_{}", between(&html, "id=\"r-evt_", "\""))
}

#[tokio::test]
async fn rows_of_events_say_what_became_of_them() {
    let site = Site::open().await;
    let acme = furnish(&site).await;
    let html = acme.get(&format!("{HOME}/events")).await.expect(200);
    let row = between(&html, "<tr data-row id=\"r-evt_", "</tr>");
    assert!(row.contains("<span class=\"state good\">1 delivered</span>"), "{row}");
    assert!(row.contains("<span class=\"state bad\">1 dead</span>"), "{row}");
    assert!(!row.contains("waiting") && row.contains("data-copy=\"evt_"), "{row}");
    let form = [("topic", "orders"), ("type", "order.sent"), ("payload", "4")];
    acme.submit(&format!("{HOME}/events/new"), &form).await.leads();
    site.settles(4, 4).await;
    for (types, rows) in [
        ("order.paid", 3),
        ("order.paid%2C+order.sent", 4),
        ("order.sent&type=order.paid", 4),
        ("order.lost", 0),
    ] {
        let html = acme.get(&format!("{HOME}/events?type={types}")).await.expect(200);
        assert_eq!(html.matches("<tr data-row").count(), rows, "{types}: {html}");
    }
    let html = acme.get(&format!("{HOME}/events?type=order.paid%2Corder.sent")).await.expect(200);
    assert!(html.contains("name=\"type\" value=\"order.paid,order.sent\""), "{html}");
}

#[tokio::test]
async fn an_id_that_is_none_stays_in_its_field_with_what_is_wrong() {
    let site = Site::open().await;
    let acme = furnish(&site).await;
    for (typed, said) in [
        ("evt_nonsense", "This is not the id of an event"),
        ("evt_01hf7yat00000000000000000z", "There is no event with this id here."),
    ] {
        let html = acme.get(&format!("{HOME}/events?id={typed}")).await.expect(400);
        assert!(html.contains(&format!("name=\"id\" value=\"{typed}\"")), "{html}");
        assert!(html.contains("aria-invalid=\"true\" aria-describedby=\"f-id-wrong\""), "{html}");
        let wrong = between(&html, "id=\"f-id-wrong\" role=\"alert\">", "</p>");
        assert!(wrong.contains(said), "{wrong}");
    }
    let own = newest(&acme).await;
    let place = acme.get(&format!("{HOME}/events?id={own}")).await.leads();
    assert_eq!(place, format!("{HOME}/events/{own}"));
}

#[tokio::test]
async fn a_range_is_chosen_in_utc_or_given_with_its_zone() {
    let site = Site::open().await;
    let acme = furnish(&site).await;
    let audit = "/console/audit";
    let lists = ["events", "deliveries", "dead-letters"].map(|list| format!("{HOME}/{list}"));
    for list in lists.iter().map(String::as_str).chain([audit]) {
        for (range, some) in [
            ("from=2026-01-01T00:00", true),
            ("from=2026-01-01T00:00:00Z", true),
            ("until=2026-01-01T00:00:30", false),
            ("until=2026-01-01T00:00:00%2B01:00", false),
        ] {
            let html = acme.get(&format!("{list}?{range}")).await.expect(200);
            assert_eq!(html.contains("<tr data-row"), some, "{list} {range}: {html}");
        }
        let html = acme.get(&format!("{list}?from=2026-01-01T00:00")).await.expect(200);
        assert!(html.contains(">From (UTC)</label>"), "{html}");
        assert!(html.contains("type=\"datetime-local\" step=\"1\" value=\"2026-01-01T00:00:00\""));
        let html = acme.get(&format!("{list}?from=yesterday")).await.expect(400);
        assert!(html.contains("type=\"text\" step=\"1\" value=\"yesterday\""), "{html}");
    }
}

#[tokio::test]
async fn an_event_shows_its_bytes_and_retries_all_that_failed() {
    let site = Site::open().await;
    let acme = furnish(&site).await;
    let body = "{\"a\":1.10,\t\"b\":\"\\u0007\"}";
    let form = [("topic", "orders"), ("type", "order.odd"), ("payload", body)];
    let place = acme.submit(&format!("{HOME}/events/new"), &form).await.leads();
    site.settles(4, 4).await;
    let html = acme.get(&place).await.expect(200);
    assert!(html.contains("<table id=\"rows\">"), "rows are held while one reads them");
    let raw = between(&html, "Raw, byte for byte</summary><pre tabindex=\"0\">", "</pre>");
    assert_eq!(raw, "{&#34;a&#34;:1.10,\\t&#34;b&#34;:&#34;\\\\u0007&#34;}");
    let id = between(&place, "/events/", "?");
    let all = format!("{HOME}/deliveries/matching?event={id}&amp;state=dead&amp;act=retry");
    assert!(html.contains(&format!("href=\"{all}\">Retry all that failed</a>")), "{html}");
    let path = all.replace("&amp;", "&");
    let html = acme.get(&path).await.expect(200);
    assert!(html.contains("<strong>1</strong> would be delivered again"), "of four: {html}");
    let job = acme.submit(&path, &[]).await.leads();
    assert!(acme.get(&job).await.expect(200).contains("1 done"));
    let reader = site.of_acme(&[Scope::Read]).await;
    assert!(!reader.get(&place).await.expect(200).contains("Retry all that failed"));
}

#[tokio::test]
async fn a_delivery_says_what_comes_next_and_how_its_signature_is_verified() {
    let site = Site::open().await;
    let acme = furnish(&site).await;
    let html = acme.get(&format!("{HOME}/dead-letters")).await.expect(200);
    let id = format!("dlv_{}", between(&html, "id=\"r-dlv_", "\""));
    let html = acme.get(&format!("{HOME}/deliveries/{id}")).await.expect(200);
    for text in [
        "Others of this event</a>",
        "Nothing by itself. A retry begins its schedule from the start.",
        "Profile default: A delivery is tried once, at once.",
        "<summary>Verify this signature</summary>",
        "The header webhook-signature has one signature for each secret in use",
        "<h3>Request <span class=\"soft small\">body of 1 B</span></h3>",
        "All attempts of its schedule were made, and none succeeded.",
        "the filter of the subscription wants this event",
    ] {
        assert!(html.contains(text), "{text}: {html}");
    }
    assert!(!html.contains("policy.schedule"), "{html}");
    let others = between(&html, "?event=evt_", "\"").to_owned();
    let html = acme.get(&format!("{HOME}/deliveries?event=evt_{others}")).await.expect(200);
    assert_eq!(html.matches("<tr data-row").count(), 2, "{html}");
    let fails = site.engine.catalog().subscriptions(site.acme)[1].subscription.id;
    site.engine.delete_subscription(site.acme, fails).await.unwrap();
    let html = acme.get(&format!("{HOME}/deliveries/{id}")).await.expect(200);
    assert!(html.contains("Nothing: its subscription is gone."), "{html}");
}

#[tokio::test]
async fn a_delivery_says_how_many_wait_behind_it() {
    let site = Site::open().await;
    let name = TopicName::new("orders").unwrap();
    let made = site.engine.put_topic(site.acme, name, String::new(), vec![], Labels::default());
    made.await.unwrap();
    let acme = site.of_acme(&[Scope::Read, Scope::Manage, Scope::Publish]).await;
    let order = json!({"order": {"scope": "subscription"}}).to_string();
    let form = [("name", "row"), ("url", "https://hook.example/"), ("policy", &order)];
    acme.submit(&format!("{HOME}/subscriptions/new"), &form).await.expect(200);
    let own = site.engine.catalog().subscriptions(site.acme)[0].subscription.id;
    acme.submit(&format!("{HOME}/subscriptions/{own}/pause"), &[]).await.leads();
    for number in ["1", "2", "3"] {
        let form = [("topic", "orders"), ("type", "order.paid"), ("payload", number)];
        acme.submit(&format!("{HOME}/events/new"), &form).await.leads();
    }
    let html = acme.get(&format!("{HOME}/deliveries?order=oldest")).await.expect(200);
    let ids: Vec<&str> = html.split("id=\"r-dlv_").skip(1).collect();
    let ids: Vec<&str> = ids.iter().map(|rest| rest.split('"').next().unwrap()).collect();
    let head = acme.get(&format!("{HOME}/deliveries/dlv_{}", ids[0])).await.expect(200);
    assert!(head.contains("2 wait behind it"), "{head}");
    let last = acme.get(&format!("{HOME}/deliveries/dlv_{}", ids[2])).await.expect(200);
    assert!(!last.contains("wait behind it"), "{last}");
}

#[tokio::test]
async fn a_subscription_is_renamed_and_its_description_taken_away() {
    let site = Site::open().await;
    let acme = furnish(&site).await;
    let own = site.engine.catalog().subscriptions(site.acme)[0].subscription.id;
    let path = format!("{HOME}/subscriptions/{own}");
    let told = || site.engine.catalog().subscription(site.acme, own).unwrap().subscription.clone();
    let form = [("name", "renamed"), ("description", "for tests"), ("profile", "default")];
    acme.submit(&format!("{path}/change"), &form).await.leads();
    assert_eq!(told().name.map(|name| name.to_string()).as_deref(), Some("renamed"));
    assert_eq!(told().description, "for tests");
    let html = acme.get(&path).await.expect(200);
    assert!(html.contains("id=\"c-name\" name=\"name\" value=\"renamed\""), "{html}");
    let profiles = between(&html, "<select id=\"c-profile\"", "</select>");
    assert!(profiles.contains("<option value=\"default\" selected>"), "{profiles}");
    let other = profiles.split("<option value=\"").skip(1).map(|rest| rest.split('"').next());
    let other = other.flatten().find(|name| *name == "cedros-pay").unwrap_or("default").to_owned();
    acme.submit(&format!("{path}/change"), &[("description", ""), ("profile", &other)])
        .await
        .leads();
    assert_eq!((told().description.as_str(), told().profile.to_string()), ("", other));
    assert!(told().name.is_some(), "a form without the field leaves it");
    acme.submit(&format!("{path}/change"), &[("name", "")]).await.leads();
    assert_eq!(told().name, None);
    let long = "x".repeat(300);
    let html = acme.submit(&format!("{path}/change"), &[("name", &long)]).await.expect(400);
    assert!(html.contains("id=\"w-name\"") && html.contains("value=\"xxx"), "{html}");
}

#[tokio::test]
async fn subscriptions_are_paused_resumed_and_tested_in_their_rows() {
    let site = Site::open().await;
    let acme = furnish(&site).await;
    let own = site.engine.catalog().subscriptions(site.acme)[0].subscription.id;
    let html = acme.get(&format!("{HOME}/subscriptions?name=works&range=1h")).await.expect(200);
    let row = between(&html, &format!("id=\"r-{own}\""), "</tr>");
    for action in ["test", "pause"] {
        assert!(row.contains(&format!("action=\"{HOME}/subscriptions/{own}/{action}\"")), "{row}");
    }
    let back = between(row, "name=\"back\" value=\"", "\"").replace("&#38;", "&");
    let place =
        acme.submit(&format!("{HOME}/subscriptions/{own}/pause"), &[("back", &back)]).await.leads();
    assert_eq!(place, format!("{HOME}/subscriptions?name=works&range=1h&done=paused"));
    let html = acme.get(&place).await.expect(200);
    assert!(html.contains(&format!("{own}/resume")) && html.contains(">paused</span>"), "{html}");
    // Only to the list: what else is sent leads nowhere.
    let odd = [("back", "//elsewhere.example/?name=works")];
    let place = acme.submit(&format!("{HOME}/subscriptions/{own}/resume"), &odd).await.leads();
    assert_eq!(place, format!("{HOME}/subscriptions?done=resumed"));
    let reader = site.of_acme(&[Scope::Read]).await;
    let html = reader.get(&format!("{HOME}/subscriptions")).await.expect(200);
    assert!(!html.contains("/pause\""), "{html}");
}

#[tokio::test]
async fn a_filter_without_groups_wants_nothing() {
    let site = Site::open().await;
    let acme = furnish(&site).await;
    let own = site.engine.catalog().subscriptions(site.acme)[0].subscription.id;
    let path = format!("{HOME}/subscriptions/{own}/change");
    acme.submit(&path, &[("filter", "{\"any_of\": []}")]).await.leads();
    let html = acme.get(&format!("{HOME}/subscriptions?name=works")).await.expect(200);
    assert!(html.contains("<td>nothing</td>") && !html.contains("everything"), "{html}");
    let html = acme.get(&format!("{HOME}/topics/orders")).await.expect(200);
    assert!(html.contains(">fails</a>") && !html.contains(">works</a>"), "{html}");
}

#[tokio::test]
async fn redrives_are_all_reachable_with_who_has_started_them() {
    let site = Site::open().await;
    let acme = furnish(&site).await;
    for _ in 0..12 {
        acme.submit(&format!("{HOME}/dead-letters/redrive"), &[]).await.leads();
    }
    let html = acme.get(&format!("{HOME}/jobs")).await.expect(200);
    assert_eq!(html.matches("<tr data-row").count(), 10, "{html}");
    assert_eq!(html.matches("<td>session a key</td>").count(), 10, "{html}");
    assert!(html.contains("<progress value=\"") && html.contains("jobs?kind=redrives\""), "{html}");
    let html = acme.get(&format!("{HOME}/jobs?kind=redrives")).await.expect(200);
    assert_eq!(html.matches("<tr data-row").count(), 12, "{html}");
    assert_eq!(html.matches("<td>session a key</td>").count(), 12, "{html}");
    for _ in 0..14 {
        acme.submit(&format!("{HOME}/dead-letters/redrive"), &[]).await.leads();
    }
    let html = acme.get(&format!("{HOME}/jobs?kind=redrives")).await.expect(200);
    let next = between(&html, "rel=\"next\" href=\"", "\"").replace("&#38;", "&");
    let html = acme.get(&format!("{HOME}/jobs{next}")).await.expect(200);
    assert_eq!(html.matches("<tr data-row").count(), 1, "{html}");
    assert!(html.contains("<td>session a key</td>"), "{html}");
}
