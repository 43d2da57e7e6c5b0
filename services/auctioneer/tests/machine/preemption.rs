//! Tests of preemption. If an operator has enabled preemption, work of lower priority stops to free resources
//! for waiting work. The stopped work is called a victim.

use std::time::Duration;

use auctioneer::{Effect, Input};
use machines::actual::State;
use schemas::actual::Command as Lrp;
use schemas::cluster;
use schemas::container::WorkKey;
use schemas::definition::Placement;
use schemas::entry::{Aggregate, Event};
use schemas::message::Outcomes;
use schemas::preemption::Eviction;
use schemas::process::{Command, Report, ReportStep};

use crate::scene::{Scene, domain, errors, guid, mib, only, outcomes, performs};

impl Scene {
    fn set_preemption(&mut self, enabled: bool) {
        let event = Event::Cluster(cluster::Event::PreemptionSwitched { enabled });
        self.record(Aggregate::Cluster, vec![event]);
    }

    /// Runs instances of these sizes and priorities on a cell, one after the other. Afterwards, reports
    /// `free` MB as free.
    fn fill(&mut self, cell: &str, work: &[(&str, u64, u8)], free: u64) {
        for (process, memory, priority) in work {
            self.desire_at(process, *memory, *priority);
            let performs = performs(self.turn());
            let given = performs.into_iter().flat_map(|(_, perform)| perform.work);
            given.collect::<Vec<_>>().iter().for_each(|work| self.claim(cell, work));
        }
        self.send_heartbeat(cell, mib(free), 100);
    }

    /// Runs a turn (one round of placement) and returns the victims and the placement errors. The BBS records
    /// the outcomes. If `recorded` is set, the BBS also records the evictions.
    fn take_evictions(&mut self, recorded: bool) -> (Vec<String>, Vec<String>) {
        let effects = self.turn();
        let told = outcomes(effects.clone());
        let evictions: Vec<Eviction> = told.iter().flat_map(|(_, told)| told.evictions.clone()).collect();
        let said = errors(effects).into_keys().collect();
        told.into_iter().for_each(|(id, told)| self.record_outcomes(id, told));
        for eviction in evictions.iter().filter(|_| recorded) {
            let WorkKey::Lrp { key, .. } = &eviction.victim else { continue };
            self.decide(key.process_guid.as_str(), &Command::Evict(Box::new(eviction.clone())));
        }
        (evictions.iter().map(|one| one.victim.to_string()).collect(), said)
    }

    /// Reports that the container of an instance has ended.
    fn end_instance(&mut self, process: &str) {
        let known = self.auctioneer.world().process(&guid(process)).unwrap();
        let place = fixtures::place(0, process);
        let by = known.actual(&place).unwrap().holder().unwrap().clone();
        let steps = vec![ReportStep::Actual(Lrp::Remove)];
        let (epoch, observed_at) = (known.epoch, schemas::Timestamp(u64::MAX));
        let report = Report { domain: domain(), place, epoch, by, observed_at, steps };
        self.decide(process, &Command::Report(report));
    }
}

/// Returns a scene with one full cell that has three instances. 900 MB are used and 100 MB are free. Work
/// with a priority of 80 or more outranks some of the instances.
fn full() -> Scene {
    let mut scene = Scene::leading(&[("c1", "z1")]);
    // A new leader waits before its first preemption.
    scene.advance(Duration::from_secs(10));
    scene.fill("c1", &[("low", 300, 20), ("lower", 300, 10), ("near", 300, 75)], 100);
    scene
}

#[test]
fn disabled_preemption_stops_nothing() {
    let mut scene = full();
    scene.desire_at("urgent", 400, 80);
    assert_eq!(scene.take_evictions(true), (vec![], vec!["insufficient resources: memory".to_owned()]));
    // Enabling preemption makes the auctioneer try waiting work immediately.
    scene.set_preemption(true);
    assert_eq!(scene.take_evictions(true).0, ["lower/0"]);
    scene.set_preemption(false);
    scene.desire_at("another", 400, 90);
    assert_eq!(scene.take_evictions(true).0, Vec::<String>::new());
}

#[test]
fn preemptor_gets_room_of_fewest_and_lowest_victims() {
    let mut scene = full();
    scene.set_preemption(true);
    scene.desire_at("urgent", 700, 80);
    let error = "insufficient resources: memory; room is being made on c1".to_owned();
    assert_eq!(scene.take_evictions(true), (vec!["lower/0".to_owned(), "low/0".to_owned()], vec![error]));
    // The victims still fit on their old cell, but they are not placed there before the preempting work.
    scene.end_instance("lower");
    scene.send_heartbeat("c1", mib(400), 100);
    assert!(scene.dispatched().is_empty());
    scene.end_instance("low");
    assert!(scene.dispatched().is_empty(), "no heartbeat has reported the room yet");
    scene.send_heartbeat("c1", mib(700), 100);
    assert_eq!(scene.dispatched(), ["urgent/0"]);
}

