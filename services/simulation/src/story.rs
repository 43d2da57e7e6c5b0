//! Stories: what a run does and what has to be seen, as text that a person writes and reads.
//!
//! ```text
//! # Evacuation
//! # What runs on a cell that is evacuated runs elsewhere before it ends there.
//! cells 2
//! at 2s expect cell c1 present
//! at 3s desire web x2
//! at 5s expect web: 1 RUNNING on c1
//! at 6s evacuate c1
//! at 6s expect web: 2 RUNNING on c2 within 10s
//! at 20s expect cell c1 absent within 30s
//! ```
//!
//! A line is a comment behind `#`, a word of the head, something that happens, or something that is expected. What
//! happens comes in the order of its times; a time is `200ms`, `12s`, `12.4s` or `5m`. What stands in brackets may be
//! left out, and is as written here then; `A | B` is one of both.
//!
//! The head, before everything that happens:
//!
//! | line | meaning |
//! |---|---|
//! | `seed 7` | what chance begins with |
//! | `cells 3`, `bbss 2`, `auctioneers 2` | who is there; every second cell is in another zone |
//! | `tagged` | the last cell takes only work that asks for its tag |
//! | `narrow` | auctioneers give cells no more than eight pieces of work before some of it is claimed |
//! | `evacuation 30s`, `self-test 15s` | how long an evacuation may take; how often a rep tests itself |
//! | `journal of three` | three machines keep the journal, not one |
//! | `journal without sync` | it acknowledges what is not on disk yet |
//! | `faults dropped 20, late 4, delay_ms 300` | how often single things go wrong, in thousandths (`Faults`) |
//! | `only simulated: WHY` | why it can't run on a real cluster |
//! | `peace at 60s` | when all faults end, at any place; else when everything that is written is over |
//!
//! What happens, behind `at TIME`:
//!
//! | line | meaning |
//! |---|---|
//! | `desire web x3 [WORK]`, `scale web x5`, `remove web`, `retire web/1` | a client's request |
//! | `desire agent everywhere [WORK]` | an instance on each cell that fits |
//! | `priority web 80` | another priority |
//! | `describe web "TEXT"` | other routes and another annotation |
//! | `deploy web v2 [WORK] [rolls ROLLS]`, `activate web v1`, `restart web` | a definition for all instances: a new one, one that it has, the same |
//! | `rollout pause web`, `rollout resume web`, `rollout back web` | by hand |
//! | `policy web RESTART` | another restart policy |
//! | `run task job1 [WORK] [owner=none] [queue=30s]` | the owner is `none`, `well`, `moody` or `broken` when it is called |
//! | `cancel job1`, `resolve job1` | |
//! | `desire periodic clock every-minute \| every-second-minute overlap=queued [WORK]`, `update periodic ...` | it is launched again and again, as `clock--SECONDS`; a run begins at 1790000000 |
//! | `pause \| resume \| launch \| remove periodic clock` | |
//! | `desire parameterised mill limit=2 overflow=refused [WORK]`, `update parameterised ...`, `remove parameterised mill` | a template of tasks |
//! | `dispatch mill [key=k] [payload="TEXT"] [colour="TEXT"] [priority=80]`, `withdraw mill 3` | a task of it, `mill--dispatch-NUMBER` |
//! | `domain apps fresh for 20s \| ever` | |
//! | `evacuate c1`, `cordon c1`, `uncordon c1`, `forget c1` | an operator's request |
//! | `preemption on`, `preemption off` | an operator's, too |
//! | `shards 8` | an operator changes the number of shards |
//! | `retry evaluation of web for attempts` | somebody wants the newest of its evaluations with this trigger tried again |
//! | `kill bbs-1 for 2s` | it is killed, and starts again; containers live on |
//! | `lose cell c2 [for 20s]` | its machine dies with all its containers; an empty one comes back, or none |
//! | `pause bbs-1 for 5s`, `lag bbs-1 for 5s` | it stands still; only its follower does |
//! | `cut off rep-c1 for 10s [entirely] [unnoticed]` | from the bus; from the journal too; it isn't told |
//! | `part bbs-1 rep-c1 from bbs-2 for 10s [one way]` | messages between them are lost; only those from the first |
//! | `c1 unheard for 20s`, `no heartbeats for 20s` | what shows that a cell lives is lost; of all cells |
//! | `journal dark for 6s`, `power cut [losing 3]`, `malformed entry` | it answers nobody; its machines lose power; bytes that are no valid entry |
//! | `clock of bbs-1 +30s` | is set forward, or back |
//! | `slow c1 for 30s`, `sick c1 for 60s` | its rep hears late of its containers; it can't make containers |
//! | `full c1 for 60s` | its executor can't prepare containers: its rep refuses work |
//!
//! WORK is any of `create=20ms`, `start=50ms`, `run=3s` (else a process runs for ever and a task ends at once),
//! `exit=0`, `result="TEXT"`, `ignores-term`, `hangs`, `fails`, `unhealthy`, `memory=64`, `stack=linux`, `tag`, `asks=...`, `priority=80`. Behind every request of
//! a client may stand `domain=apps` and `timeout=30s`, and at its end `-> done` or `-> refused CODE`: the answer that
//! it must get.
//!
//! Of every three cells the first stands in rack r1, the second in r2, the third in none. `asks=` says what WORK asks of
//! that, and of where its siblings are:
//!
//! | `asks=` | meaning |
//! |---|---|
//! | `rack`, `other-rack`, `any-rack`, `unknown-rack` | it has to be in r1; not in r1; in a rack; in r9, which there is not |
//! | `one-per-cell`, `two-per-rack` | so many instances may be together |
//! | `prefers-rack`, `shuns-rack` | affinity: rather in r1; rather not in r1 |
//! | `prefers-other-rack` | affinities: rather in a rack, but still more rather not in r1 |
//! | `any-rack-shuns-rack` | it has to be in a rack, and rather not in r1 |
//! | `spread` | evenly over racks |
//! | `spread-shuns-rack`, `spread-one-per-cell` | the same, and rather not in r1; with one instance on a cell |
//! | `spread-over-zones-too` | evenly over racks, and half as much over zones |
//! | `spread-mostly-rack`, `spread-all-in-rack` | 70 % in r1; 100 % in r1 |
//!
//! What is desired as `web x3` has the definition `web-64`, after its memory. ROLLS is any of `parallelism=2` or `25%`,
//! `delay=1s`, `monitor=2s`, `deadline=20s`, `order=stop-first`, `on-failure=rollback`, `ratio=0.5`, `pause-after=1`,
//! `min-running=2` and `history=3`; RESTART any of `condition=none` or `on-failure`, `delay=1s`, `attempts=2`, `window=60s`.
//!
//! What is expected, behind `at TIME expect`; at its end `within 10s` (it may come to be until then) or `until 40s` (it
//! has to stay so):
//!
//! | line | meaning |
//! |---|---|
//! | `web/0 RUNNING [of v2] [on c1 \| not on c1] [crashes 2]` | its state; also `CLAIMED`, `UNCLAIMED ["WHY"]`, `CRASHED ["WHY"]` |
//! | `web/0 ended crashed`, `web/0 ended stopped for scale` | of what ended there and is shown, something that ended so |
//! | `web/0 ended 2 times` | so many that ended there are shown |
//! | `web/0 gone`, `web gone`, `job1 gone` | there is no record of it |
//! | `web/0 evacuating on c1`, `web/0 not evacuating` | its evacuating twin |
//! | `web: 3 RUNNING, 1 CRASHED [of v2] [on c1]` | so many instances, and no others |
//! | `web healthy v2`, `web healthy none`, `web definitions v1, v2` | the definition that is known to work; those that it has |
//! | `web rollout completed` | or `updating`, `paused`, `rollback_started`, `rollback_paused`, `rollback_completed` |
//! | `job1 COMPLETED ["RESULT"]`, `job1 COMPLETED failed ["WHY"]` | also `PENDING ["WHY"]`, `RUNNING`, `RESOLVING`, with `[on c1]` |
//! | `cell c1 present` | or `absent`, `unhealthy`, `evacuating` |
//! | `owner of job1 told`, `owner of job1 not told` | whether it was called and answered |
//! | `evaluation of web complete for scale [joined 2] [after queued \| alone] [leaves queued]` | of an evaluation with this trigger: where it stands (`deleted`: there is none), how many causes joined it, which one it points to that points to it, or none, which one waits with its rest |

