//! State of the appends of this BBS: whether the log takes entries, and how long it takes.
//!
//! | state | begins | ends |
//! |---|---|---|
//! | failing | with the first append that is rejected, or whose outcome is unknown | with the next confirmed append |
//! | absent | when the stream was missing at [`ABSENT_CHECKS`] checks in a row, or could not be read for [`UNANSWERED`] | with the next check that succeeds |
//! | slow | when an append is under way for [`LONG`], or half of the last [`RECENT`] appends took [`SLOW`] | with faster appends |
//!
//! While appends fail, new commands are refused at once and the BBS repeats what is in flight; if nothing is, it appends an
//! entry of its own from time to time, so that it notices that the log takes entries again. A failure is *reported*, in the status
//! and on `/readyz`, at once if the server gave a reason that does not pass on its own. If nobody answers it is reported after
//! [`UNANSWERED`], because the stream may be electing another leader.

use std::collections::VecDeque;
use std::time::Duration;

use schemas::Timestamp;
use schemas::limits::{APPEND_REASON_BYTES, cut};
use schemas::query::{AppendTrouble, LogRow};

/// How long appends may go unanswered before that is reported as a failure. Electing another leader of the stream takes 5 to 16 s.
pub(crate) const UNANSWERED: Duration = Duration::from_secs(20);
/// How long after the first failure those who wait for an entry in flight are told that its outcome is unknown.
const ANSWER: Duration = Duration::from_secs(6);
/// How often an entry is appended to find out whether the log takes entries again.
const PROBE: Duration = Duration::from_secs(2);
/// Number of checks in a row that must miss the stream before it is absent.
pub(crate) const ABSENT_CHECKS: u32 = 2;
/// How long an append may be under way before appends are slow.
const LONG: Duration = Duration::from_secs(4);
/// An append that takes this long is slow.
const SLOW: Duration = Duration::from_secs(1);
/// Number of appends by which slowness is judged.
const RECENT: usize = 16;
/// How long an append counts.
const RECENT_AGE: Duration = Duration::from_secs(60);

/// Why an append is not known to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Certainty {
    /// Nobody answered. That may pass on its own.
    Unanswered,
    /// The server gave the reason.
    Stated,
    /// The server gave the reason, and said that it stored nothing.
    NotStored,
}

/// Appends of this BBS.
#[derive(Clone, Debug, Default)]
pub(crate) struct Appends {
    failing: Option<Failing>,
    /// Failed checks of the stream.
    unread: Option<Unread>,
    /// When the last appends were confirmed, and how long each took; the newest last.
    recent: VecDeque<(Timestamp, Duration)>,
    probed: Timestamp,
    log: Option<LogRow>,
}

#[derive(Clone, Debug)]
struct Failing {
    /// When it began: to measure by, and as the clock showed it.
    since: Timestamp,
    shown: Timestamp,
    reason: String,
    certainty: Certainty,
    reported: bool,
    answered: bool,
}

#[derive(Clone, Debug)]
struct Unread {
    since: Timestamp,
    shown: Timestamp,
    reason: String,
    /// Number of checks in a row that missed the stream.
    absent: u32,
}

impl Unread {
    fn is_reported(&self, now: Timestamp) -> bool {
        self.absent >= ABSENT_CHECKS || now.since(self.since) >= UNANSWERED
    }
}

