//! `posthorn notificaties`.

mod clients;
mod resend;

use std::path::{Path, PathBuf};

use http::Method;
use posthorn_dialects::notificaties::settings::{
    BASE_FACTOR, MAX_RETRIES, RETRY_BACKOFF, RETRY_BACKOFF_MAX, Settings, SettingsChange,
};
use posthorn_dialects::notificaties::{Setup, resolve};
use posthorn_domain::Policy;
use serde_json::{Map, Value, json};

use super::Context;
use crate::client::{Call, segment};
use crate::config::layers::parse_yaml;
use crate::exit::{Code, Failure};
use crate::terminal;

/// What operators of the Notificaties API need
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// Show the four settings of deliveries, or change those that are given, while everything runs
    Settings {
        /// Retries after the first send
        #[arg(long, value_name = "NUMBER")]
        max_retries: Option<u64>,
        /// The factor of all waits in seconds; true for 1, false for no wait
        #[arg(long, value_name = "SECONDS", value_parser = parse_backoff)]
        retry_backoff: Option<Value>,
        /// The longest wait, in seconds
        #[arg(long, value_name = "SECONDS")]
        retry_backoff_max: Option<f64>,
        /// Each wait is this many times the one before
        #[arg(long, value_name = "NUMBER")]
        base_factor: Option<f64>,
        /// The profile of the abonnementen (dialects.notificaties.profile)
        #[arg(long, default_value = "notificaties")]
        profile: String,
    },
    /// Apply a setup_configuration file of Open Notificaties to the server, while everything runs
    ///
    /// Repeating it changes nothing but what is different by then. What the file no longer names stays:
    /// `posthorn notificaties clients delete` takes a client away. `value_from` is looked up in the
    /// environment of this command. Needs an operator key.
    Setup {
        /// The file
        file: PathBuf,
    },
    /// Send messages of the past again, at a bounded rate
    ///
    /// Needs an operator key, and the tenant of the API (--tenant). What was sent again, and how often, is in the
    /// job: `posthorn jobs show ID`.
    Resend(Box<resend::Args>),
    /// List, show, put and delete clients: their secrets, and what they may do
    #[command(subcommand)]
    Clients(clients::Command),
}

const FIELDS: [&str; 4] = [MAX_RETRIES, RETRY_BACKOFF, RETRY_BACKOFF_MAX, BASE_FACTOR];

fn parse_backoff(text: &str) -> Result<Value, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Ok(Value::Bool(true)),
        "false" => Ok(Value::Bool(false)),
        number => match number.parse::<f64>() {
            Ok(number) => Ok(json!(number)),
            Err(_) => Err("write a number of seconds, true or false".to_owned()),
        },
    }
}

/// Runs it.
pub async fn run(context: &Context, command: &Command) -> anyhow::Result<()> {
    let (max_retries, retry_backoff, retry_backoff_max, base_factor, profile) = match command {
        Command::Settings {
            max_retries,
            retry_backoff,
            retry_backoff_max,
            base_factor,
            profile,
        } => (max_retries, retry_backoff, retry_backoff_max, base_factor, profile),
        Command::Setup { file } => return setup(context, file).await,
        Command::Resend(args) => return resend::run(context, args).await,
        Command::Clients(command) => return clients::run(context, command).await,
    };
    let given = [
        (MAX_RETRIES, max_retries.map(Value::from)),
        (RETRY_BACKOFF, retry_backoff.clone()),
        (RETRY_BACKOFF_MAX, retry_backoff_max.map(Value::from)),
        (BASE_FACTOR, base_factor.map(Value::from)),
    ];
    let given: Map<String, Value> =
        given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    let change = SettingsChange::read(&given).map_err(|e| Failure::new(Code::Usage, e))?;
    let path = format!("/v1/profiles/{}", segment(profile));
    let present = context.client.get(&*path).await?;
    let settings = of(&present)?.with(&change);
    if change.is_empty() {
        return context.show_one(&settings.view(), &FIELDS.join(" "));
    }
    let mut body = json!({"policy": settings.patch_over(present.get("changes"))});
    if let Some(base) = present.get("base") {
        body["base"] = base.clone();
    }
    let call = Call::new(Method::PUT, path).body(body.to_string());
    let changed = context.client.call(call).await?.json()?;
    context.show_one(&of(&changed)?.view(), &FIELDS.join(" "))
}

/// Has the server apply a file.
async fn setup(context: &Context, file: &Path) -> anyhow::Result<()> {
    let wrong = |text: String| {
        Failure::new(Code::Usage, format!("{} cannot be applied: {text}", file.display()))
    };
    let text = std::fs::read_to_string(file).map_err(|e| wrong(e.to_string()))?;
    let document = parse_yaml(&text).map_err(|problem| wrong(problem.into()))?;
    let env = |name: &str| std::env::var(name).ok();
    let whole = resolve(&document, &env).map_err(|problems| wrong(problems.join("; ")))?;
    // What is wrong with it is said here, with nothing sent.
    Setup::read(&whole, &|_| None).map_err(|problems| wrong(problems.join("; ")))?;
    let call = Call::new(Method::PUT, "/v1/notificaties/setup").body(whole.to_string());
    let body = context.client.call(call).await?.json()?;
    if context.json {
        return Ok(terminal::json(&body)?);
    }
    for what in body.get("changed").and_then(Value::as_array).into_iter().flatten() {
        terminal::data(what.as_str().unwrap_or_default())?;
    }
    for what in body.get("ignored").and_then(Value::as_array).into_iter().flatten() {
        let what = what.as_str().unwrap_or_default();
        terminal::note(format!(
            "the section {what} was not applied: it does not apply here, or only at startup"
        ));
    }
    let count = |name| body.get(name).map_or(0, |list| list.as_array().map_or(0, Vec::len));
    let unchanged = terminal::cell(&body, "unchanged");
    terminal::note(format!("{} changed, {unchanged} unchanged", count("changed")));
    Ok(())
}

/// The settings that a profile is made of.
fn of(profile: &Value) -> anyhow::Result<Settings> {
    let policy = profile.get("policy").cloned().unwrap_or_default();
    let policy: Option<Policy> = serde_json::from_value(policy).ok();
    policy.and_then(|policy| Settings::of(&policy.schedule)).ok_or_else(|| {
        let message = "the retry waits of the profile do not match the four settings";
        Failure::new(Code::Failure, message)
            .hint(
                "look at it with `posthorn profiles show`; `posthorn profiles delete` removes \
                   changes",
            )
            .into()
    })
}
