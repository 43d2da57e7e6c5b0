//! Explains why work waits for a cell: the nearest cell, and the resources that would have to be freed there.
//! Computed from query results; no commands are sent.

use std::collections::BTreeMap;

use auctioneer::auction::Item;
use auctioneer::board::Board;
use auctioneer::plan::{Nearest, Obstacle, board_cell, known_process, known_task, nearest};
use client::{Client, Error, ListFilter, instance_key};
use schemas::Place;
use schemas::container::WorkKey;
use schemas::names::CellId;
use schemas::query::{InstanceRow, InstanceState, TaskRow};
use schemas::resources::Resources;
use serde::Serialize;

/// Reason that waiting work has no cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlacementGap {
    /// The cell that comes closest to accepting the work. `None` if the work may not run on any cell.
    pub nearest: Option<Nearest>,
    /// A small set of work (instances and tasks) on that cell that uses the missing resources. Empty if
    /// stopping work would not help.
    pub occupants: Vec<Occupant>,
}

/// Work that uses resources of a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Occupant {
    pub name: String,
    pub resources: Resources,
}

/// Explains why an instance waits for a cell. `None` if the instance does not wait.
///
/// # Errors
/// A query fails.
pub async fn for_instance(client: &Client, row: &InstanceRow) -> Result<Option<PlacementGap>, Error> {
    if row.state != InstanceState::Unclaimed {
        return Ok(None);
    }
    let lrp = client.lrp(&row.process_guid).await?.row;
    let instances = client.instances(&ListFilter::process(row.process_guid.clone())).await?.rows;
    let process = known_process(&lrp, &instances);
    let place = Place::new(row.index, row.definition_id.clone());
    let Some(item) = Item::of_place(&process, &place) else { return Ok(None) };
    let mut siblings: BTreeMap<CellId, u32> = BTreeMap::new();
    for by in process.retained_containers() {
        *siblings.entry(by.cell_id.clone()).or_default() += 1;
    }
    for_item(client, &item, Some(&siblings)).await.map(Some)
}

/// Explains why a task waits for a cell. `None` if the task does not wait.
///
/// # Errors
/// A query fails.
pub async fn for_task(client: &Client, row: &TaskRow) -> Result<Option<PlacementGap>, Error> {
    let Some(item) = known_task(row) else { return Ok(None) };
    for_item(client, &item, None).await.map(Some)
}

async fn for_item(
    client: &Client,
    item: &Item,
    siblings: Option<&BTreeMap<CellId, u32>>,
) -> Result<PlacementGap, Error> {
    let cells = client.cells().await?.rows;
    let nearest = nearest(&Board::new(cells.iter().filter_map(board_cell)), item, siblings);
    let taken = nearest.as_ref().and_then(|nearest| match nearest.obstacle.as_ref()? {
        Obstacle::InsufficientFree(taken) | Obstacle::Unavailable { insufficient_free: taken, .. } => {
            Some((&nearest.cell_id, *taken))
        }
        Obstacle::InstanceLimit(_) | Obstacle::InsufficientTotal(_) | Obstacle::Incompatible(_) => None,
    });
    let occupants = match taken {
        Some((cell, taken)) if taken != Resources::default() => {
            smallest_sufficient_set(taken, takers(client, cell, item).await?)
        }
        Some(_) | None => vec![],
    };
    Ok(PlacementGap { nearest, occupants })
}

/// Returns the work on a cell, except for instances of the same process.
async fn takers(client: &Client, cell: &CellId, item: &Item) -> Result<Vec<Occupant>, Error> {
    let own = match &item.rank.key {
        WorkKey::Lrp { key, .. } => Some(&key.process_guid),
        WorkKey::Task { .. } => None,
    };
    let only = ListFilter::cell(cell.clone());
    let instances = client.instances(&only).await?.rows;
    let lrps = client.lrps(&ListFilter::default()).await?.rows;
    let lrps: BTreeMap<_, _> = lrps.iter().map(|row| (&row.process_guid, &row.sizes)).collect();
    let others = instances.iter().filter(|row| own != Some(&row.process_guid));
    let instance = |row: &InstanceRow| {
        let resources = *lrps.get(&row.process_guid)?.get(&row.definition_id)?;
        Some(Occupant { name: instance_key(row).to_string(), resources })
    };
    let tasks = client.tasks_with_definitions(&only).await?.rows;
    let task = |row: &TaskRow| {
        let resources = row.definition.as_ref()?.resources();
        Some(Occupant { name: row.task_guid.to_string(), resources })
    };
    Ok(others.filter_map(instance).chain(tasks.iter().filter_map(task)).collect())
}

/// Selects a small set of work that would free the resources `short` if it ended. If a single item suffices,
/// the set is the smallest such item. Otherwise the set consists of the largest items, until their sum
/// suffices. Empty if all items together use less than `short`.
fn smallest_sufficient_set(mut short: Resources, mut takers: Vec<Occupant>) -> Vec<Occupant> {
    let size = |taker: &Occupant| (taker.resources.memory_mb, taker.resources.disk_mb, taker.resources.ports);
    takers.sort_by(|a, b| (size(a), &a.name).cmp(&(size(b), &b.name)));
    if let Some(one) = takers.iter().find(|taker| taker.resources.fits(short)) {
        return vec![one.clone()];
    }
    let mut chosen = vec![];
    for taker in takers.into_iter().rev() {
        let left = short.minus(taker.resources);
        if left != short {
            short = left;
            chosen.push(taker);
        }
        if short == Resources::default() {
            return chosen;
        }
    }
    vec![]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taker(name: &str, memory_mb: u64) -> Occupant {
        Occupant { name: name.into(), resources: Resources::for_container(memory_mb, 10, 0) }
    }

    fn memory(memory_mb: u64) -> Resources {
        Resources { memory_mb, ..Resources::default() }
    }

    #[test]
    fn smallest_sufficient_set_of_occupants_is_selected() {
        let all = || vec![taker("a/0", 64), taker("b/0", 256), taker("c/0", 128), taker("d/0", 128)];
        let names = |short| {
            smallest_sufficient_set(short, all()).into_iter().map(|taker| taker.name).collect::<Vec<_>>()
        };
        assert_eq!(names(memory(10)), ["a/0"]);
        assert_eq!(names(memory(100)), ["c/0"]);
        assert_eq!(names(memory(300)), ["b/0", "d/0"]);
        assert_eq!(names(memory(576)), ["b/0", "d/0", "c/0", "a/0"]);
        assert!(names(memory(577)).is_empty(), "all of them together are not enough");
        assert!(names(Resources { ports: 1, ..memory(1) }).is_empty(), "no occupant uses a port");
    }
}
