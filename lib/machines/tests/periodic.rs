//! Tests of periodic tasks. The schedules are compared with a table of clock changes, and the state machine
//! runs random steps.

use std::collections::BTreeSet;
use std::time::Duration;

use machines::periodic::{self, Context, Periodic};
use proptest::prelude::*;
use schemas::definition::{DesiredPeriodic, Overlap};
use schemas::names::{PeriodicGuid, TaskGuid};
use schemas::periodic::{Command, Event, LaunchReason, SkipReason};
use schemas::schedule::{BadSchedule, Schedule};
use schemas::stamp::Stamp;
use schemas::{Code, Refusal, Timestamp};

use crate::common::{domain, id};

/// Due times in time zones with clock changes. Columns: description, zone, expression, start time, and the
/// due times that follow.
const TABLE: &str = include_str!("../../../tests/conformance/periodic.csv");

fn moment(text: &str) -> Timestamp {
    let number = |range: std::ops::Range<usize>| text[range].parse::<u64>().unwrap();
    let (year, month, day) = (number(0..4), number(5..7), number(8..10));
    // Computes days of the civil calendar, from the era that started on 0000-03-01.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Timestamp::from_seconds(days * 86_400 + number(11..13) * 3_600 + number(14..16) * 60)
}

struct Row {
    description: &'static str,
    schedule: Schedule,
    from: Timestamp,
    dues: Vec<Timestamp>,
}

fn table() -> Vec<Row> {
    let rows = TABLE.lines().skip(1).map(|line| {
        let [what, zone, cron, from, dues] = line.split(',').collect::<Vec<_>>()[..] else {
            panic!("expected five columns: {line}")
        };
        let schedule = Schedule::new(cron, zone).unwrap();
        Row { description: what, schedule, from: moment(from), dues: dues.split(' ').map(moment).collect() }
    });
    rows.collect()
}

#[test]
fn due_times_match_conformance_table() {
    let rows = table();
    assert!(rows.len() >= 25, "{}", rows.len());
    for Row { description: what, schedule, from, dues } in rows {
        let mut at = from;
        for due in dues {
            assert_eq!(schedule.next_after(at), Some(due), "{what}: after {at}");
            at = due;
        }
    }
}

#[test]
fn time_between_due_times_has_same_next_due_time() {
    for Row { description: what, schedule, from, dues } in table() {
        let mut at = from;
        for due in dues {
            let just_before = Timestamp(due.0 - 1);
            assert_eq!(schedule.next_after(just_before), Some(due), "{what}");
            for part in 1..8 {
                let between = Timestamp(at.0 + (due.0 - at.0) / 8 * part);
                assert_eq!(schedule.next_after(between), Some(due), "{what}: after {between}");
            }
            at = due;
        }
    }
}

#[test]
fn missed_due_times_are_counted_and_latest_is_found() {
    for Row { description: what, schedule, dues, .. } in table() {
        for (at, now) in dues.iter().enumerate() {
            for now in [*now, *now + Duration::from_secs(30)] {
                let missed = schedule.due_times(dues[0], now);
                assert_eq!(missed.latest, dues[at], "{what} at {now}");
                let earlier = missed.earlier.map(|earlier| (earlier.count as usize, earlier.until));
                assert_eq!(earlier, at.checked_sub(1).map(|last| (at, dues[last])), "{what} at {now}");
            }
        }
    }
}

#[test]
fn missed_due_times_of_long_downtime_are_capped() {
    let schedule = Schedule::new("* * * * *", "America/New_York").unwrap();
    let first = moment("2020-01-01T00:00Z");
    let missed = schedule.due_times(first, moment("2026-07-01T00:00Z") + Duration::from_secs(7));
    assert_eq!(missed.latest, moment("2026-07-01T00:00Z"));
    let earlier = missed.earlier.unwrap();
    assert_eq!((earlier.count, earlier.until), (1_000, moment("2026-06-30T23:59Z")));
    let yearly = Schedule::new("@yearly", "UTC").unwrap();
    let missed = yearly.due_times(moment("2020-01-01T00:00Z"), moment("2026-12-31T00:00Z"));
    assert_eq!(missed.latest, moment("2026-01-01T00:00Z"));
    assert_eq!(missed.earlier.unwrap().count, 6);
}

