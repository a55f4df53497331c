//! What each route does.

pub(crate) mod audit;
pub(crate) mod bulk;
pub(crate) mod certificates;
pub(crate) mod clients;
pub(crate) mod cloudevents;
pub(crate) mod deliveries;
pub(crate) mod destinations;
pub(crate) mod event_types;
pub(crate) mod events;
pub(crate) mod expunge;
pub(crate) mod filters;
pub(crate) mod handshake;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod notificaties;
pub(crate) mod open;
pub(crate) mod portal;
pub(crate) mod profiles;
pub(crate) mod publish;
pub(crate) mod push;
pub(crate) mod realms;
pub(crate) mod redrives;
mod scopes;
pub(crate) mod series;
pub(crate) mod sessions;
pub(crate) mod stream;
pub(crate) mod subscriptions;
pub(crate) mod system;
pub(crate) mod tenants;
pub(crate) mod topics;

use crate::cursor::{self, List};
use crate::problem::{Problem, Result};
use crate::wire::Page;
use posthorn_domain::limits::DESCRIPTION_BYTES_MAX;

/// Refuses descriptions that are too long.
fn check_description(text: &str) -> Result<()> {
    if text.len() > DESCRIPTION_BYTES_MAX {
        let detail = format!("must be at most {DESCRIPTION_BYTES_MAX} bytes");
        return Err(Problem::field("description", detail));
    }
    Ok(())
}

/// One page of a list that is in memory as a whole: `after` skips what came before.
fn page<'a, T, V: From<&'a T>>(
    all: &'a [T],
    list: List,
    limit: usize,
    after: impl Fn(&T) -> bool,
    place: impl Fn(&T) -> Vec<u8>,
) -> Page<V> {
    let mut rest = all.iter().filter(|item| after(item)).peekable();
    let mut items = Vec::new();
    let mut last = None;
    while items.len() < limit
        && let Some(item) = rest.next()
    {
        items.push(V::from(item));
        last = Some(item);
    }
    let more = rest.peek().is_some();
    let next = last.filter(|_| more).map(|item| cursor::encode(list, &place(item)));
    Page::forward(items, next)
}
