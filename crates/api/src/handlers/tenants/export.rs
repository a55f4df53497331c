//! Everything a tenant has, as lines of JSON.
//!
//! # Theory of operation
//! The answer is a body that reads the next page of the store when the reader wants more, so that it needs the
//! memory of one page, however long the history is and however slow the reader. The last line says that it is complete:
//! an answer that ends without it was cut off.
//!
//! It is no snapshot: what changes while it is read may be in it as it was or as it is.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use http_body::Frame;
use posthorn_domain::{Event, Home, RedriveId, SubscriptionId, TenantId};
use posthorn_engine::{Engine, Error as EngineError, audit_view};
use posthorn_store::{
    AttemptFilter, AuditFilter, DeliveryFilter, EventFilter, Listing, Order, Place, RedrivePage,
};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{TenantView, named};
use crate::call::{Answer, Call};
use crate::handlers::clients::ClientBody;
use crate::handlers::profiles::ProfileBody;
use crate::problem::chain;
use crate::respond;
use crate::wire::{
    AttemptLineView, CertificateBody, DeliveryView, EventView, JobView, KeyView, RedriveView,
    SubscriptionBody, TopicView,
};

const LINES: HeaderValue = HeaderValue::from_static("text/jsonl");
/// Events of one page: each may be large.
const EVENTS: usize = 10;
/// Things of one page that are small.
const SMALL: usize = 200;

/// `GET /v1/tenants/{id}/export`.
pub(crate) async fn export(mut call: Call) -> Answer {
    let tenant = named(&mut call).await?;
    // One that is being deleted has no more whole to be shown.
    call.engine().catalog().tenant(tenant.id)?;
    let export = Export::new(call.engine().clone(), tenant.id);
    Ok(respond::bytes(StatusCode::OK, LINES, Body::new(export)))
}

/// What comes next.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Catalog,
    Subscriptions(Option<SubscriptionId>),
    Events(Option<Place>),
    Deliveries(Option<Place>),
    Attempts(Option<Place>),
    Jobs(Option<Place>),
    Redrives(Option<RedriveId>),
    Audit(Option<Place>),
    End,
    Over,
}

/// A page of lines, and what comes after it.
struct Step {
    lines: Lines,
    next: Stage,
}

type Reading = Pin<Box<dyn Future<Output = Result<Step, EngineError>> + Send>>;

/// The body of the answer.
struct Export {
    engine: Engine,
    tenant: TenantId,
    stage: Stage,
    count: u64,
    reading: Option<Reading>,
}

impl Export {
    fn new(engine: Engine, tenant: TenantId) -> Self {
        Self { engine, tenant, stage: Stage::Catalog, count: 0, reading: None }
    }
}

impl http_body::Body for Export {
    type Data = Bytes;
    type Error = EngineError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, EngineError>>> {
        loop {
            if let Stage::Over = self.stage {
                return Poll::Ready(None);
            }
            let (stage, count) = (self.stage, self.count);
            let (engine, tenant) = (self.engine.clone(), self.tenant);
            let reading =
                self.reading.get_or_insert_with(|| Box::pin(step(engine, tenant, stage, count)));
            let step = match reading.as_mut().poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(step) => step,
            };
            self.reading = None;
            match step {
                Ok(Step { lines, next }) => {
                    self.stage = next;
                    self.count += lines.count;
                    if !lines.text.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(Bytes::from(lines.text)))));
                    }
                }
                // The connection is cut, so that nobody takes it for the whole.
                Err(e) => {
                    tracing::warn!(tenant = %self.tenant, error = %chain(&e), "an export was cut off");
                    self.stage = Stage::Over;
                    return Poll::Ready(Some(Err(e)));
                }
            }
        }
    }
}

#[derive(Default)]
struct Lines {
    text: Vec<u8>,
    count: u64,
}

#[derive(Serialize)]
struct Line<'a, T> {
    kind: &'static str,
    item: &'a T,
}

impl Lines {
    fn add<T: Serialize>(&mut self, kind: &'static str, item: &T) {
        // Views are maps with texts as keys: they have a JSON form.
        if serde_json::to_writer(&mut self.text, &Line { kind, item }).is_ok() {
            self.text.push(b'\n');
            self.count += 1;
        }
    }
}

/// An event with what was published.
#[derive(Serialize)]
struct WholeEvent<'a> {
    #[serde(flatten)]
    event: EventView<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

/// The same where the payload is JSON, which stands as it was published.
#[derive(Serialize)]
struct JsonEvent<'a> {
    event: EventView<'a>,
    payload: &'a RawValue,
}

#[derive(Serialize)]
struct End {
    lines: u64,
}

