//! Effect driver of a BBS: performs the effects of the state machine on the journal, the bus, and callback
//! URLs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bbs::callbacks::CallbackResult;
use bbs::{AppendFailure, Bbs, Config, Effect, Input, LogCheckError, Reply};
use bus::{LogLimit, ReplyTo, truncated};
use journal::{Append, AppendError, Facts, Journal, JournalError, StoredEntry};
use parking_lot::Mutex;
use projections::cluster_log::{QuarantineOrder, QuarantinedPositions};
use projections::{Observed, Reader, WorldSnapshot};
use schemas::action::Secret;
use schemas::bus::BusSubject;
use schemas::cluster::Role;
use schemas::codec::Form;
use schemas::limits::{QUARANTINE_REASONS, REFUSALS_WAITING};
use schemas::message::{Ack, Answer, Heartbeat, Program, RepOrder};
use schemas::names::{CellId, Domain, IdGenerator, ServiceId, TaskGuid};
use schemas::query::{Filter, LogRow, QuarantinedEntry};
use schemas::secret::{Binding, Owner, Purpose};
use schemas::subject::{EVENT_ROOT, Position, Subject};
use schemas::verb::RepVerb;
use schemas::{Code, Refusal, Timestamp};
use secrets::Keys;
use text::chain;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::budget::Budgets;
use super::callback::Caller;
use super::callback::allow::Allowed;
use super::decision_reports::{self, DecisionReporter, FoldedEntry};
use super::drive::{INPUT_CAPACITY, drive, run_or_spawn};
use super::driver::{Connections, Driver};
use super::election_listener::ElectionListener;
use super::feed::{self, Feed, FeedEntry};
use super::monitoring::bbs::{BbsMetrics, BbsObserver};
use super::past::{PastQueries, StartState};
use super::presence::{LeaderHeartbeats, PresencePublisher};
use super::query_pool::{self, QueryPool};
use super::reply_target::{BusCaller, ReplyTarget};
use super::requests::{PendingRequests, REQUEST_TIMEOUT, ServiceClient, send_reply};
use super::run_error::{RunError, UnreadableEntry};
use super::turn_queue::BbsInputs;
use super::{follower, founding, inbox, quarantine};

/// Maximum number of concurrent reads of the journal for history queries.
const MAX_CONCURRENT_SCANS: usize = 8;
/// Interval between checks of the bus connection. The driver notifies the machine of a lost connection, so
/// that the machine does not count cells as silent because of the lost connection.
const CONNECTION_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Interval between two readings of the NATS server's clock.
const SERVER_CLOCK_INTERVAL: Duration = Duration::from_secs(5);
/// Interval between checks of the stream that holds the log.
const STREAM_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Timeout of a probe of a rep.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Grace period after this BBS stopped deciding at an entry. A leader that sends a heartbeat within this
/// period may still stop at the same entry. A leader that sends a later heartbeat can read the entry.
const STOP_GRACE_PERIOD: Duration = Duration::from_secs(1);
/// Maximum time that a stopping BBS waits until the log contains its entries.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(500);
const SETTLE_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum age of a leader heartbeat. Another BBS counts as the leader if its last heartbeat is not older.
const LEADER_TIMEOUT: Duration = Duration::from_secs(2);

static WARNED: LogLimit = LogLimit::new();

static SET_ASIDE: LogLimit = LogLimit::new();

/// Resources that all machines of a BBS share.
#[derive(Clone, Debug)]
pub(crate) struct SharedResources {
    /// Keys for sealing secrets, and for opening the secrets that the BBS itself needs.
    pub(crate) keys: Keys,
    /// HTTP client that posts completed tasks to their callback URLs.
    pub(crate) caller: Arc<Caller>,
}

impl SharedResources {
    /// Creates the resources. Callbacks may only call the targets in `allowed`.
    ///
    /// # Errors
    /// The certificates of the system cannot be used.
    pub(crate) fn new(keys: Keys, allowed: Allowed) -> Result<Self, RunError> {
        Ok(Self { keys, caller: Arc::new(Caller::new(allowed).map_err(RunError::Callbacks)?) })
    }
}

