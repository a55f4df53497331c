//! People whom a proxy in front has logged in; the limits of sessions; and what becomes of forms and pages when a session
//! or the store is gone.

use std::time::{Duration, Instant};

use posthorn_testkit::caller::Reply;
use posthorn_testkit::program::{Home, Server};
use posthorn_testkit::wait::until;
use serde_json::{Value, json};

use crate::console_browser::{Browser, leads, set_cookie};
use crate::postgres::database;

fn home(proxies: &str) -> Home {
    let home = Home::new();
    home.configure(&format!(
        "
console:
  proxy_login:
    user_header: X-Forwarded-Email
    groups_header: X-Forwarded-Groups
    proxies: [{proxies}]
    rights:
    - {{group: ops, scopes: [operator]}}
    - {{group: acme, scopes: [read], tenant: acme}}
"
    ));
    home
}

fn person(server: &Server, name: &str, groups: &str) -> Browser {
    let mut browser = Browser::new(server);
    browser.headers = vec![
        ("x-forwarded-email".to_owned(), name.to_owned()),
        ("x-forwarded-groups".to_owned(), groups.to_owned()),
    ];
    browser
}

#[track_caller]
fn says(reply: &Reply, status: u16, text: &str) {
    assert_eq!(reply.status, status, "{}", reply.body);
    assert!(reply.body.contains(text), "`{text}` is not in {}", reply.body);
}

fn sessions(server: &Server) -> Vec<Value> {
    server.ask("sessions list --kind console")["items"].as_array().expect("a list").clone()
}

fn logins(server: &Server, outcome: &str) -> f64 {
    let metrics = server.metrics();
    let line = metrics.lines().find(|line| {
        line.starts_with("posthorn_console_logins_total{")
            && line.contains("way=\"proxy\"")
            && line.contains(&format!("outcome=\"{outcome}\""))
    });
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
        .unwrap_or_else(|| panic!("{metrics}"))
}

fn is_out(reply: &Reply) -> bool {
    reply.status == 303 && leads(reply).starts_with("/console/login?next=")
}

#[test]
fn a_proxy_that_is_believed_opens_sessions() {
    let (mut home, server) = home("127.0.0.1").served();
    server.ask("tenants create acme");
    let mut jo = person(&server, "jo@example.com", "staff, ops");
    let first = jo.get("/console/audit?action=session");
    says(&first, 200, "Audit");
    let cookie = set_cookie(&first, "posthorn-console").expect("a session");
    assert!(cookie.contains("SameSite=Strict") && cookie.contains("Max-Age=28800"), "{cookie}");
    assert!(set_cookie(&jo.get("/console/audit"), "posthorn-console").is_none(), "one is enough");
    let [session] = <[Value; 1]>::try_from(sessions(&server)).expect("one session");
    assert_eq!((&session["name"], &session["opener"]), (&json!("jo@example.com"), &json!("proxy")));
    says(&jo.get("/console/audit?action=session"), 200, "session.opened");
    // It may do what its groups may.
    let token = jo.token();
    let made = jo.post(
        "/console/tenants/new",
        "/console/tenants/new",
        &[("csrf", &token), ("name", "made")],
    );
    assert_eq!(made.status, 303, "{}", made.body);
    let lines = server.ask("audit list --action tenant.created");
    assert_eq!(lines["items"][0]["actor"]["name"], "jo@example.com", "{lines}");
    let mut kim = person(&server, "kim", "acme");
    assert_eq!(kim.get("/console/t/acme/events").status, 200);
    says(&kim.get("/console/t/default/events"), 404, "not yours to see");
    let token = kim.token();
    let refused = kim.post("/console/t/acme/subscriptions/new", "/console/", &[("csrf", &token)]);
    says(&refused, 403, "You may not do this");
    let mut nobody = person(&server, "<b>sam</b>", "guests,<i>");
    let reply = nobody.get("/console/");
    says(&reply, 403, "Your groups: guests, ");
    assert!(!reply.body.contains("<b>") && !reply.body.contains("<i>"), "{}", reply.body);
    assert_eq!(sessions(&server).len(), 2);

    // What the proxy says now counts: other groups, another person, nobody.
    kim.headers[1].1 = "guests".to_owned();
    says(&kim.get("/console/t/acme/events"), 403, "none of your groups");
    kim.headers[1].1 = "acme".to_owned();
    assert_eq!(kim.get("/console/t/acme/events").status, 200);
    let stolen = kim.cookies.clone();
    let mut thief = person(&server, "sam", "acme");
    thief.cookies.clone_from(&stolen);
    assert_eq!(thief.get("/console/t/acme/events").status, 200);
    assert_ne!(thief.cookies, stolen, "a session of their own");
    let mut around = Browser::new(&server);
    around.cookies = stolen;
    assert!(is_out(&around.get("/console/t/acme/events")), "not without the proxy");

    // Logout ends it; the next page is the beginning of another.
    let token = jo.token();
    let mut other_tab = person(&server, "jo@example.com", "ops");
    other_tab.cookies.clone_from(&jo.cookies);
    assert_eq!(
        leads(&jo.post("/console/logout", "/console/", &[("csrf", &token)])),
        "/console/login"
    );
    says(&jo.get("/console/login"), 200, "Your proxy has logged you in as jo@example.com");
    assert!(set_cookie(&jo.get("/console/login"), "posthorn-console").is_none());
    assert_eq!(sessions(&server).iter().filter(|one| one["name"] == "jo@example.com").count(), 0);
    assert!(set_cookie(&other_tab.get("/console/audit"), "posthorn-console").is_some());
    assert!(
        (logins(&server, "opened") - 4.0).abs() < f64::EPSILON,
        "{}",
        logins(&server, "opened")
    );
    assert!((logins(&server, "no_rights") - 1.0).abs() < f64::EPSILON);
    // A form of somebody whose session has ended: the page of the form says that it must be sent again.
    server
        .run(&format!("sessions end {}", sessions(&server)[0]["id"].as_str().expect("an id")))
        .exits(0);
    let place = leads(&other_tab.post(
        "/console/tenants/new",
        "/console/tenants/new?a=b",
        &[("name", "lost")],
    ));
    assert_eq!(place, "/console/tenants/new?a=b&done=unsent");
    says(&other_tab.get(&place), 200, "the form was not sent. Please send it again");
    assert!(!server.run("tenants list").out.contains("lost"));

    // A program without cookies does not fill the store.
    let refused = (0..60).find_map(|_| {
        let reply = person(&server, "robot", "ops").get("/console/audit");
        (reply.status != 200).then_some(reply)
    });
    let refused = refused.expect("a limit");
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert!(refused.header("retry-after").is_some());

    // Without the mapping there is no way in.
    let kept = kim.cookies.clone();
    server.stop();
    let config = home.read("posthorn.yaml");
    home.write("posthorn.yaml", config.split("\nconsole:").next().expect("the rest"));
    let server = home.serve();
    let mut kim = person(&server, "kim", "acme");
    kim.cookies = kept;
    assert!(is_out(&kim.get("/console/t/acme/events")));
}

