//! Queries: answered at once, or when the World has come far enough.

use schemas::subject::Position;
use schemas::{Code, Refusal, Timestamp};

use crate::machine::{Bbs, Effect, QUERY_PATIENCE, QUEUE, Query, Reply};
use crate::{queries, records};

impl Bbs {
    pub(crate) fn queried(
        &mut self,
        now: Timestamp,
        asker: u64,
        at_least: Option<Position>,
        query: Query,
        out: &mut Vec<Effect>,
    ) {
        if !self.caught_up || self.world.cluster().is_none() {
            // What it has not read yet would be told as if it did not exist.
            let refusal = Refusal::new(Code::Unavailable, "this BBS is still reading the journal: try again");
            return out.push(Effect::Answer { asker, reply: Reply::Rows(Err(refusal)) });
        }
        match at_least {
            Some(position) if self.world.position() < position => {
                if self.queries.len() >= QUEUE {
                    let refusal = Refusal::new(Code::Overloaded, "too many queries wait: try again");
                    return out.push(Effect::Answer { asker, reply: Reply::Rows(Err(refusal)) });
                }
                self.queries.push((now + QUERY_PATIENCE, asker, position, query));
            }
            Some(_) | None => out.push(Effect::Answer { asker, reply: self.answer(&query) }),
        }
    }

    pub(crate) fn answer_waiting(&mut self, now: Timestamp, out: &mut Vec<Effect>) {
        if self.queries.is_empty() {
            return;
        }
        let here = self.world.position();
        for (due, asker, position, query) in std::mem::take(&mut self.queries) {
            if position <= here {
                out.push(Effect::Answer { asker, reply: self.answer(&query) });
            } else if due <= now {
                let why = format!("this BBS stands at position {here} and has not seen {position} yet");
                let reply = Reply::Rows(Err(Refusal::new(Code::Unavailable, why)));
                out.push(Effect::Answer { asker, reply });
            } else {
                self.queries.push((due, asker, position, query));
            }
        }
    }

    pub(crate) fn answer(&self, query: &Query) -> Reply {
        let (world, now) = (&self.world, self.shown);
        let rows = match query {
            Query::Lrps(filter) => queries::check(filter).and_then(|()| json(&queries::lrps(world, filter))),
            Query::Lrp(show) => queries::lrp(world, show).and_then(|row| json(&row)),
            Query::Instances(filter) => {
                queries::check(filter).and_then(|()| json(&queries::instances(world, filter)))
            }
            Query::Instance(show) => queries::instance(world, show).and_then(|row| json(&row)),
            Query::Tasks(filter) => {
                queries::check(filter).and_then(|()| json(&queries::tasks(world, filter)))
            }
            Query::Task(show) => queries::task(world, show).and_then(|row| json(&row)),
            Query::Domains(filter) => {
                queries::check(filter).and_then(|()| json(&queries::domains(world, filter, now)))
            }
            Query::Cells(filter) => {
                queries::check(filter).and_then(|()| json(&queries::cells(world, filter)))
            }
            Query::Cell(show) => queries::cell(world, show).and_then(|row| json(&row)),
            Query::Evaluations(filter) => {
                queries::check(filter).and_then(|()| json(&queries::evaluations(world, filter)))
            }
            Query::Evaluation(show) => queries::evaluation(world, show).and_then(|row| json(&row)),
            Query::Cluster => {
                let set_aside = self.reader.set_aside();
                queries::cluster(world, &self.settings.durability, set_aside).and_then(|row| json(&row))
            }
            Query::Records(asked) => return Reply::Records(records::of_cell(world, asked)),
        };
        Reply::Rows(rows)
    }
}

fn json<T: serde::Serialize>(rows: &T) -> Result<String, Refusal> {
    serde_json::to_string(rows).map_err(|error| Refusal::new(Code::Unavailable, error.to_string()))
}
