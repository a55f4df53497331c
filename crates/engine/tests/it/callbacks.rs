//! The profile `efgs` under the virtual clock: one GET after the other to each country, six sends five
//! minutes apart, a lock of five minutes that outlives a crash.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::{
    AttemptOutcome, CertificateKind, FailureCode, Labels, ProfileName, SubscriptionId,
    SubscriptionName, SubscriptionStatus,
};
use posthorn_engine::{
    CertificateContents, CertificateView, Engine, Error, NewCertificate, NewSubscription, Publish,
};
use posthorn_store::Store;
use posthorn_testkit::authority::Pair;
use serde_json::{Value, json};

use crate::house::{House, Seen, TENANT, answered, publish, refused, rest, topic};

const DE: &str = "https://cb.de.example/callback";
const NL: &str = "https://cb.nl.example/callback";
const QUICK: Duration = Duration::from_millis(5);

/// Registers a country's certificate for a host, without its key: a proxy holds that.
async fn certificate(engine: &Engine, country: &str, host: &str) -> Arc<CertificateView> {
    let certificate = Pair::self_signed(host).certificate;
    let new = NewCertificate {
        kind: CertificateKind::Client,
        description: String::new(),
        owner: country.to_owned(),
        host: host.to_owned(),
        scopes: vec![],
        contents: CertificateContents { certificate, key: None },
    };
    engine.create_certificate(TENANT, new).await.expect("registered")
}

fn callback(country: &str, url: &str, overrides: Value) -> NewSubscription {
    let labels = BTreeMap::from([("country".to_owned(), country.to_owned())]);
    NewSubscription {
        name: Some(SubscriptionName::new(&format!("{country}-cb")).expect("a name")),
        labels: Labels::new(labels).expect("labels"),
        destination: url.into(),
        profile: Some(ProfileName::new("efgs").expect("a name")),
        overrides,
        ..NewSubscription::default()
    }
}

async fn subscribe(engine: &Engine, country: &str, url: &str, overrides: Value) -> SubscriptionId {
    let host = url.trim_start_matches("https://").split('/').next().expect("a host");
    certificate(engine, country, host).await;
    let new = callback(country, url, overrides);
    engine.create_subscription(TENANT, new).await.expect("subscribed").0.subscription.id
}

fn batch(tag: &str) -> Publish {
    let attributes = BTreeMap::from([("batchTag".to_owned(), tag.to_owned())]);
    Publish { attributes, ..publish("{}", None) }
}

async fn announce(engine: &Engine, tag: &str) {
    engine.publish(TENANT, batch(tag)).await.expect("accepted");
}

/// The tags that were sent to a URL, in the order they came.
fn tags(house: &House, url: &str) -> Vec<String> {
    let tag = |seen: &Seen| {
        let query = seen.path.clone().expect("a query");
        let (_, rest) = query.split_once("batchTag=").expect("a tag");
        rest.split('&').next().expect("a value").to_owned()
    };
    house.receivers.of(url).iter().map(tag).collect()
}

