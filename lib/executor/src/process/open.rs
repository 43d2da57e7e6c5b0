//! Opening of a data folder. Opening takes the lock, cleans up after a crash, and finds the containers to
//! adopt.

use std::error::Error;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Signal, geteuid};

use schemas::container::{Container, ContainerState, NetInfo, PortMapping};
use schemas::isolation::{Isolation, IsolationLayer};
use schemas::names::InstanceGuid;

use super::ended::{self, EndedLogs, MAX_ENDED_BYTES};
use super::isolating::ContainerIsolation;
use super::keeper::Origin;
use super::link::ShimLink;
use super::ports::Ports;
use super::{IsolationPolicy, Settings};
use crate::cgroup::{Cgroups, CgroupsUnavailable, Limiter, record_and_clean};
use crate::folder::{Folder, MARKER, Spec, Status};
use crate::ids::Ids;
use crate::isolation::masked_paths;
use crate::trash::Trash;
use crate::{clock, host, image, processes};

/// Maximum time for which the lock may still be held after its owner died. A child that the owner was
/// starting shares the lock until the child executes its own program.
const LOCK_TIMEOUT: Duration = Duration::from_millis(500);
/// Delay between attempts to get the lock.
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(5);

/// Lock file of a data folder.
const LOCK_FILE: &str = "lock";
/// First descriptor that is not a standard stream.
const FIRST_NON_STDIO_FD: i32 = 3;

/// Reason why a data folder cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another executor uses the folder.
    #[error("the containers of {} belong to another running process: stop it, or use another data folder", path.display())]
    InUse { path: PathBuf },
    /// The folder cannot be read or written.
    #[error("cannot open the containers of {}", path.display())]
    Unusable {
        /// The data folder, or the failing path in it.
        path: PathBuf,
        source: io::Error,
    },
}

/// Opened data folder.
pub(super) struct Opened {
    pub(super) settings: Settings,
    pub(super) ports: Ports,
    pub(super) trash: Arc<Trash>,
    pub(super) ended: EndedLogs,
    pub(super) cgroups: Option<Cgroups>,
    pub(super) isolating: ContainerIsolation,
    pub(super) lock: OwnedFd,
    pub(super) found: Vec<FoundContainer>,
}

/// Container of an earlier executor.
pub(super) struct FoundContainer {
    pub(super) container: Container,
    pub(super) ports: Vec<PortMapping>,
    /// First step of the container's keeper: create the container again, or adopt it.
    pub(super) begin: Origin,
}

impl FoundContainer {
    /// Returns the name of the control groups that the container continues to use. `None` if the container is
    /// created again with new groups.
    fn group_name(&self) -> Option<String> {
        match self.begin {
            Origin::Create(_) => None,
            Origin::Adopt { .. } => Some(self.container.instance_guid.to_string()),
        }
    }
}