/// Runs a BBS until `stop` is cancelled. An entry that this program does not understand stops the machine.
/// The machine stays stopped until an operator quarantines the entry. A new machine then reads the log again,
/// as after a start of the program.
///
/// # Errors
/// The journal holds an entry that this program does not understand, the journal cannot be followed, or the
/// bus cannot be subscribed to.
pub(crate) async fn run(
    settings: Config,
    mut seed: u64,
    (lines, own): (Connections, SharedResources),
    watch: Arc<BbsMetrics>,
    stop: CancellationToken,
) -> Result<(), RunError> {
    loop {
        let listening = ElectionListener::subscribe(&lines.bus, Role::Bbs, settings.id.clone()).await?;
        let Some(log) = quarantine::current_cluster_log(&lines.journal, &stop).await? else {
            return Ok(());
        };
        listening.set_leader(log.leader(Role::Bbs));
        let cluster_id = log.cluster_id();
        let _named = founding::report(&lines.bus, format!("BBS {}", settings.id), move || cluster_id).await?;
        let begin = StartState::load(&lines.history, lines.cache.as_ref(), log.quarantined()).await;
        let machine = Bbs::new(settings.clone(), IdGenerator::new(seed));
        let who = (settings.id.clone(), settings.program.clone());
        let from = (log.quarantined(), begin, listening);
        let with = (lines.clone(), own.clone(), Arc::clone(&watch));
        if !run_machine(machine, who, from, with, &stop).await? {
            return Ok(());
        }
        tracing::warn!("the entry that stopped this BBS is quarantined: reading the log again");
        seed = clock::seed().map_err(RunError::Randomness)?;
    }
}

/// Runs one machine. Returns `true` if the machine stopped at an entry and an operator quarantined the entry.
/// In this case a new machine can continue.
async fn run_machine(
    machine: Bbs,
    who: (ServiceId, Program),
    (known, begin, listening): (&QuarantinedPositions, StartState, ElectionListener),
    (lines, own, watch): (Connections, SharedResources, Arc<BbsMetrics>),
    stop: &CancellationToken,
) -> Result<bool, RunError> {
    let StartState { past, from: (reader, world) } = begin;
    let position = world.position();
    let last_on = reader.ends().iter().map(|(subject, end)| (subject.to_string(), end.position)).collect();
    let quarantine_reasons =
        reader.quarantined().last.iter().map(|none| (none.position, none.reason.clone())).collect();
    let of_cluster = quarantine::cluster_reader(&lines.journal, known, position).await?;
    let (inputs, happened) = mpsc::channel(INPUT_CAPACITY);
    let (refusals, refused) = mpsc::channel(REFUSALS_WAITING);
    let (feed, fed) = Feed::new();
    let (decided, folded) = DecisionReporter::new(lines.traces.is_some());
    let mut inbox = BbsInputs { events: happened, asked: Arc::default() };
    let ends = stop.child_token();
    let beating = PresencePublisher::new(lines.bus.clone(), Role::Bbs, who.clone());
    let driver = Arc::new(Driver {
        id: who.0,
        services: ServiceClient::new(lines.bus.clone()),
        looking: PastQueries::new(lines.history.clone(), lines.cache.clone(), past),
        lines,
        inputs,
        asked: Arc::clone(&inbox.asked),
        waiting: PendingRequests::default(),
        budgets: Budgets::new(),
        refusals,
        feed,
        decided,
        reading: QueryPool::default(),
        scans: Semaphore::new(MAX_CONCURRENT_SCANS),
        caller: own.caller,
        keys: own.keys,
        watch,
        leading: Mutex::new(CancellationToken::new()),
        beats: LeaderHeartbeats::new(Role::Bbs),
        reader: Mutex::new(of_cluster),
        followed: watch::Sender::new(position),
        followed_bytes: AtomicU64::new(0),
        last_positions: Mutex::new(last_on),
        decides: CancellationToken::new(),
        ends,
        fatal: Mutex::new(None),
        stopped: OnceLock::new(),
        last_leader_heartbeat: Mutex::new(None),
        quarantine_reasons: Mutex::new(quarantine_reasons),
    });
    inbox::listen(&driver, &driver.ends).await?;
    let mut machine = Box::new(machine.with_log(reader, world).with_election(listening.into_election()));
    if !machine.may_lead() {
        // A read-only BBS subscribes to commands as well, because it may be the only BBS. Its machine refuses
        // every command.
        inbox::listen_to_commands(&driver, &driver.ends).await?;
    }
    let mut tasks = spawn_tasks(&driver);
    spawn_responders(&driver, refused, (fed, folded));
    let watch = Arc::clone(&driver.watch);
    watch.set_driver(&driver);
    let say = |standing, may_lead| beating.say(standing, may_lead, watch.append_problem());
    drive(
        &mut *machine,
        &mut inbox,
        driver.decides.clone(),
        |effect| driver.perform(effect),
        (say, BbsObserver::new(&watch)),
    )
    .await;
    watch.mark_idle();
    if let Some(beat) = machine.final_heartbeat() {
        driver.beats.step_down(&driver.services, &beat).await;
    }
    tasks.abort_all();
    shut_down(&driver, machine, known, stop).await
}

