//! Reports of a service to its supervisor: its readiness, its status, and watchdog keep-alives.

mod supervisor;

use std::sync::Arc;
use std::time::Duration;

use metrics::page::Source;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use supervisor::Supervisor;

/// Maximum interval between inspections of the service.
const MAX_INTERVAL: Duration = Duration::from_secs(1);
/// Number of keep-alives per watchdog timeout.
const KEEP_ALIVES_PER_TIMEOUT: u32 = 4;

/// Connection to the supervisor of this program's service. The token ends the reports.
#[derive(Clone, Debug)]
pub struct Supervised {
    supervisor: Arc<Supervisor>,
    stop: CancellationToken,
}

impl Supervised {
    /// Creates the connection from the environment. `None` if the program has no supervisor.
    #[must_use]
    pub fn from_environment(stop: CancellationToken) -> Option<Self> {
        let supervisor = Arc::new(Supervisor::from_environment()?);
        supervisor.status("waiting for a NATS server");
        Some(Self { supervisor, stop })
    }

    /// Reports that the program is about to exit.
    pub fn report_stopping(&self) {
        self.supervisor.stopping();
    }

    /// Starts reports about a service. A keep-alive is sent only while the main loop of the service makes
    /// progress.
    pub(crate) fn report_on(&self, source: Arc<dyn Source>) {
        let Self { supervisor, stop } = self.clone();
        let pause = supervisor
            .watchdog()
            .map_or(MAX_INTERVAL, |within| (within / KEEP_ALIVES_PER_TIMEOUT).min(MAX_INTERVAL));
        let mut looks = interval(pause.max(Duration::from_millis(1)));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::spawn(async move {
            let mut ready = false;
            loop {
                tokio::select! {
                    () = stop.cancelled() => break,
                    _ = looks.tick() => {}
                }
                if source.hang_reason().is_none() && supervisor.watchdog().is_some() {
                    supervisor.keep_alive();
                }
                let lacks = source.unready_reasons().await;
                if lacks.is_empty() {
                    if !std::mem::replace(&mut ready, true) {
                        supervisor.ready();
                    }
                    supervisor.status(&source.status_text());
                } else {
                    supervisor.status(&lacks.join("; "));
                }
            }
            supervisor.stopping();
        });
    }
}
