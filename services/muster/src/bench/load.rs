//! The clients of the benchmark: plain JSON requests, as any client makes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bus::Bus;
use schemas::bus::{BusSubject, ClientVerb};
use schemas::message::{Answer, Done};
use schemas::names::{ClientName, Domain};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Commands that one client has waiting on average: below what a BBS allows.
const COMMANDS: u32 = 16;

/// Clients of the domain `bench`.
#[derive(Clone)]
pub(super) struct Load {
    bus: Bus,
    /// Commands that may wait for an answer.
    waiting: Arc<Semaphore>,
    /// Names that commands go by, in turn.
    names: u32,
    asked: Arc<AtomicU32>,
}

impl Load {
    pub(super) fn new(bus: Bus, waiting: u32) -> Self {
        let names = waiting.div_ceil(COMMANDS);
        Self { bus, waiting: Arc::new(Semaphore::new(waiting as usize)), names, asked: Arc::default() }
    }

    /// Desires one process and waits for the answer.
    pub(super) async fn desire(&self, guid: &str, instances: u32) -> Result<(), String> {
        let body = json!({
            "process_guid": guid, "domain": "bench", "instances": instances, "memory_mb": 32, "disk_mb": 32,
            "ports": [8080], "action": {"run": {"path": "scripted"}},
        });
        self.ask(ClientVerb::LrpDesire, body).await
    }

    /// Desires many processes, as fast as the clients can.
    pub(super) async fn desire_many(&self, lrps: u32, instances: u32) -> Result<(), String> {
        self.all((0..lrps).map(|number| {
            let load = self.clone();
            async move { load.desire(&format!("many{number}"), instances).await }
        }))
        .await
    }

    /// Desires many tasks, as fast as the clients can.
    pub(super) async fn tasks(&self, tasks: u32) -> Result<(), String> {
        self.all((0..tasks).map(|number| {
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

    async fn all<F>(&self, asks: impl Iterator<Item = F>) -> Result<(), String>
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        let mut running = JoinSet::new();
        for ask in asks {
            let permit =
                Arc::clone(&self.waiting).acquire_owned().await.map_err(|error| error.to_string())?;
            running.spawn(async move {
                let answer = ask.await;
                drop(permit);
                answer
            });
            while let Some(done) = running.try_join_next() {
                done.map_err(|error| error.to_string())??;
            }
        }
        while let Some(done) = running.join_next().await {
            done.map_err(|error| error.to_string())??;
        }
        Ok(())
    }

    async fn ask(&self, verb: ClientVerb, body: serde_json::Value) -> Result<(), String> {
        let client = self.asked.fetch_add(1, Ordering::Relaxed) % self.names;
        let name = ClientName::new(&format!("bench{client}")).map_err(|error| error.to_string())?;
        let domain = Domain::new("bench").map_err(|error| error.to_string())?;
        let subject = BusSubject::Client(domain, name, verb).to_string();
        let request = json!({ "body": body }).to_string();
        let answer = self.bus.ask(&subject, request.into(), PATIENCE).await;
        let answer = answer.map_err(|error| format!("{subject}: {error}"))?;
        match serde_json::from_slice::<Answer<Done>>(&answer).map_err(|error| error.to_string())? {
            Answer::Ok(_) => Ok(()),
            Answer::Refused(refusal) => Err(format!("{subject}: {refusal}")),
        }
    }
}
