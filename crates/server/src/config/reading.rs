//! Reads sections of the merged layers into the options of whoever they are for, and notes what is wrong.
//!
//! What cannot be read is noted with its key and the layer that said it, and its default is read instead,
//! so that everything wrong with a configuration is said at once. Nobody may use what was read before
//! [`Reading::end`] has found no problem.

use std::collections::BTreeMap;
use std::fmt;

use posthorn_domain::{Problem as Wrong, plain};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::layers::{Layers, Problem, parse_yaml};
use super::values::SecretRef;
use super::{ConfigError, SecretFile, steps};

/// Keys whose values are kept elsewhere; a star is any name or number. What is there is read into the place
/// of the reference, before anybody reads the section.
const KEPT_ELSEWHERE: [(&str, Kept); 14] = [
    ("store.url", Kept::ReferenceOrText),
    ("store.listen_url", Kept::ReferenceOrText),
    ("egress.extra_roots", Kept::Path),
    ("egress.proxies.*.password", Kept::Reference),
    ("dialects.notificaties.credentials.*.secret", Kept::ReferenceOrText),
    ("dialects.notificaties.authorizations.secret", Kept::Reference),
    ("dialects.svix.jwt_secret", Kept::Reference),
    ("push.endpoint_keys", Kept::Reference),
    ("push.internal.key", Kept::Reference),
    ("keys.bootstrap", Kept::Reference),
    ("seal.key", Kept::Reference),
    ("seal.former", Kept::Reference),
    ("telemetry.otlp.headers.*", Kept::ReferenceOrText),
    ("console.oidc.client_secret", Kept::Reference),
];

/// What is written where something is kept elsewhere.
#[derive(Clone, Copy)]
enum Kept {
    /// `env:NAME` or `file:PATH`.
    Reference,
    /// The same, or the text itself.
    ReferenceOrText,
    /// A file, which is no secret.
    Path,
}

/// What is read, and what was found to be wrong so far.
pub(super) struct Reading<'a> {
    pub(super) layers: &'a Layers,
    pub(super) env: &'a BTreeMap<String, String>,
    value: Value,
    /// Keys whose defaults are read instead.
    faulty: Vec<String>,
    problems: Vec<Problem>,
    secret_files: Vec<SecretFile>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(layers: &'a Layers, env: &'a BTreeMap<String, String>) -> Self {
        let value = layers.merged().clone();
        let (faulty, problems, secret_files) = Default::default();
        let mut reading = Self { layers, env, value, faulty, problems, secret_files };
        reading.fetch();
        reading
    }

    /// The files that secrets were read from, or everything that is wrong.
    pub(super) fn end(self) -> Result<Vec<SecretFile>, ConfigError> {
        if self.problems.is_empty() {
            Ok(self.secret_files)
        } else {
            Err(ConfigError(self.problems))
        }
    }

    /// A section or a single key, as somebody's options.
    pub(super) fn at<T: DeserializeOwned>(&mut self, key: &str) -> T {
        loop {
            let place = format!("/{}", key.replace('.', "/"));
            let fault = match plain::read(self.value.pointer(&place).unwrap_or(&Value::Null)) {
                Ok(read) => return read,
                Err(fault) => fault,
            };
            let below = fault.path.replace('[', ".").replace(']', "");
            let place = format!("{key}.{below}").replace("..", ".");
            let forgotten =
                self.fault(place.trim_end_matches('.').to_owned(), fault.problem.clone());
            assert!(forgotten, "the default of {key} can be read, but for {fault}");
        }
    }

    /// Notes a problem that follows from what was read. A key that could not be read has one already.
    pub(super) fn refuse(&mut self, key: &str, problem: impl Into<String>) {
        if !self.faulty.iter().any(|faulty| faulty == key) {
            self.note(key, problem.into());
        }
    }

    /// The same unless something holds that must.
    pub(super) fn require(&mut self, holds: bool, key: &str, problem: impl Into<String>) {
        if !holds {
            self.refuse(key, problem);
        }
    }

    /// Notes a problem and goes on without the value.
    pub(super) fn accept<T>(&mut self, key: &str, read: Result<T, impl fmt::Display>) -> Option<T> {
        read.map_err(|problem| self.refuse(key, problem.to_string())).ok()
    }

    fn note(&mut self, key: &str, text: String) {
        let source = self.layers.source_of(&steps(key)).clone();
        self.problems.push(Problem { key: key.to_owned(), source, text });
    }

    /// Notes what is wrong with a key, and goes on with its default; says whether that is another value.
    fn fault(&mut self, key: String, problem: String) -> bool {
        self.note(&key, problem);
        let forgotten = forget(&mut self.value, self.layers.known(), &key);
        self.faulty.push(key);
        forgotten
    }

    /// Puts what is kept elsewhere into its place.
    fn fetch(&mut self) {
        let (mut value, mut faults) = (self.value.take(), Vec::new());
        for (key, kept) in KEPT_ELSEWHERE {
            let steps: Vec<&str> = key.split('.').collect();
            visit(&mut value, &steps, "", &mut |key, text| match self.fetched(key, text, kept) {
                Ok(fetched) => *text = fetched,
                Err(problem) => faults.push((key.to_owned(), problem)),
            });
        }
        self.value = value;
        for (key, problem) in faults {
            self.fault(key, problem.into());
        }
    }

    fn fetched(&mut self, key: &str, text: &str, kept: Kept) -> Result<String, Wrong> {
        match (SecretRef::parse(text), kept) {
            (_, Kept::Path) => std::fs::read(text)
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                .map_err(|e| format!("{text} cannot be read: {e}").into()),
            (Some(place), _) => {
                if let SecretRef::File(file) = &place {
                    self.secret_files.push(SecretFile { key: key.to_owned(), file: file.clone() });
                }
                place.resolve(self.env)
            }
            (None, Kept::ReferenceOrText) => Ok(text.to_owned()),
            (None, Kept::Reference) => {
                let problem = "must be env:NAME or file:PATH; secrets are not written into the \
                               configuration";
                Err(problem.into())
            }
        }
    }
}

