//! The audit log: who changed what, as far as the caller may know it.

use posthorn_access::find_tenant;
use posthorn_domain::{ActionFilter, Home, RealmName, TenantId};
use posthorn_engine::audit_view;
use posthorn_store::AuditFilter;

use crate::call::{Answer, Call};
use crate::cursor::{List, Paging};
use crate::problem::{Problem, Result};
use crate::respond;

/// The longest id that something can have.
const ID_BYTES_MAX: usize = 300;

/// `GET /v1/audit`.
pub(crate) async fn list(call: Call) -> Answer {
    let reader = call.reader();
    let (tenant, realm) = scope(&call, &reader)?;
    let filter = AuditFilter {
        tenant,
        realm,
        actor: id(&call, "actor")?,
        known_to: (reader != Home::Operator).then(|| reader.clone()),
        action: call.query.value::<ActionFilter>("action")?,
        object: id(&call, "object")?,
        period: call.query.period()?,
    };
    let paging = Paging::read(List::Audit, &call.query)?;
    let page = call.engine().store().audit(filter, paging.listing()).await?;
    let mut shown = paging.show(page);
    let lines = std::mem::take(&mut shown.items);
    respond::ok(&shown.page(lines.iter().map(|line| audit_view(line, &reader)).collect()))
}

/// An id or a name, of whatever kind.
fn id(call: &Call, name: &'static str) -> Result<Option<String>> {
    match call.query.text(name) {
        Some(text) if text.len() > ID_BYTES_MAX => {
            Err(Problem::field(name, format!("must be at most {ID_BYTES_MAX} bytes")))
        }
        text => Ok(text.map(str::to_owned)),
    }
}

/// Whose lines. Whoever names a tenant or a realm that is not theirs names none there is.
fn scope(call: &Call, reader: &Home) -> Result<(Option<TenantId>, Option<RealmName>)> {
    let catalog = call.engine().catalog();
    let named = match (call.header_tenant()?, call.query.text("tenant")) {
        (header, None) => header,
        (header, Some(text)) => {
            // Also one that was deleted: that line stays.
            let unknown = || Problem::not_found("tenant").at("tenant");
            let found = find_tenant(call.engine(), text).ok_or_else(unknown)?;
            let own = match reader {
                Home::Operator => true,
                Home::Realm(realm) => found.realm == *realm,
                Home::Tenant(tenant) => found.id == *tenant,
            };
            if !own {
                return Err(unknown());
            }
            if header.is_some_and(|header| header != found.id) {
                let detail = "is another tenant than that of the header Posthorn-Tenant";
                return Err(Problem::field("tenant", detail));
            }
            Some(found.id)
        }
    };
    let own_realm = match reader {
        Home::Operator => None,
        Home::Realm(realm) => Some(realm.clone()),
        Home::Tenant(tenant) => Some(catalog.realm_of(*tenant)?),
    };
    let realm: Option<RealmName> = call.query.value("realm")?;
    if let Some(realm) = &realm {
        let foreign = own_realm.as_ref().is_some_and(|own| own != realm);
        if foreign || catalog.realm(realm).is_err() {
            return Err(Problem::not_found("realm"));
        }
    }
    Ok(match reader {
        Home::Operator => (named, realm),
        // Its lines are found by the tenant, if there is one.
        Home::Realm(own) => (named, Some(own.clone())),
        Home::Tenant(own) => (Some(*own), None),
    })
}
