//! Links into the portal, which an operator's own pages send their customers to.

use http::StatusCode;
use posthorn_domain::{Capability, SessionId, Span, Timestamp};
use posthorn_engine::NewPortalLink;
use posthorn_listener::site;
use serde::{Deserialize, Serialize};

use crate::call::{Answer, Call};
use crate::problem::Problem;
use crate::respond;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    #[serde(default)]
    name: String,
    capabilities: Option<Vec<Capability>>,
    redeem_within: Option<Span>,
    expires_in: Option<Span>,
    label: Option<String>,
    return_url: Option<String>,
}

#[derive(Serialize)]
struct Created<'a> {
    id: SessionId,
    url: String,
    token: &'a str,
    expires_at: Timestamp,
}

/// `POST /v1/portal/links`.
pub(crate) async fn create_link(mut call: Call) -> Answer {
    let new: New = call.json_or_default().await?;
    let usual = NewPortalLink::default();
    let new = NewPortalLink {
        name: new.name,
        capabilities: new.capabilities.unwrap_or(usual.capabilities),
        redeem_within: new.redeem_within.map_or(usual.redeem_within, Span::to_duration),
        lasts: new.expires_in.map_or(usual.lasts, Span::to_duration),
        label: new.label,
        back: new.return_url,
        key: call.key(),
        ..usual
    };
    let (link, token) = call.engine().create_portal_link(call.tenant(), new).await?;
    let token = token.expose_str().ok_or_else(|| Problem::not_found("portal link"))?;
    // Behind the sign that browsers send to nobody.
    let options = &call.api.options;
    let site = site(options.portal_url.as_deref(), options.https, &call.parts.headers);
    let url = format!("{site}/portal#{token}");
    let created = Created { id: link.id, url, token, expires_at: link.expires_at };
    respond::json(StatusCode::CREATED, &created)
}