/// Opens a data folder. Must be called within a tokio runtime.
pub(super) fn open(mut settings: Settings) -> Result<Opened, OpenError> {
    let unusable = |path: &Path| {
        let path = path.to_owned();
        move |source| OpenError::Unusable { path, source }
    };
    // Descriptors that this program inherited must not reach its children. Descriptors that this program
    // opens itself are closed in the children anyway.
    close_fds::set_fds_cloexec_threadsafe(FIRST_NON_STDIO_FD, &[]);
    let named = settings.data.clone();
    for folder in ["containers", ended::ENDED_DIR, image::UNPACKING_DIR] {
        let make = DirBuilder::new().mode(0o700).recursive(true).create(named.join(folder));
        make.map_err(unusable(&named))?;
    }
    // The shim receives this path and has a different working directory, so the path must be absolute.
    settings.data = fs::canonicalize(&named).map_err(unusable(&named))?;
    let lock = lock(&settings.data)?;
    let trash = Arc::new(Trash::open(&settings.data).map_err(unusable(&settings.data))?);
    let ended = EndedLogs::open(&settings.data, Arc::clone(&trash), clock::system_time(), MAX_ENDED_BYTES);
    let ended = ended.map_err(unusable(&settings.data))?;
    let common = Cgroups::open(&settings.groups, &settings.cell_id, &settings.data);
    let limiter = match settings.isolate {
        IsolationPolicy::Never => Limiter::default(),
        IsolationPolicy::BestEffort { .. } => {
            Limiter::open(common.as_ref().ok(), &settings.groups, &settings.cell_id, &settings.data)
        }
    };
    log_groups(&settings, &common, &limiter);
    let cgroups = common.ok();
    let bases: Vec<PathBuf> =
        cgroups.iter().map(|groups| groups.base_path().to_owned()).chain(limiter.bases()).collect();
    record_and_clean(&settings.data, LOCK_FILE, &bases);
    let ids = match settings.isolate {
        IsolationPolicy::BestEffort { first_id } if geteuid().is_root() => {
            Some(Ids::open(first_id, &settings.data))
        }
        IsolationPolicy::BestEffort { .. } | IsolationPolicy::Never => None,
    };
    let isolating = ContainerIsolation::new(limiter, ids, masked_paths(&settings.data, &settings.masked));
    let containers = settings.data.join("containers");
    let mut found = vec![];
    for entry in fs::read_dir(&containers).map_err(unusable(&containers))? {
        let path = entry.map_err(unusable(&containers))?.path();
        found.extend(adopt_or_discard(&trash, &ended, &isolating, &path).map_err(unusable(&path))?);
    }
    let known = found.iter().filter_map(FoundContainer::group_name).collect();
    cgroups.iter().for_each(|cgroups| cgroups.remove_strays(&known));
    isolating.remove_strays(&known);
    let images = isolating.images(&settings.data, &trash);
    images.adopt().map_err(unusable(&settings.data))?;
    images.remove_unused();
    let ports = Ports::new(settings.ports.clone(), &settings.cell_id);
    Ok(Opened { settings, ports, trash, ended, cgroups, isolating, lock, found })
}

/// Logs which version of control groups the containers use, and how `cpu_weight` is applied.
fn log_groups(settings: &Settings, common: &Result<Cgroups, CgroupsUnavailable>, limiter: &Limiter) {
    let cell = &settings.cell_id;
    let weight = match common {
        Ok(groups) if groups.has_weight() => "cpu.weight of that group",
        Ok(_) | Err(_) if limiter.isolation().has(IsolationLayer::Cpu) => {
            "cpu.shares of a control group of version 1"
        }
        Ok(_) | Err(_) => "nice value",
    };
    match common {
        Ok(_) => tracing::info!(%cell, "each container has a control group; cpu_weight sets the {weight}"),
        Err(_) if limiter.isolation() != Isolation::NONE => {
            tracing::info!(%cell, "each container has control groups of version 1; cpu_weight sets the {weight}");
        }
        Err(why) => {
            let cause = why.source().map_or_else(String::new, |cause| format!(": {cause}"));
            tracing::info!(%cell, "no control groups ({why}{cause}); cpu_weight sets the {weight}");
        }
    }
}

/// Takes the lock on the folder. The lock is held until the descriptor is closed.
fn lock(data: &Path) -> Result<OwnedFd, OpenError> {
    let path = data.join(LOCK_FILE);
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.map_err(|source| OpenError::Unusable { path: path.clone(), source })?;
    let patient_until = Instant::now() + LOCK_TIMEOUT;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file.into()),
            Err(Errno::WOULDBLOCK) if Instant::now() < patient_until => std::thread::sleep(LOCK_RETRY_DELAY),
            Err(Errno::WOULDBLOCK) => return Err(OpenError::InUse { path: data.to_owned() }),
            Err(error) => return Err(OpenError::Unusable { path, source: error.into() }),
        }
    }
}

