//! The webhooks of a payment server through the real program: what receivers see, and what admins do.

use std::collections::BTreeSet;
use std::time::Duration;

use posthorn_sealing::body_hmac::{BodyHmac, Content, Scheme};
use posthorn_sealing::encoding::Encoding;
use posthorn_testkit::program::{Ran, Server};
use posthorn_testkit::wait::{eventually, until};
use serde_json::Value;

use crate::cedros_world::{On, SECRET, TENANT, World, admin, becomes, listed, pay, refused, says};

pub(crate) const QUICK: &str = "  retry: {max_attempts: 3, initial_interval: 50ms}\n";

pub(crate) fn text<'a>(webhook: &'a Value, name: &str) -> &'a str {
    webhook[name].as_str().unwrap_or_else(|| panic!("{name} in {webhook}"))
}

/// A key of a tenant, made on the command line.
#[track_caller]
fn key(server: &Server, tenant: &str, scopes: &[&str]) -> String {
    let mut args = vec!["keys", "create", "--tenant", tenant];
    for scope in scopes {
        args.extend(["--scope", scope]);
    }
    server.ask(&args)["key"].as_str().expect("a key").to_owned()
}

fn receivers_see_the_wire(on: On) {
    let mut world = World::new(on);
    world.callbacks(QUICK);
    let server = world.home.serve();
    world.answers(500);
    pay(&server, "evt_1");
    world.receiver.wait_for(2);
    world.answers(204);
    let webhook = becomes(&server, "success");
    let seen = world.receiver.wait_for(3);
    assert_eq!(seen.len(), 3);
    let scheme = Scheme {
        hash: "sha256".parse().expect("a hash"),
        encoding: Encoding::Hex,
        content: Content::Body,
        format: "sha256={signature}".to_owned(),
    };
    let hmac = BodyHmac::new(SECRET.as_bytes(), scheme).expect("a key");
    for request in &seen {
        assert_eq!(request.method, "POST");
        let body = request.json();
        assert_eq!(
            (&body["eventId"], &body["eventType"]),
            (&"evt_1".into(), &"payment.succeeded".into())
        );
        assert_eq!(request.body, seen[0].body, "the same bytes each time");
        let header = |name: &str| request.header(name).unwrap_or_default();
        assert_eq!(header("content-type"), "application/json");
        assert_eq!(header("x-cedros-event-type"), "payment.succeeded");
        assert_eq!(header("x-cedros-delivery-id"), text(&webhook, "id"));
        assert!(header("x-cedros-timestamp").parse::<i64>().is_ok());
        assert_eq!(header("x-cedros-signature"), hmac.sign(0, &request.body));
        assert_eq!(header("authorization"), "Bearer hush-hush");
    }
    assert_eq!(webhook["attempts"], 3);
    assert_eq!(webhook["maxAttempts"], 3);
    until("the figures", || {
        let metrics = server.get("/metrics").body;
        let wanted = [
            r#"cedros_webhooks_total{event_type="payment",status="success"} 1"#,
            r#"cedros_webhook_retries_total{event_type="payment",attempt="3"} 1"#,
            r#"cedros_webhook_duration_seconds_bucket{event_type="payment",le="10"} 1"#,
        ];
        wanted.iter().all(|line| metrics.contains(line))
    });
    server.stop();
}

#[test]
fn receivers_see_the_wire_on_sqlite() {
    receivers_see_the_wire(On::Sqlite);
}

#[test]
fn receivers_see_the_wire_on_postgresql() {
    receivers_see_the_wire(On::Postgres);
}

