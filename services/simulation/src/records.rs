//! Messages to and from the journal. Appends may be lost, late or unacknowledged, and log readers may lag.

use std::time::Duration;

use bbs::AppendFailure;
use bytes::Bytes;
use schemas::subject::{Position, Subject};

use crate::arrived::Arrived;
use crate::cluster::Cluster;
use crate::coverage::Situation;
use crate::event::{Append, ClusterEvent, Last, NodeEvent, PATIENCE};
use crate::journal::{Appended, Stored};
use crate::shape::Node;

/// Returns the failure of an append without an answer.
fn unanswered() -> AppendFailure {
    AppendFailure::Unknown { why: "nobody answered".into(), stated: false }
}

impl Cluster {
    pub(crate) fn is_dark(&self, node: Node) -> bool {
        self.dark_until > self.now || self.place(node).dark_until > self.now
    }

    /// Returns the time at which a node reaches the journal again.
    fn light(&self, node: Node) -> schemas::Timestamp {
        self.dark_until.max(self.place(node).dark_until)
    }

    /// Passes an append to the journal, with faults.
    pub(crate) fn append(&mut self, append: Append) {
        let (node, _) = append.from;
        if append.given_up {
            return self.store(append);
        }
        let faults = self.faults;
        let dark = self.is_dark(node);
        let late = if dark { self.chaos.chance(400) } else { self.chaos.chance(faults.append_late) };
        if late {
            self.inject("appends stored late");
            self.trouble(PATIENCE);
            let after = if dark { self.light(node) } else { self.now + PATIENCE };
            let at = after + self.chaos.millis(1, 5_000);
            self.not_appended(&append, unanswered());
            return self.schedule(at, ClusterEvent::Append(Box::new(Append { given_up: true, ..append })));
        }
        if dark || self.chaos.chance(faults.append_lost) {
            self.inject("appends lost");
            self.trouble(PATIENCE);
            return self.not_appended(&append, unanswered());
        }
        if self.chaos.chance(faults.append_refused) {
            self.inject("appends refused");
            self.trouble(PATIENCE);
            return self.not_appended(&append, AppendFailure::Refused("it is not its day".into()));
        }
        self.store(append);
    }

    fn not_appended(&mut self, append: &Append, why: AppendFailure) {
        let at = match why {
            AppendFailure::Unknown { .. } => self.now + PATIENCE,
            AppendFailure::Conflict | AppendFailure::NotStored(_) | AppendFailure::Refused(_) => self.delay(),
        };
        let (subject, entry) = (append.subject.clone(), append.entry);
        self.schedule_for(at, append.from, NodeEvent::NotAppended { subject, entry, why });
    }

    fn store(&mut self, append: Append) {
        let Append { subject, entry, bytes, .. } = append.clone();
        let stored = Stored { subject, entry: Some(entry), bytes };
        match self.journal.append(self.now, stored, append.expected) {
            Appended::Conflict => {
                self.conflict(&append);
            }
            // After an unknown append the BBS reads the last entry, and needs no answer to this append.
            Appended::Duplicate(_) => self.met(Situation::AppendRepeated),
            Appended::RepeatedAsConflict => {
                self.met(Situation::AppendRepeated);
                self.conflict(&append);
            }
            Appended::RepeatedForgotten => {
                self.met(Situation::AppendRepeated);
                self.conflict(&append);
            }
            Appended::At(position) => self.stored(&append, position),
        }
    }

    fn conflict(&mut self, append: &Append) {
        if !append.given_up {
            self.not_appended(append, AppendFailure::Conflict);
        }
    }

    /// Stores a message that is not an entry, as another program may do.
    pub(crate) fn write_malformed(&mut self) {
        let kinds = [Subject::Lrp(0), Subject::Lrp(2), Subject::Task(1), Subject::Task(3)];
        let subject = kinds[self.chaos.place(kinds.len()).unwrap_or(0)].clone();
        let of = kinds[self.chaos.place(kinds.len()).unwrap_or(0)].clone();
        let whole = self.journal.last(&of).and_then(|(position, _)| self.journal.get(position));
        // Half an entry is not a valid entry, nor is an entry on a wrong subject.
        let bytes = whole.filter(|stored| stored.entry.is_some()).map(|stored| match of == subject {
            true => stored.bytes.slice(..stored.bytes.len() / 2),
            false => stored.bytes.clone(),
        });
        let bytes = bytes.unwrap_or_else(|| Bytes::from_static(b"malformed"));
        self.met(Situation::Malformed);
        let position = self.journal.store(self.now, Stored { subject: subject.clone(), entry: None, bytes });
        self.checkers.malformed(&subject, position);
        self.notify_followers();
    }

    /// Cuts the power of the journal's machines. They keep the synced entries.
    pub(crate) fn cut_power(&mut self, unsynced: usize) {
        if !self.shape.synced {
            self.journal.lose(unsynced);
            // No service may start from a snapshot whose last entry is lost.
            self.snapshot = None;
        }
        self.journal.forget(self.now);
        self.go_dark(Duration::from_secs(3));
    }

    fn stored(&mut self, append: &Append, position: Position) {
        let text = self.checkers.appended(&self.journal, position);
        self.log(|| format!("{position} {text}"));
        if append.given_up {
            self.met(Situation::AppendStoredLate);
        } else if self.chaos.chance(self.faults.ack_lost) {
            self.inject("acknowledgements lost");
            self.trouble(PATIENCE);
            self.met(Situation::AppendUnacknowledged);
            self.not_appended(append, unanswered());
        }
        self.notify_followers();
        let (node, generation) = append.from;
        let alive = self.life(node) == Some((node, generation));
        if alive && self.chaos.chance(self.faults.killed_before_fold) {
            self.inject("BBSs killed between append and fold");
            self.trouble(PATIENCE);
            self.met(Situation::KilledBeforeFold);
            let away = self.chaos.millis(0, 5_000);
            self.kill(node, away);
        }
    }

    fn notify_followers(&mut self) {
        for node in self.all_nodes() {
            let follows = match node {
                Node::Bbs(_) | Node::Auctioneer(_) => true,
                Node::Rep(_) => false,
            };
            if let Some(life) = self.life(node).filter(|_| follows) {
                let at = self.delay();
                self.schedule_for(at, life, NodeEvent::Follow);
            }
        }
    }

    /// Delivers the next entries to the log reader of a node, in order.
    pub(crate) fn follow(&mut self, node: Node) {
        while !self.is_dark(node) && self.place(node).lags_until <= self.now {
            let place = self.place_mut(node);
            let (next, caught_up) = (Position(place.delivered.0 + 1), place.caught_up);
            let Some(stored) = self.journal.get(next).cloned() else {
                if !caught_up {
                    self.place_mut(node).caught_up = true;
                    self.input(node, Arrived::CaughtUp);
                }
                return;
            };
            self.place_mut(node).delivered = next;
            self.input(node, Arrived::Recorded(next, stored));
            if self.life(node).is_none() {
                return;
            }
        }
    }

    /// Reads the last entry of a subject from the leader of the journal.
    pub(crate) fn read_last(&mut self, node: Node, subject: Subject) {
        let Some(life) = self.life(node) else { return };
        let (at, last): (_, Last) = if self.is_dark(node) {
            (self.now + PATIENCE, Err("the journal does not answer".into()))
        } else {
            let last = self.journal.last(&subject);
            (self.delay(), Ok(last))
        };
        self.schedule_for(at, life, NodeEvent::Last { subject, last });
    }
}
