//! Rollouts in a World: what is due of them, and that a World restored in the middle of one goes on with it.

use projections::{Due, World};
use proptest::prelude::*;
use schemas::Timestamp;
use schemas::entry::Event;
use schemas::rollout;

use crate::log::{Ask, Log, OfProcess, fold, groups, guid, write};

/// When what is there says itself that it is next due.
fn told(world: &World) -> Option<Timestamp> {
    let processes = world.processes_from(None).filter_map(|process| process.next_due());
    processes.chain(world.tasks_from(None).filter_map(|task| task.next_due())).min()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_due_has_something_to_do_and_time_passes(groups in groups()) {
        let mut log = Log::new();
        for group in &groups {
            log.group(group);
            prop_assert_eq!(log.world.next_due(), told(&log.world));
        }
        for _ in 0..60 {
            let due = log.until_due();
            for (which, events) in &due {
                prop_assert!(!events.is_empty(), "{:?} is due and nothing follows: {:#?}", which, match which {
                    Due::Process(guid) => log.world.process(guid),
                    Due::Task(_) | Due::Periodic(_) | Due::Parameterised(_) => None,
                });
            }
            if due.is_empty() {
                break;
            }
            log.group(&[Ask::Converge]);
            prop_assert_eq!(log.world.next_due(), told(&log.world));
        }
    }
}

/// The asks of random logs really roll out: a test of the tests above.
#[test]
fn random_logs_hold_every_event_of_rollouts() {
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
    for name in
        ["started", "begun", "took_over", "replaced", "failed", "stalled", "paused", "resumed", "completed"]
    {
        assert!(seen.contains(format!("rollout.{name}.v1").as_str()), "no {name}: {seen:?}");
    }
    assert!(rolling > 50, "only {rolling} logs end in the middle of a rollout");
}

fn is_rolling(process: &schemas::process::Process) -> bool {
    process.rollout.as_ref().is_some_and(|rollout| !rollout.is_over() && !rollout.steps.is_empty())
}

/// A process whose first definition runs at both of its indices, and that is to run another one.
fn rolling(policy: u8) -> Log {
    let of = |ask| vec![Ask::Process(0, ask)];
    let start = |index| of(OfProcess::Report { index, container: 1, steps: vec![0, 1] });
    let desire = OfProcess::Desire { domain: 0, instances: 2, size: 3 };
    write(&[of(desire), start(0), start(1), of(OfProcess::Deploy { definition: 0, policy })])
}

fn report(log: &mut Log, container: u8, steps: &[u8]) {
    log.group(&[Ask::Process(0, OfProcess::Report { index: 0, container, steps: steps.to_vec() })]);
}

fn state(log: &Log) -> &rollout::Rollout {
    let process = log.world.process(&guid(0)).expect("it is desired");
    process.rollout.as_deref().expect("it rolls")
}

/// The container of the new definition at index 0, which is the first of the two in order: `other-0` is before `process-0`.
const NEW: u8 = 1;
/// That of the old one.
const OLD: u8 = 65;

#[test]
fn a_monitor_is_due_and_so_is_the_delay_behind_it() {
    // Bits 1 and 3: a delay of 7 s, a monitor of 5 s.
    let mut log = rolling(0b1010);
    assert_eq!(log.world.next_due(), None, "the new instance is to be placed");
    report(&mut log, NEW, &[0, 1]);
    let started = log.world.process(&guid(0)).unwrap().changed_at;
    assert_eq!(log.world.next_due(), Some(Timestamp(started.0 + 5_000_000_000)));
    assert_eq!(fold(&log.entries), log.world);
    let due = log.until_due();
    assert_eq!(due.iter().map(|(due, _)| due).collect::<Vec<_>>(), [&Due::Process(guid(0))]);
    log.group(&[Ask::Converge]);
    assert_eq!(log.world.next_due(), None, "the old one is to stop, and its rep says when it has");
    report(&mut log, OLD, &[4]);
    let replaced = log.world.process(&guid(0)).unwrap().changed_at;
    assert_eq!(log.world.next_due(), Some(Timestamp(replaced.0 + 7_000_000_000)));
    let restored = World::restore(&log.world.snapshot(), None).unwrap();
    assert_eq!((restored.next_due(), &restored), (log.world.next_due(), &log.world));
    log.until_due();
    log.group(&[Ask::Converge]);
    assert!(state(&log).in_replacement(1).is_some(), "{:#?}", state(&log));
}

#[test]
fn no_room_and_the_retry_of_what_stalled_are_due() {
    // Bit 7: no instance has to run. Bit 5: whatever fails, the next index takes its turn.
    let mut log = rolling(0b1010_0000);
    log.group(&[Ask::Process(0, OfProcess::Unplaced { index: 0, error: 0 })]);
    let begun = state(&log).steps[&0].begun_at;
    assert_eq!(log.world.next_due(), Some(Timestamp(begun.0) + rollout::NO_ROOM));
    log.until_due();
    log.group(&[Ask::Converge]);
    assert_eq!(state(&log).steps[&0].order, schemas::policy::UpdateOrder::StopFirst);

    let mut log = rolling(0b1010_0000);
    report(&mut log, NEW, &[0, 3]);
    let stalled = state(&log).stalled[&0];
    assert_eq!(stalled.times, 1, "{:#?}", state(&log));
    assert!(state(&log).in_replacement(1).is_some());
}
