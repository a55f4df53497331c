//! Signatures, one-time codes, tokens, key hashes, and secrets at rest.
//!
//! Everything is a pure function of keys, bytes and a `now` in Unix seconds that the caller passes
//! in; the only outside thing used is the system's randomness, for fresh keys and nonces. All
//! cryptography comes from aws-lc-rs, and comparisons with secrets take constant time.
//!
//! What it must not know: storage, HTTP, clocks, and which delivery a signature is for.
//!
//! Start reading at [`standard_webhooks`] for what goes out, [`vault`] for what stays, and [`vapid`]
//! for what senders of push messages show.

pub mod api_key;
pub mod body_hmac;
pub mod encoding;
pub mod endpoint_token;
pub mod hash;
mod hkdf;
pub mod id_token;
pub mod jwk;
pub mod jwt;
pub mod login;
pub mod node_key;
pub mod otp;
pub mod p256;
pub mod proxy_identity;
pub mod push_headers;
pub mod session_token;
pub mod standard_webhooks;
pub mod vapid;
pub mod vault;
pub mod web_push;

/// Bytes nobody can guess.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).expect("the operating system provides randomness");
    bytes
}
