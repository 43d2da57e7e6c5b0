//! Analytical views of the tables.
//!
//! Times are compared with millisecond precision, as `SQLite` reads them. An interval without an end extends
//! to the last event.

use super::Dialect;

/// Definition of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    pub name: &'static str,
    /// Description, stored as a comment in the database.
    pub comment: &'static str,
    /// Columns, each with its description.
    pub columns: &'static [(&'static str, &'static str)],
    /// `SELECT` statement of the view.
    pub query: String,
}

/// Time of the last event.
const LAST_EVENT_TIME: &str = "(SELECT max(at) FROM events)";

/// Returns every view, ordered so that a view comes after the views that it reads.
#[must_use]
pub fn all(dialect: Dialect) -> Vec<View> {
    vec![
        instances_over_time(),
        starts(dialect),
        start_percentiles(),
        availability_by_day(dialect),
        restarts_by_day(dialect),
        crashing_lrps(dialect),
        unplaced(),
        cell_fullness(),
        task_outcomes_by_hour(dialect),
        changes(dialect),
    ]
}

fn instances_over_time() -> View {
    let query = "
        WITH step AS (
            SELECT from_position AS position, from_time AS at, domain, state, 1 AS change
            FROM actual_lrps_history WHERE presence = 'ORDINARY'
            UNION ALL
            SELECT to_position, to_time, domain, state, -1
            FROM actual_lrps_history WHERE presence = 'ORDINARY' AND to_position IS NOT NULL
        ), moment AS (
            SELECT position, min(at) AS at, domain, state, sum(change) AS change
            FROM step GROUP BY position, domain, state
        )
        SELECT position, at, domain, state,
            CAST(sum(change) OVER (PARTITION BY domain, state ORDER BY position) AS bigint) AS instances
        FROM moment WHERE change <> 0";
    View {
        name: "instances_over_time",
        comment: "Number of instances of a domain in a state, from each position at which it changed. \
                  Evacuating instances are not counted.",
        columns: &[
            ("position", "Position of the change."),
            ("at", "Time of the change."),
            ("domain", "Domain."),
            ("state", "State."),
            ("instances", "Number of instances in the state."),
        ],
        query: query.to_owned(),
    }
}

