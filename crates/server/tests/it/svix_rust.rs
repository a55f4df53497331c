//! The published client of Svix for Rust, unchanged, walks all operations against the real program on both stores.

use std::collections::{BTreeMap, BTreeSet};

use http::{HeaderMap, HeaderName, HeaderValue};
use posthorn_testkit::program::{Home, Server};
use posthorn_testkit::receiver::{Receiver, Request};
use serde_json::json;
use svix::api::{ApplicationListOptions, MessageGetOptions, SvixOptions};
use svix::models::*;
use svix::{Error, Svix, Webhook};

use crate::cedros_world::On;

/// What the walk works with.
struct Walk {
    client: Svix,
    receiver: Receiver,
    app: String,
}

fn texts(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn names(all: &[&str]) -> Option<BTreeSet<String>> {
    Some(all.iter().map(|name| (*name).to_owned()).collect())
}

#[track_caller]
fn refused<T: std::fmt::Debug>(status: u16, answer: Result<T, Error>) {
    let said = match answer.expect_err("refused") {
        Error::Http(said) => said.status,
        Error::Validation(said) => said.status,
        other => panic!("not an answer of the API: {other:?}"),
    };
    assert_eq!(said.as_u16(), status);
}

fn headers(request: &Request) -> HeaderMap {
    let of = |(name, value): (&String, &String)| {
        let name = HeaderName::try_from(name.as_str()).expect("a name");
        (name, HeaderValue::try_from(value.as_str()).expect("a value"))
    };
    request.headers.iter().map(of).collect()
}

/// Asks again until there is something.
async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    for _ in 0..600 {
        if let Some(found) = ask().await {
            return found;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("waited in vain for {what}");
}

async fn walk(server: &Server) {
    let (url, key) = (server.url.clone(), server.key.clone());
    let options = SvixOptions { server_url: Some(url.clone()), ..SvixOptions::default() };
    let client = Svix::new(key, Some(options));
    client.health().get().await.expect("healthy");
    event_types(&client).await;
    let app = applications(&client).await;
    let walk = Walk { client, receiver: Receiver::new(200), app };
    let endpoint = walk.endpoints().await;
    walk.messages(&endpoint).await;
    walk.bulk(&endpoint).await;
    walk.portal(&url).await;
    walk.organisation().await;
    walk.pages().await;
    refused(404, walk.client.message().get(walk.app.clone(), "msg_x".to_owned(), None).await);
    let nobody = walk.client.with_token("ph_wrong".to_owned());
    refused(401, nobody.application().list(None).await);
    refused(501, walk.client.integration().list(walk.app.clone(), None).await);
    walk.client.application().delete(walk.app.clone()).await.expect("deleted");
    refused(404, walk.client.application().get(walk.app.clone()).await);
}

async fn event_types(client: &Svix) {
    let types = client.event_type();
    let schema = json!({"1": {"type": "object", "examples": [{"id": 7}]}});
    let new = EventTypeIn::new("a.b".to_owned(), "d".to_owned());
    let new = EventTypeIn { schemas: Some(schema), ..new };
    assert_eq!(types.create(new.clone(), None).await.expect("made").name, "a.b");
    refused(409, types.create(new, None).await);
    assert_eq!(types.list(None).await.expect("a list").data.len(), 1);
    let whole = EventTypeUpsertIn::new("other".to_owned());
    let changed = types.upsert("a.b".to_owned(), whole).await.expect("changed");
    assert_eq!(changed.description, "other");
    let schema = json!({"1": {"type": "object", "examples": [{"id": 7}]}});
    let patch = json!({"deprecated": true, "schemas": schema});
    let patch: EventTypePatch = serde_json::from_value(patch).expect("a change");
    assert!(types.patch("a.b".to_owned(), patch).await.expect("changed").deprecated);
    assert_eq!(types.get("a.b".to_owned()).await.expect("there").description, "other");
    let spec = json!({"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "webhooks": {
        "c.d": {"post": {"description": "d", "requestBody": {"content": {"application/json": {
            "schema": {"type": "object"}}}}}}}});
    let import = EventTypeImportOpenApiIn {
        spec_raw: Some(spec.to_string()),
        ..EventTypeImportOpenApiIn::default()
    };
    let imported = types.import_openapi(import, None).await.expect("imported");
    assert_eq!(imported.data.modified, ["c.d"]);
    types.delete("c.d".to_owned(), None).await.expect("archived");
    assert_eq!(types.list(None).await.expect("a list").data.len(), 1);
}

async fn applications(client: &Svix) -> String {
    let apps = client.application();
    let new = ApplicationIn {
        uid: Some("acme".to_owned()),
        metadata: Some(texts(&[("tier", "gold")])),
        ..ApplicationIn::new("ACME".to_owned())
    };
    let made = apps.create(new.clone(), None).await.expect("made");
    assert_eq!(made.metadata, texts(&[("tier", "gold")]));
    refused(409, apps.create(new.clone(), None).await);
    assert_eq!(apps.get_or_create(new.clone(), None).await.expect("there").id, made.id);
    refused(422, apps.create(ApplicationIn::new(String::new()), None).await);
    let renamed = ApplicationIn { name: "Acme Ltd".to_owned(), ..new };
    assert_eq!(apps.upsert("acme".to_owned(), renamed).await.expect("changed").name, "Acme Ltd");
    let patch = serde_json::from_value(json!({"throttleRate": 500})).expect("a change");
    let patched = apps.patch(made.id.clone(), patch).await.expect("changed");
    assert_eq!((patched.throttle_rate, patched.name.as_str()), (Some(500), "Acme Ltd"));
    assert_eq!(apps.get("acme".to_owned()).await.expect("there").id, made.id);
    made.id
}

impl Walk {
    async fn endpoints(&self) -> String {
        let (endpoints, app) = (self.client.endpoint(), || self.app.clone());
        let new = EndpointIn {
            uid: Some("main".to_owned()),
            event_types: names(&["a.b"]),
            channels: names(&["one"]),
            metadata: Some(texts(&[("a", "b")])),
            ..EndpointIn::new(self.receiver.url("/hook"))
        };
        let made = endpoints.create(app(), new, None).await.expect("made");
        let own = made.id.clone();
        assert_eq!((&made.event_types, &made.channels), (&names(&["a.b"]), &names(&["one"])));
        let whole = EndpointUpsertIn {
            uid: Some("main".to_owned()),
            ..EndpointUpsertIn::new(self.receiver.url("/hook"))
        };
        let changed = endpoints.upsert(app(), own.clone(), whole).await.expect("changed");
        assert_eq!((changed.event_types, changed.channels), (None, None));
        let patch = EndpointPatch { description: Some("d".to_owned()), ..EndpointPatch::default() };
        let patched = endpoints.patch(app(), "main".to_owned(), patch).await.expect("changed");
        assert_eq!(patched.description, "d");
        assert_eq!(endpoints.get(app(), "main".to_owned()).await.expect("there").id, own);
        assert_eq!(endpoints.list(app(), None).await.expect("a list").data.len(), 1);
        let set = EndpointHeadersIn::new(texts(&[("x-team", "a"), ("authorization", "hush")]));
        endpoints.set_headers(app(), own.clone(), set).await.expect("set");
        let patch = EndpointHeadersPatchIn::new(texts(&[("x-room", "b")]));
        endpoints.patch_headers(app(), own.clone(), patch).await.expect("set");
        let shown = endpoints.get_headers(app(), own.clone()).await.expect("headers");
        assert_eq!(shown.headers, texts(&[("x-team", "a"), ("x-room", "b")]));
        assert_eq!(Some(shown.sensitive), names(&["authorization"]));
        own
    }

    async fn messages(&self, own: &str) {
        let (messages, attempts) = (self.client.message(), self.client.message_attempt());
        let (endpoints, app) = (self.client.endpoint(), || self.app.clone());
        let first = endpoints.get_secret(app(), own.to_owned()).await.expect("a secret").key;
        let rotated =
            endpoints.rotate_secret(app(), own.to_owned(), EndpointSecretRotateIn::default(), None);
        let second = rotated.await.expect("another").key;
        assert_ne!(first, second);
        let new = MessageIn {
            event_id: Some("order-7".to_owned()),
            tags: names(&["t"]),
            ..MessageIn::new("a.b".to_owned(), json!({"number": 7}))
        };
        let sent = messages.create(app(), new.clone(), None).await.expect("accepted");
        refused(409, messages.create(app(), new, None).await);
        let request = self.receiver.wait_for(1).remove(0);
        // Both secrets sign while the old one is still good.
        for secret in [&first, &second] {
            let webhook = Webhook::new(secret).expect("a secret");
            webhook.verify(&request.body, &headers(&request)).expect("signed");
        }
        assert_eq!(request.header("svix-id"), Some(sent.id.as_str()));
        assert_eq!(request.header("authorization"), Some("hush"));
        let with = MessageGetOptions { with_content: Some(true) };
        let got = messages.get(app(), "order-7".to_owned(), Some(with)).await.expect("there");
        assert_eq!(got.payload, json!({"number": 7}));
        assert_eq!(messages.list(app(), None).await.expect("a list").data[0].id, sent.id);

        let by_message = || attempts.list_by_msg(app(), sent.id.clone(), None);
        let found = || async { by_message().await.expect("a list").data.into_iter().next() };
        let attempt = until("an attempt", found).await;
        assert_eq!((attempt.response_status_code, &attempt.msg_id), (200, &sent.id));
        let by_endpoint = attempts.list_by_endpoint(app(), own.to_owned(), None).await;
        assert_eq!(by_endpoint.expect("a list").data[0].id, attempt.id);
        let one = attempts.get(app(), sent.id.clone(), attempt.id.clone(), None).await;
        assert_eq!(one.expect("there").id, attempt.id);
        let attempted = attempts.list_attempted_messages(app(), own.to_owned(), None).await;
        assert_eq!(attempted.expect("a list").data[0].id, sent.id);
        let receivers = attempts.list_attempted_destinations(app(), sent.id.clone(), None).await;
        assert_eq!(receivers.expect("a list").data[0].id, own);
        attempts.resend(app(), sent.id.clone(), own.to_owned(), None).await.expect("again");
        self.receiver.wait_for(2);
        let manual = || async {
            let all = by_message().await.expect("a list").data;
            all.into_iter().find(|one| one.trigger_type == MessageAttemptTriggerType::Manual)
        };
        until("a manual attempt", manual).await;
        let ids = (sent.id.clone(), attempt.id.clone());
        attempts.expunge_content(app(), ids.0, ids.1).await.expect("expunged");
        let example = EventExampleIn::new("a.b".to_owned());
        let example = endpoints.send_example(app(), own.to_owned(), example, None).await;
        assert_eq!(example.expect("sent").event_type, "a.b");
        self.receiver.wait_for(3);
        let stats = || async {
            let stats = endpoints.get_stats(app(), own.to_owned(), None).await.expect("stats");
            (stats.success == 3).then_some(())
        };
        until("three attempts in the statistics", stats).await;
        endpoints.get_attempt_stats(app(), own.to_owned(), None).await.expect("stats");
        messages.expunge_content(app(), sent.id.clone()).await.expect("expunged");
        refused(400, attempts.resend(app(), sent.id.clone(), own.to_owned(), None).await);
        let asked = MessagePrecheckIn::new("a.b".to_owned());
        assert!(messages.precheck(app(), asked, None).await.expect("an answer").active);
    }

    /// Recoveries and replays end, and are background tasks meanwhile.
    async fn bulk(&self, own: &str) {
        let (endpoints, tasks) = (self.client.endpoint(), self.client.background_task());
        let app = || self.app.clone();
        let new = MessageIn::new("a.b".to_owned(), json!({}));
        let sent = self.client.message().create(app(), new, None).await.expect("accepted");
        let since = sent.timestamp;
        let recover = RecoverIn::new(since);
        let recover = endpoints.recover(app(), own.to_owned(), recover, None).await;
        let replay = ReplayIn::new(since);
        let replay = endpoints.replay_missing(app(), own.to_owned(), replay, None).await;
        let bulk = BulkReplayIn::new(since);
        let bulk = endpoints.bulk_replay(app(), own.to_owned(), bulk, None).await;
        let begun =
            [recover.expect("begun").id, replay.expect("begun").id, bulk.expect("begun").id];
        for task in &begun {
            let ended = || async {
                let task = tasks.get(task.clone()).await.expect("a task");
                (format!("{:?}", task.status) == "Finished").then_some(())
            };
            until("the end of a task", ended).await;
        }
        let listed = tasks.list(None).await.expect("a list").data;
        assert!(begun.iter().all(|task| listed.iter().any(|one| one.id == *task)));
        let ids = BulkExpungeContentsIn { ids: names(&[sent.id.as_str(), "msg_x"]) };
        let results = self.client.message().bulk_expunge_content(app(), ids, None).await;
        assert_eq!(results.expect("results").results.len(), 2);
    }

    async fn portal(&self, url: &str) {
        let authentication = self.client.authentication();
        let access = AppPortalAccessIn::default();
        let access = authentication.app_portal_access(self.app.clone(), access, None).await;
        let access = access.expect("a link");
        assert!(access.url.contains("/portal#"));
        let options = SvixOptions { server_url: Some(url.to_owned()), ..SvixOptions::default() };
        let customer = Svix::new(access.token, Some(options));
        customer.endpoint().list(self.app.clone(), None).await.expect("their own");
        refused(403, customer.application().list(None).await);
        customer.authentication().logout(None).await.expect("out");
        refused(401, customer.endpoint().list(self.app.clone(), None).await);
    }

    async fn organisation(&self) {
        let ops = self.client.operational_webhook().endpoint();
        let new = OperationalWebhookEndpointIn::new(self.receiver.url("/ops"));
        let made = ops.create(new, None).await.expect("made");
        assert_eq!(ops.list(None).await.expect("a list").data[0].id, made.id);
        ops.get_secret(made.id.clone()).await.expect("a secret");
        ops.delete(made.id.clone()).await.expect("deleted");
        refused(404, ops.get(made.id).await);
    }

    /// 600 applications, forwards and backwards.
    async fn pages(&self) {
        let apps = self.client.application();
        for number in 0..600 {
            let new = ApplicationIn::new(format!("page {number}"));
            apps.create(new, None).await.expect("made");
        }
        let (mut seen, mut iterator, mut back) = (Vec::new(), None, None);
        loop {
            let options =
                ApplicationListOptions { limit: Some(250), iterator, ..Default::default() };
            let page = apps.list(Some(options)).await.expect("a page");
            seen.push(page.data.iter().map(|app| app.id.clone()).collect::<Vec<_>>());
            (iterator, back) = (page.iterator, page.prev_iterator.or(back));
            if page.done {
                break;
            }
        }
        assert_eq!(seen.concat().len(), 601);
        for wanted in seen.iter().rev().skip(1) {
            let options =
                ApplicationListOptions { limit: Some(250), iterator: back, ..Default::default() };
            let page = apps.list(Some(options)).await.expect("a page");
            assert_eq!(page.data.iter().map(|app| app.id.clone()).collect::<Vec<_>>(), *wanted);
            back = page.prev_iterator;
        }
    }
}

fn walks(on: On) {
    let mut home = Home::new();
    home.configure("dialects: {svix: {enabled: true}}\n");
    let _database = on.store(&home);
    let server = home.serve();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(walk(&server));
    server.stop();
}

#[test]
fn the_rust_client_walks_all_operations_on_sqlite() {
    walks(On::Sqlite);
}

#[test]
fn the_rust_client_walks_all_operations_on_postgres() {
    walks(On::Postgres);
}
