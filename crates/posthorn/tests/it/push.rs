//! Web Push in the same process.

use posthorn::engine::Error as EngineError;
use posthorn::{Error, Posthorn};

#[tokio::test(flavor = "multi_thread")]
async fn routes_are_there_when_they_were_asked_for() {
    let without = Posthorn::builder().in_memory().build().await.expect("starts");
    assert!(!without.push_routes().has_routes());
    without.shutdown().await;
    let posthorn = Posthorn::builder().in_memory().push("https://push.example/").build().await;
    let posthorn = posthorn.expect("starts");
    assert!(posthorn.push_routes().has_routes());
    let foreign = posthorn::engine::PushInput {
        endpoint: "https://elsewhere.example/wpush/v1/x".to_owned(),
        ..posthorn::engine::PushInput::default()
    };
    let foreign = posthorn::engine::DestinationInput::Push(foreign);
    let error = posthorn.subscribe(posthorn::Subscription::to(foreign)).await.expect_err("refused");
    assert!(matches!(error, Error::Engine(EngineError::Push(_))), "{error}");
    posthorn.shutdown().await;
}
