//! Effect driver of a rep: carries out the effects that the state machine of the rep returns.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bus::{Bus, BusError, Incoming, LogLimit, ReplyTo, truncated};
use executor::process::FilesError;
use parking_lot::Mutex;
use rep::{Effect, Input, Level, Rep};
use schemas::bus::{BusPattern, BusSubject};
use schemas::caller::Caller;
use schemas::codec::{self, Form};
use schemas::exec::ForwardedExecIo;
use schemas::health::ContainerHealth;
use schemas::limits::GRACE_MS;
use schemas::message::{
    AcceptLog, Ack, Attach, Dismiss, Heartbeat, LeaderHeartbeat, Leave, Perform, RepOrder, ReportsReply,
    StartExec, Stop,
};
use schemas::names::{CellId, ClusterId, FolderId, IdGenerator, Incarnation, InstanceGuid};
use schemas::query::{Files, Logs, ReadFiles, ReadLogs, RecordsAnswer, Show};
use schemas::refusal::BadField;
use schemas::verb::{QueryVerb, RepVerb};
use schemas::{Code, Position, Refusal};
use serde::Serialize;
use serde::de::DeserializeOwned;
use text::chain;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

use super::containers::Containers;
use super::drive::{drive, run_or_spawn};
use super::exec_sessions::ExecSessions;
use super::log_comparison::{self, KnownLog, LogComparison};
use super::monitoring::rep::{RepMetrics, RepObserver};
use super::requests::{PendingRequests, REQUEST_TIMEOUT, ServiceClient, send_reply};

/// Maximum number of log bytes in a reply.
const LOG_BYTES: usize = 64 * 1024;

/// Initial pause between attempts to attach to the cell, and the pause while another rep is attached.
const ATTACH_RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// Maximum time for reporting that the evacuation is complete.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time that an evacuated rep waits for its last containers before it reports that the cell is empty.
/// If the cell were silent for longer, the leader would suspect a loss and probe the cell.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(10);

static NO_ORDER: LogLimit = LogLimit::new();
static FOREIGN_INBOX: LogLimit = LogLimit::new();

/// Interval between comparisons of the logs during a conflict: the log that the rep knows conflicts with the
/// log of the cluster.
const COMPARE_INTERVAL: Duration = Duration::from_secs(15);

/// Reason for the end of a rep's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// `stop` was cancelled.
    Stopped,
    /// The evacuation is complete.
    Evacuated,
    /// Another rep is attached to the cell.
    Dismissed,
    /// The rep accepted a restored log.
    Accepted,
}

struct Driver {
    cell: CellId,
    folder: FolderId,
    /// Cluster that the data folder belongs to.
    cluster_id: Option<ClusterId>,
    /// Requests a comparison of the logs. A missing reply or an election triggers the request, because either
    /// can mean that the cluster has a different log.
    compare_requested: Notify,
    /// Reason why the rep cannot continue with the log of the cluster. `None` without a conflict.
    conflict: Mutex<Option<String>>,
    services: ServiceClient,
    containers: Containers,
    /// Programs that clients run in the containers.
    talks: ExecSessions,
    inputs: mpsc::Sender<Input>,
    waiting: PendingRequests<(ReplyTo, Form)>,
    /// Reason why the machine was stopped. Unset if the whole program stops.
    end: OnceLock<RunOutcome>,
    stop: CancellationToken,
    /// Metrics of the rep.
    watch: Arc<RepMetrics>,
}

