//! Commands of a client. The BBS answers a command after recording the result in the log.

use std::sync::Arc;
use std::time::Duration;

use schemas::codec::{self, Form};
use schemas::definition::{
    Definition, DesiredLrp, DesiredLrpUpdate, DesiredParameterised, DesiredPeriodic, DesiredTask, Mode,
};
use schemas::limits::DURATION_MS;
use schemas::message::{Ack, CellCommand, Envelope, QuarantineEntry, Request, Reshard, SwitchPreemption};
use schemas::names::{
    CellId, DefinitionId, EvaluationId, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid,
};
use schemas::parameterised::Dispatch;
use schemas::process::{Purpose, RolloutControl};
use schemas::quota::LimitDomain;
use schemas::spec::{self, ClientCommand, Item, PeriodicAction, own_definition_id};
use schemas::verb::OperatorVerb;
use schemas::{BadField, Code, Position, Refusal, cell};
use serde::Serialize;
use serde_json::Value;

use crate::client::Client;
use crate::error::Error;
use crate::subjects;

impl Client {
    /// Desires a process: the cluster starts its instances. Refused with `ResourceExists` if the process is
    /// desired already.
    ///
    /// # Errors
    /// See [`Error`], which applies to every command below. If an object does not exist, the error is
    /// `Refused` with `ResourceNotFound`.
    pub async fn desire_lrp(&self, lrp: DesiredLrp) -> Result<Ack, Error> {
        self.send(&ClientCommand::LrpDesire(Box::new(lrp))).await
    }

