//! Exit codes, and errors that carry one.
//!
//! The codes are part of the interface: scripts and supervisors act on them. Those from 64 on follow
//! `sysexits.h`, which systemd prints by name.

use std::fmt;
use std::process::ExitCode;

use crate::config::ConfigError;
use crate::terminal::OutputClosed;

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// It did what was asked.
    Ok = 0,
    /// It did not, for a reason that has no code of its own.
    Failure = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// What is stored is damaged.
    Damaged = 65,
    /// The server or the database cannot be reached, or does not take this now.
    Unavailable = 69,
    /// The engine failed for good.
    Software = 70,
    /// The data directory cannot be made or written.
    CannotCreate = 73,
    /// The disk is full or broken.
    Io = 74,
    /// The port or the data directory is in use.
    InUse = 75,
    /// The key is missing, wrong, or may not do this.
    Denied = 77,
    /// The configuration, or the seal key, is not right.
    Config = 78,
    /// A second signal came while the first was being obeyed.
    Interrupted = 130,
}

/// All codes with what they mean and what to do, for the help and for `explain`.
pub const CODES: [(Code, &str, &str); 12] = [
    (Code::Ok, "done", "Nothing."),
    (Code::Failure, "the command failed", "Read the message on stderr."),
    (Code::Usage, "the command line is not valid", "See `posthorn help`."),
    (
        Code::Damaged,
        "the stored data is damaged",
        "A restart does not fix this. Restore the database from a backup, and check the disk. \
         `posthorn check store` shows what is damaged.",
    ),
    (
        Code::Unavailable,
        "the server or the database cannot be reached, or is not available at the moment",
        "Start it, check its address, and try again later.",
    ),
    (
        Code::Software,
        "the store or the engine failed and cannot continue",
        "Restart the server; accepted events are safe on disk. If it happens again, check the log \
         and the disk, and run `posthorn check store`.",
    ),
    (
        Code::CannotCreate,
        "the data directory cannot be created or written",
        "Give the user that runs Posthorn write permission, or choose another directory with \
         --data.",
    ),
    (Code::Io, "the disk is full or broken", "Free some space or replace the disk, then restart."),
    (
        Code::InUse,
        "the port or the data directory is in use by another process",
        "Stop the other process, or choose another with --listen or --data.",
    ),
    (
        Code::Denied,
        "the API key is missing, wrong, or lacks the required scope; or this user may not listen on the port",
        "Give a key with --key or POSTHORN_KEY; an operator can create one with `posthorn keys \
         create`. Ports below 1024 need extra privileges.",
    ),
    (
        Code::Config,
        "the configuration or the seal key is not valid",
        "Correct the setting that the message names. `posthorn check` tests the configuration \
         without starting the server.",
    ),
    (Code::Interrupted, "a second signal ended the process before it had stopped", "Nothing."),
];

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        ExitCode::from(code as u8)
    }
}

/// An error with an exit code, and a hint at what to do.
#[derive(Debug)]
pub struct Failure {
    /// How the process ends.
    pub code: Code,
    /// What went wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The stable code of the server's problem document, when there is one.
    pub problem: Option<String>,
}

impl Failure {
    /// Without a hint.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, problem: None }
    }

    /// With a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// How the process ends after an error.
pub fn code_of(error: &anyhow::Error) -> Code {
    for cause in error.chain() {
        if let Some(failure) = cause.downcast_ref::<Failure>() {
            return failure.code;
        }
        if cause.downcast_ref::<ConfigError>().is_some() {
            return Code::Config;
        }
    }
    Code::Failure
}

/// What to do after an error, where somebody knows.
pub fn hint_of(error: &anyhow::Error) -> Option<&str> {
    let mut failures = error.chain().filter_map(|cause| cause.downcast_ref::<Failure>());
    failures.find_map(|failure| failure.hint.as_deref())
}

/// Whether nobody reads our output any more, as after `posthorn … | head`.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    causes.any(|io| io.get_ref().is_some_and(|inner| inner.is::<OutputClosed>()))
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_broken_connection_is_not_taken_for_closed_output() {
        let socket = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(!is_broken_pipe(&socket.context("the server is gone")));
        let output = io::Error::new(io::ErrorKind::BrokenPipe, OutputClosed);
        assert!(is_broken_pipe(&anyhow::Error::from(output).context("while printing")));
    }
}
