//! Programs that a client runs in containers, in addition to the programs of the definitions.

use std::time::Duration;

use bytes::Bytes;
use schemas::codec::{self, Form};
use schemas::exec::{Exec, ExecIo, ExecIoReply};
use schemas::names::{DefinitionId, ProcessGuid, RequestId};
use schemas::spec::ClientCommand;

use crate::client::Client;
use crate::error::Error;
use crate::limits::POLL_GRACE;
use crate::subjects;

impl Client {
    /// Runs a program in the container of a RUNNING instance. If the index has several instances,
    /// `definition_id` selects one of them; `None` selects the instance of the active definition. Returns the
    /// id by which [`ExecIo`] names the program.
    ///
    /// # Errors
    /// See [`Client::desire_lrp`]; `InvalidStateTransition` if the instance is not RUNNING. A program that
    /// cannot be started is reported as ended.
    pub async fn exec(
        &self,
        guid: ProcessGuid,
        index: u32,
        definition_id: Option<DefinitionId>,
        exec: Exec,
    ) -> Result<RequestId, Error> {
        let id = self.line.request_id();
        let command = ClientCommand::InstanceExec { process_guid: guid, index, definition_id, exec };
        self.clone().with_request_id(id.clone()).send(&command).await.map(|_| id)
    }

    /// Exchanges data with a program that [`Client::exec`] started, once. Lost data is sent again with the
    /// same offsets.
    ///
    /// # Errors
    /// See [`Error`]; `ResourceNotFound` if the cell does not know the program yet or no longer knows it.
    pub async fn talk(&self, talk: &ExecIo) -> Result<ExecIoReply, Error> {
        let subject = subjects::talk(&self.domain, &self.name);
        let wait = Duration::from_millis(talk.wait_ms) + POLL_GRACE;
        self.line.request_once(&subject, Bytes::from(codec::encode(Form::Json, talk)), wait).await
    }
}
