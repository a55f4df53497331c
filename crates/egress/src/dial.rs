//! Opening a connection: resolve, vet, connect, TLS.
//!
//! The address that was checked is the address that is used: a name is resolved once, every
//! address it has is vetted, and only a vetted socket address is ever given to the kernel.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::{FailureCode, TenantId};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use crate::client::{Deadlines, Timings};
use crate::failure::Failure;
use crate::guard::Guard;
use crate::link::Link;
use crate::pool::Pool;
use crate::resolve::{Names, ResolveFailure};
use crate::stream::Transport;
use crate::target::{Host, Scheme, Target};
use crate::tls::{ClientTls, Tls};

/// Longest wait for DNS, however generous the connect deadline is.
const DNS_DEADLINE: Duration = Duration::from_secs(5);
/// Addresses of one name that are tried.
const TRIED_MAX: usize = 4;

/// Who wants a connection where.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) tenant: TenantId,
    pub(crate) target: &'a Target,
    pub(crate) tls: Option<&'a ClientTls>,
}

pub(crate) struct Dialer {
    pub(crate) guard: Guard,
    pub(crate) names: Names,
    pub(crate) tls: Tls,
    pub(crate) pool: Arc<Pool>,
}

impl Dialer {
    pub(crate) fn new(guard: Guard, names: Names, tls: Tls, pool: Arc<Pool>) -> Self {
        Self { guard, names, tls, pool }
    }

    /// Opens a link to the target, filling in what each phase took.
    pub(crate) async fn open(
        &self,
        wanted: Wanted<'_>,
        deadlines: &Deadlines,
        total: Instant,
        timings: &mut Timings,
    ) -> Result<Box<Link>, Failure> {
        let target = wanted.target;
        if target.scheme() == Scheme::Http && self.guard.https_only() {
            let detail = "plain http is switched off";
            return Err(Failure::new(FailureCode::UrlNotAllowed, detail));
        }
        if target.scheme() == Scheme::Http && wanted.tls.is_some_and(ClientTls::has_identity) {
            let detail = "plain http cannot carry the client certificate; use an https URL";
            return Err(Failure::new(FailureCode::UrlNotAllowed, detail));
        }
        let Some(permit) = self.pool.permit(total).await else {
            return Err(Failure::out_of_time("waiting for a free connection"));
        };
        let began = Instant::now();
        let until = Phase { own: began + deadlines.connect, total };
        let vetted = self.vetted(target, until, timings).await?;
        let began = Instant::now();
        let tcp = connect(&vetted, until).await?;
        timings.connect = Some(began.elapsed());
        let peer = tcp.peer_addr().map_err(|error| connect_failed(&error))?;
        if !vetted.contains(&peer) {
            let detail = format!("connected to {peer}, which was not vetted");
            return Err(Failure::new(FailureCode::AddressNotAllowed, detail));
        }
        tcp.set_nodelay(true).map_err(|error| connect_failed(&error))?;
        let transport = match target.scheme() {
            Scheme::Http => Transport::Plain(tcp),
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
            .map_err(|error| Failure::before_head(&error, None))
    }

    /// Resolves and vets without connecting.
    pub(crate) async fn vet(&self, target: &Target, deadline: Instant) -> Result<(), Failure> {
        // There is no attempt whose time could run out before this phase's own.
        let until = Phase { own: deadline, total: deadline + Duration::from_secs(1) };
        self.vetted(target, until, &mut Timings::default()).await.map(drop)
    }

    /// All addresses of the target, each allowed. One that is not refuses the whole name: to go
    /// on with the rest would tell an attacker which of them exist.
    async fn vetted(
        &self,
        target: &Target,
        until: Phase,
        timings: &mut Timings,
    ) -> Result<Vec<SocketAddr>, Failure> {
        let port = target.port();
        let addresses = match target.host() {
            Host::Ip(ip) => vec![*ip],
            Host::Name(name) => {
                let began = Instant::now();
                let phase = Phase { own: until.own.min(began + DNS_DEADLINE), ..until };
                let looked_up = timeout_at(phase.deadline(), self.names.addresses(name)).await;
                timings.dns = Some(began.elapsed());
                match looked_up {
                    Ok(Ok(addresses)) => in_turns(&addresses),
                    Ok(Err(ResolveFailure::Failed(detail))) => {
                        return Err(Failure::new(FailureCode::DnsFailed, detail));
                    }
                    Ok(Err(ResolveFailure::Timeout)) => {
                        let detail = "the name servers did not answer";
                        return Err(Failure::new(FailureCode::DnsTimeout, detail));
                    }
                    Err(_) => {
                        return Err(phase.late(FailureCode::DnsTimeout, "resolving the name"));
                    }
                }
            }
        };
        for ip in &addresses {
            self.guard.check_address(*ip, port).map_err(|refusal| {
                let detail = format!("{} ({ip}): {refusal}", refusal.code());
                Failure::new(FailureCode::AddressNotAllowed, detail)
            })?;
        }
        Ok(addresses.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
    }

    async fn handshake(
        &self,
        wanted: Wanted<'_>,
        tcp: TcpStream,
        until: Phase,
    ) -> Result<Transport, Failure> {
        let connector = TlsConnector::from(self.tls.for_tenant(wanted.tenant, wanted.tls));
        let handshake = connector.connect(wanted.target.server_name().clone(), tcp);
        match timeout_at(until.deadline(), handshake).await {
            Ok(Ok(stream)) => Ok(Transport::Tls(Box::new(stream))),
            Ok(Err(error)) => Err(Failure::of_handshake(&error)),
            Err(_) => Err(until.late(FailureCode::TlsTimeout, "in the TLS handshake")),
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
    fn late(&self, own: FailureCode, doing: &str) -> Failure {
        if self.total <= self.own {
            Failure::out_of_time(doing)
        } else {
            Failure::new(own, format!("took too long {doing}"))
        }
    }
}

/// Tries the addresses one after the other, each with its share of the time that is left.
#[expect(clippy::disallowed_methods, reason = "this is the one place that may: all are vetted")]
async fn connect(vetted: &[SocketAddr], until: Phase) -> Result<TcpStream, Failure> {
    let tried = &vetted[..vetted.len().min(TRIED_MAX)];
    let mut failure = None;
    for (index, address) in tried.iter().enumerate() {
        let now = Instant::now();
        let left = until.deadline().saturating_duration_since(now);
        let share = left / u32::try_from(tried.len() - index).unwrap_or(1);
        failure = Some(match timeout_at(now + share, TcpStream::connect(*address)).await {
            Ok(Ok(tcp)) => return Ok(tcp),
            Ok(Err(error)) => connect_failed(&error),
            Err(_) => until.late(FailureCode::ConnectTimeout, "connecting"),
        });
    }
    // The last failure stands for all: there is at least one address.
    Err(failure.unwrap_or_else(|| Failure::new(FailureCode::ConnectFailed, "no address")))
}

fn connect_failed(error: &std::io::Error) -> Failure {
    Failure::new(FailureCode::ConnectFailed, error.to_string())
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
