//! Changes of the catalog, and how other nodes learn of them.

use posthorn_domain::{
    ApiKey, CatalogVersion, Certificate, CertificateId, Client, ClientName, DeliveryId, EventType,
    JobId, KeyId, KnownType, ProfileName, Realm, RealmName, Subscription, SubscriptionId, Tenant,
    TenantChange, TenantId, TenantProfile, Timestamp, Topic, TopicName,
};

/// One change of the catalog.
///
/// Whatever belongs to a tenant that is being deleted, or was, is refused with `Deleted`; only what the
/// deletion itself takes away is not.
#[derive(Clone, Debug)]
pub enum CatalogChange {
    /// A new realm, or new contents for one; `created_at` of an existing one is kept.
    PutRealm(Realm),
    /// No more realm. Refused with `NotFound`, and with `NotEmpty` while it has a tenant, an event type, or a
    /// key that was not revoked. The default realm is never empty.
    DeleteRealm(RealmName),
    /// A new event type of a realm, or new contents for one; `created_at` of an existing one is kept. Refused
    /// with `NotFound` when the realm is unknown.
    PutEventType(Box<KnownType>),
    /// No more event type. Refused with `NotFound`.
    DeleteEventType {
        /// Whose.
        realm: RealmName,
        /// Which.
        name: EventType,
    },
    /// A new tenant. Refused with `AlreadyExists` when id, name or external id is taken (the id also by one
    /// that was deleted), `NotFound` when its realm is unknown.
    CreateTenant(Tenant),
    /// Changes of a tenant. Refused with `NotFound` when there is no such tenant in the realm, `AlreadyExists`
    /// when another has the name, or the external id in the realm.
    ChangeTenant {
        /// Which.
        tenant: TenantId,
        /// The realm it is in.
        realm: RealmName,
        /// What changes.
        change: TenantChange,
    },
    /// A tenant is to be deleted: from now on nothing can be published for it, made in it or changed. What it
    /// has is removed by a job, with [`Bite::removes`](crate::Bite::removes). Refused with `NotFound`, and with
    /// `Deleted` when that was said before. The default tenant stays: `NotEmpty`.
    DeleteTenant {
        /// Which.
        tenant: TenantId,
        /// The job that removes what it has.
        job: JobId,
        /// When.
        at: Timestamp,
    },
    /// Everything of a deleted tenant is gone, and now its name is free. That it was there stays for ever, so
    /// that its id never comes back. Refused with `NotFound` unless it is being deleted.
    BuryTenant {
        /// Which.
        tenant: TenantId,
    },
    /// A new topic. Refused with `AlreadyExists` when there is one of that name (one that was removed may
    /// be made anew), `NotFound` when the tenant is unknown.
    CreateTopic(Topic),
    /// A new topic, or new description, attributes and labels for one. `created_at` of an existing one is
    /// kept. Refused with `NotFound` when the tenant is unknown.
    PutTopic(Topic),
    /// No more topic. Events published on it stay. Refused with `NotFound`.
    DeleteTopic {
        /// Whose.
        tenant: TenantId,
        /// Which.
        name: TopicName,
    },
    /// A new subscription. Refused with `AlreadyExists` when the id is taken (also by a deleted one) or
    /// the name (by another one of the tenant that was not deleted), `NotFound` when the tenant is
    /// unknown.
    CreateSubscription(Box<Subscription>),
    /// New contents for a subscription (all fields but id, tenant and `created_at`). Refused with
    /// `NotFound`, `VersionMismatch` when `expected` is given and not its present version, or
    /// `AlreadyExists` when another one has the name.
    UpdateSubscription {
        /// The new contents. The `version` inside is ignored.
        subscription: Box<Subscription>,
        /// What the caller had read.
        expected: Option<CatalogVersion>,
    },
    /// No more subscription. Refused with `NotFound`.
    DeleteSubscription {
        /// Whose.
        tenant: TenantId,
        /// Which.
        id: SubscriptionId,
        /// When.
        at: Timestamp,
    },
    /// A new profile of a tenant, or new contents for one. Refused with `NotFound` when the tenant is
    /// unknown.
    PutProfile(TenantProfile),
    /// No more profile of a tenant. Refused with `NotFound`.
    DeleteProfile {
        /// Whose.
        tenant: TenantId,
        /// Which.
        name: ProfileName,
    },
    /// A new client, or new contents for one. Refused with `NotFound` when the tenant is unknown,
    /// `VersionMismatch` when `expected` is not its present version; that of one that is not there is
    /// zero.
    PutClient {
        /// The new contents. The `version` inside is ignored.
        client: Box<Client>,
        /// What the caller had read.
        expected: CatalogVersion,
    },
    /// No more client; its secret is wiped. Refused with `NotFound`.
    DeleteClient {
        /// Whose.
        tenant: TenantId,
        /// Which.
        name: ClientName,
    },
    /// A new API key. Refused with `AlreadyExists`; `NotFound` when its tenant or its realm is unknown.
    CreateKey(ApiKey),
    /// The first operator key. Refused with `AlreadyExists` when its id is taken, or when there is an
    /// operator key that works at its `created_at`: of nodes that start together on an empty store,
    /// one makes it.
    CreateFirstKey(ApiKey),
    /// A key that no longer opens anything. Revoking again is fine and changes nothing. Refused with
    /// `NotFound`, and with `LastOperatorKey` when it is an operator key that still works and no other
    /// operator key works at least as long: one that ends tomorrow does not replace one that stays.
    RevokeKey {
        /// Which.
        id: KeyId,
        /// When.
        at: Timestamp,
    },
    /// A new certificate. Refused with `AlreadyExists` when the id is taken (also by a deleted one),
    /// or when it is a `caller` and another `caller` that was not deleted, whoever's, has the same
    /// thumbprint; `NotFound` when the tenant is unknown.
    CreateCertificate(Box<Certificate>),
    /// New contents for a certificate (all fields but id, tenant, kind, `created_at` and
    /// `revoked_at`). Refused with `NotFound`, `AlreadyExists` as above, or `VersionMismatch` when
    /// `expected` is not its present version.
    UpdateCertificate {
        /// The new contents. The `version` inside is ignored.
        certificate: Box<Certificate>,
        /// What the caller had read.
        expected: CatalogVersion,
    },
    /// A certificate that no longer counts. Revoking again is fine and changes nothing. Refused with
    /// `NotFound`.
    RevokeCertificate {
        /// Whose.
        tenant: TenantId,
        /// Which.
        id: CertificateId,
        /// When.
        at: Timestamp,
    },
    /// No more certificate; its key is wiped. Refused with `NotFound`.
    DeleteCertificate {
        /// Whose.
        tenant: TenantId,
        /// Which.
        id: CertificateId,
    },
}

