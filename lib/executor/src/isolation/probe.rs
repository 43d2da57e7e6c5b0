//! What this host gives: found out once, by trying.

use std::fs;

use rustix::process::geteuid;
use schemas::isolation::{Isolation, Wall};

use super::landlock;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The walls that containers get.
    pub(crate) walls: Isolation,
    /// Whether their users have ids of the host of their own; else they are the rep's user.
    pub(crate) own_ids: bool,
}

/// The walls that are the kernel's alone, whoever asks for them.
pub(crate) fn kernel_walls() -> Isolation {
    let refuses = fs::exists("/proc/sys/kernel/seccomp/actions_avail").unwrap_or(false);
    let known = [(refuses, Wall::Calls), (landlock::is_there(), Wall::Landlock), (true, Wall::Disk)];
    known.into_iter().filter(|(has, _)| *has).fold(Isolation::NONE, |walls, (_, wall)| walls.with(wall))
}

/// What is tried of the others, one after the other until a container lives in it.
pub(crate) fn ladder() -> Vec<Found> {
    let with = |walls: &[Wall]| walls.iter().fold(Isolation::NONE, |all, wall| all.with(*wall));
    let shared = with(&[Wall::Files, Wall::Processes, Wall::Ipc, Wall::Hostname]);
    let own = Found { walls: shared, own_ids: false };
    let none = Found { walls: Isolation::NONE, own_ids: false };
    if geteuid().is_root() {
        let all = Found { walls: shared.with(Wall::Users), own_ids: true };
        vec![all, own, none]
    } else {
        vec![own, none]
    }
}
