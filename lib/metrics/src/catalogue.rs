//! Every metric. docs/operations.md has this list as a table, and what is under `deploy/` may ask for nothing else: tests see
//! to both.
//!
//! Base units, few labels, and never a label whose values a user makes without end: no guid, no id of a process or a task, no
//! client. A label names a state, an outcome, a verb, or a cell.

use crate::family::{Family, Kind, Service, Unit};
use Service::{Auctioneer, Bbs, Projector, Rep};

/// What a program is.
pub static BUILD: Family =
    gauge("muster_build_info", ALL, "Always 1: the version of the program").by(&["version"]);
/// Whether a service is ready.
pub static READY: Family =
    gauge("muster_ready", ALL, "Whether the service does its work, as /readyz has it: 1 or 0");
/// Whether there is a connection.
pub static CONNECTED: Family =
    gauge("muster_connected", ALL, "Whether there is a connection to a NATS server: 1 or 0");
/// When the certificate expires.
pub static CERTIFICATE: Family = gauge(
    "muster_certificate_expires_in",
    ALL,
    "Time until the TLS certificate that the service shows to the NATS server expires; missing if it shows none",
)
.in_unit(Unit::Seconds);
/// What the server refused.
pub static VIOLATIONS: Family = counter(
    "muster_permission_violations",
    ALL,
    "How often the NATS server refused a subject for want of permission",
);

/// Whether it leads.
pub static LEADER: Family = gauge("muster_leader", FOLLOWERS, "Whether it leads: 1, or 0 while it stands by");
/// Where it stands.
pub static POSITION: Family =
    gauge("muster_follower_position", FOLLOWERS, "Position of the log up to which it knows it");
/// How far it is behind.
pub static LAG_ENTRIES: Family =
    gauge("muster_follower_lag_entries", FOLLOWERS, "Entries of the log that it doesn't know yet");
/// The same in time.
pub static LAG: Family =
    gauge("muster_follower_lag", FOLLOWERS, "For how long it has not known what the log held")
        .in_unit(Unit::Seconds);

/// Desired processes.
pub static PROCESSES_DESIRED: Family = gauge("muster_processes_desired", BBS, "Processes that are desired");
/// Crashing processes.
pub static PROCESSES_CRASHING: Family =
    gauge("muster_processes_crashing", BBS, "Processes with at least one instance that is CRASHED");
/// Desired instances.
pub static INSTANCES_DESIRED: Family = gauge("muster_instances_desired", BBS, "Instances that are desired");
/// Instances by state.
pub static INSTANCES: Family =
    gauge("muster_instances", BBS, "Instances by state: unclaimed, claimed, running, crashed").by(&["state"]);
/// Missing instances.
pub static INSTANCES_MISSING: Family = gauge(
    "muster_instances_missing",
    BBS,
    "Desired indices of which there is no instance at all, in whatever state",
);
/// Extra instances.
pub static INSTANCES_EXTRA: Family =
    gauge("muster_instances_extra", BBS, "Instances that nobody desires any more");
/// Instances without a place.
pub static INSTANCES_UNPLACED: Family =
    gauge("muster_instances_unplaced", BBS, "Instances that no cell takes");
/// Instances that wait long.
pub static INSTANCES_WAITING: Family = gauge(
    "muster_instances_waiting",
    BBS,
    "Instances that have waited for placement for 2 minutes or longer, for whatever reason",
);
/// Evacuating twins.
pub static INSTANCES_EVACUATING: Family =
    gauge("muster_instances_evacuating", BBS, "Instances that run on while they are replaced elsewhere");
/// Tasks by state.
pub static TASKS: Family =
    gauge("muster_tasks", BBS, "Tasks by state: pending, running, completed, resolving").by(&["state"]);
/// Tasks without a place.
pub static TASKS_UNPLACED: Family = gauge("muster_tasks_unplaced", BBS, "Tasks that no cell takes");
/// Evaluations by status.
pub static EVALUATIONS: Family = gauge(
    "muster_evaluations",
    BBS,
    "Evaluations that the tables hold, by status: pending, blocked, complete, failed, canceled",
)
.by(&["status"]);
/// Rollouts by phase.
pub static ROLLOUTS: Family =
    gauge("muster_rollouts", BBS, "Rollouts that are not over: rolling, paused, stalled").by(&["phase"]);
