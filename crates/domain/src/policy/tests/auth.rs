//! Ways of authentication, and the headers they and others set.

use serde_json::json;

use super::super::{Auth, profiles};
use crate::Span;

#[test]
fn headers_are_checked_wherever_one_can_be_named() {
    let base = profiles::default_profile();
    let many = |count: usize| {
        let headers: serde_json::Map<_, _> =
            (0..count).map(|n| (format!("X-{n}"), json!("v"))).collect();
        json!({"request": {"headers": headers}})
    };
    let hmac = |header: &str, format: &str| {
        json!({"auth": [{"kind": "hmac_header", "secret": "s", "header": header, "hash": "sha256",
            "encoding": "hex", "content": "body", "format": format}]})
    };
    let otp = |header: &str, format: &str| {
        json!({"auth": [{"kind": "otp", "secret": "s", "method": "totp", "hash": "sha1",
            "secret_encoding": "utf8", "salt_use": "none", "step": "30s", "t0": 0, "digits": 6,
            "message": "", "encode": "hex", "header": header, "format": format}]})
    };
    let secret = |header: &str| json!({"auth": [{"kind": "secret_header", "secret": "s", "header": header}]});
    for good in [
        many(crate::limits::HEADERS_MAX - 1),
        hmac("X-Cedros-Signature", "sha256={signature}"),
        otp("Authorization", "Bearer {otp}"),
        secret("Authorization"),
        json!({"request": {"headers": {"X-Attribute?": "{event.attributes.a}"}}}),
        json!({"request": {"user_agent": "EFGS Callback Engine"}}),
    ] {
        base.patched(&good).unwrap_or_else(|e| panic!("{good}: {e}"));
    }
    let long = "x".repeat(4_097);
    for (bad, path) in [
        (many(crate::limits::HEADERS_MAX), "request.headers"),
        (hmac("Host", "{signature}"), "auth[0].header"),
        (hmac("webhook-signature", "{signature}"), "auth[0].header"),
        (hmac("X A", "{signature}"), "auth[0].header"),
        (hmac("X-A", "{signature}\r\nX-B: c"), "auth[0].format"),
        (hmac("X-A", "{signature} ☺"), "auth[0].format"),
        (otp("Transfer-Encoding", "{otp}"), "auth[0].header"),
        (otp("X-aws-ec2-metadata-token", "{otp}"), "auth[0].header"),
        (otp("X-A", "{otp}\n"), "auth[0].format"),
        (secret("Metadata-Flavor"), "auth[0].header"),
        (secret("X-Forwarded-For"), "auth[0].header"),
        (secret(""), "auth[0].header"),
        (json!({"request": {"headers": {"X-A?": "\u{0}"}}}), "request.headers.X-A?"),
        (json!({"request": {"headers": {"X-A": long}}}), "request.headers.X-A"),
        (json!({"request": {"headers": {"Via?": "x"}}}), "request.headers.Via?"),
        (json!({"request": {"headers": {"X-A": "1", "x-a": "2"}}}), "request.headers.x-a"),
        (json!({"request": {"headers": {"X-A": "1", "X-A?": "2"}}}), "request.headers.X-A"),
        (json!({"request": {"content_type": "a/b\r\nX: y"}}), "request.content_type"),
        (json!({"request": {"user_agent": ""}}), "request.user_agent"),
        (json!({"request": {"user_agent": "ä"}}), "request.user_agent"),
        (
            json!({"request": {"headers": {"Authorization": "x"}},
                "auth": [{"kind": "bearer", "secret": "s"}]}),
            "auth",
        ),
        (
            json!({"auth": [{"kind": "bearer", "secret": "s"},
                {"kind": "secret_header", "secret": "t", "header": "authorization"}]}),
            "auth",
        ),
        (json!({"auth": [{"kind": "basic", "user": "a:b", "secret": "s"}]}), "auth[0].user"),
    ] {
        let error = base.patched(&bad).expect_err(&bad.to_string());
        assert_eq!(error.path, path, "{bad}: {error}");
    }
}

