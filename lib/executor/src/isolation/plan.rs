//! Isolation plan of one container.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use schemas::isolation::{Isolation, Wall};

use crate::cgroup::Limits;

/// Root file system of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Tree {
    /// The folders of the host that programs need.
    Host,
    /// The files of this folder.
    Folder {
        path: PathBuf,
        /// User of programs that name none. Empty for root.
        user: String,
        /// Environment of its programs, as `NAME=value`.
        environment: Vec<String>,
    },
}

impl Tree {
    /// Returns the environment of its programs, as `NAME=value`.
    pub(crate) fn environment(&self) -> &[String] {
        match self {
            Self::Host => &[],
            Self::Folder { environment, .. } => environment,
        }
    }
}

/// Folders of the host that contain keys and are hidden from every container.
const MASKED: [&str; 3] = ["/etc/muster", "/var/lib/muster", "/run/muster"];

/// Returns the paths that are hidden from the containers of a data folder: those that every cell hides,
/// `data`, and `others`. Targets of symbolic links are included.
pub(crate) fn masked(data: &Path, others: &[PathBuf]) -> Vec<PathBuf> {
    let named = MASKED.into_iter().map(Path::new).chain([data]).chain(others.iter().map(PathBuf::as_path));
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
    /// Isolation layers of the container. It fails if one of them cannot be set up.
    pub(crate) walls: Isolation,
    /// First id of its users on the host. `None` if all of them are the rep's own user.
    pub(crate) first_id: Option<u32>,
    /// `true` if the range of ids belongs to this container alone, `false` if it belongs to the image that it
    /// runs.
    pub(crate) own_ids: bool,
    pub(crate) tree: Tree,
    /// `true` if it has a network namespace with the loopback device only.
    pub(crate) own_network: bool,
    /// Control groups of version 1 that limit it, and its OOM counter.
    pub(crate) limits: Limits,
    /// Files and folders of the host that are hidden from it.
    pub(crate) masked: Vec<PathBuf>,
    /// Programs of the host that it may need in addition to those in the standard folders.
    pub(crate) programs: Vec<PathBuf>,
}

impl Plan {
    /// Returns `true` if the container gets this isolation layer.
    pub(crate) const fn has(&self, wall: Wall) -> bool {
        self.walls.has(wall)
    }

    /// Returns the user of programs that name none.
    pub(crate) fn user(&self) -> &str {
        match &self.tree {
            Tree::Host => super::OWNER,
            Tree::Folder { user, .. } if user.is_empty() => "root",
            Tree::Folder { user, .. } => user,
        }
    }
}
