//! What becomes of published notifications and CloudEvents, on the wire.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use posthorn_sealing::jwt;
use posthorn_testkit::authority::{Authority, Clients};
use posthorn_testkit::caller::Reply;
use posthorn_testkit::program::{Ran, Server, id_of};
use posthorn_testkit::receiver::{Answer, Receiver, Request};
use posthorn_testkit::wait::{eventually, until};
use serde_json::{Value, json};

use crate::notificaties_world::{
    AUTH, Callback, abonnement, ask, get, home, home_with, kanaal, message, now, path_of, publish,
    refused, send, stats, token,
};
use crate::postgres::{database, nodes};

/// Waits until nothing is unfinished, then says how it ended.
#[track_caller]
fn settled(server: &Server) -> Value {
    eventually("an end of all deliveries", || {
        Some(stats(server)).filter(|stats| stats["pending"] == 0)
    })
}

#[test]
fn a_notification_arrives_as_it_was_published() {
    let (_home, server) = home().served();
    kanaal(&server, "zaken", &["bron"]);
    let receiver = Callback::new();
    abonnement(
        &server,
        &receiver,
        &json!([{"naam": "zaken", "filters": {"bron": "082096752011"}}]),
    );
    // Odd white space, order, escapes and members nobody knows: none of it is ours to change.
    let body = "{ \"kenmerken\":{\"bron\":\"082096752011\"},\n\t\"actie\":\"cre\\u0061te\", \
                \"kanaal\":\"zaken\", \"extra\": [1.0, {}],\"resource\":\"zaak\",\
                \"hoofdObject\":\"http://openzaak:8000/zaken/1\",\
                \"resourceUrl\":\"http://openzaak:8000/zaken/1\",\
                \"aanmaakdatum\":\"2018-01-01T17:00:00Z\"}\n";
    let token = token("publisher");
    let headers = [("authorization", token.as_str()), ("content-type", "application/json")];
    let reply = send(&server.url, "POST", "/api/v1/notificaties", &headers, body);
    let reply = reply.with(201);
    assert_eq!(reply.body, body);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.header("api-version"), Some("1.0.0"));
    let seen = &receiver.wait(1)[0];
    assert_eq!(String::from_utf8_lossy(&seen.body), body);
    assert_eq!(seen.header("content-type"), Some("application/json"));
    assert_eq!(seen.header("authorization"), Some(AUTH));
    assert!(seen.head.starts_with("POST /cb "), "{}", seen.head);
    // Once it was taken, it is not sent again.
    assert_eq!(settled(&server)["delivered"], 1);
    assert_eq!(receiver.seen().len(), 1);
    server.running.says("notification_received");
}

/// An attempt may take 10 s here. A publisher that waits for one is far beyond this, also on a machine
/// that has much else to do.
const AT_ONCE: Duration = Duration::from_secs(4);

#[test]
fn the_publisher_does_not_wait_for_subscribers() {
    let (_home, server) = home().served();
    kanaal(&server, "zaken", &[]);
    // Takes the test message, and never says anything about others.
    let tried = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&tried);
    let hung = Callback::scripted(move |seen| {
        if seen.json()["kanaal"] != "test" {
            count.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_secs(3_600));
        }
        if seen.header("authorization").is_some() { 204 } else { 401 }
    });
    abonnement(&server, &hung, &json!([{"naam": "zaken"}]));
    // Also not when many wait already, nor while they are tried.
    for number in 0..20 {
        let begun = Instant::now();
        publish(&server, &message("zaken", &json!({}))).expect(201);
        let took = begun.elapsed();
        assert!(took < AT_ONCE, "publish {number} took {took:?}");
    }
    let counted = stats(&server);
    assert_eq!(counted["delivered"], 0, "{counted}");
    // It was not that nobody tried.
    until("an attempt", || tried.load(Ordering::SeqCst) > 0);
}

