//! Tests of tables and details.

use std::collections::BTreeMap;

use schemas::cell::Presence;
use schemas::container::Epoch;
use schemas::definition::{Mode, Routes};
use schemas::names::{CellId, DefinitionId, Domain, ProcessGuid, TaskGuid};
use schemas::priority::Priority;
use schemas::query::{CellState, TaskState};
use schemas::rollout::Kind;
use schemas::{Indices, Timestamp};
use uuid::Uuid;

use super::*;
pub(crate) use fixtures::rows::{running, with_definition};

const LOOK: RenderOptions =
    RenderOptions { now: Timestamp::from_millis(10_000_000), full_ids: false, colour: false };

fn ago(seconds: u64) -> Timestamp {
    Timestamp::from_millis(10_000_000 - seconds * 1_000)
}

fn domain() -> Domain {
    Domain::new("shop").unwrap()
}

fn without_container(state: InstanceState) -> InstanceRow {
    let nobody =
        InstanceRow { instance_guid: None, cell_id: None, address: None, ports: vec![], ..running(1) };
    InstanceRow { state, ..nobody }
}

#[test]
fn instances_are_formatted_as_table() {
    let rows = [
        running(0),
        InstanceRow {
            placement_error: Some("insufficient resources: memory".into()),
            ..without_container(InstanceState::Unclaimed)
        },
        InstanceRow {
            crash_count: 4,
            crash_reason: Some("exit status 3".into()),
            restart_at: Some(LOOK.now + std::time::Duration::from_secs(50)),
            ..without_container(InstanceState::Crashed)
        },
        InstanceRow { stopping: true, ..running(3) },
        InstanceRow { presence: InstancePresence::Evacuating, ..running(4) },
    ];
    assert_eq!(
        instances(&rows, LOOK).render(false),
        "INSTANCE   ID         STATE                CELL   ADDRESS          CRASHES   AGE   NOTE\n\
         web/0      0000abc0   RUNNING              c1     10.0.0.1:60001         0   90s   -\n\
         web/1      -          UNCLAIMED            -      -                      0   90s   insufficient resources: memory\n\
         web/1      -          CRASHED              -      -                      4   90s   exit status 3; restarts in 50s\n\
         web/3      0000abc3   STOPPING RUNNING     c1     10.0.0.1:60001         0   90s   -\n\
         web/4      0000abc4   RUNNING EVACUATING   c1     10.0.0.1:60001         0   90s   -"
    );
    assert!(
        instances(&rows, RenderOptions { full_ids: true, ..LOOK })
            .render(false)
            .contains("-0000-00000000abc0")
    );
}

#[test]
fn definition_column_is_shown_if_one_is_not_named_like_its_process() {
    let rows = [running(0), with_definition("v2", running(0)), with_definition("v2", running(1))];
    assert_eq!(
        instances(&rows, LOOK).render(false),
        "INSTANCE    DEFINITION   ID         STATE     CELL   ADDRESS          CRASHES   AGE   NOTE\n\
         web/0@web   web          0000abc0   RUNNING   c1     10.0.0.1:60001         0   90s   -\n\
         web/0@v2    v2           0000abc0   RUNNING   c1     10.0.0.1:60001         0   90s   -\n\
         web/1       v2           0000abc1   RUNNING   c1     10.0.0.1:60001         0   90s   -"
    );
}

#[test]
fn instance_details_list_its_facts() {
    assert_eq!(
        instance("web/0", &running(0), LOOK),
        "instance    web/0\n\
         id          00000000-0000-0000-0000-00000000abc0\n\
         domain      shop\n\
         state       RUNNING since 1970-01-01T02:45:10.000Z (90s)\n\
         cell        c1\n\
         address     10.0.0.1:60001\n\
         ports       8080 -> 60001\n\
         crashes     0\n\
         definition  web"
    );
}

