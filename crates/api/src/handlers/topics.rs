//! Topics.

use http::StatusCode;
use posthorn_domain::limits::{ATTRIBUTE_NAME_BYTES_MAX, ATTRIBUTES_MAX};
use posthorn_domain::{Labels, TopicName};
use serde::Deserialize;

use super::{check_description, page};
use crate::call::{Answer, Call};
use crate::cursor::{self, List};
use crate::problem::{Problem, Result};
use crate::respond;
use crate::wire::TopicView;

/// `GET /v1/topics`.
pub(crate) async fn list(call: Call) -> Answer {
    let after = call.query.text("cursor").map(|text| cursor::decode(List::Topics, text));
    let after = after.transpose()?.unwrap_or_default();
    let topics = call.engine().catalog().topics(call.tenant());
    let place = |topic: &_| name_of(topic).as_bytes().to_vec();
    respond::ok(&page::<_, TopicView<'_>>(
        &topics,
        List::Topics,
        call.query.limit()?,
        |topic| name_of(topic).as_bytes() > after.as_slice(),
        place,
    ))
}

fn name_of(topic: &std::sync::Arc<posthorn_domain::Topic>) -> &str {
    topic.name.as_str()
}

/// `GET /v1/topics/{name}`.
pub(crate) async fn one(mut call: Call) -> Answer {
    let name: TopicName = call.named("topic").await?;
    let topic = call.engine().catalog().topic(call.tenant(), &name)?;
    respond::ok(&TopicView::from(&topic))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    #[serde(default)]
    description: String,
    #[serde(default)]
    attributes: Vec<String>,
    #[serde(default)]
    labels: Labels,
}

/// `PUT /v1/topics/{name}`.
pub(crate) async fn put(mut call: Call) -> Answer {
    // A name that breaks the rules is the client's mistake here, not a thing that is missing.
    let text: String = call.named("topic").await?;
    let name = TopicName::new(&text).map_err(|e| Problem::field("name", e.to_string()))?;
    let Contents { description, attributes, labels } = call.json().await?;
    check_description(&description)?;
    check_attributes(&attributes)?;
    let tenant = call.tenant();
    let topic = call.engine().put_topic(tenant, name, description, attributes, labels).await?;
    respond::ok(&TopicView::from(&topic))
}

fn check_attributes(names: &[String]) -> Result<()> {
    if names.len() > ATTRIBUTES_MAX {
        let detail = format!("at most {ATTRIBUTES_MAX} attributes are allowed");
        return Err(Problem::field("attributes", detail));
    }
    for (index, name) in names.iter().enumerate() {
        let long = name.is_empty() || name.len() > ATTRIBUTE_NAME_BYTES_MAX;
        if long || name.chars().any(char::is_control) {
            let detail = format!("must be 1 to {ATTRIBUTE_NAME_BYTES_MAX} printable bytes");
            return Err(Problem::field(format!("attributes[{index}]"), detail));
        }
    }
    Ok(())
}

/// `DELETE /v1/topics/{name}`.
pub(crate) async fn delete(mut call: Call) -> Answer {
    let name: TopicName = call.named("topic").await?;
    call.engine().delete_topic(call.tenant(), name).await?;
    Ok(respond::empty(StatusCode::NO_CONTENT))
}
