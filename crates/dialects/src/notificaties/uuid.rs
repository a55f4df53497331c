//! UUIDs as this API has them in its URLs.

use std::fmt;
use std::str::FromStr;

use posthorn_domain::TenantId;
use posthorn_sealing::hash::fingerprint;
use uuid::Builder;

/// A UUID of version 4, or at least one that looks like it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Uuid(uuid::Uuid);

impl Uuid {
    /// A fresh one, from 128 random bits.
    pub(crate) fn random(dice: impl Fn() -> u64) -> Self {
        let bits = (u128::from(dice()) << 64) | u128::from(dice());
        Self(Builder::from_random_bytes(bits.to_be_bytes()).into_uuid())
    }

    /// The one of a name: every node of every installation finds the same, and nothing has to be
    /// written down.
    pub(crate) fn of_name(tenant: TenantId, name: &str) -> Self {
        let hash = fingerprint(&[b"notificaties kanaal", tenant.as_bytes(), name.as_bytes()]);
        let bytes = std::array::from_fn(|index| hash[index]);
        Self(Builder::from_random_bytes(bytes).into_uuid())
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0.as_hyphenated(), f)
    }
}

/// Not a UUID.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotUuid;

impl FromStr for Uuid {
    type Err = NotUuid;

    /// With hyphens at their places, in either case; whichever version it is.
    fn from_str(text: &str) -> Result<Self, NotUuid> {
        if text.len() != uuid::fmt::Hyphenated::LENGTH {
            return Err(NotUuid);
        }
        uuid::Uuid::try_parse(text).map(Self).map_err(|_| NotUuid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_come_back_and_look_like_version_4() {
        for dice in [0, u64::MAX, 0x0123_4567_89ab_cdef] {
            let uuid = Uuid::random(|| dice);
            let text = uuid.to_string();
            assert_eq!(text.parse(), Ok(uuid));
            assert_eq!(text.to_uppercase().parse(), Ok(uuid));
            assert_eq!(&text[14..15], "4");
            assert!("89ab".contains(&text[19..20]), "{text}");
        }
        for bad in
            ["", "x", "0123456789abcdef0123456789abcdef", "0123456g-89ab-4def-8123-456789abcdef"]
        {
            assert_eq!(bad.parse::<Uuid>(), Err(NotUuid), "{bad}");
        }
        assert!("01234567-89ab-4def-8123-4567-9abcdef".parse::<Uuid>().is_err());
    }

    #[test]
    fn a_name_has_one_uuid_in_each_tenant() {
        let other = TenantId::from_bytes([7; 16]);
        let of = |tenant, name| Uuid::of_name(tenant, name);
        assert_eq!(of(TenantId::DEFAULT, "zaken"), of(TenantId::DEFAULT, "zaken"));
        assert_ne!(of(TenantId::DEFAULT, "zaken"), of(other, "zaken"));
        assert_ne!(of(TenantId::DEFAULT, "zaken"), of(TenantId::DEFAULT, "Zaken"));
    }
}
