//! The server's own account of itself at the end, against what was seen.

use std::collections::BTreeSet;

use super::{Case, Checker, Kind};
use crate::crash::evidence::{DeletedTenant, TenantEnd};

impl<'a> Checker<'a> {
    pub(super) fn judge_finale(&mut self) {
        let finale = &self.evidence.finale;
        if !finale.drained {
            self.blame(Kind::NotDrained, "the server did not deliver everything in time");
        }
        for end in &finale.tenants {
            self.judge_tenant(end);
        }
        for deleted in &finale.deleted {
            self.judge_deleted(deleted);
        }
        if finale.integrity.as_deref().is_some_and(|said| said != "ok") {
            let said = finale.integrity.clone().unwrap_or_default();
            self.blame(Kind::Integrity, said);
        }
        for what in finale.alarms.iter().chain(&finale.own_ends) {
            self.blame(Kind::Node, what.clone());
        }
    }

    fn judge_deleted(&mut self, deleted: &DeletedTenant) {
        let DeletedTenant { tenant, state, attempts, late, shown, named } = deleted;
        if *late > 0 {
            let what = format!("{late} of {attempts} attempts came after {tenant} was deleted");
            self.blame(Kind::Deletion, what);
        }
        if state != "done" {
            self.blame(Kind::Deletion, format!("the deletion of {tenant} is {state:?} at the end"));
        }
        if (*shown, *named) != (410, 404) {
            let what = format!("{tenant} is answered {shown} by its id and {named} by its name");
            self.blame(Kind::Deletion, what);
        }
    }

    fn judge_tenant(&mut self, end: &TenantEnd) {
        let TenantEnd { tenant, stats, events } = end;
        let ours: Vec<&Case<'a>> =
            self.cases.values().filter(|case| case.intent.tenant == *tenant).collect();
        let known: BTreeSet<&str> = ours.iter().filter_map(|case| case.id).collect();
        let listed: BTreeSet<&str> = events.iter().map(String::as_str).collect();
        let delivered: u64 = ours.iter().map(|case| case.successes()).sum();
        // A publish nobody answered and nobody subscribed to can be stored and never be seen.
        let unseen = ours.iter().filter(|case| case.abandoned && case.id.is_none()).count();
        let strangers = listed.difference(&known).count();
        let mut blames: Vec<(Kind, String)> = known
            .difference(&listed)
            .map(|id| (Kind::Lost, format!("the server no longer knows {id} of {tenant}")))
            .collect();
        if strangers > unseen {
            let some: Vec<&&str> = listed.difference(&known).take(3).collect();
            let what = format!("{tenant} has {strangers} events nobody published: {some:?}…");
            blames.push((Kind::Invented, what));
        }
        let mut compare = |what: &str, said: u64, seen: u64| {
            if said != seen {
                let what = format!("{tenant}: the server says {said} {what}, seen were {seen}");
                blames.push((Kind::Stats, what));
            }
        };
        compare("events", stats.events, u64::try_from(events.len()).unwrap_or(u64::MAX));
        compare(
            "events, each once,",
            u64::try_from(events.len()).unwrap_or(0),
            u64::try_from(listed.len()).unwrap_or(0),
        );
        compare("delivered", stats.delivered, delivered);
        if self.evidence.finale.drained {
            compare("pending", stats.pending, 0);
        }
        compare("dead", stats.dead, 0);
        compare("cancelled", stats.cancelled, 0);
        for (kind, what) in blames {
            self.blame(kind, what);
        }
    }
}
