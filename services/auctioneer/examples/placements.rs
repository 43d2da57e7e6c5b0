//! Prints the placements per second of one core, on 100 to 10,000 cells.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "an example only measures and prints, and its names are valid"
)]

use std::sync::Arc;
use std::time::Instant;

use auctioneer::auction::{Item, Siblings, auction};
use auctioneer::board::{Board, BoardCell, Standing};
use auctioneer::{Auctioneer, Effect, Input, Settings};
use schemas::cell::Presence;
use schemas::cluster::Role;
use schemas::container::{Epoch, WorkKey};
use schemas::definition::{Definition, DesiredLrp, Ports, TaskDefinition};
use schemas::entry::{Aggregate, Event};
use schemas::message::{Heartbeat, PerformId, WorkDefinition};
use schemas::names::{
    CellId, ClusterId, DefinitionId, Domain, EntryId, IdGenerator, Incarnation, ProcessGuid, ServiceId,
    Stack, TaskGuid, Zone,
};
use schemas::policy::Policies;
use schemas::priority::Priority;
use schemas::resources::{Constraint, Resources};
use schemas::{ActualLrpKey, Entry, Indices, Places, Position, Timestamp, actual, cell, cluster, desired};

/// Items per auction.
const BATCH: u32 = 10_000;
/// Items per measurement.
const WORK: u32 = 200_000;

fn main() {
    println!("{:>6}  {:<28} {:>12}", "cells", "work", "placements/s");
    for cells in [100, 1_000, 10_000] {
        row(cells, "1-instance processes", WORK, processes(1));
        row(cells, "100-instance processes", WORK, processes(100));
        row(cells, "10,000-instance processes", WORK, processes(10_000));
        row(cells, "tasks", WORK, tasks);
        row(cells, "tasks, twice the capacity", WORK / 2, tasks);
        machine(cells, 1);
        machine(cells, 100);
    }
}

