//! Limits and intervals of the rep, with their units. Limits of messages are in [`schemas::limits`].

use std::time::Duration;

/// Default interval between polls, which compare all containers with their records.
pub const DEFAULT_POLL_INTERVAL: Duration = Duration::from_secs(30);
/// Default interval between polls while the cell evacuates.
pub const DEFAULT_EVACUATION_POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Default interval between heartbeats.
pub const DEFAULT_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);
/// Default timeout of an evacuation.
pub const DEFAULT_EVACUATION_TIMEOUT: Duration = Duration::from_secs(600);
/// Default interval between self-tests.
pub const DEFAULT_SELF_TEST_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// Minimum time between two heartbeats. Changes within this time are reported together.
pub const MIN_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(200);
/// Delay between a failed self-test and the next one.
pub const SELF_TEST_RETRY_DELAY: Duration = Duration::from_secs(30);
/// Delay between a failed self-test and the next one, if the creation of a container failed before.
pub const SELF_TEST_QUICK_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Maximum time that the answer to an auctioneer waits for containers that are being prepared. This time is
/// shorter than the auctioneer's timeout.
pub const PREPARATION_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of consecutive failed self-tests after which the cell reports itself unhealthy.
pub const MAX_SELF_TEST_FAILURES: u32 = 3;
/// Maximum time for which a reservation waits until its work is claimed.
pub const RESERVATION_TIMEOUT: Duration = Duration::from_secs(60);
/// Delay between an order to delete a container and the list of containers that shows whether the container
/// is gone.
pub const DELETION_CHECK_DELAY: Duration = Duration::from_secs(1);
/// Minimum and maximum delay before an unanswered request is repeated. The delay doubles with each failure.
pub const RETRY_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(16));
/// Maximum time for updating the records after an evacuation has ended or timed out.
pub const CLOSING_TIMEOUT: Duration = Duration::from_secs(30);
/// Period after an election over which the cells spread their postponed reports.
pub const ELECTED_SPREAD: Duration = Duration::from_secs(1);
/// Maximum number of unanswered messages with reports. Further reports wait.
pub const MAX_REPORTS_IN_FLIGHT: usize = 8;
/// Maximum number of unanswered requests for records. Further requests wait.
pub const MAX_READS_IN_FLIGHT: usize = 4;
/// Maximum size of a message with reports as JSON, in bytes: half of the message limit of the bus.
pub const MAX_REPORTS_BYTES: usize = schemas::limits::MESSAGE_BYTES / 2;
/// Maximum number of records of missing containers that one poll corrects. Later polls correct the rest.
pub const MAX_ORPHANS: usize = 1_000;

/// Returns the delay before the next attempt after this number of failures.
#[must_use]
pub fn backoff(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(8);
    (RETRY_DELAYS.0 * 2_u32.pow(doublings)).min(RETRY_DELAYS.1)
}
/// Maximum time for which the rep accepts a term that no answer of the BBS has named. Usually, an answer
/// names a new leader within this time.
pub const UNCONFIRMED_TERM_TIMEOUT: Duration = Duration::from_secs(15);
