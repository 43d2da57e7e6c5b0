//! Judging of a batch of commands: deciding for each command whether it is carried out. Each command is
//! decided against the World (the state folded from the log) and the earlier decisions of the batch. A
//! scratch copy holds the results of those decisions. Judging never changes the World.

mod preemption;
mod quotas;
mod unchanged;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use projections::World;
use projections::reader::End;
use schemas::entry::{Aggregate, Event};
use schemas::names::{DecisionId, EntryId, IdGenerator, ServiceId};
use schemas::stamp::{Actor, Identity};
use schemas::subject::Subject;
use schemas::{Cause, Code, Decision, Entry, Origin, Refusal, Timestamp, cluster, limits};

pub(crate) use self::quotas::Growth;
use crate::aggregates::{State, Target};
use crate::command::{QueuedCommand, Verdict};
use crate::scratch::{Changes, Scratch};
use crate::timelines::Times;

/// A batch that is being judged.
pub(crate) struct Batch<'a> {
    scratch: Scratch<'a>,
    ids: &'a mut IdGenerator,
    /// Steady time, which never goes back. The time that a command has waited in the BBS is measured in
    /// steady time, and is compared with the timeout of the command.
    steady: Timestamp,
    /// Growth of domains (additional work that quotas limit) through the clients' commands of this batch.
    growth: Growth,
    /// Growth of domains through entries in flight. The journal has not acknowledged these entries yet, so
    /// the World does not include them.
    in_flight: &'a Growth,
    decisions: Vec<Decision>,
    json: Vec<u8>,
}

/// Space for the decisions of an entry, in bytes. Longer entries grow it.
const USUAL_ENTRY_BYTES: usize = 4096;

/// Result of judging a batch.
pub(crate) struct Judged {
    /// Judged commands in order, each with its verdict. The BBS sends the verdicts once the entry is settled
    /// (stored or rejected).
    pub(crate) decided: Vec<(QueuedCommand, Verdict)>,
    /// Command that the next batch must judge first, because this batch is full and may not contain all
    /// decisions of the command. `None` if there is no such command.
    pub(crate) again: Option<QueuedCommand>,
    /// The entry to append, and its encoding; `None` if no command changes anything.
    pub(crate) entry: Option<(Arc<Entry>, Bytes)>,
    /// Growth of domains through this entry.
    pub(crate) growth: Growth,
}

