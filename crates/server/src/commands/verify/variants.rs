//! A body as it may have been before something on the way changed it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::IgnoredAny;
use serde_json::Value;

/// Every guess, with what must have happened for it to be right.
pub(super) fn variants(body: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let mut all = Vec::new();
    let mut add = |what, bytes: Vec<u8>| {
        if bytes != body {
            all.push((what, bytes));
        }
    };
    add("white space was added at its end", body.trim_ascii_end().to_vec());
    add("white space was added around it", body.trim_ascii().to_vec());
    add("a line end was cut off", [body, b"\n"].concat());
    add("a line end was cut off", [body, b"\r\n"].concat());
    if let Some(rest) = body.strip_prefix("\u{feff}".as_bytes()) {
        add("a byte order mark was put before it", rest.to_vec());
    }
    let Ok(text) = std::str::from_utf8(body) else { return all };
    let unix = text.replace("\r\n", "\n");
    add("its line ends were changed to LF", unix.replace('\n', "\r\n").into_bytes());
    add("its line ends were changed to CR LF", unix.into_bytes());
    if let Ok(decoded) = STANDARD.decode(text.trim()) {
        add("it was encoded as base64", decoded);
    }
    if serde_json::from_str::<IgnoredAny>(text).is_err() {
        return all;
    }
    if let Ok(inner) = serde_json::from_str::<String>(text) {
        add("it was put into a JSON string", inner.into_bytes());
    }
    let again = "it was parsed and written again as JSON";
    for style in [Style::Compact, Style::Spaced, Style::Indented(2), Style::Indented(4)] {
        add(again, restyle(text, style).into_bytes());
    }
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        add(again, value.to_string().into_bytes());
    }
    all
}

/// How JSON is laid out.
#[derive(Clone, Copy)]
enum Style {
    /// `{"a":1,"b":[]}`
    Compact,
    /// `{"a": 1, "b": []}`, as several languages write it.
    Spaced,
    /// One item a line, with so many blanks a level.
    Indented(usize),
}

/// The same JSON, laid out anew: every name, number and string stays as it is written, and in its
/// place. The text is known to be JSON.
fn restyle(text: &str, style: Style) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let mut depth = 0;
    let mut chars = text.chars().filter(|c| !c.is_ascii_whitespace()).peekable();
    // Blanks inside of strings count, so strings are copied from the text itself.
    let mut strings = strings(text).into_iter();
    let line = |out: &mut String, depth: usize| {
        if let Style::Indented(blanks) = style {
            out.push('\n');
            out.push_str(&" ".repeat(blanks * depth));
        }
    };
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                let string = strings.next().unwrap_or_default();
                out.push_str(string);
                let length = string.chars().filter(|c| !c.is_ascii_whitespace()).count();
                chars.by_ref().take(length - 1).for_each(drop);
            }
            '{' | '[' => {
                out.push(c);
                if matches!(chars.peek(), Some('}' | ']')) {
                    out.extend(chars.next());
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth -= 1;
                line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                if matches!(style, Style::Spaced) {
                    out.push(' ');
                }
                line(&mut out, depth);
            }
            ':' => {
                out.push(c);
                if !matches!(style, Style::Compact) {
                    out.push(' ');
                }
            }
            c => out.push(c),
        }
    }
    out
}

/// The strings of a JSON text, with their quotes, in order.
fn strings(text: &str) -> Vec<&str> {
    let mut all = Vec::new();
    let mut begin = None;
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match (begin, byte) {
            (None, b'"') => begin = Some(at),
            (Some(_), _) if escaped => escaped = false,
            (Some(_), b'\\') => escaped = true,
            (Some(from), b'"') => {
                all.push(&text[from..=at]);
                begin = None;
            }
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_laid_out_anew_without_being_changed() {
        let text = "{ \"b\" :1.50,\n\"a a\\\" :\":[ ], \"c\": [1,{\"d\" :{} }], \"ä ,\":null}";
        assert_eq!(
            restyle(text, Style::Compact),
            r#"{"b":1.50,"a a\" :":[],"c":[1,{"d":{}}],"ä ,":null}"#
        );
        assert_eq!(
            restyle(text, Style::Spaced),
            r#"{"b": 1.50, "a a\" :": [], "c": [1, {"d": {}}], "ä ,": null}"#
        );
        let pretty = restyle(text, Style::Indented(2));
        assert!(
            pretty.starts_with("{\n  \"b\": 1.50,\n  \"a a\\\" :\": [],\n  \"c\": [\n    1,\n")
        );
        assert_eq!(restyle(&pretty, Style::Compact), restyle(text, Style::Compact));
        for plain in ["1", "\"a b\"", "true", "[]"] {
            assert_eq!(restyle(plain, Style::Spaced), plain);
        }
    }

    #[test]
    fn usual_changes_are_undone() {
        let before = "{\"a\":1,\r\n\"b\": 2}";
        for after in [
            format!("{before}\n"),
            format!(" {before}\r\n"),
            format!("\u{feff}{before}"),
            before.replace("\r\n", "\n"),
            STANDARD.encode(before),
            Value::from(before).to_string(),
        ] {
            let found = variants(after.as_bytes()).iter().any(|(_, v)| v == before.as_bytes());
            assert!(found, "{after:?}");
        }
        let written = variants(b"{\n  \"b\": 1,\n  \"a\": [\n    2\n  ]\n}");
        assert!(written.iter().any(|(_, v)| v == br#"{"b":1,"a":[2]}"#), "the order is kept");
        assert!(variants(b"\xff\xfe").len() < 4);
    }
}
