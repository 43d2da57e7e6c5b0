//! The cluster's own subject, which contains the positions that operators quarantined. A program reads this
//! subject completely before the rest of the journal.
//!
//! A quarantine is recorded after the quarantined position. A program that reads the journal from its
//! beginning must know the record before it reaches the position. The cluster's subject is small: it only
//! contains elections, format levels and quarantine records. Because every program reads the subject first,
//! all programs have the same projected state (World), regardless of when they started to read.

use std::collections::BTreeMap;

use machines::cluster::Cluster;
use schemas::cluster::{self, Leader, Role};
use schemas::entry::{Aggregate, Event};
use schemas::limits::{QUARANTINED_POSITIONS, REASON_BYTES, truncate};
use schemas::names::{ClusterId, DecisionId, EntryId, IdGenerator};
use schemas::stamp::Actor;
use schemas::stored::DecodeError;
use schemas::{Code, Decision, Entry, Position, Refusal, Timestamp};

use crate::reader::{cluster_events, is_founding};

/// Positions that operators quarantined, with their reasons.
pub type QuarantinedPositions = BTreeMap<Position, String>;

/// State of the cluster's subject up to the last message that was read.
#[derive(Clone, Debug, Default)]
pub struct ClusterLog {
    /// State of the cluster. `None` before the cluster is founded.
    cluster: Option<Cluster>,
    /// Position of the last message, valid or not.
    last: Position,
    /// Version and time of the last decision.
    version: u64,
    last_time: Timestamp,
    positions: QuarantinedPositions,
    /// Position at which each quarantine is recorded.
    recorded: BTreeMap<Position, Position>,
}

/// Order of an operator to quarantine a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantineOrder {
    /// Position to quarantine.
    pub position: Position,
    pub actor: Actor,
    /// Reason in the operator's words.
    pub reason: String,
}

/// Result of an order to quarantine a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuarantineOutcome {
    /// The quarantine is already recorded. The values are the position of the record, and the version of the
    /// cluster's last decision.
    Recorded(Position, u64),
    /// The entry to append to the cluster's subject, and the expected position of the last message there.
    Append(Position, Entry),
}

impl ClusterLog {
    /// Reads the next message of the cluster's subject. Skips messages that are not valid entries, and
    /// entries of a newer program.
    pub fn read(&mut self, position: Position, bytes: &[u8]) {
        self.last = self.last.max(position);
        if self.positions.contains_key(&position) {
            return;
        }
        let Ok(entry) = Entry::decode(bytes) else { return };
        let own = entry.decisions.iter().all(|decision| decision.aggregate == Aggregate::Cluster);
        let Some((first, last)) = entry.decisions.first().zip(entry.decisions.last()).filter(|_| own) else {
            return;
        };
        let founded = self.cluster.is_some();
        if !(founded || is_founding(&entry)) || (founded && first.at <= self.last_time) {
            return;
        }
        (self.version, self.last_time) = (last.version, last.at);
        for event in cluster_events(&entry) {
            self.cluster = machines::cluster::evolve(self.cluster.take(), event, self.last_time);
            if let cluster::Event::EntryQuarantined { position: aside, reason } = event
                && self.positions.len() < QUARANTINED_POSITIONS
            {
                self.positions.entry(*aside).or_insert_with(|| truncate(reason, REASON_BYTES));
                self.recorded.entry(*aside).or_insert(position);
            }
        }
    }

    /// Returns the cluster's id, or `None` before the cluster is founded.
    #[must_use]
    pub fn cluster_id(&self) -> Option<ClusterId> {
        Some(self.cluster.as_ref()?.id)
    }

    /// Returns the last elected leader of a role.
    #[must_use]
    pub fn leader(&self, role: Role) -> Option<&Leader> {
        self.cluster.as_ref()?.leader(role)
    }

    /// Returns the position of the last message on the subject.
    #[must_use]
    pub const fn last(&self) -> Position {
        self.last
    }

    /// Returns the positions that operators quarantined.
    #[must_use]
    pub const fn quarantined(&self) -> &QuarantinedPositions {
        &self.positions
    }

