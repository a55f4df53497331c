//! The demo with `--console`: the server goes on with live traffic, so that the console has something to show. A receiver
//! works, one fails at times, one is dead. The next signal ends all of it, and nothing is left behind.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::net::TcpListener;

use super::child::{Home, Server};
use super::stage::Actor;
use crate::client::Client;
use crate::lifecycle::Signals;
use crate::terminal::{self, Paint};

/// Between two events.
const BETWEEN: Duration = Duration::from_millis(250);
/// One of so many requests to the moody receiver fails.
const FAIL_ONE_OF: u64 = 3;
const TYPES: [&str; 4] = ["order.created", "order.paid", "order.packed", "order.shipped"];

/// What the demo leaves running.
pub(super) struct Live {
    pub(super) home: Home,
    pub(super) server: Server,
    pub(super) client: Client,
    pub(super) works: Arc<Actor>,
    pub(super) moody: Arc<Actor>,
    pub(super) keep: bool,
}

impl Live {
    /// Publishes until a signal comes, then stops the server.
    pub(super) async fn run(self) -> anyhow::Result<()> {
        // Taken before anything is said, so that whoever reads it can end it.
        let mut signals = Signals::listen()?;
        let paint = Paint::stderr();
        self.works.fail_one_of(0);
        self.moody.fail_one_of(FAIL_ONE_OF);
        self.subscribe_dead().await?;
        let (url, key) = (self.server.url(), self.server.key());
        terminal::note(format!(
            "\n{}\n  Open {}\n  Key  {}\n  {}\n",
            paint.bold("5. The console"),
            paint.good(format_args!("{url}/console/")),
            paint.good(key),
            paint.dim("Events are published until you press Ctrl-C. `dead` never answers; `moody` fails at times."),
        ));
        tokio::select! {
            () = self.publish() => {}
            _ = signals.next() => {}
        }
        let Self { home, server, keep, .. } = self;
        server.stop().await?;
        let left = match keep {
            true => format!("the data stays in {}", home.keep().display()),
            false => {
                drop(home);
                "nothing is left behind".to_owned()
            }
        };
        terminal::note(format!("\nstopped; {left}"));
        Ok(())
    }

    /// A receiver where nobody listens.
    async fn subscribe_dead(&self) -> anyhow::Result<()> {
        // Taken and given back: it is free, and for a while nobody else gets it.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()?.port();
        let body = json!({
            "name": "dead", "url": format!("http://127.0.0.1:{port}/dead"), "profile": "demo",
            "description": "nobody listens there",
            "filter": {"any_of": [{"topics": ["orders"]}]},
        });
        self.client.post("/v1/subscriptions", &body).await?;
        Ok(())
    }

    /// Publishes for ever. What is refused is no matter: the next one comes in a moment.
    async fn publish(&self) {
        let mut number: usize = 0;
        loop {
            let event = json!({
                "topic": "orders", "type": TYPES[number % TYPES.len()],
                "key": format!("customer-{}", number % 7),
                "payload": {"order": number / TYPES.len(), "total": (number * 37) % 500},
            });
            drop(self.client.post("/v1/events", &event).await);
            number += 1;
            tokio::time::sleep(BETWEEN).await;
        }
    }
}
