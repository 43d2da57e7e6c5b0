//! Confirmation of answers that are not recorded in an entry: refusals, and replies to requests that change
//! nothing.
//!
//! Compare-and-set rejects an entry that was decided on an outdated World (the state folded from the log).
//! Refusals are not recorded, so they lack this protection. Another BBS may have been elected, and may have
//! acknowledged entries that this BBS has not received yet. Therefore the BBS holds such an answer back.
//! After the command arrived, the BBS reads the subject's last entry from the journal's leader. If the answer
//! is based on that entry, the answer is sent. If the answer is based on an earlier entry, the command waits
//! until the follower (the reader of the journal) has delivered the later entries. Afterwards, the BBS
//! decides the command again. One read confirms all answers held on its subject.
//!
//! After a change of the number of shards, later entries of a process are on another subject, and its old
//! subject looks unchanged. Therefore an answer about a process or a task waits for a second read: a read of
//! the cluster's subject that shows no new entry.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use schemas::Timestamp;
use schemas::subject::{Position, Subject};

use crate::command::{QueuedCommand, Verdict};

/// Maximum number of concurrent reads of last entries. Further subjects wait.
pub(crate) const MAX_READS: usize = 32;
/// Time after which a held answer is replaced by a refusal that asks the client to try again. Clients wait 2
/// s for each attempt.
pub(crate) const CONFIRM_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Delay before a failed read is repeated.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// Commands with their verdicts.
pub(crate) type Answers = Vec<(QueuedCommand, Verdict)>;

/// Held answers, and the reads of last entries that are in progress.
#[derive(Clone, Debug, Default)]
pub(crate) struct Confirmations {
    held: BTreeMap<Subject, HeldAnswers>,
    /// Subjects whose last entry must be read, in this order. `is_wanted` contains the same subjects as a
    /// set.
    wanted: VecDeque<Subject>,
    is_wanted: BTreeSet<Subject>,
    /// Subjects whose last entry is being read.
    reading: BTreeSet<Subject>,
}

/// Answers that are held on one subject.
#[derive(Clone, Debug)]
struct HeldAnswers {
    answers: Answers,
    /// Position of the subject's last entry when the answers were decided.
    judged: Position,
    due: Timestamp,
    stage: Stage,
}

/// Event that an answer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// A free read slot.
    Queued,
    /// The result of the read.
    Reading,
    /// The time of the next read.
    RetryAt(Timestamp),
    /// Delivery of entries up to this position by the follower.
    Behind(Position),
    /// The start of the next read of the cluster's subject.
    ClusterQueued,
    /// The result of a read of the cluster's subject. The read started after the subject of the answers was
    /// confirmed.
    ClusterReading,
}

/// Effect of a read on the answers that are held on its subject.
#[derive(Debug)]
pub(crate) enum Confirmed {
    /// The read has no effect yet.
    Nothing,
    /// The answers are confirmed.
    Valid(Answers),
    /// The answers are based on an outdated entry, and this BBS has received the later entries: decide the
    /// commands again.
    Outdated(Answers),
    /// The journal has later entries that this BBS has not received yet. The commands are decided again once
    /// the BBS has received these entries.
    Behind,
}

impl Confirmations {
    /// Returns `true` if answers are held on a subject. New commands for this subject wait.
    pub(crate) fn holds(&self, subject: &Subject) -> bool {
        self.held.contains_key(subject)
    }

    /// Holds answers that were decided when the subject's last entry was at `judged`.
    pub(crate) fn hold(&mut self, subject: &Subject, answers: Answers, judged: Position, now: Timestamp) {
        let held = HeldAnswers { answers, judged, due: now + CONFIRM_TIMEOUT, stage: Stage::Queued };
        self.held.insert(subject.clone(), held);
        self.request_read(subject);
    }

    /// Requests a read of a subject's last entry.
    pub(crate) fn request_read(&mut self, subject: &Subject) {
        if self.is_wanted.insert(subject.clone()) {
            self.wanted.push_back(subject.clone());
        }
    }

    /// Starts as many reads as possible and returns their subjects.
    pub(crate) fn start_reads(&mut self) -> Vec<Subject> {
        let mut reads = vec![];
        while self.reading.len() < MAX_READS {
            let Some(at) = self.wanted.iter().position(|subject| !self.reading.contains(subject)) else {
                break;
            };
            let Some(subject) = self.wanted.remove(at) else { break };
            self.is_wanted.remove(&subject);
            if let Some(held) = self.held.get_mut(&subject) {
                held.stage = Stage::Reading;
            }
            if subject == Subject::Cluster {
                let waits = self.held.values_mut().filter(|held| held.stage == Stage::ClusterQueued);
                waits.for_each(|held| held.stage = Stage::ClusterReading);
            }
            self.reading.insert(subject.clone());
            reads.push(subject);
        }
        reads
    }