    /// Decides on an order to quarantine a position. The order is refused if this program can read the
    /// position, or if every program skips the position anyway. `stands` is the content of the position, or
    /// `None` if the position has no message.
    ///
    /// # Errors
    /// Returns the reason that the position cannot be quarantined, for the operator.
    pub fn judge(
        &self,
        ids: &mut IdGenerator,
        now: Timestamp,
        order: QuarantineOrder,
        stands: Option<Result<Entry, DecodeError>>,
    ) -> Result<QuarantineOutcome, Refusal> {
        let QuarantineOrder { position, actor, reason } = order;
        if reason.trim().is_empty() || reason.len() > REASON_BYTES {
            let why = format!("invalid reason: expected 1 to {REASON_BYTES} bytes");
            return Err(Refusal::new(Code::InvalidRequest, why));
        }
        if let Some(recorded) = self.recorded.get(&position) {
            return Ok(QuarantineOutcome::Recorded(*recorded, self.version));
        }
        if self.cluster.is_none() {
            return Err(Refusal::new(Code::Unavailable, "the cluster is not founded yet"));
        }
        match stands {
            None => return Err(Refusal::not_found(format!("position {position} of the journal"))),
            Some(Ok(_)) => {
                let why = format!(
                    "position {position} has an entry that this program can read: only unreadable entries \
                     can be quarantined"
                );
                return Err(Refusal::new(Code::InvalidRequest, why));
            }
            Some(Err(none @ (DecodeError::Malformed(_) | DecodeError::Damaged { .. }))) => {
                let why = format!("position {position} is already skipped by every program: {none}");
                return Err(Refusal::new(Code::InvalidRequest, why));
            }
            Some(Err(DecodeError::NewerFormat { .. } | DecodeError::UnknownEvent(_))) => {}
        }
        if self.positions.len() >= QUARANTINED_POSITIONS {
            let why =
                format!("{QUARANTINED_POSITIONS} positions are already quarantined: no more are possible");
            return Err(Refusal::new(Code::InvalidRequest, why));
        }
        let event = cluster::Event::EntryQuarantined { position, reason: reason.clone() };
        Ok(QuarantineOutcome::Append(self.last, self.entry(ids, now, event, actor, Some(reason))))
    }

    /// Returns the founding entry of a cluster with this number of shards. It is the first entry of a log.
    ///
    /// # Errors
    /// `ResourceExists` if the cluster is founded already.
    pub fn found(
        &self,
        ids: &mut IdGenerator,
        now: Timestamp,
        actor: Actor,
        shards: u16,
    ) -> Result<(ClusterId, Entry), Refusal> {
        if let Some(cluster) = &self.cluster {
            let why = format!("cluster {} is already founded", cluster.id);
            return Err(Refusal::new(Code::ResourceExists, why));
        }
        let id = ClusterId(ids.next(now));
        let event = cluster::Event::Founded { id, shards, format: cluster::FORMAT };
        Ok((id, self.entry(ids, now, event, actor, None)))
    }

    fn entry(
        &self,
        ids: &mut IdGenerator,
        now: Timestamp,
        event: cluster::Event,
        actor: Actor,
        reason: Option<String>,
    ) -> Entry {
        let at = now.max(self.last_time.next());
        let id = DecisionId(ids.next(at));
        let decision = Decision {
            id,
            aggregate: Aggregate::Cluster,
            version: self.version + 1,
            at,
            actor,
            request_id: None,
            request_digest: None,
            cause: None,
            correlation: id,
            reason,
            traceparent: None,
            events: vec![Event::Cluster(event)],
        };
        Entry { id: EntryId(ids.next(at)), format: cluster::FORMAT, decisions: vec![decision] }
    }
}

#[cfg(test)]
mod tests {
    use schemas::names::{ClientName, ServiceId};

    use super::*;

    fn entry(at: u64, version: u64, event: cluster::Event) -> Entry {
        let (id, events) = (uuid::Uuid::from_u128(at.into()), vec![Event::Cluster(event)]);
        let decision = fixtures::decision(id, Timestamp(at), Aggregate::Cluster, events);
        fixtures::entry(Decision { version, ..decision })
    }

    fn founded() -> Entry {
        let id = ClusterId(uuid::Uuid::nil());
        entry(1, 1, cluster::Event::Founded { id, shards: 4, format: cluster::FORMAT })
    }

    fn log() -> ClusterLog {
        let mut log = ClusterLog::default();
        log.read(Position(1), &founded().encode());
        let id = ServiceId::new("b").unwrap();
        log.read(
            Position(2),
            &entry(5, 2, cluster::Event::Elected { role: Role::Bbs, id, term: 1 }).encode(),
        );
        log.read(Position(6), b"garbage");
        log
    }

    #[test]
    fn last_elected_service_leads() {
        let mut log = log();
        let elected = |role, name: &str, term| {
            let id = ServiceId::new(name).unwrap();
            (cluster::Event::Elected { role, id: id.clone(), term }, id)
        };
        let (event, id) = elected(Role::Bbs, "c", 2);
        log.read(Position(8), &entry(6, 3, event).encode());
        // An old entry that is appended again has no effect.
        log.read(Position(9), &entry(5, 2, elected(Role::Bbs, "b", 1).0).encode());
        assert_eq!(log.leader(Role::Bbs), Some(&Leader { id, term: 2, since: Timestamp(6) }));
        assert_eq!(log.leader(Role::Auctioneer), None);
    }

