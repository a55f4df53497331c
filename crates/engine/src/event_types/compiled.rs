//! Schemas as payloads are compared with them.

use std::sync::{Arc, OnceLock};

use jsonschema::{Draft, PatternOptions, Validator};
use posthorn_domain::{Event, EventType, KnownType, alternatives};
use serde_json::Value;
use tokio::sync::{OnceCell, Semaphore};

use super::bounds::{self, Extent};
use super::patterns::{PATTERN_BYTES_MAX, PATTERN_CACHE_MAX};
use crate::error::{Error, Result};

/// How long what is said about a payload may be: it may quote from it.
const PROBLEM_CHARS_MAX: usize = 300;
/// What reading a byte of a payload costs, and comparing a value with a schema, in the unit of `quotas.match_cost_per_second`:
/// about a nanosecond.
const READ_COST: u64 = 16;
const STEP_COST: u64 = 16;
/// What comparing one payload may cost at most: some seconds, if all of it is needed.
const COST_MAX: u64 = 4 << 30;

/// How many entries are made ready at once: each may need some megabytes and some hundredths of a second.
static READYING: Semaphore = Semaphore::const_new(2);

/// Does something with schemas that may take a while where no request waits behind it.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let permit = READYING.acquire().await;
    let done = tokio::task::spawn_blocking(move || {
        let _held = permit;
        work()
    });
    done.await.map_err(|_| Error::Busy("reading a schema crashed; this is a defect"))
}

/// An entry of the catalogue, with its schemas ready for use from the first event on.
pub(crate) struct TypeView {
    pub(crate) known: Arc<KnownType>,
    compiled: OnceCell<Arc<Compiled>>,
    memory: OnceLock<u64>,
}

/// The schemas of an entry, ready for use.
pub(crate) struct Compiled {
    name: EventType,
    /// What all of them come to.
    extent: Extent,
    newest_first: Vec<Validator>,
}

/// A schema ready for use; or why it cannot be used. Nothing is fetched for it.
pub(crate) fn compile(schema: &Value) -> Result<Validator, String> {
    let patterns =
        PatternOptions::regex().size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_CACHE_MAX);
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
        Self { known: Arc::new(known), compiled: OnceCell::new(), memory: OnceLock::new() }
    }

    /// Its schemas. Whoever asks first has them made ready, and the others wait for that.
    pub(crate) async fn compiled(&self) -> Result<Arc<Compiled>> {
        let make = || {
            let known = Arc::clone(&self.known);
            aside(move || Arc::new(Compiled::new(&known)))
        };
        self.compiled.get_or_try_init(make).await.map(Arc::clone)
    }

    /// Bytes that the entry needs in memory, its schemas included, nearly.
    pub(crate) fn memory(&self) -> u64 {
        *self.memory.get_or_init(|| {
            let fit = self.known.schemas.values().filter_map(|schema| bounds::check(schema).ok());
            memory(&self.known, fit.fold(Extent::default(), Extent::plus))
        })
    }
}

/// Bytes that an entry needs in memory when its schemas come to this.
pub(crate) fn memory(known: &KnownType, extent: Extent) -> u64 {
    let text = serde_json::to_vec(known).map_or(u64::MAX, |text| text.len() as u64);
    // Values in memory take several times their text.
    text.saturating_mul(4).saturating_add(extent.memory())
}

impl Compiled {
    pub(crate) fn new(known: &KnownType) -> Self {
        let mut extent = Extent::default();
        let mut newest_first = Vec::new();
        for (version, schema) in known.schemas.iter().rev() {
            let made = bounds::check(schema)
                .map_err(|unfit| format!("{}: {}", unfit.path, unfit.problem))
                .and_then(|found| Ok((found, compile(schema)?)));
            match made {
                Ok((found, validator)) => {
                    extent = extent.plus(found);
                    newest_first.push(validator);
                }
                // One of another version of this program; who changed the schema was told.
                Err(problem) => {
                    tracing::error!(event_type = %known.name, version = version.0, problem,
                    "a schema of an event type cannot be used; it is passed over")
                }
            }
        }
        Self { name: known.name.clone(), extent, newest_first }
    }

    /// What comparing this payload may cost at most, before it is read.
    pub(crate) fn cost(&self, payload: &[u8]) -> u64 {
        let bytes = payload.len() as u64;
        // No value is without one of these before it, but for the first.
        let begins = payload.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
        let values = begins as u64 + 1;
        let compare = values.saturating_mul(self.extent.steps).saturating_mul(STEP_COST);
        let reads = bytes.saturating_mul(self.extent.reads.saturating_add(READ_COST));
        compare.saturating_add(reads)
    }

