//! What came of each fault, as a table for people and as JSON for programs.

use std::fmt;
use std::time::Duration;

use comfy_table::{Table, presets};
use serde::{Serialize, Serializer};

/// What came of one fault.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    /// The name of the fault.
    pub fault: String,
    /// How many NATS servers there were.
    pub nodes: usize,
    /// Commands that were acknowledged since the round before.
    pub acknowledged: usize,
    /// Commands that were refused since then: they came too early or too late.
    pub refused: usize,
    /// Commands that nobody answered since then.
    pub unanswered: usize,
    /// Acknowledged commands of the whole run that are not in the log.
    pub lost: usize,
    /// Tasks that failed since then: cancelled, or struck by the fault.
    pub failed_tasks: usize,
    /// How long the fault lasted, in seconds.
    #[serde(rename = "lasted_seconds", serialize_with = "seconds")]
    pub lasted: Duration,
    /// From the fault to full service, in seconds.
    #[serde(rename = "full_service_seconds", serialize_with = "seconds")]
    pub full_service: Duration,
    /// How long a client waited at the most for the answer to a command, in seconds.
    #[serde(rename = "longest_pause_seconds", serialize_with = "seconds")]
    pub longest_pause: Duration,
    /// Messages of the log, after it.
    pub entries: u64,
    /// Everything that was found wrong.
    pub wrong: Vec<String>,
}

/// What came of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The seed that the faults were drawn by.
    pub seed: u64,
    /// What came of each, in the order in which they happened.
    pub rounds: Vec<Round>,
}

impl Report {
    /// Whether anything was found wrong.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.rounds.iter().all(|round| round.wrong.is_empty())
    }
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((time.as_secs_f64() * 1_000.0).round() / 1_000.0)
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fault, acknowledged, lost, lasted, full_service, longest_pause, .. } = self;
        let sum = format!("{acknowledged} acknowledged, {lost} lost; lasted {:.1} s", lasted.as_secs_f64());
        write!(f, "{fault}: {sum}, full service after {:.1} s", full_service.as_secs_f64())?;
        write!(f, ", longest pause {:.1} s", longest_pause.as_secs_f64())?;
        self.wrong.iter().try_for_each(|wrong| write!(f, "\n  WRONG: {wrong}"))
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
            "wrong",
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
                time(round.longest_pause),
                round.wrong.len().to_string(),
            ]);
        }
        write!(f, "{table}")
    }
}
