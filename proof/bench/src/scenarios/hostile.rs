//! Healthy receivers beside hostile ones: do they notice, and does the server survive?
//!
//! One tenant has a few healthy receivers and many hostile ones, spread over every mode there is.
//! The hostile ones run in a process of their own, so that neither their memory nor their
//! descriptors are counted as the server's.

mod fleet;
mod history;

use std::collections::HashMap;
use std::time::Duration;

use posthorn_hostile::Mode;
use serde_json::json;
use tokio::time::Instant;

pub(crate) use fleet::run as run_fleet;

use super::{Bench, Load, PATIENCE, Report, Server, WARM_UP};
use crate::progress::say;
use crate::report::Hostile;
use fleet::FleetProcess;
use history::History;

/// Every hostile receiver gets an event so often.
const HOSTILE_EVERY: Duration = Duration::from_secs(1);
/// But not all at the same moment: what is measured is hostility, not one large fan-out.
const HOSTILE_GROUPS: usize = 20;
/// Longer than any attempt may take under the default policy, with room for its outcome.
const ATTEMPT_MAX: Duration = Duration::from_secs(21);
/// How long idle connections may stay open, with room for the sweep.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// What is promised.
const RSS_GROWTH_MIB_MAX: f64 = 64.0;
const P99_RATIO_MAX: f64 = 2.0;
/// Below this a latency is the machine's noise, whatever its ratio to another one is.
const P99_NOISE_MS: f64 = 25.0;

/// How the healthy fared in one phase.
struct Phase {
    p50_ms: f64,
    p99_ms: f64,
    per_s: f64,
    lost: i64,
    refused: u64,
}

