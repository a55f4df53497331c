//! Declarative configuration: the `setup_configuration` file of Open Notificaties, read as it is.
//!
//! A file has sections, each applied only when a flag beside it says so. Applying one again changes
//! nothing; what was changed by hand since is put back; what a file does not name stays. The whole file is checked before anything is
//! applied, and sections of other parts of that software are passed over. It may be applied at the start
//! and at any time after that, by any node.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use posthorn_domain::{ClientName, Problem as Wrong, ProfileName, TenantId};
use posthorn_engine::{ClientChange, Engine};
use posthorn_sealing::vault::Secret;
use serde_json::{Map, Value, json};
use tracing::info;

use super::abonnement::Abonnement;
use super::access::{Application, Credential, Scope};
use super::kanaal::Kanaal;
use super::problem::Problem;
use super::settings::{self, SettingsChange};
use super::uuid::Uuid;
use crate::StartError;

const KANALEN: &str = "notifications_kanalen_config";
const ABONNEMENTEN: &str = "notifications_abonnementen_config";
const SETTINGS: &str = "notifications_config";
const CREDENTIALS: &str = "vng_api_common_credentials";
const APPLICATIONS: &str = "vng_api_common_applicaties";
const SERVICES: &str = "zgw_consumers";
const AUTHORIZATIONS: &str = "autorisaties_api";

/// Abonnementen that were declared belong to no client, so that no client can change them.
const NOBODY: &str = "";

/// What a file declares.
#[derive(Default)]
pub struct Setup {
    kanalen: Vec<Value>,
    abonnementen: Vec<(Uuid, Abonnement)>,
    settings: SettingsChange,
    /// Clients with their secrets.
    pub credentials: Vec<Credential>,
    /// What clients may do.
    pub applications: Vec<Application>,
    /// Where rights are asked for that are not said here; it counts from the next start on.
    pub authorizations: Option<Service>,
    /// Sections that mean nothing here.
    pub ignored: Vec<String>,
}

/// An API of somebody else, as the file knows it.
#[derive(Clone)]
pub struct Service {
    /// Where it begins.
    pub url: String,
    /// Who we are there.
    pub client_id: String,
    /// What our tokens are signed with.
    pub secret: Secret,
}

/// What came of applying a file: what was made or changed, by kind and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// What is different now, such as `kanaal zaken`.
    pub changed: Vec<String>,
    /// How many things were so already.
    pub unchanged: usize,
}

