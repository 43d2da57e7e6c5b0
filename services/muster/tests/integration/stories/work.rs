//! Work of a story's containers as shell programs, and its requests as files.

use std::time::Duration;

use schemas::names::Domain;
use serde_json::{Value, json};
use simulation::work::{Ask, Work};

/// Shorter create and start times are not imitated, because real containers take some time anyway.
const NEGLIGIBLE: Duration = Duration::from_millis(500);
/// Seconds of sleep that exceed any test.
const ENDLESS_SECONDS: &str = "100000";

/// Returns the body of a request. The body is that of the simulator, but its programs really run.
pub(super) fn spec(ask: &Ask, domain: &Domain, owner: &str) -> Value {
    let mut spec = ask.command(domain).body();
    match ask {
        Ask::Desire { work, .. } | Ask::DesireGlobal { work, .. } => {
            spec["action"] = run(&script(work, false));
            spec["setup"] = setup(work);
        }
        Ask::Periodic { work, .. } | Ask::Parameterised { work, .. } => spec["action"] = task_action(work),
        Ask::Run { work, owner: called, .. } => {
            spec["action"] = task_action(work);
            if !spec["completion_callback_url"].is_null() {
                spec["completion_callback_url"] = format!("{owner}/{}", called.name()).into();
            }
        }
        Ask::Deploy { work, .. } => {
            spec["definition"]["action"] = run(&script(work, false));
            spec["definition"]["setup"] = setup(work);
        }
        Ask::Scale { .. }
        | Ask::Rank { .. }
        | Ask::Policy { .. }
        | Ask::Activate(..)
        | Ask::Restart(_)
        | Ask::Steer(..)
        | Ask::Describe { .. }
        | Ask::Remove(_)
        | Ask::Retire(..)
        | Ask::Enter(..)
        | Ask::Cancel(_)
        | Ask::Resolve(_)
        | Ask::OfPeriodic(..)
        | Ask::Dispatch { .. }
        | Ask::Withdraw(..)
        | Ask::RemoveParameterised(_)
        | Ask::Fresh(_) => {}
    }
    spec
}

/// Returns the body in the form of a file, in which the fields of a definition and the policies are on the
/// top level.
pub(super) fn file(ask: &Ask, domain: &Domain, owner: &str) -> Value {
    let mut spec = spec(ask, domain, owner);
    if let Ask::Deploy { .. } = ask {
        spec["domain"] = domain.as_str().into();
        let fields = spec.as_object_mut().unwrap();
        let parts = ["definition", "policies"].map(|part| fields.remove(part).unwrap_or_default());
        parts.into_iter().for_each(|part| fields.extend(part.as_object().cloned().unwrap_or_default()));
    }
    spec
}

/// Returns the action of a task: its setup, if there is one, and then its work.
fn task_action(work: &Work) -> Value {
    let (setup, run) = (setup(work), run(&script(work, true)));
    if setup.is_null() { run } else { json!({"serial": {"actions": [setup, run]}}) }
}

fn run(script: &str) -> Value {
    json!({"run": {"path": "sh", "args": ["-c", script]}})
}

/// Returns a setup that takes the time until the instance is healthy. The instance is CLAIMED for this time.
fn setup(work: &Work) -> Value {
    let time = work.create + work.start;
    if work.fails {
        json!({"run": {"path": "/nonexistent/program"}})
    } else if work.hangs {
        run(&format!("sleep {ENDLESS_SECONDS}"))
    } else if time > NEGLIGIBLE {
        run(&format!("sleep {}", time.as_secs_f64()))
    } else {
        Value::Null
    }
}

fn script(work: &Work, is_task: bool) -> String {
    let mut script = String::new();
    if work.ignores_term {
        script += "trap '' TERM; ";
    }
    match (work.run, is_task) {
        (Some(time), _) => script += &format!("sleep {}; ", time.as_secs_f64()),
        (None, true) => {}
        (None, false) => script += &format!("sleep {ENDLESS_SECONDS}; "),
    }
    // A successful task has a result, which may be empty.
    if is_task && work.exit == 0 {
        script += &format!("printf %s '{}' > result; ", work.result.replace('\'', "'\\''"));
    }
    script + &format!("exit {}", work.exit)
}