/// Spawns the background tasks that run as long as the machine.
fn spawn_tasks(driver: &Arc<Driver>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(driver).follow());
    tasks.spawn(Arc::clone(driver).watch_connection());
    tasks.spawn(Arc::clone(driver).wait_until_settled());
    tasks.spawn(Arc::clone(driver).read_server_clock());
    tasks.spawn(Arc::clone(driver).check_log());
    tasks
}

/// Shuts down the driver of a machine. Returns `true` if a new machine can continue.
async fn shut_down(
    driver: &Arc<Driver>,
    machine: Box<Bbs>,
    known: &QuarantinedPositions,
    stop: &CancellationToken,
) -> Result<bool, RunError> {
    driver.set_listening(false);
    if let Some(why) = driver.stopped() {
        driver.refuse_all(why).await;
        // The stopped BBS continues to serve the log. An operator can quarantine the entry at which the BBS
        // stopped.
        inbox::listen_to_operators(driver, &driver.ends).await?;
        let goes_on = quarantine::wait_for_change(&driver.lines.journal, known, &driver.ends).await;
        driver.ends.cancel();
        return if goes_on? { Ok(true) } else { Err(why.clone().into()) };
    }
    if stop.is_cancelled()
        && let Err(error) = driver.looking.keep_last(machine).await
    {
        tracing::warn!("can't save a snapshot for the next start: {}", chain(&error));
    }
    let fatal = driver.fatal.lock().take();
    fatal.map_or(Ok(false), Err)
}

/// Parses a timestamp of a NATS server (RFC 3339).
pub fn parse_server_time(text: &str) -> Option<Timestamp> {
    let time = text.parse::<jiff::Timestamp>().ok()?;
    u64::try_from(time.as_nanosecond()).ok().map(Timestamp)
}

/// Spawns the tasks that answer queries, send refusals and publish entries. The tasks run until the driver
/// ends.
fn spawn_responders(
    driver: &Arc<Driver>,
    refused: mpsc::Receiver<(ReplyTo, Refusal)>,
    (fed, folded): (mpsc::Receiver<FeedEntry>, mpsc::Receiver<FoldedEntry>),
) {
    tokio::spawn(Arc::clone(driver).send_refusals(refused));
    tokio::spawn(feed::tell(driver.lines.queries.clone(), fed, driver.ends.clone()));
    let (traces, watch) = (driver.lines.traces.clone(), Arc::clone(&driver.watch));
    tokio::spawn(decision_reports::report_decisions(folded, traces, watch, driver.ends.clone()));
    for kind in [query_pool::QueryKind::Rows, query_pool::QueryKind::Records] {
        (0..query_pool::thread_count()).for_each(|_| drop(tokio::spawn(Arc::clone(driver).read(kind))));
    }
    tokio::spawn(Arc::clone(driver).answer_past_queries());
    tokio::spawn(Arc::clone(driver).maintain_snapshot_index());
}

