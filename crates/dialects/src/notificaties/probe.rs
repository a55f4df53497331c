//! Asking a callback before it is written down: does it take messages, and only from those who may?

use bytes::Bytes;
use posthorn_domain::{AttemptOutcome, FailureCode, ProfileName, SubscriptionId, TenantId};
use posthorn_engine::{Engine, Rehearsal, SecretInput};
use serde_json::{Value, json};

use super::Options;
use super::notificatie::JSON;
use super::problem::{Fault, NO_FIELD, Problem};

/// The code for a callback that is not known to refuse strangers.
const UNPROTECTED: &str = "no-auth-on-callback-url";
/// A receiver that has no authentication and that everybody tries out first.
const EXEMPT_HOST: &str = "webhook.site";

/// A callback that is about to be written down.
pub(crate) struct Callback<'a> {
    pub(crate) url: &'a str,
    /// How messages are authenticated.
    pub(crate) ways: &'a [Value],
    /// The client certificate.
    pub(crate) certificate: Option<Value>,
    pub(crate) secrets: Vec<SecretInput>,
    /// The abonnement whose secrets it keeps.
    pub(crate) like: Option<SubscriptionId>,
}

fn message() -> Bytes {
    let message = json!({
        "kanaal": "test",
        "hoofdObject": "http://some.hoofdobject.nl/",
        "resource": "some_resource",
        "resourceUrl": "http://some.resource.nl/",
        "actie": "create",
        "aanmaakdatum": "2019-01-01T12:00:00Z",
        "kenmerken": {},
    });
    Bytes::from(message.to_string())
}

impl Callback<'_> {
    /// Asks without authentication, which must be refused, then with it, which must be taken.
    pub(crate) async fn check(
        &self,
        engine: &Engine,
        tenant: TenantId,
        options: &Options,
    ) -> Result<(), Problem> {
        let protected = options.test_callback_auth && !is_exempt(self.url);
        let by_certificate = self.ways.is_empty();
        if protected && by_certificate && self.certificate.is_none() {
            let reason = "Callbacks must be protected here: choose another authType, or give a \
                          clientCertificate that the callback asks for.";
            return Err(Problem::field("authType", UNPROTECTED, reason));
        }
        if !options.probe_callback {
            return Ok(());
        }
        let (profile, shown) = (&options.profile, self.certificate.as_ref());
        let mut unprotected = None;
        if protected {
            // The certificate is shown unless it is all that protects the callback.
            let shown = shown.filter(|_| !by_certificate);
            let outcome = self.ask(engine, tenant, profile, &[], shown).await?;
            unprotected = lets_everybody_in(&outcome, by_certificate);
            if let (Some(reason), AttemptOutcome::Answered(_)) = (&unprotected, &outcome) {
                return Err(Problem::field("callbackUrl", UNPROTECTED, reason));
            }
        }
        let outcome = self.ask(engine, tenant, profile, self.ways, shown).await?;
        match (does_not_take(&outcome), unprotected) {
            // Who is not there at all is told so, rather than that strangers are not refused.
            (Some(reason), _) => Err(Problem::field(NO_FIELD, "invalid-callback-url", reason)),
            (None, Some(reason)) => Err(Problem::field("callbackUrl", UNPROTECTED, reason)),
            (None, None) => Ok(()),
        }
    }

    async fn ask(
        &self,
        engine: &Engine,
        tenant: TenantId,
        profile: &ProfileName,
        ways: &[Value],
        certificate: Option<&Value>,
    ) -> Result<AttemptOutcome, Problem> {
        let ways: Vec<&Value> = ways.iter().chain(certificate).collect();
        let rehearsal = Rehearsal {
            url: self.url.to_owned(),
            profile: Some(profile.clone()),
            overrides: json!({"auth": ways}),
            secrets: self.secrets.clone(),
            like: self.like,
            content_type: JSON.to_owned(),
            payload: message(),
        };
        Ok(engine.rehearse(tenant, rehearsal).await?)
    }
}

/// Asks for the documentation of a kanaal.
pub(crate) async fn check_documentation(
    engine: &Engine,
    tenant: TenantId,
    options: &Options,
    link: &str,
) -> Result<(), Problem> {
    if !options.check_documentation || link.is_empty() {
        return Ok(());
    }
    let rehearsal = Rehearsal {
        url: link.to_owned(),
        profile: Some(options.profile.clone()),
        overrides: json!({"auth": [], "request": {"method": "GET", "body": "empty"}}),
        content_type: JSON.to_owned(),
        ..Rehearsal::default()
    };
    let reason = match engine.rehearse(tenant, rehearsal).await {
        Ok(AttemptOutcome::Answered(answer)) if answer.status == 200 => return Ok(()),
        Ok(outcome) => {
            format!("The documentation must exist and answer 200, but {}.", words(&outcome))
        }
        Err(posthorn_engine::Error::Url(problem)) => problem.message,
        Err(other) => return Err(other.into()),
    };
    Err(Problem::invalid(vec![Fault::new("documentatieLink", "bad-url", reason)]))
}

fn is_exempt(url: &str) -> bool {
    url::Url::parse(url).is_ok_and(|url| url.host_str() == Some(EXEMPT_HOST))
}

