//! What people ask of the tables, as views of them.
//!
//! Times are compared to the millisecond, as `SQLite` reads them. What lasts still lasts until the last event.

use super::Dialect;

/// A view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Its name.
    pub name: &'static str,
    /// What it tells.
    pub comment: &'static str,
    /// Its columns, each with what it says.
    pub columns: &'static [(&'static str, &'static str)],
    /// What it selects.
    pub query: String,
}

/// The time of the last event.
const NOW: &str = "(SELECT max(at) FROM events)";

/// Every one of them, those first that others read.
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
        comment: "How many instances of a domain were in a state, from each position at which that changed. Evacuating \
                  twins, which run on where the instance itself is placed anew, are not counted.",
        columns: &[
            ("position", "The position from which on it was so."),
            ("at", "When that was decided."),
            ("domain", "The domain."),
            ("state", "The state."),
            ("instances", "How many were in it."),
        ],
        query: query.to_owned(),
    }
}

/// What begins an attempt is kept by its `since`: a row that is replaced because the attempt was refused meanwhile begins
/// later, and says since when it waits. Rows follow each other in one attempt as long as each begins where the one before it
/// ended, in the same life of the process, and none but the last is RUNNING or CRASHED.
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
        ), asked AS (
            SELECT *, max(CASE WHEN state = 'UNCLAIMED' THEN since END) OVER (
                    PARTITION BY process_guid, definition_id, \"index\", attempt
                ) AS asked_at
            FROM numbered
        )
        SELECT process_guid, definition_id, \"index\", domain, instance_guid, cell_id, asked_at,
            from_time AS running_at, {} AS seconds, from_position AS position
        FROM asked
        WHERE state = 'RUNNING' AND NOT (follows = 1 AND old_state = 'RUNNING' AND old_guid = instance_guid)",
        dialect.seconds("asked_at", "from_time")
    );
    View {
        name: "starts",
        comment: "Every start of an instance: from when a place for it was last asked for until it was RUNNING.",
        columns: &[
            ("process_guid", "Its process."),
            ("definition_id", "The definition that it runs."),
            ("index", "Its index."),
            ("domain", "Its domain."),
            ("instance_guid", "Its container."),
            ("cell_id", "Its cell."),
            (
                "asked_at",
                "When its index became UNCLAIMED for this start; null: it was found RUNNING, without having been asked for.",
            ),
            ("running_at", "When it was RUNNING."),
            ("seconds", "How long that took."),
            ("position", "Where the log says that it was RUNNING."),
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
        comment: "How long the instances of each process took from being wanted to RUNNING.",
        columns: &[
            ("process_guid", "The process."),
            ("domain", "Its domain."),
            ("starts", "How many starts there were."),
            ("p50", "Half of them took no longer, in seconds."),
            ("p90", "Nine of ten took no longer."),
            ("p99", "99 of 100 took no longer."),
            ("longest", "The longest of them."),
        ],
        query: query.to_owned(),
    }
}

/// What is RUNNING of an index, by whichever definition and beside whichever twin, is one stretch of time as long as there
/// is no gap in it. What of that lies where the index was desired is what counts.
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
            SELECT process_guid, domain, instances, indices, from_time AS began, coalesce(to_time, {NOW}) AS ended
            FROM desired_lrps_history
        ), ran AS (
            SELECT process_guid, \"index\", from_time AS began, coalesce(to_time, {NOW}) AS ended
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
        comment: "Of each process and day (UTC) for how long its indices were to be served, and for how long they were: one \
                  second for each index that is desired and, of these, for each at which anything was RUNNING, be it of \
                  an old definition or the evacuating twin, and however many at once.",
        columns: &[
            ("day", "The day."),
            ("process_guid", "The process."),
            ("domain", "Its domain."),
            ("desired_seconds", "Seconds for which indices were desired, of all of them together."),
            ("running_seconds", "Of these the seconds for which something was RUNNING at the index."),
            ("availability", "The second over the first, at most 1; null: none was desired."),
        ],
        query,
    }
}

