//! A journal that accepts no entries: replies to clients, findings, and recovery.

use std::time::Duration;

use bbs::{Input, LogCheckError, Query, Reply};
use schemas::query::{Filter, FindingCode, ShowAnswer, StatusRow};
use schemas::{Code, Refusal};

use crate::scene::{Fate, Scene};
use crate::words;

fn refusal(scene: &Scene, requester: u64) -> Refusal {
    match scene.answers.get(&requester) {
        Some(Reply::Done(Err(refusal))) => refusal.clone(),
        answer => panic!("not refused: {answer:?}"),
    }
}

fn is_done(scene: &Scene, requester: u64) -> bool {
    matches!(scene.answers.get(&requester), Some(Reply::Done(Ok(_))))
}

/// Returns the findings about appends in the status.
fn findings(scene: &mut Scene) -> Vec<FindingCode> {
    let answer = scene.query(0, Query::Rows(projections::Query::Status(Filter::default())));
    let Reply::Rows(Ok(text)) = answer else { panic!("{answer:?}") };
    let row = serde_json::from_str::<ShowAnswer<StatusRow>>(&text).unwrap().row;
    let about = [FindingCode::AppendsFail, FindingCode::AppendsSlow];
    row.findings.into_iter().map(|finding| finding.code).filter(|code| about.contains(code)).collect()
}

/// Returns the number of logged lines that contain this text.
fn logged(scene: &Scene, text: &str) -> usize {
    scene.warned.iter().filter(|line| line.contains(text)).count()
}

#[test]
fn rejected_appends_refuse_commands_with_the_reason_until_one_is_stored() {
    let mut scene = Scene::with(1, &["c1"]);
    scene.client(0, words::lrp("web", 1));
    scene.fate.insert("muster.event", Fate::Rejected);
    let before = scene.journal.len();
    let first = scene.client(0, words::lrp("db", 1));
    scene.pass(Duration::from_millis(100));
    let late = scene.client(0, words::lrp("api", 1));
    for requester in [first, late] {
        let refusal = refusal(&scene, requester);
        assert_eq!(refusal.code, Code::Unavailable);
        let words = ["the log has accepted no entries since", "insufficient resources", "nothing was stored"];
        assert!(words.iter().all(|word| refusal.message.contains(word)), "{refusal:?}");
    }
    assert_eq!(findings(&mut scene), [FindingCode::AppendsFail]);
    scene.pass(Duration::from_secs(30));
    assert!(scene.bbs(0).leads(), "the BBS still leads and replies");
    assert_eq!(scene.journal.len(), before);
    assert_eq!([logged(&scene, "an append failed"), logged(&scene, "accepts no entries")], [1, 1]);

    scene.fate.clear();
    scene.pass(Duration::from_secs(3));
    assert_eq!(scene.journal.len(), before + 1, "a probe entry detects the recovery");
    assert_eq!((findings(&mut scene), logged(&scene, "accepts entries again")), (vec![], 1));
    let again = scene.client(0, words::lrp("db", 1));
    assert!(is_done(&scene, again) && scene.state(0, "db", 0) == "UNCLAIMED");
    assert_eq!(scene.bbs(0).pending_work()["entries in flight"], 0);
}

#[test]
fn unanswered_append_is_reported_as_unknown_and_stored_later() {
    let mut scene = Scene::with(1, &["c1"]);
    scene.fate.insert("muster.event", Fate::Lost);
    let first = scene.client(0, words::lrp("web", 1));
    let second = scene.client(0, words::lrp("db", 1));
    assert!(refusal(&scene, second).message.contains("nothing was stored"), "the append was not tried");
    assert!(!scene.answers.contains_key(&first));
    scene.pass(Duration::from_millis(5_900));
    assert!(!scene.answers.contains_key(&first), "the stream may be electing another leader");
    assert_eq!(findings(&mut scene), [FindingCode::AppendsSlow]);
    scene.pass(Duration::from_secs(2));
    let unknown = refusal(&scene, first);
    assert!(unknown.code == Code::Unavailable && unknown.message.contains("it is unknown whether"));
    assert!(!unknown.message.contains("nothing was stored"));
    scene.pass(Duration::from_secs(15));
    assert_eq!(findings(&mut scene), [FindingCode::AppendsFail]);
    // The BBS no longer leads. It still refuses commands with the reason for the failure.
    assert!(!scene.bbs(0).leads());
    let late = scene.client(0, words::lrp("api", 1));
    assert!(refusal(&scene, late).message.contains("no server responds"));

    scene.fate.clear();
    scene.pass(Duration::from_secs(5));
    assert!(scene.bbs(0).leads());
    assert_eq!(findings(&mut scene), []);
    let after = scene.client(0, words::lrp("api", 1));
    assert!(is_done(&scene, after));
    assert_eq!(scene.bbs(0).pending_work()["entries in flight"], 0);
}

#[test]
fn entry_with_unknown_outcome_is_stored_after_recovery() {
    let mut scene = Scene::with(1, &["c1"]);
    scene.fate.insert("muster.event.lrp", Fate::Lost);
    let first = scene.client(0, words::lrp("web", 1));
    scene.pass(Duration::from_secs(7));
    assert!(refusal(&scene, first).message.contains("it is unknown whether"));
    scene.fate.clear();
    scene.pass(Duration::from_secs(1));
    assert_eq!(scene.state(0, "web", 0), "UNCLAIMED");
    assert_eq!(findings(&mut scene), []);
}

#[test]
fn missing_stream_is_found_by_checks_alone() {
    let mut scene = Scene::with(1, &["c1"]);
    let absent =
        || Input::LogChecked(Err(LogCheckError { why: "the stream does not exist".into(), absent: true }));
    scene.input(0, absent());
    assert_eq!(findings(&mut scene), []);
    scene.input(0, absent());
    assert_eq!(findings(&mut scene), [FindingCode::AppendsFail]);
    let asked = scene.client(0, words::lrp("web", 1));
    assert!(refusal(&scene, asked).message.contains("the stream does not exist"));
    scene.input(0, Input::LogChecked(Ok(None)));
    assert_eq!(findings(&mut scene), []);
    let asked = scene.client(0, words::lrp("web", 1));
    assert!(is_done(&scene, asked));
}
