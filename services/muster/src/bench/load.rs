//! The clients of the benchmark: plain JSON requests, as any client makes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bus::{AskError, Bus};
use bytes::Bytes;
use client::Client;
use client::subjects::Query;
use schemas::bus::{BusSubject, ClientVerb, OperatorVerb};
use schemas::message::{Answer, Done};
use schemas::names::{ClientName, Domain};
use schemas::query::{Filter, Page};
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::BenchError;

/// How long a client waits for an answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// Commands that one client has waiting on average: below what a BBS allows.
const COMMANDS: u32 = 16;

/// The client that asks for little, and its process.
const QUIET: &str = "quiet";

/// Clients of the domain `bench`.
#[derive(Clone)]
pub(super) struct Load {
    bus: Bus,
    /// Number of commands that may wait for an answer.
    limit: u32,
    /// Commands that may wait for an answer.
    waiting: Arc<Semaphore>,
    /// Names that commands go by, in turn.
    names: u32,
    asked: Arc<AtomicU32>,
    /// Processes and tasks that were desired before: each name is used once.
    desired: Arc<[AtomicU32; 2]>,
}

impl Load {
    /// Clients that have one command in flight.
    pub(super) fn new(bus: Bus) -> Self {
        let waiting = Arc::new(Semaphore::new(1));
        Self { bus, limit: 1, waiting, names: 1, asked: Arc::default(), desired: Arc::default() }
    }

    /// The same clients with so many commands in flight.
    pub(super) fn with(&self, limit: u32) -> Self {
        let waiting = Arc::new(Semaphore::new(limit as usize));
        Self { limit, waiting, names: limit.div_ceil(COMMANDS), ..self.clone() }
    }

    /// Number of commands in flight.
    pub(super) const fn waiting(&self) -> u32 {
        self.limit
    }

    /// Lifts the quotas of its domain, as an operator, because the benchmark measures the limits of the cluster.
    pub(super) async fn lift_quotas(&self) -> Result<(), BenchError> {
        let subject = BusSubject::Operator(ClientName::new("bench")?, OperatorVerb::DomainLimit).to_string();
        let most = u32::MAX;
        let body = json!({
            "domain": "bench", "instances": most, "processes_and_tasks": most, "commands_per_second": most,
        });
        let request = json!({ "body": body }).to_string();
        let answer = self.bus.ask(&subject, request.into(), PATIENCE).await;
        done(subject, answer)
    }

    /// What its clients ask by.
    pub(super) fn bus(&self) -> Bus {
        self.bus.clone()
    }

    /// Desires one process and waits for the answer.
    pub(super) async fn desire(&self, guid: &str, instances: u32) -> Result<(), BenchError> {
        let body = json!({
            "process_guid": guid, "domain": "bench", "instances": instances, "memory_mb": 32, "disk_mb": 32,
            "ports": [8080], "action": {"run": {"path": "scripted"}},
        });
        self.ask(ClientVerb::LrpDesire, body).await
    }

    /// Desires many processes, as fast as the clients can.
    pub(super) async fn desire_many(&self, lrps: u32, instances: u32) -> Result<(), BenchError> {
        let from = self.desired[0].fetch_add(lrps, Ordering::Relaxed);
        self.all((from..from + lrps).map(|number| {
            let load = self.clone();
            async move { load.desire(&format!("many{number}"), instances).await }
        }))
        .await
    }

    /// Gives many processes another number of instances, as fast as the clients can.
    pub(super) async fn scale_many(&self, lrps: u32, instances: u32) -> Result<(), BenchError> {
        self.all((0..lrps).map(|number| {
            let load = self.clone();
            let body = json!({ "process_guid": format!("many{number}"), "instances": instances });
            async move { load.ask(ClientVerb::LrpUpdate, body).await }
        }))
        .await
    }

    /// How many instances there are, counted page by page at one position.
    pub(super) async fn list_instances(&self) -> Result<u64, BenchError> {
        let (domain, name) = (Domain::new("bench")?, ClientName::new(QUIET)?);
        let client = Client::over(self.bus.clone(), domain, name)?;
        let (mut filter, mut count) = (Filter::default(), 0);
        loop {
            let page: Page<IgnoredAny> = client.page(Query::InstanceList, &filter).await?;
            count += page.rows.len() as u64;
            filter.cursor = page.next;
            if filter.cursor.is_none() {
                return Ok(count);
            }
        }
    }

