//! Tests of plans: placements, their order, and work that fits on no cell.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use auctioneer::auction::Item;
use auctioneer::board::{Board, BoardCell, Standing};
use auctioneer::plan::{ClusterCopy, Obstacle, StepAction, TaskOutcome, board_cell, known_process, nearest};
use auctioneer::preempt::PreemptibleWork;
use fixtures::{definition, lrp_of, task_definition, task_of};
use schemas::cell::Presence;
use schemas::container::{Epoch, Instance, WorkKey};
use schemas::definition::{
    Definition, DesiredLrp, DesiredLrpUpdate, DesiredTask, Mode, Placement, TaskDefinition,
};
use schemas::message::WorkDefinition;
use schemas::names::{
    CellId, DefinitionId, Domain, FolderId, Incarnation, InstanceGuid, ProcessGuid, Stack, TaskGuid, Zone,
};
use schemas::policy::{Parallelism, Policies, UpdateOrder, UpdatePolicy};
use schemas::priority::Priority;
use schemas::process::{Command, Purpose};
use schemas::query::{
    CellRow, CellState, InstancePresence, InstanceRow, InstanceState, LrpRow, ModificationTag, RolloutRow,
};
use schemas::resources::{Constraint, Resources};
use schemas::rollout::Kind;
use schemas::rules::{Operator, Rule, Rules};
use schemas::{Code, Indices, Timestamp};
use uuid::Uuid;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn cell(number: u32, memory_mb: u64) -> BoardCell {
    let total = memory(memory_mb);
    BoardCell {
        id: CellId::new(&format!("c{number}")).unwrap(),
        zone: Zone::new(&format!("z{}", number % 2)).unwrap(),
        stack: Stack::new("linux").unwrap(),
        placement_tags: BTreeSet::new(),
        attributes: schemas::attributes::Attributes::default(),
        total,
        free: total,
        standing: Standing::Open,
    }
}

fn of_memory(memory_mb: u64) -> Definition {
    Definition { memory_mb, ..definition() }
}

fn web(instances: u32, memory_mb: u64) -> DesiredLrp {
    lrp_of("web", "shop", instances, of_memory(memory_mb))
}

fn guid() -> ProcessGuid {
    ProcessGuid::new("web").unwrap()
}

/// Returns a copy of a cluster in which a process runs.
fn running(cells: impl IntoIterator<Item = BoardCell>, lrp: DesiredLrp) -> ClusterCopy {
    let mut copy = ClusterCopy::new(NOW, cells, []);
    desire(&mut copy, lrp);
    copy.run().unwrap();
    assert!(copy.is_settled(&guid()), "{:?}", copy.unplaced_instances());
    let processes = copy.process(&guid()).cloned();
    let cells = copy.cells().map(|(cell, free)| BoardCell { free, ..cell.clone() }).collect::<Vec<_>>();
    ClusterCopy::new(NOW, cells, processes)
}

fn desire(copy: &mut ClusterCopy, lrp: DesiredLrp) {
    let (guid, domain) = (lrp.process_guid.clone(), lrp.domain.clone());
    assert!(copy.apply(&guid, &domain, &Command::Desire(Box::new(lrp))).unwrap());
}

fn deploy(id: &str, definition: Definition, policies: Policies) -> Command {
    Command::Deploy {
        update: DesiredLrpUpdate { policies: Some(policies), ..DesiredLrpUpdate::default() },
        definition_id: DefinitionId::new(id).unwrap(),
        definition: Arc::new(definition),
    }
}

fn ask(copy: &mut ClusterCopy, command: &Command) -> bool {
    let domain = copy.process(&guid()).unwrap().domain.clone();
    copy.apply(&guid(), &domain, command).unwrap()
}

