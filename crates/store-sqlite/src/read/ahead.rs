//! Looking ahead in a list: which of the next rows are worth reading.
//!
//! A walk visits rows one after the other, and nearly all of those in no block yet are not meant. Asked for one by one,
//! each costs a statement; asked for in ranges, a step of one.

use posthorn_store::Order;

use crate::error::Failure;

/// Rows that are asked for at once, at most.
const RANGE_MAX: i64 = 512;
/// How far behind a range the next row may be, for the walk to count as one from row to row.
const NEAR: i64 = 8;

/// The rows of a range that are worth reading, and the range itself.
pub(crate) struct Ahead {
    order: Order,
    first: i64,
    last: i64,
    worth: Vec<i64>,
}

impl Ahead {
    pub(crate) fn new(order: Order) -> Self {
        Self { order, first: 0, last: -1, worth: Vec::new() }
    }

    /// Whether a row is worth reading. `find` names, in rising order, those between two rows, both included.
    pub(crate) fn is_worth(
        &mut self,
        row: i64,
        find: impl FnOnce(i64, i64) -> Result<Vec<i64>, Failure>,
    ) -> Result<bool, Failure> {
        if !(self.first..=self.last).contains(&row) {
            (self.first, self.last) = self.range(row);
            self.worth = find(self.first, self.last)?;
        }
        Ok(self.worth.binary_search(&row).is_ok())
    }

    /// The range to ask for, with a row that is in none: longer and longer while the walk goes from row to row, so that
    /// one which jumps, or ends soon, reads nothing in vain.
    fn range(&self, row: i64) -> (i64, i64) {
        let len = self.last - self.first + 1;
        let gap = match self.order {
            Order::NewestFirst => self.first.saturating_sub(row),
            Order::OldestFirst => row.saturating_sub(self.last),
        };
        let near = len > 0 && (1..=NEAR).contains(&gap);
        let len = if near { (len * 4).min(RANGE_MAX) } else { 1 };
        match self.order {
            Order::NewestFirst => (row - len + 1, row),
            Order::OldestFirst => (row, row.saturating_add(len - 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(order: Order, rows: &[i64]) -> (Vec<i64>, Vec<(i64, i64)>) {
        let (mut ahead, mut asked) = (Ahead::new(order), Vec::new());
        let even = |(first, last): (i64, i64)| (first..=last).filter(|row| row % 2 == 0).collect();
        let worth = rows.iter().filter(|row| {
            let find = |first, last| {
                asked.push((first, last));
                Ok(even((first, last)))
            };
            ahead.is_worth(**row, find).unwrap()
        });
        (worth.copied().collect(), asked)
    }

    #[test]
    fn who_goes_from_row_to_row_asks_for_longer_and_longer_ranges() {
        let rows: Vec<i64> = (1..=1_000).collect();
        let (worth, asked) = walk(Order::OldestFirst, &rows);
        assert_eq!(worth, (2..=1_000).step_by(2).collect::<Vec<_>>());
        assert_eq!(asked, [(1, 1), (2, 5), (6, 21), (22, 85), (86, 341), (342, 853), (854, 1_365)]);

        let rows: Vec<i64> = (1..=100).rev().collect();
        let (worth, asked) = walk(Order::NewestFirst, &rows);
        assert_eq!(worth, (2..=100).rev().step_by(2).collect::<Vec<_>>());
        assert_eq!(asked, [(100, 100), (96, 99), (80, 95), (16, 79), (-240, 15)]);
    }

    #[test]
    fn who_jumps_reads_nothing_in_vain() {
        let rows = [900_i64, 500, 498, 20];
        let (worth, asked) = walk(Order::NewestFirst, &rows);
        assert_eq!(worth, [900, 500, 498, 20]);
        assert_eq!(asked, [(900, 900), (500, 500), (495, 498), (20, 20)]);
        assert_eq!(walk(Order::OldestFirst, &[i64::MAX]).1, [(i64::MAX, i64::MAX)]);
    }
}