/// Fresh domains.
pub static DOMAINS_FRESH: Family = gauge("muster_domains_fresh", BBS, "Domains that are fresh");
/// Cells by state.
pub static CELLS: Family =
    gauge("muster_cells", BBS, "Cells by state: present, evacuating, unhealthy, silent, absent")
        .by(&["state"]);
/// Memory of a cell.
pub static CELL_MEMORY_CAPACITY: Family =
    gauge("muster_cell_memory_capacity", BBS, "Memory that a present cell has in all")
        .of_cell()
        .in_unit(Unit::Bytes);
/// Memory of a cell that is used.
pub static CELL_MEMORY_USED: Family =
    gauge("muster_cell_memory_used", BBS, "Memory of a present cell that its containers take")
        .of_cell()
        .in_unit(Unit::Bytes);
/// Disk of a cell.
pub static CELL_DISK_CAPACITY: Family =
    gauge("muster_cell_disk_capacity", BBS, "Disk that a present cell has in all")
        .of_cell()
        .in_unit(Unit::Bytes);
/// Disk of a cell that is used.
pub static CELL_DISK_USED: Family =
    gauge("muster_cell_disk_used", BBS, "Disk of a present cell that its containers take")
        .of_cell()
        .in_unit(Unit::Bytes);
/// Containers that a cell takes.
pub static CELL_CONTAINERS_CAPACITY: Family =
    gauge("muster_cell_containers_capacity", BBS, "Containers that a present cell takes at once").of_cell();
/// Containers that a cell has.
pub static CELL_CONTAINERS_USED: Family =
    gauge("muster_cell_containers_used", BBS, "Containers that a present cell has").of_cell();
/// Missed heartbeats.
pub static CELL_HEARTBEATS_MISSED: Family = gauge(
    "muster_cell_heartbeats_missed",
    BBS,
    "Heartbeats of a present cell that did not come, since the last that did",
)
.of_cell();
/// The clock of a BBS against those of others.
pub static CLOCK_OFFSET: Family = gauge(
    "muster_clock_offset",
    BBS,
    "Time by which the clock of this BBS is ahead of the median of all clocks; negative if it is behind",
)
.in_unit(Unit::Seconds);
/// The log against the clocks.
pub static LOG_AHEAD: Family = gauge(
    "muster_log_ahead",
    BBS,
    "Time by which the latest decision in the log is ahead of the clocks, if that is more than 5 s; else 0",
)
.in_unit(Unit::Seconds);
/// The guard against the loss of most cells.
pub static MASS_LOSS_GUARD: Family = gauge(
    "muster_mass_loss_guard",
    BBS,
    "Whether most cells are silent together and are not yet believed lost: 1 or 0",
);
/// What only convergence found.
pub static FOUND_BY_CONVERGENCE: Family = counter(
    "muster_found_by_convergence",
    BBS,
    "Decisions that made work which only convergence found; stays as it is in a healthy cluster",
);
/// What is no entry.
pub static ENTRIES_SET_ASIDE: Family =
    counter("muster_entries_set_aside", BBS, "Messages of the journal that are no valid entry");
/// Looks at everything.
pub static CONVERGENCE: Family =
    histogram("muster_convergence", BBS, "How long a look at everything takes").in_unit(Unit::Seconds);
/// Appends.
pub static APPEND: Family =
    histogram("muster_append", BBS, "How long until the journal answered an append").in_unit(Unit::Seconds);
/// What came of appends.
pub static APPENDS: Family = counter(
    "muster_appends",
    BBS,
    "Appends to the journal by outcome: stored, conflict (somebody else was first), unknown, refused (never stored), not_stored (a limit or a disk is full)",
)
.by(&["outcome"]);
/// Whether appends fail.
pub static APPENDS_FAIL: Family = gauge(
    "muster_appends_failing",
    BBS,
    "Whether the log takes no entries, as muster status reports it: 1 or 0",
);
/// Replicas of the log.
pub static LOG_REPLICAS: Family =
    gauge("muster_log_replicas", BBS, "NATS servers that should hold every entry of the log");
