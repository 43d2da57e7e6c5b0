//! What clients were told, and what they may be told after that.
//!
//! Who was told that something is done, and then asks, is answered by somebody who knows of it: a refusal has to have been
//! true at a moment since.

use std::collections::BTreeMap;

use schemas::entry::{Aggregate, Event};
use schemas::message::Ack;
use schemas::names::{Domain, ParameterisedGuid, PeriodicGuid, ProcessGuid, RequestId, TaskGuid};
use schemas::spec::ClientCommand;
use schemas::subject::Position;
use schemas::{Code, Decision, desired, parameterised, periodic, task};

use crate::promises::{Broken, Promise};

/// What a command is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Thing {
    Process(ProcessGuid),
    Task(TaskGuid),
    Periodic(PeriodicGuid),
    Parameterised(ParameterisedGuid),
    Domain(Domain),
}

/// What clients heard, and what the log holds of it.
#[derive(Default)]
pub(super) struct Heard {
    /// Since where each thing exists, or doesn't any more.
    lives: BTreeMap<Thing, Vec<(Position, bool)>>,
    /// The highest position that was acknowledged of each.
    acknowledged: BTreeMap<Thing, Position>,
    /// What was acknowledged of its thing when a request was last asked.
    known: BTreeMap<RequestId, Position>,
}

impl Heard {
    /// A decision is in the log.
    pub(super) fn decision(&mut self, decision: &Decision, position: Position) {
        for event in &decision.events {
            let life = match (event, &decision.aggregate) {
                (Event::Desired(event), Aggregate::Process { guid, .. }) => match event {
                    desired::Event::Desired(_) => Some((Thing::Process(guid.clone()), true)),
                    desired::Event::Removed { .. } => Some((Thing::Process(guid.clone()), false)),
                    desired::Event::Updated(_)
                    | desired::Event::DefinitionAdded { .. }
                    | desired::Event::Activated { .. }
                    | desired::Event::HealthyChanged { .. }
                    | desired::Event::Pruned { .. }
                    | desired::Event::CellsChanged { .. } => None,
                },
                (Event::Task(task::Event::Desired(_)), Aggregate::Task { guid, .. }) => {
                    Some((Thing::Task(guid.clone()), true))
                }
                (Event::Task(task::Event::Deleted { .. }), Aggregate::Task { guid, .. }) => {
                    Some((Thing::Task(guid.clone()), false))
                }
                (Event::Periodic(periodic::Event::Desired { .. }), Aggregate::Periodic { guid, .. }) => {
                    Some((Thing::Periodic(guid.clone()), true))
                }
                (Event::Periodic(periodic::Event::Removed {}), Aggregate::Periodic { guid, .. }) => {
                    Some((Thing::Periodic(guid.clone()), false))
                }
                (
                    Event::Parameterised(parameterised::Event::Desired { .. }),
                    Aggregate::Parameterised { guid, .. },
                ) => Some((Thing::Parameterised(guid.clone()), true)),
                (
                    Event::Parameterised(parameterised::Event::Removed {}),
                    Aggregate::Parameterised { guid, .. },
                ) => Some((Thing::Parameterised(guid.clone()), false)),
                (
                    Event::Desired(_)
                    | Event::Actual(_)
                    | Event::Evacuating(_)
                    | Event::Rollout(_)
                    | Event::Evaluation(_)
                    | Event::Task(_)
                    | Event::Periodic(_)
                    | Event::Parameterised(_)
                    | Event::Domain(_)
                    | Event::Cell(_)
                    | Event::Cluster(_),
                    _,
                ) => None,
            };
            if let Some((thing, exists)) = life {
                self.lives.entry(thing).or_default().push((position, exists));
            }
        }
    }

    /// A client asks, or asks again.
    pub(super) fn asks(&mut self, request: RequestId, command: &ClientCommand) {
        let known = self.acknowledged.get(&thing(command)).copied().unwrap_or_default();
        self.known.insert(request, known);
    }

    /// A client is told that it is done.
    pub(super) fn done(&mut self, request: &RequestId, command: &ClientCommand, done: Ack) -> Option<Broken> {
        let known = self.known.get(request).copied().unwrap_or_default();
        let acknowledged = self.acknowledged.entry(thing(command)).or_default();
        *acknowledged = done.position.max(*acknowledged);
        (done.position < known).then(|| Broken {
            promise: Promise::JudgedAfterTold,
            how: format!("request {request} was sent after {known} and is answered at {}", done.position),
        })
    }