/// Formats the steps as `TURN +PLACE cell` or `TURN -PLACE cell`.
fn steps(copy: &ClusterCopy) -> Vec<String> {
    let told = copy.steps().iter().map(|step| {
        let turn = step.turn;
        match &step.action {
            StepAction::Starts { place, cell_id, .. } => {
                format!("{turn} +{}@{} {cell_id}", place.index, place.definition_id)
            }
            StepAction::Stops { place, cell_id } => {
                format!("{turn} -{}@{} {cell_id}", place.index, place.definition_id)
            }
            StepAction::Preempts { place, cell_id, victims } => {
                let names: Vec<String> =
                    victims.iter().map(|one| format!("{} ({})", one.name, one.priority)).collect();
                format!(
                    "{turn} {}@{} preempts {} {cell_id}",
                    place.index,
                    place.definition_id,
                    names.join(", ")
                )
            }
            StepAction::FallsBack { index, .. } => format!("{turn} {index} falls back"),
            StepAction::Pauses { reason } => format!("{turn} {reason}"),
        }
    });
    told.collect()
}

fn parallel(parallelism: u32) -> Policies {
    let update =
        UpdatePolicy { parallelism: Parallelism::Count(parallelism), ..UpdatePolicy::default_update() };
    Policies { update, ..Policies::default() }
}

#[test]
fn new_process_is_spread_like_in_auction() {
    let mut copy = ClusterCopy::new(NOW, [cell(1, 1_000), cell(2, 1_000)], []);
    desire(&mut copy, web(3, 64));
    copy.run().unwrap();
    assert_eq!(steps(&copy), ["0 +0@web c1", "0 +1@web c2", "0 +2@web c1"]);
    assert!(copy.is_settled(&guid()) && copy.unplaced_instances().is_empty());
    assert_eq!(copy.skew(&guid()), 1);
    let free: Vec<u64> = copy.cells().map(|(_, free)| free.memory_mb).collect();
    assert_eq!(free, [1_000 - 128, 1_000 - 64]);
}

#[test]
fn rollout_and_more_instances_in_one_change_settle() {
    let mut copy = running([cell(1, 1_000), cell(2, 1_000), cell(3, 1_000)], web(1, 8));
    let update = DesiredLrpUpdate { instances: Some(2), ..DesiredLrpUpdate::default() };
    let definition_id = DefinitionId::new("v2").unwrap();
    let definition = Arc::new(of_memory(9));
    assert!(ask(&mut copy, &Command::Deploy { update, definition_id, definition }));
    copy.run().unwrap();
    assert!(copy.is_settled(&guid()), "{:?}", steps(&copy));
}

/// Returns a task that runs on cell c1.
fn job(number: u128, memory_mb: u64, priority: u8) -> PreemptibleWork {
    let task_guid = TaskGuid::new(&format!("job{number}")).unwrap();
    PreemptibleWork {
        key: WorkKey::Task { task_guid, epoch: Epoch(NOW) },
        by: Instance {
            instance_guid: InstanceGuid(Uuid::from_u128(number)),
            cell_id: CellId::new("c1").unwrap(),
        },
        priority: Priority::new(priority).unwrap(),
        size: Resources { memory_mb, ..Resources::default() },
        since: NOW,
    }
}

#[test]
fn plan_shows_victims_before_start() {
    let full = || BoardCell { free: memory(10), ..cell(1, 100) };
    let urgent = || DesiredLrp { priority: Priority::new(80).unwrap(), ..web(1, 64) };
    let mut copy =
        ClusterCopy::new(NOW, [full()], []).with_preemption([job(1, 30, 20), job(2, 30, 10), job(3, 30, 75)]);
    desire(&mut copy, urgent());
    copy.run().unwrap();
    assert_eq!(steps(&copy), ["0 0@web preempts task job2 (10), task job1 (20) c1", "0 +0@web c1"]);
    assert!(copy.is_settled(&guid()));
    let mut off = ClusterCopy::new(NOW, [full()], []);
    desire(&mut off, urgent());
    off.run().unwrap();
    assert!(steps(&off).is_empty() && off.unplaced_instances().len() == 1);
}

