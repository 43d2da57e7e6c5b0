//! Properties that must hold when a fault is over and the cluster is quiet again.
//!
//! | property | evidence |
//! |---|---|
//! | every acknowledged command is in the log exactly once | request id, in an export of the journal |
//! | a refused command had no effect | request id, in an export of the journal |
//! | no task ran twice, and every successful task ran | file of each task, to which each run of the task adds a line |
//! | exactly the desired instances run, once each | processes and shims of this machine, compared with the rows |
//! | the tables are the fold of the log | `muster projection verify` |
//! | the log obeys its rules | `muster audit verify` |

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use client::ListFilter;
use schemas::query::{CellState, InstanceRow, InstanceState, LrpRow, TaskState};
use schemas::task::Outcome;
use support::containers::{processes_in, running_in};

use crate::cluster::Cluster;
use crate::error::{Failed, Result, ensure, poll_until};
use crate::ledger::{Outcome as Answer, Record};
use crate::log::Log;
use crate::recording_client::RecordingClient;

/// Timeout until the cluster is quiet. The timeout includes the detection of a lost cell and delayed restarts
/// after crashes.
const QUIET_TIMEOUT: Duration = Duration::from_secs(300);
/// Timeout until the tables reach the end of the log.
const TABLES_TIMEOUT: Duration = Duration::from_secs(300);
/// Maximum number of open tasks in a message.
const MAX_REPORTED: usize = 10;

/// Result of the checks.
#[derive(Debug, Default)]
pub struct CheckResult {
    /// Number of messages in the log.
    pub entries: u64,
    /// Acknowledged commands that are not in the log.
    pub lost: Vec<String>,
    /// Failed tasks with their failure reasons.
    pub failed_tasks: BTreeMap<String, String>,
    /// Descriptions of all violations.
    pub violations: Vec<String>,
}

/// Waits until the cluster is quiet, and checks all properties. No client may send commands at the same time.
///
/// # Errors
/// Returns an error if a property can't be checked. A violation is not an error, but part of the result.
pub async fn check(
    cluster: &mut Cluster,
    asker: &RecordingClient,
    records: &[Record],
) -> Result<CheckResult> {
    let mut found = CheckResult::default();
    record_violation(&mut found, wait_until_quiet(cluster, asker).await);
    record_violation(&mut found, cluster.check_all_running());
    let log = export(cluster).await?;
    found.entries = log.messages;
    commands(&mut found, &log, records);
    tasks(&mut found, &log, &cluster.folder().join("ran"))?;
    record_violation(&mut found, check_tables(cluster, log.messages).await);
    record_violation(&mut found, cluster.muster(&["audit", "verify"]).await.map(drop));
    Ok(found)
}

fn record_violation(found: &mut CheckResult, holds: Result<()>) {
    if let Err(Failed(why)) = holds {
        found.violations.push(why);
    }
}

/// Waits until the desired state, the log and the running processes match.
async fn wait_until_quiet(cluster: &Cluster, asker: &RecordingClient) -> Result<()> {
    poll_until(QUIET_TIMEOUT, "the cluster is quiet and runs exactly the desired instances", async || {
        let client = asker.queries();
        let row = client.cluster().await.map_err(Failed::context("cluster show"))?.row;
        let present = row.cells.get(&CellState::Present).copied().unwrap_or_default();
        ensure(present as usize == cluster.shape().cells, || format!("cells: {:?}", row.cells))?;
        let tasks = client.tasks(&ListFilter::default()).await.map_err(Failed::context("task list"))?.rows;
        let open: Vec<_> = tasks.iter().filter(|task| task.state != TaskState::Completed).collect();
        ensure(open.is_empty(), || {
            format!("tasks that have not completed: {:?}", &open[..open.len().min(MAX_REPORTED)])
        })?;
        let lrps = client.lrps(&ListFilter::default()).await.map_err(Failed::context("lrp list"))?.rows;
        let instances =
            client.instances(&ListFilter::default()).await.map_err(Failed::context("instance list"))?.rows;
        lrps.iter().try_for_each(|lrp| check_instances(lrp, &instances))?;
        ensure(
            instances.iter().all(|one| lrps.iter().any(|lrp| lrp.process_guid == one.process_guid)),
            || format!("instances of unknown processes: {instances:?}"),
        )?;
        check_processes(cluster.folder(), &instances)
    })
    .await
}

