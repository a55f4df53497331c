//! The reference pages say what the program does.

use std::path::PathBuf;

use clap::{Command, CommandFactory};
use posthorn_server::cli::Cli;
use posthorn_server::config::layers::DEFAULTS;
use posthorn_server::exit::CODES;

fn page(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(page(name)).expect("the page is there")
}

#[test]
fn every_key_is_in_the_reference() {
    const MARK: &str = "```yaml\n# Every key";
    let text = read("config.md");
    let begin = text.rfind(MARK).expect("the marked place") + "```yaml\n".len();
    let wanted = format!("{}{DEFAULTS}```\n", &text[..begin]);
    if text != wanted && std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(page("config.md"), &wanted).expect("written");
        return;
    }
    assert!(text == wanted, "docs/reference/config.md is old; run with UPDATE_GOLDEN=1");
}

#[test]
fn every_command_is_in_the_reference() {
    let text = read("cli.md");
    let mut missing = Vec::new();
    visit(&Cli::command(), "posthorn", &mut |path| {
        if !text.contains(&format!("`{path}`")) && !text.contains(&format!("`{path} ")) {
            missing.push(path.to_owned());
        }
    });
    assert!(missing.is_empty(), "not in docs/reference/cli.md: {missing:?}");
}

fn visit(command: &Command, path: &str, found: &mut impl FnMut(&str)) {
    let mut commands = command.get_subcommands().filter(|sub| sub.get_name() != "help").peekable();
    if commands.peek().is_none() {
        return found(path);
    }
    for sub in commands {
        visit(sub, &format!("{path} {}", sub.get_name()), found);
    }
}

/// The commands that take a file and any key of the configuration, and no others.
#[test]
fn the_commands_that_read_the_configuration_are_named() {
    fn walk(command: &Command, path: &str, found: &mut Vec<String>) {
        let takes =
            |flag| command.get_arguments().any(|argument| argument.get_long() == Some(flag));
        if takes("config") && takes("set") {
            found.push(path.to_owned());
        }
        for sub in command.get_subcommands() {
            walk(sub, format!("{path} {}", sub.get_name()).trim_start(), found);
        }
    }
    let mut found = Vec::new();
    walk(&Cli::command(), "", &mut found);
    found.sort();
    let text = read("cli.md");
    let (before, _) = text.split_once(" read the [configuration](config.md)").expect("a sentence");
    let (_, sentence) = before.rsplit_once("\n\n").expect("a paragraph");
    let mut named: Vec<&str> = sentence.split('`').skip(1).step_by(2).collect();
    named.sort_unstable();
    assert_eq!(named, found);
}

#[test]
fn every_exit_code_is_in_the_reference() {
    let text = read("cli.md");
    for (code, meaning, remedy) in CODES {
        let row = format!("| {} | {meaning} | {remedy} |\n", code as u8);
        assert!(text.contains(&row), "not in docs/reference/cli.md: {row}");
    }
}

/// A page that teaches a command which is not there sends whoever is new away.
#[test]
fn every_command_that_a_page_of_the_console_shows_is_one() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../console/templates");
    let mut shown = 0;
    for file in std::fs::read_dir(folder).expect("templates") {
        let path = file.expect("a file").path();
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        for after in text.split("posthorn ").skip(1) {
            let line = after.split(['<', '\n']).next().unwrap_or_default();
            // What a template fills in is one word, and so is a payload.
            let line = line.replace("{{ ", "{{").replace(" }}", "}}").replace("\": ", "\":");
            let words: Vec<&str> = line.split_whitespace().collect();
            // Sentences speak of posthorn as well; commands begin with the name of one.
            let Some(name) = words.first() else { continue };
            if !Cli::command().get_subcommands().any(|sub| sub.get_name() == *name) {
                continue;
            }
            shown += 1;
            let words = [&["posthorn"], &words[..]].concat();
            if let Err(e) = Cli::command().try_get_matches_from(&words) {
                panic!("{}: {}: {e}", path.display(), words.join(" "));
            }
        }
    }
    assert!(shown >= 5, "{shown} commands were found");
}
