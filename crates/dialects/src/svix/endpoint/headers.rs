//! Headers that an endpoint's requests carry besides. Those that open something are kept as secrets and never shown again.

use std::collections::BTreeMap;

use http::StatusCode;
use posthorn_domain::{SecretName, Subscription};
use posthorn_engine::{Error, SecretInput, SubscriptionChange};
use serde_json::{Value, json};

use super::super::body::Given;
use super::super::call::{Answer, Call, Whose, nothing, ok};
use super::super::failure::Failure;
use super::{SIGNING, TRIES};

/// Headers whose values are never shown.
const SENSITIVE: [&str; 6] = [
    "authorization",
    "x-auth-token",
    "x-api-key",
    "www-authenticate",
    "proxy-authenticate",
    "proxy-authorization",
];
/// Headers that nobody may set, besides those that no policy may.
const RESERVED: [&str; 8] = [
    "user-agent",
    "content-type",
    "content-language",
    "content-location",
    "cache-control",
    "pragma",
    "age",
    "date",
];
const RESERVED_PREFIXES: [&str; 9] =
    ["x-amz-", "x-amzn-", "x-google", "x-goog-", "x-gfe", "x-azure-", "x-fd-", "x-svix-", "svix-"];
/// The longest value.
const VALUE_BYTES_MAX: usize = 4_096;
/// What stands before the name of the secret that a header has for its value.
const SECRET_PREFIX: &str = "header.";

/// The headers of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Custom {
    /// Those that are shown, with their values.
    plain: BTreeMap<String, String>,
    /// Those that are not, with a value where it is to be set.
    sensitive: BTreeMap<String, Option<String>>,
}

fn is_sensitive(name: &str) -> bool {
    SENSITIVE.iter().any(|own| name.eq_ignore_ascii_case(own))
}

fn secret_of(name: &str) -> String {
    format!("{SECRET_PREFIX}{}", name.to_ascii_lowercase())
}

/// A value as a template that stands for itself.
fn literal(value: &str) -> String {
    value.replace('{', "{{").replace('}', "}}")
}

fn meant(template: &str) -> String {
    template.replace("{{", "{").replace("}}", "}")
}

impl Custom {
    pub(in super::super) fn read(own: &Subscription) -> Self {
        let mut custom = Self::default();
        let headers = own.overrides.pointer("/request/headers").and_then(Value::as_object);
        for (name, value) in headers.into_iter().flatten() {
            let value = meant(value.as_str().unwrap_or_default());
            custom.plain.insert(name.clone(), value);
        }
        let ways = own.overrides.get("auth").and_then(Value::as_array);
        for way in ways.into_iter().flatten().filter(|way| way["kind"] == "secret_header") {
            let name = way["header"].as_str().unwrap_or_default();
            custom.sensitive.insert(name.to_owned(), None);
        }
        custom
    }

    /// As clients see them.
    pub(in super::super) fn shown(&self) -> Value {
        let sensitive: Vec<&String> = self.sensitive.keys().collect();
        json!({"headers": self.plain, "sensitive": sensitive})
    }

    /// With these headers in place of all others.
    pub(in super::super) fn put(self, headers: &BTreeMap<String, String>) -> Result<Self, Failure> {
        let all = headers.iter().map(|(name, value)| (name.clone(), Some(value.clone())));
        Self::default().merge(all)
    }

    /// With some set, and some removed.
    fn merge(
        mut self,
        changes: impl IntoIterator<Item = (String, Option<String>)>,
    ) -> Result<Self, Failure> {
        for (name, value) in changes {
            let other = |own: &String| !own.eq_ignore_ascii_case(&name);
            self.plain.retain(|own, _| other(own));
            self.sensitive.retain(|own, _| other(own));
            let Some(value) = value else { continue };
            check(&name, &value)?;
            match is_sensitive(&name) {
                true => drop(self.sensitive.insert(name, Some(value))),
                false => drop(self.plain.insert(name, value)),
            }
        }
        Ok(self)
    }

    /// Into what the endpoint changes in its policy.
    pub(in super::super) fn write(&self, mut overrides: Value) -> Value {
        if !overrides.is_object() {
            overrides = json!({});
        }
        let headers: BTreeMap<&String, String> =
            self.plain.iter().map(|(name, value)| (name, literal(value))).collect();
        match headers.is_empty() {
            true => {
                if let Some(request) = overrides.get_mut("request").and_then(Value::as_object_mut) {
                    request.remove("headers");
                }
            }
            false => overrides["request"]["headers"] = json!(headers),
        }
        if self.sensitive.is_empty() {
            if let Some(own) = overrides.as_object_mut() {
                own.remove("auth");
            }
            return overrides;
        }
        let mut ways = vec![json!({
            "kind": "standard_webhooks", "secret": SIGNING, "headers": "svix", "ids": "svix",
        })];
        ways.extend(self.sensitive.keys().map(
            |name| json!({"kind": "secret_header", "header": name, "secret": secret_of(name)}),
        ));
        overrides["auth"] = json!(ways);
        overrides
    }

