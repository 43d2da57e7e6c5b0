//! What has to hold when a fault is over and everything is quiet again.
//!
//! | what | how it is seen |
//! |---|---|
//! | every acknowledged command is in the log exactly once | by its request token, in an export of the journal itself |
//! | what was refused did nothing | likewise |
//! | no task ran twice, and what succeeded ran | each writes a line to a file of its own |
//! | what ought to run runs, once, and nothing else does | processes and shims of this machine, compared with the rows |
//! | the tables are the fold of the log | `muster projection verify` |
//! | the log is what its rules allow | `muster audit verify` |

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use client::Only;
use schemas::query::{CellState, InstanceRow, InstanceState, LrpRow, TaskState};
use schemas::task::Outcome;
use support::containers::{living_in, running_in};

use crate::asker::Asker;
use crate::cluster::Cluster;
use crate::failed::{Failed, Result, so, until};
use crate::ledger::{Outcome as Answer, Record};
use crate::log::Log;

/// How long it may take until nothing moves any more. A cell that was lost is waited for, and what is restarted after crashes.
const QUIET: Duration = Duration::from_secs(300);
/// How long the tables may take to reach the log's end.
const CAUGHT_UP: Duration = Duration::from_secs(300);
/// How many of several wrong things are told.
const TOLD: usize = 10;

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// Messages of the log.
    pub entries: u64,
    /// Acknowledged commands that are not in the log.
    pub lost: Vec<String>,
    /// Tasks that failed, with the reason.
    pub failed_tasks: BTreeMap<String, String>,
    /// Everything that is wrong.
    pub wrong: Vec<String>,
}

/// Waits until everything is quiet, and looks whether all of it holds. No client may ask meanwhile.
///
/// # Errors
/// It couldn't be looked at. What is wrong is no error, but found.
pub async fn check(cluster: &mut Cluster, asker: &Asker, records: &[Record]) -> Result<Found> {
    let mut found = Found::default();
    note(&mut found, quiet(cluster, asker).await);
    note(&mut found, cluster.all_run());
    let log = export(cluster).await?;
    found.entries = log.messages;
    commands(&mut found, &log, records);
    tasks(&mut found, &log, &cluster.folder().join("ran"))?;
    note(&mut found, tables(cluster, log.messages).await);
    note(&mut found, cluster.muster(&["audit", "verify"]).await.map(drop));
    Ok(found)
}

fn note(found: &mut Found, holds: Result<()>) {
    if let Err(Failed(why)) = holds {
        found.wrong.push(why);
    }
}

/// Waits until what is desired is what the log says and what really runs.
async fn quiet(cluster: &Cluster, asker: &Asker) -> Result<()> {
    until(QUIET, "everything is quiet, and what runs is what is desired", async || {
        let client = asker.questions();
        let row = client.cluster().await.map_err(Failed::at("cluster show"))?.row;
        let present = row.cells.get(&CellState::Present).copied().unwrap_or_default();
        so(present as usize == cluster.shape().cells, || format!("cells: {:?}", row.cells))?;
        let tasks = client.tasks(&Only::default()).await.map_err(Failed::at("task list"))?.rows;
        let open: Vec<_> = tasks.iter().filter(|task| task.state != TaskState::Completed).collect();
        so(open.is_empty(), || format!("tasks are not over: {:?}", &open[..open.len().min(TOLD)]))?;
        let lrps = client.lrps(&Only::default()).await.map_err(Failed::at("lrp list"))?.rows;
        let instances = client.instances(&Only::default()).await.map_err(Failed::at("instance list"))?.rows;
        lrps.iter().try_for_each(|lrp| as_desired(lrp, &instances))?;
        so(instances.iter().all(|one| lrps.iter().any(|lrp| lrp.process_guid == one.process_guid)), || {
            format!("instances of what nobody desires: {instances:?}")
        })?;
        really(cluster.folder(), &instances)
    })
    .await
}

/// That the log has of a process exactly the instances that are desired, of its active definition.
fn as_desired(lrp: &LrpRow, instances: &[InstanceRow]) -> Result<()> {
    let guid = &lrp.process_guid;
    so(lrp.desired, || format!("{guid} is not desired, and still there"))?;
    let rolling = lrp.rollout.as_ref().filter(|rollout| !rollout.is_over());
    so(rolling.is_none(), || format!("{guid}: {rolling:?}"))?;
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
    so(all && fine, || format!("{} of {guid} are desired, and there are {own:?}", lrp.instances))
}

/// That on this machine there are exactly the containers of the instances that run, each with its shim.
fn really(folder: &Path, instances: &[InstanceRow]) -> Result<()> {
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
    so(missing.is_empty() && extra.is_empty(), || {
        format!("on this machine are missing {missing:?}, and run without being desired {extra:?}")
    })?;
    let shims: BTreeSet<String> =
        living_in(folder).into_iter().filter_map(|one| shim_of(&one.line)).collect();
    let guids: BTreeSet<String> = wanted.into_iter().map(|(_, guid)| guid).collect();
    so(shims == guids, || format!("there are the shims {shims:?}, and the containers {guids:?}"))
}

