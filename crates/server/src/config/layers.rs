//! Layers of configuration, merged into one value that remembers where each key comes from.
//!
//! The default file is both the lowest layer and the list of keys there are: whatever another layer
//! adds to it is unknown, and reported with the layer that said it and the nearest known key. Only
//! below `profiles` and the like are names free.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use posthorn_domain::Problem as Wrong;
use serde_json::{Map, Value};
use strsim::levenshtein;

use super::renamed;

/// The lowest layer, and the documentation of every key.
pub const DEFAULTS: &str = include_str!("../../../../config/posthorn.default.yaml");
/// What the names of overriding environment variables begin with.
pub const ENV_PREFIX: &str = "POSTHORN__";
/// The sections whose keys are chosen by the operator.
const FREE_SECTIONS: [&[&str]; 7] = [
    &["profiles"],
    &["callbacks", "headers"],
    &["dialects", "svix", "organisations"],
    &["push", "broadcasts", "values"],
    &["egress", "proxies"],
    &["telemetry", "otlp", "headers"],
    &["telemetry", "otlp", "resource"],
];

/// Which layer said something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The built-in defaults.
    Default,
    /// The operator's file.
    File(PathBuf),
    /// An environment variable, by name.
    Env(String),
    /// A flag, as it is written.
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Env(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// Something wrong with one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The key, dotted; empty when a whole layer is at fault.
    pub key: String,
    /// Who said it.
    pub source: Source,
    /// What is wrong, and what would be right.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{} (from {})", self.text, self.source)
    }
}

/// All layers so far.
#[derive(Clone, Debug)]
pub struct Layers {
    defaults: Value,
    merged: Value,
    sources: BTreeMap<Vec<String>, Source>,
}

impl Layers {
    /// Only the defaults.
    pub fn defaults() -> Self {
        let defaults: Value =
            parse_yaml(DEFAULTS).expect("the default configuration is compiled in and tested");
        Self { merged: defaults.clone(), defaults, sources: BTreeMap::new() }
    }

    /// Lays a value over what is there. Keys that do not exist are left out and reported.
    pub fn apply(&mut self, layer: Value, source: &Source, problems: &mut Vec<Problem>) {
        let Self { defaults, merged, sources } = self;
        let mut into = Overlay { source, sources, problems, path: Vec::new() };
        into.lay(merged, Some(defaults), layer);
    }

    /// Lays one key over what is there.
    pub fn set(&mut self, path: &[String], value: Value, source: &Source, out: &mut Vec<Problem>) {
        let nested = path.iter().rev().fold(value, |inner, name| {
            let mut section = Map::new();
            section.insert(name.clone(), inner);
            Value::Object(section)
        });
        self.apply(nested, source, out);
    }

    /// Reads a text from the environment or a flag as the kind of value the key has.
    ///
    /// Where the default is a text, the text is taken as it is: a password of digits stays a text.
    pub fn read_text(&self, path: &[String], text: &str) -> Result<Value, Wrong> {
        let default = path.iter().try_fold(&self.defaults, |section, name| section.get(name));
        match default {
            Some(Value::String(_)) => Ok(Value::String(text.to_owned())),
            Some(Value::Null) if text.is_empty() || text == "null" => Ok(Value::Null),
            Some(Value::Null) => Ok(Value::String(text.to_owned())),
            Some(Value::Array(_)) if !text.trim_start().starts_with('[') => Ok(text
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty())
                .map(|item| Value::String(item.to_owned()))
                .collect()),
            _ => parse_yaml(text),
        }
    }

    /// The defaults, which are all keys there are.
    pub fn known(&self) -> &Value {
        &self.defaults
    }

    /// Everything merged.
    pub fn merged(&self) -> &Value {
        &self.merged
    }

    /// Where a key comes from: the layer that said it, or something in it.
    pub fn source_of(&self, path: &[String]) -> &Source {
        for length in (1..=path.len()).rev() {
            if let Some(source) = self.sources.get(&path[..length]) {
                return source;
            }
        }
        let below = self.sources.iter().find(|(known, _)| known.starts_with(path));
        below.map_or(&Source::Default, |(_, source)| source)
    }

    /// Every key with its value and where it comes from, in the order of the documentation.
    pub fn entries(&self) -> Vec<(Vec<String>, &Value, &Source)> {
        let mut out = Vec::new();
        let mut path = Vec::new();
        self.collect(&self.merged, &mut path, &mut out);
        let order = self.documented_order();
        out.sort_by_key(|(path, _, _)| {
            order.iter().position(|known| path.starts_with(known)).unwrap_or(order.len())
        });
        out
    }

    fn collect<'a>(
        &'a self,
        value: &'a Value,
        path: &mut Vec<String>,
        out: &mut Vec<(Vec<String>, &'a Value, &'a Source)>,
    ) {
        match value {
            Value::Object(section) if !section.is_empty() => {
                for (name, inner) in section {
                    path.push(name.clone());
                    self.collect(inner, path, out);
                    path.pop();
                }
            }
            leaf => out.push((path.clone(), leaf, self.source_of(path))),
        }
    }

    /// The keys as the default file lists them; a parsed object has lost that order.
    fn documented_order(&self) -> Vec<Vec<String>> {
        let mut order = Vec::new();
        let mut section = String::new();
        for line in DEFAULTS.lines().filter(|line| !line.trim_start().starts_with('#')) {
            let Some((name, _)) = line.split_once(':') else { continue };
            match name.strip_prefix("  ") {
                Some(key) => order.push(vec![section.clone(), key.to_owned()]),
                None => {
                    section = name.to_owned();
                    if FREE_SECTIONS.contains(&[name].as_slice()) {
                        order.push(vec![section.clone()]);
                    }
                }
            }
        }
        order
    }
}

