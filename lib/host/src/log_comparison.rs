//! Compares the log that a rep knows with the log that BBSs serve. The two logs can differ after a restore of
//! an older log. If the rep knows a later term than the restored log, the rep accepts no leader. If the rep
//! knows a later position, no BBS can serve this position.

use std::time::Duration;

use bus::Bus;
use schemas::Position;
use schemas::cluster::Terms;
use schemas::names::{CellId, ClusterId};
use schemas::query::{ClusterRow, ShowAnswer};

use crate::home;

/// Number of successive replies that must be behind the log that a rep knows. One such reply is not
/// sufficient, because a single BBS may lag for a moment.
const REQUIRED_REPLIES: u32 = 4;
/// Pause between two replies.
const PAUSE: Duration = Duration::from_secs(4);

/// Known properties of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KnownLog {
    pub(super) cluster_id: Option<ClusterId>,
    pub(super) terms: Terms,
    pub(super) position: Position,
}

/// Result of comparing the log of the cluster with the log that a rep knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogComparison {
    /// No difference was found.
    Same,
    /// The log ends before the position that the rep knows: the BBS lags, or the log has another history.
    Shorter(KnownLog),
    /// The log certainly has another history. Either it belongs to another cluster, or its terms are lower
    /// although the log is not shorter.
    Other(KnownLog),
}

impl KnownLog {
    fn shown(shown: &ShowAnswer<ClusterRow>) -> Self {
        let term =
            |leader: &Option<schemas::cluster::Leader>| leader.as_ref().map_or(0, |leader| leader.term);
        let ShowAnswer { row, position, .. } = shown;
        let terms = Terms { bbs: term(&row.bbs), auctioneer: term(&row.auctioneer) };
        Self { cluster_id: Some(row.cluster_id), terms, position: *position }
    }

    /// Compares the log that a rep knows with the log that a BBS serves.
    pub(super) fn compare(&self, there: Self) -> LogComparison {
        let other_cluster = self.cluster_id.zip(there.cluster_id).is_some_and(|(own, there)| own != there);
        if other_cluster {
            return LogComparison::Other(there);
        }
        match (there.position < self.position, self.has_later_term(&there)) {
            (true, _) => LogComparison::Shorter(there),
            (false, true) => LogComparison::Other(there),
            (false, false) => LogComparison::Same,
        }
    }

    /// Returns `true` if the rep refuses the leaders of the other log.
    pub(super) const fn has_later_term(&self, there: &Self) -> bool {
        self.terms.bbs > there.terms.bbs || self.terms.auctioneer > there.terms.auctioneer
    }

    /// Describes why the rep of a cell cannot continue with another log, and the remedy.
    pub(super) fn conflict(&self, cell: &CellId, there: &Self) -> String {
        match (self.cluster_id, there.cluster_id) {
            (Some(own), Some(there)) if own != there => format!(
                "cell {cell} belongs to cluster {own}, and the log belongs to cluster {there}: \
                 restore the log of its cluster, or start the rep with another data folder"
            ),
            (Some(_) | None, Some(_) | None) => {
                let text = |log: &Self| {
                    let Terms { bbs, auctioneer } = log.terms;
                    format!(
                        "term {bbs} of the BBS and {auctioneer} of the auctioneer at position {}",
                        log.position
                    )
                };
                format!(
                    "cell {cell} accepts no leader: its rep knows {}, but the log has {}: \
                     an older log was restored. To accept it: muster cell accept-log {cell}",
                    text(self),
                    text(there)
                )
            }
        }
    }
}

/// Compares the logs until the result is certain. A reply that is not behind the rep's log settles the result
/// at once. Otherwise [`REQUIRED_REPLIES`] successive replies must be behind the rep's log.
pub(super) async fn compare(bus: &Bus, cell: &CellId, known: KnownLog) -> LogComparison {
    let mut last = LogComparison::Same;
    for number in 0..REQUIRED_REPLIES {
        if number > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        let Some(shown) = home::query_cluster(bus, cell).await else { return LogComparison::Same };
        last = known.compare(KnownLog::shown(&shown));
        if !matches!(last, LogComparison::Shorter(_)) {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn log(cluster: u128, bbs: u64, position: u64) -> KnownLog {
        let cluster_id = Some(ClusterId(Uuid::from_u128(cluster)));
        KnownLog { cluster_id, terms: Terms { bbs, auctioneer: 1 }, position: Position(position) }
    }

    #[test]
    fn log_is_other_only_if_lag_cannot_explain_difference() {
        let known = log(1, 5, 252);
        for (there, expected) in [
            (log(1, 5, 252), LogComparison::Same),
            (log(1, 6, 300), LogComparison::Same),
            (log(1, 5, 250), LogComparison::Shorter(log(1, 5, 250))),
            (log(1, 2, 250), LogComparison::Shorter(log(1, 2, 250))),
            (log(1, 2, 252), LogComparison::Other(log(1, 2, 252))),
            (log(2, 9, 900), LogComparison::Other(log(2, 9, 900))),
        ] {
            assert_eq!(known.compare(there), expected);
        }
        let cell = CellId::new("c1").unwrap();
        assert!(known.conflict(&cell, &log(1, 2, 300)).contains("muster cell accept-log c1"));
        assert!(known.conflict(&cell, &log(2, 2, 300)).contains("belongs to cluster"));
    }
}
