//! Canaries: secrets of all kinds are given to a server that logs everything it can, it is made to
//! use, rotate and mistake them, and then everything it left behind is searched for them.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use posthorn_testkit::caller::Reply;
use posthorn_testkit::program::{Home, Ran, Server, id_of};
use posthorn_testkit::receiver::Receiver;
use posthorn_testkit::wait::until;
use serde_json::{Value, json};

/// A secret that can be recognised.
#[derive(Clone)]
struct Canary {
    what: String,
    text: String,
}

fn random() -> String {
    format!("{:032x}", rand::random::<u128>())
}

impl Canary {
    fn new(what: &str) -> Self {
        Self { what: what.to_owned(), text: format!("cnry{}", random()) }
    }

    /// A secret in the form that signing secrets have.
    fn signing(what: &str) -> Self {
        let key = base64(random().as_bytes());
        Self { what: what.to_owned(), text: format!("whsec_{key}") }
    }

    /// Everything it could look like. Inside a longer text, Base64 begins at any of three places.
    fn forms(&self) -> Vec<Vec<u8>> {
        let raw = self.text.strip_prefix("whsec_").unwrap_or(&self.text).as_bytes();
        let mut forms = vec![raw.to_vec()];
        let mut sources = vec![raw.to_vec()];
        if let Some(key) = self.text.strip_prefix("whsec_") {
            let key = unbase64(key);
            forms.push(key.clone());
            sources.push(key);
        }
        for bytes in sources {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            forms.push(hex.to_uppercase().into_bytes());
            forms.push(hex.into_bytes());
            for shift in 0..3 {
                let shifted = [vec![0; shift], bytes.clone()].concat();
                let encoded = base64(&shifted);
                // The first and last characters mix with what is around.
                let inner = encoded.trim_end_matches('=');
                let inner = &inner[shift + shift.min(1)..inner.len() - 2];
                forms.push(inner.as_bytes().to_vec());
                forms.push(inner.replace('+', "-").replace('/', "_").into_bytes());
            }
            let percent: String = bytes.iter().map(|byte| format!("%{byte:02X}")).collect();
            forms.push(percent.into_bytes());
        }
        let escaped = String::from_utf8_lossy(raw).replace('+', "%2B").replace('/', "%2F");
        forms.push(escaped.replace('=', "%3D").into_bytes());
        forms
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0u32, |group, byte| (group << 8) | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let sextet = (group >> (18 - 6 * place)) & 63;
            let pad = place > chunk.len();
            text.push(if pad { '=' } else { char::from(ALPHABET[sextet as usize]) });
        }
    }
    text
}

fn unbase64(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text
        .bytes()
        .filter_map(|byte| ALPHABET.iter().position(|known| *known == byte))
        .map(|place| u32::try_from(place).expect("below 64"))
        .collect();
    let mut bytes = Vec::new();
    for chunk in digits.chunks(4) {
        let group =
            chunk.iter().fold(0, |group, digit| (group << 6) | digit) << (6 * (4 - chunk.len()));
        bytes.extend((0..chunk.len() - 1).map(|place| (group >> (16 - 8 * place)) as u8));
    }
    bytes
}

fn contains(hay: &[u8], needle: &[u8]) -> bool {
    hay.windows(needle.len()).any(|window| window == needle)
}

/// How much of a canary is looked up before the rest is compared.
const BEGINNING: usize = 12;

/// Places in which nothing may be found.
#[derive(Default)]
struct Search {
    places: Vec<(String, Vec<u8>)>,
}

impl Search {
    fn add(&mut self, place: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.places.push((place.into(), bytes.into()));
    }

    fn add_files(&mut self, folder: &Path, when: &str) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            // The one place where the seal key belongs; nothing else is in it.
            if path.is_file() && !name.starts_with("seal.key") {
                self.add(format!("{name} {when}"), std::fs::read(&path).expect("readable"));
            }
        }
    }

    /// Goes once over each place, with all forms of all canaries by how they begin.
    #[track_caller]
    fn expect_none_of(&self, canaries: &[Canary], skip: impl Fn(&str) -> bool) {
        let mut needles: HashMap<[u8; BEGINNING], Vec<(&Canary, Vec<u8>)>> = HashMap::new();
        for canary in canaries {
            for form in canary.forms() {
                let begins = *form.first_chunk().expect("canaries are long");
                needles.entry(begins).or_default().push((canary, form));
            }
        }
        let mut found = BTreeSet::new();
        for (place, bytes) in self.places.iter().filter(|(place, _)| !skip(place)) {
            for (at, window) in bytes.windows(BEGINNING).enumerate() {
                for (canary, form) in needles.get(window).into_iter().flatten() {
                    if bytes[at..].starts_with(form) {
                        let form = String::from_utf8_lossy(form);
                        found.insert(format!("{} as {form:?} in {place}", canary.what));
                    }
                }
            }
        }
        assert!(found.is_empty(), "found: {found:#?}");
    }
}

/// A request with a key and perhaps JSON; the answer as it came.
fn call(server: &Server, key: &str, method: &str, path: &str, body: &str) -> Reply {
    server.open(method, path).key(key).text(body).send()
}

