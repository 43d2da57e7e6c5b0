//! Commands of clients, and their answers. A client repeats a command with one request id until it is
//! answered.

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::Timestamp;
use schemas::definition::Mode;
use schemas::message::{Ack, Envelope};
use schemas::names::{Domain, ProcessGuid, RequestId};
use schemas::refusal::Code;
use schemas::spec::ClientCommand;

/// Command of a client on its way.
#[derive(Clone, Debug)]
pub struct ClientRequest {
    pub domain: Domain,
    pub envelope: Envelope,
    pub command: ClientCommand,
    /// True time until which the client waits.
    pub until: Timestamp,
    pub tries: u32,
}

impl ClientRequest {
    /// Returns the request id.
    #[must_use]
    pub fn id(&self) -> RequestId {
        self.envelope.request_id.clone().expect("every client gives one")
    }
}

/// Last answer to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    Nothing,
    Done(Ack),
    /// Another copy of the command may be carried out nevertheless.
    Refused(Code),
}

/// Request with its answer.
#[derive(Clone, Debug)]
pub struct Asked {
    pub command: ClientCommand,
    pub told: Response,
    /// Number of copies that were sent.
    pub copies: u32,
}

impl Asked {
    /// Returns the process whose number of instances the command sets, and the number.
    #[must_use]
    pub fn wants(&self) -> Option<(&ProcessGuid, u32)> {
        match &self.command {
            ClientCommand::LrpDesire(lrp) => {
                let all = if lrp.mode == Mode::Global { u32::MAX } else { lrp.instances };
                Some((&lrp.process_guid, all))
            }
            ClientCommand::LrpUpdate { process_guid, update, .. } => Some((process_guid, update.instances?)),
            ClientCommand::LrpRemove { process_guid } => Some((process_guid, 0)),
            ClientCommand::LrpRetire { .. }
            | ClientCommand::PeriodicDesire(_)
            | ClientCommand::PeriodicUpdate(_)
            | ClientCommand::PeriodicAction { .. }
            | ClientCommand::ParameterisedDesire(_)
            | ClientCommand::ParameterisedUpdate(_)
            | ClientCommand::ParameterisedDispatch { .. }
            | ClientCommand::ParameterisedWithdraw { .. }
            | ClientCommand::ParameterisedRemove { .. }
            | ClientCommand::LrpActivate { .. }
            | ClientCommand::LrpRestart { .. }
            | ClientCommand::LrpSteer { .. }
            | ClientCommand::LrpRetry { .. }
            | ClientCommand::InstanceExec { .. }
            | ClientCommand::TaskRetry { .. }
            | ClientCommand::DomainUpsert { .. }
            | ClientCommand::TaskDesire(_)
            | ClientCommand::TaskCancel { .. }
            | ClientCommand::TaskResolve { .. } => None,
        }
    }
}

/// Requests of a run.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    asked: BTreeMap<RequestId, Asked>,
    requests: u64,
}

impl Wanted {
    /// Creates a request with a new request id.
    pub fn around(
        &mut self,
        domain: Domain,
        command: ClientCommand,
        now: Timestamp,
        patience: Duration,
        expect_version: Option<u64>,
    ) -> ClientRequest {
        self.requests += 1;
        let request_id = RequestId::new(&format!("r{}", self.requests)).ok();
        let reason = Some(format!("because of request {}", self.requests));
        let envelope = Envelope { request_id, expect_version, reason, ..Envelope::default() };
        let request =
            ClientRequest { domain, envelope, command: command.clone(), until: now + patience, tries: 0 };
        self.asked.insert(request.id(), Asked { command, told: Response::Nothing, copies: 0 });
        request
    }

    /// Counts a copy of a request.
    pub fn copied(&mut self, request: &ClientRequest) {
        if let Some(asked) = self.asked.get_mut(&request.id()) {
            asked.copies += 1;
        }
    }

    /// Records an answer.
    pub fn told(&mut self, request: &ClientRequest, told: Response) {
        if let Some(asked) = self.asked.get_mut(&request.id()) {
            asked.told = told;
        }
    }

