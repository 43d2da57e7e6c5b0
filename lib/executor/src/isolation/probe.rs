//! Isolation layers that this host supports, detected once by trial.

use std::fs;

use rustix::process::geteuid;
use schemas::isolation::{Isolation, Wall};

use super::landlock;

/// Isolation that containers of this host can get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Isolation layers of the containers.
    pub(crate) walls: Isolation,
    /// `true` if their users have host ids of their own, `false` if they are the rep's user.
    pub(crate) own_ids: bool,
}

/// Returns the isolation layers that depend on the kernel alone, not on the rights of this program.
pub(crate) fn kernel_walls() -> Isolation {
    let refuses = fs::exists("/proc/sys/kernel/seccomp/actions_avail").unwrap_or(false);
    let known = [(refuses, Wall::Calls), (landlock::is_there(), Wall::Landlock), (true, Wall::Disk)];
    known.into_iter().filter(|(has, _)| *has).fold(Isolation::NONE, |walls, (_, wall)| walls.with(wall))
}

/// Returns the combinations of the other layers to try, strongest first, until a container starts with one.
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
