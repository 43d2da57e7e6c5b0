//! Tests of restart policies (SwarmKit orchestrators, "Restart supervisor"). A table lists crashes and their
//! outcome. Scenarios follow a process whose instances succeed, fail, are lost, are evacuated, or are
//! replaced by a rollout.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use machines::actual::{Actual, State};
use machines::crash::{self, Crash};
use machines::process::{self, Context, Process};
use proptest::prelude::*;
use schemas::container::{Epoch, Instance};
use schemas::crash::{Attempts, NoRestartReason, Restart};
use schemas::definition::{Definition, DesiredLrp, DesiredLrpUpdate};
use schemas::entry::Event;
use schemas::isolation::Isolation;
use schemas::names::{CellId, DecisionId, DefinitionId};
use schemas::policy::{Policies, RestartCondition as If, RestartPolicy, UpdateOrder};
use schemas::process::{Command, Report, ReportStep};
use schemas::stamp::Stamp;
use schemas::{Place, Timestamp, actual, limits};
use uuid::Uuid;

use crate::common::{domain, instance, lrp, net_info};

const NOW: u64 = 10_000_000;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

fn policy(condition: If, delay: Option<u32>, max_attempts: Option<u32>, window: u32) -> RestartPolicy {
    RestartPolicy {
        condition,
        delay_ms: delay.map(|delay| delay * 1_000),
        max_attempts,
        window_ms: window * 1_000,
    }
}

/// Returns the seconds until the restart or the reason for no restart, followed by the counted restarts.
fn outcome_text(policy: &RestartPolicy, crash: &Crash<'_>) -> String {
    let (restart, attempts) = crash::decide(policy, crash);
    let restart = match restart {
        Restart::Immediate => "0".to_owned(),
        Restart::At(due) => due.since(crash.at).as_secs().to_string(),
        Restart::Never(NoRestartReason::Succeeded) => "succeeded".to_owned(),
        Restart::Never(NoRestartReason::RestartDisabled) => "no restarts".to_owned(),
        Restart::Never(NoRestartReason::AttemptsExhausted) => "used up".to_owned(),
        Restart::Never(NoRestartReason::CrashLimit) => "given up".to_owned(),
    };
    let attempts = attempts.map(|Attempts { counted, allowed }| format!(", {counted} of {allowed}"));
    format!("{restart}{}", attempts.unwrap_or_default())
}

