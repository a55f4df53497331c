//! Traces and metrics for a collector, through the real program. The collector of these tests decodes what it gets.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::trace::v1::Span;
use posthorn_testkit::authority::{Authority, Clients};
use posthorn_testkit::program::{Home, Server};
use posthorn_testkit::receiver::{Answer, Receiver};
use posthorn_testkit::wait::{eventually, until};
use prost::Message as _;
use serde_json::{Value, json};

use crate::name_server::NameServer;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// What has servers send to this address, at once.
fn export(endpoint: &str, more: &str) -> String {
    format!(
        "\ntelemetry: {{otlp: {{endpoint: '{endpoint}', batch_interval: 50ms, timeout: 3s, \
         stop_timeout: 1s, metrics_interval: 200ms, {more}}}}}\n"
    )
}

fn home(endpoint: &str, more: &str) -> Home {
    let home = Home::new();
    home.configure(&export(endpoint, more));
    home
}

fn subscribe(server: &Server, url: &str, policy: &Value) {
    server.ask(&["topics", "put", "orders"]);
    let policy = policy.to_string();
    let args = ["subscriptions", "create", url, "--topic", "orders", "--profile", "quick"];
    server.ask(&[&args[..], &["--policy", &policy]].concat());
}

fn event(n: u64) -> Value {
    json!({"topic": "orders", "type": "order.created", "payload": {"n": n}})
}

fn publish(server: &Server, n: u64, traceparent: Option<&str>) -> Value {
    let call = server.call("POST", "/v1/events").json(event(n));
    let call = match traceparent {
        Some(header) => call.header("traceparent", header),
        None => call,
    };
    call.send().expect(202)
}

fn spans(collector: &Receiver) -> Vec<Span> {
    let bodies = collector.seen().into_iter().filter(|seen| seen.path == "/v1/traces");
    bodies
        .map(|seen| ExportTraceServiceRequest::decode(&seen.body[..]).expect("protobuf"))
        .flat_map(|request| request.resource_spans)
        .flat_map(|resource| resource.scope_spans)
        .flat_map(|scope| scope.spans)
        .collect()
}

fn metrics(collector: &Receiver) -> Vec<Metric> {
    let mut bodies = collector.seen().into_iter().filter(|seen| seen.path == "/v1/metrics");
    let last = bodies.next_back().map(|seen| seen.body).unwrap_or_default();
    let request = ExportMetricsServiceRequest::decode(&last[..]).expect("protobuf");
    let resources = request.resource_metrics.into_iter();
    resources.flat_map(|resource| resource.scope_metrics).flat_map(|scope| scope.metrics).collect()
}

