//! Isolation of new containers. When the executor opens, it tries the isolation layers to detect which of
//! them are available.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::{Mutex, RwLock};
use schemas::container::Recipe;
use schemas::definition::{Network, Sandbox};
use schemas::isolation::Isolation;
use schemas::names::Domain;

use super::{Executor, IsolationPolicy, Settings};
use crate::cgroup::{Limiter, Limits};
use crate::ids::Ids;
use crate::image::Images;
use crate::isolation::{HostIsolation, Plan, RootFs, candidates, kernel_layers};
use crate::trash::Trash;

/// Error if a container requires a separate file system or network, but the cell does not isolate containers.
const NOT_ISOLATED: &str =
    "this cell does not isolate containers, so root_fs and an isolated network are not available";

/// Isolation that new containers get.
#[derive(Debug, Default)]
pub(super) struct ContainerIsolation {
    limiter: Limiter,
    /// Isolation that this host supports. `None` if containers are not isolated.
    found: RwLock<Option<HostIsolation>>,
    /// Allocator for the host ids of the containers' users. `None` if this program may not assign ids.
    ids: Option<Ids>,
    /// Paths of the host that are hidden from containers.
    masked: Vec<PathBuf>,
    /// Held while an image is unpacked.
    unpacking: Mutex<()>,
}

impl ContainerIsolation {
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

    fn host_isolation(&self) -> Option<HostIsolation> {
        *self.found.read()
    }

    fn set_host_isolation(&self, found: Option<HostIsolation>) {
        *self.found.write() = found;
    }

    /// Returns the isolation layers of a new container.
    pub(super) fn layers(&self) -> Isolation {
        self.host_isolation().map_or(Isolation::NONE, |found| found.layers)
    }

    /// Removes the control groups with limits that belong to none of the `known` containers.
    pub(super) fn remove_strays(&self, known: &BTreeSet<String>) {
        self.limiter.remove_strays(known);
    }

    /// Returns the isolation plan of a container. `None` if the container is not isolated.
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
        let Some(found) = self.host_isolation() else {
            return if sandbox.root_fs.is_empty() && sandbox.network == Network::Host {
                Ok(None)
            } else {
                Err(io::Error::other(NOT_ISOLATED))
            };
        };
        let (root_fs, of_image) = self.root_fs(settings, trash, found, &sandbox.root_fs, &recipe.domain)?;
        let first_id = match (of_image, self.ids().filter(|_| found.own_ids)) {
            (Some(first), _) => Some(first),
            (None, ids) => ids.map(Ids::allocate_range).transpose()?,
        };
        Ok(Some(Plan {
            layers: found.layers,
            first_id,
            own_ids: first_id.is_some() && of_image.is_none(),
            root_fs,
            own_network: sandbox.network == Network::None,
            limits: self.limiter.limits_of(&recipe.instance_guid.to_string(), group),
            masked: self.masked.clone(),
            programs: settings.shim.first().map(PathBuf::from).into_iter().collect(),
        }))
    }

    /// Releases the host ids of a container's users. Ids that belong to an image are not released.
    pub(super) fn release(&self, plan: Option<&Plan>) {
        let own = plan.filter(|plan| plan.own_ids).and_then(|plan| plan.first_id);
        self.ids().zip(own).into_iter().for_each(|(ids, first)| ids.release(first));
    }

    /// Returns the file system for a recipe. If the file system determines the first host id of the
    /// container's users, returns this id, too.
    fn root_fs(
        &self,
        settings: &Settings,
        trash: &Trash,
        found: HostIsolation,
        root_fs: &str,
        domain: &Domain,
    ) -> io::Result<(RootFs, Option<u32>)> {
        if root_fs.is_empty() || root_fs.starts_with(Sandbox::PRELOADED) {
            return match settings.root_fs.as_str() {
                "" => Ok((RootFs::Host, None)),
                own => self.unpack_source(settings, trash, found, &Source::parse(own), domain),
            };
        }
        let source = Source::parse(root_fs);
        let real = fs::canonicalize(&source.folder)
            .map_err(|error| io::Error::other(format!("root_fs {root_fs}: {error}")))?;
        let allowed = settings.images.iter().filter_map(|allowed| fs::canonicalize(allowed).ok());
        if !allowed.into_iter().any(|allowed| real.starts_with(allowed)) {
            return Err(io::Error::other(format!(
                "root_fs {root_fs} is not allowed: expected a folder below --images of this cell"
            )));
        }
        self.unpack_source(settings, trash, found, &Source { folder: real, ..source }, domain)
    }

    fn unpack_source(
        &self,
        settings: &Settings,
        trash: &Trash,
        found: HostIsolation,
        source: &Source,
        domain: &Domain,
    ) -> io::Result<(RootFs, Option<u32>)> {
        if !source.is_image {
            let (path, user, environment) = (source.folder.clone(), String::new(), vec![]);
            return Ok((RootFs::Folder { path, user, environment }, None));
        }
        // Several containers often start with the same image. Only one image is unpacked at a time, so the
        // later containers find the unpacked image.
        let _unpacking = self.unpacking.lock();
        let images = Images { data: &settings.data, trash, ids: self.ids().filter(|_| found.own_ids) };
        let image = images.get_or_unpack(&source.folder, source.tag.as_deref(), domain)?;
        let tree = RootFs::Folder { path: image.tree, user: image.user, environment: image.environment };
        Ok((tree, image.first_id))
    }

    /// Returns the control groups that limit a container. The groups need not exist. Empty if containers are
    /// not isolated.
    pub(super) fn limits(&self, name: &str, group: Option<&Path>) -> Limits {
        self.host_isolation().map(|_| self.limiter.limits_of(name, group)).unwrap_or_default()
    }

    /// Creates the control groups that limit a container. Does nothing if containers are not isolated.
    pub(super) fn create_limits(&self, recipe: &Recipe, group: Option<&Path>) -> io::Result<()> {
        let Some(_) = self.host_isolation() else { return Ok(()) };
        let name = recipe.instance_guid.to_string();
        self.limiter.make(&name, group, recipe.resources.memory_mb, recipe.cpu_weight)
    }
}

