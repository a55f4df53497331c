//! The way in under attack: who takes nothing, says nothing or holds everything, beside those who ask
//! how the server is.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use posthorn_testkit::caller::{Reply, call, dial, exchange};
use posthorn_testkit::program::{Home, Server};
use posthorn_testkit::wait::{PATIENCE, eventually, until};

fn home(more: &str) -> Home {
    let home = Home::new();
    home.edit("server: {listen: '127.0.0.1:0'}\n", more);
    home
}

fn get(url: &str, path: &str) -> Reply {
    call(url, "GET", path).send()
}

/// Asks for health like a probe does, with a time that a probe would have.
#[track_caller]
fn assert_well(url: &str, path: &str) {
    let began = Instant::now();
    get(url, path).expect(200);
    assert!(began.elapsed() < Duration::from_secs(5), "{path}: {:?}", began.elapsed());
}

/// Whether the server has let go of a connection that we do not read from.
fn is_cut(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).expect("set");
    // What is still in our own buffer says nothing; a write finds out.
    let cut = match stream.write(b"x") {
        Ok(_) => false,
        Err(e) => e.kind() != ErrorKind::WouldBlock,
    };
    stream.set_nonblocking(false).expect("set");
    cut
}

#[test]
fn readers_that_take_nothing_lose_their_places_and_health_answers_meanwhile() {
    let mut home = home(
        "server: {listen: '127.0.0.1:0', connections: 200, connections_per_address: 0, \
         write_timeout: 2s}\n",
    );
    let server = home.serve();
    // Enough answers that no kernel takes them all into its buffers.
    let ask = "GET /openapi.json HTTP/1.1\r\nhost: a.test\r\n\r\n".repeat(200);
    let mut slow: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = dial(&server.url);
            stream.write_all(ask.as_bytes()).expect("sent");
            stream
        })
        .collect();
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_well(&server.url, path);
    }
    let began = Instant::now();
    let mut left = slow.len();
    while left > 0 && began.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(250));
        slow.retain_mut(|stream| !is_cut(stream));
        left = slow.len();
        assert_well(&server.url, "/healthz");
    }
    assert_eq!(left, 0, "connections that take nothing are still there");
    assert!(server.metric("posthorn_http_connections_cut_total") >= 200.0);
    // The places are back: clients are served again.
    server.get("/openapi.json").expect(200);
    server.stop();
}

#[test]
fn when_all_places_are_taken_a_reserve_answers_what_operators_ask() {
    let mut home = home(
        "server: {listen: '127.0.0.1:0', connections: 4, connections_per_address: 0, \
         head_timeout: 60s}\n",
    );
    let server = home.serve();
    let mut silent: Vec<TcpStream> = (0..4).map(|_| dial(&server.url)).collect();
    let crowded = eventually("no place left", || {
        Some(server.get("/openapi.json")).filter(|answer| answer.status == 503)
    });
    let crowded = crowded.has(&[("retry-after", "1"), ("connection", "close")]);
    assert_eq!(crowded.json()["code"], "too_many_connections");
    home.run("explain too_many_connections").exits(0);
    // Those who sit in the reserve and say nothing cannot keep it either.
    silent.extend((0..200).map(|_| dial(&server.url)));
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_well(&server.url, path);
    }
    let metrics = server.metrics();
    assert!(metrics.contains("posthorn_admission_refused_total{reason=\"connections\"}"));
    drop(silent);
    until("places again", || server.get("/openapi.json").status == 200);
    server.stop();
}

/// What an agent asks first.
const UPGRADE: &str = "GET / HTTP/1.1\r\nhost: a.test\r\nconnection: upgrade\r\n\
                       upgrade: websocket\r\nsec-websocket-version: 13\r\n\
                       sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

fn status(stream: &mut TcpStream) -> String {
    let mut head = [0; 12];
    stream.read_exact(&mut head).expect("an answer");
    String::from_utf8_lossy(&head).into_owned()
}

