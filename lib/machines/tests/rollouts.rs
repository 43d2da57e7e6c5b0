//! Tests of rollouts: the worked examples of "Updatable LRPs" step by step, and the rules that Muster adds.

mod harness;
mod random;

use std::collections::BTreeSet;
use std::time::Duration;

use machines::actual::Actual;
use schemas::actual::{self, StopReason};
use schemas::definition::DesiredLrpUpdate;
use schemas::entry::Event;
use schemas::evaluation::Status;
use schemas::isolation::Isolation;
use schemas::policy::{FailureAction, Parallelism, Policies, UpdateOrder};
use schemas::process::{Command, Purpose, ReportStep, RolloutControl};
use schemas::{Code, Place, evacuating};

use self::harness::{Behaviour, Harness, definition, id, instances_at, policies};
use crate::common::net_info;

#[test]
fn working_definition_rolls_out_from_index_0_start_first() {
    let mut stage = Harness::stable(3, Policies::default());
    stage.update("id2", Behaviour::Works);
    assert_eq!(stage.running(), instances_at("id1", 0..3));
    stage.settle();
    assert_eq!(
        stage.event_log,
        [
            "Update to id2",
            "0@id2 created",
            "0@id2 runs",
            "id2 is healthy",
            "0@id1 stops",
            "1@id2 created",
            "1@id2 runs",
            "1@id1 stops",
            "2@id2 created",
            "2@id2 runs",
            "2@id1 stops",
            "completed",
            "[id1] pruned",
        ]
    );
    assert_eq!(
        (stage.running(), stage.definitions(), stage.status()),
        (instances_at("id2", 0..3), vec!["id2"], "completed")
    );
}

#[test]
fn failing_definition_is_retried_while_old_one_keeps_running() {
    let mut stage = Harness::stable(3, Policies::default());
    stage.update("id2", Behaviour::Fails);
    stage.settle();
    for _ in 0..30 {
        stage.pass(3600);
        assert_eq!((stage.running(), stage.healthy()), (instances_at("id1", 0..3), Some("id1")));
    }
    let crashes = stage.event_log.iter().filter(|line| *line == "0@id2 crashes").count();
    assert!(crashes > 100, "{crashes} crashes: the instance is retried indefinitely");
    assert!(stage.event_log.iter().all(|line| !line.contains("1@id2")), "{:#?}", stage.event_log);
    // An instance that crashes during the rollout restarts with the healthy definition.
    let place = Place::new(2, id("id1"));
    let by = stage.process().actual(&place).unwrap().holder().unwrap().clone();
    stage
        .report(
            &place,
            by,
            vec![ReportStep::Actual(actual::Command::Crash { reason: "x".into(), exit_status: None })],
        )
        .unwrap();
    stage.settle();
    assert_eq!(stage.running(), instances_at("id1", 0..3));
}

#[test]
fn hold_action_retries_beyond_200_crashes() {
    let mut stage = Harness::stable(1, Policies::default());
    stage.update("id2", Behaviour::Fails);
    stage.settle();
    stage.pass(300 * 16 * 60);
    let crashes = stage.event_log.iter().filter(|line| *line == "0@id2 crashes").count();
    assert!(crashes > 201, "{crashes} crashes");
}

#[test]
fn flaky_definition_stalls_index_at_deadline_and_continues() {
    let mut stage = Harness::stable(3, Policies::default());
    stage.update("id2", Behaviour::FailsFrom(1));
    stage.settle();
    assert_eq!(stage.healthy(), Some("id2"));
    assert_eq!(
        stage.running(),
        instances_at("id2", [0]).union(&instances_at("id1", 1..3)).cloned().collect()
    );
    stage.pass(599);
    assert!(!stage.event_log.iter().any(|line| line.contains("stalls")), "{:#?}", stage.event_log);
    stage.pass(2);
    assert!(
        stage.event_log.contains(&"1 stalls".to_owned())
            && stage.event_log.contains(&"2@id2 created".to_owned())
    );
    stage.pass(620);
    assert_eq!(stage.status(), "updating");
    assert_eq!(
        stage.running(),
        instances_at("id2", [0]).union(&instances_at("id1", 1..3)).cloned().collect()
    );
    // Once instances of the definition stay healthy, the stalled index is tried again.
    stage.behaviours.insert(id("id2"), Behaviour::Works);
    stage.pass(3600);
    assert_eq!((stage.running(), stage.status()), (instances_at("id2", 0..3), "completed"));
}