/// Judges the commands that `next` returns, until the entry is full or no commands are left.
///
/// `end` is the end of `subject`. `flying` is the growth of domains through entries in flight. `steady` is
/// the steady time, against which the timeout of each command is checked.
pub(crate) fn judge<'a>(
    world: &'a World,
    ids: &'a mut IdGenerator,
    (times, steady): (Times<'a>, Timestamp),
    (subject, end, flying): (&Subject, End, &'a Growth),
    mut next: impl FnMut() -> Option<QueuedCommand>,
) -> Judged {
    let now = times.time_on(|| subject.clone());
    let at = now.max(end.at.next());
    let mut batch = Batch {
        scratch: Scratch { world, times, now, at, changed: Changes::default(), single_version: end.version },
        ids,
        steady,
        growth: Growth::default(),
        in_flight: flying,
        decisions: vec![],
        json: Vec::with_capacity(USUAL_ENTRY_BYTES),
    };
    let (mut decided, mut again) = (vec![], None);
    while !batch.is_full() && decided.len() < limits::BATCH {
        let Some(queued) = next() else { break };
        let verdict = batch.judge_command(&queued);
        // The batch is full, so it ends here. If the command can cause several decisions, the batch may lack
        // some of these decisions.
        again = (batch.is_full() && queued.converges_several()).then(|| queued.clone());
        decided.push((queued, verdict));
    }
    let growth = std::mem::take(&mut batch.growth);
    let entry = (!batch.decisions.is_empty()).then(|| batch.finish());
    Judged { decided, again, entry, growth }
}

/// Checks that an auctioneer leads in a term, according to the part of the log that this BBS has read.
///
/// # Errors
/// `StaleTerm` if the auctioneer does not lead. `Unavailable` if this BBS has not read the log up to that
/// term.
pub(crate) fn check_auctioneer(world: &World, id: &ServiceId, term: u64) -> Result<(), Refusal> {
    let leader = world.cluster().and_then(|cluster| cluster.auctioneer.as_ref());
    if leader.is_none_or(|leader| leader.term < term) {
        let why = format!("this BBS has not read the election of auctioneer term {term} yet: try again");
        return Err(Refusal::new(Code::Unavailable, why));
    }
    if !leader.is_some_and(|leader| leader.id == *id && leader.term == term) {
        return Err(Refusal::new(Code::StaleTerm, format!("auctioneer {id} does not lead in term {term}")));
    }
    Ok(())
}

impl Batch<'_> {
    /// Judges one command. The command becomes a decision if it changes something, or if its request id must
    /// be remembered.
    fn judge_command(&mut self, queued: &QueuedCommand) -> Verdict {
        let target = queued.command.target();
        let state = target.state(&self.scratch);
        check_domain(queued, target, &state)?;
        self.check_term(queued)?;
        // A request that was already carried out gets the first answer again, even after its timeout.
        if let Some(version) = remembered_version(queued, &state)? {
            return Ok(version);
        }
        // A dispatch with a key that was used before gets the answer of the first dispatch.
        let dispatched = target.dispatched_version(&self.scratch)?;
        if let Some(version) = dispatched.filter(|_| queued.envelope.request_id.is_none()) {
            return Ok(version);
        }
        self.check_timeout(queued)?;
        check_version(queued, state.version)?;
        self.scratch.check_unchanged(queued, target, &state)?;
        if queued.epoch.is_some() && queued.epoch != state.epoch {
            return Err(Refusal::new(Code::StaleEpoch, "the work belongs to another epoch of its guid"));
        }
        loop {
            if let Some(eviction) = target.eviction() {
                self.scratch.check_preemption(&eviction.preemptor)?;
            }
            let events = target.decide(&self.scratch)?;
            if events.is_empty() && queued.envelope.request_id.is_none() {
                return Ok(target.state(&self.scratch).version);
            }
            let growth = self.check_quota(queued, &events)?;
            let recorded = self.record(queued, events)?;
            self.grow(queued, growth);
            let version = dispatched.unwrap_or(recorded);
            // The command may cause several decisions. Each round makes one decision.
            if !queued.converges_several() || self.is_full() {
                return Ok(version);
            }
        }
    }

    /// Adds one decision for the events, and one decision for each task that the events launch. If one of
    /// these decisions fails, none of them is added.
    fn record(&mut self, queued: &QueuedCommand, events: Vec<Event>) -> Verdict {
        let target = queued.command.target();
        let launches = target.launched_tasks(&self.scratch, &events);
        let (cause, aggregate) = (self.cause(target, &events), target.aggregate(&self.scratch, &events));
        let version = target.state(&self.scratch).version + 1;
        let decision = self.decision(queued, self.scratch.at, cause, (aggregate, version, events));
        let mut at = decision.at;
        let cause = Cause { decision: decision.id, correlation: decision.correlation };
        let mut all = vec![decision];
        for desired in launches {
            at = at.next();
            let (events, launched, aggregate) = self.scratch.launch(desired, at)?;
            // The request id is stored with the decision about the launch. The answer to a repeated request
            // comes from that decision.
            let decision = self.decision(queued, at, Some(cause), (aggregate, launched, events));
            all.push(Decision { request_id: None, request_digest: None, ..decision });
        }
        let before = self.json.len();
        if let Err(refusal) = all.iter().try_for_each(|decision| encode_decision(decision, &mut self.json)) {
            self.json.truncate(before);
            return Err(refusal);
        }
        for decision in all {
            self.scratch.evolve(&decision);
            self.scratch.at = self.scratch.at.next();
            self.decisions.push(decision);
        }
        Ok(version)
    }

    /// Refuses a command that has waited longer than its timeout.
    fn check_timeout(&self, queued: &QueuedCommand) -> Result<(), Refusal> {
        let Some(timeout) = queued.envelope.timeout_ms.map(Duration::from_millis) else { return Ok(()) };
        let waited = self.steady.since(queued.received);
        if waited < timeout {
            return Ok(());
        }
        let (waited, timeout) = (waited.as_secs_f64(), timeout.as_secs_f64());
        let why =
            format!("the command waited {waited:.1} s in the BBS, longer than its timeout of {timeout:.1} s");
        Err(Refusal::new(Code::DeadlinePassed, why))
    }

    fn is_full(&self) -> bool {
        self.json.len() >= limits::ENTRY_BYTES / 2
    }

    /// Refuses a command of an auctioneer that no longer leads. Another auctioneer may have been elected
    /// while the command waited.
    fn check_term(&self, queued: &QueuedCommand) -> Result<(), Refusal> {
        let (Actor::Auctioneer(id), Some(term)) = (&queued.actor, queued.term) else { return Ok(()) };
        check_auctioneer(self.scratch.world, id, term)
    }

    fn decision(
        &mut self,
        queued: &QueuedCommand,
        at: Timestamp,
        cause: Option<Cause>,
        (aggregate, version, events): (Aggregate, u64, Vec<Event>),
    ) -> Decision {
        let id = DecisionId(self.ids.next(at));
        Decision {
            id,
            aggregate,
            version,
            at,
            actor: queued.actor.clone(),
            request_id: queued.envelope.request_id.clone(),
            request_digest: queued.digest.clone(),
            cause: cause.map(|cause| cause.decision),
            correlation: cause.map_or(id, |cause| cause.correlation),
            reason: queued.envelope.reason.clone(),
            traceparent: queued.envelope.traceparent.clone(),
            events,
        }
    }

    /// Returns the cause of a decision. `None` if the decision is the first of a chain of causes.
    fn cause(&self, target: &dyn Target, events: &[Event]) -> Option<Cause> {
        if let Some(eviction) = target.eviction() {
            return self.scratch.check_preemption(&eviction.preemptor).ok();
        }
        let world = self.scratch.world;
        match target.origin(&self.scratch, events) {
            Origin::Root => None,
            Origin::Decision(cause) => Some(cause),
            Origin::CellChange(id) => world.cell(&id).map(|cell| cell.cause),
            Origin::Cell(id, earlier) => {
                let cell = world.cell(&id).filter(|cell| !cell.present || cell.evacuating);
                cell.map(|cell| cell.cause).or(earlier)
            }
        }
    }

    fn finish(self) -> (Arc<Entry>, Bytes) {
        let id = EntryId(self.ids.next(self.scratch.now));
        let bytes = Entry::encode_decisions(id, &self.json);
        (Arc::new(Entry { id, format: cluster::FORMAT, decisions: self.decisions }), bytes.into())
    }
}

