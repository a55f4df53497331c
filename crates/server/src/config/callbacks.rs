//! `callbacks`: where the webhooks of a payment server go.

use posthorn_notifier::{Backend, Callbacks, CallbacksConfig};

use super::reading::Reading;
use super::{Store, StoreKind};

/// The block `callbacks` with what `CALLBACK_…` in the environment says over it, when it has a URL; and the
/// tenant that it names, or else the usual one.
pub(super) fn build(read: &mut Reading<'_>, store: &Store) -> (Option<Callbacks>, String) {
    let block: CallbacksConfig = read.at("callbacks");
    let tenant = block.tenant.clone().unwrap_or_else(|| "default".to_owned());
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
    (callbacks, tenant)
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
