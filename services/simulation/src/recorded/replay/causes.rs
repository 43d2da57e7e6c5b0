//! The causes that a log records: what clients and operators asked, and what became of cells. All else follows from them.

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::cell::{self, Presence};
use schemas::entry::{Actor, Aggregate, Event};
use schemas::names::{CellId, Domain, ProcessGuid};
use schemas::process::{Purpose, Steer};
use schemas::spec::{ClientCommand, PeriodicAsk};
use schemas::{
    Decision, Timestamp, actual, cluster, desired, domain, parameterised, periodic, rollout, task,
};

/// A cell is called lost so long after it fell silent: the silence that is waited for, and a probe.
const DETECTION: Duration = Duration::from_secs(17);

/// Something that the cluster did not decide by itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cause {
    /// A client of a domain asks.
    Client(Domain, Box<ClientCommand>),
    /// An operator asks something of a cell.
    Operator(CellId, cell::Command),
    /// An operator switches preemption.
    Preemption(bool),
    /// The machine of a cell dies.
    Lost(CellId),
    /// A rep speaks for a cell.
    Appeared(CellId, Box<Presence>),
    /// A cell's self-test fails, for this reason, or passes again.
    Health(CellId, Option<String>),
}

/// The causes of some decisions, each with its time.
#[derive(Debug, Default)]
pub(crate) struct Causes {
    pub(crate) all: Vec<(Timestamp, Cause)>,
    /// What clients asked that can't be asked again from what is recorded of it, by kind.
    pub(crate) skipped: BTreeMap<&'static str, u64>,
}

impl Causes {
    /// Takes note of a decision, in the order of the log.
    pub(crate) fn note(&mut self, decision: &Decision) {
        match (&decision.actor, &decision.aggregate) {
            (Actor::Client { domain, .. }, _) => self.of_client(domain, decision),
            (Actor::Operator(_), Aggregate::Cell(id)) => self.of_operator(id, decision),
            (Actor::Operator(_), Aggregate::Cluster) => {
                for event in &decision.events {
                    if let Event::Cluster(cluster::Event::PreemptionSwitched { on }) = event {
                        self.add(decision.at, Cause::Preemption(*on));
                    }
                }
            }
            (Actor::Cell(_) | Actor::Bbs(_) | Actor::Auctioneer(_), Aggregate::Cell(id)) => {
                self.of_cell(id, decision);
            }
            (
                Actor::Operator(_) | Actor::Cell(_) | Actor::Bbs(_) | Actor::Auctioneer(_),
                Aggregate::Process { .. }
                | Aggregate::Task { .. }
                | Aggregate::Periodic { .. }
                | Aggregate::Parameterised { .. }
                | Aggregate::Domain(_)
                | Aggregate::Cluster,
            ) => {}
        }
    }

    fn add(&mut self, at: Timestamp, cause: Cause) {
        self.all.push((at, cause));
    }

    fn skip(&mut self, what: &'static str) {
        *self.skipped.entry(what).or_default() += 1;
    }

    fn of_cell(&mut self, id: &CellId, decision: &Decision) {
        for event in &decision.events {
            let Event::Cell(event) = event else { continue };
            let (at, id) = (decision.at, id.clone());
            match event {
                cell::Event::Appeared(presence) => {
                    self.add(at, Cause::Appeared(id, Box::new(presence.clone())));
                }
                cell::Event::Disappeared { .. } => self.add(at - DETECTION, Cause::Lost(id)),
                cell::Event::Healthy {} => self.add(at, Cause::Health(id, None)),
                cell::Event::Unhealthy { reason } => self.add(at, Cause::Health(id, Some(reason.clone()))),
                // These follow from what operators ask.
                cell::Event::EvacuationRequested {}
                | cell::Event::EvacuationWithdrawn {}
                | cell::Event::Cordoned {}
                | cell::Event::Uncordoned {}
                | cell::Event::Evacuating {}
                | cell::Event::Resumed {}
                | cell::Event::Left {}
                | cell::Event::Forgotten {} => {}
            }
        }
    }

