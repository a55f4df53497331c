//! How everything is put together.

use std::sync::Arc;

use posthorn_domain::{Clock, Policy};
use posthorn_egress::Egress;
use posthorn_engine::{
    Courier, CourierParts, EgressTransport, Engine, Parts, SecretInput, Tracer, Transport,
};
use posthorn_sealing::vault::{Vault, VaultKey};

use crate::clock::SystemClock;
use crate::error::Error;
use crate::handle::Posthorn;
use crate::open::{self, Opened, Place};

/// Puts a [`Posthorn`] together. Where the data is must be said; everything else has a default.
#[must_use = "a builder does nothing until `build`"]
pub struct Builder {
    place: Option<Place>,
    seal_key: Option<VaultKey>,
    allow: Vec<String>,
    egress: posthorn_egress::Options,
    transport: Option<Arc<dyn Transport>>,
    clock: Arc<dyn Clock>,
    engine: posthorn_engine::Options,
    tracer: Option<Arc<dyn Tracer>>,
    #[cfg(feature = "push")]
    push: Option<String>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            place: None,
            seal_key: None,
            allow: Vec::new(),
            egress: posthorn_egress::Options::default(),
            transport: None,
            clock: Arc::new(SystemClock),
            engine: posthorn_engine::Options::default(),
            tracer: None,
            #[cfg(feature = "push")]
            push: None,
        }
    }
}

impl Builder {
    /// Keeps everything in an embedded database in this folder, which is made when it is not there. One process at a
    /// time; what it had accepted is resumed by the next.
    #[cfg(feature = "sqlite")]
    pub fn sqlite(mut self, folder: impl Into<std::path::PathBuf>) -> Self {
        self.place = Some(Place::Folder(folder.into()));
        self
    }

    /// Keeps nothing beyond this process: the same embedded database in a temporary folder, which is removed when
    /// everything has been dropped. A process that is killed leaves the folder to whoever cleans the system's folder for
    /// temporary files; set `TMPDIR` to have it elsewhere.
    #[cfg(feature = "sqlite")]
    pub fn in_memory(mut self) -> Self {
        self.place = Some(Place::Memory);
        self
    }

    /// Keeps everything in a PostgreSQL database, beside other processes that do. It needs [`Builder::seal_key`].
    #[cfg(feature = "postgres")]
    pub fn postgres(mut self, url: impl Into<String>) -> Self {
        self.place = Some(Place::Postgres(url.into()));
        self
    }

    /// The key that seals secrets at rest. In a folder one is made beside the data (`seal.key`) when none is given.
    pub fn seal_key(mut self, key: VaultKey) -> Self {
        self.seal_key = Some(key);
        self
    }

    /// Opens a private network to receivers: an address or a network, with a port if only that is meant (`10.1.0.0/16`,
    /// `127.0.0.1`, `192.168.1.7:8080`).
    pub fn allow(mut self, network: impl Into<String>) -> Self {
        self.allow.push(network.into());
        self
    }

    /// All rules of the way out. Networks that were allowed are open besides.
    pub fn egress(mut self, options: posthorn_egress::Options) -> Self {
        self.egress = options;
        self
    }

    /// Another way out altogether, in place of the guarded one: for tests, and for those who vet addresses elsewhere.
    pub fn transport(mut self, transport: Arc<dyn Transport>) -> Self {
        self.transport = Some(transport);
        self
    }

    /// Another clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The engine's own knobs: profiles, retention, limits.
    pub fn engine(mut self, options: posthorn_engine::Options) -> Self {
        self.engine = options;
        self
    }

    /// Whoever records traces: it is told of every publish, wait and attempt of a recorded trace.
    pub fn tracer(mut self, tracer: Arc<dyn Tracer>) -> Self {
        self.tracer = Some(tracer);
        self
    }

    /// Web Push: makes endpoints below this URL, where your program serves
    /// [`Posthorn::push_routes`]. On PostgreSQL this must be the only process with it.
    #[cfg(feature = "push")]
    pub fn push(mut self, endpoint_url: impl Into<String>) -> Self {
        self.push = Some(endpoint_url.into());
        self
    }

    /// Opens the database and starts the engine on it, and with it everything that a former process left to be done.
    pub async fn build(mut self) -> Result<Posthorn, Error> {
        let transport = self.way_out()?;
        let place = self.place.take().ok_or(Error::NoDatabase)?;
        let (opened, key) = open::open(place, self.seal_key.take()).await?;
        match self.start(&opened, key, transport).await {
            Ok(started) => Ok(Posthorn::new(opened, started)),
            Err(error) => {
                opened.close().await;
                Err(error)
            }
        }
    }

    /// Makes attempts for events that no database keeps: to one URL, by one policy. Whoever uses it keeps the work, and
    /// waits until it is due.
    pub fn courier(
        &self,
        url: &str,
        policy: Policy,
        secrets: &[SecretInput],
    ) -> Result<Courier, Error> {
        let parts = CourierParts {
            transport: self.way_out()?,
            clock: Arc::clone(&self.clock),
            seed: rand::random(),
        };
        Ok(Courier::new(parts, url, policy, secrets)?)
    }

    /// The way out: the one that was given, or a guarded one.
    fn way_out(&self) -> Result<Arc<dyn Transport>, Error> {
        if let Some(transport) = &self.transport {
            return Ok(Arc::clone(transport));
        }
        let mut options = self.egress.clone();
        for network in &self.allow {
            options.allow.push(network.parse().map_err(Error::Network)?);
        }
        let egress = Egress::new(options).map_err(Error::Egress)?;
        Ok(Arc::new(EgressTransport::new(egress)))
    }

    async fn start(
        self,
        opened: &Opened,
        key: VaultKey,
        transport: Arc<dyn Transport>,
    ) -> Result<Started, Error> {
        #[cfg(feature = "push")]
        let push = self.push.map(|url| crate::push::Push::start(&url, opened, &key, &self.clock));
        let parts = Parts {
            store: opened.store(),
            transport,
            #[cfg(feature = "push")]
            push: push.as_ref().map(crate::push::Push::mailboxes),
            #[cfg(not(feature = "push"))]
            push: None,
            vault: Arc::new(Vault::new(vec![key]).expect("there is one key")),
            clock: self.clock,
            seed: rand::random(),
            tracer: self.tracer,
            options: self.engine,
        };
        let (engine, outcomes) = Engine::start_followed(parts).await?;
        Ok(Started {
            engine,
            outcomes,
            #[cfg(feature = "push")]
            push,
        })
    }
}

/// What runs on an open database.
pub(crate) struct Started {
    pub(crate) engine: Engine,
    pub(crate) outcomes: posthorn_engine::OutcomeStream,
    #[cfg(feature = "push")]
    pub(crate) push: Option<crate::push::Push>,
}
