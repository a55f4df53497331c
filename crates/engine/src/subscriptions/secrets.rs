//! The secrets of subscriptions: sealed when they come in, made up where one is missing, replaced
//! with an overlap. One that is in use is shown again only to whom the caller lets, and the audit log has it first.

use std::sync::Arc;

use bytes::Bytes;
use posthorn_domain::policy::Auth;
use posthorn_domain::policy::headers::check_value;
use posthorn_domain::{
    AuditAction, Policy, SealedSecret, SecretName, Seed, Span, SubscriptionId, TenantId, Timestamp,
};
use posthorn_sealing::standard_webhooks::{SecretKind, SigningSecret};
use posthorn_sealing::vault::Vault;

use crate::audit::created;
use crate::catalog::SubscriptionView;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::request::secret_context;

/// Secrets of one name in use at once, so that a message's signatures stay a short header.
const SIGNING_SECRETS_MAX: usize = 8;

/// How far a rotation may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotationBounds {
    /// The longest overlap.
    pub overlap_max: Span,
    /// Secrets of one name in use at once, the new one included.
    pub secrets_max: usize,
}

impl RotationBounds {
    /// The widest there are, for systems that promise them to their customers: a week, and eleven secrets, whose signatures
    /// still are a header of about a kilobyte.
    pub const WIDEST: Self = Self { overlap_max: Span::from_secs(604_800), secrets_max: 11 };
}

/// A secret given by the subscriber.
#[derive(Clone)]
pub struct SecretInput {
    /// What the policy calls it.
    pub name: SecretName,
    /// The secret.
    pub value: String,
}

impl std::fmt::Debug for SecretInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretInput").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A secret to be replaced.
#[derive(Clone)]
pub struct Rotation {
    /// Which.
    pub name: SecretName,
    /// The new one; made up when absent.
    pub value: Option<String>,
    /// Which kind is made up; the kind of the present one when absent.
    pub kind: Option<SecretKind>,
    /// How long the old one goes on signing; the engine's default when absent.
    pub overlap: Option<Span>,
    /// What a secret that is made up is made of, so that doing it again changes nothing; chance when absent.
    pub seed: Option<Seed>,
}

impl std::fmt::Debug for Rotation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rotation").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Rotation {
    /// A secret of the same kind, with the usual overlap.
    pub fn of(name: SecretName) -> Self {
        Self { name, value: None, kind: None, overlap: None, seed: None }
    }
}

/// Seals a secret for its place.
pub(crate) fn seal(
    vault: &Vault,
    tenant: TenantId,
    id: SubscriptionId,
    secret: &SecretInput,
    now: Timestamp,
) -> Result<SealedSecret> {
    let problem = |problem: String| Error::Secret { name: secret.name.to_string(), problem };
    if secret.value.is_empty() || secret.value.len() > 4_096 {
        return Err(problem("must be 1 to 4096 bytes".to_owned()));
    }
    let context = secret_context(tenant, id, &secret.name);
    let sealed = vault.seal(&context, secret.value.as_bytes());
    Ok(SealedSecret {
        name: secret.name.clone(),
        sealed: Bytes::from(sealed),
        created_at: now,
        expires_at: None,
    })
}

impl Engine {
    /// The secrets of a new subscription, and the one that was made up, if it has to be told.
    pub(super) fn first_secrets(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
        policy: &Policy,
        given: &[SecretInput],
        kind: Option<SecretKind>,
        now: Timestamp,
    ) -> Result<(Vec<SealedSecret>, Option<String>)> {
        check_signing(policy, given)?;
        check_kind(policy, given, kind)?;
        let mut secrets = Vec::new();
        for secret in given {
            secrets.push(self.seal(tenant, id, secret, now)?);
        }
        let mut made = None;
        for name in missing(policy, &secrets) {
            let (text, told) = shown(&SigningSecret::generate_of(kind.unwrap_or_default()));
            secrets.push(self.seal(
                tenant,
                id,
                &SecretInput { name: name.clone(), value: text },
                now,
            )?);
            made = told;
        }
        check_secrets(policy, &secrets)?;
        Ok((secrets, made))
    }

    pub(crate) fn seal(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
        secret: &SecretInput,
        now: Timestamp,
    ) -> Result<SealedSecret> {
        seal(&self.inner.vault, tenant, id, secret, now)
    }

    /// The secret that signs now, for whoever may see it; of a private key its public half, and nothing where nothing
    /// signs. That somebody has seen a secret is in the audit log before it is shown: where no line can be written, nothing
    /// is. A public half is no secret, and leaves no line.
    pub async fn view_secret(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
    ) -> Result<Option<String>> {
        let view = self.catalog().subscription(tenant, id)?;
        let Some(secret) = view.signing_secret(self.now()) else {
            return Ok(view.public_half(self.now()));
        };
        let line = created(AuditAction::SecretViewed, "subscription", &id, tenant);
        self.writing(None, Some(line), true, |along| self.store().note(along)).await?;
        Ok(Some(secret))
    }

