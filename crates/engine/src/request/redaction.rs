//! What a request tells a receiver in confidence, and must not be written down when it comes back:
//! receivers that fail like to repeat what they were sent, and answers are logged and kept.

use bytes::{Bytes, BytesMut};
use posthorn_domain::AttemptOutcome;
use posthorn_sealing::vault::Secret;

/// What stands for a secret in an answer. Without quotes and backslashes: JSON stays JSON.
const REMOVED: &[u8] = b"[secret removed]";
/// What stands for each digit of a secret that is a number, such as a one-time code. It may be found
/// inside a number of the answer by chance, and the answer must still be read as it was: not `0`,
/// with which no number of JSON may begin. The second is for a secret that is made of the first.
const DIGITS: [u8; 2] = *b"12";
/// Shorter texts are found anywhere, and removing them would spoil answers without hiding much.
const BYTES_MIN: usize = 6;

/// The secrets of one request, as they were sent.
#[derive(Default)]
pub(crate) struct Redaction(Vec<Secret>);

impl Redaction {
    /// Remembers a secret.
    pub(crate) fn add(&mut self, secret: &[u8]) {
        if secret.len() >= BYTES_MIN {
            self.0.push(Secret::from(secret));
        }
    }

    /// Whether one of them stands in a text.
    pub(crate) fn is_in(&self, text: &[u8]) -> bool {
        self.0.iter().any(|secret| without(text, secret.expose()).is_some())
    }

    /// Removes them from what the receiver answered.
    pub(crate) fn apply(&self, outcome: &mut AttemptOutcome) {
        if let AttemptOutcome::Answered(answer) = outcome {
            for secret in &self.0 {
                if let Some(clean) = without(&answer.body, secret.expose()) {
                    answer.body = clean;
                }
            }
        }
    }
}

/// The body without a secret; `None` when it is not in there. Bodies are cut at a limit, so the
/// beginning of a secret at the end counts as well.
fn without(body: &[u8], secret: &[u8]) -> Option<Bytes> {
    let found = |from: usize| {
        body[from..].windows(secret.len()).position(|window| window == secret).map(|at| from + at)
    };
    let is_number = secret.iter().all(u8::is_ascii_digit);
    let digit = DIGITS[usize::from(secret.iter().all(|byte| *byte == DIGITS[0]))];
    let remove = |clean: &mut BytesMut, length: usize| match is_number {
        true => clean.resize(clean.len() + length, digit),
        false => clean.extend_from_slice(REMOVED),
    };
    let mut clean = BytesMut::new();
    let mut from = 0;
    while let Some(at) = found(from) {
        clean.extend_from_slice(&body[from..at]);
        remove(&mut clean, secret.len());
        from = at + secret.len();
    }
    let rest = &body[from..];
    let cut = (BYTES_MIN..secret.len()).rev().find(|length| rest.ends_with(&secret[..*length]));
    if from == 0 && cut.is_none() {
        return None;
    }
    clean.extend_from_slice(&rest[..rest.len() - cut.unwrap_or_default()]);
    if let Some(length) = cut {
        remove(&mut clean, length);
    }
    Some(clean.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_occurrence_is_removed_and_nothing_else() {
        let clean = |body: &str| without(body.as_bytes(), b"abcabc");
        assert_eq!(clean(""), None);
        assert_eq!(clean("abcab"), None);
        assert_eq!(clean("abcabc").as_deref(), Some(REMOVED));
        let expected = b"x [secret removed]abc,[secret removed] y";
        assert_eq!(clean("x abcabcabc,abcabc y").as_deref(), Some(&expected[..]));
    }

    #[test]
    fn a_secret_that_was_cut_off_at_the_end_is_removed_too() {
        let clean = |body: &str| without(body.as_bytes(), b"a123456789");
        assert_eq!(clean("x a1234567").as_deref(), Some(&b"x [secret removed]"[..]));
        let both = clean("a123456789 a12345");
        assert_eq!(both.as_deref(), Some(&b"[secret removed] [secret removed]"[..]));
        assert_eq!(clean("x a1234"), None, "so little tells nothing");
        assert_eq!(clean("a12345678 x"), None);
    }

    #[test]
    fn a_code_of_digits_leaves_numbers_numbers() {
        let clean = |body: &str| without(body.as_bytes(), b"123456");
        assert_eq!(clean("{\"at\":9123456789}").as_deref(), Some(&b"{\"at\":9111111789}"[..]));
        assert_eq!(clean("{\"at\":1234567}").as_deref(), Some(&b"{\"at\":1111117}"[..]));
        assert_eq!(clean("x 12345"), None);
        assert_eq!(without(b"x 111111", b"111111").as_deref(), Some(&b"x 222222"[..]));
    }
}
