//! Logs that the simulation leaves, run on.

use std::collections::BTreeSet;
use std::time::Duration;

use projections::World;
use scenario::what_if::{self, Length, Move, Work, rolls};
use scenario::{Change, MASS_LOSS_WAIT, Message, Recording, decide};
use schemas::definition::DesiredLrp;
use schemas::names::{CellId, ProcessGuid};
use schemas::spec::Item;
use schemas::subject::{Position, Subject};
use schemas::{Code, Entry};
use simulation::cluster::Cluster;
use simulation::journal::{SimJournal, Stored};
use simulation::plan::Plan;
use simulation::rng::Rng;
use simulation::shape::START;

/// Returns the log of the first minute of a run.
fn log_of(plan: &Plan) -> Vec<Message> {
    let mut cluster = Cluster::new(plan);
    cluster.until(START + Duration::from_secs(60));
    messages(&cluster.journal)
}

fn messages(journal: &SimJournal) -> Vec<Message> {
    let all = (1..=journal.end().0).map(|position| journal.get(Position(position)).expect("it is there"));
    let message = |stored: &Stored| Message {
        subject: stored.subject.to_string(),
        entry: stored.entry,
        bytes: stored.bytes.clone(),
    };
    all.map(message).collect()
}

/// Time in which every rollout and evacuation ends.
const LONG: Duration = Duration::from_secs(30 * 60);

/// Returns a plan, with faults for every second seed.
fn plan(seed: u64) -> Plan {
    if seed.is_multiple_of(2) { Plan::calm(seed) } else { Plan::drawn(seed) }
}

/// Returns the recording of the first part of a log.
fn left(seed: u64, log: &[Message], turn: u64) -> Recording {
    let position = Position(1 + Rng::new(seed, 77 + turn).below(log.len() as u64));
    Recording::read(log.to_vec(), Some(position), MASS_LOSS_WAIT).expect("should succeed")
}

/// Returns the recording at rest.
fn rested(recording: &Recording) -> Recording {
    Recording::read(recording.at_rest(LONG).expect("should succeed"), None, MASS_LOSS_WAIT)
        .expect("should succeed")
}

/// Returns the recording of a run without faults, at rest.
fn calm(seed: u64) -> Recording {
    rested(&Recording::read(log_of(&Plan::calm(seed)), None, MASS_LOSS_WAIT).expect("should succeed"))
}

fn rest() -> Length {
    Length::Rest(LONG)
}

fn change(text: &str) -> Change {
    let read = Change::read(text, &mut |path| Err(path.to_owned()));
    read.expect("should succeed").expect("should succeed")
}

fn cell(id: &str) -> CellId {
    CellId::new(id).expect("should succeed")
}

/// Returns `true` for a move of an instance. Completed tasks disappear, and scheduled tasks appear.
fn is_of_an_instance(one: &&Move) -> bool {
    match one.what {
        Work::Instance { .. } => true,
        Work::Task(_) => false,
    }
}

/// Returns `true` for a move by a rollout. A rollout without room tries one index after the other.
fn is_of_a_rollout(world: &World, one: &Move) -> bool {
    match &one.what {
        Work::Instance { process, .. } => world.process(process).is_some_and(rolls),
        Work::Task(_) => false,
    }
}

#[test]
fn unchanged_cluster_stays_as_it_was() {
    for seed in 0..16 {
        let log = log_of(&plan(seed));
        for turn in 0..3 {
            let recording = left(seed, &log, turn);
            let rested = rested(&recording);
            let told = rested.what_if(&[], rest()).expect("should succeed");
            let stays = |one: &&Move| is_of_an_instance(one) && !is_of_a_rollout(rested.world(), one);
            let moves: Vec<_> = told.moves.iter().filter(stays).collect();
            assert!(moves.is_empty(), "seed {seed} at {}: {moves:?}", recording.position());
            assert!(told.fits && told.preempted.is_empty(), "seed {seed}: {told:?}");
        }
    }
}

/// Returns the desired instances that run on cells that stay.
fn settled(world: &World) -> BTreeSet<(ProcessGuid, u32, String)> {
    let mut all = BTreeSet::new();
    for process in world.processes_from(None) {
        let Some(desired) = &process.desired else { continue };
        let crowded = |index| process.slots_at(index).count() > 1;
        for slot in process.slots.iter() {
            let index = slot.place.index;
            let runs = slot.actual.as_ref().filter(|actual| actual.keeps_running());
            let Some(by) = runs.and_then(machines::actual::Actual::holder) else { continue };
            let stays =
                |cell: &machines::cell::Cell| cell.present && !cell.evacuating && !cell.evacuation_requested;
            let stays = world.cell(&by.cell_id).is_some_and(stays);
            if stays
                && desired.desires_index(index)
                && !rolls(process)
                && !crowded(index)
                && slot.evacuating.is_none()
            {
                all.insert((process.guid.clone(), index, by.instance_guid.to_string()));
            }
        }
    }
    all
}

