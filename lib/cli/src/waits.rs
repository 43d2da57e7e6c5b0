//! Reason for the wait of a rollout, in one sentence. This module only converts rows to text.

use std::time::Duration;

use schemas::policy::{UpdateOrder, UpdatePolicy};
use schemas::query::{InstancePresence, InstanceRow, InstanceState, LrpRow, RolloutRow};
use schemas::rollout::Kind;
use text::describe::indices;
use text::words::{count, duration_text, one_line};

use super::restarts::restart_text;

/// Returns the reason why the rollout of a process is not complete. `None` if no rollout is in progress.
pub(crate) fn waiting_reason(lrp: &LrpRow, instances: &[InstanceRow]) -> Option<String> {
    let rollout = lrp.rollout_under_way()?;
    if rollout.is_paused() {
        return Some(paused_state(rollout));
    }
    let policies = lrp.policies.clone().unwrap_or_default();
    let policy = rollout.kind.policy(&policies);
    let mut indices: Vec<(u8, String)> =
        rollout.in_replacement.iter().map(|index| index_state(rollout, policy, instances, index)).collect();
    // Problems are reported before normal progress.
    indices.sort_by_key(|(rank, _)| *rank);
    let more = indices.len().saturating_sub(1);
    let first = indices.into_iter().next().map(|(_, sentence)| sentence);
    Some(match first {
        Some(sentence) if more > 0 => format!("{sentence}; and {more} more in replacement"),
        Some(sentence) => sentence,
        None => idle_state(lrp, rollout, policy, instances),
    })
}

/// Describes a paused rollout, and the commands that continue it.
fn paused_state(rollout: &RolloutRow) -> String {
    let reason = rollout.reason.as_deref().map(one_line).unwrap_or_default();
    let reason = if reason.starts_with("paused") { reason } else { format!("paused: {reason}") };
    let can = match (rollout.kind, &rollout.rollback_to) {
        (Kind::Update, Some(_)) => "resume or roll back",
        (Kind::Update, None) | (Kind::Rollback, _) => "resume, or update to another definition",
    };
    format!("{reason} ({can})")
}

/// Describes the state of an index whose instance is being replaced. The returned number is the rank of the
/// state; only the index with the lowest rank is reported.
fn index_state(
    rollout: &RolloutRow,
    policy: &UpdatePolicy,
    instances: &[InstanceRow],
    index: u32,
) -> (u8, String) {
    let here = || instances.iter().filter(|row| row.index == index);
    let is_target = |row: &&InstanceRow| row.definition_id == rollout.target;
    let ordinary = |row: &&InstanceRow| row.presence == InstancePresence::Ordinary;
    let target = here().filter(ordinary).find(is_target);
    let old = here().find(|row| !is_target(row));
    let on = |row: &InstanceRow| row.cell_id.as_ref().map(|cell| format!(" on {cell}")).unwrap_or_default();
    let Some(new) = target else {
        return match old {
            Some(old) if old.presence == InstancePresence::Evacuating => (
                2,
                format!("index {index} waits for the end of its evacuation{}", on(old).replace("on", "from")),
            ),
            Some(old) if old.stopping => {
                (2, format!("index {index} waits for its old instance to stop{}", on(old)))
            }
            Some(_) | None => (3, format!("index {index} is being replaced")),
        };
    };
    match (new.state, new.stopping) {
        (_, true) => (2, format!("index {index} waits for its new instance to stop{}", on(new))),
        (InstanceState::Unclaimed, false) => match &new.placement_error {
            Some(error) => (0, format!("index {index} waits for room: {}", one_line(error))),
            None => (2, format!("index {index} waits for a cell")),
        },
        (InstanceState::Claimed, false) => (2, format!("index {index} is being started{}", on(new))),
        (InstanceState::Crashed, false) => {
            let reason = one_line(new.crash_reason.as_deref().unwrap_or("no reason is known"));
            let times = count(new.crash_count.into(), "time");
            (1, format!("index {index} crashed {times}: {reason}; {}", restart_text(new)))
        }
        (InstanceState::Running, false) => (3, running_state(policy, new, old, &on)),
    }
}