impl posthorn_dialects::Settings for Reading<'_> {
    fn at<T: DeserializeOwned>(&mut self, key: &str) -> T {
        self.at(key)
    }

    fn refuse(&mut self, key: &str, problem: String) {
        self.refuse(key, problem);
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.env.get(name).cloned()
    }

    fn yaml(&self, text: &str) -> Result<Value, Wrong> {
        parse_yaml(text)
    }
}

/// Goes to every text that the steps lead to, also to those of a list.
fn visit(value: &mut Value, steps: &[&str], key: &str, found: &mut impl FnMut(&str, &mut String)) {
    let below = |name: &str| if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
    match (steps, value) {
        ([], Value::String(text)) => found(key, text),
        ([], Value::Array(items)) => items.iter_mut().for_each(|item| visit(item, &[], key, found)),
        (["*", rest @ ..], Value::Object(fields)) => {
            fields.iter_mut().for_each(|(name, inner)| visit(inner, rest, &below(name), found));
        }
        (["*", rest @ ..], Value::Array(items)) => {
            let numbered = items.iter_mut().enumerate();
            numbered.for_each(|(n, item)| visit(item, rest, &below(&n.to_string()), found));
        }
        ([name, rest @ ..], Value::Object(fields)) => {
            fields.get_mut(*name).into_iter().for_each(|it| visit(it, rest, &below(name), found));
        }
        // Of another kind than it should be, which is said when it is read.
        _ => {}
    }
}

/// Puts the default into the place of what cannot be read, and takes away what only an operator can have
/// named; says whether anything is different then.
fn forget(value: &mut Value, default: &Value, key: &str) -> bool {
    if let (Value::Object(fields), Value::Object(known)) = (&mut *value, default) {
        let (name, below) = key.split_once('.').unwrap_or((key, ""));
        if let Some((inner, default)) = fields.get_mut(name).zip(known.get(name)) {
            return forget(inner, default, below);
        }
        // Names that are chosen may have dots.
        let leads_there = |name: &&String| {
            key.strip_prefix(name.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if let Some(name) = fields.keys().find(leads_there).cloned() {
            return fields.remove(&name).is_some();
        }
    }
    let is_other = value != default;
    value.clone_from(default);
    is_other
}
