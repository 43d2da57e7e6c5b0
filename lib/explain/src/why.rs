//! Explanation of the state of an instance or a task: the decisions that led to the state, back to the first
//! command.

use client::Client;
use schemas::entry::{Aggregate, Event};
use schemas::names::{DecisionId, Domain, EvaluationId, ProcessGuid, TaskGuid};
use schemas::placement::Explanation;
use schemas::query::{InstanceRow, InstanceState, TaskRow};
use schemas::{Decision, actual, evaluation, task};
use serde::Serialize;

use crate::decisions::{PositionedDecision, decisions_of, entries_about, event_concerns};
use crate::monitors::monitor_failures;
use crate::placement_gap::{self, PlacementGap};
use crate::{Error, Missing, find};

/// Maximum number of causes that are followed. Processes that crash repeatedly have longer chains.
const MAX_CHAIN: usize = 256;

/// Explanation of an instance or a task.
#[derive(Clone, Debug, Serialize)]
pub struct WorkExplanation {
    #[serde(skip)]
    pub name: String,
    #[serde(flatten)]
    pub work: Work,
    /// Reason that the work (the instance or task) has no cell. `None` if the work does not wait for a cell.
    pub placement_gap: Option<PlacementGap>,
    /// Failure of the monitor of a starting instance. `None` if the work is not a starting instance, or if
    /// its monitor reports no failure.
    pub monitor: Option<String>,
    /// Decisions from the newest back to the first command.
    pub chain: Vec<PositionedDecision>,
}

/// The instance or task to explain.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    Instance(Box<InstanceRow>),
    Task(Box<TaskRow>),
}

/// Chain of causes within the loaded decisions.
struct Chain<'a> {
    steps: Vec<&'a PositionedDecision>,
    /// First cause that the loaded decisions do not contain.
    missing_cause: Option<DecisionId>,
}

/// Explains the state of an instance or a task. `id` is the guid of a task, or a name or an id of an instance, see
/// [`find::INSTANCE_FORMS`]. If `domain` is set, the instance or task must belong to it.
///
/// # Errors
/// A query fails, or the instance or task does not exist.
pub async fn explain(client: &Client, id: &str, domain: Option<&Domain>) -> Result<WorkExplanation, Error> {
    let (name, work, missing) = match find_task(client, id).await? {
        Some(row) => {
            find::check_domain(domain, format!("task {id}"), row.domain.clone())?;
            let missing = placement_gap::for_task(client, &row).await?;
            (format!("task {id}"), Work::Task(Box::new(row)), missing)
        }
        None => {
            let (name, row) = find_instance(client, id).await?;
            find::check_domain(domain, format!("instance {id}"), row.domain.clone())?;
            let missing = placement_gap::for_instance(client, &row).await?;
            (name, Work::Instance(Box::new(row)), missing)
        }
    };
    let monitor = match &work {
        Work::Instance(row) if row.state == InstanceState::Claimed && !row.stopping => {
            let mut says = monitor_failures(client, std::slice::from_ref(&name)).await;
            says.pop().map(|complaint| complaint.message)
        }
        Work::Instance(_) | Work::Task(_) => None,
    };
    let mut all = decisions_of(entries_about(client, Some(&work.event_filter())).await?);
    // A cause may belong to another aggregate, such as a cell that was lost.
    while let Some(id) = chain(&all, &work).missing_cause {
        let Some((position, decision)) = client.decision(id).await? else { break };
        all.push(PositionedDecision { position, decision });
    }
    let chain = chain(&all, &work).steps.into_iter().cloned().collect();
    Ok(WorkExplanation { name, work, placement_gap: missing, monitor, chain })
}

