//! Scopes as requests write them.

use std::borrow::Cow;

use posthorn_domain::Scope;
use serde::{Deserialize, Deserializer, de};

use crate::call::scope_name;

const ALL: [Scope; 4] = [Scope::Publish, Scope::Manage, Scope::Read, Scope::Operator];
const NAMES: &[&str] = &[
    scope_name(Scope::Publish),
    scope_name(Scope::Manage),
    scope_name(Scope::Read),
    scope_name(Scope::Operator),
];
/// What `manage` was called before 1.0. Stores may still have it, requests may not.
const FORMER: &str = "subscriptions";

/// One scope of a request.
pub(super) struct ScopeInput(Scope);

impl<'de> Deserialize<'de> for ScopeInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        if text == FORMER {
            return Err(de::Error::custom("`subscriptions` is now `manage`"));
        }
        let known = ALL.into_iter().find(|scope| scope_name(*scope) == text);
        known.map(Self).ok_or_else(|| de::Error::unknown_variant(&text, NAMES))
    }
}

/// Each scope once, in order.
pub(super) fn distinct(given: Vec<ScopeInput>) -> Vec<Scope> {
    let mut scopes: Vec<Scope> = given.into_iter().map(|ScopeInput(scope)| scope).collect();
    scopes.sort_unstable();
    scopes.dedup();
    scopes
}
