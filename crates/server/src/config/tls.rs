//! `server.tls`: the listener's own certificate, and whether clients are asked for theirs.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use posthorn_listener::{ClientCertificates, Tls, TlsError};
use serde::Deserialize;

use super::Check;
use super::values::SecretRef;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTls {
    pub(super) certificate: Option<String>,
    pub(super) key: Option<String>,
    pub(super) client_certificates: RawClients,
}

/// The word; `off` without quotes is a boolean in YAML.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum RawClients {
    Word(String),
    Switch(bool),
}

/// TLS that is ready to use, and where it was read from.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// Where certificate and key are kept.
    pub files: TlsFiles,
    /// What was in them at the start.
    pub texts: TlsTexts,
    /// Made from it.
    pub tls: Arc<Tls>,
}

/// Where the listener's certificate and its key are kept.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    certificate: PathBuf,
    key: SecretRef,
    /// The variable that holds the key, if one does; it cannot change while we run.
    env: BTreeMap<String, String>,
}

/// The PEM texts of certificate and key.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsTexts {
    /// The chain, our own certificate first.
    pub certificate: Vec<u8>,
    /// The private key.
    pub key: String,
}

impl fmt::Debug for TlsTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsTexts").finish_non_exhaustive()
    }
}

impl TlsFiles {
    /// Reads both; the key of the configuration that is at fault comes with the problem.
    pub fn read(&self) -> Result<TlsTexts, (&'static str, String)> {
        let certificate = std::fs::read(&self.certificate).map_err(|e| {
            let problem = format!("the file {} cannot be read: {e}", self.certificate.display());
            ("server.tls.certificate", problem)
        })?;
        let key = self.key.resolve(&self.env).map_err(|problem| ("server.tls.key", problem))?;
        Ok(TlsTexts { certificate, key })
    }
}

/// Which key of the configuration an error is about.
pub fn at_fault(error: &TlsError) -> &'static str {
    match error {
        TlsError::Certificate => "server.tls.certificate",
        TlsError::Key | TlsError::Mismatch | TlsError::Unusable(_) => "server.tls.key",
    }
}

/// `Some(None)` when the listener speaks plain HTTP.
pub(super) fn build(check: &mut Check<'_>, raw: &RawTls) -> Option<Option<ServerTls>> {
    let word = match &raw.client_certificates {
        RawClients::Word(word) => word.as_str(),
        RawClients::Switch(false) => "off",
        RawClients::Switch(true) => "on",
    };
    let clients = match word {
        "off" => Ok(ClientCertificates::Off),
        "ask" => Ok(ClientCertificates::Ask),
        "require" => Ok(ClientCertificates::Require),
        other => Err(format!("`{other}` is none of off, ask and require")),
    };
    let clients = check.accept("server.tls.client_certificates", clients)?;
    let (certificate, key) = match (&raw.certificate, &raw.key) {
        (Some(certificate), Some(key)) => (certificate, key),
        (None, None) => {
            if clients != ClientCertificates::Off {
                let problem = "needs server.tls.certificate and server.tls.key: certificates are \
                               shown in TLS handshakes only";
                check.refuse("server.tls.client_certificates", problem);
            }
            return Some(None);
        }
        (None, _) => {
            check.refuse(
                "server.tls.certificate",
                "must be given too: the key alone proves nothing",
            );
            return None;
        }
        (_, None) => {
            check.refuse("server.tls.key", "must be given too: env:NAME, file:PATH or a path");
            return None;
        }
    };
    let key = SecretRef::parse(key).unwrap_or_else(|| SecretRef::File(PathBuf::from(key)));
    let env = match &key {
        SecretRef::Env(name) => {
            check.env.get_key_value(name).map(|(name, text)| (name.clone(), text.clone()))
        }
        SecretRef::File(_) => None,
    };
    let files =
        TlsFiles { certificate: PathBuf::from(certificate), key, env: env.into_iter().collect() };
    let texts = match files.read() {
        Ok(texts) => texts,
        Err((key, problem)) => {
            check.refuse(key, problem);
            return None;
        }
    };
    match Tls::new(&texts.certificate, texts.key.as_bytes(), clients) {
        Ok(tls) => Some(Some(ServerTls { files, texts, tls: Arc::new(tls) })),
        Err(error) => {
            check.refuse(at_fault(&error), error.to_string());
            None
        }
    }
}
