//! The three places for dead letters.

use posthorn_domain::Timestamp;
use posthorn_notifier::{
    DlqError, DlqStore, FailedWebhook, FileDlqStore, MemoryDlqStore, NoopDlqStore,
};
use serde_json::value::RawValue;

fn letter(id: &str, at: i64) -> FailedWebhook {
    FailedWebhook {
        id: id.to_owned(),
        url: "https://a.example/".to_owned(),
        payload: RawValue::from_string(r#"{"eventId":"evt_1","n":1.50}"#.to_owned()).expect("JSON"),
        headers: [("X-A".to_owned(), "1".to_owned())].into(),
        event_type: "payment".to_owned(),
        attempts: 5,
        last_error: "HTTP 500".to_owned(),
        last_attempt: Timestamp::from_millis(1_700_000_000_000 + at),
        created_at: Timestamp::from_millis(1_700_000_000_000),
    }
}

async fn ids(store: &impl DlqStore, limit: usize) -> Vec<String> {
    store.list(limit).await.expect("lists").into_iter().map(|letter| letter.id).collect()
}

async fn saves_lists_and_deletes(store: &impl DlqStore) {
    for (id, at) in [("a", 1), ("b", 3), ("c", 2)] {
        assert!(store.save(letter(id, at)).await.expect("saves"));
    }
    assert_eq!(ids(store, 10).await, ["b", "c", "a"], "the last given up first");
    assert_eq!(ids(store, 2).await, ["b", "c"]);
    assert!(ids(store, 0).await.is_empty());
    store.save(letter("a", 9)).await.expect("saves");
    assert_eq!(ids(store, 10).await, ["a", "b", "c"], "one of the same id is replaced");
    store.delete("b").await.expect("deletes");
    store.delete("nobody").await.expect("fine");
    assert_eq!(ids(store, 10).await, ["a", "c"]);
}

#[tokio::test]
async fn in_memory() {
    saves_lists_and_deletes(&MemoryDlqStore::default()).await;
}

#[tokio::test]
async fn nowhere() {
    let store = NoopDlqStore;
    assert!(!store.save(letter("a", 1)).await.expect("fine"), "and it says so");
    assert!(ids(&store, 10).await.is_empty());
    store.delete("a").await.expect("fine");
}

#[tokio::test]
async fn in_a_file_that_is_read_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("data").join("webhook-dlq.json");
    let store = FileDlqStore::open(&path).expect("opens");
    assert!(!path.exists(), "nothing is written before there is something to write");
    saves_lists_and_deletes(&store).await;
    let text = std::fs::read_to_string(&path).expect("there");
    assert!(text.starts_with("{\n  \"a\": {\n    \"id\": \"a\",\n"), "{text}");
    assert!(text.contains(r#""payload": {"eventId":"evt_1","n":1.50}"#), "byte for byte: {text}");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let mut names: Vec<&String> = value["a"].as_object().expect("an object").keys().collect();
    names.sort();
    assert_eq!(
        names,
        [
            "attempts",
            "createdAt",
            "eventType",
            "headers",
            "id",
            "lastAttempt",
            "lastError",
            "payload",
            "url"
        ]
    );
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    drop(store);
    let store = FileDlqStore::open(&path).expect("opens again");
    assert_eq!(ids(&store, 10).await, ["a", "c"]);
    store.delete("a").await.expect("deletes");
    drop(store);
    let store = FileDlqStore::open(&path).expect("opens again");
    assert_eq!(ids(&store, 10).await, ["c"]);
    let left: Vec<_> = std::fs::read_dir(path.parent().expect("a folder"))
        .expect("reads")
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    let mut left: Vec<_> = left.iter().map(|name| name.to_string_lossy()).collect();
    left.sort();
    assert_eq!(left, ["webhook-dlq.json", "webhook-dlq.json.lock"], "nothing else lies about");
    let second = FileDlqStore::open(&path).expect_err("one at a time");
    assert!(matches!(second, DlqError::InUse { .. }), "{second}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_are_all_there_and_a_caller_that_gives_up_breaks_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("dlq.json");
    let store = FileDlqStore::open(&path).expect("opens");
    let mut saves = tokio::task::JoinSet::new();
    for n in 0..200 {
        let store = store.clone();
        saves.spawn(async move { store.save(letter(&format!("l{n:03}"), n)).await });
    }
    // Dropped before it has begun, in the middle, or when it is over.
    for n in 0..20 {
        let given_up = store.save(letter(&format!("g{n:03}"), n));
        let _ =
            tokio::time::timeout(std::time::Duration::from_micros(n as u64 * 50), given_up).await;
    }
    while let Some(saved) = saves.join_next().await {
        assert!(saved.expect("runs").expect("saves"));
    }
    drop(store);
    // Writes that were given up may still hold it for a moment.
    let begun = std::time::Instant::now();
    let store = loop {
        match FileDlqStore::open(&path) {
            Err(DlqError::InUse { .. }) if begun.elapsed().as_secs() < 30 => {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            opened => break opened.expect("opens again"),
        }
    };
    let there = ids(&store, 1_000).await;
    for n in 0..200 {
        assert!(there.contains(&format!("l{n:03}")), "l{n:03} is there");
    }
}

#[tokio::test]
async fn a_full_file_refuses_more_until_there_is_room() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("dlq.json");
    let many: std::collections::BTreeMap<String, FailedWebhook> =
        (0..10_000).map(|n| format!("l{n:05}")).map(|id| (id.clone(), letter(&id, 1))).collect();
    std::fs::write(&path, serde_json::to_vec(&many).expect("JSON")).expect("written");
    let store = FileDlqStore::open(&path).expect("opens");
    let error = store.save(letter("more", 2)).await.expect_err("full");
    assert!(matches!(error, DlqError::Full { max: 10_000 }), "{error}");
    assert!(store.save(letter("l00000", 2)).await.expect("one that is there"));
    store.delete("l00001").await.expect("deletes");
    assert!(store.save(letter("more", 2)).await.expect("there is room"));
}

#[tokio::test]
async fn a_file_with_something_else_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("dlq.json");
    for text in ["[]", "{\"a\": 1}", "half a fi"] {
        std::fs::write(&path, text).expect("written");
        let error = FileDlqStore::open(&path).expect_err("refused");
        assert!(matches!(error, DlqError::Contents { .. }), "{error}");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), text);
    }
    std::fs::write(&path, "").expect("written");
    FileDlqStore::open(&path).expect("an empty file holds no dead letters");
}

#[tokio::test]
async fn what_cannot_be_written_is_an_error_and_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let blocked = folder.path().join("blocked");
    std::fs::write(&blocked, "a file, not a folder").expect("written");
    let error = FileDlqStore::open(blocked.join("dlq.json")).expect_err("no folder");
    assert!(matches!(error, DlqError::File { .. }), "{error}");
    let store = FileDlqStore::open(folder.path().join("later/dlq.json")).expect("opens");
    std::fs::remove_dir_all(folder.path().join("later")).expect("removed");
    std::fs::write(folder.path().join("later"), "in the way").expect("written");
    let error = store.save(letter("a", 1)).await.expect_err("no folder");
    assert!(matches!(error, DlqError::File { .. }), "{error}");
    assert!(ids(&store, 10).await.is_empty(), "what is not on disk is not there");
}