#[test]
fn plan_shows_victims_of_task_that_may_wait() {
    let fate = |placement| {
        let full = BoardCell { free: memory(10), ..cell(1, 100) };
        let mut copy = ClusterCopy::new(NOW, [full], []).with_preemption([
            job(1, 30, 20),
            job(2, 30, 10),
            job(3, 30, 45),
        ]);
        let definition = TaskDefinition {
            memory_mb: 40,
            disk_mb: 0,
            priority: Priority::new(50).unwrap(),
            placement,
            ..task_definition()
        };
        copy.desire_task(task_of("job", "shop", definition)).unwrap();
        let fate = copy.place_tasks().unwrap().remove(&TaskGuid::new("job").unwrap()).unwrap();
        (fate, copy.cells().map(|(_, free)| free.memory_mb).collect::<Vec<u64>>())
    };
    let (waits, free) = fate(Placement::Queue { deadline_ms: 60_000 });
    let TaskOutcome::Preempts { cell_id, victims, .. } = waits else { panic!("{waits:?}") };
    let victims: Vec<&str> = victims.iter().map(|one| one.name.as_str()).collect();
    assert_eq!((cell_id.as_str(), &victims[..], &free[..]), ("c1", &["task job2"][..], &[0][..]));
    let (fails, free) = fate(Placement::Fail);
    assert!(matches!(fails, TaskOutcome::Fails { .. }) && free == [10], "{fails:?}");
}

#[test]
fn command_without_change_has_no_steps() {
    let mut copy = running([cell(1, 1_000)], web(2, 64));
    assert!(
        !ask(&mut copy, &deploy("v2", of_memory(64), Policies::default())),
        "the definition differs only in its id"
    );
    let scaled = DesiredLrpUpdate { instances: Some(2), ..DesiredLrpUpdate::default() };
    assert!(!ask(&mut copy, &Command::Update(scaled)));
    assert!(copy.steps().is_empty());
}

#[test]
fn rollout_replaces_by_index_and_starts_new_instance_first() {
    let mut copy = running([cell(1, 1_000), cell(2, 1_000)], web(3, 64));
    assert!(ask(&mut copy, &deploy("v2", of_memory(65), Policies::default())));
    copy.run().unwrap();
    let told = steps(&copy);
    let without_cells: Vec<&str> = told.iter().map(|step| step.split_once(" c").unwrap().0).collect();
    assert_eq!(without_cells, ["1 +0@v2", "1 -0@web", "2 +1@v2", "2 -1@web", "3 +2@v2", "3 -2@web"]);
    assert!(copy.is_settled(&guid()));

    let mut two = running([cell(1, 1_000), cell(2, 1_000)], web(3, 64));
    assert!(ask(&mut two, &deploy("v2", of_memory(65), parallel(2))));
    two.run().unwrap();
    let turns = |turn: &str, sign: char| {
        let of = |step: &&String| step.starts_with(turn) && step[2..].starts_with(sign);
        steps(&two).iter().filter(of).count()
    };
    assert_eq!([turns("1", '+'), turns("1", '-')], [2, 2], "{:?}", steps(&two));
    assert!(
        steps(&two)[..2].iter().all(|step| step.starts_with("1 +")),
        "both new instances start before both old ones stop"
    );
}

#[test]
fn replacement_needs_extra_room_until_old_instance_stops() {
    // The cell has room for the two running instances and one more. With a parallelism of one, the rollout
    // succeeds index by index. With a parallelism of two, it succeeds in the same way: the second index
    // starts after the first index has left free resources.
    for parallelism in [1, 2] {
        let mut copy = running([cell(1, 300)], web(2, 100));
        assert!(ask(
            &mut copy,
            &deploy("v2", Definition { disk_mb: 7, ..of_memory(100) }, parallel(parallelism))
        ));
        copy.run().unwrap();
        assert!(
            copy.is_settled(&guid()),
            "{parallelism}: {:?} {:?}",
            steps(&copy),
            copy.unplaced_instances()
        );
    }
    // If the new instances are larger, the last new instance does not fit. Each cell reports the missing
    // resource.
    let mut copy = running([cell(1, 300), cell(2, 50)], web(2, 100));
    assert!(ask(&mut copy, &deploy("v2", of_memory(170), Policies::default())));
    copy.run().unwrap();
    assert!(!copy.is_settled(&guid()));
    let [left] = &copy.unplaced_instances()[..] else { panic!("{:?}", copy.unplaced_instances()) };
    assert_eq!(left.place.index, 0);
    assert_eq!(left.placement_failure.error, "insufficient resources: memory");
    let cells: Vec<String> =
        left.placement_failure.cells.iter().map(|(id, why)| format!("{id} {}", why.join(" "))).collect();
    assert_eq!(cells, ["c1 memory", "c2 memory"]);
}

