//! Finding the server that takes writes, and reading what it says besides its answers.
//!
//! # Theory of operation
//! A URL may name several servers, of which one takes writes at a time. They are tried in turn, beginning with the one
//! that did last, and the next is not kept waiting by one that is silent: a machine that is cut off or frozen refuses
//! nothing. A standby refuses writes; it is asked again as long as others are silent, because it may just be promoted.
//!
//! When connections begin to end on another server than before, those that were made earlier are given up: the server
//! that they belong to may still be there, with a past of its own, or be silent for ever. Those at rest are not handed out any
//! more, and whoever waits for an answer on one waits no longer ([`Connector::heard`]).
//!
//! A frozen machine says nothing on any connection. So when the patience with one is at its end, nobody else starts on one
//! that was made before: a new one shows who answers.
//!
//! # Why notices are read
//! A commit that waits for a standby can be told to wait no longer. It is then kept on the one server only, and the
//! answer is success all the same, after a warning. Whoever relied on that answer would lose what was acknowledged
//! with the next fail-over. So a connection that hears this warning ends at once, before the answer is read, and
//! the caller learns that nobody knows ([`Failure::Committing`](crate::failure::Failure)).

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deadpool_postgres::Connect;
use futures_util::StreamExt;
use futures_util::future::poll_fn;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::error::DbError;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;
use tracing::{debug, info, warn};

use crate::metrics;

pub(crate) type PgConnection =
    Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// How long a server may be silent before the next one is tried as well.
const HEAD_START: Duration = Duration::from_millis(250);
/// When one is asked again that has refused, while others are silent.
const AGAIN: Duration = Duration::from_millis(500);
/// How long those that are silent are waited for when all others refuse, less than whoever wants a connection waits: what was
/// said says more than that the time is over.
const PATIENCE: Duration = Duration::from_secs(5);
const MARGIN: Duration = Duration::from_millis(200);
/// Where the server says that a commit waits no longer for a standby. Names of its functions are not translated.
const GAVE_UP_WAITING: &str = "SyncRepWaitForLSN";

/// Makes connections. Its copies know of each other where the last one ended.
#[derive(Clone)]
pub(crate) struct Connector {
    servers: Arc<[Config]>,
    tls: MakeRustlsConnect,
    patience: Duration,
    place: Arc<Place>,
}

#[derive(Default)]
struct Place {
    /// The server that took the last connection.
    server: AtomicUsize,
    /// Connections from before are of no use: then they began to end there, or one of them was silent for too long.
    since: Mutex<Option<Instant>>,
    /// When connections last began to end on another server than before.
    moved: watch::Sender<Option<Instant>>,
}

/// Why an answer is not waited for any longer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Silence {
    /// There was enough time for it.
    #[error("no answer in time")]
    Late,
    /// It would come from a server that is not the one any more.
    #[error("the database is on another server now")]
    Moved,
}

type Connected = Result<(Client, PgConnection), Error>;

impl Connector {
    pub(crate) fn new(config: &Config, tls: MakeRustlsConnect) -> Self {
        let servers = config.get_hosts().len().max(config.get_hostaddrs().len());
        let servers = (0..servers).map(|index| only(config, index)).collect();
        let patience = config.get_connect_timeout().copied().unwrap_or(PATIENCE);
        Self { servers, tls, patience: patience.saturating_sub(MARGIN), place: Arc::default() }
    }

    /// The same, with somebody who reads what the server says.
    pub(crate) async fn client(&self) -> Result<Client, Error> {
        let (client, connection) = self.connect().await?;
        tokio::spawn(drive(connection));
        Ok(client)
    }

    /// A connection to the server that takes writes.
    pub(crate) async fn connect(&self) -> Connected {
        let first = self.place.server.load(Ordering::Relaxed);
        let order = (0..self.servers.len()).map(|n| (first + n) % self.servers.len());
        let mut racing = FuturesUnordered::new();
        for (place, index) in (0..).zip(order) {
            racing.push(self.try_one(HEAD_START * place, index));
        }
        let end = Instant::now() + self.patience;
        let mut silent: BTreeSet<usize> = (0..self.servers.len()).collect();
        let mut refused: Option<Error> = None;
        loop {
            let next = match &refused {
                Some(_) => timeout_at(end, racing.next()).await.ok().flatten(),
                None => racing.next().await,
            };
            match (next, refused.take()) {
                (Some((index, Ok(connected))), _) => {
                    self.arrived(index);
                    return Ok(connected);
                }
                (Some((index, Err(error))), earlier) => {
                    silent.remove(&index);
                    // An answer of a server says more than a connection that was refused.
                    let tells = |error: &Error| error.code().is_some();
                    let error = earlier.filter(|e| tells(e) && !tells(&error)).unwrap_or(error);
                    if silent.is_empty() {
                        return Err(error);
                    }
                    refused = Some(error);
                    racing.push(self.try_one(AGAIN, index));
                }
                (None, Some(error)) => return Err(error),
                // Without a single server; the driver says so itself.
                (None, None) => return Config::new().connect(self.tls.clone()).await,
            }
        }
    }

    async fn try_one(&self, pause: Duration, index: usize) -> (usize, Connected) {
        sleep(pause).await;
        (index, self.servers[index].connect(self.tls.clone()).await)
    }

