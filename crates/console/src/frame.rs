//! What is around every page: navigation with counts, the heading, whose things one looks at.

use posthorn_domain::{Scope, Tenant};
use posthorn_engine::TenantFilter;

use crate::visit::Visit;
use crate::{assets, cookie, words};

/// Tenants that the switch offers by name; others are typed.
const OFFERED_MAX: usize = 50;

/// The pages of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Overview,
    Events,
    Deliveries,
    Subscriptions,
    DeadLetters,
    Jobs,
    Tenants,
    Realms,
    Keys,
    EventTypes,
    Topics,
    Certificates,
    Notificaties,
    Efgs,
    Cedros,
    PcaHub,
    Push,
    System,
    Audit,
}

impl Place {
    /// The last part of its path, within a tenant.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Overview => "",
            Self::Events => "events",
            Self::Deliveries => "deliveries",
            Self::Subscriptions => "subscriptions",
            Self::DeadLetters => "dead-letters",
            Self::Jobs => "jobs",
            Self::Tenants => "tenants",
            Self::Realms => "realms",
            Self::Keys => "keys",
            Self::EventTypes => "event-types",
            Self::Topics => "topics",
            Self::Certificates => "certificates",
            Self::Notificaties => "notificaties",
            Self::Efgs => "efgs",
            Self::Cedros => "cedros",
            Self::PcaHub => "pca-hub",
            Self::Push => "push",
            Self::System => "system",
            Self::Audit => "audit",
        }
    }

    /// Whether it is about one tenant.
    pub(crate) const fn is_of_tenant(self) -> bool {
        matches!(
            self,
            Self::Overview
                | Self::Events
                | Self::Deliveries
                | Self::Subscriptions
                | Self::DeadLetters
                | Self::Jobs
                | Self::Topics
                | Self::Certificates
        )
    }

    /// By the last part of its path.
    pub(crate) fn named(path: &str) -> Option<Self> {
        let all = [
            Self::Overview,
            Self::Events,
            Self::Deliveries,
            Self::Subscriptions,
            Self::DeadLetters,
            Self::Jobs,
            Self::Topics,
            Self::Certificates,
        ];
        all.into_iter().find(|place| place.path() == path)
    }
}

/// One line of the navigation.
pub(crate) struct NavLink {
    pub(crate) name: &'static str,
    pub(crate) href: String,
    pub(crate) here: bool,
    pub(crate) key: Option<char>,
    pub(crate) count: Option<String>,
    pub(crate) bad: bool,
}

/// Something to say above the page.
pub(crate) struct Said {
    pub(crate) kind: &'static str,
    pub(crate) text: String,
}

/// Everything around a page.
pub(crate) struct Frame {
    pub(crate) title: String,
    pub(crate) page: &'static str,
    pub(crate) crumbs: Vec<(String, String)>,
    pub(crate) nav: Vec<Vec<NavLink>>,
    pub(crate) tenant_name: String,
    pub(crate) tenants: Vec<String>,
    /// Whether the tenant can be switched here.
    pub(crate) switches: bool,
    pub(crate) live: bool,
    /// The stream that says when it changes.
    pub(crate) stream: String,
    pub(crate) charts: bool,
    pub(crate) csrf: String,
    pub(crate) who: String,
    pub(crate) theme: Option<&'static str>,
    pub(crate) said: Option<Said>,
    /// Whether the visitor may change things.
    pub(crate) manages: bool,
}

/// The path of a tenant's pages.
pub(crate) fn home(tenant: &Tenant) -> String {
    let name: String = url::form_urlencoded::byte_serialize(tenant.name.as_bytes()).collect();
    // What a path cannot have as it stands has the id instead.
    match name == tenant.name {
        true => format!("/console/t/{name}"),
        false => format!("/console/t/{}", tenant.id),
    }
}

impl Frame {
    /// Around a page.
    pub(crate) async fn new(visit: &Visit, place: Place, title: impl Into<String>) -> Self {
        let tenant = visit.usual_tenant();
        let operator = visit.is_operator();
        let mut tenants = Vec::new();
        if operator || visit.is_everywhere() || visit.realm().is_some() {
            let filter = TenantFilter { realm: visit.realm().cloned(), ..TenantFilter::default() };
            let (own, _) = visit.engine().catalog().tenants_page(&filter, None, OFFERED_MAX);
            tenants = own.into_iter().map(|tenant| tenant.name).collect();
        }
        Self {
            title: title.into(),
            page: place.path(),
            crumbs: Vec::new(),
            nav: navigation(visit, place, tenant.as_ref()).await,
            tenant_name: tenant.as_ref().map(|tenant| tenant.name.clone()).unwrap_or_default(),
            switches: place.is_of_tenant() && tenants.len() > 1,
            tenants,
            live: false,
            stream: {
                let base = visit.tenant().map_or_else(|_| "/console".to_owned(), home);
                format!("{base}/live?since={}", visit.mark.as_deref().unwrap_or_default())
            },
            charts: false,
            csrf: visit.form_token(),
            who: visit.session.name.clone(),
            theme: cookie::theme(&visit.headers),
            said: said(visit),
            manages: visit.allows(Scope::Manage),
        }
    }

