//! Between the domain's values and columns. Reading checks what writing promised.

use bytes::Bytes;
use posthorn_domain::{
    Budget, CancelReason, DeadReason, DeliveryState, JobState, Lane, LaneKey, RedriveState,
    SHARD_COUNT, Shard, Timestamp,
};

use crate::error::Corrupt;

/// "Not until something else happens".
pub(crate) const NEVER: i64 = Timestamp::MAX.as_millis();

/// A number for SQLite, which has none above `i64::MAX`. Counters never get there.
pub(crate) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The due time of a delivery that is not parked: the last moment itself means parked.
pub(crate) fn due(at: Timestamp) -> i64 {
    at.as_millis().min(NEVER - 1)
}

/// JSON text of a value that always has one: maps with text keys, lists, and the domain's enums.
pub(crate) fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("the domain's types have a JSON form")
}

/// How the number of attempts before a budget is stored, with which budget it is: below zero when one attempt is all of it.
pub(crate) fn base_code(base: u32, budget: Budget) -> i64 {
    match budget {
        Budget::Fresh => i64::from(base),
        Budget::Once => -1 - i64::from(base),
    }
}

/// The number of attempts before a budget, and which budget it is.
pub(crate) fn base_of(code: i64) -> Option<(u32, Budget)> {
    let budget = if code < 0 { Budget::Once } else { Budget::Fresh };
    let base = if code < 0 { -1 - code } else { code };
    Some((u32::try_from(base).ok()?, budget))
}

pub(crate) const fn state_code(state: DeliveryState) -> i64 {
    match state {
        DeliveryState::Pending => 0,
        DeliveryState::InFlight => 1,
        DeliveryState::Delivered => 2,
        DeliveryState::Dead(reason) => dead_code(reason),
        DeliveryState::Cancelled(CancelReason::Unsubscribed) => 20,
        DeliveryState::Cancelled(CancelReason::Operator) => 21,
        DeliveryState::Cancelled(CancelReason::Dropped) => 22,
    }
}

pub(crate) const fn dead_code(reason: DeadReason) -> i64 {
    match reason {
        DeadReason::Exhausted => 10,
        DeadReason::Permanent => 11,
        DeadReason::Gate => 12,
        DeadReason::Expired => 13,
    }
}

pub(crate) const fn state_of(code: i64) -> Option<DeliveryState> {
    Some(match code {
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
    })
}

pub(crate) const fn redrive_code(state: RedriveState) -> i64 {
    match state {
        RedriveState::Running => 0,
        RedriveState::Done => 1,
        RedriveState::Cancelled => 2,
    }
}

pub(crate) const fn redrive_state_of(code: i64) -> Option<RedriveState> {
    Some(match code {
        0 => RedriveState::Running,
        1 => RedriveState::Done,
        2 => RedriveState::Cancelled,
        _ => return None,
    })
}

pub(crate) const fn job_code(state: JobState) -> i64 {
    match state {
        JobState::Running => 0,
        JobState::Done => 1,
        JobState::Cancelled => 2,
        JobState::Failed => 3,
    }
}

pub(crate) const fn job_state_of(code: i64) -> Option<JobState> {
    Some(match code {
        0 => JobState::Running,
        1 => JobState::Done,
        2 => JobState::Cancelled,
        3 => JobState::Failed,
        _ => return None,
    })
}

pub(crate) fn lane_of(text: &str) -> Option<Lane> {
    match text {
        "" => Some(Lane::Subscription),
        key => LaneKey::new(key).ok().map(Lane::Key),
    }
}

/// The number of a new subscription in `shard`, after the greatest one so far.
pub(crate) fn subscription_no(greatest: i64, shard: Shard) -> i64 {
    let count = i64::from(SHARD_COUNT);
    (greatest / count + 1) * count + i64::from(shard.number())
}

/// Reads columns of one row and knows how to complain about it.
pub(crate) struct Columns<'r, 's> {
    row: &'r rusqlite::Row<'s>,
    table: &'static str,
    /// The column that tells which row it is.
    key: usize,
}

impl<'r, 's> Columns<'r, 's> {
    pub(crate) fn of(row: &'r rusqlite::Row<'s>, table: &'static str, key: usize) -> Self {
        Self { row, table, key }
    }

    pub(crate) fn corrupt(&self, problem: impl std::fmt::Display) -> Corrupt {
        let row = match self.row.get_ref(self.key) {
            Ok(rusqlite::types::ValueRef::Integer(number)) => number.to_string(),
            Ok(rusqlite::types::ValueRef::Text(text)) => String::from_utf8_lossy(text).into_owned(),
            Ok(rusqlite::types::ValueRef::Blob(bytes)) => {
                bytes.iter().map(|byte| format!("{byte:02x}")).collect()
            }
            _ => "unknown".to_owned(),
        };
        Corrupt { table: self.table, row, problem: problem.to_string() }
    }

