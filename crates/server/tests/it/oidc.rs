//! Logging in to the console with a provider of identities: the real program, and a provider with real signatures.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use posthorn_testkit::caller::Reply;
use posthorn_testkit::id_tokens::{Signs, shared_secret, unsigned};
use posthorn_testkit::identity_provider::{CLIENT_ID, CLIENT_SECRET, IdentityProvider};
use posthorn_testkit::program::{Home, Server};
use posthorn_testkit::receiver::Answer;
use serde_json::{Value, json};

use crate::cedros_world::On;
use crate::console::packages;
use crate::console_browser::{Browser, leads, set_cookie};
use crate::postgres::{database, nodes};

const DISCOVERY: &str = "/.well-known/openid-configuration";

fn home(issuer: &str, more: &str) -> Home {
    let home = Home::new();
    let secret = home.write("client-secret", CLIENT_SECRET);
    home.configure(&format!(
        "
console:
  oidc:
    issuer: {issuer}
    client_id: {CLIENT_ID}
    client_secret: 'file:{}'
    button: Log in with Example
    rights:
    - {{group: ops, scopes: [operator]}}
    - {{group: acme, scopes: [read], tenant: acme}}
    - {{group: acme-admins, scopes: [read, manage], tenant: acme}}
    - {{group: live, scopes: [read, publish], realm: live}}
    - {{group: auditors, scopes: [read]}}
    - {{group: gone, scopes: [read], tenant: nobody}}
{more}
",
        secret.display()
    ));
    home
}

fn world() -> (IdentityProvider, Home, Server) {
    let provider = IdentityProvider::start();
    let (home, server) = home(&provider.issuer(), "").served();
    server.ask("tenants create acme");
    server.ask("tenants create other");
    (provider, home, server)
}

#[track_caller]
fn says(reply: &Reply, status: u16, text: &str) {
    assert_eq!(reply.status, status, "{}", reply.body);
    assert!(reply.body.contains(text), "`{text}` is not in {}", reply.body);
}

#[track_caller]
fn is_in(browser: &mut Browser) {
    says(&browser.get("/console/audit"), 200, "Audit");
}

#[track_caller]
fn is_out(browser: &mut Browser) {
    assert!(leads(&browser.get("/console/audit")).starts_with("/console/login?next="));
}

fn logins(server: &Server, outcome: &str) -> f64 {
    let metrics = server.metrics();
    let line = metrics.lines().find(|line| {
        line.starts_with("posthorn_console_logins_total{")
            && line.contains("way=\"provider\"")
            && line.contains(&format!("outcome=\"{outcome}\""))
    });
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
        .unwrap_or_else(|| panic!("{outcome}: {metrics}"))
}

fn sessions(server: &Server) -> Vec<Value> {
    server.ask("sessions list --kind console")["items"].as_array().expect("a list").clone()
}

