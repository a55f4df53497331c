//! Entrances for the fuzz targets to what is otherwise private: the readers of what clients write, each
//! without a server around it. Nothing of the product uses them, and they promise nothing.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use posthorn_engine::Publish;

use crate::cursor::{self, List};
use crate::handlers::{cloudevents, publish};
use crate::json;

/// An event as the API understood it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Understood {
    /// The topic.
    pub topic: String,
    /// The type.
    pub event_type: String,
    /// The attributes.
    pub attributes: BTreeMap<String, String>,
    /// The key of ordered lanes.
    pub key: Option<String>,
    /// The media type.
    pub content_type: String,
    /// The payload.
    pub payload: Vec<u8>,
}

impl From<Publish> for Understood {
    fn from(publish: Publish) -> Self {
        Self {
            topic: publish.topic.as_str().to_owned(),
            event_type: publish.event_type.as_str().to_owned(),
            attributes: publish.attributes,
            key: publish.key.map(|key| key.as_str().to_owned()),
            content_type: publish.content_type,
            payload: publish.payload.to_vec(),
        }
    }
}

/// Reads the body of a single publish.
pub fn understand_event(body: &[u8]) -> Option<Understood> {
    publish::read_one(&Bytes::copy_from_slice(body), None).ok().map(Understood::from)
}

/// Reads the body of a batch; an event that is refused is `None`.
pub fn understand_batch(body: &[u8]) -> Option<Vec<Option<Understood>>> {
    let items = publish::items(&Bytes::copy_from_slice(body)).ok()?;
    Some(items.into_iter().map(|item| item.ok().map(Understood::from)).collect())
}

/// Reads a single CloudEvent in structured mode.
pub fn understand_cloudevent(body: &[u8]) -> Option<Understood> {
    let body = Bytes::copy_from_slice(body);
    cloudevents::read_structured(&body, None).ok().map(Understood::from)
}

/// Reads a batch of CloudEvents; one that is refused is `None`.
pub fn understand_cloudevents(body: &[u8]) -> Option<Vec<Option<Understood>>> {
    let events = cloudevents::read_batch(&Bytes::copy_from_slice(body), None).ok()?;
    Some(events.into_iter().map(|event| event.ok().map(Understood::from)).collect())
}

/// Reads a CloudEvent in binary mode. What cannot be a header does not arrive.
pub fn understand_binary_cloudevent(
    headers: &[(Vec<u8>, Vec<u8>)],
    body: &[u8],
) -> Option<Understood> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name).ok()?;
        map.append(name, HeaderValue::from_bytes(value).ok()?);
    }
    let body = Bytes::copy_from_slice(body);
    cloudevents::read_binary(&map, &body, None).ok().map(Understood::from)
}

/// Reads a small document strictly.
pub fn parse_strict(text: &str) -> Option<serde_json::Value> {
    let fields: serde_json::Map<String, serde_json::Value> = json::parse_strict(text).ok()?;
    Some(serde_json::Value::Object(fields))
}

/// One of the lists that have cursors.
#[derive(Clone, Copy, Debug)]
pub struct CursorList(List);

/// All lists that have cursors.
pub fn cursor_lists() -> &'static [CursorList] {
    const ALL: [CursorList; 8] = [
        CursorList(List::Events),
        CursorList(List::Topics),
        CursorList(List::Subscriptions),
        CursorList(List::Deliveries),
        CursorList(List::Redrives),
        CursorList(List::Tenants),
        CursorList(List::Keys),
        CursorList(List::Certificates),
        CursorList(List::Sessions),
    ];
    &ALL
}

/// Reads a cursor.
pub fn decode_cursor(list: CursorList, text: &str) -> Option<Vec<u8>> {
    cursor::decode(list.0, text).ok()
}

/// Writes a cursor.
pub fn encode_cursor(list: CursorList, behind: &[u8]) -> String {
    cursor::encode(list.0, behind)
}
