//! The stories of `tests/stories`, on real processes and a real nats-server: those that say nothing of the simulator.
//!
//! `MUSTER_STORIES=crashes` runs only those whose names contain that.
//!
//! | the file | holds |
//! |---|---|
//! | `stage.rs` | the services of a story, and what is known of them |
//! | `acting.rs` | what users and faults do, by the command line and by signals |
//! | `work.rs` | what a story's containers do, as shell programs |
//! | `owner.rs` | the owners of tasks: a small HTTP server |
//! | `clock.rs` | the time of a story, which waits where the machine is too slow for it |

mod acting;
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

/// The folder of the stories.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/stories");
/// How many run side by side: mostly they wait.
const SIDE_BY_SIDE: usize = 14;
/// How much longer than its story says anything may take, since machines are slow and busy.
const SLACK: Duration = Duration::from_secs(30);
/// The longest story that is run for real.
const LONGEST: Duration = Duration::from_secs(66);
/// How often is looked.
const LOOK: Duration = Duration::from_millis(150);

/// The stories with their names.
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
fn every_story_comes_out_for_real() {
    let (mut real, simulated): (Vec<_>, Vec<_>) =
        stories().into_iter().partition(|(_, story)| story.only_simulated.is_none());
    for (name, story) in &simulated {
        println!("{name} is only simulated: {}", story.only_simulated.as_deref().unwrap_or_default());
    }
    println!("{} stories run for real, {} only on the simulator", real.len(), simulated.len());
    // The longest begins first.
    real.sort_by_key(|(_, story)| story.plan.peace_at);
    let (left, failed) = (Mutex::new(real), Mutex::new(vec![]));
    let work = || {
        loop {
            let Some((name, story)) = left.lock().unwrap().pop() else { return };
            let began = Instant::now();
            let thread = std::thread::Builder::new().name(name.clone());
            let told = thread.spawn(move || tell(&story)).unwrap().join();
            let took = began.elapsed().as_secs_f64();
            match told {
                Ok(()) => println!("{took:6.1} s  {name}"),
                Err(_) => failed.lock().unwrap().push(name),
            }
        }
    };
    std::thread::scope(|scope| (0..SIDE_BY_SIDE).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "these came out otherwise, see above: {}", failed.join(", "));
}

#[test]
fn a_story_that_expects_too_much_fails_for_real() {
    let story: Story = "at 1s desire web x1\nat 2s expect web: 2 RUNNING\n".parse().unwrap();
    let told = std::thread::Builder::new().name("a story that must fail".into());
    let told = told.spawn(move || tell_within(Duration::from_secs(5), &story)).unwrap().join();
    let why = told.expect_err("it expects two and desires one");
    let why = why.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(why.starts_with("at 2s expect web: 2 RUNNING: web/0 is RUNNING of web-64 on c1"), "{why}");
}

/// Something that is expected now.
struct Open<'a> {
    at: Duration,
    expect: &'a Expect,
    /// Since when it is so, if it has to stay so.
    since: Option<Instant>,
    instead: String,
}

/// What has come of something that is expected.
enum Judged {
    Kept,
    /// It may still come to be so, and the story goes on.
    Waits,
    /// It should be so by now: the story waits for it.
    Overdue,
}

/// Runs a story. Panics where it comes out otherwise.
fn tell(story: &Story) {
    tell_within(SLACK, story);
}

fn tell_within(slack: Duration, story: &Story) {
    let plan = &story.plan;
    assert!(plan.peace_at <= LONGEST, "it takes {}: say why it is only simulated", Time(plan.peace_at));
    let mut stage = Stage::new(plan);
    let mut clock = Clock::start();
    let mut lines: VecDeque<Line<'_>> = lines(plan).into();
    let mut open: Vec<Open<'_>> = vec![];
    while !(lines.is_empty() && open.is_empty() && stage.is_done()) {
        let now = clock.now();
        clock.stands_while(|| stage.go_on(now));
        // What happens waits for what had to be seen before it.
        let due = |line: &mut Line<'_>| match line {
            Line::Act(at, _) => *at <= clock.now() && open.iter().all(|open| open.end() > *at),
            Line::Expect(at, _) => *at <= clock.now(),
        };
        match lines.pop_front_if(due) {
            Some(Line::Act(at, act)) => {
                clock.stands_while(|| stage.act(at, act));
                continue;
            }
            Some(Line::Expect(at, expect)) => {
                open.push(Open { at, expect, since: None, instead: String::new() });
                // All that is expected at one moment is looked at together.
                if lines
                    .front()
                    .is_some_and(|line| matches!(line, Line::Expect(next, _) if *next <= clock.now()))
                {
                    continue;
                }
            }
            None => std::thread::sleep(LOOK),
        }
        let overdue = look(&stage, &clock, &mut open);
        clock.stand(overdue.is_some());
        if let Some(what) = overdue.filter(|_| clock.stands_since() > slack) {
            panic!("{what}");
        }
    }
    stage.ends();
}

/// Looks whether what is expected is so. Answers what should be so by now and is not.
fn look(stage: &Stage, clock: &Clock, open: &mut Vec<Open<'_>>) -> Option<String> {
    if open.is_empty() {
        return None;
    }
    let facts = match stage.facts() {
        Ok(facts) => facts,
        Err(why) => {
            open.iter_mut().for_each(|open| open.instead.clone_from(&why));
            return None;
        }
    };
    let mut overdue = None;
    open.retain_mut(|open| {
        let judged = open.judge(&facts, clock.now());
        if let Judged::Overdue = judged {
            overdue = Some(format!("at {} {}: {}", Time(open.at), open.expect, open.instead));
        }
        !matches!(judged, Judged::Kept)
    });
    overdue
}

impl Open<'_> {
    /// When it must have been seen.
    fn end(&self) -> Duration {
        match self.expect.when {
            When::Now => self.at,
            When::Within(time) => self.at + time,
            When::Until(moment) => moment,
        }
    }

    fn judge(&mut self, facts: &simulation::story::Facts, now: Duration) -> Judged {
        let so = self.expect.what.judge(facts);
        if let Err(instead) = &so {
            self.instead.clone_from(instead);
        }
        match (self.expect.when, so.is_ok()) {
            (When::Now | When::Within(_), true) => Judged::Kept,
            (When::Now, false) => Judged::Overdue,
            (When::Within(time), false) if now > self.at + time => Judged::Overdue,
            (When::Within(_), false) => Judged::Waits,
            // It has to be so for as long as the story says, by the clock on the wall.
            (When::Until(moment), true) => {
                let since = *self.since.get_or_insert_with(Instant::now);
                match (since.elapsed() >= moment - self.at, now >= moment) {
                    (true, _) => Judged::Kept,
                    (false, true) => Judged::Overdue,
                    (false, false) => Judged::Waits,
                }
            }
            (When::Until(_), false) => {
                let since = self.since.map(|since| since.elapsed());
                assert!(
                    since.is_none(),
                    "at {} {}: after {since:?} {}",
                    Time(self.at),
                    self.expect,
                    self.instead
                );
                Judged::Overdue
            }
        }
    }
}
