//! What became of the mutations, as a table.

use std::fmt;
use std::ops::Range;

use super::list::Mutation;
use super::runs::Ran;
use crate::promises::Promise;

/// So many seeds must find out what is rare, too.
const ENOUGH: u64 = 1_000;

/// What became of a mutation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The mutation.
    pub mutation: Mutation,
    /// What its run came to.
    pub ran: Ran,
}

/// What became of all mutations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The seeds that were run.
    pub seeds: Range<u64>,
    /// What came of them without a mutation.
    pub none: Ran,
    /// What came of them with each.
    pub rows: Vec<Row>,
    /// Whether the whole list was run.
    pub whole: bool,
}

impl Row {
    /// Whether it may stay hidden from so many seeds.
    fn may_hide(&self, seeds: &Range<u64>) -> bool {
        !self.mutation.rare.is_empty() && seeds.end.saturating_sub(seeds.start) < ENOUGH
    }

    /// Whether it was found out.
    #[must_use]
    pub const fn is_caught(&self) -> bool {
        match self.ran {
            Ran::Broke(..) | Ran::Panicked(_) => true,
            Ran::TookTooLong | Ran::TookTooMuch => !self.mutation.endless.is_empty(),
            Ran::Nothing => false,
        }
    }
}

impl Report {
    /// Whether nothing is broken without a mutation, every mutation is caught that is not too rare for so many seeds, and
    /// every promise has one.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.none == Ran::Nothing
            && self.rows.iter().all(|row| row.is_caught() || row.may_hide(&self.seeds))
            && self.unproved().is_empty()
    }

    /// Promises that no mutation breaks: nobody knows whether their checkers can fail.
    fn unproved(&self) -> Vec<&'static str> {
        // Only a story expects something of its own: the stories' own tests break it.
        let named = |promise: &Promise| self.rows.iter().any(|row| row.mutation.breaks.contains(promise));
        let wanting = |promise: &&Promise| **promise != Promise::AsExpected && !named(promise);
        if self.whole {
            Promise::ALL.iter().filter(wanting).map(|promise| promise.name()).collect()
        } else {
            vec![]
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seeds, none, rows, .. } = self;
        let width = rows.iter().map(|row| row.mutation.name.len()).max().unwrap_or(0).max(8);
        writeln!(f, "{:width$} {:22} found by", "mutation", "breaks")?;
        for Row { mutation, ran } in rows {
            let name = &mutation.name;
            match ran {
                Ran::Broke(run, how) => {
                    let promise = how.split(':').next().unwrap_or_default();
                    writeln!(f, "{name:width$} {promise:22} {run}")?;
                }
                Ran::Panicked(words) => writeln!(f, "{name:width$} it panics: {words}")?,
                Ran::Nothing => writeln!(f, "{name:width$} NOT CAUGHT{}", known(&mutation.rare))?,
                Ran::TookTooLong => writeln!(f, "{name:width$} TOOK TOO LONG{}", known(&mutation.endless))?,
                Ran::TookTooMuch => {
                    writeln!(f, "{name:width$} TOOK TOO MUCH MEMORY{}", known(&mutation.endless))?;
                }
            }
        }
        let caught = rows.iter().filter(|row| row.is_caught()).count();
        writeln!(
            f,
            "\n{caught} of {} mutations were caught by seeds {}..{} and the stories.",
            rows.len(),
            seeds.start,
            seeds.end
        )?;
        if *none != Ran::Nothing {
            writeln!(f, "Without any mutation: {none:?}")?;
        }
        let unproved = self.unproved();
        if !unproved.is_empty() {
            writeln!(f, "No mutation breaks {}.", unproved.join(", "))?;
        }
        Ok(())
    }
}

/// Why something was to be expected, behind what came; nothing where it was not.
fn known(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(": {why}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_end_finds_out_only_what_is_known_to_have_none() {
        let caught = |endless: &str, ran| {
            let mutation = Mutation { endless: endless.into(), ..Mutation::default() };
            Row { mutation, ran }.is_caught()
        };
        for ran in [Ran::TookTooLong, Ran::TookTooMuch] {
            assert!(caught("it goes round", ran.clone()));
            assert!(!caught("", ran));
        }
        assert!(!caught("it goes round", Ran::Nothing), "it ends after all");
    }
}