/// Describes the state of an index whose new instance runs.
fn running_state(
    policy: &UpdatePolicy,
    new: &InstanceRow,
    old: Option<&InstanceRow>,
    on: &dyn Fn(&InstanceRow) -> String,
) -> String {
    let index = new.index;
    match old {
        Some(old) if old.stopping => format!("index {index} waits for its old instance to stop{}", on(old)),
        Some(_) | None if policy.monitor_ms > 0 => {
            let monitor = duration_text(Duration::from_millis(policy.monitor_ms));
            format!("index {index} runs{} and must keep running for {monitor}", on(new))
        }
        Some(_) | None => format!("index {index} runs{} and takes over", on(new)),
    }
}

/// Describes the state of a rollout that is currently not replacing an instance.
fn idle_state(
    lrp: &LrpRow,
    rollout: &RolloutRow,
    policy: &UpdatePolicy,
    instances: &[InstanceRow],
) -> String {
    if !rollout.stalled.is_empty() {
        let (which, are) = match rollout.stalled.len() {
            1 => ("index", "was"),
            _ => ("indices", "were"),
        };
        return format!("{which} {} {are} given up for now, and will be retried", indices(&rollout.stalled));
    }
    let missing = instances.iter().find(|row| {
        row.definition_id == rollout.target
            && row.state != InstanceState::Running
            && lrp.indices.contains(row.index)
    });
    if let Some(missing) = missing {
        return index_state(rollout, policy, instances, missing.index).1;
    }
    if policy.delay_ms > 0 && rollout.replaced > 0 {
        let delay = duration_text(Duration::from_millis(policy.delay_ms));
        return format!("waits {delay} before the next index is replaced");
    }
    let policies = lrp.policies.clone().unwrap_or_default();
    let least = policies.required_running(policy, lrp.instances);
    if policy.order == UpdateOrder::StopFirst && lrp.running <= least {
        return format!("no index can be stopped: {} running, at least {least} required", lrp.running);
    }
    "the next index is about to be replaced".to_owned()
}

#[cfg(test)]
mod tests {
    use schemas::Timestamp;
    use schemas::names::{CellId, DefinitionId};
    use schemas::policy::Policies;

    use super::*;
    use crate::rows::tests::{rolling, running, with_definition};

    fn on(cell: &str, row: InstanceRow) -> InstanceRow {
        InstanceRow { cell_id: Some(CellId::new(cell).unwrap()), ..row }
    }

    /// Returns the reason for a rollout in which index 0 runs its old instance and has the new instance
    /// `new`.
    fn reason_with_new_instance(new: InstanceRow) -> String {
        let rows = [running(0), with_definition("v2", on("c2", new)), running(1)];
        waiting_reason(&rolling("updating", &[0]), &rows).unwrap()
    }

