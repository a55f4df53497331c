//! How a way of authentication is read: by its `kind`, and then as what that is.
//!
//! A derived reader would put everything aside before it knows the kind, and could no longer say
//! which field is at fault.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::{
    Auth, CertificateChoice, HmacHeader, Oauth2, Otp, SignatureHeaders, SignatureIds,
    ThumbprintHeader, ZgwJwt,
};
use crate::{SecretName, plain};

const TAG: &str = "kind";

#[derive(serde::Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    StandardWebhooks,
    HmacHeader,
    Bearer,
    Basic,
    SecretHeader,
    Otp,
    ZgwJwt,
    Oauth2,
    ClientCertificate,
    CertificateThumbprint,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct OfSecret {
    secret: SecretName,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct OfSigner {
    secret: SecretName,
    #[serde(default)]
    headers: SignatureHeaders,
    #[serde(default)]
    ids: SignatureIds,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct OfUser {
    user: String,
    secret: SecretName,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct OfHeader {
    header: String,
    secret: SecretName,
}

impl Kind {
    fn read<'de, D: Deserializer<'de>>(&self, rest: D) -> Result<Auth, D::Error> {
        Ok(match self {
            Self::StandardWebhooks => {
                let OfSigner { secret, headers, ids } = OfSigner::deserialize(rest)?;
                Auth::StandardWebhooks { secret, headers, ids }
            }
            Self::Bearer => {
                let OfSecret { secret } = OfSecret::deserialize(rest)?;
                Auth::Bearer { secret }
            }
            Self::Basic => {
                let OfUser { user, secret } = OfUser::deserialize(rest)?;
                Auth::Basic { user, secret }
            }
            Self::SecretHeader => {
                let OfHeader { header, secret } = OfHeader::deserialize(rest)?;
                Auth::SecretHeader { header, secret }
            }
            Self::HmacHeader => Auth::HmacHeader(HmacHeader::deserialize(rest)?),
            Self::Otp => Auth::Otp(Otp::deserialize(rest)?),
            Self::ZgwJwt => Auth::ZgwJwt(ZgwJwt::deserialize(rest)?),
            Self::Oauth2 => Auth::Oauth2(Oauth2::deserialize(rest)?),
            Self::ClientCertificate => {
                Auth::ClientCertificate(CertificateChoice::deserialize(rest)?)
            }
            Self::CertificateThumbprint => {
                Auth::CertificateThumbprint(ThumbprintHeader::deserialize(rest)?)
            }
        })
    }
}

impl<'de> Deserialize<'de> for Auth {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ByKind)
    }
}

struct ByKind;

impl<'de> Visitor<'de> for ByKind {
    type Value = Auth;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `kind`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Auth, A::Error> {
        let mut before = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            if name != TAG {
                put(&mut before, name, map.next_value()?)?;
                continue;
            }
            let kind: Kind = map.next_value()?;
            if before.is_empty() {
                return kind.read(MapAccessDeserializer::new(map));
            }
            while let Some((name, value)) = map.next_entry()? {
                put(&mut before, name, value)?;
            }
            return kind.read(plain::reader(&Value::Object(before))).map_err(A::Error::custom);
        }
        Err(A::Error::missing_field(TAG))
    }
}

fn put<E: Error>(fields: &mut Map<String, Value>, name: String, value: Value) -> Result<(), E> {
    if fields.contains_key(&name) {
        return Err(E::custom(format!("duplicate field `{name}`")));
    }
    fields.insert(name, value);
    Ok(())
}
