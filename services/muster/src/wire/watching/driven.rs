//! What every service tells that is on the bus and drives a machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bus::Bus;
use metrics::catalogue as of;
use metrics::family::Sample;
use metrics::pulse::Pulse;

/// A service that is on the bus and drives a machine.
#[derive(Debug)]
pub(super) struct Driven {
    bus: Bus,
    /// How often the NATS server refused something for want of permission.
    refused: Arc<AtomicU64>,
    pub(super) pulse: Pulse,
}

impl Driven {
    pub(super) fn new(bus: Bus, refused: Arc<AtomicU64>) -> Self {
        Self { bus, refused, pulse: Pulse::default() }
    }

    /// How it is on the bus.
    pub(super) fn tell(&self) -> [Sample; 2] {
        [
            of::CONNECTED.says(self.bus.is_connected()),
            of::VIOLATIONS.says(self.refused.load(Ordering::Relaxed)),
        ]
    }

    /// Why its loop doesn't turn, if so.
    pub(super) fn hangs(&self) -> Option<String> {
        self.pulse.hangs().map(|still| format!("its loop has stood still for {} s", still.as_secs()))
    }

    /// What of that keeps it from doing its work.
    pub(super) fn lacks(&self) -> Vec<String> {
        let apart = (!self.bus.is_connected()).then(|| "no connection to a NATS server".to_owned());
        self.hangs().into_iter().chain(apart).collect()
    }
}
