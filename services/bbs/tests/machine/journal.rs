//! Messages in the journal that are not valid entries, and entries that were not stored.

use std::time::Duration;

use bytes::Bytes;
use projections::cluster_log::{QuarantineOrder, QuarantineOutcome};
use projections::{ClusterLog, Query as Rows};
use schemas::message::LeaderHeartbeat;
use schemas::names::{ClientName, IdGenerator, ServiceId};
use schemas::stamp::Actor;
use schemas::{Code, Position, Timestamp};

use bbs::{Bbs, Config, Effect, Input, Query, Reply};
use schemas::query::{Filter, Records, Show};

use crate::scene::{Fate, Scene, settings};
use crate::words;

#[test]
fn invalid_messages_are_quarantined_and_listed() {
    let mut scene = Scene::with(1, &["c1"]);
    let whole = scene.journal.iter().find(|stored| stored.subject == "muster.event.cell.c1").unwrap();
    let whole = whole.bytes.clone();
    let flipped = String::from_utf8(whole.to_vec()).unwrap().replace("appeared.v1", "appearef.v1");
    scene.write_invalid("muster.event.cell.c1", b"garbage");
    scene.write_invalid("muster.event.cell.c1", &whole[..whole.len() / 2]);
    scene.write_invalid("muster.event.cell.c1", flipped.as_bytes());
    scene.write_invalid("muster.event.strange.subject", &whole);
    scene.write_invalid("muster.event.cell.c2", &whole);
    let end = Position(scene.journal.len() as u64);
    assert_eq!(scene.bbs(0).world().position(), end, "queries for that position are answered");
    let row = scene.cluster(0);
    assert_eq!(row.quarantined_entries.count, 5);
    let last: Vec<u64> = row.quarantined_entries.last.iter().map(|one| one.position.0).collect();
    assert_eq!(last, (end.0 - 4..=end.0).collect::<Vec<_>>());
    assert!(row.quarantined_entries.last[3].reason.contains("is not a subject of Muster"), "{row:?}");
    // Later entries are valid, even on the same subjects.
    scene.client(0, words::lrp("web", 1));
    assert_eq!(scene.state(0, "web", 0), "UNCLAIMED");
    let mut beat = words::heartbeat("c1", 1, 99);
    beat.evacuating = true;
    scene.input(0, Input::Heartbeat(beat));
    assert_eq!(scene.times("cell.evacuating.v1").len(), 1);
    // A BBS that starts later quarantines the same messages.
    let later = scene.start();
    assert_eq!(scene.cluster(later).quarantined_entries, row.quarantined_entries);
    assert_eq!(scene.bbs(later).world(), scene.bbs(0).world());
    assert!(scene.halted.is_empty());
}

/// Returns an entry of a later format, with a valid checksum.
fn later_format_entry() -> Vec<u8> {
    let body = r#""format":99,"decisions":{"new":"shape"}}"#;
    format!("{{\"crc32c\":\"{:08x}\",{body}", schemas::checksum::crc32c(body.as_bytes())).into_bytes()
}

