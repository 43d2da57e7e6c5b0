//! Tests of rollouts with random updates, crashes, lost cells and evacuations, followed by a quiet period in
//! which everything converges.

use std::time::Duration;

use proptest::prelude::*;
use schemas::Place;
use schemas::actual;
use schemas::container::Instance;
use schemas::definition::DesiredLrpUpdate;
use schemas::isolation::Isolation;
use schemas::policy::{FailureAction, Parallelism, Policies, UpdateOrder, UpdatePolicy};
use schemas::process::{Command, Purpose, ReportStep, RolloutControl};
use schemas::rollout::Phase;

use super::harness::{Behaviour, CELLS, Harness, cell_id, definition, id, instances_at};
use crate::common::{instance, net_info};

/// A random step of the test.
#[derive(Clone, Debug)]
enum Move {
    Act(usize),
    Update(usize, Behaviour),
    Behave(usize, Behaviour),
    Activate(usize),
    Restart,
    Steer(RolloutControl),
    Scale(u32),
    Crash(usize),
    Retire(u32),
    Lose(u128),
    Return(u128),
    Evacuate(usize),
    EvacuationEnd(usize),
    Report(u32, usize),
    Converge,
    Pass(u64),
}

fn any_behaviour() -> impl Strategy<Value = Behaviour> {
    use Behaviour as B;
    prop_oneof![
        6 => Just(B::Works),
        1 => Just(B::Fails),
        1 => Just(B::FailsFrom(1)),
        1 => Just(B::Hangs),
        1 => Just(B::RunsAndCrashes),
        1 => Just(B::DoesNotFit),
    ]
}

fn any_policy() -> impl Strategy<Value = UpdatePolicy> {
    let parallelism = prop_oneof![(1..4_u32).prop_map(Parallelism::Count), Just(Parallelism::Percent(50))];
    let order = prop_oneof![2 => Just(UpdateOrder::StartFirst), 1 => Just(UpdateOrder::StopFirst)];
    let action = prop_oneof![
        Just(FailureAction::Hold),
        Just(FailureAction::Pause),
        Just(FailureAction::Continue),
        Just(FailureAction::Rollback)
    ];
    let ratio = prop_oneof![Just(0.0), Just(0.3), Just(1.0)];
    let after = prop_oneof![3 => Just(None), 1 => Just(Some(1))];
    let times = (prop_oneof![Just(0), Just(7_000_u64)], prop_oneof![Just(0), Just(5_000_u64)]);
    (parallelism, order, action, ratio, after, times).prop_map(
        |(parallelism, order, failure_action, ratio, pause_after, (delay_ms, monitor_ms))| UpdatePolicy {
            parallelism,
            order,
            failure_action,
            max_failure_ratio: ratio.try_into().unwrap(),
            pause_after,
            delay_ms,
            monitor_ms,
            index_deadline_ms: 60_000,
        },
    )
}

fn any_move() -> impl Strategy<Value = Move> {
    let steer = prop_oneof![
        Just(RolloutControl::Pause),
        Just(RolloutControl::Resume),
        Just(RolloutControl::RollBack)
    ];
    prop_oneof![
        40 => any::<usize>().prop_map(Move::Act),
        3 => (2..6_usize, any_behaviour()).prop_map(|(number, behaves)| Move::Update(number, behaves)),
        2 => (1..6_usize, any_behaviour()).prop_map(|(number, behaves)| Move::Behave(number, behaves)),
        1 => (1..6_usize).prop_map(Move::Activate),
        1 => Just(Move::Restart),
        2 => steer.prop_map(Move::Steer),
        2 => (0..6_u32).prop_map(Move::Scale),
        2 => any::<usize>().prop_map(Move::Crash),
        1 => (0..6_u32).prop_map(Move::Retire),
        1 => (0..CELLS).prop_map(Move::Lose),
        2 => (0..CELLS).prop_map(Move::Return),
        2 => any::<usize>().prop_map(Move::Evacuate),
        2 => any::<usize>().prop_map(Move::EvacuationEnd),
        1 => (0..6_u32, 1..6_usize).prop_map(|(index, number)| Move::Report(index, number)),
        4 => Just(Move::Converge),
        4 => (1..400_u64).prop_map(Move::Pass),
    ]
}

fn name(number: usize) -> String {
    format!("id{number}")
}

