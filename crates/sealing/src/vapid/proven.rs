//! What was proven before and need not be proven again.
//!
//! A proof depends on nothing but token and key, so it holds for as long as anybody likes; whether the
//! token still counts, and here, is asked anew each time. Only what counted is remembered: who shows
//! forgeries, or tokens for somebody else or another time, pays for each of them and drives out nobody.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Form, Found, Vapid, VapidRefusal, find};
use crate::hash::fingerprint;

/// How many proofs are remembered if nobody says otherwise: of as many senders, or of fewer that make
/// new tokens often.
pub const PROVEN_MAX: usize = 10_000;
/// Longest texts of a token that is remembered. Others are proven each time, so that the number of
/// proofs bounds their size.
const TEXT_BYTES_MAX: usize = 512;

/// The name of a token under a key, as they were shown.
type Name = [u8; 32];

/// Senders that proved to have their key. Shared by all who look at posts.
///
/// Two generations: what is asked for stays in the younger one, or comes back to it; when that is
/// full it becomes the older, and what nobody asked for meanwhile is forgotten.
#[derive(Debug)]
pub struct Proven {
    generation_max: usize,
    generations: Mutex<Generations>,
}

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Name, Arc<Vapid>>,
    old: HashMap<Name, Arc<Vapid>>,
}

impl Default for Proven {
    fn default() -> Self {
        Self::new(PROVEN_MAX)
    }
}

impl Proven {
    /// Remembers up to `max` proofs, and none when that is below two.
    pub fn new(max: usize) -> Self {
        Self { generation_max: max / 2, generations: Mutex::default() }
    }

    /// As [`verify`](super::verify), with the proof from memory where it was made before.
    pub fn verify(
        &self,
        authorization: &str,
        crypto_key: Option<&str>,
        origin: &str,
        now: i64,
    ) -> Result<Arc<Vapid>, VapidRefusal> {
        let found = find(authorization, crypto_key)?;
        let name = name(&found);
        if let Some(vapid) = self.get(&name) {
            vapid.check(origin, now)?;
            return Ok(vapid);
        }
        let vapid = found.presented()?.prove()?;
        vapid.check(origin, now)?;
        Ok(self.put(name, Arc::new(vapid)))
    }

    fn get(&self, name: &Name) -> Option<Arc<Vapid>> {
        let mut generations = self.generations.lock();
        if let Some(vapid) = generations.young.get(name) {
            return Some(Arc::clone(vapid));
        }
        let vapid = generations.old.remove(name)?;
        generations.put(*name, Arc::clone(&vapid), self.generation_max);
        Some(vapid)
    }

    fn put(&self, name: Name, vapid: Arc<Vapid>) -> Arc<Vapid> {
        let texts = vapid.audience.len() + vapid.subject.as_ref().map_or(0, String::len);
        if self.generation_max > 0 && texts <= TEXT_BYTES_MAX {
            self.generations.lock().put(name, Arc::clone(&vapid), self.generation_max);
        }
        vapid
    }
}