#[test]
fn update_during_rollout_restarts_at_index_0() {
    let mut stage = Harness::stable(4, Policies::default());
    stage.update("id2", Behaviour::Works);
    while !stage.event_log.contains(&"2@id2 created".to_owned()) {
        let acted: Vec<bool> = stage.places().iter().map(|place| stage.perform_next(place)).collect();
        assert!(acted.contains(&true));
    }
    stage.event_log.clear();
    stage.update("id3", Behaviour::Works);
    assert_eq!(stage.event_log[..2], ["Update to id3", "0@id3 created"]);
    assert!(stage.process().actual(&Place::new(2, id("id2"))).is_none_or(Actual::is_stopping));
    assert!(stage.running().contains(&(2, "id1".to_owned())));
    stage.settle();
    assert_eq!((stage.running(), stage.definitions()), (instances_at("id3", 0..4), vec!["id3"]));
    let stops: Vec<_> = stage.event_log.iter().filter(|line| line.ends_with("stops")).collect();
    assert_eq!(stops, ["0@id2 stops", "1@id2 stops", "2@id1 stops", "3@id1 stops"]);
}

#[test]
fn rollback_returns_to_healthy_definition_and_is_final() {
    let mut stage = Harness::stable(
        4,
        policies(|update| {
            update.failure_action = FailureAction::Rollback;
            update.monitor_ms = 5_000;
        }),
    );
    // The first definition had to survive its monitor (run for its monitoring time), too.
    stage.pass(10);
    assert_eq!(stage.healthy(), Some("id1"));
    stage.update("id2", Behaviour::RunsAndCrashes);
    stage.settle();
    assert_eq!((stage.running(), stage.healthy()), (instances_at("id1", 0..4), Some("id1")));
    stage.pass(10);
    assert_eq!(stage.status(), "rollback_completed");
    stage.pass(60);
    assert_eq!(stage.definitions(), ["id1"]);
    assert!(stage.event_log.contains(&"Rollback to id1".to_owned()), "{:#?}", stage.event_log);
}

#[test]
fn pruned_definition_is_restored_by_rollback() {
    let mut stage = Harness::stable(
        5,
        policies(|update| {
            update.failure_action = FailureAction::Rollback;
            update.delay_ms = 15_000;
        }),
    );
    stage.update("id2", Behaviour::Works);
    stage.settle();
    stage.pass(20);
    assert_eq!(
        stage.running(),
        instances_at("id2", 0..2).union(&instances_at("id1", 2..5)).cloned().collect()
    );
    stage.update("id3", Behaviour::FailsFrom(2));
    stage.settle();
    stage.pass(20);
    assert_eq!(
        stage.running(),
        instances_at("id3", 0..2).union(&instances_at("id1", 2..5)).cloned().collect()
    );
    assert_eq!((stage.definitions(), stage.status()), (vec!["id1", "id3"], "updating"));
    // Index 2 fails: the rollout goes back to the definition that was healthy when it started.
    stage.pass(600);
    assert!(stage.event_log.contains(&"Rollback to id2".to_owned()), "{:#?}", stage.event_log);
    assert_eq!(
        (stage.running(), stage.definitions(), stage.status()),
        (instances_at("id2", 0..5), vec!["id2"], "rollback_completed")
    );
}

