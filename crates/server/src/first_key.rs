//! The first operator key: given by the configuration, or made at the first start.
//!
//! # Theory of operation
//! A key that nobody knows is worse than none, since it keeps the next start from making another. So the
//! text is in a safe place before the store takes the key in: the operator's own (`keys.bootstrap`), or
//! `operator.key` in the data folder. A start that is cut short at any point leaves either nothing, or a
//! file that the next start takes in, or both done. Of several nodes on one database, the store lets one
//! key in; whoever comes second takes its own file back.
//!
//! # What it must not know
//! What a key may do; the engine does.

use std::path::{Path, PathBuf};

use posthorn_engine::Engine;
use posthorn_sealing::api_key;
use posthorn_sealing::vault::Secret;
use tracing::{info, warn};

use crate::exit::{Code, Failure};
use crate::private_file;
use crate::storage::chain;

/// Where a key that was made is kept, in the data folder.
const FILE: &str = "operator.key";

/// Where the first key is kept, unless the configuration gave it.
pub fn file(data: &Path) -> PathBuf {
    data.join(FILE)
}

/// A first key that this start made.
pub struct FirstKey {
    /// The whole key.
    pub text: Secret,
    /// Where it is kept.
    pub file: PathBuf,
}

/// Makes sure that an operator key works. Returns it when this start made it and somebody has to be told.
pub async fn settle(
    engine: &Engine,
    given: Option<&Secret>,
    data: &Path,
) -> anyhow::Result<Option<FirstKey>> {
    if let Some(given) = given {
        return take_given(engine, given).await.map(|()| None);
    }
    if engine.has_operator_key() {
        return Ok(None);
    }
    let file = file(data);
    let Some((text, ours)) = kept_or_made(engine, &file)? else { return Ok(None) };
    if take_in(engine, &text).await? {
        let file = std::path::absolute(&file).unwrap_or(file);
        return Ok(Some(FirstKey { text, file }));
    }
    info!("another node created the operator key; it is in that node's data folder");
    // A node that shares the folder may have taken in the very key that this one wrote down. Any other
    // opens nothing, and would be taken for one that does.
    let works = engine.knows_key(text.expose_str().unwrap_or_default());
    if ours && !works && read(&file)?.is_some_and(|kept| kept == text) {
        drop(std::fs::remove_file(&file));
    }
    Ok(None)
}

/// The key that the file keeps, or a new one that it keeps now, and whether it is a new one; nothing when
/// the one that it keeps works by now.
fn kept_or_made(engine: &Engine, file: &Path) -> anyhow::Result<Option<(Secret, bool)>> {
    let what = "the operator key";
    let fresh = engine.draft_key();
    let line = fresh.expose_str().unwrap_or_default();
    // Nodes may share the folder: one of them writes the file, and all of them mean the same key.
    if private_file::create(file, what, line)? {
        return Ok(Some((fresh, true)));
    }
    match read(file)?.filter(|kept| !is_known(engine, kept)) {
        Some(kept) => Ok(Some((kept, false))),
        // It came in since we looked.
        None if engine.has_operator_key() => Ok(None),
        // One that the store has seen before is spent: it was revoked or has run out.
        None => {
            private_file::replace(file, what, std::iter::once(line.to_owned()))?;
            Ok(Some((fresh, true)))
        }
    }
}

async fn take_given(engine: &Engine, given: &Secret) -> anyhow::Result<()> {
    if take_in(engine, given).await? {
        info!("stored the operator key that keys.bootstrap names");
    } else if !engine.knows_key(given.expose_str().unwrap_or_default()) {
        warn!(
            "the key that keys.bootstrap names is not valid here: it is stored only while there \
             is no valid operator key. Use a valid one, or create one with `posthorn keys \
             recover`"
        );
    }
    Ok(())
}

async fn take_in(engine: &Engine, text: &Secret) -> anyhow::Result<bool> {
    let taken = engine.bootstrap_key(text.expose_str().unwrap_or_default()).await;
    taken.map_err(|e| {
        Failure::new(Code::Io, format!("the operator key cannot be stored: {}", chain(&e)))
            .hint("check the disk space and the database, then start again")
            .into()
    })
}

fn is_known(engine: &Engine, text: &Secret) -> bool {
    let id = text.expose_str().and_then(|text| api_key::parse(text).ok()).map(|(id, _)| id);
    id.is_some_and(|id| engine.catalog().key(id).is_some())
}

/// The key of a text with nothing around it but white space.
pub fn parse(text: &str) -> Result<Secret, api_key::ApiKeyError> {
    let text = text.trim();
    api_key::parse(text).map(|_| Secret::from(text))
}

/// What an earlier start has left; `None` when there is no such file.
fn read(file: &Path) -> anyhow::Result<Option<Secret>> {
    let fail = |problem: String| {
        Failure::new(Code::Config, format!("{} {problem}", file.display()))
            .hint("remove the file; the next start creates another key")
    };
    match std::fs::read_to_string(file) {
        Ok(text) => match parse(&text) {
            Ok(key) => Ok(Some(key)),
            Err(e) => Err(fail(format!("does not contain an operator key: {e}")).into()),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(fail(format!("cannot be read: {e}")).into()),
    }
}
