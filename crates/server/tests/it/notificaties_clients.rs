//! Clients of the Notificaties API that come, change and go while the real program runs: by command, and
//! by the setup file applied again.

use std::thread;
use std::time::Duration;

use posthorn_sealing::jwt::{ZgwClaims, sign};
use posthorn_testkit::caller::Reply;
use posthorn_testkit::program::{Home, Ran, Server};
use posthorn_testkit::wait::until;
use serde_json::{Value, json};

use crate::notificaties_world::{AUTH, Callback, home, home_with, kanaal, message, now, send};
use crate::postgres::{database, nodes};

pub(crate) fn token_of(client: &str, secret: &str) -> String {
    let claims = ZgwClaims { exp: None, ..ZgwClaims::of_client(client, now(), 0) };
    format!("Bearer {}", sign(secret.as_bytes(), &claims))
}

/// Publishes as a client with a secret.
pub(crate) fn publish_as(server: &Server, client: &str, secret: &str) -> Reply {
    let token = token_of(client, secret);
    let headers = [("authorization", token.as_str()), ("content-type", "application/json")];
    let body = message("zaken", &json!({})).to_string();
    send(&server.url, "POST", "/api/v1/notificaties", &headers, body)
}

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "checks read better without borrows")]
pub(crate) fn code(reply: Reply, status: u16, code: &str) {
    assert_eq!(
        (reply.status, reply.json()["code"].as_str()),
        (status, Some(code)),
        "{}",
        reply.body
    );
}

/// Changes a client by command.
fn put(server: &Server, secret: Option<&str>, args: &[&str]) -> Value {
    let mut command = server.command();
    command.args(["notificaties", "clients", "put", "app", "--tenant", "gemeente", "--json"]);
    if let Some(secret) = secret {
        command.env("APP_SECRET", secret).args(["--secret", "env:APP_SECRET"]);
    }
    let output = Ran::of(command.args(args)).exits(0);
    output.json()
}

/// What a client may do, whoever is asked and whichever node was told. The node that was told knows at once; another one
/// as soon as it was hinted at.
fn come_and_go(told: &Server, asked: &Server) {
    let gets = |secret: &str, status: u16, code: Option<&str>| {
        let answer = || {
            let reply = publish_as(asked, "app", secret);
            let said =
                if status < 300 { None } else { reply.json()["code"].as_str().map(str::to_owned) };
            (reply.status, said)
        };
        let wanted = (status, code.map(str::to_owned));
        if !std::ptr::eq(told, asked) {
            until("the change on the other node", || answer() == wanted);
        }
        assert_eq!(answer(), wanted);
    };
    kanaal(told, "zaken", &[]);
    gets("first", 403, Some("invalid-client-identifier"));
    let made = put(told, Some("first"), &[]);
    assert_eq!((&made["has_secret"], made.get("scopes")), (&json!(true), None));
    // Nobody said what it may do.
    gets("first", 403, Some("permission_denied"));
    put(told, None, &["--scope", "notificaties.publiceren"]);
    gets("first", 201, None);
    put(told, Some("the-other-geheim"), &[]);
    gets("the-other-geheim", 201, None);
    gets("first", 403, Some("invalid-jwt-signature"));
    put(told, None, &["--scope", "notificaties.consumeren"]);
    gets("the-other-geheim", 403, Some("permission_denied"));
    put(told, None, &["--all"]);
    gets("the-other-geheim", 201, None);
}

#[test]
fn clients_secrets_and_rights_change_at_run_time_and_stay() {
    let (mut home, server) = home().served();
    come_and_go(&server, &server);
    let shown = server.ask("notificaties clients show app --tenant gemeente");
    let both = ["notificaties.consumeren", "notificaties.publiceren"];
    assert_eq!((&shown["name"], &shown["scopes"]), (&json!("app"), &json!(both)));
    assert!(shown.get("secret").is_none(), "{shown}");
    server.stop();
    // What is in the files of the store opens nothing.
    for entry in std::fs::read_dir(home.data()).expect("there") {
        let path = entry.expect("an entry").path();
        let bytes = std::fs::read(&path).unwrap_or_default();
        let plain = bytes.windows(16).any(|part| part == b"the-other-geheim");
        assert!(!plain, "the secret is in {}", path.display());
    }
    let server = home.serve();
    publish_as(&server, "app", "the-other-geheim").expect(201);
    // A client of the configuration is as it was changed, and again as configured when that is gone.
    let clients = |args: &[&str]| {
        let all = [&["notificaties", "clients"], args, &["--tenant", "gemeente"]].concat();
        server.ask(&all)
    };
    publish_as(&server, "publisher", "secret-of-publisher").expect(201);
    clients(&["put", "publisher", "--none"]);
    code(publish_as(&server, "publisher", "secret-of-publisher"), 403, "permission_denied");
    assert_eq!(clients(&["list"])["items"].as_array().map(Vec::len), Some(2));
    clients(&["delete", "publisher"]);
    publish_as(&server, "publisher", "secret-of-publisher").expect(201);
    clients(&["delete", "app"]);
    code(publish_as(&server, "app", "the-other-geheim"), 403, "invalid-client-identifier");
    refuses(&server);
    server.stop();
}