    /// Desires many tasks, as fast as the clients can.
    pub(super) async fn tasks(&self, tasks: u32) -> Result<(), BenchError> {
        let from = self.desired[1].fetch_add(tasks, Ordering::Relaxed);
        self.all((from..from + tasks).map(|number| {
            let load = self.clone();
            let body = json!({
                "task_guid": format!("task{number}"), "domain": "bench", "memory_mb": 32, "disk_mb": 32,
                "placement": {"queue": {"deadline_ms": 600_000}}, "result_file": "result",
                "action": {"run": {"path": "scripted", "args": ["result=done"]}},
            });
            async move { load.ask(ClientVerb::TaskDesire, body).await }
        }))
        .await
    }

    async fn all<F>(&self, asks: impl Iterator<Item = F>) -> Result<(), BenchError>
    where
        F: Future<Output = Result<(), BenchError>> + Send + 'static,
    {
        let mut running = JoinSet::new();
        for ask in asks {
            let permit = Arc::clone(&self.waiting).acquire_owned().await.map_err(|_| BenchError::Stopped)?;
            running.spawn(async move {
                let answer = ask.await;
                drop(permit);
                answer
            });
            while let Some(done) = running.try_join_next() {
                done.map_err(BenchError::Panicked)??;
            }
        }
        while let Some(done) = running.join_next().await {
            done.map_err(BenchError::Panicked)??;
        }
        Ok(())
    }

    async fn ask(&self, verb: ClientVerb, body: serde_json::Value) -> Result<(), BenchError> {
        let client = self.asked.fetch_add(1, Ordering::Relaxed) % self.names;
        let who = (Domain::new("bench")?, ClientName::new(&format!("bench{client}"))?);
        ask(&self.bus, who, (verb, body), PATIENCE).await.map(drop)
    }
}

/// A client of the domain `bench` that asks for little: it annotates one process, which has no instances, with numbers.
#[derive(Clone, Debug)]
pub(super) struct Annotator {
    bus: Bus,
    /// How long it waits for an answer.
    patience: Duration,
}

impl Annotator {
    /// One that desired its process.
    pub(super) async fn start(bus: Bus, patience: Duration) -> Result<Self, BenchError> {
        let annotator = Self { bus, patience };
        let body = json!({
            "process_guid": QUIET, "domain": "bench", "instances": 0, "memory_mb": 16, "disk_mb": 16,
            "action": {"run": {"path": "sleep", "args": ["3600"]}},
        });
        annotator.ask(ClientVerb::LrpDesire, body).await?;
        Ok(annotator)
    }

    /// Annotates it, and answers how long that took. Each changes something: it is answered when that is in the journal.
    pub(super) async fn annotate(&self, number: u64) -> Result<Duration, BenchError> {
        let body = json!({ "process_guid": QUIET, "annotation": number.to_string() });
        self.ask(ClientVerb::LrpUpdate, body).await
    }

    async fn ask(&self, verb: ClientVerb, body: serde_json::Value) -> Result<Duration, BenchError> {
        let who = (Domain::new("bench")?, ClientName::new(QUIET)?);
        ask(&self.bus, who, (verb, body), self.patience).await
    }
}

/// Asks for a command in a client's name, and answers how long that took.
async fn ask(
    bus: &Bus,
    (domain, name): (Domain, ClientName),
    (verb, body): (ClientVerb, serde_json::Value),
    patience: Duration,
) -> Result<Duration, BenchError> {
    let subject = BusSubject::Client(domain, name, verb).to_string();
    let request = json!({ "body": body }).to_string();
    let asked = Instant::now();
    let answer = bus.ask(&subject, request.into(), patience).await;
    let took = asked.elapsed();
    done(subject, answer).map(|()| took)
}

/// What came of a command.
fn done(subject: String, answer: Result<Bytes, AskError>) -> Result<(), BenchError> {
    let bytes = match answer {
        Ok(bytes) => bytes,
        Err(source) => return Err(BenchError::Unanswered { subject, source }),
    };
    match serde_json::from_slice::<Answer<Done>>(&bytes) {
        Ok(Answer::Ok(_)) => Ok(()),
        Ok(Answer::Refused(source)) => Err(BenchError::Refused { subject, source }),
        Err(source) => Err(BenchError::Unreadable { subject, source }),
    }
}
