//! Tests of the transitions in the source documents, as tables with one row per case. Each row runs through
//! the state machines.

use std::time::Duration;

use machines::crash;
use machines::process::{Context, Process};
use machines::task::Task;
use schemas::action::Secret;
use schemas::container::{Epoch, Instance};
use schemas::definition::{DesiredLrp, DesiredLrpUpdate, Placement};
use schemas::entry::Event;
use schemas::evaluation::{self, CancelReason, Duty, InitialStatus, Status, Trigger};
use schemas::exec::Exec;
use schemas::isolation::Isolation;
use schemas::names::{CellId, DecisionId, ProcessGuid};
use schemas::process::{self, Command, Report, ReportStep};
use schemas::stamp::Stamp;
use schemas::task::{self, Outcome};
use schemas::{Code, Place, Places, Refusal, Timestamp, actual, desired, evacuating, limits};

use crate::common::{
    domain, id, instance, lrp, net_info, outcome, place, task as desired_task, unplaced_task,
};

/// Transitions of an instance record. A column is a command of the container in `who`, and a word in capitals
/// is the state afterwards. `=`: no change. `gone`: the record is removed. `!`: refused.
///
/// `self` is the container that the record names. `other` is any other container: a different guid on the
/// same cell, the same guid on a different cell, or a different guid and cell.
const ACTUAL: &str = "
    record            | who   | claim   | start   | crash     | remove | unclaim
    none              | other | !       | RUNNING | CRASHED   | =      | !
    UNCLAIMED         | other | CLAIMED | RUNNING | !         | !      | =
    CLAIMED           | self  | =       | RUNNING | UNCLAIMED | gone   | UNCLAIMED
    CLAIMED           | other | !       | RUNNING | !         | !      | !
    CLAIMED stopping  | self  | =       | RUNNING | gone      | gone   | gone
    CLAIMED stopping  | other | !       | RUNNING | !         | !      | !
    RUNNING           | self  | CLAIMED | =       | UNCLAIMED | gone   | UNCLAIMED
    RUNNING           | other | !       | !       | !         | !      | !
    RUNNING stopping  | self  | CLAIMED | =       | gone      | gone   | gone
    RUNNING stopping  | other | !       | !       | !         | !      | !
    CRASHED           | other | !       | RUNNING | !         | !      | !
";

fn rows(table: &str) -> (Vec<String>, Vec<Vec<String>>) {
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let mut lines = table.lines().filter(|line| !line.trim().is_empty()).map(cells);
    let head = lines.next().unwrap();
    (head, lines.collect())
}

/// Returns the slot of the desired definition at an index.
fn web(index: u32) -> Place {
    place(index, "web")
}

fn web_places(indices: &[u32]) -> Places {
    Places { indices: indices.iter().copied().collect(), definition_id: web(0).definition_id }
}

/// A process at a point in time, which commands are applied to.
struct ProcessScenario {
    process: Option<Process>,
    now: Timestamp,
    fresh: bool,
    present: bool,
    /// `true` if the cells are known.
    known: bool,
    decisions: u128,
}

impl ProcessScenario {
    fn new() -> Self {
        let now = Timestamp::from_millis(1_000_000_000);
        Self { process: None, now, fresh: true, present: true, known: true, decisions: 0 }
    }

    fn desired(instances: u32) -> Self {
        let mut story = Self::new();
        story.try_apply(&Command::Desire(Box::new(lrp("apps", instances)))).unwrap();
        story
    }

    fn try_apply(&mut self, command: &Command) -> Result<Vec<Event>, Refusal> {
        self.now = self.now.next();
        self.decisions += 1;
        let (present, known) = (|_: &CellId| self.present, |_: &CellId| self.known);
        let context = Context {
            now: self.now,
            is_fresh: self.fresh,
            is_present: &present,
            is_known: &known,
            for_each_cell: &|_| {},
        };
        let events = machines::process::decide(self.process.as_ref(), command, context)?;
        let decision = DecisionId(id(self.decisions));
        let stamp = Stamp::root(decision, self.now);
        let born = || Process::new(ProcessGuid::new("web").unwrap(), domain("apps"), Epoch(Timestamp(1)));
        if !events.is_empty() {
            machines::process::evolve(self.process.get_or_insert_with(born), &events, &stamp);
        }
        Ok(events)
    }

    fn report(&mut self, index: u32, by: &Instance, step: ReportStep) -> Result<Vec<Event>, Refusal> {
        let epoch = self.process.as_ref().map_or(Epoch(Timestamp(1)), |process| process.epoch);
        self.try_apply(&Command::Report(Report {
            domain: domain("apps"),
            place: web(index),
            epoch,
            by: by.clone(),
            observed_at: self.now,
            steps: vec![step],
        }))
    }

    fn report_at_0(&mut self, by: &Instance, command: actual::Command) {
        self.report(0, by, ReportStep::Actual(command)).unwrap();
    }

    fn state(&self) -> String {
        self.state_of(0)
    }

    fn state_of(&self, index: u32) -> String {
        let record = self.process.as_ref().and_then(|process| process.actual(&web(index)));
        let stopping = |lrp: &machines::actual::Actual| if lrp.is_stopping() { " stopping" } else { "" };
        record.map_or("none".into(), |lrp| format!("{}{}", lrp.state_name(), stopping(lrp)))
    }

    fn evaluation(&self) -> Option<Status> {
        Some(self.process.as_ref()?.evaluations.iter().last()?.status)
    }

    fn status_for(&self, duty: Duty) -> Option<Status> {
        Some(self.process.as_ref()?.open_evaluation(duty)?.status)
    }

    /// Brings index 0 of a desired process into a state, held by `by`.
    fn with(state: &str, by: &Instance) -> Self {
        if state == "none" {
            return Self::new();
        }
        let mut story = Self::desired(1);
        let (word, stopping) = (state.split(' ').next().unwrap(), state.ends_with("stopping"));
        match word {
            "UNCLAIMED" => {}
            "CLAIMED" => story.report_at_0(by, claim()),
            "RUNNING" => story.report_at_0(by, start()),
            "CRASHED" => story.crash(by, 4),
            other => panic!("no state {other}"),
        }
        if stopping {
            story.try_apply(&Command::Retire { index: 0, definition_id: None }).unwrap();
        }
        assert_eq!(story.state(), state);
        story
    }

    fn crash(&mut self, by: &Instance, times: u32) {
        for _ in 0..times {
            self.report_at_0(by, start());
            self.report_at_0(by, crash());
        }
    }
}

fn claim() -> actual::Command {
    actual::Command::Claim { placement: None }
}

fn start() -> actual::Command {
    actual::Command::Start { net: net_info(1), isolation: Isolation::NONE }
}

fn crash() -> actual::Command {
    actual::Command::Crash { reason: "boom".into(), exit_status: None }
}