impl Appends {
    /// Records that an append failed. Returns `true` if the log took entries until then.
    pub(crate) fn failed(
        &mut self,
        reason: &str,
        certainty: Certainty,
        now: Timestamp,
        shown: Timestamp,
    ) -> bool {
        let reason = cut(reason, APPEND_REASON_BYTES);
        if let Some(failing) = &mut self.failing {
            // An answer that says more is not replaced by silence.
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

    /// Records a confirmed append that took this long. Returns how long appends had failed before, if they did.
    pub(crate) fn stored(&mut self, took: Duration, now: Timestamp) -> Option<Duration> {
        self.recent.push_back((now, took));
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
        self.unread = None;
        self.failing.take().map(|failing| now.since(failing.since))
    }

    /// Another BBS leads: what this one could not append does not count.
    pub(crate) fn follow_another(&mut self) {
        self.failing = None;
        self.unread = None;
    }

    /// Records a successful check of the stream; `None` if the log is not a stream.
    pub(crate) fn read(&mut self, log: Option<LogRow>) {
        self.log = log;
        self.unread = None;
    }

    /// Records a check of the stream that failed.
    pub(crate) fn unread(&mut self, reason: &str, absent: bool, now: Timestamp, shown: Timestamp) {
        let reason = cut(reason, APPEND_REASON_BYTES);
        let before = self.unread.take();
        let count = before.as_ref().map_or(0, |unread| unread.absent);
        let absent = if absent { count + 1 } else { 0 };
        let (since, shown) = before.map_or((now, shown), |unread| (unread.since, unread.shown));
        self.unread = Some(Unread { since, shown, reason, absent });
    }

    /// Why commands are refused at present; `None` if they are not.
    pub(crate) fn refusal(&self) -> Option<String> {
        // A stream that cannot be read may still take entries: only one that is known to be absent is not tried.
        let absent = self.unread.as_ref().filter(|unread| unread.absent >= ABSENT_CHECKS);
        let absent = absent.map(|unread| (unread.shown, &unread.reason));
        let failing = self.failing.as_ref().map(|failing| (failing.shown, &failing.reason));
        let (since, reason) = failing.or(absent)?;
        Some(format!("the log takes no entries since {since}: {reason}"))
    }

    /// Returns `true` if the server rejects every append, so that appending anything else is pointless.
    pub(crate) fn are_rejected(&self) -> bool {
        self.failing.as_ref().is_some_and(|failing| failing.certainty == Certainty::NotStored)
    }

    /// Returns `true` if appends fail.
    pub(crate) const fn fail(&self) -> bool {
        self.failing.is_some()
    }

    /// Returns `true`, once, when those who wait for entries in flight have waited long enough.
    pub(crate) fn gives_up_waiting(&mut self, now: Timestamp) -> bool {
        let Some(failing) = &mut self.failing else { return false };
        let due = now.since(failing.since) >= ANSWER;
        due && !std::mem::replace(&mut failing.answered, true)
    }

    /// Returns `true` if an entry should be appended now to find out whether the log takes entries.
    pub(crate) fn probes(&mut self, now: Timestamp) -> bool {
        let due = self.failing.is_some() && now.since(self.probed) >= PROBE;
        if due {
            self.probed = now;
        }
        due
    }

    /// Returns the line for the program's log when a failure becomes one that is reported.
    pub(crate) fn report(&mut self, now: Timestamp) -> Option<String> {
        let failing = self.failing.as_mut()?;
        let stated = failing.certainty != Certainty::Unanswered;
        let due = stated || now.since(failing.since) >= UNANSWERED;
        if failing.reported || !due {
            return None;
        }
        failing.reported = true;
        Some(format!(
            "the log takes no entries: {}. Commands are refused until it does; nothing that runs is stopped",
            failing.reason
        ))
    }

    /// The trouble that the status shows, if there is any. `oldest` is how long the oldest entry in flight has been under way.
    pub(crate) fn trouble(&self, oldest: Option<Duration>, now: Timestamp) -> Option<AppendTrouble> {
        let trouble = |since, fails, reason: String| AppendTrouble { since, fails, reason };
        if let Some(failing) = self.failing.as_ref().filter(|failing| failing.reported) {
            return Some(trouble(failing.shown, true, failing.reason.clone()));
        }
        if let Some(unread) = self.unread.as_ref().filter(|unread| unread.is_reported(now)) {
            return Some(trouble(unread.shown, true, unread.reason.clone()));
        }
        if let Some(failing) = self.failing.as_ref().filter(|failing| now.since(failing.since) >= LONG) {
            return Some(trouble(failing.shown, false, failing.reason.clone()));
        }
        if let Some(oldest) = oldest.filter(|oldest| *oldest >= LONG) {
            let reason = format!("an append has been under way for {} s", oldest.as_secs());
            return Some(trouble(now - oldest, false, reason));
        }
        let recent = self.recent.iter().filter(|(at, _)| now.since(*at) < RECENT_AGE);
        let slow: Vec<_> = recent.filter(|(_, took)| *took >= SLOW).collect();
        let (first, _) = slow.first().filter(|_| slow.len() * 2 >= RECENT)?;
        let reason =
            format!("{} of the last {RECENT} appends took {} s or longer", slow.len(), SLOW.as_secs());
        Some(trouble(*first, false, reason))
    }

    /// The stream as it was read last.
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

    /// Whether a failure that began at 0 is reported, and what the status shows at a time.
    fn shown(appends: &mut Appends, millis: u64) -> (bool, Option<bool>) {
        let reported = appends.report(at(millis)).is_some();
        (reported, appends.trouble(None, at(millis)).map(|trouble| trouble.fails))
    }

    #[test]
    fn unanswered_append_is_slow_first_and_reported_after_an_election_could_have_ended() {
        let mut appends = Appends::default();
        assert!(appends.failed("nobody answers", Certainty::Unanswered, at(0), at(0)));
        assert!(!appends.failed("nobody answers", Certainty::Unanswered, at(2_000), at(2_000)));
        assert_eq!(shown(&mut appends, 3_999), (false, None));
        assert_eq!(shown(&mut appends, 16_000), (false, Some(false)), "slow");
        assert!(appends.refusal().is_some(), "commands are refused with the reason before that");
        assert_eq!(shown(&mut appends, 20_000), (true, Some(true)));
        assert_eq!(shown(&mut appends, 21_000), (false, Some(true)), "it is logged once");
        assert_eq!(appends.stored(Duration::ZERO, at(22_000)), Some(Duration::from_secs(22)));
        assert_eq!(shown(&mut appends, 22_000), (false, None));
        assert_eq!(appends.refusal(), None);
    }

    #[test]
    fn stated_reason_is_reported_at_once_and_is_not_replaced_by_silence() {
        let mut appends = Appends::default();
        appends.failed("nobody answers", Certainty::Unanswered, at(0), at(0));
        appends.failed("disk full", Certainty::Stated, at(2_000), at(2_000));
        appends.failed("nobody answers", Certainty::Unanswered, at(4_000), at(4_000));
        assert_eq!(shown(&mut appends, 4_000), (true, Some(true)));
        let refusal = appends.refusal().unwrap();
        assert!(
            refusal.starts_with("the log takes no entries since 1970-") && refusal.ends_with("disk full")
        );
        assert!(!appends.are_rejected());
        appends.failed("insufficient resources", Certainty::NotStored, at(5_000), at(5_000));
        assert!(appends.are_rejected());
    }

    #[test]
    fn missing_stream_is_reported_after_two_checks_and_an_unread_one_after_an_election() {
        let mut appends = Appends::default();
        appends.unread("no stream", true, at(0), at(0));
        assert_eq!(appends.trouble(None, at(0)), None);
        appends.unread("no stream", true, at(5_000), at(5_000));
        assert!(appends.trouble(None, at(5_000)).is_some_and(|trouble| trouble.fails));
        appends.read(None);
        assert_eq!(appends.trouble(None, at(6_000)), None);
        appends.unread("no answer", false, at(10_000), at(10_000));
        assert_eq!(appends.trouble(None, at(29_999)), None);
        assert!(appends.trouble(None, at(30_000)).is_some_and(|trouble| trouble.since == at(10_000)));
    }

    #[test]
    fn one_slow_append_is_no_trouble_and_half_of_them_are() {
        let mut appends = Appends::default();
        for second in 0..7 {
            appends.stored(SLOW, at(second * 1_000));
        }
        assert_eq!(appends.trouble(None, at(8_000)), None);
        appends.stored(SLOW, at(8_000));
        assert!(appends.trouble(None, at(8_000)).is_some_and(|trouble| !trouble.fails));
        assert_eq!(appends.trouble(None, at(68_000)), None, "they are too long ago");
        assert!(appends.trouble(Some(LONG), at(68_000)).is_some(), "one is under way");
    }

    #[test]
    fn probes_are_spaced_and_waiting_clients_are_answered_once() {
        let mut appends = Appends::default();
        assert!(!appends.probes(at(0)) && !appends.gives_up_waiting(at(0)));
        appends.failed("full", Certainty::NotStored, at(0), at(0));
        assert!(!appends.probes(at(1_999)));
        assert!(appends.probes(at(2_000)) && !appends.probes(at(2_001)));
        assert!(!appends.gives_up_waiting(at(5_999)));
        assert!(appends.gives_up_waiting(at(6_000)) && !appends.gives_up_waiting(at(7_000)));
    }
}
