//! Effect driver of a BBS: the journal, replies, orders to reps, and callbacks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bbs::callbacks::Called;
use bbs::{Bbs, Effect, Input, LogUnread, NotAppended, Reply, Settings};
use bus::{Bus, LogLimit, ReplyTo, brief};
use journal::{Append, AppendError, Facts, Journal, JournalError, Recorded};
use projections::cluster_log::{Positions, SetAsideOrder};
use projections::{Observed, Picture, Reader};
use schemas::action::Secret;
use schemas::bus::{BusSubject, LeaderRole, RepVerb};
use schemas::cluster::Role;
use schemas::codec::Form;
use schemas::limits::{REFUSALS_WAITING, SET_ASIDE_EXPLAINED};
use schemas::message::{Answer, Done, Heartbeat, Program, RepOrder};
use schemas::names::{CellId, Domain, Ids, ServiceId, TaskGuid};
use schemas::query::{Filter, LogRow, MalformedEntry};
use schemas::secret::{Owner, Place, Purpose};
use schemas::sight::Sight;
use schemas::subject::{EVENT_ROOT, Position, Subject};
use schemas::{Code, Refusal, Timestamp};
use secrets::Keys;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::asking::{PATIENCE, Services, Waiting, answer};
use super::beating::{Beating, LeaderBeats};
use super::budget::{Budgets, Ticket};
use super::decided::{self, Decided, Folded};
use super::drive::{INPUTS, begin, drive};
use super::ended::{Ended, Unreadable};
use super::feed::{self, Fed, Feed};
use super::following;
use super::founding;
use super::lanes::{Inputs, Lanes};
use super::listening::Listening;
use super::past::{Begin, Cache, Looking};
use super::reading::{self, Reading};
use super::watching::bbs::{BbsOnlooker, BbsWatch};
use super::watching::commands::Asked;
use super::{inbox, setting_aside};
use crate::callback::Caller;
use crate::callback::allow::Allowed;
use crate::error::chain;
use crate::otlp::Collector;

/// Maximum number of concurrent reads of the journal for history queries.
const SCANS_AT_ONCE: usize = 8;
/// Interval between checks of the bus connection. The machine learns of a lost connection, which is not
/// silence of the cells.
const CONNECTION: Duration = Duration::from_millis(250);
/// Interval between two readings of the NATS server's clock.
const SERVER_CLOCK: Duration = Duration::from_secs(5);
/// Interval between checks of the stream that holds the log.
const CHECK: Duration = Duration::from_secs(5);
/// Timeout of a probe of a rep.
const PROBE: Duration = Duration::from_secs(2);

/// Grace period after this BBS stopped deciding. Leader heartbeats that arrive later come from a BBS that
/// does not stop at the same entry.
const OTHERS_STOP: Duration = Duration::from_secs(1);
/// Maximum time that a stopping BBS waits for its entries to be recorded.
const SETTLE: Duration = Duration::from_millis(500);
const SETTLE_LOOK: Duration = Duration::from_millis(5);
/// Maximum age of the last leader heartbeat for another BBS to count as the leader.
const LEADS: Duration = Duration::from_secs(2);

static WARNED: LogLimit = LogLimit::new();
static SET_ASIDE: LogLimit = LogLimit::new();

/// Destination of a reply from the state machine.
#[derive(Debug)]
pub(super) enum Waiter {
    /// A caller on the bus.
    Bus(Asker),
    /// This driver, for a request that needs more than the machine knows.
    Driver(oneshot::Sender<Reply>),
    /// An observer that takes a World snapshot instead of a reply.
    Watch(oneshot::Sender<(Picture, Box<Observed>)>),
}

/// A caller on the bus.
#[derive(Debug)]
pub(super) struct Asker {
    pub(super) to: ReplyTo,
    /// Encoding of the request.
    pub(super) form: Form,
    /// Read scope of the caller.
    pub(super) sight: Sight,
    /// Counts against the budget of the caller until the reply is sent.
    pub(super) ticket: Ticket,
    /// The command, for metrics. `None` for a query.
    pub(super) asked: Option<Asked>,
}

