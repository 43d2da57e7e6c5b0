//! Answers without an entry: a refusal, or that it is so already.
//!
//! Compare-and-set lets no decision be recorded that was made on an old picture. A refusal is not recorded, and a BBS may
//! be behind: another one was elected, decided, and acknowledged what this one has not been delivered yet. So such an
//! answer is held back until the journal's leader has been asked for the subject's last entry, after the command came. If
//! that is the entry on which was judged, the answer is true. If the journal stands further, the command waits for the
//! follower and is judged again. One read confirms everything that is held on its subject.
//!
//! If the number of shards was changed, later entries of a process are on another subject, and its old subject looks as if nothing had
//! happened. So an answer about a process or a task also waits for a read of the cluster's subject that shows nothing new.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use schemas::Timestamp;
use schemas::subject::{Position, Subject};

use crate::command::{QueuedCommand, Verdict};

/// Most subjects whose last entry is being read; others wait for their turn.
pub(crate) const READS: usize = 32;
/// How long an answer is held back before whoever asked is told to try again. Clients wait 2 s for one try.
pub(crate) const PATIENCE: Duration = Duration::from_millis(1_500);
/// How soon a read that failed is repeated.
const AGAIN: Duration = Duration::from_millis(200);

/// Commands, each with its answer.
pub(crate) type Answers = Vec<(QueuedCommand, Verdict)>;

/// What is held back, and the reads of last entries that are under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Confirmations {
    held: BTreeMap<Subject, Held>,
    /// Whose last entry has to be read, in this order, and the same as a set.
    wanted: VecDeque<Subject>,
    is_wanted: BTreeSet<Subject>,
    /// Whose last entry is being read.
    reading: BTreeSet<Subject>,
}

/// What is held back on one subject.
#[derive(Clone, Debug)]
struct Held {
    answers: Answers,
    /// The subject's last entry when they were judged.
    judged: Position,
    due: Timestamp,
    stage: Stage,
}

/// What an answer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// For its turn to read.
    Wants,
    /// For what is read.
    Reads,
    /// To read once more.
    Again(Timestamp),
    /// For the follower to come so far.
    Behind(Position),
    /// For the next read of the cluster's subject.
    WantsCluster,
    /// For a read of the cluster's subject that began after the subject itself was confirmed.
    ReadsCluster,
}

/// What a read says of the answers that are held on its subject.
#[derive(Debug)]
pub(crate) enum Confirmed {
    /// Nothing, or nothing yet.
    Nothing,
    /// They are true.
    True(Answers),
    /// The journal stands further, as this BBS has heard meanwhile: they are to be judged again.
    Outdated(Answers),
    /// The journal stands further than this BBS: they are judged again when it has come so far.
    Behind,
}

impl Confirmations {
    /// Whether answers are held on a subject: what comes there meanwhile waits.
    pub(crate) fn holds(&self, subject: &Subject) -> bool {
        self.held.contains_key(subject)
    }

    /// Holds back what was judged on a subject whose last entry stands at `judged`.
    pub(crate) fn hold(&mut self, subject: &Subject, answers: Answers, judged: Position, now: Timestamp) {
        let held = Held { answers, judged, due: now + PATIENCE, stage: Stage::Wants };
        self.held.insert(subject.clone(), held);
        self.want(subject);
    }

    /// Has a subject's last entry read.
    pub(crate) fn want(&mut self, subject: &Subject) {
        if self.is_wanted.insert(subject.clone()) {
            self.wanted.push_back(subject.clone());
        }
    }

    /// The subjects whose last entry is to be read now.
    pub(crate) fn reads(&mut self) -> Vec<Subject> {
        let mut reads = vec![];
        while self.reading.len() < READS {
            let Some(at) = self.wanted.iter().position(|subject| !self.reading.contains(subject)) else {
                break;
            };
            let Some(subject) = self.wanted.remove(at) else { break };
            self.is_wanted.remove(&subject);
            if let Some(held) = self.held.get_mut(&subject) {
                held.stage = Stage::Reads;
            }
            if subject == Subject::Cluster {
                let waits = self.held.values_mut().filter(|held| held.stage == Stage::WantsCluster);
                waits.for_each(|held| held.stage = Stage::ReadsCluster);
            }
            self.reading.insert(subject.clone());
            reads.push(subject);
        }
        reads
    }

