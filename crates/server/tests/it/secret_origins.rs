//! A stored secret goes where it was given for, and nowhere else.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::caller::{Reply, send};
use crate::harness::{Home, Server};

/// A receiver, and a token server, that keeps every byte it got.
struct Sink {
    url: String,
    got: Arc<Mutex<String>>,
}

impl Sink {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let got: Arc<Mutex<String>> = Arc::default();
        let into = Arc::clone(&got);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let into = Arc::clone(&into);
                std::thread::spawn(move || drop(answer(stream, &into)));
            }
        });
        Self { url, got }
    }

    fn got(&self) -> String {
        self.got.lock().expect("not poisoned").clone()
    }
}

fn answer(mut stream: TcpStream, into: &Mutex<String>) -> std::io::Result<()> {
    let (mut request, mut chunk) = (String::new(), [0; 4096]);
    loop {
        let length = stream.read(&mut chunk)?;
        if length == 0 {
            return Ok(());
        }
        request.push_str(&String::from_utf8_lossy(&chunk[..length]));
        let Some(head) = request.find("\r\n\r\n") else { continue };
        let lower = request[..head].to_lowercase();
        let size = lower.lines().find_map(|line| line.strip_prefix("content-length:"));
        let size: usize = size.and_then(|size| size.trim().parse().ok()).unwrap_or(0);
        if request.len() < head + 4 + size {
            continue;
        }
        into.lock().expect("not poisoned").push_str(&request);
        request.clear();
        let body = r#"{"access_token":"granted-4711","token_type":"Bearer","expires_in":3600}"#;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
        stream.write_all(format!("{head} {}\r\n\r\n{body}", body.len()).as_bytes())?;
    }
}

struct World {
    server: Server,
    first: Sink,
    second: Sink,
}