impl Applied {
    fn note(&mut self, changed: bool, what: String) {
        if changed {
            info!(what, "set up as declared");
            self.changed.push(what);
        } else {
            self.unchanged += 1;
        }
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup")
            .field("kanalen", &self.kanalen.len())
            .field("abonnementen", &self.abonnementen.len())
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// A file with every `value_from` replaced by what it stands for, in the sections that count.
pub fn resolve(
    document: &Value,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Value, Vec<String>> {
    let Some(sections) = document.as_object() else { return Err(no_sections()) };
    let (mut whole, mut problems) = (Map::new(), Vec::new());
    for (name, section) in sections {
        if name.ends_with("_enable") {
            whole.insert(name.clone(), section.clone());
        } else if is_enabled(sections, name) {
            match resolved(name, section, env) {
                Ok(section) => drop(whole.insert(name.clone(), section)),
                Err(problem) => problems.push(problem.into()),
            }
        }
    }
    if problems.is_empty() { Ok(Value::Object(whole)) } else { Err(problems) }
}

fn no_sections() -> Vec<String> {
    vec!["the file must hold sections with keys".to_owned()]
}

impl Setup {
    /// Reads a file. `env` gives variables of the environment, for values that come from there.
    /// `Err` lists everything that is wrong, each with its place.
    pub fn read(
        document: &Value,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<String>> {
        let mut setup = Self::default();
        let mut problems = Vec::new();
        let (mut services, mut asked) = (Vec::new(), None);
        let Some(sections) = document.as_object() else {
            return Err(no_sections());
        };
        for (name, section) in sections {
            if name.ends_with("_enable") || !is_enabled(sections, name) {
                continue;
            }
            let section = match resolved(name, section, env) {
                Ok(section) => section,
                Err(problem) => {
                    problems.push(problem.into());
                    continue;
                }
            };
            match name.as_str() {
                SETTINGS => match section.as_object().map(SettingsChange::read) {
                    Some(Ok(change)) => setup.settings = change,
                    Some(Err(problem)) => problems.push(format!("{name}: {problem}")),
                    None => problems.push(format!("{name}: must be settings with values")),
                },
                KANALEN | ABONNEMENTEN | CREDENTIALS | APPLICATIONS => {
                    match section.get("items").and_then(Value::as_array) {
                        Some(items) => {
                            for (index, item) in items.iter().enumerate() {
                                if let Err(problem) = setup.add(name, item) {
                                    problems.push(format!("{name}.items.{index}: {problem}"));
                                }
                            }
                        }
                        None => problems.push(format!("{name}: needs a list `items`")),
                    }
                }
                SERVICES => match section.get("services").and_then(Value::as_array) {
                    Some(items) => services.clone_from(items),
                    None => problems.push(format!("{name}: needs a list `services`")),
                },
                AUTHORIZATIONS => match section.get("authorizations_api_service_identifier") {
                    Some(Value::String(identifier)) => asked = Some(identifier.clone()),
                    _ => problems.push(format!(
                        "{name}: needs `authorizations_api_service_identifier`, a text"
                    )),
                },
                _ => setup.ignored.push(name.clone()),
            }
        }
        if asked.is_none() && is_enabled(sections, SERVICES) {
            setup.ignored.push(SERVICES.to_owned());
        }
        match asked.map(|identifier| service(&services, &identifier)).transpose() {
            Ok(found) => setup.authorizations = found,
            Err(problem) => problems.push(format!("{AUTHORIZATIONS}: {problem}")),
        }
        for (credential, count) in setup.credentials.iter().map(|credential| {
            let same = |other: &&Credential| other.identifier == credential.identifier;
            (credential, setup.credentials.iter().filter(same).count())
        }) {
            if count > 1 {
                let id = &credential.identifier;
                problems.push(format!("{CREDENTIALS}: `{id}` has credentials twice; keep one"));
                break;
            }
        }
        if problems.is_empty() { Ok(setup) } else { Err(problems) }
    }

    fn add(&mut self, section: &str, item: &Value) -> Result<(), Wrong> {
        let fields = item.as_object().ok_or("must be an object")?;
        match section {
            KANALEN => {
                let known = ["naam", "documentatie_link", "filters"];
                let kanaal = camel_cased(fields, &known)?;
                // Once for what is wrong with it; again for its tenant when it is applied.
                Kanaal::read(TenantId::DEFAULT, &kanaal, None, false).map_err(|p| said(&p))?;
                self.kanalen.push(kanaal);
            }
            ABONNEMENTEN => {
                // One that is named twice is as the last one says, as when one is applied after the other.
                let (uuid, abonnement) = abonnement(fields)?;
                self.abonnementen.retain(|(other, _)| *other != uuid);
                self.abonnementen.push((uuid, abonnement));
            }
            CREDENTIALS => {
                only(fields, &["identifier", "secret"])?;
                let identifier = text(fields, "identifier")?.to_owned();
                ClientName::new(&identifier).map_err(|e| format!("identifier: {e}"))?;
                let secret = Secret::from(text(fields, "secret")?);
                self.credentials.push(Credential { identifier, secret });
            }
            _ => self.applications.push(application(fields)?),
        }
        Ok(())
    }

    /// Makes everything as it was declared. What was done before something failed stays.
    pub(super) async fn apply(
        &self,
        engine: &Engine,
        tenant: TenantId,
        profile: &ProfileName,
    ) -> Result<Applied, StartError> {
        let failed = |what: String| {
            move |e: &dyn fmt::Display| {
                StartError::Setup(format!("{what} could not be applied: {e}"))
            }
        };
        let mut applied = Applied::default();
        for document in &self.kanalen {
            let kanaal = Kanaal::read(tenant, document, None, false)
                .map_err(|p| StartError::Setup(said(&p)))?;
            let what = format!("kanaal {}", kanaal.naam);
            let same = Kanaal::named(engine, tenant, &kanaal.naam).as_ref() == Some(&kanaal);
            if !same {
                let put = kanaal.put(engine, tenant).await;
                put.map_err(|e| failed(what.clone())(&e))?;
            }
            applied.note(!same, what);
        }
        if !self.settings.is_empty() {
            let changed = settings::change(engine, tenant, profile, &self.settings)
                .await
                .map_err(|e| failed(SETTINGS.to_owned())(&e))?;
            applied.note(changed, "settings".to_owned());
        }
        for (uuid, abonnement) in &self.abonnementen {
            let what = format!("abonnement {uuid}");
            let failed = failed(what.clone());
            abonnement.check_kanalen(engine, tenant).map_err(|p| failed(&said(&p)))?;
            let ways = abonnement.auth.as_ref().map(|auth| auth.ways()).unwrap_or_default();
            let wanted = abonnement
                .subscription(tenant, profile, *uuid, NOBODY, &ways)
                .map_err(|e| failed(&e))?;
            let (_, changed) =
                engine.ensure_subscription(tenant, wanted).await.map_err(|e| failed(&e))?;
            applied.note(changed, what);
        }
        for (name, change) in self.clients() {
            let what = format!("client {name}");
            let failed = failed(what.clone());
            let name = ClientName::new(&name).map_err(|e| failed(&e))?;
            let (_, changed) =
                engine.put_client(tenant, &name, change).await.map_err(|e| failed(&e))?;
            applied.note(changed, what);
        }
        Ok(applied)
    }

    /// Clients with their secrets and rights. One of which only one of the two is declared keeps the
    /// other.
    fn clients(&self) -> BTreeMap<String, ClientChange> {
        let mut all: BTreeMap<String, ClientChange> = BTreeMap::new();
        for credential in &self.credentials {
            let change = all.entry(credential.identifier.clone()).or_default();
            change.secret = Some(credential.secret.clone());
        }
        let mut rights: BTreeMap<&String, BTreeSet<Scope>> = BTreeMap::new();
        for application in &self.applications {
            for id in &application.client_ids {
                rights.entry(id).or_default().extend(application.all_scopes());
            }
        }
        for (id, scopes) in rights {
            let scopes = scopes.into_iter().map(|scope| scope.as_str().to_owned()).collect();
            all.entry(id.clone()).or_default().scopes = Some(Some(scopes));
        }
        all
    }
}

/// The service of that name among those of the file.
fn service(services: &[Value], identifier: &str) -> Result<Service, Wrong> {
    let is_it = |item: &&Value| item.get("identifier").and_then(Value::as_str) == Some(identifier);
    let found = services.iter().find(is_it).and_then(Value::as_object);
    let Some(fields) = found else {
        return Err(format!(
            "{SERVICES}.services has no service with the identifier `{identifier}`, or is not enabled"
        )
        .into());
    };
    let place =
        |problem: Wrong| Wrong::new(format!("{SERVICES}.services, `{identifier}`: {problem}"));
    match fields.get("auth_type").and_then(Value::as_str) {
        None | Some("zgw") => {}
        Some(other) => {
            return Err(place(
                format!("auth_type: `{other}` cannot be used here, only zgw").into(),
            ));
        }
    }
    let text = |name| text(fields, name).map_err(place);
    Ok(Service {
        url: text("api_root")?.trim_end_matches('/').to_owned(),
        client_id: text("client_id")?.to_owned(),
        secret: Secret::from(text("secret")?),
    })
}

/// Whether a section is to be applied. The original calls some of its flags with `_config` and some
/// without.
fn is_enabled(sections: &Map<String, Value>, name: &str) -> bool {
    let flags = [format!("{name}_enable"), format!("{name}_config_enable")];
    flags.iter().any(|flag| sections.get(flag) == Some(&Value::Bool(true)))
}

/// A section with every `value_from` replaced by what it stands for.
fn resolved(
    place: &str,
    value: &Value,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Value, Wrong> {
    match value {
        Value::Object(fields) => {
            if let Some(source) = fields.get("value_from") {
                let Some(name) = source.get("env").and_then(Value::as_str) else {
                    let problem =
                        format!("{place}.value_from: needs `env`, the name of a variable");
                    return Err(problem.into());
                };
                let found = env(name).map(Value::String);
                return found.or_else(|| source.get("default").cloned()).ok_or_else(|| {
                    Wrong::new(format!(
                        "{place}: the environment has no variable {name}, and no default is given"
                    ))
                });
            }
            let inside = |(name, value): (&String, &Value)| {
                Ok((name.clone(), resolved(&format!("{place}.{name}"), value, env)?))
            };
            fields.iter().map(inside).collect::<Result<Map<_, _>, Wrong>>().map(Value::Object)
        }
        Value::Array(items) => {
            let inside =
                |(index, value): (usize, &Value)| resolved(&format!("{place}.{index}"), value, env);
            items.iter().enumerate().map(inside).collect::<Result<_, _>>().map(Value::Array)
        }
        other => Ok(other.clone()),
    }
}

fn only(fields: &Map<String, Value>, known: &[&str]) -> Result<(), Wrong> {
    match fields.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(format!("`{name}` is not known; there are {}", known.join(", ")).into()),
        None => Ok(()),
    }
}

fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<&'a str, Wrong> {
    let text = fields.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    text.ok_or_else(|| format!("needs `{name}`, a text").into())
}

/// The fields by the names they have in the API.
fn camel_cased(fields: &Map<String, Value>, known: &[&str]) -> Result<Value, Wrong> {
    only(fields, known)?;
    let renamed = fields.iter().map(|(name, value)| {
        let mut parts = name.split('_');
        let mut camel = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            camel.push_str(&part[..1].to_ascii_uppercase());
            camel.push_str(&part[1..]);
        }
        (camel, value.clone())
    });
    Ok(Value::Object(renamed.collect()))
}

fn abonnement(fields: &Map<String, Value>) -> Result<(Uuid, Abonnement), Wrong> {
    let known = [
        "uuid",
        "callback_url",
        "auth_type",
        "auth",
        "auth_client_id",
        "secret",
        "oauth2_token_url",
        "oauth2_scope",
        "send_cloudevents",
        "kanalen",
        "cloudevent_filters",
        "client_certificate",
    ];
    let uuid = text(fields, "uuid")?;
    let uuid = uuid.parse().map_err(|_| format!("uuid: `{uuid}` is not a UUID"))?;
    // Lists that are null are those that are not given.
    let given = fields.iter().filter(|(_, value)| !value.is_null());
    let given: Map<String, Value> =
        given.map(|(name, value)| (name.clone(), value.clone())).collect();
    let mut document = camel_cased(&given, &known)?;
    let groups = document.get_mut("cloudeventFilters").and_then(Value::as_array_mut);
    for group in groups.into_iter().flatten() {
        match group {
            // The short form: only a part of the type.
            Value::String(part) => {
                *group = json!({"typeSubstring": part, "filters": {}});
            }
            Value::Object(fields) => {
                *group = camel_cased(fields, &["type_substring", "filters"])?;
            }
            _ => {}
        }
    }
    let read = Abonnement::read(&document, None, false).map_err(|p| said(&p))?;
    if read.kanalen.is_empty() && read.cloudevent_filters.is_empty() {
        return Err("needs kanalen or cloudevent_filters; without either it gets nothing".into());
    }
    Ok((uuid, read))
}

fn application(fields: &Map<String, Value>) -> Result<Application, Wrong> {
    only(
        fields,
        &[
            "uuid",
            "client_ids",
            "label",
            "has_all_authorizations",
            "heeft_alle_autorisaties",
            "scopes",
        ],
    )?;
    let texts = |name: &str| -> Result<Vec<String>, Wrong> {
        let Some(list) = fields.get(name) else { return Ok(Vec::new()) };
        serde_json::from_value(list.clone())
            .map_err(|_| format!("{name}: must be a list of texts").into())
    };
    let scope = |name: &String| {
        let known = [Scope::Consume.as_str(), Scope::Publish.as_str()].join(", ");
        Scope::parse(name).ok_or_else(|| Wrong::new(format!("scopes: `{name}` is none of {known}")))
    };
    let flag = |name: &str| fields.get(name) == Some(&Value::Bool(true));
    let client_ids = texts("client_ids")?;
    if client_ids.is_empty() {
        return Err("needs `client_ids`".into());
    }
    for id in &client_ids {
        ClientName::new(id).map_err(|e| format!("client_ids: {e}"))?;
    }
    Ok(Application {
        client_ids,
        all: flag("has_all_authorizations") || flag("heeft_alle_autorisaties"),
        scopes: texts("scopes")?.iter().map(scope).collect::<Result<_, _>>()?,
    })
}

/// What a problem says, for a log or a terminal.
fn said(problem: &Problem) -> String {
    let faults = problem.faults.iter().flatten();
    let texts: Vec<String> =
        faults.map(|fault| format!("{}: {}", fault.name, fault.reason)).collect();
    if texts.is_empty() { problem.code.to_owned() } else { texts.join(" ") }
}