    fn of_operator(&mut self, id: &CellId, decision: &Decision) {
        let command = decision.events.iter().find_map(|event| match event {
            Event::Cell(cell::Event::EvacuationRequested {}) => Some(cell::Command::Evacuate),
            Event::Cell(cell::Event::Cordoned {}) => Some(cell::Command::Cordon),
            Event::Cell(cell::Event::EvacuationWithdrawn {} | cell::Event::Uncordoned {}) => {
                Some(cell::Command::Uncordon)
            }
            Event::Cell(cell::Event::Forgotten {}) => Some(cell::Command::Forget),
            Event::Cell(
                cell::Event::Appeared(_)
                | cell::Event::Evacuating {}
                | cell::Event::Resumed {}
                | cell::Event::Healthy {}
                | cell::Event::Unhealthy { .. }
                | cell::Event::Left {}
                | cell::Event::Disappeared { .. },
            )
            | Event::Desired(_)
            | Event::Actual(_)
            | Event::Evacuating(_)
            | Event::Rollout(_)
            | Event::Evaluation(_)
            | Event::Task(_)
            | Event::Periodic(_)
            | Event::Parameterised(_)
            | Event::Domain(_)
            | Event::Cluster(_) => None,
        });
        if let Some(command) = command {
            self.add(decision.at, Cause::Operator(id.clone(), command));
        }
    }

    fn of_client(&mut self, domain: &Domain, decision: &Decision) {
        let command = match &decision.aggregate {
            Aggregate::Process { guid, .. } => of_process(guid, &decision.events),
            Aggregate::Task { guid, .. } => decision
                .events
                .iter()
                .find_map(|event| if let Event::Task(event) = event { of_task(guid, event) } else { None }),
            Aggregate::Periodic { guid, .. } => {
                let events = decision.events.iter().filter_map(Event::as_periodic);
                events.filter_map(|event| of_periodic(guid, event)).next()
            }
            Aggregate::Parameterised { guid, .. } => {
                let events = decision.events.iter().filter_map(Event::as_parameterised);
                events.filter_map(|event| of_parameterised(guid, event)).next()
            }
            Aggregate::Domain(name) => {
                let events = decision.events.iter().filter_map(Event::as_domain);
                let ttl = |expires: Timestamp| {
                    u64::try_from(expires.since(decision.at).as_millis()).unwrap_or(u64::MAX)
                };
                let mut refreshed = events.map(|event| {
                    let domain::Event::Refreshed { expires_at } = event;
                    ClientCommand::DomainUpsert { domain: name.clone(), ttl_ms: expires_at.map(ttl) }
                });
                refreshed.next_back()
            }
            Aggregate::Cell(_) | Aggregate::Cluster => None,
        };
        match command {
            Some(command) => self.add(decision.at, Cause::Client(domain.clone(), Box::new(command))),
            // What was so already changed nothing.
            None if decision.events.is_empty() => {}
            None => self.skip(kind(&decision.aggregate)),
        }
    }
}

/// What kind of command is skipped.
const fn kind(aggregate: &Aggregate) -> &'static str {
    match aggregate {
        Aggregate::Process { .. } => "commands about processes",
        Aggregate::Task { .. } => "commands about tasks",
        Aggregate::Periodic { .. } => "commands about periodic tasks",
        Aggregate::Parameterised { .. } => "commands about parameterised tasks",
        Aggregate::Domain(_) | Aggregate::Cell(_) | Aggregate::Cluster => "other commands",
    }
}

/// The command that makes these of a process.
fn of_process(guid: &ProcessGuid, events: &[Event]) -> Option<ClientCommand> {
    let process_guid = || guid.clone();
    let (mut update, mut added, mut activated, mut rolls, mut retired) = (None, None, None, None, None);
    for event in events {
        if let Event::Desired(event) = event {
            match event {
                desired::Event::Desired(lrp) => return Some(ClientCommand::LrpDesire(lrp.clone())),
                desired::Event::Removed {} => {
                    return Some(ClientCommand::LrpRemove { process_guid: process_guid() });
                }
                desired::Event::Updated(all) => update = Some(all.clone()),
                desired::Event::DefinitionAdded { definition_id, definition } => {
                    added = Some((definition_id.clone(), definition.clone()));
                }
                desired::Event::Activated { definition_id } => activated = Some(definition_id.clone()),
                desired::Event::HealthyChanged { .. }
                | desired::Event::Pruned { .. }
                | desired::Event::CellsChanged { .. } => {}
            }
        }
        if let Event::Rollout(event) = event {
            rolls = rolls.or_else(|| steered(event));
        }
        // What had crashed is not asked to stop, but removed at once.
        if let Event::Actual(
            actual::Event::StopRequested { places, cause: actual::Ended::Retired }
            | actual::Event::Removed { places, cause: actual::Ended::Retired },
        ) = event
        {
            retired = places.iter().next();
        }
    }
    if update.is_some() || added.is_some() {
        let update = update.unwrap_or_default();
        return Some(ClientCommand::LrpUpdate { process_guid: process_guid(), update, definition: added });
    }
    if let Some(definition_id) = activated {
        return Some(ClientCommand::LrpActivate { process_guid: process_guid(), definition_id });
    }
    if let Some(place) = retired {
        let (index, definition_id) = (place.index, Some(place.definition_id));
        return Some(ClientCommand::LrpRetire { process_guid: process_guid(), index, definition_id });
    }
    Some(match rolls? {
        Some(steer) => ClientCommand::LrpSteer { process_guid: process_guid(), steer },
        None => ClientCommand::LrpRestart { process_guid: process_guid(), purpose: Purpose::Restart },
    })
}

