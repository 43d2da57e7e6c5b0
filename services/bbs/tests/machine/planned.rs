//! Planned commands. A planned command is carried out only if its aggregate has had no decision since the
//! planned position.

use std::time::Duration;

use bbs::{ChangeRequest, Reply};
use projections::RETENTION;
use schemas::message::{Ack, Envelope};
use schemas::names::{ClientName, RequestId};
use schemas::spec::ClientCommand;
use schemas::{Code, Position, Refusal, actual};

use crate::requests::{ask_with, fresh, scale};
use crate::scene::{Fate, Scene};
use crate::words;

fn planned(at: Position) -> Envelope {
    Envelope { if_position: Some(at), ..Envelope::default() }
}

fn ask(scene: &mut Scene, at: Position, command: ClientCommand) -> Result<Ack, Refusal> {
    ask_with(scene, "ci", planned(at), command)
}

fn here(scene: &Scene) -> Position {
    scene.bbs(0).world().position()
}

/// Sends a command that is planned at the current position.
fn ask_now(scene: &mut Scene, command: ClientCommand) -> Result<Ack, Refusal> {
    let at = here(scene);
    ask(scene, at, command)
}

/// Sends a command without waiting for its reply. Used while an entry is in flight (sent, but not delivered).
fn send(scene: &mut Scene, envelope: Envelope, command: ClientCommand) -> u64 {
    let client = ClientName::new("ci").unwrap();
    scene.ask(0, ChangeRequest::client(words::domain(), client, envelope, command))
}

fn answer(scene: &mut Scene, requester: u64) -> Result<Ack, Refusal> {
    match scene.answers.remove(&requester) {
        Some(Reply::Done(done)) => done,
        other => panic!("{other:?}"),
    }
}

fn assert_outdated(answer: Result<Ack, Refusal>, why: &str) {
    let refusal = answer.unwrap_err();
    assert_eq!((refusal.code, refusal.message.as_str()), (Code::ResourceConflict, why));
}

#[test]
fn change_since_plan_is_refused_with_its_position() {
    let mut scene = Scene::with(1, &["c1"]);
    let desired = ask_now(&mut scene, words::lrp("web", 2)).unwrap();
    let other = ask_now(&mut scene, words::lrp("other", 1)).unwrap();
    assert!(other.position > desired.position);
    ask(&mut scene, other.position, scale(3)).unwrap();
    // A rep's report is a change too, because the report could lead to a different plan.
    let plan = here(&scene);
    let (epoch, by) = (scene.epoch(0, "web"), words::container(1, "c1"));
    let claim = actual::Command::Claim { placement: None };
    scene.report(0, "c1", words::lrp_report("web", 0, epoch, by, claim));
    let claimed = here(&scene);
    assert!(claimed > plan);
    let why = format!(
        "process web has changed since position {plan} (its last decision is at position {claimed}): plan again"
    );
    assert_outdated(ask(&mut scene, plan, scale(4)), &why);
    assert_outdated(
        ask(&mut scene, plan, ClientCommand::LrpRemove { process_guid: words::process_guid("web") }),
        &why,
    );
    ask(&mut scene, claimed, scale(4)).unwrap();
    scene.restart(0);
    let again = ask(&mut scene, claimed, scale(5)).unwrap_err();
    assert_eq!(again.code, Code::ResourceConflict, "a restarted BBS knows it, too");
}