/// What cannot be a client, and who may not make one.
fn refuses(server: &Server) {
    let put = |key: &str, name: &str, body: Value| {
        let ask = server.open("PUT", &format!("/v1/clients/{name}")).key(key);
        ask.header("posthorn-tenant", "gemeente").json(&body).send()
    };
    let key = "keys create --scope publish --scope manage --scope read --tenant gemeente";
    let tenant_key = server.ask(key)["key"].as_str().expect("a key").to_owned();
    assert_eq!(put(&tenant_key, "mine", json!({"scopes": ["x"]})).status, 403);
    for (name, body, field) in [
        ("a%0Ab", json!({"secret": "x"}), "name"),
        ("app", json!({"secret": ""}), "secret"),
        ("app", json!({"scopes": [""]}), "scopes"),
        ("app", json!({"scopes": ["x"]}), ""),
    ] {
        let reply = put(&server.key, name, body.clone());
        match field {
            "" => drop(reply.expect(200)),
            field => {
                assert_eq!(reply.status, 422, "{body}: {}", reply.body);
                assert_eq!(reply.json()["field"], field, "{}", reply.body);
            }
        }
    }
    server
        .run("notificaties clients put x --secret plain")
        .exits(2)
        .says(&["must not be given on the command line"]);
}

#[test]
fn a_change_of_a_client_counts_on_all_nodes() {
    let database = database();
    let [(_one, first), (_two, second)] = nodes(&database, [home(), home()]);
    come_and_go(&first, &second);
}

const UUID: &str = "3f8f2d1c-5a0b-4c57-9b06-6a2f6a0c1f10";

/// A file with every form that the original takes.
fn setup(receiver: &Callback, secret: &str, retries: u32) -> String {
    let callback = receiver.url("/cb");
    format!(
        "
zgw_consumers_config_enable: true
zgw_consumers:
  services:
    - {{identifier: nrc, label: Ours, api_root: 'http://localhost:8001/api/v1/', api_type: nrc,
       auth_type: zgw, client_id: nrc, secret: x, user_id: nrc, user_representation: NRC}}
site_config_enable: true
site_config: {{domain: 'localhost:8001', organization: Demo}}
vng_api_common_credentials_config_enable: true
vng_api_common_credentials:
  items:
    - {{identifier: app, secret: {secret}}}
vng_api_common_applicaties_config_enable: true
vng_api_common_applicaties:
  items:
    - {{uuid: 78591bab-9a00-4887-849c-53b21a67782f, client_ids: [app], label: App,
       heeft_alle_autorisaties: true}}
notifications_config_enable: true
notifications_config:
  notifications_api_service_identifier: nrc
  notification_delivery_max_retries: {retries}
  notification_delivery_retry_backoff: 1
  notification_delivery_retry_backoff_max: 10
notifications_kanalen_config_enable: true
notifications_kanalen_config:
  items:
    - {{naam: zaken, documentatie_link: '', filters: [zaaktype, aard]}}
notifications_abonnementen_config_enable: true
notifications_abonnementen_config:
  items:
    - uuid: 0f616bfd-aacc-4d85-a140-2af17a56217b
      callback_url: {callback}
      auth: {{value_from: {{env: CALLBACK_AUTH}}}}
      auth_type: api_key
      auth_client_id: unused
      secret: unused
      oauth2_token_url: https://auth.example.com/token
      oauth2_scope: read write
      kanalen:
        - {{naam: zaken, filters: {{zaaktype: a}}}}
        - {{naam: zaken, filters: {{aard: b}}}}
      cloudevent_filters: null
    - uuid: {UUID}
      callback_url: {callback}
      auth: other
      kanalen: [{{naam: zaken}}]
    - uuid: {UUID}
      callback_url: {callback}
      auth: {AUTH}
      send_cloudevents: true
      cloudevent_filters: [zaak.created, nl.overheid]
"
    )
}

pub(crate) fn write(home: &Home, text: &str) {
    home.write("setup.yaml", text);
}

fn cloudevent(server: &Server, kind: &str) -> Reply {
    let token = crate::notificaties_world::token("both");
    let headers =
        [("authorization", token.as_str()), ("content-type", "application/cloudevents+json")];
    let body = json!({"id": kind, "source": "urn:x", "specversion": "1.0", "type": kind});
    send(&server.url, "POST", "/api/v1/cloudevents", &headers, body.to_string())
}