#[test]
fn agents_have_places_of_their_own() {
    let (_home, server) = home(
        "server: {listen: '127.0.0.1:0', connections: 8}\npush: {enabled: true, connections: 2}\n",
    )
    .served();
    let upgrade = |stream: &mut TcpStream| {
        stream.write_all(UPGRADE.as_bytes()).expect("sent");
        status(stream)
    };
    let mut agents: Vec<TcpStream> = (0..2).map(|_| dial(&server.url)).collect();
    for agent in &mut agents {
        assert_eq!(upgrade(agent), "HTTP/1.1 101");
    }
    assert_eq!(upgrade(&mut dial(&server.url)), "HTTP/1.1 503", "agents have two places");
    // The places of requests are all free.
    let clients: Vec<TcpStream> = (0..7).map(|_| dial(&server.url)).collect();
    thread::sleep(Duration::from_millis(200));
    server.get("/openapi.json").expect(200);
    drop((agents, clients));
    until("a place for an agent", || upgrade(&mut dial(&server.url)) == "HTTP/1.1 101");
    server.stop();
}

/// Whether an answer, or a part of one, has come.
fn is_answered(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("set");
    let answered = stream.peek(&mut [0]).is_ok();
    stream.set_nonblocking(false).expect("set");
    answered
}

#[test]
fn agents_that_wait_take_no_place_of_a_request() {
    let mut home = home(
        "server: {listen: '127.0.0.1:0', connections: 2}\n\
         push: {enabled: true, connections: 4, opens_per_second: 1}\n",
    );
    let server = home.serve();
    // One is let in at once, the others one by one.
    let mut agents: Vec<TcpStream> = Vec::new();
    for number in 1..=4 {
        let mut agent = dial(&server.url);
        agent.write_all(UPGRADE.as_bytes()).expect("sent");
        agents.push(agent);
        until("a place among agents", || {
            server.metric("posthorn_http_sockets ") >= f64::from(number)
        });
    }
    let waiting = |agents: &[TcpStream]| agents.iter().filter(|a| !is_answered(a)).count();
    assert!(waiting(&agents) >= 2, "more wait than there are places of requests");
    server.get("/openapi.json").expect(200);
    // There is no place left for a fifth, which hears of it before the others are let in.
    let mut fifth = dial(&server.url);
    fifth.write_all(UPGRADE.as_bytes()).expect("sent");
    assert_eq!(status(&mut fifth), "HTTP/1.1 503");
    assert!(waiting(&agents) >= 1, "it waited with the others");
    for agent in &mut agents {
        assert_eq!(status(agent), "HTTP/1.1 101");
    }
    server.stop();
}

pub(crate) fn admin_url(server: &mut Server) -> String {
    server.running.wait_for("admin listener", |text| {
        let (_, rest) = text.split_once("admin listening on ")?;
        let end = rest.find(|c: char| c == '"' || c.is_whitespace())?;
        Some(rest[..end].to_owned())
    })
}

#[test]
fn what_the_admin_listener_serves_is_gone_from_the_public_one_unless_listed() {
    let mut home = home(
        "server: {listen: '127.0.0.1:0', admin_listen: '127.0.0.1:0', \
         admin_surfaces: [health, metrics, v1]}\npush: {enabled: true}\n\
         dialects: {notificaties: {enabled: true}}\n",
    );
    home.run("check")
        .exits(0)
        .says(&["(server.admin_listen) serves health, metrics, v1", "serves jwks, dialects, push"]);
    let mut server = home.serve();
    let admin = admin_url(&mut server);
    let found = |url: &str, path: &str| get(url, path).status != 404;
    for path in [
        "/healthz",
        "/readyz",
        "/metrics",
        "/openapi.json",
        "/v1/events",
        "/v1/notificaties/setup",
        "/health",
    ] {
        assert!(found(&admin, path), "{path} is not on the admin listener");
        assert!(!found(&server.url, path), "{path} is on the public listener");
    }
    assert!(found(&server.url, "/"), "agents connect to the public one");
    assert!(!found(&admin, "/"));
    assert!(found(&server.url, "/api/v1/kanaal"), "dialects are on the public one");
    assert!(!found(&admin, "/api/v1/kanaal"));
    assert_eq!(server.get("/v1/events").expect(404)["code"], "not_found");
    // Tenants cannot make the server call it.
    let subscription = format!("{{\"url\": \"{admin}/healthz\"}}");
    let refused = call(&admin, "POST", "/v1/subscriptions").key(&server.key).text(&subscription);
    assert_eq!(refused.send().json()["code"], "url_not_allowed");
    server.stop();

    // Listed twice, served twice.
    home.edit("admin_surfaces:", "surfaces: [health, push], admin_surfaces:");
    let server = home.serve();
    assert!(found(&server.url, "/healthz") && found(&server.url, "/"));
    assert!(!found(&server.url, "/metrics"));
    server.stop();

    home.run("check --set server.admin_surfaces=health,consul").exits(78).says(&[
        "server.admin_surfaces",
        "consul",
        "health, metrics, v1",
    ]);
}

