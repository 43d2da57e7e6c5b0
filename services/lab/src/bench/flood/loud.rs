//! The loud client, which floods the cluster with simultaneous requests. It uses one name, in a domain of its
//! own.

use std::collections::BTreeMap;
use std::time::Duration;

use bus::{Bus, RequestError};
use schemas::bus::BusSubject;
use schemas::caller::Caller;
use schemas::names::{ClientName, Domain};
use schemas::verb::{ClientVerb, QueryVerb};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use text::chain;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::bench::BenchError;

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Instances of each process.
const INSTANCES_PER_PROCESS: u32 = 100;
/// Maximum number of unanswered commands that create tasks.
const MAX_TASKS_IN_FLIGHT: usize = 32;

/// Outcomes of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Number of successful requests.
    pub(super) answered: u32,
    /// Number of refused requests by code.
    pub(super) refused: BTreeMap<String, u32>,
    /// Number of requests without an answer.
    pub(super) unanswered: u32,
}

/// Part of an answer that shows the outcome of the request.
#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    ok: Option<&'a RawValue>,
    refused: Option<Refused>,
}

#[derive(Deserialize)]
struct Refused {
    code: String,
}

impl Outcome {
    fn add(&mut self, answer: Result<Value, LoudError>) {
        match answer {
            Ok(_) => self.answered += 1,
            Err(LoudError::Refused(code)) => *self.refused.entry(code).or_default() += 1,
            Err(LoudError::Silent(_)) => self.unanswered += 1,
        }
    }

    /// Returns the sum of both outcomes.
    pub(super) fn merge(mut self, other: Self) -> Self {
        self.answered += other.answered;
        self.unanswered += other.unanswered;
        for (code, count) in other.refused {
            *self.refused.entry(code).or_default() += count;
        }
        self
    }
}

/// Reason why a request did not succeed.
enum LoudError {
    Refused(String),
    Silent(RequestError),
}

impl LoudError {
    fn into_bench_error(self) -> BenchError {
        match self {
            Self::Refused(code) => BenchError::LoudRefused(code),
            Self::Silent(error) => BenchError::LoudUnanswered(error),
        }
    }
}

/// Client that floods the cluster.
#[derive(Clone)]
pub(super) struct Loud {
    bus: Bus,
    domain: Domain,
    name: ClientName,
}

impl Loud {
    pub(super) const fn new(bus: Bus, domain: Domain, name: ClientName) -> Self {
        Self { bus, domain, name }
    }

    /// Sends one request. An answer of 4,096 bytes or more is not decoded, because the loud client's
    /// latencies are not measured.
    async fn ask(&self, subject: String, question: Value) -> Result<Value, LoudError> {
        let answer = self
            .bus
            .request(&subject, question.to_string().into(), TIMEOUT)
            .await
            .map_err(LoudError::Silent)?;
        let unreadable = || LoudError::Refused("unreadable".to_owned());
        let said: Answer<'_> = serde_json::from_slice(&answer).map_err(|_| unreadable())?;
        match (said.ok, said.refused) {
            (Some(ok), None) if ok.get().len() < 4_096 => {
                serde_json::from_str(ok.get()).map_err(|_| unreadable())
            }
            (Some(_), None) => Ok(Value::Null),
            (_, Some(refused)) => Err(LoudError::Refused(refused.code)),
            (None, None) => Err(unreadable()),
        }
    }

    async fn command(&self, verb: ClientVerb, body: Value) -> Result<Value, LoudError> {
        let subject = BusSubject::Client(self.domain.clone(), self.name.clone(), verb);
        self.ask(subject.to_string(), json!({ "body": body })).await
    }

    async fn query(&self, verb: QueryVerb, question: Value) -> Result<Value, LoudError> {
        let caller = Caller::Client(self.domain.clone(), self.name.clone());
        self.ask(caller.query(verb), question).await
    }

    /// Sends a query that is answered with one row. Returns `None` if it fails.
    pub(super) async fn cluster(&self) -> Option<Value> {
        self.query(QueryVerb::ClusterShow, json!({})).await.ok()
    }

    async fn collect_outcomes<F>(asks: impl Iterator<Item = F>) -> Outcome
    where
        F: Future<Output = Result<Value, LoudError>> + Send + 'static,
    {
        let mut all: JoinSet<_> = asks.collect();
        let mut outcome = Outcome::default();
        while let Some(ended) = all.join_next().await {
            outcome.add(ended.unwrap_or_else(|_| Err(LoudError::Refused("panicked".to_owned()))));
        }
        outcome
    }

    /// Sends a command. Repeats the command while it is refused as overloaded or unavailable.
    async fn command_with_retry(&self, verb: ClientVerb, body: Value) -> Result<(), BenchError> {
        loop {
            match self.command(verb, body.clone()).await {
                Ok(_) => return Ok(()),
                Err(LoudError::Refused(code)) if code == "Overloaded" || code == "Unavailable" => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(why) => return Err(why.into_bench_error()),
            }
        }
    }

    pub(super) async fn desire_instances(&self, instances: u32) -> Result<(), BenchError> {
        for number in 0..instances.div_ceil(INSTANCES_PER_PROCESS) {
            let body = json!({
                "process_guid": format!("listed{number}"), "domain": self.domain, "instances": INSTANCES_PER_PROCESS, "memory_mb": 16,
                "disk_mb": 16, "action": {"run": {"path": "sleep", "args": ["3600"]}},
            });
            self.command_with_retry(ClientVerb::LrpDesire, body).await?;
        }
        Ok(())
    }

