//! Every limit of the past, with its unit.

use std::time::Duration;

/// Entries between two rungs, at the least. A state is found within a second if so many are folded for it.
pub const SPACING: u64 = 16_384;
/// One part in so many of what lies between two rungs is worth a rung at the end of the log.
pub const TAIL_PART: u64 = 64;
/// Positions of a stretch of the index. No more than two bytes count.
pub const STRETCH: u64 = 16_384;
/// Most rungs. Of a log that would have more every second one goes, so that the spacing doubles.
pub const RUNGS: u64 = 128;
/// Most bytes that rungs may take together: where they would take more, the spacing doubles, too.
pub const LADDER_BYTES: u64 = 4 * 1024 * 1024 * 1024;
/// Entries that are read and folded at once.
pub const BATCH: usize = 2_000;
/// Worlds that are kept after somebody asked for them, the last ones.
pub const KEPT: usize = 4;
/// How long each of them is kept, at most, when nobody asks for it again.
pub const KEPT_FOR: Duration = Duration::from_secs(60);
/// How long a replica may lack entries that the journal has.
pub const LAG: Duration = Duration::from_secs(5);
/// How often such a replica is asked again.
pub const AGAIN: Duration = Duration::from_millis(20);
/// After how long a file that was never finished is removed.
pub const UNFINISHED: Duration = Duration::from_secs(3_600);
/// Entries within which the one is looked for that founded the cluster: before it nothing counts.
pub const FOUNDING: u64 = 100_000;