#[test]
fn actual_lrp_transitions_match_table() {
    let own = instance(1, "c1");
    let others = [instance(2, "c1"), instance(1, "c2"), instance(2, "c2")];
    let (head, rows) = rows(ACTUAL);
    for row in rows {
        let who = if row[1] == "self" { std::slice::from_ref(&own) } else { &others };
        for (column, expected) in head.iter().zip(&row).skip(2) {
            for by in who {
                let mut story = ProcessScenario::with(&row[0], &own);
                let command = match column.as_str() {
                    "claim" => claim(),
                    "start" => start(),
                    "crash" => crash(),
                    "remove" => actual::Command::Remove,
                    _ => actual::Command::Unclaim,
                };
                let before = story.process.clone();
                let answer = story.report(0, by, ReportStep::Actual(command));
                let outcome = match &answer {
                    Err(_) => "!".to_owned(),
                    Ok(events) if events.is_empty() => "=".to_owned(),
                    // If the record of a desired index is removed, the same decision creates a new record.
                    Ok(events) if removes(events) => "gone".to_owned(),
                    Ok(_) => story.state().trim_end_matches(" stopping").to_owned(),
                };
                assert_eq!(&outcome, expected, "{column} of {by:?} at {row:?}");
                if answer.is_err() {
                    assert_eq!(story.process, before);
                }
            }
        }
    }
}

fn removes(events: &[Event]) -> bool {
    events.iter().any(|event| matches!(event, Event::Actual(actual::Event::Removed { .. })))
}

#[test]
fn stopping_instance_stays_stopping_while_it_starts() {
    let own = instance(1, "c1");
    let mut story = ProcessScenario::with("CLAIMED stopping", &own);
    story.report_at_0(&own, start());
    assert_eq!(story.state(), "RUNNING stopping");
    story.report_at_0(&own, claim());
    assert_eq!(story.state(), "CLAIMED stopping");
    story.report_at_0(&own, actual::Command::Remove);
    assert_eq!(story.state(), "UNCLAIMED");
}

/// Crash count before the crash, seconds in RUNNING (`-` if the instance crashed while CLAIMED), crash count
/// and state after the crash, and seconds until the restart.
const CRASHES: &str = "
    stored | running | count | state     | wait
    0      | 1       | 1     | UNCLAIMED | -
    1      | 299     | 2     | UNCLAIMED | -
    2      | 1       | 3     | UNCLAIMED | -
    3      | 1       | 4     | CRASHED   | 60
    4      | 299     | 5     | CRASHED   | 120
    4      | 300     | 1     | UNCLAIMED | -
    4      | -       | 5     | CRASHED   | 120
    7      | 1       | 8     | CRASHED   | 960
    199    | 1       | 200   | CRASHED   | 960
    200    | 1       | 201   | CRASHED   | never
    200    | 300     | 1     | UNCLAIMED | -
";

#[test]
fn crash_restarts_match_table() {
    let own = instance(1, "c1");
    for row in rows(CRASHES).1 {
        let mut story = ProcessScenario::desired(1);
        story.crash(&own, row[0].parse().unwrap());
        if row[1] == "-" {
            // A crashed instance can only be claimed once it was restarted.
            story.now = story.now + crash::MAX_DELAY;
            story.try_apply(&Command::Converge).unwrap();
            story.report_at_0(&own, claim());
        } else {
            story.report_at_0(&own, start());
            let running = Duration::from_secs(row[1].parse().unwrap());
            // The report itself advances the time by one nanosecond.
            story.now = story.now + running - Duration::from_nanos(1);
        }
        story.report_at_0(&own, crash());
        let lrp = story.process.as_ref().unwrap().actual(&web(0)).unwrap();
        let wait = match lrp.restart_at() {
            Some(due) => due.since(story.now).as_secs().to_string(),
            None if lrp.is_unclaimed() => "-".into(),
            None => "never".into(),
        };
        let outcome = [lrp.crash_count.to_string(), lrp.state_name().into(), wait];
        assert_eq!(outcome, row[2..], "{row:?}");
    }
}

#[test]
fn crashed_instance_restarts_at_due_time() {
    let mut story = ProcessScenario::with("CRASHED", &instance(1, "c1"));
    story.now = story.now + Duration::from_secs(60) - Duration::from_nanos(2);
    assert_eq!(story.try_apply(&Command::Converge), Ok(vec![]));
    story.try_apply(&Command::Converge).unwrap();
    assert_eq!((story.state().as_str(), story.evaluation()), ("UNCLAIMED", Some(Status::Pending)));
}

/// Effect of convergence on index 0. The cell is present or lost, the index is desired or not, and the domain
/// is fresh or stale.
const CONVERGENCE: &str = "
    record            | desired fresh | desired stale | not fresh        | not stale        | lost desired | lost not
    UNCLAIMED         | =             | =             | -                | -                | =            | -
    CLAIMED           | =             | =             | CLAIMED stopping | =                | UNCLAIMED    | none
    RUNNING           | =             | =             | RUNNING stopping | =                | UNCLAIMED    | none
    RUNNING stopping  | =             | =             | =                | =                | UNCLAIMED    | none
    CRASHED           | =             | =             | none             | =                | =            | none
";

/// Returns a process that is not desired, with a record of index 0 that a cell reported. `None` if no report
/// leads to this state.
fn undesired_with_record(state: &str, own: &Instance) -> Option<ProcessScenario> {
    let mut story = ProcessScenario::new();
    match state {
        "CLAIMED" => {
            story.report_at_0(own, start());
            story.report_at_0(own, claim());
        }
        "RUNNING" => story.report_at_0(own, start()),
        "RUNNING stopping" => {
            story.report_at_0(own, start());
            story.try_apply(&Command::Retire { index: 0, definition_id: None }).unwrap();
        }
        "CRASHED" => story.report_at_0(own, crash()),
        _ => return None,
    }
    assert_eq!(story.state(), state);
    Some(story)
}

#[test]
fn convergence_matches_table() {
    let own = instance(1, "c1");
    let (head, rows) = rows(CONVERGENCE);
    for row in rows {
        for (column, expected) in head.iter().zip(&row).skip(1) {
            let desired = column.split(' ').any(|word| word == "desired");
            let story = if desired {
                Some(ProcessScenario::with(&row[0], &own))
            } else {
                undesired_with_record(&row[0], &own)
            };
            let Some(mut story) = story else {
                assert_eq!(expected, "-");
                continue;
            };
            story.fresh = !column.ends_with("stale");
            story.present = !column.starts_with("lost");
            let events = story.try_apply(&Command::Converge).unwrap();
            let outcome = if events.is_empty() { "=".to_owned() } else { story.state() };
            assert_eq!(&outcome, expected, "{column} at {row:?}: {events:?}");
            assert_eq!(story.try_apply(&Command::Converge), Ok(vec![]));
        }
    }
}

/// Transitions of the evacuating record on commands of a container. `instance` is the holder of the instance.
const EVACUATING: &str = "
    instance | evacuating | set     | remove
    none     | none       | self    | =
    self     | none       | self    | =
    other    | none       | self    | =
    none     | self       | =       | none
    self     | self       | =       | none
    other    | self       | =       | none
    self     | other      | self    | none
    other    | other      | !       | =
    none     | other      | !       | =
