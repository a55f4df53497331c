//! Where a subscription may deliver to: what is checked of a URL or a channel before it is kept, and
//! again when the policy changes.

use posthorn_domain::policy::{Auth, Policy, PolicyError};
use posthorn_domain::{Destination, SubscriptionId, TenantId};

use super::SubscriptionChange;
use crate::catalog::Endpoint;
use crate::catalog::certificates::{NoCertificate, Purpose};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::push::{self, OpenedPush, PushInput};
use crate::request::SubscriptionLookup;
use crate::tokens::token_endpoint;
use crate::transport::UrlProblem;

/// A destination that was asked for and may be used.
pub(super) enum Wanted {
    /// A normalised URL.
    Webhook(String),
    /// A channel.
    Push(OpenedPush),
}

impl Wanted {
    pub(super) fn aim(&self) -> Aim<'_> {
        match self {
            Self::Webhook(url) => Aim::Url(url),
            Self::Push(_) => Aim::Channel,
        }
    }
}

/// What a policy has to fit.
#[derive(Clone, Copy)]
pub(super) enum Aim<'a> {
    /// Requests to this URL.
    Url(&'a str),
    /// Messages to a channel.
    Channel,
}

impl<'a> Aim<'a> {
    fn of(destination: &'a Destination) -> Self {
        destination.url().map_or(Self::Channel, Self::Url)
    }
}

impl Engine {
    /// Checks what was asked for: the channel if there is one, the URL otherwise.
    pub(super) async fn wanted(
        &self,
        tenant: TenantId,
        url: &str,
        push: Option<&PushInput>,
    ) -> Result<Wanted> {
        Ok(match push {
            Some(push) => Wanted::Push(self.open_push(tenant, push).await?),
            None => Wanted::Webhook(self.check_url(url)?),
        })
    }

    /// A URL as a subscription would keep it, when the guard has nothing against it.
    pub fn check_url(&self, url: &str) -> Result<String> {
        Ok(self.inner.around.transport.check_url(url)?)
    }

    /// What a policy demands of a destination beyond what the guard demands of all: its own rules for
    /// URLs, names that resolve, and certificates that exist.
    pub(super) async fn check_destination(
        &self,
        tenant: TenantId,
        known: &SubscriptionLookup<'_>,
        aim: Aim<'_>,
        policy: &Policy,
    ) -> Result<()> {
        let url = match aim {
            Aim::Url(url) => url,
            Aim::Channel => return Ok(push::check_policy(policy)?),
        };
        let endpoint = Endpoint::new(url.to_owned());
        let parts = endpoint.parts();
        parts.check(&policy.url)?;
        if policy.url.resolve {
            self.inner.around.transport.vet(url).await?;
        }
        let now = self.now();
        let missing = |field: &'static str| {
            move |e: NoCertificate| Error::Certificate { field, problem: e.to_string() }
        };
        for auth in &policy.auth {
            let Some(choice) = auth.certificate() else { continue };
            let shown = matches!(auth, Auth::ClientCertificate(_));
            if shown && !parts.https {
                let message = "a client certificate can only be shown over https".to_owned();
                return Err(UrlProblem { code: "https_only", message }.into());
            }
            let purpose = if shown { Purpose::Show } else { Purpose::Name };
            let found = self
                .catalog()
                .client_certificate(tenant, choice, known, parts.host, purpose, now)
                .map_err(missing("policy.auth"))?;
            if shown {
                found.identity().map_err(|problem| Error::Certificate {
                    field: "policy.auth",
                    problem: format!("certificate {} {problem}", found.certificate.id),
                })?;
            }
        }
        self.catalog()
            .authorities(tenant, &policy.tls.authorities, now)
            .map_err(missing("policy.tls.authorities"))?;
        Ok(())
    }

    /// The same for a change, when it concerns the destination or the policy.
    pub(super) async fn check_changed_destination(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
        change: &SubscriptionChange,
        wanted: Option<&Wanted>,
    ) -> Result<()> {
        let view = self.catalog().subscription(tenant, id)?;
        let old = &view.subscription;
        let profile = change.profile.as_ref().unwrap_or(&old.profile);
        let overrides = change.overrides.as_ref().unwrap_or(&old.overrides);
        let policy = self.catalog().profile(tenant, profile)?.patched(overrides)?;
        // Names and labels concern the destination only where they say whose certificate is shown.
        let owners = policy.auth.iter().filter_map(|auth| auth.certificate()?.owner.as_ref());
        let named = owners.flat_map(|owner| owner.names()).next().is_some();
        let renamed = change.name.is_some() || change.labels.is_some();
        if wanted.is_none()
            && change.profile.is_none()
            && change.overrides.is_none()
            && !(renamed && named)
        {
            return Ok(());
        }
        let known = SubscriptionLookup {
            name: change.name.as_ref().unwrap_or(&old.name).as_ref(),
            labels: change.labels.as_ref().unwrap_or(&old.labels),
        };
        let aim = wanted.map_or_else(|| Aim::of(&old.destination), Wanted::aim);
        self.check_destination(tenant, &known, aim, &policy).await
    }

    /// Refuses a token server that could never be reached or told a secret, and a gate that could
    /// never be asked, as far as their URLs tell. What a template becomes is checked when it is used.
    pub(crate) fn check_other_urls(&self, policy: &Policy) -> Result<()> {
        for (index, auth) in policy.auth.iter().enumerate() {
            if let Auth::Oauth2(client) = auth
                && let Err(problem) =
                    token_endpoint(&*self.inner.around.transport, client, &policy.url)
            {
                let path = format!("auth[{index}].token_url");
                return Err(PolicyError { path, problem: problem.to_string() }.into());
            }
        }
        if let Some(gate) = &policy.gate
            && gate.url.source().to_ascii_lowercase().starts_with("http://")
            && let Err(problem) =
                Endpoint::new(gate.url.source().to_owned()).parts().check_scheme(&policy.url)
        {
            let path = "gate.url".to_owned();
            return Err(PolicyError { path, problem: problem.to_string() }.into());
        }
        Ok(())
    }
}