#[test]
fn old_instance_stops_first_without_room_if_enough_others_run() {
    let mut copy = running([cell(1, 200)], web(2, 100));
    let definition = Definition { disk_mb: 7, ..of_memory(100) };
    assert!(ask(&mut copy, &deploy("v2", definition.clone(), Policies::default())));
    copy.run().unwrap();
    assert_eq!(
        (copy.is_settled(&guid()), copy.unplaced_instances().len()),
        (false, 1),
        "all instances must run, and no room is free"
    );

    let mut copy = running([cell(1, 200)], web(2, 100));
    let policies = Policies { min_running: Some(1), ..Policies::default() };
    assert!(ask(&mut copy, &deploy("v2", definition.clone(), policies)));
    copy.run().unwrap();
    let told = steps(&copy);
    assert_eq!(told[..3], ["1 0 falls back", "1 -0@web c1", "1 +0@v2 c1"]);
    assert!(copy.is_settled(&guid()) && copy.unplaced_instances().is_empty());

    let mut copy = running([cell(1, 200)], web(2, 100));
    let update = UpdatePolicy { order: UpdateOrder::StopFirst, ..UpdatePolicy::default_update() };
    assert!(ask(&mut copy, &deploy("v2", definition, Policies { update, ..Policies::default() })));
    copy.run().unwrap();
    assert_eq!(steps(&copy)[..2], ["1 -0@web c1", "1 +0@v2 c1"]);
    assert!(copy.is_settled(&guid()));
}

#[test]
fn processes_desired_together_compete_for_room() {
    let mut copy = ClusterCopy::new(NOW, [cell(1, 250)], []);
    desire(&mut copy, web(1, 200));
    desire(&mut copy, lrp_of("api", "shop", 1, of_memory(100)));
    copy.run().unwrap();
    let api = ProcessGuid::new("api").unwrap();
    assert!(copy.is_settled(&guid()) && !copy.is_settled(&api), "the larger process goes first");
    let left = copy.unplaced_instances();
    assert_eq!(left.iter().map(|left| &left.process_guid).collect::<Vec<_>>(), [&api]);
}

#[test]
fn canary_pause_is_shown_and_rollout_planned_to_end() {
    let mut copy = running([cell(1, 1_000)], web(3, 64));
    let mut policies = parallel(1);
    policies.update.pause_after = Some(1);
    policies.update.monitor_ms = 60_000;
    policies.update.delay_ms = 60_000;
    assert!(ask(&mut copy, &deploy("v2", of_memory(65), policies)));
    copy.run().unwrap();
    assert_eq!(steps(&copy).iter().filter(|step| step.contains("paused after 1")).count(), 1);
    assert_eq!(steps(&copy).iter().filter(|step| step.contains('+')).count(), 3);
    assert!(copy.is_settled(&guid()));
}

/// An instance that is about to leave its cell does not count when instances are spread over cells. So three
/// instances on three cells stay spread through every update.
#[test]
fn even_spread_stays_even_through_updates() {
    for parallelism in [1, 2, 3] {
        let mut copy = running([1, 2, 3].map(|number| cell(number, 10_000)), web(3, 64));
        for version in ["v2", "v3", "v4"] {
            let memory_mb = 64 + version.bytes().map(u64::from).sum::<u64>();
            ask(&mut copy, &deploy(version, of_memory(memory_mb), parallel(parallelism)));
            copy.run().unwrap();
            assert!(copy.is_settled(&guid()));
            assert_eq!(copy.skew(&guid()), 0, "{parallelism} at once, {version}: {:?}", steps(&copy));
        }
    }
}

