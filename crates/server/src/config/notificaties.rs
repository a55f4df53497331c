//! `dialects.notificaties`: the Notificaties API, its clients and what they may do.

use std::path::{Path, PathBuf};

use posthorn_dialects::notificaties::{
    Application, Authorizations, Credential, Options, Scope, Setup,
};
use posthorn_domain::{ProfileName, Span};
use posthorn_sealing::vault::Secret;
use serde::Deserialize;

use super::layers::parse_yaml;
use super::{Check, values};

const SECTION: &str = "dialects.notificaties";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawNotificaties {
    pub(super) enabled: bool,
    pub(super) prefix: String,
    pub(super) tenant: String,
    pub(super) profile: String,
    pub(super) base_url: Option<String>,
    pub(super) probe_callback: bool,
    pub(super) test_callback_auth: bool,
    pub(super) check_documentation: bool,
    pub(super) jwt_expiry: Span,
    pub(super) leeway: Span,
    pub(super) credentials: Vec<RawCredential>,
    pub(super) applications: Vec<RawApplication>,
    pub(super) authorizations: RawAuthorizations,
    pub(super) setup_configuration: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCredential {
    identifier: String,
    secret: String,
}

impl std::fmt::Debug for RawCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawCredential")
            .field("identifier", &self.identifier)
            .finish_non_exhaustive()
    }
}

/// The Autorisaties API that is asked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAuthorizations {
    url: Option<String>,
    client_id: Option<String>,
    secret: Option<String>,
    cache: Span,
    stale: Span,
}

impl std::fmt::Debug for RawAuthorizations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawAuthorizations").field("url", &self.url).finish_non_exhaustive()
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawApplication {
    client_ids: Vec<String>,
    #[serde(default)]
    all: bool,
    #[serde(default)]
    scopes: Vec<String>,
}

/// Beginnings of paths that are taken.
const TAKEN: [&str; 7] = ["v1", "jwks", "healthz", "readyz", "metrics", "openapi.json", "admin"];

/// The API's knobs; `None` when it is off. `body_bytes` is the largest body of the server, `https`
/// whether its listener speaks TLS.
pub(super) fn build(
    check: &mut Check<'_>,
    raw: RawNotificaties,
    body_bytes: usize,
    https: bool,
) -> Option<Options> {
    let key = |name: &str| format!("{SECTION}.{name}");
    let prefix = raw.prefix.trim_end_matches('/').to_owned();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~/".contains(&b);
    if !prefix.starts_with('/') || prefix.contains("//") || !prefix.bytes().all(plain) {
        check.refuse(&key("prefix"), "must be a path such as /api/v1");
    }
    if let Some(taken) = prefix.split('/').nth(1).filter(|first| TAKEN.contains(first)) {
        check.refuse(
            &key("prefix"),
            format!("must not begin with /{taken}, which is the native API's"),
        );
    }
    if raw.tenant.trim().is_empty() {
        check.refuse(&key("tenant"), "must be the name of a tenant");
    }
    if let Some(url) = &raw.base_url {
        let fine = ::url::Url::parse(url).is_ok_and(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.has_host()
                && url.path() == "/"
                && url.query().is_none()
        });
        if !fine {
            let text = "must be scheme and host such as https://notificaties.example.nl, without a \
                        path: that is the prefix";
            check.refuse(&key("base_url"), text);
        }
    }
    if raw.jwt_expiry == Span::ZERO {
        check.refuse(&key("jwt_expiry"), "must be more than zero");
    }
    let profile = check.accept(&key("profile"), ProfileName::new(&raw.profile));
    let credentials = credentials(check, &raw.credentials);
    let setup = match raw.setup_configuration.as_deref().filter(|_| raw.enabled) {
        Some(file) => read_setup(check, file),
        None => Setup::default(),
    };
    for credential in &setup.credentials {
        let twice = |other: &Credential| other.identifier == credential.identifier;
        if credentials.iter().any(twice) {
            let text = format!(
                "`{}` has credentials twice, here or in {SECTION}.credentials; keep one of them",
                credential.identifier
            );
            check.refuse(&key("setup_configuration"), text);
        }
    }
    let known = credentials.iter().chain(&setup.credentials);
    let known: Vec<&str> = known.map(|credential| credential.identifier.as_str()).collect();
    let applications = applications(check, &raw.applications, &known);
    let authorizations = authorizations(check, &raw.authorizations, &setup);
    let seconds = |span: Span| i64::try_from(span.as_millis() / 1_000).unwrap_or(i64::MAX);
    let options = Options {
        prefix,
        tenant: raw.tenant,
        profile: profile?,
        base_url: raw.base_url,
        https,
        test_callback_auth: raw.test_callback_auth,
        probe_callback: raw.probe_callback,
        check_documentation: raw.check_documentation,
        jwt_expiry: seconds(raw.jwt_expiry),
        leeway: seconds(raw.leeway),
        credentials,
        applications,
        authorizations,
        body_bytes,
        setup,
    };
    raw.enabled.then_some(options)
}

