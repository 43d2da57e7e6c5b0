//! Racks of the cells, and the constraints and affinities of clients for them. The meaning of the rules is
//! written here independently of the services.

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::attributes::{AttributeName, Attributes};
use schemas::names::{CellId, DefinitionId, ProcessGuid, TaskGuid};
use schemas::resources::Constraint;
use schemas::rules::{Affinity, Operator, Rule, Rules, Spread};

use crate::nodes::number_of;
use crate::plan::Act;
use crate::rng::Rng;
use crate::workload::{Ask, Owner, Work, domain};
use crate::{rollouts, walls};

/// Runs with constraints for racks, per thousand.
const PERMILLE: u64 = 500;

/// Interval between two choices of clients.
const TICK: Duration = Duration::from_millis(500);

/// Runs with affinities for racks, per thousand.
const WISHES_PERMILLE: u64 = 400;

/// Attribute of a rack.
pub(super) const RACK: &str = "rack";

/// Attribute of a zone.
pub(super) const ZONE: &str = "zone";

/// Constraints and affinities of work.
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
    /// Prefers `rack = r1`.
    PrefersFirst,
    /// Avoids `rack = r1`.
    ShunsFirst,
    /// Prefers `rack is_set`, and avoids `rack = r1` more strongly.
    PrefersOther,
    /// `rack is_set`, and avoids `rack = r1`.
    AnyShunsFirst,
    /// Spread over racks.
    Spread,
    /// Spread over racks, and avoids `rack = r1`.
    SpreadShunsFirst,
    /// Spread over racks, with `distinct_cell`.
    SpreadOnePerCell,
    /// Spread over racks and, with half the weight, over zones.
    SpreadOverBoth,
    /// Spread with a target of 70 % in r1.
    MostlyFirst,
    /// Spread with a target of 100 % in r1.
    AllInFirst,
}

impl Asks {
    /// Values with their names in stories.
    pub const NAMES: [(Self, &str); 16] = [
        (Self::First, "rack"),
        (Self::NotFirst, "other-rack"),
        (Self::Any, "any-rack"),
        (Self::Unknown, "unknown-rack"),
        (Self::OnePerCell, "one-per-cell"),
        (Self::TwoPerRack, "two-per-rack"),
        (Self::PrefersFirst, "prefers-rack"),
        (Self::ShunsFirst, "shuns-rack"),
        (Self::PrefersOther, "prefers-other-rack"),
        (Self::AnyShunsFirst, "any-rack-shuns-rack"),
        (Self::Spread, "spread"),
        (Self::SpreadShunsFirst, "spread-shuns-rack"),
        (Self::SpreadOnePerCell, "spread-one-per-cell"),
        (Self::SpreadOverBoth, "spread-over-zones-too"),
        (Self::MostlyFirst, "spread-mostly-rack"),
        (Self::AllInFirst, "spread-all-in-rack"),
    ];

    /// Returns the name in stories.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::First => "rack",
            Self::NotFirst => "other-rack",
            Self::Any => "any-rack",
            Self::Unknown => "unknown-rack",
            Self::OnePerCell => "one-per-cell",
            Self::TwoPerRack => "two-per-rack",
            Self::PrefersFirst => "prefers-rack",
            Self::ShunsFirst => "shuns-rack",
            Self::PrefersOther => "prefers-other-rack",
            Self::AnyShunsFirst => "any-rack-shuns-rack",
            Self::Spread => "spread",
            Self::SpreadShunsFirst => "spread-shuns-rack",
            Self::SpreadOnePerCell => "spread-one-per-cell",
            Self::SpreadOverBoth => "spread-over-zones-too",
            Self::MostlyFirst => "spread-mostly-rack",
            Self::AllInFirst => "spread-all-in-rack",
        }
    }

    /// Returns the rules in a definition.
    pub(super) fn rules(self) -> Rules {
        let is_first = || of_rack(Operator::Equal, "r1");
        let is_any = || of_rack(Operator::IsSet, "");
        let one_per_cell = || Rule { attribute: None, ..of_rack(Operator::DistinctCell, "") };
        match self {
            Self::First => must(is_first()),
            Self::NotFirst => must(of_rack(Operator::NotEqual, "r1")),
            Self::Any => must(is_any()),
            Self::Unknown => must(of_rack(Operator::Equal, "r9")),
            Self::OnePerCell => must(one_per_cell()),
            Self::TwoPerRack => must(of_rack(Operator::DistinctAttribute, "2")),
            Self::PrefersFirst => rather([(is_first(), 50)]),
            Self::ShunsFirst => rather([(is_first(), -50)]),
            Self::PrefersOther => rather([(is_any(), 30), (is_first(), -50)]),
            Self::AnyShunsFirst => Rules { constraints: vec![is_any()], ..rather([(is_first(), -50)]) },
            Self::Spread => over([(RACK, 50)], None),
            Self::SpreadShunsFirst => {
                Rules { affinities: rather([(is_first(), -50)]).affinities, ..over([(RACK, 50)], None) }
            }
            Self::SpreadOnePerCell => Rules { constraints: vec![one_per_cell()], ..over([(RACK, 50)], None) },
            Self::SpreadOverBoth => over([(RACK, 50), (ZONE, 25)], None),
            Self::MostlyFirst => over([(RACK, 50)], Some(70)),
            Self::AllInFirst => over([(RACK, 50)], Some(100)),
        }
    }
}

fn attribute(name: &str) -> AttributeName {
    AttributeName::new(name).expect("a name")
}

