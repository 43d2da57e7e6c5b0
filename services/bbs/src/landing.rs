//! The journal's side: what the follower delivers, what is launched, what went wrong on the way.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use projections::reader::{self, Read};
use schemas::names::EntryId;
use schemas::query::NoEntry;
use schemas::subject::{Position, Subject};
use schemas::{Code, Entry, Refusal, Timestamp};

use crate::asking::not_leading;
use crate::confirm::{Answers, Confirmed};
use crate::judge::{Judged, judge};
use crate::machine::{Bbs, Effect, NotAppended};
use crate::shard::{Command, Flight, Item, Landing, Origin, Shard};

/// How soon is looked again at what the journal would not take a decision on.
const REFUSED_AGAIN: Duration = Duration::from_secs(1);

impl Bbs {
    pub(crate) fn recorded(
        &mut self,
        now: Timestamp,
        position: Position,
        subject: &str,
        id: Option<EntryId>,
        bytes: &Bytes,
        out: &mut Vec<Effect>,
    ) {
        self.moved_at = now;
        self.behind = false;
        let Some(entry) = self.read(position, subject, id, bytes, out) else { return };
        let changes = self.world.fold(position, &entry);
        if let Some(subject) = Subject::parse(subject) {
            self.delivered(subject, position, &entry, bytes, out);
        }
        self.react(now, &entry, &changes, out);
        self.answer_waiting(now, out);
    }

    /// What the journal holds at a position; nothing decided where it holds no entry. None: this program can't go on.
    fn read(
        &mut self,
        position: Position,
        subject: &str,
        id: Option<EntryId>,
        bytes: &Bytes,
        out: &mut Vec<Effect>,
    ) -> Option<Arc<Entry>> {
        let own = Subject::parse(subject).and_then(|subject| self.shards.get(&subject)?.flight.as_ref());
        if let Some(own) = own.filter(|flight| Some(flight.entry.id) == id && flight.bytes == *bytes) {
            let entry = Arc::clone(&own.entry);
            self.reader.note(position, &entry);
            return Some(entry);
        }
        match self.reader.read(position, subject, bytes) {
            Ok(Read::Entry(entry)) => Some(Arc::new(entry)),
            Ok(Read::SetAside(why)) => {
                out.push(Effect::SetAside(NoEntry { position, subject: subject.to_owned(), why }));
                Some(Arc::new(reader::nothing()))
            }
            Err(why) => {
                self.halted = true;
                out.push(Effect::Halt(format!("position {position}: {why}")));
                None
            }
        }
    }

    /// Settles what is in flight on a subject. An entry is ours only as we wrote it: if what is stored under its id
    /// is something else, our decisions are not in the log.
    fn delivered(
        &mut self,
        subject: Subject,
        position: Position,
        entry: &Arc<Entry>,
        bytes: &Bytes,
        out: &mut Vec<Effect>,
    ) {
        self.retry_at.remove(&subject);
        let shard = self.shards.entry(subject.clone()).or_default();
        let ours = shard.flight.as_ref().is_some_and(|flight| flight.bytes == *bytes);
        let landing = shard.delivered(position, ours, entry.decisions.last());
        if let Some(answers) = self.confirmations.delivered(&subject, position) {
            self.judge_again(&subject, answers, out);
        }
        self.mark_ready(&subject);
        match landing {
            Landing::None => {}
            Landing::Ours(flight) => self.landed(&subject, position, flight, out),
            Landing::Overtaken(flight) => self.overtaken(&subject, flight, out),
        }
    }

    pub(crate) fn landed(
        &mut self,
        subject: &Subject,
        position: Position,
        flight: Flight,
        out: &mut Vec<Effect>,
    ) {
        for (item, verdict) in flight.items.into_iter().zip(flight.verdicts) {
            self.settle(&item, position, verdict, out);
        }
        self.mark_ready(subject);
    }

