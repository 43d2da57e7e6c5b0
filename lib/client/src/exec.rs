//! Programs that a client has run in containers, beside what their definitions run.

use std::time::Duration;

use bytes::Bytes;
use schemas::codec::{self, Form};
use schemas::exec::{Exec, Talk, Talked};
use schemas::names::{DefinitionId, ProcessGuid, RequestId};
use schemas::spec::ClientCommand;

use crate::client::Client;
use crate::error::Error;
use crate::limits::POLL_GRACE;
use crate::subjects;

impl Client {
    /// Has a program run in the container of a RUNNING instance: that of a definition or, if there are several at the index
    /// and none is named, that of the active one. Answers what [`Talk`] names it by.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`]; `InvalidStateTransition` if the instance is not RUNNING. That it can't be started is told
    /// as its end.
    pub async fn exec(
        &self,
        guid: ProcessGuid,
        index: u32,
        definition_id: Option<DefinitionId>,
        exec: Exec,
    ) -> Result<RequestId, Error> {
        let id = self.line.request_id();
        let command = ClientCommand::InstanceExec { process_guid: guid, index, definition_id, exec };
        self.clone().request(id.clone()).send(&command).await.map(|_| id)
    }

    /// Talks to such a program, once: what is lost is said again with the same offsets.
    ///
    /// # Errors
    /// See [`Error`]; `ResourceNotFound` if its cell doesn't know it: not yet, or not any more.
    pub async fn talk(&self, talk: &Talk) -> Result<Talked, Error> {
        let subject = subjects::talk(&self.domain, &self.name);
        let wait = Duration::from_millis(talk.wait_ms) + POLL_GRACE;
        self.line.ask_once(&subject, Bytes::from(codec::encode(Form::Json, talk)), wait).await
    }
}
