//! The log as a whole: ids, subjects, requests, and the services that decide.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use projections::World;
use schemas::cluster::{self, Role};
use schemas::entry::{Aggregate, Event};
use schemas::limits::REMEMBERED_REQUESTS;
use schemas::message::Envelope;
use schemas::names::{Domain, EntryId, RequestId, ServiceId};
use schemas::spec::ClientCommand;
use schemas::stamp::Actor;
use schemas::subject::{Position, Subject, shard_subjects};
use schemas::{Decision, Entry, Timestamp, domain};

use crate::checkers::Notes;
use crate::coverage::Situation;
use crate::invariants::Invariant as I;
use crate::journal::Stored;
use crate::requests::ClientRequest;
use crate::shape::Life;

/// Longest time that an auctioneer's report waits in the queue of the BBS.
const QUEUED: Duration = Duration::from_secs(10);

/// Decision that carried out a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CarriedOut {
    pub(super) position: Position,
    pub(super) version: u64,
    pub(super) aggregate: String,
}

/// Facts about the log that the World does not contain.
#[derive(Default)]
pub(super) struct Log {
    entries: BTreeSet<EntryId>,
    /// Last position of the log and of each subject.
    end: Position,
    ends: BTreeMap<Subject, Position>,
    /// Numbers of shards before the present one.
    earlier_shards: BTreeSet<u16>,
    elections: Vec<Election>,
    requests: BTreeMap<RequestId, Request>,
    carried_out: BTreeMap<RequestId, Vec<CarriedOut>>,
    /// First and last arrival of each command at each BBS.
    arrivals: BTreeMap<(Life, RequestId), (u64, u64)>,
    arrival_count: u64,
    /// Requests that each BBS carried out, by aggregate and client.
    done: BTreeMap<(Life, String, String), Vec<RequestId>>,
}

struct Election {
    position: Position,
    at: Timestamp,
    role: Role,
    id: ServiceId,
}

struct Request {
    domain: Domain,
    envelope: Envelope,
    /// Deadline of the copy with the latest deadline. `None` if no copy has reached a BBS.
    until: Option<Timestamp>,
    /// Time to live of a domain, if the request refreshes one. The inner `None` stands for no expiry.
    ttl: Option<Option<Duration>>,
}

impl Log {
    /// Checks the position of a message, and that its subject ended where its writer expected.
    pub(super) fn stored(
        &mut self,
        subject: &Subject,
        position: Position,
        expected: Option<Position>,
        notes: &mut Notes,
    ) {
        let end = std::mem::replace(&mut self.end, position);
        notes.check(I::LogKept, position.0 == end.0 + 1, || format!("{position} follows {end}"));
        let last = self.ends.insert(subject.clone(), position).unwrap_or_default();
        notes.check(I::CompareAndSet, expected.is_none_or(|expected| expected == last), || {
            format!("{subject} ended at {last}, but the writer expected {expected:?}")
        });
    }

    /// Returns the number of subjects that have entries or belong to shards.
    pub(super) fn subjects(&self) -> usize {
        self.ends.len()
    }

    /// Records a client's command.
    pub(super) fn requested(&mut self, request: &ClientRequest) {
        let ttl = match &request.command {
            ClientCommand::DomainUpsert { ttl_ms, .. } => Some(ttl_ms.map(Duration::from_millis)),
            _ => None,
        };
        let (domain, envelope) = (request.domain.clone(), request.envelope.clone());
        self.requests.insert(request.id(), Request { domain, envelope, until: None, ttl });
    }

    /// Records that a command reached a BBS, with its deadline.
    pub(super) fn arrived(&mut self, bbs: Life, request: &RequestId, until: Option<Timestamp>) {
        if let Some(known) = self.requests.get_mut(request) {
            known.until = known.until.max(until);
        }
        self.arrival_count += 1;
        let count = self.arrival_count;
        self.arrivals.entry((bbs, request.clone())).or_insert((count, count)).1 = count;
    }

    /// Returns `true` if an entry belongs to its subject only by an earlier number of shards. Every reader
    /// ignores such an entry of a deposed BBS.
    pub(super) fn is_overtaken(&self, entry: &Entry, subject: &Subject, shards: u16) -> bool {
        let fits = |shards| entry.decisions.iter().all(|one| one.aggregate.subject(shards) == *subject);
        !fits(shards) && self.earlier_shards.iter().any(|shards| fits(*shards))
    }

    /// Checks an entry before the World folds it. `by` is the BBS that decided it, at position `basis`.
    pub(super) fn check(
        &mut self,
        (entry, stored): (&Entry, &Stored),
        position: Position,
        (by, basis): (Option<Life>, Position),
        (world, slack): (&World, Duration),
        notes: &mut Notes,
    ) {
        let unique = self.entries.insert(entry.id) && Some(entry.id) == stored.entry;
        notes
            .check(I::NothingTwice, unique, || format!("entry {} is stored as {:?}", entry.id, stored.entry));
        let mut last = world.last_time(&stored.subject);
        for decision in &entry.decisions {
            let subject = decision.aggregate.subject(world.shards());
            notes.check(I::LegalLog, subject == stored.subject && last < decision.at, || {
                format!(
                    "decision of {} at {} follows {last} on {}",
                    decision.aggregate, decision.at, stored.subject
                )
            });
            last = decision.at;
            self.check_request(decision, position, slack, notes);
            self.check_order(by, decision, notes);
            self.check_leader(decision, basis, notes);
            self.fold(decision, position, world.shards(), notes);
        }
    }

