//! The table of misbehaviour: one row a mode, with what it does, the outcome that is right, and the
//! limit that ends it.

use std::fmt;

use posthorn_domain::FailureCode;

use crate::expectation::{Expectation, Outcome};

macro_rules! outcome {
    (answered $status:literal) => {
        Outcome::Answered($status)
    };
    (failed $code:ident) => {
        Outcome::Failed(FailureCode::$code)
    };
}

macro_rules! modes {
    ($(
        #[doc = $what:literal]
        $mode:ident $name:literal $door:ident [$($kind:ident $value:tt),+] $limit:literal;
    )+) => {
        /// One way to misbehave.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Mode {
            $(#[doc = $what] $mode,)+
        }

        impl Mode {
            /// Every mode, well-behaved controls first.
            pub const ALL: &'static [Mode] = &[$(Mode::$mode),+];

            /// Its stable name, for command lines and reports.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$mode => $name),+ }
            }

            /// What it does, in one sentence.
            pub const fn what(self) -> &'static str {
                match self { $(Self::$mode => $what.trim_ascii()),+ }
            }

            /// How a correct sender's attempt ends.
            pub const fn expectation(self) -> Expectation {
                match self { $(Self::$mode => Expectation(&[$(outcome!($kind $value)),+])),+ }
            }

            /// What ends it, in words.
            pub const fn limit(self) -> &'static str {
                match self { $(Self::$mode => $limit),+ }
            }

            pub(crate) const fn door(self) -> Door {
                match self { $(Self::$mode => Door::$door),+ }
            }
        }
    };
}

/// What a sender meets at the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// Plain HTTP.
    Plain,
    /// TLS with a good certificate.
    Tls,
    /// TLS that never gets as far as HTTP.
    Handshake,
}

