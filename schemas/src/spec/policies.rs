//! Parses the policies of a deployment, and converts them to JSON.

use serde_json::{Map, Value, json};

use super::compact;
use crate::fields::{Field, Fields};
use crate::limits;
use crate::policy::{
    FailureAction, Parallelism, Policies, Ratio, RestartCondition, RestartPolicy, UpdateOrder, UpdatePolicy,
};

/// Parses the fields `update`, `rollback`, `min_running`, `history_limit` and `restart`.
pub(super) fn take(fields: &mut Fields<'_>) -> Option<Policies> {
    let usual = Policies::default();
    let update = fields.or("update", usual.update, |field| take_one(field, UpdatePolicy::of_update()));
    let rollback = fields.or("rollback", usual.rollback, take_rollback);
    let min_running = fields.may("min_running", |field| field.number_32(0..=limits::INSTANCES));
    let history_limit = fields.may("history_limit", |field| field.number_32(0..=limits::HISTORY_LIMIT));
    let restart = fields.or("restart", usual.restart, take_restart);
    Some(Policies {
        update: update?,
        rollback: rollback?,
        min_running: min_running?,
        history_limit: history_limit?,
        restart: restart?,
    })
}

/// Parses the policies of an update: an object with all policies. Omitted policies get their default values.
pub(super) fn take_all(field: Field<'_>) -> Option<Policies> {
    let mut fields = field.object()?;
    let policies = take(&mut fields);
    fields.finish(&[]);
    policies
}

/// Checks the policies against the number of instances, and reports a conflict.
pub(super) fn check(policies: &Policies, instances: u32, fields: &Fields<'_>) {
    if let Some(problem) = policies.fault(instances) {
        fields.bad("min_running", problem);
    }
}

fn take_rollback(field: Field<'_>) -> Option<UpdatePolicy> {
    let problems = field.problems;
    let path = field.path.clone();
    let policy = take_one(field, UpdatePolicy::of_rollback())?;
    if policy.failure_action == FailureAction::Rollback {
        problems.note(
            format!("{path}.failure_action"),
            "must be hold, pause or continue: a rollback is not rolled back",
        );
        return None;
    }
    Some(policy)
}

fn take_attempts(field: Field<'_>) -> Option<u32> {
    if field.value.as_u64() == Some(0) {
        let most = limits::RESTART_ATTEMPTS;
        return field.bad(format!("must be from 1 to {most}: for no restarts use condition = \"none\""));
    }
    field.number_32(1..=limits::RESTART_ATTEMPTS)
}

fn take_restart(field: Field<'_>) -> Option<RestartPolicy> {
    let mut fields = field.object()?;
    let usual = RestartPolicy::default();
    let condition = fields.or("condition", usual.condition, |field| take_word(field, &CONDITIONS));
    let delay_ms = fields.may("delay_ms", |field| field.number_32(0..=limits::RESTART_DELAY_MS));
    let max_attempts = fields.may("max_attempts", take_attempts);
    let window_ms =
        fields.or("window_ms", usual.window_ms, |field| field.number_32(0..=limits::RESTART_WINDOW_MS));
    let policy = match (condition, delay_ms, max_attempts, window_ms) {
        (Some(condition), Some(delay_ms), Some(max_attempts), Some(window_ms)) => {
            Some(RestartPolicy { condition, delay_ms, max_attempts, window_ms })
        }
        (..) => None,
    };
    if let Some(problem) = policy.as_ref().and_then(RestartPolicy::fault) {
        fields.bad("window_ms", problem);
    }
    fields.finish(&[]);
    policy
}

fn take_one(field: Field<'_>, usual: UpdatePolicy) -> Option<UpdatePolicy> {
    let mut fields = field.object()?;
    let time = |field: Field<'_>| field.number(0..=limits::DURATION_MS);
    let parallelism = fields.or("parallelism", usual.parallelism, take_parallelism);
    let delay_ms = fields.or("delay_ms", usual.delay_ms, time);
    let order = fields.or("order", usual.order, |field| take_word(field, &ORDERS));
    let failure_action =
        fields.or("failure_action", usual.failure_action, |field| take_word(field, &FAILURE_ACTIONS));
    let monitor_ms = fields.or("monitor_ms", usual.monitor_ms, time);
    let max_failure_ratio = fields.or("max_failure_ratio", usual.max_failure_ratio, take_ratio);
    let index_deadline_ms = fields.or("index_deadline_ms", usual.index_deadline_ms, time);
    let pause_after = fields.may("pause_after", |field| field.number_32(1..=limits::INSTANCES));
    fields.finish(&[]);
    Some(UpdatePolicy {
        parallelism: parallelism?,
        delay_ms: delay_ms?,
        order: order?,
        failure_action: failure_action?,
        monitor_ms: monitor_ms?,
        max_failure_ratio: max_failure_ratio?,
        index_deadline_ms: index_deadline_ms?,
        pause_after: pause_after?,
    })
}

