//! Explains why work waits for a cell: the nearest cell, and the resources that would have to be freed there.
//! Computed by the client from query results; no commands are sent.

use std::collections::BTreeMap;

use auctioneer::auction::Item;
use auctioneer::board::Board;
use auctioneer::plan::{Nearest, Obstacle, board_cell, known_process, known_task, nearest};
use cli_base::failure::Failure;
use client::{Client, ListFilter, instance_key};
use schemas::Place;
use schemas::container::WorkKey;
use schemas::names::CellId;
use schemas::query::{InstanceRow, InstanceState, TaskRow};
use schemas::resources::Resources;
use serde::Serialize;
use text::words::{count, mebibytes};

/// Maximum number of occupants named in a sentence.
const MAX_NAMED: usize = 3;

/// Reason that waiting work has no cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct PlacementGap {
    /// The cell that comes closest to accepting the work. `None` if the work may not run on any cell.
    nearest: Option<Nearest>,
    /// A small set of work (instances and tasks) on that cell that uses the missing resources. Empty if
    /// stopping work would not help.
    occupants: Vec<Occupant>,
}

/// Work that uses resources of a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Occupant {
    name: String,
    resources: Resources,
}

/// Explains why an instance waits for a cell. `None` if the instance does not wait.
pub(crate) async fn for_instance(
    client: &Client,
    row: &InstanceRow,
) -> Result<Option<PlacementGap>, Failure> {
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
pub(crate) async fn for_task(client: &Client, row: &TaskRow) -> Result<Option<PlacementGap>, Failure> {
    let Some(item) = known_task(row) else { return Ok(None) };
    for_item(client, &item, None).await.map(Some)
}

async fn for_item(
    client: &Client,
    item: &Item,
    siblings: Option<&BTreeMap<CellId, u32>>,
) -> Result<PlacementGap, Failure> {
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
async fn takers(client: &Client, cell: &CellId, item: &Item) -> Result<Vec<Occupant>, Failure> {
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

impl PlacementGap {
    /// Formats the explanation as a sentence.
    pub(crate) fn sentence(&self) -> String {
        let Some(Nearest { cell_id: cell, obstacle: keeps }) = &self.nearest else {
            return "no cell may run it".to_owned();
        };
        match keeps {
            None => format!("cell {cell} now has room for it; the next auction may place it"),
            Some(Obstacle::InsufficientFree(taken)) => {
                format!(
                    "it would fit on cell {cell} if {} were free there{}",
                    resources_text(*taken),
                    self.occupants_text(*taken)
                )
            }
            Some(Obstacle::InstanceLimit(rule)) => {
                format!("it would fit on cell {cell} if {rule} allowed another instance there")
            }
            Some(Obstacle::Unavailable { reason: why, insufficient_free: taken })
                if *taken == Resources::default() =>
            {
                format!("it would fit on cell {cell} if the cell accepted new work, but the cell is {why}")
            }
            Some(Obstacle::Unavailable { reason: why, insufficient_free: taken }) => format!(
                "it would fit on cell {cell}, which is {why}, if the cell accepted new work \
                 and {} were free there{}",
                resources_text(*taken),
                self.occupants_text(*taken)
            ),
            Some(Obstacle::InsufficientTotal(short)) => {
                format!("no compatible cell is large enough: cell {cell} lacks {}", resources_text(*short))
            }
            Some(Obstacle::Incompatible(why)) => {
                format!("freeing resources would not help: cell {cell} is not compatible ({why})")
            }
        }
    }

    /// Formats the list of work that uses the missing resources.
    fn occupants_text(&self, missing: Resources) -> String {
        let named = |taker: &Occupant| {
            format!("{} uses {}", taker.name, resources_text(restrict_to_missing(taker.resources, missing)))
        };
        let mut named: Vec<String> = self.occupants.iter().take(MAX_NAMED).map(named).collect();
        let more = self.occupants.len().saturating_sub(MAX_NAMED);
        named.extend((more > 0).then(|| format!("{more} more would also have to stop")));
        if named.is_empty() { String::new() } else { format!(": {}", named.join(", ")) }
    }
}

/// Formats resources, such as `64M of memory, 1 port`.
fn resources_text(of: Resources) -> String {
    let of = [
        (of.memory_mb > 0).then(|| format!("{} of memory", mebibytes(of.memory_mb))),
        (of.disk_mb > 0).then(|| format!("{} of disk", mebibytes(of.disk_mb))),
        (of.containers > 0).then(|| count(of.containers.into(), "container")),
        (of.ports > 0).then(|| count(of.ports.into(), "port")),
    ];
    of.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Returns `there` restricted to the missing resources. All other resources are zero.
fn restrict_to_missing(there: Resources, missing: Resources) -> Resources {
    Resources {
        memory_mb: if missing.memory_mb > 0 { there.memory_mb } else { 0 },
        disk_mb: if missing.disk_mb > 0 { there.disk_mb } else { 0 },
        containers: if missing.containers > 0 { there.containers } else { 0 },
        ports: if missing.ports > 0 { there.ports } else { 0 },
    }
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

    #[test]
    fn placement_gap_is_formatted_as_sentence() {
        let near = |keeps| PlacementGap {
            nearest: Some(Nearest { cell_id: CellId::new("c2").unwrap(), obstacle: keeps }),
            occupants: vec![taker("web/1", 256)],
        };
        for (keeps, said) in [
            (None, "cell c2 now has room for it; the next auction may place it"),
            (
                Some(Obstacle::InsufficientFree(memory(64))),
                "it would fit on cell c2 if 64M of memory were free there: web/1 uses 256M of memory",
            ),
            (
                Some(Obstacle::InstanceLimit("distinct_cell".into())),
                "it would fit on cell c2 if distinct_cell allowed another instance there",
            ),
            (
                Some(Obstacle::Unavailable { reason: "cordoned", insufficient_free: memory(0) }),
                "it would fit on cell c2 if the cell accepted new work, but the cell is cordoned",
            ),
            (
                Some(Obstacle::Unavailable { reason: "silent", insufficient_free: memory(1_024) }),
                "it would fit on cell c2, which is silent, if the cell accepted new work and 1G \
                 of memory were free there: web/1 uses 256M of memory",
            ),
            (
                Some(Obstacle::InsufficientTotal(Resources { disk_mb: 2_048, ..memory(64) })),
                "no compatible cell is large enough: cell c2 lacks 64M of memory, 2G of disk",
            ),
            (
                Some(Obstacle::Incompatible("constraint zone = z9".into())),
                "freeing resources would not help: cell c2 is not compatible (constraint zone = z9)",
            ),
        ] {
            assert_eq!(near(keeps).sentence(), said);
        }
        let nowhere = PlacementGap { nearest: None, occupants: vec![] };
        assert_eq!(nowhere.sentence(), "no cell may run it");
    }
}