/// Runs a rep until `stop` is cancelled or the evacuation of the cell is complete. While another rep is
/// attached to the cell, this rep only tries to attach again.
///
/// # Errors
/// The bus cannot be subscribed to.
pub(crate) async fn run(
    settings: rep::Settings,
    seed: u64,
    (bus, containers, cluster_id): (Bus, Containers, Option<ClusterId>),
    channel: (mpsc::Sender<Input>, mpsc::Receiver<Input>),
    watch: Arc<RepMetrics>,
    stop: CancellationToken,
) -> Result<RunOutcome, BusError> {
    let (inputs, mut receiver) = channel;
    let mut ids = IdGenerator::new(seed);
    loop {
        let driver = Arc::new(Driver {
            cell: settings.cell_id.clone(),
            folder: settings.folder,
            cluster_id,
            compare_requested: Notify::new(),
            conflict: Mutex::default(),
            services: ServiceClient::new(bus.clone()),
            containers: containers.clone(),
            talks: ExecSessions::default(),
            inputs: inputs.clone(),
            waiting: PendingRequests::default(),
            end: OnceLock::new(),
            stop: stop.child_token(),
            watch: Arc::clone(&watch),
        });
        let attached = tokio::select! {
            () = stop.cancelled() => return Ok(RunOutcome::Stopped),
            attached = driver.attach() => attached,
        };
        // Two runs of a rep must not share a sequence of ids.
        let own = IdGenerator::new(ids.next(clock::now()).as_u64_pair().1);
        watch.set_attached(true);
        let end = run_attached(&driver, settings.clone(), attached, own, &mut receiver, &stop).await;
        watch.set_attached(false);
        match end? {
            RunOutcome::Dismissed => {
                tracing::warn!(
                    cell = %driver.cell,
                    "this rep is not attached to its cell: it runs nothing, and tries to attach again"
                );
            }
            RunOutcome::Accepted => {
                tracing::warn!(cell = %driver.cell, "this rep continues with the current log");
            }
            end @ (RunOutcome::Stopped | RunOutcome::Evacuated) => return Ok(end),
        }
    }
}

/// Runs a machine for the cell until the rep is stopped, has evacuated, or is replaced by another rep.
async fn run_attached(
    driver: &Arc<Driver>,
    settings: rep::Settings,
    attached: Position,
    mut ids: IdGenerator,
    receiver: &mut mpsc::Receiver<Input>,
    stop: &CancellationToken,
) -> Result<RunOutcome, BusError> {
    let bus = driver.services.bus();
    let pattern = BusPattern::Rep(settings.cell_id.clone()).to_string();
    let mut orders = bus.subscribe(&pattern, None).await?;
    let listener = Arc::clone(driver);
    let listening = tokio::spawn(async move {
        while let Some(incoming) = orders.next().await {
            listener.handle_message(incoming).await;
        }
    });
    let mut elected = bus.subscribe(&BusPattern::Elected.to_string(), None).await?;
    let listener = Arc::clone(driver);
    let hearing = tokio::spawn(async move {
        let mut leaders = BTreeMap::new();
        while let Some(incoming) = elected.next().await {
            if let Ok((beat, _)) = codec::decode::<LeaderHeartbeat>(&incoming.payload)
                && leaders.insert(incoming.subject, beat.term) != Some(beat.term)
            {
                listener.compare_requested.notify_one();
                drop(listener.inputs.send(Input::Elected).await);
            }
        }
    });
    // A previous machine may have left prepared containers.
    driver.containers.discard_all();
    let comparing = tokio::spawn(Arc::clone(driver).compare_logs());
    let incarnation = Incarnation(ids.next(clock::now()));
    let leave = Leave { folder: settings.folder, incarnation };
    let mut machine = Rep::new(settings, attached, incarnation, ids);
    let beside = (|_, _| {}, RepObserver::new(&driver.watch));
    drive(&mut machine, receiver, driver.stop.clone(), |effect| driver.perform(effect), beside).await;
    listening.abort();
    hearing.abort();
    comparing.abort();
    let end = driver.end.get().copied().unwrap_or(RunOutcome::Stopped);
    if end == RunOutcome::Evacuated {
        tokio::select! {
            () = stop.cancelled() => {
                tracing::warn!(cell = %driver.cell, "stopped before its last containers were deleted");
            }
            () = driver.clear_and_leave(leave) => {}
        }
    }
    Ok(end)
}