    /// Somebody else was first: everything is decided again, in its order, before what came later.
    pub(crate) fn overtaken(&mut self, subject: &Subject, mut flight: Flight, out: &mut Vec<Effect>) {
        flight.items.retain(|item| !self.is_over(item));
        if !self.leading && *subject != Subject::Cluster {
            for item in flight.items {
                self.settle(&item, Position(0), Err(not_leading()), out);
            }
            return;
        }
        let shard = self.shards.entry(subject.clone()).or_default();
        for item in flight.items.into_iter().rev() {
            if let Some(suspect) = item.suspect() {
                self.flying.remove(&suspect);
                self.own.insert(suspect);
            }
            self.waiting += 1;
            shard.queue.push_front(item);
        }
        self.mark_ready(subject);
    }

    pub(crate) fn mark_ready(&mut self, subject: &Subject) {
        if !self.confirmations.holds(subject) && self.shards.get(subject).is_some_and(Shard::is_ready) {
            self.ready.insert(subject.clone());
        }
    }

    pub(crate) fn launch(&mut self, now: Timestamp, subject: &Subject, out: &mut Vec<Effect>) {
        if self.confirmations.holds(subject) {
            return;
        }
        let Some(shard) = self.shards.get_mut(subject).filter(|shard| shard.is_ready()) else { return };
        let judged_at = shard.last;
        let before = shard.queue.len();
        let judged = judge(&self.world, &mut self.ids, self.shown, shard);
        self.waiting -= before - shard.queue.len();
        match judged {
            Judged::Settled(settled) => {
                let (own, answers): (Vec<_>, Vec<_>) =
                    settled.into_iter().partition(|(item, _)| item.origin == Origin::Own);
                for (item, verdict) in own {
                    self.looked_at(&item);
                    self.settle(&item, self.world.position(), verdict, out);
                }
                if !answers.is_empty() {
                    self.confirmations.hold(subject, answers, judged_at, now);
                }
                self.mark_ready(subject);
            }
            Judged::Append(flight) => {
                out.push(append(subject, &flight));
                flight.items.iter().for_each(|item| self.looked_at(item));
                self.shards.entry(subject.clone()).or_default().flight = Some(flight);
            }
        }
    }

    fn looked_at(&mut self, item: &Item) {
        if let Some(suspect) = item.suspect() {
            self.own.remove(&suspect);
            self.flying.insert(suspect);
        }
    }

    pub(crate) fn not_appended(
        &mut self,
        now: Timestamp,
        subject: &Subject,
        entry: EntryId,
        why: NotAppended,
        out: &mut Vec<Effect>,
    ) {
        let Some(shard) = self.shards.get_mut(subject) else { return };
        let Some(flight) = shard.flight.take_if(|flight| flight.entry.id == entry) else { return };
        match why {
            // The follower will deliver what was there first, and that settles the flight.
            NotAppended::Conflict => shard.flight = Some(flight),
            NotAppended::Unknown => {
                shard.flight = Some(flight);
                self.retry_at.insert(subject.clone(), now + Duration::from_millis(50));
            }
            NotAppended::Refused(why) => {
                let refusal =
                    Refusal::new(Code::Unavailable, format!("the journal refuses the entry: {why}"));
                out.push(Effect::Warn(refusal.message.clone()));
                for item in flight.items {
                    self.not_called(now, &item.command);
                    if item.suspect().is_some() {
                        self.converge_at = self.converge_at.min(now + REFUSED_AGAIN);
                    }
                    self.settle(&item, Position(0), Err(refusal.clone()), out);
                }
                self.mark_ready(subject);
            }
        }
    }

    /// Has the last entries read of which something depends.
    pub(crate) fn read_last(&mut self, out: &mut Vec<Effect>) {
        out.extend(self.confirmations.reads().into_iter().map(Effect::ReadLast));
    }