/// Returns the task with this guid. `None` if there is no such task; the id may then name an instance.
async fn find_task(client: &Client, id: &str) -> Result<Option<TaskRow>, Error> {
    let Ok(guid) = TaskGuid::new(id) else { return Ok(None) };
    match client.task(&guid).await {
        Ok(one) => Ok(Some(one.row)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the instance with this id, and its display name.
async fn find_instance(client: &Client, id: &str) -> Result<(String, InstanceRow), Error> {
    let no_work = |error| Error::NoWork { id: id.to_owned(), error: Box::new(error) };
    let found = find::instance(client, id).await.map_err(no_work)?;
    let missing = || Error::not_found(format!("instance {id}"), Missing::Other);
    let row = found.rows.into_iter().next().ok_or_else(missing)?;
    Ok((found.name, row))
}

impl Work {
    /// Returns the filter for events of the aggregate.
    fn event_filter(&self) -> String {
        match self {
            Self::Instance(row) => format!("lrp:{}", row.process_guid),
            Self::Task(row) => format!("task:{}", row.task_guid),
        }
    }

    /// Returns `true` if a decision concerns this process or task since its last creation (its current
    /// epoch).
    fn is_same_life(&self, decided: &PositionedDecision) -> bool {
        match (&decided.decision.aggregate, self) {
            (Aggregate::Process { guid, epoch, .. }, Self::Instance(row)) => {
                *guid == row.process_guid && *epoch == row.epoch
            }
            (Aggregate::Task { guid, epoch, .. }, Self::Task(row)) => {
                *guid == row.task_guid && *epoch == row.epoch
            }
            _ => false,
        }
    }

    /// Returns `true` if an event concerns this work. The event must belong to a decision of the same epoch,
    /// see [`Self::is_same_life`].
    fn concerns(&self, event: &Event) -> bool {
        match self {
            Self::Instance(row) => event_concerns(event, row.index, Some(&row.definition_id)),
            Self::Task(_) => true,
        }
    }

    /// Returns `true` if an event makes the work wait for placement.
    fn is_start(&self, event: &Event) -> bool {
        match self {
            Self::Instance(_) => {
                matches!(
                    event,
                    Event::Actual(actual::Event::Created { .. } | actual::Event::Unclaimed { .. })
                )
            }
            Self::Task(_) => matches!(event, Event::Task(task::Event::Desired(_))),
        }
    }

    /// Returns the process and the index of an instance. `None` for a task.
    #[must_use]
    pub fn index(&self) -> Option<(&ProcessGuid, u32)> {
        match self {
            Self::Instance(row) => Some((&row.process_guid, row.index)),
            Self::Task(_) => None,
        }
    }
}

/// Returns the decisions about the work, from the newest back to the decision that requested its placement.
/// The causes of the oldest of these decisions follow.
fn chain<'a>(all: &'a [PositionedDecision], work: &Work) -> Chain<'a> {
    let mut steps = vec![];
    for decided in all.iter().rev().filter(|decided| work.is_same_life(decided)) {
        let mut of_it = decided.decision.events.iter().filter(|event| work.concerns(event)).peekable();
        if of_it.peek().is_none() {
            continue;
        }
        steps.push(decided);
        if of_it.any(|event| work.is_start(event)) {
            break;
        }
    }
    let mut cause = steps.last().and_then(|made| made.decision.cause);
    while let Some(id) = cause {
        let Some(found) = all.iter().find(|decided| decided.decision.id == id) else {
            return Chain { steps, missing_cause: Some(id) };
        };
        if steps.len() >= MAX_CHAIN {
            break;
        }
        steps.push(found);
        cause = found.decision.cause;
    }
    Chain { steps, missing_cause: None }
}

/// Returns the relevant events of a decision. If the decision is about the given process, the events of the
/// given index and of the process as a whole are relevant. Otherwise all events are relevant.
#[must_use]
pub fn events_of_index<'a>(decision: &'a Decision, of: Option<(&ProcessGuid, u32)>) -> Vec<&'a Event> {
    let matters = |event: &&Event| match (&decision.aggregate, of) {
        (Aggregate::Process { guid, .. }, Some((process, index))) if guid == process => {
            let of_all = matches!(event, Event::Desired(_) | Event::Evaluation(_))
                || matches!(event, Event::Rollout(event) if event.indices().is_none());
            of_all || event_concerns(event, index, None)
        }
        (_, Some(_) | None) => true,
    };
    decision.events.iter().filter(matters).collect()
}