impl Waiter {
    /// Returns the client name that the request is queued under.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Bus(asker) => asker.ticket.name(),
            Self::Driver(_) | Self::Watch(_) => "bbs",
        }
    }

    /// Returns the read scope of the caller.
    pub(super) fn sight(&self) -> Sight {
        match self {
            Self::Bus(asker) => asker.sight.clone(),
            Self::Driver(_) | Self::Watch(_) => Sight::Everything,
        }
    }
}

/// Connections of a BBS. Bulk queries use connections of their own so that they never delay commands or
/// orders.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
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

impl Lines {
    /// Creates connections within one process, where one of each kind is sufficient.
    pub(crate) fn within(journal: Journal, bus: Bus, cache: Option<Cache>) -> Self {
        Self { history: journal.clone(), queries: bus.clone(), journal, bus, cache, traces: None }
    }
}

/// Resources of a BBS that all its machines share.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    /// Keys that seal secrets, and open those that the BBS needs.
    pub(crate) keys: Keys,
    /// Client that calls the owners of completed tasks.
    pub(crate) caller: Arc<Caller>,
}

impl Own {
    /// Creates the resources. Callbacks are limited to `allowed`.
    ///
    /// # Errors
    /// The certificates of the system cannot be used.
    pub(crate) fn new(keys: Keys, allowed: Allowed) -> Result<Self, Ended> {
        Ok(Self { keys, caller: Arc::new(Caller::new(allowed).map_err(Ended::Callbacks)?) })
    }
}

/// Performs the effects of one machine, and feeds it inputs.
pub(super) struct Driver {
    /// Id of this BBS, which is part of its cursors.
    pub(super) id: ServiceId,
    pub(super) lines: Lines,
    pub(super) services: Services,
    /// Queue of events for the machine.
    pub(super) inputs: mpsc::Sender<Input>,
    /// Admission queue of requests to the machine.
    asked: Arc<Lanes<Input>>,
    pub(super) waiting: Waiting<Waiter>,
    /// Limits of in-flight requests per client.
    pub(super) budgets: Budgets,
    /// Queue of refusals to send, so that a client that floods the BBS does not delay other clients.
    refusals: mpsc::Sender<(ReplyTo, Refusal)>,
    /// Queue of entries to publish on the feed.
    feed: Feed,
    /// Queue of entries to log and to send as spans.
    decided: Decided,
    /// Queues of queries about the present.
    pub(super) reading: Reading,
    /// Queue of queries about the past.
    pub(super) looking: Looking,
    /// Permits for concurrent reads of the journal by history queries.
    pub(super) scans: Semaphore,
    /// Client that calls the owners of completed tasks.
    caller: Arc<Caller>,
    /// Keys that seal secrets before commands reach the machine.
    pub(super) keys: Keys,
    /// Metrics of the BBS.
    pub(super) watch: Arc<BbsWatch>,
    leading: Mutex<CancellationToken>,
    beats: LeaderBeats,
    /// Reader with the current state of the cluster's subject, for reads of the log.
    reader: Mutex<Reader>,
    /// Last followed position.
    followed: watch::Sender<Position>,
    /// Number of bytes of followed entries since the start.
    followed_bytes: AtomicU64,
    /// Last followed position on each subject.
    last_on: Mutex<BTreeMap<String, Position>>,
    pub(super) ends: CancellationToken,
    fatal: Mutex<Option<Ended>>,
    /// Reason and time of the stop of the machine. Unset while the machine decides.
    stopped: OnceLock<(Unreadable, Instant)>,
    /// Time of the last leader heartbeat.
    leader_heard: Mutex<Option<Instant>>,
    /// Reasons for the newest quarantined entries, by position.
    set_aside: Mutex<BTreeMap<Position, String>>,
    decides: CancellationToken,
}

