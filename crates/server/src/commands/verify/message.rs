//! A request as it was received: headers and body, from a file or piece by piece.

use posthorn_domain::Problem;

/// One request. Only what signatures are about is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    /// Names in lower case, in the order they came.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// What is odd about the request as a whole.
    pub(super) oddities: Vec<(&'static str, String)>,
}

/// What a header is to those who look for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    Missing,
    Once(&'a str),
    Repeated,
}

impl Message {
    /// Reads a request from its bytes: a request line, headers, an empty line, the body. Line ends
    /// may have lost their carriage returns, as editors like to do.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Problem> {
        let (head, rest) = split_head(bytes).ok_or(
            "the empty line after the headers is missing: give the whole request, headers and body",
        )?;
        let head = std::str::from_utf8(head).map_err(|_| "its headers are not text")?;
        let mut lines = head.lines();
        let first = lines.next().unwrap_or_default();
        if !first.contains(" HTTP/1.") && !first.contains(" HTTP/2") {
            let problem =
                format!("`{first:.60}` is not a request line such as POST /hook HTTP/1.1");
            return Err(problem.into());
        }
        let mut message = Self::default();
        for line in lines {
            message.add_line(line)?;
        }
        message.take_body(rest)?;
        Ok(message)
    }

    /// Adds a header, written as `Name: value`.
    pub(super) fn add_line(&mut self, line: &str) -> Result<(), Problem> {
        let (name, value) = line
            .split_once(':')
            .filter(|(name, _)| !name.is_empty() && !name.contains(char::is_whitespace))
            .ok_or_else(|| format!("`{line:.60}` is not a header: write it as `Name: value`"))?;
        self.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        Ok(())
    }

    fn take_body(&mut self, rest: &[u8]) -> Result<(), Problem> {
        if let Found::Once(coding) = self.header("transfer-encoding") {
            return Err(format!(
                "its body is chunked (Transfer-Encoding: {coding:.40}); save the decoded body and \
                 give it with --body"
            )
            .into());
        }
        self.body = rest.to_vec();
        let Found::Once(length) = self.header("content-length") else { return Ok(()) };
        let length: usize =
            length.parse().map_err(|_| format!("Content-Length `{length:.20}` is not a number"))?;
        if length > rest.len() {
            self.oddities.push((
                "body_truncated",
                format!("Content-Length says {length} bytes, but only {} are here", rest.len()),
            ));
        }
        // What follows the body, often a line end of the tool that wrote the file, is not of it.
        self.body.truncate(length);
        Ok(())
    }

    /// A header by its name in lower case.
    pub(super) fn header(&self, name: &str) -> Found<'_> {
        let mut values = self.headers.iter().filter(|(known, _)| known == name);
        match (values.next(), values.next()) {
            (None, _) => Found::Missing,
            (Some((_, value)), None) => Found::Once(value),
            (Some(_), Some(_)) => Found::Repeated,
        }
    }
}

fn split_head(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let find = |end: &[u8]| {
        let at = bytes.windows(end.len()).position(|window| window == end)?;
        Some((at, at + end.len()))
    };
    let (end, begin) = match (find(b"\r\n\r\n"), find(b"\n\n")) {
        (Some(one), Some(other)) => one.min(other),
        (one, other) => one.or(other)?,
    };
    Some((&bytes[..end], &bytes[begin..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_taken_apart() {
        for head in [
            "POST /hook HTTP/1.1\r\nHost: a\r\nWebhook-Id:  x \r\nContent-Length: 4\r\n\r\n",
            "POST /hook HTTP/1.1\nHost: a\nWebhook-Id:  x \nContent-Length: 4\n\n",
        ] {
            let message = Message::parse(format!("{head}a\n\nb\n").as_bytes()).unwrap();
            assert_eq!(message.body, b"a\n\nb", "{head:?}");
            assert_eq!(message.header("webhook-id"), Found::Once("x"));
            assert_eq!(message.header("x"), Found::Missing);
            assert!(message.oddities.is_empty());
        }
        let cut = Message::parse(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nab").unwrap();
        assert_eq!(cut.oddities[0].0, "body_truncated");
        let twice = Message::parse(b"POST / HTTP/1.1\nA: 1\na: 2\n\n").unwrap();
        assert_eq!(twice.header("a"), Found::Repeated);
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for bad in [
            &b""[..],
            b"POST / HTTP/1.1\r\n",
            b"{\"a\":1}\n\n",
            b"POST / HTTP/1.1\r\nno header\r\n\r\n",
            b"POST / HTTP/1.1\r\nA B: c\r\n\r\n",
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
            b"POST / HTTP/1.1\r\nA: \xff\r\n\r\n",
        ] {
            assert!(Message::parse(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }
}
