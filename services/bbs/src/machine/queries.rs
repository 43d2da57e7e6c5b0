//! Queries: each query is passed on with a snapshot of the World (the state folded from the log). This
//! happens at once, or when the World has reached the required position.

use machines::cell::Cell;
use projections::{Observed, WorldSnapshot, records};
use schemas::names::CellId;
use schemas::sight::ReadScope;
use schemas::subject::Position;
use schemas::{Code, Refusal};

use super::Bbs;
use crate::effect::{Effect, Reply};
use crate::input::Query;

impl Bbs {
    /// Handles a query.
    pub(super) fn handle_query(&mut self, requester: u64, at_least: Option<Position>, query: Query) {
        if !self.log.is_caught_up() || self.world().cluster().is_none() {
            // Without this check the answer would omit everything that the BBS has not read yet.
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
            Some(_) | None => self.forward_query(requester, query),
        }
    }

    /// Passes on the queries whose position is reached. Refuses the queries that have waited too long.
    pub(super) fn forward_ready_queries(&mut self) {
        for (requester, query) in self.queries.take_ready(self.now, self.log.world().position()) {
            match query {
                Ok(query) => self.forward_query(requester, query),
                Err(refusal) => self.answer(requester, Reply::Rows(Err(refusal))),
            }
        }
    }

    /// Passes a query on with a World snapshot. The answer is computed elsewhere, because answering takes
    /// long and must not delay decisions.
    fn forward_query(&mut self, requester: u64, query: Query) {
        let heard = |(id, _): (&CellId, &Cell)| {
            Some((id.clone(), self.now.since(self.presence.last_sign_of_life(id)?)))
        };
        let observed = Observed {
            bbs: self.settings.id.clone(),
            now: self.shown,
            durability: self.settings.durability.clone(),
            quarantined_entries: self.log.quarantined().clone(),
            services: self.services(),
            history_limit: self.settings.history_limit,
            refused_transitions: self.refused_transitions,
            log: self.log_row().cloned(),
            heartbeat_ages: self.world().cells().filter_map(heard).collect(),
        };
        let picture = self.log.snapshot();
        self.emit(Effect::AnswerQuery { requester, query, picture, observed: Box::new(observed) });
    }
}

/// Answers a query from a World snapshot for a client that may read everything. The function is pure and can
/// run on any thread.
#[must_use]
pub fn answer(query: &Query, picture: &WorldSnapshot, observed: &Observed) -> Reply {
    answer_within(&ReadScope::Everything, query, picture, observed)
}

/// Answers a query like [`answer`], but omits the environment values that the client may not read.
#[must_use]
pub fn answer_within(
    sight: &ReadScope,
    query: &Query,
    picture: &WorldSnapshot,
    observed: &Observed,
) -> Reply {
    match query {
        Query::Rows(query) => Reply::Rows(query.answer_to(sight, picture, observed)),
        Query::Records(asked) => Reply::Records(records::cell_records(picture, asked)),
    }
}