/// Adopts the container of a folder, or removes the folder if it contains no valid container. Only problems
/// of the host are errors. Nothing that a container did to its folder causes an error.
fn adopt_or_discard(
    trash: &Trash,
    ended: &EndedLogs,
    isolating: &ContainerIsolation,
    path: &Path,
) -> io::Result<Option<FoundContainer>> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match adopt(trash, ended, isolating, path, &name) {
        Err(error) if !is_host_error(&error) => {
            tracing::warn!(folder = name, %error, "removing a folder without a complete container");
            // A container runs nothing before its spec is written. If the spec was damaged afterwards,
            // processes of the container may still run.
            for process in processes::marked(MARKER, &name) {
                if let Err(error) = process.signal(Signal::KILL) {
                    tracing::warn!(folder = name, %error, "cannot kill a process of a container");
                }
            }
            if let Err(error) = trash.add(path) {
                tracing::warn!(folder = name, %error, "cannot remove a folder without a complete container");
            }
            Ok(None)
        }
        adopted => adopted,
    }
}

/// Returns `true` if an error is caused by the current state of the host and not by the file.
fn is_host_error(error: &io::Error) -> bool {
    let of_host = [
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOMEM,
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::IO,
        Errno::ROFS,
        Errno::INTR,
    ];
    of_host.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Adopts the container of a folder. `None` if the container was being deleted. The control groups of such a
/// container are then removed as strays.
fn adopt(
    trash: &Trash,
    ended: &EndedLogs,
    isolating: &ContainerIsolation,
    path: &Path,
    name: &str,
) -> io::Result<Option<FoundContainer>> {
    let folder = Folder::new(path.to_owned());
    if ended.has_log_of(name, &folder) {
        trash.add(path)?;
        return Ok(None);
    }
    let guid = name.parse::<InstanceGuid>().map_err(io::Error::other)?;
    let spec = folder.spec()?;
    if spec.recipe.instance_guid != guid {
        return Err(io::Error::other("the spec belongs to another container"));
    }
    adopt_valid(trash, &folder, spec, isolating).map(Some)
}

/// Returns a container whose spec is valid.
fn adopt_valid(
    trash: &Trash,
    folder: &Folder,
    spec: Spec,
    isolating: &ContainerIsolation,
) -> io::Result<FoundContainer> {
    let name = spec.recipe.instance_guid;
    let link = match ShimLink::adopt(folder) {
        Ok(link) => link,
        // Without its pipes the container cannot have a shim.
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let status = folder.status();
    // A shim writes its status before it runs anything. If there is no status, either the shim was killed
    // before the write, or the executor was killed before it started the shim. The container is then created
    // again. After a reboot of the host, a missing status does not prove that nothing ran.
    let never_began =
        link.is_none() && matches!(status, Ok(None)) && spec.boot.is_some() && spec.boot == host::boot_id();
    let state = match status {
        Ok(status) => container_state(status.as_ref(), &spec.net),
        Err(error) => {
            tracing::warn!(container = %name, %error, "cannot read the state of a container");
            ContainerState::Initializing
        }
    };
    let Spec { recipe, net, cgroup, plan, .. } = spec;
    // A container that is created again gets the isolation that is available now.
    let isolation = match (&plan, never_began) {
        (Some(plan), false) => plan.layers,
        (None, false) => Isolation::NONE,
        (_, true) => isolating.layers(),
    };
    let container = Container {
        instance_guid: recipe.instance_guid,
        work: recipe.work.clone(),
        domain: recipe.domain.clone(),
        resources: recipe.resources,
        admitted_at: recipe.admitted_at,
        isolation,
        state,
    };
    if never_began {
        trash.add(folder.path())?;
        return Ok(FoundContainer { container, ports: vec![], begin: Origin::Create(Box::new(recipe)) });
    }
    if let Some((ids, first)) = isolating.ids().zip(plan.as_ref().and_then(|plan| plan.first_id)) {
        ids.adopt(first);
    }
    Ok(FoundContainer {
        container,
        ports: net.ports.into_vec(),
        begin: Origin::Adopt { link, cgroup, plan: plan.map(Box::new) },
    })
}

/// Converts the status in a folder to a container state.
fn container_state(status: Option<&Status>, net: &NetInfo) -> ContainerState {
    match status {
        None => ContainerState::Initializing,
        Some(Status::Created) => ContainerState::Created,
        Some(Status::Running) => ContainerState::Running(net.clone()),
        Some(Status::Completed(result)) => ContainerState::Completed(result.clone()),
    }
}
