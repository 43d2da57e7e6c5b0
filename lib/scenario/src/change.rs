//! Changes that a run makes, in the syntax of the stories.
//!
//! | syntax | effect |
//! |---|---|
//! | `lose cell c2` | the machine of the cell dies with all its containers |
//! | `return cell c2` | an empty machine replaces the lost one |
//! | `add cell c9 [like c1] [OPTION=VALUE ...]` | adds a cell |
//! | `evacuate [cell] c1`, `cordon [cell] c1` | request of an operator |
//! | `uncordon [cell] c1`, `delete cell c1` | request of an operator |
//! | `apply FILE` | desires or updates everything in the file |
//! | `update NAME FILE` | updates the process to its definition in the file |
//! | `scale NAME=5` (or `scale NAME x5`), `priority NAME 80` | request of a client |
//! | `restart NAME`, `activate NAME DEFINITION`, `delete NAME` | request of a client |
//! | `rollout pause NAME`, `rollout resume NAME`, `rollback NAME` | manual control of a rollout |
//! | `stop NAME/INDEX` | stops an instance; it starts again if it is desired |
//! | `crash NAME/INDEX` | crashes the container of an instance |
//! | `run FILE`, `cancel TASK` | runs or cancels tasks |
//! | `domain NAME fresh for 20s`, `domain NAME fresh ever` | marks a domain as fresh |
//! | `preemption on`, `preemption off` | switches preemption |
//! | `wait 20s` | advances the time before the next change |
//!
//! Options of `add cell` are `memory=4096`, `disk=8192` (both in MiB), `containers=100`, `ports=100`,
//! `zone=z1`, `stack=linux` and `tag=gpu`. An omitted option has the value of the cell named by `like`.
//! Without `like`, it has the value of the first cell.

use std::time::Duration;

use schemas::cell;
use schemas::names::{CellId, DefinitionId, Domain, PlacementTag, ProcessGuid, Stack, TaskGuid, Zone};
use schemas::priority::Priority;
use schemas::process::RolloutControl;
use schemas::spec::Item;

use super::words::{Bad, Words};

/// Change that a run makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Kills the machine of a cell.
    Lose(CellId),
    /// Replaces the machine of a lost cell by an empty one.
    Return(CellId),
    /// Adds a cell.
    Add(Box<NewCell>),
    /// Sends an operator command for a cell.
    Operator(CellId, cell::Command),
    /// Desires or updates everything in a file.
    Apply(Vec<Item>),
    /// Updates a process to its definition in a file.
    Update(ProcessGuid, Vec<Item>),
    /// Sets the number of desired instances.
    Scale(ProcessGuid, u32),
    /// Sets the priority of a process.
    Rank(ProcessGuid, Priority),
    /// Replaces every instance by one with the same definition.
    Restart(ProcessGuid),
    /// Moves every instance to an existing definition of the process.
    Activate(ProcessGuid, DefinitionId),
    /// Controls the rollout of a process.
    Steer(ProcessGuid, RolloutControl),
    /// Removes a process from the desired state.
    Remove(ProcessGuid),
    /// Stops an instance.
    Retire(ProcessGuid, u32),
    /// Crashes the container of an instance.
    Crash(ProcessGuid, u32),
    /// Cancels a task.
    Cancel(TaskGuid),
    /// Marks a domain as fresh for a duration. `None` means forever.
    Fresh(Domain, Option<Duration>),
    /// Allows or forbids stopping less urgent work to make room for waiting work.
    Preemption(bool),
    /// Advances the time.
    Wait(Duration),
}

/// Cell to add. An omitted value is copied from the cell in `like`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCell {
    pub id: CellId,
    /// Cell to copy omitted values from. `None` means the first cell.
    pub like: Option<CellId>,
    /// Memory in MiB.
    pub memory_mb: Option<u64>,
    /// Disk in MiB.
    pub disk_mb: Option<u64>,
    /// Maximum number of containers.
    pub containers: Option<u32>,
    /// Number of host ports.
    pub ports: Option<u32>,
    pub zone: Option<Zone>,
    /// Stack that the cell offers.
    pub stack: Option<Stack>,
    /// Placement tags; work must request all of them. An empty list means the tags of the cell in `like`.
    pub tags: Vec<PlacementTag>,
}

/// Reason that a change cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread<E> {
    /// Syntax error, with the expected and the actual words.
    Words(String),
    /// Error of a file that the change names.
    File(E),
}

/// List of all changes, for error messages.
const KNOWN: &str = "a change: lose cell, return cell, add cell, evacuate, cordon, uncordon, delete cell, apply, update, scale, priority, restart, activate, rollout pause, \
                     rollout resume, rollback, delete, stop, crash, run, cancel, domain, preemption on, preemption off or wait";

