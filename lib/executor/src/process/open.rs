//! Opening of a data folder: takes the lock, cleans up after a crash, and finds the containers to adopt.

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
use schemas::isolation::{Isolation, Wall};
use schemas::names::InstanceGuid;

use super::ended::{self, ENDED_BYTES, Ended};
use super::isolating::Isolating;
use super::keeper::Begin;
use super::link::Link;
use super::ports::Ports;
use super::{Isolate, Settings};
use crate::cgroup::{Cgroups, Limiter, NoCgroups, record_and_clean};
use crate::folder::{Folder, MARKER, Spec, Status};
use crate::ids::Ids;
use crate::isolation::masked;
use crate::trash::Trash;
use crate::{clock, host, image, processes};

/// Time that a dead owner may hold the lock. A child that it was starting shares the lock until it executes
/// its own program.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);
/// Delay between attempts to get the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Lock file of a data folder.
const LOCK: &str = "lock";
/// First descriptor that is not a standard stream.
const FIRST_INHERITED: i32 = 3;

/// Reason why a data folder cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another executor uses the folder.
    #[error("another program runs the containers of {}: one data folder has one owner", path.display())]
    Owned { path: PathBuf },
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
    pub(super) ended: Ended,
    pub(super) cgroups: Option<Cgroups>,
    pub(super) isolating: Isolating,
    pub(super) lock: OwnedFd,
    pub(super) found: Vec<Found>,
}

/// Container of an earlier executor.
pub(super) struct Found {
    pub(super) container: Container,
    pub(super) ports: Vec<PortMapping>,
    /// Way in which its keeper gets it.
    pub(super) begin: Begin,
}

impl Found {
    /// Returns the name of the control groups that the container keeps using. `None` if it is created again
    /// with new groups.
    fn name_of_groups(&self) -> Option<String> {
        match self.begin {
            Begin::Create(_) => None,
            Begin::Adopt { .. } => Some(self.container.instance_guid.to_string()),
        }
    }
}

/// Opens a data folder. Must be called within a tokio runtime.
pub(super) fn open(mut settings: Settings) -> Result<Opened, OpenError> {
    let unusable = |path: &Path| {
        let path = path.to_owned();
        move |source| OpenError::Unusable { path, source }
    };
    // Inherited descriptors must not reach the children. Descriptors that this program opens are closed in
    // them anyway.
    close_fds::set_fds_cloexec_threadsafe(FIRST_INHERITED, &[]);
    let named = settings.data.clone();
    for folder in ["containers", ended::FOLDER, image::UNPACKING] {
        let make = DirBuilder::new().mode(0o700).recursive(true).create(named.join(folder));
        make.map_err(unusable(&named))?;
    }
    // The shim gets this path and has a different working directory, so it must be absolute.
    settings.data = fs::canonicalize(&named).map_err(unusable(&named))?;
    let lock = lock(&settings.data)?;
    let trash = Arc::new(Trash::open(&settings.data).map_err(unusable(&settings.data))?);
    let ended = Ended::open(&settings.data, Arc::clone(&trash), clock::wall(), ENDED_BYTES);
    let ended = ended.map_err(unusable(&settings.data))?;
    let common = Cgroups::open(&settings.groups, &settings.cell_id, &settings.data);
    let limiter = match settings.isolate {
        Isolate::Never => Limiter::default(),
        Isolate::WhereItCan { .. } => {
            Limiter::open(common.as_ref().ok(), &settings.groups, &settings.cell_id, &settings.data)
        }
    };
    log_groups(&settings, &common, &limiter);
    let cgroups = common.ok();
    let bases: Vec<PathBuf> =
        cgroups.iter().map(|groups| groups.base().to_owned()).chain(limiter.bases()).collect();
    record_and_clean(&settings.data, LOCK, &bases);
    let ids = match settings.isolate {
        Isolate::WhereItCan { first_id } if geteuid().is_root() => Some(Ids::open(first_id, &settings.data)),
        Isolate::WhereItCan { .. } | Isolate::Never => None,
    };
    let isolating = Isolating::new(limiter, ids, masked(&settings.data, &settings.masked));
    let containers = settings.data.join("containers");
    let mut found = vec![];
    for entry in fs::read_dir(&containers).map_err(unusable(&containers))? {
        let path = entry.map_err(unusable(&containers))?.path();
        found.extend(adopt_or_discard(&trash, &ended, &isolating, &path).map_err(unusable(&path))?);
    }
    let known = found.iter().filter_map(Found::name_of_groups).collect();
    cgroups.iter().for_each(|cgroups| cgroups.remove_strays(&known));
    isolating.remove_strays(&known);
    let images = isolating.images(&settings.data, &trash);
    images.adopt().map_err(unusable(&settings.data))?;
    images.remove_unused();
    let ports = Ports::new(settings.ports.clone(), &settings.cell_id);
    Ok(Opened { settings, ports, trash, ended, cgroups, isolating, lock, found })
}

