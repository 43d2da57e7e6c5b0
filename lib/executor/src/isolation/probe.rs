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
    /// The first id of the host that their users have; none: they are the rep's own user.
    pub(crate) first_id: Option<u32>,
}

/// The walls that are the kernel's alone, whoever asks for them.
pub(crate) fn kernel_walls() -> Isolation {
    let refuses = fs::exists("/proc/sys/kernel/seccomp/actions_avail").unwrap_or(false);
    let known = [(refuses, Wall::Calls), (landlock::is_there(), Wall::Landlock), (true, Wall::Disk)];
    known.into_iter().filter(|(has, _)| *has).fold(Isolation::NONE, |walls, (_, wall)| walls.with(wall))
}

/// What is tried of the others, one after the other until a container lives in it.
pub(crate) fn ladder(first_id: u32) -> Vec<Found> {
    let with = |walls: &[Wall]| walls.iter().fold(Isolation::NONE, |all, wall| all.with(*wall));
    let shared = with(&[Wall::Files, Wall::Processes, Wall::Ipc, Wall::Hostname]);
    let own = Found { walls: shared, first_id: None };
    let none = Found { walls: Isolation::NONE, first_id: None };
    if geteuid().is_root() {
        let all = Found { walls: shared.with(Wall::Users), first_id: Some(first_id) };
        vec![all, own, none]
    } else {
        vec![own, none]
    }
}
