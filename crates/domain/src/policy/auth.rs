//! How a request proves where it comes from. Secrets are named here and live, sealed, with the
//! subscription; nothing in this module ever holds one.

mod tagged;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PolicyError, headers, refuse};
use crate::{CertificateId, SecretName, Span, Template};

/// How a salt may change a key; the second spelling of the third is how some write it.
const SALT_USES: &[&str] = &["prefix", "suffix", "key_xor", "key-xor", "none"];
const HASHES: &[&str] = &["sha1", "sha256", "sha512"];
const ENCODINGS: &[&str] = &["hex", "base64", "base64url"];
const METHODS: &[&str] = &["totp", "hmac", "static"];
const SECRET_ENCODINGS: &[&str] = &["utf8", "hex", "base64", "base32"];

/// One way of authentication. A policy may combine several.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Auth {
    /// Standard Webhooks headers, signed with every valid secret of this name.
    StandardWebhooks {
        /// The signing secret.
        secret: SecretName,
        /// What the headers are called: `webhook-id` and so on, `svix-id` and so on, or both.
        #[serde(default, skip_serializing_if = "SignatureHeaders::is_usual")]
        headers: SignatureHeaders,
        /// How the id of the event is written: `evt_` and 26 characters, or `msg_` and 27 as the Svix API shows it.
        #[serde(default, skip_serializing_if = "SignatureIds::is_usual")]
        ids: SignatureIds,
    },
    /// A header with an HMAC.
    HmacHeader(HmacHeader),
    /// `Authorization: Bearer …`.
    Bearer {
        /// The token.
        secret: SecretName,
    },
    /// `Authorization: Basic …`.
    Basic {
        /// The user.
        user: String,
        /// The password.
        secret: SecretName,
    },
    /// A header whose value is the secret itself.
    SecretHeader {
        /// The header.
        header: String,
        /// Its value.
        secret: SecretName,
    },
    /// A one-time code.
    Otp(Otp),
    /// A JWT as the Dutch ZGW APIs use it.
    ZgwJwt(ZgwJwt),
    /// `Authorization: Bearer …` with a token from an OAuth 2.0 token server.
    Oauth2(Oauth2),
    /// A client certificate in the TLS handshake. Without it nothing is sent.
    ClientCertificate(CertificateChoice),
    /// A header that names a client certificate, for an outbound proxy that holds its key. Without
    /// a valid certificate in the registry nothing is sent.
    CertificateThumbprint(ThumbprintHeader),
}

/// What the three headers of Standard Webhooks are called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum SignatureHeaders {
    /// `webhook-id`, `webhook-timestamp` and `webhook-signature`.
    #[default]
    Webhook,
    /// `svix-id`, `svix-timestamp` and `svix-signature`.
    Svix,
    /// All six, with the same values.
    Both,
}

/// How the id of an event is written in the headers of Standard Webhooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum SignatureIds {
    /// As everywhere else.
    #[default]
    Posthorn,
    /// As the Svix API shows it.
    Svix,
}

impl SignatureIds {
    fn is_usual(&self) -> bool {
        *self == Self::Posthorn
    }
}

impl SignatureHeaders {
    fn is_usual(&self) -> bool {
        *self == Self::Webhook
    }
}

/// Who is told a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentTo<'a> {
    /// Whoever is at the subscription's URL.
    Receiver,
    /// Whoever is at this URL.
    TokenServer(&'a str),
    /// Whoever is at the subscription's URL, and only a token that was given for it.
    Bearer,
}

/// Which `client` certificate of the registry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct CertificateChoice {
    /// The id of the certificate; when absent, it is found by the host of the URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateId>,
    /// Only certificates of this owner, such as a country; may use values of the subscription, as
    /// in `{subscription.labels.country}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Template>,
}

/// A header with the thumbprint of a certificate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThumbprintHeader {
    /// The header.
    pub header: String,
    /// `hex` or `base64`.
    #[serde(default = "hex")]
    #[schemars(extend("enum" = ["hex", "base64"]))]
    pub encoding: String,
    /// Which certificate.
    #[serde(default)]
    pub choice: CertificateChoice,
}

