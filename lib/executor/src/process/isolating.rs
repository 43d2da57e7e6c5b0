//! Isolation of new containers. The executor detects the available layers by trial when it opens.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock};

use schemas::container::Recipe;
use schemas::definition::{Network, Sandbox};
use schemas::isolation::Isolation;
use schemas::names::Domain;

use super::{Executor, Isolate, Settings};
use crate::cgroup::{Limiter, Limits};
use crate::ids::Ids;
use crate::image::Images;
use crate::isolation::{Found, Plan, Tree, kernel_walls, ladder};
use crate::trash::Trash;

/// Error if a container requires a file system or network of its own on a cell without isolation.
const NOT_ISOLATED: &str =
    "this cell isolates no containers, so none can have a root_fs or network of its own";

/// Isolation that new containers get.
#[derive(Debug, Default)]
pub(super) struct Isolating {
    limiter: Limiter,
    /// `None` if containers are not isolated.
    found: RwLock<Option<Found>>,
    /// Allocator for the ids of their users. `None` if this program may not assign ids.
    ids: Option<Ids>,
    /// Paths of the host that are hidden from them.
    masked: Vec<PathBuf>,
    /// Held while an image is unpacked.
    unpacking: Mutex<()>,
}

impl Isolating {
    pub(super) fn new(limiter: Limiter, ids: Option<Ids>, masked: Vec<PathBuf>) -> Self {
        Self { limiter, ids, masked, ..Self::default() }
    }

    /// Returns the allocator for the ids of the containers' users. `None` if this program may not assign ids.
    pub(super) const fn ids(&self) -> Option<&Ids> {
        self.ids.as_ref()
    }

    /// Returns the unpacked images of the data folder.
    pub(super) fn images<'a>(&'a self, data: &'a Path, trash: &'a Trash) -> Images<'a> {
        Images { data, trash, ids: self.ids() }
    }

    fn found(&self) -> Option<Found> {
        *self.found.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, found: Option<Found>) {
        *self.found.write().unwrap_or_else(PoisonError::into_inner) = found;
    }

    /// Returns the isolation layers of a new container.
    pub(super) fn walls(&self) -> Isolation {
        self.found().map_or(Isolation::NONE, |found| found.walls)
    }

    /// Removes the limiting groups of all but the `known` containers.
    pub(super) fn remove_strays(&self, known: &BTreeSet<String>) {
        self.limiter.remove_strays(known);
    }

    /// Returns the isolation plan of a container. `None` if it is not isolated.
    ///
    /// # Errors
    /// The file system or network that the recipe requires is not available.
    pub(super) fn plan(
        &self,
        settings: &Settings,
        trash: &Trash,
        recipe: &Recipe,
        group: Option<&Path>,
    ) -> io::Result<Option<Plan>> {
        let sandbox = recipe.sandbox.as_deref().cloned().unwrap_or_default();
        let Some(found) = self.found() else {
            return if sandbox.root_fs.is_empty() && sandbox.network == Network::Host {
                Ok(None)
            } else {
                Err(io::Error::other(NOT_ISOLATED))
            };
        };
        let (tree, of_image) = self.tree(settings, trash, found, &sandbox.root_fs, &recipe.domain)?;
        let first_id = match (of_image, self.ids().filter(|_| found.own_ids)) {
            (Some(first), _) => Some(first),
            (None, ids) => ids.map(Ids::take).transpose()?,
        };
        Ok(Some(Plan {
            walls: found.walls,
            first_id,
            own_ids: first_id.is_some() && of_image.is_none(),
            tree,
            own_network: sandbox.network == Network::None,
            limits: self.limiter.of(&recipe.instance_guid.to_string(), group),
            masked: self.masked.clone(),
            programs: settings.shim.first().map(PathBuf::from).into_iter().collect(),
        }))
    }

    /// Releases the ids of a container's users, unless they belong to an image.
    pub(super) fn release(&self, plan: Option<&Plan>) {
        let own = plan.filter(|plan| plan.own_ids).and_then(|plan| plan.first_id);
        self.ids().zip(own).into_iter().for_each(|(ids, first)| ids.release(first));
    }

    /// Returns the file system for a recipe, and the first id of its users if the file system determines it.
    fn tree(
        &self,
        settings: &Settings,
        trash: &Trash,
        found: Found,
        root_fs: &str,
        domain: &Domain,
    ) -> io::Result<(Tree, Option<u32>)> {
        if root_fs.is_empty() || root_fs.starts_with(Sandbox::PRELOADED) {
            return match settings.root_fs.as_str() {
                "" => Ok((Tree::Host, None)),
                own => self.unpacked(settings, trash, found, &Source::of(own), domain),
            };
        }
        let source = Source::of(root_fs);
        let real = fs::canonicalize(&source.folder)
            .map_err(|error| io::Error::other(format!("root_fs {root_fs}: {error}")))?;
        let allowed = settings.images.iter().filter_map(|allowed| fs::canonicalize(allowed).ok());
        if !allowed.into_iter().any(|allowed| real.starts_with(allowed)) {
            return Err(io::Error::other(format!(
                "root_fs {root_fs} is in none of the folders that this cell takes file systems from"
            )));
        }
        self.unpacked(settings, trash, found, &Source { folder: real, ..source }, domain)
    }

    fn unpacked(
        &self,
        settings: &Settings,
        trash: &Trash,
        found: Found,
        source: &Source,
        domain: &Domain,
    ) -> io::Result<(Tree, Option<u32>)> {
        if !source.is_image {
            let (path, user, environment) = (source.folder.clone(), String::new(), vec![]);
            return Ok((Tree::Folder { path, user, environment }, None));
        }
        // Images are unpacked one at a time, since several containers often start with the same image.
        let _unpacking = self.unpacking.lock().unwrap_or_else(PoisonError::into_inner);
        let images = Images { data: &settings.data, trash, ids: self.ids().filter(|_| found.own_ids) };
        let image = images.of(&source.folder, source.tag.as_deref(), domain)?;
        let tree = Tree::Folder { path: image.tree, user: image.user, environment: image.environment };
        Ok((tree, image.first_id))
    }

    /// Returns the groups that limit a container. They need not exist. Empty without isolation.
    pub(super) fn limits(&self, name: &str, group: Option<&Path>) -> Limits {
        self.found().map(|_| self.limiter.of(name, group)).unwrap_or_default()
    }

    /// Creates the groups that limit a container. Does nothing without isolation.
    pub(super) fn limit(&self, recipe: &Recipe, group: Option<&Path>) -> io::Result<()> {
        let Some(_) = self.found() else { return Ok(()) };
        let name = recipe.instance_guid.to_string();
        self.limiter.make(&name, group, recipe.resources.memory_mb, recipe.cpu_weight)
    }
}

