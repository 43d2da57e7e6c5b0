//! Answers without an entry. Such an answer is sent only after a read from the journal's leader has confirmed
//! that the answer is based on the subject's last entry.

use std::time::Duration;

use bbs::{ChangeRequest, Effect, Input, Reply};
use schemas::message::Envelope;
use schemas::names::ClientName;
use schemas::spec::ClientCommand;
use schemas::{Code, Refusal};

use crate::scene::Scene;
use crate::words;

fn refusal(scene: &Scene, requester: u64) -> &Refusal {
    match scene.answers.get(&requester) {
        Some(Reply::Done(Err(refusal))) => refusal,
        other => panic!("{other:?}"),
    }
}

/// Returns two BBSs. The first BBS was paused during the election of the second. The scene delivers no
/// entries to either BBS for now.
fn two_leaders() -> Scene {
    let mut scene = Scene::with(2, &["c1"]);
    let paused = scene.bbs[0].take();
    scene.pass(Duration::from_secs(5));
    scene.bbs[0] = paused;
    assert!(scene.bbs(0).leads() && scene.bbs(1).leads());
    assert_eq!(scene.leading, [(0, true), (1, true)]);
    scene.lagging = [0, 1].into();
    scene
}

#[test]
fn new_leader_holds_refusals_until_it_has_acknowledged_entries() {
    let mut scene = two_leaders();
    let desired = scene.client(0, words::lrp("web", 1));
    scene.catch_up(0);
    assert!(matches!(scene.answers[&desired], Reply::Done(Ok(_))), "{:?}", scene.answers[&desired]);
    // The new leader has not received the entry of the first BBS.
    let scaled = scene.client(1, words::scale("web", 3));
    let desired = scene.client(1, words::lrp("web", 1));
    assert!(!scene.answers.contains_key(&scaled), "{:?}", scene.answers[&scaled]);
    scene.catch_up(1);
    assert!(matches!(scene.answers[&scaled], Reply::Done(Ok(_))), "{:?}", scene.answers[&scaled]);
    assert_eq!(refusal(&scene, desired).code, Code::ResourceExists);
    assert_eq!(scene.state(1, "web", 2), "UNCLAIMED");
}

#[test]
fn only_leader_publishes_valid_entries() {
    let mut scene = Scene::with(2, &["c1"]);
    scene.published.clear();
    scene.client(0, words::lrp("web", 1));
    scene.write_invalid("muster.event.cell.c1", b"garbage");
    scene.client(0, words::scale("web", 3));
    let first: Vec<(usize, u64)> =
        scene.published.iter().map(|(node, position, _)| (*node, position.0)).collect();
    let end = scene.journal.len() as u64;
    assert_eq!(first, [(0, end - 2), (0, end)], "invalid entries are not published");
    scene.bbs[0] = None;
    scene.pass(Duration::from_secs(5));
    let elected = scene.published.iter().find(|(node, ..)| *node == 1).expect("the new leader publishes");
    assert_eq!(elected.1.0, end + 1, "starting with its own election");
}

#[test]
fn deposed_leader_sends_no_refusal_from_outdated_world() {
    let mut scene = two_leaders();
    let desired = scene.client(1, words::lrp("web", 1));
    scene.catch_up(1);
    assert!(matches!(scene.answers[&desired], Reply::Done(Ok(_))), "{:?}", scene.answers[&desired]);
    let scaled = scene.client(0, words::scale("web", 3));
    assert!(!scene.answers.contains_key(&scaled), "{:?}", scene.answers[&scaled]);
    scene.catch_up(0);
    assert_eq!(refusal(&scene, scaled).code, Code::Unavailable, "the first BBS no longer leads");
    assert_eq!(scene.leading.last(), Some(&(0, false)));
}

#[test]
fn leader_without_deliveries_refuses_and_steps_down() {
    let mut scene = two_leaders();
    scene.client(1, words::lrp("web", 1));
    let scaled = scene.client(0, words::scale("web", 3));
    scene.pass(Duration::from_millis(1_400));
    assert!(!scene.answers.contains_key(&scaled));
    scene.pass(Duration::from_millis(200));
    assert_eq!(refusal(&scene, scaled).code, Code::Unavailable);
    assert!(scene.bbs(0).leads());
    scene.pass(Duration::from_secs(10));
    assert!(!scene.bbs(0).leads());
}

#[test]
fn unreadable_journal_makes_answers_unavailable() {
    let mut scene = Scene::with(1, &["c1"]);
    scene.is_unreadable = true;
    let first = scene.client(0, words::scale("web", 3));
    let second = scene.client(0, words::scale("web", 3));
    scene.pass(Duration::from_secs(2));
    assert_eq!(refusal(&scene, first).code, Code::Unavailable);
    // A command that arrived during the confirmation waits for its own confirmation, which succeeds.
    scene.is_unreadable = false;
    scene.pass(Duration::from_secs(1));
    assert_eq!(refusal(&scene, second).code, Code::ResourceNotFound);
    let again = scene.client(0, words::scale("web", 3));
    assert_eq!(refusal(&scene, again).code, Code::ResourceNotFound);
    assert!(scene.bbs(0).leads(), "a leader without entries in flight keeps leading");
}

#[test]
fn one_read_per_subject_confirms_all_held_answers() {
    let mut scene = Scene::with(1, &["c1"]);
    let before = scene.reads;
    let now = scene.now;
    let bbs = scene.bbs[0].as_mut().unwrap();
    let ask = |client: usize, command: ClientCommand| {
        let client = ClientName::new(&format!("client{client}")).unwrap();
        ChangeRequest::client(words::domain(), client, Envelope::default(), command)
    };
    for requester in 0..200 {
        let command = words::scale(&format!("absent{requester}"), 1);
        assert!(
            bbs.step(
                now,
                Input::Request {
                    requester: 1_000 + requester,
                    ask: ask(usize::try_from(requester).unwrap(), command)
                }
            )
            .is_empty()
        );
    }
    let effects = bbs.step(now, Input::Turn);
    let reads: Vec<_> = effects.into_iter().filter(|effect| matches!(effect, Effect::ReadLast(_))).collect();
    assert_eq!(reads.len(), 4, "one read per shard of the cluster");
    let shards = reads.len();
    for effect in reads {
        let Effect::ReadLast(subject) = effect else { panic!("{effect:?}") };
        scene.input(0, Input::LastEntry { subject, last: Ok(None) });
    }
    assert!((1_000..1_200).all(|requester| refusal(&scene, requester).code == Code::ResourceNotFound));
    assert_eq!(
        scene.reads,
        before + shards,
        "each followed by a read of the cluster's subject, which shows an unchanged shard count"
    );
}
