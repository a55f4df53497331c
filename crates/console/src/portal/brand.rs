//! What the portal looks like by configuration: name, pictures, colour, links.

use std::io::Read as _;

use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderValue, header};
use serde::{Deserialize, Deserializer};
use sha2::{Digest as _, Sha256};
use url::Url;

use super::colour::{self, Accent, Colour};

/// The largest picture.
const PICTURE_BYTES_MAX: usize = 256 << 10;

/// A picture of a brand: read from a file when the server starts, served by it alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    kind: &'static str,
    bytes: Bytes,
    hash: String,
}

impl Picture {
    fn read(path: &str) -> Result<Self, String> {
        let file =
            std::fs::File::open(path).map_err(|e| format!("`{path}` cannot be read: {e}"))?;
        let mut bytes = Vec::new();
        let limit = u64::try_from(PICTURE_BYTES_MAX).unwrap_or(u64::MAX) + 1;
        file.take(limit).read_to_end(&mut bytes).map_err(|e| format!("`{path}`: {e}"))?;
        Self::of(bytes).map_err(|problem| format!("`{path}` {problem}"))
    }

    fn of(bytes: Vec<u8>) -> Result<Self, &'static str> {
        if bytes.len() > PICTURE_BYTES_MAX {
            return Err("is larger than 256 KiB");
        }
        // By what is in it: a name says nothing.
        let kind = match bytes.as_slice() {
            [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => "image/png",
            [0xff, 0xd8, 0xff, ..] => "image/jpeg",
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "image/webp",
            [0, 0, 1, 0, ..] => "image/x-icon",
            text => {
                let text = std::str::from_utf8(text).unwrap_or_default().trim_start();
                let drawn =
                    text.starts_with("<svg") || text.starts_with("<?xml") && text.contains("<svg");
                if !drawn {
                    return Err("is no PNG, JPEG, WebP, ICO or SVG");
                }
                "image/svg+xml"
            }
        };
        let hash = URL_SAFE_NO_PAD.encode(&Sha256::digest(&bytes)[..9]);
        Ok(Self { kind, bytes: bytes.into(), hash })
    }

    /// The last part of its URL, which changes with its contents.
    pub(crate) fn name(&self) -> &str {
        &self.hash
    }

    pub(crate) fn serve(&self) -> Response {
        let mut response = Response::new(Body::from(self.bytes.clone()));
        let headers = response.headers_mut();
        let mut put = |name, value| {
            headers.insert(name, HeaderValue::from_static(value));
        };
        put(header::CONTENT_TYPE, self.kind);
        put(header::CACHE_CONTROL, "public, max-age=31536000, immutable");
        // A drawing may have scripts in it; opened by itself it must not be a page of ours.
        put(header::CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox");
        response
    }
}

impl<'de> Deserialize<'de> for Picture {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// A link to somewhere else that a page may show.
pub(crate) fn is_web_link(text: &str) -> bool {
    let plain = |url: &Url| url.username().is_empty() && url.password().is_none() && url.has_host();
    text.len() <= 2_048 && Url::parse(text).is_ok_and(|url| url.scheme() == "https" && plain(&url))
}

/// The same as a setting.
pub(crate) fn web_link<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    match text {
        Some(text) if !is_web_link(&text) => {
            Err(serde::de::Error::custom("must be an https URL without a name and password"))
        }
        text => Ok(text),
    }
}

/// A name that people read: one line.
pub(crate) fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    let fits = !text.trim().is_empty() && text.len() <= 60 && !text.chars().any(char::is_control);
    if fits { Ok(text) } else { Err(serde::de::Error::custom("must be 1 to 60 bytes on one line")) }
}

/// Sites that may show the portal in a frame, as a policy names them.
pub(crate) fn ancestors<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<String>, D::Error> {
    let all = Vec::<String>::deserialize(deserializer)?;
    for text in &all {
        if !is_ancestor(text) {
            let problem = format!(
                "`{text}` is not a site: write https://app.example.com, https://*.example.com or \
                 http://localhost:3000"
            );
            return Err(serde::de::Error::custom(problem));
        }
    }
    Ok(all)
}

