//! Strategies that generate processes. The tests of the crate `machines` include this file, too.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use schemas::action::{
    Action, ChecksumAlgorithm, Download, EmitProgress, Group, ResourceLimits, Run, Secret, Timeout, Try,
    Upload, Variable,
};
use schemas::attributes::AttributeName;
use schemas::definition::{Definition, DesiredLrp, DesiredLrpUpdate, Mode, Network, Sandbox};
use schemas::isolation::IsolationLayer;
use schemas::limits;
use schemas::names::{DefinitionId, PlacementTag, ProcessGuid, Stack};
use schemas::policy::{
    FailureAction, Parallelism, Policies, Ratio, RestartCondition, RestartPolicy, UpdateOrder, UpdatePolicy,
};
use schemas::priority::Priority;
use schemas::resources::Constraint;
use schemas::rules::{Affinity, Operator, Rule, Rules};

use fixtures::domain;

const USERS: &str = "([a-z]{1,8}(:[a-z]{1,8})?)?";
const LABELS: &str = "([A-Z]{1,4}(/[A-Z]{1,4})?)?";
const PATHS: &str = "[a-z.]?[a-z]{1,8}(/[a-z]{1,8})?";

/// Returns a configuration with this number of cases. Failures are printed in minimal form, and are not
/// stored in a file.
pub(crate) fn cases(count: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(count) }
}

/// Generates text without NUL.
pub(crate) fn any_text() -> impl Strategy<Value = String> {
    "[^\\x00]{0,12}"
}

pub(crate) fn any_name() -> impl Strategy<Value = String> {
    "[A-Za-z0-9_-]{1,128}"
}

pub(crate) fn any_variables() -> impl Strategy<Value = Vec<Variable>> {
    let variable =
        |(name, value): (String, String)| Variable { name: name.into(), value: Secret::Plain(value.into()) };
    btree_map("[A-Z][A-Z_]{0,8}", any_text(), 0..4)
        .prop_map(move |map| map.into_iter().map(variable).collect())
}

fn any_run() -> impl Strategy<Value = Action> {
    let more = (any::<bool>(), USERS, LABELS, option::of(1..=limits::NOFILE));
    let parts = ("[^\\x00]{1,12}", vec(any_text(), 0..3), any_text(), any_variables(), more);
    parts.prop_map(|(path, args, dir, env, (suppress_log_output, user, log_source, nofile))| {
        let resource_limits = ResourceLimits { nofile };
        Action::Run(Run { path, args, dir, env, suppress_log_output, user, log_source, resource_limits })
    })
}

fn any_url() -> impl Strategy<Value = Secret> {
    "https?://[a-z]{1,8}(:80)?/[a-z]{0,8}".prop_map(|url| Secret::Plain(url.into()))
}

fn any_download() -> impl Strategy<Value = Download> {
    let checksums = prop_oneof![
        Just((None, String::new())),
        "[0-9a-f]{32}".prop_map(|value| (Some(ChecksumAlgorithm::Md5), value)),
        "[0-9a-f]{40}".prop_map(|value| (Some(ChecksumAlgorithm::Sha1), value)),
        "[0-9a-f]{64}".prop_map(|value| (Some(ChecksumAlgorithm::Sha256), value)),
    ];
    (LABELS, any_url(), PATHS, LABELS, LABELS, USERS, checksums).prop_map(
        |(artifact, from, to, cache_key, log_source, user, (checksum_algorithm, checksum_value))| Download {
            artifact,
            from,
            to,
            cache_key,
            log_source,
            user,
            checksum_algorithm,
            checksum_value,
        },
    )
}

fn any_transfer() -> impl Strategy<Value = Action> {
    let uploads =
        (LABELS, PATHS, any_url(), LABELS, USERS).prop_map(|(artifact, from, to, log_source, user)| {
            Action::Upload(Upload { artifact, from, to, log_source, user })
        });
    prop_oneof![any_download().prop_map(Action::Download), uploads]
}

/// Generates a tree of actions within the limits.
pub(crate) fn any_action() -> impl Strategy<Value = Action> {
    prop_oneof![2 => any_run(), 1 => any_transfer()].prop_recursive(5, 40, 4, |inner| {
        let group = vec(inner.clone(), 1..4).prop_map(|actions| Group { actions });
        let one = inner.prop_map(Box::new);
        let messages = (any_text(), any_text(), any_text());
        prop_oneof![
            (one.clone(), 1..=limits::DURATION_MS)
                .prop_map(|(action, timeout_ms)| Action::Timeout(Timeout { action, timeout_ms })),
            one.clone().prop_map(|action| Action::Try(Try { action })),
            group.clone().prop_map(Action::Parallel),
            group.clone().prop_map(Action::Serial),
            group.prop_map(Action::Codependent),
            (one, messages).prop_map(|(action, (start_message, success_message, failure))| {
                Action::EmitProgress(EmitProgress {
                    action,
                    start_message,
                    success_message,
                    failure_message_prefix: failure,
                    // Kept empty, because parsing copies a log source to the actions below.
                    log_source: String::new(),
                })
            }),
        ]
    })
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let operator = proptest::sample::select(&Operator::ALL[..11]);
    (any_name(), operator, any_name()).prop_map(|(name, operator, value)| {
        let value = if matches!(operator, Operator::IsSet | Operator::IsNotSet) {
            String::new()
        } else if operator == Operator::Version {
            format!(">= {}", value.len())
        } else {
            value
        };
        let attribute = AttributeName::new(&name.chars().take(64).collect::<String>()).ok();
        Rule { attribute, operator, value: value.into() }
    })
}

