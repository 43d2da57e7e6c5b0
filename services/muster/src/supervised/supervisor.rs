//! Who started this program and wants to know how it is: systemd, or what speaks as it does (`sd_notify(3)`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sd_notify::NotifyState;

/// The variable that names the socket on which it listens.
const SOCKET: &str = "NOTIFY_SOCKET";

/// Who supervises this program. Telling it something never fails the program: what can't be told is logged once.
#[derive(Debug)]
pub(super) struct Supervisor {
    watchdog: Option<Duration>,
    status: Mutex<String>,
    stopping: AtomicBool,
    deaf: AtomicBool,
}

impl Supervisor {
    /// As the environment says it. None: nobody wants to know.
    pub(super) fn of_environment() -> Option<Self> {
        std::env::var_os(SOCKET).filter(|path| !path.is_empty())?;
        Some(Self {
            watchdog: sd_notify::watchdog_enabled(),
            status: Mutex::default(),
            stopping: AtomicBool::new(false),
            deaf: AtomicBool::new(false),
        })
    }

    /// Within which time it wants a sign of life, or ends the program; none: it wants none.
    pub(super) const fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// The program does its work.
    pub(super) fn ready(&self) {
        self.tell(&[NotifyState::Ready]);
    }

    /// The program lives.
    pub(super) fn alive(&self) {
        self.tell(&[NotifyState::Watchdog]);
    }

    /// How the program is, in a line; told only if it says something else than before.
    pub(super) fn status(&self, text: &str) {
        let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let mut told = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        if *told != line {
            self.tell(&[NotifyState::Status(&line)]);
            *told = line;
        }
    }

    /// The program is about to end; told once.
    pub(super) fn stopping(&self) {
        if !self.stopping.swap(true, Ordering::Relaxed) {
            self.tell(&[NotifyState::Stopping]);
        }
    }

    fn tell(&self, what: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(what)
            && !self.deaf.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(%error, "whoever supervises this program can't be told how it is");
        }
    }
}
