//! How deliveries of an abonnement are authenticated.

use std::fmt;

use posthorn_domain::SecretName;
use posthorn_domain::policy::headers::check_value;
use posthorn_domain::policy::profiles;
use posthorn_engine::SecretInput;
use serde_json::{Value, json};

use super::fields::{Fields, Text};

/// The secret that is the whole header.
const HEADER: &str = "authorization";
/// The secret of a client.
pub(super) const CLIENT: &str = "client";
/// Longest `auth`, in characters: what receivers take in a header.
const AUTH_MAX: usize = 4_096;
const CLIENT_ID_MAX: usize = 255;
/// How long a token of ours is valid.
const ZGW_LIFETIME: &str = "12h";
/// How long before its end a fetched token is not used any more.
const OAUTH2_MARGIN: &str = "10s";

/// How deliveries are authenticated.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Authentication {
    /// Not at all.
    Nothing,
    /// A fixed value of the header `Authorization`.
    Header(String),
    /// A fresh ZGW token for each attempt.
    Zgw { client_id: String, secret: String },
    /// A token from a token server.
    Oauth2 { token_url: String, client_id: String, secret: String, scope: String },
}

impl fmt::Debug for Authentication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Header(_) => "Header(…)",
            Self::Zgw { .. } => "Zgw(…)",
            Self::Oauth2 { .. } => "Oauth2(…)",
        })
    }
}

impl Authentication {
    /// Reads what a document says. Without `authType`, `auth` is the value of the header, which is
    /// all that the standard knows. `None` when it says nothing, in a patch, or something is wrong.
    pub(super) fn read(fields: &mut Fields<'_>, patch: bool) -> Option<Self> {
        let read = Self::read_fields(fields, patch)?;
        // What a policy may say is for the policy to judge.
        let problem = profiles::notificaties().patched(&json!({"auth": read.ways()})).err();
        let Some(problem) = problem else { return Some(read) };
        let name = match problem.path.as_str() {
            "auth[0].token_url" => "oauth2TokenUrl",
            "auth[0].scope" => "oauth2Scope",
            "auth[0].client_id" => "authClientId",
            _ => "authType",
        };
        fields.fault(name, "invalid", format!("It {}.", problem.problem));
        None
    }

    fn read_fields(fields: &mut Fields<'_>, patch: bool) -> Option<Self> {
        let kind = fields.text("authType", Text::optional(50)).filter(|text| !text.is_empty());
        let named =
            |fields: &mut Fields<'_>, name: &str, max| fields.text(name, Text::required(max));
        match kind.as_deref() {
            None if patch && !fields.has("auth") => None,
            None | Some("api_key") => {
                let text = fields.text("auth", Text::required(AUTH_MAX))?;
                if let Err(problem) = check_value(&text) {
                    fields.fault("auth", "invalid", format!("It is sent in a header: {problem}."));
                    return None;
                }
                Some(Self::Header(text))
            }
            Some("no_auth") => Some(Self::Nothing),
            Some("zgw") => {
                let client_id = named(fields, "authClientId", CLIENT_ID_MAX);
                let secret = named(fields, "secret", AUTH_MAX);
                Some(Self::Zgw { client_id: client_id?, secret: secret? })
            }
            Some("oauth2_client_credentials") => {
                let token_url = fields.url("oauth2TokenUrl", Text::required(1_000));
                let client_id = named(fields, "authClientId", CLIENT_ID_MAX);
                let secret = named(fields, "secret", AUTH_MAX);
                let scope = fields.text("oauth2Scope", Text::optional(1_000)).unwrap_or_default();
                Some(Self::Oauth2 {
                    token_url: token_url?,
                    client_id: client_id?,
                    secret: secret?,
                    scope,
                })
            }
            Some(_) => {
                let reason = "Must be one of no_auth, api_key, zgw, oauth2_client_credentials.";
                fields.fault("authType", "invalid_choice", reason);
                None
            }
        }
    }

    /// The ways of authentication of its policy.
    pub(crate) fn ways(&self) -> Vec<Value> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Header(_) => {
                vec![json!({"kind": "secret_header", "header": "Authorization", "secret": HEADER})]
            }
            Self::Zgw { client_id, .. } => {
                vec![json!({"kind": "zgw_jwt", "client_id": client_id, "secret": CLIENT,
                    "lifetime": ZGW_LIFETIME})]
            }
            Self::Oauth2 { token_url, client_id, scope, .. } => {
                let mut way = json!({"kind": "oauth2", "token_url": token_url,
                    "client_id": client_id, "secret": CLIENT, "renew_before": OAUTH2_MARGIN});
                if !scope.is_empty() {
                    way["scope"] = scope.clone().into();
                }
                vec![way]
            }
        }
    }

    /// The secrets its policy needs.
    pub(crate) fn secrets(&self) -> Vec<SecretInput> {
        let secret = |name: &str, value: &str| SecretInput {
            name: SecretName::new(name).expect("a valid name"),
            value: value.to_owned(),
        };
        match self {
            Self::Nothing => Vec::new(),
            Self::Header(value) => vec![secret(HEADER, value)],
            Self::Zgw { secret: value, .. } | Self::Oauth2 { secret: value, .. } => {
                vec![secret(CLIENT, value)]
            }
        }
    }
}

/// The ways of authentication of a policy that is there already, besides the certificate.
pub(crate) fn ways_of(overrides: &Value) -> Vec<Value> {
    let ways = overrides.get("auth").and_then(Value::as_array).cloned().unwrap_or_default();
    ways.into_iter().filter(|way| way["kind"] != "client_certificate").collect()
}