#[test]
fn whatever_is_not_a_2xx_is_tried_again_until_the_schedule_ends() {
    let (_home, server) = home().served();
    kanaal(&server, "zaken", &[]);
    let subscribe = |status: u16| {
        let receiver = Callback::new();
        abonnement(&server, &receiver, &json!([{"naam": "zaken"}]));
        receiver.answer(status);
        receiver
    };
    // Redirects are not followed, and no status ends it for good.
    let bad = [302, 400, 404, 410, 429, 500].map(subscribe);
    // Any 2xx is enough.
    let good = [200, 201, 202, 204, 226].map(subscribe);
    publish(&server, &message("zaken", &json!({}))).expect(201);
    let counted = settled(&server);
    assert_eq!((&counted["dead"], &counted["delivered"]), (&json!(6), &json!(5)), "{counted}");
    for receiver in &bad {
        let seen = receiver.seen();
        assert_eq!(seen.len(), 4, "four attempts and no more");
        assert!(seen.iter().all(|again| again.body == seen[0].body));
        for pair in seen.windows(2) {
            let gap = pair[1].at.duration_since(pair[0].at);
            assert!(gap >= Duration::from_millis(99), "never early: {gap:?}");
        }
    }
    assert!(good.iter().all(|receiver| receiver.seen().len() == 1), "taken is taken");
    // Who is back gets what comes next.
    bad[5].answer(0);
    publish(&server, &message("zaken", &json!({}))).expect(201);
    bad[5].wait(5);
}

#[test]
fn a_lost_confirmation_means_the_same_message_again() {
    let (_home, server) = home().served();
    kanaal(&server, "zaken", &[]);
    let count = AtomicUsize::new(0);
    let forgetful = Callback::scripted(move |seen| {
        if seen.json()["kanaal"] == "test" {
            return if seen.header("authorization").is_some() { 204 } else { 401 };
        }
        // It takes the message, and the connection ends before it can say so.
        let nth = count.fetch_add(1, Ordering::SeqCst);
        if nth < 2 { 0 } else { 204 }
    });
    abonnement(&server, &forgetful, &json!([{"naam": "zaken"}]));
    publish(&server, &message("zaken", &json!({}))).expect(201);
    let seen = forgetful.wait(3);
    assert!(seen.iter().all(|again| again.body == seen[0].body));
    assert_eq!(settled(&server)["delivered"], 1);
    assert_eq!(forgetful.seen().len(), 3, "and once it is confirmed, not again");
}

#[test]
fn the_example_of_the_page_is_valid() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/systems/notificaties.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let example = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next());
    let home = home();
    let secret = home.path().join("secret");
    std::fs::write(&secret, "x").expect("written");
    let example = example.expect("an example");
    let example = example.replace("/run/secrets/zaakafhandelapp", &secret.display().to_string());
    home.write("posthorn.yaml", example);
    let mut command = home.command();
    Ran::of(command.arg("check").env("OPEN_ZAAK_SECRET", "y")).exits(0);
}

