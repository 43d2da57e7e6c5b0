//! Check of the tables of a database.

use std::time::Duration;

use schemas::query::ClusterRow;
use text::words::precise_duration;

use super::super::check::Check;
use super::super::facts::{Fact, LiveTables, Tables};
use super::unknown_fact;

/// Age at which an entry that is missing in the tables causes a warning.
const MAX_LAG: Duration = Duration::from_secs(5);

pub(super) fn check(tables: &Fact<Tables>, cluster: Option<&ClusterRow>) -> Check {
    let Tables { url, live, behind } = match tables {
        Ok(tables) => tables,
        Err(why @ super::Unknown::Skipped(_)) => return unknown_fact("database", why),
        Err(why @ super::Unknown::Failed(_)) => {
            let advice = "check that the database runs, and that its user may read it: --database URL";
            return unknown_fact("database", why).advise(advice);
        }
    };
    let Some(live) = live else {
        return Check::failed("database", format!("{url} has no live tables")).advise(format!(
            "start a projector, or build the tables: muster projection rebuild --database {url}"
        ));
    };
    let LiveTables { generation, position, cluster_id, is_of_this_program } = live;
    let mut found = format!("{url}, generation {generation}, position {position}");
    if let (Some(of), Some(here)) = (cluster_id, cluster.map(|row| row.cluster_id.to_string()))
        && *of != here
    {
        return Check::failed(
            "database",
            format!("{found}: its tables belong to cluster {of}, but this is cluster {here}"),
        )
        .advise("pass the database of this cluster: --database URL");
    }
    if !is_of_this_program {
        return Check::warning("database", format!("{found}: its tables were built by another version of muster"))
            .advise(format!(
                "rebuild them; readers see the old tables until it is done: muster projection rebuild --database {url}"
            ));
    }
    match behind {
        Err(super::Unknown::Skipped(why) | super::Unknown::Failed(why)) => {
            Check::warning("database", format!("{found}; lag unknown: {why}"))
        }
        Ok((end, since)) => {
            let entries = end.0.saturating_sub(position.0);
            let since = since.unwrap_or_default();
            if entries == 0 {
                found.push_str(", up to date");
            } else {
                found.push_str(&format!(", {entries} entries behind, for {}", precise_duration(since)));
            }
            if entries > 0 && since >= MAX_LAG {
                return Check::warning("database", found)
                    .advise(format!("check that a projector runs: muster projector --database {url}"))
                    .advise("if one runs, list the entry that blocks it: muster dead-letters list");
            }
            Check::ok("database", found)
        }
    }
}
