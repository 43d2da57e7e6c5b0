//! Journal: entries that the follower delivers, entries that are decided and appended, and failed appends.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use schemas::names::EntryId;
use schemas::query::LogRow;
use schemas::subject::{Position, Subject};
use schemas::{Code, Entry, Refusal};

use super::{Bbs, not_leading};
use crate::appends::Certainty;
use crate::command::QueuedCommand;
use crate::confirm::{Answers, Confirmed};
use crate::effect::Effect;
use crate::input::{LogUnread, NotAppended};
use crate::judge::judge;
use crate::log::Found;
use crate::shards::{Attempts, Boarding, Delivered, Flight};
use crate::timelines::Times;

/// Delay before targets are converged again after the journal refused a decision about them.
const REFUSED_AGAIN: Duration = Duration::from_secs(1);
/// Delay before a subject's last entry is read after an append with an unknown outcome.
const READ_SOON: Duration = Duration::from_millis(50);
/// Delay before that read is repeated after a failure.
const READ_AGAIN: Duration = Duration::from_millis(500);

/// Position and id of a subject's last entry, as read from the journal's leader; `None` if the subject is
/// empty.
type Last = Option<(Position, Option<EntryId>)>;

impl Bbs {
    /// Handles a message that the follower delivered.
    pub(super) fn recorded(&mut self, position: Position, subject: &str, id: Option<EntryId>, bytes: &Bytes) {
        self.leadership.delivered(self.now);
        if !self.leadership.is_elected() {
            self.appends.follow_another();
        }
        if !self.log.is_caught_up() {
            self.leadership.look(self.now);
        }
        let parsed = Subject::parse(subject);
        let own = parsed.as_ref().and_then(|subject| self.shards.flight(subject));
        let own = own.filter(|flight| Some(flight.entry.id) == id && flight.bytes == *bytes);
        let own = own.map(|flight| Arc::clone(&flight.entry));
        let entry = match self.log.read(position, subject, bytes, own) {
            Found::Entry(entry) => Some(entry),
            Found::SetAside(none) => {
                self.emit(Effect::SetAside(none));
                None
            }
            Found::Unknown(why) => {
                self.halted = true;
                return self.emit(Effect::Halt(why));
            }
        };
        let changes = self.log.fold(position, entry.as_deref());
        if let Some(subject) = parsed {
            self.delivered(subject, position, bytes);
        }
        if let Some(entry) = entry {
            self.react(&entry, &changes);
            self.feed(position, entry);
        }
        self.answer_waiting();
    }

    /// Publishes a folded entry. Only the leader does so.
    fn feed(&mut self, position: Position, entry: Arc<Entry>) {
        let cluster = self.log.world().cluster().map(|cluster| cluster.id);
        if let Some(cluster) = cluster.filter(|_| self.leads()) {
            self.emit(Effect::Feed { cluster, position, entry });
        }
    }

    /// Settles the entry in flight on a subject, and answers that wait for the follower.
    fn delivered(&mut self, subject: Subject, position: Position, bytes: &Bytes) {
        let delivered = self.shards.delivered(&subject, bytes);
        if let Some(answers) = self.confirmations.delivered(&subject, position) {
            self.judge_again(&subject, answers);
        }
        match delivered {
            Delivered::NoFlight => self.mark_ready(subject),
            Delivered::Ours(flight) => {
                self.stored(&flight);
                for (command, verdict) in flight.decided {
                    self.settle(&command, position, verdict);
                }
                self.mark_ready(subject);
            }
            Delivered::Overtaken(flight) => self.overtaken(subject, flight),
        }
    }

    /// Queues the commands of a flight again, before later ones, because another writer's entry was stored
    /// first.
    fn overtaken(&mut self, subject: Subject, flight: Flight) {
        let commands = flight.decided.into_iter().map(|(command, _)| command);
        let commands: Vec<_> = commands.filter(|command| !self.is_over(command)).collect();
        if !self.leads() && subject != Subject::Cluster {
            for command in commands {
                self.refuse(&command, not_leading(self.settings.may_lead));
            }
            return self.mark_ready(subject);
        }
        commands.iter().filter_map(QueuedCommand::converges).for_each(|due| self.convergence.again(due));
        self.shards.put_back(&subject, commands);
        self.mark_ready(subject);
    }

