//! Commands: what a client asks to be done. Each is answered when it is in the log.

use std::sync::Arc;
use std::time::Duration;

use schemas::bus::OperatorVerb;
use schemas::codec::{self, Form};
use schemas::definition::{
    Definition, DesiredLrp, DesiredLrpUpdate, DesiredParameterised, DesiredPeriodic, DesiredTask, Mode,
};
use schemas::limits::DURATION_MS;
use schemas::message::{Done, Envelope, OfCell, Request, Reshard, SetAside, SwitchPreemption};
use schemas::names::{
    CellId, DefinitionId, EvaluationId, ParameterisedGuid, PeriodicGuid, ProcessGuid, TaskGuid,
};
use schemas::parameterised::Dispatch;
use schemas::process::{Purpose, Steer};
use schemas::quota::LimitDomain;
use schemas::spec::{self, ClientCommand, Item, PeriodicAsk, own_definition_id};
use schemas::{BadField, Code, Position, Refusal, cell};
use serde::Serialize;
use serde_json::Value;

use crate::client::Client;
use crate::error::Error;
use crate::subjects;

impl Client {
    /// Desires a process: it shall run. Refused with `ResourceExists` if it is desired already.
    ///
    /// # Errors
    /// See [`Error`]; so for every command below. What doesn't exist is `Refused` with `ResourceNotFound`.
    pub async fn desire_lrp(&self, lrp: DesiredLrp) -> Result<Done, Error> {
        self.send(&ClientCommand::LrpDesire(Box::new(lrp))).await
    }