/// What is declared in a file of its own, as the original has it.
fn read_setup(check: &mut Check<'_>, file: &Path) -> Setup {
    let key = format!("{SECTION}.setup_configuration");
    let document = match std::fs::read_to_string(file) {
        Ok(text) => parse_yaml(&text),
        Err(e) => Err(format!("the file cannot be read: {e}")),
    };
    let variables = check.env;
    let env = |name: &str| variables.get(name).cloned();
    match document.map_err(|e| vec![e]).and_then(|document| Setup::read(&document, &env)) {
        Ok(setup) => setup,
        Err(problems) => {
            for problem in problems {
                check.refuse(&key, format!("{}: {problem}", file.display()));
            }
            Setup::default()
        }
    }
}

/// Where rights are asked for: as it says here, or else in the setup file.
fn authorizations(
    check: &mut Check<'_>,
    raw: &RawAuthorizations,
    setup: &Setup,
) -> Option<Authorizations> {
    let key = |name: &str| format!("{SECTION}.authorizations.{name}");
    if raw.cache == Span::ZERO {
        check.refuse(&key("cache"), "must be more than zero: each request would ask");
    }
    if raw.stale < raw.cache {
        check.refuse(&key("stale"), "must not be less than the cache beside it");
    }
    let (cache, stale) = (raw.cache, raw.stale);
    let Some(url) = &raw.url else {
        for (name, given) in [("client_id", &raw.client_id), ("secret", &raw.secret)] {
            if given.is_some() {
                check.refuse(&key(name), "means nothing without the url beside it");
            }
        }
        let service = setup.authorizations.clone()?;
        let (url, client_id, secret) = (service.url, service.client_id, service.secret);
        return Some(Authorizations { url, client_id, secret, cache, stale });
    };
    let url = url.trim_end_matches('/').to_owned();
    let fine = ::url::Url::parse(&url).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none()
    });
    if !fine {
        let text = "must be where the API begins, such as \
                    https://openzaak.example.nl/autorisaties/api/v1";
        check.refuse(&key("url"), text);
    }
    let client_id = raw.client_id.clone().filter(|id| !id.is_empty());
    if client_id.is_none() {
        check.refuse(&key("client_id"), "must be given with the url beside it");
    }
    let secret = match &raw.secret {
        None => {
            check.refuse(
                &key("secret"),
                "must be given with the url beside it: env:NAME or file:PATH",
            );
            None
        }
        Some(text) => match values::SecretRef::parse(text) {
            Some(place) => check.resolve(&key("secret"), &place),
            None => {
                let text = "must be env:NAME or file:PATH; secrets are not written into the \
                            configuration";
                check.refuse(&key("secret"), text);
                None
            }
        },
    };
    let secret = Secret::from(secret?.as_bytes());
    Some(Authorizations { url, client_id: client_id?, secret, cache, stale })
}

fn credentials(check: &mut Check<'_>, raw: &[RawCredential]) -> Vec<Credential> {
    let mut built: Vec<Credential> = Vec::new();
    for (index, credential) in raw.iter().enumerate() {
        let key = format!("{SECTION}.credentials.{index}");
        if credential.identifier.is_empty() {
            check.refuse(&key, "identifier must not be empty");
            continue;
        }
        if built.iter().any(|other| other.identifier == credential.identifier) {
            check.refuse(&key, format!("`{}` is there twice", credential.identifier));
            continue;
        }
        let secret = match values::SecretRef::parse(&credential.secret) {
            Some(place) => check.resolve(&key, &place),
            None if credential.secret.is_empty() => {
                check.refuse(&key, "secret must not be empty");
                None
            }
            None => Some(credential.secret.clone()),
        };
        built.extend(secret.map(|secret| Credential {
            identifier: credential.identifier.clone(),
            secret: Secret::from(secret.as_bytes()),
        }));
    }
    built
}

fn applications(
    check: &mut Check<'_>,
    raw: &[RawApplication],
    credentials: &[&str],
) -> Vec<Application> {
    let mut built = Vec::new();
    for (index, application) in raw.iter().enumerate() {
        let key = format!("{SECTION}.applications.{index}");
        if application.all && !application.scopes.is_empty() {
            check.refuse(&key, "with all there is no need for scopes; leave one of them out");
        }
        for id in &application.client_ids {
            if !credentials.contains(&id.as_str()) {
                check.refuse(&key, format!("there are no credentials of client `{id}`"));
            }
        }
        let mut scopes = Vec::new();
        for text in &application.scopes {
            match Scope::parse(text) {
                Some(scope) => scopes.push(scope),
                None => check.refuse(
                    &key,
                    format!(
                        "`{text}` is not a scope: write {} or {}",
                        Scope::Consume.as_str(),
                        Scope::Publish.as_str()
                    ),
                ),
            }
        }
        let client_ids = application.client_ids.clone();
        built.push(Application { client_ids, all: application.all, scopes });
    }
    built
}