#[test]
fn filters_choose_as_the_standard_says() {
    let (_home, server) = home().served();
    kanaal(&server, "zaken", &["bron", "object_type"]);
    kanaal(&server, "documenten", &[]);
    let subscribe = |kanalen: Value| {
        let receiver = Callback::new();
        abonnement(&server, &receiver, &kanalen);
        receiver
    };
    let nothing = subscribe(json!([]));
    let all = subscribe(json!([{"naam": "zaken"}]));
    let star = subscribe(json!([{"naam": "zaken", "filters": {"bron": "*"}}]));
    let one = subscribe(json!([{"naam": "zaken", "filters": {"bron": "a", "object_type": "x"}}]));
    let two = subscribe(json!([{"naam": "zaken", "filters": {"bron": "a"}},
        {"naam": "zaken", "filters": {"objectType": "x"}}, {"naam": "documenten"}]));
    let created = subscribe(json!([{"naam": "zaken", "filters": {"#actie": "destroy"}}]));
    let receivers = [&nothing, &all, &star, &one, &two, &created];
    let mut expected = [0; 6];
    let mut check = |message: &Value, more: [usize; 6]| {
        publish(&server, message).expect(201);
        for (count, more) in expected.iter_mut().zip(more) {
            *count += more;
        }
        settled(&server);
        let found: Vec<usize> = receivers.iter().map(|receiver| receiver.seen().len()).collect();
        assert_eq!(found, expected, "{message}");
    };
    check(&message("zaken", &json!({"bron": "a", "objectType": "x"})), [0, 1, 1, 1, 1, 0]);
    check(&message("zaken", &json!({"bron": "a", "object_type": "y"})), [0, 1, 1, 0, 1, 0]);
    check(&message("zaken", &json!({"bron": "b", "object_type": "x"})), [0, 1, 1, 0, 1, 0]);
    check(&message("zaken", &json!({"bron": "b", "objectType": ""})), [0, 1, 1, 0, 0, 0]);
    // What a filter asks for that the message does not have does not count.
    check(&message("zaken", &json!({"bron": "a"})), [0, 1, 1, 1, 1, 0]);
    check(&message("zaken", &json!({})), [0, 1, 1, 1, 1, 0]);
    check(&message("documenten", &json!({"any": "thing"})), [0, 0, 0, 0, 1, 0]);
    let mut destroyed = message("zaken", &json!({"bron": "b", "objectType": "z"}));
    destroyed["actie"] = json!("destroy");
    check(&destroyed, [0, 1, 1, 0, 0, 1]);
    let mut bare = message("zaken", &json!({}));
    bare.as_object_mut().expect("an object").remove("kenmerken");
    check(&bare, [0, 1, 1, 1, 1, 0]);
}

fn cloudevent_subscriber(server: &Server, kanalen: &Value, filters: &Value) -> Callback {
    let receiver = Callback::new();
    let body = json!({"callbackUrl": receiver.url("/ce"), "auth": AUTH, "kanalen": kanalen,
        "sendCloudevents": true, "cloudeventFilters": filters});
    ask(server, "consumer", "POST", "/abonnement", &body).expect(201);
    receiver
}

#[test]
fn who_wants_cloudevents_gets_notifications_as_such() {
    let (_home, server) = home().served();
    kanaal(&server, "zaken", &["bron"]);
    let plain = Callback::new();
    abonnement(&server, &plain, &json!([{"naam": "zaken"}]));
    publish(&server, &message("zaken", &json!({"bron": "a"}))).expect(201);
    let converted = cloudevent_subscriber(
        &server,
        // Two groups fit; still it is one delivery.
        &json!([{"naam": "zaken", "filters": {"bron": "a"}}, {"naam": "zaken"}]),
        &json!([]),
    );
    // Without a source there is no CloudEvent, and then nobody gets anything.
    let stored = settled(&server)["events"].clone();
    let reply = publish(&server, &message("zaken", &json!({"bron": "a"})));
    refused(reply, "source", "invalid");
    assert_eq!(settled(&server)["events"], stored);
    let mut message = message("zaken", &json!({"bron": "a"}));
    message["source"] = json!("urn:openzaak");
    publish(&server, &message).expect(201);
    let seen = &converted.wait(1)[0];
    assert_eq!(seen.header("content-type"), Some("application/cloudevents+json"));
    assert_eq!(seen.header("authorization"), Some(AUTH));
    let event = seen.json();
    let id = event["id"].as_str().expect("an id");
    assert_eq!((id.len(), &id[14..15]), (36, "4"), "{id}");
    let expected = json!({"id": id, "source": "urn:openzaak", "specversion": "1.0",
        "type": "nl.overheid.zaken.status.create", "datacontenttype": "application/json",
        "subject": "2", "time": "2024-05-06T11:59:59Z",
        "data": {"bron": "a", "hoofdObject": "http://openzaak:8000/zaken/1"}});
    assert_eq!(event, expected);
    let seen = plain.wait(2);
    assert_eq!(seen[1].json(), message);
    assert_eq!(seen[1].header("content-type"), Some("application/json"));
    assert_eq!(settled(&server)["delivered"], 3);
    assert_eq!((plain.seen().len(), converted.seen().len()), (2, 1));
}

