//! The header `traceparent`: read once more by its grammar, with other means.

use posthorn_domain::TraceContext;

pub(super) const WORDS: &[&str] = &[
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
    "00-",
    "ff-",
    "fe-",
    "-01",
    "-00",
    "-",
    "00000000000000000000000000000000",
    "0000000000000000",
    "A",
    "\u{e9}",
    " ",
];

pub(super) fn check(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let read = TraceContext::parse(text);
    assert_eq!(read.map(|context| context.to_string()), reread(text), "{text:?}");
    let Some(context) = read else { return false };
    assert_eq!(TraceContext::parse(&context.to_string()), Some(context), "{text:?}");
    assert_eq!(TraceContext::from_bytes(&context.to_bytes()), Some(context), "{text:?}");
    true
}

/// What the header must be read as: its fields between dashes, as W3C Trace Context lists them.
fn reread(text: &str) -> Option<String> {
    let fields: Vec<&str> = text.split('-').collect();
    let (known, more) = fields.split_at_checked(4)?;
    let lower = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    let lengths = [2, 32, 16, 2];
    let proper = known
        .iter()
        .zip(lengths)
        .all(|(field, length)| field.chars().all(lower) && field.chars().count() == length);
    let (version, trace, span) = (known[0], known[1], known[2]);
    let nothing = |field: &str| u128::from_str_radix(field, 16) == Ok(0);
    if !proper || version == "ff" || nothing(trace) || nothing(span) {
        return None;
    }
    if version == "00" && !more.is_empty() {
        return None;
    }
    let flags = u8::from_str_radix(known[3], 16).ok()? % 4;
    Some(format!("00-{trace}-{span}-0{flags}"))
}
