//! What may happen to cells and to the cluster (docs/model.md, "Cells").

use schemas::cell::{self, Cell};
use schemas::cluster::{self, Cluster};
use schemas::entry::Actor;
use schemas::{Decision, Position};

use super::Wrong;
use crate::Kind;

/// What is wrong with what happens to a cell.
pub(super) fn cell(cell: Option<&Cell>, event: &cell::Event, decision: &Decision) -> Option<Wrong> {
    let known = cell.is_some();
    let present = cell.is_some_and(|cell| cell.present);
    let is = |what: fn(&Cell) -> bool| cell.is_some_and(what);
    let legal = match event {
        cell::Event::Appeared(_) => true,
        cell::Event::EvacuationRequested {} => present,
        cell::Event::EvacuationWithdrawn {} => known,
        cell::Event::Cordoned {} => known && !is(|cell| cell.cordoned),
        cell::Event::Uncordoned {} => is(|cell| cell.cordoned),
        cell::Event::Evacuating {} => present && !is(|cell| cell.evacuating),
        cell::Event::Resumed {} => present && is(|cell| cell.evacuating),
        cell::Event::Healthy {} => present && !is(|cell| cell.unhealthy.is_none()),
        cell::Event::Unhealthy { .. } => present && is(|cell| cell.unhealthy.is_none()),
        cell::Event::Left {} | cell::Event::Disappeared { .. } => present,
        cell::Event::Forgotten {} => known && !present,
    };
    let state = match cell {
        None => "not known",
        Some(cell) if cell.present => "present",
        Some(_) => "absent",
    };
    if !legal {
        return Some((Kind::Illegal, format!("it is {state}, and {} said: {event:?}", decision.actor)));
    }
    let lost = matches!(event, cell::Event::Disappeared { .. }) && !matches!(decision.actor, Actor::Bbs(_));
    lost.then(|| (Kind::Illegal, format!("{} says that it is lost, and only a BBS does", decision.actor)))
}

/// What is wrong with what happens to the cluster, recorded at a position.
pub(super) fn cluster(
    cluster: Option<&Cluster>,
    event: &cluster::Event,
    decision: &Decision,
    recorded: Position,
) -> Option<Wrong> {
    let why = match (event, cluster) {
        (cluster::Event::Founded { .. }, None) => None,
        (cluster::Event::Founded { .. }, Some(_)) => Some("it is founded a second time".to_owned()),
        (_, None) => Some("it was never founded".to_owned()),
        (cluster::Event::Elected { role, id, term }, Some(cluster)) => {
            cluster::decide_election(cluster, *role, id, *term).err().map(|refusal| refusal.message)
        }
        (cluster::Event::OrdinalAssigned { cell_id, ordinal }, Some(cluster)) => {
            let taken = cluster.ordinals.contains_key(ordinal);
            let has = cluster.ordinals.values().any(|known| known == cell_id);
            let gap = (0..*ordinal).any(|less| !cluster.ordinals.contains_key(&less));
            (taken || has || gap)
                .then(|| format!("cell {cell_id} gets ordinal {ordinal}, which is not the lowest free one"))
        }
        (cluster::Event::OrdinalFreed { cell_id, ordinal }, Some(cluster)) => {
            let had = cluster.ordinals.get(ordinal) == Some(cell_id);
            (!had).then(|| format!("ordinal {ordinal} of cell {cell_id} is freed, and that is not its"))
        }
        (cluster::Event::FormatRaised { format }, Some(cluster)) => {
            let raised = *format > cluster.format;
            (!raised).then(|| format!("format {format} follows format {}", cluster.format))
        }
        (cluster::Event::PreemptionSwitched { on }, Some(cluster)) => {
            (*on == cluster.preemption).then(|| "preemption is so already".to_owned())
        }
        (cluster::Event::Resharded { shards }, Some(cluster)) => match cluster::check_shards(*shards) {
            Ok(()) => (*shards == cluster.shards).then(|| format!("there are {shards} shards already")),
            Err(refusal) => Some(refusal.message),
        },
        (cluster::Event::PositionSetAside { position, .. }, Some(_)) => {
            set_aside(*position, decision, recorded)
        }
    };
    why.map(|why| (Kind::Illegal, why))
}

/// Only an operator passes over what stands in the log, and only what stands there already.
fn set_aside(position: Position, decision: &Decision, recorded: Position) -> Option<String> {
    match &decision.actor {
        Actor::Operator(_) if position < recorded => None,
        Actor::Operator(_) => Some(format!("position {position} is set aside before anything stands there")),
        Actor::Client { .. } | Actor::Cell(_) | Actor::Auctioneer(_) | Actor::Bbs(_) => {
            Some(format!("{} sets position {position} aside, and only an operator does", decision.actor))
        }
    }
}
