//! Which headers a request may be given by those who configure it.
//!
//! Everything that names a header or fills one in goes through here twice: when a policy is
//! validated, and when a value is rendered for an attempt. What belongs to the connection, to the
//! signature or to us cannot be set; nor can the headers by which cloud metadata services tell a
//! program of the machine from a request that somebody smuggled in.

use super::{PolicyError, refuse};
use crate::limits::{HEADER_NAME_BYTES_MAX, HEADER_VALUE_BYTES_MAX, HEADERS_MAX};

/// Reserved names, lower case.
const RESERVED: [&str; 19] = [
    // Of the connection and the message's frame: two parties that read them differently are how
    // requests are smuggled.
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    // Of those on the way; `proxy` becomes the environment variable HTTP_PROXY behind CGI.
    "forwarded",
    "proxy",
    "via",
    // Of metadata services: Azure's, its managed identities (today's and the former), its agents.
    "metadata",
    "secret",
    "x-identity-header",
    "x-ms-agent-name",
];

/// Reserved beginnings of names, lower case.
const RESERVED_PREFIXES: [&str; 12] = [
    "posthorn-",
    "proxy-",
    "webhook-",
    "x-forwarded-",
    // What an outbound proxy is told about the certificate to show; see [`check_identity_name`].
    IDENTITY_PREFIX,
    // Metadata services: Google, IBM and Akamai; Alibaba; AWS; Google; Huawei; Azure; Volcengine.
    "metadata-",
    "x-aliyun-ecs-metadata-",
    "x-aws-ec2-metadata-",
    "x-google-",
    "x-metadata-",
    "x-ms-guest-agent-",
    "x-volc-ecs-metadata-",
];

/// Why a header may not be set so. It never repeats a value, which may be a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderProblem {
    /// Not a token, or too long.
    #[error(
        "a header name is 1 to {HEADER_NAME_BYTES_MAX} characters of A-Z a-z 0-9 and !#$%&'*+-.^_`|~"
    )]
    Name,
    /// Not for anybody to set.
    #[error(
        "the name is reserved: it is set by the connection or by Posthorn, or gives access to \
         metadata services"
    )]
    Reserved,
    /// Longer than receivers take.
    #[error("a header value must be at most {HEADER_VALUE_BYTES_MAX} bytes")]
    TooLong,
    /// A line break, another control character, or something outside of ASCII.
    #[error("a header value may contain only visible ASCII characters, spaces and tabs")]
    Characters,
}

/// How headers begin that name a client certificate to a proxy.
const IDENTITY_PREFIX: &str = "x-ssl-client-";

/// Whether the thumbprint of a certificate may be sent in a header of this name. Those that proxies
/// use for it are open here and nowhere else: whoever could set them by hand could have a proxy show
/// somebody else's certificate.
pub(super) fn check_identity_name(name: &str) -> Result<(), HeaderProblem> {
    match check_name(name) {
        Err(HeaderProblem::Reserved) if folded(name).starts_with(IDENTITY_PREFIX) => Ok(()),
        other => other,
    }
}

/// As gateways see it that speak CGI: they take an underscore for a hyphen.
fn folded(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}

/// Whether a header is one of a CloudEvent in binary mode.
pub(super) fn is_cloudevent(name: &str) -> bool {
    folded(name).starts_with(crate::cloudevent::HEADER_PREFIX)
}

/// Whether somebody may set a header of this name.
pub fn check_name(name: &str) -> Result<(), HeaderProblem> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || name.len() > HEADER_NAME_BYTES_MAX || !name.bytes().all(token) {
        return Err(HeaderProblem::Name);
    }
    let lower = folded(name);
    let reserved = RESERVED.contains(&lower.as_str())
        || RESERVED_PREFIXES.iter().any(|prefix| lower.starts_with(prefix));
    if reserved { Err(HeaderProblem::Reserved) } else { Ok(()) }
}

/// Whether a header may have this value.
pub fn check_value(value: &str) -> Result<(), HeaderProblem> {
    if value.len() > HEADER_VALUE_BYTES_MAX {
        return Err(HeaderProblem::TooLong);
    }
    let fine = |b: u8| matches!(b, b'\t' | b' '..=b'~');
    if value.bytes().all(fine) { Ok(()) } else { Err(HeaderProblem::Characters) }
}

/// Names `path` in what is wrong.
pub(super) fn at<T>(path: &str, result: Result<T, HeaderProblem>) -> Result<T, PolicyError> {
    result.or_else(|problem| refuse(path, problem.to_string()))
}

