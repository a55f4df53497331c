//! Running work on a pooled connection, so that nothing is ever left half done on it.
//!
//! # Theory of operation
//! Each call runs in a task of its own. When the caller gives up, the task still ends its
//! transaction and puts the connection back; so a dropped future never leaves a transaction open.
//! After any failure the transaction is rolled back, and a connection that is not known to be sound
//! is closed instead of being put back. Deadlocks are repeated here and nobody hears of them.
//!
//! The hot path is one round trip: [`pipeline`] sends begin, all statements and commit at once.
//! That is right because every decision is made inside the statements: when one fails, the server
//! refuses those behind it and turns the commit into a rollback.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime,
};
use futures_util::future::{join_all, join3};
use parking_lot::Mutex;
use posthorn_store::schema::Mismatch;
use posthorn_store::{Error, Result};
use tokio::time::{Instant, sleep};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, Row, Statement};

use crate::connect::{Connector, Silence};
use crate::failure::{Failure, Outcome};
use crate::migrate::SCHEMA;
use crate::options::Options;
use crate::server::Pooling;
use crate::{gate, metrics};

/// How often a transaction is run before its deadlock is reported.
const TRIES_MAX: u32 = 8;
/// What slow work may take.
const SLOW: Duration = Duration::from_secs(600);
/// What work may take that somebody waits for who can end it: how long it takes depends on how much is stored.
const ENDLESS: Duration = Duration::from_secs(30 * 86_400);
/// Who works beside servers.
pub(crate) const BY_HAND: &str = "posthorn, by hand";
/// Before a repeat; times the number of the try.
const REPEAT_PAUSE: Duration = Duration::from_millis(5);

/// What a call is, for errors and metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    /// Reads after "failed to".
    pub(crate) context: &'static str,
    pub(crate) writes: bool,
    /// What it may take, where that is longer than a statement usually may.
    pub(crate) patience: Option<Duration>,
}

impl Operation {
    pub(crate) const fn read(name: &'static str, context: &'static str) -> Self {
        Self { name, context, writes: false, patience: None }
    }

    pub(crate) const fn write(name: &'static str, context: &'static str) -> Self {
        Self { name, context, writes: true, patience: None }
    }

    /// For maintenance and for counting, which begin with [`allow_slow`].
    pub(crate) const fn slow(self) -> Self {
        self.patient(SLOW)
    }

    /// For checks by hand, which begin with [`allow_endless`].
    pub(crate) const fn endless(self) -> Self {
        self.patient(ENDLESS)
    }

    pub(crate) const fn patient(self, patience: Duration) -> Self {
        Self { patience: Some(patience), ..self }
    }
}

/// Work on one connection. May be run again from the beginning.
pub(crate) type Work<'c, T> = Pin<Box<dyn Future<Output = Outcome<T>> + Send + 'c>>;
/// Work of any kind, which leaves what it found somewhere.
type AnyWork = Box<dyn for<'c> Fn(&'c Object) -> Work<'c, ()> + Send + Sync>;
/// A parameter of a statement.
pub(crate) type Param<'a> = &'a (dyn ToSql + Sync);

/// The pool.
#[derive(Clone)]
pub(crate) struct Session {
    pool: Pool,
    connector: Connector,
    answer_timeout: Duration,
    /// Why a new connection was given up: a newer program has changed the schema meanwhile.
    misfit: Arc<Mutex<Option<Mismatch>>>,
    /// What the table `skew` is known to say at least.
    pub(crate) skew: Arc<AtomicI64>,
}

impl Session {
    /// For work beside servers, at the database itself: what is set here must not be found by others. Other sessions can tell
    /// its connections from those of a server.
    pub(crate) fn direct(options: &Options) -> Result<Self> {
        let mut options = options.direct();
        options.application_name = BY_HAND.to_owned();
        // One may be kept for long, beside those that are asked meanwhile.
        options.connections = options.connections.max(4);
        let options = &options;
        let (config, tls) = options.parse()?;
        Self::new(options, Connector::new(&config, tls), Pooling::None, SCHEMA.known())
    }

