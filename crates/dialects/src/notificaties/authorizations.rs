//! Rights from an Autorisaties API: asked for where nothing is said of a client here, and kept for a
//! while.
//!
//! # The rule
//! An answer counts for [`Authorizations::cache`] without asking again. After that the API is asked, once
//! for all requests of a client; while it does not answer, the last answer goes on counting until it
//! is [`Authorizations::stale`] old. Then, and where there was none, nobody is let in: a client is told to
//! come back (503), since what it may do is not known. A client that the API does not know may do
//! nothing, and that is kept like any answer. After a question without an answer there is a pause, which
//! ends when somebody says that rights changed.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use posthorn_domain::{Problem, Span, Timestamp, setting};
use posthorn_sealing::jwt::{ZgwClaims, sign};
use posthorn_sealing::vault::Secret;
use serde::{Deserialize, Deserializer, de::Error};
use tokio::sync::watch;
use tracing::{info, warn};

use super::access::Scope;

/// The kanaal in which the API says that rights changed.
pub(super) const KANAAL: &str = "autorisaties";
/// How long a token of ours counts.
const TOKEN_SECONDS: i64 = 3_600;
/// How long a question may take, all its pages together: a client waits for it.
const DEADLINE: Duration = Duration::from_secs(3);
/// After a question that nobody answered the API is left alone so long, or for the time of the cache
/// where that is shorter.
const PAUSE: Span = Span::from_secs(30);
/// The least of that, from when it was asked, whatever changes: who says all the time that rights changed must
/// not have everybody wait for an API that hangs.
const PAUSE_MIN: Span = Span::from_secs(6);
/// Pages that are read: the applications of one client are on the first.
const PAGES_MAX: u32 = 10;
/// Of each kind one line is written in this time; the next one says how many were left out.
const LINE_EVERY: Span = Span::from_secs(10);
/// What rights in this API are called there.
const COMPONENT: &str = "nrc";

/// A way to ask: a URL and a value of `Authorization`; what comes back is a status and a body, or why
/// nothing did.
pub type Fetch = Arc<dyn Fn(String, String) -> Fetching + Send + Sync>;
/// See [`Fetch`].
pub type Fetching = Pin<Box<dyn Future<Output = Result<(u16, Bytes), Problem>> + Send>>;

/// The Autorisaties API that is asked.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authorizations {
    /// Where it begins, without a slash at the end: `https://openzaak.example.nl/autorisaties/api/v1`.
    /// Empty: nobody is asked.
    #[serde(deserialize_with = "beginning")]
    pub url: String,
    /// Who we are there.
    #[serde(deserialize_with = "setting::or_default")]
    pub client_id: String,
    /// What our tokens are signed with.
    #[serde(deserialize_with = "setting::or_default")]
    pub secret: Secret,
    /// How long an answer counts without asking again.
    #[serde(deserialize_with = "setting::some_time")]
    pub cache_time: Span,
    /// How long it counts while the API does not answer.
    pub stale_time: Span,
}

impl Authorizations {
    /// Whether anybody is.
    pub fn is_asked(&self) -> bool {
        !self.url.is_empty()
    }
}

fn beginning<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text: String = setting::or_default(deserializer)?;
    let url = text.trim_end_matches('/');
    if !text.is_empty() && super::site(url).is_none() {
        let problem = "must be where the API begins, such as \
                       https://openzaak.example.nl/autorisaties/api/v1";
        return Err(Error::custom(problem));
    }
    Ok(url.to_owned())
}

/// How often somebody said that rights changed. What was asked before the last time is asked anew.
#[derive(Clone, Default)]
pub(crate) struct Changes(Arc<AtomicU64>);

