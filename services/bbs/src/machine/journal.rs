//! Journal: delivered entries, appended entries, and failed appends.
//!
//! The follower delivers entries to this machine. An entry is in flight (a [`Flight`]) between its append and
//! its delivery by the follower.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use schemas::names::EntryId;
use schemas::query::LogRow;
use schemas::subject::{Position, Subject};
use schemas::{Code, Entry, Refusal};

use super::{Bbs, not_leading_refusal};
use crate::appends::Certainty;
use crate::command::QueuedCommand;
use crate::confirm::{Answers, Confirmed};
use crate::effect::Effect;
use crate::input::{AppendFailure, LogCheckError};
use crate::judge::judge;
use crate::log::Content;
use crate::shards::{Admission, Attempts, Delivered, Flight};
use crate::timelines::Times;

/// Delay between the journal's refusal of a decision and the next convergence of the decision's targets.
const REFUSED_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Delay between an append with an unknown outcome and the read of the subject's last entry.
const READ_DELAY: Duration = Duration::from_millis(50);
/// Delay between a failed read of a subject's last entry and the next attempt.
const READ_RETRY_DELAY: Duration = Duration::from_millis(500);

/// Position and id of a subject's last entry, as read from the journal's leader; `None` if the subject is
/// empty.
type LastEntry = Option<(Position, Option<EntryId>)>;

impl Bbs {
    /// Handles a message that the follower delivered.
    pub(super) fn handle_message(
        &mut self,
        position: Position,
        subject: &str,
        id: Option<EntryId>,
        bytes: &Bytes,
    ) {
        self.leadership.record_delivery(self.now);
        if !self.leadership.is_elected() {
            self.appends.reset_failures();
        }
        if !self.log.is_caught_up() {
            self.leadership.note_listening(self.now);
        }
        let parsed = Subject::parse(subject);
        let own = parsed.as_ref().and_then(|subject| self.shards.flight(subject));
        let own = own.filter(|flight| Some(flight.entry.id) == id && flight.bytes == *bytes);
        let own = own.map(|flight| Arc::clone(&flight.entry));
        let entry = match self.log.read(position, subject, bytes, own) {
            Content::Entry(entry) => Some(entry),
            Content::Quarantined(none) => {
                self.emit(Effect::Quarantined(none));
                None
            }
            Content::NotUnderstood(why) => {
                self.halted = true;
                return self.emit(Effect::Halt(why));
            }
        };
        let changes = self.log.fold(position, entry.as_deref());
        if let Some(subject) = parsed {
            self.settle_delivered(subject, position, bytes);
        }
        if let Some(entry) = entry {
            self.react(&entry, &changes);
            self.publish_entry(position, entry);
        }
        self.forward_ready_queries();
    }

    /// Publishes an entry that was applied to the World (the state folded from the log), if this BBS leads.
    fn publish_entry(&mut self, position: Position, entry: Arc<Entry>) {
        let cluster = self.log.world().cluster().map(|cluster| cluster.id);
        if let Some(cluster) = cluster.filter(|_| self.leads()) {
            self.emit(Effect::Publish { cluster, position, entry });
        }
    }

    /// Settles the entry in flight on a subject. Also settles the answers that wait for the follower.
    fn settle_delivered(&mut self, subject: Subject, position: Position, bytes: &Bytes) {
        let delivered = self.shards.delivered(&subject, bytes);
        if let Some(answers) = self.confirmations.handle_delivery(&subject, position) {
            self.judge_again(&subject, answers);
        }
        match delivered {
            Delivered::NoFlight => self.mark_ready(subject),
            Delivered::Own(flight) => {
                self.record_stored(&flight);
                for (command, verdict) in flight.decided {
                    self.settle(&command, position, verdict);
                }
                self.mark_ready(subject);
            }
            Delivered::Overtaken(flight) => self.requeue_overtaken(subject, flight),
        }
    }

    /// Queues the commands of a flight again, because another writer's entry was stored first. These commands
    /// are decided before commands that arrived later.
    fn requeue_overtaken(&mut self, subject: Subject, flight: Flight) {
        let commands = flight.decided.into_iter().map(|(command, _)| command);
        let commands: Vec<_> = commands.filter(|command| !self.is_obsolete(command)).collect();
        if !self.leads() && subject != Subject::Cluster {
            for command in commands {
                self.refuse(&command, not_leading_refusal(self.settings.may_lead));
            }
            return self.mark_ready(subject);
        }
        commands
            .iter()
            .filter_map(QueuedCommand::convergence_target)
            .for_each(|due| self.convergence.requeue(due));
        self.shards.put_back(&subject, commands);
        self.mark_ready(subject);
    }

