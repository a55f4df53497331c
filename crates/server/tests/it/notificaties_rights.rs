//! Rights that an Autorisaties API knows, as clients of the real program meet them.

use std::thread;
use std::time::{Duration, Instant};

use posthorn_testkit::program::Ran;
use posthorn_testkit::receiver::{Answer, Receiver};
use posthorn_testkit::wait::{eventually, until};
use serde_json::{Value, json};

use crate::notificaties_clients::{code, publish_as, token_of, write};
use crate::notificaties_world::{ask, home_with, kanaal, message, native, now, send};

/// An Autorisaties API: what it answers, and who asked.
struct Authority(Receiver);

impl Authority {
    fn new() -> Self {
        let authority = Self(Receiver::new(200));
        authority.says(200, &json!({"results": []}));
        authority
    }

    fn url(&self, path: &str) -> String {
        self.0.url(path)
    }

    fn says(&self, status: u16, body: &Value) {
        let answer = Answer::from(status).header("content-type", "application/json");
        self.0.answers(answer.body(body.to_string()));
    }

    fn hangs(&self) {
        self.0.answers(Answer::from(0).after(Duration::from_secs(60)));
    }

    /// The heads of the requests.
    fn asked(&self) -> Vec<String> {
        self.0.seen().into_iter().map(|seen| seen.head).collect()
    }
}

fn rights(scopes: &[&str]) -> Value {
    json!({"count": 1, "results": [{"clientIds": ["nobody"], "heeftAlleAutorisaties": false,
        "autorisaties": [{"component": "zrc", "scopes": ["zaken.lezen"]},
            {"component": "nrc", "scopes": scopes}]}]})
}

#[test]
fn rights_are_asked_of_an_autorisaties_api_and_kept_for_a_while() {
    let authority = Authority::new();
    let mut home = home_with(&format!(
        "    authorizations: {{url: '{}', client_id: nrc, secret: 'env:AC_SECRET', \
         cache_time: 2s, stale_time: 6s}}\n",
        authority.url("/ac/api/v1/")
    ));
    home.env.push(("AC_SECRET".to_owned(), "between-us".to_owned()));
    let server = home.serve();
    kanaal(&server, "zaken", &[]);
    assert_eq!(authority.asked().len(), 0, "of those whose rights are configured nobody is asked");
    let publish = || publish_as(&server, "nobody", "secret-of-nobody");
    code(publish(), 403, "permission_denied");
    code(publish_as(&server, "nobody", "wrong"), 403, "invalid-jwt-signature");
    let asked = authority.asked();
    assert_eq!(asked.len(), 1, "and never of strangers: {asked:?}");
    assert!(
        asked[0].starts_with("GET /ac/api/v1/applicaties?clientIds=nobody HTTP/1.1"),
        "{asked:?}"
    );
    let token =
        asked[0].lines().find(|line| line.to_ascii_lowercase().starts_with("authorization:"));
    let token = token.and_then(|line| line.rsplit(' ').next()).expect("a token");
    let claims = posthorn_sealing::jwt::admit(
        token,
        now(),
        posthorn_sealing::jwt::Terms { expiry: 3_600, leeway: 60 },
        |_| Some("between-us"),
    );
    assert_eq!(claims.expect("a token of ours").client_id, "nrc");

    // An answer counts for a while, and not longer.
    authority.says(200, &rights(&["notificaties.publiceren"]));
    until("the right", || publish().status == 201);
    let count = authority.asked().len();
    assert_eq!((publish().status, authority.asked().len()), (201, count), "it is kept");
    // Whoever says that rights changed has them asked for anew, at once.
    authority.says(200, &rights(&["notificaties.consumeren"]));
    let body = message("autorisaties", &json!({}));
    ask(&server, "both", "POST", "/callbacks", &body).expect(204);
    code(publish(), 403, "permission_denied");
    authority.says(200, &rights(&["notificaties.publiceren"]));
    ask(&server, "both", "POST", "/callbacks", &body).expect(204);
    assert_eq!(publish().status, 201);
    // While it does not answer, what is known counts; then nobody is let in, and told to come again.
    authority.says(500, &json!({}));
    let let_in = std::cell::Cell::new(0);
    let refused = eventually("the end of patience", || {
        let reply = publish();
        match reply.status {
            201 => {
                let_in.set(let_in.get() + 1);
                None
            }
            _ => Some(reply),
        }
    });
    assert!(let_in.get() > 0, "not at once");
    assert_eq!(refused.header("retry-after"), Some("5"));
    code(refused, 503, "service_unavailable");
    server.running.says("cannot be read from the Autorisaties API");
    let log = server.running.stderr();
    let lines =
        log.lines().filter(|line| line.contains("cannot be read from the Autorisaties API"));
    assert_eq!(lines.count(), 1, "one line: {log}");
    authority.says(200, &rights(&["notificaties.publiceren"]));
    until("an answer", || publish().status == 201);
    server.stop();
}