fn any_rules() -> impl Strategy<Value = Rules> {
    let weight = (1..=100_i8, any::<bool>()).prop_map(|(weight, less)| if less { -weight } else { weight });
    let affinity = (any_rule(), weight).prop_map(|(rule, weight)| Affinity { rule, weight });
    (vec(any_rule(), 0..3), vec(affinity, 0..3)).prop_map(|(constraints, affinities)| Rules {
        constraints,
        affinities,
        spread: vec![],
    })
}

fn any_constraint() -> impl Strategy<Value = Constraint> {
    let tags = btree_set(any_name().prop_map(|tag| PlacementTag::new(&tag).unwrap()), 0..3);
    let stack = option::of(any_name().prop_map(|stack| Stack::new(&stack).unwrap()));
    let walls = btree_set(proptest::sample::select(&IsolationLayer::ALL[..]), 0..4);
    (stack, tags, walls, option::of(any_rules())).prop_map(|(stack, placement_tags, isolation, rules)| {
        let rules = rules.filter(|rules| !rules.is_empty()).map(Box::new);
        Constraint { stack, placement_tags, isolation, rules }
    })
}

/// Generates a constraint and a sandbox that match each other.
pub(crate) fn any_sandboxed() -> impl Strategy<Value = (Constraint, Option<Sandbox>)> {
    let roots = prop_oneof![Just(""), Just("/srv/root"), Just("oci:/srv/image:1.2"), Just("preloaded:linux")];
    let networks = prop_oneof![Just(Network::Host), Just(Network::None)];
    let dependencies = (vec(any_download(), 0..3), USERS).prop_map(|(all, user)| {
        all.into_iter().map(|one| Download { user: user.clone(), ..one }).collect::<Vec<_>>()
    });
    let labels = (LABELS, LABELS, LABELS);
    let sandboxes = (roots, networks, dependencies, labels).prop_map(
        |(root_fs, network, cached_dependencies, (log_guid, log_source, metrics_guid))| {
            let root_fs = root_fs.to_owned();
            let sandbox =
                Sandbox { root_fs, network, cached_dependencies, log_guid, log_source, metrics_guid };
            (sandbox != Sandbox::default()).then_some(sandbox)
        },
    );
    (any_constraint(), sandboxes).prop_map(|(mut constraint, sandbox)| {
        let walled = |sandbox: &&Sandbox| !sandbox.root_fs.is_empty() || sandbox.network != Network::Host;
        constraint.isolation.extend(sandbox.as_ref().filter(walled).map(|_| IsolationLayer::Files));
        let stack = sandbox.as_ref().and_then(|sandbox| sandbox.root_fs.strip_prefix("preloaded:"));
        constraint.stack = constraint.stack.or(stack.map(|stack| Stack::new(stack).unwrap()));
        (constraint, sandbox)
    })
}

/// Generates JSON without NUL, as compact text in the form in which routes are stored.
fn any_json() -> impl Strategy<Value = String> {
    use serde_json::Value;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any_text().prop_map(Value::from),
    ];
    let tree = leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            btree_map(any_text(), inner, 0..3).prop_map(|map| map.into_iter().collect()),
        ]
    });
    tree.prop_map(|value: Value| value.to_string())
}

fn any_routes() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map(any_text(), any_json(), 0..3)
}

fn any_definition() -> impl Strategy<Value = Definition> {
    let ports = btree_set(1..=u16::MAX, 0..4).prop_map(|ports| ports.into_iter().collect());
    let actions = (option::of(any_action()), any_action(), option::of(any_action()));
    let sizes = (0..=limits::RESOURCE_MB, 0..=limits::RESOURCE_MB, 0..=limits::CPU_WEIGHT);
    let times = (0..=limits::DURATION_MS, 0..=limits::GRACE_MS);
    (any_sandboxed(), any_variables(), actions, sizes, times, ports).prop_map(
        |((constraint, sandbox), environment_variables, actions, sizes, times, ports)| Definition {
            constraint: constraint.into(),
            environment_variables,
            setup: actions.0.map(Arc::new),
            monitor: actions.2.map(Arc::new),
            start_timeout_ms: times.0,
            memory_mb: sizes.0,
            disk_mb: sizes.1,
            cpu_weight: sizes.2,
            ports,
            grace_period_ms: times.1,
            sandbox: sandbox.map(Arc::new),
            ..Definition::new(actions.1)
        },
    )
}

