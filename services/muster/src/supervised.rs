//! A service that is supervised tells when it is ready, how it is, and that it lives.

mod supervisor;

use std::sync::Arc;
use std::time::Duration;

use metrics::page::Source;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use supervisor::Supervisor;

/// How often it is looked how the service is, at least.
const LOOK: Duration = Duration::from_secs(1);
/// How many signs of life there are in the time within which one is wanted.
const SIGNS: u32 = 4;

/// Who supervises the service of this program, and when that ends.
#[derive(Clone, Debug)]
pub(crate) struct Supervised {
    supervisor: Arc<Supervisor>,
    stop: CancellationToken,
}

impl Supervised {
    /// As the environment says it. None: nobody supervises it.
    pub(crate) fn of_environment(stop: CancellationToken) -> Option<Self> {
        let supervisor = Arc::new(Supervisor::of_environment()?);
        supervisor.status("waits for a NATS server");
        Some(Self { supervisor, stop })
    }

    /// The program is about to end.
    pub(crate) fn ends(&self) {
        self.supervisor.stopping();
    }

    /// Tells from now on how a service is. A sign of life is given only while its own loop turns.
    pub(crate) fn of(&self, source: Arc<dyn Source>) {
        let Self { supervisor, stop } = self.clone();
        let pause = supervisor.watchdog().map_or(LOOK, |within| (within / SIGNS).min(LOOK));
        let mut looks = interval(pause.max(Duration::from_millis(1)));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::spawn(async move {
            let mut ready = false;
            loop {
                tokio::select! {
                    () = stop.cancelled() => break,
                    _ = looks.tick() => {}
                }
                if source.hangs().is_none() && supervisor.watchdog().is_some() {
                    supervisor.alive();
                }
                let lacks = source.lacks().await;
                if lacks.is_empty() {
                    if !std::mem::replace(&mut ready, true) {
                        supervisor.ready();
                    }
                    supervisor.status(&source.standing());
                } else {
                    supervisor.status(&lacks.join("; "));
                }
            }
            supervisor.stopping();
        });
    }
}
