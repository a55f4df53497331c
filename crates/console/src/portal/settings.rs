//! Changes of an endpoint by a customer: where, which events, headers, how fast; and its end.

use std::sync::Arc;

use http::Method;
use serde_json::{Map, Value, json};

use super::endpoint::{Also, named, page};
use super::endpoint_new::{check_url, filter};
use super::endpoints::{self, types_of};
use super::guest::Guest;
use super::texts::Texts;
use crate::form::Fields;
use crate::pages::Answer;
use crate::pages::subscriptions::Given;
use crate::pages::typed::{self, Wrong};

/// The most headers that somebody may type; the API has its own limit as well.
const HEADERS_MAX: usize = 20;

/// A value of a header as it was typed, if it has no placeholders.
pub(crate) fn plain(template: &str) -> Option<String> {
    let rest = template.replace("{{", "\u{0}").replace("}}", "\u{1}");
    (!rest.contains(['{', '}'])).then(|| rest.replace('\u{0}', "{").replace('\u{1}', "}"))
}

/// What was typed, so that nothing of it is a placeholder.
fn template(plain: &str) -> String {
    plain.replace('{', "{{").replace('}', "}}")
}

/// Headers as somebody typed them, one on each line.
fn headers(t: &Texts, typed: &str) -> Result<Map<String, Value>, Wrong> {
    let wrong = || ("headers".to_owned(), t.headers_wrong.to_owned());
    let mut all = Map::new();
    for line in typed.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or_else(wrong)?;
        let (name, value) = (name.trim(), value.trim());
        // A name that ends with a question mark means something in a template.
        let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if name.is_empty() || !name.bytes().all(fine) || all.len() >= HEADERS_MAX {
            return Err(wrong());
        }
        all.insert(name.to_owned(), json!(template(value)));
    }
    Ok(all)
}

/// The policy with other headers and another rate; what the operator has set besides stays.
fn policy(t: &Texts, now: &Value, form: &Fields) -> Result<Value, Wrong> {
    let mut policy = now.as_object().cloned().unwrap_or_default();
    let typed = headers(t, form.typed("headers"))?;
    let mut request = policy.get("request").and_then(Value::as_object).cloned().unwrap_or_default();
    let kept = request.get("headers").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut own: Map<String, Value> = kept
        .into_iter()
        .filter(|(_, value)| value.as_str().is_none_or(|value| plain(value).is_none()))
        .collect();
    own.extend(typed);
    match own.is_empty() {
        true => drop(request.remove("headers")),
        false => drop(request.insert("headers".to_owned(), Value::Object(own))),
    }
    let mut limits = policy.get("limits").and_then(Value::as_object).cloned().unwrap_or_default();
    match form.get("rate").map(str::parse::<f64>) {
        None => drop(limits.remove("rate")),
        Some(Ok(rate)) if rate.is_finite() && rate > 0.0 => {
            limits.insert("rate".to_owned(), json!(rate));
        }
        Some(_) => return Err(("rate".to_owned(), t.rate_wrong.to_owned())),
    }
    for (name, part) in [("request", request), ("limits", limits)] {
        match part.is_empty() {
            true => drop(policy.remove(name)),
            false => drop(policy.insert(name.to_owned(), Value::Object(part))),
        }
    }
    Ok(Value::Object(policy))
}

fn change_of(t: &Texts, given: &Given, form: &Fields, chooses: bool) -> Result<Value, Wrong> {
    let mut body = Map::new();
    if given.url.is_some() {
        body.insert("url".to_owned(), json!(check_url(t, form.get("url"))?));
        let policy = policy(t, &given.policy, form)?;
        if policy != given.policy {
            body.insert("policy".to_owned(), policy);
        }
    }
    body.insert("name".to_owned(), form.get("name").map_or(Value::Null, |name| json!(name)));
    if chooses {
        body.insert("filter".to_owned(), filter(t, form)?);
    }
    Ok(Value::Object(body))
}

/// `POST …/change`.
pub(crate) async fn change(guest: Arc<Guest>) -> Answer {
    let id = named(&guest)?;
    let path = format!("/v1/subscriptions/{id}");
    let given: Given = guest.get(&path).await?;
    let view = guest.engine().catalog().subscription(guest.tenant()?.id, id)?;
    let (_, more) = types_of(&given.filter);
    let chooses = !more && !endpoints::is_notification(&view.subscription.filter);
    let wrong = match change_of(guest.t, &given, &guest.form, chooses) {
        Ok(body) => match guest.send::<Value>(Method::PATCH, &path, Some(&body)).await {
            Ok(_) => return Ok(guest.see(&format!("endpoints/{id}?done=changed"))),
            Err(trouble) => place_of(typed::refused(trouble)?),
        },
        Err(wrong) => wrong,
    };
    page(&guest, Also { wrong: Some(wrong), ..Also::default() }).await
}

/// The field of the form that a part of the API's document stands in.
fn place_of((field, detail): Wrong) -> Wrong {
    let field = match (field.as_str(), detail.starts_with("request"), detail.starts_with("limits"))
    {
        ("policy", true, _) => "headers".to_owned(),
        ("policy", _, true) => "rate".to_owned(),
        ("filter", ..) => "type".to_owned(),
        _ => field,
    };
    (field, detail)
}

/// `POST …/delete`, with the box checked.
pub(crate) async fn delete(guest: Arc<Guest>) -> Answer {
    let id = named(&guest)?;
    if !guest.form.is_checked("confirm") {
        let wrong = Some(("confirm".to_owned(), guest.t.confirm_missing.to_owned()));
        return page(&guest, Also { wrong, ..Also::default() }).await;
    }
    let view = guest.engine().catalog().subscription(guest.tenant()?.id, id)?;
    guest.send_bytes(Method::DELETE, &format!("/v1/subscriptions/{id}"), None).await?;
    let notification = endpoints::is_notification(&view.subscription.filter);
    Ok(guest.see(if notification { "notifications?done=deleted" } else { "?done=deleted" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_is_never_a_placeholder() {
        for text in ["plain", "{event.id}", "a{b", "}", "{{x}}", ""] {
            assert_eq!(plain(&template(text)).as_deref(), Some(text));
        }
        assert_eq!(plain("{event.id}"), None, "that is the operator's");
    }

    #[test]
    fn what_the_operator_has_set_stays() {
        let t = super::super::Language::English.texts();
        let now = json!({
            "schedule": {"max_attempts": 3},
            "limits": {"concurrency": 2, "rate": 5.0},
            "request": {"method": "PUT", "headers": {"X-Id": "{event.id}", "X-Old": "1"}},
        });
        let form = Fields::parse(b"headers=X-New%3A+a%7Bb%0A%0A&rate=");
        let wanted = json!({
            "schedule": {"max_attempts": 3},
            "limits": {"concurrency": 2},
            "request": {"method": "PUT", "headers": {"X-Id": "{event.id}", "X-New": "a{{b"}},
        });
        assert_eq!(policy(t, &now, &form), Ok(wanted));
        assert_eq!(
            policy(t, &json!({}), &Fields::parse(b"rate=2.5")),
            Ok(json!({"limits": {"rate": 2.5}}))
        );
        assert_eq!(policy(t, &json!({}), &Fields::default()), Ok(json!({})));
        for bad in [
            "rate=no",
            "rate=-1",
            "rate=inf",
            "headers=nothing",
            "headers=X%3F%3A1",
            "headers=%3A1",
        ] {
            assert!(policy(t, &json!({}), &Fields::parse(bad.as_bytes())).is_err(), "{bad}");
        }
    }
}