impl Driver {
    /// Tries to attach to the cell until it succeeds. Returns the log position from the successful reply.
    async fn attach(&self) -> Position {
        let subject = BusSubject::Attach(self.cell.clone()).to_string();
        let mut wait = ATTACH_RETRY.0;
        loop {
            let answer: Option<Result<Ack, Refusal>> =
                self.services.request(&subject, &Attach { folder: self.folder }, REQUEST_TIMEOUT).await;
            match answer {
                Some(Ok(done)) => return done.position,
                Some(Err(refusal)) if refusal.code == Code::CellTaken => {
                    let again = ATTACH_RETRY.1;
                    tracing::error!(cell = %self.cell, "{}. Retrying every {again:?}", refusal.message);
                    tokio::time::sleep(again).await;
                }
                Some(Err(_)) | None => {
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(ATTACH_RETRY.1 / 10);
                }
            }
        }
    }

    /// Ends the last containers of an evacuated cell and leaves the cell. The report to the cluster does not
    /// wait for containers that use their full grace period to stop.
    async fn clear_and_leave(&self, leave: Leave) {
        let cleared = tokio::time::timeout(CLEANUP_TIMEOUT, self.containers.end_all()).await.is_ok();
        self.leave(leave).await;
        if !cleared {
            tracing::info!(cell = %self.cell, "waiting for the last containers to end");
            let longest = Duration::from_millis(GRACE_MS) + CLEANUP_TIMEOUT;
            if tokio::time::timeout(longest, self.containers.end_all()).await.is_err() {
                return tracing::error!(cell = %self.cell, "some containers can't be deleted");
            }
            tracing::info!(cell = %self.cell, "the last containers have ended");
        }
    }

    /// Reports that the evacuation is complete. Without this report, the cluster would count the cell as
    /// lost, but only after a period without heartbeats.
    async fn leave(&self, leave: Leave) {
        let subject = BusSubject::Leave(self.cell.clone()).to_string();
        let telling = async {
            loop {
                let answer: Option<Result<Ack, Refusal>> =
                    self.services.request(&subject, &leave, REQUEST_TIMEOUT).await;
                match answer {
                    Some(Ok(_)) => return,
                    Some(Err(refusal)) if refusal.code == Code::CellTaken => return,
                    Some(Err(_)) | None => tokio::time::sleep(ATTACH_RETRY.0).await,
                }
            }
        };
        if tokio::time::timeout(LEAVE_TIMEOUT, telling).await.is_err() {
            tracing::warn!(
                cell = %self.cell,
                "no BBS confirmed that the cell is evacuated: the cell counts as silent"
            );
        }
    }

    /// Compares the log that the machine knows with the log of the cluster. A comparison follows each missing
    /// reply and each election. The rep logs when a conflict is found and when it is resolved. The cell is
    /// unhealthy during a conflict.
    async fn compare_logs(self: Arc<Self>) {
        loop {
            let conflicts = self.conflict().is_some();
            tokio::select! {
                () = self.compare_requested.notified() => {}
                () = tokio::time::sleep(COMPARE_INTERVAL), if conflicts => {}
            }
            let (terms, position) = self.watch.known_log();
            let known = KnownLog { cluster_id: self.cluster_id, terms, position };
            let why = match log_comparison::compare(self.services.bus(), &self.cell, known).await {
                LogComparison::Same => None,
                LogComparison::Shorter(there) if !known.has_later_term(&there) => {
                    tracing::warn!(
                        cell = %self.cell,
                        "the log ends at position {}, and this rep knows position {position}: \
                         an older log was restored",
                        there.position
                    );
                    return self.end(RunOutcome::Accepted);
                }
                LogComparison::Shorter(there) | LogComparison::Other(there) => {
                    Some(known.conflict(&self.cell, &there))
                }
            };
            let before = std::mem::replace(&mut *self.conflict.lock(), why.clone());
            match (why, before) {
                (Some(why), before) if before.is_none() => tracing::error!("{why}"),
                (None, Some(_)) => {
                    tracing::info!(cell = %self.cell, "the log again matches the one that this rep knows");
                }
                (Some(_) | None, Some(_) | None) => {}
            }
        }
    }

    fn conflict(&self) -> Option<String> {
        self.conflict.lock().clone()
    }

