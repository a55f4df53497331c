//! The four settings and the setup file of the Notificaties API, in the real program.

use posthorn_testkit::program::{Home, Ran, Server};
use posthorn_testkit::wait::{eventually, until};
use serde_json::{Value, json};

use crate::notificaties_world::{
    AUTH, Callback, abonnement, ask, get, home, home_with, kanaal, message, publish, send,
};
use crate::postgres::database;

const UUID: &str = "0f616bfd-aacc-4d85-a140-2af17a56217b";

/// A setup file for one kanaal and one abonnement, and the four settings.
fn write_setup(home: &Home, receiver: &Callback, kanaal: &str, retries: u32) {
    let text = format!(
        "
notifications_kanalen_config_enable: true
notifications_kanalen_config:
  items:
    - {{naam: zaken, filters: [bronorganisatie]}}
notifications_abonnementen_config_enable: true
notifications_abonnementen_config:
  items:
    - uuid: {UUID}
      callback_url: {}
      auth: {{value_from: {{env: CALLBACK_AUTH}}}}
      kanalen:
        - {{naam: {kanaal}, filters: {{bronorganisatie: '*'}}}}
notifications_config_enable: true
notifications_config:
  notification_delivery_max_retries: {retries}
  notification_delivery_retry_backoff: 0.1
  notification_delivery_retry_backoff_max: 60
  notification_delivery_base_factor: 3
vng_api_common_credentials_config_enable: true
vng_api_common_credentials:
  items:
    - {{identifier: extra, secret: secret-of-extra}}
vng_api_common_applicaties_config_enable: true
vng_api_common_applicaties:
  items:
    - {{client_ids: [extra], has_all_authorizations: true}}
zgw_consumers_config_enable: true
zgw_consumers: {{services: []}}
",
        receiver.url("/cb")
    );
    home.write("setup.yaml", text);
}

/// A server with the setup file; `profile: notificaties` so that its settings are the shipped ones.
fn declared(receiver: &Callback, retries: u32) -> Home {
    let mut home = home_with("    setup_configuration: setup.yaml\n");
    home.edit("profile: nrc", "profile: notificaties");
    write_setup(&home, receiver, "zaken", retries);
    home.env.push(("CALLBACK_AUTH".to_owned(), AUTH.to_owned()));
    home
}

fn subscription(server: &Server) -> Value {
    let list = server.ask("subscriptions list --tenant gemeente");
    let items = list["items"].as_array().expect("a list");
    assert_eq!(items.len(), 1, "{list}");
    items[0].clone()
}

fn settings(server: &Server, args: &[&str]) -> Value {
    let mut all = vec!["notificaties", "settings", "--tenant", "gemeente"];
    all.extend(args);
    server.ask(&all)
}

#[track_caller]
fn applied(home: &mut Home, receiver: &Callback) {
    let server = home.serve();
    server.running.says("zgw_consumers");
    let listed = get(&server, "/abonnement").expect(200);
    assert_eq!(listed[0]["url"], format!("http://nrc.test/api/v1/abonnement/{UUID}"));
    assert_eq!(
        listed[0]["kanalen"],
        json!([{"naam": "zaken", "filters": {"bronorganisatie": "*"}}])
    );
    let shown = settings(&server, &[]);
    assert_eq!(shown["notification_delivery_max_retries"], 2);
    assert_eq!(shown["notification_delivery_retry_backoff"], 0.1);
    assert_eq!(shown["notification_delivery_retry_backoff_max"], 60.0);
    assert_eq!(shown["notification_delivery_base_factor"], 3.0);

    // The client of the file may publish, and deliveries carry what came from the environment.
    let sent = ask(
        &server,
        "extra",
        "POST",
        "/notificaties",
        &message("zaken", &json!({"bronorganisatie": "1"})),
    );
    sent.expect(201);
    assert_eq!(receiver.wait(1)[0].header("authorization"), Some(AUTH));
    // Nobody owns what the file declares.
    ask(&server, "extra", "DELETE", &format!("/abonnement/{UUID}"), &Value::Null).expect(403);
    ask(&server, "both", "PATCH", &format!("/abonnement/{UUID}"), &json!({"kanalen": []}))
        .expect(403);

    // The same file again changes nothing; another one is put into effect.
    let before = subscription(&server);
    server.stop();
    let server = home.serve();
    assert_eq!(subscription(&server), before);
    let retries = settings(&server, &["--max-retries", "5"]);
    assert_eq!(retries["notification_delivery_max_retries"], 5);
    server.stop();
    write_setup(home, receiver, "zaken", 4);
    let server = home.serve();
    assert_eq!(settings(&server, &[])["notification_delivery_max_retries"], 4, "the file counts");
    assert_eq!(subscription(&server), before);
    server.stop();
}

#[test]
fn a_setup_file_is_in_effect_after_each_start() {
    let receiver = Callback::new();
    applied(&mut declared(&receiver, 2), &receiver);
}

#[test]
fn a_setup_file_is_in_effect_on_postgresql_too() {
    let database = database();
    let receiver = Callback::new();
    let mut home = declared(&receiver, 2);
    home.store_in(&database.url());
    applied(&mut home, &receiver);
}

#[track_caller]
fn start_fails(home: &Home, auth: Option<&str>, says: &[&str]) {
    let mut command = home.command();
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    if let Some(auth) = auth {
        command.env("CALLBACK_AUTH", auth);
    }
    let output = Ran::of(&mut command);
    assert!(output.code != Some(0), "{}", output.err);
    output.says(says);
}

