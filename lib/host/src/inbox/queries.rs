//! Routing of queries to the components that answer them.

use std::sync::{Arc, LazyLock};

use bbs::{Input, Query, Reply};
use bus::{Incoming, ReplyTo, RequestError};
use bytes::Bytes;
use schemas::bus::BusSubject;
use schemas::caller::Caller;
use schemas::codec::{self, Form};
use schemas::published::{ListSchemas, PublishedSchemas, ShowSchema};
use schemas::query::{AsOf, Cursor, EventsPage, Filter, ReadEntry, ReadFiles, ReadLogs, Records, Show};
use schemas::sight::ReadScope;
use schemas::subject::Position;
use schemas::verb::QueryVerb;
use schemas::{BadField, Code, Refusal};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::authority::{checked_reply, is_expected_inbox, is_inbox_of_caller, read_scope};
use super::history::read_events;
use super::logs::read_logs;
use super::relay::{files, health};
use crate::driver::Driver;
use crate::reply_target::{BusCaller, ReplyTarget};
use crate::requests::{REQUEST_TIMEOUT, send_reply};

/// Published JSON Schemas, loaded once.
static SCHEMAS: LazyLock<PublishedSchemas> = LazyLock::new(PublishedSchemas::new);

pub(super) async fn handle_query(driver: &Arc<Driver>, incoming: Incoming) {
    let subject = match BusSubject::parse(&incoming.subject) {
        Ok(subject) => subject,
        Err(refusal) => {
            let caller = Caller::from_subject(&incoming.subject);
            let expected = |reply: &ReplyTo| is_inbox_of_caller(caller.as_ref(), reply);
            let Some(reply) = checked_reply(&incoming, expected) else { return };
            return driver.refuse(reply, refusal).await;
        }
    };
    let Some(reply) = checked_reply(&incoming, |reply| is_expected_inbox(&subject, reply)) else { return };
    let (caller, verb, is_relayed) = if let BusSubject::Query(caller, verb) = subject {
        (caller, verb, false)
    } else if let BusSubject::ForwardedQuery(_, caller, verb) = subject {
        (caller, verb, true)
    } else {
        let problem = format!("{subject} is not a query");
        let refusal = Refusal::invalid(vec![BadField { field: "subject".into(), problem }]);
        return driver.refuse(reply, refusal).await;
    };
    if let Some(why) = driver.stopped().filter(|_| needs_machine(verb)) {
        let refusal = Refusal::new(Code::Unavailable, format!("this BBS has stopped: {why}"));
        return driver.refuse(reply, refusal).await;
    }
    let admitted =
        if is_slow(verb) { driver.budgets.admit_poll(&caller) } else { driver.budgets.admit_query(&caller) };
    let ticket = match admitted {
        Ok(ticket) => ticket,
        Err(refusal) => return driver.refuse(reply, refusal).await,
    };
    let sight = read_scope(&driver.lines.queries, &caller);
    match asked(&caller, verb, &incoming.payload) {
        Ok(QueryTarget::World(form, at_least, query)) => {
            let question =
                WorldQuery { caller, verb, relayed: is_relayed, at_least, query, payload: incoming.payload };
            let asker = BusCaller { to: reply, form, read_scope: sight, ticket, asked: None };
            ask(driver, ReplyTarget::Bus(asker), question).await;
        }
        Ok(QueryTarget::Reader) => {
            let driver = Arc::clone(driver);
            tokio::spawn(async move {
                read(&driver, verb, &incoming, (&reply, &sight)).await;
                drop(ticket);
            });
        }
        Ok(QueryTarget::Program(said)) => send_reply(&driver.lines.queries, &reply, Form::Json, said).await,
        Err(refusal) => driver.refuse(reply, refusal).await,
    }
}

/// Returns `true` if only a running BBS can answer the query.
fn needs_machine(verb: QueryVerb) -> bool {
    ![QueryVerb::EventsRead, QueryVerb::SchemaList, QueryVerb::SchemaShow].contains(&verb)
}

/// Returns `true` if the query may take long, because it reads the journal or is forwarded to a rep.
const fn is_slow(verb: QueryVerb) -> bool {
    matches!(
        verb,
        QueryVerb::EventsRead
            | QueryVerb::InstanceLogs
            | QueryVerb::InstanceHealth
            | QueryVerb::InstanceFiles
            | QueryVerb::TaskLogs
    )
}

