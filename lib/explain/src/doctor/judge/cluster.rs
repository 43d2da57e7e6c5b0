//! Checks of leaders, program versions and cells.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use schemas::cluster::Role;
use schemas::isolation::{Isolation, Level};
use schemas::query::{CellRow, CellState, ClusterRow, Finding, FindingCode, ServiceRow};
use text::words::{count, precise_duration};

use super::super::check::Check;
use super::super::facts::Cluster;
use super::unknown_fact;

/// Maximum lag of a service behind the log, in entries. A larger lag counts as a problem.
const MAX_LAG: u64 = 1_000;
/// Maximum number of names in a finding.
const MAX_NAMES: usize = 5;

pub(super) fn checks(cluster: &Cluster) -> Vec<Check> {
    let Cluster { row, cells } = cluster;
    let mut checks = match row {
        Ok(row) => vec![leader(row, Role::Bbs), leader(row, Role::Auctioneer), appends(row)],
        Err(why) => vec![
            unknown_fact("bbs", why).advise("check that a BBS runs: muster bbs, systemctl status muster-bbs"),
            Check::skipped("auctioneer", "no BBS answers"),
            Check::skipped("appends", "no BBS answers"),
        ],
    };
    let of_cells = cells.as_ref();
    checks.push(match (row, of_cells) {
        (Ok(row), of_cells) => versions(row, of_cells.map_or(&[], Vec::as_slice)),
        (Err(_), _) => Check::skipped("versions", "no BBS answers"),
    });
    match of_cells {
        Ok(cells) => checks.extend([cell_states(cells), isolation(cells)]),
        Err(why) => {
            let why = match (row, why) {
                (Err(_), _) => &super::Unknown::Skipped("no BBS answers".to_owned()),
                (Ok(_), why) => why,
            };
            checks.extend([unknown_fact("cells", why), unknown_fact("isolation", why)]);
        }
    }
    checks
}

/// Checks that a role has a leader.
fn leader(row: &ClusterRow, role: Role) -> Check {
    let (check, start) = match role {
        Role::Bbs => ("bbs", "muster bbs"),
        Role::Auctioneer => ("auctioneer", "muster auctioneer"),
    };
    let all: Vec<&ServiceRow> = row.services.rows.iter().filter(|row| row.role == role).collect();
    let standing_by = all.iter().filter(|row| !row.leads).count() as u64;
    let by = match standing_by {
        0 => "no standby".to_owned(),
        others => count(others, "standby"),
    };
    let Some(leader) = all.iter().find(|row| row.leads) else {
        if !row.services.complete {
            let why = "the answering BBS has just started: run muster doctor again";
            return Check::skipped(check, why);
        }
        let what = if role == Role::Bbs { "no command is accepted" } else { "nothing is placed" };
        let found = match standing_by {
            0 => format!("none is running: {what}"),
            _ => format!("none leads, {by}: {what}"),
        };
        return Check::failed(check, found)
            .advise(format!("start one, or check the logs of the running ones: {start}"));
    };
    let ServiceRow { id, term, program, lag, heartbeat_ms_ago: beat_ms_ago, .. } = leader;
    let beat = precise_duration(Duration::from_millis(*beat_ms_ago));
    let found = format!("{id} on {} leads in term {term}, last heartbeat {beat} ago; {by}", program.host);
    let behind: Vec<String> = all
        .iter()
        .filter(|row| row.lag >= MAX_LAG)
        .map(|row| format!("{} is {} entries behind", row.id, row.lag))
        .collect();
    if behind.is_empty() {
        return Check::ok(check, found);
    }
    let check = Check::warning(check, format!("{found}; {}", behind.join(", ")));
    if *lag >= MAX_LAG { check.advise("check the load of its host, and its log") } else { check }
}

/// Checks that the log accepts entries, according to the reports of the BBSs.
fn appends(row: &ClusterRow) -> Check {
    let of_appends =
        |finding: &&Finding| matches!(finding.code, FindingCode::AppendsFail | FindingCode::AppendsSlow);
    let Some(finding) = row.problems.iter().find(of_appends) else {
        return Check::ok("appends", "no BBS reports problems with appends");
    };
    if finding.code == FindingCode::AppendsFail {
        return Check::failed("appends", &finding.message)
            .advise(
                "if the disk is full: free disk space, then restart the NATS server, which stores \
                     nothing until then; muster dev continues without a restart",
            )
            .advise(
                "if a limit is reached: raise max_file_store in the server's configuration, max_bytes \
                     of the stream, or the limit of the account",
            )
            .advise(
                "if the server does not answer: check that a majority of the NATS servers runs, and GET \
                     /healthz of their monitoring",
            );
    }
    Check::warning("appends", &finding.message).advise(
        "check the disk of the NATS server that leads the stream, and the connection of the BBS to \
                 it",
    )
}

