//! What policies mean, in tables.

mod auth;
mod envelope;
mod knobs;

use bytes::Bytes;
use serde_json::json;

use super::{Policy, Verdict, parse_retry_after, profiles};
use crate::{Answer, AttemptOutcome, FailureCode, Span, Timestamp};

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// Runs a schedule to its end with requests that take no time; seconds after the start at which
/// each attempt is made.
fn attempt_times(policy: &Policy, dice: u64) -> Vec<f64> {
    let mut times = vec![0.0];
    let mut now = START;
    for done in 1.. {
        match policy.schedule.next(done, START, now, None, dice) {
            Some(due) => now = due,
            None => break,
        }
        times.push(now.since(START).as_millis() as f64 / 1_000.0);
    }
    times
}

#[track_caller]
fn check_times(policy: &Policy, dice: u64, expected: &[f64]) {
    assert_eq!(attempt_times(policy, dice), expected);
}

#[test]
fn notificaties_reproduces_the_eight_steps() {
    let elapsed = [0.0, 25.0, 125.0, 525.0, 2125.0, 8525.0, 34125.0, 86125.0];
    check_times(&profiles::notificaties(), 7, &elapsed);
}

#[test]
fn notificaties_bases_two_and_three() {
    let with_base = |factor: f64| {
        let patch = json!({"schedule": {"backoff": {"exponential":
            {"initial": "25s", "factor": factor, "cap": "52000s"}}, "max_attempts": 5}});
        profiles::notificaties().patched(&patch).expect("valid")
    };
    check_times(&with_base(2.0), 0, &[0.0, 25.0, 75.0, 175.0, 375.0]);
    check_times(&with_base(3.0), 0, &[0.0, 25.0, 100.0, 325.0, 1000.0]);
}

#[test]
fn efgs_waits_five_minutes_six_times() {
    check_times(&profiles::efgs(), 3, &[0.0, 300.0, 600.0, 900.0, 1200.0, 1500.0]);
}

#[test]
fn cedros_doubles_from_one_second() {
    check_times(&profiles::cedros(), 1, &[0.0, 1.0, 3.0, 7.0, 15.0]);
}

#[test]
fn svix_sends_eight_times_over_28_hours() {
    let waits = [5_u64, 300, 1_800, 7_200, 18_000, 36_000, 36_000];
    let svix = profiles::svix();
    let exact = svix.patched(&json!({"schedule": {"jitter": "none"}})).expect("valid");
    check_times(&exact, 0, &[0.0, 5.0, 305.0, 2105.0, 9305.0, 27305.0, 63305.0, 99305.0]);
    // A fifth less and a fifth more, to the millisecond.
    for (done, wait) in (1..).zip(waits) {
        let millis = wait * 1_000;
        let spread = millis / 5;
        for (dice, expected) in
            [(0, millis - spread), (spread, millis), (2 * spread, millis + spread)]
        {
            let due = svix.schedule.next(done, START, START, None, dice).expect("one more");
            assert_eq!(due.since(START).as_millis(), expected, "after attempt {done}");
        }
    }
    assert_eq!(svix.schedule.next(8, START, START, None, 0), None, "eight in all");
    let asked = |seconds| {
        let asked = Some(Span::from_secs(seconds));
        let due = svix.schedule.next(2, START, START, asked, 300_000 / 5).expect("one more");
        due.since(START).as_millis() / 1_000
    };
    assert_eq!((asked(10), asked(400), asked(9_999_999)), (300, 400, 72_000));
}

#[test]
fn svix_wires_as_its_receivers_know_it() {
    let svix = profiles::svix();
    assert_eq!(svix.limits.total, Span::from_secs(30));
    assert!(!svix.request.event_headers, "no headers of ours");
    assert_eq!(svix.failing.map(|failing| failing.disable_after), Some(Span::from_secs(432_000)));
    assert_eq!(svix.order, profiles::default_profile().order);
    let headers: Vec<_> = svix.auth.iter().map(serde_json::to_value).collect();
    let wanted = json!({
        "kind": "standard_webhooks", "secret": "signing", "headers": "svix", "ids": "svix",
    });
    assert_eq!(headers.len(), 1);
    assert_eq!(headers[0].as_ref().expect("plain data"), &wanted);
    check_verdict(&svix, &answer(204, ""), Kind::Success);
    for status in [301, 308, 400, 404, 410, 429, 500] {
        check_verdict(&svix, &answer(status, ""), Kind::Retry);
    }
}

