//! The causes that a log records: what clients and operators asked, and what became of cells. All else follows from them.

use std::collections::BTreeMap;
use std::time::Duration;

use projections::World;
use schemas::actual;
use schemas::cell::{self, Presence};
use schemas::desired::{self, Desired};
use schemas::entry::{Actor, Aggregate, Event};
use schemas::names::{CellId, DefinitionId, Domain, ProcessGuid};
use schemas::process::Purpose;
use schemas::spec::{ClientCommand, PeriodicAction};
use schemas::{Decision, Timestamp, cluster, domain, parameterised, periodic, task};

use super::losses::Losses;
use super::said::Said;

/// Something that the cluster did not decide by itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cause {
    /// A client of a domain asks.
    Client(Domain, Box<ClientCommand>),
    /// A client of a domain has every instance of a process replaced by one that runs the same.
    Restart(Domain, Restarted),
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

/// What was asked of a process whose every instance was replaced, and under which id its definition went on. Whoever asks
/// again gets another id, for that is made of the process's version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Restarted {
    pub(crate) process: ProcessGuid,
    pub(crate) purpose: Purpose,
    pub(crate) made: DefinitionId,
}

/// The causes of some decisions, each with its time.
#[derive(Debug)]
pub(crate) struct Causes {
    all: Vec<(Timestamp, Cause)>,
    losses: Losses,
    /// What is desired of each process, as of the last decision.
    desired: BTreeMap<ProcessGuid, Desired>,
    /// What clients asked that can't be asked again from what is recorded of it, by kind.
    pub(crate) skipped: BTreeMap<&'static str, u64>,
}

impl Causes {
    /// Begins with what is true.
    pub(crate) fn beginning(world: &World) -> Self {
        let desired = |process: &schemas::process::Process| {
            Some((process.guid.clone(), process.desired.as_deref()?.clone()))
        };
        Self {
            all: vec![],
            losses: Losses::of(world),
            desired: world.processes_from(None).filter_map(desired).collect(),
            skipped: BTreeMap::new(),
        }
    }

    /// All of them, in the order of time. `mass_loss_wait` is how long the BBSs of the log waited before they believed that
    /// most cells are gone at once.
    pub(crate) fn all(&self, mass_loss_wait: Duration) -> Vec<(Timestamp, Cause)> {
        let died = self.losses.died(mass_loss_wait).into_iter();
        let mut all = self.all.clone();
        all.extend(died.map(|(at, id)| (at, Cause::Lost(id))));
        all.sort_by_key(|(at, _)| *at);
        all
    }

    /// Takes note of a decision, in the order of the log.
    pub(crate) fn note(&mut self, decision: &Decision) {
        if let Actor::Cell(id) = &decision.actor {
            self.losses.heard(id, decision.at);
        }
        self.note_cause(decision);
        if let Aggregate::Process { guid, .. } = &decision.aggregate {
            for event in &decision.events {
                if let Event::Desired(event) = event {
                    let known = desired::evolve(self.desired.remove(guid), event);
                    self.desired.extend(known.map(|known| (guid.clone(), known)));
                }
            }
        }
    }

    fn note_cause(&mut self, decision: &Decision) {
        match (&decision.actor, &decision.aggregate) {
            (Actor::Client { domain, .. }, _) => self.of_client(domain, decision),
            (Actor::Operator(_), Aggregate::Cell(id)) => self.of_operator(id, decision),
            (Actor::Operator(_), Aggregate::Cluster) => {
                for event in &decision.events {
                    if let Event::Cluster(cluster::Event::PreemptionSwitched { enabled: on }) = event {
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
            self.losses.note(id, event, decision.at);
            let (at, id) = (decision.at, id.clone());
            match event {
                cell::Event::Appeared(presence) => {
                    self.add(at, Cause::Appeared(id, Box::new(presence.clone())));
                }
                cell::Event::Healthy {} => self.add(at, Cause::Health(id, None)),
                cell::Event::Unhealthy { reason } => self.add(at, Cause::Health(id, Some(reason.clone()))),
                // When it died is told when all of the losses are known.
                cell::Event::Disappeared { .. }
                // These follow from what operators ask.
                | cell::Event::EvacuationRequested {}
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
        for event in decision.events.iter().filter_map(Event::as_cell) {
            self.losses.note(id, event, decision.at);
        }
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
        match self.asked(domain, decision) {
            Some(cause) => self.add(decision.at, cause),
            // What was so already changed nothing, and neither does a program that is run in a container.
            None if decision.events.iter().all(is_entry) => {}
            None => self.skip(kind(&decision.aggregate)),
        }
    }

    /// What a client asked for this.
    fn asked(&self, domain: &Domain, decision: &Decision) -> Option<Cause> {
        let command = match &decision.aggregate {
            Aggregate::Process { guid, .. } => {
                let said = Said::of(&decision.events);
                if let Some((purpose, made)) = said.restarted() {
                    let restart = Restarted { process: guid.clone(), purpose, made: made.clone() };
                    return Some(Cause::Restart(domain.clone(), restart));
                }
                said.command(guid, self.desired.get(guid))
            }
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
                let mut refreshed = events.filter_map(|event| match event {
                    domain::Event::Refreshed { expires_at } => {
                        let ttl_ms = expires_at.map(ttl);
                        Some(ClientCommand::DomainUpsert { domain: name.clone(), ttl_ms })
                    }
                    // No client asks for that.
                    domain::Event::Limited { .. } => None,
                });
                refreshed.next_back()
            }
            Aggregate::Cell(_) | Aggregate::Cluster => None,
        };
        command.map(|command| Cause::Client(domain.clone(), Box::new(command)))
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

const fn is_entry(event: &Event) -> bool {
    matches!(event, Event::Actual(actual::Event::ExecStarted { .. }))
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
    let asks = |ask| Some(ClientCommand::PeriodicAction { periodic_guid: guid.clone(), ask });
    match event {
        periodic::Event::Desired { desired, .. } => Some(ClientCommand::PeriodicDesire(desired.clone())),
        periodic::Event::Updated { desired, .. } => Some(ClientCommand::PeriodicUpdate(desired.clone())),
        periodic::Event::Launched { .. } => asks(PeriodicAction::Launch),
        periodic::Event::Paused {} => asks(PeriodicAction::Pause),
        periodic::Event::Resumed { .. } => asks(PeriodicAction::Resume),
        periodic::Event::Removed {} => asks(PeriodicAction::Remove),
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
