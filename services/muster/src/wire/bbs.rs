//! The effect driver of a BBS: the journal, the answers, the orders to reps, the callbacks.

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

/// Reads of the journal at once for who asks what happened.
const SCANS_AT_ONCE: usize = 8;
/// How often is looked whether there is a connection.
const CONNECTION: Duration = Duration::from_millis(250);
/// Interval between two readings of the NATS server's clock.
const SERVER_CLOCK: Duration = Duration::from_secs(5);
/// Interval between checks of the stream that holds the log.
const CHECK: Duration = Duration::from_secs(5);
/// How long a probed rep may take to answer.
const PROBE: Duration = Duration::from_secs(2);

/// So long after this BBS stopped a beat is no longer from somebody who is about to stop as well.
const OTHERS_STOP: Duration = Duration::from_secs(1);
/// How long a BBS that stops waits for the log to have what it decided, and how often it looks.
const SETTLE: Duration = Duration::from_millis(500);
const SETTLE_LOOK: Duration = Duration::from_millis(5);
/// A leader that was heard so lately still leads.
const LEADS: Duration = Duration::from_secs(2);

static WARNED: LogLimit = LogLimit::new();
static SET_ASIDE: LogLimit = LogLimit::new();

/// Who waits for the machine's answer.
#[derive(Debug)]
pub(super) enum Waiter {
    /// Somebody on the bus.
    Bus(Asker),
    /// This driver, on behalf of somebody who asked for more than the machine knows.
    Driver(oneshot::Sender<Reply>),
    /// Whoever watches, who wants to see the World and no answer.
    Watch(oneshot::Sender<(Picture, Box<Observed>)>),
}

/// Who asks on the bus.
#[derive(Debug)]
pub(super) struct Asker {
    pub(super) to: ReplyTo,
    /// The form in which was asked.
    pub(super) form: Form,
    /// What of the answer it may see.
    pub(super) sight: Sight,
    /// It counts against its budget until it is answered.
    pub(super) ticket: Ticket,
    /// What changes something says what it is.
    pub(super) asked: Option<Asked>,
}

impl Waiter {
    /// Under whose name it waits its turn.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Bus(asker) => asker.ticket.name(),
            Self::Driver(_) | Self::Watch(_) => "bbs",
        }
    }

    /// Whose environment it may read.
    pub(super) fn sight(&self) -> Sight {
        match self {
            Self::Bus(asker) => asker.sight.clone(),
            Self::Driver(_) | Self::Watch(_) => Sight::Everything,
        }
    }
}

/// How a BBS is connected. What much is asked and answered by stands in nobody's way who decides and is told.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    /// What it decides goes there, and what was decided comes from there.
    pub(crate) journal: Journal,
    /// Commands, reports, heartbeats, and orders to reps.
    pub(crate) bus: Bus,
    /// Queries, and their answers.
    pub(crate) queries: Bus,
    /// The journal for who reads what happened.
    pub(crate) history: Journal,
    /// Where snapshots of the past are cached; none: nobody asks about the past.
    pub(crate) cache: Option<Cache>,
    /// Where spans of what is decided are sent, if anywhere.
    pub(crate) traces: Option<Collector>,
}

impl Lines {
    /// Where nothing is connected by a network one line of each kind is enough.
    pub(crate) fn within(journal: Journal, bus: Bus, cache: Option<Cache>) -> Self {
        Self { history: journal.clone(), queries: bus.clone(), journal, bus, cache, traces: None }
    }
}

/// What a BBS has of its own, whichever machine it runs.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    /// What seals secrets, and opens those that it needs.
    pub(crate) keys: Keys,
    /// What calls the owners of completed tasks.
    pub(crate) caller: Arc<Caller>,
}

impl Own {
    /// These keys, and who calls only what is allowed.
    ///
    /// # Errors
    /// The certificates of the system can't be used.
    pub(crate) fn new(keys: Keys, allowed: Allowed) -> Result<Self, Ended> {
        Ok(Self { keys, caller: Arc::new(Caller::new(allowed).map_err(Ended::Callbacks)?) })
    }
}

