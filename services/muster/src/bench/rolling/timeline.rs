//! When what happened to each index of a rollout, as the log says.

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::entry::Event;
use schemas::names::DefinitionId;
use schemas::{Decision, Timestamp, actual, rollout};

/// A rollout as the log tells it.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    /// Entries about the process since somebody looks.
    pub(super) entries: u64,
    /// Between the decision that an instance has to stop and the moment at which the router knew it.
    pub(super) lags: Vec<Duration>,
    target: Option<DefinitionId>,
    over: bool,
    turns: BTreeMap<u32, Turn>,
}

/// The turn of an index.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    begun: Option<Timestamp>,
    claimed: Option<Timestamp>,
    started: Option<Timestamp>,
    asked_to_stop: Option<Timestamp>,
    replaced: Option<Timestamp>,
}

impl Timeline {
    /// Whether every index runs the target.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Takes a decision in.
    pub(super) fn take(&mut self, decision: &Decision) {
        for event in &decision.events {
            match event {
                Event::Rollout(event) => self.take_rollout(event, decision.at),
                Event::Actual(event) => self.take_actual(event, decision.at),
                Event::Desired(_)
                | Event::Evacuating(_)
                | Event::Evaluation(_)
                | Event::Task(_)
                | Event::Periodic(_)
                | Event::Parameterised(_)
                | Event::Domain(_)
                | Event::Cell(_)
                | Event::Cluster(_) => {}
            }
        }
    }

    fn take_rollout(&mut self, event: &rollout::Event, at: Timestamp) {
        match event {
            rollout::Event::Started { target, .. } => self.target = Some(target.clone()),
            rollout::Event::Begun { indices } => {
                for index in indices.iter() {
                    self.turn(index).begun = Some(at);
                }
            }
            rollout::Event::Replaced { index, .. } => self.turn(*index).replaced = Some(at),
            rollout::Event::Completed {} => self.over = true,
            rollout::Event::FellBack { .. }
            | rollout::Event::TookOver { .. }
            | rollout::Event::Failed { .. }
            | rollout::Event::Stalled { .. }
            | rollout::Event::Paused { .. }
            | rollout::Event::Resumed {} => {}
        }
    }

    fn take_actual(&mut self, event: &actual::Event, at: Timestamp) {
        match event {
            actual::Event::Claimed { place, .. } => self.turn(place.index).claimed = Some(at),
            actual::Event::Started { place, .. } => self.turn(place.index).started = Some(at),
            actual::Event::StopRequested { places, .. } => {
                if Some(&places.definition_id) != self.target.as_ref() {
                    places.iter().for_each(|place| self.turn(place.index).asked_to_stop = Some(at));
                }
            }
            actual::Event::Created { .. }
            | actual::Event::Entered { .. }
            | actual::Event::Crashed { .. }
            | actual::Event::PlacementFailed { .. }
            | actual::Event::Unclaimed { .. }
            | actual::Event::Removed { .. } => {}
        }
    }

    fn turn(&mut self, index: u32) -> &mut Turn {
        self.turns.entry(index).or_default()
    }

    /// What an index waits for, one after the other, and how long each took at every index.
    pub(super) fn stages(&self) -> [(&'static str, Vec<Duration>); 5] {
        let between = |from: fn(&Turn) -> Option<Timestamp>, to: fn(&Turn) -> Option<Timestamp>| {
            let of = |turn: &Turn| Some(to(turn)?.since(from(turn)?));
            self.turns.values().filter_map(of).collect()
        };
        [
            ("index", between(|turn| turn.begun, |turn| turn.replaced)),
            ("placed", between(|turn| turn.begun, |turn| turn.claimed)),
            ("started", between(|turn| turn.claimed, |turn| turn.started)),
            ("told to stop", between(|turn| turn.started, |turn| turn.asked_to_stop)),
            ("stopped", between(|turn| turn.asked_to_stop, |turn| turn.replaced)),
        ]
    }
}
