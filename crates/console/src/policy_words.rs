//! A policy in sentences: what happens to a delivery, and when.

use posthorn_domain::policy::{
    Backoff, DeadHead, Jitter, MaxAge, OnExhausted, OrderScope, Policy, Schedule,
};

use crate::words;

/// Waits that are named one by one.
const WAITS_MAX: u32 = 8;

/// What a policy means, one sentence for each thing that somebody asks about.
pub(crate) fn sentences(policy: &Policy) -> Vec<String> {
    let mut out = vec![schedule(&policy.schedule)];
    out.extend(age(&policy.schedule));
    out.push(
        match policy.on_exhausted {
            OnExhausted::DeadLetter => "After the last attempt it is kept as a dead letter.",
            OnExhausted::Drop => "After the last attempt it is dropped, without a dead letter.",
            OnExhausted::DisableSubscription => {
                "After the last attempt it is a dead letter, and the subscription is disabled."
            }
            OnExhausted::DeleteSubscription => {
                "After the last attempt it is a dead letter, and the subscription is deleted."
            }
        }
        .to_owned(),
    );
    let limits = &policy.limits;
    let rate = limits.rate.map_or_else(String::new, |rate| format!(", at most {rate} a second"));
    out.push(format!(
        "An attempt may take {}; up to {} run at once{rate}.",
        words::span(limits.total.as_millis()),
        limits.concurrency,
    ));
    let dead = match policy.order.dead_head {
        DeadHead::Skip => "a dead letter lets the next one go on",
        DeadHead::Block => {
            "a dead letter holds up those behind it until it is retried or cancelled"
        }
    };
    out.push(match policy.order.scope {
        OrderScope::None => "Deliveries go out in any order.".to_owned(),
        OrderScope::Subscription => {
            format!("Deliveries go out one after the other, in order; {dead}.")
        }
        OrderScope::Key => {
            format!("Deliveries with the same key go out one after the other, in order; {dead}.")
        }
    });
    if let Some(failing) = &policy.failing {
        let after = words::span(failing.disable_after.as_millis());
        out.push(format!(
            "After {after} without a success the subscription is disabled; what waits is kept."
        ));
    }
    if policy.gate.is_some() {
        out.push("Before each attempt a gate is asked.".to_owned());
    }
    out
}

/// When it is tried, and how often.
fn schedule(schedule: &Schedule) -> String {
    let tries = match schedule.max_attempts {
        Some(1) => {
            return "A delivery is tried once, at once. There is no second attempt.".to_owned();
        }
        Some(times) => format!("A delivery is tried up to {times} times"),
        None => "A delivery is tried again and again".to_owned(),
    };
    let retries = schedule.max_attempts.map_or(u32::MAX, |times| times - 1);
    let waits = match &schedule.backoff {
        Backoff::Fixed { wait } => format!("every {}", words::span(wait.as_millis())),
        backoff => {
            let mut named: Vec<String> = Vec::new();
            for done in 1..=retries.min(WAITS_MAX) {
                let wait = words::span(backoff.wait(done).as_millis());
                // The rest is the same.
                if named.last() == Some(&wait)
                    && backoff.wait(done) == backoff.wait(WAITS_MAX * 100)
                {
                    break;
                }
                named.push(wait);
            }
            let named_count = u32::try_from(named.len()).unwrap_or(u32::MAX);
            let last = words::span(backoff.wait(retries.min(WAITS_MAX * 100)).as_millis());
            let rest = match retries > named_count {
                true if named.last() == Some(&last) => format!(", then every {last}"),
                true => format!(", and so on up to {last}"),
                false => String::new(),
            };
            format!("after {}{rest}", named.join(", "))
        }
    };
    let jitter = match &schedule.jitter {
        Jitter::None => String::new(),
        Jitter::Ratio { ratio } => {
            format!(" Each wait is up to {:.0} % longer or shorter.", ratio * 100.0)
        }
        Jitter::Add { to, .. } => {
            format!(" Up to {} are added to each wait.", words::span(to.as_millis()))
        }
    };
    format!("{tries}: at once, then {waits}.{jitter}")
}

/// When it is given up.
fn age(schedule: &Schedule) -> Option<String> {
    let mut text = match schedule.max_age? {
        MaxAge::Auto => {
            "It is given up when its schedule is long over, after a week at the earliest."
                .to_owned()
        }
        MaxAge::Is(age) => {
            format!("It is given up when it is {} old.", words::span(age.as_millis()))
        }
    };
    if schedule.retry_after.honour {
        let cap = words::span(schedule.retry_after.cap.as_millis());
        text.push_str(&format!(" A receiver may ask for a longer wait, up to {cap}."));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use posthorn_domain::Span;
    use posthorn_domain::policy::RetryAfter;

    use super::*;

    fn of(backoff: Backoff, max_attempts: Option<u32>) -> Schedule {
        let retry_after = RetryAfter { honour: false, cap: Span::from_secs(60) };
        Schedule { backoff, jitter: Jitter::None, max_attempts, max_age: None, retry_after }
    }

    #[test]
    fn schedules_are_told_as_they_happen() {
        let list = |waits: &[u64]| Backoff::List {
            waits: waits.iter().map(|s| Span::from_secs(*s)).collect(),
        };
        let cases = [
            (
                of(list(&[5]), Some(1)),
                "A delivery is tried once, at once. There is no second attempt.",
            ),
            (
                of(list(&[5, 300]), Some(3)),
                "A delivery is tried up to 3 times: at once, then after 5.0 s, 5 m.",
            ),
            (
                of(list(&[5, 300]), Some(9)),
                "A delivery is tried up to 9 times: at once, then after 5.0 s, 5 m, then every 5 m.",
            ),
            (
                of(Backoff::Fixed { wait: Span::from_secs(60) }, None),
                "A delivery is tried again and again: at once, then every 1 m.",
            ),
        ];
        for (schedule_given, wanted) in cases {
            assert_eq!(schedule(&schedule_given), wanted);
        }
        let cap = Span::from_secs(3_600);
        let doubling = Backoff::Exponential { initial: Span::from_secs(60), factor: 2.0, cap };
        let told = schedule(&of(doubling, Some(20)));
        assert!(told.contains("1 m, 2 m, 4 m, 8 m, 16 m, 32 m, 1 h, then every 1 h."), "{told}");
    }
}