impl Harness {
    fn apply_move(&mut self, what: &Move) {
        match what {
            Move::Act(pick) => {
                let places = self.places();
                if let Some(place) = places.get(pick % places.len().max(1)) {
                    self.perform_next(&place.clone());
                }
            }
            Move::Update(number, behaves) => {
                self.behaviours.insert(id(&name(*number)), *behaves);
                drop(self.try_apply(&Command::Deploy {
                    update: DesiredLrpUpdate::default(),
                    definition_id: id(&name(*number)),
                    definition: definition(&name(*number)),
                }));
            }
            Move::Behave(number, behaves) => drop(self.behaviours.insert(id(&name(*number)), *behaves)),
            Move::Activate(number) => {
                drop(self.try_apply(&Command::Activate { definition_id: id(&name(*number)) }));
            }
            Move::Restart => drop(self.try_apply(&Command::Restart(Purpose::Restart))),
            Move::Steer(steer) => drop(self.try_apply(&Command::Steer(*steer))),
            Move::Scale(instances) => self.scale(*instances),
            Move::Crash(pick) => {
                if let Some((place, by)) = self.nth_held(*pick) {
                    let crash = actual::Command::Crash { reason: "killed".into(), exit_status: None };
                    self.report(&place, by, vec![ReportStep::Actual(crash)]).unwrap();
                }
            }
            Move::Retire(index) => {
                drop(self.try_apply(&Command::Retire { index: *index, definition_id: None }));
            }
            Move::Lose(cell) => {
                self.absent.insert(cell_id(*cell));
                while !self.apply(&Command::Converge).is_empty() {}
            }
            Move::Return(cell) => drop(self.absent.remove(&cell_id(*cell))),
            Move::Evacuate(pick) => self.evacuate(*pick),
            Move::EvacuationEnd(pick) => self.end_evacuation(*pick),
            Move::Report(index, number) => {
                let by = Instance { cell_id: cell_id(0), ..instance(9_000_000 + self.next_number, "c0") };
                let start = actual::Command::Start { net: net_info(3), isolation: Isolation::NONE };
                let place = Place::new(*index, id(&name(*number)));
                drop(self.report(&place, by, vec![ReportStep::Actual(start)]));
            }
            Move::Converge => drop(self.apply(&Command::Converge)),
            Move::Pass(seconds) => self.now = self.now + Duration::from_secs(*seconds),
        }
    }

    /// Checks that every instance ends up with the active definition once all cells are present and all
    /// definitions work.
    fn assert_converges(&mut self) {
        self.absent.clear();
        self.behaviours.clear();
        let policies = Some(Policies::default());
        self.apply(&Command::Update(DesiredLrpUpdate { policies, ..DesiredLrpUpdate::default() }));
        for _ in 0..60 {
            if self.process().rollout.as_ref().is_some_and(|rollout| rollout.phase == Phase::Paused) {
                self.apply(&Command::Steer(RolloutControl::Resume));
            }
            self.settle();
            self.pass(1200);
        }
        let desired = self.process().desired.as_ref().unwrap();
        let active = desired.active_definition_id.as_str();
        assert_eq!(
            self.running(),
            instances_at(active, 0..desired.instances),
            "{:#?}\n{:#?}",
            self.event_log,
            self.process()
        );
        assert!(desired.instances == 0 || self.healthy() == Some(active), "{:#?}", self.event_log);
        assert!(
            self.process().rollout.as_ref().is_none_or(|rollout| rollout.is_over()),
            "{:#?}",
            self.process()
        );
        assert_eq!(self.process().next_due(), None, "{:#?}", self.process());
        assert_eq!(self.apply(&Command::Converge), [], "a second pass finds nothing");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn rollout_converges_after_random_moves(
        instances in 1..5_u32,
        update in any_policy(),
        rollback in any_policy(),
        min_running in prop_oneof![2 => Just(None), 1 => (0..3_u32).prop_map(Some)],
        moves in prop::collection::vec(any_move(), 1..160),
    ) {
        let rollback = match rollback.failure_action {
            FailureAction::Rollback => UpdatePolicy { failure_action: FailureAction::Pause, ..rollback },
            FailureAction::Hold | FailureAction::Pause | FailureAction::Continue => rollback,
        };
        let mut stage = Harness::new(instances, Policies { update, rollback, min_running, ..Policies::default() });
        for what in &moves {
            stage.apply_move(what);
        }
        stage.assert_converges();
    }
}
