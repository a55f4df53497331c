//! How a message of Web Push is shown: as requests are, as far as it has the same parts.

use posthorn_agent::Notification;
use posthorn_domain::{Problem, Timestamp};
use serde_json::{Value, json};

use crate::terminal::{self, Paint};

/// One message, to be shown.
pub(super) struct Pushed<'a> {
    pub(super) number: u64,
    pub(super) at: Timestamp,
    pub(super) notification: &'a Notification,
    /// Its text, or why it does not open.
    pub(super) opened: &'a Result<Vec<u8>, Problem>,
    /// What it is acknowledged with.
    pub(super) code: u16,
}

impl Pushed<'_> {
    fn body(&self) -> Option<String> {
        let text = self.opened.as_ref().ok()?;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    pub(super) fn as_json(&self) -> std::io::Result<()> {
        terminal::data(json!({
            "number": self.number,
            "at": self.at,
            "method": "PUSH",
            "channel": self.notification.channel,
            "version": self.notification.version,
            "headers": self.notification.headers,
            "body": self.body(),
            "verified": self.opened.is_ok(),
            "problem": self.opened.as_ref().err().map(Problem::as_str),
            "answered": self.code,
        }))
    }

    pub(super) fn as_text(&self) -> std::io::Result<()> {
        let paint = Paint::stdout();
        let body = self.body().unwrap_or_default();
        let event: Value = serde_json::from_str(&body).unwrap_or_default();
        let part = |name: &str| match event.get(name).and_then(Value::as_str) {
            Some(text) => terminal::clean(text).to_string(),
            None => "-".to_owned(),
        };
        let state = match self.opened {
            Ok(_) => paint.good("decrypted"),
            Err(problem) => paint.bad(format!("does not open: {problem}")),
        };
        terminal::data(format_args!(
            "{} #{} {} {} {} {} {state} → {}",
            paint.dim(self.at),
            self.number,
            paint.bold("PUSH"),
            part("topic"),
            part("type"),
            part("id"),
            if self.opened.is_ok() { paint.good(self.code) } else { paint.warn(self.code) },
        ))?;
        if body.is_empty() {
            return Ok(());
        }
        let payload = event.get("payload").map(Value::to_string).unwrap_or(body);
        terminal::data(format_args!("  {}", terminal::clean(&payload)))
    }
}
