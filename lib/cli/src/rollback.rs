//! `muster lrp rollback`: starts a rollout to a definition that a process had before. Definitions are read
//! from the log, so pruned definitions are available too.

use std::collections::BTreeMap;
use std::sync::Arc;

use cli_base::failure::Failure;
use cli_base::moment;
use client::Client;
use explain::decisions::{decisions_of, end_of_log};
use runtime::exit::Exit;
use schemas::definition::{Definition, DesiredLrpUpdate};
use schemas::entry::Event;
use schemas::names::{DefinitionId, ProcessGuid};
use schemas::query::AsOf;
use schemas::rollout::{self, Kind};
use schemas::spec::content_id;
use schemas::{Code, Position, desired};

use super::find;
use super::session::Session;

/// A definition and its id.
type NamedDefinition = (DefinitionId, Arc<Definition>);

/// Starts a rollout to an earlier definition, and waits for it. Without `to`, a rollout that is under way ends.
pub(super) async fn run(
    session: &Session<'_>,
    guid: &ProcessGuid,
    to: Option<&str>,
    detach: bool,
) -> Result<(), Failure> {
    let doing = |failure: Failure| failure.while_doing(format!("roll back process {guid}"));
    let (row, client) = session.existing(guid, "roll back").await?;
    if row.rollout_under_way().is_some() {
        if to.is_none() {
            return session.end_rollout(guid, detach).await;
        }
        let why = "a rollout is under way";
        let failure = Failure::new(Exit::Conflict, &Code::InvalidStateTransition.to_string(), why);
        let advice = format!("to end it and return to the definition before it: muster lrp rollback {guid}");
        return Err(doing(failure).advise(advice));
    }
    let found = match to {
        None => previous_definition(&client, guid, row.definition_id.as_ref()).await,
        Some(to) => named(&client, guid, to).await,
    };
    let (id, definition) = found.map_err(doing)?;
    let deploy =
        |id| client.deploy_lrp(guid.clone(), DesiredLrpUpdate::default(), id, Arc::clone(&definition));
    let deployed = match (deploy(id).await, content_id(&definition)) {
        // Another definition has this id now. The content id is unique.
        (Err(error), Some(id)) if error.code() == Some(Code::ResourceExists) => deploy(id).await,
        (deployed, _) => deployed,
    };
    let done = deployed.map_err(|error| doing(error.into()))?;
    session.finish_rollback(guid, done, detach).await
}

/// Returns the last definition whose content differs from the content of the active definition.
async fn previous_definition(
    client: &Client,
    guid: &ProcessGuid,
    active: Option<&DefinitionId>,
) -> Result<NamedDefinition, Failure> {
    let ran = DefinitionHistory::read(client, guid).await?;
    active.and_then(|active| ran.before(active)).ok_or_else(|| {
        Failure::not_found(format!("an earlier definition of process {guid}"))
            .advise(format!("see muster history lrp {guid}"))
    })
}

/// Returns the definition with an id, or the one that was active at a moment.
async fn named(client: &Client, guid: &ProcessGuid, to: &str) -> Result<NamedDefinition, Failure> {
    let end = end_of_log(client).await?;
    let at = moment::parse(to).ok().filter(|at| match at {
        // A content id can consist of digits only. Such a number is too large to be a position.
        AsOf::Position(position) => *position <= end,
        AsOf::Time(_) | AsOf::Ago(_) => true,
    });
    if let Some(at) = at {
        let row = find::lrp(&client.clone().at_moment(at), guid).await?.row;
        let then = row.to_desired().map(|lrp| (lrp.definition_id, lrp.definition));
        return then.ok_or_else(|| Failure::not_found(format!("a definition of process {guid} at {to}")));
    }
    let mut ran = DefinitionHistory::read(client, guid).await?;
    DefinitionId::new(to).ok().and_then(|id| ran.definitions.remove_entry(&id)).ok_or_else(|| {
        let known: Vec<&str> = ran.definitions.keys().map(DefinitionId::as_str).collect();
        Failure::not_found(format!("definition {to} of process {guid}")).advise(format!(
            "recorded definitions: {}; or pass a moment, such as --to 41 or --to -10m",
            known.join(", ")
        ))
    })
}

