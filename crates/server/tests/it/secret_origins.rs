//! A stored secret goes where it was given for, and nowhere else.

use posthorn_testkit::caller::Reply;
use posthorn_testkit::program::{Home, Server};
use posthorn_testkit::receiver::{Answer, Receiver};
use serde_json::{Value, json};

struct World {
    server: Server,
    first: Receiver,
    second: Receiver,
}

impl World {
    fn start(home: &mut Home) -> Self {
        // Receivers, and token servers.
        let body = r#"{"access_token":"granted-4711","token_type":"Bearer","expires_in":3600}"#;
        let sink = || Receiver::new(Answer::from(200).body(body));
        Self { server: home.serve(), first: sink(), second: sink() }
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Reply {
        self.server.call(method, path).json(body).send()
    }

    #[track_caller]
    fn subscribe(&self, body: &Value) -> String {
        let made = self.call("POST", "/v1/subscriptions", body).expect(201);
        format!("/v1/subscriptions/{}", made["id"].as_str().expect("an id"))
    }

    /// A change that must be refused because of this secret, and changes nothing.
    #[track_caller]
    fn refused(&self, path: &str, change: &Value, secret: &str) {
        let before = self.call("GET", path, &Value::Null).expect(200);
        let reply = self.call("PATCH", path, change).expect(422);
        assert_eq!(reply["code"], "secret_required", "{reply}");
        assert_eq!(reply["field"], format!("secrets.{secret}"), "{reply}");
        let detail = reply["detail"].as_str().expect("a detail");
        assert!(detail.contains(&format!("`{secret}`")), "{detail}");
        assert_eq!(self.call("GET", path, &Value::Null).expect(200), before);
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
    let (first, second) = (world.first.url(""), world.second.url(""));
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
        let tested = world.call("POST", &format!("{path}/test"), &json!({})).expect(200);
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
    let refused = put("mine", &format!("{second}/token")).expect(422);
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

    let (at_home, stolen) = (world.first.heard(), world.second.heard());
    assert!(at_home.contains(SECRET) && at_home.contains("granted-4711"), "the search can find");
    assert!(stolen.contains("my-own-value"));
    let basic = "dTpjMlZq"; // how `u:c2Vj…` begins in Base64
    for secret in [SECRET, basic] {
        assert!(!stolen.contains(secret), "{stolen}");
    }
    world.server.stop();
}
