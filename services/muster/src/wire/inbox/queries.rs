//! What changes nothing, on its way to who answers it.

use std::sync::Arc;

use bbs::{Input, Query, Reply};
use bus::{Incoming, ReplyTo};
use schemas::bus::{BusSubject, QueryVerb};
use schemas::codec::{self, Form};
use schemas::query::{Cursor, Filter, ReadLogs, Records, Show};
use schemas::subject::Position;
use schemas::{BadField, Code, Refusal};
use serde::de::DeserializeOwned;

use super::authority::{is_reader, reply_of};
use super::history::read_events;
use super::logs::read_logs;
use super::relay::health;
use crate::wire::asking::answer;
use crate::wire::bbs::{Driver, Waiter};

pub(super) async fn query(driver: &Arc<Driver>, incoming: Incoming) {
    let Some(reply) = reply_of(&incoming, is_reader) else { return };
    let bus = driver.services.bus();
    let verb = match BusSubject::parse(&incoming.subject) {
        Ok(BusSubject::Query(verb)) => verb,
        Ok(other) => {
            let problem = format!("{other} is not a query");
            let refusal = Refusal::invalid(vec![BadField { field: "subject".into(), problem }]);
            return answer::<()>(bus, &reply, Form::Json, Err(refusal)).await;
        }
        Err(refusal) => return answer::<()>(bus, &reply, Form::Json, Err(refusal)).await,
    };
    if let Some(why) = driver.stopped().filter(|_| verb != QueryVerb::EventsRead) {
        let refusal = Refusal::new(Code::Unavailable, format!("this BBS has stopped: {why}"));
        return answer::<()>(bus, &reply, Form::Json, Err(refusal)).await;
    }
    match asked(verb, &incoming.payload) {
        Ok(Asked::World(form, at_least, query)) => match driver.reading.admit_query(&reply) {
            Ok(ticket) => ask(driver, Waiter::Bus(reply, form, Some(ticket)), at_least, query).await,
            Err(refusal) => answer::<()>(bus, &reply, form, Err(refusal)).await,
        },
        Ok(Asked::Reader) => match driver.reading.admit_poll(&reply) {
            Ok(ticket) => {
                let driver = Arc::clone(driver);
                tokio::spawn(async move {
                    read(&driver, verb, &incoming, &reply).await;
                    drop(ticket);
                });
            }
            Err(refusal) => answer::<()>(bus, &reply, Form::Json, Err(refusal)).await,
        },
        Err(refusal) => answer::<()>(bus, &reply, Form::Json, Err(refusal)).await,
    }
}

/// Who answers a query.
enum Asked {
    /// Who has a picture of the World, at some position.
    World(Form, Option<Position>, Query),
    /// Who reads the journal, or asks a rep.
    Reader,
}

fn asked(verb: QueryVerb, payload: &[u8]) -> Result<Asked, Refusal> {
    let list = |query: fn(Filter) -> projections::Query| {
        let filter: Filter = decode_or_default(payload)?;
        Ok(Asked::World(Form::Json, filter.at_least, Query::Rows(query(filter))))
    };
    let show = |query: fn(Show) -> projections::Query| {
        let (show, _) = codec::decode::<Show>(payload)?;
        Ok(Asked::World(Form::Json, show.at_least, Query::Rows(query(show))))
    };
    match verb {
        QueryVerb::LrpList => list(projections::Query::Lrps),
        QueryVerb::LrpShow => show(projections::Query::Lrp),
        QueryVerb::InstanceList => list(projections::Query::Instances),
        QueryVerb::InstanceShow => show(projections::Query::Instance),
        QueryVerb::TaskList => list(projections::Query::Tasks),
        QueryVerb::TaskShow => show(projections::Query::Task),
        QueryVerb::DomainList => list(projections::Query::Domains),
        QueryVerb::CellList => list(projections::Query::Cells),
        QueryVerb::CellShow => show(projections::Query::Cell),
        QueryVerb::EvaluationList => list(projections::Query::Evaluations),
        QueryVerb::EvaluationShow => show(projections::Query::Evaluation),
        QueryVerb::ClusterShow => list(projections::Query::Cluster),
        QueryVerb::CellRecords => {
            let (records, form) = codec::decode::<Records>(payload)?;
            Ok(Asked::World(form, records.at_least, Query::Records(records)))
        }
        QueryVerb::EventsRead | QueryVerb::InstanceLogs | QueryVerb::InstanceHealth | QueryVerb::TaskLogs => {
            Ok(Asked::Reader)
        }
    }
}

/// A further page is read from the picture that the first was read from; anything else from the World as it is.
async fn ask(driver: &Arc<Driver>, waiter: Waiter, at_least: Option<Position>, query: Query) {
    let text = match &query {
        Query::Rows(rows) => rows.filter().and_then(|filter| filter.cursor.as_deref()),
        Query::Records(_) => None,
    };
    let held = match text.map(Cursor::parse) {
        None => None,
        Some(Ok(cursor)) => match driver.reading.held(&cursor) {
            Some(held) => Some(held),
            None => {
                return driver.reply(waiter, Reply::Rows(Err(projections::queries::expired(&cursor)))).await;
            }
        },
        Some(Err(refusal)) => return driver.reply(waiter, Reply::Rows(Err(refusal))).await,
    };
    match held {
        Some((picture, observed)) => {
            let driver = Arc::clone(driver);
            tokio::spawn(async move {
                let reply = driver.reading.answer(query, picture, observed).await;
                driver.reply(waiter, reply).await;
            });
        }
        None => {
            let requester = driver.waiting.add(waiter);
            driver.feed(Input::Queried { requester, at_least, query }).await;
        }
    }
}

/// An empty message asks for everything.
fn decode_or_default<T: DeserializeOwned + Default>(payload: &[u8]) -> Result<T, Refusal> {
    if payload.is_empty() { Ok(T::default()) } else { codec::decode(payload).map(|(message, _)| message) }
}

async fn read(driver: &Driver, verb: QueryVerb, incoming: &Incoming, reply: &ReplyTo) {
    let bus = driver.services.bus();
    if verb == QueryVerb::EventsRead {
        let page = match decode_or_default(&incoming.payload) {
            Ok(asked) => read_events(driver, asked).await,
            Err(refusal) => Err(refusal),
        };
        return answer(bus, reply, Form::Json, page).await;
    }
    if verb == QueryVerb::InstanceHealth {
        let found = match codec::decode::<Show>(&incoming.payload) {
            Ok((asked, _)) => health(driver, asked).await,
            Err(refusal) => Err(refusal),
        };
        return answer(bus, reply, Form::Json, found).await;
    }
    let logs = match codec::decode::<ReadLogs>(&incoming.payload) {
        Ok((asked, _)) => read_logs(driver, verb == QueryVerb::TaskLogs, asked).await,
        Err(refusal) => Err(refusal),
    };
    answer(bus, reply, Form::Json, logs).await;
}
