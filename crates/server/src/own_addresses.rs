//! What belongs to this installation, as far as this process knows it: where it listens, by which
//! names the world knows it, where its database is, the proxies it sends through, and the collector of its traces
//! and metrics. Tenants must not make the server talk to any of them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use posthorn_egress::{Egress, Guard, Own, Proxy, Target};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::config::{self, StoreKind};

/// How often names are looked up again: what they stand for may move.
const LOOKUP_EVERY: Duration = Duration::from_secs(60);
/// And when one of them was not found.
const LOOKUP_SOON: Duration = Duration::from_secs(5);
/// For one lookup; until it answers, what was known stays.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// A way out, and the one place it leads to.
pub type WayTo = (Egress, Arc<Target>);

/// Our listeners, the hosts of the database, the proxies, and the collector.
#[derive(Clone)]
pub struct OwnAddresses {
    listeners: Vec<SocketAddr>,
    database: Vec<(String, u16)>,
    /// Closed on their ports only: others may well receive beside them.
    proxies: Vec<(String, u16)>,
    /// Closed on its port only.
    collector: Option<(String, u16)>,
    /// The way to it, where its name is looked up as when it is used.
    to_collector: Option<WayTo>,
    /// Names and addresses by which the world knows this server.
    public: Vec<String>,
}

impl OwnAddresses {
    /// Of a server that listens there, has this store, and sends through these proxies.
    pub fn new<'a>(
        listeners: Vec<SocketAddr>,
        public: &[String],
        store: &config::Store,
        proxies: impl IntoIterator<Item = &'a Proxy>,
    ) -> Self {
        let database = match &store.kind {
            StoreKind::Sqlite => Vec::new(),
            StoreKind::Postgres(options) => options.hosts(),
        };
        let proxies = proxies.into_iter().map(Proxy::place).collect();
        let (collector, to_collector) = (None, None);
        let public = public.to_vec();
        Self { listeners, database, proxies, collector, to_collector, public }
    }

    /// The same with a collector of traces and metrics there.
    #[must_use]
    pub fn with_collector(self, place: Option<(String, u16)>, way: Option<WayTo>) -> Self {
        Self { collector: place, to_collector: way, ..self }
    }

    /// What egress must not reach, as far as it is written down; no name is looked up.
    pub fn written(&self) -> Own {
        let mut own = Own { listeners: self.listeners.clone(), ..Own::default() };
        for host in &self.public {
            match host.parse() {
                Ok(ip) => own.addresses.push(ip),
                Err(_) => own.names.push(host.clone()),
            }
        }
        for (host, port) in &self.database {
            match host.parse() {
                Ok(ip) => add(&mut own, ip, *port),
                Err(_) => own.names.push(host.clone()),
            }
        }
        for (host, port) in self.proxies.iter().chain(&self.collector) {
            match host.parse() {
                Ok(ip) => own.listeners.push(SocketAddr::new(ip, *port)),
                Err(_) => own.servers.push((host.clone(), *port)),
            }
        }
        own
    }

    /// What egress must not reach, by what the names say now.
    pub async fn own(&self, egress: &Egress) -> Own {
        self.looked_up(egress).await.0
    }

    /// The same, and whether every name resolved. A proxy is looked up as it is when it is used.
    async fn looked_up(&self, egress: &Egress) -> (Own, bool) {
        let (proxies, mut complete) = egress.places_of_proxies().await;
        let mut own = self.written();
        // Those that are written as addresses are there already.
        let unknown = proxies.into_iter().filter(|place| !own.listeners.contains(place));
        own.listeners.extend(unknown.collect::<Vec<_>>());
        for (host, port) in names(&self.database) {
            let found = addresses(host, *port).await;
            complete &= !found.is_empty();
            found.into_iter().for_each(|ip| add(&mut own, ip, *port));
        }
        if let Some((egress, target)) = &self.to_collector
            && names(self.collector.as_slice()).next().is_some()
        {
            let found = egress.places_of(target, LOOKUP_TIMEOUT).await;
            complete &= !found.is_empty();
            // One on the internet is open to everybody, and may share its address with receivers.
            own.listeners.extend(found.into_iter().filter(|place| !is_public(place.ip())));
        }
        (own, complete)
    }

    /// Keeps the guard's knowledge fresh until it is told to stop.
    pub async fn watch(self, egress: Egress, stop: CancellationToken) {
        let collector = self.collector.as_slice();
        if names(&self.database)
            .chain(names(&self.proxies))
            .chain(names(collector))
            .next()
            .is_none()
        {
            return;
        }
        let mut last = Own::default();
        loop {
            let (mut own, complete) = self.looked_up(&egress).await;
            if !complete {
                // A name that does not resolve for once has not moved; others may have.
                own.listeners.extend(last.listeners.iter().copied());
                own.addresses.extend(last.addresses.iter().copied());
            }
            own.listeners.sort_unstable();
            own.listeners.dedup();
            own.addresses.sort_unstable();
            own.addresses.dedup();
            egress.guard().set_own(own.clone());
            last = own;
            // A name that is not there yet is usually there soon: somebody starts everything at once.
            let wait = if complete { LOOKUP_EVERY } else { LOOKUP_SOON };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }
}

