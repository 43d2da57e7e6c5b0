//! How a program ends: the first signal asks it to, the second doesn't ask.

use std::io;
use std::sync::OnceLock;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The status of a program that was ended by a second signal.
pub const EXIT_ENDED: i32 = 130;

/// What is done before a second signal ends the process.
static BEFORE: OnceLock<fn()> = OnceLock::new();

/// Has something done before a second signal ends the process, as giving the terminal back. Only the first request counts.
pub fn before_ending(then: fn()) {
    BEFORE.get_or_init(|| then);
}

/// What it means that the terminal is gone (SIGHUP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hangup {
    /// Nothing to this program: the operating system does with it what it does.
    Left,
    /// That it is to end, unless whoever started it has it ignored (`nohup`). It never counts as a second signal:
    /// terminals and shells send several.
    Ends,
}

/// A token that is cancelled by SIGINT or SIGTERM, and by SIGHUP if that is meant. A second SIGINT or SIGTERM ends the
/// process at once, with [`EXIT_ENDED`].
///
/// # Errors
/// The operating system lets nobody listen for signals.
pub fn on_signal(hangup: Hangup) -> io::Result<CancellationToken> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let mut gone = match hangup {
        Hangup::Ends if !hangup_is_ignored() => Some(signal(SignalKind::hangup())?),
        Hangup::Ends | Hangup::Left => None,
    };
    let stop = CancellationToken::new();
    let asked = stop.clone();
    tokio::spawn(async move {
        let name = tokio::select! {
            name = either(&mut interrupt, &mut terminate) => name,
            () = come(&mut gone) => "SIGHUP",
        };
        tracing::info!("{name}: stopping; a second one ends at once");
        asked.cancel();
        let name = either(&mut interrupt, &mut terminate).await;
        if let Some(then) = BEFORE.get() {
            then();
        }
        tracing::warn!("{name} again: ending at once");
        std::process::exit(EXIT_ENDED);
    });
    Ok(stop)
}

/// Waits for a signal that is listened to, or for ever.
async fn come(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Whether this process was started so that SIGHUP does nothing to it.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// Waits for one of both signals, and names it.
async fn either(interrupt: &mut Signal, terminate: &mut Signal) -> &'static str {
    tokio::select! {
        _ = interrupt.recv() => "SIGINT",
        _ = terminate.recv() => "SIGTERM",
    }
}
