//! What is shown: data on stdout, everything else on stderr, colours only on a terminal.

use std::borrow::Cow;
use std::env;
use std::fmt::{self, Display};
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use posthorn_domain::{Clock as _, Span, Timestamp};
use serde_json::Value;

use crate::clock::WallClock;

/// A progress bar is drawn at most this often: more is only flicker.
const FRAMES_PER_SECOND: u8 = 10;
/// Rows of a table are at most this long, so that each stays one line on any terminal.
const ROW_CHARS_MAX: usize = 80;
/// Between two columns.
const GAP: usize = 2;
/// The least that is left of a column that is cut, unless its heading is longer.
const COLUMN_CHARS_MIN: usize = 6;
/// As long as the longest id. Ids are copied, so that they are never cut.
const ID_CHARS: usize = 30;

/// Objects up to this long are shown on one line.
const INLINE_CHARS_MAX: usize = 120;

/// Whether colours are wanted on a stream.
#[derive(Clone, Copy, Debug)]
pub struct Paint(bool);

impl Paint {
    /// For stdout.
    pub fn stdout() -> Self {
        Self(io::stdout().is_terminal() && wanted())
    }

    /// For stderr.
    pub fn stderr() -> Self {
        Self(io::stderr().is_terminal() && wanted())
    }

    /// For none.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self(false)
    }

    fn with(self, code: &str, text: impl Display) -> String {
        if self.0 { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_string() }
    }

    /// For headings and names.
    pub fn bold(self, text: impl Display) -> String {
        self.with("1", text)
    }

    /// For what may be passed over.
    pub fn dim(self, text: impl Display) -> String {
        self.with("2", text)
    }

    /// For what went well.
    pub fn good(self, text: impl Display) -> String {
        self.with("32", text)
    }

    /// For what will be tried again.
    pub fn warn(self, text: impl Display) -> String {
        self.with("33", text)
    }

    /// For what went wrong.
    pub fn bad(self, text: impl Display) -> String {
        self.with("31", text)
    }
}

/// See <https://no-color.org>.
fn wanted() -> bool {
    env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Writes data, with a line end. Fails when nobody reads it any more.
pub fn data(text: impl Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|e| match e.kind() {
        // Told apart from connections, which break in the same way.
        io::ErrorKind::BrokenPipe => io::Error::new(io::ErrorKind::BrokenPipe, OutputClosed),
        _ => e,
    })
}

/// Nobody reads our output any more.
#[derive(Debug)]
pub struct OutputClosed;

impl Display for OutputClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the output was closed")
    }
}

impl std::error::Error for OutputClosed {}

/// Says something that is not data. Nobody listening is no reason to fail.
pub fn note(text: impl Display) {
    drop(writeln!(io::stderr().lock(), "{text}"));
}

/// Writes a JSON document.
pub fn json(value: &Value) -> io::Result<()> {
    data(format_args!("{value:#}"))
}

/// A bar on stderr, which hides itself where there is no terminal.
pub fn progress(total: u64, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(
        Some(total),
        ProgressDrawTarget::stderr_with_hz(FRAMES_PER_SECOND),
    );
    let form = "{msg} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}";
    if let Ok(style) = ProgressStyle::with_template(form) {
        bar.set_style(style);
    }
    bar.set_message(what);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Something that turns on stderr while work of unknown length goes on, where there is a terminal.
pub fn spinner(what: &'static str) -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(FRAMES_PER_SECOND);
    let bar = ProgressBar::with_draw_target(None, target);
    bar.set_message(what);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// A table with a heading, columns as wide as they must be; what does not fit into a row is cut,
/// the widest columns first, but never the ids of the first one.
pub fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = heading.iter().map(|cell| cell.chars().count()).collect();
    let least: Vec<usize> = widths.iter().map(|width| (*width).max(COLUMN_CHARS_MIN)).collect();
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| clean(cell)).collect()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let whole = |column: usize, width: usize| column == 0 && width <= ID_CHARS;
    while widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1) > ROW_CHARS_MAX {
        let cuttable = (0..widths.len())
            .filter(|column| widths[*column] > least[*column] && !whole(*column, widths[*column]));
        // The last column says where something leads or what it means: it keeps more than others.
        let weight = |column: &usize| {
            let is_last = column + 1 == widths.len();
            if is_last { widths[*column] * 2 / 3 } else { widths[*column] }
        };
        let Some(widest) = cuttable.max_by_key(weight) else { break };
        widths[widest] -= 1;
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (cell, width) in cells.zip(&widths) {
            let cell = cut(cell, *width);
            text.push_str(&cell);
            let gap = width.saturating_sub(cell.chars().count()) + GAP;
            text.extend(std::iter::repeat_n(' ', gap));
        }
        text.trim_end().to_owned()
    };
    let mut out = Paint::stdout().bold(line(&mut heading.iter().copied()));
    for row in &rows {
        out.push('\n');
        out.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    out
}

