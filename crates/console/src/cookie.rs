//! Cookies: read one, write one.

use http::{HeaderMap, HeaderValue, header};

/// The session of the console.
pub(crate) const SESSION: &str = "posthorn-console";
/// A login under way at a provider.
const LOGIN: &str = "posthorn-login";
/// The same over TLS, as browsers keep from everybody but this very host.
const LOGIN_SECURE: &str = "__Host-posthorn-login";
/// The tenant somebody looked at last. Not a secret.
pub(crate) const TENANT: &str = "posthorn-tenant";
/// Light or dark, where somebody has chosen. Written by the page's script.
pub(crate) const THEME: &str = "posthorn-theme";

/// What a cookie says. Two of one name are none: somebody else may have set the other.
pub(crate) fn read(headers: &HeaderMap, name: &str) -> Option<String> {
    let texts = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs =
        texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut found = pairs.filter(|(own, _)| *own == name).map(|(_, value)| value);
    match (found.next(), found.next()) {
        (Some(value), None) => Some(value.to_owned()),
        _ => None,
    }
}

/// The theme that somebody has chosen.
pub(crate) fn theme(headers: &HeaderMap) -> Option<&'static str> {
    match read(headers, THEME).as_deref() {
        Some("dark") => Some("dark"),
        Some("light") => Some("light"),
        _ => None,
    }
}

/// How long a cookie is kept.
pub(crate) enum Kept {
    Seconds(u64),
    Gone,
}

/// A cookie that scripts cannot read and other sites cannot have sent. `secure`: only over TLS.
pub(crate) fn write(name: &str, value: &str, kept: &Kept, secure: bool) -> HeaderValue {
    let age = match kept {
        Kept::Seconds(seconds) => *seconds,
        Kept::Gone => 0,
    };
    let secure = if secure { "; Secure" } else { "" };
    let text =
        format!("{name}={value}; Path=/console; HttpOnly; SameSite=Strict; Max-Age={age}{secure}");
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
}

/// What the cookie of a login under way is called.
pub(crate) const fn login_name(secure: bool) -> &'static str {
    if secure { LOGIN_SECURE } else { LOGIN }
}

/// A cookie for a login under way: it is also sent when the provider sends the browser back.
pub(crate) fn write_login(value: &str, kept: &Kept, secure: bool) -> HeaderValue {
    let age = match kept {
        Kept::Seconds(seconds) => *seconds,
        Kept::Gone => 0,
    };
    let (name, secure) = (login_name(secure), if secure { "; Secure" } else { "" });
    let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={age}{secure}");
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_name_is_read() {
        let mut headers = HeaderMap::new();
        headers
            .append(header::COOKIE, HeaderValue::from_static("a=1; posthorn-console=ses_x.y; b=2"));
        assert_eq!(read(&headers, SESSION).as_deref(), Some("ses_x.y"));
        assert_eq!(read(&headers, "c"), None);
        headers.append(header::COOKIE, HeaderValue::from_static("posthorn-console=other"));
        assert_eq!(read(&headers, SESSION), None, "who knows which one is ours?");
    }

    #[test]
    fn sessions_stay_with_the_browser_and_this_site() {
        let text = write(SESSION, "x", &Kept::Seconds(60), true);
        let wanted =
            "posthorn-console=x; Path=/console; HttpOnly; SameSite=Strict; Max-Age=60; Secure";
        assert_eq!(text, wanted);
        assert_eq!(
            write(SESSION, "", &Kept::Gone, false).to_str().unwrap().matches("Secure").count(),
            0
        );
        assert_eq!(write(SESSION, "a\nb", &Kept::Gone, false), "", "nothing that splits a head");
    }

    #[test]
    fn logins_under_way_come_back_from_another_site() {
        let text = write_login("x", &Kept::Seconds(600), true);
        let wanted = "__Host-posthorn-login=x; Path=/; HttpOnly; SameSite=Lax; Max-Age=600; Secure";
        assert_eq!(text, wanted);
        assert_eq!(
            write_login("", &Kept::Gone, false),
            "posthorn-login=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0"
        );
    }
}
