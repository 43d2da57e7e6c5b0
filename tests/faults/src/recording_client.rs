//! Client that records its commands in a ledger.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use client::{Client, Error, Target};
use schemas::definition::{DesiredLrp, DesiredTask};
use schemas::message::Ack;
use schemas::names::{ClientName, Domain, ProcessGuid, RequestId};
use tokio::time::Instant;

use crate::error::{Failed, Result};
use crate::ledger::Ledger;

/// Domain of all objects that the load desires.
pub const DOMAIN: &str = "shop";

/// Time for which a client repeats a command. Longer than any fault lasts.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(600);

/// Time for which a client repeats a query. A caller that waits for a condition sends the query again.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Client that records its commands. Each command has its own request id.
#[derive(Clone, Debug)]
pub struct RecordingClient {
    name: String,
    client: Client,
    queries: Client,
    ledger: Arc<Ledger>,
    request_count: Arc<AtomicU64>,
}

impl RecordingClient {
    /// Connects to a cluster.
    ///
    /// # Errors
    /// Returns an error if no server answers.
    pub async fn connect(url: &str, name: &str, ledger: &Arc<Ledger>) -> Result<Self> {
        let domain = Domain::new(DOMAIN).map_err(Failed::context(DOMAIN))?;
        let who = ClientName::new(name).map_err(Failed::context(name))?;
        let connected = Client::connect(Target::nats(url)).domain(domain).name(who).await;
        let client = connected.map_err(Failed::context(name))?.patience(COMMAND_TIMEOUT);
        let questions = client.clone().patience(QUERY_TIMEOUT);
        Ok(Self {
            name: name.to_owned(),
            client,
            queries: questions,
            ledger: Arc::clone(ledger),
            request_count: Arc::default(),
        })
    }

    /// Returns the client for queries. Queries are not recorded.
    #[must_use]
    pub const fn queries(&self) -> &Client {
        &self.queries
    }

    /// Sends one command until it is answered, and records its outcome. Returns the answer, which contains a
    /// position of the log.
    ///
    /// # Errors
    /// Returns an error if the command was refused or not answered.
    ///
    /// # Panics
    /// Panics if the client's name is so long that no number can be appended.
    pub async fn send<A>(
        &self,
        what: impl Into<String>,
        command: impl FnOnce(Client) -> A,
    ) -> std::result::Result<Ack, Error>
    where
        A: Future<Output = std::result::Result<Ack, Error>>,
    {
        let request = format!("{}-{}", self.name, self.request_count.fetch_add(1, Ordering::Relaxed));
        let id = RequestId::new(&request).expect("a client name with a number is a valid request id");
        let asked = Instant::now();
        let answer = command(self.client.clone().with_request_id(id)).await;
        self.ledger.record(request, what.into(), asked, &answer);
        answer
    }

    /// Desires a process.
    ///
    /// # Errors
    /// Returns the same errors as [`RecordingClient::send`].
    pub async fn desire(&self, lrp: DesiredLrp) -> Result<Ack> {
        let what = format!("apply {}", lrp.process_guid);
        let asked = self.send(&what, async |client| client.desire_lrp(lrp).await).await;
        asked.map_err(Failed::context(what))
    }

    /// Removes a process.
    ///
    /// # Errors
    /// Returns the same errors as [`RecordingClient::send`].
    pub async fn remove(&self, guid: ProcessGuid) -> Result<Ack> {
        let what = format!("lrp delete {guid}");
        let asked = self.send(&what, async |client| client.remove_lrp(guid).await).await;
        asked.map_err(Failed::context(what))
    }

    /// Desires a task.
    ///
    /// # Errors
    /// Returns the same errors as [`RecordingClient::send`].
    pub async fn run(&self, task: DesiredTask) -> Result<Ack> {
        let what = format!("task desire {}", task.task_guid);
        let asked = self.send(&what, async |client| client.desire_task(task).await).await;
        asked.map_err(Failed::context(what))
    }
}