#[test]
fn rebalancing_restart_reduces_skew() {
    let lonely = running([cell(1, 1_000)], web(4, 64));
    let process = lonely.process(&guid()).cloned();
    let cells: Vec<BoardCell> =
        lonely.cells().map(|(cell, free)| BoardCell { free, ..cell.clone() }).collect();
    let mut copy = ClusterCopy::new(NOW, cells.into_iter().chain([cell(2, 1_000)]), process);
    assert_eq!(copy.skew(&guid()), 4);
    assert!(ask(&mut copy, &Command::Restart(Purpose::Rebalance)));
    copy.run().unwrap();
    assert!(copy.is_settled(&guid()));
    assert!(copy.skew(&guid()) <= 2, "{:?}", copy.spread(&guid()));
}

#[test]
fn cell_that_rejects_work_names_reason() {
    let not = |number, standing| BoardCell { standing, ..cell(number, 1_000) };
    let cells = [
        not(1, Standing::Cordoned),
        not(2, Standing::Evacuating),
        not(3, Standing::Silent),
        not(4, Standing::Unhealthy),
        BoardCell { stack: Stack::new("other").unwrap(), ..cell(5, 1_000) },
        cell(6, 10),
    ];
    let mut copy = ClusterCopy::new(NOW, cells, []);
    let mut lrp = web(1, 64);
    let constraint = Constraint { stack: Some(Stack::new("linux").unwrap()), ..Constraint::default() };
    Arc::make_mut(&mut lrp.definition).constraint = constraint.into();
    desire(&mut copy, lrp);
    copy.run().unwrap();
    let left = copy.unplaced_instances();
    let why = left[0].placement_failure.cells.values().map(|why| why.join(" ")).collect::<Vec<_>>();
    assert_eq!(why, ["cordoned", "evacuating", "silent", "unhealthy", "stack", "memory"]);
    assert_eq!(copy.spread(&guid()).len(), 1, "only cells that accept work count");
}

fn instance(index: u32, definition: &str, cell: &str) -> InstanceRow {
    InstanceRow {
        process_guid: guid(),
        index,
        domain: Domain::new("shop").unwrap(),
        epoch: Epoch(NOW),
        presence: InstancePresence::Ordinary,
        state: InstanceState::Running,
        instance_guid: Some(InstanceGuid(Uuid::from_u128(u128::from(index) + 100))),
        cell_id: Some(CellId::new(cell).unwrap()),
        stopping: false,
        address: Some("127.0.0.1".to_owned()),
        ports: vec![],
        isolation: None,
        placement_error: None,
        crash_count: 0,
        crash_reason: None,
        crashed_instance: None,
        restart_at: None,
        no_restart_reason: None,
        attempts: None,
        definition_id: DefinitionId::new(definition).unwrap(),
        since: NOW,
        modification_tag: ModificationTag { epoch: Epoch(NOW), index: 1 },
    }
}

/// Returns the row of a process with two instances. Index 0 is being replaced.
fn rolling() -> LrpRow {
    let id = |name: &str| DefinitionId::new(name).unwrap();
    LrpRow {
        process_guid: guid(),
        domain: Domain::new("shop").unwrap(),
        epoch: Epoch(NOW),
        version: 7,
        last_decision: schemas::Position(9),
        desired: true,
        mode: Some(Mode::Replicated),
        instances: 2,
        priority: Some(Priority::default()),
        indices: Indices::below(2),
        running: 3,
        claimed: 0,
        unclaimed: 0,
        crashed: 0,
        routes: BTreeMap::new(),
        annotation: String::new(),
        definition_id: Some(id("v2")),
        healthy_definition_id: Some(id("web")),
        definition_ids: vec![id("web"), id("v2")],
        sizes: ["web", "v2"].map(|name| (id(name), Resources::for_container(100, 0, 0))).into(),
        definitions: [(id("v2"), of_memory(100))].into(),
        policies: Some(Policies::default()),
        rollout: Some(RolloutRow {
            number: 2,
            kind: Kind::Update,
            status: "updating".to_owned(),
            reason: None,
            target: id("v2"),
            rollback_to: Some(id("web")),
            total: 2,
            replaced: 0,
            in_replacement: 0.into(),
            stalled: Indices::default(),
            failed: Indices::default(),
            started_at: NOW,
            since: NOW,
        }),
        changed_at: NOW,
    }
}

