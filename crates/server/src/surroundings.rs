//! What belongs to this installation, as far as this process knows it: where it listens, by which
//! names the world knows it, and where its database is. Tenants must not make the server talk to any
//! of them.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use posthorn_egress::{Guard, Own};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::config::{self, StoreKind};

/// How often the database's names are looked up again: it may move.
const LOOKUP_EVERY: Duration = Duration::from_secs(60);
/// For one lookup; until it answers, what was known stays.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Our listeners, and the hosts of the database.
#[derive(Clone, Debug)]
pub struct Surroundings {
    listeners: Vec<SocketAddr>,
    database: Vec<(String, u16)>,
    /// Names and addresses by which the world knows this server.
    public: Vec<String>,
}

impl Surroundings {
    /// Of a server that listens there and has this store.
    pub fn new(listeners: Vec<SocketAddr>, public: &[String], store: &config::Store) -> Self {
        let database = match &store.kind {
            StoreKind::Sqlite => Vec::new(),
            StoreKind::Postgres(options) => options.hosts(),
        };
        Self { listeners, database, public: public.to_vec() }
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
        own
    }

    /// What egress must not reach, by what the names say now.
    pub async fn own(&self) -> Own {
        self.looked_up().await.0
    }

    /// The same, and whether every name resolved.
    async fn looked_up(&self) -> (Own, bool) {
        let (mut own, mut complete) = (self.written(), true);
        for (host, port) in self.names() {
            let found = addresses(host, *port).await;
            complete &= !found.is_empty();
            found.into_iter().for_each(|ip| add(&mut own, ip, *port));
        }
        (own, complete)
    }

    fn names(&self) -> impl Iterator<Item = &(String, u16)> {
        self.database.iter().filter(|(host, _)| host.parse::<IpAddr>().is_err())
    }

    /// Keeps the guard's knowledge fresh until it is told to stop.
    pub async fn watch(self, guard: Guard, stop: CancellationToken) {
        if self.names().next().is_none() {
            return;
        }
        let mut last = self.own().await;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOKUP_EVERY) => {}
            }
            let (mut own, complete) = self.looked_up().await;
            if !complete {
                // A name that does not resolve for once has not moved; others may have.
                own.listeners.extend(last.listeners.iter().copied());
                own.addresses.extend(last.addresses.iter().copied());
            }
            own.listeners.sort_unstable();
            own.listeners.dedup();
            own.addresses.sort_unstable();
            own.addresses.dedup();
            guard.set_own(own.clone());
            last = own;
        }
    }
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
            debug!(host, %error, "the database's name does not resolve");
            Vec::new()
        }
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use posthorn_store_postgres as postgres;

    use super::*;

    fn surroundings(url: &str) -> Surroundings {
        let kind = StoreKind::Postgres(Box::new(postgres::Options::new(url)));
        let store = config::Store { path: PathBuf::new(), kind, wait: Duration::ZERO };
        Surroundings::new(
            vec!["0.0.0.0:8080".parse().expect("address")],
            &["203.0.113.7".to_owned(), "hooks.example".to_owned()],
            &store,
        )
    }

    #[tokio::test]
    async fn the_database_is_ours_by_address_and_by_name() {
        let own = surroundings("postgres://u:p@10.0.0.7:6543/d?sslmode=verify-full").own().await;
        let expected: Vec<SocketAddr> =
            ["0.0.0.0:8080", "10.0.0.7:6543"].map(|text| text.parse().expect("address")).into();
        assert_eq!(own.listeners, expected);
        let addresses: [IpAddr; 2] =
            ["203.0.113.7", "10.0.0.7"].map(|text| text.parse().expect("address"));
        assert_eq!(own.addresses, addresses);
        assert_eq!(own.names, ["hooks.example"]);

        let own = surroundings("postgres://u@localhost/d").own().await;
        assert_eq!(own.names, ["hooks.example", "localhost"]);
        assert!(
            own.listeners
                .iter()
                .any(|listener| { listener.ip().is_loopback() && listener.port() == 5432 })
        );
        let two = surroundings("postgres://u@10.0.0.7:6000,10.0.0.8:6001/d").own().await;
        assert_eq!(two.listeners.len(), 3);
    }
}