fn of_rack(operator: Operator, value: &str) -> Rule {
    Rule { attribute: Some(attribute(RACK)), operator, value: value.to_owned().into() }
}

fn must(rule: Rule) -> Rules {
    Rules { constraints: vec![rule], ..Rules::default() }
}

fn rather<const N: usize>(rules: [(Rule, i8); N]) -> Rules {
    let affinities = rules.map(|(rule, weight)| Affinity { rule, weight }).into();
    Rules { affinities, ..Rules::default() }
}

/// Returns a spread over attributes with weights, and maybe a target for r1.
fn over<const N: usize>(attributes: [(&str, u8); N], first: Option<u8>) -> Rules {
    let targets: BTreeMap<String, u8> = first.map(|percent| ("r1".to_owned(), percent)).into_iter().collect();
    let spread = |(name, weight)| Spread { attribute: attribute(name), weight, targets: targets.clone() };
    Rules { spread: attributes.map(spread).into(), ..Rules::default() }
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
pub(super) fn attributes(cell: usize) -> Attributes {
    let isolation = Some((AttributeName::isolation(), walls::kept(cell).to_string()));
    let rack = rack(cell).map(|rack| (attribute(RACK), rack.to_owned()));
    Attributes::new(isolation.into_iter().chain(rack).collect()).expect("few and short ones")
}

// ---- commands ---------------------------------------------------------------------------------------------------

/// Draws commands with constraints for racks.
#[must_use]
pub(super) fn drawn(rng: &mut Rng, peace_at: Duration) -> Vec<(Duration, Act)> {
    if rng.chance(PERMILLE) { until(peace_at, rng, asked) } else { vec![] }
}

/// Draws commands with affinities for racks.
#[must_use]
pub(super) fn wished(rng: &mut Rng, peace_at: Duration) -> Vec<(Duration, Act)> {
    if rng.chance(WISHES_PERMILLE) { until(peace_at, rng, wish) } else { vec![] }
}

/// Draws commands at intervals until peace.
pub(super) fn until(peace_at: Duration, rng: &mut Rng, asked: fn(&mut Rng) -> Ask) -> Vec<(Duration, Act)> {
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

/// Number of kinds of work.
const WORKS: u64 = 8;

/// Returns work that depends on the number only, because definitions of one name are equal.
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

fn wish(rng: &mut Rng) -> Ask {
    let process = ProcessGuid::new(&format!("wish{}", rng.below(3))).expect("a name");
    let number = rng.below(WISHES.len() as u64);
    match rng.below(12) {
        0..=4 => {
            let work = wish_of(number);
            Ask::Desire { process, instances: 1 + u32_below(rng, 6), work }
        }
        5..=7 => Ask::Scale { process, instances: u32_below(rng, 8) },
        8 => {
            let definition = DefinitionId::new(&format!("w{number}")).expect("a name");
            let patient = rng.chance(300);
            let rolls = rng.chance(400).then(|| Box::new(rollouts::rolls(rng, patient)));
            Ask::Deploy { process, definition, work: wish_of(number), rolls }
        }
        9 => Ask::Remove(process),
        _ => {
            let task = TaskGuid::new(&format!("wished{}", rng.below(50))).expect("a name");
            let run = Some(rng.millis(1_000, 10_000));
            // A task has one instance, so it has no spread.
            let work = Work { run, ..wish_of(number % AFFINITIES) };
            Ask::Run { task, work, owner: Owner::None, queue: None }
        }
    }
}

/// Rules of definitions. The first ones are also for tasks.
const WISHES: [Asks; 10] = [
    Asks::PrefersFirst,
    Asks::ShunsFirst,
    Asks::PrefersOther,
    Asks::AnyShunsFirst,
    Asks::Spread,
    Asks::SpreadShunsFirst,
    Asks::SpreadOnePerCell,
    Asks::SpreadOverBoth,
    Asks::MostlyFirst,
    Asks::AllInFirst,
];

/// Number of rules that only contain affinities.
const AFFINITIES: u64 = 4;

/// Returns work that depends on the number only, because definitions of one name are equal.
fn wish_of(number: u64) -> Work {
    let asks = usize::try_from(number).ok().and_then(|number| WISHES.get(number)).copied();
    Work { asks, memory_mb: 64 + number, ..Work::usual() }
}

pub(super) fn u32_below(rng: &mut Rng, bound: u64) -> u32 {
    u32::try_from(rng.below(bound)).unwrap_or(0)
}

// ---- meaning ----------------------------------------------------------------------------------------------------

fn rules(constraint: &Constraint) -> impl Iterator<Item = &Rule> {
    constraint.rules.iter().flat_map(|rules| &rules.constraints)
}

/// Returns the rack of a cell.
pub(super) fn rack_of(cell: &CellId) -> Option<&'static str> {
    rack(number_of(cell))
}

/// Returns the first constraint that a cell does not meet, without regard to other instances.
pub(super) fn unmet<'a>(constraint: &'a Constraint, cell: &CellId) -> Option<&'a Rule> {
    rules(constraint).find(|rule| !holds(rule, cell))
}

/// Returns `true` if a cell meets a rule, without regard to other instances.
pub(super) fn holds(rule: &Rule, cell: &CellId) -> bool {
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
pub(super) fn is_limited(constraint: &Constraint) -> bool {
    rules(constraint)
        .any(|rule| matches!(rule.operator, Operator::DistinctCell | Operator::DistinctAttribute))
}
