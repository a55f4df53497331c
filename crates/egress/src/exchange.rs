//! One request for one answer on an open link, under absolute deadlines.
//!
//! Everything the response futures wait for is produced by [`Link::drive`] in the same poll, so
//! they are polled with a waker that does nothing: the only wake-ups are those of the socket and
//! of one timer, which is not even registered when the answer is already there.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderName, LOCATION, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use http_body::Body as _;
use http_body_util::Full;
use hyper::body::Incoming;
use posthorn_domain::limits::{RESPONSE_KEPT_BYTES_MAX, RESPONSE_READ_BYTES_MAX};
use posthorn_domain::{Answer, FailureCode};
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::failure::SendFailure;
use crate::link::Link;
use crate::stream::Trip;

/// What is sent.
pub(crate) type Message = http::Request<Full<Bytes>>;

/// Longest header value kept from an answer; longer ones are noise.
const HEADER_KEPT_BYTES_MAX: usize = 256;
/// The longest URL that a redirect may lead to.
const LOCATION_BYTES_MAX: usize = 2_048;

/// How much of a response body is of use.
#[derive(Clone, Copy)]
pub(crate) struct Appetite {
    /// Bytes that are kept.
    pub(crate) kept: usize,
    /// Bytes that are read before the connection is dropped.
    pub(crate) read: usize,
    /// Whether the headers are of use.
    pub(crate) headers: bool,
}

impl Default for Appetite {
    fn default() -> Self {
        Self { kept: RESPONSE_KEPT_BYTES_MAX, read: RESPONSE_READ_BYTES_MAX, headers: false }
    }
}

/// When to stop waiting.
#[derive(Clone, Copy)]
pub(crate) struct Until {
    /// For the response head.
    pub(crate) head: Instant,
    /// For everything.
    pub(crate) total: Instant,
}

/// How an exchange ended.
pub(crate) enum Exchanged {
    /// A head arrived, and as much of the body as could be had.
    Answered {
        answer: Answer,
        /// Where it leads, when it is a redirect.
        location: Option<String>,
        /// All headers, when they are of use.
        headers: Option<Box<HeaderMap>>,
        head_at: Instant,
        /// The link may carry another request.
        clean: bool,
    },
    /// Not a byte of the request left us: it may be sent on another link.
    NotSent(Box<Message>, SendFailure),
    Failed(SendFailure),
}

/// Runs one exchange. After anything but a clean answer the link must be dropped.
pub(crate) async fn exchange(
    link: &mut Link,
    mut message: Message,
    until: Until,
    appetite: Appetite,
) -> Exchanged {
    link.meter.restart();
    let meter = Arc::clone(&link.meter);
    hyper::ext::on_informational(&mut message, move |_| meter.count_informational());

    let first = until.head.min(until.total);
    let mut alarm = Alarm { sleep: pin!(sleep_until(first)), at: first };
    let response = match head(link, message, first, &mut alarm).await {
        Ok(response) => response,
        Err(HeadTrouble::Late) if until.total <= until.head => {
            return Exchanged::Failed(SendFailure::out_of_time("waiting for the response head"));
        }
        Err(HeadTrouble::Late) => {
            let detail = "no response head in time";
            return Exchanged::Failed(SendFailure::new(FailureCode::ResponseTimeout, detail));
        }
        Err(HeadTrouble::NotSent(message, failure)) => {
            return Exchanged::NotSent(message, failure);
        }
        Err(HeadTrouble::Failed(failure)) => return Exchanged::Failed(failure),
    };
    let head_at = Instant::now();
    if link.meter.tripped() == Some(Trip::Informational) {
        let detail = "too many informational responses";
        return Exchanged::Failed(SendFailure::new(FailureCode::ProtocolError, detail));
    }
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let detail = "the receiver wants to switch protocols";
        return Exchanged::Failed(SendFailure::new(FailureCode::ProtocolError, detail));
    }
    link.meter.enter_body();

    let (parts, body) = response.into_parts();
    let (kept, complete) = read(link, body, until.total, appetite, &mut alarm).await;
    let clean = complete && !link.has_ended() && (link.sender.is_ready() || link.is_clean());
    let answer = Answer {
        status: parts.status.as_u16(),
        retry_after: short_text(&parts.headers, &RETRY_AFTER),
        content_type: short_text(&parts.headers, &CONTENT_TYPE),
        body: kept,
    };
    let location = parts.status.is_redirection().then(|| location(&parts.headers)).flatten();
    let headers = appetite.headers.then(|| Box::new(parts.headers));
    Exchanged::Answered { answer, location, headers, head_at, clean }
}

