//! Names to addresses, with our own resolver.
//!
//! Names are always fully qualified, so that no search list completes them, and the hosts file is
//! not consulted: it describes this machine's network, and tenants have no business in it. Those
//! who ask for the same name at the same time share one lookup.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{Name, Record, RecordType};
use hickory_resolver::{ResolverBuilder, TokioResolver};
use parking_lot::Mutex;

use crate::failure::chain;
use crate::flights::Flights;

/// More addresses than any receiver has; a longer list is an attack on us or on others.
const ADDRESSES_MAX: usize = 32;
/// Longest chain of aliases that is believed.
const ALIASES_MAX: usize = 8;
/// Names without a lifetime must not cost a query per attempt.
const TTL_MIN: Duration = Duration::from_secs(5);
/// A receiver that moved is found within minutes whatever its records say.
const TTL_MAX: Duration = Duration::from_secs(300);
/// A name that was just created should not stay unknown for long.
const NEGATIVE_TTL_MAX: Duration = Duration::from_secs(30);
/// Per query to one server. Two tries fit into the deadline of a lookup.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
/// Answers kept; about one per destination and family.
const CACHE_ENTRIES: u64 = 16_384;
/// Queries under way to one server; above it hickory says busy, which would fail attempts.
const ACTIVE_QUERIES_MAX: usize = 1_024;

/// Why a name has no addresses.
#[derive(Clone, Debug)]
pub(crate) enum ResolveFailure {
    Timeout,
    Failed(String),
}

pub(crate) struct Names {
    /// Who is asked, over UDP and TCP; the servers of `/etc/resolv.conf` when empty.
    servers: Vec<SocketAddr>,
    /// Made at first use: many installations only ever talk to literal addresses, and not every
    /// machine has a resolver configuration.
    resolver: Mutex<Option<TokioResolver>>,
    flights: Flights<Result<Arc<[IpAddr]>, ResolveFailure>>,
}

impl Names {
    pub(crate) fn new(servers: Vec<SocketAddr>) -> Self {
        Self { servers, resolver: Mutex::new(None), flights: Flights::default() }
    }

    /// All addresses of a name; never an empty list. The caller sets the deadline.
    pub(crate) async fn addresses(&self, name: &str) -> Result<Arc<[IpAddr]>, ResolveFailure> {
        self.flights.join(name, || self.ask(name)).await
    }

    /// Hides what a resolver is: else every crate that sends anything would be made with one of its own.
    fn ask<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<[IpAddr]>, ResolveFailure>> {
        Box::pin(self.look_up(name))
    }

    async fn look_up(&self, name: &str) -> Result<Arc<[IpAddr]>, ResolveFailure> {
        let failed = |text: &str| Err(ResolveFailure::Failed(text.to_owned()));
        let resolver = self.resolver().map_err(|error| ResolveFailure::Failed(chain(&error)))?;
        let mut qualified =
            Name::from_ascii(name).map_err(|error| ResolveFailure::Failed(chain(&error)))?;
        qualified.set_fqdn(true);
        let found = match resolver.lookup_ip(qualified).await {
            Ok(found) => found,
            Err(NetError::Timeout) => return Err(ResolveFailure::Timeout),
            Err(error) => return Err(ResolveFailure::Failed(chain(&error))),
        };
        // Both families bring the same aliases.
        let records = found.as_lookup().answers();
        let is_alias = |record: &&Record| record.record_type() == RecordType::CNAME;
        let aliases: HashSet<&Name> = records.iter().filter(is_alias).map(|r| &r.name).collect();
        if aliases.len() > ALIASES_MAX {
            return failed("the name has too many aliases in a row");
        }
        let addresses: Vec<IpAddr> = found.iter().take(ADDRESSES_MAX + 1).collect();
        match addresses.len() {
            0 => failed("the name has no addresses"),
            1..=ADDRESSES_MAX => Ok(addresses.into()),
            _ => failed("the name has too many addresses"),
        }
    }

    fn resolver(&self) -> Result<TokioResolver, NetError> {
        let mut made = self.resolver.lock();
        if let Some(resolver) = &*made {
            return Ok(resolver.clone());
        }
        let resolver = build(&self.servers)?;
        *made = Some(resolver.clone());
        Ok(resolver)
    }
}

