//! Tree of the decisions (recorded changes) that a command caused. The functions are pure: they take
//! decisions, and return steps and text.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cli_base::output::RenderOptions;
use cli_base::table::{Cell, Table};
use schemas::names::DecisionId;
use schemas::{Decision, Position, Timestamp};
use serde::Serialize;
use text::describe::{actor, sentences};
use text::words::{count, one_line, precise_duration, short_id};

use crate::why::stamp;
use explain::decisions::PositionedDecision;

/// Maximum number of levels that are drawn with lines. Deeper levels are numbered, because a process that
/// crashes repeatedly has a chain of hundreds of levels.
const MAX_DRAWN_LEVELS: usize = 16;

/// A decision in its tree. Steps are listed below their cause. Steps with the same cause are in the order of
/// the log.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Step {
    #[serde(flatten)]
    pub(super) decision: Decision,
    /// Position of the entry.
    pub(super) position: Position,
    /// Number of decisions between this decision and its root. 0 for a root.
    pub(super) depth: usize,
    /// `true` if the cause belongs to another chain or cannot be read.
    pub(super) cause_is_elsewhere: bool,
    /// Milliseconds between the cause and this decision. `None` for a root.
    pub(super) since_cause_ms: Option<u64>,
    /// Milliseconds since the first decision of the tree.
    pub(super) since_start_ms: u64,
    /// `true` if the user passed the id of this decision.
    requested: bool,
    /// Start time of the step: the time of its cause or, for a root, the time of the decision itself.
    #[serde(skip)]
    pub(super) start_time: Timestamp,
    /// Lines drawn before the text.
    #[serde(skip)]
    branch: String,
}

/// A decision whose position in the tree is known.
struct Placed {
    index: usize,
    depth: usize,
    /// Lines drawn before the decision.
    branch: String,
    /// Lines drawn before the consequences of the decision.
    rails: String,
}

/// Builds the tree from decisions in log order. A decision is a root unless its cause is an earlier decision
/// in the list.
pub(super) fn build_tree(decided: Vec<PositionedDecision>, asked: &BTreeSet<DecisionId>) -> Vec<Step> {
    let parents = parents(&decided);
    let mut children: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
    for (index, parent) in parents.iter().enumerate() {
        children.entry(*parent).or_default().push(index);
    }
    let root = |&index: &usize| Placed { index, depth: 0, branch: String::new(), rails: String::new() };
    let mut open: Vec<Placed> = children.get(&None).into_iter().flatten().rev().map(root).collect();
    let times: Vec<Timestamp> = decided.iter().map(|one| one.decision.at).collect();
    let mut left: Vec<Option<PositionedDecision>> = decided.into_iter().map(Some).collect();
    let mut steps = vec![];
    while let Some(placed) = open.pop() {
        let below = children.get(&Some(placed.index)).map_or(&[][..], Vec::as_slice);
        for (nth, &index) in below.iter().enumerate().rev() {
            open.push(child(&placed, index, nth + 1 == below.len()));
        }
        // Each decision has at most one parent, so it is reached once.
        let Some(PositionedDecision { position, decision }) = left[placed.index].take() else { continue };
        let cause = parents[placed.index].map(|parent| times[parent]);
        steps.push(Step {
            position,
            depth: placed.depth,
            cause_is_elsewhere: cause.is_none() && decision.cause.is_some(),
            since_cause_ms: cause.map(|cause| millis(decision.at.since(cause))),
            since_start_ms: millis(decision.at.since(times[0])),
            requested: asked.contains(&decision.id),
            // The clocks of two leaders may differ, so the time of a cause can be later than the time of its
            // consequence.
            start_time: cause.map_or(decision.at, |cause| cause.min(decision.at)),
            branch: placed.branch,
            decision,
        });
    }
    steps
}

/// Returns the index of the cause of each decision. `None` if the cause is not an earlier decision in the
/// list.
fn parents(decided: &[PositionedDecision]) -> Vec<Option<usize>> {
    let mut known: BTreeMap<DecisionId, usize> = BTreeMap::new();
    let mut parents = vec![];
    for (index, PositionedDecision { decision, .. }) in decided.iter().enumerate() {
        parents.push(decision.cause.and_then(|cause| known.get(&cause).copied()));
        known.entry(decision.id).or_insert(index);
    }
    parents
}

