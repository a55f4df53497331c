//! The audit log: in whose name an engine changes things, and the line that each change leaves.
//!
//! # Theory of operation
//! [`Engine::acting`] gives an engine whose changes are made in somebody's name; whoever was not given one acts as the
//! server itself. Surfaces call it once, where they have found out who calls, so that no handler has to think of it.
//!
//! Every change that somebody can ask for is written through [`Engine::writing`], which makes the line, plans what is
//! told of it, and hands both to the write: the store makes all of it or nothing. What is to be said of a change of the
//! catalog is found out from the change itself ([`lines`]), in one place for all of them.
//!
//! Whatever happens to events and their deliveries without anybody asking for it leaves no line, so that the way of an
//! event pays nothing.
//!
//! # What it must not know
//! Who may read which lines but for one rule: [`view`] leaves out who somebody was where the reader must not know it.

mod lines;

use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use posthorn_domain::{
    Actor, ActorKind, AuditAction, AuditEntry, AuditId, AuditObject, Home, Origin, RealmName,
    Session, SessionKind, TenantId, Timestamp,
};
use posthorn_store::{Along, CatalogChange, Error as StoreError, Refusal, Result as StoreResult};
use serde_json::{Map, Value, json};

use crate::catalog::KnownKey;
use crate::chance::Chance;
use crate::engine::Engine;
use crate::error::Result;
use crate::keys::Principal;
use crate::told::{Fact, REPLANS_MAX};

pub(crate) use lines::{created, job_detail, of_change, redrive_detail};

/// In whose name something is changed, and from where. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Acting {
    who: Who,
    surface: &'static str,
    address: Option<IpAddr>,
}

#[derive(Clone)]
enum Who {
    Server,
    Key(Arc<KnownKey>),
    Certificate(Arc<KnownKey>),
    Client(TenantId, Arc<str>),
    Session(Arc<str>, Arc<str>, Home),
}

impl std::fmt::Debug for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.kind().as_str())
    }
}

impl Who {
    const fn kind(&self) -> ActorKind {
        match self {
            Self::Server => ActorKind::Server,
            Self::Key(_) => ActorKind::Key,
            Self::Certificate(_) => ActorKind::Certificate,
            Self::Client(..) => ActorKind::Client,
            Self::Session(..) => ActorKind::Session,
        }
    }
}

impl Acting {
    /// The server itself, by what its policies say.
    pub const SERVER: Self = Self::itself("server");
    /// The server itself, by what its configuration says.
    pub const CONFIG: Self = Self::itself("config");

    const fn itself(surface: &'static str) -> Self {
        Self { who: Who::Server, surface, address: None }
    }

    /// Somebody who showed a key or a certificate.
    pub fn principal(
        principal: &Principal,
        surface: &'static str,
        address: Option<IpAddr>,
    ) -> Self {
        let key = Arc::clone(&principal.key);
        let who = if principal.certificate { Who::Certificate(key) } else { Who::Key(key) };
        Self { who, surface, address }
    }

    /// A client of a dialect, in the tenant of that.
    pub fn client(
        tenant: TenantId,
        name: Arc<str>,
        surface: &'static str,
        address: Option<IpAddr>,
    ) -> Self {
        Self { who: Who::Client(tenant, name), surface, address }
    }

    /// Somebody in a session of pages.
    pub fn session(
        id: &str,
        name: &str,
        home: Home,
        surface: &'static str,
        address: Option<IpAddr>,
    ) -> Self {
        Self { who: Who::Session(id.into(), name.into(), home), surface, address }
    }

    /// Somebody who has shown nothing yet: what opens a session is done in the name of that session.
    pub const fn visitor(surface: &'static str, address: Option<IpAddr>) -> Self {
        Self { who: Who::Server, surface, address }
    }

    /// In the name of a session that is just opened, unless somebody else acts already.
    pub(crate) fn or_session(&self, session: &Session) -> Self {
        if !matches!(self.who, Who::Server) {
            return self.clone();
        }
        let pages = if session.kind == SessionKind::Console { "console" } else { "portal" };
        let surface = if self.surface == Self::SERVER.surface { pages } else { self.surface };
        let (id, home) = (session.id.to_string(), session.home.clone());
        Self::session(&id, &session.name, home, surface, self.address)
    }

