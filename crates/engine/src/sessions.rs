//! Sessions of pages: opening, redeeming, ending, and whose session a token opens.
//!
//! # Theory of operation
//! Sessions live in the store, in a table of their own, and every request of a page looks its session up there: one that
//! was ended opens nothing on any node. What a session stands on is looked at with each request too, in the catalog: the
//! key it was opened with, and its tenant or realm. So a key that is revoked, and a tenant that is being deleted, take
//! their sessions along at once; their rows go right afterwards, or when their time is over.
//!
//! A link is redeemed by one transaction that removes it and creates the session, so that it works once.
//!
//! # What it must not know
//! Cookies and pages.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use posthorn_domain::{
    ApiKey, AuditAction, Capability, CertificateId, Home, KeyId, Opener, SESSION_BACK_BYTES_MAX,
    SESSION_GROUP_BYTES_MAX, SESSION_GROUPS_MAX, SESSION_LABEL_BYTES_MAX, SESSION_NAME_BYTES_MAX,
    Scope, Seed, Session, SessionId, SessionKind, Span, TenantId, Timestamp,
};
use posthorn_sealing::session_token::{self, TokenKind};
use posthorn_sealing::vault::Secret;
use posthorn_store::{EndSessions, Listing, Page, SessionFilter};
use tracing::warn;

use crate::audit::Line;
use crate::catalog::KnownKey;
use crate::engine::Engine;
use crate::error::{Error, Result, chain};
use crate::keys::Principal;

const DAY: Duration = Duration::from_secs(86_400);
/// The longest session of the console.
const CONSOLE_MAX: Duration = DAY;
/// The longest time in which a link can be redeemed.
const REDEEM_MAX: Duration = DAY;
/// The longest session of the portal.
const PORTAL_MAX: Duration = Duration::from_secs(7 * 86_400);
/// What bad and used links have in common.
const LINK: &str = "portal link";

/// A session of the console that is to be opened.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// On whose word.
    pub opener: Opener,
    /// For people, at most 200 bytes.
    pub name: String,
    /// Whose it is.
    pub home: Home,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// What a proxy or a provider said it is part of: at most 64 groups of at most 256 bytes.
    pub groups: Vec<String>,
    /// How long: at most a day.
    pub lasts: Duration,
}

/// A link into the portal of a tenant that is to be made.
#[derive(Clone, Debug)]
pub struct NewPortalLink {
    /// For people: the operator's own word for the customer, at most 200 bytes.
    pub name: String,
    /// What whoever redeems it may do. To view is always part of it.
    pub capabilities: Vec<Capability>,
    /// The flags of whoever redeems it, see [`posthorn_domain::KnownType::feature_flags`].
    pub feature_flags: Vec<String>,
    /// How long it can be redeemed: at most a day.
    pub redeem_within: Duration,
    /// How long the session lasts then: at most seven days.
    pub lasts: Duration,
    /// The operator's own name for the session, to end it by: at most 128 bytes.
    pub label: Option<String>,
    /// Where the customer goes when the session has ended: an https URL of at most 2,048 bytes.
    pub back: Option<String>,
    /// The key, or what stands for the certificate, that it is made with; it stands and falls with that.
    pub key: Option<KeyId>,
    /// What id and token are made of, so that making it again makes nothing new; chance when absent.
    pub seed: Option<Seed>,
}

impl Default for NewPortalLink {
    fn default() -> Self {
        Self {
            name: String::new(),
            capabilities: Capability::DEFAULT.to_vec(),
            feature_flags: Vec::new(),
            redeem_within: Duration::from_secs(300),
            lasts: Duration::from_secs(3_600),
            label: None,
            back: None,
            key: None,
            seed: None,
        }
    }
}

/// Sessions of tenants that are on their way into the store.
pub(crate) type ComingSessions = Arc<Mutex<HashMap<TenantId, usize>>>;

/// One of them, until it is there or came to nothing.
struct Coming(ComingSessions, TenantId);

impl Drop for Coming {
    fn drop(&mut self) {
        let mut all = self.0.lock();
        if let Some(coming) = all.get_mut(&self.1) {
            *coming -= 1;
            if *coming == 0 {
                all.remove(&self.1);
            }
        }
    }
}

