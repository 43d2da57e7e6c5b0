//! Commands with several targets. The result of each target is reported, and a failure does not stop the
//! remaining targets. The exit status is that of the failures, or `Several` if they differ.

use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::output::{self, Output, note};
use runtime::exit::Exit;

/// Results of a command with several targets.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    global: &'a Global,
    count: usize,
    failures: Vec<Failure>,
}

impl<'a> Batch<'a> {
    /// Starts a command with `count` targets.
    pub(crate) const fn new(global: &'a Global, count: usize) -> Self {
        Self { global, count, failures: vec![] }
    }

    /// Records the result of one target. Returns `None` if the target failed. An unreachable cluster ends the
    /// command, because the remaining targets would fail as well.
    pub(crate) fn record<T>(&mut self, became: Result<T, Failure>) -> Result<Option<T>, Failure> {
        match became {
            Ok(done) => Ok(Some(done)),
            Err(failure) if failure.is_silent() => Err(failure),
            Err(failure) if failure.exit == Exit::Unreachable => {
                Err(failure.advise_some(self.untried_note()))
            }
            Err(failure) => {
                if self.count > 1 {
                    output::report_failure(&failure, self.global);
                }
                self.failures.push(failure);
                Ok(None)
            }
        }
    }

    /// Returns `true` if no target has failed so far.
    pub(crate) const fn all_succeeded(&self) -> bool {
        self.failures.is_empty()
    }

    fn untried_note(&self) -> Option<String> {
        (self.count > 1)
            .then(|| "targets that are not listed were not tried, or their outcome is unknown".to_owned())
    }

    /// Returns the overall result. With several targets, the failures were already reported, so only the exit
    /// status remains.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let mut exits = self.failures.iter().map(|failure| failure.exit);
        let Some(first) = exits.next() else { return Ok(()) };
        let exit = if exits.all(|exit| exit == first) { first } else { Exit::Several };
        if self.count == 1 {
            return self.failures.pop().map_or(Ok(()), Err);
        }
        if Output::new(self.global).is_human_readable() {
            note(&format!("{} of {} failed", self.failures.len(), self.count));
        }
        Err(Failure::silent(exit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(exit: Exit) -> Result<(), Failure> {
        Err(Failure::new(exit, "Test", "it failed"))
    }

    #[test]
    fn differing_failures_end_with_status_several() {
        let global = Global::default();
        let end = |exits: &[Exit]| {
            let mut several = Batch::new(&global, 4);
            assert_eq!(several.record(Ok(7)), Ok(Some(7)));
            exits.iter().for_each(|exit| assert_eq!(several.record(failure(*exit)), Ok(None)));
            let end = several.finish().unwrap_err();
            assert!(end.is_silent(), "{end:?}");
            end.exit
        };
        assert_eq!(end(&[Exit::RolledBack, Exit::NotPlaced]), Exit::Several);
        assert_eq!(end(&[Exit::NotPlaced, Exit::NotPlaced]), Exit::NotPlaced);
    }

    #[test]
    fn single_target_returns_its_own_failure() {
        let global = Global::default();
        let mut one = Batch::new(&global, 1);
        one.record(failure(Exit::Conflict)).unwrap();
        assert_eq!(one.finish().unwrap_err().message, "it failed");
        assert_eq!(Batch::new(&global, 3).finish(), Ok(()));
    }

    #[test]
    fn unreachable_cluster_ends_command() {
        let global = Global::default();
        assert!(Batch::new(&global, 2).record(failure(Exit::Unreachable)).is_err());
    }
}
