//! The request of a delivery as it would be built now: by the same code that attempts use, without
//! sending anything, asking a gate or fetching a token.
//!
//! What authenticates a request is not shown. It is not found by its name: whatever the ways of
//! authentication add to a request is marked where it is added (`HeaderValue::set_sensitive`), and what is
//! marked does not leave this module.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use posthorn_domain::{
    Attempt, AttemptOutcome, Delivery, DeliveryId, Event, FailureCode, TenantId,
};
use posthorn_store::Work;

use crate::attempt::{Ended, Needs, not_routed};
use crate::courier::job_outside;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::transport::Outbound;

/// What stands for a token in a request that is not sent: none is fetched.
pub(crate) const NO_TOKEN: &str = "not-fetched";

/// A request that would be sent, or why there is none.
#[derive(Clone, Debug)]
pub enum Preview {
    /// This would be sent.
    Request(RequestPreview),
    /// Nothing could be: an attempt would fail so.
    Failed {
        /// Why.
        code: FailureCode,
        /// What is wrong in particular.
        detail: String,
    },
}

/// A request, without its secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestPreview {
    /// Its method.
    pub method: String,
    /// Where to, as far as it may be shown: of an endpoint of a push service, only the origin; of an agent
    /// of this server, nothing.
    pub url: Option<String>,
    /// Its headers in order of their names; without a value where that is secret.
    pub headers: Vec<(String, Option<String>)>,
    /// Its body; `None` where it is encrypted for its receiver.
    pub body: Option<Bytes>,
    /// How long the body is.
    pub body_bytes: usize,
}

impl RequestPreview {
    /// What of a webhook's request may be shown.
    pub(crate) fn of(outbound: &Outbound) -> Self {
        Self {
            method: outbound.method.to_string(),
            url: Some(outbound.endpoint.url_with(outbound.path_and_query.as_deref())),
            headers: Self::shown(&outbound.headers),
            body: Some(outbound.body.clone()),
            body_bytes: outbound.body.len(),
        }
    }

    /// What of a push message may be shown: its endpoint is a capability, its body encrypted.
    pub(crate) fn of_message(headers: &HeaderMap, url: Option<String>, body_bytes: usize) -> Self {
        let method = Method::POST.to_string();
        Self { method, url, headers: Self::shown(headers), body: None, body_bytes }
    }

    /// Headers in order of their names, without what is marked as secret.
    pub(crate) fn shown(headers: &HeaderMap) -> Vec<(String, Option<String>)> {
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let value = |value: &HeaderValue| (!value.is_sensitive()).then(|| text(value));
        let mut all: Vec<_> =
            headers.iter().map(|(name, found)| (name.as_str().to_owned(), value(found))).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }
}

impl Engine {
    /// The request that an attempt of this delivery would make now, by the present policy, secrets and
    /// time. Its subscription must still be there.
    pub async fn preview_request(&self, tenant: TenantId, id: DeliveryId) -> Result<Preview> {
        let delivery = self.store().delivery(tenant, id).await?;
        let delivery = delivery.ok_or(Error::NotFound("delivery"))?;
        self.catalog().subscription(tenant, delivery.subscription)?;
        let event = self.store().event(tenant, delivery.event).await?;
        let event = event.ok_or(Error::NotFound("event"))?;
        self.preview_of(delivery, Arc::new(event))
    }

    /// The attempt of a delivery that failed last, with what it sent; `None` where none was kept.
    pub async fn sent_request(&self, tenant: TenantId, id: DeliveryId) -> Result<Option<Attempt>> {
        let attempts = self.store().attempts(tenant, id).await?;
        Ok(attempts.into_iter().rev().find(|attempt| attempt.request.is_some()))
    }

    /// The same as [`Engine::preview_request`] for those who have read delivery and event already.
    pub fn preview_of(&self, delivery: Delivery, event: Arc<Event>) -> Result<Preview> {
        if event.expunged_at.is_some() {
            return Err(Error::Expunged);
        }
        let view = self.catalog().subscription(delivery.tenant, delivery.subscription)?;
        let policy = view.usable_policy()?;
        let work = Work { delivery, event };
        let job = job_outside(Arc::clone(&view), policy, work, Needs::Nothing);
        if let Some(detail) = not_routed(&job) {
            return Ok(Preview::Failed { code: FailureCode::FamilyNotRouted, detail });
        }
        match view.destination.preview(&self.inner.around, &job) {
            Ok(request) => Ok(Preview::Request(request)),
            Err(Ended::Outcome(AttemptOutcome::Failed { code, detail })) => {
                Ok(Preview::Failed { code, detail })
            }
            Err(_) => Err(Error::Busy("the request cannot be built now")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_marked_has_no_value_whatever_it_is_called() {
        let mut headers = HeaderMap::new();
        let mut secret = HeaderValue::from_static("hush");
        secret.set_sensitive(true);
        headers.insert("x-plain", HeaderValue::from_static("authorization"));
        headers.insert("a-secret", secret);
        let expected = [
            ("a-secret".to_owned(), None),
            ("x-plain".to_owned(), Some("authorization".to_owned())),
        ];
        assert_eq!(RequestPreview::shown(&headers), expected);
    }
}