fn admins_look_retry_and_delete(on: On) {
    let mut world = World::new(on);
    world.callbacks(QUICK);
    let server = world.home.serve();
    world.answers(503);
    pay(&server, "evt_1");
    let webhook = becomes(&server, "failed");
    let names: BTreeSet<&str> =
        webhook.as_object().expect("an object").keys().map(String::as_str).collect();
    let wanted = [
        "id",
        "tenantId",
        "url",
        "eventId",
        "eventType",
        "payload",
        "headers",
        "status",
        "attempts",
        "maxAttempts",
        "lastError",
        "lastAttemptAt",
        "createdAt",
        "completedAt",
    ];
    assert_eq!(names, BTreeSet::from(wanted));
    assert_eq!(text(&webhook, "eventId"), "evt_1");
    let sent = world.receiver.wait_for(1)[0].json();
    assert_eq!(webhook["payload"], sent, "what receivers get");
    assert_eq!(text(&webhook, "url"), world.hook());
    assert_eq!(text(&webhook, "eventType"), "payment.succeeded");
    assert_eq!((&webhook["attempts"], &webhook["maxAttempts"]), (&3.into(), &3.into()));
    assert_eq!(text(&webhook, "lastError"), "HTTP 503", "not a word of the receiver's");
    let id = text(&webhook, "id").to_owned();
    let one = admin(&server, &server.key, "GET", &format!("/{id}")).expect(200);
    assert_eq!(one, webhook, "a list shows as much");
    let headers = &one["headers"];
    assert_eq!(text(headers, "x-cedros-event-type"), "payment.succeeded");
    assert_eq!(text(headers, "x-cedros-delivery-id"), id);
    assert_eq!(text(headers, "x-cedros-signature"), "…", "what authenticates it is not shown");
    let dead = listed(&server, "/dlq");
    assert_eq!(dead.len(), 1);
    assert_eq!(text(&dead[0], "id"), id);
    assert_eq!(text(&dead[0], "originalWebhookId"), id);
    assert_eq!(text(&dead[0], "finalError"), "HTTP 503");
    assert_eq!((&dead[0]["eventId"], &dead[0]["payload"]), (&"evt_1".into(), &sent));
    assert_eq!(dead[0]["totalAttempts"], 3);
    assert_eq!(&dead[0]["headers"], headers, "as the last attempt sent them");
    for name in ["firstAttemptAt", "lastAttemptAt", "movedToDlqAt", "tenantId", "url"] {
        assert!(!text(&dead[0], name).is_empty());
    }

    until("the figures", || {
        let metrics = server.get("/metrics").body;
        let wanted = [
            r#"cedros_webhooks_total{event_type="payment",status="dlq"} 1"#,
            r#"cedros_webhook_dlq_total{event_type="payment"} 1"#,
        ];
        wanted.iter().all(|line| metrics.contains(line))
    });

    // A fresh budget: three more attempts, and the count begins again.
    let reply = admin(&server, &server.key, "POST", &format!("/{id}/retry")).expect(200);
    let line = &server.ask("audit list --action delivery.retried")["items"][0];
    assert_eq!((&line["surface"], &line["actor"]["kind"]), (&"cedros".into(), &"key".into()));
    assert_eq!(line["object"]["id"], id);
    assert_eq!((&reply["status"], &reply["webhookId"]), (&"queued".into(), &id.as_str().into()));
    assert!(!text(&reply, "message").is_empty());
    world.receiver.wait_for(6);
    let webhook = becomes(&server, "failed");
    assert_eq!(webhook["attempts"], 3, "of its present budget");
    eventually("the dead letter", || {
        (listed(&server, "/dlq").first()?["totalAttempts"] == 6).then_some(())
    });
    world.answers(200);
    admin(&server, &server.key, "POST", &format!("/dlq/{id}/retry")).expect(200);
    let webhook = becomes(&server, "success");
    assert_eq!(webhook["attempts"], 1);
    assert!(webhook.get("lastError").is_none(), "{webhook}");
    assert!(listed(&server, "/dlq").is_empty());
    refused(
        &admin(&server, &server.key, "POST", &format!("/dlq/{id}/retry")),
        404,
        "resource_not_found",
        false,
    );

    admin(&server, &server.key, "DELETE", &format!("/{id}")).expect(204);
    assert!(listed(&server, "").is_empty(), "really gone");
    for (method, path) in
        [("GET", ""), ("POST", "/retry"), ("DELETE", "")].map(|(m, p)| (m, format!("/{id}{p}")))
    {
        refused(&admin(&server, &server.key, method, &path), 404, "resource_not_found", false);
    }
    let native = server.run(&["deliveries", "show", &id, "--tenant", TENANT]);
    assert!(native.code != Some(0), "the native API does not have it either");
    let stats = server.ask(&["stats", "--tenant", TENANT]);
    assert_eq!((&stats["events"], &stats["delivered"]), (&1.into(), &0.into()));

    world.answers(500);
    pay(&server, "evt_2");
    let second = becomes(&server, "failed");
    let id = text(&second, "id");
    let native = server.ask(&["deliveries", "show", id, "--tenant", TENANT]);
    let event = text(&native, "event");
    server.ask(&["events", "expunge", event, "--tenant", TENANT]);
    for place in ["", "/dlq"] {
        let reply = admin(&server, &server.key, "POST", &format!("{place}/{id}/retry"));
        refused(&reply, 409, "webhook_expunged", false);
    }
    let path = format!("/dlq/{id}");
    admin(&server, &server.key, "DELETE", &path).expect(204);
    assert!(listed(&server, "").is_empty());
    server.stop();
}

