//! What the headers of a push request say, and what of it goes on to the browser.
//!
//! Order of the checks, as senders know it from other services: [`ttl`] (is it there), then
//! [`encryption`] (only with a body), then [`Ttl::within`] and [`topic`]. Every refusal has the number
//! that senders find in the answer.
//!
//! Headers that are there several times count as one, joined by commas.

use posthorn_domain::{PushEncoding, PushHeaders, PushTopic};

/// Longest `Encryption` or `Crypto-Key`. They are kept with the message; what senders put into them,
/// two keys and a salt, is a quarter of it.
pub const ENCRYPTION_BYTES_MAX: usize = 1_024;

/// Why the headers are not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderRefusal {
    /// `TTL` is missing or not a number.
    #[error("the TTL header is required: whole seconds, 0 or more")]
    NoTtl,
    /// `TTL` is below zero.
    #[error("the TTL header must not be negative")]
    NegativeTtl,
    /// `Topic` is not one.
    #[error("the Topic header must be 1 to 32 characters of A-Z a-z 0-9 - _, and may end in =")]
    Topic,
    /// `Content-Encoding` is missing or unknown.
    #[error("a body needs a Content-Encoding header: aes128gcm or aesgcm")]
    Encoding,
    /// A header is longer than anybody needs.
    #[error("the {header} header must be at most {ENCRYPTION_BYTES_MAX} bytes long")]
    TooLong {
        /// Which.
        header: &'static str,
    },
    /// A header does not have the form of a list of parameters.
    #[error("the {header} header must be NAME=VALUE pairs, separated by ; or ,")]
    Syntax {
        /// Which.
        header: &'static str,
    },
    /// Without it a browser cannot decrypt.
    #[error("with the encoding aesgcm, the {header} header must have {name}, in base64url")]
    Absent {
        /// In which header.
        header: &'static str,
        /// What.
        name: &'static str,
    },
    /// It would contradict what the body says.
    #[error("with the encoding aes128gcm, the {header} header must not have {name}")]
    Unwanted {
        /// In which header.
        header: &'static str,
        /// What.
        name: &'static str,
    },
    /// A header of the first drafts, which no browser reads any more.
    #[error("the Encryption-Key header is of an old draft; use Crypto-Key")]
    EncryptionKey,
}

impl HeaderRefusal {
    /// Its number in the errors of the push endpoint. All of them are answered 400.
    pub const fn errno(self) -> u16 {
        match self {
            Self::NoTtl => 111,
            Self::NegativeTtl => 114,
            Self::Topic => 113,
            Self::Encoding
            | Self::TooLong { .. }
            | Self::Syntax { .. }
            | Self::Absent { .. }
            | Self::Unwanted { .. }
            | Self::EncryptionKey => 110,
        }
    }
}

/// A `TTL` that is a number. Whether it is a good one is looked at later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ttl(i64);

/// Reads `TTL`. What is too large for any number is the largest: it is cut down anyway.
pub fn ttl(header: Option<&str>) -> Result<Ttl, HeaderRefusal> {
    let text = header.ok_or(HeaderRefusal::NoTtl)?.trim_matches([' ', '\t']);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(HeaderRefusal::NoTtl);
    }
    let seconds = digits.parse().unwrap_or(i64::MAX);
    Ok(Ttl(if negative { -seconds } else { seconds }))
}

impl Ttl {
    /// The seconds that count: at most `max`, which is what the sender is told then.
    pub fn within(self, max: u32) -> Result<u32, HeaderRefusal> {
        if self.0 < 0 {
            return Err(HeaderRefusal::NegativeTtl);
        }
        Ok(u32::try_from(self.0).map_or(max, |seconds| seconds.min(max)))
    }
}

/// Reads `Topic`, which is taken letter by letter.
pub fn topic(header: Option<&str>) -> Result<Option<PushTopic>, HeaderRefusal> {
    header.map(|text| text.parse().map_err(|_| HeaderRefusal::Topic)).transpose()
}

/// A list of parameters such as `keyid=p256dh;dh=BAAB, p256ecdsa=BAAC`: sections between commas,
/// parameters between semicolons. Quotes around values are dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters<'a>(Vec<(&'a str, &'a str)>);

/// Not a list of parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be NAME=VALUE pairs, separated by ; or ,")]
pub struct ParametersError;

