//! Tests of rollouts in a World, the state folded from the log. They cover due times, and the continuation of
//! a rollout by a World that was restored in the middle.

use machines::rollout;
use projections::{Due, World};
use proptest::prelude::*;
use schemas::Timestamp;
use schemas::entry::Event;

use crate::log::{Action, Log, ProcessAction, fold, groups, guid, write};

/// Returns the earliest due time of processes and tasks by a full scan.
fn scan_next_due(world: &World) -> Option<Timestamp> {
    let processes = world.processes_from(None).filter_map(|process| process.next_due());
    processes.chain(world.tasks_from(None).filter_map(|task| task.next_due())).min()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn due_aggregates_have_work_and_due_time_advances(groups in groups()) {
        let mut log = Log::new();
        for group in &groups {
            log.group(group);
            prop_assert_eq!(log.world.next_due(), scan_next_due(&log.world));
        }
        for _ in 0..60 {
            let due = log.advance_until_due();
            for (which, events) in &due {
                prop_assert!(!events.is_empty(),
                    "{:?} is due, but convergence decides nothing: {:#?}", which, match which {
                    Due::Process(guid) => log.world.process(guid),
                    Due::Task(_) | Due::Periodic(_) | Due::Parameterised(_) => None,
                });
            }
            if due.is_empty() {
                break;
            }
            log.group(&[Action::Converge]);
            prop_assert_eq!(log.world.next_due(), scan_next_due(&log.world));
        }
    }
}

/// Checks that random logs contain every rollout event. Otherwise the other tests would prove nothing.
#[test]
fn random_logs_contain_every_rollout_event() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = std::collections::BTreeSet::new();
    let mut rolling = 0;
    for _ in 0..400 {
        let log = write(&groups().new_tree(&mut runner).unwrap().current());
        let decisions = log.entries.iter().flat_map(|(_, entry)| &entry.decisions);
        let events = decisions.flat_map(|decision| &decision.events);
        seen.extend(events.map(Event::type_name).filter(|name| name.starts_with("rollout.")));
        rolling += log.world.processes_from(None).filter(|process| is_rolling(process)).count();
    }
    for name in [
        "started",
        "indices_started",
        "took_over",
        "replaced",
        "failed",
        "stalled",
        "paused",
        "resumed",
        "completed",
    ] {
        assert!(seen.contains(format!("rollout.{name}.v1").as_str()), "no {name}: {seen:?}");
    }
    assert!(rolling > 50, "only {rolling} logs end in the middle of a rollout");
}

fn is_rolling(process: &machines::process::Process) -> bool {
    process.rollout.as_ref().is_some_and(|rollout| !rollout.is_over() && !rollout.steps.is_empty())
}

/// Returns a log with a process whose first definition runs at both indices. The log ends with an update to
/// another definition.
fn rolling(policy: u8) -> Log {
    let of = |ask| vec![Action::Process(0, ask)];
    let start = |index| of(ProcessAction::Report { index, container: 1, steps: vec![0, 1] });
    let desire = ProcessAction::Desire { domain: 0, instances: 2, size: 3 };
    write(&[of(desire), start(0), start(1), of(ProcessAction::Deploy { definition: 0, policy })])
}

fn report(log: &mut Log, container: u8, steps: &[u8]) {
    log.group(&[Action::Process(0, ProcessAction::Report { index: 0, container, steps: steps.to_vec() })]);
}

fn state(log: &Log) -> &rollout::Rollout {
    let process = log.world.process(&guid(0)).expect("the process is desired");
    process.rollout.as_deref().expect("a rollout is active")
}

/// Selects the container of the new definition at index 0. Its slot comes first, because `other-0` sorts
/// before `process-0`.
const NEW: u8 = 1;
/// Selects the container of the old definition.
const OLD: u8 = 65;

#[test]
fn monitoring_period_and_following_delay_are_due() {
    // Bits 1 and 3 select a delay of 7 s and a monitoring period of 5 s.
    let mut log = rolling(0b1010);
    assert_eq!(log.world.next_due(), None, "the new instance waits for placement");
    report(&mut log, NEW, &[0, 1]);
    let started = log.world.process(&guid(0)).unwrap().changed_at;
    assert_eq!(log.world.next_due(), Some(Timestamp(started.0 + 5_000_000_000)));
    assert_eq!(fold(&log.entries), log.world);
    let due = log.advance_until_due();
    assert_eq!(due.iter().map(|(due, _)| due).collect::<Vec<_>>(), [&Due::Process(guid(0))]);
    log.group(&[Action::Converge]);
    assert_eq!(log.world.next_due(), None, "the rep reports when the old instance has stopped");
    report(&mut log, OLD, &[4]);
    let replaced = log.world.process(&guid(0)).unwrap().changed_at;
    assert_eq!(log.world.next_due(), Some(Timestamp(replaced.0 + 7_000_000_000)));
    let restored = World::from_bytes(&log.world.to_bytes(), None).unwrap();
    assert_eq!((restored.next_due(), &restored), (log.world.next_due(), &log.world));
    log.advance_until_due();
    log.group(&[Action::Converge]);
    assert!(state(&log).replacement_step(1).is_some(), "{:#?}", state(&log));
}

#[test]
fn missing_room_is_due_and_stalled_index_lets_next_start() {
    // Bit 7 allows zero running instances. Bit 5 selects the policy that continues with the next index after
    // a failure.
    let mut log = rolling(0b1010_0000);
    log.group(&[Action::Process(0, ProcessAction::Unplaced { index: 0, error: 0 })]);
    let begun = state(&log).steps[&0].started_at;
    assert_eq!(log.world.next_due(), Some(Timestamp(begun.0) + rollout::ROOM_TIMEOUT));
    log.advance_until_due();
    log.group(&[Action::Converge]);
    assert_eq!(state(&log).steps[&0].order, schemas::policy::UpdateOrder::StopFirst);

    let mut log = rolling(0b1010_0000);
    report(&mut log, NEW, &[0, 3]);
    let stalled = state(&log).stalled[&0];
    assert_eq!(stalled.times, 1, "{:#?}", state(&log));
    assert!(state(&log).replacement_step(1).is_some());
}