/// Reads YAML. The message is meant for the operator, with line and column.
pub fn parse_yaml(text: &str) -> Result<Value, Wrong> {
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Ok(Value::Null);
    }
    // Without the lines around a mistake: they may hold secrets, and this goes to logs.
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|e| e.to_string().into())
}

/// One walk of a layer over the merged value.
struct Overlay<'a> {
    source: &'a Source,
    sources: &'a mut BTreeMap<Vec<String>, Source>,
    problems: &'a mut Vec<Problem>,
    path: Vec<String>,
}

impl Overlay<'_> {
    fn lay(&mut self, target: &mut Value, known: Option<&Value>, layer: Value) {
        match (known, layer) {
            // A section whose keys are all commented out is written as nothing.
            (Some(Value::Object(_)), Value::Null) => {}
            (Some(Value::Object(keys)), Value::Object(section)) => {
                for (name, value) in section {
                    self.path.push(name.clone());
                    let known = keys.get(&name);
                    if known.is_none() && !self.is_free() {
                        self.unknown();
                    } else {
                        self.lay(entry(target, &name), known, value);
                    }
                    self.path.pop();
                }
            }
            (Some(Value::Object(_)), _) => {
                let text = "is a section; write keys below it".to_owned();
                self.problem(text);
            }
            (None, Value::Object(section)) if !section.is_empty() || target.is_object() => {
                for (name, value) in section {
                    self.path.push(name.clone());
                    self.lay(entry(target, &name), None, value);
                    self.path.pop();
                }
            }
            (_, leaf) => {
                self.sources.retain(|path, _| !path.starts_with(&self.path));
                self.sources.insert(self.path.clone(), self.source.clone());
                *target = leaf;
            }
        }
    }

    fn is_free(&self) -> bool {
        let below = |section: &&[&str]| {
            section.len() < self.path.len() && section.iter().zip(&self.path).all(|(a, b)| a == b)
        };
        FREE_SECTIONS.iter().any(below)
    }

    fn unknown(&mut self) {
        let key = self.path.join(".");
        let text = match (renamed::new_name(&key), nearest(&key)) {
            (Some(new), _) => format!("this key is now called `{new}`"),
            (None, Some(known)) => format!("there is no such key; did you mean `{known}`?"),
            (None, None) => {
                "there is no such key; `posthorn check --defaults` lists all".to_owned()
            }
        };
        self.problem(text);
    }

    fn problem(&mut self, text: String) {
        let key = self.path.join(".");
        self.problems.push(Problem { key, source: self.source.clone(), text });
    }
}

/// The value of a key, made when it is missing; what is no section becomes one.
fn entry<'a>(target: &'a mut Value, name: &str) -> &'a mut Value {
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    match target {
        Value::Object(section) => section.entry(name.to_owned()).or_insert(Value::Null),
        other => other,
    }
}

/// The known key most like this one, if any is like it at all.
fn nearest(key: &str) -> Option<String> {
    let order = Layers::defaults().documented_order();
    let sections = order.iter().map(|path| path[0].clone());
    let known = order.iter().map(|path| path.join(".")).chain(sections);
    let last = key.rsplit('.').next().unwrap_or(key);
    let close = known.map(|candidate| {
        let candidate_last = candidate.rsplit('.').next().unwrap_or(&candidate);
        // The right key in the wrong section is more likely than two slips of the pen.
        let elsewhere = levenshtein(last, candidate_last) + 1;
        (levenshtein(key, &candidate).min(elsewhere), candidate)
    });
    let (distance, candidate) = close.min_by_key(|(distance, _)| *distance)?;
    (distance <= (last.len() / 3).max(2)).then_some(candidate)
}
