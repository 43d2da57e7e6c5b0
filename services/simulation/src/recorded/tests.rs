//! Logs that the simulation leaves, run on.

use std::collections::BTreeSet;
use std::time::Duration;

use schemas::Code;
use schemas::definition::{Definition, DesiredLrp};
use schemas::message::Envelope;
use schemas::names::{CellId, DefinitionId, ProcessGuid};
use schemas::policy::UpdateOrder;
use schemas::process::{Purpose, RolloutControl};
use schemas::rollout::Kind;
use schemas::spec::{ClientCommand, Item};

use super::replay::{Cause, CellSettings, NoReplay, ProcessSettings, Settings};
use super::stage::Stage;
use super::what_if::{Length, Move, Work, rolls};
use super::*;
use crate::cluster::{Cluster, START};
use crate::journal::SimJournal;
use crate::plan::Plan;
use crate::rng::Rng;

/// What a simulation recorded in its first minute.
fn log_of(plan: &Plan) -> Vec<Message> {
    let mut cluster = Cluster::new(plan);
    cluster.until(START + Duration::from_secs(60));
    messages(&cluster.journal)
}

fn messages(journal: &SimJournal) -> Vec<Message> {
    let all = (1..=journal.end().0).map(|position| journal.get(Position(position)).expect("it is there"));
    let message = |stored: &crate::journal::Stored| Message {
        subject: stored.subject.to_string(),
        entry: stored.entry,
        bytes: stored.bytes.clone(),
    };
    all.map(message).collect()
}

/// Long enough for every rollout and evacuation to end.
const LONG: Duration = Duration::from_secs(30 * 60);

/// Every other seed has faults.
fn plan(seed: u64) -> Plan {
    if seed.is_multiple_of(2) { Plan::calm(seed) } else { Plan::drawn(seed) }
}

/// A log that was left in the middle, and what runs on from there.
fn left(seed: u64, log: &[Message], turn: u64) -> Recording {
    let position = Position(1 + Rng::new(seed, 77 + turn).below(log.len() as u64));
    Recording::read(log.to_vec(), Some(position), MASS_LOSS_WAIT).unwrap()
}

/// The same, when all that was under way has ended.
fn rested(recording: &Recording) -> Recording {
    Recording::read(recording.at_rest(LONG).unwrap(), None, MASS_LOSS_WAIT).unwrap()
}

/// A rested cluster in which nothing went wrong, with something on a cell.
fn calm(seed: u64) -> Recording {
    rested(&Recording::read(log_of(&Plan::calm(seed)), None, MASS_LOSS_WAIT).unwrap())
}

fn rest() -> Length {
    Length::Rest(LONG)
}

fn change(text: &str) -> Change {
    let read = Change::read(text, &mut |path| Err(path.to_owned()));
    read.unwrap().unwrap()
}

fn cell(id: &str) -> CellId {
    CellId::new(id).unwrap()
}

/// What completed goes after a while, and what a schedule launches comes.
fn is_of_an_instance(one: &&Move) -> bool {
    match one.what {
        Work::Instance { .. } => true,
        Work::Task(_) => false,
    }
}

/// Whether it is of a rollout: one that finds no room tries one index after the other, without end.
fn is_of_a_rollout(world: &World, one: &Move) -> bool {
    match &one.what {
        Work::Instance { process, .. } => world.process(process).is_some_and(rolls),
        Work::Task(_) => false,
    }
}

#[test]
fn what_nobody_changes_stays_as_it_was() {
    for seed in 0..16 {
        let log = log_of(&plan(seed));
        for turn in 0..3 {
            let recording = left(seed, &log, turn);
            let rested = rested(&recording);
            let told = rested.what_if(&[], rest()).unwrap();
            let stays = |one: &&Move| is_of_an_instance(one) && !is_of_a_rollout(rested.world(), one);
            let moves: Vec<_> = told.moves.iter().filter(stays).collect();
            assert!(moves.is_empty(), "seed {seed} at {}: {moves:?}", recording.position());
            assert!(told.fits && told.preempted.is_empty(), "seed {seed}: {told:?}");
        }
    }
}

