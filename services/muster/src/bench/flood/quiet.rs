//! The quiet client: in a thread of its own, so that what is measured is the cluster and not the other client.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bus::Bus;
use schemas::bus::{BusSubject, ClientVerb, Inbox};
use schemas::names::{ClientName, Domain};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::bench::{BenchError, load};
use crate::error::{ServiceError, chain};
use crate::serve::Nats;

/// How often it sends a command.
const EVERY: Duration = Duration::from_millis(20);
/// Who isn't answered in this time isn't at all.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the quiet client waited.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits {
    /// For each answered command, the shortest first.
    waits: Vec<Duration>,
    /// Why others were not carried out.
    pub(super) lost: Vec<String>,
}

impl Waits {
    pub(super) fn answered(&self) -> usize {
        self.waits.len()
    }

    /// So many in a hundred were answered in this time.
    pub(super) fn percentile(&self, of_hundred: usize) -> Duration {
        let last = self.waits.len().saturating_sub(1);
        self.waits.get((self.waits.len() * of_hundred / 100).min(last)).copied().unwrap_or_default()
    }
}

/// What its thread is told.
enum Order {
    Begin,
    End(oneshot::Sender<Waits>),
}

/// The quiet client.
pub(super) struct Quiet {
    orders: mpsc::UnboundedSender<Order>,
    _thread: JoinHandle<()>,
}

impl Quiet {
    /// Starts it; it does nothing yet.
    pub(super) async fn start(nats: Nats, inbox: &Inbox) -> Result<Self, ServiceError> {
        let (orders, receiver) = mpsc::unbounded_channel();
        let (ready, started) = oneshot::channel::<Result<(), ServiceError>>();
        let inbox = inbox.clone();
        let thread = std::thread::spawn(move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(ready.send(Err(BenchError::Client(error).into()))),
            };
            runtime.block_on(async move {
                let client = async {
                    let client = Client { bus: nats.bus("bench quiet", &inbox).await?, subject: subject()? };
                    client.desire().await?;
                    Ok(client)
                };
                match client.await {
                    Ok(client) => {
                        drop(ready.send(Ok(())));
                        client.run(receiver).await;
                    }
                    Err(why) => drop(ready.send(Err(why))),
                }
            });
        });
        started.await.map_err(|_| BenchError::QuietEnded)??;
        Ok(Self { orders, _thread: thread })
    }

    /// Sends commands from now on.
    pub(super) fn begin(&self) {
        drop(self.orders.send(Order::Begin));
    }

    /// Sends no more, and says what became of them.
    pub(super) async fn end(&self) -> Result<Waits, BenchError> {
        let (sender, receiver) = oneshot::channel();
        drop(self.orders.send(Order::End(sender)));
        receiver.await.map_err(|_| BenchError::QuietEnded)
    }
}

fn subject() -> Result<(Domain, ClientName), BenchError> {
    Ok((Domain::new("bench")?, ClientName::new("quiet")?))
}

#[derive(Clone)]
struct Client {
    bus: Bus,
    subject: (Domain, ClientName),
}

impl Client {
    async fn desire(&self) -> Result<(), BenchError> {
        let body = json!({
            "process_guid": "quiet", "domain": "bench", "instances": 0, "memory_mb": 16, "disk_mb": 16,
            "action": {"run": {"path": "sleep", "args": ["3600"]}},
        });
        self.ask(ClientVerb::LrpDesire, body).await.map(drop)
    }

    /// Each command changes something: it is answered when that is in the journal.
    async fn update(&self, number: u64) -> Result<Duration, BenchError> {
        let body = json!({ "process_guid": "quiet", "annotation": number.to_string() });
        self.ask(ClientVerb::LrpUpdate, body).await
    }

    async fn ask(&self, verb: ClientVerb, body: serde_json::Value) -> Result<Duration, BenchError> {
        let (domain, name) = self.subject.clone();
        let subject = BusSubject::Client(domain, name, verb).to_string();
        let asked = Instant::now();
        let answer = self.bus.ask(&subject, json!({ "body": body }).to_string().into(), PATIENCE).await;
        let took = asked.elapsed();
        load::done(subject, answer).map(|()| took)
    }

    async fn run(self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let mut number = 0;
        while let Some(order) = orders.recv().await {
            match order {
                Order::Begin => {}
                Order::End(sender) => {
                    drop(sender.send(Waits::default()));
                    continue;
                }
            }
            let mut pace = tokio::time::interval(EVERY);
            let mut asks = JoinSet::new();
            let asked = loop {
                tokio::select! {
                    _ = pace.tick() => {
                        number += 1;
                        let (client, number) = (self.clone(), number);
                        asks.spawn(async move { client.update(number).await });
                    }
                    order = orders.recv() => match order {
                        Some(Order::Begin) => {}
                        Some(Order::End(sender)) => break sender,
                        None => return,
                    },
                }
            };
            let mut waits = Waits::default();
            while let Some(ended) = asks.join_next().await {
                match ended {
                    Ok(Ok(took)) => waits.waits.push(took),
                    Ok(Err(error)) => waits.lost.push(chain(&error)),
                    Err(error) => waits.lost.push(error.to_string()),
                }
            }
            waits.waits.sort_unstable();
            drop(asked.send(waits));
        }
    }
}
