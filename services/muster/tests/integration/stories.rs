//! The stories of `tests/stories` on real processes and a real nats-server, except those for the simulator
//! only.
//!
//! `MUSTER_STORIES=crashes` runs only the stories whose names contain that text.
//!
//! | file | content |
//! |---|---|
//! | `stage.rs` | services of a story, and the facts about them |
//! | `acts.rs` | acts of users, and faults: command line and signals |
//! | `work.rs` | work of a story's containers, as shell programs |
//! | `owner.rs` | owners of tasks: a small HTTP server |
//! | `clock.rs` | story time, which stops while the machine is too slow |

mod acts;
mod clock;
mod owner;
mod stage;
mod work;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use simulation::story::{Expect, Line, Story, Time, When, lines, texts};

use self::clock::Clock;
use self::stage::Stage;

/// Folder of the stories.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/stories");
/// Number of stories that run concurrently. A story mostly waits.
const CONCURRENCY: usize = 14;
/// Time that an expectation may be overdue, because machines are slow and busy.
const SLACK: Duration = Duration::from_secs(30);
/// Maximum length of a story on real processes.
const MAX_STORY: Duration = Duration::from_secs(66);
/// Interval between checks of the expectations.
const CHECK_INTERVAL: Duration = Duration::from_millis(150);

/// Returns the selected stories with their names.
fn stories() -> Vec<(String, Story)> {
    let only = std::env::var("MUSTER_STORIES").unwrap_or_default();
    let named = texts(Path::new(FOLDER)).unwrap().into_iter().filter(|(name, _)| name.contains(&only));
    let read = |(name, text): (String, String)| {
        let story: Story = text.parse().unwrap_or_else(|bad| panic!("{name}.txt, {bad}"));
        (name, story)
    };
    named.map(read).collect()
}

#[test]
fn stories_meet_expectations_on_real_processes() {
    let (mut real, simulated): (Vec<_>, Vec<_>) =
        stories().into_iter().partition(|(_, story)| story.only_simulated.is_none());
    for (name, story) in &simulated {
        println!("{name} is only simulated: {}", story.only_simulated.as_deref().unwrap_or_default());
    }
    println!("{} stories run on real processes, {} only on the simulator", real.len(), simulated.len());
    // The longest story starts first.
    real.sort_by_key(|(_, story)| story.plan.peace_at);
    let (left, failed) = (Mutex::new(real), Mutex::new(vec![]));
    let work = || {
        loop {
            let Some((name, story)) = left.lock().unwrap().pop() else { return };
            let began = Instant::now();
            let thread = std::thread::Builder::new().name(name.clone());
            let told = thread.spawn(move || run_story(&story)).unwrap().join();
            let took = began.elapsed().as_secs_f64();
            match told {
                Ok(()) => println!("{took:6.1} s  {name}"),
                Err(_) => failed.lock().unwrap().push(name),
            }
        }
    };
    std::thread::scope(|scope| (0..CONCURRENCY).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "stories that failed, see above: {}", failed.join(", "));
}

#[test]
fn story_with_unmet_expectation_fails() {
    let story: Story = "at 1s desire web x1\nat 2s expect web: 2 RUNNING\n".parse().unwrap();
    let told = std::thread::Builder::new().name("a story that must fail".into());
    let told = told.spawn(move || run_story_with_slack(Duration::from_secs(5), &story)).unwrap().join();
    let why = told.expect_err("the story expects two instances and desires one");
    let why = why.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(why.starts_with("at 2s expect web: 2 RUNNING: web/0 is RUNNING of web-64 on c1"), "{why}");
}

/// Expectation whose time has come.
struct OpenExpectation<'a> {
    at: Duration,
    expect: &'a Expect,
    /// Time from which the expectation has held, if the expectation has to hold for a period.
    since: Option<Instant>,
    actual: String,
}

/// State of an expectation.
enum Verdict {
    Met,
    /// The expectation may still be met, and the story continues.
    Waits,
    /// The expectation should already be met, and the story waits for it.
    Overdue,
}

/// Runs a story. Panics if an expectation is not met.
fn run_story(story: &Story) {
    run_story_with_slack(SLACK, story);
}

