//! Text of the tree of the decisions (recorded changes) that a command caused.

use std::collections::BTreeSet;
use std::time::Duration;

use cli_base::output::RenderOptions;
use cli_base::table::{Cell, Table};
use explain::decisions::PositionedDecision;
use explain::trace::Step;
use text::describe::{actor, sentences};
use text::words::{count, one_line, precise_duration, short_id};

use crate::why::stamp;

/// Maximum number of levels that are drawn with lines. Deeper levels are numbered, because a process that
/// crashes repeatedly has a chain of hundreds of levels.
const MAX_DRAWN_LEVELS: usize = 16;

/// Formats the tree: its actor and start time, a line for each decision, and the totals.
pub(super) fn text(steps: &[Step], look: RenderOptions) -> String {
    let first_of = |step: &&Step| step.decision.id == step.decision.correlation;
    let beginning = |step: &Step| {
        let decided = PositionedDecision { position: step.position, decision: step.decision.clone() };
        format!("correlation {}\n{}", step.decision.correlation, stamp(&decided))
    };
    let mut lines: Vec<String> = steps.iter().filter(first_of).map(beginning).collect();
    if lines.is_empty() {
        let missing = steps.iter().map(|step| step.decision.correlation).collect::<BTreeSet<_>>();
        lines.extend(missing.iter().map(|id| format!("correlation {id} (its first decision can't be read)")));
    }
    let headers = ["SINCE START", "SINCE CAUSE", "POSITION", "WHO", "WHAT"];
    let table = Table::with_rows(headers, steps.iter().zip(branches(steps)), |(step, branch)| {
        [
            since_cell(Some(step.since_start_ms)),
            since_cell(step.since_cause_ms),
            Cell::number(step.position),
            Cell::text(actor(&step.decision.actor)),
            Cell::text(what(step, &branch, look)),
        ]
    });
    lines.extend([String::new(), table.render(look.colour), String::new(), totals_line(steps)]);
    lines.join("\n")
}

/// Returns the lines that are drawn before each step.
fn branches(steps: &[Step]) -> Vec<String> {
    let last = last_siblings(steps);
    // Lines drawn before the consequences of a step, by the depth of these consequences.
    let mut rails: Vec<String> = vec![];
    let mut branches = vec![];
    for (step, is_last) in steps.iter().zip(last) {
        let (mark, rail) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let depth = step.depth;
        rails.truncate(depth);
        let before = rails.last().cloned().unwrap_or_default();
        let (branch, below) = match depth {
            0 => (String::new(), String::new()),
            1..=MAX_DRAWN_LEVELS => (format!("{before}{mark}"), format!("{before}{rail}")),
            _ => (format!("…{depth} {mark}"), String::new()),
        };
        rails.push(below);
        branches.push(branch);
    }
    branches
}

/// Returns for each step `true` if no later step has the same cause.
fn last_siblings(steps: &[Step]) -> Vec<bool> {
    // Depths of the later steps, up to the next step that is less deep.
    let mut later: BTreeSet<usize> = BTreeSet::new();
    let mut last: Vec<bool> = steps
        .iter()
        .rev()
        .map(|step| {
            later.split_off(&(step.depth + 1));
            later.insert(step.depth)
        })
        .collect();
    last.reverse();
    last
}

fn since_cell(millis: Option<u64>) -> Cell {
    let since = |millis| format!("+{}", precise_duration(Duration::from_millis(millis)));
    Cell::number(millis.map_or_else(|| "-".to_owned(), since))
}

/// Formats a step in one line. `branch` contains the lines drawn before the step.
fn what(step: &Step, branch: &str, look: RenderOptions) -> String {
    let decision = &step.decision;
    let mut line = format!("{branch}{}", sentences(decision, look.full_ids).join("; "));
    if let Some(reason) = decision.reason.as_ref().filter(|_| decision.id != decision.correlation) {
        line.push_str(&format!(" \"{}\"", one_line(reason)));
    }
    if let Some(cause) = decision.cause.as_ref().filter(|_| step.cause_is_elsewhere) {
        line.push_str(&format!(" (cause {} is not in this trace)", short_id(cause, look.full_ids)));
    }
    if step.requested && step.depth > 0 {
        line.push_str(" ← requested");
    }
    line
}

fn totals_line(steps: &[Step]) -> String {
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let aggregates: BTreeSet<_> = steps.iter().map(|step| &step.decision.aggregate).collect();
    let longest = steps.iter().map(|step| step.since_start_ms).max().unwrap_or(0);
    let (decisions, aggregates) =
        (count(number(steps.len()), "decision"), count(number(aggregates.len()), "aggregate"));
    format!("{decisions} about {aggregates} in {}", precise_duration(Duration::from_millis(longest)))
}

