//! What an attempt sent, as it is written down with it: without secrets, without the body, and bounded.
//!
//! What must not be written down is decided by who builds requests; here it is only kept.

use serde::{Deserialize, Serialize};

/// The most that is written down of one request, in bytes.
pub const SENT_REQUEST_BYTES_MAX: usize = 4 * 1024;
/// The most of one value, in characters.
const VALUE_CHARS_MAX: usize = 512;

/// A request as it was sent, or was to be sent when there was no connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentRequest {
    /// Its method.
    pub method: String,
    /// Where to, as far as it may be shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Its headers in order of their names; without a value where that is secret.
    pub headers: Vec<(String, Option<String>)>,
    /// How long its body was.
    pub body_bytes: u64,
    /// Whether something was too long to be written down.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

impl SentRequest {
    /// Cuts it to what may be written down: long values first, then headers from the end.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let values = self.headers.iter_mut().filter_map(|(_, value)| value.as_mut());
        for text in values.chain(self.url.as_mut()) {
            if let Some((end, _)) = text.char_indices().nth(VALUE_CHARS_MAX) {
                text.truncate(end);
                text.push('…');
                self.cut = true;
            }
        }
        while self.to_text().len() > SENT_REQUEST_BYTES_MAX && self.headers.pop().is_some() {
            self.cut = true;
        }
        self
    }

    /// As stores keep it.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Back from what a store kept. What cannot be read counts as not kept.
    pub fn from_text(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(headers: usize, value: &str) -> SentRequest {
        let header = |n: usize| (format!("x-{n:03}"), Some(value.to_owned()));
        SentRequest {
            method: "POST".to_owned(),
            url: Some("https://h/".to_owned()),
            headers: (0..headers).map(header).chain([("z-secret".to_owned(), None)]).collect(),
            body_bytes: 7,
            cut: false,
        }
    }

    #[test]
    fn what_fits_is_kept_whole_and_comes_back() {
        let whole = request(5, "é \"quoted\"");
        assert_eq!(whole.clone().bounded(), whole);
        assert_eq!(SentRequest::from_text(&whole.to_text()), Some(whole));
        let without = r#"{"method":"POST","headers":[["a",null]],"body_bytes":0}"#;
        let read = SentRequest::from_text(without).expect("without what is optional");
        assert_eq!((read.url, read.cut), (None, false));
        assert_eq!(SentRequest::from_text("{"), None);
    }

    #[test]
    fn what_is_too_long_is_cut_and_says_so() {
        for large in
            [request(400, "v"), request(3, &"é\\".repeat(9_000)), request(1, &"x".repeat(513))]
        {
            let cut = large.bounded();
            assert!(cut.cut && cut.to_text().len() <= SENT_REQUEST_BYTES_MAX, "{cut:?}");
            assert!(!cut.headers.is_empty());
        }
    }
}
