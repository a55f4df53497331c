//! Messages of the past, sent again: what operators ask for in the words of this API, and what it means for
//! the engine. Who they are is asked by the native API, which this is served with; how fast it goes and what is
//! left alone is the engine's affair.

use std::collections::BTreeMap;

use posthorn_domain::filter::{AttributeNames, Condition, Group, MissingAttribute};
use posthorn_domain::limits::ATTRIBUTE_NAME_BYTES_MAX;
use posthorn_domain::{Filter, ReplayStatus, Selection, SubscriptionId, TenantId, Timestamp};
use posthorn_engine::{Engine, JOB_PER_SECOND_MAX, NewReplay};
use serde_json::{Value, json};

use super::abonnement::{Abonnement, subscription_name};
use super::fields::{ACTIE, Fields, MapRule, RESOURCE, Text};
use super::kanaal::Kanaal;
use super::problem::Fault;
use super::uuid::Uuid;

/// What a request may say. Everything else is an error: a condition that is misspelt would mean everything.
const KNOWN: [&str; 11] = [
    "van",
    "tot",
    "resultaat",
    "kanaal",
    "kenmerken",
    "resource",
    "actie",
    "hoofdObject",
    "resourceUrl",
    "abonnement",
    "perSeconde",
];
/// Kenmerken in one request.
const KENMERKEN_MAX: usize = 20;
const PER_SECOND_DEFAULT: u32 = 100;

/// Reads what is to be sent again.
pub(super) fn read(
    engine: &Engine,
    tenant: TenantId,
    document: &Value,
    created_by: String,
) -> Result<NewReplay, Vec<Fault>> {
    let mut fields = Fields::of(document).map_err(|problem| problem.faults.unwrap_or_default())?;
    fields.only(&KNOWN);
    let (from, until) = (time(&mut fields, "van"), time(&mut fields, "tot"));
    if from.is_some_and(|from| from >= engine.now()) {
        fields.fault("van", "invalid", "Must be in the past.");
    }
    if from.zip(until).is_some_and(|(from, until)| from >= until) {
        fields.fault("tot", "invalid", "Must be later than van.");
    }
    let subscription = abonnement(&mut fields, engine, tenant);
    let status = resultaat(&mut fields);
    let kanaal = fields.text("kanaal", Text::given(50));
    let kanaal = kanaal.and_then(|naam| {
        let found = Kanaal::named(engine, tenant, &naam);
        if found.is_none() {
            let reason = format!("There is no kanaal with the name {naam}.");
            fields.fault("kanaal", "message_kanaal", reason);
        }
        found
    });
    let named = [(RESOURCE, "resource"), (ACTIE, "actie")];
    let attributes = named
        .into_iter()
        .filter_map(|(attribute, name)| {
            Some((attribute.to_owned(), fields.text(name, Text::given(100))?))
        })
        .collect();
    let rule = MapRule {
        items_max: KENMERKEN_MAX,
        key_bytes_max: ATTRIBUTE_NAME_BYTES_MAX,
        value_max: 1_000,
        blank: true,
    };
    let kenmerken = fields.map("kenmerken", rule).unwrap_or_default();
    let urls: Vec<Value> = ["hoofdObject", "resourceUrl"]
        .into_iter()
        .filter_map(|name| {
            let url = fields.url(name, Text::given(1_000))?;
            Some(json!({"test": {"path": format!("/{name}"), "op": "eq", "value": url}}))
        })
        .collect();
    let per_second = fields.number("perSeconde", 1, JOB_PER_SECOND_MAX);
    let faults = fields.faults();
    if !faults.is_empty() {
        return Err(faults);
    }
    let topics = kanaal.map(|kanaal| kanaal.topic).into_iter().collect();
    let filter = filter(kenmerken, &urls);
    let events = Selection { topics, attributes, from, until, filter, ..Selection::default() };
    let per_second = per_second.unwrap_or(PER_SECOND_DEFAULT);
    Ok(NewReplay { subscription, events, status, per_second, created_by })
}

/// What is asked of a message besides what every event has. Names of kenmerken are compared as abonnementen do.
fn filter(kenmerken: BTreeMap<String, String>, urls: &[Value]) -> Option<Filter> {
    if kenmerken.is_empty() && urls.is_empty() {
        return None;
    }
    let payload: Option<Condition> = (!urls.is_empty())
        .then(|| serde_json::from_value(json!({"all": urls})).expect("tests of two texts"));
    let attributes =
        kenmerken.into_iter().map(|(name, value)| (name, value.as_str().into())).collect();
    Some(Filter {
        any_of: vec![Group { attributes, payload, ..Group::default() }],
        missing_attribute: MissingAttribute::Mismatch,
        attribute_names: AttributeNames::CamelOrSnake,
    })
}

fn time(fields: &mut Fields<'_>, name: &str) -> Option<Timestamp> {
    let text = fields.text(name, Text::given(100))?;
    let parsed = text.parse().ok();
    if parsed.is_none() {
        let reason = "Use ISO 8601 with date, time and offset, such as 2019-01-01T12:00:00Z.";
        fields.fault(name, "invalid", reason);
    }
    parsed
}

/// Which messages, by what came of them. Of all abonnementen together, only what has ended can be sent again.
fn resultaat(fields: &mut Fields<'_>) -> ReplayStatus {
    let text = fields.text("resultaat", Text::given(100));
    let to_one = fields.has("abonnement");
    let (status, reason) = match text.as_deref() {
        None | Some("mislukt") => return ReplayStatus::Failed,
        Some("gelukt") => return ReplayStatus::Delivered,
        Some("gemist") => (ReplayStatus::Missed, "gemist needs an abonnement."),
        Some("alle") => (ReplayStatus::All, "alle needs an abonnement."),
        Some(_) => (
            ReplayStatus::Failed,
            "Must be mislukt or gelukt; with an abonnement also gemist or alle.",
        ),
    };
    if !to_one || status == ReplayStatus::Failed {
        fields.fault("resultaat", "invalid_choice", reason);
    }
    status
}