/// A header with an HMAC over the body.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HmacHeader {
    /// The key.
    pub secret: SecretName,
    /// The header.
    pub header: String,
    /// `sha1`, `sha256` or `sha512`.
    #[schemars(extend("enum" = HASHES))]
    pub hash: String,
    /// `hex`, `base64` or `base64url`.
    #[schemars(extend("enum" = ENCODINGS))]
    pub encoding: String,
    /// What is signed.
    pub content: SignedContent,
    /// The header's value around `{signature}`, e.g. `sha256={signature}`.
    pub format: String,
}

/// What is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum SignedContent {
    /// The body.
    Body,
    /// The time of the attempt in seconds, a dot, and the body.
    TimestampAndBody,
}

/// A one-time code, fresh for each attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Otp {
    /// The key.
    pub secret: SecretName,
    /// `totp`, `hmac` or `static`.
    #[schemars(extend("enum" = METHODS))]
    pub method: String,
    /// `sha1`, `sha256` or `sha512`.
    #[schemars(extend("enum" = HASHES))]
    pub hash: String,
    /// How the secret's text becomes bytes: `utf8`, `hex`, `base64` or `base32`.
    #[serde(default = "utf8")]
    #[schemars(extend("enum" = SECRET_ENCODINGS))]
    pub secret_encoding: String,
    /// A second secret to combine with the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub salt: Option<SecretName>,
    /// How: `prefix`, `suffix`, `key_xor` or `none`.
    #[serde(default = "none")]
    #[schemars(extend("enum" = SALT_USES))]
    pub salt_use: String,
    /// How long one code is valid, at least 1s.
    #[serde(default = "half_a_minute")]
    pub step: Span,
    /// The start of the first step, in seconds since 1970.
    #[serde(default)]
    pub t0: i64,
    /// Digits of a `totp` code.
    #[serde(default = "six")]
    #[schemars(range(min = 6, max = 8))]
    pub digits: u32,
    /// What an `hmac` code covers.
    #[serde(default)]
    pub message: String,
    /// `hex`, `base64` or `base64url` for an `hmac` code.
    #[serde(default = "hex")]
    #[schemars(extend("enum" = ENCODINGS))]
    pub encode: String,
    /// The header.
    #[serde(default = "authorization")]
    pub header: String,
    /// The header's value around `{otp}`.
    #[serde(default = "bare_code")]
    pub format: String,
    /// Further placeholders for `message`, from event and subscription.
    #[serde(default)]
    pub values: BTreeMap<String, Template>,
    /// Further placeholders for `message` that are secrets, taken as they are.
    #[serde(default)]
    pub secret_values: BTreeMap<String, SecretName>,
}

fn utf8() -> String {
    "utf8".to_owned()
}

fn none() -> String {
    "none".to_owned()
}

fn half_a_minute() -> Span {
    Span::from_secs(30)
}

fn six() -> u32 {
    6
}

fn hex() -> String {
    "hex".to_owned()
}

fn authorization() -> String {
    "Authorization".to_owned()
}

fn bare_code() -> String {
    "{otp}".to_owned()
}

/// A JWT as the Dutch ZGW APIs use it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ZgwJwt {
    /// The client id at the receiver.
    pub client_id: String,
    /// The HMAC key.
    pub secret: SecretName,
    /// How long a token is valid, at most 24h.
    pub lifetime: Span,
}

/// The client credentials grant of OAuth 2.0 (RFC 6749, section 4.4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Oauth2 {
    /// The URL of the token server. It is called the same way as receivers, under the same rules.
    #[schemars(extend("format" = "uri"))]
    pub token_url: String,
    /// The client id at the token server.
    pub client_id: String,
    /// The client secret.
    pub secret: SecretName,
    /// The scopes of the token, separated by spaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The audience of the token, if the token server needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// How the secret is presented to the token server.
    #[serde(default)]
    pub client_auth: ClientAuth,
    /// How long before it expires a token is replaced; when absent, a tenth of its lifetime, at
    /// most a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_before: Option<Span>,
}

