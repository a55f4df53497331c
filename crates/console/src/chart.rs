//! Small pictures: bars of a row as SVG, and the table of a chart.

use posthorn_domain::{RollupCounts, Timestamp};

/// One bar: how high it is of a hundred, and whether it shows failures.
pub(crate) struct Bar {
    pub(crate) x: usize,
    pub(crate) y: u64,
    pub(crate) height: u64,
    pub(crate) class: &'static str,
}

/// Bars over a range of time: what was attempted in each part, red where most of it failed.
pub(crate) struct Bars {
    pub(crate) bars: Vec<Bar>,
    pub(crate) width: usize,
    /// The same in words.
    pub(crate) label: String,
}

/// Bars that fit into a row.
const BARS: usize = 20;
const STEP: usize = 5;

impl Bars {
    /// Of a series, however many points it has.
    pub(crate) fn of(points: &[(Timestamp, RollupCounts)]) -> Self {
        let chunk = points.len().div_ceil(BARS).max(1);
        let sums: Vec<(u64, u64)> = points
            .chunks(chunk)
            .map(|points| {
                let made = points.iter().map(|(_, counts)| counts.attempts()).sum();
                let failed =
                    points.iter().map(|(_, counts)| counts.failed.iter().sum::<u64>()).sum();
                (made, failed)
            })
            .collect();
        let most = sums.iter().map(|(made, _)| *made).max().unwrap_or(0).max(1);
        let bar = |(place, (made, failed)): (usize, &(u64, u64))| {
            // Something happened: it can be seen.
            let height = if *made == 0 { 0 } else { (made * 100 / most).max(8) };
            let class = if failed * 2 > *made { "f-bad" } else { "f-good" };
            Bar { x: place * STEP, y: 100 - height, height, class }
        };
        let (made, failed) = sums.iter().fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1));
        let label = format!(
            "{} attempts, {} failed",
            crate::words::number(made),
            crate::words::number(failed)
        );
        Self { bars: sums.iter().enumerate().map(bar).collect(), width: sums.len() * STEP, label }
    }
}

impl Bars {
    /// What was published in each part of a range.
    pub(crate) fn published(points: &[(Timestamp, RollupCounts)]) -> Self {
        let chunk = points.len().div_ceil(BARS).max(1);
        let sums: Vec<u64> = points
            .chunks(chunk)
            .map(|points| points.iter().map(|(_, counts)| counts.published).sum())
            .collect();
        let most = sums.iter().copied().max().unwrap_or(0).max(1);
        let bar = |(place, sum): (usize, &u64)| {
            let height = if *sum == 0 { 0 } else { (sum * 100 / most).max(8) };
            Bar { x: place * STEP, y: 100 - height, height, class: "f-soft" }
        };
        let label = format!("{} published", crate::words::number(sums.iter().sum()));
        Self { bars: sums.iter().enumerate().map(bar).collect(), width: sums.len() * STEP, label }
    }

    /// How long nineteen of twenty attempts took at most, in each part of a range.
    pub(crate) fn p95(points: &[(Timestamp, RollupCounts)]) -> Self {
        let chunk = points.len().div_ceil(BARS).max(1);
        let took: Vec<u64> = points
            .chunks(chunk)
            .map(|points| {
                let mut all = RollupCounts::default();
                points.iter().for_each(|(_, counts)| all.add(counts));
                all.quantile_ms(0.95).map_or(0, |ms| ms.round() as u64)
            })
            .collect();
        let most = took.iter().copied().max().unwrap_or(0).max(1);
        let bar = |(place, took): (usize, &u64)| {
            let height = if *took == 0 { 0 } else { (took * 100 / most).max(8) };
            Bar { x: place * STEP, y: 100 - height, height, class: "f-soft" }
        };
        let label = format!("p95 up to {}", crate::words::span(most));
        Self { bars: took.iter().enumerate().map(bar).collect(), width: took.len() * STEP, label }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthorn_domain::{FailureClass, Span};

    #[test]
    fn a_row_has_few_bars_and_shows_what_failed() {
        let mut points = Vec::new();
        for minute in 0..60 {
            let mut counts = RollupCounts::default();
            for _ in 0..minute {
                let failed = (minute < 30).then_some(FailureClass::ALL[0]);
                counts.attempted(Span::from_millis(5), failed);
            }
            points.push((Timestamp::from_millis(minute * 60_000), counts));
        }
        let bars = Bars::of(&points);
        assert_eq!(bars.bars.len(), 20);
        assert_eq!(bars.width, 100);
        assert!(bars.bars[..10].iter().all(|bar| bar.class == "f-bad"));
        assert!(bars.bars[10..].iter().all(|bar| bar.class == "f-good"));
        assert_eq!(bars.bars[19].height, 100);
        assert_eq!(bars.label, "1,770 attempts, 435 failed");
        assert!(Bars::of(&[]).bars.is_empty());
        let slow = Bars::p95(&points);
        assert_eq!((slow.bars.len(), slow.bars[19].height), (20, 100));
        assert_eq!(slow.label, "p95 up to 5 ms");
        points.iter_mut().for_each(|(_, counts)| counts.published = 2);
        let published = Bars::published(&points);
        assert_eq!((published.bars.len(), published.label.as_str()), (20, "120 published"));
    }
}