fn refuse<T>(field: &'static str, problem: impl Into<String>) -> Result<T> {
    Err(Error::Event { field, problem: problem.into() })
}

fn check_text(field: &'static str, text: &str, max: usize) -> Result<()> {
    if text.len() > max {
        return Err(Error::TooLong { field, max });
    }
    if text.chars().any(char::is_control) {
        return refuse(field, "must not contain control characters");
    }
    Ok(())
}

fn check_time(field: &'static str, time: Duration, max: Duration) -> Result<()> {
    if time < Duration::from_secs(1) || time > max {
        return refuse(field, format!("must be from 1s to {}", Span::from(max)));
    }
    Ok(())
}

fn check_label(label: &str) -> Result<()> {
    if label.is_empty() {
        return refuse("label", "must not be empty");
    }
    check_text("label", label, SESSION_LABEL_BYTES_MAX)
}

fn check_back(back: &str) -> Result<()> {
    const FIELD: &str = "return_url";
    check_text(FIELD, back, SESSION_BACK_BYTES_MAX)?;
    let parsed = back.parse::<http::Uri>().ok();
    let fits = parsed.is_some_and(|uri| {
        let host = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
        uri.scheme_str() == Some("https") && host
    });
    if fits { Ok(()) } else { refuse(FIELD, "must be an https URL without a name and password") }
}

impl Engine {
    /// Opens a session of the console. The token is shown once.
    pub async fn open_session(&self, new: NewSession) -> Result<(Session, Secret)> {
        let NewSession { opener, name, home, scopes, groups, lasts } = new;
        check_text("name", &name, SESSION_NAME_BYTES_MAX)?;
        check_time("lasts", lasts, CONSOLE_MAX)?;
        if scopes.is_empty() {
            return refuse("scopes", "must not be empty");
        }
        if groups.len() > SESSION_GROUPS_MAX {
            return refuse("groups", format!("must be at most {SESSION_GROUPS_MAX}"));
        }
        for group in &groups {
            check_text("groups", group, SESSION_GROUP_BYTES_MAX)?;
        }
        if scopes.contains(&Scope::Operator) && home != Home::Operator {
            return refuse("scopes", "only a session of an operator may have this scope: operator");
        }
        let _coming = match &home {
            Home::Operator => None,
            Home::Realm(realm) => {
                self.catalog().realm(realm)?;
                None
            }
            Home::Tenant(tenant) => Some(self.admit_session(*tenant).await?),
        };
        let now = self.now();
        let id = self.inner.chance.session_id(now);
        let (secret, token) = session_token::generate(TokenKind::Session, id);
        let session = Session {
            id,
            kind: SessionKind::Console,
            token,
            opener,
            name,
            home,
            scopes,
            groups,
            capabilities: Vec::new(),
            feature_flags: Vec::new(),
            label: None,
            back: None,
            created_at: now,
            expires_at: now.plus(lasts.into()),
            lasts: Duration::ZERO,
        };
        self.check_bearer(&session, now)?;
        let line = line(AuditAction::SessionOpened, "session", &session)
            .with("scopes", serde_json::json!(session.scopes))
            .with("opener", session.opener.as_str());
        self.in_session(&session).create_session(&session, line).await?;
        Ok((session, secret))
    }

