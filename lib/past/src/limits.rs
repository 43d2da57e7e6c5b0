//! Limits of the snapshot index and of reads of the past.

use std::time::Duration;

/// Minimum number of entries between two snapshots. This number of entries can be folded within a second.
pub const MIN_SPACING: u64 = 16_384;
/// Divisor of the spacing (the number of entries between two snapshots). If at least `spacing / TAIL_DIVISOR`
/// entries follow the last snapshot, a snapshot is built at the end of the log.
pub const TAIL_DIVISOR: u64 = 64;
/// Positions per stretch of the aggregate index. An offset within a stretch has two bytes.
pub const STRETCH_POSITIONS: u64 = 16_384;
/// Maximum number of snapshots. If a longer log would need more snapshots, the spacing doubles, so that every
/// second snapshot is deleted.
pub const MAX_SNAPSHOTS: u64 = 128;
/// Maximum total size of the snapshots, in bytes. If the snapshots would need more, the spacing doubles, too.
pub const MAX_SNAPSHOT_BYTES: u64 = 4 * 1024 * 1024 * 1024;
/// Number of entries that are read and folded at once.
pub const BATCH_ENTRIES: usize = 2_000;
/// Maximum number of cached states. The most recently requested states are kept.
pub const CACHED_STATES: usize = 4;
/// Time after which a cached state that is not requested again is evicted.
pub const CACHE_TTL: Duration = Duration::from_secs(60);
/// Maximum time for which a replica may lack entries of the journal.
pub const REPLICA_LAG_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between repeated reads from a replica that lacks entries.
pub const REPLICA_RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Age at which an unfinished file is deleted.
pub const UNFINISHED_MAX_AGE: Duration = Duration::from_secs(3_600);
/// Maximum position of the entry that founds the cluster. The search for this entry ends at this position.
pub const MAX_FOUNDING_POSITION: u64 = 100_000;