#[test]
fn invalid_schedule_is_refused_with_reason() {
    let bad = |cron: &str, zone: &str| Schedule::new(cron, zone).unwrap_err();
    for cron in
        ["", "* * * *", "0 * * * * *", "60 * * * *", "a b c d e", "@never", "* * * * * *", &"*".repeat(200)]
    {
        let error = bad(cron, "UTC");
        assert!(matches!(error, BadSchedule::Cron(..)), "{cron}: {error}");
        assert!(error.to_string().contains("minute hour day month weekday"), "{error}");
    }
    for cron in ["0 0 30 2 *", "0 0 31 4,6,9,11 *"] {
        assert_eq!(bad(cron, "UTC"), BadSchedule::Never(cron.into()));
    }
    assert!(bad("@daily", "Europe/Berln").to_string().contains("did you mean Europe/Berlin?"));
    assert!(bad("@daily", "europe/berlin").to_string().contains("did you mean Europe/Berlin?"));
    assert!(bad("@daily", "").to_string().contains("one like Europe/Berlin or UTC"));
    assert!(bad("@daily", "../etc/passwd").to_string().contains("not a time zone"));
}

// ---- state machine
// ------------------------------------------------------------------------------------------------

fn guid() -> PeriodicGuid {
    PeriodicGuid::new("report").unwrap()
}

fn desired(cron: &str, overlap: Overlap) -> DesiredPeriodic {
    DesiredPeriodic {
        periodic_guid: guid(),
        domain: domain("apps"),
        schedule: Schedule::new(cron, "Europe/Berlin").unwrap(),
        overlap,
        definition: fixtures::task_definition().into(),
    }
}

/// A periodic task, its running tasks, and a record of its events.
struct Harness {
    known: Option<Periodic>,
    now: Timestamp,
    live: BTreeSet<TaskGuid>,
    decisions: u128,
    /// Every launch: due time, reason, and launch time.
    launched: Vec<(Timestamp, LaunchReason, Timestamp)>,
    events: Vec<(Timestamp, Event)>,
}

impl Harness {
    fn at(now: &str) -> Self {
        let (live, now) = (BTreeSet::new(), moment(now));
        Self { known: None, now, live, decisions: 0, launched: vec![], events: vec![] }
    }

    fn try_apply(&mut self, command: &Command) -> Result<Vec<Event>, Refusal> {
        let runs = |_: &PeriodicGuid| !self.live.is_empty();
        let exists = |task: &TaskGuid| self.live.contains(task);
        let context = Context { now: self.now, is_running: &runs, task_exists: &exists };
        let events = periodic::decide(self.known.as_ref(), command, context)?;
        self.decisions += 1;
        let stamp = Stamp::root(schemas::names::DecisionId(id(self.decisions)), self.now);
        self.known = periodic::evolve(self.known.take(), &events, &stamp);
        for event in &events {
            if let Event::Launched { due, task_guid, reason, .. } = event {
                self.launched.push((*due, *reason, self.now));
                assert!(self.live.insert(task_guid.clone()), "{task_guid} already exists");
            }
            self.events.push((self.now, event.clone()));
        }
        Ok(events)
    }

    fn desire(&mut self, cron: &str, overlap: Overlap) {
        self.try_apply(&Command::Desire(Box::new(desired(cron, overlap)))).unwrap();
    }

    /// Advances the time to this moment and runs convergence.
    fn converge_at(&mut self, now: &str) -> Vec<Event> {
        self.now = moment(now);
        self.try_apply(&Command::Converge).unwrap()
    }

    fn next(&self) -> Option<Timestamp> {
        self.known.as_ref().and_then(|known| known.next)
    }
}