    /// For a program that knows the schema up to `known`.
    pub(crate) fn new(
        options: &Options,
        connector: Connector,
        pooling: Pooling,
        known: u32,
    ) -> Result<Self> {
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        // The connector knows where to connect.
        let manager = Manager::from_connect(Config::new(), connector.clone(), recycling);
        let setup = match pooling {
            Pooling::None => options.session(known),
            // The role has all that, and what is set on one session would be found by somebody else.
            Pooling::Transaction => String::new(),
        };
        let misfit = Arc::new(Mutex::new(None));
        let found = Arc::clone(&misfit);
        // The pool sets no limit for this, and a server may freeze between letting somebody in and answering.
        let patience = options.connect_timeout + options.answer_timeout();
        let place = connector.clone();
        let hook = Hook::async_fn(move |client, metrics| {
            let (setup, found, place) = (setup.clone(), Arc::clone(&found), place.clone());
            let made = metrics.created;
            Box::pin(async move {
                let begun = async {
                    client.batch_execute(&setup).await?;
                    gate::look(client, known).await
                };
                let looked = place.heard(made, patience, begun).await;
                let looked = looked.map_err(|silence| HookError::message(silence.to_string()))?;
                looked.map_err(HookError::Backend)?.map_err(|mismatch| {
                    let text = mismatch.to_string();
                    *found.lock() = Some(mismatch);
                    HookError::message(text)
                })
            })
        });
        let place = connector.clone();
        let on_the_same_server =
            Hook::sync_fn(move |_, metrics| match place.is_outdated(metrics.created) {
                true => Err(HookError::message("its server may not be the one any more")),
                false => Ok(()),
            });
        let pool = Pool::builder(manager)
            .max_size(options.connections)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(options.answer_timeout()))
            .create_timeout(Some(options.connect_timeout))
            .recycle_timeout(Some(options.connect_timeout))
            .post_create(hook)
            .pre_recycle(on_the_same_server)
            .build()
            .map_err(|e| Error::fatal("set up the connection pool", e))?;
        let answer_timeout = options.answer_timeout();
        Ok(Self { pool, connector, answer_timeout, misfit, skew: Arc::default() })
    }

    /// A connection for whoever looks after it alone. It must not go back to the pool in the middle of a transaction.
    pub(crate) async fn connection(&self, context: &'static str) -> Result<Object> {
        self.pool.get().await.map_err(|e| self.no_connection(e, context))
    }

    /// Closes all connections, as they are put back.
    pub(crate) fn close(&self) {
        self.pool.close();
    }

    /// Closes all connections for good: a newer program has changed the schema. All calls say so from now on.
    pub(crate) fn leave(&self, mismatch: Mismatch) {
        *self.misfit.lock() = Some(mismatch);
        self.close();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.pool.is_closed()
    }

    /// Runs `work` to its end, whatever becomes of the caller.
    pub(crate) async fn run<T, F>(&self, operation: Operation, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'c> Fn(&'c Object) -> Work<'c, T> + Send + Sync + 'static,
    {
        let found = Arc::new(Mutex::new(None));
        let into = Arc::clone(&found);
        let work: AnyWork = Box::new(move |client| keep(work(client), Arc::clone(&into)));
        self.complete(operation, work).await?;
        let value = found.lock().take();
        value.ok_or(Error::Fatal { context: operation.context, source: None })
    }

    /// The same for work of one kind: there are some fifty calls, and a task of its own kind for each would be most of
    /// this crate.
    async fn complete(&self, operation: Operation, work: AnyWork) -> Result<()> {
        let this = self.clone();
        let began = Instant::now();
        let result = match tokio::spawn(async move { this.drive(operation, work).await }).await {
            Ok(result) => result,
            Err(error) if error.is_panic() => Err(Error::fatal(operation.context, error)),
            // The runtime is shutting down.
            Err(error) => Err(in_the_dark(operation, error)),
        };
        metrics::call(operation.name, operation.writes, began.elapsed());
        if result.as_ref().is_err_and(|error| !matches!(error, Error::Refused(_))) {
            metrics::failure(operation.name);
        }
        result
    }

    async fn drive(&self, operation: Operation, work: AnyWork) -> Result<()> {
        let patience = operation.patience.unwrap_or(self.answer_timeout);
        let mut tries = 1;
        loop {
            let client =
                self.pool.get().await.map_err(|e| self.no_connection(e, operation.context))?;
            let made = Object::metrics(&client).created;
            // A pooled connection may have died long ago; a question can simply be asked again.
            let may_ask_again = !operation.writes && tries == 1;
            let (error, repeat) = match self.connector.heard(made, patience, work(&client)).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(failure)) => {
                    let lost = failure.connection_is_lost();
                    self.put_back(client, lost).await;
                    let repeat = failure.wants_repeat() || (lost && may_ask_again);
                    (failure.into_error(operation.context), repeat)
                }
                Err(silence) => {
                    drop(Object::take(client));
                    let repeat = matches!(silence, Silence::Moved) && may_ask_again;
                    (in_the_dark(operation, silence), repeat)
                }
            };
            if !repeat || tries >= TRIES_MAX {
                return Err(error);
            }
            metrics::repeat(operation.name);
            sleep(REPEAT_PAUSE * tries).await;
            tries += 1;
        }
    }

    fn no_connection(&self, error: PoolError, context: &'static str) -> Error {
        match (&error, self.misfit.lock().clone()) {
            (
                PoolError::PostCreateHook(HookError::Message(_)) | PoolError::Closed,
                Some(mismatch),
            ) => Error::fatal("use the database", mismatch),
            _ => Failure::NoConnection(error).into_error(context),
        }
    }

    /// After a failure: back to the pool outside of any transaction, or closed.
    async fn put_back(&self, client: Object, lost: bool) {
        let made = Object::metrics(&client).created;
        let rolled_back = !lost && {
            let rollback = client.batch_execute("rollback");
            matches!(self.connector.heard(made, self.answer_timeout, rollback).await, Ok(Ok(())))
        };
        if !rolled_back {
            drop(Object::take(client));
        }
    }
}

