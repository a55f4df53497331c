//! The benchmark of the Svix API.

use crate::bench;

#[test]
fn no_message_of_any_application_is_lost() {
    let few = ["--applications", "20", "--publishers", "4", "--rate", "40"];
    let report = bench(&[&["svix"], &few[..]].concat());
    let number = |name: &str| report[name].as_f64().expect("a number");
    assert_eq!(["lost", "duplicates", "refused"].map(number), [0.0; 3], "{report}");
    assert_eq!((number("applications"), number("endpoints")), (20.0, 3.0), "{report}");
    let rates = ["deliveries_per_s", "native_per_s", "ratio", "creates_per_s", "p99_ratio"];
    for figure in rates.into_iter().chain(["create_p99_ms", "one_create_p99_ms", "rss_mib"]) {
        assert!(number(figure) > 0.0, "{figure} of {report}");
    }
}
