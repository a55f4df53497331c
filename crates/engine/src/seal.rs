//! Sealing anew: after a change of keys, every stored secret is opened and sealed with the current
//! key, a few at a time, while everything goes on.
//!
//! Each subscription, certificate and client is changed by itself and only if nobody else changed it
//! meanwhile, so that a stop at any moment leaves every secret sealed with one of the two keys, and repeating is harmless.

use std::sync::Arc;

use bytes::Bytes;
use posthorn_domain::{Certificate, SealedSecret, Subscription};
use posthorn_store::CatalogChange;
use tracing::warn;

use crate::catalog::certificates::key_context;
use crate::catalog::{CertificateView, SubscriptionView};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::request::secret_context;

/// What was done, and what is left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resealed {
    /// The public name of the current key.
    pub key: String,
    /// Secrets there are.
    pub total: usize,
    /// Secrets that were sealed anew this time.
    pub resealed: usize,
    /// Secrets that are still sealed with another key.
    pub remaining: usize,
    /// Those of them that no key opens: they stay as they are.
    pub unopenable: usize,
}

impl Engine {
    /// Seals the secrets of up to `limit` subscriptions and the keys of up to `limit` certificates
    /// anew with the current key.
    pub async fn reseal(&self, limit: usize) -> Result<Resealed> {
        self.refresh_catalog().await?;
        let mut done = Resealed { key: self.inner.vault.key_name(), ..Resealed::default() };
        let due = |view: &Arc<SubscriptionView>| {
            let mut secrets = view.subscription.secrets.iter();
            secrets.any(|s| self.is_due(s) && self.opens(&view.subscription, s))
        };
        let views: Vec<_> =
            self.catalog().all_subscriptions().into_iter().filter(due).take(limit).collect();
        for view in views {
            let old = view.subscription.version;
            let (subscription, count) = self.sealed_anew(view.subscription.clone());
            let (id, tenant) = (subscription.id, subscription.tenant);
            let subscription = Box::new(subscription);
            let change = CatalogChange::UpdateSubscription { subscription, expected: Some(old) };
            match self.change(change).await {
                Ok(()) => done.resealed += count,
                // Somebody changed or deleted it; what is left of it comes up the next time.
                Err(Error::Changed { .. } | Error::NotFound(_)) => {
                    warn!(subscription = %id, %tenant, "changed while it was sealed again; trying \
                                                        later");
                    self.refresh_catalog().await?;
                }
                Err(e) => return Err(e),
            }
        }
        done.resealed += self.reseal_certificates(limit).await?;
        done.resealed += self.reseal_clients(limit).await?;
        for view in self.catalog().all_clients() {
            let Some(sealed) = &view.client.sealed_secret else { continue };
            done.total += 1;
            if !self.inner.vault.is_current(sealed) {
                done.remaining += 1;
                done.unopenable += usize::from(view.secret().is_none());
            }
        }
        for view in self.catalog().all_certificates() {
            let Some(sealed) = &view.certificate.sealed_key else { continue };
            done.total += 1;
            if !self.inner.vault.is_current(sealed) {
                done.remaining += 1;
                done.unopenable += usize::from(!self.opens_key(&view.certificate));
            }
        }
        for view in self.catalog().all_subscriptions() {
            for secret in &view.subscription.secrets {
                done.total += 1;
                if self.is_due(secret) {
                    done.remaining += 1;
                    done.unopenable += usize::from(!self.opens(&view.subscription, secret));
                }
            }
        }
        Ok(done)
    }

    /// The same for the private keys of certificates.
    async fn reseal_certificates(&self, limit: usize) -> Result<usize> {
        let vault = &self.inner.vault;
        let due = |view: &Arc<CertificateView>| {
            let sealed = view.certificate.sealed_key.as_ref();
            sealed.is_some_and(|s| !vault.is_current(s)) && self.opens_key(&view.certificate)
        };
        let views: Vec<_> =
            self.catalog().all_certificates().into_iter().filter(due).take(limit).collect();
        let mut count = 0;
        for view in views {
            let old = &view.certificate;
            let context = key_context(old.tenant, old.id);
            let Some(Ok(key)) = old.sealed_key.as_ref().map(|s| vault.open(&context, s)) else {
                continue;
            };
            let sealed_key = Some(Bytes::from(vault.seal(&context, key.expose())));
            let certificate = Box::new(Certificate { sealed_key, ..old.clone() });
            let change = CatalogChange::UpdateCertificate { certificate, expected: old.version };
            match self.change(change).await {
                Ok(()) => count += 1,
                Err(Error::Changed { .. } | Error::NotFound(_)) => {
                    warn!(certificate = %old.id, "changed while it was sealed again; trying later");
                    self.refresh_catalog().await?;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(count)
    }

    fn opens_key(&self, certificate: &Certificate) -> bool {
        let context = key_context(certificate.tenant, certificate.id);
        let sealed = certificate.sealed_key.as_ref();
        sealed.is_some_and(|sealed| self.inner.vault.open(&context, sealed).is_ok())
    }

    fn is_due(&self, secret: &SealedSecret) -> bool {
        !self.inner.vault.is_current(&secret.sealed)
    }

    fn opens(&self, owner: &Subscription, secret: &SealedSecret) -> bool {
        let context = secret_context(owner.tenant, owner.id, &secret.name);
        self.inner.vault.open(&context, &secret.sealed).is_ok()
    }

    fn sealed_anew(&self, mut subscription: Subscription) -> (Subscription, usize) {
        let vault = &self.inner.vault;
        let (tenant, id) = (subscription.tenant, subscription.id);
        let mut count = 0;
        for secret in &mut subscription.secrets {
            let context = secret_context(tenant, id, &secret.name);
            if !vault.is_current(&secret.sealed)
                && let Ok(open) = vault.open(&context, &secret.sealed)
            {
                secret.sealed = Bytes::from(vault.seal(&context, open.expose()));
                count += 1;
            }
        }
        (subscription, count)
    }
}