    /// A new secret; the old one goes on signing beside it for a while, where a message can carry
    /// several signatures. Where it can carry one only, the new one signs from now on. Returns the
    /// new one, the only time it is shown; a private key is not shown at all.
    pub async fn rotate_secret(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
        rotation: Rotation,
    ) -> Result<(Arc<SubscriptionView>, Option<String>)> {
        let overlap_max = self.inner.options.rotation_overlap_max;
        let bounds = RotationBounds { overlap_max, secrets_max: SIGNING_SECRETS_MAX };
        self.rotate_secret_within(tenant, id, rotation, bounds).await
    }

    /// The same within other bounds than the usual, for callers whose customers were promised them. Never beyond
    /// [`RotationBounds::WIDEST`], unless the configuration allows a longer overlap to everybody.
    pub async fn rotate_secret_within(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
        rotation: Rotation,
        bounds: RotationBounds,
    ) -> Result<(Arc<SubscriptionView>, Option<String>)> {
        let now = self.now();
        let Rotation { name, value, kind, overlap, seed } = rotation;
        let options = &self.inner.options;
        let widest = RotationBounds::WIDEST.overlap_max.max(options.rotation_overlap_max);
        let overlap_max = bounds.overlap_max.min(widest);
        let secrets_max = bounds.secrets_max.min(RotationBounds::WIDEST.secrets_max);
        let overlap = overlap.unwrap_or(options.rotation_overlap.min(overlap_max));
        if overlap > overlap_max {
            return Err(Error::Overlap { max: overlap_max });
        }
        if seed.is_some() {
            // It may have been done already, on another node.
            self.refresh_catalog().await?;
        }
        let view = self.catalog().subscription(tenant, id)?;
        if let Some(why) = view.destination.takes_no_secrets() {
            let problem = format!("{why}; give them again");
            return Err(Error::Secret { name: name.to_string(), problem });
        }
        let given = value.is_some();
        let (text, told) = match value {
            Some(text) => {
                let private = SigningSecret::parse(&text).is_ok_and(|s| s.public_key().is_some());
                let told = (!private).then(|| text.clone());
                (text, told)
            }
            None => {
                let present = || view.secrets().ok().and_then(|open| open.kind(&name, now));
                let kind = kind.or_else(present).unwrap_or_default();
                shown(&match seed {
                    Some(seed) => of_seed(&self.inner.vault, id, seed, kind),
                    None => SigningSecret::generate_of(kind),
                })
            }
        };
        let done = match (seed, view.secrets()) {
            (Some(_), Ok(open)) => {
                let mut own = open.signing(&name, now).into_iter().map(SigningSecret::to_text);
                // Somebody may go back to a secret that has not expired yet; one of a seed is only ever the seed's.
                match given {
                    true => own.next().is_some_and(|newest| newest == text),
                    false => own.any(|known| known == text),
                }
            }
            _ => false,
        };
        if done {
            return Ok((view, told));
        }
        let input = SecretInput { name: name.clone(), value: text };
        if let Ok(policy) = &view.policy {
            let given = std::slice::from_ref(&input);
            check_signing(policy, given)?;
            if kind.is_some() && !signs(policy, &name) {
                return Err(Error::SecretKind(format!(
                    "the policy does not sign with `{name}` using Standard Webhooks"
                )));
            }
            check_kind(policy, given, kind)?;
        }
        let fresh = self.seal(tenant, id, &input, now)?;
        let until = now.plus(overlap);
        let view = self
            .modify(tenant, id, None, true, |mut subscription| {
                subscription.secrets.retain(|old| old.expires_at.is_none_or(|at| now < at));
                for old in subscription.secrets.iter_mut().filter(|old| old.name == name) {
                    old.expires_at = Some(old.expires_at.map_or(until, |at| at.min(until)));
                }
                subscription.secrets.push(fresh.clone());
                let live = |old: &&SealedSecret| {
                    old.name == name && old.expires_at.is_none_or(|at| now < at)
                };
                if subscription.secrets.iter().filter(live).count() > secrets_max {
                    return Err(Error::Secret {
                        name: name.to_string(),
                        problem: format!(
                            "{secrets_max} secrets of this name are already in use; wait \
                             until one has expired, or rotate with an overlap of 0s"
                        ),
                    });
                }
                Ok(subscription)
            })
            .await?;
        Ok((view, told))
    }
}