    /// Marks a heartbeat as unhealthy while the logs conflict. The machine does not know about this conflict,
    /// but a rep that accepts no leader must not receive work.
    fn with_conflict(&self, beat: Heartbeat) -> Heartbeat {
        Heartbeat { unhealthy: self.conflict().or(beat.unhealthy), ..beat }
    }

    /// Accepts the current log by order of an operator.
    fn accept_log(&self, asked: AcceptLog) -> Result<(), Refusal> {
        match self.cluster_id {
            Some(own) if own != asked.cluster_id => {
                let why = format!(
                    "the data folder of cell {} belongs to cluster {own}, and the log belongs to cluster {}",
                    self.cell, asked.cluster_id
                );
                Err(Refusal::new(Code::InvalidStateTransition, why))
            }
            Some(_) | None => {
                tracing::warn!(cell = %self.cell, "accepting the current log by order of an operator");
                self.end(RunOutcome::Accepted);
                Ok(())
            }
        }
    }

    /// Stops the machine for this reason.
    fn end(&self, end: RunOutcome) {
        self.end.get_or_init(|| end);
        self.stop.cancel();
    }

    /// Handles a message from the bus.
    async fn handle_message(self: &Arc<Self>, incoming: Incoming) {
        let verb = match BusSubject::parse(&incoming.subject) {
            Ok(BusSubject::Rep(_, verb)) => verb,
            Ok(_) | Err(_) => {
                let subject = truncated(&incoming.subject);
                return NO_ORDER.log(|| tracing::warn!(subject, "not an order to a rep"));
            }
        };
        if let Some(input) = self.input_from(verb, incoming).await {
            drop(self.inputs.send(input).await);
        }
    }

    /// Converts a message to an input of the machine. `None` if the message is invalid, or is answered
    /// without the machine.
    async fn input_from(self: &Arc<Self>, verb: RepVerb, incoming: Incoming) -> Option<Input> {
        match verb {
            RepVerb::Perform => {
                let (requester, perform) = self.decode_request::<Perform>(&incoming, "auctioneer").await?;
                Some(Input::Perform { requester, perform })
            }
            RepVerb::Evacuate => {
                let (requester, order) = self.decode_request::<RepOrder>(&incoming, "bbs").await?;
                Some(Input::Evacuate { requester, order })
            }
            RepVerb::State => {
                let (requester, order) = self.decode_request::<RepOrder>(&incoming, "bbs").await?;
                Some(Input::State { requester, order })
            }
            RepVerb::Stop => codec::decode::<Stop>(&incoming.payload).ok().map(|(stop, _)| Input::Stop(stop)),
            RepVerb::Cancel => {
                codec::decode::<Stop>(&incoming.payload).ok().map(|(stop, _)| Input::Cancel(stop))
            }
            RepVerb::Uncordon => {
                let (requester, order) = self.decode_request::<RepOrder>(&incoming, "bbs").await?;
                Some(Input::Uncordon { requester, order })
            }
            RepVerb::Dismiss => {
                let dismissed = codec::decode::<Dismiss>(&incoming.payload);
                if dismissed.is_ok_and(|(dismiss, _)| dismiss.folder == self.folder) {
                    self.end(RunOutcome::Dismissed);
                }
                None
            }
            RepVerb::Logs => {
                self.spawn_reply(incoming, |driver, asked: ReadLogs| async move {
                    driver.read_logs(&asked).await
                });
                None
            }
            RepVerb::Health => {
                self.spawn_reply(incoming, |driver, asked: Show| async move {
                    driver.read_health(&asked.id).await
                });
                None
            }
            RepVerb::Files => {
                self.spawn_reply(incoming, |driver, asked: ReadFiles| async move {
                    driver.read_files(asked).await
                });
                None
            }
            RepVerb::Exec => {
                if let Ok((enter, _)) = codec::decode::<StartExec>(&incoming.payload) {
                    self.talks.enter(&self.containers, enter);
                }
                None
            }
            RepVerb::AcceptLog => {
                self.spawn_reply(
                    incoming,
                    |driver, asked: AcceptLog| async move { driver.accept_log(asked) },
                );
                None
            }
            RepVerb::ExecIo => {
                self.spawn_reply(incoming, |driver, said: ForwardedExecIo| async move {
                    driver.talks.talk(said).await
                });
                None
            }
        }
    }

