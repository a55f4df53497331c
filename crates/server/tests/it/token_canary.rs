//! Access tokens, client secrets and private keys must not be found in what a server leaves behind.
//! The other kinds of secrets are looked for by [`canary`](crate::canary).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use posthorn_sealing::standard_webhooks::SigningSecret;
use posthorn_testkit::program::Home;
use posthorn_testkit::receiver::{Answer, Receiver};
use serde_json::json;

/// A token server that gives everybody the same token.
fn token_server(token: &str) -> Receiver {
    let body = json!({"access_token": token, "token_type": "Bearer", "expires_in": 600});
    Receiver::new(Answer::from(200).body(body.to_string()))
}

#[test]
fn no_token_client_secret_or_private_key_is_in_the_log_or_the_data() {
    const TOKEN: &str = "canary-access-token-71f0";
    let mut home = Home::new();
    home.configure("log: {level: trace, format: json}\n");
    let server = home.serve();
    server.ask("topics put orders");
    let (listener, address) = server.listen("--json --fail-first 3");
    let tokens = token_server(TOKEN);
    let token_url = tokens.url("/token");
    let ed = SigningSecret::generate_ed25519().to_text();
    let client = |form: &str| {
        json!({"kind": "oauth2", "token_url": token_url, "client_id": "me", "secret": "s",
            "client_auth": form})
    };
    let auth = [
        (client("basic"), "canary-client-secret-1b"),
        (client("post"), "canary-client-secret-2c"),
        (json!({"kind": "standard_webhooks", "secret": "s"}), ed.as_str()),
    ];
    let mut canaries = vec![TOKEN.to_owned()];
    for (auth, secret) in &auth {
        let policy = json!({"auth": [auth]}).to_string();
        let given = format!("s={secret}");
        let create = ["subscriptions", "create", &address, "--profile", "quick"];
        let create = [&create[..], &["--policy", &policy, "--secret", &given]].concat();
        server.ask(&create);
        canaries.push((*secret).to_owned());
        canaries.push(STANDARD.encode(format!("me:{secret}")));
    }
    server.ask("send orders order.created");
    server.settles(&[("delivered", auth.len())]);
    assert!(listener.stdout().contains(TOKEN), "the token was really used");
    for list in ["subscriptions", "deliveries", "events"] {
        let shown = server.ask(&[list, "list"]).to_string();
        assert!(!canaries.iter().any(|canary| shown.contains(canary.as_str())), "{list}");
    }
    // The level is in effect.
    server.running.says("an attempt did not succeed");
    let log = server.running.stderr();
    let mut places = vec![("the log".to_owned(), log.into_bytes())];
    for file in std::fs::read_dir(home.data()).expect("reads") {
        let path = file.expect("reads").path();
        if path.is_file() {
            places.push((path.display().to_string(), std::fs::read(&path).expect("reads")));
        }
    }
    assert!(places.len() > 2, "the store has files");
    for (place, bytes) in &places {
        for canary in &canaries {
            let found = bytes.windows(canary.len()).any(|window| window == canary.as_bytes());
            assert!(!found, "{canary} is in {place}");
        }
    }
    server.stop();
}
