//! Attempts: what was tried, and what came of it.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{DeliveryId, Held, SentRequest, Span, Timestamp};

/// Why an attempt ended without an answer. Each has a stable code; nobody searches error texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCode {
    /// The URL itself is not allowed.
    UrlNotAllowed,
    /// A rule of the policy refuses the URL.
    UrlRefused,
    /// The name does not resolve.
    DnsFailed,
    /// The name did not resolve in time.
    DnsTimeout,
    /// The address is private, special or denied by the operator.
    AddressNotAllowed,
    /// The connection was refused or the network is unreachable.
    ConnectFailed,
    /// No connection in time.
    ConnectTimeout,
    /// The proxy that the policy names could not be reached, or did not lead on.
    ProxyFailed,
    /// The receiver's certificate is out of date, for another name, or not trusted.
    TlsCertificateInvalid,
    /// The TLS handshake failed for another reason: protocol, cipher, or the receiver refused us.
    TlsFailed,
    /// The TLS handshake took too long.
    TlsTimeout,
    /// The request was sent, but no response head came in time.
    ResponseTimeout,
    /// The whole attempt took too long.
    AttemptTimeout,
    /// The connection broke before a response head arrived.
    ConnectionClosed,
    /// What came back is not HTTP as it should be.
    ProtocolError,
    /// The response head is larger than the limit.
    ResponseHeadTooLarge,
    /// The request could not be built: template, header or secret trouble.
    RequestInvalid,
    /// The policy has no path for events of this family, or has switched them off.
    FamilyNotRouted,
    /// A secret or identity the policy asks for is missing.
    AuthUnavailable,
    /// The client certificate the policy asks for is missing, revoked, out of date or cannot be
    /// opened.
    CertificateUnavailable,
    /// The token that the receiver asks for could not be fetched.
    TokenUnavailable,
    /// What there is to say does not fit into a push message.
    MessageTooLarge,
    /// The message could not be put into the agent's mailbox; trouble of ours.
    PushUnavailable,
    /// The attempt itself crashed; a defect of ours, never of the receiver.
    Internal,
}

impl FailureCode {
    /// All of them, for tables and metrics.
    pub const ALL: [FailureCode; 24] = [
        Self::UrlNotAllowed,
        Self::UrlRefused,
        Self::DnsFailed,
        Self::DnsTimeout,
        Self::AddressNotAllowed,
        Self::ConnectFailed,
        Self::ConnectTimeout,
        Self::ProxyFailed,
        Self::TlsCertificateInvalid,
        Self::TlsFailed,
        Self::TlsTimeout,
        Self::ResponseTimeout,
        Self::AttemptTimeout,
        Self::ConnectionClosed,
        Self::ProtocolError,
        Self::ResponseHeadTooLarge,
        Self::RequestInvalid,
        Self::FamilyNotRouted,
        Self::AuthUnavailable,
        Self::CertificateUnavailable,
        Self::TokenUnavailable,
        Self::MessageTooLarge,
        Self::PushUnavailable,
        Self::Internal,
    ];