    /// Makes a link into the portal of a tenant. The token is shown once.
    pub async fn create_portal_link(
        &self,
        tenant: TenantId,
        new: NewPortalLink,
    ) -> Result<(Session, Secret)> {
        let NewPortalLink {
            name,
            mut capabilities,
            feature_flags,
            redeem_within,
            lasts,
            label,
            back,
            key,
            seed,
        } = new;
        check_text("name", &name, SESSION_NAME_BYTES_MAX)?;
        if feature_flags.len() > SESSION_GROUPS_MAX {
            return refuse("feature_flags", format!("must be at most {SESSION_GROUPS_MAX}"));
        }
        for flag in &feature_flags {
            check_text("feature_flags", flag, SESSION_GROUP_BYTES_MAX)?;
        }
        check_time("redeem_within", redeem_within, REDEEM_MAX)?;
        check_time("expires_in", lasts, PORTAL_MAX)?;
        label.as_deref().map_or(Ok(()), check_label)?;
        back.as_deref().map_or(Ok(()), check_back)?;
        if tenant == TenantId::SYSTEM {
            return Err(Error::TenantReserved);
        }
        capabilities.push(Capability::View);
        capabilities.sort_unstable();
        capabilities.dedup();
        let _coming = self.admit_session(tenant).await?;
        let now = self.now();
        let (id, secret, token) = self.new_token(TokenKind::Link, seed);
        let link = Session {
            id,
            kind: SessionKind::Link,
            token,
            opener: Opener::Link { key },
            name,
            home: Home::Tenant(tenant),
            scopes: Vec::new(),
            groups: Vec::new(),
            capabilities,
            feature_flags,
            label,
            back,
            created_at: now,
            expires_at: now.plus(redeem_within.into()),
            lasts,
        };
        self.check_bearer(&link, now)?;
        let line = line(AuditAction::PortalLinkCreated, "portal_link", &link)
            .with("capabilities", serde_json::json!(link.capabilities));
        match self.create_session(&link, line).await {
            // By an earlier try of the same request.
            Err(Error::AlreadyExists(_)) if seed.is_some() => {}
            created => created?,
        }
        Ok((link, secret))
    }

    /// A session of the portal without a link, for programs. The token is shown once.
    pub async fn open_portal(
        &self,
        tenant: TenantId,
        new: NewPortalLink,
    ) -> Result<(Session, Secret)> {
        // The link that it is redeemed for lives for a moment, and has an id of its own.
        let seed = new.seed;
        if seed.is_some() {
            let (_, secret, _) = self.new_token(TokenKind::Session, seed);
            let token = secret.expose_str().unwrap_or_default();
            if let Some(made) = self.session_of(TokenKind::Session, token).await? {
                return Ok((made, secret));
            }
        }
        let of_link = seed.map(|(at, chance)| (at, chance.wrapping_add(1)));
        let new = NewPortalLink { seed: of_link, ..new };
        let (_, link) = self.create_portal_link(tenant, new).await?;
        self.redeem(link.expose_str().unwrap_or_default(), seed).await
    }

    /// The id, the token and its hash of something new, or of what a seed stands for. The seed lies in the store for all to
    /// read who have it, so the vault has its part.
    fn new_token(&self, kind: TokenKind, seed: Option<Seed>) -> (SessionId, Secret, [u8; 32]) {
        let Some((at, chance)) = seed else {
            let id = self.inner.chance.session_id(self.now());
            let (secret, token) = session_token::generate(kind, id);
            return (id, secret, token);
        };
        let id = SessionId::of_seed((at, chance));
        let from = [&at.as_millis().to_be_bytes()[..], &chance.to_be_bytes()].concat();
        let bytes = self.inner.vault.derive(b"token of a seed", &from);
        let (secret, token) = session_token::made_of(kind, id, &bytes);
        (id, secret, token)
    }

    /// Redeems a link, once. [`Error::NotFound`] for every token that is malformed, unknown, wrong, expired or redeemed:
    /// the caller cannot tell which.
    pub async fn redeem_portal_link(&self, token: &str) -> Result<(Session, Secret)> {
        self.redeem(token, None).await
    }

    async fn redeem(&self, token: &str, seed: Option<Seed>) -> Result<(Session, Secret)> {
        let link = self.session_of(TokenKind::Link, token).await?;
        let link = link.ok_or(Error::NotFound(LINK))?;
        let now = self.now();
        let (id, secret, token) = self.new_token(TokenKind::Session, seed);
        let expires_at = now.plus(link.lasts.into());
        let session = Session {
            id,
            kind: SessionKind::Portal,
            token,
            created_at: now,
            expires_at,
            lasts: Duration::ZERO,
            ..link.clone()
        };
        let line = line(AuditAction::PortalLinkRedeemed, "session", &session)
            .with("link", link.id.to_string());
        let acting = self.in_session(&session);
        let write = |along| self.store().redeem_session(link.id, session.clone(), along);
        let redeemed = acting.writing(None, Some(line), true, write).await;
        match redeemed.map_err(|e| Error::from(e).about(LINK))? {
            true => Ok((session, secret)),
            false => Err(Error::NotFound(LINK)),
        }
    }

