//! Subjects on which the log is ahead of the clocks: the time of their last entry is in the future.
//!
//! Times on a subject never go back. The time on such a subject must not stand still either while the clocks
//! catch up. The time on the subject therefore continues from the time of the last entry, at nine tenths of
//! the speed of the clocks, until the clocks have caught up. As a result, a timer of one minute takes about
//! one minute, even if the subject is an hour ahead.

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::Timestamp;
use schemas::subject::Subject;

use crate::clocks::TOLERANCE;

/// Size of the smallest clock jump. A clock jumps if the time that it shows and the elapsed time differ by at
/// least this much.
const JUMP: Duration = Duration::from_secs(1);
/// Divisor of the elapsed time: a subject's lead shrinks by the quotient.
const SHRINK_DIVISOR: u32 = 10;

/// Leads of subjects over the clocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timelines {
    ahead: BTreeMap<Subject, Duration>,
    /// Time of decisions and steady time at the last call of [`Timelines::advance`].
    last: Option<(Timestamp, Timestamp)>,
}

impl Timelines {
    /// Updates the leads with the time of decisions and the steady time. Returns the amount by which the time
    /// of decisions was set back; `None` if this time was not set back.
    pub(crate) fn advance(&mut self, shown: Timestamp, now: Timestamp) -> Option<Duration> {
        let (shown_was, was) = self.last.replace((shown, now))?;
        let passed = now.since(was);
        let expected = shown_was + passed;
        if !self.ahead.is_empty() {
            let forward = Some(shown.since(expected)).filter(|by| *by >= JUMP).unwrap_or_default();
            self.shrink(passed / SHRINK_DIVISOR + forward);
        }
        Some(expected.since(shown)).filter(|by| *by >= JUMP)
    }

    fn shrink(&mut self, by: Duration) {
        self.ahead.retain(|_, ahead| {
            *ahead = ahead.saturating_sub(by);
            !ahead.is_zero()
        });
    }

    /// Computes the leads when this BBS becomes the leader. `ends` are the times of the subjects' last
    /// entries.
    pub(crate) fn start_leading<'a>(
        &mut self,
        ends: impl Iterator<Item = (&'a Subject, Timestamp)>,
        shown: Timestamp,
    ) {
        let ahead = ends.map(|(subject, at)| (subject, at.since(shown))).filter(|(_, by)| *by > TOLERANCE);
        self.ahead = ahead.map(|(subject, by)| (subject.clone(), by)).collect();
    }

    /// Increases the leads after the time of decisions was set back, so that subjects with later entries
    /// continue from their current time.
    pub(crate) fn set_back<'a>(
        &mut self,
        by: Duration,
        ends: impl Iterator<Item = (&'a Subject, Timestamp)>,
        shown: Timestamp,
    ) {
        for (subject, _) in ends.filter(|(_, at)| at.since(shown) > TOLERANCE) {
            *self.ahead.entry(subject.clone()).or_default() += by;
        }
    }

    /// Returns `true` if no subject is ahead.
    pub(crate) fn is_empty(&self) -> bool {
        self.ahead.is_empty()
    }

    /// Returns the lead of a subject over the clocks.
    pub(crate) fn ahead(&self, subject: &Subject) -> Duration {
        self.ahead.get(subject).copied().unwrap_or_default()
    }

    /// Returns the greatest lead of all subjects.
    pub(crate) fn max_lead(&self) -> Duration {
        self.ahead.values().copied().max().unwrap_or_default()
    }
}

/// Time of decisions on each subject.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times<'a> {
    shown: Timestamp,
    timelines: &'a Timelines,
}

impl<'a> Times<'a> {
    pub(crate) const fn new(shown: Timestamp, timelines: &'a Timelines) -> Self {
        Self { shown, timelines }
    }

    /// Returns the time of the clocks.
    pub(crate) const fn clock_time(self) -> Timestamp {
        self.shown
    }

    /// Returns the lead of a subject over the clocks.
    pub(crate) fn ahead(self, subject: impl FnOnce() -> Subject) -> Duration {
        if self.timelines.is_empty() { Duration::ZERO } else { self.timelines.ahead(&subject()) }
    }

    /// Returns the time on a subject.
    pub(crate) fn time_on(self, subject: impl FnOnce() -> Subject) -> Timestamp {
        self.shown + self.ahead(subject)
    }

    /// Returns the latest time on any subject.
    pub(crate) fn latest(self) -> Timestamp {
        self.shown + self.timelines.max_lead()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_seconds(1_000_000 + seconds)
    }

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn subject_time_continues_from_last_entry_until_clock_catches_up() {
        let subjects = [Subject::Lrp(1), Subject::Lrp(2), Subject::Cluster];
        let ends = [at(3_605), at(4), at(8)];
        let ends = || subjects.iter().zip(ends);
        let mut timelines = Timelines::default();
        assert_eq!(timelines.advance(at(3_600), at(0)), None);
        assert_eq!(timelines.advance(at(3_610), at(10)), None);
        // The clock is set back to the correct time.
        let back = timelines.advance(at(20), at(20)).unwrap();
        assert_eq!(back, seconds(3_600));
        timelines.set_back(back, ends(), at(20));
        let leads = |timelines: &Timelines| subjects.clone().map(|subject| timelines.ahead(&subject));
        assert_eq!(leads(&timelines), [seconds(3_600), Duration::ZERO, Duration::ZERO]);
        assert_eq!(timelines.advance(at(120), at(120)), None);
        assert_eq!(
            leads(&timelines)[0],
            seconds(3_590),
            "the subject's time runs more slowly than the clock"
        );
        assert_eq!(timelines.advance(at(3_120), at(120)), None, "the clock was set forward again");
        assert_eq!(timelines.max_lead(), seconds(590));
        // Another BBS continues from the last entry.
        let mut other = Timelines::default();
        other.start_leading(ends(), at(605));
        assert_eq!(leads(&other), [seconds(3_000), Duration::ZERO, Duration::ZERO]);
        other.advance(at(605), at(605));
        other.advance(at(40_000), at(40_000));
        assert!(other.is_empty());
    }
}