fn said(pairs: &[KeyValue]) -> BTreeMap<String, String> {
    let show = |pair: &KeyValue| match pair.value.as_ref().and_then(|v| v.value.as_ref()) {
        Some(Any::StringValue(text)) => text.clone(),
        Some(Any::IntValue(number)) => number.to_string(),
        Some(Any::DoubleValue(number)) => number.to_string(),
        Some(Any::BoolValue(truth)) => truth.to_string(),
        other => panic!("{other:?}"),
    };
    pairs.iter().map(|pair| (pair.key.clone(), show(pair))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Waits until so many spans with this name have come.
#[track_caller]
fn named(collector: &Receiver, name: &str, count: usize) -> Vec<Span> {
    eventually(&format!("{count} spans {name}"), || {
        let own: Vec<Span> =
            spans(collector).into_iter().filter(|span| span.name == name).collect();
        (own.len() >= count).then_some(own)
    })
}

fn traceparents(receiver: &Receiver) -> Vec<Option<String>> {
    let seen = receiver.seen();
    seen.iter().map(|seen| seen.header("traceparent").map(str::to_owned)).collect()
}

#[test]
fn the_publishers_trace_goes_over_publish_waits_and_attempts_to_the_receiver() {
    let collector = Receiver::new(200);
    let more = "headers: {x-token: env:OTLP_TOKEN}, service_name: hooks, \
                resource: {deployment.environment.name: test}";
    let mut home = home(&collector.url(""), more);
    home.env.push(("OTLP_TOKEN".to_owned(), "s3cret-token".to_owned()));
    let (_home, server) = home.served();
    let receiver = Receiver::scripted(|seen| if seen.nth == 0 { 503_u16 } else { 200 });
    let url = receiver.url("/in?key=hidden");
    subscribe(&server, &url, &json!({"request": {"traceparent": "send"}}));
    let plain = Receiver::new(200);
    subscribe(&server, &plain.url("/in"), &json!({}));
    let published = publish(&server, 1, Some(PARENT));
    server.settles(&[("delivered", 2)]);

    let attempts = named(&collector, "attempt", 3);
    let publishes = named(&collector, "publish orders", 1);
    let waits = named(&collector, "wait", 3);
    let all: Vec<&Span> = attempts.iter().chain(&publishes).chain(&waits).collect();
    assert_eq!(all.len(), 7);
    for span in &all {
        assert_eq!(hex(&span.trace_id), TRACE);
        assert!(span.start_time_unix_nano > 1_700_000_000_000_000_000);
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
        assert_eq!(said(&span.attributes)["messaging.message.id"], published["id"]);
        assert!(!format!("{span:?}").contains("hidden"), "{span:?}");
    }
    assert_eq!(hex(&publishes[0].parent_span_id), "00f067aa0ba902b7");
    for span in attempts.iter().chain(&waits) {
        assert_eq!(span.parent_span_id, publishes[0].span_id);
    }
    let failed = attempts.iter().find(|span| span.status.is_some()).expect("one failed");
    let words = said(&failed.attributes);
    assert_eq!(words["http.response.status_code"], "503");
    assert_eq!(
        (words["error.type"].as_str(), words["http.request.method"].as_str()),
        ("503", "POST")
    );
    assert_eq!(words["server.address"], "127.0.0.1");
    assert_eq!(words["server.port"], receiver.address.port().to_string());
    let again = attempts.iter().find(|span| !span.links.is_empty()).expect("one is a retry");
    assert_eq!(again.links[0].span_id, failed.span_id);
    assert_eq!(hex(&again.links[0].trace_id), TRACE);

    let shown = |span: &Span| Some(format!("00-{TRACE}-{}-01", hex(&span.span_id)));
    assert_eq!(traceparents(&receiver), [shown(failed), shown(again)]);
    assert_eq!(traceparents(&plain), [None], "who did not ask for it gets nothing new");

    let seen = collector.seen();
    let first = seen.iter().find(|seen| seen.path == "/v1/traces").expect("a request");
    assert_eq!(first.method, "POST");
    assert_eq!(first.header("content-type"), Some("application/x-protobuf"));
    assert_eq!(first.header("x-token"), Some("s3cret-token"));
    let request = ExportTraceServiceRequest::decode(&first.body[..]).expect("protobuf");
    let resource = request.resource_spans[0].resource.clone().expect("who we are");
    let resource = said(&resource.attributes);
    assert_eq!(resource["service.name"], "hooks");
    assert_eq!(resource["deployment.environment.name"], "test");
    assert!(!server.running.stderr().contains("s3cret-token"));
    let event = server.ask(&["events", "show", published["id"].as_str().expect("an id")]);
    assert_eq!(event["trace_id"], TRACE);
    server.stop();
}

#[test]
fn batches_and_cloudevents_bring_their_traces() {
    let collector = Receiver::new(200);
    let (_home, server) = home(&collector.url(""), "sample_ratio: 0").served();
    server.ask(&["topics", "put", "orders"]);
    let batch = json!({"events": [event(1), event(2)]});
    let call = server.call("POST", "/v1/events/batch").json(batch);
    call.header("traceparent", PARENT).send().expect(200);
    assert_eq!(named(&collector, "publish orders", 2).len(), 2);

    let own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let cloudevent = |id: &str, traceparent: &str| {
        json!({"specversion": "1.0", "id": id, "source": "/s", "type": "order.created",
            "topic": "orders", "data": {}, "traceparent": traceparent})
    };
    let send = |event: Value, header: Option<&str>| {
        let call = server.call("POST", "/v1/events").raw(event.to_string());
        let call = call.header("content-type", "application/cloudevents+json");
        match header {
            Some(header) => call.header("traceparent", header).send().expect(202),
            None => call.send().expect(202),
        }
    };
    send(cloudevent("1", own), None);
    // Another trace's request does not take the event away from its own.
    send(cloudevent("2", own), Some(PARENT));
    // In the same trace, the request is the nearer step.
    let nearer = "00-0af7651916cd43dd8448eb211c80319c-1111111111111111-01";
    send(cloudevent("3", own), Some(nearer));
    // What is none is passed over, and the event is published.
    send(cloudevent("4", "nonsense"), Some("00-nonsense"));
    let found = named(&collector, "publish orders", 5);
    let parents: Vec<String> = found
        .iter()
        .filter(|span| hex(&span.trace_id).starts_with("0af7"))
        .map(|span| hex(&span.parent_span_id))
        .collect();
    assert_eq!(parents, ["b7ad6b7169203331", "b7ad6b7169203331", "1111111111111111"]);
    server.stop();
    assert_eq!(spans(&collector).len(), 5, "the last one belongs to no trace");
}

#[test]
fn sampling_takes_all_or_nothing_and_the_publisher_decides_unless_it_may_not() {
    let quiet = PARENT.replace("-01", "-00");
    let check = |more: &str, traceparent: Option<&str>, expected: usize| {
        let collector = Receiver::new(200);
        let (_home, server) = home(&collector.url(""), more).served();
        let receiver = Receiver::new(200);
        subscribe(&server, &receiver.url("/"), &json!({"request": {"traceparent": "send"}}));
        publish(&server, 1, traceparent);
        server.settles(&[("delivered", 1)]);
        server.stop();
        assert_eq!(spans(&collector).len(), expected, "{more} {traceparent:?}");
        traceparents(&receiver)[0].clone()
    };
    assert_eq!(check("sample_ratio: 0", None, 0), None);
    assert!(check("sample_ratio: 1.0", None, 3).is_some_and(|shown| shown.ends_with("-01")));
    assert_eq!(check("sample_ratio: 1", Some(&quiet), 0), Some(quiet.clone()));
    let unasked = check("sample_ratio: 0, parent_based: false", Some(PARENT), 0);
    assert_eq!(unasked, Some(quiet.clone()));
    assert!(
        check("sample_ratio: 1, parent_based: false", Some(&quiet), 3)
            .is_some_and(|shown| shown.starts_with(&format!("00-{TRACE}-")) && shown != quiet)
    );
    assert_eq!(check("traces: false", Some(PARENT), 0), Some(PARENT.to_owned()));
}

#[test]
fn metrics_arrive_as_the_page_shows_them() {
    let collector = Receiver::new(200);
    let (_home, server) = home(&collector.url(""), "traces: false").served();
    server.ask(&["topics", "put", "orders"]);
    publish(&server, 1, None);
    publish(&server, 2, None);
    let accepted = eventually("the counter", || {
        let found = metrics(&collector);
        let own =
            found.into_iter().find(|metric| metric.name == "posthorn_events_accepted_total")?;
        let Some(Data::Sum(sum)) = own.data else { panic!("a sum") };
        let point = sum.data_points.first().cloned()?;
        (point.value == Some(Number::AsInt(2))).then_some((sum, point))
    });
    let (sum, point) = accepted;
    assert!(sum.is_monotonic);
    assert!(point.time_unix_nano > point.start_time_unix_nano);
    let names: Vec<String> = metrics(&collector).into_iter().map(|metric| metric.name).collect();
    let page = server.metrics();
    let shown: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(shown.len() > 40, "{shown:?}");
    for name in &names {
        assert!(shown.contains(&name.as_str()), "{name} is not on the page");
    }
    assert!(names.len() > 40, "{names:?}");
    let kinds = metrics(&collector);
    assert!(kinds.iter().any(|metric| matches!(metric.data, Some(Data::Gauge(_)))));
    assert!(kinds.iter().any(|metric| matches!(metric.data, Some(Data::Histogram(_)))));
    assert!(server.metric("posthorn_otlp_sent_total{signal=\"metrics\"}") > 40.0);
    assert!(spans(&collector).is_empty());
    server.stop();
}

/// Publishes go on, quickly, and the server stops in time; what was lost is counted.
#[track_caller]
fn survives(endpoint: &str, reason: &str) {
    let more = "queue: 4, batch: 2, metrics: false";
    let (_home, server) = home(endpoint, more).served();
    let receiver = Receiver::new(200);
    subscribe(&server, &receiver.url("/"), &json!({}));
    let began = Instant::now();
    for n in 0..20 {
        publish(&server, n, Some(PARENT));
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(3), "20 publishes took {took:?}");
    server.settles(&[("delivered", 20)]);
    until("losses", || {
        let full = "posthorn_otlp_dropped_total{signal=\"traces\",reason=\"queue_full\"}";
        let lost = format!("posthorn_otlp_dropped_total{{signal=\"traces\",reason=\"{reason}\"}}");
        server.metric(&lost) + server.metric(full) >= 1.0
            && (server.metric(&lost) >= 1.0 || reason == "queue_full")
    });
    let began = Instant::now();
    server.stop();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(5), "the stop took {took:?}");
}

#[test]
fn a_collector_that_hangs_costs_spans_and_nothing_else() {
    let collector = Receiver::new(Answer::from(200).after(Duration::from_secs(30)));
    survives(&collector.url(""), "queue_full");
}

#[test]
fn a_collector_that_is_away_costs_spans_and_nothing_else() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    survives(&format!("http://{address}"), "failed");
}