/// A tenant with the version of the last change in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantEntry {
    /// The tenant.
    pub tenant: Tenant,
    /// What plans for its events must be made on.
    pub version: CatalogVersion,
    /// Whether nothing is left of it but that it was there.
    pub removed: bool,
}

/// A delivery of which somebody may hold a copy that is out of date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recall {
    /// Whose.
    pub subscription: SubscriptionId,
    /// Which.
    pub delivery: DeliveryId,
    /// Copies with a smaller revival are out of date.
    pub revival: u32,
}

/// What changed since a version. Applying deltas in order to an empty catalog gives the whole one.
#[derive(Clone, Debug, Default)]
pub struct CatalogDelta {
    /// The version the receiver has after applying this.
    pub version: CatalogVersion,
    /// Realms that are new or changed. The default realm is always there, and told when something was said
    /// about it.
    pub realms: Vec<Realm>,
    /// Realms that are gone.
    pub removed_realms: Vec<RealmName>,
    /// Event types that are new or changed.
    pub event_types: Vec<KnownType>,
    /// Event types that are gone.
    pub removed_event_types: Vec<(RealmName, EventType)>,
    /// Tenants that are new or in which something changed, those that are being deleted and were deleted
    /// included. Nobody is told what else is gone with a tenant: whatever is its own goes with it.
    pub tenants: Vec<TenantEntry>,
    /// Topics that are new or changed.
    pub topics: Vec<Topic>,
    /// Topics that are gone.
    pub removed_topics: Vec<(TenantId, TopicName)>,
    /// Subscriptions that are new or changed, with their `version`.
    pub subscriptions: Vec<Subscription>,
    /// Subscriptions that are gone.
    pub removed_subscriptions: Vec<(TenantId, SubscriptionId)>,
    /// Profiles of tenants that are new or changed.
    pub profiles: Vec<TenantProfile>,
    /// Profiles of tenants that are gone.
    pub removed_profiles: Vec<(TenantId, ProfileName)>,
    /// Clients that are new or changed, with their `version`.
    pub clients: Vec<Client>,
    /// Clients that are gone.
    pub removed_clients: Vec<(TenantId, ClientName)>,
    /// Keys that are new or changed, revoked ones included.
    pub keys: Vec<ApiKey>,
    /// Certificates that are new or changed, revoked ones included.
    pub certificates: Vec<Certificate>,
    /// Certificates that are gone.
    pub removed_certificates: Vec<(TenantId, CertificateId)>,
    /// Deliveries whose copies are out of date, in the order in which it happened. Whoever asks for
    /// everything has no copies yet, and is told of none. Old ones are pruned.
    pub recalls: Vec<Recall>,
}
