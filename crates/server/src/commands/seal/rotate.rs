//! Changing the seal key: the file, and what is sealed with it.

use std::path::{Path, PathBuf};

use posthorn_sealing::vault::VaultKey;
use serde_json::{Value, json};

use crate::commands::Context;
use crate::exit::{Code, Failure};
use crate::seal;
use crate::terminal::{self, Paint};

/// Puts a new key in front of those of a file.
pub(super) fn begin(file: &Path) -> anyhow::Result<()> {
    let mut keys = present(file)?;
    if keys.len() > 1 {
        terminal::note(format!(
            "{} has a new key already; start the server anew, then run `posthorn seal rotate \
             --finish {}`",
            file.display(),
            file.display()
        ));
        return Ok(());
    }
    keys.insert(0, VaultKey::generate());
    seal::replace(file, &keys)?;
    terminal::note(Paint::stderr().good(format_args!(
        "{} has a new key in front of the old one; back it up",
        file.display()
    )));
    terminal::note(format!(
        "Next: start the server anew, then run\n  posthorn seal rotate --finish {}\nWith several nodes \
         every node must know a key before one of them seals with it: put the old line first, give the \
         file to each node, start each anew, then swap the lines",
        file.display()
    ));
    Ok(())
}

/// Has the server seal everything anew; with a file, takes the old keys out of it afterwards.
pub(super) async fn run(context: &Context, finish: Option<&Path>) -> anyhow::Result<()> {
    let keys = finish.map(present).transpose()?;
    let mut resealed = 0;
    let last = loop {
        let answer = context.client.post("/v1/seal/rotate", &Value::Null).await?;
        let number = |field: &str| answer[field].as_u64().unwrap_or_default();
        if let Some(keys) = &keys
            && answer["key"].as_str() != keys.first().map(VaultKey::name).as_deref()
        {
            return Err(Failure::new(
                Code::Config,
                "the server does not seal with the first key of the file",
            )
            .hint("start the server anew with this file, then repeat; nothing was removed")
            .into());
        }
        resealed += number("resealed");
        let (remaining, stuck) = (number("remaining"), number("unopenable"));
        terminal::note(format!("sealed anew: {resealed}; left: {remaining}"));
        if remaining == stuck {
            break answer;
        }
    };
    if last["unopenable"].as_u64() != Some(0) {
        let message = format!("{} secrets can be opened by no key", last["unopenable"]);
        return Err(Failure::new(Code::Config, message)
            .hint("give the key they were sealed with in seal.former, or set these secrets anew")
            .into());
    }
    if let (Some(file), Some(keys)) = (finish, keys) {
        retire(file, &keys)?;
    }
    let shown = json!({
        "key": last["key"], "total": last["total"], "resealed": resealed, "remaining": 0,
    });
    context.show_one(&shown, "key total resealed remaining")
}

/// Moves all but the first key to a file beside: backups from before still need them.
fn retire(file: &Path, keys: &[VaultKey]) -> anyhow::Result<()> {
    let Some((first, old)) = keys.split_first().filter(|(_, old)| !old.is_empty()) else {
        terminal::note(format!("{} has no old key", file.display()));
        return Ok(());
    };
    let mut former = file.as_os_str().to_owned();
    former.push(".former");
    let former = PathBuf::from(former);
    let mut kept = old.to_vec();
    for key in seal::read(&former)?.unwrap_or_default() {
        if kept.iter().all(|known| known.name() != key.name()) {
            kept.push(key);
        }
    }
    // Kept there before it is gone here.
    seal::replace(&former, &kept)?;
    let endpoints = seal::endpoints::beside(file);
    seal::endpoints::keep(&endpoints, old)?;
    seal::replace(file, std::slice::from_ref(first))?;
    terminal::note(Paint::stderr().good(format_args!(
        "nothing is sealed with the old key any more; it is in {}, for backups from before",
        former.display()
    )));
    terminal::note(format!(
        "Web Push endpoints that were created with it go on working: their key is in {}, which every \
         start reads. Give it to each node, and back it up",
        endpoints.display()
    ));
    Ok(())
}

/// The seal keys of a file that must be there.
pub(in crate::commands) fn present(file: &Path) -> anyhow::Result<Vec<VaultKey>> {
    seal::read(file)?.ok_or_else(|| {
        Failure::new(Code::Config, format!("there is no seal key in {}", file.display()))
            .hint("name the file of seal.key, or <store.path>/seal.key")
            .into()
    })
}
