//! JSON schemas of the types that are read and written by hand. All others derive theirs, with what their
//! comments say as the description: those of policies and filters are written for whoever uses them.

use schemars::{Schema, json_schema};

use crate::policy::values::Long;
use crate::policy::{FamilyPath, MaxAge, NamedValue, OrderKey, StatusSet};
use crate::{Span, Template, Timestamp};

/// The schema of a type that is written where it is used, without a name of its own.
macro_rules! of {
    ($type:ident, $generator:pat => $schema:expr) => {
        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema($generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $schema
            }
        }
    };
}
pub(crate) use of;

/// That of a name people choose.
pub(crate) fn name(max: usize, alphabet: &str) -> Schema {
    let mut schema = json_schema!({"type": "string", "minLength": 1, "maxLength": max});
    if alphabet.is_ascii() && alphabet.starts_with("A-Z") {
        schema.insert("pattern".to_owned(), "^[A-Za-z0-9._:/-]+$".into());
    }
    schema
}

of!(Span, _ => json_schema!({"type": "string", "examples": ["250ms", "10s", "1h30m", "7d"]}));
of!(MaxAge, _ => json_schema!({"type": "string", "examples": ["auto", "7d"]}));
of!(Timestamp, _ => json_schema!({"type": "string", "format": "date-time"}));
of!(Template, _ => json_schema!({"type": "string", "examples": ["{event.id}"]}));
of!(FamilyPath, _ => json_schema!({"type": ["string", "boolean"], "examples": ["/orders", "off"]}));
of!(StatusSet, _ => json_schema!({
    "type": "array", "items": {"type": ["string", "integer"], "examples": [200, "2xx", "200-204"]},
}));
of!(OrderKey, generator => json_schema!({"oneOf": [
    generator.subschema_for::<Template>(),
    {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 5},
]}));
of!(NamedValue, generator => json_schema!({"oneOf": [
    generator.subschema_for::<Template>(), generator.subschema_for::<Long>(),
]}));
