//! Queries: passed on with a World snapshot, at once or when the World has reached the required position.

use projections::{Observed, Picture, records};
use schemas::cell::Cell;
use schemas::names::CellId;
use schemas::sight::Sight;
use schemas::subject::Position;
use schemas::{Code, Refusal};

use super::Bbs;
use crate::effect::{Effect, Reply};
use crate::input::Query;

impl Bbs {
    /// Handles a query.
    pub(super) fn queried(&mut self, requester: u64, at_least: Option<Position>, query: Query) {
        if !self.log.is_caught_up() || self.world().cluster().is_none() {
            // Otherwise the answer would omit everything that is not read yet.
            let refusal = Refusal::new(Code::Unavailable, "this BBS is still reading the journal: try again");
            return self.answer(requester, Reply::Rows(Err(refusal)));
        }
        match at_least {
            Some(position) if self.world().position() < position => {
                let here = self.world().position();
                if let Err(refusal) = self.queries.wait(self.now, here, requester, (position, query)) {
                    self.answer(requester, Reply::Rows(Err(refusal)));
                }
            }
            Some(_) | None => self.show(requester, query),
        }
    }

    /// Passes on the queries whose position is reached, and refuses those that have waited too long.
    pub(super) fn answer_waiting(&mut self) {
        for (requester, query) in self.queries.ripe(self.now, self.log.world().position()) {
            match query {
                Ok(query) => self.show(requester, query),
                Err(refusal) => self.answer(requester, Reply::Rows(Err(refusal))),
            }
        }
    }

    /// Passes a query on with a World snapshot. Answering takes long, and must not delay decisions.
    fn show(&mut self, requester: u64, query: Query) {
        let heard =
            |(id, _): (&CellId, &Cell)| Some((id.clone(), self.now.since(self.presence.heard_at(id)?)));
        let observed = Observed {
            bbs: self.settings.id.clone(),
            now: self.shown,
            durability: self.settings.durability.clone(),
            set_aside: self.log.set_aside().clone(),
            services: self.services(),
            history_limit: self.settings.history_limit,
            refused_transitions: self.refused_transitions,
            log: self.log_row().cloned(),
            heard: self.world().cells().filter_map(heard).collect(),
        };
        let picture = self.log.picture();
        self.emit(Effect::Show { requester, query, picture, observed: Box::new(observed) });
    }
}

/// Answers a query from a World snapshot for a client that may read everything. The function is pure and can
/// run on any thread.
#[must_use]
pub fn answer(query: &Query, picture: &Picture, observed: &Observed) -> Reply {
    answer_to(&Sight::Everything, query, picture, observed)
}

/// Answers a query like [`answer`], without the environment values that the client may not read.
#[must_use]
pub fn answer_to(sight: &Sight, query: &Query, picture: &Picture, observed: &Observed) -> Reply {
    match query {
        Query::Rows(query) => Reply::Rows(query.answer_to(sight, picture, observed)),
        Query::Records(asked) => Reply::Records(records::of_cell(picture, asked)),
    }
}
