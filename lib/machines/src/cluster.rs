//! The cluster: its id, its shards, its format level, and its leaders (docs/internals/journal.md, "Journal").

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::request::Requests;
use schemas::Timestamp;
use schemas::cluster::{Command, Event, Leader, Role, Terms, check_shards};
use schemas::names::{CellId, ClusterId, ServiceId};
use schemas::refusal::{Code, Refusal};
use schemas::stamp::Stamp;

/// State of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Id of the cluster, fixed by the first entry.
    pub id: ClusterId,
    /// Number of shards. Set by the first entry or the last change.
    pub shards: u16,
    /// Format level that every program writes.
    pub format: u32,
    /// Leading BBS, which decides commands. `None` before the first election.
    pub bbs: Option<Leader>,
    /// Leading auctioneer, which places work. `None` before the first election.
    pub auctioneer: Option<Leader>,
    /// Ordinals of all known cells. Global processes use them as instance indices.
    pub ordinals: BTreeMap<u32, CellId>,
    /// `true` if less urgent work may be stopped to make room for work that waits.
    pub preemption: bool,
    /// Recent requests of operators, with their answers.
    pub requests: Requests,
}

impl Cluster {
    /// Returns the leader of a role, or `None` before its first election.
    #[must_use]
    pub const fn leader(&self, role: Role) -> Option<&Leader> {
        match role {
            Role::Bbs => self.bbs.as_ref(),
            Role::Auctioneer => self.auctioneer.as_ref(),
        }
    }

    /// Returns the highest term of each role.
    #[must_use]
    pub fn terms(&self) -> Terms {
        Terms { bbs: self.term(Role::Bbs), auctioneer: self.term(Role::Auctioneer) }
    }

    /// Returns the highest term of a role, or 0 before its first leader.
    #[must_use]
    pub fn term(&self, role: Role) -> u64 {
        self.leader(role).map_or(0, |leader| leader.term)
    }
}

/// Decides an election. A candidate wins if its term is the highest term plus 1.
pub fn decide_election(cluster: &Cluster, role: Role, id: &ServiceId, term: u64) -> Result<Event, Refusal> {
    let highest = cluster.term(role);
    if term == highest + 1 {
        return Ok(Event::Elected { role, id: id.clone(), term });
    }
    Err(Refusal::new(Code::StaleTerm, format!("term {term} does not follow term {highest}")))
}

/// Maximum number of ordinals that one decision changes. The remaining changes follow in further decisions.
const MAX_ORDINALS_PER_DECISION: usize = 512;

/// Returns the changes of ordinals for the known cells. Ordinals of forgotten cells become free. Each cell
/// without an ordinal gets the lowest free ordinal.
#[must_use]
pub fn decide_ordinals(cluster: &Cluster, cells: &BTreeSet<&CellId>) -> Vec<Event> {
    let (kept, gone): (Vec<_>, Vec<_>) = cluster.ordinals.iter().partition(|(_, id)| cells.contains(id));
    let freed =
        gone.iter().map(|&(ordinal, id)| Event::OrdinalFreed { cell_id: id.clone(), ordinal: *ordinal });
    let taken: BTreeSet<u32> = kept.iter().map(|(ordinal, _)| **ordinal).collect();
    let numbered: BTreeSet<&CellId> = kept.iter().map(|(_, id)| *id).collect();
    let free = (0..).filter(|ordinal| !taken.contains(ordinal));
    let assigned = cells.difference(&numbered).zip(free);
    let assigned = assigned.map(|(id, ordinal)| Event::OrdinalAssigned { cell_id: (*id).clone(), ordinal });
    freed.chain(assigned).take(MAX_ORDINALS_PER_DECISION).collect()
}

/// Decides a command of an operator. Returns `None` if nothing changes.
///
/// # Errors
/// `InvalidRequest` if the number of shards is not valid; `Unavailable` if the cluster is not founded yet.
pub fn decide(cluster: Option<&Cluster>, command: Command) -> Result<Option<Event>, Refusal> {
    let unknown = || Refusal::new(Code::Unavailable, "the cluster is not founded yet");
    let cluster = cluster.ok_or_else(unknown)?;
    match command {
        Command::SwitchPreemption(enabled) => {
            Ok((cluster.preemption != enabled).then_some(Event::PreemptionSwitched { enabled }))
        }
        Command::Reshard(shards) => {
            check_shards(shards)?;
            Ok((cluster.shards != shards).then_some(Event::Resharded { shards }))
        }
    }
}

/// Applies a decision: its events and the operator's request.
#[must_use]
pub fn fold<'a>(
    cluster: Option<Cluster>,
    events: impl IntoIterator<Item = &'a Event>,
    stamp: &Stamp,
    version: u64,
) -> Option<Cluster> {
    let after = events.into_iter().fold(cluster, |cluster, event| evolve(cluster, event, stamp.at));
    after.map(|mut cluster| {
        if let Some(request) = &stamp.request {
            cluster.requests.remember(request.clone(), version);
        }
        cluster
    })
}

/// Applies an event.
#[must_use]
pub fn evolve(cluster: Option<Cluster>, event: &Event, at: Timestamp) -> Option<Cluster> {
    match event {
        Event::Founded { id, shards, format } => Some(Cluster {
            id: *id,
            shards: *shards,
            format: *format,
            bbs: None,
            auctioneer: None,
            ordinals: BTreeMap::new(),
            preemption: false,
            requests: Requests::default(),
        }),
        Event::Elected { role, id, term } => cluster.map(|mut cluster| {
            let leader = Some(Leader { id: id.clone(), term: *term, since: at });
            match role {
                Role::Bbs => cluster.bbs = leader,
                Role::Auctioneer => cluster.auctioneer = leader,
            }
            cluster
        }),
        Event::OrdinalAssigned { cell_id, ordinal } => cluster.map(|mut cluster| {
            cluster.ordinals.insert(*ordinal, cell_id.clone());
            cluster
        }),
        Event::OrdinalFreed { ordinal, .. } => cluster.map(|mut cluster| {
            cluster.ordinals.remove(ordinal);
            cluster
        }),
        Event::FormatRaised { format } => cluster.map(|cluster| Cluster { format: *format, ..cluster }),
        Event::PreemptionSwitched { enabled } => {
            cluster.map(|cluster| Cluster { preemption: *enabled, ..cluster })
        }
        Event::Resharded { shards } => cluster.map(|cluster| Cluster { shards: *shards, ..cluster }),
        // Readers of the log apply a quarantine before they fold entries.
        Event::EntryQuarantined { .. } => cluster,
    }
}
