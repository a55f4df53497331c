//! Traces: which trace an event belongs to, as W3C Trace Context writes it.
//!
//! # What it is for
//! A publisher says with `traceparent` which trace its request belongs to. Attempts may be made hours later and on
//! another node, so what is needed of it is kept with the event: 25 bytes. `tracestate` is not kept: it is for
//! the vendors of tracing systems, may be 512 bytes long for each event, and may be dropped by anybody.
//!
//! # What it must not know
//! Who records traces, and how they are sent.

use std::fmt;

/// The trace that something belongs to; never all zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId([u8; 16]);

/// One step of a trace; never all zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId([u8; 8]);

impl TraceId {
    /// From its bytes; all zeros is none.
    pub fn new(bytes: [u8; 16]) -> Option<Self> {
        (bytes != [0; 16]).then_some(Self(bytes))
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl SpanId {
    /// From its bytes; all zeros is none.
    pub fn new(bytes: [u8; 8]) -> Option<Self> {
        (bytes != [0; 8]).then_some(Self(bytes))
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

/// A place in a trace: what comes next is a child of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The step in it that this follows from.
    pub span: SpanId,
    flags: u8,
}

/// Whoever was asked before records the trace.
const SAMPLED: u8 = 0b01;
/// The trace's id is random in its last seven bytes (W3C Trace Context, level 2).
const RANDOM: u8 = 0b10;

impl TraceContext {
    /// How many bytes it is stored as.
    pub const BYTES: usize = 25;
    /// How long version 00 of the header is; later versions may be longer.
    const TEXT: usize = 55;

    /// A new place in a trace.
    pub const fn new(trace: TraceId, span: SpanId, sampled: bool) -> Self {
        Self { trace, span, flags: if sampled { SAMPLED } else { 0 } }
    }

    /// Whether it is recorded.
    pub const fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The same trace, where it is or is not recorded.
    #[must_use]
    pub const fn with_sampled(self, sampled: bool) -> Self {
        let flags = if sampled { self.flags | SAMPLED } else { self.flags & !SAMPLED };
        Self { flags, ..self }
    }

    /// Another step of the same trace.
    #[must_use]
    pub const fn at(self, span: SpanId) -> Self {
        Self { span, ..self }
    }

    /// Reads the header `traceparent` by the rules of W3C Trace Context. What breaks them is `None`: a publisher is
    /// never refused because of it.
    ///
    /// Of a version after 00 the parts that are known are read; more may follow behind a dash. Flags that are
    /// not known are dropped, as the rules want it.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let head = bytes.get(..Self::TEXT)?;
        let version = byte(&head[..2])?;
        let fits = match version {
            0xff => false,
            0 => bytes.len() == Self::TEXT,
            _ => bytes.get(Self::TEXT).is_none_or(|next| *next == b'-'),
        };
        if !fits || head[2] != b'-' || head[35] != b'-' || head[52] != b'-' {
            return None;
        }
        let (mut trace, mut span) = ([0; 16], [0; 8]);
        read(&head[3..35], &mut trace)?;
        read(&head[36..52], &mut span)?;
        let flags = byte(&head[53..55])? & (SAMPLED | RANDOM);
        Some(Self { trace: TraceId::new(trace)?, span: SpanId::new(span)?, flags })
    }

    /// As it is stored.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..16].copy_from_slice(&self.trace.0);
        bytes[16..24].copy_from_slice(&self.span.0);
        bytes[24] = self.flags;
        bytes
    }

    /// Back from a store; `None` when these bytes were never stored by this program.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let trace = TraceId::new(std::array::from_fn(|at| bytes[at]))?;
        let span = SpanId::new(std::array::from_fn(|at| bytes[16 + at]))?;
        let flags = bytes[24];
        (flags & !(SAMPLED | RANDOM) == 0).then_some(Self { trace, span, flags })
    }
}

/// As in the header `traceparent`, in version 00.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace, self.span, self.flags)
    }
}

/// Lower case only: that is all the rules allow.
fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

fn byte(pair: &[u8]) -> Option<u8> {
    Some(digit(pair[0])? << 4 | digit(pair[1])?)
}

fn read(text: &[u8], into: &mut [u8]) -> Option<()> {
    for (pair, byte_of) in text.chunks_exact(2).zip(into) {
        *byte_of = byte(pair)?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let found = TraceContext::parse(text).map(|context| context.to_string());
        assert_eq!(found.as_deref(), expected, "{text}");
    }

    #[test]
    fn a_header_is_read_by_the_rules_of_w3c() {
        let whole = format!("00-{TRACE}-{SPAN}-01");
        check(&whole, Some(&whole));
        let quiet = format!("00-{TRACE}-{SPAN}-00");
        check(&quiet, Some(&quiet));
        let random = format!("00-{TRACE}-{SPAN}-03");
        check(&random, Some(&random));
        // Flags that nobody knows yet are dropped.
        check(&format!("00-{TRACE}-{SPAN}-ff"), Some(&random));
        check(&format!("00-{TRACE}-{SPAN}-08"), Some(&quiet));
    }

    #[test]
    fn later_versions_are_read_as_far_as_they_are_known() {
        let as_ours = format!("00-{TRACE}-{SPAN}-01");
        for version in ["01", "cc", "fe"] {
            check(&format!("{version}-{TRACE}-{SPAN}-01"), Some(&as_ours));
            check(&format!("{version}-{TRACE}-{SPAN}-01-what-comes"), Some(&as_ours));
            check(&format!("{version}-{TRACE}-{SPAN}-01-"), Some(&as_ours));
            check(&format!("{version}-{TRACE}-{SPAN}-01.what"), None);
            check(&format!("{version}-{TRACE}-{SPAN}-011"), None);
        }
        check(&format!("ff-{TRACE}-{SPAN}-01"), None);
        check(&format!("00-{TRACE}-{SPAN}-01-what"), None);
    }

    #[test]
    fn what_breaks_the_rules_is_no_context() {
        let none = "0".repeat(32);
        for text in [
            String::new(),
            "00".to_owned(),
            format!("00-{none}-{SPAN}-01"),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-{SPAN}-0"),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-0g"),
            format!("0-{TRACE}-{SPAN}-011"),
            format!("00_{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}_{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}_01"),
            format!(" 00-{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-01 "),
            format!("00-{}é-{SPAN}-01", &TRACE[..30]),
            format!("0x-{TRACE}-{SPAN}-01"),
        ] {
            check(&text, None);
        }
    }

    #[test]
    fn it_is_stored_in_25_bytes_and_comes_back() {
        let context = TraceContext::parse(&format!("00-{TRACE}-{SPAN}-03")).expect("valid");
        let bytes = context.to_bytes();
        assert_eq!(TraceContext::from_bytes(&bytes), Some(context));
        assert_eq!(TraceContext::from_bytes(&bytes[..24]), None);
        assert_eq!(TraceContext::from_bytes(&[0; 25]), None);
        let mut odd = bytes;
        odd[24] = 0x10;
        assert_eq!(TraceContext::from_bytes(&odd), None);
    }

    #[test]
    fn a_step_keeps_the_trace_and_its_flags() {
        let context = TraceContext::parse(&format!("00-{TRACE}-{SPAN}-03")).expect("valid");
        let next = context.at(SpanId::new([7; 8]).expect("not zero"));
        assert_eq!(next.to_string(), format!("00-{TRACE}-0707070707070707-03"));
        assert!(next.is_sampled());
        assert!(!next.with_sampled(false).is_sampled());
        assert_eq!(next.with_sampled(false).with_sampled(true), next);
    }
}
