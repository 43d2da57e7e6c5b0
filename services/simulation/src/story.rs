//! Stories: acts and expectations of a run, as text.
//!
//! ```text
//! # Evacuation
//! # Instances of an evacuating cell run elsewhere before they end.
//! cells 2
//! at 2s expect cell c1 present
//! at 3s desire web x2
//! at 5s expect web: 1 RUNNING on c1
//! at 6s evacuate c1
//! at 6s expect web: 2 RUNNING on c2 within 10s
//! at 20s expect cell c1 absent within 30s
//! ```
//!
//! A line is a comment after `#`, a line of the head, an act or an expectation. Acts are sorted by time. A time is
//! `200ms`, `12s`, `12.4s` or `5m`. Parts in brackets are optional; `A | B` stands for one of both.
//!
//! The head comes first:
//!
//! | line | meaning |
//! |---|---|
//! | `seed 7` | seed of the random numbers |
//! | `cells 3`, `bbss 2`, `auctioneers 2` | number of nodes; every second cell is in another zone |
//! | `tagged` | the last cell accepts only work that requires its tag |
//! | `narrow` | auctioneers allow at most eight pieces of unclaimed work |
//! | `evacuation 30s`, `self-test 15s` | evacuation timeout; interval of self-tests |
//! | `journal of three` | three journal servers instead of one |
//! | `journal without sync` | the journal acknowledges unsynced entries |
//! | `faults dropped 20, late 4, delay_ms 300` | fault rates in thousandths (`Faults`) |
//! | `only simulated: REASON` | the story cannot run on a real cluster |
//! | `peace at 60s` | end of all faults; default: after the last line |
//!
//! Acts, after `at TIME`:
//!
//! | line | meaning |
//! |---|---|
//! | `desire web x3 [WORK]`, `scale web x5`, `remove web`, `retire web/1` | commands of a client |
//! | `desire agent everywhere [WORK]` | global process |
//! | `priority web 80` | priority |
//! | `describe web "TEXT"` | routes and annotation |
//! | `deploy web v2 [WORK] [rolls ROLLS]`, `activate web v1`, `restart web` | new, known or same definition |
//! | `rollout pause web`, `rollout resume web`, `rollout back web` | control of a rollout |
//! | `policy web RESTART` | restart policy |
//! | `run task job1 [WORK] [owner=none] [queue=30s]` | task; owner `none`, `well`, `moody`, `absent` or `broken` |
//! | `cancel job1`, `resolve job1` | |
//! | `desire periodic clock every-minute \| every-second-minute overlap=queued [WORK]`, `update periodic ...` | periodic task; launches `clock--SECONDS`; runs start at 1790000000 |
//! | `pause \| resume \| launch \| remove periodic clock` | |
//! | `desire parameterised mill limit=2 overflow=refused [WORK]`, `update parameterised ...`, `remove parameterised mill` | parameterised task |
//! | `dispatch mill [key=k] [payload="TEXT"] [colour="TEXT"] [priority=80]`, `withdraw mill 3` | dispatch; launches `mill--dispatch-NUMBER` |
//! | `domain apps fresh for 20s \| ever` | |
//! | `evacuate c1`, `cordon c1`, `uncordon c1`, `forget c1` | commands of an operator |
//! | `preemption on`, `preemption off`, `shards 8` | commands of an operator |
//! | `retry evaluation of web for attempts` | retry of the newest evaluation with this trigger |
//! | `kill bbs-1 for 2s` | the service is killed and starts again; containers keep running |
//! | `lose cell c2 [for 20s]` | the machine dies with its containers; an empty one may replace it |
//! | `pause bbs-1 for 5s`, `lag bbs-1 for 5s` | the node stops; only its log reader stops |
//! | `cut off rep-c1 for 10s [entirely] [unnoticed]` | cut from the bus; from the journal too; without notice |
//! | `part bbs-1 rep-c1 from bbs-2 for 10s [one way]` | messages between the groups are lost |
//! | `c1 unheard for 20s`, `no heartbeats for 20s` | heartbeats and probes of a cell are lost; all heartbeats are lost |
//! | `journal dark for 6s`, `power cut [losing 3]`, `malformed entry` | faults of the journal |
//! | `clock of bbs-1 +30s` | the clock is set forward, or back |
//! | `slow c1 for 30s`, `sick c1 for 60s` | late container events; containers cannot be created |
//! | `full c1 for 60s` | containers cannot be prepared, so the rep refuses work |
//!
//! WORK is any of `create=20ms`, `start=50ms`, `run=3s` (default: a process runs forever, a task ends at once),
//! `exit=0`, `result="TEXT"`, `ignores-term`, `hangs`, `fails`, `unhealthy`, `memory=64`, `stack=linux`, `tag`,
//! `asks=...`, `priority=80`. Each command of a client may have `domain=apps` and `timeout=30s`, and ends with
//! `-> done` or `-> refused CODE` if it must get this answer.
//!
//! Of every three cells the first is in rack r1, the second in r2, the third in none. Values of `asks=`:
//!
//! | `asks=` | meaning |
//! |---|---|
//! | `rack`, `other-rack`, `any-rack`, `unknown-rack` | constraint: in r1; not in r1; in a rack; in the missing r9 |
//! | `one-per-cell`, `two-per-rack` | limit of instances |
//! | `prefers-rack`, `shuns-rack` | affinity: r1; not r1 |
//! | `prefers-other-rack` | affinities: a rack, and more strongly not r1 |
//! | `any-rack-shuns-rack` | constraint: in a rack; affinity: not r1 |
//! | `spread` | spread over racks |
//! | `spread-shuns-rack`, `spread-one-per-cell` | spread, and not r1; spread with one instance per cell |
//! | `spread-over-zones-too` | spread over racks and, with half the weight, over zones |
//! | `spread-mostly-rack`, `spread-all-in-rack` | spread with a target of 70 % in r1; of 100 % |
//!
//! `desire web x3` creates the definition `web-64`, after its memory. ROLLS is any of `parallelism=2` or `25%`,
//! `delay=1s`, `monitor=2s`, `deadline=20s`, `order=stop-first`, `on-failure=rollback`, `ratio=0.5`,
//! `pause-after=1`, `min-running=2` and `history=3`. RESTART is any of `condition=none` or `on-failure`,
//! `delay=1s`, `attempts=2`, `window=60s`.
//!
//! Expectations, after `at TIME expect`. They end with `within 10s` (met within that time) or `until 40s` (met all
//! the time):
//!
//! | line | meaning |
//! |---|---|
//! | `web/0 RUNNING [of v2] [on c1 \| not on c1] [crashes 2]` | state; also `CLAIMED`, `UNCLAIMED ["REASON"]`, `CRASHED ["REASON"]` |
//! | `web/0 ended crashed`, `web/0 ended stopped for scale` | an ended container that is shown |
//! | `web/0 ended 2 times` | number of ended containers that are shown |
//! | `web/0 gone`, `web gone`, `job1 gone` | no record |
//! | `web/0 evacuating on c1`, `web/0 not evacuating` | evacuating record |
//! | `web: 3 RUNNING, 1 CRASHED [of v2] [on c1]` | exact numbers of instances |
//! | `web healthy v2`, `web healthy none`, `web definitions v1, v2` | healthy definition; all definitions |
//! | `web rollout completed` | or `updating`, `paused`, `rollback_started`, `rollback_paused`, `rollback_completed` |
//! | `job1 COMPLETED ["RESULT"]`, `job1 COMPLETED failed ["REASON"]` | also `PENDING ["REASON"]`, `RUNNING`, `RESOLVING`, with `[on c1]` |
//! | `cell c1 present` | or `absent`, `unhealthy`, `evacuating` |
//! | `owner of job1 told`, `owner of job1 not told` | final answer of the owner |
//! | `evaluation of web complete for scale [joined 2] [after queued \| alone] [leaves queued]` | evaluation with this trigger: state (`deleted`: none), joined causes, trigger of its parent, trigger of its child |

