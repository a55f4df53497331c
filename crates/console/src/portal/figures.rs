//! Figures of an endpoint over a time: a chart drawn here, with its numbers as a table, and what attempts came to.

use posthorn_domain::{
    FailureClass, RollupCounts, RollupScope, RollupStep, SubscriptionId, Timestamp,
};

use super::guest::Guest;
use super::say::Moment;
use super::texts::Texts;
use crate::trouble::Trouble;
use crate::words;

const HOUR_MS: i64 = 3_600_000;
/// The widest chart.
const COLUMNS_MAX: usize = 56;
const COLUMN: usize = 10;

/// A range that can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Range {
    Day,
    Week,
}

impl Range {
    pub(crate) fn named(text: Option<&str>) -> Self {
        if text == Some("7d") { Self::Week } else { Self::Day }
    }

    const fn hours(self) -> i64 {
        match self {
            Self::Day => 24,
            Self::Week => 168,
        }
    }
}

/// What happened in the hours of a range, ending now.
pub(crate) async fn series(
    guest: &Guest,
    id: SubscriptionId,
    range: Range,
) -> Result<Vec<(Timestamp, RollupCounts)>, Trouble> {
    let now = guest.now();
    let from = Timestamp::from_millis(now.as_millis() - (range.hours() - 1) * HOUR_MS);
    Ok(guest.engine().series(RollupScope::Subscription(id), RollupStep::Hour, from, now).await?)
}

/// All of it together.
pub(crate) fn sum(series: &[(Timestamp, RollupCounts)]) -> RollupCounts {
    let mut all = RollupCounts::default();
    series.iter().for_each(|(_, counts)| all.add(counts));
    all
}

/// Attempts that did not succeed.
pub(crate) fn failed(counts: &RollupCounts) -> u64 {
    counts.failed.iter().sum()
}

/// What succeeded of all attempts, in percent as it is written in a language.
pub(crate) fn success(t: &Texts, counts: &RollupCounts) -> String {
    let all = counts.attempts();
    words::percent(all.saturating_sub(failed(counts)), all).replace('.', t.decimal)
}

/// How long 95 of 100 attempts took at most.
pub(crate) fn p95(t: &Texts, counts: &RollupCounts) -> String {
    let millis = counts.quantile_ms(0.95);
    millis
        .map_or_else(|| "–".to_owned(), |ms| words::span(ms.round() as u64).replace('.', t.decimal))
}

pub(crate) struct Column {
    pub(crate) x: usize,
    pub(crate) good_y: u64,
    pub(crate) good: u64,
    pub(crate) bad_y: u64,
    pub(crate) bad: u64,
}

pub(crate) struct Row {
    pub(crate) at: Moment,
    pub(crate) good: String,
    pub(crate) bad: String,
}

/// A chart: columns of a hundred, failures in front at the bottom.
pub(crate) struct Chart {
    pub(crate) columns: Vec<Column>,
    pub(crate) width: usize,
    pub(crate) rows: Vec<Row>,
    pub(crate) most: String,
    pub(crate) label: String,
    pub(crate) from: Option<Moment>,
    pub(crate) until: Option<Moment>,
}

impl Chart {
    pub(crate) fn of(t: &Texts, series: &[(Timestamp, RollupCounts)]) -> Self {
        let chunk = series.len().div_ceil(COLUMNS_MAX).max(1);
        let parts: Vec<(Timestamp, u64, u64)> = series
            .chunks(chunk)
            .filter_map(|points| {
                let (at, _) = points.first()?;
                let all = sum(points);
                let bad = failed(&all);
                Some((*at, all.attempts().saturating_sub(bad), bad))
            })
            .collect();
        let most = parts.iter().map(|(_, good, bad)| good + bad).max().unwrap_or(0);
        let scale = |count: u64| if count == 0 { 0 } else { (count * 100 / most.max(1)).max(2) };
        let columns = parts.iter().enumerate().map(|(place, (_, good, bad))| {
            let (good, bad) = (scale(*good), scale(*bad));
            let x = place * COLUMN;
            Column {
                x,
                good,
                bad,
                bad_y: 100_u64.saturating_sub(bad),
                good_y: 100_u64.saturating_sub(bad + good),
            }
        });
        let total = parts.iter().fold((0, 0), |sum, (_, good, bad)| (sum.0 + good, sum.1 + bad));
        let rows = parts.iter().filter(|(_, good, bad)| good + bad > 0).map(|(at, good, bad)| {
            Row { at: Moment::new(*at), good: words::number(*good), bad: words::number(*bad) }
        });
        Self {
            width: parts.len() * COLUMN,
            columns: columns.collect(),
            rows: rows.collect(),
            most: words::number(most),
            label: label(t, total.0 + total.1, total.1),
            from: parts.first().map(|(at, ..)| Moment::new(*at)),
            until: parts.last().map(|(at, ..)| Moment::new(*at)),
        }
    }
}

/// A chart in words.
pub(crate) fn label(t: &Texts, made: u64, failed: u64) -> String {
    t.bars_label.replacen("{}", &words::number(made), 1).replacen("{}", &words::number(failed), 1)
}

/// What attempts came to, the most frequent first: what it is called, how many, and how they are found in the list.
pub(crate) fn outcomes(
    t: &'static Texts,
    counts: &RollupCounts,
) -> Vec<(&'static str, String, Option<&'static str>)> {
    let good = counts.attempts().saturating_sub(failed(counts));
    let mut all = vec![(t.outcome_good, good, Some("2xx"))];
    for (class, count) in FailureClass::ALL.into_iter().zip(counts.failed) {
        all.push(match class {
            FailureClass::Unwanted => (t.outcome_unwanted, count, Some("2xx")),
            FailureClass::Redirect => (t.outcome_redirect, count, Some("3xx")),
            FailureClass::Refused => (t.outcome_refused, count, Some("4xx")),
            FailureClass::Broken => (t.outcome_broken, count, Some("5xx")),
            FailureClass::Timeout => (t.outcome_timeout, count, None),
            FailureClass::Connection => (t.outcome_connection, count, None),
            FailureClass::Other => (t.outcome_other, count, None),
        });
    }
    all.retain(|(_, count, _)| *count > 0);
    all.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
    all.into_iter().map(|(name, count, status)| (name, words::number(count), status)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthorn_domain::Span;

    #[test]
    fn a_chart_has_failures_at_the_bottom_and_its_numbers() {
        let t = super::super::Language::English.texts();
        let mut series = Vec::new();
        for hour in 0..168 {
            let mut counts = RollupCounts::default();
            if hour == 160 {
                for place in 0..10 {
                    counts.attempted(
                        Span::from_millis(5),
                        (place < 4).then_some(FailureClass::Broken),
                    );
                }
            }
            series.push((Timestamp::from_millis(hour * HOUR_MS), counts));
        }
        let chart = Chart::of(t, &series);
        assert_eq!((chart.columns.len(), chart.rows.len(), chart.most.as_str()), (56, 1, "10"));
        let column = chart.columns.iter().find(|column| column.bad > 0).unwrap();
        assert_eq!((column.bad, column.bad_y, column.good, column.good_y), (40, 60, 60, 0));
        assert_eq!(chart.label, "Attempts: 10, failed: 4");
        let outcomes = outcomes(t, &sum(&series));
        assert_eq!(outcomes[0].1, "6");
        assert_eq!((outcomes[1].1.as_str(), outcomes[1].2), ("4", Some("5xx")));
        assert!(Chart::of(t, &[]).columns.is_empty());
    }
}
