//! Ids, versions, times and requests in the log; the cluster, its cells and its domains.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use projections::RETENTION;
use schemas::cluster::{self, Role};
use schemas::entry::{Aggregate, Event};
use schemas::limits::REMEMBERED_REQUESTS;
use schemas::message::Envelope;
use schemas::names::{
    CellId, DecisionId, DefinitionId, Domain, EntryId, Incarnation, ProcessGuid, RequestId, ServiceId,
};
use schemas::spec::ClientCommand;
use schemas::stamp::Actor;
use schemas::subject::{Position, Subject, shard_subjects};
use schemas::{Decision, Entry, Timestamp, cell, domain};

use super::Notes;
use super::causes::is_launched;
use crate::asked::ClientRequest;
use crate::coverage::Situation;
use crate::journal::Stored;
use crate::nodes::Life;
use crate::promises::Promise as P;

/// What a decision says of the request that it carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Carried {
    pub(super) position: Position,
    pub(super) version: u64,
    pub(super) aggregate: String,
}

/// What is known of the log as a whole, and of what is neither process nor task.
#[derive(Default)]
pub(super) struct Log {
    entries: BTreeSet<EntryId>,
    decisions: BTreeSet<DecisionId>,
    times: BTreeMap<Subject, Timestamp>,
    versions: BTreeMap<String, (u64, Timestamp)>,
    carried: BTreeMap<RequestId, Vec<Carried>>,
    cells: BTreeMap<CellId, Vec<(Position, CellNow)>>,
    domains: BTreeMap<Domain, Vec<(Position, Option<Timestamp>)>>,
    terms: BTreeMap<Role, u64>,
    /// The ordinals of cells, as they changed.
    ordinals: Vec<(Position, BTreeMap<u32, CellId>)>,
    /// Who was elected, and where.
    leaders: Vec<Leader>,
    /// Where preemption was switched on or off.
    preemption: Vec<(Position, bool)>,
    founded: bool,
    shards: u16,
    /// Numbers of shards before the present one.
    earlier_shards: BTreeSet<u16>,
    /// Where the log ends, and each subject.
    end: Position,
    ends: BTreeMap<Subject, Position>,
    asked: BTreeMap<RequestId, Asked>,
    /// When each BBS got each command first and last, and what of each it carried out.
    arrivals: BTreeMap<(Life, RequestId), (u64, u64)>,
    arrived: u64,
    done: BTreeMap<(Life, String, String), Vec<RequestId>>,
}

/// So long what an auctioneer said may wait to be decided.
const IN_TURN: Duration = Duration::from_secs(10);

/// Somebody who was elected.
struct Leader {
    position: Position,
    at: Timestamp,
    role: Role,
    id: ServiceId,
}

