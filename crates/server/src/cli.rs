//! The command line: what can be typed, and where it goes.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::client::Access;
use crate::commands::{
    Context, audit, backup, callbacks, certificates, check, completions, deliveries, event_types,
    events, explain, filters, health, import, jobs, keys, listen, man, metrics, nodes,
    notificaties, portal, profiles, push, realms, redrives, restore, seal, send, sessions, store,
    subscriptions, tenants, topics, verify, version,
};
use crate::exit::{self, Code};
use crate::former;
use crate::terminal::{self, Paint};
use crate::{demo, serve};

/// A notification delivery server: publish an event once, and every subscriber gets it
///
/// Data goes to stdout, everything else to stderr. Exit codes are explained by `posthorn explain`.
#[derive(Parser, Debug)]
#[command(name = "posthorn", version, max_term_width = 100, after_help = AFTER_HELP)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Show data as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    access: Access,
}

const AFTER_HELP: &str = "\
Try it:
  posthorn demo                      one minute on this machine, nothing to configure
  posthorn serve --allow 127.0.0.1   a server that may deliver to this machine
";

#[derive(Subcommand, Debug)]
enum Command {
    Serve(serve::Args),
    Demo(demo::Args),
    Send(send::Args),
    Listen(listen::Args),
    /// List, show, put and delete topics
    #[command(subcommand)]
    Topics(topics::Command),
    /// List, show, create, change and test subscriptions
    #[command(subcommand)]
    Subscriptions(subscriptions::Command),
    /// Try out which events a filter matches
    #[command(subcommand)]
    Filters(filters::Command),
    /// List profiles, and change them while everything runs
    #[command(subcommand)]
    Profiles(profiles::Command),
    /// What operators of the Notificaties API need
    #[command(subcommand)]
    Notificaties(notificaties::Command),
    /// Send one webhook of a payment server, without a server
    #[command(subcommand)]
    Callbacks(callbacks::Command),
    /// List events, explain what became of one, publish one again
    #[command(subcommand)]
    Events(events::Command),
    /// List, show, retry and cancel deliveries
    #[command(subcommand)]
    Deliveries(deliveries::Command),
    /// List attempts of all deliveries
    #[command(subcommand)]
    Attempts(deliveries::Attempts),
    /// List, show and retry dead letters; `redrives` tries many again
    #[command(subcommand)]
    DeadLetters(deliveries::DeadLetters),
    /// List, show and cancel jobs: replays, resends, single events, removed payloads
    #[command(subcommand)]
    Jobs(jobs::Command),
    /// Try many dead letters again: list, show, create and cancel redrives
    #[command(subcommand)]
    Redrives(redrives::Command),
    /// Show how many events and deliveries there are
    Stats,
    /// Show what happened in the past, by the minute or by the hour
    #[command(subcommand)]
    Metrics(metrics::Command),
    /// List, show, put and delete realms
    #[command(subcommand)]
    Realms(realms::Command),
    /// List, show, create, change, export and delete tenants
    #[command(subcommand)]
    Tenants(tenants::Command),
    /// List, show, put, delete and import event types
    #[command(subcommand)]
    EventTypes(event_types::Command),
    /// Take things over from a server of another system
    #[command(subcommand)]
    Import(import::Command),
    /// List who changed what
    #[command(subcommand)]
    Audit(audit::Command),
    /// Create links into the portal
    #[command(subcommand)]
    Portal(portal::Command),
    /// List and end sessions of console and portal
    #[command(subcommand)]
    Sessions(sessions::Command),
    /// List, show, create, revoke and recover API keys
    #[command(subcommand)]
    Keys(keys::Command),
    /// Create and rotate the key that seals secrets at rest
    #[command(subcommand)]
    Seal(seal::Command),
    /// Copy a store to another database, try a database before it is used
    #[command(subcommand)]
    Store(store::Command),
    /// List nodes, with the shards they hold
    #[command(subcommand)]
    Nodes(nodes::Command),
    /// Look at Web Push and its agents; show and create its keys
    #[command(subcommand)]
    Push(push::Command),
    /// List, show, create, rotate, revoke and delete certificates
    #[command(subcommand)]
    Certificates(certificates::Command),
    Backup(backup::Args),
    Restore(restore::Args),
    /// End the hold of a server that was started with `serve --hold`
    Resume,
    Check(check::Args),
    Explain(explain::Args),
    Verify(Box<verify::Args>),
    Health(health::Args),
    Version(version::Args),
    Completions(completions::Args),
    Man(man::Args),
}