/// Performs the effects of one BBS, and feeds it inputs.
pub(super) struct Driver {
    /// Its name: cursors tell whose they are.
    pub(super) id: ServiceId,
    pub(super) lines: Lines,
    pub(super) services: Services,
    /// What happened.
    pub(super) inputs: mpsc::Sender<Input>,
    /// What is asked of the machine.
    asked: Arc<Lanes<Input>>,
    pub(super) waiting: Waiting<Waiter>,
    /// How much each client may have under way.
    pub(super) budgets: Budgets,
    /// Refusals that are to be said: who floods is refused, and who isn't doesn't wait for that.
    refusals: mpsc::Sender<(ReplyTo, Refusal)>,
    /// What tells whoever listens.
    feed: Feed,
    /// What tells people and a collector of traces.
    decided: Decided,
    /// What answers queries.
    pub(super) reading: Reading,
    /// What answers questions about the past.
    pub(super) looking: Looking,
    /// Room for reads of the journal for who asks what happened.
    pub(super) scans: Semaphore,
    /// What calls the owners of completed tasks.
    caller: Arc<Caller>,
    /// What seals secrets before anything is decided on them.
    pub(super) keys: Keys,
    /// What is counted for whoever watches.
    pub(super) watch: Arc<BbsWatch>,
    leading: Mutex<CancellationToken>,
    beats: LeaderBeats,
    /// What the log says of the cluster, for whoever reads the log here.
    reader: Mutex<Reader>,
    /// Up to where the log was followed.
    followed: watch::Sender<Position>,
    /// How many bytes of entries were followed since it started.
    followed_bytes: AtomicU64,
    /// The last position on each subject, as far as the log was followed.
    last_on: Mutex<BTreeMap<String, Position>>,
    pub(super) ends: CancellationToken,
    fatal: Mutex<Option<Ended>>,
    /// Why it decides nothing any more, and since when, once it doesn't.
    stopped: OnceLock<(Unreadable, Instant)>,
    /// When a BBS was last heard to lead.
    leader_heard: Mutex<Option<Instant>>,
    /// Why what stands at a position doesn't count, of the newest.
    set_aside: Mutex<BTreeMap<Position, String>>,
    decides: CancellationToken,
}

/// Runs a BBS until it is told to stop. What the log holds that this program doesn't understand stops its machine, until
/// an operator has set that aside: a new machine then reads the log from its beginning, as after a start.
///
/// # Errors
/// Why it can't go on: the journal holds what this program doesn't understand, can't be followed,
/// or the bus can't be listened to.
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

/// Runs one machine until it is told to stop; true: it stopped by itself, and another one may go on.
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
        // Nobody else answers: its machine refuses each.
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

/// Spawns what runs beside the machine for as long as it does.
fn spawn_tasks(driver: &Arc<Driver>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(driver).follow());
    tasks.spawn(Arc::clone(driver).watch_connection());
    tasks.spawn(Arc::clone(driver).settle());
    tasks.spawn(Arc::clone(driver).read_server_clock());
    tasks.spawn(Arc::clone(driver).check_log());
    tasks
}

