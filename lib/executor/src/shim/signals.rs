//! Signals that were ignored when the rep started, for example because of `nohup` or because a script started
//! the rep as a background job. Child processes inherit ignored signals, so the programs of a container could
//! not be interrupted.

use std::fs;
use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Highest signal number below the real-time signals.
const MAX_STANDARD_SIGNAL: i32 = 31;

/// Ensures that the programs of a container start with no ignored signal. Registers handlers for the ignored
/// signals, because the execution of a program resets handled signals but not ignored ones. Must be called
/// within a tokio runtime.
pub(super) fn reset_ignored_signals() -> io::Result<()> {
    for number in ignored_signals(&fs::read_to_string("/proc/self/status")?) {
        drop(signal(SignalKind::from_raw(number))?);
    }
    Ok(())
}

/// Returns the ignored signals in the text of `/proc/self/status`. SIGPIPE is excluded, since Rust ignores
/// SIGPIPE and restores it in child processes.
fn ignored_signals(status: &str) -> Vec<i32> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    let pipe = SignalKind::pipe().as_raw_value();
    (1..=MAX_STANDARD_SIGNAL).filter(|number| *number != pipe && mask >> (number - 1) & 1 == 1).collect()
}

#[cfg(test)]
mod tests {
    use super::ignored_signals;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        assert_eq!(ignored_signals("SigBlk:\t0000000000000002\nSigIgn:\t0000000000001007\n"), [1, 2, 3]);
        assert_eq!(ignored_signals("SigIgn:\t0000000000000000\n"), [0; 0]);
    }
}
