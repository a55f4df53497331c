//! Messages to browsers that other push services look after: each is posted to its endpoint (RFC 8030), encrypted
//! for the browser (RFC 8291) and signed with the tenant's key (RFC 8292).
//!
//! An attempt is a request through the one way out, with the deadlines, the proxy and the authorities of the policy.
//! Nothing else of a policy's request plays a part: what a push service understands is fixed.
//!
//! The URL of an endpoint is a capability: whoever has it may be able to send. It is one of the subscription's sealed
//! secrets, and only its origin is shown. So is the key that signs: the browser made the endpoint for that one and no
//! other, also after a change of seal keys, from which the tenants' keys come.
//!
//! What it must not know: when and how often anything is attempted.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use posthorn_domain::policy::{Policy, StatusSet};
use posthorn_domain::{
    Destination as Stored, FailureCode, PUSH_TTL_SECONDS_MAX, PushEncoding, PushServiceTarget,
    SentRequest, TenantId, Timestamp,
};
use posthorn_sealing::p256::PublicKey;
use posthorn_sealing::vapid::SenderKey;
use posthorn_sealing::web_push::{PLAINTEXT_BYTES_MAX, Receiver};

use super::message::{NoMessage, made_topic, plaintext, receiver, secret};
use super::{
    AUTH_SECRET, ENDPOINT_SECRET, KEY_SECRET, NO_SECRETS, PushInput, PushRefusal,
    check_no_certificate, checked_ttl, named,
};
use crate::attempt::{Context, Ended, Job, Made, failed, is_overtaken};
use crate::catalog::SubscriptionView;
use crate::destination::{Attempting, Checking, Destination, Opened, Wanted};
use crate::endpoint::Endpoint;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::preview::RequestPreview;
use crate::request::{AttemptLookup, EventLookup, Redaction, as_sent};
use crate::subscriptions::SecretInput;
use crate::transport::{Deadlines, Outbound, Sent};

/// How long a signed token counts. Services refuse more than 24 hours; half of that leaves room for their clocks.
const TOKEN_SECONDS: i64 = 12 * 3_600;
/// How long a service keeps a message when nobody says: 28 days, the most that Google's service takes.
const TTL_SECONDS_DEFAULT: u32 = 2_419_200;
/// What a push service answers when the endpoint is not known any more, besides 410.
const NOT_FOUND: u16 = 404;
/// What it answers when a message is too large for it, which the next attempt will be as well.
const TOO_LARGE: u16 = 413;

/// A shorter part of a URL is a word, which may stand in any answer, rather than a way to somebody.
const CAPABILITY_BYTES_MIN: usize = 12;

/// An endpoint of another push service.
pub(crate) struct PushService {
    target: PushServiceTarget,
    /// Opened at the first attempt.
    ready: OnceLock<Ready>,
}

/// What is made of the secrets once.
struct Ready {
    endpoint: Arc<Endpoint>,
    receiver: Receiver,
    sender: SenderKey,
}

impl PushService {
    pub(crate) fn new(target: PushServiceTarget) -> Self {
        Self { target, ready: OnceLock::new() }
    }

    /// Secrets that are missing or cannot be read may be there in the next version of the subscription, which is
    /// another destination.
    fn ready(&self, view: &SubscriptionView, now: Timestamp) -> Result<&Ready, NoMessage> {
        if let Some(ready) = self.ready.get() {
            return Ok(ready);
        }
        let unusable = |name: &str| NoMessage {
            code: FailureCode::AuthUnavailable,
            detail: format!("the secret `{name}` cannot be used; give the destination again"),
        };
        let url = secret(view, ENDPOINT_SECRET, now)?;
        let sender = SenderKey::parse(secret(view, KEY_SECRET, now)?);
        let ready = Ready {
            endpoint: Arc::new(Endpoint::new(url.to_owned())),
            receiver: receiver(view, &self.target.p256dh, now)?,
            sender: sender.map_err(|_| unusable(KEY_SECRET))?,
        };
        Ok(self.ready.get_or_init(|| ready))
    }

    /// Sends the message of an attempt; with what it sent when it failed. `Err` says why it was not even tried.
    async fn post(
        &self,
        around: &Context,
        job: &Job,
    ) -> Result<(Sent, Option<Box<SentRequest>>), Ended> {
        let now = around.clock.now();
        let event = EventLookup::new(&job.work.event);
        let values = AttemptLookup::new(&job.view, &job.policy, &job.work, &event, now);
        let (outbound, redaction) = self
            .request(around, job, &values)
            .map_err(|problem| failed(problem.code, problem.detail))?;
        if is_overtaken(around, job) {
            return Err(Ended::Overtaken);
        }
        around.log.before(job, &values);
        let mut sent = around.transport.send(outbound).await;
        redaction.apply(&mut sent.outcome);
        around.log.failure(job, &values, &sent.outcome);
        // The endpoint is a capability: only its origin is written down.
        let again = || self.request(around, job, &values).ok();
        let written = as_sent(&sent.outcome, &job.policy, Some(&self.target.origin), again);
        Ok((sent, written))
    }