pub(crate) fn process() -> LrpRow {
    LrpRow {
        process_guid: ProcessGuid::new("web").unwrap(),
        domain: domain(),
        epoch: Epoch::default(),
        version: 3,
        last_decision: schemas::Position(0),
        desired: true,
        mode: Some(Mode::Replicated),
        instances: 3,
        priority: Some(Priority::default()),
        indices: Indices::below(3),
        running: 1,
        claimed: 1,
        unclaimed: 1,
        crashed: 0,
        routes: Routes::new(),
        annotation: "the shop's front\nmore".into(),
        definition_id: Some(DefinitionId::new("web").unwrap()),
        healthy_definition_id: Some(DefinitionId::new("web").unwrap()),
        definition_ids: vec![DefinitionId::new("web").unwrap()],
        sizes: BTreeMap::new(),
        definitions: BTreeMap::new(),
        policies: None,
        rollout: None,
        changed_at: ago(300),
    }
}

/// Returns a process of two instances, with a rollout to `v2`. The rollout is replacing the indices in
/// `in_replacement`.
pub(crate) fn rolling(status: &str, in_replacement: &[u32]) -> LrpRow {
    let definition = |name| DefinitionId::new(name).unwrap();
    let rollout = RolloutRow {
        number: 4,
        kind: Kind::Update,
        status: status.to_owned(),
        reason: None,
        target: definition("v2"),
        rollback_to: Some(definition("web")),
        total: 2,
        replaced: 1,
        in_replacement: in_replacement.iter().copied().collect(),
        stalled: Indices::default(),
        failed: Indices::default(),
        started_at: ago(90),
        since: ago(60),
    };
    let definition_ids = vec![definition("web"), definition("v2")];
    let process = LrpRow { instances: 2, running: 2, claimed: 0, unclaimed: 0, ..process() };
    LrpRow { definition_id: Some(definition("v2")), definition_ids, rollout: Some(rollout), ..process }
}

#[test]
fn process_table_and_details_show_rollout() {
    let rows = [rolling("updating", &[0]), rolling("rollback_paused", &[]), rolling("completed", &[])];
    let table = lrps(&rows, LOOK).render(false);
    assert!(
        table.contains("rollout to v2, 1/2   ") && table.contains("rollout to v2, 1/2, paused"),
        "{table}"
    );
    assert!(table.lines().last().unwrap().contains("   -      "), "{table}");
    let shown = lrp(&rows[0], &[running(0), with_definition("v2", running(0)), running(1)], LOOK);
    for part in [
        "\ndefinition   v2\n",
        "\nhealthy      web\n",
        "\ndefinitions  web, v2\n",
        "\nrollout      rollout to v2: updating, 1 of 2 replaced, for 60s\n",
        "\nwaits        index 0 runs on c1 and takes over\n",
        "\nweb/0@v2   ",
    ] {
        assert!(shown.contains(part), "{part:?}: {shown}");
    }
}

#[test]
fn rollout_details_list_its_facts() {
    let mut row = rolling("paused", &[]);
    let paused = row.rollout.as_mut().unwrap();
    paused.reason = Some("1 of 2 failed, the last at index 0: Exited with status 1".into());
    (paused.stalled, paused.failed) = (0.into(), 0.into());
    let waits = waits::waiting_reason(&row, &[]);
    let status = RolloutStatus { lrp: row, waits, last_crash: None };
    assert_eq!(
        rollout(&status, LOOK),
        "process           web\n\
         rollout           4, rollout to v2\n\
         status            paused\n\
         reason            1 of 2 failed, the last at index 0: Exited with status 1\n\
         target            v2\n\
         healthy           web\n\
         back to           web\n\
         replaced          1 of 2\n\
         indices given up  0\n\
         indices failed    0\n\
         began             1970-01-01T02:45:10.000Z (90s ago)\n\
         since             1970-01-01T02:45:40.000Z (60s ago)\n\
         waits             paused: 1 of 2 failed, the last at index 0: Exited with status 1 (resume or roll back)"
    );
}

#[test]
fn processes_are_formatted_as_table() {
    let row = process();
    let rows = [row.clone(), LrpRow { desired: false, instances: 0, ..row }];
    assert_eq!(
        lrps(&rows, LOOK).render(false),
        "PROCESS   DOMAIN   DESIRED   RUNNING   STARTING   WAITING   CRASHED   NOTE            CHANGED\n\
         web       shop           3         1          1         1         0   -               5m\n\
         web       shop           0         1          1         1         0   being deleted   5m"
    );
}