#[test]
fn running_rollout_continues_from_current_state() {
    let rows = [instance(0, "web", "c1"), instance(0, "v2", "c2"), instance(1, "web", "c1")];
    let cells = || {
        [BoardCell { free: Resources { memory_mb: 0, ..cell(1, 200).free }, ..cell(1, 200) }, cell(2, 200)]
    };
    let mut copy = ClusterCopy::new(NOW, cells(), [known_process(&rolling(), &rows)]);
    let scaled = DesiredLrpUpdate { instances: Some(3), ..DesiredLrpUpdate::default() };
    assert!(ask(&mut copy, &Command::Update(scaled)));
    copy.run().unwrap();
    assert_eq!(steps(&copy)[0], "0 -0@web c1", "its new instance runs: the old one stops");
    assert!(copy.is_settled(&guid()), "{:?} {:?}", steps(&copy), copy.unplaced_instances());
    let started = steps(&copy).iter().filter(|step| step.contains("+0@")).count();
    assert_eq!(started, 0, "an instance of the target is not replaced");

    let mut paused = rolling();
    paused.rollout.as_mut().unwrap().status = "paused".to_owned();
    let mut copy = ClusterCopy::new(NOW, cells(), [known_process(&paused, &rows)]);
    copy.run().unwrap();
    assert_eq!(steps(&copy), ["0 -0@web c1"], "the replacement in progress finishes, and no other starts");
}

/// Returns the row of a cell.
fn cell_row(number: u32, memory_mb: u64) -> CellRow {
    let BoardCell { id, zone, stack, placement_tags, attributes, total, .. } = cell(number, memory_mb);
    let (folder, incarnation) = (FolderId(Uuid::nil()), Incarnation(Uuid::nil()));
    CellRow {
        cell_id: id,
        presence: Presence { folder, incarnation, zone, stack, placement_tags, attributes, total },
        state: CellState::Present,
        evacuation_requested: false,
        cordoned: false,
        ordinal: Some(number),
        absent_reason: None,
        unhealthy: None,
        heartbeat_ms_ago: Some(1),
        instances: 0,
        tasks: 0,
        used: Resources::default(),
        since: NOW,
    }
}

#[test]
fn global_process_runs_on_each_open_cell() {
    let copy_of = |rows: &[CellRow]| {
        let mut copy =
            ClusterCopy::new(NOW, rows.iter().filter_map(board_cell), []).with_cell_ordinals(rows).unwrap();
        desire(&mut copy, DesiredLrp { mode: Mode::Global, ..web(0, 64) });
        copy.run().unwrap();
        copy
    };
    let rows = [cell_row(0, 1_000), CellRow { cordoned: true, ..cell_row(1, 1_000) }, cell_row(2, 1_000)];
    let mut copy = copy_of(&rows);
    assert_eq!(steps(&copy), ["0 +0@web c0", "0 +2@web c2"]);
    assert!(copy.is_settled(&guid()), "{:?}", copy.unplaced_instances());
    assert!(ask(&mut copy, &deploy("v2", of_memory(65), Policies::default())));
    copy.run().unwrap();
    assert!(copy.is_settled(&guid()), "{:?}", steps(&copy));
    assert_eq!(copy.steps().len(), 6);

    let full = copy_of(&[cell_row(0, 1_000), cell_row(1, 10)]);
    assert!(!full.is_settled(&guid()));
    let [left] = &full.unplaced_instances()[..] else { panic!("{:?}", full.unplaced_instances()) };
    assert_eq!(
        (left.place.index, left.placement_failure.error.as_str()),
        (1, "insufficient resources: memory")
    );
}