modes! {
    /// Answers every request with its own body: the control.
    Healthy "healthy" Plain [answered 200] "none is needed";
    /// The same over TLS, with a certificate of the fleet's authority.
    HealthyTls "healthy-tls" Tls [answered 200] "none is needed";

    // Connecting.
    /// The port is bound, but nobody listens.
    Refused "refused" Plain [failed ConnectFailed] "the refusal is believed";
    /// The queue of connections is full, so packets vanish.
    Blackhole "blackhole" Plain [failed ConnectTimeout] "the connect deadline";
    /// Accepts, then slams the door.
    CloseOnAccept "close-on-accept" Plain [failed ConnectionClosed, failed ConnectFailed] "the close is believed";
    /// Accepts, then resets.
    ResetOnAccept "reset-on-accept" Plain [failed ConnectionClosed, failed ConnectFailed] "the reset is believed";

    // Silence and slowness.
    /// Accepts and never reads a byte.
    Deaf "deaf" Plain [failed ResponseTimeout] "the response deadline";
    /// Reads the request and never answers.
    Silent "silent" Plain [failed ResponseTimeout] "the response deadline";
    /// Sends the response head one byte at a time.
    SlowHead "slow-head" Plain [failed ResponseTimeout] "the response deadline, which no byte extends";
    /// Sends a good head, then the body one byte at a time.
    SlowBody "slow-body" Plain [answered 200] "the total deadline; the status stands";
    /// Sends a good head, then tiny chunks for ever.
    SlowChunks "slow-chunks" Plain [answered 200] "the total deadline; the status stands";

    // Endings in the middle.
    /// Reads the request and closes.
    CloseAfterRequest "close-after-request" Plain [failed ConnectionClosed] "the close is believed";
    /// Reads the request and resets.
    ResetAfterRequest "reset-after-request" Plain [failed ConnectionClosed] "the reset is believed";
    /// Reads the request, closes its sending side only, and goes on reading for ever.
    HalfClose "half-close" Plain [failed ConnectionClosed] "an end of stream is an end";
    /// Closes inside the status line.
    CutInStatusLine "cut-in-status-line" Plain [failed ConnectionClosed] "half a head is no head";
    /// Closes inside the headers.
    CutInHeaders "cut-in-headers" Plain [failed ConnectionClosed] "half a head is no head";
    /// Closes inside the body.
    CutInBody "cut-in-body" Plain [answered 200] "the status stands; the connection is not used again";
    /// Resets inside the body.
    ResetInBody "reset-in-body" Plain [answered 200] "the status stands; the connection is not used again";
    /// Closes between two requests, after promising to keep the connection.
    CloseWhenIdle "close-when-idle" Plain [answered 200] "an idle connection is looked at before it is used";
    /// Answers before the request is read, and hears the rest out.
    EarlyAnswer "early-answer" Plain [answered 413] "the answer is read while the request is still being written";
    /// Answers before the request is read, and resets.
    EarlyAnswerReset "early-answer-reset" Plain [answered 413, failed ConnectionClosed] "the answer is read even if writing fails";

    // Too much.
    /// Chunks without end.
    EndlessChunks "endless-chunks" Plain [answered 200] "64 KiB read, 16 KiB kept, then the connection is dropped";
    /// A body without length and without end.
    EndlessBody "endless-body" Plain [answered 200] "64 KiB read, 16 KiB kept, then the connection is dropped";
    /// The same after an error status.
    EndlessError "endless-error" Plain [answered 500] "64 KiB read, 16 KiB kept, then the connection is dropped";
    /// `Content-Length: 2^63`, three bytes, silence.
    HugeLength "huge-length" Plain [answered 200] "nothing is allocated on its word; the total deadline";
    /// `Content-Length: 2^64`.
    OverflowLength "overflow-length" Plain [failed ProtocolError] "a length that is no number is refused";
    /// One chunk of 2^64 - 1 bytes.
    HugeChunk "huge-chunk" Plain [answered 200] "nothing is allocated on its word; the total deadline";
    /// A chunk size that does not fit into 64 bits.
    OverflowChunk "overflow-chunk" Plain [answered 200] "the body ends there; the status stands";
    /// A chunk size that is no number.
    BrokenChunk "broken-chunk" Plain [answered 200] "the body ends there; the status stands";
    /// A chunk extension without end.
    EndlessChunkExtension "endless-chunk-extension" Plain [answered 200] "the body ends there; the status stands";
    /// Trailers without end.
    EndlessTrailers "endless-trailers" Plain [answered 200] "the body ends there; the status stands";
    /// 8 MiB of zeros in 53 KB of gzip.
    GzipBomb "gzip-bomb" Plain [answered 200] "nothing is ever decoded; bytes are kept raw";
    /// The same as `deflate`.
    DeflateBomb "deflate-bomb" Plain [answered 200] "nothing is ever decoded; bytes are kept raw";
    /// 1 GiB of zeros in 32 KiB of zstd.
    ZstdBomb "zstd-bomb" Plain [answered 200] "nothing is ever decoded; bytes are kept raw";
    /// Says `br`, `gzip`, `deflate` at once.
    StackedEncodings "stacked-encodings" Plain [answered 200] "nothing is ever decoded; bytes are kept raw";
    /// One header of 1 MB.
    GiantHeader "giant-header" Plain [failed ResponseHeadTooLarge] "32 KiB for a head";
    /// Ten thousand headers.
    ManyHeaders "many-headers" Plain [failed ResponseHeadTooLarge] "100 headers, 32 KiB for a head";
    /// A header that never ends.
    EndlessHeader "endless-header" Plain [failed ResponseHeadTooLarge] "32 KiB for a head";
    /// A reason phrase that never ends.
    EndlessReason "endless-reason" Plain [failed ResponseHeadTooLarge] "32 KiB for a head";
    /// `103 Early Hints` without end.
    EndlessInformational "endless-informational" Plain [failed ProtocolError] "10 informational heads";
    /// A few informational heads of 20 KB each.
    FatInformational "fat-informational" Plain [failed ResponseHeadTooLarge] "64 KiB before the answer";
    /// `101 Switching Protocols`, then another protocol.
    SwitchingProtocols "switching-protocols" Plain [failed ProtocolError] "never asked for, so refused";

    // Two readings of one answer.
    /// A good answer and a forged second one in the same packet.
    TwoAnswers "two-answers" Plain [answered 200] "a connection with bytes nobody asked for is closed";
    /// A good answer, and a forged one while the connection is idle.
    LateSecondAnswer "late-second-answer" Plain [answered 200] "a connection with bytes nobody asked for is closed";
    /// Both `Content-Length` and `Transfer-Encoding`, which disagree.
    LengthAndChunked "length-and-chunked" Plain [answered 200, failed ProtocolError] "the rest is never taken for an answer";
    /// Two lengths that disagree.
    TwoLengths "two-lengths" Plain [failed ProtocolError] "strict parsing";
    /// One length with a list of values that disagree.
    ListOfLengths "list-of-lengths" Plain [failed ProtocolError] "strict parsing";
    /// `Transfer-Encoding: chunked, identity`.
    ChunkedNotLast "chunked-not-last" Plain [answered 200, failed ProtocolError] "read to the end of the connection, which is then closed";
    /// `Transfer-Encoding: xchunked`.
    UnknownCoding "unknown-coding" Plain [answered 200, failed ProtocolError] "read to the end of the connection, which is then closed";
    /// A header continued on the next line.
    ObsoleteFold "obsolete-fold" Plain [failed ProtocolError] "strict parsing";
    /// Lines that end with a line feed only.
    BareLineFeed "bare-line-feed" Plain [answered 200, failed ProtocolError] "one reading only: the rest is never taken for an answer";
    /// A blank before the colon.
    SpaceBeforeColon "space-before-colon" Plain [failed ProtocolError] "strict parsing";
    /// `Content-Length: -1`.
    NegativeLength "negative-length" Plain [failed ProtocolError] "strict parsing";
    /// `Content-Length: +1`.
    SignedLength "signed-length" Plain [failed ProtocolError] "strict parsing";
    /// `Content-Length: 0x10`.
    HexLength "hex-length" Plain [failed ProtocolError] "strict parsing";
    /// A NUL inside a header.
    NulInHeader "nul-in-header" Plain [failed ProtocolError] "strict parsing";
    /// A body without any head.
    Http09 "http-0.9" Plain [failed ProtocolError] "only HTTP/1.0 and HTTP/1.1";
    /// HTTP/1.0, which ends with the connection.
    Http10 "http-1.0" Plain [answered 200] "the connection is not used again";
    /// Says HTTP/2.0 in a status line.
    Http20 "http-2.0" Plain [failed ProtocolError] "only HTTP/1.0 and HTTP/1.1";
    /// The connection preface of HTTP/2.
    Http2Preface "http2-preface" Plain [failed ProtocolError] "only HTTP/1.0 and HTTP/1.1";
    /// Frames of HTTP/2.
    Http2Frames "http2-frames" Plain [failed ProtocolError] "only HTTP/1.0 and HTTP/1.1";

    // Statuses.
    /// Status 000.
    Status000 "status-000" Plain [failed ProtocolError] "100 to 999";
    /// Status 99.
    Status99 "status-99" Plain [failed ProtocolError] "three digits";
    /// Status 1000.
    Status1000 "status-1000" Plain [failed ProtocolError] "three digits";
    /// A word for a status.
    StatusWord "status-word" Plain [failed ProtocolError] "three digits";
    /// Status 600.
    Status600 "status-600" Plain [answered 600] "not a success";
    /// Status 999.
    Status999 "status-999" Plain [answered 999] "not a success";
    /// 204 with a body that looks like an answer.
    NoContentWithBody "no-content-with-body" Plain [answered 204] "the rest is never taken for an answer";
    /// 304 with a body that looks like an answer.
    NotModifiedWithBody "not-modified-with-body" Plain [answered 304] "the rest is never taken for an answer";
    /// 200 with an error in the body.
    ErrorIn200 "error-in-200" Plain [answered 200] "the status decides";
    /// 410.
    Gone "gone" Plain [answered 410] "the subscription is disabled, its work kept";
    /// 429.
    TooManyRequests "too-many-requests" Plain [answered 429] "retried, as a throttle";
    /// 502.
    BadGateway "bad-gateway" Plain [answered 502] "retried, as a throttle";
    /// 504.
    GatewayTimeout "gateway-timeout" Plain [answered 504] "retried, as a throttle";

    // When to come back.
    /// `Retry-After: 9e18`.
    RetryAfterExponent "retry-after-exponent" Plain [answered 503] "digits or a date, anything else is ignored";
    /// `Retry-After: -1`.
    RetryAfterNegative "retry-after-negative" Plain [answered 503] "digits or a date, anything else is ignored";
    /// `Retry-After: NaN`.
    RetryAfterNan "retry-after-nan" Plain [answered 503] "digits or a date, anything else is ignored";
    /// `Retry-After: inf`.
    RetryAfterInfinity "retry-after-infinity" Plain [answered 503] "digits or a date, anything else is ignored";
    /// `Retry-After` with twenty digits.
    RetryAfterDigits "retry-after-digits" Plain [answered 503] "seven digits at most";
    /// `Retry-After` in the year 9999.
    RetryAfterYear9999 "retry-after-year-9999" Plain [answered 503] "the policy's cap";
    /// `Retry-After` of 8 KB.
    RetryAfterLong "retry-after-long" Plain [answered 503] "256 bytes of a header are kept";
    /// `Retry-After` of 1 MB.
    RetryAfterMegabyte "retry-after-megabyte" Plain [failed ResponseHeadTooLarge] "32 KiB for a head";

    // Lures.
    /// 301 to a trap.
    Redirect301 "redirect-301" Plain [answered 301] "redirects are never followed";
    /// 302 to a trap.
    Redirect302 "redirect-302" Plain [answered 302] "redirects are never followed";
    /// 303 to a trap.
    Redirect303 "redirect-303" Plain [answered 303] "redirects are never followed";
    /// 307 to a trap.
    Redirect307 "redirect-307" Plain [answered 307] "redirects are never followed";
    /// 308 to a trap.
    Redirect308 "redirect-308" Plain [answered 308] "redirects are never followed";
    /// 302 to itself.
    RedirectLoop "redirect-loop" Plain [answered 302] "redirects are never followed";
    /// 307 to a metadata service, without a scheme.
    RedirectMetadata "redirect-metadata" Plain [answered 307] "redirects are never followed";
    /// `Set-Cookie`.
    SetCookie "set-cookie" Plain [answered 200] "there is no cookie jar";
    /// `Strict-Transport-Security`.
    StrictTransport "strict-transport" Plain [answered 200] "nothing is remembered about a host";
    /// `Alt-Svc` to a trap.
    AltSvc "alt-svc" Plain [answered 200] "nothing is remembered about a host";
    /// `Refresh` and `Link: preload` to a trap.
    Refresh "refresh" Plain [answered 200] "nothing is followed";
    /// Keeps every connection open for ever.
    Hoard "hoard" Plain [answered 200] "idle time, age and number of connections";

    // Bodies for whoever shows them.
    /// An error with a body that is not UTF-8.
    BodyNotUtf8 "body-not-utf8" Plain [answered 500] "bytes are kept as bytes";
    /// An error with NULs in the body.
    BodyNul "body-nul" Plain [answered 500] "bytes are kept as bytes";
    /// An error with terminal escapes in the body.
    BodyAnsi "body-ansi" Plain [answered 500] "bytes are kept as bytes; whoever shows them escapes them";
    /// An error with text that reads backwards.
    BodyBidi "body-bidi" Plain [answered 500] "bytes are kept as bytes; whoever shows them escapes them";
    /// An error with a script in the body.
    BodyScript "body-script" Plain [answered 500] "bytes are kept as bytes; whoever shows them escapes them";

    // TLS.
    /// Reads the ClientHello and says nothing.
    TlsSilent "tls-silent" Handshake [failed TlsTimeout] "the TLS deadline";
    /// Answers the ClientHello one byte at a time.
    TlsDrip "tls-drip" Handshake [failed TlsTimeout] "the TLS deadline, which no byte extends";
    /// A handshake message that says it has 16 MiB, and begins to send them.
    TlsEndlessMessage "tls-endless-message" Handshake [failed TlsFailed] "64 KiB for a handshake message";
    /// Empty records without end.
    TlsEmptyRecords "tls-empty-records" Handshake [failed TlsFailed] "a few empty records";
    /// Warnings without end.
    TlsWarnings "tls-warnings" Handshake [failed TlsFailed] "a few warnings";
    /// A chain of certificates of more than 64 KiB.
    TlsHugeChain "tls-huge-chain" Handshake [failed TlsFailed] "64 KiB for a handshake message";
    /// Plain HTTP where TLS should be.
    TlsPlainHttp "tls-plain-http" Handshake [failed TlsFailed] "only TLS";
    /// Refuses every version.
    TlsAlert "tls-alert" Handshake [failed TlsFailed] "the refusal is believed";
    /// Resets after the ClientHello.
    TlsReset "tls-reset" Handshake [failed TlsFailed] "the reset is believed";
    /// A certificate that ended long ago.
    ExpiredCertificate "expired-certificate" Handshake [failed TlsCertificateInvalid] "certificates are always verified";
    /// A certificate that is not valid yet.
    FutureCertificate "future-certificate" Handshake [failed TlsCertificateInvalid] "certificates are always verified";
    /// A certificate for somebody else.
    WrongName "wrong-name" Handshake [failed TlsCertificateInvalid] "certificates are always verified";
    /// A certificate nobody signed.
    SelfSigned "self-signed" Handshake [failed TlsCertificateInvalid] "certificates are always verified";
    /// A certificate of an authority nobody knows.
    UnknownAuthority "unknown-authority" Handshake [failed TlsCertificateInvalid] "certificates are always verified";
    /// A good handshake, then silence.
    TlsThenSilent "tls-then-silent" Tls [failed ResponseTimeout] "the response deadline";
    /// A good handshake and head, then the connection is cut without a goodbye.
    TlsTruncated "tls-truncated" Tls [answered 200] "the status stands; the connection is not used again";
}

impl Mode {
    /// Every mode that is not a control.
    pub fn hostile() -> impl Iterator<Item = Mode> + Clone {
        Self::ALL.iter().copied().filter(|mode| !mode.is_control())
    }

    /// Whether it behaves.
    pub const fn is_control(self) -> bool {
        matches!(self, Self::Healthy | Self::HealthyTls)
    }

    /// The mode of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|mode| mode.name() == name)
    }

    /// Whether its URL begins with `https`.
    pub const fn is_tls(self) -> bool {
        !matches!(self.door(), Door::Plain)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Mode;

    #[test]
    fn names_are_unique_and_lead_back() {
        for mode in Mode::ALL {
            assert_eq!(Mode::parse(mode.name()), Some(*mode));
            assert!(!mode.what().is_empty() && !mode.limit().is_empty());
            assert!(!mode.expectation().outcomes().is_empty());
        }
        assert_eq!(Mode::parse("nice"), None);
    }
}