fn skipped(events: &[Event]) -> Vec<(u32, SkipReason)> {
    let skip = |event: &Event| match event {
        Event::Skipped { count, reason, .. } => Some((*count, *reason)),
        Event::Desired { .. }
        | Event::Updated { .. }
        | Event::Launched { .. }
        | Event::Queued { .. }
        | Event::Paused {}
        | Event::Resumed { .. }
        | Event::Removed {} => None,
    };
    events.iter().filter_map(skip).collect()
}

#[test]
fn due_launch_happens_once_and_schedules_next() {
    let mut stage = Harness::at("2026-03-27T12:00Z");
    stage.desire("30 2 * * *", Overlap::Skipped);
    assert_eq!(stage.next(), Some(moment("2026-03-28T01:30Z")));
    assert_eq!(stage.converge_at("2026-03-28T01:29Z"), []);
    let due = moment("2026-03-28T01:30Z");
    let task_guid = TaskGuid::new("report--1774661400").unwrap();
    let next = Some(moment("2026-03-29T01:00Z"));
    let launched = Event::Launched { due, task_guid, reason: LaunchReason::Due, next };
    assert_eq!(stage.converge_at("2026-03-28T01:30Z"), [launched]);
    assert_eq!(stage.converge_at("2026-03-28T01:30Z"), [], "a second pass finds nothing");
    assert_eq!(
        stage.try_apply(&Command::Desire(Box::new(desired("@daily", Overlap::Allowed)))).unwrap_err().code,
        Code::ResourceExists
    );
}

#[test]
fn downtime_ends_with_single_catch_up_launch() {
    let mut stage = Harness::at("2026-03-27T12:00Z");
    stage.desire("0 * * * *", Overlap::Allowed);
    let events = stage.converge_at("2026-03-28T09:20Z");
    assert_eq!(skipped(&events), [(20, SkipReason::Missed)]);
    let launched = (moment("2026-03-28T09:00Z"), LaunchReason::CatchUp, stage.now);
    assert_eq!(stage.launched, [launched]);
    assert_eq!(stage.next(), Some(moment("2026-03-28T10:00Z")));
}

#[test]
fn overlapping_launch_is_allowed_skipped_or_queued() {
    let run = |overlap| {
        let mut stage = Harness::at("2026-03-27T12:00Z");
        stage.desire("0 * * * *", overlap);
        stage.converge_at("2026-03-27T13:00Z");
        stage
    };
    let mut allowed = run(Overlap::Allowed);
    allowed.converge_at("2026-03-27T14:00Z");
    assert_eq!(allowed.launched.len(), 2);

    let mut skips = run(Overlap::Skipped);
    assert_eq!(skipped(&skips.converge_at("2026-03-27T14:00Z")), [(1, SkipReason::StillRunning)]);
    skips.live.clear();
    assert_eq!(skips.converge_at("2026-03-27T14:30Z"), [], "a skipped launch is not repeated");
    skips.converge_at("2026-03-27T15:00Z");
    assert_eq!(skips.launched.len(), 2);

    let mut queues = run(Overlap::Queued);
    assert!(matches!(queues.converge_at("2026-03-27T14:00Z")[..], [Event::Queued { .. }]));
    assert_eq!(skipped(&queues.converge_at("2026-03-27T15:00Z")), [(1, SkipReason::AlreadyQueued)]);
    assert_eq!(queues.converge_at("2026-03-27T15:10Z"), [], "the launch waits while a task runs");
    queues.live.clear();
    queues.converge_at("2026-03-27T15:20Z");
    let waited = (moment("2026-03-27T14:00Z"), LaunchReason::Queued, queues.now);
    assert_eq!(queues.launched.last(), Some(&waited));
}

