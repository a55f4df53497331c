//! Managing the registry of certificates: register, rotate, revoke, delete.

use std::sync::Arc;

use bytes::Bytes;
use posthorn_domain::{
    CatalogVersion, Certificate, CertificateId, CertificateKind, KeyId, Scope, Span, TenantId,
    Thumbprint, Timestamp,
};
use posthorn_egress::{
    CertificateFacts, Identity, authority_facts, certificate_facts, certificates_only,
};
use posthorn_store::CatalogChange;

use crate::catalog::CertificateView;
use crate::catalog::certificates::key_context;
use crate::engine::Engine;
use crate::error::{Error, Result, chain};
use crate::keys::Principal;

/// How long before its end a certificate counts as expiring: time enough to have a new one signed.
const EXPIRY_WARNING: Span = Span::from_secs(30 * 86_400);
/// The longest text of owner and host.
const TEXT_BYTES_MAX: usize = 253;
/// Certificates of one tenant at most.
const CERTIFICATES_MAX: usize = 10_000;
/// Their PEM texts together.
const PEM_BYTES_MAX: usize = 32 << 20;

/// A certificate to be registered.
#[derive(Debug)]
pub struct NewCertificate {
    /// What it is for.
    pub kind: CertificateKind,
    /// For people.
    pub description: String,
    /// To whom it belongs inside the tenant; empty when that does not matter.
    pub owner: String,
    /// `client`: the host it is for; empty when policies name it by id.
    pub host: String,
    /// `caller`: what its bearer may do.
    pub scopes: Vec<Scope>,
    /// The certificate and its private key.
    pub contents: CertificateContents,
}

/// A certificate and its private key, as PEM texts.
pub struct CertificateContents {
    /// The chain, the certificate itself first.
    pub certificate: String,
    /// `client`: the key; none when an outbound proxy holds it.
    pub key: Option<String>,
}

impl std::fmt::Debug for CertificateContents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertificateContents").finish_non_exhaustive()
    }
}

/// Whether a certificate can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateState {
    /// It can.
    Valid,
    /// It can, but fewer than 30 days are left.
    Expiring,
    /// Its time is over.
    Expired,
    /// Its time has not come.
    NotYetValid,
    /// Somebody took it back.
    Revoked,
}

impl CertificateState {
    /// What a certificate is at `now`.
    pub fn of(certificate: &Certificate, now: Timestamp) -> Self {
        if certificate.revoked_at.is_some() {
            Self::Revoked
        } else if now >= certificate.not_after {
            Self::Expired
        } else if now < certificate.not_before {
            Self::NotYetValid
        } else if now.plus(EXPIRY_WARNING) >= certificate.not_after {
            Self::Expiring
        } else {
            Self::Valid
        }
    }

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Expiring => "expiring",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::Revoked => "revoked",
        }
    }
}

fn refuse<T>(field: &'static str, problem: impl Into<String>) -> Result<T> {
    Err(Error::Certificate { field, problem: problem.into() })
}

/// A host as it stands in a normalised URL, so that the two can be compared.
fn normal_host(text: &str) -> Result<String> {
    let host = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    let is_address = host.parse::<std::net::IpAddr>().is_ok();
    if host.len() > TEXT_BYTES_MAX || !(is_address || host.bytes().all(plain)) {
        return refuse(
            "host",
            "must be a host name or an address, without scheme, port or brackets",
        );
    }
    Ok(host)
}

/// Reads the contents as far as the kind needs them; whatever can never work is refused here.
fn read(
    kind: CertificateKind,
    contents: &CertificateContents,
    now: Timestamp,
) -> Result<CertificateFacts> {
    let read = match kind {
        CertificateKind::Authority => authority_facts,
        _ => certificate_facts,
    };
    let facts =
        read(contents.certificate.as_bytes()).or_else(|e| refuse("certificate", chain(&e)))?;
    if now >= facts.not_after {
        return refuse("certificate", "it has already expired");
    }
    if kind == CertificateKind::Authority && !facts.is_authority {
        return refuse("certificate", "it is not a CA certificate (CA: true is missing)");
    }
    match (&contents.key, kind) {
        (None, _) => {}
        (Some(key), CertificateKind::Client) => {
            Identity::parse(contents.certificate.as_bytes(), key.as_bytes())
                .or_else(|e| refuse("key", chain(&e)))?;
        }
        (Some(_), _) => return refuse("key", "only a client certificate may have a key"),
    }
    Ok(facts)
}

