//! Pages of customers that were made for Svix: its components for React, unchanged, in a real browser. What they do is in
//! `tests/browser/svix-react.mjs`.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use posthorn_testkit::program::Home;
use posthorn_testkit::receiver::Receiver;

use crate::console::{install, packages};

/// The components, what they stand on, and what bundles them.
const COMPONENTS: [&str; 5] =
    ["svix-react@1.13.9", "svix@1.99.1", "react@18.3.1", "react-dom@18.3.1", "esbuild@0.25.12"];

fn components() -> PathBuf {
    install("svix-react", &COMPONENTS)
}

#[test]
fn the_components_for_react_show_the_portal_and_ask_the_api() {
    // Where the page is served from. Somebody else may take the port meanwhile, but seldom does.
    let site =
        TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
    let mut home = Home::new();
    home.configure(&format!(
        "dialects: {{svix: {{enabled: true}}}}\n\
         portal: {{frame_ancestors: ['http://localhost:{site}'], requests_per_second: 200}}\n"
    ));
    let server = home.serve();
    let receiver = Receiver::new(200);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/svix-react.mjs");
    let output = Command::new("node")
        .arg(script)
        .args([&server.url, &server.key, &receiver.url(""), &site.to_string()])
        .arg(components())
        .env("BROWSER_PACKAGES", packages())
        .output()
        .expect("node, which ./test installs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    server.stop();
}
