//! The whole configuration, section by section, and what must hold between keys.
//!
//! Sections that need more than a few lines have modules of their own beside this one.

use posthorn_dialects::{Around, Home};
use posthorn_engine as engine;
use posthorn_sealing::vault::VaultKey;
use posthorn_store_postgres as postgres;

use super::reading::Reading;
use super::values::SecretRef;
use super::{
    Config, Disk, Seal, Server, Store, StoreKind, callbacks, console, listeners, profiles, proxies,
    push, tls,
};

/// Everything; to be used only when no problem was found.
pub(super) fn read(read: &mut Reading<'_>) -> Config {
    let (server, store) = (server(read), store(read));
    let proxies = proxies::build(read);
    let mut engine = engine::Options {
        profiles: profiles::build(read),
        proxies: proxies.tenants,
        admission: read.at("admission"),
        policy_log: read.at("log"),
        quotas: read.at("quotas"),
        push: read.at("push"),
        ..read.at("engine")
    };
    let (callbacks, tenant) = callbacks::build(read, &store);
    let portal: super::Portal = read.at("portal");
    let dialects = posthorn_dialects::configured(
        read,
        &mut Around {
            https: server.tls.is_some(),
            asks_for_certificates: server.tls.as_ref().is_some_and(|tls| tls.tls.asks()),
            proxies: &server.identity.proxies,
            body_bytes: server.body_max,
            callbacks_tenant: tenant,
            portal_url: portal.public_url.clone(),
            callbacks_profile: callbacks.as_ref().map(|_| posthorn_notifier::PROFILE),
            profiles: &mut engine.profiles,
        },
    );
    let config = Config {
        push: push::build(read, &server, &store),
        egress: posthorn_egress::Options { proxies: proxies.all, ..read.at("egress") },
        limits: read.at("admission"),
        disk: read.at("admission"),
        first_key: read
            .at::<Option<String>>("keys.bootstrap")
            .and_then(|text| read.accept("keys.bootstrap", crate::first_key::parse(&text))),
        secret_files: Vec::new(),
        seal: seal(read),
        log: read.at("log"),
        telemetry: read.at("telemetry"),
        console: console::build(read),
        portal,
        portal_pages: read.at("portal"),
        dialects,
        server,
        store,
        engine,
        callbacks,
    };
    check_sizes(read, &config);
    check_times(read, &config.engine);
    check_disk(read, config.disk);
    check_systems(read, &config);
    proxies::check_profiles(read, &config.egress.proxies, &config.engine.profiles);
    config
}

fn server(read: &mut Reading<'_>) -> Server {
    let (limits, tls) = (read.at("server"), tls::build(read));
    let mut server = Server { limits, tls, ..read.at("server") };
    listeners::settle(read, &mut server);
    let identity = &server.identity;
    if identity.thumbprint_header.is_some() {
        let problem = "must name where the proxy connects from: anybody can write headers";
        read.require(!identity.proxies.is_empty(), "server.identity.proxies", problem);
    } else {
        let unused = identity.subject_header.is_none() && identity.proxies.is_empty();
        let problem = "must be given too: callers are told by it";
        read.require(unused, "server.identity.thumbprint_header", problem);
    }
    server
}

fn store(read: &mut Reading<'_>) -> Store {
    let (mut store, options): (Store, postgres::Options) = (read.at("store"), read.at("store"));
    let is_postgres =
        ["postgres://", "postgresql://"].iter().any(|scheme| options.url.starts_with(scheme));
    if is_postgres {
        store.kind = StoreKind::Postgres(Box::new(options));
    } else {
        // The text is not repeated: it may hold a password.
        let problem = "must be sqlite, postgres://…, env:NAME or file:PATH";
        read.require(options.url == "sqlite", "store.url", problem);
    }
    store
}

/// The first key of `seal.key` seals; more of them are there while keys are changed.
fn seal(read: &mut Reading<'_>) -> Seal {
    let (named, old): (Option<String>, Vec<String>) = (read.at("seal.key"), read.at("seal.former"));
    let mut keys = vault_keys(read, "seal.key", named).into_iter();
    let key = keys.next();
    let former = keys.chain(vault_keys(read, "seal.former", old)).collect();
    let place = read.layers.merged()["seal"]["key"].as_str().and_then(SecretRef::parse);
    let file = match place {
        Some(SecretRef::File(file)) => Some(file),
        _ => None,
    };
    Seal { key, former, file }
}

fn vault_keys(
    read: &mut Reading<'_>,
    key: &str,
    texts: impl IntoIterator<Item = String>,
) -> Vec<VaultKey> {
    let parse = |text: String| read.accept(key, crate::seal::parse(&text)).unwrap_or_default();
    texts.into_iter().flat_map(parse).collect()
}

/// Bodies must find room at all.
fn check_sizes(read: &mut Reading<'_>, config: &Config) {
    let server = &config.server;
    let room = server.body_memory_per_tenant >= server.body_max.max(server.batch_body_max);
    let problem = "must be at least the larger of server.body_max and server.batch_body_max";
    read.require(room, "server.body_memory_per_tenant", problem);
    let room = server.body_memory >= server.body_memory_per_tenant;
    read.require(room, "server.body_memory", "must be at least server.body_memory_per_tenant");
    let room = server.body_max >= config.engine.payload_max;
    read.require(room, "engine.payload_max", "must fit into server.body_max");
}

fn check_times(read: &mut Reading<'_>, engine: &engine::Options) {
    let often = engine.lease >= 3 * engine.heartbeat_interval;
    read.require(often, "engine.lease", "must be at least three times engine.heartbeat_interval");
    let within = engine.rotation_overlap <= engine.rotation_overlap_max;
    let problem = "must be at most engine.rotation_overlap_max";
    read.require(within, "engine.rotation_overlap", problem);
}

fn check_disk(read: &mut Reading<'_>, disk: Disk) {
    let before = disk.warn <= disk.refuse || disk.warn == 100;
    let problem = "must not be above admission.disk_refuse_percent: a warning comes before; 100 switches it off";
    read.require(before, "admission.disk_warn_percent", problem);
}

/// What other systems have must be there, and theirs alone: each takes the topics and subscriptions of its
/// tenant for its own.
fn check_systems(read: &mut Reading<'_>, config: &Config) {
    let mut taken: Vec<&str> = Vec::new();
    for home in config.dialects.iter().filter_map(|dialect| dialect.home()) {
        let Home { key, tenant, profile } = home;
        let problem = format!("the tenant `{tenant}` is another system's already");
        read.require(!taken.contains(&tenant), key, problem);
        taken.push(tenant);
        let profiles = &config.engine.profiles;
        let policy = profiles.iter().find(|(name, _)| name.as_str() == profile).map(|(_, it)| it);
        proxies::check_tenant(read, &config.engine.proxies, policy, tenant);
    }
    let mut prefixes: Vec<&str> = Vec::new();
    for (key, prefix) in config.dialects.iter().filter_map(|dialect| dialect.prefix()) {
        let below = |other: &&str| {
            let inside = |path: &str, outer: &str| {
                path.strip_prefix(outer)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            inside(prefix, other) || inside(other, prefix)
        };
        let problem = format!(
            "another system is served below `{prefix}` already; give one of them another prefix"
        );
        read.require(!prefixes.iter().any(below), key, problem);
        prefixes.push(prefix);
    }
}
