//! Outcomes of checks, and the report that contains them.

use cli_base::output::RenderOptions;
use cli_base::table::{Cell, Table};
use serde::Serialize;
use text::words::count;

/// Outcome of a check. Except for `Skipped`, the outcomes are ordered from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// The check could not be performed. `Check::found` contains the reason.
    Skipped,
    /// The check found no problem.
    Ok,
    /// The examined part of the system works, but should be improved.
    Warning,
    /// The examined part of the system does not work, or data could be lost.
    Failed,
}

impl Outcome {
    /// Returns the outcome as a lower-case word.
    const fn word(self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    /// Stable name of the check.
    pub(super) check: &'static str,
    pub(super) outcome: Outcome,
    /// Finding, or the reason why the check was skipped.
    pub(super) found: String,
    /// Suggested actions. Empty if no action is necessary.
    pub(super) advice: Vec<String>,
}

impl Check {
    fn new(check: &'static str, outcome: Outcome, found: impl Into<String>) -> Self {
        Self { check, outcome, found: found.into(), advice: vec![] }
    }

    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Outcome::Ok, found)
    }

    pub(super) fn warning(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Outcome::Warning, found)
    }

    pub(super) fn failed(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Outcome::Failed, found)
    }

    pub(super) fn skipped(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Outcome::Skipped, found)
    }

    /// Adds a suggested action.
    pub(super) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice.push(advice.into());
        self
    }
}

/// Results of all checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Report {
    /// Worst outcome of all checks.
    pub(super) outcome: Outcome,
    /// Checks in the order of their dependencies.
    pub(super) checks: Vec<Check>,
}

impl Report {
    pub(super) fn new(checks: Vec<Check>) -> Self {
        let worst = checks.iter().map(|check| check.outcome).max();
        Self { outcome: worst.unwrap_or(Outcome::Skipped), checks }
    }

    fn count_of(&self, outcome: Outcome) -> u64 {
        self.checks.iter().filter(|check| check.outcome == outcome).count() as u64
    }

    /// Formats the report as text: a line for each check, followed by its suggested actions.
    pub(super) fn text(&self, look: RenderOptions) -> String {
        let mut table = Table::new(&["CHECK", "OUTCOME", "FOUND"]);
        for Check { check, outcome, found, advice } in &self.checks {
            table.row(vec![Cell::text(check), Cell::state(outcome.word()), Cell::text(found)]);
            for one in advice {
                table.row(vec![Cell::text(""), Cell::text(""), Cell::text(format!("-> {one}"))]);
            }
        }
        let [failed, warnings, skipped] =
            [Outcome::Failed, Outcome::Warning, Outcome::Skipped].map(|outcome| self.count_of(outcome));
        let all = count(self.checks.len() as u64, "check");
        format!(
            "{}\n\n{all}: {failed} failed, {}, {skipped} skipped",
            table.render(look.colour),
            count(warnings, "warning")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemas::Timestamp;

    #[test]
    fn report_outcome_is_the_worst_and_advice_follows_its_check() {
        let look = RenderOptions { now: Timestamp(0), full_ids: false, colour: false };
        assert_eq!(Report::new(vec![]).outcome, Outcome::Skipped);
        let fine = vec![Check::skipped("b", "unknown"), Check::ok("a", "fine")];
        assert_eq!(Report::new(fine.clone()).outcome, Outcome::Ok);
        let bad = Check::failed("c", "broken").advise("mend it");
        let report = Report::new([fine, vec![bad, Check::warning("d", "odd")]].concat());
        assert_eq!(report.outcome, Outcome::Failed);
        let text = report.text(look);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[3], ["c", "failed", "broken"]);
        assert_eq!(lines[4], ["->", "mend", "it"]);
        assert_eq!(text.lines().last(), Some("4 checks: 1 failed, 1 warning, 1 skipped"));
    }
}