fn restarts_by_day(dialect: Dialect) -> View {
    let query = format!(
        "
        SELECT {} AS day, process_guid, domain, count(*) AS crashes, count(DISTINCT \"index\") AS indices
        FROM ended_instances WHERE how = 'crashed' GROUP BY 1, 2, 3",
        dialect.day("ended_at")
    );
    View {
        name: "restarts_by_day",
        comment: "How often the instances of each process crashed on each day (UTC).",
        columns: &[
            ("day", "The day."),
            ("process_guid", "The process."),
            ("domain", "Its domain."),
            ("crashes", "How often one crashed."),
            ("indices", "How many of its indices did."),
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
                WHERE last.process_guid = ended.process_guid AND last.how = 'crashed'
                ORDER BY last.ended_at DESC LIMIT 1
            ) AS last_reason,
            (
                SELECT count(*) FROM actual_lrps now
                WHERE now.process_guid = ended.process_guid AND now.state = 'CRASHED'
            ) AS crashed_now
        FROM ended_instances ended
        WHERE how = 'crashed' AND {} <= 3600
        GROUP BY process_guid, domain",
        dialect.seconds("ended_at", NOW)
    );
    View {
        name: "crashing_lrps",
        comment: "The processes of which an instance crashed within the last hour of the log.",
        columns: &[
            ("process_guid", "The process."),
            ("domain", "Its domain."),
            ("crashes", "Crashes within that hour."),
            ("last_crash", "When the last one was."),
            ("last_reason", "Why."),
            ("crashed_now", "How many of its instances are CRASHED now."),
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
        comment: "What waits for a cell, and why.",
        columns: &[
            ("kind", "instance or task."),
            ("name", "PROCESS/INDEX, or the task."),
            ("domain", "Its domain."),
            ("since", "Since when it waits."),
            ("reason", "Why it found no place; null: it was not refused yet."),
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
        comment: "What of each cell is taken by what the log has there. Instances whose definition is gone are not counted.",
        columns: &[
            ("cell_id", "The cell."),
            ("zone", "Its zone."),
            ("state", "Its state."),
            ("containers", "Containers on it."),
            ("containers_total", "Containers that it takes in all."),
            ("memory_mb", "Memory that they take, in MiB."),
            ("memory_mb_total", "Memory that it has in all."),
            ("disk_mb", "Disk that they take, in MiB."),
            ("disk_mb_total", "Disk that it has in all."),
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
        comment: "How many tasks of each domain completed in each hour (UTC), how, and how long they ran.",
        columns: &[
            ("hour", "When the hour begins."),
            ("domain", "The domain."),
            ("succeeded", "How many succeeded."),
            ("failed", "How many failed."),
            ("mean_seconds", "How long they ran on the average; those that never ran don't count."),
            ("longest_seconds", "How long the longest ran."),
        ],
        query,
    }
}

fn changes(dialect: Dialect) -> View {
    let what = dialect.list("type", "nth");
    let query = format!(
        "
        SELECT position, min(at) AS at, actor, about, domain, {what} AS what, reason, request_id, decision
        FROM events WHERE cause IS NULL AND (actor LIKE 'client:%' OR actor LIKE 'operator:%')
        GROUP BY position, decision, actor, about, domain, reason, request_id"
    );
    View {
        name: "changes",
        comment: "Who changed what: each command of a client or an operator that did something.",
        columns: &[
            ("position", "Where the log has it."),
            ("at", "When it was decided."),
            ("actor", "Who."),
            ("about", "Of what."),
            ("domain", "Its domain."),
            ("what", "The events that the command made itself."),
            ("reason", "Why, in the words of who asked."),
            ("request_id", "What the requester called the request."),
            ("decision", "The decision: muster trace shows what followed from it."),
        ],
        query,
    }
}
