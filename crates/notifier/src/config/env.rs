//! What the environment says over the file: `CALLBACK_…`.

use super::duration::IntervalError;
use super::{CallbacksConfig, ConfigError, SecretText};

const URL: &str = "CALLBACK_PAYMENT_SUCCESS_URL";
const TIMEOUT: &str = "CALLBACK_TIMEOUT";
const HEADER: &str = "CALLBACK_HEADER_";

impl CallbacksConfig {
    /// Lays the environment over what was written: `CALLBACK_PAYMENT_SUCCESS_URL`,
    /// `CALLBACK_TIMEOUT`, and `CALLBACK_HEADER_X_API_KEY` for the header `X-Api-Key`. Variables
    /// that are set to nothing say nothing.
    pub fn with_env(
        mut self,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        for (name, value) in variables {
            if value.is_empty() {
                continue;
            }
            if name == URL {
                self.payment_success_url = Some(value);
            } else if name == TIMEOUT {
                let timeout: Result<_, IntervalError> = value.parse();
                let refuse = |e: IntervalError| ConfigError::new(TIMEOUT, e.to_string());
                self.timeout = Some(timeout.map_err(refuse)?);
            } else if let Some(rest) = name.strip_prefix(HEADER) {
                let header = header_name(rest);
                self.headers.retain(|known, _| !known.eq_ignore_ascii_case(&header));
                self.headers.insert(header, SecretText::new(value));
            }
        }
        Ok(self)
    }
}

/// `X_API_KEY` as headers are usually written: `X-Api-Key`.
fn header_name(rest: &str) -> String {
    let words = rest.split('_').map(|word| {
        let mut letters = word.chars();
        let first = letters.next().map(|c| c.to_ascii_uppercase());
        first.into_iter().chain(letters.map(|c| c.to_ascii_lowercase())).collect::<String>()
    });
    words.collect::<Vec<_>>().join("-")
}