impl<'a> Parameters<'a> {
    /// Reads a header. Empty parts are refused, because browsers do not expect them, and a sender
    /// can learn of it here only.
    pub fn parse(header: &'a str) -> Result<Self, ParametersError> {
        let pairs = header.split([',', ';']).map(|part| {
            let (name, value) = part.split_once('=').ok_or(ParametersError)?;
            let name = name.trim_matches([' ', '\t']);
            if name.is_empty() {
                return Err(ParametersError);
            }
            Ok((name, value.trim_matches([' ', '\t', '"'])))
        });
        pairs.collect::<Result<_, _>>().map(Self)
    }

    /// The first parameter of this name in any section. Names are lower case, as browsers look for
    /// them.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(found, _)| *found == name).map(|(_, value)| *value)
    }
}

/// A header as browsers get it: without quotes, and without the padding of base64
/// and blanks behind it.
pub fn cleaned(header: &str) -> String {
    let header = header.replace('"', "");
    let mut out = String::with_capacity(header.len());
    for part in header.split_inclusive([',', ';']) {
        let (text, end) = match part.strip_suffix([',', ';']) {
            Some(text) => (text, &part[text.len()..]),
            None => (part, ""),
        };
        // The sign behind the name stays, even when there is no value behind it.
        let value = text.find('=').map_or(text.len(), |at| at + 1);
        out.push_str(&text[..value]);
        out.push_str(text[value..].trim_end_matches(['=', ' ', '\t']));
        out.push_str(end);
    }
    out
}

/// The headers about encryption, as they came.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given<'a> {
    /// `Content-Encoding`.
    pub content_encoding: Option<&'a str>,
    /// `Encryption`.
    pub encryption: Option<&'a str>,
    /// `Crypto-Key`.
    pub crypto_key: Option<&'a str>,
    /// `Encryption-Key`.
    pub encryption_key: Option<&'a str>,
}

/// Checks the headers of a message with a body, and makes of them what the browser gets.
///
/// Whether a browser can decrypt it nobody here can know; but what it certainly could not decrypt is
/// refused, so that the sender learns of it. As with other services, `Crypto-Key` may be missing.
pub fn encryption(given: Given<'_>) -> Result<PushHeaders, HeaderRefusal> {
    let encoding = given.content_encoding.and_then(|text| text.parse().ok());
    let encoding: PushEncoding = encoding.ok_or(HeaderRefusal::Encoding)?;
    for (header, text) in [("Encryption", given.encryption), ("Crypto-Key", given.crypto_key)] {
        if text.is_some_and(|text| text.len() > ENCRYPTION_BYTES_MAX) {
            return Err(HeaderRefusal::TooLong { header });
        }
    }
    let encryption = given.encryption.map(cleaned);
    let crypto_key = given.crypto_key.map(cleaned);
    match encoding {
        PushEncoding::Aes128Gcm => {
            without("Encryption", encryption.as_deref(), "salt")?;
            without("Crypto-Key", crypto_key.as_deref(), "dh")?;
        }
        PushEncoding::AesGcm => {
            with("Encryption", encryption.as_deref().unwrap_or_default(), "salt")?;
            if given.encryption_key.is_some() {
                return Err(HeaderRefusal::EncryptionKey);
            }
            if let Some(header) = &crypto_key {
                with("Crypto-Key", header, "dh")?;
            }
        }
    }
    Ok(PushHeaders {
        encoding,
        encryption: encryption.map(Into::into),
        crypto_key: crypto_key.map(Into::into),
    })
}

fn with(header: &'static str, text: &str, name: &'static str) -> Result<(), HeaderRefusal> {
    let absent = HeaderRefusal::Absent { header, name };
    if text.is_empty() {
        return Err(absent);
    }
    let parameters = Parameters::parse(text).map_err(|_| HeaderRefusal::Syntax { header })?;
    let proper = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    match parameters.get(name) {
        Some(value) if !value.is_empty() && value.chars().all(proper) => Ok(()),
        _ => Err(absent),
    }
}