";

#[test]
fn evacuating_record_transitions_match_table() {
    let (own, other) = (instance(1, "c1"), instance(2, "c2"));
    let whose = |word: &str| match word {
        "self" => Some(own.clone()),
        "other" => Some(other.clone()),
        _ => None,
    };
    let expires_at = Timestamp::from_millis(2_000_000_000);
    let set = || ReportStep::Evacuating(evacuating::Command::Set { net: net_info(1), expires_at });
    for row in rows(EVACUATING).1 {
        for (command, expected) in
            [set(), ReportStep::Evacuating(evacuating::Command::Remove)].iter().zip(&row[2..])
        {
            let mut story = ProcessScenario::desired(1);
            if let Some(by) = whose(&row[1]) {
                story.report(0, &by, set()).unwrap();
            }
            if let Some(by) = whose(&row[0]) {
                story.report_at_0(&by, start());
            }
            let answer = story.report(0, &own, command.clone());
            let twin =
                || story.process.as_ref()?.slot(&web(0))?.evacuating.as_ref().map(|twin| twin.by == own);
            let outcome = match (answer, twin()) {
                (Err(_), _) => "!",
                (Ok(events), _) if events.is_empty() => "=",
                (Ok(_), None) => "none",
                (Ok(_), Some(true)) => "self",
                (Ok(_), Some(false)) => "other",
            };
            assert_eq!(outcome, expected, "{command:?} at {row:?}");
        }
    }
}

#[test]
fn evacuating_record_is_removed_only_by_running_replacement() {
    let (own, other) = (instance(1, "c1"), instance(2, "c2"));
    let mut story = ProcessScenario::desired(1);
    let expires_at = story.now + Duration::from_secs(60);
    let set = evacuating::Command::Set { net: net_info(1), expires_at };
    story.report(0, &other, ReportStep::Evacuating(set)).unwrap();
    story.report_at_0(&own, actual::Command::Claim { placement: None });
    let remove = ReportStep::Evacuating(evacuating::Command::Remove);
    assert_eq!(story.report(0, &own, remove.clone()), Ok(vec![]));
    story.report_at_0(&own, start());
    let removed = evacuating::Event::Removed { place: web(0), cause: evacuating::RemovalReason::Replaced };
    assert_eq!(story.report(0, &own, remove), Ok(vec![Event::Evacuating(removed)]));
}

#[test]
fn evacuating_record_ends_at_expiry_or_with_its_cell() {
    let own = instance(1, "c1");
    let mut story = ProcessScenario::desired(1);
    let expires_at = story.now + Duration::from_secs(60);
    let set = evacuating::Command::Set { net: net_info(1), expires_at };
    story.report(0, &own, ReportStep::Evacuating(set)).unwrap();
    assert_eq!(story.process.as_ref().unwrap().next_due(), Some(expires_at));
    assert_eq!(story.try_apply(&Command::Converge), Ok(vec![]));
    let mut lost =
        ProcessScenario { process: story.process.clone(), present: false, ..ProcessScenario::new() };
    let gone = |cause| Ok(vec![Event::Evacuating(evacuating::Event::Removed { place: web(0), cause })]);
    assert_eq!(lost.try_apply(&Command::Converge), gone(evacuating::RemovalReason::CellLost));
    story.now = expires_at;
    assert_eq!(story.try_apply(&Command::Converge), gone(evacuating::RemovalReason::Expired));
}

#[test]
fn lost_cell_unclaims_instances_in_one_decision_unless_forgotten() {
    let own = instance(1, "c1");
    let mut story = ProcessScenario::desired(1);
    let update = DesiredLrpUpdate { instances: Some(2), ..DesiredLrpUpdate::default() };
    story.try_apply(&Command::Update(update)).unwrap();
    for index in 0..2 {
        story.report(index, &own, ReportStep::Actual(start())).unwrap();
    }
    let unclaimed = |indices: &[u32]| actual::Event::Unclaimed {
        places: web_places(indices),
        cause: actual::UnclaimReason::CellLost,
    };
    let lost = |known, indices: &[&[u32]]| {
        let mut lost = ProcessScenario {
            process: story.process.clone(),
            present: false,
            known,
            ..ProcessScenario::new()
        };
        for of_one in indices {
            let events = lost.try_apply(&Command::Converge).unwrap();
            assert!(events.contains(&Event::Actual(unclaimed(of_one))), "{events:?}");
        }
        assert_eq!(lost.try_apply(&Command::Converge), Ok(vec![]));
    };
    lost(true, &[&[0, 1]]);
    // If the cell is forgotten, no shared cause is known, so each instance gets a decision of its own.
    lost(false, &[&[0], &[1]]);
}

#[test]
fn evaluation_status_reflects_outcome_of_work() {
    let own = instance(1, "c1");
    let fail = |story: &ProcessScenario, index: u32| {
        let attempt = story.process.as_ref().unwrap().actual(&web(index)).unwrap().since;
        let error = "insufficient resources: memory".to_owned();
        {
            let unplaced = vec![process::Unplaced { place: web(index), attempt, error }];
            Command::Fail(outcome(story.process.as_ref(), unplaced))
        }
    };
    let blocked = Some(Status::Blocked { reason: "insufficient resources: memory".into() });
    let claim =
        |story: &mut ProcessScenario, index| story.report(index, &own, ReportStep::Actual(claim())).unwrap();

    let mut story = ProcessScenario::desired(2);
    claim(&mut story, 0);
    assert_eq!(story.evaluation(), Some(Status::Pending));
    claim(&mut story, 1);
    assert_eq!(story.evaluation(), Some(Status::Complete));

    // The remaining work is settled, whether the failure or the claim comes first.
    for order in [[true, false], [false, true]] {
        let mut story = ProcessScenario::desired(2);
        for answer in order {
            if answer {
                let command = fail(&story, 0);
                story.try_apply(&command).unwrap();
            } else {
                claim(&mut story, 1);
            }
        }
        assert_eq!(
            (story.status_for(Duty::Place), story.status_for(Duty::Unblock)),
            (None, blocked.clone()),
            "{order:?}"
        );
        claim(&mut story, 0);
        assert_eq!(story.evaluation(), Some(Status::Complete));
    }

    let mut story = ProcessScenario::desired(1);
    let command = fail(&story, 0);
    story.try_apply(&command).unwrap();
    story.try_apply(&Command::Remove).unwrap();
    let ended = story.process.as_ref().unwrap().evaluations.iter().map(|one| one.status);
    let canceled = Status::Canceled { reason: CancelReason::NothingLeft };
    assert_eq!(ended.collect::<Vec<_>>(), [Status::Complete, canceled, Status::Complete]);
}

/// Reports about index 1 from a cell that was away and still has a container for the index. Column `change`:
/// the change to the process while the cell was away. `forgotten`: the process is not remembered. `replaced`:
/// another definition is desired at the index.
const UNWANTED: &str = "
    change    | claim | start            | crash   | evacuate
    removed   | !     | RUNNING stopping | =       | !
    scaled    | !     | RUNNING stopping | =       | !
    forgotten | !     | RUNNING          | CRASHED | none
    replaced  | !     | RUNNING stopping | =       | !
