//! Reports the decisions that a leading BBS has folded into its state. Each decision becomes a log line and a
//! span.
//!
//! Reporting never delays decisions. Entries that do not fit into the queue are counted but not reported. The
//! journal still contains these entries, and `muster trace` creates the same spans from them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use schemas::entry::Aggregate;
use schemas::limits::{DECISION_LOG_QUEUE, REMEMBERED_TRACES};
use schemas::stamp::Actor;
use schemas::{Decision, Entry, Position};
use serde_json::Value;
use text::chain;
use text::describe::{actor, sentences, target};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::monitoring::bbs::BbsMetrics;
use crate::http;
use crate::otlp::{Collector, DEFAULT_TIMEOUT, DecisionSpan, MAX_BATCH, SendError, TraceContext};

/// Time for which spans are collected before a send.
const COLLECT_TIME: Duration = Duration::from_secs(1);
/// Retries for spans that were not accepted: first pause, longest pause, and number of retries.
const RETRY: (Duration, Duration, usize) = (Duration::from_millis(200), Duration::from_secs(10), 6);
/// Timeout of the last send before the BBS ends.
const LAST_SEND_TIMEOUT: Duration = Duration::from_secs(2);

/// Log target of the lines about decisions: `--log muster::log=debug` shows all of them.
const TARGET: &str = "muster::log";

/// Position and content of a folded entry.
pub(super) type FoldedEntry = (Position, Arc<Entry>);

/// Queue of entries to report.
#[derive(Debug)]
pub(super) struct DecisionReporter {
    entries: mpsc::Sender<FoldedEntry>,
    /// `true` if spans are created.
    traced: bool,
    dropped: AtomicU64,
}

impl DecisionReporter {
    /// Creates the queue and its receiver.
    pub(super) fn new(traced: bool) -> (Self, mpsc::Receiver<FoldedEntry>) {
        let (entries, waiting) = mpsc::channel(DECISION_LOG_QUEUE);
        (Self { entries, traced, dropped: AtomicU64::new(0) }, waiting)
    }

    /// Queues an entry. If the queue is full, skips the entry. Never waits.
    pub(super) fn enqueue(&self, position: Position, entry: Arc<Entry>, watch: &BbsMetrics) {
        let decisions = u64::try_from(entry.decisions.len()).unwrap_or(u64::MAX);
        if self.entries.try_send((position, entry)).is_ok() {
            return;
        }
        if self.traced {
            watch.spans_dropped.add_many(decisions);
        }
        let count = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
        // Limits the number of log lines about skipped entries.
        if count.is_power_of_two() {
            tracing::warn!(%position, count, "the queue is full: entries are neither logged nor traced");
        }
    }
}

/// Creator and sender of spans.
#[derive(Debug)]
struct SpanSender {
    collector: Collector,
    http: reqwest::Client,
    watch: Arc<BbsMetrics>,
    spans: Vec<Value>,
    /// Time of the next send. `None` if no spans are collected.
    due: Option<Instant>,
    failures: u64,
}

/// Reports queued entries, in the order of the log, until the token is cancelled.
pub(super) async fn report_decisions(
    mut waiting: mpsc::Receiver<FoldedEntry>,
    to: Option<Collector>,
    watch: Arc<BbsMetrics>,
    ends: CancellationToken,
) {
    let mut known = TraceContext::with_capacity(REMEMBERED_TRACES);
    let mut tracer = to.and_then(|collector| SpanSender::new(collector, watch));
    loop {
        let due = tracer.as_ref().and_then(|tracer| tracer.due);
        tokio::select! {
            biased;
            () = ends.cancelled() => break,
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            folded = waiting.recv() => {
                let Some((position, entry)) = folded else { break };
                for decision in &entry.decisions {
                    known.record(decision);
                    log_decision(position, decision, &known);
                    if let Some(tracer) = &mut tracer {
                        tracer.add_span(position, decision, &known);
                    }
                }
            }
        }
        if let Some(tracer) = tracer.as_mut().filter(|tracer| tracer.is_due()) {
            tokio::select! {
                () = ends.cancelled() => break,
                () = tracer.send() => {}
            }
        }
    }
    if let Some(tracer) = &mut tracer {
        tracer.send_last().await;
    }
}

