//! Configuration: four layers, one merge, and from there into the options of every crate.
//!
//! # Theory of operation
//! [`load`] lays the operator's file, the environment and the flags over the built-in defaults
//! ([`layers`]). Each section is then read into the options of the crate it is for (`reading`), or of
//! several that share it; the fields of these carry the rules for one value, and `whole` has those that
//! hold between keys. Every problem is found before anything is started, and names its key and the layer
//! that said it.
//!
//! So a new key is a line of the default file with its documentation, a field of somebody's options, and
//! the place that uses it.
//!
//! # What it leaves to others
//! Nothing is opened, listened to or generated here, except that files named by the configuration
//! are read. What a policy may say is the domain's business.

mod callbacks;
mod console;
pub mod layers;
pub mod listeners;
mod profiles;
mod proxies;
pub mod push;
mod reading;
mod renamed;
pub mod shown;
#[cfg(test)]
mod tests;
pub mod tls;
pub mod values;
mod whole;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use posthorn_dialects::Dialect;
use posthorn_domain::setting;
use posthorn_egress as egress;
use posthorn_engine as engine;
use posthorn_listener::{ProxyIdentity, ServeLimits};
use posthorn_notifier::Callbacks;
use posthorn_sealing::vault::{Secret, VaultKey};
use posthorn_store_postgres as postgres;
use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;
use tracing_subscriber::EnvFilter;

use layers::{ENV_PREFIX, Layers, Problem, Source};
use listeners::Surface;
use push::Push;
use reading::Reading;

use crate::telemetry::otlp;

/// The file that is read when none is named.
pub const FILE_DEFAULT: &str = "posthorn.yaml";

/// Everything, checked.
#[derive(Debug)]
pub struct Config {
    /// The listener.
    pub server: Server,
    /// Where everything is kept.
    pub store: Store,
    /// The way out.
    pub egress: egress::Options,
    /// The engine, profiles included.
    pub engine: engine::Options,
    /// Limits on who asks.
    pub limits: posthorn_api::LimitOptions,
    /// How full the disk may be.
    pub disk: Disk,
    /// The first operator key, when the operator gives it.
    pub first_key: Option<Secret>,
    /// The files that secrets were read from.
    pub secret_files: Vec<SecretFile>,
    /// What seals secrets.
    pub seal: Seal,
    /// Logs.
    pub log: Log,
    /// Metrics and traces.
    pub telemetry: Telemetry,
    /// How links into the portal begin.
    pub portal: Portal,
    /// The pages for customers.
    pub portal_pages: posthorn_console::portal::Options,
    /// Other systems' APIs.
    pub dialects: Vec<Box<dyn Dialect>>,
    /// Pages for operators.
    pub console: posthorn_console::Options,
    /// Where the webhooks of a payment server go.
    pub callbacks: Option<Callbacks>,
    /// Web Push, when it is on.
    pub push: Option<Push>,
}

/// A file that a secret was read from.
#[derive(Clone, Debug)]
pub struct SecretFile {
    /// What names it.
    pub key: String,
    /// Where it is.
    pub file: PathBuf,
}

