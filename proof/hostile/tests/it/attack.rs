//! One sender, as the server sets it up, with short deadlines.

use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::{Answer, AttemptOutcome, TenantId};
use posthorn_egress::{Deadlines, Egress, Options, PoolKey, Request, Sent};
use posthorn_hostile::{Mode, Receiver, Settings};

/// Long enough for an honest handshake on a busy machine, short enough to wait for.
pub(crate) const DEADLINES: Deadlines = Deadlines {
    connect: Duration::from_millis(1_500),
    tls: Duration::from_millis(1_500),
    response: Duration::from_millis(1_500),
    total: Duration::from_millis(2_500),
};
/// How much later than its deadline an attempt may end: the promised second, and one for a machine that
/// is busy with other tests.
pub(crate) const SLACK: Duration = Duration::from_secs(2);
pub(crate) const SETTINGS: Settings = Settings { pace: Duration::from_millis(50) };

pub(crate) fn egress(authority_pem: &str) -> Egress {
    Egress::new(Options {
        allow: vec!["127.0.0.0/8".parse().expect("rule")],
        extra_roots: Some(authority_pem.to_owned()),
        ..Options::default()
    })
    .expect("egress")
}

pub(crate) fn request(egress: &Egress, receiver: &Receiver, body: impl Into<Vec<u8>>) -> Request {
    let mut pool = [0; 16];
    pool[..2].copy_from_slice(&receiver.address().port().to_be_bytes());
    let url = receiver.url("hook?a=1");
    Request {
        tenant: TenantId::DEFAULT,
        pool: PoolKey::new(pool),
        target: Arc::new(egress.guard().check_url(&url).expect("target")),
        tls: None,
        proxy: None,
        vet_always: false,
        path_and_query: None,
        method: http::Method::POST,
        headers: http::HeaderMap::new(),
        body: body.into().into(),
        deadlines: DEADLINES,
    }
}

/// Sends what the mode needs to see to do its worst.
pub(crate) async fn attacked(egress: &Egress, receiver: &Receiver) -> Sent {
    let body = match receiver.mode() {
        // Larger than the buffers in between, so that it is still being written.
        Mode::EarlyAnswer | Mode::EarlyAnswerReset => vec![b'x'; 20_000_000],
        mode => mode.name().as_bytes().to_vec(),
    };
    egress.send(request(egress, receiver, body)).await
}

#[track_caller]
pub(crate) fn answer(sent: &Sent) -> &Answer {
    match &sent.outcome {
        AttemptOutcome::Answered(answer) => answer,
        AttemptOutcome::Failed { code, detail } => panic!("failed with {code:?}: {detail}"),
    }
}
