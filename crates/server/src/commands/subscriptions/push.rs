//! A browser, or another agent, as the destination of a subscription.

use posthorn_domain::{PushUrgency, Span};
use serde_json::{Map, Value, json};

use crate::commands::read_json;
use crate::exit::{Code, Failure};

/// Fields of a push destination.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct PushFields {
    /// To a browser: its push subscription (toJSON()), as JSON, @FILE or - for stdin
    #[arg(long, value_name = "JSON")]
    push: Option<String>,
    /// To an agent: the URL of its endpoint
    #[arg(long, value_name = "URL", conflicts_with = "push")]
    push_endpoint: Option<String>,
    /// The agent's public key; with --auth, messages are encrypted for it
    #[arg(long, value_name = "KEY", allow_hyphen_values = true, requires_all = ["push_endpoint", "auth"])]
    p256dh: Option<String>,
    /// The secret that goes with the agent's key
    #[arg(long, value_name = "SECRET", allow_hyphen_values = true, requires = "p256dh")]
    auth: Option<String>,
    /// How long a message waits for the agent, e.g. 7d; as long as possible when not given
    #[arg(long, value_name = "SPAN")]
    ttl: Option<Span>,
    /// How urgent messages are: very-low, low, normal or high
    #[arg(long, value_name = "URGENCY")]
    urgency: Option<PushUrgency>,
    /// Keep only the newest waiting message of a topic, e.g. news, or '{event.key}'
    #[arg(long, value_name = "TOPIC")]
    push_topic: Option<String>,
}

impl PushFields {
    /// The destination as the API takes it, if there is one.
    pub fn into_destination(self) -> anyhow::Result<Option<Value>> {
        let mut destination = match (&self.push, self.push_endpoint) {
            (Some(text), _) => match read_json("the push subscription", text)? {
                Value::Object(fields) => fields,
                _ => {
                    let message = "the push subscription is not a JSON object";
                    return Err(Failure::new(Code::Usage, message)
                        .hint("give what PushSubscription.toJSON() shows in the browser")
                        .into());
                }
            },
            (None, Some(endpoint)) => {
                Map::from_iter([("endpoint".to_owned(), Value::String(endpoint))])
            }
            (None, None) => {
                let lonely = [
                    ("--ttl", self.ttl.is_some()),
                    ("--urgency", self.urgency.is_some()),
                    ("--push-topic", self.push_topic.is_some()),
                ];
                let Some((flag, _)) = lonely.into_iter().find(|(_, given)| *given) else {
                    return Ok(None);
                };
                let message = format!("{flag} needs --push or --push-endpoint");
                return Err(Failure::new(Code::Usage, message).into());
            }
        };
        destination.insert("type".to_owned(), json!("push"));
        if let (Some(p256dh), Some(auth)) = (self.p256dh, self.auth) {
            destination.insert("keys".to_owned(), json!({"p256dh": p256dh, "auth": auth}));
        }
        if let Some(ttl) = self.ttl {
            destination.insert("ttl".to_owned(), json!(ttl));
        }
        if let Some(urgency) = self.urgency {
            destination.insert("urgency".to_owned(), json!(urgency));
        }
        if let Some(topic) = self.push_topic {
            destination.insert("topic".to_owned(), topic.into());
        }
        Ok(Some(Value::Object(destination)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(fields: PushFields, expected: Option<&Value>) {
        assert_eq!(fields.into_destination().expect("fits").as_ref(), expected);
    }

    /// One of 64 keys in base64url begins with a hyphen.
    #[test]
    fn keys_may_begin_with_a_hyphen() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            fields: PushFields,
        }
        let line = ["x", "--push-endpoint", "https://p/", "--p256dh", "-P", "--auth", "-a"];
        let line = <Line as clap::Parser>::try_parse_from(line).expect("an ordinary line");
        let keys = json!({"p256dh": "-P", "auth": "-a"});
        let expected = json!({"type": "push", "endpoint": "https://p/", "keys": keys});
        check(line.fields, Some(&expected));
    }

    #[test]
    fn a_browsers_json_is_taken_as_it_is() {
        let text =
            r#"{"endpoint":"https://p/","expirationTime":null,"keys":{"p256dh":"B","auth":"a"}}"#;
        let fields = PushFields {
            push: Some(text.to_owned()),
            ttl: Some(Span::from_secs(60)),
            urgency: Some(PushUrgency::VeryLow),
            push_topic: Some("{event.key}".to_owned()),
            ..PushFields::default()
        };
        let expected = json!({"type": "push", "endpoint": "https://p/", "expirationTime": null,
            "keys": {"p256dh": "B", "auth": "a"}, "ttl": "1m", "urgency": "very-low",
            "topic": "{event.key}"});
        check(fields, Some(&expected));
        let list = PushFields { push: Some("[]".to_owned()), ..PushFields::default() };
        assert!(list.into_destination().is_err());
    }

    #[test]
    fn an_endpoint_may_come_with_keys_or_without() {
        let bare =
            PushFields { push_endpoint: Some("https://p/".to_owned()), ..PushFields::default() };
        check(bare.clone(), Some(&json!({"type": "push", "endpoint": "https://p/"})));
        let keys = PushFields { p256dh: Some("B".into()), auth: Some("a".into()), ..bare };
        let expected = json!({"type": "push", "endpoint": "https://p/",
            "keys": {"p256dh": "B", "auth": "a"}});
        check(keys, Some(&expected));
        check(PushFields::default(), None);
        for lonely in [
            PushFields { ttl: Some(Span::from_secs(60)), ..PushFields::default() },
            PushFields { urgency: Some(PushUrgency::High), ..PushFields::default() },
            PushFields { push_topic: Some("news".to_owned()), ..PushFields::default() },
        ] {
            assert!(lonely.into_destination().is_err());
        }
    }
}
