//! The JSON event format: a CloudEvent as one JSON object.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{
    Context, DATA_TYPE_DEFAULT, Draft, Fault, SPEC_VERSION, Scalar, fault, is_json, is_textual,
};

/// The members of data.
const DATA: &str = "data";
const DATA_BASE64: &str = "data_base64";
/// Members of one CloudEvent that are looked at: more than an event may have attributes.
const MEMBERS_MAX: usize = 200;

/// What a CloudEvent carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// Nothing.
    None,
    /// JSON, as it was written.
    Json(&'a str),
    /// A text that is no JSON.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

/// Why a text is no CloudEvent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Not a JSON object, or one that repeats a key.
    #[error("{0}")]
    Json(String),
    /// An attribute is at fault.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// The members of an object, as they were written.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a CloudEvent, which is a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                use serde::de::Error as _;
                let mut members: Vec<(Cow<'de, str>, &'de RawValue)> = Vec::new();
                while let Some(Name(name)) = map.next_key()? {
                    if members.iter().any(|(other, _)| *other == name) {
                        return Err(A::Error::custom(format!("the key `{name}` is repeated")));
                    }
                    if members.len() == MEMBERS_MAX {
                        let most = format!("a CloudEvent has at most {MEMBERS_MAX} attributes");
                        return Err(A::Error::custom(most));
                    }
                    members.push((name, map.next_value()?));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// A key, which is only copied where it is escaped.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// Reads a CloudEvent.
pub fn read(text: &str) -> Result<(Context, Data<'_>), ReadError> {
    let Members(members) =
        serde_json::from_str(text).map_err(|e| ReadError::Json(e.to_string()))?;
    let mut draft = Draft::default();
    let (mut data, mut base64) = (None, None);
    for (name, raw) in members {
        match &*name {
            DATA => data = Some(raw),
            DATA_BASE64 if raw.get() != "null" => base64 = Some(raw),
            _ => {
                if let Some(value) = scalar(&name, raw)? {
                    draft.take(&name, value)?;
                }
            }
        }
    }
    let context = draft.finish()?;
    let data = match (data, base64) {
        (Some(_), Some(_)) => {
            return Err(Fault {
                attribute: DATA_BASE64.to_owned(),
                problem: "must be absent where there is data".to_owned(),
            }
            .into());
        }
        (None, None) => Data::None,
        (None, Some(raw)) => decode(raw)?,
        (Some(raw), None) => {
            let kind = context.data_content_type.as_deref().unwrap_or(DATA_TYPE_DEFAULT);
            match serde_json::from_str::<String>(raw.get()) {
                // A text of another type than JSON is the data itself.
                Ok(text) if !is_json(kind) => Data::Text(text),
                _ => Data::Json(raw.get()),
            }
        }
    };
    Ok((context, data))
}

/// The value of an attribute; `null` is the same as none.
fn scalar(name: &str, raw: &RawValue) -> Result<Option<Scalar>, Fault> {
    let wrong = "must be a text, a boolean or a whole number of 32 bits";
    // Objects and lists are not even read: there is no value they could be.
    if raw.get().starts_with(['{', '[']) {
        return fault(name, wrong);
    }
    Ok(match serde_json::from_str(raw.get()) {
        Ok(Value::Null) => None,
        Ok(Value::String(text)) => Some(Scalar::Text(text)),
        Ok(Value::Bool(value)) => Some(Scalar::Boolean(value)),
        Ok(Value::Number(number)) => {
            match number.as_i64().and_then(|number| i32::try_from(number).ok()) {
                Some(number) => Some(Scalar::Integer(number)),
                None => return fault(name, wrong),
            }
        }
        _ => return fault(name, wrong),
    })
}

fn decode(raw: &RawValue) -> Result<Data<'static>, Fault> {
    let text: Option<String> = serde_json::from_str(raw.get()).ok();
    match text.and_then(|text| STANDARD.decode(text).ok()) {
        Some(bytes) => Ok(Data::Bytes(bytes)),
        None => fault(DATA_BASE64, "must be a text of padded base64"),
    }
}

/// Whether bytes are a JSON text.
pub fn is_json_text(bytes: &[u8]) -> bool {
    // Texts are only looked through, so that UTF-8 is not checked on the way.
    std::str::from_utf8(bytes).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// Writes a CloudEvent with its data. JSON stays byte for byte what it is; a text becomes a JSON text, and
/// everything else base64.
pub fn write(context: &Context, data: &[u8]) -> Vec<u8> {
    let mut out = Object::default();
    out.text("specversion", SPEC_VERSION);
    out.text("id", &context.id);
    out.text("source", &context.source);
    out.text("type", &context.event_type);
    for (name, value) in [
        ("time", &context.time),
        ("subject", &context.subject),
        ("datacontenttype", &context.data_content_type),
        ("dataschema", &context.data_schema),
    ] {
        if let Some(value) = value {
            out.text(name, value);
        }
    }
    for (name, value) in &context.extensions {
        match value {
            Scalar::Text(text) => out.text(name, text),
            other => out.raw(name, other.to_text().as_bytes()),
        }
    }
    let kind = context.data_content_type.as_deref().unwrap_or(DATA_TYPE_DEFAULT);
    match std::str::from_utf8(data) {
        _ if data.is_empty() => {}
        _ if is_json(kind) && is_json_text(data) => out.raw(DATA, data),
        Ok(text) if is_textual(kind) => out.text(DATA, text),
        _ => out.text(DATA_BASE64, &STANDARD.encode(data)),
    }
    out.finish()
}

/// A JSON object in the making, some of whose members are JSON already.
#[derive(Default)]
pub struct Object(Vec<u8>);

impl Object {
    /// A member that is a text.
    pub fn text(&mut self, name: &str, value: &str) {
        self.raw(name, Value::from(value).to_string().as_bytes());
    }

    /// A member that is JSON, byte for byte.
    pub fn raw(&mut self, name: &str, json: &[u8]) {
        self.0.push(if self.0.is_empty() { b'{' } else { b',' });
        self.0.extend_from_slice(Value::from(name).to_string().as_bytes());
        self.0.push(b':');
        self.0.extend_from_slice(json);
    }

    /// The whole.
    pub fn finish(mut self) -> Vec<u8> {
        if self.0.is_empty() {
            self.0.push(b'{');
        }
        self.0.push(b'}');
        self.0
    }
}
