//! Names that commands had before 1.0: whoever types one is told the one it has now.

use std::ffi::OsString;

use clap::error::{Error, ErrorKind};

use crate::exit::{Code, Failure};

/// What was typed, and what is typed now.
const RENAMED: [(&str, &str); 12] = [
    ("dead-letters redrive", "redrives create"),
    ("dead-letters redrives", "redrives list"),
    ("dead-letters cancel", "redrives cancel"),
    ("keys rotate-seal", "seal rotate"),
    ("keys generate-seal", "seal create"),
    ("keys generate seal", "seal create"),
    ("keys generate endpoint", "push create-key endpoint"),
    ("keys generate node", "push create-key node"),
    ("keys generate sender", "push create-key sender"),
    ("keys push", "push show-key"),
    ("keys endpoint-keys", "push show-endpoint-keys"),
    ("certificates add", "certificates create"),
];

/// The new name of a command, when it is for an old one that a command line makes no sense.
pub(crate) fn renamed(error: &Error, args: impl Iterator<Item = OsString>) -> Option<Failure> {
    if !matches!(error.kind(), ErrorKind::InvalidSubcommand | ErrorKind::InvalidValue) {
        return None;
    }
    let args: Vec<OsString> = args.skip(1).collect();
    let (old, new) = RENAMED.iter().find(|(old, _)| has(&args, old))?;
    let noun = new.split(' ').next().unwrap_or_default();
    let failure = Failure::new(Code::Usage, format!("`{old}` is now `{new}`"));
    Some(failure.hint(format!("`posthorn help {noun}` shows what else there is")))
}

/// Whether all words of a name were typed, in their order; flags may stand between them.
fn has(args: &[OsString], name: &str) -> bool {
    let mut args = args.iter();
    name.split(' ').all(|word| args.any(|arg| arg == word))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    fn renamed_in(line: &str) -> Option<String> {
        let words: Vec<OsString> =
            format!("posthorn {line}").split(' ').map(OsString::from).collect();
        let error = Cli::command().try_get_matches_from(&words).err()?;
        renamed(&error, words.into_iter()).map(|failure| failure.to_string())
    }

    #[test]
    fn every_old_name_is_an_error_that_names_the_new_one() {
        for (old, new) in RENAMED {
            for line in [old.to_owned(), format!("--json {}", old.replacen(' ', " --json ", 1))] {
                assert_eq!(renamed_in(&line), Some(format!("`{old}` is now `{new}`")), "{line}");
            }
        }
    }

    #[test]
    fn every_new_name_is_a_command() {
        for (_, new) in RENAMED {
            let mut command = &Cli::command();
            for word in new.split(' ').take(2) {
                command = command.find_subcommand(word).expect(new);
            }
        }
    }

    #[test]
    fn other_mistakes_are_told_as_they_are() {
        for line in ["keys generate", "dead-letters nothing", "send keys push --nothing"] {
            assert_eq!(renamed_in(line), None, "{line}");
        }
    }
}
