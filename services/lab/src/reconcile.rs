//! `muster-lab reconcile`: prints, as JSON, the actions of a rep for a container and its record, according to the
//! rep's reconciliation tables. Needs no cluster.

use std::path::{Path, PathBuf};

use clap::Args;
use cli_base::failure::Failure;
use cli_base::file;
use cli_base::options::Global;
use cli_base::output::Output;
use rep::reconcile::evacuation::{EvacuatingLrp, Instance};
use rep::reconcile::lrp::{self, Lrp};
use rep::reconcile::task::{self, Task};
use rep::reconcile::{Holder, Row, Step, Surprise, Verdict};
use schemas::{BadField, Refusal, spec};
use serde::Serialize;
use serde_json::{Map, Value};

/// Options of `muster-lab reconcile`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReconcileArgs {
    #[arg(
        help = "JSON: {\"container\": \"running\", \"lrp\": \"claimed_self\"}, with \"evacuating\" on an evacuating cell, \
                or {\"container\": \"completed\", \"task\": \"running_self\"}; a list for several cases; - is the standard input",
        default_value = "-",
        value_name = "FILE"
    )]
    file: PathBuf,
}

/// Input words and their values.
type WordMap<T> = &'static [(&'static str, T)];

const CONTAINERS: WordMap<lrp::Container> = &[
    ("none", lrp::Container::None),
    ("reserved", lrp::Container::Reserved),
    ("initializing", lrp::Container::Initializing),
    ("created", lrp::Container::Created),
    ("running", lrp::Container::Running),
    ("completed_crashed", lrp::Container::Crashed),
    ("completed_shutdown", lrp::Container::Shutdown),
];
const LRPS: WordMap<Instance> = &[
    ("absent", Instance::Absent),
    ("unclaimed", Instance::Unclaimed),
    ("unclaimed_with_placement_error", Instance::Unplaced),
    ("claimed_self", Instance::Claimed(Holder::Alpha)),
    ("claimed_other", Instance::Claimed(Holder::Omega)),
    ("running_self", Instance::Running(Holder::Alpha)),
    ("running_other", Instance::Running(Holder::Omega)),
    ("crashed", Instance::Crashed),
];
const TWINS: WordMap<EvacuatingLrp> = &[
    ("absent", EvacuatingLrp::Absent),
    ("running_self", EvacuatingLrp::Alpha),
    ("running_other", EvacuatingLrp::Beta),
];
const TASK_CONTAINERS: WordMap<task::Container> = &[
    ("none", task::Container::None),
    ("reserved", task::Container::Reserved),
    ("initializing", task::Container::Initializing),
    ("created", task::Container::Created),
    ("running", task::Container::Running),
    ("completed", task::Container::Completed),
];
const TASKS: WordMap<Task> = &[
    ("absent", Task::Absent),
    ("pending", Task::Pending),
    ("running_self", Task::Running(Holder::Alpha)),
    ("running_other", Task::Running(Holder::Omega)),
    ("completed_self", Task::Completed(Holder::Alpha)),
    ("completed_other", Task::Completed(Holder::Omega)),
    ("resolving_self", Task::Resolving(Holder::Alpha)),
    ("resolving_other", Task::Resolving(Holder::Omega)),
];

/// Output for one case.
#[derive(Debug, Serialize)]
struct CaseResult {
    /// Row of the reconciliation table, in the notation of Diego Dev Notes.
    row: String,
    /// `true` if Diego Dev Notes contain this row. The other rows are defined in docs/internals/model/rep.md.
    documented: bool,
    /// Degree of surprise: `expected`, `conceivable` or `inconceivable`.
    surprise: &'static str,
    /// Actions of the rep, in order.
    steps: Vec<ShownStep>,
    /// Reason that this case cannot occur. `None` if the case can occur.
    out_of_reach: Option<&'static str>,
}

/// One action of the rep.
#[derive(Debug, Serialize)]
struct ShownStep {
    step: &'static str,
    words: &'static str,
}

pub(crate) fn run(args: &ReconcileArgs, global: &Global) -> Result<(), Failure> {
    let path: &Path = &args.file;
    let value = spec::json(file::read_text(path)?.as_bytes())
        .map_err(|refusal| Failure::from(refusal).while_doing(format!("read {}", path.display())))?;
    let refused = |bad: Vec<BadField>| {
        Failure::from(Refusal::invalid(bad)).while_doing(format!("read a case from {}", path.display()))
    };
    let output = Output::new(global);
    let mut bad = vec![];
    if let Value::Array(cases) = &value {
        let mut one = |(at, case)| parse_row(case, &format!("[{at}]."), &mut bad).map(answer);
        let rows: Vec<CaseResult> = cases.iter().enumerate().filter_map(&mut one).collect();
        return if bad.is_empty() { output.write_json(&rows) } else { Err(refused(bad)) };
    }
    match parse_row(&value, "", &mut bad) {
        Some(row) => output.write_json(&answer(row)),
        None => Err(refused(bad)),
    }
}