/// Those that have to be looked up.
fn names(places: &[(String, u16)]) -> impl Iterator<Item = &(String, u16)> {
    places.iter().filter(|(host, _)| host.parse::<IpAddr>().is_err())
}

/// Whether an address can be reached from everywhere.
fn is_public(ip: IpAddr) -> bool {
    Guard::default().check_address(ip, 443).is_ok()
}

fn add(own: &mut Own, ip: IpAddr, port: u16) {
    own.listeners.push(SocketAddr::new(ip, port));
    own.addresses.push(ip);
}

/// The addresses of a host of ours, the way the database's driver finds them.
#[expect(
    clippy::disallowed_methods,
    reason = "the operator named this host, and the answer is only used to refuse it to tenants"
)]
async fn addresses(host: &str, port: u16) -> Vec<IpAddr> {
    let lookup = tokio::net::lookup_host((host, port));
    match tokio::time::timeout(LOOKUP_TIMEOUT, lookup).await {
        Ok(Ok(found)) => found.map(|address| address.ip()).collect(),
        Ok(Err(error)) => {
            debug!(host, %error, "a name of this installation does not resolve");
            Vec::new()
        }
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use posthorn_domain::ProxyName;
    use posthorn_egress::ProxyMode;
    use posthorn_store_postgres as postgres;

    use super::*;

    fn egress(proxies: &[&str]) -> Egress {
        let proxy = |(number, url): (usize, &&str)| {
            let name = ProxyName::new(&format!("p{number}")).expect("a name");
            (name, Proxy::new(url, None, ProxyMode::Connect).expect("a proxy"))
        };
        let proxies = proxies.iter().enumerate().map(proxy).collect();
        Egress::new(posthorn_egress::Options { proxies, ..Default::default() }).expect("set up")
    }

    fn own_addresses(url: &str) -> OwnAddresses {
        let kind = StoreKind::Postgres(Box::new(postgres::Options::new(url)));
        let store = config::Store { path: PathBuf::new(), kind, start_timeout: Duration::ZERO };
        OwnAddresses::new(
            vec!["0.0.0.0:8080".parse().expect("address")],
            &["203.0.113.7".to_owned(), "hooks.example".to_owned()],
            &store,
            [],
        )
    }

    #[tokio::test]
    async fn the_database_is_ours_by_address_and_by_name() {
        let own = own_addresses("postgres://u:p@10.0.0.7:6543/d?sslmode=verify-full")
            .own(&egress(&[]))
            .await;
        let expected: Vec<SocketAddr> =
            ["0.0.0.0:8080", "10.0.0.7:6543"].map(|text| text.parse().expect("address")).into();
        assert_eq!(own.listeners, expected);
        let addresses: [IpAddr; 2] =
            ["203.0.113.7", "10.0.0.7"].map(|text| text.parse().expect("address"));
        assert_eq!(own.addresses, addresses);
        assert_eq!(own.names, ["hooks.example"]);

        let own = own_addresses("postgres://u@localhost/d").own(&egress(&[])).await;
        assert_eq!(own.names, ["hooks.example", "localhost"]);
        assert!(
            own.listeners
                .iter()
                .any(|listener| { listener.ip().is_loopback() && listener.port() == 5432 })
        );
        let two =
            own_addresses("postgres://u@10.0.0.7:6000,10.0.0.8:6001/d").own(&egress(&[])).await;
        assert_eq!(two.listeners.len(), 3);
    }

    #[tokio::test]
    async fn a_proxy_is_ours_on_its_port() {
        let kind = StoreKind::Sqlite;
        let store = config::Store { path: PathBuf::new(), kind, start_timeout: Duration::ZERO };
        let urls = ["http://10.0.0.9:3128", "http://[::1]:3129", "http://proxy.invalid:3130"];
        let proxies = urls.map(|url| Proxy::new(url, None, ProxyMode::Connect).expect("a proxy"));
        let around = OwnAddresses::new(Vec::new(), &[], &store, &proxies);
        let own = around.written();
        let expected = ["10.0.0.9:3128", "[::1]:3129"].map(|text| text.parse().expect("address"));
        assert_eq!(own.listeners, expected);
        assert_eq!(own.servers, [("proxy.invalid".to_owned(), 3130)]);
        assert!(own.addresses.is_empty() && own.names.is_empty(), "only their ports: {own:?}");
        assert_eq!(around.own(&egress(&urls[..2])).await, own);
    }

    #[tokio::test]
    async fn a_collector_is_ours_on_its_port() {
        let kind = StoreKind::Sqlite;
        let store = config::Store { path: PathBuf::new(), kind, start_timeout: Duration::ZERO };
        let own = |host: &str| {
            let around = OwnAddresses::new(Vec::new(), &[], &store, []);
            around.with_collector(Some((host.to_owned(), 4318)), None)
        };
        let by_address = own("10.0.0.9").own(&egress(&[])).await;
        assert_eq!(by_address.listeners, ["10.0.0.9:4318".parse().expect("an address")]);
        let by_name = own("collector.invalid").own(&egress(&[])).await;
        assert_eq!(by_name.servers, [("collector.invalid".to_owned(), 4318)]);
        assert!(by_name.addresses.is_empty() && by_name.names.is_empty(), "only its port");
        assert!(is_public("1.1.1.1".parse().expect("an address")));
        assert!(!is_public("10.0.0.9".parse().expect("an address")));
    }
}
