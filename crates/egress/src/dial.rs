//! Opening a connection: resolve, vet, connect, TLS.
//!
//! The address that was checked is the address that is used: a name is resolved once, every
//! address it has is vetted, and only a vetted socket address is ever given to the kernel.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use posthorn_domain::{FailureCode, ProxyName, TenantId};
use rustls::HandshakeKind;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use crate::client::{Deadlines, Timings};
use crate::counters;
use crate::failure::SendFailure;
use crate::guard::Guard;
use crate::link::Link;
use crate::pool::Pool;
use crate::proxy::{self, Proxy, ProxyMode, Tunnel};
use crate::resolve::{Names, ResolveFailure};
use crate::source::Source;
use crate::stream::{Capped, Transport};
use crate::target::{Host, Scheme, Target};
use crate::tls::{ClientTls, Tls};

/// Longest wait for DNS, however generous the connect deadline is.
const DNS_DEADLINE: Duration = Duration::from_secs(5);
/// How long an address may keep the others waiting.
const HEAD_START: Duration = Duration::from_millis(300);
/// Addresses of one name that are tried.
const TRIED_MAX: usize = 4;

/// Who wants a connection where.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) tenant: TenantId,
    pub(crate) target: &'a Target,
    pub(crate) tls: Option<&'a ClientTls>,
    pub(crate) through: Option<Through<'a>>,
}

/// The proxy a connection leads through.
#[derive(Clone, Copy)]
pub(crate) struct Through<'a> {
    pub(crate) name: &'a ProxyName,
    pub(crate) proxy: &'a Proxy,
}

pub(crate) struct Dialer {
    pub(crate) guard: Guard,
    pub(crate) names: Names,
    pub(crate) tls: Tls,
    pub(crate) pool: Arc<Pool>,
    pub(crate) source: Source,
}

impl Dialer {
    /// Opens a link to the target, filling in what each phase took.
    pub(crate) async fn open(
        &self,
        wanted: Wanted<'_>,
        deadlines: &Deadlines,
        total: Instant,
        timings: &mut Timings,
    ) -> Result<Box<Link>, SendFailure> {
        let target = wanted.target;
        if target.scheme() == Scheme::Http && self.guard.https_only() {
            let detail = "plain http is turned off";
            return Err(SendFailure::new(FailureCode::UrlNotAllowed, detail));
        }
        if target.scheme() == Scheme::Http && wanted.tls.is_some_and(ClientTls::has_identity) {
            let detail = "a client certificate cannot be used with plain http; use an https URL";
            return Err(SendFailure::new(FailureCode::UrlNotAllowed, detail));
        }
        let forwards = wanted.through.filter(|through| through.proxy.mode == ProxyMode::Forward);
        if let Some(through) = forwards.filter(|_| wanted.tls.is_some()) {
            let detail = format!(
                "the proxy `{}` opens the TLS connection itself, so client certificates and \
                 tls.authorities cannot be used with it",
                through.name
            );
            return Err(SendFailure::new(FailureCode::RequestInvalid, detail));
        }
        let Some(permit) = self.pool.permit(total).await else {
            return Err(SendFailure::out_of_time("waiting for a free connection"));
        };
        let began = Instant::now();
        let until = Phase { own: began + deadlines.connect, total };
        let vetted = self.vetted(target, until, timings).await?;
        let began = Instant::now();
        let (tcp, peer) = match wanted.through {
            None => direct(self.source, &vetted, until).await?,
            Some(through) => self.through(through, &vetted, until).await?,
        };
        timings.connect = Some(began.elapsed());
        let transport = match target.scheme() {
            Scheme::Http => Transport::Plain(tcp),
            Scheme::Https if forwards.is_some() => Transport::Plain(tcp),
            Scheme::Https => {
                let began = Instant::now();
                let until = Phase { own: began + deadlines.tls, total };
                let transport = self.handshake(wanted, tcp, until).await?;
                timings.tls = Some(began.elapsed());
                transport
            }
        };
        Link::over(transport, peer, permit)
            .await
            .map_err(|error| SendFailure::before_head(&error, None))
    }

    /// A connection through a proxy, and the address that counts as its other end: the vetted one a tunnel
    /// leads to, or the proxy's own.
    async fn through(
        &self,
        through: Through<'_>,
        vetted: &[SocketAddr],
        until: Phase,
    ) -> Result<(TcpStream, SocketAddr), SendFailure> {
        let Through { name, proxy } = through;
        let addresses = self.addresses_of(through, until).await?;
        let reach = || async {
            let (tcp, peer) = direct(self.source, &addresses, until).await.map_err(|failure| {
                proxy::failed(name, &format!("cannot be reached: {}", failure.detail))
            })?;
            Ok((tcp, peer))
        };
        if proxy.mode == ProxyMode::Forward {
            return reach().await;
        }
        let mut failure = proxy::failed(name, "has no address");
        for address in vetted.iter().take(TRIED_MAX) {
            let (mut tcp, _) = reach().await?;
            let asked = proxy::tunnel(name, proxy, &mut tcp, *address);
            match timeout_at(until.deadline(), asked).await {
                Ok(Ok(Tunnel::Stands)) => return Ok((tcp, *address)),
                Ok(Ok(Tunnel::Unreachable(refused))) => failure = refused,
                Ok(Err(failure)) => return Err(failure),
                Err(_) => {
                    let doing = format!("waiting for a tunnel of the proxy `{name}`");
                    return Err(until.late(FailureCode::ProxyFailed, &doing));
                }
            }
        }
        Err(failure)
    }