/// Location of a file system, in the form that the recipe or the settings use.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Source {
    folder: PathBuf,
    is_image: bool,
    tag: Option<String>,
}

impl Source {
    /// Parses `oci:FOLDER`, `oci:FOLDER:TAG`, or the path of a folder.
    fn parse(text: &str) -> Self {
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
    /// Tries the combinations of isolation layers on this host, the strongest combination first. Logs the
    /// result.
    pub(super) async fn detect_isolation(&self) {
        if self.shared.settings.isolate == IsolationPolicy::Never {
            return;
        }
        let cell = &self.shared.settings.cell_id;
        let isolating = &self.shared.isolating;
        let always = isolating.limiter.isolation().union(kernel_layers());
        for found in candidates() {
            let found = HostIsolation { layers: found.layers.union(always), ..found };
            isolating.set_host_isolation(Some(found));
            match self.self_test().await {
                Ok(()) => {
                    tracing::info!(%cell, "isolation of containers: {}", found.layers);
                    return;
                }
                Err(why) => tracing::info!(%cell, "isolation {} is not available: {why}", found.layers),
            }
        }
        isolating.set_host_isolation(None);
        tracing::warn!(%cell, "containers are not isolated");
    }

    /// Returns the isolation of new containers.
    #[must_use]
    pub fn isolation(&self) -> Isolation {
        self.shared.isolating.layers()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_is_parsed_as_image_or_folder() {
        let source = |text: &str| {
            let Source { folder, is_image, tag } = Source::parse(text);
            (folder.display().to_string(), is_image, tag)
        };
        assert_eq!(source("/srv/root"), ("/srv/root".into(), false, None));
        assert_eq!(source("oci:/srv/web"), ("/srv/web".into(), true, None));
        assert_eq!(source("oci:/srv/web:1.2"), ("/srv/web".into(), true, Some("1.2".into())));
        assert_eq!(source("oci:/srv:8/web"), ("/srv:8/web".into(), true, None));
    }
}