fn whole_way(on: On) {
    let provider = IdentityProvider::start();
    let mut home = home(&provider.issuer(), "");
    let _database = on.store(&home);
    let server = home.serve();
    let mut browser = Browser::new(&server);
    let login = leads(&browser.get("/console/audit?action=session"));
    let login = browser.get(&login);
    says(&login, 200, "Log in with Example");
    assert!(login.body.contains("/console/login/oidc?next=%2Fconsole%2Faudit%3Faction%3Dsession"));
    assert!(login.body.contains("API key"), "keys still work");
    assert_eq!(provider.heard(), "", "nothing is asked before somebody wants to log in");

    let next = "/console/audit?action=session";
    let begun = browser.get("/console/login/oidc?next=%2Fconsole%2Faudit%3Faction%3Dsession");
    let place = leads(&begun);
    for part in ["response_type=code", "code_challenge_method=S256", "scope=openid+profile+email"] {
        assert!(place.contains(part), "{place}");
    }
    let state = set_cookie(&begun, "posthorn-login").expect("a cookie").to_owned();
    for part in ["; HttpOnly", "; SameSite=Lax", "; Max-Age=600", "; Path=/"] {
        assert!(state.contains(part), "{state}");
    }
    let entered = browser.log_in(next);
    says(&entered, 200, "You are logged in");
    let refresh = "<meta http-equiv=\"refresh\" content=\"0; url=/console/audit?action=session\">";
    assert!(entered.body.contains(refresh), "{}", entered.body);
    let cookie = set_cookie(&entered, "posthorn-console").expect("a session");
    assert!(cookie.contains("SameSite=Strict") && cookie.contains("HttpOnly"), "{cookie}");
    assert!(set_cookie(&entered, "posthorn-login").expect("taken away").contains("Max-Age=0"));
    says(&browser.get(next), 200, "session.opened");
    says(&browser.get("/console/system"), 200, "provider");
    assert_eq!(provider.complaints(), Vec::<String>::new());

    // An ordinary session: listed, in the audit log, and ended everywhere by a logout.
    let [session] = <[Value; 1]>::try_from(sessions(&server)).expect("one session");
    assert_eq!(
        (&session["name"], &session["opener"]),
        (&json!("jo@example.com"), &json!("provider"))
    );
    assert_eq!(session["scopes"], json!(["operator"]));
    let lines = server.ask("audit list --action session.opened");
    let line = &lines["items"][0];
    assert_eq!(line["actor"]["name"], "jo@example.com", "{line}");
    let mut thief = Browser::new(&server);
    thief.cookies.clone_from(&browser.cookies);
    is_in(&mut thief);
    let token = browser.token();
    assert_eq!(
        leads(&browser.post("/console/logout", "/console/", &[("csrf", &token)])),
        "/console/login"
    );
    is_out(&mut thief);
    assert_eq!(sessions(&server).len(), 0);

    // And by whoever operates the server.
    browser.log_in("/console/");
    is_in(&mut browser);
    let id = sessions(&server)[0]["id"].as_str().expect("an id").to_owned();
    server.run(&format!("sessions end {id}")).exits(0);
    is_out(&mut browser);
    assert!((logins(&server, "opened") - 2.0).abs() < f64::EPSILON);
    // The secret of the client is nowhere but in the question.
    assert!(!server.running.stderr().contains("s3cret"), "{}", server.running.stderr());
}

#[test]
fn people_log_in_with_their_provider_on_sqlite() {
    whole_way(On::Sqlite);
}

#[test]
fn people_log_in_with_their_provider_on_postgres() {
    whole_way(On::Postgres);
}

#[test]
fn a_login_belongs_to_one_browser_and_is_used_once() {
    let (provider, _home, server) = world();
    let again = "was not started in this browser";
    let mut jo = Browser::new(&server);
    let back = jo.visit_provider("/console/");
    // Somebody else opens the link with the code: theirs is another browser, or one with a login of its own.
    let mut other = Browser::new(&server);
    says(&other.get(&back), 403, again);
    other.visit_provider("/console/");
    says(&other.get(&back), 403, again);
    is_out(&mut other);
    // A changed state, none at all, and one of a login that came later in the same browser.
    for wrong in
        [back.replace("state=", "state=x"), back.split("&state").next().unwrap().to_owned()]
    {
        says(&jo.get(&wrong), 403, again);
    }
    let later = jo.visit_provider("/console/");
    says(&jo.get(&back), 403, again);
    is_out(&mut jo);
    says(&jo.get(&later), 200, "You are logged in");
    is_in(&mut jo);
    // The way back is used up, here and at the provider.
    let mut replays = Browser::new(&server);
    says(&jo.get(&later), 403, again);
    replays.cookies.clone_from(&jo.cookies);
    replays.cookies.remove("posthorn-console");
    says(&replays.get(&later), 403, again);
    assert_eq!(provider.complaints(), Vec::<String>::new(), "no code was even tried");
    // Whoever has kept the cookie of the login as well finds that the provider takes no code twice.
    let mut keeps = Browser::new(&server);
    let back = keeps.visit_provider("/console/");
    let kept = keeps.cookies.clone();
    says(&keeps.get(&back), 200, "You are logged in");
    keeps.cookies = kept;
    says(&keeps.get(&back), 403, "invalid_grant");
    is_out(&mut keeps);
    assert_eq!(provider.complaints().len(), 1);
    // The code of one login does not work in another.
    let mut mixes = Browser::new(&server);
    let first = mixes.visit_provider("/console/");
    let second = mixes.visit_provider("/console/");
    let code =
        |back: &str| back.split("code=").nth(1).unwrap().split('&').next().unwrap().to_owned();
    says(&mixes.get(&second.replace(&code(&second), &code(&first))), 403, "invalid_grant");
    is_out(&mut mixes);
    let told = provider.complaints().pop().expect("a complaint");
    assert!(told.contains("verifier"), "{told}");
    assert!(
        (logins(&server, "refused") - 9.0).abs() < f64::EPSILON,
        "{}",
        logins(&server, "refused")
    );
}

