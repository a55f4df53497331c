//! `posthorn check`: validates the configuration and shows what is in effect, and why. Its
//! subcommands check other things without a server: URLs, the address policy itself, and what is stored.

mod guard;
mod store;
mod url;

use posthorn_domain::policy::profiles::shipped;
use serde_json::{Value, json};

use crate::config::layers::{DEFAULTS, Source};
use crate::config::listeners::Surface;
use crate::config::shown::redacted;
use crate::config::{self, Loaded};
use crate::open_files::{self, InEffect};
use crate::preflight;
use crate::serve::ConfigArgs;
use crate::terminal::{self, Paint};

/// Validate the configuration and show what is in effect, and where it comes from
#[derive(clap::Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    other: Option<Other>,
    #[command(flatten)]
    config: ConfigArgs,
    /// Show the documented defaults instead
    #[arg(long, conflicts_with = "profiles")]
    defaults: bool,
    /// Show all profiles in full instead
    #[arg(long)]
    profiles: bool,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum Other {
    Url(url::Args),
    Guard(guard::Args),
    Store(store::Args),
}

/// Runs it.
pub async fn run(args: &Args, json: bool) -> anyhow::Result<()> {
    match &args.other {
        Some(Other::Url(args)) => return url::run(args, json),
        Some(Other::Guard(args)) => return guard::run(args, json),
        Some(Other::Store(args)) => return store::run(args, json).await,
        None => {}
    }
    if args.defaults {
        return Ok(terminal::data(DEFAULTS.trim_end())?);
    }
    let mut loaded = config::load(&args.config.inputs())?;
    if args.profiles {
        return Ok(terminal::json(&serde_json::to_value(&loaded.config.engine.profiles)?)?);
    }
    // Certificates, URLs and header values are only looked at here; nothing is opened or asked.
    preflight::way_out(&loaded.config)?;
    let limits = open_files::in_effect(&mut loaded.config);
    if json {
        show_json(&loaded, &limits)?
    } else {
        show_text(&loaded)?;
        show_limits(&limits);
    }
    show_listeners(&loaded.config.server);
    let own = loaded.config.engine.profiles.len() - shipped().len();
    let file = match &loaded.file {
        Some(path) => format!("file {}", path.display()),
        None => format!("no file ({} does not exist)", config::FILE_DEFAULT),
    };
    terminal::note(
        Paint::stderr()
            .good(format_args!("the configuration is valid: {file}, {own} own profiles")),
    );
    Ok(())
}

/// What each listener serves, which follows from several keys.
fn show_listeners(server: &config::Server) {
    let names = |surfaces: &[Surface]| {
        let names: Vec<String> = surfaces.iter().map(Surface::to_string).collect();
        names.join(", ")
    };
    let served = names(&server.surfaces);
    terminal::note(format_args!("{} (server.listen) serves {served}", server.listen));
    if let Some(listen) = server.admin_listen {
        let served = names(&server.admin_surfaces);
        terminal::note(format_args!("{listen} (server.admin_listen) serves {served}"));
    }
}

fn show_json(loaded: &Loaded, limits: &InEffect) -> anyhow::Result<()> {
    let entries: Vec<Value> = loaded
        .layers
        .entries()
        .into_iter()
        .map(|(path, value, source)| {
            let key = path.join(".");
            let value = redacted(&key, value);
            let held = limits.connections.iter().find(|(limit, ..)| *limit == key);
            let mut entry = json!({"key": key, "value": value, "source": source.to_string()});
            if let Some((_, _, held)) = held {
                entry["in_effect"] = (*held).into();
            }
            entry
        })
        .collect();
    Ok(terminal::json(&Value::Array(entries))?)
}

/// How many connections a start would have here: Web Push has other defaults, and the system its own
/// limit.
fn show_limits(limits: &InEffect) {
    let held = limits.connections.iter().map(|(key, said, held)| match said == held {
        true => format!("{key} {held}"),
        false => format!("{key} {held} (not {said})"),
    });
    let held: Vec<String> = held.collect();
    let files = match limits.files {
        Some(files) => format!("with {files} open files, which is what the system allows"),
        None => "the system does not limit open files".to_owned(),
    };
    let text = format!("connections in effect here: {}; {files}", held.join(", "));
    let lowered = limits.connections.iter().any(|(_, said, held)| said != held);
    let paint = Paint::stderr();
    if lowered { terminal::note(paint.warn(text)) } else { terminal::note(text) }
}

fn show_text(loaded: &Loaded) -> anyhow::Result<()> {
    let paint = Paint::stdout();
    let entries: Vec<(String, String, &Source)> = loaded
        .layers
        .entries()
        .into_iter()
        .map(|(path, value, source)| {
            let key = path.join(".");
            let text = match redacted(&key, value) {
                Value::String(text) => text,
                other => other.to_string(),
            };
            (key, text, source)
        })
        .collect();
    let width = |of: fn(&(String, String, &Source)) -> usize| entries.iter().map(of).max();
    let key_width = width(|(key, _, _)| key.chars().count()).unwrap_or(0);
    let text_width = width(|(_, text, _)| text.chars().count()).unwrap_or(0).min(40);
    for (key, text, source) in &entries {
        let line = format!("{key:key_width$}  {text:text_width$}  ");
        if matches!(source, Source::Default) {
            terminal::data(format_args!("{line}{}", paint.dim(source)))?;
        } else {
            terminal::data(format_args!("{}{source}", paint.bold(line)))?;
        }
    }
    Ok(())
}
