//! `muster why`: explains the state of an instance or a task. The explanation consists of the decisions that
//! led to the state, back to the first command.

use clap::Args;
use cli_base::connect::connect;
use cli_base::failure::Failure;
use cli_base::moment::AsOfOption;
use cli_base::options::Global;
use cli_base::output::{Output, RenderOptions};
use cli_base::table::{Cell, Table};
use client::Client;
use explain::decisions::PositionedDecision;
use explain::why::{Work, WorkExplanation, events_of_index, explain, placement_explanation};
use schemas::names::ProcessGuid;
use schemas::placement::Explanation;
use schemas::query::InstanceState;
use text::describe::{actor, sentence, sentences};
use text::words::{age, one_line, short_id};

use super::placement_gap;
use super::rows::{addresses, note, state, task_note};

/// Maximum number of steps that are shown. In a longer chain, steps in the middle are left out.
const MAX_STEPS_SHOWN: usize = 12;

/// Arguments of `muster why`.
#[derive(Clone, Debug, Args)]
pub struct WhyArgs {
    /// PROCESS/INDEX, PROCESS/INDEX@DEFINITION, a prefix or suffix of an instance guid, or a task
    id: String,
    #[command(flatten)]
    at: AsOfOption,
}

pub(crate) async fn run(args: &WhyArgs, global: &Global) -> Result<(), Failure> {
    let client = connect(global).await?;
    Output::new(global).write_one(&explain(&client, &args.id, global.domain.as_ref()).await?, text)
}

/// Returns the explanation as text. Other views show this text.
pub(super) async fn explanation_text(
    client: &Client,
    id: &str,
    global: &Global,
    look: RenderOptions,
) -> Result<String, Failure> {
    Ok(text(&explain(client, id, global.domain.as_ref()).await?, look))
}

fn text(why: &WorkExplanation, look: RenderOptions) -> String {
    let mut lines = vec![format!("{} is {}", why.name, head(&why.work, look))];
    lines.extend(why.placement_gap.as_ref().map(placement_gap::sentence));
    lines.extend(why.monitor.as_ref().map(|says| format!("it is not healthy yet: {}", one_line(says))));
    let left_out = why.chain.len().saturating_sub(MAX_STEPS_SHOWN);
    for (at, decided) in why.chain.iter().enumerate() {
        let from_end = why.chain.len() - at;
        if left_out > 0 && at >= MAX_STEPS_SHOWN / 2 && from_end > MAX_STEPS_SHOWN / 2 {
            if at == MAX_STEPS_SHOWN / 2 {
                lines.push(format!("... {left_out} more steps"));
            }
            continue;
        }
        lines.push(String::new());
        lines.push(step(decided, why.work.index(), look));
    }
    lines.join("\n")
}

/// Formats the state, the cell, the address, the age and the note.
fn head(work: &Work, look: RenderOptions) -> String {
    let (state, cell, container, address, since, note) = match work {
        Work::Instance(row) => (
            state(row),
            &row.cell_id,
            &row.instance_guid,
            addresses(row),
            row.since,
            note(row, look)
                .filter(|_| matches!(row.state, InstanceState::Unclaimed | InstanceState::Crashed)),
        ),
        Work::Task(row) => {
            (row.state.to_string(), &row.cell_id, &row.instance_guid, None, row.since, task_note(row))
        }
    };
    let mut head = state;
    if let (Some(cell), Some(guid)) = (cell, container) {
        head.push_str(&format!(" on {cell} (container {})", short_id(guid, look.full_ids)));
    }
    if let Some(address) = address {
        head.push_str(&format!(" at {address}"));
    }
    head.push_str(&format!(", for {}", age(look.now, since)));
    if let Some(note) = note {
        head.push_str(&format!(": {}", one_line(&note)));
    }
    head
}

/// Formats a step: its events, its time and actor, and the explanation of a placement.
fn step(decided: &PositionedDecision, of: Option<(&ProcessGuid, u32)>, look: RenderOptions) -> String {
    let decision = &decided.decision;
    let events = events_of_index(decision, of);
    let sentences: Vec<String> = if events.is_empty() {
        sentences(decision, look.full_ids)
    } else {
        events.iter().map(|event| sentence(decision, event, look.full_ids)).collect()
    };
    let mut lines: Vec<String> = sentences.iter().map(|sentence| format!("because  {sentence}")).collect();
    lines.push(format!("         {}", stamp(decided)));
    for event in events {
        if let Some((explanation, placed)) = placement_explanation(event) {
            lines.push(placement_text(explanation, placed, "         "));
        }
    }
    lines.join("\n")
}

/// Formats the time, the position, the actor and the reason of a decision.
pub(crate) fn stamp(decided: &PositionedDecision) -> String {
    let PositionedDecision { position, decision } = decided;
    let mut stamp = format!("{} at position {position}, by {}", decision.at, actor(&decision.actor));
    if let Some(request) = &decision.request_id {
        stamp.push_str(&format!(", request {request}"));
    }
    if let Some(reason) = &decision.reason {
        stamp.push_str(&format!(", reason \"{}\"", one_line(reason)));
    }
    stamp
}