#[test]
fn cedros_recommended_configurations() {
    let with = |initial: &str, factor: f64, cap: &str| {
        let patch = json!({"schedule": {"backoff": {"exponential":
            {"initial": initial, "factor": factor, "cap": cap}}, "max_attempts": 7}});
        profiles::cedros().patched(&patch).expect("valid")
    };
    // Waits 0.5, 0.75, 1.125, 1.6875, 2.53125, 3.796875 s, each to the nearest millisecond.
    check_times(&with("500ms", 1.5, "2m"), 0, &[0.0, 0.5, 1.25, 2.375, 4.063, 6.594, 10.391]);
    check_times(&with("250ms", 2.0, "10m"), 0, &[0.0, 0.25, 0.75, 1.75, 3.75, 7.75, 15.75]);
}

#[test]
fn pca_hub_stays_in_its_windows_for_every_throw_of_the_dice() {
    let windows = [(0, 0), (11, 20), (312, 330), (913, 940), (2714, 2750), (8715, 8760)]
        .map(|(a, b)| (f64::from(a), f64::from(b)));
    for dice in 0..1_000 {
        let times = attempt_times(&profiles::pca_hub(), dice);
        assert_eq!(times.len(), windows.len());
        for (time, (from, to)) in times.iter().zip(windows) {
            assert!((from..=to).contains(time), "{time} not in {from}..={to}");
            assert_eq!(time.fract(), 0.0, "jitter is whole seconds");
        }
    }
}

#[test]
fn pca_hub_jitter_reaches_every_second_from_one_to_ten() {
    let jitter = profiles::pca_hub().schedule.jitter;
    let mut seen: Vec<u64> =
        (0..100).map(|dice| jitter.apply(Span::ZERO, dice).as_millis() / 1_000).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, (1..=10).collect::<Vec<_>>());
}

#[test]
fn default_profile_sends_twelve_times_within_a_tenth_of_its_waits() {
    let waits =
        [5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0, 10800.0, 21600.0, 43200.0, 86400.0, 86400.0];
    for dice in [0, 1, u64::MAX / 3, u64::MAX] {
        let times = attempt_times(&profiles::default_profile(), dice);
        assert_eq!(times.len(), 12);
        for (pair, wait) in times.windows(2).zip(waits) {
            let gap = pair[1] - pair[0];
            assert!((wait * 0.9 - 0.001..=wait * 1.1 + 0.001).contains(&gap), "{gap} for {wait}");
        }
    }
}

#[test]
fn retry_after_only_ever_lengthens_and_is_clamped() {
    let schedule = profiles::default_profile().schedule;
    let next = |asked: u64| {
        let asked = Some(Span::from_secs(asked));
        let due = schedule.next(1, START, START, asked, 0).expect("budget left");
        due.since(START).as_millis() / 1_000
    };
    assert_eq!(next(1), 4, "shorter than the schedule: ignored (5 s less 10 % jitter)");
    assert_eq!(next(60), 60);
    assert_eq!(next(9_999_999), 86_400);
}

