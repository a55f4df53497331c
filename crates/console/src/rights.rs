//! What people may do whom a provider or a proxy has logged in: by the groups they are in.
//!
//! The operator's configuration says what each group stands for. That is looked up with every request, so that a change
//! of it counts for everybody who is logged in.

use posthorn_domain::{Home, RealmName, SESSION_GROUP_BYTES_MAX, SESSION_GROUPS_MAX, Scope};
use posthorn_engine::Engine;
use serde::Deserialize;

/// What groups stand for, in the order of the configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct Rights(Vec<Right>);

/// What one group stands for.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Written")]
struct Right {
    group: String,
    scopes: Vec<Scope>,
    whose: Whose,
}

/// Whose things they are about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Whose {
    Everybody,
    Realm(RealmName),
    /// By name, which is looked up when it matters: tenants come and go.
    Tenant(String),
}

/// The same as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    group: String,
    scopes: Vec<Scope>,
    #[serde(default)]
    tenant: Option<String>,
    #[serde(default)]
    realm: Option<RealmName>,
}

impl TryFrom<Written> for Right {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        let Written { group, mut scopes, tenant, realm } = written;
        let group = group.trim().to_owned();
        if group.is_empty() || group.len() > SESSION_GROUP_BYTES_MAX {
            return Err("group must be the name of a group, of at most 256 bytes");
        }
        let operator = scopes.contains(&Scope::Operator);
        if !operator && !scopes.contains(&Scope::Read) {
            return Err("scopes must contain read (pages are there to be read) or operator");
        }
        let whose = match (tenant, realm) {
            (Some(_), Some(_)) => return Err("name a tenant or a realm, not both"),
            (None, None) => Whose::Everybody,
            _ if operator => return Err("an operator has no tenant and no realm"),
            (Some(tenant), None) => Whose::Tenant(tenant),
            (None, Some(realm)) => Whose::Realm(realm),
        };
        scopes.sort_unstable();
        scopes.dedup();
        Ok(Self { group, scopes, whose })
    }
}

impl Rights {
    /// Whether nobody has any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What somebody in these groups may do. The first of their groups in the configuration decides whose things they
    /// see; others add what they may do there.
    pub(crate) fn of(&self, groups: &[String], engine: &Engine) -> Option<(Home, Vec<Scope>)> {
        let catalog = engine.catalog();
        let place = |whose: &Whose| match whose {
            Whose::Everybody => Some(Home::Operator),
            Whose::Realm(realm) => catalog.realm(realm).ok().map(|_| Home::Realm(realm.clone())),
            Whose::Tenant(name) => {
                let tenant = catalog.tenant_named(name)?;
                tenant.deletion.is_none().then_some(Home::Tenant(tenant.id))
            }
        };
        let own = self.0.iter().filter(|right| groups.contains(&right.group));
        let mut own = own.filter_map(|right| Some((place(&right.whose)?, &right.scopes)));
        let (home, scopes) = own.next()?;
        let mut scopes = scopes.clone();
        scopes.extend(own.filter(|(other, _)| *other == home).flat_map(|(_, more)| more));
        scopes.sort_unstable();
        scopes.dedup();
        Some((home, scopes))
    }

    /// The groups that are kept with a session: those that stand for something first, and not too many of the others.
    pub(crate) fn kept(&self, groups: &[String]) -> Vec<String> {
        let fits = |group: &&String| {
            group.len() <= SESSION_GROUP_BYTES_MAX && !group.chars().any(char::is_control)
        };
        let means = |group: &&String| self.0.iter().any(|right| right.group == **group);
        let (first, rest): (Vec<_>, Vec<_>) = groups.iter().filter(fits).partition(means);
        let mut kept: Vec<String> = Vec::new();
        for group in first.into_iter().chain(rest) {
            if kept.len() < SESSION_GROUPS_MAX && !kept.contains(group) {
                kept.push(group.clone());
            }
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: &serde_json::Value) -> Result<Rights, String> {
        posthorn_domain::plain::read(value).map_err(|e| e.to_string())
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let cases = [
            (json!([{"group": "a", "scopes": []}]), "must contain read"),
            (json!([{"group": "a", "scopes": ["publish"]}]), "must contain read"),
            (json!([{"group": " ", "scopes": ["read"]}]), "name of a group"),
            (json!([{"group": "a", "scopes": ["root"]}]), "root"),
            (
                json!([{"group": "a", "scopes": ["operator"], "tenant": "acme"}]),
                "an operator has no tenant",
            ),
            (
                json!([{"group": "a", "scopes": ["read"], "tenant": "acme", "realm": "live"}]),
                "not both",
            ),
            (json!([{"group": "a", "scopes": ["read"], "tenants": ["acme"]}]), "tenants"),
        ];
        for (written, wanted) in cases {
            let problem = read(&written).expect_err("it is wrong");
            assert!(problem.contains(wanted), "{written}: {problem}");
        }
        assert!(read(&json!([])).expect("nothing").is_empty());
    }

    #[test]
    fn groups_that_mean_something_are_kept_before_others() {
        let rights = read(&json!([{"group": "ops", "scopes": ["operator"]}])).expect("rights");
        let mut groups: Vec<String> = (0..200).map(|nth| format!("g{nth}")).collect();
        groups.extend(["x".repeat(257), "a\nb".to_owned(), "ops".to_owned(), "ops".to_owned()]);
        let kept = rights.kept(&groups);
        assert_eq!(kept.len(), SESSION_GROUPS_MAX);
        assert_eq!(kept[..2], ["ops", "g0"]);
        assert!(kept.iter().all(|group| group.len() < 10 && group != "a\nb"));
    }
}
