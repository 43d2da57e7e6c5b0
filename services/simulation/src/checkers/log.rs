//! Ids, versions, times and requests in the log; the cluster, its cells and its domains.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemas::cluster::{self, Role};
use schemas::entry::{Actor, Aggregate, Event};
use schemas::names::{CellId, DecisionId, Domain, EntryId, Incarnation, ProcessGuid, RequestId};
use schemas::spec::ClientCommand;
use schemas::subject::{Position, Subject};
use schemas::{Decision, Entry, Timestamp, cell, domain};

use super::Notes;
use crate::journal::Stored;
use crate::promises::Promise as P;
use crate::sights::Sight;

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
    versions: BTreeMap<String, u64>,
    carried: BTreeMap<RequestId, Vec<Carried>>,
    cells: BTreeMap<CellId, Vec<(Position, CellNow)>>,
    domains: BTreeMap<Domain, Vec<(Position, Option<Timestamp>)>>,
    terms: BTreeMap<Role, u64>,
    founded: bool,
    /// Where the log ends, and each subject.
    end: Position,
    ends: BTreeMap<Subject, Position>,
    asked: BTreeMap<RequestId, Asked>,
}

/// What is known of a request.
struct Asked {
    deadline: Option<Timestamp>,
    /// The index that is to be retired, if that is what was asked.
    retires: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CellNow {
    incarnation: Incarnation,
    present: bool,
    healthy: bool,
    evacuating: bool,
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

    /// A client asks something, until a deadline.
    pub(super) fn asked(&mut self, request: RequestId, deadline: Option<Timestamp>, command: &ClientCommand) {
        let retires = match command {
            ClientCommand::LrpRetire { index, .. } => Some(*index),
            ClientCommand::LrpDesire(_)
            | ClientCommand::LrpUpdate { .. }
            | ClientCommand::LrpRemove { .. }
            | ClientCommand::DomainUpsert { .. }
            | ClientCommand::TaskDesire(_)
            | ClientCommand::TaskCancel { .. }
            | ClientCommand::TaskResolve { .. } => None,
        };
        self.asked.insert(request, Asked { deadline, retires });
    }

    /// The index that a decision was asked to retire.
    pub(super) fn retires(&self, decision: &Decision) -> Option<u32> {
        self.asked.get(decision.request_id.as_ref()?)?.retires
    }

    /// Where a cell disappeared that is absent still.
    pub(super) fn absent_since(&self, cell: &CellId) -> Option<Position> {
        let (position, now) = self.cells.get(cell)?.last()?;
        (!now.present).then_some(*position)
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
            let own = decision.aggregate.subject(4);
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

    /// Versions of processes and tasks count up by one, others just up. A request is carried out once.
    fn version(&mut self, decision: &Decision, position: Position, slack: Duration, notes: &mut Notes) {
        let (aggregate, by_one) = match &decision.aggregate {
            Aggregate::Process { guid, .. } => (format!("process {guid}"), true),
            Aggregate::Task { guid, .. } => (format!("task {guid}"), true),
            Aggregate::Domain(domain) => (format!("domain {domain}"), false),
            Aggregate::Cell(cell) => (format!("cell {cell}"), false),
            Aggregate::Cluster => ("cluster".into(), false),
        };
        let version = decision.version;
        let last = self.versions.insert(aggregate.clone(), version).unwrap_or_default();
        let right = if by_one { version == last + 1 } else { version > last };
        notes.must(P::VersionsCount, right, || format!("{aggregate} goes from version {last} to {version}"));
        if let Some(request) = &decision.request_id {
            let carried = self.carried.entry(request.clone()).or_default();
            let deadline = self.asked.get(request).and_then(|asked| asked.deadline);
            let late = deadline.is_some_and(|deadline| decision.at > deadline + slack);
            notes.must(P::RequestOnce, !late, || format!("request {request} is carried out too late"));
            let again = !carried.is_empty();
            notes.must(P::RequestOnce, !again, || format!("request {request} is carried out again"));
            carried.push(Carried { position, version, aggregate });
        }
        if let (Actor::Client { domain, .. }, Some(own)) = (&decision.actor, domain_of(&decision.aggregate)) {
            notes.must(P::DomainsApart, domain == own, || {
                format!("a client of {domain} changed something of {own}")
            });
        }
    }

    /// A process is forgotten: if it is heard of again, its versions begin anew.
    pub(super) fn forget(&mut self, guid: &ProcessGuid) {
        self.versions.remove(&format!("process {guid}"));
    }

    /// What a decision says of the cluster, of a cell, of a domain.
    pub(super) fn decision(&mut self, decision: &Decision, position: Position, notes: &mut Notes) {
        for event in &decision.events {
            let fits = match (event, &decision.aggregate) {
                (Event::Cell(event), Aggregate::Cell(id)) => {
                    self.cell(id, event, position, notes);
                    true
                }
                (Event::Domain(domain::Event::Refreshed { expires_at }), Aggregate::Domain(domain)) => {
                    self.domains.entry(domain.clone()).or_default().push((position, *expires_at));
                    true
                }
                (Event::Cluster(event), Aggregate::Cluster) => {
                    self.cluster(event, notes);
                    true
                }
                (Event::Desired(_) | Event::Actual(_) | Event::Evacuating(_), aggregate) => {
                    matches!(aggregate, Aggregate::Process { .. })
                }
                (Event::Task(_), aggregate) => matches!(aggregate, Aggregate::Task { .. }),
                (Event::Evaluation(_), aggregate) => {
                    matches!(aggregate, Aggregate::Process { .. } | Aggregate::Task { .. })
                }
                (Event::Cell(_) | Event::Domain(_) | Event::Cluster(_), _) => false,
            };
            notes.must(P::OnItsSubject, fits, || format!("{:?} has {event:?}", decision.aggregate));
        }
    }

    fn cluster(&mut self, event: &cluster::Event, notes: &mut Notes) {
        match event {
            cluster::Event::Founded { .. } => {
                notes.must(P::TermsCount, !std::mem::replace(&mut self.founded, true), || {
                    "founded twice".into()
                });
            }
            cluster::Event::Elected { role, term, .. } => {
                let last = self.terms.insert(*role, *term).unwrap_or_default();
                notes.must(P::TermsCount, *term == last + 1, || {
                    format!("{role:?} goes from term {last} to {term}")
                });
            }
            cluster::Event::FormatRaised { .. } => {}
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
                    notes.saw(Sight::CellBack);
                }
                let incarnation = presence.incarnation;
                Some(CellNow { incarnation, present: true, healthy: true, evacuating: false })
            }
            (cell::Event::Evacuating {}, Some(last)) if last.present && !last.evacuating => {
                Some(CellNow { evacuating: true, ..last })
            }
            (cell::Event::Healthy {}, Some(last)) if last.present && !last.healthy => {
                Some(CellNow { healthy: true, ..last })
            }
            (cell::Event::Unhealthy { .. }, Some(last)) if last.present && last.healthy => {
                notes.saw(Sight::CellUnhealthy);
                Some(CellNow { healthy: false, ..last })
            }
            (cell::Event::Disappeared { .. }, Some(last)) if last.present => {
                notes.saw(Sight::CellLost);
                Some(CellNow { present: false, ..last })
            }
            (
                cell::Event::Evacuating {}
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

    /// Whether a cell was present for somebody whose log ended there.
    pub(super) fn is_present(&self, cell: &CellId, at: Position) -> bool {
        let history = self.cells.get(cell).into_iter().flatten();
        history.take_while(|(position, _)| *position <= at).last().is_some_and(|(_, now)| now.present)
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
        Aggregate::Process { domain, .. } | Aggregate::Task { domain, .. } | Aggregate::Domain(domain) => {
            Some(domain)
        }
        Aggregate::Cell(_) | Aggregate::Cluster => None,
    }
}
