//! The processes of this host, as `/proc` has them. A process is its pid and the moment it started: a pid alone may
//! be somebody else's by the time it is used.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, pidfd_open, pidfd_send_signal, setrlimit};

use crate::process::fnv;

/// Bytes that are read of an environment: Linux lets a program start with 6 MiB of arguments and environment.
const ENVIRONMENT_BYTES: u64 = 8 * 1024 * 1024;

/// One process, and no later one with the same pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    pid: i32,
    /// Clock ticks between the boot of the host and its start.
    start: u64,
}

/// What `/proc/PID/stat` says of a process.
struct Stat {
    ended: bool,
    parent: i32,
    group: i32,
    session: i32,
    start: u64,
}

impl Process {
    /// Sends it a signal; nothing happens if it is gone.
    pub(crate) fn signal(self, signal: Signal) -> io::Result<()> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(()) };
        // The descriptor stays with one process; the check after opening it says that it is the one that was meant.
        let sent = pidfd_open(pid, PidfdFlags::empty())
            .and_then(|descriptor| if self.alive() { pidfd_send_signal(descriptor, signal) } else { Ok(()) });
        match sent {
            Err(Errno::SRCH) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Its process id.
    pub(crate) const fn pid(self) -> i32 {
        self.pid
    }

    /// Whether it still runs. A zombie doesn't.
    pub(crate) fn alive(self) -> bool {
        stat(self.pid).is_some_and(|stat| !stat.ended && stat.start == self.start)
    }
}

/// Every living process below the one with this pid.
pub(crate) fn descendants(root: i32) -> Vec<Process> {
    below(&[root], &table_without_children_files())
}

/// Marks this program and all that it starts from now on. The mark is a limit of the process that Linux keeps and hands
/// down, and has not enforced since version 2.4 (`RLIMIT_LOCKS`): neither `setsid`, nor an empty environment, nor the
/// death of the parent takes it from anybody.
pub(crate) fn mark_self(value: &str) -> io::Result<()> {
    let mark = Some(mark_of(value));
    Ok(setrlimit(Resource::Locks, Rlimit { current: mark, maximum: mark })?)
}

/// The limit that stands for `value`: no sensible number, and not unlimited either.
fn mark_of(value: &str) -> u64 {
    fnv(value) >> 2 | 1 << 61
}

/// Every living process that carries the mark of `value`, as a limit or as `name=value` in its environment, and all
/// below them.
pub(crate) fn marked(name: &str, value: &str) -> Vec<Process> {
    let (variable, limit) = (format!("{name}={value}"), mark_of(value).to_string());
    let marked: Vec<i32> =
        pids().filter(|pid| has_limit(*pid, &limit) || has_variable(*pid, &variable)).collect();
    let mut found = below(&marked, &table_without_children_files());
    found.extend(marked.into_iter().filter_map(living));
    found
}

fn has_variable(pid: i32, wanted: &str) -> bool {
    let mut environment = vec![];
    let file = fs::File::open(format!("/proc/{pid}/environ"));
    drop(file.and_then(|file| file.take(ENVIRONMENT_BYTES).read_to_end(&mut environment)));
    environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
}

fn has_limit(pid: i32, wanted: &str) -> bool {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
    let locks = limits.lines().find_map(|line| line.strip_prefix("Max file locks"));
    locks.and_then(|values| values.split_whitespace().next()) == Some(wanted)
}

/// A process that leads a group or a session, all below it, and those of its group or session that lost it as their parent,
/// which are sought below `root`.
pub(crate) fn members(root: i32, leader: i32) -> BTreeSet<Process> {
    let group = descendants(root)
        .into_iter()
        .filter(|process| stat(process.pid).is_some_and(|stat| [stat.group, stat.session].contains(&leader)));
    descendants(leader).into_iter().chain(living(leader)).chain(group).collect()
}

/// The living processes below `root` that are in the group or session of a leader that has ended.
pub(crate) fn left_by(root: i32, leader: i32) -> Vec<Process> {
    let is_of = |process: &Process| {
        stat(process.pid).is_some_and(|stat| [stat.group, stat.session].contains(&leader))
    };
    descendants(root).into_iter().filter(is_of).collect()
}

/// The process with this pid, if it runs.
fn living(pid: i32) -> Option<Process> {
    stat(pid).filter(|stat| !stat.ended).map(|stat| Process { pid, start: stat.start })
}

/// All living processes below any of `roots`. A zombie is looked below, too: its threads may still have children.
fn below(roots: &[i32], table: &Option<Vec<(i32, i32)>>) -> Vec<Process> {
    let mut seen: BTreeSet<i32> = roots.iter().copied().collect();
    let mut open = roots.to_vec();
    let mut found = vec![];
    while let Some(parent) = open.pop() {
        let children = match table {
            None => children(parent),
            Some(table) => table.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid).collect(),
        };
        for pid in children {
            if seen.insert(pid) {
                open.push(pid);
                found.extend(living(pid));
            }
        }
    }
    found
}

/// The children of a process, of each of its threads.
fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return vec![] };
    let files = threads.flatten().map(|thread| thread.path().join("children"));
    let lists = files.filter_map(|file| fs::read_to_string(file).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Every (pid, parent) of the host, if this kernel has no `children` files.
fn table_without_children_files() -> Option<Vec<(i32, i32)>> {
    let pid = std::process::id();
    (!fs::exists(format!("/proc/{pid}/task/{pid}/children")).unwrap_or(false)).then(table)
}

fn table() -> Vec<(i32, i32)> {
    pids().filter_map(|pid| stat(pid).map(|stat| (pid, stat.parent))).collect()
}

/// Every pid of the host.
fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()))
}

/// What the kernel says of a process; none if there is no such process.
fn stat(pid: i32) -> Option<Stat> {
    // The name stands in parentheses and may hold anything, parentheses too: what counts comes after the last one.
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Stat {
        ended: matches!(*fields.first()?, "Z" | "X"),
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        start: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    /// A shell with a child, which says when it has it.
    fn family(marker: &str) -> Child {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 60 & echo ready; wait"])
            .env("MUSTER_TEST_MARK", marker)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0; 6];
        Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        child
    }

    #[test]
    fn a_tree_is_found_by_either_road_and_by_its_mark() {
        let marker = format!("tree-{}", std::process::id());
        let mut child = family(&marker);
        let pid = i32::try_from(child.id()).unwrap();
        let by_files = below(&[pid], &None);
        assert_eq!(by_files.len(), 1);
        assert_eq!(below(&[pid], &Some(table())), by_files);
        let all = marked("MUSTER_TEST_MARK", &marker);
        assert!(all.iter().any(|process| process.pid == pid) && all.contains(&by_files[0]));
        for process in all {
            process.signal(Signal::KILL).unwrap();
        }
        child.wait().unwrap();
        while by_files[0].alive() {
            std::thread::yield_now();
        }
        assert_eq!(marked("MUSTER_TEST_MARK", &marker), []);
    }

    #[test]
    fn a_pid_with_another_start_is_another_process() {
        let mut child = family("reuse");
        let pid = i32::try_from(child.id()).unwrap();
        let [sleeper] = descendants(pid)[..] else { panic!("one child") };
        let earlier = Process { start: sleeper.start - 1, ..sleeper };
        assert!(!earlier.alive());
        earlier.signal(Signal::KILL).unwrap();
        assert!(sleeper.alive());
        sleeper.signal(Signal::KILL).unwrap();
        child.wait().unwrap();
    }
}
