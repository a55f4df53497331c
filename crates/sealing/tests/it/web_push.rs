//! Push messages and their senders: what we make, others read; what others make, we read.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use posthorn_domain::PushEncoding;
use posthorn_sealing::push_headers::{self, Given};
use posthorn_sealing::vapid::{self, Form, SenderKey, VapidRefusal};
use posthorn_sealing::web_push::{OldMessage, ReceiverKeys};
use posthorn_testkit::dice::Dice;
use serde_json::{Value, json};

use crate::interpreter::Language;
use crate::other_languages::{now, text};

const CASES: usize = 120;
const ORIGIN: &str = "https://push.example.org:8443";
const SUBJECT: &str = "mailto:admin@example.org";

fn unpack(answer: &Value, name: &str) -> Vec<u8> {
    STANDARD.decode(text(answer, name)).unwrap()
}

/// A text of ours, in the alphabet of the questions.
fn standard(url_safe: &str) -> String {
    STANDARD.encode(URL_SAFE_NO_PAD.decode(url_safe).unwrap())
}

fn exposed(secret: &posthorn_sealing::vault::Secret) -> &str {
    secret.expose_str().unwrap()
}

#[test]
fn what_pywebpush_sends_is_believed_and_read() {
    // This library leaves the form of the header to whoever makes the key.
    messages_are_believed_and_read(Language::Python, |nth, _| {
        if nth % 3 == 0 { Form::Draft01 } else { Form::Rfc8292 }
    });
}

#[test]
fn what_web_push_for_javascript_sends_is_believed_and_read() {
    messages_are_believed_and_read(Language::JavaScript, |_, encoding| match encoding {
        PushEncoding::Aes128Gcm => Form::Rfc8292,
        PushEncoding::AesGcm => Form::Draft01,
    });
}

fn messages_are_believed_and_read(language: Language, form: fn(usize, PushEncoding) -> Form) {
    let (mut dice, now) = (Dice(11), now());
    let cases: Vec<_> = (0..CASES)
        .map(|nth| {
            // Past the size of a record as well, where the library writes several.
            let length =
                [1, 17, 100, 3_993, 4_078, 4_079, 4_080, 4_093, 4_094, 4_095, 9_000][nth % 11];
            let encoding =
                if nth % 2 == 0 { PushEncoding::Aes128Gcm } else { PushEncoding::AesGcm };
            let keys = (SenderKey::generate(), ReceiverKeys::generate());
            (encoding, form(nth, encoding), keys, dice.bytes(length))
        })
        .collect();
    let questions: Vec<_> = cases
        .iter()
        .enumerate()
        .map(|(nth, (encoding, form, (sender, receiver), body))| {
            json!({"ask": "push", "endpoint": format!("{ORIGIN}/wpush/v2/token"),
                "p256dh": receiver.receiver().key().to_text(),
                "auth": exposed(&receiver.receiver().auth_text()),
                "sender": exposed(&sender.to_text()), "subject": SUBJECT, "ttl": nth,
                "sender_public": sender.public_key().to_text(), "topic": format!("topic-{nth}"),
                "form": if *form == Form::Draft01 { "draft01" } else { "rfc8292" },
                "encoding": encoding.as_str(), "text": STANDARD.encode(body)})
        })
        .collect();
    let answers = language.ask(&questions);
    for (nth, ((encoding, form, (sender, keys), plain), answer)) in
        cases.iter().zip(&answers).enumerate()
    {
        let header = |name: &str| answer["headers"][name].as_str();
        let authorization = header("authorization").unwrap();
        let crypto_key = header("crypto-key");
        let found = vapid::verify(authorization, crypto_key, ORIGIN, now).unwrap();
        assert_eq!((found.form, &found.key), (*form, sender.public_key()));
        assert_eq!(found.subject.as_deref(), Some(SUBJECT));
        let elsewhere = vapid::verify(authorization, crypto_key, "https://push.example.org", now);
        assert_eq!(elsewhere, Err(VapidRefusal::Audience));
        if *form == Form::Draft01 {
            let alone = vapid::verify(authorization, None, ORIGIN, now);
            assert_eq!(alone, Err(VapidRefusal::NoCryptoKey));
        }
        let given = Given {
            content_encoding: header("content-encoding"),
            encryption: header("encryption"),
            crypto_key,
            encryption_key: None,
        };
        let headers = push_headers::encryption(given).unwrap();
        assert_eq!(headers.encoding, *encoding);
        assert_eq!(keys.decrypt(&headers, &unpack(answer, "body")).as_ref(), Ok(plain));
        let ttl = push_headers::ttl(header("ttl")).unwrap();
        assert_eq!(ttl.within(u32::MAX).map(|ttl| ttl as usize), Ok(nth));
        let topic = push_headers::topic(header("topic")).unwrap();
        assert_eq!(topic.unwrap().as_str(), format!("topic-{nth}"));
    }
}