    /// What stands last on a subject: it confirms answers, and settles an append of which nobody knows.
    pub(crate) fn last(
        &mut self,
        now: Timestamp,
        subject: &Subject,
        last: Result<Option<(Position, Option<EntryId>)>, String>,
        out: &mut Vec<Effect>,
    ) {
        let stands = last.as_ref().ok().map(|last| last.map_or(Position(0), |(position, _)| position));
        let delivered = self.shards.get(subject).map_or(Position(0), |shard| shard.last);
        match self.confirmations.read(subject, stands, delivered, now) {
            Confirmed::Nothing => self.settle_flight(now, subject, last, out),
            Confirmed::Behind => self.behind = true,
            Confirmed::Outdated(answers) => self.judge_again(subject, answers, out),
            Confirmed::True(answers) => {
                for (item, verdict) in answers {
                    self.settle(&item, self.world.position(), verdict, out);
                }
            }
        }
        self.mark_ready(subject);
        self.read_last(out);
    }

    /// What was judged on an old picture is judged again, before what came later; by another BBS if this one doesn't lead.
    fn judge_again(&mut self, subject: &Subject, answers: Answers, out: &mut Vec<Effect>) {
        if !self.leading {
            for (item, _) in answers {
                self.settle(&item, Position(0), Err(not_leading()), out);
            }
            return;
        }
        self.waiting += answers.len();
        let shard = self.shards.entry(subject.clone()).or_default();
        answers.into_iter().rev().for_each(|(item, _)| shard.queue.push_front(item));
        self.mark_ready(subject);
    }

    /// Whoever waits longer for a confirmation than a client does is told to try again.
    pub(crate) fn give_up_confirming(&mut self, now: Timestamp, out: &mut Vec<Effect>) {
        for (subject, answers) in self.confirmations.tick(now) {
            let why = "the journal did not confirm in time that this BBS knows its end: try again";
            let refusal = Refusal::new(Code::Unavailable, why);
            for (item, _) in answers {
                self.settle(&item, Position(0), Err(refusal.clone()), out);
            }
            self.mark_ready(&subject);
        }
        self.read_last(out);
    }

    /// Settles an append of which nobody knows: what stands last on the subject tells.
    fn settle_flight(
        &mut self,
        now: Timestamp,
        subject: &Subject,
        last: Result<Option<(Position, Option<EntryId>)>, String>,
        out: &mut Vec<Effect>,
    ) {
        let Some(shard) = self.shards.get_mut(subject) else { return };
        let Some(flight) = shard.flight.take() else { return };
        match last {
            Err(_) => {
                self.retry_at.insert(subject.clone(), now + Duration::from_millis(500));
            }
            Ok(last) => {
                let (position, entry) = last.unwrap_or((Position(0), None));
                let stored = entry == Some(flight.entry.id);
                if !stored && position == flight.expected {
                    return self.not_stored(subject, flight, out);
                }
                // Otherwise it is stored, or somebody else was first: the follower will tell which.
            }
        }
        shard.flight = Some(flight);
    }

    /// An entry was not stored: it is appended again as it is, for the first attempt may still be under way. Unless its
    /// time is over: somebody else leads, or a cell that was given up is heard again.
    fn not_stored(&mut self, subject: &Subject, flight: Flight, out: &mut Vec<Effect>) {
        let deposed = !self.leading && *subject != Subject::Cluster;
        if deposed || flight.items.iter().any(|item| self.is_over(item)) {
            return self.overtaken(subject, flight, out);
        }
        out.push(append(subject, &flight));
        self.shards.entry(subject.clone()).or_default().flight = Some(flight);
    }

    /// Whether a command has no reason any more: a cell that was given up is heard again.
    fn is_over(&self, item: &Item) -> bool {
        match &item.command {
            Command::Lost(cell, _) => !self.presence.is_silent(cell),
            Command::Process(..)
            | Command::Task(..)
            | Command::Refresh(..)
            | Command::Seen(..)
            | Command::Left(..)
            | Command::Cell(..)
            | Command::Lead { .. } => false,
        }
    }
}

fn append(subject: &Subject, flight: &Flight) -> Effect {
    Effect::Append {
        subject: subject.clone(),
        expected: flight.expected,
        entry: flight.entry.id,
        bytes: flight.bytes.clone(),
    }
}
