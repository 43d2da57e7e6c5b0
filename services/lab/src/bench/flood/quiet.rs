//! The quiet client, which sends few commands while another client floods the cluster. It runs in a thread of
//! its own, so that the flooding client does not distort its latencies.

use std::thread::JoinHandle;
use std::time::Duration;

use host::serve::Nats;
use schemas::bus::Inbox;
use text::chain;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::bench::BenchError;
use crate::bench::load::Annotator;

/// Interval between commands.
const INTERVAL: Duration = Duration::from_millis(20);
/// Timeout of a command.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Latencies of the quiet client.
#[derive(Clone, Debug, Default)]
pub(super) struct Latencies {
    /// Latencies of the answered commands, in ascending order.
    latencies: Vec<Duration>,
    /// Errors of the unanswered commands.
    pub(super) lost: Vec<String>,
}

impl Latencies {
    pub(super) fn answered(&self) -> usize {
        self.latencies.len()
    }

    /// Returns a percentile of the latencies, or zero if no command was answered.
    pub(super) fn percentile(&self, of_hundred: usize) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get((self.latencies.len() * of_hundred / 100).min(last)).copied().unwrap_or_default()
    }
}

/// Order to the thread of the quiet client.
enum Order {
    Begin,
    End(oneshot::Sender<Latencies>),
}

/// Handle of the quiet client.
pub(super) struct Quiet {
    orders: mpsc::UnboundedSender<Order>,
    _thread: JoinHandle<()>,
}

impl Quiet {
    /// Starts the thread. The thread sends no commands before [`Quiet::begin`].
    pub(super) async fn start(nats: Nats, inbox: &Inbox) -> Result<Self, BenchError> {
        let (orders, receiver) = mpsc::unbounded_channel();
        let (ready, started) = oneshot::channel::<Result<(), BenchError>>();
        let inbox = inbox.clone();
        let thread = std::thread::spawn(move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(ready.send(Err(BenchError::Client(error)))),
            };
            runtime.block_on(async move {
                let annotator = async {
                    let bus = nats.bus("bench quiet", &inbox).await?;
                    Annotator::start(bus, TIMEOUT).await
                };
                match annotator.await {
                    Ok(annotator) => {
                        drop(ready.send(Ok(())));
                        run(annotator, receiver).await;
                    }
                    Err(why) => drop(ready.send(Err(why))),
                }
            });
        });
        started.await.map_err(|_| BenchError::QuietEnded)??;
        Ok(Self { orders, _thread: thread })
    }

    /// Starts sending commands.
    pub(super) fn begin(&self) {
        drop(self.orders.send(Order::Begin));
    }

    /// Stops sending commands and returns their latencies and errors.
    pub(super) async fn end(&self) -> Result<Latencies, BenchError> {
        let (sender, receiver) = oneshot::channel();
        drop(self.orders.send(Order::End(sender)));
        receiver.await.map_err(|_| BenchError::QuietEnded)
    }
}

/// Sends commands at a steady pace from each `Begin` to the next `End`.
async fn run(annotator: Annotator, mut orders: mpsc::UnboundedReceiver<Order>) {
    let mut number = 0;
    while let Some(order) = orders.recv().await {
        match order {
            Order::Begin => {}
            Order::End(sender) => {
                drop(sender.send(Latencies::default()));
                continue;
            }
        }
        let mut pace = tokio::time::interval(INTERVAL);
        let mut asks = JoinSet::new();
        let asked = loop {
            tokio::select! {
                _ = pace.tick() => {
                    number += 1;
                    let (annotator, number) = (annotator.clone(), number);
                    asks.spawn(async move { annotator.annotate(number).await });
                }
                order = orders.recv() => match order {
                    Some(Order::Begin) => {}
                    Some(Order::End(sender)) => break sender,
                    None => return,
                },
            }
        };
        let mut waits = Latencies::default();
        while let Some(ended) = asks.join_next().await {
            match ended {
                Ok(Ok(took)) => waits.latencies.push(took),
                Ok(Err(error)) => waits.lost.push(chain(&error)),
                Err(error) => waits.lost.push(error.to_string()),
            }
        }
        waits.latencies.sort_unstable();
        drop(asked.send(waits));
    }
}
