//! Tests of the auctioneer's state machine with small hand-written logs and heartbeats.

#![expect(clippy::unwrap_used, reason = "the names and logs in these tests are valid")]

mod chaos;
mod preemption;
mod priorities;
mod scene;

use std::collections::BTreeSet;
use std::time::Duration;

use auctioneer::machine::Counts;
use auctioneer::{Effect, Input, Settings};
use schemas::action::{Action, Run};
use schemas::actual::Command as Lrp;
use schemas::cell;
use schemas::container::{Instance, NetInfo, WorkKey};
use schemas::definition::{Definition, Placement};
use schemas::evaluation::{Duty, Evaluation, Trigger};
use schemas::isolation::Isolation;
use schemas::message::{LeaderHeartbeat, Perform, PerformId, PerformReply, PlacementOutcome, Work};
use schemas::names::{CellId, Incarnation, InstanceGuid, TaskGuid};
use schemas::process::Outcome;
use schemas::process::{self, Report, ReportStep};
use schemas::resources::{Constraint, Resources};
use schemas::rules::{Operator, Rule, Rules};
use schemas::{Code, Position, Refusal, limits};

use scene::*;

#[test]
fn new_instance_is_placed_immediately() {
    let mut scene = Scene::leading(&[("c1", "z1")]);
    scene.desire("p", 1, 100);
    let (cell, perform) = only(performs(scene.turn()));
    assert_eq!((cell.as_str(), perform.id), ("c1", PerformId { term: 1, number: 1 }));
    let work = only(perform.work);
    let lrp = scene.auctioneer.world().process(&guid("p")).unwrap().actual(&fixtures::place(0, "p")).unwrap();
    assert_eq!((work.attempt, work.domain.as_str()), (lrp.since, "d"));
    assert_eq!(work.placement.as_ref().unwrap().best[0].cell_id, cell_id("c1"));
    assert_eq!(performs(scene.turn()), []);

    scene.answer(&cell, perform.id, Some(Ok(PerformReply { refused: vec![] })));
    scene.claim("c1", &work);
    scene.send_heartbeat("c1", mib(CELL_MIB - 100), 1);
    scene.turn();
    assert_eq!(scene.counts(), Counts::default());
}

#[test]
fn standby_places_nothing() {
    let mut scene = Scene::founded();
    scene.cell("c1", "z1", "linux");
    scene.send_heartbeat("c1", mib(CELL_MIB), 0);
    scene.elect("other", 1);
    scene.desire("p", 1, 100);
    assert_eq!(scene.turn(), []);
    assert_eq!(scene.counts(), Counts::default());
    assert!(!scene.auctioneer.is_leader());
}

#[test]
fn auctioneer_without_leader_campaigns_once_and_sends_heartbeats_when_elected() {
    let mut scene = Scene::founded();
    assert_eq!(scene.advance(Duration::from_secs(1)), [], "the campaign was already sent");
    scene.step(Input::LeadAnswered(None));
    assert_eq!(
        campaign_terms(&scene.advance(Duration::from_millis(20))),
        [1],
        "an unanswered campaign is repeated"
    );
    scene.elect("a", 1);
    assert!(scene.auctioneer.is_leader());
    let effects = scene.advance(Duration::from_millis(100));
    assert!(matches!(&effects[..], [Effect::Beat(LeaderHeartbeat { term: 1, .. })]), "{effects:?}");
    let effects = scene.advance(SECOND * 3);
    assert_eq!((effects.len(), campaign_terms(&effects)), (5, vec![]));
}

#[test]
fn standby_campaigns_only_if_leader_is_silent() {
    let mut scene = Scene::founded();
    scene.elect("other", 4);
    for _ in 0..20 {
        assert_eq!(scene.advance(Duration::from_millis(600)), []);
        scene.step(Input::Beat(LeaderHeartbeat {
            id: name("other"),
            term: 4,
            position: Position(1),
            steps_down: false,
        }));
    }
    let effects = scene.advance(Duration::from_millis(600 * 4));
    assert_eq!(campaign_terms(&effects), [5]);
    // A campaign without an answer is repeated soon. A heartbeat with an old or forged term does not count as
    // a heartbeat of the leader.
    scene.step(Input::LeadAnswered(None));
    for (id, term) in [("old", 3), ("forged", u64::MAX), ("other", u64::MAX)] {
        scene.step(Input::Beat(LeaderHeartbeat {
            id: name(id),
            term,
            position: Position(1),
            steps_down: false,
        }));
    }
    assert_eq!(campaign_terms(&scene.advance(Duration::from_millis(600))), [5]);
    // After a BBS was unavailable, the campaign is repeated soon. If a BBS refuses because of a newer term,
    // the campaign is lost.
    let answer = |code| Input::LeadAnswered(Some(Err(Refusal::new(code, "no"))));
    scene.step(answer(Code::Unavailable));
    assert_eq!(campaign_terms(&scene.advance(Duration::from_millis(600))), [5]);
    scene.step(answer(Code::StaleTerm));
    assert!(campaign_terms(&scene.advance(Duration::from_millis(600))).is_empty());
}

#[test]
fn deposed_leader_stops_immediately() {
    let mut scene = Scene::leading(&[("c1", "z1")]);
    scene.desire("p", 1, 100);
    scene.desire("q", 1, 5_000);
    let (cell, perform) = only(performs(scene.turn()));
    scene.elect("other", 2);
    assert!(!scene.auctioneer.is_leader());
    scene.refuse(&cell, &perform, "full");
    scene.desire("r", 1, 100);
    assert_eq!(scene.turn(), []);
    assert_eq!(scene.counts(), Counts::default());
}

#[test]
fn refused_work_goes_to_another_cell() {
    let mut scene = Scene::leading(&[("c1", "z1"), ("c2", "z1")]);
    scene.desire("p", 1, 100);
    let (first, perform) = only(performs(scene.turn()));
    scene.refuse(&first, &perform, "no room");
    let (second, perform) = only(performs(scene.turn()));
    assert_ne!(first, second);
    let why = perform.work[0].placement.as_ref().unwrap();
    assert_eq!(why.rejected.get("refused"), Some(&1));
    scene.refuse(&second, &perform, "no room");
    assert_eq!(performs(scene.turn()).len(), 1);
}

