//! Commands of clients as text.

use std::fmt;
use std::time::Duration;

use schemas::definition::{Overflow, Overlap};
use schemas::names::{Domain, ParameterisedGuid, ProcessGuid};
use schemas::policy::RestartPolicy;
use schemas::priority::Priority;
use schemas::refusal::Code;
use schemas::spec::PeriodicAction;

use scenario::words::{Bad, Quoted, Time, Words, duration};

use crate::act::{Act, Answer};
use crate::rules::{IsolationRule, RackRule};
use crate::story::rolling;
use crate::work::{Ask, Often, Owner, Work, domain, other_domain};

/// Default time for which a client waits.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

const OVERLAPS: [(&str, Overlap); 3] =
    [("allowed", Overlap::Allowed), ("skipped", Overlap::Skipped), ("queued", Overlap::Queued)];

const OFTEN: [(&str, Often); 2] =
    [("every-minute", Often::Minute), ("every-second-minute", Often::TwoMinutes)];

const PERIODIC_ASKS: [(&str, PeriodicAction); 4] = [
    ("pause", PeriodicAction::Pause),
    ("resume", PeriodicAction::Resume),
    ("launch", PeriodicAction::Launch),
    ("remove", PeriodicAction::Remove),
];

const OVERFLOWS: [(&str, Overflow); 2] = [("queued", Overflow::Queued), ("refused", Overflow::Refused)];

/// Returns the word for a value.
fn word_of<T: PartialEq>(words: &[(&'static str, T)], meaning: &T) -> &'static str {
    words.iter().find(|(_, known)| known == meaning).map_or("", |(word, _)| *word)
}

/// Options of every command.
struct Tail {
    domain: Domain,
    patience: Duration,
}

// ---- to text -----------------------------------------------------------------------------------------------------

/// Writes a command with its options.
pub(super) fn write(
    f: &mut fmt::Formatter<'_>,
    (ask, domain, patience): (&Ask, &Domain, Duration),
    answer: Option<&Answer>,
) -> fmt::Result {
    match ask {
        Ask::Desire { process, instances, work } => {
            write!(f, "desire {process} x{instances}{}", Options(work))?;
        }
        Ask::DesireGlobal { process, work } => write!(f, "desire {process} everywhere{}", Options(work))?,
        Ask::Scale { process, instances } => write!(f, "scale {process} x{instances}")?,
        Ask::Rank { process, priority } => write!(f, "priority {process} {priority}")?,
        Ask::Describe { process, text } => write!(f, "describe {process} {}", Quoted(text))?,
        Ask::Policy { process, restart } => {
            write!(f, "policy {process}")?;
            rolling::write_restart(f, restart)?;
        }
        Ask::Deploy { process, definition, work, rolls } => {
            write!(f, "deploy {process} {definition}{}", Options(work))?;
            rolls.as_ref().map_or(Ok(()), |rolls| rolling::write(f, rolls))?;
        }
        Ask::Activate(process, definition) => write!(f, "activate {process} {definition}")?,
        Ask::Restart(process) => write!(f, "restart {process}")?,
        Ask::Steer(process, steer) => write!(f, "rollout {} {process}", rolling::name(*steer))?,
        Ask::Remove(process) => write!(f, "remove {process}")?,
        Ask::Retire(process, index) => write!(f, "retire {process}/{index}")?,
        Ask::Enter(process, index) => write!(f, "exec {process}/{index}")?,
        Ask::Run { task, work, owner, queue } => {
            write!(f, "run task {task}{}", Options(work))?;
            if *owner != Owner::None {
                write!(f, " owner={}", owner.name())?;
            }
            queue.map_or(Ok(()), |time| write!(f, " queue={}", Time(time)))?;
        }
        Ask::Cancel(task) => write!(f, "cancel {task}")?,
        Ask::Resolve(task) => write!(f, "resolve {task}")?,
        Ask::Periodic { periodic, update, often, overlap, work } => {
            let verb = if *update { "update" } else { "desire" };
            let overlap = word_of(&OVERLAPS, overlap);
            write!(
                f,
                "{verb} periodic {periodic} {} overlap={overlap}{}",
                word_of(&OFTEN, often),
                Options(work)
            )?;
        }
        Ask::OfPeriodic(periodic, ask) => write!(f, "{} periodic {periodic}", word_of(&PERIODIC_ASKS, ask))?,
        Ask::Parameterised { parameterised, update, limit, overflow, work } => {
            let verb = if *update { "update" } else { "desire" };
            write!(f, "{verb} parameterised {parameterised}{}", Options(work))?;
            limit.map_or(Ok(()), |limit| write!(f, " limit={limit}"))?;
            if *overflow != Overflow::default() {
                write!(f, " overflow={}", word_of(&OVERFLOWS, overflow))?;
            }
        }
        Ask::Dispatch { parameterised, key, payload, colour, priority } => {
            write!(f, "dispatch {parameterised}")?;
            key.as_ref().map_or(Ok(()), |key| write!(f, " key={key}"))?;
            payload.as_ref().map_or(Ok(()), |text| write!(f, " payload={}", Quoted(text)))?;
            colour.as_ref().map_or(Ok(()), |text| write!(f, " colour={}", Quoted(text)))?;
            priority.map_or(Ok(()), |priority| write!(f, " priority={priority}"))?;
        }
        Ask::Withdraw(parameterised, number) => write!(f, "withdraw {parameterised} {number}")?,
        Ask::RemoveParameterised(parameterised) => write!(f, "remove parameterised {parameterised}")?,
        Ask::Fresh(None) => write!(f, "domain {domain} fresh for ever")?,
        Ask::Fresh(Some(time)) => write!(f, "domain {domain} fresh for {}", Time(*time))?,
    }
    if *domain != self::domain() && !matches!(ask, Ask::Fresh(_)) {
        write!(f, " domain={domain}")?;
    }
    if patience != PATIENCE {
        write!(f, " timeout={}", Time(patience))?;
    }
    answer.map_or(Ok(()), |answer| write!(f, " -> {answer}"))
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Refused(code) => write!(f, "refused {code}"),
        }
    }
}

/// Writer of the options of work that differ from the default.
struct Options<'a>(&'a Work);