    /// Decodes a request, and registers its caller. An undecodable request is refused. A request is dropped
    /// without a reply if its reply subject is not an inbox of the expected role.
    async fn decode_request<Q: DeserializeOwned>(&self, incoming: &Incoming, role: &str) -> Option<(u64, Q)> {
        let reply = incoming.reply.as_ref()?;
        if !reply.is_inbox_of(role) {
            FOREIGN_INBOX.log(|| {
                let (subject, reply) = (truncated(&incoming.subject), truncated(reply.subject()));
                tracing::warn!(
                    subject,
                    reply,
                    "a request is dropped: its reply subject belongs to another role"
                );
            });
            return None;
        }
        match codec::decode(&incoming.payload) {
            Ok((question, form)) => Some((self.waiting.add((reply.clone(), form)), question)),
            Err(refusal) => {
                send_reply::<()>(self.services.bus(), reply, Form::Json, Err(refusal)).await;
                None
            }
        }
    }

    /// Answers a request of a BBS about a container, in a task of its own.
    fn spawn_reply<Q, A, F>(
        self: &Arc<Self>,
        incoming: Incoming,
        read: impl FnOnce(Arc<Self>, Q) -> F + Send + 'static,
    ) where
        Q: DeserializeOwned + Send,
        A: Serialize + Send,
        F: Future<Output = Result<A, Refusal>> + Send,
    {
        let driver = Arc::clone(self);
        tokio::spawn(async move {
            let Some(reply) = incoming.reply.as_ref().filter(|reply| reply.is_inbox_of("bbs")) else {
                return;
            };
            let result = match codec::decode(&incoming.payload) {
                Ok((asked, _)) => read(Arc::clone(&driver), asked).await,
                Err(refusal) => Err(refusal),
            };
            send_reply(driver.services.bus(), reply, Form::Json, result).await;
        });
    }

    /// Reads the work directory of a container.
    async fn read_files(&self, asked: ReadFiles) -> Result<Files, Refusal> {
        let not_found = || Refusal::not_found(format!("container {} on cell {}", asked.id, self.cell));
        let instance_guid: InstanceGuid = asked.id.parse().map_err(|_| not_found())?;
        let Containers::Process(executor) = &self.containers else { return Err(not_found()) };
        let found = executor.files(instance_guid, asked.path, asked.from, asked.limit).await;
        let content = found.map_err(|error| match error {
            FilesError::Unknown(_) => not_found(),
            FilesError::NotFound(_) => Refusal::new(Code::ResourceNotFound, error.to_string()),
            FilesError::Outside(_) | FilesError::Special(_) => {
                Refusal::invalid(vec![BadField { field: "path".into(), problem: error.to_string() }])
            }
            FilesError::Read { .. } => Refusal::new(Code::Unavailable, chain(&error)),
        })?;
        Ok(Files { instance_guid, content })
    }

    /// Returns the monitor results of a container.
    async fn read_health(&self, id: &str) -> Result<ContainerHealth, Refusal> {
        let not_found = || Refusal::not_found(format!("container {id} on cell {}", self.cell));
        let instance_guid: InstanceGuid = id.parse().map_err(|_| not_found())?;
        let health = match &self.containers {
            Containers::Process(executor) => {
                executor.health(instance_guid).await.map_err(|error| match error {
                    executor::process::LogError::Unknown(_) => not_found(),
                    error @ executor::process::LogError::Read(_) => {
                        Refusal::new(Code::Unavailable, chain(&error))
                    }
                })?
            }
            Containers::Scripted(_) => None,
        };
        Ok(ContainerHealth { instance_guid, cell_id: self.cell.clone(), health })
    }