#[test]
fn work_is_blocked_with_reason_after_five_rounds() {
    let mut scene = Scene::leading(&[("c1", "z1"), ("c2", "z1")]);
    scene.desire("p", 1, 100);
    for _ in 0..4 {
        let (cell, perform) = only(performs(scene.turn()));
        scene.refuse(&cell, &perform, "insufficient resources: ports");
        assert_eq!(scene.counts().blocked, 0);
    }
    let (cell, perform) = only(performs(scene.turn()));
    scene.refuse(&cell, &perform, "insufficient resources: ports");
    let effects = scene.turn();
    assert_eq!(scene.counts().blocked, 1);
    assert_eq!(errors(effects), [("insufficient resources: ports".to_owned(), 1)].into());
}

#[test]
fn refused_perform_is_placed_again_unless_term_is_stale() {
    let mut scene = Scene::leading(&[("c1", "z1"), ("c2", "z1")]);
    scene.desire("p", 1, 100);
    let (first, perform) = only(performs(scene.turn()));
    scene.answer(&first, perform.id, Some(Err(Refusal::new(Code::Unavailable, "starting"))));
    let (second, perform) = only(performs(scene.turn()));
    assert_ne!(first, second);
    scene.answer(&second, perform.id, Some(Err(Refusal::new(Code::StaleTerm, "term 2 leads"))));
    assert_eq!(performs(scene.turn()), []);
    assert_eq!(scene.counts().handed_out, 1);
}

#[test]
fn unanswered_work_goes_to_another_cell_after_timeout() {
    let mut scene = Scene::leading(&[("c1", "z1"), ("c2", "z1")]);
    scene.desire("p", 1, 100);
    let (first, perform) = only(performs(scene.turn()));
    scene.answer(&first, perform.id, None);
    assert_eq!(performs(scene.turn()), []);
    let second = if first == cell_id("c1") { "c2" } else { "c1" };
    scene.send_heartbeat(second, mib(CELL_MIB), 0);
    assert_eq!(performs(scene.advance(SECOND * 9)), []);
    let (cell, _) = only(performs(scene.advance(SECOND * 2)));
    assert_eq!(cell.as_str(), second);
}

#[test]
fn unanswering_rep_gets_no_work_until_next_heartbeat() {
    let mut scene = Scene::leading(&[("c1", "z1")]);
    scene.desire("p", 1, 100);
    let (cell, perform) = only(performs(scene.turn()));
    scene.answer(&cell, perform.id, None);
    scene.desire("q", 1, 100);
    assert_eq!(scene.turn(), []); // The work is not reported as impossible to place either.
    scene.send_heartbeat("c1", mib(CELL_MIB), 1);
    let (_, perform) = only(performs(scene.turn()));
    assert_eq!(perform.work.len(), 1);
}

#[test]
fn unclaimed_work_is_sent_to_same_rep_again_without_extra_room() {
    let mut scene = Scene::leading(&[("c1", "z1"), ("c2", "z1")]);
    scene.send_heartbeat("c2", mib(0), 0);
    scene.desire_task("t", 900, Placement::Fail);
    let (cell, first) = only(performs(scene.turn()));
    let took = |scene: &mut Scene, id| scene.answer(&cell, id, Some(Ok(PerformReply { refused: vec![] })));
    took(&mut scene, first.id);
    for number in 2..=6 {
        // The heartbeat includes the reserved resources, but the claim does not reach the log.
        scene.send_heartbeat("c1", mib(100), number - 1);
        scene.send_heartbeat("c2", mib(900), 0);
        let mut effects = scene.advance(SECOND * 5);
        scene.send_heartbeat("c1", mib(100), number - 1);
        effects.extend(scene.advance(SECOND * 5));
        assert_eq!(outcomes(effects.clone()), []);
        let (same, again) = only(performs(effects));
        assert_eq!((&same, again.id.number), (&cell, number));
        assert_eq!((&again.work[0].key, again.work[0].attempt), (&first.work[0].key, first.work[0].attempt));
        took(&mut scene, again.id);
    }
    // After five repetitions, the work is placed on another cell.
    assert_eq!(performs(scene.advance(SECOND * 5)), []);
    scene.send_heartbeat("c1", mib(100), 6);
    scene.send_heartbeat("c2", mib(900), 0);
    assert_eq!(only(performs(scene.advance(SECOND * 5))).0.as_str(), "c2");
}

#[test]
fn work_with_lost_answer_is_sent_again_if_heartbeat_includes_it() {
    let mut scene = Scene::leading(&[("c1", "z1"), ("c2", "z1")]);
    scene.desire("p", 1, 900);
    let (cell, first) = only(performs(scene.turn()));
    scene.answer(&cell, first.id, None);
    assert_eq!(performs(scene.advance(SECOND * 5)), []);
    scene.send_heartbeat(cell.as_str(), mib(100), 1);
    assert_eq!(only(performs(scene.advance(SECOND * 5))).0, cell);
}

#[test]
fn work_of_dead_rep_is_placed_again_after_hand_out_timeout() {
    let mut scene = Scene::leading(&[("c1", "z1"), ("c2", "z1")]);
    scene.desire("p", 1, 900);
    let (cell, first) = only(performs(scene.turn()));
    scene.answer(&cell, first.id, Some(Ok(PerformReply { refused: vec![] })));
    scene.send_heartbeat(cell.as_str(), mib(100), 1);
    let other = if cell == cell_id("c1") { "c2" } else { "c1" };
    assert_eq!(performs(scene.advance(SECOND * 9)), []);
    scene.send_heartbeat(other, mib(CELL_MIB), 0);
    // The work is placed again before the cell counts as lost. The same rep does not receive the work again,
    // because it has sent no recent heartbeat.
    let (where_to, again) = only(performs(scene.advance(SECOND)));
    assert_eq!((where_to.as_str(), again.work[0].attempt), (other, first.work[0].attempt));
}