/// A decoded query of the projected state (World).
struct WorldQuery {
    caller: Caller,
    verb: QueryVerb,
    /// `true` if another BBS forwarded the query.
    relayed: bool,
    at_least: Option<Position>,
    query: Query,
    payload: Bytes,
}

/// Component that answers a query.
enum QueryTarget {
    /// The World, at the given position or later.
    World(Form, Option<Position>, Query),
    /// The journal or a rep.
    Reader,
    /// This program, whose schemas are built in.
    Program(Result<Value, Refusal>),
}

fn asked(caller: &Caller, verb: QueryVerb, payload: &[u8]) -> Result<QueryTarget, Refusal> {
    let list = |query: fn(Filter) -> projections::Query| {
        let filter: Filter = decode_or_default(payload)?;
        Ok(QueryTarget::World(Form::Json, filter.at_least, Query::Rows(query(filter))))
    };
    let show = |query: fn(Show) -> projections::Query| {
        let (show, _) = codec::decode::<Show>(payload)?;
        Ok(QueryTarget::World(Form::Json, show.at_least, Query::Rows(query(show))))
    };
    match verb {
        QueryVerb::LrpList => list(projections::Query::Lrps),
        QueryVerb::LrpShow => show(projections::Query::Lrp),
        QueryVerb::InstanceList => list(projections::Query::Instances),
        QueryVerb::InstanceShow => show(projections::Query::Instance),
        QueryVerb::InstanceEnded => list(projections::Query::EndedInstances),
        QueryVerb::TaskList => list(projections::Query::Tasks),
        QueryVerb::TaskEnded => list(projections::Query::EndedTasks),
        QueryVerb::TaskShow => show(projections::Query::Task),
        QueryVerb::PeriodicList => list(projections::Query::Periodics),
        QueryVerb::PeriodicShow => show(projections::Query::Periodic),
        QueryVerb::ParameterisedList => list(projections::Query::Parameterised),
        QueryVerb::ParameterisedShow => show(projections::Query::ParameterisedOne),
        QueryVerb::DomainList => list(projections::Query::Domains),
        QueryVerb::DomainShow => show(projections::Query::DomainUse),
        QueryVerb::CellList => list(projections::Query::Cells),
        QueryVerb::CellShow => show(projections::Query::Cell),
        QueryVerb::EvaluationList => list(projections::Query::Evaluations),
        QueryVerb::EvaluationShow => show(projections::Query::Evaluation),
        QueryVerb::ClusterShow => list(projections::Query::Cluster),
        QueryVerb::ClusterStatus => list(projections::Query::Status),
        QueryVerb::CellRecords => {
            let (records, form) = codec::decode::<Records>(payload)?;
            if *caller != Caller::Rep(records.cell_id.clone()) {
                let why = format!(
                    "{caller} may not read the records of cell {}: only its rep may",
                    records.cell_id
                );
                return Err(Refusal::new(Code::Forbidden, why));
            }
            Ok(QueryTarget::World(form, records.at_least, Query::Records(records)))
        }
        QueryVerb::EventsRead
        | QueryVerb::InstanceLogs
        | QueryVerb::InstanceHealth
        | QueryVerb::InstanceFiles
        | QueryVerb::TaskLogs => Ok(QueryTarget::Reader),
        QueryVerb::SchemaList => {
            decode_or_default::<ListSchemas>(payload)?;
            Ok(QueryTarget::Program(Ok(json!(SCHEMAS.list()))))
        }
        QueryVerb::SchemaShow => {
            let (asked, _) = codec::decode::<ShowSchema>(payload)?;
            Ok(QueryTarget::Program(SCHEMAS.show(&asked.name)))
        }
    }
}