/// Ends what a machine was driven by; true: another one may go on.
async fn end(
    driver: &Arc<Driver>,
    machine: Box<Bbs>,
    known: &Positions,
    stop: &CancellationToken,
) -> Result<bool, Ended> {
    driver.listen(false);
    if let Some(why) = driver.stopped() {
        driver.refuse_all(why).await;
        // It still shows the log, and takes an operator's word that this position shall not count.
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

/// The moment that a NATS server writes as RFC 3339.
pub(crate) fn moment(text: &str) -> Option<Timestamp> {
    let time = text.parse::<jiff::Timestamp>().ok()?;
    u64::try_from(time.as_nanosecond()).ok().map(Timestamp)
}

/// Starts what answers and tells beside the machine, until the driver ends.
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

/// What queries show of the stream.
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
    /// Something that only a person can mend: the program ends with it.
    fn halt(&self, why: Ended) {
        lock(&self.fatal).get_or_insert(why);
        self.ends.cancel();
    }

    /// The log holds what this program doesn't understand: it decides nothing any more, and answers nothing but what
    /// stands in the log.
    fn stop_deciding(&self, why: Unreadable) {
        // First: who has read the line below is answered accordingly.
        let (why, _) = self.stopped.get_or_init(|| (why, Instant::now()));
        self.watch.stops(&why.to_string());
        tracing::error!(
            "{why}. Nothing is lost. This BBS decides nothing any more and only shows the log: muster events. If that \
             entry shall not count: muster journal set-aside POSITION --reason TEXT"
        );
        self.decides.cancel();
    }

    /// Answers whoever waits for the machine, which has stopped.
    async fn refuse_all(&self, why: &Unreadable) {
        let refusal = Refusal::new(Code::Unavailable, format!("this BBS has stopped: {why}"));
        for waiter in self.waiting.take_all() {
            if let Waiter::Bus(Asker { to, form, .. }) = waiter {
                answer::<()>(self.services.bus(), &to, form, Err(refusal.clone())).await;
            }
        }
    }

    /// Why it decides nothing any more, if so.
    pub(super) fn stopped(&self) -> Option<&Unreadable> {
        self.stopped.get().map(|(why, _)| why)
    }

    /// Somebody says that it leads.
    pub(super) fn heard_leader(&self) {
        *lock(&self.leader_heard) = Some(Instant::now());
    }

    /// Sets aside what stands at a position, if no program here can read it.
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

    /// Remembers why a message doesn't count, for whoever reads the log.
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

    /// Why what stands at a position doesn't count, if that is known.
    pub(super) fn why_set_aside(&self, position: Position) -> Option<String> {
        lock(&self.set_aside).get(&position).cloned()
    }

    /// Tells the machine when nobody can be heard: that is not silence of the cells.
    /// Brings the time of the NATS server to the machine, as long as there is one.
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

    /// What tells entries from what is none, as the log stands.
    pub(super) fn reader(&self) -> Reader {
        lock(&self.reader).clone()
    }

    /// Up to where the log was followed, for who waits for more of it.
    pub(super) fn followed(&self) -> watch::Receiver<Position> {
        self.followed.subscribe()
    }

    /// How many bytes of entries were followed since it started.
    pub(super) fn followed_bytes(&self) -> u64 {
        self.followed_bytes.load(Ordering::Relaxed)
    }

    /// The last position on a subject, as far as the log was followed.
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
                // The machine says what is wrong with it, if so.
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

    /// Asks the machine, when it is the requester's turn.
    pub(super) fn ask_machine(&self, waiter: Waiter, input: impl FnOnce(u64) -> Input) {
        let name = waiter.name().to_owned();
        self.asked.put(&name, input(self.waiting.add(waiter)));
    }

    /// Refuses somebody who asked in JSON or can read it.
    pub(super) async fn refuse(&self, to: ReplyTo, refusal: Refusal) {
        self.watch.commands.refused(refusal.code);
        drop(self.refusals.send((to, refusal)).await);
    }

    async fn say_refusals(self: Arc<Self>, mut refused: mpsc::Receiver<(ReplyTo, Refusal)>) {
        while let Some(Some((to, refusal))) = self.ends.run_until_cancelled(refused.recv()).await {
            answer::<()>(&self.lines.queries, &to, Form::Json, Err(refusal)).await;
        }
    }

    /// Answers queries, one after the other.
    async fn read(self: Arc<Self>, kind: reading::Kind) {
        while let Some(asked) = self.ends.run_until_cancelled(self.reading.next(kind)).await {
            let (waiter, reply) = self.reading.answer(asked).await;
            self.reply(waiter, reply).await;
        }
    }

    /// A machine that ended needs to know nothing.
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

    /// An append whose outcome is unknown, with the reason that a server states on its health endpoint, if one does. The
    /// embedded journal states its reason itself.
    async fn unknown(&self, source: &JournalError) -> NotAppended {
        if let Some(why) = self.lines.journal.write_error().await {
            return NotAppended::Unknown { why, stated: true };
        }
        let stated = matches!(self.lines.journal, Journal::Sqlite(_));
        NotAppended::Unknown { why: chain(source), stated }
    }

    /// Checks the stream that holds the log from time to time, so that its loss is noticed though nothing is appended.
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
            // It sees that nothing is shown.
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
                // Rows are JSON text already: put the answer around it.
                let text = format!(r#"{{"ok":{rows}}}"#);
                if let Err(error) = queries.reply(&to, text.into()).await {
                    tracing::debug!(%error, "not answered");
                }
            }
        }
    }

    /// Gives what another BBS answered to who asked.
    pub(super) async fn pass_on(&self, waiter: Waiter, answer: bytes::Bytes) {
        if let Waiter::Bus(Asker { to, .. }) = &waiter
            && let Err(error) = self.lines.queries.reply(to, answer).await
        {
            tracing::debug!(%error, "not answered");
        }
    }

    /// Gives a rep an order that it answers with how its cell is.
    async fn order(&self, cell: &CellId, verb: RepVerb, order: RepOrder) -> Option<Heartbeat> {
        let subject = BusSubject::Rep(cell.clone(), verb).to_string();
        let answer: Option<Result<Heartbeat, Refusal>> = self.services.ask(&subject, &order, PROBE).await;
        answer.and_then(Result::ok)
    }

    /// An order that got no answer is given again with the next heartbeat: that is not silence of the cell.
    async fn evacuation(&self, cell: CellId, verb: RepVerb, order: RepOrder) {
        let answer = self.order(&cell, verb, order).await;
        if answer.is_some() {
            self.feed(Input::Probed { cell, answer }).await;
        }
    }

    /// Posts a completed task to its owner. A URL that is secret is opened for this call.
    async fn call(&self, task: &TaskGuid, domain: Domain, url: &Secret, body: String) -> Called {
        let place = Place { domain, owner: Owner::of_task(task), purpose: Purpose::CallbackUrl };
        let text = match self.keys.text(&place, url) {
            Ok(text) => text,
            Err(error) => return Called::Failed(format!("the URL {}", error.told_by("this BBS"))),
        };
        self.caller.call(&text, url.plain().is_none(), body).await
    }

    /// Subscribes to commands, or ends that: another BBS takes them.
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

    /// Once this BBS is told to stop it takes nothing more, and its machine goes on until the log has what was decided.
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

    /// Asks the machine on behalf of somebody who asked for more than it knows.
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

    /// The World as it is, and what is observed besides; none: it isn't shown at present.
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

    /// Passes a question on to another service and its answer back.
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