/// Logs a decision. Decisions of operators, and decisions about cells and the cluster, are logged at level
/// info. All other decisions are logged at level debug.
fn log_decision(position: Position, decision: &Decision, known: &TraceContext) {
    let by_operator = matches!(decision.actor, Actor::Operator(_));
    let of_fleet = matches!(decision.aggregate, Aggregate::Cell(_) | Aggregate::Cluster);
    let wanted = if by_operator || of_fleet {
        tracing::enabled!(target: TARGET, tracing::Level::INFO)
    } else {
        tracing::enabled!(target: TARGET, tracing::Level::DEBUG)
    };
    if !wanted {
        return;
    }
    let Decision { id, correlation, .. } = decision;
    let trace_id = known.trace_id(*correlation);
    let (actor, aggregate) = (actor(&decision.actor), target(&decision.aggregate));
    let what = sentences(decision, false).join("; ");
    if by_operator || of_fleet {
        tracing::info!(target: TARGET, %position, %correlation, trace_id, decision = %id, actor, aggregate, "{what}");
    } else {
        tracing::debug!(target: TARGET, %position, %correlation, trace_id, decision = %id, actor, aggregate, "{what}");
    }
}

impl SpanSender {
    /// Creates a sender. Returns `None` and logs an error if no HTTP client can be created.
    fn new(collector: Collector, watch: Arc<BbsMetrics>) -> Option<Self> {
        match http::client(DEFAULT_TIMEOUT) {
            Ok(http) => Some(Self { collector, http, watch, spans: vec![], due: None, failures: 0 }),
            Err(error) => {
                tracing::error!("no spans are sent: {}", chain(&error));
                None
            }
        }
    }

    fn add_span(&mut self, position: Position, decision: &Decision, known: &TraceContext) {
        let cause = decision.cause.map(|cause| known.decided_at(cause));
        // The clocks of two leaders may differ, so the cause can have a later time than its consequence.
        let began = cause.map_or(decision.at, |cause| cause.min(decision.at));
        let told = DecisionSpan { decision, position, began, cause_is_missing: false };
        self.spans.push(told.span(known));
        self.due.get_or_insert_with(|| Instant::now() + COLLECT_TIME);
    }

    fn is_due(&self) -> bool {
        self.spans.len() >= MAX_BATCH || self.due.is_some_and(|due| due <= Instant::now())
    }

    /// Sends the collected spans, with retries after temporary errors. Drops spans that are not accepted
    /// after the last retry.
    async fn send(&mut self) {
        let backoff = ExponentialBuilder::default()
            .with_min_delay(RETRY.0)
            .with_max_delay(RETRY.1)
            .with_max_times(RETRY.2);
        while !self.spans.is_empty() {
            let batch = &self.spans[..self.spans.len().min(MAX_BATCH)];
            let taken = (|| self.collector.send(&self.http, batch))
                .retry(backoff)
                .when(SendError::is_retryable)
                .await;
            self.count_outcome(taken);
        }
        self.due = None;
    }

    /// Sends the collected spans without retries, because the BBS is about to end.
    async fn send_last(&mut self) {
        while !self.spans.is_empty() {
            let batch = &self.spans[..self.spans.len().min(MAX_BATCH)];
            let silent = |_| Err(SendError::NoAnswer(format!("no answer within {LAST_SEND_TIMEOUT:?}")));
            let taken = timeout(LAST_SEND_TIMEOUT, self.collector.send(&self.http, batch))
                .await
                .unwrap_or_else(silent);
            let failed = taken.is_err();
            self.count_outcome(taken);
            if failed {
                self.watch.spans_dropped.add_many(self.spans.len() as u64);
                return;
            }
        }
    }

    /// Removes the first batch of spans, and counts the batch as sent or dropped.
    fn count_outcome(&mut self, taken: Result<(), SendError>) {
        let count = self.spans.drain(..self.spans.len().min(MAX_BATCH)).count() as u64;
        let dropped = match &taken {
            Ok(()) => 0,
            Err(SendError::Rejected { spans, .. }) => count.min(*spans),
            Err(SendError::NoAnswer(_) | SendError::Answered(..)) => count,
        };
        self.watch.spans_sent.add_many(count - dropped);
        self.watch.spans_dropped.add_many(dropped);
        if let Err(why) = taken {
            self.failures += 1;
            if self.failures.is_power_of_two() {
                tracing::warn!(failures = self.failures, "spans are dropped: {}: {why}", self.collector);
            }
        }
    }
}