impl Change {
    /// Parses a change and calls `read` for each file that it names. Returns `None` if the line is empty or a
    /// comment.
    ///
    /// # Errors
    /// Returns the expected syntax, or the error of a file.
    pub fn read<E>(
        text: &str,
        read: &mut dyn FnMut(&str) -> Result<Vec<Item>, E>,
    ) -> Result<Option<Self>, Unread<E>> {
        let words = |bad: Bad| Unread::Words(bad.why);
        let mut all = Words::new(1, text).map_err(words)?;
        if all.is_empty() {
            return Ok(None);
        }
        let change = match of_file(&mut all, read)? {
            Some(change) => change,
            None => of_words(&mut all).map_err(words)?,
        };
        all.end().map_err(words)?;
        Ok(Some(change))
    }
}

type Read<'a, E> = &'a mut dyn FnMut(&str) -> Result<Vec<Item>, E>;

/// Parses a change that names a file. Returns `None` for any other change.
fn of_file<E>(words: &mut Words, read: Read<'_, E>) -> Result<Option<Change>, Unread<E>> {
    let bad = |bad: Bad| Unread::Words(bad.why);
    let mut items = |words: &mut Words| {
        let quoted = words.take_quoted().map(Ok);
        let path = quoted.unwrap_or_else(|| words.read("a file", |word| Some(word.to_owned())));
        read(&path.map_err(bad)?).map_err(Unread::File)
    };
    Ok(Some(if words.take("apply") || words.take("run") {
        Change::Apply(items(words)?)
    } else if words.take("update") {
        let process = process(words).map_err(bad)?;
        Change::Update(process, items(words)?)
    } else {
        return Ok(None);
    }))
}

fn of_words(words: &mut Words) -> Result<Change, Bad> {
    if let Some(change) = of_cell(words)? {
        return Ok(change);
    }
    Ok(if words.take("scale") {
        scale(words)?
    } else if words.take("priority") {
        let process = process(words)?;
        let known = |word: &str| word.parse().ok().and_then(Priority::new);
        Change::Rank(process, words.read("a priority from 1 to 100", known)?)
    } else if words.take("restart") {
        Change::Restart(process(words)?)
    } else if words.take("activate") {
        Change::Activate(process(words)?, words.name("the name of a definition")?)
    } else if words.take("rollout pause") {
        Change::Steer(process(words)?, RolloutControl::Pause)
    } else if words.take("rollout resume") {
        Change::Steer(process(words)?, RolloutControl::Resume)
    } else if words.take("rollback") {
        Change::Steer(process(words)?, RolloutControl::RollBack)
    } else if words.take("delete") {
        Change::Remove(process(words)?)
    } else if words.take("stop") {
        let (process, index) = instance(words)?;
        Change::Retire(process, index)
    } else if words.take("crash") {
        let (process, index) = instance(words)?;
        Change::Crash(process, index)
    } else if words.take("cancel") {
        Change::Cancel(words.name("the name of a task")?)
    } else if words.take("domain") {
        let domain = words.name("the name of a domain")?;
        words.must("fresh")?;
        Change::Fresh(domain, if words.take("ever") { None } else { Some(words.for_time()?) })
    } else if words.take("preemption on") {
        Change::Preemption(true)
    } else if words.take("preemption off") {
        Change::Preemption(false)
    } else if words.take("wait") {
        Change::Wait(words.duration()?)
    } else {
        return Err(words.wrong(KNOWN));
    })
}

/// Parses a change of a cell. Returns `None` for any other change.
fn of_cell(words: &mut Words) -> Result<Option<Change>, Bad> {
    let orders = [
        ("evacuate", cell::Command::Evacuate),
        ("cordon", cell::Command::Cordon),
        ("uncordon", cell::Command::Uncordon),
        ("delete cell", cell::Command::Forget),
    ];
    if words.take("lose") {
        words.must("cell")?;
        return Ok(Some(Change::Lose(cell_id(words)?)));
    }
    if words.take("return") {
        words.must("cell")?;
        return Ok(Some(Change::Return(cell_id(words)?)));
    }
    if words.take("add") {
        words.must("cell")?;
        return Ok(Some(Change::Add(Box::new(new_cell(words)?))));
    }
    for (word, command) in orders {
        if words.take(word) {
            words.take("cell");
            return Ok(Some(Change::Operator(cell_id(words)?, command)));
        }
    }
    Ok(None)
}

fn cell_id(words: &mut Words) -> Result<CellId, Bad> {
    words.name("the name of a cell")
}

fn process(words: &mut Words) -> Result<ProcessGuid, Bad> {
    words.name("the name of a process")
}

fn instance(words: &mut Words) -> Result<(ProcessGuid, u32), Bad> {
    words.read("an instance, as web/0", |word| {
        let (process, index) = word.split_once('/')?;
        Some((process.parse().ok()?, index.parse().ok()?))
    })
}