#[test]
fn one_time_codes_have_defaults_and_every_knob() {
    let base = profiles::pca_hub();
    let least = json!({"kind": "otp", "secret": "s", "method": "totp", "hash": "sha1"});
    let policy = base.patched(&json!({"auth": [least.clone()]})).expect("valid");
    let Auth::Otp(otp) = &policy.auth[0] else { panic!("the one given") };
    assert_eq!((otp.step, otp.t0, otp.digits), (Span::from_secs(30), 0, 6));
    assert_eq!((otp.header.as_str(), otp.format.as_str()), ("Authorization", "{otp}"));
    for (field, good, bad) in [
        ("method", json!("static"), json!("hotp")),
        ("hash", json!("sha512"), json!("md5")),
        ("secret_encoding", json!("base32"), json!("ascii85")),
        ("salt_use", json!("key-xor"), json!("middle")),
        ("step", json!("60s"), json!("999ms")),
        ("t0", json!(1_000), json!("x")),
        ("digits", json!(8), json!(9)),
        ("encode", json!("base64url"), json!("base32")),
        ("header", json!("X-OTP"), json!("Host")),
        ("format", json!("Bearer {otp}"), json!("Bearer")),
        ("message", json!("{tenant}:{step}"), json!(7)),
        ("secret_values", json!({"shared_key": "k"}), json!({"a b": 7})),
    ] {
        let with = |value: &serde_json::Value| {
            let mut otp = least.clone();
            otp[field] = value.clone();
            base.patched(&json!({"auth": [otp]}))
        };
        with(&good).unwrap_or_else(|e| panic!("{field}: {e}"));
        assert!(with(&bad).is_err(), "{field}");
    }
    let twice = json!({"kind": "otp", "secret": "s", "method": "hmac", "hash": "sha256",
        "values": {"a": "x"}, "secret_values": {"a": "k"}});
    let error = base.patched(&json!({"auth": [twice]})).expect_err("ambiguous");
    assert_eq!(error.path, "auth[0].secret_values");
}

#[test]
fn oauth2_clients_are_checked_and_tokens_are_replaced_in_time() {
    let base = profiles::default_profile();
    let auth = |more: serde_json::Value| {
        let mut client = json!({"kind": "oauth2", "token_url": "https://id.example/token",
            "client_id": "me", "secret": "s"});
        for (name, value) in more.as_object().into_iter().flatten() {
            client[name] = value.clone();
        }
        json!({"auth": [client]})
    };
    let policy = base
        .patched(&auth(json!({"client_auth": "post", "scope": "a b", "audience": "x",
        "renew_before": "10s"})));
    assert!(matches!(policy.expect("valid").auth[0], Auth::Oauth2(_)));
    for (more, path) in [
        (json!({"token_url": "ftp://id.example/"}), "auth[0].token_url"),
        (json!({"token_url": "https://id.example/\n"}), "auth[0].token_url"),
        (json!({"client_id": ""}), "auth[0].client_id"),
        (json!({"client_id": "a\r\nb"}), "auth[0].client_id"),
        (json!({"scope": ""}), "auth[0].scope"),
        (json!({"scope": "a\"b"}), "auth[0].scope"),
        (json!({"scope": "ä"}), "auth[0].scope"),
        (json!({"audience": "\u{0}"}), "auth[0].audience"),
        (json!({"renew_before": "2h"}), "auth[0].renew_before"),
        (json!({"client_auth": "jwt"}), "auth[0].client_auth"),
        (json!({"password": "x"}), "auth[0].password"),
    ] {
        let error = base.patched(&auth(more.clone())).expect_err(&more.to_string());
        assert_eq!(error.path, path, "{more}: {error}");
    }
    for (renew_before, life, used) in [
        (None, 3_600, 3_540),
        (None, 300, 270),
        (None, 0, 0),
        (Some(10), 300, 290),
        (Some(600), 300, 150),
    ] {
        let more =
            renew_before.map_or(json!({}), |s: u32| json!({"renew_before": format!("{s}s")}));
        let policy = base.patched(&auth(more)).expect("valid");
        let Auth::Oauth2(client) = &policy.auth[0] else { panic!("the one given") };
        assert_eq!(client.use_for(Span::from_secs(life)), Span::from_secs(used));
    }
}
