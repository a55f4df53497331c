//! `posthorn serve`: from a configuration to a running server.

use std::io::{IsTerminal as _, stderr};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use posthorn_access::Callers;
use posthorn_dialects::{StartError, notificaties};
use posthorn_domain::{CatalogVersion, Clock};
use posthorn_egress::Egress;
use posthorn_engine::{
    Acting, EgressTransport, Engine, OutcomeStream, Parts, PushDelivery, Tracer,
};
use posthorn_listener::Failures;
use posthorn_push_node::Mailboxes;
use posthorn_sealing::vault::{Vault, VaultKey};
use tokio::signal::unix::Signal;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::callbacks;
use crate::clock::WallClock;
use crate::config::{self, Config, FlagValue, Inputs, Seal, SecretFile, StoreKind};
use crate::disk;
use crate::exit::{CODES, Code, Failure};
use crate::fetch;
use crate::first_key::{self, FirstKey};
use crate::identity_provider;
use crate::lifecycle::{Running, Signals};
use crate::open_files;
use crate::own_addresses::OwnAddresses;
use crate::ports::{self, take_port};
use crate::preflight;
use crate::private_file;
use crate::push;
use crate::seal;
use crate::storage::{self, Opened, chain};
use crate::surfaces::{self, Listeners, Served};
use crate::telemetry::otlp::Otlp;
use crate::telemetry::{self, Recorder};
use crate::terminal::{self, Paint};
use crate::tls;

/// The setting that the address of the public listener comes from.
const LISTEN: &str = "--listen";

/// Where the configuration comes from, besides the environment.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ConfigArgs {
    /// The configuration file; ./posthorn.yaml when it is there
    #[arg(long, short = 'c', env = "POSTHORN_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where to listen (server.listen); port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// The data directory (store.path)
    #[arg(long, value_name = "DIRECTORY")]
    pub data: Option<String>,
    /// Let receivers be in this network, e.g. 127.0.0.1 (egress.allow); may be repeated
    #[arg(long, value_name = "NETWORK")]
    pub allow: Vec<String>,
    /// Turn Web Push on (push.enabled): sockets for browsers, endpoints below /wpush
    #[arg(long)]
    pub push: bool,
    /// Any key of the configuration, e.g. engine.slots=64; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = crate::commands::parse_pair)]
    pub set: Vec<(String, String)>,
}

impl ConfigArgs {
    /// With the environment of this process.
    pub fn inputs(&self) -> Inputs {
        let named = [
            ("--listen", "server.listen", self.listen.clone()),
            ("--data", "store.path", self.data.clone()),
            ("--allow", "egress.allow", Some(self.allow.join(",")).filter(|all| !all.is_empty())),
            ("--push", "push.enabled", self.push.then(|| "true".to_owned())),
        ];
        let named = named.into_iter().filter_map(|(flag, key, text)| {
            text.map(|text| FlagValue { flag: flag.to_owned(), key: key.to_owned(), text })
        });
        let set = self.set.iter().map(|(key, text)| FlagValue {
            flag: format!("--set {key}"),
            key: key.clone(),
            text: text.clone(),
        });
        // Names and values that are not text cannot be ours.
        let env = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Inputs { file: self.config.clone(), env: env.collect(), flags: named.chain(set).collect() }
    }
}

/// Run the server
///
/// Without a configuration it listens on 127.0.0.1:8080 and keeps its data in ./posthorn-data. The
/// first start creates an operator key, keeps it in the data folder, and shows it on a terminal.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The configuration.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Accept events, but send nothing until `posthorn resume`: for a restored store that is looked at first
    #[arg(long)]
    pub hold: bool,
    /// Write the server's URL to this file once it listens
    #[arg(long, value_name = "FILE")]
    pub address_file: Option<PathBuf>,
}