#[test]
fn an_automatic_age_fits_the_schedule() {
    let default = profiles::default_profile();
    let began = Timestamp::from_millis(0);
    let days = |n: u64| began.plus(Span::from_secs(n * 86_400));
    assert!(!default.schedule.outlives(began, days(7)), "its waits take 3.2 days at their longest");
    assert!(default.schedule.outlives(began, days(7).plus(Span::from_millis(1))));
    let patch = json!({"schedule": {"backoff": {"fixed": {"wait": "1d"}}, "jitter": "none",
        "max_attempts": 31}});
    let long = default.patched(&patch).expect("valid");
    assert!(!long.schedule.outlives(began, days(60)) && long.schedule.outlives(began, days(61)));
    let text = serde_json::to_value(&long).expect("plain data");
    assert_eq!(text["schedule"]["max_age"], "auto");
    let endless = json!({"schedule": {"max_attempts": null}});
    let error = default.patched(&endless).expect_err("auto needs a number of attempts");
    assert_eq!(error.path, "schedule");
    for (name, policy) in profiles::shipped() {
        let plain = name.as_str() == profiles::DEFAULT;
        assert_eq!(policy.schedule.max_age.is_some(), plain, "{name:?}");
        assert_eq!(policy.breaker.is_some() && policy.failing.is_some(), plain, "{name:?}");
        let disables = plain || name.as_str() == "svix";
        assert_eq!(policy.breaker.is_none(), !plain, "{name:?}");
        assert_eq!(policy.failing.is_some(), disables, "{name:?}");
    }
}

#[test]
fn breaker_and_failing_are_switched_off_and_on() {
    let default = profiles::default_profile();
    let off = default.patched(&json!({"breaker": null, "failing": null})).expect("valid");
    assert_eq!((off.breaker, off.failing), (None, None));
    let on = off.patched(&json!({"breaker": {}})).expect("valid");
    assert_eq!(on.breaker, default.breaker);
    for (patch, path) in [
        (json!({"breaker": {"open_after": 0}}), "breaker.open_after"),
        (json!({"breaker": {"longest": "2h"}}), "breaker.longest"),
        (json!({"failing": {"disable_after": "10ms"}}), "failing.disable_after"),
    ] {
        assert_eq!(default.patched(&patch).expect_err("refused").path, path);
    }
}

#[test]
fn max_age_ends_a_schedule() {
    let patch = json!({"schedule": {"max_attempts": null, "max_age": "1h",
        "backoff": {"fixed": {"wait": "20m"}}, "jitter": "none"}});
    let policy = profiles::default_profile().patched(&patch).expect("valid");
    check_times(&policy, 0, &[0.0, 1200.0, 2400.0, 3600.0]);
}

#[test]
fn retry_after_texts() {
    let now = Timestamp::from_millis(1_445_412_480_000); // Wed, 21 Oct 2015 07:28:00 GMT
    for (text, seconds) in [
        ("120", Some(120)),
        (" 5 ", Some(5)),
        ("0", Some(0)),
        ("9999999", Some(9_999_999)),
        ("Wed, 21 Oct 2015 07:28:30 GMT", Some(30)),
        ("Wed, 21 Oct 2015 07:27:00 GMT", Some(0)),
        ("-1", None),
        ("1.5", None),
        ("9e18", None),
        ("NaN", None),
        ("99999999", None),
        ("", None),
        ("Wed, 21 Oct 2015 07:28:30 CET", None),
        ("soon", None),
    ] {
        assert_eq!(parse_retry_after(text, now), seconds.map(Span::from_secs), "{text:?}");
    }
}

fn answer(status: u16, body: &str) -> AttemptOutcome {
    AttemptOutcome::Answered(Answer {
        status,
        retry_after: None,
        content_type: None,
        body: Bytes::from(body.to_owned()),
    })
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Success,
    Retry,
    Permanent,
    Gone,
}

#[track_caller]
fn check_verdict(policy: &Policy, outcome: &AttemptOutcome, expected: Kind) {
    let kind = match policy.classify(outcome, START) {
        Verdict::Success => Kind::Success,
        Verdict::Retry { .. } => Kind::Retry,
        Verdict::Permanent => Kind::Permanent,
        Verdict::Gone => Kind::Gone,
    };
    assert_eq!(kind, expected, "{outcome:?}");
}