/// Origin of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Source {
    folder: PathBuf,
    is_image: bool,
    tag: Option<String>,
}

impl Source {
    /// Parses `oci:FOLDER`, `oci:FOLDER:TAG`, or the path of a folder.
    fn of(text: &str) -> Self {
        let Some(rest) = text.strip_prefix(Sandbox::OCI) else {
            return Self { folder: text.into(), is_image: false, tag: None };
        };
        match rest.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')) {
            Some((folder, tag)) => Self { folder: folder.into(), is_image: true, tag: Some(tag.to_owned()) },
            None => Self { folder: rest.into(), is_image: true, tag: None },
        }
    }
}

impl Executor {
    /// Tries the isolation layers of this host, strongest first, and logs the result.
    pub(super) async fn try_isolation(&self) {
        if self.shared.settings.isolate == Isolate::Never {
            return;
        }
        let cell = &self.shared.settings.cell_id;
        let isolating = &self.shared.isolating;
        let always = isolating.limiter.walls().with_all(kernel_walls());
        for found in ladder() {
            let found = Found { walls: found.walls.with_all(always), ..found };
            isolating.set(Some(found));
            match self.self_test().await {
                Ok(()) => {
                    tracing::info!(%cell, "the isolation of containers is {}", found.walls);
                    return;
                }
                Err(why) => tracing::info!(%cell, "no isolation as {}: {why}", found.walls),
            }
        }
        isolating.set(None);
        tracing::warn!(%cell, "containers are not isolated");
    }

    /// Returns the isolation of new containers.
    #[must_use]
    pub fn isolation(&self) -> Isolation {
        self.shared.isolating.walls()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_is_parsed_as_image_or_folder() {
        let source = |text: &str| {
            let Source { folder, is_image, tag } = Source::of(text);
            (folder.display().to_string(), is_image, tag)
        };
        assert_eq!(source("/srv/root"), ("/srv/root".into(), false, None));
        assert_eq!(source("oci:/srv/web"), ("/srv/web".into(), true, None));
        assert_eq!(source("oci:/srv/web:1.2"), ("/srv/web".into(), true, Some("1.2".into())));
        assert_eq!(source("oci:/srv:8/web"), ("/srv:8/web".into(), true, None));
    }
}
