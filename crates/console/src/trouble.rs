//! What can go wrong on the way to a page, and how a page says so.

use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;

use crate::{text, words};

/// Groups that are shown to somebody who has no rights.
const GROUPS_SHOWN: usize = 30;

/// Why there is no page.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The engine, or the API in front of it, said no.
    Refused(Refusal),
    /// Nobody is logged in, or not any more.
    LoggedOut,
    /// There is no such page, or none for this visitor.
    NotFound(&'static str),
    /// The visitor may look, but not do this.
    Forbidden(&'static str),
    /// The form is not one of this session's, or came from elsewhere.
    Foreign,
    /// The visitor is known, and none of their groups may do anything here.
    NoRights(String),
    /// The session makes more requests than it may.
    TooFast(Duration),
    /// The store does not answer.
    Away,
    /// The same, while something was to be changed.
    AwayChanging,
    /// A fault of ours.
    Fault(String),
}

/// What the API says when it says no.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) detail: String,
    pub(crate) field: Option<String>,
}

impl Trouble {
    /// For somebody in these groups.
    pub(crate) fn no_rights(name: &str, groups: &[String]) -> Self {
        let name = text::line(name, 100);
        let shown: Vec<String> =
            groups.iter().take(GROUPS_SHOWN).map(|group| text::line(group, 60)).collect();
        let groups = match (shown.len(), groups.len()) {
            (0, _) => "You are in no group.".to_owned(),
            (few, all) if few < all => {
                format!("Your groups: {}, and {} more.", shown.join(", "), all - few)
            }
            _ => format!("Your groups: {}.", shown.join(", ")),
        };
        Self::NoRights(format!(
            "You are {name}, but none of your groups has rights in this console. {groups} Whoever operates this server \
             decides which groups have."
        ))
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Refused(refusal) => {
                StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_GATEWAY)
            }
            Self::LoggedOut => StatusCode::UNAUTHORIZED,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Forbidden(_) | Self::Foreign | Self::NoRights(_) => StatusCode::FORBIDDEN,
            Self::TooFast(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Away | Self::AwayChanging => StatusCode::SERVICE_UNAVAILABLE,
            Self::Fault(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The heading of its page.
    pub(crate) fn title(&self) -> &'static str {
        match self {
            Self::Refused(refusal) if refusal.status == 404 => "Not found",
            Self::Refused(refusal) if refusal.status == 403 => "Not allowed",
            Self::Refused(_) => "That did not work",
            Self::LoggedOut => "Please log in",
            Self::NotFound(_) => "Not found",
            Self::Forbidden(_) | Self::NoRights(_) => "Not allowed",
            Self::TooFast(_) => "Too many requests",
            Self::Foreign => "Please try again",
            Self::Away | Self::AwayChanging => "The store does not answer",
            Self::Fault(_) => "Something went wrong here",
        }
    }

    /// What happened and what to do.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Refused(refusal) => match &refusal.field {
                Some(field) => format!("{field}: {}", refusal.detail),
                None => refusal.detail.clone(),
            },
            Self::LoggedOut => "Your session has ended.".to_owned(),
            Self::NotFound(what) => format!("There is no such {what}, or it is not yours to see."),
            Self::Forbidden(what) => format!("You may not do this: {what}."),
            Self::Foreign => "This form is from another session or another site. Open the page again and repeat \
                              what you did."
                .to_owned(),
            Self::Away => "Nothing is lost; what was accepted is on disk. This page tries again every five seconds."
                .to_owned(),
            Self::AwayChanging => "What you sent may not have been done. This page goes back in five seconds: look \
                                   there whether it was done before you send it again."
                .to_owned(),
            Self::NoRights(text) => text.clone(),
            Self::TooFast(wait) => {
                let wait = words::span(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1_000));
                format!(
                    "Your session asks for more pages a second than it may (console.requests_per_second). Nothing was \
                     done. Wait {wait} and load the page again."
                )
            }
            Self::Fault(detail) => detail.clone(),
        }
    }
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        match refusal.code.as_str() {
            "unavailable" => Self::Away,
            _ => Self::Refused(refusal),
        }
    }
}

impl From<posthorn_engine::Error> for Trouble {
    fn from(error: posthorn_engine::Error) -> Self {
        match error {
            posthorn_engine::Error::NotFound(what) => Self::NotFound(what),
            posthorn_engine::Error::Store(posthorn_store::Error::Unavailable { .. }) => Self::Away,
            error => Self::Fault(error.to_string()),
        }
    }
}

impl From<askama::Error> for Trouble {
    fn from(error: askama::Error) -> Self {
        Self::Fault(format!("the page could not be made: {error}"))
    }
}
