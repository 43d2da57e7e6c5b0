//! Results of a container's monitor. Queried from the cell on demand, and never in the log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::limits::{PROBE_LINE_BYTES, PROBE_OUTPUT_LINES, PROBES_KEPT, truncate};
use crate::names::{CellId, InstanceGuid};

/// One run of a monitor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Probe {
    /// Time at which the probe ended.
    pub at: Timestamp,
    /// Reason of the failure. Absent if the probe succeeded.
    pub failure: Option<String>,
    /// Last lines of the probe's output.
    pub output: Vec<String>,
}

/// Summary of all probes of a monitor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MonitorHealth {
    /// `true` if a probe ever succeeded. The container is RUNNING after the first success.
    pub was_healthy: bool,
    /// Number of probes.
    pub probes: u64,
    /// Number of failures since the last success.
    pub failures: u64,
    /// Most recent probes, oldest first.
    pub last: Vec<Probe>,
}

/// Health of a container as its cell knows it, the answer to `muster.query.<root>.instance.health`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerHealth {
    /// Container of the instance.
    pub instance_guid: InstanceGuid,
    /// Cell of the container.
    pub cell_id: CellId,
    /// Results of the monitor. Absent if the container has no monitor or was not probed yet.
    pub health: Option<MonitorHealth>,
}

impl Probe {
    /// Returns the reason of the failure and the last line of output, in one line. `None` if the probe
    /// succeeded.
    #[must_use]
    pub fn failure_summary(&self) -> Option<String> {
        let failure = self.failure.as_ref()?;
        let said = self.output.iter().rfind(|line| !line.trim().is_empty());
        Some(said.map_or_else(|| failure.clone(), |said| format!("{failure}: {}", said.trim())))
    }
}

impl MonitorHealth {
    /// Records a probe. Returns `true` if it is the first one or its result differs from the previous one.
    pub fn record(&mut self, probe: Probe) -> bool {
        let (failed, first) = (probe.failure.is_some(), self.probes == 0);
        let changed = first || failed != (self.failures > 0);
        self.probes += 1;
        self.failures = if failed { self.failures + 1 } else { 0 };
        self.was_healthy |= !failed;
        self.last.push(truncate_output(probe));
        let extra = self.last.len().saturating_sub(PROBES_KEPT);
        self.last.drain(..extra);
        changed
    }

    /// Returns the failure and the last output of the most recent probe, in one line. `None` if that probe
    /// succeeded, or if there was no probe.
    #[must_use]
    pub fn failure_summary(&self) -> Option<String> {
        self.last.last().and_then(Probe::failure_summary)
    }
}

/// Truncates the output of a probe to the limits for stored probes.
fn truncate_output(mut probe: Probe) -> Probe {
    let extra = probe.output.len().saturating_sub(PROBE_OUTPUT_LINES);
    probe.output.drain(..extra);
    for line in &mut probe.output {
        *line = truncate(line, PROBE_LINE_BYTES);
    }
    probe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(at: u64, failure: Option<&str>, output: &[&str]) -> Probe {
        Probe {
            at: Timestamp(at),
            failure: failure.map(str::to_owned),
            output: output.iter().map(|&line| line.to_owned()).collect(),
        }
    }

    #[test]
    fn health_reports_each_change_once_and_bounds_probes() {
        let mut health = MonitorHealth::default();
        assert!(health.record(probe(1, Some("Exited with status 7"), &["refused", " "])));
        assert_eq!(health.failure_summary().as_deref(), Some("Exited with status 7: refused"));
        for at in 2..20 {
            assert!(!health.record(probe(at, Some("Exited with status 7"), &[])));
        }
        assert_eq!((health.failures, health.last.len(), health.was_healthy), (19, PROBES_KEPT, false));
        assert!(health.record(probe(20, None, &["ok"])));
        assert_eq!((health.failures, health.failure_summary(), health.was_healthy), (0, None, true));
        assert!(!health.record(probe(21, None, &[])));
        assert!(health.record(probe(22, Some("x"), &["l"; 3 * PROBE_OUTPUT_LINES])));
        assert_eq!(health.last.last().unwrap().output.len(), PROBE_OUTPUT_LINES);
    }
}