/// At most so many characters; what is cut off is marked.
fn cut(text: &str, most: usize) -> Cow<'_, str> {
    if text.chars().count() <= most {
        return Cow::Borrowed(text);
    }
    let mut short: String = text.chars().take(most.saturating_sub(1)).collect();
    short.push('…');
    Cow::Owned(short)
}

/// Without control characters.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A field of a JSON object as a cell; `-` when it is missing. `since:FIELD` is how long ago a time
/// was, `until:FIELD` how far away it is: a whole time would fill half a row.
pub fn cell(value: &Value, path: &str) -> String {
    if let Some((way, path)) = path.split_once(':') {
        let at = value.get(path).and_then(Value::as_str);
        return at.and_then(|at| distance(way, at)).unwrap_or_else(|| "-".to_owned());
    }
    let found = path.split('.').try_fold(value, |inner, name| inner.get(name));
    found.map_or_else(|| "-".to_owned(), plain)
}

/// How far a time is from now, in its largest unit.
fn distance(way: &str, at: &str) -> Option<String> {
    let at: Timestamp = at.parse().ok()?;
    let now = WallClock.now();
    let away = if way == "since" { now.since(at) } else { at.since(now) };
    if away == Span::ZERO {
        return Some("now".to_owned());
    }
    let text = away.to_string();
    let unit = text.find(|c: char| c.is_ascii_alphabetic())?;
    let end = text[unit..].find(|c: char| c.is_ascii_digit()).map_or(text.len(), |n| unit + n);
    let largest = if away < Span::from_secs(1) { "<1s" } else { &text[..end] };
    Some(if way == "since" { largest.to_owned() } else { format!("in {largest}") })
}

/// A JSON value as people read it.
pub fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.iter().all(|item| !item.is_object() && !item.is_array()) => {
            let items: Vec<String> = items.iter().map(plain).collect();
            if items.is_empty() { "-".to_owned() } else { items.join(",") }
        }
        other => other.to_string(),
    }
}

/// One thing, field by field. Lists of things become tables below it.
pub fn describe(value: &Value, fields: &[&str]) -> String {
    let width = fields.iter().map(|name| name.len()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for name in fields {
        let Some(field) = value.get(name) else { continue };
        let text = match field {
            Value::Object(inner) if inner.is_empty() => continue,
            Value::Object(_) if field.to_string().len() <= INLINE_CHARS_MAX => field.to_string(),
            Value::Object(_) => format!("{field:#}").replace('\n', &format!("\n{:width$}  ", "")),
            other => clean(&plain(other)),
        };
        let label = format!("{name:width$}");
        lines.push(format!("{}  {text}", Paint::stdout().bold(label)));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tables_line_up_and_obey_nothing() {
        let rows = vec![
            vec!["a".to_owned(), "x\u{1b}[31m".to_owned()],
            vec!["längst".to_owned(), "y".repeat(200)],
        ];
        let text = table(&["ID", "WHAT"], &rows);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "ID      WHAT");
        assert_eq!(lines[1], "a       x [31m");
        assert!(lines[2].starts_with("längst  yyy") && lines[2].ends_with('…'), "{}", lines[2]);
        assert_eq!(lines[2].chars().count(), ROW_CHARS_MAX);
    }

    #[test]
    fn rows_fit_and_ids_stay_whole() {
        let id = "sub_01hf7yat00000000000000000z";
        let row = vec![id.to_owned(), "a".repeat(40), "b".repeat(60), "active".to_owned()];
        let text = table(&["ID", "NAME", "URL", "STATUS"], &[row]);
        for line in text.lines() {
            assert!(line.chars().count() <= ROW_CHARS_MAX, "{line}");
        }
        assert!(text.contains(id) && text.contains("active") && text.matches('…').count() == 2);
    }

    #[test]
    fn times_are_told_by_their_distance() {
        let at =
            |millis: i64| Timestamp::from_millis(WallClock.now().as_millis() + millis).to_string();
        let value = json!({"past": at(-7_500_000), "next": at(90_500), "soon": at(-1_000_000_000)});
        assert_eq!(cell(&value, "since:past"), "2h");
        assert_eq!(cell(&value, "until:next"), "in 1m");
        assert_eq!(cell(&value, "until:soon"), "now");
        assert_eq!(cell(&value, "until:gone"), "-");
    }

    #[test]
    fn cells_find_their_way() {
        let value = json!({"a": {"b": ["x", "y"]}, "n": 3, "empty": ""});
        assert_eq!(cell(&value, "a.b"), "x,y");
        assert_eq!(cell(&value, "n"), "3");
        assert_eq!(cell(&value, "empty"), "-");
        assert_eq!(cell(&value, "gone.far"), "-");
    }
}