    /// Where whoever holds this link came from, also when it can no longer be redeemed. Nothing once it is removed.
    pub async fn portal_link_back(&self, token: &str) -> Result<Option<String>> {
        let Some((id, secret)) = session_token::parse(TokenKind::Link, token) else {
            return Ok(None);
        };
        let found = self.store().session(id).await?;
        let hash = found.as_ref().map_or([0; 32], |session| session.token);
        let right = session_token::check(&secret, &hash);
        Ok(found.filter(|link| right && link.kind == SessionKind::Link).and_then(|link| link.back))
    }

    /// Whose session this token opens, if it opens one: not expired, its key still valid, its tenant there and not being
    /// deleted. Links open nothing before they are redeemed.
    pub async fn authenticate_session(&self, token: &str) -> Result<Option<Arc<Session>>> {
        Ok(self.session_of(TokenKind::Session, token).await?.map(Arc::new))
    }

    /// The session or link that a token of this kind opens.
    async fn session_of(&self, kind: TokenKind, token: &str) -> Result<Option<Session>> {
        let Some((id, secret)) = session_token::parse(kind, token) else { return Ok(None) };
        let found = self.store().session(id).await?;
        // An unknown id costs the same comparison as a known one.
        let hash = found.as_ref().map_or([0; 32], |session| session.token);
        let right = session_token::check(&secret, &hash);
        let now = self.now();
        Ok(found.filter(|session| {
            let is_link = session.kind == SessionKind::Link;
            right && is_link == (kind == TokenKind::Link) && self.stands(session, now)
        }))
    }

    /// Whether a session opens anything now: its time is not over, and what it stands on is there.
    fn stands(&self, session: &Session, now: Timestamp) -> bool {
        let has_home = match &session.home {
            Home::Operator => true,
            Home::Realm(realm) => self.catalog().realm(realm).is_ok(),
            Home::Tenant(tenant) => self.catalog().tenant(*tenant).is_ok(),
        };
        has_home && session.is_alive(now) && self.check_bearer(session, now).is_ok()
    }

    /// Whether the key, or the certificate, that a session stands and falls with is valid.
    fn check_bearer(&self, session: &Session, now: Timestamp) -> Result<()> {
        let Some(key) = session.opener.key() else { return Ok(()) };
        let is_valid = match self.catalog().key(key) {
            Some(known) => known.is_valid(now),
            None => session.tenant().is_some_and(|tenant| {
                let id = CertificateId::from_bytes(*key.as_bytes());
                let view = self.catalog().certificate(tenant, id);
                view.is_some_and(|view| view.usable(now).is_ok())
            }),
        };
        if is_valid { Ok(()) } else { Err(Error::NotFound("key")) }
    }

    /// As whom a session asks: with the key it was opened with, as that is now; else with one of its own that nobody
    /// else has. Nothing for a link.
    pub fn principal_of(&self, session: &Session) -> Option<Principal> {
        if session.kind == SessionKind::Link {
            return None;
        }
        if let Opener::Key { id } = session.opener {
            let key = self.catalog().key(id).filter(|key| key.is_valid(self.now()))?;
            key.touch(self.now());
            return Some(Principal { key, certificate: false, everywhere: false });
        }
        let changes = [Capability::ManageEndpoints, Capability::RotateSecret, Capability::Resend];
        let scopes = match session.kind {
            SessionKind::Portal if changes.iter().any(|own| session.can(*own)) => {
                vec![Scope::Read, Scope::Manage]
            }
            SessionKind::Portal => vec![Scope::Read],
            SessionKind::Console | SessionKind::Link => session.scopes.clone(),
        };
        let record = ApiKey {
            id: KeyId::from_bytes(*session.id.as_bytes()),
            tenant: session.tenant(),
            realm: session.realm().cloned(),
            description: session.name.clone(),
            scopes,
            hash: [0; 32],
            created_at: session.created_at,
            expires_at: Some(session.expires_at),
            revoked_at: None,
            rate_limit: None,
        };
        // Somebody may look everywhere without being an operator. Keys cannot, so this is not said by the record.
        let everywhere = session.kind == SessionKind::Console && session.home == Home::Operator;
        let key = Arc::new(KnownKey::new(record));
        Some(Principal { key, certificate: false, everywhere })
    }