/// Runs a BBS until `stop` is cancelled. An entry that this program does not understand stops the machine
/// until an operator quarantines the entry. A new machine then reads the log again, as after a start.
///
/// # Errors
/// The journal holds an entry that this program does not understand, the journal cannot be followed, or the
/// bus cannot be subscribed to.
pub(crate) async fn run(
    settings: Settings,
    mut seed: u64,
    (lines, own): (Lines, Own),
    watch: Arc<BbsWatch>,
    stop: CancellationToken,
) -> Result<(), Ended> {
    loop {
        let listening = Listening::begin(&lines.bus, LeaderRole::Bbs, settings.id.clone()).await?;
        let Some(log) = setting_aside::log_so_far(&lines.journal, &stop).await? else { return Ok(()) };
        listening.know(log.leader(Role::Bbs));
        let cluster_id = log.cluster_id();
        let _named = founding::report(&lines.bus, format!("BBS {}", settings.id), move || cluster_id).await?;
        let begin = Begin::of(&lines.history, lines.cache.as_ref(), log.positions()).await;
        let machine = Bbs::new(settings.clone(), Ids::new(seed));
        let who = (settings.id.clone(), settings.program.clone());
        let from = (log.positions(), begin, listening);
        let with = (lines.clone(), own.clone(), Arc::clone(&watch));
        if !run_machine(machine, who, from, with, &stop).await? {
            return Ok(());
        }
        tracing::warn!("an operator has set aside what stopped this BBS: it reads the log again and goes on");
        seed = clock::seed().map_err(Ended::Randomness)?;
    }
}

/// Runs one machine. Returns `true` if it stopped at an entry that was then quarantined, so that a new
/// machine can continue.
async fn run_machine(
    machine: Bbs,
    who: (ServiceId, Program),
    (known, begin, listening): (&Positions, Begin, Listening),
    (lines, own, watch): (Lines, Own, Arc<BbsWatch>),
    stop: &CancellationToken,
) -> Result<bool, Ended> {
    let Begin { past, from: (reader, world) } = begin;
    let position = world.position();
    let last_on = reader.ends().iter().map(|(subject, end)| (subject.to_string(), end.position)).collect();
    let set_aside = reader.set_aside().last.iter().map(|none| (none.position, none.why.clone())).collect();
    let of_cluster = setting_aside::cluster_reader(&lines.journal, known, position).await?;
    let (inputs, happened) = mpsc::channel(INPUTS);
    let (refusals, refused) = mpsc::channel(REFUSALS_WAITING);
    let (feed, fed) = Feed::new();
    let (decided, folded) = Decided::new(lines.traces.is_some());
    let mut inbox = Inputs { happened, asked: Arc::default() };
    let ends = stop.child_token();
    let beating = Beating::new(lines.bus.clone(), Role::Bbs, who.clone());
    let driver = Arc::new(Driver {
        id: who.0,
        services: Services::new(lines.bus.clone()),
        looking: Looking::new(lines.history.clone(), lines.cache.clone(), past),
        lines,
        inputs,
        asked: Arc::clone(&inbox.asked),
        waiting: Waiting::default(),
        budgets: Budgets::new(),
        refusals,
        feed,
        decided,
        reading: Reading::default(),
        scans: Semaphore::new(SCANS_AT_ONCE),
        caller: own.caller,
        keys: own.keys,
        watch,
        leading: Mutex::new(CancellationToken::new()),
        beats: LeaderBeats::new(LeaderRole::Bbs),
        reader: Mutex::new(of_cluster),
        followed: watch::Sender::new(position),
        followed_bytes: AtomicU64::new(0),
        last_on: Mutex::new(last_on),
        decides: CancellationToken::new(),
        ends,
        fatal: Mutex::new(None),
        stopped: OnceLock::new(),
        leader_heard: Mutex::new(None),
        set_aside: Mutex::new(set_aside),
    });
    inbox::listen(&driver, &driver.ends).await?;
    let mut machine = Box::new(machine.starting(reader, world).having_listened(listening.end()));
    if !machine.may_lead() {
        // No other BBS may be there to answer, so the machine of a read-only BBS refuses every command.
        inbox::listen_to_commands(&driver, &driver.ends).await?;
    }
    let mut tasks = spawn_tasks(&driver);
    answer_beside(&driver, refused, (fed, folded));
    let watch = Arc::clone(&driver.watch);
    watch.drives(&driver);
    let say = |standing, may_lead| beating.say(standing, may_lead, watch.append_trouble());
    drive(
        &mut *machine,
        &mut inbox,
        driver.decides.clone(),
        |effect| driver.perform(effect),
        (say, BbsOnlooker::new(&watch)),
    )
    .await;
    watch.rests();
    if let Some(beat) = machine.last_beat() {
        driver.beats.step_down(&driver.services, &beat).await;
    }
    tasks.abort_all();
    end(&driver, machine, known, stop).await
}