/// How a client steered a rollout, by what it brought about first; none: every instance is replaced by one that runs the
/// same.
const fn steered(event: &rollout::Event) -> Option<Option<Steer>> {
    if let rollout::Event::Started { kind, .. } = event {
        return Some(match kind {
            rollout::Kind::Rollback => Some(Steer::RollBack),
            rollout::Kind::Update => None,
        });
    }
    if matches!(event, rollout::Event::Paused { .. }) {
        return Some(Some(Steer::Pause));
    }
    if matches!(event, rollout::Event::Resumed { .. }) { Some(Some(Steer::Resume)) } else { None }
}

fn of_task(guid: &schemas::names::TaskGuid, event: &task::Event) -> Option<ClientCommand> {
    let task_guid = guid.clone();
    match event {
        task::Event::Desired(desired) => Some(ClientCommand::TaskDesire(desired.clone())),
        task::Event::Completed { .. } => Some(ClientCommand::TaskCancel { task_guid }),
        task::Event::Resolving {} | task::Event::Deleted {} => Some(ClientCommand::TaskResolve { task_guid }),
        task::Event::Started { .. }
        | task::Event::PlacementFailed { .. }
        | task::Event::CallbackTried { .. }
        | task::Event::Demoted {} => None,
    }
}

fn of_periodic(guid: &schemas::names::PeriodicGuid, event: &periodic::Event) -> Option<ClientCommand> {
    let asks = |ask| Some(ClientCommand::PeriodicAsk { periodic_guid: guid.clone(), ask });
    match event {
        periodic::Event::Desired { desired, .. } => Some(ClientCommand::PeriodicDesire(desired.clone())),
        periodic::Event::Updated { desired, .. } => Some(ClientCommand::PeriodicUpdate(desired.clone())),
        periodic::Event::Launched { .. } => asks(PeriodicAsk::Launch),
        periodic::Event::Paused {} => asks(PeriodicAsk::Pause),
        periodic::Event::Resumed { .. } => asks(PeriodicAsk::Resume),
        periodic::Event::Removed {} => asks(PeriodicAsk::Remove),
        periodic::Event::Skipped { .. } | periodic::Event::Queued { .. } => None,
    }
}

fn of_parameterised(
    guid: &schemas::names::ParameterisedGuid,
    event: &parameterised::Event,
) -> Option<ClientCommand> {
    let parameterised_guid = guid.clone();
    match event {
        parameterised::Event::Desired { desired } => {
            Some(ClientCommand::ParameterisedDesire(desired.clone()))
        }
        parameterised::Event::Updated { desired } => {
            Some(ClientCommand::ParameterisedUpdate(desired.clone()))
        }
        parameterised::Event::Dispatched { dispatch, .. } => {
            Some(ClientCommand::ParameterisedDispatch { parameterised_guid, dispatch: dispatch.clone() })
        }
        parameterised::Event::Withdrawn { numbers, .. } => {
            let number = *numbers.first()?;
            Some(ClientCommand::ParameterisedWithdraw { parameterised_guid, number })
        }
        parameterised::Event::Removed {} => Some(ClientCommand::ParameterisedRemove { parameterised_guid }),
        parameterised::Event::Repeated { .. } | parameterised::Event::Launched { .. } => None,
    }
}