    /// The secrets that are to be set.
    pub(in super::super) fn secrets(&self) -> Result<Vec<SecretInput>, Failure> {
        let given = self.sensitive.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        given
            .map(|(name, value)| {
                let name = SecretName::new(&secret_of(name));
                let name = name.map_err(|error| Failure::field("headers", error.to_string()))?;
                Ok(SecretInput { name, value: value.clone() })
            })
            .collect()
    }
}

/// Whether a header may be set.
pub(in super::super) fn check(name: &str, value: &str) -> Result<(), Failure> {
    let folded = name.to_ascii_lowercase();
    let taken = RESERVED.contains(&folded.as_str())
        || RESERVED_PREFIXES.iter().any(|prefix| folded.starts_with(prefix));
    if taken || name.ends_with('?') {
        return Err(Failure::field("headers", format!("the header {name} may not be set")));
    }
    if value.len() > VALUE_BYTES_MAX {
        let problem = format!("the value of {name} may have at most {VALUE_BYTES_MAX} bytes");
        return Err(Failure::field("headers", problem));
    }
    Ok(())
}

/// `GET …/headers`.
pub(in super::super) fn get(call: &Call, whose: Whose<'_>, ep: &str) -> Answer {
    ok(&Custom::read(&call.endpoint_of(whose, ep)?.subscription).shown())
}

/// `PUT …/headers` sets all of them, `PATCH …/headers` some; null removes one.
pub(in super::super) async fn change(
    mut call: Call,
    whose: Whose<'_>,
    ep: &str,
    whole: bool,
) -> Answer {
    let tenant = call.home(whose)?;
    call.endpoint_of(whose, ep)?;
    let mut body = call.object(tenant).await?;
    let mut changes = BTreeMap::new();
    match body.value("headers") {
        Given::Some(Value::Object(members)) => {
            for (name, value) in members {
                match value {
                    Value::String(text) => drop(changes.insert(name, Some(text))),
                    Value::Null if !whole => drop(changes.insert(name, None)),
                    _ => body.refuse("headers", "must be an object of strings"),
                }
            }
        }
        Given::Absent if !whole => {}
        _ => body.refuse("headers", "must be an object of strings"),
    }
    let gone = body.set("deleteHeaders", None).or_absent().unwrap_or_default();
    changes.extend(gone.into_iter().map(|name| (name, None)));
    body.done()?;
    for _ in 0..TRIES {
        let view = call.endpoint_of(whose, ep)?;
        let own = &view.subscription;
        let old = if whole { Custom::default() } else { Custom::read(own) };
        let custom = old.merge(changes.clone())?;
        let change = SubscriptionChange {
            overrides: Some(custom.write(own.overrides.clone())),
            secrets: custom.secrets()?,
            only_needed_secrets: true,
            expected: Some(own.version),
            ..SubscriptionChange::default()
        };
        match call.service.engine.update_subscription(tenant, own.id, change).await {
            Ok(_) => return Ok(nothing()),
            Err(Error::Changed { .. }) => call.service.engine.refresh_catalog().await?,
            Err(Error::Policy(problem)) => {
                return Err(Failure::field("headers", problem.to_string()));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(Failure::Refused {
        status: StatusCode::CONFLICT,
        code: "conflict",
        detail: "The endpoint is being changed by others; try again.".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn values_that_open_something_are_secrets() {
        let all = texts(&[("X-Team", "a{b}"), ("Authorization", "Bearer hush")]);
        let custom = Custom::default().put(&all).unwrap();
        let written = custom.write(json!({"limits": {"rate": 5.0}}));
        assert_eq!(written["request"]["headers"]["X-Team"], "a{{b}}");
        assert_eq!(written["auth"][1]["secret"], "header.authorization");
        assert_eq!(written["limits"]["rate"], 5.0);
        assert!(!written.to_string().contains("hush"));
        assert_eq!(custom.secrets().unwrap()[0].value, "Bearer hush");
        let cleared = Custom::default().write(written);
        assert_eq!(cleared, json!({"limits": {"rate": 5.0}, "request": {}}));
    }

    #[test]
    fn reserved_names_are_refused_in_any_spelling() {
        for name in ["User-Agent", "SVIX-Id", "x-amz-date", "Content-Type", "odd?"] {
            assert!(Custom::default().put(&texts(&[(name, "x")])).is_err(), "{name}");
        }
    }

    #[test]
    fn a_header_is_replaced_whatever_its_spelling() {
        let custom = Custom::default().put(&texts(&[("x-team", "a")])).unwrap();
        let custom = custom.merge([("X-Team".to_owned(), Some("b".to_owned()))]).unwrap();
        assert_eq!(custom.plain, texts(&[("X-Team", "b")]));
        assert_eq!(custom.merge([("X-TEAM".to_owned(), None)]).unwrap(), Custom::default());
    }
}
