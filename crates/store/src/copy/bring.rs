//! Making one store equal to another.

use std::cmp::Ordering;
use std::collections::VecDeque;

use super::form::{Row, SHEETS, Sheet, Unit};
use super::sums::{Sum, Sums};
use super::{BITE_BYTES, BITE_ROWS, Reading, Writing};
use crate::Result;

/// How far a copy is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// What is being done: a sheet is copied, or compared at the end.
    pub sheet: &'static str,
    /// Whether it is the comparison at the end.
    pub checking: bool,
    /// Rows of the source that were looked at, and then of the target.
    pub done: u64,
    /// Rows to be looked at in all, as counted at the beginning.
    pub total: u64,
}

/// What a copy came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Of the source, by sheet.
    pub source: Vec<Sum>,
    /// Of the target, read at the end.
    pub target: Vec<Sum>,
    /// Rows that were written.
    pub written: u64,
    /// Units that were removed, or replaced by others.
    pub removed: u64,
    /// Rows of the source that are in no unit: they belong to nothing, or say the same as another.
    pub left_out: u64,
}

impl Report {
    /// Sheets in which the sides differ.
    pub fn differences(&self) -> Vec<&'static str> {
        let pairs = self.source.iter().zip(&self.target);
        pairs.filter(|(source, target)| source != target).map(|(source, _)| source.name).collect()
    }
}

/// Makes the target equal to the source, and reads it again.
pub async fn bring(
    source: &mut dyn Reading,
    target: &mut dyn Writing,
    tell: &mut (dyn FnMut(Progress) + Send),
) -> Result<Report> {
    let mut report = Report::default();
    let mut rows = 0;
    for sheet in SHEETS {
        rows += source.count(sheet).await?;
    }
    let mut progress = Progress { sheet: "", checking: false, done: 0, total: rows * 2 };
    for sheet in SHEETS {
        progress.sheet = sheet.name;
        let mut copying = Copying { sheet, source, target: &mut *target, report: &mut report };
        copying.run(&mut progress, tell).await?;
    }
    let found: u64 = report.source.iter().map(|sum| sum.rows).sum();
    report.left_out = rows.saturating_sub(found);
    target.derive().await?;
    progress.checking = true;
    let mut reading = target.reading().await?;
    for sheet in SHEETS {
        progress.sheet = sheet.name;
        let mut sums = Sums::default();
        reading.open(sheet).await?;
        loop {
            let units = reading.next().await?;
            if units.is_empty() {
                break;
            }
            for unit in &units {
                sums.add(sheet, unit);
                progress.done += unit.rows() as u64;
            }
            tell(progress);
        }
        report.target.extend(sums.end(sheet));
    }
    Ok(report)
}

struct Copying<'a> {
    sheet: &'static Sheet,
    source: &'a mut dyn Reading,
    target: &'a mut dyn Writing,
    report: &'a mut Report,
}

impl Copying<'_> {
    async fn run(
        &mut self,
        progress: &mut Progress,
        tell: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<()> {
        let sheet = self.sheet;
        let mut sums = Sums::default();
        let mut there = There::open(self.target, sheet).await?;
        self.source.open(sheet).await?;
        let mut changes = Changes::default();
        let mut units = self.source.next().await?;
        while !units.is_empty() {
            for unit in &units {
                sums.add(sheet, unit);
                progress.done += unit.rows() as u64;
            }
            tell(*progress);
            for unit in units {
                there.compare(sheet, unit, &mut changes).await?;
            }
            // What is next is read while this is written.
            let read = self.source.next();
            units = match changes.is_full() && !sheet.whole {
                true => {
                    let Changes { gone, new, .. } = self.report.take(&mut changes);
                    let (read, wrote) = tokio::join!(read, self.target.apply(sheet, gone, new));
                    wrote?;
                    read?
                }
                false => read.await?,
            };
        }
        there.rest(sheet, &mut changes).await?;
        if sheet.whole && !changes.is_empty() {
            changes = self.everything().await?;
        }
        if !changes.is_empty() {
            let Changes { gone, new, .. } = self.report.take(&mut changes);
            self.target.apply(sheet, gone, new).await?;
        }
        self.report.source.extend(sums.end(sheet));
        Ok(())
    }

    /// All that is there goes, and all of the source comes.
    async fn everything(&mut self) -> Result<Changes> {
        let mut changes = Changes::default();
        let mut there = There::open(self.target, self.sheet).await?;
        there.rest(self.sheet, &mut changes).await?;
        self.source.open(self.sheet).await?;
        loop {
            let units = self.source.next().await?;
            if units.is_empty() {
                return Ok(changes);
            }
            changes.new.extend(units);
        }
    }
}

