//! What changes nothing, on its way to who answers it.

use std::sync::Arc;

use bbs::{Input, Query};
use bus::{Incoming, ReplyTo};
use schemas::bus::{BusSubject, QueryVerb};
use schemas::codec::{self, Form};
use schemas::query::{Filter, ReadLogs, Records, Show};
use schemas::subject::Position;
use schemas::{BadField, Code, Refusal};
use serde::de::DeserializeOwned;

use super::authority::{is_reader, reply_of};
use super::history::read_events;
use super::logs::read_logs;
use crate::wire::asking::answer;
use crate::wire::bbs::{Hands, Waiter};

/// Queries that read the journal or a rep, at once.
pub(super) const READS: usize = 64;

pub(super) async fn query(hands: &Arc<Hands>, incoming: Incoming, reads: &Arc<tokio::sync::Semaphore>) {
    let Some(reply) = reply_of(&incoming, is_reader) else { return };
    let bus = hands.asker.bus();
    let verb = match BusSubject::parse(&incoming.subject) {
        Ok(BusSubject::Query(verb)) => verb,
        Ok(other) => {
            let problem = format!("{other} is no query");
            let refusal = Refusal::invalid(vec![BadField { field: "subject".into(), problem }]);
            return answer::<()>(bus, &reply, Form::Json, Err(refusal)).await;
        }
        Err(refusal) => return answer::<()>(bus, &reply, Form::Json, Err(refusal)).await,
    };
    if let Some(why) = hands.stopped().filter(|_| verb != QueryVerb::EventsRead) {
        let refusal = Refusal::new(Code::Unavailable, format!("this BBS has stopped: {why}"));
        return answer::<()>(bus, &reply, Form::Json, Err(refusal)).await;
    }
    match asked(verb, &incoming.payload) {
        Ok(Asked::Machine(form, at_least, query)) => ask(hands, reply, form, at_least, query).await,
        Ok(Asked::Reader) => {
            let Ok(permit) = Arc::clone(reads).try_acquire_owned() else {
                let refusal = Refusal::new(Code::Overloaded, "too many readers wait: try again");
                return answer::<()>(bus, &reply, Form::Json, Err(refusal)).await;
            };
            let hands = Arc::clone(hands);
            tokio::spawn(async move {
                read(&hands, verb, &incoming, &reply).await;
                drop(permit);
            });
        }
        Err(refusal) => answer::<()>(bus, &reply, Form::Json, Err(refusal)).await,
    }
}

/// Who answers a query.
enum Asked {
    /// The machine, from the World at some position.
    Machine(Form, Option<Position>, Query),
    /// Who reads the journal, or asks a rep.
    Reader,
}

fn asked(verb: QueryVerb, payload: &[u8]) -> Result<Asked, Refusal> {
    let list = |query: fn(Filter) -> projections::Query| {
        let filter: Filter = decode_or_default(payload)?;
        Ok(Asked::Machine(Form::Json, filter.at_least, Query::Rows(query(filter))))
    };
    let show = |query: fn(Show) -> projections::Query| {
        let (show, _) = codec::decode::<Show>(payload)?;
        Ok(Asked::Machine(Form::Json, show.at_least, Query::Rows(query(show))))
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
        QueryVerb::ClusterShow => list(|_| projections::Query::Cluster),
        QueryVerb::CellRecords => {
            let (records, form) = codec::decode::<Records>(payload)?;
            Ok(Asked::Machine(form, records.at_least, Query::Records(records)))
        }
        QueryVerb::EventsRead | QueryVerb::InstanceLogs | QueryVerb::TaskLogs => Ok(Asked::Reader),
    }
}

async fn ask(hands: &Hands, reply: ReplyTo, form: Form, at_least: Option<Position>, query: Query) {
    let asker = hands.waiting.add(Waiter::Bus(reply, form));
    hands.tell_machine(Input::Queried { asker, at_least, query }).await;
}

/// An empty message asks for everything.
fn decode_or_default<T: DeserializeOwned + Default>(payload: &[u8]) -> Result<T, Refusal> {
    if payload.is_empty() { Ok(T::default()) } else { codec::decode(payload).map(|(message, _)| message) }
}

async fn read(hands: &Hands, verb: QueryVerb, incoming: &Incoming, reply: &ReplyTo) {
    let bus = hands.asker.bus();
    if verb == QueryVerb::EventsRead {
        let page = match decode_or_default(&incoming.payload) {
            Ok(asked) => read_events(hands, asked).await,
            Err(refusal) => Err(refusal),
        };
        return answer(bus, reply, Form::Json, page).await;
    }
    let logs = match codec::decode::<ReadLogs>(&incoming.payload) {
        Ok((asked, _)) => read_logs(hands, verb == QueryVerb::TaskLogs, asked).await,
        Err(refusal) => Err(refusal),
    };
    answer(bus, reply, Form::Json, logs).await;
}
