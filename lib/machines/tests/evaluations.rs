//! Tests of evaluations: the table of their transitions, and a scenario for each arrow of the two diagrams of
//! Nomad evaluation states.

use std::time::Duration;

use machines::crash;
use machines::evaluation::{StatusKind, Step, follow_up_delay, transition};
use machines::process::{self, Context, Process};
use schemas::container::Epoch;
use schemas::entry::Event;
use schemas::evaluation::{self, CancelReason, Duty, Evaluation, InitialStatus, Status, Trigger, Wait};
use schemas::isolation::Isolation;
use schemas::names::{CellId, DecisionId, EvaluationId, ProcessGuid};
use schemas::process::{Command, Report, ReportStep, Unplaced};
use schemas::refusal::Code;
use schemas::stamp::Stamp;
use schemas::{Refusal, Timestamp, actual, limits};

use crate::common::{domain, id, instance, lrp, net_info, outcome, place};

const TABLE: &str = include_str!("../../../tests/conformance/evaluation.csv");

const STEPS: [(&str, Step); 11] = [
    ("create", Step::Create),
    ("create_blocked", Step::CreateBlocked),
    ("create_complete", Step::CreateComplete),
    ("note", Step::Note),
    ("block", Step::Block),
    ("complete", Step::Complete),
    ("fail", Step::Fail),
    ("cancel", Step::Cancel),
    ("retry", Step::Retry),
    ("retry_blocked", Step::RetryBlocked),
    ("delete", Step::Delete),
];

const STATUSES: [(&str, StatusKind); 7] = [
    ("new", StatusKind::New),
    ("pending", StatusKind::Pending),
    ("blocked", StatusKind::Blocked),
    ("complete", StatusKind::Complete),
    ("failed", StatusKind::Failed),
    ("canceled", StatusKind::Canceled),
    ("deleted", StatusKind::Deleted),
];

#[test]
fn transitions_match_conformance_table() {
    let mut lines = TABLE.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    assert_eq!(head[1..], STATUSES.map(|(name, _)| name), "every status has a column");
    let rows: Vec<Vec<&str>> = lines.collect();
    assert_eq!(
        rows.iter().map(|row| row[0]).collect::<Vec<_>>(),
        STEPS.map(|(name, _)| name),
        "every step has a row"
    );
    for (row, (step_name, step)) in rows.iter().zip(STEPS) {
        for ((from_name, from), says) in STATUSES.into_iter().zip(&row[1..]) {
            let to = transition(from, step);
            let name =
                STATUSES.into_iter().find(|(_, named)| Some(*named) == to).map_or("!", |(name, _)| name);
            assert_eq!(name, *says, "{step_name} of {from_name}");
        }
    }
}

/// Invalid transitions in a log leave an evaluation unchanged.
#[test]
fn invalid_transition_leaves_evaluation_unchanged() {
    let one = EvaluationId(id(1));
    let created = |initial_status| evaluation::Event::Created {
        number: 0,
        trigger: Trigger::Desire,
        initial_status,
        previous: None,
    };
    let begins: [(StatusKind, Vec<evaluation::Event>); 5] = [
        (StatusKind::Pending, vec![]),
        (StatusKind::Blocked, vec![]),
        (StatusKind::Complete, vec![completed(one)]),
        (StatusKind::Failed, vec![evaluation::Event::Failed { evaluation: one, reason: "r".into() }]),
        (StatusKind::Canceled, vec![canceled(one)]),
    ];
    for (named, before) in begins {
        let begin = match named {
            StatusKind::Blocked => InitialStatus::Blocked { reason: "full".into(), eligibility: None },
            StatusKind::New
            | StatusKind::Pending
            | StatusKind::Complete
            | StatusKind::Failed
            | StatusKind::Canceled
            | StatusKind::Deleted => InitialStatus::Pending,
        };
        let mut all = vec![];
        let stamp = |number| Stamp::root(DecisionId(id(number)), Timestamp(5));
        machines::evaluation::evolve(&mut all, &created(begin), &stamp(1));
        before.iter().for_each(|event| machines::evaluation::evolve(&mut all, event, &stamp(2)));
        assert_eq!(StatusKind::from_status(&all[0].status), named);
        for event in every_event(one) {
            let mut after = all.clone();
            machines::evaluation::evolve(&mut after, &event, &stamp(3));
            match transition(named, Step::from_event(&event)) {
                Some(to) => {
                    assert_eq!(StatusKind::from_status(&after[0].status), to, "{event:?} of {named:?}");
                }
                None => assert_eq!(after, all, "{event:?} of {named:?}"),
            }
        }
    }
}