/// Builds the view of instance starts.
///
/// An attempt to start an instance begins at the `since` of its UNCLAIMED rows. If an attempt is refused and
/// its row is replaced, the new row begins later but keeps `since`. Rows belong to the same attempt if each
/// row begins where the previous one ended, in the same epoch of the process. Only the last row of an attempt
/// is RUNNING or CRASHED.
fn starts(dialect: Dialect) -> View {
    let query = format!(
        "
        WITH step AS (
            SELECT process_guid, definition_id, \"index\", domain, epoch, state, instance_guid, cell_id, since,
                from_position, from_time,
                lag(state) OVER place AS old_state, lag(instance_guid) OVER place AS old_guid,
                CASE WHEN lag(to_position) OVER place = from_position AND lag(epoch) OVER place = epoch
                    THEN 1 ELSE 0 END AS follows
            FROM actual_lrps_history WHERE presence = 'ORDINARY'
            WINDOW place AS (PARTITION BY process_guid, definition_id, \"index\" ORDER BY from_position)
        ), numbered AS (
            SELECT *, sum(CASE WHEN follows = 1 AND old_state IN ('UNCLAIMED', 'CLAIMED') THEN 0 ELSE 1 END) OVER (
                    PARTITION BY process_guid, definition_id, \"index\" ORDER BY from_position
                ) AS attempt
            FROM step
        ), requested AS (
            SELECT *, max(CASE WHEN state = 'UNCLAIMED' THEN since END) OVER (
                    PARTITION BY process_guid, definition_id, \"index\", attempt
                ) AS requested_at
            FROM numbered
        )
        SELECT process_guid, definition_id, \"index\", domain, instance_guid, cell_id, requested_at,
            from_time AS running_at, {} AS seconds, from_position AS position
        FROM requested
        WHERE state = 'RUNNING' AND NOT (follows = 1 AND old_state = 'RUNNING' AND old_guid = instance_guid)",
        dialect.seconds("requested_at", "from_time")
    );
    View {
        name: "starts",
        comment: "Starts of instances: the time from the last request for a placement until RUNNING.",
        columns: &[
            ("process_guid", "Process of the instance."),
            ("definition_id", "Definition of the instance."),
            ("index", "Index of the instance."),
            ("domain", "Domain of the process."),
            ("instance_guid", "Container of the instance."),
            ("cell_id", "Cell of the container."),
            (
                "requested_at",
                "Time at which its index became UNCLAIMED for this start; null if it was found RUNNING \
                 without a request.",
            ),
            ("running_at", "Time at which it became RUNNING."),
            ("seconds", "Duration of the start, in seconds."),
            ("position", "Position of the log at which it became RUNNING."),
        ],
        query,
    }
}

fn start_percentiles() -> View {
    let query = "
        SELECT process_guid, domain, max(starts) AS starts,
            min(CASE WHEN nth * 2 >= starts THEN seconds END) AS p50,
            min(CASE WHEN nth * 10 >= starts * 9 THEN seconds END) AS p90,
            min(CASE WHEN nth * 100 >= starts * 99 THEN seconds END) AS p99,
            max(seconds) AS longest
        FROM (
            SELECT process_guid, domain, seconds,
                row_number() OVER (PARTITION BY process_guid, domain ORDER BY seconds) AS nth,
                count(*) OVER (PARTITION BY process_guid, domain) AS starts
            FROM starts WHERE seconds IS NOT NULL
        ) AS ranked
        GROUP BY process_guid, domain";
    View {
        name: "start_percentiles",
        comment: "Start times of the instances of each process, in seconds.",
        columns: &[
            ("process_guid", "Process."),
            ("domain", "Domain of the process."),
            ("starts", "Number of starts."),
            ("p50", "50th percentile, in seconds."),
            ("p90", "90th percentile, in seconds."),
            ("p99", "99th percentile, in seconds."),
            ("longest", "Longest start, in seconds."),
        ],
        query: query.to_owned(),
    }
}

/// Builds the view of availability per day.
///
/// Overlapping and adjacent RUNNING rows of an index form one stretch, across definitions and evacuating
/// instances. Only the part of a stretch in which the index was desired counts.
fn availability_by_day(dialect: Dialect) -> View {
    let (first, last) = (dialect.day("min(at)"), dialect.day("max(at)"));
    let next = dialect.next_day("days.day");
    let (greatest, least) = (dialect.greatest(), dialect.least());
    let (begin, end) = (dialect.midnight("days.day"), dialect.midnight(&next));
    let lasted = dialect.seconds(&format!("{greatest}(began, {begin})"), &format!("{least}(ended, {end})"));
    let ranges = dialect.ranges("wanted.indices");
    let (desired, running) = ("sum(desired * lasted)", "sum(running * lasted)");
    let desired_seconds = dialect.rounded(desired, 3);
    let running_seconds = dialect.rounded(running, 3);
    let availability = dialect.rounded(&format!("{running} / nullif({desired}, 0)"), 4);
    let query = format!(
        "
        WITH RECURSIVE days(day) AS (
            SELECT {first} FROM events
            UNION ALL
            SELECT {next} FROM days WHERE day < (SELECT {last} FROM events)
        ), wanted AS (
            SELECT process_guid, domain, instances, indices, from_time AS began, coalesce(to_time, {LAST_EVENT_TIME}) AS ended
            FROM desired_lrps_history
        ), ran AS (
            SELECT process_guid, \"index\", from_time AS began, coalesce(to_time, {LAST_EVENT_TIME}) AS ended
            FROM actual_lrps_history WHERE state = 'RUNNING'
        ), marked AS (
            SELECT *, CASE WHEN began <= max(ended) OVER (
                    PARTITION BY process_guid, \"index\" ORDER BY began, ended
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                ) THEN 0 ELSE 1 END AS begins
            FROM ran
        ), numbered AS (
            SELECT *, sum(begins) OVER (
                    PARTITION BY process_guid, \"index\" ORDER BY began, ended, begins DESC ROWS UNBOUNDED PRECEDING
                ) AS nth
            FROM marked
        ), served AS (
            SELECT process_guid, \"index\", min(began) AS began, max(ended) AS ended
            FROM numbered GROUP BY process_guid, \"index\", nth
        ), span AS (
            SELECT process_guid, domain, instances AS desired, 0 AS running, began, ended FROM wanted
            UNION ALL
            SELECT wanted.process_guid, wanted.domain, 0, 1,
                {greatest}(served.began, wanted.began), {least}(served.ended, wanted.ended)
            FROM wanted JOIN served ON served.process_guid = wanted.process_guid
                AND served.began < wanted.ended AND served.ended > wanted.began
            WHERE EXISTS (SELECT 1 FROM {ranges} WHERE served.\"index\" BETWEEN range.first AND range.last)
        ), part AS (
            SELECT days.day, process_guid, domain, desired, running, {lasted} AS lasted
            FROM span JOIN days ON began < {end} AND ended > {begin}
        )
        SELECT day, process_guid, domain, {desired_seconds} AS desired_seconds,
            {running_seconds} AS running_seconds, {availability} AS availability
        FROM part GROUP BY day, process_guid, domain"
    );
    View {
        name: "availability_by_day",
        comment: "Availability of each process on each day (UTC). Each desired index counts one second per \
                  second, and counts as running while any instance is RUNNING at it: one of an old \
                  definition, an evacuating one, or several at once.",
        columns: &[
            ("day", "Day, in UTC."),
            ("process_guid", "Process."),
            ("domain", "Domain of the process."),
            ("desired_seconds", "Seconds for which indices were desired, summed over all indices."),
            ("running_seconds", "Part of desired_seconds during which an instance was RUNNING at the index."),
            ("availability", "running_seconds divided by desired_seconds; null if no index was desired."),
        ],
        query,
    }
}

fn restarts_by_day(dialect: Dialect) -> View {
    let query = format!(
        "
        SELECT {} AS day, process_guid, domain, count(*) AS crashes, count(DISTINCT \"index\") AS indices
        FROM ended_instances WHERE end_kind = 'crashed' GROUP BY 1, 2, 3",
        dialect.day("ended_at")
    );
    View {
        name: "restarts_by_day",
        comment: "Crashes of the instances of each process on each day (UTC).",
        columns: &[
            ("day", "Day, in UTC."),
            ("process_guid", "Process."),
            ("domain", "Domain of the process."),
            ("crashes", "Number of crashes."),
            ("indices", "Number of indices with a crash."),
        ],
        query,
    }
}

fn crashing_lrps(dialect: Dialect) -> View {
    let query = format!(
        "
        SELECT process_guid, domain, count(*) AS crashes, max(ended_at) AS last_crash,
            (
                SELECT last.reason FROM ended_instances last
                WHERE last.process_guid = ended.process_guid AND last.end_kind = 'crashed'
                ORDER BY last.ended_at DESC LIMIT 1
            ) AS last_reason,
            (
                SELECT count(*) FROM actual_lrps now
                WHERE now.process_guid = ended.process_guid AND now.state = 'CRASHED'
            ) AS crashed_now
        FROM ended_instances ended
        WHERE end_kind = 'crashed' AND {} <= 3600
        GROUP BY process_guid, domain",
        dialect.seconds("ended_at", LAST_EVENT_TIME)
    );
    View {
        name: "crashing_lrps",
        comment: "Processes with a crash within the last hour of the log.",
        columns: &[
            ("process_guid", "Process."),
            ("domain", "Domain of the process."),
            ("crashes", "Number of crashes within that hour."),
            ("last_crash", "Time of the last crash."),
            ("last_reason", "Reason of the last crash."),
            ("crashed_now", "Number of its instances that are CRASHED now."),
        ],
        query,
    }
}

fn unplaced() -> View {
    let query = "
        SELECT 'instance' AS kind, process_guid || '/' || \"index\" AS name, domain, since, placement_error AS reason
        FROM actual_lrps WHERE state = 'UNCLAIMED'
        UNION ALL
        SELECT 'task', task_guid, domain, since, placement_error FROM tasks WHERE state = 'PENDING'";
    View {
        name: "unplaced",
        comment: "Instances and tasks that wait for a cell.",
        columns: &[
            ("kind", "Kind of work: instance or task."),
            ("name", "PROCESS/INDEX, or the name of the task."),
            ("domain", "Domain of the process or task."),
            ("since", "Time since which it waits."),
            ("reason", "Reason why it could not be placed; null before the first attempt."),
        ],
        query: query.to_owned(),
    }
}

fn cell_fullness() -> View {
    let query = "
        SELECT cells.cell_id, cells.zone, cells.state, count(work.memory_mb) AS containers,
            cells.containers AS containers_total, CAST(coalesce(sum(work.memory_mb), 0) AS bigint) AS memory_mb,
            cells.memory_mb AS memory_mb_total, CAST(coalesce(sum(work.disk_mb), 0) AS bigint) AS disk_mb,
            cells.disk_mb AS disk_mb_total
        FROM cells LEFT JOIN (
            SELECT cell_id, memory_mb, disk_mb
            FROM actual_lrps JOIN definitions USING (process_guid, definition_id)
            WHERE state IN ('CLAIMED', 'RUNNING')
            UNION ALL
            SELECT cell_id, memory_mb, disk_mb FROM tasks WHERE state = 'RUNNING'
        ) AS work ON work.cell_id = cells.cell_id
        GROUP BY cells.cell_id, cells.zone, cells.state, cells.containers, cells.memory_mb, cells.disk_mb";
    View {
        name: "cell_fullness",
        comment: "Resources of each cell that work reserves according to the log, without instances of \
                  removed definitions.",
        columns: &[
            ("cell_id", "Cell."),
            ("zone", "Zone of the cell."),
            ("state", "State of the cell."),
            ("containers", "Number of containers on the cell."),
            ("containers_total", "Maximum number of containers."),
            ("memory_mb", "Reserved memory, in MiB."),
            ("memory_mb_total", "Total memory, in MiB."),
            ("disk_mb", "Reserved disk, in MiB."),
            ("disk_mb_total", "Total disk, in MiB."),
        ],
        query: query.to_owned(),
    }
}

fn task_outcomes_by_hour(dialect: Dialect) -> View {
    let lasted = dialect.seconds("started_at", "first_completed_at");
    let mean = dialect.rounded(&format!("avg({lasted})"), 3);
    let query = format!(
        "
        SELECT {} AS hour, domain, sum(CASE WHEN failed THEN 0 ELSE 1 END) AS succeeded,
            sum(CASE WHEN failed THEN 1 ELSE 0 END) AS failed, {mean} AS mean_seconds,
            max({lasted}) AS longest_seconds
        FROM (
            SELECT domain, failed, started_at, first_completed_at FROM ended_tasks
            UNION ALL
            SELECT domain, failed, (
                    SELECT max(run.from_time) FROM tasks_history run
                    WHERE run.task_guid = tasks.task_guid AND run.epoch = tasks.epoch AND run.state = 'RUNNING'
                ), first_completed_at
            FROM tasks WHERE first_completed_at IS NOT NULL
        ) AS done
        GROUP BY 1, 2",
        dialect.hour("first_completed_at")
    );
    View {
        name: "task_outcomes_by_hour",
        comment: "Outcomes and run times of the tasks of each domain that completed in each hour (UTC).",
        columns: &[
            ("hour", "Start of the hour."),
            ("domain", "Domain."),
            ("succeeded", "Number of tasks that succeeded."),
            ("failed", "Number of tasks that failed."),
            ("mean_seconds", "Mean run time in seconds, without tasks that never ran."),
            ("longest_seconds", "Longest run time, in seconds."),
        ],
        query,
    }
}

fn changes(dialect: Dialect) -> View {
    let event_types = dialect.list("type", "nth");
    let query = format!(
        "
        SELECT position, min(at) AS at, actor, target, domain, {event_types} AS event_types, reason, request_id,
            decision
        FROM events WHERE cause IS NULL AND (actor LIKE 'client:%' OR actor LIKE 'operator:%')
        GROUP BY position, decision, actor, target, domain, reason, request_id"
    );
    View {
        name: "changes",
        comment: "Changes: each command of a client or an operator that had an effect.",
        columns: &[
            ("position", "Position in the log."),
            ("at", "Time of the decision."),
            ("actor", "Client or operator that sent the command."),
            ("target", "Changed aggregate."),
            ("domain", "Domain of the aggregate."),
            ("event_types", "Types of the events of the command itself, without their consequences."),
            ("reason", "Reason, set by the requester."),
            ("request_id", "Request id, set by the requester."),
            ("decision", "Decision; muster trace shows its consequences."),
        ],
        query,
    }
}
