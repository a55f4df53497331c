//! What the lists of events, deliveries and attempts have in common on the command line.

use posthorn_domain::{Clock, Span, Timestamp};

use crate::clock::WallClock;

/// Which part of a list, in which order.
#[derive(clap::Args, Clone, Debug)]
pub struct Part {
    /// Between which times.
    #[command(flatten)]
    period: Period,
    /// The oldest first
    #[arg(long)]
    oldest: bool,
}

/// Between which times.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct Period {
    /// Nothing before this time: 2026-01-31T12:00:00Z, or 2h for two hours ago
    #[arg(long, value_name = "TIME", value_parser = moment)]
    from: Option<Timestamp>,
    /// Nothing at or after this time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<Timestamp>,
}

impl Part {
    /// As parameters of the API.
    pub(super) fn query(&self) -> Vec<(&'static str, String)> {
        let mut query = self.period.query();
        query.extend(self.oldest.then(|| ("order", "oldest".to_owned())));
        query
    }
}

impl Period {
    /// As parameters of the API.
    pub(super) fn query(&self) -> Vec<(&'static str, String)> {
        let times = [("from", self.from), ("until", self.until)];
        times.into_iter().filter_map(|(name, at)| Some((name, at?.to_string()))).collect()
    }
}

/// What attempts came to.
#[derive(clap::Args, Clone, Debug)]
pub struct Outcome {
    /// Only what was answered with this status or class: 404, 5xx
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// Only what was not answered, with this failure code: connect_failed …
    #[arg(long, value_name = "CODE", conflicts_with = "status")]
    failure: Option<String>,
}

impl Outcome {
    /// As parameters of the API.
    pub(super) fn query(&self) -> Vec<(&'static str, String)> {
        given(&[("status", &self.status), ("failure", &self.failure)])
    }
}

/// Parameters that were given.
pub(super) fn given(pairs: &[(&'static str, &Option<String>)]) -> Vec<(&'static str, String)> {
    pairs.iter().filter_map(|(name, value)| Some((*name, (*value).clone()?))).collect()
}

/// Where a subscription begins: an event, or a time.
pub(super) fn start(text: &str) -> anyhow::Result<serde_json::Value> {
    if text.starts_with("evt_") {
        return Ok(serde_json::json!({"event": text}));
    }
    let time = moment(text).map_err(|problem| anyhow::anyhow!("--start {problem}"))?;
    Ok(serde_json::json!({"time": time.to_string()}))
}

/// A time, or how long ago.
pub(super) fn moment(text: &str) -> Result<Timestamp, String> {
    if let Ok(ago) = text.parse::<Span>() {
        return Ok(WallClock.now().minus(ago));
    }
    text.parse().map_err(|_| {
        "must be a time such as 2026-01-31T12:00:00Z, or a duration such as 2h for two hours ago".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_moments_or_durations() {
        assert_eq!(
            moment("2026-01-31T12:00:00Z").map(|at| at.to_string()),
            Ok("2026-01-31T12:00:00.000Z".into())
        );
        let (hour, minute) = (moment("1h").expect("ago"), moment("1m").expect("ago"));
        assert!(hour < minute);
        assert!(moment("yesterday").is_err());
    }
}
