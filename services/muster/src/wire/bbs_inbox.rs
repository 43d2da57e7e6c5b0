//! What comes to a BBS by the bus: who asks is proved by the subject, and where the answer goes is checked, because
//! the server doesn't: a forged reply subject would make the BBS write its own answer into the stream.

use std::sync::Arc;
use std::time::Duration;

use bbs::{Ask, Input, Query};
use bus::{BusError, Incoming, PLAIN_INBOX_ROOT, ReplyTo};
use projections::Reader;
use schemas::codec::{self, Form};
use schemas::container::Instance;
use schemas::message::Envelope;
use schemas::names::{CellId, ClientName, Domain, InstanceGuid};
use schemas::query::{
    EventsPage, Filter, InstanceRow, Logs, One, ReadEntry, ReadEvents, ReadLogs, RecordedEntry, Records,
    Show, TaskRow, is_about,
};
use schemas::subject::Position;
use schemas::{BadField, Code, Refusal, limits};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::asking::answer;
use super::bbs::{Hands, Waiter};

/// The queue group in which BBSs share queries.
const GROUP: &str = "bbs";
/// How long a read of events may wait for one.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Queries that read the journal or a rep, at once.
const READS: usize = 64;

/// Listens to what every BBS answers: queries, and the leader's beats.
pub(super) async fn listen(hands: &Arc<Hands>, ends: &CancellationToken) -> Result<(), BusError> {
    let reads = Arc::new(tokio::sync::Semaphore::new(READS));
    on(hands, ends, "muster.beat.bbs", None, |hands, incoming| async move {
        if let Ok((beat, _)) = codec::decode(&incoming.payload) {
            hands.tell_machine(Input::Beat(beat)).await;
        }
    })
    .await?;
    on(hands, ends, "muster.query.*.*", Some(GROUP), move |hands, incoming| {
        let reads = Arc::clone(&reads);
        async move { query(&hands, incoming, &reads).await }
    })
    .await
}

/// Listens to what only the leader answers: commands, reports, heartbeats.
pub(super) async fn listen_to_commands(hands: &Arc<Hands>, ends: &CancellationToken) -> Result<(), BusError> {
    on(hands, ends, "muster.client.*.*.*.*", None, |hands, incoming| async move {
        if let Some(reply) = reply_of(&incoming, is_client) {
            let ask = client(&incoming);
            hands.take(reply, Form::Json, ask).await;
        }
    })
    .await?;
    on(hands, ends, "muster.operator.*.cell.evacuate", None, |hands, incoming| async move {
        if let Some(reply) = reply_of(&incoming, is_client) {
            let ask = evacuate(&incoming);
            hands.take(reply, Form::Json, ask).await;
        }
    })
    .await?;
    on(hands, ends, "muster.cell.*.bbs.report", None, |hands, incoming| async move {
        let cell = incoming.subject.split('.').nth(2).unwrap_or_default().to_owned();
        let role = format!("rep.{cell}");
        if let Some(reply) = reply_of(&incoming, |reply| reply.is_inbox_of(&role)) {
            let (form, ask) = decoded(&incoming, |reports| {
                CellId::new(&cell).map(|cell| Ask::Cell { cell, reports }).map_err(bad_name)
            });
            hands.take(reply, form, ask).await;
        }
    })
    .await?;
    on(hands, ends, "muster.auctioneer.bbs.*", None, |hands, incoming| async move {
        if let Some(reply) = reply_of(&incoming, |reply| reply.is_inbox_of("auctioneer")) {
            let (form, ask) = match incoming.subject.rsplit('.').next() {
                Some("outcome") => decoded(&incoming, |outcomes| Ok(Ask::Outcomes(outcomes))),
                Some("lead") => decoded(&incoming, |lead| Ok(Ask::Lead(lead))),
                Some(_) | None => (Form::Json, Err(unknown(&incoming.subject))),
            };
            hands.take(reply, form, ask).await;
        }
    })
    .await?;
    on(hands, ends, "muster.cell.*.heartbeat", None, |hands, incoming| async move {
        heartbeat(&hands, &incoming).await;
    })
    .await
}

