//! Run of a story: reports events, and checks expectations.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use schemas::names::RequestId;
use schemas::subject::Position;

use super::expect::{Expect, When};
use super::judge::Facts;
use crate::asked::Response;
use crate::cluster::{Cluster, START};
use crate::invariants::{Invariant, Violation};
use crate::plan::{Act, Answer, Plan};
use scenario::words::Time;

/// Event of a run, for output.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    Act(&'a Act),
    /// A client got an answer.
    Answered(&'a Act, Response),
    /// The log has a new message.
    Stored(Position, &'a [u8]),
    /// An expectation is met.
    Kept(&'a Expect),
    /// An expectation is not met, or an invariant is violated.
    Violation(&'a Violation),
    /// End of all faults, with the rows of the log.
    Peace(&'a Facts),
}

/// Receiver of the events of a run.
type Tell<'a> = &'a mut dyn FnMut(Duration, Seen<'_>);

/// Remaining expectations of a plan.
struct Telling<'a> {
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
    told: usize,
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
    pub(crate) fn tell_story(&mut self, plan: &Plan, tell: Tell<'_>) {
        let mut telling = Telling {
            acts: &plan.acts,
            acted: 0,
            position: Position(0),
            expects: plan.expects.iter().collect(),
            open: vec![],
            asked: vec![],
            told: 0,
        };
        loop {
            let moment = START + telling.next_moment().unwrap_or(plan.peace_at).min(plan.peace_at);
            while self.next(moment) {
                telling.look(self, tell);
            }
            self.until(moment);
            telling.at(moment.since(START), self, tell);
            if moment >= START + plan.peace_at {
                break;
            }
        }
        telling.unanswered(self, tell);
        if !plan.expects.is_empty() || !plan.acts.is_empty() {
            tell(plan.peace_at, Seen::Peace(&self.facts()));
        }
    }

    pub(crate) fn facts(&self) -> Facts {
        let told: BTreeSet<_> = self.checkers.answered_tasks().cloned().collect();
        Facts::of(self.checkers.world(), self.now, told)
    }
}

impl<'a> Telling<'a> {
    /// Returns the next start or end of an expectation.
    fn next_moment(&self) -> Option<Duration> {
        let begins = self.expects.front().map(|(at, _)| *at);
        begins.into_iter().chain(self.open.iter().map(|open| open.end)).min()
    }

    /// Handles the events of one step.
    fn look(&mut self, cluster: &mut Cluster, tell: Tell<'_>) {
        let now = cluster.now.since(START);
        if let Some((_, act)) = self.acts.get(self.acted).filter(|_| self.acted < cluster.acted) {
            self.acted += 1;
            if let Act::Ask { .. } = act {
                self.asked.extend(cluster.wanted.latest().map(|request| (request, act)));
            }
            tell(now, Seen::Act(act));
        }
        self.look_at_answers(cluster, tell);
        let end = cluster.journal.end();
        let told = cluster.checkers.answered_tasks().count();
        if end > self.position || told > self.told {
            while self.position < end {
                self.position = Position(self.position.0 + 1);
                let stored = cluster.journal.get(self.position).expect("it is below the end");
                tell(now, Seen::Stored(self.position, &stored.bytes));
            }
            self.told = told;
            self.judge(cluster, tell);
        }
        // A power cut may have removed entries.
        self.position = self.position.min(end);
    }

    fn look_at_answers(&mut self, cluster: &mut Cluster, tell: Tell<'_>) {
        let mut wrong = vec![];
        self.asked.retain(|(request, act)| match cluster.wanted.known_of(request) {
            None | Some(Response::Nothing) => true,
            Some(told) => {
                tell(cluster.now.since(START), Seen::Answered(act, told));
                wrong.extend(wrong_answer(act, told));
                false
            }
        });
        wrong.into_iter().for_each(|how| breaks(cluster, how, tell));
    }

    /// Reports commands with an expected answer that were never answered.
    fn unanswered(&mut self, cluster: &mut Cluster, tell: Tell<'_>) {
        let wrong: Vec<String> =
            self.asked.iter().filter_map(|(_, act)| wrong_answer(act, Response::Nothing)).collect();
        wrong.into_iter().for_each(|how| breaks(cluster, how, tell));
    }

    /// Starts and ends expectations.
    fn at(&mut self, now: Duration, cluster: &mut Cluster, tell: Tell<'_>) {
        while let Some((at, expect)) = self.expects.pop_front_if(|(at, _)| *at <= now) {
            let end = match expect.when {
                When::Now => *at,
                When::Within(time) => *at + time,
                When::Until(moment) => moment,
            };
            self.open.push(Open { from: *at, end, expect, instead: None });
        }
        self.judge(cluster, tell);
        for open in self.open.extract_if(.., |open| open.end <= now) {
            match (open.expect.when, open.instead) {
                (When::Now | When::Within(_), Some(instead)) => {
                    breaks(cluster, open.expect.but(open.from, now, &instead), tell);
                }
                (When::Now | When::Within(_) | When::Until(_), _) => tell(now, Seen::Kept(open.expect)),
            }
        }
    }

    /// Checks the current expectations.
    fn judge(&mut self, cluster: &mut Cluster, tell: Tell<'_>) {
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
                tell(now, Seen::Kept(open.expect));
                false
            }
            (When::Now | When::Within(_), Err(instead)) => {
                open.instead = Some(instead);
                true
            }
            (When::Until(_), Err(instead)) => {
                wrong.push(open.expect.but(open.from, now, &instead));
                false
            }
        });
        wrong.into_iter().for_each(|how| breaks(cluster, how, tell));
    }
}

impl Expect {
    /// Returns the detail of an unmet expectation.
    fn but(&self, from: Duration, now: Duration, instead: &str) -> String {
        format!("at {} {self}: at {} {instead}", Time(from), Time(now))
    }
}

/// Returns the detail of an unexpected answer.
fn wrong_answer(act: &Act, told: Response) -> Option<String> {
    let Act::Ask { answer: Some(wanted), .. } = act else { return None };
    let (right, instead) = match (wanted, told) {
        (Answer::Done, Response::Done(_)) => (true, String::new()),
        (Answer::Refused(wanted), Response::Refused(code)) => {
            (*wanted == code, format!("it is refused: {code}"))
        }
        (Answer::Refused(_), Response::Done(_)) => (false, "it is done".into()),
        (Answer::Done, Response::Refused(code)) => (false, format!("it is refused: {code}")),
        (Answer::Done | Answer::Refused(_), Response::Nothing) => (false, "it is never answered".into()),
    };
    (!right).then(|| format!("{act}: {instead}"))
}

fn breaks(cluster: &mut Cluster, how: String, tell: Tell<'_>) {
    let violation = Violation { invariant: Invariant::AsExpected, detail: how };
    tell(cluster.now.since(START), Seen::Violation(&violation));
    cluster.violated(violation.invariant, violation.detail);
}
