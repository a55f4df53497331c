//! Every text that customers read, one file for each language.
//!
//! A text is a field of [`Texts`], and each language has one value of that: a text that is missing does not compile.
//! `{}` stands for something that is put in. What the API says about a refusal is in English, and marked as such.

mod de;
mod en;
mod fr;
mod ja;
mod nl;

use http::{HeaderMap, header};
use serde::{Deserialize, Deserializer};

pub(crate) use en::Texts;

/// A language that the portal speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// English.
    English,
    /// Dutch.
    Dutch,
    /// German.
    German,
    /// French.
    French,
    /// Japanese.
    Japanese,
}

impl Language {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::English, Self::Dutch, Self::German, Self::French, Self::Japanese];

    /// As pages and settings name it.
    pub const fn code(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::Dutch => "nl",
            Self::German => "de",
            Self::French => "fr",
            Self::Japanese => "ja",
        }
    }

    /// As those call it who speak it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::English => "English",
            Self::Dutch => "Nederlands",
            Self::German => "Deutsch",
            Self::French => "Français",
            Self::Japanese => "日本語",
        }
    }

    pub(crate) fn texts(self) -> &'static Texts {
        match self {
            Self::English => &en::TEXTS,
            Self::Dutch => &nl::TEXTS,
            Self::German => &de::TEXTS,
            Self::French => &fr::TEXTS,
            Self::Japanese => &ja::TEXTS,
        }
    }

    /// By its code, with or without a region.
    pub(crate) fn named(text: &str) -> Option<Self> {
        let code = text.split(['-', '_']).next().unwrap_or_default();
        Self::ALL.into_iter().find(|language| language.code().eq_ignore_ascii_case(code))
    }

    /// The one that a browser likes best, of those that there are.
    pub(crate) fn accepted(headers: &HeaderMap) -> Option<Self> {
        let text = headers.get(header::ACCEPT_LANGUAGE)?.to_str().ok()?;
        let weighted = text.split(',').take(20).filter_map(|item| {
            let mut parts = item.split(';').map(str::trim);
            let language = Self::named(parts.next()?)?;
            let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f64>().ok());
            Some((weight.unwrap_or(1.0), language)).filter(|(weight, _)| *weight > 0.0)
        });
        // Of two that are liked as much, the first.
        let best = weighted.fold(None, |best: Option<(f64, Self)>, one| match best {
            Some(best) if best.0 >= one.0 => Some(best),
            _ => Some(one),
        });
        best.map(|(_, language)| language)
    }
}

impl<'de> Deserialize<'de> for Language {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let known = Self::ALL.into_iter().find(|language| language.code() == text);
        known.ok_or_else(|| {
            let codes = Self::ALL.map(Self::code).join(", ");
            serde::de::Error::custom(format!("must be one of {codes}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn every_language_says_everything() {
        let english = Language::English.texts().all();
        for language in Language::ALL {
            let own = language.texts().all();
            assert_eq!(own.len(), english.len());
            let mut same = 0;
            for ((name, text), (_, wanted)) in own.iter().zip(&english) {
                let holes = |text: &str| text.matches("{}").count();
                assert_eq!(holes(text), holes(wanted), "{}: {name}", language.code());
                assert!(!text.trim().is_empty(), "{}: {name}", language.code());
                same += usize::from(text == wanted && wanted.contains(' '));
            }
            let is_translated = language == Language::English || same < 5;
            assert!(is_translated, "{}: {same} sentences are English", language.code());
        }
    }

    #[test]
    fn the_language_that_is_liked_best_is_chosen() {
        let accepted = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_LANGUAGE, HeaderValue::from_str(text).unwrap());
            Language::accepted(&headers)
        };
        assert_eq!(accepted("de-CH,fr;q=0.9"), Some(Language::German));
        assert_eq!(accepted("es, nl;q=0.4, ja;q=0.8"), Some(Language::Japanese));
        assert_eq!(accepted("es,pt;q=0.5"), None);
        assert_eq!(accepted("fr;q=0, en;q=0.1"), Some(Language::English));
        assert_eq!(Language::named("ja_JP"), Some(Language::Japanese));
    }
}
