//! What the portal tells customers to write, in five languages, with a request that the real program has sent: each lets it
//! in, and nothing else.
//!
//! `./test` installs all of the languages. One that is not on this machine is passed over, and said to be SKIPPED; where
//! `CI` is `true`, that is a failure.

use std::path::{Path, PathBuf};
use std::process::Command;

use posthorn_sealing::standard_webhooks::{SigningSecret, signature_header};
use posthorn_testkit::program::Home;
use posthorn_testkit::receiver::Receiver;
use serde_json::{Value, json};

/// The Rust of the portal, compiled as it is shown.
#[expect(unreachable_pub, reason = "receivers have it in a library")]
mod in_rust {
    use sha2_next as sha2;
    include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../console/snippets/verify.rs.txt"));
}

fn snippets() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../console/snippets")
}

/// Whether a language lets a request in; nothing when it is not on this machine.
type Verify<'v> = dyn Fn(&str, &Signed) -> Option<bool> + 'v;

/// A request as a receiver has it.
#[derive(Clone)]
struct Signed {
    id: String,
    at: String,
    signatures: String,
    body: String,
}

#[expect(clippy::disallowed_methods, reason = "the snippets look at the clock themselves")]
fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.expect("after 1970").as_secs()).expect("a time")
}

/// What a program of another language says of a request: its last line.
fn asked(mut command: Command, secret: &str, request: &Signed) -> Option<bool> {
    let heads = json!({
        "webhook-id": request.id, "webhook-timestamp": request.at, "webhook-signature": request.signatures,
    });
    command.args([secret, &heads.to_string(), &request.body]);
    let output = match command.output() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return None,
        output => output.expect("a program"),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    match said.trim() {
        "true" => Some(true),
        "false" => Some(false),
        other => panic!("{command:?}: {other} {}", String::from_utf8_lossy(&output.stderr)),
    }
}

fn in_python(secret: &str, request: &Signed) -> Option<bool> {
    let code = "import sys, json; sys.path.insert(0, sys.argv[1]); import verify; \
                print(str(verify.verify(sys.argv[2], json.loads(sys.argv[3]), sys.argv[4].encode())).lower())";
    let mut python = Command::new("python3");
    python.args(["-B", "-c", code]).arg(snippets());
    asked(python, secret, request)
}

fn in_javascript(secret: &str, request: &Signed) -> Option<bool> {
    let code = "const [folder, secret, heads, body] = process.argv.slice(1); \
                const { verify } = await import(folder + '/verify.mjs'); \
                console.log(verify(secret, JSON.parse(heads), Buffer.from(body)));";
    let mut node = Command::new("node");
    node.args(["--input-type=module", "-e", code]).arg(snippets());
    asked(node, secret, request)
}

fn in_php(secret: &str, request: &Signed) -> Option<bool> {
    let code = "require $argv[1] . '/verify.php'; \
                echo verify($argv[2], json_decode($argv[3], true), $argv[4]) ? 'true' : 'false';";
    let mut php = Command::new("php");
    php.args(["-r", code, "--"]).arg(snippets());
    asked(php, secret, request)
}

/// A program around the package that is shown; built once.
fn go_program(home: &Path) -> Option<PathBuf> {
    Command::new("go").arg("version").output().ok()?;
    let main = r#"package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	"try/webhook"
)

func main() {
	heads, header := map[string]string{}, http.Header{}
	if err := json.Unmarshal([]byte(os.Args[2]), &heads); err != nil {
		panic(err)
	}
	for name, value := range heads {
		header.Set(name, value)
	}
	fmt.Println(webhook.Verify(os.Args[1], header, []byte(os.Args[3])))
}
"#;
    std::fs::create_dir_all(home.join("webhook")).expect("a folder");
    std::fs::copy(snippets().join("verify.go"), home.join("webhook/verify.go")).expect("copied");
    std::fs::write(home.join("go.mod"), "module try\n\ngo 1.19\n").expect("written");
    std::fs::write(home.join("main.go"), main).expect("written");
    let mut build = Command::new("go");
    build.args(["build", "-o", "try", "."]).current_dir(home);
    // Nothing is fetched. What Go compiles of its own library is kept: it takes minutes on a busy machine.
    for (name, value) in [("GOFLAGS", "-mod=mod"), ("GOPROXY", "off"), ("GOTOOLCHAIN", "local")] {
        build.env(name, value);
    }
    build.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache"));
    let output = build.output().expect("go");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(home.join("try"))
}