#[test]
fn error_of_refused_work_names_cell_of_reserved_room() {
    let mut scene = full();
    scene.set_preemption(true);
    scene.desire_at("urgent", 400, 80);
    assert_eq!(scene.take_evictions(true).0, ["lower/0"]);
    scene.cell("c2", "z1", "linux");
    scene.send_heartbeat("c2", mib(400), 100);
    for _ in 0..5 {
        let (cell, perform) = only(performs(scene.turn()));
        assert_eq!(cell.as_str(), "c2");
        scene.refuse(&cell, &perform, "no image");
    }
    let error = "no image; room is being made on c1".to_owned();
    assert_eq!(errors(scene.turn()), [(error, 1)].into());
    scene.send_heartbeat("c2", mib(0), 100);
    scene.desire_at("later", 100, 20);
    assert!(scene.dispatched().is_empty(), "the room stays reserved");
    scene.end_instance("lower");
    scene.send_heartbeat("c1", mib(400), 100);
    assert_eq!(scene.dispatched(), ["urgent/0"]);
}

#[test]
fn higher_priority_takes_freed_room_without_second_eviction() {
    let mut scene = full();
    scene.set_preemption(true);
    scene.desire_at("urgent", 400, 80);
    assert_eq!(scene.take_evictions(true).0, ["lower/0"]);
    scene.end_instance("lower");
    scene.desire_at("most", 400, 100);
    scene.send_heartbeat("c1", mib(400), 100);
    assert_eq!(scene.dispatched(), ["most/0"]);
    let later: Vec<Effect> = scene.advance(Duration::from_secs(20));
    assert!(
        outcomes(later).iter().all(|(_, told)| told.evictions.is_empty()),
        "the preemptor waits before it evicts again"
    );
}

#[test]
fn new_leader_derives_reservations_from_log() {
    let mut scene = full();
    scene.set_preemption(true);
    scene.desire_at("urgent", 700, 80);
    assert_eq!(scene.take_evictions(true).0.len(), 2);
    scene.elect("other", 2);
    scene.elect("a", 3);
    scene.send_heartbeat("c1", mib(100), 0);
    assert_eq!(scene.take_evictions(true).0, Vec::<String>::new());
    scene.end_instance("lower");
    scene.send_heartbeat("c1", mib(400), 0);
    assert!(scene.dispatched().is_empty(), "the room stays reserved");
}

#[test]
fn new_leader_evicts_nothing_until_settled() {
    let mut scene = full();
    scene.set_preemption(true);
    scene.desire_at("urgent", 400, 80);
    assert_eq!(scene.take_evictions(true).0, ["lower/0"]);
    scene.elect("other", 2);
    scene.end_instance("lower");
    scene.elect("a", 3);
    // This heartbeat was created before the container ended.
    scene.send_heartbeat("c1", mib(100), 0);
    assert_eq!(scene.take_evictions(true).0, Vec::<String>::new());
    scene.send_heartbeat("c1", mib(400), 0);
    assert_eq!(scene.dispatched(), ["urgent/0"]);
    // Work that still does not fit is tried again after the settling time.
    scene.desire_at("another", 300, 80);
    assert_eq!(scene.take_evictions(true).0, Vec::<String>::new());
    scene.advance(Duration::from_secs(5));
    scene.send_heartbeat("c1", mib(0), 100);
    let effects = scene.advance(Duration::from_secs(5));
    let victims = |told: &Outcomes| told.evictions.len();
    assert_eq!(outcomes(effects).iter().map(|(_, told)| victims(told)).sum::<usize>(), 1);
}

#[test]
fn recorded_eviction_counts_without_bbs_answer() {
    let mut scene = full();
    scene.set_preemption(true);
    scene.desire_at("urgent", 700, 80);
    let told = outcomes(scene.turn());
    // The BBS recorded one of two evictions and does not answer.
    let first = told.iter().flat_map(|(_, told)| &told.evictions).next().unwrap().clone();
    let WorkKey::Lrp { key, .. } = &first.victim else { panic!("the victim is an instance") };
    scene.decide(key.process_guid.as_str(), &Command::Evict(Box::new(first.clone())));
    for (id, _) in told {
        scene.step(Input::OutcomesAnswered { id, answer: None });
    }
    scene.end_instance(key.process_guid.as_str());
    scene.send_heartbeat("c1", mib(100), 100);
    let later = scene.advance(Duration::from_secs(5));
    assert!(
        outcomes(later).iter().all(|(_, told)| told.evictions.is_empty()),
        "the preemptor waits for the recorded eviction"
    );
}

