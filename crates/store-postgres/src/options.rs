//! Where the database is, and how it is spoken to.

use std::fmt;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::setting;
use posthorn_store::{Error, Result};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;
use tokio_postgres::Config;
use tokio_postgres::config::Host;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::connect::Connector;
use crate::{gate, lock};

/// Calls never wait longer than the server may work on a statement, plus this.
const ANSWER_MARGIN: Duration = Duration::from_secs(5);
/// More than any server has connections.
const SLOTS_MAX: u32 = 4096;
/// Silence after which the kernel asks whether the server is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;

/// What every session is set to, whatever the configuration; why, says [`Options::session`].
pub(crate) const SETTINGS: [(&str, &str); 10] = [
    ("plan_cache_mode", "force_generic_plan"),
    ("jit", "off"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_material", "off"),
    ("work_mem", "32MB"),
    ("default_transaction_isolation", "read committed"),
    ("client_min_messages", "warning"),
];

/// How to reach the database. `Debug` does not show the URL, which may hold a password.
/// They are a part of the section `store` of the configuration.
#[derive(Clone, Deserialize)]
pub struct Options {
    /// `postgres://user:password@host:port/database`. With `sslmode=require`, `verify-ca` or
    /// `verify-full` the connection is encrypted and the server's certificate and name are checked,
    /// against the public roots or, with `sslrootcert=FILE`, against those in the file.
    ///
    /// Several servers are separated by commas (`host1:5432,host2:5432`): the one that takes writes is used.
    pub url: String,
    /// Where hints between nodes are listened for, when `url` leads through a pooler that shares sessions: the database
    /// itself. `None`: at `url`.
    #[serde(default)]
    pub listen_url: Option<String>,
    /// The schema that holds the tables; it is made when it is missing. `None`: the role's default.
    pub schema: Option<String>,
    /// Connections for work. One more is kept for hints between nodes.
    #[serde(deserialize_with = "setting::at_least_one")]
    pub connections: usize,
    /// For one new connection, and for a free one.
    #[serde(deserialize_with = "setting::some_time")]
    pub connect_timeout: Duration,
    /// For one statement, waiting for locks included.
    #[serde(deserialize_with = "setting::some_time")]
    pub statement_timeout: Duration,
    /// What the database shows about who is connected.
    #[serde(skip, default = "application_name")]
    pub application_name: String,
}

impl Options {
    /// The usual settings for a database.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            listen_url: None,
            schema: None,
            connections: 8,
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(15),
            application_name: application_name(),
        }
    }

    /// Where the database is reached over the network: names or addresses, with ports. Empty when
    /// the URL cannot be read, or for a socket file.
    pub fn hosts(&self) -> Vec<(String, u16)> {
        let urls = [Some(&self.url), self.listen_url.as_ref()];
        urls.into_iter().flatten().flat_map(|url| hosts_of(url)).collect()
    }

    /// The same without a pooler.
    pub(crate) fn direct(&self) -> Self {
        let url = self.listen_url.clone().unwrap_or_else(|| self.url.clone());
        Self { url, ..self.clone() }
    }

    /// What makes the connection that listens, where that is not the one that makes all others.
    pub(crate) fn listening(&self, connector: Connector) -> Result<Connector> {
        if self.listen_url.is_none() {
            return Ok(connector);
        }
        let (config, tls) = self.direct().parse()?;
        Ok(Connector::new(&config, tls))
    }

    pub(crate) fn answer_timeout(&self) -> Duration {
        self.statement_timeout + ANSWER_MARGIN
    }

    /// The statements that every connection begins with.
    ///
    /// Every statement here is right with one plan whatever the sizes: go through the batch and
    /// probe an index for each item. The server would rather read a table from end to end while it
    /// believes it to be small, and a queue often is, just before it is not; the plan would then
    /// stay for a minute of standstill. So plans are made once, without looking at the batch, and
    /// the ways to read whole tables are closed. A commit that does not wait for the disk is no
    /// commit: that setting is overruled. Warnings must arrive: one of them says that a commit did not wait for the
    /// standby (see `connect`). A slot of the tally belongs to one connection as long as it
    /// lasts; slot 0 is for those that get none, who wait for each other. The gate comes before the slot: who has a slot
    /// and no gate is a program of before. `known` is the newest schema version that this program knows.
    pub(crate) fn session(&self, known: u32) -> String {
        let timeout = self.statement_timeout.as_millis();
        let fixed: String =
            SETTINGS.iter().map(|(name, value)| format!("set {name} = '{value}'; ")).collect();
        format!(
            "set statement_timeout = {timeout}; set lock_timeout = {timeout}; \
             set idle_in_transaction_session_timeout = {idle}; {fixed}\
             select set_config('synchronous_commit', 'on', false) \
             where current_setting('synchronous_commit') in ('off', 'local'); \
             {gate} \
             select set_config('posthorn.slot', coalesce((\
                 select slot from generate_series(1, {SLOTS_MAX}) as slot \
                 where pg_try_advisory_lock({slots}, slot) limit 1\
             ), 0)::text, false);",
            idle = self.answer_timeout().as_millis(),
            gate = self.gate(known),
            slots = lock::SLOTS,
        )
    }

    /// Those that make the tables' schema the one of a connection, and take its gate.
    pub(crate) fn gate(&self, known: u32) -> String {
        let path =
            self.schema.as_ref().map(|schema| format!("set search_path = {}; ", quoted(schema)));
        format!("{}{}", path.unwrap_or_default(), gate::enter(known))
    }

    pub(crate) fn parse(&self) -> Result<(Config, MakeRustlsConnect)> {
        if self.connections == 0 {
            return Err(Error::fatal("configure the database", "the pool needs a connection"));
        }
        let (url, tls) = split_tls(&self.url);
        let mut config: Config =
            url.parse().map_err(|e| Error::fatal("read the database's URL", with_cause(&e)))?;
        config
            .application_name(&self.application_name)
            .connect_timeout(self.connect_timeout)
            .tcp_user_timeout(self.answer_timeout())
            .keepalives(true)
            .keepalives_idle(KEEPALIVE_IDLE)
            .keepalives_interval(KEEPALIVE_INTERVAL)
            .keepalives_retries(KEEPALIVE_RETRIES);
        Ok((config, connector(tls.root_file.as_deref())?))
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("schema", &self.schema)
            .field("pool", &self.connections)
            .field("connect_timeout", &self.connect_timeout)
            .field("statement_timeout", &self.statement_timeout)
            .finish_non_exhaustive()
    }
}