/// The secret that a seed stands for. The seed lies in the store for all to read who have it, so the vault has its part.
fn of_seed(vault: &Vault, id: SubscriptionId, seed: Seed, kind: SecretKind) -> SigningSecret {
    let (at, chance) = seed;
    let from = [&at.as_millis().to_be_bytes()[..], &chance.to_be_bytes(), id.as_bytes()].concat();
    SigningSecret::made_of(kind, vault.derive(b"signing secret of a seed", &from))
}

/// A signing secret as text, and the same again if its owner has to be told. The receiver of
/// asymmetric signatures needs the public key only, so the private one never leaves.
fn shown(secret: &SigningSecret) -> (String, Option<String>) {
    let text = secret.to_text();
    let told = (secret.kind() == SecretKind::Hmac).then(|| text.clone());
    (text, told)
}

/// Refuses secrets for a destination that takes none: they can only be a mistake.
pub(super) fn check_no_secrets(
    why: &str,
    given: &[SecretInput],
    kind: Option<SecretKind>,
) -> Result<()> {
    let problem = format!("{why}; leave it out");
    match given.first() {
        Some(secret) => Err(Error::Secret { name: secret.name.to_string(), problem }),
        None if kind.is_some() => Err(Error::SecretKind(problem)),
        None => Ok(()),
    }
}

/// A wish for a kind must be one that can come true: the policy signs, and no secret of another kind
/// was given for it.
fn check_kind(policy: &Policy, given: &[SecretInput], kind: Option<SecretKind>) -> Result<()> {
    let Some(kind) = kind else { return Ok(()) };
    if !policy.auth.iter().any(|auth| matches!(auth, Auth::StandardWebhooks { .. })) {
        return Err(Error::SecretKind(
            "the policy does not use Standard Webhooks signatures; leave it out".to_owned(),
        ));
    }
    for secret in given.iter().filter(|secret| signs(policy, &secret.name)) {
        match SigningSecret::parse(&secret.value) {
            Ok(parsed) if parsed.kind() != kind => {
                return Err(Error::SecretKind(format!(
                    "the secret `{}` that was given is of the kind {}; leave one of the two out",
                    secret.name,
                    parsed.kind().as_str()
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Signing secrets a policy needs and a subscription does not have.
fn missing<'p>(policy: &'p Policy, secrets: &[SealedSecret]) -> Vec<&'p SecretName> {
    let lacks = |name: &SecretName| !secrets.iter().any(|secret| secret.name == *name);
    policy
        .auth
        .iter()
        .filter_map(|auth| match auth {
            Auth::StandardWebhooks { secret, .. } if lacks(secret) => Some(secret),
            _ => None,
        })
        .collect()
}

/// Whether a policy signs with the secret of this name after Standard Webhooks.
fn signs(policy: &Policy, name: &SecretName) -> bool {
    let with =
        |auth: &Auth| matches!(auth, Auth::StandardWebhooks { secret, .. } if secret == name);
    policy.auth.iter().any(with)
}

/// Secrets that sign must have the form of a signing secret, and those that are sent the characters
/// of a header value; otherwise every attempt would fail.
pub(super) fn check_signing(policy: &Policy, given: &[SecretInput]) -> Result<()> {
    let problem = |secret: &SecretInput, problem: String| {
        Err(Error::Secret { name: secret.name.to_string(), problem })
    };
    for secret in given {
        if signs(policy, &secret.name)
            && let Err(e) = SigningSecret::parse(&secret.value)
        {
            return problem(secret, e.to_string());
        }
        if is_header_value(policy, &secret.name)
            && let Err(e) = check_value(&secret.value)
        {
            return problem(secret, e.to_string());
        }
    }
    Ok(())
}

/// Whether a secret stands in a header as it is.
fn is_header_value(policy: &Policy, name: &SecretName) -> bool {
    policy.auth.iter().any(|auth| match auth {
        Auth::Bearer { secret } | Auth::SecretHeader { secret, .. } => secret == name,
        _ => false,
    })
}

/// Whether a policy needs a secret of this name.
pub(crate) fn names_secret(policy: &Policy, name: &SecretName) -> bool {
    policy.auth.iter().flat_map(Auth::secrets).any(|needed| needed == name)
}

pub(crate) fn check_secrets(policy: &Policy, secrets: &[SealedSecret]) -> Result<()> {
    for name in policy.auth.iter().flat_map(Auth::secrets) {
        if !secrets.iter().any(|secret| secret.name == *name) {
            return Err(Error::Secret {
                name: name.to_string(),
                problem: "the policy needs it, but it is missing".to_owned(),
            });
        }
    }
    Ok(())
}
