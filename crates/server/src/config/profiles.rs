//! The operator's own profiles: each is a base with a patch, complete and valid at load.

use std::collections::BTreeMap;

use posthorn_domain::policy::profiles::{DEFAULT, shipped};
use posthorn_domain::{Policy, ProfileName};
use serde_json::Value;

use super::Check;
use super::raw::RawProfile;

/// All profiles, shipped and own. What cannot be built is reported and left out.
///
/// A base may come later in the file than what is built on it, so profiles are built in rounds;
/// what is left when a round builds nothing refers to nothing, or to itself in a circle.
pub(super) fn build(
    check: &mut Check<'_>,
    raw: BTreeMap<String, RawProfile>,
) -> BTreeMap<ProfileName, Policy> {
    let mut built = shipped();
    let mut waiting: Vec<(ProfileName, RawProfile)> = Vec::new();
    for (name, profile) in raw {
        let key = format!("profiles.{name}");
        let Some(name) = check.accept(&key, ProfileName::new(&name)) else { continue };
        if built.contains_key(&name) && profile.base.as_deref().is_some_and(|b| b != name.as_str())
        {
            check.refuse(&key, "changes a shipped profile, so its base can only be itself");
            continue;
        }
        waiting.push((name, profile));
    }
    loop {
        let before = waiting.len();
        let names: Vec<_> = waiting.iter().map(|(name, _)| name.clone()).collect();
        waiting.retain(|(name, profile)| {
            let own = name.as_str();
            let base = base_of(name, profile, &built);
            // A base that is itself about to be changed is waited for.
            let changing = base != own && names.iter().any(|waiting| waiting.as_str() == base);
            let Some(base) = built.get(&base_name(base)).filter(|_| !changing) else { return true };
            let patch = if profile.policy.is_null() {
                Value::Object(serde_json::Map::new())
            } else {
                profile.policy.clone()
            };
            let sized = |policy: Policy| policy.check_size(&Value::Null).map(|()| policy);
            match base.patched_by_operator(&patch).and_then(sized) {
                Ok(policy) => drop(built.insert(name.clone(), policy)),
                Err(error) => {
                    let path = error
                        .path
                        .strip_prefix("policy")
                        .map_or_else(|| format!(".{}", error.path), str::to_owned);
                    check.refuse(&format!("profiles.{own}.policy{path}"), error.problem);
                }
            }
            false
        });
        if waiting.len() == before {
            break;
        }
    }
    for (name, profile) in waiting {
        let base = base_of(&name, &profile, &built);
        let known: Vec<_> = built.keys().map(ProfileName::as_str).collect();
        check.refuse(
            &format!("profiles.{name}.base"),
            format!("there is no profile `{base}` to build on; known are {}", known.join(", ")),
        );
    }
    built
}

/// The base: the one named; a shipped profile is its own; otherwise `default`.
fn base_of<'a>(
    name: &'a ProfileName,
    profile: &'a RawProfile,
    built: &BTreeMap<ProfileName, Policy>,
) -> &'a str {
    match &profile.base {
        Some(base) => base,
        None if built.contains_key(name) => name.as_str(),
        None => DEFAULT,
    }
}

fn base_name(text: &str) -> ProfileName {
    ProfileName::new(text)
        .unwrap_or_else(|_| ProfileName::new(DEFAULT).expect("shipped names are valid"))
}
