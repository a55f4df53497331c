//! A second opinion on signatures: Standard Webhooks `v1`, from the specification's text.
//!
//! HMAC is written out here (RFC 2104) on a plain SHA-256, so that the receiver's verdict shares
//! nothing with the library the server signs with.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

/// The block of SHA-256.
const BLOCK: usize = 64;

/// SHA-256 in hexadecimal.
pub fn sha256_hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut block = [0_u8; BLOCK];
    if key.len() > BLOCK {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let mut inner = Sha256::new_with_prefix(block.map(|byte| byte ^ 0x36));
    for part in parts {
        inner.update(part);
    }
    let mut outer = Sha256::new_with_prefix(block.map(|byte| byte ^ 0x5C));
    outer.update(inner.finalize());
    outer.finalize().into()
}

/// A secret made from some bytes, in the form subscribers write it.
pub fn secret_text(bytes: &[u8; 32]) -> String {
    format!("whsec_{}", STANDARD.encode(bytes))
}

/// Whether one of the signatures fits message and secret.
pub fn fits(secret: &[u8], id: &str, timestamp: &str, body: &[u8], signatures: &str) -> bool {
    let wanted = hmac(secret, &[id.as_bytes(), b".", timestamp.as_bytes(), b".", body]);
    let wanted = STANDARD.encode(wanted);
    signatures.split(' ').any(|one| one.strip_prefix("v1,") == Some(wanted.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hmac_gives_the_answers_of_rfc_4231() {
        let hex = |bytes: [u8; 32]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(
            hex(hmac(b"Jefe", &[b"what do ya want ", b"for nothing?"])),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        let long = [0xAA_u8; 131];
        assert_eq!(
            hex(hmac(&long, &[b"Test Using Larger Than Block-Size Key - Hash Key First"])),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    #[test]
    fn the_example_of_the_specification_fits_and_a_changed_one_does_not() {
        let secret = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("base64");
        let (id, time) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330");
        let signature = "v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert!(fits(&secret, id, time, br#"{"test": 2432232314}"#, signature));
        assert!(!fits(&secret, id, time, br#"{"test": 2432232315}"#, signature));
        assert!(!fits(&secret, id, "1614265331", br#"{"test": 2432232314}"#, signature));
    }
}