/// Leaves what work finds in `into`.
fn keep<'c, T: Send + 'static>(work: Work<'c, T>, into: Arc<Mutex<Option<T>>>) -> Work<'c, ()> {
    Box::pin(async move {
        let value = work.await?;
        *into.lock() = Some(value);
        Ok(())
    })
}

/// Nothing was heard of what became of the work.
fn in_the_dark(
    operation: Operation,
    cause: impl std::error::Error + Send + Sync + 'static,
) -> Error {
    match operation.writes {
        true => Error::unknown(operation.context, cause),
        false => Error::unavailable(operation.context, cause),
    }
}

/// One statement of a pipeline.
pub(crate) struct Step<'a> {
    statement: Statement,
    params: &'a [Param<'a>],
}

/// Prepares a statement, once for each connection.
pub(crate) async fn step<'a>(
    client: &Object,
    sql: &str,
    params: &'a [Param<'a>],
) -> Outcome<Step<'a>> {
    Ok(Step { statement: client.prepare_cached(sql).await?, params })
}

/// A whole transaction in one round trip. Returns the rows of each step.
pub(crate) async fn pipeline(client: &Object, steps: &[Step<'_>]) -> Outcome<Vec<Vec<Row>>> {
    // Requests are sent in the order in which the futures are first polled, which is this one.
    let queries = steps.iter().map(|step| client.query(&step.statement, step.params));
    let (began, rows, committed) =
        join3(client.batch_execute("begin"), join_all(queries), client.batch_execute("commit"))
            .await;
    began.map_err(Failure::Committing)?;
    let rows = rows.into_iter().collect::<Result<Vec<_>, _>>().map_err(Failure::Committing)?;
    committed.map_err(Failure::Committing)?;
    Ok(rows)
}

/// Runs one statement and returns its rows.
pub(crate) async fn query(client: &Object, sql: &str, params: &[Param<'_>]) -> Outcome<Vec<Row>> {
    let statement = client.prepare_cached(sql).await?;
    Ok(client.query(&statement, params).await?)
}

/// Runs one statement and returns how many rows it changed.
pub(crate) async fn execute(client: &Object, sql: &str, params: &[Param<'_>]) -> Outcome<u64> {
    let statement = client.prepare_cached(sql).await?;
    Ok(client.execute(&statement, params).await?)
}

pub(crate) async fn begin(client: &Object) -> Outcome<()> {
    Ok(client.batch_execute("begin").await?)
}

/// Begins a transaction whose reads all belong to one moment.
pub(crate) async fn begin_snapshot(client: &Object) -> Outcome<()> {
    let text = "begin transaction isolation level repeatable read, read only";
    Ok(client.batch_execute(text).await?)
}

/// For [`begin_list`].
pub(crate) const LIST_SETTINGS: &str =
    "set local enable_sort = off; set local enable_incremental_sort = off";

/// The same for lists: their statements name an index that has the order, and must get it. Sorting is never the
/// better way, also where the server believes that there is little to sort.
pub(crate) async fn begin_list(client: &Object) -> Outcome<()> {
    let text = "begin transaction isolation level repeatable read, read only";
    Ok(client.batch_execute(&format!("{text}; {LIST_SETTINGS}")).await?)
}

pub(crate) async fn commit(client: &Object) -> Outcome<()> {
    client.batch_execute("commit").await.map_err(Failure::Committing)
}

/// Inside a transaction: its statements may take long and read whole tables.
pub(crate) async fn allow_slow(client: &Object) -> Outcome<()> {
    let millis = SLOW.as_millis();
    let text = format!(
        "set local statement_timeout = {millis}; set local plan_cache_mode = auto; \
         set local enable_seqscan = on; set local enable_bitmapscan = on; \
         set local enable_hashjoin = on; set local enable_material = on"
    );
    batch(client, &text).await
}

/// The same, and they take as long as they take.
pub(crate) async fn allow_endless(client: &Object) -> Outcome<()> {
    allow_slow(client).await?;
    batch(client, "set local statement_timeout = 0").await
}

/// Prepares nothing and runs text as it is: for what cannot be prepared.
pub(crate) async fn batch(client: &Object, text: &str) -> Outcome<()> {
    Ok(client.batch_execute(text).await?)
}