enum HeadTrouble {
    Late,
    NotSent(Box<Message>, SendFailure),
    Failed(SendFailure),
}

async fn head(
    link: &mut Link,
    message: Message,
    deadline: Instant,
    alarm: &mut Alarm<'_>,
) -> Result<http::Response<Incoming>, HeadTrouble> {
    // The budget must not apply: a future that pends for want of budget wakes its waker, and
    // here that is nobody.
    let mut response = pin!(unconstrained(link.sender.try_send_request(message)));
    let ended = std::future::poll_fn(|cx| {
        link.drive(cx);
        match response.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending => alarm.poll(cx, deadline).map(|()| None),
        }
    })
    .await;
    match ended {
        Some(Ok(response)) => Ok(response),
        Some(Err(mut error)) => {
            let failure = SendFailure::before_head(error.error(), link.meter.tripped());
            match error.take_message() {
                Some(message) => Err(HeadTrouble::NotSent(Box::new(message), failure)),
                None => Err(HeadTrouble::Failed(failure)),
            }
        }
        None => Err(HeadTrouble::Late),
    }
}

/// Reads the body up to the limit or the deadline. Returns what is kept, and whether the body
/// was read to its end. Nothing is allocated on the word of a `Content-Length`.
async fn read(
    link: &mut Link,
    mut body: Incoming,
    deadline: Instant,
    appetite: Appetite,
    alarm: &mut Alarm<'_>,
) -> (Bytes, bool) {
    if body.is_end_stream() {
        return (Bytes::new(), true);
    }
    let mut kept = BytesMut::new();
    let mut seen = 0;
    let complete = std::future::poll_fn(|cx| {
        let mut driven = false;
        loop {
            match Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(None) => return Poll::Ready(true),
                Poll::Ready(Some(Err(_))) => return Poll::Ready(false),
                Poll::Ready(Some(Ok(frame))) => {
                    driven = false;
                    if let Some(data) = frame.data_ref() {
                        seen += data.len();
                        let room = appetite.kept - kept.len();
                        kept.extend_from_slice(&data[..data.len().min(room)]);
                        if seen > appetite.read {
                            return Poll::Ready(false);
                        }
                    }
                }
                // Usually head and body arrive together, so the body is asked before the socket.
                Poll::Pending if !driven => {
                    link.drive(cx);
                    driven = true;
                }
                Poll::Pending => return alarm.poll(cx, deadline).map(|()| false),
            }
        }
    })
    .await;
    (kept.freeze(), complete)
}

fn short_text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let text = headers.get(name)?.to_str().ok()?;
    (text.len() <= HEADER_KEPT_BYTES_MAX).then(|| text.to_owned())
}

/// Where a redirect leads, when it says so in a text of a sane length.
fn location(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(LOCATION)?.to_str().ok()?;
    (text.len() <= LOCATION_BYTES_MAX).then(|| text.to_owned())
}

/// One timer for all phases of an exchange, registered with the runtime only when first polled.
struct Alarm<'a> {
    sleep: Pin<&'a mut Sleep>,
    at: Instant,
}

impl Alarm<'_> {
    fn poll(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        if self.at != deadline {
            self.sleep.as_mut().reset(deadline);
            self.at = deadline;
        }
        self.sleep.as_mut().poll(cx)
    }
}