/// Spawns the background tasks that run as long as the machine.
fn spawn_tasks(driver: &Arc<Driver>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(driver).follow());
    tasks.spawn(Arc::clone(driver).watch_connection());
    tasks.spawn(Arc::clone(driver).settle());
    tasks.spawn(Arc::clone(driver).read_server_clock());
    tasks.spawn(Arc::clone(driver).check_log());
    tasks
}

/// Shuts down the driver of a machine. Returns `true` if a new machine can continue.
async fn end(
    driver: &Arc<Driver>,
    machine: Box<Bbs>,
    known: &Positions,
    stop: &CancellationToken,
) -> Result<bool, Ended> {
    driver.listen(false);
    if let Some(why) = driver.stopped() {
        driver.refuse_all(why).await;
        // The BBS still serves the log, and lets an operator quarantine the entry that stopped it.
        inbox::listen_to_operators(driver, &driver.ends).await?;
        let goes_on = setting_aside::changed(&driver.lines.journal, known, &driver.ends).await;
        driver.ends.cancel();
        return if goes_on? { Ok(true) } else { Err(why.clone().into()) };
    }
    if stop.is_cancelled()
        && let Err(error) = driver.looking.keep_last(machine).await
    {
        tracing::warn!("no snapshot is made for the next start: {}", chain(&error));
    }
    let fatal = lock(&driver.fatal).take();
    fatal.map_or(Ok(false), Err)
}

/// Parses a timestamp of a NATS server (RFC 3339).
pub(crate) fn moment(text: &str) -> Option<Timestamp> {
    let time = text.parse::<jiff::Timestamp>().ok()?;
    u64::try_from(time.as_nanosecond()).ok().map(Timestamp)
}