#[test]
fn tasks_are_formatted_as_table() {
    let row = TaskRow {
        task_guid: TaskGuid::new("greet").unwrap(),
        domain: domain(),
        epoch: Epoch::default(),
        version: 3,
        last_decision: schemas::Position(0),
        state: TaskState::Completed,
        instance_guid: None,
        cell_id: Some(CellId::new("c1").unwrap()),
        failed: Some(false),
        failure_reason: None,
        result: Some("hello\n".into()),
        placement_error: None,
        callback: None,
        first_completed_at: Some(ago(4)),
        since: ago(4),
        annotation: String::new(),
        priority: Priority::default(),
        definition: None,
    };
    let failed = TaskRow {
        failed: Some(true),
        failure_reason: Some("cancelled".into()),
        result: None,
        cell_id: None,
        ..row.clone()
    };
    assert_eq!(
        tasks(&[row, failed], LOOK).render(false),
        "TASK    DOMAIN   STATE       OUTCOME     CELL   AGE   NOTE\n\
         greet   shop     COMPLETED   SUCCEEDED   c1     4s    hello\n\
         greet   shop     COMPLETED   FAILED      -      4s    cancelled"
    );
}

pub(crate) fn example_cell() -> CellRow {
    CellRow {
        cell_id: CellId::new("c1").unwrap(),
        presence: Presence {
            total: Resources { memory_mb: 4096, disk_mb: 10_240, containers: 64, ports: 1_000 },
            ..fixtures::presence(1)
        },
        state: CellState::Present,
        evacuation_requested: false,
        cordoned: false,
        ordinal: Some(0),
        absent_reason: None,
        unhealthy: None,
        heartbeat_ms_ago: Some(2_345),
        instances: 2,
        tasks: 0,
        used: Resources { memory_mb: 512, disk_mb: 1024, containers: 2, ports: 3 },
        since: ago(5),
    }
}

#[test]
fn cells_and_domains_are_formatted_as_tables() {
    assert_eq!(
        cells(&[example_cell()], LOOK).render(false),
        "CELL   ZONE   STATE     STACK   TAGS   INSTANCES   TASKS    MEMORY     DISK   CONTAINERS    PORTS   HEARTBEAT   SINCE\n\
         c1     z1     PRESENT   linux   -              2       0   512M/4G   1G/10G         2/64   3/1000   2s          5s"
    );
    let fresh = DomainRow { domain: domain(), fresh: true, refreshed_at: ago(5), expires_at: None };
    let stale = DomainRow { fresh: false, expires_at: Some(ago(2)), ..fresh.clone() };
    assert_eq!(
        domains(&[fresh, stale], LOOK).render(false),
        "DOMAIN   STATE       REFRESHED   EXPIRES\n\
         shop     FRESH       5s ago      never\n\
         shop     NOT FRESH   5s ago      2s ago"
    );
}

#[test]
fn cluster_details_list_malformed_entries_newest_first() {
    let whole = ClusterRow {
        cluster_id: schemas::names::ClusterId(Uuid::nil()),
        shards: 32,
        format: 1,
        bbs: None,
        auctioneer: None,
        services: Services::default(),
        problems: vec![],
        cells: [].into(),
        zones: vec![],
        lrps: 0,
        instances: [].into(),
        tasks: [].into(),
        found_by_convergence: 0,
        refused_transitions: 0,
        preemption: false,
        durability: "verified".into(),
        quarantined_entries: QuarantinedEntries::default(),
    };
    assert!(!cluster(&whole, LOOK).contains("quarantined"));
    let malformed = |position, why: &str| QuarantinedEntry {
        position: schemas::Position(position),
        subject: "muster.event.lrp.0".into(),
        reason: why.into(),
    };
    let last = vec![malformed(7, "EOF while parsing"), malformed(41, "expected value")];
    let damaged = ClusterRow { quarantined_entries: QuarantinedEntries { count: 9, last }, ..whole };
    let text = cluster(&damaged, LOOK);
    assert!(text.contains("quarantined           9 malformed entries\n"), "{text}");
    let newest_first = "
POSITION   SUBJECT              PROBLEM
      41   muster.event.lrp.0   expected value
       7   muster.event.lrp.0   EOF while parsing";
    assert!(text.ends_with(newest_first), "{text}");
}