impl Bench<'_> {
    pub(super) async fn hostile(mut self) -> anyhow::Result<Report> {
        let fleet = FleetProcess::start().await?;
        self.home.trust(&fleet.authority_pem)?;
        let server = self.home.start().await?;
        let healthy =
            self.subscribe(&server, "healthy", self.args.subscriptions, self.sink_address).await?;
        let target = self.target(&server, healthy, 1)?;
        say("measuring the healthy alone");
        self.healthy_phase(&server, &target, WARM_UP, None).await?;
        let alone = self.healthy_phase(&server, &target, self.args.phase(), None).await?;
        say("waiting until the publishers' connections are closed");
        let before = settled(&server, 0).await;

        say("subscribing the hostile");
        let modes = self.subscribe_hostile(&server, &fleet).await?;
        let rss_before = server.rss_mib();
        server.reset_peak();
        say("measuring the healthy beside the hostile");
        let beside =
            self.healthy_phase(&server, &target, self.args.phase(), Some(HOSTILE_EVERY)).await?;
        let rss_growth_mib = server.peak_mib() - rss_before;

        say("pausing the hostile, to see whether every slot comes back");
        for id in modes.keys() {
            server.call("POST", &format!("/v1/subscriptions/{id}/pause"), &json!(null)).await?;
        }
        let slots_leaked = idle_slots(&server).await?;
        say("waiting for idle connections to be closed");
        let after = settled(&server, before).await;
        say("reading the history of every attempt");
        let history = History::read(&server, &modes, ATTEMPT_MAX).await?;
        let rss_mib = server.peak_mib();
        server.kill().await?;
        let seen = fleet.stop().await?;

        let p99_ratio = beside.p99_ms / alone.p99_ms.max(0.001);
        let mut hostile = Hostile {
            hostile_receivers: modes.len(),
            hostile_modes: Mode::hostile().count(),
            hostile_deliveries: history.deliveries,
            hostile_attempts: history.attempts,
            hostile_connections: seen.connections,
            baseline_p50_ms: alone.p50_ms,
            baseline_p99_ms: alone.p99_ms,
            healthy_p50_ratio: beside.p50_ms / alone.p50_ms.max(0.001),
            healthy_p99_ratio: p99_ratio,
            rss_growth_mib,
            descriptors_before: before,
            descriptors_after: after,
            late_attempts: history.late,
            slowest_attempt_ms: history.slowest_ms,
            slots_leaked,
            stuck_deliveries: history.stuck,
            lured: seen.lured,
            unexpected_outcomes: history.unexpected_count,
            unexpected: history.unexpected,
            limits_broken: Vec::new(),
        };
        let lost = alone.lost + beside.lost;
        hostile.limits_broken = hostile.broken(beside.p99_ms, lost);
        Ok(Report {
            deliveries_per_s: beside.per_s,
            bare_per_s: alone.per_s,
            ratio: beside.per_s / alone.per_s.max(0.001),
            p50_ms: beside.p50_ms,
            p99_ms: beside.p99_ms,
            rss_mib,
            idle_rss_mib: Some(rss_before),
            lost,
            duplicates: self.sink.duplicates(),
            refused: alone.refused + beside.refused,
            seconds: self.args.phase().as_secs_f64(),
            hostile: Some(hostile),
            ..Report::default()
        })
    }

    /// One subscription for each hostile receiver, in groups by topic. Receivers of one mode share a
    /// port: each subscription has connections of its own all the same.
    async fn subscribe_hostile(
        &self,
        server: &Server,
        fleet: &FleetProcess,
    ) -> anyhow::Result<HashMap<String, Mode>> {
        for group in 0..HOSTILE_GROUPS {
            server.call("PUT", &format!("/v1/topics/hostile-{group}"), &json!({})).await?;
        }
        let mut modes = HashMap::new();
        for (index, (mode, url)) in fleet.urls.iter().cycle().take(self.args.hostile).enumerate() {
            let topic = format!("hostile-{}", index % HOSTILE_GROUPS);
            let body = json!({
                "url": format!("{url}{index}"),
                "filter": {"any_of": [{"topics": [topic]}]},
            });
            let made = server.call("POST", "/v1/subscriptions", &body).await?;
            let id = made["id"].as_str().unwrap_or_default().to_owned();
            modes.insert(id, *mode);
        }
        Ok(modes)
    }

    /// Publishes for the healthy at a steady rate, and perhaps for the hostile, and waits for what
    /// the healthy are owed.
    async fn healthy_phase(
        &self,
        server: &Server,
        target: &super::Target,
        time: Duration,
        hostile_every: Option<Duration>,
    ) -> anyhow::Result<Phase> {
        let arrived = self.sink.arrived();
        self.sink.reset_latency();
        let publishers = self.args.publishers.min(64);
        let load = Load::start(target, publishers, Some(self.args.rate), &self.numbers, &self.sink);
        let began = Instant::now();
        match hostile_every {
            None => tokio::time::sleep(time).await,
            Some(pause) => {
                let payload = json!({"n": "hostile", "pad": "x".repeat(self.args.payload)});
                let mut due = began;
                for group in (0..HOSTILE_GROUPS).cycle() {
                    if began.elapsed() >= time {
                        break;
                    }
                    let topic = format!("hostile-{group}");
                    let event =
                        json!({"topic": topic, "type": "bench.hostile", "payload": payload});
                    server.call("POST", "/v1/events", &event).await?;
                    due += pause / HOSTILE_GROUPS as u32;
                    tokio::time::sleep_until(due).await;
                }
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        let (accepted, refused) = load.stop().await?;
        self.sink.wait_for(arrived + accepted, PATIENCE.max(ATTEMPT_MAX)).await;
        let delivered = self.sink.arrived() - arrived;
        Ok(Phase {
            p50_ms: self.sink.latency_ms(0.5),
            p99_ms: self.sink.latency_ms(0.99),
            per_s: delivered as f64 / seconds,
            lost: accepted as i64 - delivered as i64,
            refused,
        })
    }
}

impl Hostile {
    /// Which promises were not kept.
    fn broken(&self, p99_ms: f64, lost: i64) -> Vec<String> {
        let mut broken = Vec::new();
        let mut promise = |kept: bool, what: String| {
            if !kept {
                broken.push(what);
            }
        };
        promise(
            self.healthy_p99_ratio <= P99_RATIO_MAX || p99_ms <= P99_NOISE_MS,
            format!("p99 of the healthy: {:.1} times, not {P99_RATIO_MAX}", self.healthy_p99_ratio),
        );
        promise(
            self.rss_growth_mib <= RSS_GROWTH_MIB_MAX,
            format!("memory grew by {:.0} MiB, not {RSS_GROWTH_MIB_MAX}", self.rss_growth_mib),
        );
        promise(
            self.late_attempts == 0,
            format!("{} attempts ended after their deadline + 1 s", self.late_attempts),
        );
        promise(self.slots_leaked == 0, format!("{} slots did not come back", self.slots_leaked));
        promise(
            self.descriptors_after <= self.descriptors_before,
            format!("{} descriptors, {} before", self.descriptors_after, self.descriptors_before),
        );
        promise(lost == 0, format!("{lost} deliveries to healthy receivers were lost"));
        promise(self.stuck_deliveries == 0, format!("{} deliveries stuck", self.stuck_deliveries));
        promise(self.lured == 0, format!("{} lures were followed", self.lured));
        promise(
            self.unexpected_outcomes == 0,
            format!("{} outcomes were not as expected", self.unexpected_outcomes),
        );
        broken
    }
}

/// The server's descriptors once they are no more than `wanted` or it has been given its time; with
/// 0, once their number has stopped falling.
async fn settled(server: &Server, wanted: usize) -> usize {
    let began = Instant::now();
    let mut last = usize::MAX;
    let mut same = 0;
    loop {
        let now = server.descriptors();
        same = if now == last { same + 1 } else { 0 };
        last = now;
        // Keep-alive connections of publishers are closed by now; those to receivers stay longer.
        let still = wanted == 0 && same >= 20 && began.elapsed() > Duration::from_secs(46);
        if (wanted > 0 && now <= wanted) || still || began.elapsed() > IDLE_MAX {
            return now;
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// Attempts still under way when every one of them must have ended.
async fn idle_slots(server: &Server) -> anyhow::Result<u64> {
    let began = Instant::now();
    loop {
        let busy = server.gauge("posthorn_attempts_in_flight").await?;
        if busy == 0 || began.elapsed() > ATTEMPT_MAX + Duration::from_secs(4) {
            return Ok(busy);
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}
