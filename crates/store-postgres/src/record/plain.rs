//! Deliveries that have no lane and were delivered by their first attempt: nearly all of the work, and the least of it
//! for each. `sql/deliver.sql` writes them without being ready for anything else.

use std::borrow::Cow;
use std::collections::HashMap;

use posthorn_domain::{DeliveryState, Shard};
use posthorn_store::Record;
use tokio_postgres::error::SqlState;

use super::Placed;
use crate::codec::{Uid, due, text};
use crate::failure::Failure;
use crate::session::Param;
use crate::work::Fences;

/// Takes from a batch what can be written the short way, if there is anything; the rest comes back.
pub(super) fn split<'b>(batch: &[Placed<'b>]) -> (Option<Plain<'b>>, Vec<Placed<'b>>) {
    let (plain, rest): (Vec<_>, Vec<_>) = batch.iter().partition(|(_, r)| is_plain(r));
    (Plain::of(&plain), rest)
}

/// Whether a transaction failed because something was not as the short way takes it to be.
pub(super) fn is_missed(failure: &Failure) -> bool {
    failure.state() == Some(&SqlState::INVALID_TEXT_REPRESENTATION)
}

fn is_plain(record: &Record) -> bool {
    let attempt = record.attempt.as_ref();
    record.step.state == DeliveryState::Delivered
        && record.step.charge
        && !record.ordered
        && record.expected_attempts == 0
        && attempt.is_some_and(|attempt| attempt.failure.is_none() && attempt.request.is_none())
}

#[derive(Default)]
pub(super) struct Plain<'b> {
    fences: Fences,
    pub(super) id: Vec<Uid>,
    at: Vec<i64>,
    number: Vec<i32>,
    started_at: Vec<i64>,
    took: Vec<i64>,
    status: Vec<Option<i16>>,
    detail: Vec<Cow<'b, str>>,
    response: Vec<&'b [u8]>,
    timings: Vec<Option<String>>,
    outcome: Vec<Option<i32>>,
    manual: Vec<bool>,
}

impl<'b> Plain<'b> {
    /// None without any, and where a shard is named with two fences: of those at most one holds, and the statement could
    /// not say which is whose.
    fn of(batch: &[Placed<'b>]) -> Option<Self> {
        let mut columns = Self::default();
        let mut fences: HashMap<Shard, _> = HashMap::new();
        for (_, record) in batch {
            match fences.insert(record.fence.shard, record.fence) {
                None => columns.fences.push(&record.fence),
                Some(other) if other == record.fence => {}
                Some(_) => return None,
            }
            columns.push(record);
        }
        (!batch.is_empty()).then_some(columns)
    }

    fn push(&mut self, record: &'b Record) {
        let Some(attempt) = &record.attempt else { return };
        self.id.push(record.delivery.into());
        self.at.push(due(record.at));
        self.number.push(i32::try_from(attempt.number).unwrap_or(i32::MAX));
        self.started_at.push(attempt.started_at.as_millis());
        self.took.push(i64::try_from(attempt.took.as_millis()).unwrap_or(i64::MAX));
        self.status.push(attempt.status.and_then(|status| i16::try_from(status).ok()));
        self.detail.push(text(&attempt.detail));
        self.response.push(&attempt.response[..]);
        self.timings.push(attempt.timings.to_text());
        self.outcome.push(attempt.came_of_it().map(|outcome| outcome.code()));
        self.manual.push(attempt.manual);
    }

    pub(super) fn params(&self) -> [Param<'_>; 14] {
        [
            &self.fences.shard,
            &self.fences.epoch,
            &self.fences.node,
            &self.id,
            &self.at,
            &self.number,
            &self.started_at,
            &self.took,
            &self.status,
            &self.detail,
            &self.response,
            &self.timings,
            &self.outcome,
            &self.manual,
        ]
    }

    pub(super) fn slots(&self) -> Vec<i32> {
        self.fences.slots()
    }
}
