//! Messages of auctioneers, and how long they are valid.

use std::time::Duration;

use bbs::{ChangeRequest, Input, Reply};
use schemas::cluster::Role;
use schemas::container::{Epoch, WorkKey};
use schemas::definition::{DesiredLrp, DesiredLrpUpdate, DesiredTask, TaskDefinition};
use schemas::entry::Event;
use schemas::evaluation::{Duty, Trigger};
use schemas::isolation::Isolation;
use schemas::message::{
    Envelope, Lead, LeadershipStatus, Outcomes, PlacementOutcome, Program, ServiceStatus,
};
use schemas::names::{ClientName, ServiceId};
use schemas::preemption::{Eviction, Preemptor};
use schemas::priority::Priority;
use schemas::process::{Outcome, Unplaced};
use schemas::spec::ClientCommand;
use schemas::{ActualLrpKey, Code, Position, Timestamp, actual, task};

use crate::scene::{Fate, Scene};
use crate::words::{self, container};

fn auctioneer(name: &str) -> ServiceId {
    ServiceId::new(name).unwrap()
}

fn elect(scene: &mut Scene, name: &str, term: u64) {
    let token = scene.ask(0, ChangeRequest::Lead(Lead { id: auctioneer(name), term }));
    assert!(matches!(scene.answers[&token], Reply::Done(Ok(_))), "{:?}", scene.answers[&token]);
}

/// Reports as an auctioneer that no cell accepts the first instance of web.
fn unplaced(scene: &mut Scene, name: &str, term: u64) -> u64 {
    let process = scene.bbs(0).world().process(&words::process_guid("web")).unwrap();
    let place = fixtures::place(0, "web");
    let attempt = process.actual(&place).unwrap().since;
    let outcome = PlacementOutcome::Lrp {
        process_guid: process.guid.clone(),
        epoch: process.epoch,
        outcome: Outcome {
            evaluation: process.open_evaluation(Duty::Place).unwrap().id,
            unplaced: vec![Unplaced { place, attempt, error: "insufficient resources".into() }],
            attempts_exhausted: false,
            explanation: None,
        },
    };
    let outcomes =
        Outcomes { id: auctioneer(name), term, leases: vec![], outcomes: vec![outcome], evictions: vec![] };
    scene.ask(0, ChangeRequest::Outcomes(outcomes))
}

#[test]
fn waiting_outcome_counts_only_while_its_auctioneer_leads() {
    for (next, term, counts) in [(None, 1, 1), (Some("a2"), 2, 0), (Some("a1"), 2, 0)] {
        let mut scene = Scene::with(1, &["c1"]);
        elect(&mut scene, "a1", 1);
        scene.client(0, words::lrp("web", 1));
        // The outcome waits while an entry of the process's shard is in flight (not delivered yet).
        scene.fate.insert("muster.event.lrp", Fate::Held);
        scene.client(0, words::scale("web", 2));
        let token = unplaced(&mut scene, "a1", 1);
        if let Some(next) = next {
            elect(&mut scene, next, term);
        }
        scene.fate.clear();
        scene.release(|bytes| bytes);
        assert_eq!(scene.times("actual.placement_failed.v1").len(), counts, "then {next:?} leads");
        let Reply::Done(answer) = &scene.answers[&token] else { panic!("{:?}", scene.answers[&token]) };
        let stale = answer.as_ref().err().map(|refusal| refusal.code);
        assert_eq!(stale, next.map(|_| Code::StaleTerm), "then {next:?} leads");
    }
}

fn desire(scene: &mut Scene, name: &str, priority: u8) {
    let ClientCommand::LrpDesire(lrp) = words::lrp(name, 1) else { panic!("not a process") };
    let priority = Priority::new(priority).unwrap();
    scene.client(0, ClientCommand::LrpDesire(Box::new(DesiredLrp { priority, ..*lrp })));
}

/// Returns the key of the first instance of a process, and the time when the instance entered its state.
fn first(scene: &Scene, name: &str) -> (WorkKey, Timestamp) {
    let process = scene.bbs(0).world().process(&words::process_guid(name)).unwrap();
    let place = fixtures::place(0, name);
    let since = process.actual(&place).unwrap().since;
    let key = ActualLrpKey::new(process.guid.clone(), place);
    (WorkKey::Lrp { key, epoch: process.epoch }, since)
}

