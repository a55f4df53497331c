//! Server-sent events: what a server tells as it happens.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use serde_json::Value;

use crate::exit::{Code, Failure};

/// The longest line that is read: an event with all the attributes there can be is much shorter.
const LINE_BYTES_MAX: usize = 4 << 20;

/// A stream that was opened.
pub struct Stream {
    body: Incoming,
    /// The connection lives as long as this does.
    _sender: SendRequest<Full<Bytes>>,
    lines: Lines,
}

/// What was told at once.
#[derive(Debug, Default, PartialEq)]
pub struct Told {
    /// Where the stream stands after it.
    pub id: Option<String>,
    /// What happened, and what it is.
    pub item: Option<(String, Value)>,
}

impl Stream {
    pub(super) fn new(sender: SendRequest<Full<Bytes>>, body: Incoming) -> Self {
        Self { body, _sender: sender, lines: Lines::default() }
    }

    /// The next that is told; none when the stream has ended.
    pub async fn next(&mut self) -> anyhow::Result<Option<Told>> {
        loop {
            if let Some(told) = self.lines.next()? {
                return Ok(Some(told));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            if let Ok(data) = frame?.into_data() {
                self.lines.text.extend_from_slice(&data);
            }
        }
    }
}

/// Takes lines apart. Empty lines end what is told at once; lines that begin with a colon say nothing.
#[derive(Default)]
struct Lines {
    text: Vec<u8>,
    name: String,
    data: String,
    id: Option<String>,
}

impl Lines {
    fn next(&mut self) -> anyhow::Result<Option<Told>> {
        while let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.text.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\n', '\r']);
            if !line.is_empty() {
                self.take(line);
                continue;
            }
            let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
            let told = Told { id: self.id.take(), item: item(name, &data)? };
            if told != Told::default() {
                return Ok(Some(told));
            }
        }
        if self.text.len() > LINE_BYTES_MAX {
            let message = "the stream has a line that is longer than 4 MiB";
            return Err(Failure::new(Code::Failure, message).into());
        }
        Ok(None)
    }

    fn take(&mut self, line: &str) {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "id" => self.id = Some(value.to_owned()),
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            _ => {}
        }
    }
}

fn item(name: String, data: &str) -> anyhow::Result<Option<(String, Value)>> {
    if data.is_empty() {
        return Ok(None);
    }
    let not_json = |_| Failure::new(Code::Failure, "the stream told something that is not JSON");
    Ok(Some((name, serde_json::from_str(data).map_err(not_json)?)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_are_put_together_however_they_arrive() {
        let text = "retry: 1000\n: following\nid: a\n\nevent: event\r\nid: b\r\ndata: {\"n\":\r\ndata:  1}\r\n\r\n                    : keep-alive\n\nevent: skipped\ndata: {\"count\": 2}\n\nevent: half";
        let expected = [
            Told { id: Some("a".into()), item: None },
            Told { id: Some("b".into()), item: Some(("event".into(), json!({"n": 1}))) },
            Told { id: None, item: Some(("skipped".into(), json!({"count": 2}))) },
        ];
        for size in [1, 2, 7, 1_000] {
            let mut lines = Lines::default();
            let mut found = Vec::new();
            for part in text.as_bytes().chunks(size) {
                lines.text.extend_from_slice(part);
                while let Some(told) = lines.next().expect("it is proper") {
                    found.push(told);
                }
            }
            assert_eq!(found, expected, "{size}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let mut lines = Lines { text: b"data: {\n\n".to_vec(), ..Lines::default() };
        assert!(lines.next().is_err());
        let mut lines = Lines { text: vec![b'x'; LINE_BYTES_MAX + 1], ..Lines::default() };
        assert!(lines.next().is_err());
    }
}
