//! Tests of snapshots. A snapshot restores an equal World (the state folded from the log). Damaged and
//! foreign snapshots are refused with a specific error.

use fixtures::{decision, domain, entry, instance, lrp, place, process_guid, task_guid};
use projections::{SnapshotError, World};
use proptest::prelude::*;
use schemas::container::Epoch;
use schemas::entry::{Aggregate, Event};
use schemas::isolation::Isolation;
use schemas::names::{ClusterId, IdGenerator};
use schemas::{Places, Position, Subject, Timestamp, actual, desired, task};

use crate::log::{Action, ProcessAction, START_MILLIS, TaskAction, cluster_id, fold, groups, write};

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn snapshot_and_tail_give_same_world(groups in groups(), cut in any::<prop::sample::Index>()) {
        let log = write(&groups);
        prop_assert_eq!(&fold(&log.entries), &log.world);
        let (head, tail) = log.entries.split_at(cut.index(log.entries.len()));
        let early = fold(head);
        let mut restored = World::from_bytes(&early.to_bytes(), None).unwrap();
        prop_assert_eq!(&restored, &early);
        for (position, entry) in tail {
            restored.fold(*position, entry);
        }
        prop_assert_eq!(&restored, &log.world);
        prop_assert_eq!(restored.to_bytes(), log.world.to_bytes());
    }

    #[test]
    fn world_of_decided_log_breaks_no_rule(groups in groups()) {
        let mut world = World::new();
        for (position, entry) in write(&groups).entries {
            world.fold(position, &entry);
            prop_assert_eq!(world.check(), vec![]);
        }
    }

    #[test]
    fn random_body_after_valid_head_is_refused_without_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = World::new().to_bytes();
        bytes.truncate(16);
        bytes.extend(body);
        prop_assert!(World::from_bytes(&bytes, None).is_err());
    }
}

/// Returns a World with a few aggregates of different kinds.
fn world() -> World {
    let asks = [
        Action::Refresh { domain: 0, seconds: 60 },
        Action::Process(0, ProcessAction::Desire { domain: 0, instances: 2, size: 3 }),
        Action::Process(0, ProcessAction::Report { index: 0, container: 0, steps: vec![0, 1] }),
        Action::Process(1, ProcessAction::Desire { domain: 1, instances: 1, size: 2 }),
        Action::Process(1, ProcessAction::Report { index: 0, container: 0, steps: vec![1] }),
        Action::Process(1, ProcessAction::Remove),
        Action::Task(0, TaskAction::Desire { domain: 0, size: 2 }),
    ];
    write(&asks.map(|ask| vec![ask])).world
}

#[test]
fn empty_world_is_restored() {
    assert_eq!(World::from_bytes(&World::new().to_bytes(), None), Ok(World::new()));
}

#[test]
fn large_world_is_restored_by_several_threads() {
    let mut world = world();
    for number in 0..6_000_u64 {
        let at = Timestamp::from_millis(2 * START_MILLIS + number);
        let (name, epoch) = (format!("large-{number}"), Epoch(at));
        let (definition_id, by) =
            (fixtures::definition_id(&name), instance(number, &format!("cell-{}", number % 7)));
        let places = Places { indices: [0, 1].into_iter().collect(), definition_id };
        let claimed = actual::Event::Claimed { place: place(0, &name), by: by.clone(), placement: None };
        let events = vec![
            Event::Desired(desired::Event::Desired(Box::new(lrp(&name, "large", 2)))),
            Event::Actual(actual::Event::Created { places }),
            Event::Actual(claimed),
        ];
        let aggregate = Aggregate::Process { guid: process_guid(&name), domain: domain("large"), epoch };
        let of_process = decision(IdGenerator::new(number).next(at), at, aggregate, events);
        let mut events = vec![Event::Task(task::Event::Desired(Box::new(fixtures::task(&name, "large"))))];
        if number % 2 == 0 {
            events.push(Event::Task(task::Event::Started {
                by,
                placement: None,
                isolation: Isolation::NONE,
            }));
        }
        let aggregate = Aggregate::Task { guid: task_guid(&name), domain: domain("large"), epoch };
        let of_task = decision(IdGenerator::new(number).next(at), at, aggregate, events);
        world.fold(Position(world.position().0 + 1), &entry(of_process));
        world.fold(Position(world.position().0 + 1), &entry(of_task));
    }
    let bytes = world.to_bytes();
    assert!(bytes.len() > 2 << 20, "{} bytes are too few for several threads", bytes.len());
    let restored = World::from_bytes(&bytes, None).unwrap();
    assert_eq!(restored.counts(), world.counts());
    assert!(restored == world, "the restored World differs");
    assert!(restored.to_bytes() == bytes, "the restored World has other bytes");
    let mut damaged = bytes;
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    assert_eq!(World::from_bytes(&damaged, None), Err(SnapshotError::Damaged));
}

#[test]
fn snapshot_of_other_cluster_is_refused() {
    let bytes = world().to_bytes();
    assert!(World::from_bytes(&bytes, Some(cluster_id())).is_ok());
    let expected = ClusterId(IdGenerator::new(4).next(Timestamp(0)));
    let found = Some(cluster_id());
    assert_eq!(
        World::from_bytes(&bytes, Some(expected)),
        Err(SnapshotError::OtherCluster { found, expected })
    );
    assert_eq!(
        World::from_bytes(&World::new().to_bytes(), Some(expected)),
        Err(SnapshotError::OtherCluster { found: None, expected })
    );
}

#[test]
fn snapshot_of_other_version_is_refused() {
    let mut bytes = world().to_bytes();
    bytes[8] ^= 1;
    assert_eq!(World::from_bytes(&bytes, None), Err(SnapshotError::UnsupportedVersion));
}

#[test]
fn flipped_bit_is_detected() {
    let bytes = world().to_bytes();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            assert!(World::from_bytes(&flipped, None).is_err(), "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn truncation_and_trailing_bytes_are_detected() {
    let mut bytes = world().to_bytes();
    for length in 0..bytes.len() {
        let cut = World::from_bytes(&bytes[..length], None).expect_err("a truncated snapshot");
        let clear = matches!(cut, SnapshotError::NotASnapshot | SnapshotError::WrongLength { .. });
        assert!(clear, "{length}: {cut}");
    }
    bytes.push(0);
    let found = bytes.len() as u64;
    let announced = found - 1;
    assert_eq!(World::from_bytes(&bytes, None), Err(SnapshotError::WrongLength { announced, found }));
}

#[test]
fn restored_world_has_position_and_subject_ends() {
    let world = world();
    let restored = World::from_bytes(&world.to_bytes(), None).unwrap();
    assert_eq!(restored.position(), world.position());
    assert_eq!(restored.last_position(&Subject::Cluster), world.last_position(&Subject::Cluster));
    assert_eq!(restored.shards(), 2);
}
