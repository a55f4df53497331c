//! Versions of a database's schema, and which programs may work on which.
//!
//! # What it is for
//! A database remembers the migrations that were applied to it. [`Schema::missing`] says which ones a program still has
//! to apply, or why it must leave the database alone. Both databases ask here; how a migration is applied is their own
//! affair.
//!
//! # Theory of operation
//! Versions count from 1 without gaps, and only go forward. A migration is of one of two kinds ([`Kind`]): programs
//! that do not know it go on beside it, or they do not. With each version the database keeps `least`: the version that a
//! program must know to work on it. A migration of the first kind leaves that as it was, so that the program of the version
//! before keeps running, and can be started again. See docs/adr/0054.
//!
//! # What it must not know
//! Which databases exist, and who is at work on one.

use std::borrow::Cow;

use crate::Error;

/// Whether programs that do not know a migration may go on once it is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// They may: it only adds, and what newer programs write can be read by older ones.
    Beside,
    /// They may not: it is applied while no other program is at work, and they are refused afterwards.
    Alone,
}

/// One step from a version to the next.
#[derive(Clone, Debug)]
pub struct Migration {
    kind: Kind,
    text: Cow<'static, str>,
}

impl Migration {
    /// One that older programs do not notice.
    pub const fn beside(text: &'static str) -> Self {
        Self { kind: Kind::Beside, text: Cow::Borrowed(text) }
    }

    /// One that older programs cannot work with.
    pub const fn alone(text: &'static str) -> Self {
        Self { kind: Kind::Alone, text: Cow::Borrowed(text) }
    }

    /// Its kind.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Its statements.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// All that a program knows of a schema.
#[derive(Clone, Debug)]
pub struct Schema {
    migrations: Cow<'static, [Migration]>,
    oldest: u32,
    checksum: fn(&str) -> String,
}

/// A version that a database has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Which.
    pub version: u32,
    /// Of the text that was applied.
    pub checksum: String,
    /// What a program must know from then on. `None` where a program wrote it that did not say so: then it must know
    /// the version itself.
    pub least: Option<u32>,
    /// The version of the program that applied it, where it said so.
    pub program: Option<String>,
}

/// A version that a database lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing<'a> {
    /// Which.
    pub version: u32,
    /// Whether others may be at work.
    pub kind: Kind,
    /// What to apply.
    pub text: &'a str,
    /// To be kept with it.
    pub checksum: String,
    /// To be kept with it.
    pub least: u32,
}

/// Why a program does not work on a database. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// A newer program has changed it in a way that this one cannot work with.
    #[error(
        "the database has schema version {found} and needs a program that knows version {least}; this one \
         (Posthorn {this}) knows version {known}{}",
        program.as_ref().map(|name| format!("; Posthorn {name} brought it there")).unwrap_or_default(),
        this = env!("CARGO_PKG_VERSION")
    )]
    Newer {
        /// What the database has.
        found: u32,
        /// What a program must know.
        least: u32,
        /// What this program knows.
        known: u32,
        /// The version of the program that applied it.
        program: Option<String>,
    },
    /// It is older than what this program brings up to date.
    #[error(
        "the database has schema version {found}, and this program only brings databases up to date that have \
         version {oldest} or newer"
    )]
    TooOld {
        /// What the database has.
        found: u32,
        /// What it must have.
        oldest: u32,
    },
    /// Versions were applied that are not those of this program.
    #[error(
        "schema version {version} of the database is not the one that this program knows by that number"
    )]
    Changed {
        /// The first such version.
        version: u32,
    },
    /// Programs are at work that could not go on.
    #[error(
        "schema version {version} cannot be applied while older programs are at work on the database, because they \
         could not go on: {}",
        programs.join("; ")
    )]
    AtWork {
        /// The version that they do not know.
        version: u32,
        /// Who they are.
        programs: Vec<String>,
    },
}

impl Mismatch {
    /// The one that made a call of a store fail, where that is why.
    pub fn behind(error: &Error) -> Option<&Self> {
        match error {
            Error::Fatal { source: Some(source), .. } => source.downcast_ref(),
            _ => None,
        }
    }