fn completed(evaluation: EvaluationId) -> evaluation::Event {
    evaluation::Event::Completed { evaluation, placed: 1, queued: 0, rejected: 0, blocked: None }
}

fn canceled(evaluation: EvaluationId) -> evaluation::Event {
    evaluation::Event::Canceled { evaluation, reason: CancelReason::NothingLeft }
}

fn every_event(evaluation: EvaluationId) -> Vec<evaluation::Event> {
    use evaluation::Event as E;
    let until = Timestamp(9);
    vec![
        E::Joined { evaluation, trigger: Trigger::Scale },
        E::DelayChanged { evaluation, until },
        E::Due { evaluation },
        E::Redelivered { evaluation, delivery: 2, until },
        E::Blocked { evaluation, reason: "other".into(), eligibility: None },
        completed(evaluation),
        E::Failed { evaluation, reason: "r".into() },
        canceled(evaluation),
        E::Retried { evaluation, blocked: None },
        E::Retried { evaluation, blocked: Some("full".into()) },
    ]
}

/// A process that commands are applied to.
struct Scenario {
    process: Option<Process>,
    now: Timestamp,
    decisions: u128,
    absent: Vec<CellId>,
}

impl Scenario {
    fn desired(instances: u32) -> Self {
        let now = Timestamp::from_millis(1_000_000);
        let mut story = Self { process: None, now, decisions: 0, absent: vec![] };
        story.apply(Command::Desire(Box::new(lrp("d", instances))));
        story
    }

    fn decide(&self, command: &Command) -> Result<Vec<Event>, Refusal> {
        let present = |cell: &CellId| !self.absent.contains(cell);
        let context = Context {
            now: self.now,
            is_fresh: true,
            is_present: &present,
            is_known: &|_| true,
            for_each_cell: &|_| {},
        };
        process::decide(self.process.as_ref(), command, context)
    }

    fn try_apply(&mut self, command: Command) -> Result<Vec<Event>, Refusal> {
        self.now = self.now.next();
        let events = self.decide(&command)?;
        self.decisions += 1;
        let cause =
            self.process.as_ref().and_then(|process| process.slots.iter().next()).map(|slot| slot.cause);
        let stamp = Stamp::root(DecisionId(id(self.decisions)), self.now);
        let stamp = Stamp { cause: cause.map(|cause| cause.decision), ..stamp };
        let new = || Process::new(ProcessGuid::new("web").unwrap(), domain("d"), Epoch(self.now));
        let mut process = self.process.take().unwrap_or_else(new);
        process::evolve(&mut process, &events, &stamp);
        self.process = Some(process);
        Ok(events)
    }

    fn apply(&mut self, command: Command) -> Vec<Event> {
        self.try_apply(command).unwrap()
    }

    fn process(&self) -> &Process {
        self.process.as_ref().unwrap()
    }

    fn report(&mut self, index: u32, number: u128, command: actual::Command) {
        let by = instance(number, "c1");
        let report = Report {
            domain: domain("d"),
            place: place(index, "web"),
            epoch: self.process().epoch,
            by,
            observed_at: self.now.next(),
            steps: vec![ReportStep::Actual(command)],
        };
        self.apply(Command::Report(report));
    }

    fn claim(&mut self, index: u32) {
        self.report(index, u128::from(index) + 1, actual::Command::Claim { placement: None });
    }

    fn run(&mut self, index: u32) {
        self.report(
            index,
            u128::from(index) + 1,
            actual::Command::Start { net: net_info(1), isolation: Isolation::NONE },
        );
    }

    fn crash(&mut self, index: u32) {
        let reason = "exited with status 1".to_owned();
        self.report(index, u128::from(index) + 1, actual::Command::Crash { reason, exit_status: Some(1) });
    }

    /// Crashes the instance until its restart is delayed. After each earlier crash the instance is placed
    /// again.
    fn crash_until_delayed(&mut self, index: u32) {
        for _ in 0..=crash::IMMEDIATE_RESTARTS {
            self.run(index);
            self.crash(index);
        }
    }