#[test]
fn entry_of_later_format_stops_bbs_until_quarantined() {
    let mut scene = Scene::with(1, &["c1"]);
    scene.client(0, words::lrp("web", 1));
    scene.write_invalid("muster.event.cell.c1", &later_format_entry());
    let at = Position(scene.journal.len() as u64);
    assert!(scene.halted.contains(&0));
    let before = scene.journal.len();
    scene.client(0, words::lrp("other", 1));
    assert_eq!(scene.journal.len(), before, "a halted BBS decides nothing");

    // The operator's quarantine entry, in the form in which the BBS writes it. This entry follows the
    // quarantined position in the log.
    let mut log = ClusterLog::default();
    let cluster = scene.journal.iter().filter(|stored| stored.subject == "muster.event.cluster");
    cluster.zip(1..).for_each(|(stored, at)| log.read(Position(at), &stored.bytes));
    let actor = Actor::Operator(ClientName::new("ada").unwrap());
    let order = QuarantineOrder { position: at, actor, reason: "a trial".into() };
    let stands = Some(schemas::Entry::decode(&later_format_entry()));
    let judged = log.judge(&mut IdGenerator::new(9), scene.now, order, stands).unwrap();
    let QuarantineOutcome::Append(_, entry) = judged else { panic!("{judged:?}") };
    scene.write_invalid("muster.event.cluster", &entry.encode());

    // A new BBS that knows the quarantine continues after the quarantined position. Acknowledged entries are
    // kept.
    scene.halted.clear();
    scene.quarantines.insert(at, "a trial".into());
    scene.restart(0);
    scene.pass(Duration::from_secs(10));
    assert!(scene.halted.is_empty());
    assert!(scene.bbs(0).leads());
    assert_eq!(scene.state(0, "web", 0), "UNCLAIMED");
    let requester = scene.client(0, words::lrp("other", 1));
    assert!(matches!(scene.answers[&requester], Reply::Done(Ok(_))), "{:?}", scene.answers[&requester]);
    let row = scene.cluster(0);
    assert_eq!(row.quarantined_entries.last[0].reason, "quarantined by an operator: a trial");
    // A BBS that starts later and knows the quarantine has the same World (the state folded from the log). A
    // BBS that does not know the quarantine stops.
    let later = scene.start();
    assert_eq!(scene.bbs(later).world(), scene.bbs(0).world());
    scene.quarantines.clear();
    let unknowing = scene.start();
    assert!(scene.halted.contains(&unknowing));
}

#[test]
fn entry_damaged_in_transit_is_decided_again() {
    let mut scene = Scene::with(1, &["c1"]);
    scene.fate.insert("muster.event.lrp", Fate::Held);
    let requester = scene.client(0, words::lrp("web", 2));
    assert!(!scene.answers.contains_key(&requester));
    scene.fate.clear();
    scene.release(|bytes| bytes.slice(..bytes.len() - 1));
    assert!(matches!(scene.answers[&requester], Reply::Done(Ok(_))), "{:?}", scene.answers[&requester]);
    assert_eq!([0, 1].map(|index| scene.state(0, "web", index)), ["UNCLAIMED"; 2]);
    assert_eq!(scene.cluster(0).quarantined_entries.count, 1);
    // A readable entry with other content has the same effect.
    scene.fate.insert("muster.event.lrp", Fate::Held);
    let requester = scene.client(0, words::lrp("db", 2));
    scene.fate.clear();
    let changed = |bytes: Bytes| Bytes::from(String::from_utf8_lossy(&bytes).replace("\"db\"", "\"dc\""));
    scene.release(changed);
    assert!(matches!(scene.answers[&requester], Reply::Done(Ok(_))), "{:?}", scene.answers[&requester]);
    assert_eq!(scene.state(0, "db", 0), "UNCLAIMED");
}

#[test]
fn unstored_entry_of_deposed_leader_is_dropped() {
    let mut scene = Scene::with(2, &["c1"]);
    scene.fate.insert("muster.event.lrp", Fate::Lost);
    let requester = scene.client(0, words::lrp("web", 1));
    // The first BBS is paused, and the second BBS becomes the leader.
    let paused = scene.bbs[0].take();
    scene.pass(Duration::from_secs(5));
    assert!(scene.bbs(1).leads());
    scene.bbs[0] = paused;
    scene.fate.clear();
    for position in 1..=scene.journal.len() {
        scene.redeliver(0, position);
    }
    scene.pass(Duration::from_secs(5));
    assert_eq!(scene.state(1, "web", 0), "-");
    let Some(Reply::Done(Err(refusal))) = scene.answers.get(&requester) else { panic!("not answered") };
    assert_eq!(refusal.code, Code::Unavailable);
}

