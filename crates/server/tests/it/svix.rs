//! The Svix API with its published clients, unchanged, against the real program; and the rules that these depend on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use posthorn_testkit::caller::{Reply, call};
use posthorn_testkit::program::{Home, Server};
use serde_json::{Value, json};

use crate::cedros_world::On;

/// Client libraries by language and version.
#[derive(Clone, Copy)]
enum Library {
    Python(&'static str),
    JavaScript(&'static str),
}

impl Library {
    /// The folder with its packages, made at the first call. Tests run in processes of their own, so that a lock on a file
    /// decides who installs.
    fn packages(self) -> PathBuf {
        let name = match self {
            Self::Python(version) => format!("python-{version}"),
            Self::JavaScript(version) => format!("javascript-{version}"),
        };
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("svix");
        fs::create_dir_all(&root).expect("a folder");
        let lock = fs::File::create(root.join(format!("{name}.lock"))).expect("a lock");
        lock.lock().expect("locked");
        let place = root.join(&name);
        if !place.exists() {
            let half = root.join(format!("{name}.half"));
            drop(fs::remove_dir_all(&half));
            fs::create_dir_all(&half).expect("a folder");
            self.install(&half);
            fs::rename(&half, &place).expect("renamed");
        }
        place
    }

    fn install(self, place: &Path) {
        let mut command = match self {
            Self::Python(version) => {
                let mut pip = Command::new("python3");
                pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
                pip.args(["--no-input", "--only-binary", ":all:", "--target"]);
                pip.arg(place).arg(format!("svix=={version}"));
                pip
            }
            Self::JavaScript(version) => {
                fs::write(place.join("package.json"), "{\"private\": true}").expect("written");
                let mut npm = Command::new("npm");
                // One of them asks for a newer Node.js than it needs.
                npm.args(["install", "--no-audit", "--no-fund", "--no-package-lock", "--force"]);
                npm.args(["--ignore-scripts", "--prefix"]).arg(place);
                npm.arg(format!("svix@{version}"));
                npm
            }
        };
        run(&mut command);
    }

    /// Walks all operations.
    fn walk(self, server: &Server, key: &str) -> String {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/svix");
        let packages = self.packages();
        let mut command = match self {
            Self::Python(_) => {
                let mut python = Command::new("python3");
                python.env("PYTHONPATH", &packages).env("PYTHONDONTWRITEBYTECODE", "1");
                python.arg(scripts.join("walk.py"));
                python
            }
            Self::JavaScript(_) => {
                let mut node = Command::new("node");
                node.arg(scripts.join("walk.mjs")).arg(&packages);
                node
            }
        };
        run(command.arg(&server.url).arg(key))
    }
}

/// Runs a tool to its end; what it prints. A tool that is missing or fails is a failed test.
#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().expect("python3, node and npm, which ./test installs");
    let (out, err) = (&output.stdout, &output.stderr);
    let (out, err) = (String::from_utf8_lossy(out), String::from_utf8_lossy(err));
    assert!(output.status.success(), "{command:?} failed:\n{out}\n{err}");
    out.into_owned()
}

/// A home whose servers speak it.
pub(crate) fn svix() -> Home {
    let home = Home::new();
    home.configure("dialects: {svix: {enabled: true}}\n");
    home
}

fn key(server: &Server) -> String {
    server.key.clone()
}

/// Walks with a library on a store.
fn walks(library: Library, on: On) {
    let mut home = svix();
    let _database = on.store(&home);
    let server = home.serve();
    let out = library.walk(&server, &key(&server));
    let last = match library {
        Library::Python(_) => "errors",
        Library::JavaScript(_) => "walked",
    };
    assert!(out.contains(last), "{out}");
    server.stop();
}

#[test]
fn the_python_client_walks_all_operations() {
    walks(Library::Python("2.9.1"), On::Sqlite);
}

#[test]
fn the_python_client_walks_all_operations_on_postgres() {
    walks(Library::Python("2.9.1"), On::Postgres);
}

#[test]
fn the_former_python_client_walks_all_operations() {
    walks(Library::Python("1.99.1"), On::Sqlite);
}

#[test]
fn the_former_python_client_walks_all_operations_on_postgres() {
    walks(Library::Python("1.99.1"), On::Postgres);
}

#[test]
fn the_javascript_clients_walk() {
    walks(Library::JavaScript("2.5.0"), On::Sqlite);
    walks(Library::JavaScript("1.99.1"), On::Sqlite);
}

#[test]
fn the_javascript_clients_walk_on_postgres() {
    walks(Library::JavaScript("2.5.0"), On::Postgres);
    walks(Library::JavaScript("1.99.1"), On::Postgres);
}

/// One request with the operator's key.
pub(crate) fn ask(server: &Server, method: &str, path: &str, body: Option<&Value>) -> Reply {
    let request = call(&server.url, method, path);
    let request = request.header("authorization", &format!("Bearer {}", key(server)));
    match body {
        Some(body) => request.json(body).send(),
        None => request.send(),
    }
}

#[test]
fn every_refusal_is_an_object() {
    let (_home, server) = svix().served();
    let cases = [
        ("GET", "/api/v1/nothing/here", None, 404),
        ("DELETE", "/api/v1/app", None, 405),
        ("GET", "/api/v1/app/app_nope/endpoint", None, 404),
        ("GET", "/api/v1/app?limit=x", None, 400),
        ("GET", "/api/v1/app?limit=251", None, 422),
        ("GET", "/api/v1/stream", None, 501),
        ("POST", "/api/v1/app", Some(json!([])), 422),
        ("POST", "/api/v1/app", Some(json!({})), 422),
        ("POST", "/api/v1/app", Some(json!({"name": "x", "uid": "app_x"})), 422),
        ("POST", "/api/v1/app", Some(json!({"name": "x", "throttleRate": 0})), 422),
    ];
    for (method, path, body, status) in cases {
        let reply = ask(&server, method, path, body.as_ref());
        let said = reply.expect(status);
        let detail = &said["detail"];
        match status {
            422 => assert!(detail[0]["loc"].is_array() && detail[0]["msg"].is_string(), "{said}"),
            _ => assert!(said["code"].is_string() && detail.is_string(), "{said}"),
        }
    }
    let nobody = call(&server.url, "GET", "/api/v1/app").send();
    assert_eq!(nobody.expect(401)["code"], "authentication_failed");
    let broken = call(&server.url, "POST", "/api/v1/app")
        .header("authorization", &format!("Bearer {}", key(&server)))
        .header("content-type", "application/json")
        .raw("{\"name\":")
        .send();
    assert_eq!(broken.expect(422)["detail"][0]["type"], "value_error.jsondecode");
    server.stop();
}

#[test]
fn slashes_unknown_parameters_and_members_do_not_matter() {
    let (_home, server) = svix().served();
    let body = json!({"name": "ACME", "uid": "acme", "nobody knows": "this"});
    let made = ask(&server, "POST", "/api/v1/app/?with_content=false", Some(&body)).expect(201);
    for path in ["/api/v1/app/acme/", "//api/v1/app/acme", "/api/v1/app/acme?strange=1"] {
        assert_eq!(ask(&server, "GET", path, None).expect(200)["id"], made["id"], "{path}");
    }
    let list = ask(&server, "GET", "/api/v1/app", None).expect(200);
    assert_eq!((&list["done"], list["data"].as_array().map(Vec::len)), (&json!(true), Some(1)));
    assert!(list.get("iterator").is_some() && list.get("prevIterator").is_some(), "{list}");
    let page = call(&server.url, "OPTIONS", "/api/v1/app")
        .header("origin", "https://customer.example")
        .header("access-control-request-method", "GET")
        .header("access-control-request-headers", "authorization,svix-req-id")
        .send();
    assert_eq!(page.status, 204);
    assert_eq!(page.header("access-control-allow-headers"), Some("authorization,svix-req-id"));
    server.stop();
}

#[test]
fn two_systems_do_not_share_a_prefix() {
    let home = Home::new();
    home.configure("dialects: {svix: {enabled: true}, notificaties: {enabled: true}}\n");
    home.run("check").fails().says(&["dialects", "prefix"]);
}

#[test]
fn a_realm_is_an_organisation_of_its_own() {
    let (_home, server) = svix().served();
    server.ask("realms put staging");
    let made =
        server.ask("keys create --realm staging --scope manage --scope read --scope publish");
    let staging = made["key"].as_str().expect("a key").to_owned();
    let as_realm = |method: &str, path: &str, body: Option<&Value>| {
        let request = call(&server.url, method, path);
        let request = request.header("authorization", &format!("Bearer {staging}"));
        match body {
            Some(body) => request.json(body).send(),
            None => request.send(),
        }
    };
    let own =
        as_realm("POST", "/api/v1/app", Some(&json!({"name": "a", "uid": "same"}))).expect(201);
    let other = ask(&server, "POST", "/api/v1/app", Some(&json!({"name": "b", "uid": "same"})));
    let other = other.expect(201);
    assert_ne!(own["id"], other["id"]);
    let foreign = format!("/api/v1/app/{}", other["id"].as_str().expect("an id"));
    assert_eq!(as_realm("GET", &foreign, None).status, 404);
    assert_eq!(as_realm("GET", "/api/v1/app/same", None).expect(200)["id"], own["id"]);
    server.stop();
}

#[test]
fn event_types_with_a_flag_are_hidden_from_applications_without_it() {
    let (_home, server) = svix().served();
    ask(&server, "POST", "/api/v1/app", Some(&json!({"name": "a", "uid": "a"}))).expect(201);
    let flagged = json!({"name": "new.thing", "description": "", "featureFlags": ["beta", "next"]});
    let made = ask(&server, "POST", "/api/v1/event-type", Some(&flagged)).expect(201);
    assert_eq!(
        (&made["featureFlags"], &made["featureFlag"]),
        (&flagged["featureFlags"], &json!("beta"))
    );
    let plain = json!({"name": "old.thing", "description": ""});
    ask(&server, "POST", "/api/v1/event-type", Some(&plain)).expect(201);
    let names = |token: &str| -> Vec<String> {
        let list = call(&server.url, "GET", "/api/v1/event-type");
        let list = list.header("authorization", &format!("Bearer {token}")).send().expect(200);
        let data = list["data"].as_array().expect("a list");
        data.iter().map(|own| own["name"].as_str().expect("a name").to_owned()).collect()
    };
    let token = |body: Value| {
        let link = ask(&server, "POST", "/api/v1/auth/app-portal-access/a", Some(&body));
        link.expect(200)["token"].as_str().expect("a token").to_owned()
    };
    let (with, without) = (token(json!({"featureFlags": ["next"]})), token(json!({})));
    assert_eq!(names(&key(&server)), ["new.thing", "old.thing"]);
    assert_eq!(names(&with), ["new.thing", "old.thing"]);
    assert_eq!(names(&without), ["old.thing"]);
    let one = |token: &str| {
        let one = call(&server.url, "GET", "/api/v1/event-type/new.thing");
        one.header("authorization", &format!("Bearer {token}")).send().status
    };
    assert_eq!((one(&with), one(&without)), (200, 404));
    // Whoever changes it elsewhere leaves its flags alone.
    let change = json!({"description": "of our own API"});
    server.call("PUT", "/v1/event-types/new.thing").json(&change).send().expect(200);
    assert_eq!(names(&without), ["old.thing"]);
    let clear = json!({"featureFlags": null});
    ask(&server, "PATCH", "/api/v1/event-type/new.thing", Some(&clear)).expect(200);
    assert_eq!(names(&without), ["new.thing", "old.thing"]);
    server.stop();
}

#[test]
fn an_endpoint_has_a_bounded_number_of_secrets() {
    let (_home, server) = svix().served();
    ask(&server, "POST", "/api/v1/app", Some(&json!({"name": "a", "uid": "a"}))).expect(201);
    let endpoint = json!({"url": "https://example.com/hook", "uid": "one"});
    ask(&server, "POST", "/api/v1/app/a/endpoint", Some(&endpoint)).expect(201);
    let rotate = |key: &str| {
        call(&server.url, "POST", "/api/v1/app/a/endpoint/one/secret/rotate")
            .header("authorization", &format!("Bearer {}", server.key))
            .header("idempotency-key", key)
            .json(json!({}))
            .send()
    };
    let mut keys: Vec<Value> = (0..10).map(|n| rotate(&format!("k{n}")).expect(200)).collect();
    assert_eq!(rotate("k9").expect(200), keys[9], "a repeat is the same answer");
    keys.dedup();
    assert_eq!(keys.len(), 10);
    assert_eq!(rotate("k10").expect(400)["code"], "limit_reached");
    server.stop();
}
