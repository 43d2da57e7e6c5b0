//! Clients of the benchmark. Like other clients, they send plain JSON requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bus::{Bus, RequestError};
use bytes::Bytes;
use client::Client;
use client::subjects::Query;
use schemas::bus::BusSubject;
use schemas::message::{Ack, Answer};
use schemas::names::{ClientName, Domain};
use schemas::query::{Filter, Page};
use schemas::verb::{ClientVerb, OperatorVerb};
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::BenchError;

/// Timeout of a request.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Mean number of commands in flight (sent, but not answered) per client. This number is below the limit of a
/// BBS.
const COMMANDS_PER_CLIENT: u32 = 16;

/// Name of the client with little load. Its process has the same name.
const ANNOTATOR: &str = "quiet";

/// Clients of the domain `bench`.
#[derive(Clone)]
pub(super) struct Load {
    bus: Bus,
    /// Maximum number of commands in flight.
    limit: u32,
    /// Permits for commands in flight.
    permits: Arc<Semaphore>,
    /// Number of client names that commands use in turn.
    names: u32,
    request_count: Arc<AtomicU32>,
    /// Numbers of processes and tasks desired so far. Each name is used only once, so names contain these
    /// numbers.
    desired: Arc<[AtomicU32; 2]>,
}

impl Load {
    /// Creates clients with one command in flight.
    pub(super) fn new(bus: Bus) -> Self {
        let permits = Arc::new(Semaphore::new(1));
        Self { bus, limit: 1, permits, names: 1, request_count: Arc::default(), desired: Arc::default() }
    }

    /// Returns the same clients with this number of commands in flight.
    pub(super) fn with_limit(&self, limit: u32) -> Self {
        let permits = Arc::new(Semaphore::new(limit as usize));
        Self { limit, permits, names: limit.div_ceil(COMMANDS_PER_CLIENT), ..self.clone() }
    }

    /// Returns the maximum number of commands in flight.
    pub(super) const fn in_flight(&self) -> u32 {
        self.limit
    }

    /// Lifts the quotas of the domain `bench` as an operator. Otherwise the quotas would limit the load that
    /// the cluster can process.
    pub(super) async fn lift_quotas(&self) -> Result<(), BenchError> {
        let subject = BusSubject::Operator(ClientName::new("bench")?, OperatorVerb::DomainLimit).to_string();
        let most = u32::MAX;
        let body = json!({
            "domain": "bench", "instances": most, "processes_and_tasks": most, "commands_per_second": most,
        });
        let request = json!({ "body": body }).to_string();
        let answer = self.bus.request(&subject, request.into(), REQUEST_TIMEOUT).await;
        done(subject, answer)
    }

    /// Returns the bus that the clients use.
    pub(super) fn bus(&self) -> Bus {
        self.bus.clone()
    }

    /// Desires one process and waits for the answer.
    pub(super) async fn desire(&self, guid: &str, instances: u32) -> Result<(), BenchError> {
        let body = json!({
            "process_guid": guid, "domain": "bench", "instances": instances, "memory_mb": 32, "disk_mb": 32,
            "ports": [8080], "action": {"run": {"path": "scripted"}},
        });
        self.command(ClientVerb::LrpDesire, body).await
    }

    /// Desires many processes as fast as possible.
    pub(super) async fn desire_many(&self, lrps: u32, instances: u32) -> Result<(), BenchError> {
        let from = self.desired[0].fetch_add(lrps, Ordering::Relaxed);
        self.run_all((from..from + lrps).map(|number| {
            let load = self.clone();
            async move { load.desire(&format!("many{number}"), instances).await }
        }))
        .await
    }

    /// Scales many processes to this number of instances as fast as possible.
    pub(super) async fn scale_many(&self, lrps: u32, instances: u32) -> Result<(), BenchError> {
        self.run_all((0..lrps).map(|number| {
            let load = self.clone();
            let body = json!({ "process_guid": format!("many{number}"), "instances": instances });
            async move { load.command(ClientVerb::LrpUpdate, body).await }
        }))
        .await
    }