#[test]
fn admins_look_retry_and_delete_on_sqlite() {
    admins_look_retry_and_delete(On::Sqlite);
}

#[test]
fn admins_look_retry_and_delete_on_postgresql() {
    admins_look_retry_and_delete(On::Postgres);
}

fn lists_are_filtered_newest_first(on: On) {
    let mut world = World::new(on);
    world.callbacks("  retry: {max_attempts: 2, initial_interval: 1h, max_interval: 2h}\n");
    let server = world.home.serve();
    pay(&server, "evt_good");
    becomes(&server, "success");
    world.answers(500);
    for event in ["evt_1", "evt_2"] {
        pay(&server, event);
    }
    eventually("two that wait", || {
        let waiting = listed(&server, "?status=pending");
        (waiting.len() == 2 && waiting.iter().all(|w| w["attempts"] == 1)).then_some(())
    });
    world.receiver.answers(says(500).after(Duration::from_secs(5)));
    pay(&server, "evt_slow");
    let busy = eventually("one under way", || listed(&server, "?status=processing").pop());
    assert_eq!(busy["attempts"], 1, "counted from its beginning");
    assert!(busy.get("nextAttemptAt").is_none(), "{busy}");
    let id = text(&busy, "id");
    let reply = admin(&server, &server.key, "POST", &format!("/{id}/retry"));
    refused(&reply, 409, "webhook_processing", true);

    let all = listed(&server, "");
    let ids: Vec<&str> = all.iter().map(|webhook| text(webhook, "id")).collect();
    let mut sorted = ids.clone();
    sorted.sort_unstable();
    sorted.reverse();
    assert_eq!(ids, sorted, "newest first");
    assert_eq!(all.len(), 4);
    assert_eq!(listed(&server, "?status=success").len(), 1);
    assert_eq!(listed(&server, "?status=failed").len(), 0);
    assert_eq!(listed(&server, "?limit=2").len(), 2);
    assert_eq!(listed(&server, "?limit=0").len(), 1, "at least one");
    assert_eq!(listed(&server, "?limit=-7").len(), 1);
    assert_eq!(listed(&server, "?limit=999999").len(), 4, "at most a thousand");
    assert_eq!(listed(&server, "?status=&limit=&other=1").len(), 4);
    for query in ["?status=bogus", "?limit=many", "?limit=1.5", "?status=PENDING"] {
        let reply = admin(&server, &server.key, "GET", query);
        refused(&reply, 400, "invalid_field", false);
    }

    // One that waits an hour for its second attempt is tried now, from the beginning.
    world.answers(200);
    let waiting = listed(&server, "?status=pending").pop().expect("one that waits");
    assert!(!text(&waiting, "nextAttemptAt").is_empty());
    let path = format!("/{}/retry", text(&waiting, "id"));
    admin(&server, &server.key, "POST", &path).expect(200);
    eventually("its success", || (listed(&server, "?status=success").len() == 2).then_some(()));

    // One that waits can be deleted as well; it never comes.
    let waiting = listed(&server, "?status=pending").pop().expect("another that waits");
    let path = format!("/{}", text(&waiting, "id"));
    admin(&server, &server.key, "DELETE", &path).expect(204);
    assert!(listed(&server, "?status=pending").iter().all(|w| w["id"] != waiting["id"]));
    server.stop();
}

#[test]
fn lists_are_filtered_newest_first_on_sqlite() {
    lists_are_filtered_newest_first(On::Sqlite);
}

#[test]
fn lists_are_filtered_newest_first_on_postgresql() {
    lists_are_filtered_newest_first(On::Postgres);
}