mod acts;
mod asks;
mod evaluations;
mod expect;
mod head;
mod judge;
mod rolling;
mod telling;
pub(crate) mod words;

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use std::{fmt, fs, io};

pub use evaluations::{Before, Evaluated, newest};
pub use expect::{CELL_STATES, Expect, INSTANCE_STATES, ROLLOUT_STATES, TASK_STATES, What, When, Where};
pub use judge::Facts;
pub use telling::Seen;
pub use words::{Bad, Time};

use super::nodes::Shape;
use super::plan::{Act, Plan};
use scenario::words::Words;

/// Peace begins so long after the last thing that is written, unless the story says when.
const AFTERWARDS: Duration = Duration::from_secs(1);

/// A plan with what a person says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Story {
    /// The comment that it begins with, line by line.
    pub about: Vec<String>,
    /// Why it can't run on a real cluster, if it can't.
    pub only_simulated: Option<String>,
    /// What happens.
    pub plan: Plan,
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.about.iter().try_for_each(|line| writeln!(f, "# {line}"))?;
        self.only_simulated.as_ref().map_or(Ok(()), |why| writeln!(f, "only simulated: {why}"))?;
        self.plan.fmt(f)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        head::write(f, self)?;
        for line in lines(self) {
            match line {
                Line::Act(at, act) => writeln!(f, "at {} {act}", Time(at))?,
                Line::Expect(at, expect) => writeln!(f, "at {} {expect}", Time(at))?,
            }
        }
        writeln!(f, "peace at {}", Time(self.peace_at))
    }
}