/// The listener.
#[derive(Clone, Debug, Deserialize)]
pub struct Server {
    /// Where it listens.
    #[serde(deserialize_with = "values::address")]
    pub listen: SocketAddr,
    /// What it serves there.
    #[serde(deserialize_with = "setting::each_once")]
    pub surfaces: Vec<Surface>,
    /// Where the listener for those who operate the server is, when it is apart.
    #[serde(deserialize_with = "values::address_if_any")]
    pub admin_listen: Option<SocketAddr>,
    /// What that one serves.
    #[serde(deserialize_with = "setting::each_once")]
    pub admin_surfaces: Vec<Surface>,
    /// Whether it uses the certificate of the public one.
    pub admin_tls: bool,
    /// Names and addresses by which the world knows it, which cannot be receivers.
    pub public_names: Vec<String>,
    /// Senders that may ask without a key whether they may publish.
    #[serde(deserialize_with = "setting::texts")]
    pub webhook_origins: Vec<posthorn_api::AllowedOrigin>,
    /// How many connections there may be, and how long they may take.
    #[serde(skip)]
    pub limits: ServeLimits,
    /// The largest body.
    #[serde(deserialize_with = "setting::some_bytes")]
    pub body_max: usize,
    /// The largest body of a batch.
    #[serde(deserialize_with = "setting::some_bytes")]
    pub batch_body_max: usize,
    /// Bytes of all large bodies under way.
    #[serde(deserialize_with = "setting::some_bytes")]
    pub body_memory: usize,
    /// The same of one tenant.
    #[serde(deserialize_with = "setting::bytes")]
    pub body_memory_per_tenant: usize,
    /// The proxy that vouches for callers without a key.
    pub identity: ProxyIdentity,
    /// Its certificate; without one it speaks plain HTTP.
    #[serde(skip)]
    pub tls: Option<tls::ServerTls>,
}

/// The pages for customers.
#[derive(Clone, Debug, Deserialize)]
pub struct Portal {
    /// How customers reach this server, for links.
    #[serde(deserialize_with = "push::base_url")]
    pub public_url: Option<String>,
}

/// How full the disk of the data directory may be, in percent; 100 means not to look.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Disk {
    /// When it is warned of.
    #[serde(rename = "disk_warn_percent", deserialize_with = "setting::within::<1, 100, _, _>")]
    pub warn: u8,
    /// When publishes are refused, until the disk is two percent below it.
    #[serde(rename = "disk_refuse_percent", deserialize_with = "setting::within::<1, 100, _, _>")]
    pub refuse: u8,
    /// How often it is looked at.
    #[serde(rename = "disk_check_interval", deserialize_with = "setting::some_time")]
    pub refresh: Duration,
}

/// Where everything is kept.
#[derive(Clone, Debug, Deserialize)]
pub struct Store {
    /// The data directory.
    #[serde(deserialize_with = "setting::some_text")]
    pub path: PathBuf,
    /// Which database.
    #[serde(skip)]
    pub kind: StoreKind,
    /// How long a start waits for it.
    #[serde(deserialize_with = "setting::time")]
    pub start_timeout: Duration,
}

/// Which database.
#[derive(Clone, Debug, Default)]
pub enum StoreKind {
    /// Files in the data directory.
    #[default]
    Sqlite,
    /// A server.
    Postgres(Box<postgres::Options>),
}

/// What seals secrets.
#[derive(Debug)]
pub struct Seal {
    /// The key in use; `None`: the one in the data directory.
    pub key: Option<VaultKey>,
    /// Keys that only open.
    pub former: Vec<VaultKey>,
    /// The file of the key in use, when one was named.
    pub file: Option<PathBuf>,
}

/// Logs.
#[derive(Clone, Debug, Deserialize)]
pub struct Log {
    /// A filter that parses.
    #[serde(deserialize_with = "level")]
    pub level: String,
    /// In which form.
    pub format: LogFormat,
}

fn level<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    let problem = "is not a level: write error, warn, info, debug or trace";
    let filter = EnvFilter::try_new(&text);
    filter.map_err(|_| Error::custom(format_args!("`{text}` {problem}")))?;
    Ok(text)
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Human on a terminal, JSON otherwise.
    Auto,
    /// For people.
    Human,
    /// One object a line.
    Json,
}

/// Metrics and traces.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Telemetry {
    /// Whether they are served.
    pub metrics: bool,
    /// How often they are tidied up.
    #[serde(deserialize_with = "setting::some_time")]
    pub maintenance_interval: Duration,
    /// Where traces and metrics are sent.
    pub otlp: otlp::Options,
}

/// What the layers are made of. All of it is handed in, so that tests need no real environment.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// The file the operator named.
    pub file: Option<PathBuf>,
    /// The environment.
    pub env: BTreeMap<String, String>,
    /// Keys given by flags: the flag as typed, the dotted key, the text.
    pub flags: Vec<FlagValue>,
}