";

#[test]
fn undesired_instance_stops_when_reported_even_in_stale_domain() {
    let away = instance(1, "c2");
    let (head, rows) = rows(UNWANTED);
    for row in rows {
        for (column, expected) in head.iter().zip(&row).skip(1) {
            let mut story = ProcessScenario { fresh: false, ..ProcessScenario::desired(2) };
            story.report(1, &away, ReportStep::Actual(start())).unwrap();
            story.present = false;
            story.try_apply(&Command::Converge).unwrap();
            match row[0].as_str() {
                "removed" => drop(story.try_apply(&Command::Remove).unwrap()),
                "scaled" => {
                    let instances = Some(1);
                    let update = DesiredLrpUpdate { instances, ..DesiredLrpUpdate::default() };
                    story.try_apply(&Command::Update(update)).unwrap();
                }
                "forgotten" => story.process = None,
                _ => {
                    story.try_apply(&Command::Remove).unwrap();
                    let other = place(1, "other").definition_id;
                    let desired = DesiredLrp { definition_id: other, ..lrp("apps", 2) };
                    story.try_apply(&Command::Desire(Box::new(desired))).unwrap();
                }
            }
            let others =
                |story: &ProcessScenario| story.process.as_ref()?.actual(&place(1, "other")).cloned();
            let other = others(&story);
            story.present = true;
            let expires_at = story.now + Duration::from_secs(60);
            let step = match column.as_str() {
                "claim" => ReportStep::Actual(claim()),
                "start" => ReportStep::Actual(start()),
                "crash" => ReportStep::Actual(crash()),
                _ => ReportStep::Evacuating(evacuating::Command::Set { net: net_info(1), expires_at }),
            };
            let outcome = match story.report(1, &away, step) {
                Err(_) => "!".to_owned(),
                Ok(events) if events.is_empty() => "=".to_owned(),
                Ok(_) => story.state_of(1),
            };
            assert_eq!(&outcome, expected, "{column} at {row:?}");
            assert_eq!(others(&story), other, "{column} at {row:?}: the desired instance is unaffected");
            assert_eq!(story.try_apply(&Command::Converge), Ok(vec![]), "its domain is stale");
        }
    }
}

/// Records of index 0 for the definitions `web` and `other`: an instance (I), an evacuating instance (E) or
/// both. One of the definitions is desired. The last two columns are the record that a request selects by
/// index alone, and the record that a request selects by index and definition.
const FIND: &str = "
    web | other | desired | alone | web  | other
    -   | -     | web     | none  | none | none
    I   | -     | web     | web   | web  | none
    I   | -     | other   | web   | web  | none
    -   | I     | web     | other | none | other
    E   | -     | other   | web   | web  | none
    I   | I     | web     | web   | web  | other
    I   | I     | other   | other | web  | other
    IE  | IE    | web     | web   | web  | other
    IE  | IE    | other   | other | web  | other
    E   | I     | web     | other | web  | other
    I   | E     | other   | web   | web  | other
    E   | IE    | web     | other | web  | other
    E   | E     | web     | web   | web  | other
    E   | E     | other   | other | web  | other
";

/// Creates a process with these records at index 0, and with records at index 1 that must not be selected.
fn with_records(records: [(&str, &str); 2], desired: &str) -> ProcessScenario {
    let mut story = ProcessScenario::new();
    let lrp = DesiredLrp { definition_id: place(0, desired).definition_id, ..lrp("apps", 2) };
    let mut events = vec![Event::Desired(desired::Event::Desired(Box::new(lrp)))];
    let known = records.into_iter().flat_map(|(id, records)| [(place(0, id), records), (place(1, id), "IE")]);
    for ((place, records), number) in known.zip(1..) {
        let (by, net, expires_at) = (instance(number, "c1"), net_info(1), Timestamp(u64::MAX));
        if records.contains('I') {
            let (place, by, net, isolation) = (place.clone(), by.clone(), net.clone(), Isolation::NONE);
            events.push(Event::Actual(actual::Event::Started { place, by, net, isolation }));
        }
        if records.contains('E') {
            events.push(Event::Evacuating(evacuating::Event::Set { place, by, net, expires_at }));
        }
    }
    let mut process = Process::new(ProcessGuid::new("web").unwrap(), domain("apps"), Epoch(Timestamp(1)));
    let decision = DecisionId(id(1));
    machines::process::evolve(&mut process, &events, &Stamp::root(decision, story.now));
    story.process = Some(process);
    story
}

#[test]
fn record_selection_by_index_and_definition_matches_table() {
    let (head, rows) = rows(FIND);
    for row in rows {
        for (column, expected) in head.iter().zip(&row).skip(3) {
            let mut story = with_records([("web", &row[0]), ("other", &row[1])], &row[2]);
            let id = (column != "alone").then(|| place(0, column).definition_id);
            let found = story.process.as_ref().unwrap().find(0, id.as_ref());
            let name = found.map_or("none", |slot| slot.place.definition_id.as_str());
            assert_eq!(name, expected, "{column} of {row:?}");
            assert!(found.is_none_or(|slot| slot.place.index == 0));
            // A slot with only an evacuating record has no instance that can be stopped.
            let instance = found.filter(|slot| slot.actual.is_some()).map(|slot| slot.place.clone());
            let answer = story.try_apply(&Command::Retire { index: 0, definition_id: id });
            let stop = |place: Place| actual::Event::StopRequested {
                places: place.into(),
                cause: actual::StopReason::Retired,
            };
            match (instance, answer) {
                (Some(place), Ok(events)) => {
                    assert_eq!(events[0], Event::Actual(stop(place)), "{column} of {row:?}");
                }
                (instance, answer) => {
                    assert_eq!(instance, None, "{column} of {row:?}");
                    assert_eq!(answer.unwrap_err().code, Code::ResourceNotFound);
                }
            }
        }
    }
}

#[test]
fn program_runs_only_in_running_instance() {
    let c1 = instance(1, "c1");
    let exec = Exec { path: "sh".into(), ..Exec::default() };
    let enter = |index| Command::Enter { index, definition_id: None, exec: exec.clone() };
    let mut story = ProcessScenario::desired(1);
    let refused = |story: &mut ProcessScenario, why: &str| {
        let refusal = story.try_apply(&enter(0)).unwrap_err();
        assert_eq!(refusal.code, Code::InvalidStateTransition);
        let told = format!("instance 0 {why}: programs run only in a RUNNING instance");
        assert_eq!(refusal.message, told);
    };
    refused(&mut story, "is UNCLAIMED");
    story.report_at_0(&c1, actual::Command::Claim { placement: None });
    refused(&mut story, "is CLAIMED");
    story.report_at_0(&c1, start());
    let before = story.process.clone();
    let entered = actual::Event::ExecStarted { place: web(0), by: c1.clone(), exec: Box::new(exec.clone()) };
    assert_eq!(story.try_apply(&enter(0)), Ok(vec![Event::Actual(entered)]));
    let changed =
        |process: Option<Process>| process.map(|process| process.slots_at(0).cloned().collect::<Vec<_>>());
    assert_eq!(changed(story.process.clone()), changed(before), "the instance does not change");
    assert_eq!(story.try_apply(&enter(7)).unwrap_err().code, Code::ResourceNotFound);
    story.try_apply(&Command::Retire { index: 0, definition_id: None }).unwrap();
    refused(&mut story, "is being stopped");
}

