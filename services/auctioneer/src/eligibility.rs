//! Cell classes that an auction evaluated for work without a suitable cell. Two events may unblock the work:
//! free resources on a cell of an eligible class, and a cell of a new class.

use std::collections::BTreeMap;

use schemas::Position;
use schemas::limits::truncate;
use schemas::placement::Eligibility;
use schemas::resources::{CellClass, Constraint};
use schemas::rules::Rule;

use crate::board::BoardCell;

/// Maximum number of constraints named in an explanation.
pub(crate) const MAX_EXPLAINED_RULES: usize = 4;
/// Maximum length of a constraint's text, in bytes. Longer texts are cut.
pub(crate) const MAX_RULE_BYTES: usize = 80;
/// Maximum number of eligible classes in a list. The limit for ineligible classes is the same.
const MAX_CLASSES: usize = 24;

/// Returns the eligible and ineligible classes of these cells, and the constraints whose result differs
/// between cells of one class.
pub(crate) fn eligibility<'a>(
    cells: impl Iterator<Item = (&'a BoardCell, CellClass)>,
    constraint: &Constraint,
    observed_position: Position,
) -> Eligibility {
    let mut may: BTreeMap<CellClass, bool> = BTreeMap::new();
    for (cell, class) in cells {
        *may.entry(class).or_default() |= constraint.mismatch(&cell.offer()).is_none();
    }
    let of = |wanted: bool| may.iter().filter(move |(_, may)| **may == wanted).map(|(class, _)| *class);
    let named = |wanted| of(wanted).take(MAX_CLASSES).collect::<Vec<_>>();
    let (eligible, ineligible) = (named(true), named(false));
    let others = may.len() - eligible.len() - ineligible.len();
    let rules = constraint.rules.as_ref().map_or(&[][..], |rules| &rules.constraints);
    let escaped = rules.iter().filter(|rule| Rule::escapes(rule)).take(MAX_EXPLAINED_RULES).map(rule_text);
    Eligibility {
        observed_position,
        eligible,
        ineligible,
        unlisted: u32::try_from(others).unwrap_or(u32::MAX),
        escaped: escaped.collect(),
    }
}

/// Returns a constraint in the user's notation.
pub(crate) fn rule_text(rule: &Rule) -> String {
    truncate(&rule.to_string(), MAX_RULE_BYTES)
}
