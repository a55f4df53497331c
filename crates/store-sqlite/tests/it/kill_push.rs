//! `kill -9` while messages of Web Push are stored and acknowledged: what was stored is there, what
//! was acknowledged never returns.
//!
//! The test runs itself again as a child process that stores, acknowledges and prints what it did.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use posthorn_conformance::builders::at;
use posthorn_conformance::push::{NODE, message, register, store_all, stored};
use posthorn_domain::{AgentId, ChannelId, MessageId, MessageSeq, PushMessage};
use posthorn_store::push::{Birth, Kept, PushStore, Register, Registered};
use posthorn_store_sqlite::{Options, SqliteStore};

use crate::kill::{self, killed_while_it_says};

const DIRECTORY: &str = "POSTHORN_TEST_KILL_PUSH_DIRECTORY";
const AGENT: AgentId = AgentId::from_bytes([1; 16]);
const CHANNEL: ChannelId = ChannelId::from_bytes([2; 16]);

fn say(what: &str, id: MessageId) {
    kill::say(&format!("{what} {id}"));
}

/// Not a test of its own: stores until it is killed, when the parent asks for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_stores_until_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let store = SqliteStore::open(&Options::new(PathBuf::from(directory))).expect("the store");
    let store = Arc::new(store);
    let birth = Some(Birth { node: NODE.to_owned(), connected_at: at(0) });
    let first = Register { agent: AGENT, channel: CHANNEL, key: None, at: at(0), birth };
    assert_eq!(register(&*store, first).await, Registered::New);
    let tasks: Vec<_> = (0..8)
        .map(|number| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for _ in 0..u64::MAX {
                    store_one(&store, number % 2 == 0).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no task panics");
    }
}

async fn store_one(store: &SqliteStore, keep: bool) {
    let message = message(AGENT, CHANNEL, 0);
    let id = message.id;
    let Kept::Stored(seq) = store_all(store, vec![message]).await[0] else { panic!("stored") };
    if keep {
        say("stored", id);
    } else {
        assert_eq!(store.ack_messages(vec![(AGENT, seq)]).await.expect("ack"), [true]);
        say("acked", id);
    }
}

#[test]
fn killed_anywhere_keeps_messages_and_acks() {
    let child = "kill_push::child_stores_until_killed";
    killed_while_it_says(child, DIRECTORY, ["stored ", "acked "], |directory, said| {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(check(directory, said));
    });
}

async fn check(directory: &tempfile::TempDir, said: &[String]) {
    let store = SqliteStore::open(&Options::new(directory.path())).expect("it opens again");
    let found = stored(&store, AGENT, at(0)).await;
    assert!(found.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    let there: HashSet<String> = found.iter().map(|stored| stored.message.id.to_string()).collect();
    for line in said {
        match line.split_once(' ') {
            Some(("stored", id)) => assert!(there.contains(id), "{id} is lost"),
            Some(("acked", id)) => assert!(!there.contains(id), "{id} came back"),
            _ => panic!("{line}"),
        }
    }
    let last = found.last().map_or(MessageSeq::START, |stored| stored.seq);
    // Ids of the builders count from one in each process; this one is nobody else's.
    let fresh = PushMessage { id: MessageId::from_bytes([9; 16]), ..message(AGENT, CHANNEL, 0) };
    let kept = store_all(&store, vec![fresh]).await;
    assert!(matches!(kept[0], Kept::Stored(seq) if seq > last), "{kept:?} after {last}");
}