/// Instances that nothing is about to happen to: they run on a cell that stays, and are wanted.
fn settled(world: &World) -> BTreeSet<(ProcessGuid, u32, String)> {
    let mut all = BTreeSet::new();
    for process in world.processes_from(None) {
        let Some(desired) = &process.desired else { continue };
        let crowded = |index| process.slots_at(index).count() > 1;
        for slot in process.slots.iter() {
            let index = slot.place.index;
            let runs = slot.actual.as_ref().filter(|actual| actual.keeps_running());
            let Some(by) = runs.and_then(schemas::actual::Actual::holder) else { continue };
            let stays =
                |cell: &schemas::cell::Cell| cell.present && !cell.evacuating && !cell.evacuation_requested;
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
fn what_runs_when_a_log_is_left_runs_on_in_the_same_container() {
    let mut seen = 0;
    for seed in 0..16 {
        let log = log_of(&plan(seed));
        for turn in 0..3 {
            let recording = left(seed, &log, turn);
            // More urgent work may take the place of what runs, if that is allowed.
            let preempts = recording.world().cluster().is_some_and(|cluster| cluster.preemption);
            let later =
                Recording::read(recording.at_rest(Duration::from_secs(20)).unwrap(), None, MASS_LOSS_WAIT);
            let (before, after) = (settled(recording.world()), running(later.unwrap().world()));
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
            let by = slot.actual.as_ref().and_then(schemas::actual::Actual::holder);
            all.extend(by.map(|by| (process.guid.clone(), slot.place.index, by.instance_guid.to_string())));
        }
    }
    all
}

#[test]
fn what_runs_on_a_cell_that_is_lost_goes_elsewhere() {
    let mut moved = 0;
    for seed in [0, 2, 4, 8, 10, 12] {
        let recording = calm(seed);
        for lost in ["c1", "c2", "c3"].map(cell) {
            let told = recording.what_if(&[Change::Lose(lost.clone())], rest()).unwrap();
            assert!(told.at_rest, "seed {seed}");
            for one in told.moves.iter().filter(is_of_an_instance) {
                let on = |spot: &Option<what_if::Spot>| spot.as_ref().and_then(|spot| spot.cell_id.clone());
                assert_ne!(on(&one.after), Some(lost.clone()), "{one:?}");
                // Nothing else moves, but for a place that somebody else's move makes or takes.
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

/// A process that runs, and is not global.
fn some_process(recording: &Recording) -> ProcessGuid {
    let runs = |process: &&schemas::process::Process| {
        let counted =
            process.desired.as_ref().is_some_and(|desired| desired.cells.is_none() && desired.instances > 0);
        counted
            && process
                .slots
                .iter()
                .any(|slot| slot.actual.as_ref().is_some_and(schemas::actual::Actual::keeps_running))
    };
    recording.world().processes_from(None).find(runs).expect("something runs").guid.clone()
}

#[test]
fn what_does_not_fit_is_told_with_its_reason() {
    let recording = calm(0);
    let web = some_process(&recording);
    let told = recording.what_if(&[Change::Scale(web.clone(), 500)], rest()).unwrap();
    assert!(!told.fits && told.at_rest);
    let of_web = told.processes.iter().find(|one| one.process_guid == web).unwrap();
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
    // A cell with room for all makes it fit.
    let room = change("add cell big memory=1000000 disk=1000000 containers=1000 ports=1000");
    let told = recording.what_if(&[room, Change::Scale(web, 500)], rest()).unwrap();
    assert!(told.fits && told.unplaced.iter().all(|one| one.anyway), "{:?}", told.unplaced);
}

#[test]
fn starts_take_as_long_as_they_were_recorded_to() {
    let recording = calm(0);
    let web = some_process(&recording);
    let start = recording.times().start(&web).time();
    let told = recording.what_if(&[Change::Restart(web.clone())], rest()).unwrap();
    let of_web = told.processes.iter().find(|one| one.process_guid == web).unwrap();
    let took = Duration::from_millis(of_web.all_running_after_ms.unwrap());
    assert!(took >= start, "{took:?} is less than one start of {start:?}");
    assert!(of_web.start_is_recorded && of_web.running.0 == of_web.running.1, "{of_web:?}");
}

#[test]
fn the_same_question_has_the_same_answer() {
    let recording = left(3, &log_of(&Plan::drawn(3)), 0);
    let ask = || {
        let changes = [change("lose cell c1"), change("wait 1m"), change("return cell c1")];
        recording.what_if(&changes, Length::Time(Duration::from_secs(2 * 60 * 60))).unwrap()
    };
    let told = ask();
    assert_eq!(told.ran_ms, (60 + 2 * 60 * 60) * 1_000);
    assert_eq!(told, ask());
}

#[test]
fn a_change_that_is_refused_is_named() {
    let recording = calm(0);
    let refused = |text: &str| {
        let no = recording.what_if(&[change("wait 1s"), change(text)], rest()).unwrap_err();
        assert_eq!(no.change, Some(1));
        match no.why {
            what_if::Failed::Refused(refusal) => refusal.message,
            what_if::Failed::Unusable(why) => panic!("{why}"),
        }
    };
    assert_eq!(refused("scale nobody=3"), "process nobody does not exist");
    assert_eq!(refused("lose cell c99"), "cell c99 does not exist");
    assert!(refused("return cell c1").starts_with("cell c1 is there"));
    assert!(refused("add cell c1").starts_with("there is a cell c1 already"));
    assert!(refused("crash nobody/0").contains("process nobody does not exist"));
}

#[test]
fn a_decision_is_told_as_it_would_be_stored() {
    let recording = calm(0);
    let web = some_process(&recording);
    let decided = recording.decide(&decide::Asked::Change(Change::Scale(web.clone(), 0))).unwrap();
    assert!(decided.answer.is_ok());
    let [(subject, bytes)] = &decided.entries[..] else { panic!("{decided:?}") };
    assert_eq!(*subject, Subject::of_process(&web, recording.world().shards()));
    assert_eq!(Entry::decode(bytes).unwrap().decisions.len(), 1);
    let refused = recording.decide(&decide::Asked::Change(change("delete nobody"))).unwrap();
    assert!(refused.answer.is_err() && refused.entries.is_empty());
}

/// Whether an owner is being called: who begins there doesn't know how often it was called before.
fn calls(world: &World) -> bool {
    world.tasks_from(None).any(|task| matches!(task.state, Some(schemas::task::State::Resolving(_))))
}

#[test]
fn with_the_recorded_settings_a_replay_comes_to_what_was_recorded() {
    let (mut crashed, mut replays) = (0, 0);
    for seed in [0, 2, 4, 6, 8, 10, 12, 14] {
        let log = log_of(&Plan::calm(seed));
        let end = Position(log.len() as u64);
        for from in [0, 20, end.0 / 2] {
            let recording = Recording::read(log.clone(), Some(Position(from)), MASS_LOSS_WAIT).unwrap();
            if calls(recording.world()) {
                continue;
            }
            let told = recording.replay(end, &Settings::default()).unwrap();
            assert_eq!(told.differences, Vec::<String>::new(), "seed {seed} from {from}: {told:#?}");
            assert!(told.skipped.is_empty(), "seed {seed} from {from}: {:?}", told.skipped);
            crashed += told.replayed.processes.values().map(|of| of.crashes).sum::<u64>();
            replays += 1;
        }
    }
    assert!(crashed > 50 && replays > 12, "only {crashed} crashes in {replays} replays");
}

/// The cells that a log knows in the end.
fn cells_of(log: &[Message]) -> Vec<CellId> {
    let recording = Recording::read(log.to_vec(), None, MASS_LOSS_WAIT).unwrap();
    recording.world().cells().map(|(id, _)| id.clone()).collect()
}

#[test]
fn other_settings_come_to_something_else() {
    let crashes = |told: &replay::Figures| told.processes.values().map(|of| of.restarts).sum::<u64>();
    let mut fewer = 0;
    for seed in [0, 2, 4, 6, 8, 10] {
        let log = log_of(&Plan::calm(seed));
        let end = Position(log.len() as u64);
        let cells = cells_of(&log);
        let recording = Recording::read(log, Some(Position(0)), MASS_LOSS_WAIT).unwrap();
        let never = replay::Restart {
            condition: schemas::policy::RestartCondition::None,
            ..replay::Restart::default()
        };
        let told = recording.replay(end, &Settings { restart: Some(never), ..Default::default() }).unwrap();
        assert_eq!(crashes(&told.replayed), 0, "seed {seed}");
        fewer += crashes(&told.recorded);
        // Without memory nothing is placed.
        let small = CellSettings { memory_mb: Some(0), ..Default::default() };
        let cell = cells.into_iter().map(|id| (id, small.clone())).collect();
        let told = recording.replay(end, &Settings { cell, ..Default::default() }).unwrap();
        assert!(told.replayed.processes.values().all(|of| of.running == 0), "seed {seed}: {told:#?}");
        assert!(!told.differences.is_empty(), "seed {seed}");
    }
    assert!(fewer > 0, "nothing was restarted in the record");
}

/// What a run of a recording leaves behind in which this is done.
fn with(recording: &Recording, acts: impl FnOnce(&mut Stage<'_>)) -> Vec<Message> {
    let mut stage = Stage::new(recording);
    stage.until(recording.time() + what_if::SETTLING).unwrap();
    acts(&mut stage);
    stage.tape.messages().cloned().collect()
}

fn pass(stage: &mut Stage<'_>, seconds: u64) {
    stage.until(stage.now + Duration::from_secs(seconds)).unwrap();
}

/// The same log, to be replayed from where the other recording ends; and where it ends itself.
fn longer(recording: &Recording, log: Vec<Message>) -> (Recording, Position) {
    let end = Position(log.len() as u64);
    (Recording::read(log, Some(recording.position()), MASS_LOSS_WAIT).unwrap(), end)
}

/// A log from its beginning, and where it ends.
fn whole(seed: u64) -> (Recording, Position) {
    let log = log_of(&Plan::calm(seed));
    let end = Position(log.len() as u64);
    (Recording::read(log, Some(Position(0)), MASS_LOSS_WAIT).unwrap(), end)
}

fn desired(world: &World, guid: &ProcessGuid) -> DesiredLrp {
    let process = world.process(guid).unwrap();
    process.desired.as_ref().unwrap().project(guid, &process.domain).unwrap()
}

/// A process that runs another definition than it does, under this id.
fn another(lrp: &DesiredLrp, id: &str) -> DesiredLrp {
    let definition = Definition { cpu_weight: lrp.definition.cpu_weight + 1, ..(*lrp.definition).clone() };
    let definition_id = DefinitionId::new(id).unwrap();
    DesiredLrp { definition_id, definition: definition.into(), ..lrp.clone() }
}

fn apply(lrp: DesiredLrp) -> Change {
    Change::Apply(vec![Item::Lrp(Box::new(lrp))])
}

/// Another restart policy for one process: what is asked for it is one decision more than was recorded.
fn soon(guid: &ProcessGuid) -> Settings {
    let restart = replay::Restart { delay_ms: Some(100), ..Default::default() };
    let process = [(guid.clone(), ProcessSettings { restart: Some(restart) })].into();
    Settings { process, ..Default::default() }
}

fn commands(causes: &[(Timestamp, Cause)]) -> Vec<&ClientCommand> {
    let mut all = vec![];
    for (_, cause) in causes {
        if let Cause::Client(_, command) = cause {
            all.push(&**command);
        }
    }
    all
}

/// Why each rollout of a run began that was appended in it.
fn rollouts(stage: &Stage<'_>) -> Vec<(Kind, String)> {
    let events = stage.tape.appended().flat_map(|(_, entry)| entry.decisions).flat_map(|one| one.events);
    let started = |event| {
        let Event::Rollout(schemas::rollout::Event::Started { kind, reason, .. }) = event else {
            return None;
        };
        Some((kind, reason))
    };
    events.filter_map(started).collect()
}

fn an_index(world: &World, guid: &ProcessGuid) -> u32 {
    let slots = &world.process(guid).unwrap().slots;
    let runs =
        slots.iter().find(|slot| slot.actual.as_ref().is_some_and(schemas::actual::Actual::keeps_running));
    runs.expect("one runs").place.index
}

/// A log in which a process is replaced for this purpose, crashes twice, and goes back to what it was replaced by.
fn restarted(recording: &Recording, web: &ProcessGuid, purpose: Purpose) -> Vec<Message> {
    with(recording, |stage| {
        let domain = desired(stage.world(), web).domain;
        let restart = ClientCommand::LrpRestart { process_guid: web.clone(), purpose };
        stage.asks_as_client(&domain, Envelope::default(), restart).unwrap();
        pass(stage, 240);
        for _ in 0..2 {
            stage.carry_out(&Change::Crash(web.clone(), an_index(stage.world(), web))).unwrap();
            pass(stage, 60);
        }
        let made = desired(stage.world(), web).definition_id;
        stage.carry_out(&apply(another(&desired(stage.world(), web), "v2"))).unwrap();
        pass(stage, 5);
        stage.carry_out(&Change::Activate(web.clone(), made)).unwrap();
        pass(stage, 240);
    })
}

#[test]
fn a_replay_restarts_what_was_restarted_and_it_crashes_as_it_did() {
    let before = calm(0);
    let web = some_process(&before);
    for purpose in [Purpose::Restart, Purpose::Rebalance] {
        let (recording, end) = longer(&before, restarted(&before, &web, purpose));
        let causes = recording.causes(end).unwrap();
        let is_so = |(_, cause): &&(Timestamp, Cause)| matches!(cause, Cause::Restart(_, one) if one.purpose == purpose);
        assert_eq!(causes.iter().filter(is_so).count(), 1, "{causes:#?}");
        for settings in [Settings::default(), soon(&web)] {
            let stage = recording.replayed(end, &settings).unwrap();
            let begun = rollouts(&stage).into_iter().filter(|(_, why)| why == purpose.rollout_reason());
            assert_eq!(begun.count(), 1, "{settings:?}");
            let told = recording.replay(end, &settings).unwrap();
            assert_eq!((&told.refused, &told.differences), (&vec![], &vec![]), "{settings:?}");
            let crashes = [&told.recorded, &told.replayed].map(|figures| figures.processes[&web].crashes);
            assert_eq!(crashes, [2, 2], "{settings:?}");
        }
    }
}

#[test]
fn a_replay_goes_back_to_a_definition_and_scales_in_one_command() {
    let recording = calm(0);
    let web = some_process(&recording);
    let log = with(&recording, |stage| {
        let first = another(&desired(stage.world(), &web), "v1");
        let second = another(&first, "v2");
        stage.carry_out(&apply(first.clone())).unwrap();
        pass(stage, 240);
        stage.carry_out(&apply(second)).unwrap();
        pass(stage, 2);
        stage.carry_out(&apply(DesiredLrp { instances: first.instances + 1, ..first })).unwrap();
        pass(stage, 240);
    });
    let (recording, end) = longer(&recording, log);
    let causes = recording.causes(end).unwrap();
    let [_, _, ClientCommand::LrpUpdate { update, definition: Some((id, _)), .. }] = commands(&causes)[..]
    else {
        panic!("{causes:#?}")
    };
    assert!(update.instances.is_some() && id.as_str() == "v1", "{update:?} {id}");
    let told = recording.replay(end, &Settings::default()).unwrap();
    assert_eq!((&told.refused, &told.differences), (&vec![], &vec![]));
    let stage = recording.replayed(end, &Settings::default()).unwrap();
    assert_eq!(desired(stage.world(), &web).definition_id.as_str(), "v1");
}

#[test]
fn a_replay_rolls_back_what_a_client_rolled_back() {
    let recording = calm(0);
    let web = some_process(&recording);
    let log = with(&recording, |stage| {
        stage.carry_out(&apply(another(&desired(stage.world(), &web), "v2"))).unwrap();
        pass(stage, 2);
        stage.carry_out(&Change::Steer(web.clone(), RolloutControl::RollBack)).unwrap();
        pass(stage, 240);
    });
    let (recording, end) = longer(&recording, log);
    let causes = recording.causes(end).unwrap();
    assert!(
        matches!(commands(&causes)[..], [_, ClientCommand::LrpSteer { steer: RolloutControl::RollBack, .. }]),
        "{causes:#?}"
    );
    let stage = recording.replayed(end, &Settings::default()).unwrap();
    let kinds: Vec<Kind> = rollouts(&stage).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [Kind::Update, Kind::Rollback]);
}

/// When each cell died, as a recording tells it.
fn died(recording: &Recording, end: Position) -> Vec<(Timestamp, CellId)> {
    let lost = |(at, cause)| if let Cause::Lost(id) = cause { Some((at, id)) } else { None };
    recording.causes(end).unwrap().into_iter().filter_map(lost).collect()
}

fn present(world: &World) -> Vec<CellId> {
    world.cells().filter(|(_, cell)| cell.present).map(|(id, _)| id.clone()).collect()
}

#[test]
fn cells_that_are_lost_together_died_long_before_it_was_believed() {
    let recording = calm(0);
    let cells = present(recording.world());
    for lost in [1, cells.len() / 2 + 1] {
        let mut at = Timestamp(0);
        let log = with(&recording, |stage| {
            at = stage.now;
            for id in &cells[..lost] {
                stage.carry_out(&Change::Lose(id.clone())).unwrap();
            }
            pass(stage, 180);
        });
        let (recording, end) = longer(&recording, log);
        let died = died(&recording, end);
        assert_eq!(died.len(), lost);
        for (when, id) in died {
            let apart = when.since(at) + at.since(when);
            assert!(apart < Duration::from_secs(6), "{id} died at {when}, not {at}");
        }
        let told = recording.replay(end, &Settings::default()).unwrap();
        assert_eq!(told.differences, Vec::<String>::new());
        let lacked =
            |figures: &replay::Figures| figures.processes.values().map(|of| of.not_running_ms).sum::<u64>();
        let (was, is) = (lacked(&told.recorded), lacked(&told.replayed));
        assert!(was.abs_diff(is) <= was / 8, "{was} recorded, {is} replayed");
    }
}

/// An instance that is on a cell.
fn something_on(world: &World, id: &CellId) -> (ProcessGuid, u32) {
    let is_there = |slot: &&schemas::process::Slot| {
        let by = slot.actual.as_ref().and_then(schemas::actual::Actual::holder);
        by.is_some_and(|by| by.cell_id == *id)
    };
    let mut all = world.processes_from(None);
    let found = all
        .find_map(|process| Some((process.guid.clone(), process.slots.iter().find(is_there)?.place.index)));
    found.expect("something runs there")
}

#[test]
fn a_cell_lived_when_it_said_something_last() {
    let recording = calm(0);
    let cells = present(recording.world());
    let [last, others @ ..] = &cells[..] else { panic!("there are several cells") };
    let mut spoke = Timestamp(0);
    let log = with(&recording, |stage| {
        for id in others {
            stage.carry_out(&Change::Lose(id.clone())).unwrap();
        }
        pass(stage, 50);
        let (process, index) = something_on(stage.world(), last);
        stage.carry_out(&Change::Crash(process, index)).unwrap();
        spoke = stage.now;
        pass(stage, 5);
        stage.carry_out(&Change::Lose(last.clone())).unwrap();
        pass(stage, 180);
    });
    let (recording, end) = longer(&recording, log);
    for (when, id) in died(&recording, end) {
        let early = when + Duration::from_secs(40) < spoke;
        assert_eq!(early, id != *last, "{id} died at {when}, and something was said at {spoke}");
        assert!(early || spoke <= when, "{id} died at {when}, and said something at {spoke}");
    }
}

#[test]
fn a_cell_may_be_like_one_that_appears_only_later() {
    let (recording, end) = whole(0);
    assert_eq!(present(recording.world()), []);
    let removed = CellSettings { removed: true, ..Default::default() };
    let like = CellSettings { like: Some(cell("c1")), ..Default::default() };
    let gone = cells_of(&log_of(&Plan::calm(0))).into_iter().map(|id| (id, removed.clone()));
    let cell = gone.chain([(cell("c9"), like)]).collect();
    let settings = Settings { cell, ..Default::default() };
    let stage = recording.replayed(end, &settings).unwrap();
    assert_eq!(present(stage.world()), [CellId::new("c9").unwrap()]);
    let told = recording.replay(end, &settings).unwrap();
    assert!(told.replayed.processes.values().any(|of| of.running > 0), "{told:#?}");
}

#[test]
fn preemption_is_switched_as_soon_as_somebody_leads() {
    let (recording, end) = whole(0);
    for on in [true, false] {
        let settings = Settings { preemption: Some(on), ..Default::default() };
        let stage = recording.replayed(end, &settings).unwrap();
        assert_eq!(stage.world().cluster().unwrap().preemption, on);
        assert_eq!(recording.replay(end, &settings).unwrap().refused, Vec::<String>::new());
    }
}

#[test]
fn what_is_asked_from_the_beginning_and_refused_is_told() {
    let recording = calm(0);
    let (web, odd) = (some_process(&recording), ProcessGuid::new("odd").unwrap());
    let mut from = Position(0);
    let log = with(&recording, |stage| {
        let mut lrp = desired(stage.world(), &web);
        (lrp.process_guid, lrp.instances) = (odd.clone(), 3);
        (lrp.policies.min_running, lrp.policies.update.order) = (Some(2), UpdateOrder::StopFirst);
        stage.carry_out(&apply(lrp)).unwrap();
        // With so few, the policies would be refused.
        stage.carry_out(&Change::Scale(odd.clone(), 2)).unwrap();
        pass(stage, 10);
        from = stage.tape.end();
        stage.carry_out(&Change::Restart(web.clone())).unwrap();
        pass(stage, 10);
    });
    let end = Position(log.len() as u64);
    let recording = Recording::read(log, Some(from), MASS_LOSS_WAIT).unwrap();
    let told = recording.replay(end, &soon(&odd)).unwrap();
    let [refused] = &told.refused[..] else { panic!("{:?}", told.refused) };
    assert!(refused.starts_with("another restart policy of process odd: policies.min_running"), "{refused}");
}

#[test]
fn settings_that_name_what_is_not_there_are_refused() {
    let (recording, end) = whole(0);
    let web = some_process(&calm(0));
    let of_cell =
        |id: &str, of: CellSettings| Settings { cell: [(cell(id), of)].into(), ..Default::default() };
    let like = |id: &str| CellSettings { like: Some(cell(id)), ..Default::default() };
    let misfit = |settings: Settings| match recording.replay(end, &settings) {
        Err(NoReplay::Misfits(misfits)) => misfits.into_iter().next().expect("one at least"),
        other => panic!("{settings:?}: {other:?}"),
    };
    let small = CellSettings { memory_mb: Some(1), ..Default::default() };
    let none = misfit(of_cell("c11", small.clone()));
    assert_eq!((&none.field[..], none.known.contains("c1")), ("cell.c11", true), "{none:?}");
    assert_eq!(misfit(of_cell("c11", like("c12"))).field, "cell.c11.like");
    let known = misfit(of_cell("c1", like("c2")));
    assert!(known.field == "cell.c1.like" && known.known.is_empty(), "{known:?}");
    let none = misfit(soon(&ProcessGuid::new("wbe").unwrap()));
    assert_eq!((&none.field[..], none.known.contains(web.as_str())), ("process.wbe", true), "{none:?}");
    // What comes later is known, too.
    for settings in [of_cell("c1", small), soon(&web), of_cell("c9", like("c1"))] {
        assert!(recording.replay(end, &settings).is_ok(), "{settings:?}");
    }
}

#[test]
fn what_just_happens_is_decided_by_nobody() {
    let recording = calm(0);
    let web = some_process(&recording);
    let crash = format!("crash {web}/0");
    for text in ["lose cell c1", "return cell c1", "add cell c9", &crash, "wait 1s"] {
        let why = decide::Asked::change(change(text)).unwrap_err();
        assert!(why.contains("is no command") && why.contains("scale, priority,"), "{why}");
        let decided = recording.decide(&decide::Asked::Change(change(text))).unwrap();
        assert_eq!(decided.answer.unwrap_err().code, Code::InvalidRequest, "{text}");
    }
    assert!(decide::Asked::change(Change::Scale(web, 1)).is_ok());
}

#[test]
fn of_several_things_that_are_asked_those_before_a_refusal_are_told() {
    let recording = calm(0);
    let web = some_process(&recording);
    let lrp = desired(recording.world(), &web);
    let more = DesiredLrp { instances: lrp.instances + 1, ..lrp.clone() };
    let elsewhere = DesiredLrp { domain: schemas::names::Domain::new("elsewhere").unwrap(), ..lrp };
    let both = Change::Apply(vec![Item::Lrp(Box::new(more)), Item::Lrp(Box::new(elsewhere))]);
    let decided = recording.decide(&decide::Asked::Change(both)).unwrap();
    assert!(decided.answer.is_err() && decided.entries.len() == 1, "{decided:?}");
}