/// Each row is a crash. `ran` means RUNNING for a minute, `before` is the number of earlier crashes, and
/// `ago` lists the age of earlier restarts in seconds.
#[rustfmt::skip]
#[test]
fn crash_outcomes_match_table() {
    let ran = Some(at(NOW - 60));
    let gap = Some(at(NOW));
    for (policy,                              before, succeeded, running_since, is_starting, ago,            wanted) in [
        // The default policy is the crash policy.
        (policy(If::Any,       None, None, 0),    0,   true,  ran,  false, &[][..],           "0"),
        (policy(If::Any,       None, None, 0),    2,   false, None, false, &[],               "0"),
        (policy(If::Any,       None, None, 0),    3,   false, ran,  false, &[],               "60"),
        (policy(If::Any,       None, None, 0),    199, false, ran,  false, &[],               "960"),
        (policy(If::Any,       None, None, 0),    200, false, ran,  false, &[],               "given up"),
        // Conditions.
        (policy(If::OnFailure, None, None, 0),    0,   true,  ran,  false, &[],               "succeeded"),
        (policy(If::OnFailure, None, None, 0),    0,   false, ran,  false, &[],               "0"),
        (policy(If::None,      None, None, 0),    0,   true,  ran,  false, &[],               "no restarts"),
        (policy(If::None,      None, None, 0),    0,   false, None, false, &[],               "no restarts"),
        // Delays. An instance that never ran waits at least as long as the crash policy requires. No instance
        // starts twice within a second.
        (policy(If::Any,       Some(5), None, 0), 0,   false, ran,  false, &[],               "5"),
        (policy(If::Any,       Some(5), None, 0), 500, false, ran,  false, &[],               "5"),
        (policy(If::Any,       Some(5), None, 0), 0,   false, None, false, &[],               "5"),
        (policy(If::Any,       Some(5), None, 0), 3,   false, None, false, &[],               "60"),
        (policy(If::Any,       Some(99), None, 0), 3,  false, None, false, &[],               "99"),
        (policy(If::Any,       Some(5), None, 0), 500, false, None, false, &[],               "960"),
        (policy(If::Any,       Some(0), None, 0), 500, false, ran,  false, &[],               "0"),
        (policy(If::Any,       Some(0), None, 0), 0,   false, gap,  false, &[],               "1"),
        // Counted restarts.
        (policy(If::Any,       None, Some(2), 0), 0,   false, ran,  false, &[],               "0, 1 of 2"),
        (policy(If::Any,       None, Some(2), 0), 1,   false, ran,  false, &[9_999],          "0, 2 of 2"),
        (policy(If::Any,       None, Some(2), 0), 2,   false, ran,  false, &[9_999, 1],       "used up, 2 of 2"),
        (policy(If::OnFailure, None, Some(2), 0), 2,   true,  ran,  false, &[9_999, 1],       "succeeded, 2 of 2"),
        (policy(If::None,      None, Some(2), 0), 2,   false, ran,  false, &[9_999, 1],       "no restarts, 2 of 2"),
        (policy(If::Any,       None, Some(1), 0), 0,   false, ran,  false, &[9_999, 1],       "used up, 2 of 1"),
        (policy(If::Any,       None, Some(2), 60), 2,  false, ran,  false, &[60, 59],         "0, 2 of 2"),
        (policy(If::Any,       None, Some(2), 60), 2,  false, ran,  false, &[59, 1],          "used up, 2 of 2"),
        (policy(If::Any,       None, Some(9), 0), 200, false, ran,  false, &[],               "given up, 0 of 9"),
        (policy(If::Any,       Some(5), Some(9), 0), 200, false, ran, false, &[],             "5, 1 of 9"),
        // While a rollout starts an instance, the restart policy does not apply.
        (policy(If::None,      None, Some(1), 0), 0,   true,  ran,  true,  &[1],              "0"),
        (policy(If::OnFailure, None, Some(1), 0), 3,   true,  ran,  true,  &[1],              "60"),
        (policy(If::OnFailure, Some(5), None, 0), 0,   true,  ran,  true,  &[],               "5"),
        (policy(If::Any,       None, None, 0),    200, false, None, true,  &[],               "960"),
    ] {
        let restarts: Vec<Timestamp> = ago.iter().map(|ago| at(NOW - ago)).collect();
        let crash = Crash {
            previous_crashes: before,
            restarts: &restarts,
            running_since,
            succeeded,
            is_starting,
            at: at(NOW),
        };
        assert_eq!(outcome_text(&policy, &crash), wanted, "{policy:?} {crash:?}");
    }
}

fn any_policy() -> impl Strategy<Value = RestartPolicy> {
    let condition = prop_oneof![Just(If::Any), Just(If::OnFailure), Just(If::None)];
    let attempts = prop::option::of(1..6_u32);
    (condition, prop::option::of(0..20_u32), attempts, prop_oneof![Just(0), 1..200_u32])
        .prop_map(|(condition, delay, attempts, window)| policy(condition, delay, attempts, window))
}

proptest! {
    /// Even after many crashes, an instance is not started in a tight loop, and not more often than its
    /// policy allows.
    #[test]
    fn repeated_crashes_respect_restart_policy(
        policy in any_policy(),
        crashes in proptest::collection::vec((any::<bool>(), prop::option::of(0..400_u64)), 1..40),
    ) {
        let (mut now, mut count, mut restarts, mut starts) = (at(NOW), 0, vec![], vec![]);
        for (succeeded, runs) in crashes {
            let running_since = runs.map(|_| now);
            now = now + Duration::from_millis(runs.unwrap_or(0) * 100);
            let before = crash::count_before(count, running_since, now);
            let crash = Crash {
                previous_crashes: before,
                restarts: &restarts,
                running_since,
                succeeded,
                is_starting: false,
                at: now,
            };
            let (restart, attempts) = crash::decide(&policy, &crash);
            count = before + 1;
            prop_assert_eq!(attempts.map(|of| of.allowed), policy.max_attempts);
            let due = match restart {
                Restart::Immediate => now,
                Restart::At(due) => { prop_assert!(due > now); due }
                Restart::Never(_) => break,
            };
            prop_assert!(policy.delay().is_none_or(|delay| due >= now + delay));
            prop_assert!(policy.condition != If::None && !(policy.condition == If::OnFailure && succeeded));
            now = due;
            restarts.push(now);
            starts.push((now, running_since.is_some()));
            let window = Duration::from_millis(policy.window_ms.into());
            let recent = restarts.iter().filter(|at| window.is_zero() || now.since(**at) < window).count();
            prop_assert!(policy.max_attempts.is_none_or(|most| recent <= most as usize), "{:?}", restarts);
        }
        let failing = starts.split(|(_, ran)| *ran).map(<[_]>::len).max().unwrap_or(0);
        let quick = starts.windows(5).filter(|five| five[4].0 == five[0].0).count();
        prop_assert!(quick == 0 || failing < 5 && policy.delay().is_none(), "{:?}", starts);
    }
}