#[track_caller]
fn ask(server: &Server, method: &str, path: &str, body: &Value) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = call(server, &server.key, method, path, &body);
    answer.expect(if answer.status < 300 { answer.status } else { 200 })
}

/// Each way of authentication, with the names of its secrets.
fn ways() -> Vec<(&'static str, Value)> {
    let otp = json!({
        "kind": "otp", "secret": "token", "method": "totp", "hash": "sha256",
        "secret_encoding": "utf8", "salt_use": "none", "step": "30s", "t0": 0, "digits": 6,
        "message": "", "encode": "hex", "header": "x-otp", "format": "{otp}",
    });
    vec![
        ("bearer", json!({"kind": "bearer", "secret": "token"})),
        ("basic", json!({"kind": "basic", "user": "posthorn", "secret": "token"})),
        ("header", json!({"kind": "secret_header", "header": "x-token", "secret": "token"})),
        (
            "hmac",
            json!({
                "kind": "hmac_header", "secret": "token", "header": "x-signature", "hash": "sha256",
                "encoding": "hex", "content": "body", "format": "{signature}",
            }),
        ),
        (
            "jwt",
            json!({
                "kind": "zgw_jwt", "client_id": "posthorn", "secret": "token", "lifetime": "1h",
            }),
        ),
        ("otp", otp),
        ("signing", json!({"kind": "standard_webhooks", "secret": "token"})),
    ]
}

#[test]
fn no_secret_is_found_in_anything_the_server_leaves_behind() {
    let mut home = Home::new();
    home.configure("log: {level: trace, format: json}\n");
    let server = home.serve();
    // Paths with `fail` are answered with 500.
    let receiver = Receiver::scripted(|seen| if seen.path.contains("fail") { 500 } else { 204 });
    let url = receiver.url("");
    let (mut canaries, mut in_clear) = (Vec::new(), Vec::new());
    let mut keep = |canary: Canary| -> String {
        canaries.push(canary.clone());
        canary.text
    };

    ask(&server, "PUT", "/v1/topics/orders", &json!({}));
    let mut subscriptions = Vec::new();
    for (kind, auth) in ways() {
        for path in ["ok", "fail"] {
            let fresh = |step: &str| match kind {
                "signing" => Canary::signing(&format!("{kind} {path} {step}")),
                _ => Canary::new(&format!("{kind} {path} {step}")),
            };
            // A token in a URL is not sealed, but it does not belong into logs either.
            let query = Canary::new(&format!("{kind} {path} query"));
            let first = fresh("created");
            if matches!(kind, "bearer" | "basic" | "header") {
                in_clear.push(first.clone());
            }
            let body = json!({
                "url": format!("{url}/{path}?token={}", query.text),
                "policy": {"auth": [auth], "schedule": {"max_attempts": 1}},
                "secrets": {"token": keep(first)},
            });
            in_clear.push(query);
            let made = ask(&server, "POST", "/v1/subscriptions", &body);
            let id = id_of(&made);
            let at = format!("/v1/subscriptions/{id}");
            ask(&server, "POST", &format!("{at}/test"), &Value::Null);
            let change = json!({"secrets": {"token": keep(fresh("changed"))}});
            ask(&server, "PATCH", &at, &change);
            let rotation = json!({"name": "token", "secret": keep(fresh("rotated"))});
            ask(&server, "POST", &format!("{at}/rotate-secret"), &rotation);
            // Mistakes with secrets in them.
            let wrong = keep(fresh("mistaken"));
            for body in [
                json!({"secrets": {"token": wrong.repeat(200)}}).to_string(),
                json!({"secret": wrong}).to_string(),
                json!({"secrets": {format!("{wrong} !"): "x"}}).to_string(),
                format!("{{\"secrets\":{{\"token\":\"{wrong}\"}}"),
                format!("\"{wrong}\""),
            ] {
                let answer = call(&server, &server.key, "PATCH", &at, &body);
                assert!((400..500).contains(&answer.status), "{answer:?}");
            }
            subscriptions.push(id);
        }
    }

    // Keys: one that works, one that was revoked, one that is nearly right, one in the wrong place.
    let new = json!({"tenant": "default", "scopes": ["publish", "read"]});
    let mut keys = Vec::new();
    for _ in 0..4 {
        let made = ask(&server, "POST", "/v1/keys", &new);
        let text = made["key"].as_str().expect("a key").to_owned();
        // `ph_`, 26 characters of id, which is public, 43 of secret, six of checksum.
        let secret = text[29..72].to_owned();
        keep(Canary { what: "an API key".to_owned(), text: secret });
        keys.push((id_of(&made), text));
    }
    ask(&server, "DELETE", &format!("/v1/keys/{}", keys[1].0), &Value::Null);
    for (_, key) in &keys {
        call(&server, key, "GET", "/v1/events", "");
    }
    call(&server, &format!("{}x", keys[2].1), "GET", "/v1/events", "");
    call(&server, &server.key, "GET", &format!("/v1/events?key={}", keys[3].1), "");
    call(&server, &server.key, "GET", &format!("/v1/keys/{}", keys[3].1), "");

    // Payloads are stored, and are nobody's business in logs.
    let payload = Canary::new("a payload");
    in_clear.push(payload.clone());
    let event = json!({"topic": "orders", "type": "order.created", "payload": payload.text});
    ask(&server, "POST", "/v1/events", &event);
    let wanted = subscriptions.len() as u64 / 2;
    until("the end of all deliveries", || {
        let stats = ask(&server, "GET", "/v1/stats", &Value::Null);
        stats["delivered"] == wanted && stats["dead"] == wanted
    });
    let dead = ask(&server, "GET", "/v1/dead-letters", &Value::Null);
    let id = dead["items"][0]["id"].as_str().expect("a dead letter");
    ask(&server, "POST", &format!("/v1/dead-letters/{id}/retry"), &Value::Null);
    ask(&server, "POST", "/v1/redrives", &json!({}));

    // What an operator sees and keeps.
    let mut search = Search::default();
    for args in [
        &["subscriptions", "list"][..],
        &["keys", "list"],
        &["deliveries", "list"],
        &["dead-letters", "list"],
        &["check"],
        &["seal", "rotate"],
        &["backup", "--to", "copy.db"],
    ] {
        let output = server.run(args);
        search.add(format!("stdout of {args:?}"), output.out);
        search.add(format!("stderr of {args:?}"), output.err);
    }
    search.add("metrics", server.metrics());
    search.add("backup", std::fs::read(home.path().join("copy.db")).expect("a backup"));
    search.add_files(&home.data(), "while it ran");
    let seal = std::fs::read_to_string(home.data().join("seal.key")).expect("a seal key");
    let seal = seal.trim().strip_prefix("phvk_").expect("a seal key").to_owned();
    keep(Canary { what: "the seal key".to_owned(), text: format!("whsec_{seal}") });
    server.running.signal("TERM");
    let mut running = server.running;
    assert_eq!(running.wait().code(), Some(0));
    search.add_files(&home.data(), "at the end");
    let log = running.stderr();
    // Nothing of ours is said at a finer level, but libraries may come to say something.
    assert!(log.contains("\"level\":\"DEBUG\""), "it did log everything: {log}");
    search.add("log", log);
    search.add("stdout", running.stdout());

    // The operator key is in its file and nowhere else.
    let text = home.key.clone().expect("created at the first start")[29..72].to_owned();
    let operator = [Canary { what: "the operator key".to_owned(), text }];
    search.expect_none_of(&operator, |place| place.contains("operator.key"));
    assert!(canaries.len() >= 50, "{}", canaries.len());
    search.expect_none_of(&canaries, |_| false);
    // What is stored in the clear by nature is in no log, and in no metric.
    search.expect_none_of(&in_clear, |place| !["log", "metrics", "stdout"].contains(&place));

    // The search can find: what receivers must get, they got, in the clear or in Base64.
    let got = receiver.heard();
    for canary in &in_clear {
        let found = canary.forms().iter().any(|form| contains(got.as_bytes(), form));
        assert!(found, "{} did not reach its receiver", canary.what);
    }
}

