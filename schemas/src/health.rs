//! What a container's monitor found out: asked of its cell when somebody wants to know, and never in the log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::limits::{PROBE_LINE_BYTES, PROBE_OUTPUT_LINES, PROBES_KEPT, cut};
use crate::names::{CellId, InstanceGuid};

/// One probe of a monitor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Probe {
    /// When it ended.
    pub at: Timestamp,
    /// Why it failed; none: it succeeded.
    pub failure: Option<String>,
    /// The last lines that it wrote.
    pub output: Vec<String>,
}

/// What the probes of a monitor so far came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MonitorHealth {
    /// Whether a probe ever succeeded: from then on the container is RUNNING.
    pub was_healthy: bool,
    /// Probes so far.
    pub probes: u64,
    /// Failures since the last success.
    pub failures: u64,
    /// The last probes, the newest last.
    pub last: Vec<Probe>,
}

/// How a container is, as its cell knows it. `muster.query.<root>.instance.health`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerHealth {
    /// The container.
    pub instance_guid: InstanceGuid,
    /// Its cell.
    pub cell_id: CellId,
    /// What its monitor found out; none: it has no monitor, or that was not probed yet.
    pub health: Option<MonitorHealth>,
}

impl Probe {
    /// Why it failed and what it wrote last, in one line; none: it succeeded.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        let failure = self.failure.as_ref()?;
        let said = self.output.iter().rfind(|line| !line.trim().is_empty());
        Some(said.map_or_else(|| failure.clone(), |said| format!("{failure}: {}", said.trim())))
    }
}

impl MonitorHealth {
    /// Takes note of a probe; true if it came out otherwise than the one before.
    pub fn note(&mut self, probe: Probe) -> bool {
        let (failed, first) = (probe.failure.is_some(), self.probes == 0);
        let changed = first || failed != (self.failures > 0);
        self.probes += 1;
        self.failures = if failed { self.failures + 1 } else { 0 };
        self.was_healthy |= !failed;
        self.last.push(bounded(probe));
        let extra = self.last.len().saturating_sub(PROBES_KEPT);
        self.last.drain(..extra);
        changed
    }

    /// Why the last probe failed and what it wrote, in one line; none: it succeeded, or there was none.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        self.last.last().and_then(Probe::complaint)
    }
}

/// A probe with no more output than is kept.
fn bounded(mut probe: Probe) -> Probe {
    let extra = probe.output.len().saturating_sub(PROBE_OUTPUT_LINES);
    probe.output.drain(..extra);
    for line in &mut probe.output {
        *line = cut(line, PROBE_LINE_BYTES);
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
    fn changes_are_told_once_and_what_is_kept_is_bounded() {
        let mut health = MonitorHealth::default();
        assert!(health.note(probe(1, Some("Exited with status 7"), &["refused", " "])));
        assert_eq!(health.complaint().as_deref(), Some("Exited with status 7: refused"));
        for at in 2..20 {
            assert!(!health.note(probe(at, Some("Exited with status 7"), &[])));
        }
        assert_eq!((health.failures, health.last.len(), health.was_healthy), (19, PROBES_KEPT, false));
        assert!(health.note(probe(20, None, &["ok"])));
        assert_eq!((health.failures, health.complaint(), health.was_healthy), (0, None, true));
        assert!(!health.note(probe(21, None, &[])));
        assert!(health.note(probe(22, Some("x"), &["l"; 3 * PROBE_OUTPUT_LINES])));
        assert_eq!(health.last.last().unwrap().output.len(), PROBE_OUTPUT_LINES);
    }
}
