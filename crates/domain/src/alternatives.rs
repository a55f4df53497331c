//! Events with several forms: one thing that happened, written in more than one way.
//!
//! Some receivers want a message as its publisher wrote it, others the same as a CloudEvent. Both are
//! one event: it is accepted once, matched once, and each subscription gets one of its forms. An event
//! whose content type is [`MEDIA_TYPE`] carries them all in its payload, the first being the usual one;
//! the policy of a subscription says which one it wants (`request.alternative`).
//!
//! Forms are JSON texts and are kept byte for byte.

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Event;

/// The content type of an event with several forms.
pub const MEDIA_TYPE: &str = "application/vnd.posthorn.alternatives+json";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Forms<'a> {
    #[serde(borrow)]
    alternatives: Vec<Form<'a>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Form<'a> {
    #[serde(borrow)]
    content_type: Cow<'a, str>,
    #[serde(borrow)]
    body: &'a RawValue,
}

/// What is wrong with the payload of an event with several forms.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a payload of type {MEDIA_TYPE} is {{\"alternatives\": [{{\"content_type\": …, \"body\": …}}]}} \
     with at least one form"
)]
pub struct NoForms;

/// The payload of an event with these forms, each a content type and a JSON text.
pub fn encode(forms: &[(&str, &str)]) -> Result<Bytes, NoForms> {
    #[derive(Serialize)]
    struct Written<'a> {
        alternatives: Vec<WrittenForm<'a>>,
    }
    #[derive(Serialize)]
    struct WrittenForm<'a> {
        content_type: &'a str,
        body: &'a RawValue,
    }
    let alternatives = forms
        .iter()
        .map(|(content_type, body)| Some(WrittenForm { content_type, body: raw(body)? }))
        .collect::<Option<Vec<_>>>()
        .filter(|forms| !forms.is_empty())
        .ok_or(NoForms)?;
    serde_json::to_vec(&Written { alternatives }).map(Bytes::from).map_err(|_| NoForms)
}

fn raw(body: &str) -> Option<&RawValue> {
    serde_json::from_str(body).ok()
}

/// The form of this content type, or the first one: its content type and its bytes, which share the
/// payload's memory. `Ok(None)` when there is no such form.
pub fn choose(payload: &Bytes, wanted: Option<&str>) -> Result<Option<(String, Bytes)>, NoForms> {
    let text = std::str::from_utf8(payload).map_err(|_| NoForms)?;
    let forms: Forms<'_> = serde_json::from_str(text).map_err(|_| NoForms)?;
    let first = forms.alternatives.first().ok_or(NoForms)?;
    let form = match wanted {
        None => Some(first),
        Some(wanted) => forms.alternatives.iter().find(|form| form.content_type == wanted),
    };
    Ok(form.map(|form| {
        (form.content_type.clone().into_owned(), payload.slice_ref(form.body.get().as_bytes()))
    }))
}

/// The size of the largest form.
pub fn largest(payload: &Bytes) -> Result<usize, NoForms> {
    let text = std::str::from_utf8(payload).map_err(|_| NoForms)?;
    let forms: Forms<'_> = serde_json::from_str(text).map_err(|_| NoForms)?;
    forms.alternatives.iter().map(|form| form.body.get().len()).max().ok_or(NoForms)
}

/// The JSON that filters and templates look at: the payload, or its first form when it has several.
pub fn usual_json(event: &Event) -> Option<serde_json::Value> {
    if event.content_type != MEDIA_TYPE {
        return serde_json::from_slice(&event.payload).ok();
    }
    let (_, form) = choose(&event.payload, None).ok()??;
    serde_json::from_slice(&form).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_come_back_byte_for_byte() {
        let plain = "{ \"a\" : 1.0,\n \"b\":\"\\u00e9\"}";
        let payload = encode(&[("application/json", plain), ("text/x", "[1]")]).expect("forms");
        let (kind, body) = choose(&payload, None).expect("reads").expect("the first");
        assert_eq!((kind.as_str(), &body[..]), ("application/json", plain.as_bytes()));
        let (kind, body) = choose(&payload, Some("text/x")).expect("reads").expect("the second");
        assert_eq!((kind.as_str(), &body[..]), ("text/x", &b"[1]"[..]));
        assert_eq!(choose(&payload, Some("text/y")), Ok(None));
        assert_eq!(largest(&payload), Ok(plain.len()));
    }

    #[test]
    fn what_is_not_a_list_of_forms_is_refused() {
        for text in ["", "{}", "[]", r#"{"alternatives":[]}"#, r#"{"alternatives":[{"body":1}]}"#] {
            assert_eq!(choose(&Bytes::from(text), None), Err(NoForms), "{text}");
            assert_eq!(largest(&Bytes::from(text)), Err(NoForms), "{text}");
        }
        assert_eq!(choose(&Bytes::from_static(b"\xff"), None), Err(NoForms));
        assert_eq!(encode(&[]), Err(NoForms));
        assert_eq!(encode(&[("a/b", "{")]), Err(NoForms));
    }
}
