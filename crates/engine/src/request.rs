//! Building a request from a policy: templates, headers, authentication. Done afresh for each
//! attempt, since timestamps, codes and signatures must be of that moment.

mod as_sent;
mod authenticate;
mod certify;
mod envelope;
mod lookup;
mod redaction;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use posthorn_domain::policy::headers::{check_name, check_value};
use posthorn_domain::policy::{BodySource, RequestPolicy, Route};
use posthorn_domain::{
    Event, Lookup, Problem, SecretName, SubscriptionId, Template, TenantId, alternatives,
};

use crate::catalog::Catalog;
use crate::catalog::certificates::NoCertificate;
use crate::endpoint::Endpoint;
use crate::transport::{Deadlines, Outbound};

pub(crate) use as_sent::as_sent;
pub(crate) use lookup::{AttemptLookup, EventLookup, SubscriptionLookup, member};
pub(crate) use redaction::Redaction;

/// Why a request could not be built. Always our side's trouble, never the receiver's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildError {
    #[error("{0}")]
    Request(String),
    #[error("url: {0}")]
    Url(String),
    #[error("{0}")]
    Auth(String),
    #[error(transparent)]
    Certificate(#[from] NoCertificate),
}

impl BuildError {
    fn request(problem: Problem) -> Self {
        Self::Request(problem.into())
    }

    fn auth(problem: Problem) -> Self {
        Self::Auth(problem.into())
    }
}

/// What binds a sealed secret to its place: it cannot be moved to another tenant, subscription or
/// name. Ids have a fixed length, so that the parts cannot be shifted against each other.
pub(crate) fn secret_context(
    tenant: TenantId,
    subscription: SubscriptionId,
    name: &SecretName,
) -> Vec<u8> {
    let mut context = b"subscription-secret 2\0".to_vec();
    context.extend_from_slice(tenant.as_bytes());
    context.extend_from_slice(subscription.as_bytes());
    context.extend_from_slice(name.as_str().as_bytes());
    context
}

/// Builds the request of one attempt to an endpoint, and what must not be written down of its answer.
/// `token` is the one its policy asks a token server for.
pub(crate) fn build(
    catalog: &Catalog,
    endpoint: &Arc<Endpoint>,
    values: &AttemptLookup<'_>,
    token: Option<&str>,
) -> Result<(Outbound, Redaction), BuildError> {
    let AttemptLookup { view, policy, work, now, .. } = *values;
    // The rules of a profile may have become stricter, and may be relaxed again: not the end of anything.
    endpoint.parts().check(&policy.url).map_err(|e| BuildError::Url(e.message))?;
    let shape = &policy.request;
    let mut headers = HeaderMap::with_capacity(shape.headers.len() + 8);
    let (form, body) = match shape.body {
        BodySource::Payload => {
            let form = form(&work.event, shape.alternative.as_deref())?;
            envelope::wrap(values, form, &mut headers)?
        }
        BodySource::Empty => (Cow::Borrowed(""), Bytes::new()),
    };
    if shape.event_headers {
        envelope::name_event(&work.event, &mut headers)?;
    }
    if shape.body == BodySource::Payload {
        let media_type = shape.content_type.as_deref().unwrap_or(&form);
        headers.insert(header::CONTENT_TYPE, value("content-type", media_type)?);
    }
    if let Some(agent) = &shape.user_agent {
        headers.insert(header::USER_AGENT, value("user-agent", agent)?);
    }
    for (name, template) in &shape.headers {
        let (name, optional) = match name.strip_suffix('?') {
            Some(name) => (name, true),
            None => (name.as_str(), false),
        };
        match template.render(values, str::to_owned) {
            Ok(text) => {
                let value = value(name, &text)?;
                headers.insert(header_name(name).map_err(BuildError::request)?, value);
            }
            Err(_) if optional => {}
            Err(e) => return Err(BuildError::Request(format!("header `{name}`: {e}"))),
        }
    }
    let redaction = authenticate::add(&policy.auth, view, values, &body, token, &mut headers)?;
    let tls = certify::add(catalog, policy, view, endpoint, now, &mut headers)?;
    let path = match shape.route(work.event.family()) {
        Route::Path(path) => Some(path),
        _ => shape.path.as_ref(),
    };
    let outbound = Outbound {
        tenant: view.subscription.tenant,
        subscription: view.subscription.id,
        endpoint: Arc::clone(endpoint),
        path_and_query: path_and_query(shape, path, &endpoint.url, values)?,
        method: Method::from_bytes(shape.method.as_str().as_bytes())
            .map_err(|e| BuildError::Request(e.to_string()))?,
        headers,
        tls,
        proxy: policy.proxy.clone(),
        vet_always: policy.url.resolve,
        body,
        deadlines: Deadlines::from(&policy.limits),
    };
    Ok((outbound, redaction))
}

