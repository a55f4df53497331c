//! What is shown: data on stdout, everything else on stderr, colours only on a terminal.

use std::env;
use std::fmt::{self, Display};
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;

/// A progress bar is drawn at most this often: more is only flicker.
const FRAMES_PER_SECOND: u8 = 10;
/// Texts in a table are cut here, so that a row stays one line.
const CELL_CHARS_MAX: usize = 80;

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
        f.write_str("nobody reads the output any more")
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

/// A table with a heading, columns as wide as they must be.
pub fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = heading.iter().map(|cell| cell.chars().count()).collect();
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| cut(cell)).collect()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (cell, width) in cells.zip(&widths) {
            text.push_str(cell);
            let gap = width.saturating_sub(cell.chars().count()) + 2;
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

/// One line, not too long, and nothing a terminal would obey: contents come from strangers.
pub fn cut(text: &str) -> String {
    let clean = clean(text);
    if clean.chars().count() <= CELL_CHARS_MAX {
        return clean;
    }
    let mut short: String = clean.chars().take(CELL_CHARS_MAX - 1).collect();
    short.push('…');
    short
}

/// Without control characters.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A field of a JSON object as a cell; `-` when it is missing.
pub fn cell(value: &Value, path: &str) -> String {
    let found = path.split('.').try_fold(value, |inner, name| inner.get(name));
    found.map_or_else(|| "-".to_owned(), plain)
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
