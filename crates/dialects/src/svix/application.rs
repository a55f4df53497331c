//! Applications: tenants of the realm.
//!
//! Names of tenants are unique and plain, those of applications are neither; so a tenant is called after its application, and the
//! name that clients gave is a label of it.

use std::collections::BTreeMap;

use axum::response::Response;
use http::StatusCode;
use posthorn_domain::{ExternalId, Labels, Metadata, Tenant, TenantChange, TenantId, Timestamp};
use posthorn_engine::{Error, NewTenant, TenantFilter};
use serde_json::{Value, json};

use super::access::is_application;
use super::body::{Given, Object};
use super::call::{Answer, Call, json, nothing, ok};
use super::failure::Failure;
use super::id;
use super::once::Seed;
use super::page::{Paging, list as shown_list};

/// The label with the name that clients gave.
pub(super) const NAME: &str = "svix.name";
/// The label with the time of the last change.
const UPDATED: &str = "svix.updated";
/// The longest name.
pub(super) const NAME_BYTES_MAX: usize = 256;
/// How much of an application's name is part of its tenant's.
const SLUG_BYTES_MAX: usize = 64;

/// What an application is shown as.
pub(super) fn view(tenant: &Tenant) -> Value {
    let updated = tenant.labels.get(UPDATED).and_then(|text| text.parse().ok());
    let updated = updated.map_or(tenant.created_at, Timestamp::from_millis);
    let metadata: BTreeMap<String, String> = tenant.metadata.clone().into();
    let mut view = json!({
        "id": id::application(tenant.id),
        "name": tenant.labels.get(NAME).unwrap_or(&tenant.name),
        "metadata": metadata,
        "createdAt": id::time(tenant.created_at),
        "updatedAt": id::time(updated),
    });
    if let Some(uid) = &tenant.external_id {
        view["uid"] = json!(uid);
    }
    if let Some(rate) = tenant.deliveries_per_second {
        view["throttleRate"] = json!(rate);
        view["rateLimit"] = json!(rate);
    }
    view
}

/// `GET /app`.
pub(super) fn list(call: &Call) -> Answer {
    let paging = Paging::ordered(&call.query, true)?;
    let catalog = call.service.engine.catalog();
    let filter = TenantFilter { realm: Some(call.caller.realm.clone()), ..TenantFilter::default() };
    // Oldest first, a page or a little more at a time; the other ways need all that come before.
    let walks_on = paging.ascending && !paging.back;
    let after = match (&paging.iterator, walks_on) {
        (Some(iterator), true) => id::read_application(iterator),
        _ => None,
    };
    let wanted = if walks_on { paging.limit + 3 } else { usize::MAX };
    let mut all = catalog.tenants_page(&filter, after, wanted).0;
    all.retain(is_application);
    if !paging.ascending {
        all.reverse();
    }
    let (found, done) = paging.cut(all, |tenant| id::application(tenant.id));
    let end = |tenant: Option<&Tenant>| tenant.map(|tenant| id::application(tenant.id));
    let (first, last) = (end(found.first()), end(found.last()));
    ok(&shown_list(found.iter().map(view).collect(), done, first, last))
}

/// What somebody says about an application.
pub(super) struct Contents {
    name: Option<String>,
    uid: Option<Option<ExternalId>>,
    rate: Option<Option<u32>>,
    metadata: Option<Metadata>,
}

impl Contents {
    /// Reads a body; the name must be there unless it is only a change.
    pub(super) fn read(body: &mut Object, change: bool) -> Self {
        let name = match (change, change.then(|| body.text("name"))) {
            (true, Some(Given::Absent)) => None,
            (true, Some(Given::Some(name))) => Some(name),
            (true, _) => {
                body.refuse("name", "must not be null");
                None
            }
            (false, _) => Some(body.needed("name")),
        };
        let name = name.inspect(|name| {
            if name.is_empty() || name.len() > NAME_BYTES_MAX {
                body.refuse("name", format!("must be 1 to {NAME_BYTES_MAX} bytes"));
            } else if name.chars().any(|c| c <= '\u{8}') {
                body.refuse("name", "must not contain control characters");
            }
        });
        let uid = body.text("uid").change().map(|uid| {
            let uid = uid?;
            match id::check_uid(&uid, id::APPLICATION) {
                Ok(()) => uid.parse().ok(),
                Err(problem) => {
                    body.refuse("uid", problem);
                    None
                }
            }
        });
        let rate = body.number_of("throttleRate", "rateLimit").change().map(|rate| {
            let rate = rate?;
            if !(1..=u64::from(u16::MAX)).contains(&rate) {
                body.refuse("throttleRate", "must be from 1 to 65535");
            }
            u32::try_from(rate).ok()
        });
        let metadata = body.texts("metadata").change().map(Option::unwrap_or_default);
        let metadata = metadata.and_then(|pairs| match Metadata::try_from(pairs) {
            Ok(metadata) => Some(metadata),
            Err(error) => {
                body.refuse("metadata", error.to_string());
                None
            }
        });
        Self { name, uid, rate, metadata }
    }

    /// The name by which it can be found, if it has one.
    pub(super) fn uid(&self) -> Option<&ExternalId> {
        self.uid.as_ref()?.as_ref()
    }

    fn tenant(self, realm: posthorn_domain::RealmName, dice: u64, seed: Option<Seed>) -> NewTenant {
        let name = self.name.unwrap_or_default();
        NewTenant {
            name: tenant_name(&name, dice),
            realm,
            external_id: self.uid.flatten(),
            metadata: self.metadata.unwrap_or_default(),
            deliveries_per_second: self.rate.flatten(),
            labels: labels(&Labels::default(), &[(NAME, name)]),
            seed: seed.map(Seed::of_id),
        }
    }