/// Subscribes, and handles one message after the other until the token ends it.
async fn on<F, Fut>(
    hands: &Arc<Hands>,
    ends: &CancellationToken,
    pattern: &str,
    group: Option<&str>,
    handle: F,
) -> Result<(), BusError>
where
    F: Fn(Arc<Hands>, Incoming) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send,
{
    let mut subscription = hands.asker.bus().subscribe(pattern, group).await?;
    let (hands, ends) = (Arc::clone(hands), ends.clone());
    tokio::spawn(async move {
        loop {
            tokio::select! {
                biased;
                () = ends.cancelled() => return,
                incoming = subscription.next() => match incoming {
                    Some(incoming) => handle(Arc::clone(&hands), incoming).await,
                    None => return,
                },
            }
        }
    });
    Ok(())
}

impl Hands {
    /// Brings what was asked to the machine, or answers at once what is no question.
    async fn take(&self, reply: ReplyTo, form: Form, ask: Result<Ask, Refusal>) {
        match ask {
            Ok(ask) => {
                let asker = self.waiting.add(Waiter::Bus(reply, form));
                self.tell_machine(Input::Asked { asker, ask }).await;
            }
            Err(refusal) => answer::<()>(self.asker.bus(), &reply, form, Err(refusal)).await,
        }
    }
}

/// Where the answer goes, if that is where the asker's role has its answers.
fn reply_of(incoming: &Incoming, expected: impl Fn(&ReplyTo) -> bool) -> Option<ReplyTo> {
    let reply = incoming.reply.as_ref();
    if reply.is_none_or(|reply| !expected(reply)) {
        let reply = reply.map_or("none", ReplyTo::subject);
        tracing::warn!(subject = incoming.subject, reply, "refused: not a reply subject of this role");
    }
    reply.filter(|reply| expected(reply)).cloned()
}

/// Clients answer to `muster.inbox.client...`, or to the inboxes that NATS clients make by themselves.
fn is_client(reply: &ReplyTo) -> bool {
    reply.is_inbox_of("client") || reply.subject().starts_with(PLAIN_INBOX_ROOT)
}

fn bad_name(error: schemas::names::BadName) -> Refusal {
    Refusal::invalid(vec![BadField { field: "subject".into(), problem: error.to_string() }])
}

fn unknown(subject: &str) -> Refusal {
    let problem = format!("{subject} is nothing that can be asked");
    Refusal::invalid(vec![BadField { field: "subject".into(), problem }])
}

fn decoded<Q: DeserializeOwned>(
    incoming: &Incoming,
    ask: impl FnOnce(Q) -> Result<Ask, Refusal>,
) -> (Form, Result<Ask, Refusal>) {
    match codec::decode(&incoming.payload) {
        Ok((question, form)) => (form, ask(question)),
        Err(refusal) => (Form::Json, Err(refusal)),
    }
}

fn client(incoming: &Incoming) -> Result<Ask, Refusal> {
    let tokens: Vec<&str> = incoming.subject.split('.').collect();
    let [_, _, domain, client, noun, verb] = tokens[..] else { return Err(unknown(&incoming.subject)) };
    let domain = Domain::new(domain).map_err(bad_name)?;
    let client = ClientName::new(client).map_err(bad_name)?;
    let (envelope, command) = schemas::spec::client_command(noun, verb, &domain, &incoming.payload)?;
    Ok(Ask::Client { domain, client, envelope, command })
}

fn evacuate(incoming: &Incoming) -> Result<Ask, Refusal> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Body {
        cell_id: CellId,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Request {
        #[serde(default, rename = "envelope")]
        _envelope: Envelope,
        body: Body,
    }
    let (request, _) = codec::decode::<Request>(&incoming.payload)?;
    Ok(Ask::Evacuate(request.body.cell_id))
}

async fn heartbeat(hands: &Hands, incoming: &Incoming) {
    let Ok((beat, _)) = codec::decode::<schemas::message::Heartbeat>(&incoming.payload) else {
        return tracing::warn!(subject = incoming.subject, "a heartbeat that nobody understands");
    };
    if incoming.subject.split('.').nth(2) == Some(beat.cell_id.as_str()) {
        hands.tell_machine(Input::Heartbeat(beat)).await;
    } else {
        tracing::warn!(subject = incoming.subject, cell = %beat.cell_id, "a heartbeat of another cell");
    }
}

// ---- queries ----------------------------------------------------------------------------------------------------

/// Anybody may ask what is true; only where the answer goes is checked.
fn is_reader(reply: &ReplyTo) -> bool {
    is_client(reply) || ["rep", "auctioneer", "bbs", "reader"].iter().any(|role| reply.is_inbox_of(role))
}

