//! What a client asked of a process, told from what came of it.

use std::sync::Arc;

use schemas::definition::{Definition, DesiredLrp, DesiredLrpUpdate};
use schemas::desired::{self, Desired};
use schemas::entry::Event;
use schemas::names::{DefinitionId, ProcessGuid};
use schemas::process::{Purpose, RolloutControl};
use schemas::rollout::{self, Kind, PauseReason};
use schemas::spec::ClientCommand;
use schemas::{Place, actual};

/// What the events of a client's decision say of what it asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said<'a> {
    desired: Option<&'a DesiredLrp>,
    removed: bool,
    updated: Option<&'a DesiredLrpUpdate>,
    added: Option<(&'a DefinitionId, &'a Arc<Definition>)>,
    activated: Option<&'a DefinitionId>,
    /// The rollout that began: its kind, its target and why it began.
    started: Option<(Kind, &'a DefinitionId, &'a str)>,
    /// What became of the rollout that was under way.
    steered: Option<RolloutControl>,
    retired: Option<Place>,
}

impl<'a> Said<'a> {
    /// Reads the events of one decision.
    pub(crate) fn of(events: &'a [Event]) -> Self {
        let mut said = Self::default();
        for event in events {
            match event {
                Event::Desired(event) => said.of_desired(event),
                Event::Rollout(event) => said.of_rollout(event),
                Event::Actual(event) => said.of_actual(event),
                Event::Evacuating(_)
                | Event::Evaluation(_)
                | Event::Task(_)
                | Event::Periodic(_)
                | Event::Parameterised(_)
                | Event::Domain(_)
                | Event::Cell(_)
                | Event::Cluster(_) => {}
            }
        }
        said
    }

    fn of_desired(&mut self, event: &'a desired::Event) {
        match event {
            desired::Event::Desired(lrp) => self.desired = Some(lrp),
            desired::Event::Removed {} => self.removed = true,
            desired::Event::Updated(update) => self.updated = Some(update),
            desired::Event::DefinitionAdded { definition_id, definition } => {
                self.added = Some((definition_id, definition));
            }
            desired::Event::Activated { definition_id } => self.activated = Some(definition_id),
            desired::Event::HealthyChanged { .. }
            | desired::Event::Pruned { .. }
            | desired::Event::CellsChanged { .. } => {}
        }
    }

    /// What comes first was asked, and the rest follows from it.
    fn of_rollout(&mut self, event: &'a rollout::Event) {
        match event {
            rollout::Event::Started { kind, target, reason, .. } => {
                self.started.get_or_insert((*kind, target, reason));
            }
            rollout::Event::Paused { cause: PauseReason::Requested, .. } => {
                self.steered.get_or_insert(RolloutControl::Pause);
            }
            rollout::Event::Resumed {} => {
                self.steered.get_or_insert(RolloutControl::Resume);
            }
            rollout::Event::Paused { cause: PauseReason::Canary | PauseReason::Failures, .. }
            | rollout::Event::IndicesStarted { .. }
            | rollout::Event::FellBack { .. }
            | rollout::Event::TookOver { .. }
            | rollout::Event::Replaced { .. }
            | rollout::Event::Failed { .. }
            | rollout::Event::Stalled { .. }
            | rollout::Event::Completed {} => {}
        }
    }

    fn of_actual(&mut self, event: &actual::Event) {
        match event {
            // What had crashed is not asked to stop, but removed at once.
            actual::Event::StopRequested { places, cause: actual::StopReason::Retired }
            | actual::Event::Removed { places, cause: actual::StopReason::Retired } => {
                self.retired = self.retired.take().or_else(|| places.iter().next());
            }
            actual::Event::StopRequested { .. }
            | actual::Event::Removed { .. }
            | actual::Event::Created { .. }
            | actual::Event::Claimed { .. }
            | actual::Event::Started { .. }
            | actual::Event::ExecStarted { .. }
            | actual::Event::Crashed { .. }
            | actual::Event::PlacementFailed { .. }
            | actual::Event::Unclaimed { .. } => {}
        }
    }

    /// What every instance was replaced for by one that runs the same, and the id that was made for that. The definition is
    /// added and activated as for an update: only why its rollout began tells them apart.
    pub(crate) fn restarted(&self) -> Option<(Purpose, &'a DefinitionId)> {
        let (kind, target, why) = self.started?;
        let purpose =
            [Purpose::Restart, Purpose::Rebalance].into_iter().find(|one| one.rollout_reason() == why);
        match kind {
            Kind::Update => purpose.map(|purpose| (purpose, target)),
            Kind::Rollback => None,
        }
    }

    /// The command that makes this of a process of which `before` was desired; none: there is no such command, or it can't be
    /// told which.
    pub(crate) fn command(&self, guid: &ProcessGuid, before: Option<&Desired>) -> Option<ClientCommand> {
        let process_guid = guid.clone();
        if let Some(lrp) = self.desired {
            return Some(ClientCommand::LrpDesire(Box::new(lrp.clone())));
        }
        if self.removed {
            return Some(ClientCommand::LrpRemove { process_guid });
        }
        if let Some((Kind::Rollback, ..)) = self.started {
            return Some(ClientCommand::LrpSteer { process_guid, steer: RolloutControl::RollBack });
        }
        if let Some(command) = self.update(guid, before) {
            return Some(command);
        }
        if let Some(place) = &self.retired {
            let (index, definition_id) = (place.index, Some(place.definition_id.clone()));
            return Some(ClientCommand::LrpRetire { process_guid, index, definition_id });
        }
        self.steered.map(|steer| ClientCommand::LrpSteer { process_guid, steer })
    }

    /// The command by which it became otherwise.
    fn update(&self, guid: &ProcessGuid, before: Option<&Desired>) -> Option<ClientCommand> {
        let process_guid = guid.clone();
        let (update, definition) = match (self.updated, self.added, self.activated) {
            (None, None, None) => return None,
            (None, None, Some(id)) => {
                return Some(ClientCommand::LrpActivate { process_guid, definition_id: id.clone() });
            }
            (update, Some(added), _) => (update, Some(added)),
            // It went back to a definition that it still had.
            (update, None, Some(id)) => (update, Some((id, before?.definition(id)?))),
            (update, None, None) => (update, None),
        };
        let definition = definition.map(|(id, definition)| (id.clone(), Arc::clone(definition)));
        let update = update.cloned().unwrap_or_default();
        Some(ClientCommand::LrpUpdate { process_guid, update, definition })
    }
}
