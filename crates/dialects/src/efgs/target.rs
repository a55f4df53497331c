//! The target URL of a callback, out of the query of a request.
//!
//! Clients write it as they please: `?url=https%3A%2F%2Fhost%2Fpath`, or as it stands,
//! `?url=https://host/path`. One that stands as it is goes on to the end of the query, so that a
//! query of its own is seen as such, and is refused, instead of being cut off.

use std::fmt;

/// Why there is no target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTarget {
    /// The parameter is not there.
    Missing,
    /// It is there, but is not text, or more than one.
    Invalid,
}

impl fmt::Display for NoTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "the query parameter url is missing",
            Self::Invalid => "the query parameter url is not a text",
        })
    }
}

/// The target that a query names. Whether it is a URL that may be used is for others to say.
pub fn target(query: &str) -> Result<String, NoTarget> {
    let mut found = None;
    let mut rest = Some(query);
    while let Some(text) = rest {
        let (piece, after) = match text.split_once('&') {
            Some((piece, after)) => (piece, Some(after)),
            None => (text, None),
        };
        if let Some(value) = piece.strip_prefix("url=") {
            if found.is_some() {
                return Err(NoTarget::Invalid);
            }
            if stands_as_it_is(value) {
                return Ok(text["url=".len()..].to_owned());
            }
            found = Some(decoded(value)?);
        } else if piece == "url" {
            return Err(NoTarget::Invalid);
        }
        rest = after;
    }
    found.ok_or(NoTarget::Missing)
}

/// Whether a value begins like a URL, without any encoding.
fn stands_as_it_is(value: &str) -> bool {
    let Some((scheme, _)) = value.split_once("://") else { return false };
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

/// Undoes the encoding of forms.
fn decoded(value: &str) -> Result<String, NoTarget> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digit = |byte: Option<u8>| {
                    byte.and_then(|byte| char::from(byte).to_digit(16)).ok_or(NoTarget::Invalid)
                };
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                // Two hex digits are at most 255.
                bytes.push((high << 4 | low) as u8);
            }
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| NoTarget::Invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, expected: Result<&str, NoTarget>) {
        assert_eq!(target(query).as_deref().map_err(|e| *e), expected, "{query}");
    }

    #[test]
    fn targets_are_read_encoded_or_as_they_stand() {
        check("url=https://host/path", Ok("https://host/path"));
        check("url=https%3A%2F%2Fhost%2Fpath", Ok("https://host/path"));
        check("url=HTTPS%3a//host/a%20b", Ok("HTTPS://host/a b"));
        check("version=1&url=https://host/path", Ok("https://host/path"));
        check("url=https%3A%2F%2Fhost%2F&version=1", Ok("https://host/"));
        // What belongs to the target is not cut off.
        check("url=https://host/a?b=c&d=e", Ok("https://host/a?b=c&d=e"));
        check("url=https://host/a%2Fb?", Ok("https://host/a%2Fb?"));
        check("url=https%3A%2F%2Fhost%2F%3Fb%3Dc", Ok("https://host/?b=c"));
        check("url=https://host/&url=https://other/", Ok("https://host/&url=https://other/"));
        check("url=", Ok(""));
        check("url=nonsense", Ok("nonsense"));
        check("url=https+host", Ok("https host"));
    }

    #[test]
    fn without_one_clear_target_there_is_none() {
        for missing in ["", "&", "uri=https://host/", "URL=https://host/", "xurl=https://host/"] {
            check(missing, Err(NoTarget::Missing));
        }
        for invalid in ["url", "url=%", "url=%zz", "url=%ff", "url=a&url=b", "url=%E2%82"] {
            check(invalid, Err(NoTarget::Invalid));
        }
    }
}