#[test]
fn requests_that_can_be_read_in_two_ways_are_refused() {
    let (home, server) = Home::new().served();
    let smuggled = "GET /openapi.json HTTP/1.1\r\nhost: a.test\r\n\r\n";
    let start = "POST /v1/events HTTP/1.1\r\n";
    for head in [
        "\r\n",
        "host: a.test\r\nhost: b.test\r\n\r\n",
        "host: a.test\r\nHost: a.test\r\n\r\n",
        "host: a.test/x\r\n\r\n",
        "host: a.test\r\ncontent-length: 6\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "host: a.test\r\ntransfer-encoding: chunked\r\ncontent-length: 6\r\n\r\n0\r\n\r\n",
    ] {
        let answer = exchange(&server.url, format!("{start}{head}{smuggled}"));
        assert!(answer.starts_with("HTTP/1.1 400"), "{head:?}: {answer}");
        assert!(answer.contains("\"code\":\"malformed_request\""), "{head:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{head:?}: {answer}");
    }
    // A length that is hidden in a long line counts as a second one.
    let (spaces, zeros, long) = (" ".repeat(64), "0".repeat(64), "x".repeat(64));
    let chunked = "host: a.test\r\ntransfer-encoding: chunked\r\n\r\n";
    for (wrong, rest) in [
        (format!("host: a.test\r\ncontent-length:{spaces}4\r\n\r\n"), "text"),
        (format!("host: a.test\r\ncontent-length: {zeros}4\r\n\r\n"), "text"),
        (format!("host: a.test\r\ncontent-length: 4{spaces}\r\n\r\n"), "text"),
        (format!("host: a.test\r\ntransfer-encoding:{spaces}chunked\r\n\r\n"), "0\r\n\r\n"),
        (format!("{chunked}{zeros}4\r\n"), "text\r\n0\r\n\r\n"),
        (format!("{chunked}4;a={long}\r\n"), "text\r\n0\r\n\r\n"),
        (format!("{chunked}4{spaces}\r\n"), "text\r\n0\r\n\r\n"),
        (format!("{chunked}0\r\nx: y\n"), "\r\n"),
        (format!("{chunked}0\r\n\n"), "\r\n"),
    ] {
        let answer = exchange(&server.url, format!("{start}{wrong}{rest}{smuggled}"));
        assert!(answer.starts_with("HTTP/1.1 400"), "{wrong:?}: {answer}");
        assert!(answer.contains("\"code\":\"malformed_request\""), "{wrong:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{wrong:?}: {answer}");
    }
    // Also when the request is under way by then, and only the one that it concerns.
    let mut stream = dial(&server.url);
    let head = format!(
        "GET /healthz HTTP/1.1\r\nhost: a.test\r\n\r\nPOST /v1/events HTTP/1.1\r\n\
         authorization: Bearer {}\r\ncontent-type: application/json\r\n{chunked}1\r\n{{\r\n",
        server.key
    );
    stream.write_all(head.as_bytes()).expect("sent");
    assert_eq!(status(&mut stream), "HTTP/1.1 200");
    thread::sleep(Duration::from_millis(200));
    let wrong = format!("1;{long}\r\n}}\r\n0\r\n\r\n{smuggled}");
    stream.write_all(wrong.as_bytes()).expect("sent");
    let mut answers = String::new();
    drop(stream.read_to_string(&mut answers));
    assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{answers}");
    assert!(answers.contains("HTTP/1.1 400"), "{answers}");
    // One host is enough for HTTP/1.0 to have or not to have, and chunks alone are fine.
    assert!(exchange(&server.url, "GET /healthz HTTP/1.0\r\n\r\n").contains("200 OK"));
    let chunked =
        "host: a.test\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n0\r\n\r\n";
    assert!(exchange(&server.url, format!("{start}{chunked}")).starts_with("HTTP/1.1 401"));
    home.run("explain malformed_request").exits(0);
    server.stop();
}