    fn arrived(&self, index: usize) {
        let mut since = self.place.since.lock();
        let before = self.place.server.swap(index, Ordering::Relaxed);
        if before != index || since.is_none() {
            let now = Instant::now();
            if since.is_some() {
                info!(server = %name(&self.servers[index]), "the database is on another server now");
                metrics::moved();
                self.place.moved.send_replace(Some(now));
            }
            *since = Some(now);
        }
    }

    /// Whether a connection that was made then is on a server that is not the one any more, or may be.
    pub(crate) fn is_outdated(&self, made: std::time::Instant) -> bool {
        is_before(made, *self.place.since.lock())
    }

    /// What becomes of work on a connection that was made then, when it is heard of in time. Otherwise the connection is
    /// of no more use.
    pub(crate) async fn heard<T>(
        &self,
        made: std::time::Instant,
        patience: Duration,
        work: impl Future<Output = T>,
    ) -> Result<T, Silence> {
        let mut moved = self.place.moved.subscribe();
        tokio::select! {
            biased;
            done = timeout(patience, work) => done.map_err(|_| {
                *self.place.since.lock() = Some(Instant::now());
                Silence::Late
            }),
            // It cannot fail: the sender is ours.
            _ = moved.wait_for(|moved| is_before(made, *moved)) => Err(Silence::Moved),
        }
    }
}

fn is_before(made: std::time::Instant, moment: Option<Instant>) -> bool {
    moment.is_some_and(|moment| made < moment.into_std())
}

/// For the pool.
impl Connect for Connector {
    fn connect(
        &self,
        _: &Config,
    ) -> Pin<Box<dyn Future<Output = Result<(Client, JoinHandle<()>), Error>> + Send + '_>> {
        Box::pin(async move {
            let (client, connection) = Connector::connect(self).await?;
            Ok((client, tokio::spawn(drive(connection))))
        })
    }
}

/// Reads a connection to its end, or until an answer on it must not be believed.
async fn drive(mut connection: PgConnection) {
    while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
        match message {
            Ok(AsyncMessage::Notice(notice)) if is_unreplicated(&notice) => {
                warn!(
                    said = notice.message(),
                    "a commit did not wait for the standby; its outcome counts as unknown"
                );
                metrics::unreplicated();
                return;
            }
            Ok(_) => {}
            Err(error) => return debug!(%error, "a connection to the database was lost"),
        }
    }
}

/// Whether a commit is on this server only, although it was to wait for another.
fn is_unreplicated(notice: &DbError) -> bool {
    notice.routine() == Some(GAVE_UP_WAITING)
}

/// The same for one of several servers.
fn only(config: &Config, index: usize) -> Config {
    let mut one = Config::new();
    if let Some(host) = config.get_hosts().get(index) {
        match host {
            Host::Tcp(name) => one.host(name),
            #[cfg(unix)]
            Host::Unix(path) => one.host_path(path),
        };
    }
    if let Some(address) = config.get_hostaddrs().get(index) {
        one.hostaddr(*address);
    }
    let ports = config.get_ports();
    if let Some(port) = ports.get(index).or(ports.first()) {
        one.port(*port);
    }
    if let Some(user) = config.get_user() {
        one.user(user);
    }
    if let Some(password) = config.get_password() {
        one.password(password);
    }
    if let Some(database) = config.get_dbname() {
        one.dbname(database);
    }
    if let Some(options) = config.get_options() {
        one.options(options);
    }
    if let Some(name) = config.get_application_name() {
        one.application_name(name);
    }
    if let Some(timeout) = config.get_connect_timeout() {
        one.connect_timeout(*timeout);
    }
    if let Some(timeout) = config.get_tcp_user_timeout() {
        one.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = config.get_keepalives_interval() {
        one.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        one.keepalives_retries(retries);
    }
    one.keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .channel_binding(config.get_channel_binding())
        // Whatever the URL says: nothing here can be done on a standby.
        .target_session_attrs(TargetSessionAttrs::ReadWrite);
    one
}

fn name(config: &Config) -> String {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        #[cfg(unix)]
        Some(Host::Unix(path)) => path.display().to_string(),
        None => config.get_hostaddrs().first().map(ToString::to_string).unwrap_or_default(),
    };
    format!("{host}:{}", config.get_ports().first().unwrap_or(&5432))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_of_a_url_is_one_with_everything_else_the_same() {
        let text = "postgres://u:p@a:1,b:2,c:3/d?sslmode=require&options=-c%20x%3D1";
        let whole: Config = text.parse().expect("a URL");
        for (index, host) in ["a:1", "b:2", "c:3"].iter().enumerate() {
            let mut wanted: Config =
                format!("postgres://u:p@{host}/d?sslmode=require").parse().expect("a URL");
            wanted.options("-c x=1").target_session_attrs(TargetSessionAttrs::ReadWrite);
            let one = only(&whole, index);
            assert_eq!(one, wanted);
            assert_eq!(name(&one), *host);
        }
        // One port for all of them.
        let whole: Config = "host=a,b port=7 user=u".parse().expect("a URL");
        assert_eq!(name(&only(&whole, 1)), "b:7");
    }
}
