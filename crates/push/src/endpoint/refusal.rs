//! Why a post is not accepted, in the form that senders know.

use std::borrow::Cow;

use posthorn_sealing::{push_headers, vapid};
use serde::Serialize;

/// Where senders expect an explanation of the numbers. They compare it; nobody fetches it.
pub const MORE_INFO: &str = "http://autopush.readthedocs.io/en/latest/http.html#error-codes";
/// For how long whoever asks again about something that is gone may keep the answer.
pub const GONE_MAX_AGE_SECONDS: u32 = 86_400;
/// When to try again after a failure of ours.
pub const RETRY_AFTER_SECONDS: u32 = 120;

/// A refused request: status, number, and a sentence for whoever reads logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    status: u16,
    errno: Option<u16>,
    message: Cow<'static, str>,
}

#[derive(Serialize)]
struct Body<'a> {
    code: u16,
    errno: Option<u16>,
    error: &'static str,
    message: &'a str,
    more_info: &'static str,
}

impl Refusal {
    const fn fixed(status: u16, errno: Option<u16>, message: &'static str) -> Self {
        Self { status, errno, message: Cow::Borrowed(message) }
    }

    /// A URL that is no endpoint, or one of other keys.
    pub const fn not_found() -> Self {
        Self::fixed(404, Some(102), "there is no such endpoint")
    }

    /// The agent or the channel is gone, for good.
    pub const fn gone() -> Self {
        Self::fixed(410, Some(106), "the subscription does not exist any more")
    }

    /// The agent went away while its message was being stored.
    pub const fn agent_vanished() -> Self {
        Self::fixed(410, Some(105), "the subscriber does not exist any more")
    }

    /// A body that is too large.
    pub fn too_large(bytes: u64, bytes_max: usize) -> Self {
        Self {
            status: 413,
            errno: Some(104),
            message: format!("the body has {bytes} bytes, more than {bytes_max}").into(),
        }
    }

    /// A body that broke off or came too slowly.
    pub const fn broken_body() -> Self {
        Self::fixed(400, None, "the body broke off, or came too slowly")
    }

    /// An `Urgency` that is none.
    pub const fn urgency() -> Self {
        Self::fixed(400, None, "the Urgency header must be one of very-low, low, normal, high")
    }

    /// A message's name that cannot be opened.
    pub const fn bad_message_name() -> Self {
        Self::fixed(400, None, "there is no such message")
    }

    /// The message could not be stored; later it might be.
    pub const fn not_stored() -> Self {
        Self::fixed(503, Some(201), "the message could not be stored, please try again later")
    }

    /// Something else could not be looked up; later it might be.
    pub const fn unavailable() -> Self {
        Self::fixed(503, None, "the server is busy, please try again later")
    }

    /// The HTTP status.
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// The number that tells apart what shares a status.
    pub const fn errno(&self) -> Option<u16> {
        self.errno
    }

    /// What is wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The body of the answer. That of a 404 is empty: senders know it so.
    pub fn body(&self) -> String {
        if self.status == 404 {
            return String::new();
        }
        let body = Body {
            code: self.status,
            errno: self.errno,
            error: self.reason(),
            message: &self.message,
            more_info: MORE_INFO,
        };
        // Texts and numbers always have a JSON form.
        serde_json::to_string(&body).unwrap_or_default()
    }

    /// The headers of the answer, besides those of every answer.
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = Vec::with_capacity(2);
        if self.status != 404 {
            headers.push(("Content-Type", "application/json".to_owned()));
        }
        match self.status {
            410 => headers.push(("Cache-Control", format!("max-age={GONE_MAX_AGE_SECONDS}"))),
            // The rest of the body was not read.
            413 => headers.push(("Connection", "close".to_owned())),
            503 => headers.push(("Retry-After", RETRY_AFTER_SECONDS.to_string())),
            _ => {}
        }
        headers
    }

    const fn reason(&self) -> &'static str {
        match self.status {
            400 => "Bad Request",
            401 => "Unauthorized",
            404 => "Not Found",
            410 => "Gone",
            413 => "Payload Too Large",
            _ => "Service Unavailable",
        }
    }
}

impl From<vapid::VapidRefusal> for Refusal {
    fn from(refusal: vapid::VapidRefusal) -> Self {
        let errno = refusal.errno();
        let status = if errno == 109 { 401 } else { 400 };
        Self { status, errno: Some(errno), message: refusal.to_string().into() }
    }
}

impl From<push_headers::HeaderRefusal> for Refusal {
    fn from(refusal: push_headers::HeaderRefusal) -> Self {
        Self { status: 400, errno: Some(refusal.errno()), message: refusal.to_string().into() }
    }
}