    /// The stable code, as stores, metrics and the API show it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UrlNotAllowed => "url_not_allowed",
            Self::UrlRefused => "url_refused",
            Self::DnsFailed => "dns_failed",
            Self::DnsTimeout => "dns_timeout",
            Self::AddressNotAllowed => "address_not_allowed",
            Self::ConnectFailed => "connect_failed",
            Self::ConnectTimeout => "connect_timeout",
            Self::ProxyFailed => "proxy_failed",
            Self::TlsCertificateInvalid => "tls_certificate_invalid",
            Self::TlsFailed => "tls_failed",
            Self::TlsTimeout => "tls_timeout",
            Self::ResponseTimeout => "response_timeout",
            Self::AttemptTimeout => "attempt_timeout",
            Self::ConnectionClosed => "connection_closed",
            Self::ProtocolError => "protocol_error",
            Self::ResponseHeadTooLarge => "response_head_too_large",
            Self::RequestInvalid => "request_invalid",
            Self::FamilyNotRouted => "family_not_routed",
            Self::AuthUnavailable => "auth_unavailable",
            Self::CertificateUnavailable => "certificate_unavailable",
            Self::TokenUnavailable => "token_unavailable",
            Self::MessageTooLarge => "message_too_large",
            Self::PushUnavailable => "push_unavailable",
            Self::Internal => "internal",
        }
    }

    /// Back from a store.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == text)
    }

    /// The code as tenants may see it: whether a name leads to a closed address or nowhere would tell them
    /// which names there are in the operator's network.
    pub const fn for_tenants(self) -> Self {
        match self {
            Self::AddressNotAllowed => Self::DnsFailed,
            other => other,
        }
    }

    /// Whether the URL was refused, so that nothing was sent anywhere. A name that could not be looked
    /// up is not: that may be our own name servers' trouble, and nobody should be unsubscribed for it.
    pub const fn refuses_url(self) -> bool {
        matches!(self, Self::UrlNotAllowed | Self::UrlRefused | Self::AddressNotAllowed)
    }

    /// Whether it says that the receiver, or the way to it, has too much to do: no connection, or not in
    /// time. Only such failures lower the number of attempts under way at once.
    pub const fn is_overload(self) -> bool {
        matches!(
            self,
            Self::DnsTimeout
                | Self::ConnectFailed
                | Self::ConnectTimeout
                | Self::ProxyFailed
                | Self::TlsTimeout
                | Self::ResponseTimeout
                | Self::AttemptTimeout
        )
    }

    /// Whether the receiver (or the way to it) is at fault, as opposed to our request.
    /// Only such failures count for its health.
    pub const fn blames_receiver(self) -> bool {
        !matches!(
            self,
            Self::UrlRefused
                | Self::RequestInvalid
                | Self::FamilyNotRouted
                | Self::AuthUnavailable
                | Self::CertificateUnavailable
                | Self::TokenUnavailable
                | Self::MessageTooLarge
                | Self::PushUnavailable
                | Self::Internal
        )
    }
}

/// What a receiver answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The raw `Retry-After` header, when there was one.
    pub retry_after: Option<String>,
    /// The media type of the body.
    pub content_type: Option<String>,
    /// The first bytes of the body, raw.
    pub body: Bytes,
}

/// How one attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// A response head arrived.
    Answered(Answer),
    /// None did.
    Failed {
        /// Why.
        code: FailureCode,
        /// For the operator; never shown to tenants when it could reveal the network.
        detail: String,
    },
}

/// What an attempt came to, in one value: what histories are searched by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The receiver answered with this HTTP status.
    Status(u16),
    /// It did not answer.
    Failure(FailureCode),
}

impl Outcome {
    /// The number that stores keep: the status, or a negative one made of the code's text. It does not change
    /// when codes are added.
    pub fn code(self) -> i32 {
        match self {
            Self::Status(status) => i32::from(status),
            Self::Failure(code) => {
                // FNV-1a. A test sees to it that no two codes share a number.
                let hash = code.as_str().bytes().fold(0x811c_9dc5_u32, |hash, byte| {
                    (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
                });
                -1 - i32::try_from(hash >> 1).unwrap_or_default()
            }
        }
    }

    /// Back from what a store kept.
    pub fn from_code(number: i32) -> Option<Self> {
        if number >= 0 {
            return u16::try_from(number).ok().map(Self::Status);
        }
        let mut failures = FailureCode::ALL.into_iter().map(Self::Failure);
        failures.find(|failure| failure.code() == number)
    }
}

/// How long the phases of a request took, and what came before. Absent where a phase did not happen, or did not end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// Resolving the name.
    pub dns: Option<Span>,
    /// Connecting.
    pub connect: Option<Span>,
    /// The TLS handshake.
    pub tls: Option<Span>,
    /// From the beginning to the head of the response.
    pub first_byte: Option<Span>,
    /// What had held it back, where it did not begin as soon as there was something to send.
    pub held: Option<Held>,
}

impl Timings {
    /// As stores keep them: milliseconds with commas between, then what had held it back; `None` when there is nothing.
    pub fn to_text(self) -> Option<String> {
        let all = [self.dns, self.connect, self.tls, self.first_byte];
        let text = |span: Option<Span>| span.map_or(String::new(), |s| s.as_millis().to_string());
        let measured = all.iter().any(Option::is_some);
        match self.held {
            None => measured.then(|| all.map(text).join(",")),
            Some(held) => Some(format!("{},{}", all.map(text).join(","), held.to_text())),
        }
    }

