//! What can go wrong with a store, by what the caller should do about it.

use posthorn_domain::delivery::StepRefusal;
use posthorn_domain::{CatalogVersion, Timestamp};

/// The result of every store call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing was changed; the same call may work later.
    #[error("the store is not available: {context}")]
    Unavailable {
        /// What was being done.
        context: &'static str,
        /// Why it failed.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// Nothing was changed, because there is no room on the disk; the same call may work later.
    #[error("the disk is full")]
    DiskFull {
        /// What the database said.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// It is not known whether the change was made: the connection broke during commit. Repeat only
    /// what is idempotent.
    #[error("the change may or may not have been made: {context}")]
    Unknown {
        /// What was being done.
        context: &'static str,
        /// Why it failed.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The store can no longer promise anything (an I/O error on commit, a corrupt row). The process
    /// must stop acknowledging and exit. A restart recovers, unless what is on disk is damaged: then
    /// only a backup helps.
    #[error("the store has failed: {context}")]
    Fatal {
        /// What was being done.
        context: &'static str,
        /// Why it failed.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The request itself is not possible. Nothing was changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl Error {
    /// An [`Error::Unavailable`] with its cause.
    pub fn unavailable(
        context: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Unavailable { context, source: Some(source.into()) }
    }

    /// An [`Error::DiskFull`] with its cause.
    pub fn disk_full(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::DiskFull { source: Some(source.into()) }
    }

    /// An [`Error::Unknown`] with its cause.
    pub fn unknown(
        context: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Unknown { context, source: Some(source.into()) }
    }

    /// An [`Error::Fatal`] with its cause.
    pub fn fatal(
        context: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Fatal { context, source: Some(source.into()) }
    }

    /// Whether trying the same again later makes sense.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::DiskFull { .. } | Self::Unknown { .. })
    }
}

/// Why a request is not possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such thing, or it is another tenant's, which looks the same.
    #[error("not found")]
    NotFound,
    /// There is one with that name or id already.
    #[error("the name is already in use")]
    AlreadyExists,
    /// It was changed by somebody else since it was read.
    #[error("it was changed in the meantime")]
    VersionMismatch {
        /// The version it has now.
        current: CatalogVersion,
    },
    /// The delivery has ended.
    #[error("the delivery has already ended")]
    Ended,
    /// An attempt of the delivery is under way.
    #[error("an attempt of the delivery is in progress")]
    NotEnded,
    /// The delivery's event is to be delivered later.
    #[error("the event is to be delivered at {until}")]
    Scheduled {
        /// When.
        until: Timestamp,
    },
    /// The payload of the event was removed, so that there is nothing to deliver.
    #[error("the payload of the event was removed")]
    Expunged,
    /// The event has deliveries that have not ended.
    #[error("deliveries of the event have not ended")]
    Unfinished,
    /// What was to be told was planned on another version of a tenant's catalog, or of what it tells about.
    #[error("what was to be told of it is out of date")]
    Stale,
    /// Its tenant is being deleted, or was.
    #[error("the tenant is being deleted, or was deleted")]
    Deleted,
    /// Others belong to it.
    #[error("it is not empty")]
    NotEmpty,
    /// Nobody could manage the server afterwards.
    #[error("no other operator key stays valid as long as this one")]
    LastOperatorKey,
}

impl From<StepRefusal> for Refusal {
    fn from(refusal: StepRefusal) -> Self {
        match refusal {
            StepRefusal::Terminal => Self::Ended,
            StepRefusal::UnderWay => Self::NotEnded,
            StepRefusal::Unsubscribed => Self::NotFound,
            StepRefusal::Scheduled(until) => Self::Scheduled { until },
            StepRefusal::Expunged => Self::Expunged,
        }
    }
}
