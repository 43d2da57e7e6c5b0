//! Times of the steps of each index in a rollout, taken from the log.

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::entry::Event;
use schemas::names::DefinitionId;
use schemas::{Decision, Timestamp, actual, rollout};

/// Timeline of a rollout, taken from the log.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    /// Number of entries about the process since the router started.
    pub(super) entries: u64,
    /// Durations between the decision to stop an instance and the moment when the router learned of the
    /// decision.
    pub(super) lags: Vec<Duration>,
    target: Option<DefinitionId>,
    completed: bool,
    turns: BTreeMap<u32, Turn>,
}

/// Times of the steps of one index in a rollout.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    begun: Option<Timestamp>,
    claimed: Option<Timestamp>,
    started: Option<Timestamp>,
    stop_requested: Option<Timestamp>,
    replaced: Option<Timestamp>,
}

impl Timeline {
    /// Returns `true` if every index runs the target definition.
    pub(super) fn is_completed(&self) -> bool {
        self.completed
    }

    /// Records the events of a decision.
    pub(super) fn record(&mut self, decision: &Decision) {
        for event in &decision.events {
            match event {
                Event::Rollout(event) => self.record_rollout(event, decision.at),
                Event::Actual(event) => self.record_actual(event, decision.at),
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

    fn record_rollout(&mut self, event: &rollout::Event, at: Timestamp) {
        match event {
            rollout::Event::Started { target, .. } => self.target = Some(target.clone()),
            rollout::Event::IndicesStarted { indices } => {
                for index in indices.iter() {
                    self.turn(index).begun = Some(at);
                }
            }
            rollout::Event::Replaced { index, .. } => self.turn(*index).replaced = Some(at),
            rollout::Event::Completed {} => self.completed = true,
            rollout::Event::FellBack { .. }
            | rollout::Event::TookOver { .. }
            | rollout::Event::Failed { .. }
            | rollout::Event::Stalled { .. }
            | rollout::Event::Paused { .. }
            | rollout::Event::Resumed {} => {}
        }
    }

    fn record_actual(&mut self, event: &actual::Event, at: Timestamp) {
        match event {
            actual::Event::Claimed { place, .. } => self.turn(place.index).claimed = Some(at),
            actual::Event::Started { place, .. } => self.turn(place.index).started = Some(at),
            actual::Event::StopRequested { places, .. } => {
                if Some(&places.definition_id) != self.target.as_ref() {
                    places.iter().for_each(|place| self.turn(place.index).stop_requested = Some(at));
                }
            }
            actual::Event::Created { .. }
            | actual::Event::ExecStarted { .. }
            | actual::Event::Crashed { .. }
            | actual::Event::PlacementFailed { .. }
            | actual::Event::Unclaimed { .. }
            | actual::Event::Removed { .. } => {}
        }
    }

    fn turn(&mut self, index: u32) -> &mut Turn {
        self.turns.entry(index).or_default()
    }

    /// Returns the stages of an index. Each stage has one duration per index. The first stage is the sum of
    /// the other stages.
    pub(super) fn stages(&self) -> [(&'static str, Vec<Duration>); 5] {
        let between = |from: fn(&Turn) -> Option<Timestamp>, to: fn(&Turn) -> Option<Timestamp>| {
            let of = |turn: &Turn| Some(to(turn)?.since(from(turn)?));
            self.turns.values().filter_map(of).collect()
        };
        [
            ("index", between(|turn| turn.begun, |turn| turn.replaced)),
            ("placed", between(|turn| turn.begun, |turn| turn.claimed)),
            ("started", between(|turn| turn.claimed, |turn| turn.started)),
            ("told to stop", between(|turn| turn.started, |turn| turn.stop_requested)),
            ("stopped", between(|turn| turn.stop_requested, |turn| turn.replaced)),
        ]
    }
}
