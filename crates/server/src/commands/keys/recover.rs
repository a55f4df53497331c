//! `posthorn keys recover`: a new operator key straight into the store, for when nobody has one.

use std::path::PathBuf;

use posthorn_domain::{
    Actor, ApiKey, AuditAction, AuditEntry, AuditId, AuditObject, Clock as _, KeyId, Origin, Scope,
};
use posthorn_sealing::api_key;
use posthorn_store::CatalogChange;

use crate::clock::WallClock;
use crate::config::{self, StoreKind};
use crate::exit::{Code, Failure};
use crate::private_file;
use crate::serve::ConfigArgs;
use crate::storage::{self, chain};
use crate::terminal::{self, Paint};

/// Create a new operator key without a server, when nobody has one that works
///
/// It needs the store itself: the data folder, for which the server must be stopped, or PostgreSQL,
/// where servers may run on. The key is shown once. Keys that exist stay as they are; revoke those that
/// were lost.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Write it to a new file that only its owner can read, instead of stdout
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

/// Runs it.
pub(super) async fn run(args: &Args, json: bool) -> anyhow::Result<()> {
    let config = config::load(&args.config.inputs())?.config;
    if matches!(config.store.kind, StoreKind::Sqlite)
        && !config.store.path.join("posthorn.db").exists()
    {
        let message = format!("there is no store in {}", config.store.path.display());
        return Err(Failure::new(Code::Failure, message)
            .hint("name the data directory with --data, or the configuration with --config")
            .into());
    }
    let opened = storage::open(&config.store).await?;
    let now = WallClock.now();
    let id = KeyId::new(now, rand::random());
    let (secret, hash) = api_key::generate(id);
    let text = secret.expose_str().unwrap_or_default();
    // First where it stays: a key that is in the store and nowhere else helps nobody.
    if let Some(file) = &args.to {
        private_file::write_new(file, "the operator key", std::iter::once(text.to_owned()))?;
    }
    let key = ApiKey {
        id,
        tenant: None,
        realm: None,
        description: "made by `posthorn keys recover`".to_owned(),
        scopes: vec![Scope::Operator],
        hash,
        created_at: now,
        expires_at: None,
        revoked_at: None,
        rate_limit: None,
    };
    let store = opened.store();
    let line = AuditEntry {
        id: AuditId::new(now, rand::random()),
        actor: Actor::SERVER,
        origin: Origin { surface: "cli".to_owned(), address: None },
        action: AuditAction::KeyCreated,
        tenant: None,
        realm: None,
        object: AuditObject {
            kind: "key".to_owned(),
            id: id.to_string(),
            name: Some(key.description.clone()),
        },
        detail: serde_json::Map::from_iter([("scopes".to_owned(), serde_json::json!(key.scopes))]),
    };
    let create = CatalogChange::CreateKey(key);
    store.change_catalog_with(create, line.into()).await.map_err(|e| {
        Failure::new(Code::Io, format!("the operator key cannot be stored: {}", chain(&e)))
    })?;
    // Nodes that run on the same database look by themselves as well, a little later.
    drop(store.notify(&[]).await);
    opened.close().await;
    match (&args.to, json) {
        (Some(file), true) => terminal::json(&serde_json::json!({"id": id, "file": file}))?,
        (Some(file), false) => terminal::data(format_args!("{}", file.display()))?,
        (None, true) => terminal::json(&serde_json::json!({"id": id, "key": text}))?,
        (None, false) => terminal::data(text)?,
    }
    terminal::note(Paint::stderr().warn(
        "a new operator key; list the others with `posthorn keys list`, and revoke those that were lost",
    ));
    Ok(())
}
