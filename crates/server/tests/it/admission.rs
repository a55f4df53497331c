//! Limits of the configuration, at the real program.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::harness::{Home, Server, assert_exit, assert_says, eventually};

fn configured(more: &str) -> Home {
    let home = Home::new();
    let file = home.path().join("posthorn.yaml");
    let config = std::fs::read_to_string(&file).expect("there");
    let plain = "admission: {disk_warn: 100, disk_refuse: 100}\n";
    assert!(config.contains(plain));
    std::fs::write(file, config.replace(plain, more)).expect("written");
    home
}

#[expect(clippy::disallowed_methods, reason = "the test's own client talks to its own server")]
fn get(server: &Server, path: &str, key: &str) -> String {
    let address = server.url.strip_prefix("http://").expect("an address");
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\n\
         connection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn a_disk_above_its_watermark_takes_nothing_in_and_says_so() {
    let mut home = configured("admission: {disk_warn: 1, disk_refuse: 1, disk_refresh: 100ms}\n");
    let server = home.serve();
    let used = eventually("a look at the disk", || {
        let metrics = get(&server, "/metrics", "");
        let line = metrics.lines().find(|line| line.starts_with("posthorn_disk_used_ratio "))?;
        line.split(' ').nth(1)?.parse::<f64>().ok()
    });
    if used < 0.01 {
        // A disk as empty as this is above no watermark that can be set.
        return;
    }
    eventually("the word of it", || {
        get(&server, "/readyz", "").contains("\"refusing_publishes\":\"disk_full\"").then_some(())
    });
    assert!(get(&server, "/readyz", "").starts_with("HTTP/1.1 200"));
    let sent = server.command().args(["send", "orders", "order.created", "{}"]).output();
    let sent = sent.expect("runs");
    assert_ne!(sent.status.code(), Some(0));
    assert_says(&sent, &["disk"]);
    let metrics = get(&server, "/metrics", "");
    let counted = "posthorn_admission_refused_total{reason=\"disk_full\"}";
    assert!(metrics.contains(counted), "{metrics}");
    server.running.says("nearly full");
    server.stop();
}

#[test]
fn wrong_keys_from_one_address_are_told_to_stop_by_default() {
    let mut home = Home::new();
    let server = home.serve();
    let answers: Vec<String> = (0..12).map(|_| get(&server, "/v1/events", "ph_wrong")).collect();
    assert!(answers[0].starts_with("HTTP/1.1 401"), "{}", answers[0]);
    let last = answers.last().expect("twelve");
    assert!(last.starts_with("HTTP/1.1 429") && last.contains("too_many_failures"), "{last}");
    assert!(last.to_lowercase().contains("retry-after: "), "{last}");
    assert!(get(&server, "/v1/events", &server.key).starts_with("HTTP/1.1 200"));
    server.stop();
}

#[test]
fn limits_that_make_no_sense_are_named() {
    let home = configured("admission: {disk_refuse: 0, commit_interval: 0s, key_rates: 5}\n");
    let check = crate::harness::run(home.path(), &["check"]);
    assert_exit(&check, 78);
    assert_says(&check, &["admission.key_rates"]);
}
