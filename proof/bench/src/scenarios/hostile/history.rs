//! What the API says about every attempt at a hostile receiver.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Context;
use posthorn_domain::FailureCode;
use posthorn_hostile::{Mode, Outcome};
use serde_json::Value;

use super::Server;
use crate::child::Caller;

/// Different surprises that are told one by one.
const UNEXPECTED_TOLD: usize = 20;

/// The sum of it.
#[derive(Default)]
pub(super) struct History {
    pub(super) deliveries: u64,
    pub(super) attempts: u64,
    /// Attempts that took longer than their deadline and a second.
    pub(super) late: u64,
    pub(super) slowest_ms: u64,
    /// Deliveries that neither ended nor wait for anything.
    pub(super) stuck: u64,
    pub(super) unexpected_count: u64,
    pub(super) unexpected: Vec<String>,
}

impl History {
    pub(super) async fn read(
        server: &Server,
        modes: &HashMap<String, Mode>,
        attempt_max: Duration,
    ) -> anyhow::Result<Self> {
        let mut caller = Caller::open(server).await?;
        let mut history = Self::default();
        for (subscription, mode) in modes {
            let mut cursor = String::new();
            loop {
                let path = format!("/v1/deliveries?subscription={subscription}&limit=100{cursor}");
                let page = caller.get(&path).await?;
                for item in page["items"].as_array().context("a page has items")? {
                    let id = item["id"].as_str().context("a delivery has an id")?;
                    let whole = caller.get(&format!("/v1/deliveries/{id}")).await?;
                    history.note(&whole, *mode, attempt_max);
                }
                match page["next"].as_str() {
                    Some(next) => cursor = format!("&cursor={next}"),
                    None => break,
                }
            }
        }
        Ok(history)
    }

    fn note(&mut self, delivery: &Value, mode: Mode, attempt_max: Duration) {
        self.deliveries += 1;
        let ended = delivery["ended_at"].is_string();
        let waits = delivery["due_at"].is_string();
        self.stuck += u64::from(!ended && !waits);
        for attempt in delivery["attempts"].as_array().into_iter().flatten() {
            self.attempts += 1;
            let took = attempt["took_ms"].as_u64().unwrap_or(u64::MAX);
            self.slowest_ms = self.slowest_ms.max(took);
            self.late += u64::from(u128::from(took) > attempt_max.as_millis());
            let status = attempt["status"].as_u64().and_then(|status| u16::try_from(status).ok());
            let failure = attempt["failure"].as_str().and_then(FailureCode::parse);
            let outcome = match (status, failure) {
                (Some(status), _) => Outcome::Answered(status),
                (None, Some(code)) => Outcome::Failed(code),
                (None, None) => Outcome::Failed(FailureCode::Internal),
            };
            if !mode.expectation().allows(outcome) {
                self.unexpected_count += 1;
                let detail = attempt["detail"].as_str().unwrap_or_default();
                let text = format!("{mode}: {outcome} {detail}, not {}", mode.expectation());
                if self.unexpected.len() < UNEXPECTED_TOLD && !self.unexpected.contains(&text) {
                    self.unexpected.push(text);
                }
            }
        }
    }
}
