//! The server that everything comes from. It is only read.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Method, StatusCode};
use serde_json::Value;

use super::super::patience;
use crate::client::{Access, Call, Client, Reply, segment, with_query};
use crate::exit::{self, Code, Failure};
use crate::terminal;

/// Items of a page: as many as there may be, and fewer for a server that does not like that.
const LIMITS: [u32; 3] = [250, 100, 50];
/// A list that is longer has no end.
const PAGES_MAX: u32 = 100_000;
/// How much of what it says is repeated in an error.
const SAID_CHARS_MAX: usize = 200;

/// A Svix server.
pub(super) struct Source {
    client: Client,
    /// Whether it knows transformations; not every server does.
    transforms: AtomicBool,
}

impl Source {
    /// Connects to nothing yet.
    pub(super) fn new(url: &str, token: &str, access: &Access) -> anyhow::Result<Self> {
        // People copy the address with or without what stands before all paths.
        let url = url.trim_end_matches('/');
        let server = url.strip_suffix("/api/v1").unwrap_or(url).to_owned();
        let key = Some(token.to_owned());
        let client = Client::new(&Access { server, key, tenant: None, ca: access.ca.clone() })
            .map_err(|error| Failure::new(exit::code_of(&error), format!("--from: {error}")))?;
        Ok(Self { client, transforms: AtomicBool::new(true) })
    }

    pub(super) fn event_types(&self) -> Pages {
        let query = [("include_archived", "true"), ("with_content", "true")];
        Pages::new("/event-type", &query, true)
    }

    pub(super) fn applications(&self) -> Pages {
        Pages::new("/app", &[("order", "ascending")], true)
    }

    pub(super) fn endpoints(&self, application: &str) -> Pages {
        let path = format!("/app/{}/endpoint", segment(application));
        Pages::new(&path, &[("order", "ascending")], false)
    }

    /// The transformation of an endpoint, where there is such a thing.
    pub(super) async fn transformation(&self, endpoint: &str) -> anyhow::Result<Option<Value>> {
        if !self.transforms.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let reply = self.ask(&format!("{endpoint}/transformation")).await?;
        match reply.status.as_u16() {
            404 | 405 | 501 => {
                self.transforms.store(false, Ordering::Relaxed);
                Ok(None)
            }
            _ => self.read(&reply),
        }
    }

    /// What is at a path, or that nothing is there (any more).
    pub(super) async fn get(&self, path: &str) -> anyhow::Result<Option<Value>> {
        self.read(&self.ask(path).await?)
    }

    async fn ask(&self, path: &str) -> anyhow::Result<Reply> {
        let call = Call::new(Method::GET, format!("/api/v1{path}"));
        patience::exchange(&self.client, &call).await.map_err(|error| {
            let failure = Failure::new(exit::code_of(&error), format!("{error:#}"));
            failure.hint("check the address given with --from").into()
        })
    }

    fn read(&self, reply: &Reply) -> anyhow::Result<Option<Value>> {
        let server = self.client.server();
        let said = said(reply);
        let failure = match reply.status {
            status if status.is_success() => match serde_json::from_slice::<Value>(&reply.body) {
                Ok(value) if value.is_object() => return Ok(Some(value)),
                _ => return Err(self.stranger("its answer is no JSON object").into()),
            },
            StatusCode::NOT_FOUND if is_theirs(reply) => return Ok(None),
            StatusCode::UNAUTHORIZED => {
                let message = format!("{server} does not accept the token{said}");
                Failure::new(Code::Denied, message)
                    .hint("give a token of that server with --token or SVIX_TOKEN")
            }
            StatusCode::FORBIDDEN => {
                let message = format!("the token may not read everything at {server}{said}");
                Failure::new(Code::Denied, message).hint(
                    "it takes a token of the organisation (environment), not of an application",
                )
            }
            status if patience::is_passing(status) => {
                let message = format!("{server} answered {status} again and again{said}");
                Failure::new(Code::Unavailable, message).hint("try again later")
            }
            status => self.stranger(&format!("it answered {status}{said}")),
        };
        Err(failure.into())
    }

    fn stranger(&self, why: &str) -> Failure {
        let message = format!("{} does not look like a Svix server: {why}", self.client.server());
        Failure::new(Code::Failure, message).hint(
            "give the address of the API with --from, without /api/v1: https://svix.example.com",
        )
    }
}

/// Whether an answer is made as their answers are, and not by somebody else who has nothing at this path.
fn is_theirs(reply: &Reply) -> bool {
    let value: Option<Value> = serde_json::from_slice(&reply.body).ok();
    value.is_some_and(|value| value.get("code").is_some_and(Value::is_string))
}

/// What an answer says for people, if anything.
fn said(reply: &Reply) -> String {
    let value: Option<Value> = serde_json::from_slice(&reply.body).ok();
    let detail = value.as_ref().and_then(|value| value.get("detail")).and_then(Value::as_str);
    let detail = detail.map(|text| text.chars().take(SAID_CHARS_MAX).collect::<String>());
    detail.map(|text| format!(" ({})", terminal::clean(&text))).unwrap_or_default()
}

/// A list, page by page.
pub(super) struct Pages {
    path: String,
    query: Vec<(&'static str, String)>,
    /// Whether it is there on every such server.
    always: bool,
    limit: usize,
    iterator: Option<String>,
    seen: HashSet<String>,
    pages: u32,
    done: bool,
}

impl Pages {
    fn new(path: &str, query: &[(&'static str, &str)], always: bool) -> Self {
        Self {
            path: path.to_owned(),
            query: query.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
            always,
            limit: 0,
            iterator: None,
            seen: HashSet::new(),
            pages: 0,
            done: false,
        }
    }

    /// The next page, until there is none.
    pub(super) async fn next(&mut self, source: &Source) -> anyhow::Result<Option<Vec<Value>>> {
        if self.done {
            return Ok(None);
        }
        let Some(mut page) = self.ask(source).await? else {
            return match self.always {
                true => Err(source.stranger("it has no such list").into()),
                // It was deleted a moment ago.
                false => Ok(None),
            };
        };
        let Some(Value::Array(data)) = page.get_mut("data").map(Value::take) else {
            return Err(source.stranger("its list has no data").into());
        };
        let next = page.get("iterator").and_then(Value::as_str).map(str::to_owned);
        self.pages += 1;
        self.done = page.get("done").and_then(Value::as_bool).unwrap_or(next.is_none());
        if !self.done {
            let broken = |why: &str| {
                let message = format!("the list {} of {} {why}", self.path, source.client.server());
                Failure::new(Code::Failure, message)
            };
            let Some(next) = next else {
                return Err(broken("says that there is more, but not where").into());
            };
            if self.pages >= PAGES_MAX || !self.seen.insert(next.clone()) {
                return Err(broken("goes in circles").into());
            }
            self.iterator = Some(next);
        }
        Ok(Some(data))
    }

    async fn ask(&mut self, source: &Source) -> anyhow::Result<Option<Value>> {
        loop {
            let mut query = self.query.clone();
            query.push(("limit", LIMITS[self.limit].to_string()));
            query.extend(self.iterator.iter().map(|own| ("iterator", own.clone())));
            let reply = source.ask(&with_query(&self.path, &query)).await?;
            let refused = matches!(reply.status.as_u16(), 400 | 422);
            if refused && self.limit + 1 < LIMITS.len() {
                self.limit += 1;
                continue;
            }
            return source.read(&reply);
        }
    }
}