    /// With a way back.
    pub(crate) fn below(mut self, href: impl Into<String>, name: impl Into<String>) -> Self {
        self.crumbs.push((href.into(), name.into()));
        self
    }

    /// Of a page that goes on by itself.
    pub(crate) fn live(self) -> Self {
        Self { live: true, ..self }
    }

    /// The same of a page that is about one thing: only what happens to that is told.
    pub(crate) fn live_of(self, id: impl std::fmt::Display) -> Self {
        Self { live: true, stream: format!("{}&of={id}", self.stream), ..self }
    }

    /// Of a page with charts.
    pub(crate) fn charts(self) -> Self {
        Self { charts: true, ..self }
    }

    /// Says that something did not work.
    pub(crate) fn wrong(self, text: impl Into<String>) -> Self {
        Self { said: Some(Said { kind: "bad", text: text.into() }), ..self }
    }

    pub(crate) fn asset(&self, name: &str) -> &'static str {
        assets::url(name)
    }
}

/// What the page before has done, by a word that is known here: nobody can have a link say what they like.
fn said(visit: &Visit) -> Option<Said> {
    let text = match visit.query.get("done")? {
        "retried" => "It is tried again now.",
        "cancelled" => "It is cancelled: no further attempts start.",
        "forgotten" => "The delivery and its attempts are deleted.",
        "paused" => "Paused. Events keep matching, and wait.",
        "resumed" => "Resumed.",
        "created" => "Created.",
        "changed" => "Saved.",
        "deleted" => "Deleted.",
        "published" => "Published.",
        "republished" => "Published again, as a new event.",
        "started" => "Started. This page shows how far it is.",
        "stopped" => "Stopped. What was done stays done.",
        "revoked" => "Revoked. It opens nothing any more.",
        "ended" => "The session has ended.",
        "rotated" => "Replaced. It is used from now on, on every node.",
        "imported" => "Imported.",
        crate::login::UNSENT => {
            let text = "Your session had ended, so the form was not sent. Please send it again.";
            return Some(Said { kind: "bad", text: text.to_owned() });
        }
        "deleting" => "It opens nothing any more. This page shows how far its deletion is.",
        _ => return None,
    };
    Some(Said { kind: "good", text: text.to_owned() })
}

async fn navigation(visit: &Visit, here: Place, tenant: Option<&Tenant>) -> Vec<Vec<NavLink>> {
    let link = |name, place: Place, key, count: Option<u64>| {
        let of_tenant = place.is_of_tenant() && place != Place::Overview;
        let href = match (of_tenant, tenant) {
            (true, Some(tenant)) => format!("{}/{}", home(tenant), place.path()),
            _ => format!("/console/{}", place.path()),
        };
        let bad = place == Place::DeadLetters && count.is_some_and(|count| count > 0);
        NavLink { name, href, here: place == here, key, count: count.map(words::number), bad }
    };
    let stats = match tenant {
        Some(tenant) => visit.counts(tenant.id).await,
        None => None,
    };
    let subscriptions =
        tenant.map(|tenant| visit.console.numbers.of(visit, tenant.id).subscriptions as u64);
    let mut groups = vec![vec![
        link("Overview", Place::Overview, Some('o'), None),
        link("Events", Place::Events, Some('e'), None),
        link("Deliveries", Place::Deliveries, Some('d'), None),
        link("Subscriptions", Place::Subscriptions, Some('s'), subscriptions),
        link("Dead letters", Place::DeadLetters, Some('x'), stats.map(|stats| stats.dead)),
        link("Jobs", Place::Jobs, None, None),
    ]];
    let mut second = Vec::new();
    if visit.is_operator() {
        second.push(link("Tenants", Place::Tenants, None, None));
        second.push(link("Realms", Place::Realms, None, None));
        second.push(link("Keys", Place::Keys, None, None));
    }
    second.push(link("Event types", Place::EventTypes, None, None));
    second.push(link("Topics", Place::Topics, None, None));
    second.push(link("Certificates", Place::Certificates, None, None));
    groups.push(second);
    let spoken = crate::pages::systems::spoken(visit, tenant);
    let spoken = spoken.into_iter().map(|(name, place, tenant)| NavLink {
        href: format!("{}/{}", home(&tenant), place.path()),
        ..link(name, place, None, None)
    });
    let spoken: Vec<NavLink> = spoken.collect();
    if !spoken.is_empty() {
        groups.push(spoken);
    }
    let mut third = Vec::new();
    if visit.is_operator() {
        third.push(link("Push", Place::Push, None, None));
        third.push(link("System", Place::System, None, None));
    }
    third.push(link("Audit", Place::Audit, None, None));
    groups.push(third);
    if tenant.is_none() {
        // Somebody without any tenant has none of a tenant's pages. Operators have the overview of the server.
        let of_tenants = |link: &NavLink| match link.href.strip_prefix("/console/") {
            Some("") => !visit.is_operator(),
            Some(rest) => Place::named(rest).is_some(),
            None => true,
        };
        groups.iter_mut().for_each(|group| group.retain(|link| !of_tenants(link)));
    }
    groups
}