async fn step(
    engine: Engine,
    tenant: TenantId,
    stage: Stage,
    count: u64,
) -> Result<Step, EngineError> {
    // A tenant that is deleted meanwhile is not shown in part.
    engine.catalog().tenant(tenant)?;
    let mut lines = Lines::default();
    let oldest = |after, limit| Listing { order: Order::OldestFirst, after, limit };
    let next = match stage {
        Stage::Catalog => {
            catalog(&engine, tenant, &mut lines)?;
            Stage::Subscriptions(None)
        }
        Stage::Subscriptions(after) => {
            let all = engine.catalog().subscriptions(tenant);
            let from = after.map_or(0, |after| all.partition_point(|v| v.subscription.id <= after));
            let page = all.iter().skip(from).take(SMALL);
            for view in page {
                let keys = view.verification_keys(engine.now()).unwrap_or_default();
                lines.add("subscription", &SubscriptionBody::new(&view.subscription, &keys));
            }
            match all.get(from + SMALL - 1).filter(|_| all.len() > from + SMALL) {
                Some(last) => Stage::Subscriptions(Some(last.subscription.id)),
                None => Stage::Events(None),
            }
        }
        Stage::Events(after) => {
            let wanted = EventFilter::default();
            let page = engine.store().events(tenant, wanted, oldest(after, EVENTS)).await?;
            page.items.iter().for_each(|event| add_event(&mut lines, event));
            after_page(page.more, page.last, Stage::Events, Stage::Deliveries(None))
        }
        Stage::Deliveries(after) => {
            let wanted = DeliveryFilter::default();
            let page = engine.store().deliveries(tenant, wanted, oldest(after, SMALL)).await?;
            for delivery in &page.items {
                lines.add("delivery", &DeliveryView::new(delivery, true));
            }
            after_page(page.more, page.last, Stage::Deliveries, Stage::Attempts(None))
        }
        Stage::Attempts(after) => {
            let wanted = AttemptFilter::default();
            let page = engine.store().attempts_made(tenant, wanted, oldest(after, SMALL)).await?;
            for line in &page.items {
                lines.add("attempt", &AttemptLineView::new(line, true));
            }
            after_page(page.more, page.last, Stage::Attempts, Stage::Jobs(None))
        }
        Stage::Jobs(after) => {
            let page = engine.store().jobs(tenant, oldest(after, SMALL)).await?;
            page.items.iter().for_each(|job| lines.add("job", &JobView::from(job)));
            after_page(page.more, page.last, Stage::Jobs, Stage::Redrives(None))
        }
        Stage::Redrives(before) => {
            // The newest first: there is no other way to list them.
            let page = RedrivePage { before, limit: SMALL };
            let page = engine.store().redrives(tenant, page).await?;
            page.items.iter().for_each(|own| lines.add("redrive", &RedriveView::from(own)));
            match page.items.last().filter(|_| page.more) {
                Some(last) => Stage::Redrives(Some(last.id)),
                None => Stage::Audit(None),
            }
        }
        Stage::Audit(after) => {
            // Such lines as the tenant itself could read: who of the operators it was is not among them.
            let reader = Home::Tenant(tenant);
            let wanted = AuditFilter {
                tenant: Some(tenant),
                known_to: Some(reader.clone()),
                ..AuditFilter::default()
            };
            let page = engine.store().audit(wanted, oldest(after, SMALL)).await?;
            page.items.iter().for_each(|line| lines.add("audit", &audit_view(line, &reader)));
            after_page(page.more, page.last, Stage::Audit, Stage::End)
        }
        Stage::End | Stage::Over => {
            lines.add("end", &End { lines: count });
            Stage::Over
        }
    };
    Ok(Step { lines, next })
}

fn after_page(
    more: bool,
    last: Option<Place>,
    again: fn(Option<Place>) -> Stage,
    next: Stage,
) -> Stage {
    if more && last.is_some() { again(last) } else { next }
}

/// What is in memory anyway, and bounded by quotas.
fn catalog(engine: &Engine, tenant: TenantId, lines: &mut Lines) -> Result<(), EngineError> {
    let catalog = engine.catalog();
    lines.add("tenant", &TenantView::from(&catalog.tenant(tenant)?));
    for topic in &catalog.topics(tenant) {
        lines.add("topic", &TopicView::from(topic));
    }
    for profile in catalog.profiles(tenant).iter().filter(|profile| profile.own.is_some()) {
        lines.add("profile", &ProfileBody::from(profile));
    }
    for view in catalog.certificates(tenant) {
        lines.add("certificate", &CertificateBody::new(&view.certificate, engine.now()));
    }
    for key in catalog.keys().iter().filter(|key| key.tenant == Some(tenant)) {
        lines.add("key", &KeyView::from(key));
    }
    for client in catalog.clients(tenant) {
        lines.add("client", &ClientBody::from(&*client));
    }
    Ok(())
}

fn add_event(lines: &mut Lines, event: &Event) {
    let payload: Option<&RawValue> = serde_json::from_slice(&event.payload).ok();
    // A line break in the payload would end the line.
    let payload = payload.filter(|raw| !raw.get().contains(['\n', '\r']));
    match payload {
        Some(payload) => {
            lines.add("event", &JsonEvent { event: EventView::from(event), payload });
        }
        None => {
            let kept = event.expunged_at.is_none();
            let payload_base64 = kept.then(|| STANDARD.encode(&event.payload));
            lines.add("event", &WholeEvent { event: EventView::from(event), payload_base64 });
        }
    }
}
