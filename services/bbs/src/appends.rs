//! Health of this BBS's appends: acceptance of entries by the log, and latency.
//!
//! | state | start | end |
//! |---|---|---|
//! | failing | the first append that is rejected, or whose outcome is unknown | the next confirmed append |
//! | absent | the stream missing in [`ABSENT_CHECKS`] checks in a row, or unreadable for [`UNANSWERED_TIMEOUT`] | the next successful check |
//! | slow | an append in flight for [`LONG_APPEND`], or half of the last [`RECENT_APPENDS`] appends slower than [`SLOW_APPEND`] | faster appends |
//!
//! An append is in flight from its request until its entry is delivered. While appends fail, the BBS refuses
//! new commands at once and repeats the entries in flight. If no entry is in flight, the BBS appends a probe
//! entry at intervals. A successful probe shows that the log accepts entries again.
//!
//! The status and `/readyz` *report* failures. A failure for which the server stated a lasting reason is
//! reported at once. If no server responds, the failure is reported after [`UNANSWERED_TIMEOUT`], because the
//! stream may be electing another leader.

use std::collections::VecDeque;
use std::time::Duration;

use schemas::Timestamp;
use schemas::limits::{APPEND_REASON_BYTES, truncate};
use schemas::query::{AppendProblem, LogRow};

/// Time after which unanswered appends are reported as a failure. The election of another stream leader takes
/// 5 to 16 s.
pub(crate) const UNANSWERED_TIMEOUT: Duration = Duration::from_secs(20);
/// Time between the first failure and the replies to clients with commands in flight. The replies state that
/// the outcome is unknown.
const REPLY_TIMEOUT: Duration = Duration::from_secs(6);
/// Interval between probe entries while appends fail.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);
/// Number of consecutive checks that must report the stream as missing before it counts as absent.
pub(crate) const ABSENT_CHECKS: u32 = 2;
/// Time in flight after which an append counts as slow.
const LONG_APPEND: Duration = Duration::from_secs(4);
/// Minimum duration of a confirmed append that counts as slow.
const SLOW_APPEND: Duration = Duration::from_secs(1);
/// Number of recent appends that are considered for slowness.
const RECENT_APPENDS: usize = 16;
/// Maximum age of an append that is considered for slowness.
const RECENT_AGE: Duration = Duration::from_secs(60);

/// Certainty about an append that may not be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Certainty {
    /// No server responded. The failure may be temporary.
    Unanswered,
    /// The server stated the reason.
    Stated,
    /// The server stated the reason, and that it stored nothing.
    NotStored,
}

/// Health of this BBS's appends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Appends {
    failing: Option<Failing>,
    /// Failed checks of the stream; `None` if the last check succeeded.
    unread: Option<FailedChecks>,
    /// Times and durations of the last confirmed appends, the newest last.
    recent: VecDeque<(Timestamp, Duration)>,
    probed: Timestamp,
    log: Option<LogRow>,
}

#[derive(Clone, Debug)]
struct Failing {
    /// Time of the first failure on the steady clock. `shown` is the same time on the wall clock.
    since: Timestamp,
    shown: Timestamp,
    reason: String,
    certainty: Certainty,
    reported: bool,
    answered: bool,
}

#[derive(Clone, Debug)]
struct FailedChecks {
    since: Timestamp,
    shown: Timestamp,
    reason: String,
    /// Number of consecutive checks that reported the stream as missing.
    absent: u32,
}

impl FailedChecks {
    fn is_reported(&self, now: Timestamp) -> bool {
        self.absent >= ABSENT_CHECKS || now.since(self.since) >= UNANSWERED_TIMEOUT
    }
}

impl Appends {
    /// Records a failed append. Returns `true` if it is the first failure.
    pub(crate) fn record_failure(
        &mut self,
        reason: &str,
        certainty: Certainty,
        now: Timestamp,
        shown: Timestamp,
    ) -> bool {
        let reason = truncate(reason, APPEND_REASON_BYTES);
        if let Some(failing) = &mut self.failing {
            // Keep a stated reason, because it is more precise than a missing response.
            if certainty != Certainty::Unanswered || failing.certainty == Certainty::Unanswered {
                (failing.reason, failing.certainty) = (reason, certainty);
            }
            return false;
        }
        self.probed = now;
        let failing = Failing { since: now, shown, reason, certainty, reported: false, answered: false };
        self.failing = Some(failing);
        true
    }

    /// Records a confirmed append and its duration. Returns the time since the first failure; `None` if no
    /// append has failed.
    pub(crate) fn record_stored(&mut self, took: Duration, now: Timestamp) -> Option<Duration> {
        self.recent.push_back((now, took));
        if self.recent.len() > RECENT_APPENDS {
            self.recent.pop_front();
        }
        self.unread = None;
        self.failing.take().map(|failing| now.since(failing.since))
    }

