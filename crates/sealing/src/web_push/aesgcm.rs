//! The content coding `aesgcm` of the drafts before RFC 8188 and RFC 8291 (draft-ietf-webpush-encryption-04):
//! salt and sender's key stand in the headers, padding stands before the text.
//!
//! Old senders still use it; nothing new should.

use crate::hkdf::derive;
use crate::p256::{PUBLIC_KEY_BYTES, PublicKey};

use super::aes128gcm::{Cipher, SALT_BYTES, TAG_BYTES};
use super::{AUTH_BYTES, DecryptError};

/// The size of records when the header does not say.
pub(super) const RECORD_BYTES: usize = 4_096;
/// Before each record's text: how many zeros follow.
pub(super) const PADDING_LENGTH_BYTES: usize = 2;

/// How long a key is, as it stands before each.
const KEY_LENGTH: [u8; 2] = (PUBLIC_KEY_BYTES as u16).to_be_bytes();

/// What both sides know.
pub(super) struct Context<'a> {
    pub(super) shared: &'a [u8; 32],
    pub(super) auth: &'a [u8; AUTH_BYTES],
    pub(super) salt: &'a [u8; SALT_BYTES],
    pub(super) receiver: &'a PublicKey,
    pub(super) sender: &'a PublicKey,
}

impl Context<'_> {
    fn cipher(&self) -> Cipher {
        let secret = derive::<32>(self.auth, self.shared, &[b"Content-Encoding: auth\0"]);
        let info = |name: &'static [u8]| -> [&[u8]; 6] {
            let (receiver, sender) = (self.receiver.as_bytes(), self.sender.as_bytes());
            [name, b"P-256\0", &KEY_LENGTH, receiver, &KEY_LENGTH, sender]
        };
        let key = derive::<16>(self.salt, &*secret, &info(b"Content-Encoding: aesgcm\0"));
        Cipher::new(&key, derive(self.salt, &*secret, &info(b"Content-Encoding: nonce\0")))
    }

    /// The whole in a single record.
    pub(super) fn seal(&self, plaintext: &[u8], padding: u16) -> Vec<u8> {
        let length = PADDING_LENGTH_BYTES + usize::from(padding);
        let mut content = Vec::with_capacity(length + plaintext.len() + TAG_BYTES);
        content.extend_from_slice(&padding.to_be_bytes());
        content.resize(length, 0);
        content.extend_from_slice(plaintext);
        self.cipher().seal(0, &mut content);
        content
    }

    /// What is in records of this size. A last record of full size means that more should follow.
    pub(super) fn open(&self, body: &[u8], record_bytes: usize) -> Result<Vec<u8>, DecryptError> {
        if record_bytes <= PADDING_LENGTH_BYTES {
            return Err(DecryptError::RecordSize);
        }
        let sealed_bytes = record_bytes.saturating_add(TAG_BYTES);
        if body.is_empty() || body.len().is_multiple_of(sealed_bytes) {
            return Err(DecryptError::Truncated);
        }
        let cipher = self.cipher();
        let mut plaintext = Vec::with_capacity(body.len());
        for (nth, sealed) in body.chunks(sealed_bytes).enumerate() {
            let content = cipher.open(nth as u64, sealed)?;
            let (padding, text) =
                content.split_first_chunk::<PADDING_LENGTH_BYTES>().ok_or(DecryptError::Padding)?;
            let padding = usize::from(u16::from_be_bytes(*padding));
            let (zeros, text) = text.split_at_checked(padding).ok_or(DecryptError::Padding)?;
            if zeros.iter().any(|byte| *byte != 0) {
                return Err(DecryptError::Padding);
            }
            plaintext.extend_from_slice(text);
        }
        Ok(plaintext)
    }
}
