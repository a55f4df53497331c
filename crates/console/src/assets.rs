//! The files that pages load: part of the program, named by their contents, packed once.
//!
//! Those of others are as they were published; a test compares them with the hashes below.

use std::io::Write as _;
use std::sync::LazyLock;

use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use sha2::{Digest as _, Sha256};

/// Where they are served: the same files in both places, since one of them may be on a listener of its own.
const PATH: &str = "/console/assets/";
const PORTAL_PATH: &str = "/portal/assets/";

struct File {
    name: &'static str,
    kind: &'static str,
    contents: &'static [u8],
}

macro_rules! files {
    ($($name:literal: $kind:literal),+ $(,)?) => {
        [$(File { name: $name, kind: $kind, contents: include_bytes!(concat!("../assets/", $name)) }),+]
    };
}

static FILES: [File; 10] = files! {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "horn.svg": "image/svg+xml",
    "htmx.min.js": "text/javascript; charset=utf-8",
    "portal-push.js": "text/javascript; charset=utf-8",
    "portal-worker.js": "text/javascript; charset=utf-8",
    "portal.css": "text/css; charset=utf-8",
    "portal.js": "text/javascript; charset=utf-8",
    "uplot.min.css": "text/css; charset=utf-8",
    "uplot.min.js": "text/javascript; charset=utf-8",
};

struct Packed {
    /// With the beginning of its hash, so that it can be kept for ever.
    url: String,
    gzip: Bytes,
}

static PACKED: LazyLock<Vec<Packed>> = LazyLock::new(|| {
    let pack = |file: &File| {
        let hash = URL_SAFE_NO_PAD.encode(&Sha256::digest(file.contents)[..9]);
        Packed { url: format!("{PATH}{hash}/{}", file.name), gzip: gzip(file.contents, 9) }
    };
    FILES.iter().map(pack).collect()
});

/// Packed, as browsers accept it.
pub(crate) fn gzip(contents: &[u8], level: u32) -> Bytes {
    let mut packer = GzEncoder::new(Vec::new(), Compression::new(level));
    // Writing to memory does not fail; if it did, the file would be empty.
    let _ = packer.write_all(contents);
    packer.finish().unwrap_or_default().into()
}

/// Whether a browser takes gzip.
pub(crate) fn takes_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT_ENCODING).iter();
    accepted.filter_map(|value| value.to_str().ok()).any(|value| {
        value.split(',').any(|item| {
            let mut parts = item.split(';').map(str::trim);
            let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
            named && !parts.any(|q| matches!(q, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
        })
    })
}

/// The URL of a file.
pub(crate) fn url(name: &str) -> &'static str {
    let place = FILES.iter().position(|file| file.name == name);
    place.map_or("", |place| &PACKED[place].url)
}

/// The URL of a file for pages of the portal, whose paths begin with `base`.
pub(crate) fn portal_url(base: &str, name: &str) -> String {
    format!("{base}/assets/{}", url(name).trim_start_matches(PATH))
}

/// A file as it stands, for where it must have a path of its own.
pub(crate) fn contents(name: &str) -> &'static [u8] {
    FILES.iter().find(|file| file.name == name).map_or(&[], |file| file.contents)
}

/// Answers with the file that has this URL.
pub(crate) fn serve(path: &str, headers: &HeaderMap) -> Option<Response> {
    let rest = path.strip_prefix(PATH).or_else(|| path.strip_prefix(PORTAL_PATH))?;
    let place = PACKED.iter().position(|packed| packed.url.strip_prefix(PATH) == Some(rest))?;
    let (file, packed) = (&FILES[place], &PACKED[place]);
    let gzip = takes_gzip(headers);
    let body = if gzip { packed.gzip.clone() } else { Bytes::from_static(file.contents) };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.kind));
    let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
    headers.insert(header::CACHE_CONTROL, forever);
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if gzip {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of others, with the hashes of the packages htmx.org 4.0.0 and uplot 1.6.32.
    const FROM_OTHERS: [(&str, &str); 3] = [
        ("htmx.min.js", "e484d9171a9db30a39c8f16e3d709d4137f3211c659f8e6125816635033d593f"),
        ("uplot.min.js", "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"),
        ("uplot.min.css", "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04"),
    ];

    #[test]
    fn files_of_others_are_as_they_were_published() {
        for (name, wanted) in FROM_OTHERS {
            let file = FILES.iter().find(|file| file.name == name).unwrap();
            let hash: String =
                Sha256::digest(file.contents).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hash, wanted, "{name}");
        }
    }

    #[test]
    fn a_first_load_is_small() {
        let sum = |names: &dyn Fn(&str) -> bool| -> usize {
            let all = FILES.iter().zip(PACKED.iter()).filter(|(file, _)| names(file.name));
            all.map(|(_, packed)| packed.gzip.len()).sum()
        };
        let console = sum(&|name| !name.starts_with("portal"));
        assert!(console < 55_000, "{console} bytes");
        let portal =
            sum(&|name| ["console.css", "horn.svg"].contains(&name) || name.starts_with("portal."));
        assert!(portal < 20_000, "{portal} bytes");
        for (name, most) in [("console.js", 10_240), ("portal.js", 6_144)] {
            let own = FILES.iter().find(|file| file.name == name).unwrap();
            assert!(own.contents.len() <= most, "{name}: {} bytes", own.contents.len());
        }
    }

    #[test]
    fn they_are_served_packed_or_not_and_kept_for_ever() {
        let mut headers = HeaderMap::new();
        let plain = serve(url("console.css"), &headers).unwrap();
        assert!(!plain.headers().contains_key(header::CONTENT_ENCODING));
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("br, gzip;q=0.8"));
        let packed = serve(url("console.css"), &headers).unwrap();
        assert_eq!(packed.headers()[header::CONTENT_ENCODING], "gzip");
        assert!(packed.headers()[header::CACHE_CONTROL].to_str().unwrap().contains("immutable"));
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip;q=0"));
        assert!(!takes_gzip(&headers));
        assert!(serve("/console/assets/x/console.css", &headers).is_none());
        assert!(serve("/console/assets/../../etc/passwd", &headers).is_none());
    }
}
