//! Who an agent is: what it must know to come back as the same one, and the file that keeps it.

use std::io::Write as _;
use std::path::Path;

use posthorn_domain::{AgentId, ChannelId};
use posthorn_sealing::web_push::ReceiverKeys;
use serde::{Deserialize, Serialize};

use crate::exit::{Code, Failure};
use crate::private_file;

/// An agent with one channel, and the subscription that leads to it.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) server: String,
    pub(super) topic: String,
    pub(super) agent: AgentId,
    pub(super) channel: ChannelId,
    pub(super) keys: ReceiverKeys,
    pub(super) subscription: Option<String>,
}

/// As it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    server: String,
    topic: String,
    agent: AgentId,
    channel: ChannelId,
    private_key: String,
    auth: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subscription: Option<String>,
}

impl Identity {
    /// A new agent with fresh keys.
    pub(super) fn fresh(server: &str, topic: &str, agent: AgentId) -> Self {
        let keys = ReceiverKeys::generate();
        // A public key is as good a random number as any: the first byte only says how it is written.
        let mut name = [0; 16];
        name.copy_from_slice(&keys.receiver().key().as_bytes()[1..17]);
        let channel = ChannelId::from_random(u128::from_be_bytes(name));
        let (server, topic) = (server.to_owned(), topic.to_owned());
        Self { server, topic, agent, channel, keys, subscription: None }
    }

    /// What a file keeps; `None` when there is no such file. One of another server or topic is not
    /// taken, since its events would be lost.
    pub(super) fn load(file: &Path, server: &str, topic: &str) -> anyhow::Result<Option<Self>> {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => {
                let message = format!("{} cannot be read: {e}", file.display());
                return Err(Failure::new(Code::Usage, message).into());
            }
        };
        private_file::tighten([file.to_owned()]);
        let damaged = || {
            Failure::new(Code::Usage, format!("{} does not keep an agent", file.display()))
                .hint("name another file with --keep, or remove this one to begin anew")
        };
        let kept: Kept = serde_json::from_str(&text).map_err(|_| damaged())?;
        let keys = ReceiverKeys::parse(&kept.private_key, &kept.auth).map_err(|_| damaged())?;
        if (kept.server.as_str(), kept.topic.as_str()) != (server, topic) {
            let message = format!(
                "{} keeps an agent of the topic {} at {}",
                file.display(),
                kept.topic,
                kept.server
            );
            let hint = "name another file with --keep: one for each server and topic";
            return Err(Failure::new(Code::Usage, message).hint(hint).into());
        }
        Ok(Some(Self {
            server: kept.server,
            topic: kept.topic,
            agent: kept.agent,
            channel: kept.channel,
            keys,
            subscription: kept.subscription,
        }))
    }

    /// Writes it, readable for its owner only, and whole or not at all.
    pub(super) fn save(&self, file: &Path) -> anyhow::Result<()> {
        let text = |secret: posthorn_sealing::vault::Secret| {
            secret.expose_str().unwrap_or_default().to_owned()
        };
        let kept = Kept {
            server: self.server.clone(),
            topic: self.topic.clone(),
            agent: self.agent,
            channel: self.channel,
            private_key: text(self.keys.private_text()),
            auth: text(self.keys.receiver().auth_text()),
            subscription: self.subscription.clone(),
        };
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let write = || -> std::io::Result<()> {
            // Files of this kind are made with mode 0600.
            let mut made = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
            serde_json::to_writer_pretty(&mut made, &kept)?;
            made.write_all(b"\n")?;
            made.as_file().sync_all()?;
            made.persist(file)?;
            Ok(())
        };
        write().map_err(|e| {
            let message = format!("{} cannot be written: {e}", file.display());
            Failure::new(Code::CannotCreate, message).into()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_is_kept_comes_back_and_only_for_its_owner() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("agent.json");
        assert!(Identity::load(&file, "http://a", "orders").expect("no file").is_none());
        let mut identity = Identity::fresh("http://a", "orders", AgentId::from_random(7));
        identity.subscription = Some("sub_1".to_owned());
        identity.save(&file).expect("written");
        identity.save(&file).expect("written over");
        let mode = std::fs::metadata(&file).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let kept = Identity::load(&file, "http://a", "orders").expect("read").expect("there");
        assert_eq!(
            (kept.agent, kept.channel, &kept.subscription),
            (identity.agent, identity.channel, &identity.subscription)
        );
        let sealed = identity.keys.receiver().encrypt(b"x", 0);
        assert_eq!(kept.keys.decrypt_aes128gcm(&sealed).expect("the same keys"), b"x");
    }

    #[test]
    fn a_file_of_something_else_is_left_alone() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("agent.json");
        Identity::fresh("http://a", "orders", AgentId::from_random(7)).save(&file).expect("saved");
        for (server, topic) in [("http://b", "orders"), ("http://a", "invoices")] {
            let error = Identity::load(&file, server, topic).expect_err("refused").to_string();
            assert!(error.contains("of the topic orders at http://a"), "{error}");
        }
        for text in ["", "{}", "nonsense"] {
            std::fs::write(&file, text).expect("written");
            assert!(Identity::load(&file, "http://a", "orders").is_err(), "{text:?}");
        }
        assert!(Identity::load(dir.path(), "http://a", "orders").is_err(), "a folder");
    }
}
