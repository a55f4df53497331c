//! Keys: who may do what, when they were last used, a new one, and taking one back.

use std::sync::Arc;

use askama::Template;
use http::{Method, StatusCode};
use posthorn_domain::{KeyId, Scope, TenantId, Timestamp};
use posthorn_engine::KnownKey;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Answer;
use super::show::{Listed, Pager, Shown, Time};
use super::sure::{self, Question};
use super::tenants::realm_names;
use super::typed::{self, Typed, Wrong};
use crate::form::Fields;
use crate::frame::{Frame, Place};
use crate::text;
use crate::trouble::Trouble;
use crate::visit::{Visit, page, see};

const FIELDS: &[&str] = &["description", "scopes", "tenant", "realm", "expires_at", "rate_limit"];

/// Every scope, with what it is for.
const SCOPES: [(&str, &str); 4] = [
    ("publish", "publish events"),
    ("manage", "change topics and subscriptions, retry and cancel deliveries"),
    ("read", "read everything of the tenant"),
    ("operator", "everything, in every tenant"),
];

/// A key as the API gives it.
#[derive(Deserialize)]
pub(crate) struct KeyRow {
    id: KeyId,
    tenant: Option<TenantId>,
    realm: Option<String>,
    description: String,
    scopes: Vec<Scope>,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
    rate_limit: Option<u32>,
    last_used_at: Option<Timestamp>,
}

impl KeyRow {
    /// The same of one in the catalog.
    pub(crate) fn of(key: &KnownKey, last_used_at: Option<Timestamp>) -> Self {
        Self {
            id: key.id,
            tenant: key.tenant,
            realm: key.realm.as_ref().map(ToString::to_string),
            description: key.description.clone(),
            scopes: key.scopes.clone(),
            created_at: key.created_at,
            expires_at: key.expires_at,
            revoked_at: key.revoked_at,
            rate_limit: key.rate_limit,
            last_used_at,
        }
    }
}

/// A row of a table of keys.
pub(crate) struct KeyLine {
    pub(crate) id: String,
    pub(crate) description: String,
    pub(crate) scopes: String,
    /// For whom it acts, and where that is shown.
    pub(crate) bound: String,
    pub(crate) bound_href: Option<String>,
    pub(crate) shown: Shown,
    pub(crate) rate: Option<u32>,
    pub(crate) made: Time,
    pub(crate) used: Option<Time>,
    pub(crate) expires: Option<Time>,
    /// Whether it can still be taken back.
    pub(crate) works: bool,
    /// Whether this session stands and falls with it.
    pub(crate) own: bool,
}

pub(crate) fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Publish => "publish",
        Scope::Manage => "manage",
        Scope::Read => "read",
        Scope::Operator => "operator",
    }
}

pub(crate) fn line(visit: &Visit, row: &KeyRow, now: Timestamp) -> KeyLine {
    let (bound, bound_href) = match (row.tenant, &row.realm) {
        (Some(id), _) => {
            let known = visit.engine().catalog().tenant_or_tombstone(id);
            let name = known.map_or_else(|| id.to_string(), |(tenant, _)| tenant.name);
            (format!("tenant {}", text::line(&name, 80)), Some(format!("/console/tenants/{id}")))
        }
        (None, Some(realm)) => {
            let href = format!("/console/realms/{}", typed::part(realm));
            (format!("realm {}", text::line(realm, 80)), Some(href))
        }
        (None, None) => ("every tenant".to_owned(), None),
    };
    let shown = match (row.revoked_at, row.expires_at) {
        (Some(_), _) => Shown::new("off", "revoked"),
        (None, Some(at)) if at <= now => Shown::new("off", "expired"),
        (None, _) => Shown::new("good", "valid"),
    };
    let scopes: Vec<&str> = row.scopes.iter().copied().map(scope_name).collect();
    KeyLine {
        id: row.id.to_string(),
        description: text::line(&row.description, 120),
        scopes: scopes.join(", "),
        bound,
        bound_href,
        works: shown.class == "good",
        shown,
        rate: row.rate_limit,
        made: Time::new(row.created_at, now),
        used: row.last_used_at.map(|at| Time::new(at, now)),
        expires: row.expires_at.map(|at| Time::new(at, now)),
        own: visit.session.opener.key() == Some(row.id),
    }
}

#[derive(Template)]
#[template(path = "keys.html")]
struct KeysPage {
    frame: Frame,
    keys: Vec<KeyLine>,
    next: Option<String>,
}

/// `GET /console/keys`.
pub(crate) async fn list(visit: Arc<Visit>) -> Answer {
    let wanted = visit.query.query(&["cursor"], &[("limit", "50")]);
    let list: Listed<KeyRow> = visit.get(&format!("/v1/keys?{wanted}")).await?;
    let now = visit.now();
    let html = KeysPage {
        frame: Frame::new(&visit, Place::Keys, "Keys").await,
        keys: list.items.iter().map(|row| line(&visit, row, now)).collect(),
        next: Pager::of(&list, &visit.query, &[], now).next,
    };
    Ok(page(&visit.headers, StatusCode::OK, html.render()?))
}

