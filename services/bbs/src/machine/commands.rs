//! Commands: checks of the sender, admission, and conversion to commands for aggregates.

use std::time::Duration;

use schemas::container::{Epoch, WorkKey};
use schemas::limits::{BATCH, EVICTIONS};
use schemas::message::{Ack, Attach, Envelope, Lead, Leave, Outcomes, PlacementOutcome, Report, Reports};
use schemas::names::{CellId, ClientName, Domain};
use schemas::preemption::Eviction;
use schemas::spec::{ClientCommand, PeriodicAction};
use schemas::stamp::Actor;
use schemas::verb::ClientVerb;
use schemas::{BadField, Code, Refusal, cluster, parameterised, periodic, process, task};

use super::{Bbs, MAX_QUEUED, not_leading_refusal};
use crate::aggregates::{CellCommand, ClusterCommand, DomainCommand, Order};
use crate::command::{AggregateCommand, QueuedCommand, Requester};
use crate::effect::{Effect, Reply};
use crate::input::ChangeRequest;
use crate::judge::check_auctioneer;
use crate::requesters::Parts;

impl Bbs {
    /// Handles a request for a change: queues it, or refuses it at once.
    pub(super) fn handle_request(&mut self, requester: u64, ask: ChangeRequest) {
        let is_report = matches!(ask, ChangeRequest::Cell { .. });
        let refused = self.admit().and_then(|()| match ask {
            ChangeRequest::Client { domain, client, envelope, command, digest } => {
                self.handle_client_command(requester, domain, client, (envelope, digest), command)
            }
            ChangeRequest::Cell { cell, reports } => self.handle_reports(requester, &cell, reports),
            ChangeRequest::Outcomes(outcomes) => self.handle_outcomes(requester, outcomes),
            ChangeRequest::Attach { cell, attach } => self.attach(requester, &cell, attach),
            ChangeRequest::Leave { cell, leave } => self.leave(requester, cell, leave),
            ChangeRequest::Operator { client, envelope, cell, command } => {
                let digest = command.digest(&cell);
                let order = AggregateCommand::Cell(Order::new(cell, CellCommand::Operator(command)));
                self.handle_operator_command(requester, (client, envelope), order, digest);
                Ok(())
            }
            ChangeRequest::Cluster { client, envelope, command } => {
                let order = AggregateCommand::Cluster(ClusterCommand::Operator(command));
                self.handle_operator_command(requester, (client, envelope), order, command.digest());
                Ok(())
            }
            ChangeRequest::Limit { client, envelope, order } => {
                let digest = order.digest();
                let order =
                    AggregateCommand::Domain(Order::new(order.domain.clone(), DomainCommand::Limit(order)));
                self.handle_operator_command(requester, (client, envelope), order, digest);
                Ok(())
            }
            ChangeRequest::Lead(lead) => {
                self.handle_candidacy(requester, lead);
                Ok(())
            }
        });
        if let Err(refusal) = refused {
            let reply = if is_report { Reply::Reported(Err(refusal)) } else { Reply::Done(Err(refusal)) };
            self.answer(requester, reply);
        }
    }

    /// Refuses requests while appends fail, while this BBS does not lead, or while the queues are full.
    fn admit(&self) -> Result<(), Refusal> {
        if self.leadership.is_elected() && self.appends.refusal().is_some() {
            Err(self.not_stored_refusal())
        } else if !self.leads() {
            Err(not_leading_refusal(self.settings.may_lead))
        } else if self.shards.queued() >= MAX_QUEUED {
            Err(Refusal::new(Code::Overloaded, "too many queued commands: try again"))
        } else {
            Ok(())
        }
    }