    async fn read_logs(&self, asked: &ReadLogs) -> Result<Logs, Refusal> {
        let not_found = || Refusal::not_found(format!("container {} on cell {}", asked.id, self.cell));
        let guid: InstanceGuid = asked.id.parse().map_err(|_| not_found())?;
        let limit = asked.limit.unwrap_or(LOG_BYTES).min(LOG_BYTES);
        match &self.containers {
            Containers::Process(executor) => {
                let chunk = executor.logs(guid, asked.from, limit).await.map_err(|error| match error {
                    executor::process::LogError::Unknown(_) => not_found(),
                    error @ executor::process::LogError::Read(_) => {
                        Refusal::new(Code::Unavailable, chain(&error))
                    }
                })?;
                Ok(Logs { instance_guid: guid, text: chunk.text, next: chunk.next, ended: chunk.ended })
            }
            Containers::Scripted(_) => Err(not_found()),
        }
    }

    fn perform(self: &Arc<Self>, effect: Effect) {
        match effect {
            Effect::Prepare(recipes) => self.containers.prepare(recipes, &self.inputs),
            Effect::Discard(guid) => self.containers.discard(guid),
            Effect::Run(recipe) => {
                self.watch.record_start(recipe.instance_guid);
                self.containers.run(recipe);
            }
            Effect::Stop(guid) => self.containers.stop(guid),
            Effect::Delete(guid) => {
                self.watch.record_delete(guid);
                self.containers.delete(guid);
            }
            Effect::ListContainers => self.containers.list(&self.inputs),
            Effect::Exit => self.end(RunOutcome::Evacuated),
            Effect::Log { level: Level::Info, text } => tracing::info!(cell = %self.cell, "{text}"),
            Effect::Log { level: Level::Warn, text } => tracing::warn!(cell = %self.cell, "{text}"),
            effect @ (Effect::AnswerPerform { .. }
            | Effect::AnswerState { .. }
            | Effect::Report { .. }
            | Effect::AskRecords { .. }
            | Effect::SelfTest
            | Effect::Heartbeat(_)) => {
                let driver = Arc::clone(self);
                run_or_spawn(async move { driver.perform_async(effect).await });
            }
        }
    }

    async fn perform_async(&self, effect: Effect) {
        let bus = self.services.bus();
        let input = match effect {
            Effect::AnswerPerform { requester, answer: result } => {
                if let Some((to, form)) = self.waiting.take(requester) {
                    send_reply(bus, &to, form, result).await;
                }
                None
            }
            Effect::AnswerState { requester, answer: result } => {
                if let Some((to, form)) = self.waiting.take(requester) {
                    send_reply(bus, &to, form, result.map(|beat| self.with_conflict(beat))).await;
                }
                None
            }
            Effect::Report { id, reports } => {
                let subject = BusSubject::Report(self.cell.clone()).to_string();
                let answer: Option<Result<ReportsReply, Refusal>> =
                    self.services.request(&subject, &reports, REQUEST_TIMEOUT).await;
                if let Some(Err(refusal)) = &answer
                    && refusal.code == Code::CellTaken
                {
                    self.end(RunOutcome::Dismissed);
                }
                Some(Input::Reported { id, answer })
            }
            Effect::AskRecords { id, records } => {
                let subject = Caller::Rep(self.cell.clone()).query(QueryVerb::CellRecords);
                let answer: Option<Result<RecordsAnswer, Refusal>> =
                    self.services.request(&subject, &records, REQUEST_TIMEOUT).await;
                if !matches!(answer, Some(Ok(_))) {
                    self.compare_requested.notify_one();
                }
                Some(Input::Records { id, answer })
            }
            Effect::SelfTest => {
                let tested = self.containers.self_test().await;
                Some(Input::SelfTested(tested.map_err(|error| error.to_string())))
            }
            Effect::Heartbeat(beat) => {
                let beat = self.with_conflict(beat);
                self.watch.record_heartbeat(&beat);
                self.services.notify(&BusSubject::Heartbeat(self.cell.clone()).to_string(), &beat).await;
                None
            }
            Effect::Prepare(_)
            | Effect::Discard(_)
            | Effect::Run(_)
            | Effect::Stop(_)
            | Effect::Delete(_)
            | Effect::ListContainers
            | Effect::Exit
            | Effect::Log { .. } => None,
        };
        if let Some(input) = input {
            drop(self.inputs.send(input).await);
        }
    }
}