#[test]
fn work_of_restarted_rep_is_placed_again_immediately() {
    let mut scene = Scene::leading(&[("c1", "z1"), ("c2", "z1")]);
    scene.desire("p", 1, 900);
    let (cell, first) = only(performs(scene.turn()));
    scene.answer(&cell, first.id, Some(Ok(PerformReply { refused: vec![] })));
    scene.cell(cell.as_str(), "z1", "linux");
    let (_, again) = only(performs(scene.turn()));
    assert_eq!(again.work[0].attempt, first.work[0].attempt);
}

#[test]
fn repeated_work_without_answer_is_placed_again_immediately() {
    let mut scene = Scene::leading(&[("c1", "z1"), ("c2", "z1")]);
    scene.desire("p", 1, 900);
    let (cell, first) = only(performs(scene.turn()));
    scene.answer(&cell, first.id, Some(Ok(PerformReply { refused: vec![] })));
    let other = if cell == cell_id("c1") { "c2" } else { "c1" };
    scene.advance(SECOND * 8);
    scene.send_heartbeat(cell.as_str(), mib(100), 1);
    scene.send_heartbeat(other, mib(CELL_MIB), 0);
    let (same, again) = only(performs(scene.advance(SECOND * 2)));
    assert_eq!(same, cell, "its rep sent a recent heartbeat");
    assert_eq!(performs(scene.advance(SECOND * 5)), []);
    scene.answer(&cell, again.id, None);
    assert_eq!(only(performs(scene.turn())).0.as_str(), other);
}

#[test]
fn room_of_refused_work_wakes_waiting_work_at_next_heartbeat() {
    let mut scene = Scene::leading(&[("c1", "z1")]);
    scene.desire("large", 1, 900);
    let (cell, perform) = only(performs(scene.turn()));
    scene.desire("small", 1, 300);
    assert_eq!(errors(scene.turn()).len(), 1, "the large process reserves the room of the cell");
    // The rep has fewer free resources than it reported: the large work does not fit, but the small work
    // does.
    scene.refuse(&cell, &perform, "insufficient resources: memory");
    scene.send_heartbeat("c1", mib(400), 1);
    let (_, small) = only(performs(scene.turn()));
    assert_eq!(only(small.work).definition.resources().memory_mb, 300);
}

#[test]
fn clock_jumps_do_not_interrupt_heartbeats_and_hand_outs() {
    let mut scene = Scene::leading(&[("c1", "z1"), ("c2", "z1")]);
    for seconds in [-30_i64, 3_600, -3_600] {
        scene.desire(&format!("p{}", seconds.unsigned_abs() + u64::from(seconds > 0)), 1, 10);
        let (cell, perform) = only(performs(scene.turn()));
        let step = Duration::from_secs(seconds.unsigned_abs());
        scene.now = if seconds < 0 { scene.now - step } else { scene.now + step };
        let mut effects = scene.turn();
        ["c1", "c2"].iter().for_each(|cell| drop(scene.send_heartbeat(cell, mib(CELL_MIB), 0)));
        effects.extend(scene.advance(SECOND * 6));
        ["c1", "c2"].iter().for_each(|cell| drop(scene.send_heartbeat(cell, mib(CELL_MIB), 0)));
        effects.extend(scene.advance(SECOND * 5));
        let beats = effects.iter().filter(|effect| matches!(effect, Effect::Beat(_))).count();
        assert!((18..=20).contains(&beats), "{seconds}: {beats} heartbeats");
        let (_, again) = performs(effects).pop().unwrap();
        assert_eq!(again.work[0].key, perform.work[0].key);
        scene.claim(cell.as_str(), &again.work[0]);
    }
}

#[test]
fn rep_that_lost_reservation_refuses_repeated_work() {
    let mut scene = Scene::leading(&[("c1", "z1"), ("c2", "z1")]);
    scene.desire("p", 1, 900);
    let (cell, first) = only(performs(scene.turn()));
    scene.answer(&cell, first.id, Some(Ok(PerformReply { refused: vec![] })));
    scene.advance(SECOND * 5);
    scene.send_heartbeat(cell.as_str(), mib(CELL_MIB), 1);
    scene.send_heartbeat("c2", mib(CELL_MIB), 0);
    let (cell, again) = only(performs(scene.advance(SECOND * 5)));
    scene.refuse(&cell, &again, "insufficient resources: memory");
    assert_eq!(only(performs(scene.turn())).0.as_str(), "c2");
}

#[test]
fn second_perform_follows_unanswered_first_without_overcommit() {
    let mut scene = Scene::leading(&[("c1", "z1")]);
    scene.desire("p", 1, 600);
    let (_, first) = only(performs(scene.turn()));
    scene.desire("q", 1, 300);
    let (_, second) = only(performs(scene.turn()));
    assert_eq!((first.id.number, second.id.number), (1, 2));
    scene.desire("r", 1, 200);
    let effects = scene.turn();
    assert_eq!(performs(effects.clone()), []);
    assert_eq!(errors(effects), [("insufficient resources: memory".to_owned(), 1)].into());
    // The heartbeat includes the first message, so only the second message is still subtracted. 150 MB are
    // left.
    scene.send_heartbeat("c1", mib(CELL_MIB - 600 + 50), 1);
    scene.desire("s", 1, 150);
    assert_eq!(only(performs(scene.turn())).1.work.len(), 1);
    // A heartbeat that arrives after a newer one is ignored.
    scene.sequence -= 2;
    scene.send_heartbeat("c1", mib(CELL_MIB), 0);
    assert_eq!(performs(scene.turn()), []);
}

#[test]
fn new_leader_waits_for_reports_of_all_cells() {
    let mut scene = Scene::founded();
    scene.cell("c1", "z1", "linux");
    scene.cell("c2", "z1", "linux");
    scene.send_heartbeat("c1", mib(CELL_MIB), 0);
    scene.elect("a", 1);
    scene.desire_task("large", 5_000, Placement::Fail);
    scene.desire("p", 1, 100);
    assert_eq!(scene.turn(), [], "it would underestimate the free resources");
    assert_eq!(performs(scene.advance(SECOND)), []);
    scene.send_heartbeat("c2", mib(CELL_MIB), 0);
    let effects = scene.turn();
    assert_eq!(performs(effects.clone()).len(), 1);
    assert_eq!(errors(effects), [("insufficient resources: memory".to_owned(), 1)].into());
}

