//! Operational events with the real program: by webhook on both stores, and as mail through the sample of the guide.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use posthorn_testkit::program::{Home, Server};
use posthorn_testkit::receiver::{Answer, Receiver};
use posthorn_testkit::wait::eventually;

use crate::cedros_world::On;
use crate::postgres::database;

const ONCE: &str = r#"{"schedule":{"max_attempts":1}}"#;

/// A dead letter in the default tenant.
fn dies(server: &Server, receiver: &Receiver) {
    server.ask("topics put orders");
    let url = receiver.url("/dead");
    server.ask(&["subscriptions", "create", &url, "--topic", "orders", "--policy", ONCE]);
    server.ask("send orders order.created 1");
}

fn tells(on: On) {
    let mut home = Home::new();
    let database = match on {
        On::Sqlite => None,
        On::Postgres => Some(database()),
    };
    if let Some(database) = &database {
        home.store_in(&database.url());
    }
    let server = home.serve();
    let (ear, operator) = (Receiver::new(200), Receiver::new(200));
    let named = ["--topic", "posthorn.operational", "--type", "delivery.dead"];
    let listen = |tenant: &str, url: String| {
        let mut args = vec!["--tenant", tenant, "subscriptions", "create", &url];
        args.extend(named);
        server.ask(&args);
    };
    listen("default", ear.url("/"));
    listen("system", operator.url("/"));
    let dead = Receiver::new(Answer::from(500));
    dies(&server, &dead);
    for told in [&ear.wait_for(1)[0], &operator.wait_for(1)[0]] {
        let told = told.json();
        assert_eq!(
            (told["type"].as_str(), told["status"].as_u64()),
            (Some("delivery.dead"), Some(500))
        );
    }
    // What was told is there after a kill, and so is the tenant of operators.
    drop(server);
    let server = home.serve();
    let events = server.ask("events list --topic posthorn.operational");
    assert_eq!(events["items"].as_array().map(Vec::len), Some(1), "{events}");
    let theirs = server.ask("--tenant system events list");
    assert_eq!(theirs["items"].as_array().map(Vec::len), Some(1), "{theirs}");
    server.run("send posthorn.operational delivery.dead 1").fails().says(&["topic_reserved"]);
    server.run("topics put posthorn.operational").fails().says(&["topic_reserved"]);
}

#[test]
fn a_dead_letter_is_told_to_its_tenant_and_to_operators() {
    tells(On::Sqlite);
}

#[test]
fn a_dead_letter_is_told_on_postgres_too() {
    tells(On::Postgres);
}

/// The relay of the guide, until the test is over.
struct Relay(Child);

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An SMTP server that takes every mail, and hands it on.
fn mailbox() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let (mails, inbox) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(stream.try_clone().expect("a copy")).lines();
            let say = |text: &str| (&stream).write_all(text.as_bytes()).is_ok();
            say("220 ready\r\n");
            while let Some(Ok(line)) = lines.next() {
                match line.to_ascii_uppercase().split(' ').next() {
                    Some("DATA") => {
                        say("354 go on\r\n");
                        let mail = lines.by_ref().map_while(Result::ok);
                        let mail: Vec<String> = mail.take_while(|line| line != ".").collect();
                        let _ = mails.send(mail.join("\n"));
                        say("250 taken\r\n");
                    }
                    Some("QUIT") => {
                        say("221 bye\r\n");
                        break;
                    }
                    _ => drop(say("250 fine\r\n")),
                }
            }
        }
    });
    (address, inbox)
}

#[test]
fn the_sample_of_the_guide_sends_mail() {
    let (_home, server) = Home::new().served();
    let (smtp, inbox) = mailbox();
    // The secret is known before the subscription, since the relay's port is not known before it runs.
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/mail-relay/relay.py");
    let child = Command::new("python3")
        .arg("-B")
        .arg(sample)
        .env("LISTEN", "127.0.0.1:0")
        .env("SMTP", smtp)
        .env("MAIL_TO", "ops@example.com")
        .env("WEBHOOK_SECRET", secret)
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3, which `./test` installs");
    let mut relay = Relay(child);
    let out = relay.0.stdout.take().expect("a pipe");
    let line = BufReader::new(out).lines().next().expect("a line").expect("text");
    let url = line.strip_prefix("listening on ").expect("its address").to_owned();
    let named = ["--topic", "posthorn.operational", "--type", "delivery.dead"];
    let mut args = vec!["subscriptions", "create", &url, "--secret", secret];
    args.extend(named);
    server.ask(&args);
    let dead = Receiver::new(Answer::from(500));
    dies(&server, &dead);
    let mail = eventually("a mail", || inbox.try_recv().ok());
    assert!(mail.contains("Subject: Posthorn: delivery.dead"), "{mail}");
    assert!(mail.contains("To: ops@example.com") && mail.contains("reason: exhausted"), "{mail}");
}