/// Makes the auctioneer request an eviction on c1 and leaves the request unanswered. The auctioneer gives up
/// the eviction because the cell is cordoned. Returns the messages that the BBS may still record.
fn abandon_eviction(scene: &mut Scene) -> Vec<Outcomes> {
    scene.set_preemption(true);
    scene.desire_at("urgent", 400, 80);
    let told = outcomes(scene.turn());
    for (id, _) in &told {
        scene.step(Input::OutcomesAnswered { id: *id, answer: None });
    }
    scene.cell_event("c1", schemas::cell::Event::Cordoned {});
    scene.advance(Duration::from_secs(4));
    scene.send_heartbeat("c1", mib(100), 100);
    scene.turn();
    told.into_iter().map(|(_, told)| told).collect()
}

#[test]
fn eviction_recorded_after_give_up_keeps_reservation() {
    let mut scene = full();
    let told = abandon_eviction(&mut scene);
    scene.cell_event("c1", schemas::cell::Event::Uncordoned {});
    let eviction = told.iter().flat_map(|told| &told.evictions).next().unwrap().clone();
    scene.decide("lower", &Command::Evict(Box::new(eviction)));
    // The reservation includes the resources that are already free.
    scene.desire_at("later", 100, 20);
    assert!(scene.dispatched().is_empty(), "the room stays reserved");
    scene.end_instance("lower");
    scene.send_heartbeat("c1", mib(400), 100);
    assert_eq!(scene.dispatched(), ["urgent/0"]);
}

#[test]
fn error_recorded_after_give_up_is_evaluated_again() {
    let mut scene = full();
    for told in abandon_eviction(&mut scene) {
        scene.record_outcomes(0, told);
    }
    let known = scene.auctioneer.world().process(&guid("urgent")).unwrap();
    let state = &known.actual(&fixtures::place(0, "urgent")).unwrap().state;
    let said = "insufficient resources: memory; room is being made on c1";
    assert_eq!(*state, State::Unclaimed { placement_error: Some(said.into()) });
    assert_eq!(scene.take_evictions(true).1, ["unable to communicate to compatible cells: cordoned"]);
}

#[test]
fn unaccepted_eviction_is_chosen_again() {
    let mut scene = full();
    scene.set_preemption(true);
    scene.desire_at("urgent", 400, 80);
    assert_eq!(scene.take_evictions(false).0, ["lower/0"]);
    scene.send_heartbeat("c1", mib(100), 100);
    let effects = scene.advance(Duration::from_secs(31));
    let again: Vec<String> = outcomes(effects)
        .iter()
        .flat_map(|(_, told)| &told.evictions)
        .map(|one| one.victim.to_string())
        .collect();
    assert_eq!(again, Vec::<String>::new(), "the cell is silent");
    scene.send_heartbeat("c1", mib(100), 100);
    assert_eq!(scene.take_evictions(true).0, ["lower/0"]);
}

#[test]
fn task_that_may_not_wait_preempts_nothing() {
    let mut scene = full();
    scene.set_preemption(true);
    scene.desire_task("job", 400, Placement::Fail);
    assert_eq!(scene.take_evictions(true).0, Vec::<String>::new());
}

#[test]
fn work_waiting_for_cordoned_cell_preempts_on_another_cell() {
    let mut scene = Scene::leading(&[("c1", "z1"), ("c2", "z1")]);
    scene.advance(Duration::from_secs(10));
    scene.send_heartbeat("c2", mib(0), 100);
    scene.fill("c1", &[("low", 900, 20)], 0);
    scene.send_heartbeat("c1", mib(0), 100);
    scene.send_heartbeat("c2", mib(900), 100);
    scene.fill("c2", &[("higher", 900, 30)], 0);
    scene.set_preemption(true);
    scene.desire_at("urgent", 900, 80);
    assert_eq!(scene.take_evictions(true).0, ["low/0"]);
    scene.end_instance("low");
    scene.cell_event("c1", schemas::cell::Event::Cordoned {});
    scene.advance(Duration::from_secs(9));
    scene.send_heartbeat("c1", mib(900), 100);
    scene.send_heartbeat("c2", mib(0), 100);
    // The work is tried again after at most 30 s.
    let mut victims = vec![];
    for _ in 0..5 {
        let told = outcomes(scene.advance(Duration::from_secs(5)));
        let of = told.iter().flat_map(|(_, told)| &told.evictions).map(|one| one.victim.to_string());
        victims.extend(of);
        scene.send_heartbeat("c1", mib(900), 100);
        scene.send_heartbeat("c2", mib(0), 100);
    }
    assert_eq!(victims, ["higher/0"]);
}
