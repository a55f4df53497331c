//! Typed reasons why no answer arrived. Nothing here or above searches error texts.

use std::error::Error as _;
use std::io;

use posthorn_domain::{AttemptOutcome, FailureCode};

use crate::stream::Trip;

/// Longest detail; what matters is said before.
const DETAIL_BYTES_MAX: usize = 500;

/// A code for the engine, a detail for the operator.
#[derive(Debug)]
pub(crate) struct SendFailure {
    pub(crate) code: FailureCode,
    pub(crate) detail: String,
}

impl SendFailure {
    pub(crate) fn new(code: FailureCode, detail: impl Into<String>) -> Self {
        let mut detail = detail.into();
        // Receivers have a say in some texts: a certificate's ten thousand names are all listed.
        if detail.len() > DETAIL_BYTES_MAX {
            detail.truncate(detail.floor_char_boundary(DETAIL_BYTES_MAX));
            detail.push('…');
        }
        Self { code, detail }
    }

    pub(crate) fn into_outcome(self) -> AttemptOutcome {
        AttemptOutcome::Failed { code: self.code, detail: self.detail }
    }

    /// The whole attempt ran out of time while we were `doing`.
    pub(crate) fn out_of_time(doing: &str) -> Self {
        Self::new(FailureCode::AttemptTimeout, format!("timed out while {doing}"))
    }

    /// What the error of a TLS handshake means. An error without a TLS reason is the receiver
    /// hanging up.
    pub(crate) fn of_handshake(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::QuotaExceeded {
            let detail = "the receiver sent too much before the TLS handshake was done";
            return Self::new(FailureCode::TlsFailed, detail);
        }
        Self::new(code_of_tls(error).unwrap_or(FailureCode::TlsFailed), chain(error))
    }

    /// What an error of the HTTP layer means when no response head had arrived.
    pub(crate) fn before_head(error: &hyper::Error, trip: Option<Trip>) -> Self {
        let code = match trip {
            Some(Trip::HeadTooLarge) => FailureCode::ResponseHeadTooLarge,
            Some(Trip::Informational) => FailureCode::ProtocolError,
            None => code_of(error),
        };
        Self::new(code, chain(error))
    }
}

fn code_of(error: &hyper::Error) -> FailureCode {
    if error.is_parse_too_large() {
        FailureCode::ResponseHeadTooLarge
    } else if error.is_parse() {
        FailureCode::ProtocolError
    } else if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        FailureCode::ConnectionClosed
    } else if let Some(io) = error.source().and_then(|source| source.downcast_ref::<io::Error>()) {
        code_of_io(io)
    } else if error.is_user() {
        FailureCode::Internal
    } else {
        FailureCode::ProtocolError
    }
}

/// In TLS 1.3 the receiver may refuse us after our side of the handshake is done, so a TLS error
/// can surface while reading the answer.
fn code_of_io(error: &io::Error) -> FailureCode {
    code_of_tls(error).unwrap_or(FailureCode::ConnectionClosed)
}

fn code_of_tls(error: &io::Error) -> Option<FailureCode> {
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(_) => Some(FailureCode::TlsCertificateInvalid),
        _ => Some(FailureCode::TlsFailed),
    }
}

/// An error with all its causes, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