    /// Marks a subject to be decided in the next turn, unless answers on it wait for confirmation.
    fn mark_ready(&mut self, subject: Subject) {
        if !self.confirmations.holds(&subject) {
            self.shards.mark_ready(subject);
        }
    }

    /// Returns which commands may be decided next on a subject. `None` while answers on it wait for
    /// confirmation, while every append is rejected, or while it waits for a change of the shard count.
    ///
    /// Rejected appends do not block the cluster's subject, because probe entries are appended there.
    pub(super) fn boarding(&self, subject: &Subject) -> Option<Boarding> {
        if self.confirmations.holds(subject) || (self.appends.are_rejected() && *subject != Subject::Cluster)
        {
            return None;
        }
        if self.waits_for_resharding(subject) {
            return None;
        }
        self.shards.boarding(subject, self.settings.bytes_in_flight)
    }

    /// Decides the admitted commands of a subject, and appends the resulting entry.
    pub(super) fn decide(&mut self, subject: Subject, boarding: Boarding) {
        let end = self.log.end(&subject);
        let flying = self.shards.growth().clone();
        let next = || self.shards.pop(&subject, boarding);
        let times = (Times::new(self.shown, &self.timelines), self.now);
        let judged = judge(self.log.world(), &mut self.ids, times, (&subject, end, &flying), next);
        // More of a command may be due than fits into the entry.
        self.shards.put_back(&subject, judged.again);
        for due in judged.decided.iter().filter_map(|(command, _)| command.converges()) {
            self.convergence.decided(due);
        }
        match judged.entry {
            Some((entry, bytes)) => {
                let (expected, growth) = (end.position, judged.growth);
                let (decided, sent, attempts) = (judged.decided, self.now, Attempts::Open);
                self.append(subject, Flight { entry, bytes, expected, decided, sent, attempts, growth });
            }
            None => self.decided_nothing(subject, judged.decided, end.position),
        }
    }

    /// Handles commands that change nothing. The BBS's own commands are settled, all others after
    /// confirmation.
    fn decided_nothing(&mut self, subject: Subject, decided: Answers, judged_at: Position) {
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
        self.shards.depart(subject, flight);
    }

    /// Handles an append that failed or has an unknown outcome.
    pub(super) fn not_appended(&mut self, subject: &Subject, entry: EntryId, why: NotAppended) {
        if !self.shards.flies(subject, entry) {
            return;
        }
        match why {
            // The follower will deliver the entry that was stored first, which settles the flight.
            NotAppended::Conflict => {}
            NotAppended::Unknown { why, stated } => {
                let soon = if self.appends.fail() { READ_AGAIN } else { READ_SOON };
                let certainty = if stated { Certainty::Stated } else { Certainty::Unanswered };
                self.append_failed(&why, certainty);
                if let Some(flight) = self.shards.flight_mut(subject) {
                    flight.attempts = Attempts::Unknown;
                }
                self.shards.read_at(subject, self.now + soon);
            }
            NotAppended::NotStored(why) => {
                let soon = if self.appends.fail() { READ_AGAIN } else { Duration::ZERO };
                self.append_failed(&why, Certainty::NotStored);
                if let Some(flight) = self.shards.flight_mut(subject)
                    && flight.attempts != Attempts::Unknown
                {
                    flight.attempts = Attempts::Rejected(why);
                }
                self.shards.read_at(subject, self.now + soon);
            }
            NotAppended::Refused(why) => {
                let refusal =
                    Refusal::new(Code::Unavailable, format!("the journal refuses the entry: {why}"));
                self.emit(Effect::Warn(refusal.message.clone()));
                self.drop_flight(subject, &refusal);
            }
        }
    }