    fn handle_client_command(
        &mut self,
        requester: u64,
        domain: Domain,
        client: ClientName,
        (envelope, digest): (Envelope, Option<String>),
        command: ClientCommand,
    ) -> Result<(), Refusal> {
        check_exec_has_request_id(&envelope, &command)?;
        let quotas = self.log.world().quotas(&domain);
        self.rates.admit(&domain, quotas.commands_per_second, self.now)?;
        self.requesters.admit(&domain, &client, requester)?;
        let actor = Actor::Client { domain, name: client };
        let queued = QueuedCommand::new(Requester::Single(requester), actor, client_command(command));
        self.enqueue(QueuedCommand { envelope, digest, ..queued });
        Ok(())
    }

    fn handle_operator_command(
        &mut self,
        requester: u64,
        (client, envelope): (ClientName, Envelope),
        command: AggregateCommand,
        digest: String,
    ) {
        let digest = envelope.request_id.is_some().then_some(digest);
        let queued = QueuedCommand::new(Requester::Single(requester), Actor::Operator(client), command);
        self.enqueue(QueuedCommand { envelope, digest, ..queued });
    }

    fn handle_candidacy(&mut self, requester: u64, Lead { id, term }: Lead) {
        let actor = Actor::Auctioneer(id.clone());
        let role = cluster::Role::Auctioneer;
        let command = AggregateCommand::Cluster(ClusterCommand::Lead { role, id, term, found: None });
        self.enqueue(QueuedCommand::new(Requester::Single(requester), actor, command));
    }

    /// Queues the request of a starting rep to act for its cell. Refuses the request if another rep acts for
    /// the cell.
    fn attach(&mut self, requester: u64, cell: &CellId, attach: Attach) -> Result<(), Refusal> {
        if let Some(refusal) = self.other_rep_refusal(cell, attach.folder) {
            self.emit(Effect::Warn(refusal.message.clone()));
            return Err(refusal);
        }
        let command = AggregateCommand::Cell(Order::new(cell.clone(), CellCommand::Attach));
        self.enqueue(QueuedCommand::new(Requester::Single(requester), Actor::Cell(cell.clone()), command));
        Ok(())
    }

    fn leave(&mut self, requester: u64, cell: CellId, leave: Leave) -> Result<(), Refusal> {
        if let Some(refusal) = self.other_rep_refusal(&cell, leave.folder) {
            return Err(refusal);
        }
        let command =
            AggregateCommand::Cell(Order::new(cell.clone(), CellCommand::RecordLeave(leave.incarnation)));
        self.enqueue(QueuedCommand::new(Requester::Single(requester), Actor::Cell(cell), command));
        Ok(())
    }

    fn handle_reports(&mut self, requester: u64, cell: &CellId, reports: Reports) -> Result<(), Refusal> {
        let Reports { folder, reports } = reports;
        Parts::check(reports.len(), "reports")?;
        let foreign = |report: &Report| match report {
            Report::Lrp { report, .. } => report.by.cell_id != *cell,
            Report::Task { report, .. } => report.by.cell_id != *cell,
        };
        if reports.iter().any(foreign) {
            let why = format!("the subject names cell {cell}, but a report names another one");
            return Err(Refusal::new(Code::Forbidden, why));
        }
        if let Some(refusal) = self.unknown_rep_refusal(cell, folder) {
            return Err(refusal);
        }
        for (part, report) in reports.iter().enumerate() {
            let requester = Requester::Part { token: requester, part };
            self.enqueue(QueuedCommand::new(requester, Actor::Cell(cell.clone()), report_command(report)));
        }
        self.requesters.register(requester, Parts::Reports(reports));
        Ok(())
    }

