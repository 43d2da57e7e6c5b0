//! Compares the clock of this BBS with the clocks of the NATS server, other BBSs, auctioneers and reps.
//!
//! The server sends its time with its responses. The other processes send their time with their heartbeats.
//! The median of all clocks, including the clock of this BBS, counts as the correct time. The time of new
//! decisions stays within [`TOLERANCE`] of the median, even if the clock of this BBS is wrong. A leader whose
//! clock is off steps down in favour of a BBS whose clock agrees with the median.

use std::collections::BTreeMap;
use std::time::Duration;

use schemas::Timestamp;
use schemas::cluster::Role;
use schemas::limits::CLOCKS_SHOWN;
use schemas::names::{CellId, ServiceId};
use schemas::query::{ClockSkew, ClocksRow};

/// Maximum difference between a correct clock and the median.
pub(crate) const TOLERANCE: Duration = Duration::from_secs(5);
/// [`TOLERANCE`] in nanoseconds.
const TOLERANCE_NANOS: i64 = 5_000_000_000;
/// Size of the smallest clock jump. A clock jumps if the change of its time and the elapsed time differ by at
/// least this much.
pub const CLOCK_STEP: Duration = Duration::from_millis(500);
/// Number of latest readings kept per clock. The reading with the smallest delay is used.
const READINGS: usize = 3;
/// Age at which the readings of a clock expire. It is slightly longer than three heartbeat intervals of a
/// rep.
const READINGS_EXPIRE_AFTER: Duration = Duration::from_secs(16);
/// Maximum age of the last sign of life of a live BBS. At this age, three signs of life are missing.
const ALIVE_TIMEOUT: Duration = Duration::from_secs(6);
/// Minimum interval between two computations of the median.
const INTERVAL: Duration = Duration::from_millis(500);

/// Owner of a clock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    Server,
    /// A service other than this BBS.
    Service(Role, ServiceId),
    /// The rep of a cell.
    Cell(CellId),
}

impl Source {
    fn name(&self) -> String {
        match self {
            Self::Server => "the NATS server".to_owned(),
            Self::Service(Role::Bbs, id) => format!("BBS {id}"),
            Self::Service(Role::Auctioneer, id) => format!("auctioneer {id}"),
            Self::Cell(id) => format!("cell {id}"),
        }
    }
}

/// Latest readings of one clock.
#[derive(Clone, Debug)]
struct Readings {
    /// Nanoseconds by which the clock was ahead of the clock of this BBS. A delayed message makes a reading
    /// smaller, never greater.
    ahead: [i64; READINGS],
    next: usize,
    last: Timestamp,
    /// `true` if the owner of the clock may lead instead of this BBS.
    may_lead: bool,
}

impl Readings {
    /// Returns the nanoseconds by which the clock is ahead of the clock of this BBS.
    fn ahead(&self) -> i64 {
        self.ahead.iter().copied().max().unwrap_or(0)
    }
}

/// Clocks of other processes. Parameters named `now` are times on this BBS's steady clock, which never goes
/// back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clocks {
    readings: BTreeMap<Source, Readings>,
    /// Nanoseconds by which the median of all clocks is ahead of the clock of this BBS.
    median: i64,
    /// Clocks that differ from the median by more than [`TOLERANCE`].
    off: Vec<ClockSkew>,
    computed_at: Option<Timestamp>,
}

impl Clocks {
    /// Records a reading: the other clock showed `theirs` when the clock of this BBS showed `own`. Ignores a
    /// reading with `theirs` = 0.
    pub(crate) fn record(
        &mut self,
        source: Source,
        (theirs, own): (Timestamp, Timestamp),
        may_lead: bool,
        now: Timestamp,
    ) {
        if theirs == Timestamp(0) {
            return;
        }
        let ahead = theirs.nanos_after(own);
        let new = Readings { ahead: [ahead; READINGS], next: 0, last: now, may_lead };
        let known = self.readings.entry(source).or_insert(new);
        known.ahead[known.next % READINGS] = ahead;
        known.next = (known.next + 1) % READINGS;
        (known.last, known.may_lead) = (now, may_lead);
    }