/// Parses a case. If the case is invalid, returns `None` and adds each problem with its path to `bad`.
fn parse_row(case: &Value, path: &str, bad: &mut Vec<BadField>) -> Option<Row> {
    let Some(fields) = case.as_object() else {
        bad.push(problem(path.trim_end_matches('.'), "must be an object"));
        return None;
    };
    let of_task = fields.contains_key("task");
    let known: &[&str] = if of_task { &["container", "task"] } else { &["container", "lrp", "evacuating"] };
    for name in fields.keys().filter(|name| !known.contains(&name.as_str())) {
        bad.push(problem(
            &format!("{path}{name}"),
            format!("is not a field of a case: expected {}", known.join(", ")),
        ));
    }
    let found = if of_task {
        let container = parse_word(fields, path, "container", TASK_CONTAINERS, bad);
        let task = parse_word(fields, path, "task", TASKS, bad);
        Some(Row::Task(container?, task?))
    } else {
        let container = parse_word(fields, path, "container", CONTAINERS, bad);
        let lrp = parse_word(fields, path, "lrp", LRPS, bad);
        let twin =
            fields.contains_key("evacuating").then(|| parse_word(fields, path, "evacuating", TWINS, bad));
        process_row(container?, lrp?, twin.map_or(Some(None), |twin| twin.map(Some))?)
    };
    found.filter(|_| bad.is_empty())
}

fn process_row(container: lrp::Container, lrp: Instance, twin: Option<EvacuatingLrp>) -> Option<Row> {
    if let Some(twin) = twin {
        return Some(Row::Evacuation(container, lrp, twin));
    }
    let lrp = match lrp {
        Instance::Absent => Lrp::Absent,
        // A placement error makes a difference only while a cell evacuates.
        Instance::Unclaimed | Instance::Unplaced => Lrp::Unclaimed,
        Instance::Claimed(holder) => Lrp::Claimed(holder),
        Instance::Running(holder) => Lrp::Running(holder),
        Instance::Crashed => Lrp::Crashed,
    };
    Some(Row::Lrp(container, lrp))
}

fn parse_word<T: Copy>(
    fields: &Map<String, Value>,
    path: &str,
    name: &str,
    words: WordMap<T>,
    bad: &mut Vec<BadField>,
) -> Option<T> {
    let value = fields.get(name);
    let text = value.and_then(Value::as_str).map(str::to_lowercase);
    let found = words.iter().find(|(word, _)| Some(*word) == text.as_deref());
    if found.is_none() {
        let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let what = value.map_or_else(|| "is missing".to_owned(), |value| format!("is {value}"));
        bad.push(problem(&format!("{path}{name}"), format!("{what}: expected {}", all.join(", "))));
    }
    found.map(|(_, meaning)| *meaning)
}

fn problem(field: &str, problem: impl Into<String>) -> BadField {
    BadField { field: field.to_owned(), problem: problem.into() }
}

fn answer(row: Row) -> CaseResult {
    let Verdict { surprise, steps } = row.verdict();
    CaseResult {
        row: row.to_string(),
        documented: row.is_documented(),
        surprise: match surprise {
            Surprise::Expected => "expected",
            Surprise::Conceivable => "conceivable",
            Surprise::Inconceivable => "inconceivable",
        },
        steps: steps.iter().map(|step| ShownStep { step: name(*step), words: step.label() }).collect(),
        out_of_reach: row.unreachable_reason(),
    }
}

/// Returns the machine-readable name of a step.
const fn name(step: Step) -> &'static str {
    match step {
        Step::Claim => "claim",
        Step::Start => "start",
        Step::Crash => "crash",
        Step::RemoveLrp => "remove_lrp",
        Step::Unclaim => "unclaim",
        Step::SetEvacuating => "set_evacuating",
        Step::RemoveEvacuating => "remove_evacuating",
        Step::StartTask => "start_task",
        Step::CompleteTask => "complete_task",
        Step::FailTask => "fail_task",
        Step::Run => "run_container",
        Step::DeleteContainer => "delete_container",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse_case(case: &Value) -> Result<CaseResult, Vec<BadField>> {
        let mut bad = vec![];
        parse_row(case, "", &mut bad).map(answer).ok_or(bad)
    }

    #[test]
    fn case_returns_steps_of_its_table() {
        let steps = |case: Value| {
            let steps = parse_case(&case).unwrap().steps;
            steps.iter().map(|shown| shown.step).collect::<Vec<_>>()
        };
        assert_eq!(
            steps(json!({"container": "running", "lrp": "claimed_self"})),
            ["start", "remove_evacuating"]
        );
        assert_eq!(steps(json!({"container": "RESERVED", "lrp": "unclaimed"})), ["claim", "run_container"]);
        let moving = json!({"container": "running", "lrp": "running_self", "evacuating": "absent"});
        assert_eq!(steps(moving), ["set_evacuating", "unclaim"]);
        let done = json!({"container": "completed", "task": "running_self"});
        assert_eq!(steps(done), ["complete_task", "delete_container"]);
    }

    #[test]
    fn invalid_case_reports_problems_by_path() {
        let bad = |case: Value| {
            let bad = parse_case(&case).unwrap_err();
            bad.iter().map(|bad| format!("{}: {}", bad.field, bad.problem)).collect::<Vec<_>>()
        };
        let told = bad(json!({"container": "runing", "lrp": "crashed"}));
        assert!(told[0].starts_with("container: is \"runing\": expected none, reserved"), "{told:?}");
        let told = bad(json!({"container": "running", "colour": 1}));
        assert_eq!(told.len(), 2);
        assert!(told[0].starts_with("colour: is not a field") && told[1].starts_with("lrp: is missing"));
    }
}