    #[test]
    fn cluster_is_founded_once() {
        let (mut log, mut ids) = (ClusterLog::default(), IdGenerator::new(1));
        let actor = Actor::Operator(ClientName::new("ada").unwrap());
        let (id, entry) = log.found(&mut ids, Timestamp(7), actor.clone(), 4).unwrap();
        assert_eq!((entry.decisions.len(), entry.decisions[0].version), (1, 1));
        assert_eq!(entry.decisions[0].at, Timestamp(7));
        log.read(Position(1), &entry.encode());
        assert_eq!(log.cluster_id(), Some(id));
        let refused = log.found(&mut ids, Timestamp(8), actor, 4).unwrap_err();
        assert_eq!(refused.code, Code::ResourceExists);
        assert!(refused.message.contains(&id.to_string()), "{refused}");
    }

    fn order(position: u64, reason: &str) -> QuarantineOrder {
        let actor = Actor::Operator(ClientName::new("ada").unwrap());
        QuarantineOrder { position: Position(position), actor, reason: reason.into() }
    }

    fn later() -> Option<Result<Entry, DecodeError>> {
        Some(Err(DecodeError::NewerFormat { format: 99 }))
    }

    #[test]
    fn unreadable_position_is_quarantined_once() {
        let (mut log, mut ids) = (log(), IdGenerator::new(1));
        let judged = log.judge(&mut ids, Timestamp(3), order(4, "a trial"), later()).unwrap();
        let QuarantineOutcome::Append(expected, entry) = judged else { panic!("{judged:?}") };
        assert_eq!(expected, Position(6), "after the last message, valid or not");
        let decision = &entry.decisions[0];
        assert_eq!((decision.version, decision.at), (3, Timestamp(6)), "time increases");
        assert_eq!(decision.reason.as_deref(), Some("a trial"));
        assert_eq!(decision.actor, order(4, "").actor);
        log.read(Position(9), &entry.encode());
        assert_eq!(*log.quarantined(), QuarantinedPositions::from([(Position(4), "a trial".to_owned())]));
        let again = log.judge(&mut ids, Timestamp(9), order(4, "again"), later());
        assert_eq!(again, Ok(QuarantineOutcome::Recorded(Position(9), 3)));
        // An old entry that is appended again has no effect.
        let known = log.clone();
        log.read(Position(10), &founded().encode());
        assert_eq!(log.quarantined(), known.quarantined());
        assert_eq!((log.version, log.last), (3, Position(10)));
        // An entry with the same time as the last one counts as old.
        let aside = |position| cluster::Event::EntryQuarantined { position, reason: "why".into() };
        log.read(Position(11), &self::entry(6, 4, aside(Position(7))).encode());
        assert_eq!((log.quarantined(), log.version), (known.quarantined(), 3));
        log.read(Position(12), &self::entry(7, 4, aside(Position(8))).encode());
        assert_eq!((log.quarantined().len(), log.version), (2, 4));
    }

    #[test]
    fn readable_or_skipped_positions_are_not_quarantined() {
        let (log, mut ids) = (log(), IdGenerator::new(1));
        let mut refused = |log: &ClusterLog, reason: &str, stands| {
            log.judge(&mut ids, Timestamp(9), order(4, reason), stands).unwrap_err()
        };
        assert_eq!(refused(&log, "why", None).code, Code::ResourceNotFound);
        for reason in ["", "  ", &"x".repeat(REASON_BYTES + 1)] {
            assert!(refused(&log, reason, later()).message.contains("expected 1 to"));
        }
        let longest =
            log.judge(&mut IdGenerator::new(2), Timestamp(9), order(4, &"x".repeat(REASON_BYTES)), later());
        assert!(matches!(longest, Ok(QuarantineOutcome::Append(..))), "{longest:?}");
        let readable = refused(&log, "why", Some(Ok(founded())));
        assert!(readable.message.contains("has an entry that this program can read"), "{readable:?}");
        let garbage = refused(&log, "why", Some(Err(DecodeError::Malformed("garbage".into()))));
        assert!(garbage.message.contains("already skipped by every program"), "{garbage:?}");
        assert!(refused(&ClusterLog::default(), "why", later()).message.contains("not founded"));
        let full = ClusterLog {
            positions: (0..QUARANTINED_POSITIONS as u64)
                .map(|at| (Position(100 + at), String::new()))
                .collect(),
            ..log
        };
        assert!(refused(&full, "why", later()).message.contains("no more are possible"));
    }
}