#[test]
fn default_classification() {
    let policy = profiles::default_profile();
    for status in [200, 201, 204, 299] {
        check_verdict(&policy, &answer(status, ""), Kind::Success);
    }
    for status in [199, 300, 301, 307, 400, 404, 409, 429, 500, 503] {
        check_verdict(&policy, &answer(status, ""), Kind::Retry);
    }
    check_verdict(&policy, &answer(410, ""), Kind::Gone);
    let failed = |code| AttemptOutcome::Failed { code, detail: String::new() };
    check_verdict(&policy, &failed(FailureCode::ResponseTimeout), Kind::Retry);
    check_verdict(&policy, &failed(FailureCode::AddressNotAllowed), Kind::Retry);
    check_verdict(&policy, &failed(FailureCode::UrlNotAllowed), Kind::Permanent);
}

#[test]
fn every_status_means_what_the_policy_says_and_nothing_else_does() {
    let default = profiles::default_profile();
    let strict = default
        .patched(&json!({"success": ["200", "202"], "permanent": {"status": ["4xx"],
            "gone": "retry"}}))
        .expect("valid");
    for status in 100..=599 {
        let outcome = answer(status, "{}");
        let expected = match status {
            200..=299 => Kind::Success,
            410 => Kind::Gone,
            _ => Kind::Retry,
        };
        check_verdict(&default, &outcome, expected);
        let expected = match status {
            200 | 202 => Kind::Success,
            400..=499 => Kind::Permanent,
            _ => Kind::Retry,
        };
        check_verdict(&strict, &outcome, expected);
        let throttles =
            matches!(default.classify(&outcome, START), Verdict::Retry { throttle: true, .. });
        assert_eq!(throttles, matches!(status, 429 | 502 | 503 | 504), "{status}");
    }
    // Success is success, whatever the body says; a redirect never is.
    check_verdict(&default, &answer(200, "error: permanent failure, do not retry"), Kind::Success);
    check_verdict(&default, &answer(500, "success 200 OK"), Kind::Retry);
    // Without an answer there is one more chance, except where there can never be one.
    for code in FailureCode::ALL {
        let failed = AttemptOutcome::Failed { code, detail: "410 Gone 200 OK".to_owned() };
        let hopeless = [
            FailureCode::UrlNotAllowed,
            FailureCode::FamilyNotRouted,
            FailureCode::MessageTooLarge,
        ];
        let expected = if hopeless.contains(&code) { Kind::Permanent } else { Kind::Retry };
        check_verdict(&default, &failed, expected);
        assert_eq!(FailureCode::parse(code.as_str()), Some(code));
    }
}

#[test]
fn failures_of_ours_are_not_held_against_a_receiver() {
    let ours: Vec<_> = FailureCode::ALL
        .into_iter()
        .filter(|c| !c.blames_receiver())
        .map(FailureCode::as_str)
        .collect();
    let expected = [
        "url_refused",
        "request_invalid",
        "family_not_routed",
        "auth_unavailable",
        "certificate_unavailable",
        "token_unavailable",
        "message_too_large",
        "push_unavailable",
        "internal",
    ];
    assert_eq!(ours, expected);
}

#[test]
fn a_body_rule_looks_at_the_shape_of_json_and_never_for_words() {
    let policy = profiles::pca_hub();
    for body in [
        "",
        "null",
        "[]",
        "\"status code message domain trace\"",
        r#"{"status":null,"code":"c","message":"m","domain":"d","trace":"t"}"#,
        r#"{"status":400,"code":1,"message":"m","domain":"d","trace":"t"}"#,
        r#"{"Status":400,"code":"c","message":"m","domain":"d","trace":"t"}"#,
        r#"[{"status":400,"code":"c","message":"m","domain":"d","trace":"t"}]"#,
        r#"{"error":{"status":400,"code":"c","message":"m","domain":"d","trace":"t"}}"#,
        r#"{"status":400,"code":"c","message":"m","domain":"d","trace":"t"} x"#,
        "status: 400, code: c, message: m, domain: d, trace: t",
    ] {
        check_verdict(&policy, &answer(400, body), Kind::Retry);
    }
    let bytes = Bytes::from_static(b"\xff\xfe{\"status\":400}");
    let binary = AttemptOutcome::Answered(Answer {
        status: 400,
        retry_after: None,
        content_type: None,
        body: bytes,
    });
    check_verdict(&policy, &binary, Kind::Retry);
    let deep = format!("{}{}", "[".repeat(16_000), "]".repeat(384));
    check_verdict(&policy, &answer(400, &deep), Kind::Retry);
}

