//! `muster lrp rollout`: commands for the rollout of a process.

use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::output::note;
use client::{Client, ListFilter};
use runtime::exit::Exit;
use schemas::Position;
use schemas::container::Instance;
use schemas::ended::EndKind;
use schemas::message::Ack;
use schemas::names::ProcessGuid;
use schemas::process::RolloutControl;
use schemas::query::{EndedInstanceRow, LrpRow, RolloutRow};
use schemas::rollout::Kind;
use serde::Serialize;
use text::describe::rollout_name;

use super::args::RolloutVerb;
use super::events::{decisions_of, end_of_log};
use super::lrp::{ChangeResult, Session};
use super::past::{Crash, PastRollout, rollouts};
use super::progress::WaitCondition;
use super::{find, rows, waits};

/// Output of `muster lrp rollout status`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RolloutStatus {
    pub(crate) lrp: LrpRow,
    /// Reason why the rollout is not over. `None` if the rollout is over.
    pub(crate) waits: Option<String>,
    /// Last crash of an instance that the rollout started.
    pub(crate) last_crash: Option<Crash>,
}

pub(crate) async fn run(verb: RolloutVerb, global: &Global) -> Result<(), Failure> {
    let session = Session::open(global).await?;
    match verb {
        RolloutVerb::Status { guid, .. } => session.rollout_status(&guid).await,
        RolloutVerb::Watch { guid } => session.watch_rollout(&guid).await,
        RolloutVerb::Pause { guid } => session.pause(&guid).await,
        RolloutVerb::Resume { guid, wait } => session.resume(&guid, wait.detach).await,
        RolloutVerb::History { guid, limit, .. } => session.rollout_history(&guid, limit).await,
    }
}

/// Initial number of log positions that are searched for rollouts. Each further search covers four times as
/// many positions.
const INITIAL_WINDOW: u64 = 1_000;

/// Returns the newest rollouts of a process, at most `most`. For a process that exists, these are the
/// rollouts since its last creation. For a removed process, these are the rollouts of all processes that had
/// this guid. The log is read backwards until enough rollouts are found.
pub(crate) async fn past(
    client: &Client,
    guid: &ProcessGuid,
    most: usize,
) -> Result<Vec<PastRollout>, Failure> {
    let (position, last) = match client.lrp(guid).await {
        Ok(one) => {
            let number = one.row.rollout.as_ref().map_or(0, |rollout| rollout.number);
            (one.position, Some((one.row.epoch, number)).filter(|_| one.row.desired))
        }
        Err(error) if error.is_not_found() => (end_of_log(client).await?, None),
        Err(error) => return Err(error.into()),
    };
    let about = format!("lrp:{guid}");
    let there = last.map_or(most, |(_, number)| most.min(usize::try_from(number).unwrap_or(most)));
    let (mut from, mut window, mut all) = (position, INITIAL_WINDOW, vec![]);
    loop {
        let mut found = rollouts(&all, last);
        found.retain(|found| last.is_none_or(|(life, _)| found.life == life));
        let newest = found.split_off(found.len().saturating_sub(there));
        let enough = newest.len() == there && newest.iter().all(|found| found.is_number_exact);
        if enough || from == Position(0) {
            return Ok(newest.into_iter().map(|found| found.past).collect());
        }
        let after = Position(from.0.saturating_sub(window));
        let mut older = decisions_of(client.history_until(after, from, Some(&about)).await?.0);
        older.append(&mut all);
        (from, window, all) = (after, window.saturating_mul(4), older);
    }
}

/// Returns the last crash of an instance that the rollout started, if the crash happened during the rollout.
/// The records of ended instances are searched first. The log is searched next, because the log keeps crashes
/// longer.
async fn last_crash(
    client: &Client,
    guid: &ProcessGuid,
    rollout: &RolloutRow,
) -> Result<Option<Crash>, Failure> {
    let ended = client.ended_instances(&ListFilter::process(guid.clone()), None).await?.rows;
    let crash = newest_crash(ended, rollout);
    if crash.is_some() || rollout.failed.is_empty() {
        return Ok(crash);
    }
    let all = past(client, guid, 1).await?;
    let past = all.into_iter().rev().find(|past| past.target == rollout.target);
    Ok(past.and_then(|past| past.last_crash))
}

