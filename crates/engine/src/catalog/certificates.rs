//! Certificates as attempts and callers use them: found by choice or thumbprint, their keys opened
//! at the first use, and the TLS settings made of them kept until a certificate changes.

use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::sync::{Arc, OnceLock};

use posthorn_domain::policy::CertificateChoice;
use posthorn_domain::{
    ApiKey, CatalogVersion, Certificate, CertificateId, CertificateKind, KeyId, Lookup, Problem,
    TenantId, Thumbprint, Timestamp,
};
use posthorn_egress::{ClientTls, Identity, certificate_facts};
use posthorn_sealing::vault::Vault;

use super::{Catalog, KnownKey, Map};

/// One version of a certificate.
pub struct CertificateView {
    /// The record.
    pub certificate: Certificate,
    vault: Arc<Vault>,
    identity: OnceLock<Result<Arc<Identity>, Problem>>,
    /// Whether the record is about the certificate in it. Somebody who can write into the database
    /// could otherwise put a thumbprint there and be let in, or be named to receivers, as another.
    intact: OnceLock<bool>,
    /// `caller`: what its bearer may do, in the shape of a key.
    bearer: Arc<KnownKey>,
}

/// What binds a sealed key to its place.
pub(crate) fn key_context(tenant: TenantId, id: CertificateId) -> Vec<u8> {
    let mut context = b"certificate-key\0".to_vec();
    context.extend_from_slice(tenant.as_bytes());
    context.extend_from_slice(id.as_bytes());
    context
}

impl CertificateView {
    pub(super) fn new(certificate: Certificate, vault: Arc<Vault>) -> Self {
        let bearer = KnownKey::new(ApiKey {
            id: KeyId::from_bytes(*certificate.id.as_bytes()),
            tenant: Some(certificate.tenant),
            realm: None,
            description: certificate.description.clone(),
            scopes: certificate.scopes.clone(),
            hash: [0; 32],
            created_at: certificate.created_at,
            expires_at: Some(certificate.not_after),
            revoked_at: certificate.revoked_at,
            rate_limit: None,
        });
        Self {
            certificate,
            vault,
            identity: OnceLock::new(),
            intact: OnceLock::new(),
            bearer: Arc::new(bearer),
        }
    }

    /// Whether it may be used at `now`; otherwise why not.
    pub(crate) fn usable(&self, now: Timestamp) -> Result<(), &'static str> {
        let certificate = &self.certificate;
        certificate.usable(now)?;
        let facts = || certificate_facts(certificate.pem.as_bytes());
        let is_same = || facts().is_ok_and(|facts| facts.thumbprint == certificate.thumbprint.0);
        if *self.intact.get_or_init(is_same) {
            Ok(())
        } else {
            Err("does not have the thumbprint in its record")
        }
    }

    /// The certificate with its key, ready to be shown.
    pub(crate) fn identity(&self) -> Result<Arc<Identity>, Problem> {
        self.identity
            .get_or_init(|| {
                let certificate = &self.certificate;
                let sealed =
                    certificate.sealed_key.as_ref().ok_or("has no private key in the registry")?;
                let context = key_context(certificate.tenant, certificate.id);
                let key = self
                    .vault
                    .open(&context, sealed)
                    .map_err(|e| format!("has a private key that cannot be decrypted: {e}"))?;
                Identity::parse(certificate.pem.as_bytes(), key.expose())
                    .map(Arc::new)
                    .map_err(|e| Problem::new(e.to_string()))
            })
            .clone()
    }
}

/// Who we are in a TLS handshake and whom we trust, for one request.
pub struct TlsChoice {
    pub(crate) identity: Option<Arc<CertificateView>>,
    pub(crate) authorities: Vec<Arc<CertificateView>>,
    /// Filled by the transport at the first use.
    pub(crate) built: OnceLock<Result<Arc<ClientTls>, Problem>>,
}

/// What a [`TlsChoice`] is made of.
pub(super) type TlsKey =
    (Option<(CertificateId, CatalogVersion)>, Vec<(CertificateId, CatalogVersion)>);

/// What a client certificate is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be shown in a handshake, which needs its key.
    Show,
    /// To be named to a proxy.
    Name,
}

/// What was made of certificates is forgotten when there is more of it than this.
const TLS_CHOICES_MAX: usize = 4_096;

