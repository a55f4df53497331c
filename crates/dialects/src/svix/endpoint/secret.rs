//! The secret that an endpoint's messages are signed with: to be seen, and to be replaced while the old one goes on signing.

use posthorn_domain::Span;
use posthorn_engine::{Error, Rotation, RotationBounds};
use posthorn_sealing::standard_webhooks::SigningSecret;
use serde_json::json;

use super::super::call::{Answer, Call, Whose, nothing, ok};
use super::super::failure::Failure;
use super::super::once::Seed;
use super::{SIGNING, named};

/// How long an old secret goes on signing, in seconds, and the longest.
const GRACE_SECONDS: u64 = 86_400;
const GRACE_SECONDS_MAX: u64 = 604_800;

/// What a secret looks like.
pub(in super::super) const FORM: &str =
    "must be whsec_ and 24 to 75 bytes in base 64, or whsk_ and an Ed25519 key";

/// A secret that somebody gives: `whsec_…`, or `whsk_…` with a pair of keys.
pub(in super::super) fn read(text: &str) -> Result<String, Failure> {
    let fits = text.starts_with("whsec_") || text.starts_with("whsk_");
    let parsed = SigningSecret::parse(text);
    match parsed {
        Ok(_) if fits => Ok(text.to_owned()),
        _ => Err(Failure::field("secret", FORM)),
    }
}

/// The secret, or the public half of a pair.
async fn shown(call: &Call, whose: Whose<'_>, ep: &str) -> Result<String, Failure> {
    let view = call.endpoint_of(whose, ep)?;
    let (engine, own) = (&call.service.engine, &view.subscription);
    if let Some(secret) = engine.view_secret(own.tenant, own.id).await? {
        return Ok(secret);
    }
    let keys = view.verification_keys(engine.now()).map_err(|_| Failure::NotFound)?;
    let newest = keys.iter().find(|key| key.expires_at.is_none()).or_else(|| keys.first());
    newest.map(|key| key.key.to_string()).ok_or(Failure::NotFound)
}

/// `GET …/secret`.
pub(in super::super) async fn get(call: &Call, whose: Whose<'_>, ep: &str) -> Answer {
    ok(&json!({"key": shown(call, whose, ep).await?}))
}

/// `POST …/secret/rotate`.
pub(in super::super) async fn rotate(
    mut call: Call,
    whose: Whose<'_>,
    ep: &str,
    seed: Option<Seed>,
) -> Answer {
    let tenant = call.home(whose)?;
    let view = call.endpoint_of(whose, ep)?;
    let mut body = call.object(tenant).await?;
    let key = body.text("key").or_absent();
    let grace = body.number("gracePeriodSeconds").or_absent().unwrap_or(GRACE_SECONDS);
    if grace > GRACE_SECONDS_MAX {
        let problem = format!("must be at most {GRACE_SECONDS_MAX}");
        body.refuse("gracePeriodSeconds", problem);
    }
    body.done()?;
    let name = named(SIGNING)?;
    let rotation = Rotation {
        value: key.as_deref().map(read).transpose()?,
        overlap: Some(Span::from_secs(grace)),
        // So that a repeat of this request finds what the first try did.
        seed: seed.map(Seed::of_id),
        ..Rotation::of(name)
    };
    let (engine, own) = (&call.service.engine, view.subscription.id);
    let rotated = engine.rotate_secret_within(tenant, own, rotation, RotationBounds::WIDEST);
    let (_, told) = rotated.await.map_err(|error| match error {
        // Whether the secret is one was looked at above.
        Error::Secret { problem, .. } => Failure::bad_request("limit_reached", problem),
        other => other.into(),
    })?;
    match (whose, told) {
        // Here no client reads an answer.
        (Whose::Organisation, _) => Ok(nothing()),
        (Whose::Application(_), Some(told)) => ok(&json!({"key": told})),
        (Whose::Application(_), None) => ok(&json!({"key": shown(&call, whose, ep).await?})),
    }
}

/// Sets a secret, unless it is the one already. The old one goes on signing for a day.
pub(in super::super) async fn replace(
    call: &Call,
    tenant: posthorn_domain::TenantId,
    own: posthorn_domain::SubscriptionId,
    key: String,
) -> Result<(), Failure> {
    let engine = &call.service.engine;
    if engine.view_secret(tenant, own).await?.as_deref() == Some(key.as_str()) {
        return Ok(());
    }
    let rotation = Rotation {
        value: Some(key),
        overlap: Some(Span::from_secs(GRACE_SECONDS)),
        ..Rotation::of(named(SIGNING)?)
    };
    engine.rotate_secret_within(tenant, own, rotation, RotationBounds::WIDEST).await?;
    Ok(())
}