/// Something that happens or is expected, at its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// It happens.
    Act(Duration, &'a Act),
    /// It is expected.
    Expect(Duration, &'a Expect),
}

/// What happens and what is expected, in the order of time; of one moment, first what happens.
#[must_use]
pub fn lines(plan: &Plan) -> Vec<Line<'_>> {
    let acts = plan.acts.iter().map(|(at, act)| Line::Act(*at, act));
    let mut lines: Vec<Line<'_>> =
        acts.chain(plan.expects.iter().map(|(at, expect)| Line::Expect(*at, expect))).collect();
    lines.sort_by_key(|line| match line {
        Line::Act(at, _) | Line::Expect(at, _) => *at,
    });
    lines
}

impl FromStr for Plan {
    type Err = Bad;

    fn from_str(text: &str) -> Result<Self, Bad> {
        Ok(text.parse::<Story>()?.plan)
    }
}

/// The names and texts of the stories in a folder, in the order of their files.
///
/// # Errors
/// The folder or a file can't be read.
pub fn texts(folder: &Path) -> io::Result<Vec<(String, String)>> {
    let mut paths =
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    let named = |path: PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, fs::read_to_string(&path)?))
    };
    paths.into_iter().map(named).collect()
}

impl FromStr for Story {
    type Err = Bad;

    fn from_str(text: &str) -> Result<Self, Bad> {
        let comment = |line: &&str| line.trim_start().starts_with('#');
        let uncommented = |line: &str| line.trim().trim_start_matches('#').trim().to_owned();
        let about = text.lines().take_while(comment).map(uncommented).collect();
        let mut reader = Reader::default();
        for (at, line) in text.lines().enumerate() {
            reader.line(at + 1, line)?;
        }
        let Reader { head, acts, expects, over, .. } = reader;
        let head::Head { seed, shape, faults, only_simulated, peace_at } = head;
        let peace_at = peace_at.unwrap_or(over.0 + AFTERWARDS);
        if over.0 > peace_at {
            let why = format!(
                "peace begins at {}: what is written here comes later, or lasts longer",
                Time(peace_at)
            );
            return Err(Bad { line: over.1, why });
        }
        Ok(Self { about, only_simulated, plan: Plan { seed, shape, faults, acts, expects, peace_at } })
    }
}

/// What was read so far.
#[derive(Default)]
struct Reader {
    head: head::Head,
    acts: Vec<(Duration, Act)>,
    expects: Vec<(Duration, Expect)>,
    /// The time of the last line.
    at: Duration,
    /// When all that was read is over, and which line lasts longest.
    over: (Duration, usize),
}

impl Reader {
    fn line(&mut self, number: usize, text: &str) -> Result<(), Bad> {
        if let Some(why) = text.trim_start().strip_prefix("only simulated:") {
            self.head.only_simulated = Some(why.trim().to_owned());
            return Ok(());
        }
        let mut words = Words::new(number, text)?;
        if words.is_empty() {
            return Ok(());
        }
        if words.take("at") {
            self.happening(number, &mut words)?;
        } else if words.take("peace at") {
            self.head.peace_at = Some(words.duration()?);
        } else if self.acts.is_empty() && self.expects.is_empty() {
            self.head.line(&mut words)?;
        } else {
            return Err(words.wrong("`at` and a time: the head of a story is over when something happens"));
        }
        words.end()
    }

    fn happening(&mut self, number: usize, words: &mut Words) -> Result<(), Bad> {
        let at = words.duration()?;
        if at < self.at {
            return Err(words.bad(format!(
                "{} is earlier than the line before, {}",
                Time(at),
                Time(self.at)
            )));
        }
        self.at = at;
        let shape: Shape = self.head.shape;
        let mut over = at;
        if words.take("expect") {
            let expect = expect::read(words, shape)?;
            over = match expect.when {
                When::Now => at,
                When::Within(time) => at + time,
                When::Until(moment) if moment >= at => moment,
                When::Until(moment) => {
                    return Err(words.bad(format!("until {} is earlier than at {}", Time(moment), Time(at))));
                }
            };
            self.expects.push((at, expect));
        } else {
            self.acts.push((at, acts::read(words, shape)?));
        }
        self.over = self.over.max((over, number));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
