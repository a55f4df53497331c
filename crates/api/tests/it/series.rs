//! Figures of the past: what was counted, for whom, and what is refused.

use std::time::Duration;

use posthorn_domain::{RollupStep, Span, Timestamp};
use serde_json::{Value, json};

use crate::harness::{Problem as _, Server};

/// The sum of a field over all points.
fn sum(series: &Value, field: &str) -> u64 {
    let points = series["points"].as_array().unwrap();
    points.iter().map(|point| point.pointer(field).unwrap().as_u64().unwrap()).sum()
}

/// The series, once so many attempts are in it: it is written about once a second.
async fn series_with(server: &Server, path: &str, attempts: u64) -> Value {
    for _ in 0..1_000 {
        let ask = server.as_operator("GET", path).header("posthorn-tenant", "acme");
        let series = ask.await.expect(200);
        if sum(&series, "/attempts") == attempts {
            return series;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{path} never had {attempts} attempts");
}

#[tokio::test]
async fn series_say_what_was_delivered_and_what_was_not() {
    let server = Server::start().await;
    let once = json!({"policy": {"schedule": {"max_attempts": 1}}});
    let good = server.subscribe("https://ok.example/", json!({})).await;
    let bad = server.subscribe("https://dead.example/", once.clone()).await;
    let gone = server.subscribe("https://unreachable.example/", once).await;
    for payload in ["1", "2"] {
        server.publish(payload).await;
    }
    let of = |subscription: &Value| {
        let id = subscription["id"].as_str().unwrap();
        format!("/v1/metrics/series?scope=subscription&id={id}")
    };
    let series = series_with(&server, &of(&good), 2).await;
    assert_eq!((&series["scope"], &series["id"]), (&json!("subscription"), &good["id"]));
    assert_eq!(series["step"], "minute");
    let expected = [("/published", 2), ("/delivered", 2), ("/dead", 0), ("/failed/5xx", 0)];
    for (field, count) in expected {
        assert_eq!(sum(&series, field), count, "{field}: {series}");
    }
    let series = series_with(&server, &of(&bad), 2).await;
    for (field, count) in [("/delivered", 0), ("/dead", 2), ("/failed/5xx", 2)] {
        assert_eq!(sum(&series, field), count, "{field}: {series}");
    }
    let series = series_with(&server, &of(&gone), 2).await;
    assert_eq!(sum(&series, "/failed/connection"), 2, "{series}");
    for path in [
        "/v1/metrics/series?scope=tenant&id=acme",
        "/v1/metrics/series?realm=default",
        "/v1/metrics/series?scope=server",
    ] {
        let series = series_with(&server, path, 6).await;
        let expected = [("/published", 2), ("/delivered", 2), ("/dead", 4), ("/failed/other", 0)];
        for (field, count) in expected {
            assert_eq!(sum(&series, field), count, "{path} {field}: {series}");
        }
        let busy = |point: &&Value| point["attempts"] != 0;
        let point = series["points"].as_array().unwrap().iter().find(busy).unwrap();
        let latency = point["latency"].as_array().unwrap();
        assert_eq!(latency.len(), series["latency_bounds_ms"].as_array().unwrap().len() + 1);
        assert!(point["p50_ms"].as_f64() <= point["p99_ms"].as_f64(), "{point}");
    }
    let hours = series_with(&server, "/v1/metrics/series?step=hour", 6).await;
    assert_eq!(hours["points"].as_array().unwrap().len(), 24);
}

#[tokio::test]
async fn series_have_a_point_for_each_step() {
    let server = Server::start().await;
    let now = server.engine.now();
    let minute = RollupStep::Minute.floor(now);
    let back = |minutes: u64| minute.minus(Span::from_secs(60 * minutes));
    let get = async |query: &str| -> Vec<Timestamp> {
        let path = format!("/v1/metrics/series?{query}");
        let series = server.as_acme("GET", &path).await.expect(200);
        let points = series["points"].as_array().unwrap().iter();
        points.map(|point| point["at"].as_str().unwrap().parse().unwrap()).collect()
    };
    let found = get(&format!("from={}&until={}", back(5), back(2))).await;
    assert_eq!(found, [back(5), back(4), back(3)]);
    // Steps that are only partly asked for are there as a whole.
    let (from, until) = (back(5).plus(Span::from_secs(20)), back(3).plus(Span::from_secs(1)));
    assert_eq!(get(&format!("from={from}&until={until}")).await, [back(5), back(4), back(3)]);
    // Nothing is known of the future.
    let found = get(&format!("from={}&until=9999-12-31T00:00:00Z", back(1))).await;
    assert_eq!(found[..2], [back(1), minute]);
    assert!(found.len() <= 3, "{found:?}");
    assert_eq!(get("").await.len(), 60);
    assert_eq!(get("step=hour").await.len(), 24);
    let days = |days: u64| minute.minus(Span::from_secs(86_400 * days));
    assert!(get(&format!("step=hour&from={}", days(90))).await.len() >= 2_160);
    assert_eq!(get("from=2020-01-01T00:00:00Z&until=2020-01-01T00:02:00Z").await.len(), 2);
}

#[tokio::test]
async fn bad_ranges_and_scopes_are_refused() {
    let server = Server::start().await;
    let cases = [
        ("scope=galaxy", "scope"),
        ("scope=server&id=acme", "id"),
        ("scope=subscription", "id"),
        ("scope=realm&id=default", "id"),
        ("scope=tenant&realm=default", "realm"),
        ("step=second", "step"),
        ("from=yesterday", "from"),
        ("from=2020-01-01T00:00:00Z&until=2020-01-01T00:00:00Z", "until"),
        ("from=2020-01-02T00:00:00Z&until=2020-01-01T00:00:00Z", "until"),
        ("from=9998-01-01T00:00:00Z", "from"),
        ("from=2020-01-01T00:00:00Z", "from"),
        ("from=2020-01-01T00:00:00Z&until=2020-01-03T00:01:00Z", "from"),
        ("from=2020-01-01T00:00:00Z&until=2021-01-01T00:00:00Z&step=hour", "from"),
        ("from=-009999-01-01T00:00:00Z&until=-009998-01-01T00:00:00Z", "from"),
        ("limit=5", "limit"),
    ];
    for (query, field) in cases {
        let reply = server.as_operator("GET", &format!("/v1/metrics/series?{query}")).await;
        let problem = reply.expect_problem(422, "invalid_request");
        assert_eq!(problem["field"], field, "{query}: {problem}");
    }
}

#[tokio::test]
async fn tenants_see_their_own_figures_only() {
    let server = Server::start().await;
    let subscription = server.subscribe("https://ok.example/", json!({"name": "billing"})).await;
    let id = subscription["id"].as_str().unwrap();
    let ask = async |key: &str, query: &str| {
        server.ask("GET", &format!("/v1/metrics/series?{query}")).key(key).await
    };
    let (acme, other) = (&server.keys.acme, &server.keys.other);
    let own = ask(acme, "").await.expect(200);
    assert_eq!((&own["scope"], &own["id"]), (&json!("tenant"), &json!(server.acme.to_string())));
    for query in [
        "scope=tenant&id=acme".to_owned(),
        format!("id={}", server.acme),
        "scope=subscription&id=billing".to_owned(),
        format!("scope=subscription&id={id}"),
    ] {
        ask(acme, &query).await.expect(200);
        ask(other, &query).await.expect_problem(404, "not_found");
    }
    let unknown = ask(other, "id=nobody").await;
    for theirs in ["id=acme".to_owned(), format!("id={}", server.acme), "id=default".to_owned()] {
        assert_eq!(ask(other, &theirs).await.body, unknown.body);
    }
    for key in [acme, other] {
        ask(key, "scope=server").await.expect_problem(403, "forbidden");
    }
    ask(&server.keys.operator, "scope=server").await.expect(200);
    ask(&server.keys.operator, "scope=tenant&id=other").await.expect(200);
    ask(&server.keys.operator, "scope=tenant&id=nobody").await.expect_problem(404, "not_found");
    // Who is gone is unknown, also while its figures are kept.
    server.as_acme("DELETE", &format!("/v1/subscriptions/{id}")).await.expect(204);
    ask(acme, &format!("scope=subscription&id={id}")).await.expect_problem(404, "not_found");
}

/// A realm's key sees the realm as a whole and its tenants; who belongs to one tenant, or to another realm, does not.
#[tokio::test]
async fn keys_of_a_realm_see_their_realm_and_its_tenants() {
    let server = Server::start().await;
    server.as_operator("PUT", "/v1/realms/eu").json(json!({})).await.expect(200);
    let new = json!({"name": "eu-one", "realm": "eu"});
    let tenant = server.as_operator("POST", "/v1/tenants").json(new).await.expect(201);
    let new = json!({"realm": "eu", "scopes": ["read"]});
    let made = server.as_operator("POST", "/v1/keys").json(new).await.expect(201);
    let eu = made["key"].as_str().unwrap();
    let ask = async |key: &str, query: &str, tenant: Option<&str>| {
        let call = server.ask("GET", &format!("/v1/metrics/series?{query}")).key(key);
        match tenant {
            Some(tenant) => call.header("posthorn-tenant", tenant).await,
            None => call.await,
        }
    };
    for query in ["scope=realm", "realm=eu", "scope=realm&realm=eu"] {
        let found = ask(eu, query, None).await.expect(200);
        assert_eq!((&found["scope"], &found["id"]), (&json!("realm"), &json!("eu")), "{query}");
    }
    let found = ask(&server.keys.operator, "scope=realm", None).await.expect(200);
    assert_eq!(found["id"], "default");
    let found = ask(eu, "", Some("eu-one")).await.expect(200);
    assert_eq!((&found["scope"], &found["id"]), (&json!("tenant"), &tenant["id"]));
    ask(eu, "id=eu-one", Some("eu-one")).await.expect(200);
    // Without a tenant there is none to show, least of all the default one.
    let problem = ask(eu, "", None).await.expect_problem(422, "invalid_request");
    assert_eq!(problem["field"], "Posthorn-Tenant");
    for foreign in ["acme", "default", "nobody"] {
        ask(eu, "", Some(foreign)).await.expect_problem(404, "not_found");
        ask(eu, &format!("id={foreign}"), Some("eu-one")).await.expect_problem(404, "not_found");
    }
    ask(eu, "realm=default", None).await.expect_problem(404, "not_found");
    ask(eu, "scope=server", Some("eu-one")).await.expect_problem(403, "forbidden");
    ask(&server.keys.acme, "scope=realm", None).await.expect_problem(403, "forbidden");
    ask(&server.keys.acme, "realm=eu", None).await.expect_problem(404, "not_found");
}
