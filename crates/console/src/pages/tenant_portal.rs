//! The portal of one tenant: links into it with what they allow and for how long, and who is in.

use std::sync::Arc;

use askama::Template;
use http::{Method, StatusCode};
use posthorn_domain::{Capability, Session, SessionKind, TenantId, Timestamp};
use posthorn_store::{Listing, SessionFilter};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Answer;
use super::show::{Shown, Time};
use super::tenant::{self, Refused};
use super::typed;
use crate::form::Fields;
use crate::frame::{Frame, Place};
use crate::text;
use crate::trouble::Trouble;
use crate::visit::{Visit, page};

/// Sessions, and links, that are shown.
const SHOWN_MAX: usize = 50;
/// Fields of the form, as the API calls them.
pub(crate) const FIELDS: &[&str] = &["capabilities", "redeem_within", "expires_in"];

/// What a link can allow, and what that means.
pub(crate) const CAPABILITIES: [(&str, &str); 5] = [
    ("view", "see endpoints, messages and attempts"),
    ("manage_endpoints", "create, change and delete endpoints"),
    ("resend", "have messages sent again"),
    ("rotate_secret", "replace the secrets of endpoints"),
    ("see_secret", "see the secrets that are in use"),
];

/// A session in the portal, or a link that nobody has redeemed.
pub(crate) struct Guest {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) shown: Shown,
    pub(crate) may: String,
    pub(crate) ends: Time,
    pub(crate) made: Time,
}

/// Who is in the portal of a tenant or has a link into it, and whether there are more.
pub(crate) async fn guests(
    visit: &Visit,
    tenant: TenantId,
    now: Timestamp,
) -> Result<(Vec<Guest>, bool), Trouble> {
    let mut guests = Vec::new();
    let mut more = false;
    for kind in [SessionKind::Portal, SessionKind::Link] {
        let filter = SessionFilter {
            kind: Some(kind),
            tenant: Some(tenant),
            unexpired_at: Some(now),
            ..SessionFilter::default()
        };
        let part = visit.engine().sessions(filter, Listing::newest(SHOWN_MAX)).await?;
        more |= part.more;
        guests.extend(part.items.iter().map(|session| guest(session, now)));
    }
    Ok((guests, more))
}

fn guest(session: &Session, now: Timestamp) -> Guest {
    let may: Vec<&str> = session.capabilities.iter().map(|one| one.as_str()).collect();
    Guest {
        id: session.id.to_string(),
        name: text::line(&session.name, 80),
        shown: match session.kind {
            SessionKind::Link => Shown::new("wait", "link, not opened yet"),
            SessionKind::Portal | SessionKind::Console => Shown::new("good", "is in"),
        },
        may: may.join(", ").replace('_', " "),
        ends: Time::new(session.expires_at, now),
        made: Time::new(session.created_at, now),
    }
}

/// What the form has at first: what a link allows that does not say.
pub(crate) fn usual() -> Fields {
    Fields::of(Capability::DEFAULT.map(|one| ("capabilities", one.as_str().to_owned())))
}

/// A link into the portal, as the API gives it.
#[derive(Deserialize)]
struct Link {
    url: String,
    expires_at: Timestamp,
}

#[derive(Template)]
#[template(path = "portal_link.html")]
struct LinkPage {
    frame: Frame,
    id: String,
    name: String,
    url: String,
    may: String,
    expires: Time,
}

fn body(form: &Fields) -> Value {
    let mut body = json!({});
    for name in ["name", "redeem_within", "expires_in"] {
        if let Some(value) = form.get(name) {
            body[name] = Value::from(value);
        }
    }
    let chosen: Vec<&str> = form.all("capabilities").collect();
    if !chosen.is_empty() {
        body["capabilities"] = Value::from(chosen);
    }
    body
}

/// `POST /console/tenants/{id}/portal-link`. The link is shown in the answer and nowhere else.
pub(crate) async fn create(visit: Arc<Visit>) -> Answer {
    let id = tenant::named(&visit)?;
    let tenant = visit.engine().catalog().tenant(id)?;
    // No box ticked at all would be what links allow that do not say, which nobody means.
    if visit.form.is_checked("chosen") && visit.form.all("capabilities").next().is_none() {
        let wrong = ("capabilities".to_owned(), "choose one at least".to_owned());
        return tenant::show(&visit, Refused { link: Some(wrong), ..Refused::default() }).await;
    }
    let body = body(&visit.form);
    let made = visit.send_for(&tenant, Method::POST, "/v1/portal/links", &body).await;
    let link: Link = match made {
        Ok(link) => link,
        Err(trouble) => {
            let link = Some(typed::refused(trouble)?);
            return tenant::show(&visit, Refused { link, ..Refused::default() }).await;
        }
    };
    let name = text::line(&tenant.name, 128);
    let usual = usual();
    let chosen = if visit.form.is_checked("capabilities") { &visit.form } else { &usual };
    let may =
        CAPABILITIES.iter().filter(|(own, _)| chosen.all("capabilities").any(|one| one == *own));
    let html = LinkPage {
        frame: Frame::new(&visit, Place::Tenants, "Portal link")
            .await
            .below("/console/tenants", "Tenants")
            .below(format!("/console/tenants/{id}"), name.clone()),
        id: id.to_string(),
        name,
        url: link.url,
        may: may.map(|(_, meaning)| *meaning).collect::<Vec<_>>().join("; "),
        expires: Time::new(link.expires_at, visit.now()),
    };
    Ok(page(&visit.headers, StatusCode::OK, html.render()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_capability_can_be_chosen() {
        let mut all = CAPABILITIES.map(|(name, _)| name);
        let mut own = Capability::ALL.map(Capability::as_str);
        all.sort_unstable();
        own.sort_unstable();
        assert_eq!(all, own);
    }

    #[test]
    fn what_is_typed_becomes_a_link() {
        let form = Fields::parse(
            b"name=Ada&redeem_within=1h&expires_in=&capabilities=view&capabilities=resend",
        );
        let wanted =
            json!({"name": "Ada", "redeem_within": "1h", "capabilities": ["view", "resend"]});
        assert_eq!(body(&form), wanted);
        assert_eq!(body(&Fields::parse(b"name=")), json!({}));
    }
}
