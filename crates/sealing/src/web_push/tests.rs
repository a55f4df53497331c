use super::*;

fn bytes(text: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text).expect("base64url")
}

#[test]
fn the_example_of_rfc_8291() {
    // Section 5 and appendix A.
    let keys = ReceiverKeys::parse(
        "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94",
        "BTBZMqHH6r4Tts7J_aSIgg",
    )
    .expect("keys");
    let receiver = Receiver::parse(
        "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
        "BTBZMqHH6r4Tts7J_aSIgg",
    )
    .expect("a receiver");
    assert_eq!(receiver.key(), keys.receiver().key());
    let body = bytes(
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmY\
         WAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexS\
         gSxsj_Qulcy4a-fN",
    );
    let text = b"When I grow up, I want to be a watermelon";
    assert_eq!(keys.decrypt_aes128gcm(&body).as_deref(), Ok(&text[..]));
    let sender = PrivateKey::from_scalar(&bytes("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"));
    let salt = bytes("DGv6ra1nlYgDCS1FRnbzlw").try_into().expect("16 bytes");
    assert_eq!(receiver.encrypt_as(&sender.expect("a key"), &salt, text, 0), body);
}

#[test]
fn what_was_encrypted_can_be_read_by_the_receiver_only() {
    let (keys, other) = (ReceiverKeys::generate(), ReceiverKeys::generate());
    for length in [0, 1, 100, PLAINTEXT_BYTES_MAX, 5_000, 70_000] {
        let text = vec![b'x'; length];
        for padding in [0, 1, 200] {
            let body = keys.receiver().encrypt(&text, padding);
            assert_eq!(body.len(), 86 + length + padding + 17);
            assert_eq!(keys.decrypt_aes128gcm(&body).as_ref(), Ok(&text));
            assert_eq!(other.decrypt_aes128gcm(&body), Err(DecryptError::Altered));
            let old = keys.receiver().encrypt_aesgcm(&text, padding as u16);
            let open = |keys: &ReceiverKeys| {
                keys.decrypt_aesgcm(&old.encryption, &old.crypto_key, &old.body)
            };
            assert_eq!(open(&keys).as_ref(), Ok(&text), "{length} {padding}");
            assert_eq!(open(&other), Err(DecryptError::Altered));
        }
    }
    assert_eq!(keys.receiver().encrypt(&[0; PLAINTEXT_BYTES_MAX], 0).len(), 4_096);
    // The key alone is not enough: the secret of the subscription counts, too.
    let auth = URL_SAFE_NO_PAD.encode([0; 16]);
    let half = ReceiverKeys::parse(keys.private_text().expose_str().expect("text"), &auth);
    let body = keys.receiver().encrypt(b"text", 0);
    assert_eq!(half.expect("keys").decrypt_aes128gcm(&body), Err(DecryptError::Altered));
}

#[test]
fn messages_are_read_as_their_headers_say() {
    let keys = ReceiverKeys::generate();
    let headers = |encoding, encryption: Option<&str>, crypto_key: Option<&str>| PushHeaders {
        encoding,
        encryption: encryption.map(Into::into),
        crypto_key: crypto_key.map(Into::into),
    };
    let body = keys.receiver().encrypt(b"new", 0);
    let new = headers(PushEncoding::Aes128Gcm, None, None);
    assert_eq!(keys.decrypt(&new, &body).as_deref(), Ok(&b"new"[..]));
    let OldMessage { encryption, crypto_key, body } = keys.receiver().encrypt_aesgcm(b"old", 7);
    let open = |encryption: Option<&str>, crypto_key: Option<&str>| {
        keys.decrypt(&headers(PushEncoding::AesGcm, encryption, crypto_key), &body)
    };
    let (salt, dh) = (Some(encryption.as_str()), Some(crypto_key.as_str()));
    assert_eq!(open(salt, dh).as_deref(), Ok(&b"old"[..]));
    let many = format!("keyid=p256dh; {crypto_key}==, p256ecdsa=abc");
    let named = format!("keyid=\"p256dh\"; {encryption}==;rs=4096");
    assert_eq!(open(Some(&named), Some(&many)).as_deref(), Ok(&b"old"[..]));
    for missing in [None, Some(""), Some("x=y"), Some("salt="), Some("salt=AAAA")] {
        assert_eq!(open(missing, dh), Err(DecryptError::Salt), "{missing:?}");
    }
    for missing in [None, Some(""), Some("x=y"), Some("dh="), Some("dh=AAAA")] {
        assert_eq!(open(salt, missing), Err(DecryptError::Key), "{missing:?}");
    }
    for (size, expected) in [
        ("0", DecryptError::RecordSize),
        ("2", DecryptError::RecordSize),
        ("x", DecryptError::RecordSize),
        ("-1", DecryptError::RecordSize),
        ("99999999999999999999999", DecryptError::RecordSize),
        ("18446744073709551615", DecryptError::Altered),
        ("3", DecryptError::Altered),
        // Exactly full, so that something must follow.
        ("12", DecryptError::Truncated),
    ] {
        let found = open(Some(&format!("{encryption};rs={size}")), dh);
        let expected = if size.len() == 20 { Ok(b"old".to_vec()) } else { Err(expected) };
        assert_eq!(found, expected, "{size}");
    }
}

#[test]
fn changed_messages_are_refused() {
    let keys = ReceiverKeys::generate();
    let body = keys.receiver().encrypt(b"text", 3);
    for at in 0..body.len() {
        let mut changed = body.clone();
        changed[at] ^= 1;
        let error = keys.decrypt_aes128gcm(&changed).err();
        match at {
            // The size of records counts only when there are several.
            16..20 => assert!(error.is_none() || error == Some(DecryptError::RecordSize)),
            20..86 => assert_eq!(error, Some(DecryptError::Key), "{at}"),
            _ => assert_eq!(error, Some(DecryptError::Altered), "{at}"),
        }
        assert!(keys.decrypt_aes128gcm(&body[..at]).is_err());
    }
    assert_eq!(keys.decrypt_aes128gcm(b""), Err(DecryptError::Truncated));
}

#[test]
fn keys_are_read_in_every_spelling_and_keep_quiet() {
    let keys = ReceiverKeys::generate();
    let (private, auth) = (keys.private_text(), keys.receiver().auth_text());
    let (private, auth) =
        (private.expose_str().expect("text"), auth.expose_str().expect("text").to_owned());
    let again = ReceiverKeys::parse(private, &format!("{auth}==")).expect("keys");
    assert_eq!(again.receiver().key(), keys.receiver().key());
    let key = keys.receiver().key().to_text();
    let standard = auth.replace('-', "+").replace('_', "/");
    assert!(Receiver::parse(&format!("{key}="), &standard).is_ok());
    for bad in ["", "AAAA", &auth[1..], &format!("{auth}AA"), &"A".repeat(1_000)] {
        assert_eq!(Receiver::parse(&key, bad).err(), Some(ReceiverError::Auth), "{bad}");
        assert_eq!(Receiver::parse(bad, &auth).err(), Some(ReceiverError::Key), "{bad}");
        let found = ReceiverKeys::parse(bad, &auth).err();
        assert_eq!(found, Some(ReceiverError::PrivateKey), "{bad}");
    }
    let shown = format!("{keys:?} {:?}", keys.receiver());
    assert!(!shown.contains(private) && !shown.contains(&auth));
}