    /// What an operator can do about it.
    pub fn advice(&self) -> String {
        let page = "see docs/guide/upgrade.md";
        match self {
            Self::Newer { program, .. } => {
                let newer = program.as_ref().map(|name| format!("Posthorn {name}"));
                let newer = newer.unwrap_or_else(|| "the Posthorn that was used last".to_owned());
                format!(
                    "nothing was changed; start {newer} or a newer one, or restore the backup that was made before the \
                     upgrade and start this one; {page}"
                )
            }
            Self::TooOld { .. } => format!(
                "nothing was changed; start a Posthorn that was released between the two first, then this one; {page}"
            ),
            Self::Changed { .. } => format!(
                "nothing was changed; the database was made by a changed or unreleased Posthorn: start that one, or \
                 restore a backup; {page}"
            ),
            Self::AtWork { .. } => format!(
                "nothing was changed; stop all of them, then start this program again; {page}"
            ),
        }
    }
}

impl Schema {
    /// All versions in order, from 1. `checksum` tells two texts apart.
    pub const fn new(migrations: &'static [Migration], checksum: fn(&str) -> String) -> Self {
        Self { migrations: Cow::Borrowed(migrations), oldest: 1, checksum }
    }

    /// The newest version.
    pub fn known(&self) -> u32 {
        number(self.migrations.len())
    }

    /// Its migrations, in order.
    pub fn migrations(&self) -> &[Migration] {
        &self.migrations
    }

    /// What a program of an earlier version knows.
    #[must_use]
    pub fn up_to(&self, version: u32) -> Self {
        let count = usize::try_from(version).unwrap_or(usize::MAX).min(self.migrations.len());
        Self { migrations: self.migrations[..count].to_vec().into(), ..self.clone() }
    }

    /// What a program of the next version knows.
    #[must_use]
    pub fn and(&self, next: Migration) -> Self {
        let mut migrations = self.migrations.to_vec();
        migrations.push(next);
        Self { migrations: migrations.into(), ..self.clone() }
    }

    /// What a program knows that no longer brings anything older than `oldest` up to date.
    #[must_use]
    pub fn since(&self, oldest: u32) -> Self {
        Self { oldest, ..self.clone() }
    }

