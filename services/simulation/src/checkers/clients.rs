//! Answers that clients got, and what later answers must therefore take into account.

use std::collections::BTreeMap;

use machines::parameterised::Parameterised;
use machines::periodic::Periodic;
use projections::World;
use schemas::entry::{Aggregate, Event};
use schemas::message::Ack;
use schemas::names::{Domain, ParameterisedGuid, PeriodicGuid, ProcessGuid, RequestId, TaskGuid};
use schemas::spec::ClientCommand;
use schemas::subject::Position;
use schemas::{Code, Decision, Refusal, desired, parameterised, periodic, task};

use crate::checkers::Notes;
use crate::invariants::Invariant as I;
use crate::requests::ClientRequest;

/// Target of a command.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Process(ProcessGuid),
    Task(TaskGuid),
    Periodic(PeriodicGuid),
    Parameterised(ParameterisedGuid),
    Domain(Domain),
}

impl Target {
    fn exists(&self, world: &World) -> bool {
        match self {
            Self::Process(guid) => world.process(guid).is_some_and(|process| process.desired.is_some()),
            Self::Task(guid) => world.task(guid).is_some_and(|task| task.state.is_some()),
            Self::Periodic(guid) => !world.periodic(guid).is_none_or(Periodic::is_removed),
            Self::Parameterised(guid) => !world.parameterised(guid).is_none_or(Parameterised::is_removed),
            Self::Domain(domain) => world.domain(domain).is_some(),
        }
    }
}

/// Answers so far, and the last decision about each target.
#[derive(Default)]
pub(super) struct Clients {
    /// Highest acknowledged position of each target.
    acknowledged: BTreeMap<Target, Position>,
    /// Acknowledged position of the target when a request was last sent.
    known: BTreeMap<RequestId, Position>,
    /// Requests that name the position of their plan.
    planned: BTreeMap<RequestId, (Target, Position)>,
    /// Position of the last decision about each target, including removed ones.
    last: BTreeMap<Target, Position>,
    /// Positions at which each target started (`true`) or ceased (`false`) to exist. One entry may do both.
    changes: BTreeMap<Target, Vec<(Position, bool)>>,
}

impl Clients {
    /// Returns the acknowledged position of the target when a request was last sent.
    pub(super) fn known(&self, request: &RequestId) -> Position {
        self.known.get(request).copied().unwrap_or_default()
    }

    /// Records a new command.
    pub(super) fn requested(&mut self, request: &ClientRequest) {
        if let Some(at) = request.envelope.if_position {
            self.planned.insert(request.id(), (target(&request.command), at));
        }
    }

    /// Records that a client sends a command, maybe again.
    pub(super) fn sent(&mut self, request: RequestId, command: &ClientCommand) {
        let known = self.acknowledged.get(&target(command)).copied().unwrap_or_default();
        self.known.insert(request, known);
    }

    /// Checks that the target of a planned command has not changed since the plan.
    pub(super) fn check(&mut self, decision: &Decision, position: Position, notes: &mut Notes) {
        let target = match &decision.aggregate {
            Aggregate::Process { guid, .. } => Target::Process(guid.clone()),
            Aggregate::Task { guid, .. } => Target::Task(guid.clone()),
            Aggregate::Periodic { guid, .. } => Target::Periodic(guid.clone()),
            Aggregate::Parameterised { guid, .. } => Target::Parameterised(guid.clone()),
            Aggregate::Domain(domain) => Target::Domain(domain.clone()),
            Aggregate::Cell(_) | Aggregate::Cluster => return,
        };
        let changes = decision.events.iter().filter_map(existence);
        self.changes.entry(target.clone()).or_default().extend(changes.map(|exists| (position, exists)));
        let before = self.last.insert(target.clone(), position).unwrap_or_default();
        let planned = decision.request_id.as_ref().and_then(|request| self.planned.get(request));
        notes.check(I::AsPlanned, planned.is_none_or(|(_, at)| before <= *at), || {
            format!("{target:?} changed at {before}, after the plan {planned:?}")
        });
    }

    /// Returns the position of the last decision about the target of a command, or 0.
    pub(super) fn last_decision(&self, command: &ClientCommand) -> Position {
        self.last.get(&target(command)).copied().unwrap_or_default()
    }

    /// Checks an acknowledgement.
    pub(super) fn acknowledged(
        &mut self,
        request: &RequestId,
        command: &ClientCommand,
        ack: Ack,
        notes: &mut Notes,
    ) {
        let known = self.known.get(request).copied().unwrap_or_default();
        let acknowledged = self.acknowledged.entry(target(command)).or_default();
        *acknowledged = ack.position.max(*acknowledged);
        notes.check(I::JudgedAfterTold, ack.position >= known, || {
            format!("request {request} was sent after {known} and is answered at {}", ack.position)
        });
    }