fn run_story_with_slack(slack: Duration, story: &Story) {
    let plan = &story.plan;
    assert!(
        plan.peace_at <= MAX_STORY,
        "the story takes {}, more than {MAX_STORY:?}: add a line `only simulated: REASON`",
        Time(plan.peace_at)
    );
    let mut stage = Stage::new(plan);
    let mut clock = Clock::start();
    let mut lines: VecDeque<Line<'_>> = lines(plan).into();
    let mut open: Vec<OpenExpectation<'_>> = vec![];
    while !(lines.is_empty() && open.is_empty() && stage.has_nothing_delayed()) {
        let now = clock.now();
        clock.run_stopped(|| stage.apply_due(now));
        // An act waits for the expectations that must be met before it.
        let due = |line: &mut Line<'_>| match line {
            Line::Act(at, _) => *at <= clock.now() && open.iter().all(|open| open.deadline() > *at),
            Line::Expect(at, _) => *at <= clock.now(),
        };
        match lines.pop_front_if(due) {
            Some(Line::Act(at, act)) => {
                clock.run_stopped(|| stage.act(at, act));
                continue;
            }
            Some(Line::Expect(at, expect)) => {
                open.push(OpenExpectation { at, expect, since: None, actual: String::new() });
                // Expectations of the same moment are checked together.
                if lines
                    .front()
                    .is_some_and(|line| matches!(line, Line::Expect(next, _) if *next <= clock.now()))
                {
                    continue;
                }
            }
            None => std::thread::sleep(CHECK_INTERVAL),
        }
        let overdue = look(&stage, &clock, &mut open);
        clock.set_stopped(overdue.is_some());
        if let Some(what) = overdue.filter(|_| clock.stopped_for() > slack) {
            panic!("{what}");
        }
    }
    stage.wait_for_match();
}

/// Checks the expectations. Returns a description of one that is overdue, or `None`.
fn look(stage: &Stage, clock: &Clock, open: &mut Vec<OpenExpectation<'_>>) -> Option<String> {
    if open.is_empty() {
        return None;
    }
    let facts = match stage.facts() {
        Ok(facts) => facts,
        Err(why) => {
            open.iter_mut().for_each(|open| open.actual.clone_from(&why));
            return None;
        }
    };
    let mut overdue = None;
    open.retain_mut(|open| {
        let judged = open.judge(&facts, clock.now());
        if let Verdict::Overdue = judged {
            overdue = Some(format!("at {} {}: {}", Time(open.at), open.expect, open.actual));
        }
        !matches!(judged, Verdict::Met)
    });
    overdue
}

impl OpenExpectation<'_> {
    /// Returns the story time by which the expectation must be met.
    fn deadline(&self) -> Duration {
        match self.expect.when {
            When::Now => self.at,
            When::Within(time) => self.at + time,
            When::Until(moment) => moment,
        }
    }

    fn judge(&mut self, facts: &simulation::story::Facts, now: Duration) -> Verdict {
        let so = self.expect.what.judge(facts);
        if let Err(instead) = &so {
            self.actual.clone_from(instead);
        }
        match (self.expect.when, so.is_ok()) {
            (When::Now | When::Within(_), true) => Verdict::Met,
            (When::Now, false) => Verdict::Overdue,
            (When::Within(time), false) if now > self.at + time => Verdict::Overdue,
            (When::Within(_), false) => Verdict::Waits,
            // The expectation must hold for as long as the story specifies, in real time.
            (When::Until(moment), true) => {
                let since = *self.since.get_or_insert_with(Instant::now);
                match (since.elapsed() >= moment - self.at, now >= moment) {
                    (true, _) => Verdict::Met,
                    (false, true) => Verdict::Overdue,
                    (false, false) => Verdict::Waits,
                }
            }
            (When::Until(_), false) => {
                let since = self.since.map(|since| since.elapsed());
                assert!(
                    since.is_none(),
                    "at {} {}: after {since:?} {}",
                    Time(self.at),
                    self.expect,
                    self.actual
                );
                Verdict::Overdue
            }
        }
    }
}
