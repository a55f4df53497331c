//! The shipped profiles. Systems differ in numbers and shapes only; the engine knows none of them.
//!
//! The systems promise their waits, so their receivers have no breaker, and nobody but their operators
//! disables them, except where the system itself promises that, too.

mod pca_hub;

use std::collections::BTreeMap;

use super::{
    Auth, Backoff, BodySource, Breaker, CertificateChoice, DeadHead, Envelope, Failing, Handshake,
    Jitter, Lease, Limits, LogTemplates, MaxAge, Method, OnExhausted, OnPermanent, OnRefused,
    Order, OrderScope, Permanent, Policy, RequestPolicy, RetryAfter, Schedule, SignatureHeaders,
    SignatureIds, StatusSet, ThumbprintHeader, TlsPolicy, TraceHeader, UrlPolicy,
};
use crate::{ProfileName, SecretName, Span, Template};

pub use pca_hub::{pca_hub, pca_hub_interim};

/// The name of the profile a subscription has when it names none.
pub const DEFAULT: &str = "default";
/// The secret that signs under the default profile.
pub const SIGNING_SECRET: &str = "signing";

/// All shipped profiles by name.
pub fn shipped() -> BTreeMap<ProfileName, Policy> {
    [
        (DEFAULT, default_profile()),
        ("efgs", efgs()),
        ("notificaties", notificaties()),
        ("cedros", cedros()),
        ("pca-hub", pca_hub()),
        ("pca-hub-interim", pca_hub_interim()),
        ("svix", svix()),
    ]
    .into_iter()
    .map(|(name, policy)| (ProfileName::new(name).expect("shipped names are valid"), policy))
    .collect()
}

fn template(text: &str) -> Template {
    text.parse().expect("shipped templates are valid")
}

fn secret(name: &str) -> SecretName {
    SecretName::new(name).expect("shipped names are valid")
}

fn seconds(list: &[u64]) -> Vec<Span> {
    list.iter().copied().map(Span::from_secs).collect()
}

fn post() -> RequestPolicy {
    RequestPolicy {
        method: Method::Post,
        body: BodySource::Payload,
        path: None,
        families: BTreeMap::new(),
        query: BTreeMap::new(),
        headers: BTreeMap::new(),
        alternative: None,
        content_type: None,
        user_agent: None,
        event_headers: false,
        envelope: Envelope::None,
        source: None,
        handshake: Handshake::None,
        traceparent: TraceHeader::None,
    }
}

fn unordered() -> Order {
    Order { scope: OrderScope::None, key: None, dead_head: DeadHead::Skip }
}

/// Twelve sends over about three days, signed, 2xx is success. A receiver that keeps us waiting is asked
/// less often, and one that only fails for five days is given up.
pub fn default_profile() -> Policy {
    Policy {
        values: BTreeMap::new(),
        url: UrlPolicy::default(),
        request: RequestPolicy { event_headers: true, ..post() },
        tls: TlsPolicy::default(),
        proxy: None,
        auth: vec![Auth::StandardWebhooks {
            secret: secret(SIGNING_SECRET),
            headers: SignatureHeaders::Webhook,
            ids: SignatureIds::Posthorn,
        }],
        success: StatusSet::two_hundreds(),
        permanent: Permanent::default(),
        schedule: Schedule {
            backoff: Backoff::List {
                waits: seconds(&[5, 30, 120, 600, 1800, 3600, 10800, 21600, 43200, 86400, 86400]),
            },
            jitter: Jitter::Ratio { ratio: 0.1 },
            max_attempts: Some(12),
            max_age: Some(MaxAge::Auto),
            retry_after: RetryAfter::default(),
        },
        limits: Limits::default(),
        breaker: Some(Breaker::default()),
        failing: Some(Failing { disable_after: Span::from_secs(5 * 86_400) }),
        order: unordered(),
        spacing: None,
        gate: None,
        on_exhausted: OnExhausted::DeadLetter,
        on_permanent: OnPermanent::DeadLetter,
        lease: Lease { time: Span::from_secs(30), durable: false },
        log: LogTemplates::default(),
    }
}