    fn unplaced(&mut self, indices: &[u32], attempts_exhausted: bool) {
        let unplaced = indices.iter().map(|index| {
            let place = place(*index, "web");
            let attempt = self.process().actual(&place).unwrap().since;
            Unplaced { place, attempt, error: "insufficient resources: memory".into() }
        });
        let outcome = outcome(self.process.as_ref(), unplaced.collect());
        self.apply(Command::Fail(schemas::process::Outcome { attempts_exhausted, ..outcome }));
    }

    fn all(&self) -> Vec<Evaluation> {
        self.process().evaluations.to_vec()
    }

    fn open(&self, duty: Duty) -> Evaluation {
        self.process().open_evaluation(duty).unwrap()
    }

    fn named(&self, id: EvaluationId) -> Evaluation {
        self.all().into_iter().find(|one| one.id == id).unwrap()
    }
}

#[test]
fn evaluation_of_desire_completes_when_all_instances_are_placed() {
    let mut story = Scenario::desired(2);
    let first = story.open(Duty::Place).id;
    assert_eq!(story.open(Duty::Place).trigger, Trigger::Desire);
    story.claim(0);
    assert_eq!((&story.named(first).status, story.named(first).placed), (&Status::Pending, 1));
    story.claim(1);
    assert_eq!((&story.named(first).status, story.named(first).placed), (&Status::Complete, 2));
}

/// `scheduling -. queued-allocs .-> blocked`, with `previous` and `blocked`; `blocked -- plan submitted -->
/// complete`.
#[test]
fn unplaced_work_waits_in_blocked_child_and_parent_completes() {
    let mut story = Scenario::desired(3);
    let parent = story.open(Duty::Place).id;
    story.claim(0);
    story.unplaced(&[1, 2], false);
    let child = story.open(Duty::Unblock).id;
    assert_eq!(story.named(child).trigger, Trigger::Queued);
    assert_eq!((story.named(child).previous, story.named(parent).blocked), (Some(parent), Some(child)));
    let ended = story.named(parent);
    assert_eq!((&ended.status, ended.placed, ended.queued), (&Status::Complete, 1, 2));
    story.claim(1);
    assert!(
        matches!(story.named(child).status, Status::Blocked { .. }),
        "the evaluation keeps its id while work waits"
    );
    story.claim(2);
    assert_eq!((&story.named(child).status, story.named(child).placed), (&Status::Complete, 2));
}

/// `scheduling -- reuse already-blocked eval --> blocked`.
#[test]
fn blocked_evaluation_takes_over_unplaced_work_of_later_evaluation() {
    let mut story = Scenario::desired(1);
    story.unplaced(&[0], false);
    let blocked = story.open(Duty::Unblock).id;
    story.apply(Command::Update(scale(2)));
    let second = story.open(Duty::Place).id;
    assert_ne!(second, blocked);
    story.unplaced(&[1], false);
    assert_eq!(story.named(second).blocked, Some(blocked));
    assert_eq!((&story.named(second).status, story.named(second).queued), (&Status::Complete, 1));
    assert_eq!(story.open(Duty::Unblock).id, blocked, "there is only one blocked evaluation");
}

/// `scheduling -. max-plan-attempts .-> blocked`, and the parent failed.
#[test]
fn evaluation_without_attempts_left_fails_and_child_is_blocked() {
    let mut story = Scenario::desired(1);
    let parent = story.open(Duty::Place).id;
    story.unplaced(&[0], true);
    let child = story.open(Duty::Unblock);
    assert_eq!((child.trigger, child.previous), (Trigger::Attempts, Some(parent)));
    assert!(
        matches!(&story.named(parent).status, Status::Failed { reason } if reason.starts_with("no attempts left"))
    );
    assert_eq!(story.named(parent).blocked, Some(child.id));
}