    /// Adjusts the readings after the clock of this BBS was set. `by` is the change in nanoseconds: positive
    /// if the clock was set forward, negative if it was set back.
    pub(crate) fn adjust(&mut self, by: i64) {
        for readings in self.readings.values_mut() {
            readings.ahead = readings.ahead.map(|ahead| ahead.saturating_sub(by));
        }
        self.computed_at = None;
    }

    /// Recomputes the median if it is older than [`INTERVAL`]. Returns `true` if the median was recomputed.
    pub(crate) fn update(&mut self, now: Timestamp) -> bool {
        if self.computed_at.is_some_and(|at| now.since(at) < INTERVAL) {
            return false;
        }
        self.computed_at = Some(now);
        self.readings.retain(|_, readings| now.since(readings.last) < READINGS_EXPIRE_AFTER);
        self.median = median(self.readings.values().map(Readings::ahead).collect());
        let off = self.readings.iter().filter(|(_, readings)| self.is_off(readings.ahead()));
        let off = off.map(|(source, readings)| self.clock_off(source.name(), readings.ahead()));
        self.off = off.take(CLOCKS_SHOWN).collect();
        true
    }

    fn clock_off(&self, clock: String, ahead: i64) -> ClockSkew {
        ClockSkew { clock, ahead_ms: ahead.saturating_sub(self.median) / 1_000_000 }
    }

    /// Returns the time of decisions at the moment when the clock of this BBS shows `shown`. The result is
    /// `shown` if it is within [`TOLERANCE`] of the median. Otherwise the result is the nearest time within
    /// the tolerance.
    pub(crate) fn corrected(&self, shown: Timestamp) -> Timestamp {
        shown.shifted(self.median - self.median.clamp(-TOLERANCE_NANOS, TOLERANCE_NANOS))
    }

    /// Returns `true` if the clock of this BBS is off, and a live BBS has a correct clock.
    pub(crate) fn should_yield(&self, now: Timestamp) -> bool {
        let agrees = |(source, readings): (&Source, &Readings)| {
            matches!(source, Source::Service(Role::Bbs, _))
                && readings.may_lead
                && now.since(readings.last) < ALIVE_TIMEOUT
                && !self.is_off(readings.ahead())
        };
        self.is_off(0) && self.readings.iter().any(agrees)
    }

    /// Returns `true` if a clock that is `ahead` nanoseconds ahead of the clock of this BBS is off.
    const fn is_off(&self, ahead: i64) -> bool {
        ahead.saturating_sub(self.median).unsigned_abs() > TOLERANCE_NANOS.unsigned_abs()
    }

    /// Returns the milliseconds by which the clock of this BBS is ahead of the median.
    pub(crate) const fn ahead_ms(&self) -> i64 {
        -self.median / 1_000_000
    }

