//! Preparation of a container. The preparation reserves the host resources that the container needs, before
//! the cluster relies on the container.
//!
//! A prepared container has its folder, ports and control groups, and a shim that waits for the spec. No part
//! of the recipe runs. The folder contains no spec, so the next executor of the data folder removes the
//! container's folder.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use schemas::container::{PortMapping, Recipe};
use schemas::names::InstanceGuid;

use super::link::{self, WaitingShim};
use super::shared::Shared;
use super::{carrier, cgroup_error};
use crate::cgroup::{self, Limits};
use crate::folder::Folder;
use crate::shim_secrets;

/// Minimum free space of the data folder for creating a container, in bytes. This space is sufficient for the
/// files that the executor and the shim write for one container.
const MIN_FREE_BYTES: u64 = 1024 * 1024;

/// Reason why a container cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The host has too few free ports for the container. Other containers may still be created.
    #[error("{0}")]
    NoPort(String),
    /// The cell cannot create this container, and probably no other container.
    #[error("{0}")]
    Failed(#[from] io::Error),
    /// The container was discarded during its preparation.
    #[error("the preparation was cancelled")]
    Discarded,
}

/// Prepared container with its resources.
pub(super) struct Prepared {
    pub(super) ports: Vec<PortMapping>,
    pub(super) cgroup: Option<PathBuf>,
    pub(super) limits: Limits,
    pub(super) listener: Option<UnixListener>,
    /// Waiting shim, or the reason why this cell cannot run the recipe.
    pub(super) shim: io::Result<WaitingShim>,
    guid: InstanceGuid,
    folder: Folder,
}

/// Containers that are prepared or being prepared. `None` marks a preparation in progress.
#[derive(Debug, Default)]
pub(super) struct Preparations(Mutex<BTreeMap<InstanceGuid, Option<Prepared>>>);

impl Preparations {
    /// Records that a container is being prepared.
    pub(super) fn begin(&self, guid: InstanceGuid) {
        self.0.lock().insert(guid, None);
    }

    /// Returns `true` if a container is being prepared and was not discarded.
    pub(super) fn is_wanted(&self, guid: InstanceGuid) -> bool {
        self.0.lock().contains_key(&guid)
    }

    /// Stores a prepared container until it is run. If the container was discarded during its preparation,
    /// the function returns the container to the caller.
    pub(super) fn finish(&self, prepared: Prepared) -> Option<Prepared> {
        match self.0.lock().get_mut(&prepared.guid) {
            Some(kept) => {
                *kept = Some(prepared);
                None
            }
            None => Some(prepared),
        }
    }

    /// Removes and returns a prepared container, so that the caller can run or discard it. `None` if there is
    /// no such container.
    pub(super) fn take(&self, guid: InstanceGuid) -> Option<Prepared> {
        self.0.lock().remove(&guid)?
    }

    /// Removes and returns every prepared container.
    pub(super) fn take_all(&self) -> Vec<Prepared> {
        std::mem::take(&mut *self.0.lock()).into_values().flatten().collect()
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("guid", &self.guid).finish_non_exhaustive()
    }
}

impl Prepared {
    /// Releases all resources of the container.
    pub(super) fn release(self, shared: &Shared) {
        let Self { ports, cgroup, limits, shim, guid, folder, listener: _ } = self;
        if let Ok(shim) = shim
            && let Err(error) = shim.end()
        {
            tracing::warn!(container = %guid, %error, "cannot kill the shim of a discarded container");
        }
        remove_groups(shared, guid, cgroup.as_deref(), &limits);
        if let Err(error) = shared.trash.remove(folder.path()) {
            tracing::warn!(container = %guid, %error, "cannot remove the folder of a discarded container");
        }
        shared.ports().release(&ports);
    }
}

/// Prepares a container. Blocks.
///
/// # Errors
/// `PrepareError` if the cell cannot create the container. In that case, all reserved resources are released.
pub(super) fn prepare(shared: &Shared, recipe: &Recipe) -> Result<Prepared, PrepareError> {
    let guid = recipe.instance_guid;
    let name = guid.to_string();
    let cgroup = shared.cgroups.as_ref().map(|cgroups| cgroups.group_path(&name));
    let mut prepared = Prepared {
        ports: vec![],
        limits: shared.isolating.limits(&name, cgroup.as_deref()),
        cgroup,
        listener: None,
        shim: Err(io::Error::other("the shim was not started")),
        guid,
        folder: shared.folder(guid),
    };
    match acquire_resources(shared, recipe, &mut prepared) {
        Ok(()) => Ok(prepared),
        Err(error) => {
            prepared.release(shared);
            Err(error)
        }
    }
}

fn acquire_resources(shared: &Shared, recipe: &Recipe, prepared: &mut Prepared) -> Result<(), PrepareError> {
    let settings = &shared.settings;
    check_free_space(&settings.data)?;
    let ports = shared.ports().allocate(&recipe.ports);
    prepared.ports = ports.map_err(|error| PrepareError::NoPort(error.to_string()))?;
    prepared.folder.make()?;
    // The socket must exist before the shim starts, since the shim may use it immediately.
    prepared.listener = carrier::listen(&prepared.folder, recipe)?;
    if let (Some(cgroups), Some(group)) = (&shared.cgroups, &prepared.cgroup) {
        cgroups.create_group(group).map_err(cgroup_error)?;
        if cgroups.has_weight()
            && let Err(error) = cgroup::set_weight(group, recipe.cpu_weight)
        {
            tracing::warn!(container = %prepared.guid, %error, "cannot set the CPU weight of a container");
        }
    }
    shared.isolating.create_limits(recipe, prepared.cgroup.as_deref())?;
    prepared.shim = match shim_secrets::shim_variables(recipe, &settings.keys) {
        Ok(opened) => Ok(link::start(&settings.shim, &prepared.folder, &prepared.guid.to_string(), opened)?),
        // This cell cannot decrypt a secret of the recipe. The error is reported when the container is run.
        Err(error) => Err(error),
    };
    Ok(())
}

/// Checks that the data folder exists and has enough free space for the files of a container.
pub(super) fn check_free_space(data: &Path) -> io::Result<()> {
    let there = rustix::fs::statvfs(data)?;
    let free = there.f_bavail.saturating_mul(there.f_frsize);
    // Some file systems have no fixed number of inodes, and report 0 of 0.
    if free >= MIN_FREE_BYTES && (there.f_files == 0 || there.f_favail > 0) {
        return Ok(());
    }
    Err(rustix::io::Errno::NOSPC.into())
}

/// Removes the control groups of a container.
pub(super) fn remove_groups(shared: &Shared, guid: InstanceGuid, cgroup: Option<&Path>, limits: &Limits) {
    if let Some(cgroup) = cgroup
        && let Err(error) = cgroup::remove(cgroup)
    {
        tracing::warn!(container = %guid, %error, "cannot remove the control group of a container");
    }
    if let Err(error) = limits.remove() {
        tracing::warn!(container = %guid, %error, "cannot remove the limiting control groups of a container");
    }
    if let Some(cgroups) = &shared.cgroups {
        cgroups.remove_base();
    }
}