    #[test]
    fn index_in_replacement_reports_its_reason() {
        let unplaced = InstanceRow {
            state: InstanceState::Unclaimed,
            placement_error: Some("insufficient resources: memory".into()),
            ..running(0)
        };
        assert_eq!(
            reason_with_new_instance(unplaced.clone()),
            "index 0 waits for room: insufficient resources: memory"
        );
        let new = InstanceRow { placement_error: None, ..unplaced.clone() };
        assert_eq!(reason_with_new_instance(new), "index 0 waits for a cell");
        let starts = InstanceRow { state: InstanceState::Claimed, ..running(0) };
        assert_eq!(reason_with_new_instance(starts.clone()), "index 0 is being started on c2");
        let crashed = InstanceRow {
            state: InstanceState::Crashed,
            crash_count: 4,
            crash_reason: Some("Exited with status 1".into()),
            restart_at: Some(Timestamp::from_millis(61_000)),
            ..running(0)
        };
        assert_eq!(
            reason_with_new_instance(crashed),
            "index 0 crashed 4 times: Exited with status 1; restarts at 00:01:01 UTC"
        );
        assert_eq!(reason_with_new_instance(running(0)), "index 0 runs on c2 and takes over");
        assert_eq!(
            reason_with_new_instance(InstanceRow { stopping: true, ..starts }),
            "index 0 waits for its new instance to stop on c2"
        );

        // The index with a problem is reported.
        let v2 = |row| with_definition("v2", row);
        let rows = [running(0), v2(running(0)), running(1), v2(InstanceRow { index: 1, ..unplaced })];
        assert_eq!(
            waiting_reason(&rolling("updating", &[0, 1]), &rows).unwrap(),
            "index 1 waits for room: insufficient resources: memory; and 1 more in replacement"
        );
    }

    #[test]
    fn rollout_waits_for_old_instance_to_stop() {
        let old = InstanceRow { stopping: true, ..running(0) };
        let told = "index 0 waits for its old instance to stop on c1";
        assert_eq!(waiting_reason(&rolling("updating", &[0]), std::slice::from_ref(&old)).unwrap(), told);
        let both = [old, with_definition("v2", running(0))];
        assert_eq!(waiting_reason(&rolling("updating", &[0]), &both).unwrap(), told);
        let mut watched = rolling("updating", &[0]);
        let update = UpdatePolicy { monitor_ms: 5_000, ..UpdatePolicy::default_update() };
        watched.policies = Some(Policies { update, ..Policies::default() });
        assert_eq!(
            waiting_reason(&watched, &[running(0), with_definition("v2", running(0))]).unwrap(),
            "index 0 runs on c1 and must keep running for 5s"
        );
    }

    #[test]
    fn rollout_without_index_in_replacement_reports_reason() {
        let rows = [with_definition("v2", running(0)), running(1)];
        let mut lrp = rolling("updating", &[]);
        assert_eq!(waiting_reason(&lrp, &rows).unwrap(), "the next index is about to be replaced");
        let update = UpdatePolicy { delay_ms: 10_000, ..UpdatePolicy::default_update() };
        lrp.policies = Some(Policies { update, ..Policies::default() });
        assert_eq!(waiting_reason(&lrp, &rows).unwrap(), "waits 10s before the next index is replaced");
        let update = UpdatePolicy { order: UpdateOrder::StopFirst, ..UpdatePolicy::default_update() };
        lrp.policies = Some(Policies { update, ..Policies::default() });
        lrp.running = 1;
        assert_eq!(
            waiting_reason(&lrp, &rows).unwrap(),
            "no index can be stopped: 1 running, at least 1 required"
        );
        lrp.rollout.as_mut().unwrap().stalled = [0, 1].into_iter().collect();
        assert_eq!(
            waiting_reason(&lrp, &rows).unwrap(),
            "indices 0-1 were given up for now, and will be retried"
        );
    }

    #[test]
    fn paused_rollout_reports_reason_and_commands() {
        let mut lrp = rolling("paused", &[]);
        let mut says = |reason: &str| {
            lrp.rollout.as_mut().unwrap().reason = Some(reason.to_owned());
            waiting_reason(&lrp, &[]).unwrap()
        };
        assert_eq!(says("paused by a client"), "paused by a client (resume or roll back)");
        assert_eq!(
            says("1 of 3 failed, the last at index 0: Exited with status 1"),
            "paused: 1 of 3 failed, the last at index 0: Exited with status 1 (resume or roll back)"
        );
        lrp.rollout.as_mut().unwrap().rollback_to = None::<DefinitionId>;
        assert!(waiting_reason(&lrp, &[]).unwrap().ends_with("(resume, or update to another definition)"));
        assert_eq!(waiting_reason(&rolling("completed", &[]), &[]), None);
    }
}
