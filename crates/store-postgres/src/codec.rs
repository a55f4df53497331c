//! Domain values as columns, and back. What comes back is checked as strictly as what goes in: a
//! row that says what it cannot say is an error that names it, never a panic and never a guess.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use posthorn_domain::{
    AgentId, Attempt, Budget, CancelReason, ChannelId, DeadReason, Delivery, DeliveryId,
    DeliveryState, Event, EventId, EventType, FailureCode, IdempotencyKey, JobId, KeyId, Lane,
    LaneKey, MessageId, NodeId, Outcome, RedriveId, SentRequest, SessionId, Span, SubscriptionId,
    TenantId, Timestamp, Timings, TopicName, TraceContext,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

use crate::failure::Corrupt;

/// A due time that means "parked behind others".
pub(crate) const PARKED: i64 = Timestamp::MAX.as_millis();

/// Sixteen bytes in a `uuid` column.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Uid(pub(crate) [u8; 16]);

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl ToSql for Uid {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Uid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(raw.try_into()?))
    }

    accepts!(UUID);
}

macro_rules! uid {
    ($($id:ty),+) => {
        $(
            impl From<$id> for Uid {
                fn from(id: $id) -> Self {
                    Self(*id.as_bytes())
                }
            }

            impl From<Uid> for $id {
                fn from(uid: Uid) -> Self {
                    Self::from_bytes(uid.0)
                }
            }
        )+
    };
}

uid!(
    AgentId,
    ChannelId,
    DeliveryId,
    EventId,
    JobId,
    KeyId,
    MessageId,
    NodeId,
    RedriveId,
    SessionId,
    SubscriptionId,
    TenantId
);

/// The largest id, for lists without a beginning.
pub(crate) const LAST_UID: Uid = Uid([0xff; 16]);
/// The smallest id, for scans without a beginning.
pub(crate) const FIRST_UID: Uid = Uid([0; 16]);

/// A due time of a delivery that is not parked.
pub(crate) fn due(at: Timestamp) -> i64 {
    at.as_millis().min(PARKED - 1)
}

/// Text columns cannot hold the zero character.
pub(crate) fn text(value: &str) -> Cow<'_, str> {
    if value.contains('\0') {
        Cow::Owned(value.replace('\0', "\u{fffd}"))
    } else {
        Cow::Borrowed(value)
    }
}

/// A value as JSON text; control characters are escaped, so any column can hold it.
pub(crate) fn json<T: Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("domain values have string keys and cannot fail")
}

/// A limit as SQL wants it.
pub(crate) fn limit(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) const fn state_code(state: DeliveryState) -> i16 {
    match state {
        DeliveryState::Pending => 0,
        DeliveryState::InFlight => 1,
        DeliveryState::Delivered => 2,
        DeliveryState::Dead(reason) => dead_code(reason),
        DeliveryState::Cancelled(reason) => match reason {
            CancelReason::Unsubscribed => 20,
            CancelReason::Operator => 21,
            CancelReason::Dropped => 22,
        },
    }
}

pub(crate) const fn dead_code(reason: DeadReason) -> i16 {
    match reason {
        DeadReason::Exhausted => 10,
        DeadReason::Permanent => 11,
        DeadReason::Gate => 12,
        DeadReason::Expired => 13,
    }
}

pub(crate) fn state_of(code: i16) -> Option<DeliveryState> {
    let state = match code {
        0 => DeliveryState::Pending,
        1 => DeliveryState::InFlight,
        2 => DeliveryState::Delivered,
        10 => DeliveryState::Dead(DeadReason::Exhausted),
        11 => DeliveryState::Dead(DeadReason::Permanent),
        12 => DeliveryState::Dead(DeadReason::Gate),
        13 => DeliveryState::Dead(DeadReason::Expired),
        20 => DeliveryState::Cancelled(CancelReason::Unsubscribed),
        21 => DeliveryState::Cancelled(CancelReason::Operator),
        22 => DeliveryState::Cancelled(CancelReason::Dropped),
        _ => return None,
    };
    debug_assert_eq!(state_code(state), code);
    Some(state)
}

/// Reads one row, and can say which one it was.
pub(crate) struct Reader<'r> {
    row: &'r Row,
    table: &'static str,
    key: &'static str,
}