/// Refuses a client's command if the domain of its aggregate differs from the domain in the subject of the
/// request.
fn check_domain(queued: &QueuedCommand, target: &dyn Target, state: &State<'_>) -> Result<(), Refusal> {
    let Actor::Client { domain, .. } = &queued.actor else { return Ok(()) };
    let Some(stored) = state.domain.filter(|stored| *stored != domain) else { return Ok(()) };
    let what = target.name();
    let why = format!("{what} is in domain {stored}, but the subject names domain {domain}");
    Err(Refusal::new(Code::Forbidden, why))
}

/// Returns the version that an earlier copy of the same request produced. `None` if the request was not
/// carried out yet.
fn remembered_version(queued: &QueuedCommand, state: &State<'_>) -> Result<Option<u64>, Refusal> {
    let Some(id) = queued.envelope.request_id.clone() else { return Ok(None) };
    let request = Identity { actor: queued.actor.clone(), id, digest: queued.digest.clone() };
    state.requests.map_or(Ok(None), |requests| requests.answer(&request))
}

fn check_version(queued: &QueuedCommand, version: u64) -> Result<(), Refusal> {
    let Some(expected) = queued.envelope.expect_version else { return Ok(()) };
    if version == expected {
        return Ok(());
    }
    let why = format!("expected version {expected}, but the current version is {version}");
    Err(Refusal::new(Code::ResourceConflict, why))
}

/// Appends the JSON of a decision to those of the entry.
fn encode_decision(decision: &Decision, json: &mut Vec<u8>) -> Result<(), Refusal> {
    if !json.is_empty() {
        json.push(b',');
    }
    let before = json.len();
    serde_json::to_writer(&mut *json, decision).expect("a decision is plain data");
    let bytes = json.len() - before;
    if bytes > limits::DECISION_BYTES {
        let why = format!("the decision takes {bytes} bytes: the limit is {}", limits::DECISION_BYTES);
        return Err(Refusal::new(Code::InvalidRequest, why));
    }
    Ok(())
}
