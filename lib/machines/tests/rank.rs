//! Tests of the order in which work is placed.

use machines::rank::Rank;
use schemas::Timestamp;
use schemas::container::{Epoch, WorkKey};
use schemas::names::TaskGuid;
use schemas::priority::Priority;

fn lrp(guid: &str, index: u32) -> WorkKey {
    WorkKey::Lrp { key: fixtures::lrp_key(guid, index), epoch: Epoch::default() }
}

fn task(guid: &str) -> WorkKey {
    WorkKey::Task { task_guid: TaskGuid::new(guid).unwrap(), epoch: Epoch::default() }
}

fn rank(priority: u8, memory_mb: u64, since: u64, key: WorkKey) -> Rank {
    Rank::new(Priority::new(priority).unwrap(), memory_mb, Timestamp(since), key)
}

#[test]
fn work_is_ordered_by_priority_then_document_order() {
    let row = [
        rank(90, 1, 9, lrp("z", 7)),
        rank(50, 8, 9, lrp("z", 0)),
        rank(50, 4, 1, lrp("z", 0)),
        rank(50, 4, 2, lrp("a", 0)),
        rank(50, 4, 2, lrp("b", 0)),
        rank(50, 9, 1, task("t")),
        rank(50, 1, 1, task("t")),
        rank(50, 9, 1, lrp("a", 1)),
        rank(50, 99, 1, lrp("a", 2)),
        rank(10, 99, 0, lrp("a", 0)),
    ];
    assert!(row.is_sorted());
}

#[test]
fn priority_change_keeps_attempt() {
    let before = rank(50, 4, 1, lrp("web", 0));
    assert!(before.is_same_attempt(&rank(80, 4, 1, lrp("web", 0))));
    assert!(!before.is_same_attempt(&rank(50, 4, 2, lrp("web", 0))));
    assert!(!before.is_same_attempt(&rank(50, 4, 1, lrp("web", 1))));
}

#[test]
fn priority_outside_1_to_100_is_refused() {
    let good = |number: u8| serde_json::from_value::<Priority>(number.into()).ok() == Priority::new(number);
    assert!((0..=u8::MAX).all(good));
    assert_eq!([0, 1, 100, 101].map(|number| Priority::new(number).is_some()), [false, true, true, false]);
    assert_eq!(u8::from(Priority::default()), 50);
}