    /// As whom a session asks whose rights are looked up anew: with these in place of those it was opened with.
    pub fn principal_with(
        &self,
        session: &Session,
        home: Home,
        scopes: Vec<Scope>,
    ) -> Option<(Session, Principal)> {
        let session = Session { home, scopes, ..session.clone() };
        let principal =
            self.principal_of(&session).filter(|_| self.stands(&session, self.now()))?;
        Some((session, principal))
    }

    /// One session or link, also when its time is over.
    pub async fn session(&self, id: SessionId) -> Result<Session> {
        self.store().session(id).await?.ok_or(Error::NotFound("session"))
    }

    /// Sessions and links.
    pub async fn sessions(&self, which: SessionFilter, listing: Listing) -> Result<Page<Session>> {
        Ok(self.store().sessions(which, listing).await?)
    }

    /// Ends a session, or takes a link back. From now on it opens nothing, on any node.
    pub async fn end_session(&self, id: SessionId) -> Result<()> {
        let session = self.session(id).await?;
        let kind = if session.kind == SessionKind::Link { "portal_link" } else { "session" };
        let line = line(AuditAction::SessionEnded, kind, &session);
        match self.end_sessions(EndSessions::One(id), line).await? {
            0 => Err(Error::NotFound("session")),
            _ => Ok(()),
        }
    }

    /// Ends all sessions of a tenant with this label, and takes back its links with it; how many.
    pub async fn end_labelled_sessions(&self, tenant: TenantId, label: &str) -> Result<u64> {
        check_label(label)?;
        self.catalog().tenant(tenant)?;
        let mut line = Line::new(AuditAction::SessionEnded, "session", &label);
        line.tenant = Some(tenant);
        self.end_sessions(EndSessions::Labelled(tenant, label.to_owned()), line).await
    }

    async fn end_sessions(&self, which: EndSessions, line: Line) -> Result<u64> {
        let write = |along| self.store().end_sessions(which.clone(), along);
        Ok(self.writing(None, Some(line), true, write).await?)
    }

    /// Removes what stood on a key or a certificate that was just revoked. It opens nothing already, so that trouble
    /// with the store only leaves rows behind until their time is over.
    pub(crate) async fn tidy_sessions(&self, key: KeyId) {
        let ended = self.store().end_sessions(EndSessions::OfKey(key), Default::default()).await;
        if let Err(e) = ended {
            warn!(error = %chain(&e), %key, "sessions of a revoked key could not be removed; they \
                                             open nothing, and go when their time is over");
        }
    }

    async fn create_session(&self, session: &Session, line: Line) -> Result<()> {
        let write = |along| self.store().create_session(session.clone(), along);
        let created = self.writing(None, Some(line), true, write).await;
        created.map_err(|e| Error::from(e).about("tenant"))
    }

    /// The engine in the name of a session that is just opened, unless somebody else acts already.
    fn in_session(&self, session: &Session) -> Engine {
        self.acting(self.by.or_session(session))
    }

    /// Lets a tenant have one more session or link, if it may. To be kept until it is there.
    async fn admit_session(&self, tenant: TenantId) -> Result<Coming> {
        self.catalog().tenant(tenant)?;
        let all = Arc::clone(&self.inner.coming_sessions);
        let coming = {
            let mut all = all.lock();
            let coming = all.entry(tenant).or_default();
            *coming += 1;
            *coming
        };
        let admitted = Coming(all, tenant);
        let limit = self.inner.keeper.quotas().sessions;
        if limit > 0 {
            let has = self.store().count_sessions(tenant, self.now()).await?;
            let has = usize::try_from(has).unwrap_or(usize::MAX);
            if has.saturating_add(coming) > limit {
                return Err(Error::SessionsFull { has, limit });
            }
        }
        Ok(admitted)
    }
}

/// What is to be said of a session.
fn line(action: AuditAction, kind: &str, session: &Session) -> Line {
    let line = Line::new(action, kind, &session.id).named(&session.name);
    Line { tenant: session.tenant(), realm: session.realm().cloned(), ..line }
}