    /// Refuses all commands of an entry that is not stored and never will be.
    fn drop_flight(&mut self, subject: &Subject, refusal: &Refusal) {
        for (command, _) in self.shards.take_flight(subject).into_iter().flat_map(|one| one.decided) {
            self.not_called(&command.command);
            if command.converges().is_some() {
                self.convergence.sweep_by(self.now + REFUSED_AGAIN);
            }
            self.refuse(&command, refusal.clone());
        }
        self.mark_ready(subject.clone());
    }

    /// Records a failed append. After the first failure, refuses all queued commands of other actors: nothing
    /// of them is stored.
    fn append_failed(&mut self, why: &str, certainty: Certainty) {
        if self.appends.failed(why, certainty, self.now, self.shown) {
            self.emit(Effect::Warn(format!("an append failed and is repeated: {why}")));
            let refusal = self.nothing_stored();
            for command in self.shards.drain_asked() {
                self.refuse(&command, refusal.clone());
            }
        }
        self.report_appends();
    }

    /// Records that an entry of this BBS is in the log.
    fn stored(&mut self, flight: &Flight) {
        if let Some(failed) = self.appends.stored(self.now.since(flight.sent), self.now) {
            let seconds = failed.as_secs();
            self.emit(Effect::Warn(format!("the log takes entries again, after {seconds} s")));
            self.mark_all_ready();
        }
    }

    /// Marks all subjects with queued commands to be decided in the next turn, after appends have recovered.
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
    pub(super) fn nothing_stored(&self) -> Refusal {
        let why = self.appends.refusal().unwrap_or_default();
        Refusal::new(Code::Unavailable, format!("{why}; nothing was stored"))
    }

    /// Performs the actions that are due while appends fail: replies to clients that have waited too long for
    /// an entry in flight, and appends probe entries.
    pub(super) fn tick_appends(&mut self) {
        self.report_appends();
        if self.appends.gives_up_waiting(self.now) {
            let why = self.appends.refusal().unwrap_or_default();
            let why =
                format!("{why}; it is unknown whether this was stored: ask again with the same request id");
            let refusal = Refusal::new(Code::Unavailable, why);
            for command in self.shards.abandon_flights() {
                self.refuse(&command, refusal.clone());
            }
        }
        if self.leads() && self.shards.in_flight() == 0 && self.appends.probes(self.now) {
            // A leader may always record a new term. It also makes the reps send their postponed reports.
            self.campaign(self.leadership.term().saturating_add(1));
        }
    }

    /// Handles the result of a check of the stream.
    pub(super) fn checked(&mut self, found: Result<Option<LogRow>, LogUnread>) {
        match found {
            Ok(log) => self.appends.read(log),
            Err(LogUnread { why, absent }) => self.appends.unread(&why, absent, self.now, self.shown),
        }
    }

    /// Starts the reads of last entries that confirmations need.
    pub(super) fn read_last(&mut self) {
        let reads = self.confirmations.reads();
        self.effects.extend(reads.into_iter().map(Effect::ReadLast));
    }

    /// Handles a subject's last entry: it confirms answers, and settles an append with an unknown outcome.
    pub(super) fn last_read(&mut self, subject: &Subject, last: Result<Last, String>) {
        let stands = last.as_ref().ok().map(|last| last.map_or(Position(0), |(position, _)| position));
        let delivered = self.log.end(subject).position;
        match self.confirmations.read(subject, stands, delivered, self.now) {
            Confirmed::Nothing => self.settle_flight(subject, last),
            Confirmed::Behind => self.leadership.fell_behind(),
            Confirmed::Outdated(answers) => self.judge_again(subject, answers),
            Confirmed::True(answers) => self.settle_all(answers),
        }
        self.mark_ready(subject.clone());
        if *subject == Subject::Cluster {
            for (subject, answers) in self.confirmations.cluster_read(stands, delivered, self.now) {
                self.settle_all(answers);
                self.mark_ready(subject);
            }
        }
        self.read_last();
    }