/// Converts facts about the stream to the row that queries return.
fn log_row(facts: Facts, unreadable: Option<String>) -> LogRow {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let behind = facts.others.iter().filter(|replica| !replica.in_sync);
    LogRow {
        replicas: count(facts.replicas),
        replicas_in_sync: count(facts.in_sync()),
        behind: behind.map(|replica| replica.name.clone()).collect(),
        entries: facts.entries,
        bytes: facts.bytes,
        max_bytes: facts.max_bytes,
        unreadable,
        hazards: facts.hazards,
    }
}

impl Driver {
    /// Ends the program because of an error that only an operator can fix.
    fn halt(&self, why: RunError) {
        self.fatal.lock().get_or_insert(why);
        self.ends.cancel();
    }

    /// Stops the machine because the log holds an entry that this program does not understand. A stopped BBS
    /// only serves the log.
    fn stop_deciding(&self, why: UnreadableEntry) {
        // The reason is set before the message below is logged, so that replies never contradict the message.
        let (why, _) = self.stopped.get_or_init(|| (why, Instant::now()));
        self.watch.set_stop_reason(&why.to_string());
        tracing::error!(
            "{why}. No data is lost. This BBS has stopped deciding and only serves the log (muster events). \
             To quarantine the entry: muster journal quarantine POSITION --reason TEXT"
        );
        self.decides.cancel();
    }

    /// Refuses all requests that wait for the stopped machine.
    async fn refuse_all(&self, why: &UnreadableEntry) {
        let refusal = Refusal::new(Code::Unavailable, format!("this BBS has stopped: {why}"));
        for waiter in self.waiting.take_all() {
            if let ReplyTarget::Bus(BusCaller { to, form, .. }) = waiter {
                send_reply::<()>(self.services.bus(), &to, form, Err(refusal.clone())).await;
            }
        }
    }

    /// Returns the reason for the stop of the machine. `None` if the machine has not stopped.
    pub(super) fn stopped(&self) -> Option<&UnreadableEntry> {
        self.stopped.get().map(|(why, _)| why)
    }

    /// Records the arrival of a leader heartbeat.
    pub(super) fn record_leader_heartbeat(&self) {
        *self.last_leader_heartbeat.lock() = Some(Instant::now());
    }

    /// Quarantines the entry at a position. If another BBS leads, the request is refused, because that BBS
    /// can read the entry.
    pub(super) async fn quarantine(
        &self,
        order: QuarantineOrder,
        patience: Option<Duration>,
    ) -> Result<Ack, Refusal> {
        let heard = *self.last_leader_heartbeat.lock();
        if let (Some((_, stopped)), Some(heard)) = (self.stopped.get(), heard)
            && heard.duration_since(*stopped) > STOP_GRACE_PERIOD
            && heard.elapsed() < LEADER_TIMEOUT
        {
            let why = format!("another BBS leads and can read position {}: upgrade this BBS", order.position);
            return Err(Refusal::new(Code::Unavailable, why));
        }
        quarantine::record_quarantine(&self.lines.journal, order, patience).await
    }

    /// Stores the reason for the quarantine of an entry. Reads of the log return the reason.
    fn record_quarantine_reason(&self, none: QuarantinedEntry) {
        let QuarantinedEntry { position, subject, reason } = none;
        SET_ASIDE.log(|| {
            let (subject, why) = (truncated(&subject.to_string()), truncated(&reason));
            tracing::warn!(%position, "position {position} on {subject} is quarantined: {why}");
        });
        let mut all = self.quarantine_reasons.lock();
        all.insert(position, reason);
        if all.len() > QUARANTINE_REASONS {
            all.pop_first();
        }
    }

    /// Returns the reason for the quarantine of a position. `None` if the reason is not known.
    pub(super) fn quarantine_reason(&self, position: Position) -> Option<String> {
        self.quarantine_reasons.lock().get(&position).cloned()
    }

    /// Passes the time of the NATS server to the machine at intervals. Returns if the journal has no server.
    async fn read_server_clock(self: Arc<Self>) {
        loop {
            let asked = Instant::now();
            match self.lines.history.server_time().await {
                Ok(None) => return,
                Ok(Some(time)) => {
                    let clock = parse_server_time(&time).map(|time| time + asked.elapsed() / 2);
                    if let Some(clock) = clock {
                        self.feed(Input::ServerClock(clock)).await;
                    }
                }
                Err(error) => tracing::debug!("can't read the clock of the NATS server: {}", chain(&error)),
            }
            tokio::time::sleep(SERVER_CLOCK_INTERVAL).await;
        }
    }

