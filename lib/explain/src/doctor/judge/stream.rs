//! Checks of the journal's storage: its settings, its content, and its durability.

use journal::Durability;
use schemas::Position;
use text::words::count;

use super::super::check::Check;
use super::super::facts::{Fact, Folder, NatsFacts, Reading, Storage, Stream};
use super::{Unknown, bytes_text, unknown_fact};

/// Usage of a storage limit, in percent: the check warns at the first value and fails at the second.
const USAGE_THRESHOLDS: (u64, u64) = (80, 95);
/// Default maximum number of consumers that a server allows on a stream. When it is reached, no further
/// program can follow the log.
const CONSUMERS_ALLOWED: usize = 1_000;
/// Number of consumers at which the check warns. A cluster needs one consumer for each BBS, auctioneer and
/// projector.
const MANY_CONSUMERS: usize = 200;
/// Advice for a compressed stream.
const COMPRESSION_ADVICE: &str =
    "as an admin: muster auth add FOLDER admin NAME, then muster journal migrate with its credentials";
/// Advice for a full disk of a NATS server.
const FULL_DISK_ADVICE: &str = "free disk space on that server, then restart it: after a failed write \
                                nats-server stores nothing until a restart";
/// Free disk space in bytes: the check warns below the first value and fails below the second.
const FREE_THRESHOLDS: (u64, u64) = (1 << 30, 100 << 20);

pub(super) fn checks(on: &NatsFacts) -> Vec<Check> {
    let durability = durability(&on.durability);
    match &on.stream {
        Ok(stream) => vec![
            settings(stream),
            positions(stream),
            entries(&on.entries),
            replicas(stream, on.server.cluster.as_deref()),
            durability,
            storage(stream, &on.storage),
            health(&on.health),
        ],
        Err(why) => {
            let other = |check| Check::skipped(check, "the stream is unknown");
            vec![
                unknown_fact("stream", why).advise_if_failed(),
                other("positions"),
                other("entries"),
                other("replicas"),
                durability,
                other("storage"),
                health(&on.health),
            ]
        }
    }
}

impl Check {
    /// Adds advice for a missing stream.
    fn advise_if_failed(self) -> Self {
        if self.outcome == super::super::check::Outcome::Failed {
            return self
                .advise("restore a backup first: muster import (docs/guides/back-up-and-restore.md)")
                .advise("for a new cluster: muster cluster found");
        }
        self
    }
}

/// Checks the settings of the stream, and that no entries are lost.
fn settings(stream: &Stream) -> Check {
    let seen = &stream.examination;
    let wrong = [seen.problems.as_slice(), seen.losses.as_slice()].concat();
    if !wrong.is_empty() {
        let check = Check::failed("stream", format!("{}: {}", journal::STREAM, wrong.join("; ")));
        let check = if seen.losses.is_empty() {
            check
        } else {
            check.advise(
                "entries are lost: restore the stream from a snapshot or an export \
                          (docs/guides/back-up-and-restore.md)",
            )
        };
        return if seen.problems.is_empty() {
            check
        } else {
            check.advise(
                "services reject this stream: change it as an admin (muster auth add FOLDER admin \
                          NAME, then nats stream edit MUSTER); for settings that can't be changed, export \
                          the log and import it into a new stream",
            )
        };
    }
    if !seen.hazards.is_empty() {
        return Check::failed("stream", seen.hazards.join("; ")).advise(COMPRESSION_ADVICE);
    }
    if seen.consumers >= MANY_CONSUMERS {
        let found =
            format!("{}: {} consumers of at most {CONSUMERS_ALLOWED}", journal::STREAM, seen.consumers);
        return Check::warning("stream", found).advise(
            "a user whose key may follow the log creates \
                                                       consumers: revoke the key (muster auth revoke), or, \
                                                       as an admin, delete the consumers (nats consumer \
                                                       report MUSTER)",
        );
    }
    if !seen.differences.is_empty() {
        return Check::warning("stream", format!("{}: {}", journal::STREAM, seen.differences.join("; ")))
            .advise(format!("compression: {COMPRESSION_ADVICE}"))
            .advise("other settings: nats stream edit MUSTER as an admin");
    }
    Check::ok("stream", format!("{} has the expected settings", journal::STREAM))
}