    /// Marks a subject for the next turn (one pass of the machine over its ready subjects), unless answers on
    /// the subject wait for confirmation.
    fn mark_ready(&mut self, subject: Subject) {
        if !self.confirmations.holds(&subject) {
            self.shards.mark_ready(subject);
        }
    }

    /// Returns which commands may be decided next on a subject. Returns `None` in three cases: answers on the
    /// subject wait for confirmation, every append is rejected, or the subject waits for a change of the
    /// shard count.
    ///
    /// Rejected appends do not block the cluster's subject, because probe entries are appended there.
    pub(super) fn admission(&self, subject: &Subject) -> Option<Admission> {
        if self.confirmations.holds(subject) || (self.appends.are_rejected() && *subject != Subject::Cluster)
        {
            return None;
        }
        if self.waits_for_resharding(subject) {
            return None;
        }
        self.shards.admission(subject, self.settings.bytes_in_flight)
    }

    /// Decides the admitted commands of a subject, and appends the resulting entry.
    pub(super) fn decide(&mut self, subject: Subject, boarding: Admission) {
        let end = self.log.end(&subject);
        let flying = self.shards.growth().clone();
        let next = || self.shards.pop(&subject, boarding);
        let times = (Times::new(self.shown, &self.timelines), self.now);
        let judged = judge(self.log.world(), &mut self.ids, times, (&subject, end, &flying), next);
        // A command may cause more decisions than fit into the entry. Such a command is decided again for the
        // next entry.
        self.shards.put_back(&subject, judged.again);
        for due in judged.decided.iter().filter_map(|(command, _)| command.convergence_target()) {
            self.convergence.decided(due);
        }
        match judged.entry {
            Some((entry, bytes)) => {
                let (expected, growth) = (end.position, judged.growth);
                let (decided, sent, attempts) = (judged.decided, self.now, Attempts::Open);
                self.append(subject, Flight { entry, bytes, expected, decided, sent, attempts, growth });
            }
            None => self.settle_unchanged(subject, judged.decided, end.position),
        }
    }

    /// Handles commands that change nothing. The BBS's own commands are settled at once. All other commands
    /// are settled after their answers are confirmed.
    fn settle_unchanged(&mut self, subject: Subject, decided: Answers, judged_at: Position) {
        let is_own = |(command, _): &(QueuedCommand, _)| command.is_own();
        let (own, answers): (Vec<_>, Vec<_>) = decided.into_iter().partition(is_own);
        for (command, verdict) in own {
            self.settle(&command, self.world().position(), verdict);
        }
        if !answers.is_empty() {
            self.confirmations.hold(&subject, answers, judged_at, self.now);
        }
        self.mark_ready(subject);
    }

    /// Appends an entry, for the first time or again.
    fn append(&mut self, subject: Subject, flight: Flight) {
        self.emit(Effect::Append {
            subject: subject.clone(),
            expected: flight.expected,
            entry: flight.entry.id,
            bytes: flight.bytes.clone(),
        });
        self.shards.start_flight(subject, flight);
    }

    /// Handles an append that failed or has an unknown outcome.
    pub(super) fn handle_append_failure(&mut self, subject: &Subject, entry: EntryId, why: AppendFailure) {
        if !self.shards.is_in_flight(subject, entry) {
            return;
        }
        match why {
            // The follower will deliver the entry that was stored first, which settles the flight.
            AppendFailure::Conflict => {}
            AppendFailure::Unknown { why, stated } => {
                let soon = if self.appends.is_failing() { READ_RETRY_DELAY } else { READ_DELAY };
                let certainty = if stated { Certainty::Stated } else { Certainty::Unanswered };
                self.append_failed(&why, certainty);
                if let Some(flight) = self.shards.flight_mut(subject) {
                    flight.attempts = Attempts::Unknown;
                }
                self.shards.schedule_read(subject, self.now + soon);
            }
            AppendFailure::NotStored(why) => {
                let soon = if self.appends.is_failing() { READ_RETRY_DELAY } else { Duration::ZERO };
                self.append_failed(&why, Certainty::NotStored);
                if let Some(flight) = self.shards.flight_mut(subject)
                    && flight.attempts != Attempts::Unknown
                {
                    flight.attempts = Attempts::Rejected(why);
                }
                self.shards.schedule_read(subject, self.now + soon);
            }
            AppendFailure::Refused(why) => {
                let refusal =
                    Refusal::new(Code::Unavailable, format!("the journal refuses the entry: {why}"));
                self.emit(Effect::Warn(refusal.message.clone()));
                self.drop_flight(subject, &refusal);
            }
        }
    }