/// Returns the newest crash among ended containers of the target definition during the rollout.
fn newest_crash(ended: Vec<EndedInstanceRow>, rollout: &RolloutRow) -> Option<Crash> {
    let of_rollout = |row: &EndedInstanceRow| {
        let until = rollout.is_completed().then_some(rollout.since);
        row.end_kind == EndKind::Crashed
            && row.definition_id == rollout.target
            && row.ended_at >= rollout.started_at
            && until.is_none_or(|until| row.ended_at <= until)
    };
    let newest = ended.into_iter().filter(of_rollout).max_by_key(|row| (row.position, row.nth))?;
    Some(Crash {
        index: newest.index,
        definition_id: newest.definition_id,
        by: Instance { instance_guid: newest.instance_guid, cell_id: newest.cell_id },
        reason: newest.reason.unwrap_or_default(),
        at: newest.ended_at,
    })
}

impl Session<'_> {
    async fn rollout_status(&self, guid: &ProcessGuid) -> Result<(), Failure> {
        let lrp = self.existing(guid, "show the rollout of").await?.0;
        let Some(rollout) = &lrp.rollout else { return Err(no_rollout(guid)) };
        let instances = self.client.instances(&ListFilter::process(guid.clone())).await?.rows;
        let last_crash = last_crash(&self.client, guid, rollout).await?;
        let status = RolloutStatus { waits: waits::waiting_reason(&lrp, &instances), last_crash, lrp };
        self.output.write_one(&status, rows::rollout)
    }

    async fn watch_rollout(&self, guid: &ProcessGuid) -> Result<(), Failure> {
        let (lrp, _) = self.existing(guid, "watch the rollout of").await?;
        let Some(rollout) = &lrp.rollout else { return Err(no_rollout(guid)) };
        let done = Ack { position: Position(0), version: lrp.version };
        let action = match rollout.kind {
            Kind::Update => "rolled out",
            Kind::Rollback => "rolled back",
        };
        self.settle_and_print(guid, done, action, WaitCondition::Rollout(&rollout.target), false).await
    }

    async fn pause(&self, guid: &ProcessGuid) -> Result<(), Failure> {
        let (done, lrp) = self.steer(guid, RolloutControl::Pause, "pause").await?;
        let rollout = lrp.rollout.as_ref();
        let name = rollout.map(|rollout| rollout_name(rollout.kind, &rollout.target)).unwrap_or_default();
        let changed = ChangeResult {
            process_guid: guid,
            action: "paused",
            definition_id: rollout.map(|rollout| &rollout.target),
            carried_out: true,
            position: done.position,
            version: done.version,
        };
        self.tell(&changed, &format!("the {name} of process {guid} is paused"))
    }

    async fn resume(&self, guid: &ProcessGuid, detach: bool) -> Result<(), Failure> {
        let (done, lrp) = self.steer(guid, RolloutControl::Resume, "resume").await?;
        let target = lrp.rollout.map(|rollout| rollout.target);
        let asked = target.as_ref().map_or(WaitCondition::Instances, WaitCondition::Rollout);
        self.settle_and_print(guid, done, "resumed", asked, detach).await
    }

    /// Ends the rollout in progress, and returns the process to the definition before the rollout.
    pub(super) async fn end_rollout(&self, guid: &ProcessGuid, detach: bool) -> Result<(), Failure> {
        let (done, _) = self.steer(guid, RolloutControl::RollBack, "roll back").await?;
        let target = self.started_rollout(guid, &done).await?;
        let asked = target.as_ref().map_or(WaitCondition::Instances, WaitCondition::Rollout);
        self.settle_and_print(guid, done, "rolled back", asked, detach).await
    }

    async fn rollout_history(&self, guid: &ProcessGuid, limit: u32) -> Result<(), Failure> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        // The log still has the rollouts of a removed process.
        let all = past(&self.client, guid, limit).await?;
        if all.is_empty() {
            self.existing(guid, "show the rollouts of").await?;
        }
        if all.first().is_some_and(|first| first.number > 1) && all.len() == limit {
            note("older rollouts are not shown: see --limit");
        }
        self.output.write_rows(&all, rows::rollouts)
    }

    /// Sends a steering command to the rollout of a process. Returns the updated row as well.
    async fn steer(
        &self,
        guid: &ProcessGuid,
        steer: RolloutControl,
        what: &str,
    ) -> Result<(Ack, LrpRow), Failure> {
        let what = format!("{what} the rollout of");
        let (_, client) = self.existing(guid, &what).await?;
        let doing = |failure: Failure| failure.while_doing(format!("{what} process {guid}"));
        let steered = client.steer_lrp(guid.clone(), steer).await.map_err(Failure::from).map_err(doing);
        let advice = match steer {
            RolloutControl::RollBack => {
                format!("if the rollout has just ended, try again: muster lrp rollback {guid}")
            }
            RolloutControl::Pause | RolloutControl::Resume => format!("see muster lrp rollout status {guid}"),
        };
        let done = steered.map_err(|failure| failure.advise_if_exit(Exit::Conflict, advice))?;
        Ok((done, find::lrp(&self.client, guid).await.map_err(doing)?.row))
    }
}