/// The form of an event that a policy asks for: its content type and its bytes.
pub(crate) fn form<'e>(
    event: &'e Event,
    wanted: Option<&str>,
) -> Result<(Cow<'e, str>, Bytes), BuildError> {
    if event.content_type == alternatives::MEDIA_TYPE {
        let chosen = alternatives::choose(&event.payload, wanted)
            .map_err(|e| BuildError::Request(format!("request.alternative: {e}")))?;
        if let Some((content_type, body)) = chosen {
            return Ok((Cow::Owned(content_type), body));
        }
    } else if wanted.is_none_or(|wanted| wanted == event.content_type) {
        return Ok((Cow::Borrowed(&event.content_type), event.payload.clone()));
    }
    let wanted = wanted.unwrap_or_default();
    Err(BuildError::Request(format!("request.alternative: the event has no form `{wanted}`")))
}

/// A header's name, checked as when its policy was: rules may have become stricter since.
fn header_name(name: &str) -> Result<HeaderName, Problem> {
    check_name(name).map_err(|problem| format!("header `{name}`: {problem}"))?;
    HeaderName::try_from(name).map_err(|_| format!("header `{name}` is not a name").into())
}

/// A header's value as it was rendered. The template was checked; what it was filled with was not.
fn header_value(name: &str, text: &str) -> Result<HeaderValue, Problem> {
    check_value(text).map_err(|problem| format!("header `{name}`: {problem}"))?;
    HeaderValue::from_str(text).map_err(|_| format!("header `{name}`: not a header value").into())
}

fn value(name: &str, text: &str) -> Result<HeaderValue, BuildError> {
    header_value(name, text).map_err(BuildError::request)
}

/// Path and query with the policy's additions; `None` when it adds nothing.
fn path_and_query(
    shape: &RequestPolicy,
    path: Option<&Template>,
    base: &str,
    values: &dyn Lookup,
) -> Result<Option<String>, BuildError> {
    if path.is_none() && shape.query.is_empty() {
        return Ok(None);
    }
    let render = |template: &Template| {
        template
            .render(values, |text| percent_encode(text).into_owned())
            .map_err(|e| BuildError::Request(e.to_string()))
    };
    let render_path = |template| render_path(template, values).map_err(BuildError::request);
    // The base is normalised: scheme, authority, path, and perhaps a query.
    let rest = base.split_once("://").map_or(base, |(_, rest)| rest);
    let from_path = rest.find('/').map_or("/", |at| &rest[at..]);
    let (root, query) = from_path.split_once('?').unwrap_or((from_path, ""));
    let mut out = match path {
        None => root.to_owned(),
        Some(template) => {
            let path = render_path(template)?;
            format!("{}/{}", root.trim_end_matches('/'), path.trim_start_matches('/'))
        }
    };
    let mut separator = '?';
    if !query.is_empty() {
        out.push(separator);
        out.push_str(query);
        separator = '&';
    }
    for (name, template) in &shape.query {
        out.push(separator);
        out.push_str(&percent_encode(name));
        out.push('=');
        out.push_str(&render(template)?);
        separator = '&';
    }
    Ok(Some(out))
}