fn build(servers: &[SocketAddr]) -> Result<TokioResolver, NetError> {
    if servers.is_empty() {
        return tuned(TokioResolver::builder_tokio()?);
    }
    let servers = servers.iter().map(|server| name_server(*server)).collect();
    tuned(TokioResolver::builder_with_config(
        ResolverConfig::from_parts(None, vec![], servers),
        TokioRuntimeProvider::default(),
    ))
}

/// What holds whoever is asked.
fn tuned(mut builder: ResolverBuilder<TokioRuntimeProvider>) -> Result<TokioResolver, NetError> {
    let options = builder.options_mut();
    options.use_hosts_file = ResolveHosts::Never;
    // Aliases are counted.
    options.preserve_intermediates = true;
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.timeout = QUERY_TIMEOUT;
    options.attempts = 2;
    options.cache_size = CACHE_ENTRIES;
    options.max_active_requests = ACTIVE_QUERIES_MAX;
    options.positive_min_ttl = Some(TTL_MIN);
    options.positive_max_ttl = Some(TTL_MAX);
    options.negative_max_ttl = Some(NEGATIVE_TTL_MAX);
    builder.build()
}

fn name_server(address: SocketAddr) -> NameServerConfig {
    let mut config = NameServerConfig::udp_and_tcp(address.ip());
    config.connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()]
        .map(|mut connection| {
            connection.port = address.port();
            connection
        })
        .into();
    config
}

#[cfg(test)]
mod tests {
    use tokio::net::UdpSocket;

    use super::*;

    /// A name server that knows nobody, and writes down which names it was asked for.
    #[expect(clippy::disallowed_methods, reason = "a name server of the test, on loopback")]
    async fn knows_nobody() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
        let socket = UdpSocket::bind("127.0.0.1:0").await.expect("bind");
        let address = socket.local_addr().expect("address");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let writing = Arc::clone(&asked);
        tokio::spawn(async move {
            let mut packet = [0; 1500];
            while let Ok((length, peer)) = socket.recv_from(&mut packet).await {
                let end = 12 + packet[12..].iter().position(|byte| *byte == 0).expect("root");
                let label = |byte: &u8| if *byte < 32 { '.' } else { char::from(*byte) };
                writing.lock().push(packet[12..end].iter().map(label).collect::<String>());
                // The question again, as an answer: no such name.
                packet[2..4].copy_from_slice(&[0x81, 0x83]);
                packet[6..12].fill(0);
                let _ = socket.send_to(&packet[..(end + 5).min(length)], peer).await;
            }
        });
        (address, asked)
    }

    #[tokio::test]
    async fn a_search_list_completes_no_name() {
        let (address, asked) = knows_nobody().await;
        let search = vec![Name::from_ascii("svc.cluster.local.").expect("name")];
        let domain = Name::from_ascii("corp.example.").expect("name");
        let config = ResolverConfig::from_parts(Some(domain), search, vec![name_server(address)]);
        let names = Names::new(vec![address]);
        let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        *names.resolver.lock() = Some(tuned(builder).expect("resolver"));
        for name in ["kubernetes.default", "kubernetes", "hooks.example.com"] {
            assert!(matches!(names.addresses(name).await, Err(ResolveFailure::Failed(_))));
        }
        let mut asked = asked.lock().clone();
        asked.sort();
        asked.dedup();
        assert_eq!(asked, [".hooks.example.com", ".kubernetes", ".kubernetes.default"]);
    }

    #[tokio::test]
    async fn the_hosts_file_is_not_consulted() {
        let (address, asked) = knows_nobody().await;
        let names = Names::new(vec![address]);
        let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
        let lines = hosts.lines().filter_map(|line| line.split('#').next());
        let own = lines.flat_map(|line| line.split_whitespace().skip(1));
        // The resolver answers for localhost by itself, which is refused by address.
        let own: Vec<&str> = own.filter(|name| !name.contains("localhost")).collect();
        for name in own.iter().copied().chain(["hooks.example.com"]) {
            let found = names.addresses(name).await;
            assert!(matches!(found, Err(ResolveFailure::Failed(_))), "{name} gave {found:?}");
            assert!(asked.lock().iter().any(|asked| asked[1..].eq_ignore_ascii_case(name)));
        }
    }
}
