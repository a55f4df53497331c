//! `dialects.cedros`: the admin endpoints of Cedros webhooks; and what of `callbacks` a server has no use for.

use posthorn_notifier::{Backend, Callbacks};
use url::Url;

use super::raw::RawCedros;
use super::{Check, Store, StoreKind};

/// The admin endpoints.
#[derive(Clone, Debug)]
pub struct Cedros {
    /// The tenant of operators that name none.
    pub tenant: String,
    /// The origins of pages that may call from a browser.
    pub origins: Vec<String>,
}

/// The endpoints; `None` when they are off.
pub(super) fn build(
    check: &mut Check<'_>,
    raw: RawCedros,
    tenant: String,
    on: bool,
) -> Option<Cedros> {
    for origin in &raw.origins {
        // What a browser sends, and nothing that only looks like it.
        let read = Url::parse(origin).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        if read.is_none_or(|url| url.origin().ascii_serialization() != *origin) {
            let problem = format!(
                "`{origin}` is not an origin: write scheme, host and port as a browser does, such as \
                 https://admin.example.com, with nothing behind them"
            );
            check.refuse("dialects.cedros.origins", problem);
        }
    }
    on.then_some(Cedros { tenant, origins: raw.origins })
}

/// Events are kept in the store of the server, whatever the block says. Who wrote something else there
/// expects something else to happen.
pub(super) fn warn_of_backend(callbacks: &mut Callbacks, store: &Store) {
    let used = match store.kind {
        StoreKind::Sqlite => Backend::Sqlite,
        StoreKind::Postgres(_) => Backend::Postgres,
    };
    if let Some(named) = callbacks.backend_named.filter(|named| *named != used) {
        callbacks.warnings.push(format!(
            "callbacks.backend is {named}, which has no effect here: events are kept in {used} \
             (store.url); remove the key, or change store.url"
        ));
    }
}