/// Formats the candidates of an auction, the best first. Cells that the auction passed over are counted by
/// reason.
fn placement_text(explanation: &Explanation, placed: bool, indent: &str) -> String {
    let mut lines = vec![];
    if !explanation.best.is_empty() {
        // The columns for spread and affinity are left out unless the work has such rules.
        let spread = explanation.best.iter().any(|one| one.spread != 0);
        let drawn = explanation.best.iter().any(|one| one.affinity != 0);
        let optional = [(spread, "SPREAD"), (drawn, "AFFINITY")];
        let mut headings = vec!["CELL", "ZONE"];
        headings.extend(optional.into_iter().filter_map(|(shown, heading)| shown.then_some(heading)));
        headings.extend(["IN ZONE", "ON CELL", "USED", ""]);
        let mut table = Table::new(&headings);
        for (rank, candidate) in explanation.best.iter().enumerate() {
            let mut row = vec![Cell::text(&candidate.cell_id), Cell::text(&candidate.zone)];
            row.extend(spread.then(|| Cell::number(candidate.spread)));
            row.extend(drawn.then(|| Cell::number(candidate.affinity)));
            row.extend([
                Cell::number(candidate.siblings_in_zone),
                Cell::number(candidate.siblings_on_cell),
                Cell::number(format!("{}.{}%", candidate.used_permille / 10, candidate.used_permille % 10)),
                Cell::text(if rank == 0 && placed { "chosen" } else { "" }),
            ]);
            table.row(row);
        }
        lines.extend(table.render(false).lines().map(|line| format!("{indent}{line}")));
    }
    let passed: Vec<String> =
        explanation.rejected.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let passed = if passed.is_empty() { "none".to_owned() } else { passed.join(", ") };
    lines.push(format!("{indent}cells passed over (of {}): {passed}", explanation.cells));
    lines.join("\n")
}

/// Formats the decisions of an evaluation.
pub(crate) fn describe(decided: &[PositionedDecision], look: RenderOptions) -> String {
    decided.iter().map(|decided| step(decided, None, look)).collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests {
    use fixtures::rows::{placement, running};
    use fixtures::web::{client, container, decision};
    use schemas::container::Epoch;
    use schemas::definition::DesiredLrpUpdate;
    use schemas::entry::Event;
    use schemas::names::{CellId, DefinitionId};
    use schemas::query::InstanceRow;
    use schemas::{Indices, Place, Places, Position, Timestamp, actual, desired};

    use super::*;

    const LOOK: RenderOptions =
        RenderOptions { now: Timestamp::from_millis(60_000), full_ids: false, colour: false };

    /// Returns the decisions that desired an instance and claimed it for a cell, the newest first.
    fn example_chain() -> Vec<PositionedDecision> {
        let definition_id = DefinitionId::new("web").unwrap();
        let scaled = DesiredLrpUpdate { instances: Some(2), ..DesiredLrpUpdate::default() };
        let places = Places { indices: Indices::below(2), definition_id: definition_id.clone() };
        let created = Event::Actual(actual::Event::Created { places });
        let claimed = Event::Actual(actual::Event::Claimed {
            place: Place::new(0, definition_id),
            by: container(7, "c1"),
            placement: Some(placement()),
        });
        let mut desire =
            decision(1, client(), vec![Event::Desired(desired::Event::Updated(scaled)), created]);
        desire.reason = Some("launch".into());
        vec![
            PositionedDecision { position: Position(3), decision: decision(2, client(), vec![claimed]) },
            PositionedDecision { position: Position(2), decision: desire },
        ]
    }

    fn instance() -> InstanceRow {
        InstanceRow {
            epoch: Epoch(Timestamp(1)),
            cell_id: Some(CellId::new("c2").unwrap()),
            since: Timestamp::from_millis(6_000),
            ..running(0)
        }
    }

    #[test]
    fn explanation_text_shows_placement() {
        let chain = example_chain();
        let why = WorkExplanation {
            name: "web/0".into(),
            work: Work::Instance(Box::new(instance())),
            placement_gap: None,
            monitor: None,
            chain,
        };
        let text = text(&why, LOOK);
        assert_eq!(
            text,
            "web/0 is RUNNING on c2 (container 0000abc0) at 10.0.0.1:60001, for 54s\n\
             \n\
             because  web/0: claimed by c1 (container 00000007)\n         \
             1970-01-01T00:00:02.000Z at position 3, by client shop/ada\n         \
             CELL   ZONE   IN ZONE   ON CELL    USED\n         \
             c2     z1           0         0   12.5%   chosen\n         \
             c3     z1           0         0   25.0%\n         \
             cells passed over (of 4): 2 memory\n\
             \n\
             because  web: 2 instances desired\n\
             because  web/0-1: created, waiting for placement\n         \
             1970-01-01T00:00:01.000Z at position 2, by client shop/ada, reason \"launch\""
        );
    }
}
