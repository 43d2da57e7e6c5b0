//! Changes that each decision in a history made to the row of the history's target: the values before and
//! after the decision. The projections apply the decisions to a World (the state folded from the log), so
//! this module contains no knowledge of events.

use std::collections::BTreeMap;

use projections::World;
use projections::queries::{self, Observed};
use projections::reader::empty_entry;
use schemas::names::ServiceId;
use schemas::query::{QuarantinedEntries, Services, Show, ShowAnswer};
use schemas::{Entry, Position, Refusal, Timestamp};
use serde::Serialize;
use serde_json::Value;

use crate::changes::{Change, Noun, Rows, changes};
use crate::decisions::PositionedDecision;

/// Target of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryTarget {
    pub noun: Noun,
    /// Name, in the form that queries accept.
    pub id: String,
}

/// Returns the changes that each decision made to the target, in the order of the decisions. `decided` must
/// be the complete history.
#[must_use]
pub fn decision_changes(decided: &[PositionedDecision], thing: &HistoryTarget) -> Vec<Vec<Change>> {
    let mut world = World::new();
    let mut before = Rows::new();
    let each = (1..).zip(decided).map(|(nth, one)| {
        // Several decisions can share a position. Each decision is folded separately, to determine the
        // changes that it made itself.
        let entry = Entry { decisions: vec![one.decision.clone()], ..empty_entry() };
        world.fold(Position(nth), &entry);
        let after = rows(&world, thing, one.decision.at);
        changes(&std::mem::replace(&mut before, after.clone()), &after)
    });
    each.collect()
}

/// Returns the row of a target, or no rows if the target does not exist.
fn rows(world: &World, thing: &HistoryTarget, now: Timestamp) -> Rows {
    let show = Show { id: thing.id.clone(), at_least: None, as_of: None };
    let row = match thing.noun {
        Noun::Lrp => row(queries::lrp(world, &show)),
        Noun::Instance => {
            let rows = queries::instance(world, &show).ok().and_then(|one| one.row.into_iter().next());
            rows.and_then(|row| serde_json::to_value(row).ok())
        }
        Noun::Task => row(queries::task(world, &show)),
        Noun::Periodic => row(queries::periodic(world, &show)),
        Noun::Parameterised => row(queries::parameterised_one(world, &show)),
        Noun::Cell => row(queries::cell(world, &show, &empty_observation(now))),
        // Programs do not request the history of a domain.
        Noun::Domain => None,
    };
    row.into_iter().map(|row| ((thing.noun, thing.id.clone()), row)).collect()
}

fn row<T: Serialize>(shown: Result<ShowAnswer<T>, Refusal>) -> Option<Value> {
    shown.ok().and_then(|one| serde_json::to_value(one.row).ok())
}

/// Returns an empty observation for the values that only a BBS knows.
fn empty_observation(now: Timestamp) -> Observed {
    Observed {
        bbs: ServiceId::new("nobody").expect("constant id is valid"),
        now,
        durability: String::new(),
        quarantined_entries: QuarantinedEntries::default(),
        services: Services::default(),
        history_limit: 0,
        refused_transitions: 0,
        log: None,
        heartbeat_ages: BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use schemas::definition::DesiredLrpUpdate;
    use schemas::entry::Event;
    use schemas::{Indices, Places, actual, desired};

    use super::*;
    use crate::changes::Kind;
    use fixtures::web::{client, decision};

    #[test]
    fn each_decision_lists_its_changes() {
        let desire = Event::Desired(desired::Event::Desired(Box::new(fixtures::lrp("web", "shop", 2))));
        let places = Places { indices: Indices::below(2), definition_id: fixtures::definition_id("web") };
        let created = Event::Actual(actual::Event::Created { places });
        let scale = DesiredLrpUpdate { instances: Some(3), ..DesiredLrpUpdate::default() };
        let scaled = Event::Desired(desired::Event::Updated(scale));
        let removed = Event::Desired(desired::Event::Removed {});
        let all = [(1, vec![desire, created]), (2, vec![scaled]), (3, vec![removed])];
        let at = |(second, events): (u64, Vec<Event>)| PositionedDecision {
            position: Position(7),
            decision: decision(second, client(), events),
        };
        let thing = HistoryTarget { noun: Noun::Lrp, id: "web".into() };
        let altered = decision_changes(&all.map(at), &thing);
        let changed: Vec<Vec<&Change>> = altered.iter().map(|changes| changes.iter().collect()).collect();
        assert_eq!(changed[0][0].change, Kind::Appeared);
        let field = |nth: usize, name: &str| {
            let found = changed[nth][0].fields.iter().find(|field| field.field == name).unwrap();
            (found.before.clone().unwrap(), found.after.clone().unwrap())
        };
        assert_eq!(field(1, "instances"), (2.into(), 3.into()));
        assert_eq!(field(2, "desired"), (true.into(), false.into()));
    }
}