fn is_ancestor(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    let host = rest.strip_prefix("*.").unwrap_or(rest);
    let (name, port) = host.rsplit_once(':').unwrap_or((host, "443"));
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
    let named = !name.is_empty() && name.bytes().all(fine) && !name.starts_with(['.', '-']);
    let local = matches!(name, "localhost" | "127.0.0.1");
    let wide = rest.starts_with("*.") && !name.contains('.');
    let known = scheme == "https" || scheme == "http" && local;
    known && named && !wide && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// A family of letters as a page may name it: letters, digits, blanks.
pub(crate) fn is_font(text: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b" -".contains(&byte);
    (1..=40).contains(&text.len()) && text.bytes().all(fine)
}

/// The variables that a brand changes, as a style sheet.
pub(crate) fn sheet(accent: Option<Colour>, font: Option<&str>) -> String {
    let mut css = String::new();
    if let Some(font) = font {
        css.push_str(&format!(
            ":root {{ --sans: \"{font}\", system-ui, -apple-system, \"Segoe UI\", Roboto, \"DejaVu Sans\", sans-serif; }}\n"
        ));
    }
    if let Some(given) = accent {
        let (light, dark) = colour::themes(given);
        let rules = |own: Accent| {
            format!(
                "--accent: {}; --accent-ink: {}; --accent-wash: {};",
                own.accent, own.ink, own.wash
            )
        };
        css.push_str(&format!(":root {{ {} }}\n", rules(light)));
        let dark = rules(dark);
        css.push_str(&format!(
            "@media (prefers-color-scheme: dark) {{ :root:not([data-theme=\"light\"]) {{ {dark} }} }}\n\
             :root[data-theme=\"dark\"] {{ {dark} }}\n"
        ));
    }
    css
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_known_by_what_is_in_them() {
        let kind = |bytes: &[u8]| Picture::of(bytes.to_vec()).map(|picture| picture.kind);
        assert_eq!(kind(b"\x89PNG\r\n\x1a\nrest"), Ok("image/png"));
        assert_eq!(kind(b"<svg xmlns='http://www.w3.org/2000/svg'/>"), Ok("image/svg+xml"));
        assert_eq!(kind(b"<?xml version='1.0'?><svg/>"), Ok("image/svg+xml"));
        for bad in [&b"<html><script>alert(1)</script>"[..], b"", b"GIF", b"\xff\xfe"] {
            assert!(kind(bad).is_err(), "{bad:?}");
        }
        let large = vec![b' '; PICTURE_BYTES_MAX + 1];
        assert_eq!(Picture::of(large), Err("is larger than 256 KiB"));
        let served = Picture::of(b"<svg/>".to_vec()).unwrap().serve();
        assert_eq!(
            served.headers()[header::CONTENT_SECURITY_POLICY],
            "default-src 'none'; sandbox"
        );
    }

    #[test]
    fn sites_of_frames_are_checked() {
        for fine in ["https://a.example", "https://*.a.example:8443", "http://localhost:3000"] {
            assert!(is_ancestor(fine), "{fine}");
        }
        for bad in [
            "*",
            "https://*",
            "https://*.com",
            "http://a.example",
            "https://a.example; script-src *",
            "https://a.example/path",
            "'self'",
            "https://",
            "https://a b",
            "javascript://x",
        ] {
            assert!(!is_ancestor(bad), "{bad}");
        }
    }

    #[test]
    fn links_go_to_the_web() {
        assert!(is_web_link("https://a.example/terms?x=1"));
        for bad in
            ["http://a.example", "javascript:alert(1)", "https://u:p@a.example", "//a", "https://"]
        {
            assert!(!is_web_link(bad), "{bad}");
        }
    }

    #[test]
    fn a_sheet_has_what_was_checked_and_nothing_else() {
        assert_eq!(sheet(None, None), "");
        let css = sheet("#1f5fa8".parse().ok(), Some("Open Sans"));
        assert!(css.contains("--accent: #1f5fa8;") && css.contains("\"Open Sans\""), "{css}");
        assert_eq!(css.matches("--accent-ink").count(), 3);
        for bad in ["a\"b", "", "x;}", "é"] {
            assert!(!is_font(bad), "{bad}");
        }
    }
}
