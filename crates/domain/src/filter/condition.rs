//! Conditions on a JSON payload: a small tree of tests, bounded in size, without surprises.

use std::borrow::Cow;
use std::cmp::Ordering;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cost::{Cost, SCAN, TEST, weight};
use super::document::Document;

/// A condition on a JSON payload; at most 64 nodes, 8 levels deep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Condition {
    /// All conditions hold; an empty list holds.
    All(Vec<Condition>),
    /// At least one condition holds; an empty list does not.
    Any(Vec<Condition>),
    /// The condition does not hold.
    Not(Box<Condition>),
    /// Compares one place in the document with a value.
    Test {
        /// Where to look: a JSON pointer such as `/data/amount`.
        path: Pointer,
        /// How to compare.
        op: Operator,
        /// The value to compare with; not used by `exists`.
        #[serde(default)]
        value: Value,
    },
}

/// A JSON pointer (RFC 6901).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Pointer(String);

impl<'de> Deserialize<'de> for Pointer {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() || text.starts_with('/') {
            Ok(Self(text))
        } else {
            Err(serde::de::Error::custom("a path is a JSON pointer and must start with `/`"))
        }
    }
}

impl Pointer {
    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The value at this place.
    pub(super) fn find<'v>(&self, document: &'v Value) -> Option<&'v Value> {
        let Some(path) = self.0.strip_prefix('/') else { return Some(document) };
        path.split('/').try_fold(document, |value, token| match value {
            Value::Object(members) => members.get(&*unescaped(token)),
            Value::Array(items) => items.get(index(token)?),
            _ => None,
        })
    }
}

/// A name as it is in the document: `~1` is a slash, `~0` a tilde.
fn unescaped(token: &str) -> Cow<'_, str> {
    if token.contains('~') {
        Cow::Owned(token.replace("~1", "/").replace("~0", "~"))
    } else {
        Cow::Borrowed(token)
    }
}

/// A place in a list: digits without leading zeros.
fn index(token: &str) -> Option<usize> {
    let plain = token == "0" || !token.starts_with(['0', '+']);
    token.parse().ok().filter(|_| plain)
}

/// How a value found in the document is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Operator {
    /// The same JSON value.
    Eq,
    /// There, and another JSON value.
    Ne,
    /// Less: numbers with numbers, texts with texts.
    Lt,
    /// Less or equal.
    Le,
    /// Greater.
    Gt,
    /// Greater or equal.
    Ge,
    /// One of a list of values, 100 at most.
    In,
    /// Present, also when null.
    Exists,
    /// A text that contains this text, or a list that contains this value.
    Contains,
    /// A text that begins so.
    Prefix,
}

impl Condition {
    /// Number of nodes and depth, for limits.
    pub fn size(&self) -> (usize, usize) {
        let of = |children: &[Condition]| {
            children
                .iter()
                .map(Condition::size)
                .fold((1, 1), |(nodes, depth), (n, d)| (nodes + n, depth.max(d + 1)))
        };
        match self {
            Self::All(children) | Self::Any(children) => of(children),
            Self::Not(child) => of(std::slice::from_ref(child)),
            Self::Test { .. } => (1, 1),
        }
    }

    /// Every test of it: where it looks, how it compares, and with what.
    pub(super) fn tests(&self) -> Vec<(&Pointer, Operator, &Value)> {
        match self {
            Self::All(children) | Self::Any(children) => {
                children.iter().flat_map(Self::tests).collect()
            }
            Self::Not(child) => child.tests(),
            Self::Test { path, op, value } => vec![(path, *op, value)],
        }
    }

    /// What it may cost at most.
    pub(super) fn cost(&self) -> Cost {
        match self {
            Self::All(children) | Self::Any(children) => children.iter().map(Self::cost).sum(),
            Self::Not(child) => child.cost(),
            Self::Test { path, op, value } => Cost {
                fixed: TEST + path.0.len() as u64 + op.fixed_cost(value),
                scans: u64::from(*op == Operator::Contains),
                reads: true,
            },
        }
    }

    /// Whether it holds for a document. When the document's meter has run out the answer means
    /// nothing.
    pub(super) fn holds<'c>(&'c self, document: &Document<'c>) -> bool {
        match self {
            Self::All(children) => children.iter().all(|child| child.holds(document)),
            Self::Any(children) => children.iter().any(|child| child.holds(document)),
            Self::Not(child) => !child.holds(document),
            Self::Test { path, op, value } => {
                document.meter.spend(TEST + path.0.len() as u64);
                if document.meter.is_spent() {
                    return false;
                }
                document.find(path).is_some_and(|found| {
                    document.meter.spend(op.cost(found, value));
                    !document.meter.is_spent() && op.holds(found, value)
                })
            }
        }
    }
}

impl Operator {
    /// What a comparison costs whatever the document: as much as there is of the wanted value.
    fn fixed_cost(self, wanted: &Value) -> u64 {
        match self {
            Self::Exists | Self::Contains => 0,
            _ => weight(wanted),
        }
    }

    /// What this comparison costs. Told before it is made, so that it is not made when it is too much.
    fn cost(self, found: &Value, wanted: &Value) -> u64 {
        match (self, found) {
            (Self::Contains, Value::String(text)) => text.len() as u64,
            // Each item is compared with what is wanted, and at most to its end.
            (Self::Contains, Value::Array(list)) => {
                (list.len() as u64).saturating_mul(SCAN + weight(wanted) / SCAN)
            }
            _ => self.fixed_cost(wanted),
        }
    }

    fn holds(self, found: &Value, wanted: &Value) -> bool {
        let order = || compare(found, wanted);
        match self {
            Self::Eq => equal(found, wanted),
            Self::Ne => !equal(found, wanted),
            Self::Lt => order() == Some(Ordering::Less),
            Self::Le => matches!(order(), Some(Ordering::Less | Ordering::Equal)),
            Self::Gt => order() == Some(Ordering::Greater),
            Self::Ge => matches!(order(), Some(Ordering::Greater | Ordering::Equal)),
            Self::In => {
                wanted.as_array().is_some_and(|list| list.iter().any(|item| equal(found, item)))
            }
            Self::Exists => true,
            Self::Contains => match (found, wanted) {
                // Linear in the text, whatever text and part look like.
                (Value::String(text), Value::String(part)) => {
                    memchr::memmem::find(text.as_bytes(), part.as_bytes()).is_some()
                }
                (Value::Array(list), item) => list.iter().any(|found| equal(found, item)),
                _ => false,
            },
            Self::Prefix => match (found, wanted) {
                (Value::String(text), Value::String(start)) => text.starts_with(start.as_str()),
                _ => false,
            },
        }
    }
}

/// JSON equality, except that `1` and `1.0` are the same number.
fn equal(a: &Value, b: &Value) -> bool {
    a == b || (a.is_number() && b.is_number() && compare(a, b) == Some(Ordering::Equal))
}

fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
        },
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        _ => None,
    }
}