#[test]
fn queries_are_unavailable_until_log_is_read() {
    let mut scene = Scene::with(1, &["c1"]);
    scene.client(0, words::lrp("web", 1));
    let queries = || {
        let show = Show { id: "web".into(), at_least: None, as_of: None };
        let records = Records { cell_id: words::cell_id("c1"), work: vec![], at_least: None };
        [
            Query::Rows(Rows::Lrp(show)),
            Query::Rows(Rows::Lrps(Filter::default())),
            Query::Rows(Rows::Cluster(Filter::default())),
            Query::Records(records),
        ]
    };
    let unread = scene.add_unread_bbs();
    for position in 0..=scene.journal.len() {
        if position > 0 {
            scene.redeliver(unread, position);
        }
        for query in queries() {
            let answer = scene.query(unread, query.clone());
            let refused = matches!(&answer, Reply::Rows(Err(refusal)) if refusal.code == Code::Unavailable);
            assert!(refused, "{query:?} after {position} entries: {answer:?}");
        }
    }
    scene.input(unread, Input::CaughtUp);
    for query in queries() {
        let answer = scene.query(unread, query.clone());
        assert!(matches!(answer, Reply::Rows(Ok(_)) | Reply::Records(_)), "{query:?}: {answer:?}");
    }
}

#[test]
fn forged_leader_heartbeats_delay_takeover_by_one_election_at_most() {
    for (term, longest) in [(u64::MAX, 2_500), (3, 2_500), (2, 3_700)] {
        let mut scene = Scene::with(2, &["c1"]);
        scene.bbs[0] = None;
        let since = scene.now;
        while !scene.bbs(1).leads() && scene.now.since(since) < Duration::from_secs(60) {
            let beat = LeaderHeartbeat {
                id: ServiceId::new("forged").unwrap(),
                term,
                position: Position(1),
                steps_down: false,
            };
            scene.input(1, Input::LeaderHeartbeat(beat));
            scene.pass(Duration::from_millis(100));
        }
        let waited = scene.now.since(since);
        assert!(waited <= Duration::from_millis(longest), "heartbeats of term {term}: {waited:?}");
    }
}

#[test]
fn restarted_leader_continues_to_lead() {
    let mut scene = Scene::with(2, &["c1"]);
    scene.restart(0);
    assert!(scene.bbs(0).leads());
    scene.client(0, words::lrp("web", 1));
    assert_eq!(scene.state(0, "web", 0), "UNCLAIMED");
}

#[test]
fn leader_without_deliveries_stops_leading_until_they_resume() {
    let mut scene = Scene::with(1, &["c1"]);
    scene.fate.insert("muster.event", Fate::Held);
    let requester = scene.client(0, words::lrp("web", 1));
    let waits = scene.client(0, words::lrp("web", 2));
    scene.pass(Duration::from_secs(9));
    assert!(scene.bbs(0).leads());
    scene.pass(Duration::from_secs(2));
    assert!(!scene.bbs(0).leads());
    let beats = scene.beats.len();
    let late = scene.client(0, words::lrp("db", 1));
    for refused in [waits, late] {
        let answer = &scene.answers[&refused];
        assert!(
            matches!(answer, Reply::Done(Err(refusal)) if refusal.code == Code::Unavailable),
            "{answer:?}"
        );
    }
    scene.pass(Duration::from_secs(5));
    assert_eq!(scene.beats.len(), beats, "no heartbeats, so that other BBSs campaign");
    // The cluster has no other BBS. So this BBS leads again once entries are delivered.
    scene.fate.clear();
    scene.release(|bytes| bytes);
    assert!(matches!(scene.answers[&requester], Reply::Done(Ok(_))), "{:?}", scene.answers[&requester]);
    scene.pass(Duration::from_secs(1));
    assert!(scene.bbs(0).leads());
    let again = scene.client(0, words::lrp("db", 1));
    assert!(matches!(scene.answers[&again], Reply::Done(Ok(_))), "{:?}", scene.answers[&again]);
}

/// An empty log does not prove that the cluster is new, because the log may have lost its entries.
#[test]
fn bbs_founds_cluster_only_if_configured() {
    for founds in [Some(4), None] {
        let mut bbs = Bbs::new(Config { founding_shards: founds, ..settings(0) }, IdGenerator::new(1));
        let mut effects = bbs.step(Timestamp::from_millis(1), Input::CaughtUp);
        for second in 1..60 {
            let now = Timestamp::from_millis(second * 1_000);
            effects.extend([Input::Tick, Input::Turn].into_iter().flat_map(|input| bbs.step(now, input)));
        }
        let appends = effects.iter().any(|effect| matches!(effect, Effect::Append { .. }));
        assert_eq!(appends, founds.is_some());
    }
}
