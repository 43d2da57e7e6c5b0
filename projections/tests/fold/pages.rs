//! Tests of paging. Every row occurs once, despite concurrent changes. Invalid cursors and filters are
//! refused.

use std::collections::BTreeSet;
use std::fmt::Debug;

use machines::process::Process;
use projections::{Observed, WorkRef, World, queries, records};
use proptest::prelude::*;
use schemas::container::{Epoch, WorkKey};
use schemas::message::Record;
use schemas::names::ServiceId;
use schemas::query::{Cursor, Filter, InstancePresence, Page, QuarantinedEntries, Records, Show};
use schemas::{Code, Position, Refusal, Timestamp};

use crate::log::{Entries, cell_id, domain, groups, guid, task_guid, write};

pub(crate) fn observed() -> Observed {
    Observed {
        bbs: ServiceId::new("bbs-1").expect("a valid name"),
        now: Timestamp(0),
        durability: String::new(),
        history_limit: 5,
        refused_transitions: 0,
        log: None,
        quarantined_entries: QuarantinedEntries::default(),
        services: schemas::query::Services::default(),
        heartbeat_ages: std::collections::BTreeMap::new(),
    }
}

type List<T> = fn(&World, &Filter, &Observed) -> Result<Page<T>, Refusal>;

/// Reads all pages of a list from a World snapshot. Between the pages, the World (the state from the log)
/// folds further entries.
fn check_pages<T: Debug + PartialEq>(
    list: List<T>,
    filter: &Filter,
    mut world: World,
    mut rest: std::slice::Iter<'_, (Position, schemas::Entry)>,
) -> Result<(), TestCaseError> {
    let (picture, observed) = (world.freeze(), observed());
    let whole = list(&picture, &Filter { limit: None, ..filter.clone() }, &observed).expect("a list");
    prop_assert_eq!(&whole.next, &None);
    let (mut rows, mut filter) = (vec![], filter.clone());
    loop {
        let page = list(&picture, &filter, &observed).expect("a page");
        prop_assert_eq!(page.position, whole.position);
        prop_assert!(page.rows.len() <= filter.limit.expect("a limit"));
        prop_assert!(page.next.is_none() || !page.rows.is_empty(), "an empty page has a cursor");
        rows.extend(page.rows);
        let Some(next) = page.next else { break };
        filter.cursor = Some(next);
        if let Some((position, entry)) = rest.next() {
            world.fold(*position, entry);
            let late = list(&world, &filter, &observed).expect_err("an old position");
            prop_assert_eq!(late.code, Code::Expired);
        }
    }
    prop_assert_eq!(rows, whole.rows);
    Ok(())
}

fn work_of(record: &Record) -> Option<WorkRef> {
    match record {
        Record::Absent => None,
        Record::Lrp(lrp) => Some(WorkRef::Lrp(lrp.key.clone())),
        Record::Task(task) => Some(WorkRef::Task(task.task_guid.clone())),
    }
}

