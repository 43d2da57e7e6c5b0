//! Maximum sizes of a decision and of an entry.

use bbs::{ChangeRequest, Reply};
use schemas::definition::{Definition, DesiredLrp, Ports};
use schemas::limits::{DECISION_BYTES, ENTRY_BYTES};
use schemas::message::{Ack, Envelope};
use schemas::names::ClientName;
use schemas::spec::ClientCommand;
use schemas::{Entry, Refusal};

use crate::scene::{Fate, Scene};
use crate::words;

/// Returns a process with an annotation of this many bytes.
fn lrp(name: &str, bytes: usize) -> ClientCommand {
    let definition = Definition { ports: Ports::new(), ..fixtures::definition() };
    let lrp = fixtures::lrp_of(name, "shop", 0, definition);
    ClientCommand::LrpDesire(Box::new(DesiredLrp { annotation: "x".repeat(bytes), ..lrp }))
}

fn answer(scene: &mut Scene, requester: u64) -> Result<Ack, Refusal> {
    match scene.answers.remove(&requester) {
        Some(Reply::Done(done)) => done,
        other => panic!("{other:?}"),
    }
}

#[test]
fn decision_above_size_limit_is_refused() {
    let mut scene = Scene::with(1, &["c1"]);
    let mut desire = |name: &str, bytes| {
        let asked = scene.client(0, lrp(name, bytes));
        let last = |scene: &Scene| scene.decisions().pop().expect("a decision").1;
        answer(&mut scene, asked).map(|_| serde_json::to_vec(&last(&scene)).unwrap().len())
    };
    let empty = desire("a", 0).unwrap();
    let most = DECISION_BYTES - empty;
    assert_eq!(desire("b", most), Ok(DECISION_BYTES));
    let refused = desire("c", most + 1).unwrap_err();
    assert_eq!(refused.message, "the decision takes 262145 bytes: the limit is 262144");
}

#[test]
fn large_batches_are_split_into_several_entries() {
    let mut scene = Scene::with(1, &["c1"]);
    let name = |number: u32| format!("p{number}");
    // All processes are on one subject. Commands that wait while the first entry is in flight (sent, but not
    // delivered) are decided as one batch.
    let shard = |number: &u32| schemas::Subject::of_process(&words::process_guid(&name(*number)), 4);
    let names: Vec<u32> = (0..200).filter(|number| shard(number) == shard(&0)).take(24).collect();
    scene.fate.insert("muster", Fate::Held);
    let known = scene.journal.len();
    let asked: Vec<u64> = names
        .iter()
        .map(|number| {
            let client = ClientName::new(&format!("c{number}")).unwrap();
            let command = lrp(&name(*number), 100_000);
            scene.ask(0, ChangeRequest::client(words::domain(), client, Envelope::default(), command))
        })
        .collect();
    scene.fate.clear();
    for _ in 0..names.len() {
        scene.release(|bytes| bytes);
    }
    for requester in asked {
        answer(&mut scene, requester).unwrap();
    }
    let entries = scene.journal[known..].iter().map(|stored| (stored.bytes.len(), &stored.bytes));
    let sizes: Vec<(usize, usize)> =
        entries.map(|(bytes, text)| (bytes, Entry::decode(text).unwrap().decisions.len())).collect();
    assert!(sizes.iter().all(|(bytes, _)| *bytes <= ENTRY_BYTES), "{sizes:?}");
    assert!(
        sizes.iter().any(|(_, decisions)| *decisions == 3),
        "decisions fill half of the maximum entry size: {sizes:?}"
    );
}
