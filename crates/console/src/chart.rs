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
    }
}