    /// Refuses all commands of an entry that will never be stored.
    fn drop_flight(&mut self, subject: &Subject, refusal: &Refusal) {
        for (command, _) in self.shards.take_flight(subject).into_iter().flat_map(|one| one.decided) {
            self.retry_undecided_call(&command.command);
            if command.convergence_target().is_some() {
                self.convergence.schedule_pass(self.now + REFUSED_RETRY_DELAY);
            }
            self.refuse(&command, refusal.clone());
        }
        self.mark_ready(subject.clone());
    }

    /// Records a failed append. After the first failure, refuses all queued commands of other actors. None of
    /// these commands is stored.
    fn append_failed(&mut self, why: &str, certainty: Certainty) {
        if self.appends.record_failure(why, certainty, self.now, self.shown) {
            self.emit(Effect::Warn(format!("an append failed and is repeated: {why}")));
            let refusal = self.not_stored_refusal();
            for command in self.shards.drain_external() {
                self.refuse(&command, refusal.clone());
            }
        }
        self.report_appends();
    }

    /// Records that an entry of this BBS is in the log.
    fn record_stored(&mut self, flight: &Flight) {
        if let Some(failed) = self.appends.record_stored(self.now.since(flight.sent), self.now) {
            let seconds = failed.as_secs();
            self.emit(Effect::Warn(format!("the log accepts entries again after {seconds} s")));
            self.mark_all_ready();
        }
    }

    /// Marks all subjects with queued commands for the next turn, after appends have recovered.
    fn mark_all_ready(&mut self) {
        for subject in self.shards.waiting() {
            self.mark_ready(subject);
        }
    }

    fn report_appends(&mut self) {
        if let Some(text) = self.appends.report(self.now) {
            self.emit(Effect::Warn(text));
        }
    }

    /// Returns the refusal of a command that was not stored because appends fail.
    pub(super) fn not_stored_refusal(&self) -> Refusal {
        let why = self.appends.refusal().unwrap_or_default();
        Refusal::new(Code::Unavailable, format!("{why}; nothing was stored"))
    }

    /// Performs the actions that are due while appends fail: replies to clients that have waited too long for
    /// an entry in flight, and appends probe entries.
    pub(super) fn tick_appends(&mut self) {
        self.report_appends();
        if self.appends.is_reply_timeout_over(self.now) {
            let why = self.appends.refusal().unwrap_or_default();
            let why = format!("{why}; it is unknown whether this was stored: retry with the same request id");
            let refusal = Refusal::new(Code::Unavailable, why);
            for command in self.shards.abandon_flights() {
                self.refuse(&command, refusal.clone());
            }
        }
        if self.leads() && self.shards.in_flight() == 0 && self.appends.is_probe_due(self.now) {
            // The probe entry records a new term. A leader may record a new term at any time. The new term
            // also makes the reps send their postponed reports.
            self.campaign(self.leadership.term().saturating_add(1));
        }
    }

    /// Handles the result of a check of the stream.
    pub(super) fn handle_log_check(&mut self, found: Result<Option<LogRow>, LogCheckError>) {
        match found {
            Ok(log) => self.appends.record_check(log),
            Err(LogCheckError { why, absent }) => {
                self.appends.record_failed_check(&why, absent, self.now, self.shown);
            }
        }
    }

    /// Starts the reads of last entries that confirmations need.
    pub(super) fn start_reads(&mut self) {
        let reads = self.confirmations.start_reads();
        self.effects.extend(reads.into_iter().map(Effect::ReadLast));
    }

    /// Handles a read of a subject's last entry. The result confirms held answers, and settles an append with
    /// an unknown outcome.
    pub(super) fn handle_last_entry(&mut self, subject: &Subject, last: Result<LastEntry, String>) {
        let stands = last.as_ref().ok().map(|last| last.map_or(Position(0), |(position, _)| position));
        let delivered = self.log.end(subject).position;
        match self.confirmations.handle_read(subject, stands, delivered, self.now) {
            Confirmed::Nothing => self.settle_flight(subject, last),
            Confirmed::Behind => self.leadership.mark_behind(),
            Confirmed::Outdated(answers) => self.judge_again(subject, answers),
            Confirmed::Valid(answers) => self.settle_all(answers),
        }
        self.mark_ready(subject.clone());
        if *subject == Subject::Cluster {
            for (subject, answers) in self.confirmations.handle_cluster_read(stands, delivered, self.now) {
                self.settle_all(answers);
                self.mark_ready(subject);
            }
        }
        self.start_reads();
    }

