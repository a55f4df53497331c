//! Certificates of a tenant: what ends first stands first, who uses it, and how it is replaced.

use std::sync::Arc;

use askama::Template;
use http::{Method, StatusCode};
use posthorn_domain::{CertificateId, Destination, Home, Scope, TenantId, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Answer;
use super::keys::scope_name;
use super::show::{Listed, Named, Shown, Time};
use super::sure::{self, Question};
use super::typed::{self, Typed, Wrong};
use crate::form::Fields;
use crate::frame::{Frame, Place, home};
use crate::text;
use crate::trouble::Trouble;
use crate::visit::{Visit, page, see};

/// Certificates of one tenant that are shown, at most: these many parts of the API's list.
const PARTS_MAX: usize = 10;
/// Subscriptions that are named for one certificate, at most.
const USERS_MAX: usize = 50;
const FIELDS: &[&str] = &["kind", "description", "owner", "host", "scopes", "certificate", "key"];

/// Kinds of certificates, with what each is for. Callers are for operators only.
const KINDS: [(&str, &str); 3] = [
    ("client", "shown to receivers"),
    ("authority", "signs receivers' certificates"),
    ("caller", "shown to this server by programs, in place of a key"),
];

/// A certificate as the API gives it.
#[derive(Deserialize)]
struct CertificateRow {
    id: CertificateId,
    kind: String,
    description: String,
    #[serde(default)]
    owner: String,
    #[serde(default)]
    host: String,
    #[serde(default)]
    scopes: Vec<Scope>,
    thumbprint: String,
    subject: String,
    certificate: String,
    has_key: bool,
    state: String,
    not_before: Timestamp,
    not_after: Timestamp,
    created_at: Timestamp,
    updated_at: Timestamp,
    revoked_at: Option<Timestamp>,
}

impl CertificateRow {
    fn shown(&self) -> Shown {
        match self.state.as_str() {
            "valid" => Shown::new("good", "valid"),
            "expiring" => Shown::new("wait", "expires soon"),
            "expired" => Shown::new("bad", "expired"),
            "not_yet_valid" => Shown::new("wait", "not valid yet"),
            "revoked" => Shown::new("off", "revoked"),
            other => Shown::new("off", text::line(other, 40)),
        }
    }

    /// What it is called in a list.
    fn title(&self) -> String {
        let title = if self.description.is_empty() { &self.subject } else { &self.description };
        text::line(title, 120)
    }
}

/// Who may use certificates: what their policies say.
struct Users {
    asked: Vec<(Named, Asked)>,
}

/// What one subscription asks for.
#[derive(Default)]
struct Asked {
    ids: Vec<CertificateId>,
    /// A client certificate for this host.
    host: Option<String>,
}

impl Users {
    fn of(visit: &Visit, tenant: TenantId) -> Self {
        let mut asked = Vec::new();
        for view in visit.engine().catalog().subscriptions(tenant) {
            let Ok(policy) = &view.policy else { continue };
            let mut own = Asked { ids: policy.tls.authorities.clone(), host: None };
            for choice in policy.auth.iter().filter_map(posthorn_domain::policy::Auth::certificate)
            {
                match choice.certificate {
                    Some(id) => own.ids.push(id),
                    None => own.host = host(&view.subscription.destination),
                }
            }
            if !own.ids.is_empty() || own.host.is_some() {
                asked.push((Named::find(visit.engine(), tenant, view.subscription.id), own));
            }
        }
        Self { asked }
    }

    fn using<'u>(&'u self, row: &'u CertificateRow) -> impl Iterator<Item = &'u Named> {
        let by_host = (row.kind == "client" && !row.host.is_empty()).then_some(row.host.as_str());
        let uses = move |own: &Asked| {
            own.ids.contains(&row.id) || (by_host.is_some() && own.host.as_deref() == by_host)
        };
        self.asked.iter().filter(move |(_, own)| uses(own)).map(|(named, _)| named)
    }
}

fn host(destination: &Destination) -> Option<String> {
    let Destination::Webhook { url } = destination else { return None };
    url::Url::parse(url).ok()?.host_str().map(str::to_owned)
}

struct Line {
    id: String,
    title: String,
    kind: String,
    place: String,
    shown: Shown,
    ends: Time,
    users: usize,
}

#[derive(Template)]
#[template(path = "certificates.html")]
struct CertificatesPage {
    frame: Frame,
    base: String,
    lines: Vec<Line>,
    more: bool,
}

/// `GET …/certificates`.
pub(crate) async fn list(visit: Arc<Visit>) -> Answer {
    let tenant = visit.tenant()?.clone();
    let (mut rows, mut next): (Vec<CertificateRow>, Option<String>) = (Vec::new(), None);
    for _ in 0..PARTS_MAX {
        let cursor = next.as_deref().map(|next| format!("&cursor={}", typed::part(next)));
        let path = format!("/v1/certificates?limit=200{}", cursor.unwrap_or_default());
        let part: Listed<CertificateRow> = visit.get(&path).await?;
        rows.extend(part.items);
        next = part.next;
        if next.is_none() {
            break;
        }
    }
    // What still counts first, and of that what ends first.
    rows.sort_by_key(|row| (row.revoked_at.is_some(), row.not_after, row.id));
    let now = visit.now();
    let users = Users::of(&visit, tenant.id);
    let lines = rows.iter().map(|row| Line {
        id: row.id.to_string(),
        title: row.title(),
        kind: text::line(&row.kind, 20),
        place: text::line([&row.owner, &row.host].map(String::as_str).join(" ").trim(), 120),
        shown: row.shown(),
        ends: Time::new(row.not_after, now),
        users: users.using(row).count(),
    });
    let html = CertificatesPage {
        frame: Frame::new(&visit, Place::Certificates, "Certificates").await,
        base: home(&tenant),
        lines: lines.collect(),
        more: next.is_some(),
    };
    Ok(page(&visit.headers, StatusCode::OK, html.render()?))
}

#[derive(Template)]
#[template(path = "certificate.html")]
struct CertificatePage {
    frame: Frame,
    base: String,
    id: String,
    kind: String,
    owner: String,
    host: String,
    scopes: String,
    thumbprint: String,
    subject: String,
    pem: String,
    has_key: bool,
    shown: Shown,
    begins: Time,
    ends: Time,
    made: Time,
    changed: Time,
    revoked: Option<Time>,
    users: Vec<Named>,
    more_users: bool,
    form: Typed,
    /// Whether the visitor may replace and delete it.
    owns: bool,
}

fn named(visit: &Visit) -> Result<CertificateId, Trouble> {
    let id = visit.named.first().and_then(|text| text.parse().ok());
    id.ok_or(Trouble::NotFound("certificate"))
}

/// `GET …/certificates/{id}`.
pub(crate) async fn one(visit: Arc<Visit>) -> Answer {
    show(&visit, None).await
}

async fn show(visit: &Visit, wrong: Option<Wrong>) -> Answer {
    let id = named(visit)?;
    let tenant = visit.tenant()?.clone();
    let base = home(&tenant);
    let row: CertificateRow = visit.get(&format!("/v1/certificates/{id}")).await?;
    let now = visit.now();
    let all = Users::of(visit, tenant.id);
    let mut users: Vec<Named> = all.using(&row).take(USERS_MAX + 1).cloned().collect();
    let more_users = users.len() > USERS_MAX;
    users.truncate(USERS_MAX);
    // A private key that was typed is not sent back.
    let typed = if wrong.is_some() { visit.form.without("key") } else { Fields::default() };
    let form = Typed::new(FIELDS, typed).wrong(wrong);
    let status = form.status();
    let scopes: Vec<&str> = row.scopes.iter().copied().map(scope_name).collect();
    let html = CertificatePage {
        frame: Frame::new(visit, Place::Certificates, row.title())
            .await
            .below(format!("{base}/certificates"), "Certificates"),
        owns: visit.allows(Scope::Manage) && (row.kind != "caller" || visit.is_operator()),
        base,
        id: id.to_string(),
        kind: text::line(&row.kind, 20),
        owner: text::line(&row.owner, 200),
        host: text::line(&row.host, 255),
        scopes: scopes.join(", "),
        thumbprint: text::line(&row.thumbprint, 128),
        subject: text::visible(&row.subject),
        pem: text::visible(&row.certificate),
        has_key: row.has_key,
        shown: row.shown(),
        begins: Time::new(row.not_before, now),
        ends: Time::new(row.not_after, now),
        made: Time::new(row.created_at, now),
        changed: Time::new(row.updated_at, now),
        revoked: row.revoked_at.map(|at| Time::new(at, now)),
        users,
        more_users,
        form,
    };
    Ok(page(&visit.headers, status, html.render()?))
}

#[derive(Template)]
#[template(path = "certificate_new.html")]
struct NewPage {
    frame: Frame,
    base: String,
    form: Typed,
    kinds: &'static [(&'static str, &'static str)],
    /// Whether callers can be registered.
    callers: bool,
}

/// `GET …/certificates/new`.
pub(crate) async fn new(visit: Arc<Visit>) -> Answer {
    form(&visit, Fields::default(), None).await
}

async fn form(visit: &Visit, typed: Fields, wrong: Option<Wrong>) -> Answer {
    let base = home(visit.tenant()?);
    let form = Typed::new(FIELDS, typed.without("key")).wrong(wrong);
    let status = form.status();
    let callers = matches!(visit.session.home, Home::Operator) && visit.is_operator();
    let html = NewPage {
        frame: Frame::new(visit, Place::Certificates, "Register a certificate")
            .await
            .below(format!("{base}/certificates"), "Certificates"),
        base,
        form,
        kinds: if callers { &KINDS } else { &KINDS[..2] },
        callers,
    };
    Ok(page(&visit.headers, status, html.render()?))
}

#[derive(Deserialize)]
struct Made {
    id: CertificateId,
}

/// `POST …/certificates/new`.
pub(crate) async fn create(visit: Arc<Visit>) -> Answer {
    let body = new_body(&visit.form);
    match visit.send::<Made>(Method::POST, "/v1/certificates", Some(&body)).await {
        Ok(made) => {
            let base = home(visit.tenant()?);
            Ok(see(&format!("{base}/certificates/{}?done=created", made.id)))
        }
        Err(trouble) => form(&visit, visit.form.clone(), Some(typed::refused(trouble)?)).await,
    }
}

fn new_body(form: &Fields) -> Value {
    let mut body = contents(form);
    body["kind"] = Value::from(form.get("kind").unwrap_or("client"));
    for name in ["description", "owner", "host"] {
        body[name] = Value::from(form.get(name).unwrap_or_default());
    }
    let scopes: Vec<&str> = form.all("scopes").collect();
    if !scopes.is_empty() {
        body["scopes"] = json!(scopes);
    }
    body
}

/// Certificate and key, as texts that somebody pasted.
fn contents(form: &Fields) -> Value {
    let mut body = json!({"certificate": form.get("certificate").unwrap_or_default()});
    if let Some(key) = form.get("key") {
        body["key"] = Value::from(key);
    }
    body
}

/// `POST …/certificates/{id}/rotate`.
pub(crate) async fn rotate(visit: Arc<Visit>) -> Answer {
    let id = named(&visit)?;
    let path = format!("/v1/certificates/{id}/rotate");
    match visit.send::<Value>(Method::POST, &path, Some(&contents(&visit.form))).await {
        Ok(_) => back(&visit, id, "rotated"),
        Err(trouble) => show(&visit, Some(typed::refused(trouble)?)).await,
    }
}

/// `POST …/certificates/{id}/revoke`.
pub(crate) async fn revoke(visit: Arc<Visit>) -> Answer {
    let id = named(&visit)?;
    let question = Question {
        place: Place::Certificates,
        title: "Revoke this certificate?",
        text: "It is not used any more and cannot come back. Subscriptions that need it fail until there is another.",
        button: "Revoke it",
        back: format!("{}/certificates/{id}", home(visit.tenant()?)),
    };
    if let Some(asked) = sure::ask(&visit, question).await {
        return asked;
    }
    visit.send_bytes(Method::POST, &format!("/v1/certificates/{id}/revoke"), None).await?;
    back(&visit, id, "revoked")
}

fn back(visit: &Visit, id: CertificateId, done: &str) -> Answer {
    Ok(see(&format!("{}/certificates/{id}?done={done}", home(visit.tenant()?))))
}

/// `POST …/certificates/{id}/delete`.
pub(crate) async fn delete(visit: Arc<Visit>) -> Answer {
    let id = named(&visit)?;
    let question = Question {
        place: Place::Certificates,
        title: "Delete this certificate?",
        text: "It goes for good, with its private key. Subscriptions that need it fail until there is another.",
        button: "Delete for good",
        back: format!("{}/certificates/{id}", home(visit.tenant()?)),
    };
    if let Some(asked) = sure::ask(&visit, question).await {
        return asked;
    }
    visit.send_bytes(Method::DELETE, &format!("/v1/certificates/{id}"), None).await?;
    Ok(see(&format!("{}/certificates?done=deleted", home(visit.tenant()?))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_becomes_a_certificate() {
        let form = Fields::parse(b"kind=client&host=ok.example&certificate=PEM%0D%0A&key=");
        let wanted = json!({
            "kind": "client", "description": "", "owner": "", "host": "ok.example", "certificate": "PEM",
        });
        assert_eq!(new_body(&form), wanted);
        let form = Fields::parse(b"kind=caller&scopes=read&certificate=PEM&key=SECRET");
        assert_eq!(new_body(&form)["scopes"], json!(["read"]));
        assert_eq!(form.without("key").get("key"), None, "it is not sent back");
    }
}
