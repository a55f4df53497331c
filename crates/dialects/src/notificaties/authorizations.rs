//! Rights from an Autorisaties API: asked for where nothing is said of a client here, and kept for a
//! while.
//!
//! # The rule
//! An answer counts for [`Authorizations::cache`] without asking again. After that the API is asked; while
//! it does not answer, the last answer goes on counting until it is [`Authorizations::stale`] old. Then,
//! and where there was none, nobody is let in: a client is told to come back (503), since what it may do
//! is not known. A client that the API does not know may do nothing, and that is kept like any answer.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use posthorn_domain::{Span, Timestamp};
use posthorn_sealing::jwt::{ZgwClaims, sign};
use posthorn_sealing::vault::Secret;
use serde::Deserialize;
use tracing::{info, warn};

use super::access::Scope;

/// How long a token of ours counts.
const TOKEN_SECONDS: i64 = 3_600;
/// After a question that nobody answered, those who waited for it do not ask again one by one.
const PAUSE: Span = Span::from_secs(1);
/// What rights in this API are called there.
const COMPONENT: &str = "nrc";

/// A way to ask: a URL and a value of `Authorization`; what comes back is a status and a body, or why
/// nothing did.
pub type Fetch = Arc<dyn Fn(String, String) -> Fetching + Send + Sync>;
/// See [`Fetch`].
pub type Fetching = Pin<Box<dyn Future<Output = Result<(u16, Bytes), String>> + Send>>;

/// The Autorisaties API that is asked.
#[derive(Clone)]
pub struct Authorizations {
    /// Where it begins, without a slash at the end: `https://openzaak.example.nl/autorisaties/api/v1`.
    pub url: String,
    /// Who we are there.
    pub client_id: String,
    /// What our tokens are signed with.
    pub secret: Secret,
    /// How long an answer counts without asking again.
    pub cache: Span,
    /// How long it counts while the API does not answer.
    pub stale: Span,
}

impl fmt::Debug for Authorizations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorizations").field("url", &self.url).finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct Known {
    scopes: BTreeSet<Scope>,
    at: Timestamp,
}

#[derive(Default)]
struct Record {
    known: Option<Known>,
    failed_at: Option<Timestamp>,
}

/// What is known of one client; whoever asks holds the lock, so that many requests ask once.
type Place = Arc<tokio::sync::Mutex<Record>>;

/// The rights that were asked for.
pub(crate) struct Rights {
    api: Authorizations,
    fetch: Fetch,
    /// Only clients with a valid token get here, so there are no more than have secrets.
    known: Mutex<HashMap<String, Place>>,
    well: std::sync::atomic::AtomicBool,
}

#[derive(Deserialize)]
struct Answer {
    results: Vec<Application>,
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

impl Rights {
    pub(crate) fn new(api: Authorizations, fetch: Fetch) -> Self {
        Self { api, fetch, known: Mutex::default(), well: true.into() }
    }

    /// What a client may do; `Err` when that is not known. `clock` tells the time, also after waiting.
    pub(crate) async fn of(
        &self,
        client: &str,
        clock: &(dyn Fn() -> Timestamp + Sync),
    ) -> Result<BTreeSet<Scope>, ()> {
        let place = Arc::clone(self.lock().entry(client.to_owned()).or_default());
        let mut record = place.lock().await;
        let now = clock();
        let within = |at: Timestamp, span: Span| at <= now && now.since(at) < span;
        if let Some(fresh) = record.known.as_ref().filter(|known| within(known.at, self.api.cache))
        {
            return Ok(fresh.scopes.clone());
        }
        let last = |record: &Record| {
            let known = record.known.as_ref().filter(|known| within(known.at, self.api.stale));
            known.map(|known| known.scopes.clone()).ok_or(())
        };
        if record.failed_at.is_some_and(|at| within(at, PAUSE)) {
            return last(&record);
        }
        match self.ask(client, now).await {
            Ok(scopes) => {
                if !self.well.swap(true, std::sync::atomic::Ordering::Relaxed) {
                    info!(url = self.api.url, "the Autorisaties API answers again");
                }
                *record = Record {
                    known: Some(Known { scopes: scopes.clone(), at: now }),
                    failed_at: None,
                };
                Ok(scopes)
            }
            Err(problem) => {
                // One line for each change: an API that stays away is not news.
                if self.well.swap(false, std::sync::atomic::Ordering::Relaxed) {
                    warn!(
                        url = self.api.url,
                        error = problem,
                        "rights cannot be asked of the Autorisaties API; known ones count until they \
                         are too old"
                    );
                }
                record.failed_at = Some(clock());
                last(&record)
            }
        }
    }