    /// Changes the scale, routes or annotation of a process. No instance is restarted.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn update_lrp(&self, guid: ProcessGuid, update: DesiredLrpUpdate) -> Result<Ack, Error> {
        self.send(&ClientCommand::LrpUpdate { process_guid: guid, update, definition: None }).await
    }

    /// Changes the definition of a process, and the properties in `update`. A rollout replaces the instances
    /// one by one. It does not replace instances that already run the new definition.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`]; `ResourceExists` if the id names another definition.
    pub async fn deploy_lrp(
        &self,
        guid: ProcessGuid,
        update: DesiredLrpUpdate,
        id: DefinitionId,
        definition: Arc<Definition>,
    ) -> Result<Ack, Error> {
        let definition = Some((id, definition));
        self.send(&ClientCommand::LrpUpdate { process_guid: guid, update, definition }).await
    }

    /// Activates one of the definitions of a process. Every instance will run the activated definition.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`]; `ResourceNotFound` if the process does not have the definition.
    pub async fn activate_lrp(&self, guid: ProcessGuid, definition_id: DefinitionId) -> Result<Ack, Error> {
        self.send(&ClientCommand::LrpActivate { process_guid: guid, definition_id }).await
    }

    /// Replaces every instance of a process by a new instance with the same definition, according to the
    /// update policy. The log records `purpose` with the rollout.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn restart_lrp(&self, guid: ProcessGuid, purpose: Purpose) -> Result<Ack, Error> {
        self.send(&ClientCommand::LrpRestart { process_guid: guid, purpose }).await
    }

    /// Pauses, resumes or rolls back the rollout of a process.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`]; `InvalidStateTransition` if no rollout is under way or there is nothing to
    /// roll back to.
    pub async fn steer_lrp(&self, guid: ProcessGuid, steer: RolloutControl) -> Result<Ack, Error> {
        self.send(&ClientCommand::LrpSteer { process_guid: guid, steer }).await
    }

    /// Desires a process. If the process is desired already, updates it instead: see [`Client::replace_lrp`].
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn publish_lrp(&self, lrp: DesiredLrp) -> Result<Ack, Error> {
        let lrp = self.seal_lrp(lrp).await?;
        let id = own_definition_id(&lrp);
        self.publish_lrp_as(lrp, id).await
    }

    /// Desires a process like [`Client::publish_lrp`]. If the process is desired already, its new definition
    /// gets this id.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`]; `ResourceExists` if the id names another definition.
    pub async fn publish_lrp_as(&self, lrp: DesiredLrp, id: DefinitionId) -> Result<Ack, Error> {
        let lrp = self.seal_lrp(lrp).await?;
        match self.desire_lrp(lrp.clone()).await {
            // A request id of the caller may belong to an earlier update. In this case, request the update
            // again.
            Err(error) if matches!(error.code(), Some(Code::ResourceExists | Code::RequestIdReused)) => {
                let known = self.lrp(&lrp.process_guid).await?.row;
                check_mode(&lrp, known.mode)?;
                let update = lrp.to_update();
                self.in_domain(lrp.domain).deploy_lrp(lrp.process_guid, update, id, lrp.definition).await
            }
            answer => answer,
        }
    }

    /// Updates a process to the given spec. Scale, routes, annotation and policies change immediately. A
    /// rollout changes the definition. A repeated call changes nothing. [`own_definition_id`] determines the
    /// id of the definition.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn replace_lrp(&self, lrp: DesiredLrp) -> Result<Ack, Error> {
        let lrp = self.seal_lrp(lrp).await?;
        let id = own_definition_id(&lrp);
        let update = lrp.to_update();
        self.in_domain(lrp.domain).deploy_lrp(lrp.process_guid, update, id, lrp.definition).await
    }

    /// Removes a process. Its instances are stopped.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn remove_lrp(&self, guid: ProcessGuid) -> Result<Ack, Error> {
        self.send(&ClientCommand::LrpRemove { process_guid: guid }).await
    }

    /// Stops one instance. If there are several instances at the index, `definition_id` selects one of them;
    /// `None` selects the instance with the active definition. The cluster restarts the instance if it is
    /// still desired.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn retire_lrp(
        &self,
        guid: ProcessGuid,
        index: u32,
        definition_id: Option<DefinitionId>,
    ) -> Result<Ack, Error> {
        self.send(&ClientCommand::LrpRetire { process_guid: guid, index, definition_id }).await
    }

    /// Retries an evaluation of a process immediately. The evaluation must be waiting, blocked or failed.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn retry_lrp(&self, guid: ProcessGuid, evaluation: EvaluationId) -> Result<Ack, Error> {
        self.send(&ClientCommand::LrpRetry { process_guid: guid, evaluation }).await
    }

    /// Retries an evaluation of a task immediately. The evaluation must be waiting, blocked or failed.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn retry_task(&self, guid: TaskGuid, evaluation: EvaluationId) -> Result<Ack, Error> {
        self.send(&ClientCommand::TaskRetry { task_guid: guid, evaluation }).await
    }

    /// Desires a task. A task runs once.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn desire_task(&self, task: DesiredTask) -> Result<Ack, Error> {
        self.send(&ClientCommand::TaskDesire(Box::new(task))).await
    }

    /// Cancels a task. The result of the task is a failure.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn cancel_task(&self, guid: TaskGuid) -> Result<Ack, Error> {
        self.send(&ClientCommand::TaskCancel { task_guid: guid }).await
    }

    /// Acknowledges the outcome of a completed task. The BBS deletes the task.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn resolve_task(&self, guid: TaskGuid) -> Result<Ack, Error> {
        self.send(&ClientCommand::TaskResolve { task_guid: guid }).await
    }

    /// Desires a periodic task. A periodic task launches tasks on a schedule.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn desire_periodic(&self, periodic: DesiredPeriodic) -> Result<Ack, Error> {
        self.send(&ClientCommand::PeriodicDesire(Box::new(periodic))).await
    }

    /// Updates a periodic task from its next launch on. A launch that was due before the update uses the old
    /// definition.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn update_periodic(&self, periodic: DesiredPeriodic) -> Result<Ack, Error> {
        self.send(&ClientCommand::PeriodicUpdate(Box::new(periodic))).await
    }

    /// Pauses or resumes a periodic task, launches a task immediately, or removes the periodic task.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`]; `ResourceExists` for a second launch in the same second.
    pub async fn command_periodic(&self, guid: PeriodicGuid, ask: PeriodicAction) -> Result<Ack, Error> {
        self.send(&ClientCommand::PeriodicAction { periodic_guid: guid, ask }).await
    }

    /// Desires a parameterised task. Each dispatch of the parameterised task creates a task.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn desire_parameterised(&self, desired: DesiredParameterised) -> Result<Ack, Error> {
        self.send(&ClientCommand::ParameterisedDesire(Box::new(desired))).await
    }

    /// Updates a parameterised task from its next dispatch on.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn update_parameterised(&self, desired: DesiredParameterised) -> Result<Ack, Error> {
        self.send(&ClientCommand::ParameterisedUpdate(Box::new(desired))).await
    }

    /// Dispatches a parameterised task. The version in the answer is the number of the dispatch. The name of
    /// the created task contains this number ([`ParameterisedGuid::dispatched_task_guid`]). If the key was
    /// used before, the answer contains the number of the first dispatch with this key, and no task is
    /// created.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`]; `RequestIdReused` if the key was used with another content, `Overloaded`
    /// if the maximum number of running, waiting or remembered dispatches is reached.
    pub async fn dispatch(&self, guid: ParameterisedGuid, dispatch: Dispatch) -> Result<Ack, Error> {
        let dispatch = Box::new(dispatch);
        self.send(&ClientCommand::ParameterisedDispatch { parameterised_guid: guid, dispatch }).await
    }

    /// Withdraws a waiting dispatch by its number.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`]; `ResourceNotFound` if no waiting dispatch has this number.
    pub async fn withdraw_dispatch(&self, guid: ParameterisedGuid, number: u64) -> Result<Ack, Error> {
        self.send(&ClientCommand::ParameterisedWithdraw { parameterised_guid: guid, number }).await
    }

    /// Removes a parameterised task. Running tasks continue to run. Waiting dispatches are withdrawn.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn remove_parameterised(&self, guid: ParameterisedGuid) -> Result<Ack, Error> {
        self.send(&ClientCommand::ParameterisedRemove { parameterised_guid: guid }).await
    }

    /// Marks this client's domain as up to date for `ttl` from now on. `None` marks the domain for ever. The
    /// cluster stops undesired instances only while their domain is up to date.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn refresh_domain(&self, ttl: Option<Duration>) -> Result<Ack, Error> {
        let ttl_ms = ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        self.send(&ClientCommand::DomainUpsert { domain: self.domain.clone(), ttl_ms }).await
    }

    /// Sends a command about a cell, as an operator of the cluster. The BBS answers before the rep (the agent
    /// of the cell) carries out the command. The BBS repeats orders to the rep as often as necessary.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn command_cell(&self, id: &CellId, command: cell::Command) -> Result<Ack, Error> {
        let request = Request { envelope: self.envelope(), body: CellCommand { cell_id: id.clone() } };
        self.request_command(&subjects::operator(&self.name, command.verb()), &request).await
    }

    /// Makes the rep of a cell forget the terms and positions that it knows, and continue with the current
    /// log. After a restore, the rep may know later terms and positions than the log contains. Such a rep
    /// obeys no leader. Only operators may call this method.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn accept_log(&self, id: &CellId) -> Result<Ack, Error> {
        let request = Request { envelope: self.envelope(), body: CellCommand { cell_id: id.clone() } };
        self.request_command(&subjects::operator(&self.name, OperatorVerb::CellAcceptLog), &request).await
    }

    /// Switches preemption on or off for the cluster. With preemption, the cluster may stop instances of a
    /// lower priority to free resources for waiting instances. Only operators may call this method.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn switch_preemption(&self, enabled: bool) -> Result<Ack, Error> {
        let request = Request { envelope: self.envelope(), body: SwitchPreemption { enabled } };
        self.request_command(&subjects::operator(&self.name, OperatorVerb::ClusterPreemption), &request).await
    }

    /// Changes the number of shards of the log, 1 to 1,024. The number of shards limits how many entries
    /// about processes are written at the same time. The same limit applies to entries about tasks. Commands
    /// continue during the change. Only operators may call this method.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn reshard(&self, shards: u16) -> Result<Ack, Error> {
        let request = Request { envelope: self.envelope(), body: Reshard { shards } };
        self.request_command(&subjects::operator(&self.name, OperatorVerb::ClusterShards), &request).await
    }

    /// Changes quotas of a domain. Only operators may call this method.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn limit_domain(&self, order: &LimitDomain) -> Result<Ack, Error> {
        let request = Request { envelope: self.envelope(), body: order.clone() };
        self.request_command(&subjects::operator(&self.name, OperatorVerb::DomainLimit), &request).await
    }

    /// Quarantines a position of the journal, for the reason of this client ([`Client::with_reason`]). The
    /// BBS refuses to quarantine an entry that a BBS of the cluster can read. Only operators may call this
    /// method.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn quarantine(&self, position: Position) -> Result<Ack, Error> {
        let request = Request { envelope: self.envelope(), body: QuarantineEntry { position } };
        self.request_command(&subjects::operator(&self.name, OperatorVerb::JournalQuarantine), &request).await
    }

    /// Seals the secrets of a spec, and changes nothing else. Callers use the sealed spec to compare a spec
    /// with an existing one, and to name a definition after its content. Commands need no call of this
    /// method, because their open secrets are sealed before they reach the log. Sealing the same secret of
    /// the same object with the same key returns the same bytes.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`]; `InvalidRequest` if no key is configured.
    pub async fn seal(&self, item: Item) -> Result<Item, Error> {
        if !item.has_open_secrets() {
            return Ok(item);
        }
        let subject = subjects::seal(item.domain(), &self.name);
        let request = Request { envelope: Envelope::default(), body: spec::item_to_json(&item) };
        let sealed: Value = self.line.request(&subject, &request, self.patience).await?;
        spec::item(sealed).map_err(|refusal| Error::Protocol { subject, why: refusal.message })
    }

    /// Seals the secrets of a process. See [`Client::seal`].
    ///
    /// # Errors
    /// See [`Client::seal`].
    pub async fn seal_lrp(&self, lrp: DesiredLrp) -> Result<DesiredLrp, Error> {
        match self.seal(Item::Lrp(Box::new(lrp))).await? {
            Item::Lrp(lrp) => Ok(*lrp),
            other @ (Item::Task(_) | Item::Periodic(_) | Item::Parameterised(_) | Item::Domain { .. }) => {
                let subject = subjects::seal(other.domain(), &self.name);
                Err(Error::Protocol { subject, why: "expected a process".to_owned() })
            }
        }
    }

    /// Sends a command. If the command names a domain, the caller is a client of that domain.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn send(&self, command: &ClientCommand) -> Result<Ack, Error> {
        let subject = subjects::command(command.domain().unwrap_or(&self.domain), &self.name, command);
        let request = Request { envelope: self.envelope(), body: command.body() };
        self.request_command(&subject, &request).await
    }

    async fn request_command<T: Serialize>(&self, subject: &str, request: &Request<T>) -> Result<Ack, Error> {
        let Ok(_turn) = self.line.command_permits.acquire().await else {
            let why = "this client was closed".to_owned();
            return Err(Error::Unreachable(why));
        };
        let with_patience = |left: Duration| {
            let timeout_ms = Some(u64::try_from(left.as_millis()).unwrap_or(u64::MAX).min(DURATION_MS));
            let envelope = Envelope { timeout_ms, ..request.envelope.clone() };
            codec::encode(Form::Json, &Request { envelope, body: &request.body })
        };
        let done: Ack = self.line.request_with(subject, with_patience, self.patience).await?;
        self.line.record_position(done.position);
        Ok(done)
    }
}

/// Returns the refusal that the BBS would return for an invalid name.
#[must_use]
pub fn invalid_name(field: &str, problem: &schemas::names::BadName) -> Refusal {
    Refusal::invalid(vec![BadField { field: field.to_owned(), problem: problem.to_string() }])
}

/// Checks that a spec does not change the mode of a process. `known` is the current mode of the process;
/// `None` if the process is not desired.
///
/// # Errors
/// Returns `ResourceConflict` if the spec has another mode.
pub fn check_mode(lrp: &DesiredLrp, known: Option<Mode>) -> Result<(), Error> {
    let word = |mode| match mode {
        Mode::Replicated => "replicated",
        Mode::Global => "global",
    };
    match known.filter(|known| *known != lrp.mode) {
        None => Ok(()),
        Some(known) => {
            let (known, wanted) = (word(known), word(lrp.mode));
            let why = format!(
                "cannot change process {} from {known} to {wanted}: remove it and desire it again",
                lrp.process_guid
            );
            Err(Refusal::new(Code::ResourceConflict, why).into())
        }
    }
}
