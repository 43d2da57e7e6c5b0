//! Signals that were ignored when the rep started, as by `nohup` and by scripts for their background jobs.
//! Child processes inherit ignored signals, so the programs of a container could not be interrupted.

use std::fs;
use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Highest signal number below the real-time signals.
const USUAL: i32 = 31;

/// Ensures that programs start with no signal ignored. Handlers are registered for the ignored signals, and
/// handled signals are reset when a program is executed. Must be called within a tokio runtime.
pub(super) fn heed_all() -> io::Result<()> {
    for number in ignored(&fs::read_to_string("/proc/self/status")?) {
        drop(signal(SignalKind::from_raw(number))?);
    }
    Ok(())
}

/// Returns the ignored signals in the text of `/proc/self/status`, except SIGPIPE: Rust ignores it and
/// restores it in child processes.
fn ignored(status: &str) -> Vec<i32> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    let pipe = SignalKind::pipe().as_raw_value();
    (1..=USUAL).filter(|number| *number != pipe && mask >> (number - 1) & 1 == 1).collect()
}

#[cfg(test)]
mod tests {
    use super::ignored;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        assert_eq!(ignored("SigBlk:\t0000000000000002\nSigIgn:\t0000000000001007\n"), [1, 2, 3]);
        assert_eq!(ignored("SigIgn:\t0000000000000000\n"), [0; 0]);
    }
}
