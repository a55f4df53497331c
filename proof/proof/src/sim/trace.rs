//! The trace: what happened, as one running hash, and as text when somebody wants to read it.

use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};

use posthorn_domain::Timestamp;

/// Everything that happened so far.
pub(crate) struct Trace {
    hasher: DefaultHasher,
    entries: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(crate) fn new(verbose: bool) -> Self {
        Self { hasher: DefaultHasher::new(), entries: 0, lines: verbose.then(Vec::new) }
    }

    /// Takes note.
    pub(crate) fn note<T: Hash + Debug>(&mut self, at: Timestamp, kind: &'static str, what: &T) {
        self.entries += 1;
        (at, kind).hash(&mut self.hasher);
        what.hash(&mut self.hasher);
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{at} {kind} {what:?}"));
        }
    }

    /// The hash of everything so far.
    pub(crate) fn hash(&self) -> u64 {
        self.hasher.finish()
    }

    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        self.lines.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