    async fn watch_connection(self: Arc<Self>) {
        let mut was = true;
        loop {
            tokio::time::sleep(CONNECTION_CHECK_INTERVAL).await;
            let is = self.services.bus().is_connected();
            match (was, is) {
                (true, false) => self.feed(Input::Disconnected).await,
                (false, true) => self.feed(Input::Reconnected).await,
                (true, true) | (false, false) => {}
            }
            was = is;
        }
    }

    /// Returns a copy of the reader. The reader distinguishes valid entries from quarantined entries.
    pub(super) fn reader(&self) -> Reader {
        self.reader.lock().clone()
    }

    /// Returns a receiver of the last followed position.
    pub(super) fn followed(&self) -> watch::Receiver<Position> {
        self.followed.subscribe()
    }

    /// Returns the number of bytes of followed entries since the start.
    pub(super) fn followed_bytes(&self) -> u64 {
        self.followed_bytes.load(Ordering::Relaxed)
    }

    /// Returns the last followed position on a subject.
    pub(super) fn last_position(&self, subject: &Subject) -> Position {
        self.last_positions.lock().get(&subject.to_string()).copied().unwrap_or_default()
    }

    fn note_position(&self, subject: &str, position: Position) {
        let mut last = self.last_positions.lock();
        match last.get_mut(subject) {
            Some(known) => *known = position,
            None => drop(last.insert(subject.to_owned(), position)),
        }
    }

    async fn follow(self: Arc<Self>) {
        let after = *self.followed.borrow();
        let recorded = |recorded: StoredEntry| {
            let StoredEntry { position, subject, entry, bytes } = recorded;
            if subject.strip_prefix(EVENT_ROOT) == Some("cluster") {
                // The machine reports errors in this entry.
                drop(self.reader.lock().read(position, &subject, &bytes));
            }
            self.note_position(&subject, position);
            self.followed_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            self.followed.send_replace(position);
            Ok(Some(Input::Delivered { position, subject, entry, bytes }))
        };
        match follower::follow(&self.lines.journal, after, &self.inputs, Input::CaughtUp, recorded).await {
            Ok(()) => {}
            Err(ended) => self.halt(ended),
        }
    }

    /// Queues a request for the machine under the name of its caller.
    pub(super) fn queue_request(&self, waiter: ReplyTarget, input: impl FnOnce(u64) -> Input) {
        let name = waiter.name().to_owned();
        self.asked.push(&name, input(self.waiting.add(waiter)));
    }

    /// Queues a refusal. The refusal is sent in JSON, which every caller can decode.
    pub(super) async fn refuse(&self, to: ReplyTo, refusal: Refusal) {
        self.watch.commands.record_refusal(refusal.code);
        drop(self.refusals.send((to, refusal)).await);
    }

    async fn send_refusals(self: Arc<Self>, mut refused: mpsc::Receiver<(ReplyTo, Refusal)>) {
        while let Some(Some((to, refusal))) = self.ends.run_until_cancelled(refused.recv()).await {
            send_reply::<()>(&self.lines.queries, &to, Form::Json, Err(refusal)).await;
        }
    }

    /// Answers queries of one kind, one after the other, until the driver ends.
    async fn read(self: Arc<Self>, kind: query_pool::QueryKind) {
        while let Some(asked) = self.ends.run_until_cancelled(self.reading.next(kind)).await {
            let (waiter, reply) = self.reading.answer(asked).await;
            self.reply(waiter, reply).await;
        }
    }

    /// Sends an input to the machine. Does nothing if the machine has ended.
    pub(super) async fn feed(&self, input: Input) {
        drop(self.inputs.send(input).await);
    }

