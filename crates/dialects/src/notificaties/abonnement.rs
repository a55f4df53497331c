//! Abonnementen: subscriptions, with the shapes of this API.
//!
//! Everything a client gets back is in the subscription itself: its name is the UUID, its filter holds
//! kanalen and CloudEvent filters, its policy how it is authenticated. Labels hold what has no other
//! place: whose it is, and the URL as it was written.

use std::collections::{BTreeMap, BTreeSet};

use posthorn_domain::limits::FILTER_GROUPS_MAX;
use posthorn_domain::{
    CertificateId, Filter, Labels, ProfileName, SubscriptionName, TenantId, TopicName,
};
use posthorn_engine::{Engine, Error, NewSubscription, SubscriptionView};
use serde_json::{Value, json};

use super::authentication::Authentication;
use super::cloudevent;
use super::fields::{Fields, MapRule, Text, consistent, snake};
use super::kanaal::{Kanaal, topic_of};
use super::notificatie::CLOUDEVENT;
use super::problem::Problem;
use super::uuid::Uuid;

/// The label with the client an abonnement belongs to.
pub(crate) const CLIENT: &str = "client_id";
/// The label with the URL as it was written, where that is not how we write it.
pub(crate) const CALLBACK: &str = "callback_url";

/// Longest callback URL, in characters.
const URL_MAX: usize = 1_000;
const FILTERS: MapRule =
    MapRule { items_max: 62, key_bytes_max: 100, value_max: 1_000, blank: false };

/// The name of an abonnement's subscription.
pub(crate) fn subscription_name(uuid: Uuid) -> SubscriptionName {
    SubscriptionName::new(&uuid.to_string()).expect("a UUID is printable")
}

/// One kanaal of an abonnement, with what its messages must be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KanaalFilter {
    pub(crate) naam: String,
    pub(crate) filters: BTreeMap<String, String>,
}

/// CloudEvents that an abonnement wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CloudEventFilter {
    pub(crate) type_substring: String,
    pub(crate) filters: BTreeMap<String, String>,
}

/// What an abonnement says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Abonnement {
    pub(crate) callback_url: String,
    /// `None`: as it is.
    pub(crate) auth: Option<Authentication>,
    pub(crate) kanalen: Vec<KanaalFilter>,
    pub(crate) send_cloudevents: bool,
    pub(crate) cloudevent_filters: Vec<CloudEventFilter>,
    /// Shown in the TLS handshake.
    pub(crate) client_certificate: Option<CertificateId>,
}

impl Abonnement {
    /// Reads an abonnement, or with `present` what is to be changed in one: with `patch`, what is not
    /// given stays as it is.
    pub(crate) fn read(
        document: &Value,
        present: Option<&Abonnement>,
        patch: bool,
    ) -> Result<Self, Problem> {
        let mut fields = Fields::of(document)?;
        let kept = present.filter(|_| patch);
        let url = fields.url("callbackUrl", Text::required(URL_MAX).in_patch(patch));
        let auth = Authentication::read(&mut fields, patch);
        let kanalen = fields.objects("kanalen", FILTER_GROUPS_MAX, |kanaal| {
            let filters = kanaal.map("filters", FILTERS).unwrap_or_default();
            let naam = kanaal.text("naam", Text::required(50))?;
            Some(KanaalFilter { naam, filters })
        });
        let send_cloudevents = fields.boolean("sendCloudevents");
        let cloudevent_filters = fields.objects("cloudeventFilters", FILTER_GROUPS_MAX, |group| {
            let filters = group.map("filters", FILTERS).unwrap_or_default();
            let type_substring = group.text("typeSubstring", Text::required(255))?;
            Some(CloudEventFilter { type_substring, filters })
        });
        let certificate = read_certificate(&mut fields);
        let kanalen = kanalen.or_else(|| kept.map(|k| k.kanalen.clone())).unwrap_or_default();
        let cloudevent_filters = cloudevent_filters
            .or_else(|| kept.map(|k| k.cloudevent_filters.clone()))
            .unwrap_or_default();
        if kanalen.len() + cloudevent_filters.len() > FILTER_GROUPS_MAX {
            let reason = format!(
                "An abonnement may have at most {FILTER_GROUPS_MAX} kanalen and cloudeventFilters \
                 in all."
            );
            fields.fault("kanalen", "max_length", reason);
        }
        fields.finish()?;
        Ok(Self {
            callback_url: url.or_else(|| kept.map(|k| k.callback_url.clone())).unwrap_or_default(),
            auth,
            kanalen,
            send_cloudevents: send_cloudevents
                .or_else(|| kept.map(|k| k.send_cloudevents))
                .unwrap_or_default(),
            cloudevent_filters,
            client_certificate: certificate
                .unwrap_or_else(|| kept.and_then(|k| k.client_certificate)),
        })
    }