    fn handle_outcomes(&mut self, requester: u64, outcomes: Outcomes) -> Result<(), Refusal> {
        let Outcomes { id, term, leases, outcomes, evictions } = outcomes;
        check_auctioneer(self.world(), &id, term)?;
        if leases.len() > BATCH {
            let why = format!("{} leases are too many for one message: at most {BATCH}", leases.len());
            return Err(Refusal::new(Code::InvalidRequest, why));
        }
        if evictions.len() > EVICTIONS {
            let why =
                format!("{} evictions are too many for one message: at most {EVICTIONS}", evictions.len());
            return Err(Refusal::new(Code::InvalidRequest, why));
        }
        let only_leases = outcomes.is_empty() && evictions.is_empty() && !leases.is_empty();
        leases.into_iter().for_each(|lease| self.record_lease(lease, term));
        if only_leases {
            let position = self.world().position();
            self.answer(requester, Reply::Done(Ok(Ack { position, version: 0 })));
            return Ok(());
        }
        if evictions.is_empty() {
            Parts::check(outcomes.len(), "outcomes")?;
        }
        if outcomes.len() > BATCH {
            return Parts::check(outcomes.len(), "outcomes");
        }
        self.requesters.register(requester, Parts::Outcomes(outcomes.len() + evictions.len()));
        let outcomes = outcomes.into_iter().map(|outcome| (outcome_command(outcome), None));
        let evictions = evictions.into_iter().map(|eviction| {
            let reason = eviction.preemptor.to_string();
            (eviction_command(eviction), Some(reason))
        });
        for (part, ((command, epoch), reason)) in outcomes.chain(evictions).enumerate() {
            // Do not check for stale records here: the auctioneer may know an entry that this BBS has not
            // received yet.
            let requester = Requester::Part { token: requester, part };
            let queued = QueuedCommand::new(requester, Actor::Auctioneer(id.clone()), command);
            let envelope = Envelope { reason, ..Envelope::default() };
            self.enqueue(QueuedCommand { envelope, epoch: Some(epoch), term: Some(term), ..queued });
        }
        Ok(())
    }
}

/// Requires a request id for commands that run a program. The client uses the request id to address the
/// program.
fn check_exec_has_request_id(envelope: &Envelope, command: &ClientCommand) -> Result<(), Refusal> {
    if envelope.request_id.is_none() && command.verb() == ClientVerb::InstanceExec {
        let problem = "is missing: the client addresses the program by it".to_owned();
        return Err(Refusal::invalid(vec![BadField { field: "envelope.request_id".into(), problem }]));
    }
    Ok(())
}

/// Converts a placement outcome to a command and the expected epoch.
fn outcome_command(outcome: PlacementOutcome) -> (AggregateCommand, Epoch) {
    match outcome {
        PlacementOutcome::Lrp { process_guid, epoch, outcome } => {
            let command = process::Command::Fail(outcome);
            (AggregateCommand::Process(Order::new(process_guid, command)), epoch)
        }
        PlacementOutcome::Task { task_guid, epoch, unplaced } => {
            let command = task::Command::Fail(unplaced);
            (AggregateCommand::Task(Order::new(task_guid, command)), epoch)
        }
    }
}

/// Converts an eviction to a command and the victim's epoch.
fn eviction_command(eviction: Eviction) -> (AggregateCommand, Epoch) {
    let epoch = eviction.victim.epoch();
    let command = match &eviction.victim {
        WorkKey::Lrp { key, .. } => {
            let guid = key.process_guid.clone();
            AggregateCommand::Process(Order::new(guid, process::Command::Evict(Box::new(eviction))))
        }
        WorkKey::Task { task_guid, .. } => {
            let guid = task_guid.clone();
            AggregateCommand::Task(Order::new(guid, task::Command::Evict(Box::new(eviction))))
        }
    };
    (command, epoch)
}