#[test]
fn tokens_that_are_not_for_this_login_open_nothing() {
    let (provider, _home, server) = world();
    let mut browser = Browser::new(&server);
    type Spoil = fn(&mut Value);
    let cases: [(&str, &str, Spoil); 9] = [
        ("another nonce", "for another login", |claims| claims["nonce"] = json!("other")),
        ("no nonce", "for another login", |claims| claims["nonce"] = Value::Null),
        ("an old one", "has expired", |claims| claims["exp"] = json!(1_000_000)),
        ("for somebody else", "another client", |claims| claims["aud"] = json!("other")),
        ("by way of somebody else", "another client", |claims| claims["azp"] = json!("other")),
        ("for two", "another client", |claims| {
            claims["aud"] = json!([CLIENT_ID, "other"]);
            claims["azp"] = json!("other");
        }),
        ("of somebody else", "another issuer", |claims| claims["iss"] = json!("https://evil.test")),
        ("of tomorrow", "not valid yet", |claims| claims["iat"] = json!(99_999_999_999_u64)),
        ("about nobody", "who it is about", |claims| claims["sub"] = json!("")),
    ];
    for (case, text, spoil) in cases {
        provider.spoil(spoil);
        let reply = browser.log_in("/console/");
        assert!(reply.status == 403 && reply.body.contains(text), "{case}: {}", reply.body);
        is_out(&mut browser);
    }
    provider.behaves();
    // Not signed, or "signed" with what everybody knows.
    let keys = provider.keys();
    let jwk = keys["keys"][0]["n"].as_str().expect("a number").to_owned();
    for alg in ["none", "HS256"] {
        let (secret, header) = (jwk.clone(), json!({"alg": alg, "kid": "first", "typ": "JWT"}));
        provider.mint(move |_, claims| match header["alg"].as_str() {
            Some("none") => unsigned(&header, claims),
            _ => shared_secret(secret.as_bytes(), &header, claims),
        });
        says(&browser.log_in("/console/"), 403, "is not signed with RS256");
        is_out(&mut browser);
    }
    provider.mint(|signer, claims| {
        let mut token = signer.token(claims);
        token.truncate(token.len() - 40);
        token + &"A".repeat(40)
    });
    says(&browser.log_in("/console/"), 403, "signature of the token is wrong");
    is_out(&mut browser);
    assert!((logins(&server, "bad_token") - 12.0).abs() < f64::EPSILON);
    provider.behaves();
    browser.log_in("/console/");
    is_in(&mut browser);
}

#[test]
fn new_keys_are_found_and_looked_for_seldom() {
    let (provider, _home, server) = world();
    let mut browser = Browser::new(&server);
    browser.log_in("/console/");
    is_in(&mut browser);
    assert_eq!((provider.asked("/keys"), provider.asked(DISCOVERY)), (1, 1));
    // Its keys are known.
    says(&browser.log_in("/console/"), 200, "You are logged in");
    assert_eq!((provider.asked("/keys"), provider.asked(DISCOVERY)), (1, 1));
    // Not listed: looked for once, and then not again for a while, whoever tries.
    std::thread::sleep(Duration::from_secs(6));
    let stray = posthorn_testkit::id_tokens::Signer::new(Signs::Es256, "stray");
    provider.mint(move |_, claims| stray.token(claims));
    for _ in 0..4 {
        says(&browser.log_in("/console/"), 403, "does not list");
    }
    assert_eq!(provider.asked("/keys"), 2);
    provider.behaves();
    // A new key of each kind.
    for (signs, kid) in [(Signs::Es256, "es"), (Signs::EdDsa, "ed"), (Signs::Ps256, "ps")] {
        provider.rotates(signs, kid);
        std::thread::sleep(Duration::from_secs(6));
        let mut browser = Browser::new(&server);
        says(&browser.log_in("/console/"), 200, "You are logged in");
        is_in(&mut browser);
    }
    assert_eq!((provider.asked("/keys"), provider.asked(DISCOVERY)), (5, 1));
}

