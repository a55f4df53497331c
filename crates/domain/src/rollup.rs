//! What happened in a minute or an hour, in figures: for pictures of the past.
//!
//! A rollup says of one scope (the server, a realm, a tenant, a subscription, a topic) what was counted in one step of
//! time. Those of several nodes, and of the minutes of an hour, add up. They are figures, not the
//! truth: what a node had counted in its last second is lost when it is killed. What there is for
//! certain is in the log and in the counts of the store.

use std::fmt;
use std::str::FromStr;

use crate::{
    FailureCode, Outcome, RealmName, Span, SubscriptionId, TenantId, Timestamp, TopicName,
};

/// About whom.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RollupScope {
    /// All tenants together.
    Server,
    /// All tenants of one realm.
    Realm(RealmName),
    /// One tenant.
    Tenant(TenantId),
    /// One subscription.
    Subscription(SubscriptionId),
    /// What is published on one topic of a tenant.
    Topic(TenantId, TopicName),
}

/// How the text of a realm begins. No id begins like it.
const REALM: &str = "realm:";
/// The same of a topic, behind which stand its tenant and its name.
const TOPIC: &str = "topic:";

/// As stores keep it. Ids say what they are of; whatever else comes must have a name of its own.
impl fmt::Display for RollupScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server => f.write_str("server"),
            Self::Realm(name) => write!(f, "{REALM}{name}"),
            Self::Tenant(id) => id.fmt(f),
            Self::Subscription(id) => id.fmt(f),
            Self::Topic(tenant, name) => write!(f, "{TOPIC}{tenant}:{name}"),
        }
    }
}

impl RollupScope {
    /// The texts of all topics of a tenant are between these two.
    pub fn topics_of(tenant: TenantId) -> (String, String) {
        // What comes after a colon.
        (format!("{TOPIC}{tenant}:"), format!("{TOPIC}{tenant};"))
    }
}

impl FromStr for RollupScope {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, UnknownScope> {
        if text == "server" {
            return Ok(Self::Server);
        }
        if let Some(name) = text.strip_prefix(REALM) {
            return RealmName::new(name).map(Self::Realm).map_err(|_| UnknownScope);
        }
        if let Some(rest) = text.strip_prefix(TOPIC) {
            // Ids have no colon; names may.
            let (tenant, name) = rest.split_once(':').ok_or(UnknownScope)?;
            let tenant = tenant.parse().map_err(|_| UnknownScope)?;
            let name = TopicName::new(name).map_err(|_| UnknownScope)?;
            return Ok(Self::Topic(tenant, name));
        }
        let tenant = text.parse().map(Self::Tenant).ok();
        let subscription = || text.parse().map(Self::Subscription).ok();
        tenant.or_else(subscription).ok_or(UnknownScope)
    }
}

/// A text that names no scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the server, a realm, a tenant, a subscription or a topic")]
pub struct UnknownScope;

/// How long the steps of a series are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RollupStep {
    /// A minute.
    Minute,
    /// An hour.
    Hour,
}

impl RollupStep {
    /// How long it is.
    pub const fn span(self) -> Span {
        match self {
            Self::Minute => Span::from_secs(60),
            Self::Hour => Span::from_secs(3_600),
        }
    }

    /// How long its rollups are kept.
    pub const fn kept(self) -> Span {
        match self {
            Self::Minute => Span::from_secs(48 * 3_600),
            Self::Hour => Span::from_secs(90 * 24 * 3_600),
        }
    }

    /// The beginning of the step that a moment is in.
    pub fn floor(self, at: Timestamp) -> Timestamp {
        let millis = i64::try_from(self.span().as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(at.as_millis().div_euclid(millis).saturating_mul(millis))
    }

    /// The first beginning of a step that is not before a moment.
    pub fn ceil(self, at: Timestamp) -> Timestamp {
        let floor = self.floor(at);
        if floor == at { at } else { floor.plus(self.span()) }
    }

    /// The name of it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
        }
    }
}

/// Why an attempt did not succeed, roughly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureClass {
    /// An answer of the 2xx that the policy does not take for success.
    Unwanted,
    /// A redirect, which is never followed.
    Redirect,
    /// The receiver says that the request is wrong.
    Refused,
    /// The receiver says that it is in trouble.
    Broken,
    /// Nothing came in time.
    Timeout,
    /// There was no connection, or it broke, or what came was no answer.
    Connection,
    /// Whatever else: trouble with the request itself, or of ours.
    Other,
}

