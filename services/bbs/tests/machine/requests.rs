//! Idempotency: a repeated request has no further effect. A request id with other content than before is
//! refused.

use std::time::Duration;

use bbs::{ChangeRequest, Input, Reply};
use schemas::exec::Exec;
use schemas::message::{Ack, Envelope, Reports, StartExec};
use schemas::names::{ClientName, RequestId};
use schemas::quota::Quotas;
use schemas::spec::ClientCommand;
use schemas::{Code, Refusal, actual};

use crate::scene::{Fate, Scene};
use crate::words::{self, container};

pub(crate) fn scale(instances: u32) -> ClientCommand {
    words::scale("web", instances)
}

pub(crate) fn fresh(seconds: u64) -> ClientCommand {
    ClientCommand::DomainUpsert { domain: words::domain(), ttl_ms: Some(seconds * 1_000) }
}

pub(crate) fn ask(scene: &mut Scene, client: &str, id: &str, command: ClientCommand) -> Result<Ack, Refusal> {
    let envelope = Envelope { request_id: Some(RequestId::new(id).unwrap()), ..Envelope::default() };
    ask_with(scene, client, envelope, command)
}

pub(crate) fn ask_with(
    scene: &mut Scene,
    client: &str,
    envelope: Envelope,
    command: ClientCommand,
) -> Result<Ack, Refusal> {
    let client = ClientName::new(client).unwrap();
    let requester = scene.ask(0, ChangeRequest::client(words::domain(), client, envelope, command));
    match scene.answers.remove(&requester) {
        Some(Reply::Done(done)) => done,
        other => panic!("{other:?}"),
    }
}

fn code(answer: Result<Ack, Refusal>) -> Code {
    answer.unwrap_err().code
}

#[test]
fn reused_request_id_is_refused_and_ids_are_per_client() {
    let mut scene = Scene::with(1, &["c1"]);
    let first = ask(&mut scene, "ci", "r1", words::lrp("web", 1)).unwrap();
    let decisions = scene.decisions().len();
    let again = ask(&mut scene, "ci", "r1", words::lrp("web", 1)).unwrap();
    assert_eq!(again.version, first.version);
    let other_body = ask(&mut scene, "ci", "r1", words::lrp("web", 2));
    assert_eq!(other_body.unwrap_err().code, Code::RequestIdReused);
    assert_eq!(code(ask(&mut scene, "ci", "r1", scale(3))), Code::RequestIdReused, "another verb");
    assert_eq!(scene.decisions().len(), decisions, "nothing happened");
    let scaled = ask(&mut scene, "eve", "r1", scale(3)).unwrap();
    assert_eq!(scaled.version, first.version + 1);
    assert_eq!(scene.state(0, "web", 2), "UNCLAIMED");
    // A refused request is not remembered.
    assert_eq!(code(ask(&mut scene, "ci", "r2", words::lrp("web", 1))), Code::ResourceExists);
    ask(&mut scene, "ci", "r2", scale(1)).unwrap();
}

#[test]
fn restarted_bbs_remembers_request_ids() {
    let mut scene = Scene::with(1, &["c1"]);
    ask(&mut scene, "ci", "r1", words::lrp("web", 1)).unwrap();
    let refreshed = ask(&mut scene, "ci", "r1", fresh(60)).unwrap();
    scene.restart(0);
    assert_eq!(code(ask(&mut scene, "ci", "r1", scale(3))), Code::RequestIdReused);
    ask(&mut scene, "ci", "r1", words::lrp("web", 1)).unwrap();
    assert_eq!(ask(&mut scene, "ci", "r1", fresh(60)).unwrap().version, refreshed.version);
}

#[test]
fn domain_remembers_recent_request_ids() {
    let mut scene = Scene::with(1, &["c1"]);
    let first = ask(&mut scene, "ci", "r1", fresh(60)).unwrap();
    let later = ask(&mut scene, "ci", "r2", fresh(600)).unwrap();
    let again = ask(&mut scene, "ci", "r1", fresh(60)).unwrap();
    assert_eq!(again.version, first.version, "the later refresh applies");
    let expires = scene.bbs(0).world().domain(&words::domain()).unwrap().expires_at;
    assert!(expires.unwrap().since(scene.now).as_secs() > 500 && later.version > first.version);
    assert_eq!(code(ask(&mut scene, "ci", "r1", fresh(61))), Code::RequestIdReused);
    assert_eq!(scene.times("domain.refreshed.v1").len(), 2);
    for number in 0..32 {
        ask(&mut scene, "ci", &format!("n{number}"), fresh(60)).unwrap();
    }
    ask(&mut scene, "ci", "r1", fresh(61)).unwrap();
}