/// Runs it until a signal comes or the engine fails.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let (mut signals, hangups) = Signals::of_server()?;
    let loaded = config::load(&args.config.inputs())?;
    let shown = config::shown::entries(&loaded);
    let mut config = loaded.config;
    config.engine.hold = args.hold;
    let human = telemetry::start_logs(&config.log);
    let address_file = args.address_file.as_deref();
    tokio::select! {
        started = Box::pin(start(config, shown, address_file, human, hangups)) => {
            Box::pin(started?.until_stopped(signals)).await
        }
        // While it waits for a database, say. Nothing is under way yet.
        name = signals.next() => {
            info!(signal = name, "stopped before it had started");
            Ok(())
        }
    }
}

async fn start(
    mut config: Config,
    shown: Vec<posthorn_api::ConfigEntry>,
    address_file: Option<&Path>,
    human: bool,
    hangups: Signal,
) -> anyhow::Result<Running> {
    let recorder = Recorder::install()?;
    open_files::fit(&mut config);
    warn_of_metadata(&config.egress);
    let egress = preflight::way_out(&config)?;
    // The port is taken first, so that a second server on it fails before it touches any data, but
    // it is opened last: until everything runs, clients are refused rather than left waiting.
    let listen = config.server.listen;
    let socket = take_port(listen, LISTEN)?;
    let admin = surfaces::admin_port(config.server.admin_listen)?;
    let sockets = config.push.as_ref().map(surfaces::sockets);
    let push = config.push.take().map(push::Ports::take).transpose()?;
    let mut patience = config.server.limits.stop_timeout + config.engine.drain_timeout;
    let mut listeners = vec![socket.local_addr()?];
    if let Some(admin) = &admin {
        listeners.push(admin.local_addr()?);
    }
    if let Some(push) = &push {
        patience += push.patience();
        listeners.extend(push.internal()?);
    }
    let failures = Arc::new(Failures::new(config.limits.auth_failures_per_minute));
    let limits = config.limits;
    let loopback_open = allows_loopback(&config.egress);
    let extra_roots = config.egress.extra_roots.clone();
    let collector = config.telemetry.otlp.place();
    let otlp = Otlp::start(&config.telemetry.otlp, &config.egress, recorder.render())
        .map_err(|e| Failure::new(Code::Config, chain(&e)))?;
    patience += otlp.as_ref().map(Otlp::patience).unwrap_or_default();
    let issuer = config.console.oidc.issuer.clone();
    let ask = issuer
        .map(|issuer| identity_provider::ask(&issuer, &config.egress, egress.clone()))
        .transpose()
        .map_err(|e| Failure::new(Code::Config, chain(&e)))?;
    let Config { server, store, engine: options, disk, seal, telemetry, dialects, .. } = config;
    let (callbacks, given_key) = (config.callbacks, config.first_key);

    let kept_keys = seal::endpoints::beside(&seal_file(&seal, &store));
    look_after_files(&store.path, &kept_keys, &config.secret_files);
    let opened = storage::open(&store).await?;
    warn_of_other_store(&store);
    let proxies = config.egress.proxies.values();
    let own_addresses = OwnAddresses::new(listeners, &server.public_names, &store, proxies)
        .with_collector(collector, otlp.as_ref().map(Otlp::way));
    egress.guard().set_own(own_addresses.own(&egress).await);
    let way_out = egress.clone();
    let (vault, vault_keys) = open_vault(seal, &store, &opened).await?;
    let mailboxes = push.as_ref().map(push::Ports::mailboxes);
    let tracer = otlp.as_ref().and_then(Otlp::tracer);
    let (engine, outcomes) =
        start_engine(egress.clone(), options, vault, &opened, mailboxes.clone(), tracer).await?;
    let by_config = engine.acting(Acting::CONFIG);
    callbacks::keep(&by_config, outcomes, callbacks.as_ref()).await?;
    let listener = ports::open(socket, LISTEN)?;
    let address = listener.local_addr()?;
    let stop = CancellationToken::new();
    let render = telemetry.metrics.then(|| recorder.render());
    let services = posthorn_dialects::Services {
        engine: by_config.clone(),
        callers: Callers::new(engine.clone(), Arc::clone(&failures)),
        fetch: fetch::through(egress.clone(), engine.clone()),
    };
    let (mut router, mut notificaties) = (axum::Router::new(), None);
    let systems = dialects.iter().map(|dialect| (dialect.name(), dialect.tenant().to_owned()));
    let systems = systems.collect();
    for dialect in dialects {
        let started = dialect.start(services.clone()).await.map_err(|e| match e {
            StartError::Engine(e) => explain_engine(&e),
            StartError::Setup(_) => Failure::new(Code::Config, e.to_string())
                .hint("correct the file that dialects.notificaties.setup_configuration names"),
        })?;
        router = router.merge(started.routes);
        notificaties = notificaties.or(started.management.map(manage_with));
    }
    let options = posthorn_api::Options {
        metrics: render,
        body_bytes: server.body_max,
        batch_bytes: server.batch_body_max,
        limits,
        failures: Arc::clone(&failures),
        identity: Some(server.identity.clone()),
        webhook_origins: server.webhook_origins.clone(),
        notificaties,
        portal_url: config.portal.public_url.clone(),
        https: server.tls.is_some(),
        push: mailboxes.as_ref().map(|mailboxes| push::sight(&opened, mailboxes)),
        config: shown.into(),
    };
    let api = posthorn_api::surfaces(engine.clone(), options);
    let mut served = Served { api, dialects: router, ..Served::default() };
    if config.console.enabled {
        let asked = posthorn_api::closed(served.api.v1.clone());
        let callers = Callers::new(engine.clone(), Arc::clone(&failures));
        let store = match store.kind {
            StoreKind::Sqlite => "SQLite",
            StoreKind::Postgres(_) => "PostgreSQL",
        };
        let exit_codes = CODES.map(|(code, meaning, remedy)| (code as u8, meaning, remedy));
        let options = posthorn_console::Options {
            store: Some(store),
            ask,
            systems,
            exit_codes: exit_codes.to_vec(),
            ..config.console
        };
        served.console = posthorn_console::router(engine.clone(), asked, callers, options);
    }
    if config.portal_pages.enabled {
        let asked = posthorn_api::closed(served.api.v1.clone());
        let callers = Callers::new(engine.clone(), Arc::clone(&failures));
        let public_url = config.portal.public_url;
        let options = posthorn_console::portal::Options { public_url, ..config.portal_pages };
        served.portal = posthorn_console::portal::router(engine.clone(), asked, callers, options);
    }
    let url = format!("{}://{address}", if server.tls.is_some() { "https" } else { "http" });
    let brake = Arc::new(disk::Brake::default());
    let push = match push.zip(mailboxes) {
        None => None,
        Some((push, mailboxes)) => {
            let brake = Arc::clone(&brake);
            let parts = push::OwnAddresses {
                store: opened.push_store(),
                vault_keys,
                kept_keys,
                egress,
                extra_roots,
                own_url: url.clone(),
                accepting: Arc::new(move || !brake.is_on()),
                stop_timeout: server.limits.stop_timeout,
                mailboxes,
            };
            let push = push.start(parts, &stop)?;
            served.push = push.public.clone();
            served.push_health = push.health.clone();
            Some(push)
        }
    };
    let listeners = Listeners::new(&server, sockets, served, stop.clone());
    let mut serving = vec![listeners.public(&server, listener)];
    let mut admin_url = None;
    if let Some(port) = admin {
        let (url, task) = listeners.admin(&server, port)?;
        admin_url = Some(url);
        serving.push(task);
    }
    match server.tls {
        Some(tls) => tokio::spawn(tls::watch(tls, hangups, stop.clone())),
        None => tokio::spawn(tls::nothing_to_read(hangups, stop.clone())),
    };
    tokio::spawn(recorder.upkeep(telemetry.maintenance_interval, stop.clone()));
    tokio::spawn(own_addresses.watch(way_out, stop.clone()));
    if matches!(store.kind, StoreKind::Sqlite) {
        let admission = Arc::clone(engine.admission());
        tokio::spawn(disk::watch(store.path.clone(), disk, admission, brake, stop.clone()));
    }
    // Before anybody is told the address: who knows it finds the key.
    let first_key = first_key::settle(&by_config, given_key.as_ref(), &store.path).await?;
    if let Some(file) = address_file {
        write_address(file, &url)?;
    }
    // A key is shown to people; a log, which others read too, only says where it is.
    let (shown, logged) = match first_key {
        Some(key) if stderr().is_terminal() => (Some(key), None),
        key => (None, key),
    };
    if let Some(key) = logged {
        point_to(&key, human);
    }
    announce("listening on", &url, human);
    if let Some(url) = admin_url {
        announce("admin listening on", &url, human);
    }
    if let Some(key) = shown {
        introduce(&key, address, &url, loopback_open);
    }
    Ok(Running { engine, opened, serving, push, otlp, stop, patience })
}

