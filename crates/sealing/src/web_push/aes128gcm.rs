//! The content coding `aes128gcm` (RFC 8188): a header, then records of equal size.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use zeroize::Zeroizing;

use super::DecryptError;
use crate::hkdf::derive;

pub(super) const SALT_BYTES: usize = 16;
pub(super) const TAG_BYTES: usize = 16;
/// Salt, record size, and how long the id of the key is.
const FIXED_HEADER_BYTES: usize = SALT_BYTES + 4 + 1;
/// The tag, the delimiter, and one byte of content.
const RECORD_BYTES_MIN: usize = TAG_BYTES + 2;
const DELIMITER: u8 = 1;
const LAST_DELIMITER: u8 = 2;

/// One key, and a nonce for each record.
pub(super) struct Cipher {
    key: LessSafeKey,
    nonce: Zeroizing<[u8; NONCE_LEN]>,
}

impl Cipher {
    pub(super) fn new(key: &[u8; 16], nonce: Zeroizing<[u8; NONCE_LEN]>) -> Self {
        let key = UnboundKey::new(&AES_128_GCM, key)
            .expect("the key has exactly the length the algorithm asks for");
        Self { key: LessSafeKey::new(key), nonce }
    }

    fn nonce(&self, record: u64) -> Nonce {
        let mut nonce = *self.nonce;
        for (byte, number) in nonce[NONCE_LEN - 8..].iter_mut().zip(record.to_be_bytes()) {
            *byte ^= number;
        }
        Nonce::assume_unique_for_key(nonce)
    }

    pub(super) fn seal(&self, record: u64, content: &mut Vec<u8>) {
        self.key
            .seal_in_place_append_tag(self.nonce(record), Aad::empty(), content)
            .expect("sealing only fails for texts of many gigabytes");
    }

    pub(super) fn open(&self, record: u64, sealed: &[u8]) -> Result<Vec<u8>, DecryptError> {
        let mut bytes = sealed.to_vec();
        let length = self
            .key
            .open_in_place(self.nonce(record), Aad::empty(), &mut bytes)
            .map_err(|_| DecryptError::Altered)?
            .len();
        bytes.truncate(length);
        Ok(bytes)
    }
}

fn cipher(salt: &[u8; SALT_BYTES], secret: &[u8]) -> Cipher {
    let key = derive::<16>(salt, secret, &[b"Content-Encoding: aes128gcm\0"]);
    Cipher::new(&key, derive(salt, secret, &[b"Content-Encoding: nonce\0"]))
}

/// The whole in a single record, as browsers expect it. `padding` zeros hide how long it is.
pub(super) fn seal(
    secret: &[u8],
    salt: &[u8; SALT_BYTES],
    key_id: &[u8],
    plaintext: &[u8],
    padding: usize,
) -> Vec<u8> {
    let record = plaintext.len() + 1 + padding + TAG_BYTES;
    // The usual size, unless the record does not fit.
    let size = u32::try_from(record.max(4_096)).expect("a message is shorter than 4 gigabytes");
    let mut content = Vec::with_capacity(record);
    content.extend_from_slice(plaintext);
    content.push(LAST_DELIMITER);
    content.resize(plaintext.len() + 1 + padding, 0);
    cipher(salt, secret).seal(0, &mut content);
    let key_id_length = u8::try_from(key_id.len()).expect("the id of a key is short");
    [&salt[..], &size.to_be_bytes(), &[key_id_length], key_id, &content].concat()
}

/// A body, taken apart.
pub(super) struct Coded<'a> {
    pub(super) salt: &'a [u8; SALT_BYTES],
    pub(super) key_id: &'a [u8],
    record_bytes: usize,
    records: &'a [u8],
}

