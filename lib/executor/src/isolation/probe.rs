//! Isolation layers that this host supports. They are detected once by trial.

use std::fs;

use rustix::process::geteuid;
use schemas::isolation::{Isolation, IsolationLayer};

use super::landlock;

/// Isolation that is available to containers of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostIsolation {
    /// Isolation layers of the containers.
    pub(crate) layers: Isolation,
    /// `true` if the containers' users have separate host ids. `false` if the containers run as the rep's
    /// user.
    pub(crate) own_ids: bool,
}

/// Returns the isolation layers that depend only on the kernel, and not on the rights of this program.
pub(crate) fn kernel_layers() -> Isolation {
    let refuses = fs::exists("/proc/sys/kernel/seccomp/actions_avail").unwrap_or(false);
    let known = [
        (refuses, IsolationLayer::Syscalls),
        (landlock::is_supported(), IsolationLayer::Landlock),
        (true, IsolationLayer::Disk),
    ];
    known.into_iter().filter(|(has, _)| *has).fold(Isolation::NONE, |layers, (_, layer)| layers.with(layer))
}

/// Returns combinations of the isolation layers that do not depend only on the kernel. The strongest
/// combination comes first. The caller tries the combinations in this order until a container starts.
pub(crate) fn candidates() -> Vec<HostIsolation> {
    let with = |layers: &[IsolationLayer]| layers.iter().fold(Isolation::NONE, |all, layer| all.with(*layer));
    let shared = with(&[
        IsolationLayer::Files,
        IsolationLayer::Processes,
        IsolationLayer::Ipc,
        IsolationLayer::Hostname,
    ]);
    let own = HostIsolation { layers: shared, own_ids: false };
    let none = HostIsolation { layers: Isolation::NONE, own_ids: false };
    if geteuid().is_root() {
        let all = HostIsolation { layers: shared.with(IsolationLayer::Users), own_ids: true };
        vec![all, own, none]
    } else {
        vec![own, none]
    }
}