#[test]
fn long_answers_are_read_news_of_rights_come_in_by_any_way_and_nobody_waits_long() {
    let authority = Authority::new();
    let mut home = home_with(&format!(
        "    authorizations: {{url: '{}', client_id: nrc, secret: 'env:AC_SECRET', \
         cache_time: 1h, stale_time: 2h}}\n",
        authority.url("/ac/api/v1/")
    ));
    home.env.push(("AC_SECRET".to_owned(), "between-us".to_owned()));
    let server = home.serve();
    kanaal(&server, "zaken", &[]);
    kanaal(&server, "autorisaties", &[]);
    let publish = || publish_as(&server, "nobody", "secret-of-nobody");
    // An application with rights on four thousand zaaktypen, which are said one by one.
    let zaaktype = |n: usize| {
        json!({"component": "zrc", "scopes": ["zaken.lezen"],
        "zaaktype": format!("https://catalogi.example.nl/api/v1/zaaktypen/{n:036}")})
    };
    let long = |scope: &str| {
        let mut all: Vec<Value> = (0..4_000).map(zaaktype).collect();
        all.push(json!({"component": "nrc", "scopes": [scope]}));
        json!({"count": 1, "next": null, "results": [{"autorisaties": all}]})
    };
    authority.says(200, &long("notificaties.publiceren"));
    publish().expect(201);
    assert_eq!(authority.asked().len(), 1);

    // News in the kanaal, by the native API and by the command line.
    let news = message("autorisaties", &json!({}));
    let file = home.path().join("news.json");
    std::fs::write(&file, news.to_string()).expect("written");
    authority.says(200, &long("notificaties.consumeren"));
    server.ask("send autorisaties x @news.json --tenant gemeente");
    code(publish(), 403, "permission_denied");
    authority.says(200, &long("notificaties.publiceren"));
    let event = json!({"topic": "autorisaties", "type": "x", "payload": news});
    native(&server, "POST", "/v1/events", &event).expect(202);
    publish().expect(201);
    assert_eq!(authority.asked().len(), 3, "{:?}", authority.asked());

    // It hangs. Who brings news does not wait for it; a client does, for seconds, and then goes by what
    // is known. After that it is left alone for a while.
    authority.hangs();
    let news_again = || ask(&server, "both", "POST", "/callbacks", &news).expect(204);
    news_again();
    let waiting = {
        let url = server.url.clone();
        let token = token_of("nobody", "secret-of-nobody");
        thread::spawn(move || {
            let began = Instant::now();
            let headers = [("authorization", token.as_str())];
            (send(&url, "GET", "/api/v1/kanaal", &headers, "").status, began.elapsed())
        })
    };
    until("the question", || authority.asked().len() == 4);
    let began = Instant::now();
    ask(&server, "both", "GET", "/kanaal", &Value::Null).expect(200);
    assert!(began.elapsed() < Duration::from_secs(2), "nobody else waits");
    let (status, took) = waiting.join().expect("ends");
    assert_eq!(status, 200, "what is known counts");
    assert!(took < Duration::from_secs(10), "{took:?}");
    let began = Instant::now();
    for _ in 0..5 {
        publish().expect(201);
    }
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(authority.asked().len(), 4, "it is left alone");
    // Whoever says that something changed has it asked again, as soon as it was left alone for 6 s.
    authority.says(200, &long("notificaties.consumeren"));
    news_again();
    until("the next question", || publish().status == 403);
    // More than anybody needs is no answer.
    let huge = json!({"results": [{"heeftAlleAutorisaties": true, "label": "x".repeat(1 << 20)}]});
    authority.says(200, &huge);
    news_again();
    code(publish(), 403, "permission_denied");
    server.running.says("no answer within 3 s");
    server.stop();
}

#[test]
fn the_service_of_a_setup_file_is_asked_and_a_closed_one_is_refused_at_the_start() {
    let authority = Authority::new();
    authority.says(200, &json!({"results": [{"heeftAlleAutorisaties": true}]}));
    let mut home = home_with("    setup_configuration: setup.yaml\n");
    let file = |url: &str| {
        format!(
            "
zgw_consumers_config_enable: True
zgw_consumers:
  services:
    - {{identifier: ac, label: AC, api_root: '{url}', api_type: ac, auth_type: zgw, client_id: nrc,
       secret: {{value_from: {{env: AC_SECRET}}}}}}
autorisaties_api_config_enable: True
autorisaties_api:
  authorizations_api_service_identifier: ac
"
        )
    };
    write(&home, &file(&authority.url("/autorisaties/api/v1/")));
    home.env.push(("AC_SECRET".to_owned(), "between-us".to_owned()));
    let server = home.serve();
    kanaal(&server, "zaken", &[]);
    publish_as(&server, "nobody", "secret-of-nobody").expect(201);
    assert_eq!(authority.asked().len(), 1);
    server.stop();
    // What may not be asked is said before anything starts, by both.
    write(&home, &file("http://10.0.0.1/autorisaties/api/v1/"));
    for command in ["check", "serve"] {
        let output = Ran::of(home.command().env("AC_SECRET", "x").arg(command));
        assert!(output.code != Some(0), "{command}: {}", output.err);
        output.says(&["dialects.notificaties.authorizations.url", "egress.allow"]);
    }
    let nobody =
        file("http://127.0.0.1/").replace("service_identifier: ac", "service_identifier: nope");
    write(&home, &nobody);
    Ran::of(home.command().env("AC_SECRET", "x").arg("check"))
        .says(&["no service with the identifier `nope`"]);
}
