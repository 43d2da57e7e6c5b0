//! Tree of the decisions (recorded changes) that a command caused. The functions are pure: they take
//! decisions, and return steps.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemas::names::DecisionId;
use schemas::{Decision, Position, Timestamp};
use serde::Serialize;

use crate::decisions::PositionedDecision;

/// A decision in its tree. Steps are listed below their cause. Steps with the same cause are in the order of
/// the log.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    #[serde(flatten)]
    pub decision: Decision,
    /// Position of the entry.
    pub position: Position,
    /// Number of decisions between this decision and its root. 0 for a root.
    pub depth: usize,
    /// `true` if the cause belongs to another chain or cannot be read.
    pub cause_is_elsewhere: bool,
    /// Milliseconds between the cause and this decision. `None` for a root.
    pub since_cause_ms: Option<u64>,
    /// Milliseconds since the first decision of the tree.
    pub since_start_ms: u64,
    /// `true` if the user passed the id of this decision.
    pub requested: bool,
    /// Start time of the step: the time of its cause or, for a root, the time of the decision itself.
    #[serde(skip)]
    pub start_time: Timestamp,
}

/// A decision whose position in the tree is known.
struct Placed {
    index: usize,
    depth: usize,
}

/// Builds the tree from decisions in log order. A decision is a root unless its cause is an earlier decision
/// in the list.
#[must_use]
pub fn build_tree(decided: Vec<PositionedDecision>, asked: &BTreeSet<DecisionId>) -> Vec<Step> {
    let parents = parents(&decided);
    let mut children: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
    for (index, parent) in parents.iter().enumerate() {
        children.entry(*parent).or_default().push(index);
    }
    let root = |&index: &usize| Placed { index, depth: 0 };
    let mut open: Vec<Placed> = children.get(&None).into_iter().flatten().rev().map(root).collect();
    let times: Vec<Timestamp> = decided.iter().map(|one| one.decision.at).collect();
    let mut left: Vec<Option<PositionedDecision>> = decided.into_iter().map(Some).collect();
    let mut steps = vec![];
    while let Some(placed) = open.pop() {
        let below = children.get(&Some(placed.index)).map_or(&[][..], Vec::as_slice);
        open.extend(below.iter().rev().map(|&index| Placed { index, depth: placed.depth + 1 }));
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

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use schemas::entry::Event;
    use schemas::{Indices, Places, actual};

    use super::*;
    use fixtures::web::{client, decision, id};

    fn decision_id(number: u64) -> DecisionId {
        DecisionId(id(number.into()))
    }

    /// Returns a decision at `number` seconds after 1970 that creates instance `number`.
    fn at(number: u64, cause: Option<u64>) -> PositionedDecision {
        let definition_id = schemas::names::DefinitionId::new("web").unwrap();
        let places = Places { indices: Indices::from(u32::try_from(number).unwrap()), definition_id };
        let mut decision = decision(number, client(), vec![Event::Actual(actual::Event::Created { places })]);
        decision.cause = cause.map(decision_id);
        PositionedDecision { position: Position(number * 10), decision }
    }

    #[test]
    fn tree_of_a_thousand_decisions_is_complete() {
        let log = (2..=1_001).map(|number| at(number, Some(1)));
        let steps = build_tree(std::iter::once(at(1, None)).chain(log).collect(), &BTreeSet::new());
        assert_eq!(steps.len(), 1_001);
        assert!(steps.iter().map(|step| step.position).is_sorted());
    }

    #[test]
    fn siblings_are_in_log_order_above_their_consequences() {
        let log =
            vec![at(1, None), at(2, Some(1)), at(3, Some(1)), at(4, Some(2)), at(5, Some(2)), at(6, Some(1))];
        let steps = build_tree(log, &BTreeSet::new());
        let shape: Vec<_> = steps.iter().map(|step| (step.position.0 / 10, step.depth)).collect();
        assert_eq!(shape, [(1, 0), (2, 1), (4, 2), (5, 2), (3, 1), (6, 1)]);
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
    fn steps_have_durations_and_requested_decisions() {
        let log = vec![at(1, None), at(2, Some(1)), at(3, Some(2))];
        let steps = build_tree(log, &[decision_id(3)].into());
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
