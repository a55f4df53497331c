//! The target URL of a callback, out of the query of a request.
//!
//! Clients write it as they please: `?url=https%3A%2F%2Fhost%2Fpath`, or as it stands,
//! `?url=https://host/path`. Either is read as every reader of queries does it: up to the next `&`, and
//! decoded once.

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
    let mut values = query.split('&').filter_map(|piece| match piece.split_once('=') {
        Some(("url", value)) => Some(Ok(value)),
        None if piece == "url" => Some(Err(NoTarget::Invalid)),
        _ => None,
    });
    let value = values.next().ok_or(NoTarget::Missing)??;
    if values.next().is_some() {
        return Err(NoTarget::Invalid);
    }
    decoded(value)
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
        check("url=https://host/path&trace=1", Ok("https://host/path"));
        check("url=https://host/a%2520b", Ok("https://host/a%20b"));
        // A query of its own is seen, and refused by those who judge it.
        check("url=https://host/a?b=c&d=e", Ok("https://host/a?b=c"));
        check("url=https://host/a?", Ok("https://host/a?"));
        check("url=https%3A%2F%2Fhost%2F%3Fb%3Dc", Ok("https://host/?b=c"));
        check("url=", Ok(""));
        check("url=nonsense", Ok("nonsense"));
        check("url=https+host", Ok("https host"));
    }

    #[test]
    fn without_one_clear_target_there_is_none() {
        for missing in ["", "&", "uri=https://host/", "URL=https://host/", "xurl=https://host/"] {
            check(missing, Err(NoTarget::Missing));
        }
        for invalid in [
            "url",
            "url=%",
            "url=%zz",
            "url=%ff",
            "url=a&url=b",
            "url=a&url",
            "url=https://host/&url=https://other/",
            "url=%E2%82",
        ] {
            check(invalid, Err(NoTarget::Invalid));
        }
    }
}