    fn perform(self: &Arc<Self>, effect: Effect) {
        match effect {
            Effect::Leading(true) => tracing::info!("this BBS leads"),
            Effect::Leading(false) => tracing::info!("this BBS does not lead"),
            Effect::Subscribed(listens) => self.set_listening(listens),
            Effect::Quarantined(none) => self.record_quarantine_reason(none),
            Effect::Publish { cluster, position, entry } => {
                self.decided.enqueue(position, Arc::clone(&entry), &self.watch);
                if !self.feed.enqueue(FeedEntry { cluster, position, entry }) {
                    self.watch.feed_dropped.add();
                }
            }
            Effect::Warn(text) => WARNED.log(|| tracing::warn!("{}", truncated(&text))),
            Effect::Halt(why) => self.stop_deciding(UnreadableEntry(why)),
            Effect::AnswerQuery { requester, query, picture, observed } => {
                let waiter = match self.waiting.take(requester) {
                    None => return,
                    Some(ReplyTarget::Observer(sender)) => return drop(sender.send((picture, observed))),
                    Some(waiter @ (ReplyTarget::Bus(..) | ReplyTarget::Driver(_))) => waiter,
                };
                match query {
                    bbs::Query::Rows(rows) if let Some(as_of) = rows.as_of() => {
                        self.looking.enqueue(waiter, rows, as_of, *observed);
                    }
                    query @ (bbs::Query::Rows(_) | bbs::Query::Records(_)) => {
                        self.reading.enqueue(waiter, query, picture, *observed);
                    }
                }
            }
            effect @ (Effect::Append { .. }
            | Effect::ReadLast(_)
            | Effect::Reply { .. }
            | Effect::Stop(..)
            | Effect::Cancel(..)
            | Effect::Enter(..)
            | Effect::Probe(..)
            | Effect::Evacuate(..)
            | Effect::Uncordon(..)
            | Effect::Dismiss(..)
            | Effect::LeaderHeartbeat(_)
            | Effect::Call { .. }) => {
                let driver = Arc::clone(self);
                run_or_spawn(async move { driver.perform_async(effect).await });
            }
        }
    }

    async fn perform_async(&self, effect: Effect) {
        match effect {
            Effect::Append { subject, expected, entry, bytes } => {
                let append = Append { subject: subject.clone(), expected, entry, bytes };
                let begin = Instant::now();
                let appended = self.lines.journal.append(append).await;
                self.watch.record_append(begin.elapsed(), appended.as_ref().err());
                if let Err(error) = appended {
                    let why = match error {
                        AppendError::Conflict => AppendFailure::Conflict,
                        AppendError::Unknown(source) => self.unknown(&source).await,
                        AppendError::NotStored(why) => AppendFailure::NotStored(why),
                        AppendError::Refused(why) => AppendFailure::Refused(why),
                    };
                    self.feed(Input::NotAppended { subject, entry, why }).await;
                }
            }
            Effect::ReadLast(subject) => self.read_last(subject).await,
            Effect::Reply { requester, reply } => {
                if let Some(waiter) = self.waiting.take(requester) {
                    self.reply(waiter, reply).await;
                }
            }
            Effect::Stop(cell, stop) => {
                self.services.notify(&BusSubject::Rep(cell, RepVerb::Stop).to_string(), &stop).await;
            }
            Effect::Cancel(cell, cancel) => {
                self.services.notify(&BusSubject::Rep(cell, RepVerb::Cancel).to_string(), &cancel).await;
            }
            Effect::Enter(cell, enter) => {
                self.services.notify(&BusSubject::Rep(cell, RepVerb::Exec).to_string(), &enter).await;
            }
            Effect::Probe(cell, order) => {
                let answer = self.send_order(&cell, RepVerb::State, order).await;
                self.feed(Input::ProbeResult { cell, answer }).await;
            }
            Effect::Evacuate(cell, order) => self.send_evacuation(cell, RepVerb::Evacuate, order).await,
            Effect::Uncordon(cell, order) => self.send_evacuation(cell, RepVerb::Uncordon, order).await,
            Effect::Dismiss(cell, dismiss) => {
                self.services.notify(&BusSubject::Rep(cell, RepVerb::Dismiss).to_string(), &dismiss).await;
            }
            Effect::LeaderHeartbeat(beat) => {
                self.beats.say(&self.services, &beat).await;
            }
            Effect::Call { task, epoch, domain, url, body } => {
                let called = self.call(&task, domain, &url, body).await;
                tracing::info!(%task, ?called, "completion callback");
                self.watch.called(&called);
                self.feed(Input::CallResult { task, epoch, called }).await;
            }
            Effect::Leading(_)
            | Effect::Subscribed(_)
            | Effect::Quarantined(_)
            | Effect::Warn(_)
            | Effect::Halt(_)
            | Effect::Publish { .. }
            | Effect::AnswerQuery { .. } => {}
        }
    }