pub(crate) fn any_priority() -> impl Strategy<Value = Priority> {
    (limits::MIN_PRIORITY..=limits::MAX_PRIORITY).prop_map(|number| Priority::new(number).unwrap())
}

/// Generates any process that a client may desire.
pub(crate) fn any_lrp() -> impl Strategy<Value = DesiredLrp> {
    let names = (any_name(), any_name(), option::of(any_name()));
    let sides = (any_priority(), any_routes(), any_text(), any_policies());
    // A global process has no instance count, because the cells determine it.
    let instances = option::weighted(0.8, 1..=limits::INSTANCES);
    (names, instances, sides, any_definition()).prop_map(
        |(
            (guid, domain_name, definition_id),
            instances,
            (priority, routes, annotation, policies),
            definition,
        )| {
            DesiredLrp {
                process_guid: ProcessGuid::new(&guid).unwrap(),
                domain: domain(&domain_name),
                mode: instances.map_or(Mode::Global, |_| Mode::Replicated),
                instances: instances.unwrap_or(0),
                priority,
                routes,
                annotation,
                policies,
                definition_id: DefinitionId::new(definition_id.as_ref().unwrap_or(&guid)).unwrap(),
                definition: Arc::new(definition),
            }
        },
    )
}

/// Generates any change to a process.
pub(crate) fn any_update() -> impl Strategy<Value = DesiredLrpUpdate> {
    let parts = (
        option::of(0..=limits::INSTANCES),
        option::of(any_priority()),
        option::of(any_routes()),
        option::of(any_text()),
        option::of(any_policies()),
    );
    parts.prop_map(|(instances, priority, routes, annotation, policies)| DesiredLrpUpdate {
        instances,
        priority,
        routes,
        annotation,
        policies,
    })
}

/// Generates any update policy.
pub(crate) fn any_update_policy() -> impl Strategy<Value = UpdatePolicy> {
    let parallelism = prop_oneof![
        (1..=limits::INSTANCES).prop_map(Parallelism::Count),
        (1..=100_u8).prop_map(Parallelism::Percent),
    ];
    let order = prop_oneof![2 => Just(UpdateOrder::StartFirst), 1 => Just(UpdateOrder::StopFirst)];
    let action = prop_oneof![
        Just(FailureAction::Hold),
        Just(FailureAction::Pause),
        Just(FailureAction::Continue),
        Just(FailureAction::Rollback),
    ];
    let ratio = (0..=1_000_000_u32).prop_map(|part| Ratio::try_from(f64::from(part) / 1e6).unwrap());
    let times = (0..=limits::DURATION_MS, 0..=limits::DURATION_MS, 0..=limits::DURATION_MS);
    let pause_after = option::of(1..=limits::INSTANCES);
    (parallelism, order, action, ratio, times, pause_after).prop_map(
        |(parallelism, order, failure_action, max_failure_ratio, times, pause_after)| UpdatePolicy {
            parallelism,
            delay_ms: times.0,
            order,
            failure_action,
            monitor_ms: times.1,
            max_failure_ratio,
            index_deadline_ms: times.2,
            pause_after,
        },
    )
}

/// Generates any policies that a client may set.
pub(crate) fn any_policies() -> impl Strategy<Value = Policies> {
    let history = option::of(0..=limits::HISTORY_LIMIT);
    (any_update_policy(), any_update_policy(), history, any_restart_policy()).prop_map(
        |(update, rollback, history_limit, restart)| {
            let rollback = match rollback.failure_action {
                FailureAction::Rollback => UpdatePolicy { failure_action: FailureAction::Pause, ..rollback },
                FailureAction::Hold | FailureAction::Pause | FailureAction::Continue => rollback,
            };
            Policies { update, rollback, min_running: Some(0), history_limit, restart }
        },
    )
}

fn any_restart_policy() -> impl Strategy<Value = RestartPolicy> {
    let condition = prop_oneof![
        Just(RestartCondition::Any),
        Just(RestartCondition::OnFailure),
        Just(RestartCondition::None)
    ];
    let delay = option::of(0..=limits::RESTART_DELAY_MS);
    let attempts = option::of(1..=limits::RESTART_ATTEMPTS);
    (condition, delay, attempts, 0..=limits::RESTART_WINDOW_MS).prop_map(
        |(condition, delay_ms, max_attempts, window_ms)| {
            let policy = RestartPolicy { condition, delay_ms, max_attempts, window_ms };
            let window_ms = if policy.fault().is_some() { 0 } else { window_ms };
            RestartPolicy { window_ms, ..policy }
        },
    )
}
