//! Colours of a brand, so that what is written in them can be read.
//!
//! A brand gives one colour. In both themes it is moved towards black or white until text in it, and text on it, has a
//! contrast of at least 4.5 (WCAG 2.2 AA); its hue stays.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

/// The least contrast of text.
const CONTRAST_MIN: f64 = 4.5;
const WHITE: Colour = Colour([255, 255, 255]);
const BLACK: Colour = Colour([0, 0, 0]);
const INK: Colour = Colour([0x1d, 0x1b, 0x16]);

/// A colour as `#rrggbb`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour([u8; 3]);

/// That a text is no colour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoColour;

impl fmt::Display for NoColour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("must be a colour such as #1f5fa8")
    }
}

impl FromStr for Colour {
    type Err = NoColour;

    /// Six digits, or three, with or without the sign.
    fn from_str(text: &str) -> Result<Self, NoColour> {
        let digits = text.strip_prefix('#').unwrap_or(text);
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(NoColour);
        }
        let part = |at: usize| -> Result<u8, NoColour> {
            let text = match digits.len() {
                6 => digits[at * 2..at * 2 + 2].to_owned(),
                3 => digits[at..=at].repeat(2),
                _ => return Err(NoColour),
            };
            u8::from_str_radix(&text, 16).map_err(|_| NoColour)
        };
        Ok(Self([part(0)?, part(1)?, part(2)?]))
    }
}

impl fmt::Display for Colour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [red, green, blue] = self.0;
        write!(f, "#{red:02x}{green:02x}{blue:02x}")
    }
}

impl<'de> Deserialize<'de> for Colour {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Colour {
    /// So much of this one, the rest of another.
    fn mixed(self, other: Self, share: f64) -> Self {
        let mut out = [0; 3];
        for (place, part) in out.iter_mut().enumerate() {
            let (own, other) = (f64::from(self.0[place]), f64::from(other.0[place]));
            let mixed = (own * share + other * (1.0 - share)).round().clamp(0.0, 255.0);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it is between 0 and 255"
            )]
            {
                *part = mixed as u8;
            }
        }
        Self(out)
    }

    fn luminance(self) -> f64 {
        let linear = |part: u8| {
            let part = f64::from(part) / 255.0;
            if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        };
        let [red, green, blue] = self.0.map(linear);
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    /// How well one can be read on the other, from 1 to 21.
    fn contrast(self, other: Self) -> f64 {
        let (one, two) = (self.luminance() + 0.05, other.luminance() + 0.05);
        one.max(two) / one.min(two)
    }
}

/// What a theme does with an accent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accent {
    /// Text and buttons.
    pub(crate) accent: Colour,
    /// Text on such a button.
    pub(crate) ink: Colour,
    /// Behind text in the accent.
    pub(crate) wash: Colour,
}

/// A theme: the darkest or lightest ground, what to mix the wash of, and where to go for more contrast.
struct Theme {
    grounds: [Colour; 2],
    share: f64,
    towards: Colour,
}

const LIGHT: Theme =
    Theme { grounds: [WHITE, Colour([0xfb, 0xfa, 0xf7])], share: 0.12, towards: BLACK };
const DARK: Theme = Theme {
    grounds: [Colour([0x1e, 0x1c, 0x16]), Colour([0x15, 0x14, 0x0f])],
    share: 0.16,
    towards: WHITE,
};

impl Theme {
    fn fit(&self, given: Colour) -> Accent {
        let steps = (0..=20).map(|step| given.mixed(self.towards, 1.0 - f64::from(step) / 20.0));
        let accents = steps.map(|accent| {
            let wash = accent.mixed(self.grounds[0], self.share);
            let inks = [WHITE, INK];
            let best =
                inks.into_iter().max_by(|a, b| accent.contrast(*a).total_cmp(&accent.contrast(*b)));
            Accent { accent, ink: best.unwrap_or(WHITE), wash }
        });
        let fits = |own: &Accent| {
            let grounds = self.grounds.iter().chain([&own.wash, &own.ink]);
            grounds.copied().all(|ground| own.accent.contrast(ground) >= CONTRAST_MIN)
        };
        let mut last = None;
        for own in accents {
            if fits(&own) {
                return own;
            }
            last = Some(own);
        }
        last.unwrap_or(Accent { accent: given, ink: WHITE, wash: given })
    }
}

/// The accent of the light theme and that of the dark one.
pub(crate) fn themes(given: Colour) -> (Accent, Accent) {
    (LIGHT.fit(given), DARK.fit(given))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_read() {
        assert_eq!(
            "#1F5fa8".parse::<Colour>().map(|colour| colour.to_string()),
            Ok("#1f5fa8".into())
        );
        assert_eq!("f0c".parse::<Colour>().map(|colour| colour.to_string()), Ok("#ff00cc".into()));
        for bad in ["", "#12", "#12345", "red", "#12345g", "#é1", "url(x)", "#1234567"] {
            assert_eq!(bad.parse::<Colour>(), Err(NoColour), "{bad}");
        }
    }

    #[test]
    fn whatever_the_brand_text_can_be_read() {
        for red in (0..=255).step_by(51) {
            for green in (0..=255).step_by(51) {
                for blue in (0..=255).step_by(51) {
                    let given = Colour([red, green, blue]);
                    let (light, dark) = themes(given);
                    for (theme, own) in [(&LIGHT, light), (&DARK, dark)] {
                        for ground in [theme.grounds[0], theme.grounds[1], own.wash, own.ink] {
                            let contrast = own.accent.contrast(ground);
                            assert!(contrast >= CONTRAST_MIN, "{given}: {own:?} {contrast}");
                        }
                    }
                }
            }
        }
        let (light, _) = themes("#1f5fa8".parse().unwrap());
        assert_eq!(light.accent.to_string(), "#1f5fa8", "what can be read stays as it is");
    }
}