/// What is known of a request.
struct Asked {
    domain: Domain,
    envelope: Envelope,
    /// When the patience of the copy is over that a BBS may carry out last. `None` if no copy has come to a BBS.
    until: Option<Timestamp>,
    /// For how long a domain is to be fresh, if that is what was asked.
    fresh: Option<Option<Duration>>,
    /// The index that is to be retired, if that is what was asked, and of which definition.
    retires: Option<(u32, Option<DefinitionId>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CellNow {
    incarnation: Incarnation,
    present: bool,
    healthy: bool,
    evacuating: bool,
    /// Whether an operator wants it evacuated.
    wanted: bool,
    cordoned: bool,
}

impl CellNow {
    /// A cell, or a new incarnation of it, is there.
    fn appeared(last: Option<Self>, incarnation: Incarnation) -> Self {
        // One that was lost while it evacuated, and starts anew, has nothing left to move away.
        let over = |last: &Self| !last.present && last.evacuating && last.incarnation != incarnation;
        let wanted = last.is_some_and(|last| last.wanted && !over(&last));
        let cordoned = last.is_some_and(|last| last.cordoned);
        Self { incarnation, present: true, healthy: true, evacuating: false, wanted, cordoned }
    }
}

impl Log {
    /// Something stands at a position: behind all that was there, and behind what its writer expected on its subject.
    pub(super) fn stands(
        &mut self,
        subject: &Subject,
        position: Position,
        expected: Option<Position>,
        notes: &mut Notes,
    ) {
        let end = std::mem::replace(&mut self.end, position);
        notes.must(P::LogKept, position.0 == end.0 + 1, || format!("after {end} comes {position}"));
        let last = self.ends.insert(subject.clone(), position).unwrap_or_default();
        notes.must(P::CompareAndSet, expected.is_none_or(|expected| expected == last), || {
            format!("{subject} ended at {last}, the writer expected {expected:?}")
        });
    }

    /// Number of subjects that have entries, or are those of shards.
    pub(super) fn subjects(&self) -> usize {
        self.ends.len()
    }

    /// A client sends a command.
    pub(super) fn asked(&mut self, request: &ClientRequest) {
        let retires = match &request.command {
            ClientCommand::LrpRetire { index, definition_id, .. } => Some((*index, definition_id.clone())),
            ClientCommand::LrpDesire(_)
            | ClientCommand::PeriodicDesire(_)
            | ClientCommand::PeriodicUpdate(_)
            | ClientCommand::PeriodicAction { .. }
            | ClientCommand::ParameterisedDesire(_)
            | ClientCommand::ParameterisedUpdate(_)
            | ClientCommand::ParameterisedDispatch { .. }
            | ClientCommand::ParameterisedWithdraw { .. }
            | ClientCommand::ParameterisedRemove { .. }
            | ClientCommand::LrpUpdate { .. }
            | ClientCommand::LrpActivate { .. }
            | ClientCommand::LrpRestart { .. }
            | ClientCommand::LrpSteer { .. }
            | ClientCommand::LrpRetry { .. }
            | ClientCommand::InstanceExec { .. }
            | ClientCommand::TaskRetry { .. }
            | ClientCommand::LrpRemove { .. }
            | ClientCommand::DomainUpsert { .. }
            | ClientCommand::TaskDesire(_)
            | ClientCommand::TaskCancel { .. }
            | ClientCommand::TaskResolve { .. } => None,
        };
        let fresh = match &request.command {
            ClientCommand::DomainUpsert { ttl_ms, .. } => Some(ttl_ms.map(Duration::from_millis)),
            ClientCommand::LrpDesire(_)
            | ClientCommand::PeriodicDesire(_)
            | ClientCommand::PeriodicUpdate(_)
            | ClientCommand::PeriodicAction { .. }
            | ClientCommand::ParameterisedDesire(_)
            | ClientCommand::ParameterisedUpdate(_)
            | ClientCommand::ParameterisedDispatch { .. }
            | ClientCommand::ParameterisedWithdraw { .. }
            | ClientCommand::ParameterisedRemove { .. }
            | ClientCommand::LrpUpdate { .. }
            | ClientCommand::LrpActivate { .. }
            | ClientCommand::LrpRestart { .. }
            | ClientCommand::LrpSteer { .. }
            | ClientCommand::LrpRetry { .. }
            | ClientCommand::InstanceExec { .. }
            | ClientCommand::TaskRetry { .. }
            | ClientCommand::LrpRemove { .. }
            | ClientCommand::LrpRetire { .. }
            | ClientCommand::TaskDesire(_)
            | ClientCommand::TaskCancel { .. }
            | ClientCommand::TaskResolve { .. } => None,
        };
        let (domain, envelope) = (request.domain.clone(), request.envelope.clone());
        self.asked.insert(request.id(), Asked { domain, envelope, until: None, fresh, retires });
    }

    /// A BBS gets a client's command, which it may carry out until then.
    pub(super) fn arrives(&mut self, bbs: Life, request: &RequestId, until: Option<Timestamp>) {
        if let Some(asked) = self.asked.get_mut(request) {
            asked.until = asked.until.max(until);
        }
        self.arrived += 1;
        let arrived = self.arrived;
        self.arrivals.entry((bbs, request.clone())).or_insert((arrived, arrived)).1 = arrived;
    }

    /// A BBS carries a command out: after all that it got before, of what the command is about.
    pub(super) fn carries(&mut self, bbs: Life, decision: &Decision, notes: &mut Notes) {
        let Some(request) = &decision.request_id else { return };
        let came = |request: &RequestId| self.arrivals.get(&(bbs, request.clone())).copied();
        // Others take turns: what counts is the order of each by itself.
        let client = format!("{:?}", decision.actor);
        let done = self.done.entry((bbs, decision.aggregate.to_string(), client)).or_default();
        if let Some((_, last)) = came(request) {
            let later = done.iter().find(|other| came(other).is_some_and(|(first, _)| first > last));
            notes.must(P::ClientsInOrder, later.is_none(), || {
                format!("request {request} is carried out after {later:?}, which came later")
            });
        }
        done.push(request.clone());
    }

    /// The index that a decision was asked to retire, and of which definition.
    pub(super) fn retires(&self, decision: &Decision) -> Option<&(u32, Option<DefinitionId>)> {
        self.asked.get(decision.request_id.as_ref()?)?.retires.as_ref()
    }

    /// Where a cell disappeared that is absent still.
    pub(super) fn absent_since(&self, cell: &CellId) -> Option<Position> {
        let (position, now) = self.cells.get(cell)?.last()?;
        (!now.present).then_some(*position)
    }

    /// Returns `true` if an entry belongs on its subject by an earlier number of shards, and not by the present one: a deposed BBS sent it before
    /// it knew of the change, and every reader sets it aside.
    pub(super) fn is_overtaken(&self, entry: &Entry, subject: &Subject) -> bool {
        let belongs = |shards| entry.decisions.iter().all(|one| one.aggregate.subject(shards) == *subject);
        !belongs(self.shards) && self.earlier_shards.iter().any(|shards| belongs(*shards))
    }

    /// An entry is new, on its own subject, and time in that subject doesn't run backwards.
    pub(super) fn entry(
        &mut self,
        entry: &Entry,
        stored: &Stored,
        position: Position,
        slack: Duration,
        notes: &mut Notes,
    ) {
        notes.must(P::NothingTwice, self.entries.insert(entry.id), || {
            format!("entry {} is stored twice", entry.id)
        });
        notes.must(P::NothingTwice, Some(entry.id) == stored.entry, || {
            format!("entry {} is stored as {:?}", entry.id, stored.entry)
        });
        notes.must(P::OnItsSubject, !entry.decisions.is_empty(), || "an empty entry".into());
        for decision in &entry.decisions {
            let own = decision.aggregate.subject(self.shards);
            notes.must(P::OnItsSubject, own == stored.subject, || {
                format!("{:?} on {}", decision.aggregate, stored.subject)
            });
            let last = self.times.insert(stored.subject.clone(), decision.at);
            let later = last.is_none_or(|last| last < decision.at);
            notes.must(P::TimeForward, later, || {
                format!("{} goes back from {last:?} to {}", stored.subject, decision.at)
            });
            notes.must(P::NothingTwice, self.decisions.insert(decision.id), || {
                format!("decision {} is there twice", decision.id)
            });
            self.version(decision, position, slack, notes);
        }
    }

    /// Versions of processes, tasks, periodic and parameterised tasks count up by one, others just up. A request is carried out once.
    fn version(&mut self, decision: &Decision, position: Position, slack: Duration, notes: &mut Notes) {
        let (aggregate, by_one) = match &decision.aggregate {
            Aggregate::Process { guid, .. } => (format!("process {guid}"), true),
            Aggregate::Task { guid, .. } => (format!("task {guid}"), true),
            Aggregate::Periodic { guid, .. } => (format!("periodic task {guid}"), true),
            Aggregate::Parameterised { guid, .. } => (format!("parameterised task {guid}"), true),
            Aggregate::Domain(domain) => (format!("domain {domain}"), false),
            Aggregate::Cell(cell) => (format!("cell {cell}"), false),
            Aggregate::Cluster => ("cluster".into(), false),
        };
        let version = decision.version;
        let (last, at) = self.versions.insert(aggregate.clone(), (version, decision.at)).unwrap_or_default();
        // A task that was deleted so long ago may be forgotten, and then its versions begin anew.
        let is_task = matches!(decision.aggregate, Aggregate::Task { .. });
        let anew = is_task && version == 1 && decision.at.since(at) + slack >= RETENTION;
        let right = if by_one { version == last + 1 || anew } else { version > last };
        notes.must(P::VersionsCount, right, || format!("{aggregate} goes from version {last} to {version}"));
        if let Some(request) = &decision.request_id {
            let asked = self.asked.get(request);
            let until = asked.and_then(|asked| asked.until);
            let late = asked.is_some() && until.is_none_or(|until| decision.at > until + slack);
            notes.must(P::RequestOnce, !late, || format!("request {request} is carried out too late"));
            let again = self.carried(request).first().is_some_and(|first| self.is_remembered(first));
            notes.must(P::RequestOnce, !again, || format!("request {request} is carried out again"));
            self.carried.entry(request.clone()).or_default().push(Carried { position, version, aggregate });
        }
        self.speaks_for(decision, last, by_one, notes);
        if let (Actor::Client { domain, .. }, Some(own)) = (&decision.actor, domain_of(&decision.aggregate)) {
            notes.must(P::DomainsApart, domain == own, || {
                format!("a client of {domain} changed something of {own}")
            });
        }
    }

    /// Whether an aggregate still remembers what it carried out: only its newest requests. A copy that comes later than
    /// so many others is carried out again.
    fn is_remembered(&self, first: &Carried) -> bool {
        let all = self.carried.values().flatten();
        let is_later = |one: &&Carried| (one.position, one.version) > (first.position, first.version);
        let since = all.filter(|one| one.aggregate == first.aggregate).filter(is_later);
        since.count() < REMEMBERED_REQUESTS
    }

    /// A process is forgotten: if it is heard of again, its versions begin anew.
    pub(super) fn forget(&mut self, guid: &ProcessGuid) {
        self.versions.remove(&format!("process {guid}"));
    }

    /// A decision names the client that asked for it, its reason and the version that it knew; and nobody else's does.
    fn speaks_for(&self, decision: &Decision, before: u64, by_one: bool, notes: &mut Notes) {
        let Decision { id, actor, reason, .. } = decision;
        let asked = decision.request_id.as_ref().map(|request| self.asked.get(request));
        match (asked, actor) {
            (Some(Some(asked)), Actor::Client { domain, .. }) => {
                let right = *domain == asked.domain && *reason == asked.envelope.reason;
                notes.must(P::SaysWhoAndWhy, right, || {
                    format!(
                        "decision {id} is of {actor:?}, because {reason:?}, and was asked by {:?}",
                        asked.domain
                    )
                });
                let expected = asked.envelope.expect_version.filter(|_| by_one);
                notes.must(P::VersionExpected, expected.is_none_or(|expected| expected == before), || {
                    format!("decision {id} expects version {expected:?}, it was {before}")
                });
            }
            // The simulated operators give no ids.
            (None, Actor::Operator(_) | Actor::Cell(_) | Actor::Auctioneer(_) | Actor::Bbs(_)) => {}
            // What a client's launch desires carries no request of its own.
            (None, Actor::Client { .. }) if is_launched(decision) => {}
            (None, Actor::Client { .. })
            | (Some(_), Actor::Operator(_) | Actor::Cell(_) | Actor::Auctioneer(_) | Actor::Bbs(_))
            | (Some(None), Actor::Client { .. }) => {
                notes.broken(P::SaysWhoAndWhy, format!("nobody asked for decision {id} of {actor:?}"));
            }
        }
    }

    /// Services speak for themselves, and only while they lead.
    fn leads(&self, decision: &Decision, basis: Position, notes: &mut Notes) {
        let (role, id) = match &decision.actor {
            Actor::Bbs(id) if decision.aggregate != Aggregate::Cluster => (Role::Bbs, id),
            Actor::Auctioneer(id) if decision.aggregate != Aggregate::Cluster => (Role::Auctioneer, id),
            Actor::Client { .. }
            | Actor::Operator(_)
            | Actor::Cell(_)
            | Actor::Bbs(_)
            | Actor::Auctioneer(_) => return,
        };
        let mut led = self.leaders.iter().rev().filter(|one| one.position <= basis && one.role == role);
        let (last, before) = (led.next(), led.next());
        let leads = last.is_some_and(|one| one.id == *id);
        // What an auctioneer said while it led may wait for its turn.
        let led = role == Role::Auctioneer
            && before.is_some_and(|one| one.id == *id)
            && last.is_some_and(|last| decision.at.since(last.at) <= IN_TURN);
        notes.must(P::OnlyLeadersDecide, leads || led, || format!("decision {} is of {id}", decision.id));
    }

    /// Whoever decided it knew the log up to `basis`.
    pub(super) fn decided(
        &mut self,
        decision: &Decision,
        basis: Position,
        position: Position,
        notes: &mut Notes,
    ) {
        self.leads(decision, basis, notes);
        self.decision(decision, position, notes);
    }

    /// What a decision says of the cluster, of a cell, of a domain.
    fn decision(&mut self, decision: &Decision, position: Position, notes: &mut Notes) {
        for event in &decision.events {
            let fits = match (event, &decision.aggregate) {
                (Event::Cell(event), Aggregate::Cell(id)) => {
                    self.cell(id, event, position, notes);
                    true
                }
                (Event::Domain(domain::Event::Refreshed { expires_at }), Aggregate::Domain(domain)) => {
                    let asked =
                        decision.request_id.as_ref().and_then(|request| self.asked.get(request)?.fresh);
                    let wanted = asked.map(|time| time.map(|time| decision.at + time));
                    notes.must(P::FreshAsAsked, wanted == Some(*expires_at), || {
                        format!(
                            "{domain} is fresh until {expires_at:?}, a client asked {asked:?} at {}",
                            decision.at
                        )
                    });
                    self.domains.entry(domain.clone()).or_default().push((position, *expires_at));
                    true
                }
                (Event::Cluster(event), Aggregate::Cluster) => {
                    self.cluster(event, (position, decision.at), notes);
                    true
                }
                (
                    Event::Desired(_) | Event::Actual(_) | Event::Evacuating(_) | Event::Rollout(_),
                    aggregate,
                ) => {
                    matches!(aggregate, Aggregate::Process { .. })
                }
                (Event::Task(_), aggregate) => matches!(aggregate, Aggregate::Task { .. }),
                (Event::Periodic(_), aggregate) => matches!(aggregate, Aggregate::Periodic { .. }),
                (Event::Parameterised(_), aggregate) => {
                    matches!(aggregate, Aggregate::Parameterised { .. })
                }
                (Event::Evaluation(_), aggregate) => {
                    matches!(aggregate, Aggregate::Process { .. } | Aggregate::Task { .. })
                }
                // Only an operator asks for it.
                (Event::Domain(domain::Event::Limited { .. }), Aggregate::Domain(_)) => {
                    matches!(decision.actor, Actor::Operator(_))
                }
                (Event::Cell(_) | Event::Domain(_) | Event::Cluster(_), _) => false,
            };
            notes.must(P::OnItsSubject, fits, || format!("{:?} has {event:?}", decision.aggregate));
        }
    }

    fn cluster(&mut self, event: &cluster::Event, (position, at): (Position, Timestamp), notes: &mut Notes) {
        match event {
            cluster::Event::Founded { shards, .. } => {
                self.shards = *shards;
                notes.must(P::TermsCount, !std::mem::replace(&mut self.founded, true), || {
                    "founded twice".into()
                });
            }
            cluster::Event::Elected { role, term, id } => {
                self.leaders.push(Leader { position, at, role: *role, id: id.clone() });
                let last = self.terms.insert(*role, *term).unwrap_or_default();
                notes.must(P::TermsCount, *term == last + 1, || {
                    format!("{role:?} goes from term {last} to {term}")
                });
            }
            cluster::Event::OrdinalAssigned { cell_id, ordinal } => {
                let mut ordinals = self.ordinals_at(position);
                let free = !ordinals.contains_key(ordinal) && !ordinals.values().any(|id| id == cell_id);
                let least = (0..*ordinal).all(|less| ordinals.contains_key(&less));
                notes.must(P::OrdinalsSound, free && least, || {
                    format!("cell {cell_id} gets ordinal {ordinal}, beside {ordinals:?}")
                });
                ordinals.insert(*ordinal, cell_id.clone());
                self.ordinals.push((position, ordinals));
            }
            cluster::Event::OrdinalFreed { cell_id, ordinal } => {
                let mut ordinals = self.ordinals_at(position);
                let had = ordinals.remove(ordinal);
                self.ordinals.push((position, ordinals));
                notes.must(P::OrdinalsSound, had.as_ref() == Some(cell_id), || {
                    format!("ordinal {ordinal} of {cell_id} is freed, and was that of {had:?}")
                });
            }
            cluster::Event::PreemptionSwitched { enabled: on } => self.preemption.push((position, *on)),
            cluster::Event::Resharded { shards } => {
                notes.saw(Situation::Resharded);
                self.earlier_shards.insert(std::mem::replace(&mut self.shards, *shards));
                for subject in shard_subjects(*shards) {
                    self.ends.entry(subject).or_default();
                }
            }
            cluster::Event::FormatRaised { .. } | cluster::Event::EntryQuarantined { .. } => {}
        }
    }

    fn cell(&mut self, id: &CellId, event: &cell::Event, position: Position, notes: &mut Notes) {
        let history = self.cells.entry(id.clone()).or_default();
        let last = history.last().map(|(_, now)| *now);
        let illegal =
            |notes: &mut Notes| notes.broken(P::CellsSound, format!("cell {id} is {last:?} and {event:?}"));
        let next = match (event, last) {
            (cell::Event::Appeared(presence), last) => {
                if last.is_some_and(|last| !last.present) {
                    notes.saw(Situation::CellBack);
                }
                Some(CellNow::appeared(last, presence.incarnation))
            }
            (cell::Event::EvacuationRequested {}, Some(last)) if last.present => {
                Some(CellNow { wanted: true, ..last })
            }
            (cell::Event::EvacuationWithdrawn {}, Some(last)) => Some(CellNow { wanted: false, ..last }),
            (cell::Event::Cordoned {}, Some(last)) if !last.cordoned => {
                notes.saw(Situation::Cordoned);
                Some(CellNow { cordoned: true, ..last })
            }
            (cell::Event::Uncordoned {}, Some(last)) if last.cordoned => {
                Some(CellNow { cordoned: false, ..last })
            }
            (cell::Event::Resumed {}, Some(last)) if last.present && last.evacuating => {
                notes.saw(Situation::Uncordoned);
                Some(CellNow { evacuating: false, ..last })
            }
            (cell::Event::Left {}, Some(last)) if last.present => {
                Some(CellNow { present: false, evacuating: false, wanted: false, ..last })
            }
            (cell::Event::Forgotten {}, Some(last)) if !last.present => {
                notes.saw(Situation::CellForgotten);
                Some(CellNow { evacuating: false, wanted: false, cordoned: false, ..last })
            }
            (cell::Event::Evacuating {}, Some(last)) if last.present && !last.evacuating => {
                Some(CellNow { evacuating: true, ..last })
            }
            (cell::Event::Healthy {}, Some(last)) if last.present && !last.healthy => {
                Some(CellNow { healthy: true, ..last })
            }
            (cell::Event::Unhealthy { .. }, Some(last)) if last.present && last.healthy => {
                notes.saw(Situation::CellUnhealthy);
                Some(CellNow { healthy: false, ..last })
            }
            (cell::Event::Disappeared { .. }, Some(last)) if last.present => {
                notes.saw(Situation::CellLost);
                Some(CellNow { present: false, ..last })
            }
            (
                cell::Event::EvacuationRequested {}
                | cell::Event::EvacuationWithdrawn {}
                | cell::Event::Cordoned {}
                | cell::Event::Uncordoned {}
                | cell::Event::Evacuating {}
                | cell::Event::Resumed {}
                | cell::Event::Left {}
                | cell::Event::Forgotten {}
                | cell::Event::Healthy {}
                | cell::Event::Unhealthy { .. }
                | cell::Event::Disappeared { .. },
                _,
            ) => {
                illegal(notes);
                None
            }
        };
        history.extend(next.map(|next| (position, next)));
    }

    /// Whether preemption was on for somebody whose log ended there.
    pub(super) fn is_preempting(&self, at: Position) -> bool {
        self.preemption.iter().rev().find(|(position, _)| *position <= at).is_some_and(|(_, on)| *on)
    }

    /// The cells that were present for somebody whose log ended there.
    pub(super) fn present(&self, at: Position) -> Vec<CellId> {
        self.cells.keys().filter(|cell| self.is_present(cell, at)).cloned().collect()
    }

    /// Whether a cell was present for somebody whose log ended there.
    pub(super) fn is_present(&self, cell: &CellId, at: Position) -> bool {
        self.cell_at(cell, at).is_some_and(|now| now.present)
    }

    /// Whether a cell was to get no new work, for somebody whose log ended there.
    pub(super) fn is_cordoned(&self, cell: &CellId, at: Position) -> bool {
        self.cell_at(cell, at).is_some_and(|now| now.cordoned)
    }

    /// The cells that keep what they have and may get more of a global process, for somebody whose log ended there: those
    /// that are present and not to be emptied, by their ordinals, each with whether it is cordoned.
    pub(super) fn staying(&self, at: Position) -> BTreeMap<u32, (CellId, bool)> {
        let stays = |(ordinal, cell): (u32, CellId)| {
            let now = self.cell_at(&cell, at)?;
            let stays = now.present && !now.evacuating && !now.wanted;
            stays.then_some((ordinal, (cell, now.cordoned)))
        };
        self.ordinals_at(at).into_iter().filter_map(stays).collect()
    }

    /// The ordinals of cells, for somebody whose log ended there.
    pub(super) fn ordinals_at(&self, at: Position) -> BTreeMap<u32, CellId> {
        let known = self.ordinals.iter().rev().find(|(position, _)| *position <= at);
        known.map(|(_, ordinals)| ordinals.clone()).unwrap_or_default()
    }

    fn cell_at(&self, cell: &CellId, at: Position) -> Option<CellNow> {
        let history = self.cells.get(cell)?.iter();
        history.take_while(|(position, _)| *position <= at).last().map(|(_, now)| *now)
    }

    /// Whether a domain was fresh at that time for somebody whose log ended there.
    pub(super) fn is_fresh(&self, domain: &Domain, at: Position, time: Timestamp) -> bool {
        let history = self.domains.get(domain).into_iter().flatten();
        let last = history.take_while(|(position, _)| *position <= at).last();
        last.is_some_and(|(_, expires)| expires.is_none_or(|expires| time < expires))
    }

    /// What carried a request out.
    pub(super) fn carried(&self, request: &RequestId) -> &[Carried] {
        self.carried.get(request).map_or(&[], Vec::as_slice)
    }

    /// Cells that are present, healthy and not evacuating.
    pub(super) fn cells_in_order(&self) -> usize {
        let last = |history: &Vec<(Position, CellNow)>| history.last().map(|(_, now)| *now);
        let in_order = |now: &CellNow| now.present && now.healthy && !now.evacuating;
        self.cells.values().filter_map(last).filter(in_order).count()
    }
}

fn domain_of(aggregate: &Aggregate) -> Option<&Domain> {
    match aggregate {
        Aggregate::Process { domain, .. }
        | Aggregate::Task { domain, .. }
        | Aggregate::Periodic { domain, .. }
        | Aggregate::Parameterised { domain, .. }
        | Aggregate::Domain(domain) => Some(domain),
        Aggregate::Cell(_) | Aggregate::Cluster => None,
    }
}