impl<'r> Reader<'r> {
    pub(crate) fn new(row: &'r Row, table: &'static str, key: &'static str) -> Self {
        Self { row, table, key }
    }

    pub(crate) fn get<T: FromSql<'r>>(&self, column: &str) -> Result<T, Corrupt> {
        self.row.try_get(column).map_err(|error| self.corrupt(column, error))
    }

    pub(crate) fn id<T: From<Uid>>(&self, column: &str) -> Result<T, Corrupt> {
        Ok(T::from(self.get::<Uid>(column)?))
    }

    pub(crate) fn time(&self, column: &str) -> Result<Timestamp, Corrupt> {
        Ok(Timestamp::from_millis(self.get(column)?))
    }

    pub(crate) fn time_maybe(&self, column: &str) -> Result<Option<Timestamp>, Corrupt> {
        Ok(self.get::<Option<i64>>(column)?.map(Timestamp::from_millis))
    }

    /// A number that is never negative.
    pub(crate) fn number<T: TryFrom<i64>>(&self, column: &str) -> Result<T, Corrupt> {
        let raw: i64 = self.get(column)?;
        T::try_from(raw).map_err(|_| self.corrupt(column, format!("{raw} is out of range")))
    }

    /// The same from a four-byte column.
    pub(crate) fn small<T: TryFrom<i32>>(&self, column: &str) -> Result<T, Corrupt> {
        let raw: i32 = self.get(column)?;
        T::try_from(raw).map_err(|_| self.corrupt(column, format!("{raw} is out of range")))
    }

    /// Text with a rule.
    pub(crate) fn name<T, E: fmt::Display>(
        &self,
        column: &str,
        rule: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, Corrupt> {
        rule(self.get(column)?).map_err(|error| self.corrupt(column, error))
    }

    pub(crate) fn json<T: DeserializeOwned>(&self, column: &str) -> Result<T, Corrupt> {
        self.name(column, |text| serde_json::from_str(text))
    }

    pub(crate) fn corrupt(&self, column: &str, problem: impl fmt::Display) -> Corrupt {
        let id = self.row.try_get::<_, Uid>(self.key).map(|uid| uid.to_string());
        let id = id.or_else(|_| self.row.try_get(self.key));
        Corrupt {
            table: self.table,
            id: id.unwrap_or_else(|_| "without an id".to_owned()),
            problem: format!("{column}: {problem}"),
        }
    }
}

pub(crate) fn lane_of(reader: &Reader<'_>, column: &str) -> Result<Option<Lane>, Corrupt> {
    match reader.get::<Option<&str>>(column)? {
        None => Ok(None),
        Some("") => Ok(Some(Lane::Subscription)),
        Some(key) => {
            let key = LaneKey::new(key).map_err(|error| reader.corrupt(column, error))?;
            Ok(Some(Lane::Key(key)))
        }
    }
}

/// A delivery, from `delivery_live` or `delivery_done`.
pub(crate) fn delivery(row: &Row) -> Result<Delivery, Corrupt> {
    let reader = Reader::new(row, "delivery", "id");
    let code: i16 = reader.get("state")?;
    let state =
        state_of(code).ok_or_else(|| reader.corrupt("state", format!("{code} is not a state")))?;
    let ended_at = reader.time_maybe("ended_at")?;
    // Below zero when one attempt is all of it: `-1 - base`.
    let base: i32 = reader.get("budget_base")?;
    let budget = if base < 0 { Budget::Once } else { Budget::Fresh };
    let base = if base < 0 { -1 - base } else { base };
    if state.is_terminal() != ended_at.is_some() {
        return Err(reader.corrupt("ended_at", "does not fit the state"));
    }
    Ok(Delivery {
        id: reader.id("id")?,
        event: reader.id("event")?,
        subscription: reader.id("subscription")?,
        tenant: reader.id("tenant")?,
        lane: lane_of(&reader, "lane")?,
        seq: reader.number("seq")?,
        state,
        due_at: reader.time("due_at")?,
        attempts: reader.small("attempts")?,
        budget_base: u32::try_from(base).unwrap_or_default(),
        budget,
        budget_began: reader.time("budget_began")?,
        revival: reader.small("revival")?,
        created_at: reader.time("created_at")?,
        ended_at,
        // A code that only a newer version knows is none.
        last_outcome: reader.get::<Option<i32>>("outcome")?.and_then(Outcome::from_code),
    })
}

