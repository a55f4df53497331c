//! The binary mode: attributes as headers whose names begin with `ce-`, data as the body. The media type of
//! the data is that of the body. Values are percent-encoded as the HTTP binding of CloudEvents says.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::{Context, Draft, Fault, HEADER_PREFIX, SPEC_VERSION, Scalar, fault};

/// Reads a context from all headers of a request, in lower case. Those with other names are not looked at.
pub fn read<'a>(
    headers: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    content_type: Option<&str>,
) -> Result<Context, Fault> {
    let mut draft = Draft::default();
    if let Some(kind) = content_type {
        draft.take("datacontenttype", Scalar::Text(kind.to_owned()))?;
    }
    for (header, value) in headers {
        let Some(name) = header.strip_prefix(HEADER_PREFIX) else { continue };
        if matches!(name, "data" | "data_base64" | "datacontenttype") {
            return fault(name, "cannot be a header: data is the body, its type the Content-Type");
        }
        draft.take(name, Scalar::Text(decode(name, value)?))?;
    }
    draft.finish()
}

/// The headers of a context, each with its value. The media type of the data is left to the body.
pub fn write(context: &Context) -> Vec<(String, String)> {
    let mut all = vec![(format!("{HEADER_PREFIX}specversion"), SPEC_VERSION.to_owned())];
    let mut add =
        |name: &str, value: &str| all.push((format!("{HEADER_PREFIX}{name}"), encode(value)));
    add("id", &context.id);
    add("source", &context.source);
    add("type", &context.event_type);
    for (name, value) in [
        ("time", &context.time),
        ("subject", &context.subject),
        ("dataschema", &context.data_schema),
    ] {
        if let Some(value) = value {
            add(name, value);
        }
    }
    for (name, value) in &context.extensions {
        add(name, &value.to_text());
    }
    all
}

/// Spaces, quotes, percent signs and all that is not visible ASCII, as their bytes in UTF-8.
fn encode(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        if matches!(byte, b'!'..=b'~') && !matches!(byte, b'"' | b'%') {
            out.push(char::from(byte));
        } else {
            // Writing to a text cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

fn decode(name: &str, value: &[u8]) -> Result<String, Fault> {
    let value = unquoted(value);
    let mut out = Vec::with_capacity(value.len());
    let mut rest = &value[..];
    while let [first, more @ ..] = rest {
        if *first != b'%' {
            out.push(*first);
            rest = more;
            continue;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16);
        match more {
            [high, low, more @ ..] if digit(*high).is_some() && digit(*low).is_some() => {
                let byte = digit(*high).unwrap_or_default() * 16 + digit(*low).unwrap_or_default();
                out.push(byte as u8);
                rest = more;
            }
            _ => {
                return fault(name, "has a percent sign without two hexadecimal digits; write %25");
            }
        }
    }
    String::from_utf8(out).or_else(|_| fault(name, "must be UTF-8, percent-encoded"))
}

/// The inside of a quoted text; anything else as it is.
fn unquoted(value: &[u8]) -> Cow<'_, [u8]> {
    let Some(inside) = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")) else {
        return Cow::Borrowed(value);
    };
    let mut out = Vec::with_capacity(inside.len());
    let mut bytes = inside.iter();
    while let Some(byte) = bytes.next() {
        let byte = if *byte == b'\\' { bytes.next().unwrap_or(byte) } else { byte };
        out.push(*byte);
    }
    Cow::Owned(out)
}