    /// Resets the failures because another BBS leads. Appends of this BBS no longer matter.
    pub(crate) fn reset_failures(&mut self) {
        self.failing = None;
        self.unread = None;
    }

    /// Records a successful check of the stream. `log` is `None` if the log is not a stream.
    pub(crate) fn record_check(&mut self, log: Option<LogRow>) {
        self.log = log;
        self.unread = None;
    }

    /// Records a failed check of the stream.
    pub(crate) fn record_failed_check(
        &mut self,
        reason: &str,
        absent: bool,
        now: Timestamp,
        shown: Timestamp,
    ) {
        let reason = truncate(reason, APPEND_REASON_BYTES);
        let before = self.unread.take();
        let count = before.as_ref().map_or(0, |unread| unread.absent);
        let absent = if absent { count + 1 } else { 0 };
        let (since, shown) = before.map_or((now, shown), |unread| (unread.since, unread.shown));
        self.unread = Some(FailedChecks { since, shown, reason, absent });
    }

    /// Returns the reason why commands are refused at present; `None` if commands are accepted.
    pub(crate) fn refusal(&self) -> Option<String> {
        // A stream that cannot be read may still accept entries. So commands are refused only if the stream
        // is known to be absent.
        let absent = self.unread.as_ref().filter(|unread| unread.absent >= ABSENT_CHECKS);
        let absent = absent.map(|unread| (unread.shown, &unread.reason));
        let failing = self.failing.as_ref().map(|failing| (failing.shown, &failing.reason));
        let (since, reason) = failing.or(absent)?;
        Some(format!("the log has accepted no entries since {since}: {reason}"))
    }

    /// Returns `true` if the server rejects every append. In this case further appends are pointless.
    pub(crate) fn are_rejected(&self) -> bool {
        self.failing.as_ref().is_some_and(|failing| failing.certainty == Certainty::NotStored)
    }

    /// Returns `true` if appends fail.
    pub(crate) const fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    /// Returns `true` once, when clients have waited long enough for entries in flight.
    pub(crate) fn is_reply_timeout_over(&mut self, now: Timestamp) -> bool {
        let Some(failing) = &mut self.failing else { return false };
        let due = now.since(failing.since) >= REPLY_TIMEOUT;
        due && !std::mem::replace(&mut failing.answered, true)
    }

    /// Returns `true` if a probe entry should be appended now.
    pub(crate) fn is_probe_due(&mut self, now: Timestamp) -> bool {
        let due = self.failing.is_some() && now.since(self.probed) >= PROBE_INTERVAL;
        if due {
            self.probed = now;
        }
        due
    }

    /// Returns the log line for a failure that has just become reportable.
    pub(crate) fn report(&mut self, now: Timestamp) -> Option<String> {
        let failing = self.failing.as_mut()?;
        let stated = failing.certainty != Certainty::Unanswered;
        let due = stated || now.since(failing.since) >= UNANSWERED_TIMEOUT;
        if failing.reported || !due {
            return None;
        }
        failing.reported = true;
        Some(format!(
            "the log accepts no entries: {}; commands are refused until it does, and running instances \
             continue",
            failing.reason
        ))
    }

    /// Returns the trouble that the status shows; `None` if appends are healthy. `oldest` is the age of the
    /// oldest entry in flight.
    pub(crate) fn trouble(&self, oldest: Option<Duration>, now: Timestamp) -> Option<AppendProblem> {
        let trouble = |since, fails, reason: String| AppendProblem { since, failing: fails, reason };
        if let Some(failing) = self.failing.as_ref().filter(|failing| failing.reported) {
            return Some(trouble(failing.shown, true, failing.reason.clone()));
        }
        if let Some(unread) = self.unread.as_ref().filter(|unread| unread.is_reported(now)) {
            return Some(trouble(unread.shown, true, unread.reason.clone()));
        }
        if let Some(failing) = self.failing.as_ref().filter(|failing| now.since(failing.since) >= LONG_APPEND)
        {
            return Some(trouble(failing.shown, false, failing.reason.clone()));
        }
        if let Some(oldest) = oldest.filter(|oldest| *oldest >= LONG_APPEND) {
            let reason = format!("an append has been in flight for {} s", oldest.as_secs());
            return Some(trouble(now - oldest, false, reason));
        }
        let recent = self.recent.iter().filter(|(at, _)| now.since(*at) < RECENT_AGE);
        let slow: Vec<_> = recent.filter(|(_, took)| *took >= SLOW_APPEND).collect();
        let (first, _) = slow.first().filter(|_| slow.len() * 2 >= RECENT_APPENDS)?;
        let reason = format!(
            "{} of the last {RECENT_APPENDS} appends took {} s or longer",
            slow.len(),
            SLOW_APPEND.as_secs()
        );
        Some(trouble(*first, false, reason))
    }

