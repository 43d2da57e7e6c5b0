//! The racks that the cells of a run stand in, what clients ask of them, and what that means: for the workload and, written
//! apart from the services' code, for the checkers.

use std::time::Duration;

use schemas::attributes::{AttributeName, Attributes};
use schemas::names::{CellId, DefinitionId, ProcessGuid};
use schemas::resources::Constraint;
use schemas::rules::{Operator, Rule, Rules};

use crate::nodes::{Node, rep_of};
use crate::plan::Act;
use crate::rng::Rng;
use crate::rollouts;
use crate::workload::{Ask, Work, domain};

/// In so many runs of a thousand somebody asks for racks.
const PERMILLE: u64 = 500;

/// How often somebody does something.
const TICK: Duration = Duration::from_millis(500);

/// The attribute.
const RACK: &str = "rack";

/// What work asks of racks and of where its siblings are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// `rack = r1`
    First,
    /// `rack != r1`
    NotFirst,
    /// `rack is_set`
    Any,
    /// `rack = r9`, which no cell is in.
    Unknown,
    /// `distinct_cell`
    OnePerCell,
    /// `distinct_attribute rack 2`
    TwoPerRack,
}

impl Asks {
    /// All of them, with their names in stories.
    pub const NAMES: [(Self, &str); 6] = [
        (Self::First, "rack"),
        (Self::NotFirst, "other-rack"),
        (Self::Any, "any-rack"),
        (Self::Unknown, "unknown-rack"),
        (Self::OnePerCell, "one-per-cell"),
        (Self::TwoPerRack, "two-per-rack"),
    ];

    /// Its name in stories.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::First => "rack",
            Self::NotFirst => "other-rack",
            Self::Any => "any-rack",
            Self::Unknown => "unknown-rack",
            Self::OnePerCell => "one-per-cell",
            Self::TwoPerRack => "two-per-rack",
        }
    }

    /// As a definition says it.
    pub(super) fn rules(self) -> Rules {
        let rack = AttributeName::new(RACK).expect("a name");
        let (attribute, operator, value) = match self {
            Self::First => (Some(rack), Operator::Equal, "r1"),
            Self::NotFirst => (Some(rack), Operator::NotEqual, "r1"),
            Self::Any => (Some(rack), Operator::IsSet, ""),
            Self::Unknown => (Some(rack), Operator::Equal, "r9"),
            Self::OnePerCell => (None, Operator::DistinctCell, ""),
            Self::TwoPerRack => (Some(rack), Operator::DistinctAttribute, "2"),
        };
        let rule = Rule { attribute, operator, value: value.to_owned().into() };
        Rules { constraints: vec![rule], ..Rules::default() }
    }
}

/// The rack that a cell stands in: every third stands in none.
const fn rack(cell: usize) -> Option<&'static str> {
    match cell % 3 {
        0 => Some("r1"),
        1 => Some("r2"),
        _ => None,
    }
}

/// What a cell says of itself.
pub(super) fn attributes(cell: usize) -> Attributes {
    let name = AttributeName::new(RACK).expect("a name");
    let values = rack(cell).map(|rack| (name, rack.to_owned())).into_iter().collect();
    Attributes::new(values).expect("few and short ones")
}

// ---- what is asked -----------------------------------------------------------------------------------------------

/// What clients do until peace with processes that ask for racks.
#[must_use]
pub(super) fn drawn(rng: &mut Rng, peace_at: Duration) -> Vec<(Duration, Act)> {
    if !rng.chance(PERMILLE) {
        return vec![];
    }
    let often = [40, 120, 250][usize::try_from(rng.below(3)).unwrap_or(0)];
    let mut acts = vec![];
    let mut at = Duration::from_secs(1);
    while at < peace_at {
        at += TICK;
        if rng.chance(often) {
            let ask = asked(rng);
            let patience = rng.millis(2_000, 30_000);
            acts.push((at, Act::Ask { domain: domain(), ask, patience, answer: None }));
        }
    }
    acts.retain(|(at, _)| *at < peace_at);
    acts
}

