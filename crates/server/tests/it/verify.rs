//! `posthorn verify`: what it accepts, and what it says about the rest.

use std::fs;
use std::path::Path;

use posthorn_sealing::standard_webhooks::{SigningSecret, signature_header};
use posthorn_testkit::program::{Home, Ran, posthorn};
use serde_json::Value;

const AT: i64 = 1_700_000_000;
const BODY: &str = "{\"total\":12,\"b\":\"ä\"}";

/// A request as it would be dumped.
fn dump(id: &str, at: &str, signature: &str, body: &str) -> String {
    format!(
        "POST /hook HTTP/1.1\r\nHost: r\r\nContent-Length: {}\r\nWebhook-Id: {id}\r\n\
         Webhook-Timestamp: {at}\r\nWebhook-Signature: {signature}\r\n\r\n{body}",
        body.len()
    )
}

struct Bench<'a> {
    dir: &'a Path,
}

impl Bench<'_> {
    fn file(&self, name: &str, text: &str) -> String {
        fs::write(self.dir.join(name), text).expect("written");
        format!("file:{name}")
    }

    /// Checks a dump a second after it was sent; the report and whether the exit code fits it.
    fn check(&self, secret: &str, dump: &str, more: &[&str]) -> Value {
        fs::write(self.dir.join("dump"), dump).expect("written");
        let at = (AT + 1).to_string();
        let mut args = vec!["verify", "--json", "--secret", secret, "--request", "dump"];
        if !more.contains(&"--at") {
            args.extend(["--at", &at]);
        }
        args.extend(more);
        let output = Ran::of(posthorn(self.dir).args(&args));
        let report: Value = serde_json::from_str(&output.out).unwrap_or_else(|e| {
            panic!("no report ({e}): {}", output.err);
        });
        output.exits(if report["verified"] == true { 0 } else { 1 });
        report
    }
}

fn codes(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().expect("a list");
    findings.iter().map(|finding| finding["code"].as_str().expect("a code")).collect()
}

fn detail(report: &Value) -> &str {
    report["findings"][0]["detail"].as_str().expect("a detail")
}

#[test]
fn what_is_right_is_verified_with_every_kind_of_secret() {
    let home = Home::new();
    let bench = Bench { dir: home.path() };
    let (hmac, ed) = (SigningSecret::generate(), SigningSecret::generate_ed25519());
    let public = ed.public_key().expect("asymmetric").to_string();
    let (hmac_file, ed_file) =
        (bench.file("hmac", &format!("{}\n", hmac.to_text())), bench.file("ed", &ed.to_text()));
    let both = signature_header([&hmac, &ed], "evt_1", AT, BODY.as_bytes());
    let request = dump("evt_1", &AT.to_string(), &both, BODY);
    for (secret, scheme) in [
        (hmac_file.as_str(), "v1 (HMAC-SHA-256)"),
        (&ed_file, "v1a (Ed25519)"),
        (&public, "v1a (Ed25519)"),
    ] {
        let report = bench.check(secret, &request, &[]);
        assert_eq!(report["verified"], true, "{report}");
        assert_eq!(
            (report["scheme"].as_str(), report["signed_by"].as_str()),
            (Some(scheme), Some(secret))
        );
        assert_eq!(report["age_seconds"], 1);
    }

    // The same in pieces, with the secret in the environment and the body on stdin.
    let headers = [
        "webhook-id: evt_1".to_owned(),
        format!("WEBHOOK-TIMESTAMP: {AT}"),
        format!("webhook-signature: {both}"),
    ];
    fs::write(home.path().join("body"), BODY).expect("written");
    let mut command = home.command();
    command.env("OUR_SECRET", hmac.to_text()).args(["verify", "--secret", "env:OUR_SECRET"]);
    for header in &headers {
        command.args(["--header", header]);
    }
    let output = command.args(["--body", "body", "--at", "2023-11-14T22:13:21Z"]);
    let output = Ran::of(output).exits(0);
    assert!(output.out.contains("verified"), "{}", output.out);
}