    /// Where it is called, for logs: the rest of the URL may hold what nobody should read there.
    pub(crate) fn callback_host(&self) -> String {
        let url = url::Url::parse(&self.callback_url).ok();
        url.as_ref().and_then(|url| url.host_str()).unwrap_or_default().to_owned()
    }

    /// Whether this node knows everything that it names.
    pub(crate) fn is_known(&self, engine: &Engine, tenant: TenantId) -> bool {
        let certificate = self.client_certificate;
        certificate.is_none_or(|id| engine.catalog().certificate(tenant, id).is_some())
            && self.kanalen.iter().all(|group| Kanaal::named(engine, tenant, &group.naam).is_some())
    }

    /// Checks that the certificate is the client's own: who shows one is who it names.
    pub(crate) fn check_certificate(
        &self,
        engine: &Engine,
        tenant: TenantId,
        client: &str,
    ) -> Result<(), Problem> {
        let Some(id) = self.client_certificate else { return Ok(()) };
        let found = engine.catalog().certificate(tenant, id);
        if found.is_some_and(|view| view.certificate.owner == client) {
            return Ok(());
        }
        let reason = format!(
            "There is no certificate {id} of client {client}; the operator registers it with that \
             owner."
        );
        Err(Problem::field("clientCertificate", "invalid", reason))
    }

    /// How its certificate stands in a policy.
    pub(crate) fn certificate_way(&self) -> Option<Value> {
        let id = self.client_certificate?;
        Some(json!({"kind": "client_certificate", "certificate": id}))
    }

    /// Checks that the kanalen are there and that their filters fit.
    pub(crate) fn check_kanalen(&self, engine: &Engine, tenant: TenantId) -> Result<(), Problem> {
        for group in &self.kanalen {
            let Some(kanaal) = Kanaal::named(engine, tenant, &group.naam) else {
                let reason = format!("There is no kanaal with the name {}.", group.naam);
                return Err(Problem::field("naam", "kanaal_naam", reason));
            };
            if !consistent(&kanaal.filters, group.filters.keys()) {
                let reason = format!(
                    "The filters are not consistent with those of kanaal {}: {}.",
                    kanaal.naam,
                    kanaal.filters.join(", ")
                );
                let code = "inconsistent-abonnement-filters";
                return Err(Problem::field("filters", code, reason));
            }
        }
        Ok(())
    }

    /// The filter of its subscription.
    pub(crate) fn filter(&self, tenant: TenantId) -> Filter {
        let kanalen = self.kanalen.iter().map(|group| {
            let topic = topic_of(tenant, &group.naam);
            let mut wanted = json!({"topics": [topic], "attributes": group.filters});
            if self.send_cloudevents {
                // Only what says where it comes from can become a CloudEvent.
                wanted["payload"] = json!({"test": {"path": "/source", "op": "ne", "value": ""}});
            }
            wanted
        });
        let cloudevents = self.cloudevent_filters.iter().map(|group| {
            let named = json!({"test": {"path": "/type", "op": "contains",
                "value": group.type_substring}});
            // Those of an abonnement that wants no CloudEvents are kept, and never hold.
            let conditions =
                if self.send_cloudevents { vec![named] } else { vec![named, json!({"any": []})] };
            json!({"topics": [cloudevent::TOPIC], "attributes": group.filters,
                "payload": {"all": conditions}})
        });
        let groups: Vec<Value> = kanalen.chain(cloudevents).collect();
        serde_json::from_value(json!({"any_of": groups, "missing_attribute": "ignore",
            "attribute_names": "camel_or_snake"}))
        .expect("this is how filters are written")
    }

    /// What its subscription changes in the policy.
    pub(crate) fn overrides(&self, auth: &[Value]) -> Value {
        let mut ways = auth.to_vec();
        ways.extend(self.certificate_way());
        let mut overrides = json!({"auth": ways});
        if self.send_cloudevents {
            overrides["request"] = json!({"alternative": CLOUDEVENT});
        }
        overrides
    }