#[test]
fn update_or_pause_launches_what_was_due() {
    for pause in [false, true] {
        let mut stage = Harness::at("2026-03-27T12:00Z");
        stage.desire("0 * * * *", Overlap::Queued);
        stage.now = moment("2026-03-27T13:00Z");
        let command = match pause {
            true => Command::Pause,
            false => Command::Update(Box::new(desired("30 * * * *", Overlap::Queued))),
        };
        stage.try_apply(&command).unwrap();
        assert_eq!(stage.launched.len(), 1, "{command:?}");
        assert_eq!(stage.next(), (!pause).then(|| moment("2026-03-27T13:30Z")));
    }
}

#[test]
fn queued_launch_is_given_up_by_pause_or_new_overlap() {
    for command in [Command::Pause, Command::Update(Box::new(desired("0 * * * *", Overlap::Skipped)))] {
        let mut stage = Harness::at("2026-03-27T12:00Z");
        stage.desire("0 * * * *", Overlap::Queued);
        stage.converge_at("2026-03-27T13:00Z");
        stage.converge_at("2026-03-27T14:00Z");
        stage.now = moment("2026-03-27T14:10Z");
        assert_eq!(skipped(&stage.try_apply(&command).unwrap()), [(1, SkipReason::Abandoned)]);
        stage.live.clear();
        assert_eq!(stage.try_apply(&Command::Converge).unwrap(), []);
    }
}

#[test]
fn launches_missed_during_pause_are_not_caught_up() {
    let mut stage = Harness::at("2026-03-27T12:00Z");
    stage.desire("0 * * * *", Overlap::Skipped);
    assert_eq!(stage.try_apply(&Command::Resume).unwrap(), []);
    stage.try_apply(&Command::Pause).unwrap();
    assert_eq!(stage.try_apply(&Command::Pause).unwrap(), []);
    assert_eq!(stage.converge_at("2026-03-27T18:30Z"), []);
    stage.try_apply(&Command::Resume).unwrap();
    assert_eq!((stage.next(), stage.launched.len()), (Some(moment("2026-03-27T19:00Z")), 0));
}

#[test]
fn second_manual_launch_within_a_second_is_refused() {
    let mut stage = Harness::at("2026-03-27T12:00Z");
    stage.desire("0 * * * *", Overlap::Skipped);
    stage.try_apply(&Command::Launch).unwrap();
    stage.now = stage.now.next();
    assert_eq!(stage.try_apply(&Command::Launch).unwrap_err().code, Code::ResourceExists);
    stage.now = stage.now + Duration::from_secs(1);
    stage.try_apply(&Command::Launch).unwrap();
    assert_eq!(stage.next(), Some(moment("2026-03-27T13:00Z")), "the schedule continues");
    let mut gone = Harness::at("2026-03-27T12:00Z");
    for command in [Command::Launch, Command::Pause, Command::Resume, Command::Remove] {
        assert_eq!(gone.try_apply(&command).unwrap_err().code, Code::ResourceNotFound);
    }
    assert_eq!(gone.try_apply(&Command::Converge).unwrap(), []);
}

/// A random step of the test.
#[derive(Clone, Debug)]
enum Step {
    /// Number of seconds that pass. `true` if convergence runs afterwards.
    Pass(u64, bool),
    /// A task ends.
    End,
    Apply(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..5_000_u64, any::<bool>()).prop_map(|(seconds, looks)| Step::Pass(seconds, looks)),
        1 => (3_000..400_000_u64).prop_map(|seconds| Step::Pass(seconds, true)),
        3 => Just(Step::End),
        2 => (0..9_u8).prop_map(Step::Apply),
    ]
}

const CRONS: [&str; 4] = ["*/20 * * * *", "30 2 * * *", "0 */3 * * *", "15 1-3 * * *"];

