//! Figures of a benchmark, and their output as a table or JSON.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use auctioneer::auction::{Item, Siblings, auction};
use auctioneer::board::{Board, BoardCell, Standing};
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use schemas::action::{Action, Run};
use schemas::container::{Epoch, WorkKey};
use schemas::definition::Definition;
use schemas::message::WorkDefinition;
use schemas::names::{CellId, DefinitionId, ProcessGuid, Stack, Zone};
use schemas::priority::Priority;
use schemas::resources::Resources;
use schemas::{ActualLrpKey, Place, Timestamp};
use serde_json::{Map, Value, json};

use super::BenchArgs;
use super::cpu::CpuTime;
use super::limit::Limit;
use super::watch::Counts;

/// Number of placements in the separate measurement of the auction.
const PLACEMENTS: u32 = 50_000;

/// Figures of a benchmark.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    place: String,
    cells: u32,
    lrps: u32,
    instances: u32,
    tasks: u32,
    /// Times between the command that desires a process and its state RUNNING, for single processes.
    pub(super) one_lrp: Vec<Duration>,
    /// Times between a crash and the next RUNNING.
    pub(super) crash: Vec<Duration>,
    /// Times between the loss of a cell and RUNNING on another cell, for each instance of the lost cell.
    pub(super) cell_loss: Vec<Duration>,
    /// Latencies of small commands of another client. Measured after the steps, while processes are scaled
    /// and a cell is lost.
    pub(super) command: Vec<Duration>,
    /// Latencies of appends to the journal. Measured without other load.
    append: Vec<Duration>,
    /// Figures for each number of commands in flight.
    pub(super) steps: Vec<Step>,
    rates: Vec<(&'static str, f64)>,
}

/// Figures for one number of commands in flight.
#[derive(Clone, Debug)]
pub(super) struct Step {
    waiting: u32,
    rates: Vec<(&'static str, f64)>,
    /// Latencies of small commands of another client during the load.
    pub(super) command: Vec<Duration>,
    /// Mean size of an entry while processes are desired, in bytes.
    entry_bytes: usize,
}

impl Step {
    fn json(&self) -> Value {
        let mut step = figures(&self.rates, &[("command_ms", &self.command)]);
        step.insert("in_flight".to_owned(), self.waiting.into());
        Value::Object(step)
    }

    pub(super) const fn new(waiting: u32) -> Self {
        Self { waiting, rates: vec![], command: vec![], entry_bytes: 0 }
    }

    /// Records `count` instances. `took` is the time between the first command and the last RUNNING.
    pub(super) fn record_lrps(
        &mut self,
        count: u64,
        took: Duration,
        (before, after): (Counts, Counts),
        spent: CpuTime,
    ) {
        let entries = after.entries - before.entries;
        push_rate(&mut self.rates, "lrps_per_second", count, took);
        push_rate(&mut self.rates, "decisions_per_second", after.decisions - before.decisions, took);
        push_rate(&mut self.rates, "entries_per_second", entries, took);
        self.push_cpu(("cpu_ms_per_lrp", "server_cpu_ms_per_lrp"), count, spent);
        let mean = (after.bytes - before.bytes) / entries.max(1);
        self.entry_bytes = usize::try_from(mean).unwrap_or(usize::MAX);
    }

    /// Records `count` tasks. `took` is the time between the first command and the last COMPLETED.
    pub(super) fn tasks(&mut self, count: u64, took: Duration, spent: CpuTime) {
        push_rate(&mut self.rates, "tasks_per_second", count, took);
        self.push_cpu(("cpu_ms_per_task", "server_cpu_ms_per_task"), count, spent);
    }

