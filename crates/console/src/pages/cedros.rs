//! Cedros: webhooks, and those that failed for good (its DLQ). A webhook is a delivery, under the id of that.

use std::sync::Arc;

use askama::Template;
use http::StatusCode;
use posthorn_domain::{DeliveryId, SubscriptionId, Timestamp};
use serde::Deserialize;

use super::Answer;
use super::show::{Listed, Named, Shown, Time};
use super::systems;
use crate::frame::{Frame, Place, home};
use crate::text;
use crate::trouble::Trouble;
use crate::visit::{Visit, page};
use crate::words;

/// A delivery, as far as these lists show it.
#[derive(Deserialize)]
struct Delivery {
    id: DeliveryId,
    subscription: SubscriptionId,
    state: String,
    reason: Option<String>,
    attempts_made: u32,
    created_at: Timestamp,
}

struct Webhook {
    id: String,
    short: String,
    to: Named,
    shown: Shown,
    attempts: u32,
    made: Time,
}

#[derive(Template)]
#[template(path = "cedros.html")]
struct CedrosPage {
    frame: Frame,
    base: String,
    counts: Vec<(&'static str, String)>,
    lists: Vec<(&'static str, &'static str, &'static str, Vec<Webhook>)>,
}

/// `GET …/cedros`.
pub(crate) async fn show(visit: Arc<Visit>) -> Answer {
    let tenant = systems::check(&visit, Place::Cedros)?;
    let dead = lines(&visit, "/v1/dead-letters?limit=15").await?;
    let all = lines(&visit, "/v1/deliveries?limit=15").await?;
    let html = CedrosPage {
        frame: Frame::new(&visit, Place::Cedros, "Cedros webhooks").await,
        base: home(&tenant),
        counts: systems::counts(&visit).await?,
        lists: vec![
            ("webhooks", "Webhooks", "deliveries", all),
            ("dlq", "DLQ", "dead-letters", dead),
        ],
    };
    Ok(page(&visit.headers, StatusCode::OK, html.render()?))
}

async fn lines(visit: &Visit, path: &str) -> Result<Vec<Webhook>, Trouble> {
    let list: Listed<Delivery> = visit.get(path).await?;
    let (tenant, now) = (visit.tenant()?.id, visit.now());
    let line = |delivery: &Delivery| Webhook {
        id: delivery.id.to_string(),
        short: words::short(&delivery.id.to_string()),
        to: Named::find(visit.engine(), tenant, delivery.subscription),
        shown: status(&delivery.state, delivery.reason.as_deref()),
        attempts: delivery.attempts_made,
        made: Time::new(delivery.created_at, now),
    };
    Ok(list.items.iter().map(line).collect())
}

/// In the words of its admin endpoints.
fn status(state: &str, reason: Option<&str>) -> Shown {
    let (class, word) = match state {
        "pending" => ("wait", "pending"),
        "in_flight" => ("wait", "processing"),
        "delivered" => ("good", "success"),
        _ => ("bad", "failed"),
    };
    match reason {
        Some(reason) => {
            Shown::new(class, format!("{word}, {}", text::line(reason, 40).replace('_', " ")))
        }
        None => Shown::new(class, word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_the_words_of_cedros() {
        assert_eq!(status("in_flight", None), Shown::new("wait", "processing"));
        assert_eq!(status("dead", Some("exhausted")), Shown::new("bad", "failed, exhausted"));
        assert_eq!(status("delivered", None), Shown::new("good", "success"));
    }
}
