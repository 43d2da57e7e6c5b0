//! Run of a story: reports events, and checks expectations.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use schemas::names::RequestId;
use schemas::subject::Position;

use scenario::words::Time;

use crate::act::{Act, Answer};
use crate::cluster::Cluster;
use crate::invariants::{Invariant, Violation};
use crate::plan::Plan;
use crate::requests::Response;
use crate::shape::START;
use crate::story::expect::{Expect, When};
use crate::story::judge::Facts;

/// Event of a run, for output.
#[derive(Clone, Copy, Debug)]
pub enum RunEvent<'a> {
    Act(&'a Act),
    /// A client got an answer.
    Answered(&'a Act, Response),
    /// The log has a new message.
    Stored(Position, &'a [u8]),
    /// An expectation is met.
    Met(&'a Expect),
    /// An expectation is not met, or an invariant is violated.
    Violation(&'a Violation),
    /// End of all faults, with the rows of the log.
    Peace(&'a Facts),
}

/// Receiver of the events of a run.
type EventSink<'a> = &'a mut dyn FnMut(Duration, RunEvent<'_>);

/// Remaining expectations of a plan.
struct StoryRun<'a> {
    acts: &'a [(Duration, Act)],
    /// Number of reported acts.
    acted: usize,
    /// Last reported position.
    position: Position,
    expects: VecDeque<&'a (Duration, Expect)>,
    /// Current expectations.
    open: Vec<Open<'a>>,
    /// Clients with an expected answer.
    asked: Vec<(RequestId, &'a Act)>,
    /// Number of reported final answers of owners.
    answered: usize,
}

/// Current expectation.
struct Open<'a> {
    from: Duration,
    end: Duration,
    expect: &'a Expect,
    instead: Option<String>,
}

impl Cluster {
    /// Runs a plan until all faults end.
    pub(crate) fn play(&mut self, plan: &Plan, sink: EventSink<'_>) {
        let mut run = StoryRun {
            acts: &plan.acts,
            acted: 0,
            position: Position(0),
            expects: plan.expects.iter().collect(),
            open: vec![],
            asked: vec![],
            answered: 0,
        };
        loop {
            let moment = START + run.next_moment().unwrap_or(plan.peace_at).min(plan.peace_at);
            while self.next(moment) {
                run.observe_step(self, sink);
            }
            self.until(moment);
            run.advance(moment.since(START), self, sink);
            if moment >= START + plan.peace_at {
                break;
            }
        }
        run.report_unanswered(self, sink);
        if !plan.expects.is_empty() || !plan.acts.is_empty() {
            sink(plan.peace_at, RunEvent::Peace(&self.facts()));
        }
    }

    pub(crate) fn facts(&self) -> Facts {
        let answered: BTreeSet<_> = self.checkers.answered_tasks().cloned().collect();
        Facts::from_world(self.checkers.world(), self.now, answered)
    }
}

impl<'a> StoryRun<'a> {
    /// Returns the next start or end of an expectation.
    fn next_moment(&self) -> Option<Duration> {
        let begins = self.expects.front().map(|(at, _)| *at);
        begins.into_iter().chain(self.open.iter().map(|open| open.end)).min()
    }

    /// Handles the events of one step.
    fn observe_step(&mut self, cluster: &mut Cluster, sink: EventSink<'_>) {
        let now = cluster.now.since(START);
        if let Some((_, act)) = self.acts.get(self.acted).filter(|_| self.acted < cluster.acted) {
            self.acted += 1;
            if let Act::Ask { .. } = act {
                self.asked.extend(cluster.requests.latest().map(|request| (request, act)));
            }
            sink(now, RunEvent::Act(act));
        }
        self.report_answers(cluster, sink);
        let end = cluster.journal.end();
        let answered = cluster.checkers.answered_tasks().count();
        if end > self.position || answered > self.answered {
            while self.position < end {
                self.position = Position(self.position.0 + 1);
                let stored = cluster.journal.get(self.position).expect("it is below the end");
                sink(now, RunEvent::Stored(self.position, &stored.bytes));
            }
            self.answered = answered;
            self.judge(cluster, sink);
        }
        // A power cut may have removed entries.
        self.position = self.position.min(end);
    }

    fn report_answers(&mut self, cluster: &mut Cluster, sink: EventSink<'_>) {
        let mut wrong = vec![];
        self.asked.retain(|(request, act)| match cluster.requests.answer_to(request) {
            None | Some(Response::Unanswered) => true,
            Some(answered) => {
                sink(cluster.now.since(START), RunEvent::Answered(act, answered));
                wrong.extend(unexpected_answer(act, answered));
                false
            }
        });
        wrong.into_iter().for_each(|detail| violate(cluster, detail, sink));
    }

    /// Reports commands with an expected answer that were never answered.
    fn report_unanswered(&mut self, cluster: &mut Cluster, sink: EventSink<'_>) {
        let wrong: Vec<String> =
            self.asked.iter().filter_map(|(_, act)| unexpected_answer(act, Response::Unanswered)).collect();
        wrong.into_iter().for_each(|detail| violate(cluster, detail, sink));
    }

    /// Starts and ends expectations.
    fn advance(&mut self, now: Duration, cluster: &mut Cluster, sink: EventSink<'_>) {
        while let Some((at, expect)) = self.expects.pop_front_if(|(at, _)| *at <= now) {
            let end = match expect.when {
                When::Now => *at,
                When::Within(time) => *at + time,
                When::Until(moment) => moment,
            };
            self.open.push(Open { from: *at, end, expect, instead: None });
        }
        self.judge(cluster, sink);
        for open in self.open.extract_if(.., |open| open.end <= now) {
            match (open.expect.when, open.instead) {
                (When::Now | When::Within(_), Some(instead)) => {
                    violate(cluster, open.expect.unmet(open.from, now, &instead), sink);
                }
                (When::Now | When::Within(_) | When::Until(_), _) => sink(now, RunEvent::Met(open.expect)),
            }
        }
    }

    /// Checks the current expectations.
    fn judge(&mut self, cluster: &mut Cluster, sink: EventSink<'_>) {
        if self.open.is_empty() {
            return;
        }
        let (facts, now) = (cluster.facts(), cluster.now.since(START));
        let mut wrong = vec![];
        self.open.retain_mut(|open| match (open.expect.when, open.expect.what.judge(&facts)) {
            (When::Now | When::Until(_), Ok(())) => {
                open.instead = None;
                true
            }
            (When::Within(_), Ok(())) => {
                sink(now, RunEvent::Met(open.expect));
                false
            }
            (When::Now | When::Within(_), Err(instead)) => {
                open.instead = Some(instead);
                true
            }
            (When::Until(_), Err(instead)) => {
                wrong.push(open.expect.unmet(open.from, now, &instead));
                false
            }
        });
        wrong.into_iter().for_each(|detail| violate(cluster, detail, sink));
    }
}

impl Expect {
    /// Returns the detail of an unmet expectation.
    fn unmet(&self, from: Duration, now: Duration, instead: &str) -> String {
        format!("at {} {self}: at {} {instead}", Time(from), Time(now))
    }
}

/// Returns the detail of an unexpected answer.
fn unexpected_answer(act: &Act, answered: Response) -> Option<String> {
    let Act::Ask { answer: Some(wanted), .. } = act else { return None };
    let (right, instead) = match (wanted, answered) {
        (Answer::Done, Response::Done(_)) => (true, String::new()),
        (Answer::Refused(wanted), Response::Refused(code)) => {
            (*wanted == code, format!("it is refused: {code}"))
        }
        (Answer::Refused(_), Response::Done(_)) => (false, "it is done".into()),
        (Answer::Done, Response::Refused(code)) => (false, format!("it is refused: {code}")),
        (Answer::Done | Answer::Refused(_), Response::Unanswered) => (false, "it is never answered".into()),
    };
    (!right).then(|| format!("{act}: {instead}"))
}

fn violate(cluster: &mut Cluster, detail: String, sink: EventSink<'_>) {
    let violation = Violation { invariant: Invariant::AsExpected, detail };
    sink(cluster.now.since(START), RunEvent::Violation(&violation));
    cluster.violated(violation.invariant, violation.detail);
}