#[test]
fn headers_from_anywhere_else_are_ignored_and_counted() {
    let (_home, server) = home("10.0.0.0/8, 127.0.0.2").served();
    let mut jo = person(&server, "jo@example.com", "ops");
    for path in ["/console/", "/console/system", "/console/t/default/events"] {
        assert!(is_out(&jo.get(path)), "{path}");
    }
    let login = jo.get("/console/login").with(200).body;
    assert!(!login.contains("jo@example.com"), "{login}");
    // Nor do other headers help that say where one comes from.
    for (name, value) in
        [("x-forwarded-for", "10.0.0.1"), ("forwarded", "for=10.0.0.1"), ("x-real-ip", "10.0.0.1")]
    {
        jo.headers.push((name.to_owned(), value.to_owned()));
    }
    assert!(is_out(&jo.get("/console/")));
    assert_eq!(sessions(&server).len(), 0);
    assert!(logins(&server, "foreign_header") >= 5.0);
    assert!((logins(&server, "opened")).abs() < f64::EPSILON);
    // A key opens the console all the same, with no more rights than it has.
    let made = server.ask("keys create --tenant default --scope read");
    let key = made["key"].as_str().expect("a key").to_owned();
    assert_eq!(leads(&jo.post("/console/login", "/console/login", &[("key", &key)])), "/console/");
    says(&jo.get("/console/system"), 403, "it is for operators");
}

fn logged_in(server: &Server) -> Browser {
    let mut browser = Browser::new(server);
    let key = server.key.clone();
    let reply = browser.post("/console/login", "/console/login", &[("key", &key)]);
    assert_eq!(reply.status, 303, "{}", reply.body);
    browser
}

#[test]
fn a_session_may_make_so_many_requests() {
    let home = Home::new();
    home.configure("console: {requests_per_second: 5}\n");
    let (_home, server) = home.served();
    let (mut busy, mut other) = (logged_in(&server), logged_in(&server));
    let begun = Instant::now();
    let refused = loop {
        let reply = busy.get("/console/audit");
        if reply.status != 200 {
            break reply;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "it is never refused");
    };
    says(&refused, 429, "asks for more pages a second than it may");
    let wait: u64 =
        refused.header("retry-after").expect("when to come back").parse().expect("seconds");
    assert!((1..=5).contains(&wait), "{wait}");
    assert_eq!(other.get("/console/audit").status, 200, "sessions are counted one by one");
    assert!(server.metric("posthorn_console_limited_total") >= 1.0);
    std::thread::sleep(Duration::from_secs(wait));
    assert_eq!(busy.get("/console/audit").status, 200);
    // What is asked of the API is not counted here.
    server.call("GET", "/v1/tenants").send().with(200);
}