/// `pending -- undeliverable --> failed`, `failed -- failed-follow-up --> pending`, with `previous` and
/// `next`. Each further follow-up waits longer.
#[test]
fn unanswered_evaluation_is_delivered_three_times_then_followed_up() {
    let mut story = Scenario::desired(1);
    let first = story.open(Duty::Place).id;
    let unanswered = |evaluation, delivery| Command::Unanswered { evaluation, delivery };
    for (delivery, wait) in [(1, 1), (2, 20)] {
        story.apply(unanswered(first, delivery));
        let known = story.named(first);
        assert_eq!(known.delivery, delivery + 1);
        assert_eq!(known.wait, Wait::Delivery(story.now + Duration::from_secs(wait)));
        let again = story.try_apply(unanswered(first, delivery)).unwrap_err();
        assert_eq!(again.code, Code::InvalidStateTransition, "the delivery is already over");
    }
    let mut before = first;
    for wait in [60, 120, 240] {
        for delivery in story.named(before).delivery..=machines::evaluation::MAX_DELIVERIES {
            story.apply(unanswered(before, delivery));
        }
        let follow_up = story.open(Duty::Place).id;
        assert_eq!(story.named(follow_up).trigger, Trigger::FollowUp);
        assert_eq!(story.named(follow_up).wait, Wait::Delivery(story.now + Duration::from_secs(wait)));
        assert_eq!(
            (story.named(follow_up).previous, story.named(before).next),
            (Some(before), Some(follow_up))
        );
        assert!(matches!(story.named(before).status, Status::Failed { .. }));
        before = follow_up;
    }
    assert_eq!(follow_up_delay(40), Duration::from_secs(3_600));
    // New work does not wait for the follow-up.
    story.apply(Command::Update(scale(2)));
    assert_eq!(story.named(before).status, Status::Canceled { reason: CancelReason::Superseded });
    assert_eq!(
        (story.open(Duty::Place).trigger, story.open(Duty::Place).wait),
        (Trigger::Scale, Wait::Nothing)
    );
    story.claim(0);
    story.claim(1);
    assert_eq!(story.all().iter().filter(|one| one.status.is_open()).count(), 0);
}

/// `pending -- if delayed --> delayed -- dequeued --> scheduling`.
#[test]
fn delayed_restarts_share_one_evaluation_until_due() {
    let mut story = Scenario::desired(2);
    story.claim(1);
    story.crash_until_delayed(0);
    let delayed = story.open(Duty::Restart).id;
    let due = story.process().pending_restarts.first().unwrap().0;
    assert_eq!(
        (story.named(delayed).trigger, story.named(delayed).wait),
        (Trigger::Crash, Wait::Restart(due))
    );
    story.now = story.now + Duration::from_secs(5);
    story.crash_until_delayed(1);
    assert_eq!(story.all().iter().filter(|one| one.duty() == Some(Duty::Restart)).count(), 1, "one timer");
    assert_eq!(story.named(delayed).wait, Wait::Restart(due), "the earlier of both restarts");
    story.now = due;
    story.apply(Command::Converge);
    let later = story.process().pending_restarts.first().unwrap().0;
    assert_eq!(story.named(delayed).wait, Wait::Restart(later));
    assert_eq!(story.open(Duty::Place).trigger, Trigger::Restart);
    story.claim(0);
    story.now = later;
    story.apply(Command::Converge);
    assert_eq!(
        (story.open(Duty::Place).id, story.named(delayed).wait),
        (delayed, Wait::Nothing),
        "it is due"
    );
    story.claim(1);
    assert_eq!((&story.named(delayed).status, story.named(delayed).placed), (&Status::Complete, 1));
}

/// `scheduling -- canceled by job update/stop --> canceled`, for each of the three open evaluations;
/// job-deregister.
#[test]
fn removal_cancels_open_evaluations_and_creates_its_own() {
    let mut story = Scenario::desired(4);
    story.run(3);
    story.crash_until_delayed(0);
    story.unplaced(&[1], false);
    let open: Vec<EvaluationId> =
        story.all().iter().filter(|one| one.status.is_open()).map(|one| one.id).collect();
    assert_eq!(open.len(), 3);
    let placed = story.open(Duty::Place).placed;
    story.apply(Command::Remove);
    for id in open {
        let ended = &story.named(id).status;
        let nothing = Status::Canceled { reason: CancelReason::NothingLeft };
        let expected = if placed > 0 && story.named(id).placed > 0 { &Status::Complete } else { &nothing };
        assert_eq!(ended, expected);
    }
    let all = story.all();
    let removal = all.last().unwrap();
    assert_eq!((removal.trigger, removal.stopped, &removal.status), (Trigger::Remove, 1, &Status::Complete));
}