/// The container that a shim belongs to, if a command line is that of one.
#[must_use]
pub fn shim_of(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    let shim = words.any(|word| word == "shim");
    let folder = words.find(|word| word.contains("/containers/")).filter(|_| shim)?;
    Some(Path::new(folder).file_name()?.to_str()?.to_owned())
}

async fn export(cluster: &Cluster) -> Result<Log> {
    let path = cluster.folder().join("log.jsonl");
    if path.exists() {
        fs::remove_file(&path).map_err(Failed::at(path.display()))?;
    }
    cluster.muster(&["export", &path.display().to_string()]).await?;
    Log::read(&path)
}

/// That what was acknowledged is there once, and what was refused isn't.
fn commands(found: &mut Found, log: &Log, records: &[Record]) {
    for Record { request, what, outcome, .. } in records {
        let stands = log.of(request);
        match outcome {
            Answer::Acknowledged(_) if stands.is_empty() => found.lost.push(format!("{request} ({what})")),
            // One that was asked again is answered with where the log stood then.
            Answer::Acknowledged(at) if stands.len() == 1 && stands[0] <= *at => {}
            Answer::Refused(_) if stands.is_empty() => {}
            Answer::Unknown(_) if stands.len() <= 1 => {}
            Answer::Acknowledged(_) | Answer::Refused(_) | Answer::Unknown(_) => {
                found.wrong.push(format!("{request} ({what}): {outcome:?}, and it stands at {stands:?}"));
            }
        }
    }
    if !found.lost.is_empty() {
        found.wrong.push(format!("acknowledged, and not in the log: {:?}", found.lost));
    }
    if !log.twice.is_empty() {
        found.wrong.push(format!("entries that stand in the log twice: {:?}", log.twice));
    }
}

/// That no task ran twice, and each that succeeded did run.
fn tasks(found: &mut Found, log: &Log, ran: &Path) -> Result<()> {
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
                found.wrong.push(format!("task {guid} ran {lines} times, and its outcome is {outcome:?}"));
            }
        }
    }
    Ok(())
}

/// That the tables reach the log's end, and are its fold.
async fn tables(cluster: &Cluster, end: u64) -> Result<()> {
    until(CAUGHT_UP, "the tables reach the end of the log", async || {
        let position = cluster.projected().await?;
        so(position >= end, || format!("they are at {position} of {end}"))
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
        Record { request: request.to_owned(), what: "test".to_owned(), asked: now, answered: now, outcome }
    }

    /// What is found wrong if requests stand so in the log.
    fn found(stands: &[(&str, &[u64])], outcome: Answer) -> Found {
        let requests = stands.iter().map(|(request, at)| {
            ((*request).to_owned(), at.iter().copied().map(Position).collect::<Vec<_>>())
        });
        let log = Log { requests: requests.collect(), ..Log::default() };
        let mut found = Found::default();
        commands(&mut found, &log, &[record("one", outcome)]);
        found
    }

    #[test]
    fn what_was_acknowledged_stands_there_once() {
        let acknowledged = || Answer::Acknowledged(Position(7));
        let right = found(&[("one", &[7])], acknowledged());
        assert!(right.wrong.is_empty() && right.lost.is_empty());
        assert!(found(&[("one", &[5])], acknowledged()).wrong.is_empty(), "asked again");
        let lost = found(&[("other", &[7])], acknowledged());
        assert_eq!((lost.lost.len(), lost.wrong.len()), (1, 1));
        assert_eq!(found(&[("one", &[7, 9])], acknowledged()).wrong.len(), 1, "twice");
        assert_eq!(found(&[("one", &[8])], acknowledged()).wrong.len(), 1, "later than was said");
    }

    #[test]
    fn what_was_refused_stands_nowhere_and_what_is_unknown_once_at_the_most() {
        let (refused, unknown) = (Answer::Refused(Code::ResourceNotFound), Answer::Unknown(String::new()));
        assert!(found(&[], refused.clone()).wrong.is_empty());
        assert_eq!(found(&[("one", &[3])], refused).wrong.len(), 1);
        assert!(found(&[], unknown.clone()).wrong.is_empty());
        assert!(found(&[("one", &[3])], unknown.clone()).wrong.is_empty());
        assert_eq!(found(&[("one", &[3, 4])], unknown).wrong.len(), 1);
    }

    #[test]
    fn a_task_that_ran_twice_or_never_is_found() {
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
            let mut found = Found::default();
            tasks(&mut found, &log, ran.path()).unwrap();
            assert_eq!(found.wrong.len(), wrong, "{lines} lines, {outcome:?}");
        }
    }

    #[test]
    fn a_shim_is_known_by_its_command_line() {
        let line = "/bin/muster shim /tmp/x/rep-c1/containers/0190-aa ";
        assert_eq!(shim_of(line).as_deref(), Some("0190-aa"));
        assert_eq!(shim_of("sleep /tmp/x/rep-c1/containers/0190-aa"), None);
    }
}
