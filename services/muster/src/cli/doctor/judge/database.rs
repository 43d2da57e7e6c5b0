//! Check of the tables of a database.

use std::time::Duration;

use schemas::query::ClusterRow;

use super::super::super::words::took;
use super::super::check::Check;
use super::super::facts::{Asked, Tables};
use super::unknown;

/// Minimum age of an entry missing in the tables for a warning.
const BEHIND: Duration = Duration::from_secs(5);

pub(super) fn check(tables: &Asked<Tables>, cluster: Option<&ClusterRow>) -> Check {
    let Tables { url, generations, behind } = match tables {
        Ok(tables) => tables,
        Err(why @ super::Unknown::Skipped(_)) => return unknown("database", why),
        Err(why @ super::Unknown::Failed(_)) => {
            let advice = "see that the database runs, and that its user may read it: --database URL";
            return unknown("database", why).advise(advice);
        }
    };
    let Some(live) = generations.iter().find(|one| one.live) else {
        return Check::failed("database", format!("{url} has no tables that readers see"))
            .advise(format!("start a projector, or build them: muster projection rebuild --database {url}"));
    };
    let position = live.end.position;
    let mut found = format!("{url}, generation {}, position {position}", live.generation);
    if let (Some(of), Some(here)) = (&live.cluster_id, cluster.map(|row| row.cluster_id.to_string()))
        && *of != here
    {
        return Check::failed(
            "database",
            format!("{found}: its tables are of cluster {of}, and this is {here}"),
        )
        .advise("name the database of this cluster: --database URL");
    }
    if !live.is_of_this_program(url) {
        return Check::warning("database", format!("{found}: another version of muster made its tables"))
            .advise(format!(
                "make them again, while readers see the old ones: muster projection rebuild --database {url}"
            ));
    }
    match behind {
        Err(super::Unknown::Skipped(why) | super::Unknown::Failed(why)) => {
            Check::warning("database", format!("{found}; how far that is behind is not known: {why}"))
        }
        Ok((end, since)) => {
            let entries = end.0.saturating_sub(position.0);
            let since = since.unwrap_or_default();
            if entries == 0 {
                found.push_str(", nothing behind");
            } else {
                found.push_str(&format!(", {entries} entries behind, for {}", took(since)));
            }
            if entries > 0 && since >= BEHIND {
                return Check::warning("database", found)
                    .advise(format!("see that a projector runs: muster projector --database {url}"))
                    .advise("what it can't get past, if so: muster dead-letters list");
            }
            Check::ok("database", found)
        }
    }
}