    /// The subscription it becomes. `ways` authenticate its deliveries.
    pub(crate) fn subscription(
        &self,
        tenant: TenantId,
        profile: &ProfileName,
        uuid: Uuid,
        client: &str,
        ways: &[Value],
    ) -> posthorn_engine::Result<NewSubscription> {
        let labels = BTreeMap::from([
            (CLIENT.to_owned(), client.to_owned()),
            (CALLBACK.to_owned(), self.callback_url.clone()),
        ]);
        let labels = Labels::new(labels)
            .map_err(|e| Error::Event { field: "callbackUrl", problem: e.to_string() })?;
        Ok(NewSubscription {
            name: Some(subscription_name(uuid)),
            labels,
            destination: self.callback_url.as_str().into(),
            filter: Some(self.filter(tenant)),
            profile: Some(profile.clone()),
            overrides: self.overrides(ways),
            secrets: self.auth.as_ref().map(|auth| auth.secrets()).unwrap_or_default(),
            ..NewSubscription::default()
        })
    }

    /// The abonnement that a subscription is, with its UUID and whose it is; `None` for
    /// subscriptions that were not made here.
    pub(crate) fn of(engine: &Engine, view: &SubscriptionView) -> Option<(Uuid, String, Self)> {
        let subscription = &view.subscription;
        let client = subscription.labels.get(CLIENT)?.to_owned();
        let uuid = subscription.name.as_ref()?.as_str().parse().ok()?;
        let url = subscription.destination.url()?;
        let overrides = &subscription.overrides;
        let wants = overrides.pointer("/request/alternative").and_then(Value::as_str);
        let mut abonnement = Self {
            callback_url: subscription.labels.get(CALLBACK).unwrap_or(url).to_owned(),
            auth: None,
            kanalen: Vec::new(),
            send_cloudevents: wants == Some(CLOUDEVENT),
            cloudevent_filters: Vec::new(),
            client_certificate: certificate_of(overrides),
        };
        let written = serde_json::to_value(&subscription.filter).unwrap_or_default();
        for group in written.get("any_of").and_then(Value::as_array).into_iter().flatten() {
            // Lists of values can only come from the native API; this one has no words for them.
            let attributes =
                group.get("attributes").and_then(Value::as_object).into_iter().flatten();
            let filters: BTreeMap<String, String> = attributes
                .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
                .collect();
            let topic = group.pointer("/topics/0").and_then(Value::as_str).unwrap_or_default();
            if topic == cloudevent::TOPIC {
                let text = group.pointer("/payload/all/0/test/value").and_then(Value::as_str);
                let type_substring = text.unwrap_or_default().to_owned();
                abonnement.cloudevent_filters.push(CloudEventFilter { type_substring, filters });
            } else {
                let naam = name_of(engine, subscription.tenant, topic);
                abonnement.kanalen.push(KanaalFilter { naam, filters });
            }
        }
        Some((uuid, client, abonnement))
    }

    /// As in the API; what authenticates is never shown.
    pub(crate) fn view(&self, base: &str, uuid: Uuid) -> Value {
        let kanalen: Vec<Value> = self
            .kanalen
            .iter()
            .map(|group| json!({"filters": group.filters, "naam": group.naam}))
            .collect();
        let cloudevents: Vec<Value> = self
            .cloudevent_filters
            .iter()
            .map(|group| json!({"typeSubstring": group.type_substring, "filters": group.filters}))
            .collect();
        json!({
            "url": format!("{base}/abonnement/{uuid}"),
            "callbackUrl": self.callback_url,
            "kanalen": kanalen,
            "sendCloudevents": self.send_cloudevents,
            "cloudeventFilters": cloudevents,
        })
    }
}

/// The name of the kanaal of a topic, which may be gone.
fn name_of(engine: &Engine, tenant: TenantId, topic: &str) -> String {
    let name = TopicName::new(topic).ok();
    let found = name.and_then(|name| engine.catalog().topic(tenant, &name).ok());
    found.and_then(|topic| Kanaal::of(&topic)).map_or_else(|| topic.to_owned(), |found| found.naam)
}

fn certificate_of(overrides: &Value) -> Option<CertificateId> {
    let ways = overrides.get("auth")?.as_array()?;
    let way = ways.iter().find(|way| way["kind"] == "client_certificate")?;
    way.get("certificate")?.as_str()?.parse().ok()
}

