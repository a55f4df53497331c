//! Profiles: those of the configuration, and those a tenant makes of them at run time.

use std::sync::Arc;

use http::StatusCode;
use posthorn_domain::{Policy, ProfileName, Timestamp};
use posthorn_engine::Profile;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::{Answer, Call};
use crate::problem::Problem;
use crate::respond;
use crate::wire::Page;

#[derive(Serialize)]
pub(super) struct ProfileBody<'a> {
    name: &'a ProfileName,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a Arc<Policy>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base: Option<&'a ProfileName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    updated_at: Option<Timestamp>,
}

impl<'a> From<&'a Profile> for ProfileBody<'a> {
    fn from(profile: &'a Profile) -> Self {
        let own = profile.own.as_deref();
        Self {
            name: &profile.name,
            policy: profile.policy.as_ref().ok(),
            problem: profile.policy.as_ref().err().map(posthorn_domain::Problem::as_str),
            base: own.map(|own| &own.base),
            changes: own.map(|own| &own.policy),
            updated_at: own.map(|own| own.updated_at),
        }
    }
}

/// `GET /v1/profiles`.
pub(crate) async fn list(call: Call) -> Answer {
    let profiles = call.engine().catalog().profiles(call.tenant());
    let items = profiles.iter().map(ProfileBody::from).collect();
    respond::ok(&Page::forward(items, None))
}

/// `GET /v1/profiles/{name}`.
pub(crate) async fn one(mut call: Call) -> Answer {
    let name: ProfileName = call.named("profile").await?;
    let profile = call.engine().one_profile(call.tenant(), &name)?;
    respond::ok(&ProfileBody::from(&profile))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    base: Option<ProfileName>,
    policy: Value,
}

/// `PUT /v1/profiles/{name}`.
pub(crate) async fn put(mut call: Call) -> Answer {
    let text: String = call.named("profile").await?;
    let name = ProfileName::new(&text).map_err(|e| Problem::field("name", e.to_string()))?;
    let Contents { base, policy } = call.json().await?;
    let profile = call.engine().put_profile(call.tenant(), name, base, policy).await?;
    respond::ok(&ProfileBody::from(&profile))
}

/// `DELETE /v1/profiles/{name}`.
pub(crate) async fn delete(mut call: Call) -> Answer {
    let name: ProfileName = call.named("profile").await?;
    call.engine().delete_profile(call.tenant(), name).await?;
    Ok(respond::empty(StatusCode::NO_CONTENT))
}