/// A process with several instances.
struct Harness {
    process: Option<Process>,
    now: Timestamp,
    absent: BTreeSet<CellId>,
    next_number: u128,
}

const CELLS: u128 = 3;

fn id(name: &str) -> DefinitionId {
    DefinitionId::new(name).unwrap()
}

fn place(index: u32, name: &str) -> Place {
    Place::new(index, id(name))
}

fn definition(memory_mb: u64) -> Arc<Definition> {
    Arc::new(Definition { memory_mb, ..(*lrp("apps", 1).definition).clone() })
}

impl Harness {
    /// Creates a process with this restart policy. All instances are running.
    fn new(instances: u32, restart: RestartPolicy) -> Self {
        Self::with(instances, Policies { restart, ..Policies::default() })
    }

    fn with(instances: u32, policies: Policies) -> Self {
        let mut scene = Self { process: None, now: at(NOW), absent: BTreeSet::new(), next_number: 0 };
        let desired = DesiredLrp {
            policies,
            definition_id: id("v1"),
            definition: definition(1),
            ..lrp("apps", instances)
        };
        scene.apply(&Command::Desire(Box::new(desired)));
        scene.settle();
        scene
    }

    fn process(&self) -> &Process {
        self.process.as_ref().unwrap()
    }

    /// Decides a command like a leader whose only data are the state from the log and its snapshots.
    fn apply(&mut self, command: &Command) -> Vec<Event> {
        self.now = self.now.next();
        let bytes = postcard::to_stdvec(&self.process).unwrap();
        self.process = postcard::from_bytes(&bytes).unwrap();
        let absent = self.absent.clone();
        let present = |cell: &CellId| !absent.contains(cell);
        let context = Context {
            now: self.now,
            is_fresh: true,
            is_present: &present,
            is_known: &|_| true,
            for_each_cell: &|_| {},
        };
        let events = process::decide(self.process.as_ref(), command, context).unwrap();
        if !events.is_empty() {
            self.next_number += 1;
            let decision = DecisionId(Uuid::from_u128(self.next_number));
            let stamp = Stamp::root(decision, self.now);
            let (guid, epoch) = (lrp("apps", 1).process_guid, Epoch(self.now));
            let process = self.process.get_or_insert_with(|| Process::new(guid, domain("apps"), epoch));
            process::evolve(process, &events, &stamp);
        }
        events
    }

    fn report(&mut self, place: &Place, by: Instance, command: actual::Command) -> Vec<Event> {
        let (epoch, observed_at) = (self.process().epoch, self.process().changed_at(place));
        let steps = vec![ReportStep::Actual(command)];
        let report = Report { domain: domain("apps"), place: place.clone(), epoch, by, observed_at, steps };
        self.apply(&Command::Report(report))
    }

    /// Claims, starts and stops instances like reps, and runs convergence, until no work is left.
    fn settle(&mut self) {
        for _ in 0..40 {
            let places: Vec<Place> = self.process().slots.iter().map(|slot| slot.place.clone()).collect();
            let acted = places.iter().filter(|place| self.act(place)).count();
            if acted + self.apply(&Command::Converge).len() == 0 {
                return;
            }
        }
        panic!("does not settle: {:#?}", self.process());
    }

