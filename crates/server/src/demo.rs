//! `posthorn demo`: what Posthorn does, in a quarter of a minute, on a bare machine.
//!
//! The server is this same program as a child process, so that it can be killed for real. The
//! receivers and the publisher are in this process and use nothing but the HTTP API.

mod child;
mod live;
mod stage;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Access, Call, Client};
use crate::exit::{Code, Failure};
use crate::terminal::{self, Paint};
use child::Home;
use live::Live;
use stage::Actor;

/// Events before and after the receivers go down.
const CALM_EVENTS: usize = 3;
const STORM_EVENTS: usize = 20;
/// How long deliveries may take; the schedule of the demo needs a few seconds.
const PATIENCE: Duration = Duration::from_secs(25);
/// How often the counts are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// Between two events, so that it can be seen what belongs together.
const BETWEEN: Duration = Duration::from_millis(400);
/// The server is left alone this long before it is killed, so that attempts are under way.
const BEFORE_KILL: Duration = Duration::from_millis(300);

/// Show what Posthorn does: no configuration, no network, a quarter of a minute
///
/// Starts a server on a temporary directory and two receivers, of which one fails at first, kills
/// the server in the middle, and counts whether anything was lost.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Keep the data directory
    #[arg(long)]
    keep: bool,
    /// Then keep the server running with live traffic, to be looked at in the console; Ctrl-C ends it
    #[arg(long)]
    console: bool,
}

/// Runs it.
pub async fn run(args: &Args, json: bool) -> anyhow::Result<()> {
    let played = tokio::select! {
        played = Box::pin(play(args, json)) => played?,
        signal = crate::lifecycle::any_signal() => {
            signal?;
            return Err(Failure::new(Code::Interrupted, "the demo was interrupted").into());
        }
    };
    match played {
        Some(live) => Box::pin(live.run()).await,
        None => Ok(()),
    }
}

/// What is left to look at, if somebody wants to.
async fn play(args: &Args, json: bool) -> anyhow::Result<Option<Live>> {
    let paint = Paint::stderr();
    let say = |text: String| terminal::note(format!("  {text}"));
    let act = |title: &str| terminal::note(format!("\n{}", paint.bold(title)));

    act("1. A server and two receivers");
    let home = Home::new()?;
    let mut server = home.start().await?;
    say(format!("posthorn serve, process {}, data in {}", server.pid(), home.data().display()));
    let client = client(&server)?;
    let calm = Actor::start("calm", 0).await?;
    let moody = Actor::start("moody", 2).await?;
    client.call(Call::new(http::Method::PUT, "/v1/topics/orders").body("{}")).await?;
    for actor in [&calm, &moody] {
        subscribe(&client, actor).await?;
    }
    say(format!("topic orders; {} answers 200, {} fails twice first", calm.name(), moody.name()));

    act("2. Events are accepted, signed, delivered, and retried");
    for number in 1..=CALM_EVENTS {
        let event = json!({
            "topic": "orders", "type": "order.created", "payload": {"order": number},
        });
        let answer = client.post("/v1/events", &event).await?;
        let id = terminal::cell(&answer, "id");
        say(format!(
            "accepted {id}: on disk, {} deliveries",
            terminal::cell(&answer, "deliveries")
        ));
        tokio::time::sleep(BETWEEN).await;
    }
    wait_for(&[&calm, &moody], CALM_EVENTS).await?;

    act("3. Both receivers go down, and then the server is killed");
    for actor in [&calm, &moody] {
        actor.set_down(true);
    }
    let events: Vec<Value> = (1..=STORM_EVENTS)
        .map(|n| json!({"topic": "orders", "type": "order.paid", "payload": {"order": n}}))
        .collect();
    client.post("/v1/events/batch", &json!({ "events": events })).await?;
    say(format!("accepted {STORM_EVENTS} events while nobody can receive them"));
    tokio::time::sleep(BEFORE_KILL).await;
    let pid = server.pid();
    server.kill().await?;
    say(paint.bad(format_args!("kill -9 {pid}: the server is gone, with everything in its memory")));
    for actor in [&calm, &moody] {
        actor.set_down(false);
    }
    server = home.start().await?;
    say(paint.good(format_args!("started again on the same data, process {}", server.pid())));
    let client = self::client(&server)?;
    wait_for(&[&calm, &moody], CALM_EVENTS + STORM_EVENTS).await?;
    let stats = settled(&client).await?;

    let outcome = summary(&stats, &[&calm, &moody]);
    act("4. The books");
    show(&outcome, json)?;
    if outcome.lost > 0 || outcome.unverified > 0 {
        return Err(Failure::new(Code::Failure, "the demo failed").into());
    }
    if args.console {
        let live = Live { home, server, client, works: calm, moody, keep: args.keep };
        return Ok(Some(live));
    }
    server.stop().await?;
    if args.keep {
        say(format!("the data stays in {}", home.keep().display()));
    }
    next_steps();
    Ok(None)
}

