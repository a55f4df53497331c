//! `callbacks`, and the admin endpoints of `dialects.cedros` that come with it.

use posthorn_dialects::cedros::Options;
use posthorn_notifier::{Backend, Callbacks, CallbacksConfig};

use super::reading::Reading;
use super::{Store, StoreKind};

/// The block `callbacks` with what `CALLBACK_…` in the environment says over it, when it has a URL; and the
/// endpoints, when they are on or there is something to see.
pub(super) fn build(read: &mut Reading<'_>, store: &Store) -> (Option<Callbacks>, Option<Options>) {
    let block: CallbacksConfig = read.at("callbacks");
    let mut options: Options = read.at("dialects.cedros");
    options.tenant = block.tenant.clone().unwrap_or_else(|| "default".to_owned());
    let env = read.env;
    let lookup = |name: &str| env.get(name).cloned();
    let checked = block.with_env(env.clone()).and_then(|block| block.check_with(&lookup));
    let mut callbacks = checked.unwrap_or_else(|error| {
        read.refuse(&error.key, error.problem);
        None
    });
    if let Some(callbacks) = &mut callbacks {
        warn_of_backend(callbacks, store);
    }
    let admin = (options.enabled || callbacks.is_some()).then_some(options);
    (callbacks, admin)
}

/// Events are kept in the store of the server, whatever the block says. Who wrote something else there
/// expects something else to happen.
fn warn_of_backend(callbacks: &mut Callbacks, store: &Store) {
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
