//! Notifications: addresses that are told when an endpoint fails, is disabled, or works again.
//!
//! Such an address is a subscription to what the server tells about itself in this tenant, so it is signed, retried and
//! shown like an endpoint.

use std::sync::Arc;

use askama::Template;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::endpoint_new::{SecretPage, check_url};
use super::endpoints::{self, OPERATIONAL};
use super::frame::{Frame, Place};
use super::guest::Guest;
use super::say;
use crate::pages::Answer;
use crate::pages::show::Shown;
use crate::pages::subscriptions::Given;
use crate::pages::typed::{self, Typed, Wrong};
use crate::trouble::Trouble;

/// What such an address is told of.
pub(crate) const TYPES: [&str; 3] =
    ["subscription.failing", "subscription.disabled", "subscription.recovered"];

struct Line {
    id: String,
    place: String,
    shown: Shown,
}

#[derive(Template)]
#[template(path = "portal/notifications.html")]
struct NotificationsPage {
    frame: Frame,
    form: Typed,
    lines: Vec<Line>,
}

/// `GET /portal/notifications`.
pub(crate) async fn show(guest: Arc<Guest>) -> Answer {
    page(&guest, None).await
}

async fn page(guest: &Guest, wrong: Option<Wrong>) -> Answer {
    let (t, tenant) = (guest.t, guest.tenant()?.id);
    let mut lines = Vec::new();
    for view in guest.engine().catalog().subscriptions(tenant) {
        let own = &view.subscription;
        if !endpoints::is_notification(&own.filter) {
            continue;
        }
        let state = guest.engine().subscription_state(tenant, own.id).await;
        let status = match &own.status {
            posthorn_domain::SubscriptionStatus::Active => "active",
            posthorn_domain::SubscriptionStatus::Paused => "paused",
            posthorn_domain::SubscriptionStatus::Disabled { .. } => "disabled",
        };
        lines.push(Line {
            id: own.id.to_string(),
            place: endpoints::place(guest, &own.destination),
            shown: say::endpoint(t, status, state.failing_since.is_some()),
        });
    }
    let form = Typed::new(&["url"], guest.form.clone()).wrong(wrong);
    let status = form.status();
    let frame = Frame::new(guest, Place::Notifications, t.notifications).await;
    Ok(guest.page(status, NotificationsPage { frame, form, lines }.render()?))
}

/// `POST /portal/notifications`.
pub(crate) async fn create(guest: Arc<Guest>) -> Answer {
    let url = match check_url(guest.t, guest.form.get("url")) {
        Ok(url) => url,
        Err(wrong) => return page(&guest, Some(wrong)).await,
    };
    let body: Value =
        json!({"url": url, "filter": {"any_of": [{"topics": [OPERATIONAL], "types": TYPES}]}});
    let made: Result<Given, Trouble> =
        guest.send(Method::POST, "/v1/subscriptions", Some(&body)).await;
    match made {
        Ok(made) => {
            let mut html =
                SecretPage::new(&guest, made.id.to_string(), made.signing_secret, true).await;
            html.frame = Frame::new(&guest, Place::Notifications, guest.t.notify_title)
                .await
                .below("notifications", guest.t.notifications);
            html.step = false;
            html.lead = guest.t.secret_once;
            Ok(guest.page(StatusCode::OK, html.render()?))
        }
        Err(trouble) => page(&guest, Some(typed::refused(trouble)?)).await,
    }
}