#[test]
fn a_setup_file_that_cannot_be_applied_stops_the_start_and_says_why() {
    let receiver = Callback::new();
    let home = declared(&receiver, 2);
    start_fails(&home, None, &["setup.yaml", "items.0.auth", "CALLBACK_AUTH"]);
    write_setup(&home, &receiver, "unknown", 2);
    start_fails(&home, Some(AUTH), &[UUID, "no kanaal with the name unknown"]);
    let file = home.path().join("setup.yaml");
    write_setup(&home, &receiver, "zaken", 2);
    let text = std::fs::read_to_string(&file).expect("there");
    std::fs::write(&file, text.replace("identifier: extra", "identifier: both")).expect("written");
    start_fails(&home, Some(AUTH), &["setup_configuration", "`both` has credentials twice"]);
    write_setup(&home, &receiver, "zaken", 1_000);
    start_fails(&home, Some(AUTH), &["notification_delivery_max_retries", "up to 999"]);
    // Waits that come from no settings are not overwritten.
    home.edit("profile: notificaties", "profile: nrc");
    write_setup(&home, &receiver, "zaken", 2);
    start_fails(
        &home,
        Some(AUTH),
        &["the retry waits of the profile `nrc`", "dialects.notificaties.profile"],
    );
    home.edit("profile: nrc", "profile: notificaties");
    home.write("setup.yaml", "a: [");
    start_fails(&home, Some(AUTH), &["dialects.notificaties.setup_configuration", "setup.yaml"]);
    std::fs::remove_file(home.path().join("setup.yaml")).expect("removed");
    start_fails(&home, Some(AUTH), &["setup.yaml", "cannot be read"]);
}

#[test]
fn settings_change_at_run_time_for_abonnementen_that_are_there() {
    let mut home = home();
    home.edit("profile: nrc", "profile: notificaties");
    let server = home.serve();
    let receiver = Callback::new();
    kanaal(&server, "zaken", &[]);
    abonnement(&server, &receiver, &json!([{"naam": "zaken", "filters": {}}]));
    let shown = settings(&server, &[]);
    let view = |retries: u32, backoff: f64, max: f64, base: f64| {
        json!({"notification_delivery_max_retries": retries,
            "notification_delivery_retry_backoff": backoff,
            "notification_delivery_retry_backoff_max": max,
            "notification_delivery_base_factor": base})
    };
    assert_eq!(shown, view(7, 25.0, 52_000.0, 4.0));

    // No wait and two retries: three sends, at once, and then a dead letter.
    let changed = settings(&server, &["--max-retries", "2", "--retry-backoff", "false"]);
    assert_eq!(changed["notification_delivery_retry_backoff"], 0.0);
    receiver.answer(500);
    publish(&server, &message("zaken", &json!({}))).expect(201);
    let dead = eventually("the end", || {
        let list = server.ask("dead-letters list --tenant gemeente");
        list["items"].as_array().and_then(|items| items.first().cloned())
    });
    assert_eq!(dead["attempts_made"], 3);
    assert_eq!(receiver.seen().len(), 3);

    // All four: waits of 0.4 s, 1.2 s, and 2 s instead of 3.6 s.
    let all = ["--max-retries", "3", "--retry-backoff", "0.4", "--retry-backoff-max", "2"];
    let changed = settings(&server, &[&all[..], &["--base-factor", "3"]].concat());
    assert_eq!(changed, view(3, 0.4, 2.0, 3.0));
    publish(&server, &message("zaken", &json!({}))).expect(201);
    let sends = &receiver.wait(7)[3..];
    for (pair, least) in sends.windows(2).zip([0.4, 1.2, 2.0]) {
        let waited = pair[1].at.duration_since(pair[0].at).as_secs_f64();
        // A machine that is busy may be late, but never early.
        assert!(waited > least - 0.05, "{waited} s instead of {least} s");
    }
    until("the end", || {
        let list = server.ask("dead-letters list --tenant gemeente");
        list["items"].as_array().map(Vec::len) == Some(2)
    });
    assert_eq!(receiver.seen().len(), 7, "four sends");

    // True is a factor of one second; what is not given stays.
    let changed = settings(&server, &["--retry-backoff", "true", "--base-factor", "2"]);
    assert_eq!(changed, view(3, 1.0, 2.0, 2.0));
    server.stop();
    let server = home.serve();
    assert_eq!(settings(&server, &[]), changed, "settings outlive a restart");

    for (args, says) in [
        (&["--max-retries", "1000"][..], "up to 999"),
        (&["--retry-backoff", "often"][..], "true or false"),
        (&["--base-factor", "0.5"][..], "from 1"),
    ] {
        Ran::of(
            server.command().args(["notificaties", "settings", "--tenant", "gemeente"]).args(args),
        )
        .exits(2)
        .says(&[says]);
    }
    assert_eq!(settings(&server, &[]), changed);
    server.stop();
}

#[test]
fn a_notification_can_be_sent_again_to_all_who_match_now() {
    let (_home, server) = home().served();
    kanaal(&server, "zaken", &[]);
    publish(&server, &message("zaken", &json!({}))).expect(201);
    let receiver = Callback::new();
    abonnement(&server, &receiver, &json!([{"naam": "zaken", "filters": {}}]));
    let list = server.ask("events list --tenant gemeente");
    let id = list["items"][0]["id"].as_str().expect("an id").to_owned();
    let again = server.ask(&["events", "republish", &id, "--tenant", "gemeente"]);
    assert_eq!(again["deliveries"], 1);
    assert_eq!(receiver.wait(1)[0].json(), message("zaken", &json!({})));
    // Whoever has no key cannot.
    let path = format!("/v1/events/{id}/republish");
    assert_eq!(send(&server.url, "POST", &path, &[], "").status, 401);
    server.stop();
}