/// How a client secret is presented (RFC 6749, section 2.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ClientAuth {
    /// In the header `Authorization: Basic …`.
    #[default]
    Basic,
    /// In the body.
    Post,
}

impl Oauth2 {
    fn validate(&self) -> Result<(), PolicyError> {
        let lines = |text: &str, max: usize| {
            !text.is_empty() && text.len() <= max && !text.chars().any(char::is_control)
        };
        let is_http =
            ["https://", "http://"].iter().any(|scheme| self.token_url.starts_with(scheme));
        if !is_http || !lines(&self.token_url, 2_048) {
            return refuse("auth.token_url", "must be a URL such as https://id.example.com/token");
        }
        if !lines(&self.client_id, 1_024) {
            return refuse("auth.client_id", "must be one line of at most 1024 bytes");
        }
        let scope_byte = |b: u8| matches!(b, b' '..=b'~') && !b"\"\\".contains(&b);
        if let Some(scope) = &self.scope
            && !(lines(scope, 2_048) && scope.bytes().all(scope_byte))
        {
            return refuse("auth.scope", "must be visible ASCII without quotes and backslashes");
        }
        if self.audience.as_ref().is_some_and(|audience| !lines(audience, 2_048)) {
            return refuse("auth.audience", "must be one line of at most 2048 bytes");
        }
        if self.renew_before.is_some_and(|span| span > Span::from_secs(3_600)) {
            return refuse("auth.renew_before", "must be at most 1h");
        }
        Ok(())
    }

    /// How long a token of this life is used before another is fetched. Always at least half of
    /// it, so that a generous `renew_before` does not turn every attempt into a call.
    pub fn use_for(&self, life: Span) -> Span {
        let life = life.as_millis();
        let usual = (life / 10).min(60_000);
        let before = self.renew_before.map_or(usual, Span::as_millis).min(life / 2);
        Span::from_millis(life - before)
    }
}

impl Auth {
    /// The secrets it needs.
    pub fn secrets(&self) -> Vec<&SecretName> {
        match self {
            Self::StandardWebhooks { secret, .. }
            | Self::Bearer { secret }
            | Self::Basic { secret, .. }
            | Self::SecretHeader { secret, .. } => vec![secret],
            Self::HmacHeader(scheme) => vec![&scheme.secret],
            Self::Otp(otp) => {
                let first = std::iter::once(&otp.secret).chain(&otp.salt);
                first.chain(otp.secret_values.values()).collect()
            }
            Self::ZgwJwt(jwt) => vec![&jwt.secret],
            Self::Oauth2(client) => vec![&client.secret],
            Self::ClientCertificate(_) | Self::CertificateThumbprint(_) => Vec::new(),
        }
    }

    /// The secrets that leave, and whom they are told to: as they are, or as a token that opens what they
    /// open. Keys that only sign and seeds of one-time codes stay here.
    pub fn sends(&self) -> Vec<(&SecretName, SentTo<'_>)> {
        match self {
            Self::Bearer { secret }
            | Self::Basic { secret, .. }
            | Self::SecretHeader { secret, .. } => vec![(secret, SentTo::Receiver)],
            Self::Otp(otp) if otp.method == "static" => vec![(&otp.secret, SentTo::Receiver)],
            Self::Oauth2(client) => vec![
                (&client.secret, SentTo::TokenServer(&client.token_url)),
                (&client.secret, SentTo::Bearer),
            ],
            Self::StandardWebhooks { .. }
            | Self::HmacHeader(_)
            | Self::Otp(_)
            | Self::ZgwJwt(_)
            | Self::ClientCertificate(_)
            | Self::CertificateThumbprint(_) => Vec::new(),
        }
    }

    /// The certificate it needs, if any.
    pub fn certificate(&self) -> Option<&CertificateChoice> {
        match self {
            Self::ClientCertificate(choice) => Some(choice),
            Self::CertificateThumbprint(header) => Some(&header.choice),
            _ => None,
        }
    }