/// Why a callback that was asked without authentication is not known to be protected. One that asks
/// for a certificate may also end the conversation.
fn lets_everybody_in(outcome: &AttemptOutcome, by_certificate: bool) -> Option<String> {
    let what = match outcome {
        AttemptOutcome::Answered(answer) if matches!(answer.status, 401 | 403) => return None,
        AttemptOutcome::Failed {
            code:
                FailureCode::TlsFailed | FailureCode::ConnectionClosed | FailureCode::ProtocolError,
            ..
        } if by_certificate => return None,
        AttemptOutcome::Answered(answer) => format!("it was answered with {}", answer.status),
        failed @ AttemptOutcome::Failed { .. } => words(failed),
    };
    let without =
        if by_certificate { "the client certificate" } else { "the header Authorization" };
    Some(format!(
        "The callback must be protected: a message without {without} must be refused with 401 or \
         403, but {what}."
    ))
}

/// Why a callback that was asked with authentication cannot be used.
fn does_not_take(outcome: &AttemptOutcome) -> Option<String> {
    match outcome {
        AttemptOutcome::Answered(answer) if (200..=209).contains(&answer.status) => None,
        other => Some(format!(
            "The callback must take a test message that is authenticated as given here with 200 to \
             209, preferably 204, but {}.",
            words(other)
        )),
    }
}

/// What came of a question, for people; nothing that describes an inner network.
fn words(outcome: &AttemptOutcome) -> String {
    let code = match outcome {
        AttemptOutcome::Answered(answer) if (300..400).contains(&answer.status) => {
            return format!(
                "it answered with {}, and redirects are not followed; give the final URL",
                answer.status
            );
        }
        AttemptOutcome::Answered(answer) if matches!(answer.status, 401 | 403) => {
            return format!("it refused the given auth with {}", answer.status);
        }
        AttemptOutcome::Answered(answer) => return format!("it answered with {}", answer.status),
        AttemptOutcome::Failed { code, .. } => code,
    };
    let text = match code {
        FailureCode::UrlNotAllowed => {
            "this server may not send to that address; its operator can allow it in egress.allow"
        }
        // One text: whether a name exists inside is not for strangers.
        FailureCode::AddressNotAllowed | FailureCode::DnsFailed | FailureCode::DnsTimeout => {
            "its host name could not be resolved to an address that this server may send to; its \
             operator can allow more in egress.allow"
        }
        FailureCode::ConnectFailed | FailureCode::ConnectTimeout => {
            "it could not be reached: no connection was made"
        }
        FailureCode::ProxyFailed => "the proxy of this server could not reach it",
        FailureCode::TlsCertificateInvalid => "its TLS certificate is not trusted, or out of date",
        FailureCode::TlsFailed | FailureCode::TlsTimeout => "no TLS connection could be made",
        FailureCode::ResponseTimeout | FailureCode::AttemptTimeout => "it did not answer in time",
        FailureCode::TokenUnavailable => "the token server gave no token",
        FailureCode::CertificateUnavailable => "the client certificate cannot be used",
        _ => "it did not give a valid response",
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use posthorn_domain::Answer;

    use super::*;

    fn answered(status: u16) -> AttemptOutcome {
        AttemptOutcome::Answered(Answer {
            status,
            retry_after: None,
            content_type: None,
            body: Bytes::new(),
        })
    }

    fn failed(code: FailureCode) -> AttemptOutcome {
        AttemptOutcome::Failed { code, detail: "10.0.0.1".to_owned() }
    }

    #[test]
    fn only_200_to_209_take_a_message() {
        for status in 200..=209 {
            assert_eq!(does_not_take(&answered(status)), None, "{status}");
        }
        for status in [100, 210, 226, 302, 400, 401, 404, 500] {
            assert!(does_not_take(&answered(status)).is_some(), "{status}");
        }
        for code in FailureCode::ALL {
            let reason = does_not_take(&failed(code)).expect("not taken");
            assert!(!reason.contains("10.0.0.1"), "{reason}");
        }
        assert!(does_not_take(&answered(302)).expect("a reason").contains("redirects"));
    }

    #[test]
    fn one_host_need_not_be_protected() {
        assert!(is_exempt("https://webhook.site/abc") && is_exempt("https://WEBHOOK.SITE:443/"));
        for url in [
            "https://webhook.site.example.com/",
            "https://x.webhook.site/",
            "https://a/?webhook.site",
        ] {
            assert!(!is_exempt(url), "{url}");
        }
    }

    #[test]
    fn only_401_and_403_protect_a_callback() {
        for status in [401, 403] {
            assert_eq!(lets_everybody_in(&answered(status), false), None, "{status}");
        }
        for status in [200, 204, 302, 400, 404, 500] {
            assert!(lets_everybody_in(&answered(status), false).is_some(), "{status}");
            assert!(lets_everybody_in(&answered(status), true).is_some(), "{status}");
        }
        for code in FailureCode::ALL {
            let reason = lets_everybody_in(&failed(code), false).expect("not known");
            assert!(!reason.contains("10.0.0.1"), "{reason}");
        }
        assert_eq!(lets_everybody_in(&failed(FailureCode::TlsFailed), true), None);
        assert!(lets_everybody_in(&failed(FailureCode::ResponseTimeout), true).is_some());
    }
}