    /// Counts the instances, page by page. All pages have the same position.
    pub(super) async fn list_instances(&self) -> Result<u64, BenchError> {
        let (domain, name) = (Domain::new("bench")?, ClientName::new(ANNOTATOR)?);
        let client = Client::with_bus(self.bus.clone(), domain, name)?;
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

    /// Desires many tasks as fast as possible.
    pub(super) async fn desire_tasks(&self, tasks: u32) -> Result<(), BenchError> {
        let from = self.desired[1].fetch_add(tasks, Ordering::Relaxed);
        self.run_all((from..from + tasks).map(|number| {
            let load = self.clone();
            let body = json!({
                "task_guid": format!("task{number}"), "domain": "bench", "memory_mb": 32, "disk_mb": 32,
                "placement": {"queue": {"deadline_ms": 600_000}}, "result_file": "result",
                "action": {"run": {"path": "scripted", "args": ["result=done"]}},
            });
            async move { load.command(ClientVerb::TaskDesire, body).await }
        }))
        .await
    }

    async fn run_all<F>(&self, asks: impl Iterator<Item = F>) -> Result<(), BenchError>
    where
        F: Future<Output = Result<(), BenchError>> + Send + 'static,
    {
        let mut running = JoinSet::new();
        for ask in asks {
            let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| BenchError::Stopped)?;
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

    async fn command(&self, verb: ClientVerb, body: serde_json::Value) -> Result<(), BenchError> {
        let client = self.request_count.fetch_add(1, Ordering::Relaxed) % self.names;
        let who = (Domain::new("bench")?, ClientName::new(&format!("bench{client}"))?);
        timed_command(&self.bus, who, (verb, body), REQUEST_TIMEOUT).await.map(drop)
    }
}

/// Client of the domain `bench` with little load. The client has one process without instances, and
/// repeatedly sets the annotation of this process to a new number.
#[derive(Clone, Debug)]
pub(super) struct Annotator {
    bus: Bus,
    /// Timeout of a request.
    timeout: Duration,
}

impl Annotator {
    /// Creates the client and desires its process.
    pub(super) async fn start(bus: Bus, timeout: Duration) -> Result<Self, BenchError> {
        let annotator = Self { bus, timeout };
        let body = json!({
            "process_guid": ANNOTATOR, "domain": "bench", "instances": 0, "memory_mb": 16, "disk_mb": 16,
            "action": {"run": {"path": "sleep", "args": ["3600"]}},
        });
        annotator.command(ClientVerb::LrpDesire, body).await?;
        Ok(annotator)
    }

    /// Annotates the process and returns the latency. Each number changes the process, so the answer arrives
    /// after the entry is in the journal.
    pub(super) async fn annotate(&self, number: u64) -> Result<Duration, BenchError> {
        let body = json!({ "process_guid": ANNOTATOR, "annotation": number.to_string() });
        self.command(ClientVerb::LrpUpdate, body).await
    }

    async fn command(&self, verb: ClientVerb, body: serde_json::Value) -> Result<Duration, BenchError> {
        let who = (Domain::new("bench")?, ClientName::new(ANNOTATOR)?);
        timed_command(&self.bus, who, (verb, body), self.timeout).await
    }
}

/// Sends a command in the name of a client and returns the latency.
async fn timed_command(
    bus: &Bus,
    (domain, name): (Domain, ClientName),
    (verb, body): (ClientVerb, serde_json::Value),
    timeout: Duration,
) -> Result<Duration, BenchError> {
    let subject = BusSubject::Client(domain, name, verb).to_string();
    let request = json!({ "body": body }).to_string();
    let asked = Instant::now();
    let answer = bus.request(&subject, request.into(), timeout).await;
    let took = asked.elapsed();
    done(subject, answer).map(|()| took)
}

/// Converts the answer to a command into a result.
fn done(subject: String, answer: Result<Bytes, RequestError>) -> Result<(), BenchError> {
    let bytes = match answer {
        Ok(bytes) => bytes,
        Err(source) => return Err(BenchError::Unanswered { subject, source }),
    };
    match serde_json::from_slice::<Answer<Ack>>(&bytes) {
        Ok(Answer::Ok(_)) => Ok(()),
        Ok(Answer::Refused(source)) => Err(BenchError::Refused { subject, source }),
        Err(source) => Err(BenchError::Unreadable { subject, source }),
    }
}