/// Setup files and what is to be sent again come in over the native API, and are the dialect's to understand.
fn manage_with(management: notificaties::Management) -> posthorn_api::Notificaties {
    let tenant = management.tenant();
    let (reader, settings) = (management.clone(), management.clone());
    let resend = Arc::new(move |document: &_, who| reader.resend(document, who));
    let setup: posthorn_api::ApplySetup = Arc::new(move |engine, document| {
        let management = management.clone();
        Box::pin(async move {
            management.apply(&engine, &document).await.map_err(|e| match e {
                StartError::Engine(e) => posthorn_api::SetupRefusal::Engine(e),
                setup @ StartError::Setup(_) => {
                    posthorn_api::SetupRefusal::Invalid(setup.to_string())
                }
            })
        })
    });
    let settings: posthorn_api::Settings = Arc::new(move |engine, change| {
        let settings = settings.clone();
        Box::pin(async move { settings.settings(&engine, change.as_ref()).await })
    });
    posthorn_api::Notificaties { tenant, setup, resend, settings }
}

/// A server that was moved to PostgreSQL, or was meant to be.
fn warn_of_other_store(store: &config::Store) {
    if matches!(store.kind, StoreKind::Postgres(_))
        && posthorn_store_sqlite::is_populated(&store.path)
    {
        warn!(
            directory = %store.path.display(),
            "the store is in PostgreSQL, but there is also a SQLite store with data in the data directory, which is not used; \
             if it was copied with `posthorn store copy`, move posthorn.db away, else copy it"
        );
    }
}