    fn get<T: rusqlite::types::FromSql>(&self, column: usize) -> Result<T, Corrupt> {
        self.row.get(column).map_err(|error| self.corrupt(error))
    }

    pub(crate) fn int(&self, column: usize) -> Result<i64, Corrupt> {
        self.get(column)
    }

    pub(crate) fn maybe_int(&self, column: usize) -> Result<Option<i64>, Corrupt> {
        self.get(column)
    }

    pub(crate) fn number<T: TryFrom<i64>>(&self, column: usize) -> Result<T, Corrupt> {
        let value = self.int(column)?;
        T::try_from(value).map_err(|_| self.corrupt(format_args!("{value} is out of range")))
    }

    pub(crate) fn time(&self, column: usize) -> Result<Timestamp, Corrupt> {
        self.int(column).map(Timestamp::from_millis)
    }

    pub(crate) fn maybe_time(&self, column: usize) -> Result<Option<Timestamp>, Corrupt> {
        Ok(self.maybe_int(column)?.map(Timestamp::from_millis))
    }

    pub(crate) fn text(&self, column: usize) -> Result<&'r str, Corrupt> {
        let value = self.row.get_ref(column).map_err(|error| self.corrupt(error))?;
        value.as_str().map_err(|error| self.corrupt(error))
    }

    pub(crate) fn maybe_text(&self, column: usize) -> Result<Option<&'r str>, Corrupt> {
        let value = self.row.get_ref(column).map_err(|error| self.corrupt(error))?;
        value.as_str_or_null().map_err(|error| self.corrupt(error))
    }

    pub(crate) fn bytes(&self, column: usize) -> Result<Bytes, Corrupt> {
        let value = self.row.get_ref(column).map_err(|error| self.corrupt(error))?;
        let blob = value.as_blob_or_null().map_err(|error| self.corrupt(error))?;
        Ok(blob.map(Bytes::copy_from_slice).unwrap_or_default())
    }

    pub(crate) fn maybe_bytes(&self, column: usize) -> Result<Option<Bytes>, Corrupt> {
        let value = self.row.get_ref(column).map_err(|error| self.corrupt(error))?;
        let blob = value.as_blob_or_null().map_err(|error| self.corrupt(error))?;
        Ok(blob.map(Bytes::copy_from_slice))
    }

    pub(crate) fn array<const N: usize>(&self, column: usize) -> Result<[u8; N], Corrupt> {
        let value = self.row.get_ref(column).map_err(|error| self.corrupt(error))?;
        let blob = value.as_blob().map_err(|error| self.corrupt(error))?;
        blob.try_into().map_err(|_| self.corrupt(format_args!("{} bytes for {N}", blob.len())))
    }

    pub(crate) fn maybe_array<const N: usize>(
        &self,
        column: usize,
    ) -> Result<Option<[u8; N]>, Corrupt> {
        let value = self.row.get_ref(column).map_err(|error| self.corrupt(error))?;
        match value {
            rusqlite::types::ValueRef::Null => Ok(None),
            _ => self.array(column).map(Some),
        }
    }

    pub(crate) fn json<T: serde::de::DeserializeOwned>(&self, column: usize) -> Result<T, Corrupt> {
        serde_json::from_str(self.text(column)?).map_err(|error| self.corrupt(error))
    }

    pub(crate) fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
        &self,
        column: usize,
    ) -> Result<T, Corrupt> {
        self.text(column)?.parse().map_err(|error| self.corrupt(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip() {
        for code in 0..64 {
            if let Some(state) = state_of(code) {
                assert_eq!(state_code(state), code);
                assert_eq!(state.is_terminal(), code >= 2);
                let dead = matches!(state, DeliveryState::Dead(_));
                assert_eq!(dead, (10..20).contains(&code));
            }
            if let Some(state) = redrive_state_of(code) {
                assert_eq!(redrive_code(state), code);
            }
        }
    }

    #[test]
    fn subscription_numbers_grow_and_carry_the_shard() {
        let mut greatest = 0;
        for shard in Shard::all().chain(Shard::all()) {
            let no = subscription_no(greatest, shard);
            assert!(no > greatest);
            assert_eq!(no % i64::from(SHARD_COUNT), i64::from(shard.number()));
            greatest = no;
        }
    }

    #[test]
    fn a_due_time_is_never_the_parked_one() {
        assert_eq!(due(Timestamp::MAX), NEVER - 1);
        assert_eq!(due(Timestamp::from_millis(5)), 5);
    }
}
