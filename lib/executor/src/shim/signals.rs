//! Signals that whoever started the rep had ignored, as `nohup` does and scripts do for what they start in the background. What
//! is ignored stays so in every program below, and nobody could interrupt those of a container.

use std::fs;
use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Signals that are no real-time signals.
const USUAL: i32 = 31;

/// Has every program that is started from now on begin with no signal ignored: one that is handled here is none of theirs. Must
/// run where a tokio runtime is current.
pub(super) fn heed_all() -> io::Result<()> {
    for number in ignored(&fs::read_to_string("/proc/self/status")?) {
        drop(signal(SignalKind::from_raw(number))?);
    }
    Ok(())
}

/// The signals that are ignored, as `/proc/self/status` has them. That Rust ignores broken pipes it takes back itself.
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
    fn what_is_ignored_is_read_from_the_mask() {
        assert_eq!(ignored("SigBlk:\t0000000000000002\nSigIgn:\t0000000000001007\n"), [1, 2, 3]);
        assert_eq!(ignored("SigIgn:\t0000000000000000\n"), [0; 0]);
    }
}