    fn act(&mut self, place: &Place) -> bool {
        let Some(lrp) = self.process().actual(place).cloned() else { return false };
        let (by, command) = match lrp.state {
            State::Unclaimed { .. } => {
                self.next_number += 1;
                let mut cells = (0..CELLS).map(|cell| CellId::new(&format!("c{cell}")).unwrap());
                let Some(cell_id) = cells.find(|cell| !self.absent.contains(cell)) else { return false };
                (
                    Instance { cell_id, ..instance(self.next_number, "c0") },
                    actual::Command::Claim { placement: None },
                )
            }
            State::Claimed { by, stopping: true } | State::Running { by, stopping: true, .. } => {
                (by, actual::Command::Remove)
            }
            State::Claimed { by, .. } => {
                (by, actual::Command::Start { net: net_info(1), isolation: Isolation::NONE })
            }
            State::Running { .. } | State::Crashed { .. } => return false,
        };
        self.report(place, by, command);
        true
    }

    /// Exits the program of an instance on a cell, and returns the recorded restart.
    fn crash_with(&mut self, place: &Place, status: i32) -> (Restart, Option<Attempts>) {
        let by = self.process().actual(place).and_then(Actual::holder).unwrap().clone();
        let (reason, exit_status) = (format!("Exited with status {status}"), Some(status));
        let events = self.report(place, by, actual::Command::Crash { reason, exit_status });
        let said = events.iter().find_map(|event| {
            let Event::Actual(actual::Event::Crashed { restart, attempts, exit_status, .. }) = event else {
                return None;
            };
            assert_eq!(*exit_status, Some(status));
            Some((*restart, *attempts))
        });
        said.unwrap()
    }

    /// Advances the time and runs convergence at each due time. Each due time must cause an event.
    fn pass(&mut self, seconds: u64) {
        let until = self.now + Duration::from_secs(seconds);
        while let Some(due) = self.process().next_due().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            assert!(!self.apply(&Command::Converge).is_empty(), "due at {due:?}, but no event follows");
            self.settle();
        }
        self.now = self.now.max(until);
        self.settle();
    }

    fn lrp(&self, place: &Place) -> &Actual {
        self.process().actual(place).unwrap()
    }

    fn change(&mut self, restart: RestartPolicy) -> Vec<Event> {
        let policies = Some(Policies { restart, ..Policies::default() });
        self.apply(&Command::Update(DesiredLrpUpdate { policies, ..DesiredLrpUpdate::default() }))
    }

    fn deploy(&mut self, name: &str, memory_mb: u64) {
        self.apply(&Command::Deploy {
            update: DesiredLrpUpdate::default(),
            definition_id: id(name),
            definition: definition(memory_mb),
        });
    }

    fn status(&self) -> &'static str {
        self.process().rollout.as_ref().map_or("", |rollout| rollout.status())
    }

    /// Returns the states of all instances by index and definition.
    fn states(&self) -> Vec<String> {
        let slots = self.process().slots.iter().filter_map(|slot| Some((&slot.place, slot.actual.as_ref()?)));
        slots
            .map(|(place, lrp)| format!("{}@{} {}", place.index, place.definition_id, lrp.state_name()))
            .collect()
    }
}

const ON_FAILURE: RestartPolicy =
    RestartPolicy { condition: If::OnFailure, delay_ms: None, max_attempts: None, window_ms: 0 };
const NEVER: RestartPolicy = RestartPolicy { condition: If::None, ..ON_FAILURE };

#[test]
fn on_failure_restarts_failed_instance_but_not_succeeded_one() {
    let (mut scene, first, second) = (Harness::new(2, ON_FAILURE), place(0, "v1"), place(1, "v1"));
    assert_eq!(scene.crash_with(&first, 0), (Restart::Never(NoRestartReason::Succeeded), None));
    assert_eq!(scene.crash_with(&second, 1), (Restart::Immediate, None));
    scene.pass(86_400);
    assert_eq!(scene.states(), ["0@v1 CRASHED", "1@v1 RUNNING"]);
    let lrp = scene.lrp(&first);
    assert_eq!((lrp.restart_at(), lrp.no_restart_reason()), (None, Some(NoRestartReason::Succeeded)));
    assert_eq!(scene.process().next_due(), None, "no timer is set for it");
    // An instance that a client stops is replaced.
    scene.apply(&Command::Retire { index: 0, definition_id: None });
    scene.settle();
    assert_eq!(scene.states(), ["0@v1 RUNNING", "1@v1 RUNNING"]);
}