/// Replicas of the log that are in sync.
pub static LOG_REPLICAS_IN_SYNC: Family =
    gauge("muster_log_replicas_in_sync", BBS, "NATS servers that hold every entry of the log");
/// Entries of the log.
pub static LOG_ENTRIES: Family = gauge("muster_log_entries", BBS, "Entries in the stream of the log");
/// Size of the log.
pub static LOG_SIZE: Family =
    gauge("muster_log_size", BBS, "Size of the stream of the log, uncompressed").in_unit(Unit::Bytes);
/// Limit of the log.
pub static LOG_LIMIT: Family =
    gauge("muster_log_limit", BBS, "Limit of the stream of the log (max_bytes); 0 if it has none")
        .in_unit(Unit::Bytes);
/// Commands.
pub static COMMAND: Family = histogram(
    "muster_command",
    BBS,
    "How long until a command was answered, by verb and by outcome: done, refused, not_now (try again)",
)
.by(&["verb", "outcome"])
.in_unit(Unit::Seconds);
/// Refused commands.
pub static REFUSALS: Family =
    counter("muster_refusals", BBS, "Refused commands by the code of the refusal").by(&["code"]);
/// Commands that wait.
pub static COMMANDS_WAITING: Family =
    gauge("muster_commands_waiting", BBS, "Commands that wait to be decided");
/// Entries in flight.
pub static ENTRIES_IN_FLIGHT: Family =
    gauge("muster_entries_in_flight", BBS, "Entries on their way to the journal and back");
/// Heartbeats that were heard.
pub static HEARTBEATS_RECEIVED: Family =
    counter("muster_heartbeats_received", BBS, "Heartbeats of reps that were heard");
/// Completion callbacks.
pub static CALLBACKS: Family =
    counter("muster_callbacks", BBS, "Completion callbacks by outcome: delivered, repeated, given_up")
        .by(&["outcome"]);
/// What the feed left out.
pub static FEED_LEFT_OUT: Family =
    counter("muster_feed_left_out", BBS, "Entries that were left out of the feed, which was behind");
/// Spans.
pub static TRACE_SPANS: Family =
    counter("muster_trace_spans", BBS, "Spans by what became of them: sent to the collector, or dropped")
        .by(&["outcome"]);

/// Auctions.
pub static AUCTION: Family =
    histogram("muster_auction", AUCTIONEER, "How long an auction takes").in_unit(Unit::Seconds);
/// What is in an auction.
pub static AUCTION_WORK: Family =
    histogram("muster_auction_work", AUCTIONEER, "Instances and tasks that an auction is about");
/// Placements.
pub static PLACEMENTS: Family = counter(
    "muster_placements",
    AUCTIONEER,
    "Instances and tasks by what came of an auction: placed, unplaced, refused by the rep, unanswered",
)
.by(&["outcome"]);
/// Work of the auctioneer.
pub static WORK: Family = gauge(
    "muster_work",
    AUCTIONEER,
    "Instances and tasks that the leading auctioneer has: ready for an auction, handed_out to a rep, blocked",
)
.by(&["state"]);

/// Containers by state.
pub static CONTAINERS: Family = gauge(
    "muster_containers",
    REP,
    "Containers of the rep by state: reserved, initializing, created, running, completed",
)
.by(&["state"]);
/// Starts of containers.
pub static CONTAINER_START: Family = histogram(
    "muster_container_start",
    REP,
    "How long from the order to run a container until it ran and was healthy",
)
.in_unit(Unit::Seconds);
/// Memory of the rep.
pub static REP_MEMORY_CAPACITY: Family =
    gauge("muster_rep_memory_capacity", REP, "Memory that the rep gives to containers in all")
        .in_unit(Unit::Bytes);
