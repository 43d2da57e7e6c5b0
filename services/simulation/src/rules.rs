//! Placement rules and isolation requirements of work.

use schemas::isolation::IsolationLayer;
use schemas::rules::{Affinity, Operator, Rule, Rules, Spread};
use std::collections::{BTreeMap, BTreeSet};

use crate::layout::attribute;
use crate::layout::{RACK, ZONE};

/// Constraints and affinities of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RackRule {
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

impl RackRule {
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
    pub(crate) fn rules(self) -> Rules {
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
            Self::PrefersFirst => prefer([(is_first(), 50)]),
            Self::ShunsFirst => prefer([(is_first(), -50)]),
            Self::PrefersOther => prefer([(is_any(), 30), (is_first(), -50)]),
            Self::AnyShunsFirst => Rules { constraints: vec![is_any()], ..prefer([(is_first(), -50)]) },
            Self::Spread => over([(RACK, 50)], None),
            Self::SpreadShunsFirst => {
                Rules { affinities: prefer([(is_first(), -50)]).affinities, ..over([(RACK, 50)], None) }
            }
            Self::SpreadOnePerCell => Rules { constraints: vec![one_per_cell()], ..over([(RACK, 50)], None) },
            Self::SpreadOverBoth => over([(RACK, 50), (ZONE, 25)], None),
            Self::MostlyFirst => over([(RACK, 50)], Some(70)),
            Self::AllInFirst => over([(RACK, 50)], Some(100)),
        }
    }
}

fn of_rack(operator: Operator, value: &str) -> Rule {
    Rule { attribute: Some(attribute(RACK)), operator, value: value.to_owned().into() }
}

fn must(rule: Rule) -> Rules {
    Rules { constraints: vec![rule], ..Rules::default() }
}

fn prefer<const N: usize>(rules: [(Rule, i8); N]) -> Rules {
    let affinities = rules.map(|(rule, weight)| Affinity { rule, weight }).into();
    Rules { affinities, ..Rules::default() }
}

/// Returns a spread over attributes with weights, and maybe a target for r1.
fn over<const N: usize>(attributes: [(&str, u8); N], first: Option<u8>) -> Rules {
    let targets: BTreeMap<String, u8> = first.map(|percent| ("r1".to_owned(), percent)).into_iter().collect();
    let spread = |(name, weight)| Spread { attribute: attribute(name), weight, targets: targets.clone() };
    Rules { spread: attributes.map(spread).into(), ..Rules::default() }
}

/// Isolation requirements of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsolationRule {
    /// Every layer.
    All,
    Landlock,
    /// Separate files and processes.
    FilesAndProcesses,
}

impl IsolationRule {
    /// Values with their names in stories.
    pub const NAMES: [(Self, &str); 3] =
        [(Self::All, "all"), (Self::Landlock, "landlock"), (Self::FilesAndProcesses, "files-and-processes")];

    /// Returns the name in stories.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Landlock => "landlock",
            Self::FilesAndProcesses => "files-and-processes",
        }
    }

    /// Returns the requirements in a definition.
    pub(crate) fn wanted(self) -> BTreeSet<IsolationLayer> {
        match self {
            Self::All => BTreeSet::from(IsolationLayer::ALL),
            Self::Landlock => BTreeSet::from([IsolationLayer::Landlock]),
            Self::FilesAndProcesses => BTreeSet::from([IsolationLayer::Files, IsolationLayer::Processes]),
        }
    }
}
