//! `posthorn check`: validates the configuration and shows what is in effect, and why. Its
//! subcommands check other things without a server: URLs, the address policy itself, and what is stored.

mod guard;
mod store;
mod url;

use posthorn_domain::policy::profiles::shipped;
use serde_json::{Value, json};

use crate::config::layers::{DEFAULTS, Source};
use crate::config::listeners::Surface;
use crate::config::values::SecretRef;
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

/// Without passwords. Secrets are references, which may be shown; a database's URL may hold one, and
/// payment servers' blocks have always held theirs.
fn redacted(key: &str, value: &Value) -> Value {
    match value {
        Value::String(text) if key == "store.url" => Value::String(redact_url(text)),
        Value::Null => Value::Null,
        value
            if key == "callbacks.hmac_secret"
                || ["callbacks.headers.", "telemetry.otlp.headers."]
                    .iter()
                    .any(|section| key.starts_with(section)) =>
        {
            let kept_elsewhere =
                |text: &&str| text.starts_with("env:") || text.starts_with("file:");
            match value.as_str().filter(kept_elsewhere) {
                Some(_) => value.clone(),
                None => Value::String("(redacted)".to_owned()),
            }
        }
        Value::String(text) if key.ends_with(".authorizations.secret") => {
            match SecretRef::parse(text) {
                Some(_) => value.clone(),
                None => Value::String("(redacted)".to_owned()),
            }
        }
        Value::Array(items) if key.ends_with(".credentials") => {
            items.iter().cloned().map(without_secret).collect()
        }
        other => other.clone(),
    }
}

/// A credential whose secret is written out does not show it.
fn without_secret(mut item: Value) -> Value {
    if let Some(Value::String(text)) = item.get_mut("secret")
        && SecretRef::parse(text).is_none()
    {
        *text = "(redacted)".to_owned();
    }
    item
}

fn redact_url(text: &str) -> String {
    let Ok(mut url) = ::url::Url::parse(text) else {
        return if text == "sqlite" { text.to_owned() } else { "(redacted)".to_owned() };
    };
    if matches!(url.scheme(), "env" | "file") {
        return text.to_owned();
    }
    if url.password().is_some() && url.set_password(Some("redacted")).is_err() {
        return "(redacted)".to_owned();
    }
    // A password may also be given as a parameter.
    if url.query_pairs().any(|(name, _)| name == "password") {
        return "(redacted)".to_owned();
    }
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::redact_url;

    #[test]
    fn passwords_are_not_shown() {
        for (text, shown) in [
            ("sqlite", "sqlite"),
            ("env:DATABASE", "env:DATABASE"),
            ("file:/run/db", "file:/run/db"),
            ("postgres://u:hush@h:5432/d", "postgres://u:redacted@h:5432/d"),
            ("postgres://u@h/d", "postgres://u@h/d"),
            ("postgres://h/d?password=hush", "(redacted)"),
        ] {
            assert_eq!(redact_url(text), shown);
        }
    }
}