/// Why a certificate cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoCertificate {
    #[error("there is no client certificate for the host {host}{}", of(owner))]
    ForHost { host: String, owner: Option<String> },
    #[error("there is no {} certificate {id}{}", kind.as_str(), of(owner))]
    WithId { kind: CertificateKind, id: CertificateId, owner: Option<String> },
    #[error("the owner of the client certificate: {0}")]
    Owner(String),
    #[error("certificate {id} {problem}")]
    Unusable { id: CertificateId, problem: Problem },
}

fn of(owner: &Option<String>) -> String {
    owner.as_ref().map(|owner| format!(" of owner {owner}")).unwrap_or_default()
}

impl Catalog {
    /// One certificate of a tenant.
    pub fn certificate(&self, tenant: TenantId, id: CertificateId) -> Option<Arc<CertificateView>> {
        let found = self.state.read().certificates.get(&id).cloned();
        found.filter(|view| view.certificate.tenant == tenant)
    }

    /// All certificates of a tenant, oldest first.
    pub fn certificates(&self, tenant: TenantId) -> Vec<Arc<CertificateView>> {
        let mut all: Vec<_> = self
            .state
            .read()
            .certificates
            .values()
            .filter(|view| view.certificate.tenant == tenant)
            .cloned()
            .collect();
        all.sort_by_key(|view| view.certificate.id);
        all
    }

    /// All certificates of all tenants, oldest first.
    pub(crate) fn all_certificates(&self) -> Vec<Arc<CertificateView>> {
        let mut all: Vec<_> = self.state.read().certificates.values().cloned().collect();
        all.sort_by_key(|view| view.certificate.id);
        all
    }

    /// Certificates that still count and end before this, by id.
    pub(crate) fn certificates_ending(&self, before: Timestamp) -> Vec<Arc<CertificateView>> {
        let state = self.state.read();
        let live = state.certificates.values().filter(|view| view.certificate.revoked_at.is_none());
        let mut ending: Vec<_> =
            live.filter(|view| view.certificate.not_after <= before).cloned().collect();
        ending.sort_by_key(|view| view.certificate.id);
        ending
    }

    /// The soonest end of a certificate that still counts, by kind.
    pub(crate) fn next_expiry(&self, kind: CertificateKind) -> Option<Timestamp> {
        let state = self.state.read();
        let live = state.certificates.values().map(|view| &view.certificate);
        live.filter(|c| c.kind == kind && c.revoked_at.is_none()).map(|c| c.not_after).min()
    }

    /// The client certificate a policy asks for, usable now; `values` fill in whose it must be. Of several for one host the one that
    /// is valid longest is taken, so that a new one takes over from an old one by itself.
    pub(crate) fn client_certificate(
        &self,
        tenant: TenantId,
        choice: &CertificateChoice,
        values: &dyn Lookup,
        host: &str,
        purpose: Purpose,
        now: Timestamp,
    ) -> Result<Arc<CertificateView>, NoCertificate> {
        let owner = choice.owner.as_ref().map(|owner| owner.render(values, str::to_owned));
        let owner = owner.transpose().map_err(|e| NoCertificate::Owner(e.to_string()))?;
        let state = self.state.read();
        let fits = |certificate: &Certificate| {
            let owned = |owner: &String| owner.eq_ignore_ascii_case(&certificate.owner);
            certificate.tenant == tenant
                && certificate.kind == CertificateKind::Client
                && owner.as_ref().is_none_or(owned)
        };
        let found = match choice.certificate {
            Some(id) => state.certificates.get(&id).filter(|view| fits(&view.certificate)),
            None => state
                .by_host
                .get(&(tenant, host.to_ascii_lowercase()))
                .into_iter()
                .flatten()
                .filter_map(|id| state.certificates.get(id))
                .filter(|view| fits(&view.certificate))
                // One without a key can be named, but never shown.
                .filter(|view| purpose == Purpose::Name || view.certificate.sealed_key.is_some())
                // Usable ones first, then the one that lasts longest; the id decides ties.
                .max_by_key(|view| {
                    let certificate = &view.certificate;
                    let usable = view.usable(now).is_ok();
                    (usable, certificate.not_after, certificate.id)
                }),
        };
        let view = found.ok_or_else(|| match choice.certificate {
            Some(id) => NoCertificate::WithId { kind: CertificateKind::Client, id, owner },
            None => NoCertificate::ForHost { host: host.to_owned(), owner },
        })?;
        usable(view, now)?;
        Ok(Arc::clone(view))
    }