/// The subscription of an abonnement, which is named by its UUID or its URL.
fn abonnement(
    fields: &mut Fields<'_>,
    engine: &Engine,
    tenant: TenantId,
) -> Option<SubscriptionId> {
    let text = fields.text("abonnement", Text::given(1_000))?;
    let last = text.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let found = last.parse::<Uuid>().ok().and_then(|uuid| {
        let view = engine.catalog().subscription_named(tenant, &subscription_name(uuid))?;
        Abonnement::of(engine, &view).map(|_| view.subscription.id)
    });
    if found.is_none() {
        let reason = "There is no such abonnement; give its UUID or its url.";
        fields.fault("abonnement", "does_not_exist", reason);
    }
    found
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use posthorn_domain::filter::{Candidate, Matching};
    use posthorn_domain::{Event, EventId, EventType, TopicName};

    use super::*;

    fn read_alone(document: &Value) -> (ReplayStatus, Vec<(String, &'static str)>) {
        let mut fields = Fields::of(document).expect("an object");
        fields.only(&KNOWN);
        let _ = [time(&mut fields, "van"), time(&mut fields, "tot")];
        let status = resultaat(&mut fields);
        fields.number("perSeconde", 1, JOB_PER_SECOND_MAX);
        (status, fields.faults().into_iter().map(|fault| (fault.name, fault.code)).collect())
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "tables read better without borrows")]
    fn refused(document: Value, name: &str, code: &str) {
        let faults = read_alone(&document).1;
        assert_eq!(faults.len(), 1, "{document}: {faults:?}");
        assert_eq!((faults[0].0.as_str(), faults[0].1), (name, code), "{document}");
    }

    #[test]
    fn results_are_those_of_the_original_and_some_need_an_abonnement() {
        for (document, status) in [
            (json!({}), ReplayStatus::Failed),
            (json!({"resultaat": "mislukt"}), ReplayStatus::Failed),
            (json!({"resultaat": "gelukt"}), ReplayStatus::Delivered),
            (json!({"resultaat": "gemist", "abonnement": "x"}), ReplayStatus::Missed),
            (json!({"resultaat": "alle", "abonnement": "x"}), ReplayStatus::All),
        ] {
            assert_eq!(read_alone(&document), (status, Vec::new()), "{document}");
        }
        for wrong in ["gemist", "alle", "failed"] {
            refused(json!({"resultaat": wrong}), "resultaat", "invalid_choice");
        }
        refused(json!({"resultaat": "failed", "abonnement": "x"}), "resultaat", "invalid_choice");
        refused(json!({"resultaat": ""}), "resultaat", "blank");
    }

    #[test]
    fn times_numbers_and_names_are_checked() {
        refused(json!({"van": "gisteren"}), "van", "invalid");
        refused(json!({"tot": "2026-01-01"}), "tot", "invalid");
        refused(json!({"tot": null}), "tot", "null");
        refused(json!({"perSeconde": 0}), "perSeconde", "invalid");
        refused(json!({"perSeconde": 5_001}), "perSeconde", "invalid");
        refused(json!({"perSeconde": 1.5}), "perSeconde", "invalid");
        refused(json!({"perSeconde": "10"}), "perSeconde", "invalid");
        refused(json!({"kenmerk": {}}), "kenmerk", "unknown-field");
        assert_eq!(read_alone(&json!({"perSeconde": 5_000})).1, []);
    }

    #[test]
    fn a_message_is_recognised_by_its_kenmerken_and_urls() {
        let payload = json!({"hoofdObject": "http://oz/zaken/1", "resourceUrl": "http://oz/s/2"});
        let event = Event {
            id: EventId::new(Timestamp::from_millis(0), 0),
            tenant: TenantId::DEFAULT,
            topic: TopicName::new("zaken").unwrap(),
            event_type: EventType::new("x").unwrap(),
            attributes: [("objectType".to_owned(), "melding".to_owned())].into(),
            key: None,
            content_type: "application/json".to_owned(),
            payload: Bytes::from(payload.to_string()),
            accepted_at: Timestamp::from_millis(0),
            publisher_id: None,
            deliver_at: None,
            retention: None,
            expunged_at: None,
            trace: None,
        };
        let wants = |kenmerken: &[(&str, &str)], urls: &[(&str, &str)]| {
            let pairs = kenmerken.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
            let urls = urls.iter().map(|(name, url)| {
                json!({"test": {"path": format!("/{name}"), "op": "eq", "value": url}})
            });
            let filter =
                filter(pairs.collect(), &urls.collect::<Vec<Value>>()).expect("conditions");
            filter.validate().expect("within the limits");
            Matching::new(&Candidate::new(&event)).wants(&filter)
        };
        assert_eq!(filter(BTreeMap::new(), &[]), None);
        assert!(wants(&[("object_type", "melding")], &[]));
        assert!(wants(&[("objectType", "*")], &[("hoofdObject", "http://oz/zaken/1")]));
        assert!(!wants(&[("objectType", "zaak")], &[]));
        assert!(!wants(&[("anders", "melding")], &[]), "what a message does not have is no match");
        assert!(!wants(&[], &[("hoofdObject", "http://oz/zaken/2")]));
        let both = [("hoofdObject", "http://oz/zaken/1"), ("resourceUrl", "http://oz/s/3")];
        assert!(!wants(&[], &both));
    }
}
