//! Requests leave from the address that the operator names, and from no other machine's.

use std::net::TcpListener;

use posthorn_testkit::program::Home;

#[test]
fn a_receiver_sees_the_source_address_and_a_wrong_one_stops_the_start() {
    let (home, listener) = (Home::new(), TcpListener::bind("127.0.0.1:0").expect("a port"));
    home.edit(
        "egress: {allow: [127.0.0.0/8]}",
        "egress: {allow: [127.0.0.0/8], source: [127.0.0.2]}",
    );
    let (home, server) = home.served();
    server.ask("topics put orders");
    let url = format!("http://{}/", listener.local_addr().expect("bound"));
    server.ask(&["subscriptions", "create", &url]);
    server.ask("send orders order.created 1");
    let (_tcp, peer) = listener.accept().expect("a caller");
    assert_eq!(peer.ip().to_string(), "127.0.0.2");
    server.stop();

    home.edit("source: [127.0.0.2]", "source: [192.0.2.1]");
    for command in ["serve", "check"] {
        let refused = home.run(command).exits(78);
        refused.says(&["egress.source", "192.0.2.1", "address of this machine"]);
    }
}