    /// The addresses of a proxy. They are the operator's word, so nobody judges them.
    async fn addresses_of(
        &self,
        Through { name, proxy }: Through<'_>,
        until: Phase,
    ) -> Result<Vec<SocketAddr>, SendFailure> {
        let found = match &proxy.host {
            Host::Ip(ip) => vec![*ip],
            Host::Name(host) => {
                let phase = Phase { own: until.own.min(Instant::now() + DNS_DEADLINE), ..until };
                match timeout_at(phase.deadline(), self.names.addresses(host)).await {
                    Ok(Ok(addresses)) => in_turns(&addresses),
                    Ok(Err(_)) | Err(_) => return Err(proxy::failed(name, "cannot be resolved")),
                }
            }
        };
        Ok(found.into_iter().map(|ip| SocketAddr::new(ip, proxy.port)).collect())
    }

    /// Where a proxy is now; nowhere when its name cannot be resolved.
    pub(crate) async fn places_of(&self, through: Through<'_>) -> Vec<SocketAddr> {
        let until = Instant::now() + DNS_DEADLINE;
        let until = Phase { own: until, total: until };
        self.addresses_of(through, until).await.unwrap_or_default()
    }

    /// Resolves and vets without connecting.
    pub(crate) async fn vet(&self, target: &Target, deadline: Instant) -> Result<(), SendFailure> {
        self.looked_at(target, deadline).await.map(drop)
    }

    /// Where a target is now; nowhere when that cannot be said, or is closed.
    pub(crate) async fn places(&self, target: &Target, deadline: Instant) -> Vec<SocketAddr> {
        self.looked_at(target, deadline).await.unwrap_or_default()
    }

    async fn looked_at(
        &self,
        target: &Target,
        deadline: Instant,
    ) -> Result<Vec<SocketAddr>, SendFailure> {
        // There is no attempt whose time could run out before this phase's own.
        let until = Phase { own: deadline, total: deadline + Duration::from_secs(1) };
        self.vetted(target, until, &mut Timings::default()).await
    }

    /// All addresses of the target, each allowed. One that is not refuses the whole name: to go
    /// on with the rest would tell an attacker which of them exist.
    async fn vetted(
        &self,
        target: &Target,
        until: Phase,
        timings: &mut Timings,
    ) -> Result<Vec<SocketAddr>, SendFailure> {
        let port = target.port();
        let addresses = match target.host() {
            Host::Ip(ip) => vec![*ip],
            Host::Name(name) => {
                let began = Instant::now();
                let phase = Phase { own: until.own.min(began + DNS_DEADLINE), ..until };
                let looked_up = timeout_at(phase.deadline(), self.names.addresses(name)).await;
                timings.dns = Some(began.elapsed());
                match looked_up {
                    Ok(Ok(addresses)) => {
                        counters::looked_up("found");
                        in_turns(&addresses)
                    }
                    Ok(Err(ResolveFailure::Failed(detail))) => {
                        counters::looked_up("failed");
                        return Err(SendFailure::new(FailureCode::DnsFailed, detail));
                    }
                    Ok(Err(ResolveFailure::Timeout)) => {
                        counters::looked_up("timeout");
                        let detail = "the name servers did not answer";
                        return Err(SendFailure::new(FailureCode::DnsTimeout, detail));
                    }
                    Err(_) => {
                        counters::looked_up("timeout");
                        return Err(phase.late(FailureCode::DnsTimeout, "resolving the name"));
                    }
                }
            }
        };
        self.judge(&addresses, port)?;
        Ok(addresses.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
    }

    fn judge(&self, addresses: &[IpAddr], port: u16) -> Result<(), SendFailure> {
        // What belongs to this machine may have changed since the last connection.
        self.guard.refresh(Instant::now());
        let refused = |ip: &IpAddr| Some((*ip, self.guard.check_address(*ip, port).err()?));
        let mut refusals = addresses.iter().filter_map(refused);
        let Some((ip, refusal)) = refusals.next() else { return Ok(()) };
        // Some allowed and some not is what probing and rebinding look like.
        let all = refusals.count() + 1 == addresses.len();
        counters::refused(if all { refusal.code() } else { "mixed_answer" });
        let detail = format!("{} ({ip}): {refusal}", refusal.code());
        Err(SendFailure::new(FailureCode::AddressNotAllowed, detail))
    }

    async fn handshake(
        &self,
        wanted: Wanted<'_>,
        tcp: TcpStream,
        until: Phase,
    ) -> Result<Transport, SendFailure> {
        let connector = TlsConnector::from(self.tls.for_tenant(wanted.tenant, wanted.tls));
        let handshake = connector.connect(wanted.target.server_name().clone(), Capped::new(tcp));
        match timeout_at(until.deadline(), handshake).await {
            Ok(Ok(mut stream)) => {
                let (tcp, session) = stream.get_mut();
                tcp.lift();
                let resumed = session.handshake_kind() == Some(HandshakeKind::Resumed);
                counters::shook_hands(if resumed { "resumed" } else { "full" });
                Ok(Transport::Tls(Box::new(stream)))
            }
            Ok(Err(error)) => {
                counters::shook_hands("failed");
                Err(SendFailure::of_handshake(&error))
            }
            Err(_) => {
                counters::shook_hands("timeout");
                Err(until.late(FailureCode::TlsTimeout, "in the TLS handshake"))
            }
        }
    }
}

/// A phase's own deadline, and that of the whole attempt.
#[derive(Clone, Copy)]
struct Phase {
    own: Instant,
    total: Instant,
}

impl Phase {
    fn deadline(&self) -> Instant {
        self.own.min(self.total)
    }

