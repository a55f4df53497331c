//! Links into our portal, and the tokens that pages of customers call this API with.

use std::collections::BTreeSet;
use std::time::Duration;

use posthorn_access::bearer;
use posthorn_domain::{Capability, Tenant, TenantId, check_feature_flags};
use posthorn_engine::NewPortalLink;
use posthorn_listener::site;
use serde_json::json;

use super::application;
use super::call::{Answer, Call, nothing, ok};
use super::failure::Failure;
use super::once::Seed;

/// How long a session lasts, in seconds.
const EXPIRY: std::ops::RangeInclusive<u64> = 3_600..=604_800;
/// A link is opened soon, if at all.
const REDEEM_WITHIN: Duration = Duration::from_secs(3_600);
/// What sessions of this API are called that nobody named.
const LABEL: &str = "svix";

/// What a name of theirs allows here.
fn allowed(name: &str) -> Option<&'static [Capability]> {
    Some(match name {
        // There are no transformations; nobody is refused for naming them.
        "ViewBase" | "ManageTransformations" => &[Capability::View],
        "ViewEndpointSecret" => &[Capability::SeeSecret],
        "ManageEndpointSecret" => &[Capability::SeeSecret, Capability::RotateSecret],
        "CreateAttempts" => &[Capability::Resend],
        "ManageEndpoint" => {
            &[Capability::ManageEndpoints, Capability::SeeSecret, Capability::RotateSecret]
        }
        _ => return None,
    })
}

/// `POST /auth/app-portal-access/{app}`: a link for people, and a token for pages.
pub(super) async fn link(mut call: Call, app: &str, seed: Option<Seed>) -> Answer {
    let known = call.application(app);
    let owner = known.as_ref().map_or(TenantId::DEFAULT, |tenant| tenant.id);
    let mut body = call.object(owner).await?;
    let expiry = body.number("expiry").or_absent().unwrap_or(*EXPIRY.end());
    if !EXPIRY.contains(&expiry) {
        let problem = format!("must be from {} to {}", EXPIRY.start(), EXPIRY.end());
        body.refuse("expiry", problem);
    }
    let read_only = body.flag("readOnly").or_absent().unwrap_or(false);
    let given = body.set("capabilities", None).or_absent();
    let session = body.text("sessionId").or_absent();
    let flags = body.set("featureFlags", None).or_absent().unwrap_or_default();
    if let Err(problem) = check_feature_flags(&flags) {
        body.refuse("featureFlags", problem);
    }
    let capabilities = capabilities(given.as_ref(), read_only);
    if capabilities.is_none() {
        body.refuse("capabilities", "names something that is none");
    }
    let new_application = body.object("application").or_absent();
    body.done()?;
    let tenant = match (known, new_application) {
        (Ok(tenant), _) => tenant,
        (Err(failure), None) => return Err(failure),
        (Err(_), Some(mut given)) => {
            let contents = application::Contents::read(&mut given, false);
            given.done()?;
            application::make(&call, contents, seed).await?
        }
    };
    let new = NewPortalLink {
        name: name(&tenant),
        capabilities: capabilities.unwrap_or_default(),
        feature_flags: flags.into_iter().collect(),
        redeem_within: REDEEM_WITHIN,
        lasts: Duration::from_secs(expiry),
        label: Some(session.unwrap_or_else(|| LABEL.to_owned())),
        back: None,
        key: call.caller.key,
        seed: seed.map(|seed| seed.part(1)),
    };
    let engine = &call.service.engine;
    let (_, for_people) = engine.create_portal_link(tenant.id, new.clone()).await?;
    // The token is that of a session of its own, so that the link can still be opened once.
    let new = NewPortalLink { seed: seed.map(|seed| seed.part(2)), ..new };
    let (_, token) = engine.open_portal(tenant.id, new).await?;
    // Behind the sign that browsers send to nobody.
    let options = &call.service.options;
    let site = site(options.portal_url.as_deref(), options.https, &call.parts.headers);
    let url = format!("{site}/portal#{}", for_people.expose_str().unwrap_or_default());
    let token = token.expose_str().unwrap_or_default();
    ok(&json!({"url": url, "token": token}))
}

fn name(tenant: &Tenant) -> String {
    let view = application::view(tenant);
    view["name"].as_str().unwrap_or_default().chars().take(50).collect()
}

/// What a link allows: all but what is not named, where something is.
fn capabilities(given: Option<&BTreeSet<String>>, read_only: bool) -> Option<Vec<Capability>> {
    match (given, read_only) {
        (_, true) => Some(vec![Capability::View]),
        (None, false) => Some(Capability::ALL.to_vec()),
        (Some(names), false) => {
            let all: Option<Vec<&[Capability]>> = names.iter().map(|name| allowed(name)).collect();
            all.map(|all| all.concat())
        }
    }
}

/// `POST /auth/logout`: the token opens nothing any more.
pub(super) async fn logout(call: &Call) -> Answer {
    let engine = &call.service.engine;
    let token = bearer(&call.parts.headers).unwrap_or_default();
    match engine.authenticate_session(token).await? {
        Some(session) => engine.end_session(session.id).await?,
        // Keys stay what they are.
        None => return Err(Failure::bad_request("generic_error", "This token cannot log out.")),
    }
    Ok(nothing())
}

/// `POST /auth/app/{app}/expire-all`: ends the sessions of an application, those of some names or all of this API.
pub(super) async fn expire(mut call: Call, app: &str) -> Answer {
    let tenant = call.application(app)?;
    let mut body = call.object(tenant.id).await?;
    body.value("expiry");
    let names = body.set("sessionIds", None).or_absent();
    body.done()?;
    let names = names.unwrap_or_else(|| BTreeSet::from([LABEL.to_owned()]));
    for name in &names {
        call.service.engine.end_labelled_sessions(tenant.id, name).await?;
    }
    Ok(nothing())
}