    /// Returns the id of the last request.
    #[must_use]
    pub fn latest(&self) -> Option<RequestId> {
        RequestId::new(&format!("r{}", self.requests)).ok()
    }

    /// Returns the answer to a request.
    #[must_use]
    pub fn known_of(&self, request: &RequestId) -> Option<Response> {
        self.asked.get(request).map(|asked| asked.told)
    }

    /// Returns `true` if a command scales a global process, which the BBS refuses.
    #[must_use]
    pub fn scales_global(&self, command: &ClientCommand) -> bool {
        let ClientCommand::LrpUpdate { process_guid, update, .. } = command else { return false };
        let is_global = |asked: &Asked| match &asked.command {
            ClientCommand::LrpDesire(lrp) => lrp.mode == Mode::Global && lrp.process_guid == *process_guid,
            ClientCommand::LrpUpdate { .. }
            | ClientCommand::PeriodicDesire(_)
            | ClientCommand::PeriodicUpdate(_)
            | ClientCommand::PeriodicAction { .. }
            | ClientCommand::ParameterisedDesire(_)
            | ClientCommand::ParameterisedUpdate(_)
            | ClientCommand::ParameterisedDispatch { .. }
            | ClientCommand::ParameterisedWithdraw { .. }
            | ClientCommand::ParameterisedRemove { .. }
            | ClientCommand::LrpRemove { .. }
            | ClientCommand::LrpRetire { .. }
            | ClientCommand::LrpActivate { .. }
            | ClientCommand::LrpRestart { .. }
            | ClientCommand::LrpSteer { .. }
            | ClientCommand::LrpRetry { .. }
            | ClientCommand::InstanceExec { .. }
            | ClientCommand::TaskRetry { .. }
            | ClientCommand::DomainUpsert { .. }
            | ClientCommand::TaskDesire(_)
            | ClientCommand::TaskCancel { .. }
            | ClientCommand::TaskResolve { .. } => false,
        };
        update.instances.is_some() && self.asked.values().any(is_global)
    }

    /// Returns all requests.
    pub fn asked(&self) -> impl Iterator<Item = (&RequestId, &Asked)> {
        self.asked.iter()
    }
}

/// Returns the desired processes after these commands in order, with their numbers of instances. `None` for a
/// global process.
#[must_use]
pub fn desired<'a>(
    carried_out: impl Iterator<Item = &'a ClientCommand>,
) -> BTreeMap<ProcessGuid, Option<u32>> {
    let mut lrps = BTreeMap::new();
    for command in carried_out {
        match command {
            ClientCommand::LrpDesire(lrp) => {
                let instances = (lrp.mode == Mode::Replicated).then_some(lrp.instances);
                lrps.insert(lrp.process_guid.clone(), instances);
            }
            ClientCommand::LrpUpdate { process_guid, update, .. } => {
                if let Some((count, wanted)) = lrps.get_mut(process_guid).zip(update.instances) {
                    *count = Some(wanted);
                }
            }
            ClientCommand::LrpRemove { process_guid } => {
                lrps.remove(process_guid);
            }
            ClientCommand::LrpRetire { .. }
            | ClientCommand::PeriodicDesire(_)
            | ClientCommand::PeriodicUpdate(_)
            | ClientCommand::PeriodicAction { .. }
            | ClientCommand::ParameterisedDesire(_)
            | ClientCommand::ParameterisedUpdate(_)
            | ClientCommand::ParameterisedDispatch { .. }
            | ClientCommand::ParameterisedWithdraw { .. }
            | ClientCommand::ParameterisedRemove { .. }
            | ClientCommand::LrpActivate { .. }
            | ClientCommand::LrpRestart { .. }
            | ClientCommand::LrpSteer { .. }
            | ClientCommand::LrpRetry { .. }
            | ClientCommand::InstanceExec { .. }
            | ClientCommand::TaskRetry { .. }
            | ClientCommand::DomainUpsert { .. }
            | ClientCommand::TaskDesire(_)
            | ClientCommand::TaskCancel { .. }
            | ClientCommand::TaskResolve { .. } => {}
        }
    }
    lrps
}
