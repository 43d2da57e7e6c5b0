//! What an auction says of its decision: the placement error that users read, and why, in counts and candidates.

use schemas::placement::{
    Candidate, Explanation, INSUFFICIENT_RESOURCES, NO_COMPATIBLE_CELLS, UNREACHABLE_CELLS,
};
use schemas::resources::{Lack, Mismatch};

use crate::board::{Board, View, count};
use crate::score::Score;
use crate::tally::Tally;

/// Why a cell is passed over that an operator wants no new work on.
pub(crate) const CORDONED: &str = "cordoned";

/// Why no cell takes the work (Diego Dev Notes, "Communicating Fullness").
pub(crate) fn error(view: &View, tally: &Tally) -> String {
    let compatible = view.cells - view.stack - view.tags;
    if compatible == 0 {
        // The nearest miss tells most: a cell with other tags has the right stack.
        let why = if view.tags > 0 { Some(Mismatch::Tags) } else { None };
        let why = why.or((view.stack > 0).then_some(Mismatch::Stack));
        return sentence(NO_COMPATIBLE_CELLS, why.map(Mismatch::word));
    }
    if view.candidates.is_empty() {
        let cordoned = (view.cordoned == compatible).then_some(CORDONED);
        return sentence(UNREACHABLE_CELLS, cordoned);
    }
    let all = count(view.candidates.len());
    let lacked = Lack::ALL.into_iter().filter(|what| tally.lacking(*what) == all);
    sentence(INSUFFICIENT_RESOURCES, lacked.map(Lack::word))
}

fn sentence(what: &str, why: impl IntoIterator<Item = &'static str>) -> String {
    let why: Vec<&str> = why.into_iter().collect();
    if why.is_empty() { what.to_owned() } else { format!("{what}: {}", why.join(", ")) }
}

/// The reasons in counts, and the best places. `refused` counts cells that fit and were passed over because they had
/// refused this work.
pub(crate) fn explain(
    board: &Board,
    view: &View,
    tally: &Tally,
    refused: u32,
    best: &[Score],
) -> Explanation {
    let reasons = [
        (Mismatch::Stack.word(), view.stack),
        (Mismatch::Tags.word(), view.tags),
        ("evacuating", view.evacuating),
        (CORDONED, view.cordoned),
        ("unhealthy", view.unhealthy),
        ("silent", view.silent),
        ("refused", refused),
    ];
    let lacks = Lack::ALL.map(|what| (what.word(), tally.lacking(what)));
    let passed_over = reasons.into_iter().chain(lacks).filter(|(_, cells)| *cells > 0);
    Explanation {
        cells: view.cells,
        passed_over: passed_over.map(|(reason, cells)| (reason.to_owned(), cells)).collect(),
        best: best.iter().map(|score| candidate(board, score)).collect(),
    }
}

fn candidate(board: &Board, score: &Score) -> Candidate {
    let cell = board.cell(score.cell);
    Candidate {
        cell_id: cell.id.clone(),
        zone: cell.zone.clone(),
        siblings_in_zone: score.siblings_in_zone,
        siblings_on_cell: score.siblings_on_cell,
        used_permille: score.load.permille(),
    }
}

#[cfg(test)]
mod tests {
    use schemas::limits;
    use schemas::names::{CellId, Zone};

    use super::*;

    #[test]
    fn the_largest_explanation_is_within_its_limit() {
        let longest = "x".repeat(limits::ID_BYTES);
        let candidate = Candidate {
            cell_id: CellId::new(&longest).unwrap(),
            zone: Zone::new(&longest).unwrap(),
            siblings_in_zone: u32::MAX,
            siblings_on_cell: u32::MAX,
            used_permille: u32::MAX,
        };
        let reasons = ["stack", "tags", "evacuating", CORDONED, "unhealthy", "silent", "refused"];
        let reasons = reasons.into_iter().chain(Lack::ALL.map(Lack::word));
        let explanation = Explanation {
            cells: u32::MAX,
            passed_over: reasons.map(|reason| (reason.to_owned(), u32::MAX)).collect(),
            best: vec![candidate; limits::EXPLAINED_CANDIDATES],
        };
        let bytes = schemas::codec::encode(schemas::codec::Form::Json, &explanation);
        assert!(bytes.len() <= limits::EXPLANATION_BYTES, "{}", bytes.len());
    }
}
