//! A customer gets messages in a real Firefox: turned on in the portal, brought by our own push service, shown by the
//! service worker. What is done is in `tests/browser/portal-push.mjs`.

use std::path::Path;
use std::process::Command;

use posthorn_testkit::program::Home;
use serde_json::json;

#[test]
fn a_customer_gets_messages_in_a_browser() {
    let mut home = Home::new();
    home.configure("push: {enabled: true}\nportal: {browsers: true}\n");
    let server = home.serve();
    server.call("POST", "/v1/tenants").json(json!({"name": "acme"})).send().with(201);
    let acme =
        |method: &str, path: &str| server.call(method, path).header("Posthorn-Tenant", "acme");
    acme("PUT", "/v1/topics/orders").json(json!({})).send().with(200);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/portal-push.mjs");
    let output = Command::new("node")
        .arg(script)
        .args([&server.url, &server.key])
        .arg(home.path().join("firefox"))
        .output()
        .expect("node, which ./test installs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    // Delivered means that the browser's service has it.
    let counts = acme("GET", "/v1/stats").send().expect(200);
    assert_eq!((&counts["delivered"], &counts["dead"]), (&json!(1), &json!(0)), "{counts}");
    let made = acme("GET", "/v1/subscriptions").send().expect(200);
    assert_eq!(made["items"][0]["destination"]["type"], "push");
    assert_eq!(made["items"][0]["description"], "Firefox");
}
