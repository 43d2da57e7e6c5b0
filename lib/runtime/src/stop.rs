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

/// A token that is cancelled by SIGINT or SIGTERM. A second such signal ends the process at once, with
/// [`EXIT_ENDED`].
///
/// # Errors
/// The operating system lets nobody listen for signals.
pub fn on_signal() -> io::Result<CancellationToken> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let stop = CancellationToken::new();
    let asked = stop.clone();
    tokio::spawn(async move {
        let name = either(&mut interrupt, &mut terminate).await;
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

/// Waits for one of both signals, and names it.
async fn either(interrupt: &mut Signal, terminate: &mut Signal) -> &'static str {
    tokio::select! {
        _ = interrupt.recv() => "SIGINT",
        _ = terminate.recv() => "SIGTERM",
    }
}
