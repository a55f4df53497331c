//! Are you sure? A page between a button and what cannot be taken back, which works without scripts.
//!
//! The form is shown again with a field more, and does what it says only with that.

use askama::Template;
use http::StatusCode;

use super::Answer;
use crate::form::TOKEN_FIELD;
use crate::frame::{Frame, Place};
use crate::visit::{Visit, page};

/// The field that says so.
const SURE: &str = "sure";

/// What is asked.
pub(crate) struct Question<'q> {
    pub(crate) place: Place,
    /// The heading: a question.
    pub(crate) title: &'q str,
    /// What happens then.
    pub(crate) text: &'q str,
    /// What the button says.
    pub(crate) button: &'q str,
    /// Where one goes who is not sure.
    pub(crate) back: String,
}

#[derive(Template)]
#[template(path = "sure.html")]
struct SurePage<'q> {
    frame: Frame,
    action: String,
    fields: Vec<(&'q str, &'q str)>,
    question: Question<'q>,
}

/// Asks, unless that was answered.
pub(crate) async fn ask(visit: &Visit, question: Question<'_>) -> Option<Answer> {
    if visit.form.is_checked(SURE) {
        return None;
    }
    let fields = visit.form.pairs().filter(|(name, _)| *name != TOKEN_FIELD).collect();
    let html = SurePage {
        frame: Frame::new(visit, question.place, question.title).await,
        action: visit.uri.path().to_owned(),
        fields,
        question,
    };
    let html = html.render();
    Some(html.map(|html| page(&visit.headers, StatusCode::OK, html)).map_err(Into::into))
}