/// Reads the command line and does what it says.
pub async fn run() -> ExitCode {
    // Usage errors end here, with code 2; so do --help and --version, with code 0.
    let done = match Cli::try_parse() {
        Ok(cli) => Box::pin(dispatch(cli)).await,
        Err(error) => match former::renamed(&error, std::env::args_os()) {
            Some(renamed) => Err(renamed.into()),
            None => error.exit(),
        },
    };
    match done {
        Ok(code) => code,
        Err(error) if exit::is_broken_pipe(&error) => Code::Ok.into(),
        Err(error) => {
            report(&error);
            exit::code_of(&error).into()
        }
    }
}

async fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    let Cli { command, json, access } = cli;
    let context = || Context::new(&access, json);
    match command {
        Command::Serve(args) => serve::run(&args).await?,
        Command::Demo(args) => demo::run(&args, json).await?,
        Command::Send(args) => send::run(&context()?, &args).await?,
        Command::Listen(args) => listen::run(&access, json, &args).await?,
        Command::Topics(command) => topics::run(&context()?, &command).await?,
        Command::Subscriptions(command) => subscriptions::run(&context()?, command).await?,
        Command::Filters(command) => filters::run(&context()?, &command).await?,
        Command::Profiles(command) => profiles::run(&context()?, &command).await?,
        Command::Notificaties(command) => notificaties::run(&context()?, &command).await?,
        Command::Callbacks(command) => callbacks::run(&command, json).await?,
        Command::Events(command) => events::run(&context()?, &command).await?,
        Command::Deliveries(command) => deliveries::run(&context()?, &command).await?,
        Command::Attempts(command) => deliveries::run_attempts(&context()?, &command).await?,
        Command::Jobs(command) => jobs::run(&context()?, &command).await?,
        Command::DeadLetters(command) => {
            deliveries::run_dead_letters(&context()?, &command).await?;
        }
        Command::Redrives(command) => redrives::run(&context()?, &command).await?,
        Command::Stats => {
            let context = context()?;
            let stats = context.client.get("/v1/stats").await?;
            context.show_one(&stats, "events pending delivered dead cancelled")?;
        }
        Command::Metrics(command) => metrics::run(&context()?, &command).await?,
        Command::Realms(command) => realms::run(&context()?, &command).await?,
        Command::EventTypes(command) => event_types::run(&context()?, &command).await?,
        Command::Tenants(command) => tenants::run(&context()?, &command).await?,
        Command::Import(command) => import::run(&access, json, &command).await?,
        Command::Audit(command) => audit::run(&context()?, &command).await?,
        Command::Portal(command) => portal::run(&context()?, &command).await?,
        Command::Sessions(command) => sessions::run(&context()?, &command).await?,
        Command::Keys(command) => keys::run(&access, json, &command).await?,
        Command::Seal(command) => seal::run(&access, json, &command).await?,
        Command::Nodes(command) => nodes::run(&context()?, &command).await?,
        Command::Push(command) => push::run(&access, json, &command).await?,
        Command::Certificates(command) => certificates::run(&context()?, &command).await?,
        Command::Backup(args) => backup::run(&args, json).await?,
        Command::Restore(args) => restore::run(&args, json).await?,
        Command::Resume => restore::resume(&context()?).await?,
        Command::Store(command) => Box::pin(store::run(&command, json)).await?,
        Command::Check(args) => Box::pin(check::run(&args, json)).await?,
        Command::Explain(args) => explain::run(&args, json)?,
        Command::Verify(args) => verify::run(&args, json)?,
        Command::Health(args) => health::run(&context()?, &args).await?,
        Command::Version(args) => version::run(&args, json)?,
        Command::Completions(args) => completions::run(&args, Cli::command())?,
        Command::Man(args) => man::run(&args, Cli::command(), json)?,
    }
    Ok(Code::Ok.into())
}

/// One line with all causes, and what to do.
fn report(error: &anyhow::Error) {
    let paint = Paint::stderr();
    terminal::note(format!("{} {error:#}", paint.bad("error:")));
    if let Some(hint) = exit::hint_of(error) {
        terminal::note(format!("{} {hint}", paint.bold("hint:")));
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::Cli;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