/// The certificate that is asked for; `Some(None)`: none, even where there is one.
fn read_certificate(fields: &mut Fields<'_>) -> Option<Option<CertificateId>> {
    let text = fields.text("clientCertificate", Text::optional(100))?;
    if text.is_empty() {
        return Some(None);
    }
    let id = text.parse().ok();
    if id.is_none() {
        let reason = "Must be the id of a registered certificate, such as crt_….";
        fields.fault("clientCertificate", "invalid", reason);
    }
    Some(id)
}

/// The names of data that CloudEvents are filtered on.
pub(crate) fn filtered_names(engine: &Engine, tenant: TenantId) -> BTreeSet<String> {
    let subscriptions = engine.catalog().subscriptions(tenant);
    let groups = subscriptions.iter().flat_map(|view| &view.subscription.filter.any_of);
    groups
        .filter(|group| group.topics.iter().any(|topic| topic.as_str() == cloudevent::TOPIC))
        .flat_map(|group| group.attributes.keys().map(|name| snake(name)))
        .collect()
}

#[cfg(test)]
mod tests {
    use posthorn_domain::policy::profiles;

    use super::*;

    fn document() -> Value {
        json!({"callbackUrl": "http://a:8000/cb", "auth": "Bearer x",
            "kanalen": [{"naam": "zaken", "filters": {"bron": "a"}}, {"naam": "b c"}]})
    }

