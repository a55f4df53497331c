use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

use super::{
    AttributeNames, Candidate, Cost, Filter, FilterError, Glob, Group, Matching, Pointer, snake,
};
use crate::{Event, EventId, EventType, TenantId, Timestamp, TopicName};

fn event(event_type: &str, attributes: &[(&str, &str)], payload: &str) -> Event {
    Event {
        id: EventId::new(Timestamp::from_millis(1), 1),
        tenant: TenantId::DEFAULT,
        topic: TopicName::new("orders").expect("a name"),
        event_type: EventType::new(event_type).expect("a type"),
        attributes: attributes
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect::<BTreeMap<_, _>>(),
        key: None,
        content_type: "application/json".to_owned(),
        payload: Bytes::from(payload.to_owned()),
        accepted_at: Timestamp::from_millis(1),
        publisher_id: None,
        deliver_at: None,
        retention: None,
        expunged_at: None,
        trace: None,
    }
}

#[track_caller]
fn check(filter: &str, event: &Event, wanted: bool) {
    let filter: Filter = serde_json::from_str(filter).expect("a filter");
    filter.validate().expect("within limits");
    let candidate = Candidate::new(event);
    assert_eq!(filter.wants(&candidate), wanted, "{filter:?}");
    assert_eq!(filter.explain(&candidate).is_none(), wanted, "explanation must agree");
}

#[test]
fn globs_match_whole_texts() {
    for (pattern, text, fits) in [
        ("payment.*", "payment.succeeded", true),
        ("payment.*", "payments", false),
        ("*", "", true),
        ("*.created", "order.created", true),
        ("a*b*c", "a-b-b-c", true),
        ("a*b*c", "a-c-b", false),
        ("ab*ba", "aba", false),
        ("exact", "exact", true),
        ("exact", "exactly", false),
        ("*mid*", "in the middle", true),
    ] {
        assert_eq!(Glob::new(pattern).matches(text), fits, "{pattern} {text}");
    }
}