/// Checks that the log contains exactly the desired instances of a process, with its active definition.
fn check_instances(lrp: &LrpRow, instances: &[InstanceRow]) -> Result<()> {
    let guid = &lrp.process_guid;
    ensure(lrp.desired, || format!("{guid} is not desired, but still exists"))?;
    let rolling = lrp.rollout.as_ref().filter(|rollout| !rollout.is_completed());
    ensure(rolling.is_none(), || format!("{guid}: {rolling:?}"))?;
    let own: Vec<_> = instances.iter().filter(|row| row.process_guid == *guid).collect();
    let indices: BTreeSet<u32> = own.iter().map(|row| row.index).collect();
    let all = own.len() == indices.len() && indices.iter().copied().eq(0..lrp.instances);
    let crashing = guid.as_str().starts_with("crashing");
    let fine = own.iter().all(|row| {
        let settled = match row.state {
            InstanceState::Running => true,
            InstanceState::Crashed => crashing,
            InstanceState::Unclaimed | InstanceState::Claimed => false,
        };
        settled && !row.stopping && Some(&row.definition_id) == lrp.definition_id.as_ref()
    });
    ensure(all && fine, || format!("{guid}: {} instances are desired, found {own:?}", lrp.instances))
}

/// Checks that exactly the containers of the running instances exist on this machine, each with its shim.
fn check_processes(folder: &Path, instances: &[InstanceRow]) -> Result<()> {
    let running = instances.iter().filter(|row| row.state == InstanceState::Running);
    let named = running.filter_map(|row| {
        Some((format!("{}/{}", row.process_guid, row.index), row.instance_guid?.to_string()))
    });
    let wanted: BTreeSet<(String, String)> = named.collect();
    let containers = running_in(folder).into_iter();
    let there: BTreeSet<(String, String)> = containers
        .flat_map(|(work, guids)| guids.into_keys().map(move |guid| (work.clone(), guid)))
        .collect();
    let (missing, extra): (Vec<_>, Vec<_>) =
        (wanted.difference(&there).collect(), there.difference(&wanted).collect());
    ensure(missing.is_empty() && extra.is_empty(), || {
        format!("containers on this machine: missing {missing:?}, unexpected {extra:?}")
    })?;
    let shims: BTreeSet<String> =
        processes_in(folder).into_iter().filter_map(|one| shim_container(&one.line)).collect();
    let guids: BTreeSet<String> = wanted.into_iter().map(|(_, guid)| guid).collect();
    ensure(shims == guids, || format!("shims {shims:?} do not match containers {guids:?}"))
}

/// Returns the guid of a shim's container from the shim's command line. `None` if the line is not the command
/// line of a shim.
#[must_use]
pub fn shim_container(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    let shim = words.any(|word| word == "shim");
    let folder = words.find(|word| word.contains("/containers/")).filter(|_| shim)?;
    Some(Path::new(folder).file_name()?.to_str()?.to_owned())
}

async fn export(cluster: &Cluster) -> Result<Log> {
    let path = cluster.folder().join("log.jsonl");
    if path.exists() {
        fs::remove_file(&path).map_err(Failed::context(path.display()))?;
    }
    cluster.muster(&["export", &path.display().to_string()]).await?;
    Log::read(&path)
}

/// Checks that an acknowledged command is in the log exactly once, and that a refused command is not in the
/// log.
fn commands(found: &mut CheckResult, log: &Log, records: &[Record]) {
    for Record { request, what, outcome, .. } in records {
        let stands = log.positions_of(request);
        match outcome {
            Answer::Acknowledged(_) if stands.is_empty() => found.lost.push(format!("{request} ({what})")),
            // The answer to a repeated command has the end position of the log at the time of the repetition.
            Answer::Acknowledged(at) if stands.len() == 1 && stands[0] <= *at => {}
            Answer::Refused(_) if stands.is_empty() => {}
            Answer::Unknown(_) if stands.len() <= 1 => {}
            Answer::Acknowledged(_) | Answer::Refused(_) | Answer::Unknown(_) => {
                found
                    .violations
                    .push(format!("{request} ({what}): {outcome:?}, but is in the log at {stands:?}"));
            }
        }
    }
    if !found.lost.is_empty() {
        found.violations.push(format!("acknowledged, but not in the log: {:?}", found.lost));
    }
    if !log.duplicates.is_empty() {
        found.violations.push(format!("entries that are in the log twice: {:?}", log.duplicates));
    }
}