impl World {
    fn start(home: &mut Home) -> Self {
        Self { server: home.serve(), first: Sink::start(), second: Sink::start() }
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Reply {
        send(&self.server.url, &self.server.key, method, path, &body.to_string())
    }

    #[track_caller]
    fn subscribe(&self, body: &Value) -> String {
        let made = self.call("POST", "/v1/subscriptions", body).expect(201).json();
        format!("/v1/subscriptions/{}", made["id"].as_str().expect("an id"))
    }

    /// A change that must be refused because of this secret, and changes nothing.
    #[track_caller]
    fn refused(&self, path: &str, change: &Value, secret: &str) {
        let before = self.call("GET", path, &Value::Null).expect(200).json();
        let reply = self.call("PATCH", path, change).expect(422).json();
        assert_eq!(reply["code"], "secret_required", "{reply}");
        assert_eq!(reply["field"], format!("secrets.{secret}"), "{reply}");
        let detail = reply["detail"].as_str().expect("a detail");
        assert!(detail.contains(&format!("`{secret}`")), "{detail}");
        assert_eq!(self.call("GET", path, &Value::Null).expect(200).json(), before);
    }
}

const SECRET: &str = "c2VjcmV0LTQ3MTEtc2VjcmV0LTQ3MTEtc2VjcmV0";

fn otp(method: &str) -> Value {
    json!({"kind": "otp", "secret": "token", "method": method, "hash": "sha256", "header": "x-code"})
}

fn oauth2(token_url: &str) -> Value {
    json!({"kind": "oauth2", "token_url": token_url, "client_id": "c", "secret": "token",
        "client_auth": "post"})
}

#[test]
fn a_stored_secret_is_given_again_when_it_would_go_to_another_origin() {
    let mut home = Home::new();
    let world = World::start(&mut home);
    let (first, second) = (world.first.url.clone(), world.second.url.clone());
    let hmac = json!({"kind": "hmac_header", "secret": "token", "header": "x-sign", "hash": "sha256",
        "encoding": "hex", "content": "body", "format": "{signature}"});
    let jwt = json!({"kind": "zgw_jwt", "client_id": "c", "secret": "token", "lifetime": "1h"});
    // Every way of authentication with a secret: is it told to the receiver?
    let ways = [
        (json!({"kind": "bearer", "secret": "token"}), true),
        (json!({"kind": "basic", "user": "u", "secret": "token"}), true),
        (json!({"kind": "secret_header", "header": "x-token", "secret": "token"}), true),
        (otp("static"), true),
        (oauth2(&format!("{first}/token")), true),
        (json!({"kind": "standard_webhooks", "secret": "token"}), false),
        (hmac, false),
        (jwt, false),
        (otp("totp"), false),
        (otp("hmac"), false),
    ];
    let signing = format!("whsec_{SECRET}");
    for (way, told) in &ways {
        let value = if way["kind"] == "standard_webhooks" { &signing } else { SECRET };
        let path = world.subscribe(&json!({"url": format!("{first}/a"), "policy": {"auth": [way]},
            "secrets": {"token": value}}));
        // Elsewhere at the same origin.
        world.call("PATCH", &path, &json!({"url": format!("{first}/b?x=1")})).expect(200);
        let elsewhere = json!({"url": format!("{second}/steal")});
        if !told {
            world.call("PATCH", &path, &elsewhere).expect(200);
            // Once there, it must not begin to be sent.
            let open = json!({"policy": {"auth": [{"kind": "bearer", "secret": "token"}]}});
            world.refused(&path, &open, "token");
            let open = json!({"policy": {"auth": [otp("static")]}});
            world.refused(&path, &open, "token");
            continue;
        }
        world.refused(&path, &elsewhere, "token");
        // The long way round: without it to the other place, and there with it again.
        let bare = json!({"url": format!("{second}/steal"), "policy": {"auth": []}});
        world.call("PATCH", &path, &bare).expect(200);
        world.refused(&path, &json!({"policy": {"auth": [way]}}), "token");
        let back = json!({"url": format!("{first}/a"), "policy": {"auth": [way]},
            "secrets": {"token": SECRET}});
        world.call("PATCH", &path, &back).expect(200);
        // Another secret beside it does not help.
        let other = json!({"url": format!("{second}/steal"), "secrets": {"other": "x"}});
        world.refused(&path, &other, "token");
        let tested = world.call("POST", &format!("{path}/test"), &json!({})).expect(200).json();
        assert_eq!(tested["outcome"], "answered", "{tested}");
        // Given again, it is what goes there.
        let given = json!({"url": format!("{second}/own"), "secrets": {"token": "my-own-value"}});
        world.call("PATCH", &path, &given).expect(200);
        world.call("POST", &format!("{path}/test"), &json!({})).expect(200);
    }

    // The token server is told the client secret, wherever the receiver is.
    let path = world.subscribe(&json!({"url": format!("{first}/a"),
        "policy": {"auth": [oauth2(&format!("{first}/token"))]}, "secrets": {"token": SECRET}}));
    let elsewhere = json!({"policy": {"auth": [oauth2(&format!("{second}/token"))]}});
    world.refused(&path, &elsewhere, "token");
    world
        .call("PATCH", &path, &json!({"policy": {"auth": [oauth2(&format!("{first}/other"))]}}))
        .expect(200);

    // Who had a token has not had the secret it was given for.
    let own = world.subscribe(&json!({"url": format!("{second}/a"),
        "policy": {"auth": [oauth2(&format!("{first}/token"))]}, "secrets": {"token": SECRET}}));
    let bearer = json!({"policy": {"auth": [{"kind": "bearer", "secret": "token"}]}});
    world.refused(&own, &bearer, "token");
    world.refused(&own, &elsewhere, "token");

    // A profile carries the address as well, and has no secrets of its own.
    let profile = |at: &str| json!({"base": "default", "policy": {"auth": [oauth2(at)]}});
    let put =
        |name: &str, at: &str| world.call("PUT", &format!("/v1/profiles/{name}"), &profile(at));
    put("mine", &format!("{first}/token")).expect(200);
    let path = world.subscribe(&json!({"url": format!("{first}/a"), "profile": "mine",
        "secrets": {"token": SECRET}}));
    put("mine", &format!("{first}/moved")).expect(200);
    let refused = put("mine", &format!("{second}/token")).expect(422).json();
    assert_eq!(
        (&refused["code"], &refused["field"]),
        (&json!("secret_required"), &json!("policy"))
    );
    assert!(
        refused["detail"].as_str().expect("text").contains(path.rsplit('/').next().expect("id"))
    );
    put("theirs", &format!("{second}/token")).expect(200);
    world.refused(&path, &json!({"profile": "theirs"}), "token");
    let given = json!({"profile": "theirs", "secrets": {"token": "my-own-value"}});
    world.call("PATCH", &path, &given).expect(200);
    world.call("POST", &format!("{path}/test"), &json!({})).expect(200);

    let (at_home, stolen) = (world.first.got(), world.second.got());
    assert!(at_home.contains(SECRET) && at_home.contains("granted-4711"), "the search can find");
    assert!(stolen.contains("my-own-value"));
    let basic = "dTpjMlZq"; // how `u:c2Vj…` begins in Base64
    for secret in [SECRET, basic] {
        assert!(!stolen.contains(secret), "{stolen}");
    }
    world.server.stop();
}