/// Returns the explanation of a placement, and `true` if a cell was found.
#[must_use]
pub fn placement_explanation(event: &Event) -> Option<(&Explanation, bool)> {
    match event {
        Event::Actual(actual::Event::Claimed { placement, .. }) => {
            placement.as_deref().map(|why| (why, true))
        }
        Event::Actual(actual::Event::PlacementFailed { explanation, .. }) => {
            explanation.as_deref().map(|why| (why, false))
        }
        Event::Task(task::Event::Started { placement, .. }) => placement.as_deref().map(|why| (why, true)),
        Event::Task(
            task::Event::PlacementFailed { explanation, .. } | task::Event::Completed { explanation, .. },
        ) => explanation.as_deref().map(|why| (why, false)),
        Event::Actual(_)
        | Event::Task(_)
        | Event::Periodic(_)
        | Event::Parameterised(_)
        | Event::Desired(_)
        | Event::Evacuating(_)
        | Event::Rollout(_)
        | Event::Evaluation(_)
        | Event::Domain(_)
        | Event::Cell(_)
        | Event::Cluster(_) => None,
    }
}

/// Returns the decisions of an evaluation that placed work or failed to place work. An evaluation is open
/// from the decision that creates it until the decision that ends it.
#[must_use]
pub fn placements(all: &[PositionedDecision], evaluation: EvaluationId) -> Vec<PositionedDecision> {
    let speaks = |decided: &PositionedDecision, so: fn(&evaluation::Event) -> bool| {
        let mut events = decided.decision.events.iter().filter_map(Event::as_evaluation);
        events.any(|event| event.evaluation(decided.decision.id) == evaluation && so(event))
    };
    let made = |decided: &PositionedDecision| {
        speaks(decided, |event| matches!(event, evaluation::Event::Created { .. }))
    };
    let Some(made) = all.iter().position(made) else { return vec![] };
    let of_it = |decided: &&PositionedDecision| decided.decision.aggregate == all[made].decision.aggregate;
    let later = || all[made + 1..].iter().filter(of_it);
    let end = later().position(|decided| {
        speaks(decided, |event| machines::evaluation::Step::from_event(event).ends_evaluation())
    });
    let placed = later().take(end.map_or(usize::MAX, |end| end + 1));
    let explained = |decided: &&PositionedDecision| {
        decided.decision.events.iter().any(|event| placement_explanation(event).is_some())
    };
    placed.filter(explained).cloned().collect()
}

#[cfg(test)]
mod tests {
    use schemas::actual::UnclaimReason;
    use schemas::container::{Epoch, NetInfo};
    use schemas::definition::DesiredLrpUpdate;
    use schemas::names::{CellId, DefinitionId};
    use schemas::{Indices, Place, Places, Position, Timestamp, desired};

    use super::*;
    use fixtures::rows::{placement, running, with_definition};
    use fixtures::web::{client, container, decision, id};

    fn at(position: u64, cause: Option<u64>, mut decision: Decision) -> PositionedDecision {
        decision.cause = cause.map(|number| DecisionId(id(number.into())));
        PositionedDecision { position: Position(position), decision }
    }

    fn example_places(definition: &str, indices: Indices) -> Places {
        Places { indices, definition_id: DefinitionId::new(definition).unwrap() }
    }

    fn first_place() -> Place {
        Place::new(0, DefinitionId::new("web").unwrap())
    }