fn warn_of_metadata(options: &posthorn_egress::Options) {
    if options.dangerously_allow_metadata {
        warn!(
            "egress.dangerously_allow_metadata is on: every tenant can reach link-local addresses \
             and cloud metadata services that egress.allow allows, and with them the credentials \
             of this machine"
        );
    }
    for (name, proxy) in &options.proxies {
        if proxy.mode() == posthorn_egress::ProxyMode::Forward {
            info!(
                proxy = %name,
                "this proxy resolves names itself: Posthorn checks a receiver's addresses first, \
                 but cannot control which address the proxy connects to"
            );
        }
    }
}

/// The file of the seal key, or where it would be.
fn seal_file(seal: &Seal, store: &config::Store) -> PathBuf {
    seal.file.clone().unwrap_or_else(|| storage::seal_file(&store.path))
}

async fn open_vault(
    seal: Seal,
    store: &config::Store,
    opened: &Opened,
) -> anyhow::Result<(Vault, Vec<VaultKey>)> {
    let own_file = seal.key.is_none();
    let catalog = opened.store().catalog_since(CatalogVersion(0)).await?;
    let file = storage::seal_file(&store.path);
    let opened = seal::vault(seal, &file, &catalog)?;
    if own_file && matches!(store.kind, StoreKind::Postgres(_)) {
        warn!(file = %file.display(), "every node of this database needs the same seal key; set \
                                       it with seal.key");
    }
    Ok(opened)
}