#[derive(Template)]
#[template(path = "key_new.html")]
struct NewPage {
    frame: Frame,
    form: Typed,
    scopes: &'static [(&'static str, &'static str)],
    tenants: Vec<String>,
    realms: Vec<String>,
}

/// `GET /console/keys/new`.
pub(crate) async fn new(visit: Arc<Visit>) -> Answer {
    form(&visit, visit.query.clone(), None).await
}

async fn form(visit: &Visit, typed: Fields, wrong: Option<Wrong>) -> Answer {
    let form = Typed::new(FIELDS, typed).wrong(wrong);
    let status = form.status();
    let frame = Frame::new(visit, Place::Keys, "New key").await.below("/console/keys", "Keys");
    let html = NewPage {
        tenants: frame.tenants.clone(),
        frame,
        form,
        scopes: &SCOPES,
        realms: realm_names(visit),
    };
    Ok(page(&visit.headers, status, html.render()?))
}

/// A new key, with the text that is shown once.
#[derive(Deserialize)]
struct Made {
    id: KeyId,
    key: String,
}

#[derive(Template)]
#[template(path = "key_made.html")]
struct MadePage {
    frame: Frame,
    id: String,
    key: String,
    back: Option<(String, String)>,
}

/// `POST /console/keys/new`. Answers with the key itself: it can be shown only now.
pub(crate) async fn create(visit: Arc<Visit>) -> Answer {
    let body = match body(&visit.form) {
        Ok(body) => body,
        Err(wrong) => return form(&visit, visit.form.clone(), Some(wrong)).await,
    };
    let made: Made = match visit.send(Method::POST, "/v1/keys", Some(&body)).await {
        Ok(made) => made,
        Err(trouble) => {
            return form(&visit, visit.form.clone(), Some(typed::refused(trouble)?)).await;
        }
    };
    let tenant = visit.engine().catalog().key(made.id).and_then(|key| key.tenant);
    let tenant = tenant.and_then(|id| visit.engine().catalog().tenant(id).ok());
    let html = MadePage {
        frame: Frame::new(&visit, Place::Keys, "The new key").await.below("/console/keys", "Keys"),
        id: made.id.to_string(),
        key: made.key,
        back: tenant.map(|own| (format!("/console/tenants/{}", own.id), text::line(&own.name, 80))),
    };
    Ok(page(&visit.headers, StatusCode::OK, html.render()?))
}

fn body(form: &Fields) -> Result<Value, Wrong> {
    let scopes: Vec<&str> = form.all("scopes").collect();
    let mut body = json!({
        "scopes": scopes,
        "description": form.get("description").unwrap_or_default(),
    });
    for name in ["tenant", "realm", "expires_at"] {
        if let Some(value) = form.get(name) {
            body[name] = Value::from(value);
        }
    }
    let rate = typed::number(form, "rate_limit")?;
    if !rate.is_null() {
        body["rate_limit"] = rate;
    }
    Ok(body)
}

/// `POST /console/keys/{id}/revoke`.
pub(crate) async fn revoke(visit: Arc<Visit>) -> Answer {
    let id = visit.named.first().and_then(|text| text.parse::<KeyId>().ok());
    let id = id.ok_or(Trouble::NotFound("key"))?;
    let tenant = visit.engine().catalog().key(id).and_then(|key| key.tenant);
    let of_tenant = tenant.filter(|_| visit.form.get("from") == Some("tenant"));
    let list = match of_tenant {
        Some(tenant) => format!("/console/tenants/{tenant}"),
        None => "/console/keys".to_owned(),
    };
    let mut text = format!("Key {id} stops working at once and cannot come back.");
    if visit.session.opener.key() == Some(id) {
        text.push_str(" It is the key of this session: you are logged out.");
    }
    let question = Question {
        place: Place::Keys,
        title: "Revoke this key?",
        text: &text,
        button: "Revoke it",
        back: list.clone(),
    };
    if let Some(asked) = sure::ask(&visit, question).await {
        return asked;
    }
    visit.send_bytes(Method::DELETE, &format!("/v1/keys/{id}"), None).await?;
    // Back to where the button was, as far as that is known.
    Ok(see(&format!("{list}?done=revoked")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_becomes_a_key() {
        let form = Fields::parse(
            b"description=ci&scopes=read&scopes=publish&tenant=acme&realm=&expires_at=&rate_limit=5",
        );
        let wanted = json!({
            "scopes": ["read", "publish"], "description": "ci", "tenant": "acme", "rate_limit": 5,
        });
        assert_eq!(body(&form), Ok(wanted));
        assert_eq!(body(&Fields::parse(b"rate_limit=a")).unwrap_err().0, "rate_limit");
    }

    #[test]
    fn every_scope_can_be_chosen() {
        let all = [Scope::Publish, Scope::Manage, Scope::Read, Scope::Operator];
        assert_eq!(all.map(scope_name), SCOPES.map(|(name, _)| name));
    }
}