/// An event whose id is in the column `key` of the row.
pub(crate) fn event(row: &Row, key: &'static str) -> Result<Event, Corrupt> {
    let reader = Reader::new(row, "event", key);
    let lane_key = match reader.get::<Option<&str>>("key")? {
        None => None,
        Some(text) => Some(LaneKey::new(text).map_err(|error| reader.corrupt("key", error))?),
    };
    Ok(Event {
        id: reader.id(key)?,
        tenant: reader.id("tenant")?,
        topic: reader.name("topic", TopicName::new)?,
        event_type: reader.name("type", EventType::new)?,
        attributes: reader.json("attributes")?,
        key: lane_key,
        content_type: reader.get::<&str>("content_type")?.to_owned(),
        payload: Bytes::copy_from_slice(reader.get("payload")?),
        accepted_at: reader.time("accepted_at")?,
        publisher_id: publisher_id(&reader)?,
        deliver_at: reader.time_maybe("deliver_at")?,
        retention: match reader.get::<Option<i64>>("retention")? {
            None => None,
            Some(_) => Some(Span::from_millis(reader.number("retention")?)),
        },
        expunged_at: reader.time_maybe("expunged_at")?,
        trace: match reader.get::<Option<&[u8]>>("trace")? {
            None => None,
            Some(bytes) => Some(
                TraceContext::from_bytes(bytes)
                    .ok_or_else(|| reader.corrupt("trace", "no place in a trace"))?,
            ),
        },
    })
}

fn publisher_id(reader: &Reader<'_>) -> Result<Option<IdempotencyKey>, Corrupt> {
    let text = reader.get::<Option<&str>>("publisher_id")?;
    let id = text.map(IdempotencyKey::new).transpose();
    id.map_err(|error| reader.corrupt("publisher_id", error))
}

/// An event, to be shared.
pub(crate) fn shared_event(row: &Row, key: &'static str) -> Result<Arc<Event>, Corrupt> {
    event(row, key).map(Arc::new)
}

pub(crate) fn attempt(row: &Row) -> Result<Attempt, Corrupt> {
    let reader = Reader::new(row, "attempt", "delivery");
    let failure = match reader.get::<Option<&str>>("failure")? {
        None => None,
        Some(code) => Some(
            FailureCode::parse(code)
                .ok_or_else(|| reader.corrupt("failure", format!("{code} is not a code")))?,
        ),
    };
    let status = match reader.get::<Option<i16>>("status")? {
        None => None,
        Some(raw) => Some(u16::try_from(raw).map_err(|error| reader.corrupt("status", error))?),
    };
    Ok(Attempt {
        delivery: reader.id("delivery")?,
        number: reader.small("number")?,
        started_at: reader.time("started_at")?,
        took: Span::from_millis(reader.number("took")?),
        timings: reader.get::<Option<&str>>("timings")?.map(Timings::from_text).unwrap_or_default(),
        status,
        failure,
        detail: reader.get::<&str>("detail")?.to_owned(),
        response: Bytes::copy_from_slice(reader.get("response")?),
        late: reader.get("late")?,
        manual: reader.get("manual")?,
        response_expunged_at: reader.time_maybe("response_expunged_at")?,
        request: reader
            .get::<Option<&str>>("request")?
            .and_then(SentRequest::from_text)
            .map(Box::new),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_survive_the_round_trip() {
        let known: Vec<i16> = (i16::MIN..=i16::MAX).filter(|c| state_of(*c).is_some()).collect();
        assert_eq!(known, [0, 1, 2, 10, 11, 12, 13, 20, 21, 22]);
        for code in known {
            assert_eq!(state_of(code).map(state_code), Some(code));
        }
    }

    #[test]
    fn ids_read_like_uuids() {
        let id = EventId::new(Timestamp::from_millis(1), 2);
        assert_eq!(Uid::from(id).to_string(), "00000000-0001-7000-8000-000000000002");
    }

    #[test]
    fn a_real_due_time_never_means_parked() {
        assert!(due(Timestamp::MAX) < PARKED);
        assert_eq!(due(Timestamp::from_millis(5)), 5);
    }
}
