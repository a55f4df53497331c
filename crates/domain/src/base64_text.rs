//! Bytes as base64 text: how documents of the catalog carry what is sealed.

use base64::Engine as _;
use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub(crate) fn serialize<S: Serializer>(
    bytes: &impl AsRef<[u8]>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&Base64Display::new(bytes.as_ref(), &STANDARD))
}

pub(crate) fn deserialize<'de, T: TryFrom<Vec<u8>>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
    let bytes = STANDARD.decode(&*text).map_err(de::Error::custom)?;
    T::try_from(bytes).map_err(|_| de::Error::custom("has the wrong number of bytes"))
}

/// The same for what may be absent.
pub(crate) mod maybe {
    use bytes::Bytes;

    use super::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    struct Text(#[serde(with = "super")] Bytes);

    pub(crate) fn serialize<S: Serializer>(
        bytes: &Option<Bytes>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        bytes.clone().map(Text).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Bytes>, D::Error> {
        Ok(Option::<Text>::deserialize(deserializer)?.map(|Text(bytes)| bytes))
    }
}