    /// Returns the result of the last successful check of the stream.
    pub(crate) const fn log(&self) -> Option<&LogRow> {
        self.log.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + millis)
    }

    /// Returns whether a failure that started at time 0 is reported now, and what the status shows.
    fn shown(appends: &mut Appends, millis: u64) -> (bool, Option<bool>) {
        let reported = appends.report(at(millis)).is_some();
        (reported, appends.trouble(None, at(millis)).map(|trouble| trouble.failing))
    }

    #[test]
    fn unanswered_append_is_slow_before_it_is_reported() {
        let mut appends = Appends::default();
        assert!(appends.record_failure("no server responds", Certainty::Unanswered, at(0), at(0)));
        assert!(!appends.record_failure("no server responds", Certainty::Unanswered, at(2_000), at(2_000)));
        assert_eq!(shown(&mut appends, 3_999), (false, None));
        assert_eq!(shown(&mut appends, 16_000), (false, Some(false)), "slow");
        assert!(appends.refusal().is_some(), "commands are refused with the reason before that");
        assert_eq!(shown(&mut appends, 20_000), (true, Some(true)));
        assert_eq!(shown(&mut appends, 21_000), (false, Some(true)), "it is logged once");
        assert_eq!(appends.record_stored(Duration::ZERO, at(22_000)), Some(Duration::from_secs(22)));
        assert_eq!(shown(&mut appends, 22_000), (false, None));
        assert_eq!(appends.refusal(), None);
    }

    #[test]
    fn stated_reason_is_reported_at_once_and_kept() {
        let mut appends = Appends::default();
        appends.record_failure("no server responds", Certainty::Unanswered, at(0), at(0));
        appends.record_failure("disk full", Certainty::Stated, at(2_000), at(2_000));
        appends.record_failure("no server responds", Certainty::Unanswered, at(4_000), at(4_000));
        assert_eq!(shown(&mut appends, 4_000), (true, Some(true)));
        let refusal = appends.refusal().unwrap();
        assert!(
            refusal.starts_with("the log has accepted no entries since 1970-")
                && refusal.ends_with("disk full")
        );
        assert!(!appends.are_rejected());
        appends.record_failure("insufficient resources", Certainty::NotStored, at(5_000), at(5_000));
        assert!(appends.are_rejected());
    }

    #[test]
    fn missing_stream_is_reported_after_two_checks() {
        let mut appends = Appends::default();
        appends.record_failed_check("no stream", true, at(0), at(0));
        assert_eq!(appends.trouble(None, at(0)), None);
        appends.record_failed_check("no stream", true, at(5_000), at(5_000));
        assert!(appends.trouble(None, at(5_000)).is_some_and(|trouble| trouble.failing));
        appends.record_check(None);
        assert_eq!(appends.trouble(None, at(6_000)), None);
        appends.record_failed_check("no answer", false, at(10_000), at(10_000));
        assert_eq!(appends.trouble(None, at(29_999)), None);
        assert!(appends.trouble(None, at(30_000)).is_some_and(|trouble| trouble.since == at(10_000)));
    }

    #[test]
    fn appends_are_slow_when_half_of_them_are() {
        let mut appends = Appends::default();
        for second in 0..7 {
            appends.record_stored(SLOW_APPEND, at(second * 1_000));
        }
        assert_eq!(appends.trouble(None, at(8_000)), None);
        appends.record_stored(SLOW_APPEND, at(8_000));
        assert!(appends.trouble(None, at(8_000)).is_some_and(|trouble| !trouble.failing));
        assert_eq!(appends.trouble(None, at(68_000)), None, "the slow appends are too old");
        assert!(appends.trouble(Some(LONG_APPEND), at(68_000)).is_some(), "one append is in flight");
    }

    #[test]
    fn probes_are_spaced_and_waiting_clients_are_answered_once() {
        let mut appends = Appends::default();
        assert!(!appends.is_probe_due(at(0)) && !appends.is_reply_timeout_over(at(0)));
        appends.record_failure("full", Certainty::NotStored, at(0), at(0));
        assert!(!appends.is_probe_due(at(1_999)));
        assert!(appends.is_probe_due(at(2_000)) && !appends.is_probe_due(at(2_001)));
        assert!(!appends.is_reply_timeout_over(at(5_999)));
        assert!(appends.is_reply_timeout_over(at(6_000)) && !appends.is_reply_timeout_over(at(7_000)));
    }
}