fn command(number: u8, overlap: Overlap) -> Command {
    let spec = || Box::new(desired(CRONS[usize::from(number) % 4], overlap));
    match number {
        0 | 1 => Command::Desire(spec()),
        2..=4 => Command::Update(spec()),
        5 => Command::Pause,
        6 => Command::Resume,
        7 => Command::Launch,
        _ => Command::Remove,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Runs across both clock changes in Berlin. While the task is desired and not paused, every due time is
    /// launched or skipped exactly once. Nothing else is launched.
    #[test]
    fn each_due_time_is_launched_or_skipped_exactly_once(
        autumn in any::<bool>(),
        overlaps in proptest::collection::vec(0..3_u8, 60),
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        let mut stage = Harness::at(if autumn { "2026-10-24T12:00Z" } else { "2026-03-28T12:00Z" });
        stage.desire(CRONS[0], Overlap::Queued);
        for (step, overlap) in steps.into_iter().zip(overlaps) {
            let overlap = [Overlap::Allowed, Overlap::Skipped, Overlap::Queued][usize::from(overlap)];
            match step {
                Step::Pass(seconds, looks) => {
                    stage.now = stage.now + Duration::from_secs(seconds);
                    if looks {
                        stage.try_apply(&Command::Converge).unwrap();
                        prop_assert_eq!(stage.try_apply(&Command::Converge).unwrap(), vec![], "a second pass");
                    }
                }
                Step::End => drop(stage.live.pop_first()),
                Step::Apply(number) => drop(stage.try_apply(&command(number, overlap))),
            }
        }
        stage.try_apply(&Command::Converge).unwrap();
        check_events(&stage)?;
    }
}

/// Replays the events with a simple model and checks every launch and skip.
fn check_events(stage: &Harness) -> Result<(), TestCaseError> {
    let (mut schedule, mut due, mut waits): (Option<Schedule>, Option<Timestamp>, Option<Timestamp>) =
        (None, None, None);
    for (at, event) in &stage.events {
        let next =
            |schedule: &Option<Schedule>, after| schedule.as_ref().and_then(|known| known.next_after(after));
        match event {
            Event::Desired { desired, .. } | Event::Updated { desired, .. } => {
                prop_assert!(due.is_none_or(|due| due > *at), "{:?} was due before {event:?} at {at}", due);
                let paused = schedule.is_some() && due.is_none();
                schedule = Some(desired.schedule.clone());
                due = if paused { None } else { next(&schedule, *at) };
            }
            Event::Launched { due: launched, reason, .. } => match reason {
                LaunchReason::Requested => prop_assert_eq!(launched, at),
                LaunchReason::Queued => prop_assert_eq!(waits.take(), Some(*launched)),
                LaunchReason::Due | LaunchReason::CatchUp => {
                    prop_assert!(due == Some(*launched) && launched <= at, "{event:?} at {at}, due {due:?}");
                    due = next(&schedule, *launched);
                    prop_assert!(due.is_none_or(|due| due > *at), "one launch catches up for all");
                }
            },
            Event::Queued { due: queued, .. } => {
                prop_assert!(due == Some(*queued) && waits.is_none() && queued <= at);
                (waits, due) = (Some(*queued), next(&schedule, *queued));
            }
            Event::Skipped { from, count, reason, .. } if *reason != SkipReason::Abandoned => {
                prop_assert!(due == Some(*from) && *count < 1_000);
                for _ in 0..*count {
                    prop_assert!(due.is_some_and(|due| due <= *at), "{event:?} at {at}, due {due:?}");
                    due = due.and_then(|due| next(&schedule, due));
                }
            }
            Event::Skipped { from, .. } => prop_assert_eq!(waits.take(), Some(*from)),
            Event::Paused {} => {
                prop_assert!(due.is_none_or(|due| due > *at) && waits.is_none());
                due = None;
            }
            Event::Resumed { .. } => due = next(&schedule, *at),
            Event::Removed {} => (schedule, due, waits) = (None, None, None),
        }
    }
    let known = stage.known.as_ref();
    prop_assert_eq!(known.and_then(|known| known.next), due);
    prop_assert_eq!(known.and_then(|known| known.queued_due), waits);
    prop_assert!(due.is_none_or(|due| due > stage.now));
    Ok(())
}
