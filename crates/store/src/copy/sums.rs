//! Numbers and hashes of what was read, to be compared.

use sha2::{Digest as _, Sha256};

use super::form::{ATTEMPT, DELIVERY, EVENT, Row, Sheet, Unit, Value};

/// Of one sheet: how many rows, and a hash over all of them in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    /// The sheet.
    pub name: &'static str,
    /// Its rows.
    pub rows: u64,
    /// The SHA-256 of all values that are compared, as text.
    pub hash: String,
}

/// Counts and hashes while a sheet is read.
#[derive(Default)]
pub struct Sums {
    own: Running,
    deliveries: Running,
    attempts: Running,
}

#[derive(Default)]
struct Running {
    rows: u64,
    hash: Sha256,
}

impl Running {
    fn add(&mut self, sheet: &Sheet, row: &Row) {
        self.rows += 1;
        for (column, value) in sheet.columns.iter().zip(row) {
            if column.compared {
                add(&mut self.hash, value);
            }
        }
    }

    fn end(self, name: &'static str) -> Sum {
        let hash = self.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Sum { name, rows: self.rows, hash }
    }
}

/// No two rows give the same bytes: each value says what it is and how long.
fn add(hash: &mut Sha256, value: &Value) {
    let (kind, bytes): (u8, &[u8]) = match value {
        Value::Null => return hash.update([0]),
        Value::Int(number) => {
            hash.update([1]);
            return hash.update(number.to_be_bytes());
        }
        Value::Text(text) => (2, text.as_bytes()),
        Value::Bytes(bytes) => (3, bytes),
    };
    hash.update([kind]);
    hash.update((bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}

impl Sums {
    /// Adds the next unit of a sheet.
    pub fn add(&mut self, sheet: &Sheet, unit: &Unit) {
        self.own.add(sheet, &unit.row);
        unit.deliveries.iter().for_each(|row| self.deliveries.add(&DELIVERY, row));
        unit.attempts.iter().for_each(|row| self.attempts.add(&ATTEMPT, row));
    }

    /// What it came to; a sheet with others inside has a sum for each.
    pub fn end(self, sheet: &Sheet) -> Vec<Sum> {
        let mut sums = vec![self.own.end(sheet.name)];
        if sheet.name == EVENT.name {
            sums.push(self.deliveries.end(DELIVERY.name));
            sums.push(self.attempts.end(ATTEMPT.name));
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn hash(values: &[Value]) -> String {
        let mut running = Running::default();
        for value in values {
            add(&mut running.hash, value);
        }
        running.end("any").hash
    }

    #[test]
    fn values_that_differ_have_different_hashes() {
        let texts = |parts: &[&str]| parts.iter().map(|part| Value::text(part)).collect::<Vec<_>>();
        let different = [
            texts(&["ab", "c"]),
            texts(&["a", "bc"]),
            texts(&["abc"]),
            vec![Value::Bytes(Bytes::from_static(b"abc"))],
            vec![Value::Null, Value::text("abc")],
            vec![Value::Int(0)],
            vec![Value::Null],
            vec![],
        ];
        let hashes: std::collections::BTreeSet<String> =
            different.iter().map(|values| hash(values)).collect();
        assert_eq!(hashes.len(), different.len());
    }

    #[test]
    fn deliveries_and_attempts_have_sums_of_their_own() {
        let mut sums = Sums::default();
        let row = vec![Value::Int(1)];
        let unit = Unit { row: row.clone(), deliveries: vec![row.clone(), row], attempts: vec![] };
        sums.add(&EVENT, &unit);
        let rows: Vec<(&str, u64)> =
            sums.end(&EVENT).iter().map(|sum| (sum.name, sum.rows)).collect();
        assert_eq!(rows, [("event", 1), ("delivery", 2), ("attempt", 0)]);
    }
}