#[test]
fn new_leader_spreads_siblings_once_all_cells_reported() {
    let mut scene = Scene::founded();
    scene.cell("c1", "z1", "linux");
    scene.cell("c2", "z2", "linux");
    scene.send_heartbeat("c1", mib(CELL_MIB), 0);
    scene.desire("p", 2, 100);
    scene.elect("a", 1);
    assert_eq!(scene.turn(), []);
    scene.send_heartbeat("c2", mib(CELL_MIB), 0);
    let places: Vec<_> = performs(scene.turn()).into_iter().map(|(cell, _)| cell).collect();
    assert_eq!(places, [cell_id("c1"), cell_id("c2")]);
}

#[test]
fn silent_cell_delays_new_leader_for_one_heartbeat_interval() {
    let mut scene = Scene::founded();
    scene.cell("c1", "z1", "linux");
    scene.cell("c2", "z2", "linux");
    scene.send_heartbeat("c1", mib(CELL_MIB), 0);
    scene.elect("a", 1);
    scene.desire("p", 1, 100);
    assert_eq!(performs(scene.turn()), []);
    assert_eq!(performs(scene.advance(Duration::from_millis(4_900))), []);
    assert_eq!(performs(scene.advance(Duration::from_millis(200))).len(), 1);
    // A cell that becomes silent later does not delay placement.
    scene.cell("c3", "z2", "linux");
    scene.desire("q", 1, 100);
    assert_eq!(performs(scene.turn()).len(), 1);
}

#[test]
fn new_leader_reports_no_error_for_one_heartbeat_interval() {
    let mut scene = Scene::founded();
    scene.cell("c1", "z1", "linux");
    scene.elect("a", 1);
    scene.desire("p", 1, 100);
    assert_eq!(errors(scene.turn()), [].into());
    assert_eq!(errors(scene.advance(Duration::from_millis(4_900))), [].into());
    let error = "unable to communicate to compatible cells".to_owned();
    assert_eq!(errors(scene.advance(Duration::from_millis(200))), [(error, 1)].into());
}

#[test]
fn auctioneer_without_heartbeats_reports_no_errors() {
    let mut scene = Scene::leading(&[("c1", "z1")]);
    scene.advance(SECOND * 60);
    scene.desire_task("t", 100, Placement::Fail);
    assert_eq!(errors(scene.turn()), [].into());
    assert_eq!(errors(scene.advance(SECOND * 60)), [].into());
    scene.send_heartbeat("c1", mib(CELL_MIB), 0);
    assert_eq!(performs(scene.turn()).len(), 1);
}

#[test]
fn doubtful_cell_delays_errors_for_one_heartbeat_interval() {
    type Before = fn(&mut Scene);
    let beat = |scene: &mut Scene, cell: &str| drop(scene.send_heartbeat(cell, mib(500), 0));
    let doubts: [(&str, Before); 4] = [
        ("no heartbeat for a while, and then only one", |scene| {
            // After exactly 15 s, a cell counts as silent.
            scene.advance(SECOND * 15);
            scene.send_heartbeat("c1", mib(500), 0);
        }),
        ("a rep does not answer", |scene| {
            scene.desire("q", 1, 600);
            let (cell, perform) = only(performs(scene.turn()));
            assert_eq!(cell.as_str(), "c2");
            scene.answer(&cell, perform.id, None);
        }),
        ("a rep cannot evaluate the request now", |scene| {
            scene.desire("q", 1, 600);
            let (cell, perform) = only(performs(scene.turn()));
            let unavailable = Refusal::new(Code::Unavailable, "the rep is starting");
            scene.answer(&cell, perform.id, Some(Err(unavailable)));
        }),
        ("a cell appears", |scene| scene.cell("c3", "z1", "linux")),
    ];
    for (what, before) in doubts {
        let mut scene = Scene::leading(&[("c1", "z1"), ("c2", "z1")]);
        // The term is old enough, so the start of the term cannot explain the missing heartbeat.
        for _ in 0..5 {
            scene.advance(SECOND * 3);
            beat(&mut scene, "c1");
            scene.send_heartbeat("c2", mib(CELL_MIB), 0);
        }
        before(&mut scene);
        scene.desire_task("t", 1_500, Placement::Fail);
        beat(&mut scene, "c1");
        let mut effects = scene.turn();
        for _ in 0..4 {
            effects.extend(scene.advance(SECOND));
            beat(&mut scene, "c1");
        }
        effects.extend(scene.advance(Duration::from_millis(900)));
        assert_eq!(errors(effects), [].into(), "{what}");
        assert!(errors(scene.advance(SECOND * 2)).values().sum::<usize>() > 0, "{what}");
    }
}

