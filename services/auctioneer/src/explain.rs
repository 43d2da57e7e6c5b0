//! Placement errors for users, and explanations of auction decisions: counts by reason and the best
//! candidates.

use std::borrow::Cow;

use schemas::limits::truncate;
use schemas::placement::{
    Candidate, Explanation, INSUFFICIENT_RESOURCES, NO_COMPATIBLE_CELLS, UNREACHABLE_CELLS,
};
use schemas::resources::{Mismatch, Resources, Shortage};
use schemas::rules::Rule;

use crate::board::{Board, CORDONED, EVACUATING, SILENT, UNHEALTHY, to_number};
use crate::eligibility::{MAX_EXPLAINED_RULES, MAX_RULE_BYTES};
use crate::family::Family;
use crate::score::Score;
use crate::search::Demand;
use crate::tally::Tally;
use crate::view::{Unmet, View, WeakIsolation};

/// Maximum number of constraints named in an error.
const MAX_ERROR_RULES: usize = 3;
/// Maximum length of a value's text, in characters.
const MAX_VALUE_CHARS: usize = 40;

/// Returns the placement error of work that no cell accepts (Diego Dev Notes, "Communicating Fullness").
pub(crate) fn error(board: &Board, wanted: Demand, tally: &Tally, family: &Family) -> String {
    let view = board.view(wanted.view);
    let unmet: u32 = view.unmet.iter().map(|unmet| unmet.cells).sum();
    let compatible = view.cells - view.stack - view.tags - view.weak.cells - unmet;
    if compatible == 0 {
        return sentence(NO_COMPATIBLE_CELLS, nearest_misses(view));
    }
    if view.candidates.is_empty() {
        let cordoned = (view.cordoned == compatible).then_some(CORDONED.into());
        return sentence(UNREACHABLE_CELLS, cordoned);
    }
    let all = to_number(view.candidates.len());
    let Some(counts) =
        wanted.sibling_index.map(|lane| family.index(lane).counts()).filter(|_| !view.distinct.is_empty())
    else {
        let lacked = Shortage::ALL.into_iter().filter(|what| tally.lacking(*what) == all);
        return sentence(INSUFFICIENT_RESOURCES, lacked.map(|what| what.as_str().into()));
    };
    let may = |cell: &&u32| family.may_have_more(view, wanted.sibling_index, **cell);
    let left: Vec<Resources> = view.candidates.iter().filter(may).map(|cell| board.free(*cell)).collect();
    let crowded = view.distinct.iter().zip(&counts.crowded).filter(|(_, cells)| **cells > 0);
    let crowded = crowded.map(|(one, cells)| {
        let are = if *cells == 1 { "cell is" } else { "cells are" };
        format!("{} ({cells} {are} taken)", constraint_text(&view.rules[one.rule])).into()
    });
    if left.is_empty() {
        return sentence(NO_COMPATIBLE_CELLS, crowded);
    }
    let lacked = Shortage::ALL
        .into_iter()
        .filter(|what| left.iter().all(|free| is_lacking(*free, wanted.size, *what)));
    sentence(INSUFFICIENT_RESOURCES, lacked.map(|what| what.as_str().into()).chain(crowded))
}

fn is_lacking(free: Resources, size: Resources, what: Shortage) -> bool {
    free.shortages(size).any(|lacked| lacked == what)
}

/// Returns the mismatches of the cells that come closest to being compatible. Cells that fail only a
/// constraint are closest, because their stack, tags and isolation match. Cells with insufficient isolation
/// are second, because their stack and tags match. Cells with different tags are last, because only their
/// stack matches.
fn nearest_misses(view: &View) -> Vec<Cow<'static, str>> {
    let missed: Vec<(&Rule, &Unmet)> =
        view.rules.iter().zip(&view.unmet).filter(|(_, unmet)| unmet.cells > 0).collect();
    if missed.is_empty() && view.weak.cells > 0 {
        return vec![describe_weak_isolation(&view.weak).into()];
    }
    if missed.is_empty() {
        let tags = (view.tags > 0).then_some(Mismatch::Tags);
        let why = tags.or((view.stack > 0).then_some(Mismatch::Stack));
        return why.map(Mismatch::description).into_iter().collect();
    }
    let miss = |(rule, unmet): &(&Rule, &Unmet)| {
        format!("{} ({})", constraint_text(rule), describe_values(unmet)).into()
    };
    let more = missed.len().saturating_sub(MAX_ERROR_RULES);
    let mut said: Vec<Cow<'static, str>> = missed.iter().take(MAX_ERROR_RULES).map(miss).collect();
    said.extend((more > 0).then(|| format!("and {more} more").into()));
    said
}

