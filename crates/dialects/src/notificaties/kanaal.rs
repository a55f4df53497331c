//! Kanalen: topics, with the names and links of this API.

use std::collections::BTreeMap;

use posthorn_domain::limits::ATTRIBUTES_MAX;
use posthorn_domain::{Labels, TenantId, Topic, TopicName};
use posthorn_engine::{Engine, Error};
use serde_json::{Value, json};

use super::fields::{Fields, Text};
use super::problem::Problem;
use super::uuid::Uuid;

/// The label of a topic with the name of its kanaal. Topics without are not kanalen.
const NAAM: &str = "kanaal";
/// The label of a topic with the link to its documentation.
const DOCUMENTATION: &str = "documentatie_link";
/// Topics that begin so are never called as somebody asks.
const OWN: &str = "posthorn:";
/// Topics of kanalen with names that topics cannot have.
const HASHED: &str = "kanaal:";

/// A kanaal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kanaal {
    pub(crate) uuid: Uuid,
    pub(crate) topic: TopicName,
    pub(crate) naam: String,
    pub(crate) documentatie_link: String,
    pub(crate) filters: Vec<String>,
}

/// The topic of a kanaal: its name where that can be a topic's, otherwise its UUID.
pub(crate) fn topic_of(tenant: TenantId, naam: &str) -> TopicName {
    let plain = Some(naam).filter(|naam| !naam.starts_with(OWN) && !naam.starts_with(HASHED));
    plain.and_then(|naam| TopicName::new(naam).ok()).unwrap_or_else(|| {
        let hashed = format!("{HASHED}{}", Uuid::of_name(tenant, naam));
        TopicName::new(&hashed).expect("a UUID is a name")
    })
}

impl Kanaal {
    pub(crate) fn new(
        tenant: TenantId,
        naam: &str,
        documentatie_link: &str,
        filters: Vec<String>,
    ) -> Self {
        Self {
            uuid: Uuid::of_name(tenant, naam),
            topic: topic_of(tenant, naam),
            naam: naam.to_owned(),
            documentatie_link: documentatie_link.to_owned(),
            filters,
        }
    }

    /// The kanaal that a topic is; `None` for topics that were made for something else.
    pub(super) fn of(topic: &Topic) -> Option<Self> {
        let naam = topic.labels.get(NAAM)?;
        let link = topic.labels.get(DOCUMENTATION).unwrap_or_default();
        let kanaal = Self::new(topic.tenant, naam, link, topic.attributes.clone());
        (kanaal.topic == topic.name).then_some(kanaal)
    }

    /// The kanaal of a name.
    pub(crate) fn named(engine: &Engine, tenant: TenantId, naam: &str) -> Option<Self> {
        let topic = engine.catalog().topic(tenant, &topic_of(tenant, naam)).ok()?;
        Self::of(&topic)
    }

    /// All of a tenant, by name.
    pub(crate) fn all(engine: &Engine, tenant: TenantId) -> Vec<Self> {
        let topics = engine.catalog().topics(tenant);
        let mut all: Vec<Self> = topics.iter().filter_map(|topic| Self::of(topic)).collect();
        all.sort_by(|a, b| a.naam.cmp(&b.naam));
        all
    }

    pub(crate) fn found(engine: &Engine, tenant: TenantId, uuid: Uuid) -> Option<Self> {
        Self::all(engine, tenant).into_iter().find(|kanaal| kanaal.uuid == uuid)
    }

    /// As in the API. `base` is what stands before the paths of this API.
    pub(crate) fn view(&self, base: &str) -> Value {
        json!({
            "url": self.url(base),
            "naam": self.naam,
            "documentatieLink": self.documentatie_link,
            "filters": self.filters,
        })
    }

    pub(crate) fn url(&self, base: &str) -> String {
        format!("{base}/kanaal/{}", self.uuid)
    }

    /// Reads a kanaal, or with `present` what is to be changed in one: with `patch`, what is not
    /// given stays as it is.
    pub(crate) fn read(
        tenant: TenantId,
        document: &Value,
        present: Option<&Kanaal>,
        patch: bool,
    ) -> Result<Self, Problem> {
        let mut fields = Fields::of(document)?;
        let naam = fields.text("naam", Text::required(50).in_patch(patch));
        let link = fields.url("documentatieLink", Text::optional(200));
        let filters = fields.texts("filters", 100, ATTRIBUTES_MAX - 2);
        if let (Some(naam), Some(present)) = (&naam, present)
            && *naam != present.naam
        {
            let reason = "The name of a kanaal cannot be changed; create another kanaal.";
            fields.fault("naam", "wijzigen-niet-toegelaten", reason);
        }
        fields.finish()?;
        let kept = present.filter(|_| patch);
        let naam = naam.or_else(|| kept.map(|kanaal| kanaal.naam.clone())).unwrap_or_default();
        let link = link.or_else(|| kept.map(|kanaal| kanaal.documentatie_link.clone()));
        let filters = filters.or_else(|| kept.map(|kanaal| kanaal.filters.clone()));
        let read = Self::new(tenant, &naam, &link.unwrap_or_default(), filters.unwrap_or_default());
        Ok(read)
    }

