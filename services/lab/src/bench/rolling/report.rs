//! Results of `muster-lab bench --rolling`, and their output as a table or JSON.

use std::time::Duration;

use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde_json::{Value, json};

use super::super::BenchError;
use super::super::figures::percentile;
use super::load::Requests;
use super::timeline::Timeline;

/// Figures of one rollout.
pub(super) struct RolloutFigures {
    pub(super) instances: u32,
    /// Time from the command to the entry that completed the rollout.
    pub(super) took: Duration,
    pub(super) timeline: Timeline,
    pub(super) requests: Option<Requests>,
}

/// Figures of both rollouts, and their parameters.
pub(super) struct Report {
    /// Requests per second to each instance.
    pub(super) rate: u32,
    pub(super) drain_ms: u32,
    /// Number of cells for the in-memory instances.
    pub(super) cells: u32,
    pub(super) real: RolloutFigures,
    pub(super) in_memory: RolloutFigures,
}

impl RolloutFigures {
    fn rate(&self, count: u64) -> f64 {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        f64::from(count) / self.took.as_secs_f64().max(1e-9)
    }

    fn rows(&self, table: &mut Table) {
        for (name, value) in [
            ("seconds", format!("{:.2}", self.took.as_secs_f64())),
            ("instances_per_second", format!("{:.0}", self.rate(self.instances.into()))),
            ("entries_per_second", format!("{:.0}", self.rate(self.timeline.entries))),
        ] {
            table.add_row([name, &value, "", ""]);
        }
        for (name, all) in self.latencies() {
            let [p50, worst] = [50, 100].map(|percent| format!("{:.1}", percentile(&all, percent)));
            table.add_row([name.as_str(), "", &p50, &worst]);
        }
    }

    fn latencies(&self) -> Vec<(String, Vec<Duration>)> {
        let stages = self.timeline.stages();
        let named = stages.into_iter().map(|(name, all)| (format!("{}_ms", name.replace(' ', "_")), all));
        let mut all: Vec<_> = named.collect();
        if let Some(requests) = &self.requests {
            all.push(("router_knew_ms".to_owned(), self.timeline.lags.clone()));
            all.push(("request_ms".to_owned(), requests.answered.clone()));
        }
        all
    }

    fn json(&self) -> Value {
        let mut value = json!({
            "instances": self.instances,
            "seconds": self.took.as_secs_f64(),
            "instances_per_second": self.rate(self.instances.into()),
            "entries_per_second": self.rate(self.timeline.entries),
        });
        for (name, all) in self.latencies() {
            value[name] = json!({"p50": percentile(&all, 50), "worst": percentile(&all, 100)});
        }
        if let Some(requests) = &self.requests {
            value["requests"] = json!(requests.sent());
            value["failed_requests"] = json!(requests.failed);
            value["failures"] = json!(requests.reasons);
        }
        value
    }
}

impl Report {
    pub(super) fn table(&self) -> String {
        let mut real = header();
        let requests = self.real.requests.clone().unwrap_or_default();
        real.add_row(["requests", &requests.sent().to_string(), "", ""]);
        real.add_row(["failed_requests", &requests.failed.to_string(), "", ""]);
        self.real.rows(&mut real);
        let mut in_memory = header();
        self.in_memory.rows(&mut in_memory);
        let mut text = format!(
            "{} real processes on {} cells, one at a time, start-first; {} requests per second to each; \
             drain time {} ms\n{real}\n\n{} instances in memory on {} cells, {} at a time, start-first\n\
             {in_memory}",
            self.real.instances,
            super::REAL_CELLS,
            self.rate,
            self.drain_ms,
            self.in_memory.instances,
            self.cells,
            super::IN_MEMORY.1,
        );
        for reason in &requests.reasons {
            text.push_str(&format!("\nfailed: {reason}"));
        }
        text
    }

    pub(super) fn json(&self) -> String {
        json!({
            "rate": self.rate, "drain_ms": self.drain_ms, "cells": self.cells,
            "real": self.real.json(), "in_memory": self.in_memory.json(),
        })
        .to_string()
    }

    /// Returns an error if requests failed.
    pub(super) fn failure(&self) -> Option<BenchError> {
        let requests = self.real.requests.as_ref()?;
        let (failed, sent) = (requests.failed, requests.sent());
        (failed > 0).then_some(BenchError::RequestsFailed { failed, sent })
    }
}

impl Requests {
    fn sent(&self) -> u64 {
        self.failed + self.answered.len() as u64
    }
}

fn header() -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(["FIGURE", "VALUE", "P50", "WORST"]);
    table
}
