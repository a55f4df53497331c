//! Tenants: making, changing and deleting them.
//!
//! # Theory of operation
//! To delete a tenant is one change of the catalog that says so, written together with the job that removes what
//! the tenant has. When it is answered, every node has let go of the tenant: no attempt of it starts, none of its keys
//! opens anything, nothing is accepted for it. What is left are rows, which the job removes at its pace, on whichever
//! node is on duty.
//!
//! # What it must not know
//! Which rows a tenant has.

use posthorn_domain::{
    ExternalId, Job, JobWork, Labels, Metadata, RealmName, SYSTEM_TENANT, Seed, Tenant,
    TenantChange, TenantId,
};
use posthorn_store::CatalogChange;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::replays::JOB_PER_SECOND_MAX;

/// The tenant of operators is made by the engine itself.
fn check_name(name: &str) -> Result<()> {
    if name == SYSTEM_TENANT { Err(Error::TenantReserved) } else { Ok(()) }
}

/// A tenant that somebody wants.
#[derive(Clone, Debug, Default)]
pub struct NewTenant {
    /// Unique among all tenants.
    pub name: String,
    /// The realm it is to be in.
    pub realm: RealmName,
    /// What the customer calls it.
    pub external_id: Option<ExternalId>,
    /// What the customer remembers of it.
    pub metadata: Metadata,
    /// What else is remembered of it.
    pub labels: Labels,
    /// Attempts that all its subscriptions together may begin in a second, on each node.
    pub deliveries_per_second: Option<u32>,
    /// What its id is made of; fresh when absent.
    pub seed: Option<Seed>,
}

impl Engine {
    /// Makes a tenant of the default realm.
    pub async fn create_tenant(&self, name: String) -> Result<Tenant> {
        self.create_tenant_in(NewTenant { name, ..NewTenant::default() }).await
    }

    /// Makes a tenant. One that was made of the same seed before is given back as it is.
    pub async fn create_tenant_in(&self, new: NewTenant) -> Result<Tenant> {
        let Some(seed) = new.seed else {
            let id = self.inner.chance.tenant_id(self.now());
            return self.create_tenant_with(id, new).await;
        };
        let id = TenantId::of_seed(seed);
        if let Ok(tenant) = self.catalog().tenant(id) {
            return Ok(tenant);
        }
        match self.create_tenant_with(id, new).await {
            // By this seed on another node, or another tenant of this name.
            Err(e @ Error::AlreadyExists(_)) => {
                self.refresh_catalog().await?;
                self.catalog().tenant(id).map_err(|_| e)
            }
            created => created,
        }
    }

    async fn create_tenant_with(&self, id: TenantId, new: NewTenant) -> Result<Tenant> {
        check_name(&new.name)?;
        let now = self.now();
        let NewTenant {
            name,
            realm,
            external_id,
            metadata,
            labels,
            deliveries_per_second,
            seed: _,
        } = new;
        let tenant = Tenant {
            realm,
            external_id,
            metadata,
            labels,
            deliveries_per_second,
            ..Tenant::new(id, name, now)
        };
        self.change(CatalogChange::CreateTenant(tenant)).await.map_err(|e| match e {
            Error::NotFound(_) => Error::NotFound("realm"),
            e => e.about("tenant"),
        })?;
        self.catalog().tenant(id)
    }

    /// The tenant with this name; made when there is none. One that is called as the reserved tenant is usually, from before
    /// there was such a one, is as good as any; the reserved one itself is nobody's, and one that is being deleted is
    /// refused as such.
    pub async fn ensure_tenant(&self, name: &str) -> Result<Tenant> {
        if let Some(tenant) = self.usable_tenant(name)? {
            return Ok(tenant);
        }
        match self.create_tenant(name.to_owned()).await {
            Err(Error::AlreadyExists(_)) => {
                // Another node was faster.
                self.usable_tenant(name)?.ok_or(Error::NotFound("tenant"))
            }
            other => other,
        }
    }

    fn usable_tenant(&self, name: &str) -> Result<Option<Tenant>> {
        match self.catalog().tenant_named(name) {
            Some(tenant) if tenant.id == TenantId::SYSTEM => Err(Error::TenantReserved),
            Some(tenant) if tenant.deletion.is_some() => Err(Error::TenantDeleted),
            found => Ok(found),
        }
    }

    /// Changes a tenant; what is absent stays.
    pub async fn change_tenant(&self, tenant: TenantId, change: TenantChange) -> Result<Tenant> {
        if tenant == TenantId::SYSTEM {
            return Err(Error::TenantReserved);
        }
        change.name.as_deref().map_or(Ok(()), check_name)?;
        let realm = self.catalog().realm_of(tenant)?;
        let change = CatalogChange::ChangeTenant { tenant, realm, change };
        self.change(change).await.map_err(|e| e.about("tenant"))?;
        self.catalog().tenant(tenant)
    }

    /// Begins to delete a tenant with everything it has. When this returns, nothing of it happens any more, on any node.
    pub async fn delete_tenant(&self, tenant: TenantId, created_by: String) -> Result<Job> {
        if tenant == TenantId::DEFAULT {
            return Err(Error::DefaultTenant);
        }
        if tenant == TenantId::SYSTEM {
            return Err(Error::TenantReserved);
        }
        self.catalog().tenant(tenant)?;
        let job = self.job(tenant, JobWork::DeleteTenant, JOB_PER_SECOND_MAX, created_by);
        let delete = CatalogChange::DeleteTenant { tenant, job: job.id, at: self.now() };
        let line = self.line_of(&delete);
        let write = |along| self.store().create_job_with(job.clone(), Some(delete.clone()), along);
        self.change_with(self.writing(None, line, true, write))
            .await
            .map_err(|e| e.about("tenant"))?;
        self.go_on(job).await
    }

    /// The job that deletes a tenant, or did, as long as it is kept.
    pub async fn deletion_of(&self, tenant: TenantId) -> Result<Job> {
        let known = self.catalog().tenant_or_tombstone(tenant).ok_or(Error::NotFound("tenant"))?;
        let deletion = known.0.deletion.ok_or(Error::NotFound("deletion"))?;
        self.store().job(tenant, deletion.job).await?.ok_or(Error::NotFound("deletion"))
    }
}