impl<'a> Coded<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, DecryptError> {
        let (header, rest) =
            body.split_first_chunk::<FIXED_HEADER_BYTES>().ok_or(DecryptError::Truncated)?;
        let (salt, sizes) = header.split_first_chunk().ok_or(DecryptError::Truncated)?;
        let [a, b, c, d, key_id_length] = *sizes else { return Err(DecryptError::Truncated) };
        let record_bytes = usize::try_from(u32::from_be_bytes([a, b, c, d]))
            .map_err(|_| DecryptError::RecordSize)?;
        if record_bytes < RECORD_BYTES_MIN {
            return Err(DecryptError::RecordSize);
        }
        let (key_id, records) =
            rest.split_at_checked(key_id_length.into()).ok_or(DecryptError::Truncated)?;
        Ok(Self { salt, key_id, record_bytes, records })
    }

    /// What is in the records. Each says whether it is the last, so that none can be cut off.
    pub(super) fn open(&self, secret: &[u8]) -> Result<Vec<u8>, DecryptError> {
        let cipher = cipher(self.salt, secret);
        let last = self.records.len().div_ceil(self.record_bytes).checked_sub(1);
        let last = last.ok_or(DecryptError::Truncated)?;
        let mut plaintext = Vec::with_capacity(self.records.len());
        for (nth, sealed) in self.records.chunks(self.record_bytes).enumerate() {
            let content = cipher.open(nth as u64, sealed)?;
            let delimiter = content.iter().rposition(|byte| *byte != 0);
            let delimiter = delimiter.ok_or(DecryptError::Padding)?;
            let expected = if nth == last { LAST_DELIMITER } else { DELIMITER };
            if content[delimiter] != expected {
                return Err(DecryptError::Padding);
            }
            plaintext.extend_from_slice(&content[..delimiter]);
        }
        Ok(plaintext)
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    fn bytes(text: &str) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(text).expect("base64url")
    }

    #[test]
    fn the_example_of_rfc_8188_with_one_record() {
        // Section 3.1.
        let secret = bytes("yqdlZ-tYemfogSmv7Ws5PQ");
        let body = bytes("I1BsxtFttlv3u_Oo94xnmwAAEAAA-NAVub2qFgBEuQKRapoZu-IxkIva3MEB1PD-ly8Thjg");
        let coded = Coded::read(&body).expect("reads");
        assert_eq!(coded.key_id, b"");
        assert_eq!(coded.open(&secret).expect("opens"), b"I am the walrus");
        assert_eq!(seal(&secret, coded.salt, b"", b"I am the walrus", 0), body);
    }

    const TWO_RECORDS: &str = "uNCkWiNYzKTnBN9ji3-qWAAAABkCYTHOG8chz_gnvgOqdGYovxyjuqRyJFjEDyoF1Fvkj6hQPdPHI51OEUKEpgz3Ss\
         LWIqS_uA";

    #[test]
    fn the_example_of_rfc_8188_with_two_records_and_padding() {
        // Section 3.2.
        let secret = bytes("BO3ZVPxUlnLORbVGMpbT1Q");
        let body = bytes(TWO_RECORDS);
        let coded = Coded::read(&body).expect("reads");
        assert_eq!((coded.key_id, coded.record_bytes), (&b"a1"[..], 25));
        assert_eq!(coded.open(&secret).expect("opens"), b"I am the walrus");
    }

    #[test]
    fn records_cannot_be_cut_off_repeated_or_exchanged() {
        let secret = bytes("BO3ZVPxUlnLORbVGMpbT1Q");
        let body = bytes(TWO_RECORDS);
        let (header, records) = body.split_at(FIXED_HEADER_BYTES + 2);
        let (first, second) = records.split_at(25);
        let open = |parts: &[&[u8]]| {
            let body = parts.concat();
            Coded::read(&body).and_then(|coded| coded.open(&secret))
        };
        assert!(open(&[header, first, second]).is_ok());
        assert_eq!(open(&[header, first]), Err(DecryptError::Padding));
        assert_eq!(open(&[header]), Err(DecryptError::Truncated));
        assert_eq!(open(&[header, second]), Err(DecryptError::Altered));
        assert_eq!(open(&[header, second, first]), Err(DecryptError::Altered));
        assert_eq!(open(&[header, first, first, second]), Err(DecryptError::Altered));
        assert_eq!(open(&[header, first, &second[1..]]), Err(DecryptError::Altered));
        for length in 0..header.len() {
            assert_eq!(open(&[&header[..length]]), Err(DecryptError::Truncated));
        }
        for at in header.len()..body.len() {
            let mut changed = body.clone();
            changed[at] ^= 1;
            assert_eq!(open(&[&changed]), Err(DecryptError::Altered), "{at}");
        }
    }

    #[test]
    fn sizes_and_padding_that_make_no_sense_are_refused() {
        let header = |size: u32| [&[0; 16][..], &size.to_be_bytes(), &[0]].concat();
        for size in [0, 1, 16, 17] {
            let body = [header(size), vec![0; 40]].concat();
            assert_eq!(Coded::read(&body).err(), Some(DecryptError::RecordSize), "{size}");
        }
        let body = [header(u32::MAX), vec![0; 40]].concat();
        let open = |body: &[u8]| Coded::read(body).and_then(|coded| coded.open(b"secret"));
        assert_eq!(open(&body), Err(DecryptError::Altered));
        for content in [&b""[..], &[0, 0, 0], b"x", b"text\x01\0", b"text\x03"] {
            let mut sealed = content.to_vec();
            cipher(&[0; 16], b"secret").seal(0, &mut sealed);
            let body = [header(4_096), sealed].concat();
            assert_eq!(open(&body), Err(DecryptError::Padding), "{content:?}");
        }
        // Nothing at all is a message, too.
        assert_eq!(open(&seal(b"secret", &[0; 16], b"", b"", 0)), Ok(vec![]));
        assert_eq!(open(&seal(b"secret", &[0; 16], b"", b"a\0\x02", 5)), Ok(b"a\0\x02".to_vec()));
        let long = vec![7; 10_000];
        assert_eq!(open(&seal(b"secret", &[0; 16], b"", &long, 3)).as_ref(), Ok(&long));
    }
}