const ORDERS: [(&str, UpdateOrder); 2] =
    [("start-first", UpdateOrder::StartFirst), ("stop-first", UpdateOrder::StopFirst)];
const CONDITIONS: [(&str, RestartCondition); 3] = [
    ("any", RestartCondition::Any),
    ("on-failure", RestartCondition::OnFailure),
    ("none", RestartCondition::None),
];
const FAILURE_ACTIONS: [(&str, FailureAction); 4] = [
    ("hold", FailureAction::Hold),
    ("pause", FailureAction::Pause),
    ("continue", FailureAction::Continue),
    ("rollback", FailureAction::Rollback),
];

/// Parses one of several words.
pub(super) fn take_word<T: Copy>(field: Field<'_>, words: &[(&str, T)]) -> Option<T> {
    let found = field.value.as_str().and_then(|text| words.iter().find(|(word, _)| *word == text));
    if let Some((_, meaning)) = found {
        return Some(*meaning);
    }
    let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
    field.bad(format!("must be one of {}", words.join(", ")))
}

/// Parses a number of indices, or a percentage such as `"25%"`.
fn take_parallelism(field: Field<'_>) -> Option<Parallelism> {
    if let Some(text) = field.value.as_str() {
        return match Parallelism::percentage(text) {
            Some(percentage) => Some(percentage),
            None => field.bad(r#"must be a number of indices, or a percentage from "1%" to "100%""#),
        };
    }
    field.number_32(1..=limits::INSTANCES).map(Parallelism::Count)
}

fn take_ratio(field: Field<'_>) -> Option<Ratio> {
    let Some(number) = field.value.as_f64() else { return field.bad("must be a number from 0 to 1") };
    match Ratio::try_from(number) {
        Ok(ratio) => Some(ratio),
        Err(problem) => field.bad(format!("{problem}, and is {number}")),
    }
}

/// Converts policies to JSON that [`take`] can parse. Default values are omitted.
pub(super) fn to_json(policies: &Policies) -> Map<String, Value> {
    let usual = Policies::default();
    let mut object = Map::new();
    if policies.update != usual.update {
        object.insert("update".into(), one_to_json(&policies.update));
    }
    if policies.rollback != usual.rollback {
        object.insert("rollback".into(), one_to_json(&policies.rollback));
    }
    if let Some(least) = policies.min_running {
        object.insert("min_running".into(), least.into());
    }
    if let Some(limit) = policies.history_limit {
        object.insert("history_limit".into(), limit.into());
    }
    if policies.restart != usual.restart {
        object.insert("restart".into(), restart_to_json(&policies.restart));
    }
    object
}

/// Converts policies to JSON, including default values.
pub(super) fn all_to_json(policies: &Policies) -> Map<String, Value> {
    let mut object = to_json(policies);
    object.insert("update".into(), one_to_json(&policies.update));
    object.insert("rollback".into(), one_to_json(&policies.rollback));
    object.insert("restart".into(), restart_to_json(&policies.restart));
    object
}

fn restart_to_json(policy: &RestartPolicy) -> Value {
    compact(json!({
        "condition": policy.condition,
        "delay_ms": policy.delay_ms,
        "max_attempts": policy.max_attempts,
        "window_ms": policy.window_ms,
    }))
}

fn one_to_json(policy: &UpdatePolicy) -> Value {
    compact(json!({
        "parallelism": policy.parallelism,
        "delay_ms": policy.delay_ms,
        "order": policy.order,
        "failure_action": policy.failure_action,
        "monitor_ms": policy.monitor_ms,
        "max_failure_ratio": policy.max_failure_ratio,
        "index_deadline_ms": policy.index_deadline_ms,
        "pause_after": policy.pause_after,
    }))
}