/// Describes the cells with insufficient isolation: `isolation (c1 is none, c2 is degraded[landlock], and 3
/// more)`.
fn describe_weak_isolation(weak: &WeakIsolation) -> String {
    let mut said: Vec<String> = weak.examples.iter().map(|(cell, has)| format!("{cell} is {has}")).collect();
    let more = weak.cells - to_number(weak.examples.len());
    said.extend((more > 0).then(|| format!("and {more} more")));
    format!("isolation ({})", said.join(", "))
}

/// Returns a constraint in the form that errors and explanations use.
pub(crate) fn constraint_text(rule: &Rule) -> String {
    truncate(&Mismatch::Rule(0, rule).description(), MAX_RULE_BYTES)
}

/// Describes the values that do not meet a constraint: `3 cells have linux`.
fn describe_values(unmet: &Unmet) -> String {
    let cells = |cells: u32, one: &str, many: &str| {
        if cells == 1 { format!("1 cell {one}") } else { format!("{cells} cells {many}") }
    };
    let short = |value: &String| value.chars().take(MAX_VALUE_CHARS).collect::<String>();
    let mut values: Vec<String> = unmet.values.iter().map(short).collect();
    values.extend(unmet.more.then(|| "others".to_owned()));
    let with = unmet.cells - unmet.without;
    let with = (with > 0 && !values.is_empty())
        .then(|| format!("{} {}", cells(with, "has", "have"), values.join(", ")));
    let without = (unmet.without > 0).then(|| cells(unmet.without, "doesn't have it", "don't have it"));
    with.into_iter().chain(without).collect::<Vec<_>>().join(", ")
}

fn sentence(what: &str, why: impl IntoIterator<Item = Cow<'static, str>>) -> String {
    let why: Vec<Cow<'_, str>> = why.into_iter().collect();
    if why.is_empty() { what.to_owned() } else { format!("{what}: {}", why.join(", ")) }
}

/// Builds an explanation: the number of rejected cells for each reason, and the best candidates. `crowded`
/// has one count per constraint on the number of instances: the candidates that have reached the limit of the
/// constraint. `refused` is the number of matching cells that were rejected because their rep had refused
/// this work.
pub(crate) fn explain(
    board: &Board,
    view: &View,
    (tally, crowded, refused): (&Tally, &[u32], u32),
    best: &[Score],
) -> Explanation {
    let reasons = [
        ("stack", view.stack),
        ("tags", view.tags),
        ("isolation", view.weak.cells),
        (EVACUATING, view.evacuating),
        (CORDONED, view.cordoned),
        (UNHEALTHY, view.unhealthy),
        (SILENT, view.silent),
        ("refused", refused),
    ];
    let lacks = Shortage::ALL.map(|what| (what.as_str(), tally.lacking(what)));
    let rejected = reasons.into_iter().chain(lacks).map(|(reason, cells)| (reason.to_owned(), cells));
    let rejected = rejected.chain(cells_excluded_by_rule(view, crowded)).filter(|(_, cells)| *cells > 0);
    Explanation {
        cells: view.cells,
        rejected: rejected.collect(),
        best: best.iter().map(|score| candidate(board, view, score)).collect(),
        eligibility: None,
    }
}

/// Returns the number of cells that each constraint excludes. The first [`MAX_EXPLAINED_RULES`] constraints
/// are listed by name. The counts of the remaining constraints are added up in one entry.
fn cells_excluded_by_rule(view: &View, crowded: &[u32]) -> Vec<(String, u32)> {
    let mut counts: Vec<u32> = view.unmet.iter().map(|unmet| unmet.cells).collect();
    for (one, cells) in view.distinct.iter().zip(crowded) {
        counts[one.rule] += cells;
    }
    let mut excluding: Vec<(&Rule, u32)> =
        view.rules.iter().zip(counts).filter(|(_, cells)| *cells > 0).collect();
    let others = excluding.split_off(excluding.len().min(MAX_EXPLAINED_RULES));
    let mut said: Vec<(String, u32)> = vec![];
    for (name, cells) in excluding.iter().map(|(rule, cells)| (constraint_text(rule), *cells)) {
        // Different constraints may have the same text after cutting.
        match said.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known += cells,
            None => said.push((name, cells)),
        }
    }
    if !others.is_empty() {
        let cells = others.iter().map(|(_, cells)| cells).sum();
        said.push((format!("and {} more constraints", others.len()), cells));
    }
    said
}

