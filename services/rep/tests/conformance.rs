//! Tests that the reconciliation tables conform to the documents. Every row of `tests/conformance/*.csv`
//! matches the tables. All other cases of the tables are named by these tests.

use std::collections::BTreeSet;

use rep::reconcile::Holder::{Alpha, Omega};
use rep::reconcile::evacuation::{self, EvacuatingLrp, Instance};
use rep::reconcile::lrp::{self, Container, Lrp};
use rep::reconcile::task::{self, Task};
use rep::reconcile::{ContainerAction, Row, Step, Surprise, Verdict};

const RUNNING: &str = include_str!("../../../tests/conformance/rep_evacuation_running.csv");
const LRP: &str = include_str!("../../../tests/conformance/rep_lrp.csv");
const TASK: &str = include_str!("../../../tests/conformance/rep_task.csv");

const CONTAINERS: [(&str, Container); 7] = [
    ("reserved", Container::Reserved),
    ("initializing", Container::Initializing),
    ("created", Container::Created),
    ("running", Container::Running),
    ("completed_crashed", Container::Crashed),
    ("completed_shutdown", Container::Shutdown),
    ("none", Container::None),
];
const LRPS: [(&str, Lrp); 7] = [
    ("absent", Lrp::Absent),
    ("unclaimed", Lrp::Unclaimed),
    ("claimed_self", Lrp::Claimed(Alpha)),
    ("claimed_other", Lrp::Claimed(Omega)),
    ("running_self", Lrp::Running(Alpha)),
    ("running_other", Lrp::Running(Omega)),
    ("crashed", Lrp::Crashed),
];
const TASK_CONTAINERS: [(&str, task::Container); 6] = [
    ("reserved", task::Container::Reserved),
    ("initializing", task::Container::Initializing),
    ("created", task::Container::Created),
    ("running", task::Container::Running),
    ("completed", task::Container::Completed),
    ("none", task::Container::None),
];
const TASKS: [(&str, Task); 8] = [
    ("absent", Task::Absent),
    ("pending", Task::Pending),
    ("running_self", Task::Running(Alpha)),
    ("running_other", Task::Running(Omega)),
    ("completed_self", Task::Completed(Alpha)),
    ("completed_other", Task::Completed(Omega)),
    ("resolving_self", Task::Resolving(Alpha)),
    ("resolving_other", Task::Resolving(Omega)),
];
const INSTANCES: [(&str, Instance); 8] = [
    ("absent", Instance::Absent),
    ("unclaimed", Instance::Unclaimed),
    ("unclaimed_with_placement_error", Instance::Unplaced),
    ("claimed_self", Instance::Claimed(Alpha)),
    ("claimed_other", Instance::Claimed(Omega)),
    ("running_self", Instance::Running(Alpha)),
    ("running_other", Instance::Running(Omega)),
    ("crashed", Instance::Crashed),
];
const EVACUATING_LRPS: [(&str, EvacuatingLrp); 3] = [
    ("absent", EvacuatingLrp::Absent),
    ("running_self", EvacuatingLrp::Alpha),
    ("running_third", EvacuatingLrp::Beta),
];

fn rows(csv: &'static str) -> Vec<[&'static str; 3]> {
    let cells = |line: &'static str| line.split(',').collect::<Vec<_>>().try_into().expect("three columns");
    csv.lines().skip(1).map(cells).collect()
}

fn lookup<T: Copy>(words: &[(&str, T)], word: &str) -> T {
    words
        .iter()
        .find(|(name, _)| *name == word)
        .unwrap_or_else(|| panic!("unknown word in the table: {word}"))
        .1
}

fn steps(actions: &str) -> Vec<Step> {
    let step = |word: &str| match word {
        "claim" => Step::Claim,
        "start" => Step::Start,
        "crash" => Step::Crash,
        "remove_lrp" => Step::RemoveLrp,
        "unclaim" => Step::Unclaim,
        "create_evacuating" | "update_evacuating" => Step::SetEvacuating,
        "remove_evacuating" => Step::RemoveEvacuating,
        "start_task" => Step::StartTask,
        "complete_task" => Step::CompleteTask,
        "fail_task" => Step::FailTask,
        "run_container" => Step::Run,
        "delete_container" => Step::DeleteContainer,
        other => panic!("unknown step: {other}"),
    };
    if actions == "nothing" { vec![] } else { actions.split('+').map(step).collect() }
}

