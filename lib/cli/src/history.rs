//! `muster history`: every decision about an object.

use clap::Subcommand;
use cli_base::connect::connect;
use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::output::{Output, RenderOptions};
use cli_base::table::{Cell, Table};
use client::Client;
use explain::changes::{Change, Noun};
use explain::decision_changes::{HistoryTarget, decision_changes};
use explain::decisions::{PositionedDecision, container_guid, decisions_of, event_concerns};
use runtime::exit::Exit;
use schemas::entry::Event;
use schemas::names::{CellId, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid};
use schemas::{Decision, Position};
use serde::Serialize;
use text::describe::{actor, sentence, sentences};

use super::changes;
use super::find::{self, InstanceSelector};
use super::screen::Screen;

/// Subcommands of `muster history`.
#[derive(Clone, Debug, Subcommand)]
pub enum History {
    /// History of a process and its instances
    #[command(alias = "desired-lrp")]
    Lrp {
        /// Guid of the process
        guid: ProcessGuid,
    },
    /// History of an instance: an index of a process, one definition at that index, or one container, even if
    /// the container is gone
    #[command(alias = "actual-lrp")]
    Instance {
        /// PROCESS/INDEX, PROCESS/INDEX@DEFINITION, or a prefix or suffix of an instance guid
        id: String,
    },
    /// History of a task
    Task {
        /// Guid of the task
        guid: TaskGuid,
    },
    /// History of a periodic task: its launches and skipped launches
    Periodic {
        /// Guid of the periodic task
        guid: PeriodicGuid,
    },
    /// History of a parameterised task: its dispatches, launches and withdrawals
    Parameterised {
        /// Guid of the parameterised task
        guid: ParameterisedGuid,
    },
    /// History of a cell
    #[command(alias = "node")]
    Cell {
        /// Id of the cell
        id: CellId,
    },
}

/// Decision in a history, with its changes to the object of the history.
#[derive(Clone, Debug, Serialize)]
struct HistoryRow {
    #[serde(flatten)]
    decided: PositionedDecision,
    changed: Vec<Change>,
}

pub(crate) async fn run(verb: History, global: &Global) -> Result<(), Failure> {
    let output = Output::new(global);
    let client = connect(global).await?;
    let (what, noun, id, which) = match verb {
        History::Lrp { guid } => ("process", Noun::Lrp, guid.to_string(), None),
        History::Task { guid } => ("task", Noun::Task, guid.to_string(), None),
        History::Parameterised { guid } => {
            ("parameterised task", Noun::Parameterised, guid.to_string(), None)
        }
        History::Periodic { guid } => ("periodic task", Noun::Periodic, guid.to_string(), None),
        History::Cell { id } => ("cell", Noun::Cell, id.to_string(), None),
        History::Instance { id } => match find::parse_selector(&id)? {
            Some(which) => ("instance", Noun::Instance, id, Some(which)),
            None => return history_of_container(&client, &id, output).await,
        },
    };
    let what = format!("{what} {id}");
    let about = match &which {
        Some(which) => format!("lrp:{}", which.process),
        None => format!("{}:{id}", noun.filter_kind()),
    };
    let thing = HistoryTarget { noun, id };
    let decided = decisions_of(client.history(Position(0), Some(&about)).await?.0);
    let altered = decision_changes(&decided, &thing);
    let touched = |decided: &PositionedDecision| which.as_ref().is_none_or(|which| concerns(decided, which));
    let all = decided.into_iter().zip(altered).filter(|(decided, _)| touched(decided));
    let shown: Vec<HistoryRow> = all.map(|(decided, changed)| HistoryRow { decided, changed }).collect();
    if shown.is_empty() {
        return Err(no_history(&what));
    }
    let filter = which.as_ref().map_or(EventFilter::All, EventFilter::Instance);
    output.write_rows(&shown, |told, look| fitted_table(told, filter, look))
}

fn no_history(what: &str) -> Failure {
    Failure::new(Exit::NotFound, "ResourceNotFound", format!("the log has no entries about {what}"))
}

/// Prints the decisions about one container. The whole log is read, because the container may have ended long
/// ago.
async fn history_of_container(client: &Client, part: &str, output: Output) -> Result<(), Failure> {
    find::check_fragment("instance", part, find::INSTANCE_FORMS)?;
    let all = decisions_of(client.history(Position(0), None).await?.0);
    let mut guids: Vec<String> = vec![];
    for guid in all.iter().flat_map(|decided| &decided.decision.events).filter_map(container_guid) {
        if find::matches(&guid, part) && !guids.contains(&guid) {
            guids.push(guid);
        }
    }
    match &guids[..] {
        [] => Err(no_history(&format!("container {part}"))),
        [guid] => {
            let of = |decided: &PositionedDecision| {
                decided.decision.events.iter().any(|event| container_guid(event).as_ref() == Some(guid))
            };
            let told = |decided| HistoryRow { decided, changed: vec![] };
            let shown: Vec<HistoryRow> = all.into_iter().filter(of).map(told).collect();
            output.write_rows(&shown, |told, look| fitted_table(told, EventFilter::Container(guid), look))
        }
        several => {
            let why =
                format!("ambiguous id {part}: it matches {} ids: {}", several.len(), several.join(", "));
            Err(Failure::new(Exit::Usage, "Ambiguous", why).advise("use more characters of the id"))
        }
    }
}