    /// Returns the reason why the outcome of an append is unknown. A NATS server may state the reason on its
    /// health endpoint. The embedded journal always states the reason.
    async fn unknown(&self, source: &JournalError) -> AppendFailure {
        if let Some(why) = self.lines.journal.write_error().await {
            return AppendFailure::Unknown { why, stated: true };
        }
        let stated = !matches!(self.lines.journal, Journal::JetStream(_));
        AppendFailure::Unknown { why: chain(source), stated }
    }

    /// Checks the stream that holds the log at intervals. The checks detect a loss of the stream even if
    /// nothing is appended.
    async fn check_log(self: Arc<Self>) {
        let mut checks = tokio::time::interval(STREAM_CHECK_INTERVAL);
        loop {
            checks.tick().await;
            let found = match self.lines.history.facts().await {
                // The embedded journal has no stream.
                Ok(None) => return,
                Ok(Some(facts)) => Ok(Some(log_row(facts, self.lines.journal.unreadable_reason()))),
                Err(error) => {
                    let absent = matches!(error, JournalError::Absent);
                    Err(LogCheckError { why: chain(&error), absent })
                }
            };
            self.feed(Input::LogChecked(found)).await;
        }
    }

    async fn read_last(&self, subject: Subject) {
        let last = match self.lines.journal.last(&subject).await {
            Ok(last) => Ok(last.map(|recorded| (recorded.position, recorded.entry))),
            Err(error) => Err(error.to_string()),
        };
        self.feed(Input::LastEntry { subject, last }).await;
    }