#[test]
fn indices_with_same_cause_share_one_event() {
    let c1 = instance(1, "c1");
    let mut story = ProcessScenario::desired(4);
    story.report_at_0(&c1, start());
    story.report(2, &instance(3, "c1"), ReportStep::Actual(start())).unwrap();
    let all = |indices: &[u32]| web_places(indices);
    let cause = actual::StopReason::Removed;
    let expected = [
        Event::Desired(desired::Event::Removed {}),
        Event::Actual(actual::Event::StopRequested { places: all(&[0, 2]), cause }),
        Event::Actual(actual::Event::Removed { places: all(&[1, 3]), cause }),
    ];
    let mut events = story.try_apply(&Command::Remove).unwrap();
    events.retain(|event| !matches!(event, Event::Evaluation(_)));
    assert_eq!(events, expected);
    let unclaimed = ProcessScenario::desired(3).try_apply(&Command::Remove).unwrap();
    let removed = Event::Actual(actual::Event::Removed { places: all(&[0, 1, 2]), cause });
    assert!(unclaimed.contains(&removed), "{unclaimed:?}");
    let mut lost = ProcessScenario::desired(2);
    lost.report_at_0(&c1, start());
    lost.report(1, &instance(2, "c1"), ReportStep::Actual(start())).unwrap();
    lost.present = false;
    let cause = actual::UnclaimReason::CellLost;
    let expected = Event::Actual(actual::Event::Unclaimed { places: all(&[0, 1]), cause });
    let events = lost.try_apply(&Command::Converge).unwrap();
    assert!(events.contains(&expected), "{events:?}");
}

#[test]
fn process_without_placeable_instances_is_blocked_with_reason() {
    let mut story = ProcessScenario::desired(2);
    let attempt = story.process.as_ref().unwrap().actual(&web(0)).unwrap().since;
    let fail = |story: &ProcessScenario, index, error: &str| {
        let unplaced = vec![process::Unplaced { place: web(index), attempt, error: error.to_owned() }];
        Command::Fail(outcome(story.process.as_ref(), unplaced))
    };
    let disk = fail(&story, 0, "insufficient resources: disk");
    story.try_apply(&disk).unwrap();
    assert_eq!(story.status_for(Duty::Place), Some(Status::Pending), "the other one may be placed");
    assert_eq!(
        story.status_for(Duty::Unblock),
        Some(Status::Blocked { reason: "insufficient resources: disk".into() })
    );
    let memory = fail(&story, 1, "insufficient resources: memory");
    story.try_apply(&memory).unwrap();
    assert_eq!(story.status_for(Duty::Place), None);
    assert_eq!(
        story.status_for(Duty::Unblock),
        Some(Status::Blocked { reason: "insufficient resources: memory".into() })
    );
}

#[test]
fn orphaned_instances_of_process_can_be_removed() {
    let ended = |indices: &[u32], cause| {
        Event::Actual(actual::Event::StopRequested { places: web_places(indices), cause })
    };
    let removed = Event::Desired(desired::Event::Removed {});
    // Two orphans of a process that was never desired.
    let mut story = ProcessScenario { fresh: false, ..ProcessScenario::new() };
    for index in [0, 3] {
        story.report(index, &instance(index.into(), "c1"), ReportStep::Actual(start())).unwrap();
    }
    let stops = ended(&[0, 3], actual::StopReason::Removed);
    let evaluated = Event::Evaluation(evaluation::Event::Created {
        number: 0,
        trigger: Trigger::Remove,
        initial_status: InitialStatus::Complete { stopped: 2 },
        previous: None,
    });
    assert_eq!(story.try_apply(&Command::Remove), Ok(vec![removed, stops, evaluated]));
    assert_eq!(story.try_apply(&Command::Remove), Ok(vec![]), "they are being stopped");
    // The removal is remembered, so a container that is reported later is asked to stop.
    let late = instance(9, "c2");
    story.report(9, &late, ReportStep::Actual(start())).unwrap();
    assert_eq!(story.state_of(9), "RUNNING stopping");
    for (index, by) in [(0, instance(0, "c1")), (3, instance(3, "c1")), (9, late)] {
        story.report(index, &by, ReportStep::Actual(actual::Command::Remove)).unwrap();
    }
    let refusal = story.try_apply(&Command::Remove).unwrap_err();
    assert_eq!(refusal.code, Code::ResourceNotFound, "nothing is left");
}

/// Transitions of a task on commands. A command comes from the container that the task names (`self`) or from
/// another container.
const TASK: &str = "
    state     | start self | start other | end self  | end other | cancel    | resolve | begin     | 204     | 404       | 503       | fail
    DELETED   | !          | !           | !         | !         | !         | !       | !         | !       | !         | !         | !
    PENDING   | RUNNING    | RUNNING     | COMPLETED | COMPLETED | COMPLETED | !       | !         | !       | !         | !         | COMPLETED
    RUNNING   | =          | !           | COMPLETED | !         | COMPLETED | !       | !         | !       | !         | !         | !
    COMPLETED | !          | !           | =         | !         | !         | DELETED | RESOLVING | DELETED | COMPLETED | COMPLETED | !
    RESOLVING | !          | !           | =         | !         | !         | !       | !         | DELETED | COMPLETED | RESOLVING | !
";

struct TaskScenario {
    task: Option<Task>,
    now: Timestamp,
    present: bool,
}

impl TaskScenario {
    fn with(state: &str, by: &Instance, placement: Placement) -> Self {
        let mut story = Self { task: None, now: Timestamp::from_millis(1_000_000_000), present: true };
        story.try_apply(&task::Command::Desire(Box::new(desired_task("apps", placement)))).unwrap();
        let steps = match state {
            "PENDING" => 0,
            "RUNNING" => 1,
            "COMPLETED" => 2,
            "RESOLVING" => 3,
            _ => 4,
        };
        let path = [story.start(by), story.complete(by), task::Command::BeginResolving, story.called(204)];
        for command in path.iter().take(steps) {
            story.try_apply(command).unwrap();
        }
        assert_eq!(story.state(), state);
        story
    }