    /// The one-time code it is, if it is one.
    pub(super) fn otp(&self) -> Option<&Otp> {
        match self {
            Self::Otp(otp) => Some(otp),
            _ => None,
        }
    }

    /// The headers it sets. Of those that nobody else may set, one stands for all three.
    pub(super) fn headers(&self) -> Vec<&str> {
        const SVIX: [&str; 3] = ["svix-id", "svix-timestamp", "svix-signature"];
        match self {
            Self::StandardWebhooks { headers: SignatureHeaders::Svix, .. } => SVIX.to_vec(),
            Self::StandardWebhooks { headers, .. } => {
                let more = if headers.is_usual() { &[][..] } else { &SVIX };
                [&["webhook-signature"], more].concat()
            }
            Self::HmacHeader(scheme) => vec![&scheme.header],
            Self::SecretHeader { header, .. } => vec![header],
            Self::Otp(otp) => vec![&otp.header],
            Self::Bearer { .. } | Self::Basic { .. } | Self::ZgwJwt(_) | Self::Oauth2(_) => {
                vec!["authorization"]
            }
            Self::CertificateThumbprint(scheme) => vec![&scheme.header],
            Self::ClientCertificate(_) => Vec::new(),
        }
    }

    /// A header that somebody chose, with the text around what is computed.
    fn check_header(name: &str, format: &str) -> Result<(), PolicyError> {
        headers::at("auth.header", headers::check_name(name))?;
        headers::at("auth.format", headers::check_value(format))
    }

    pub(super) fn validate(&self) -> Result<(), PolicyError> {
        let one_of = |path: &str, text: &str, allowed: &[&str]| {
            if allowed.contains(&text) {
                Ok(())
            } else {
                refuse(path, format!("must be one of {}", allowed.join(", ")))
            }
        };
        match self {
            Self::SecretHeader { header, .. } => Self::check_header(header, "")?,
            Self::Basic { user, .. }
                if user.contains(':') || user.chars().any(char::is_control) =>
            {
                return refuse("auth.user", "must be one line without a colon");
            }
            Self::HmacHeader(scheme) => {
                Self::check_header(&scheme.header, &scheme.format)?;
                one_of("auth.hash", &scheme.hash, HASHES)?;
                one_of("auth.encoding", &scheme.encoding, ENCODINGS)?;
                if !scheme.format.contains("{signature}") {
                    return refuse("auth.format", "must contain {signature}");
                }
            }
            Self::Otp(otp) => {
                Self::check_header(&otp.header, &otp.format)?;
                one_of("auth.method", &otp.method, METHODS)?;
                one_of("auth.hash", &otp.hash, HASHES)?;
                one_of("auth.secret_encoding", &otp.secret_encoding, SECRET_ENCODINGS)?;
                one_of("auth.salt_use", &otp.salt_use, SALT_USES)?;
                one_of("auth.encode", &otp.encode, ENCODINGS)?;
                if let Some(name) = otp.secret_values.keys().find(|n| otp.values.contains_key(*n)) {
                    return refuse("auth.secret_values", format!("`{name}` is also in values"));
                }
                if otp.step < Span::from_secs(1) {
                    return refuse("auth.step", "must be at least 1s");
                }
                if !matches!(otp.digits, 6..=8) {
                    return refuse("auth.digits", "must be 6, 7 or 8");
                }
                if !otp.format.contains("{otp}") {
                    return refuse("auth.format", "must contain {otp}");
                }
            }
            Self::CertificateThumbprint(scheme) => {
                headers::at("auth.header", headers::check_identity_name(&scheme.header))?;
                one_of("auth.encoding", &scheme.encoding, &["hex", "base64"])?;
            }
            Self::Oauth2(client) => client.validate()?,
            Self::ZgwJwt(jwt) if jwt.lifetime > Span::from_secs(86_400) => {
                return refuse("auth.lifetime", "must be at most 24h");
            }
            _ => {}
        }
        Ok(())
    }
}