/// Spawns the tasks that answer queries, send refusals and publish entries, until the driver ends.
fn answer_beside(
    driver: &Arc<Driver>,
    refused: mpsc::Receiver<(ReplyTo, Refusal)>,
    (fed, folded): (mpsc::Receiver<Fed>, mpsc::Receiver<Folded>),
) {
    tokio::spawn(Arc::clone(driver).say_refusals(refused));
    tokio::spawn(feed::tell(driver.lines.queries.clone(), fed, driver.ends.clone()));
    let (traces, watch) = (driver.lines.traces.clone(), Arc::clone(&driver.watch));
    tokio::spawn(decided::tell(folded, traces, watch, driver.ends.clone()));
    for kind in [reading::Kind::Rows, reading::Kind::Records] {
        (0..reading::threads()).for_each(|_| drop(tokio::spawn(Arc::clone(driver).read(kind))));
    }
    tokio::spawn(Arc::clone(driver).look_back());
    tokio::spawn(Arc::clone(driver).build_ladder());
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

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Driver {
    /// Ends the program because of an error that only an operator can fix.
    fn halt(&self, why: Ended) {
        lock(&self.fatal).get_or_insert(why);
        self.ends.cancel();
    }

    /// Stops the machine because the log holds an entry that this program does not understand. From then on
    /// the BBS only serves the log.
    fn stop_deciding(&self, why: Unreadable) {
        // Set before the message below is logged, so that replies are consistent with it.
        let (why, _) = self.stopped.get_or_init(|| (why, Instant::now()));
        self.watch.stops(&why.to_string());
        tracing::error!(
            "{why}. Nothing is lost. This BBS decides nothing any more and only shows the log: muster events. If that \
             entry shall not count: muster journal set-aside POSITION --reason TEXT"
        );
        self.decides.cancel();
    }

    /// Refuses all requests that wait for the stopped machine.
    async fn refuse_all(&self, why: &Unreadable) {
        let refusal = Refusal::new(Code::Unavailable, format!("this BBS has stopped: {why}"));
        for waiter in self.waiting.take_all() {
            if let Waiter::Bus(Asker { to, form, .. }) = waiter {
                answer::<()>(self.services.bus(), &to, form, Err(refusal.clone())).await;
            }
        }
    }

    /// Returns the reason that the machine stopped. `None` if it has not stopped.
    pub(super) fn stopped(&self) -> Option<&Unreadable> {
        self.stopped.get().map(|(why, _)| why)
    }

    /// Records the arrival of a leader heartbeat.
    pub(super) fn heard_leader(&self) {
        *lock(&self.leader_heard) = Some(Instant::now());
    }

    /// Quarantines the entry at a position. Refused if another BBS leads, since that BBS can read the entry.
    pub(super) async fn set_aside(
        &self,
        order: SetAsideOrder,
        patience: Option<Duration>,
    ) -> Result<Done, Refusal> {
        let heard = *lock(&self.leader_heard);
        if let (Some((_, stopped)), Some(heard)) = (self.stopped.get(), heard)
            && heard.duration_since(*stopped) > OTHERS_STOP
            && heard.elapsed() < LEADS
        {
            let why =
                format!("another BBS leads that can read position {}: upgrade this one", order.position);
            return Err(Refusal::new(Code::Unavailable, why));
        }
        setting_aside::record(&self.lines.journal, order, patience).await
    }

    /// Keeps the reason for a quarantined entry, for reads of the log.
    fn explain(&self, none: MalformedEntry) {
        let MalformedEntry { position, subject, why } = none;
        SET_ASIDE.log(|| {
            let (subject, why) = (brief(&subject.to_string()), brief(&why));
            tracing::warn!(%position, "position {position} on {subject} is set aside: {why}");
        });
        let mut all = lock(&self.set_aside);
        all.insert(position, why);
        if all.len() > SET_ASIDE_EXPLAINED {
            all.pop_first();
        }
    }

    /// Returns the reason that a position is quarantined, if it is known.
    pub(super) fn why_set_aside(&self, position: Position) -> Option<String> {
        lock(&self.set_aside).get(&position).cloned()
    }

    /// Passes the time of the NATS server to the machine periodically. Returns if the journal has no server.
    async fn read_server_clock(self: Arc<Self>) {
        loop {
            let asked = Instant::now();
            match self.lines.history.server_time().await {
                Ok(None) => return,
                Ok(Some(time)) => {
                    let clock = moment(&time).map(|time| time + asked.elapsed() / 2);
                    if let Some(clock) = clock {
                        self.feed(Input::ServerClock(clock)).await;
                    }
                }
                Err(error) => tracing::debug!("the time of the server is not known: {}", chain(&error)),
            }
            tokio::time::sleep(SERVER_CLOCK).await;
        }
    }

    async fn watch_connection(self: Arc<Self>) {
        let mut was = true;
        loop {
            tokio::time::sleep(CONNECTION).await;
            let is = self.services.bus().is_connected();
            match (was, is) {
                (true, false) => self.feed(Input::Disconnected).await,
                (false, true) => self.feed(Input::Reconnected).await,
                (true, true) | (false, false) => {}
            }
            was = is;
        }
    }

    /// Returns the current reader, which distinguishes valid entries from quarantined ones.
    pub(super) fn reader(&self) -> Reader {
        lock(&self.reader).clone()
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
    pub(super) fn last_on(&self, subject: &Subject) -> Position {
        lock(&self.last_on).get(&subject.to_string()).copied().unwrap_or_default()
    }

    fn note_position(&self, subject: &str, position: Position) {
        let mut last = lock(&self.last_on);
        match last.get_mut(subject) {
            Some(known) => *known = position,
            None => drop(last.insert(subject.to_owned(), position)),
        }
    }

    async fn follow(self: Arc<Self>) {
        let after = *self.followed.borrow();
        let recorded = |recorded: Recorded| {
            let Recorded { position, subject, entry, bytes } = recorded;
            if subject.strip_prefix(EVENT_ROOT) == Some("cluster") {
                // The machine reports errors in this entry.
                drop(lock(&self.reader).read(position, &subject, &bytes));
            }
            self.note_position(&subject, position);
            self.followed_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            self.followed.send_replace(position);
            Ok(Some(Input::Recorded { position, subject, entry, bytes }))
        };
        match following::follow(&self.lines.journal, after, &self.inputs, Input::CaughtUp, recorded).await {
            Ok(()) => {}
            Err(ended) => self.halt(ended),
        }
    }

    /// Queues a request for the machine under the name of its caller.
    pub(super) fn ask_machine(&self, waiter: Waiter, input: impl FnOnce(u64) -> Input) {
        let name = waiter.name().to_owned();
        self.asked.put(&name, input(self.waiting.add(waiter)));
    }

    /// Queues a refusal. It is sent in JSON, which every caller can decode.
    pub(super) async fn refuse(&self, to: ReplyTo, refusal: Refusal) {
        self.watch.commands.refused(refusal.code);
        drop(self.refusals.send((to, refusal)).await);
    }

    async fn say_refusals(self: Arc<Self>, mut refused: mpsc::Receiver<(ReplyTo, Refusal)>) {
        while let Some(Some((to, refusal))) = self.ends.run_until_cancelled(refused.recv()).await {
            answer::<()>(&self.lines.queries, &to, Form::Json, Err(refusal)).await;
        }
    }

    /// Answers queries of one kind, one after the other, until the driver ends.
    async fn read(self: Arc<Self>, kind: reading::Kind) {
        while let Some(asked) = self.ends.run_until_cancelled(self.reading.next(kind)).await {
            let (waiter, reply) = self.reading.answer(asked).await;
            self.reply(waiter, reply).await;
        }
    }

    /// Sends an input to the machine. Ignored if the machine has ended.
    pub(super) async fn feed(&self, input: Input) {
        drop(self.inputs.send(input).await);
    }

    fn perform(self: &Arc<Self>, effect: Effect) {
        match effect {
            Effect::Leading(true) => tracing::info!("this BBS leads"),
            Effect::Leading(false) => tracing::info!("this BBS does not lead"),
            Effect::Listening(listens) => self.listen(listens),
            Effect::SetAside(none) => self.explain(none),
            Effect::Feed { cluster, position, entry } => {
                self.decided.put(position, Arc::clone(&entry), &self.watch);
                if !self.feed.put(Fed { cluster, position, entry }) {
                    self.watch.feed_left_out.add();
                }
            }
            Effect::Warn(text) => WARNED.log(|| tracing::warn!("{}", brief(&text))),
            Effect::Halt(why) => self.stop_deciding(Unreadable(why)),
            Effect::Show { requester, query, picture, observed } => {
                let waiter = match self.waiting.take(requester) {
                    None => return,
                    Some(Waiter::Watch(sender)) => return drop(sender.send((picture, observed))),
                    Some(waiter @ (Waiter::Bus(..) | Waiter::Driver(_))) => waiter,
                };
                match query {
                    bbs::Query::Rows(rows) if let Some(as_of) = rows.as_of() => {
                        self.looking.put(waiter, rows, as_of, *observed);
                    }
                    query @ (bbs::Query::Rows(_) | bbs::Query::Records(_)) => {
                        self.reading.put(waiter, query, picture, *observed);
                    }
                }
            }
            effect @ (Effect::Append { .. }
            | Effect::ReadLast(_)
            | Effect::Answer { .. }
            | Effect::Stop(..)
            | Effect::Cancel(..)
            | Effect::Enter(..)
            | Effect::Probe(..)
            | Effect::Evacuate(..)
            | Effect::Uncordon(..)
            | Effect::Dismiss(..)
            | Effect::Beat(_)
            | Effect::Call { .. }) => {
                let driver = Arc::clone(self);
                begin(async move { driver.perform_waiting(effect).await });
            }
        }
    }

    async fn perform_waiting(&self, effect: Effect) {
        match effect {
            Effect::Append { subject, expected, entry, bytes } => {
                let append = Append { subject: subject.clone(), expected, entry, bytes };
                let begin = Instant::now();
                let appended = self.lines.journal.append(append).await;
                self.watch.appended(begin.elapsed(), appended.as_ref().err());
                if let Err(error) = appended {
                    let why = match error {
                        AppendError::Conflict => NotAppended::Conflict,
                        AppendError::Unknown(source) => self.unknown(&source).await,
                        AppendError::NotStored(why) => NotAppended::NotStored(why),
                        AppendError::Refused(why) => NotAppended::Refused(why),
                    };
                    self.feed(Input::NotAppended { subject, entry, why }).await;
                }
            }
            Effect::ReadLast(subject) => self.read_last(subject).await,
            Effect::Answer { requester, reply } => {
                if let Some(waiter) = self.waiting.take(requester) {
                    self.reply(waiter, reply).await;
                }
            }
            Effect::Stop(cell, stop) => {
                self.services.tell(&BusSubject::Rep(cell, RepVerb::Stop).to_string(), &stop).await;
            }
            Effect::Cancel(cell, cancel) => {
                self.services.tell(&BusSubject::Rep(cell, RepVerb::Cancel).to_string(), &cancel).await;
            }
            Effect::Enter(cell, enter) => {
                self.services.tell(&BusSubject::Rep(cell, RepVerb::Enter).to_string(), &enter).await;
            }
            Effect::Probe(cell, order) => {
                let answer = self.order(&cell, RepVerb::State, order).await;
                self.feed(Input::Probed { cell, answer }).await;
            }
            Effect::Evacuate(cell, order) => self.evacuation(cell, RepVerb::Evacuate, order).await,
            Effect::Uncordon(cell, order) => self.evacuation(cell, RepVerb::Uncordon, order).await,
            Effect::Dismiss(cell, dismiss) => {
                self.services.tell(&BusSubject::Rep(cell, RepVerb::Dismiss).to_string(), &dismiss).await;
            }
            Effect::Beat(beat) => {
                self.beats.say(&self.services, &beat).await;
            }
            Effect::Call { task, epoch, domain, url, body } => {
                let called = self.call(&task, domain, &url, body).await;
                tracing::info!(%task, ?called, "completion callback");
                self.watch.called(&called);
                self.feed(Input::Called { task, epoch, called }).await;
            }
            Effect::Leading(_)
            | Effect::Listening(_)
            | Effect::SetAside(_)
            | Effect::Warn(_)
            | Effect::Halt(_)
            | Effect::Feed { .. }
            | Effect::Show { .. } => {}
        }
    }

    /// Returns the reason for an append with an unknown outcome. A NATS server may state it on its health
    /// endpoint; the embedded journal always states it.
    async fn unknown(&self, source: &JournalError) -> NotAppended {
        if let Some(why) = self.lines.journal.write_error().await {
            return NotAppended::Unknown { why, stated: true };
        }
        let stated = matches!(self.lines.journal, Journal::Sqlite(_));
        NotAppended::Unknown { why: chain(source), stated }
    }

    /// Checks the stream that holds the log periodically, so that its loss is noticed even if nothing is
    /// appended.
    async fn check_log(self: Arc<Self>) {
        let mut checks = tokio::time::interval(CHECK);
        loop {
            checks.tick().await;
            let found = match self.lines.history.facts().await {
                // The embedded journal has no stream.
                Ok(None) => return,
                Ok(Some(facts)) => Ok(Some(log_row(facts, self.lines.journal.unreadable()))),
                Err(error) => {
                    let absent = matches!(error, JournalError::Absent);
                    Err(LogUnread { why: chain(&error), absent })
                }
            };
            self.feed(Input::Checked(found)).await;
        }
    }

    async fn read_last(&self, subject: Subject) {
        let last = match self.lines.journal.last(&subject).await {
            Ok(last) => Ok(last.map(|recorded| (recorded.position, recorded.entry))),
            Err(error) => Err(error.to_string()),
        };
        self.feed(Input::Last { subject, last }).await;
    }

    pub(super) async fn reply(&self, waiter: Waiter, reply: Reply) {
        let Asker { to, form, sight: _, ticket: _ticket, asked } = match waiter {
            Waiter::Bus(asker) => asker,
            Waiter::Driver(sender) => return drop(sender.send(reply)),
            // Dropping the sender notifies the observer that no snapshot follows.
            Waiter::Watch(_) => return,
        };
        match &reply {
            Reply::Done(done) => self.watch.commands.answered(asked, done),
            Reply::Reported(reported) => self.watch.commands.answered(asked, reported),
            Reply::Rows(_) | Reply::Records(_) => {}
        }
        let (bus, queries) = (self.services.bus(), &self.lines.queries);
        match reply {
            Reply::Done(done) => answer(bus, &to, form, done).await,
            Reply::Reported(reported) => answer(bus, &to, form, reported).await,
            Reply::Records(records) => answer(queries, &to, form, Ok(records)).await,
            Reply::Rows(Err(refusal)) => answer::<()>(queries, &to, form, Err(refusal)).await,
            Reply::Rows(Ok(rows)) => {
                // Rows are JSON text already, so only the envelope is added.
                let text = format!(r#"{{"ok":{rows}}}"#);
                if let Err(error) = queries.reply(&to, text.into()).await {
                    tracing::debug!(%error, "not answered");
                }
            }
        }
    }

    /// Forwards the reply of another BBS to the caller.
    pub(super) async fn pass_on(&self, waiter: Waiter, answer: bytes::Bytes) {
        if let Waiter::Bus(Asker { to, .. }) = &waiter
            && let Err(error) = self.lines.queries.reply(to, answer).await
        {
            tracing::debug!(%error, "not answered");
        }
    }

    /// Sends an order to a rep, which replies with the state of its cell.
    async fn order(&self, cell: &CellId, verb: RepVerb, order: RepOrder) -> Option<Heartbeat> {
        let subject = BusSubject::Rep(cell.clone(), verb).to_string();
        let answer: Option<Result<Heartbeat, Refusal>> = self.services.ask(&subject, &order, PROBE).await;
        answer.and_then(Result::ok)
    }

    /// Sends an evacuation order to a rep. An order without a reply is repeated after the next heartbeat, and
    /// does not count as silence of the cell.
    async fn evacuation(&self, cell: CellId, verb: RepVerb, order: RepOrder) {
        let answer = self.order(&cell, verb, order).await;
        if answer.is_some() {
            self.feed(Input::Probed { cell, answer }).await;
        }
    }

    /// Posts a completed task to its callback URL. A sealed URL is opened for this call.
    async fn call(&self, task: &TaskGuid, domain: Domain, url: &Secret, body: String) -> Called {
        let place = Place { domain, owner: Owner::of_task(task), purpose: Purpose::CallbackUrl };
        let text = match self.keys.text(&place, url) {
            Ok(text) => text,
            Err(error) => return Called::Failed(format!("the URL {}", error.told_by("this BBS"))),
        };
        self.caller.call(&text, url.plain().is_none(), body).await
    }

    /// Subscribes to commands, or unsubscribes because another BBS handles them.
    fn listen(self: &Arc<Self>, listens: bool) {
        let mut leading = lock(&self.leading);
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

    /// Waits for a stop, then ends the machine once its decisions are recorded or `SETTLE` is over. The BBS
    /// takes no requests after the stop.
    async fn settle(self: Arc<Self>) {
        self.ends.cancelled().await;
        let settled = async {
            while self.watch.decides() {
                tokio::time::sleep(SETTLE_LOOK).await;
            }
        };
        if tokio::time::timeout(SETTLE, settled).await.is_err() {
            tracing::warn!("stopped before the log had all that was decided");
        }
        self.decides.cancel();
    }

    /// Queries the machine for a request that needs more than the machine knows.
    pub(super) async fn query(&self, query: projections::Query) -> Result<String, Refusal> {
        let (sender, receiver) = oneshot::channel();
        let query = bbs::Query::Rows(query);
        self.ask_machine(Waiter::Driver(sender), |requester| Input::Queried {
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

    /// Returns a World snapshot and the observations beside it. `None` if no snapshot is available.
    pub(super) async fn picture(&self) -> Option<(Picture, Box<Observed>)> {
        if self.stopped().is_some() {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        let query = bbs::Query::Rows(projections::Query::Cluster(Filter::default()));
        self.ask_machine(Waiter::Watch(sender), |requester| Input::Queried {
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
        let answered = self.services.bus().ask(subject, bytes.into(), PATIENCE).await;
        let bytes = answered.map_err(|error| Refusal::new(Code::Unavailable, error.to_string()))?;
        let (answer, _) = schemas::codec::decode::<Answer<A>>(&bytes)?;
        answer.into()
    }
}