#[test]
fn a_provider_that_misbehaves_is_said_and_counted_and_slows_nothing() {
    let (provider, _home, server) = world();
    let mut browser = Browser::new(&server);
    let huge = "x".repeat(2 << 20);
    let cases: [(&str, &str, Answer, &str); 9] = [
        ("nonsense", DISCOVERY, Answer::from(200).body("<html>"), "cannot be used"),
        (
            "of another",
            DISCOVERY,
            Answer::from(200).body(
                json!({
            "issuer": "https://evil.test", "authorization_endpoint": "https://evil.test/a",
            "token_endpoint": "https://evil.test/t", "jwks_uri": "https://evil.test/k"})
                .to_string(),
            ),
            "cannot be used",
        ),
        (
            "elsewhere",
            DISCOVERY,
            Answer::from(200).body(
                json!({
            "issuer": provider.issuer(), "authorization_endpoint": "file:///etc/passwd",
            "token_endpoint": "http://10.0.0.1/t", "jwks_uri": "http://10.0.0.1/k"})
                .to_string(),
            ),
            "cannot be used",
        ),
        ("an error", DISCOVERY, Answer::from(500), "cannot be reached"),
        (
            "a redirect",
            DISCOVERY,
            Answer::from(302).header("location", "http://127.0.0.1:1/"),
            "cannot be reached",
        ),
        ("nothing", DISCOVERY, Answer::from(0), "cannot be reached"),
        ("too much", DISCOVERY, Answer::from(200).body(huge.clone()), "cannot be reached"),
        (
            "hanging",
            DISCOVERY,
            Answer::from(200).after(Duration::from_secs(20)),
            "cannot be reached",
        ),
        (
            "dripping",
            DISCOVERY,
            Answer::from(200).body("{".repeat(100)).dripping(Duration::from_millis(200)),
            "cannot be reached",
        ),
    ];
    for (case, path, answer, text) in cases {
        provider.answers(path, answer);
        let begun = Instant::now();
        let reply = browser.get("/console/login/oidc?next=%2Fconsole%2F");
        assert!(reply.status == 502 && reply.body.contains(text), "{case}: {}", reply.body);
        assert!(reply.body.contains("/console/login"), "{case}: there is a way on");
        assert!(begun.elapsed() < Duration::from_secs(9), "{case}: {:?}", begun.elapsed());
        assert!(
            !reply.body.contains("127.0.0.1") && !reply.body.contains("evil"),
            "{case}: {}",
            reply.body
        );
        provider.behaves();
    }
    assert!((logins(&server, "provider_failed") - 9.0).abs() < f64::EPSILON);
    // On the way back.
    let cases: [(&str, &str, Answer, u16, &str); 6] = [
        ("no token", "/token", Answer::from(200).body("{}"), 502, "cannot be used"),
        (
            "an error",
            "/token",
            Answer::from(500).body("{\"error\": \"x\"}"),
            502,
            "cannot be reached",
        ),
        (
            "no",
            "/token",
            Answer::from(400)
                .body("{\"error\": \"<b>no</b>\", \"error_description\": \"go away\"}"),
            403,
            "go away",
        ),
        ("too much", "/token", Answer::from(200).body(huge), 502, "cannot be reached"),
        (
            "hanging",
            "/token",
            Answer::from(200).after(Duration::from_secs(20)),
            502,
            "cannot be reached",
        ),
        ("keys", "/keys", Answer::from(200).body("[]"), 502, "cannot be used"),
    ];
    for (case, path, answer, status, text) in cases {
        let back = browser.visit_provider("/console/");
        provider.answers(path, answer);
        let begun = Instant::now();
        let reply = browser.get(&back);
        assert!(reply.status == status && reply.body.contains(text), "{case}: {}", reply.body);
        assert!(!reply.body.contains("<b>"), "{case}: {}", reply.body);
        assert!(begun.elapsed() < Duration::from_secs(9), "{case}: {:?}", begun.elapsed());
        provider.behaves();
    }
    // What the provider says to the browser itself.
    let back = browser.visit_provider("/console/");
    let state = back.split("state=").nth(1).expect("a state").to_owned();
    let denied = format!(
        "/console/login/oidc/callback?error=access_denied&error_description=%3Ci%3Eno%3C%2Fi%3E&state={state}"
    );
    let reply = browser.get(&denied);
    says(&reply, 403, "access_denied: ");
    assert!(!reply.body.contains("<i>"), "{}", reply.body);
    let back = browser.visit_provider("/console/");
    says(&browser.get(&format!("{back}&iss=https%3A%2F%2Fevil.test")), 502, "cannot be used");
    is_out(&mut browser);
    // People who log in wait; nobody else does.
    provider.answers("/token", Answer::from(200).after(Duration::from_secs(20)));
    server.ask("topics put orders");
    let root = &server;
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(move || {
                    let mut browser = Browser::new(root);
                    let back = browser.visit_provider("/console/");
                    browser.get(&back).status
                })
            })
            .collect();
        let slowest = (0..40).map(|_| {
            let begun = Instant::now();
            let event = json!({"topic": "orders", "type": "a", "payload": 1});
            root.call("POST", "/v1/events").json(&event).send().with(202);
            begun.elapsed()
        });
        let slowest = slowest.max().expect("some");
        assert!(slowest < Duration::from_secs(2), "{slowest:?}");
        for one in waiting {
            assert_eq!(one.join().expect("no panic"), 502);
        }
    });
    server.running.says("the login provider of the console cannot be used");
}