    fn story() -> Vec<PositionedDecision> {
        let scaled = DesiredLrpUpdate { instances: Some(2), ..DesiredLrpUpdate::default() };
        let created = actual::Event::Created { places: example_places("web", Indices::below(2)) };
        let claimed = |number, cell: &str| {
            Event::Actual(actual::Event::Claimed {
                place: first_place(),
                by: container(number, cell),
                placement: Some(placement()),
            })
        };
        let started = actual::Event::Started {
            place: first_place(),
            by: container(8, "c2"),
            net: NetInfo { address: "10.0.0.1".into(), ..NetInfo::default() },
            isolation: schemas::isolation::Isolation::NONE,
        };
        let lost = actual::Event::Unclaimed { places: first_place().into(), cause: UnclaimReason::CellLost };
        let mut desire = decision(
            1,
            client(),
            vec![Event::Desired(desired::Event::Updated(scaled)), Event::Actual(created)],
        );
        desire.reason = Some("launch".into());
        let mut gone = decision(
            3,
            client(),
            vec![Event::Cell(schemas::cell::Event::Disappeared { reason: "silent".into() })],
        );
        gone.aggregate = Aggregate::Cell(CellId::new("c1").unwrap());
        vec![
            at(2, None, desire),
            at(3, Some(1), decision(2, client(), vec![claimed(7, "c1")])),
            at(5, None, gone),
            at(6, Some(3), decision(4, client(), vec![Event::Actual(lost)])),
            at(8, Some(4), decision(5, client(), vec![claimed(8, "c2")])),
            at(9, Some(4), decision(6, client(), vec![Event::Actual(started)])),
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

    fn work(row: InstanceRow) -> Work {
        Work::Instance(Box::new(row))
    }

    #[test]
    fn chain_follows_causes_across_aggregates() {
        let all = story();
        let positions =
            |chain: &Chain<'_>| chain.steps.iter().map(|step| step.position.0).collect::<Vec<_>>();
        assert_eq!(positions(&chain(&all, &work(instance()))), [9, 8, 6, 5]);
        let only_of_process: Vec<PositionedDecision> =
            all.iter().filter(|decided| decided.position.0 != 5).cloned().collect();
        let part = chain(&only_of_process, &work(instance()));
        assert_eq!((positions(&part), part.missing_cause), (vec![9, 8, 6], Some(DecisionId(id(3)))));
        let before: Vec<PositionedDecision> = all.into_iter().take(2).collect();
        assert_eq!(positions(&chain(&before, &work(instance()))), [3, 2]);
    }

    #[test]
    fn stopped_instance_is_explained_by_its_stop() {
        let mut all = story();
        all.truncate(2);
        let stop =
            |cause| Event::Actual(actual::Event::StopRequested { places: first_place().into(), cause });
        let gone = |cause| Event::Actual(actual::Event::Removed { places: first_place().into(), cause });
        let again = actual::Event::Created { places: first_place().into() };
        all.push(at(4, None, decision(7, client(), vec![stop(actual::StopReason::Retired)])));
        let made = vec![gone(actual::StopReason::Stopped), Event::Actual(again)];
        all.push(at(5, Some(7), decision(8, client(), made)));
        let positions: Vec<u64> =
            chain(&all, &work(instance())).steps.iter().map(|step| step.position.0).collect();
        assert_eq!(positions, [5, 4]);
    }

    #[test]
    fn instance_is_explained_by_decisions_of_its_own_definition() {
        let mut all = story();
        let gone =
            actual::Event::Removed { places: first_place().into(), cause: actual::StopReason::Replaced };
        let made = actual::Event::Created { places: example_places("v2", Indices::from(0)) };
        all.push(at(10, None, decision(7, client(), vec![Event::Actual(made)])));
        all.push(at(11, Some(7), decision(8, client(), vec![Event::Actual(gone)])));
        let positions = |row: InstanceRow| {
            chain(&all, &work(row)).steps.iter().map(|step| step.position.0).collect::<Vec<_>>()
        };
        assert_eq!(positions(with_definition("v2", instance())), [10]);
        assert_eq!(positions(instance()), [11, 9, 8, 6, 5]);
    }

    #[test]
    fn evaluation_lists_placements_while_open() {
        let event = Event::Evaluation;
        let claimed = |number| {
            let placement = Some(placement());
            Event::Actual(actual::Event::Claimed {
                place: first_place(),
                by: container(number, "c1"),
                placement,
            })
        };
        let evaluation = EvaluationId(id(1));
        let decisions = [
            vec![event(evaluation::Event::Created {
                number: 0,
                trigger: evaluation::Trigger::Desire,
                initial_status: evaluation::InitialStatus::Pending,
                previous: None,
            })],
            vec![claimed(1)],
            vec![event(evaluation::Event::Joined { evaluation, trigger: evaluation::Trigger::Scale })],
            vec![
                claimed(2),
                event(evaluation::Event::Completed {
                    evaluation,
                    placed: 2,
                    queued: 0,
                    rejected: 0,
                    blocked: None,
                }),
            ],
            vec![claimed(3)],
        ];
        let decided: Vec<PositionedDecision> = (1..)
            .zip(decisions)
            .map(|(number, events)| at(number, None, decision(number, client(), events)))
            .collect();
        let placed = placements(&decided, evaluation);
        assert_eq!(placed.iter().map(|decided| decided.position.0).collect::<Vec<_>>(), [2, 4]);
    }
}
