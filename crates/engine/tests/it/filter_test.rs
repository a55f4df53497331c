//! Filters that are tried out with an event, before either is kept.

use posthorn_domain::{EventId, Filter, SubscriptionId, TenantId, Timestamp};
use posthorn_engine::{
    Engine, Error, FilterOutcome, NewSubscription, Options, Publish, Quotas, TestedEvent,
    TestedFilter,
};
use serde_json::{Value, json};

use crate::house::{House, TENANT, publish, subscribe, topic};

fn given(filter: &Value) -> TestedFilter {
    TestedFilter::Given(serde_json::from_value(filter.clone()).expect("a filter"))
}

fn unpublished(payload: &str) -> TestedEvent {
    TestedEvent::Given(Box::new(publish(payload, None)))
}

async fn test(engine: &Engine, filter: &Value, payload: &str) -> FilterOutcome {
    engine.test_filter(TENANT, given(filter), unpublished(payload)).await.expect("an outcome")
}

#[tokio::test(start_paused = true)]
async fn each_group_that_does_not_match_has_its_reason() {
    let (house, engine) = House::open().await;
    let filter = json!({"any_of": [
        {"topics": ["invoices"]},
        {"attributes": {"region": ["eu", "us"]}},
        {"payload": {"test": {"path": "/total", "op": "in", "value": [1, 2]}}},
    ]});
    let outcome = test(&engine, &filter, r#"{"total": 3}"#).await;
    assert!(!outcome.matches() && outcome.cost > 0, "{outcome:?}");
    assert_eq!(
        outcome.reasons,
        [
            "the topic is not one of the filter's",
            "attribute `region` is none of the filter's values or is missing",
            "the payload does not satisfy the filter's condition",
        ]
    );
    let outcome = test(&engine, &filter, r#"{"total": 2}"#).await;
    assert!(outcome.matches() && outcome.cost > 0, "{outcome:?}");
    let nothing = test(&engine, &json!({"any_of": []}), "{}").await;
    assert_eq!(nothing.reasons, ["the filter has no groups and matches nothing"]);
    assert_eq!(house.counts().await.events, 0, "nothing is kept");
}

#[tokio::test(start_paused = true)]
async fn the_filter_of_a_subscription_is_tested_with_what_was_published() {
    let (house, engine) = House::open().await;
    topic(&engine).await;
    let event = engine.publish(TENANT, publish(r#"{"n": 1}"#, None)).await.expect("accepted").id;
    // Made after the event: whether it would have matched is what is asked.
    let view = subscribe(&engine, "https://all/", json!({})).await;
    let of = TestedFilter::Of(view.subscription.id);
    let stored = TestedEvent::Stored(event);
    let outcome = engine.test_filter(TENANT, of.clone(), stored.clone()).await.expect("tested");
    assert!(outcome.matches(), "{outcome:?}");
    let its_filter = TestedFilter::Given(view.subscription.filter.clone());
    let same = engine.test_filter(TENANT, its_filter, stored.clone()).await.expect("tested");
    assert_eq!(same, outcome);

    // Neither is anybody else's.
    let other = engine.create_tenant("other".to_owned()).await.expect("a tenant").id;
    let missing = async |tenant: TenantId, filter: TestedFilter, event: TestedEvent| match engine
        .test_filter(tenant, filter, event)
        .await
    {
        Err(Error::NotFound(what)) => what,
        outcome => panic!("{outcome:?}"),
    };
    let everything = TestedFilter::Given(Filter::everything());
    assert_eq!(missing(other, of.clone(), unpublished("{}")).await, "subscription");
    assert_eq!(missing(other, everything.clone(), stored.clone()).await, "event");
    let now = Timestamp::from_millis(1);
    let nobody = TestedFilter::Of(SubscriptionId::new(now, 1));
    assert_eq!(missing(TENANT, nobody, stored).await, "subscription");
    let never = TestedEvent::Stored(EventId::new(now, 1));
    assert_eq!(missing(TENANT, everything, never).await, "event");
    assert_eq!(house.counts().await.events, 1);
}

#[tokio::test(start_paused = true)]
async fn a_family_that_is_turned_off_is_a_reason() {
    let (_house, engine) = House::open().await;
    topic(&engine).await;
    let event = publish("{}", None);
    let family = event.event_type.as_str().split('.').next().unwrap_or_default().to_owned();
    let policy = json!({"request": {"families": {family.as_str(): "off"}}});
    let view = subscribe(&engine, "https://quiet/", policy).await;
    let asked = TestedEvent::Given(Box::new(event));
    let of = TestedFilter::Of(view.subscription.id);
    let outcome = engine.test_filter(TENANT, of, asked).await.expect("tested");
    assert_eq!(
        outcome.reasons,
        [format!("its policy turns the family `{family}` off (request.families)")]
    );
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_kept_is_refused() {
    let (_house, engine) = House::open().await;
    let refused = async |filter: &Value, event: Publish| {
        let event = TestedEvent::Given(Box::new(event));
        engine.test_filter(TENANT, given(filter), event).await.expect_err("refused")
    };
    let many: Vec<String> = (0..101).map(|n| n.to_string()).collect();
    for filter in [
        json!({"any_of": [{"attributes": {"a": []}}]}),
        json!({"any_of": [{"attributes": {"a": many}}]}),
        json!({"any_of": [{"payload": {"test": {"path": "/a", "op": "in", "value": many}}}]}),
    ] {
        let problem = refused(&filter, publish("{}", None)).await;
        assert!(matches!(problem, Error::Filter(_)), "{problem}");
    }
    let everything = json!({"any_of": [{}]});
    let large = format!("\"{}\"", "x".repeat(Options::default().payload_max));
    let problem = refused(&everything, publish(&large, None)).await;
    assert!(matches!(problem, Error::PayloadTooLarge { .. }), "{problem}");
    let mut event = publish("{}", None);
    event.attributes.insert("a".repeat(101), String::new());
    let problem = refused(&everything, event).await;
    assert!(matches!(problem, Error::Event { field: "attributes", .. }), "{problem}");
}

/// A filter that was written down when more was allowed is tested as events are matched with it: aside,
/// and not beyond the limit.
#[tokio::test(start_paused = true)]
async fn the_limit_of_cost_holds() {
    let house = House::new();
    let generous = house.engine_with(1, Options::default()).await;
    topic(&generous).await;
    let tests: Vec<Value> = (0..60)
        .map(|n| json!({"test": {"path": "/text", "op": "contains", "value": format!("x{n}")}}))
        .collect();
    let filter = json!({"any_of": [{"payload": {"any": tests}}]});
    let new = NewSubscription {
        destination: "https://all/".into(),
        filter: Some(serde_json::from_value(filter.clone()).expect("a filter")),
        ..NewSubscription::default()
    };
    let (view, _) = generous.create_subscription(TENANT, new).await.expect("a subscription");
    let of = TestedFilter::Of(view.subscription.id);
    let large = || unpublished(&json!({"text": "ab".repeat(60_000)}).to_string());
    let outcome = generous.test_filter(TENANT, of.clone(), large()).await.expect("tested");
    assert!(!outcome.matches() && outcome.cost > 5 << 20, "{outcome:?}");

    let quotas = Quotas { match_cost_per_event: 5 << 20, ..Quotas::default() };
    let strict = house.engine_with(2, Options { quotas, ..Options::default() }).await;
    let problem = strict.test_filter(TENANT, of, large()).await.expect_err("too costly");
    assert!(matches!(problem, Error::MatchingTooCostly { limit } if limit == 5 << 20));
    let problem = strict.test_filter(TENANT, given(&filter), large()).await.expect_err("refused");
    assert!(matches!(problem, Error::Filter(_)), "{problem}");
}