#[test]
fn a_provider_that_is_away_keeps_no_server_from_starting() {
    let provider = IdentityProvider::start();
    let issuer = provider.issuer();
    drop(provider);
    let (_home, server) = home(&issuer, "").served();
    let mut browser = Browser::new(&server);
    let reply = browser.get("/console/login/oidc");
    says(&reply, 502, "cannot be reached");
    // Keys still open the door.
    let key = server.key.clone();
    let entered = browser.post("/console/login", "/console/login", &[("key", &key)]);
    assert_eq!(leads(&entered), "/console/");
    is_in(&mut browser);
}

#[test]
fn groups_decide_what_people_see_and_may_do() {
    let (provider, mut home, server) = world();
    server.ask("realms put live");
    server.ask("tenants create shop --realm live");
    let person =
        |groups: Value| json!({"sub": "u-2", "preferred_username": "kim", "groups": groups});
    let enter = |server: &Server, groups: Value| {
        provider.logs_in(person(groups));
        let mut browser = Browser::new(server);
        let reply = browser.log_in("/console/");
        (browser, reply)
    };
    // Nobody's.
    let strange = format!("<img src=x onerror=alert(1)>{}", "y".repeat(300));
    for groups in [json!([]), json!(["Ops", "gone", strange]), Value::Null, json!({"ops": true})] {
        let (mut browser, reply) = enter(&server, groups.clone());
        says(&reply, 403, "none of your groups has rights");
        assert!(!reply.body.contains("<img") && reply.body.len() < 4_000, "{}", reply.body);
        if groups.is_array() && groups[0] == "Ops" {
            assert!(reply.body.contains("Ops, gone, "), "{}", reply.body);
        }
        is_out(&mut browser);
    }
    assert_eq!(sessions(&server).len(), 0);
    assert!((logins(&server, "no_rights") - 4.0).abs() < f64::EPSILON);

    // Of one tenant: another is not there. Two groups of it add up.
    let (mut reader, _) = enter(&server, json!(["acme", "unknown"]));
    says(&reader.get("/console/t/acme/subscriptions"), 200, "Subscriptions");
    for closed in ["/console/t/other/events", "/console/t/default/events", "/console/t/shop"] {
        says(&reader.get(closed), 404, "not yours to see");
    }
    says(&reader.get("/console/tenants"), 403, "it is for operators");
    says(&reader.get("/console/t/acme/subscriptions/new"), 403, "scope `manage`");
    let (mut manager, _) = enter(&server, json!(["acme-admins", "acme", "live"]));
    says(&manager.get("/console/t/acme/subscriptions/new"), 200, "New subscription");
    says(&manager.get("/console/t/shop/events"), 404, "not yours to see");
    let [newest, ..] = &sessions(&server)[..] else { panic!("no session") };
    assert_eq!((&newest["name"], &newest["scopes"]), (&json!("kim"), &json!(["manage", "read"])));
    // Of a realm.
    let (mut publisher, _) = enter(&server, json!("live"));
    says(&publisher.get("/console/t/shop/events/new"), 200, "Publish");
    says(&publisher.get("/console/t/acme/events"), 404, "not yours to see");
    says(&publisher.get("/console/t/shop/subscriptions/new"), 403, "scope `manage`");
    // Everywhere, and only to look.
    let (mut auditor, _) = enter(&server, json!(["auditors"]));
    for open in [
        "/console/t/acme",
        "/console/t/shop/events",
        "/console/t/default/deliveries",
        "/console/audit",
        "/console/event-types?realm=live",
    ] {
        assert_eq!(auditor.get(open).status, 200, "{open}");
    }
    assert_eq!(leads(&auditor.get("/console/")), "/console/t/default");
    for closed in [
        "/console/tenants",
        "/console/keys",
        "/console/system",
        "/console/realms",
        "/console/t/acme/events/new",
    ] {
        assert_eq!(auditor.get(closed).status, 403, "{closed}");
    }
    says(&auditor.get("/console/t/system/events"), 404, "not yours to see");
    // No form of the whole table does anything for those who may only look.
    for browser in [&mut reader, &mut auditor] {
        let token = browser.token();
        let before = server.ask("audit list --limit 100")["items"].as_array().map(Vec::len);
        let mut tried = 0;
        for (method, path) in posthorn_console::routes() {
            if *method == http::Method::POST {
                let path = path.replace("{tenant}", "acme").replace("{realm}", "live");
                let path = path.replace("{name}", "x").replace("{id}", "none");
                let reply = browser.post(&path, "/console/", &[("csrf", &token)]);
                says(&reply, 403, "You may not do this");
                tried += 1;
            }
        }
        assert!(tried >= 20, "{tried}");
        let after = server.ask("audit list --limit 100")["items"].as_array().map(Vec::len);
        assert_eq!(before, after, "nothing was changed");
    }

    // A change of the mapping counts for those who are in.
    server.stop();
    home.edit(
        "{group: auditors, scopes: [read]}",
        "{group: auditors, scopes: [read], tenant: other}",
    );
    home.edit(
        "{group: acme, scopes: [read], tenant: acme}",
        "{group: acme, scopes: [read, manage], tenant: acme}",
    );
    home.edit("    - {group: live, scopes: [read, publish], realm: live}\n", "");
    let server = home.serve();
    let cookies = |old: Browser| {
        let mut new = Browser::new(&server);
        new.cookies = old.cookies;
        new
    };
    let (mut auditor, mut reader) = (cookies(auditor), cookies(reader));
    let mut publisher = cookies(publisher);
    says(&auditor.get("/console/t/other/events"), 200, "Events");
    says(&auditor.get("/console/t/acme/events"), 404, "not yours to see");
    says(&reader.get("/console/t/acme/subscriptions/new"), 200, "New subscription");
    says(&publisher.get("/console/t/shop/events"), 403, "Your groups: live.");
    // Without the provider in the configuration there is no way in by it.
    server.stop();
    let config = home.read("posthorn.yaml");
    home.write("posthorn.yaml", config.split("\nconsole:").next().expect("the rest"));
    let server = home.serve();
    let mut auditor = Browser { cookies: auditor.cookies, ..Browser::new(&server) };
    is_out(&mut auditor);
    assert_eq!(auditor.get("/console/login/oidc").status, 404);
}