    /// Back from what a store kept. What cannot be read counts as not measured.
    pub fn from_text(text: &str) -> Self {
        let mut parts = text.splitn(5, ',');
        let mut next = || parts.next()?.parse().ok().map(Span::from_millis);
        let (dns, connect, tls, first_byte) = (next(), next(), next(), next());
        Self { dns, connect, tls, first_byte, held: parts.next().and_then(Held::from_text) }
    }
}

/// One line of a delivery's append-only history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Which delivery.
    pub delivery: DeliveryId,
    /// Counts from 1 and never restarts, also not after a redrive.
    pub number: u32,
    /// When the request began.
    pub started_at: Timestamp,
    /// How long it took.
    pub took: Span,
    /// How long its phases took.
    pub timings: Timings,
    /// The HTTP status, when one arrived.
    pub status: Option<u16>,
    /// The failure code, when none arrived.
    pub failure: Option<FailureCode>,
    /// What the operator should know besides the code.
    pub detail: String,
    /// The first bytes of the response body.
    pub response: Bytes,
    /// True when the result arrived after the shard had moved on: kept for audit, changed nothing.
    pub late: bool,
    /// True when somebody asked for it: the first attempt after a retry by hand or by a job.
    pub manual: bool,
    /// When what the receiver said was removed for good: `response` and `detail` are empty since.
    pub response_expunged_at: Option<Timestamp>,
    /// What it sent; kept of those that failed.
    pub request: Option<Box<SentRequest>>,
}

impl Attempt {
    /// What it came to.
    pub fn came_of_it(&self) -> Option<Outcome> {
        self.status.map(Outcome::Status).or(self.failure.map(Outcome::Failure))
    }

    /// What came of it in one line, without a word of the receiver's own and without anything that
    /// tells of the network: safe to show to whoever may see the delivery.
    pub fn summary(&self) -> String {
        self.came_to(self.failure.map(FailureCode::for_tenants))
    }

    /// The same for operators, who may know which addresses are closed.
    pub fn outcome(&self) -> String {
        self.came_to(self.failure)
    }

    fn came_to(&self, failure: Option<FailureCode>) -> String {
        match (self.status, failure) {
            (Some(status), _) => format!("HTTP {status}"),
            (None, Some(code)) => format!("no answer: {}", code.as_str()),
            (None, None) => "no answer".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WaitReason;

    #[test]
    fn every_outcome_has_a_number_of_its_own_and_comes_back() {
        let failures = FailureCode::ALL.into_iter().map(Outcome::Failure);
        let all: Vec<Outcome> = (0..1_000).map(Outcome::Status).chain(failures).collect();
        let mut numbers: Vec<i32> = all.iter().map(|outcome| outcome.code()).collect();
        for (outcome, number) in all.iter().zip(&numbers) {
            assert_eq!(Outcome::from_code(*number), Some(*outcome));
        }
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), all.len());
        assert_eq!(Outcome::from_code(-5), None);
        assert_eq!(Outcome::from_code(70_000), None);
    }

    /// Stores keep these numbers: they must never change.
    #[test]
    fn numbers_of_failures_are_as_they_were() {
        assert_eq!(Outcome::Failure(FailureCode::ConnectFailed).code(), NUMBER_OF_CONNECT_FAILED);
    }

    const NUMBER_OF_CONNECT_FAILED: i32 = -235_982_690;

    #[test]
    fn timings_come_back_with_and_without_what_held_them() {
        let some = |millis| Some(Span::from_millis(millis));
        let phases = Timings { dns: some(1), first_byte: some(9), ..Timings::default() };
        assert_eq!(phases.to_text().as_deref(), Some("1,,,9"));
        let late = Span::from_millis(700);
        let lane = Held { until_due: WaitReason::Lane, late, by: Some(WaitReason::Rate) };
        let schedule = Held { until_due: WaitReason::Schedule, late: Span::ZERO, by: None };
        for held in [None, Some(lane), Some(schedule)] {
            for timings in [Timings { held, ..phases }, Timings { held, ..Timings::default() }] {
                let text = timings.to_text().unwrap_or_default();
                assert_eq!(Timings::from_text(&text), timings, "{text}");
            }
        }
        for text in ["", "x", ",,,", "1,,,9,nonsense,5,", "1,,,9,lane,-5,", "1,,,9,lane"] {
            assert_eq!(Timings::from_text(text).held, None, "{text}");
        }
    }
}
