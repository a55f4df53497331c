//! What a code means and what to do about it: the texts of `posthorn explain`.

use std::sync::Arc;

use askama::Template;
use http::StatusCode;
use posthorn_api::{Reason, error_codes, reasons};

use super::Answer;
use crate::frame::{Frame, Place};
use crate::visit::{Visit, page};

struct Told {
    code: String,
    kind: String,
    meaning: &'static str,
    remedy: &'static str,
}

#[derive(Template)]
#[template(path = "explain.html")]
struct ExplainPage<'p> {
    frame: Frame,
    visit: &'p Visit,
    asked: bool,
    told: Vec<Told>,
}

/// `GET /console/system/explain`.
pub(crate) async fn show(visit: Arc<Visit>) -> Answer {
    let asked = visit.query.get("code").unwrap_or_default();
    let told = find(asked, &visit.console.options.exit_codes);
    let html = ExplainPage {
        frame: Frame::new(&visit, Place::System, "Explain a code")
            .await
            .below("/console/system", "System"),
        visit: &visit,
        asked: !asked.is_empty(),
        told,
    };
    Ok(page(&visit.headers, StatusCode::OK, html.render()?))
}

/// Codes that are the word, or begin with it; a number is a status or the end of a command. Nothing asked is everything.
fn find(asked: &str, exit_codes: &[(u8, &'static str, &'static str)]) -> Vec<Told> {
    let wanted = asked.to_lowercase().replace(['-', ' '], "_");
    let number: Option<u16> = wanted.parse().ok();
    let fits = |code: &str| code.contains(wanted.as_str());
    let errors = error_codes().iter().filter(|error| fits(error.code) && number.is_none());
    let errors = errors.map(|error| Told {
        code: error.code.to_owned(),
        kind: format!("error {} of the API: {}", error.status, error.title),
        meaning: error.meaning,
        remedy: error.remedy,
    });
    let status = number.and_then(Reason::of_status);
    let known: Vec<Reason> = match number {
        None => reasons().into_iter().filter(|reason| fits(reason.code)).collect(),
        Some(_) => status.into_iter().collect(),
    };
    let known = known.into_iter().map(|reason| Told {
        code: reason.code.to_owned(),
        kind: reason.kind.words().to_owned(),
        meaning: reason.meaning,
        remedy: reason.remedy,
    });
    let exits = exit_codes.iter().filter(|(code, ..)| match number {
        Some(number) => u16::from(*code) == number,
        None => wanted.is_empty(),
    });
    let exits = exits.map(|(code, meaning, remedy)| Told {
        code: code.to_string(),
        kind: "exit code of the program".to_owned(),
        meaning,
        remedy,
    });
    let mut told: Vec<Told> = errors.chain(known).chain(exits).collect();
    // What was typed exactly comes first.
    told.sort_by_key(|told| told.code != wanted);
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXITS: [(u8, &str, &str); 2] = [(0, "done", "Nothing."), (75, "in use", "Stop it.")];

    #[track_caller]
    fn check(asked: &str, first: &str, kind: &str) {
        let told = find(asked, &EXITS);
        let Some(best) = told.first() else { panic!("nothing is said of {asked}") };
        assert_eq!(best.code, first);
        assert!(best.kind.contains(kind), "{}", best.kind);
        assert!(!best.meaning.is_empty() && !best.remedy.is_empty());
    }

    #[test]
    fn words_statuses_and_exit_codes_are_explained() {
        check("unknown_topic", "unknown_topic", "error");
        check("Unknown-Topic", "unknown_topic", "error");
        check("dns_failed", "dns_failed", "failure");
        check("75", "75", "exit code");
        assert!(find("503", &EXITS).iter().all(|told| told.kind.contains("status")));
        assert!(!find("503", &EXITS).is_empty());
        assert!(find("no_such_word", &EXITS).is_empty() && find("76", &EXITS).is_empty());
        assert!(find("", &EXITS).len() > 50, "all of them");
    }
}
