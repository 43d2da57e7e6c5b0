//! Text of the reason that work waits for a cell.

use auctioneer::plan::{Nearest, Obstacle};
use explain::placement_gap::{Occupant, PlacementGap};
use schemas::resources::Resources;
use text::words::{count, mebibytes};

/// Maximum number of occupants named in a sentence.
const MAX_NAMED: usize = 3;

/// Formats the explanation as a sentence.
pub(crate) fn sentence(gap: &PlacementGap) -> String {
    let Some(Nearest { cell_id: cell, obstacle: keeps }) = &gap.nearest else {
        return "no cell may run it".to_owned();
    };
    match keeps {
        None => format!("cell {cell} now has room for it; the next auction may place it"),
        Some(Obstacle::InsufficientFree(taken)) => {
            format!(
                "it would fit on cell {cell} if {} were free there{}",
                resources_text(*taken),
                occupants_text(gap, *taken)
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
            occupants_text(gap, *taken)
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
fn occupants_text(gap: &PlacementGap, missing: Resources) -> String {
    let named = |taker: &Occupant| {
        format!("{} uses {}", taker.name, resources_text(restrict_to_missing(taker.resources, missing)))
    };
    let mut named: Vec<String> = gap.occupants.iter().take(MAX_NAMED).map(named).collect();
    let more = gap.occupants.len().saturating_sub(MAX_NAMED);
    named.extend((more > 0).then(|| format!("{more} more would also have to stop")));
    if named.is_empty() { String::new() } else { format!(": {}", named.join(", ")) }
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
    use schemas::names::CellId;

    use super::*;

    fn memory(memory_mb: u64) -> Resources {
        Resources { memory_mb, ..Resources::default() }
    }

    #[test]
    fn placement_gap_is_formatted_as_sentence() {
        let near = |keeps| PlacementGap {
            nearest: Some(Nearest { cell_id: CellId::new("c2").unwrap(), obstacle: keeps }),
            occupants: vec![Occupant {
                name: "web/1".into(),
                resources: Resources::for_container(256, 10, 0),
            }],
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
            assert_eq!(sentence(&near(keeps)), said);
        }
        let nowhere = PlacementGap { nearest: None, occupants: vec![] };
        assert_eq!(sentence(&nowhere), "no cell may run it");
    }
}