impl Engine {
    /// Registers a certificate.
    pub async fn create_certificate(
        &self,
        tenant: TenantId,
        new: NewCertificate,
    ) -> Result<Arc<CertificateView>> {
        self.catalog().tenant(tenant)?;
        let now = self.now();
        let facts = read(new.kind, &new.contents, now)?;
        if new.owner.len() > TEXT_BYTES_MAX {
            return refuse("owner", format!("must be at most {TEXT_BYTES_MAX} bytes"));
        }
        let host = normal_host(&new.host)?;
        if !new.host.is_empty() && new.kind != CertificateKind::Client {
            return refuse("host", "only a client certificate may have a host");
        }
        if new.kind == CertificateKind::Caller {
            if new.scopes.is_empty() {
                return refuse("scopes", "a caller needs at least one scope");
            }
            if new.scopes.contains(&Scope::Operator) {
                return refuse(
                    "scopes",
                    "the scope operator is not allowed here; operators use an \
                                         API key",
                );
            }
        } else if !new.scopes.is_empty() {
            return refuse("scopes", "only a caller certificate may have scopes");
        }
        let pem = self.bounded(tenant, &new.contents)?;
        let id = self.inner.chance.certificate_id(now);
        let certificate = Certificate {
            id,
            tenant,
            kind: new.kind,
            description: new.description,
            owner: new.owner,
            host,
            scopes: new.scopes,
            thumbprint: Thumbprint(facts.thumbprint),
            subject: facts.subject,
            pem,
            sealed_key: self.seal_key(tenant, id, new.contents.key.as_deref()),
            not_before: facts.not_before,
            not_after: facts.not_after,
            created_at: now,
            updated_at: now,
            revoked_at: None,
            version: CatalogVersion(0),
        };
        self.change(CatalogChange::CreateCertificate(Box::new(certificate)))
            .await
            .map_err(|e| e.about("caller certificate"))?;
        self.one_certificate(tenant, id)
    }

    /// The certificates as they are kept: only they, and not more than a tenant may have. Every node
    /// holds all of them in memory.
    fn bounded(&self, tenant: TenantId, contents: &CertificateContents) -> Result<String> {
        let pem = certificates_only(contents.certificate.as_bytes())
            .or_else(|e| refuse("certificate", chain(&e)))?;
        let all = self.catalog().certificates(tenant);
        let bytes = all.iter().map(|view| view.certificate.pem.len()).sum::<usize>();
        if all.len() >= CERTIFICATES_MAX || bytes + pem.len() > PEM_BYTES_MAX {
            let problem = format!(
                "a tenant may have at most {CERTIFICATES_MAX} certificates, {} MiB in total",
                PEM_BYTES_MAX >> 20
            );
            return refuse("certificate", problem);
        }
        Ok(pem)
    }

    fn seal_key(&self, tenant: TenantId, id: CertificateId, key: Option<&str>) -> Option<Bytes> {
        let context = key_context(tenant, id);
        key.map(|key| Bytes::from(self.inner.vault.seal(&context, key.as_bytes())))
    }

    fn one_certificate(&self, tenant: TenantId, id: CertificateId) -> Result<Arc<CertificateView>> {
        self.catalog().certificate(tenant, id).ok_or(Error::NotFound("certificate"))
    }

    /// Replaces certificate and key of a registered one. Attempts that start after this returned
    /// use the new ones; nothing has to be restarted.
    pub async fn rotate_certificate(
        &self,
        tenant: TenantId,
        id: CertificateId,
        contents: CertificateContents,
    ) -> Result<Arc<CertificateView>> {
        let now = self.now();
        let old = self.one_certificate(tenant, id)?;
        if old.certificate.revoked_at.is_some() {
            return refuse(
                "certificate",
                "this certificate is revoked permanently; register a new \
                                          one",
            );
        }
        if old.certificate.sealed_key.is_some() && contents.key.is_none() {
            return refuse(
                "key",
                "the old certificate was registered with its key, so the new one needs its key too",
            );
        }
        let facts = read(old.certificate.kind, &contents, now)?;
        let certificate = Certificate {
            thumbprint: Thumbprint(facts.thumbprint),
            subject: facts.subject,
            pem: self.bounded(tenant, &contents)?,
            sealed_key: self.seal_key(tenant, id, contents.key.as_deref()),
            not_before: facts.not_before,
            not_after: facts.not_after,
            updated_at: now,
            ..old.certificate.clone()
        };
        let expected = old.certificate.version;
        let change =
            CatalogChange::UpdateCertificate { certificate: Box::new(certificate), expected };
        self.change(change).await.map_err(|e| match e {
            Error::NotFound(_) => Error::NotFound("certificate"),
            Error::Changed { .. } => Error::Busy("the certificate was changed in the meantime"),
            other => other.about("caller certificate"),
        })?;
        self.one_certificate(tenant, id)
    }

    /// Takes a certificate back, for good. When this has returned, no attempt uses it and no caller
    /// is let in with it, on any node.
    pub async fn revoke_certificate(
        &self,
        tenant: TenantId,
        id: CertificateId,
    ) -> Result<Arc<CertificateView>> {
        let at = self.now();
        self.change(CatalogChange::RevokeCertificate { tenant, id, at })
            .await
            .map_err(|e| e.about("certificate"))?;
        self.tidy_sessions(KeyId::from_bytes(*id.as_bytes())).await;
        self.one_certificate(tenant, id)
    }

    /// Removes a certificate from the registry, and its key from the store.
    pub async fn delete_certificate(&self, tenant: TenantId, id: CertificateId) -> Result<()> {
        self.change(CatalogChange::DeleteCertificate { tenant, id })
            .await
            .map_err(|e| e.about("certificate"))?;
        self.tidy_sessions(KeyId::from_bytes(*id.as_bytes())).await;
        Ok(())
    }

    /// Who showed a certificate with this thumbprint to a proxy we believe? One that has an owner
    /// is meant only when the country of the subject is that owner. `None` for every one that is unknown, revoked,
    /// out of date or another owner's: the caller cannot tell which.
    pub fn authenticate_certificate(
        &self,
        thumbprint: Thumbprint,
        country: Option<&str>,
    ) -> Option<Principal> {
        self.catalog().caller(thumbprint, country, self.now()).map(|key| Principal {
            key,
            certificate: true,
            everywhere: false,
        })
    }
}