fn publish_cloudevent(server: &Server, event: &Value) -> Reply {
    let token = token("publisher");
    let kind = ("content-type", "application/cloudevents+json");
    let headers = [("authorization", token.as_str()), kind];
    send(&server.url, "POST", "/api/v1/cloudevents", &headers, event.to_string())
}

#[test]
fn cloudevents_go_to_those_whose_filters_fit() {
    let (_home, server) = home().served();
    kanaal(&server, "zaken", &[]);
    let none = json!([]);
    let filtered = |filters: Value| cloudevent_subscriber(&server, &none, &filters);
    let any = filtered(json!([{"typeSubstring": "overheid.zaken", "filters": {}}]));
    let bron = filtered(json!([{"typeSubstring": "nl.", "filters": {"bronCode": "a"}},
        {"typeSubstring": "overheid", "filters": {"bronCode": "a"}}]));
    let other = filtered(json!([{"typeSubstring": "elsewhere", "filters": {}}]));
    let kanalen = cloudevent_subscriber(&server, &json!([{"naam": "zaken"}]), &none);
    let off = Callback::new();
    let body = json!({"callbackUrl": off.url("/"), "auth": AUTH,
        "cloudeventFilters": [{"typeSubstring": "nl", "filters": {}}]});
    let made = ask(&server, "consumer", "POST", "/abonnement", &body).expect(201);
    assert_eq!(get(&server, &path_of(&made)).expect(200), made);

    let event = |id: &str, data: Value| {
        json!({"id": id, "source": "urn:oz", "specversion": "1.0", "type": "nl.overheid.zaken.x",
            "data": data})
    };
    let cases = [
        (json!({"bronCode": "a"}), 1),
        (json!({"bron_code": "a"}), 1),
        (json!({"bronCode": "b"}), 0),
        // What a filter asks for that is not there does not count.
        (json!({}), 1),
        (json!(null), 1),
        (json!("<xml>bronCode</xml>"), 1),
        (json!(5), 1),
    ];
    let mut wanted = 0;
    for (index, (data, more)) in cases.iter().enumerate() {
        let reply = publish_cloudevent(&server, &event(&index.to_string(), data.clone()));
        let reply = reply.with(201);
        assert_eq!(reply.header("content-type"), Some("application/cloudevents+json"));
        assert_eq!(reply.json(), event(&index.to_string(), data.clone()));
        wanted += more;
        settled(&server);
        assert_eq!((any.seen().len(), bron.seen().len()), (index + 1, wanted), "{data}");
    }
    let seen = &any.seen()[0];
    assert_eq!(seen.header("content-type"), Some("application/cloudevents+json"));
    assert_eq!(seen.json(), event("0", json!({"bronCode": "a"})));
    for receiver in [&other, &kanalen, &off] {
        assert!(receiver.seen().is_empty());
    }

    // The same again is the same; another with its id and source is refused.
    publish_cloudevent(&server, &event("0", json!({"bronCode": "a"}))).expect(201);
    settled(&server);
    assert_eq!(any.seen().len(), cases.len());
    let reply = publish_cloudevent(&server, &event("0", json!({"bronCode": "c"})));
    refused(reply, "nonFieldErrors", "unique");
    let mut unknown = event("9", json!({}));
    unknown["dataref"] = json!("https://x/");
    let reply = publish_cloudevent(&server, &unknown).expect(201);
    assert!(reply.get("dataref").is_none(), "{reply}");
    let reply = publish_cloudevent(&server, &json!({"id": "1"})).expect(400);
    assert_eq!(reply["invalidParams"].as_array().map(Vec::len), Some(3), "{reply}");
    ask(&server, "publisher", "POST", "/cloudevents", &event("8", json!({}))).expect(415);
}

