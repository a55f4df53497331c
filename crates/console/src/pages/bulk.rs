//! What is done to deliveries that were selected, one by one through the API. The number is asked first, on a page of its own.
//! What is done to all that match is a job: [`super::matching`].

use std::sync::Arc;

use askama::Template;
use http::{Method, StatusCode};
use posthorn_domain::DeliveryId;

use super::Answer;
use super::deliveries::{FILTER, list_of};
use crate::form::Fields;
use crate::frame::{Frame, Place, home};
use crate::trouble::{Refusal, Trouble};
use crate::visit::{Visit, page};
use crate::words;

/// Rows that are selected at once, at most.
const SELECTED_MAX: usize = 100;

/// What can be done to deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Retry,
    Cancel,
    Forget,
}

impl Act {
    pub(super) fn read(form: &Fields) -> Self {
        match form.get("act") {
            Some("cancel") => Self::Cancel,
            Some("forget") => Self::Forget,
            _ => Self::Retry,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Cancel => "cancel",
            Self::Forget => "forget",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Retry => "Retry the selected deliveries",
            Self::Cancel => "Cancel the selected deliveries",
            Self::Forget => "Delete the selected deliveries",
        }
    }

    pub(super) const fn what(self) -> &'static str {
        match self {
            Self::Retry => {
                "Each is tried again now; its attempts and its age count from zero. One that was delivered is delivered \
                 once more."
            }
            Self::Cancel => {
                "No further attempts start. Those that have ended already stay as they are."
            }
            Self::Forget => {
                "Each is removed with all its attempts, for good. One that is on its way is cancelled first. The events stay."
            }
        }
    }

    /// The word of the button, and how it looks.
    pub(super) const fn button(self) -> (&'static str, &'static str) {
        match self {
            Self::Retry => ("Retry them", "main-action"),
            Self::Cancel => ("Cancel them", "danger"),
            Self::Forget => ("Delete them for good", "danger"),
        }
    }

    const fn past(self) -> &'static str {
        match self {
            Self::Retry => "tried again",
            Self::Cancel => "cancelled",
            Self::Forget => "deleted",
        }
    }

    fn call(self, id: DeliveryId) -> (Method, String) {
        match self {
            Self::Retry => (Method::POST, format!("/v1/deliveries/{id}/retry")),
            Self::Cancel => (Method::POST, format!("/v1/deliveries/{id}/cancel")),
            Self::Forget => (Method::DELETE, format!("/v1/deliveries/{id}")),
        }
    }
}

#[derive(Template)]
#[template(path = "selected.html")]
struct SelectedPage {
    frame: Frame,
    base: String,
    /// The filter of the list, as a query.
    query: String,
    /// The list one came from.
    back: String,
    /// Where all that match are meant, when more are selected than may be.
    too_many: Option<String>,
    max: usize,
    ids: Vec<String>,
    act: &'static str,
    what: &'static str,
    button: &'static str,
    class: &'static str,
    done: bool,
    said: String,
    failed: Vec<(String, String)>,
}

/// `POST …/deliveries/selected`: asks first, and does it when told to.
pub(crate) async fn selected(visit: Arc<Visit>) -> Answer {
    let act = Act::read(&visit.form);
    let base = home(visit.tenant()?);
    let mut ids: Vec<DeliveryId> = Vec::new();
    // Not called `id`: a field of that name hides the id of its form from scripts.
    for text in visit.form.all("delivery") {
        let id = text.parse().map_err(|_| Trouble::NotFound("delivery"))?;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    let too_many = (ids.len() > SELECTED_MAX).then(|| {
        let fixed: &[(&str, &str)] = match visit.query.get("back") {
            Some(_) => &[("act", act.name()), ("state", "dead")],
            None => &[("act", act.name())],
        };
        format!("{base}/deliveries/matching?{}", visit.query.query(&FILTER, fixed))
    });
    let done = visit.form.is_checked("sure") && too_many.is_none();
    let (mut failed, mut did) = (Vec::new(), 0_u64);
    for id in ids.iter().filter(|_| done) {
        let (method, path) = act.call(*id);
        match visit.send_bytes(method, &path, None).await {
            Ok(_) => did += 1,
            Err(Trouble::Refused(Refusal { detail, .. })) => failed.push((id.to_string(), detail)),
            Err(trouble) => return Err(trouble),
        }
    }
    let rest = match failed.len() {
        0 => String::new(),
        left => format!(" {left} could not be."),
    };
    let (button, class) = act.button();
    let status = if too_many.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let html = SelectedPage {
        frame: Frame::new(&visit, Place::Deliveries, act.title())
            .await
            .below(format!("{base}/deliveries"), "Deliveries"),
        query: visit.query.query(&[&FILTER[..], &["cursor", "back"]].concat(), &[]),
        back: list_of(&base, &visit.query),
        said: format!(
            "{} {} {}.{rest}",
            words::number(did),
            if did == 1 { "was" } else { "were" },
            act.past()
        ),
        ids: ids.iter().map(ToString::to_string).collect(),
        act: act.name(),
        what: act.what(),
        base,
        button,
        class,
        done,
        failed,
        too_many,
        max: SELECTED_MAX,
    };
    Ok(page(&visit.headers, status, html.render()?))
}
