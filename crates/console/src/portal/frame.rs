//! What is around every page of the portal: the brand, the navigation, theme and language, the way out.

use posthorn_domain::Capability;

use super::guest::Guest;
use super::texts::{Language, Texts};
use crate::{assets, text, words};

/// The pages of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Endpoints,
    Messages,
    Attempts,
    Catalogue,
    Notifications,
    /// None of them.
    Elsewhere,
}

/// One line of the navigation.
pub(crate) struct NavLink {
    pub(crate) name: &'static str,
    pub(crate) href: String,
    pub(crate) here: bool,
    pub(crate) count: Option<String>,
}

/// A language to read in.
pub(crate) struct Tongue {
    pub(crate) code: &'static str,
    pub(crate) name: &'static str,
    pub(crate) here: bool,
}

/// What the brand looks like, also outside of a session.
pub(crate) struct Badge {
    pub(crate) name: String,
    /// The picture beside the name, and that of the dark theme.
    pub(crate) logo: Option<String>,
    pub(crate) logo_dark: Option<String>,
    pub(crate) favicon: String,
    /// The style sheet with its colours.
    pub(crate) sheet: Option<String>,
    pub(crate) terms: Option<String>,
}

impl Badge {
    pub(crate) fn of(portal: &super::Portal, look: &super::look::Look) -> Self {
        let (base, own) = (&portal.base, &portal.options);
        let place = |picture: &Option<super::Picture>| {
            picture.as_ref().map(|picture| format!("{base}/brand/{}", picture.name()))
        };
        let accent = look.accent.or(own.accent);
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        if let Some(accent) = accent {
            query.append_pair("accent", accent.to_string().trim_start_matches('#'));
        }
        if let Some(font) = &look.font {
            query.append_pair("font", font);
        }
        let query = query.finish();
        let sheet = (!query.is_empty()).then(|| format!("{base}/look.css?{query}"));
        let favicon = place(&own.favicon);
        Self {
            name: own.name.clone(),
            logo: look.icon.clone().or_else(|| place(&own.logo)),
            logo_dark: if look.icon.is_some() { None } else { place(&own.logo_dark) },
            favicon: favicon.unwrap_or_else(|| assets::portal_url(base, "horn.svg")),
            sheet,
            terms: own.terms_url.clone(),
        }
    }
}

/// Everything around a page.
pub(crate) struct Frame {
    pub(crate) t: &'static Texts,
    pub(crate) lang: &'static str,
    pub(crate) base: String,
    pub(crate) title: String,
    pub(crate) badge: Badge,
    pub(crate) nav: Vec<NavLink>,
    pub(crate) crumbs: Vec<(String, String)>,
    pub(crate) tongues: Vec<Tongue>,
    pub(crate) theme: Option<&'static str>,
    pub(crate) csrf: String,
    pub(crate) who: String,
    /// Where the customer came from.
    pub(crate) back: Option<String>,
    /// What the page before has done.
    pub(crate) said: Option<&'static str>,
    pub(crate) manages: bool,
    pub(crate) resends: bool,
    pub(crate) rotates: bool,
    pub(crate) sees_secrets: bool,
    /// The page, to come back to.
    pub(crate) here: String,
}

impl Frame {
    pub(crate) async fn new(guest: &Guest, place: Place, title: impl Into<String>) -> Self {
        let t = guest.t;
        let base = guest.portal.base.clone();
        let tongue = |language: Language| Tongue {
            code: language.code(),
            name: language.name(),
            here: language == guest.language,
        };
        Self {
            lang: guest.language.code(),
            title: title.into(),
            badge: Badge::of(&guest.portal, &guest.look),
            nav: navigation(guest, place),
            crumbs: Vec::new(),
            tongues: Language::ALL.into_iter().map(tongue).collect(),
            theme: guest.look.theme,
            csrf: guest.form_token(),
            who: text::line(&guest.session.name, 60),
            back: back(guest.session.back.as_deref(), guest.portal.options.return_url.as_deref()),
            said: guest.query.get("done").and_then(|word| said(t, word)),
            manages: guest.can(Capability::ManageEndpoints),
            resends: guest.can(Capability::Resend),
            rotates: guest.can(Capability::RotateSecret),
            sees_secrets: guest.can(Capability::SeeSecret),
            here: guest.here.clone(),
            t,
            base,
        }
    }

    /// With a way back.
    pub(crate) fn below(mut self, rest: &str, name: impl Into<String>) -> Self {
        self.crumbs.push((format!("{}/{rest}", self.base), name.into()));
        self
    }

    pub(crate) fn asset(&self, name: &str) -> String {
        assets::portal_url(&self.base, name)
    }

    /// A text with something put in.
    pub(crate) fn fill(&self, text: &str, value: &str) -> String {
        text.replace("{}", value)
    }
}

/// Where a link back leads: only to the web.
pub(crate) fn back(own: Option<&str>, usual: Option<&str>) -> Option<String> {
    [own, usual].into_iter().flatten().find(|url| super::brand::is_web_link(url)).map(str::to_owned)
}

/// What the page before has done, by a word that is known here: nobody can have a link say what they like.
fn said(t: &'static Texts, word: &str) -> Option<&'static str> {
    Some(match word {
        "resent" => t.said_resent,
        "paused" => t.said_paused,
        "resumed" => t.said_resumed,
        "changed" => t.said_changed,
        "deleted" => t.said_deleted,
        "started" => t.said_started,
        "stopped" => t.said_stopped,
        "browser" => t.said_browser,
        _ => return None,
    })
}

fn navigation(guest: &Guest, here: Place) -> Vec<NavLink> {
    let t = guest.t;
    let link = |name, place: Place, rest: &str, count: Option<usize>| NavLink {
        name,
        href: guest.path(rest),
        here: place == here,
        count: count.map(|count| words::number(count as u64)),
    };
    let endpoints = super::endpoints::count(guest);
    vec![
        link(t.endpoints, Place::Endpoints, "", Some(endpoints)),
        link(t.messages, Place::Messages, "messages", None),
        link(t.attempts, Place::Attempts, "attempts", None),
        link(t.event_types, Place::Catalogue, "event-types", None),
        link(t.notifications, Place::Notifications, "notifications", None),
    ]
}
