//! Links into the portal, and sessions, with the real program on both stores.

use posthorn_testkit::program::Home;
use serde_json::{Value, json};

use crate::cedros_world::On;
use crate::postgres::database;

fn items(list: &Value) -> Vec<Value> {
    list["items"].as_array().expect("a list").clone()
}

fn by_command(on: On) {
    let mut home = Home::new();
    let database = match on {
        On::Sqlite => None,
        On::Postgres => Some(database()),
    };
    if let Some(database) = &database {
        home.store_in(&database.url());
    }
    let server = home.serve();
    server.ask("tenants create acme");
    let link = server.ask(
        "--tenant acme portal link --name Ann --can see_secret --label theirs --redeem-within 10m \
         --return-url https://example.com/",
    );
    let url = link["url"].as_str().expect("a url");
    let token = link["token"].as_str().expect("a token");
    assert!(url.starts_with("http://127.0.0.1:") && url.ends_with(&format!("/portal#{token}")));
    server.ask("--tenant acme portal link --label theirs");
    server.ask("portal link");
    let all = items(&server.ask("sessions list"));
    assert_eq!(all.len(), 3, "an operator sees all of them: {all:?}");
    let theirs = items(&server.ask("--tenant acme sessions list --kind link --label theirs"));
    assert_eq!(theirs.len(), 2);
    assert_eq!(theirs[1]["id"], link["id"]);
    assert_eq!(theirs[1]["capabilities"], json!(["view", "see_secret"]));
    let table = server.run("sessions list").exits(0);
    let id = link["id"].as_str().expect("an id");
    for word in ["KIND", "link", "theirs", "Ann", id] {
        assert!(table.out.contains(word), "{word}: {}", table.out);
    }
    let secret = token.split_once('.').expect("a secret half").1;
    assert!(!table.out.contains(secret));
    // They are there after a kill.
    drop(server);
    let server = home.serve();
    assert_eq!(items(&server.ask("sessions list")), all);
    server.run(&format!("sessions end {id}")).exits(0);
    server.run(&format!("sessions end {id}")).exits(1).says(&["not_found"]);
    let ended = server.ask("--tenant acme sessions end --label theirs");
    assert_eq!(ended, json!({"ended": 1}));
    assert_eq!(items(&server.ask("sessions list")).len(), 1);
    server.run("sessions end").exits(2);
    server.run("portal link --can fly").exits(2).says(&["see_secret"]);
    server.run("portal link --expires-in 8d").exits(1).says(&["expires_in"]);
}

#[test]
fn sessions_by_command_on_sqlite() {
    by_command(On::Sqlite);
}

#[test]
fn sessions_by_command_on_postgresql() {
    by_command(On::Postgres);
}
