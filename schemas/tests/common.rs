//! Shared test data: names, specs, and proptest strategies that generate them.

use std::sync::Arc;

use proptest::option;
use proptest::prelude::*;
use schemas::action::Secret;
use schemas::definition::{DesiredTask, Placement, TaskDefinition};
use schemas::limits;
use schemas::names::TaskGuid;

use crate::strategies::{any_action, any_name, any_priority, any_sandboxed, any_text, any_variables};

pub(crate) use fixtures::web::{container as instance, id};
pub(crate) use fixtures::{cell_id, definition, domain, lrp_key, net_info, place, run_action};

/// Generates any task that a client may desire.
pub(crate) fn any_task() -> impl Strategy<Value = DesiredTask> {
    let placement = prop_oneof![
        Just(Placement::Fail),
        (1..=limits::DURATION_MS).prop_map(|deadline_ms| Placement::Queue { deadline_ms }),
    ];
    let url = option::of("https?://[a-z]{1,9}(:[0-9]{1,4})?/[a-z?=&]{0,9}");
    let texts = (any_name(), any_name(), "[a-z/]{0,2}[a-z]{0,3}", any_text(), url);
    let when = (any_priority(), placement, 0..=limits::GRACE_MS);
    (texts, any_sandboxed(), any_variables(), any_action(), when).prop_map(
        |(texts, (constraint, sandbox), environment_variables, action, when)| {
            let (priority, placement, grace_period_ms) = when;
            DesiredTask {
                // Task guids of clients must not contain the launch mark `--`.
                task_guid: TaskGuid::new(&texts.0.replace("--", "-x")).unwrap(),
                domain: domain(&texts.1),
                definition: Arc::new(TaskDefinition {
                    constraint,
                    environment_variables,
                    action,
                    memory_mb: 1,
                    disk_mb: 0,
                    cpu_weight: 1024,
                    result_file: texts.2.trim_start_matches('/').to_owned(),
                    completion_callback_url: texts.4.map(|text| Secret::Plain(text.into())),
                    annotation: texts.3,
                    priority,
                    placement,
                    grace_period_ms,
                    sandbox: sandbox.map(Arc::new),
                }),
            }
        },
    )
}