/// Sends processes to a leading auctioneer, up to 20 per log entry. Counts the work that the auctioneer sends
/// to cells.
fn machine(cells: u32, instances: u32) {
    let mut auctioneer = Auctioneer::new(ServiceId::new("a").unwrap(), Settings::default());
    let mut log = Log { ids: IdGenerator::new(1), position: 0, now: Timestamp::from_millis(1) };
    let id = ClusterId(log.ids.next(log.now));
    let founded = cluster::Event::Founded { id, shards: 32, format: 1 };
    let elected =
        cluster::Event::Elected { role: Role::Auctioneer, id: ServiceId::new("a").unwrap(), term: 1 };
    let mut begin = vec![log.cluster(founded), log.cluster(elected), Input::CaughtUp];
    for number in 0..cells {
        begin.extend(log.cell(cell(number, WORK / cells)));
    }
    for input in begin {
        auctioneer.step(log.now, input);
    }
    let processes = WORK / instances;
    let entries: Vec<Input> = (0..processes)
        .step_by(20)
        .map(|first| log.desire((first..processes.min(first + 20)).map(|process| (process, instances))))
        .collect();
    let started = Instant::now();
    let mut placed = 0;
    for entries in entries.chunks(5) {
        for entry in entries {
            auctioneer.step(log.now, entry.clone());
        }
        for effect in auctioneer.step(log.now, Input::Turn) {
            if let Effect::Perform { perform, .. } = effect {
                placed += perform.work.len();
            }
        }
    }
    while auctioneer.counts().ready > 0 {
        for effect in auctioneer.step(log.now, Input::Turn) {
            if let Effect::Perform { perform, .. } = effect {
                placed += perform.work.len();
            }
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let what = format!("{instances}-instance, whole machine");
    println!("{cells:>6}  {what:<28} {:>12.0}   ({placed} of {WORK} placed)", f64::from(WORK) / seconds);
}

/// Creates log entries.
struct Log {
    ids: IdGenerator,
    position: u64,
    now: Timestamp,
}

impl Log {
    fn record(&mut self, about: Vec<(Aggregate, Vec<Event>)>) -> Input {
        self.position += 1;
        let decisions = about.into_iter().map(|(aggregate, events)| {
            fixtures::decision(self.ids.next(self.now), self.now, aggregate, events)
        });
        let decisions = decisions.collect();
        let entry = Entry { id: EntryId(self.ids.next(self.now)), format: 1, decisions };
        Input::Recorded { position: Position(self.position), entry: Arc::new(entry) }
    }

    fn cluster(&mut self, event: cluster::Event) -> Input {
        self.record(vec![(Aggregate::Cluster, vec![Event::Cluster(event)])])
    }

    fn cell(&mut self, cell: BoardCell) -> [Input; 2] {
        let presence = Presence {
            folder: schemas::names::FolderId(self.ids.next(self.now)),
            incarnation: Incarnation(self.ids.next(self.now)),
            zone: cell.zone,
            stack: cell.stack,
            placement_tags: cell.placement_tags,
            attributes: cell.attributes,
            total: cell.total,
        };
        let heartbeat = Heartbeat {
            cell_id: cell.id.clone(),
            presence: presence.clone(),
            free: cell.free,
            starting: 0,
            evacuating: false,
            unhealthy: None,
            performed: PerformId::default(),
            sequence: 1,
            clock: self.now,
            schema: 0,
            format: 1,
        };
        let appeared = vec![Event::Cell(cell::Event::Appeared(presence))];
        [self.record(vec![(Aggregate::Cell(cell.id), appeared)]), Input::Heartbeat(heartbeat)]
    }

    fn desire(&mut self, processes: impl Iterator<Item = (u32, u32)>) -> Input {
        let decisions = processes.map(|(process, instances)| {
            let guid = ProcessGuid::new(&format!("process-{process:06}")).unwrap();
            let definition_id = DefinitionId::new("v1").unwrap();
            let domain = Domain::new("d").unwrap();
            let lrp = DesiredLrp {
                process_guid: guid.clone(),
                domain: domain.clone(),
                mode: schemas::definition::Mode::Replicated,
                instances,
                priority: Priority::default(),
                routes: [].into(),
                annotation: String::new(),
                policies: Policies::default(),
                definition_id: definition_id.clone(),
                definition: definition(process),
            };
            let places = Places { indices: Indices::below(instances), definition_id };
            let created = actual::Event::Created { places };
            let events = vec![Event::Desired(desired::Event::Desired(Box::new(lrp))), Event::Actual(created)];
            (Aggregate::Process { guid, domain, epoch: Epoch(self.now) }, events)
        });
        let decisions = decisions.collect();
        self.record(decisions)
    }
}

/// Places `WORK` items in batches. The cells have a total capacity of `room`.
fn row(cells: u32, what: &str, room: u32, make: impl Fn(u32) -> Item) {
    let mut board = Board::new((0..cells).map(|number| cell(number, room / cells)));
    let batches: Vec<Vec<Item>> =
        (0..WORK / BATCH).map(|batch| (0..BATCH).map(|at| make(batch * BATCH + at)).collect()).collect();
    let started = Instant::now();
    let mut placed = 0;
    for batch in batches {
        let verdicts = auction(&mut board, batch, &Siblings::new());
        placed += verdicts.iter().filter(|verdict| verdict.place.is_ok()).count();
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("{cells:>6}  {what:<28} {:>12.0}   ({placed} of {WORK} placed)", f64::from(WORK) / seconds);
}

fn cell(number: u32, containers: u32) -> BoardCell {
    // Cells of two sizes in three zones.
    let large = u64::from(number % 2 + 1);
    let total =
        Resources { memory_mb: large * 1024 * u64::from(containers), disk_mb: 1 << 24, containers, ports: 0 };
    BoardCell {
        id: CellId::new(&format!("cell-{number:05}")).unwrap(),
        zone: Zone::new(&format!("z{}", number % 3)).unwrap(),
        stack: Stack::new("linux").unwrap(),
        placement_tags: [].into(),
        attributes: schemas::attributes::Attributes::default(),
        total,
        free: total,
        standing: Standing::Open,
    }
}

fn constraint() -> Constraint {
    Constraint { stack: Some(Stack::new("linux").unwrap()), ..Constraint::default() }
}

/// Returns a memory size that differs from process to process.
fn memory(number: u32) -> u64 {
    64 * u64::from(number % 16 + 1)
}

fn processes(instances: u32) -> impl Fn(u32) -> Item {
    move |number| {
        let (process, index) = (number / instances, number % instances);
        let guid = ProcessGuid::new(&format!("process-{process:06}")).unwrap();
        let key = ActualLrpKey::new(guid, fixtures::place(index, "v1"));
        let key = WorkKey::Lrp { key, epoch: Epoch::default() };
        Item::new(
            Priority::default(),
            Timestamp(u64::from(process)),
            key,
            WorkDefinition::Lrp(definition(process)),
        )
    }
}

fn definition(process: u32) -> Arc<Definition> {
    let memory_mb = memory(process);
    Arc::new(Definition {
        constraint: constraint().into(),
        memory_mb,
        disk_mb: 256,
        ports: Ports::new(),
        ..fixtures::definition()
    })
}

fn tasks(number: u32) -> Item {
    let key = WorkKey::Task {
        task_guid: TaskGuid::new(&format!("task-{number:06}")).unwrap(),
        epoch: Epoch::default(),
    };
    let definition = TaskDefinition {
        constraint: constraint(),
        memory_mb: memory(number),
        disk_mb: 256,
        ..fixtures::task_definition()
    };
    Item::new(
        Priority::default(),
        Timestamp(u64::from(number)),
        key,
        WorkDefinition::Task(Arc::new(definition)),
    )
}