fn candidate(board: &Board, view: &View, score: &Score) -> Candidate {
    let cell = board.cell(score.cell);
    Candidate {
        cell_id: cell.id.clone(),
        zone: cell.zone.clone(),
        spread: view.explained_spread(score.spread),
        affinity: score.affinity.0,
        siblings_in_zone: score.siblings_in_zone,
        siblings_on_cell: score.siblings_on_cell,
        used_permille: score.load.permille(),
    }
}

#[cfg(test)]
mod tests {
    use schemas::names::{CellId, Zone};
    use schemas::placement::Eligibility;
    use schemas::resources::{CellClass, Constraint};
    use schemas::rules::Operator;
    use schemas::{Position, limits};

    use super::*;
    use crate::board::BoardCell;
    use crate::eligibility::eligibility;

    #[test]
    fn largest_explanation_is_within_size_limit() {
        let size =
            |explanation: &Explanation| schemas::codec::encode(schemas::codec::Form::Json, explanation).len();
        let longest = "x".repeat(limits::ID_BYTES);
        let candidate = Candidate {
            cell_id: CellId::new(&longest).unwrap(),
            zone: Zone::new(&longest).unwrap(),
            spread: u32::MAX,
            affinity: i32::MIN,
            siblings_in_zone: u32::MAX,
            siblings_on_cell: u32::MAX,
            used_permille: u32::MAX,
        };
        let reasons = ["stack", "tags", EVACUATING, CORDONED, UNHEALTHY, SILENT, "refused"];
        let reasons = reasons.into_iter().chain(Shortage::ALL.map(Shortage::as_str));
        // Each quotation mark takes two bytes in JSON.
        let rule = |number: usize| Rule {
            attribute: Some("a".parse().unwrap()),
            operator: Operator::Equal,
            value: format!("{number}{}", "\"".repeat(limits::ATTRIBUTE_VALUE_BYTES - 2)).into(),
        };
        let mut view = View::default();
        view.rules = (0..limits::RULES).map(rule).collect();
        view.unmet = vec![Unmet { cells: u32::MAX / 32, ..Unmet::default() }; limits::RULES];
        let rules = cells_excluded_by_rule(&view, &[]);
        assert_eq!(rules.len(), MAX_EXPLAINED_RULES + 1);
        let explanation = Explanation {
            cells: u32::MAX,
            rejected: reasons.map(|reason| (reason.to_owned(), u32::MAX)).chain(rules).collect(),
            best: vec![candidate; limits::EXPLAINED_CANDIDATES],
            eligibility: None,
        };
        assert!(size(&explanation) <= limits::EXPLANATION_BYTES, "{}", size(&explanation));
        // Work without a suitable cell has no candidates.
        let cell = BoardCell {
            id: CellId::new("c").unwrap(),
            zone: Zone::new("z").unwrap(),
            stack: schemas::names::Stack::new("linux").unwrap(),
            placement_tags: [].into(),
            attributes: schemas::attributes::Attributes::default(),
            total: Resources::default(),
            free: Resources::default(),
            standing: crate::board::Standing::Open,
        };
        let escapes = |number: usize| Rule { attribute: Some("unique.a".parse().unwrap()), ..rule(number) };
        let constraints = (0..limits::RULES).map(escapes).collect();
        let constraint = |rules: Vec<Rule>| Constraint {
            rules: Some(Box::new(schemas::rules::Rules { constraints: rules, ..Default::default() })),
            ..Constraint::default()
        };
        let kinds = (0..100).map(|number| (&cell, CellClass(u64::MAX - number)));
        let tried = |constraint: &Constraint| eligibility(kinds.clone(), constraint, Position(u64::MAX));
        let (none, all) = (tried(&constraint(constraints)), tried(&constraint(vec![])));
        assert_eq!(
            (none.eligible.len(), none.ineligible.len(), none.unlisted, none.escaped.len()),
            (0, 24, 76, 4)
        );
        assert_eq!(
            (all.eligible.len(), all.ineligible.len(), all.unlisted, all.escaped.len()),
            (24, 0, 76, 0)
        );
        let most = Eligibility { eligible: all.eligible, ..none };
        let explanation = Explanation { best: vec![], eligibility: Some(Box::new(most)), ..explanation };
        assert!(size(&explanation) <= limits::EXPLANATION_BYTES, "{}", size(&explanation));
    }
}
