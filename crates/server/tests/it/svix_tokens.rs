//! Tokens that a former Svix server signed: whoever moves keeps them in its configuration.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use posthorn_testkit::caller::{Reply, call};
use posthorn_testkit::program::{Home, Ran, Server};
use serde_json::{Value, json};
use sha2_next::Sha256;

use crate::svix::ask;

const SECRET: &str = "the secret of the former server";
/// Far away.
const NEVER: i64 = 4_000_000_000;
const FORMER: &str = "app_2Aq5qHHyWY4uX5KRbJLm3vwVZcd";

/// A token with any head and claims, signed with HS256 whatever the head says.
fn signed(head: &Value, claims: &Value, secret: &str) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let token = format!("{}.{}", part(head), part(claims));
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("any length");
    mac.update(token.as_bytes());
    format!("{token}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
}

fn token(claims: &Value) -> String {
    signed(&json!({"alg": "HS256", "typ": "JWT"}), claims, SECRET)
}

/// The token of an organisation.
fn organisation(id: &str) -> String {
    token(&json!({"iss": "svix-server", "iat": 1, "nbf": 1, "exp": NEVER, "sub": id}))
}

/// The token of an application.
fn application(id: &str, organisation: &str) -> String {
    let claims = json!({
        "iss": "svix-server", "iat": 1, "nbf": 1, "exp": NEVER, "sub": id, "org": organisation,
    });
    token(&claims)
}

fn with(server: &Server, token: &str, method: &str, path: &str, body: Option<&Value>) -> Reply {
    let request = call(&server.url, method, &format!("/api/v1{path}")).key(token);
    match body {
        Some(body) => request.json(body).send(),
        None => request.send(),
    }
}

/// A server that knows the secret, and two realms with an application each.
fn moved() -> (Home, Server) {
    let mut home = Home::new();
    home.configure(
        "dialects: {svix: {enabled: true, jwt_secret: 'env:FORMER', organisations: {org_prod: default, org_staging: staging}}}\n",
    );
    home.edit(
        "disk_refuse_percent: 100}",
        "disk_refuse_percent: 100, auth_failures_per_minute: 1000}",
    );
    home.env.push(("FORMER".to_owned(), SECRET.to_owned()));
    let server = home.serve();
    server.ask("realms put staging");
    for (name, realm) in [("one", "default"), ("two", "default"), ("three", "staging")] {
        let args = ["tenants", "create", name, "--realm", realm, "--external-id", name];
        let former = format!("svix.id={}", if name == "one" { FORMER } else { name });
        server.ask(&[&args[..], &["--label", &former]].concat());
    }
    (home, server)
}

/// The uids of all applications that a token sees.
fn sees(server: &Server, token: &str) -> Vec<String> {
    let list = with(server, token, "GET", "/app", None).expect(200);
    let all = list["data"].as_array().expect("data").iter();
    all.map(|app| app["uid"].as_str().expect("a uid").to_owned()).collect()
}

#[test]
fn the_token_of_an_organisation_opens_its_realm_and_no_other() {
    let (_home, server) = moved();
    let (prod, staging) = (organisation("org_prod"), organisation("org_staging"));
    assert_eq!(sees(&server, &prod), ["one", "two"]);
    assert_eq!(sees(&server, &staging), ["three"]);
    with(&server, &staging, "GET", "/app/one", None).expect(404);
    with(&server, &staging, "GET", &format!("/app/{FORMER}"), None).expect(404);
    with(&server, &staging, "POST", "/app", Some(&json!({"name": "new", "uid": "one"})))
        .expect(201);
    assert_eq!(sees(&server, &staging), ["three", "one"]);
    let message = json!({"eventType": "a", "payload": {}});
    with(&server, &prod, "POST", &format!("/app/{FORMER}/msg"), Some(&message)).expect(202);
    // Who did it is in the audit log.
    let made = server.ask("audit list --action tenant.created");
    assert!(made.to_string().contains("org_staging"), "{made}");
    server.stop();
}