async fn start_engine(
    egress: Egress,
    options: posthorn_engine::Options,
    vault: Vault,
    opened: &Opened,
    mailboxes: Option<Mailboxes>,
    tracer: Option<Arc<dyn Tracer>>,
) -> anyhow::Result<(Engine, OutcomeStream)> {
    let parts = Parts {
        store: opened.store(),
        transport: Arc::new(EgressTransport::new(egress)),
        push: mailboxes.map(|mailboxes| Arc::new(mailboxes) as Arc<dyn PushDelivery>),
        vault: Arc::new(vault),
        clock: Arc::new(WallClock),
        seed: rand::random(),
        tracer,
        options,
    };
    Engine::start_followed(parts).await.map_err(|e| explain_engine(&e).into())
}

fn explain_engine(error: &posthorn_engine::Error) -> Failure {
    Failure::new(Code::Io, format!("the engine cannot start: {}", chain(error)))
        .hint("check the disk space and the database, then start again")
}

/// In one step, so that a reader never sees half an address.
fn write_address(file: &Path, url: &str) -> anyhow::Result<()> {
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    std::fs::write(&beside, format!("{url}\n"))
        .and_then(|()| std::fs::rename(&beside, file))
        .map_err(|e| {
            let message = format!("the address cannot be written to {}: {e}", file.display());
            Failure::new(Code::CannotCreate, message).into()
        })
}

fn announce(what: &str, url: &str, human: bool) {
    let version = env!("CARGO_PKG_VERSION");
    if human {
        let paint = Paint::stderr();
        let url = paint.bold(url);
        terminal::note(format!("posthorn {version} {what} {url}"));
    } else {
        // Whatever the level: programs that start this one wait for the line.
        terminal::note(serde_json::json!({
            "timestamp": WallClock.now(),
            "level": "INFO",
            "message": format!("{what} {url}"),
            "version": version,
        }));
    }
}

fn allows_loopback(egress: &posthorn_egress::Options) -> bool {
    egress.allow.iter().any(|rule| rule.net.contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)))
}

/// What only its owner may read is closed to everybody else, whoever made it. Before the store is
/// opened: a log that is begun has the mode that the database has.
fn look_after_files(data: &Path, kept_keys: &Path, secrets: &[SecretFile]) {
    let seal = storage::seal_file(data);
    let former = seal.with_extension("key.former");
    private_file::tighten([seal, former, kept_keys.to_owned(), first_key::file(data)]);
    private_file::tighten(posthorn_store_sqlite::files(data));
    private_file::warn_of_open_folder(data);
    for SecretFile { key, file } in secrets {
        private_file::warn_of_open_secret(key, file);
    }
}

/// The first start where nobody looks: only where the key is.
fn point_to(key: &FirstKey, human: bool) {
    let file = key.file.display();
    if human {
        terminal::note(format!("This is the first start. The operator key is in {file}"));
    } else {
        // Whatever the level, as the address.
        terminal::note(serde_json::json!({
            "timestamp": WallClock.now(),
            "level": "INFO",
            "message": "this is the first start; the operator key is in the file",
            "file": file.to_string(),
        }));
    }
}

/// The first start at a terminal: the key that opens everything, and what to do with it.
fn introduce(key: &FirstKey, address: SocketAddr, url: &str, loopback_open: bool) {
    let paint = Paint::stderr();
    let usual = address.port() == 8080 && address.ip().is_loopback() && url.starts_with("http:");
    let server = if usual { String::new() } else { format!("\n  export POSTHORN_SERVER={url}") };
    let local = if loopback_open {
        String::new()
    } else {
        format!(
            "\n{}",
            paint.dim(
                "Receivers on this machine are denied by default; to try `listen`, start the \
                 server with\n  posthorn serve --allow 127.0.0.1"
            )
        )
    };
    let text = key.text.expose_str().unwrap_or_default();
    terminal::note(format!(
        "\n{}\n\n  {}\n\n{}\n\nNext, in another terminal:\n{server}\n  export POSTHORN_KEY={text}\n  \
         posthorn listen --subscribe orders\n  posthorn send orders order.created \
         '{{\"total\": 12}}'\n{local}\n",
        paint.bold("This is the first start. The operator key, shown once:"),
        paint.good(text),
        paint.dim(format_args!("It is kept in {}; move it to a safe place.", key.file.display())),
    ));
}