#[test]
fn condition_none_restarts_only_after_lost_cell_or_evacuation() {
    let (mut scene, first) = (Harness::new(1, NEVER), place(0, "v1"));
    for _ in 0..3 {
        scene.absent.insert(scene.lrp(&first).holder().unwrap().cell_id.clone());
        if scene.absent.len() == 3 {
            scene.absent.clear();
        }
        scene.settle();
        assert_eq!(
            (scene.states(), scene.lrp(&first).counted.as_ref()),
            (vec!["0@v1 RUNNING".to_owned()], None)
        );
    }
    let by = scene.lrp(&first).holder().unwrap().clone();
    scene.report(&first, by, actual::Command::Unclaim);
    scene.settle();
    assert_eq!(scene.states(), ["0@v1 RUNNING"], "an evacuation is not a crash");
    assert_eq!(scene.crash_with(&first, 1).0, Restart::Never(NoRestartReason::RestartDisabled));
    scene.pass(3_600);
    assert_eq!(scene.states(), ["0@v1 CRASHED"]);
}

#[test]
fn restart_attempts_count_within_window_and_lost_cell_does_not_count() {
    let restart =
        RestartPolicy { delay_ms: Some(5_000), max_attempts: Some(2), window_ms: 60_000, ..ON_FAILURE };
    let (mut scene, first) = (Harness::new(1, restart), place(0, "v1"));
    let attempt = |scene: &mut Harness, counted| {
        scene.pass(2);
        let due = scene.now.next() + Duration::from_secs(5);
        let of = Some(Attempts { counted, allowed: 2 });
        assert_eq!(scene.crash_with(&first, 1), (Restart::At(due), of));
        assert_eq!(scene.lrp(&first).restart_at(), Some(due), "the due time is in the log");
        scene.pass(5);
        assert_eq!(scene.states(), ["0@v1 RUNNING"]);
    };
    attempt(&mut scene, 1);
    scene.absent.insert(CellId::new("c0").unwrap());
    scene.settle();
    attempt(&mut scene, 2);
    scene.pass(60);
    attempt(&mut scene, 1);
    attempt(&mut scene, 2);
    scene.pass(2);
    let attempts_exhausted =
        (Restart::Never(NoRestartReason::AttemptsExhausted), Some(Attempts { counted: 2, allowed: 2 }));
    assert_eq!(scene.crash_with(&first, 1), attempts_exhausted);
    scene.pass(86_400);
    assert_eq!(scene.states(), ["0@v1 CRASHED"]);
}

#[test]
fn policy_change_takes_effect_at_next_crash() {
    let delay = |seconds: u32| RestartPolicy { delay_ms: Some(seconds * 1_000), ..ON_FAILURE };
    let (mut scene, first, second) = (Harness::new(2, delay(100)), place(0, "v1"), place(1, "v1"));
    scene.pass(2);
    let Restart::At(due) = scene.crash_with(&first, 1).0 else { panic!("expected a delayed restart") };
    scene.crash_with(&second, 0);
    assert_eq!(scene.change(delay(5)).len(), 1);
    scene.pass(90);
    assert_eq!(scene.states(), ["0@v1 CRASHED", "1@v1 CRASHED"]);
    assert_eq!(scene.lrp(&first).restart_at(), Some(due));
    scene.change(RestartPolicy { condition: If::Any, ..delay(5) });
    scene.pass(20);
    assert_eq!(scene.states(), ["0@v1 RUNNING", "1@v1 CRASHED"], "a declined restart stays declined");
    let wait = scene.now.next() + Duration::from_secs(5);
    assert_eq!(scene.crash_with(&first, 0).0, Restart::At(wait));
}