/// Checks that no task ran twice and that every successful task ran.
fn tasks(found: &mut CheckResult, log: &Log, ran: &Path) -> Result<()> {
    for (guid, outcome) in &log.tasks {
        let path = ran.join(guid.as_str());
        let lines = match fs::read_to_string(&path) {
            Ok(text) => text.lines().count(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
            Err(error) => return Err(Failed(format!("{}: {error}", path.display()))),
        };
        match outcome {
            Some(Outcome::Succeeded { .. }) if lines == 1 => {}
            Some(Outcome::Failed { reason }) if lines <= 1 => {
                found.failed_tasks.insert(guid.to_string(), reason.clone());
            }
            None | Some(Outcome::Succeeded { .. } | Outcome::Failed { .. }) => {
                found.violations.push(format!("task {guid} ran {lines} times with the outcome {outcome:?}"));
            }
        }
    }
    Ok(())
}

/// Checks that the tables reach the end of the log and equal the fold of the log.
async fn check_tables(cluster: &Cluster, end: u64) -> Result<()> {
    poll_until(TABLES_TIMEOUT, "the tables reach the end of the log", async || {
        let position = cluster.projected_position().await?;
        ensure(position >= end, || format!("the tables are at {position} of {end}"))
    })
    .await?;
    cluster.muster(&["projection", "verify", "--database", &cluster.database()]).await.map(drop)
}

#[cfg(test)]
mod tests {
    use schemas::{Code, Position};
    use tokio::time::Instant;

    use super::*;

    fn record(request: &str, outcome: Answer) -> Record {
        let now = Instant::now();
        Record {
            request: request.to_owned(),
            what: "test".to_owned(),
            sent_at: now,
            answered_at: now,
            outcome,
        }
    }

    /// Returns the result of the check if the log contains the requests at these positions.
    fn found(stands: &[(&str, &[u64])], outcome: Answer) -> CheckResult {
        let requests = stands.iter().map(|(request, at)| {
            ((*request).to_owned(), at.iter().copied().map(Position).collect::<Vec<_>>())
        });
        let log = Log { requests: requests.collect(), ..Log::default() };
        let mut found = CheckResult::default();
        commands(&mut found, &log, &[record("one", outcome)]);
        found
    }

    #[test]
    fn acknowledged_command_must_be_in_log_once() {
        let acknowledged = || Answer::Acknowledged(Position(7));
        let right = found(&[("one", &[7])], acknowledged());
        assert!(right.violations.is_empty() && right.lost.is_empty());
        assert!(found(&[("one", &[5])], acknowledged()).violations.is_empty(), "repeated request");
        let lost = found(&[("other", &[7])], acknowledged());
        assert_eq!((lost.lost.len(), lost.violations.len()), (1, 1));
        assert_eq!(found(&[("one", &[7, 9])], acknowledged()).violations.len(), 1, "in the log twice");
        assert_eq!(found(&[("one", &[8])], acknowledged()).violations.len(), 1, "later than acknowledged");
    }

    #[test]
    fn refused_command_must_not_be_in_log_and_unknown_at_most_once() {
        let (refused, unknown) = (Answer::Refused(Code::ResourceNotFound), Answer::Unknown(String::new()));
        assert!(found(&[], refused.clone()).violations.is_empty());
        assert_eq!(found(&[("one", &[3])], refused).violations.len(), 1);
        assert!(found(&[], unknown.clone()).violations.is_empty());
        assert!(found(&[("one", &[3])], unknown.clone()).violations.is_empty());
        assert_eq!(found(&[("one", &[3, 4])], unknown).violations.len(), 1);
    }

    #[test]
    fn task_that_ran_twice_or_never_is_a_violation() {
        let ran = tempfile::tempdir().unwrap();
        let (succeeded, failed) = (
            Some(Outcome::Succeeded { result: String::new() }),
            Some(Outcome::Failed { reason: "cancelled".to_owned() }),
        );
        for (lines, outcome, wrong) in [
            (1, &succeeded, 0),
            (0, &succeeded, 1),
            (2, &succeeded, 1),
            (0, &failed, 0),
            (1, &failed, 0),
            (2, &failed, 1),
            (1, &None, 1),
        ] {
            let guid = schemas::names::TaskGuid::new("task").unwrap();
            fs::write(ran.path().join("task"), "ran\n".repeat(lines)).unwrap();
            let log = Log { tasks: [(guid, outcome.clone())].into(), ..Log::default() };
            let mut found = CheckResult::default();
            tasks(&mut found, &log, ran.path()).unwrap();
            assert_eq!(found.violations.len(), wrong, "{lines} lines, {outcome:?}");
        }
    }

    #[test]
    fn shim_container_is_parsed_from_command_line() {
        let line = "/bin/muster shim /tmp/x/rep-c1/containers/0190-aa ";
        assert_eq!(shim_container(line).as_deref(), Some("0190-aa"));
        assert_eq!(shim_container("sleep /tmp/x/rep-c1/containers/0190-aa"), None);
    }
}
