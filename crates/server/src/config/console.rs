//! `console`: who may log in to the pages for operators, and how.

use posthorn_console::{Options, Rights};

use super::reading::Reading;

/// Reads the section, and what must hold between its keys.
pub(super) fn build(read: &mut Reading<'_>) -> Options {
    let proxy_rights: Rights = read.at("console.proxy_login.rights");
    let options = Options { proxy_rights, ..read.at("console") };
    let (oidc, proxy) = (&options.oidc, &options.proxy_login);
    let rights = "must say what groups may do, e.g. [{group: admins, scopes: [operator]}]: without it \
                  nobody can log in";
    if oidc.issuer.is_some() {
        let named = oidc.client_id.as_ref().is_some_and(|id| !id.trim().is_empty());
        read.require(named, "console.oidc.client_id", "must be given: the provider knows us by it");
        read.require(!oidc.rights.is_empty(), "console.oidc.rights", rights);
    } else {
        let unused =
            oidc.client_id.is_none() && oidc.client_secret.is_none() && oidc.rights.is_empty();
        read.require(unused, "console.oidc.issuer", "must be given too: it is where people log in");
    }
    if proxy.user_header.is_some() {
        let problem = "must name where the proxy connects from: anybody can write headers";
        read.require(!proxy.proxies.is_empty(), "console.proxy_login.proxies", problem);
        let problem = "must be given too: groups decide what people may do";
        read.require(proxy.groups_header.is_some(), "console.proxy_login.groups_header", problem);
        read.require(!options.proxy_rights.is_empty(), "console.proxy_login.rights", rights);
    } else {
        let unused = proxy.groups_header.is_none()
            && proxy.proxies.is_empty()
            && options.proxy_rights.is_empty();
        let problem = "must be given too: people are told by it";
        read.require(unused, "console.proxy_login.user_header", problem);
    }
    let way_in = options.key_login || oidc.issuer.is_some() || proxy.user_header.is_some();
    let problem =
        "must be true unless console.oidc or console.proxy_login is set: nobody could log in";
    read.require(way_in || !options.enabled, "console.key_login", problem);
    options
}
