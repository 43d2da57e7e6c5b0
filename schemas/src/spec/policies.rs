//! Parses the policies of a deployment, and converts them to JSON.

use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use super::compact;
use crate::fields::{Field, Fields};
use crate::limits;
use crate::policy::{
    FailureAction, Parallelism, Policies, Ratio, RestartCondition, RestartPolicy, UpdateOrder, UpdatePolicy,
};

/// Parses the fields `update`, `rollback`, `min_running`, `history_limit` and `restart`.
pub(super) fn take(fields: &mut Fields<'_>) -> Option<Policies> {
    fields.document_by::<Policies>();
    let defaults = Policies::default();
    let update = fields.with_default("update", defaults.update, |field| {
        take_update_policy(field, UpdatePolicy::default_update())
    });
    let rollback = fields.with_default("rollback", defaults.rollback, take_rollback);
    let min_running = fields.optional("min_running", |field| field.number_32(0..=limits::INSTANCES));
    let history_limit = fields.optional("history_limit", |field| field.number_32(0..=limits::HISTORY_LIMIT));
    let restart = fields.with_default("restart", defaults.restart, take_restart);
    Some(Policies {
        update: update?,
        rollback: rollback?,
        min_running: min_running?,
        history_limit: history_limit?,
        restart: restart?,
    })
}

/// Parses the policies of an update: an object with all policies. Omitted policies get their default values.
pub(super) fn take_object(field: Field<'_>) -> Option<Policies> {
    let mut fields = field.object_of::<Policies>("PoliciesSpec")?;
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
    let policy = take_update_policy(field, UpdatePolicy::default_rollback())?;
    if policy.failure_action == FailureAction::Rollback {
        problems.add(
            format!("{path}.failure_action"),
            "must be hold, pause or continue: a rollback cannot be rolled back",
        );
        return None;
    }
    Some(policy)
}

fn take_attempts(field: Field<'_>) -> Option<u32> {
    if field.value.as_f64() == Some(0.0) {
        let most = limits::RESTART_ATTEMPTS;
        return field.bad(format!("must be from 1 to {most}: for no restarts use condition = \"none\""));
    }
    field.number_32(1..=limits::RESTART_ATTEMPTS)
}

fn take_restart(field: Field<'_>) -> Option<RestartPolicy> {
    let mut fields = field.object_of::<RestartPolicy>("RestartSpec")?;
    let defaults = RestartPolicy::default();
    let condition =
        fields.with_default("condition", defaults.condition, |field| take_word(field, &CONDITIONS));
    let delay_ms = fields.optional("delay_ms", |field| field.number_32(0..=limits::RESTART_DELAY_MS));
    let max_attempts = fields.optional("max_attempts", take_attempts);
    let window_ms = fields.with_default("window_ms", defaults.window_ms, |field| {
        field.number_32(0..=limits::RESTART_WINDOW_MS)
    });
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

fn take_update_policy(field: Field<'_>, defaults: UpdatePolicy) -> Option<UpdatePolicy> {
    let mut fields = field.object_of::<UpdatePolicy>("UpdatePolicySpec")?;
    let time = |field: Field<'_>| field.number(0..=limits::DURATION_MS);
    let parallelism = fields.with_default("parallelism", defaults.parallelism, take_parallelism);
    let delay_ms = fields.with_default("delay_ms", defaults.delay_ms, time);
    let order = fields.with_default("order", defaults.order, |field| take_word(field, &ORDERS));
    let failure_action = fields
        .with_default("failure_action", defaults.failure_action, |field| take_word(field, &FAILURE_ACTIONS));
    let monitor_ms = fields.with_default("monitor_ms", defaults.monitor_ms, time);
    let max_failure_ratio = fields.with_default("max_failure_ratio", defaults.max_failure_ratio, take_ratio);
    let index_deadline_ms = fields.with_default("index_deadline_ms", defaults.index_deadline_ms, time);
    let pause_after = fields.optional("pause_after", |field| field.number_32(1..=limits::INSTANCES));
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
pub(super) fn take_word<T: Copy + JsonSchema>(field: Field<'_>, words: &[(&str, T)]) -> Option<T> {
    if field.records_type::<T>() {
        return None;
    }
    let found = field.value.as_str().and_then(|text| words.iter().find(|(word, _)| *word == text));
    if let Some((_, meaning)) = found {
        return Some(*meaning);
    }
    let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
    field.bad(format!("must be one of {}", words.join(", ")))
}

/// Parses a number of indices, or a percentage such as `"25%"`.
fn take_parallelism(field: Field<'_>) -> Option<Parallelism> {
    let percentage = |field: Field<'_>| {
        if field.records("type", "string") {
            field.records("pattern", "^([1-9][0-9]?|100)%$");
            return None;
        }
        let percentage = field.value.as_str().and_then(Parallelism::percentage);
        percentage
            .or_else(|| field.bad(r#"must be a number of indices, or a percentage from "1%" to "100%""#))
    };
    let count = |field: Field<'_>| field.number_32(1..=limits::INSTANCES).map(Parallelism::Count);
    field.either(Value::is_string, percentage, count)
}

fn take_ratio(field: Field<'_>) -> Option<Ratio> {
    if field.records_type::<Ratio>() {
        return None;
    }
    let Some(number) = field.value.as_f64() else { return field.bad("must be a number from 0 to 1") };
    match Ratio::try_from(number) {
        Ok(ratio) => Some(ratio),
        Err(problem) => field.bad(format!("{problem}, not {number}")),
    }
}

/// Converts policies to JSON that [`take`] can parse. Default values are omitted.
pub(super) fn to_json(policies: &Policies) -> Map<String, Value> {
    let defaults = Policies::default();
    let mut object = Map::new();
    if policies.update != defaults.update {
        object.insert("update".into(), update_policy_to_json(&policies.update));
    }
    if policies.rollback != defaults.rollback {
        object.insert("rollback".into(), update_policy_to_json(&policies.rollback));
    }
    if let Some(least) = policies.min_running {
        object.insert("min_running".into(), least.into());
    }
    if let Some(limit) = policies.history_limit {
        object.insert("history_limit".into(), limit.into());
    }
    if policies.restart != defaults.restart {
        object.insert("restart".into(), restart_to_json(&policies.restart));
    }
    object
}

/// Converts policies to JSON, including default values.
pub(super) fn all_to_json(policies: &Policies) -> Map<String, Value> {
    let mut object = to_json(policies);
    object.insert("update".into(), update_policy_to_json(&policies.update));
    object.insert("rollback".into(), update_policy_to_json(&policies.rollback));
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

fn update_policy_to_json(policy: &UpdatePolicy) -> Value {
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