fn client_command(command: ClientCommand) -> AggregateCommand {
    let process = |guid, command| AggregateCommand::Process(Order::new(guid, command));
    let task = |guid, command| AggregateCommand::Task(Order::new(guid, command));
    let periodic = |guid, command| AggregateCommand::Periodic(Order::new(guid, command));
    let parameterised = |guid, command| AggregateCommand::Parameterised(Order::new(guid, command));
    match command {
        ClientCommand::LrpDesire(lrp) => process(lrp.process_guid.clone(), process::Command::Desire(lrp)),
        ClientCommand::LrpUpdate { process_guid, update, definition: None } => {
            process(process_guid, process::Command::Update(update))
        }
        ClientCommand::LrpUpdate { process_guid, update, definition: Some((definition_id, definition)) } => {
            process(process_guid, process::Command::Deploy { update, definition_id, definition })
        }
        ClientCommand::LrpActivate { process_guid, definition_id } => {
            process(process_guid, process::Command::Activate { definition_id })
        }
        ClientCommand::LrpRestart { process_guid, purpose } => {
            process(process_guid, process::Command::Restart(purpose))
        }
        ClientCommand::LrpSteer { process_guid, steer } => {
            process(process_guid, process::Command::Steer(steer))
        }
        ClientCommand::LrpRemove { process_guid } => process(process_guid, process::Command::Remove),
        ClientCommand::LrpRetire { process_guid, index, definition_id } => {
            process(process_guid, process::Command::Retire { index, definition_id })
        }
        ClientCommand::InstanceExec { process_guid, index, definition_id, exec } => {
            process(process_guid, process::Command::Enter { index, definition_id, exec })
        }
        ClientCommand::LrpRetry { process_guid, evaluation } => {
            process(process_guid, process::Command::Retry(evaluation))
        }
        ClientCommand::TaskRetry { task_guid, evaluation } => {
            task(task_guid, task::Command::Retry(evaluation))
        }
        ClientCommand::TaskDesire(desired) => task(desired.task_guid.clone(), task::Command::Desire(desired)),
        ClientCommand::TaskCancel { task_guid } => task(task_guid, task::Command::Cancel),
        ClientCommand::TaskResolve { task_guid } => task(task_guid, task::Command::Resolve),
        ClientCommand::PeriodicDesire(desired) => {
            periodic(desired.periodic_guid.clone(), periodic::Command::Desire(desired))
        }
        ClientCommand::PeriodicUpdate(desired) => {
            periodic(desired.periodic_guid.clone(), periodic::Command::Update(desired))
        }
        ClientCommand::PeriodicAction { periodic_guid, ask } => {
            periodic(periodic_guid, periodic_command(ask))
        }
        ClientCommand::ParameterisedDesire(desired) => {
            parameterised(desired.parameterised_guid.clone(), parameterised::Command::Desire(desired))
        }
        ClientCommand::ParameterisedUpdate(desired) => {
            parameterised(desired.parameterised_guid.clone(), parameterised::Command::Update(desired))
        }
        ClientCommand::ParameterisedDispatch { parameterised_guid, dispatch } => {
            parameterised(parameterised_guid, parameterised::Command::Dispatch(dispatch))
        }
        ClientCommand::ParameterisedWithdraw { parameterised_guid, number } => {
            parameterised(parameterised_guid, parameterised::Command::Withdraw(number))
        }
        ClientCommand::ParameterisedRemove { parameterised_guid } => {
            parameterised(parameterised_guid, parameterised::Command::Remove)
        }
        ClientCommand::DomainUpsert { domain, ttl_ms } => {
            let ttl = ttl_ms.map(Duration::from_millis);
            AggregateCommand::Domain(Order::new(domain, DomainCommand::Refresh(ttl)))
        }
    }
}

const fn periodic_command(ask: PeriodicAction) -> periodic::Command {
    match ask {
        PeriodicAction::Pause => periodic::Command::Pause,
        PeriodicAction::Resume => periodic::Command::Resume,
        PeriodicAction::Launch => periodic::Command::Launch,
        PeriodicAction::Remove => periodic::Command::Remove,
    }
}

fn report_command(report: &Report) -> AggregateCommand {
    match report {
        Report::Lrp { process_guid, report } => {
            let command = process::Command::Report(report.clone());
            AggregateCommand::Process(Order::new(process_guid.clone(), command))
        }
        Report::Task { task_guid, report } => {
            AggregateCommand::Task(Order::new(task_guid.clone(), task::Command::Report(report.clone())))
        }
    }
}