/// Checks that the first, the last and sampled entries can be read from each server.
fn entries(readings: &Fact<Vec<Reading>>) -> Check {
    let readings = match readings {
        Ok(readings) => readings,
        Err(why) => return unknown_fact("entries", why),
    };
    let (mut read, mut unreachable, mut unreadable) = (vec![], vec![], vec![]);
    for Reading { server, read: outcome } in readings {
        match outcome {
            Ok(number) => read.push(format!("{number} of {server}")),
            Err(Unknown::Skipped(why)) => unreachable.push(format!("{server} was not read: {why}")),
            Err(Unknown::Failed(why)) => unreadable.push(format!("{server}: {why}")),
        }
    }
    if !unreadable.is_empty() {
        return Check::failed("entries", unreadable.join("; "))
            .advise("the log of that server names the cause (grep for MUSTER)")
            .advise(
                "if the other servers can read the entry: stop that server, move its store away and \
                     start it again, so that it copies the entries of the others; if none can: restore the \
                     log (docs/guides/back-up-and-restore.md)",
            );
    }
    let read =
        if read.is_empty() { "nothing was read".to_owned() } else { format!("read: {}", read.join(", ")) };
    if unreachable.is_empty() {
        return Check::ok("entries", read);
    }
    Check::warning("entries", format!("{read}; {}", unreachable.join("; ")))
        .advise("check that this server runs")
}

fn positions(stream: &Stream) -> Check {
    let (first, last) = stream.examination.positions;
    if last == Position(0) {
        return Check::warning("positions", "the journal is empty: no cluster has been founded")
            .advise("restore a backup first: muster import (docs/guides/back-up-and-restore.md)")
            .advise("for a new cluster: muster cluster found");
    }
    Check::ok("positions", format!("{first} to {last}"))
}

fn replicas(stream: &Stream, cluster: Option<&str>) -> Check {
    let seen = &stream.examination;
    let leader = seen.leader.as_ref().map(|leader| format!(", led by {leader}")).unwrap_or_default();
    let found = format!("{}{leader}", count(seen.replicas as u64, "replica"));
    let behind: Vec<String> = seen
        .peers
        .iter()
        .filter(|peer| peer.offline || !peer.current)
        .map(|peer| match (peer.offline, peer.lag) {
            (true, _) => format!("{} is offline", peer.name),
            (false, lag) => format!("{} is behind by {}", peer.name, count(lag, "message")),
        })
        .collect();
    if seen.replicas > 1 && seen.leader.is_none() {
        return Check::failed("replicas", format!("{found}: none leads, so nothing can be written")).advise(
            "restart servers until a majority runs; list the running ones: nats server report \
                     jetstream",
        );
    }
    if !behind.is_empty() {
        return Check::warning("replicas", format!("{found}; {}", behind.join(", "))).advise(
            "the loss of another server can stop the log until this one has caught up: check its log",
        );
    }
    if let (1, Some(cluster)) = (seen.replicas, cluster) {
        return Check::warning(
            "replicas",
            format!(
                "{found}, on a cluster of servers ({cluster}): the log is \
                                                   lost with that server"
            ),
        )
        .advise(
            "as an admin: nats --inbox-prefix muster.inbox.admin.NAME stream edit MUSTER --replicas \
                     3; then start each BBS with --replicas 3",
        );
    }
    Check::ok("replicas", found)
}

fn durability(durability: &Durability) -> Check {
    match durability {
        Durability::Synced => Check::ok("durability", "every write is synced before it is acknowledged"),
        Durability::Unverified(why) => Check::warning("durability", format!("unverified: {why}")).advise(
            "set sync_interval: always in the jetstream block of the server's configuration, and \
                     pass --monitoring http://HOST:8222 here and to each BBS",
        ),
        Durability::Volatile => Check::failed(
            "durability",
            "the journal is in memory: it is lost when the \
            server stops",
        ),
    }
}

fn storage(stream: &Stream, servers: &Fact<Vec<Storage>>) -> Check {
    let seen = &stream.examination;
    let mut found = format!("the stream uses {}", bytes_text(seen.bytes));
    let (mut fullest, mut least, mut is_short) = (0, u64::MAX, false);
    if let Some(most) = seen.max_bytes {
        found.push_str(&format!(" of {}", bytes_text(most)));
        fullest = percent(seen.bytes, most);
    }
    match servers {
        Ok(servers) => {
            for Storage { url, used, max_bytes: most, free } in servers {
                let limit = if *most == 0 { String::new() } else { format!(" of {}", bytes_text(*most)) };
                found.push_str(&format!("; the server at {url} uses {}{limit}", bytes_text(*used)));
                fullest = fullest.max(percent(*used, *most));
                if let Some(free) = free {
                    found.push_str(&format!(", {} are free on its disk", bytes_text(*free)));
                    least = least.min(*free);
                    is_short |= *most > 0 && used.saturating_add(*free) < *most;
                }
            }
        }
        Err(Unknown::Failed(why) | Unknown::Skipped(why)) => {
            found.push_str(&format!("; limits of the server unknown: {why}"));
        }
    }
    let advice = "raise the limits of JetStream (max_file_store in the server's configuration, max_bytes of \
                  the stream): no command is accepted once they are reached";
    match (fullest, least) {
        (_, free) if free < FREE_THRESHOLDS.1 => Check::failed("storage", found).advise(FULL_DISK_ADVICE),
        (full, _) if full >= USAGE_THRESHOLDS.1 => Check::failed("storage", found).advise(advice),
        (full, _) if full >= USAGE_THRESHOLDS.0 => Check::warning("storage", found).advise(advice),
        (_, free) if free < FREE_THRESHOLDS.0 => Check::warning("storage", found).advise(FULL_DISK_ADVICE),
        _ if is_short => Check::warning("storage", format!("{found}: less than max_file_store allows"))
            .advise(
                "set max_file_store below the free disk space: at the limit, writes are refused and \
                     continue later without a restart; after a full disk the server needs a restart",
            ),
        _ => Check::ok("storage", found),
    }
}

