//! Limits and intervals of the rep, with their units. Limits of messages are in [`schemas::limits`].

use std::time::Duration;

/// Default interval between comparisons of containers and records.
pub const POLL: Duration = Duration::from_secs(30);
/// Default interval between comparisons while the cell evacuates.
pub const EVACUATION_POLL: Duration = Duration::from_secs(10);
/// Default interval between heartbeats.
pub const HEARTBEAT: Duration = Duration::from_secs(5);
/// Default timeout of an evacuation.
pub const EVACUATION: Duration = Duration::from_secs(600);
/// Default interval between self-tests.
pub const SELF_TEST: Duration = Duration::from_secs(10 * 60);

/// Minimum time between two heartbeats. Changes within this time are reported together.
pub const COALESCE: Duration = Duration::from_millis(200);
/// Delay before a failed self-test is repeated.
pub const SELF_TEST_RETRY: Duration = Duration::from_secs(30);
/// Delay before a failed self-test is repeated after a container could not be created.
pub const SELF_TEST_QUICK: Duration = Duration::from_secs(1);
/// Maximum time for which the answer to an auctioneer waits for containers in preparation. It is shorter than
/// the auctioneer's timeout.
pub const PREPARATION_ANSWER: Duration = Duration::from_secs(1);
/// Number of consecutive failed self-tests after which the cell reports itself unhealthy.
pub const SELF_TEST_FAILURES: u32 = 3;
/// Maximum time that a reservation waits to be claimed.
pub const RESERVATION: Duration = Duration::from_secs(60);
/// Delay after a deletion before the executor is asked whether the container is gone.
pub const CONFIRM: Duration = Duration::from_secs(1);
/// Minimum and maximum delay before an unanswered request is repeated. The delay doubles with each failure.
pub const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(16));
/// Maximum time to update the records after an evacuation has ended or timed out.
pub const CLOSING: Duration = Duration::from_secs(30);
/// Time after an election within which all cells repeat postponed reports.
pub const ELECTED_SPREAD: Duration = Duration::from_secs(1);
/// Maximum number of unanswered messages with reports. Further reports wait.
pub const REPORTS_IN_FLIGHT: usize = 8;
/// Maximum number of unanswered requests for records. Further requests wait.
pub const READS_IN_FLIGHT: usize = 4;
/// Maximum size of a message of reports as JSON, in bytes: half of the message limit of the bus.
pub const REPORTS_BYTES: usize = schemas::limits::MESSAGE_BYTES / 2;
/// Maximum number of records without a container that one poll corrects. Later polls correct the rest.
pub const ORPHANS: usize = 1_000;

/// Returns the delay before the next attempt after this number of failures.
#[must_use]
pub fn backoff(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(8);
    (RETRY.0 * 2_u32.pow(doublings)).min(RETRY.1)
}