mod acts;
mod asks;
mod evaluations;
mod expect;
mod head;
mod judge;
mod play;
mod rolling;
pub(crate) mod words;

use crate::act::Act;
use crate::plan::Plan;
use crate::shape::Shape;

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use std::{fmt, fs, io};

pub use evaluations::{Before, Evaluated, newest};
pub use expect::{CELL_STATES, Expect, INSTANCE_STATES, ROLLOUT_STATES, TASK_STATES, What, When, Where};
pub use judge::Facts;
pub use play::RunEvent;
pub use words::{Bad, Time};

use scenario::words::Words;

/// Default time from the end of the last line to peace.
const AFTERWARDS: Duration = Duration::from_secs(1);

/// Plan with its comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Story {
    /// First comment, line by line.
    pub about: Vec<String>,
    /// Reason why the story cannot run on a real cluster.
    pub only_simulated: Option<String>,
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

/// Act or expectation with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    Act(Duration, &'a Act),
    Expect(Duration, &'a Expect),
}

/// Returns the acts and expectations in the order of time. At one time, acts come first.
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

/// Returns the names and texts of the stories in a folder, sorted by file name.
///
/// # Errors
/// The folder or a file cannot be read.
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
            let why = format!("this line lasts beyond the time of peace, {}", Time(peace_at));
            return Err(Bad { line: over.1, why });
        }
        Ok(Self { about, only_simulated, plan: Plan { seed, shape, faults, acts, expects, peace_at } })
    }
}

/// Parsed lines.
#[derive(Default)]
struct Reader {
    head: head::Head,
    acts: Vec<(Duration, Act)>,
    expects: Vec<(Duration, Expect)>,
    /// Time of the last line.
    at: Duration,
    /// Time at which all parsed lines are over, and the line that lasts longest.
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
