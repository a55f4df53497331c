//! What a token server may answer (RFC 6749, section 5), read strictly.

use posthorn_domain::limits::RESPONSE_KEPT_BYTES_MAX;
use posthorn_domain::{Answer, Problem, Span};
use posthorn_sealing::vault::Secret;
use serde::{Deserialize, Deserializer};
use zeroize::Zeroizing;

/// The longest token; longer ones do not fit into the headers receivers take.
const TOKEN_BYTES_MAX: usize = 8 * 1_024;
/// How long a token is good for when the server does not say.
const LIFE_UNSAID: Span = Span::from_secs(300);
/// The longest a token is believed to be good for: one that was revoked must go some time.
const LIFE_MAX: Span = Span::from_secs(86_400);
/// The longest error code that is repeated.
const ERROR_BYTES_MAX: usize = 64;

/// A token, and how long it is good for.
pub(super) struct Granted {
    pub(super) token: Secret,
    pub(super) life: Span,
}

#[derive(Deserialize)]
struct Success {
    access_token: String,
    token_type: String,
    #[serde(default, deserialize_with = "seconds")]
    expires_in: Option<u64>,
}

#[derive(Deserialize)]
struct ErrorBody {
    error: String,
}

/// A number, or, as some servers have it, the text of one.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Seconds {
        Number(u64),
        Text(String),
    }
    Ok(match Option::<Seconds>::deserialize(deserializer)? {
        None => None,
        Some(Seconds::Number(number)) => Some(number),
        Some(Seconds::Text(text)) => {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            let number = if digits { text.parse().ok() } else { None };
            Some(number.ok_or_else(|| serde::de::Error::custom("expires_in is not a number"))?)
        }
    })
}

/// Reads an answer. What is wrong never repeats what the server sent, except a plain error code.
pub(super) fn read(answer: &Answer) -> Result<Granted, Problem> {
    if answer.status != 200 {
        let plain = |b: u8| b.is_ascii_lowercase() || b == b'_';
        let code =
            serde_json::from_slice::<ErrorBody>(&answer.body).ok().map(|refusal| refusal.error);
        let code = code.filter(|code| {
            !code.is_empty() && code.len() <= ERROR_BYTES_MAX && code.bytes().all(plain)
        });
        return Err(match code {
            Some(code) => format!("the token server answered {} ({code})", answer.status),
            None => format!("the token server answered {}", answer.status),
        }
        .into());
    }
    // What is kept of a longer body could by chance be a whole answer.
    if answer.body.len() >= RESPONSE_KEPT_BYTES_MAX {
        return Err(format!(
            "the token server's answer has {RESPONSE_KEPT_BYTES_MAX} bytes or more"
        )
        .into());
    }
    // A derived record would take a list of its fields as well.
    if answer.body.trim_ascii_start().first() != Some(&b'{') {
        return Err("the token server's answer is not a JSON object".into());
    }
    let success: Success = serde_json::from_slice(&answer.body).map_err(|e| {
        // The parser's own words may quote the text.
        format!(
            "the token server's answer is not the JSON of a token (line {}, column {})",
            e.line(),
            e.column()
        )
    })?;
    let token = Zeroizing::new(success.access_token);
    if !success.token_type.eq_ignore_ascii_case("bearer") {
        return Err("the token server returned a token that is not of type Bearer".into());
    }
    if token.is_empty() || token.len() > TOKEN_BYTES_MAX {
        let problem = format!("the token server's token is not 1 to {TOKEN_BYTES_MAX} bytes long");
        return Err(problem.into());
    }
    if !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err("the token server's token has characters that a header cannot contain".into());
    }
    let life = success
        .expires_in
        .map_or(LIFE_UNSAID, |s| Span::from_secs(s.min(LIFE_MAX.as_millis() / 1_000)));
    Ok(Granted { token: Secret::from(token.as_bytes()), life })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn answer(status: u16, body: impl Into<Bytes>) -> Answer {
        Answer { status, retry_after: None, content_type: None, body: body.into() }
    }

    #[test]
    fn tokens_are_read_with_their_lives() {
        for (body, seconds) in [
            (r#"{"access_token":"t.~+/=","token_type":"Bearer","expires_in":3600}"#, 3_600),
            (r#"{"access_token":"t","token_type":"bearer","expires_in":"3599"}"#, 3_599),
            (r#"{"access_token":"t","token_type":"BEARER"}"#, 300),
            (r#"{"access_token":"t","token_type":"Bearer","expires_in":null,"scope":"x"}"#, 300),
            (r#"{"access_token":"t","token_type":"Bearer","expires_in":0}"#, 0),
            (
                r#"{"access_token":"t","token_type":"Bearer","expires_in":18446744073709551615}"#,
                86_400,
            ),
        ] {
            let granted = read(&answer(200, body)).unwrap_or_else(|e| panic!("{body}: {e}"));
            assert_eq!(granted.life, Span::from_secs(seconds), "{body}");
            assert!(!granted.token.expose().is_empty());
        }
        let long = format!(r#"{{"access_token":"{}","token_type":"Bearer"}}"#, "x".repeat(8_192));
        assert!(read(&answer(200, long)).is_ok());
    }

    #[test]
    fn anything_else_is_refused_without_being_repeated() {
        let longer = format!(r#"{{"access_token":"{}","token_type":"Bearer"}}"#, "x".repeat(8_193));
        for body in [
            "",
            "null",
            "[]",
            r#"["hush","Bearer",300]"#,
            "hush",
            r#"{"access_token":"hush"}"#,
            r#"{"token_type":"Bearer"}"#,
            r#"{"access_token":"","token_type":"Bearer"}"#,
            r#"{"access_token":7,"token_type":"Bearer"}"#,
            r#"{"access_token":"hush","token_type":"mac"}"#,
            r#"{"access_token":"hush\r\nX-A: b","token_type":"Bearer"}"#,
            r#"{"access_token":"hush hush","token_type":"Bearer"}"#,
            r#"{"access_token":"hüsh","token_type":"Bearer"}"#,
            r#"{"access_token":"hush","token_type":"Bearer","expires_in":-1}"#,
            r#"{"access_token":"hush","token_type":"Bearer","expires_in":1e400}"#,
            r#"{"access_token":"hush","token_type":"Bearer","expires_in":"soon"}"#,
            r#"{"access_token":"hush","token_type":"Bearer","expires_in":"-1"}"#,
            r#"{"access_token":"hush","access_token":"other","token_type":"Bearer"}"#,
            r#"{"access_token":"hush","token_type":"Bearer"} hush"#,
            longer.as_str(),
        ] {
            let Err(problem) = read(&answer(200, body.to_owned())) else { panic!("{body}") };
            assert!(!problem.as_str().contains("hush"), "{problem}");
        }
        let padded = format!(
            r#"{{"access_token":"hush","token_type":"Bearer"}}{}"#,
            " ".repeat(RESPONSE_KEPT_BYTES_MAX)
        );
        assert!(read(&answer(200, padded[..RESPONSE_KEPT_BYTES_MAX].to_owned())).is_err());
        for (status, body, expected) in [
            (
                401,
                r#"{"error":"invalid_client"}"#,
                "the token server answered 401 (invalid_client)",
            ),
            (400, r#"{"error":"No <b>way</b>"}"#, "the token server answered 400"),
            (500, "<html>", "the token server answered 500"),
            (302, "", "the token server answered 302"),
            (204, "", "the token server answered 204"),
        ] {
            assert_eq!(read(&answer(status, body)).err(), Some(expected.into()));
        }
    }
}