impl FailureClass {
    /// All of them, in the order in which they are kept.
    pub const ALL: [FailureClass; 7] = [
        Self::Unwanted,
        Self::Redirect,
        Self::Refused,
        Self::Broken,
        Self::Timeout,
        Self::Connection,
        Self::Other,
    ];

    /// Of what an attempt came to that did not succeed.
    pub const fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Status(200..=299) => Self::Unwanted,
            Outcome::Status(300..=399) => Self::Redirect,
            Outcome::Status(400..=499) => Self::Refused,
            Outcome::Status(500..=599) => Self::Broken,
            Outcome::Status(_) => Self::Other,
            Outcome::Failure(code) => Self::of_failure(code),
        }
    }

    const fn of_failure(code: FailureCode) -> Self {
        match code {
            FailureCode::DnsTimeout
            | FailureCode::ConnectTimeout
            | FailureCode::TlsTimeout
            | FailureCode::ResponseTimeout
            | FailureCode::AttemptTimeout => Self::Timeout,
            // To tenants a closed address looks like a name that leads nowhere, here as well.
            FailureCode::AddressNotAllowed
            | FailureCode::DnsFailed
            | FailureCode::ConnectFailed
            | FailureCode::ProxyFailed
            | FailureCode::TlsCertificateInvalid
            | FailureCode::TlsFailed
            | FailureCode::ConnectionClosed
            | FailureCode::ProtocolError
            | FailureCode::ResponseHeadTooLarge => Self::Connection,
            FailureCode::UrlNotAllowed
            | FailureCode::UrlRefused
            | FailureCode::RequestInvalid
            | FailureCode::FamilyNotRouted
            | FailureCode::AuthUnavailable
            | FailureCode::CertificateUnavailable
            | FailureCode::TokenUnavailable
            | FailureCode::MessageTooLarge
            | FailureCode::PushUnavailable
            | FailureCode::Internal => Self::Other,
        }
    }

    /// The word for it; classes of statuses are called as in the filters of lists.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unwanted => "2xx",
            Self::Redirect => "3xx",
            Self::Refused => "4xx",
            Self::Broken => "5xx",
            Self::Timeout => "timeout",
            Self::Connection => "connection",
            Self::Other => "other",
        }
    }
}

/// The upper ends of all buckets but the last, which has none, in milliseconds. An attempt is in the
/// first bucket whose end it does not exceed.
pub const LATENCY_BOUNDS_MS: [u64; 15] =
    [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000];

/// How many buckets there are.
pub const LATENCY_BUCKETS: usize = LATENCY_BOUNDS_MS.len() + 1;

/// What was counted of one scope in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RollupCounts {
    /// Events that were accepted; of a subscription, those that it gets.
    pub published: u64,
    /// Deliveries that were delivered.
    pub delivered: u64,
    /// Deliveries that became dead letters.
    pub dead: u64,
    /// Attempts that did not succeed, in the order of [`FailureClass::ALL`].
    pub failed: [u64; FailureClass::ALL.len()],
    /// Attempts by how long they took, see [`LATENCY_BOUNDS_MS`].
    pub took: [u64; LATENCY_BUCKETS],
    /// Unfinished deliveries, where somebody has looked; the most that were seen.
    pub backlog: Option<u64>,
}

impl RollupCounts {
    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// One more attempt; `failed` says why it did not succeed.
    pub fn attempted(&mut self, took: Span, failed: Option<FailureClass>) {
        let took = took.as_millis();
        self.took[LATENCY_BOUNDS_MS.partition_point(|bound| *bound < took)] += 1;
        if let Some(class) = failed {
            self.failed[class as usize] += 1;
        }
    }

