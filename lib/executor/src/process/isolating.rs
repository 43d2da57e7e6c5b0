//! What the containers that are made now are isolated by: found out when the executor opens, by trying.

use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use schemas::container::Recipe;
use schemas::isolation::Isolation;

use super::{Executor, Isolate, Settings};
use crate::cgroup::{Limiter, Limits};
use crate::isolation::{Found, Plan, Tree, kernel_walls, ladder};

/// What containers are isolated by.
#[derive(Debug, Default)]
pub(super) struct Isolating {
    limiter: Limiter,
    /// None: they aren't.
    found: RwLock<Option<Found>>,
}

impl Isolating {
    pub(super) fn new(limiter: Limiter) -> Self {
        Self { limiter, found: RwLock::default() }
    }

    fn found(&self) -> Option<Found> {
        *self.found.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, found: Option<Found>) {
        *self.found.write().unwrap_or_else(PoisonError::into_inner) = found;
    }

    /// The walls of a container that is made now.
    pub(super) fn walls(&self) -> Isolation {
        self.found().map_or(Isolation::NONE, |found| found.walls)
    }

    /// The groups of the container with this name, whether they are there or not.
    pub(super) fn limits(&self, name: &str, group: Option<&Path>) -> Limits {
        self.limiter.of(name, group)
    }

    /// How a container is kept apart; none: it isn't.
    pub(super) fn plan(&self, settings: &Settings, name: &str, group: Option<&Path>) -> Option<Plan> {
        let found = self.found()?;
        Some(Plan {
            walls: found.walls,
            first_id: found.first_id,
            tree: Tree::Host,
            own_network: false,
            limits: self.limits(name, group),
            programs: settings.shim.first().map(PathBuf::from).into_iter().collect(),
        })
    }

    /// Makes what limits a container. Does nothing for one that isn't isolated.
    pub(super) fn limit(
        &self,
        recipe: &Recipe,
        plan: Option<&Plan>,
        group: Option<&Path>,
    ) -> std::io::Result<()> {
        let Some(_) = plan else { return Ok(()) };
        let name = recipe.instance_guid.to_string();
        self.limiter.make(&name, group, recipe.resources.memory_mb, recipe.cpu_weight)
    }
}

impl Executor {
    /// Tries what this host gives, the most first, and says it.
    pub(super) async fn try_isolation(&self) {
        let Isolate::WhereItCan { first_id } = self.shared.settings.isolate else { return };
        let cell = &self.shared.settings.cell_id;
        let isolating = &self.shared.isolating;
        let always = isolating.limiter.walls().and(kernel_walls());
        for found in ladder(first_id) {
            let found = Found { walls: found.walls.and(always), ..found };
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

    /// How the containers that are made now are isolated.
    #[must_use]
    pub fn isolation(&self) -> Isolation {
        self.shared.isolating.walls()
    }
}