#[test]
fn deliveries_are_authenticated_as_the_abonnement_says() {
    let mut home = home();
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    home.write("roots.pem", &servers.pem);
    home.edit("allow: [127.0.0.0/8]", "allow: [127.0.0.0/8], extra_roots: roots.pem");
    let server = home.serve();
    kanaal(&server, "zaken", &[]);
    let make = |body: &Value| ask(&server, "consumer", "POST", "/abonnement", body);

    // A fresh token for each attempt.
    let zgw = Callback::scripted(|seen| {
        let token = seen.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        let verified = token.map(|token| jwt::verify(token, b"its secret", now(), 5));
        if matches!(verified, Some(Ok(_))) { 204 } else { 403 }
    });
    let body = json!({"callbackUrl": zgw.url("/"), "authType": "zgw", "authClientId": "nrc",
        "secret": "its secret", "kanalen": [{"naam": "zaken"}]});
    let made = make(&body).expect(201);
    assert!(made.get("secret").is_none() && made.get("authClientId").is_none());
    let wrong = json!({"callbackUrl": zgw.url("/"), "authType": "zgw", "authClientId": "nrc",
        "secret": "another", "kanalen": []});
    refused(make(&wrong), "nonFieldErrors", "invalid-callback-url");

    // A token from a token server.
    let tokens = token_server();
    let oauth2 = Callback::scripted(|seen| {
        if seen.header("authorization") == Some("Bearer from-the-token-server") { 204 } else { 401 }
    });
    let body = json!({"callbackUrl": oauth2.url("/"), "authType": "oauth2_client_credentials",
        "authClientId": "nrc", "secret": "its secret", "oauth2TokenUrl": tokens.url("/token"),
        "oauth2Scope": "notifications", "kanalen": [{"naam": "zaken"}]});
    make(&body).expect(201);
    let body = json!({"callbackUrl": oauth2.url("/"), "authType": "oauth2_client_credentials"});
    let problem = make(&body).expect(400);
    assert_eq!(problem["invalidParams"].as_array().map(Vec::len), Some(3), "{problem}");
    refused(
        make(&json!({"callbackUrl": "http://a/", "authType": "x"})),
        "authType",
        "invalid_choice",
    );

    // Nothing but the certificate.
    let open = Receiver::secure(&servers, "127.0.0.1", Clients::Of(&clients));
    let pair = clients.sign("nrc.gemeente.nl");
    home.write("c.pem", &pair.certificate);
    home.write("k.pem", &pair.key);
    let id = id_of(&server.ask(
        "certificates create --tenant gemeente --kind client --certificate c.pem --key-file k.pem \
         --owner consumer",
    ));
    let body = json!({"callbackUrl": open.url("/"), "authType": "no_auth",
        "clientCertificate": id, "kanalen": [{"naam": "zaken"}]});
    let path = path_of(&make(&body).expect(201));
    // Nobody may show the certificate of another.
    let theirs = ask(&server, "both", "POST", "/abonnement", &body);
    refused(theirs, "clientCertificate", "invalid");
    // Nor be called without any protection, from the start or later.
    let mut without = body.clone();
    without.as_object_mut().expect("an object").remove("clientCertificate");
    refused(make(&without), "authType", "no-auth-on-callback-url");
    let removed = json!({"clientCertificate": ""});
    refused(
        ask(&server, "consumer", "PATCH", &path, &removed),
        "authType",
        "no-auth-on-callback-url",
    );

    let probes = open.seen().len();
    publish(&server, &message("zaken", &json!({}))).expect(201);
    let claims = |seen: &Request| {
        let value = seen.header("authorization").expect("a token").to_owned();
        let claims =
            jwt::verify(value.strip_prefix("Bearer ").expect("a token"), b"its secret", now(), 5);
        claims.expect("a valid token")
    };
    let claims = claims(&zgw.wait(1)[0]);
    assert_eq!((claims.client_id.as_str(), claims.iss.as_str()), ("nrc", "nrc"));
    assert_eq!(claims.exp.zip(claims.iat).map(|(exp, iat)| exp - iat), Some(12 * 3_600));
    let seen = &oauth2.wait(1)[0];
    assert_eq!(seen.header("authorization"), Some("Bearer from-the-token-server"));
    until("a delivery with the certificate", || open.seen().len() > probes);
    assert_eq!(settled(&server)["delivered"], 3);
}