    /// Handles a completed read of a subject's last entry. `last` is the position of the last entry, or
    /// `None` if the read failed. `delivered` is the subject's last position that the follower has delivered.
    pub(crate) fn handle_read(
        &mut self,
        subject: &Subject,
        last: Option<Position>,
        delivered: Position,
        now: Timestamp,
    ) -> Confirmed {
        self.reading.remove(subject);
        // A read that started before a command arrived does not confirm the answer to this command.
        let Some(held) = self.held.get_mut(subject).filter(|held| held.stage == Stage::Reading) else {
            return Confirmed::Nothing;
        };
        match last {
            Some(last) if last == held.judged && subject.is_shard() => {
                held.stage = Stage::ClusterQueued;
                self.request_read(&Subject::Cluster);
                Confirmed::Nothing
            }
            Some(last) if last == held.judged => {
                self.take(subject).map_or(Confirmed::Nothing, Confirmed::Valid)
            }
            Some(last) if last > delivered => {
                held.stage = Stage::Behind(last);
                Confirmed::Behind
            }
            Some(last) if last > held.judged => {
                self.take(subject).map_or(Confirmed::Nothing, Confirmed::Outdated)
            }
            Some(_) | None => {
                held.stage = Stage::RetryAt(now + RETRY_DELAY);
                Confirmed::Nothing
            }
        }
    }

    /// Handles a completed read of the cluster's subject, after [`Confirmations::handle_read`]. `last` is
    /// `None` if the read failed.
    ///
    /// If the follower has delivered the entry at `last`, this read confirms the answers that waited for it,
    /// and they are returned. Otherwise the last entries of the answers' subjects are read again after a
    /// delay.
    pub(crate) fn handle_cluster_read(
        &mut self,
        last: Option<Position>,
        delivered: Position,
        now: Timestamp,
    ) -> Vec<(Subject, Answers)> {
        if last.is_none_or(|last| last > delivered) {
            let waits = self.held.values_mut().filter(|held| held.stage == Stage::ClusterReading);
            waits.for_each(|held| held.stage = Stage::RetryAt(now + RETRY_DELAY));
            return vec![];
        }
        let read = self.held.extract_if(.., |_, held| held.stage == Stage::ClusterReading);
        read.map(|(subject, held)| (subject, held.answers)).collect()
    }

    /// Removes and returns every answer about processes and tasks, because the number of shards was changed.
    pub(crate) fn drain_shards(&mut self) -> Answers {
        let of_shards = self.held.extract_if(.., |subject, _| subject.is_shard());
        of_shards.flat_map(|(_, held)| held.answers).collect()
    }

    /// Handles the delivery of an entry by the follower. Returns the answers whose commands must be decided
    /// again.
    pub(crate) fn handle_delivery(&mut self, subject: &Subject, position: Position) -> Option<Answers> {
        let reached = |held: &&HeldAnswers| matches!(held.stage, Stage::Behind(last) if last <= position);
        self.held.get(subject).filter(reached)?;
        self.take(subject)
    }

    /// Restarts reads that are due. Returns the answers that have timed out.
    pub(crate) fn tick(&mut self, now: Timestamp) -> Vec<(Subject, Answers)> {
        let over = self.held.iter().filter(|(_, held)| held.due <= now).map(|(subject, _)| subject.clone());
        let over: Vec<Subject> = over.collect();
        let again = |held: &HeldAnswers| matches!(held.stage, Stage::RetryAt(at) if at <= now);
        let again = self.held.iter().filter(|(_, held)| again(held)).map(|(subject, _)| subject.clone());
        for subject in again.collect::<Vec<_>>() {
            if let Some(held) = self.held.get_mut(&subject) {
                held.stage = Stage::Queued;
            }
            self.request_read(&subject);
        }
        over.into_iter().filter_map(|subject| self.take(&subject).map(|answers| (subject, answers))).collect()
    }

