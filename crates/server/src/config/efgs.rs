//! `dialects.efgs`: the callbacks of the European Federation Gateway Service.

use std::collections::BTreeMap;

use posthorn_dialects::efgs::{Mode, Options};
use posthorn_domain::policy::Auth;
use posthorn_domain::{Policy, ProfileName};

use super::Server;
use super::reading::Reading;

/// The dialect's knobs; `None` when it is off. Changes its profile where the mode asks for it.
///
/// The proxy that is believed has its own headers, and its own addresses or those of `server.identity`.
pub(super) fn build(
    read: &mut Reading<'_>,
    server: &Server,
    profiles: &mut BTreeMap<ProfileName, Policy>,
) -> Option<Options> {
    let mut options: Options = read.at("dialects.efgs");
    options.identity = read.at("dialects.efgs");
    if options.identity.proxies.is_empty() {
        options.identity.proxies.clone_from(&server.identity.proxies);
    }
    if !options.enabled {
        return None;
    }
    match profiles.get_mut(&options.profile) {
        Some(policy) if options.mode == Mode::NativeMtls => show_certificates(policy),
        Some(_) => {}
        None => {
            let problem = format!("there is no profile `{}`", options.profile);
            read.refuse("dialects.efgs.profile", problem);
        }
    }
    let shakes_hands = server.tls.as_ref().is_some_and(|tls| tls.tls.asks());
    let told = !options.identity.proxies.is_empty() || shakes_hands;
    let problem = "must name where the proxy that ends the callers' TLS connects from (or \
                   server.identity.proxies), unless server.tls asks for certificates";
    read.require(told, "dialects.efgs.proxies", problem);
    Some(options)
}

/// The certificates that the profile would name to a proxy are shown in the handshake.
fn show_certificates(policy: &mut Policy) {
    for auth in &mut policy.auth {
        if let Auth::CertificateThumbprint(header) = auth {
            *auth = Auth::ClientCertificate(header.choice.clone());
        }
    }
}