/// Checks the answers of the servers' health endpoints.
fn health(servers: &Fact<Vec<(String, Result<(), String>)>>) -> Check {
    let servers = match servers {
        Ok(servers) => servers,
        Err(Unknown::Skipped(why)) => return Check::skipped("health", why),
        Err(why) => {
            return unknown_fact("health", why)
                .advise("check that the server runs with that monitoring address (http)");
        }
    };
    let bad: Vec<String> = servers
        .iter()
        .filter_map(|(url, said)| Some(format!("{url} reports: {}", said.as_ref().err()?)))
        .collect();
    if bad.is_empty() {
        return Check::ok("health", format!("{} healthy", count(servers.len() as u64, "server")));
    }
    let found = bad.join("; ");
    let is_full = found.contains("no space left") || found.contains("write error");
    let check = Check::failed("health", found);
    if is_full {
        return check.advise(FULL_DISK_ADVICE);
    }
    check.advise(
        "check the log of that server; if it is starting or catching up, run muster doctor again \
                  later",
    )
}

/// Returns the usage of a limit in percent, or 0 without a limit.
const fn percent(used: u64, most: u64) -> u64 {
    match most {
        0 => 0,
        most => used.saturating_mul(100) / most,
    }
}

/// Returns the journal checks of a local cluster.
pub(super) fn local_checks(folder: &Folder) -> Vec<Check> {
    let (path, alone) = (folder.path.display(), "a local cluster has one journal file");
    let stream = Check::skipped("stream", "a local cluster has an embedded journal");
    let (positions, size) = match &folder.journal {
        Ok((end, size)) if *end > Position(0) => (Check::ok("positions", format!("1 to {end}")), *size),
        Ok((_, size)) => (Check::warning("positions", "the journal is empty"), *size),
        Err(why) => (unknown_fact("positions", why), 0),
    };
    let entries = match &folder.journal {
        Ok(_) => Check::ok("entries", "read the first, the last and sampled entries"),
        Err(why) => unknown_fact("entries", why),
    };
    let replicas = Check::skipped("replicas", alone);
    let durability = Check::ok("durability", "every write is synced before it is acknowledged");
    let storage = match folder.free {
        None => Check::skipped("storage", format!("can't determine the free disk space of {path}")),
        Some(free) => {
            let found =
                format!("the journal uses {}, {} are free in {path}", bytes_text(size), bytes_text(free));
            let advice = "free disk space: no command is accepted once the disk is full";
            match free {
                free if free < FREE_THRESHOLDS.1 => Check::failed("storage", found).advise(advice),
                free if free < FREE_THRESHOLDS.0 => Check::warning("storage", found).advise(advice),
                _ => Check::ok("storage", found),
            }
        }
    };
    let health = Check::skipped("health", "a local cluster has no NATS server");
    vec![stream, positions, entries, replicas, durability, storage, health]
}

#[cfg(test)]
mod tests {
    use super::super::super::check::Outcome;
    use super::*;
    use journal::examine::{Examination, Peer};
    use schemas::Timestamp;

    fn stream() -> Stream {
        let examination = Examination {
            problems: vec![],
            losses: vec![],
            hazards: vec![],
            differences: vec![],
            replicas: 1,
            leader: Some("a".into()),
            peers: vec![],
            positions: (Position(1), Position(7)),
            consumers: 3,
            bytes: 3 << 20,
            max_bytes: None,
            server_time: None,
            last: None,
            latency: std::time::Duration::ZERO,
        };
        Stream { examination, server_time: None, request_times: (Timestamp(0), Timestamp(0)) }
    }

    fn stream_with(change: impl FnOnce(&mut Examination)) -> Stream {
        let mut stream = stream();
        change(&mut stream.examination);
        stream
    }