#[test]
fn a_form_whose_session_has_ended_comes_back_to_its_page() {
    let (_home, server) = Home::new().served();
    let mut browser = logged_in(&server);
    let token = browser.token();
    let id = sessions(&server)[0]["id"].as_str().expect("an id").to_owned();
    server.run(&format!("sessions end {id}")).exits(0);
    let form = [("csrf", token.as_str()), ("name", "lost")];
    let login = leads(&browser.post(
        "/console/tenants/new",
        "/console/tenants/new?done=created&x=%26",
        &form,
    ));
    assert_eq!(login, "/console/login?next=%2Fconsole%2Ftenants%2Fnew%3Fx%3D%2526%26done%3Dunsent");
    let page = browser.get(&login);
    says(&page, 200, "Your session has ended, so the form was not sent");
    let next = "/console/tenants/new?x=%26&done=unsent";
    assert!(
        page.body.contains("value=\"/console/tenants/new?x=%26&amp;done=unsent\"")
            || page.body.contains("/console/tenants/new?x=%26&#38;done=unsent"),
        "{}",
        page.body
    );
    let key = server.key.clone();
    let entered = browser.post("/console/login", &login, &[("key", &key), ("next", next)]);
    assert_eq!(leads(&entered), next);
    says(&browser.get(next), 200, "the form was not sent. Please send it again");
    assert!(!server.run("tenants list").out.contains("lost"), "it was not done");
    // Pages of others are no way back, and neither is where a form is sent to.
    browser.cookies.clear();
    for from in ["", "//evil.test/console/x", "@evil.test/console/"] {
        let login = leads(&browser.post("/console/t/default/deliveries/dlv_x/retry", from, &form));
        assert_eq!(login, "/console/login?next=%2Fconsole%2F%3Fdone%3Dunsent", "{from}");
    }
}

#[test]
fn pages_say_that_the_store_is_away_and_come_back() {
    let database = database();
    let mut home = Home::new();
    home.store_in(&database.url());
    let server = home.serve();
    let mut browser = logged_in(&server);
    let token = browser.token();
    let made: Value = server.call("POST", "/v1/portal/links").json(json!({})).send().expect(201);
    let mut customer = Browser::new(&server);
    let link = made["token"].as_str().expect("a token");
    assert_eq!(leads(&customer.post("/portal/redeem", "/portal", &[("token", link)])), "/portal/");
    database.stop_immediate().expect("stops");
    let mut tried = 0;
    for (method, path) in posthorn_console::routes() {
        let path = path.replace("{tenant}", "default").replace("{realm}", "default");
        let path = path.replace("{name}", "x").replace("{id}", "none");
        let begun = Instant::now();
        let looks = *method == http::Method::GET;
        let reply = match looks {
            true => browser.get(&path),
            false => browser.post(&path, "/console/tenants/new", &[("csrf", &token)]),
        };
        says(&reply, 503, "The store does not answer");
        let refresh = if looks { "5" } else { "5; url=/console/tenants/new" };
        assert_eq!(reply.header("refresh"), Some(refresh), "{method} {path}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{path}: {:?}", begun.elapsed());
        tried += 1;
    }
    assert!(tried > 60, "{tried}");
    let key = server.key.clone();
    let reply = browser.post("/console/login", "/console/login", &[("key", &key)]);
    says(&reply, 503, "nobody can be logged in");
    says(
        &browser.post("/console/logout", "/console/", &[("csrf", &token)]),
        503,
        "does not answer",
    );
    // Customers get such a page too, which looks again by itself unless it answers a form.
    for (method, path, _) in posthorn_console::portal::routes() {
        let path =
            path.replace("{id}", "none").replace("{name}", "x").replace("{delivery}", "none");
        let looks = *method == http::Method::GET;
        let reply = match looks {
            true => customer.get(&path),
            false => customer.post(&path, "/portal/", &[("csrf", "x")]),
        };
        says(&reply, 503, "Not available right now");
        assert_eq!(reply.header("refresh"), looks.then_some("5"), "{method} {path}");
    }
    database.restart().expect("starts");
    // The same address that the page asks again.
    until("the page", || browser.get("/console/audit").status == 200);
}
