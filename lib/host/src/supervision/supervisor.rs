//! Protocol of the supervisor that started this program: systemd, or a compatible one (`sd_notify(3)`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sd_notify::NotifyState;

/// Environment variable with the path of the supervisor's socket.
const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";

/// Supervisor of this program. A failed notification does not fail the program; only the first failure is
/// logged.
#[derive(Debug)]
pub(super) struct Supervisor {
    watchdog: Option<Duration>,
    status: Mutex<String>,
    stopping: AtomicBool,
    failed: AtomicBool,
}

impl Supervisor {
    /// Creates the supervisor from the environment. `None` if the program has no supervisor.
    pub(super) fn from_environment() -> Option<Self> {
        std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty())?;
        Some(Self {
            watchdog: sd_notify::watchdog_enabled(),
            status: Mutex::default(),
            stopping: AtomicBool::new(false),
            failed: AtomicBool::new(false),
        })
    }

    /// Returns the watchdog timeout, after which the supervisor ends a program without keep-alives. `None` if
    /// the watchdog is disabled.
    pub(super) const fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Reports that the program is ready.
    pub(super) fn ready(&self) {
        self.notify(&[NotifyState::Ready]);
    }

    /// Sends a watchdog keep-alive.
    pub(super) fn keep_alive(&self) {
        self.notify(&[NotifyState::Watchdog]);
    }

    /// Reports a status line, if it differs from the previous one.
    pub(super) fn status(&self, text: &str) {
        let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let mut told = self.status.lock();
        if *told != line {
            self.notify(&[NotifyState::Status(&line)]);
            *told = line;
        }
    }

    /// Reports that the program is about to exit. Repeated calls have no effect.
    pub(super) fn stopping(&self) {
        if !self.stopping.swap(true, Ordering::Relaxed) {
            self.notify(&[NotifyState::Stopping]);
        }
    }

    fn notify(&self, what: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(what)
            && !self.failed.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(%error, "can't notify the supervisor of this program");
        }
    }
}