    fn actor(&self) -> Actor {
        let (id, name, home) = match &self.who {
            Who::Server => return Actor::SERVER,
            Who::Key(key) => (key.id.to_string(), key.description.clone(), home_of(key)),
            Who::Certificate(key) => {
                let id = posthorn_domain::CertificateId::from_bytes(*key.id.as_bytes());
                (id.to_string(), key.description.clone(), home_of(key))
            }
            Who::Client(tenant, name) => (name.to_string(), String::new(), Home::Tenant(*tenant)),
            Who::Session(id, name, home) => (id.to_string(), name.to_string(), home.clone()),
        };
        let name = (!name.is_empty()).then_some(name);
        Actor { kind: self.who.kind(), id: Some(id), name, home }
    }

    fn origin(&self) -> Origin {
        Origin { surface: self.surface.to_owned(), address: self.address }
    }
}

/// Whose a key is.
fn home_of(key: &KnownKey) -> Home {
    match (key.tenant, &key.realm) {
        (Some(tenant), _) => Home::Tenant(tenant),
        (None, Some(realm)) => Home::Realm(realm.clone()),
        (None, None) => Home::Operator,
    }
}

/// Ids of lines, in the order in which they are made: also within a millisecond, as far as this node goes.
pub(crate) struct LineIds {
    chance: Chance,
    last: Mutex<AuditId>,
}

impl LineIds {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        // A sequence of its own, so that the others do not depend on who changes what.
        let chance = Chance::new(seed.map(|byte| !byte));
        Self { chance, last: Mutex::new(AuditId::floor(Timestamp::MIN)) }
    }

    pub(crate) fn next(&self, at: Timestamp) -> AuditId {
        let fresh = self.chance.audit_id(at);
        let mut last = self.last.lock();
        let behind = fresh.made_at() == last.made_at() && fresh <= *last;
        *last = if behind { last.following() } else { fresh };
        *last
    }
}

/// What a line is to say, but for who, when and from where.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) action: AuditAction,
    pub(crate) tenant: Option<TenantId>,
    pub(crate) realm: Option<RealmName>,
    pub(crate) object: AuditObject,
    pub(crate) detail: Map<String, Value>,
}

impl Line {
    pub(crate) fn new(action: AuditAction, kind: &str, id: &impl ToString) -> Self {
        let object = AuditObject { kind: kind.to_owned(), id: id.to_string(), name: None };
        Self { action, tenant: None, realm: None, object, detail: Map::new() }
    }

    /// What the object is called, unless it is called nothing.
    pub(crate) fn named(mut self, name: &impl ToString) -> Self {
        self.object.name = Some(name.to_string()).filter(|name| !name.is_empty());
        self
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.detail.insert(name.to_owned(), value.into());
        self
    }

    pub(crate) fn detailed(mut self, detail: Map<String, Value>) -> Self {
        self.detail.extend(detail);
        self
    }
}

/// A line as one reader may see it. Who changed something in a tenant or a realm is shown to those of the same one and
/// to operators; others learn only whether it was somebody of the realm or an operator.
pub fn view(entry: &AuditEntry, reader: &Home) -> Value {
    let actor = &entry.actor;
    let known = actor.kind == ActorKind::Server || posthorn_store::knows(reader, entry);
    let shown = match (known, &actor.home) {
        (true, _) => json!({ "kind": actor.kind, "id": actor.id, "name": actor.name }),
        (false, Home::Realm(_)) => json!({ "kind": "realm", "id": null, "name": null }),
        (false, _) => json!({ "kind": "operator", "id": null, "name": null }),
    };
    json!({
        "id": entry.id,
        "at": entry.at(),
        "actor": shown,
        "surface": entry.origin.surface,
        "address": entry.origin.address.filter(|_| known),
        "action": entry.action,
        "tenant": entry.tenant,
        "realm": entry.realm,
        "object": {
            "kind": entry.object.kind, "id": entry.object.id, "name": entry.object.name,
        },
        "detail": entry.detail,
    })
}

impl Engine {
    /// The same engine, whose changes are made in somebody's name.
    #[must_use]
    pub fn acting(&self, by: Acting) -> Engine {
        Engine { inner: Arc::clone(&self.inner), by }
    }