#[test]
fn only_keys_of_the_tenant_with_the_scope_are_let_in() {
    let mut world = World::new(On::Sqlite);
    world.callbacks(&format!("{QUICK}  tenant: shop\n"));
    let server = world.home.serve();
    let shop = key(&server, "shop", &["read", "manage", "publish"]);
    let body = r#"{"eventId":"evt_1"}"#;
    Ran::of(server.command().env("POSTHORN_KEY", &shop).args([
        "send",
        "payments",
        "payment.succeeded",
        body,
    ]))
    .exits(0);
    let id = eventually("the webhook", || {
        let reply = admin(&server, &shop, "GET", "").expect(200);
        let first = reply["webhooks"].as_array()?.first()?.clone();
        (first["status"] == "success").then(|| text(&first, "id").to_owned())
    });
    assert_eq!(listed(&server, "").len(), 1, "an operator sees the block's tenant");

    let ask =
        |headers: &[(&str, &str)]| server.open("GET", "/admin/webhooks").headers(headers).send();
    assert_eq!(ask(&[("X-API-Key", &shop)]).expect(200)["count"], 1);
    let bearer = format!("Bearer {shop}");
    ask(&[("X-API-Key", &shop), ("Authorization", &bearer)]).expect(200);
    let other_key = ask(&[("X-API-Key", &server.key), ("Authorization", &bearer)]);
    refused(&other_key, 401, "unauthorized", false);
    assert_eq!(other_key.header("www-authenticate"), Some("Bearer"));
    assert_eq!(
        ask(&[("X-API-Key", &server.key), ("Posthorn-Tenant", "default")]).json()["count"],
        0
    );
    refused(
        &ask(&[("X-API-Key", &server.key), ("Posthorn-Tenant", "nobody")]),
        404,
        "resource_not_found",
        false,
    );

    let reader = key(&server, "shop", &["read"]);
    admin(&server, &reader, "GET", &format!("/{id}")).expect(200);
    for (method, path) in [
        ("POST", format!("/{id}/retry")),
        ("DELETE", format!("/{id}")),
        ("POST", format!("/dlq/{id}/retry")),
        ("DELETE", format!("/dlq/{id}")),
    ] {
        refused(&admin(&server, &reader, method, &path), 403, "forbidden", false);
    }
    let publisher = key(&server, "shop", &["publish"]);
    refused(&admin(&server, &publisher, "GET", ""), 403, "forbidden", false);

    server.ask("tenants create other");
    let other = key(&server, "other", &["read", "manage"]);
    assert_eq!(admin(&server, &other, "GET", "").expect(200)["count"], 0);
    for (method, path) in [
        ("GET", format!("/{id}")),
        ("POST", format!("/{id}/retry")),
        ("DELETE", format!("/{id}")),
        ("DELETE", format!("/dlq/{id}")),
    ] {
        let theirs = admin(&server, &other, method, &path);
        refused(&theirs, 404, "resource_not_found", false);
        let nobody = path.replace(&id, "dlv_00000000000000000000000000");
        assert_eq!(admin(&server, &other, method, &nobody).body, theirs.body, "tells nothing");
    }
    for path in ["/nonsense", "/%00", "/dlv_", "/../webhooks", "/%2e%2e"] {
        let reply = admin(&server, &shop, "GET", path);
        assert!(reply.status == 404, "{path}: {}", reply.body);
    }
    for (method, path) in [("PUT", ""), ("POST", ""), ("PATCH", "/x"), ("GET", "/x/retry")] {
        refused(&admin(&server, &shop, method, path), 405, "method_not_allowed", false);
    }
    assert_eq!(admin(&server, &shop, "GET", "").json()["count"], 1, "it is still there");

    // Guessing is counted with that on the native API, and a valid key is served all the same.
    let told = (0..30).find_map(|_| {
        let reply = admin(&server, "ph_wrong", "GET", "");
        (reply.status != 401).then_some(reply)
    });
    let told = told.expect("told to stop at some time");
    refused(&told, 429, "rate_limited", true);
    let wait: u64 = told.header("retry-after").expect("how long").parse().expect("seconds");
    assert!(wait >= 1);
    let native =
        server.open("GET", "/v1/stats").headers(&[("Authorization", "Bearer ph_x")]).try_send();
    native.expect("an answer").expect(429);
    admin(&server, &shop, "GET", "").expect(200);
    server.stop();
}