    /// How many attempts were made.
    pub fn attempts(&self) -> u64 {
        self.took.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// What this and another say together.
    pub fn add(&mut self, other: &Self) {
        let Self { published, delivered, dead, failed, took, backlog } = other;
        self.published = self.published.saturating_add(*published);
        self.delivered = self.delivered.saturating_add(*delivered);
        self.dead = self.dead.saturating_add(*dead);
        let own = self.failed.iter_mut().chain(&mut self.took);
        for (own, other) in own.zip(failed.iter().chain(took)) {
            *own = own.saturating_add(*other);
        }
        self.backlog = self.backlog.max(*backlog);
    }

    /// How long the quickest of this share of attempts (from 0 to 1) took at most, in milliseconds; `None`
    /// without attempts. It is as exact as the buckets: inside of one, attempts count as spread evenly.
    /// Of the last bucket only its beginning is known.
    pub fn quantile_ms(&self, share: f64) -> Option<f64> {
        let all = self.attempts();
        if all == 0 {
            return None;
        }
        let wanted = (all as f64 * share.clamp(0.0, 1.0)).max(f64::MIN_POSITIVE);
        let mut before = 0.0;
        for (index, count) in self.took.iter().enumerate() {
            let here = *count as f64;
            if before + here >= wanted && *count > 0 {
                let begin = index.checked_sub(1).map_or(0, |below| LATENCY_BOUNDS_MS[below]);
                let Some(end) = LATENCY_BOUNDS_MS.get(index) else { return Some(begin as f64) };
                let part = (wanted - before) / here;
                return Some(begin as f64 + (*end - begin) as f64 * part);
            }
            before += here;
        }
        LATENCY_BOUNDS_MS.last().map(|end| *end as f64)
    }

    /// As stores keep it: each number in groups of seven bits, the lowest first; zeros at the end are left
    /// out. Mostly some twenty bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let numbers = self.numbers();
        let used = numbers.iter().rposition(|number| *number != 0).map_or(0, |last| last + 1);
        let mut bytes = Vec::with_capacity(used * 2);
        for mut number in numbers[..used].iter().copied() {
            while number >= 0x80 {
                bytes.push((number & 0x7f) as u8 | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
        }
        bytes
    }

    /// Back from a store; `None` when it is nothing that [`RollupCounts::to_bytes`] made.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut numbers = [0; NUMBERS];
        let (mut place, mut shift) = (0, 0);
        for byte in bytes {
            let part = u64::from(byte & 0x7f);
            let slot = numbers.get_mut(place)?;
            *slot |= part.checked_shl(shift).filter(|moved| moved >> shift == part)?;
            if byte & 0x80 == 0 {
                (place, shift) = (place + 1, 0);
            } else {
                shift += 7;
            }
        }
        (shift == 0).then(|| Self::of_numbers(&numbers))
    }

    /// In the order in which they are kept. New ones come last.
    fn numbers(&self) -> [u64; NUMBERS] {
        let backlog = self.backlog.map_or(0, |backlog| backlog.saturating_add(1));
        let first = [backlog, self.published, self.delivered, self.dead];
        let mut all = first.into_iter().chain(self.failed).chain(self.took);
        std::array::from_fn(|_| all.next().unwrap_or_default())
    }

    fn of_numbers(numbers: &[u64; NUMBERS]) -> Self {
        let [backlog, published, delivered, dead, rest @ ..] = numbers;
        let classes = FailureClass::ALL.len();
        Self {
            published: *published,
            delivered: *delivered,
            dead: *dead,
            failed: std::array::from_fn(|index| rest[index]),
            took: std::array::from_fn(|index| rest[classes + index]),
            backlog: backlog.checked_sub(1),
        }
    }
}

/// How many numbers are kept of one rollup.
const NUMBERS: usize = 4 + FailureClass::ALL.len() + LATENCY_BUCKETS;

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(numbers: [u64; NUMBERS]) -> RollupCounts {
        RollupCounts::of_numbers(&numbers)
    }

    #[test]
    fn what_is_kept_reads_back() {
        let many = counts(std::array::from_fn(|index| (index as u64).pow(7)));
        let most = counts([u64::MAX; NUMBERS]);
        let sampled = RollupCounts { backlog: Some(0), ..RollupCounts::default() };
        for counts in [RollupCounts::default(), sampled, many, most] {
            assert_eq!(RollupCounts::from_bytes(&counts.to_bytes()), Some(counts));
        }
        assert_eq!(RollupCounts::default().to_bytes(), [0; 0]);
        assert_eq!(sampled.to_bytes(), [1]);
    }