fn client(server: &child::Server) -> anyhow::Result<Client> {
    Client::new(&Access {
        server: server.url().to_owned(),
        key: Some(server.key().to_owned()),
        tenant: None,
        ca: None,
    })
}

async fn subscribe(client: &Client, actor: &Arc<Actor>) -> anyhow::Result<()> {
    let body = json!({
        "name": actor.name(), "url": actor.url(), "description": actor.name(), "profile": "demo",
        "filter": {"any_of": [{"topics": ["orders"]}]},
    });
    let made = client.post("/v1/subscriptions", &body).await?;
    actor.verify_with(&terminal::cell(&made, "signing_secret"))
}

/// Waits until every receiver has taken so many different events.
async fn wait_for(actors: &[&Arc<Actor>], events: usize) -> anyhow::Result<()> {
    let arrived = async {
        while actors.iter().any(|actor| actor.taken() < events) {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, arrived).await.map_err(|_| {
        let counts: Vec<_> =
            actors.iter().map(|actor| format!("{} {}", actor.name(), actor.taken())).collect();
        Failure::new(
            Code::Failure,
            format!("{events} events should have arrived by now; {}", counts.join(", ")),
        )
    })?;
    Ok(())
}

/// The counts, once the last outcome is written down.
async fn settled(client: &Client) -> anyhow::Result<Value> {
    let books = async {
        loop {
            let stats = client.get("/v1/stats").await?;
            if stats.get("pending").and_then(Value::as_u64) == Some(0) {
                return anyhow::Ok(stats);
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, books)
        .await
        .map_err(|_| Failure::new(Code::Failure, "deliveries are still pending"))?
}

/// What the server and the receivers say, side by side.
struct Outcome {
    stats: Value,
    taken: usize,
    repeated: u64,
    refused: u64,
    unverified: u64,
    lost: u64,
}

fn summary(stats: &Value, actors: &[&Arc<Actor>]) -> Outcome {
    let taken: usize = actors.iter().map(|actor| actor.taken()).sum();
    let expected = (CALM_EVENTS + STORM_EVENTS) * actors.len();
    Outcome {
        stats: stats.clone(),
        taken,
        repeated: actors.iter().map(|actor| actor.repeated()).sum(),
        refused: actors.iter().map(|actor| actor.refused()).sum(),
        unverified: actors.iter().map(|actor| actor.unverified()).sum(),
        lost: u64::try_from(expected.saturating_sub(taken)).unwrap_or(u64::MAX),
    }
}

fn show(outcome: &Outcome, json: bool) -> anyhow::Result<()> {
    if json {
        return Ok(terminal::json(&json!({
            "server": outcome.stats,
            "receivers": {
                "taken": outcome.taken, "repeated": outcome.repeated, "refused": outcome.refused,
                "unverified": outcome.unverified,
            },
            "lost": outcome.lost,
        }))?);
    }
    let count = |name| terminal::cell(&outcome.stats, name);
    let rows = [
        ("events accepted", count("events")),
        ("deliveries made", count("delivered")),
        ("still pending", count("pending")),
        ("dead letters", count("dead")),
        ("taken by the receivers", outcome.taken.to_string()),
        ("answered with an error, and retried", outcome.refused.to_string()),
        ("taken twice (at least once, after a crash)", outcome.repeated.to_string()),
        ("signatures that did not match", outcome.unverified.to_string()),
        ("lost", outcome.lost.to_string()),
    ];
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|(what, number)| vec![what.to_owned(), number]).collect();
    Ok(terminal::data(terminal::table(&["WHAT", "COUNT"], &rows))?)
}

fn next_steps() {
    let paint = Paint::stderr();
    terminal::note(format!(
        "\n{}\n  posthorn serve --allow 127.0.0.1     run a server; it prints a key\n  \
         posthorn listen --subscribe orders   receive, in another terminal\n  \
         posthorn send orders order.created   publish\n  posthorn demo --console              \
         look at all of it in a browser, with live traffic\n  posthorn help                        \
         everything else\n",
        paint.bold("Now yours:")
    ));
}