async fn query(hands: &Arc<Hands>, incoming: Incoming, reads: &Arc<tokio::sync::Semaphore>) {
    let Some(reply) = reply_of(&incoming, is_reader) else { return };
    let name = incoming.subject.strip_prefix("muster.query.").unwrap_or_default().to_owned();
    if let Some(why) = hands.stopped().filter(|_| name != "events.read") {
        let refusal = Refusal::new(Code::Unavailable, format!("this BBS has stopped: {why}"));
        return answer::<()>(hands.asker.bus(), &reply, Form::Json, Err(refusal)).await;
    }
    match name.as_str() {
        "events.read" | "instance.logs" | "task.logs" => {
            let Ok(permit) = Arc::clone(reads).try_acquire_owned() else {
                let refusal = Refusal::new(Code::Overloaded, "too many readers wait: try again");
                return answer::<()>(hands.asker.bus(), &reply, Form::Json, Err(refusal)).await;
            };
            let hands = Arc::clone(hands);
            tokio::spawn(async move {
                read(&hands, &name, &incoming, &reply).await;
                drop(permit);
            });
        }
        "cell.records" => match codec::decode::<Records>(&incoming.payload) {
            Ok((records, form)) => {
                let at_least = records.at_least;
                ask(hands, reply, form, at_least, Query::Records(records)).await;
            }
            Err(refusal) => answer::<()>(hands.asker.bus(), &reply, Form::Json, Err(refusal)).await,
        },
        name => match rows(name, &incoming.payload) {
            Ok((at_least, query)) => ask(hands, reply, Form::Json, at_least, query).await,
            Err(refusal) => answer::<()>(hands.asker.bus(), &reply, Form::Json, Err(refusal)).await,
        },
    }
}

async fn ask(hands: &Hands, reply: ReplyTo, form: Form, at_least: Option<Position>, query: Query) {
    let asker = hands.waiting.add(Waiter::Bus(reply, form));
    hands.tell_machine(Input::Queried { asker, at_least, query }).await;
}

fn rows(name: &str, payload: &[u8]) -> Result<(Option<Position>, Query), Refusal> {
    let list = |query: fn(Filter) -> Query| {
        let filter: Filter = decode_or_default(payload)?;
        Ok((filter.at_least, query(filter)))
    };
    let show = |query: fn(Show) -> Query| {
        let (show, _) = codec::decode::<Show>(payload)?;
        Ok((show.at_least, query(show)))
    };
    match name {
        "lrp.list" => list(Query::Lrps),
        "lrp.show" => show(Query::Lrp),
        "instance.list" => list(Query::Instances),
        "instance.show" => show(Query::Instance),
        "task.list" => list(Query::Tasks),
        "task.show" => show(Query::Task),
        "domain.list" => list(Query::Domains),
        "cell.list" => list(Query::Cells),
        "cell.show" => show(Query::Cell),
        "evaluation.list" => list(Query::Evaluations),
        "evaluation.show" => show(Query::Evaluation),
        "cluster.show" => {
            let filter: Filter = decode_or_default(payload)?;
            Ok((filter.at_least, Query::Cluster))
        }
        other => Err(unknown(&format!("muster.query.{other}"))),
    }
}

/// An empty message asks for everything.
fn decode_or_default<T: DeserializeOwned + Default>(payload: &[u8]) -> Result<T, Refusal> {
    if payload.is_empty() { Ok(T::default()) } else { codec::decode(payload).map(|(message, _)| message) }
}

async fn read(hands: &Hands, name: &str, incoming: &Incoming, reply: &ReplyTo) {
    let bus = hands.asker.bus();
    match name {
        "events.read" => {
            let page = match decode_or_default(&incoming.payload) {
                Ok(asked) => read_events(hands, asked).await,
                Err(refusal) => Err(refusal),
            };
            answer(bus, reply, Form::Json, page).await;
        }
        name => {
            let logs = match codec::decode::<ReadLogs>(&incoming.payload) {
                Ok((asked, _)) => read_logs(hands, name == "task.logs", asked).await,
                Err(refusal) => Err(refusal),
            };
            answer(bus, reply, Form::Json, logs).await;
        }
    }
}