#[cfg(test)]
pub(super) mod tests {
    use explain::trace::build_tree;
    use schemas::entry::{Aggregate, Event};
    use schemas::names::{CellId, DecisionId};
    use schemas::{Indices, Places, Position, Timestamp, actual};

    use super::*;
    use fixtures::web::{client, decision, id};

    const LOOK: RenderOptions =
        RenderOptions { now: Timestamp::from_millis(60_000), full_ids: false, colour: false };

    pub(in crate::trace) fn decision_id(number: u64) -> DecisionId {
        DecisionId(id(number.into()))
    }

    /// Returns a decision at `number` seconds after 1970 that creates instance `number`.
    pub(in crate::trace) fn at(number: u64, cause: Option<u64>) -> PositionedDecision {
        let definition_id = schemas::names::DefinitionId::new("web").unwrap();
        let places = Places { indices: Indices::from(u32::try_from(number).unwrap()), definition_id };
        let mut decision = decision(number, client(), vec![Event::Actual(actual::Event::Created { places })]);
        decision.cause = cause.map(decision_id);
        PositionedDecision { position: Position(number * 10), decision }
    }

    fn shape(decided: Vec<PositionedDecision>) -> Vec<(u64, usize, String)> {
        let steps = build_tree(decided, &BTreeSet::new());
        let of = |(step, branch): (&Step, String)| (step.position.0 / 10, step.depth, branch);
        steps.iter().zip(branches(&steps)).map(of).collect()
    }

    fn row(number: u64, depth: usize, branch: &str) -> (u64, usize, String) {
        (number, depth, branch.to_owned())
    }

    #[test]
    fn tree_indents_consequences() {
        let shape = shape(vec![at(1, None), at(2, Some(1)), at(3, Some(2))]);
        assert_eq!(shape, [row(1, 0, ""), row(2, 1, "└─ "), row(3, 2, "   └─ ")]);
    }

    #[test]
    fn siblings_are_in_log_order_above_their_consequences() {
        let log =
            vec![at(1, None), at(2, Some(1)), at(3, Some(1)), at(4, Some(2)), at(5, Some(2)), at(6, Some(1))];
        assert_eq!(
            shape(log),
            [
                row(1, 0, ""),
                row(2, 1, "├─ "),
                row(4, 2, "│  ├─ "),
                row(5, 2, "│  └─ "),
                row(3, 1, "├─ "),
                row(6, 1, "└─ ")
            ]
        );
    }

    #[test]
    fn text_has_a_line_for_each_decision() {
        let log = (2..=1_001).map(|number| at(number, Some(1)));
        let steps = build_tree(std::iter::once(at(1, None)).chain(log).collect(), &BTreeSet::new());
        assert_eq!(text(&steps, LOOK).lines().count(), 2 + 1 + 1 + 1_001 + 2);
    }

    #[test]
    fn cause_of_another_chain_is_named() {
        let steps = build_tree(vec![at(1, None), at(2, Some(99)), at(3, Some(2))], &BTreeSet::new());
        assert!(
            text(&steps, LOOK)
                .contains("web/2: created, waiting for placement (cause 00000063 is not in this trace)")
        );
    }

    #[test]
    fn deep_levels_are_numbered() {
        let log = (2..=400).map(|number| at(number, Some(number - 1)));
        let shape = shape(std::iter::once(at(1, None)).chain(log).collect());
        assert_eq!(shape[399], row(400, 399, "…399 └─ "));
        assert!(shape.iter().all(|(_, _, branch)| branch.chars().count() <= 3 * MAX_DRAWN_LEVELS));
    }

    #[test]
    fn tree_is_formatted_as_text() {
        let mut log = vec![at(1, None), at(2, Some(1)), at(3, Some(2)), at(4, Some(1))];
        log[0].decision.reason = Some("launch".into());
        log[3].decision.aggregate = Aggregate::Cell(CellId::new("c1").unwrap());
        log[3].decision.reason = Some("it is late".into());
        log[3].decision.at = Timestamp::from_millis(4_250);
        let steps = build_tree(log, &[decision_id(3)].into());
        assert_eq!(
            text(&steps, LOOK),
            "correlation 00000000-0000-0000-0000-000000000001\n\
             1970-01-01T00:00:01.000Z at position 10, by client shop/ada, reason \"launch\"\n\
             \n\
             SINCE START   SINCE CAUSE   POSITION   WHO               WHAT\n       \
             +0ms             -         10   client shop/ada   web/1: created, waiting for placement\n    \
             +1.000s       +1.000s         20   client shop/ada   ├─ web/2: created, waiting for placement\n    \
             +2.000s       +1.000s         30   client shop/ada   │  └─ web/3: created, waiting for placement ← requested\n    \
             +3.250s       +3.250s         40   client shop/ada   └─ cell c1/4@web: created, waiting for placement \"it is late\"\n\
             \n\
             4 decisions about 2 aggregates in 3.250s"
        );
    }
}