    fn state(&self) -> &'static str {
        self.task.as_ref().map_or("DELETED", Task::state_name)
    }

    fn report(&self, by: &Instance, step: task::ReportStep) -> task::Command {
        let epoch = self.task.as_ref().map_or(Epoch(Timestamp(1)), |task| task.epoch);
        task::Command::Report(task::Report { domain: domain("apps"), epoch, by: by.clone(), step })
    }

    /// Returns the command for a callback that was answered with this status.
    fn called(&self, status: u16) -> task::Command {
        let epoch = self.task.as_ref().map_or(Epoch(Timestamp(1)), |task| task.epoch);
        task::Command::RecordCallback(epoch, task::CallbackResult::Answered(status))
    }

    fn start(&self, by: &Instance) -> task::Command {
        self.report(by, task::ReportStep::Start { placement: None, isolation: Isolation::NONE })
    }

    fn complete(&self, by: &Instance) -> task::Command {
        let outcome = Outcome::Succeeded { result: "42".into() };
        self.report(by, task::ReportStep::Complete { outcome })
    }

    fn try_apply(&mut self, command: &task::Command) -> Result<Vec<Event>, Refusal> {
        self.now = self.now.next();
        let present = |_: &CellId| self.present;
        let context = machines::task::Context { now: self.now, is_present: &present };
        let events = machines::task::decide(self.task.as_ref(), command, context)?;
        let decision = DecisionId(id(self.now.0.into()));
        let stamp = Stamp::root(decision, self.now);
        if !events.is_empty() {
            self.task = machines::task::evolve(self.task.take(), &events, &stamp);
        }
        Ok(events)
    }
}

#[test]
fn task_transitions_match_table() {
    let (own, other) = (instance(1, "c1"), instance(1, "c2"));
    let (head, rows) = rows(TASK);
    for row in rows {
        for (column, expected) in head.iter().zip(&row).skip(1) {
            let mut story = TaskScenario::with(&row[0], &own, Placement::Fail);
            let command = match column.as_str() {
                "start self" => story.start(&own),
                "start other" => story.start(&other),
                "end self" => story.complete(&own),
                "end other" => story.complete(&other),
                "cancel" => task::Command::Cancel,
                "resolve" => task::Command::Resolve,
                "begin" => task::Command::BeginResolving,
                "204" | "404" | "503" => story.called(column.parse().unwrap()),
                _ => task::Command::Fail(unplaced_task(story.task.as_ref(), "insufficient resources")),
            };
            let answer = story.try_apply(&command);
            let outcome = match answer {
                Err(_) => "!",
                Ok(events) if events.is_empty() => "=",
                Ok(_) => story.state(),
            };
            assert_eq!(outcome, expected, "{column} at {row:?}");
        }
    }
}

#[test]
fn callback_outcome_is_recorded_and_decides_retry() {
    use task::CallbackVerdict::{Delivered, Ended, Repeat};
    let verdicts =
        [(199, Ended), (200, Delivered), (299, Delivered), (301, Ended), (404, Ended), (408, Repeat)];
    let verdicts = verdicts.into_iter().chain([(410, Ended), (429, Repeat), (499, Ended), (500, Repeat)]);
    for (status, verdict) in verdicts.chain([(599, Repeat), (600, Ended)]) {
        assert_eq!(task::CallbackResult::Answered(status).verdict(), verdict, "{status}");
    }
    assert_eq!(task::CallbackResult::Failed("refused".into()).verdict(), Repeat);
    assert_eq!(task::CallbackResult::Refused("loopback".into()).verdict(), Ended);

    let mut story = TaskScenario::with("RESOLVING", &instance(1, "c1"), Placement::Fail);
    let since = story.task.as_ref().unwrap().since;
    story.try_apply(&story.called(503)).unwrap();
    assert_eq!(story.task.as_ref().unwrap().since, since, "the time of the state does not change");
    let tried = |attempt, status| {
        Event::Task(task::Event::CallbackTried { attempt, outcome: task::CallbackResult::Answered(status) })
    };
    let events = story.try_apply(&story.called(404)).unwrap();
    assert_eq!(events, [tried(2, 404), Event::Task(task::Event::Demoted {})]);
    let task = story.task.clone().unwrap();
    let callback = task.completed().unwrap().callback.clone().unwrap();
    assert_eq!(
        (callback.attempts, callback.last, callback.at),
        (2, task::CallbackResult::Answered(404), story.now)
    );
    assert!(!task.completed().unwrap().is_callback_open());
    assert_eq!(story.try_apply(&task::Command::BeginResolving), Ok(vec![]), "its owner is not called again");
    // A client may still resolve the task, and the late answer does not affect the task's next epoch.
    let late = story.called(200);
    story.try_apply(&task::Command::Resolve).unwrap();
    assert_eq!(story.state(), "DELETED");
    story.try_apply(&task::Command::Desire(Box::new(desired_task("apps", Placement::Fail)))).unwrap();
    assert_eq!(story.try_apply(&late).unwrap_err().code, Code::StaleEpoch);
}

#[test]
fn resolving_task_is_deleted_at_its_deadline() {
    let mut story = TaskScenario::with("COMPLETED", &instance(1, "c1"), Placement::Fail);
    let completed = story.now;
    story.now = completed + Duration::from_secs(119);
    story.try_apply(&task::Command::BeginResolving).unwrap();
    let due = story.task.as_ref().unwrap().next_due();
    assert_eq!(due, Some(completed + machines::task::COMPLETED_RETENTION), "not 30 s after it is RESOLVING");
}

/// Effect of convergence on a task. Column `after`: seconds since the task entered its state and, if the task
/// has completed, since its first completion.
const TASK_CONVERGENCE: &str = "
    state     | placement | after | cell    | becomes
    PENDING   | fail      | 1799  | present | =
    PENDING   | fail      | 1800  | present | COMPLETED
    PENDING   | queue     | 599   | present | =
    PENDING   | queue     | 600   | present | COMPLETED
    RUNNING   | fail      | 90000 | present | =
    RUNNING   | fail      | 0     | lost    | COMPLETED
    COMPLETED | fail      | 119   | lost    | =
    COMPLETED | fail      | 120   | present | DELETED
    RESOLVING | fail      | 29    | present | =
    RESOLVING | fail      | 30    | present | COMPLETED
    RESOLVING | fail      | 120   | present | DELETED
";

#[test]
fn task_convergence_matches_table() {
    for row in rows(TASK_CONVERGENCE).1 {
        let wait = Placement::Queue { deadline_ms: 600_000 };
        let placement = if row[1] == "queue" { wait } else { Placement::Fail };
        let mut story = TaskScenario::with(&row[0], &instance(1, "c1"), placement);
        story.present = row[3] == "present";
        story.now = story.now + Duration::from_secs(row[2].parse().unwrap()) - Duration::from_nanos(1);
        let events = story.try_apply(&task::Command::Converge).unwrap();
        let outcome = if events.is_empty() { "=" } else { story.state() };
        assert_eq!(outcome, row[4], "{row:?}");
    }
}