/// Free memory of the rep.
pub static REP_MEMORY_FREE: Family =
    gauge("muster_rep_memory_free", REP, "Memory of the rep that no container takes").in_unit(Unit::Bytes);
/// Disk of the rep.
pub static REP_DISK_CAPACITY: Family =
    gauge("muster_rep_disk_capacity", REP, "Disk that the rep gives to containers in all")
        .in_unit(Unit::Bytes);
/// Free disk of the rep.
pub static REP_DISK_FREE: Family =
    gauge("muster_rep_disk_free", REP, "Disk of the rep that no container takes").in_unit(Unit::Bytes);
/// Containers that the rep takes.
pub static REP_CONTAINERS_CAPACITY: Family =
    gauge("muster_rep_containers_capacity", REP, "Containers that the rep takes at once");
/// Containers that the rep still takes.
pub static REP_CONTAINERS_FREE: Family =
    gauge("muster_rep_containers_free", REP, "Containers that the rep still takes");
/// Folders that resist their removal.
pub static UNREMOVED: Family = gauge(
    "muster_rep_unremoved_containers",
    REP,
    "Folders of deleted containers that could not be removed so far; each is tried again every minute",
);
/// Heartbeats that were sent.
pub static HEARTBEATS_SENT: Family = counter("muster_heartbeats_sent", REP, "Heartbeats that the rep sent");
/// Whether the rep speaks for its cell.
pub static ATTACHED: Family =
    gauge("muster_rep_attached", REP, "Whether the rep speaks for its cell: 1 or 0");
/// Whether the rep is healthy.
pub static HEALTHY: Family = gauge("muster_rep_healthy", REP, "Whether the rep's self-test passes: 1 or 0");
/// Whether the rep evacuates.
pub static EVACUATING: Family =
    gauge("muster_rep_evacuating", REP, "Whether the rep evacuates its cell: 1 or 0");

/// Where the tables stand.
pub static PROJECTION_POSITION: Family =
    gauge("muster_projection_position", PROJECTOR, "Position of the log that the tables stand at");
/// How far the tables are behind.
pub static PROJECTION_LAG_ENTRIES: Family =
    gauge("muster_projection_lag_entries", PROJECTOR, "Entries of the log that are not in the tables yet");
/// The same in time.
pub static PROJECTION_LAG: Family =
    gauge("muster_projection_lag", PROJECTOR, "For how long the tables have not held what the log did")
        .in_unit(Unit::Seconds);
/// What stops the projector.
pub static DEAD_LETTERS: Family = gauge(
    "muster_projection_dead_letters",
    PROJECTOR,
    "Entries that the projector can't read, and at which it has stopped: 1 or 0",
);

/// All of them, in the order in which they stand on the page.
pub static CATALOGUE: &[&Family] = &[
    &BUILD,
    &READY,
    &CONNECTED,
    &CERTIFICATE,
    &VIOLATIONS,
    &LEADER,
    &POSITION,
    &LAG_ENTRIES,
    &LAG,
    &PROCESSES_DESIRED,
    &PROCESSES_CRASHING,
    &INSTANCES_DESIRED,
    &INSTANCES,
    &INSTANCES_MISSING,
    &INSTANCES_EXTRA,
    &INSTANCES_UNPLACED,
    &INSTANCES_WAITING,
    &INSTANCES_EVACUATING,
    &TASKS,
    &TASKS_UNPLACED,
    &EVALUATIONS,
    &ROLLOUTS,
    &DOMAINS_FRESH,
    &CELLS,
    &CELL_MEMORY_CAPACITY,
    &CELL_MEMORY_USED,
    &CELL_DISK_CAPACITY,
    &CELL_DISK_USED,
    &CELL_CONTAINERS_CAPACITY,
    &CELL_CONTAINERS_USED,
    &CELL_HEARTBEATS_MISSED,
    &CLOCK_OFFSET,
    &LOG_AHEAD,
    &MASS_LOSS_GUARD,
    &FOUND_BY_CONVERGENCE,
    &ENTRIES_SET_ASIDE,
    &CONVERGENCE,
    &APPEND,
    &APPENDS,
    &APPENDS_FAIL,
    &LOG_REPLICAS,
    &LOG_REPLICAS_IN_SYNC,
    &LOG_ENTRIES,
    &LOG_SIZE,
    &LOG_LIMIT,
    &COMMAND,
    &REFUSALS,
    &COMMANDS_WAITING,
    &ENTRIES_IN_FLIGHT,
    &HEARTBEATS_RECEIVED,
    &CALLBACKS,
    &FEED_LEFT_OUT,
    &TRACE_SPANS,
    &AUCTION,
    &AUCTION_WORK,
    &PLACEMENTS,
    &WORK,
    &CONTAINERS,
    &CONTAINER_START,
    &REP_MEMORY_CAPACITY,
    &REP_MEMORY_FREE,
    &REP_DISK_CAPACITY,
    &REP_DISK_FREE,
    &REP_CONTAINERS_CAPACITY,
    &REP_CONTAINERS_FREE,
    &UNREMOVED,
    &HEARTBEATS_SENT,
    &ATTACHED,
    &HEALTHY,
    &EVACUATING,
    &PROJECTION_POSITION,
    &PROJECTION_LAG_ENTRIES,
    &PROJECTION_LAG,
    &DEAD_LETTERS,
];