#[test]
fn every_snippet_of_the_portal_verifies_a_real_request_and_nothing_else() {
    let mut home = Home::new();
    let server = home.serve();
    let receiver = Receiver::new(200);
    server.call("PUT", "/v1/topics/orders").json(json!({})).send().with(200);
    let new = json!({"name": "hook", "url": receiver.url("/hook")});
    let made: Value = server.call("POST", "/v1/subscriptions").json(&new).send().expect(201);
    let first = made["signing_secret"].as_str().expect("a secret").to_owned();
    // With two secrets, a request has two signatures, and receivers may have either.
    let rotate = server.call("POST", "/v1/subscriptions/hook/rotate-secret");
    let rotated: Value = rotate.json(json!({"overlap": "1h"})).send().expect(200);
    let second = rotated["secret"].as_str().expect("a secret").to_owned();
    let event = json!({"topic": "orders", "type": "order.paid", "payload": {"name": "Zoë", "total": 12.50}});
    server.call("POST", "/v1/events").json(event).send().with(202);
    receiver.wait_for(1);
    let request = &receiver.seen()[0];
    let head = |name: &str| request.header(name).expect(name).to_owned();
    let real = Signed {
        id: head("webhook-id"),
        at: head("webhook-timestamp"),
        signatures: head("webhook-signature"),
        body: request.text().to_owned(),
    };
    assert_eq!(real.signatures.split(' ').count(), 2, "{}", real.signatures);
    let stranger = SigningSecret::generate();
    let later = (real.at.parse::<i64>().expect("a time") + 1).to_string();
    // Signed by the right one, but long ago: somebody kept it and sends it again.
    let old = now() - 400;
    let own = SigningSecret::parse(&first).expect("our own secret");
    let kept = signature_header([&own], &real.id, old, real.body.as_bytes());
    let cases = [
        ("a request of ours", first.clone(), real.clone(), true),
        ("the other secret", second, real.clone(), true),
        ("a secret of somebody else", stranger.to_text(), real.clone(), false),
        (
            "a changed body",
            first.clone(),
            Signed { body: real.body.replace("12", "13"), ..real.clone() },
            false,
        ),
        ("a changed time", first.clone(), Signed { at: later, ..real.clone() }, false),
        ("another id", first.clone(), Signed { id: "evt_1".to_owned(), ..real.clone() }, false),
        (
            "no signature",
            first.clone(),
            Signed { signatures: "v1,".to_owned(), ..real.clone() },
            false,
        ),
        ("an old request", first, Signed { at: old.to_string(), signatures: kept, ..real }, false),
    ];
    let go = go_program(&home.path().join("go"));
    let in_go = |secret: &str, request: &Signed| {
        go.as_ref().and_then(|go| asked(Command::new(go), secret, request))
    };
    let in_rust = |secret: &str, Signed { id, at, signatures, body }: &Signed| {
        Some(in_rust::verify(secret, id, at, signatures, body.as_bytes(), now()))
    };
    let languages: [(&str, &Verify<'_>); 5] = [
        ("Python", &in_python),
        ("JavaScript", &in_javascript),
        ("PHP", &in_php),
        ("Go", &in_go),
        ("Rust", &in_rust),
    ];
    for (language, verify) in languages {
        for (what, secret, request, wanted) in &cases {
            match verify(secret, request) {
                Some(said) => assert_eq!(said, *wanted, "{language}: {what}"),
                None => {
                    let must = std::env::var("CI").is_ok_and(|ci| ci == "true");
                    assert!(!must, "{language} is not on this machine; ./test installs it");
                    println!("SKIPPED: {language} is not on this machine");
                    break;
                }
            }
        }
    }
}
