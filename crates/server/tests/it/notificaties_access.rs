//! Who may do what in the Notificaties API, and what becomes of requests that are wrong.

use std::process::Command;

use posthorn_sealing::jwt::{ZgwClaims, sign};
use posthorn_testkit::program::Ran;
use posthorn_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::notificaties_world::{
    AUTH, Callback, ask, get, home, home_with, kanaal, message, now, publish, send, stats, token,
};

#[test]
fn every_path_asks_for_its_scope() {
    let (_home, server) = home().served();
    let (uuid, none) = ("0123abcd-0123-4123-8123-0123456789ab", Value::Null);
    let (one_kanaal, one_abonnement) = (format!("/kanaal/{uuid}"), format!("/abonnement/{uuid}"));
    // Consumer, publisher: the status that somebody with the scope gets, or 403.
    let table = [
        ("GET", "/kanaal", 200, 200),
        ("POST", "/kanaal", 403, 400),
        ("GET", &one_kanaal, 404, 404),
        ("PUT", &one_kanaal, 403, 404),
        ("PATCH", &one_kanaal, 403, 404),
        ("GET", "/abonnement", 200, 200),
        ("POST", "/abonnement", 400, 403),
        ("GET", &one_abonnement, 404, 404),
        ("PUT", &one_abonnement, 404, 403),
        ("PATCH", &one_abonnement, 404, 403),
        ("DELETE", &one_abonnement, 404, 403),
        ("POST", "/notificaties", 403, 400),
        ("POST", "/cloudevents", 403, 415),
        ("POST", "/callbacks", 403, 400),
    ];
    for (method, path, consumer, publisher) in table {
        let check = |client: &str, expected: u16| {
            let reply = ask(&server, client, method, path, &none);
            assert_eq!(reply.status, expected, "{client} {method} {path}: {}", reply.body);
            assert_eq!(reply.header("api-version"), Some("1.0.0"));
            if expected == 403 {
                assert_eq!(reply.json()["code"], "permission_denied");
            }
        };
        check("consumer", consumer);
        check("publisher", publisher);
        check("both", if consumer == 403 { publisher } else { consumer });
        check("nobody", 403);
        let path = format!("/api/v1{path}");
        let anonymous = send(&server.url, method, &path, &[], "");
        // The address has been wrong often enough by now for some of these.
        assert!(matches!(anonymous.status, 403 | 429), "{method} {path}: {}", anonymous.status);
    }
}

#[test]
fn tokens_are_refused_with_the_codes_clients_know_and_guessing_is_limited() {
    let (_home, server) = home().served();
    let get =
        |value: &str| send(&server.url, "GET", "/api/v1/kanaal", &[("authorization", value)], "");
    let at = now();
    let claims = |iat: i64| ZgwClaims { exp: None, ..ZgwClaims::of_client("both", iat, 0) };
    let bearer =
        |claims: &ZgwClaims, secret: &str| format!("Bearer {}", sign(secret.as_bytes(), claims));
    let old = bearer(&claims(at - 3_600), "secret-of-both");
    let codes = [
        (bearer(&claims(at), "other"), "invalid-jwt-signature"),
        (
            bearer(&ZgwClaims { client_id: "x".into(), ..claims(at) }, "x"),
            "invalid-client-identifier",
        ),
        (bearer(&ZgwClaims { iat: None, ..claims(at) }, "secret-of-both"), "jwt-missing-iat-claim"),
        (old, "jwt-expired"),
        ("Bearer garbage".to_owned(), "jwt-decode-error"),
        ("Token abc".to_owned(), "permission_denied"),
    ];
    for (value, code) in &codes {
        let reply = get(value).with(403);
        assert_eq!(reply.header("content-type"), Some("application/problem+json"));
        let problem = reply.json();
        assert_eq!((&problem["code"], &problem["status"]), (&json!(code), &json!(403)));
        assert_eq!(problem["type"], "http://nrc.test/ref/fouten/PermissionDenied/");
        assert!(problem["instance"].as_str().is_some_and(|text| text.starts_with("urn:uuid:")));
        assert_eq!(reply.header("api-version"), Some("1.0.0"));
    }
    get(&bearer(&claims(at - 3_000), "secret-of-both")).expect(200);
    // Ten a minute, of which six are used up.
    let statuses: Vec<u16> = (0..8).map(|_| get("Bearer garbage").status).collect();
    assert_eq!(statuses[..4], [403; 4]);
    assert_eq!(statuses[7], 429);
    let told = get("Bearer garbage");
    assert!(told.header("retry-after").is_some() && told.json()["code"] == "throttled");
    get(&token("both")).expect(200);
}

