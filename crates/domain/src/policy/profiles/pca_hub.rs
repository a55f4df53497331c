//! PCA Hub: a gate, a one-time code, and two seconds of rest for each user.
//!
//! Events carry what the sender's messages carried: attributes under the names of the messages'
//! attributes, and the body as payload. `values` says where each thing is found, once.

use std::collections::BTreeMap;

use super::{default_profile, post, seconds, secret, template};
use crate::policy::{
    Auth, Backoff, BodyRule, DeadHead, FamilyPath, FieldType, Gate, GateExpect, Gone, Jitter,
    Lease, Limits, LogTemplates, NamedValue, OnClosed, Order, OrderKey, OrderScope, Otp, Permanent,
    Policy, RequestPolicy, RetryAfter, Schedule, StatusSet, UrlPolicy,
};
use crate::{Span, Template};

fn named<T>(pairs: &[(&str, &str)], value: impl Fn(Template) -> T) -> BTreeMap<String, T> {
    pairs.iter().map(|(name, text)| ((*name).to_owned(), value(template(text)))).collect()
}

/// Six sends behind a gate, ordered and two seconds apart for each user; only 200 is success. What
/// differs between environments is `values.hub_domain`, which has to be given, and the secrets.
pub fn pca_hub() -> Policy {
    let mut interim = pca_hub_interim();
    let issuer = "https://{values.tenant}.{values.hub_domain}/auth";
    interim.values.insert("issuer".to_owned(), NamedValue::plain(template(issuer)));
    interim.request.headers.insert("X-PCA-ISSUER".to_owned(), template("{values.issuer}"));
    let code = Otp {
        secret: secret("otp"),
        method: "totp".to_owned(),
        hash: "sha1".to_owned(),
        secret_encoding: "utf8".to_owned(),
        salt: Some(secret("otp-salt")),
        salt_use: "prefix".to_owned(),
        step: Span::from_secs(30),
        t0: 0,
        digits: 6,
        message: String::new(),
        encode: "hex".to_owned(),
        header: "Authorization".to_owned(),
        format: "{otp}".to_owned(),
        values: BTreeMap::new(),
        secret_values: BTreeMap::new(),
    };
    let shared_key = Auth::SecretHeader {
        header: "X-PCA-SHARED-INTERNAL-KEY".to_owned(),
        secret: secret("shared-internal-key"),
    };
    interim.auth.splice(0..0, [Auth::Otp(code), shared_key]);
    interim
}

/// The same without one-time code, shared key and issuer, for a Hub that does not ask for them yet.
pub fn pca_hub_interim() -> Policy {
    let tenant = NamedValue {
        from: template("{event.attributes.service_partition}"),
        after: Some("pca.hub.".to_owned()),
    };
    let mut values = named(
        &[
            ("account_id", "{event.payload.account_id}"),
            ("organization_id", "{event.payload.organization_id}"),
            ("service_partition", "{event.attributes.service_partition}"),
        ],
        NamedValue::plain,
    );
    values.insert("tenant".to_owned(), tenant);
    Policy {
        values,
        // Every call carries secrets that all services share.
        url: UrlPolicy { https_only: true, ..UrlPolicy::default() },
        request: RequestPolicy {
            families: named(
                &[("user", "/user-events"), ("organization", "/organization-events")],
                FamilyPath::Path,
            ),
            headers: pca_hub_headers(),
            content_type: Some("application/json".to_owned()),
            ..post()
        },
        auth: vec![Auth::SecretHeader {
            header: "X-PCA-Event-APIKey".to_owned(),
            secret: secret("event-api-key"),
        }],
        success: StatusSet::of(&[200]),
        permanent: Permanent {
            status: StatusSet::default(),
            body: Some(BodyRule {
                fields: BTreeMap::from([
                    ("status".to_owned(), FieldType::Number),
                    ("code".to_owned(), FieldType::String),
                    ("message".to_owned(), FieldType::String),
                    ("domain".to_owned(), FieldType::String),
                    ("trace".to_owned(), FieldType::String),
                ]),
                except: StatusSet::of(&[409, 500]),
            }),
            gone: Gone::Retry,
            gone_too: StatusSet::default(),
        },
        schedule: Schedule {
            backoff: Backoff::List { waits: seconds(&[10, 300, 600, 1800, 6000]) },
            jitter: Jitter::Add {
                from: Span::from_secs(1),
                to: Span::from_secs(10),
                step: Span::from_secs(1),
            },
            max_attempts: Some(6),
            max_age: None,
            retry_after: RetryAfter { honour: false, ..RetryAfter::default() },
        },
        limits: Limits {
            response: Span::from_secs(30),
            total: Span::from_secs(40),
            ..Limits::default()
        },
        order: Order {
            scope: OrderScope::Key,
            // Events of organisations have no user; each organisation is a lane of its own.
            key: Some(OrderKey::first_of(vec![
                template("{values.service_partition}/{values.account_id}"),
                template("{values.service_partition}/organization/{values.organization_id}"),
            ])),
            dead_head: DeadHead::Skip,
        },
        spacing: Some(Span::from_secs(2)),
        gate: Some(Gate {
            url: template("https://{values.tenant}.{values.hub_domain}/g/api/pca119"),
            timeout: Span::from_secs(5),
            status: StatusSet::of(&[200]),
            expect: Some(GateExpect {
                pointer: "/Status".to_owned(),
                equals: serde_json::Value::from(2),
                text_is_fine: false,
            }),
            on_closed: OnClosed::DeadLetter,
        }),
        lease: Lease { time: Span::from_secs(180), durable: true },
        log: pca_hub_log(),
        breaker: None,
        failing: None,
        ..default_profile()
    }
}

/// What the Hub reads besides authentication. The last four are sent only where they are known.
fn pca_hub_headers() -> BTreeMap<String, Template> {
    named(
        &[
            ("X-PCA-TENANT", "{values.tenant}"),
            ("X-PCA-organization-id", "{values.organization_id}"),
            ("X-PCA-service-partition", "{values.service_partition}"),
            ("X-PCA-Event-Type", "{event.type}"),
            ("X-PCA-Event-Sender", "{event.attributes.eventSender}"),
            ("X-PCA-Event-Type-Version?", "{event.attributes.eventTypeVersion}"),
            ("X-PCA-Event-SourceClient?", "{event.attributes.eventSourceClient}"),
            ("X-PCA-Event-SourceOrganizationId?", "{event.attributes.eventSourceOrganizationId}"),
            (
                "X-PCA-Event-SourceServicePartition?",
                "{event.attributes.eventSourceServicePartition}",
            ),
        ],
        |template| template,
    )
}

/// The texts that the Hub's operators search for.
fn pca_hub_log() -> LogTemplates {
    let who = "tenantname:{values.tenant}, accountid:{values.account_id}";
    LogTemplates {
        field: Some("mt".to_owned()),
        before: Some(template(&format!("Call PCA Hub Webhook ({who})"))),
        failure: Some(template(&format!("Error PCA Hub Webhook ({who}, res:{{response.body}})"))),
        fields: named(
            &[
                ("tenantname", "{values.tenant}"),
                ("accountid", "{values.account_id}"),
                ("event_type", "{event.type}"),
                ("attempt", "{attempt.number}"),
                ("status", "{response.status}"),
                ("trace", "{response.json.trace}"),
            ],
            |template| template,
        ),
    }
}