    /// Changes the scale, routes or annotation of a process, and restarts nothing.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn update_lrp(&self, guid: ProcessGuid, update: DesiredLrpUpdate) -> Result<Done, Error> {
        self.send(&ClientCommand::LrpUpdate { process_guid: guid, update, definition: None }).await
    }

    /// Changes what every instance of a process shall run, and what else is given: a rollout replaces them one by one. What
    /// runs that definition already isn't replaced.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`]; `ResourceExists` if the id names another definition.
    pub async fn deploy_lrp(
        &self,
        guid: ProcessGuid,
        update: DesiredLrpUpdate,
        id: DefinitionId,
        definition: Arc<Definition>,
    ) -> Result<Done, Error> {
        let definition = Some((id, definition));
        self.send(&ClientCommand::LrpUpdate { process_guid: guid, update, definition }).await
    }

    /// Has every instance of a process run a definition that it has.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`]; `ResourceNotFound` if it doesn't have that definition.
    pub async fn activate_lrp(&self, guid: ProcessGuid, definition_id: DefinitionId) -> Result<Done, Error> {
        self.send(&ClientCommand::LrpActivate { process_guid: guid, definition_id }).await
    }

    /// Replaces every instance of a process by one that runs the same, as its update policy says. The rollout says what for.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn restart_lrp(&self, guid: ProcessGuid, purpose: Purpose) -> Result<Done, Error> {
        self.send(&ClientCommand::LrpRestart { process_guid: guid, purpose }).await
    }

    /// Pauses the rollout of a process, resumes it, or rolls it back.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`]; `InvalidStateTransition` if no rollout is under way, or there is nothing to go back to.
    pub async fn steer_lrp(&self, guid: ProcessGuid, steer: Steer) -> Result<Done, Error> {
        self.send(&ClientCommand::LrpSteer { process_guid: guid, steer }).await
    }

    /// Desires a process or, if it is desired already, makes it what is given: see [`Client::replace_lrp`].
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn publish_lrp(&self, lrp: DesiredLrp) -> Result<Done, Error> {
        let lrp = self.sealed_lrp(lrp).await?;
        let id = own_definition_id(&lrp);
        self.publish_lrp_as(lrp, id).await
    }

    /// The same with this id for its definition, if the process is desired already.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`]; `ResourceExists` if the id names another definition.
    pub async fn publish_lrp_as(&self, lrp: DesiredLrp, id: DefinitionId) -> Result<Done, Error> {
        let lrp = self.sealed_lrp(lrp).await?;
        match self.desire_lrp(lrp.clone()).await {
            // A request id of the caller's may have been carried out as a change: then it is asked again as that.
            Err(error) if matches!(error.code(), Some(Code::ResourceExists | Code::RequestIdReused)) => {
                let known = self.lrp(&lrp.process_guid).await?.row;
                check_mode(&lrp, known.mode)?;
                let update = lrp.to_update();
                self.in_domain(lrp.domain).deploy_lrp(lrp.process_guid, update, id, lrp.definition).await
            }
            answer => answer,
        }
    }

    /// Makes a process what is given: its scale, routes, annotation and policies at once, its definition by a rollout. The
    /// same again changes nothing. Its definition is called as [`own_definition_id`] says.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn replace_lrp(&self, lrp: DesiredLrp) -> Result<Done, Error> {
        let lrp = self.sealed_lrp(lrp).await?;
        let id = own_definition_id(&lrp);
        let update = lrp.to_update();
        self.in_domain(lrp.domain).deploy_lrp(lrp.process_guid, update, id, lrp.definition).await
    }

    /// Ends the desire for a process: its instances are stopped.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn remove_lrp(&self, guid: ProcessGuid) -> Result<Done, Error> {
        self.send(&ClientCommand::LrpRemove { process_guid: guid }).await
    }

    /// Stops one instance: that of a definition or, if there are several at the index and none is named, that of the
    /// active one. If it is still desired it is started again.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn retire_lrp(
        &self,
        guid: ProcessGuid,
        index: u32,
        definition_id: Option<DefinitionId>,
    ) -> Result<Done, Error> {
        self.send(&ClientCommand::LrpRetire { process_guid: guid, index, definition_id }).await
    }

    /// Has one of a process's evaluations tried again now: one that waits, is blocked, or failed.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn retry_lrp(&self, guid: ProcessGuid, evaluation: EvaluationId) -> Result<Done, Error> {
        self.send(&ClientCommand::LrpRetry { process_guid: guid, evaluation }).await
    }

    /// The same of a task.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn retry_task(&self, guid: TaskGuid, evaluation: EvaluationId) -> Result<Done, Error> {
        self.send(&ClientCommand::TaskRetry { task_guid: guid, evaluation }).await
    }

    /// Desires a task: it shall run once.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn desire_task(&self, task: DesiredTask) -> Result<Done, Error> {
        self.send(&ClientCommand::TaskDesire(Box::new(task))).await
    }

    /// Cancels a task: it ends as failed.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn cancel_task(&self, guid: TaskGuid) -> Result<Done, Error> {
        self.send(&ClientCommand::TaskCancel { task_guid: guid }).await
    }

    /// Says that a completed task's outcome was taken note of: it is deleted.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn resolve_task(&self, guid: TaskGuid) -> Result<Done, Error> {
        self.send(&ClientCommand::TaskResolve { task_guid: guid }).await
    }

    /// Desires a periodic task: it launches tasks as its schedule says.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn desire_periodic(&self, periodic: DesiredPeriodic) -> Result<Done, Error> {
        self.send(&ClientCommand::PeriodicDesire(Box::new(periodic))).await
    }

    /// Makes a periodic task what is given, from its next launch on. What was due before is launched as it was.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn update_periodic(&self, periodic: DesiredPeriodic) -> Result<Done, Error> {
        self.send(&ClientCommand::PeriodicUpdate(Box::new(periodic))).await
    }

    /// Pauses a periodic task, resumes it, has it launch a task now, or removes it.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`]; `ResourceExists` for a second launch in the same second.
    pub async fn ask_periodic(&self, guid: PeriodicGuid, ask: PeriodicAsk) -> Result<Done, Error> {
        self.send(&ClientCommand::PeriodicAsk { periodic_guid: guid, ask }).await
    }

    /// Desires a parameterised task: each dispatch makes a task of it.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn desire_parameterised(&self, desired: DesiredParameterised) -> Result<Done, Error> {
        self.send(&ClientCommand::ParameterisedDesire(Box::new(desired))).await
    }

    /// Makes a parameterised task what is given, from its next dispatch on.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn update_parameterised(&self, desired: DesiredParameterised) -> Result<Done, Error> {
        self.send(&ClientCommand::ParameterisedUpdate(Box::new(desired))).await
    }

    /// Dispatches a parameterised task. The version of the answer is the number of the dispatch, after which its task is
    /// named ([`ParameterisedGuid::dispatch`]); with a key that is known it is the number of the first one, and nothing
    /// is made.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`]; `RequestIdReused` for a key that came with something else, `Overloaded` if as many
    /// run, wait or have keys as may.
    pub async fn dispatch(&self, guid: ParameterisedGuid, dispatch: Dispatch) -> Result<Done, Error> {
        let dispatch = Box::new(dispatch);
        self.send(&ClientCommand::ParameterisedDispatch { parameterised_guid: guid, dispatch }).await
    }

    /// Withdraws a dispatch that waits, by its number.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`]; `ResourceNotFound` if none of that number waits.
    pub async fn withdraw_dispatch(&self, guid: ParameterisedGuid, number: u64) -> Result<Done, Error> {
        self.send(&ClientCommand::ParameterisedWithdraw { parameterised_guid: guid, number }).await
    }

    /// Removes a parameterised task. What it launched runs on, what waits is withdrawn.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn remove_parameterised(&self, guid: ParameterisedGuid) -> Result<Done, Error> {
        self.send(&ClientCommand::ParameterisedRemove { parameterised_guid: guid }).await
    }

    /// Says that what is desired in this client's domain is up to date, for `ttl` from now or for ever: only then is
    /// stopped what nobody desires.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn refresh_domain(&self, ttl: Option<Duration>) -> Result<Done, Error> {
        let ttl_ms = ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        self.send(&ClientCommand::DomainUpsert { domain: self.domain.clone(), ttl_ms }).await
    }

    /// Asks something of a cell, as an operator of the cluster: to evacuate it, to take that back, to forget it. Reps act
    /// on it after that, as often as it takes.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn command_cell(&self, id: &CellId, command: cell::Command) -> Result<Done, Error> {
        let request = Request { envelope: self.envelope(), body: OfCell { cell_id: id.clone() } };
        self.ask_for(&subjects::operator(&self.name, command.verb()), &request).await
    }

    /// Has the rep of a cell forget the terms and positions that it knows, and go on with the log as it is now: behind a restore it
    /// may know later ones than the log, and obeys no leader. Operators may do so.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn accept_log(&self, id: &CellId) -> Result<Done, Error> {
        let request = Request { envelope: self.envelope(), body: OfCell { cell_id: id.clone() } };
        self.ask_for(&subjects::operator(&self.name, OperatorVerb::CellAcceptLog), &request).await
    }

    /// Switches preemption on or off for the cluster: whether what is less urgent may be stopped, so that what waits has room.
    /// Operators may do so.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn switch_preemption(&self, on: bool) -> Result<Done, Error> {
        let request = Request { envelope: self.envelope(), body: SwitchPreemption { on } };
        self.ask_for(&subjects::operator(&self.name, OperatorVerb::ClusterPreemption), &request).await
    }

    /// Changes the number of shards of the log, 1 to 1,024: as many entries of processes, and of tasks, are written at the same time. Commands
    /// continue during the change. Only operators may do that.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn reshard(&self, shards: u16) -> Result<Done, Error> {
        let request = Request { envelope: self.envelope(), body: Reshard { shards } };
        self.ask_for(&subjects::operator(&self.name, OperatorVerb::ClusterShards), &request).await
    }

    /// Changes quotas of a domain. Only operators may do that.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn limit_domain(&self, order: &LimitDomain) -> Result<Done, Error> {
        let request = Request { envelope: self.envelope(), body: order.clone() };
        self.ask_for(&subjects::operator(&self.name, OperatorVerb::DomainLimit), &request).await
    }

    /// Records that what stands at a position of the journal does not count, for the reason that this client gives
    /// ([`Client::because`]). Only what no BBS there can read is set aside. Operators may do so.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn set_aside(&self, position: Position) -> Result<Done, Error> {
        let request = Request { envelope: self.envelope(), body: SetAside { position } };
        self.ask_for(&subjects::operator(&self.name, OperatorVerb::JournalSetAside), &request).await
    }

    /// Has the secrets of something sealed, and changes nothing else. Commands may hold secrets as they are, and are sealed on
    /// their way; this is for who compares with what is there, or names a definition after its content. As long as no other
    /// key seals, the same secret of the same thing is sealed to the same bytes.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`]; `InvalidRequest` if there is no key.
    pub async fn sealed(&self, item: Item) -> Result<Item, Error> {
        if !item.has_open_secrets() {
            return Ok(item);
        }
        let subject = subjects::seal(item.domain(), &self.name);
        let request = Request { envelope: Envelope::default(), body: spec::item_to_json(&item) };
        let sealed: Value = self.line.ask(&subject, &request, self.patience).await?;
        spec::item(sealed).map_err(|refusal| Error::Protocol { subject, why: refusal.message })
    }

    /// The same of a process.
    ///
    /// # Errors
    /// See [`Client::sealed`].
    pub async fn sealed_lrp(&self, lrp: DesiredLrp) -> Result<DesiredLrp, Error> {
        match self.sealed(Item::Lrp(Box::new(lrp))).await? {
            Item::Lrp(lrp) => Ok(*lrp),
            other @ (Item::Task(_) | Item::Periodic(_) | Item::Parameterised(_) | Item::Domain { .. }) => {
                let subject = subjects::seal(other.domain(), &self.name);
                Err(Error::Protocol { subject, why: "a process was asked for".to_owned() })
            }
        }
    }

    /// Sends a command. What names its own domain is sent as a client of that domain.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`].
    pub async fn send(&self, command: &ClientCommand) -> Result<Done, Error> {
        let subject = subjects::command(command.domain().unwrap_or(&self.domain), &self.name, command);
        let request = Request { envelope: self.envelope(), body: command.body() };
        self.ask_for(&subject, &request).await
    }

    async fn ask_for<T: Serialize>(&self, subject: &str, request: &Request<T>) -> Result<Done, Error> {
        let Ok(_turn) = self.line.room.acquire().await else {
            let why = "this client was closed".to_owned();
            return Err(Error::Unreachable(why));
        };
        let with_patience = |left: Duration| {
            let patience_ms = Some(u64::try_from(left.as_millis()).unwrap_or(u64::MAX).min(DURATION_MS));
            let envelope = Envelope { patience_ms, ..request.envelope.clone() };
            codec::encode(Form::Json, &Request { envelope, body: &request.body })
        };
        let done: Done = self.line.ask_with(subject, with_patience, self.patience).await?;
        self.line.note(done.position);
        Ok(done)
    }
}

/// A refusal of text that is not a name, as the BBS would give it.
#[must_use]
pub fn bad_name(field: &str, problem: &schemas::names::BadName) -> Refusal {
    Refusal::invalid(vec![BadField { field: field.to_owned(), problem: problem.to_string() }])
}

/// That a process keeps its mode as long as it is desired: `known` is the one that it has, if it is desired.
///
/// # Errors
/// `ResourceConflict` if another one is asked for.
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
                "process {} is {known} and can't become {wanted}: remove it and desire it anew",
                lrp.process_guid
            );
            Err(Refusal::new(Code::ResourceConflict, why).into())
        }
    }
}
