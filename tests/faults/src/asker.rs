//! A client whose every command is written down.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use client::{Client, Error, Target};
use schemas::definition::{DesiredLrp, DesiredTask};
use schemas::message::Done;
use schemas::names::{ClientName, Domain, ProcessGuid, RequestId};
use tokio::time::Instant;

use crate::failed::{Failed, Result};
use crate::ledger::Ledger;

/// The domain of everything that the load desires.
pub const DOMAIN: &str = "shop";

/// For how long a client asks again before it gives up: longer than any fault lasts.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// For how long it asks a question again. Who waits for something asks it anew.
const QUESTION: Duration = Duration::from_secs(5);

/// A client whose every command is written down, with a request token of its own.
#[derive(Clone, Debug)]
pub struct Asker {
    name: String,
    client: Client,
    questions: Client,
    ledger: Arc<Ledger>,
    asked: Arc<AtomicU64>,
}

impl Asker {
    /// Connects to a cluster.
    ///
    /// # Errors
    /// Nobody is there.
    pub async fn connect(url: &str, name: &str, ledger: &Arc<Ledger>) -> Result<Self> {
        let domain = Domain::new(DOMAIN).map_err(Failed::at(DOMAIN))?;
        let who = ClientName::new(name).map_err(Failed::at(name))?;
        let connected = Client::connect(Target::nats(url)).domain(domain).name(who).await;
        let client = connected.map_err(Failed::at(name))?.patience(PATIENCE);
        let questions = client.clone().patience(QUESTION);
        Ok(Self {
            name: name.to_owned(),
            client,
            questions,
            ledger: Arc::clone(ledger),
            asked: Arc::default(),
        })
    }

    /// To ask questions with.
    #[must_use]
    pub const fn questions(&self) -> &Client {
        &self.questions
    }

    /// Asks one command until it is answered, and writes down what came of it; answers where the log stood then.
    ///
    /// # Errors
    /// It was refused, or nobody answered.
    ///
    /// # Panics
    /// The client's name is so long that nothing fits behind it.
    pub async fn ask<A>(
        &self,
        what: impl Into<String>,
        command: impl FnOnce(Client) -> A,
    ) -> std::result::Result<Done, Error>
    where
        A: Future<Output = std::result::Result<Done, Error>>,
    {
        let request = format!("{}-{}", self.name, self.asked.fetch_add(1, Ordering::Relaxed));
        let id = RequestId::new(&request).expect("a client's name and a number are a name");
        let asked = Instant::now();
        let answer = command(self.client.clone().request(id)).await;
        self.ledger.note(request, what.into(), asked, &answer);
        answer
    }

    /// Desires a process.
    ///
    /// # Errors
    /// As [`Asker::ask`].
    pub async fn desire(&self, lrp: DesiredLrp) -> Result<Done> {
        let what = format!("lrp desire {}", lrp.process_guid);
        let asked = self.ask(&what, async |client| client.desire_lrp(lrp).await).await;
        asked.map_err(Failed::at(what))
    }

    /// Removes a process.
    ///
    /// # Errors
    /// As [`Asker::ask`].
    pub async fn remove(&self, guid: ProcessGuid) -> Result<Done> {
        let what = format!("lrp remove {guid}");
        let asked = self.ask(&what, async |client| client.remove_lrp(guid).await).await;
        asked.map_err(Failed::at(what))
    }

    /// Desires a task.
    ///
    /// # Errors
    /// As [`Asker::ask`].
    pub async fn run(&self, task: DesiredTask) -> Result<Done> {
        let what = format!("task desire {}", task.task_guid);
        let asked = self.ask(&what, async |client| client.desire_task(task).await).await;
        asked.map_err(Failed::at(what))
    }
}