impl Changes {
    /// Somebody says so.
    pub(crate) fn note(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// When a question was put: the time, and the changes that were known of by then.
#[derive(Clone, Copy)]
struct Moment {
    at: Timestamp,
    changes: u64,
}

impl Moment {
    /// Whether it was less than `span` before `now`.
    fn is_within(self, span: Span, now: Timestamp) -> bool {
        self.at <= now && now.since(self.at) < span
    }
}

struct Known {
    scopes: BTreeSet<Scope>,
    asked: Moment,
}

/// What is known of one client.
#[derive(Default)]
struct Record {
    known: Option<Known>,
    /// The last question, when it had no answer.
    failed: Option<Moment>,
    /// A question that is under way; closed when it ends.
    asking: Option<watch::Receiver<()>>,
    /// Whether its last question had no answer, as far as the log is concerned.
    unwell: bool,
}

impl Record {
    fn last(&self, stale: Span, now: Timestamp) -> Result<BTreeSet<Scope>, ()> {
        let known = self.known.as_ref().filter(|known| known.asked.is_within(stale, now));
        known.map(|known| known.scopes.clone()).ok_or(())
    }
}

/// Never locked while somebody is asked.
type Place = Arc<Mutex<Record>>;

/// Lines of one kind in the log.
#[derive(Default)]
struct Lines {
    last: Option<Timestamp>,
    suppressed: u64,
}

impl Lines {
    /// A place for a line: how many were left out before it.
    fn take(&mut self, now: Timestamp) -> Option<u64> {
        if self.last.is_some_and(|at| at <= now && now.since(at) < LINE_EVERY) {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// The rights that were asked for.
pub(crate) struct Rights {
    api: Authorizations,
    fetch: Fetch,
    changes: Changes,
    /// Only clients with a valid token get here, so there are no more than have secrets.
    known: Mutex<HashMap<String, Place>>,
    failures: Mutex<Lines>,
    recoveries: Mutex<Lines>,
}

#[derive(Deserialize)]
struct Answer {
    results: Vec<Application>,
    /// Where the next page is.
    next: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Application {
    #[serde(default)]
    heeft_alle_autorisaties: bool,
    #[serde(default)]
    autorisaties: Vec<Right>,
}

#[derive(Deserialize)]
struct Right {
    #[serde(default)]
    component: String,
    #[serde(default)]
    scopes: Vec<String>,
}

/// What a look into a record says.
enum Look {
    Answer(Result<BTreeSet<Scope>, ()>),
    /// Known when this is closed.
    Asking(watch::Receiver<()>),
}

impl Rights {
    pub(crate) fn new(api: Authorizations, fetch: Fetch, changes: Changes) -> Arc<Self> {
        let (failures, recoveries) = Default::default();
        Arc::new(Self { api, fetch, changes, known: Mutex::default(), failures, recoveries })
    }

    /// What a client may do; `Err` when that is not known. `clock` tells the time, also after waiting.
    pub(crate) async fn of(
        self: &Arc<Self>,
        client: &str,
        clock: &(dyn Fn() -> Timestamp + Sync),
    ) -> Result<BTreeSet<Scope>, ()> {
        let place = Arc::clone(lock(&self.known).entry(client.to_owned()).or_default());
        let came = clock();
        // Twice: what was under way when we came may have been asked before rights changed.
        for _ in 0..2 {
            match self.look(&place, client, came, clock()) {
                Look::Answer(answer) => return answer,
                Look::Asking(mut ended) => drop(ended.changed().await),
            }
        }
        lock(&place).last(self.api.stale_time, clock())
    }

    fn look(
        self: &Arc<Self>,
        place: &Place,
        client: &str,
        came: Timestamp,
        now: Timestamp,
    ) -> Look {
        let asked = Moment { at: now, changes: self.changes.count() };
        let mut record = lock(place);
        let known = record.known.as_ref().filter(|known| known.asked.changes == asked.changes);
        let counts = |known: &&Known| {
            known.asked.is_within(self.api.cache_time, now) || known.asked.at >= came
        };
        if let Some(known) = known.filter(counts) {
            return Look::Answer(Ok(known.scopes.clone()));
        }
        let pause = PAUSE.min(self.api.cache_time);
        let paused = |failed: Moment| {
            (failed.changes == asked.changes && failed.is_within(pause, now))
                || failed.is_within(PAUSE_MIN, now)
        };
        if record.failed.is_some_and(paused) {
            return Look::Answer(record.last(self.api.stale_time, now));
        }
        if let Some(ended) = record.asking.as_ref().filter(|ended| ended.has_changed().is_ok()) {
            // One request waits for an API that hangs, and the others go on by what is known.
            let known = known.filter(|known| known.asked.is_within(self.api.stale_time, now));
            return match known {
                Some(known) => Look::Answer(Ok(known.scopes.clone())),
                None => Look::Asking(ended.clone()),
            };
        }
        let (end, ended) = watch::channel(());
        record.asking = Some(ended.clone());
        // By itself, so that it comes to its end when the client that waits for it goes away.
        let (rights, place, client) = (Arc::clone(self), Arc::clone(place), client.to_owned());
        tokio::spawn(async move {
            let answer = tokio::time::timeout(DEADLINE, rights.ask(&client, now)).await;
            let late = || Err(format!("no answer within {} s", DEADLINE.as_secs()).into());
            rights.note(&place, &client, asked, answer.unwrap_or_else(|_| late()));
            drop(end);
        });
        Look::Asking(ended)
    }

    /// Writes down what came of a question.
    fn note(
        &self,
        place: &Place,
        client: &str,
        asked: Moment,
        answer: Result<BTreeSet<Scope>, Problem>,
    ) {
        let mut record = lock(place);
        record.asking = None;
        let unwell = std::mem::replace(&mut record.unwell, answer.is_err());
        let url = &self.api.url;
        match answer {
            Ok(scopes) => {
                record.known = Some(Known { scopes, asked });
                record.failed = None;
                if unwell && let Some(suppressed) = lock(&self.recoveries).take(asked.at) {
                    info!(
                        url,
                        client_id = client,
                        suppressed,
                        "the Autorisaties API answers again"
                    );
                }
            }
            Err(problem) => {
                record.failed = Some(asked);
                // One line for each change: an API that stays away is not news.
                if !unwell && let Some(suppressed) = lock(&self.failures).take(asked.at) {
                    warn!(
                        url,
                        client_id = client,
                        error = problem.as_str(),
                        suppressed,
                        "permissions cannot be read from the Autorisaties API; cached ones are \
                         used until they are too old"
                    );
                }
            }
        }
    }

    async fn ask(&self, client: &str, now: Timestamp) -> Result<BTreeSet<Scope>, Problem> {
        let claims = ZgwClaims::of_client(&self.api.client_id, now.as_seconds(), TOKEN_SECONDS);
        let token = format!("Bearer {}", sign(self.api.secret.expose(), &claims));
        let mut first = url::Url::parse(&format!("{}/applicaties", self.api.url))
            .map_err(|e| format!("{}: {e}", self.api.url))?;
        first.query_pairs_mut().append_pair("clientIds", client);
        let mut scopes = BTreeSet::new();
        for page in 1..=PAGES_MAX {
            // Made here, not taken from the answer: our token goes nowhere else.
            let mut url = first.clone();
            if page > 1 {
                url.query_pairs_mut().append_pair("page", &page.to_string());
            }
            let (status, body) = (self.fetch)(url.to_string(), token.clone()).await?;
            if status != 200 {
                return Err(format!("the answer was {status}").into());
            }
            let (found, more) = read(&body)?;
            scopes.extend(found);
            if !more {
                return Ok(scopes);
            }
        }
        Err(format!("the answer has more than {PAGES_MAX} pages").into())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The rights of a page, and whether there are more.
fn read(body: &[u8]) -> Result<(BTreeSet<Scope>, bool), Problem> {
    let answer: Answer =
        serde_json::from_slice(body).map_err(|e| format!("the answer cannot be read: {e}"))?;
    let mut scopes = BTreeSet::new();
    for application in &answer.results {
        if application.heeft_alle_autorisaties {
            scopes.extend([Scope::Consume, Scope::Publish]);
        }
        let ours = application.autorisaties.iter().filter(|right| right.component == COMPONENT);
        scopes.extend(ours.flat_map(|right| &right.scopes).filter_map(|text| Scope::parse(text)));
    }
    Ok((scopes, answer.next.is_some()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
    const ALL: &[u8] = br#"{"results":[{"heeftAlleAutorisaties":true}]}"#;

    fn at(seconds: u64) -> Timestamp {
        NOW.plus(Span::from_secs(seconds))
    }

    #[test]
    fn rights_are_those_of_this_component_and_all_applications() {
        let read = |text: &str| read(text.as_bytes());
        let both = BTreeSet::from([Scope::Consume, Scope::Publish]);
        let all = r#"{"next":null,"results":[{"heeftAlleAutorisaties":true}]}"#;
        assert_eq!(read(all), Ok((both.clone(), false)));
        let text = r#"{"count":2,"next":"http://ac/?page=2","results":[
            {"heeftAlleAutorisaties":false,"autorisaties":[
                {"component":"zrc","scopes":["notificaties.publiceren"]},
                {"component":"nrc","scopes":["notificaties.consumeren","other"]}]},
            {"autorisaties":[{"component":"nrc","scopes":["notificaties.publiceren"]}]}]}"#;
        assert_eq!(read(text), Ok((both, true)));
        assert_eq!(read(r#"{"results":[]}"#), Ok((BTreeSet::new(), false)));
        for wrong in ["", "[]", r#"{"detail":"no"}"#, r#"{"results":[{"autorisaties":1}]}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    fn api(cache: u64) -> Authorizations {
        Authorizations {
            url: "http://ac/api/v1".to_owned(),
            client_id: "nrc".to_owned(),
            secret: Secret::from("s"),
            cache_time: Span::from_secs(cache),
            stale_time: Span::from_secs(600),
        }
    }

    /// Rights of an API that counts its questions and answers what `answer` says of them.
    fn rights(
        cache: u64,
        answer: impl Fn(usize, String) -> Fetching + Send + Sync + 'static,
    ) -> (Arc<Rights>, Changes, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let fetch: Fetch = Arc::new(move |url, token| {
            assert!(token.starts_with("Bearer "));
            answer(counted.fetch_add(1, Ordering::SeqCst), url)
        });
        let changes = Changes::default();
        (Rights::new(api(cache), fetch, changes.clone()), changes, asked)
    }

    #[tokio::test]
    async fn answers_are_kept_and_outlive_a_server_for_a_while() {
        let status = Arc::new(AtomicUsize::new(200));
        let say = Arc::clone(&status);
        let (rights, changes, asked) = rights(60, move |_, url| {
            assert_eq!(url, "http://ac/api/v1/applicaties?clientIds=a+b");
            let status = u16::try_from(say.load(Ordering::SeqCst)).expect("a status");
            Box::pin(async move { Ok((status, Bytes::from_static(ALL))) })
        });
        let of = async |seconds| rights.of("a b", &|| at(seconds)).await.map(|scopes| scopes.len());
        let count = || asked.load(Ordering::SeqCst);
        assert_eq!((of(0).await, of(59).await, count()), (Ok(2), Ok(2), 1));
        assert_eq!((of(60).await, count()), (Ok(2), 2));
        changes.note();
        assert_eq!((of(61).await, of(62).await, count()), (Ok(2), Ok(2), 3), "asked anew, once");
        // However often it is said, what is known stays known.
        status.store(500, Ordering::SeqCst);
        (0..1_000).for_each(|_| changes.note());
        assert_eq!((of(63).await, count()), (Ok(2), 4), "the last answer still counts");
        assert_eq!((of(92).await, count()), (Ok(2), 4), "a pause after a failure");
        assert_eq!((of(93).await, count()), (Ok(2), 5));
        changes.note();
        assert_eq!((of(98).await, count()), (Ok(2), 5), "however often somebody says so");
        assert_eq!((of(99).await, count()), (Ok(2), 6), "a change ends it after a while");
        assert_eq!(of(660).await, Ok(2));
        assert_eq!(of(661).await, Err(()), "and no longer");
        status.store(200, Ordering::SeqCst);
        assert_eq!((of(662).await, of(691).await), (Err(()), Ok(2)));
    }

    #[tokio::test]
    async fn all_pages_are_read() {
        let (rights, _, asked) = rights(60, |_, url| {
            let body = match url.rsplit_once("page=").map(|(_, page)| page) {
                None => r#"{"next":"http://evil/","results":[]}"#,
                Some("2") => r#"{"next":null,"results":[{"heeftAlleAutorisaties":true}]}"#,
                other => panic!("{other:?}"),
            };
            assert!(url.starts_with("http://ac/api/v1/"), "{url}");
            Box::pin(async move { Ok((200, Bytes::from_static(body.as_bytes()))) })
        });
        assert_eq!(rights.of("a", &|| NOW).await.map(|scopes| scopes.len()), Ok(2));
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        let (rights, ..) = self::rights(60, |_, _| {
            Box::pin(async { Ok((200, Bytes::from_static(br#"{"next":"x","results":[]}"#))) })
        });
        assert_eq!(rights.of("a", &|| NOW).await, Err(()), "pages without end");
    }

    #[tokio::test(start_paused = true)]
    async fn many_ask_once_and_an_api_that_hangs_keeps_one_of_them_waiting() {
        let (rights, changes, asked) = rights(10, |index, _| {
            Box::pin(async move {
                match index {
                    0 => tokio::time::sleep(Duration::from_secs(1)).await,
                    1 | 2 => std::future::pending().await,
                    _ => {}
                }
                Ok((200, Bytes::from_static(ALL)))
            })
        });
        let of = |client: &'static str, seconds| {
            let rights = Arc::clone(&rights);
            tokio::spawn(async move { rights.of(client, &|| at(seconds)).await.map(|s| s.len()) })
        };
        let count = || asked.load(Ordering::SeqCst);
        let began = tokio::time::Instant::now();
        for one in [of("a", 0), of("a", 0), of("a", 0)] {
            assert_eq!(one.await.expect("ends"), Ok(2));
        }
        assert_eq!((count(), began.elapsed()), (1, Duration::from_secs(1)));
        // It hangs: who asks waits for the deadline, the next one does not, nor does a change.
        let first = of("a", 10);
        tokio::task::yield_now().await;
        assert_eq!(of("a", 10).await.expect("ends"), Ok(2));
        assert_eq!(began.elapsed(), Duration::from_secs(1));
        assert_eq!((first.await.expect("ends"), began.elapsed()), (Ok(2), Duration::from_secs(4)));
        assert_eq!((of("a", 19).await.expect("ends"), count()), (Ok(2), 2), "a pause");
        // Somebody who goes away does not leave the question without an end.
        let gone = of("a", 20);
        tokio::task::yield_now().await;
        gone.abort();
        changes.note();
        assert_eq!(
            (of("a", 20).await.expect("ends"), count()),
            (Ok(2), 3),
            "left alone for a while"
        );
        assert_eq!((of("a", 26).await.expect("ends"), count()), (Ok(2), 4), "it changed meanwhile");
    }

    #[test]
    fn lines_are_few_and_say_how_many_were_left_out() {
        let mut lines = Lines::default();
        assert_eq!([at(0), at(1), at(9)].map(|at| lines.take(at)), [Some(0), None, None]);
        assert_eq!([at(10), at(20)].map(|at| lines.take(at)), [Some(2), Some(0)]);
    }
}