#[test]
fn queued_task_is_blocked_until_deadline() {
    let wait = Placement::Queue { deadline_ms: 600_000 };
    let mut story = TaskScenario::with("PENDING", &instance(1, "c1"), wait);
    let fail = |story: &TaskScenario| {
        task::Command::Fail(unplaced_task(story.task.as_ref(), "insufficient resources"))
    };
    story.try_apply(&fail(&story)).unwrap();
    let status =
        |story: &TaskScenario| story.task.as_ref().unwrap().evaluations.iter().last().unwrap().status;
    let reason = "insufficient resources".to_owned();
    assert_eq!((story.state(), status(&story)), ("PENDING", Status::Blocked { reason: reason.clone() }));
    assert_eq!(story.try_apply(&fail(&story)), Ok(vec![]));
    story.now = story.now + Duration::from_secs(600);
    story.try_apply(&task::Command::Converge).unwrap();
    assert_eq!((story.state(), status(&story)), ("COMPLETED", Status::Failed { reason: reason.clone() }));
    let outcome = story.task.as_ref().unwrap().completed().unwrap().outcome.clone();
    assert_eq!(outcome, Outcome::Failed { reason });
}

#[test]
fn task_failure_reasons_match_diego() {
    let own = instance(1, "c1");
    let reason = |mut story: TaskScenario, command: task::Command| {
        story.try_apply(&command).unwrap();
        match &story.task.unwrap().completed().unwrap().outcome {
            Outcome::Failed { reason } => reason.clone(),
            Outcome::Succeeded { .. } => panic!("expected a failure"),
        }
    };
    assert_eq!(
        reason(TaskScenario::with("PENDING", &own, Placement::Fail), task::Command::Cancel),
        "cancelled"
    );
    let mut lost = TaskScenario::with("RUNNING", &own, Placement::Fail);
    lost.present = false;
    assert_eq!(reason(lost, task::Command::Converge), "cell disappeared before completion");
}

#[test]
fn placement_outcome_of_earlier_attempt_is_ignored() {
    let own = instance(1, "c1");
    let mut story = ProcessScenario::desired(1);
    let judged = story.process.as_ref().unwrap().actual(&web(0)).unwrap().since;
    let fail = |story: &ProcessScenario, attempt| {
        let unplaced = process::Unplaced { place: web(0), attempt, error: "insufficient resources".into() };
        Command::Fail(outcome(story.process.as_ref(), vec![unplaced]))
    };
    let first = fail(&story, judged);
    story.report_at_0(&own, start());
    assert_eq!(
        story.try_apply(&first).unwrap_err().code,
        Code::InvalidStateTransition,
        "its evaluation is complete"
    );
    story.report_at_0(&own, crash());
    assert_eq!(story.state(), "UNCLAIMED");
    let earlier = fail(&story, judged);
    assert_eq!(story.try_apply(&earlier), Ok(vec![]), "another attempt was judged");
    let current = fail(&story, story.process.as_ref().unwrap().actual(&web(0)).unwrap().since);
    // The evaluation completes. A blocked evaluation is created for the instance, which has a placement
    // error.
    assert_eq!(story.try_apply(&current).unwrap().len(), 3);
}

#[test]
fn lost_cell_ends_stopping_instance() {
    let own = instance(1, "c1");
    let mut story = ProcessScenario::desired(1);
    story.crash(&own, 2);
    story.report_at_0(&own, start());
    let count =
        |story: &ProcessScenario| story.process.as_ref().unwrap().actual(&web(0)).unwrap().crash_count;
    let mut stopping =
        ProcessScenario { process: story.process.clone(), now: story.now, ..ProcessScenario::new() };
    stopping.try_apply(&Command::Retire { index: 0, definition_id: None }).unwrap();
    for lost in [&mut story, &mut stopping] {
        lost.present = false;
        lost.try_apply(&Command::Converge).unwrap();
        assert_eq!(lost.state(), "UNCLAIMED");
    }
    // The first record moved to another cell, and the second one is new.
    assert_eq!((count(&story), count(&stopping)), (2, 0));
}

#[test]
fn last_crashed_container_is_kept_until_record_is_recreated() {
    let (own, next) = (instance(1, "c1"), instance(2, "c2"));
    let crashed_in = |story: &ProcessScenario| {
        story.process.as_ref().unwrap().actual(&web(0)).unwrap().crashed_instance.clone()
    };
    let mut story = ProcessScenario::desired(1);
    story.report_at_0(&own, start());
    assert_eq!(crashed_in(&story), None);
    story.report_at_0(&own, crash());
    for command in [claim(), start(), actual::Command::Unclaim, start()] {
        story.report_at_0(&next, command);
        assert_eq!(crashed_in(&story).as_deref(), Some(&own));
    }
    story.report_at_0(&next, crash());
    assert_eq!(crashed_in(&story).as_deref(), Some(&next));
    story.report_at_0(&own, start());
    story.try_apply(&Command::Retire { index: 0, definition_id: None }).unwrap();
    story.report_at_0(&own, actual::Command::Remove);
    assert_eq!((story.state().as_str(), crashed_in(&story)), ("UNCLAIMED", None));
}

#[test]
fn report_on_changed_record_is_stale() {
    let (own, other) = (instance(1, "c1"), instance(2, "c2"));
    let report = |story: &ProcessScenario, step| Report {
        domain: domain("apps"),
        place: web(0),
        epoch: story.process.as_ref().unwrap().epoch,
        by: own.clone(),
        observed_at: story.process.as_ref().unwrap().changed_at(&web(0)),
        steps: vec![step],
    };
    let mut story = ProcessScenario::with("CLAIMED", &own);
    let first = Command::Report(report(&story, ReportStep::Actual(start())));
    assert_ne!(story.try_apply(&first), Ok(vec![]));
    assert_eq!(story.try_apply(&first), Ok(vec![]), "no change");
    let early = report(&story, ReportStep::Actual(crash()));
    story.report_at_0(&own, crash());
    let stale = |answer: Result<Vec<Event>, Refusal>| answer.unwrap_err().code;
    assert_eq!(stale(story.try_apply(&first)), Code::StaleRecord, "the container has ended");
    assert_eq!(story.state(), "UNCLAIMED");
    assert_eq!(story.try_apply(&Command::Report(early)).unwrap_err().code, Code::ActualLrpCannotBeCrashed);

    // A placement error does not count as a change, but a new holder does.
    let claim = report(&story, ReportStep::Actual(claim()));
    let attempt = story.process.as_ref().unwrap().actual(&web(0)).unwrap().since;
    let unplaced = process::Unplaced { place: web(0), attempt, error: "insufficient resources".into() };
    let outcome = outcome(story.process.as_ref(), vec![unplaced]);
    story.try_apply(&Command::Fail(outcome)).unwrap();
    assert_eq!(report(&story, ReportStep::Actual(start())).observed_at, claim.observed_at);
    let again = report(&story, ReportStep::Actual(start()));
    story.report_at_0(&other, actual::Command::Claim { placement: None });
    assert_eq!(stale(story.try_apply(&Command::Report(again))), Code::StaleRecord);

    // If no record of a slot is left, removals of other records of the process count as changes.
    let late = Command::Report(report(&story, ReportStep::Actual(start())));
    story.try_apply(&Command::Remove).unwrap();
    story.report_at_0(&other, actual::Command::Remove);
    assert_eq!(story.state(), "none");
    assert_eq!(stale(story.try_apply(&late)), Code::StaleRecord);
}

