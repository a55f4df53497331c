//! What is counted, and that no label tells who was contacted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use parking_lot::Mutex;
use posthorn_egress::Options;
use posthorn_testkit::authority::Pair;

use crate::authority::{Setup, https};
use crate::dns::{NameServer, Reply};
use crate::receiver::{Receiver, answer, options, send};

/// Keeps counters by name and labels.
#[derive(Default)]
struct Ledger(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Ledger {
    fn read(&self) -> BTreeMap<String, u64> {
        let counts = self.0.lock();
        let read =
            |(key, count): (&String, &Arc<AtomicU64>)| (key.clone(), count.load(Ordering::SeqCst));
        counts.iter().map(read).filter(|(_, count)| *count > 0).collect()
    }
}

impl Recorder for Ledger {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let labels: Vec<&str> = key.labels().map(metrics::Label::value).collect();
        let name = format!("{} {}", key.name(), labels.join(","));
        Counter::from_arc(Arc::clone(self.0.lock().entry(name).or_default()))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[tokio::test]
async fn connections_lookups_handshakes_and_refusals_are_counted() {
    let ledger = Ledger::default();
    // The whole test runs on this thread.
    let _local = metrics::set_default_local_recorder(&ledger);
    let receiver = Receiver::always("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let port = receiver.address.port();
    let server = NameServer::start(|question| match question.name.as_str() {
        "good.example." => {
            crate::dns::addresses_reply(question, 60, &crate::dns::ips(&["127.0.0.1"]))
        }
        "mixed.example." => {
            let both = crate::dns::ips(&["127.0.0.1", "10.0.0.1"]);
            crate::dns::addresses_reply(question, 60, &both)
        }
        _ => Reply::Code(3),
    })
    .await;
    let pair = Pair::self_signed("127.0.0.1");
    let (secure, _) = Setup { closing: true, ..Setup::of(&pair) }.start().await;
    let extra_roots = Some(pair.certificate.clone());
    let egress = server.egress(Options { extra_roots, ..options() });

    for _ in 0..3 {
        answer(&send(&egress, &format!("http://good.example:{port}/")).await);
    }
    send(&egress, &format!("http://mixed.example:{port}/")).await;
    send(&egress, &format!("http://nowhere.example:{port}/")).await;
    for _ in 0..2 {
        answer(&send(&egress, &https(&secure)).await);
    }
    // A target another guard let through.
    let open = posthorn_egress::Egress::new(Options {
        allow: vec!["10.0.0.0/8".parse().expect("rule")],
        ..Options::default()
    });
    let wanted = crate::receiver::request(&open.expect("egress"), "http://10.0.0.1/");
    egress.send(wanted).await;

    let counted = ledger.read();
    let expected: BTreeMap<String, u64> = [
        ("posthorn_egress_connections_total opened", 3),
        ("posthorn_egress_connections_total reused", 2),
        ("posthorn_egress_dns_total failed", 1),
        ("posthorn_egress_dns_total found", 2),
        ("posthorn_egress_handshakes_total full", 1),
        ("posthorn_egress_handshakes_total resumed", 1),
        ("posthorn_egress_refused_total address_not_public", 1),
        ("posthorn_egress_refused_total mixed_answer", 1),
    ]
    .map(|(name, count)| (name.to_owned(), count))
    .into();
    assert_eq!(counted, expected);
}
