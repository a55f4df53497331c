//! Limits of the configuration, at the real program.

use posthorn_testkit::program::Home;
use posthorn_testkit::wait::until;

fn configured(more: &str) -> Home {
    let home = Home::new();
    home.edit("admission: {disk_warn_percent: 100, disk_refuse_percent: 100}\n", more);
    home
}

#[test]
fn a_disk_above_its_watermark_takes_nothing_in_and_says_so() {
    let (_home, server) = configured(
        "admission: {disk_warn_percent: 1, disk_refuse_percent: 1, disk_check_interval: 100ms}\n",
    )
    .served();
    until("a look at the disk", || server.metrics().contains("posthorn_disk_used_ratio "));
    let used = server.metric("posthorn_disk_used_ratio ");
    if used < 0.01 {
        // A disk as empty as this is above no watermark that can be set.
        return;
    }
    until("the word of it", || {
        server.get("/readyz").body.contains("\"refusing_publishes\":\"disk_full\"")
    });
    server.get("/readyz").expect(200);
    server.run("send orders order.created {}").fails().says(&["disk"]);
    let metrics = server.metrics();
    let counted = "posthorn_admission_refused_total{reason=\"disk_full\"}";
    assert!(metrics.contains(counted), "{metrics}");
    server.running.says("nearly full");
    server.stop();
}

#[test]
fn wrong_keys_from_one_address_are_told_to_stop_by_default() {
    let (_home, server) = Home::new().served();
    let get = |key: &str| server.open("GET", "/v1/events").key(key).send();
    get("ph_wrong").expect(401);
    let answers: Vec<_> = (0..11).map(|_| get("ph_wrong")).collect();
    let last = answers.last().expect("eleven");
    assert_eq!(last.expect(429)["code"], "too_many_failures");
    assert!(last.header("retry-after").is_some(), "{last:?}");
    get(&server.key).expect(200);
    server.stop();
}

#[test]
fn limits_that_make_no_sense_are_named() {
    let home =
        configured("admission: {disk_refuse_percent: 0, commit_interval: 0s, key_rates: 5}\n");
    home.run("check").exits(78).says(&["admission.key_rates"]);
}