    /// Rights changed somewhere: they are asked for anew. What is known stays for the case that nobody
    /// answers.
    pub(crate) async fn changed(&self) {
        let places: Vec<Place> = self.lock().values().cloned().collect();
        for place in places {
            if let Some(known) = &mut place.lock().await.known {
                let aged =
                    known.at.as_millis() - i64::try_from(self.api.cache.as_millis()).unwrap_or(0);
                known.at = Timestamp::from_millis(aged);
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Place>> {
        self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    async fn ask(&self, client: &str, now: Timestamp) -> Result<BTreeSet<Scope>, String> {
        let claims = ZgwClaims::of_client(&self.api.client_id, now.as_seconds(), TOKEN_SECONDS);
        let token = format!("Bearer {}", sign(self.api.secret.expose(), &claims));
        let mut url = url::Url::parse(&format!("{}/applicaties", self.api.url))
            .map_err(|e| format!("{}: {e}", self.api.url))?;
        url.query_pairs_mut().append_pair("clientIds", client);
        let (status, body) = (self.fetch)(url.to_string(), token).await?;
        if status != 200 {
            return Err(format!("the answer was {status}"));
        }
        read(&body)
    }
}

fn read(body: &[u8]) -> Result<BTreeSet<Scope>, String> {
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
    Ok(scopes)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    #[test]
    fn rights_are_those_of_this_component_and_all_applications() {
        let read = |text: &str| read(text.as_bytes());
        let both = BTreeSet::from([Scope::Consume, Scope::Publish]);
        assert_eq!(read(r#"{"results":[{"heeftAlleAutorisaties":true}]}"#), Ok(both.clone()));
        let text = r#"{"count":2,"results":[
            {"heeftAlleAutorisaties":false,"autorisaties":[
                {"component":"zrc","scopes":["notificaties.publiceren"]},
                {"component":"nrc","scopes":["notificaties.consumeren","other"]}]},
            {"autorisaties":[{"component":"nrc","scopes":["notificaties.publiceren"]}]}]}"#;
        assert_eq!(read(text), Ok(both));
        assert_eq!(read(r#"{"results":[]}"#), Ok(BTreeSet::new()));
        for wrong in ["", "[]", r#"{"detail":"no"}"#, r#"{"results":[{"autorisaties":1}]}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn answers_are_kept_and_outlive_a_server_for_a_while() {
        let asked = Arc::new(AtomicUsize::new(0));
        let status = Arc::new(AtomicUsize::new(200));
        let fetch: Fetch = {
            let (asked, status) = (Arc::clone(&asked), Arc::clone(&status));
            Arc::new(move |url, token| {
                assert_eq!(url, "http://ac/api/v1/applicaties?clientIds=a+b");
                assert!(token.starts_with("Bearer "));
                asked.fetch_add(1, Ordering::SeqCst);
                let status = u16::try_from(status.load(Ordering::SeqCst)).expect("a status");
                let body = Bytes::from_static(br#"{"results":[{"heeftAlleAutorisaties":true}]}"#);
                Box::pin(async move { Ok((status, body)) })
            })
        };
        let api = Authorizations {
            url: "http://ac/api/v1".to_owned(),
            client_id: "nrc".to_owned(),
            secret: Secret::from("s"),
            cache: Span::from_secs(60),
            stale: Span::from_secs(600),
        };
        let rights = Rights::new(api, fetch);
        let at = |seconds| NOW.plus(Span::from_secs(seconds));
        let of = async |seconds| rights.of("a b", &|| at(seconds)).await.map(|scopes| scopes.len());
        assert_eq!(of(0).await, Ok(2));
        assert_eq!(of(59).await, Ok(2));
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        assert_eq!(of(60).await, Ok(2));
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        rights.changed().await;
        assert_eq!(of(61).await, Ok(2));
        assert_eq!(asked.load(Ordering::SeqCst), 3, "asked anew");
        status.store(500, Ordering::SeqCst);
        assert_eq!(of(660).await, Ok(2), "the last answer still counts");
        assert_eq!(of(661).await, Err(()), "and no longer");
    }
}
