//! Client certificates and trust of one's own: what is presented, and what is never shared.

use std::sync::Arc;

use posthorn_domain::{FailureCode, TenantId, Timestamp};
use posthorn_egress::{CertificateError, ClientTls, Egress, Identity, Options, Sent};
use posthorn_testkit::authority::{Authority, Clients, Pair};

use crate::authority::{Seen, Setup, https, identity};
use crate::receiver::{Receiver, answer, egress, failure, options, request};

const HOST: &str = "127.0.0.1";

async fn send_as(egress: &Egress, url: &str, tls: Option<&Arc<ClientTls>>) -> Sent {
    let mut wanted = request(egress, url);
    wanted.tls = tls.map(Arc::clone);
    egress.send(wanted).await
}

fn client(egress: &Egress, identity: Option<&Identity>, trusted: &[&Authority]) -> Arc<ClientTls> {
    let pems: Vec<String> = trusted.iter().map(|authority| authority.pem.clone()).collect();
    let pems: Vec<&[u8]> = pems.iter().map(String::as_bytes).collect();
    Arc::new(egress.client_tls(identity, &pems).expect("client"))
}

struct Scene {
    authority: Authority,
    one: Pair,
    other: Pair,
    receiver: Receiver,
    seen: Arc<Seen>,
}

impl Scene {
    /// A receiver that asks for client certificates; closing after each answer if wanted.
    async fn asking(required: bool, closing: bool) -> Self {
        let authority = Authority::new("all");
        let server = authority.sign(HOST);
        let mut setup = Setup::of(&server);
        setup.clients =
            if required { Clients::Of(&authority) } else { Clients::OfOrNone(&authority) };
        setup.closing = closing;
        let (receiver, seen) = setup.start().await;
        let (one, other) = (authority.sign("one.example"), authority.sign("other.example"));
        Self { authority, one, other, receiver, seen }
    }

    fn url(&self) -> String {
        https(&self.receiver)
    }
}

#[tokio::test]
async fn a_client_certificate_is_presented_when_asked_for() {
    let scene = Scene::asking(true, false).await;
    let egress = egress();
    let bare = client(&egress, None, &[&scene.authority]);
    let sent = send_as(&egress, &scene.url(), Some(&bare)).await;
    assert_eq!(failure(&sent), FailureCode::TlsFailed, "refused by the receiver, not by us");
    let identity = client(&egress, Some(&identity(&scene.one)), &[&scene.authority]);
    let sent = send_as(&egress, &scene.url(), Some(&identity)).await;
    assert_eq!(answer(&sent).status, 200);
    assert_eq!(scene.seen.requests(), [Some(scene.one.der().to_vec())]);
}

#[tokio::test]
async fn a_client_certificate_of_a_stranger_is_refused_by_the_receiver() {
    let scene = Scene::asking(true, false).await;
    let egress = egress();
    let stranger = Authority::new("stranger").sign("one.example");
    let tls = client(&egress, Some(&identity(&stranger)), &[&scene.authority]);
    let sent = send_as(&egress, &scene.url(), Some(&tls)).await;
    assert_eq!(failure(&sent), FailureCode::TlsFailed);
    assert!(scene.seen.requests().is_empty());
}

#[tokio::test]
async fn identities_never_share_a_connection() {
    let scene = Scene::asking(false, false).await;
    let egress = egress();
    let one = client(&egress, Some(&identity(&scene.one)), &[&scene.authority]);
    let other = client(&egress, Some(&identity(&scene.other)), &[&scene.authority]);
    let bare = client(&egress, None, &[&scene.authority]);
    for round in 0..2 {
        for tls in [&one, &other, &bare] {
            let sent = send_as(&egress, &scene.url(), Some(tls)).await;
            answer(&sent);
            assert_eq!(sent.reused, round > 0);
        }
    }
    let ders = [Some(&scene.one), Some(&scene.other), None]
        .map(|pair| pair.map(|pair| pair.der().to_vec()));
    assert_eq!(scene.seen.requests(), [ders.clone(), ders].concat());
    assert_eq!(scene.receiver.accepted(), 3);

    // The same parts make the same identity, so what was open is used again.
    let again = client(&egress, Some(&identity(&scene.one)), &[&scene.authority]);
    assert!(send_as(&egress, &scene.url(), Some(&again)).await.reused);
}