#[test]
fn a_collector_that_fails_costs_spans_and_nothing_else() {
    let collector = Receiver::new(500);
    survives(&collector.url(""), "failed");
    assert!(collector.count() > 1);
}

#[test]
fn a_collector_that_closes_connections_costs_spans_and_nothing_else() {
    let collector = Receiver::new(0);
    survives(&collector.url(""), "failed");
}

#[test]
fn spans_that_a_collector_rejects_are_counted_as_lost() {
    let partial = ExportTracePartialSuccess { rejected_spans: 1, ..Default::default() };
    let answer = ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
    let collector = Receiver::new(Answer::from(200).body(answer));
    let (_home, server) = home(&collector.url(""), "metrics: false").served();
    server.ask(&["topics", "put", "orders"]);
    publish(&server, 1, Some(PARENT));
    until("a rejected span", || {
        let name = "posthorn_otlp_dropped_total{signal=\"traces\",reason=\"rejected\"}";
        server.metric(name) >= 1.0
    });
    server.stop();
}

#[test]
fn what_is_left_is_sent_before_the_end() {
    let collector = Receiver::new(200);
    let home = home(&collector.url(""), "metrics: false");
    home.edit("batch_interval: 50ms", "batch_interval: 1h");
    let (_home, server) = home.served();
    server.ask(&["topics", "put", "orders"]);
    publish(&server, 1, Some(PARENT));
    assert_eq!(collector.count(), 0);
    server.stop();
    assert_eq!(spans(&collector).len(), 1);
}