    /// The TLS settings with this certificate and these authorities.
    pub(crate) fn tls(
        &self,
        tenant: TenantId,
        identity: Option<Arc<CertificateView>>,
        authorities: &[CertificateId],
        now: Timestamp,
    ) -> Result<Arc<TlsChoice>, NoCertificate> {
        let trusted = self.authorities(tenant, authorities, now)?;
        let version = |view: &Arc<CertificateView>| (view.certificate.id, view.certificate.version);
        let key: TlsKey = (identity.as_ref().map(version), trusted.iter().map(version).collect());
        if let Some(made) = self.state.read().tls.get(&key) {
            return Ok(Arc::clone(made));
        }
        let fresh = TlsChoice { identity, authorities: trusted, built: OnceLock::new() };
        let mut state = self.state.write();
        if state.tls.len() >= TLS_CHOICES_MAX {
            state.tls.clear();
        }
        Ok(Arc::clone(state.tls.entry(key).or_insert_with(|| Arc::new(fresh))))
    }

    /// The authorities of these ids, usable now, each once and in one order.
    pub(crate) fn authorities(
        &self,
        tenant: TenantId,
        ids: &[CertificateId],
        now: Timestamp,
    ) -> Result<Vec<Arc<CertificateView>>, NoCertificate> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids: BTreeSet<&CertificateId> = ids.iter().collect();
        let state = self.state.read();
        let mut trusted = Vec::with_capacity(ids.len());
        for id in ids {
            let kind = CertificateKind::Authority;
            let view = state
                .certificates
                .get(id)
                .filter(|view| view.certificate.tenant == tenant && view.certificate.kind == kind)
                .ok_or(NoCertificate::WithId { kind, id: *id, owner: None })?;
            usable(view, now)?;
            trusted.push(Arc::clone(view));
        }
        Ok(trusted)
    }

    /// Who shows a certificate with this thumbprint. With a country given, only one of that owner.
    pub(crate) fn caller(
        &self,
        thumbprint: Thumbprint,
        country: Option<&str>,
        now: Timestamp,
    ) -> Option<Arc<KnownKey>> {
        let state = self.state.read();
        let view = state.certificates.get(state.callers.get(&thumbprint)?)?;
        let owner = &view.certificate.owner;
        let owned = owner.is_empty() || country.is_some_and(|c| c.eq_ignore_ascii_case(owner));
        (owned && view.usable(now).is_ok()).then(|| Arc::clone(&view.bearer))
    }
}

fn usable(view: &CertificateView, now: Timestamp) -> Result<(), NoCertificate> {
    let id = view.certificate.id;
    view.usable(now).map_err(|problem| NoCertificate::Unusable { id, problem: problem.into() })
}

impl super::State {
    pub(super) fn put_certificate(&mut self, certificate: Certificate, vault: &Arc<Vault>) {
        self.drop_certificate(certificate.id);
        if certificate.kind == CertificateKind::Caller {
            self.callers.insert(certificate.thumbprint, certificate.id);
        }
        if !certificate.host.is_empty() {
            let place = (certificate.tenant, certificate.host.to_ascii_lowercase());
            self.by_host.entry(place).or_default().push(certificate.id);
        }
        let view = Arc::new(CertificateView::new(certificate, Arc::clone(vault)));
        self.certificates.insert(view.certificate.id, view);
    }

    pub(super) fn drop_certificate(&mut self, id: CertificateId) {
        // Whatever was made of the old version is made anew.
        self.tls.clear();
        let Some(old) = self.certificates.remove(&id) else { return };
        let old = &old.certificate;
        if self.callers.get(&old.thumbprint) == Some(&id) {
            self.callers.remove(&old.thumbprint);
        }
        if let Entry::Occupied(mut place) =
            self.by_host.entry((old.tenant, old.host.to_ascii_lowercase()))
        {
            place.get_mut().retain(|other| *other != id);
            if place.get().is_empty() {
                place.remove();
            }
        }
    }
}

/// Names the type of the maps beside the rest of the state.
pub(super) type Certificates = Map<CertificateId, Arc<CertificateView>>;