    pub(super) async fn reply(&self, waiter: ReplyTarget, reply: Reply) {
        let BusCaller { to, form, read_scope: _, ticket: _ticket, asked } = match waiter {
            ReplyTarget::Bus(asker) => asker,
            ReplyTarget::Driver(sender) => return drop(sender.send(reply)),
            // Dropping the sender notifies the observer that no snapshot follows.
            ReplyTarget::Observer(_) => return,
        };
        match &reply {
            Reply::Done(done) => self.watch.commands.answered(asked, done),
            Reply::Reported(reported) => self.watch.commands.answered(asked, reported),
            Reply::Rows(_) | Reply::Records(_) => {}
        }
        let (bus, queries) = (self.services.bus(), &self.lines.queries);
        match reply {
            Reply::Done(done) => send_reply(bus, &to, form, done).await,
            Reply::Reported(reported) => send_reply(bus, &to, form, reported).await,
            Reply::Records(records) => send_reply(queries, &to, form, Ok(records)).await,
            Reply::Rows(Err(refusal)) => send_reply::<()>(queries, &to, form, Err(refusal)).await,
            Reply::Rows(Ok(rows)) => {
                // Rows are JSON text already. Only the envelope is added.
                let text = format!(r#"{{"ok":{rows}}}"#);
                if let Err(error) = queries.reply(&to, text.into()).await {
                    tracing::debug!(%error, "reply not sent");
                }
            }
        }
    }

    /// Forwards the reply of another BBS to the caller.
    pub(super) async fn forward_reply(&self, waiter: ReplyTarget, answer: bytes::Bytes) {
        if let ReplyTarget::Bus(BusCaller { to, .. }) = &waiter
            && let Err(error) = self.lines.queries.reply(to, answer).await
        {
            tracing::debug!(%error, "reply not sent");
        }
    }

    /// Sends an order to a rep. The rep replies with the state of its cell.
    async fn send_order(&self, cell: &CellId, verb: RepVerb, order: RepOrder) -> Option<Heartbeat> {
        let subject = BusSubject::Rep(cell.clone(), verb).to_string();
        let answer: Option<Result<Heartbeat, Refusal>> =
            self.services.request(&subject, &order, PROBE_TIMEOUT).await;
        answer.and_then(Result::ok)
    }

    /// Sends an evacuation order to a rep. If the rep does not reply, the driver repeats the order after the
    /// rep's next heartbeat. A missing reply does not count as silence of the cell.
    async fn send_evacuation(&self, cell: CellId, verb: RepVerb, order: RepOrder) {
        let answer = self.send_order(&cell, verb, order).await;
        if answer.is_some() {
            self.feed(Input::ProbeResult { cell, answer }).await;
        }
    }

    /// Posts a completed task to its callback URL. A sealed URL is opened for this call.
    async fn call(&self, task: &TaskGuid, domain: Domain, url: &Secret, body: String) -> CallbackResult {
        let place = Binding { domain, owner: Owner::of_task(task), purpose: Purpose::CallbackUrl };
        let text = match self.keys.text(&place, url) {
            Ok(text) => text,
            Err(error) => {
                return CallbackResult::Failed(format!("the URL {}", error.describe_for("this BBS")));
            }
        };
        self.caller.call(&text, url.plain().is_none(), body).await
    }

    /// Subscribes to commands, or unsubscribes because another BBS handles them.
    fn set_listening(self: &Arc<Self>, listens: bool) {
        let mut leading = self.leading.lock();
        leading.cancel();
        *leading = self.ends.child_token();
        if listens {
            let (driver, token) = (Arc::clone(self), leading.clone());
            tokio::spawn(async move {
                if let Err(error) = inbox::listen_to_commands(&driver, &token).await {
                    driver.halt(error.into());
                }
            });
        }
    }

    /// Waits until the driver is stopped. Ends the machine once the log contains the machine's decisions or a
    /// timeout expires. A stopped BBS takes no requests.
    async fn wait_until_settled(self: Arc<Self>) {
        self.ends.cancelled().await;
        let settled = async {
            while self.watch.is_deciding() {
                tokio::time::sleep(SETTLE_POLL_INTERVAL).await;
            }
        };
        if tokio::time::timeout(SETTLE_TIMEOUT, settled).await.is_err() {
            tracing::warn!("stopped before all decisions were recorded");
        }
        self.decides.cancel();
    }

    /// Queries the machine on behalf of this driver. Used for requests that the machine can answer only in
    /// part.
    pub(super) async fn query(&self, query: projections::Query) -> Result<String, Refusal> {
        let (sender, receiver) = oneshot::channel();
        let query = bbs::Query::Rows(query);
        self.queue_request(ReplyTarget::Driver(sender), |requester| Input::Query {
            requester,
            at_least: None,
            query,
        });
        match receiver.await {
            Ok(Reply::Rows(rows)) => rows,
            Ok(Reply::Done(_) | Reply::Reported(_) | Reply::Records(_)) | Err(_) => {
                Err(Refusal::new(Code::Unavailable, "the BBS is stopping"))
            }
        }
    }

    /// Returns a World snapshot. Also returns observations of the BBS that the log does not contain. `None`
    /// if no snapshot is available.
    pub(super) async fn world_snapshot(&self) -> Option<(WorldSnapshot, Box<Observed>)> {
        if self.stopped().is_some() {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        let query = bbs::Query::Rows(projections::Query::Cluster(Filter::default()));
        self.queue_request(ReplyTarget::Observer(sender), |requester| Input::Query {
            requester,
            at_least: None,
            query,
        });
        receiver.await.ok()
    }

    /// Forwards a request to another service, and returns its reply.
    pub(super) async fn relay<Q, A>(&self, subject: &str, question: &Q) -> Result<A, Refusal>
    where
        Q: serde::Serialize,
        A: serde::de::DeserializeOwned,
    {
        let bytes = schemas::codec::encode(Form::Json, question);
        let answered = self.services.bus().request(subject, bytes.into(), REQUEST_TIMEOUT).await;
        let bytes = answered.map_err(|error| Refusal::new(Code::Unavailable, error.to_string()))?;
        let (answer, _) = schemas::codec::decode::<Answer<A>>(&bytes)?;
        answer.into()
    }
}
