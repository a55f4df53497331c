//! Keys out of other keys (RFC 5869), with SHA-256.

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use zeroize::Zeroizing;

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// `N` bytes for one purpose, named by the concatenation of `info`.
pub(crate) fn derive<const N: usize>(
    salt: &[u8],
    secret: &[u8],
    info: &[&[u8]],
) -> Zeroizing<[u8; N]> {
    const { assert!(N <= 255 * 32, "more than HKDF gives") };
    let mut out = Zeroizing::new([0; N]);
    Salt::new(HKDF_SHA256, salt)
        .extract(secret)
        .expand(info, Length(N))
        .and_then(|bytes| bytes.fill(&mut *out))
        .expect("the length is what was asked for, and HKDF can give it");
    out
}