#[test]
fn the_password_of_the_database_is_in_no_message() {
    let home = Home::new();
    let password = Canary::new("the password");
    let url = format!("postgres://posthorn:{}@127.0.0.1:9/posthorn", password.text);
    let mut search = Search::default();
    for (args, level) in [
        (&["serve", "--set", "store.start_timeout=1s"][..], "trace"),
        (&["check"], "info"),
        (&["check", "--json"], "info"),
        (&["serve", "--set", "store.connections=0"], "info"),
    ] {
        let output = Ran::of(
            home.command()
                .args(args)
                .env("POSTHORN__STORE__URL", &url)
                .env("POSTHORN__LOG__LEVEL", level),
        );
        search.add(format!("stdout of {args:?}"), output.out);
        search.add(format!("stderr of {args:?}"), output.err);
    }
    assert!(search.places.iter().any(|(_, text)| contains(text, b"127.0.0.1:9")), "it tried");
    search.expect_none_of(&[password], |_| false);
}

#[test]
fn the_search_finds_every_form() {
    let canary = Canary::new("a test");
    let text = canary.text.as_bytes();
    let hex: String = text.iter().map(|byte| format!("{byte:02X}")).collect();
    for hay in [
        canary.text.clone(),
        hex,
        base64(text),
        base64(&[b"user:", text].concat()),
        base64(&[b"another:", text, b" and more"].concat()),
        base64(&[b"x", text].concat()),
    ] {
        let hay = format!("some {hay} more");
        assert!(canary.forms().iter().any(|form| contains(hay.as_bytes(), form)), "{hay}");
    }
    assert_eq!(unbase64(&base64(b"posthorn")), b"posthorn");
    let mut search = Search::default();
    search.add("a log", format!("authorization: Basic {}", base64(&[b"user:", text].concat())));
    let all = [canary];
    let leak = std::panic::catch_unwind(|| search.expect_none_of(&all, |_| false));
    assert!(leak.is_err(), "what is there is found");
    search.expect_none_of(&all, |_| true);
}