    /// The line of a change that is made now.
    pub(crate) fn entry(&self, line: Line) -> AuditEntry {
        let Line { action, tenant, realm, object, detail } = line;
        let of_tenant = || {
            let known = self.catalog().tenant_or_tombstone(tenant?);
            known.map(|(tenant, _)| tenant.realm)
        };
        let entry = AuditEntry {
            id: self.inner.line_ids.next(self.now()),
            actor: self.by.actor(),
            origin: self.by.origin(),
            action,
            tenant,
            realm: realm.or_else(of_tenant),
            object,
            detail,
        };
        entry.bounded()
    }

    /// Has something written together with what goes along with it: its line, and what is told of both. Again as long
    /// as the catalog moves on meanwhile. With `tells` unset nothing is told, since an operational event is the reason
    /// for the change.
    pub(crate) async fn writing<T, F>(
        &self,
        fact: Option<&Fact>,
        line: Option<Line>,
        tells: bool,
        write: impl Fn(Along) -> F,
    ) -> StoreResult<T>
    where
        F: Future<Output = StoreResult<T>>,
    {
        self.write_along(fact, line, tells, REPLANS_MAX, write).await
    }

    /// The same for whoever plans anew by itself when the catalog has moved on.
    pub(crate) async fn writing_once<T, F>(
        &self,
        line: Line,
        write: impl Fn(Along) -> F,
    ) -> StoreResult<T>
    where
        F: Future<Output = StoreResult<T>>,
    {
        self.write_along(None, Some(line), true, 0, write).await
    }

    async fn write_along<T, F>(
        &self,
        fact: Option<&Fact>,
        line: Option<Line>,
        tells: bool,
        replans: u32,
        write: impl Fn(Along) -> F,
    ) -> StoreResult<T>
    where
        F: Future<Output = StoreResult<T>>,
    {
        let teller = &self.inner.teller;
        let entry = line.map(|line| self.entry(line));
        let except = fact.and_then(|fact| fact.except);
        let mut told = Vec::new();
        if tells {
            told.extend(fact.into_iter().flat_map(|fact| teller.plan(fact)));
            if let Some(entry) = &entry
                && teller.is_wanted(entry.tenant.unwrap_or(TenantId::SYSTEM))
            {
                told.extend(teller.plan(&Fact { except, ..Fact::audit(entry) }));
            }
        }
        let mut audit = entry.map(Box::new);
        if crate::plant::active("change-without-audit") {
            audit = None;
        }
        let mut tries = 0;
        loop {
            match write(Along { told: told.clone(), audit: audit.clone() }).await {
                Err(StoreError::Refused(Refusal::Stale)) if tries < replans => {
                    tries += 1;
                    told = teller.replan(&told, except).await?;
                }
                Ok(done) => {
                    teller.announce(&told).await;
                    return Ok(done);
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// What is to be said of a change of the catalog; nothing of what no caller can ask for.
    pub(crate) fn line_of(&self, change: &CatalogChange) -> Option<Line> {
        of_change(self.catalog(), change)
    }

    /// Applies a change of the catalog, here and, before it returns, everywhere: whoever is told that
    /// something exists, or is gone, finds it so on any node.
    pub(crate) async fn change(&self, change: CatalogChange) -> Result<()> {
        self.change_about(change, None, true).await
    }

    /// The same, told in the same transaction.
    pub(crate) async fn change_telling(&self, change: CatalogChange, fact: &Fact) -> Result<()> {
        self.change_about(change, Some(fact), true).await
    }

    /// The same, and nothing is told of it: an operational event is the reason for it.
    pub(crate) async fn change_quietly(&self, change: CatalogChange) -> Result<()> {
        self.change_about(change, None, false).await
    }

    async fn change_about(
        &self,
        change: CatalogChange,
        fact: Option<&Fact>,
        tells: bool,
    ) -> Result<()> {
        let line = self.line_of(&change);
        let write = |along| {
            let change = change.clone();
            async move { self.store().change_catalog_with(change, along).await.map(Some) }
        };
        self.change_with(self.writing(fact, line, tells, write)).await
    }
}