    fn check_request(&mut self, decision: &Decision, position: Position, slack: Duration, notes: &mut Notes) {
        if let (Actor::Client { domain, .. }, Some(own)) = (&decision.actor, domain_of(&decision.aggregate)) {
            notes.check(I::DomainsApart, domain == own, || {
                format!("a client of {domain} changed {} of {own}", decision.aggregate)
            });
        }
        let Some(id) = &decision.request_id else { return };
        let known = self.requests.get(id);
        let late = known.and_then(|known| known.until).is_none_or(|until| decision.at > until + slack);
        let again = self.carried_out(id).first().is_some_and(|first| self.is_remembered(first));
        let own = known.is_some_and(|known| {
            let domain = matches!(&decision.actor, Actor::Client { domain, .. } if *domain == known.domain);
            domain && decision.reason == known.envelope.reason
        });
        notes.check(I::RequestOnce, own && !late && !again, || {
            format!("request {id} is carried out: own {own}, late {late}, again {again}")
        });
        let version = decision.version;
        let expected = known.and_then(|known| known.envelope.expect_version);
        let has_version = !matches!(decision.aggregate, Aggregate::Domain(_));
        let right = expected.is_none_or(|expected| !has_version || expected + 1 == version);
        notes.check(I::AsPlanned, right, || format!("request {id} expects {expected:?}, not {version} - 1"));
        let aggregate = decision.aggregate.to_string();
        self.carried_out.entry(id.clone()).or_default().push(CarriedOut { position, version, aggregate });
    }

    /// Returns `true` if the aggregate still remembers the request, because few newer ones were carried out.
    fn is_remembered(&self, first: &CarriedOut) -> bool {
        let all = self.carried_out.values().flatten();
        let is_later = |one: &&CarriedOut| (one.position, one.version) > (first.position, first.version);
        let newer = all.filter(|one| one.aggregate == first.aggregate).filter(is_later);
        newer.count() < REMEMBERED_REQUESTS
    }

    /// Checks that a BBS carries out a client's commands about one aggregate in the order of their arrival.
    fn check_order(&mut self, by: Option<Life>, decision: &Decision, notes: &mut Notes) {
        let Some((bbs, request)) = by.zip(decision.request_id.as_ref()) else { return };
        let arrival = |request: &RequestId| self.arrivals.get(&(bbs, request.clone())).copied();
        let client = format!("{:?}", decision.actor);
        let done = self.done.entry((bbs, decision.aggregate.to_string(), client)).or_default();
        if let Some((_, last)) = arrival(request) {
            let later = done.iter().find(|other| arrival(other).is_some_and(|(first, _)| first > last));
            notes.check(I::ClientsInOrder, later.is_none(), || {
                format!("request {request} is carried out after {later:?}, which arrived later")
            });
        }
        done.push(request.clone());
    }

    /// Checks that a service decides only while it leads, by the log that the decider knew.
    fn check_leader(&self, decision: &Decision, basis: Position, notes: &mut Notes) {
        let (role, id) = match &decision.actor {
            Actor::Bbs(id) if decision.aggregate != Aggregate::Cluster => (Role::Bbs, id),
            Actor::Auctioneer(id) if decision.aggregate != Aggregate::Cluster => (Role::Auctioneer, id),
            _ => return,
        };
        let mut elections =
            self.elections.iter().rev().filter(|one| one.position <= basis && one.role == role);
        let (last, before) = (elections.next(), elections.next());
        let leads = last.is_some_and(|one| one.id == *id);
        // A report of the previous auctioneer may still be in the queue of the BBS.
        let led = role == Role::Auctioneer
            && before.is_some_and(|one| one.id == *id)
            && last.is_some_and(|last| decision.at.since(last.at) <= QUEUED);
        notes.check(I::OnlyLeadersDecide, leads || led, || format!("decision {} is of {id}", decision.id));
    }

    fn fold(&mut self, decision: &Decision, position: Position, before: u16, notes: &mut Notes) {
        for event in &decision.events {
            match event {
                Event::Cluster(cluster::Event::Elected { role, id, .. }) => {
                    self.elections.push(Election { position, at: decision.at, role: *role, id: id.clone() });
                }
                Event::Cluster(cluster::Event::Resharded { shards }) => {
                    notes.met(Situation::Resharded);
                    self.earlier_shards.insert(before);
                    for subject in shard_subjects(*shards) {
                        self.ends.entry(subject).or_default();
                    }
                }
                Event::Domain(domain::Event::Refreshed { expires_at }) => {
                    let request = decision.request_id.as_ref().and_then(|id| self.requests.get(id));
                    let ttl = request.and_then(|request| request.ttl);
                    let wanted = ttl.map(|ttl| ttl.map(|ttl| decision.at + ttl));
                    notes.check(I::StaleStopsNothing, wanted == Some(*expires_at), || {
                        format!(
                            "{} is fresh until {expires_at:?}, but the client set {ttl:?}",
                            decision.aggregate
                        )
                    });
                }
                _ => {}
            }
        }
    }

    /// Returns the decisions that carried out a request.
    pub(super) fn carried_out(&self, request: &RequestId) -> &[CarriedOut] {
        self.carried_out.get(request).map_or(&[], Vec::as_slice)
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