#[test]
fn http_ece_reads_what_we_encrypt() {
    let mut dice = Dice(12);
    let cases: Vec<_> = (0..CASES)
        .map(|nth| {
            let (length, padding) = ([0, 1, 50, 3_993, 20_000][nth % 5], [0, 1, 333][nth % 3]);
            (nth % 2 == 0, ReceiverKeys::generate(), padding, dice.bytes(length))
        })
        .collect();
    let questions: Vec<_> = cases
        .iter()
        .map(|(new, keys, padding, plain)| {
            let mut question = json!({"ask": "ece_open",
                "private": standard(exposed(&keys.private_text())),
                "auth": standard(exposed(&keys.receiver().auth_text()))});
            if *new {
                question["encoding"] = "aes128gcm".into();
                let body = keys.receiver().encrypt(plain, usize::from(*padding));
                question["body"] = STANDARD.encode(body).into();
            } else {
                let OldMessage { encryption, crypto_key, body } =
                    keys.receiver().encrypt_aesgcm(plain, *padding);
                let (salt, size) = encryption.split_once(";rs=").unwrap_or((&encryption, "4096"));
                question["encoding"] = "aesgcm".into();
                question["body"] = STANDARD.encode(body).into();
                question["salt"] = standard(salt.strip_prefix("salt=").unwrap()).into();
                question["dh"] = standard(crypto_key.strip_prefix("dh=").unwrap()).into();
                question["rs"] = size.parse::<u32>().unwrap().into();
            }
            question
        })
        .collect();
    let answers = Language::Python.ask(&questions);
    for ((_, _, _, plain), answer) in cases.iter().zip(&answers) {
        assert_eq!(&unpack(answer, "text"), plain);
        assert_eq!(answer["accepted_changed"], false);
    }
}

#[test]
fn we_read_what_http_ece_encrypts_in_records_of_any_size() {
    let mut dice = Dice(13);
    let cases: Vec<_> = (0..CASES)
        .map(|nth| {
            let size = [19, 20, 40, 100, 4_096][nth % 5];
            let length = 1 + dice.below(200);
            (nth % 2 == 0, ReceiverKeys::generate(), size, dice.bytes(16), dice.bytes(length))
        })
        .collect();
    let questions: Vec<_> = cases
        .iter()
        .map(|(new, keys, size, salt, plain)| {
            json!({"ask": "ece_seal", "encoding": if *new { "aes128gcm" } else { "aesgcm" },
                "p256dh": STANDARD.encode(keys.receiver().key().as_bytes()),
                "auth": standard(exposed(&keys.receiver().auth_text())),
                "salt": STANDARD.encode(salt), "rs": size, "text": STANDARD.encode(plain)})
        })
        .collect();
    let answers = Language::Python.ask(&questions);
    for ((new, keys, size, salt, plain), answer) in cases.iter().zip(&answers) {
        let body = unpack(answer, "body");
        let opened = if *new {
            keys.decrypt_aes128gcm(&body)
        } else {
            let encryption = format!("salt={};rs={size}", URL_SAFE_NO_PAD.encode(salt));
            keys.decrypt_aesgcm(&encryption, &format!("dh={}", text(answer, "dh")), &body)
        };
        assert_eq!(opened.as_ref(), Ok(plain), "records of {size} bytes");
    }
}

#[test]
fn senders_we_make_are_believed_by_other_libraries() {
    let now = now();
    let cases: Vec<_> = (0..CASES).map(|nth| (nth % 2 == 0, SenderKey::generate())).collect();
    let questions: Vec<_> = cases
        .iter()
        .map(|(draft, sender)| {
            let key = sender.public_key();
            let (authorization, token) = if *draft {
                let token = sender.token(ORIGIN, now + 3_600, Some(SUBJECT));
                (format!("WebPush {token}"), token)
            } else {
                let header = sender.authorization(ORIGIN, now + 3_600, Some(SUBJECT));
                let token = header.strip_prefix("vapid t=").unwrap().split_once(",k=").unwrap().0;
                (header.clone(), token.to_owned())
            };
            json!({"ask": "vapid", "form": if *draft { "draft01" } else { "rfc8292" },
                "authorization": authorization, "token": token, "audience": ORIGIN,
                "key": STANDARD.encode(key.as_bytes()), "key_text": key.to_text()})
        })
        .collect();
    let answers = Language::Python.ask(&questions);
    for answer in &answers {
        assert_eq!(answer["accepted"], true);
        assert_eq!(answer["accepted_other"], false);
        let claims = json!({"aud": ORIGIN, "exp": now + 3_600, "sub": SUBJECT});
        assert_eq!(answer["claims"], claims);
        assert_eq!(answer["header"], json!({"typ": "JWT", "alg": "ES256"}));
    }
}
