//! Why a URL or an address is refused, in words its owner can act on.

/// Why a URL may not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlRefusal {
    /// Too many bytes.
    #[error("the URL is too long; use at most {max} characters")]
    TooLong {
        /// The most allowed.
        max: usize,
    },
    /// Empty, or with blanks around it.
    #[error("the URL is empty or has spaces around it; remove them")]
    Surrounded,
    /// A tab, a line break or the like.
    #[error("the URL contains a control character; remove it or write it as %XX")]
    ControlCharacter,
    /// Parsers disagree on what a backslash means.
    #[error("the URL contains a backslash; write / or %5C")]
    Backslash,
    /// Several spellings of one host look alike in Unicode.
    #[error(
        "the URL contains characters outside ASCII; write the host in its xn-- form and \
         the rest as %XX"
    )]
    NotAscii,
    /// Parsers disagree on whether these are decoded.
    #[error("the host of the URL contains %XX; write the characters themselves")]
    HostEncoded,
    /// Not a URL.
    #[error("the URL cannot be read; write it like https://example.com/path")]
    Unparseable(#[source] url::ParseError),
    /// Neither http nor https.
    #[error("the URL must begin with https:// or http://")]
    Scheme,
    /// Plain http is switched off.
    #[error("the URL must begin with https://, since this server does not send over plain http")]
    HttpsOnly,
    /// Credentials in URLs end up in logs.
    #[error("the URL contains a user name or password; configure authentication instead")]
    Userinfo,
    /// Never sent, so certainly a mistake.
    #[error("the URL contains a fragment; remove everything from # on")]
    Fragment,
    /// Missing, empty labels, wildcards, too long.
    #[error("the host of the URL is not a valid name; use a full name like hooks.example.com")]
    HostInvalid,
    /// A single label means something else on every network.
    #[error("the host has no domain; use a full name like hooks.example.com")]
    HostNotQualified,
    /// Names that by definition are not on the public internet.
    #[error("the host belongs to a private or special domain; use a public name")]
    HostDenied,
    /// The path or query has bytes that cannot be sent.
    #[error("the path or query of the URL cannot be sent; write special characters as %XX")]
    PathInvalid,
    /// A port where no webhook receiver lives, or that the operator did not open.
    #[error("port {port} is not open to receivers; use 443, or ask the operator to open it")]
    Port {
        /// The port asked for.
        port: u16,
    },
    /// A name that belongs to this installation itself.
    #[error("the host is part of this installation; use the name of a receiver")]
    HostOwn,
    /// The host is an address, and it is refused.
    #[error(transparent)]
    Address(AddressRefusal),
}

impl UrlRefusal {
    /// The stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::TooLong { .. } => "url_too_long",
            Self::Surrounded => "url_surrounded_by_blanks",
            Self::ControlCharacter => "url_control_character",
            Self::Backslash => "url_backslash",
            Self::NotAscii => "url_not_ascii",
            Self::HostEncoded => "url_host_encoded",
            Self::Unparseable(_) => "url_unparseable",
            Self::Scheme => "url_scheme",
            Self::HttpsOnly => "url_https_only",
            Self::Userinfo => "url_userinfo",
            Self::Fragment => "url_fragment",
            Self::HostInvalid => "url_host_invalid",
            Self::HostNotQualified => "url_host_not_qualified",
            Self::HostDenied => "url_host_denied",
            Self::PathInvalid => "url_path_invalid",
            Self::Port { .. } => "port_not_allowed",
            Self::HostOwn => "url_host_own",
            Self::Address(refusal) => refusal.code(),
        }
    }

    /// Code and text as tenants may see them. Every closed address reads the same, so that nobody
    /// can find out by asking which of them are ours, which are denied, and where the database is.
    pub fn for_tenants(&self) -> (&'static str, String) {
        match self {
            Self::Address(AddressRefusal::Port { .. }) => (self.code(), self.to_string()),
            Self::Address(_) | Self::HostOwn => {
                let text = "receivers may not be at this address; use a public one, or ask the \
                            operator to allow it";
                ("address_not_allowed", text.to_owned())
            }
            other => (other.code(), other.to_string()),
        }
    }
}

/// Why an address may not be connected to. It names no address: tenants see these texts, and an
/// address would tell them about the network behind a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressRefusal {
    /// Private, special, reserved.
    #[error(
        "the address is not on the public internet; use a public one, or ask the operator \
         to allow it"
    )]
    NotPublic,
    /// Link-local and cloud metadata. An allow rule alone does not open these.
    #[error("the address is link-local or a cloud metadata service; use a public one")]
    Metadata,
    /// Closed by the operator.
    #[error("the operator has denied this network; use another address")]
    Denied,
    /// An address of this machine, or of a machine this installation depends on.
    #[error("the address belongs to this installation; use the address of a receiver")]
    Own,
    /// Our own API, or our database. Nothing opens these.
    #[error("a server of this installation listens there; use the address of a receiver")]
    OwnListener,
    /// The port is closed for this address.
    #[error("port {port} is not open to receivers; use 443, or ask the operator to open it")]
    Port {
        /// The port asked for.
        port: u16,
    },
}

impl AddressRefusal {
    /// The stable code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotPublic => "address_not_public",
            Self::Metadata => "address_metadata",
            Self::Denied => "address_denied",
            Self::Own => "address_own",
            Self::OwnListener => "address_own_listener",
            Self::Port { .. } => "port_not_allowed",
        }
    }
}