#[test]
fn the_token_of_an_application_opens_that_application_only() {
    let (_home, server) = moved();
    let own = application(FORMER, "org_prod");
    with(&server, &own, "GET", &format!("/app/{FORMER}"), None).expect(200);
    let endpoint = json!({"url": "http://127.0.0.1:9/", "uid": "mine"});
    with(&server, &own, "POST", "/app/one/endpoint", Some(&endpoint)).expect(201);
    with(&server, &own, "GET", "/app/one/endpoint/mine/secret", None).expect(200);
    with(&server, &own, "GET", "/event-type", None).expect(200);
    // What only its organisation may.
    let new = json!({"name": "x"});
    let message = json!({"eventType": "a", "payload": {}});
    let kind = json!({"name": "a", "description": ""});
    for (method, path, body) in [
        ("GET", "/app", None),
        ("POST", "/app", Some(&new)),
        ("PATCH", "/app/one", Some(&new)),
        ("DELETE", "/app/one", None),
        ("POST", "/app/one/msg", Some(&message)),
        ("POST", "/event-type", Some(&kind)),
        ("POST", "/auth/app-portal-access/one", None),
    ] {
        let said = with(&server, &own, method, path, body).expect(403);
        assert_eq!(said["code"], "insufficient access", "{method} {path}");
    }
    for path in ["/app/two", "/app/two/endpoint", "/app/three", "/app/nobody/msg"] {
        let said = with(&server, &own, "GET", path, None).expect(404);
        assert_eq!(said["code"], "not_found", "{path}");
    }
    // The same application in another organisation is nobody's.
    let foreign = application(FORMER, "org_staging");
    with(&server, &foreign, "GET", "/app/one", None).expect(401);
    let unknown = application("app_nobody", "org_prod");
    with(&server, &unknown, "GET", "/app/one", None).expect(401);
    server.stop();
}

#[test]
fn tokens_that_the_former_server_did_not_sign_open_nothing() {
    let (_home, server) = moved();
    let claims = |exp: i64, nbf: i64| json!({"nbf": nbf, "exp": exp, "sub": "org_prod"});
    let good = claims(NEVER, 1);
    let head = |alg: &str| json!({"alg": alg, "typ": "JWT"});
    let whole = token(&good);
    let (unsigned, _) = whole.rsplit_once('.').expect("three parts");
    let none = signed(&head("none"), &good, SECRET);
    let (none_unsigned, _) = none.rsplit_once('.').expect("three parts");
    with(&server, &whole, "GET", "/app", None).expect(200);
    for bad in [
        token(&claims(1_000, 1)),
        token(&claims(NEVER, NEVER)),
        signed(&head("HS256"), &good, "another secret"),
        signed(&head("HS256"), &good, ""),
        signed(&head("HS512"), &good, SECRET),
        none.clone(),
        format!("{none_unsigned}."),
        none_unsigned.to_owned(),
        format!("{unsigned}."),
        format!("{whole}x"),
        format!("{whole}.{whole}"),
        "..".to_owned(),
    ] {
        let said = with(&server, &bad, "GET", "/app", None).expect(401);
        assert_eq!(said["code"], "authentication_failed", "{bad}");
        assert_eq!(said["detail"], "Invalid token");
    }
    // Signed by the same server, but for an organisation that nobody named here.
    for foreign in [organisation("org_foreign"), application(FORMER, "org_foreign")] {
        let said = with(&server, &foreign, "GET", "/app/one", None).expect(401);
        assert_eq!(said["code"], "authentication_failed");
    }
    let nobody = token(&json!({"exp": NEVER, "sub": "user_1"}));
    assert_eq!(with(&server, &nobody, "GET", "/app", None).expect(400)["code"], "bad token");
    // The native API does not know them.
    call(&server.url, "GET", "/v1/tenants").key(&whole).send().expect(401);
    server.stop();
}

#[test]
fn where_no_organisation_is_named_there_is_only_one() {
    let mut home = Home::new();
    home.configure("dialects: {svix: {enabled: true, jwt_secret: 'env:FORMER'}}\n");
    home.env.push(("FORMER".to_owned(), SECRET.to_owned()));
    let server = home.serve();
    let any = organisation("org_any");
    let app = with(&server, &any, "POST", "/app", Some(&json!({"name": "x", "uid": "x"})));
    let id = app.expect(201)["id"].as_str().expect("an id").to_owned();
    assert_eq!(sees(&server, &any), ["x"]);
    let own = application(&id, "org_any");
    with(&server, &own, "GET", "/app/x", None).expect(200);
    server.stop();
}

#[test]
fn without_a_secret_no_such_token_counts() {
    let (_home, server) = crate::svix::svix().served();
    ask(&server, "GET", "/api/v1/app", None).expect(200);
    for secret in [SECRET, ""] {
        let claims = json!({"exp": NEVER, "sub": "org_prod"});
        let token = signed(&json!({"alg": "HS256"}), &claims, secret);
        with(&server, &token, "GET", "/app", None).expect(401);
    }
    server.stop();
    // Everybody could sign with an empty one.
    let home = Home::new();
    home.configure("dialects: {svix: {enabled: true, jwt_secret: 'env:FORMER'}}\n");
    let checked = Ran::of(home.command().env("FORMER", "").arg("check"));
    checked.exits(78).says(&["dialects.svix.jwt_secret", "FORMER is empty"]);
}
