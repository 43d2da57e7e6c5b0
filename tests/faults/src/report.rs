//! Results of the faults, as a table and as JSON.

use std::fmt;
use std::time::Duration;

use comfy_table::{Table, presets};
use serde::{Serialize, Serializer};

/// Result of one fault.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    /// Name of the fault.
    pub fault: String,
    /// Number of NATS servers.
    pub nodes: usize,
    /// Number of commands that were acknowledged since the previous round.
    pub acknowledged: usize,
    /// Number of commands that were refused since the previous round, because they came too early or too
    /// late.
    pub refused: usize,
    /// Number of commands without an answer since the previous round.
    pub unanswered: usize,
    /// Number of acknowledged commands of the whole run that are not in the log.
    pub lost: usize,
    /// Number of tasks that failed since the previous round: cancelled, or hit by the fault.
    pub failed_tasks: usize,
    /// Duration of the fault, serialized in seconds.
    #[serde(rename = "lasted_seconds", serialize_with = "seconds")]
    pub lasted: Duration,
    /// Time from the start of the fault to full service, serialized in seconds.
    #[serde(rename = "full_service_seconds", serialize_with = "seconds")]
    pub full_service: Duration,
    /// Longest time that a client waited for the answer to a command, serialized in seconds.
    #[serde(rename = "longest_pause_seconds", serialize_with = "seconds")]
    pub max_latency: Duration,
    /// Number of messages in the log after the fault.
    pub entries: u64,
    /// Descriptions of all violations.
    pub wrong: Vec<String>,
}

/// Results of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Seed with which the faults were drawn.
    pub seed: u64,
    /// Results in the order of the faults.
    pub rounds: Vec<Round>,
}

impl Report {
    /// Returns `true` if no violation was found.
    #[must_use]
    pub fn has_no_violations(&self) -> bool {
        self.rounds.iter().all(|round| round.wrong.is_empty())
    }
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((time.as_secs_f64() * 1_000.0).round() / 1_000.0)
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fault, acknowledged, lost, lasted, full_service, max_latency: longest_pause, .. } = self;
        let sum = format!("{acknowledged} acknowledged, {lost} lost; lasted {:.1} s", lasted.as_secs_f64());
        write!(f, "{fault}: {sum}, full service after {:.1} s", full_service.as_secs_f64())?;
        write!(f, ", longest pause {:.1} s", longest_pause.as_secs_f64())?;
        self.wrong.iter().try_for_each(|wrong| write!(f, "\n  VIOLATION: {wrong}"))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header([
            "fault",
            "nodes",
            "acknowledged",
            "lost",
            "lasted",
            "full service",
            "longest pause",
            "violations",
        ]);
        for round in &self.rounds {
            let time = |time: Duration| format!("{:.1} s", time.as_secs_f64());
            table.add_row([
                round.fault.clone(),
                round.nodes.to_string(),
                round.acknowledged.to_string(),
                round.lost.to_string(),
                time(round.lasted),
                time(round.full_service),
                time(round.max_latency),
                round.wrong.len().to_string(),
            ]);
        }
        write!(f, "{table}")
    }
}