    fn change(self, old: &Tenant, now: Timestamp, whole: bool) -> TenantChange {
        let mut told = vec![(UPDATED, now.as_millis().to_string())];
        told.extend(self.name.map(|name| (NAME, name)));
        let or_clear = |given| if whole { Some(Option::flatten(given)) } else { given };
        TenantChange {
            name: None,
            external_id: or_clear(self.uid),
            metadata: if whole { Some(self.metadata.unwrap_or_default()) } else { self.metadata },
            deliveries_per_second: if whole { Some(self.rate.flatten()) } else { self.rate },
            labels: Some(labels(&old.labels, &told)),
        }
    }
}

/// Labels with some of them changed. What does not fit is left as it was: names are bounded well below.
fn labels(old: &Labels, told: &[(&str, String)]) -> Labels {
    let mut all: BTreeMap<String, String> =
        old.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    all.extend(told.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    Labels::new(all).unwrap_or_else(|_| old.clone())
}

/// A name for a tenant that people recognise and that nobody else has.
fn tenant_name(name: &str, dice: u64) -> String {
    format!("{}-{:08x}", slug(name), dice as u32)
}

/// What is left of a name in the characters that names of tenants have.
pub(super) fn slug(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let mut slug = String::new();
    for c in name.chars() {
        match plain(c) {
            true => slug.push(c.to_ascii_lowercase()),
            false if slug.ends_with('-') || slug.is_empty() => {}
            false => slug.push('-'),
        }
        if slug.len() >= SLUG_BYTES_MAX {
            break;
        }
    }
    let slug = slug.trim_matches('-');
    if slug.is_empty() { "app".to_owned() } else { slug.to_owned() }
}

/// Makes an application, or finds the one with the same uid.
pub(super) async fn make(
    call: &Call,
    contents: Contents,
    seed: Option<Seed>,
) -> Result<Tenant, Failure> {
    let engine = &call.service.engine;
    let dice = seed.map_or_else(|| engine.dice(), Seed::dice);
    let new = contents.tenant(call.caller.realm.clone(), dice, seed);
    engine.create_tenant_in(new).await.map_err(|error| match error {
        Error::AlreadyExists(_) => {
            Failure::conflict("An application with this uid already exists.")
        }
        other => other.into(),
    })
}

/// `POST /app`.
pub(super) async fn create(mut call: Call, seed: Option<Seed>) -> Answer {
    let found = call.query.flag("get_if_exists")?.unwrap_or(false);
    let mut body = call.object(TenantId::DEFAULT).await?;
    let contents = Contents::read(&mut body, false);
    body.done()?;
    let uid = contents.uid().map(ToString::to_string);
    let known = |call: &Call| uid.as_deref().and_then(|uid| call.application(uid).ok());
    if let (true, Some(tenant)) = (found, known(&call)) {
        return ok(&view(&tenant));
    }
    match (make(&call, contents, seed).await, found) {
        (Ok(tenant), _) => Ok(json(StatusCode::CREATED, &view(&tenant))),
        // Somebody was faster.
        (Err(Failure::Conflict { code, detail }), true) => match known(&call) {
            Some(tenant) => ok(&view(&tenant)),
            None => Err(Failure::Conflict { code, detail }),
        },
        (Err(failure), _) => Err(failure),
    }
}

/// `GET /app/{app}`.
pub(super) fn get(call: &Call, app: &str) -> Answer {
    ok(&view(&call.application(app)?))
}

/// `PUT /app/{app}`: changed, or made under the uid of the body.
pub(super) async fn put(mut call: Call, app: &str) -> Answer {
    let mut body = call.object(TenantId::DEFAULT).await?;
    let contents = Contents::read(&mut body, false);
    body.done()?;
    match call.application(app) {
        Ok(tenant) => {
            let change = contents.change(&tenant, call.service.engine.now(), true);
            ok(&view(&changed(&call, &tenant, change).await?))
        }
        Err(_) => Ok(json(StatusCode::CREATED, &view(&make(&call, contents, None).await?))),
    }
}

/// `PATCH /app/{app}`: only what is said changes.
pub(super) async fn patch(mut call: Call, app: &str) -> Answer {
    let tenant = call.application(app)?;
    let mut body = call.object(tenant.id).await?;
    let contents = Contents::read(&mut body, true);
    body.done()?;
    let change = contents.change(&tenant, call.service.engine.now(), false);
    ok(&view(&changed(&call, &tenant, change).await?))
}

async fn changed(call: &Call, tenant: &Tenant, change: TenantChange) -> Result<Tenant, Failure> {
    let changed = call.service.engine.change_tenant(tenant.id, change).await;
    changed.map_err(|error| match error {
        Error::AlreadyExists(_) => {
            Failure::conflict("An application with this uid already exists.")
        }
        other => other.into(),
    })
}

/// `DELETE /app/{app}`: nothing of it is sent any more; a job removes what it has.
pub(super) async fn delete(call: Call, app: &str) -> Result<Response, Failure> {
    let tenant = call.application(app)?;
    call.service.engine.delete_tenant(tenant.id, call.who()).await?;
    Ok(nothing())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_are_called_after_their_applications() {
        assert_eq!(tenant_name("ACME Corp. (test)", 0x1_0000_00ab), "acme-corp.-test-000000ab");
        assert_eq!(tenant_name("株式会社", 5), "app-00000005");
        assert!(tenant_name(&"x".repeat(500), 5).len() < 128);
    }
}