#[test]
fn waiting_work_takes_part_in_plan_auctions() {
    let api = || {
        let mut copy = ClusterCopy::new(NOW, [cell(1, 10)], []);
        let lrp = lrp_of("api", "shop", 2, of_memory(64));
        let (guid, domain) = (lrp.process_guid.clone(), lrp.domain.clone());
        assert!(copy.apply(&guid, &domain, &Command::Desire(Box::new(lrp))).unwrap());
        copy.run().unwrap();
        copy.process(&guid).unwrap().clone()
    };
    // Index 0 of each process ranks before index 1 of any process. Among equal indices, work that has waited
    // longer ranks first.
    let fit = |memory_mb, instances| {
        let mut copy = ClusterCopy::new(NOW.next(), [cell(1, memory_mb)], []).with_waiting([api()], []);
        desire(&mut copy, web(instances, 64));
        copy.run().unwrap();
        (steps(&copy).len(), copy.other_work())
    };
    assert_eq!(fit(64, 1), (0, (2, 1)));
    assert_eq!(fit(128, 2), (1, (2, 1)));
    assert_eq!(fit(256, 2), (2, (2, 2)));
    // When a process frees resources, all waiting work can use them.
    let mut copy = running([cell(1, 128)], web(2, 64)).with_waiting([api()], []);
    let update = DesiredLrpUpdate { instances: Some(1), ..DesiredLrpUpdate::default() };
    assert!(ask(&mut copy, &Command::Update(update)));
    copy.run().unwrap();
    assert_eq!((steps(&copy), copy.other_work()), (vec!["0 -1@web c1".to_owned()], (2, 1)));
}

fn distinct_cell() -> Constraint {
    let rule = Rule { attribute: None, operator: Operator::DistinctCell, value: String::new().into() };
    let rules = Rules { constraints: vec![rule], ..Rules::default() };
    Constraint { rules: Some(Box::new(rules)), ..Constraint::default() }
}

#[test]
fn crowded_cell_names_constraint() {
    let mut copy = ClusterCopy::new(NOW, [cell(1, 1_000), cell(2, 50)], []);
    let definition = Definition { constraint: distinct_cell().into(), ..of_memory(64) };
    desire(&mut copy, lrp_of("web", "shop", 2, definition));
    copy.run().unwrap();
    let [left] = &copy.unplaced_instances()[..] else { panic!("{:?}", copy.unplaced_instances()) };
    let cells: Vec<String> =
        left.placement_failure.cells.iter().map(|(id, why)| format!("{id} {}", why.join(" "))).collect();
    assert_eq!(cells, ["c1 constraint distinct_cell", "c2 memory"]);
}

#[test]
fn nearest_cell_lacks_least() {
    let item = |constraint: Constraint| {
        let key = WorkKey::Task { task_guid: TaskGuid::new("t").unwrap(), epoch: Epoch(NOW) };
        let definition = Definition { constraint: constraint.into(), ..of_memory(100) };
        Item::new(Priority::default(), NOW, key, WorkDefinition::Lrp(Arc::new(definition)))
    };
    let with = |number, free| BoardCell { free: memory(free), ..cell(number, 1_000) };
    let closed = |number, free| BoardCell { standing: Standing::Cordoned, ..with(number, free) };
    let of = |cells: &[BoardCell], siblings: &[(&str, u32)], constraint| {
        let siblings = siblings.iter().map(|(id, count)| (CellId::new(id).unwrap(), *count)).collect();
        let near = nearest(&Board::new(cells.iter().cloned()), &item(constraint), Some(&siblings));
        near.map(|near| (near.cell_id.as_str().to_owned(), near.obstacle))
    };
    let any = Constraint::default;
    let is = |cell: &str, keeps| Some((cell.to_owned(), keeps));
    let short = |memory_mb| Resources { memory_mb, ..Resources::default() };
    assert_eq!(of(&[], &[], any()), None);
    assert_eq!(of(&[with(1, 99), with(2, 100)], &[], any()), is("c2", None));
    let taken = Some(Obstacle::InsufficientFree(short(10)));
    assert_eq!(of(&[with(1, 50), with(2, 90), closed(3, 100)], &[], any()), is("c2", taken));
    let crowded = Some(Obstacle::InstanceLimit("constraint distinct_cell".into()));
    assert_eq!(of(&[with(1, 500), closed(2, 500)], &[("c1", 1)], distinct_cell()), is("c1", crowded));
    let cordoned =
        |memory_mb| Some(Obstacle::Unavailable { reason: "cordoned", insufficient_free: short(memory_mb) });
    assert_eq!(of(&[closed(1, 50), closed(2, 60), cell(3, 99)], &[], any()), is("c2", cordoned(40)));
    assert_eq!(
        of(&[cell(1, 50), cell(2, 60)], &[], any()),
        is("c2", Some(Obstacle::InsufficientTotal(short(40))))
    );
    let windows = Constraint { stack: Some(Stack::new("windows").unwrap()), ..any() };
    let incompatible = Some(Obstacle::Incompatible("stack".into()));
    assert_eq!(of(&[cell(1, 500)], &[], windows), is("c1", incompatible));
}