fn asked(rng: &mut Rng) -> Ask {
    let process = ProcessGuid::new(&format!("held{}", rng.below(3))).expect("a name");
    let number = rng.below(WORKS);
    match rng.below(12) {
        0..=3 => Ask::Desire { process, instances: 1 + u32_below(rng, 5), work: work(number) },
        4 | 5 => Ask::Scale { process, instances: u32_below(rng, 7) },
        6..=8 => {
            let definition = DefinitionId::new(&format!("v{number}")).expect("a name");
            let patient = rng.chance(300);
            let rolls = rng.chance(400).then(|| Box::new(rollouts::rolls(rng, patient)));
            Ask::Deploy { process, definition, work: work(number), rolls }
        }
        9 | 10 => Ask::Retire(process, u32_below(rng, 4)),
        _ => Ask::Remove(process),
    }
}

/// How many kinds of work there are.
const WORKS: u64 = 8;

/// A definition of the same name is the same.
fn work(number: u64) -> Work {
    let asks = match number {
        0 => Some(Asks::First),
        1 => Some(Asks::NotFirst),
        2 => Some(Asks::Any),
        3 => Some(Asks::Unknown),
        4 | 5 => Some(Asks::OnePerCell),
        6 => Some(Asks::TwoPerRack),
        _ => None,
    };
    let run = (number == 5).then(|| Duration::from_secs(3));
    Work { asks, run, exit: u8::from(run.is_some()), memory_mb: 64 + number, ..Work::usual() }
}

fn u32_below(rng: &mut Rng, bound: u64) -> u32 {
    u32::try_from(rng.below(bound)).unwrap_or(0)
}

// ---- what it means -----------------------------------------------------------------------------------------------

fn rules(constraint: &Constraint) -> impl Iterator<Item = &Rule> {
    constraint.rules.iter().flat_map(|rules| &rules.constraints)
}

/// The cell at this number of the run.
fn number(cell: &CellId) -> usize {
    match rep_of(cell) {
        Node::Rep(at) => at,
        Node::Bbs(_) | Node::Auctioneer(_) => usize::MAX,
    }
}

/// The first constraint that a cell by itself doesn't meet.
pub(super) fn unmet<'a>(constraint: &'a Constraint, cell: &CellId) -> Option<&'a Rule> {
    let is = rack(number(cell));
    rules(constraint).find(|rule| {
        let holds = match (rule.operator, rule.value.as_str()) {
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
            ) => unreachable!("nobody asks for that here"),
        };
        !holds
    })
}

/// Cells on which only so many instances may be together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    /// So many.
    pub(super) most: u32,
    /// The cell, or the rack that it is in.
    of: Of,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Of {
    Cell(CellId),
    Rack(Option<&'static str>),
}

impl Limit {
    /// Whether it is about this cell.
    pub(super) fn has(&self, cell: &CellId) -> bool {
        match &self.of {
            Of::Cell(own) => own == cell,
            Of::Rack(own) => *own == rack(number(cell)),
        }
    }
}

/// How many instances may be where, for what is on this cell.
pub(super) fn limits(constraint: &Constraint, cell: &CellId) -> Vec<Limit> {
    let limit = |rule: &Rule| match rule.operator {
        Operator::DistinctCell => Some(Limit { most: 1, of: Of::Cell(cell.clone()) }),
        Operator::DistinctAttribute => Some(Limit { most: 2, of: Of::Rack(rack(number(cell))) }),
        Operator::Equal
        | Operator::NotEqual
        | Operator::Less
        | Operator::AtMost
        | Operator::Greater
        | Operator::AtLeast
        | Operator::Version
        | Operator::Regexp
        | Operator::SetContains
        | Operator::IsSet
        | Operator::IsNotSet => None,
    };
    rules(constraint).filter_map(limit).collect()
}

/// Whether it is limited how many instances may be where.
pub(super) fn is_limited(constraint: &Constraint) -> bool {
    rules(constraint)
        .any(|rule| matches!(rule.operator, Operator::DistinctCell | Operator::DistinctAttribute))
}