/// All headers that a policy sets itself: not too many, and none twice.
pub(super) fn check_all<'a>(
    names: impl IntoIterator<Item = (String, &'a str)>,
) -> Result<(), PolicyError> {
    let mut seen = std::collections::BTreeMap::new();
    for (path, name) in names {
        if let Some(other) = seen.insert(folded(name), path.clone()) {
            return refuse(&path, format!("sets the header {name}, which {other} also sets"));
        }
    }
    if seen.len() > HEADERS_MAX {
        let found = seen.len();
        return refuse(
            "request.headers",
            format!(
                "at most {HEADERS_MAX} headers are allowed, those of auth included, not {found}"
            ),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeliveryId, EventId, EventType, SubscriptionId, Timestamp};

    #[test]
    fn names_that_may_be_set() {
        for name in [
            "X-PCA-SHARED-INTERNAL-KEY",
            "X-Cedros-Signature",
            "Authorization",
            "Content-Type",
            "User-Agent",
            "Accept",
            "Cookie",
            "X-Api-Key",
            "X-Hub-Signature-256",
            "Hosts",
            "X-Metadatas",
            "Viaduct",
            "!#$%&'*+-.^_`|~09az",
            &"x".repeat(64),
        ] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn names_that_are_no_names() {
        let long = "x".repeat(65);
        for name in [
            "", " ", "a b", "a:", "a\r\nb", "a\nb", "a\0", "ä", "a\u{7f}", "(a)", "a,b", "a@b",
            "a/b", "a[b]", "a{b}", "a\"b", "a\\b", "a;b", "a=b", "a?", " a", "a\t", &long,
        ] {
            assert_eq!(check_name(name), Err(HeaderProblem::Name), "{name:?}");
        }
    }

    #[test]
    fn names_that_are_reserved_in_any_spelling() {
        for name in [
            "Host",
            "HOST",
            "Content-Length",
            "content_length",
            "Transfer-Encoding",
            "Transfer_Encoding",
            "Connection",
            "Keep-Alive",
            "TE",
            "Trailer",
            "Upgrade",
            "Expect",
            "Proxy-Authorization",
            "Proxy-Authenticate",
            "Proxy-Connection",
            "Proxy-Anything",
            "Content-Encoding",
            "Accept-Encoding",
            "Via",
            "Forwarded",
            "X-Forwarded-For",
            "X-Forwarded-Host",
            "X-Forwarded-Anything",
            "webhook-id",
            "Webhook-Timestamp",
            "WEBHOOK-SIGNATURE",
            "webhook-anything",
            "Posthorn-Tenant",
            "Metadata",
            "metadata",
            "Metadata-Flavor",
            "Metadata-Token",
            "Metadata-Token-Expiry-Seconds",
            "X-aws-ec2-metadata-token",
            "X-aws-ec2-metadata-token-ttl-seconds",
            "X-Google-Metadata-Request",
            "X-Google-Anything",
            "X-IDENTITY-HEADER",
            "Secret",
            "X-Metadata-Token",
            "X-aliyun-ecs-metadata-token",
        ] {
            assert_eq!(check_name(name), Err(HeaderProblem::Reserved), "{name}");
        }
    }

    #[test]
    fn the_lists_are_lower_case_and_can_match() {
        for name in RESERVED.iter().chain(&RESERVED_PREFIXES) {
            assert_eq!(*name, name.to_ascii_lowercase().replace('_', "-"));
        }
    }

    #[test]
    fn what_becomes_a_header_value_by_itself_always_fits() {
        let tokens: String =
            ('\0'..='\u{ff}').filter(|c| EventType::new(&c.to_string()).is_ok()).collect();
        assert!(tokens.len() > 60, "letters, digits and some marks");
        assert_eq!(check_value(&tokens), Ok(()));
        let ids = [
            EventId::new(Timestamp::from_millis(i64::MAX), u128::MAX).to_string(),
            DeliveryId::new(Timestamp::from_millis(0), 0).to_string(),
            SubscriptionId::floor(Timestamp::from_millis(1)).to_string(),
        ];
        for id in ids {
            assert_eq!(check_value(&id), Ok(()));
            // What is signed is divided by dots: an id with one could stand for another message.
            assert!(!id.contains('.'), "{id}");
        }
    }

    #[test]
    fn values() {
        let long = "x".repeat(4_097);
        for (value, expected) in [
            ("", Ok(())),
            ("plain text, with\ttab ~", Ok(())),
            (&long[1..], Ok(())),
            (long.as_str(), Err(HeaderProblem::TooLong)),
            ("a\rb", Err(HeaderProblem::Characters)),
            ("a\nb", Err(HeaderProblem::Characters)),
            ("a\r\n b", Err(HeaderProblem::Characters)),
            ("a\0", Err(HeaderProblem::Characters)),
            ("\u{1b}[2J", Err(HeaderProblem::Characters)),
            ("\u{7f}", Err(HeaderProblem::Characters)),
            ("naïve", Err(HeaderProblem::Characters)),
            ("日本", Err(HeaderProblem::Characters)),
            ("\u{2028}", Err(HeaderProblem::Characters)),
        ] {
            assert_eq!(check_value(value), expected, "{value:?}");
        }
    }
}