    fn with(changes: &Value) -> Value {
        let mut document = document();
        for (name, value) in changes.as_object().unwrap() {
            if value == "absent" {
                document.as_object_mut().unwrap().remove(name);
            } else {
                document[name] = value.clone();
            }
        }
        document
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "tables read better without borrows")]
    fn check(changes: Value, expected: &[(&str, &str)]) {
        let found = Abonnement::read(&with(&changes), None, false);
        let found = found.err().and_then(|problem| problem.faults).unwrap_or_default();
        let found: Vec<(&str, &str)> = found.iter().map(|f| (f.name.as_str(), f.code)).collect();
        assert_eq!(found, expected, "{changes}");
    }

    #[test]
    fn abonnementen_are_checked_field_by_field() {
        check(json!({}), &[]);
        check(json!({"kanalen": "absent"}), &[]);
        check(json!({"kanalen": []}), &[]);
        for name in ["callbackUrl", "auth"] {
            check(json!({name: "absent"}), &[(name, "required")]);
            check(json!({name: null}), &[(name, "null")]);
            check(json!({name: ""}), &[(name, "blank")]);
            check(json!({name: {}}), &[(name, "invalid")]);
        }
        let long = |length: usize| format!("http://a/{}", "x".repeat(length - 9));
        check(json!({"callbackUrl": long(1_000)}), &[]);
        check(json!({"callbackUrl": long(1_001)}), &[("callbackUrl", "max_length")]);
        check(json!({"callbackUrl": "x"}), &[("callbackUrl", "invalid")]);
        check(json!({"auth": "x".repeat(4_096)}), &[]);
        check(json!({"auth": "x".repeat(4_097)}), &[("auth", "max_length")]);
        check(json!({"auth": "a\nX-Other: b"}), &[("auth", "invalid")]);
        check(json!({"auth": "é"}), &[("auth", "invalid")]);
        check(json!({"kanalen": null}), &[("kanalen", "null")]);
        check(json!({"kanalen": {}}), &[("kanalen", "not_a_list")]);
        check(json!({"kanalen": [[]]}), &[("kanalen.0.nonFieldErrors", "invalid")]);
        check(json!({"kanalen": [{}]}), &[("kanalen.0.naam", "required")]);
        let filters = |value: Value| json!({"kanalen": [{"naam": "a", "filters": value}]});
        check(filters(json!({"a": "x".repeat(1_000)})), &[]);
        check(filters(json!({"a": "x".repeat(1_001)})), &[("kanalen.0.filters.a", "max_length")]);
        check(filters(json!({"a": ["x"]})), &[("kanalen.0.filters.a", "invalid")]);
        check(filters(json!([])), &[("kanalen.0.filters", "not_a_dict")]);
        check(json!({"sendCloudevents": 1}), &[("sendCloudevents", "invalid")]);
        let group = |text: String| json!({"cloudeventFilters": [{"typeSubstring": text}]});
        check(group("x".repeat(255)), &[]);
        check(group("x".repeat(256)), &[("cloudeventFilters.0.typeSubstring", "max_length")]);
        check(json!({"clientCertificate": "x"}), &[("clientCertificate", "invalid")]);
        check(json!({"clientCertificate": ""}), &[]);
    }

    #[test]
    fn other_ways_of_authentication_ask_for_their_own_fields() {
        check(json!({"authType": "api_key"}), &[]);
        check(json!({"authType": "no_auth", "auth": "absent"}), &[]);
        check(json!({"authType": "other"}), &[("authType", "invalid_choice")]);
        let zgw = json!({"authType": "zgw", "auth": "absent", "authClientId": "c", "secret": "s"});
        check(zgw.clone(), &[]);
        let missing = [("authClientId", "required"), ("secret", "required")];
        check(json!({"authType": "zgw"}), &missing);
        let oauth2 = |url: &str, scope: &str| {
            json!({"authType": "oauth2_client_credentials", "auth": "absent", "authClientId": "c",
                "secret": "s", "oauth2TokenUrl": url, "oauth2Scope": scope})
        };
        check(oauth2("https://id/token", "a b"), &[]);
        check(oauth2("id", ""), &[("oauth2TokenUrl", "invalid")]);
        check(oauth2("https://id/token", "é"), &[("oauth2Scope", "invalid")]);
        for changes in [zgw, oauth2("https://id/token", "a"), json!({"authType": "no_auth"})] {
            let read = Abonnement::read(&with(&changes), None, false).expect("fine");
            let auth = read.auth.as_ref().expect("some");
            let policy = profiles::notificaties().patched(&read.overrides(&auth.ways()));
            let policy = policy.expect("a policy that can be used");
            let needed: Vec<String> =
                policy.auth.iter().flat_map(|way| way.secrets()).map(ToString::to_string).collect();
            let given: Vec<String> =
                auth.secrets().iter().map(|secret| secret.name.to_string()).collect();
            assert_eq!(needed, given, "{changes}");
            assert!(!format!("{read:?}").contains("\"s\""), "secrets are not printed");
        }
    }

    #[test]
    fn a_patch_keeps_what_it_does_not_name() {
        let present = Abonnement {
            auth: None,
            ..Abonnement::read(
                &with(&json!({"sendCloudevents": true,
                    "cloudeventFilters": [{"typeSubstring": "x", "filters": {}}]})),
                None,
                false,
            )
            .expect("fine")
        };
        let read = |document: Value, patch| {
            Abonnement::read(&document, Some(&present), patch).expect("fine")
        };
        assert_eq!(read(json!({}), true), present);
        let changed = read(json!({"kanalen": [], "auth": "Bearer y"}), true);
        assert!(changed.kanalen.is_empty() && changed.auth.is_some() && changed.send_cloudevents);
        let certificate = CertificateId::from_bytes([7; 16]);
        let shows = Abonnement { client_certificate: Some(certificate), ..present.clone() };
        let patched = |document: &Value| {
            Abonnement::read(document, Some(&shows), true).expect("fine").client_certificate
        };
        assert_eq!(patched(&json!({})), Some(certificate));
        assert_eq!(patched(&json!({"clientCertificate": ""})), None);
        let replaced = read(document(), false);
        assert!(!replaced.send_cloudevents && replaced.cloudevent_filters.is_empty());
    }

    #[test]
    fn the_filter_says_what_the_abonnement_says() {
        let document =
            with(&json!({"cloudeventFilters": [{"typeSubstring": "nl", "filters": {}}]}));
        let off = Abonnement::read(&document, None, false).expect("fine");
        let on = Abonnement { send_cloudevents: true, ..off.clone() };
        for abonnement in [&off, &on] {
            let filter = abonnement.filter(TenantId::DEFAULT);
            filter.validate().expect("valid");
            let topics: Vec<&str> =
                filter.any_of.iter().map(|group| group.topics[0].as_str()).collect();
            assert_eq!(topics[0], "zaken");
            assert!(topics[1].starts_with("kanaal:"), "{topics:?}");
            assert_eq!(topics[2], cloudevent::TOPIC);
            assert_eq!(filter.any_of[0].attributes["bron"], "a".into());
            assert_eq!(filter.any_of[0].payload.is_some(), abonnement.send_cloudevents);
        }
        let alternative = |abonnement: &Abonnement| {
            abonnement.overrides(&[]).pointer("/request/alternative").cloned()
        };
        assert_eq!(alternative(&off), None);
        assert_eq!(alternative(&on), Some(json!(CLOUDEVENT)));
    }
}