fn child(cause: &Placed, index: usize, is_last: bool) -> Placed {
    let depth = cause.depth + 1;
    let (mark, rail) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
    if depth > MAX_DRAWN_LEVELS {
        return Placed { index, depth, branch: format!("…{depth} {mark}"), rails: String::new() };
    }
    let (branch, rails) = (format!("{}{mark}", cause.rails), format!("{}{rail}", cause.rails));
    Placed { index, depth, branch, rails }
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

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
    let mut table = Table::new(&["SINCE START", "SINCE CAUSE", "POSITION", "WHO", "WHAT"]);
    for step in steps {
        table.row(vec![
            since_cell(Some(step.since_start_ms)),
            since_cell(step.since_cause_ms),
            Cell::number(step.position),
            Cell::text(actor(&step.decision.actor)),
            Cell::text(what(step, look)),
        ]);
    }
    lines.extend([String::new(), table.render(look.colour), String::new(), totals_line(steps)]);
    lines.join("\n")
}

fn since_cell(millis: Option<u64>) -> Cell {
    let since = |millis| format!("+{}", precise_duration(Duration::from_millis(millis)));
    Cell::number(millis.map_or_else(|| "-".to_owned(), since))
}

/// Formats a step in one line.
fn what(step: &Step, look: RenderOptions) -> String {
    let Step { decision, branch, .. } = step;
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
    use schemas::entry::{Aggregate, Event};
    use schemas::names::CellId;
    use schemas::{Indices, Places, actual};

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
        let of = |step: Step| (step.position.0 / 10, step.depth, step.branch);
        build_tree(decided, &BTreeSet::new()).into_iter().map(of).collect()
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
    fn tree_of_a_thousand_decisions_is_complete() {
        let log = (2..=1_001).map(|number| at(number, Some(1)));
        let steps = build_tree(std::iter::once(at(1, None)).chain(log).collect(), &BTreeSet::new());
        assert_eq!(steps.len(), 1_001);
        assert!(steps.iter().map(|step| step.position).is_sorted());
        assert_eq!(text(&steps, LOOK).lines().count(), 2 + 1 + 1 + 1_001 + 2);
    }

    #[test]
    fn missing_or_later_cause_makes_a_root() {
        let log = vec![
            at(1, None),
            at(2, Some(99)),
            at(3, Some(2)),
            at(4, Some(4)),
            at(5, Some(6)),
            at(6, Some(5)),
        ];
        let steps = build_tree(log, &BTreeSet::new());
        let told: Vec<_> =
            steps.iter().map(|step| (step.position.0 / 10, step.depth, step.cause_is_elsewhere)).collect();
        let expected =
            [(1, 0, false), (2, 0, true), (3, 1, false), (4, 0, true), (5, 0, true), (6, 1, false)];
        assert_eq!(told, expected);
        assert_eq!((steps[1].since_cause_ms, steps[2].since_cause_ms), (None, Some(1_000)));
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
    fn clock_skew_never_yields_negative_durations() {
        let mut log = vec![at(5, None), at(6, Some(5))];
        log[1].decision.at = Timestamp::from_millis(4_000);
        let steps = build_tree(log, &BTreeSet::new());
        assert_eq!((steps[1].since_cause_ms, steps[1].since_start_ms), (Some(0), 0));
        assert_eq!(steps[1].start_time, steps[1].decision.at);
    }

    #[test]
    fn tree_is_formatted_as_text_and_json() {
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
        let json = serde_json::to_value(&steps[2]).unwrap();
        assert_eq!(
            (&json["id"], &json["cause"]),
            (&decision_id(3).to_string().into(), &decision_id(2).to_string().into())
        );
        assert_eq!(
            (&json["depth"], &json["position"], &json["requested"]),
            (&2.into(), &30.into(), &true.into())
        );
        assert_eq!((&json["since_cause_ms"], &json["since_start_ms"]), (&1_000.into(), &2_000.into()));
        assert!(json["events"][0]["actual"]["created.v1"].is_object(), "{json}");
    }
}
