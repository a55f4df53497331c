//! Changing the seal key, as an operator does it.

use std::path::Path;

use posthorn_testkit::program::{Home, Server};

fn keys_in(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).expect("a key file");
    text.lines().map(str::to_owned).collect()
}

#[track_caller]
fn delivers(server: &Server, body: &str) {
    let (mut listener, _) = server.listen("--subscribe orders --count 1 --json");
    server.ask(&["send", "orders", "order.created", body]);
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
    assert!(listener.stdout().contains("\"verified\":true"), "{}", listener.stdout());
}

#[test]
fn the_seal_key_is_changed_without_losing_a_secret_or_a_delivery() {
    let (mut home, server) = Home::new().served();
    for index in 0..3 {
        let url = format!("http://127.0.0.1:9/{index}");
        server.ask(&["subscriptions", "create", &url]);
    }
    let file = home.data().join("seal.key");
    let old = keys_in(&file);
    assert_eq!(old.len(), 1);

    // A finish before the server has the new key removes nothing.
    home.run("seal rotate --begin posthorn-data/seal.key").exits(0);
    let both = keys_in(&file);
    assert_eq!((both.len(), &both[1]), (2, &old[0]));
    home.run("seal rotate --begin posthorn-data/seal.key").exits(0);
    assert_eq!(keys_in(&file), both, "beginning twice is beginning once");
    let finish = ["seal", "rotate", "--finish", "posthorn-data/seal.key"];
    server.run(&finish).exits(78).says(&["first key of the file", "nothing was removed"]);
    assert_eq!(keys_in(&file), both);
    server.stop();

    // Both keys open; the new one seals.
    let server = home.serve();
    delivers(&server, "{\"n\": 1}");
    let done = server.ask(&finish);
    assert_eq!((&done["remaining"], &done["total"]), (&0.into(), &3.into()), "{done}");
    assert_eq!(done["resealed"], 3, "{done}");
    assert_eq!(keys_in(&file), both[..1]);
    assert_eq!(keys_in(&home.data().join("seal.key.former")), old);
    // The key of endpoints that belongs to the old one stays, for good.
    let shown = home.run("push show-endpoint-keys posthorn-data/seal.key.former").exits(0);
    let kept = keys_in(&home.data().join("endpoint.keys"));
    assert!(kept.len() == 1 && kept[0].starts_with("phek_"), "{kept:?}");
    assert_eq!(shown.out.trim_end(), kept[0]);
    let nothing = server.ask("seal rotate");
    assert_eq!(nothing["resealed"], 0, "{nothing}");
    server.stop();

    // Nothing needs the old key any more, and nothing can be done with it.
    let server = home.serve();
    delivers(&server, "{\"n\": 2}");
    server.stop();
    std::fs::write(&file, format!("{}\n", old[0])).expect("written");
    let stale = home.run("serve");
    assert_ne!(stale.code, Some(0));
    stale.says(&["cannot decrypt"]);
}