#[test]
fn absurd_retry_afters_neither_shorten_nor_lengthen_beyond_a_day() {
    let policy = profiles::default_profile();
    let wait = |retry_after: &str| {
        let outcome = AttemptOutcome::Answered(Answer {
            status: 503,
            retry_after: Some(retry_after.to_owned()),
            content_type: None,
            body: Bytes::new(),
        });
        let Verdict::Retry { asked, throttle: true } = policy.classify(&outcome, START) else {
            panic!("a 503 is worth another try")
        };
        let due = policy.schedule.next(1, START, START, asked, 0).expect("budget left");
        due.since(START).as_millis()
    };
    let usual = 4_500;
    let long_number = "9".repeat(1 << 20);
    let long_text = "x".repeat(1 << 20);
    let long_blanks = " ".repeat(1 << 20);
    for ignored in [
        "",
        " ",
        "-1",
        "+5",
        "1.5",
        "1e9",
        "9e18",
        "NaN",
        "inf",
        "Infinity",
        "0x10",
        "１２",
        "٣",
        "60 s",
        "60, 90",
        "60;",
        "99999999",
        "18446744073709551616",
        "-9223372036854775808",
        "Wed, 15 Nov 2023 00:00:00",
        "Wed, 15 Nov 2023 00:00:00 UTC",
        "Wed, 15 Nov 2023 00:00:00 gmt",
        "Wednesday, 15-Nov-23 00:00:00 GMT",
        "Wed Nov 15 00:00:00 2023",
        "Thu, 15 Nov 2023 00:00:00 GMT",
        "Wed, 15 Nov 2023 24:00:00 GMT",
        "Wed, 15 Nov 2023 00:60:00 GMT",
        "Wed, 31 Nov 2023 00:00:00 GMT",
        "Wed,  1 Nov 2023 00:00:00 GMT",
        "wed, 15 nov 2023 00:00:00 GMT",
        "Wed, 15 Nov 20230:00:00:00 GMT",
        "2023-11-15T00:00:00Z",
        &long_number,
        &long_text,
        &long_blanks,
    ] {
        assert_eq!(wait(ignored), usual, "{ignored:.60}");
    }
    // In the past, now, or sooner than the schedule: only ever longer.
    for short in
        ["0", "1", "0000004", "Thu, 01 Jan 1970 00:00:00 GMT", "Tue, 14 Nov 2023 22:13:21 GMT"]
    {
        assert_eq!(wait(short), usual, "{short}");
    }
    for (asked, seconds) in [
        ("60", 60),
        ("0000060", 60),
        (" 60\t", 60),
        ("86400", 86_400),
        ("86401", 86_400),
        ("9999999", 86_400),
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400),
    ] {
        assert_eq!(wait(asked), seconds * 1_000, "{asked}");
    }
}

#[test]
fn pca_hub_classification() {
    let policy = profiles::pca_hub();
    let standard = r#"{"status":400,"code":"c","message":"m","domain":"d","trace":"t","more":1}"#;
    let four_keys = r#"{"status":400,"code":"c","message":"m","domain":"d"}"#;
    let text_status = r#"{"status":"400","code":"c","message":"m","domain":"d","trace":"t"}"#;
    check_verdict(&policy, &answer(200, ""), Kind::Success);
    for status in [201, 204, 502, 503] {
        check_verdict(&policy, &answer(status, "<html>"), Kind::Retry);
    }
    for status in [400, 401, 403, 404, 503] {
        check_verdict(&policy, &answer(status, standard), Kind::Permanent);
    }
    for status in [409, 500] {
        check_verdict(&policy, &answer(status, standard), Kind::Retry);
    }
    check_verdict(&policy, &answer(400, four_keys), Kind::Retry);
    check_verdict(&policy, &answer(400, text_status), Kind::Retry);
    check_verdict(&policy, &answer(400, "<html>"), Kind::Retry);
}

