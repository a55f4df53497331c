//! What a visitor has chosen: theme and language; and what the page around a frame asked for: colour, letters, a picture.
//! All of it is checked when it is read, wherever it comes from.

use http::HeaderMap;
use url::{Url, form_urlencoded};

use super::brand::{is_font, is_web_link};
use super::colour::Colour;
use super::texts::Language;
use crate::cookie;
use crate::form::Fields;

/// The cookie it is kept in. No secret.
pub(crate) const COOKIE: &str = "posthorn-portal-look";

/// What was chosen; what is absent is as the system or the configuration has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) theme: Option<&'static str>,
    pub(crate) language: Option<Language>,
    pub(crate) accent: Option<Colour>,
    pub(crate) font: Option<String>,
    pub(crate) icon: Option<String>,
}

/// A theme by its name. `system` is none.
fn theme(text: &str) -> Option<&'static str> {
    match text {
        "dark" | "true" => Some("dark"),
        "light" | "false" => Some("light"),
        _ => None,
    }
}

impl Look {
    /// As the cookie says.
    pub(crate) fn read(headers: &HeaderMap) -> Self {
        let kept = cookie::read(headers, COOKIE).unwrap_or_default();
        let fields = Fields::parse(kept.as_bytes());
        Self {
            theme: fields.get("theme").and_then(theme),
            language: fields.get("lang").and_then(Language::named),
            accent: fields.get("accent").and_then(|text| text.parse().ok()),
            font: fields.get("font").filter(|font| is_font(font)).map(str::to_owned),
            icon: fields.get("icon").filter(|icon| is_web_link(icon)).map(str::to_owned),
        }
    }

    /// With what the page around a frame asks for, by the names that it uses. A picture only from sites that may have
    /// the portal in a frame.
    pub(crate) fn with_query(mut self, query: &Fields, sites: &[String]) -> Self {
        if let Some(dark) = query.get("darkMode").and_then(theme) {
            self.theme = Some(dark);
        }
        if let Some(language) = query.get("lang").and_then(Language::named) {
            self.language = Some(language);
        }
        if let Some(accent) = query.get("primaryColor").and_then(|text| text.parse().ok()) {
            self.accent = Some(accent);
        }
        if let Some(font) = query.get("fontFamily").filter(|font| is_font(font)) {
            self.font = Some(font.to_owned());
        }
        if let Some(icon) = query.get("icon").filter(|icon| is_of(icon, sites)) {
            self.icon = Some(icon.to_owned());
        }
        self
    }

    /// With what a visitor has chosen here.
    pub(crate) fn with_choice(mut self, form: &Fields) -> Self {
        if let Some(chosen) = form.get("theme") {
            self.theme = theme(chosen);
        }
        if let Some(language) = form.get("lang").and_then(Language::named) {
            self.language = Some(language);
        }
        self
    }

    /// As it is kept.
    pub(crate) fn to_text(&self) -> String {
        let mut out = form_urlencoded::Serializer::new(String::new());
        let mut put = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                out.append_pair(name, &value);
            }
        };
        put("theme", self.theme.map(str::to_owned));
        put("lang", self.language.map(|language| language.code().to_owned()));
        put("accent", self.accent.map(|accent| accent.to_string()));
        put("font", self.font.clone());
        put("icon", self.icon.clone());
        out.finish()
    }
}

/// Whether a picture is of one of these sites.
fn is_of(icon: &str, sites: &[String]) -> bool {
    if icon.len() > 400 || !is_web_link(icon) {
        return false;
    }
    let Ok(url) = Url::parse(icon) else { return false };
    let own = url.origin().ascii_serialization();
    sites.iter().any(|site| match site.split_once("*.") {
        Some((scheme, rest)) => own.starts_with(scheme) && own.ends_with(&format!(".{rest}")),
        None => *site == own,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderValue, header};

    fn kept(text: &str) -> Look {
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_str(&format!("{COOKIE}={text}")).unwrap();
        headers.insert(header::COOKIE, value);
        Look::read(&headers)
    }

    #[test]
    fn what_is_kept_reads_back_and_nothing_else_does() {
        let query = "darkMode=true&primaryColor=28bb93&fontFamily=Open+Sans&lang=de\
                     &icon=https%3A%2F%2Fapp.example%2Fi.png";
        let sites = ["https://app.example".to_owned()];
        let look = Look::default().with_query(&Fields::parse(query.as_bytes()), &sites);
        assert_eq!((look.theme, look.language), (Some("dark"), Some(Language::German)));
        assert!(look.accent.is_some() && look.font.is_some() && look.icon.is_some());
        assert_eq!(kept(&look.to_text()), look);
        assert_eq!(
            kept("theme=<script>&lang=xx&accent=red&font=%22&icon=javascript:1"),
            Look::default()
        );
    }

    #[test]
    fn pictures_come_from_sites_that_are_known() {
        let sites = ["https://*.a.example".to_owned(), "https://b.example".to_owned()];
        assert!(
            is_of("https://x.a.example/i.png", &sites) && is_of("https://b.example/i.png", &sites)
        );
        for bad in [
            "https://xa.example/i",
            "https://evil.test/?.a.example",
            "http://b.example/i",
            "data:x",
        ] {
            assert!(!is_of(bad, &sites), "{bad}");
        }
    }

    #[test]
    fn the_system_s_theme_can_be_chosen_again() {
        let dark = Look { theme: Some("dark"), ..Look::default() };
        assert_eq!(dark.with_choice(&Fields::parse(b"theme=system")).theme, None);
    }
}
