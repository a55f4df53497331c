//! Clients of dialects: their secrets and rights, as they are said at run time.

use std::sync::Arc;

use bytes::Bytes;
use posthorn_domain::{CatalogVersion, Client, ClientName, TenantId};
use posthorn_sealing::vault::Secret;
use posthorn_store::CatalogChange;
use tracing::warn;

use crate::catalog::ClientView;
use crate::catalog::clients::client_context;
use crate::engine::Engine;
use crate::error::{Error, Result};

/// Clients of one tenant at most: each is kept in memory on every node.
const CLIENTS_MAX: usize = 1_000;
/// The longest secret.
const SECRET_BYTES_MAX: usize = 4_096;
/// The most scopes of a client, and the longest of them.
const SCOPES_MAX: usize = 64;
const SCOPE_BYTES_MAX: usize = 128;
/// How often a change is merged anew when others change the same client at the same time.
const TRIES: usize = 5;

/// What is to be changed in a client; what is absent stays.
#[derive(Clone, Debug, Default)]
pub struct ClientChange {
    /// What its requests are signed with from now on.
    pub secret: Option<Secret>,
    /// What it may do from now on; `Some(None)`: what the configuration says.
    pub scopes: Option<Option<Vec<String>>>,
}

impl Engine {
    /// Makes a client, or changes one; says what it is then, and whether anything was changed. It is in
    /// effect on all nodes when this returned.
    pub async fn put_client(
        &self,
        tenant: TenantId,
        name: &ClientName,
        change: ClientChange,
    ) -> Result<(Arc<ClientView>, bool)> {
        self.catalog().tenant(tenant)?;
        let change = checked(change)?;
        for _ in 0..TRIES {
            let present = self.catalog().client(tenant, name);
            if let Some(view) = present.as_ref().filter(|view| is_so_already(view, &change)) {
                return Ok((Arc::clone(view), false));
            }
            if present.is_none() && self.catalog().clients(tenant).len() >= CLIENTS_MAX {
                let problem = format!("a tenant may have at most {CLIENTS_MAX} clients");
                return Err(Error::Event { field: "client", problem });
            }
            let old = present.as_ref().map(|view| &view.client);
            let seal = |secret: &Secret| {
                Bytes::from(self.inner.vault.seal(&client_context(tenant, name), secret.expose()))
            };
            let client = Client {
                tenant,
                name: name.clone(),
                sealed_secret: match &change.secret {
                    Some(secret) => Some(seal(secret)),
                    None => old.and_then(|old| old.sealed_secret.clone()),
                },
                scopes: match &change.scopes {
                    Some(scopes) => scopes.clone(),
                    None => old.and_then(|old| old.scopes.clone()),
                },
                updated_at: self.now(),
                version: CatalogVersion(0),
            };
            let expected = old.map_or(CatalogVersion(0), |old| old.version);
            let put = CatalogChange::PutClient { client: Box::new(client), expected };
            match self.change(put).await {
                Ok(()) => {
                    let view = self.catalog().client(tenant, name);
                    return view.map(|view| (view, true)).ok_or(Error::NotFound("client"));
                }
                // Somebody else was faster; the catalog has what is there now.
                Err(Error::Changed { .. }) => {}
                Err(e) => return Err(e.about("tenant")),
            }
        }
        Err(Error::Busy("the same client is being changed by others; try again"))
    }

    /// Takes back what was said of a client at run time, on all nodes.
    pub async fn delete_client(&self, tenant: TenantId, name: &ClientName) -> Result<()> {
        let change = CatalogChange::DeleteClient { tenant, name: name.clone() };
        self.change(change).await.map_err(|e| e.about("client"))
    }

    /// Seals the secrets of up to `limit` clients anew with the current key; says how many.
    pub(crate) async fn reseal_clients(&self, limit: usize) -> Result<usize> {
        let vault = &self.inner.vault;
        let due = |view: &Arc<ClientView>| {
            let sealed = view.client.sealed_secret.as_ref();
            sealed.is_some_and(|sealed| !vault.is_current(sealed)) && view.secret().is_some()
        };
        let views: Vec<_> =
            self.catalog().all_clients().into_iter().filter(due).take(limit).collect();
        let mut count = 0;
        for view in views {
            let (old, Some(secret)) = (&view.client, view.secret()) else { continue };
            let sealed = vault.seal(&client_context(old.tenant, &old.name), secret.expose());
            let client = Client { sealed_secret: Some(Bytes::from(sealed)), ..old.clone() };
            let put = CatalogChange::PutClient { client: Box::new(client), expected: old.version };
            match self.change(put).await {
                Ok(()) => count += 1,
                Err(Error::Changed { .. } | Error::NotFound(_)) => {
                    let client = old.name.as_str();
                    warn!(client, "changed while it was sealed again; trying later");
                }
                Err(e) => return Err(e),
            }
        }
        Ok(count)
    }
}

fn is_so_already(view: &ClientView, change: &ClientChange) -> bool {
    let same_secret = change.secret.as_ref().is_none_or(|new| view.secret() == Some(new));
    let same_scopes = change.scopes.as_ref().is_none_or(|new| view.client.scopes == *new);
    same_secret && same_scopes
}

fn checked(mut change: ClientChange) -> Result<ClientChange> {
    let refuse = |field, problem: String| Err(Error::Event { field, problem });
    if let Some(secret) = &change.secret
        && !(1..=SECRET_BYTES_MAX).contains(&secret.expose().len())
    {
        return refuse("secret", format!("must have 1 to {SECRET_BYTES_MAX} bytes"));
    }
    if let Some(Some(scopes)) = &mut change.scopes {
        scopes.sort_unstable();
        scopes.dedup();
        let fine = |scope: &String| {
            (1..=SCOPE_BYTES_MAX).contains(&scope.len()) && !scope.chars().any(char::is_control)
        };
        if scopes.len() > SCOPES_MAX || !scopes.iter().all(fine) {
            let problem = format!(
                "must be at most {SCOPES_MAX} texts of 1 to {SCOPE_BYTES_MAX} bytes, without control \
                 characters"
            );
            return refuse("scopes", problem);
        }
    }
    Ok(change)
}
