//! `dialects.notificaties`: the Notificaties API, its clients and what they may do.

use std::path::Path;

use posthorn_dialects::notificaties::{Authorizations, Options, Setup};

use super::Server;
use super::layers::parse_yaml;
use super::reading::Reading;

const SECTION: &str = "dialects.notificaties";

/// The API's knobs; `None` when it is off.
pub(super) fn build(read: &mut Reading<'_>, server: &Server) -> Option<Options> {
    let mut options: Options = read.at(SECTION);
    options.https = server.tls.is_some();
    options.body_bytes = server.body;
    if let Some(file) = options.setup_configuration.as_deref().filter(|_| options.enabled) {
        options.setup = read_setup(read, file);
    }
    check_clients(read, &options);
    check_authorizations(read, &options.authorizations);
    // As it says here, or else in the setup file.
    if let (false, Some(service)) =
        (options.authorizations.is_asked(), &options.setup.authorizations)
    {
        let Authorizations { cache, stale, .. } = options.authorizations;
        let (url, client_id) = (service.url.clone(), service.client_id.clone());
        let secret = service.secret.clone();
        options.authorizations = Authorizations { url, client_id, secret, cache, stale };
    }
    options.enabled.then_some(options)
}

/// What is declared in a file of its own, as the original has it.
fn read_setup(read: &mut Reading<'_>, file: &Path) -> Setup {
    let document = match std::fs::read_to_string(file) {
        Ok(text) => parse_yaml(&text),
        Err(e) => Err(format!("the file cannot be read: {e}")),
    };
    let variables = read.env;
    let env = |name: &str| variables.get(name).cloned();
    let setup = document.map_err(|e| vec![e]).and_then(|document| Setup::read(&document, &env));
    setup.unwrap_or_else(|problems| {
        for problem in problems {
            let problem = format!("{}: {problem}", file.display());
            read.refuse(&format!("{SECTION}.setup_configuration"), problem);
        }
        Setup::default()
    })
}

/// Clients are there once, and only those there are can do something.
fn check_clients(read: &mut Reading<'_>, options: &Options) {
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

fn check_authorizations(read: &mut Reading<'_>, api: &Authorizations) {
    let key = |name: &str| format!("{SECTION}.authorizations.{name}");
    let fits = api.stale >= api.cache;
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
        let superfluous = "means nothing without the url beside it";
        let problem = if api.is_asked() { problem } else { superfluous };
        read.require(is_empty != api.is_asked(), &key(name), problem);
    }
}
