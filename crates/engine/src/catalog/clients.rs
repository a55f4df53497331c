//! Clients of dialects as requests need them: found by name, their secrets opened at the first use.

use std::sync::{Arc, OnceLock};

use posthorn_domain::{Client, ClientName, TenantId};
use posthorn_sealing::vault::{Secret, Vault};

use super::{Catalog, State};

/// One version of a client.
pub struct ClientView {
    /// The record.
    pub client: Client,
    vault: Arc<Vault>,
    opened: OnceLock<Option<Secret>>,
}

/// What binds a sealed secret to its place.
pub(crate) fn client_context(tenant: TenantId, name: &ClientName) -> Vec<u8> {
    let mut context = b"client-secret\0".to_vec();
    context.extend_from_slice(tenant.as_bytes());
    context.extend_from_slice(name.as_str().as_bytes());
    context
}

impl ClientView {
    pub(super) fn new(client: Client, vault: Arc<Vault>) -> Self {
        Self { client, vault, opened: OnceLock::new() }
    }

    /// What its requests are signed with. `None` when nothing was said at run time, or when no key opens
    /// it, which is said in the log once.
    pub fn secret(&self) -> Option<&Secret> {
        let open = || {
            let sealed = self.client.sealed_secret.as_ref()?;
            let context = client_context(self.client.tenant, &self.client.name);
            match self.vault.open(&context, sealed) {
                Ok(secret) => Some(secret),
                Err(e) => {
                    let client = self.client.name.as_str();
                    tracing::error!(client, error = %e, "the secret of a client cannot be \
                                                         decrypted");
                    None
                }
            }
        };
        self.opened.get_or_init(open).as_ref()
    }
}

impl State {
    pub(super) fn put_client(&mut self, client: Client, vault: &Arc<Vault>) {
        if let Some(tenant) = self.tenants.get_mut(&client.tenant) {
            let view = ClientView::new(client, Arc::clone(vault));
            tenant.clients.insert(view.client.name.clone(), Arc::new(view));
        }
    }

    pub(super) fn drop_client(&mut self, tenant: TenantId, name: &ClientName) {
        if let Some(tenant) = self.tenants.get_mut(&tenant) {
            tenant.clients.remove(name);
        }
    }
}

impl Catalog {
    /// One client of a tenant.
    pub fn client(&self, tenant: TenantId, name: &ClientName) -> Option<Arc<ClientView>> {
        let state = self.state.read();
        state.tenants.get(&tenant)?.clients.get(name).cloned()
    }

    /// All clients of a tenant, by name.
    pub fn clients(&self, tenant: TenantId) -> Vec<Arc<ClientView>> {
        let state = self.state.read();
        let tenant = state.tenants.get(&tenant).into_iter();
        let mut all: Vec<_> = tenant.flat_map(|t| t.clients.values().cloned()).collect();
        all.sort_by(|a, b| a.client.name.cmp(&b.client.name));
        all
    }

    /// All clients of all tenants.
    pub(crate) fn all_clients(&self) -> Vec<Arc<ClientView>> {
        let state = self.state.read();
        let mut all: Vec<_> =
            state.tenants.values().flat_map(|tenant| tenant.clients.values().cloned()).collect();
        all.sort_by(|a, b| {
            (a.client.tenant, &a.client.name).cmp(&(b.client.tenant, &b.client.name))
        });
        all
    }
}
