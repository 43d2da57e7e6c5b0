//! Processes of this host, read from `/proc`. A process is identified by its pid and its start time, since
//! the kernel reuses pids.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, pidfd_open, pidfd_send_signal, setrlimit};

use crate::process::fnv1a;

/// Maximum number of bytes read of an environment. Linux lets a program start with 6 MiB of arguments and
/// environment.
const MAX_ENVIRONMENT_BYTES: u64 = 8 * 1024 * 1024;

/// Identity of one process. A later process with the same pid has a different identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Process {
    pid: i32,
    /// Start time, in clock ticks since the boot of the host.
    start: u64,
}

/// Fields of `/proc/PID/stat`.
struct Stat {
    ended: bool,
    parent: i32,
    group: i32,
    session: i32,
    start: u64,
}

impl Process {
    /// Sends a signal to the process. Does nothing if it is gone.
    pub(crate) fn signal(self, signal: Signal) -> io::Result<()> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(()) };
        // The descriptor refers to one process only. Checking the start time after opening the descriptor
        // ensures that it refers to this process and not to a later one with the same pid.
        let sent = pidfd_open(pid, PidfdFlags::empty())
            .and_then(|descriptor| if self.alive() { pidfd_send_signal(descriptor, signal) } else { Ok(()) });
        match sent {
            Err(Errno::SRCH) => Ok(()),
            other => Ok(other?),
        }
    }

    pub(crate) const fn pid(self) -> i32 {
        self.pid
    }

    /// Returns `true` if the process is running. A zombie does not count as running.
    pub(crate) fn alive(self) -> bool {
        stat(self.pid).is_some_and(|stat| !stat.ended && stat.start == self.start)
    }
}

/// Returns all living descendants of a process.
pub(crate) fn descendants(root: i32) -> Vec<Process> {
    descendants_of_all(&[root], &parent_table_if_needed())
}

/// Marks this program and all processes that it starts afterwards. The mark is the process limit
/// `RLIMIT_LOCKS`, which Linux inherits but has not enforced since version 2.4. The mark survives `setsid`,
/// an empty environment, and the death of the parent.
pub(crate) fn mark_self(value: &str) -> io::Result<()> {
    let mark = Some(mark_limit(value));
    Ok(setrlimit(Resource::Locks, Rlimit { current: mark, maximum: mark })?)
}

/// Returns the process limit that represents the mark `value`. This limit differs from every plausible limit
/// and from the value for unlimited.
fn mark_limit(value: &str) -> u64 {
    fnv1a(value) >> 2 | 1 << 61
}

/// Returns all living processes that are marked with `value`, and all their descendants. The mark is either
/// the process limit for `value`, or the variable `name=value` in the environment of the process.
pub(crate) fn marked(name: &str, value: &str) -> Vec<Process> {
    let (variable, limit) = (format!("{name}={value}"), mark_limit(value).to_string());
    let marked: Vec<i32> =
        pids().filter(|pid| has_limit(*pid, &limit) || has_variable(*pid, &variable)).collect();
    let mut found = descendants_of_all(&marked, &parent_table_if_needed());
    found.extend(marked.into_iter().filter_map(find_living));
    found
}

fn has_variable(pid: i32, wanted: &str) -> bool {
    let mut environment = vec![];
    let file = fs::File::open(format!("/proc/{pid}/environ"));
    drop(file.and_then(|file| file.take(MAX_ENVIRONMENT_BYTES).read_to_end(&mut environment)));
    environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
}

fn has_limit(pid: i32, wanted: &str) -> bool {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
    let locks = limits.lines().find_map(|line| line.strip_prefix("Max file locks"));
    locks.and_then(|values| values.split_whitespace().next()) == Some(wanted)
}

/// Returns the living processes that belong to a leader of a process group or session: the leader itself, its
/// descendants, and the members of its group or session below `root`. These members include processes whose
/// parent has exited.
pub(crate) fn group_members(root: i32, leader: i32) -> BTreeSet<Process> {
    let group = descendants(root)
        .into_iter()
        .filter(|process| stat(process.pid).is_some_and(|stat| [stat.group, stat.session].contains(&leader)));
    descendants(leader).into_iter().chain(find_living(leader)).chain(group).collect()
}

/// Returns the living processes below `root` that belong to the group or session of a leader that has ended.
pub(crate) fn orphaned_members(root: i32, leader: i32) -> Vec<Process> {
    let is_of = |process: &Process| {
        stat(process.pid).is_some_and(|stat| [stat.group, stat.session].contains(&leader))
    };
    descendants(root).into_iter().filter(is_of).collect()
}

/// Returns the process with this pid, if it is running.
fn find_living(pid: i32) -> Option<Process> {
    stat(pid).filter(|stat| !stat.ended).map(|stat| Process { pid, start: stat.start })
}

/// Returns all living descendants of `roots`. Zombies are searched too, since their threads may still have
/// children.
fn descendants_of_all(roots: &[i32], table: &Option<Vec<(i32, i32)>>) -> Vec<Process> {
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
                found.extend(find_living(pid));
            }
        }
    }
    found
}

/// Returns the children of all threads of a process.
fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return vec![] };
    let files = threads.flatten().map(|thread| thread.path().join("children"));
    let lists = files.filter_map(|file| fs::read_to_string(file).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Returns the pid and the parent's pid of each process of the host if this kernel has no `children` files.
/// Otherwise returns `None`.
fn parent_table_if_needed() -> Option<Vec<(i32, i32)>> {
    let pid = std::process::id();
    (!fs::exists(format!("/proc/{pid}/task/{pid}/children")).unwrap_or(false)).then(parent_table)
}

fn parent_table() -> Vec<(i32, i32)> {
    pids().filter_map(|pid| stat(pid).map(|stat| (pid, stat.parent))).collect()
}

/// Returns all pids of the host.
fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()))
}

/// Reads the state of a process. `None` if there is no such process.
fn stat(pid: i32) -> Option<Stat> {
    // The name of the process is in parentheses and may contain any character, including parentheses. The
    // other fields follow the last closing parenthesis.
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

    /// Starts a shell with a child, and waits until the child exists.
    fn spawn_shell_with_child(marker: &str) -> Child {
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
    fn descendants_are_found_by_children_files_parent_table_and_mark() {
        let marker = format!("tree-{}", std::process::id());
        let mut child = spawn_shell_with_child(&marker);
        let pid = i32::try_from(child.id()).unwrap();
        let by_files = descendants_of_all(&[pid], &None);
        assert_eq!(by_files.len(), 1);
        assert_eq!(descendants_of_all(&[pid], &Some(parent_table())), by_files);
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
    fn process_with_same_pid_and_other_start_time_is_not_signalled() {
        let mut child = spawn_shell_with_child("reuse");
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
