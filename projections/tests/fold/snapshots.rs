//! Snapshots: equal when read back, and refused with a clear word when anything is wrong with them.

use fixtures::{decision, domain, entry, instance, lrp, place, process_guid, task_guid};
use projections::{SnapshotError, World};
use proptest::prelude::*;
use schemas::container::Epoch;
use schemas::entry::{Aggregate, Event};
use schemas::isolation::Isolation;
use schemas::names::{ClusterId, Ids};
use schemas::{Places, Position, Subject, Timestamp, actual, desired, task};

use crate::log::{Ask, OfProcess, OfTask, START_MILLIS, cluster_id, fold, groups, write};

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_snapshot_and_the_tail_give_the_same_world(groups in groups(), cut in any::<prop::sample::Index>()) {
        let log = write(&groups);
        prop_assert_eq!(&fold(&log.entries), &log.world);
        let (head, tail) = log.entries.split_at(cut.index(log.entries.len()));
        let early = fold(head);
        let mut restored = World::restore(&early.snapshot(), None).unwrap();
        prop_assert_eq!(&restored, &early);
        for (position, entry) in tail {
            restored.fold(*position, entry);
        }
        prop_assert_eq!(&restored, &log.world);
        prop_assert_eq!(restored.snapshot(), log.world.snapshot());
    }

    #[test]
    fn bytes_behind_a_true_head_never_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = World::new().snapshot();
        bytes.truncate(16);
        bytes.extend(body);
        prop_assert!(World::restore(&bytes, None).is_err());
    }
}

/// A World with a little of everything.
fn world() -> World {
    let asks = [
        Ask::Refresh { domain: 0, seconds: 60 },
        Ask::Process(0, OfProcess::Desire { domain: 0, instances: 2, size: 3 }),
        Ask::Process(0, OfProcess::Report { index: 0, container: 0, steps: vec![0, 1] }),
        Ask::Process(1, OfProcess::Desire { domain: 1, instances: 1, size: 2 }),
        Ask::Process(1, OfProcess::Report { index: 0, container: 0, steps: vec![1] }),
        Ask::Process(1, OfProcess::Remove),
        Ask::Task(0, OfTask::Desire { domain: 0, size: 2 }),
    ];
    write(&asks.map(|ask| vec![ask])).world
}

#[test]
fn an_empty_world_is_restored() {
    assert_eq!(World::restore(&World::new().snapshot(), None), Ok(World::new()));
}

#[test]
fn a_large_world_is_restored_as_a_small_one_though_several_read_it() {
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
        let of_process = decision(Ids::new(number).next(at), at, aggregate, events);
        let mut events = vec![Event::Task(task::Event::Desired(Box::new(fixtures::task(&name, "large"))))];
        if number % 2 == 0 {
            events.push(Event::Task(task::Event::Started {
                by,
                placement: None,
                isolation: Isolation::NONE,
            }));
        }
        let aggregate = Aggregate::Task { guid: task_guid(&name), domain: domain("large"), epoch };
        let of_task = decision(Ids::new(number).next(at), at, aggregate, events);
        world.fold(Position(world.position().0 + 1), &entry(of_process));
        world.fold(Position(world.position().0 + 1), &entry(of_task));
    }
    let bytes = world.snapshot();
    assert!(bytes.len() > 2 << 20, "{} bytes are too few for several threads", bytes.len());
    let restored = World::restore(&bytes, None).unwrap();
    assert_eq!(restored.counts(), world.counts());
    assert!(restored == world, "it is another World");
    assert!(restored.snapshot() == bytes, "it is written otherwise");
    let mut damaged = bytes;
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    assert_eq!(World::restore(&damaged, None), Err(SnapshotError::Damaged));
}

#[test]
fn a_snapshot_of_another_cluster_is_refused() {
    let bytes = world().snapshot();
    assert!(World::restore(&bytes, Some(cluster_id())).is_ok());
    let expected = ClusterId(Ids::new(4).next(Timestamp(0)));
    let found = Some(cluster_id());
    assert_eq!(World::restore(&bytes, Some(expected)), Err(SnapshotError::OtherCluster { found, expected }));
    assert_eq!(
        World::restore(&World::new().snapshot(), Some(expected)),
        Err(SnapshotError::OtherCluster { found: None, expected })
    );
}

#[test]
fn a_snapshot_of_another_program_is_refused() {
    let mut bytes = world().snapshot();
    bytes[8] ^= 1;
    assert_eq!(World::restore(&bytes, None), Err(SnapshotError::OtherVersion));
}

#[test]
fn every_flipped_bit_is_found() {
    let bytes = world().snapshot();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            assert!(World::restore(&flipped, None).is_err(), "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn every_cut_is_found_and_so_is_a_tail() {
    let mut bytes = world().snapshot();
    for length in 0..bytes.len() {
        let cut = World::restore(&bytes[..length], None).expect_err("it is cut off");
        let clear = matches!(cut, SnapshotError::NotASnapshot | SnapshotError::WrongLength { .. });
        assert!(clear, "{length}: {cut}");
    }
    bytes.push(0);
    let found = bytes.len() as u64;
    let announced = found - 1;
    assert_eq!(World::restore(&bytes, None), Err(SnapshotError::WrongLength { announced, found }));
}

#[test]
fn a_restored_world_knows_where_it_stands() {
    let world = world();
    let restored = World::restore(&world.snapshot(), None).unwrap();
    assert_eq!(restored.position(), world.position());
    assert_eq!(restored.last_on(&Subject::Cluster), world.last_on(&Subject::Cluster));
    assert_eq!(restored.shards(), 2);
}
