//! Keys that are created here, without a server, and where they go.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::private_file;
use crate::terminal;

/// Where a new key goes.
#[derive(clap::Args, Clone, Debug)]
pub struct To {
    /// Write it to a new file that only its owner can read, instead of stdout
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

/// A key that was just created.
pub(super) struct NewKey {
    /// The key itself.
    pub(super) text: String,
    /// Its public half, when it has one.
    pub(super) public: Option<String>,
    /// How it is used, with FILE where its file is named.
    pub(super) place: &'static str,
}

impl NewKey {
    /// One that is secret as a whole.
    pub(super) fn secret(text: String, place: &'static str) -> Self {
        Self { text, public: None, place }
    }

    /// Writes it to where it goes.
    pub(super) fn give(self, to: &To, json: bool) -> anyhow::Result<()> {
        match &to.to {
            None if json => return self.show_json(),
            None => terminal::data(&self.text)?,
            Some(file) => self.keep(file)?,
        }
        if let Some(public) = self.public {
            terminal::note(format!("its public half (applicationServerKey): {public}"));
        }
        Ok(())
    }

    fn show_json(self) -> anyhow::Result<()> {
        let mut shown = json!({"key": self.text});
        if let Some(public) = self.public {
            shown["public_key"] = public.into();
        }
        Ok(terminal::json(&shown)?)
    }

    fn keep(&self, file: &Path) -> anyhow::Result<()> {
        private_file::write_new(file, "the key", std::iter::once(self.text.clone()))?;
        let shown = file.display().to_string();
        let place = self.place.replace("FILE", &shown);
        terminal::note(format!("wrote {shown}; use it with `{place}`"));
        Ok(())
    }
}
