//! Sending again what failed since a time: the count first, then a job.

use std::sync::Arc;

use http::Method;
use posthorn_domain::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::endpoint::{Also, named, page};
use super::guest::Guest;
use super::say::Moment;
use crate::form::Fields;
use crate::pages::Answer;
use crate::pages::typed::{self, Wrong};
use crate::words;

const HOUR_MS: i64 = 3_600_000;

/// What would be sent again.
pub(crate) struct Counted {
    pub(crate) count: u64,
    pub(crate) text: String,
    pub(crate) since: Moment,
}

#[derive(Deserialize)]
struct Count {
    count: u64,
    complete: bool,
}

#[derive(Deserialize)]
struct Job {
    id: String,
}

/// Since when: a span before now, or a time in UTC.
fn since(form: &Fields, now: Timestamp, wrong: &str) -> Result<Timestamp, Wrong> {
    let hours = match form.get("since") {
        Some("1h") => 1,
        Some("6h") => 6,
        Some("3d") => 72,
        Some("7d") => 168,
        Some("exact") => {
            let text = form.get("from").unwrap_or_default();
            // A field of the browser gives minutes, without a zone.
            let whole = match text.len() {
                16 => format!("{text}:00Z"),
                19 => format!("{text}Z"),
                _ => text.to_owned(),
            };
            return whole.parse().map_err(|_| ("from".to_owned(), wrong.to_owned()));
        }
        _ => 24,
    };
    Ok(Timestamp::from_millis(now.as_millis() - hours * HOUR_MS))
}

/// `POST …/recover`.
pub(crate) async fn recover(guest: Arc<Guest>) -> Answer {
    let id = named(&guest)?;
    let (t, form) = (guest.t, &guest.form);
    let refused = |wrong: Wrong| Also { wrong: Some(wrong), ..Also::default() };
    // What was counted is what is sent, however long somebody thought about it.
    let counted = form.get("counted_from").and_then(|text| text.parse().ok());
    let starts = form.get("step") == Some("start") && counted.is_some();
    let from: Timestamp = match (starts, counted) {
        (true, Some(from)) => from,
        _ => match since(form, guest.now(), t.time_wrong) {
            Ok(from) => from,
            Err(wrong) => return page(&guest, refused(wrong)).await,
        },
    };
    let body: Value = json!({"from": from, "status": "failed"});
    let path = format!("/v1/subscriptions/{id}/replay");
    let in_form = |(_, detail): Wrong| ("since".to_owned(), detail);
    if starts {
        return match guest.send::<Job>(Method::POST, &path, Some(&body)).await {
            Ok(job) => Ok(guest.see(&format!("jobs/{}?done=started", job.id))),
            Err(trouble) => page(&guest, refused(in_form(typed::refused(trouble)?))).await,
        };
    }
    match guest.send::<Count>(Method::POST, &format!("{path}/count"), Some(&body)).await {
        Ok(Count { count, complete }) => {
            let number = words::number(count);
            let text = if complete { t.recover_count } else { t.recover_count_more };
            let counted =
                Counted { count, text: text.replace("{}", &number), since: Moment::new(from) };
            page(&guest, Also { counted: Some(counted), ..Also::default() }).await
        }
        Err(trouble) => page(&guest, refused(in_form(typed::refused(trouble)?))).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_give_them() {
        let now: Timestamp = "2026-11-17T12:00:00Z".parse().unwrap();
        let read = |text: &str| {
            since(&Fields::parse(text.as_bytes()), now, "wrong").map(|at| at.to_string())
        };
        assert_eq!(read("since=1h").unwrap(), "2026-11-17T11:00:00.000Z");
        assert_eq!(read("").unwrap(), "2026-11-16T12:00:00.000Z");
        assert_eq!(
            read("since=exact&from=2026-11-01T08%3A30").unwrap(),
            "2026-11-01T08:30:00.000Z"
        );
        assert!(read("since=exact&from=yesterday").is_err() && read("since=exact").is_err());
    }
}
