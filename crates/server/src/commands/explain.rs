//! `posthorn explain`: what an error code, a failure, a status, the end of a delivery or its waiting means, and what to
//! do. Needs no server.

use posthorn_api::{ErrorCode, Reason, error_codes, reasons};
use serde_json::{Value, json};

use crate::exit::{self, Code, Failure};
use crate::terminal::{self, Paint};

/// Explain an error code, a failure or status of an attempt, why a delivery ended or waits, or an exit code
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The code, e.g. unknown_topic, dns_failed, 503, exhausted, breaker or 75; without a code, all are listed
    code: Option<String>,
}

/// Runs it.
pub fn run(args: &Args, json: bool) -> anyhow::Result<()> {
    let Some(asked) = args.code.as_deref() else { return list(json) };
    let wanted = asked.to_lowercase().replace('-', "_");
    let code = error_codes().iter().find(|code| code.code == wanted);
    let reasons: Vec<Reason> = match asked.parse::<u16>() {
        // No exit code is the status of an answer, and no other number means anything.
        Ok(number) => match Reason::of_status(number) {
            None => return explain_exit(number, json),
            Some(status) => vec![status],
        },
        Err(_) => reasons().into_iter().filter(|reason| reason.code == wanted).collect(),
    };
    if code.is_none() && reasons.is_empty() {
        return Err(Failure::new(Code::Failure, format!("unknown code `{asked}`"))
            .hint("`posthorn explain` lists all codes")
            .into());
    }
    if json {
        // Few words are both; what the API answers with comes first.
        let mut all = code.map(as_json).into_iter().chain(reasons.iter().map(reason_as_json));
        let mut first = all.next().unwrap_or_default();
        let also: Vec<Value> = all.collect();
        if !also.is_empty() {
            first["also"] = Value::Array(also);
        }
        return Ok(terminal::json(&first)?);
    }
    let paint = Paint::stdout();
    let mut parts: Vec<String> = Vec::new();
    if let Some(code) = code {
        let title = format!("{} ({} {})", paint.bold(code.code), code.status, code.title);
        parts.push(told(paint, &title, code.meaning, code.remedy));
    }
    for reason in &reasons {
        let title = format!("{} ({})", paint.bold(reason.code), reason.kind.words());
        parts.push(told(paint, &title, reason.meaning, reason.remedy));
    }
    Ok(terminal::data(parts.join("\n\n"))?)
}

fn told(paint: Paint, title: &str, meaning: &str, remedy: &str) -> String {
    format!("{title}\n\n{meaning}\n\n{} {remedy}", paint.bold("What to do:"))
}

fn reason_as_json(reason: &Reason) -> Value {
    json!({
        "code": reason.code, "kind": reason.kind.as_str(), "meaning": reason.meaning,
        "remedy": reason.remedy,
    })
}

fn as_json(code: &ErrorCode) -> Value {
    json!({
        "code": code.code, "status": code.status, "title": code.title,
        "meaning": code.meaning, "remedy": code.remedy,
    })
}

fn explain_exit(number: u16, json: bool) -> anyhow::Result<()> {
    let Some((_, meaning, remedy)) =
        exit::CODES.iter().find(|(code, ..)| u16::from(*code as u8) == number)
    else {
        return Err(Failure::new(Code::Failure, format!("unknown exit code {number}"))
            .hint("`posthorn explain` lists all codes")
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
        let reasons: Vec<Value> = reasons().iter().map(reason_as_json).collect();
        let whole = json!({"errors": errors, "reasons": reasons, "exit_codes": exits});
        return Ok(terminal::json(&whole)?);
    }
    let errors: Vec<Vec<String>> = error_codes()
        .iter()
        .map(|code| vec![code.code.to_owned(), code.status.to_string(), code.title.to_owned()])
        .collect();
    terminal::data(terminal::table(&["CODE", "STATUS", "TITLE"], &errors))?;
    let reasons: Vec<Vec<String>> = reasons()
        .iter()
        .map(|reason| {
            vec![reason.code.to_owned(), reason.kind.as_str().to_owned(), reason.meaning.to_owned()]
        })
        .collect();
    let heading = ["FAILURE, END OR WAIT", "KIND", "MEANING"];
    terminal::data(format_args!("\n{}", terminal::table(&heading, &reasons)))?;
    let exits: Vec<Vec<String>> = exit::CODES
        .iter()
        .map(|(code, meaning, _)| vec![(*code as u8).to_string(), (*meaning).to_owned()])
        .collect();
    terminal::data(format_args!("\n{}", terminal::table(&["EXIT CODE", "MEANING"], &exits)))?;
    Ok(())
}