/// Returns every case without a row.
fn cases_without_row<A: Copy, B: Copy>(
    csv: &'static str,
    left: &[(&'static str, A)],
    right: &[(&'static str, B)],
) -> Vec<(&'static str, &'static str, A, B)> {
    let rows = rows(csv);
    let is_named = |a: &str, b: &str| rows.iter().any(|[first, second, _]| (*first, *second) == (a, b));
    let cases = left.iter().flat_map(|(a, one)| right.iter().map(|(b, two)| (*a, *b, *one, *two)));
    cases.filter(|(a, b, ..)| !is_named(a, b)).collect()
}

#[test]
fn process_rows_match_table() {
    assert_eq!(rows(LRP).len(), 44);
    for [container, actual, actions] in rows(LRP) {
        let verdict = lrp::reconcile(lookup(&CONTAINERS, container), lookup(&LRPS, actual));
        assert_eq!(verdict.steps, steps(actions), "{container} against {actual}");
    }
}

#[test]
fn process_cases_without_row_have_no_container_and_no_steps() {
    let cases = cases_without_row(LRP, &CONTAINERS, &LRPS);
    assert_eq!(cases.len(), 5);
    for (container, actual, one, two) in cases {
        assert_eq!(container, "none", "against {actual}");
        assert_eq!(lrp::reconcile(one, two).steps, [], "against {actual}");
    }
}

#[test]
fn task_rows_match_table() {
    assert_eq!(rows(TASK).len(), 43);
    for [container, record, actions] in rows(TASK) {
        let verdict = task::reconcile(lookup(&TASK_CONTAINERS, container), lookup(&TASKS, record));
        assert_eq!(verdict.steps, steps(actions), "{container} against {record}");
    }
}

#[test]
fn task_cases_without_row_have_no_container_and_no_steps() {
    let cases = cases_without_row(TASK, &TASK_CONTAINERS, &TASKS);
    assert_eq!(cases.len(), 5);
    for (container, record, one, two) in cases {
        assert_eq!(container, "none", "against {record}");
        assert_eq!(task::reconcile(one, two).steps, [], "against {record}");
    }
}

#[test]
fn evacuation_rows_of_running_containers_match_table() {
    assert_eq!(rows(RUNNING).len(), 23);
    for [instance, twin, actions] in rows(RUNNING) {
        let verdict = evacuation::running(lookup(&INSTANCES, instance), lookup(&EVACUATING_LRPS, twin));
        assert_eq!(verdict.steps, steps(actions), "{instance} with /e {twin}");
    }
}

#[test]
fn missing_evacuation_row_equals_row_without_placement_error() {
    let cases = cases_without_row(RUNNING, &INSTANCES, &EVACUATING_LRPS);
    assert_eq!(cases.len(), 1);
    assert_eq!(cases[0].2, Instance::Unplaced);
    assert_eq!(cases[0].3, EvacuatingLrp::Beta);
    assert_eq!(
        evacuation::running(Instance::Unplaced, EvacuatingLrp::Beta),
        evacuation::running(Instance::Unclaimed, EvacuatingLrp::Beta)
    );
}

/// Returns the rows of the documents.
fn documented_rows() -> Vec<Row> {
    let lrps =
        rows(LRP).into_iter().map(|[one, two, _]| Row::Lrp(lookup(&CONTAINERS, one), lookup(&LRPS, two)));
    let running = rows(RUNNING).into_iter().map(|[instance, twin, _]| {
        Row::Evacuation(Container::Running, lookup(&INSTANCES, instance), lookup(&EVACUATING_LRPS, twin))
    });
    let sentences = CONTAINERS.map(|(_, container)| container).into_iter();
    let sentences = sentences.filter(|one| !matches!(one, Container::Running | Container::None));
    let sentences = sentences.flat_map(|one| {
        INSTANCES
            .into_iter()
            .flat_map(move |(_, two)| EVACUATING_LRPS.map(|(_, three)| Row::Evacuation(one, two, three)))
    });
    let tasks = rows(TASK)
        .into_iter()
        .map(|[one, two, _]| Row::Task(lookup(&TASK_CONTAINERS, one), lookup(&TASKS, two)));
    lrps.chain(running).chain(sentences).chain(tasks).collect()
}

#[test]
fn rows_match_documents_and_have_unique_labels() {
    let told: BTreeSet<Row> = documented_rows().into_iter().collect();
    assert_eq!(told.len(), 44 + 23 + 5 * 8 * 3 + 43);
    assert_eq!(Row::all().collect::<BTreeSet<_>>(), told);
    assert_eq!(Row::all().count(), told.len(), "each once");
    let words: BTreeSet<String> = told.iter().map(Row::to_string).collect();
    assert_eq!(words.len(), told.len(), "row labels are unique");
    assert!(words.contains("RUNNING container, CLAIMED ω"), "{words:?}");
    assert!(words.contains("evacuating: RUNNING container, UNCLAIMED+ε, /e RUNNING-α"), "{words:?}");
    assert!(words.contains("task: no container, RUNNING on α"), "{words:?}");
}

#[test]
fn unreachable_rows_need_reverted_container_or_rerun_task() {
    let out: Vec<Row> = Row::all().filter(|row| row.unreachable_reason().is_some()).collect();
    let of = |row: &Row| match row {
        Row::Lrp(..) => 0,
        Row::Evacuation(..) => 1,
        Row::Task(..) => 2,
    };
    let count = |table| out.iter().filter(|row| of(row) == table).count();
    assert_eq!([count(0), count(1), count(2)], [3, 3 * (8 + 2) + 3, 4 * (3 + 1)]);
    assert!(Row::all().filter(|row| row.verdict().surprise == Surprise::Expected).all(|row| match row {
        // The three sentences give all of their cases the same degree of surprise.
        Row::Evacuation(container, ..) =>
            container != Container::Running || row.unreachable_reason().is_none(),
        Row::Lrp(..) | Row::Task(..) => row.unreachable_reason().is_none(),
    }));
}

/// Diego Dev Notes, "When the container is not Running", has three sentences instead of a table. This test
/// encodes the sentences.
#[test]
fn non_running_containers_follow_the_three_sentences() {
    for (container, word) in CONTAINERS {
        for (_, instance) in INSTANCES {
            for (_, twin) in EVACUATING_LRPS {
                let verdict = evacuation::reconcile(word, instance, twin);
                let lrp = Lrp::from(instance);
                let mine = matches!(lrp, Lrp::Claimed(Alpha) | Lrp::Running(Alpha));
                let mut want = match word {
                    Container::Reserved | Container::Initializing | Container::Created if mine => {
                        vec![Step::Unclaim, Step::DeleteContainer]
                    }
                    Container::Reserved | Container::Initializing | Container::Created => {
                        vec![Step::DeleteContainer]
                    }
                    Container::Crashed | Container::Shutdown => lrp::reconcile(word, lrp).steps.to_vec(),
                    Container::Running | Container::None => continue,
                };
                if twin == EvacuatingLrp::Alpha {
                    want.insert(0, Step::RemoveEvacuating);
                }
                assert_eq!(verdict.steps, want, "{container} against {instance:?} with /e {twin:?}");
            }
        }
    }
}

#[test]
fn only_last_step_of_row_applies_to_container() {
    let check = |verdict: Verdict| {
        let then = match verdict.container_action() {
            ContainerAction::Nothing => None,
            ContainerAction::Run => Some(Step::Run),
            ContainerAction::Delete => Some(Step::DeleteContainer),
        };
        let steps: Vec<Step> = verdict.report_steps().chain(then).collect();
        assert_eq!(steps, verdict.steps);
    };
    for (_, container) in CONTAINERS {
        LRPS.iter().for_each(|(_, lrp)| check(lrp::reconcile(container, *lrp)));
        for (_, instance) in INSTANCES {
            EVACUATING_LRPS
                .iter()
                .for_each(|(_, twin)| check(evacuation::reconcile(container, instance, *twin)));
        }
    }
    for (_, container) in TASK_CONTAINERS {
        TASKS.iter().for_each(|(_, record)| check(task::reconcile(container, *record)));
    }
}

/// The inconceivable cases of the tables are exactly the inconceivable cases of the document.
#[test]
fn inconceivable_cases_match_document() {
    let loud = |verdict: Verdict| verdict.surprise == Surprise::Inconceivable;
    let mut lrps = vec![];
    for (container, one) in CONTAINERS {
        for (record, two) in LRPS {
            if loud(lrp::reconcile(one, two)) {
                lrps.push((container, record));
            }
        }
    }
    let expected = [
        ("reserved", "running_self"),
        ("initializing", "unclaimed"),
        ("initializing", "running_self"),
        ("created", "unclaimed"),
        ("created", "running_self"),
    ];
    assert_eq!(lrps, expected);
    for (_, container) in TASK_CONTAINERS {
        for (_, record) in TASKS {
            let live = !matches!(container, task::Container::Reserved | task::Container::None);
            let elsewhere =
                matches!(record, Task::Running(Omega) | Task::Completed(Omega) | Task::Resolving(Omega));
            let inconceivable = live && (elsewhere || record == Task::Pending);
            assert_eq!(loud(task::reconcile(container, record)), inconceivable, "{container:?} {record:?}");
        }
    }
}