    /// Removes the processes and waits up to 10 s for their instances to end, so that none outlives the
    /// benchmark.
    pub(super) async fn remove_instances(&self) {
        for number in 0..super::INSTANCES.div_ceil(INSTANCES_PER_PROCESS) {
            let body = json!({ "process_guid": format!("listed{number}") });
            if let Err(why) = self.command_with_retry(ClientVerb::LrpRemove, body).await {
                tracing::warn!("can't remove a process of the benchmark: {}", chain(&why));
            }
        }
        for _ in 0..100 {
            let cells = self.query(QueryVerb::CellList, json!({})).await;
            let held = |row: &Value| row["instances"].as_u64().unwrap_or(0);
            let all: Option<u64> =
                cells.ok().and_then(|page| Some(page["rows"].as_array()?.iter().map(held).sum()));
            if all == Some(0) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Lists all instances, `lists` times at once.
    pub(super) async fn lists(&self, lists: u32) -> Outcome {
        let ask = |_| {
            let loud = self.clone();
            async move { loud.query(QueryVerb::InstanceList, json!({})).await }
        };
        Self::collect_outcomes((0..lists).map(ask)).await
    }

    /// Sends long polls at once. Each poll waits up to `wait` for events of a process that does not change.
    pub(super) async fn polls(&self, polls: u32, wait: Duration) -> Outcome {
        let ask = |number: u32| {
            let loud = self.clone();
            let about = format!("lrp:listed{}", number % 8);
            async move {
                let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(0);
                let end = loud.query(QueryVerb::EventsRead, json!({ "limit": 1 })).await;
                let after = end.ok().and_then(|page| page["end"].as_u64()).unwrap_or(0);
                let question = json!({ "after": after, "wait_ms": wait_ms, "about": about });
                loud.query(QueryVerb::EventsRead, question).await
            }
        };
        Self::collect_outcomes((0..polls).map(ask)).await
    }

    /// Sends commands at once. Each command changes an annotation.
    pub(super) async fn commands(&self, commands: u32) -> Outcome {
        let ask = |number: u32| {
            let loud = self.clone();
            let guid = format!("listed{}", number % super::INSTANCES.div_ceil(INSTANCES_PER_PROCESS));
            let body = json!({ "process_guid": guid, "annotation": number.to_string() });
            async move { loud.command(ClientVerb::LrpUpdate, body).await }
        };
        Self::collect_outcomes((0..commands).map(ask)).await
    }

    /// Keeps `each` commands and `each` lists in flight for this time. Each answer is followed by the next
    /// request at once.
    pub(super) async fn sustained(&self, each: u32, time: Duration) -> Outcome {
        let until = Instant::now() + time;
        let mut asking = JoinSet::new();
        for number in 0..each {
            let loud = self.clone();
            asking.spawn(async move {
                let mut outcome = Outcome::default();
                for round in 0_u64.. {
                    if Instant::now() >= until {
                        break;
                    }
                    let guid = format!("listed{}", number % super::INSTANCES.div_ceil(INSTANCES_PER_PROCESS));
                    let body = json!({ "process_guid": guid, "annotation": format!("{number} {round}") });
                    outcome.add(loud.command(ClientVerb::LrpUpdate, body).await);
                }
                outcome
            });
            let loud = self.clone();
            asking.spawn(async move {
                let mut outcome = Outcome::default();
                while Instant::now() < until {
                    outcome.add(loud.query(QueryVerb::InstanceList, json!({})).await);
                }
                outcome
            });
        }
        let mut outcome = Outcome::default();
        while let Some(ended) = asking.join_next().await {
            outcome = outcome.merge(ended.unwrap_or_default());
        }
        outcome
    }

    /// Creates tasks that fail at once because no cell is large enough. The completion callbacks of the tasks
    /// go to `owner`.
    pub(super) async fn tasks(&self, tasks: u32, owner: &str) -> Outcome {
        let mut running = JoinSet::new();
        let mut outcome = Outcome::default();
        for number in 0..tasks {
            if running.len() >= MAX_TASKS_IN_FLIGHT
                && let Some(Ok(answer)) = running.join_next().await
            {
                outcome.add(answer);
            }
            let loud = self.clone();
            let body = json!({
                "task_guid": format!("task{number}"), "domain": self.domain, "memory_mb": 1_000_000, "disk_mb": 16,
                "completion_callback_url": owner, "action": {"run": {"path": "true"}},
            });
            running.spawn(async move { loud.command(ClientVerb::TaskDesire, body).await });
        }
        while let Some(ended) = running.join_next().await {
            outcome.add(ended.unwrap_or_else(|_| Err(LoudError::Refused("panicked".to_owned()))));
        }
        outcome
    }
}

/// Starts a callback server that accepts every connection and never answers. Returns its URL.
pub(super) async fn silent_owner() -> Result<String, BenchError> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(BenchError::Client)?;
    let address = listener.local_addr().map_err(BenchError::Client)?;
    tokio::spawn(async move {
        let mut held = vec![];
        while let Ok((call, _)) = listener.accept().await {
            held.push(call);
        }
    });
    Ok(format!("http://{address}/done"))
}
