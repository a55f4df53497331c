//! Messages that only one browser can read (RFC 8291): encrypted by the sender for the two values
//! that a subscription has, `p256dh` and `auth`. Push services carry them without a look inside.
//!
//! A [`Receiver`] is what a sender knows of a browser; [`ReceiverKeys`] are the browser's own, for
//! programs that play its part. The coding of today is `aes128gcm`; that of old senders, `aesgcm`, is
//! there as well.

mod aes128gcm;
mod aesgcm;

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use posthorn_domain::{PushEncoding, PushHeaders};
use zeroize::Zeroizing;

use self::aes128gcm::{Coded, SALT_BYTES};
use crate::encoding::base64_any;
use crate::hkdf::derive;
use crate::p256::{PrivateKey, PublicKey};
use crate::push_headers::Parameters;
use crate::vault::Secret;

/// Bytes of a subscription's `auth`.
pub const AUTH_BYTES: usize = 16;
/// The longest text that every push service takes: its body has 4,096 bytes then. What is longer can
/// be encrypted, but a service may refuse it.
pub const PLAINTEXT_BYTES_MAX: usize = 3_993;
/// Longest text of an `auth` worth decoding.
const AUTH_TEXT_BYTES_MAX: usize = 64;

/// Why something is not the keys of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiverError {
    /// `p256dh` is not a key.
    #[error("p256dh must be the base64url of an uncompressed P-256 point of 65 bytes")]
    Key,
    /// `auth` is not a secret.
    #[error("auth must be the base64url of 16 bytes")]
    Auth,
    /// Not a private key.
    #[error("the private key must be the base64url of 32 bytes")]
    PrivateKey,
}

/// Why a message cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecryptError {
    /// It ends too early.
    #[error("the message is incomplete")]
    Truncated,
    /// Records of a size that cannot be.
    #[error("the record size of the message is not valid")]
    RecordSize,
    /// The sender's key is missing or none.
    #[error("the message has no public key of its sender")]
    Key,
    /// The salt is missing or none.
    #[error("the message has no salt of 16 bytes")]
    Salt,
    /// Not for these keys, or altered.
    #[error("the message was altered, or is for another receiver")]
    Altered,
    /// Opened, but not padded as it should be.
    #[error("the padding of the message is not valid")]
    Padding,
}

/// What a sender knows of a browser: enough to write to it, not to read.
#[derive(Clone)]
pub struct Receiver {
    key: PublicKey,
    auth: Zeroizing<[u8; AUTH_BYTES]>,
}

/// A message in the coding `aesgcm`: what belongs in the headers, and the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldMessage {
    /// The value of `Encryption`.
    pub encryption: String,
    /// The value of `Crypto-Key`. A sender's own key (`p256ecdsa`) may be added to it.
    pub crypto_key: String,
    /// The body.
    pub body: Vec<u8>,
}

impl Receiver {
    /// Reads `p256dh` and `auth` of a subscription, in any spelling of base64.
    pub fn parse(p256dh: &str, auth: &str) -> Result<Self, ReceiverError> {
        let key = PublicKey::parse(p256dh).map_err(|_| ReceiverError::Key)?;
        Ok(Self { key, auth: auth_secret(auth)? })
    }

    /// `p256dh`.
    pub const fn key(&self) -> &PublicKey {
        &self.key
    }

    /// `auth`, as subscriptions have it.
    pub fn auth_text(&self) -> Secret {
        Secret::from(URL_SAFE_NO_PAD.encode(*self.auth))
    }

    /// The body of a message, in the coding `aes128gcm`. `padding` more bytes hide how long the
    /// text is.
    pub fn encrypt(&self, plaintext: &[u8], padding: usize) -> Vec<u8> {
        self.encrypt_as(&PrivateKey::generate(), &crate::random(), plaintext, padding)
    }

    fn encrypt_as(
        &self,
        sender: &PrivateKey,
        salt: &[u8; SALT_BYTES],
        plaintext: &[u8],
        padding: usize,
    ) -> Vec<u8> {
        let secret = self.secret(&sender.agree(&self.key), sender.public());
        aes128gcm::seal(&*secret, salt, sender.public().as_bytes(), plaintext, padding)
    }

    /// What the keys of the coding are derived from: both sides' keys, and the subscription's secret.
    fn secret(&self, shared: &[u8; 32], sender: &PublicKey) -> Zeroizing<[u8; 32]> {
        let info: [&[u8]; 3] = [b"WebPush: info\0", self.key.as_bytes(), sender.as_bytes()];
        derive(&*self.auth, shared, &info)
    }

