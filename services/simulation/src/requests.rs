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
    Unanswered,
    Done(Ack),
    /// Another copy of the command may be carried out nevertheless.
    Refused(Code),
}

/// Request with its answer.
#[derive(Clone, Debug)]
pub struct Request {
    pub command: ClientCommand,
    pub answer: Response,
    /// Number of copies that were sent.
    pub copies: u32,
}

/// Requests of a run.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    all: BTreeMap<RequestId, Request>,
    requests: u64,
}

impl Requests {
    /// Creates a request with a new request id.
    pub fn create(
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
        self.all.insert(request.id(), Request { command, answer: Response::Unanswered, copies: 0 });
        request
    }

    /// Counts a copy of a request.
    pub fn count_copy(&mut self, request: &ClientRequest) {
        if let Some(asked) = self.all.get_mut(&request.id()) {
            asked.copies += 1;
        }
    }

    /// Records an answer.
    pub fn record_answer(&mut self, request: &ClientRequest, answer: Response) {
        if let Some(asked) = self.all.get_mut(&request.id()) {
            asked.answer = answer;
        }
    }

    /// Returns the id of the last request.
    #[must_use]
    pub fn latest(&self) -> Option<RequestId> {
        RequestId::new(&format!("r{}", self.requests)).ok()
    }

    /// Returns the answer to a request.
    #[must_use]
    pub fn answer_to(&self, request: &RequestId) -> Option<Response> {
        self.all.get(request).map(|asked| asked.answer)
    }

    /// Returns `true` if a command scales a global process, which the BBS refuses.
    #[must_use]
    pub fn scales_global(&self, command: &ClientCommand) -> bool {
        let ClientCommand::LrpUpdate { process_guid, update, .. } = command else { return false };
        let is_global = |asked: &Request| {
            let ClientCommand::LrpDesire(lrp) = &asked.command else { return false };
            lrp.mode == Mode::Global && lrp.process_guid == *process_guid
        };
        update.instances.is_some() && self.all.values().any(is_global)
    }

    /// Returns all requests.
    pub fn all(&self) -> impl Iterator<Item = (&RequestId, &Request)> {
        self.all.iter()
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
        if let ClientCommand::LrpDesire(lrp) = command {
            let instances = (lrp.mode == Mode::Replicated).then_some(lrp.instances);
            lrps.insert(lrp.process_guid.clone(), instances);
        }
        if let ClientCommand::LrpUpdate { process_guid, update, .. } = command
            && let Some((count, wanted)) = lrps.get_mut(process_guid).zip(update.instances)
        {
            *count = Some(wanted);
        }
        if let ClientCommand::LrpRemove { process_guid } = command {
            lrps.remove(process_guid);
        }
    }
    lrps
}