#[test]
fn returning_containers_of_removed_process_are_accepted() {
    let mut story = ProcessScenario::desired(1);
    story.try_apply(&Command::Remove).unwrap();
    assert_eq!(story.state(), "none");
    let process = story.process.clone().unwrap();
    let back = |index: u32| Report {
        domain: domain("apps"),
        place: web(index),
        epoch: process.epoch,
        by: instance(u128::from(index) + 1, "c1"),
        observed_at: process.changed_at(&web(index)),
        steps: vec![ReportStep::Actual(start())],
    };
    for index in 0..3 {
        story.try_apply(&Command::Report(back(index))).unwrap();
        assert_eq!(story.state_of(index), "RUNNING stopping");
    }
    // Once one of the records is gone, older reports about slots without a record are refused.
    story.report(1, &instance(2, "c1"), ReportStep::Actual(actual::Command::Remove)).unwrap();
    for index in [1, 3] {
        let answer = story.try_apply(&Command::Report(back(index)));
        assert_eq!(answer.unwrap_err().code, Code::StaleRecord, "{index}");
    }
}

#[test]
fn report_with_other_epoch_domain_or_cell_is_refused() {
    let own = instance(1, "c1");
    let code = |answer: Result<Vec<Event>, Refusal>| answer.unwrap_err().code;
    let mut story = ProcessScenario::with("CLAIMED", &own);
    let report = |story: &ProcessScenario| Report {
        domain: domain("apps"),
        place: web(0),
        epoch: story.process.as_ref().unwrap().epoch,
        by: own.clone(),
        observed_at: story.now,
        steps: vec![ReportStep::Actual(start())],
    };
    let earlier = Report { epoch: Epoch(Timestamp(1)), ..report(&story) };
    assert_eq!(code(story.try_apply(&Command::Report(earlier))), Code::StaleEpoch);
    // The report names a later epoch, so this BBS is behind. The BBS must not end the container for this
    // reason.
    let later = Report { epoch: Epoch(story.now.next()), ..report(&story) };
    assert_eq!(code(story.try_apply(&Command::Report(later))), Code::Unavailable);
    let elsewhere = Report { domain: domain("other"), ..report(&story) };
    assert_eq!(code(story.try_apply(&Command::Report(elsewhere))), Code::Forbidden);
    story.present = false;
    let lost = report(&story);
    assert_eq!(code(story.try_apply(&Command::Report(lost))), Code::CellAbsent);

    let mut story = TaskScenario::with("RUNNING", &own, Placement::Fail);
    let report = |name: &str, epoch| {
        let step = task::ReportStep::Complete { outcome: Outcome::Succeeded { result: "42".into() } };
        task::Command::Report(task::Report { domain: domain(name), epoch, by: own.clone(), step })
    };
    let epoch = story.task.as_ref().unwrap().epoch;
    assert_eq!(code(story.try_apply(&report("apps", Epoch(Timestamp(1))))), Code::StaleEpoch);
    assert_eq!(code(story.try_apply(&report("apps", Epoch(story.now.next())))), Code::Unavailable);
    assert_eq!(code(story.try_apply(&report("other", epoch))), Code::Forbidden);
    story.present = false;
    let lost = story.complete(&own);
    assert_eq!(code(story.try_apply(&lost)), Code::CellAbsent);
}

#[test]
fn guid_changes_domain_only_after_last_record_is_gone() {
    let own = instance(1, "c1");
    let mut story = ProcessScenario::with("RUNNING", &own);
    story.try_apply(&Command::Remove).unwrap();
    let elsewhere = Command::Desire(Box::new(lrp("other", 1)));
    assert_eq!(story.try_apply(&elsewhere).unwrap_err().code, Code::ResourceConflict);
    story.report_at_0(&own, actual::Command::Remove);
    assert!(story.process.as_ref().unwrap().is_gone());
    story.try_apply(&elsewhere).unwrap();
    assert_eq!(story.process.unwrap().domain, domain("other"));
}

#[test]
fn long_reason_is_truncated_and_repetition_recognised() {
    let own = instance(1, "c1");
    let long = "x".repeat(5000);
    let mut story = ProcessScenario::desired(1);
    let attempt = story.process.as_ref().unwrap().actual(&web(0)).unwrap().since;
    let unplaced = process::Unplaced { place: web(0), attempt, error: long.clone() };
    let fail =
        |story: &ProcessScenario| Command::Fail(outcome(story.process.as_ref(), vec![unplaced.clone()]));
    let text = format!("{:?}", story.try_apply(&fail(&story)).unwrap());
    assert!(text.len() < 2 * limits::REASON_BYTES + 500, "{text}");
    assert_eq!(story.try_apply(&fail(&story)), Ok(vec![]));
    story.report_at_0(&own, start());
    story.report_at_0(&own, actual::Command::Crash { reason: long.clone(), exit_status: None });
    let reason = &story.process.as_ref().unwrap().actual(&web(0)).unwrap().crash_reason;
    assert!(reason.len() <= limits::REASON_BYTES && reason.ends_with("(truncated)"));

    let wait = Placement::Queue { deadline_ms: 600_000 };
    let mut story = TaskScenario::with("PENDING", &own, wait);
    let fail = |story: &TaskScenario| task::Command::Fail(unplaced_task(story.task.as_ref(), &long));
    assert!(format!("{:?}", story.try_apply(&fail(&story)).unwrap()).len() < 2 * limits::REASON_BYTES + 500);
    assert_eq!(story.try_apply(&fail(&story)), Ok(vec![]));
}

#[test]
fn callback_url_is_not_in_debug_output() {
    let secret = Secret::Plain("https://user:password@example.com".into());
    assert!(!format!("{secret:?}").contains("password"));
}

#[test]
fn evacuation_continues_after_rep_restart_and_starts_again_when_requested_again() {
    use machines::cell::{evacuation, evolve};
    use schemas::cell::{Evacuation, Event};
    let appeared = |run| Event::Appeared(fixtures::presence(run));
    let (requested, withdrawn) = (Event::EvacuationRequested {}, Event::EvacuationWithdrawn {});
    let story = [
        (appeared(1), Evacuation::None),
        (requested.clone(), Evacuation::Requested),
        (Event::Evacuating {}, Evacuation::Started(Timestamp(2))),
        (appeared(2), Evacuation::Started(Timestamp(2))),
        (Event::Evacuating {}, Evacuation::Started(Timestamp(2))),
        // The rep does not notice the withdrawal or cannot report it. The rep therefore never reports that it
        // accepts work again.
        (withdrawn, Evacuation::None),
        (requested, Evacuation::Requested),
        (appeared(3), Evacuation::Requested),
        (Event::Evacuating {}, Evacuation::Started(Timestamp(8))),
    ];
    let mut cell = None;
    for ((event, after), at) in story.into_iter().zip(0..) {
        cell = evolve(cell, &event, &Stamp::root(DecisionId(id(at.into())), Timestamp(at)));
        assert_eq!(evacuation(cell.as_ref()), after, "after {event:?} at {at}");
    }
}