    /// A message in the coding of old senders.
    pub fn encrypt_aesgcm(&self, plaintext: &[u8], padding: u16) -> OldMessage {
        let (sender, salt) = (PrivateKey::generate(), crate::random());
        let shared = sender.agree(&self.key);
        let context = self.old_context(&shared, sender.public(), &salt);
        let body = context.seal(plaintext, padding);
        let mut encryption = format!("salt={}", URL_SAFE_NO_PAD.encode(salt));
        let content = aesgcm::PADDING_LENGTH_BYTES + usize::from(padding) + plaintext.len();
        if content >= aesgcm::RECORD_BYTES {
            encryption += &format!(";rs={}", content + 1);
        }
        OldMessage { encryption, crypto_key: format!("dh={}", sender.public().to_text()), body }
    }

    fn old_context<'a>(
        &'a self,
        shared: &'a [u8; 32],
        sender: &'a PublicKey,
        salt: &'a [u8; SALT_BYTES],
    ) -> aesgcm::Context<'a> {
        aesgcm::Context { shared, auth: &self.auth, salt, receiver: &self.key, sender }
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver({})", self.key.to_text())
    }
}

fn auth_secret(text: &str) -> Result<Zeroizing<[u8; AUTH_BYTES]>, ReceiverError> {
    if text.len() > AUTH_TEXT_BYTES_MAX {
        return Err(ReceiverError::Auth);
    }
    let bytes = Zeroizing::new(base64_any(text).ok_or(ReceiverError::Auth)?);
    bytes.as_slice().try_into().map(Zeroizing::new).map_err(|_| ReceiverError::Auth)
}

/// The keys of whoever plays the browser's part.
#[derive(Clone)]
pub struct ReceiverKeys {
    private: PrivateKey,
    receiver: Receiver,
}

impl ReceiverKeys {
    /// Fresh keys.
    pub fn generate() -> Self {
        Self::new(PrivateKey::generate(), Zeroizing::new(crate::random()))
    }

    /// Reads a private key, the bare number, and an `auth`.
    pub fn parse(private_key: &str, auth: &str) -> Result<Self, ReceiverError> {
        if private_key.len() > AUTH_TEXT_BYTES_MAX {
            return Err(ReceiverError::PrivateKey);
        }
        let bytes = Zeroizing::new(base64_any(private_key).ok_or(ReceiverError::PrivateKey)?);
        let private = PrivateKey::from_scalar(&bytes).ok_or(ReceiverError::PrivateKey)?;
        Ok(Self::new(private, auth_secret(auth)?))
    }

    fn new(private: PrivateKey, auth: Zeroizing<[u8; AUTH_BYTES]>) -> Self {
        let receiver = Receiver { key: *private.public(), auth };
        Self { private, receiver }
    }

    /// The text form of the private key.
    pub fn private_text(&self) -> Secret {
        Secret::from(URL_SAFE_NO_PAD.encode(self.private.expose()))
    }

    /// What senders get.
    pub const fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// The text of a message, in the coding that its headers name.
    pub fn decrypt(&self, headers: &PushHeaders, body: &[u8]) -> Result<Vec<u8>, DecryptError> {
        match headers.encoding {
            PushEncoding::Aes128Gcm => self.decrypt_aes128gcm(body),
            PushEncoding::AesGcm => {
                let encryption = headers.encryption.as_deref().ok_or(DecryptError::Salt)?;
                let crypto_key = headers.crypto_key.as_deref().ok_or(DecryptError::Key)?;
                self.decrypt_aesgcm(encryption, crypto_key, body)
            }
        }
    }

    /// The text of a message in the coding `aes128gcm`. Senders write one record; more are read too.
    pub fn decrypt_aes128gcm(&self, body: &[u8]) -> Result<Vec<u8>, DecryptError> {
        let coded = Coded::read(body)?;
        let sender = PublicKey::from_bytes(coded.key_id).map_err(|_| DecryptError::Key)?;
        coded.open(&*self.receiver.secret(&self.private.agree(&sender), &sender))
    }

    /// The text of a message in the coding `aesgcm`, with its two headers.
    pub fn decrypt_aesgcm(
        &self,
        encryption: &str,
        crypto_key: &str,
        body: &[u8],
    ) -> Result<Vec<u8>, DecryptError> {
        let encryption = Parameters::parse(encryption).map_err(|_| DecryptError::Salt)?;
        let crypto_key = Parameters::parse(crypto_key).map_err(|_| DecryptError::Key)?;
        let sender = crypto_key.get("dh").and_then(|text| PublicKey::parse(text).ok());
        let sender = sender.ok_or(DecryptError::Key)?;
        let salt = encryption.get("salt").and_then(base64_any).ok_or(DecryptError::Salt)?;
        let salt = salt.as_slice().try_into().map_err(|_| DecryptError::Salt)?;
        let record_bytes = match encryption.get("rs") {
            None => aesgcm::RECORD_BYTES,
            Some(text) => text.parse().map_err(|_| DecryptError::RecordSize)?,
        };
        let shared = self.private.agree(&sender);
        self.receiver.old_context(&shared, &sender, salt).open(body, record_bytes)
    }
}

impl fmt::Debug for ReceiverKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReceiverKeys({})", self.receiver.key.to_text())
    }
}

#[cfg(test)]
mod tests;
