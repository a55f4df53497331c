//! A visitor of the portal: whose pages they see, what their link allows, and in which language they read.

use std::ops::Deref;
use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use http::StatusCode;
use posthorn_domain::Capability;

use super::Portal;
use super::frame::{Frame, Place};
use super::look::Look;
use super::texts::{Language, Texts};
use crate::trouble::{Refusal, Trouble};
use crate::visit::{Visit, page};

/// Somebody who is in.
pub(crate) struct Guest {
    pub(crate) portal: Arc<Portal>,
    pub(crate) visit: Visit,
    pub(crate) look: Look,
    pub(crate) language: Language,
    pub(crate) t: &'static Texts,
    /// The page, as the browser knows it.
    pub(crate) here: String,
}

impl Deref for Guest {
    type Target = Visit;

    fn deref(&self) -> &Visit {
        &self.visit
    }
}

#[derive(Template)]
#[template(path = "portal/trouble.html")]
struct TroublePage {
    frame: Frame,
    text: String,
    /// What the API says, in English.
    detail: Option<String>,
}

impl Guest {
    pub(crate) fn new(portal: Arc<Portal>, visit: Visit) -> Self {
        let look = Look::read(&visit.headers);
        let asked = visit.query.get("lang").and_then(Language::named);
        let language = asked.or(look.language);
        let language = language.or_else(|| Language::accepted(&visit.headers));
        let language = language.unwrap_or(portal.options.language);
        let here = visit.uri.path_and_query().map_or("", |path| path.as_str());
        let here = here.strip_prefix("/portal").unwrap_or_default();
        let here = format!("{}{here}", portal.base);
        Self { portal, visit, look, language, t: language.texts(), here }
    }

    pub(crate) fn can(&self, capability: Capability) -> bool {
        self.session.can(capability)
    }

    /// The path of a page.
    pub(crate) fn path(&self, rest: &str) -> String {
        format!("{}/{rest}", self.portal.base)
    }

    /// On to another page, with a GET.
    pub(crate) fn see(&self, rest: &str) -> Response {
        crate::visit::see(&self.path(rest))
    }

    pub(crate) fn page(&self, status: StatusCode, html: String) -> Response {
        page(&self.headers, status, html)
    }

    /// A page that says what is wrong.
    pub(crate) async fn trouble(&self, trouble: &Trouble) -> Response {
        let t = self.t;
        let (title, text, detail) = match trouble {
            Trouble::NotFound(_) => (t.lost_title, t.lost_text, None),
            Trouble::Refused(Refusal { status: 404, .. }) => (t.lost_title, t.lost_text, None),
            Trouble::Forbidden(_)
            | Trouble::NoRights(_)
            | Trouble::Refused(Refusal { status: 403, .. }) => {
                (t.forbidden_title, t.forbidden_text, None)
            }
            Trouble::Refused(Refusal { status: 429, detail, .. }) => {
                (t.too_often_title, t.too_many_text, Some(detail.clone()))
            }
            Trouble::Refused(refusal) => {
                (t.refused_title, t.refused_text, Some(refusal.detail.clone()))
            }
            Trouble::Foreign => (t.foreign_title, t.foreign_text, None),
            Trouble::Away | Trouble::AwayChanging => (t.away_title, t.away_text, None),
            Trouble::LoggedOut => (t.ended_title, t.ended_text, None),
            Trouble::TooFast(_) => (t.too_often_title, t.too_many_text, None),
            // What went wrong within is nothing for customers.
            Trouble::Fault(_) => (t.fault_title, t.fault_text, None),
        };
        let frame = Frame::new(self, Place::Elsewhere, title).await;
        let html = TroublePage { frame, text: text.to_owned(), detail }.render();
        self.page(trouble.status(), html.unwrap_or_else(|_| title.to_owned()))
    }
}