/// A GET with the batch's tag and date, strictly one after the other, six sends; the thumbprint of
/// the country's certificate for the URL's host tells an outbound proxy which one to show.
pub fn efgs() -> Policy {
    Policy {
        request: RequestPolicy {
            method: Method::Get,
            body: BodySource::Empty,
            query: BTreeMap::from([
                ("batchTag".to_owned(), template("{event.attributes.batchTag}")),
                ("date".to_owned(), template("{event.attributes.date|event.date}")),
            ]),
            user_agent: Some("EFGS Callback Engine".to_owned()),
            ..post()
        },
        url: UrlPolicy {
            https_only: true,
            query: false,
            resolve: true,
            on_refused: OnRefused::Retry,
        },
        auth: vec![Auth::CertificateThumbprint(ThumbprintHeader {
            header: "X-SSL-Client-SHA256".to_owned(),
            encoding: "hex".to_owned(),
            choice: CertificateChoice {
                certificate: None,
                owner: Some(template("{subscription.labels.country}")),
            },
        })],
        schedule: Schedule {
            backoff: Backoff::Fixed { wait: Span::from_secs(300) },
            jitter: Jitter::None,
            max_attempts: Some(6),
            max_age: None,
            retry_after: RetryAfter { honour: false, ..RetryAfter::default() },
        },
        limits: Limits {
            connect: Span::from_secs(10),
            response: Span::from_secs(10),
            concurrency: 1,
            ..Limits::default()
        },
        permanent: Permanent { gone: super::Gone::Retry, ..Permanent::default() },
        order: Order { scope: OrderScope::Subscription, key: None, dead_head: DeadHead::Skip },
        on_exhausted: OnExhausted::Drop,
        lease: Lease { time: Span::from_secs(300), durable: true },
        breaker: None,
        failing: None,
        ..default_profile()
    }
}

/// Eight sends, 25·4ⁿ seconds apart, at most 52,000. Whatever is not a 2xx is tried again, a 410 too.
pub fn notificaties() -> Policy {
    Policy {
        request: post(),
        auth: Vec::new(),
        permanent: Permanent { gone: super::Gone::Retry, ..Permanent::default() },
        schedule: Schedule {
            backoff: Backoff::Exponential {
                initial: Span::from_secs(25),
                factor: 4.0,
                cap: Span::from_secs(52_000),
            },
            jitter: Jitter::None,
            max_attempts: Some(8),
            max_age: None,
            retry_after: RetryAfter { honour: false, ..RetryAfter::default() },
        },
        limits: Limits {
            response: Span::from_secs(10),
            total: Span::from_secs(15),
            ..Limits::default()
        },
        lease: Lease { time: Span::from_secs(100), durable: false },
        breaker: None,
        failing: None,
        ..default_profile()
    }
}

/// Five sends, doubling from one second; event type, delivery id and time in headers.
pub fn cedros() -> Policy {
    Policy {
        request: RequestPolicy {
            headers: BTreeMap::from([
                ("X-Cedros-Event-Type".to_owned(), template("{event.type}")),
                ("X-Cedros-Delivery-ID".to_owned(), template("{delivery.id}")),
                ("X-Cedros-Timestamp".to_owned(), template("{attempt.unix}")),
            ]),
            ..post()
        },
        auth: Vec::new(),
        // Every 4xx may be passing here, a 410 too.
        permanent: Permanent { gone: super::Gone::Retry, ..Permanent::default() },
        schedule: Schedule {
            backoff: Backoff::Exponential {
                initial: Span::from_secs(1),
                factor: 2.0,
                cap: Span::from_secs(300),
            },
            jitter: Jitter::None,
            max_attempts: Some(5),
            max_age: None,
            retry_after: RetryAfter { honour: false, ..RetryAfter::default() },
        },
        limits: Limits {
            connect: Span::from_secs(5),
            response: Span::from_secs(10),
            total: Span::from_secs(10),
            ..Limits::default()
        },
        lease: Lease { time: Span::from_secs(300), durable: false },
        breaker: None,
        failing: None,
        ..default_profile()
    }
}

/// As receivers of the Svix API know it: eight sends over about 28 hours, signed in `svix-` headers, and a receiver that
/// only fails for five days is given up. Every answer but a 2xx is tried again, a 410 too.
pub fn svix() -> Policy {
    Policy {
        request: post(),
        auth: vec![Auth::StandardWebhooks {
            secret: secret(SIGNING_SECRET),
            headers: SignatureHeaders::Svix,
            ids: SignatureIds::Svix,
        }],
        permanent: Permanent { gone: super::Gone::Retry, ..Permanent::default() },
        schedule: Schedule {
            backoff: Backoff::List {
                waits: seconds(&[5, 300, 1_800, 7_200, 18_000, 36_000, 36_000]),
            },
            jitter: Jitter::Ratio { ratio: 0.2 },
            max_attempts: Some(8),
            max_age: None,
            // At most twice the longest wait.
            retry_after: RetryAfter { honour: true, cap: Span::from_secs(72_000) },
        },
        limits: Limits {
            response: Span::from_secs(30),
            total: Span::from_secs(30),
            ..Limits::default()
        },
        lease: Lease { time: Span::from_secs(60), durable: false },
        breaker: None,
        failing: Some(Failing { disable_after: Span::from_secs(120 * 3_600) }),
        ..default_profile()
    }
}
