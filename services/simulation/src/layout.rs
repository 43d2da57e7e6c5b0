//! Racks and isolation layers of the cells, and the meaning of rules for them. They are written here
//! independently of the services.

use schemas::attributes::{AttributeName, Attributes};
use schemas::isolation::{Isolation, IsolationLayer};
use schemas::names::CellId;
use schemas::resources::Constraint;
use schemas::rules::{Operator, Rule};
use std::collections::BTreeSet;

/// Attribute of a rack.
pub(crate) const RACK: &str = "rack";

/// Attribute of a zone.
pub(crate) const ZONE: &str = "zone";

/// Returns the id of a cell.
#[must_use]
pub fn cell_id(at: usize) -> CellId {
    CellId::new(&format!("c{}", at + 1)).expect("a name")
}

/// Returns the number of a cell.
pub(crate) fn number_of(cell: &CellId) -> usize {
    let number = cell.as_str().strip_prefix('c').and_then(|number| number.parse::<usize>().ok());
    number.and_then(|number| number.checked_sub(1)).expect("cells are called c1, c2, ...")
}

pub(crate) fn attribute(name: &str) -> AttributeName {
    AttributeName::new(name).expect("a name")
}

/// Returns the rack of a cell. Every third cell has none.
const fn rack(cell: usize) -> Option<&'static str> {
    match cell % 3 {
        0 => Some("r1"),
        1 => Some("r2"),
        _ => None,
    }
}

/// Returns the attributes of a cell.
pub(crate) fn attributes(cell: usize) -> Attributes {
    let isolation = Some((AttributeName::isolation(), layers(cell).to_string()));
    let rack = rack(cell).map(|rack| (attribute(RACK), rack.to_owned()));
    Attributes::new(isolation.into_iter().chain(rack).collect()).expect("few and short ones")
}

/// Returns the layers of a cell: the first cell has all, the second all but Landlock, the third none.
pub(crate) const fn layers(cell: usize) -> Isolation {
    match cell % 4 {
        0 => Isolation::FULL,
        1 => Isolation::FULL.without(IsolationLayer::Landlock),
        2 => Isolation::NONE,
        _ => Isolation::FULL.without(IsolationLayer::Memory).without(IsolationLayer::Disk),
    }
}

fn rules(constraint: &Constraint) -> impl Iterator<Item = &Rule> {
    constraint.rules.iter().flat_map(|rules| &rules.constraints)
}

/// Returns the rack of a cell.
pub(crate) fn rack_of(cell: &CellId) -> Option<&'static str> {
    rack(number_of(cell))
}

/// Returns the first constraint that a cell does not meet, without regard to other instances.
pub(crate) fn unmet<'a>(constraint: &'a Constraint, cell: &CellId) -> Option<&'a Rule> {
    rules(constraint).find(|rule| !holds(rule, cell))
}

/// Returns `true` if a cell meets a rule, without regard to other instances.
pub(crate) fn holds(rule: &Rule, cell: &CellId) -> bool {
    let is = rack_of(cell);
    match (rule.operator, rule.value.as_str()) {
        (Operator::Equal, value) => is == Some(value),
        (Operator::NotEqual, value) => is != Some(value),
        (Operator::IsSet | Operator::DistinctAttribute, _) => is.is_some(),
        (Operator::DistinctCell, _) => true,
        (
            Operator::Less
            | Operator::AtMost
            | Operator::Greater
            | Operator::AtLeast
            | Operator::Version
            | Operator::Regexp
            | Operator::SetContains
            | Operator::IsNotSet,
            _,
        ) => unreachable!("the workload has no such rule"),
    }
}

/// Returns `true` if a constraint limits the number of instances per cell or rack.
pub(crate) fn is_limited(constraint: &Constraint) -> bool {
    rules(constraint)
        .any(|rule| matches!(rule.operator, Operator::DistinctCell | Operator::DistinctAttribute))
}

/// Returns the isolation layers of a cell.
pub(crate) fn layers_of(cell: &CellId) -> Isolation {
    layers(number_of(cell))
}

/// Returns `true` if a cell meets isolation requirements.
pub(crate) fn meets_isolation(wanted: &BTreeSet<IsolationLayer>, cell: &CellId) -> bool {
    let lacking: Vec<IsolationLayer> = layers_of(cell).missing().collect();
    !wanted.iter().any(|wall| lacking.contains(wall))
}
