//! Certificates for tests.

use posthorn_testkit::authority::Pair;
use rcgen::{DistinguishedName, DnType};

/// A client's own, signed by nobody else, which names this country; `expired` long ago, or valid.
pub(crate) fn of_country(country: Option<&str>, expired: bool) -> Pair {
    Pair::self_signed_with("client", |params| {
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "client");
        if let Some(country) = country {
            params.distinguished_name.push(DnType::CountryName, country);
        }
        if expired {
            params.not_before = rcgen::date_time_ymd(2001, 1, 1);
            params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        }
    })
}
