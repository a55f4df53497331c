//! `server.tls`: the listener's own certificate, and whether clients are asked for theirs.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use posthorn_listener::{ClientCertificates, Tls, TlsError};
use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;

use super::reading::Reading;
use super::values::SecretRef;

/// The section as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    certificate: Option<PathBuf>,
    key: Option<String>,
    #[serde(deserialize_with = "client_certificates")]
    client_certificates: ClientCertificates,
}

/// One of three words; `off` without quotes is a boolean in YAML.
fn client_certificates<'de, D>(deserializer: D) -> Result<ClientCertificates, D::Error>
where
    D: Deserializer<'de>,
{
    match Value::deserialize(deserializer)? {
        Value::Bool(false) => Ok(ClientCertificates::Off),
        Value::String(word) if word == "off" => Ok(ClientCertificates::Off),
        Value::String(word) if word == "ask" => Ok(ClientCertificates::Ask),
        Value::String(word) if word == "require" => Ok(ClientCertificates::Require),
        other => Err(Error::custom(format_args!("{other} is none of off, ask and require"))),
    }
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
        let key = self.key.resolve(&self.env).map_err(|e| ("server.tls.key", e.into()))?;
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

/// `None` when the listener speaks plain HTTP.
pub(super) fn build(read: &mut Reading<'_>) -> Option<ServerTls> {
    let written: Written = read.at("server.tls");
    let clients = written.client_certificates;
    let (certificate, key) = match (written.certificate, written.key) {
        (Some(certificate), Some(key)) => (certificate, key),
        (None, None) => {
            let problem = "needs server.tls.certificate and server.tls.key: certificates are \
                           shown in TLS handshakes only";
            let off = clients == ClientCertificates::Off;
            read.require(off, "server.tls.client_certificates", problem);
            return None;
        }
        (certificate, key) => {
            let problem = "must be given too: the key alone proves nothing";
            read.require(certificate.is_some(), "server.tls.certificate", problem);
            let problem = "must be given too: env:NAME, file:PATH or a path";
            read.require(key.is_some(), "server.tls.key", problem);
            return None;
        }
    };
    let key = SecretRef::parse(&key).unwrap_or_else(|| SecretRef::File(PathBuf::from(key)));
    let mut env = BTreeMap::new();
    if let SecretRef::Env(name) = &key {
        env.extend(read.env.get(name).map(|text| (name.clone(), text.clone())));
    }
    let files = TlsFiles { certificate, key, env };
    let made = files.read().and_then(|texts| {
        let made = Tls::new(&texts.certificate, texts.key.as_bytes(), clients);
        made.map(|tls| (texts, Arc::new(tls))).map_err(|e| (at_fault(&e), e.to_string()))
    });
    match made {
        Ok((texts, tls)) => Some(ServerTls { files, texts, tls }),
        Err((key, problem)) => {
            read.refuse(key, problem);
            None
        }
    }
}