/// Whole seconds from the first request to each of them.
fn seconds(house: &House, url: &str) -> Vec<i64> {
    let seen = house.receivers.of(url);
    let first = seen.first().map_or(0, |seen| seen.at.as_millis());
    seen.iter().map(|seen| (seen.at.as_millis() - first) / 1_000).collect()
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_announced_with_tag_and_date_and_the_countrys_thumbprint() {
    let (house, engine) = House::open().await;
    let other = certificate(&engine, "NL", "cb.de.example").await;
    subscribe(&engine, "DE", DE, json!({})).await;
    announce(&engine, "20231114-1").await;
    let mut dated = batch("20231101-7");
    dated.attributes.insert("date".to_owned(), "2023-11-01".to_owned());
    engine.publish(TENANT, dated).await.expect("accepted");
    rest(1).await;
    let seen = house.receivers.of(DE);
    let queries: Vec<_> = seen.iter().filter_map(|seen| seen.path.clone()).collect();
    // Without a date of its own, an event has that of the day it was accepted on, in UTC.
    assert_eq!(
        queries,
        [
            "/callback?batchTag=20231114-1&date=2023-11-14",
            "/callback?batchTag=20231101-7&date=2023-11-01"
        ]
    );
    let certificates = engine.catalog().certificates(TENANT);
    let own = certificates.iter().find(|view| view.certificate.owner == "DE").expect("registered");
    let thumbprint = own.certificate.thumbprint.to_string();
    for seen in seen {
        assert_eq!((seen.method.as_str(), seen.body.len()), ("GET", 0));
        assert_eq!(seen.headers["x-ssl-client-sha256"], thumbprint.as_str());
        assert_eq!(seen.headers["user-agent"], "EFGS Callback Engine");
        assert_ne!(thumbprint, other.certificate.thumbprint.to_string());
    }
    assert_eq!(house.counts().await.delivered, 2);
}

/// A time zone cannot shift the day: it changes at midnight UTC.
#[tokio::test(start_paused = true)]
async fn the_date_is_that_of_acceptance_also_when_it_is_sent_later() {
    let (house, engine) = House::open().await;
    let id = subscribe(&engine, "DE", DE, json!({})).await;
    engine.pause_subscription(TENANT, id).await.expect("paused");
    // The virtual day begins at 22:13:20 UTC.
    announce(&engine, "a").await;
    rest(106 * 60).await;
    announce(&engine, "b").await;
    rest(60).await;
    announce(&engine, "c").await;
    rest(2 * 3_600).await;
    engine.resume_subscription(TENANT, id).await.expect("resumed");
    rest(10).await;
    let dates: Vec<_> = house
        .receivers
        .of(DE)
        .iter()
        .filter_map(|seen| seen.path.as_ref()?.split("date=").nth(1).map(str::to_owned))
        .collect();
    assert_eq!(dates, ["2023-11-14", "2023-11-14", "2023-11-15"]);
}

#[tokio::test(start_paused = true)]
async fn six_sends_five_minutes_apart_then_the_next_batch_goes_on() {
    // Whatever is wrong: the receiver, its answer, the way to it.
    let failures: [fn() -> AttemptOutcome; 7] = [
        || answered(404),
        || answered(500),
        || answered(302),
        || answered(410),
        || answered(429),
        || answered(503),
        refused,
    ];
    for (seed, failure) in failures.into_iter().enumerate() {
        let house = House::new();
        let engine = house.engine(seed as u8).await;
        topic(&engine).await;
        subscribe(&engine, "DE", DE, json!({})).await;
        house.receivers.script(DE, move |nth, _| {
            (Duration::ZERO, if nth < 6 { failure() } else { answered(200) })
        });
        for tag in ["1", "2"] {
            announce(&engine, tag).await;
        }
        rest(1_499).await;
        assert_eq!(tags(&house, DE), ["1"; 5], "{:?}", failure());
        rest(10).await;
        assert_eq!(tags(&house, DE), ["1", "1", "1", "1", "1", "1", "2"], "{:?}", failure());
        let times = seconds(&house, DE);
        assert_eq!(times[..6], [0, 300, 600, 900, 1_200, 1_500]);
        // A receiver that has failed so often is approached with a little care.
        assert!((1_500..1_510).contains(&times[6]), "{times:?}");
        let counts = house.counts().await;
        assert_eq!((counts.delivered, counts.cancelled, counts.dead), (1, 1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_passes_a_failing_head_and_other_countries_do_not_notice() {
    let (house, engine) = House::open().await;
    subscribe(&engine, "DE", DE, json!({})).await;
    subscribe(&engine, "NL", NL, json!({})).await;
    // The first is taken, the second refused once, the rest taken.
    house.receivers.script(DE, |nth, _| (QUICK, answered(if nth == 1 { 400 } else { 200 })));
    for tag in ["1", "2", "3", "4"] {
        announce(&engine, tag).await;
    }
    rest(299).await;
    assert_eq!(tags(&house, DE), ["1", "2"], "nothing more until the wait is over");
    assert_eq!(tags(&house, NL), ["1", "2", "3", "4"]);
    announce(&engine, "5").await;
    rest(2).await;
    assert_eq!(tags(&house, DE), ["1", "2", "2", "3", "4", "5"], "all of it, not one a tick");
    assert_eq!(seconds(&house, DE), [0, 0, 300, 300, 300, 300]);
}

#[tokio::test(start_paused = true)]
async fn only_those_who_are_subscribed_are_told_and_each_once() {
    let (house, engine) = House::open().await;
    announce(&engine, "before").await;
    subscribe(&engine, "DE", DE, json!({})).await;
    announce(&engine, "between").await;
    subscribe(&engine, "NL", NL, json!({})).await;
    let published = engine.publish(TENANT, batch("after")).await.expect("accepted");
    assert_eq!(published.deliveries, 2, "one obligation for each subscription");
    rest(10).await;
    assert_eq!(tags(&house, DE), ["between", "after"]);
    assert_eq!(tags(&house, NL), ["after"]);
}

#[tokio::test(start_paused = true)]
async fn two_hundred_batches_for_one_country_come_in_order() {
    let (house, engine) = House::open().await;
    subscribe(&engine, "DE", DE, json!({})).await;
    house.receivers.script(DE, |_, _| {
        let AttemptOutcome::Answered(mut answer) = answered(200) else { unreachable!() };
        answer.body = vec![b'x'; 1_024].into();
        (QUICK, AttemptOutcome::Answered(answer))
    });
    let wanted: Vec<String> = (1..=200).map(|n| format!("20231114-{n}")).collect();
    for tag in &wanted {
        announce(&engine, tag).await;
    }
    rest(30).await;
    assert_eq!(tags(&house, DE), wanted);
    assert_eq!(house.counts().await.delivered, 200);
}

#[tokio::test(start_paused = true)]
async fn two_hundred_tasks_of_fifty_countries_are_done() {
    let (house, engine) = House::open().await;
    for n in 0..50 {
        subscribe(&engine, &format!("C{n}"), &format!("https://cb{n}.example/"), json!({})).await;
    }
    for tag in ["1", "2", "3", "4"] {
        announce(&engine, tag).await;
    }
    rest(30).await;
    for n in 0..50 {
        assert_eq!(tags(&house, &format!("https://cb{n}.example/")), ["1", "2", "3", "4"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_is_down_for_an_hour_loses_what_ran_out_and_gets_the_rest_in_order() {
    let (house, engine) = House::open().await;
    subscribe(&engine, "DE", DE, json!({})).await;
    house.receivers.script(DE, |_, seen| {
        let down = seen.at.as_millis() < 1_700_000_000_000 + 3_600_000;
        (Duration::ZERO, if down { refused() } else { answered(200) })
    });
    for tag in ["1", "2", "3", "4", "5"] {
        announce(&engine, tag).await;
    }
    rest(3 * 3_600).await;
    // Two of them have their six sends within the hour, 25 minutes each; the third is being tried
    // when the receiver is back, and takes the others with it.
    let mut wanted = vec!["1"; 6];
    wanted.extend(["2"; 6]);
    wanted.extend(["3", "3", "3", "4", "5"]);
    assert_eq!(tags(&house, DE), wanted);
    let times = seconds(&house, DE);
    for (own, begins) in [(&times[..6], 0), (&times[6..12], 1_500), (&times[12..15], 3_000)] {
        assert!((begins..begins + 10).contains(&own[0]), "{times:?}");
        let gaps: Vec<i64> = own.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|gap| *gap == 300), "{times:?}");
    }
    assert_eq!(times[15..], [times[14]; 2], "the rest at once");
    let counts = house.counts().await;
    assert_eq!((counts.delivered, counts.cancelled, counts.pending), (3, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn what_happens_at_exhaustion_is_a_knob() {
    for on_exhausted in ["dead_letter", "delete_subscription", "disable_subscription"] {
        let (house, engine) = House::open().await;
        let overrides = json!({"on_exhausted": on_exhausted, "schedule": {"max_attempts": 2}});
        let id = subscribe(&engine, "DE", DE, overrides).await;
        house.receivers.script(DE, |nth, _| (QUICK, answered(if nth < 2 { 500 } else { 200 })));
        for tag in ["1", "2"] {
            announce(&engine, tag).await;
        }
        rest(1_000).await;
        let (counts, view) = (house.counts().await, engine.catalog().view(id));
        match on_exhausted {
            "dead_letter" => {
                assert_eq!(tags(&house, DE), ["1", "1", "2"]);
                assert_eq!((counts.dead, counts.delivered), (1, 1));
            }
            "disable_subscription" => {
                assert_eq!((counts.dead, counts.pending), (1, 1), "the other one waits");
                assert!(!view.expect("there").subscription.status.is_active());
            }
            _ => {
                assert_eq!(tags(&house, DE), ["1", "1"]);
                assert!(view.is_none() && counts.pending == 0, "its other work goes too");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn numbers_are_knobs() {
    let (house, engine) = House::open().await;
    let overrides = json!({"schedule": {"backoff": {"fixed": {"wait": "60s"}}, "max_attempts": 3}});
    subscribe(&engine, "DE", DE, overrides).await;
    house.receivers.script(DE, |_, _| (Duration::ZERO, answered(500)));
    announce(&engine, "1").await;
    rest(3_600).await;
    assert_eq!(seconds(&house, DE), [0, 60, 120]);
}

#[tokio::test(start_paused = true)]
async fn a_url_that_is_refused_when_it_is_sent_is_a_failed_attempt() {
    for code in [
        FailureCode::AddressNotAllowed,
        FailureCode::DnsFailed,
        FailureCode::DnsTimeout,
        FailureCode::UrlNotAllowed,
    ] {
        let (house, engine) = House::open().await;
        let id = subscribe(&engine, "DE", DE, json!({})).await;
        house.receivers.script(DE, move |nth, _| {
            let failed = AttemptOutcome::Failed { code, detail: String::new() };
            (QUICK, if nth < 2 { failed } else { answered(200) })
        });
        announce(&engine, "1").await;
        rest(700).await;
        assert_eq!(seconds(&house, DE), [0, 300, 600], "{code:?}");
        assert_eq!(house.counts().await.delivered, 1, "{code:?}");
        let view = engine.catalog().view(id).expect("still there");
        assert!(view.subscription.status.is_active());
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_url_can_disable_or_delete_the_subscription() {
    for (on_refused, deleted) in [("disable_subscription", false), ("delete_subscription", true)] {
        let (house, engine) = House::open().await;
        let overrides = json!({"url": {"on_refused": on_refused}});
        let id = subscribe(&engine, "DE", DE, overrides).await;
        house.receivers.script(DE, |nth, _| {
            let code = FailureCode::AddressNotAllowed;
            let failed = AttemptOutcome::Failed { code, detail: String::new() };
            (QUICK, if nth == 0 { failed } else { answered(200) })
        });
        for tag in ["1", "2"] {
            announce(&engine, tag).await;
        }
        rest(3_600).await;
        assert_eq!(tags(&house, DE), ["1"], "{on_refused}");
        let (view, counts) = (engine.catalog().view(id), house.counts().await);
        if deleted {
            assert!(view.is_none());
            assert_eq!((counts.pending, counts.cancelled, counts.dead), (0, 2, 0));
            continue;
        }
        let status = &view.expect("kept").subscription.status;
        assert!(matches!(status, SubscriptionStatus::Disabled { .. }), "{status:?}");
        assert_eq!(counts.pending, 2, "its work is kept");
        engine.resume_subscription(TENANT, id).await.expect("resumed");
        rest(10).await;
        assert_eq!(tags(&house, DE), ["1", "1", "2"]);
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_certificate_there_is_no_subscription_and_no_send() {
    let (house, engine) = House::open().await;
    let refused = |result: Result<_, Error>| {
        assert!(matches!(result.map(drop), Err(Error::Certificate { .. })));
    };
    let create = || engine.create_subscription(TENANT, callback("DE", DE, json!({})));
    refused(create().await);
    certificate(&engine, "NL", "cb.de.example").await;
    certificate(&engine, "DE", "other.de.example").await;
    refused(create().await);
    let mut nobodys = callback("DE", DE, json!({}));
    nobodys.labels = Labels::default();
    refused(engine.create_subscription(TENANT, nobodys).await);

    let id = certificate(&engine, "DE", "cb.de.example").await.certificate.id;
    create().await.expect("subscribed");
    engine.revoke_certificate(TENANT, id).await.expect("revoked");
    announce(&engine, "1").await;
    rest(301).await;
    assert!(house.receivers.of(DE).is_empty(), "nothing is sent without it");
    let delivery = house.store.all_deliveries().pop().expect("one");
    assert_eq!(delivery.attempts, 2, "each is a failed attempt");
    let attempts = house.store.attempts(TENANT, delivery.id).await.expect("answers");
    assert_eq!(attempts[0].failure, Some(FailureCode::CertificateUnavailable));
    certificate(&engine, "DE", "cb.de.example").await;
    rest(300).await;
    assert_eq!(tags(&house, DE), ["1"]);
}

#[tokio::test(start_paused = true)]
async fn unsubscribing_ends_all_pending_work_even_while_it_is_being_sent() {
    let (house, engine) = House::open().await;
    let id = subscribe(&engine, "DE", DE, json!({})).await;
    subscribe(&engine, "NL", NL, json!({})).await;
    // Slow to answer, and then not well.
    house.receivers.script(DE, |_, _| (Duration::from_secs(5), answered(500)));
    for tag in ["1", "2", "3"] {
        announce(&engine, tag).await;
    }
    rest(2).await;
    assert_eq!(tags(&house, DE), ["1"], "it is under way");
    engine.delete_subscription(TENANT, id).await.expect("deleted");
    rest(7_200).await;
    assert_eq!(tags(&house, DE), ["1"], "nothing was sent after it");
    let counts = house.counts().await;
    assert_eq!((counts.pending, counts.cancelled, counts.delivered), (0, 3, 3));
    assert_eq!(tags(&house, NL), ["1", "2", "3"]);
}

#[tokio::test(start_paused = true)]
async fn a_lock_outlives_a_crash_and_then_the_batch_is_sent_again_without_being_charged() {
    let (house, engine) = House::open().await;
    subscribe(&engine, "DE", DE, json!({})).await;
    house.receivers.script(DE, |_, _| (Duration::from_secs(8), answered(200)));
    for tag in ["1", "2"] {
        announce(&engine, tag).await;
    }
    rest(2).await;
    engine.kill();
    let _second = house.engine(15).await;
    rest(290).await;
    assert_eq!(tags(&house, DE), ["1"], "nobody touches it while the lock holds");
    rest(60).await;
    assert_eq!(tags(&house, DE), ["1", "1", "2"]);
    let times = seconds(&house, DE);
    assert!(times[1] >= 300, "{times:?}");
    let deliveries = house.store.all_deliveries();
    let attempts: Vec<u32> = deliveries.iter().map(|delivery| delivery.attempts).collect();
    assert_eq!(attempts, [1, 1], "the attempt that nobody saw the end of does not count");
}

/// One of three dies in the middle of its work: sends are under way on it, and batches wait behind them. What
/// was under way is sent again when its lock has ended, by one of the others; nothing else is sent twice, and
/// nothing is passed.
#[tokio::test(start_paused = true)]
async fn three_nodes_send_each_batch_once_and_in_order_also_when_one_dies() {
    let house = House::new();
    let first = house.engine(16).await;
    let nodes = [house.engine(17).await, house.engine(18).await];
    rest(30).await;
    topic(&first).await;
    let urls: Vec<String> = (0..12).map(|n| format!("https://cb{n}.example/")).collect();
    for (n, url) in urls.iter().enumerate() {
        subscribe(&first, &format!("C{n}"), url, json!({})).await;
        house.receivers.script(url, |_, _| (Duration::from_secs(3), answered(200)));
    }
    let wanted: Vec<String> = (0..8).map(|n| n.to_string()).collect();
    for (n, tag) in wanted.iter().enumerate() {
        announce(&nodes[n % 2], tag).await;
    }
    // The third of each is under way, five wait behind it.
    rest(7).await;
    let before: Vec<_> = urls.iter().map(|url| tags(&house, url).len()).collect();
    assert!(before.iter().all(|sent| (2..=3).contains(sent)), "{before:?}");
    let owned = first.inspect().await.in_flight;
    first.kill();
    assert!(owned > 0, "the one that dies has something under way");
    rest(60).await;
    let stopped = urls.iter().filter(|url| tags(&house, url).len() < wanted.len()).count();
    assert_eq!(stopped, owned, "only those whose lock is left behind wait for it");
    rest(600).await;
    let mut repeated = 0;
    for url in &urls {
        let mut sent = tags(&house, url);
        let times = seconds(&house, url);
        let twice: Vec<usize> = (1..sent.len()).filter(|n| sent[*n] == sent[n - 1]).collect();
        for n in &twice {
            let after = times[*n] - times[n - 1];
            assert!(after >= 300, "{url}: sent again after {after} s, while the lock held");
        }
        assert!(twice.len() <= 1, "{url}: {sent:?}");
        repeated += twice.len();
        sent.dedup();
        assert_eq!(sent, wanted, "{url}");
    }
    assert_eq!(repeated, owned, "what was under way, and nothing else");
    assert_eq!(house.counts().await.delivered, 12 * 8);
}

/// Locks of five crashes, 8, 6, 4, 3 and no minutes old, when a lock lasts for five.
#[tokio::test(start_paused = true)]
async fn of_the_locks_of_the_dead_only_those_that_ended_are_taken_up() {
    let house = House::new();
    let url = |n: usize| format!("https://cb{n}.example/");
    for n in 0..5 {
        // The first send of each is under way when its node dies.
        house.receivers.script(&url(n), |nth, _| {
            (Duration::from_secs(if nth == 0 { 15 } else { 0 }), answered(200))
        });
    }
    let mut last = None;
    for (n, minutes) in [0, 2, 2, 1, 3].into_iter().enumerate() {
        rest(minutes * 60).await;
        let engine = house.engine(20 + n as u8).await;
        // Whoever died is replaced after ten seconds.
        rest(12).await;
        topic(&engine).await;
        let id = subscribe(&engine, &format!("C{n}"), &url(n), json!({})).await;
        announce(&engine, &n.to_string()).await;
        rest(1).await;
        // Nothing but this one batch for this one.
        engine.pause_subscription(TENANT, id).await.expect("paused");
        if n < 4 {
            engine.kill();
        }
        last = Some(engine);
    }
    let engine = last.expect("five");
    for view in engine.catalog().subscriptions(TENANT) {
        let id = view.subscription.id;
        engine.resume_subscription(TENANT, id).await.expect("resumed");
    }
    let first_two = |house: &House| {
        (0..5)
            .map(|n| tags(house, &url(n)).iter().filter(|tag| **tag == n.to_string()).count())
            .collect::<Vec<_>>()
    };
    rest(2).await;
    assert_eq!(first_two(&house), [2, 2, 1, 1, 1], "exactly two had ended");
    rest(600).await;
    assert_eq!(first_two(&house), [2, 2, 2, 2, 1]);
}