#[test]
fn a_file_with_every_form_of_the_original_is_in_effect() {
    let receiver = Callback::new();
    let mut home = home_with("    setup_configuration: setup.yaml\n");
    home.edit("profile: nrc", "profile: notificaties");
    write(&home, &setup(&receiver, "first", 4));
    home.env.push(("CALLBACK_AUTH".to_owned(), AUTH.to_owned()));
    let server = home.serve();
    for ignored in ["zgw_consumers", "site_config"] {
        server.running.says(ignored);
    }
    let shown = server.ask("notificaties settings --tenant gemeente");
    assert_eq!(shown["notification_delivery_max_retries"], 4);
    assert_eq!(shown["notification_delivery_retry_backoff"], 1.0);
    assert_eq!(shown["notification_delivery_retry_backoff_max"], 10.0);
    assert_eq!(shown["notification_delivery_base_factor"], 4.0, "what is absent stays");
    // Parts of types, written as texts; the last of two with one UUID counts.
    cloudevent(&server, "nl.overheid.zaken.x").expect(201);
    cloudevent(&server, "com.zaak.created").expect(201);
    cloudevent(&server, "com.other").expect(201);
    let seen = receiver.wait(2);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(receiver.seen().len(), 2, "and nothing else");
    let mut types: Vec<Value> = seen.iter().map(|seen| seen.json()["type"].clone()).collect();
    types.sort_by_key(Value::to_string);
    assert_eq!(types, ["com.zaak.created", "nl.overheid.zaken.x"]);
    assert!(seen.iter().all(|seen| seen.header("authorization") == Some(AUTH)));
    publish_as(&server, "app", "first").expect(201);
    server.stop();
}

/// Applies the file of a home to a server that runs: what it says was changed.
#[track_caller]
fn apply(server: &Server) -> Vec<String> {
    let output = Ran::of(server.command().env("CALLBACK_AUTH", AUTH).args([
        "notificaties",
        "setup",
        "setup.yaml",
        "--json",
    ]))
    .exits(0);
    let said = output.json();
    serde_json::from_value(said["changed"].clone()).expect("texts")
}

fn repeated(home: &mut Home) {
    let receiver = Callback::new();
    let server = home.serve();
    write(home, &setup(&receiver, "first", 4));
    let changed = apply(&server);
    let names = ["client app", "kanaal zaken", "settings"];
    assert!(names.iter().all(|name| changed.iter().any(|what| what == name)), "{changed:?}");
    assert_eq!(changed.len(), 5, "{changed:?}");
    publish_as(&server, "app", "first").expect(201);
    assert_eq!(apply(&server), [""; 0], "again is nothing");
    write(home, &setup(&receiver, "the-other-geheim", 5));
    let mut changed = apply(&server);
    changed.sort();
    assert_eq!(changed, ["client app", "settings"]);
    publish_as(&server, "app", "the-other-geheim").expect(201);
    code(publish_as(&server, "app", "first"), 403, "invalid-jwt-signature");
    // What was changed by hand is put back.
    put(&server, None, &["--none"]);
    assert_eq!(apply(&server), ["client app"]);
    // What a file no longer names stays as it is, until somebody takes it back.
    let both = setup(&receiver, "the-other-geheim", 5);
    let without = both
        .replace("vng_api_common_credentials_config_enable: true", "")
        .replace("vng_api_common_applicaties_config_enable: true", "");
    write(home, &without);
    assert_eq!(apply(&server), [""; 0]);
    publish_as(&server, "app", "the-other-geheim").expect(201);
    let delete = ["notificaties", "clients", "delete", "app", "--tenant", "gemeente"];
    server.run(&delete).exits(0);
    code(publish_as(&server, "app", "the-other-geheim"), 403, "invalid-client-identifier");
    write(home, &both);
    assert_eq!(apply(&server), ["client app"]);
    // A file that is wrong changes nothing, and says where it is wrong.
    let wrong = setup(&receiver, "third", 6).replace("naam: zaken, filters", "naam: nee, filters");
    write(home, &wrong);
    Ran::of(
        server.command().args(["notificaties", "setup", "setup.yaml"]).env_remove("CALLBACK_AUTH"),
    )
    .exits(2)
    .says(&["CALLBACK_AUTH", "items.0.auth"]);
    publish_as(&server, "app", "the-other-geheim").expect(201);
    server.stop();
}

fn with_shipped_profile() -> Home {
    let home = home();
    home.edit("profile: nrc", "profile: notificaties");
    home
}

#[test]
fn a_setup_file_may_be_applied_again_while_everything_runs() {
    repeated(&mut with_shipped_profile());
}

#[test]
fn a_setup_file_may_be_applied_again_on_postgresql_too() {
    let database = database();
    let mut home = with_shipped_profile();
    home.store_in(&database.url());
    repeated(&mut home);
}
