//! Seeded randomness: ids and jitter. One seed, one sequence; the simulator depends on it.

use parking_lot::Mutex;
use posthorn_domain::{
    AuditId, CertificateId, DeliveryId, EventId, JobId, KeyId, NodeId, RedriveId, SubscriptionId,
    TenantId, Timestamp,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// A source of chance.
pub struct Chance(Mutex<StdRng>);

macro_rules! fresh {
    ($($name:ident -> $kind:ident),* $(,)?) => {
        $(
            /// A fresh id.
            pub fn $name(&self, at: Timestamp) -> $kind {
                $kind::new(at, self.0.lock().random())
            }
        )*
    };
}

impl Chance {
    /// The sequence of a seed.
    pub fn new(seed: [u8; 32]) -> Self {
        Self(Mutex::new(StdRng::from_seed(seed)))
    }

    /// One uniform number.
    pub fn dice(&self) -> u64 {
        self.0.lock().random()
    }

    fresh! {
        audit_id -> AuditId,
        event_id -> EventId,
        delivery_id -> DeliveryId,
        subscription_id -> SubscriptionId,
        tenant_id -> TenantId,
        key_id -> KeyId,
        certificate_id -> CertificateId,
        redrive_id -> RedriveId,
        job_id -> JobId,
        node_id -> NodeId,
    }
}
