//! The cluster: its id, its shards, its format level, and who leads (docs/architecture.md, "The journal").

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::bus::OperatorVerb;
use crate::entry::Stamp;
use crate::names::{CellId, ClusterId, ServiceId};
use crate::refusal::{BadField, Code, Refusal};
use crate::request::{self, Requests};
use crate::subject::{MAX_SHARDS, Position};

/// The format level that this program writes, and the highest that it reads.
pub const FORMAT: u32 = 1;

/// What is true of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Its id, fixed in its first entry.
    pub id: ClusterId,
    /// Number of its shards: of its first entry, or of the last change.
    pub shards: u16,
    /// The level at which everybody writes.
    pub format: u32,
    /// Who decides.
    pub bbs: Option<Leader>,
    /// Who places.
    pub auctioneer: Option<Leader>,
    /// The ordinal of every cell that is known: global processes call their instances by it.
    pub ordinals: BTreeMap<u32, CellId>,
    /// Whether what is less urgent may be stopped, so that what waits has room.
    pub preemption: bool,
    /// The newest requests of operators, and their answers.
    pub requests: Requests,
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Leader {
    /// The program.
    pub id: ServiceId,
    /// How many led before it, and it: a lower term is not a leader's.
    pub term: u64,
    /// Since when.
    pub since: Timestamp,
}

/// The highest term of each role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Of the BBS.
    pub bbs: u64,
    /// Of the auctioneer.
    pub auctioneer: u64,
}

/// A role with one leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Decides.
    Bbs,
    /// Places.
    Auctioneer,
}

/// What happens to the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It was founded: the first entry of every journal.
    Founded {
        /// Its id.
        id: ClusterId,
        /// Its shards.
        shards: u16,
        /// The level at which everybody writes.
        format: u32,
    },
    /// Somebody leads.
    Elected {
        /// In which role.
        role: Role,
        /// Who.
        id: ServiceId,
        /// In which term.
        term: u64,
    },
    /// A cell got the lowest ordinal that was free, and keeps it until it is forgotten.
    OrdinalAssigned {
        /// Which cell.
        cell_id: CellId,
        /// Which ordinal.
        ordinal: u32,
    },
    /// The cell that had an ordinal is forgotten.
    OrdinalFreed {
        /// Which cell.
        cell_id: CellId,
        /// Which ordinal.
        ordinal: u32,
    },
    /// Everybody can read and write a higher level.
    FormatRaised {
        /// The level.
        format: u32,
    },
    /// An operator said whether what is less urgent may be stopped for what waits.
    PreemptionSwitched {
        /// Whether it may.
        on: bool,
    },
    /// An operator changed the number of shards. Every later entry of a process or a task is on the subject of the new number, and what
    /// stands on another subject behind this entry does not count.
    Resharded {
        /// The new number.
        shards: u16,
    },
    /// An operator set aside what stands at a position: no program that reads the log may count it.
    PositionSetAside {
        /// The position.
        position: Position,
        /// Why, in the operator's words.
        reason: String,
    },
}

/// Command of an operator that concerns the whole cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Switches preemption on or off.
    SwitchPreemption(bool),
    /// Changes the number of shards.
    Reshard(u16),
}

impl Command {
    /// Returns the verb of its subject.
    #[must_use]
    pub const fn verb(self) -> OperatorVerb {
        match self {
            Self::SwitchPreemption(_) => OperatorVerb::ClusterPreemption,
            Self::Reshard(_) => OperatorVerb::ClusterShards,
        }
    }

    /// Returns the digest by which a repeated request is recognised.
    #[must_use]
    pub fn digest(self) -> String {
        let argument = match self {
            Self::SwitchPreemption(on) => on.to_string(),
            Self::Reshard(shards) => shards.to_string(),
        };
        request::digest(self.verb().noun_and_verb(), &argument)
    }
}

impl Cluster {
    /// Who leads in a role.
    #[must_use]
    pub const fn leader(&self, role: Role) -> Option<&Leader> {
        match role {
            Role::Bbs => self.bbs.as_ref(),
            Role::Auctioneer => self.auctioneer.as_ref(),
        }
    }

    /// The highest term of each role.
    #[must_use]
    pub fn terms(&self) -> Terms {
        Terms { bbs: self.term(Role::Bbs), auctioneer: self.term(Role::Auctioneer) }
    }

    /// The highest term of a role; 0 before its first leader.
    #[must_use]
    pub fn term(&self, role: Role) -> u64 {
        self.leader(role).map_or(0, |leader| leader.term)
    }
}

/// Judges a candidate: it leads if it names the term after the highest.
///
/// # Errors
/// `StaleTerm` if somebody leads in that term or a higher one.
pub fn decide_election(cluster: &Cluster, role: Role, id: &ServiceId, term: u64) -> Result<Event, Refusal> {
    let highest = cluster.term(role);
    if term == highest + 1 {
        return Ok(Event::Elected { role, id: id.clone(), term });
    }
    Err(Refusal::new(Code::StaleTerm, format!("term {term} does not follow term {highest}")))
}

/// Most ordinals that one decision changes: the rest is due still, and gets a decision of its own.
const ORDINALS_AT_ONCE: usize = 512;

/// What is to be said of ordinals, given the cells that are known: those of forgotten cells are free, and cells that have
/// none get the lowest.
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
    freed.chain(assigned).take(ORDINALS_AT_ONCE).collect()
}

/// Decides a command of an operator. `None` if nothing changes.
///
/// # Errors
/// `InvalidRequest` if the number of shards is not valid; `Unavailable` if the cluster is not founded yet.
pub fn decide(cluster: Option<&Cluster>, command: Command) -> Result<Option<Event>, Refusal> {
    let unknown = || Refusal::new(Code::Unavailable, "the cluster is not founded yet");
    let cluster = cluster.ok_or_else(unknown)?;
    match command {
        Command::SwitchPreemption(on) => {
            Ok((cluster.preemption != on).then_some(Event::PreemptionSwitched { on }))
        }
        Command::Reshard(shards) => {
            check_shards(shards)?;
            Ok((cluster.shards != shards).then_some(Event::Resharded { shards }))
        }
    }
}

/// Checks a number of shards.
///
/// # Errors
/// `InvalidRequest`, with the valid numbers.
pub fn check_shards(shards: u16) -> Result<(), Refusal> {
    if (1..=MAX_SHARDS).contains(&shards) {
        return Ok(());
    }
    let problem = format!("invalid number {shards}: expected 1 to {MAX_SHARDS}");
    Err(Refusal::invalid(vec![BadField { field: "shards".into(), problem }]))
}

/// Folds one decision.
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

/// Folds what happened.
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
        Event::PreemptionSwitched { on } => cluster.map(|cluster| Cluster { preemption: *on, ..cluster }),
        Event::Resharded { shards } => cluster.map(|cluster| Cluster { shards: *shards, ..cluster }),
        // Who reads the log knows of it before.
        Event::PositionSetAside { .. } => cluster,
    }
}