    #[test]
    fn stream_check_fails_on_settings_that_services_reject() {
        assert_eq!(settings(&stream()).outcome, Outcome::Ok);
        let other = settings(&stream_with(|seen| seen.differences = vec!["it is compressed (s2)".into()]));
        assert_eq!(other.outcome, Outcome::Warning);
        let hazard = settings(&stream_with(|seen| seen.hazards = vec!["it is compressed (s2)".into()]));
        assert!(hazard.outcome == Outcome::Failed && hazard.advice[0].contains("muster journal migrate"));
        let bad = settings(&stream_with(|seen| seen.problems = vec!["deny_delete isn't set".into()]));
        assert_eq!((bad.outcome, bad.advice.len()), (Outcome::Failed, 1));
        let many = settings(&stream_with(|seen| seen.consumers = MANY_CONSUMERS));
        assert!(many.outcome == Outcome::Warning && many.found.contains("200 consumers of at most 1000"));
        let lost = settings(&stream_with(|seen| seen.losses = vec!["entries were deleted".into()]));
        assert!(lost.outcome == Outcome::Failed && lost.advice[0].contains("restore"));
        assert_eq!(
            positions(&stream_with(|seen| seen.positions = (Position(0), Position(0)))).outcome,
            Outcome::Warning
        );
    }

    #[test]
    fn entry_that_one_server_cannot_read_fails_the_check() {
        let of = |second: Fact<usize>| {
            let reading = |server: &str, read| Reading { server: server.into(), read };
            entries(&Ok(vec![reading("n1", Ok(10)), reading("n2", second)]))
        };
        assert_eq!(of(Ok(10)).found, "read: 10 of n1, 10 of n2");
        assert_eq!(of(Err(Unknown::Skipped("refused".into()))).outcome, Outcome::Warning);
        let failed = of(Err(Unknown::Failed("position 7 can't be read: not found".into())));
        assert_eq!((failed.outcome, failed.advice.len()), (Outcome::Failed, 2));
        assert!(failed.found.starts_with("n2: position 7"), "{failed:?}");
    }

    #[test]
    fn replica_check_warns_of_single_replica_and_names_lagging_peers() {
        assert_eq!(replicas(&stream(), None).outcome, Outcome::Ok);
        assert_eq!(replicas(&stream(), Some("three")).outcome, Outcome::Warning);
        let peer = |current, offline| Peer { name: "b".into(), current, offline, lag: 4 };
        let three = |peers: Vec<Peer>, leader: Option<&str>| {
            let leader = leader.map(str::to_owned);
            replicas(
                &stream_with(|seen| (seen.replicas, seen.peers, seen.leader) = (3, peers, leader)),
                Some("three"),
            )
        };
        assert_eq!(three(vec![peer(true, false)], Some("a")).outcome, Outcome::Ok);
        assert!(three(vec![peer(false, false)], Some("a")).found.ends_with("b is behind by 4 messages"));
        assert!(three(vec![peer(true, true)], Some("a")).found.ends_with("b is offline"));
        assert_eq!(three(vec![], None).outcome, Outcome::Failed);
    }

    #[test]
    fn storage_check_warns_before_the_limit_is_reached() {
        let of = |used: u64, max_bytes: u64| {
            let server = Storage { url: "u".into(), used, max_bytes, free: None };
            storage(&stream(), &Ok(vec![server])).outcome
        };
        assert_eq!(
            [of(79, 100), of(80, 100), of(95, 100), of(95, 0)],
            [Outcome::Ok, Outcome::Warning, Outcome::Failed, Outcome::Ok]
        );
        let own =
            storage(&stream_with(|seen| seen.max_bytes = Some(3 << 20)), &Err(Unknown::Skipped("s".into())));
        assert_eq!(own.outcome, Outcome::Failed);
    }

    #[test]
    fn storage_limit_is_compared_with_the_free_disk() {
        let of = |used: u64, max_bytes: u64, free: u64| {
            let server = Storage { url: "u".into(), used, max_bytes, free: Some(free) };
            storage(&stream(), &Ok(vec![server]))
        };
        assert_eq!(of(1 << 30, 8 << 30, 8 << 30).outcome, Outcome::Ok);
        let short = of(1 << 30, 8 << 30, 2 << 30);
        assert_eq!(short.outcome, Outcome::Warning);
        assert!(short.found.ends_with("less than max_file_store allows"), "{}", short.found);
        let full = of(1 << 30, 8 << 30, 1 << 20);
        assert_eq!(full.outcome, Outcome::Failed);
        assert!(full.advice[0].contains("restart"), "{:?}", full.advice);
    }

    #[test]
    fn write_error_of_a_server_fails_the_health_check_and_asks_for_a_restart() {
        let of = |said: Result<(), &str>| health(&Ok(vec![("u".to_owned(), said.map_err(str::to_owned))]));
        assert_eq!(of(Ok(())).outcome, Outcome::Ok);
        let full = of(Err("JetStream stream '$G > MUSTER' write error: 1.blk: no space left on device"));
        assert_eq!(full.outcome, Outcome::Failed);
        assert!(full.advice[0].contains("restart it"), "{:?}", full.advice);
    }
}
