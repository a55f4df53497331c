//! What the program tells about itself: its version, its man pages, completions for shells, and whether a server is
//! ready.

use clap::{Command, CommandFactory};
use posthorn_server::cli::Cli;
use posthorn_testkit::program::Home;
use serde_json::Value;

#[test]
fn the_version_names_the_schema_of_each_store() {
    let home = Home::new();
    let plain = home.run("version").exits(0);
    assert!(plain.out.starts_with(concat!("posthorn ", env!("CARGO_PKG_VERSION"), "\n")));
    let told = home.run("version --json").exits(0).json();
    assert_eq!(told["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(told["stores"]["sqlite"]["schema"], posthorn_store_sqlite::SCHEMA_VERSION);
    assert_eq!(told["stores"]["postgres"]["schema"], posthorn_store_postgres::SCHEMA_VERSION);
    assert!(told["commit"].is_null() || told["commit"].is_string(), "{told}");
}

#[test]
fn every_command_has_a_man_page() {
    fn names(command: &Command, path: &str, found: &mut Vec<String>) {
        found.push(format!("{path}.1"));
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
            names(sub, &format!("{path}-{}", sub.get_name()), found);
        }
    }
    let home = Home::new();
    let told = home.run("man --to pages/new --json").exits(0).json();
    let mut wanted = Vec::new();
    names(&Cli::command(), "posthorn", &mut wanted);
    wanted.sort_unstable();
    let written: Vec<&str> =
        told["pages"].as_array().expect("pages").iter().filter_map(Value::as_str).collect();
    assert_eq!(written, wanted);
    let page = home.read("pages/new/posthorn-serve.1");
    assert!(page.contains(".TH posthorn-serve 1") && page.contains("first start"), "{page}");

    home.write("a-file", "");
    home.run("man --to a-file").exits(73).says(&["a-file", "cannot be written"]);
    home.run("man").exits(2);
}

#[test]
fn completions_know_every_command() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = home.run(&["completions", shell]).exits(0).out;
        for command in Cli::command().get_subcommands() {
            assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
        }
    }
    home.run("completions tcsh").exits(2).says(&["tcsh", "bash"]);
}

#[test]
fn health_asks_without_a_key_and_says_when_nobody_answers() {
    let (home, server) = Home::new().served();
    let ready = server.ask("health");
    assert_eq!(ready["status"], "ready");
    let address = server.url.clone();
    let asked = home.run(&["health", "--server", &address]).exits(0);
    assert!(asked.out.contains("ready"), "{}", asked.out);
    server.stop();
    home.run(&["health", "--server", &address]).exits(69);
}
