//! What auctioneers say, and how long it counts.

use bbs::{Ask, Input, Reply};
use schemas::cluster::Role;
use schemas::evaluation::Duty;
use schemas::message::{Alive, Lead, Outcomes, PlacementOutcome, Program, Standing};
use schemas::names::ServiceId;
use schemas::process::{Outcome, Unplaced};
use schemas::{Code, Position};

use crate::scene::{Fate, Scene};
use crate::words;

fn auctioneer(name: &str) -> ServiceId {
    ServiceId::new(name).unwrap()
}

fn elect(scene: &mut Scene, name: &str, term: u64) {
    let token = scene.ask(0, Ask::Lead(Lead { id: auctioneer(name), term }));
    assert!(matches!(scene.answers[&token], Reply::Done(Ok(_))), "{:?}", scene.answers[&token]);
}

/// No cell takes the first instance of web, says an auctioneer.
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
            used_up: false,
            explanation: None,
        },
    };
    let outcomes = Outcomes { id: auctioneer(name), term, leases: vec![], outcomes: vec![outcome] };
    scene.ask(0, Ask::Outcomes(outcomes))
}

#[test]
fn an_outcome_that_waits_to_be_decided_counts_only_while_its_auctioneer_leads() {
    for (next, term, counts) in [(None, 1, 1), (Some("a2"), 2, 0), (Some("a1"), 2, 0)] {
        let mut scene = Scene::with(1, &["c1"]);
        elect(&mut scene, "a1", 1);
        scene.client(0, words::lrp("web", 1));
        // While an entry of the process's shard is in flight, the outcome waits.
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

#[test]
fn an_auctioneer_that_beats_is_shown_with_where_it_stands() {
    let mut scene = Scene::with(1, &["c1"]);
    assert_eq!(scene.cluster(0).services.rows.len(), 1, "the BBS itself");
    let id = auctioneer("a");
    let standing = Standing { position: Position(1), term: 0, leads: false };
    let program = Program { version: "1".into(), ..Program::default() };
    scene.input(
        0,
        Input::Alive(Alive { id: id.clone(), role: Role::Auctioneer, program: program.clone(), standing }),
    );
    let row = scene.cluster(0).services.rows.pop().unwrap();
    assert_eq!((row.id, row.role, row.leads, row.program), (id, Role::Auctioneer, false, program));
    assert_eq!(row.position, Position(1));
}