#[test]
fn version_conflict_error_names_both_versions() {
    let mut scene = Scene::with(1, &["c1"]);
    let expecting = |version| Envelope { expect_version: Some(version), ..Envelope::default() };
    let first = ask_with(&mut scene, "ci", expecting(0), words::lrp("web", 1)).unwrap();
    for wrong in [first.version - 1, first.version + 1] {
        let refusal = ask_with(&mut scene, "ci", expecting(wrong), scale(2)).unwrap_err();
        assert_eq!(refusal.code, Code::ResourceConflict);
        assert_eq!(
            refusal.message,
            format!("expected version {wrong}, but the current version is {}", first.version)
        );
    }
    let second = ask_with(&mut scene, "ci", expecting(first.version), scale(2)).unwrap();
    assert_eq!(second.version, first.version + 1);
}

#[test]
fn domain_requests_in_one_entry_have_separate_versions() {
    let mut scene = Scene::with(1, &["c1"]);
    scene.fate.insert("muster", Fate::Held);
    let asked: Vec<u64> = (60..64).map(|seconds| scene.client(0, fresh(seconds))).collect();
    scene.fate.clear();
    scene.release(|bytes| bytes);
    let version = |requester| match scene.answers.remove(&requester) {
        Some(Reply::Done(done)) => done.unwrap().version,
        other => panic!("{other:?}"),
    };
    assert_eq!(asked.into_iter().map(version).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(scene.journal.iter().filter(|stored| stored.subject.contains("domain")).count(), 2);
}

#[test]
fn unstored_batch_is_decided_again_in_order() {
    let mut scene = Scene::with(1, &["c1"]);
    scene.client(0, words::lrp("web", 1));
    scene.fate.insert("muster.event.lrp", Fate::Held);
    let asked: Vec<u64> = (2..6).map(|instances| scene.client(0, words::scale("web", instances))).collect();
    scene.release(|bytes| bytes);
    // The first entry is stored. The other commands share one entry, which is damaged before it reaches the
    // journal.
    scene.fate.clear();
    scene.release(|bytes| bytes.slice(..bytes.len() - 1));
    let version = |requester: &u64| {
        let Reply::Done(Ok(done)) = &scene.answers[requester] else { panic!("not done") };
        done.version
    };
    let versions: Vec<u64> = asked.iter().map(version).collect();
    assert!(versions.is_sorted_by(|one, two| one < two), "{versions:?}");
    assert_eq!(scene.state(0, "web", 4), "UNCLAIMED", "the last command counts");
}

#[test]
fn report_results_keep_message_order() {
    let mut scene = Scene::with(1, &["c1"]);
    scene.client(0, words::lrp("web", 2));
    let epoch = scene.epoch(0, "web");
    let report =
        |index, step| words::lrp_report("web", index, epoch, container(1 + u64::from(index), "c1"), step);
    let claim = || actual::Command::Claim { placement: None };
    let reports = vec![report(0, words::start()), report(7, claim()), report(1, claim())];
    let reports = Reports { folder: words::folder(1), reports };
    let requester = scene.ask(0, ChangeRequest::Cell { cell: words::cell_id("c1"), reports });
    let Some(Reply::Reported(Ok(reported))) = scene.answers.remove(&requester) else { panic!("no answer") };
    let codes: Vec<Option<Code>> =
        reported.results.iter().map(|result| result.refused.as_ref().map(|refusal| refusal.code)).collect();
    assert_eq!(codes, [None, Some(Code::ActualLrpCannotBeClaimed), None]);
    assert_eq!((scene.state(0, "web", 0), scene.state(0, "web", 1)), ("RUNNING", "CLAIMED"));
}

#[test]
fn commands_behind_refused_entry_are_decided() {
    let mut scene = Scene::with(1, &["c1"]);
    scene.fate.insert("muster", Fate::Held);
    let ask = |scene: &mut Scene, client: &str, command| {
        let (client, envelope) = (ClientName::new(client).unwrap(), Envelope::default());
        scene.ask(0, ChangeRequest::client(words::domain(), client, envelope, command))
    };
    let first = ask(&mut scene, "one", words::lrp("web", 1));
    let second = ask(&mut scene, "other", words::lrp("web", 2));
    scene.fate.clear();
    scene.refuse_held();
    let Some(Reply::Done(Err(refusal))) = scene.answers.remove(&first) else { panic!("no refusal") };
    assert_eq!(
        (refusal.code, refusal.message.as_str()),
        (Code::Unavailable, "the journal refuses the entry: no")
    );
    assert_eq!(scene.warned, [refusal.message], "the refusal is also logged for operators");
    assert!(
        matches!(scene.answers.remove(&second), Some(Reply::Done(Ok(_)))),
        "the second command is decided at once"
    );
    assert_eq!(scene.state(0, "web", 1), "UNCLAIMED");
    assert!(scene.bbs(0).pending_work().values().all(|left| *left == 0), "{:?}", scene.bbs(0).pending_work());
}

#[test]
fn command_is_refused_after_its_timeout() {
    let mut scene = Scene::with(1, &["c1"]);
    let with = |timeout_ms, id| Envelope {
        request_id: Some(RequestId::new(id).unwrap()),
        timeout_ms: Some(timeout_ms),
        ..Envelope::default()
    };
    // The journal has not confirmed an entry on the only subject, so later commands wait.
    scene.fate.insert("muster", Fate::Held);
    scene.client(0, words::lrp("other", 1));
    let ask = |scene: &mut Scene, timeout_ms, id, command| {
        let (client, envelope) = (ClientName::new("ci").unwrap(), with(timeout_ms, id));
        scene.ask(0, ChangeRequest::client(words::domain(), client, envelope, command))
    };
    let short = ask(&mut scene, 4_000, "r1", words::lrp("web", 1));
    let long = ask(&mut scene, 6_000, "r2", words::lrp("web", 2));
    scene.pass(Duration::from_secs(4));
    // The clock of the BBS is set back by an hour and continues from the earlier time.
    scene.now = scene.now - Duration::from_secs(3_600);
    scene.input(0, Input::ClockStepped(-3_600_000_000_000));
    scene.pass(Duration::from_secs(1));
    scene.fate.clear();
    scene.refuse_held();
    let Some(Reply::Done(Err(refusal))) = scene.answers.remove(&short) else { panic!("no refusal") };
    let waited = "the command waited 5.0 s in the BBS, longer than its timeout of 4.0 s";
    assert_eq!((refusal.code, refusal.message.as_str()), (Code::DeadlinePassed, waited));
    let Some(Reply::Done(Ok(done))) = scene.answers.remove(&long) else { panic!("not carried out") };
    let again = ask_with(&mut scene, "ci", with(0, "r2"), words::lrp("web", 2)).unwrap();
    assert_eq!(again.version, done.version, "a repeated request is answered even with timeout 0");
    let late = ask_with(&mut scene, "ci", with(0, "r3"), words::lrp("web", 1));
    assert_eq!(code(late), Code::DeadlinePassed);
}

fn exec(path: &str) -> ClientCommand {
    let exec = Exec { path: path.into(), ..Exec::default() };
    ClientCommand::InstanceExec {
        process_guid: words::process_guid("web"),
        index: 0,
        definition_id: None,
        exec,
    }
}

#[test]
fn exec_is_ordered_once_per_request() {
    let mut scene = Scene::with(2, &["c1"]);
    ask(&mut scene, "ci", "r1", words::lrp("web", 1)).unwrap();
    assert_eq!(code(ask(&mut scene, "ci", "r2", exec("sh"))), Code::InvalidStateTransition, "nothing runs");
    let started = words::lrp_report("web", 0, scene.epoch(0, "web"), container(1, "c1"), words::start());
    scene.report(0, "c1", started);
    let done = ask(&mut scene, "ci", "r3", exec("sh")).unwrap();
    let told = |scene: &Scene| {
        let entered = scene.entered.iter();
        entered.map(|(cell, enter)| (cell.to_string(), enter.clone())).collect::<Vec<_>>()
    };
    let enter = StartExec {
        domain: words::domain(),
        client: ClientName::new("ci").unwrap(),
        request_id: RequestId::new("r3").unwrap(),
        instance_guid: container(1, "c1").instance_guid,
        exec: Exec { path: "sh".into(), ..Exec::default() },
        exec_sessions: Quotas::default().exec_sessions,
    };
    assert_eq!(told(&scene), [("c1".to_owned(), enter)]);
    let again = ask(&mut scene, "ci", "r3", exec("sh")).unwrap();
    assert_eq!(again.version, done.version, "a repeated request is carried out once");
    assert_eq!(code(ask(&mut scene, "ci", "r3", exec("ls"))), Code::RequestIdReused);
    assert_eq!(told(&scene).len(), 1);
    assert_eq!(scene.times("actual.exec_started.v1").len(), 1);
    // Without a request id, the client could not send input to the program.
    let token = scene.client(0, exec("sh"));
    let Reply::Done(Err(refusal)) = &scene.answers[&token] else { panic!("{:?}", scene.answers[&token]) };
    assert!(refusal.to_string().contains("envelope.request_id"), "{refusal}");
}