    /// A subject's last entry was read: it stands at `last` (none: the read failed), and the follower has delivered the
    /// subject up to `delivered`.
    pub(crate) fn read(
        &mut self,
        subject: &Subject,
        last: Option<Position>,
        delivered: Position,
        now: Timestamp,
    ) -> Confirmed {
        self.reading.remove(subject);
        // What was read before a command came says nothing of it.
        let Some(held) = self.held.get_mut(subject).filter(|held| held.stage == Stage::Reads) else {
            return Confirmed::Nothing;
        };
        match last {
            Some(last) if last == held.judged && subject.is_shard() => {
                held.stage = Stage::WantsCluster;
                self.want(&Subject::Cluster);
                Confirmed::Nothing
            }
            Some(last) if last == held.judged => {
                self.take(subject).map_or(Confirmed::Nothing, Confirmed::True)
            }
            Some(last) if last > delivered => {
                held.stage = Stage::Behind(last);
                Confirmed::Behind
            }
            Some(last) if last > held.judged => {
                self.take(subject).map_or(Confirmed::Nothing, Confirmed::Outdated)
            }
            Some(_) | None => {
                held.stage = Stage::Again(now + AGAIN);
                Confirmed::Nothing
            }
        }
    }

    /// The last entry of the cluster's subject was read, after [`Confirmations::read`]; `None` if the read failed. If the follower has delivered
    /// that entry, returns the answers that waited for it, which are true. Otherwise they are confirmed again, a little later.
    pub(crate) fn cluster_read(
        &mut self,
        last: Option<Position>,
        delivered: Position,
        now: Timestamp,
    ) -> Vec<(Subject, Answers)> {
        if last.is_none_or(|last| last > delivered) {
            let waits = self.held.values_mut().filter(|held| held.stage == Stage::ReadsCluster);
            waits.for_each(|held| held.stage = Stage::Again(now + AGAIN));
            return vec![];
        }
        let read = self.held.extract_if(.., |_, held| held.stage == Stage::ReadsCluster);
        read.map(|(subject, held)| (subject, held.answers)).collect()
    }

    /// Takes every answer about processes and tasks: the number of shards was changed.
    pub(crate) fn drain_shards(&mut self) -> Answers {
        let of_shards = self.held.extract_if(.., |subject, _| subject.is_shard());
        of_shards.flat_map(|(_, held)| held.answers).collect()
    }

    /// The follower delivered an entry of a subject. Answers what is to be judged again.
    pub(crate) fn delivered(&mut self, subject: &Subject, position: Position) -> Option<Answers> {
        let reached = |held: &&Held| matches!(held.stage, Stage::Behind(last) if last <= position);
        self.held.get(subject).filter(reached)?;
        self.take(subject)
    }

    /// Reads again what is due, and answers what was held back too long.
    pub(crate) fn tick(&mut self, now: Timestamp) -> Vec<(Subject, Answers)> {
        let over = self.held.iter().filter(|(_, held)| held.due <= now).map(|(subject, _)| subject.clone());
        let over: Vec<Subject> = over.collect();
        let again = |held: &Held| matches!(held.stage, Stage::Again(at) if at <= now);
        let again = self.held.iter().filter(|(_, held)| again(held)).map(|(subject, _)| subject.clone());
        for subject in again.collect::<Vec<_>>() {
            if let Some(held) = self.held.get_mut(&subject) {
                held.stage = Stage::Wants;
            }
            self.want(&subject);
        }
        over.into_iter().filter_map(|subject| self.take(&subject).map(|answers| (subject, answers))).collect()
    }