async fn read_events(hands: &Hands, asked: ReadEvents) -> Result<EventsPage, Refusal> {
    let unavailable = |error: journal::JournalError| Refusal::new(Code::Unavailable, error.to_string());
    let limit = asked.limit.unwrap_or(limits::PAGE_ROWS).clamp(1, limits::PAGE_ROWS);
    let wait = Duration::from_millis(asked.wait_ms.unwrap_or(0)).min(LONGEST_WAIT);
    let deadline = tokio::time::Instant::now() + wait;
    let mut after = asked.after;
    let reader = hands.reader();
    loop {
        let recorded = hands.journal.read(after, None, limit).await.map_err(unavailable)?;
        let end = hands.journal.end().await.map_err(unavailable)?;
        let next = recorded.last().map_or(after, |last| last.position);
        let shown = |entry| show_entry(&reader, entry, asked.about.as_deref());
        let entries: Vec<_> = recorded.into_iter().filter_map(shown).collect();
        let more = next < end && entries.is_empty();
        if more {
            after = next;
            continue;
        }
        if !entries.is_empty() || tokio::time::Instant::now() >= deadline {
            return Ok(EventsPage { next, end, entries });
        }
        after = next;
        let mut follower = hands.journal.follow(after);
        if let Ok(Err(error)) = tokio::time::timeout_at(deadline, follower.next_batch(1)).await {
            return Err(unavailable(error));
        }
    }
}

fn show_entry(reader: &Reader, recorded: journal::Recorded, about: Option<&str>) -> Option<RecordedEntry> {
    let entry = match reader.check(&recorded.subject, &recorded.bytes) {
        Ok(mut entry) => {
            if let Some(about) = about {
                entry.decisions.retain(|decision| is_about(&decision.aggregate, about));
            }
            if about.is_some() && entry.decisions.is_empty() {
                return None;
            }
            ReadEntry::Known(entry)
        }
        Err(_) if about.is_some() => return None,
        Err(error) => ReadEntry::Unknown {
            why: error.to_string(),
            raw: limits::cut(&String::from_utf8_lossy(&recorded.bytes), limits::EXPLANATION_BYTES),
        },
    };
    Some(RecordedEntry { position: recorded.position, subject: recorded.subject, entry })
}

/// Finds the container in the World, and reads its log where it is or was.
async fn read_logs(hands: &Hands, of_task: bool, asked: ReadLogs) -> Result<Logs, Refusal> {
    let show = Show { id: asked.id.clone(), at_least: None };
    let parse = |error: serde_json::Error| Refusal::new(Code::Unavailable, error.to_string());
    let (holder, crashed) = if of_task {
        let found: One<TaskRow> =
            serde_json::from_str(&hands.query(Query::Task(show)).await?).map_err(parse)?;
        (container(found.row.instance_guid, found.row.cell_id), None)
    } else {
        let rows = hands.query(Query::Instance(show)).await?;
        let found: One<Vec<InstanceRow>> = serde_json::from_str(&rows).map_err(parse)?;
        let crashed = found.row.iter().find_map(|row| row.crashed_in.clone());
        (found.row.into_iter().find_map(|row| container(row.instance_guid, row.cell_id)), crashed)
    };
    match (holder.filter(|_| !asked.previous), crashed) {
        (Some(holder), _) => read_log_of(hands, &holder, asked).await,
        (None, Some(crashed)) => {
            read_log_of(hands, &crashed, asked).await.map_err(|refusal| or_gone(refusal, &crashed))
        }
        (None, None) => Err(Refusal::not_found(format!("a container of {}", asked.id))),
    }
}

fn container(instance_guid: Option<InstanceGuid>, cell_id: Option<CellId>) -> Option<Instance> {
    instance_guid.zip(cell_id).map(|(instance_guid, cell_id)| Instance { instance_guid, cell_id })
}

async fn read_log_of(hands: &Hands, container: &Instance, asked: ReadLogs) -> Result<Logs, Refusal> {
    let question = ReadLogs { id: container.instance_guid.to_string(), previous: false, ..asked };
    hands.relay(&format!("muster.cell.{}.rep.logs", container.cell_id), &question).await
}

/// The log of a container that crashed may be gone with its cell. That is no failure: who follows an instance waits for
/// its next container.
fn or_gone(refusal: Refusal, crashed: &Instance) -> Refusal {
    if refusal.code != Code::Unavailable {
        return refusal;
    }
    let Instance { instance_guid, cell_id } = crashed;
    let why = format!("cell {cell_id}, where container {instance_guid} crashed, does not answer");
    Refusal::new(Code::ResourceNotFound, why)
}