    fn push_cpu(&mut self, (own, server): (&'static str, &'static str), count: u64, spent: CpuTime) {
        let each = |spent: Duration| spent.as_secs_f64() * 1_000.0 / count.max(1) as f64;
        self.rates.push((own, each(spent.own)));
        self.rates.extend(spent.server.map(|spent| (server, each(spent))));
    }
}

/// Records a rate per second, unless `count` is zero.
fn push_rate(rates: &mut Vec<(&'static str, f64)>, name: &'static str, count: u64, took: Duration) {
    if count > 0 {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        rates.push((name, f64::from(count) / took.as_secs_f64().max(1e-9)));
    }
}

impl Figures {
    pub(super) fn new(args: &BenchArgs, place: &str) -> Self {
        Self {
            place: place.to_owned(),
            cells: args.cells,
            lrps: args.lrps,
            instances: args.instances,
            tasks: args.tasks,
            one_lrp: vec![],
            crash: vec![],
            cell_loss: vec![],
            command: vec![],
            append: vec![],
            steps: vec![],
            rates: vec![],
        }
    }

    /// Records the throughput of the journal alone, and the work done in the time of one append. The amount
    /// of work per append makes results of different machines comparable.
    pub(super) fn record_limit(&mut self, limit: &Limit) {
        self.rates.push(("journal_limit_per_second", limit.per_second));
        for step in &mut self.steps {
            for (name, of) in
                [("lrps_per_append", "lrps_per_second"), ("tasks_per_append", "tasks_per_second")]
            {
                let rate = step.rates.iter().find(|(known, _)| *known == of).map(|(_, rate)| *rate);
                step.rates.extend(rate.map(|rate| (name, rate / limit.per_second)));
            }
        }
        self.append.clone_from(&limit.append_latencies);
    }

    /// Returns the mean size of an entry while processes are desired, in bytes.
    pub(super) fn entry_bytes(&self) -> usize {
        self.steps.last().map_or(0, |step| step.entry_bytes)
    }

    pub(super) fn record_rate(&mut self, name: &'static str, count: u64, took: Duration) {
        push_rate(&mut self.rates, name, count, took);
    }

    /// Measures the auction alone. The auction places processes of one instance on empty cells.
    pub(super) fn measure_placements(&mut self, cells: u32) {
        let mut board = Board::new((0..cells).map(cell));
        let definition = Arc::new(definition());
        let batch = (0..PLACEMENTS).map(|number| item(number, &definition)).collect();
        let started = Instant::now();
        let verdicts = auction(&mut board, batch, &Siblings::new());
        let took = started.elapsed();
        let placed = verdicts.iter().filter(|verdict| verdict.place.is_ok()).count();
        self.record_rate("placements_per_second", placed as u64, took);
    }

    /// Records the memory usage of this process.
    pub(super) fn record_memory(&mut self) {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let read = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<f64>().ok()
        };
        for (name, line) in [("memory_mib", "VmRSS:"), ("memory_peak_mib", "VmHWM:")] {
            self.rates.extend(read(line).map(|kib| (name, kib / 1024.0)));
        }
    }

    fn latencies(&self) -> [(&'static str, &[Duration]); 5] {
        [
            ("one_lrp_ms", &self.one_lrp),
            ("crash_to_replacement_ms", &self.crash),
            ("cell_loss_to_replacement_ms", &self.cell_loss),
            ("command_ms", &self.command),
            ("journal_append_ms", &self.append),
        ]
    }

    pub(super) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(NOTHING).set_header(["FIGURE", "IN FLIGHT", "VALUE", "P50", "P99", "MAX"]);
        for step in &self.steps {
            let waiting = step.waiting.to_string();
            table.add_rows(step.rates.iter().map(|rate| rate_row(rate, &waiting)));
            latency_rows(&mut table, &waiting, &[("command_ms", &step.command)]);
        }
        table.add_rows(self.rates.iter().map(|rate| rate_row(rate, "")));
        latency_rows(&mut table, "", &self.latencies());
        format!(
            "{} cells; per number in flight: {} processes of {} instances, {} tasks; {}\n{table}",
            self.cells, self.lrps, self.instances, self.tasks, self.place
        )
    }

    pub(super) fn json(&self) -> String {
        let steps: Vec<Value> = self.steps.iter().map(Step::json).collect();
        json!({
            "journal": self.place, "cells": self.cells, "lrps": self.lrps, "instances": self.instances,
            "tasks": self.tasks, "in_flight": steps, "figures": figures(&self.rates, &self.latencies()),
        })
        .to_string()
    }
}

fn rate_row((name, value): &(&'static str, f64), waiting: &str) -> [String; 3] {
    let value = if *value < 10.0 { format!("{value:.3}") } else { format!("{value:.0}") };
    [(*name).to_owned(), waiting.to_owned(), value]
}

fn latency_rows(table: &mut Table, waiting: &str, latencies: &[(&'static str, &[Duration])]) {
    for (name, all) in latencies.iter().filter(|(_, all)| !all.is_empty()) {
        let [p50, p99, most] = [50, 99, 100].map(|percent| format!("{:.2}", percentile(all, percent)));
        table.add_row([(*name).to_owned(), waiting.to_owned(), String::new(), p50, p99, most]);
    }
}

/// Returns rates and latencies as a JSON object.
fn figures(rates: &[(&'static str, f64)], latencies: &[(&'static str, &[Duration])]) -> Map<String, Value> {
    let mut figures: Map<String, Value> =
        rates.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    for (name, all) in latencies.iter().filter(|(_, all)| !all.is_empty()) {
        let [p50, p99, most] = [50, 99, 100].map(|percent| percentile(all, percent));
        let value = json!({"p50": p50, "p99": p99, "most": most, "count": all.len()});
        figures.insert((*name).to_owned(), value);
    }
    figures
}

/// Returns a percentile in milliseconds: the smallest value that is at least as large as `percent` percent of
/// all values. Zero if there are no values.
pub(super) fn percentile(all: &[Duration], percent: usize) -> f64 {
    let mut sorted = all.to_vec();
    sorted.sort();
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).map_or(0.0, |value| value.as_secs_f64() * 1_000.0)
}

fn cell(number: u32) -> BoardCell {
    let name = |text: String| CellId::new(&text).expect("valid name");
    let total = Resources { memory_mb: 1 << 20, disk_mb: 1 << 20, containers: 1 << 16, ports: 1 << 16 };
    BoardCell {
        id: name(format!("cell{number:05}")),
        zone: Zone::new(&format!("z{}", number % 3)).expect("valid name"),
        stack: Stack::new("linux").expect("valid name"),
        placement_tags: BTreeSet::new(),
        attributes: schemas::attributes::Attributes::default(),
        total,
        free: total,
        standing: Standing::Open,
    }
}

fn item(number: u32, definition: &Arc<Definition>) -> Item {
    let process_guid = ProcessGuid::new(&format!("process{number}")).expect("valid name");
    let place = Place::new(0, DefinitionId::from(&process_guid));
    let key = ActualLrpKey::new(process_guid, place);
    let key = WorkKey::Lrp { key, epoch: Epoch(Timestamp(1)) };
    Item::new(
        Priority::default(),
        Timestamp(u64::from(number)),
        key,
        WorkDefinition::Lrp(Arc::clone(definition)),
    )
}

fn definition() -> Definition {
    let action = Action::Run(Run { path: "scripted".into(), ..Run::default() });
    Definition { memory_mb: 64, disk_mb: 64, ports: vec![8080].into(), ..Definition::new(action) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_uses_nearest_rank() {
        let all: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!([50, 99].map(|percent| percentile(&all, percent)), [50.0, 99.0]);
        assert_eq!(percentile(&all[..1], 99), 1.0);
        assert_eq!(percentile(&[], 50), 0.0);
    }
}