/// Passes a query to the machine. Later pages of a list are read from the World snapshot of its first page.
/// If another BBS holds this snapshot, the query is forwarded to that BBS.
async fn ask(driver: &Arc<Driver>, waiter: ReplyTarget, question: WorldQuery) {
    let text = match &question.query {
        // Every BBS can answer queries about the past.
        Query::Rows(rows) if rows.as_of().is_some() => {
            if question.at_least.is_some() {
                let why = "can't be combined with at_least: set one of them";
                return driver.reply(waiter, Reply::Rows(Err(AsOf::refusal(why.to_owned())))).await;
            }
            None
        }
        Query::Rows(rows) => rows.filter().and_then(|filter| filter.cursor.as_deref()),
        Query::Records(_) => None,
    };
    let cursor = match text.map(Cursor::parse).transpose() {
        Ok(cursor) => cursor,
        Err(refusal) => return driver.reply(waiter, Reply::Rows(Err(refusal))).await,
    };
    let WorldQuery { caller, verb, relayed, at_least, query, payload } = question;
    match cursor {
        None => driver.queue_request(waiter, |requester| Input::Query { requester, at_least, query }),
        Some(cursor) if cursor.bbs != driver.id && !relayed => {
            let driver = Arc::clone(driver);
            let subject = BusSubject::ForwardedQuery(cursor.bbs.clone(), caller, verb).to_string();
            tokio::spawn(async move { forward_page(&driver, waiter, (&subject, payload), &cursor).await });
        }
        Some(cursor) => match driver.reading.held(&cursor).filter(|_| cursor.bbs == driver.id) {
            Some((picture, observed)) => driver.reading.enqueue(waiter, query, picture, observed),
            None => {
                driver.reply(waiter, Reply::Rows(Err(projections::queries::expired_cursor(&cursor)))).await;
            }
        },
    }
}

/// Forwards the query to the BBS that holds the World snapshot.
async fn forward_page(
    driver: &Driver,
    waiter: ReplyTarget,
    (subject, payload): (&str, Bytes),
    cursor: &Cursor,
) {
    let refusal = match driver.lines.queries.request(subject, payload, REQUEST_TIMEOUT).await {
        Ok(answer) => return driver.forward_reply(waiter, answer).await,
        Err(RequestError::NoResponder(_)) => projections::queries::expired_cursor(cursor),
        Err(
            error @ (RequestError::TimedOut(_) | RequestError::Disconnected(_) | RequestError::Refused(_)),
        ) => Refusal::new(
            Code::Unavailable,
            format!("can't reach BBS {}, which holds this list: {error}", cursor.bbs),
        ),
    };
    driver.reply(waiter, Reply::Rows(Err(refusal))).await;
}

/// Restricts events to the read scope. An undecodable entry may contain any data. Only a caller with the full
/// scope receives its bytes.
fn seen(sight: &ReadScope, mut page: EventsPage) -> EventsPage {
    for recorded in &mut page.entries {
        match &mut recorded.entry {
            ReadEntry::Known(entry) => sight.redact_entry(entry),
            ReadEntry::Unknown { raw, .. } if *sight != ReadScope::Everything => raw.clear(),
            ReadEntry::Unknown { .. } => {}
        }
    }
    page
}

/// Decodes a message. An empty message selects all objects.
fn decode_or_default<T: DeserializeOwned + Default>(payload: &[u8]) -> Result<T, Refusal> {
    if payload.is_empty() { Ok(T::default()) } else { codec::decode(payload).map(|(message, _)| message) }
}

async fn read(driver: &Driver, verb: QueryVerb, incoming: &Incoming, (reply, sight): (&ReplyTo, &ReadScope)) {
    let bus = &driver.lines.queries;
    if verb == QueryVerb::EventsRead {
        let page = match decode_or_default(&incoming.payload) {
            Ok(asked) => read_events(driver, asked).await.map(|page| seen(sight, page)),
            Err(refusal) => Err(refusal),
        };
        return send_reply(bus, reply, Form::Json, page).await;
    }
    if verb == QueryVerb::InstanceHealth {
        let found = match codec::decode::<Show>(&incoming.payload) {
            Ok((Show { as_of: Some(_), .. }, _)) => {
                Err(AsOf::refusal("is not supported here: a rep reports only current results".to_owned()))
            }
            Ok((asked, _)) => health(driver, asked).await,
            Err(refusal) => Err(refusal),
        };
        return send_reply(bus, reply, Form::Json, found).await;
    }
    if verb == QueryVerb::InstanceFiles {
        let found = match codec::decode::<ReadFiles>(&incoming.payload) {
            Ok((asked, _)) => files(driver, sight, asked).await,
            Err(refusal) => Err(refusal),
        };
        return send_reply(bus, reply, Form::Json, found).await;
    }
    let logs = match codec::decode::<ReadLogs>(&incoming.payload) {
        Ok((asked, _)) => read_logs(driver, verb == QueryVerb::TaskLogs, asked).await,
        Err(refusal) => Err(refusal),
    };
    send_reply(bus, reply, Form::Json, logs).await;
}
