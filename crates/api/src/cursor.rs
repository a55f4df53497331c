//! Cursors: where a list goes on, opaque to clients.
//!
//! Inside: a version, which list it belongs to, and the last item's id or name. A cursor gives no
//! rights, so it needs no signature: whatever it says, a list shows the caller's tenant only.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::problem::{Problem, Result};

const VERSION: u8 = 1;
/// Longest cursor worth decoding: a topic's name of 128 bytes, in base 64.
const TEXT_MAX: usize = 200;

/// Which list a cursor belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum List {
    Events = 1,
    Topics = 2,
    Subscriptions = 3,
    Deliveries = 4,
    Redrives = 5,
    Tenants = 6,
    Keys = 7,
    Certificates = 8,
}

/// The cursor behind an item.
pub(crate) fn encode(list: List, last: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(2 + last.len());
    bytes.extend_from_slice(&[VERSION, list as u8]);
    bytes.extend_from_slice(last);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// What a cursor of this list points behind.
pub(crate) fn decode(list: List, text: &str) -> Result<Vec<u8>> {
    if text.len() <= TEXT_MAX
        && let Ok(bytes) = URL_SAFE_NO_PAD.decode(text)
        && let [VERSION, kind, last @ ..] = bytes.as_slice()
        && *kind == list as u8
    {
        return Ok(last.to_vec());
    }
    Err(broken())
}

/// The same, for lists that go by id.
pub(crate) fn decode_id(list: List, text: &str) -> Result<[u8; 16]> {
    decode(list, text)?.try_into().map_err(|_| broken())
}

fn broken() -> Problem {
    Problem::field("cursor", "not a cursor of this list; use the value of `next` unchanged")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_come_back_and_belong_to_one_list() {
        let text = encode(List::Events, &[7; 16]);
        assert_eq!(decode_id(List::Events, &text).expect("it is one"), [7; 16]);
        for bad in ["", "x", "AQ", "!!!!", &text[1..], &text[..5], &"A".repeat(4_000)] {
            assert!(decode_id(List::Events, bad).is_err(), "{bad}");
        }
        assert!(decode_id(List::Deliveries, &text).is_err());
        assert!(decode_id(List::Events, &encode(List::Events, &[7; 15])).is_err());
    }
}