#[test]
fn running_instances_keep_their_containers() {
    let mut seen = 0;
    for seed in 0..16 {
        let log = log_of(&plan(seed));
        for turn in 0..3 {
            let recording = left(seed, &log, turn);
            // Preemption may stop running instances.
            let preempts = recording.world().cluster().is_some_and(|cluster| cluster.preemption);
            let later = Recording::read(
                recording.at_rest(Duration::from_secs(20)).expect("should succeed"),
                None,
                MASS_LOSS_WAIT,
            );
            let (before, after) =
                (settled(recording.world()), running(later.expect("should succeed").world()));
            let lost: Vec<_> = before.difference(&after).collect();
            assert!(preempts || lost.is_empty(), "seed {seed} at {}: {lost:?}", recording.position());
            seen += before.len();
        }
    }
    assert!(seen > 100, "only {seen} instances ran");
}

fn running(world: &World) -> BTreeSet<(ProcessGuid, u32, String)> {
    let mut all = BTreeSet::new();
    for process in world.processes_from(None) {
        for slot in process.slots.iter() {
            let by = slot.actual.as_ref().and_then(machines::actual::Actual::holder);
            all.extend(by.map(|by| (process.guid.clone(), slot.place.index, by.instance_guid.to_string())));
        }
    }
    all
}

#[test]
fn instances_of_lost_cell_move_to_other_cells() {
    let mut moved = 0;
    for seed in [0, 2, 4, 8, 10, 12] {
        let recording = calm(seed);
        for lost in ["c1", "c2", "c3"].map(cell) {
            let told = recording.what_if(&[Change::Lose(lost.clone())], rest()).expect("should succeed");
            assert!(told.at_rest, "seed {seed}");
            for one in told.moves.iter().filter(is_of_an_instance) {
                let on = |spot: &Option<what_if::Spot>| spot.as_ref().and_then(|spot| spot.cell_id.clone());
                assert_ne!(on(&one.after), Some(lost.clone()), "{one:?}");
                // Other instances move only if a move frees or takes their room.
                let waited = one.before.as_ref().is_some_and(|spot| spot.cell_id.is_none());
                let was_there = on(&one.before) == Some(lost.clone());
                assert!(
                    was_there || waited || !told.preempted.is_empty() || one.anyway,
                    "seed {seed}: {one:?}"
                );
                let placed = one.after.as_ref().is_some_and(|spot| spot.state == "RUNNING");
                let unplaced = told.unplaced.iter().any(|unplaced| unplaced.what == one.what);
                let global = one.after.is_none();
                assert!(placed || unplaced || global || one.anyway, "seed {seed}: {one:?}");
                moved += usize::from(was_there && placed);
            }
            let gone =
                told.cells.iter().any(|change| change.cell_id == lost && change.after == Some("absent"));
            assert!(
                gone || recording.world().cell(&lost).is_none_or(|cell| !cell.present),
                "{:?}",
                told.cells
            );
        }
    }
    assert!(moved > 10, "only {moved} instances moved");
}

/// Returns a running process that is not global.
fn some_process(recording: &Recording) -> ProcessGuid {
    let runs = |process: &&machines::process::Process| {
        let counted =
            process.desired.as_ref().is_some_and(|desired| desired.cells.is_none() && desired.instances > 0);
        counted
            && process
                .slots
                .iter()
                .any(|slot| slot.actual.as_ref().is_some_and(machines::actual::Actual::keeps_running))
    };
    recording.world().processes_from(None).find(runs).expect("something runs").guid.clone()
}

#[test]
fn unplaced_instances_are_reported_with_reason() {
    let recording = calm(0);
    let web = some_process(&recording);
    let told = recording.what_if(&[Change::Scale(web.clone(), 500)], rest()).expect("should succeed");
    assert!(!told.fits && told.at_rest);
    let of_web = told.processes.iter().find(|one| one.process_guid == web).expect("should succeed");
    assert_eq!(of_web.desired.1, 500);
    assert!(of_web.running.1 >= of_web.running.0 && of_web.running.1 < 500, "{of_web:?}");
    let is_of_web = |one: &&what_if::Unplaced| match &one.what {
        Work::Instance { process, .. } => *process == web,
        Work::Task(_) => false,
    };
    let unplaced: Vec<_> = told.unplaced.iter().filter(is_of_web).collect();
    assert_eq!(u32::try_from(unplaced.len()), Ok(500 - of_web.running.1));
    for one in unplaced {
        assert!(one.error.starts_with("insufficient resources"), "{one:?}");
        assert!(one.explanation.as_ref().is_some_and(|why| !why.rejected.is_empty()), "{one:?}");
    }
    assert!(told.blocked.iter().any(|one| one.of == format!("process {web}")), "{:?}", told.blocked);
    // Everything fits on a larger cell.
    let room = change("add cell big memory=1000000 disk=1000000 containers=1000 ports=1000");
    let told = recording.what_if(&[room, Change::Scale(web, 500)], rest()).expect("should succeed");
    assert!(told.fits && told.unplaced.iter().all(|one| one.anyway), "{:?}", told.unplaced);
}

