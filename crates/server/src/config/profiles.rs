//! The operator's own profiles: each is a base with a patch, complete and valid at load.

use std::collections::BTreeMap;

use posthorn_domain::policy::profiles::{DEFAULT, shipped};
use posthorn_domain::{Policy, ProfileName, setting};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::reading::Reading;

/// A profile as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    base: Option<ProfileName>,
    #[serde(default, deserialize_with = "setting::or_default")]
    policy: Map<String, Value>,
}

/// All profiles, shipped and own. What cannot be built is reported and left out.
///
/// A base may come later in the file than what is built on it, so profiles are built in rounds;
/// what is left when a round builds nothing refers to nothing, or to itself in a circle.
pub(super) fn build(read: &mut Reading<'_>) -> BTreeMap<ProfileName, Policy> {
    let mut built = shipped();
    let mut waiting: BTreeMap<ProfileName, Written> = read.at("profiles");
    waiting.retain(|name, written| {
        let other = written.base.as_ref().is_some_and(|base| base != name);
        let fine = !(other && built.contains_key(name));
        let problem = "changes a shipped profile, so its base can only be itself";
        read.require(fine, &format!("profiles.{name}"), problem);
        fine
    });
    loop {
        let names: Vec<ProfileName> = waiting.keys().cloned().collect();
        waiting.retain(|name, written| {
            let base = base_of(name, written, &built);
            // A base that is itself about to be changed is waited for.
            let changing = base != *name && names.contains(&base);
            let Some(base) = built.get(&base).filter(|_| !changing) else { return true };
            let patch = Value::Object(std::mem::take(&mut written.policy));
            let sized = |policy: Policy| policy.check_size(&Value::Null).map(|()| policy);
            match base.patched_by_operator(&patch).and_then(sized) {
                Ok(policy) => drop(built.insert(name.clone(), policy)),
                Err(error) => {
                    let path = error.path.strip_prefix("policy").map(str::to_owned);
                    let path = path.unwrap_or_else(|| format!(".{}", error.path));
                    read.refuse(&format!("profiles.{name}.policy{path}"), error.problem);
                }
            }
            false
        });
        if waiting.len() == names.len() {
            break;
        }
    }
    for (name, written) in waiting {
        let base = base_of(&name, &written, &built);
        let known: Vec<_> = built.keys().map(ProfileName::as_str).collect();
        let problem =
            format!("there is no profile `{base}` to build on; known are {}", known.join(", "));
        read.refuse(&format!("profiles.{name}.base"), problem);
    }
    built
}

/// The base: the one named; a shipped profile is its own; otherwise `default`.
fn base_of(
    name: &ProfileName,
    written: &Written,
    built: &BTreeMap<ProfileName, Policy>,
) -> ProfileName {
    match &written.base {
        Some(base) => base.clone(),
        None if built.contains_key(name) => name.clone(),
        None => ProfileName::new(DEFAULT).expect("shipped names are valid"),
    }
}