/// Returns `true` if a decision concerns an index, or one definition at that index.
fn concerns(decided: &PositionedDecision, which: &InstanceSelector) -> bool {
    decided.decision.events.iter().any(|event| event_concerns(event, which.index, which.definition.as_ref()))
}

/// Filter for the events of a decision.
#[derive(Clone, Copy, Debug)]
enum EventFilter<'a> {
    All,
    Instance(&'a InstanceSelector),
    Container(&'a str),
}

impl EventFilter<'_> {
    fn includes(self, event: &Event) -> bool {
        match self {
            Self::All => true,
            Self::Instance(which) => event_concerns(event, which.index, which.definition.as_ref()),
            Self::Container(guid) => container_guid(event).as_deref() == Some(guid),
        }
    }
}

/// Returns the table of a history for the standard output. On a terminal, the table is at most as wide as
/// the terminal.
fn fitted_table(told: &[HistoryRow], of: EventFilter<'_>, look: RenderOptions) -> Table {
    let whole = table(told, of, look);
    match Screen::output_width().filter(|width| *width < whole.content_width()) {
        Some(width) => narrow_table(told, of, look).wrap(width),
        None => whole,
    }
}

/// Returns the table of a history: time, position, event, actor, reason and changed fields.
fn table(told: &[HistoryRow], of: EventFilter<'_>, look: RenderOptions) -> Table {
    let mut table = Table::new(&["TIME", "POSITION", "WHAT", "WHO", "WHY", "CHANGED"]);
    for row in told {
        let decision = &row.decided.decision;
        let changed = row.changed.iter().map(changes::summary).collect::<Vec<_>>().join("; ");
        let mut changed = Some(changed).filter(|fields| !fields.is_empty());
        let why = reason(decision, told);
        for what in events_text(decision, of, look) {
            table.row(vec![
                Cell::text(decision.at),
                Cell::number(row.decided.position),
                Cell::text(what),
                Cell::text(actor(&decision.actor)),
                Cell::optional(why.clone()),
                Cell::optional(changed.take()),
            ]);
        }
    }
    table
}

/// Returns the table of a history for a terminal that is too narrow for the full table. Changed fields are
/// omitted, times are in seconds, and the actor and the reason share a column.
fn narrow_table(told: &[HistoryRow], of: EventFilter<'_>, look: RenderOptions) -> Table {
    let mut table = Table::new(&["TIME", "POSITION", "WHAT", "WHO, WHY"]);
    for row in told {
        let decision = &row.decided.decision;
        let time = decision.at.to_string().replace('T', " ");
        let who = actor(&decision.actor);
        let who = reason(decision, told).map_or_else(|| who.clone(), |why| format!("{who}, {why}"));
        for what in events_text(decision, of, look) {
            let time = Cell::text(time.get(..19).unwrap_or_default());
            table.row(vec![time, Cell::number(row.decided.position), Cell::text(what), Cell::text(&who)]);
        }
    }
    table
}

/// Returns the reason of a decision: the text of the actor, or the position of the decision that caused it.
fn reason(decision: &Decision, told: &[HistoryRow]) -> Option<String> {
    if let Some(reason) = &decision.reason {
        return Some(format!("\"{reason}\""));
    }
    let cause = told.iter().find(|other| Some(other.decided.decision.id) == decision.cause)?;
    Some(format!("after {}", cause.decided.position))
}

/// Describes the events of a decision that pass the filter.
fn events_text(decision: &Decision, of: EventFilter<'_>, look: RenderOptions) -> Vec<String> {
    if decision.events.is_empty() {
        return sentences(decision, look.full_ids);
    }
    let events = decision.events.iter().filter(|event| of.includes(event));
    events.map(|event| sentence(decision, event, look.full_ids)).collect()
}

#[cfg(test)]
mod tests {
    use schemas::actual::{self, UnclaimReason};
    use schemas::names::{DefinitionId, EntryId, ProcessGuid};
    use schemas::query::{ReadEntry, RecordedEntry};
    use schemas::{Entry, Indices, Place, Places, Timestamp};

    use super::*;
    use crate::events::lines;
    use fixtures::web::{client, container as by, decision, id};

    fn recorded(position: u64, decisions: Vec<Decision>) -> RecordedEntry {
        let entry = Entry { id: EntryId(id(position.into())), format: 1, decisions };
        RecordedEntry {
            position: Position(position),
            subject: "muster.event.lrp.3".into(),
            entry: ReadEntry::Known(entry),
        }
    }

    fn definition(name: &str) -> DefinitionId {
        DefinitionId::new(name).unwrap()
    }

