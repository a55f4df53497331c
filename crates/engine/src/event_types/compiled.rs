//! Schemas as payloads are compared with them.

use std::sync::OnceLock;

use jsonschema::{Draft, PatternOptions, Validator};
use posthorn_domain::{Event, EventType, KnownType, SchemaVersion};
use serde_json::Value;

use crate::error::{Error, Result};

/// How large a pattern may become.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// How long what is said about a payload may be: it may quote from it.
const PROBLEM_CHARS_MAX: usize = 300;

/// An entry of the catalogue, with its schemas ready for use from the first event on.
pub(crate) struct TypeView {
    pub(crate) known: std::sync::Arc<KnownType>,
    /// The newest first.
    schemas: OnceLock<Vec<(SchemaVersion, Option<Validator>)>>,
}

/// A schema ready for use; or why it cannot be used. Nothing is fetched for it.
pub(crate) fn compile(schema: &Value) -> Result<Validator, String> {
    let patterns =
        PatternOptions::regex().size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX);
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .with_pattern_options(patterns)
        .build(schema)
        .map_err(|e| format!("is not a JSON Schema: at `{}`: {}", e.instance_path(), short(&e)))
}

fn short(text: &impl ToString) -> String {
    let text = text.to_string();
    match text.char_indices().nth(PROBLEM_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

impl TypeView {
    pub(crate) fn new(known: KnownType) -> Self {
        Self { known: std::sync::Arc::new(known), schemas: OnceLock::new() }
    }

    fn schemas(&self) -> &[(SchemaVersion, Option<Validator>)] {
        self.schemas.get_or_init(|| {
            let newest_first = self.known.schemas.iter().rev();
            newest_first
                .map(|(version, schema)| {
                    // One of another version of this program; who changed the schema was told.
                    let made = compile(schema).inspect_err(|problem| {
                        tracing::error!(event_type = %self.known.name, version = version.0, problem,
                            "a schema of an event type cannot be used; it is passed over");
                    });
                    (*version, made.ok())
                })
                .collect()
        })
    }

    /// Compares a payload with the schemas: it must fit one version. What is said is about the newest.
    pub(crate) fn check(&self, event: &Event) -> Result<()> {
        let name = || self.known.name.clone();
        let payload: Value = serde_json::from_slice(&event.payload)
            .map_err(|e| refusal(name(), String::new(), format!("is not JSON: {e}")))?;
        let mut usable = self.schemas().iter().filter_map(|(_, schema)| schema.as_ref());
        let Some(newest) = usable.next() else { return Ok(()) };
        match newest.validate(&payload) {
            Ok(()) => Ok(()),
            Err(_) if usable.any(|older| older.is_valid(&payload)) => Ok(()),
            Err(e) => Err(refusal(name(), e.instance_path().to_string(), short(&e))),
        }
    }
}

fn refusal(name: EventType, path: String, problem: String) -> Error {
    Error::Payload { name, path, problem }
}