    /// Sends held answers that are confirmed.
    fn settle_all(&mut self, answers: Answers) {
        for (command, verdict) in answers {
            self.settle(&command, self.world().position(), verdict);
        }
    }

    /// Handles a change of the number of shards. The leader queues every command of a process or a task
    /// again, on its new subject. Other BBSs refuse them.
    ///
    /// The BBS forgets entries that are in flight on old subjects, so it quarantines them like every other
    /// reader does.
    pub(super) fn resharded(&mut self) {
        let held = self.confirmations.drain_shards().into_iter().map(|(command, _)| command);
        for command in held.chain(self.shards.drain_shards()).collect::<Vec<_>>() {
            if !self.leads() {
                self.refuse(&command, not_leading(self.settings.may_lead));
                continue;
            }
            command.converges().into_iter().for_each(|due| self.convergence.again(due));
            let subject = command.command.subject(self.world().shards());
            self.shards.push(subject, command);
        }
    }

    /// Returns `true` if a subject waits for a change of the number of shards.
    ///
    /// The change is recorded when no entry of a process or a task is in flight. Until then no such entry is
    /// sent.
    fn waits_for_resharding(&self, subject: &Subject) -> bool {
        let is_asked = || self.shards.holds(&Subject::Cluster, QueuedCommand::reshards);
        match subject {
            Subject::Cluster => self.shards.flies_on_shards() && is_asked(),
            Subject::Lrp(_) | Subject::Task(_) => is_asked(),
            Subject::Cell(_) | Subject::Domain(_) => false,
        }
    }

    /// Queues commands again that were judged on an outdated World, before later ones. Refuses them if this
    /// BBS does not lead.
    fn judge_again(&mut self, subject: &Subject, answers: Answers) {
        let commands = answers.into_iter().map(|(command, _)| command);
        if self.leads() {
            self.shards.put_back(subject, commands);
        } else {
            commands.for_each(|command| self.refuse(&command, not_leading(self.settings.may_lead)));
        }
    }

    /// Refuses commands whose confirmation takes longer than clients wait.
    pub(super) fn give_up_confirming(&mut self) {
        for (subject, answers) in self.confirmations.tick(self.now) {
            let why = "the journal did not confirm in time that this BBS knows its end: try again";
            let refusal = Refusal::new(Code::Unavailable, why);
            for (command, _) in answers {
                self.refuse(&command, refusal.clone());
            }
            self.mark_ready(subject);
        }
        self.read_last();
    }

    /// Settles an append with an unknown outcome by the subject's last entry.
    fn settle_flight(&mut self, subject: &Subject, last: Result<Last, String>) {
        let Some(flight) = self.shards.flight(subject) else { return };
        let Ok(last) = last else { return self.shards.read_at(subject, self.now + READ_AGAIN) };
        let (position, entry) = last.unwrap_or((Position(0), None));
        let stored = entry == Some(flight.entry.id);
        // The entry or another one was stored. The follower will deliver it, which settles the flight.
        if stored || position != flight.expected {
            return;
        }
        if let Attempts::Rejected(_) = flight.attempts {
            let refusal = self.nothing_stored();
            return self.drop_flight(subject, &refusal);
        }
        self.not_stored(subject.clone());
    }

    /// Appends an entry again that was not stored. The entry is unchanged, because the first attempt may
    /// still be in flight.
    ///
    /// If another BBS leads, or a cell that it declares lost is alive, its commands are queued again or
    /// refused instead.
    fn not_stored(&mut self, subject: Subject) {
        let Some(flight) = self.shards.take_flight(&subject) else { return };
        let deposed = !self.leads() && subject != Subject::Cluster;
        if deposed || flight.decided.iter().any(|(command, _)| self.is_over(command)) {
            return self.overtaken(subject, flight);
        }
        self.append(subject, flight);
    }

    /// Returns `true` if a command is obsolete: it declares a cell lost that is alive.
    fn is_over(&self, command: &QueuedCommand) -> bool {
        command.command.lost_cell().is_some_and(|cell| !self.presence.is_silent(cell))
    }
}
