//! The section `dialects.notificaties`: what must hold between its keys, and the setup file it names.

use std::path::Path;

use super::{Authorizations, Notificaties, Options, SECTION, Setup};
use crate::{Around, Dialect, Settings};

/// The API, when it is on.
pub(crate) fn configured(
    read: &mut impl Settings,
    around: &Around<'_>,
) -> Option<Box<dyn Dialect>> {
    let mut options: Options = read.at(SECTION);
    options.https = around.https;
    options.body_bytes = around.body_bytes;
    if let Some(file) = options.setup_configuration.as_deref().filter(|_| options.enabled) {
        options.setup = read_setup(read, file);
    }
    check_clients(read, &options);
    check_authorizations(read, &options.authorizations);
    // As it says here, or else in the setup file.
    if let (false, Some(service)) =
        (options.authorizations.is_asked(), &options.setup.authorizations)
    {
        let Authorizations { cache_time, stale_time, .. } = options.authorizations;
        let (url, client_id) = (service.url.clone(), service.client_id.clone());
        let secret = service.secret.clone();
        options.authorizations = Authorizations { url, client_id, secret, cache_time, stale_time };
    }
    if !options.enabled {
        return None;
    }
    let there = around.profiles.contains_key(&options.profile);
    let problem = format!("there is no profile `{}`", options.profile);
    read.require(there, &format!("{SECTION}.profile"), problem);
    Some(Box::new(Notificaties { options }))
}

/// What is declared in a file of its own, as the original has it.
fn read_setup(read: &mut impl Settings, file: &Path) -> Setup {
    let document = match std::fs::read_to_string(file) {
        Ok(text) => read.yaml(&text),
        Err(e) => Err(format!("the file cannot be read: {e}").into()),
    };
    let env = |name: &str| read.variable(name);
    let setup =
        document.map_err(|e| vec![e.into()]).and_then(|document| Setup::read(&document, &env));
    setup.unwrap_or_else(|problems| {
        for problem in problems {
            let problem = format!("{}: {problem}", file.display());
            read.refuse(&format!("{SECTION}.setup_configuration"), problem);
        }
        Setup::default()
    })
}

/// Clients are there once, and only those there are can do something.
fn check_clients(read: &mut impl Settings, options: &Options) {
    let mut known: Vec<&str> = Vec::new();
    for (index, credential) in options.credentials.iter().enumerate() {
        let once = !known.contains(&credential.identifier.as_str());
        let problem = format!("`{}` is there twice", credential.identifier);
        read.require(once, &format!("{SECTION}.credentials.{index}"), problem);
        known.push(&credential.identifier);
    }
    for credential in &options.setup.credentials {
        let once = !known[..options.credentials.len()].contains(&credential.identifier.as_str());
        let problem = format!(
            "`{}` has credentials twice, here or in {SECTION}.credentials; keep one of them",
            credential.identifier
        );
        read.require(once, &format!("{SECTION}.setup_configuration"), problem);
        known.push(&credential.identifier);
    }
    for (index, application) in options.applications.iter().enumerate() {
        let key = format!("{SECTION}.applications.{index}");
        let one_of_them = !application.all || application.scopes.is_empty();
        let problem = "with all there is no need for scopes; leave one of them out";
        read.require(one_of_them, &key, problem);
        for id in &application.client_ids {
            let problem = format!("there are no credentials of client `{id}`");
            read.require(known.contains(&id.as_str()), &key, problem);
        }
    }
}

fn check_authorizations(read: &mut impl Settings, api: &Authorizations) {
    let key = |name: &str| format!("{SECTION}.authorizations.{name}");
    let fits = api.stale_time >= api.cache_time;
    read.require(fits, &key("stale"), "must not be less than the cache beside it");
    let parts = [
        ("client_id", api.client_id.is_empty(), "must be given with the url beside it"),
        (
            "secret",
            api.secret.expose().is_empty(),
            "must be given with the url beside it: env:NAME or file:PATH",
        ),
    ];
    for (name, is_empty, problem) in parts {
        let superfluous = "has no effect without the url beside it";
        let problem = if api.is_asked() { problem } else { superfluous };
        read.require(is_empty != api.is_asked(), &key(name), problem);
    }
}