#[test]
fn retire_or_scale_cancels_delayed_restart() {
    for command in [Command::Retire { index: 0, definition_id: None }, Command::Update(scale(0))] {
        let mut story = Scenario::desired(1);
        story.crash_until_delayed(0);
        let delayed = story.open(Duty::Restart).id;
        story.apply(command);
        assert_eq!(story.named(delayed).status, Status::Canceled { reason: CancelReason::NothingLeft });
    }
}

/// A process has one pending evaluation. Further causes are merged into it and listed.
#[test]
fn further_causes_join_pending_evaluation() {
    let mut story = Scenario::desired(1);
    let first = story.open(Duty::Place).id;
    for instances in 2..=20 {
        story.apply(Command::Update(scale(instances)));
    }
    let known = story.named(first);
    assert_eq!((story.all().len(), known.joins), (1, 19));
    assert_eq!(known.joined.len(), limits::JOINED_CAUSES);
    assert!(known.joined.iter().all(|joined| joined.trigger == Trigger::Scale));
}

/// `failed -- retry --> scheduling`, `failed -- if retried --> blocked`. Other evaluations that have ended
/// cannot be retried.
#[test]
fn failed_delayed_or_blocked_evaluation_can_be_retried() {
    let mut story = Scenario::desired(1);
    let first = story.open(Duty::Place).id;
    assert_eq!(story.try_apply(Command::Retry(first)).unwrap_err().code, Code::InvalidStateTransition);
    for delivery in 1..=machines::evaluation::MAX_DELIVERIES {
        story.apply(Command::Unanswered { evaluation: first, delivery });
    }
    let follow_up = story.open(Duty::Place).id;
    story.apply(Command::Retry(first));
    assert_eq!(story.named(follow_up).status, Status::Canceled { reason: CancelReason::Superseded });
    assert_eq!((story.open(Duty::Place).id, story.open(Duty::Place).delivery), (first, 1));
    story.unplaced(&[0], true);
    let blocked = story.open(Duty::Unblock).id;
    story.apply(Command::Retry(blocked));
    assert_eq!(story.open(Duty::Unblock).id, blocked);
    story.apply(Command::Retry(first));
    assert_eq!(story.open(Duty::Unblock).id, first, "it continues with the work of its child");
    story.claim(0);
    assert_eq!(story.named(first).status, Status::Complete);
    for ended in [first, blocked] {
        assert_eq!(story.try_apply(Command::Retry(ended)).unwrap_err().code, Code::InvalidStateTransition);
    }
    assert_eq!(
        story.try_apply(Command::Retry(EvaluationId(id(77)))).unwrap_err().code,
        Code::ResourceNotFound
    );
}

/// `canceled, failed, complete -- garbage collection --> deleted`: by count, and by time.
#[test]
fn ended_evaluations_are_collected_by_count_and_age_but_open_ones_stay() {
    let mut story = Scenario::desired(1);
    story.unplaced(&[0], false);
    let blocked = story.open(Duty::Unblock).id;
    for instances in 2..40 {
        story.apply(Command::Update(scale(instances)));
        story.claim(instances - 1);
    }
    let ended = story.all().iter().filter(|one| !one.status.is_open()).count();
    assert_eq!(ended, limits::KEPT_EVALUATIONS);
    assert_eq!(story.open(Duty::Unblock).id, blocked);
    story.now = story.now + limits::EVALUATION_RETENTION;
    story.apply(Command::Update(scale(40)));
    let left: Vec<EvaluationId> = story.all().iter().map(|one| one.id).collect();
    assert_eq!(left, [blocked, story.open(Duty::Place).id]);
}

/// The cause of an evaluation is recorded even where the diagrams leave its pointers unset.
#[test]
fn evaluation_keeps_its_cause() {
    let mut story = Scenario::desired(1);
    assert_eq!(story.open(Duty::Place).caused_by, None, "caused by a client");
    story.run(0);
    story.absent = vec![crate::common::cell_id("c1")];
    story.apply(Command::Converge);
    let lost = story.open(Duty::Place);
    assert_eq!((lost.trigger, lost.previous), (Trigger::CellLost, None));
    assert_eq!(lost.caused_by, Some(DecisionId(id(1))), "the decision that created the work to place again");
}

fn scale(instances: u32) -> schemas::definition::DesiredLrpUpdate {
    schemas::definition::DesiredLrpUpdate { instances: Some(instances), ..Default::default() }
}
