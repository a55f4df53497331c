//! What an event must have to be announced as a batch.

use posthorn_domain::{ProfileName, TenantId, TopicName};
use posthorn_engine::{Engine, Error, Publish};

/// How placeholders of attributes begin.
const ATTRIBUTE: &str = "event.attributes.";

/// Where batches are announced, and what is made of them.
pub(super) struct Announcements {
    pub(super) tenant: TenantId,
    pub(super) topic: TopicName,
    pub(super) profile: ProfileName,
}

impl Announcements {
    /// Refuses events from which no callback could be made: such an event would stand at the head of every
    /// country's line, fail there for as long as the schedule lasts, and keep all later batches waiting.
    pub(super) fn check(&self, engine: &Engine, publish: Publish) -> Result<Publish, Error> {
        if publish.topic != self.topic {
            return Ok(publish);
        }
        // A profile that cannot be used is told of where it is used.
        let Ok(policy) = engine.catalog().profile(self.tenant, &self.profile) else {
            return Ok(publish);
        };
        for (parameter, template) in &policy.request.query {
            for names in template.placeholders() {
                let attribute = |name: &String| name.strip_prefix(ATTRIBUTE).map(str::to_owned);
                // Where anything else could stand in, it is no matter of attributes alone.
                let all: Option<Vec<String>> = names.iter().map(attribute).collect();
                let Some(all) = all else { continue };
                let given =
                    |name: &String| publish.attributes.get(name).is_some_and(|v| !v.is_empty());
                if !all.iter().any(given) {
                    let missing = all.join("` or `");
                    let problem = format!(
                        "`{missing}` is missing or empty; on the topic `{}` every event announces a \
                         batch, and callbacks send it as `{parameter}`",
                        publish.topic
                    );
                    return Err(Error::Event { field: "attributes", problem });
                }
            }
        }
        Ok(publish)
    }
}
