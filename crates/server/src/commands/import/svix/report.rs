//! What an import did, and what has no counterpart here.

use serde_json::{Value, json};

use super::target::Outcome;
use crate::terminal;

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    EventType,
    Application,
    Endpoint,
}

impl Kind {
    const ALL: [Self; 3] = [Self::EventType, Self::Application, Self::Endpoint];

    /// One of them, by its former id.
    pub(super) fn about(self, id: &str, application: Option<&str>) -> About {
        About { kind: self, id: id.to_owned(), application: application.map(str::to_owned) }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::EventType => "event_type",
            Self::Application => "application",
            Self::Endpoint => "endpoint",
        }
    }
}

/// Which thing is spoken of.
#[derive(Clone, Debug)]
pub(super) struct About {
    kind: Kind,
    id: String,
    application: Option<String>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    made: u64,
    already_there: u64,
    changed: u64,
    different: u64,
    skipped: u64,
}

/// Something that people should look at.
struct Finding {
    about: About,
    code: String,
    detail: String,
}

/// All that was done.
#[derive(Default)]
pub(super) struct Report {
    dry_run: bool,
    /// Whether it got to the end.
    pub(super) complete: bool,
    counts: [Counts; 3],
    findings: Vec<Finding>,
}

impl Report {
    pub(super) fn new(dry_run: bool) -> Self {
        Self { dry_run, ..Self::default() }
    }

    /// Takes in a part.
    pub(super) fn add(&mut self, part: Self) {
        for (own, more) in self.counts.iter_mut().zip(part.counts) {
            own.made += more.made;
            own.already_there += more.already_there;
            own.changed += more.changed;
            own.different += more.different;
            own.skipped += more.skipped;
        }
        self.findings.extend(part.findings);
    }

    pub(super) fn count(&mut self, about: &About, outcome: &Outcome) {
        let counts = &mut self.counts[about.kind as usize];
        match outcome {
            Outcome::Made => counts.made += 1,
            Outcome::There => counts.already_there += 1,
            Outcome::Changed => counts.changed += 1,
            Outcome::Different(fields) => {
                counts.different += 1;
                let detail = format!("it is there and differs ({fields}); --update changes it");
                self.find(about, "different", &detail);
            }
        }
    }

    /// It could not be taken over.
    pub(super) fn skip(&mut self, about: &About, code: &str, detail: &str) {
        self.counts[about.kind as usize].skipped += 1;
        self.find(about, code, &format!("not taken over: {detail}"));
    }

    /// Something of it has no counterpart.
    pub(super) fn find(&mut self, about: &About, code: &str, detail: &str) {
        let (about, code, detail) = (about.clone(), code.to_owned(), detail.to_owned());
        self.findings.push(Finding { about, code, detail });
    }

    /// Whether it has got nowhere.
    pub(super) fn is_empty(&self) -> bool {
        let all =
            |own: &Counts| own.made + own.already_there + own.changed + own.different + own.skipped;
        self.counts.iter().all(|own| all(own) == 0)
    }

    pub(super) fn skipped(&self) -> u64 {
        self.counts.iter().map(|own| own.skipped).sum()
    }

    /// Shows it: data for programs, or a table and lines for people.
    pub(super) fn show(&self, json: bool) -> anyhow::Result<()> {
        if json {
            return Ok(terminal::json(&self.whole())?);
        }
        let heading = ["", "MADE", "ALREADY THERE", "CHANGED", "DIFFERENT", "SKIPPED"];
        let names = ["event types", "applications", "endpoints"];
        let row = |(name, own): (&str, &Counts)| {
            let all = [own.made, own.already_there, own.changed, own.different, own.skipped];
            let mut row = vec![name.to_owned()];
            row.extend(all.iter().map(u64::to_string));
            row
        };
        let rows: Vec<Vec<String>> = names.into_iter().zip(&self.counts).map(row).collect();
        terminal::data(terminal::table(&heading, &rows))?;
        for Finding { about, detail, .. } in &self.findings {
            let of = about.application.as_ref().map(|own| format!(" of {own}")).unwrap_or_default();
            let what = about.kind.word().replace('_', " ");
            let line = format!("{what} {}{of}: {detail}", about.id);
            terminal::data(terminal::clean(&line))?;
        }
        if self.dry_run {
            terminal::note("this was a dry run: nothing was written");
        }
        Ok(())
    }

    fn whole(&self) -> Value {
        let findings: Vec<Value> = self
            .findings
            .iter()
            .map(|Finding { about, code, detail }| {
                let mut own = json!({
                    "kind": about.kind.word(), "id": about.id, "code": code, "detail": detail,
                });
                if let Some(application) = &about.application {
                    own["application"] = json!(application);
                }
                own
            })
            .collect();
        let mut whole = json!({
            "dry_run": self.dry_run, "complete": self.complete, "findings": findings,
        });
        for kind in Kind::ALL {
            let own = &self.counts[kind as usize];
            whole[format!("{}s", kind.word())] = json!({
                "made": own.made, "already_there": own.already_there, "changed": own.changed,
                "different": own.different, "skipped": own.skipped,
            });
        }
        whole
    }
}
