//! Catalogue of all metrics. docs/reference/metrics.md contains the catalogue as a table. Rules and
//! dashboards under `deploy/` may use only these metrics. Tests check the table, the rules and the
//! dashboards.
//!
//! Metrics have base units and few labels. A label must not have values that users can create without limit:
//! no guids, no ids of processes or tasks, no clients. The value of a label is a state, an outcome, a verb,
//! or a cell.

use crate::family::{Family, Kind, Service, Unit};
use Service::{Auctioneer, Bbs, Projector, Rep};

/// Defines metrics, and lists them in `CATALOGUE`, so that no metric is left out.
macro_rules! catalogue {
    ($($(#[$about:meta])* pub static $name:ident: Family = $family:expr;)*) => {
        $($(#[$about])* pub static $name: Family = $family;)*

        /// Every metric, in the order of the page.
        pub static CATALOGUE: &[&Family] = &[$(&$name),*];
    };
}

catalogue! {
    /// Version of the program.
    pub static BUILD: Family =
        gauge("muster_build_info", ALL, "Version of the program; the value is always 1")
            .with_labels(&["version"]);
    /// Readiness of a service.
    pub static READY: Family =
        gauge("muster_ready", ALL, "1 if the service is ready, as /readyz reports it, else 0");
    /// Connection to a NATS server.
    pub static CONNECTED: Family =
        gauge("muster_connected", ALL, "1 if the service is connected to a NATS server, else 0");
    /// Remaining validity of the TLS certificate.
    pub static CERTIFICATE_EXPIRY: Family = gauge(
        "muster_certificate_expires_in",
        ALL,
        "Time until the TLS certificate of the service for the NATS server expires; absent without a certificate",
    )
    .in_unit(Unit::Seconds);
    /// Number of permission violations at the NATS server.
    pub static VIOLATIONS: Family = counter(
        "muster_permission_violations",
        ALL,
        "Subjects that the NATS server refused because of a missing permission",
    );

    /// Leadership of a service.
    pub static LEADER: Family =
        gauge("muster_leader", FOLLOWERS, "1 if the service leads, 0 if it stands by");
    /// Position of a follower of the log.
    pub static POSITION: Family =
        gauge("muster_follower_position", FOLLOWERS, "Position of the log that the service has applied");
    /// Lag of a follower, in entries.
    pub static LAG_ENTRIES: Family = gauge(
        "muster_follower_lag_entries",
        FOLLOWERS,
        "Entries of the log that the service has not applied yet",
    );
    /// Lag of a follower, in time.
    pub static LAG: Family =
        gauge("muster_follower_lag", FOLLOWERS, "Time for which the service has been behind the log")
            .in_unit(Unit::Seconds);

    /// Number of desired processes.
    pub static PROCESSES_DESIRED: Family = gauge("muster_processes_desired", BBS, "Desired processes");
    /// Number of processes with a crashed instance.
    pub static PROCESSES_CRASHING: Family =
        gauge("muster_processes_crashing", BBS, "Processes with at least one CRASHED instance");
    /// Number of desired instances.
    pub static INSTANCES_DESIRED: Family = gauge("muster_instances_desired", BBS, "Desired instances");
    /// Number of instances by state.
    pub static INSTANCES: Family =
        gauge("muster_instances", BBS, "Instances by state: unclaimed, claimed, running, crashed")
            .with_labels(&["state"]);
    /// Number of desired indices that have no instance.
    pub static INSTANCES_MISSING: Family =
        gauge("muster_instances_missing", BBS, "Desired indices without an instance in any state");
    /// Number of instances that are not desired.
    pub static INSTANCES_EXTRA: Family =
        gauge("muster_instances_extra", BBS, "Instances that are not desired");
    /// Number of instances that no cell accepts.
    pub static INSTANCES_UNPLACED: Family =
        gauge("muster_instances_unplaced", BBS, "Instances that no cell can take");
    /// Number of instances that have waited for placement for at least 2 minutes.
    pub static INSTANCES_WAITING: Family = gauge(
        "muster_instances_waiting",
        BBS,
        "Instances that have waited for placement for 2 minutes or longer, for any reason",
    );
    /// Number of evacuating instances.
    pub static INSTANCES_EVACUATING: Family = gauge(
        "muster_instances_evacuating",
        BBS,
        "Evacuating instances, which run until they are replaced on another cell",
    );
    /// Number of tasks by state.
    pub static TASKS: Family =
        gauge("muster_tasks", BBS, "Tasks by state: pending, running, completed, resolving")
            .with_labels(&["state"]);
    /// Number of tasks that no cell accepts.
    pub static TASKS_UNPLACED: Family = gauge("muster_tasks_unplaced", BBS, "Tasks that no cell can take");
    /// Number of evaluations by status.
    pub static EVALUATIONS: Family = gauge(
        "muster_evaluations",
        BBS,
        "Recorded evaluations by status: pending, blocked, complete, failed, canceled",
    )
    .with_labels(&["status"]);
    /// Number of unfinished rollouts by phase.
    pub static ROLLOUTS: Family =
        gauge("muster_rollouts", BBS, "Unfinished rollouts by phase: rolling, paused, stalled")
            .with_labels(&["phase"]);
    /// Number of fresh domains.
    pub static DOMAINS_FRESH: Family = gauge("muster_domains_fresh", BBS, "Fresh domains");
    /// Number of cells by state.
    pub static CELLS: Family =
        gauge("muster_cells", BBS, "Cells by state: present, evacuating, unhealthy, silent, absent")
            .with_labels(&["state"]);
    /// Total memory of a cell.
    pub static CELL_MEMORY_CAPACITY: Family =
        gauge("muster_cell_memory_capacity", BBS, "Total memory of a present cell")
            .by_cell()
            .in_unit(Unit::Bytes);
    /// Memory of a cell that its containers reserve.
    pub static CELL_MEMORY_USED: Family =
        gauge("muster_cell_memory_used", BBS, "Memory of a present cell that its containers reserve")
            .by_cell()
            .in_unit(Unit::Bytes);
    /// Total disk space of a cell.
    pub static CELL_DISK_CAPACITY: Family =
        gauge("muster_cell_disk_capacity", BBS, "Total disk of a present cell")
            .by_cell()
            .in_unit(Unit::Bytes);
    /// Disk space of a cell that its containers reserve.
    pub static CELL_DISK_USED: Family =
        gauge("muster_cell_disk_used", BBS, "Disk of a present cell that its containers reserve")
            .by_cell()
            .in_unit(Unit::Bytes);
    /// Maximum number of containers of a cell.
    pub static CELL_CONTAINERS_CAPACITY: Family =
        gauge("muster_cell_containers_capacity", BBS, "Maximum number of containers on a present cell")
            .by_cell();
    /// Number of containers of a cell.
    pub static CELL_CONTAINERS_USED: Family =
        gauge("muster_cell_containers_used", BBS, "Containers on a present cell").by_cell();
    /// Number of consecutive heartbeats that a cell has missed.
    pub static CELL_HEARTBEATS_MISSED: Family = gauge(
        "muster_cell_heartbeats_missed",
        BBS,
        "Heartbeats that a present cell has missed since its last one",
    )
    .by_cell();
    /// Offset of a BBS's clock from the median of all clocks.
    pub static CLOCK_OFFSET: Family = gauge(
        "muster_clock_offset",
        BBS,
        "Time by which the clock of this BBS is ahead of the median of all clocks; negative if it is behind",
    )
    .in_unit(Unit::Seconds);
    /// Time by which the timestamps of the log are ahead of the clocks.
    pub static LOG_AHEAD: Family = gauge(
        "muster_log_ahead",
        BBS,
        "Time by which the latest decision in the log is ahead of the clocks, if it is more than 5 s, else 0",
    )
    .in_unit(Unit::Seconds);
    /// State of the mass-loss guard, which delays the loss of most cells at once.
    pub static MASS_LOSS_GUARD: Family = gauge(
        "muster_mass_loss_guard",
        BBS,
        "1 while most cells are silent at once and not yet considered lost, else 0",
    );
    /// Number of decisions about work that only convergence found.
    pub static CONVERGENCE_FINDINGS: Family = counter(
        "muster_found_by_convergence",
        BBS,
        "Decisions that created work which only convergence found; constant in a healthy cluster",
    );
    /// Number of messages in the journal that are not valid entries.
    pub static INVALID_ENTRIES: Family =
        counter("muster_quarantined_entries", BBS, "Journal messages that are not valid entries");
    /// Duration of a full convergence pass.
    pub static CONVERGENCE: Family =
        histogram("muster_convergence", BBS, "Duration of a full convergence pass").in_unit(Unit::Seconds);
    /// Duration of an append to the journal.
    pub static APPEND: Family =
        histogram("muster_append", BBS, "Time until the journal responded to an append")
            .in_unit(Unit::Seconds);
    /// Number of appends by outcome.
    pub static APPENDS: Family = counter(
        "muster_appends",
        BBS,
        "Appends to the journal by outcome: stored, conflict (another entry was first), unknown, refused (never \
         stored), not_stored (a limit or a disk is full)",
    )
    .with_labels(&["outcome"]);
    /// Failure of appends.
    pub static APPENDS_FAILING: Family = gauge(
        "muster_appends_failing",
        BBS,
        "1 if the log accepts no entries, as muster status reports it, else 0",
    );
    /// Number of configured replicas of the log.
    pub static LOG_REPLICAS: Family =
        gauge("muster_log_replicas", BBS, "NATS servers that should hold every entry of the log");
    /// Number of replicas of the log that are in sync.
    pub static LOG_REPLICAS_IN_SYNC: Family =
        gauge("muster_log_replicas_in_sync", BBS, "NATS servers that hold every entry of the log");
    /// Number of entries in the log.
    pub static LOG_ENTRIES: Family = gauge("muster_log_entries", BBS, "Entries in the log's stream");
    /// Uncompressed size of the log.
    pub static LOG_SIZE: Family =
        gauge("muster_log_size", BBS, "Uncompressed size of the log's stream").in_unit(Unit::Bytes);
    /// Maximum size of the log.
    pub static LOG_LIMIT: Family =
        gauge("muster_log_limit", BBS, "Size limit of the log's stream (max_bytes); 0 without a limit")
            .in_unit(Unit::Bytes);
    /// Duration of a command by verb and outcome.
    pub static COMMAND: Family = histogram(
        "muster_command",
        BBS,
        "Time until a command was answered, by verb and outcome: done, refused, not_now (try again)",
    )
    .with_labels(&["verb", "outcome"])
    .in_unit(Unit::Seconds);
    /// Number of refused commands by code.
    pub static REFUSALS: Family =
        counter("muster_refusals", BBS, "Refused commands by refusal code").with_labels(&["code"]);
    /// Number of commands that wait for a decision.
    pub static COMMANDS_WAITING: Family =
        gauge("muster_commands_waiting", BBS, "Commands that wait for a decision");
    /// Number of entries that the journal has not acknowledged yet.
    pub static ENTRIES_IN_FLIGHT: Family =
        gauge("muster_entries_in_flight", BBS, "Entries that the journal has not acknowledged yet");
    /// Number of heartbeats received from reps.
    pub static HEARTBEATS_RECEIVED: Family =
        counter("muster_heartbeats_received", BBS, "Heartbeats received from reps");
    /// Number of completion callbacks by outcome.
    pub static CALLBACKS: Family =
        counter("muster_callbacks", BBS, "Completion callbacks by outcome: delivered, retried, abandoned")
            .with_labels(&["outcome"]);
    /// Number of entries that were dropped from the feed.
    pub static FEED_DROPPED: Family =
        counter("muster_feed_dropped_entries", BBS, "Entries dropped from the feed because it was behind");
    /// Number of trace spans by outcome.
    pub static TRACE_SPANS: Family =
        counter("muster_trace_spans", BBS, "Trace spans by outcome: sent to the collector, or dropped")
            .with_labels(&["outcome"]);

    /// Duration of an auction.
    pub static AUCTION: Family =
        histogram("muster_auction", AUCTIONEER, "Duration of an auction").in_unit(Unit::Seconds);
    /// Number of instances and tasks in an auction.
    pub static AUCTION_WORK: Family =
        histogram("muster_auction_work", AUCTIONEER, "Instances and tasks in an auction");
    /// Number of auctioned instances and tasks by outcome.
    pub static PLACEMENTS: Family = counter(
        "muster_placements",
        AUCTIONEER,
        "Auctioned instances and tasks by outcome: placed, unplaced, refused by the rep, unanswered",
    )
    .with_labels(&["outcome"]);
    /// Number of instances and tasks at the leading auctioneer by state.
    pub static WORK: Family = gauge(
        "muster_work",
        AUCTIONEER,
        "Instances and tasks at the leading auctioneer by state: ready for an auction, in_flight to a rep, \
         blocked",
    )
    .with_labels(&["state"]);

    /// Number of containers of a rep by state.
    pub static CONTAINERS: Family = gauge(
        "muster_containers",
        REP,
        "Containers of the rep by state: reserved, initializing, created, running, completed",
    )
    .with_labels(&["state"]);
    /// Time from the order to run a container until the container is healthy.
    pub static CONTAINER_START: Family = histogram(
        "muster_container_start",
        REP,
        "Time from the order to run a container until it was healthy",
    )
    .in_unit(Unit::Seconds);
    /// Total memory of a rep for containers.
    pub static REP_MEMORY_CAPACITY: Family =
        gauge("muster_rep_memory_capacity", REP, "Total memory of the rep for containers")
            .in_unit(Unit::Bytes);
    /// Free memory of a rep.
    pub static REP_MEMORY_FREE: Family =
        gauge("muster_rep_memory_free", REP, "Memory of the rep that no container reserves")
            .in_unit(Unit::Bytes);
    /// Total disk of a rep for containers.
    pub static REP_DISK_CAPACITY: Family =
        gauge("muster_rep_disk_capacity", REP, "Total disk of the rep for containers").in_unit(Unit::Bytes);
    /// Free disk of a rep.
    pub static REP_DISK_FREE: Family =
        gauge("muster_rep_disk_free", REP, "Disk of the rep that no container reserves").in_unit(Unit::Bytes);
    /// Maximum number of containers of a rep.
    pub static REP_CONTAINERS_CAPACITY: Family =
        gauge("muster_rep_containers_capacity", REP, "Maximum number of containers of the rep");
    /// Number of further containers that a rep accepts.
    pub static REP_CONTAINERS_FREE: Family =
        gauge("muster_rep_containers_free", REP, "Further containers that the rep accepts");
    /// Number of folders of deleted containers that could not be removed.
    pub static UNREMOVED_FOLDERS: Family = gauge(
        "muster_rep_unremoved_containers",
        REP,
        "Folders of deleted containers that could not be removed yet; each is retried every minute",
    );
    /// Number of heartbeats that a rep has sent.
    pub static HEARTBEATS_SENT: Family = counter("muster_heartbeats_sent", REP, "Heartbeats sent by the rep");
    /// Attachment of a rep to its cell.
    pub static ATTACHED: Family =
        gauge("muster_rep_attached", REP, "1 if the rep is attached to its cell, else 0");
    /// Result of a rep's self-test.
    pub static HEALTHY: Family = gauge("muster_rep_healthy", REP, "1 if the rep's self-test passes, else 0");
    /// Evacuation of a rep's cell.
    pub static EVACUATING: Family =
        gauge("muster_rep_evacuating", REP, "1 if the rep evacuates its cell, else 0");

    /// Position of the log that the tables have reached.
    pub static PROJECTION_POSITION: Family =
        gauge("muster_projection_position", PROJECTOR, "Position of the log that the tables have reached");
    /// Lag of the tables, in entries.
    pub static PROJECTION_LAG_ENTRIES: Family = gauge(
        "muster_projection_lag_entries",
        PROJECTOR,
        "Entries of the log that are not in the tables yet",
    );
    /// Lag of the tables, in time.
    pub static PROJECTION_LAG: Family =
        gauge("muster_projection_lag", PROJECTOR, "Time for which the tables have been behind the log")
            .in_unit(Unit::Seconds);
    /// Stop of a projector at an unreadable entry.
    pub static DEAD_LETTERS: Family = gauge(
        "muster_projection_dead_letters",
        PROJECTOR,
        "1 if the projector has stopped at an entry that it cannot read, else 0",
    );
}

const ALL: &[Service] = &Service::ALL;
const FOLLOWERS: &[Service] = &[Bbs, Auctioneer];
const BBS: &[Service] = &[Bbs];
const AUCTIONEER: &[Service] = &[Auctioneer];
const REP: &[Service] = &[Rep];
const PROJECTOR: &[Service] = &[Projector];

const fn gauge(name: &'static str, told_by: &'static [Service], help: &'static str) -> Family {
    family(Kind::Gauge, name, told_by, help)
}

const fn counter(name: &'static str, told_by: &'static [Service], help: &'static str) -> Family {
    family(Kind::Counter, name, told_by, help)
}

const fn histogram(name: &'static str, told_by: &'static [Service], help: &'static str) -> Family {
    family(Kind::Histogram, name, told_by, help)
}

const fn family(kind: Kind, name: &'static str, told_by: &'static [Service], help: &'static str) -> Family {
    Family { name, unit: Unit::None, kind, labels: &[], exported_by: told_by, help }
}

impl Family {
    const fn with_labels(self, labels: &'static [&'static str]) -> Self {
        Self { labels, ..self }
    }

    const fn by_cell(self) -> Self {
        self.with_labels(&["cell"])
    }

    const fn in_unit(self, unit: Unit) -> Self {
        Self { unit, ..self }
    }

    /// Returns the row of this metric in the table of docs/reference/metrics.md.
    #[must_use]
    pub fn table_row(&self) -> String {
        let counted = if self.kind == Kind::Counter { "_total" } else { "" };
        let mut labels: Vec<String> = self.labels.iter().map(|label| format!("`{label}`")).collect();
        if *self.exported_by == *REP {
            labels.push("`cell`".to_owned());
        }
        let by: Vec<&str> = self.exported_by.iter().map(|by| by.as_str()).collect();
        let by = if self.exported_by == ALL { "all".to_owned() } else { by.join(", ") };
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
    fn names_follow_the_convention() {
        let mut names = BTreeSet::new();
        for family in CATALOGUE {
            let name = family.name;
            assert!(names.insert(name), "{name} is listed twice");
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