/// Fills in a path, or a URL with one. A value is part of one segment: it may not be a whole one that
/// means the folder itself or the one above, or leave one empty, since receivers, and proxies before them,
/// would read another path than the template says.
pub(crate) fn render_path(template: &Template, values: &dyn Lookup) -> Result<String, Problem> {
    struct Plain;
    impl Lookup for Plain {
        fn lookup(&self, _: &str) -> Option<Cow<'_, str>> {
            Some(Cow::Borrowed("x"))
        }
    }
    let encode = |text: &str| percent_encode(text).into_owned();
    let whole = template.render(values, encode).map_err(|e| e.to_string())?;
    // Values have no slashes once they are encoded, so that segments stand where they stand in the
    // template.
    let written = template.render(&Plain, str::to_owned).map_err(|e| e.to_string())?;
    let path = |text: &str| text.split('?').next().unwrap_or_default().to_owned();
    let (filled, written) = (path(&whole), path(&written));
    let odd = |segment: &str| matches!(segment, "" | "." | "..");
    for (filled, written) in filled.split('/').zip(written.split('/')) {
        if odd(filled) && filled != written {
            return Err(format!(
                "a value turns a whole segment of the path `{}` into `{filled}`",
                template.source()
            )
            .into());
        }
    }
    Ok(whole)
}

/// Everything but the unreserved characters of RFC 3986.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Escapes everything but the unreserved characters.
pub(crate) fn percent_encode(text: &str) -> Cow<'_, str> {
    utf8_percent_encode(text, ESCAPED).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;
    impl Lookup for Nothing {
        fn lookup(&self, name: &str) -> Option<Cow<'_, str>> {
            Some(Cow::Borrowed(match name {
                "x" => "a b/c",
                "up" => "..",
                "here" => ".",
                "none" => "",
                _ => return None,
            }))
        }
    }

    #[track_caller]
    fn check(base: &str, path: Option<&str>, query: &[(&str, &str)], expected: Option<&str>) {
        let mut shape = posthorn_domain::policy::profiles::default_profile().request;
        let path: Option<Template> = path.map(|p| p.parse().expect("a template"));
        shape.query =
            query.iter().map(|(k, v)| ((*k).to_owned(), v.parse().expect("a template"))).collect();
        let built = path_and_query(&shape, path.as_ref(), base, &Nothing).expect("renders");
        assert_eq!(built.as_deref(), expected);
    }

    #[test]
    fn paths_join_and_queries_add() {
        check("https://h/a", None, &[], None);
        check("https://h/a/", Some("/b"), &[], Some("/a/b"));
        check("https://h", Some("b"), &[], Some("/b"));
        check("https://h/a?q=1", None, &[("d", "{x}")], Some("/a?q=1&d=a%20b%2Fc"));
        check("https://h/a", Some("{x}"), &[("d", "1")], Some("/a/a%20b%2Fc?d=1"));
        check("https://h/a", Some("b{none}/c.{up}/{x}{here}"), &[], Some("/a/b/c.../a%20b%2Fc."));
        check("https://h/a", None, &[("d", "{up}"), ("e", "{none}")], Some("/a?d=..&e="));
        // What the template itself says is its author's business.
        check("https://h/a", Some("b//{x}/"), &[], Some("/a/b//a%20b%2Fc/"));
    }

    #[test]
    fn a_value_cannot_be_a_segment_that_means_another_path() {
        for source in ["{up}", "/{here}/b", "a/{none}/b", "a/{none}", "{none}{up}", "/a/.{here}"] {
            let template: Template = source.parse().expect("a template");
            let refused = render_path(&template, &Nothing);
            assert!(refused.is_err(), "{source} became {refused:?}");
        }
    }
}