fn split_log(entries: &Entries, at: usize) -> (World, std::slice::Iter<'_, (Position, schemas::Entry)>) {
    let (before, behind) = entries.split_at(at);
    let mut world = World::new();
    for (position, entry) in before {
        world.fold(*position, entry);
    }
    (world, behind.iter())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn pages_contain_every_row_once(
        groups in groups(),
        at in any::<prop::sample::Index>(),
        limit in 1_usize..6,
        narrow in 0_u8..5,
    ) {
        let log = write(&groups);
        let at = at.index(log.entries.len() + 1);
        let any = Filter { limit: Some(limit), ..Filter::default() };
        let wide = Filter { domain: (narrow == 1).then(|| domain(0)), ..any.clone() };
        let cell = Filter { cell_id: (narrow == 2).then(|| cell_id(0)), ..wide.clone() };
        let process = Filter { process_guid: (narrow == 3).then(|| guid(0)), ..wide.clone() };
        let both = Filter { all: true, ..cell.clone() };
        let guids = if narrow == 4 { [guid(0), guid(2), guid(9)].into() } else { BTreeSet::new() };
        let lrps = Filter { process_guids: guids, ..cell.clone() };
        let (world, rest) = split_log(&log.entries, at);
        let begin = || (world.clone(), rest.clone());
        let (of_lrps, of_instances, of_both, of_tasks) = (begin(), begin(), begin(), begin());
        let (ended, ended_tasks) = (begin(), begin());
        let (of_domains, of_cells, of_evaluations) = (begin(), begin(), begin());
        check_pages(queries::lrps, &lrps, of_lrps.0, of_lrps.1)?;
        check_pages(queries::instances, &process, of_instances.0, of_instances.1)?;
        check_pages(queries::instances, &both, of_both.0, of_both.1)?;
        check_pages(queries::tasks, &cell, of_tasks.0, of_tasks.1)?;
        check_pages(queries::ended_instances, &process, ended.0, ended.1)?;
        check_pages(queries::ended_tasks, &cell, ended_tasks.0, ended_tasks.1)?;
        check_pages(queries::domains, &wide, of_domains.0, of_domains.1)?;
        check_pages(queries::cells, &any, of_cells.0, of_cells.1)?;
        check_pages(queries::evaluations, &process, of_evaluations.0, of_evaluations.1)?;
    }

    #[test]
    fn world_snapshot_is_unchanged_by_further_folding(groups in groups(), at in any::<prop::sample::Index>()) {
        let log = write(&groups);
        let (mut world, rest) = split_log(&log.entries, at.index(log.entries.len() + 1));
        let (picture, observed) = (world.freeze(), observed());
        let filter = Filter { all: true, ..Filter::default() };
        let before = queries::instances(&world, &filter, &observed).unwrap();
        for (position, entry) in rest {
            world.fold(*position, entry);
        }
        prop_assert_eq!(queries::instances(&picture, &filter, &observed).unwrap(), before);
        prop_assert_eq!(world, log.world);
    }

    #[test]
    fn existing_processes_are_listed_and_shown(groups in groups()) {
        let (world, observed) = (write(&groups).world, observed());
        let listed = queries::lrps(&world, &Filter::default(), &observed).unwrap().rows;
        let is_there = |process: &&Process| process.desired.is_some() || !process.slots.is_empty();
        prop_assert_eq!(
            listed.iter().map(|row| &row.process_guid).collect::<Vec<_>>(),
            world.processes_from(None).filter(is_there).map(|process| &process.guid).collect::<Vec<_>>()
        );
        for process in world.processes_from(None) {
            let shown = queries::lrp(&world, &Show { id: process.guid.to_string(), at_least: None, as_of: None });
            prop_assert_eq!(shown.is_ok(), is_there(&process), "{:?}", process);
        }
    }

    #[test]
    fn rep_receives_records_of_its_cell(groups in groups()) {
        let world = write(&groups).world;
        let unknown = WorkKey::Task { task_guid: task_guid(200), epoch: Epoch(Timestamp(1)) };
        for cell_id in world.named_cells() {
            let held = world.on_cell(cell_id).cloned().collect::<BTreeSet<_>>();
            let asked = Records { cell_id: cell_id.clone(), work: vec![unknown.clone()], at_least: None };
            let told = records::cell_records(&world, &asked).records;
            prop_assert_eq!(told.iter().filter_map(work_of).collect::<BTreeSet<_>>(), held);
            prop_assert!(!told.contains(&Record::Absent));
        }
    }

    #[test]
    fn effective_record_of_slot_is_listed(groups in groups()) {
        let (world, observed) = (write(&groups).world, observed());
        let list = |all| queries::instances(&world, &Filter { all, ..Filter::default() }, &observed).unwrap().rows;
        let (counting, both) = (list(false), list(true));
        let indices = |rows: &[schemas::query::InstanceRow]| -> BTreeSet<_> {
            rows.iter().map(|row| (row.process_guid.clone(), row.index, row.definition_id.clone())).collect()
        };
        prop_assert_eq!(indices(&counting).len(), counting.len(), "one row for each slot");
        prop_assert_eq!(indices(&counting), indices(&both), "every slot has a row");
        for row in &counting {
            let other = both.iter().find(|other| {
                (&other.process_guid, other.index, &other.definition_id)
                    == (&row.process_guid, row.index, &row.definition_id)
                    && other.presence != row.presence
            });
            let evacuating = |row: &schemas::query::InstanceRow| row.presence == InstancePresence::Evacuating;
            if let Some(other) = other {
                let ordinary = if evacuating(row) { other } else { row };
                let waits = matches!(ordinary.state.as_str(), "UNCLAIMED" | "CLAIMED");
                prop_assert_eq!(evacuating(row), waits, "{:?} beside {:?}", row, other);
            }
        }
    }
}

#[test]
fn invalid_cursor_is_refused_with_its_value() {
    let (world, observed) = (World::new(), observed());
    for text in
        ["", "garbage", "bbs-1/0", "bbs-1/00/web", "bbs-1/-1/web", "b s/0/web", "bbs-1/0/a b", "bbs-1/0/"]
    {
        let filter = Filter { cursor: Some(text.into()), ..Filter::default() };
        let refusal = queries::lrps(&world, &filter, &observed).unwrap_err();
        assert_eq!(refusal.code, Code::InvalidRequest, "{text:?}");
        assert_eq!(refusal.fields[0].field, "cursor");
        assert!(refusal.fields[0].problem.contains(&format!("{text:?}")), "{refusal:?}");
    }
    let cursor = "bbs-1/7/web/3/v1/EVACUATING";
    assert_eq!(Cursor::parse(cursor).unwrap().to_string(), cursor);
    let filter = |cursor: &str| Filter { cursor: Some(cursor.into()), ..Filter::default() };
    let late = |cursor| queries::instances(&world, &filter(cursor), &observed).unwrap_err().code;
    assert_eq!(late(cursor), Code::Expired);
    for cursor in ["bbs-1/0/web/3/v1/RUNNING", "bbs-1/0/web/3/EVACUATING", "bbs-1/0/web/3/v 1/EVACUATING"] {
        assert_eq!(late(cursor), Code::InvalidRequest, "{cursor}");
    }
}

#[test]
fn unsupported_filter_is_refused() {
    let (world, observed) = (World::new(), observed());
    let cell = Filter { cell_id: Some(cell_id(1)), ..Filter::default() };
    let process = Filter { process_guid: Some(guid(1)), ..Filter::default() };
    let refused = |list: Result<(), Refusal>, field: &str| {
        let refusal = list.unwrap_err();
        assert_eq!((refusal.code, refusal.fields[0].field.as_str()), (Code::InvalidRequest, field));
    };
    refused(queries::domains(&world, &cell, &observed).map(drop), "cell_id");
    refused(queries::cells(&world, &process, &observed).map(drop), "process_guid");
    refused(queries::tasks(&world, &process, &observed).map(drop), "process_guid");
    refused(queries::evaluations(&world, &cell, &observed).map(drop), "cell_id");
    let all = Filter { all: true, ..Filter::default() };
    refused(queries::lrps(&world, &all, &observed).map(drop), "all");
    let none = Filter { limit: Some(0), ..Filter::default() };
    refused(queries::lrps(&world, &none, &observed).map(drop), "limit");
}