/// Checks that all services and this program have the same version.
fn versions(row: &ClusterRow, cells: &[CellRow]) -> Check {
    let own = env!("CARGO_PKG_VERSION");
    let services = row.services.rows.iter().map(|row| (row.program.version.clone(), row.id.to_string()));
    let present = cells.iter().filter(|row| row.state != CellState::Absent);
    let cells = present.filter_map(|row| {
        Some((row.presence.attributes.get("muster.version")?.to_owned(), format!("cell {}", row.cell_id)))
    });
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (version, who) in services.chain(cells) {
        all.entry(version).or_default().insert(who);
    }
    let known = all.values().map(BTreeSet::len).sum::<usize>() as u64;
    all.remove(own);
    if all.is_empty() {
        return Check::ok("versions", format!("{} and this program are {own}", count(known, "service")));
    }
    let other = all.iter().map(|(version, who)| format!("{} {version}", format_names(who.iter())));
    let found = format!("this program is {own}, {}", other.collect::<Vec<_>>().join("; "));
    Check::warning("versions", found).advise(
        "upgrade all services to the same version, one after the other: BBSs, auctioneers, reps, projectors",
    )
}

/// Formats the first few names.
fn format_names(names: impl ExactSizeIterator<Item = impl ToString>) -> String {
    let all = names.len();
    let first: Vec<String> = names.take(MAX_NAMES).map(|name| name.to_string()).collect();
    let more = all.saturating_sub(MAX_NAMES);
    if more == 0 { first.join(", ") } else { format!("{} and {more} more", first.join(", ")) }
}

/// Checks the states of the cells.
fn cell_states(cells: &[CellRow]) -> Check {
    let of = |state: CellState| -> Vec<String> {
        let gone_as_told =
            |row: &&CellRow| row.absent_reason.as_deref().is_some_and(|why| why.contains("evacuated"));
        let rows = cells.iter().filter(|row| row.state == state && !gone_as_told(row));
        rows.map(|row| row.cell_id.to_string()).collect()
    };
    let there: Vec<&CellRow> = cells.iter().filter(|row| row.state == CellState::Present).collect();
    let zones: BTreeSet<&str> = there.iter().map(|row| row.presence.zone.as_str()).collect();
    let mut found = format!(
        "{} present in {}",
        count(there.len() as u64, "cell"),
        if zones.is_empty() {
            "no zone".to_owned()
        } else {
            format!("{} ({})", count(zones.len() as u64, "zone"), format_names(zones.iter()))
        }
    );
    let mut advice = vec![];
    let wrong = [
        (
            CellState::Silent,
            "silent",
            "check that their hosts and reps run, and reach the NATS server: muster cell show CELL",
        ),
        (
            CellState::Unhealthy,
            "unhealthy",
            "check why their self-test fails: muster cell show CELL, and the log of the rep",
        ),
        (
            CellState::Absent,
            "lost",
            "start their reps again; if the cells are gone permanently: muster cell delete CELL",
        ),
        (
            CellState::Evacuating,
            "evacuating",
            "the evacuation ends when the cell is empty; to cancel it: muster cell uncordon CELL",
        ),
    ];
    for (state, word, what) in wrong {
        let names = of(state);
        if !names.is_empty() {
            found.push_str(&format!("; {word}: {}", format_names(names.iter())));
            advice.push(what);
        }
    }
    if there.is_empty() {
        let check = Check::warning("cells", format!("{found}: nothing can be placed"));
        return advice
            .into_iter()
            .fold(check.advise("start a rep: muster rep --cell ID --zone ZONE --data DIR"), Check::advise);
    }
    let fine = advice.is_empty();
    let check = if fine { Check::ok("cells", found) } else { Check::warning("cells", found) };
    advice.into_iter().fold(check, Check::advise)
}

/// Checks the isolation of containers on the cells.
fn isolation(cells: &[CellRow]) -> Check {
    let there = cells.iter().filter(|row| row.state != CellState::Absent);
    let mut all: BTreeMap<Isolation, Vec<&str>> = BTreeMap::new();
    for row in there {
        let said = row.presence.attributes.get(schemas::attributes::ISOLATION);
        let isolation = said.and_then(|text| text.parse().ok()).unwrap_or_default();
        all.entry(isolation).or_default().push(row.cell_id.as_str());
    }
    if all.is_empty() {
        return Check::skipped("isolation", "no cells");
    }
    let found: Vec<String> =
        all.iter().map(|(isolation, cells)| format!("{isolation}: {}", format_names(cells.iter()))).collect();
    let found = found.join("; ");
    if all.keys().all(|isolation| isolation.level() == Level::Full) {
        return Check::ok("isolation", found);
    }
    Check::warning("isolation", found).advise(
        "run muster doctor as the rep's user on each of these hosts: its check host lists what the \
                 missing layers need",
    )
}
