//! What is to be done to keep one container apart.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use schemas::isolation::{Isolation, Wall};

use crate::cgroup::Limits;

/// The file system that a container gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Tree {
    /// What programs need of the host's.
    Host,
    /// This folder's.
    Folder {
        /// The folder.
        path: PathBuf,
        /// Who runs programs that name nobody; empty: root.
        user: String,
        /// Environment of its programs, as `NAME=value`.
        environment: Vec<String>,
    },
}

impl Tree {
    /// What it says of the environment of programs, as `NAME=value`.
    pub(crate) fn environment(&self) -> &[String] {
        match self {
            Self::Host => &[],
            Self::Folder { environment, .. } => environment,
        }
    }
}

/// Folders of the host that hold keys, which no container sees.
const MASKED: [&str; 3] = ["/etc/muster", "/var/lib/muster", "/run/muster"];

/// Returns everything that the containers of a data folder don't see: what every cell hides, and these paths. What a path leads
/// to is hidden, too.
pub(crate) fn masked(data: &Path, others: &[PathBuf]) -> Vec<PathBuf> {
    let named = MASKED.into_iter().map(Path::new).chain([data]).chain(others.iter().map(PathBuf::as_path));
    let mut all: Vec<PathBuf> = named
        .flat_map(|path| std::path::absolute(path).into_iter().chain(std::fs::canonicalize(path)))
        .collect();
    all.sort();
    all.dedup();
    all
}

/// How one container is kept apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The walls that it gets. One that can't be had fails the container.
    pub(crate) walls: Isolation,
    /// The first id that its users have on the host; none: all of them are the rep's own user.
    pub(crate) first_id: Option<u32>,
    /// Whether that range belongs to this container alone, and not to the image that it runs.
    pub(crate) own_ids: bool,
    /// Its file system.
    pub(crate) tree: Tree,
    /// Whether it has a network of its own, which leads nowhere.
    pub(crate) own_network: bool,
    /// The groups that limit it.
    pub(crate) limits: Limits,
    /// Files and folders of the host that it doesn't see.
    pub(crate) masked: Vec<PathBuf>,
    /// Programs of the host that it may need beside those that every container sees.
    pub(crate) programs: Vec<PathBuf>,
}

impl Plan {
    /// Whether it gets this wall.
    pub(crate) const fn has(&self, wall: Wall) -> bool {
        self.walls.has(wall)
    }

    /// Who runs programs that name nobody.
    pub(crate) fn user(&self) -> &str {
        match &self.tree {
            Tree::Host => super::OWNER,
            Tree::Folder { user, .. } if user.is_empty() => "root",
            Tree::Folder { user, .. } => user,
        }
    }
}