    fn created(indices: Indices, name: &str) -> Event {
        Event::Actual(actual::Event::Created { places: Places { indices, definition_id: definition(name) } })
    }

    fn sample_entries() -> Vec<RecordedEntry> {
        let mut desired = decision(1, client(), vec![created(Indices::below(2), "web")]);
        desired.reason = Some("launch".into());
        let place = |index| Place::new(index, definition("web"));
        let claim = |index| actual::Event::Claimed {
            place: place(index),
            by: by(7 + u128::from(index), "c1"),
            placement: None,
        };
        let mut claimed = decision(2, client(), vec![Event::Actual(claim(0)), Event::Actual(claim(1))]);
        claimed.cause = Some(desired.id);
        let lost = actual::Event::Unclaimed { places: place(1).into(), cause: UnclaimReason::CellLost };
        vec![
            recorded(4, vec![desired]),
            recorded(6, vec![claimed, decision(3, client(), vec![Event::Actual(lost)])]),
        ]
    }

    const LOOK: RenderOptions = RenderOptions { now: Timestamp(0), full_ids: false, colour: false };

    #[test]
    fn history_shows_time_position_event_actor_and_reason() {
        let which =
            InstanceSelector { process: ProcessGuid::new("web").unwrap(), index: 1, definition: None };
        let all = decisions_of(sample_entries());
        let thing = HistoryTarget { noun: Noun::Instance, id: "web/1@web".into() };
        let altered = decision_changes(&all, &thing);
        let shown: Vec<HistoryRow> =
            all.into_iter().zip(altered).map(|(decided, changed)| HistoryRow { decided, changed }).collect();
        assert_eq!(
            table(&shown, EventFilter::Instance(&which), LOOK).render(false),
            "TIME                       POSITION   WHAT                                                  WHO               WHY        CHANGED\n\
             1970-01-01T00:00:01.000Z          4   web/0-1: created, waiting for placement               client shop/ada   \"launch\"   appeared, UNCLAIMED\n\
             1970-01-01T00:00:02.000Z          6   web/1: claimed by c1 (container 00000008)             client shop/ada   after 4    cell_id - → c1, instance_guid - → 00000000-0000-0000-0000-000000000008, state UNCLAIMED → CLAIMED\n\
             1970-01-01T00:00:03.000Z          6   web/1: waiting for placement (its cell disappeared)   client shop/ada   -          cell_id c1 → -, instance_guid 00000000-0000-0000-0000-000000000008 → -, state CLAIMED → UNCLAIMED"
        );
        assert_eq!(
            narrow_table(&shown, EventFilter::Instance(&which), LOOK).wrap(80).render(false),
            "TIME                 POSITION  WHAT                         WHO, WHY\n\
             1970-01-01 00:00:01         4  web/0-1: created, waiting    client shop/ada,\n                               \
             for placement                \"launch\"\n\
             1970-01-01 00:00:02         6  web/1: claimed by c1         client shop/ada,\n                               \
             (container 00000008)         after 4\n\
             1970-01-01 00:00:03         6  web/1: waiting for           client shop/ada\n                               \
             placement (its cell\n                               \
             disappeared)"
        );
    }

    #[test]
    fn history_can_be_limited_to_one_definition() {
        let again = decision(4, client(), vec![created(Indices::from(1), "v2")]);
        let all = decisions_of([sample_entries(), vec![recorded(8, vec![again])]].concat());
        let history = |name: Option<&str>| {
            let definition = name.map(definition);
            let which = InstanceSelector { process: ProcessGuid::new("web").unwrap(), index: 1, definition };
            let shown = all.iter().filter(|decided| concerns(decided, &which));
            shown.map(|decided| decided.decision.version).collect::<Vec<_>>()
        };
        assert_eq!(history(None), [1, 2, 3, 4]);
        assert_eq!(history(Some("web")), [1, 2, 3]);
        assert_eq!(history(Some("v2")), [4]);
        assert!(history(Some("v3")).is_empty());
    }

    #[test]
    fn container_history_shows_only_its_events() {
        let told = |decided| HistoryRow { decided, changed: vec![] };
        let all: Vec<HistoryRow> = decisions_of(sample_entries()).into_iter().map(told).collect();
        let guid = by(7, "c1").instance_guid.to_string();
        assert_eq!(table(&all, EventFilter::Container(&guid), LOOK).render(false).lines().count(), 2);
    }

    #[test]
    fn entry_is_formatted_with_one_line_per_event() {
        assert_eq!(
            lines(&sample_entries()[0], LOOK),
            "     4  1970-01-01T00:00:01.000Z  client shop/ada     web/0-1: created, waiting for placement"
        );
        let unknown = RecordedEntry {
            position: Position(9),
            subject: "muster.event.lrp.3".into(),
            entry: ReadEntry::Unknown { reason: "entry has format 2".into(), raw: "{}".into() },
        };
        assert_eq!(lines(&unknown, LOOK), "     9  unknown entry on muster.event.lrp.3: entry has format 2");
    }
}
