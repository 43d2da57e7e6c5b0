//! Text of the report: a line for each check, followed by its suggested actions.

use cli_base::output::RenderOptions;
use cli_base::table::{Cell, Table};
use explain::doctor::{Check, Outcome, Report};
use text::words::count;

fn count_of(report: &Report, outcome: Outcome) -> u64 {
    report.checks.iter().filter(|check| check.outcome == outcome).count() as u64
}

/// Formats the report as text: a line for each check, followed by its suggested actions.
pub(super) fn text(report: &Report, look: RenderOptions) -> String {
    let mut table = Table::new(&["CHECK", "OUTCOME", "FOUND"]);
    for Check { check, outcome, found, advice } in &report.checks {
        table.row(vec![Cell::text(check), Cell::state(outcome.word()), Cell::text(found)]);
        for one in advice {
            table.row(vec![Cell::text(""), Cell::text(""), Cell::text(format!("-> {one}"))]);
        }
    }
    let [failed, warnings, skipped] =
        [Outcome::Failed, Outcome::Warning, Outcome::Skipped].map(|outcome| count_of(report, outcome));
    let all = count(report.checks.len() as u64, "check");
    format!(
        "{}\n\n{all}: {failed} failed, {}, {skipped} skipped",
        table.render(look.colour),
        count(warnings, "warning")
    )
}

#[cfg(test)]
mod tests {
    use schemas::Timestamp;

    use super::*;

    #[test]
    fn advice_follows_its_check() {
        let look = RenderOptions { now: Timestamp(0), full_ids: false, colour: false };
        let fine = vec![Check::skipped("b", "unknown"), Check::ok("a", "fine")];
        let bad = Check::failed("c", "broken").advise("mend it");
        let report = Report::new([fine, vec![bad, Check::warning("d", "odd")]].concat());
        let text = text(&report, look);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[3], ["c", "failed", "broken"]);
        assert_eq!(lines[4], ["->", "mend", "it"]);
        assert_eq!(text.lines().last(), Some("4 checks: 1 failed, 1 warning, 1 skipped"));
    }
}
