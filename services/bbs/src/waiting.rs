//! Queries that wait until this BBS has applied the log up to a certain position to its projected state
//! (World).

use std::time::Duration;

use schemas::subject::Position;
use schemas::{Code, Refusal, Timestamp};

use crate::input::Query;

/// Time for which a query waits for its position.
pub(crate) const QUERY_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of waiting queries. Further ones are refused with `Overloaded`.
pub(crate) const MAX_QUERIES: usize = 100_000;
/// Maximum number of positions by which a query may be ahead of the World.
///
/// A position further ahead is not in this log. The client received the position from another cluster, or
/// before the log was restored to an earlier position.
pub(crate) const MAX_POSITIONS_AHEAD: u64 = 10_000;

/// Waiting queries in order of arrival.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitingQueries {
    queries: Vec<Waiting>,
}

#[derive(Clone, Debug)]
struct Waiting {
    until: Timestamp,
    token: u64,
    at_least: Position,
    query: Query,
}

/// Token of a request. If the position is reached, the query. If the query has waited too long, the refusal.
pub(crate) type ReadyQuery = (u64, Result<Query, Refusal>);

impl WaitingQueries {
    /// Stores a query until the World reaches the required position. `here` is the current position of the
    /// World.
    ///
    /// # Errors
    /// [`MAX_QUERIES`] queries are already waiting, or the position is more than [`MAX_POSITIONS_AHEAD`]
    /// ahead.
    pub(crate) fn wait(
        &mut self,
        now: Timestamp,
        here: Position,
        token: u64,
        (at_least, query): (Position, Query),
    ) -> Result<(), Refusal> {
        if at_least.0 > here.0.saturating_add(MAX_POSITIONS_AHEAD) {
            let why = format!(
                "at_least {at_least} is beyond the end of the log: this BBS is at position {here}; use a position from an \
                 answer of this cluster"
            );
            return Err(Refusal::new(Code::Unavailable, why));
        }
        if self.queries.len() >= MAX_QUERIES {
            return Err(Refusal::new(Code::Overloaded, "too many queued queries: try again"));
        }
        self.queries.push(Waiting { until: now + QUERY_TIMEOUT, token, at_least, query });
        Ok(())
    }

    /// Removes and returns the queries that need not wait any longer. `here` is the current position of the
    /// World.
    pub(crate) fn take_ready(&mut self, now: Timestamp, here: Position) -> Vec<ReadyQuery> {
        let ripe = self.queries.extract_if(.., |one| one.at_least <= here || one.until <= now);
        let answered = |one: Waiting| {
            if one.at_least <= here {
                return (one.token, Ok(one.query));
            }
            let why = format!("this BBS is at position {here} and has not read {} yet", one.at_least);
            (one.token, Err(Refusal::new(Code::Unavailable, why)))
        };
        ripe.map(answered).collect()
    }

    /// Returns the time at which the next query has waited too long.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.queries.iter().map(|one| one.until).min()
    }

    /// Returns the number of waiting queries.
    pub(crate) const fn len(&self) -> usize {
        self.queries.len()
    }
}

#[cfg(test)]
mod tests {
    use schemas::query::Filter;

    use super::*;

    fn query() -> Query {
        Query::Rows(projections::Query::Lrps(Filter::default()))
    }

    #[test]
    fn query_for_a_position_far_beyond_the_end_is_refused_at_once() {
        let (mut waiting, now) = (WaitingQueries::default(), Timestamp::from_millis(1_000));
        let mut wait = |at_least| waiting.wait(now, Position(7), 1, (Position(at_least), query()));
        wait(7 + MAX_POSITIONS_AHEAD).unwrap();
        for beyond in [8 + MAX_POSITIONS_AHEAD, u64::MAX] {
            let refusal = wait(beyond).unwrap_err();
            assert_eq!(refusal.code, Code::Unavailable);
            assert!(refusal.message.contains(&format!("at_least {beyond} is beyond")), "{}", refusal.message);
        }
        assert_eq!(waiting.len(), 1);
    }

    #[test]
    fn query_waits_for_position_until_timeout() {
        let (mut waiting, now) = (WaitingQueries::default(), Timestamp::from_millis(1_000));
        for (token, at_least) in [(1, 5), (2, 6), (3, 9)] {
            waiting.wait(now, Position(4), token, (Position(at_least), query())).unwrap();
        }
        assert_eq!((waiting.next_due(), waiting.len()), (Some(now + QUERY_TIMEOUT), 3));
        assert_eq!(waiting.take_ready(now, Position(4)), []);
        let tokens = |ripe: &[ReadyQuery]| ripe.iter().map(|(token, _)| *token).collect::<Vec<_>>();
        let ripe = waiting.take_ready(now, Position(6));
        assert!(tokens(&ripe) == [1, 2] && ripe.iter().all(|(_, query)| query.is_ok()), "{ripe:?}");
        let late = waiting.take_ready(now + QUERY_TIMEOUT, Position(8));
        assert_eq!(late[0].1.as_ref().unwrap_err().code, Code::Unavailable);
        assert_eq!((tokens(&late), waiting.len(), waiting.next_due()), (vec![3], 0, None));
    }
}