#[test]
fn instance_failing_before_running_waits_for_crash_policy() {
    let (mut scene, first) =
        (Harness::new(1, RestartPolicy { delay_ms: Some(0), ..ON_FAILURE }), place(0, "v1"));
    let mut waits = vec![];
    for _ in 0..12 {
        let begun = scene.now;
        if scene.lrp(&first).holder().is_none() {
            let due = scene.process().next_due().filter(|_| !scene.lrp(&first).is_unclaimed());
            scene.now = scene.now.max(due.unwrap_or(scene.now));
            scene.apply(&Command::Converge);
            scene.act(&first);
        }
        waits.push(scene.now.since(begun).as_secs());
        scene.crash_with(&first, 1);
    }
    // The instance was RUNNING for a moment before its first crash.
    assert_eq!(waits, [0, 0, 0, 0, 60, 120, 240, 480, 960, 960, 960, 960], "seconds");
}

#[test]
fn restart_policy_is_ignored_until_rollout_took_over() {
    let (mut scene, first) = (Harness::new(1, NEVER), place(0, "v1"));
    scene.deploy("v2", 2);
    let new = place(0, "v2");
    scene.act(&new);
    assert_eq!(
        scene.crash_with(&new, 1),
        (Restart::Immediate, None),
        "condition none does not apply during a \
        rollout"
    );
    assert_eq!(scene.status(), "updating");
    scene.settle();
    assert_eq!((scene.states(), scene.status()), (vec!["0@v2 RUNNING".to_owned()], "completed"));
    assert!(scene.process().actual(&first).is_none());
    assert_eq!(scene.crash_with(&new, 0).0, Restart::Never(NoRestartReason::RestartDisabled));
    scene.pass(3_600);
    // The next rollout replaces the stopped instance.
    scene.deploy("v3", 3);
    scene.settle();
    assert_eq!((scene.states(), scene.status()), (vec!["0@v3 RUNNING".to_owned()], "completed"));
}

/// A rollout completes with both orders, even if instances ended before or during the rollout and are not
/// restarted.
#[test]
fn rollout_completes_despite_instances_that_are_not_restarted() {
    for order in [UpdateOrder::StartFirst, UpdateOrder::StopFirst] {
        let mut policies = Policies { restart: ON_FAILURE, ..Policies::default() };
        policies.update.order = order;
        policies.update.delay_ms = 10_000;
        let mut scene = Harness::with(3, policies);
        scene.crash_with(&place(2, "v1"), 0);
        scene.crash_with(&place(1, "v1"), 0);
        scene.deploy("v2", 2);
        scene.settle();
        scene.crash_with(&place(0, "v2"), 0);
        scene.pass(600);
        assert_eq!(scene.states(), ["0@v2 CRASHED", "1@v2 RUNNING", "2@v2 RUNNING"], "{order:?}");
        assert_eq!(scene.status(), "completed", "{order:?}");
    }
}

/// An instance with no restarts left stays down. With stop-first, such an instance counts as missing and is
/// replaced first.
#[test]
fn stop_first_rollout_replaces_stopped_instance_first() {
    let mut policies =
        Policies { restart: RestartPolicy { max_attempts: Some(1), ..ON_FAILURE }, ..Policies::default() };
    policies.update.order = UpdateOrder::StopFirst;
    let mut scene = Harness::with(3, policies);
    let last = place(2, "v1");
    scene.crash_with(&last, 1);
    scene.settle();
    assert_eq!(scene.crash_with(&last, 1).0, Restart::Never(NoRestartReason::AttemptsExhausted));
    scene.deploy("v2", 2);
    assert_eq!(scene.states(), ["0@v1 RUNNING", "1@v1 RUNNING", "2@v2 UNCLAIMED"]);
    scene.settle();
    assert_eq!(scene.states(), ["0@v2 RUNNING", "1@v2 RUNNING", "2@v2 RUNNING"]);
    assert_eq!(scene.status(), "completed");
}

#[test]
fn remembered_restarts_are_capped() {
    let most = limits::RESTART_ATTEMPTS;
    let restart =
        RestartPolicy { delay_ms: Some(0), max_attempts: Some(most), window_ms: 1_000, ..ON_FAILURE };
    let (mut scene, first) = (Harness::new(1, restart), place(0, "v1"));
    for _ in 0..most + 20 {
        scene.pass(2);
        assert_eq!(
            scene.crash_with(&first, 1),
            (Restart::Immediate, Some(Attempts { counted: 1, allowed: most }))
        );
        scene.settle();
    }
    assert_eq!(scene.lrp(&first).restarts().len(), most as usize);
}
