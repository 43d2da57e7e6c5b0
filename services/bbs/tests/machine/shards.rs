//! Changes of the number of shards while commands are in flight (not answered yet).

use std::time::Duration;

use bbs::{ChangeRequest, Reply};
use schemas::cluster::Command;
use schemas::message::{Ack, Envelope};
use schemas::names::{ClientName, ProcessGuid};
use schemas::subject::Subject;
use schemas::{Code, Refusal};

use crate::scene::{Fate, Scene};
use crate::words;

fn reshard(scene: &mut Scene, node: usize, shards: u16) -> u64 {
    let (client, envelope) = (ClientName::new("ops").unwrap(), Envelope::default());
    scene.ask(node, ChangeRequest::Cluster { client, envelope, command: Command::Reshard(shards) })
}

fn answer(scene: &mut Scene, token: u64) -> Result<Ack, Refusal> {
    match scene.answers.remove(&token) {
        Some(Reply::Done(done)) => done,
        other => panic!("{other:?}"),
    }
}

fn subject(name: &str, shards: u16) -> Subject {
    Subject::of_process(&ProcessGuid::new(name).unwrap(), shards)
}

/// Returns the subjects of all decisions about a process, in the order of the log.
fn subjects(scene: &Scene, name: &str) -> Vec<String> {
    let is_about = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(&format!("\"guid\":\"{name}\""));
    let about = scene.journal.iter().filter(|stored| is_about(&stored.bytes));
    about.map(|stored| stored.subject.clone()).collect()
}

#[test]
fn reshard_waits_for_entries_in_flight() {
    let mut scene = Scene::with(1, &["c1"]);
    let token = scene.client(0, words::lrp("web", 1));
    answer(&mut scene, token).unwrap();
    scene.fate.insert("muster", Fate::Held);
    let before = scene.client(0, words::scale("web", 2));
    let change = reshard(&mut scene, 0, 7);
    let after = scene.client(0, words::scale("web", 3));
    assert_eq!(scene.bbs(0).world().shards(), 4, "an entry is in flight");
    scene.fate.clear();
    scene.release(|bytes| bytes);
    for token in [before, change, after] {
        answer(&mut scene, token).unwrap();
    }
    assert_eq!(scene.bbs(0).world().shards(), 7);
    let instances = |scene: &Scene| {
        let process = scene.bbs(0).world().process(&words::process_guid("web")).unwrap();
        process.desired.as_ref().unwrap().instances
    };
    assert_eq!(instances(&scene), 3);
    let (old, new) = (subject("web", 4).to_string(), subject("web", 7).to_string());
    assert_eq!(subjects(&scene, "web"), [old.clone(), old, new]);
    // Another BBS folds the same log, and a repeated change has no effect.
    let second = scene.start();
    scene.catch_up(second);
    assert_eq!(scene.bbs(second).world().shards(), 7);
    let again = reshard(&mut scene, 0, 7);
    answer(&mut scene, again).unwrap();
    assert_eq!(scene.times("cluster.resharded.v1").len(), 1);
}

#[test]
fn entry_on_old_subject_after_reshard_is_ignored() {
    let mut scene = Scene::with(1, &["c1"]);
    let token = scene.client(0, words::lrp("web", 1));
    answer(&mut scene, token).unwrap();
    let stale = scene.journal.last().unwrap().bytes.clone();
    let token = reshard(&mut scene, 0, 7);
    answer(&mut scene, token).unwrap();
    scene.write_invalid(&subject("web", 4).to_string(), &stale);
    assert_eq!(scene.bbs(0).world().process(&words::process_guid("web")).unwrap().version, 1);
    let token = scene.client(0, words::scale("web", 2));
    answer(&mut scene, token).unwrap();
}

#[test]
fn late_entry_of_deposed_leader_on_old_subject_is_ignored() {
    let mut scene = Scene::with(2, &["c1"]);
    let token = scene.client(0, words::lrp("web", 1));
    answer(&mut scene, token).unwrap();
    scene.fate.insert("muster.event.lrp", Fate::Held);
    let late = scene.client(0, words::scale("web", 2));
    scene.fate.clear();
    // The BBS is paused. Another BBS then leads and changes the number of shards. The entry of the paused BBS
    // arrives only after this change.
    let paused = scene.bbs[0].take();
    scene.pass(Duration::from_secs(5));
    let change = reshard(&mut scene, 1, 7);
    answer(&mut scene, change).unwrap();
    scene.bbs[0] = paused;
    scene.catch_up(0);
    scene.release(|bytes| bytes);
    let refusal = answer(&mut scene, late).unwrap_err();
    assert_eq!(refusal.code, Code::Unavailable);
    assert_eq!(scene.bbs(0).world().to_bytes(), scene.bbs(1).world().to_bytes());
}

#[test]
fn invalid_shard_count_is_refused() {
    let mut scene = Scene::with(1, &["c1"]);
    for shards in [0, 1_025] {
        let token = reshard(&mut scene, 0, shards);
        let refusal = answer(&mut scene, token).unwrap_err();
        assert_eq!(refusal.code, Code::InvalidRequest);
        assert!(refusal.message.contains("expected 1 to 1024"), "{refusal}");
    }
}
