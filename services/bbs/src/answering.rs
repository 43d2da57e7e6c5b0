//! Queries: given to whoever answers them, with a picture of the World, at once or when it has come far enough.

use projections::{Observed, Picture, records};
use schemas::cell::Cell;
use schemas::names::CellId;
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
            Some(_) | None => {
                let show = self.show(asker, query);
                out.push(show);
            }
        }
    }

    pub(crate) fn answer_waiting(&mut self, now: Timestamp, out: &mut Vec<Effect>) {
        if self.queries.is_empty() {
            return;
        }
        let here = self.world.position();
        for (due, asker, position, query) in std::mem::take(&mut self.queries) {
            if position <= here {
                let show = self.show(asker, query);
                out.push(show);
            } else if due <= now {
                let why = format!("this BBS stands at position {here} and has not seen {position} yet");
                let reply = Reply::Rows(Err(Refusal::new(Code::Unavailable, why)));
                out.push(Effect::Answer { asker, reply });
            } else {
                self.queries.push((due, asker, position, query));
            }
        }
    }

    /// Gives the query to whoever answers it from a picture: that takes long, and nothing is decided meanwhile.
    fn show(&mut self, asker: u64, query: Query) -> Effect {
        let heard =
            |(id, _): (&CellId, &Cell)| Some((id.clone(), self.now.since(self.presence.heard_at(id)?)));
        let observed = Observed {
            bbs: self.settings.id.clone(),
            now: self.shown,
            durability: self.settings.durability.clone(),
            set_aside: self.reader.set_aside().clone(),
            heard: self.world.cells().filter_map(heard).collect(),
        };
        let here = self.world.position();
        let known = self.picture.take().filter(|picture| picture.position() == here);
        let picture = known.unwrap_or_else(|| self.world.picture());
        self.picture = Some(picture.clone());
        Effect::Show { asker, query, picture, observed: Box::new(observed) }
    }
}

/// Answers a query from a picture. A pure read, for whoever has time.
#[must_use]
pub fn answer(query: &Query, picture: &Picture, observed: &Observed) -> Reply {
    match query {
        Query::Rows(query) => Reply::Rows(query.answer(picture, observed)),
        Query::Records(asked) => Reply::Records(records::of_cell(picture, asked)),
    }
}
