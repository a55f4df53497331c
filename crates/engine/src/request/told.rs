//! What a request tells a receiver in confidence, and must not be written down when it comes back:
//! receivers that fail like to repeat what they were sent, and answers are logged and kept.

use bytes::{Bytes, BytesMut};
use posthorn_domain::AttemptOutcome;
use posthorn_sealing::vault::Secret;

/// What stands for a secret in an answer. Without quotes and backslashes: JSON stays JSON.
const REMOVED: &[u8] = b"[secret removed]";
/// Shorter texts are found anywhere, and removing them would spoil answers without hiding much.
const BYTES_MIN: usize = 6;

/// The secrets of one request, as they were sent.
#[derive(Default)]
pub(crate) struct Told(Vec<Secret>);

impl Told {
    /// Remembers a secret.
    pub(super) fn add(&mut self, secret: &[u8]) {
        if secret.len() >= BYTES_MIN {
            self.0.push(Secret::from(secret));
        }
    }

    /// Removes them from what the receiver answered.
    pub(crate) fn remove_from(&self, outcome: &mut AttemptOutcome) {
        if let AttemptOutcome::Answered(answer) = outcome {
            for secret in &self.0 {
                if let Some(clean) = without(&answer.body, secret.expose()) {
                    answer.body = clean;
                }
            }
        }
    }
}

/// The body without a secret; `None` when it is not in there.
fn without(body: &[u8], secret: &[u8]) -> Option<Bytes> {
    let found = |from: usize| {
        body[from..].windows(secret.len()).position(|window| window == secret).map(|at| from + at)
    };
    let mut next = found(0)?;
    let (mut clean, mut from) = (BytesMut::with_capacity(body.len()), 0);
    loop {
        clean.extend_from_slice(&body[from..next]);
        clean.extend_from_slice(REMOVED);
        from = next + secret.len();
        match found(from) {
            Some(at) => next = at,
            None => break,
        }
    }
    clean.extend_from_slice(&body[from..]);
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
}
