//! What clients ask, as their commands; and what they were told. A client asks with one request id until it is answered.

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::Timestamp;
use schemas::definition::Mode;
use schemas::message::{Ack, Envelope};
use schemas::names::{Domain, ProcessGuid, RequestId};
use schemas::refusal::Code;
use schemas::spec::ClientCommand;

/// A command that a client wants carried out.
#[derive(Clone, Debug)]
pub struct ClientRequest {
    /// The domain that its subject proves.
    pub domain: Domain,
    /// What is around it.
    pub envelope: Envelope,
    /// The command.
    pub command: ClientCommand,
    /// Until when its client waits for the answer, by the true time.
    pub until: Timestamp,
    /// How often it was asked.
    pub tries: u32,
}

impl ClientRequest {
    /// Its request id: every client gives one.
    #[must_use]
    pub fn id(&self) -> RequestId {
        self.envelope.request_id.clone().expect("every client gives one")
    }
}

/// What became of a request, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// It was never answered.
    Nothing,
    /// It was carried out.
    Done(Ack),
    /// It was refused. Another copy of it may be carried out all the same.
    Refused(Code),
}

/// A request, what became of it, and how many copies of it were sent.
#[derive(Clone, Debug)]
pub struct Asked {
    /// What was asked.
    pub command: ClientCommand,
    /// What its client was told.
    pub told: Response,
    /// How many copies were on their way.
    pub copies: u32,
}

impl Asked {
    /// Of which process it says how many instances shall run, and how many.
    #[must_use]
    pub fn wants(&self) -> Option<(&ProcessGuid, u32)> {
        match &self.command {
            ClientCommand::LrpDesire(lrp) => {
                // Its indices are those of the cells.
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

/// What the clients want, and what they were told.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    asked: BTreeMap<RequestId, Asked>,
    requests: u64,
}

impl Wanted {
    /// A request with a request id of its own and a patience, as the client crate makes it.
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

    /// A copy of a request is on its way.
    pub fn copied(&mut self, request: &ClientRequest) {
        if let Some(asked) = self.asked.get_mut(&request.id()) {
            asked.copies += 1;
        }
    }

    /// A client was told what became of its request.
    pub fn told(&mut self, request: &ClientRequest, told: Response) {
        if let Some(asked) = self.asked.get_mut(&request.id()) {
            asked.told = told;
        }
    }

    /// The last request so far.
    #[must_use]
    pub fn latest(&self) -> Option<RequestId> {
        RequestId::new(&format!("r{}", self.requests)).ok()
    }

    /// What a client knows of its request.
    #[must_use]
    pub fn known_of(&self, request: &RequestId) -> Option<Response> {
        self.asked.get(request).map(|asked| asked.told)
    }

    /// Whether an update of a process is to be refused: one that scales what was desired on each cell.
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

    /// Everything that was ever asked.
    pub fn asked(&self) -> impl Iterator<Item = (&RequestId, &Asked)> {
        self.asked.iter()
    }
}

/// Instances of each process that has to be desired, after these commands in their order; none: one on each cell that fits.
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