#[test]
fn instance_given_up_by_rollout_ends_with_rollout_failed() {
    let (place, failed) = (|index, name| Place::new(index, id(name)), StopReason::RolloutFailed);
    // An index exceeds its deadline.
    let mut stage = Harness::stable(2, Policies::default());
    stage.update("id2", Behaviour::FailsFrom(1));
    stage.settle();
    stage.pass(601);
    assert_eq!(
        stage.event_log.iter().filter(|line| *line == "1 stalls").count(),
        1,
        "{:#?}",
        stage.event_log
    );
    let gone = |end: &&(Place, StopReason)| end.1 != StopReason::Stopped;
    let ends: Vec<_> = stage.ended.iter().filter(gone).cloned().collect();
    assert_eq!(ends, [(place(0, "id1"), StopReason::Replaced), (place(1, "id2"), failed)]);
    // Too many indices fail. The failed instance stops. A rollback stops starting instances, too.
    for action in [FailureAction::Pause, FailureAction::Continue, FailureAction::Rollback] {
        let mut stage = Harness::stable(
            3,
            policies(|update| {
                update.failure_action = action;
                update.parallelism = Parallelism::Count(2);
            }),
        );
        stage.update("id2", Behaviour::Hangs);
        stage.settle();
        stage.behaviours.insert(id("id2"), Behaviour::Fails);
        assert!(stage.perform_next(&place(0, "id2")));
        let goes_back = action == FailureAction::Rollback;
        let ends: &[_] = &[(place(0, "id2"), failed), (place(1, "id2"), failed)];
        assert_eq!(stage.ended, ends[..1 + usize::from(goes_back)], "{action:?}");
    }
    // A manual rollback and another update replace the instance.
    for by_hand in [true, false] {
        let mut stage = Harness::stable(1, Policies::default());
        stage.update("id2", Behaviour::Hangs);
        stage.settle();
        if by_hand {
            stage.apply(&Command::Steer(RolloutControl::RollBack));
        } else {
            stage.update("id3", Behaviour::Works);
        }
        assert_eq!(stage.ended, [(place(0, "id2"), StopReason::Replaced)]);
    }
}

#[test]
fn rollout_without_healthy_definition_replaces_every_index_and_cannot_roll_back() {
    let mut stage = Harness::new(3, policies(|update| update.failure_action = FailureAction::Rollback));
    stage.behaviours.insert(id("id1"), Behaviour::Fails);
    stage.settle();
    stage.update("id2", Behaviour::Fails);
    let created = stage.event_log.iter().filter(|line| line.contains("@id2 created")).count();
    assert_eq!(created, 1, "all three in one event: {:#?}", stage.event_log);
    assert!((0..3).all(|index| stage.process().actual(&Place::new(index, id("id2"))).is_some()));
    stage.settle();
    assert_eq!(stage.status(), "paused");
    let refused = stage.try_apply(&Command::Steer(RolloutControl::RollBack)).unwrap_err();
    assert_eq!(refused.code, Code::InvalidStateTransition);
    assert!(refused.to_string().contains("nothing to roll back to"), "{refused}");
}

#[test]
fn rollout_pauses_after_canary_until_resumed() {
    let mut stage = Harness::stable(4, policies(|update| update.pause_after = Some(1)));
    stage.update("id2", Behaviour::Works);
    stage.settle();
    assert_eq!((stage.status(), stage.running().iter().filter(|(_, id)| id == "id2").count()), ("paused", 1));
    stage.apply(&Command::Steer(RolloutControl::Resume));
    stage.settle();
    assert_eq!((stage.status(), stage.running()), ("completed", instances_at("id2", 0..4)));
}

#[test]
fn stop_first_runs_one_instance_per_index_and_keeps_minimum_running() {
    let mut stage = Harness::stable(
        4,
        policies(|update| {
            update.order = UpdateOrder::StopFirst;
            update.parallelism = Parallelism::Count(2);
        }),
    );
    stage.update("id2", Behaviour::Works);
    let mut least = 4;
    for _ in 0..40 {
        for place in stage.places() {
            stage.perform_next(&place);
            let indices: Vec<u32> = stage.running().iter().map(|(index, _)| *index).collect();
            let distinct: BTreeSet<u32> = indices.iter().copied().collect();
            assert_eq!(indices.len(), distinct.len(), "I6");
            least = least.min(indices.len());
        }
    }
    assert_eq!((least, stage.status(), stage.running()), (2, "completed", instances_at("id2", 0..4)));
}

#[test]
fn index_without_room_falls_back_to_stop_first_if_min_running_allows() {
    for (min_running, falls_back) in [(None, false), (Some(2), true)] {
        let policies = Policies { min_running, ..Policies::default() };
        let mut stage = Harness::stable(3, policies);
        stage.update("id2", Behaviour::DoesNotFit);
        stage.settle();
        stage.pass(120);
        assert_eq!(
            stage.event_log.contains(&"0 falls back".to_owned()),
            falls_back,
            "{:#?}",
            stage.event_log
        );
        assert_eq!(stage.running().len(), if falls_back { 2 } else { 3 });
    }
}