#[tokio::test]
async fn identities_never_share_a_session_and_each_resumes_its_own() {
    let scene = Scene::asking(false, true).await;
    let egress = egress();
    let one = client(&egress, Some(&identity(&scene.one)), &[&scene.authority]);
    let other = client(&egress, Some(&identity(&scene.other)), &[&scene.authority]);
    let bare = client(&egress, None, &[&scene.authority]);
    for tls in [&one, &other, &bare] {
        answer(&send_as(&egress, &scene.url(), Some(tls)).await);
    }
    assert_eq!(scene.seen.handshakes(), (3, 0), "nothing was resumed by another identity");
    for tls in [&one, &other, &bare] {
        answer(&send_as(&egress, &scene.url(), Some(tls)).await);
    }
    assert_eq!(scene.seen.handshakes(), (3, 3), "each resumed its own session");
    let ders = [Some(&scene.one), Some(&scene.other), None]
        .map(|pair| pair.map(|pair| pair.der().to_vec()));
    assert_eq!(scene.seen.requests(), [ders.clone(), ders].concat());
}

#[tokio::test]
async fn tenants_never_share_a_session_and_each_resumes_its_own() {
    let authority = Authority::new("all");
    let server = authority.sign(HOST);
    for versions in [&[&rustls::version::TLS13][..], &[&rustls::version::TLS12]] {
        let (receiver, seen) =
            Setup { closing: true, versions, ..Setup::of(&server) }.start().await;
        let extra_roots = Some(authority.pem.clone());
        let egress = Egress::new(Options { extra_roots, ..options() }).expect("egress");
        let shared = client(&egress, None, &[&authority]);
        for tls in [None, Some(&shared)] {
            let before = seen.handshakes();
            for round in 0..2 {
                for tenant in [1, 2, 3] {
                    let mut wanted = request(&egress, &https(&receiver));
                    wanted.tls = tls.cloned();
                    wanted.tenant = TenantId::new(Timestamp::from_millis(tenant), 1);
                    answer(&egress.send(wanted).await);
                }
                let (full, resumed) = seen.handshakes();
                assert_eq!((full - before.0, resumed - before.1), (3, 3 * round));
            }
        }
    }
}

#[tokio::test]
async fn a_private_authority_is_trusted_only_where_it_was_given() {
    let (private, public) = (Authority::new("private"), Authority::new("public"));
    let (behind_private, behind_public) = (private.sign(HOST), public.sign(HOST));
    let (first, _) = Setup::of(&behind_private).start().await;
    let (second, _) = Setup::of(&behind_public).start().await;
    // What stands for the public roots here are the operator's extra ones.
    let extra_roots = Some(public.pem.clone());
    let egress = Egress::new(Options { extra_roots, ..options() }).expect("egress");
    let pinned = client(&egress, None, &[&private]);
    let both = client(&egress, None, &[&private, &public]);
    let usual = client(&egress, Some(&identity(&private.sign("me.example"))), &[]);
    for (tls, receiver, trusted) in [
        (Some(&pinned), &first, true),
        (Some(&pinned), &second, false),
        (Some(&both), &first, true),
        (Some(&both), &second, true),
        (Some(&usual), &first, false),
        (Some(&usual), &second, true),
        (None, &first, false),
        (None, &second, true),
    ] {
        let sent = send_as(&egress, &https(receiver), tls).await;
        if trusted {
            assert_eq!(answer(&sent).status, 200);
        } else {
            assert_eq!(failure(&sent), FailureCode::TlsCertificateInvalid);
        }
    }
}

#[tokio::test]
async fn an_identity_is_never_left_out_for_plain_http() {
    let receiver = Receiver::always("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let authority = Authority::new("all");
    let egress = egress();
    let identity = client(&egress, Some(&identity(&authority.sign("me.example"))), &[]);
    let sent = send_as(&egress, &receiver.url(), Some(&identity)).await;
    assert_eq!(failure(&sent), FailureCode::UrlNotAllowed);
    assert_eq!(receiver.accepted(), 0);
    // A trust without an identity has nothing to leave out.
    let trusting = client(&egress, None, &[&authority]);
    answer(&send_as(&egress, &receiver.url(), Some(&trusting)).await);
    assert_eq!(receiver.accepted(), 1);
}

#[test]
fn unusable_authorities_are_errors() {
    let egress = egress();
    let made = |pems: &[&[u8]]| egress.client_tls(None, pems).map(drop);
    assert!(made(&[]).is_ok());
    assert!(matches!(made(&[b""]), Err(CertificateError::NoCertificate)));
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let broken = made(&[garbage.as_bytes()]);
    assert!(matches!(broken, Err(CertificateError::AuthorityUnusable { number: 1, .. })));
    let good = Authority::new("all").pem;
    let ten = good.repeat(10);
    let many = vec![ten.as_bytes(); 7];
    assert!(matches!(made(&many), Err(CertificateError::TooMany { max: 64 })));
    assert!(made(&many[..6]).is_ok());
}