#[test]
fn requests_that_are_wrong_get_a_problem_and_change_nothing() {
    let (_home, server) = home().served();
    kanaal(&server, "zaken", &[]);
    let token = token("both");
    let json_type = ("content-type", "application/json");
    let post = |path: &str, headers: &[(&str, &str)], body: &[u8]| {
        let mut all = vec![("authorization", token.as_str())];
        all.extend(headers);
        send(&server.url, "POST", &format!("/api/v1{path}"), &all, body)
    };
    let deep = "[".repeat(200) + &"]".repeat(200);
    let huge = format!("{{\"naam\":\"{}\"}}", "x".repeat(400_000));
    let broken = [
        "",
        "{",
        "nothing",
        r#"{"naam":"a","naam":"b"}"#,
        "{\"naam\":\"\u{1}\"}",
        &deep,
        &format!("{{\"naam\":\"a\",\"filters\":{deep}}}"),
    ];
    for path in ["/kanaal", "/abonnement", "/notificaties", "/callbacks"] {
        for body in broken {
            let reply = post(path, &[json_type], body.as_bytes());
            assert_eq!(reply.status, 400, "{path} {body:.50}: {}", reply.body);
            assert_eq!(reply.json()["code"], "parse_error", "{path} {body:.50}");
        }
        let reply = post(path, &[json_type], b"{\"naam\":\"\xff\"}").with(400);
        assert_eq!(reply.json()["code"], "parse_error");
        for headers in [
            &[][..],
            &[("content-type", "text/plain")],
            &[("content-type", "application/json; charset=latin1")],
        ] {
            let reply = post(path, headers, b"{}").with(415);
            assert_eq!(reply.json()["code"], "unsupported_media_type");
            assert_eq!(reply.header("content-type"), Some("application/problem+json"));
        }
        post(path, &[json_type, ("content-encoding", "gzip")], b"{}").expect(415);
        let reply = post(path, &[json_type], huge.as_bytes()).with(413);
        assert_eq!(reply.json()["code"], "request_too_large");
        let reply = post(path, &[json_type, ("accept", "text/html")], b"{}").with(406);
        assert_eq!(reply.json()["code"], "not_acceptable");
    }
    for body in ["[]", "5", "\"x\"", "null"] {
        let reply = post("/kanaal", &[json_type], body.as_bytes()).with(400);
        assert_eq!(reply.json()["invalidParams"][0]["name"], "nonFieldErrors", "{body}");
        // Published messages are answered without an envelope.
        let reply = post("/notificaties", &[json_type], body.as_bytes()).with(400);
        assert!(reply.json()["nonFieldErrors"][0].is_string(), "{body}: {}", reply.body);
    }
    let all_wrong = json!({"callbackUrl": 5.5, "auth": {}, "kanalen": [{"naam": null,
        "filters": []}], "sendCloudevents": "yes", "cloudeventFilters": [{}]});
    let problem = ask(&server, "both", "POST", "/abonnement", &all_wrong).expect(400);
    let names: Vec<&str> = problem["invalidParams"]
        .as_array()
        .expect("faults")
        .iter()
        .map(|fault| fault["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(
        names,
        [
            "callbackUrl",
            "auth",
            "kanalen.0.filters",
            "kanalen.0.naam",
            "sendCloudevents",
            "cloudeventFilters.0.typeSubstring"
        ]
    );
    assert_eq!(problem["title"], "Invalid input.");
    for (path, method) in [("/x", "GET"), ("", "GET"), ("/kanaal/a/b", "PUT"), ("/kanaal/", "GET")]
    {
        let reply = ask(&server, "both", method, path, &Value::Null).with(404);
        assert_eq!(reply.json()["code"], "not_found", "{path}");
        assert_eq!(reply.header("api-version"), Some("1.0.0"));
    }
    for (path, method) in [("/kanaal", "PUT"), ("/notificaties", "GET"), ("/abonnement", "DELETE")]
    {
        let reply = ask(&server, "both", method, path, &Value::Null).with(405);
        assert!(reply.header("allow").is_some(), "{path}");
    }
    assert_eq!(get(&server, "/kanaal").expect(200).as_array().map(Vec::len), Some(1));
    assert_eq!(get(&server, "/abonnement").expect(200), json!([]));
    assert_eq!(stats(&server)["events"], 0);
}

#[test]
fn a_message_that_is_wrong_is_told_so_field_by_field() {
    let (_home, server) = home().served();
    kanaal(&server, "zaken", &["bron", "type"]);
    let receiver = Callback::new();
    let body =
        json!({"callbackUrl": receiver.url("/"), "auth": AUTH, "kanalen": [{"naam": "zaken"}]});
    ask(&server, "consumer", "POST", "/abonnement", &body).expect(201);
    let wrong = |message: &Value, names: &[&str]| {
        let reply = publish(&server, message).has(&[("content-type", "application/json")]);
        let found = reply.expect(400);
        let found: Vec<&String> = found.as_object().expect("a map").keys().collect();
        assert_eq!(found, names, "{message}");
    };
    wrong(
        &json!({}),
        &["aanmaakdatum", "actie", "hoofdObject", "kanaal", "resource", "resourceUrl"],
    );
    wrong(&message("andere", &json!({})), &["kanaal"]);
    wrong(&message("zaken", &json!({"bron": "x", "andere": "y"})), &["kenmerken"]);
    wrong(&message("zaken", &json!({"bron": null})), &["kenmerken"]);
    let mut future = message("zaken", &json!({}));
    future["aanmaakdatum"] = json!("2999-01-01T00:00:00Z");
    wrong(&future, &["aanmaakdatum"]);
    let mut long = message("zaken", &json!({}));
    long["actie"] = json!("x".repeat(101));
    wrong(&long, &["actie"]);
    assert_eq!(stats(&server)["events"], 0);
    assert!(receiver.seen().is_empty());
}

#[test]
fn the_description_is_open_to_everybody() {
    let (_home, server) = home().served();
    let open = |path: &str| send(&server.url, "GET", path, &[("accept", "text/html")], "");
    let json = open("/api/v1/openapi.json").with(200);
    assert_eq!(json.header("content-type"), Some("application/vnd.oai.openapi+json"));
    assert_eq!(json.header("access-control-allow-origin"), Some("*"));
    assert_eq!(json.json()["paths"]["/notificaties"]["post"]["operationId"], "notificaties_create");
    assert_eq!(json.json()["servers"][0]["url"], "http://nrc.test/api/v1");
    let yaml = open("/api/v1/openapi.yaml").with(200);
    assert_eq!(yaml.header("content-type"), Some("application/vnd.oai.openapi"));
    assert_eq!(yaml.header("access-control-allow-origin"), Some("*"));
    assert!(yaml.body.contains("\"operationId\": \"abonnement_partial_update\""));
    for path in ["/api/v1/schema/", "/api/v1/schema/openapi.yaml"] {
        let moved = open(path).with(302);
        assert_eq!(moved.header("location"), Some("http://nrc.test/api/v1/openapi.yaml"));
    }
    assert_eq!(yaml.header("api-version"), Some("1.0.0"));
}

#[test]
fn a_configuration_that_cannot_work_is_refused_and_secrets_are_not_shown() {
    let check = |lines: &str, says: &[&str]| {
        let home = home_with(lines);
        home.run("check").exits(78).says(says);
    };
    check("    prefix: api\n", &["dialects.notificaties.prefix"]);
    check("    prefix: /v1/nrc\n", &["dialects.notificaties.prefix", "native API"]);
    check("    base_url: https://a.nl/api\n", &["dialects.notificaties.base_url"]);
    check("    jwt_expiry: 0s\n", &["dialects.notificaties.jwt_expiry"]);
    check("    unknown: 1\n", &["dialects.notificaties.unknown"]);
    let edit = |from: &str, to: &str, says: &[&str]| {
        let home = home();
        home.edit(from, to);
        home.run("check").exits(78).says(says);
    };
    edit("profile: nrc", "profile: other", &["there is no profile `other`"]);
    edit("secret-of-both", "''", &["credentials.0", "empty"]);
    edit("consumer.txt", "missing.txt", &["credentials.1", "missing.txt"]);
    edit("notificaties.consumeren", "lezen", &["`lezen` is not a scope"]);
    edit("client_ids: [both]", "client_ids: [other]", &["no credentials of client `other`"]);
    let home = home();
    let mut command: Command = home.command();
    let output = Ran::of(command.arg("check")).exits(0);
    let text = output.out;
    assert!(!text.contains("secret-of-both") && text.contains("file:consumer.txt"), "{text}");
}

#[test]
fn a_client_may_send_so_many_requests_a_second_and_requests_are_counted() {
    let mut home = home();
    home.edit("disk_refuse_percent: 100}", "disk_refuse_percent: 100, key_requests_per_second: 1}");
    let server = home.serve();
    let told = eventually("a refusal", || {
        Some(get(&server, "/kanaal")).filter(|reply| reply.status == 429)
    });
    assert_eq!(told.header("content-type"), Some("application/problem+json"));
    assert!(told.header("retry-after").is_some() && told.json()["code"] == "throttled");
    // Others have a rate of their own.
    ask(&server, "publisher", "GET", "/kanaal", &Value::Null).expect(200);
    let metrics = server.metrics();
    let counted = |class: &str| {
        let mut lines =
            metrics.lines().filter(|l| l.starts_with("posthorn_dialect_requests_total"));
        lines.any(|line| {
            ["notificaties", "kanaal", class]
                .iter()
                .all(|text| line.contains(&format!("\"{text}\"")))
        })
    };
    assert!(counted("2xx") && counted("4xx"), "{metrics}");
}

#[test]
fn the_largest_message_may_have_a_source_too() {
    let (_home, server) = home().served();
    kanaal(&server, "zaken", &[]);
    let mut sent = message("zaken", &json!({}));
    for n in 0..10 {
        sent["kenmerken"][format!("k{n}")] = json!("v".repeat(1_000));
    }
    sent["source"] = json!("oz");
    // With its CloudEvent it is larger than a payload may be; each of the two is not.
    sent["extra"] = json!("x".repeat(250_000));
    assert!(sent.to_string().len() < 256 * 1_024);
    publish(&server, &sent).expect(201);
    sent["extra"] = json!("x".repeat(255_000));
    assert!(sent.to_string().len() > 256 * 1_024);
    let reply = publish(&server, &sent).with(413);
    assert!(reply.body.contains("262144"), "{}", reply.body);
    assert_eq!(stats(&server)["events"], 1);
}