fn rss(server: &Server) -> f64 {
    server.metric("process_resident_memory_bytes") / f64::from(1 << 20)
}

#[test]
fn held_bodies_cost_a_bounded_memory_which_goes_back() {
    let (home, server) = Home::new().served();
    server.ask("topics put orders");
    let start = rss(&server);
    let body = vec![b' '; (8 << 20) - 1];
    let head = format!(
        "POST /v1/events/batch HTTP/1.1\r\nhost: a.test\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        server.key,
        body.len() + 1
    );
    let began = Instant::now();
    // All but the last byte of sixty bodies.
    let holders: Vec<_> = (0..60)
        .map(|_| {
            let (url, head, body) = (server.url.clone(), head.clone(), body.clone());
            thread::spawn(move || {
                let mut stream = dial(&url);
                drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)));
                let mut answer = String::new();
                // Those that are refused hear of it, or find their connection cut.
                stream.set_read_timeout(Some(Duration::from_secs(4))).expect("a timeout");
                let mut chunk = [0; 4_096];
                while let Ok(length @ 1..) = stream.read(&mut chunk) {
                    answer.push_str(&String::from_utf8_lossy(&chunk[..length]));
                }
                (stream, answer)
            })
        })
        .collect();
    let mut peak: f64 = start;
    while began.elapsed() < Duration::from_secs(4) {
        peak = peak.max(rss(&server));
        assert_well(&server.url, "/healthz");
        thread::sleep(Duration::from_millis(200));
    }
    // Small publishes of the same tenant need no such memory.
    let sent = server.ask(&["send", "orders", "order.created", "{}"]);
    assert!(sent["id"].is_string(), "{sent}");
    let held: Vec<_> = holders.into_iter().map(|held| held.join().expect("ends")).collect();
    let refused = held.iter().filter(|(_, answer)| answer.contains("too_many_bodies")).count();
    assert!(refused > 0, "nobody was told");
    let metrics = server.metrics();
    let counted = "posthorn_admission_refused_total{reason=\"too_many_bodies\"}";
    assert!(metrics.contains(counted), "{metrics}");
    // Four fit into the tenant's share.
    assert!(peak < start + 100.0, "{start} MiB became {peak} MiB");
    drop(held);
    until("the memory again", || rss(&server) < start + 24.0);
    assert!(home.run("explain bodies_full").err.is_empty());
    server.stop();
}

#[test]
fn a_body_as_large_as_may_be_finds_room_in_pieces_of_any_size() {
    const LARGEST: usize = 1 << 20;
    let mut home = home(
        "server: {listen: '127.0.0.1:0', batch_body_max: 1MiB, body_memory: 1MiB, \
         body_memory_per_tenant: 1MiB}\n",
    );
    let server = home.serve();
    server.ask("topics put orders");
    let event = r#"{"events":[{"topic":"orders","type":"a","payload":1}]}"#;
    let body = format!("{event}{}", " ".repeat(LARGEST - event.len()));
    for piece in [1_001, 7_777, 70_001] {
        let mut stream = dial(&server.url);
        let head = format!(
            "POST /v1/events/batch HTTP/1.1\r\nhost: a.test\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\nconnection: close\r\n\
             transfer-encoding: chunked\r\n\r\n",
            server.key
        );
        stream.write_all(head.as_bytes()).expect("sent");
        for piece in body.as_bytes().chunks(piece) {
            let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
            chunk.extend_from_slice(piece);
            chunk.extend_from_slice(b"\r\n");
            stream.write_all(&chunk).expect("sent");
        }
        stream.write_all(b"0\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 20"), "in pieces of {piece}: {answer}");
    }
    server.stop();
}
