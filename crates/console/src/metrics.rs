//! What is counted.

use metrics::{Unit, counter, describe_counter};

/// Logins to the console that were tried, by `way` and `outcome`.
const LOGINS: &str = "posthorn_console_logins_total";
/// Requests that a session was refused because it made too many.
const LIMITED: &str = "posthorn_console_limited_total";

/// How somebody logs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Key,
    Provider,
    Proxy,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A session.
    Opened,
    /// A key that opens nothing, a login of another browser, somebody whom the provider did not let in.
    Refused,
    /// Somebody who is known, and may do nothing here.
    NoRights,
    /// The provider could not be asked, or answered something that cannot be used.
    ProviderFailed,
    /// A token that is not to be believed.
    BadToken,
    /// Headers that only the proxy may send came from somewhere else.
    ForeignHeader,
    /// The session could not be stored.
    Failed,
}

impl Way {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Provider => "provider",
            Self::Proxy => "proxy",
        }
    }

    const fn outcomes(self) -> &'static [Outcome] {
        match self {
            Self::Key => &[Outcome::Opened, Outcome::Refused, Outcome::NoRights, Outcome::Failed],
            Self::Provider => &[
                Outcome::Opened,
                Outcome::Refused,
                Outcome::NoRights,
                Outcome::ProviderFailed,
                Outcome::BadToken,
                Outcome::Failed,
            ],
            Self::Proxy => {
                &[Outcome::Opened, Outcome::NoRights, Outcome::ForeignHeader, Outcome::Failed]
            }
        }
    }
}

impl Outcome {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Refused => "refused",
            Self::NoRights => "no_rights",
            Self::ProviderFailed => "provider_failed",
            Self::BadToken => "bad_token",
            Self::ForeignHeader => "foreign_header",
            Self::Failed => "failed",
        }
    }
}

/// Tells the recorder what these mean, and that they are there.
pub(crate) fn describe() {
    describe_counter!(LOGINS, Unit::Count, "Logins to the console, by way and outcome");
    describe_counter!(
        LIMITED,
        Unit::Count,
        "Requests of console sessions refused because there were too many"
    );
    counter!(LIMITED).increment(0);
    for way in [Way::Key, Way::Provider, Way::Proxy] {
        for outcome in way.outcomes() {
            counter!(LOGINS, "way" => way.as_str(), "outcome" => outcome.as_str()).increment(0);
        }
    }
}

/// Counts a login.
pub(crate) fn login(way: Way, outcome: Outcome) {
    counter!(LOGINS, "way" => way.as_str(), "outcome" => outcome.as_str()).increment(1);
}

/// Counts a request that came too soon.
pub(crate) fn limited() {
    counter!(LIMITED).increment(1);
}
