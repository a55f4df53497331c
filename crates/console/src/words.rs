//! How times, spans, numbers and states are written, the same on every page.

use posthorn_domain::{Timestamp, WaitReason};

/// A span of time in two units at most.
pub(crate) fn span(millis: u64) -> String {
    const SECOND: u64 = 1_000;
    const MINUTE: u64 = 60 * SECOND;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    let two = |large: u64, small: u64, names: (&str, &str)| match (millis % large) / small {
        0 => format!("{} {}", millis / large, names.0),
        rest => format!("{} {} {rest} {}", millis / large, names.0, names.1),
    };
    match millis {
        0..SECOND => format!("{millis} ms"),
        SECOND..10_000 => format!("{}.{} s", millis / SECOND, millis % SECOND / 100),
        10_000..MINUTE => format!("{} s", millis / SECOND),
        MINUTE..HOUR => two(MINUTE, SECOND, ("m", "s")),
        HOUR..DAY => two(HOUR, MINUTE, ("h", "m")),
        _ => two(DAY, HOUR, ("d", "h")),
    }
}

/// How long ago something was, or how long it is until then.
pub(crate) fn age(at: Timestamp, now: Timestamp) -> String {
    let apart = now.as_millis() - at.as_millis();
    // Ages are read at a glance; a fraction of a second says nothing.
    let whole =
        |millis: u64| if millis < 10_000 { format!("{} s", millis / 1_000) } else { span(millis) };
    match apart {
        0.. => whole(apart.unsigned_abs()),
        _ => format!("in {}", whole(apart.unsigned_abs())),
    }
}

/// A moment, to the second, in UTC.
pub(crate) fn moment(at: Timestamp) -> String {
    let text = at.to_string();
    let (day, rest) = text.split_once('T').unwrap_or((&text, ""));
    format!("{day} {} UTC", rest.get(..8).unwrap_or(rest))
}

/// A whole number with commas between thousands.
pub(crate) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes in the unit one reads best.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if number < 1_000 {
        return format!("{number} B");
    }
    let mut rest = number as f64 / 1_000.0;
    let mut unit = 0;
    while rest >= 1_000.0 && unit + 1 < UNITS.len() {
        rest /= 1_000.0;
        unit += 1;
    }
    let places = usize::from(rest < 10.0);
    format!("{rest:.places$} {}", UNITS[unit])
}

/// How often something happens in a second.
pub(crate) fn rate(count: u64, millis: u64) -> String {
    let each = count as f64 * 1_000.0 / millis.max(1) as f64;
    match each {
        0.0 => "0 /s".to_owned(),
        each if each < 0.1 => "< 0.1 /s".to_owned(),
        each if each < 10.0 => format!("{each:.1} /s"),
        each => format!("{} /s", number(each.round() as u64)),
    }
}

/// A share in percent, never rounded to all or nothing.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    let share = part as f64 * 100.0 / whole as f64;
    match share {
        0.0 => "0 %".to_owned(),
        100.0 => "100 %".to_owned(),
        share if share < 0.1 => "< 0.1 %".to_owned(),
        share if share > 99.9 => "> 99.9 %".to_owned(),
        share if (10.0..=90.0).contains(&share) => format!("{share:.0} %"),
        share => format!("{share:.1} %"),
    }
}

/// An id that is short enough for a row: its beginning and its end.
pub(crate) fn short(id: &str) -> String {
    match id.char_indices().nth(8).zip(id.char_indices().nth_back(3)) {
        Some(((head, _), (tail, _))) if head + 4 < tail => {
            format!("{}…{}", &id[..head], &id[tail..])
        }
        _ => id.to_owned(),
    }
}

/// What a delivery waits for, after *waits for*.
pub(crate) fn waiting(reason: &str) -> &'static str {
    match WaitReason::parse(reason) {
        None | Some(WaitReason::Schedule) => "the time of its next attempt",
        Some(WaitReason::Scheduled) => "the time its event is to be delivered",
        Some(WaitReason::RetryAfter) => "as long as the receiver asked for",
        Some(WaitReason::Lane) => "those before it in its lane",
        Some(WaitReason::Rate) => "the rate of its subscription",
        Some(WaitReason::TenantRate) => "the rate of its tenant",
        Some(WaitReason::Concurrency) => "other attempts at this receiver to end",
        Some(WaitReason::Spacing) => "the gap between two attempts of its key",
        Some(WaitReason::Gate) => "its gate to open",
        Some(WaitReason::Breaker) => "the receiver to recover: the breaker is open",
        Some(WaitReason::Paused) => "its subscription, which is paused",
        Some(WaitReason::Disabled) => "its subscription, which is disabled",
        Some(WaitReason::Quota) => "room: its tenant has as much as it may",
        Some(WaitReason::Hold) => "somebody to let the server go on: it is on hold",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units_at_most() {
        let written = [
            (0, "0 ms"),
            (182, "182 ms"),
            (2_140, "2.1 s"),
            (59_999, "59 s"),
            (104_000, "1 m 44 s"),
            (300_000, "5 m"),
            (3_600_000, "1 h"),
            (97_200_000, "1 d 3 h"),
        ];
        for (millis, wanted) in written {
            assert_eq!(span(millis), wanted, "{millis}");
        }
    }

    #[test]
    fn ages_are_in_the_past_or_to_come() {
        let now = Timestamp::from_millis(1_000_000);
        assert_eq!(age(Timestamp::from_millis(997_500), now), "2 s");
        assert_eq!(age(Timestamp::from_millis(1_090_000), now), "in 1 m 30 s");
    }

    #[test]
    fn numbers_can_be_read() {
        assert_eq!(number(0), "0");
        assert_eq!(number(999), "999");
        assert_eq!(number(1_234_567), "1,234,567");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_500), "1.5 kB");
        assert_eq!(bytes(12_345_678), "12 MB");
        assert_eq!(rate(0, 60_000), "0 /s");
        assert_eq!(rate(1, 60_000), "< 0.1 /s");
        assert_eq!(rate(30_720, 60_000), "512 /s");
        assert_eq!(percent(0, 0), "–");
        assert_eq!(percent(999_999, 1_000_000), "> 99.9 %");
        assert_eq!(percent(1, 3), "33 %");
        assert_eq!(percent(991, 1_000), "99.1 %");
    }

    #[test]
    fn ids_keep_their_ends() {
        assert_eq!(short("dlv_01m7fzphbjcr03cr03cr03"), "dlv_01m7…cr03");
        assert_eq!(short("acme"), "acme");
        assert_eq!(short("ünïcödé-ünïcödé-ünïcödé"), "ünïcödé-…cödé");
    }

    #[test]
    fn every_wait_has_words_of_its_own() {
        let words: std::collections::BTreeSet<&str> =
            WaitReason::ALL.iter().map(|reason| waiting(reason.as_str())).collect();
        assert_eq!(words.len(), WaitReason::ALL.len());
        assert!(words.iter().all(|words| !words.contains('_')), "{words:?}");
    }
}