    /// Refuses a payload that would take too long.
    pub(crate) fn check_cost(&self, cost: u64) -> Result<()> {
        if cost > COST_MAX {
            let problem = "is too large to be compared with the schemas of its type; use a smaller \
                           payload, a simpler schema, or fewer versions of it";
            return Err(refusal(self.name.clone(), String::new(), problem.to_owned()));
        }
        Ok(())
    }

    /// Compares a payload with the schemas: it must fit one version. What is said is about the newest. Of an event in
    /// several forms the usual one is compared.
    pub(crate) fn check(&self, event: &Event) -> Result<()> {
        let name = || self.name.clone();
        let not_json = |why: String| refusal(name(), String::new(), format!("is not JSON: {why}"));
        let usual = match event.content_type.as_str() {
            alternatives::MEDIA_TYPE => match alternatives::choose(&event.payload, None) {
                Ok(Some((_, form))) => form,
                Ok(None) => return Err(not_json("there is no form of it".to_owned())),
                Err(e) => return Err(not_json(e.to_string())),
            },
            _ => event.payload.clone(),
        };
        let payload: Value = serde_json::from_slice(&usual).map_err(|e| not_json(e.to_string()))?;
        let Some(newest) = self.newest_first.first() else { return Ok(()) };
        if self.newest_first.iter().any(|schema| schema.is_valid(&payload)) {
            return Ok(());
        }
        match newest.validate(&payload) {
            Ok(()) => Ok(()),
            Err(e) => Err(refusal(name(), e.instance_path().to_string(), short(&e))),
        }
    }
}

fn refusal(name: EventType, path: String, problem: String) -> Error {
    Error::Payload { name, path, problem }
}

#[cfg(test)]
mod tests {
    use posthorn_domain::{RealmName, SchemaVersion, Timestamp};
    use serde_json::json;

    use super::*;

    fn known(schemas: &[Value]) -> KnownType {
        let versions = (1..).map(SchemaVersion);
        let at = Timestamp::from_millis(0);
        KnownType {
            realm: RealmName::default(),
            name: EventType::new("a").expect("a name"),
            description: String::new(),
            group: None,
            schemas: versions.zip(schemas.iter().cloned()).collect(),
            examples: Vec::new(),
            archived: false,
            deprecated: false,
            feature_flags: Default::default(),
            created_at: at,
            updated_at: at,
        }
    }

    #[test]
    fn cost_grows_with_payload_parts_and_versions() {
        let many = json!({"items": {"anyOf": vec![json!({"type": "null"}); 1_000]}});
        let one = Compiled::new(&known(std::slice::from_ref(&many)));
        let two = Compiled::new(&known(&[many, json!({"items": {"enum": vec![1; 1_000]}})]));
        let payload = format!("[{}1]", "1,".repeat(1_000));
        let cost = one.cost(payload.as_bytes());
        // Each of a thousand numbers may be compared with each of a thousand schemas.
        assert!(cost > 1_000 * 1_000 * STEP_COST, "{cost}");
        assert!(two.cost(payload.as_bytes()) > cost + 1_000 * 1_000 * STEP_COST);
        assert!(one.check_cost(cost).is_ok());
        let large = format!("[{}1]", "1,".repeat(500_000));
        assert!(one.check_cost(one.cost(large.as_bytes())).is_err());
        let usual = Compiled::new(&known(&[json!({"properties": {"a": {"maxLength": 40}}})]));
        assert!(usual.cost(br#"{"a": "text"}"#) < 1_000);
    }

    /// From before there was such a bound.
    #[test]
    fn schemas_that_are_out_of_bounds_are_passed_over() {
        let unfit = json!({"unevaluatedProperties": false});
        let compiled = Compiled::new(&known(&[unfit, json!({"type": "object"})]));
        assert_eq!(compiled.newest_first.len(), 1);
    }

    #[test]
    fn memory_follows_parts_and_patterns() {
        let of = |schema: Value| TypeView::new(known(&[schema])).memory();
        let plain = of(json!({}));
        let patterns: Vec<Value> =
            (1..100).map(|n| json!({"pattern": format!("^\\w{{{n}}}$")})).collect();
        assert!(of(json!({"anyOf": patterns})) > plain + (1 << 20));
        let reference = json!({"$ref": "#/$defs/s"});
        let amplified = json!({"allOf": vec![reference; 50],
            "$defs": {"s": {"allOf": vec![json!({}); 100]}}});
        assert!(of(amplified) > plain + 5_000 * 512);
    }
}