/// A key given by a flag.
#[derive(Clone, Debug)]
pub struct FlagValue {
    /// As typed, for messages.
    pub flag: String,
    /// The key, dotted.
    pub key: String,
    /// The value's text.
    pub text: String,
}

/// A configuration with its layers.
#[derive(Debug)]
pub struct Loaded {
    /// Checked values.
    pub config: Config,
    /// What was said where.
    pub layers: Layers,
    /// The file that was read.
    pub file: Option<PathBuf>,
}

/// Everything that is wrong with a configuration.
#[derive(Debug)]
pub struct ConfigError(pub Vec<Problem>);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration is not valid")?;
        for problem in &self.0 {
            write!(f, "\n  {problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// Reads all layers and checks them. Reports everything that is wrong, not only the first.
pub fn load(inputs: &Inputs) -> Result<Loaded, ConfigError> {
    let mut problems = Vec::new();
    let mut layers = Layers::defaults();
    let file = read_file(inputs.file.as_deref(), &mut layers, &mut problems);
    for (name, text) in &inputs.env {
        let Some(key) = name.strip_prefix(ENV_PREFIX) else {
            problems.extend(half_prefixed(name));
            continue;
        };
        let path: Vec<String> = key.split("__").map(str::to_lowercase).collect();
        set_text(&mut layers, &path, text, &Source::Env(name.clone()), &mut problems);
    }
    for flag in &inputs.flags {
        let path: Vec<String> = flag.key.split('.').map(str::to_owned).collect();
        let source = Source::Flag(flag.flag.clone());
        set_text(&mut layers, &path, &flag.text, &source, &mut problems);
    }
    if !problems.is_empty() {
        return Err(ConfigError(problems));
    }
    let mut reading = Reading::new(&layers, &inputs.env);
    let config = whole::read(&mut reading);
    let secret_files = reading.end()?;
    Ok(Loaded { config: Config { secret_files, ..config }, layers, file })
}

/// The steps of a place. An item of a list comes from where its list comes from.
fn steps(place: &str) -> Vec<String> {
    let name = |step: &str| step.split('[').next().unwrap_or_default().to_owned();
    place.split('.').map(name).collect()
}

/// A variable that was meant for us but would be passed over. Names without a double underscore are
/// not: Kubernetes makes such for every service.
fn half_prefixed(name: &str) -> Option<Problem> {
    let rest = name.strip_prefix("POSTHORN_").filter(|rest| rest.contains("__"))?;
    Some(Problem {
        key: String::new(),
        source: Source::Env(name.to_owned()),
        text: format!("the name begins with one underscore too few; write {ENV_PREFIX}{rest}"),
    })
}

fn set_text(
    layers: &mut Layers,
    path: &[String],
    text: &str,
    source: &Source,
    problems: &mut Vec<Problem>,
) {
    match layers.read_text(path, text) {
        Ok(value) => layers.set(path, value, source, problems),
        Err(problem) => {
            let (key, text) = (path.join("."), problem.into());
            problems.push(Problem { key, source: source.clone(), text });
        }
    }
}

fn read_file(
    named: Option<&Path>,
    layers: &mut Layers,
    problems: &mut Vec<Problem>,
) -> Option<PathBuf> {
    let path = named.unwrap_or(Path::new(FILE_DEFAULT));
    let source = Source::File(path.to_owned());
    let mut fail =
        |text: String| problems.push(Problem { key: String::new(), source: source.clone(), text });
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if named.is_none() && e.kind() == std::io::ErrorKind::NotFound => return None,
        Err(e) => {
            fail(format!("the file cannot be read: {e}"));
            return None;
        }
    };
    match layers::parse_yaml(&text) {
        Ok(value @ (Value::Object(_) | Value::Null)) => {
            if !value.is_null() {
                layers.apply(value, &source, problems);
            }
        }
        Ok(_) => fail("the file must hold sections with keys".to_owned()),
        Err(problem) => fail(problem.into()),
    }
    Some(path.to_owned())
}