    #[test]
    fn nonsense_is_noticed() {
        let long = [1; NUMBERS + 1];
        let wide = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        let endless = [0x80; 40];
        for bytes in [&long[..], &wide, &endless, &[0x80]] {
            assert_eq!(RollupCounts::from_bytes(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn rollups_add_up() {
        let mut sum = counts(std::array::from_fn(|index| index as u64));
        sum.backlog = Some(7);
        let other = counts(std::array::from_fn(|index| 100 * index as u64));
        sum.add(&RollupCounts { backlog: Some(3), ..other });
        let mut expected = counts(std::array::from_fn(|index| 101 * index as u64));
        expected.backlog = Some(7);
        assert_eq!(sum, expected);
        sum.add(&RollupCounts::default());
        assert_eq!(sum, expected);
    }

    #[test]
    fn every_failure_has_its_class() {
        for (status, class) in
            [(204, "2xx"), (301, "3xx"), (410, "4xx"), (503, "5xx"), (101, "other")]
        {
            assert_eq!(FailureClass::of(Outcome::Status(status)).as_str(), class);
        }
        for code in FailureCode::ALL {
            let class = FailureClass::of(Outcome::Failure(code));
            // What tenants may not tell apart is in one class.
            assert_eq!(class, FailureClass::of(Outcome::Failure(code.for_tenants())), "{code:?}");
            let late = code.as_str().ends_with("_timeout");
            assert_eq!(class == FailureClass::Timeout, late, "{code:?}");
        }
        for (place, class) in FailureClass::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, place);
        }
    }

    #[test]
    fn attempts_are_in_the_first_bucket_they_do_not_exceed() {
        for (millis, bucket) in
            [(0, 0), (1, 0), (2, 1), (3, 2), (5, 2), (6, 3), (50_000, 14), (50_001, 15)]
        {
            let mut counts = RollupCounts::default();
            counts.attempted(Span::from_millis(millis), None);
            assert_eq!(counts.took[bucket], 1, "{millis}");
            assert_eq!(counts.attempts(), 1);
        }
    }

    #[test]
    fn quantiles_are_read_off_the_buckets() {
        let mut counts = RollupCounts::default();
        assert_eq!(counts.quantile_ms(0.5), None);
        for _ in 0..10 {
            counts.attempted(Span::from_millis(15), None);
        }
        assert_eq!(counts.quantile_ms(0.5), Some(15.0));
        assert_eq!(counts.quantile_ms(1.0), Some(20.0));
        for _ in 0..20 {
            counts.attempted(Span::from_millis(700), Some(FailureClass::Broken));
        }
        assert_eq!(counts.quantile_ms(0.5), Some(625.0));
        let mut slow = RollupCounts::default();
        slow.attempted(Span::from_secs(90), Some(FailureClass::Timeout));
        assert_eq!(slow.quantile_ms(0.99), Some(50_000.0));
    }

    #[test]
    fn scopes_and_steps_have_one_text() {
        let at = Timestamp::from_millis(1_700_000_000_123);
        let (tenant, subscription) = (TenantId::new(at, 1), SubscriptionId::new(at, 2));
        let all = [
            RollupScope::Server,
            RollupScope::Realm(RealmName::default()),
            RollupScope::Tenant(tenant),
            RollupScope::Subscription(subscription),
            RollupScope::Topic(tenant, TopicName::new("a:b/c").expect("a name")),
        ];
        for scope in all {
            assert_eq!(scope.to_string().parse(), Ok(scope));
        }
        for text in ["", "realm:", "realm:a b", "galaxy:default"] {
            assert_eq!(text.parse::<RollupScope>(), Err(UnknownScope), "{text}");
        }
        let minute = RollupStep::Minute.floor(at);
        assert_eq!(minute, Timestamp::from_millis(1_699_999_980_000));
        assert_eq!(RollupStep::Minute.floor(minute), minute);
        assert_eq!(RollupStep::Minute.ceil(minute), minute);
        assert_eq!(RollupStep::Minute.ceil(at), Timestamp::from_millis(1_700_000_040_000));
        assert_eq!(RollupStep::Hour.floor(at), Timestamp::from_millis(1_699_999_200_000));
    }
}
