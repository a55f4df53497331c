//! The way of a message over real sockets.

use crate::live::house::{House, Wires, location, notification, options, silence, store, text};

async fn house() -> House {
    House::start(store(), &Wires::default(), options("n1")).await
}

#[tokio::test]
async fn a_message_goes_straight_to_a_connected_agent() {
    let house = house().await;
    let (mut agent, _, endpoint) = house.registered().await;
    let answer = house.post(&endpoint, "hello").await;
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(answer.header("ttl"), Some("600"), "{answer:?}");
    assert!(location(&answer).starts_with(&format!("{}/m/", house.url)), "{answer:?}");
    let got = notification(&mut agent).await;
    assert_eq!(text(&got), "hello");
    agent.ack(&[got.ack()]).await.expect("sent");
    silence(&mut agent).await;
}

#[tokio::test]
async fn what_was_posted_while_an_agent_was_away_comes_in_order_when_it_is_back() {
    let house = house().await;
    let (agent, id, endpoint) = house.registered().await;
    agent.close().await.expect("closed");
    for n in 0..25 {
        assert_eq!(house.post(&endpoint, &format!("message {n}")).await.status, 201);
    }
    let (mut agent, same) = house.agent(Some(id)).await;
    assert_eq!(same, id);
    for n in 0..25 {
        let got = notification(&mut agent).await;
        assert_eq!(text(&got), format!("message {n}"));
        agent.ack(&[got.ack()]).await.expect("sent");
    }
    silence(&mut agent).await;
    agent.close().await.expect("closed");
    let (mut agent, _) = house.agent(Some(id)).await;
    silence(&mut agent).await;
}

#[tokio::test]
async fn what_was_sent_and_not_acknowledged_comes_again() {
    let house = house().await;
    let (mut agent, id, endpoint) = house.registered().await;
    for n in 0..5 {
        assert_eq!(house.post(&endpoint, &format!("{n}")).await.status, 201);
    }
    for _ in 0..5 {
        notification(&mut agent).await;
    }
    drop(agent);
    let (mut agent, _) = house.agent(Some(id)).await;
    for n in 0..5 {
        assert_eq!(text(&notification(&mut agent).await), format!("{n}"));
    }
    silence(&mut agent).await;
}