/// History of the definitions of a process.
#[derive(Debug, Default)]
struct DefinitionHistory {
    /// Every definition that the process had, by id.
    definitions: BTreeMap<DefinitionId, Arc<Definition>>,
    /// Targets of the rollouts, in order. Rollouts that were rolled back are left out.
    order: Vec<DefinitionId>,
}

impl DefinitionHistory {
    async fn read(client: &Client, guid: &ProcessGuid) -> Result<Self, Failure> {
        let (entries, _) = client.history(Position(0), Some(&format!("lrp:{guid}"))).await?;
        let mut ran = Self::default();
        decisions_of(entries)
            .into_iter()
            .flat_map(|one| one.decision.events)
            .for_each(|event| ran.apply(event));
        Ok(ran)
    }

    fn apply(&mut self, event: Event) {
        if let Event::Desired(desired::Event::Desired(lrp)) = event {
            self.order = vec![lrp.definition_id.clone()];
            self.definitions.insert(lrp.definition_id, lrp.definition);
        } else if let Event::Desired(desired::Event::DefinitionAdded { definition_id, definition }) = event {
            self.definitions.insert(definition_id, definition);
        } else if let Event::Rollout(rollout::Event::Started { kind, target, .. }) = event {
            let was = self.order.iter().rposition(|id| *id == target).filter(|_| kind == Kind::Rollback);
            match was {
                Some(at) => self.order.truncate(at + 1),
                None => self.order.push(target),
            }
        }
    }

    fn before(&self, active: &DefinitionId) -> Option<NamedDefinition> {
        let content = self.definitions.get(active);
        let all = self.order.iter().rev().filter_map(|id| self.definitions.get_key_value(id));
        let mut others = all.filter(|(id, definition)| *id != active && Some(*definition) != content);
        others.next().map(|(id, definition)| (id.clone(), Arc::clone(definition)))
    }
}

#[cfg(test)]
mod tests {
    use schemas::definition::DesiredLrp;
    use schemas::policy::UpdatePolicy;

    use super::*;

    fn id(text: &str) -> DefinitionId {
        DefinitionId::new(text).unwrap()
    }

    fn definition(memory_mb: u64) -> Arc<Definition> {
        let mut definition = Definition::clone(&fixtures::lrp("web", "shop", 1).definition);
        definition.memory_mb = memory_mb;
        Arc::new(definition)
    }

    fn added(name: &str, memory_mb: u64) -> Event {
        let definition = definition(memory_mb);
        Event::Desired(desired::Event::DefinitionAdded { definition_id: id(name), definition })
    }

    fn rollout(kind: Kind, target: &str) -> Event {
        Event::Rollout(rollout::Event::Started {
            kind,
            target: id(target),
            rollback_to: None,
            total: 1,
            policy: Box::new(UpdatePolicy::default_update()),
            reason: String::new(),
        })
    }

    #[test]
    fn rollback_selects_last_differing_definition_not_rolled_back() {
        let mut ran = DefinitionHistory::default();
        let first = DesiredLrp { definition: definition(1), ..fixtures::lrp("web", "shop", 1) };
        ran.apply(Event::Desired(desired::Event::Desired(Box::new(first))));
        let mut after = |events: Vec<Event>, active: &str| {
            events.into_iter().for_each(|event| ran.apply(event));
            ran.before(&id(active)).map(|(id, definition)| (id.to_string(), definition.memory_mb))
        };
        assert_eq!(after(vec![], "web"), None);
        assert_eq!(after(vec![added("v2", 2), rollout(Kind::Update, "v2")], "v2"), Some(("web".into(), 1)));
        let failed = vec![added("v3", 3), rollout(Kind::Update, "v3"), rollout(Kind::Rollback, "v2")];
        assert_eq!(after(failed, "v2"), Some(("web".into(), 1)), "v3 was rolled back");
        let restarted = vec![added("v2-restart-9", 2), rollout(Kind::Update, "v2-restart-9")];
        assert_eq!(
            after(restarted, "v2-restart-9"),
            Some(("web".into(), 1)),
            "a restart has the same content"
        );
        assert_eq!(after(vec![rollout(Kind::Update, "web")], "web"), Some(("v2-restart-9".into(), 2)));
    }
}
