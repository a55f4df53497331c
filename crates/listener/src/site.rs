//! By which name the other end knows us, for links that lead back here.

use http::{HeaderMap, header};

/// Scheme and host, without a slash at the end: as they were configured, or else as the request has them.
pub fn site(configured: Option<&str>, https: bool, headers: &HeaderMap) -> String {
    if let Some(url) = configured {
        return url.trim_end_matches('/').to_owned();
    }
    // Whoever sends the request writes this: nothing but a host may come back out of it.
    let plausible = |host: &&str| {
        let fine = |b: u8| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b);
        !host.is_empty() && host.len() <= 255 && host.bytes().all(fine)
    };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let scheme = if https { "https" } else { "http" };
    format!("{scheme}://{}", host.filter(plausible).unwrap_or("localhost"))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn links_lead_to_where_the_caller_found_us() {
        let mut headers = HeaderMap::new();
        assert_eq!(site(None, false, &headers), "http://localhost");
        for (host, found) in [
            ("a.example:8443", "https://a.example:8443"),
            ("[::1]:80", "https://[::1]:80"),
            ("a.example/x?", "https://localhost"),
            ("a b", "https://localhost"),
        ] {
            headers.insert(header::HOST, HeaderValue::from_static(host));
            assert_eq!(site(None, true, &headers), found);
        }
        assert_eq!(site(Some("https://b.example/"), false, &headers), "https://b.example");
    }
}