/// Where a URL leads over the network.
fn hosts_of(url: &str) -> Vec<(String, u16)> {
    let Ok(config) = split_tls(url).0.parse::<Config>() else { return Vec::new() };
    let ports = config.get_ports();
    let port_of = |index: usize| ports.get(index).or(ports.last()).copied().unwrap_or(5432);
    let named = config.get_hosts().iter().enumerate().filter_map(|(index, host)| match host {
        Host::Tcp(name) => Some((name.clone(), port_of(index))),
        #[cfg(unix)]
        Host::Unix(_) => None,
    });
    let addresses = config.get_hostaddrs().iter().enumerate();
    named.chain(addresses.map(|(index, ip)| (ip.to_string(), port_of(index)))).collect()
}

fn application_name() -> String {
    "posthorn".to_owned()
}

/// A name as SQL wants it.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The driver hides causes from its one-line texts; an operator needs them.
fn with_cause(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

#[derive(Default)]
struct Tls {
    root_file: Option<String>,
}

/// Takes what the driver does not know out of the URL's query: it has no `verify-…` modes (its
/// `require` is as strict here) and no `sslrootcert`.
fn split_tls(url: &str) -> (String, Tls) {
    let mut tls = Tls::default();
    let Some((base, query)) = url.split_once('?') else { return (url.to_owned(), tls) };
    let mut kept = Vec::new();
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("sslrootcert", path)) => tls.root_file = Some(path.replace("%2F", "/")),
            Some(("sslmode", "verify-ca" | "verify-full")) => {
                kept.push("sslmode=require".to_owned());
            }
            _ => kept.push(pair.to_owned()),
        }
    }
    (format!("{base}?{}", kept.join("&")), tls)
}

fn connector(root_file: Option<&str>) -> Result<MakeRustlsConnect> {
    let mut roots = RootCertStore::empty();
    match root_file {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => {
            let failed = |e: String| Error::fatal("read the database's root certificates", e);
            let text = fs::read(path).map_err(|e| failed(format!("{path}: {e}")))?;
            for certificate in CertificateDer::pem_slice_iter(&text) {
                let certificate = certificate.map_err(|e| failed(format!("{path}: {e}")))?;
                roots.add(certificate).map_err(|e| failed(format!("{path}: {e}")))?;
            }
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::fatal("set up TLS", e))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stricter_tls_modes_are_understood() {
        let (url, tls) = split_tls("postgres://u@h/d?sslmode=verify-full&sslrootcert=/a/b.pem&x=y");
        assert_eq!(url, "postgres://u@h/d?sslmode=require&x=y");
        assert_eq!(tls.root_file.as_deref(), Some("/a/b.pem"));
    }

    #[test]
    fn the_password_is_not_shown() {
        let options = Options::new("postgres://u:secret@h/d");
        assert!(!format!("{options:?}").contains("secret"));
    }

    #[test]
    fn a_bad_url_is_a_clear_error() {
        assert!(Options::new("postgres://u@h:port/d").parse().is_err());
        assert!(Options::new("postgres://u@h/d").parse().is_ok());
    }
}
