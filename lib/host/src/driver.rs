//! State of the effect driver of a BBS: connections, queues and limits. `bbs.rs` performs the effects.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use bbs::Input;
use bus::{Bus, ReplyTo};
use journal::Journal;
use parking_lot::Mutex;
use projections::Reader;
use schemas::Refusal;
use schemas::names::ServiceId;
use schemas::subject::Position;
use secrets::Keys;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::budget::Budgets;
use super::callback::Caller;
use super::decision_reports::DecisionReporter;
use super::feed::Feed;
use super::monitoring::bbs::BbsMetrics;
use super::otlp::Collector;
use super::past::{Cache, PastQueries};
use super::presence::LeaderHeartbeats;
use super::query_pool::QueryPool;
use super::reply_target::ReplyTarget;
use super::requests::{PendingRequests, ServiceClient};
use super::run_error::{RunError, UnreadableEntry};
use super::turn_queue::TurnQueue;

/// Connections of a BBS. Bulk queries use connections of their own so that they never delay commands or
/// orders.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    /// Journal connection for appending and following entries.
    pub(crate) journal: Journal,
    /// Bus connection for commands, reports, heartbeats, and orders to reps.
    pub(crate) bus: Bus,
    /// Bus connection for queries and their replies.
    pub(crate) queries: Bus,
    /// Journal connection for history queries.
    pub(crate) history: Journal,
    /// Cache for snapshots of the past. `None` if the BBS serves no queries about the past.
    pub(crate) cache: Option<Cache>,
    /// Collector for spans of decisions. `None` if no spans are sent.
    pub(crate) traces: Option<Collector>,
}

impl Connections {
    /// Creates connections within one process. Within a process, one connection of each kind is sufficient.
    pub(crate) fn in_process(journal: Journal, bus: Bus, cache: Option<Cache>) -> Self {
        Self { history: journal.clone(), queries: bus.clone(), journal, bus, cache, traces: None }
    }
}

/// Driver of one machine: performs its effects, and feeds it inputs.
pub(super) struct Driver {
    /// Id of this BBS. Its cursors contain the id.
    pub(super) id: ServiceId,
    pub(super) lines: Connections,
    pub(super) services: ServiceClient,
    /// Queue of events for the machine.
    pub(super) inputs: mpsc::Sender<Input>,
    /// Queue of requests to the machine, with a turn per client.
    pub(super) asked: Arc<TurnQueue<Input>>,
    pub(super) waiting: PendingRequests<ReplyTarget>,
    /// Limits of in-flight requests per client.
    pub(super) budgets: Budgets,
    /// Queue of refusals to send. A separate queue ensures that a client that floods the BBS does not delay
    /// other clients.
    pub(super) refusals: mpsc::Sender<(ReplyTo, Refusal)>,
    /// Queue of entries to publish on the feed.
    pub(super) feed: Feed,
    /// Queue of entries to report in the program's log and as spans.
    pub(super) decided: DecisionReporter,
    /// Queues of queries about the present.
    pub(super) reading: QueryPool,
    /// Queue of queries about the past.
    pub(super) looking: PastQueries,
    /// Permits for concurrent reads of the journal by history queries.
    pub(super) scans: Semaphore,
    /// HTTP client that posts completed tasks to their callback URLs.
    pub(super) caller: Arc<Caller>,
    /// Keys that seal secrets before commands reach the machine.
    pub(super) keys: Keys,
    /// Metrics of the BBS.
    pub(super) watch: Arc<BbsMetrics>,
    pub(super) leading: Mutex<CancellationToken>,
    pub(super) beats: LeaderHeartbeats,
    /// Reader of the cluster's subject up to the last followed entry, for queries that read the log.
    pub(super) reader: Mutex<Reader>,
    /// Last followed position.
    pub(super) followed: watch::Sender<Position>,
    /// Number of bytes of followed entries since the start.
    pub(super) followed_bytes: AtomicU64,
    /// Last followed position on each subject.
    pub(super) last_positions: Mutex<BTreeMap<String, Position>>,
    pub(super) ends: CancellationToken,
    pub(super) fatal: Mutex<Option<RunError>>,
    /// Reason and time of the stop of the machine. Unset while the machine decides.
    pub(super) stopped: OnceLock<(UnreadableEntry, Instant)>,
    /// Time of the last leader heartbeat.
    pub(super) last_leader_heartbeat: Mutex<Option<Instant>>,
    /// Reasons for the newest quarantined entries, by position.
    pub(super) quarantine_reasons: Mutex<BTreeMap<Position, String>>,
    pub(super) decides: CancellationToken,
}