impl fmt::Display for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let basic = Work::basic();
        let Work { create, start, run, exit, result, ignores_term, hangs, fails, .. } = self.0;
        let Work { unhealthy, memory_mb, stack, tag, racks, isolation, priority, .. } = self.0;
        let time = |f: &mut fmt::Formatter<'_>, name: &str, time: Duration, basic: Duration| {
            if time == basic { Ok(()) } else { write!(f, " {name}={}", Time(time)) }
        };
        time(f, "create", *create, basic.create)?;
        time(f, "start", *start, basic.start)?;
        run.map_or(Ok(()), |run| write!(f, " run={}", Time(run)))?;
        if *exit != basic.exit {
            write!(f, " exit={exit}")?;
        }
        if *result != basic.result {
            write!(f, " result={}", Quoted(result))?;
        }
        let words =
            [(ignores_term, "ignores-term"), (hangs, "hangs"), (fails, "fails"), (unhealthy, "unhealthy")];
        for (is_so, word) in words {
            if *is_so {
                write!(f, " {word}")?;
            }
        }
        if *memory_mb != basic.memory_mb {
            write!(f, " memory={memory_mb}")?;
        }
        stack.as_ref().map_or(Ok(()), |stack| write!(f, " stack={stack}"))?;
        if *tag {
            f.write_str(" tag")?;
        }
        racks.map_or(Ok(()), |rule| write!(f, " asks={}", rule.name()))?;
        isolation.map_or(Ok(()), |rule| write!(f, " isolation={}", rule.name()))?;
        priority.map_or(Ok(()), |priority| write!(f, " priority={priority}"))
    }
}

// ---- from text ---------------------------------------------------------------------------------------------------

/// Parses a command. `None` if the line is not a command.
pub(super) fn read(words: &mut Words) -> Result<Option<Act>, Bad> {
    let mut tail = Tail { domain: domain(), patience: PATIENCE };
    let ask = if let Some(ask) = periodic(&mut tail, words)? {
        ask
    } else if let Some(ask) = parameterised(&mut tail, words)? {
        ask
    } else if words.take("desire") {
        let process = process(words)?;
        let instances = if words.take("everywhere") { None } else { Some(instances(words)?) };
        let mut work = Work::basic();
        while tail.read(words)? || option(&mut work, words)? {}
        match instances {
            Some(instances) => Ask::Desire { process, instances, work },
            None => Ask::DesireGlobal { process, work },
        }
    } else if words.take("scale") {
        Ask::Scale { process: process(words)?, instances: instances(words)? }
    } else if words.take("priority") {
        Ask::Rank { process: process(words)?, priority: priority(words)? }
    } else if words.take("describe") {
        let process = process(words)?;
        let text = words.take_quoted().ok_or_else(|| words.wrong("a text in quotes"))?;
        Ask::Describe { process, text }
    } else if words.take("policy") {
        let (process, mut restart) = (process(words)?, RestartPolicy::default());
        while tail.read(words)? || rolling::read_restart(&mut restart, words)? {}
        Ask::Policy { process, restart }
    } else if words.take("deploy") {
        let (process, definition) = (process(words)?, words.name("the id of a definition")?);
        let (mut work, mut rolls) = (Work::basic(), None);
        while tail.read(words)? || option(&mut work, words)? || rolling::read(&mut rolls, words)? {}
        Ask::Deploy { process, definition, work, rolls }
    } else if words.take("activate") {
        Ask::Activate(process(words)?, words.name("the id of a definition")?)
    } else if words.take("restart") {
        Ask::Restart(process(words)?)
    } else if words.take("rollout") {
        let steer = rolling::steer(words)?;
        Ask::Steer(process(words)?, steer)
    } else if words.take("remove") {
        Ask::Remove(process(words)?)
    } else if words.take("retire") {
        let (process, index) = instance(words)?;
        Ask::Retire(process, index)
    } else if words.take("exec") {
        let (process, index) = instance(words)?;
        Ask::Enter(process, index)
    } else if words.take("run task") {
        run_task(&mut tail, words)?
    } else if words.take("cancel") {
        Ask::Cancel(words.name("the name of a task")?)
    } else if words.take("resolve") {
        Ask::Resolve(words.name("the name of a task")?)
    } else if words.take("domain") {
        tail.domain = known_domain(words)?;
        words.must("fresh for")?;
        Ask::Fresh(if words.take("ever") { None } else { Some(words.duration()?) })
    } else {
        return Ok(None);
    };
    while tail.read(words)? {}
    let answer = if words.take("->") { Some(answer(words)?) } else { None };
    Ok(Some(Act::Ask { domain: tail.domain, ask, patience: tail.patience, answer }))
}