#[test]
fn a_busy_collector_is_asked_again() {
    let collector = Receiver::scripted(|seen| if seen.nth == 0 { 503_u16 } else { 200 });
    let (_home, server) = home(&collector.url(""), "metrics: false").served();
    server.ask(&["topics", "put", "orders"]);
    publish(&server, 1, Some(PARENT));
    until("the second try", || server.metric("posthorn_otlp_sent_total{signal=\"traces\"}") >= 1.0);
    assert_eq!(collector.count(), 2);
    server.stop();
}

#[test]
fn a_tenant_cannot_make_the_server_call_the_collector() {
    let collector = Receiver::new(200);
    let (_home, server) = home(&collector.url(""), "metrics: false").served();
    server.ask(&["topics", "put", "orders"]);
    // Loopback is open to receivers here, and still this port is not, by whichever address.
    let port = collector.address.port();
    for host in ["127.0.0.1", "127.0.0.2", "[::ffff:127.0.0.1]"] {
        let url = format!("http://{host}:{port}/v1/traces");
        let refused = server.run(&["subscriptions", "create", &url, "--topic", "orders"]).fails();
        assert!(refused.err.contains("url_not_allowed"), "{}", refused.err);
    }
    let other = Receiver::new(200);
    subscribe(&server, &other.url("/"), &json!({}));
    publish(&server, 1, Some(PARENT));
    // The server itself does reach it.
    named(&collector, "attempt", 1);
    server.stop();
}

#[test]
fn a_subscription_from_before_does_not_reach_the_collector_either() {
    let collector = Receiver::new(200);
    let mut home = Home::new();
    let server = home.serve();
    server.ask(&["topics", "put", "orders"]);
    let args = ["subscriptions", "create", &collector.url("/hook"), "--topic", "orders"];
    server.ask(&[&args[..], &["--profile", "once"]].concat());
    server.stop();
    home.configure(&export(&collector.url(""), "metrics: false"));
    let server = home.serve();
    publish(&server, 1, Some(PARENT));
    let attempt = named(&collector, "attempt", 1).remove(0);
    let words = said(&attempt.attributes);
    assert_eq!(words["error.type"], "address_not_allowed", "{words:?}");
    assert!(!words.contains_key("http.response.status_code"));
    server.settles(&[("dead", 1)]);
    server.stop();
    assert!(collector.seen().iter().all(|seen| seen.path == "/v1/traces"), "{}", collector.heard());
}