/// Parses `web=5`, or `web x5` as in a story.
fn scale(words: &mut Words) -> Result<Change, Bad> {
    let whole = |word: &str| {
        let (process, instances) = word.split_once('=')?;
        Some((process.parse().ok()?, instances.parse().ok()?))
    };
    if words.peek().is_some_and(|word| word.contains('=')) {
        let (process, instances) = words.read("a process and how many instances, as web=5", whole)?;
        return Ok(Change::Scale(process, instances));
    }
    let process = words.name("a process and how many instances, as web=5")?;
    let instances = words.read("how many instances, as x5", |word| word.strip_prefix('x')?.parse().ok())?;
    Ok(Change::Scale(process, instances))
}

fn new_cell(words: &mut Words) -> Result<NewCell, Bad> {
    let mut new = NewCell {
        id: cell_id(words)?,
        like: None,
        memory_mb: None,
        disk_mb: None,
        containers: None,
        ports: None,
        zone: None,
        stack: None,
        tags: vec![],
    };
    loop {
        if words.take("like") {
            new.like = Some(cell_id(words)?);
        } else if let Some(mut value) = option(words, "memory") {
            new.memory_mb = Some(value.number()?);
        } else if let Some(mut value) = option(words, "disk") {
            new.disk_mb = Some(value.number()?);
        } else if let Some(mut value) = option(words, "containers") {
            new.containers = Some(value.number()?);
        } else if let Some(mut value) = option(words, "ports") {
            new.ports = Some(value.number()?);
        } else if let Some(mut value) = option(words, "zone") {
            new.zone = Some(value.name("the name of a zone")?);
        } else if let Some(mut value) = option(words, "stack") {
            new.stack = Some(value.name("the name of a stack")?);
        } else if let Some(mut value) = option(words, "tag") {
            new.tags.push(value.name("the name of a placement tag")?);
        } else if words.end().is_ok() {
            return Ok(new);
        } else {
            return Err(words.wrong(
                "like CELL, memory=MB, disk=MB, containers=N, ports=N, zone=ZONE, stack=STACK or tag=TAG",
            ));
        }
    }
}

/// Parses `memory=4096` or `memory 4096` and returns the value as a separate cursor.
fn option(words: &mut Words, name: &str) -> Option<Words> {
    words.take_option(name).or_else(|| if words.take(name) { words.take_word() } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Change>, Unread<String>> {
        Change::read(text, &mut |path| match path {
            "web.toml" => Ok(vec![]),
            other => Err(format!("no file {other}")),
        })
    }

    #[test]
    fn a_change_is_read_in_the_words_of_the_stories() {
        let web = || ProcessGuid::new("web").unwrap();
        let cell = |id: &str| CellId::new(id).unwrap();
        let all = [
            ("lose cell c2", Change::Lose(cell("c2"))),
            ("scale web=50", Change::Scale(web(), 50)),
            ("scale web x50", Change::Scale(web(), 50)),
            ("update web web.toml", Change::Update(web(), vec![])),
            ("apply web.toml", Change::Apply(vec![])),
            ("evacuate c1", Change::Operator(cell("c1"), cell::Command::Evacuate)),
            ("delete cell c1", Change::Operator(cell("c1"), cell::Command::Forget)),
            ("delete web", Change::Remove(web())),
            ("cordon cell c1 # for now", Change::Operator(cell("c1"), cell::Command::Cordon)),
            ("crash web/3", Change::Crash(web(), 3)),
            ("wait 20s", Change::Wait(Duration::from_secs(20))),
            ("domain apps fresh ever", Change::Fresh(Domain::new("apps").unwrap(), None)),
        ];
        for (text, change) in all {
            assert_eq!(read(text), Ok(Some(change)), "{text}");
        }
        let Ok(Some(Change::Add(new))) = read("add cell c9 like c1 memory 64 tag=gpu") else {
            panic!("a cell")
        };
        assert_eq!((new.like, new.memory_mb, new.tags.len()), (Some(cell("c1")), Some(64), 1));
        assert_eq!(read("  # nothing"), Ok(None));
    }

    #[test]
    fn what_is_no_change_is_told_with_what_is_valid() {
        let why = |text: &str| match read(text) {
            Err(Unread::Words(why)) => why,
            other => panic!("{text}: {other:?}"),
        };
        assert!(why("loose cell c1").starts_with("found `loose`, expected a change: lose cell,"));
        assert!(why("lose c1").contains("expected `cell`"));
        assert!(why("scale web=many").contains("expected a process and how many instances, as web=5"));
        assert!(why("crash web").contains("an instance, as web/0"));
        assert!(why("wait soon").contains("a time, as 200ms, 12s or 5m"));
        assert!(why("delete web now").contains("found `now` behind `web`, expected nothing more"));
        assert!(why("add cell c9 colour=red").contains("expected like CELL"));
        assert_eq!(read("apply other.toml"), Err(Unread::File("no file other.toml".into())));
    }
}