#[test]
fn what_is_wrong_is_named_precisely() {
    let home = Home::new();
    let bench = Bench { dir: home.path() };
    let secret = SigningSecret::generate();
    let file = bench.file("secret", &secret.to_text());
    let ed = SigningSecret::generate_ed25519();
    let public = ed.public_key().expect("asymmetric").to_string();
    let good = secret.sign("evt_1", AT, BODY.as_bytes());
    let at = AT.to_string();
    let sent = |signature: &str, body: &str| dump("evt_1", &at, signature, body);
    let whole = sent(&good, BODY);

    // Headers.
    for (drop, name) in [
        ("Webhook-Id: evt_1\r\n", "webhook-id"),
        (&format!("Webhook-Timestamp: {AT}\r\n"), "webhook-timestamp"),
        (&format!("Webhook-Signature: {good}\r\n"), "webhook-signature"),
    ] {
        let report = bench.check(&file, &whole.replace(drop, ""), &[]);
        assert_eq!(codes(&report), ["missing_header"]);
        assert!(detail(&report).contains(name), "{report}");
        let twice = whole.replace(drop, &format!("{drop}{drop}"));
        assert_eq!(codes(&bench.check(&file, &twice, &[])), ["malformed_header"]);
    }
    let soon = dump("evt_1", "soon", &good, BODY);
    assert_eq!(codes(&bench.check(&file, &soon, &[])), ["malformed_header"]);

    // Times.
    let late = bench.check(&file, &whole, &["--at", &(AT + 400).to_string()]);
    assert_eq!(codes(&late), ["timestamp_too_old"]);
    assert!(detail(&late).contains("6m40s ago, 1m40s more than the tolerance of 5m"), "{late}");
    assert_eq!(late["signed_by"], file.as_str(), "the signature itself fits");
    let later = bench.check(&file, &whole, &["--at", &(AT + 400).to_string(), "--tolerance", "7m"]);
    assert_eq!(later["verified"], true);
    let early = bench.check(&file, &whole, &["--at", &(AT - 301).to_string()]);
    assert_eq!(codes(&early), ["timestamp_too_new"]);
    assert!(detail(&early).contains("5m1s ahead, 1s more"), "{early}");
    let millis = dump("evt_1", &format!("{at}000"), &good, BODY);
    let millis = bench.check(&file, &millis, &[]);
    assert!(detail(&millis).contains("milliseconds"), "{millis}");

    // Signatures that can never fit.
    for (signature, code) in [
        ("v1,???", "malformed_signature"),
        ("v1,AAAA", "malformed_signature"),
        ("nonsense", "malformed_signature"),
        ("v9,AAAA", "no_usable_signature"),
        (&ed.sign("evt_1", AT, BODY.as_bytes()), "no_usable_signature"),
    ] {
        let report = bench.check(&file, &sent(signature, BODY), &[]);
        assert_eq!(codes(&report)[0], code, "{report}");
    }
    let report = bench.check(&public, &whole, &[]);
    assert_eq!(codes(&report), ["no_usable_signature"]);
    assert!(detail(&report).contains("whsec_"), "{report}");

    // Bodies that changed in usual ways, and in others.
    let compact = r#"{"b":1,"a":[1,2]}"#;
    let signature = secret.sign("evt_1", AT, compact.as_bytes());
    for (body, words) in [
        (format!("{compact}\n"), "white space was added at its end"),
        ("{\"b\": 1, \"a\": [1, 2]}".to_owned(), "written again as JSON"),
        ("{\n  \"b\": 1,\n  \"a\": [\n    1,\n    2\n  ]\n}".to_owned(), "written again as JSON"),
        (format!("\u{feff}{compact}"), "byte order mark"),
    ] {
        let report = bench.check(&file, &sent(&signature, &body), &[]);
        assert_eq!(codes(&report), ["body_changed"], "{body:?}");
        assert!(detail(&report).contains(words), "{report}");
    }
    let forged = sent(&signature, r#"{"b":2,"a":[1,2]}"#);
    assert_eq!(codes(&bench.check(&file, &forged, &[])), ["signature_mismatch"]);
    let other = bench.file("other", &SigningSecret::generate().to_text());
    let report = bench.check(&other, &whole, &[]);
    assert_eq!(codes(&report), ["signature_mismatch"]);
    let report = bench.check(&other, &whole, &["--secret", &file]);
    assert_eq!(report["signed_by"], file.as_str(), "several are tried in turn");
    let cut = bench.check(&file, &whole[..whole.len() - 2], &[]);
    assert_eq!(codes(&cut), ["body_truncated", "signature_mismatch"]);
}

#[test]
fn an_hmac_in_a_header_is_checked_in_its_own_form() {
    let home = Home::new();
    let bench = Bench { dir: home.path() };
    let file = bench.file("shared", "Jefe");
    let text = "what do ya want for nothing?";
    // RFC 4231, case 2.
    let hex = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
    let request = |value: &str, body: &str| {
        format!("POST / HTTP/1.1\nX-Cedros-Timestamp: {AT}\nX-Cedros-Signature: {value}\n\n{body}")
    };
    let scheme = ["--scheme", "sha256=hex", "--signature-header", "X-Cedros-Signature"];
    let good = request(&format!("sha256={hex}"), text);
    let report = bench.check(&file, &good, &scheme);
    assert_eq!(report["verified"], true, "{report}");
    assert_eq!(report["notes"].as_array().map(Vec::len), Some(1), "no time is covered");
    let upper = request(&format!("sha256={}", hex.to_uppercase()), text);
    assert_eq!(bench.check(&file, &upper, &scheme)["verified"], true);
    let timed = [&scheme[..], &["--timestamp-header", "X-Cedros-Timestamp"]].concat();
    assert_eq!(bench.check(&file, &good, &timed)["age_seconds"], 1);
    let late = [&timed[..], &["--at", "1700009999"]].concat();
    assert_eq!(codes(&bench.check(&file, &good, &late)), ["timestamp_too_old"]);
    for (value, body, code) in [
        (hex.to_owned(), text, "malformed_header"),
        (format!("sha1={hex}"), text, "malformed_header"),
        ("sha256=abc".to_owned(), text, "malformed_signature"),
        (format!("sha256={}", hex.replace('5', "6")), text, "signature_mismatch"),
        (format!("sha256={hex}"), "what do ya want for nothing?\r\n", "body_changed"),
        (format!("sha256={hex}"), "what do ya want", "signature_mismatch"),
    ] {
        assert_eq!(codes(&bench.check(&file, &request(&value, body), &scheme)), [code], "{value}");
    }
    let coded = bench.file("coded", "SmVmZQ==");
    assert_eq!(codes(&bench.check(&coded, &good, &scheme)), ["secret_encoding"]);

    // The time in the same header, and covered: HMAC-SHA-256 of "1700000000.x" with the key "Jefe".
    let value = format!("t={AT},v1=lbof3cB0MohHL3QpD6WZcSEat2PQR4E/ZkngjkkwgnY=");
    let more = [
        "--scheme",
        "sha256=base64",
        "--signature-header",
        "X-Cedros-Signature",
        "--format",
        "t={timestamp},v1={signature}",
        "--content",
        "timestamp_and_body",
    ];
    let report = bench.check(&file, &request(&value, "x"), &more);
    assert_eq!(report["verified"], true, "{report}");
    let moved = request(&value.replace("1700000000", "1700000001"), "x");
    assert_eq!(codes(&bench.check(&file, &moved, &more)), ["signature_mismatch"]);
}

#[test]
fn what_cannot_be_checked_is_a_usage_error() {
    let home = Home::new();
    let bench = Bench { dir: home.path() };
    let file = bench.file("secret", &SigningSecret::generate().to_text());
    let plain = bench.file("plain", "hunter2");
    fs::write(home.path().join("body"), BODY).expect("written");
    fs::write(home.path().join("junk"), "no request").expect("written");
    let long = SigningSecret::generate().to_text();
    for (args, words) in [
        (vec!["--secret", &long, "--body", "body"], "other users of this machine could see it"),
        (vec!["--secret", "env:NO_SUCH_VARIABLE", "--body", "body"], "NO_SUCH_VARIABLE is not set"),
        (vec!["--secret", "file:none", "--body", "body"], "none"),
        (vec!["--secret", &plain, "--body", "body"], "--scheme"),
        (vec!["--secret", "whpk_AAAA", "--body", "body"], "whpk_"),
        (vec!["--secret", &file], "no request was given"),
        (vec!["--secret", &file, "--body", "none"], "cannot be read"),
        (
            vec!["--secret", &file, "--request", "junk"],
            "the empty line after the headers is missing",
        ),
        (vec!["--secret", &file, "--body", "body", "--header", "x"], "`Name: value`"),
        (vec!["--secret", &file, "--body", "body", "--at", "soon"], "is not a time"),
        (vec!["--secret", &file, "--body", "body", "--scheme", "sha256=hex"], "--signature-header"),
        (
            vec![
                "--secret",
                &file,
                "--body",
                "body",
                "--scheme",
                "md5=hex",
                "--signature-header",
                "X",
            ],
            "sha1, sha256, sha512",
        ),
    ] {
        let output = home.run(&[&["verify"][..], &args].concat()).exits(2).says(&[words]);
        assert!(!output.err.contains(&long) && !output.err.contains("hunter2"));
    }
}

#[test]
fn what_a_server_sends_verifies_with_the_public_key_it_shows() {
    let (home, server) = Home::new().served();
    server.ask("topics put orders");
    let (mut listener, address) = server.listen("--count 1 --json");
    let made = server.ask(&["subscriptions", "create", &address, "--secret-kind", "ed25519"]);
    assert!(made.get("signing_secret").is_none());
    let key = made["public_keys"][0]["key"].as_str().expect("a key").to_owned();
    server.ask(&["send", "orders", "order.created", "{\"total\":  12}"]);
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
    let received: Value = serde_json::from_str(&listener.stdout()).expect("one JSON line");
    fs::write(home.path().join("body"), received["body"].as_str().expect("text")).expect("written");
    let mut args = vec!["verify".to_owned(), "--secret".to_owned(), key];
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        let value = received["headers"][name].as_str().expect("a header");
        args.extend(["--header".to_owned(), format!("{name}: {value}")]);
    }
    args.extend(["--body".to_owned(), "body".to_owned()]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let output = home.run(&args).exits(0);
    assert!(output.out.contains("v1a (Ed25519)"), "{}", output.out);
    server.stop();
}
