use super::*;

const ID: &str = "app_2Aq5qHHyWY4uX5KRbJLm3vwVZcd";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn moved(thing: &Value, secret: Option<&str>, headers: &Value) -> Result<Moved, Left> {
    let given = Endpoint { thing, secret, headers, transformation: None };
    endpoint(&given, &"messages".parse().unwrap(), &"svix".parse().unwrap())
}

fn codes(moved: &Moved) -> Vec<&'static str> {
    moved.left.iter().map(|left| left.code).collect()
}

#[test]
fn an_application_is_a_tenant_that_remembers_its_id() {
    let thing = json!({
        "id": ID, "name": "ACME Corp.", "uid": "acme", "metadata": {"a": "b"}, "rateLimit": 7,
    });
    let made = application(&thing, &RealmName::default()).unwrap();
    assert!(made.body["name"].as_str().unwrap().starts_with("acme-corp.-"));
    let elsewhere = application(&thing, &"staging".parse().unwrap()).unwrap();
    assert_ne!(made.body["name"], elsewhere.body["name"], "names of tenants are unique");
    assert_eq!(made.body["labels"], json!({"svix.id": ID, "svix.name": "ACME Corp."}));
    assert_eq!(made.body["external_id"], "acme");
    assert_eq!(made.body["deliveries_per_second"], 7);
    assert!(application_change(&made.body, &made).is_empty());
    let mut other = made.body.clone();
    other["labels"]["own"] = json!("stays");
    other["external_id"] = json!("before");
    let change = application_change(&other, &made);
    assert_eq!(change.patch, json!({"external_id": "acme"}));
}

#[test]
fn what_is_too_long_is_said() {
    let long = json!({"id": ID, "name": "ä".repeat(300), "uid": "u".repeat(256)});
    let realm = RealmName::default();
    let made = application(&long, &realm).unwrap();
    assert_eq!(codes(&made), ["name", "uid"]);
    assert_eq!(made.body["labels"]["svix.name"].as_str().map(str::len), Some(256));
    assert_eq!(application(&json!({"name": "x"}), &realm).unwrap_err().code, "unreadable");
    let name = "t".repeat(129);
    assert_eq!(event_type(&json!({"name": name})).unwrap_err().code, "name");
}

#[test]
fn an_event_type_keeps_what_there_is_room_for() {
    let thing = json!({
        "name": "a.b", "description": "about", "groupName": "g", "archived": true,
        "featureFlags": ["beta"], "schemas": {"1": {"examples": [{"id": 7}]}, "x": {}},
    });
    let made = event_type(&thing).unwrap();
    assert_eq!(codes(&made), ["schema"]);
    assert_eq!(made.body["feature_flags"], json!(["beta"]));
    let odd = event_type(&json!({"name": "a.b", "featureFlag": "with a blank"})).unwrap();
    assert_eq!((codes(&odd), odd.body.get("feature_flags")), (vec!["feature_flag"], None));
    assert_eq!(made.body["examples"], json!([{"id": 7}]));
    assert_eq!((&made.body["group"], &made.body["archived"]), (&json!("g"), &json!(true)));
    assert!(!event_type_differs(&made.body, &made));
    assert!(event_type_differs(&json!({}), &made));
}

#[test]
fn an_endpoint_keeps_its_secret_filter_and_headers() {
    let thing = json!({
        "id": "ep_1", "url": "https://a.example", "uid": "main", "description": "d",
        "eventTypes": ["x"], "channels": ["eu", "us"], "throttleRate": 5, "disabled": false,
    });
    let headers = json!({"headers": {"X-Team": "a{b}", "svix-odd": "1"}, "sensitive": []});
    let made = moved(&thing, Some(SECRET), &headers).unwrap();
    assert_eq!(codes(&made), ["header"]);
    assert_eq!(made.body["url"], "https://a.example/");
    assert_eq!(made.body["secrets"], json!({"signing": SECRET}));
    assert_eq!(made.body["policy"]["request"]["headers"], json!({"X-Team": "a{{b}}"}));
    assert_eq!(made.body["paused"], false);
    assert_eq!(made.body["filter"]["any_of"].as_array().map(Vec::len), Some(2));
    assert!(!made.body["labels"].to_string().contains(SECRET));
}

#[test]
fn an_endpoint_that_cannot_be_sent_to_as_before_waits() {
    let thing = json!({"id": "ep_1", "url": "https://a.example/"});
    let hidden = json!({"headers": {}, "sensitive": ["Authorization"]});
    let made = moved(&thing, Some("whpk_abc"), &hidden).unwrap();
    assert_eq!(codes(&made), ["sensitive_header", "private_key"]);
    assert_eq!(
        (&made.body["paused"], &made.body["secret_kind"]),
        (&json!(true), &json!("ed25519"))
    );
    let there = json!({
        "policy": {"auth": [{"kind": "secret_header", "header": "authorization"}]},
        "public_keys": [{"key": "whpk_abc"}],
    });
    assert!(made.left.iter().all(|left| is_settled(&there, left)));
    assert!(made.left.iter().all(|left| !is_settled(&json!({}), left)));
    assert_eq!(moved(&thing, Some("odd"), &json!({})).unwrap_err().code, "secret");
    let other = json!({"id": "ep_1", "url": "ftp://a.example/"});
    assert_eq!(moved(&other, None, &json!({})).unwrap_err().code, "url");
}

#[test]
fn a_change_touches_only_what_differs() {
    let thing = json!({"id": "ep_1", "url": "https://a.example/", "throttleRate": 5});
    let made = moved(&thing, Some(SECRET), &json!({"headers": {"X-A": "1"}})).unwrap();
    let mut there = made.body.clone();
    there["status"] = json!("active");
    assert!(endpoint_change(&there, &made).is_empty());
    there["policy"] = json!({"auth": ["own"], "limits": {"rate": 9.0, "concurrency": 2}});
    there["labels"] = json!({"svix.id": "ep_1", "svix.secret": "00000000"});
    there["status"] = json!("paused");
    let change = endpoint_change(&there, &made);
    assert_eq!(change.secret.as_deref(), Some(SECRET));
    assert_eq!(
        change.patch["policy"],
        json!({
            "auth": ["own"], "limits": {"rate": 5.0, "concurrency": 2},
            "request": {"headers": {"X-A": "1"}},
        })
    );
    assert_eq!(change.patch["paused"], false);
    assert!(change.patch.get("url").is_none());
}