/// The old instance ends in the same decision that reports the placement failure of this instance. Other
/// waiting instances are blocked with their own errors.
#[test]
fn blocked_evaluation_ignores_error_of_removed_instance() {
    let mut stage = Harness::stable(3, Policies::default());
    let (old, new) = (Place::new(0, id("id1")), Place::new(0, id("id2")));
    stage.update("id2", Behaviour::Works);
    stage.unplaced(&new, "no cell");
    let by = stage.process().actual(&old).and_then(Actual::holder).cloned().unwrap();
    let crash = actual::Command::Crash { reason: "x".into(), exit_status: None };
    stage.report(&old, by, vec![ReportStep::Actual(crash)]).unwrap();
    stage.now = stage.now + Duration::from_secs(60);
    stage.unplaced(&old, "no room");
    assert!(stage.event_log.contains(&"0 falls back".to_owned()), "{:#?}", stage.event_log);
    let blocked = stage.process().evaluations.iter().filter_map(|one| match one.status {
        Status::Blocked { reason } => Some(reason),
        Status::Pending | Status::Complete | Status::Failed { .. } | Status::Canceled { .. } => None,
    });
    assert_eq!(blocked.collect::<Vec<_>>(), ["no cell"]);
}

/// An index whose old instance evacuates does not fall back to stop-first, because the old instance may
/// return and still run.
#[test]
fn evacuating_index_does_not_fall_back() {
    let mut stage = Harness::stable(3, Policies::default());
    let old = Place::new(0, id("id1"));
    stage.update("id2", Behaviour::DoesNotFit);
    stage.settle();
    let by = stage.process().actual(&old).and_then(Actual::holder).cloned().unwrap();
    stage.evacuate(0);
    stage.pass(60);
    assert_eq!(stage.running().len(), 2);
    stage
        .report(
            &old,
            by,
            vec![ReportStep::Actual(actual::Command::Start { net: net_info(1), isolation: Isolation::NONE })],
        )
        .unwrap();
    stage.pass(60);
    assert_eq!(stage.running(), instances_at("id1", 0..3), "{:#?}", stage.event_log);
}

/// A cell is lost, and an instance of another definition replaces the instance of the lost cell. A rollout to
/// the healthy definition finds no cell. When the lost cell returns, the serving instance stays, regardless
/// of the names of both definitions.
#[test]
fn returned_instance_does_not_replace_serving_instance() {
    let rolls = |order, at_once| {
        policies(|update| {
            update.order = order;
            update.parallelism = Parallelism::Count(at_once);
            update.monitor_ms = 5_000;
        })
    };
    let changed = |policies| {
        Command::Update(DesiredLrpUpdate { policies: Some(policies), ..DesiredLrpUpdate::default() })
    };
    for (lost, serving) in [("a", "z"), ("z", "a")] {
        let mut stage = Harness::stable(2, rolls(UpdateOrder::StopFirst, 2));
        stage.pass(10);
        // Index 1 runs this definition, too, so the definition is not pruned.
        stage.update(lost, Behaviour::Works);
        stage.settle();
        let old = Place::new(0, id(lost));
        let by = stage.process().actual(&old).and_then(Actual::holder).cloned().unwrap();
        stage.absent.insert(by.cell_id.clone());
        stage.apply(&Command::Converge);
        stage.absent.clear();
        stage.apply(&changed(rolls(UpdateOrder::StopFirst, 1)));
        stage.update(serving, Behaviour::Works);
        stage.settle();
        stage.apply(&changed(rolls(UpdateOrder::StartFirst, 2)));
        stage.behaviours.insert(id("id1"), Behaviour::DoesNotFit);
        stage.apply(&Command::Activate { definition_id: id("id1") });
        stage.settle();
        assert_eq!(stage.running(), BTreeSet::from([(0, serving.to_owned()), (1, lost.to_owned())]));
        stage.ended.clear();
        stage
            .report(
                &old,
                by,
                vec![ReportStep::Actual(actual::Command::Start {
                    net: net_info(1),
                    isolation: Isolation::NONE,
                })],
            )
            .unwrap();
        assert_eq!(stage.ended, [(old, StopReason::Replaced)], "{:#?}", stage.event_log);
    }
}