#[test]
fn task_created_since_plan_is_a_change() {
    let mut scene = Scene::with(1, &["c1"]);
    let plan = here(&scene);
    ask(&mut scene, plan, words::task("greet", None)).unwrap();
    assert_eq!(ask(&mut scene, plan, words::task("greet", None)).unwrap_err().code, Code::ResourceConflict);
    let greet = || words::task_guid("greet");
    scene.client(0, ClientCommand::TaskCancel { task_guid: greet() });
    scene.client(0, ClientCommand::TaskResolve { task_guid: greet() });
    assert_eq!(scene.task_state(0, "greet"), "-");
    let gone = here(&scene);
    let why = format!(
        "task greet has changed since position {plan} (its last decision is at position {gone}): plan again"
    );
    assert_outdated(ask(&mut scene, plan, words::task("greet", None)), &why);
    // After the BBS has forgotten the task, the last change of the task is unknown.
    scene.pass(RETENTION + Duration::from_secs(1));
    for number in 0..64 {
        scene.client(0, words::task(&format!("t{number}"), None));
    }
    assert!(scene.bbs(0).world().task(&greet()).is_none(), "the task is forgotten");
    let why = format!("it is unknown whether task greet existed after position {plan}: plan again");
    assert_outdated(ask(&mut scene, plan, words::task("greet", None)), &why);
    ask_now(&mut scene, words::task("greet", None)).unwrap();
}

#[test]
fn entries_in_flight_count_as_changes() {
    let mut scene = Scene::with(1, &["c1"]);
    ask_now(&mut scene, words::lrp("web", 1)).unwrap();
    let plan = here(&scene);
    scene.fate.insert("muster.event.lrp", Fate::Held);
    let flies = send(&mut scene, Envelope::default(), scale(2));
    // These commands wait and are decided as one batch.
    let late = send(&mut scene, planned(plan), scale(3));
    let first = send(&mut scene, planned(Position(plan.0 + 1)), scale(4));
    let second = send(&mut scene, planned(Position(plan.0 + 1)), scale(5));
    assert!(scene.answers.is_empty(), "{:?}", scene.answers);
    scene.fate.clear();
    scene.release(|bytes| bytes);
    assert_eq!(answer(&mut scene, flies).unwrap().position.0, plan.0 + 1);
    let why = format!(
        "process web has changed since position {plan} (its last decision is at position {}): plan again",
        plan.0 + 1
    );
    assert_outdated(answer(&mut scene, late), &why);
    answer(&mut scene, first).unwrap();
    let why = format!(
        "process web has changed since position {} (a decision about it is being recorded): plan again",
        plan.0 + 1
    );
    assert_outdated(answer(&mut scene, second), &why);
    assert_eq!((scene.state(0, "web", 3), scene.state(0, "web", 4)), ("UNCLAIMED", "-"));
}

#[test]
fn repeated_request_returns_first_version() {
    let mut scene = Scene::with(1, &["c1"]);
    let envelope = Envelope { request_id: Some(RequestId::new("r1").unwrap()), ..planned(here(&scene)) };
    let first = ask_with(&mut scene, "ci", envelope.clone(), words::lrp("web", 1)).unwrap();
    ask_now(&mut scene, scale(2)).unwrap();
    let again = ask_with(&mut scene, "ci", envelope, words::lrp("web", 1)).unwrap();
    assert_eq!(again.version, first.version);
}

#[test]
fn plan_beyond_read_position_is_unavailable() {
    let mut scene = Scene::with(1, &["c1"]);
    let next = Position(here(&scene).0 + 1);
    let refusal = ask(&mut scene, next, words::lrp("web", 1)).unwrap_err();
    assert_eq!(refusal.code, Code::Unavailable);
    let why =
        format!("this BBS has read the log up to position {}, but not up to {next}: try again", here(&scene));
    assert_eq!(refusal.message, why);
    scene.client(0, words::lrp("other", 1));
    ask(&mut scene, next, words::lrp("web", 1)).unwrap();
}

#[test]
fn domain_refresh_is_a_change() {
    let mut scene = Scene::with(1, &["c1"]);
    let plan = here(&scene);
    let refreshed = ask(&mut scene, plan, fresh(60)).unwrap();
    let why = format!(
        "domain {} has changed since position {plan} (its last decision is at position {}): plan again",
        words::domain(),
        refreshed.position
    );
    assert_outdated(ask(&mut scene, plan, fresh(90)), &why);
    ask(&mut scene, refreshed.position, fresh(90)).unwrap();
}