    /// Checks a refusal: the target must have existed, or not, at a moment since the last acknowledgement.
    /// `known` is the World at that acknowledgement, and the log ends at `end`.
    pub(super) fn refused(
        &self,
        request: &RequestId,
        command: &ClientCommand,
        refusal: &Refusal,
        (known, end): (&World, Position),
        notes: &mut Notes,
    ) {
        let target = target(command);
        if let Some(exists) = exists_if_refused(command, refusal.code) {
            let known_at = known.position();
            let since = self.changes.get(&target).into_iter().flatten();
            let mut since = since.filter(|(at, _)| *at > known_at && *at <= end);
            let right = target.exists(known) == exists || since.any(|(_, now)| *now == exists);
            notes.check(I::JudgedAfterTold, right, || {
                format!("request {request} about {target:?}, sent after {known_at}, is refused by {end}: {refusal}")
            });
        }
        if let Some((_, planned)) = self.planned.get(request).filter(|_| is_outdated_plan(refusal)) {
            let last = self.last.get(&target).copied().unwrap_or_default();
            notes.check(I::AsPlanned, last > *planned, || {
                format!("{request} is refused with {refusal}, but {target:?} last changed at {last}")
            });
        }
    }
}

/// Returns `true` if an event starts the existence of its target, and `false` if it ends it.
const fn existence(event: &Event) -> Option<bool> {
    match event {
        Event::Desired(desired::Event::Desired(_))
        | Event::Task(task::Event::Desired(_))
        | Event::Periodic(periodic::Event::Desired { .. })
        | Event::Parameterised(parameterised::Event::Desired { .. }) => Some(true),
        Event::Desired(desired::Event::Removed {})
        | Event::Task(task::Event::Deleted {})
        | Event::Periodic(periodic::Event::Removed {})
        | Event::Parameterised(parameterised::Event::Removed {}) => Some(false),
        _ => None,
    }
}

/// Returns `true` if a command was refused because its target has changed since the position of its plan.
pub(super) fn is_outdated_plan(refusal: &Refusal) -> bool {
    refusal.code == Code::ResourceConflict && refusal.message.contains("has changed since position")
}

/// Returns the target of a command.
pub(super) fn target(command: &ClientCommand) -> Target {
    match command {
        ClientCommand::LrpDesire(lrp) => Target::Process(lrp.process_guid.clone()),
        ClientCommand::LrpUpdate { process_guid, .. }
        | ClientCommand::LrpActivate { process_guid, .. }
        | ClientCommand::LrpRestart { process_guid, .. }
        | ClientCommand::LrpSteer { process_guid, .. }
        | ClientCommand::LrpRemove { process_guid }
        | ClientCommand::LrpRetry { process_guid, .. }
        | ClientCommand::InstanceExec { process_guid, .. }
        | ClientCommand::LrpRetire { process_guid, .. } => Target::Process(process_guid.clone()),
        ClientCommand::TaskDesire(task) => Target::Task(task.task_guid.clone()),
        ClientCommand::TaskCancel { task_guid }
        | ClientCommand::TaskRetry { task_guid, .. }
        | ClientCommand::TaskResolve { task_guid } => Target::Task(task_guid.clone()),
        ClientCommand::PeriodicDesire(desired) | ClientCommand::PeriodicUpdate(desired) => {
            Target::Periodic(desired.periodic_guid.clone())
        }
        ClientCommand::PeriodicAction { periodic_guid, .. } => Target::Periodic(periodic_guid.clone()),
        ClientCommand::ParameterisedDesire(desired) | ClientCommand::ParameterisedUpdate(desired) => {
            Target::Parameterised(desired.parameterised_guid.clone())
        }
        ClientCommand::ParameterisedDispatch { parameterised_guid, .. }
        | ClientCommand::ParameterisedWithdraw { parameterised_guid, .. }
        | ClientCommand::ParameterisedRemove { parameterised_guid } => {
            Target::Parameterised(parameterised_guid.clone())
        }
        ClientCommand::DomainUpsert { domain, .. } => Target::Domain(domain.clone()),
    }
}

/// Returns `true` if the target of a refused command must exist, and `false` if it must not. `None` for other refusals.
const fn exists_if_refused(command: &ClientCommand, code: Code) -> Option<bool> {
    match (command, code) {
        (
            ClientCommand::LrpDesire(_)
            | ClientCommand::TaskDesire(_)
            | ClientCommand::PeriodicDesire(_)
            | ClientCommand::ParameterisedDesire(_),
            Code::ResourceExists,
        ) => Some(true),
        (
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
            | ClientCommand::ParameterisedRemove { .. },
            Code::ResourceNotFound,
        ) => Some(false),
        // Other commands may be refused because an instance, a definition, an evaluation or a dispatch is missing.
        _ => None,
    }
}
