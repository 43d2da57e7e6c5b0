//! Measures the 96 shapes of Nomad's own scheduler benchmark: {1,000, 5,000, 10,000} cells in {10, 25, 50,
//! 75} racks, and {300, 600, 900, 1,200} instances of one process. The instances are either spread over racks
//! or not. For each shape, the program prints the placements per second of one core, and the duration of the
//! auction of the whole process. This duration corresponds to one evaluation in Nomad.
//!
//! A cell has 32,000 MB of memory and 100 GiB of disk. The two zones stand for Nomad's two data centers. An
//! instance needs 6,000 MB of memory. In Nomad's benchmark, an instance also needs 6,000 of a node's 14,000
//! MHz, so a node can run at most two instances. Muster does not place by CPU. In its place, a cell has a
//! capacity of two containers.
//!
//! Each auction places a process that is new to the board (the auctioneer's copy of the cells). The measured
//! time therefore includes the construction of the view of its constraint, and the grouping of the cells by
//! rack. The time for creating the board is printed separately. An auctioneer creates the board only when its
//! cells change, and not for each process.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "an example only measures and prints, and its names are valid"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use auctioneer::auction::{Item, Siblings, auction};
use auctioneer::board::{Board, BoardCell, Standing};
use schemas::attributes::{AttributeName, Attributes};
use schemas::container::{Epoch, WorkKey};
use schemas::definition::Definition;
use schemas::message::WorkDefinition;
use schemas::names::{CellId, DefinitionId, ProcessGuid, Stack, Zone};
use schemas::priority::Priority;
use schemas::resources::{Constraint, Resources};
use schemas::rules::{Rules, Spread};
use schemas::{ActualLrpKey, Place, Timestamp};

/// Number of measurements per shape.
const ROUNDS: usize = 25;
/// Placements per second that Nomad published for 1,000 nodes, and the factor that Muster must reach. The
/// first entry is with spread, and the second is without spread.
const NOMAD_BASELINES: [(bool, f64, f64); 2] = [(true, 1_590.0, 50.0), (false, 3_250.0, 20.0)];

fn main() {
    println!(
        "{:>6} {:>6} {:>10} {:>7} {:>13} {:>8} {:>8} {:>9}",
        "cells", "racks", "instances", "spread", "placements/s", "p50 ms", "p99 ms", "board ms"
    );
    let mut slowest = BTreeMap::new();
    for cells in [1_000, 5_000, 10_000] {
        for racks in [10, 25, 50, 75] {
            let started = Instant::now();
            let board = Board::new((0..cells).map(|number| cell(number, racks)));
            let set_up = started.elapsed();
            for instances in [300, 600, 900, 1_200] {
                for (spread, _, _) in NOMAD_BASELINES {
                    let rate = measure(&board, set_up, (cells, racks, instances), spread);
                    let slow = slowest.entry((cells, spread)).or_insert(f64::INFINITY);
                    *slow = slow.min(rate);
                }
            }
        }
    }
    println!();
    for ((cells, spread), slow) in slowest {
        for (_, nomad, aim) in NOMAD_BASELINES.into_iter().filter(|(of, _, _)| *of == spread) {
            let what = if spread { "with spread" } else { "without" };
            let times = slow / nomad;
            println!(
                "{cells:>6} cells {what:<12} slowest {slow:>9.0}/s: {times:>5.1} times Nomad's {nomad}/s \
                 at 1,000 nodes (target: {aim})"
            );
        }
    }
}

/// Measures and prints one shape. Returns the placements per second.
fn measure(board: &Board, set_up: Duration, (cells, racks, instances): (u32, u32, u32), spread: bool) -> f64 {
    let batch = batch(instances, spread);
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let (mut board, batch) = (board.clone(), batch.clone());
            let started = Instant::now();
            let verdicts = auction(&mut board, batch, &Siblings::new());
            let took = started.elapsed();
            check(&board, &verdicts, racks, spread);
            took
        })
        .collect();
    times.sort();
    let total: f64 = times.iter().map(Duration::as_secs_f64).sum();
    let rate = f64::from(instances) * ROUNDS as f64 / total;
    let at = |percent: usize| times[(ROUNDS * percent / 100).min(ROUNDS - 1)].as_secs_f64() * 1_000.0;
    let (p50, p99, set_up) = (at(50), at(99), set_up.as_secs_f64() * 1_000.0);
    let spread = if spread { "rack" } else { "-" };
    println!(
        "{cells:>6} {racks:>6} {instances:>10} {spread:>7} {rate:>13.0} {p50:>8.2} {p99:>8.2} {set_up:>9.2}"
    );
    rate
}

/// Asserts that the whole batch is placed. If the batch is spread, also asserts that the racks have equal
/// numbers of instances.
fn check(board: &Board, verdicts: &[auctioneer::auction::Verdict], racks: u32, spread: bool) {
    let mut in_rack: BTreeMap<String, u32> = BTreeMap::new();
    for verdict in verdicts {
        let number = board.number(verdict.place.as_ref().unwrap()).unwrap();
        *in_rack.entry(board.cell(number).attributes.get("rack").unwrap().to_owned()).or_default() += 1;
    }
    let (least, most) = (in_rack.values().min().unwrap(), in_rack.values().max().unwrap());
    assert!(!spread || (most - least <= 1 && in_rack.len() == racks as usize), "{in_rack:?}");
}

fn cell(number: u32, racks: u32) -> BoardCell {
    let rack = (AttributeName::new("rack").unwrap(), format!("r{}", number % racks));
    let total = Resources { memory_mb: 32_000, disk_mb: 100 * 1_024, containers: 2, ports: 10_000 };
    BoardCell {
        id: CellId::new(&format!("cell{number:05}")).unwrap(),
        zone: Zone::new(&format!("z{}", number / racks % 2)).unwrap(),
        stack: Stack::new("linux").unwrap(),
        placement_tags: [].into(),
        attributes: Attributes::new([rack].into()).unwrap(),
        total,
        free: total,
        standing: Standing::Open,
    }
}

fn batch(instances: u32, spread: bool) -> Vec<Item> {
    let over =
        Spread { attribute: AttributeName::new("rack").unwrap(), weight: 50, targets: BTreeMap::new() };
    let rules = spread.then(|| Box::new(Rules { spread: vec![over], ..Rules::default() }));
    let definition = Arc::new(Definition {
        constraint: Constraint { rules, ..Constraint::default() }.into(),
        memory_mb: 6_000,
        ..fixtures::definition()
    });
    let process_guid = ProcessGuid::new("web").unwrap();
    let item = |index| {
        let place = Place::new(index, DefinitionId::from(&process_guid));
        let key =
            WorkKey::Lrp { key: ActualLrpKey::new(process_guid.clone(), place), epoch: Epoch(Timestamp(1)) };
        Item::new(Priority::default(), Timestamp(1), key, WorkDefinition::Lrp(Arc::clone(&definition)))
    };
    (0..instances).map(item).collect()
}