/// Logs the version of the containers' control groups, and how `cpu_weight` is applied.
fn log_groups(settings: &Settings, common: &Result<Cgroups, NoCgroups>, limiter: &Limiter) {
    let cell = &settings.cell_id;
    let weight = match common {
        Ok(groups) if groups.weighs() => "cpu.weight of that group",
        Ok(_) | Err(_) if limiter.walls().has(Wall::Cpu) => "cpu.shares of a control group of version 1",
        Ok(_) | Err(_) => "nice value",
    };
    match common {
        Ok(_) => tracing::info!(%cell, "each container has a control group; its cpu_weight is the {weight}"),
        Err(_) if limiter.walls() != Isolation::NONE => {
            tracing::info!(%cell, "each container has control groups of version 1; its cpu_weight is the {weight}");
        }
        Err(why) => {
            let cause = why.source().map_or_else(String::new, |cause| format!(": {cause}"));
            tracing::info!(%cell, "no control groups ({why}{cause}): the cpu_weight of a container is its {weight}");
        }
    }
}

/// Takes the lock on the folder. It is held until the descriptor is closed.
fn lock(data: &Path) -> Result<OwnedFd, OpenError> {
    let path = data.join(LOCK);
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = file.map_err(|source| OpenError::Unusable { path: path.clone(), source })?;
    let patient_until = Instant::now() + LOCK_PATIENCE;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file.into()),
            Err(Errno::WOULDBLOCK) if Instant::now() < patient_until => std::thread::sleep(LOCK_PAUSE),
            Err(Errno::WOULDBLOCK) => return Err(OpenError::Owned { path: data.to_owned() }),
            Err(error) => return Err(OpenError::Unusable { path, source: error.into() }),
        }
    }
}

/// Adopts the container of a folder, or removes a folder without a valid container. Only problems of the host
/// are errors, not anything a container did to its folder.
fn adopt_or_discard(
    trash: &Trash,
    ended: &Ended,
    isolating: &Isolating,
    path: &Path,
) -> io::Result<Option<Found>> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match adopt(trash, ended, isolating, path, &name) {
        Err(error) if !is_trouble_of_host(&error) => {
            tracing::warn!(folder = name, %error, "removes a folder that holds no whole container");
            // Nothing runs before the spec is written. If the spec was damaged later, processes may still
            // run.
            for process in processes::marked(MARKER, &name) {
                if let Err(error) = process.signal(Signal::KILL) {
                    tracing::warn!(folder = name, %error, "cannot kill a process of a container");
                }
            }
            if let Err(error) = trash.add(path) {
                tracing::warn!(folder = name, %error, "cannot remove a folder that holds no whole container");
            }
            Ok(None)
        }
        adopted => adopted,
    }
}

/// Returns `true` if an error is caused by the current state of the host, not by the file.
fn is_trouble_of_host(error: &io::Error) -> bool {
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

/// Adopts the container of a folder. `None` if it was being deleted; its control groups are then strays.
fn adopt(
    trash: &Trash,
    ended: &Ended,
    isolating: &Isolating,
    path: &Path,
    name: &str,
) -> io::Result<Option<Found>> {
    let folder = Folder::new(path.to_owned());
    if ended.has_log_of(name, &folder) {
        trash.add(path)?;
        return Ok(None);
    }
    let guid = name.parse::<InstanceGuid>().map_err(io::Error::other)?;
    let spec = folder.spec()?;
    if spec.recipe.instance_guid != guid {
        return Err(io::Error::other("is another container's"));
    }
    found(trash, &folder, spec, isolating).map(Some)
}

/// Returns a container whose spec is valid.
fn found(trash: &Trash, folder: &Folder, spec: Spec, isolating: &Isolating) -> io::Result<Found> {
    let name = spec.recipe.instance_guid;
    let link = match Link::adopt(folder) {
        Ok(link) => link,
        // Without its pipes the container cannot have a shim.
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let status = folder.status();
    // A shim writes its status before it runs anything. Without a status the shim was killed before that, or
    // was never started because the executor was killed. The container is then created again. After a reboot
    // of the host this conclusion is not possible.
    let never_began =
        link.is_none() && matches!(status, Ok(None)) && spec.boot.is_some() && spec.boot == host::boot();
    let state = match status {
        Ok(status) => state(status.as_ref(), &spec.net),
        Err(error) => {
            tracing::warn!(container = %name, %error, "cannot read the state of a container");
            ContainerState::Initializing
        }
    };
    let Spec { recipe, net, cgroup, plan, .. } = spec;
    // A container that is created again gets the current isolation.
    let isolation = match (&plan, never_began) {
        (Some(plan), false) => plan.walls,
        (None, false) => Isolation::NONE,
        (_, true) => isolating.walls(),
    };
    let container = Container {
        instance_guid: recipe.instance_guid,
        work: recipe.work.clone(),
        domain: recipe.domain.clone(),
        resources: recipe.resources,
        let_in_at: recipe.let_in_at,
        isolation,
        state,
    };
    if never_began {
        trash.add(folder.path())?;
        return Ok(Found { container, ports: vec![], begin: Begin::Create(Box::new(recipe)) });
    }
    if let Some((ids, first)) = isolating.ids().zip(plan.as_ref().and_then(|plan| plan.first_id)) {
        ids.adopt(first);
    }
    Ok(Found {
        container,
        ports: net.ports.into_vec(),
        begin: Begin::Adopt { link, cgroup, plan: plan.map(Box::new) },
    })
}

/// Converts the status in a folder to a container state.
fn state(status: Option<&Status>, net: &NetInfo) -> ContainerState {
    match status {
        None => ContainerState::Initializing,
        Some(Status::Created) => ContainerState::Created,
        Some(Status::Running) => ContainerState::Running(net.clone()),
        Some(Status::Completed(result)) => ContainerState::Completed(result.clone()),
    }
}
