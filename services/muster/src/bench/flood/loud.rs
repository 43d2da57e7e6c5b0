//! The hostile client: everything at once, under one name, of a domain of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use bus::{AskError, Bus};
use schemas::bus::{BusSubject, ClientVerb, QueryVerb};
use schemas::caller::Caller;
use schemas::names::{ClientName, Domain};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::bench::BenchError;
use crate::error::chain;

/// Who isn't answered in this time isn't at all.
const PATIENCE: Duration = Duration::from_secs(30);
/// Instances of each process.
const EACH: u32 = 100;
/// Commands that it has under way where it is careful.
const CAREFUL: usize = 32;

/// What became of what was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// Answered as wished.
    pub(super) answered: u32,
    /// Refused, by code.
    pub(super) refused: BTreeMap<String, u32>,
    /// Never answered.
    pub(super) silent: u32,
}

/// As much of an answer as tells what became of the question.
#[derive(Deserialize)]
struct Said<'a> {
    #[serde(borrow)]
    ok: Option<&'a RawValue>,
    refused: Option<Refused>,
}

#[derive(Deserialize)]
struct Refused {
    code: String,
}

impl Outcome {
    fn add(&mut self, answer: Result<Value, Why>) {
        match answer {
            Ok(_) => self.answered += 1,
            Err(Why::Refused(code)) => *self.refused.entry(code).or_default() += 1,
            Err(Why::Silent(_)) => self.silent += 1,
        }
    }

    /// Both together.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.answered += other.answered;
        self.silent += other.silent;
        for (code, count) in other.refused {
            *self.refused.entry(code).or_default() += count;
        }
        self
    }
}

/// Why there is no answer as wished.
enum Why {
    Refused(String),
    Silent(AskError),
}

impl Why {
    fn error(self) -> BenchError {
        match self {
            Self::Refused(code) => BenchError::LoudRefused(code),
            Self::Silent(error) => BenchError::LoudUnanswered(error),
        }
    }
}

/// The loud client.
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

    /// Asks once. What a list answers isn't read: the loud client's time isn't measured.
    async fn ask(&self, subject: String, question: Value) -> Result<Value, Why> {
        let answer =
            self.bus.ask(&subject, question.to_string().into(), PATIENCE).await.map_err(Why::Silent)?;
        let unreadable = || Why::Refused("unreadable".to_owned());
        let said: Said<'_> = serde_json::from_slice(&answer).map_err(|_| unreadable())?;
        match (said.ok, said.refused) {
            (Some(ok), None) if ok.get().len() < 4_096 => {
                serde_json::from_str(ok.get()).map_err(|_| unreadable())
            }
            (Some(_), None) => Ok(Value::Null),
            (_, Some(refused)) => Err(Why::Refused(refused.code)),
            (None, None) => Err(unreadable()),
        }
    }

    async fn command(&self, verb: ClientVerb, body: Value) -> Result<Value, Why> {
        let subject = BusSubject::Client(self.domain.clone(), self.name.clone(), verb);
        self.ask(subject.to_string(), json!({ "body": body })).await
    }

    async fn query(&self, verb: QueryVerb, question: Value) -> Result<Value, Why> {
        let caller = Caller::Client(self.domain.clone(), self.name.clone());
        self.ask(caller.query(verb), question).await
    }

    /// What a query answers with one row.
    pub(super) async fn cluster(&self) -> Option<Value> {
        self.query(QueryVerb::ClusterShow, json!({})).await.ok()
    }

    async fn at_once<F>(asks: impl Iterator<Item = F>) -> Outcome
    where
        F: Future<Output = Result<Value, Why>> + Send + 'static,
    {
        let mut all: JoinSet<_> = asks.collect();
        let mut outcome = Outcome::default();
        while let Some(ended) = all.join_next().await {
            outcome.add(ended.unwrap_or_else(|_| Err(Why::Refused("panicked".to_owned()))));
        }
        outcome
    }

    /// Asks again what was refused because too much is under way, until it is answered.
    async fn command_until(&self, verb: ClientVerb, body: Value) -> Result<(), BenchError> {
        loop {
            match self.command(verb, body.clone()).await {
                Ok(_) => return Ok(()),
                Err(Why::Refused(code)) if code == "Overloaded" || code == "Unavailable" => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(why) => return Err(why.error()),
            }
        }
    }

    pub(super) async fn desire_instances(&self, instances: u32) -> Result<(), BenchError> {
        for number in 0..instances.div_ceil(EACH) {
            let body = json!({
                "process_guid": format!("listed{number}"), "domain": self.domain, "instances": EACH, "memory_mb": 16,
                "disk_mb": 16, "action": {"run": {"path": "sleep", "args": ["3600"]}},
            });
            self.command_until(ClientVerb::LrpDesire, body).await?;
        }
        Ok(())
    }

    /// What the cells run ends with the benchmark.
    pub(super) async fn remove_instances(&self) {
        for number in 0..super::INSTANCES.div_ceil(EACH) {
            let body = json!({ "process_guid": format!("listed{number}") });
            if let Err(why) = self.command_until(ClientVerb::LrpRemove, body).await {
                tracing::warn!("a process of the benchmark is left: {}", chain(&why));
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

    /// Lists of all instances.
    pub(super) async fn lists(&self, lists: u32) -> Outcome {
        let ask = |_| {
            let loud = self.clone();
            async move { loud.query(QueryVerb::InstanceList, json!({})).await }
        };
        Self::at_once((0..lists).map(ask)).await
    }

    /// Reads of what happens to somebody to whom nothing does, for as long.
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
        Self::at_once((0..polls).map(ask)).await
    }

    /// Commands that each change something.
    pub(super) async fn commands(&self, commands: u32) -> Outcome {
        let ask = |number: u32| {
            let loud = self.clone();
            let guid = format!("listed{}", number % super::INSTANCES.div_ceil(EACH));
            let body = json!({ "process_guid": guid, "annotation": number.to_string() });
            async move { loud.command(ClientVerb::LrpUpdate, body).await }
        };
        Self::at_once((0..commands).map(ask)).await
    }

    /// So many commands and as many lists under way all the time, for as long: each is followed by the next at once.
    pub(super) async fn keeps_asking(&self, each: u32, time: Duration) -> Outcome {
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
                    let guid = format!("listed{}", number % super::INSTANCES.div_ceil(EACH));
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
            outcome = outcome.and(ended.unwrap_or_default());
        }
        outcome
    }

    /// Tasks that fail at once, for no cell is large enough, and whose owner is called.
    pub(super) async fn tasks(&self, tasks: u32, owner: &str) -> Outcome {
        let mut running = JoinSet::new();
        let mut outcome = Outcome::default();
        for number in 0..tasks {
            if running.len() >= CAREFUL
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
            outcome.add(ended.unwrap_or_else(|_| Err(Why::Refused("panicked".to_owned()))));
        }
        outcome
    }
}

/// An owner of tasks who takes every call and never answers.
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