fn switch(scene: &mut Scene, on: bool) {
    let client = ClientName::new("ops").unwrap();
    let token = scene.ask(
        0,
        ChangeRequest::Cluster {
            client,
            envelope: Envelope::default(),
            command: schemas::cluster::Command::SwitchPreemption(on),
        },
    );
    assert!(matches!(scene.answers[&token], Reply::Done(Ok(_))), "{:?}", scene.answers[&token]);
}

/// Sends an eviction as the auctioneer. Returns `true` if the eviction must be sent again.
fn evict(scene: &mut Scene, eviction: &Eviction) -> bool {
    let (leases, outcomes) = (vec![], vec![]);
    let evictions = vec![eviction.clone()];
    let outcomes = Outcomes { id: auctioneer("a1"), term: 1, leases, outcomes, evictions };
    let token = scene.ask(0, ChangeRequest::Outcomes(outcomes));
    let Reply::Done(answer) = &scene.answers[&token] else { panic!("{:?}", scene.answers[&token]) };
    answer.as_ref().is_err_and(|refusal| refusal.code == Code::Unavailable)
}

/// Returns a scene with a process of priority 20 on c1, and a process of priority 80 that waits.
fn preemption_scene() -> (Scene, Eviction) {
    let mut scene = Scene::with(1, &["c1"]);
    elect(&mut scene, "a1", 1);
    desire(&mut scene, "low", 20);
    let claim = actual::Command::Claim { placement: None };
    let report = words::lrp_report("low", 0, scene.epoch(0, "low"), container(1, "c1"), claim);
    scene.report(0, "c1", report);
    desire(&mut scene, "web", 80);
    let ((victim, _), (work, attempt)) = (first(&scene, "low"), first(&scene, "web"));
    let preemptor = Preemptor { work, attempt, priority: Priority::new(80).unwrap() };
    (scene, Eviction { victim, by: container(1, "c1"), preemptor })
}

#[test]
fn preemption_stops_only_the_chosen_victims() {
    let (mut scene, right) = preemption_scene();
    let stops = |scene: &Scene| scene.times("actual.stop_requested.v1").len();
    evict(&mut scene, &right);
    assert_eq!(stops(&scene), 0, "preemption is off");
    switch(&mut scene, true);
    assert!(scene.cluster(0).preemption);
    let of = |preemptor| Eviction { preemptor, ..right.clone() };
    let known = right.preemptor.clone();
    for wrong in [
        Eviction { by: container(2, "c1"), ..right.clone() },
        of(Preemptor { priority: Priority::new(81).unwrap(), ..known.clone() }),
        of(Preemptor { attempt: Timestamp(7), ..known.clone() }),
        of(Preemptor { work: right.victim.clone(), attempt: Timestamp(7), ..known }),
    ] {
        assert!(!evict(&mut scene, &wrong), "{wrong:?}");
        assert_eq!(stops(&scene), 0, "{wrong:?}");
    }
    // The auctioneer may know an entry that this BBS has not received yet. In this case the auctioneer must
    // try again.
    let known = right.preemptor.clone();
    let (epoch, place) = (Epoch(scene.now + Duration::from_secs(1)), fixtures::place(0, "late"));
    let unheard = WorkKey::Lrp { key: ActualLrpKey::new(words::process_guid("late"), place), epoch };
    for ahead in [
        of(Preemptor { attempt: Timestamp(known.attempt.0 + 1), ..known.clone() }),
        of(Preemptor { work: unheard, ..known.clone() }),
        of(Preemptor { work: WorkKey::Task { task_guid: words::task_guid("late"), epoch }, ..known }),
    ] {
        assert!(evict(&mut scene, &ahead), "{ahead:?}");
        assert_eq!(stops(&scene), 0, "{ahead:?}");
    }
    evict(&mut scene, &right);
    evict(&mut scene, &right);
    assert_eq!(stops(&scene), 1, "the victim is stopped once");
    let all = scene.decisions();
    let decided = |so: fn(&Event) -> bool| all.iter().find(|(_, one)| one.events.iter().any(so)).unwrap();
    let (_, stopped) = decided(|event| matches!(event, Event::Actual(actual::Event::StopRequested { .. })));
    assert_eq!(stopped.reason.as_deref(), Some("preempted by web/0 (priority 80)"));
    let made = all.iter().rfind(|(_, one)| matches!(one.events[..], [Event::Desired(_), ..])).unwrap();
    assert_eq!(stopped.cause, Some(made.1.id), "the decision that created the work");
    let process = scene.bbs(0).world().process(&words::process_guid("low")).unwrap();
    let last = process.evaluations.iter().last().unwrap();
    assert_eq!((last.trigger, last.stopped, last.previous, last.next), (Trigger::Preemption, 1, None, None));
    assert_eq!(scene.stops.len(), 1, "the rep receives one stop order");
}

