//! Kanalen and abonnementen of the Notificaties API, as clients of Open Notificaties meet them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use posthorn_testkit::caller::Reply;
use posthorn_testkit::receiver::Request;
use posthorn_testkit::wait::until;
use serde_json::{Value, json};

use crate::notificaties_world::{
    AUTH, Callback, abonnement, ask, get, home, home_with, kanaal, message, path_of, publish,
    refused, send, token,
};

#[test]
fn a_kanaal_is_made_read_and_changed_but_never_renamed_or_deleted() {
    let (mut home, server) = home().served();
    let body = json!({"naam": "zaken", "filters": ["bronorganisatie", "zaaktype"]});
    let made = ask(&server, "publisher", "POST", "/kanaal", &body).with(201);
    assert_eq!(made.header("api-version"), Some("1.0.0"));
    assert_eq!(made.header("content-type"), Some("application/json"));
    let made_body = made.json();
    assert_eq!(made.header("location"), made_body["url"].as_str());
    let path = path_of(&made_body);
    assert_eq!(
        made_body,
        json!({"url": made_body["url"], "naam": "zaken", "documentatieLink": "",
            "filters": ["bronorganisatie", "zaaktype"]})
    );
    let twice = ask(&server, "publisher", "POST", "/kanaal", &body);
    refused(twice, "naam", "unique");
    assert_eq!(get(&server, &path).expect(200), made_body);

    kanaal(&server, "documenten", &[]);
    let names = |query: &str| -> Vec<String> {
        let list = get(&server, &format!("/kanaal{query}")).expect(200);
        let list = list.as_array().expect("a bare list").clone();
        list.iter().map(|kanaal| kanaal["naam"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(""), ["documenten", "zaken"]);
    assert_eq!(names("?naam=zaken"), ["zaken"]);
    assert!(names("?naam=andere").is_empty());
    refused(get(&server, "/kanaal?foo=bar"), "nonFieldErrors", "unknown-parameters");

    let change = |method: &str, body: &Value| ask(&server, "publisher", method, &path, body);
    let patched = change("PATCH", &json!({"filters": ["zaaktype"]})).expect(200);
    assert_eq!(patched["filters"], json!(["zaaktype"]));
    let put = change("PUT", &json!({"naam": "zaken"})).expect(200);
    assert_eq!(put["filters"], json!([]));
    refused(change("PATCH", &json!({"naam": "x"})), "naam", "wijzigen-niet-toegelaten");
    refused(change("PUT", &json!({"naam": "x"})), "naam", "wijzigen-niet-toegelaten");
    refused(change("PUT", &json!({})), "naam", "required");
    let deleted = change("DELETE", &Value::Null).with(405);
    assert_eq!(deleted.json()["code"], "method_not_allowed");
    assert_eq!(deleted.header("allow"), Some("GET, PUT, PATCH"));
    for missing in ["/kanaal/x", "/kanaal/0123abcd-0123-4123-8123-0123456789ab", "/kanaal/"] {
        assert_eq!(get(&server, missing).expect(404)["code"], "not_found", "{missing}");
    }
    server.stop();

    // Another start, the same URLs.
    let server = home.serve();
    assert_eq!(path_of(&get(&server, "/kanaal?naam=zaken").expect(200)[0]), path);
}

#[test]
fn of_many_who_make_the_same_kanaal_at_once_one_does() {
    let (_home, server) = home().served();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let one = |n: usize| {
            let server = &server;
            let body = json!({"naam": "zaken", "filters": [format!("f{n}")]});
            move || ask(server, "publisher", "POST", "/kanaal", &body).status
        };
        let threads: Vec<_> = (0..8).map(|n| scope.spawn(one(n))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 400).count(), 7, "{statuses:?}");
    assert_eq!(get(&server, "/kanaal").expect(200).as_array().map(Vec::len), Some(1));
}

#[test]
fn kanalen_may_be_called_anything() {
    let (_home, server) = home().served();
    let receiver = Callback::new();
    for naam in ["objecten van de gemeente", "été", "posthorn:cloudevents", "a/b:c.d"] {
        let made = kanaal(&server, naam, &[]);
        assert_eq!(made["naam"], naam);
        assert_eq!(get(&server, &path_of(&made)).expect(200), made);
        let made = abonnement(&server, &receiver, &json!([{"naam": naam}]));
        assert_eq!(made["kanalen"], json!([{"naam": naam, "filters": {}}]));
        publish(&server, &message(naam, &json!({}))).expect(201);
    }
    let seen = receiver.wait(4);
    assert_eq!(seen.len(), 4);
}

#[test]
fn the_documentation_of_a_kanaal_must_be_there() {
    let (_home, server) = home().served();
    let pages = Callback::scripted(|seen| if seen.path == "/docs" { 200 } else { 404 });
    let make = |naam: &str, link: &str| {
        let body = json!({"naam": naam, "documentatieLink": link});
        ask(&server, "publisher", "POST", "/kanaal", &body)
    };
    let made = make("zaken", &pages.url("/docs")).expect(201);
    assert_eq!(made["documentatieLink"], pages.url("/docs"));
    assert!(pages.all()[0].head.starts_with("GET /docs "), "{}", pages.all()[0].head);
    refused(make("b", &pages.url("/gone")), "documentatieLink", "bad-url");
    refused(make("b", "http://127.0.0.1:1/"), "documentatieLink", "bad-url");
    refused(make("b", "http://10.0.0.1/"), "documentatieLink", "bad-url");
    refused(make("b", "nothing"), "documentatieLink", "invalid");
    assert_eq!(get(&server, "/kanaal").expect(200).as_array().expect("a list").len(), 1);
    server.stop();

    let (_home, server) = home_with("    check_documentation: false\n").served();
    let body = json!({"naam": "b", "documentatieLink": "http://127.0.0.1:1/"});
    ask(&server, "publisher", "POST", "/kanaal", &body).expect(201);
}

#[test]
fn an_abonnement_is_made_with_its_kanalen_and_never_shows_its_auth() {
    let (_home, server) = home().served();
    kanaal(&server, "zaken", &["bronorganisatie", "zaaktype"]);
    kanaal(&server, "documenten", &[]);
    let receiver = Callback::new();
    let kanalen = json!([
        {"naam": "zaken", "filters": {"bronorganisatie": "082096752011", "zaaktype": "*"}},
        {"naam": "documenten", "filters": {}},
    ]);
    let cloudevents = json!([{"typeSubstring": "nl.overheid.zaken", "filters": {"a": "b"}}]);
    let body = json!({"callbackUrl": receiver.url("/cb?x=y"), "auth": AUTH, "kanalen": kanalen,
        "sendCloudevents": true, "cloudeventFilters": cloudevents});
    let reply = ask(&server, "consumer", "POST", "/abonnement", &body).with(201);
    let made = reply.json();
    assert_eq!(reply.header("location"), made["url"].as_str());
    let expected = json!({"url": made["url"], "callbackUrl": receiver.url("/cb?x=y"),
        "kanalen": kanalen, "sendCloudevents": true, "cloudeventFilters": cloudevents});
    assert_eq!(made, expected);
    let path = path_of(&made);
    assert_eq!(get(&server, &path).expect(200), expected);
    assert_eq!(get(&server, "/abonnement").expect(200), json!([expected]));
    refused(get(&server, "/abonnement?naam=x"), "nonFieldErrors", "unknown-parameters");

    // The same callback may be registered twice; the callback was asked without and with auth.
    ask(&server, "consumer", "POST", "/abonnement", &body).expect(201);
    let asked = receiver.all();
    assert_eq!(asked.len(), 4);
    assert_eq!(asked[0].header("authorization"), None);
    assert_eq!(asked[1].header("authorization"), Some(AUTH));
    assert_eq!(asked[0].header("content-type"), Some("application/json"));
    let dummy = json!({"kanaal": "test", "hoofdObject": "http://some.hoofdobject.nl/",
        "resource": "some_resource", "resourceUrl": "http://some.resource.nl/", "actie": "create",
        "aanmaakdatum": "2019-01-01T12:00:00Z", "kenmerken": {}});
    assert!(asked.iter().all(|seen| seen.json() == dummy && seen.path == "/cb?x=y"));

    ask(&server, "consumer", "DELETE", &path, &Value::Null).expect(204);
    get(&server, &path).expect(404);
    ask(&server, "consumer", "DELETE", &path, &Value::Null).expect(404);
    assert_eq!(get(&server, "/abonnement").expect(200).as_array().map(Vec::len), Some(1));
    for line in ["channel_created", "subscription_created", "subscription_deleted"] {
        server.running.says(line);
    }
    let log = server.running.stderr();
    assert!(!log.contains("callback-secret") && !log.contains("x=y"), "{log}");
}

#[test]
fn an_abonnement_must_fit_its_kanalen() {
    let (_home, server) = home().served();
    kanaal(&server, "zaken", &["bron", "objectType"]);
    let receiver = Callback::new();
    let make = |kanalen: Value| {
        let body = json!({"callbackUrl": receiver.url("/"), "auth": AUTH, "kanalen": kanalen});
        ask(&server, "consumer", "POST", "/abonnement", &body)
    };
    refused(make(json!([{"naam": "andere"}])), "naam", "kanaal_naam");
    let inconsistent = json!([{"naam": "zaken", "filters": {"bron": "a", "andere": "b"}}]);
    refused(make(inconsistent), "filters", "inconsistent-abonnement-filters");
    assert_eq!(get(&server, "/abonnement").expect(200), json!([]));
    make(json!([{"naam": "zaken", "filters": {"object_type": "x"}}])).expect(201);
    make(json!([{"naam": "zaken", "filters": {"bron": "x", "objectType": "y", "meer": "z"}}]))
        .expect(201);
    make(json!([{"naam": "zaken", "filters": {"#actie": "create", "bron": "x"}}])).expect(201);
    refused(
        make(json!([{"naam": "zaken", "filters": {"bron": ""}}])),
        "kanalen.0.filters.bron",
        "blank",
    );
    refused(make(json!([{"naam": "zaken"}, {"filters": {}}])), "kanalen.1.naam", "required");
    refused(make(json!([5])), "kanalen.0.nonFieldErrors", "invalid");
    refused(make(json!({"naam": "zaken"})), "kanalen", "not_a_list");
    let many: Vec<Value> = (0..65).map(|_| json!({"naam": "zaken"})).collect();
    refused(make(json!(many)), "kanalen", "max_length");
}

#[test]
fn a_patch_keeps_what_it_does_not_name_and_a_put_replaces() {
    let (_home, server) = home().served();
    for naam in ["zaken", "documenten"] {
        kanaal(&server, naam, &[]);
    }
    let receiver = Callback::new();
    let kanalen = json!([{"naam": "zaken", "filters": {"bron": "a"}}]);
    let body = json!({"callbackUrl": receiver.url("/one"), "auth": AUTH, "kanalen": kanalen,
        "cloudeventFilters": [{"typeSubstring": "x", "filters": {}}]});
    let made = ask(&server, "consumer", "POST", "/abonnement", &body).expect(201);
    let path = path_of(&made);
    let change = |method: &str, body: &Value| ask(&server, "consumer", method, &path, body);

    // Without auth: the callback is asked with the one that is there.
    let patched = change("PATCH", &json!({"callbackUrl": receiver.url("/two")})).expect(200);
    assert_eq!(patched["callbackUrl"], receiver.url("/two"));
    assert_eq!(patched["kanalen"], kanalen);
    assert_eq!(patched["cloudeventFilters"], made["cloudeventFilters"]);
    assert_eq!(change("PATCH", &json!({})).expect(200), patched);
    publish(&server, &message("zaken", &json!({"bron": "a"}))).expect(201);
    let delivered = &receiver.wait(1)[0];
    assert_eq!((delivered.path.as_str(), delivered.header("authorization")), ("/two", Some(AUTH)));

    refused(change("PUT", &json!({"callbackUrl": receiver.url("/")})), "auth", "required");
    let others = json!([{"naam": "documenten", "filters": {}}]);
    let put = json!({"callbackUrl": receiver.url("/three"), "auth": AUTH, "kanalen": others});
    let put = change("PUT", &put).expect(200);
    assert_eq!(put["kanalen"], others);
    assert_eq!(put["cloudeventFilters"], json!([]));
    // Nothing of a request that is refused is kept.
    let bad = json!({"callbackUrl": receiver.url("/four"), "kanalen": [{"naam": "niets"}]});
    refused(change("PATCH", &bad), "naam", "kanaal_naam");
    let wrong = json!({"auth": "Bearer wrong", "kanalen": []});
    refused(change("PATCH", &wrong), "nonFieldErrors", "invalid-callback-url");
    assert_eq!(get(&server, &path).expect(200), put);
    publish(&server, &message("zaken", &json!({"bron": "a"}))).expect(201);
    publish(&server, &message("documenten", &json!({}))).expect(201);
    let seen = receiver.wait(2);
    assert_eq!((seen.len(), seen[1].path.as_str()), (2, "/three"));
}

#[test]
fn a_callback_that_moves_needs_its_auth_again() {
    let (_home, server) = home().served();
    kanaal(&server, "zaken", &[]);
    let (receiver, other) = (Callback::new(), Callback::new());
    let kanalen = json!([{"naam": "zaken", "filters": {}}]);
    let made = abonnement(&server, &receiver, &kanalen);
    let path = path_of(&made);
    let change = |body: &Value| ask(&server, "consumer", "PATCH", &path, body);
    refused(change(&json!({"callbackUrl": other.url("/steal")})), "auth", "required");
    assert_eq!(get(&server, &path).expect(200), made);
    let shown = |seen: &Request| seen.header("authorization").is_some();
    assert!(!other.all().iter().any(shown), "not even when it was asked");
    // A token server that is somebody's own is not told it either, nor a way that was another's.
    let token_server = json!({"authType": "oauth2_client_credentials", "authClientId": "c",
        "oauth2TokenUrl": other.url("/token")});
    refused(change(&token_server), "secret", "required");
    let given = json!({"callbackUrl": other.url("/own"), "auth": AUTH});
    change(&given).expect(200);
    publish(&server, &message("zaken", &json!({}))).expect(201);
    assert_eq!(other.wait(1)[0].path, "/own");
    server.stop();
}

#[test]
fn abonnementen_of_others_can_be_read_but_not_changed() {
    let (_home, server) = home().served();
    let receiver = Callback::new();
    let path = path_of(&abonnement(&server, &receiver, &json!([])));
    get(&server, &path).expect(200);
    let body = json!({"callbackUrl": receiver.url("/"), "auth": AUTH, "kanalen": []});
    for (method, body) in [("PUT", &body), ("PATCH", &json!({})), ("DELETE", &Value::Null)] {
        let reply = ask(&server, "both", method, &path, body).with(403);
        assert_eq!(reply.json()["code"], "permission_denied", "{method}");
        // Who has only the other scope is told of that.
        ask(&server, "publisher", method, &path, body).expect(403);
    }
    ask(&server, "publisher", "GET", &path, &Value::Null).expect(200);
    ask(&server, "consumer", "DELETE", &path, &Value::Null).expect(204);
}

#[test]
fn a_callback_must_be_there_and_protected() {
    let (_home, server) = home().served();
    let make = |url: &str| {
        let body = json!({"callbackUrl": url, "auth": AUTH, "kanalen": []});
        ask(&server, "consumer", "POST", "/abonnement", &body)
    };
    for status in [200, 204, 209] {
        let fine =
            Callback::scripted(
                move |seen| {
                    if seen.header("authorization").is_some() { status } else { 403 }
                },
            );
        make(&fine.url("/")).expect(201);
    }
    for status in [210, 302, 401, 404, 500] {
        let bad =
            Callback::scripted(
                move |seen| {
                    if seen.header("authorization").is_some() { status } else { 403 }
                },
            );
        let reply = make(&bad.url("/"));
        assert!(reply.body.contains(&status.to_string()), "{}", reply.body);
        refused(reply, "nonFieldErrors", "invalid-callback-url");
        assert_eq!(bad.all().len(), 2, "a redirect is not followed");
    }
    for status in [204, 302, 404] {
        let open = Callback::scripted(move |_| status);
        refused(make(&open.url("/")), "callbackUrl", "no-auth-on-callback-url");
        assert_eq!(open.all().len(), 1);
    }
    // Who does not answer strangers at all is not known to refuse them.
    let silent =
        Callback::scripted(|seen| if seen.header("authorization").is_some() { 204 } else { 0 });
    refused(make(&silent.url("/")), "callbackUrl", "no-auth-on-callback-url");
    let no_auth = json!({"callbackUrl": silent.url("/"), "authType": "no_auth", "kanalen": []});
    let reply = ask(&server, "consumer", "POST", "/abonnement", &no_auth);
    refused(reply, "authType", "no-auth-on-callback-url");
    refused(make("http://127.0.0.1:1/"), "nonFieldErrors", "invalid-callback-url");
    refused(make("http://openzaak:8000/x"), "callbackUrl", "invalid-callback-url");
    refused(make("http://known.invalid:8000/x"), "callbackUrl", "invalid-callback-url");
    refused(make("http://10.0.0.1/"), "callbackUrl", "invalid-callback-url");
    refused(make("ftp://example.com/"), "callbackUrl", "invalid");
    refused(make(""), "callbackUrl", "blank");
    let count = get(&server, "/abonnement").expect(200).as_array().map(Vec::len);
    assert_eq!(count, Some(3));
    server.stop();

    let (_home, server) = home_with("    test_callback_auth: false\n").served();
    let open = Callback::scripted(|_| 204);
    let body = json!({"callbackUrl": open.url("/"), "auth": AUTH, "kanalen": []});
    ask(&server, "consumer", "POST", "/abonnement", &body).expect(201);
    assert_eq!(open.all().len(), 1);
    let body = json!({"callbackUrl": open.url("/"), "authType": "no_auth", "kanalen": []});
    ask(&server, "consumer", "POST", "/abonnement", &body).expect(201);
    server.stop();

    let (_home, server) = home_with("    probe_callback: false\n").served();
    let body = json!({"callbackUrl": "http://127.0.0.1:1/", "auth": AUTH, "kanalen": []});
    ask(&server, "consumer", "POST", "/abonnement", &body).expect(201);
}

#[test]
fn urls_are_those_the_operator_says() {
    let (_home, server) =
        home_with("    base_url: https://nrc.gemeente.nl\n    prefix: /nrc/api/v1\n").served();
    let token = token("both");
    let headers = [("authorization", token.as_str()), ("content-type", "application/json")];
    let send =
        |method: &str, path: &str, body: &str| send(&server.url, method, path, &headers, body);
    let made = send("POST", "/nrc/api/v1/kanaal", r#"{"naam":"zaken"}"#).with(201);
    let location = made.header("location").expect("a location").to_owned();
    let begin = "https://nrc.gemeente.nl/nrc/api/v1/kanaal/";
    assert!(location.starts_with(begin), "{location}");
    send("GET", location.strip_prefix("https://nrc.gemeente.nl").expect("ours"), "").expect(200);
    let missing = send("GET", "/nrc/api/v1/x", "").expect(404);
    assert_eq!(missing["type"], "https://nrc.gemeente.nl/ref/fouten/NotFound/");
    // The native API is where it was, and answers its own way.
    until("health", || send("GET", "/healthz", "").status == 200);
    let native = send("GET", "/api/v1/kanaal", "").with(404);
    assert!(native.header("api-version").is_none());
}

/// A receiver that, once it is told to, keeps each authenticated test message until `go` says so.
struct Slow {
    receiver: Callback,
    hold: Arc<AtomicBool>,
    asked: Arc<AtomicBool>,
}

impl Slow {
    fn new() -> Self {
        let (hold, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (held, told) = (Arc::clone(&hold), Arc::clone(&asked));
        let receiver = Callback::scripted(move |seen| {
            if seen.header("authorization") != Some(AUTH) {
                return 401;
            }
            let begin = Instant::now();
            while held.load(Ordering::SeqCst) && begin.elapsed() < Duration::from_secs(8) {
                told.store(true, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(5));
            }
            204
        });
        Self { receiver, hold, asked }
    }

    /// Runs `change`, and `meanwhile` while the callback is being asked about it.
    fn while_asked(
        &self,
        change: impl FnOnce() -> Reply + Send,
        meanwhile: impl FnOnce(),
    ) -> Reply {
        self.hold.store(true, Ordering::SeqCst);
        std::thread::scope(|scope| {
            let change = scope.spawn(change);
            until("a test message", || self.asked.load(Ordering::SeqCst));
            meanwhile();
            self.hold.store(false, Ordering::SeqCst);
            change.join().expect("no panic")
        })
    }
}

#[test]
fn what_is_deleted_while_its_callback_is_asked_stays_gone() {
    let (_home, server) = home().served();
    let slow = Slow::new();
    let path = path_of(&abonnement(&server, &slow.receiver, &json!([])));
    let reply = slow.while_asked(
        || ask(&server, "consumer", "PATCH", &path, &json!({"sendCloudevents": true})),
        || drop(ask(&server, "consumer", "DELETE", &path, &Value::Null).expect(204)),
    );
    assert_eq!(reply.expect(404)["code"], "not_found");
    get(&server, &path).expect(404);
    assert_eq!(get(&server, "/abonnement").expect(200), json!([]));
}

#[test]
fn two_changes_at_once_are_both_in_effect() {
    let (_home, server) = home_with("    test_callback_auth: false\n").served();
    kanaal(&server, "zaken", &[]);
    let (slow, quick) = (Slow::new(), Callback::new());
    let path = path_of(&abonnement(&server, &slow.receiver, &json!([])));
    let patch = |body: &Value| ask(&server, "consumer", "PATCH", &path, body);
    // The second change moves the callback, so that nothing holds it up.
    let url = quick.url("/cb");
    let reply = slow.while_asked(
        || patch(&json!({"kanalen": [{"naam": "zaken"}]})),
        || {
            let moved = json!({"callbackUrl": url, "auth": AUTH, "sendCloudevents": true});
            patch(&moved).expect(200);
        },
    );
    let shown = reply.expect(200);
    assert_eq!(shown["kanalen"], json!([{"naam": "zaken", "filters": {}}]));
    assert_eq!((&shown["sendCloudevents"], &shown["callbackUrl"]), (&json!(true), &json!(url)));
    assert_eq!(get(&server, &path).expect(200), shown);
    let mut message = message("zaken", &json!({}));
    message["source"] = json!("oz");
    publish(&server, &message).expect(201);
    assert_eq!(quick.wait(1)[0].header("authorization"), Some(AUTH));
}

#[test]
fn topics_of_others_are_not_kanalen() {
    let (_home, server) = home().served();
    kanaal(&server, "zaken", &[]);
    let topic =
        |args: &[&str]| server.ask(&[&["topics", "put", "--tenant", "gemeente"], args].concat());
    topic(&["orders", "--description", "of a shop"]);
    let all = get(&server, "/kanaal").expect(200);
    assert_eq!(all.as_array().map(Vec::len), Some(1), "{all}");
    assert_eq!(get(&server, "/kanaal?naam=orders").expect(200), json!([]));
    publish(&server, &message("orders", &json!({}))).expect(400);
    let taken = ask(&server, "publisher", "POST", "/kanaal", &json!({"naam": "orders"}));
    refused(taken, "naam", "unique");
    let receiver = Callback::new();
    let body = json!({"callbackUrl": receiver.url("/"), "auth": AUTH,
        "kanalen": [{"naam": "orders"}]});
    refused(ask(&server, "consumer", "POST", "/abonnement", &body), "naam", "kanaal_naam");
}

#[test]
fn a_change_that_always_finds_others_in_its_way_is_a_conflict() {
    let (_home, server) = home().served();
    // Whenever the callback is asked, the subscription is changed natively before it answers.
    let target: Arc<OnceLock<(String, String, String)>> = Arc::default();
    let (known, asked) = (Arc::clone(&target), AtomicUsize::new(0));
    let receiver = Callback::scripted(move |seen| {
        if seen.header("authorization") != Some(AUTH) {
            return 401;
        }
        let Some((url, key, path)) = known.get() else { return 204 };
        let headers = [
            ("authorization", key.as_str()),
            ("posthorn-tenant", "gemeente"),
            ("content-type", "application/json"),
        ];
        let body = json!({"description": asked.fetch_add(1, Ordering::SeqCst).to_string()});
        let reply = send(url, "PATCH", path, &headers, body.to_string());
        assert_eq!(reply.status, 200, "{}", reply.body);
        204
    });
    let path = path_of(&abonnement(&server, &receiver, &json!([])));
    let before = get(&server, &path).expect(200);
    let list = server.ask("subscriptions list --tenant gemeente");
    let id = list["items"][0]["id"].as_str().expect("an id").to_owned();
    let native = format!("/v1/subscriptions/{id}");
    let key = format!("Bearer {}", server.key);
    target.set((server.url.clone(), key, native)).expect("only once");
    let reply = ask(&server, "consumer", "PATCH", &path, &json!({"sendCloudevents": true}));
    let problem = reply.with(409);
    assert_eq!(problem.header("content-type"), Some("application/problem+json"));
    assert_eq!(problem.json()["code"], "conflict");
    assert_eq!(get(&server, &path).expect(200), before);
}
