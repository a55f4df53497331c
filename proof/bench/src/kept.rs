//! A history that is kept for the next scenario: ten million events are published once and looked at twice.
//!
//! Beside the data lies what a scenario must know of them: who gets what, and the keys.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Args;
use crate::child::{Home, Server};
use crate::history::{self, Setting};
use crate::progress::say;
use crate::scenarios::Bench;

/// The file with what is known of a history.
const FILE: &str = "history.json";
/// How long what a former run left may take to be delivered: a retry comes after some seconds, the next one after half a
/// minute.
const REST: Duration = Duration::from_secs(90);

/// What is known of a history.
#[derive(Serialize, Deserialize)]
struct Kept {
    events: u64,
    payload: usize,
    key: String,
    setting: Setting,
}

/// A server with a history: the one that was kept, or a new one.
pub(crate) async fn history(
    args: &Args,
    bench: &Bench<'_>,
    home: &mut Home,
) -> anyhow::Result<(Server, Setting, u64)> {
    let file = args.keep.as_deref().map(|folder| folder.join(FILE));
    let found = file.as_deref().filter(|file| file.exists()).map(read).transpose()?;
    if let Some(kept) = found {
        ensure!(
            (kept.events, kept.payload) == (args.events, args.payload),
            "the history that was kept has {} events with {} bytes; name these, or another folder",
            kept.events,
            kept.payload
        );
        say(&format!("{} events were kept", kept.events));
        home.key = Some(kept.key);
        let server = home.start().await?;
        move_receivers(&server, bench).await?;
        let pending = come_to_rest(args, bench, &server).await?;
        return Ok((server, kept.setting, pending));
    }
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
    let server = home.start().await?;
    let setting = Setting::make(&server, bench.sink_address, closed).await?;
    let pending = history::make(&server, &setting, args).await?;
    history::settle(&server, bench, pending).await?;
    if let Some(file) = file {
        let key = home.key.clone().context("a server that made a key")?;
        let (events, payload) = (args.events, args.payload);
        let kept = Kept { events, payload, key, setting: setting.clone() };
        std::fs::write(file, serde_json::to_string(&kept)?)?;
    }
    Ok((server, setting, pending))
}

/// The former run ended with a kill. What it had delivered and not yet written down comes once more, with its numbers: those
/// must not be taken for numbers of this run, nor be counted in it.
async fn come_to_rest(args: &Args, bench: &Bench<'_>, server: &Server) -> anyhow::Result<u64> {
    let began = Instant::now();
    loop {
        let stats = server.call("GET", "/v1/stats", &Value::Null).await?;
        let count = |name: &str| stats[name].as_u64().with_context(|| format!("no {name}"));
        let (events, pending) = (count("events")?, count("pending")?);
        if pending <= args.events / 10 || began.elapsed() > REST {
            bench.numbers.fetch_max(events, Ordering::Relaxed);
            return Ok(pending);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Receivers listen at another address than when the history was made.
async fn move_receivers(server: &Server, bench: &Bench<'_>) -> anyhow::Result<()> {
    let all = server.call("GET", "/v1/subscriptions?limit=200", &Value::Null).await?;
    for subscription in all["items"].as_array().into_iter().flatten() {
        let (id, name) = (&subscription["id"], &subscription["name"]);
        let (Some(id), Some(name)) = (id.as_str(), name.as_str()) else { continue };
        if name.starts_with("history-") {
            let change = json!({"url": format!("http://{}/hook/{name}", bench.sink_address)});
            server.call("PATCH", &format!("/v1/subscriptions/{id}"), &change).await?;
        }
    }
    Ok(())
}

fn read(file: &Path) -> anyhow::Result<Kept> {
    let text = std::fs::read_to_string(file)?;
    serde_json::from_str(&text).with_context(|| format!("{} cannot be read", file.display()))
}