fn without(
    header: &'static str,
    text: Option<&str>,
    name: &'static str,
) -> Result<(), HeaderRefusal> {
    let Some(text) = text else { return Ok(()) };
    let parameters = Parameters::parse(text).map_err(|_| HeaderRefusal::Syntax { header })?;
    match parameters.get(name) {
        Some(_) => Err(HeaderRefusal::Unwanted { header, name }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_ttl(header: Option<&str>, expected: Result<u32, HeaderRefusal>) {
        let found = ttl(header).and_then(|ttl| ttl.within(2_592_000));
        assert_eq!(found, expected, "{header:?}");
    }

    #[test]
    fn a_ttl_is_a_number_of_seconds_and_cut_down() {
        check_ttl(Some("0"), Ok(0));
        check_ttl(Some("60"), Ok(60));
        check_ttl(Some(" 060 "), Ok(60));
        check_ttl(Some("+5"), Ok(5));
        check_ttl(Some("-0"), Ok(0));
        check_ttl(Some("2592000"), Ok(2_592_000));
        check_ttl(Some("2592001"), Ok(2_592_000));
        check_ttl(Some("4294967296"), Ok(2_592_000));
        check_ttl(Some("99999999999999999999999"), Ok(2_592_000));
        check_ttl(Some("-1"), Err(HeaderRefusal::NegativeTtl));
        check_ttl(Some("-99999999999999999999999"), Err(HeaderRefusal::NegativeTtl));
        for bad in ["", " ", "-", "+", "--1", "+-1", "1.0", "1e3", "60s", "0x10", "6 0", "٣", "5,5"]
        {
            check_ttl(Some(bad), Err(HeaderRefusal::NoTtl));
        }
        check_ttl(None, Err(HeaderRefusal::NoTtl));
        assert_eq!([HeaderRefusal::NoTtl.errno(), HeaderRefusal::NegativeTtl.errno()], [111, 114]);
    }

    #[test]
    fn a_topic_keeps_to_its_alphabet() {
        assert_eq!(topic(None), Ok(None));
        let longest = "a-test-topic-which-is-just-right";
        for good in ["a", "A_-9", "a==", longest] {
            let found = topic(Some(good)).expect(good).expect("a topic");
            assert_eq!(found.as_str(), good);
        }
        for bad in ["", "=", "a b", "a+b", "ü", "a=b", " a", &format!("{longest}x")] {
            assert_eq!(topic(Some(bad)), Err(HeaderRefusal::Topic), "{bad}");
        }
        assert_eq!(HeaderRefusal::Topic.errno(), 113);
    }

    #[test]
    fn parameters_are_found_in_any_section() {
        let header = "keyid=\"p256dh\"; dh=abc== ,\tp256ecdsa = def ;dh=second";
        let found = Parameters::parse(header).expect("parameters");
        assert_eq!(found.get("keyid"), Some("p256dh"));
        assert_eq!(found.get("dh"), Some("abc=="));
        assert_eq!(found.get("p256ecdsa"), Some("def"));
        assert_eq!(found.get("DH"), None);
        assert_eq!(Parameters::parse("a=").expect("empty").get("a"), Some(""));
        for bad in ["", "a", "a=b;", "a=b,", ",a=b", "a=b;;c=d", "=b", " =b", "a=b c;d"] {
            assert_eq!(Parameters::parse(bad), Err(ParametersError), "{bad}");
        }
    }

    #[test]
    fn browsers_get_headers_without_quotes_and_padding() {
        for (header, expected) in [
            ("salt=foo", "salt=foo"),
            ("salt=\"foo==\"", "salt=foo"),
            ("keyid=\"p256dh\";dh=\"deadbeef==\"", "keyid=p256dh;dh=deadbeef"),
            ("dh=abc=, p256ecdsa=def==;x=y", "dh=abc, p256ecdsa=def;x=y"),
            ("dh=abc= ;x=y= ", "dh=abc;x=y"),
            ("x=a= =; y = b", "x=a; y = b"),
            ("x=a=b=", "x=a=b"),
            ("x=;y==,z", "x=;y=,z"),
            ("", ""),
            ("\"", ""),
        ] {
            assert_eq!(cleaned(header), expected, "{header}");
            assert_eq!(cleaned(expected), expected, "cleaning twice");
        }
    }

    #[track_caller]
    fn check(
        [coding, encryption_header, crypto_key]: [Option<&str>; 3],
        expected: Result<[Option<&str>; 2], HeaderRefusal>,
    ) {
        let given = Given {
            content_encoding: coding,
            encryption: encryption_header,
            crypto_key,
            encryption_key: None,
        };
        let found = encryption(given);
        if let Err(refusal) = found {
            assert_eq!(refusal.errno(), 110);
        }
        let found = found.as_ref().map(|headers| {
            assert_eq!(Some(headers.encoding.as_str()), coding);
            [headers.encryption.as_deref(), headers.crypto_key.as_deref()]
        });
        assert_eq!(found, expected.as_ref().copied(), "{given:?}");
    }

    #[test]
    fn aesgcm_needs_a_salt_and_a_key_that_is_one() {
        let coding = Some("aesgcm");
        let salt = Some("salt=\"Zm9v==\"");
        check([coding, salt, Some("dh=YmFy=")], Ok([Some("salt=Zm9v"), Some("dh=YmFy")]));
        check([coding, salt, None], Ok([Some("salt=Zm9v"), None]));
        let both = Some("keyid=p256dh;dh=YmFy,p256ecdsa=BA=");
        let sent = Some("keyid=p256dh;dh=YmFy,p256ecdsa=BA");
        check(
            [coding, Some("keyid=p256dh; salt=a; rs=4096"), both],
            Ok([Some("keyid=p256dh; salt=a; rs=4096"), sent]),
        );
        let no_salt = HeaderRefusal::Absent { header: "Encryption", name: "salt" };
        for bad in
            [None, Some(""), Some("keyid=a"), Some("salt="), Some("salt=a+b"), Some("Salt=a")]
        {
            check([coding, bad, Some("dh=a")], Err(no_salt));
        }
        check([coding, Some("salt=a;"), None], Err(HeaderRefusal::Syntax { header: "Encryption" }));
        let no_key = HeaderRefusal::Absent { header: "Crypto-Key", name: "dh" };
        for bad in ["", "p256ecdsa=a", "dh=", "dh=a/b", "dh=a b"] {
            check([coding, salt, Some(bad)], Err(no_key));
        }
        check([coding, salt, Some("dh")], Err(HeaderRefusal::Syntax { header: "Crypto-Key" }));
        let old = Given {
            content_encoding: coding,
            encryption: salt,
            encryption_key: Some("dh=a"),
            ..Given::default()
        };
        assert_eq!(encryption(old), Err(HeaderRefusal::EncryptionKey));
        assert_eq!(HeaderRefusal::EncryptionKey.errno(), 110);
    }

    #[test]
    fn aes128gcm_says_everything_in_its_body() {
        let coding = Some("aes128gcm");
        check([coding, None, None], Ok([None, None]));
        check(
            [coding, Some("rs=4096"), Some("p256ecdsa=BA=")],
            Ok([Some("rs=4096"), Some("p256ecdsa=BA")]),
        );
        let salt = HeaderRefusal::Unwanted { header: "Encryption", name: "salt" };
        check([coding, Some("salt=a"), None], Err(salt));
        let dh = HeaderRefusal::Unwanted { header: "Crypto-Key", name: "dh" };
        check([coding, None, Some("p256ecdsa=a, dh=b")], Err(dh));
        check([coding, None, Some("dh=")], Err(dh));
        check(
            [coding, Some("nonsense"), None],
            Err(HeaderRefusal::Syntax { header: "Encryption" }),
        );
        check([coding, None, Some("")], Err(HeaderRefusal::Syntax { header: "Crypto-Key" }));
    }

    #[test]
    fn long_headers_are_refused() {
        let padded =
            |text: &str, length: usize| format!("{text}{}", "a".repeat(length - text.len()));
        for (coding, salt, key) in [("aesgcm", "salt=", "dh="), ("aes128gcm", "rs=", "p256ecdsa=")]
        {
            let [salt_fits, key_fits] = [salt, key].map(|text| padded(text, ENCRYPTION_BYTES_MAX));
            let [salt_long, key_long] = [&salt_fits, &key_fits].map(|text| format!("{text}a"));
            let coding = Some(coding);
            let [salt, key] = [Some(&*salt_fits), Some(&*key_fits)];
            check([coding, salt, key], Ok([salt, key]));
            let refused = |header| Err(HeaderRefusal::TooLong { header });
            check([coding, Some(&salt_long), key], refused("Encryption"));
            check([coding, salt, Some(&key_long)], refused("Crypto-Key"));
        }
    }

    #[test]
    fn other_encodings_are_refused() {
        for bad in [None, Some(""), Some("aesgcm128"), Some("gzip"), Some("AES128GCM")] {
            let given = Given { content_encoding: bad, ..Given::default() };
            assert_eq!(encryption(given), Err(HeaderRefusal::Encoding), "{bad:?}");
        }
        assert_eq!(HeaderRefusal::Encoding.errno(), 110);
    }
}
