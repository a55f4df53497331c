//! Text of strangers on a page: payloads, headers, responses, names.
//!
//! Templates escape what they are given, so nothing of it is ever markup. Here it is bounded, and what cannot be seen, or
//! makes other characters seem to stand elsewhere, is written as an escape.

/// So much of a payload or a response is shown.
pub(crate) const SHOWN_MAX: usize = 64 << 10;

/// As it can be read: what has no shape as an escape. Lines and tabs stay.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\t' => shown.push(character),
            '\r' => shown.push_str("\\r"),
            // Control characters, and those that turn the direction of what follows or have no width.
            character
                if character.is_control()
                    || matches!(character,
                        '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
                        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}') =>
            {
                shown.push_str(&character.escape_unicode().to_string());
            }
            character => shown.push(character),
        }
    }
    shown
}

/// The same on one line, and not longer than so many characters.
pub(crate) fn line(text: &str, max: usize) -> String {
    let one: String = text.chars().take(max + 1).collect();
    let mut shown = visible(&one).replace(['\n', '\t'], " ");
    if one.chars().count() > max {
        shown = shown.chars().take(max).collect();
        shown.push('…');
    }
    shown
}

/// A body as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Body {
    /// What can be read of it.
    pub(crate) text: String,
    /// How long all of it is.
    pub(crate) bytes: usize,
    /// Whether there is more of it than is shown.
    pub(crate) cut: bool,
    /// Whether it is shown in hexadecimal because it is no text.
    pub(crate) binary: bool,
}

impl Body {
    /// Of bytes; JSON is indented, its numbers and strings as they were written.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let cut = bytes.len() > SHOWN_MAX;
        let Ok(text) = std::str::from_utf8(bytes) else {
            return Self { text: hexadecimal(bytes), bytes: bytes.len(), cut, binary: true };
        };
        let text = match cut {
            true => {
                let end = (0..=SHOWN_MAX).rev().find(|at| text.is_char_boundary(*at));
                visible(&text[..end.unwrap_or(0)])
            }
            false => match is_json(text) {
                true => visible(&indented(text)),
                false => visible(text),
            },
        };
        Self { text, bytes: bytes.len(), cut, binary: false }
    }
}

impl Body {
    /// The same as it came: nothing is indented, and what cannot be seen is written as an escape, ends of lines too.
    pub(crate) fn raw(bytes: &[u8]) -> Self {
        let cut = bytes.len() > SHOWN_MAX;
        let Ok(text) = std::str::from_utf8(bytes) else { return Self::of(bytes) };
        let end = (0..=SHOWN_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
        let text = text[..end.unwrap_or(0)].replace('\\', "\\\\");
        let text = visible(&text).replace('\t', "\\t").replace('\n', "\\n\n");
        Self { text, bytes: bytes.len(), cut, binary: false }
    }
}

fn is_json(text: &str) -> bool {
    let begins = text.trim_start().starts_with(['{', '[']);
    begins && serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok()
}

/// JSON over several lines. Goes by brackets, commas and colons outside of strings, so that what was written stays as
/// it was: a number with twenty digits has twenty digits.
pub(crate) fn indented(json: &str) -> String {
    const DEPTH_MAX: usize = 64;
    let mut out = String::with_capacity(json.len() * 2);
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    let mut characters = json.chars().peekable();
    let break_line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth.min(DEPTH_MAX)));
    };
    while let Some(character) = characters.next() {
        if in_string {
            out.push(character);
            in_string = escaped || character != '"';
            escaped = !escaped && character == '\\';
            continue;
        }
        match character {
            '"' => {
                in_string = true;
                out.push('"');
            }
            '{' | '[' => {
                out.push(character);
                while characters.next_if(|next| next.is_ascii_whitespace()).is_some() {}
                let close = if character == '{' { '}' } else { ']' };
                match characters.next_if_eq(&close) {
                    Some(close) => out.push(close),
                    None => {
                        depth += 1;
                        break_line(&mut out, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                break_line(&mut out, depth);
                out.push(character);
            }
            ',' => {
                out.push(',');
                break_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            other if other.is_ascii_whitespace() => {}
            other => out.push(other),
        }
    }
    out
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (row, chunk) in bytes[..bytes.len().min(SHOWN_MAX / 16)].chunks(16).enumerate() {
        let hex: Vec<String> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String = chunk
            .iter()
            .map(|byte| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '.' })
            .collect();
        out.push_str(&format!("{:06x}  {:<47}  {text}\n", row * 16, hex.join(" ")));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_escaped() {
        assert_eq!(visible("a\u{0}b\u{1b}[31m\r\n\tc"), "a\\u{0}b\\u{1b}[31m\\r\n\tc");
        assert_eq!(visible("user\u{202e}gpj.exe"), "user\\u{202e}gpj.exe");
        assert_eq!(visible("ein Müller, 東京 🎺"), "ein Müller, 東京 🎺");
        assert_eq!(line("one\ntwo\tthree", 9), "one two t…");
        assert_eq!(line("short", 5), "short");
    }

    #[test]
    fn json_keeps_what_was_written() {
        let body =
            Body::of(br#"{"id":12345678901234567890.10,"s":"a,\"b\":{","e":[],"o":{ },"l":[1,2]}"#);
        let wanted = "{\n  \"id\": 12345678901234567890.10,\n  \"s\": \"a,\\\"b\\\":{\",\n  \"e\": [],\n  \
                      \"o\": {},\n  \"l\": [\n    1,\n    2\n  ]\n}";
        assert_eq!(body.text, wanted);
        assert!(!body.cut && !body.binary);
    }

    #[test]
    fn raw_bytes_are_shown_as_they_came() {
        assert_eq!(
            Body::raw(b"{\"a\":1,\t\"b\": 2}\r\n\x00").text,
            "{\"a\":1,\\t\"b\": 2}\\r\\n\n\\u{0}"
        );
        assert_eq!(
            Body::raw(br"a\nb").text,
            r"a\\nb",
            "what was written is told from what is escaped"
        );
        assert!(Body::raw(&[0xff, 0x00]).binary);
        let large = Body::raw("é".repeat(SHOWN_MAX).as_bytes());
        assert!(large.cut && large.text.len() <= SHOWN_MAX && large.bytes == 2 * SHOWN_MAX);
    }

    #[test]
    fn what_is_no_json_stays_as_it_is() {
        assert_eq!(Body::of(b"{broken, json").text, "{broken, json");
        assert_eq!(Body::of(b"<script>alert(1)</script>").text, "<script>alert(1)</script>");
    }

    #[test]
    fn large_and_binary_bodies_are_bounded() {
        let large = Body::of(&vec![b'x'; SHOWN_MAX + 1]);
        assert!(large.cut && large.text.len() == SHOWN_MAX && large.bytes == SHOWN_MAX + 1);
        let split = Body::of("é".repeat(SHOWN_MAX).as_bytes());
        assert!(split.cut && split.text.len() <= SHOWN_MAX);
        let binary = Body::of(&[0xff, 0xfe, 0x41]);
        assert!(binary.binary && binary.text.starts_with("000000  ff fe 41"), "{}", binary.text);
        // A megabyte of brackets is no reason to write a gigabyte of spaces.
        let deep = "[".repeat(20_000) + &"]".repeat(20_000);
        assert!(indented(&deep).len() < 6_000_000);
    }
}
