//! Isolation plan of one container.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use schemas::isolation::{Isolation, IsolationLayer};

use crate::cgroup::Limits;

/// Root file system of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RootFs {
    /// The folders of the host that programs need.
    Host,
    /// The files of this folder.
    Folder {
        path: PathBuf,
        /// User that runs programs without a user in the definition. Empty for root.
        user: String,
        /// Environment of the programs of the image, as `NAME=value`.
        environment: Vec<String>,
    },
}

impl RootFs {
    /// Returns the environment of the image's programs, as `NAME=value`.
    pub(crate) fn environment(&self) -> &[String] {
        match self {
            Self::Host => &[],
            Self::Folder { environment, .. } => environment,
        }
    }
}

/// Folders of the host that contain keys and are hidden from every container.
const MASKED_PATHS: [&str; 3] = ["/etc/muster", "/var/lib/muster", "/run/muster"];

/// Returns the paths that are hidden from the containers of a data folder: the paths that every cell hides,
/// `data`, and `others`. If a path is a symbolic link, its target is also hidden.
pub(crate) fn masked_paths(data: &Path, others: &[PathBuf]) -> Vec<PathBuf> {
    let named =
        MASKED_PATHS.into_iter().map(Path::new).chain([data]).chain(others.iter().map(PathBuf::as_path));
    let mut all: Vec<PathBuf> = named
        .flat_map(|path| std::path::absolute(path).into_iter().chain(std::fs::canonicalize(path)))
        .collect();
    all.sort();
    all.dedup();
    all
}

/// Isolation of one container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Isolation layers of the container. The container fails if a layer cannot be set up.
    pub(crate) layers: Isolation,
    /// First host id of the container's users. `None` if the rep's own user runs all programs.
    pub(crate) first_id: Option<u32>,
    /// `true` if the range of host ids belongs to this container alone. `false` if the range belongs to the
    /// container's image.
    pub(crate) own_ids: bool,
    pub(crate) root_fs: RootFs,
    /// `true` if the container has a network namespace that contains only the loopback device.
    pub(crate) own_network: bool,
    /// Control groups of version 1 that limit the container, and the file with the group's number of OOM
    /// kills.
    pub(crate) limits: Limits,
    /// Files and folders of the host that are hidden from the container.
    pub(crate) masked: Vec<PathBuf>,
    /// Programs of the host that the container may need, in addition to the programs in the standard folders.
    pub(crate) programs: Vec<PathBuf>,
}

impl Plan {
    /// Returns `true` if the container gets this isolation layer.
    pub(crate) const fn has(&self, layer: IsolationLayer) -> bool {
        self.layers.has(layer)
    }

    /// Returns the user that runs programs without a user in the definition.
    pub(crate) fn default_user(&self) -> &str {
        match &self.root_fs {
            RootFs::Host => super::OWNER,
            RootFs::Folder { user, .. } if user.is_empty() => "root",
            RootFs::Folder { user, .. } => user,
        }
    }
}