    /// Returns the state of all clocks for queries.
    pub(crate) fn row(&self, me: &ServiceId, log_ahead: Duration) -> ClocksRow {
        let own = self.is_off(0).then(|| self.clock_off(format!("BBS {me}"), 0));
        ClocksRow {
            compared: u32::try_from(self.readings.len()).unwrap_or(u32::MAX).saturating_add(1),
            ahead_ms: self.ahead_ms(),
            skewed: own.into_iter().chain(self.off.iter().cloned()).take(CLOCKS_SHOWN).collect(),
            log_ahead_ms: u64::try_from(log_ahead.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// Returns the median of the given clocks and the clock of this BBS. The clock of this BBS has the value 0.
///
/// If there are two middle values, the result is the value nearer to 0. So a single other clock has no
/// effect. Two BBSs never both conclude that the other BBS is correct.
fn median(mut ahead: Vec<i64>) -> i64 {
    ahead.push(0);
    ahead.sort_unstable();
    let (low, high) = (ahead[(ahead.len() - 1) / 2], ahead[ahead.len() / 2]);
    if low.unsigned_abs() <= high.unsigned_abs() { low } else { high }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_seconds(1_000_000 + seconds)
    }

    fn bbs(name: &str) -> Source {
        Source::Service(Role::Bbs, ServiceId::new(name).unwrap())
    }

    fn cell(number: u64) -> Source {
        Source::Cell(CellId::new(&format!("c{number}")).unwrap())
    }

    /// Returns clocks of the server, a standby and cells. Each argument is the number of seconds by which the
    /// clock is ahead of the clock of this BBS.
    fn clocks(server: i64, standby: i64, cells: &[i64]) -> Clocks {
        let mut clocks = Clocks::default();
        let own = at(0);
        let mut read = |source, ahead: i64| {
            clocks.record(source, (own.shifted(ahead * 1_000_000_000), own), true, at(0));
        };
        read(Source::Server, server);
        read(bbs("b2"), standby);
        (1..).zip(cells).for_each(|(number, ahead)| read(cell(number), *ahead));
        clocks.update(at(0));
        clocks
    }

    #[test]
    fn decisions_follow_median_and_leader_with_wrong_clock_yields() {
        // Columns: clocks of server, standby and cells; expected time of decisions, in seconds ahead of the
        // clock of this BBS; `true` if this BBS yields.
        let table: [(i64, i64, &[i64], i64, bool); 10] = [
            (0, 0, &[0, 0], 0, false),
            (2, -3, &[4, -4], 0, false),
            // This BBS is an hour ahead, or an hour behind.
            (-HOUR, -HOUR, &[-HOUR], -HOUR + 5, true),
            (HOUR, HOUR, &[HOUR], HOUR - 5, true),
            // The standby's clock is off as well, so no BBS is better.
            (-HOUR, 0, &[-HOUR, -HOUR, -HOUR], -HOUR + 5, false),
            // Fewer than half of the other clocks are off.
            (HOUR, 0, &[0], 0, false),
            (0, HOUR, &[0, 0], 0, false),
            (0, 0, &[-HOUR, -HOUR], 0, false),
            // At least half of all clocks agree with this BBS. Its own clock counts as one of them.
            (HOUR, HOUR, &[0], 0, false),
            (-HOUR, 0, &[], 0, false),
        ];
        for (server, standby, cells, expected, yields) in table {
            let clocks = clocks(server, standby, cells);
            let ahead = clocks.corrected(at(0)).nanos_after(at(0)) / 1_000_000_000;
            assert_eq!(
                (ahead, clocks.should_yield(at(1))),
                (expected, yields),
                "{server} {standby} {cells:?}"
            );
        }
    }

    #[test]
    fn two_bbss_never_yield_to_each_other() {
        let values = [0, 1, HOUR, -HOUR];
        let all = values.iter().flat_map(|a| values.iter().map(move |b| (*a, *b)));
        for (server, standby) in all {
            for cells in [vec![], vec![0], vec![HOUR], vec![0, HOUR], vec![HOUR, HOUR], vec![0, -HOUR, HOUR]]
            {
                let of_this = clocks(server, standby, &cells);
                let cells: Vec<i64> = cells.iter().map(|ahead| ahead - standby).collect();
                let of_standby = clocks(server - standby, -standby, &cells);
                let both = of_this.should_yield(at(1)) && of_standby.should_yield(at(1));
                assert!(!both, "{server} {standby} {cells:?}");
            }
        }
    }

    #[test]
    fn own_clock_jump_counts_before_new_readings() {
        let mut clocks = clocks(0, 0, &[0]);
        clocks.adjust(HOUR * 1_000_000_000);
        clocks.update(at(0));
        let jumped = at(3_600);
        assert_eq!(clocks.corrected(jumped), at(5));
        assert!(clocks.should_yield(at(0)));
        assert_eq!(clocks.ahead_ms(), HOUR * 1_000);
        let row = clocks.row(&ServiceId::new("b1").unwrap(), Duration::ZERO);
        assert_eq!(row.skewed, [ClockSkew { clock: "BBS b1".into(), ahead_ms: 3_600_000 }]);
        clocks.adjust(-HOUR * 1_000_000_000);
        clocks.update(at(0));
        assert_eq!((clocks.corrected(at(0)), clocks.should_yield(at(0))), (at(0), false));
    }

    #[test]
    fn late_readings_and_silent_clocks_do_not_count() {
        let mut clocks = clocks(0, 0, &[0]);
        // The readings were delayed by 20 s.
        for source in [Source::Server, bbs("b2"), cell(1)] {
            clocks.record(source, (at(1), at(21)), true, at(1));
        }
        clocks.update(at(2));
        assert_eq!(clocks.ahead_ms(), 0);
        clocks.record(Source::Server, (at(3_602), at(2)), false, at(2));
        clocks.update(at(18));
        assert_eq!(clocks.readings.len(), 0);
        assert_eq!(clocks.corrected(at(18)), at(18));
    }
}
