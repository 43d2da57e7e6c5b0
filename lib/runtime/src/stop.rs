//! Shutdown on signals: the first signal requests a graceful stop, and the second signal exits at once.

use std::io;
use std::sync::OnceLock;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Exit status after a second signal.
pub const EXIT_FORCED: i32 = 130;

/// Hook that runs before the process exits because of a second signal.
static EXIT_HOOK: OnceLock<fn()> = OnceLock::new();

/// Registers a hook that runs before the process exits because of a second signal, for example to restore the
/// terminal. Only the first registered hook is used.
pub fn on_forced_exit(then: fn()) {
    EXIT_HOOK.get_or_init(|| then);
}

/// Reaction to SIGHUP, the signal for a closed terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hangup {
    /// No handler is installed: the operating system's disposition applies.
    Default,
    /// The program stops, unless it was started with SIGHUP ignored (`nohup`). SIGHUP never counts as the
    /// second signal, because terminals and shells may send SIGHUP several times.
    Stop,
}

/// Returns a token that is cancelled by SIGINT or SIGTERM, and by SIGHUP if `hangup` is [`Hangup::Stop`]. A
/// second SIGINT or SIGTERM exits the process at once, with [`EXIT_FORCED`].
///
/// # Errors
/// Returns an error if the operating system refuses a signal handler.
pub fn on_signal(hangup: Hangup) -> io::Result<CancellationToken> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut gone = match hangup {
        Hangup::Stop if !hangup_is_ignored() => Some(signal(SignalKind::hangup())?),
        Hangup::Stop | Hangup::Default => None,
    };
    let stop = CancellationToken::new();
    let asked = stop.clone();
    tokio::spawn(async move {
        let name = tokio::select! {
            name = next_signal(&mut interrupt, &mut terminate) => name,
            () = recv_or_pending(&mut gone) => "SIGHUP",
        };
        tracing::info!("{name}: stopping; a second signal exits immediately");
        asked.cancel();
        let name = next_signal(&mut interrupt, &mut terminate).await;
        if let Some(then) = EXIT_HOOK.get() {
            then();
        }
        tracing::warn!("{name} again: exiting immediately");
        std::process::exit(EXIT_FORCED);
    });
    Ok(stop)
}

/// Waits for the signal, or forever if it has no handler.
async fn recv_or_pending(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Returns `true` if this process was started with SIGHUP ignored.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// Waits for either signal and returns its name.
async fn next_signal(interrupt: &mut Signal, terminate: &mut Signal) -> &'static str {
    tokio::select! {
        _ = interrupt.recv() => "SIGINT",
        _ = terminate.recv() => "SIGTERM",
    }
}
