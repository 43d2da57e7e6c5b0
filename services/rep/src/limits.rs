//! Every limit and wait of the rep, with its unit. What travels is bounded in [`schemas::limits`].

use std::time::Duration;

/// How often containers and records are compared, unless the settings say otherwise.
pub const POLL: Duration = Duration::from_secs(30);
/// How often they are compared while the cell evacuates, unless the settings say otherwise.
pub const EVACUATION_POLL: Duration = Duration::from_secs(10);
/// How often the rep says that it is alive, unless the settings say otherwise.
pub const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long an evacuation may take, unless the settings say otherwise.
pub const EVACUATION: Duration = Duration::from_secs(600);
/// How often the self-test runs, unless the settings say otherwise.
pub const SELF_TEST: Duration = Duration::from_secs(10 * 60);

/// Shortest time between two heartbeats: changes that come faster are told together.
pub const COALESCE: Duration = Duration::from_millis(200);
/// How soon a failed self-test is tried again.
pub const SELF_TEST_RETRY: Duration = Duration::from_secs(30);
/// How soon a failed self-test is tried again after a container could not be created.
pub const SELF_TEST_QUICK: Duration = Duration::from_secs(1);
/// How long an auctioneer's answer waits for containers that are being prepared. Shorter than the auctioneer waits.
pub const PREPARATION_ANSWER: Duration = Duration::from_secs(1);
/// Self-tests that must fail in a row before the cell calls itself unhealthy.
pub const SELF_TEST_FAILURES: u32 = 3;
/// How long a reservation may wait to be claimed.
pub const RESERVATION: Duration = Duration::from_secs(60);
/// How long after a deletion the executor is asked whether the container is gone.
pub const CONFIRM: Duration = Duration::from_secs(1);
/// First and longest wait before something unanswered is asked again; it doubles in between.
pub const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(16));
/// How long an evacuation whose time is over may take to put the records straight.
pub const CLOSING: Duration = Duration::from_secs(30);
/// Time after an election within which all cells report what they postponed.
pub const ELECTED_SPREAD: Duration = Duration::from_secs(1);
/// Messages with reports that wait for an answer at once; further reports wait for a place.
pub const REPORTS_IN_FLIGHT: usize = 8;
/// Questions for records that wait for an answer at once; further ones wait for a place.
pub const READS_IN_FLIGHT: usize = 4;
/// Largest message of reports, as JSON, in bytes: half of what the bus takes.
pub const REPORTS_BYTES: usize = schemas::limits::MESSAGE_BYTES / 2;
/// Records that name a container which isn't there: so many one poll puts straight, the others the next one.
pub const ORPHANS: usize = 1_000;

/// The wait before the attempt after `failures` failed ones.
#[must_use]
pub fn backoff(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(8);
    (RETRY.0 * 2_u32.pow(doublings)).min(RETRY.1)
}