fn task(name: &str, memory_mb: u64, priority: u8, placement: Placement) -> DesiredTask {
    let priority = Priority::new(priority).unwrap();
    task_of(name, "shop", TaskDefinition { memory_mb, priority, placement, ..task_definition() })
}

/// Formats the outcomes of tasks as `name cell`, or as `name waits` or `name fails` with the missing
/// resources.
fn task_outcomes(copy: &mut ClusterCopy) -> Vec<String> {
    let told = |(guid, fate): (TaskGuid, TaskOutcome)| match fate {
        TaskOutcome::Runs { cell_id, .. } => format!("{guid} {cell_id}"),
        TaskOutcome::Waits { deadline_ms, placement_failure } => {
            format!("{guid} waits {deadline_ms}: {:?}", placement_failure.cells)
        }
        TaskOutcome::Preempts { cell_id, .. } => format!("{guid} preempts on {cell_id}"),
        TaskOutcome::Fails { placement_failure: no_room } => format!("{guid} fails: {}", no_room.error),
    };
    copy.place_tasks().unwrap().into_iter().map(told).collect()
}

#[test]
fn tasks_share_auction_with_waiting_work_and_the_rest_waits_or_fails() {
    // An instance of another process waits for 600 MB. It ranks before smaller work, and before work of lower
    // priority.
    let mut small = ClusterCopy::new(NOW, [cell(1, 50)], []);
    desire(&mut small, web(1, 600));
    small.run().unwrap();
    let waiting = small.process(&guid()).cloned();
    let mut copy = ClusterCopy::new(NOW, [cell(1, 1_000), cell(2, 100)], []).with_waiting(waiting, []);
    let queue = Placement::Queue { deadline_ms: 60_000 };
    for task in [
        task("first", 150, 90, Placement::Fail),
        task("fits", 250, 50, Placement::Fail),
        task("late", 200, 10, queue),
        task("never", 5_000, 50, Placement::Fail),
    ] {
        copy.desire_task(task).unwrap();
    }
    assert_eq!(
        task_outcomes(&mut copy),
        [
            "first c1",
            "fits c1",
            "late waits 60000: {c1: [\"memory\"], c2: [\"memory\"]}",
            "never fails: insufficient resources: memory",
        ]
    );
    assert_eq!(copy.other_work(), (1, 1));
}

#[test]
fn task_guid_in_use_is_refused() {
    let mut copy = ClusterCopy::new(NOW, [cell(1, 1_000)], []);
    copy.desire_task(task("old", 10, 50, Placement::Fail)).unwrap();
    let refusal = copy.desire_task(task("old", 20, 50, Placement::Fail)).unwrap_err();
    assert_eq!((refusal.code, refusal.message.as_str()), (Code::ResourceExists, "task old already exists"));
}

fn memory(memory_mb: u64) -> Resources {
    Resources { memory_mb, disk_mb: 10_000, containers: 100, ports: 100 }
}