fn no_rollout(guid: &ProcessGuid) -> Failure {
    let why = format!("process {guid} has had no rollout yet");
    let failure = Failure::new(Exit::NotFound, "ResourceNotFound", why);
    failure.advise("rollouts are started by muster apply, muster lrp activate and muster lrp restart")
}

#[cfg(test)]
mod tests {
    use schemas::container::Epoch;
    use schemas::names::{CellId, DefinitionId, Domain, InstanceGuid};
    use schemas::{Indices, Timestamp};
    use uuid::Uuid;

    use super::*;

    fn ended(nth: u32, definition: &str, how: EndKind, second: u64) -> EndedInstanceRow {
        EndedInstanceRow {
            process_guid: ProcessGuid::new("web").unwrap(),
            index: nth,
            domain: Domain::new("shop").unwrap(),
            epoch: Epoch::default(),
            definition_id: DefinitionId::new(definition).unwrap(),
            instance_guid: InstanceGuid(Uuid::from_u128(nth.into())),
            cell_id: CellId::new("c1").unwrap(),
            started_at: None,
            ended_at: Timestamp::from_millis(second * 1_000),
            duration_ms: None,
            end_kind: how,
            stop_reason: None,
            reason: Some(format!("boom {nth}")),
            exit_status: Some(1),
            crash_count: 1,
            position: Position(second),
            nth,
        }
    }

    #[test]
    fn newest_crash_is_of_target_definition_during_rollout() {
        let rollout = |status: &str| RolloutRow {
            number: 1,
            kind: Kind::Update,
            status: status.into(),
            reason: None,
            target: DefinitionId::new("v2").unwrap(),
            rollback_to: None,
            total: 3,
            replaced: 1,
            in_replacement: Indices::default(),
            stalled: Indices::default(),
            failed: 0.into(),
            started_at: Timestamp::from_millis(10_000),
            since: Timestamp::from_millis(20_000),
        };
        let rows = || {
            vec![
                ended(0, "v2", EndKind::Crashed, 9),
                ended(1, "v2", EndKind::Crashed, 12),
                ended(2, "v1", EndKind::Crashed, 13),
                ended(3, "v2", EndKind::Stopped, 14),
                ended(4, "v2", EndKind::Crashed, 25),
            ]
        };
        let index = |status| newest_crash(rows(), &rollout(status)).map(|crash| (crash.index, crash.reason));
        assert_eq!(index("updating"), Some((4, "boom 4".into())));
        assert_eq!(index("completed"), Some((1, "boom 1".into())));
        assert_eq!(newest_crash(rows()[2..4].to_vec(), &rollout("updating")), None);
    }
}