#[test]
fn preempted_instance_is_placed_again_after_it_ended() {
    let (mut scene, right) = preemption_scene();
    switch(&mut scene, true);
    evict(&mut scene, &right);
    let gone =
        words::lrp_report("low", 0, scene.epoch(0, "low"), container(1, "c1"), actual::Command::Remove);
    scene.report(0, "c1", gone);
    assert_eq!(scene.state(0, "low", 0), "UNCLAIMED");
    let process = scene.bbs(0).world().process(&words::process_guid("low")).unwrap();
    assert_eq!(process.open_evaluation(Duty::Place).unwrap().trigger, Trigger::Preemption);
}

#[test]
fn victim_with_priority_difference_below_ten_is_not_preempted() {
    let (mut scene, right) = preemption_scene();
    switch(&mut scene, true);
    let update = DesiredLrpUpdate { priority: Priority::new(71), ..DesiredLrpUpdate::default() };
    let process_guid = words::process_guid("low");
    scene.client(0, ClientCommand::LrpUpdate { process_guid, update, definition: None });
    evict(&mut scene, &right);
    assert!(scene.times("actual.stop_requested.v1").is_empty());
}

#[test]
fn preempted_task_completes_as_failed() {
    let (mut scene, right) = preemption_scene();
    switch(&mut scene, true);
    let ClientCommand::TaskDesire(desired) = words::task("count", None) else { panic!("not a task") };
    let priority = Priority::new(10).unwrap();
    let definition = TaskDefinition { priority, ..TaskDefinition::clone(&desired.definition) }.into();
    scene.client(0, ClientCommand::TaskDesire(Box::new(DesiredTask { definition, ..*desired })));
    let task_guid = words::task_guid("count");
    let epoch = scene.bbs(0).world().task(&task_guid).unwrap().epoch;
    let begin = task::ReportStep::Start { placement: None, isolation: Isolation::NONE };
    scene.report(0, "c1", words::task_report("count", epoch, container(3, "c1"), begin));
    let victim = WorkKey::Task { task_guid: task_guid.clone(), epoch };
    evict(&mut scene, &Eviction { victim, by: container(3, "c1"), ..right });
    let task = scene.bbs(0).world().task(&task_guid).unwrap();
    let reason = "preempted by web/0 (priority 80)".to_owned();
    assert_eq!(task.completed().unwrap().outcome, task::Outcome::Failed { reason });
    assert_eq!(task.evaluations.iter().last().unwrap().trigger, Trigger::Preemption);
    assert_eq!(scene.cancels.len(), 1, "the rep receives one cancel order");
}

#[test]
fn live_auctioneer_is_listed_with_its_position() {
    let mut scene = Scene::with(1, &["c1"]);
    assert_eq!(scene.cluster(0).services.rows.len(), 1, "the BBS itself");
    let id = auctioneer("a");
    let leadership = LeadershipStatus { position: Position(1), term: 0, leads: false };
    let program = Program { version: "1".into(), ..Program::default() };
    scene.input(
        0,
        Input::Alive(ServiceStatus {
            id: id.clone(),
            role: Role::Auctioneer,
            program: program.clone(),
            leadership,
            clock: scene.now,
            may_lead: true,
            append_problem: None,
        }),
    );
    let row = scene.cluster(0).services.rows.pop().unwrap();
    assert_eq!((row.id, row.role, row.leads, row.program), (id, Role::Auctioneer, false, program));
    assert_eq!(row.position, Position(1));
}
