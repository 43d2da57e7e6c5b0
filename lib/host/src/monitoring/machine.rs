//! Metrics that all services with a state machine share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bus::Bus;
use metrics::catalogue as of;
use metrics::family::Sample;
use metrics::pulse::Pulse;

/// Common metrics of a service with a bus connection and a state machine.
#[derive(Debug)]
pub(super) struct MachineMetrics {
    bus: Bus,
    /// Number of operations that the NATS server refused because of a missing permission.
    permission_violations: Arc<AtomicU64>,
    pub(super) pulse: Pulse,
}

impl MachineMetrics {
    pub(super) fn new(bus: Bus, permission_violations: Arc<AtomicU64>) -> Self {
        Self { bus, permission_violations, pulse: Pulse::default() }
    }

    /// Returns the samples about the bus.
    pub(super) fn samples(&self) -> [Sample; 2] {
        [
            of::CONNECTED.value_sample(self.bus.is_connected()),
            of::VIOLATIONS.value_sample(self.permission_violations.load(Ordering::Relaxed)),
        ]
    }

    /// Describes a hanging loop. `None` if the loop does not hang.
    pub(super) fn hang_description(&self) -> Option<String> {
        self.pulse
            .hang_time()
            .map(|still| format!("its main loop has made no progress for {} s", still.as_secs()))
    }

    /// Returns the problems that keep the service from doing its work.
    pub(super) fn problems(&self) -> Vec<String> {
        let apart = (!self.bus.is_connected()).then(|| "no connection to a NATS server".to_owned());
        self.hang_description().into_iter().chain(apart).collect()
    }
}