const ALL: &[Service] = &Service::ALL;
const FOLLOWERS: &[Service] = &[Bbs, Auctioneer];
const BBS: &[Service] = &[Bbs];
const AUCTIONEER: &[Service] = &[Auctioneer];
const REP: &[Service] = &[Rep];
const PROJECTOR: &[Service] = &[Projector];

const fn gauge(name: &'static str, told_by: &'static [Service], help: &'static str) -> Family {
    of(Kind::Gauge, name, told_by, help)
}

const fn counter(name: &'static str, told_by: &'static [Service], help: &'static str) -> Family {
    of(Kind::Counter, name, told_by, help)
}

const fn histogram(name: &'static str, told_by: &'static [Service], help: &'static str) -> Family {
    of(Kind::Histogram, name, told_by, help)
}

const fn of(kind: Kind, name: &'static str, told_by: &'static [Service], help: &'static str) -> Family {
    Family { name, unit: Unit::None, kind, labels: &[], told_by, help }
}

impl Family {
    const fn by(self, labels: &'static [&'static str]) -> Self {
        Self { labels, ..self }
    }

    const fn of_cell(self) -> Self {
        self.by(&["cell"])
    }

    const fn in_unit(self, unit: Unit) -> Self {
        Self { unit, ..self }
    }

    /// Its row in the table of docs/operations.md.
    #[must_use]
    pub fn row(&self) -> String {
        let counted = if self.kind == Kind::Counter { "_total" } else { "" };
        let mut labels: Vec<String> = self.labels.iter().map(|label| format!("`{label}`")).collect();
        if *self.told_by == *REP {
            labels.push("`cell`".to_owned());
        }
        let by: Vec<&str> = self.told_by.iter().map(|by| by.as_str()).collect();
        let by = if self.told_by == ALL { "all".to_owned() } else { by.join(", ") };
        let labels = labels.join(", ");
        format!(
            "| `{}{counted}` | {} | {labels} | {by} | {} |",
            self.full_name(),
            self.kind.as_str(),
            self.help
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_as_the_convention_has_them() {
        let mut names = BTreeSet::new();
        for family in CATALOGUE {
            let name = family.name;
            assert!(names.insert(name), "{name} stands there twice");
            assert!(name.starts_with("muster_"), "{name}");
            let plain = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(name.chars().all(plain), "{name}");
            assert!(
                !name.ends_with("_total") && !name.ends_with("_seconds") && !name.ends_with("_bytes"),
                "{name}"
            );
            let strange =
                |label: &&&str| label.contains("guid") || label.ends_with("_id") || **label == "service";
            assert_eq!(family.labels.iter().find(strange), None, "{name}");
            assert!(
                !family.help.ends_with('.') && !family.help.contains('\n') && !family.help.contains('|'),
                "{name}"
            );
        }
    }
}