    /// A client is told that it is not done, while the log ends at `end`.
    pub(super) fn refused(
        &self,
        request: &RequestId,
        command: &ClientCommand,
        code: Code,
        end: Position,
    ) -> Option<Broken> {
        let exists = exists_if_refused(command, code)?;
        let thing = thing(command);
        let known = self.known.get(request).copied().unwrap_or_default();
        let lives = self.lives.get(&thing).into_iter().flatten();
        let before = lives.clone().take_while(|(at, _)| *at <= known).last().is_some_and(|(_, is)| *is);
        let since = lives.filter(|(at, _)| *at > known && *at <= end).map(|(_, is)| *is);
        let was_so = [before].into_iter().chain(since).any(|is| is == exists);
        (!was_so).then(|| Broken {
            promise: Promise::JudgedAfterTold,
            how: format!(
                "request {request} about {thing:?}, sent after {known}, is refused as {code} by {end}"
            ),
        })
    }
}

/// What a command is about.
pub(super) fn thing(command: &ClientCommand) -> Thing {
    match command {
        ClientCommand::LrpDesire(lrp) => Thing::Process(lrp.process_guid.clone()),
        ClientCommand::LrpUpdate { process_guid, .. }
        | ClientCommand::LrpActivate { process_guid, .. }
        | ClientCommand::LrpRestart { process_guid, .. }
        | ClientCommand::LrpSteer { process_guid, .. }
        | ClientCommand::LrpRemove { process_guid }
        | ClientCommand::LrpRetry { process_guid, .. }
        | ClientCommand::InstanceExec { process_guid, .. }
        | ClientCommand::LrpRetire { process_guid, .. } => Thing::Process(process_guid.clone()),
        ClientCommand::TaskDesire(task) => Thing::Task(task.task_guid.clone()),
        ClientCommand::TaskCancel { task_guid }
        | ClientCommand::TaskRetry { task_guid, .. }
        | ClientCommand::TaskResolve { task_guid } => Thing::Task(task_guid.clone()),
        ClientCommand::PeriodicDesire(desired) | ClientCommand::PeriodicUpdate(desired) => {
            Thing::Periodic(desired.periodic_guid.clone())
        }
        ClientCommand::PeriodicAction { periodic_guid, .. } => Thing::Periodic(periodic_guid.clone()),
        ClientCommand::ParameterisedDesire(desired) | ClientCommand::ParameterisedUpdate(desired) => {
            Thing::Parameterised(desired.parameterised_guid.clone())
        }
        ClientCommand::ParameterisedDispatch { parameterised_guid, .. }
        | ClientCommand::ParameterisedWithdraw { parameterised_guid, .. }
        | ClientCommand::ParameterisedRemove { parameterised_guid } => {
            Thing::Parameterised(parameterised_guid.clone())
        }
        ClientCommand::DomainUpsert { domain, .. } => Thing::Domain(domain.clone()),
    }
}

/// Whether the thing of a command that is refused so has to exist, or not to; none: the refusal says neither.
fn exists_if_refused(command: &ClientCommand, code: Code) -> Option<bool> {
    match command {
        ClientCommand::LrpDesire(_)
        | ClientCommand::TaskDesire(_)
        | ClientCommand::PeriodicDesire(_)
        | ClientCommand::ParameterisedDesire(_) => (code == Code::ResourceExists).then_some(true),
        ClientCommand::LrpUpdate { .. }
        | ClientCommand::LrpRestart { .. }
        | ClientCommand::LrpSteer { .. }
        | ClientCommand::LrpRemove { .. }
        | ClientCommand::TaskCancel { .. }
        | ClientCommand::TaskResolve { .. }
        | ClientCommand::PeriodicUpdate(_)
        | ClientCommand::PeriodicAction { .. }
        | ClientCommand::ParameterisedUpdate(_)
        | ClientCommand::ParameterisedDispatch { .. }
        | ClientCommand::ParameterisedRemove { .. } => (code == Code::ResourceNotFound).then_some(false),
        // An instance, a definition, an evaluation or a dispatch, and not what it is of, is what is not found.
        ClientCommand::ParameterisedWithdraw { .. }
        | ClientCommand::LrpRetire { .. }
        | ClientCommand::LrpActivate { .. }
        | ClientCommand::LrpRetry { .. }
        | ClientCommand::InstanceExec { .. }
        | ClientCommand::TaskRetry { .. }
        | ClientCommand::DomainUpsert { .. } => None,
    }
}
