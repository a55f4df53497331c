//! The Hub of the tests refuses what a real one would: a check that cannot fail proves nothing.

use std::process::Command;
use std::thread;
use std::time::Duration;

use posthorn_testkit::caller::call;
use posthorn_testkit::fake_hub::{Agreement, FakeHub, Reply};

/// The code of this moment by Python, which has never heard of our code.
fn code(agreement: &Agreement) -> String {
    let program = "
import hmac, struct, sys, time
key = sys.argv[1].encode()
tag = hmac.new(key, struct.pack('>Q', int(time.time()) // 30), 'sha1').digest()
at = tag[-1] & 15
print('%06d' % ((struct.unpack('>I', tag[at:at + 4])[0] & 0x7fffffff) % 1000000), end='')
";
    let key = format!("{}{}", agreement.otp_salt, agreement.otp_secret);
    let output = Command::new("python3").args(["-c", program, &key]).output();
    let output = output.expect("python3, which ./test installs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

struct Caller<'a> {
    hub: &'a FakeHub,
    headers: Vec<(&'static str, String)>,
}

impl Caller<'_> {
    fn call(&self, path: &str, account: &str, changed: &[(&str, &str)]) -> Option<u16> {
        let root = self.hub.root();
        let (_, base) = root.split_once("://").expect("a URL");
        let (address, base) = base.split_once('/').expect("a path");
        let to = call(&format!("http://{address}"), "POST", &format!("/{base}{path}"));
        let to = self.headers.iter().fold(to, |to, (name, value)| {
            let value = changed.iter().find(|(n, _)| n == name).map_or(value.as_str(), |(_, v)| v);
            to.header(name, value)
        });
        to.raw(format!("{{\"account_id\":\"{account}\"}}")).try_send().map(|reply| reply.status)
    }
}

fn caller<'a>(hub: &'a FakeHub, agreement: &Agreement, code: String) -> Caller<'a> {
    let headers = vec![
        ("Content-Type", "application/json".to_owned()),
        ("Authorization", code),
        ("X-PCA-SHARED-INTERNAL-KEY", agreement.shared_key.clone()),
        ("X-PCA-ISSUER", format!("https://t1.{}/auth", agreement.domain)),
        ("X-PCA-TENANT", "t1".to_owned()),
        ("X-PCA-Event-APIKey", agreement.api_keys[1].clone()),
        ("X-PCA-organization-id", "o".to_owned()),
        ("X-PCA-service-partition", "pca.hub.t1".to_owned()),
        ("X-PCA-Event-Type", "user.created".to_owned()),
        ("X-PCA-Event-Sender", "user".to_owned()),
    ];
    Caller { hub, headers }
}

#[test]
fn what_is_wrong_is_refused_and_what_is_right_is_not() {
    let agreement = Agreement::default();
    let code = code(&agreement);
    let hub = FakeHub::start(agreement.clone()).expect("starts");
    let caller = caller(&hub, &agreement, code);
    assert_eq!(caller.call("/user-events", "a", &[]), Some(200), "{:?}", hub.complaints());
    assert!(hub.complaints().is_empty());
    for (header, value, status) in [
        ("Authorization", "000000x", 401),
        ("Authorization", "", 401),
        ("X-PCA-SHARED-INTERNAL-KEY", "another", 401),
        ("X-PCA-ISSUER", "https://t2.hub.example/auth", 401),
        ("X-PCA-ISSUER", "https://t1.hub.example/auth/", 401),
        ("X-PCA-TENANT", "pca.hub.t1", 401),
        ("X-PCA-Event-APIKey", "old", 401),
        ("X-PCA-organization-id", "", 400),
        ("X-PCA-Event-Type", "organization.created", 400),
        ("Content-Type", "text/plain", 415),
    ] {
        let before = hub.complaints().len();
        let account = format!("{header}{value}");
        assert_eq!(caller.call("/user-events", &account, &[(header, value)]), Some(status));
        assert_eq!(hub.complaints().len(), before + 1, "{header}: {value}");
    }
    assert_eq!(caller.call("/group-events", "b", &[]), Some(404));
    assert_eq!(hub.calls().len(), 12);
}

#[test]
fn an_account_that_is_touched_too_soon_gets_a_409() {
    let agreement = Agreement { interim: true, ..Agreement::default() };
    let hub = FakeHub::start(agreement.clone()).expect("starts");
    let mut caller = caller(&hub, &agreement, String::new());
    caller.headers.drain(1..4);
    assert_eq!(caller.call("/user-events", "a", &[]), Some(200));
    assert_eq!(caller.call("/user-events", "b", &[]), Some(200), "another one is free");
    assert_eq!(caller.call("/user-events", "a", &[]), Some(409));
    thread::sleep(Duration::from_millis(2_100));
    hub.script([Reply::Slow(Duration::from_secs(1)), Reply::Reset, Reply::Standard(503)]);
    thread::scope(|scope| {
        let slow = scope.spawn(|| caller.call("/user-events", "a", &[]));
        while hub.calls().len() < 4 {
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(caller.call("/user-events", "c", &[]), None, "reset");
        assert_eq!(caller.call("/user-events", "d", &[]), Some(503));
        assert_eq!(caller.call("/user-events", "a", &[]), Some(409), "at the same time");
        assert_eq!(slow.join().expect("ends"), Some(200));
    });
    assert_eq!(hub.complaints().len(), 2, "{:?}", hub.complaints());
}