/// Gives a token to whoever asks for client credentials and the right scope.
fn token_server() -> Receiver {
    let token =
        json!({"access_token": "from-the-token-server", "token_type": "Bearer", "expires_in": 600});
    Receiver::scripted(move |seen| {
        let right = ["grant_type=client_credentials", "scope=notifications"];
        let fine = right.iter().all(|part| seen.text().contains(part));
        let body = if fine { token.to_string() } else { "{}".to_owned() };
        Answer::from(200).header("content-type", "application/json").body(body)
    })
}

#[test]
fn retries_go_on_where_they_were_after_the_server_was_killed() {
    let mut home = home_with("");
    home.edit("wait: 100ms", "wait: 3s");
    let server = home.serve();
    kanaal(&server, "zaken", &[]);
    let receiver = Callback::new();
    let path = path_of(&abonnement(&server, &receiver, &json!([{"naam": "zaken"}])));
    receiver.answer(500);
    publish(&server, &message("zaken", &json!({}))).expect(201);
    receiver.wait(1);
    // The outcome is written down within moments; a kill before that repeats the attempt.
    until("the record of the attempt", || {
        let list = server.ask("deliveries list --tenant gemeente");
        let text = list.to_string();
        text.contains("\"attempts_made\":1")
    });
    server.running.signal("KILL");
    drop(server);
    let server = home.serve();
    assert_eq!(path_of(&get(&server, &path).expect(200)), path);
    let seen = receiver.wait(4);
    for pair in seen.windows(2) {
        let gap = pair[1].at.duration_since(pair[0].at);
        assert!(gap >= Duration::from_millis(2_900), "never early: {gap:?}");
    }
    let counted = settled(&server);
    assert_eq!((&counted["dead"], receiver.seen().len()), (&json!(1), 4), "{counted}");
}

#[test]
fn two_nodes_on_postgresql_give_the_same_answers_and_deliver_once() {
    let database = database();
    let [(_one, first), (_two, second)] = nodes(&database, [home(), home()]);
    let made = kanaal(&first, "zaken", &["bron"]);
    assert_eq!(get(&second, &path_of(&made)).expect(200), made);
    let twice = ask(&second, "publisher", "POST", "/kanaal", &json!({"naam": "zaken"}));
    refused(twice, "naam", "unique");
    let receiver = Callback::new();
    let made =
        abonnement(&second, &receiver, &json!([{"naam": "zaken", "filters": {"bron": "a"}}]));
    let path = path_of(&made);
    assert_eq!(get(&first, &path).expect(200), made);
    let converted = cloudevent_subscriber(&first, &json!([{"naam": "zaken"}]), &json!([]));
    let mut message = message("zaken", &json!({"bron": "a"}));
    message["source"] = json!("urn:oz");
    for server in [&first, &second, &first, &second] {
        publish(server, &message).expect(201);
    }
    receiver.wait(4);
    converted.wait(4);
    assert_eq!(settled(&first)["delivered"], 8);
    assert_eq!((receiver.seen().len(), converted.seen().len()), (4, 4));
    // What fails is tried again here too.
    receiver.answer(503);
    publish(&first, &message).expect(201);
    receiver.wait(6);
    receiver.answer(0);
    settled(&second);
    ask(&first, "consumer", "DELETE", &path, &Value::Null).expect(204);
    get(&second, &path).expect(404);
    let before = receiver.seen().len();
    publish(&second, &message).expect(201);
    converted.wait(6);
    settled(&second);
    assert_eq!(receiver.seen().len(), before);
}