#[test]
fn shipped_profiles_are_valid_and_round_trip() {
    for (name, policy) in profiles::shipped() {
        policy.validate().unwrap_or_else(|e| panic!("{name}: {e}"));
        let text = serde_json::to_string(&policy).expect("serialises");
        assert_eq!(serde_json::from_str::<Policy>(&text).expect("reads back"), policy, "{name}");
    }
}

#[test]
fn policies_that_can_never_work_are_refused() {
    let base = profiles::default_profile();
    for (patch, path) in [
        (json!({"schedule": {"max_attempts": 0}}), "schedule.max_attempts"),
        (json!({"schedule": {"max_attempts": 1001}}), "schedule.max_attempts"),
        (json!({"schedule": {"max_attempts": null}}), "schedule"),
        (
            json!({"schedule": {"backoff": {"fixed": {"wait": "-5s"}}}}),
            "schedule.backoff.fixed.wait",
        ),
        (json!({"schedule": {"backoff": {"list": {"waits": []}}}}), "schedule.backoff.list.waits"),
        (
            json!({"schedule": {"backoff": {"exponential": {"initial": "1s", "factor": 0.5, "cap": "1m"}}}}),
            "schedule.backoff.exponential.factor",
        ),
        (json!({"schedule": {"jitter": {"ratio": {"ratio": 1.5}}}}), "schedule.jitter.ratio.ratio"),
        (json!({"success": []}), "success"),
        (json!({"success": ["3xx"]}), "success"),
        (json!({"success": ["2yy"]}), "success[0]"),
        (json!({"limits": {"concurrency": 0}}), "limits.concurrency"),
        (json!({"limits": {"total": "0s"}}), "limits.total"),
        (json!({"limits": {"rate": 0.0}}), "limits.rate"),
        (json!({"lease": {"time": "10s"}}), "lease.time"),
        (json!({"spacing": "2s"}), "spacing"),
        (json!({"request": {"method": "GET"}}), "request.body"),
        (json!({"request": {"headers": {"Host": "x"}}}), "request.headers.Host"),
        (
            json!({"request": {"headers": {"Metadata-Flavor": "Google"}}}),
            "request.headers.Metadata-Flavor",
        ),
        (json!({"request": {"headers": {"X-A": "a\r\nb"}}}), "request.headers.X-A"),
        (json!({"schedul": {}}), "schedul"),
        (json!([1]), "policy"),
    ] {
        let error = base.patched(&patch).expect_err(&patch.to_string());
        assert_eq!(error.path, path, "{patch}: {error}");
    }
}

#[test]
fn patches_replace_choices_and_merge_records() {
    let base = profiles::default_profile();
    let patch = json!({"schedule": {"backoff": {"fixed": {"wait": "1s"}}, "jitter": "none"},
        "request": {"headers": {"X-One": "1"}}});
    let once = base.patched(&patch).expect("valid");
    assert_eq!(once.schedule.max_attempts, Some(12), "untouched fields stay");
    let twice = once
        .patched(&json!({"request": {"headers": {"X-Two": "2", "X-One": null}}}))
        .expect("valid");
    assert_eq!(twice.request.headers.keys().collect::<Vec<_>>(), ["X-Two"]);
}

#[test]
fn header_values_that_cannot_be_sent_are_refused_and_others_are_not() {
    let with = |value: &str| {
        profiles::default_profile()
            .patched(&serde_json::json!({"request": {"headers": {"X-A": value}}}))
    };
    for value in ["plain", "a\tb", "{event.id}; q=\"1\"", r"back\r\nslashes", ""] {
        assert!(with(value).is_ok(), "{value:?}");
    }
    for value in ["a\rb", "a\nb", "a\0b", "\u{14}", "\u{7F}", "caf\u{E9}", &"x".repeat(4_097)] {
        let error = with(value).expect_err(value);
        assert_eq!(error.path, "request.headers.X-A");
    }
}
