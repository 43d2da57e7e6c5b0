//! Queries of the past rollouts of a process, and of the crash that explains a failed rollout.

use cli_base::failure::Failure;
use client::{Client, ListFilter};
use explain::decisions::{decisions_of, end_of_log};
use schemas::Position;
use schemas::container::Instance;
use schemas::ended::EndKind;
use schemas::names::ProcessGuid;
use schemas::query::{EndedInstanceRow, RolloutRow};

use super::past::{Crash, PastRollout, rollouts};

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
pub(crate) async fn last_crash(
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

#[cfg(test)]
mod tests {
    use schemas::container::Epoch;
    use schemas::names::{CellId, DefinitionId, Domain, InstanceGuid};
    use schemas::rollout::Kind;
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
