//! From what is written to what is meant: the second stage of a configuration.
//!
//! Sections that need more than a few lines have modules of their own beside this one, which come back here
//! to say what is wrong.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use posthorn_domain::Span;
use posthorn_egress::{self as egress, ResolverChoice};
use posthorn_engine as engine;
use posthorn_listener::ProxyIdentity;
use posthorn_notifier::{Callbacks, CallbacksConfig};
use posthorn_sealing::vault::{Secret, VaultKey};
use posthorn_store_postgres as postgres;
use tracing_subscriber::EnvFilter;

use super::layers::{Layers, Problem};
use super::raw::{self, RawConfig};
use super::values::SecretRef;
use super::{
    Config, Dialects, Disk, Log, LogFormat, Seal, SecretFile, Server, Store, StoreKind, Telemetry,
    cedros, efgs, listeners, notificaties, profiles, proxies, push, steps, tls,
};
/// The second stage, with what it has found so far.
pub(super) struct Check<'a> {
    pub(super) layers: &'a Layers,
    pub(super) env: &'a BTreeMap<String, String>,
    pub(super) problems: Vec<Problem>,
    pub(super) secret_files: Vec<SecretFile>,
}

impl Check<'_> {
    pub(super) fn refuse(&mut self, key: &str, text: impl Into<String>) {
        let source = self.layers.source_of(&steps(key)).clone();
        self.problems.push(Problem { key: key.to_owned(), source, text: text.into() });
    }

    /// Notes a problem and goes on without the value.
    pub(super) fn accept<T, E: fmt::Display>(
        &mut self,
        key: &str,
        result: Result<T, E>,
    ) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.refuse(key, error.to_string());
                None
            }
        }
    }

    pub(super) fn at_least_one(&mut self, key: &str, number: usize) -> usize {
        if number == 0 {
            self.refuse(key, "must be at least 1");
        }
        number
    }

    pub(super) fn some_time(&mut self, key: &str, span: Span) -> Duration {
        if span == Span::ZERO {
            self.refuse(key, "must be more than zero");
        }
        span.to_duration()
    }

    pub(super) fn config(&mut self, raw: RawConfig) -> Option<Config> {
        let server = self.server(&raw.server);
        let store = self.store(&raw.store);
        let push = push::build(self, raw.push, server.as_ref(), store.as_ref());
        let mut raw_egress = raw.egress;
        let proxies = proxies::build(self, std::mem::take(&mut raw_egress.proxies));
        let egress = self.egress(raw_egress, proxies.all.clone());
        let mut engine = self.engine(&raw.engine);
        engine.proxies = proxies.tenants;
        engine.profiles = profiles::build(self, raw.profiles);
        engine.admission = self.admission(&raw.admission);
        engine.quotas = quotas(&raw.quotas);
        engine.policy_log =
            engine::PolicyLogOptions { enabled: raw.log.policy, lines: raw.log.policy_lines };
        let limits = limits(&raw.admission);
        let disk = self.disk(&raw.admission);
        if raw.server.body.0 < raw.engine.payload.0 {
            self.refuse("engine.payload", "must fit into server.body");
        }
        let first_key = match &raw.keys.bootstrap {
            Some(text) => self.first_key(text).map(Some),
            None => Some(None),
        };
        let seal = self.seal(&raw.seal);
        let log = self.log(&raw.log);
        let upkeep = self.some_time("telemetry.upkeep", raw.telemetry.upkeep);
        let telemetry = Telemetry { metrics: raw.telemetry.metrics, upkeep };
        let body = raw.server.body.0;
        let tenant = raw.callbacks.tenant.clone().unwrap_or_else(|| "default".to_owned());
        let https = raw.server.tls.certificate.is_some();
        let mut callbacks = self.callbacks(raw.callbacks);
        if let Some((callbacks, store)) = callbacks.as_mut().zip(store.as_ref()) {
            cedros::warn_of_backend(callbacks, store);
        }
        let admin = raw.dialects.cedros.enabled || callbacks.is_some();
        let dialects = Dialects {
            efgs: efgs::build(self, raw.dialects.efgs, server.as_ref(), &mut engine.profiles),
            cedros: cedros::build(self, raw.dialects.cedros, tenant, admin),
            notificaties: notificaties::build(self, raw.dialects.notificaties, body, https),
        };
        proxies::check_profiles(self, &proxies.all, &engine.profiles);
        let callbacks_of = callbacks.as_ref().and(dialects.cedros.as_ref());
        let profiles = [
            dialects.efgs.as_ref().map(|o| (&o.tenant, o.profile.as_str())),
            dialects.notificaties.as_ref().map(|o| (&o.tenant, o.profile.as_str())),
            callbacks_of.map(|o| (&o.tenant, posthorn_notifier::PROFILE)),
        ];
        for (tenant, profile) in profiles.into_iter().flatten() {
            let found = engine.profiles.iter().find(|(name, _)| name.as_str() == profile);
            let policy = found.map(|(_, policy)| policy);
            proxies::check_tenant(self, &engine.proxies, policy, tenant);
        }
        if let Some(options) = &dialects.notificaties
            && !engine.profiles.contains_key(&options.profile)
        {
            let text = format!("there is no profile `{}`", options.profile);
            self.refuse("dialects.notificaties.profile", text);
        }
        let tenants = [
            ("dialects.efgs.tenant", dialects.efgs.as_ref().map(|o| o.tenant.as_str())),
            (
                "dialects.notificaties.tenant",
                dialects.notificaties.as_ref().map(|o| o.tenant.as_str()),
            ),
            ("callbacks.tenant", callbacks_of.map(|o| o.tenant.as_str())),
        ];
        let mut taken: Vec<&str> = Vec::new();
        for (key, tenant) in tenants {
            let Some(tenant) = tenant else { continue };
            // Each of them takes the topics and subscriptions of its tenant for its own.
            if taken.contains(&tenant) {
                self.refuse(key, format!("the tenant `{tenant}` is another system's already"));
            }
            taken.push(tenant);
        }
        Some(Config {
            server: server?,
            store: store?,
            egress: egress?,
            engine,
            limits,
            auth_failures: raw.admission.auth_failures,
            disk,
            first_key: first_key?,
            secret_files: std::mem::take(&mut self.secret_files),
            seal: seal?,
            log: log?,
            telemetry,
            dialects,
            callbacks,
            push,
        })
    }

    /// The block `callbacks` with what `CALLBACK_…` in the environment says over it.
    fn callbacks(&mut self, raw: CallbacksConfig) -> Option<Callbacks> {
        let env = self.env;
        let lookup = |name: &str| env.get(name).cloned();
        let checked = raw.with_env(env.clone()).and_then(|config| config.check_with(&lookup));
        match checked {
            Ok(callbacks) => callbacks,
            Err(error) => {
                self.refuse(&error.key, error.problem);
                None
            }
        }
    }

    fn server(&mut self, raw: &raw::RawServer) -> Option<Server> {
        let listen = listeners::address(&raw.listen);
        let (admin, surfaces) = listeners::build(self, raw)?;
        let server = Server {
            surfaces,
            admin,
            bodies: self.at_least_one("server.bodies", raw.bodies.0),
            bodies_per_tenant: raw.bodies_per_tenant.0,
            write_timeout: self.some_time("server.write_timeout", raw.write_timeout),
            write_rate: self.at_least_one("server.write_rate", raw.write_rate.0),
            public_names: raw.public_names.clone(),
            connections: self.at_least_one("server.connections", raw.connections),
            connections_per_address: raw.connections_per_address,
            body: self.at_least_one("server.body", raw.body.0),
            batch_body: self.at_least_one("server.batch_body", raw.batch_body.0),
            head: self.at_least_one("server.head", raw.head.0),
            head_timeout: self.some_time("server.head_timeout", raw.head_timeout),
            stop_timeout: raw.stop_timeout.to_duration(),
            identity: self.identity(&raw.identity)?,
            tls: tls::build(self, &raw.tls)?,
            listen: self.accept("server.listen", listen)?,
        };
        listeners::check_bodies(self, &server);
        Some(server)
    }

    /// `Some(None)` when no proxy vouches for anybody.
    fn identity(&mut self, raw: &raw::RawIdentity) -> Option<Option<ProxyIdentity>> {
        let key = |name: &str| format!("server.identity.{name}");
        let header = |text: &str| {
            http::HeaderName::try_from(text).map_err(|_| format!("`{text}` is not a header name"))
        };
        let Some(text) = &raw.thumbprint_header else {
            if raw.subject_header.is_some() || !raw.proxies.is_empty() {
                let problem = "must be given too: callers are told by it";
                self.refuse(&key("thumbprint_header"), problem);
            }
            return Some(None);
        };
        let thumbprint_header = self.accept(&key("thumbprint_header"), header(text));
        let subject_header = match &raw.subject_header {
            None => None,
            Some(text) => Some(self.accept(&key("subject_header"), header(text))?),
        };
        let proxies = self.proxies(&key("proxies"), &raw.proxies)?;
        if proxies.is_empty() {
            let problem = "must name where the proxy connects from: anybody can write headers";
            self.refuse(&key("proxies"), problem);
        }
        let thumbprint_header = thumbprint_header?;
        Some(Some(ProxyIdentity { thumbprint_header, subject_header, proxies }))
    }

    /// Networks that proxies connect from.
    pub(super) fn proxies(&mut self, key: &str, texts: &[String]) -> Option<Vec<ipnet::IpNet>> {
        let parse = |text: &String| {
            let net = text.parse::<ipnet::IpNet>();
            let one = || text.parse::<std::net::IpAddr>().map(ipnet::IpNet::from);
            net.or_else(|_| one())
                .map_err(|_| format!("`{text}` is not a network: write 10.0.0.5 or 10.0.0.0/24"))
        };
        let proxies = self.accept(key, texts.iter().map(parse).collect::<Result<Vec<_>, _>>())?;
        if proxies.iter().any(|net| net.prefix_len() == 0) {
            self.refuse(key, "must not be everybody: anybody can write headers");
        }
        Some(proxies)
    }

    fn store(&mut self, raw: &raw::RawStore) -> Option<Store> {
        let url = match SecretRef::parse(&raw.url) {
            Some(place) => self.resolve("store.url", &place)?,
            None => raw.url.clone(),
        };
        self.at_least_one("store.pool", raw.pool);
        let kind = if url == "sqlite" {
            StoreKind::Sqlite
        } else if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            let mut options = postgres::Options::new(url);
            options.schema = raw.schema.clone();
            options.pool_size = raw.pool;
            options.connect_timeout = self.some_time("store.connect_timeout", raw.connect_timeout);
            options.statement_timeout =
                self.some_time("store.statement_timeout", raw.statement_timeout);
            StoreKind::Postgres(Box::new(options))
        } else {
            // The text is not repeated: it may hold a password.
            self.refuse("store.url", "must be sqlite, postgres://…, env:NAME or file:PATH");
            return None;
        };
        if raw.path.is_empty() {
            self.refuse("store.path", "must name a directory");
        }
        Some(Store { path: PathBuf::from(&raw.path), kind, wait: raw.wait.to_duration() })
    }

    fn egress(
        &mut self,
        raw: raw::RawEgress,
        proxies: BTreeMap<posthorn_domain::ProxyName, egress::Proxy>,
    ) -> Option<egress::Options> {
        let allow = raw.allow.iter().map(|rule| rule.parse()).collect::<Result<Vec<_>, _>>();
        let deny = raw.deny.iter().map(|rule| rule.parse()).collect::<Result<Vec<_>, _>>();
        let names = raw.names.iter().map(|rule| rule.parse()).collect::<Result<Vec<_>, _>>();
        let resolvers = raw.resolvers.iter().map(|address| {
            address.parse::<SocketAddr>().map_err(|_| {
                format!(
                    "`{address}` is not a name server: write 192.0.2.53:53 or [2001:db8::53]:53"
                )
            })
        });
        let resolvers = resolvers.collect::<Result<Vec<_>, _>>();
        let extra_roots_pem = match &raw.extra_roots {
            None => None,
            Some(path) => {
                let read = std::fs::read(path).map_err(|e| format!("{path} cannot be read: {e}"));
                Some(self.accept("egress.extra_roots", read)?)
            }
        };
        let defaults = egress::Options::default();
        let resolvers = self.accept("egress.resolvers", resolvers)?;
        Some(egress::Options {
            allow: self.accept("egress.allow", allow)?,
            deny: self.accept("egress.deny", deny)?,
            names: self.accept("egress.names", names)?,
            ports: raw.ports.iter().map(|port| port.0).collect(),
            https_only: raw.https_only,
            allow_idn: raw.allow_idn,
            nat64: raw.nat64,
            dangerously_allow_metadata: raw.dangerously_allow_metadata,
            idle_per_key: raw.idle_per_subscription,
            idle_timeout: self.some_time("egress.idle_timeout", raw.idle_timeout),
            connection_age_max: self.some_time("egress.connection_age", raw.connection_age),
            connections_max: self.at_least_one("egress.connections", raw.connections),
            proxies,
            resolver: if resolvers.is_empty() {
                ResolverChoice::System
            } else {
                ResolverChoice::Servers(resolvers)
            },
            extra_roots_pem,
            user_agent: raw.user_agent.unwrap_or(defaults.user_agent),
        })
    }

    fn engine(&mut self, raw: &raw::RawEngine) -> engine::Options {
        if raw.lease.as_millis() < 3 * raw.heartbeat.as_millis() {
            self.refuse("engine.lease", "must be at least three times engine.heartbeat");
        }
        if raw.rotation_overlap > raw.rotation_overlap_max {
            self.refuse("engine.rotation_overlap", "must be at most engine.rotation_overlap_max");
        }
        engine::Options {
            payload_bytes: self.at_least_one("engine.payload", raw.payload.0),
            accept_pipeline: self.at_least_one("engine.accept_pipeline", raw.accept_pipeline),
            record_pipeline: self.at_least_one("engine.record_pipeline", raw.record_pipeline),
            accept_batch: self.at_least_one("engine.accept_batch", raw.accept_batch),
            accept_deliveries: self.at_least_one("engine.accept_deliveries", raw.accept_deliveries),
            slots: self.at_least_one("engine.slots", raw.slots),
            window: self.at_least_one("engine.window", raw.window),
            window_per_subscription: self
                .at_least_one("engine.window_per_subscription", raw.window_per_subscription),
            window_bytes: self.at_least_one("engine.window_bytes", raw.window_bytes.0),
            horizon: raw.horizon,
            lease_ttl: self.some_time("engine.lease", raw.lease),
            heartbeat: self.some_time("engine.heartbeat", raw.heartbeat),
            poll: self.some_time("engine.poll", raw.poll),
            maintenance: self.some_time("engine.maintenance", raw.maintenance),
            retention: raw.retention,
            dead_retention: raw.dead_retention,
            key_retention: raw.key_retention,
            drain: raw.drain.to_duration(),
            rotation_overlap: raw.rotation_overlap,
            rotation_overlap_max: raw.rotation_overlap_max,
            ..engine::Options::default()
        }
    }

    fn admission(&mut self, raw: &raw::RawAdmission) -> engine::AdmissionOptions {
        engine::AdmissionOptions {
            commit_delay: raw.commit_delay.to_duration(),
            commit_interval: self.some_time("admission.commit_interval", raw.commit_interval),
            pending_quota: raw.pending_quota,
            pending_refresh: self.some_time("admission.pending_refresh", raw.pending_refresh),
            key_rate: raw.key_rate,
            tests: raw.tests,
        }
    }

    fn disk(&mut self, raw: &raw::RawAdmission) -> Disk {
        for (key, percent) in
            [("admission.disk_warn", raw.disk_warn), ("admission.disk_refuse", raw.disk_refuse)]
        {
            if !(1..=100).contains(&percent) {
                self.refuse(key, "must be 1 to 100, in percent; 100 switches it off");
            }
        }
        if raw.disk_warn > raw.disk_refuse && raw.disk_warn < 100 {
            let problem = "must not be above admission.disk_refuse: a warning comes before; \
                           100 switches it off";
            self.refuse("admission.disk_warn", problem);
        }
        let refresh = self.some_time("admission.disk_refresh", raw.disk_refresh);
        Disk { warn: raw.disk_warn, refuse: raw.disk_refuse, refresh }
    }

    fn first_key(&mut self, text: &str) -> Option<Secret> {
        let text = self.secret("keys.bootstrap", text)?;
        self.accept("keys.bootstrap", crate::first_key::parse(&text))
    }

    fn seal(&mut self, raw: &raw::RawSeal) -> Option<Seal> {
        let mut keys = match &raw.key {
            None => Vec::new().into_iter(),
            Some(text) => self.vault_keys("seal.key", text)?.into_iter(),
        };
        // The first seals; more of them are there while keys are changed.
        let key = keys.next();
        let mut former: Vec<VaultKey> = keys.collect();
        for text in &raw.former {
            former.extend(self.vault_keys("seal.former", text)?);
        }
        let file = match raw.key.as_deref().and_then(SecretRef::parse) {
            Some(SecretRef::File(path)) => Some(path),
            _ => None,
        };
        Some(Seal { key, former, file })
    }

    fn vault_keys(&mut self, key: &str, text: &str) -> Option<Vec<VaultKey>> {
        let text = self.secret(key, text)?;
        self.accept(key, crate::seal::parse(&text))
    }

    /// The text of a secret that lives outside of the configuration.
    fn secret(&mut self, key: &str, text: &str) -> Option<String> {
        let place = SecretRef::parse(text)
            .ok_or("must be env:NAME or file:PATH; secrets are not written into the configuration");
        let place = self.accept(key, place)?;
        self.resolve(key, &place)
    }

    /// What is kept in a place, which is remembered when it is a file.
    pub(super) fn resolve(&mut self, key: &str, place: &SecretRef) -> Option<String> {
        if let SecretRef::File(file) = place {
            self.secret_files.push(SecretFile { key: key.to_owned(), file: file.clone() });
        }
        self.accept(key, place.resolve(self.env))
    }

    fn log(&mut self, raw: &raw::RawLog) -> Option<Log> {
        let filter = EnvFilter::try_new(&raw.level).map_err(|_| {
            format!("`{}` is not a level: write error, warn, info, debug or trace", raw.level)
        });
        let format = match raw.format.as_str() {
            "auto" => Ok(LogFormat::Auto),
            "human" => Ok(LogFormat::Human),
            "json" => Ok(LogFormat::Json),
            other => Err(format!("`{other}` is not a format: write auto, human or json")),
        };
        let (filter, format) =
            (self.accept("log.level", filter), self.accept("log.format", format));
        filter?;
        Some(Log { level: raw.level.clone(), format: format? })
    }
}

fn limits(raw: &raw::RawAdmission) -> posthorn_api::LimitOptions {
    posthorn_api::LimitOptions {
        redrives: raw.redrives,
        refusal_hold: raw.refusal_hold.to_duration(),
    }
}

fn quotas(raw: &raw::RawQuotas) -> engine::Quotas {
    engine::Quotas {
        subscriptions: raw.subscriptions,
        topics: raw.topics,
        profiles: raw.profiles,
        catalog_bytes: raw.catalog.0,
        fan_out: raw.fan_out,
        match_event: raw.match_event.0 as u64,
        match_second: raw.match_second.0 as u64,
    }
}
