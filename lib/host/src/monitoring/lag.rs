//! Lag of a service behind the journal.

use std::sync::Arc;
use std::time::Duration;

use journal::Journal;
use parking_lot::Mutex;
use schemas::Position;
use text::chain;
use tokio::time::{Instant, interval, timeout};
use tokio_util::sync::CancellationToken;

/// Lag in entries at which a service is no longer ready.
const MAX_LAG: u64 = 1_000;
/// Interval between queries of the end of the journal, and the timeout of a query.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Observed end of the journal.
#[derive(Debug, Default)]
pub(super) struct Lag {
    seen: Mutex<Observation>,
}

#[derive(Debug, Default)]
struct Observation {
    end: Position,
    /// Position to reach, and the time of its first observation.
    target: Option<(Position, Instant)>,
    /// Error of the last query of the end.
    error: Option<String>,
    /// Reason why the entries cannot be read.
    unreadable: Option<String>,
}

/// Lag of a service.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LagReport {
    pub(super) entries: u64,
    pub(super) duration: Duration,
    /// Reason why the lag is unknown.
    pub(super) error: Option<String>,
    /// Reason why the entries of the journal cannot be read.
    unreadable: Option<String>,
}

impl Lag {
    /// Queries the end of the journal at intervals until the token is cancelled.
    pub(super) fn poll_end(
        self: &Arc<Self>,
        journal: Journal,
        position: impl Fn() -> Position + Send + 'static,
        ends: CancellationToken,
    ) {
        let lag = Arc::clone(self);
        let looks = async move {
            let mut looks = interval(POLL_INTERVAL);
            loop {
                looks.tick().await;
                let end = match timeout(POLL_INTERVAL, journal.end()).await {
                    Ok(end) => end.map_err(|error| chain(&error)),
                    Err(_) => Err(format!("no answer within {POLL_INTERVAL:?}")),
                };
                lag.seen.lock().unreadable = journal.unreadable_reason();
                lag.observe(end, position(), Instant::now());
            }
        };
        tokio::spawn(async move { ends.run_until_cancelled(looks).await });
    }

    fn observe(&self, end: Result<Position, String>, position: Position, now: Instant) {
        let mut seen = self.seen.lock();
        match end {
            Ok(end) => {
                seen.error = None;
                // A lagging replica may report an earlier end.
                seen.end = seen.end.max(end);
            }
            Err(why) => seen.error = Some(why),
        }
        if seen.target.is_none_or(|(target, _)| position >= target) {
            seen.target = (position < seen.end).then_some((seen.end, now));
        }
    }

    /// Returns the lag of a service at a position.
    pub(super) fn behind(&self, position: Position) -> LagReport {
        let seen = self.seen.lock();
        let since = seen.target.filter(|(target, _)| position < *target).map(|(_, since)| since.elapsed());
        LagReport {
            entries: seen.end.0.saturating_sub(position.0),
            duration: since.unwrap_or_default(),
            error: seen.error.clone(),
            unreadable: seen.unreadable.clone(),
        }
    }
}

impl LagReport {
    /// Returns the problem that keeps the service from doing its work, if there is one.
    pub(super) fn problem(&self) -> Option<String> {
        if let Some(why) = &self.error {
            return Some(format!("can't read the end of the journal: {why}"));
        }
        if let Some(why) = &self.unreadable {
            return Some(format!("the journal cannot be read: {why}"));
        }
        (self.entries >= MAX_LAG).then(|| format!("{} entries behind the journal", self.entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lag_time_starts_when_unreached_end_was_observed() {
        let lag = Lag::default();
        let found =
            |end: u64, position: u64| lag.observe(Ok(Position(end)), Position(position), Instant::now());
        let behind = |position: u64| {
            let LagReport { entries, duration, .. } = lag.behind(Position(position));
            (entries, duration.as_secs())
        };
        found(10, 10);
        assert_eq!(behind(10), (0, 0));
        found(30, 20);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!((behind(20), behind(29), behind(30)), ((10, 5), (1, 5), (0, 0)));
        found(50, 29);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(behind(29), (21, 10), "the first observation counts");
        found(50, 30);
        assert_eq!(behind(30), (20, 0), "the first target was reached, and the time of the next one starts");
        lag.observe(Err("gone".into()), Position(30), Instant::now());
        assert!(lag.behind(Position(30)).problem().unwrap().ends_with("gone"));
        found(1_030, 30);
        assert_eq!(lag.behind(Position(30)).problem().as_deref(), Some("1000 entries behind the journal"));
    }
}
