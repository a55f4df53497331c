//! `posthorn explain`: what an error code means, and what to do. Needs no server.

use posthorn_api::{ErrorCode, error_codes};
use serde_json::{Value, json};

use crate::exit::{self, Code, Failure};
use crate::terminal::{self, Paint};

/// Explain an error code of the API, or an exit code
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The code, e.g. unknown_topic or 75; all are listed without it
    code: Option<String>,
}

/// Runs it.
pub fn run(args: &Args, json: bool) -> anyhow::Result<()> {
    let Some(asked) = args.code.as_deref() else { return list(json) };
    if let Ok(number) = asked.parse::<u8>() {
        return explain_exit(number, json);
    }
    let wanted = asked.to_lowercase().replace('-', "_");
    let Some(code) = error_codes().iter().find(|code| code.code == wanted) else {
        return Err(Failure::new(Code::Failure, format!("there is no error code `{asked}`"))
            .hint("`posthorn explain` lists all")
            .into());
    };
    if json {
        return Ok(terminal::json(&as_json(code))?);
    }
    let paint = Paint::stdout();
    terminal::data(format_args!(
        "{} ({} {})\n\n{}\n\n{} {}",
        paint.bold(code.code),
        code.status,
        code.title,
        code.meaning,
        paint.bold("What to do:"),
        code.remedy
    ))?;
    Ok(())
}

fn as_json(code: &ErrorCode) -> Value {
    json!({
        "code": code.code, "status": code.status, "title": code.title,
        "meaning": code.meaning, "remedy": code.remedy,
    })
}

fn explain_exit(number: u8, json: bool) -> anyhow::Result<()> {
    let Some((_, meaning, remedy)) = exit::CODES.iter().find(|(code, ..)| *code as u8 == number)
    else {
        return Err(Failure::new(Code::Failure, format!("there is no exit code {number}"))
            .hint("`posthorn explain` lists all")
            .into());
    };
    if json {
        let value = json!({"exit_code": number, "meaning": meaning, "remedy": remedy});
        return Ok(terminal::json(&value)?);
    }
    let paint = Paint::stdout();
    terminal::data(format_args!(
        "{}: {meaning}\n\n{} {remedy}",
        paint.bold(format_args!("exit code {number}")),
        paint.bold("What to do:"),
    ))?;
    Ok(())
}

fn list(json: bool) -> anyhow::Result<()> {
    if json {
        let errors: Vec<Value> = error_codes().iter().map(as_json).collect();
        let exits: Vec<Value> = exit::CODES
            .iter()
            .map(|(code, meaning, remedy)| {
                json!({"exit_code": *code as u8, "meaning": meaning, "remedy": remedy})
            })
            .collect();
        return Ok(terminal::json(&json!({"errors": errors, "exit_codes": exits}))?);
    }
    let errors: Vec<Vec<String>> = error_codes()
        .iter()
        .map(|code| vec![code.code.to_owned(), code.status.to_string(), code.title.to_owned()])
        .collect();
    terminal::data(terminal::table(&["CODE", "STATUS", "TITLE"], &errors))?;
    let exits: Vec<Vec<String>> = exit::CODES
        .iter()
        .map(|(code, meaning, _)| vec![(*code as u8).to_string(), (*meaning).to_owned()])
        .collect();
    terminal::data(format_args!("\n{}", terminal::table(&["EXIT CODE", "MEANING"], &exits)))?;
    Ok(())
}