#[test]
fn policy_that_blocks_every_stop_is_refused_without_change() {
    let mut stage = Harness::stable(3, Policies::default());
    let mut never = policies(|update| update.order = UpdateOrder::StopFirst);
    never.min_running = Some(3);
    let update = |instances, policies| DesiredLrpUpdate {
        instances,
        policies: Some(policies),
        ..DesiredLrpUpdate::default()
    };
    let before = stage.process().clone();
    let deploy = Command::Deploy {
        update: update(None, never.clone()),
        definition_id: id("id2"),
        definition: definition("id2"),
    };
    for refused in [&Command::Update(update(None, never.clone())), &deploy] {
        let refusal = stage.try_apply(refused).unwrap_err();
        assert_eq!((refusal.code, refusal.fields.len()), (Code::InvalidRequest, 1), "{refusal}");
    }
    assert_eq!(*stage.process(), before);
    stage.apply(&Command::Update(update(Some(4), never)));
}

#[test]
fn same_definition_under_other_id_starts_no_rollout() {
    let mut stage = Harness::stable(2, Policies::default());
    let deploy = Command::Deploy {
        update: DesiredLrpUpdate::default(),
        definition_id: id("other"),
        definition: definition("id1"),
    };
    assert_eq!(stage.apply(&deploy), []);
    assert_eq!(stage.apply(&Command::Activate { definition_id: id("id1") }), []);
    let unknown = stage.try_apply(&Command::Activate { definition_id: id("id9") }).unwrap_err();
    assert_eq!((unknown.code, unknown.to_string().contains("id1")), (Code::ResourceNotFound, true));
    let taken = Command::Deploy {
        update: DesiredLrpUpdate::default(),
        definition_id: id("id1"),
        definition: definition("id2"),
    };
    assert_eq!(stage.try_apply(&taken).unwrap_err().code, Code::ResourceExists);
    for purpose in [Purpose::Restart, Purpose::Rebalance, Purpose::Restart] {
        stage.apply(&Command::Restart(purpose));
        let rollout = stage.process().rollout.as_ref().unwrap();
        assert_eq!(rollout.reason, purpose.rollout_reason());
        let named = format!("id1-{}-", purpose.as_str());
        let number = rollout.target.as_str().strip_prefix(&named).unwrap_or_else(|| panic!("{rollout:?}"));
        assert!(number.bytes().all(|byte| byte.is_ascii_digit()), "{rollout:?}");
        stage.settle();
        assert_eq!(stage.running().len(), 2);
    }
}

#[test]
fn seventeenth_definition_is_refused() {
    let mut stage = Harness::stable(1, Policies::default());
    for number in 2..=16 {
        stage.update(&format!("id{number}"), Behaviour::Hangs);
    }
    let one_more = Command::Deploy {
        update: DesiredLrpUpdate::default(),
        definition_id: id("id17"),
        definition: definition("id17 is another one"),
    };
    let refused = stage.try_apply(&one_more).unwrap_err();
    assert_eq!(refused.code, Code::ResourceConflict, "{refused}");
    stage.settle();
    stage.apply(&one_more);
}

/// The replacement of an evacuating instance runs. In the same message, its rep reports that the evacuating
/// record can be removed. A third instance of the index is still leaving. The record is removed only once.
#[test]
fn evacuating_record_is_removed_once() {
    let mut stage = Harness::stable(1, Policies::default());
    let (old, new) = (Place::new(0, id("id1")), Place::new(0, id("id2")));
    stage.update("id2", Behaviour::Hangs);
    stage.perform_next(&new);
    stage.apply(&Command::Activate { definition_id: id("id1") });
    stage.evacuate(0);
    stage.perform_next(&old);
    let by = stage.process().actual(&old).and_then(Actual::holder).cloned().unwrap();
    let start = ReportStep::Actual(actual::Command::Start { net: net_info(1), isolation: Isolation::NONE });
    let gone = ReportStep::Evacuating(evacuating::Command::Remove);
    let events = stage.report(&old, by, vec![start, gone]).unwrap();
    let removed = |event: &&Event| matches!(event, Event::Evacuating(evacuating::Event::Removed { .. }));
    assert_eq!(events.iter().filter(removed).count(), 1, "{events:#?}");
}