    /// When there is next something to do.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let due = |held: &Held| match held.stage {
            Stage::Again(at) => held.due.min(at),
            Stage::Wants | Stage::Reads | Stage::Behind(_) | Stage::WantsCluster | Stage::ReadsCluster => {
                held.due
            }
        };
        self.held.values().map(due).min()
    }

    /// How many subjects have answers held back.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// How many subjects are to be read, or are being read.
    pub(crate) fn reads_left(&self) -> usize {
        self.wanted.len() + self.is_wanted.len() + self.reading.len()
    }

    fn take(&mut self, subject: &Subject) -> Option<Answers> {
        self.held.remove(subject).map(|held| held.answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_000 + millis)
    }

    /// Answers that were judged on entry 5 and are being read for.
    fn held() -> Confirmations {
        let mut confirmations = Confirmations::default();
        confirmations.hold(&Subject::Cluster, vec![], Position(5), at(0));
        assert_eq!(confirmations.reads(), [Subject::Cluster]);
        confirmations
    }

    #[test]
    fn what_stands_last_says_whether_an_answer_is_true() {
        for (last, delivered, said) in [
            (Some(5), 5, "true"),
            (Some(5), 9, "true"),
            (Some(6), 5, "behind"),
            (Some(9), 8, "behind"),
            (Some(9), 9, "outdated"),
            (Some(6), 9, "outdated"),
            (Some(4), 9, "nothing"),
            (None, 9, "nothing"),
        ] {
            let mut confirmations = held();
            let last = last.map(Position);
            let read = confirmations.read(&Subject::Cluster, last, Position(delivered), at(0));
            let word = match read {
                Confirmed::True(_) => "true",
                Confirmed::Behind => "behind",
                Confirmed::Outdated(_) => "outdated",
                Confirmed::Nothing => "nothing",
            };
            assert_eq!(word, said, "{last:?} {delivered}");
            assert_eq!(confirmations.holds(&Subject::Cluster), ["behind", "nothing"].contains(&said));
        }
    }

    #[test]
    fn answer_about_a_process_waits_for_a_read_of_the_cluster_that_began_later() {
        let shard = Subject::Lrp(0);
        for (last, confirmed) in [(Some(3), true), (Some(2), true), (Some(4), false), (None, false)] {
            let mut confirmations = Confirmations::default();
            confirmations.want(&Subject::Cluster);
            confirmations.hold(&shard, vec![], Position(5), at(0));
            assert_eq!(confirmations.reads(), [Subject::Cluster, shard.clone()]);
            let read = confirmations.read(&shard, Some(Position(5)), Position(5), at(0));
            assert!(matches!(read, Confirmed::Nothing) && confirmations.holds(&shard));
            // The read under way began before, and the next one begins after it.
            assert_eq!(confirmations.reads(), []);
            confirmations.read(&Subject::Cluster, Some(Position(3)), Position(3), at(0));
            assert!(confirmations.cluster_read(Some(Position(3)), Position(3), at(0)).is_empty());
            assert_eq!(confirmations.reads(), [Subject::Cluster]);
            let read = confirmations.cluster_read(last.map(Position), Position(3), at(0));
            let subjects: Vec<&Subject> = read.iter().map(|(subject, _)| subject).collect();
            assert_eq!(subjects, if confirmed { vec![&shard] } else { vec![] }, "{last:?}");
            assert_eq!(confirmations.holds(&shard), !confirmed);
            // A subject that is not confirmed is read again, after a while.
            assert_eq!(confirmations.reads(), []);
            confirmations.tick(at(0) + AGAIN);
            assert_eq!(confirmations.reads().contains(&shard), !confirmed);
        }
    }

    #[test]
    fn who_is_behind_waits_for_the_follower_and_no_longer_than_a_client_does() {
        let mut confirmations = held();
        confirmations.read(&Subject::Cluster, Some(Position(8)), Position(5), at(0));
        assert!(confirmations.delivered(&Subject::Cluster, Position(7)).is_none());
        assert_eq!(confirmations.next_due(), Some(at(0) + PATIENCE));
        assert!(confirmations.delivered(&Subject::Cluster, Position(8)).is_some());
        assert_eq!((confirmations.len(), confirmations.next_due()), (0, None));
        let mut confirmations = held();
        assert!(confirmations.tick(at(1_499)).is_empty());
        assert_eq!(confirmations.tick(at(1_500)).len(), 1);
    }

    #[test]
    fn a_read_that_failed_is_repeated_soon_and_few_are_under_way() {
        let mut confirmations = held();
        confirmations.read(&Subject::Cluster, None, Position(5), at(0));
        assert_eq!(confirmations.next_due(), Some(at(0) + AGAIN));
        confirmations.tick(at(199));
        assert_eq!(confirmations.reads(), []);
        confirmations.tick(at(200));
        assert_eq!(confirmations.reads(), [Subject::Cluster]);
        let mut many = Confirmations::default();
        let subject = |number: usize| {
            Subject::Cell(schemas::names::CellId::new(&format!("c{number:03}")).expect("a name"))
        };
        for number in 0..READS + 2 {
            many.hold(&subject(number), vec![], Position(5), at(0));
        }
        assert_eq!(many.reads().len(), READS);
        many.read(&subject(0), Some(Position(5)), Position(5), at(0));
        assert_eq!(many.reads(), [subject(READS)]);
    }
}
