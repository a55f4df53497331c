//! Counting, with the handles of the metrics made once: looking one up by its name for each message
//! would cost more than much of what is counted.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use posthorn_push::endpoint::{Outcome, Refusal};
use posthorn_push::protocol::Close;
use posthorn_push::session::{Counters, Summary};
use posthorn_sealing::vapid::{Form, Vapid};

use crate::metrics as names;

/// The handles.
pub(crate) struct Meter {
    pub(crate) connections: Gauge,
    pub(crate) opened: Counter,
    pub(crate) paced: Counter,
    pub(crate) draining: Counter,
    pub(crate) known: Counter,
    pub(crate) new: Counter,
    pub(crate) superseded: Counter,
    connection_seconds: Histogram,
    registers: Counter,
    unregisters: Counter,
    direct_sent: Counter,
    stored_sent: Counter,
    direct_acked: Counter,
    stored_acked: Counter,
    nacks: Counter,
    saved: Counter,
    accepted: [(Counter, Counter); 3],
    request_seconds: Histogram,
    senders: [Counter; 3],
}

impl Meter {
    pub(crate) fn new() -> Self {
        names::describe();
        let refused = |reason| counter!(names::CONNECTIONS_REFUSED, "reason" => reason);
        let hellos = |agent| counter!(names::HELLOS, "agent" => agent);
        let sent = |source| counter!(names::NOTIFICATIONS_SENT, "source" => source);
        let acked = |source| counter!(names::ACKS, "source" => source);
        let accepted = |outcome| {
            let messages = counter!(names::MESSAGES, "outcome" => outcome);
            (messages, counter!(names::MESSAGE_BYTES, "outcome" => outcome))
        };
        let sender = |form| counter!(names::VAPID, "form" => form);
        Self {
            connections: gauge!(names::CONNECTIONS),
            opened: counter!(names::CONNECTIONS_OPENED),
            paced: refused("pace"),
            draining: refused("draining"),
            known: hellos("known"),
            new: hellos("new"),
            superseded: hellos("already_connected"),
            connection_seconds: histogram!(names::CONNECTION_SECONDS),
            registers: counter!(names::REGISTERS),
            unregisters: counter!(names::UNREGISTERS),
            direct_sent: sent("direct"),
            stored_sent: sent("stored"),
            direct_acked: acked("direct"),
            stored_acked: acked("stored"),
            nacks: counter!(names::NACKS),
            saved: counter!(names::SAVED_AT_END),
            accepted: ["direct", "stored", "dropped"].map(accepted),
            request_seconds: histogram!(names::REQUEST_SECONDS),
            senders: ["none", "rfc8292", "draft01"].map(sender),
        }
    }

    /// What a session counted since it was last looked at.
    pub(crate) fn session(&self, before: &Counters, now: &Counters) {
        let counted = [
            (&self.direct_sent, before.direct_sent, now.direct_sent),
            (&self.direct_acked, before.direct_acked, now.direct_acked),
            (&self.stored_sent, before.stored_sent, now.stored_sent),
            (&self.stored_acked, before.stored_acked, now.stored_acked),
            (&self.nacks, before.nacks, now.nacks),
            (&self.registers, before.registers, now.registers),
            (&self.unregisters, before.unregisters, now.unregisters),
            (&self.saved, before.direct_saved, now.direct_saved),
        ];
        for (counter, before, now) in counted {
            if now > before {
                counter.increment(u64::from(now - before));
            }
        }
    }

    /// A connection is over.
    pub(crate) fn ended(&self, summary: &Summary) {
        counter!(names::CONNECTIONS_ENDED, "close" => summary.close.as_str()).increment(1);
        let lived = Duration::from_millis(summary.lived.as_millis());
        self.connection_seconds.record(lived.as_secs_f64());
        if summary.close == Close::Reset {
            counter!(names::AGENTS_DROPPED).increment(1);
        }
    }

    /// A post was answered.
    pub(crate) fn request(&self, took: Duration) {
        self.request_seconds.record(took.as_secs_f64());
    }

    /// A sender was believed.
    pub(crate) fn sender(&self, vapid: Option<&Vapid>) {
        let form = match vapid.map(|vapid| vapid.form) {
            None => 0,
            Some(Form::Rfc8292) => 1,
            Some(Form::Draft01) => 2,
        };
        self.senders[form].increment(1);
    }

    /// A post was accepted.
    pub(crate) fn accepted(&self, outcome: &Outcome, bytes: usize) {
        let at = match outcome {
            Outcome::Direct => 0,
            Outcome::Stored => 1,
            Outcome::Dropped => 2,
            Outcome::Refused(refusal) => return Self::refused(refusal),
        };
        let (messages, sum) = &self.accepted[at];
        messages.increment(1);
        sum.increment(bytes as u64);
    }

    /// A post was not accepted.
    pub(crate) fn refused(refusal: &Refusal) {
        let errno = refusal.errno().map_or_else(|| "none".to_owned(), |errno| errno.to_string());
        let status = refusal.status().to_string();
        counter!(names::REFUSED, "status" => status, "errno" => errno).increment(1);
    }

    /// The store could not be asked.
    pub(crate) fn store_failed(what: &'static str) {
        counter!(names::STORE_ERRORS, "operation" => what).increment(1);
    }
}