    /// Blames the deadline that came first.
    fn late(&self, own: FailureCode, doing: &str) -> SendFailure {
        if self.total <= self.own {
            SendFailure::out_of_time(doing)
        } else {
            SendFailure::new(own, format!("took too long {doing}"))
        }
    }
}

/// A connection to one of these addresses, and to no other.
async fn direct(
    source: Source,
    addresses: &[SocketAddr],
    until: Phase,
) -> Result<(TcpStream, SocketAddr), SendFailure> {
    let tcp = connect(source, addresses, until).await?;
    let peer = tcp.peer_addr().map_err(|error| connect_failed(&error))?;
    if !addresses.contains(&peer) {
        let detail = format!("connected to {peer}, which was not checked");
        return Err(SendFailure::new(FailureCode::AddressNotAllowed, detail));
    }
    // On this machine, a port nobody listens on can be met by the very socket that calls it.
    if tcp.local_addr().is_ok_and(|local| local == peer) {
        let detail = "nothing listens there: the connection reached itself";
        return Err(SendFailure::new(FailureCode::ConnectFailed, detail));
    }
    tcp.set_nodelay(true).map_err(|error| connect_failed(&error))?;
    Ok((tcp, peer))
}

/// Tries the addresses in turn, the next one when the last has failed or has not answered within
/// its head start, and takes the first that answers.
async fn connect(
    source: Source,
    vetted: &[SocketAddr],
    until: Phase,
) -> Result<TcpStream, SendFailure> {
    let reached = vetted.iter().copied().filter(|address| source.reaches(address.ip()));
    let reached: Vec<SocketAddr> = reached.take(TRIED_MAX).collect();
    if let (Some(first), true) = (vetted.first(), reached.is_empty()) {
        let family = if first.is_ipv4() { "IPv4" } else { "IPv6" };
        let detail = format!("there are only {family} addresses, and egress.source names none");
        return Err(SendFailure::new(FailureCode::ConnectFailed, detail));
    }
    let mut waiting = reached.iter();
    let mut tries = FuturesUnordered::new();
    let mut failure = SendFailure::new(FailureCode::ConnectFailed, "no address");
    loop {
        tries.extend(waiting.next().map(|address| source.connect(*address)));
        let deadline = match waiting.len() {
            0 => until.deadline(),
            _ => until.deadline().min(Instant::now() + HEAD_START),
        };
        match timeout_at(deadline, tries.next()).await {
            Ok(Some(Ok(tcp))) => return Ok(tcp),
            Ok(Some(Err(error))) => failure = connect_failed(&error),
            // The last failure stands for all: there was at least one address.
            Ok(None) => return Err(failure),
            Err(_) if deadline == until.deadline() => {
                return Err(until.late(FailureCode::ConnectTimeout, "connecting"));
            }
            Err(_) => {}
        }
    }
}

fn connect_failed(error: &std::io::Error) -> SendFailure {
    SendFailure::new(FailureCode::ConnectFailed, error.to_string())
}

/// Both families in turns, so that a broken one cannot use up all tries.
fn in_turns(addresses: &[IpAddr]) -> Vec<IpAddr> {
    let mut v4 = addresses.iter().filter(|ip| ip.is_ipv4());
    let mut v6 = addresses.iter().filter(|ip| ip.is_ipv6());
    let mut turns = Vec::with_capacity(addresses.len());
    while turns.len() < addresses.len() {
        turns.extend(v4.next().into_iter().chain(v6.next()).copied());
    }
    turns
}