#[test]
fn the_subscription_is_kept_in_step_with_the_block() {
    let mut world = World::new(On::Sqlite);
    let server = world.home.serve();
    let named = |server: &Server| {
        let list = server.ask(&["subscriptions", "list", "--tenant", TENANT]);
        let all = list["items"].as_array().unwrap_or_else(|| panic!("{list}")).clone();
        assert_eq!(all.len(), 1, "{all:?}");
        all.into_iter().next().expect("one")
    };
    let first = named(&server);
    assert_eq!(first["name"], "cedros-callbacks");
    assert_eq!(first["profile"], "cedros");
    let shown = first.to_string();
    assert!(!shown.contains(SECRET) && !shown.contains("hush"), "secrets are not shown: {shown}");
    pay(&server, "evt_1");
    world.receiver.wait_for(1);
    server.stop();

    let server = world.home.serve();
    assert_eq!(named(&server), first, "a start with the same block changes nothing");
    server.stop();

    world.callbacks("  timeout: 3s\n  retry: {max_attempts: 9}\n");
    let server = world.home.serve();
    let second = named(&server);
    assert_eq!(second["id"], first["id"]);
    assert_ne!(second, first);
    pay(&server, "evt_2");
    world.receiver.wait_for(2);
    let webhook = listed(&server, "").remove(0);
    assert_eq!(webhook["maxAttempts"], 9);
    server.stop();

    world.configure("");
    let server = world.home.serve();
    let off = named(&server);
    assert_eq!(off["id"], second["id"]);
    assert_eq!(off["status"], "paused", "without the block nothing is sent: {off}");
    let reply = admin(&server, &server.key, "GET", "");
    assert_eq!(reply.status, 404, "and there are no admin endpoints");
    server.stop();

    world.configure("dialects: {cedros: {enabled: true}}\n");
    let server = world.home.serve();
    assert_eq!(listed(&server, "").len(), 2, "unless they are asked for");
    pay(&server, "evt_3");
    server.stop();
    assert_eq!(world.receiver.count(), 2, "it waits");

    world.callbacks("");
    let server = world.home.serve();
    assert_eq!(named(&server)["status"], "active", "and goes on with the block");
    world.receiver.wait_for(3);
    server.stop();

    // In another tenant, the one in the former tenant no longer sends.
    world.callbacks("  tenant: shop\n");
    let server = world.home.serve();
    assert_eq!(named(&server)["status"], "paused");
    server.stop();
}

#[test]
fn a_wrong_block_is_named_before_anything_starts() {
    let world = World::new(On::Sqlite);
    for (lines, parts) in [
        ("  payment_sucess_url: x\n", &["payment_sucess_url", "payment_success_url"][..]),
        ("  timeout: soon\n", &["callbacks.timeout", "is not a duration"]),
        ("  retry: {multiplier: 0}\n", &["callbacks.retry.multiplier", "1 to 100"]),
        ("  retry: {jitter: 1}\n", &["callbacks.retry.jitter", "no such key"]),
        ("  backend: redis\n", &["callbacks.backend", "redis"]),
        ("  topic: 'a b'\n", &["callbacks.topic"]),
    ] {
        world.callbacks(lines);
        world.home.run("serve").exits(78).says(parts);
    }
    world
        .configure("callbacks: {payment_success_url: 'http://10.1.2.3/', hmac_secret: env:NOPE}\n");
    world.home.run("serve").exits(78).says(&["callbacks.hmac_secret", "NOPE is not set"]);
    world.configure("callbacks: {payment_success_url: 'http://10.1.2.3/'}\n");
    world.home.run("serve").exits(78).says(&["callbacks cannot be set up", "egress.allow"]);
}

#[test]
fn the_environment_of_the_original_is_read_and_secrets_are_not_shown() {
    let world = World::new(On::Sqlite);
    Ran::of(world.home.command().env("CALLBACK_TIMEOUT", "never").arg("check"))
        .exits(78)
        .says(&["CALLBACK_TIMEOUT", "is not a duration"]);
    for lines in ["  timeout: [\n", " bad\n", "  retry: 3\n", "  unknown: 1\n"] {
        world.callbacks(lines);
        let output = world.home.run("check").exits(78);
        let said = format!("{}{}", output.out, output.err);
        assert!(!said.contains(SECRET) && !said.contains("hush"), "{said}");
    }
    world.callbacks("");
    let output = world.home.run("check").exits(0);
    let shown = output.out;
    assert!(shown.contains("callbacks.hmac_secret"), "{shown}");
    assert!(!shown.contains(SECRET) && !shown.contains("hush"), "{shown}");
}

#[test]
fn a_short_secret_is_warned_of() {
    let mut world = World::new(On::Sqlite);
    world.configure(&format!(
        "callbacks: {{payment_success_url: '{}', hmac_secret: short}}\n",
        world.hook()
    ));
    let server = world.home.serve();
    server.running.says("fewer than 32 characters");
    server.stop();
}

#[test]
fn a_killed_server_resumes_its_webhooks() {
    let mut world = World::new(On::Sqlite);
    world.callbacks("  retry: {max_attempts: 50, initial_interval: 200ms, max_interval: 200ms}\n");
    let server = world.home.serve();
    world.answers(500);
    for n in 0..10 {
        pay(&server, &format!("evt_{n}"));
    }
    world.receiver.wait_for(10);
    let mut running = server.running;
    running.signal("KILL");
    running.wait();
    world.answers(200);
    let server = world.home.serve();
    eventually("all of them", || {
        let done = listed(&server, "?status=success");
        (done.len() == 10).then_some(())
    });
    server.stop();
}
