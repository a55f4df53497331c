//! Browsers as endpoints: whoever allows it gets messages as notifications, also while no page is open.
//!
//! The browser subscribes with its push service, for the key of the tenant; what it gives is a subscription like any
//! other, whose destination is that browser.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, Method, header};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::endpoints;
use super::guest::Guest;
use crate::assets;
use crate::pages::Answer;
use crate::pages::subscriptions::Given;
use crate::trouble::Trouble;

#[derive(Deserialize)]
struct PushKey {
    public_key: String,
}

/// The key that browsers subscribe with, where they may.
pub(crate) async fn key(guest: &Guest) -> Result<Option<String>, Trouble> {
    if !guest.portal.options.browsers {
        return Ok(None);
    }
    let found: Option<PushKey> = guest.find("/v1/push/key").await?;
    Ok(found.map(|found| found.public_key))
}

/// Which browser it is, for people.
fn name(headers: &HeaderMap) -> &'static str {
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    let agent = agent.unwrap_or_default();
    // Each of them claims to be those that follow.
    let known = [
        ("Edg/", "Edge"),
        ("OPR/", "Opera"),
        ("Firefox/", "Firefox"),
        ("Chrome/", "Chrome"),
        ("Safari/", "Safari"),
    ];
    known.into_iter().find(|(part, _)| agent.contains(part)).map_or("", |(_, name)| name)
}

/// `POST /portal/browsers`.
pub(crate) async fn add(guest: Arc<Guest>) -> Answer {
    let key = key(&guest).await?.ok_or(Trouble::NotFound("page"))?;
    let given: Value = serde_json::from_str(guest.form.typed("subscription")).unwrap_or_default();
    let mut destination = Map::new();
    for part in ["endpoint", "keys"] {
        if let Some(value) = given.get(part) {
            destination.insert(part.to_owned(), value.clone());
        }
    }
    destination.insert("type".to_owned(), json!("push"));
    destination.insert("application_server_key".to_owned(), json!(key));
    let body = json!({"destination": destination, "description": name(&guest.headers)});
    match guest.send::<Given>(Method::POST, "/v1/subscriptions", Some(&body)).await {
        Ok(made) => Ok(guest.see(&format!("endpoints/{}?done=browser", made.id))),
        Err(Trouble::Refused(refusal)) if (400..500).contains(&refusal.status) => {
            endpoints::show(&guest, Some(refusal.detail)).await
        }
        Err(trouble) => Err(trouble),
    }
}

/// `GET /portal/worker.js`: at this path, so that it is responsible for the portal and nothing else.
pub(crate) async fn worker() -> Response {
    let mut response = Response::new(Body::from(assets::contents("portal-worker.js")));
    let headers = response.headers_mut();
    headers
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/javascript; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_are_known_by_what_they_say() {
        let named = |agent: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
            name(&headers)
        };
        assert_eq!(named("Mozilla/5.0 (X11; rv:140.0) Gecko/20100101 Firefox/140.0"), "Firefox");
        assert_eq!(
            named("Mozilla/5.0 AppleWebKit/537.36 Chrome/150.0 Safari/537.36 Edg/150.0"),
            "Edge"
        );
        assert_eq!(named("curl/8"), "");
    }
}