impl Generations {
    fn put(&mut self, name: Name, vapid: Arc<Vapid>, max: usize) {
        if self.young.len() >= max {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(name, vapid);
    }
}

/// The whole token is in it, signature included, and the key: another signature, or the same under
/// another key, is another proof.
fn name(found: &Found) -> Name {
    let form: &[u8] = match found.form {
        Form::Rfc8292 => b"rfc8292",
        Form::Draft01 => b"draft01",
    };
    fingerprint(&[form, found.token.as_bytes(), found.key.as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vapid::SenderKey;

    const NOW: i64 = 1_700_000_000;
    const ORIGIN: &str = "https://push.example.org";

    fn header() -> String {
        SenderKey::generate().authorization(ORIGIN, NOW + 3_600, None)
    }

    fn check(proven: &Proven, header: &str) -> Result<Arc<Vapid>, VapidRefusal> {
        proven.verify(header, None, ORIGIN, NOW)
    }

    fn remembered(proven: &Proven) -> usize {
        let generations = proven.generations.lock();
        generations.young.len() + generations.old.len()
    }

    #[test]
    fn a_proof_is_made_once_and_says_the_same() {
        let (proven, header) = (Proven::default(), header());
        let first = check(&proven, &header).expect("proven");
        let again = check(&proven, &header).expect("remembered");
        assert!(Arc::ptr_eq(&first, &again));
        assert_eq!(*first, super::super::verify(&header, None, ORIGIN, NOW).expect("proven"));
    }

    #[test]
    fn time_and_origin_are_checked_each_time() {
        let (proven, header) = (Proven::default(), header());
        let at = |now, origin| proven.verify(&header, None, origin, now).map(|_| ());
        assert_eq!(at(NOW - 86_400, ORIGIN), Err(VapidRefusal::TooLong));
        assert_eq!(at(NOW, ORIGIN), Ok(()));
        assert_eq!(at(NOW + 3_660, ORIGIN), Ok(()));
        assert_eq!(at(NOW + 3_661, ORIGIN), Err(VapidRefusal::Expired));
        assert_eq!(at(NOW, "https://example.org"), Err(VapidRefusal::Audience));
        assert_eq!(remembered(&proven), 1);
    }

    #[test]
    fn what_does_not_count_here_and_now_drives_out_nobody() {
        let (proven, good) = (Proven::new(4), header());
        let first = check(&proven, &good).expect("proven");
        for _ in 0..8 {
            let sender = SenderKey::generate();
            let elsewhere = sender.authorization("https://example.net", NOW + 3_600, None);
            assert_eq!(check(&proven, &elsewhere).map(|_| ()), Err(VapidRefusal::Audience));
            let over = sender.authorization(ORIGIN, NOW - 3_600, None);
            assert_eq!(check(&proven, &over).map(|_| ()), Err(VapidRefusal::Expired));
        }
        assert_eq!(remembered(&proven), 1);
        assert!(Arc::ptr_eq(&first, &check(&proven, &good).expect("remembered")));
    }

    #[test]
    fn forgeries_are_not_taken_for_what_is_known() {
        let (sender, other) = (SenderKey::generate(), SenderKey::generate());
        let header = |key: &SenderKey| key.authorization(ORIGIN, NOW + 3_600, None);
        let token = |header: &str| {
            let rest = header.strip_prefix("vapid t=").expect("the usual form");
            rest.split_once(',').expect("a key").0.to_owned()
        };
        let with = |token: &str, key: &SenderKey| {
            format!("vapid t={token},k={}", key.public_key().to_text())
        };
        let (good, strange) = (token(&header(&sender)), token(&header(&other)));
        let proven = Proven::default();
        check(&proven, &with(&good, &sender)).expect("proven");
        check(&proven, &with(&strange, &other)).expect("proven");
        let (signed, _) = good.rsplit_once('.').expect("a signature");
        let (_, signature) = strange.rsplit_once('.').expect("a signature");
        let refused = |token: &str, key| check(&proven, &with(token, key)).map(|_| ());
        for _ in 0..2 {
            // The same words under another signature; the same token under another key.
            assert_eq!(
                refused(&format!("{signed}.{signature}"), &sender),
                Err(VapidRefusal::Signature)
            );
            assert_eq!(refused(&good, &other), Err(VapidRefusal::Signature));
            assert_eq!(refused(&format!("{signed}."), &sender), Err(VapidRefusal::Signature));
            assert_eq!(refused(signed, &sender), Err(VapidRefusal::Token));
        }
        assert_eq!(remembered(&proven), 2);
        check(&proven, &with(&good, &sender)).expect("still known");
    }

    #[test]
    fn forms_are_told_apart() {
        let sender = SenderKey::generate();
        let header = sender.authorization(ORIGIN, NOW + 3_600, None);
        let key = sender.public_key().to_text();
        let token = header.trim_start_matches("vapid t=").split(',').next().expect("a token");
        let (webpush, crypto_key) = (format!("WebPush {token}"), format!("p256ecdsa={key}"));
        let proven = Proven::default();
        for _ in 0..2 {
            assert_eq!(check(&proven, &header).expect("proven").form, Form::Rfc8292);
            let draft = proven.verify(&webpush, Some(&crypto_key), ORIGIN, NOW);
            assert_eq!(draft.expect("proven").form, Form::Draft01);
            assert_eq!(check(&proven, &webpush).map(|_| ()), Err(VapidRefusal::NoCryptoKey));
        }
    }

    #[test]
    fn what_nobody_asks_for_is_forgotten() {
        let proven = Proven::new(8);
        let busy = header();
        let first = check(&proven, &busy).expect("proven");
        let idle = header();
        let once = check(&proven, &idle).expect("proven");
        for _ in 0..20 {
            check(&proven, &header()).expect("proven");
            assert!(Arc::ptr_eq(&first, &check(&proven, &busy).expect("remembered")));
            assert!(remembered(&proven) <= 8, "{} of 8", remembered(&proven));
        }
        let anew = check(&proven, &idle).expect("proven again");
        assert!(!Arc::ptr_eq(&once, &anew));
        assert_eq!(once, anew);
    }

    #[test]
    fn nothing_large_is_remembered_and_nothing_at_all_without_room() {
        let sender = SenderKey::generate();
        let large = format!("mailto:{}@example.org", "x".repeat(TEXT_BYTES_MAX));
        let large = sender.authorization(ORIGIN, NOW + 3_600, Some(&large));
        let proven = Proven::default();
        check(&proven, &large).expect("proven");
        assert_eq!(remembered(&proven), 0);
        let none = Proven::new(0);
        check(&none, &header()).expect("proven");
        assert_eq!(remembered(&none), 0);
    }

    #[test]
    fn many_at_once_find_their_own() {
        let proven = Proven::new(6);
        let senders: Vec<(SenderKey, String)> = (0..8)
            .map(|_| SenderKey::generate())
            .map(|key| {
                let header = key.authorization(ORIGIN, NOW + 3_600, None);
                (key, header)
            })
            .collect();
        std::thread::scope(|scope| {
            for start in 0..4 {
                let (proven, senders) = (&proven, &senders);
                scope.spawn(move || {
                    for step in 0..200 {
                        let (key, header) = &senders[(start * 2 + step * (start + 1)) % 8];
                        let found = check(proven, header).expect("proven");
                        assert_eq!(found.key, *key.public_key());
                    }
                });
            }
        });
        assert!(remembered(&proven) <= 6);
    }
}