impl Tail {
    /// Parses an option of every command.
    fn read(&mut self, words: &mut Words) -> Result<bool, Bad> {
        if let Some(mut value) = words.take_option("domain") {
            self.domain = known_domain(&mut value)?;
        } else if let Some(mut value) = words.take_option("timeout") {
            self.patience = value.duration()?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }
}

fn known_domain(words: &mut Words) -> Result<Domain, Bad> {
    let known = [domain(), other_domain()];
    let expected = format!("a domain, {} or {}", known[0], known[1]);
    words.read(&expected, |word| known.into_iter().find(|known| known.as_str() == word))
}

fn answer(words: &mut Words) -> Result<Answer, Bad> {
    if words.take("done") {
        return Ok(Answer::Done);
    }
    words.must("refused")?;
    let code = |word: &str| serde_json::from_value(serde_json::Value::from(word)).ok();
    words.read("the code of a refusal, as ResourceExists", code).map(|code: Code| Answer::Refused(code))
}

fn process(words: &mut Words) -> Result<ProcessGuid, Bad> {
    words.name("the name of a process")
}

/// `x3`.
fn instances(words: &mut Words) -> Result<u32, Bad> {
    words.read("how many, as x3", |word| word.strip_prefix('x')?.parse().ok())
}

/// `web/0`.
pub(super) fn instance(words: &mut Words) -> Result<(ProcessGuid, u32), Bad> {
    words.read("an instance, as web/0", |word| {
        let (process, index) = word.split_once('/')?;
        Some((process.parse().ok()?, index.parse().ok()?))
    })
}

/// Parses a command about a periodic task, such as `pause periodic NAME`.
fn periodic(tail: &mut Tail, words: &mut Words) -> Result<Option<Ask>, Bad> {
    for (word, ask) in PERIODIC_ASKS {
        if words.take(&format!("{word} periodic")) {
            return Ok(Some(Ask::OfPeriodic(words.name("the name of a periodic task")?, ask)));
        }
    }
    let update = words.take("update periodic");
    if !update && !words.take("desire periodic") {
        return Ok(None);
    }
    let periodic = words.name("the name of a periodic task")?;
    let known = |word: &str| OFTEN.into_iter().find(|(known, _)| *known == word);
    let (_, often) = words.read("every-minute or every-second-minute", known)?;
    let (mut work, mut overlap) = (Work::basic(), Overlap::default());
    loop {
        if let Some(mut value) = words.take_option("overlap") {
            let known = |word: &str| OVERLAPS.into_iter().find(|(known, _)| *known == word);
            overlap = value.read("allowed, skipped or queued", known)?.1;
        } else if !tail.read(words)? && !option(&mut work, words)? {
            return Ok(Some(Ask::Periodic { periodic, update, often, overlap, work }));
        }
    }
}

/// Parses a command about a parameterised task, such as `dispatch NAME key=k payload="text"`.
fn parameterised(tail: &mut Tail, words: &mut Words) -> Result<Option<Ask>, Bad> {
    const NAME: &str = "the name of a parameterised task";
    if words.take("dispatch") {
        let parameterised = words.name(NAME)?;
        return dispatch(tail, parameterised, words).map(Some);
    } else if words.take("withdraw") {
        return Ok(Some(Ask::Withdraw(words.name(NAME)?, words.number()?)));
    } else if words.take("remove parameterised") {
        return Ok(Some(Ask::RemoveParameterised(words.name(NAME)?)));
    }
    let update = words.take("update parameterised");
    if !update && !words.take("desire parameterised") {
        return Ok(None);
    }
    let parameterised = words.name(NAME)?;
    let (mut work, mut limit, mut overflow) = (Work::basic(), None, Overflow::default());
    loop {
        if let Some(mut value) = words.take_option("limit") {
            limit = Some(value.number()?);
        } else if let Some(mut value) = words.take_option("overflow") {
            let known = |word: &str| OVERFLOWS.into_iter().find(|(known, _)| *known == word);
            overflow = value.read("queued or refused", known)?.1;
        } else if !tail.read(words)? && !option(&mut work, words)? {
            return Ok(Some(Ask::Parameterised { parameterised, update, limit, overflow, work }));
        }
    }
}

fn dispatch(tail: &mut Tail, parameterised: ParameterisedGuid, words: &mut Words) -> Result<Ask, Bad> {
    let (mut key, mut payload, mut colour, mut rank) = (None, None, None, None);
    let quoted = |mut value: Words| value.take_quoted().ok_or_else(|| value.wrong("a text in quotes"));
    loop {
        if let Some(mut value) = words.take_option("key") {
            key = Some(value.name("a key")?);
        } else if let Some(value) = words.take_option("payload") {
            payload = Some(quoted(value)?);
        } else if let Some(value) = words.take_option("colour") {
            colour = Some(quoted(value)?);
        } else if let Some(mut value) = words.take_option("priority") {
            rank = Some(priority(&mut value)?);
        } else if !tail.read(words)? {
            return Ok(Ask::Dispatch { parameterised, key, payload, colour, priority: rank });
        }
    }
}

fn run_task(tail: &mut Tail, words: &mut Words) -> Result<Ask, Bad> {
    let task = words.name("the name of a task")?;
    let (mut work, mut owner, mut queue) = (Work::basic(), Owner::None, None);
    loop {
        if let Some(mut value) = words.take_option("owner") {
            let known = |word: &str| Owner::NAMES.iter().find(|(_, name)| *name == word);
            owner = value.read("an owner: none, well, moody, absent or broken", known)?.0;
        } else if let Some(mut value) = words.take_option("queue") {
            queue = Some(value.duration()?);
        } else if !tail.read(words)? && !option(&mut work, words)? {
            return Ok(Ask::Run { task, work, owner, queue });
        }
    }
}

fn priority(words: &mut Words) -> Result<Priority, Bad> {
    words.read("a priority from 1 to 100", |word| word.parse().ok().and_then(Priority::new))
}

/// Parses an option of work.
fn option(work: &mut Work, words: &mut Words) -> Result<bool, Bad> {
    for (name, time) in [("create", &mut work.create), ("start", &mut work.start)] {
        if let Some(mut value) = words.take_option(name) {
            *time = value.duration()?;
            return Ok(true);
        }
    }
    if let Some(mut value) = words.take_option("run") {
        work.run = Some(value.read("a time, as 200ms, 12s or 5m", duration)?);
    } else if let Some(mut value) = words.take_option("exit") {
        work.exit = value.number()?;
    } else if let Some(mut value) = words.take_option("result") {
        work.result = value.take_quoted().ok_or_else(|| value.wrong("a text in quotes"))?;
    } else if let Some(mut value) = words.take_option("memory") {
        work.memory_mb = value.number()?;
    } else if let Some(mut value) = words.take_option("stack") {
        work.stack = Some(value.name("the name of a stack")?);
    } else if let Some(mut value) = words.take_option("asks") {
        let known = |word: &str| RackRule::NAMES.iter().find(|(_, name)| *name == word);
        let expected = format!("a value of asks: {}", RackRule::NAMES.map(|(_, name)| name).join(", "));
        work.racks = Some(value.read(&expected, known)?.0);
    } else if let Some(mut value) = words.take_option("isolation") {
        let known = |word: &str| IsolationRule::NAMES.iter().find(|(_, name)| *name == word);
        let expected = format!("isolation: {}", IsolationRule::NAMES.map(|(_, name)| name).join(", "));
        work.isolation = Some(value.read(&expected, known)?.0);
    } else if let Some(mut value) = words.take_option("priority") {
        work.priority = Some(priority(&mut value)?);
    } else if words.take("ignores-term") {
        work.ignores_term = true;
    } else if words.take("hangs") {
        work.hangs = true;
    } else if words.take("fails") {
        work.fails = true;
    } else if words.take("unhealthy") {
        work.unhealthy = true;
    } else if words.take("tag") {
        work.tag = true;
    } else {
        return Ok(false);
    }
    Ok(true)
}
