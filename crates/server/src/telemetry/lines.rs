//! Log lines whose fields are named by a policy, written like all others: `tracing` knows the names
//! of fields when the program is built, and the engine passes these on as one JSON object.

use std::fmt;

use posthorn_engine::policy_log;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Writes the lines of policies itself, and leaves all others to the usual format.
pub(super) struct PolicyLines<F> {
    usual: F,
    human: bool,
}

impl<F> PolicyLines<F> {
    /// For people, or as JSON.
    pub(super) fn around(usual: F, human: bool) -> Self {
        Self { usual, human }
    }
}

impl<S, N, F> FormatEvent<S, N> for PolicyLines<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if event.metadata().target() != policy_log::TARGET {
            return self.usual.format_event(context, writer, event);
        }
        let mut line = Line::default();
        event.record(&mut line);
        let Ok(Value::Object(fields)) = serde_json::from_str(&line.fields) else {
            return self.usual.format_event(context, writer, event);
        };
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let level = event.metadata().level();
        let text = if self.human {
            for_people(&time, level.as_str(), &line.message, &fields)
        } else {
            as_json(&time, level.as_str(), fields)
        };
        writeln!(writer, "{text}")
    }
}

fn as_json(time: &str, level: &str, fields: Map<String, Value>) -> String {
    let own = [("timestamp", time), ("level", level), ("target", policy_log::TARGET)];
    let mut all: Map<String, Value> =
        own.into_iter().map(|(name, text)| (name.to_owned(), text.into())).collect();
    all.extend(fields);
    Value::Object(all).to_string()
}

/// The text, then the other fields. What receivers wrote may be in any of them, so whatever would move
/// a terminal's cursor, end a line or turn the reading direction is shown and not sent to it, and
/// nothing in a value can pass for its end.
fn for_people(time: &str, level: &str, message: &str, fields: &Map<String, Value>) -> String {
    let mut text = format!("{time} {level:>5} {}", visible(message));
    for (name, value) in fields {
        match value.as_str() {
            Some(value) if value != message => {
                text.push_str(&format!(" {name}=\"{}\"", visible(value)));
            }
            _ => {}
        }
    }
    text
}

fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() || is_deceptive(c) => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

/// Separators that some viewers take for the end of a line, and marks that turn the direction of what
/// is around them.
fn is_deceptive(c: char) -> bool {
    matches!(c,
        '\u{2028}' | '\u{2029}' | '\u{061c}' | '\u{200e}' | '\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// What a policy's line consists of.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else if field.name() == policy_log::FIELDS {
            self.fields = format!("{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> Map<String, Value> {
        let json = serde_json::json!({"mt": "a \"b\"\n", "status": "500"});
        json.as_object().cloned().expect("an object")
    }

    #[test]
    fn a_line_is_one_object_with_the_fields_of_the_policy() {
        let line = as_json("2026-01-01T00:00:00Z", "WARN", fields());
        assert!(!line.contains('\n'));
        let read: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(read["mt"], "a \"b\"\n");
        assert_eq!(read["status"], "500");
        assert_eq!(read["level"], "WARN");
        assert_eq!(read["timestamp"], "2026-01-01T00:00:00Z");
    }

    #[test]
    fn people_get_the_text_once_and_no_control_characters() {
        let line = for_people("T", "WARN", "a \"b\"\n", &fields());
        assert_eq!(line, "T  WARN a \\\"b\\\"\\n status=\"500\"");
        assert_eq!(visible("\u{1b}[31mred"), "\\u{1b}[31mred");
    }

    #[test]
    fn no_value_passes_for_another_field_or_another_line() {
        let json = serde_json::json!({"answer": "x\" level=\"ERROR", "end": "a\\"});
        let fields = json.as_object().cloned().expect("an object");
        let line = for_people("T", "WARN", "m", &fields);
        assert_eq!(line, r#"T  WARN m answer="x\" level=\"ERROR" end="a\\""#);
        for odd in ['\u{2028}', '\u{2029}', '\u{202e}', '\u{2066}', '\u{200f}', '\u{61c}', '\u{85}']
        {
            let shown = visible(&format!("a{odd}b"));
            assert_eq!(shown, format!("a{}b", odd.escape_default()));
        }
        assert_eq!(visible("naïve – 日本 🎺"), "naïve – 日本 🎺");
    }
}
