//! Tests of the targets of event queries.

use fixtures::{cell_id, domain, process_guid, task_guid};
use schemas::Subject;
use schemas::container::Epoch;
use schemas::entry::Aggregate;
use schemas::names::{ParameterisedGuid, PeriodicGuid};
use schemas::query::{is_target, target_subject};

#[test]
fn event_target_maps_to_its_subject_and_aggregate_only() {
    let epoch = Epoch::default();
    let things = [
        ("lrp:a", Aggregate::Process { guid: process_guid("a"), domain: domain("d"), epoch }),
        ("task:a", Aggregate::Task { guid: task_guid("a"), domain: domain("d"), epoch }),
        (
            "periodic:a",
            Aggregate::Periodic { guid: PeriodicGuid::new("a").unwrap(), domain: domain("d"), epoch },
        ),
        (
            "parameterised:a",
            Aggregate::Parameterised {
                guid: ParameterisedGuid::new("a").unwrap(),
                domain: domain("d"),
                epoch,
            },
        ),
        ("cell:a", Aggregate::Cell(cell_id("a"))),
        ("domain:a", Aggregate::Domain(domain("a"))),
        ("cluster", Aggregate::Cluster),
    ];
    for (about, aggregate) in &things {
        assert_eq!(target_subject(about, 8), Ok(aggregate.subject(8)), "{about}");
        let told = things.iter().filter(|(about, _)| is_target(aggregate, about)).map(|(about, _)| *about);
        assert_eq!(told.collect::<Vec<_>>(), [*about]);
        let other = about.replace(":a", ":b");
        assert_eq!(is_target(aggregate, &other), other == "cluster");
    }
    assert_eq!(target_subject("cell:a", 8), Ok(Subject::Cell(cell_id("a"))));
    let refused = |about: &str| target_subject(about, 8).unwrap_err().message;
    for none in ["", "lrp", "process:a", "cluster:a", "clusters"] {
        let expected = format!(
            "target: {none:?} is not valid: use lrp:GUID, task:GUID, periodic:GUID, parameterised:GUID, cell:ID, domain:NAME or cluster"
        );
        assert_eq!(refused(none), expected);
    }
    assert_eq!(
        refused("cell:a b"),
        "target: \"a b\" is not a valid cell id: use 1 to 128 of A-Z a-z 0-9 _ -"
    );
}