    fn request(
        &self,
        around: &Context,
        job: &Job,
        values: &AttemptLookup<'_>,
    ) -> Result<(Outbound, Redaction), NoMessage> {
        let (target, policy, now) = (&self.target, &*job.policy, values.now);
        let refused = |code, detail: &str| NoMessage { code, detail: detail.to_owned() };
        let contact = around.push_options.contact.as_ref().ok_or_else(|| {
            let detail = "push.contact is not set; push services ask whom to write to";
            refused(FailureCode::AuthUnavailable, detail)
        })?;
        let Ready { endpoint, receiver, sender } = self.ready(&job.view, now)?;
        // The operator may have taken a service off the list, and may put it back.
        if !around.push_options.allows(endpoint.parts().host) {
            let detail = "the push service is not in push.services any more";
            return Err(refused(FailureCode::UrlRefused, detail));
        }
        let text = plaintext(policy, &job.work, PLAINTEXT_BYTES_MAX)?;
        let until = now.as_seconds().saturating_add(TOKEN_SECONDS);
        let authorization = sender.authorization(&target.origin, until, Some(contact.as_str()));
        let redaction = redaction(endpoint, &authorization);
        let mut headers = HeaderMap::with_capacity(6);
        let value = |text: &str| {
            let odd = |_| refused(FailureCode::RequestInvalid, "a header cannot be written");
            HeaderValue::from_str(text).map_err(odd)
        };
        let mut authorization = value(&authorization)?;
        authorization.set_sensitive(true);
        headers.insert(AUTHORIZATION, authorization);
        headers
            .insert(CONTENT_ENCODING, HeaderValue::from_static(PushEncoding::Aes128Gcm.as_str()));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        headers.insert(HeaderName::from_static("ttl"), HeaderValue::from(target.ttl));
        let urgency = HeaderValue::from_static(target.urgency.as_str());
        headers.insert(HeaderName::from_static("urgency"), urgency);
        if let Some(topic) = made_topic(target.topic.as_ref(), values) {
            headers.insert(HeaderName::from_static("topic"), value(topic.as_str())?);
        }
        let tls = match policy.tls.authorities.as_slice() {
            [] => None,
            authorities => {
                let tenant = job.view.subscription.tenant;
                let made = around.catalog.tls(tenant, None, authorities, now);
                Some(made.map_err(|missing| NoMessage {
                    code: FailureCode::CertificateUnavailable,
                    detail: missing.to_string(),
                })?)
            }
        };
        let outbound = Outbound {
            tenant: job.view.subscription.tenant,
            subscription: job.view.subscription.id,
            endpoint: Arc::clone(endpoint),
            path_and_query: None,
            method: Method::POST,
            headers,
            tls,
            proxy: policy.proxy.clone(),
            vet_always: policy.url.resolve,
            body: Bytes::from(receiver.encrypt(&text, 0)),
            deadlines: Deadlines::from(&policy.limits),
        };
        Ok((outbound, redaction))
    }
}

/// What a service may repeat in its answer: the URL, or the parts of it that lead to the browser, and the signed token.
fn redaction(endpoint: &Endpoint, authorization: &str) -> Redaction {
    let mut redaction = Redaction::default();
    redaction.add(endpoint.url.as_bytes());
    redaction.add(endpoint.path_and_query().as_bytes());
    let parts = endpoint.path_and_query().split(['/', '?', '&', '=']);
    let parts = parts.chain(authorization.split([' ', '=', ',']));
    for part in parts.filter(|part| part.len() >= CAPABILITY_BYTES_MIN) {
        redaction.add(part.as_bytes());
    }
    redaction
}