    /// Sends held answers that are confirmed.
    fn settle_all(&mut self, answers: Answers) {
        for (command, verdict) in answers {
            self.settle(&command, self.world().position(), verdict);
        }
    }

    /// Handles a change of the number of shards. The leader queues every command of a process or a task
    /// again, on its new subject. Other BBSs refuse these commands.
    ///
    /// The BBS forgets entries that are in flight on old subjects. If such an entry arrives later, the BBS
    /// quarantines it, like every other reader.
    pub(super) fn handle_reshard(&mut self) {
        let held = self.confirmations.drain_shards().into_iter().map(|(command, _)| command);
        for command in held.chain(self.shards.drain_shards()).collect::<Vec<_>>() {
            if !self.leads() {
                self.refuse(&command, not_leading_refusal(self.settings.may_lead));
                continue;
            }
            command.convergence_target().into_iter().for_each(|due| self.convergence.requeue(due));
            let subject = command.command.target().subject(self.world().shards());
            self.shards.push(subject, command);
        }
    }

    /// Returns `true` if a subject waits for a change of the number of shards.
    ///
    /// The change is recorded when no entry of a process or a task is in flight. No such entry is sent before
    /// the change is recorded.
    fn waits_for_resharding(&self, subject: &Subject) -> bool {
        let is_asked = || self.shards.holds(&Subject::Cluster, QueuedCommand::is_reshard);
        match subject {
            Subject::Cluster => self.shards.has_shard_flight() && is_asked(),
            Subject::Lrp(_) | Subject::Task(_) => is_asked(),
            Subject::Cell(_) | Subject::Domain(_) => false,
        }
    }

    /// Queues commands again that were decided on an outdated World. These commands are decided before later
    /// ones. If this BBS does not lead, it refuses the commands instead.
    fn judge_again(&mut self, subject: &Subject, answers: Answers) {
        let commands = answers.into_iter().map(|(command, _)| command);
        if self.leads() {
            self.shards.put_back(subject, commands);
        } else {
            commands.for_each(|command| self.refuse(&command, not_leading_refusal(self.settings.may_lead)));
        }
    }

    /// Refuses commands whose confirmation takes longer than clients wait.
    pub(super) fn refuse_unconfirmed(&mut self) {
        for (subject, answers) in self.confirmations.tick(self.now) {
            let why = "the journal did not confirm in time that this BBS is up to date: try again";
            let refusal = Refusal::new(Code::Unavailable, why);
            for (command, _) in answers {
                self.refuse(&command, refusal.clone());
            }
            self.mark_ready(subject);
        }
        self.start_reads();
    }

    /// Settles an append with an unknown outcome. `last` is the result of reading the subject's last entry.
    fn settle_flight(&mut self, subject: &Subject, last: Result<LastEntry, String>) {
        let Some(flight) = self.shards.flight(subject) else { return };
        let Ok(last) = last else { return self.shards.schedule_read(subject, self.now + READ_RETRY_DELAY) };
        let (position, entry) = last.unwrap_or((Position(0), None));
        let stored = entry == Some(flight.entry.id);
        // The entry or another one was stored. The flight is settled when the follower delivers the stored
        // entry.
        if stored || position != flight.expected {
            return;
        }
        if let Attempts::Rejected(_) = flight.attempts {
            let refusal = self.not_stored_refusal();
            return self.drop_flight(subject, &refusal);
        }
        self.retry_append(subject.clone());
    }

    /// Repeats the append of an entry that was not stored. The entry is unchanged, because the first attempt
    /// may still be in flight.
    ///
    /// The append is not repeated if another BBS leads, or if the entry declares a living cell lost. In these
    /// cases the commands of the entry are queued again or refused.
    fn retry_append(&mut self, subject: Subject) {
        let Some(flight) = self.shards.take_flight(&subject) else { return };
        let deposed = !self.leads() && subject != Subject::Cluster;
        if deposed || flight.decided.iter().any(|(command, _)| self.is_obsolete(command)) {
            return self.requeue_overtaken(subject, flight);
        }
        self.append(subject, flight);
    }

    /// Returns `true` if a command is obsolete because it declares a living cell lost.
    fn is_obsolete(&self, command: &QueuedCommand) -> bool {
        command.command.lost_cell().is_some_and(|cell| !self.presence.is_silent(cell))
    }
}