#[test]
fn groups_are_or_ed_and_their_conditions_and_ed() {
    let e = event("order.created", &[("region", "eu"), ("vip", "yes")], r#"{"total": 12.5}"#);
    check(r#"{"any_of":[]}"#, &e, false);
    check(r#"{"any_of":[{}]}"#, &e, true);
    check(r#"{"any_of":[{"types":["order.*"],"attributes":{"region":"eu"}}]}"#, &e, true);
    check(r#"{"any_of":[{"types":["order.*"],"attributes":{"region":"us"}}]}"#, &e, false);
    check(r#"{"any_of":[{"types":["x"]},{"attributes":{"vip":"*"}}]}"#, &e, true);
    check(r#"{"any_of":[{"topics":["billing"]}]}"#, &e, false);
}

#[test]
fn missing_attributes_and_name_styles_are_knobs() {
    let e = event("t", &[("objectType", "zaak")], "{}");
    check(r#"{"any_of":[{"attributes":{"object_type":"zaak"}}]}"#, &e, false);
    check(
        r#"{"any_of":[{"attributes":{"object_type":"zaak"}}],"attribute_names":"camel_or_snake"}"#,
        &e,
        true,
    );
    check(r#"{"any_of":[{"attributes":{"other":"1"}}]}"#, &e, false);
    check(r#"{"any_of":[{"attributes":{"other":"1"}}],"missing_attribute":"ignore"}"#, &e, true);
    check(r#"{"any_of":[{"attributes":{"other":"*"}}]}"#, &e, false);
}

#[test]
fn names_in_either_style_find_the_first_attribute_that_is_the_same() {
    let e = event("t", &[("objectType", "a"), ("object_type", "b"), ("_X", "c")], "{}");
    let style = |name: &str, value: &str| {
        format!(
            r#"{{"any_of":[{{"attributes":{{"{name}":"{value}"}}}}],"attribute_names":"camel_or_snake"}}"#
        )
    };
    for name in ["objectType", "object_type", "Object_Type", "ObjectType"] {
        check(&style(name, "a"), &e, true);
        check(&style(name, "b"), &e, false);
    }
    check(&style("_x", "c"), &e, true);
    check(&style("objecttype", "a"), &e, false);
    for (name, same) in [("objectType", "object_type"), ("ABC", "a_b_c"), ("a_B", "a_b"), ("", "")]
    {
        assert_eq!(snake(name), same);
    }
}

/// As many conditions as are allowed on names in camel case, many times over: what used to look at
/// every attribute anew for every condition.
#[test]
fn large_filters_in_either_style_cost_one_look_for_each_condition() {
    let attributes: Vec<(String, String)> = (0..64)
        .map(|n| (format!("attributeNumber{n}{}", "X".repeat(60)), "1".to_owned()))
        .collect();
    let pairs: Vec<(&str, &str)> =
        attributes.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let e = event("t", &pairs, "{}");
    let mut group = Group::default();
    group
        .attributes
        .extend(attributes.iter().map(|(name, value)| (name.clone(), value.as_str().into())));
    let filter = Filter {
        any_of: vec![group; 15],
        attribute_names: AttributeNames::CamelOrSnake,
        ..Filter::everything()
    };
    filter.validate().expect("within the limits");
    let candidate = Candidate::new(&e);
    for _ in 0..1_000 {
        assert!(filter.wants(&candidate));
    }
    assert_eq!(candidate.snaked.get().map(HashMap::len), Some(64), "made once");
}

#[test]
fn all_conditions_of_a_filter_are_counted() {
    let many = |count: usize| -> Filter {
        let mut group = Group::default();
        group.attributes.extend((0..count).map(|n| (format!("a{n}"), "*".into())));
        Filter { any_of: vec![group.clone(), group], ..Filter::everything() }
    };
    many(500).validate().expect("a thousand");
    assert_eq!(many(501).validate(), Err(FilterError::TooManyConditions(1_002)));
}

/// A group with these values of the attribute `region`.
fn regions(values: &str) -> String {
    format!(r#"{{"any_of":[{{"attributes":{{"region":{values}}}}}]}}"#)
}

#[test]
fn an_attribute_is_one_of_several_values() {
    let e = event("t", &[("region", "eu"), ("objectType", "zaak")], "{}");
    for (values, wanted) in [
        (r#""eu""#, true),
        (r#"["eu"]"#, true),
        (r#"["us","eu"]"#, true),
        (r#"["us","asia"]"#, false),
        (r#"["us","*"]"#, true),
        (r#"["e*"]"#, false),
        (r#"["EU","eu "]"#, false),
    ] {
        check(&regions(values), &e, wanted);
    }
    let list = r#""any_of":[{"attributes":{"object_type":["x","zaak"],"gone":["1","*"]}}]"#;
    let knobs = r#""attribute_names":"camel_or_snake","missing_attribute""#;
    check(&format!(r#"{{{list},{knobs}:"ignore"}}"#), &e, true);
    check(&format!(r#"{{{list},{knobs}:"mismatch"}}"#), &e, false);
}

#[test]
fn values_are_written_down_as_they_were_given() {
    for values in [r#""eu""#, r#"["eu"]"#, r#"["us","eu"]"#] {
        let filter: Filter = serde_json::from_str(&regions(values)).expect("a filter");
        let json = serde_json::to_value(&filter).expect("JSON");
        let given: serde_json::Value = serde_json::from_str(values).expect("JSON");
        assert_eq!(json["any_of"][0]["attributes"]["region"], given);
        assert_eq!(serde_json::from_value::<Filter>(json).expect("its own JSON"), filter);
    }
    for wrong in ["1", "null", "{}", r#"["eu",1]"#, r#"[["eu"]]"#] {
        let document: serde_json::Value = serde_json::from_str(&regions(wrong)).expect("JSON");
        let fault = crate::plain::read::<Filter>(&document).expect_err(wrong);
        assert!(fault.path.starts_with("any_of[0].attributes.region"), "{fault}");
        assert!(fault.problem.contains("a text"), "{fault}");
    }
}

#[test]
fn a_mismatch_says_whether_one_value_or_several_were_possible() {
    let e = event("t", &[("region", "eu")], "{}");
    let why = |values: &str| {
        let filter: Filter = serde_json::from_str(&regions(values)).expect("a filter");
        filter.explain(&Candidate::new(&e)).expect("no match")[0].to_string()
    };
    assert_eq!(why(r#""us""#), "attribute `region` differs or is missing");
    let several = "attribute `region` is none of the filter's values or is missing";
    assert_eq!(why(r#"["us","asia"]"#), several);
}

#[test]
fn lists_of_values_are_bounded_and_each_value_counts() {
    let many = |count: usize| -> Filter {
        let values: Vec<String> = (0..count).map(|n| format!("{n:04}")).collect();
        let values = serde_json::to_string(&values).expect("JSON");
        serde_json::from_str(&regions(&values)).expect("a filter")
    };
    many(100).validate().expect("a hundred");
    let problem = many(101).validate().expect_err("too many").to_string();
    assert_eq!(problem, "attribute `region` may have at most 100 values, 101 were given");
    let problem = many(0).validate().expect_err("none").to_string();
    assert!(problem.contains("`region` is empty"), "{problem}");
    assert_eq!(many(100).cost().fixed - many(50).cost().fixed, 50 * (32 + 4));
    let groups = |count: usize| Filter {
        any_of: vec![many(100).any_of.remove(0); count],
        ..Filter::everything()
    };
    groups(10).validate().expect("a thousand conditions");
    assert_eq!(groups(11).validate(), Err(FilterError::TooManyConditions(1_100)));
}

#[test]
fn the_test_in_takes_a_list_of_at_most_a_hundred_values() {
    let of = |value: &str| -> Filter {
        let test = format!(r#"{{"not":{{"test":{{"path":"/a","op":"in","value":{value}}}}}}}"#);
        serde_json::from_str(&format!(r#"{{"any_of":[{{"payload":{test}}}]}}"#)).expect("a filter")
    };
    let list = |count: usize| of(&format!("[{}]", vec!["1"; count].join(",")));
    list(100).check_size(1_000, u64::MAX).expect("a hundred");
    list(0).check_size(1_000, u64::MAX).expect("holds for nothing");
    let problem = list(101).check_size(1_000, u64::MAX).expect_err("too many").to_string();
    assert_eq!(problem, "the test `in` of `/a` may have at most 100 values, 101 were given");
    for wrong in ["null", "1", r#""a""#] {
        let problem = of(wrong).check_size(1_000, u64::MAX).expect_err("no list").to_string();
        assert!(problem.contains("needs a list"), "{problem}");
    }
    // Those that were stored before go on.
    list(101).validate().expect("read");
    of("1").validate().expect("read");
}

#[test]
fn payload_conditions_look_inside() {
    let e = event(
        "t",
        &[],
        r#"{"total": 12.5, "tags": ["a", "b"], "who": {"name": "Ada"}, "n": null}"#,
    );
    for (condition, holds) in [
        (r#"{"test":{"path":"/total","op":"gt","value":12}}"#, true),
        (r#"{"test":{"path":"/total","op":"le","value":12}}"#, false),
        (r#"{"test":{"path":"/who/name","op":"prefix","value":"A"}}"#, true),
        (r#"{"test":{"path":"/tags","op":"contains","value":"b"}}"#, true),
        (r#"{"test":{"path":"/tags/0","op":"in","value":["x","a"]}}"#, true),
        (r#"{"test":{"path":"/n","op":"exists"}}"#, true),
        (r#"{"test":{"path":"/gone","op":"exists"}}"#, false),
        (r#"{"test":{"path":"/gone","op":"ne","value":1}}"#, false),
        (r#"{"test":{"path":"/who/name","op":"gt","value":5}}"#, false),
        (r#"{"not":{"test":{"path":"/total","op":"eq","value":12.5}}}"#, false),
        (r#"{"all":[]}"#, true),
        (r#"{"any":[]}"#, false),
    ] {
        check(&format!(r#"{{"any_of":[{{"payload":{condition}}}]}}"#), &e, holds);
    }
    let not_json = event("t", &[], "not json");
    check(r#"{"any_of":[{"payload":{"all":[]}}]}"#, &not_json, false);
}

#[test]
fn oversized_filters_and_bad_paths_are_refused() {
    let groups = vec!["{}"; 65].join(",");
    let filter: Filter =
        serde_json::from_str(&format!(r#"{{"any_of":[{groups}]}}"#)).expect("shape");
    assert!(filter.validate().is_err());
    let mut nested = r#"{"test":{"path":"/a","op":"exists"}}"#.to_owned();
    for _ in 0..8 {
        nested = format!(r#"{{"not":{nested}}}"#);
    }
    let filter: Filter =
        serde_json::from_str(&format!(r#"{{"any_of":[{{"payload":{nested}}}]}}"#)).expect("shape");
    assert!(filter.validate().is_err());
    assert!(
        serde_json::from_str::<Filter>(
            r#"{"any_of":[{"payload":{"test":{"path":"a","op":"eq"}}}]}"#
        )
        .is_err()
    );
    assert!(serde_json::from_str::<Filter>(r#"{"any_of":[{"typo":[]}]}"#).is_err());
}

/// Filters of every kind of test, and documents that make them work hardest.
fn costly() -> (Vec<Filter>, Vec<Event>) {
    let conditions = [
        r#"{"test":{"path":"/text","op":"contains","value":"abb"}}"#,
        r#"{"test":{"path":"/list","op":"contains","value":2}}"#,
        r#"{"test":{"path":"/list","op":"contains","value":{"a":["b",null]}}}"#,
        r#"{"test":{"path":"/text","op":"in","value":["a","b",1,{"c":[]}]}}"#,
        r#"{"test":{"path":"","op":"eq","value":{"list":[1,1,1],"text":"x"}}}"#,
        r#"{"not":{"any":[{"test":{"path":"/text","op":"prefix","value":"abab"}},
            {"test":{"path":"/missing/0/x","op":"exists"}}]}}"#,
    ];
    let filter = |condition: &str| -> Filter {
        let group = format!(
            r#"{{"topics":["orders"],"types":["*"],"attributes":{{"a":"*","b":["2","3"]}},"payload":{condition}}}"#
        );
        serde_json::from_str(&format!(r#"{{"any_of":[{group},{group}]}}"#)).expect("a filter")
    };
    let filters = conditions.iter().map(|condition| filter(condition)).collect();
    let ones = vec!["1"; 5_000].join(",");
    let payload = format!(r#"{{"text":"{}","list":[{ones}]}}"#, "ab".repeat(5_000));
    let documents = [payload.as_str(), r#"{"text":1,"list":[]}"#, "[]", "not JSON"];
    (filters, documents.iter().map(|text| event("t", &[("a", "1"), ("b", "3")], text)).collect())
}

#[test]
fn nothing_costs_more_than_was_told_beforehand() {
    let (filters, events) = costly();
    for e in &events {
        let candidate = Candidate::new(e);
        let matching = Matching::new(&candidate);
        for filter in &filters {
            matching.wants(filter);
        }
        let told: Cost = filters.iter().map(Filter::cost).sum();
        let (spent, told) = (candidate.meter().spent(), told.of(e.payload.len()));
        assert!(spent > 0 && spent <= told, "{spent} of {told}");
    }
}

#[test]
fn matching_ends_soon_after_it_has_cost_too_much() {
    let (filters, events) = costly();
    let limit = 50_000;
    let candidate = Candidate::metered(&events[0], limit);
    let matching = Matching::new(&candidate);
    for _ in 0..1_000 {
        for filter in &filters {
            matching.wants(filter);
        }
    }
    assert!(candidate.meter().is_spent());
    // Parsing it is one step; what comes after is told before it is done.
    let parsed = 4 * events[0].payload.len() as u64;
    let after = candidate.meter().spent() - parsed - limit;
    assert!(after < 1_000 * 6 * 1_000, "{after}");
}

#[test]
fn a_filter_that_could_cost_an_event_everything_is_not_taken() {
    let contains = |count: usize| -> Filter {
        let test = r#"{"test":{"path":"/text","op":"contains","value":"x"}}"#;
        let group = format!(r#"{{"payload":{{"any":[{}]}}}}"#, vec![test; 62].join(","));
        let groups = vec![group; count].join(",");
        serde_json::from_str(&format!(r#"{{"any_of":[{groups}]}}"#)).expect("a filter")
    };
    contains(2).check_size(256 << 10, 64 << 20).expect("fits");
    let problem = contains(3).check_size(256 << 10, 64 << 20).expect_err("costs too much");
    assert!(
        matches!(problem, FilterError::TooCostly { .. }) && problem.to_string().contains("quotas")
    );
    contains(15).check_size(16 << 10, 64 << 20).expect("payloads are small");
    contains(15).validate().expect("one that is there already goes on");
}

#[test]
fn texts_of_filters_are_bounded() {
    let long = "x".repeat(5_000);
    for (filter, what) in [
        (format!(r#"{{"any_of":[{{"types":["{long}"]}}]}}"#), "types"),
        (format!(r#"{{"any_of":[{{"attributes":{{"{long}":"1"}}}}]}}"#), "name"),
        (format!(r#"{{"any_of":[{{"attributes":{{"a":"{long}"}}}}]}}"#), "value"),
        (
            format!(
                r#"{{"any_of":[{{"payload":{{"not":{{"test":{{"path":"/{long}","op":"exists"}}}}}}}}]}}"#
            ),
            "path",
        ),
        (
            format!(
                r#"{{"any_of":[{{"payload":{{"test":{{"path":"","op":"eq","value":"{}"}}}}}}]}}"#,
                long.repeat(30)
            ),
            "a filter",
        ),
    ] {
        let filter: Filter = serde_json::from_str(&filter).expect("a filter");
        let problem = filter.check_size(1_000, u64::MAX).expect_err(what);
        assert!(problem.to_string().contains(what), "{problem}");
    }
    Filter::everything().check_size(1_000, 1_000).expect("costs nearly nothing");
}

#[test]
fn places_are_found_as_json_pointers_have_it() {
    let document: serde_json::Value =
        serde_json::from_str(r#"{"a":[1,{"b/c":2,"d~e":3}],"":{"":4},"0":5,"x":{"01":6}}"#)
            .expect("JSON");
    for path in [
        "",
        "/",
        "//",
        "/a",
        "/a/0",
        "/a/1/b~1c",
        "/a/1/d~0e",
        "/a/00",
        "/a/+1",
        "/a/2",
        "/a/-",
        "/0",
        "/x/01",
        "/a/1/~01",
        "/a/0/0",
        "/nothing",
        "/a/18446744073709551616",
    ] {
        let pointer: Pointer = serde_json::from_value(path.into()).expect("a pointer");
        assert_eq!(pointer.find(&document), document.pointer(path), "{path}");
    }
}

#[test]
fn the_reserved_topic_must_be_named() {
    let told = Event { topic: TopicName::operational(), ..event("delivery.dead", &[], "{}") };
    check(r#"{"any_of": [{}]}"#, &told, false);
    check(r#"{"any_of": [{"types": ["delivery.*"]}]}"#, &told, false);
    check(r#"{"any_of": [{"topics": ["orders"]}]}"#, &told, false);
    check(r#"{"any_of": [{"topics": ["orders", "posthorn.operational"]}]}"#, &told, true);
    check(r#"{"any_of": [{}, {"topics": ["posthorn.operational"]}]}"#, &told, true);
    let named = r#"{"any_of": [{"topics": ["posthorn.operational"], "types": ["job.*"]}]}"#;
    check(named, &told, false);
    let filter: Filter = serde_json::from_str(named).expect("a filter");
    assert!(filter.names_reserved() && !Filter::everything().names_reserved());
}