    /// Returns the time of the next timeout or retry.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let due = |held: &HeldAnswers| match held.stage {
            Stage::RetryAt(at) => held.due.min(at),
            Stage::Queued
            | Stage::Reading
            | Stage::Behind(_)
            | Stage::ClusterQueued
            | Stage::ClusterReading => held.due,
        };
        self.held.values().map(due).min()
    }

    /// Returns the number of subjects with held answers.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns the number of waiting reads and reads in progress. The number is zero when the BBS is idle.
    /// Waiting reads count twice, because two collections contain them.
    pub(crate) fn pending_reads(&self) -> usize {
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

    /// Returns answers that were decided at position 5 and are held while their read is in progress.
    fn held() -> Confirmations {
        let mut confirmations = Confirmations::default();
        confirmations.hold(&Subject::Cluster, vec![], Position(5), at(0));
        assert_eq!(confirmations.start_reads(), [Subject::Cluster]);
        confirmations
    }

    #[test]
    fn last_entry_decides_whether_answer_is_confirmed() {
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
            let read = confirmations.handle_read(&Subject::Cluster, last, Position(delivered), at(0));
            let word = match read {
                Confirmed::Valid(_) => "true",
                Confirmed::Behind => "behind",
                Confirmed::Outdated(_) => "outdated",
                Confirmed::Nothing => "nothing",
            };
            assert_eq!(word, said, "{last:?} {delivered}");
            assert_eq!(confirmations.holds(&Subject::Cluster), ["behind", "nothing"].contains(&said));
        }
    }

    #[test]
    fn process_answer_waits_for_later_cluster_read() {
        let shard = Subject::Lrp(0);
        for (last, confirmed) in [(Some(3), true), (Some(2), true), (Some(4), false), (None, false)] {
            let mut confirmations = Confirmations::default();
            confirmations.request_read(&Subject::Cluster);
            confirmations.hold(&shard, vec![], Position(5), at(0));
            assert_eq!(confirmations.start_reads(), [Subject::Cluster, shard.clone()]);
            let read = confirmations.handle_read(&shard, Some(Position(5)), Position(5), at(0));
            assert!(matches!(read, Confirmed::Nothing) && confirmations.holds(&shard));
            // The read in progress started too early. The next read starts after the subject was confirmed.
            assert_eq!(confirmations.start_reads(), []);
            confirmations.handle_read(&Subject::Cluster, Some(Position(3)), Position(3), at(0));
            assert!(confirmations.handle_cluster_read(Some(Position(3)), Position(3), at(0)).is_empty());
            assert_eq!(confirmations.start_reads(), [Subject::Cluster]);
            let read = confirmations.handle_cluster_read(last.map(Position), Position(3), at(0));
            let subjects: Vec<&Subject> = read.iter().map(|(subject, _)| subject).collect();
            assert_eq!(subjects, if confirmed { vec![&shard] } else { vec![] }, "{last:?}");
            assert_eq!(confirmations.holds(&shard), !confirmed);
            // A subject that is not confirmed is read again after a delay.
            assert_eq!(confirmations.start_reads(), []);
            confirmations.tick(at(0) + RETRY_DELAY);
            assert_eq!(confirmations.start_reads().contains(&shard), !confirmed);
        }
    }

    #[test]
    fn answer_behind_journal_waits_for_follower_until_timeout() {
        let mut confirmations = held();
        confirmations.handle_read(&Subject::Cluster, Some(Position(8)), Position(5), at(0));
        assert!(confirmations.handle_delivery(&Subject::Cluster, Position(7)).is_none());
        assert_eq!(confirmations.next_due(), Some(at(0) + CONFIRM_TIMEOUT));
        assert!(confirmations.handle_delivery(&Subject::Cluster, Position(8)).is_some());
        assert_eq!((confirmations.len(), confirmations.next_due()), (0, None));
        let mut confirmations = held();
        assert!(confirmations.tick(at(1_499)).is_empty());
        assert_eq!(confirmations.tick(at(1_500)).len(), 1);
    }

    #[test]
    fn failed_read_is_repeated_and_reads_are_bounded() {
        let mut confirmations = held();
        confirmations.handle_read(&Subject::Cluster, None, Position(5), at(0));
        assert_eq!(confirmations.next_due(), Some(at(0) + RETRY_DELAY));
        confirmations.tick(at(199));
        assert_eq!(confirmations.start_reads(), []);
        confirmations.tick(at(200));
        assert_eq!(confirmations.start_reads(), [Subject::Cluster]);
        let mut many = Confirmations::default();
        let subject = |number: usize| {
            Subject::Cell(schemas::names::CellId::new(&format!("c{number:03}")).expect("a name"))
        };
        for number in 0..MAX_READS + 2 {
            many.hold(&subject(number), vec![], Position(5), at(0));
        }
        assert_eq!(many.start_reads().len(), MAX_READS);
        many.handle_read(&subject(0), Some(Position(5)), Position(5), at(0));
        assert_eq!(many.start_reads(), [subject(MAX_READS)]);
    }
}