    /// Makes it. [`Error::AlreadyExists`] when there is a topic of that name, on whatever node.
    pub(crate) async fn create(
        &self,
        engine: &Engine,
        tenant: TenantId,
    ) -> posthorn_engine::Result<()> {
        let (topic, filters) = (self.topic.clone(), self.filters.clone());
        engine.create_topic(tenant, topic, String::new(), filters, self.labels()).await?;
        Ok(())
    }

    /// Makes it, or replaces the kanaal of that name. A topic that is not a kanaal is left alone:
    /// [`Error::AlreadyExists`].
    pub(crate) async fn put(
        &self,
        engine: &Engine,
        tenant: TenantId,
    ) -> posthorn_engine::Result<()> {
        let present = engine.catalog().topic(tenant, &self.topic).ok();
        if present.is_some_and(|topic| Self::of(&topic).is_none()) {
            return Err(Error::AlreadyExists("topic that is not a kanaal"));
        }
        let (topic, filters) = (self.topic.clone(), self.filters.clone());
        engine.put_topic(tenant, topic, String::new(), filters, self.labels()).await?;
        Ok(())
    }

    fn labels(&self) -> Labels {
        let mut labels = BTreeMap::from([(NAAM.to_owned(), self.naam.clone())]);
        if !self.documentatie_link.is_empty() {
            labels.insert(DOCUMENTATION.to_owned(), self.documentatie_link.clone());
        }
        Labels::new(labels).expect("two short texts")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: TenantId = TenantId::DEFAULT;

    #[test]
    fn any_name_has_a_topic_of_its_own() {
        assert_eq!(topic_of(TENANT, "zaken").as_str(), "zaken");
        let odd = ["kanaal met spaties", "é", "posthorn:cloudevents", "kanaal:x", ""];
        for naam in odd {
            let topic = topic_of(TENANT, naam);
            assert!(topic.as_str().starts_with(HASHED), "{naam}");
            assert_ne!(topic.as_str(), naam);
        }
        let hashed = topic_of(TENANT, "é").to_string();
        assert_ne!(topic_of(TENANT, &hashed).as_str(), hashed, "nobody can take another's topic");
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "tables read better without borrows")]
    fn check(document: Value, patch: bool, expected: &[(&str, &str)]) {
        let present = Kanaal::new(TENANT, "zaken", "http://docs/", vec!["bron".to_owned()]);
        let present = Some(&present).filter(|_| patch);
        let found = Kanaal::read(TENANT, &document, present, patch);
        let found = found.err().and_then(|p| p.faults).unwrap_or_default();
        let found: Vec<(&str, &str)> = found.iter().map(|f| (f.name.as_str(), f.code)).collect();
        assert_eq!(found, expected, "{document}");
    }

    #[test]
    fn kanalen_are_checked_field_by_field() {
        check(json!({"naam": "zaken"}), false, &[]);
        check(json!({"naam": "x".repeat(50)}), false, &[]);
        check(json!({"naam": "x".repeat(51)}), false, &[("naam", "max_length")]);
        check(json!({}), false, &[("naam", "required")]);
        check(json!({"naam": ""}), false, &[("naam", "blank")]);
        let link = |text: &str| json!({"naam": "a", "documentatieLink": text});
        check(link(""), false, &[]);
        check(link("x"), false, &[("documentatieLink", "invalid")]);
        check(
            link(&format!("http://a/{}", "x".repeat(200))),
            false,
            &[("documentatieLink", "max_length")],
        );
        check(json!({"naam": "a", "filters": "bron"}), false, &[("filters", "not_a_list")]);
        check(
            json!({"naam": "a", "filters": ["ok", "", "x".repeat(101)]}),
            false,
            &[("filters.1", "blank"), ("filters.2", "max_length")],
        );
        check(json!({}), true, &[]);
        check(json!({"naam": "zaken"}), true, &[]);
        check(json!({"naam": "andere"}), true, &[("naam", "wijzigen-niet-toegelaten")]);
    }

    #[test]
    fn a_patch_keeps_what_it_does_not_name() {
        let present = Kanaal::new(TENANT, "zaken", "http://docs/", vec!["bron".to_owned()]);
        let read = |document: Value, patch| {
            Kanaal::read(TENANT, &document, Some(&present), patch).expect("fine")
        };
        assert_eq!(read(json!({}), true), present);
        let changed = read(json!({"filters": []}), true);
        assert_eq!(
            (changed.documentatie_link.as_str(), changed.filters.len()),
            ("http://docs/", 0)
        );
        let replaced = read(json!({"naam": "zaken", "filters": ["a"]}), false);
        assert_eq!((replaced.documentatie_link.as_str(), replaced.filters.len()), ("", 1));
    }
}
