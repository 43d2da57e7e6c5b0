//! Queries: answered at once, or when the World has come far enough.

use projections::{Observed, records};
use schemas::subject::Position;
use schemas::{Code, Refusal, Timestamp};

use crate::machine::{Bbs, Effect, QUERY_PATIENCE, QUEUE, Query, Reply};

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
        match query {
            Query::Rows(query) => Reply::Rows(query.answer(&self.world, &self.observed())),
            Query::Records(asked) => Reply::Records(records::of_cell(&self.world, asked)),
        }
    }

    fn observed(&self) -> Observed {
        Observed {
            now: self.shown,
            durability: self.settings.durability.clone(),
            set_aside: self.reader.set_aside().clone(),
        }
    }
}