#[test]
fn a_login_leads_nowhere_else() {
    let (_provider, _home, server) = world();
    for next in [
        "https://evil.test/",
        "//evil.test",
        "/\\evil.test",
        "/console/../v1/events",
        "/console/%2e%2e//evil.test",
        "javascript:alert(1)",
        "/console/\"><script>",
        "/console/login",
    ] {
        let mut browser = Browser::new(&server);
        let body = browser.log_in(next).with(200).body;
        let (_, rest) = body.split_once("content=\"0; url=").expect("a way on");
        let place = rest.split('"').next().expect("a place");
        assert!(place.starts_with("/console/") && !place.contains(".."), "{next}: {place}");
        assert!(!body.contains("evil.test") && !body.contains("<script"), "{next}: {body}");
    }
}

#[test]
fn wrong_ways_back_are_limited_like_wrong_keys() {
    let provider = IdentityProvider::start();
    let home = home(&provider.issuer(), "");
    home.edit(
        "disk_refuse_percent: 100}",
        "disk_refuse_percent: 100, auth_failures_per_minute: 5}",
    );
    let (_home, server) = home.served();
    let mut browser = Browser::new(&server);
    let back = browser.visit_provider("/console/");
    for _ in 0..5 {
        assert_eq!(browser.get("/console/login/oidc/callback?code=x&state=y").status, 403);
    }
    let reply = browser.get("/console/login/oidc/callback?code=x&state=y");
    says(&reply, 429, "Too many logins from your address have failed");
    assert!(reply.header("retry-after").is_some_and(|text| text.parse::<u64>().is_ok()));
    // Wrong keys are counted in the same place.
    let reply = browser.post("/console/login", "/console/login", &[("key", "ph_wrong")]);
    says(&reply, 429, "Too many wrong keys");
    // Whoever does it right is not kept out.
    says(&browser.get(&back), 200, "You are logged in");
}

