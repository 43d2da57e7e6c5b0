//! Rules for events of cells and of the cluster (docs/internals/model/cells.md, "Cells").

use machines::cell::Cell;
use machines::cluster::Cluster;
use schemas::stamp::Actor;
use schemas::{Decision, Position, cell, cluster};

use super::Violation;
use crate::Kind;

/// Checks an event of a cell.
pub(super) fn cell(cell: Option<&Cell>, event: &cell::Event, decision: &Decision) -> Option<Violation> {
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
        None => "unknown",
        Some(cell) if cell.present => "present",
        Some(_) => "absent",
    };
    if !legal {
        return Some((
            Kind::Illegal,
            format!("the cell is {state}: {} cannot decide {event:?}", decision.actor),
        ));
    }
    let lost = matches!(event, cell::Event::Disappeared { .. }) && !matches!(decision.actor, Actor::Bbs(_));
    lost.then(|| (Kind::Illegal, format!("{} declared the cell lost: only a BBS can", decision.actor)))
}

/// Checks an event of the cluster, which is recorded at a position.
pub(super) fn check_cluster(
    cluster: Option<&Cluster>,
    event: &cluster::Event,
    decision: &Decision,
    recorded: Position,
) -> Option<Violation> {
    let why = match (event, cluster) {
        (cluster::Event::Founded { .. }, None) => None,
        (cluster::Event::Founded { .. }, Some(_)) => Some("the cluster is founded a second time".to_owned()),
        (_, None) => Some("the cluster was never founded".to_owned()),
        (cluster::Event::Elected { role, id, term }, Some(cluster)) => {
            machines::cluster::decide_election(cluster, *role, id, *term).err().map(|refusal| refusal.message)
        }
        (cluster::Event::OrdinalAssigned { cell_id, ordinal }, Some(cluster)) => {
            let taken = cluster.ordinals.contains_key(ordinal);
            let has = cluster.ordinals.values().any(|known| known == cell_id);
            let gap = (0..*ordinal).any(|less| !cluster.ordinals.contains_key(&less));
            (taken || has || gap).then(|| {
                format!("invalid ordinal {ordinal} for cell {cell_id}: expected the lowest free one")
            })
        }
        (cluster::Event::OrdinalFreed { cell_id, ordinal }, Some(cluster)) => {
            let had = cluster.ordinals.get(ordinal) == Some(cell_id);
            (!had).then(|| format!("freed ordinal {ordinal} is not that of cell {cell_id}"))
        }
        (cluster::Event::FormatRaised { format }, Some(cluster)) => {
            let raised = *format > cluster.format;
            (!raised).then(|| format!("format {format} is not higher than format {}", cluster.format))
        }
        (cluster::Event::PreemptionSwitched { enabled }, Some(cluster)) => {
            (*enabled == cluster.preemption).then(|| "preemption already has this setting".to_owned())
        }
        (cluster::Event::Resharded { shards }, Some(cluster)) => match cluster::check_shards(*shards) {
            Ok(()) => (*shards == cluster.shards).then(|| format!("the cluster already has {shards} shards")),
            Err(refusal) => Some(refusal.message),
        },
        (cluster::Event::EntryQuarantined { position, .. }, Some(_)) => {
            check_quarantine(*position, decision, recorded)
        }
    };
    why.map(|why| (Kind::Illegal, why))
}

/// Checks that the actor is an operator and that the position is before this entry. A position may be
/// quarantined only in this case.
fn check_quarantine(position: Position, decision: &Decision, recorded: Position) -> Option<String> {
    match &decision.actor {
        Actor::Operator(_) if position < recorded => None,
        Actor::Operator(_) => Some(format!("position {position} is quarantined before it has an entry")),
        Actor::Client { .. } | Actor::Cell(_) | Actor::Auctioneer(_) | Actor::Bbs(_) => {
            Some(format!("{} quarantined position {position}: only an operator can", decision.actor))
        }
    }
}