#[test]
fn start_times_equal_recorded_ones() {
    let recording = calm(0);
    let web = some_process(&recording);
    let start = recording.times().start(&web).time();
    let told = recording.what_if(&[Change::Restart(web.clone())], rest()).expect("should succeed");
    let of_web = told.processes.iter().find(|one| one.process_guid == web).expect("should succeed");
    let took = Duration::from_millis(of_web.all_running_after_ms.expect("should succeed"));
    assert!(took >= start, "{took:?} is less than one start of {start:?}");
    assert!(of_web.start_is_recorded && of_web.running.0 == of_web.running.1, "{of_web:?}");
}

#[test]
fn same_question_has_same_answer() {
    let recording = left(3, &log_of(&Plan::drawn(3)), 0);
    let ask = || {
        let changes = [change("lose cell c1"), change("wait 1m"), change("return cell c1")];
        recording.what_if(&changes, Length::Time(Duration::from_secs(2 * 60 * 60))).expect("should succeed")
    };
    let told = ask();
    assert_eq!(told.ran_ms, (60 + 2 * 60 * 60) * 1_000);
    assert_eq!(told, ask());
}

#[test]
fn refused_change_is_named() {
    let recording = calm(0);
    let refused = |text: &str| {
        let no = recording.what_if(&[change("wait 1s"), change(text)], rest()).unwrap_err();
        assert_eq!(no.change, Some(1));
        match no.why {
            what_if::Failed::Refused(refusal) => refusal.message,
            what_if::Failed::Unusable(why) => panic!("{why}"),
        }
    };
    assert_eq!(refused("scale missing=3"), "process missing does not exist");
    assert_eq!(refused("lose cell c99"), "cell c99 does not exist");
    assert!(refused("return cell c1").starts_with("cell c1 is there"));
    assert!(refused("add cell c1").starts_with("there is a cell c1 already"));
    assert!(refused("crash missing/0").contains("process missing does not exist"));
}

#[test]
fn decision_is_returned_as_stored_entry() {
    let recording = calm(0);
    let web = some_process(&recording);
    let decided = recording
        .decide(&decide::DecideRequest::Change(Change::Scale(web.clone(), 0)))
        .expect("should succeed");
    assert!(decided.answer.is_ok());
    let [(subject, bytes)] = &decided.entries[..] else { panic!("{decided:?}") };
    assert_eq!(*subject, Subject::of_process(&web, recording.world().shards()));
    assert_eq!(Entry::decode(bytes).expect("should succeed").decisions.len(), 1);
    let refused =
        recording.decide(&decide::DecideRequest::Change(change("delete missing"))).expect("should succeed");
    assert!(refused.answer.is_err() && refused.entries.is_empty());
}

fn desired(world: &World, guid: &ProcessGuid) -> DesiredLrp {
    let process = world.process(guid).expect("should succeed");
    process.desired.as_ref().expect("should succeed").project(guid, &process.domain).expect("should succeed")
}

#[test]
fn events_of_cells_are_not_decisions() {
    let recording = calm(0);
    let web = some_process(&recording);
    let crash = format!("crash {web}/0");
    for text in ["lose cell c1", "return cell c1", "add cell c9", &crash, "wait 1s"] {
        let why = decide::DecideRequest::change(change(text)).unwrap_err();
        assert!(why.contains("is no command") && why.contains("scale, priority,"), "{why}");
        let decided = recording.decide(&decide::DecideRequest::Change(change(text))).expect("should succeed");
        assert_eq!(decided.answer.unwrap_err().code, Code::InvalidRequest, "{text}");
    }
    assert!(decide::DecideRequest::change(Change::Scale(web, 1)).is_ok());
}

#[test]
fn decisions_before_refused_item_are_returned() {
    let recording = calm(0);
    let web = some_process(&recording);
    let lrp = desired(recording.world(), &web);
    let more = DesiredLrp { instances: lrp.instances + 1, ..lrp.clone() };
    let elsewhere =
        DesiredLrp { domain: schemas::names::Domain::new("elsewhere").expect("should succeed"), ..lrp };
    let both = Change::Apply(vec![Item::Lrp(Box::new(more)), Item::Lrp(Box::new(elsewhere))]);
    let decided = recording.decide(&decide::DecideRequest::Change(both)).expect("should succeed");
    assert!(decided.answer.is_err() && decided.entries.len() == 1, "{decided:?}");
}