#[test]
fn keys_can_be_turned_off() {
    let (_provider, mut home, server) = world();
    let mut by_key = Browser::new(&server);
    let key = server.key.clone();
    by_key.post("/console/login", "/console/login", &[("key", &key)]);
    is_in(&mut by_key);
    let mut by_provider = Browser::new(&server);
    by_provider.log_in("/console/");
    server.stop();
    home.edit("console:\n", "console:\n  key_login: false\n");
    let server = home.serve();
    let mut by_key = Browser { cookies: by_key.cookies, ..Browser::new(&server) };
    let mut by_provider = Browser { cookies: by_provider.cookies, ..Browser::new(&server) };
    is_out(&mut by_key);
    is_in(&mut by_provider);
    let login = by_key.get("/console/login");
    assert!(!login.body.contains("API key") && login.body.contains("Log in with Example"));
    let reply = by_key.post("/console/login", "/console/login", &[("key", &key)]);
    says(&reply, 403, "Keys do not open this console");
    is_out(&mut by_key);
}

#[test]
fn under_tls_cookies_are_for_this_host_alone() {
    let provider = IdentityProvider::start();
    let (_home, server) =
        home(&provider.issuer(), "  public_url: https://posthorn.example.com/").served();
    let mut browser = Browser::new(&server);
    let begun = browser.get("/console/login/oidc");
    let back =
        "redirect_uri=https%3A%2F%2Fposthorn.example.com%2Fconsole%2Flogin%2Foidc%2Fcallback&";
    assert!(leads(&begun).contains(back), "{}", leads(&begun));
    let cookie = set_cookie(&begun, "__Host-posthorn-login").expect("a cookie");
    assert!(cookie.ends_with("; Secure") && cookie.contains("; Path=/;"), "{cookie}");
    // One without the prefix may have been planted by a neighbour.
    let value = browser.cookies.remove("__Host-posthorn-login").expect("kept");
    browser.cookies.insert("posthorn-login".to_owned(), value);
    let state = leads(&begun);
    let state =
        state.split("state=").nth(1).and_then(|rest| rest.split('&').next()).expect("a state");
    let reply = browser.get(&format!("/console/login/oidc/callback?code=x&state={state}"));
    says(&reply, 403, "was not started in this browser");
}

#[test]
fn any_node_finishes_what_another_has_begun() {
    let (provider, database) = (IdentityProvider::start(), database());
    let issuer = provider.issuer();
    let one = || home(&issuer, "  public_url: http://127.0.0.1:9");
    let [(_, first), (_, second)] = nodes(&database, [one(), one()]);
    let (mut here, mut there) = (Browser::new(&first), Browser::new(&second));
    let balanced = "http://127.0.0.1:9";
    let begun = leads(&here.get("/console/login/oidc?next=%2Fconsole%2Faudit"));
    let (root, path) = begun.split_at(begun.find("/authorize").expect("a login page"));
    let back = leads(&posthorn_testkit::caller::call(root, "GET", path).send());
    let back = back.strip_prefix(balanced).expect("the public address").to_owned();
    there.cookies.clone_from(&here.cookies);
    says(&there.get(&back), 200, "url=/console/audit");
    here.cookies.clone_from(&there.cookies);
    is_in(&mut here);
    is_in(&mut there);
    let token = here.token();
    here.post("/console/logout", "/console/", &[("csrf", &token)]);
    is_out(&mut there);
}

#[test]
fn people_log_in_in_a_browser() {
    let provider = IdentityProvider::start_at("localhost");
    let (home, server) = home(&provider.issuer(), "").served();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/login.mjs");
    let pictures = match std::env::var_os("PICTURES") {
        Some(kept) => kept.into(),
        None => home.path().join("pictures"),
    };
    let walk = |phase: &str| {
        let output = Command::new("node")
            .arg(&script)
            .args([&server.url, &server.key])
            .arg(&pictures)
            .arg(phase)
            .env("BROWSER_PACKAGES", packages())
            .output()
            .expect("node, which ./test installs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    };
    walk("in");
    provider.logs_in(
        json!({"sub": "u-3", "email": "sam@example.com", "groups": ["guests", "<b>staff</b>"]}),
    );
    walk("nobody");
    assert_eq!(provider.complaints(), Vec::<String>::new());
}
