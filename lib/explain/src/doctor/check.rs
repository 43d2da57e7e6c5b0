//! Outcomes of checks, and the report that contains them.

use serde::Serialize;

/// Outcome of a check. Except for `Skipped`, the outcomes are ordered from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
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
    #[must_use]
    pub const fn word(self) -> &'static str {
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
pub struct Check {
    /// Stable name of the check.
    pub check: &'static str,
    pub outcome: Outcome,
    /// Finding, or the reason why the check was skipped.
    pub found: String,
    /// Suggested actions. Empty if no action is necessary.
    pub advice: Vec<String>,
}

impl Check {
    fn new(check: &'static str, outcome: Outcome, found: impl Into<String>) -> Self {
        Self { check, outcome, found: found.into(), advice: vec![] }
    }

    /// Creates the result of a check that found no problem.
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Outcome::Ok, found)
    }

    /// Creates the result of a check that found a possible improvement.
    pub fn warning(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Outcome::Warning, found)
    }

    /// Creates the result of a check that found a failure.
    pub fn failed(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Outcome::Failed, found)
    }

    /// Creates the result of a check that could not be performed.
    pub fn skipped(check: &'static str, found: impl Into<String>) -> Self {
        Self::new(check, Outcome::Skipped, found)
    }

    /// Adds a suggested action.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice.push(advice.into());
        self
    }
}

/// Results of all checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Worst outcome of all checks.
    pub outcome: Outcome,
    /// Checks in the order of their dependencies.
    pub checks: Vec<Check>,
}

impl Report {
    /// Creates the report of these checks.
    #[must_use]
    pub fn new(checks: Vec<Check>) -> Self {
        let worst = checks.iter().map(|check| check.outcome).max();
        Self { outcome: worst.unwrap_or(Outcome::Skipped), checks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_outcome_is_the_worst() {
        assert_eq!(Report::new(vec![]).outcome, Outcome::Skipped);
        let fine = vec![Check::skipped("b", "unknown"), Check::ok("a", "fine")];
        assert_eq!(Report::new(fine.clone()).outcome, Outcome::Ok);
        let bad = vec![Check::failed("c", "broken"), Check::warning("d", "odd")];
        assert_eq!(Report::new([fine, bad].concat()).outcome, Outcome::Failed);
    }
}