impl Destination for PushService {
    fn attempt<'a>(&'a self, around: &'a Context, job: &'a Job) -> Attempting<'a> {
        Box::pin(async move {
            match self.post(around, job).await {
                Ok((Sent { outcome, timings, .. }, sent)) => {
                    Made { result: Ended::Outcome(outcome), timings: timings.into(), sent }
                }
                Err(unsent) => unsent.into(),
            }
        })
    }

    fn preview(&self, around: &Context, job: &Job) -> Result<RequestPreview, Ended> {
        let event = EventLookup::new(&job.work.event);
        let now = around.clock.now();
        let values = AttemptLookup::new(&job.view, &job.policy, &job.work, &event, now);
        let (outbound, _) = self
            .request(around, job, &values)
            .map_err(|problem| failed(problem.code, problem.detail))?;
        // The endpoint is a capability: only its origin is shown.
        let origin = Some(self.target.origin.to_string());
        Ok(RequestPreview::of_message(&outbound.headers, origin, outbound.body.len()))
    }

    fn check_policy(&self, _engine: &Engine, policy: &Policy) -> Result<()> {
        check_no_certificate(policy)
    }

    /// Whether the service can be found and trusted, where the policy asks for it.
    fn check_now<'a>(&'a self, engine: &'a Engine, wanted: &'a Wanted<'a>) -> Checking<'a> {
        Box::pin(async move {
            let Wanted { tenant, policy, .. } = wanted;
            if policy.url.resolve {
                let vetting =
                    engine.inner.around.transport.vet(&format!("{}/", self.target.origin));
                vetting.await.map_err(PushRefusal::Url)?;
            }
            engine
                .catalog()
                .authorities(*tenant, &policy.tls.authorities, engine.now())
                .map(drop)
                .map_err(|e| Error::Certificate {
                    field: "policy.tls.authorities",
                    problem: e.to_string(),
                })
        })
    }

    fn kind(&self) -> &'static str {
        "push_service"
    }

    /// What the answers of push services mean is written in RFC 8030 and not for policies to say: any 2xx is success,
    /// 404 is as good as 410, and 413 will not change. Everything else is as the policy has it for webhooks.
    fn takes(&self, _policy: &Policy) -> bool {
        false
    }

    fn fit(&self, policy: &Policy) -> Policy {
        let mut policy = policy.clone();
        policy.success = StatusSet::two_hundreds();
        policy.permanent.status = policy.permanent.status.with(TOO_LARGE);
        policy.permanent.gone_too = StatusSet::of(&[NOT_FOUND]);
        policy
    }

    fn takes_no_secrets(&self) -> Option<&'static str> {
        Some(NO_SECRETS)
    }

    fn own_secrets(&self) -> &'static [&'static str] {
        &[AUTH_SECRET, ENDPOINT_SECRET, KEY_SECRET]
    }

    fn gone(&self) -> &'static str {
        "the push service no longer knows the endpoint (404 or 410)"
    }
}

impl Engine {
    /// Checks an endpoint of another push service. Nobody is asked whether it exists: the first message shows that.
    pub(super) fn open_service(
        &self,
        tenant: TenantId,
        input: &PushInput,
        receiver: Option<Receiver>,
        present: Option<&SubscriptionView>,
    ) -> Result<Opened> {
        let around = &self.inner.around;
        let url = around.transport.check_url(&input.endpoint).map_err(PushRefusal::Url)?;
        let endpoint = Endpoint::new(url);
        let parts = endpoint.parts();
        if !parts.https {
            return Err(PushRefusal::Plain.into());
        }
        if !around.push_options.allows(parts.host) {
            return Err(PushRefusal::ServiceNotAllowed { host: parts.host.to_owned() }.into());
        }
        if around.push_options.contact.is_none() {
            return Err(PushRefusal::NoContact.into());
        }
        let receiver = receiver.ok_or(PushRefusal::KeysMissing)?;
        let ttl = checked_ttl(input.ttl, TTL_SECONDS_DEFAULT, PUSH_TTL_SECONDS_MAX)?;
        let key = self.service_key(tenant, input, &endpoint.url, present)?;
        let target = PushServiceTarget {
            origin: endpoint.origin().into(),
            p256dh: receiver.key().to_text().into(),
            ttl,
            urgency: input.urgency,
            topic: input.topic.clone(),
        };
        let auth = super::auth_text(&receiver);
        let secrets = [(AUTH_SECRET, auth), (KEY_SECRET, key), (ENDPOINT_SECRET, endpoint.url)];
        let secrets = secrets.map(|(name, value)| SecretInput { name: named(name), value });
        Ok(Opened { stored: Stored::PushService(target), secrets: secrets.into() })
    }

    /// The private key that the endpoint was made for, as far as anybody can tell: the one whose public half was
    /// given; that of the subscription, when it goes to the same endpoint already; or the present one.
    fn service_key(
        &self,
        tenant: TenantId,
        input: &PushInput,
        url: &str,
        present: Option<&SubscriptionView>,
    ) -> Result<String> {
        let text = |key: &SenderKey| {
            let text = key.to_text();
            text.expose_str().unwrap_or_default().to_owned()
        };
        let mut keys = self.inner.vault.sender_keys(tenant);
        let kept = present.and_then(|view| {
            let now = self.now();
            let same = secret(view, ENDPOINT_SECRET, now).is_ok_and(|kept| kept == url);
            secret(view, KEY_SECRET, now).ok().filter(|_| same).map(str::to_owned)
        });
        let Some(given) = &input.application_server_key else {
            let fresh = || text(&keys.next().expect("a vault has at least one key"));
            return Ok(kept.unwrap_or_else(fresh));
        };
        let given = PublicKey::parse(given).map_err(|_| PushRefusal::ApplicationKey)?;
        let kept = kept
            .filter(|kept| SenderKey::parse(kept).is_ok_and(|kept| *kept.public_key() == given));
        let ours = || keys.find(|key| *key.public_key() == given).map(|key| text(&key));
        Ok(kept.or_else(ours).ok_or(PushRefusal::OtherKey)?)
    }
}