#[test]
fn blocked_work_is_reported_once_and_retried_on_new_capacity() {
    let mut scene = Scene::leading(&[("c1", "z1")]);
    scene.send_heartbeat("c1", mib(150), 0);
    scene.desire("p", 4, 100);
    let effects = scene.turn();
    let (_, perform) = only(performs(effects.clone()));
    scene.claim("c1", &perform.work[0]);
    let (id, told) = only(outcomes(effects));
    assert_eq!((told.id.as_str(), told.term), ("a", 1));
    let PlacementOutcome::Lrp { outcome, .. } = &told.outcomes[0] else { panic!("{told:?}") };
    let Outcome { unplaced, explanation, .. } = outcome;
    assert_eq!(unplaced.iter().map(|one| one.place.index).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(explanation.as_ref().unwrap().rejected, [("memory".to_owned(), 1)].into());
    scene.record_outcomes(id, told);
    let lrp = scene.auctioneer.world().process(&guid("p")).unwrap().actual(&fixtures::place(3, "p")).unwrap();
    assert!(lrp.has_placement_error());
    assert_eq!(scene.counts().blocked, 3);

    // The work is retried every 30 s. The error is not reported again because the log already shows it.
    for _ in 0..20 {
        scene.send_heartbeat("c1", mib(50), 1);
        assert_eq!(outcomes(scene.advance(SECOND * 5)), []);
    }
    // Two more instances now fit. They are placed immediately, in rank order.
    scene.send_heartbeat("c1", mib(250), 1);
    let indices = |perform: &Perform| -> Vec<u32> {
        let index = |work: &Work| match &work.key {
            WorkKey::Lrp { key, .. } => key.place.index,
            WorkKey::Task { .. } => panic!("{work:?}"),
        };
        perform.work.iter().map(index).collect()
    };
    let (_, perform) = only(performs(scene.turn()));
    let again = indices(&perform);
    assert_eq!(again.len(), 2);
    // The remaining instances fit on a new cell.
    scene.cell("c2", "z2", "linux");
    scene.send_heartbeat("c2", mib(CELL_MIB), 0);
    let (cell, _) = only(performs(scene.turn()));
    assert_eq!(cell.as_str(), "c2");
}

#[test]
fn evacuating_cordoned_or_unhealthy_cell_gets_no_work() {
    type Says = fn(&mut Scene);
    let says: [Says; 6] = [
        |scene| scene.cell_event("c1", cell::Event::EvacuationRequested {}),
        |scene| scene.cell_event("c1", cell::Event::Cordoned {}),
        |scene| scene.cell_event("c1", cell::Event::Evacuating {}),
        |scene| scene.cell_event("c1", cell::Event::Unhealthy { reason: "disk".into() }),
        |scene| drop(scene.send_changed_heartbeat("c1", |beat| beat.evacuating = true)),
        |scene| drop(scene.send_changed_heartbeat("c1", |beat| beat.unhealthy = Some("disk".into()))),
    ];
    for (at, says) in says.into_iter().enumerate() {
        let mut scene = Scene::leading(&[("c1", "z1"), ("c2", "z1")]);
        scene.send_heartbeat("c2", mib(100), 0);
        says(&mut scene);
        scene.desire("p", 1, 50);
        let (cell, _) = only(performs(scene.turn()));
        assert_eq!(cell.as_str(), "c2", "{at}");
    }
}

#[test]
fn sibling_in_zone_outweighs_load() {
    for claimed in [false, true] {
        let mut scene = Scene::leading(&[("c1", "z1"), ("c2", "z2")]);
        scene.send_heartbeat("c2", mib(300), 0);
        scene.desire("p", 1, 10);
        let (cell, perform) = only(performs(scene.turn()));
        assert_eq!(cell.as_str(), "c1", "the emptier cell");
        scene.answer(&cell, perform.id, Some(Ok(PerformReply { refused: vec![] })));
        if claimed {
            scene.claim("c1", &perform.work[0]);
            scene.send_heartbeat("c1", mib(CELL_MIB - 10), 1);
        }
        let update = schemas::definition::DesiredLrpUpdate { instances: Some(2), ..Default::default() };
        scene.decide("p", &process::Command::Update(update));
        assert_eq!(only(performs(scene.turn())).0.as_str(), "c2", "{claimed}");
    }
}

#[test]
fn reelected_leader_starts_without_hand_outs() {
    let mut scene = Scene::leading(&[("c1", "z1")]);
    scene.desire("p", 1, 900);
    assert_eq!(performs(scene.turn()).len(), 1);
    scene.elect("other", 2);
    scene.elect("a", 3);
    let (_, perform) = only(performs(scene.turn()));
    assert_eq!((perform.id, perform.work.len()), (PerformId { term: 3, number: 1 }, 1));
}

#[test]
fn room_of_refused_work_is_used_for_next_work() {
    let mut scene = Scene::leading(&[("c1", "z1"), ("c2", "z1")]);
    scene.send_heartbeat("c2", mib(950), 0);
    scene.desire("p", 1, 900);
    let (cell, perform) = only(performs(scene.turn()));
    assert_eq!(cell.as_str(), "c1");
    scene.refuse(&cell, &perform, "its disk is slow");
    assert_eq!(only(performs(scene.turn())).0.as_str(), "c2");
    scene.desire("q", 1, 500);
    assert_eq!(only(performs(scene.turn())).0.as_str(), "c1");
}

#[test]
fn messages_with_large_work_stay_within_size_limit() {
    let mut scene = Scene::leading(&[("c1", "z1")]);
    for number in 0..30 {
        let run = Run { path: "a".into(), args: vec!["x".repeat(100_000)], ..Run::default() };
        let definition = Definition { action: Action::Run(run).into(), ..definition(1) };
        let lrp = fixtures::lrp_of(&format!("p{number}"), "d", 1, definition);
        scene.decide(&format!("p{number}"), &process::Command::Desire(Box::new(lrp)));
    }
    let handed = performs(scene.turn());
    assert_eq!(handed.iter().map(|(_, perform)| perform.work.len()).sum::<usize>(), 30);
    let sizes =
        handed.iter().map(|(_, perform)| schemas::codec::encode(schemas::codec::Form::Json, perform).len());
    assert!(sizes.max() <= Some(limits::MESSAGE_BYTES));
    assert_eq!(handed.len(), 4, "as few messages as possible");
}

#[test]
fn recovered_cell_gets_blocked_work() {
    let mut scene = Scene::leading(&[("c1", "z1"), ("c2", "z1")]);
    scene.cell_event("c1", cell::Event::Unhealthy { reason: "disk".into() });
    scene.cell_event("c2", cell::Event::Evacuating {});
    scene.desire("p", 1, 100);
    let error = "unable to communicate to compatible cells".to_owned();
    assert_eq!(errors(scene.turn()), [(error, 1)].into());
    scene.cell_event("c1", cell::Event::Healthy {});
    assert_eq!(only(performs(scene.turn())).0.as_str(), "c1");
}

#[test]
fn unplaceable_task_fails_unless_it_may_wait() {
    let mut scene = Scene::leading(&[("c1", "z1")]);
    scene.desire_task("now", 5_000, Placement::Fail);
    scene.desire_task("later", 5_000, Placement::Queue { deadline_ms: 60_000 });
    let (id, told) = only(outcomes(scene.turn()));
    assert_eq!(told.outcomes.len(), 2);
    scene.record_outcomes(id, told);
    let state = |scene: &Scene, id: &str| {
        scene.auctioneer.world().task(&TaskGuid::new(id).unwrap()).unwrap().state_name()
    };
    assert_eq!((state(&scene, "now"), state(&scene, "later")), ("COMPLETED", "PENDING"));
    assert_eq!((scene.counts().open, scene.counts().blocked, scene.counts().outgoing), (1, 1, 0));
}

#[test]
fn unaccepted_outcome_is_reported_again() {
    let mut scene = Scene::leading(&[("c1", "z1")]);
    scene.desire_task("t", 5_000, Placement::Fail);
    let (id, _) = only(outcomes(scene.turn()));
    scene.step(Input::OutcomesAnswered { id, answer: None });
    assert_eq!(outcomes(scene.turn()), []);
    let (id, _) = only(outcomes(scene.advance(SECOND * 2)));
    let refusal = Refusal::new(Code::Unavailable, "does not lead");
    scene.step(Input::OutcomesAnswered { id, answer: Some(Err(refusal)) });
    assert_eq!(outcomes(scene.advance(SECOND * 2)).len(), 1);
}

#[test]
fn error_without_compatible_cells_names_reason() {
    let mut scene = Scene::leading(&[]);
    scene.desire("none", 1, 1);
    assert_eq!(errors(scene.turn()), [].into(), "a cell may still appear");
    assert_eq!(
        errors(scene.advance(Duration::from_secs(6))),
        [("found no compatible cells".to_owned(), 1)].into()
    );
    scene.cell("w", "z1", "windows");
    scene.send_heartbeat("w", mib(CELL_MIB), 0);
    scene.desire("p", 1, 1);
    assert_eq!(errors(scene.turn()), [("found no compatible cells: stack".to_owned(), 1)].into());
}

#[test]
fn instances_spread_over_zones_and_cells_across_turns() {
    let mut scene = Scene::leading(&[("c1", "z1"), ("c2", "z1"), ("c3", "z2"), ("c4", "z2")]);
    scene.desire("p", 2, 10);
    let first = performs(scene.turn());
    let zone = |cell: &CellId| if *cell < cell_id("c3") { "z1" } else { "z2" };
    assert_eq!(first.iter().map(|(cell, _)| zone(cell)).collect::<Vec<_>>(), ["z1", "z2"]);
    // One of the two instances is claimed, and the other is handed out but not claimed yet. The next two
    // instances are placed on the other cells.
    scene.claim(first[0].0.as_str(), &first[0].1.work[0]);
    let update = schemas::definition::DesiredLrpUpdate { instances: Some(4), ..Default::default() };
    scene.decide("p", &process::Command::Update(update));
    let second = performs(scene.turn());
    let cells: BTreeSet<&CellId> = first.iter().chain(&second).map(|(cell, _)| cell).collect();
    assert_eq!((second.len(), cells.len()), (2, 4));
}

#[test]
fn work_of_lost_cell_is_placed_again_immediately() {
    let mut scene = Scene::leading(&[("c1", "z1"), ("c2", "z1")]);
    scene.desire("p", 1, 100);
    let (first, _) = only(performs(scene.turn()));
    scene.cell_event(first.as_str(), cell::Event::Disappeared { reason: "silent".into() });
    let (second, _) = only(performs(scene.turn()));
    assert_ne!(first, second);
    // A restarted rep has lost the work that it had received.
    scene.cell(second.as_str(), "z1", "linux");
    scene.send_heartbeat(second.as_str(), mib(CELL_MIB), 0);
    let (third, perform) = only(performs(scene.turn()));
    assert_eq!((third, perform.id.number), (second, 2));
}

#[test]
fn heartbeat_before_registration_counts_after_it() {
    let mut scene = Scene::leading(&[]);
    scene.desire("p", 1, 100);
    scene.turn();
    let incarnation = Incarnation(scene.ids.next(scene.now));
    scene.incarnations.insert(cell_id("c1"), incarnation);
    scene.send_heartbeat("c1", mib(CELL_MIB), 0);
    assert_eq!(performs(scene.turn()), []);
    scene.cell_event("c1", cell::Event::Appeared(presence(incarnation, "z1", "linux")));
    assert_eq!(performs(scene.turn()).len(), 1);
}

#[test]
fn removed_work_is_dropped() {
    let mut scene = Scene::leading(&[("c1", "z1")]);
    scene.desire("p", 3, 600);
    let (id, _) = only(outcomes(scene.turn()));
    scene.step(Input::OutcomesAnswered { id, answer: Some(Ok(done())) });
    assert_eq!((scene.counts().handed_out, scene.counts().blocked), (1, 2));
    scene.decide("p", &process::Command::Remove);
    assert_eq!((scene.counts().open, scene.counts().performs), (0, 1));
    // The `Perform` gets no answer. The `Perform` times out, and the resources of its work are free again.
    scene.advance(SECOND * 11);
    assert_eq!(scene.counts(), Counts::default());
    scene.send_heartbeat("c1", mib(CELL_MIB), 0);
    scene.desire("q", 1, 900);
    assert_eq!(performs(scene.turn()).len(), 1);
}

#[test]
fn crash_starts_new_attempt() {
    let mut scene = Scene::leading(&[("c1", "z1")]);
    scene.desire("p", 1, 100);
    let (_, perform) = only(performs(scene.turn()));
    let by = Instance { instance_guid: InstanceGuid(scene.ids.next(scene.now)), cell_id: cell_id("c1") };
    let work = &perform.work[0];
    let WorkKey::Lrp { key, epoch } = &work.key else { panic!("{work:?}") };
    let report = |steps| Report {
        domain: domain(),
        place: key.place.clone(),
        epoch: *epoch,
        by: by.clone(),
        observed_at: schemas::Timestamp(u64::MAX),
        steps,
    };
    let start = ReportStep::Actual(Lrp::Start { net: NetInfo::default(), isolation: Isolation::NONE });
    let crash = ReportStep::Actual(Lrp::Crash { reason: "exit 1".into(), exit_status: Some(1) });
    scene.decide("p", &process::Command::Report(report(vec![start])));
    assert_eq!(scene.counts().open, 0);
    scene.decide("p", &process::Command::Report(report(vec![crash])));
    let (_, again) = only(performs(scene.turn()));
    assert_eq!(again.work[0].key, work.key);
    assert!(again.work[0].attempt > work.attempt);
}

#[test]
fn ten_thousand_instances_use_bounded_messages_and_leave_no_state() {
    let cells: Vec<String> = (0..10).map(|number| format!("c{number}")).collect();
    let named: Vec<(&str, &str)> = cells.iter().map(|id| (id.as_str(), "z1")).collect();
    let mut scene = Scene::leading(&named);
    let large = Resources { memory_mb: CELL_MIB, disk_mb: 10_000, containers: 100, ports: 100 };
    for id in &cells {
        scene.send_heartbeat(id, large, 0);
    }
    scene.desire("p", limits::INSTANCES, 1);
    let mut effects = scene.turn();
    effects.extend(scene.turn());
    let (handed, told) = (performs(effects.clone()), outcomes(effects));
    assert_eq!(handed.iter().map(|(_, perform)| perform.work.len()).sum::<usize>(), 10 * 100);
    for (_, perform) in &handed {
        assert!(perform.work.len() <= limits::BATCH);
        let bytes = schemas::codec::encode(schemas::codec::Form::Json, perform);
        assert!(bytes.len() <= limits::MESSAGE_BYTES, "{}", bytes.len());
    }
    let mut unplaced = 0;
    let messages = told.len();
    for (id, outcomes) in told {
        let bytes = schemas::codec::encode(schemas::codec::Form::Json, &outcomes);
        assert!(bytes.len() <= limits::MESSAGE_BYTES, "{}", bytes.len());
        unplaced += outcomes
            .outcomes
            .iter()
            .map(|outcome| match outcome {
                PlacementOutcome::Lrp { outcome, .. } => outcome.unplaced.len(),
                PlacementOutcome::Task { .. } => 0,
            })
            .sum::<usize>();
        scene.record_outcomes(id, outcomes);
    }
    assert_eq!((unplaced, messages), (9_000, 7), "as few messages as possible");
    assert_eq!((scene.counts().handed_out, scene.counts().blocked), (1_000, 9_000));
    for (cell, perform) in handed {
        scene.answer(&cell, perform.id, Some(Ok(PerformReply { refused: vec![] })));
        for work in &perform.work {
            scene.claim(cell.as_str(), work);
        }
    }
    scene.decide("p", &process::Command::Remove);
    for id in &cells {
        scene.send_heartbeat(id, mib(CELL_MIB), 1);
    }
    scene.turn();
    assert_eq!(scene.counts(), Counts::default());
}

#[test]
fn hand_outs_stay_within_outstanding_limit() {
    let mut scene = Scene::leading_many(20);
    scene.desire("p", limits::INSTANCES, 1);
    scene.desire("q", limits::INSTANCES, 1);
    let most = Settings::default().outstanding;
    let work =
        |handed: &[(CellId, Perform)]| handed.iter().map(|(_, perform)| perform.work.len()).sum::<usize>();
    let first = performs(scene.turn());
    assert_eq!(work(&first), most);
    assert_eq!((performs(scene.turn()), scene.counts().ready), (vec![], most));
    assert!(scene.auctioneer.alarm().unwrap() > scene.now, "nothing is due before work is claimed");
    let mut claims = first.iter().flat_map(|(cell, perform)| perform.work.iter().map(move |one| (cell, one)));
    for (cell, one) in claims.by_ref().take(most / 2 - 1) {
        scene.claim(cell.as_str(), one);
    }
    assert_eq!(performs(scene.turn()), [], "the auction waits until it can place more than one");
    for (cell, one) in claims.by_ref().take(1) {
        scene.claim(cell.as_str(), one);
    }
    assert_eq!(work(&performs(scene.turn())), most / 2);
    assert_eq!(scene.counts().handed_out, most);
    // If the cell does not answer, work that is not claimed times out.
    let later = performs(scene.advance(Settings::default().hand_out_timeout));
    assert!(work(&later) > 0);
}

#[test]
fn large_batch_for_one_cell_is_split_into_messages() {
    let mut scene = Scene::leading(&[("c1", "z1")]);
    let room = Resources { memory_mb: CELL_MIB, disk_mb: 10_000, containers: 1_000, ports: 100 };
    scene.resize_cell("c1", room);
    let instances = 2 * limits::BATCH + 1;
    scene.desire("p", u32::try_from(instances).unwrap(), 0);
    let handed = performs(scene.turn());
    let numbers: Vec<(u64, usize)> =
        handed.iter().map(|(_, perform)| (perform.id.number, perform.work.len())).collect();
    assert_eq!(numbers, [(1, limits::BATCH), (2, limits::BATCH)], "the cell has no room for more");
    let all: BTreeSet<_> =
        handed.iter().flat_map(|(_, perform)| &perform.work).map(|work| &work.key).collect();
    assert_eq!(all.len(), 2 * limits::BATCH);
}

#[test]
fn same_inputs_give_same_effects() {
    let run = || {
        let mut scene = Scene::leading(&[("c1", "z1"), ("c2", "z2"), ("c3", "z2")]);
        for number in 0..40 {
            scene.desire(&format!("p{number}"), number % 5, 7 * u64::from(number));
            scene.desire_task(&format!("t{number}"), u64::from(number), Placement::Fail);
        }
        let mut effects = scene.turn();
        effects.extend(scene.advance(SECOND * 40));
        effects
    };
    assert_eq!(run(), run());
}

/// Returns an evaluation whose work was handed out and that is not settled.
fn pending(scene: &Scene, process: &str) -> Evaluation {
    scene.auctioneer.world().process(&guid(process)).unwrap().open_evaluation(Duty::Place).unwrap()
}

#[test]
fn leases_are_reported_until_evaluation_is_settled() {
    let mut scene = Scene::leading(&[("c1", "z1")]);
    scene.desire("p", 2, 100);
    let (cell, perform) = only(performs(scene.turn()));
    let evaluation = pending(&scene, "p");
    let named = |scene: &Scene| {
        scene.leases.iter().map(|lease| (lease.evaluation, lease.delivery)).collect::<Vec<_>>()
    };
    assert_eq!(named(&scene), [(evaluation.id, 1)]);
    scene.answer(&cell, perform.id, Some(Ok(PerformReply { refused: vec![] })));
    scene.send_heartbeat("c1", mib(CELL_MIB - 200), 1);
    scene.claim("c1", &perform.work[0]);
    scene.advance(SECOND * 21);
    assert_eq!(named(&scene), [(evaluation.id, 1); 2], "repeated while some of its work is not claimed");
    scene.claim("c1", &perform.work[1]);
    scene.advance(SECOND * 60);
    assert_eq!(scene.leases.len(), 2, "the evaluation is settled");
}

#[test]
fn redelivered_work_waits_until_due() {
    let mut scene = Scene::leading(&[("c1", "z1")]);
    scene.desire("p", 1, 100);
    let evaluation = pending(&scene, "p").id;
    scene.decide("p", &process::Command::Unanswered { evaluation, delivery: 1 });
    assert_eq!(performs(scene.turn()), []);
    assert_eq!(performs(scene.advance(SECOND / 2)), []);
    assert_eq!(performs(scene.advance(SECOND)).len(), 1);
    assert_eq!(scene.leases.last().map(|lease| lease.delivery), Some(2));
    for delivery in [2, 3] {
        scene.decide("p", &process::Command::Unanswered { evaluation, delivery });
    }
    let follow_up = pending(&scene, "p");
    assert_eq!(follow_up.previous, Some(evaluation));
    assert_eq!(performs(scene.advance(SECOND * 59)), []);
    scene.send_heartbeat("c1", mib(CELL_MIB), 1);
    assert_eq!(performs(scene.advance(SECOND * 2)).len(), 1);
    assert_eq!(scene.leases.last().map(|lease| lease.evaluation), Some(follow_up.id));
}

#[test]
fn blocked_evaluation_is_retried_immediately_on_request() {
    let mut scene = Scene::leading(&[("c1", "z1")]);
    scene.desire("p", 1, 100_000);
    let (id, told) = only(outcomes(scene.turn()));
    scene.record_outcomes(id, told);
    scene.turn();
    assert_eq!(scene.counts().blocked, 1);
    let world = scene.auctioneer.world();
    let blocked = world.process(&guid("p")).unwrap().open_evaluation(Duty::Unblock).unwrap().id;
    scene.decide("p", &process::Command::Retry(blocked));
    assert_eq!((scene.counts().blocked, scene.counts().ready), (0, 1));
}

/// Work that must not run beside its siblings is retried as soon as a sibling ends, on any cell.
#[test]
fn crowded_instance_gets_place_of_ended_sibling() {
    let mut scene = Scene::leading(&[("c1", "z1"), ("c2", "z1")]);
    let rule = Rule { attribute: None, operator: Operator::DistinctCell, value: String::new().into() };
    let rules = Rules { constraints: vec![rule], ..Rules::default() };
    let constraint = Constraint { rules: Some(Box::new(rules)), ..constraint() };
    let definition = Definition { constraint: constraint.into(), ..definition(100) };
    let lrp = fixtures::lrp_of("p", "d", 3, definition);
    scene.decide("p", &process::Command::Desire(Box::new(lrp)));
    let effects = scene.turn();
    let given = performs(effects.clone());
    assert_eq!(given.len(), 2);
    for (cell, perform) in &given {
        scene.answer(cell, perform.id, Some(Ok(PerformReply { refused: vec![] })));
        scene.claim(cell.as_str(), &perform.work[0]);
    }
    let (id, told) = only(outcomes(effects));
    scene.record_outcomes(id, told);
    assert_eq!((scene.counts().blocked, performs(scene.turn())), (1, vec![]));
    let (cell, perform) = &given[1];
    let WorkKey::Lrp { key, .. } = &perform.work[0].key else { panic!("{perform:?}") };
    scene.decide("p", &process::Command::Retire { index: key.place.index, definition_id: None });
    let (again, perform) = only(performs(scene.turn()));
    assert_eq!((&again, perform.work.len()), (cell, 1));
}

/// An evaluation is given up after refusals in five auctions, without a placement between the refusals. Work
/// that only one cell may run is not sent to this cell again and again.
#[test]
fn attempts_count_per_auction_and_reset_on_progress() {
    let mut scene = Scene::leading(&[("c1", "z1"), ("c2", "z1")]);
    scene.desire("p", 3, 100);
    let evaluation = pending(&scene, "p").id;
    let refuse_all = |scene: &mut Scene, but: Option<u32>| {
        let effects = scene.turn();
        assert_eq!(outcomes(effects.clone()), [], "the evaluation is not given up yet");
        let given = performs(effects);
        for (cell, perform) in &given {
            let keeps =
                |work: &Work| matches!(&work.key, WorkKey::Lrp { key, .. } if Some(key.place.index) == but);
            let places = (0..).zip(&perform.work).filter(|(_, work)| !keeps(work));
            let refused = places.map(|(at, _)| (at, "insufficient resources: memory".to_owned())).collect();
            scene.answer(cell, perform.id, Some(Ok(PerformReply { refused })));
            for work in perform.work.iter().filter(|work| keeps(work)) {
                scene.claim(cell.as_str(), work);
            }
        }
        given.len()
    };
    for but in [None, None, None, Some(0), None, None, None, None] {
        assert!(refuse_all(&mut scene, but) > 0, "{but:?}");
    }
    assert!(refuse_all(&mut scene, None) > 0);
    let (id, told) = only(outcomes(scene.turn()));
    let PlacementOutcome::Lrp { outcome, .. } = &told.outcomes[0] else { panic!("{told:?}") };
    assert!(
        outcome.attempts_exhausted && outcome.unplaced.len() == 2 && outcome.evaluation == evaluation,
        "{outcome:?}"
    );
    scene.record_outcomes(id, told);
    let world = scene.auctioneer.world();
    let blocked = world.process(&guid("p")).unwrap().open_evaluation(Duty::Unblock).unwrap();
    assert_eq!((blocked.trigger, blocked.previous), (Trigger::Attempts, Some(evaluation)));
}
