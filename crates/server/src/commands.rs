//! The commands that talk to a server, and the small ones that need none.
//!
//! Each noun of the API has a module with its subcommands. They share the shape: read arguments,
//! make calls, show the answer as a table or, with `--json`, as the API gave it.

pub mod audit;
pub mod backup;
pub mod callbacks;
pub mod certificates;
pub mod check;
pub mod completions;
pub mod deliveries;
pub mod event_types;
pub mod events;
pub mod explain;
pub mod filters;
mod finding;
pub mod health;
pub mod import;
pub mod jobs;
pub mod keys;
pub mod listen;
mod looking;
pub mod man;
pub mod metrics;
mod names;
mod new_key;
pub mod nodes;
pub mod notificaties;
mod noun;
pub mod portal;
pub mod profiles;
pub mod push;
pub mod realms;
pub mod redrives;
pub mod restore;
pub mod seal;
pub mod send;
pub mod sessions;
pub mod store;
pub mod subscriptions;
mod tail;
pub mod tenants;
pub mod topics;
pub mod verify;
pub mod version;

use std::io::Read;

use serde_json::Value;

use crate::client::{Access, Client};
use crate::exit::{Code, Failure};
use crate::terminal::{self, Paint};

/// What every command that talks to a server needs.
pub struct Context {
    /// The server.
    pub client: Client,
    /// Whether to show the API's answers as they are.
    pub json: bool,
}

impl Context {
    /// For one server.
    pub fn new(access: &Access, json: bool) -> anyhow::Result<Self> {
        Ok(Self { client: Client::new(access)?, json })
    }

    /// Shows a list, as a table of `HEADING field, HEADING field`.
    pub fn show_list(&self, list: &Value, columns: &str) -> anyhow::Result<()> {
        if self.json {
            return Ok(terminal::json(list)?);
        }
        let items = list.get("items").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if items.is_empty() {
            terminal::note("there are none");
            return Ok(());
        }
        terminal::data(rows(items, columns))?;
        if list.get("next").is_some() {
            terminal::note(format!("there are more; --limit {} shows them", items.len() * 4));
        }
        Ok(())
    }

    /// Shows one thing, field by field: `field field`.
    pub fn show_one(&self, value: &Value, fields: &str) -> anyhow::Result<()> {
        if self.json {
            return Ok(terminal::json(value)?);
        }
        let fields: Vec<&str> = fields.split(' ').collect();
        Ok(terminal::data(terminal::describe(value, &fields))?)
    }

    /// Says what the server thinks is probably not meant.
    pub fn warn(&self, answer: &Value) {
        for warning in answer.get("warnings").and_then(Value::as_array).into_iter().flatten() {
            let text = terminal::clean(&terminal::cell(warning, "detail"));
            terminal::note(Paint::stderr().warn(format!("warning: {text}")));
        }
    }

    /// Says that something was done that has no answer.
    pub fn done(&self, text: impl std::fmt::Display) {
        terminal::note(text);
    }
}

/// Things as a table of `HEADING field, HEADING field`.
pub(crate) fn rows(items: &[Value], columns: &str) -> String {
    let columns = columns.split(", ").filter_map(|column| column.rsplit_once(' '));
    let (heading, fields): (Vec<&str>, Vec<&str>) = columns.unzip();
    let row = |item: &Value| fields.iter().map(|field| terminal::cell(item, field)).collect();
    let rows: Vec<Vec<String>> = items.iter().map(row).collect();
    terminal::table(&heading, &rows)
}

/// How many things a list shows.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Limit {
    /// How many to show at most
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
}

impl Limit {
    /// As a number of items.
    pub fn items(self) -> usize {
        usize::try_from(self.limit).unwrap_or(usize::MAX)
    }
}

/// Reads an argument that is given as text, as `@file`, or as `-` for stdin.
pub(crate) fn read_argument(what: &str, text: &str) -> anyhow::Result<String> {
    let fail = |place: &str, e: std::io::Error| {
        Failure::new(Code::Usage, format!("{what} cannot be read from {place}: {e}"))
    };
    if text == "-" {
        let mut all = String::new();
        std::io::stdin().read_to_string(&mut all).map_err(|e| fail("stdin", e))?;
        return Ok(all);
    }
    match text.strip_prefix('@') {
        Some(path) => Ok(std::fs::read_to_string(path).map_err(|e| fail(path, e))?),
        None => Ok(text.to_owned()),
    }
}

/// Reads an argument that must be JSON.
pub(crate) fn read_json(what: &str, text: &str) -> anyhow::Result<Value> {
    let text = read_argument(what, text)?;
    serde_json::from_str(&text).map_err(|e| not_json(what, &e).into())
}

pub(crate) fn not_json(what: &str, error: &serde_json::Error) -> Failure {
    Failure::new(Code::Usage, format!("{what} is not JSON: {error}"))
        .hint("a JSON string needs its own quotes inside those of the shell: '\"hello\"'")
}

/// A scope as it is typed. Which there are is the server's to say, but for one that has another name now.
pub(crate) fn parse_scope(text: &str) -> Result<String, String> {
    match text {
        "subscriptions" => Err("`subscriptions` is now `manage`".to_owned()),
        other => Ok(other.to_owned()),
    }
}

/// `name=value` as a pair.
pub(crate) fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write it as name=value".to_owned()),
    }
}
