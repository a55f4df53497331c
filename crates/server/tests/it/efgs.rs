//! EFGS callbacks as national backends meet them: the administration API byte by byte, and what
//! arrives at their own servers.

use std::time::Duration;

use posthorn_testkit::authority::{Authority, Pair};
use posthorn_testkit::caller::Reply;
use posthorn_testkit::program::Home;
use posthorn_testkit::wait::eventually;
use serde_json::{Value, json};

use crate::efgs_stage::{Country, QUICK, Stage, announce};
use crate::postgres::database;

/// An error as the gateway's clients read it.
#[track_caller]
fn expect_message(reply: Reply, status: u16, part: &str) {
    let body = reply.has(&[("content-type", "application/json")]).expect(status);
    let fields: Vec<_> = body.as_object().expect("an object").keys().collect();
    assert_eq!(fields, ["message"], "{body}");
    let message = body["message"].as_str().expect("text");
    assert!(message.contains(part), "{message}");
}

/// A backend's life: subscribe, be told, change, be told elsewhere, unsubscribe, be left alone.
fn whole_life(mut home: Home, stage: &Stage) {
    let server = home.serve();
    let (old, new) = (stage.backend("cb.de.example"), stage.backend("new.de.example"));
    let germany = Country::register(&server, "DE");
    let pair = germany.subscribe(&server, "de-cb-001", &old);
    let id = server.ask("subscriptions list")["items"][0]["id"].clone();
    assert_eq!(germany.list(&server), json!([{"callbackId": "de-cb-001", "url": old.url()}]));
    announce(&server, "20200817-1");
    let [seen] = &old.wait_for(1)[..] else { panic!("once") };
    assert_eq!(seen.method, "GET");
    assert_eq!(seen.path, "/callback?batchTag=20200817-1&date=2020-08-17");
    assert_eq!(seen.header("x-ssl-client-sha256"), Some(pair.thumbprint().as_str()));
    assert_eq!(seen.header("user-agent"), Some("EFGS Callback Engine"));
    assert_eq!(seen.header("content-length").unwrap_or("0"), "0");
    assert_eq!(seen.shown, None, "the proxy has the key");

    // The same id is changed in place, also when its server was restarted meanwhile.
    server.stop();
    let server = home.serve();
    germany.subscribe(&server, "de-cb-001", &new);
    assert_eq!(germany.list(&server), json!([{"callbackId": "de-cb-001", "url": new.url()}]));
    let subscriptions = server.ask("subscriptions list");
    assert_eq!(subscriptions["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(subscriptions["items"][0]["id"], id, "the same record");
    announce(&server, "20200817-2");
    assert_eq!(new.wait_for(1)[0].query("batchTag"), "20200817-2");
    assert_eq!(old.seen().len(), 1);

    new.script(|_, _| (Duration::ZERO, 500));
    announce(&server, "20200817-3");
    new.wait_for(2);
    let reply = germany.ask(&server, "DELETE", "/de-cb-001").with(200);
    assert_eq!(reply.body, "");
    let seen = new.seen().len();
    expect_message(germany.ask(&server, "DELETE", "/de-cb-001"), 404, "no callback");
    assert_eq!(germany.list(&server), json!([]));
    announce(&server, "20200817-4");
    server.settles(&[("pending", 0)]);
    std::thread::sleep(Duration::from_millis(1_000));
    // One may have been under way when it was unsubscribed.
    assert!(new.seen().len() <= seen + 1 && !new.tags().contains(&"20200817-4".to_owned()));
    server.stop();
}

#[test]
fn a_callback_is_subscribed_sent_changed_and_unsubscribed() {
    let stage = Stage::new();
    whole_life(stage.home(QUICK, ""), &stage);
}

#[test]
fn a_callback_is_subscribed_sent_changed_and_unsubscribed_on_postgresql() {
    let database = database();
    let stage = Stage::new();
    let home = stage.home(QUICK, "");
    home.store_in(&database.url());
    whole_life(home, &stage);
}

#[test]
fn countries_see_and_change_only_their_own() {
    let (stage, _home, server) = Stage::serving();
    let [de, nl] = ["cb.de.example", "cb.nl.example"].map(|host| stage.backend(host));
    let [germany, holland] = ["DE", "NL"].map(|name| Country::register(&server, name));
    for id in ["b", "a", "c"] {
        germany.subscribe(&server, id, &de);
    }
    holland.subscribe(&server, "nl-cb", &nl);
    let ids = |list: &Value| -> Vec<String> {
        let ids = list.as_array().expect("a list").iter();
        ids.map(|item| item["callbackId"].as_str().expect("text").to_owned()).collect()
    };
    assert_eq!(ids(&germany.list(&server)), ["b", "a", "c"], "in the order they were made");
    assert_eq!(ids(&holland.list(&server)), ["nl-cb"]);
    // The log says whose certificate it was.
    let lines = server.ask("audit list --action subscription.created");
    let lines = lines["items"].as_array().expect("a list");
    let actors: std::collections::BTreeSet<&str> =
        lines.iter().filter_map(|line| line["actor"]["id"].as_str()).collect();
    assert_eq!((lines.len(), actors.len()), (4, 2), "{lines:?}");
    for line in lines {
        assert_eq!(
            (&line["actor"]["kind"], &line["surface"]),
            (&"certificate".into(), &"efgs".into())
        );
        assert!(line["actor"]["id"].as_str().is_some_and(|id| id.starts_with("crt_")), "{line}");
    }
    // Another country's id is neither taken over nor deleted.
    holland.certify(&server, "cb.nl.example", false);
    expect_message(holland.put(&server, "b", &nl.url()), 403, "another country");
    expect_message(holland.ask(&server, "DELETE", "/b"), 404, "no callback");
    assert_eq!(germany.list(&server)[0]["url"], de.url());
    assert_eq!(ids(&holland.list(&server)), ["nl-cb"]);
    let made = announce(&server, "1");
    assert_eq!(made["deliveries"], 4, "{made}");
    de.wait_for(3);
    nl.wait_for(1);
    server.stop();
}

#[test]
fn what_there_is_no_room_for_or_has_a_secret_is_the_callers_to_change() {
    let stage = Stage::new();
    let mut home = stage.home(QUICK, "");
    home.configure("quotas: {subscriptions: 1}\n");
    let server = home.serve();
    let [old, new] = ["cb.de.example", "new.de.example"].map(|host| stage.backend(host));
    let germany = Country::register(&server, "DE");
    germany.subscribe(&server, "cb", &old);
    expect_message(
        germany.put(&server, "second", &old.url()),
        400,
        "limit of callbacks is reached",
    );
    // A secret that an operator gave for the present host does not go to another one.
    let auth = r#"{"auth": [{"kind": "secret_header", "header": "x-token", "secret": "token"}]}"#;
    server.ask(&["subscriptions", "update", "cb", "--policy", auth, "--secret", "token=hush-hush"]);
    germany.certify(&server, &new.host, false);
    expect_message(germany.put(&server, "cb", &new.url()), 400, "subscribe it again");
    assert_eq!(germany.list(&server), json!([{"callbackId": "cb", "url": old.url()}]));
    // The operator reads which.
    server.running.says("quotas.subscriptions");
    let log = server.running.stderr();
    assert!(!log.contains("\"ERROR\""), "nothing is wrong with the server: {log}");
    germany.ask(&server, "DELETE", "/cb").expect(200);
    germany.put(&server, "cb", &new.url()).expect(200);
    server.stop();
}

#[test]
fn where_each_country_has_its_own_ids_two_may_have_the_same() {
    let stage = Stage::new();
    let (_home, server) = stage.home(QUICK, ", callback_id_scope: per_country").served();
    let [de, nl] = ["cb.de.example", "cb.nl.example"].map(|host| stage.backend(host));
    let [germany, holland] = ["DE", "NL"].map(|name| Country::register(&server, name));
    germany.subscribe(&server, "cb", &de);
    holland.subscribe(&server, "cb", &nl);
    holland.put(&server, "cb", &nl.url()).expect(200);
    assert_eq!(germany.list(&server), json!([{"callbackId": "cb", "url": de.url()}]));
    announce(&server, "1");
    de.wait_for(1);
    nl.wait_for(1);
    holland.ask(&server, "DELETE", "/cb").expect(200);
    assert_eq!(holland.list(&server), json!([]));
    assert_eq!(germany.list(&server).as_array().map(Vec::len), Some(1));
    server.stop();
}

#[test]
fn urls_that_may_not_be_used_are_refused_and_nothing_is_stored() {
    let (stage, _home, server) = Stage::serving();
    let good = stage.backend("cb.de.example");
    let germany = Country::register(&server, "DE");
    let holland = Country::register(&server, "NL");
    germany.certify(&server, &good.host, false);
    for host in ["localhost", "0", "10.0.0.1", "ten.example", "none.example", "half.example"] {
        drop(germany.certify(&server, host, false));
    }
    stage.names.set("ten.example", &[[10, 0, 0, 1]]);
    stage.names.set("half.example", &[[127, 0, 0, 1], [192, 168, 0, 1]]);
    stage.names.set("uncertified.example", &[[127, 0, 0, 1]]);
    stage.names.set("cb.nl.example", &[[127, 0, 0, 1]]);
    holland.certify(&server, "cb.nl.example", false);
    let port = good.port;
    let own = format!("https://{}:{port}", good.host);
    let bad = [
        // No URL, or none with https.
        String::new(),
        "nonsense".to_owned(),
        "https://".to_owned(),
        "https%3A%2F%2F".to_owned(),
        format!("http://{}:{port}/callback", good.host),
        format!("ftp://{}/", good.host),
        "//cb.de.example/".to_owned(),
        // What no URL has in it.
        format!("{own}/%00").replace("https://", "https%3A%2F%2F"),
        format!("{own}/a%0D%0Ab").replace("https://", "https%3A%2F%2F"),
        format!("https://user:pass@{}:{port}/", good.host),
        format!("https://{}:{port}/%23fragment", good.host).replace("https://", "https%3A%2F%2F"),
        "https://c\u{e4}.example/".replace('\u{e4}', "%C3%A4"),
        // With a query, also an empty one, also encoded.
        format!("{own}/?a=b"),
        format!("{own}/?a=b&c=d"),
        format!("{own}/?"),
        format!("{own}/%3Fa=b").replace("https://", "https%3A%2F%2F"),
        // Names and addresses inside.
        "https://localhost/".to_owned(),
        "https://192.168.1.1/".to_owned(),
        "https://10.0.0.1/".to_owned(),
        "https://172.16.0.1/".to_owned(),
        "https://100.64.0.1/".to_owned(),
        "https://169.254.1.1/".to_owned(),
        "https://0/".to_owned(),
        "https://0177.0.0.1/".to_owned(),
        "https://0144.0100.0.1/".to_owned(),
        "https://[::]:80/".to_owned(),
        "https://[::1]/".to_owned(),
        "https://[fc00::1]/".to_owned(),
        "https://[fe80::1]/".to_owned(),
        "https://[::ffff:10.0.0.1]/".to_owned(),
        "https://ten.example/".to_owned(),
        "https://half.example/".to_owned(),
        // Names that lead nowhere.
        "https://none.example/".to_owned(),
        // Without a certificate of this country for the host.
        "https://uncertified.example/".to_owned(),
        "https://cb.nl.example/".to_owned(),
        // Too long.
        format!("{own}/{}", "a".repeat(256)),
    ];
    for url in &bad {
        expect_message(germany.put(&server, "cb", url), 400, "Callback URL is invalid");
    }
    // The operator reads whose it was, and why.
    let lines = eventually("a line for each", || {
        let log = server.running.stderr();
        let said = log.lines().filter(|line| line.contains("a callback URL was refused"));
        let lines: Vec<String> = said.map(str::to_owned).collect();
        (lines.len() == bad.len()).then_some(lines)
    });
    for line in lines {
        for part in [r#""callback_id":"cb""#, r#""country":"DE""#, r#""reason":""#] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
    }
    expect_message(germany.ask(&server, "PUT", "/cb"), 400, "url");
    expect_message(germany.ask(&server, "PUT", "/cb?uri=https://a/"), 400, "url");
    assert_eq!(germany.list(&server), json!([]));
    // Nor does a bad URL replace a good one.
    germany.put(&server, "cb", &good.url()).expect(200);
    expect_message(germany.put(&server, "cb", "https://10.0.0.1/"), 400, "Callback URL is invalid");
    assert_eq!(germany.list(&server), json!([{"callbackId": "cb", "url": good.url()}]));
    // Encoded or as it stands, what was written is what is shown.
    let encoded = good.url().replace(':', "%3A").replace('/', "%2F");
    germany.put(&server, "cb", &encoded).expect(200);
    let bare = format!("https://CB.de.example:{port}");
    germany.put(&server, "bare", &bare).expect(200);
    let list = json!([
        {"callbackId": "cb", "url": good.url()},
        {"callbackId": "bare", "url": bare},
    ]);
    assert_eq!(germany.list(&server), list);
    server.stop();
}

#[test]
fn ids_of_any_printable_kind_are_taken_up_to_32_characters() {
    let (stage, _home, server) = Stage::serving();
    let backend = stage.backend("cb.de.example");
    let germany = Country::register(&server, "DE");
    germany.certify(&server, &backend.host, false);
    let longest = "0123456789abcdef0123456789abcdef";
    for id in [longest, "de-cb-001", "a%20b", "%C3%A4%C3%B6%C3%BC", "a%2Fb", "%25"] {
        germany.put(&server, id, &backend.url()).expect(200);
        germany.ask(&server, "DELETE", &format!("/{id}")).expect(200);
    }
    for id in [format!("{longest}0"), "a%0Ab".to_owned(), "%00".to_owned(), "%ff".to_owned()] {
        expect_message(germany.put(&server, &id, &backend.url()), 400, "callback id");
        expect_message(germany.ask(&server, "DELETE", &format!("/{id}")), 404, "no callback");
    }
    assert_eq!(germany.list(&server), json!([]));
    for (method, path) in
        [("POST", "/a"), ("GET", "/a"), ("PATCH", "/a"), ("PUT", ""), ("DELETE", "")]
    {
        let reply = germany.ask(&server, method, path);
        assert!(reply.header("allow").is_some(), "{reply:?}");
        expect_message(reply, 405, "method");
    }
    server.stop();
}

#[test]
fn callers_are_known_by_thumbprint_and_country_or_not_at_all() {
    let (_stage, _home, server) = Stage::serving();
    let germany = Country::register(&server, "DE");
    let thumbprint = germany.own.thumbprint();
    let bytes: Vec<u8> = (0..32)
        .map(|at| u8::from_str_radix(&thumbprint[2 * at..2 * at + 2], 16).expect("hex"))
        .collect();
    let base64 = {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(&bytes)
    };
    let encoded = base64.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    let ask = |headers: &[(&str, &str)]| {
        server.open("GET", "/diagnosiskeys/callback").headers(headers).send()
    };
    let (sha, dn) = ("X-SSL-Client-SHA256", "X-SSL-Client-DN");
    for text in [&thumbprint, &thumbprint.to_uppercase(), &base64, &encoded] {
        ask(&[(sha, text), (dn, "C=DE")]).expect(200);
    }
    for subject in [
        "CN=backend,O=Health,C=DE",
        "c=de, CN=a",
        "CN%3Dbackend%2CC%3DDE",
        "nonsense,C=DE,X=Y=Z,=",
        "C=DE,C=NL",
    ] {
        ask(&[(sha, &thumbprint), (dn, subject)]).expect(200);
    }
    for headers in [
        &[][..],
        &[(dn, "C=DE")],
        &[(sha, &thumbprint)],
        &[(sha, "nonsense"), (dn, "C=DE")],
        &[(sha, &"ab".repeat(32)), (dn, "C=DE")],
        &[(sha, &thumbprint), (dn, "C=NL")],
        &[(sha, &thumbprint), (sha, &thumbprint), (dn, "C=DE")],
    ] {
        expect_message(ask(headers), 403, "client certificate");
    }
    for subject in ["CN=backend", "", "C=", "C=GERMANY", "%zz", "CN=a\\,C=DE"] {
        expect_message(ask(&[(sha, &thumbprint), (dn, subject)]), 400, "country");
    }
    // What a client does not take is not sent.
    let plain = [(sha, thumbprint.as_str()), (dn, "C=DE"), ("accept", "text/plain")];
    expect_message(ask(&plain), 406, "application/json");
    let id = server.ask("certificates list")["items"][0]["id"].clone();
    server.ask(&["certificates", "revoke", id.as_str().expect("text")]);
    expect_message(ask(&[(sha, &thumbprint), (dn, "C=DE")]), 403, "not known");
    server.stop();
}

/// A certificate that may only read, one of nobody, and one of another tenant.
#[test]
fn a_certificate_must_be_a_countrys_and_allowed_to_manage_callbacks() {
    let (_stage, home, server) = Stage::serving();
    server.ask("tenants create elsewhere");
    let check = |more: &[&str], status: u16| {
        let pair = Pair::of_country("DE");
        home.write("c.pem", &pair.certificate);
        let args = ["certificates", "create", "--kind", "caller", "--certificate", "c.pem"];
        server.ask(&[&args[..], more].concat());
        let headers =
            [("X-SSL-Client-SHA256", &pair.thumbprint()[..]), ("X-SSL-Client-DN", "C=DE")];
        let path = "/diagnosiskeys/callback";
        server.open("GET", path).headers(&headers).send().expect(status);
    };
    check(&["--owner", "DE", "--scope", "manage"], 200);
    check(&["--owner", "DE", "--scope", "read"], 403);
    check(&["--scope", "manage"], 403);
    check(&["--owner", "DE", "--scope", "manage", "--tenant", "elsewhere"], 403);
    server.stop();
}

#[test]
fn failures_are_limited_over_all_surfaces_together() {
    let stage = Stage::new();
    let mut home = stage.home(QUICK, "");
    home.edit("auth_failures_per_minute: 1000", "auth_failures_per_minute: 10");
    let server = home.serve();
    let germany = Country::register(&server, "DE");
    let callbacks = || {
        let path = "/diagnosiskeys/callback";
        server.get(path)
    };
    let topics = || server.get("/v1/topics");
    for _ in 0..5 {
        expect_message(callbacks(), 403, "");
        topics().expect(401);
    }
    let reply = callbacks();
    assert!(reply.header("retry-after").is_some(), "{reply:?}");
    expect_message(reply, 429, "too many");
    topics().expect(429);
    germany.list(&server);
    server.stop();
}

#[test]
fn callers_without_a_proxy_show_their_certificates_themselves() {
    let stage = Stage::new();
    let authority = Authority::new("ours");
    let mut home = stage.home("{}", "");
    home.edit("enabled: true, proxies: [127.0.0.1]", "enabled: true");
    home.run("check").exits(78).says(&["dialects.efgs.proxies", "server.tls"]);
    crate::tls::configure(&home, &authority, "ask");
    let server = home.serve();
    let (german, unknown) = (Pair::of_country("DE"), Pair::of_country("DE"));
    home.write("c.pem", &german.certificate);
    let args = ["certificates", "create", "--kind", "caller", "--certificate", "c.pem"];
    let more = ["--owner", "DE", "--scope", "manage", "--ca", "ca.pem"];
    server.ask(&[&args[..], &more].concat());
    let ask = |shown, headers: &[(&str, &str)]| {
        let ask = server.open("GET", "/diagnosiskeys/callback").headers(headers);
        ask.over_tls(&authority.pem, shown).send()
    };
    assert_eq!(ask(Some(&german), &[]).expect(200), json!([]));
    expect_message(ask(Some(&unknown), &[]), 403, "not known");
    // Nobody's headers are believed.
    let thumbprint = german.thumbprint();
    let headers = [("X-SSL-Client-SHA256", thumbprint.as_str()), ("X-SSL-Client-DN", "C=DE")];
    expect_message(ask(None, &headers), 403, "no client certificate");
    server.stop();
}

#[test]
fn in_native_mode_the_countrys_certificate_is_shown_in_the_handshake() {
    let stage = Stage::new();
    let (_home, server) = stage.home(QUICK, ", mode: native_mtls").served();
    let backend = stage.backend("cb.de.example");
    let germany = Country::register(&server, "DE");
    // One without its key can be named, but not shown.
    germany.certify(&server, &backend.host, false);
    expect_message(germany.put(&server, "cb", &backend.url()), 400, "Callback URL is invalid");
    let (pair, id) = germany.certify(&server, &backend.host, true);
    germany.put(&server, "cb", &backend.url()).expect(200);
    announce(&server, "1");
    let seen = &backend.wait_for(1)[0];
    assert_eq!(seen.shown.as_deref(), Some(pair.thumbprint().as_str()));
    assert_eq!(seen.header("x-ssl-client-sha256"), None);
    // Without it nothing is sent; with another one, what waited is.
    server.ask(&["certificates", "revoke", &id]);
    announce(&server, "2");
    eventually("a failed attempt", || {
        let list = server.ask("deliveries list --state pending");
        (list["items"][0]["attempts_made"].as_u64()? >= 1).then_some(())
    });
    let (pair, _) = germany.certify(&server, &backend.host, true);
    let seen = &backend.wait_for(2)[1];
    assert_eq!(seen.shown.as_deref(), Some(pair.thumbprint().as_str()));
    assert_eq!(seen.query("batchTag"), "2");
    server.stop();
}

#[test]
fn what_ran_out_is_dropped_and_logged_and_the_next_goes_on() {
    let stage = Stage::new();
    let (_home, server) = stage.home("{schedule: {backoff: {fixed: {wait: 100ms}}}}", "").served();
    let backend = stage.backend("cb.de.example");
    let germany = Country::register(&server, "DE");
    germany.subscribe(&server, "cb", &backend);
    backend.script(|_, tag| (Duration::ZERO, if tag == "1" { 500 } else { 204 }));
    announce(&server, "1");
    announce(&server, "2");
    backend.wait_for(7);
    assert_eq!(backend.tags(), ["1", "1", "1", "1", "1", "1", "2"], "six sends, then the next");
    eventually("the log entry", || {
        let log = server.running.stderr();
        let line = log.lines().find(|line| line.contains("failed and was dropped"))?;
        for part in ["\"name\":\"cb\"", "batchTag", "\"attempts\":6", "\"status\":500"] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        Some(())
    });
    let stats = server.ask("stats");
    assert_eq!((&stats["delivered"], &stats["dead"]), (&json!(1), &json!(0)), "{stats}");
    server.stop();
}

#[test]
fn a_host_that_moves_inside_is_not_called_and_called_again_when_it_is_back() {
    let stage = Stage::new();
    let (_home, server) =
        stage.home("{schedule: {backoff: {fixed: {wait: 2s}}, max_attempts: 20}}", "").served();
    let backend = stage.backend("cb.de.example");
    let germany = Country::register(&server, "DE");
    germany.subscribe(&server, "cb", &backend);
    stage.names.set("cb.de.example", &[[10, 0, 0, 1]]);
    // What the resolver knew is forgotten after a few seconds.
    std::thread::sleep(Duration::from_secs(6));
    announce(&server, "1");
    eventually("a failed attempt", || {
        let list = server.ask("deliveries list");
        let id = list["items"][0]["id"].as_str()?;
        let delivery = server.ask(&["deliveries", "show", id]);
        (delivery["attempts"][0]["failure"] == "address_not_allowed").then_some(())
    });
    assert!(backend.seen().is_empty());
    stage.names.set("cb.de.example", &[[127, 0, 0, 1]]);
    assert_eq!(backend.wait_for(1)[0].query("batchTag"), "1");
    assert_eq!(germany.list(&server).as_array().map(Vec::len), Some(1), "still subscribed");
    server.stop();
}

#[test]
fn two_hundred_tasks_are_done_in_order_and_no_connection_is_left() {
    let (stage, _home, server) = Stage::serving();
    let backends = ["cb.de.example", "cb.nl.example"].map(|host| stage.backend(host));
    for (name, backend) in ["DE", "NL"].into_iter().zip(&backends) {
        Country::register(&server, name).subscribe(&server, name, backend);
    }
    let wanted: Vec<String> = (1..=100).map(|n| format!("20200817-{n}")).collect();
    for tag in &wanted {
        announce(&server, tag);
    }
    for backend in &backends {
        backend.wait_for(100);
        assert_eq!(backend.tags(), wanted, "each once");
    }
    server.settles(&[("delivered", 200)]);
    server.stop();
}

#[test]
fn a_crash_while_a_callback_is_sent_repeats_it_after_the_lock_ends() {
    let lock = Duration::from_secs(8);
    let policy = "{limits: {connect: 2s, tls: 2s, response: 4s, total: 5s}, lease: {time: 8s}}";
    let stage = Stage::new();
    let (mut home, mut server) = stage.home(policy, "").served();
    let backend = stage.backend("cb.de.example");
    Country::register(&server, "DE").subscribe(&server, "cb", &backend);
    backend.script(|nth, _| (Duration::from_secs(if nth == 0 { 3 } else { 0 }), 200));
    announce(&server, "1");
    announce(&server, "2");
    let first = backend.wait_for(1)[0].at;
    server.running.signal("KILL");
    server.running.wait();
    let server = home.serve();
    let seen = backend.wait_for(3);
    assert_eq!(backend.tags(), ["1", "1", "2"]);
    // The lock was set a moment before the request was seen.
    let waited = seen[1].at.duration_since(first);
    assert!(waited > lock - Duration::from_secs(2), "after {waited:?}");
    server.stop();
}

#[test]
fn what_cannot_work_is_said_before_anything_starts() {
    let stage = Stage::new();
    let home = stage.home("{}", "");
    home.run("check").exits(0);
    for (key, value, says) in [
        ("profile", "nothing", "no profile"),
        ("prefix", "diagnosiskeys", "path"),
        ("prefix", "/v1/callbacks", "native"),
        ("tenant", " ", "tenant"),
        ("mode", "telepathy", "native_mtls"),
        ("callback_id_scope", "galactic", "per_country"),
        ("callback_id_length_max", "0", "1 to"),
        ("thumbprint_header", "no header", "header name"),
        ("proxies", "0.0.0.0/0", "all addresses"),
        ("proxies", "here", "network"),
        ("topic", "not a topic", "topic"),
    ] {
        let set = format!("dialects.efgs.{key}={value}");
        home.run(&["check", "--set", &set])
            .exits(78)
            .says(&[&format!("dialects.efgs.{key}"), says]);
    }
}