#[test]
fn the_command_line_brings_a_trace_and_hides_the_headers_for_the_collector() {
    let collector = Receiver::new(200);
    let more = "metrics: false, headers: {authorization: 'Bearer t0ken', x-other: env:OTHER}";
    let mut home = home(&collector.url(""), more);
    home.env.push(("OTHER".to_owned(), "t0ken too".to_owned()));
    let server = home.serve();
    let args = ["send", "orders", "order.created", "{}", "--create-topic"];
    server.ask(&[&args[..], &["--traceparent", PARENT]].concat());
    let told = named(&collector, "publish orders", 1).remove(0);
    assert_eq!(hex(&told.trace_id), TRACE);
    server.ask(&[&args[..], &["--count", "2", "--traceparent", PARENT]].concat());
    named(&collector, "publish orders", 3);
    server.stop();
    let shown =
        posthorn_testkit::program::Ran::of(home.command().env("OTHER", "t0ken too").arg("check"));
    let shown = shown.exits(0);
    assert!(shown.out.contains("telemetry.otlp.headers.authorization"), "{}", shown.out);
    assert!(!shown.out.contains("t0ken") && !shown.err.contains("t0ken"), "{}", shown.out);
}

#[test]
fn a_collector_that_cannot_be_used_is_refused_at_the_start() {
    for (endpoint, part) in [
        ("collector:4318", "telemetry.otlp.endpoint: must be the URL of a collector"),
        ("http://169.254.169.254", "telemetry.otlp.endpoint cannot be used"),
    ] {
        let home = home(endpoint, "metrics: false");
        home.run(&["serve"]).fails().says(&[part]);
        home.run(&["check"]).fails().says(&[part]);
    }
    let home = home("http://127.0.0.1:4318", "sample_ratio: 1.5");
    home.run(&["check"]).fails().says(&["telemetry.otlp.sample_ratio: must be from 0"]);
}

#[test]
fn a_collector_with_a_name_is_reached_over_tls_and_is_no_receiver_by_any_name() {
    let names = NameServer::start();
    names.set("otel.internal", &[[127, 0, 0, 1]]);
    names.set("hook.example.com", &[[127, 0, 0, 1]]);
    let authority = Authority::new("operator");
    let collector = Receiver::secure(&authority, "otel.internal", Clients::Anybody);
    let port = collector.address.port();
    let mut home = home(&collector.url("/base/"), "metrics: false");
    let root = home.write("root.pem", &authority.pem);
    let open = format!(
        "egress: {{allow: [127.0.0.0/8], resolvers: ['{}'], extra_roots: '{}'}}",
        names.address,
        root.display()
    );
    home.edit("egress: {allow: [127.0.0.0/8]}", &open);
    let server = home.serve();
    server.ask(&["topics", "put", "orders"]);
    for url in [format!("https://otel.internal:{port}/"), format!("https://127.0.0.1:{port}/")] {
        let refused = server.run(&["subscriptions", "create", &url, "--topic", "orders"]).fails();
        assert!(refused.err.contains("url_not_allowed"), "{url}: {}", refused.err);
    }
    // What only leads there is found out when it is sent to.
    let hook = format!("https://hook.example.com:{port}/hook");
    let args = ["subscriptions", "create", &hook, "--topic", "orders", "--profile", "once"];
    server.ask(&args);
    publish(&server, 1, Some(PARENT));
    server.settles(&[("dead", 1)]);
    server.stop();
    let paths: Vec<String> = collector.seen().into_iter().map(|seen| seen.path).collect();
    assert!(!paths.is_empty() && paths.iter().all(|path| path == "/base/v1/traces"), "{paths:?}");
}

#[test]
fn a_retry_after_a_restart_links_to_the_attempt_before_it() {
    let collector = Receiver::new(200);
    let mut home = home(&collector.url(""), "metrics: false");
    let receiver = Receiver::scripted(|seen| if seen.nth == 0 { 503_u16 } else { 200 });
    let server = home.serve();
    let wait = json!({"schedule": {"backoff": {"fixed": {"wait": "3s"}}, "jitter": "none"}});
    subscribe(&server, &receiver.url("/"), &wait);
    publish(&server, 1, Some(PARENT));
    let first = named(&collector, "attempt", 1).remove(0);
    server.stop();
    let server = home.serve();
    server.settles(&[("delivered", 1)]);
    let again = named(&collector, "attempt", 2).remove(1);
    assert_eq!(again.trace_id, first.trace_id);
    assert_eq!(again.parent_span_id, first.parent_span_id);
    assert_eq!(again.links[0].span_id, first.span_id);
    server.stop();
}