impl Report {
    fn take(&mut self, changes: &mut Changes) -> Changes {
        let taken = std::mem::take(changes);
        self.written += taken.new.iter().map(|unit| unit.rows() as u64).sum::<u64>();
        self.removed += taken.gone.len() as u64;
        taken
    }
}

/// What is to be done to the target.
#[derive(Default)]
struct Changes {
    gone: Vec<Row>,
    new: Vec<Unit>,
    rows: usize,
    bytes: usize,
}

impl Changes {
    fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.new.is_empty()
    }

    fn is_full(&self) -> bool {
        self.gone.len() + self.rows >= BITE_ROWS || self.bytes >= BITE_BYTES
    }

    fn put(&mut self, unit: Unit) {
        self.rows += unit.rows();
        self.bytes += unit.size();
        self.new.push(unit);
    }
}

/// What the target has of a sheet, in order.
struct There {
    reading: Option<Box<dyn Reading>>,
    units: VecDeque<Unit>,
}

impl There {
    async fn open(target: &mut dyn Writing, sheet: &'static Sheet) -> Result<Self> {
        let mut reading = target.reading().await?;
        reading.open(sheet).await?;
        Ok(Self { reading: Some(reading), units: VecDeque::new() })
    }

    /// The first that is left. At the end of the sheet the snapshot is let go, so that a long copy into an empty store does
    /// not hold on to how it was.
    async fn first(&mut self) -> Result<Option<&Unit>> {
        if self.units.is_empty()
            && let Some(reading) = &mut self.reading
        {
            self.units = reading.next().await?.into();
            if self.units.is_empty() {
                self.reading = None;
            }
        }
        Ok(self.units.front())
    }

    /// Goes on to a unit of the source, and notes what is to be done until there.
    async fn compare(&mut self, sheet: &Sheet, unit: Unit, changes: &mut Changes) -> Result<()> {
        loop {
            let order = match self.first().await? {
                None => Ordering::Greater,
                Some(there) => sheet.key_of(&there.row).cmp(sheet.key_of(&unit.row)),
            };
            match order {
                Ordering::Greater => {
                    changes.put(unit);
                    return Ok(());
                }
                Ordering::Less => self.drop_first(sheet, changes),
                Ordering::Equal => {
                    if !same(self.units.front(), &unit) {
                        self.drop_first(sheet, changes);
                        changes.put(unit);
                    } else {
                        self.units.pop_front();
                    }
                    return Ok(());
                }
            }
        }
    }

    /// What the source does not have.
    async fn rest(&mut self, sheet: &Sheet, changes: &mut Changes) -> Result<()> {
        while self.first().await?.is_some() {
            self.drop_first(sheet, changes);
        }
        Ok(())
    }

    fn drop_first(&mut self, sheet: &Sheet, changes: &mut Changes) {
        if let Some(unit) = self.units.pop_front() {
            changes.gone.push(sheet.key_of(&unit.row).to_vec());
        }
    }
}

fn same(there: Option<&Unit>, unit: &Unit) -> bool {
    let Some(there) = there else { return false };
    // Places as well, although they need not be the same at the end: one that was translated by an earlier run may be behind
    // rows that came since.
    there.row == unit.row && there.deliveries == unit.deliveries && there.attempts == unit.attempts
}