    /// Whether this program knows all of a database with these versions: nobody copies or compares what it does not know.
    ///
    /// # Errors
    /// When it must not touch the database, or the database has more than it knows.
    pub fn whole(&self, applied: &[Applied]) -> Result<(), Mismatch> {
        self.check(applied)?;
        match applied.last() {
            Some(newest) if newest.version > self.known() => Err(Mismatch::Newer {
                found: newest.version,
                least: newest.version,
                known: self.known(),
                program: newest.program.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// What has to be applied to a database with these versions, given in order; nothing where it is as this program knows it, or
    /// newer and fit to be used.
    ///
    /// # Errors
    /// When this program must not touch the database.
    pub fn missing(&self, applied: &[Applied]) -> Result<Vec<Missing<'_>>, Mismatch> {
        self.check(applied)?;
        let mut least = applied.iter().map(Applied::least).max().unwrap_or(0);
        let missing = self.migrations.iter().enumerate().skip(applied.len());
        let missing = missing.map(|(index, migration)| {
            let version = number(index + 1);
            if migration.kind == Kind::Alone || least == 0 {
                least = version;
            }
            Missing {
                version,
                kind: migration.kind,
                text: &migration.text,
                checksum: (self.checksum)(&migration.text),
                least,
            }
        });
        Ok(missing.collect())
    }

    fn check(&self, applied: &[Applied]) -> Result<(), Mismatch> {
        let Some(newest) = applied.last() else { return Ok(()) };
        self.admit(applied)?;
        for (index, found) in applied.iter().enumerate() {
            let version = number(index + 1);
            let known = self.migrations.get(index).map(|known| (self.checksum)(&known.text));
            // What is newer than this program, and lets it be, cannot be compared.
            let same = known.is_none_or(|known| known == found.checksum);
            if found.version != version || !same {
                return Err(Mismatch::Changed { version });
            }
        }
        if newest.version < self.oldest {
            return Err(Mismatch::TooOld { found: newest.version, oldest: self.oldest });
        }
        Ok(())
    }

    fn admit(&self, applied: &[Applied]) -> Result<(), Mismatch> {
        let known = self.known();
        let least = applied.iter().map(Applied::least).max().unwrap_or(0);
        match applied.last() {
            Some(newest) if least > known => Err(Mismatch::Newer {
                found: newest.version,
                least,
                known,
                program: newest.program.clone(),
            }),
            _ => Ok(()),
        }
    }
}

impl Applied {
    fn least(&self) -> u32 {
        self.least.unwrap_or(self.version)
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn itself(text: &str) -> String {
        text.to_owned()
    }

    static TWO: [Migration; 2] = [Migration::alone("one"), Migration::alone("two")];
    static SCHEMA: Schema = Schema::new(&TWO, itself);

    /// What a program leaves that has applied everything it knows.
    fn left_by(schema: &Schema) -> Vec<Applied> {
        let missing = schema.missing(&[]).expect("an empty database");
        let applied = missing.into_iter().map(|missing| Applied {
            version: missing.version,
            checksum: missing.checksum,
            least: Some(missing.least),
            program: Some("7.0.0".to_owned()),
        });
        applied.collect()
    }

    #[test]
    fn what_is_missing_is_applied_in_order() {
        let versions = |schema: &Schema, applied: &[Applied]| -> Vec<(u32, u32)> {
            let missing = schema.missing(applied).expect("a fit");
            missing.iter().map(|missing| (missing.version, missing.least)).collect()
        };
        let newer = SCHEMA.and(Migration::beside("three")).and(Migration::alone("four"));
        assert_eq!(versions(&newer, &[]), [(1, 1), (2, 2), (3, 2), (4, 4)]);
        assert_eq!(versions(&newer, &left_by(&SCHEMA)), [(3, 2), (4, 4)]);
        assert_eq!(versions(&newer, &left_by(&newer)), []);
    }

    #[test]
    fn an_older_program_works_beside_what_only_adds() {
        let newer = SCHEMA.and(Migration::beside("three")).and(Migration::beside("four"));
        assert_eq!(SCHEMA.missing(&left_by(&newer)), Ok(vec![]));
        let refused = SCHEMA.up_to(1).missing(&left_by(&newer)).expect_err("one is not enough");
        assert!(matches!(refused, Mismatch::Newer { found: 4, least: 2, known: 1, .. }));
    }

    #[test]
    fn an_older_program_is_refused_by_what_changes() {
        let newer = SCHEMA.and(Migration::alone("three")).and(Migration::beside("four"));
        let refused = SCHEMA.missing(&left_by(&newer)).expect_err("three is not known");
        assert!(matches!(refused, Mismatch::Newer { found: 4, least: 3, known: 2, .. }));
        let told = format!("{refused}; {}", refused.advice());
        assert!(told.contains("knows version 2") && told.contains("Posthorn 7.0.0"), "{told}");
    }

    /// Programs of before did not say what others must know.
    #[test]
    fn a_version_without_a_word_must_be_known() {
        let mut applied = left_by(&SCHEMA);
        for version in &mut applied {
            (version.least, version.program) = (None, None);
        }
        assert_eq!(SCHEMA.missing(&applied), Ok(vec![]));
        let refused = SCHEMA.up_to(1).missing(&applied).expect_err("two is not known");
        assert!(matches!(refused, Mismatch::Newer { found: 2, least: 2, known: 1, .. }));
        let next = SCHEMA.and(Migration::beside("three"));
        assert_eq!(next.missing(&applied).expect("a fit")[0].least, 2);
    }

    #[test]
    fn a_database_that_is_too_old_or_another_is_refused() {
        let late = SCHEMA.and(Migration::alone("three")).since(3);
        let refused = late.missing(&left_by(&SCHEMA)).expect_err("two is too old");
        assert_eq!(refused, Mismatch::TooOld { found: 2, oldest: 3 });
        assert_eq!(late.missing(&[]).expect("an empty one is not old").len(), 3);
        let other = SCHEMA.up_to(1).and(Migration::alone("another"));
        let refused = SCHEMA.missing(&left_by(&other)).expect_err("another second");
        assert_eq!(refused, Mismatch::Changed { version: 2 });
        let gap = &left_by(&SCHEMA)[1..];
        assert_eq!(SCHEMA.missing(gap), Err(Mismatch::Changed { version: 1 }));
    }
}
