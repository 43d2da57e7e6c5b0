//! Changes of processes: sends commands, waits until they have taken effect, and prints the results.

use cli_base::connect::connect;
use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::output::Output;
use client::Client;
use explain::decisions::events_of;
use runtime::exit::Exit;
use schemas::definition::DesiredLrp;
use schemas::entry::Event;
use schemas::message::Ack;
use schemas::names::{DefinitionId, Domain, ProcessGuid};
use schemas::process::Purpose;
use schemas::query::LrpRow;
use schemas::{Position, desired, rollout as rollout_events};
use serde::Serialize;
use text::words::count;

use super::find;
use super::progress::{WaitCondition, WaitResult, wait_until_settled};

/// Value of `action` if the object was already in the requested state.
pub(crate) const UNCHANGED: &str = "unchanged";

/// Output of a command that changes a process.
#[derive(Serialize)]
pub(crate) struct ChangeResult<'a> {
    pub(super) process_guid: &'a ProcessGuid,
    pub(super) action: &'a str,
    /// Target definition of the rollout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) definition_id: Option<&'a DefinitionId>,
    pub(super) carried_out: bool,
    pub(super) position: Position,
    pub(super) version: u64,
}

/// Context that all commands for processes share.
pub(crate) struct Session<'a> {
    pub(super) client: Client,
    pub(super) global: &'a Global,
    pub(super) output: Output,
}

/// Accepted change of a process, which may still be in progress.
pub(crate) struct ProcessChange {
    guid: ProcessGuid,
    done: Ack,
    action: &'static str,
    /// Target definition of the rollout to wait for. `None` if the command started no rollout.
    target: Option<DefinitionId>,
}

impl<'a> Session<'a> {
    pub(super) async fn open(global: &'a Global) -> Result<Self, Failure> {
        Ok(Self { client: connect(global).await?, global, output: Output::new(global) })
    }

    /// Creates or updates a process. `is_named` is `true` if the file sets the definition id.
    pub(super) async fn apply(
        &self,
        client: &Client,
        lrp: DesiredLrp,
        is_named: bool,
    ) -> Result<ProcessChange, Failure> {
        let (guid, domain) = (lrp.process_guid.clone(), lrp.domain.clone());
        let doing = |failure: Failure| failure.while_doing(format!("apply process {guid}"));
        let published = if is_named {
            let id = lrp.definition_id.clone();
            client.publish_lrp_as(lrp, id).await
        } else {
            client.publish_lrp(lrp).await
        };
        match published {
            Ok(done) => self.process_change(guid.clone(), done).await.map_err(doing),
            Err(error) => Err(doing(self.explain_other_domain(error.into(), &guid, &domain).await)),
        }
    }

    /// Replaces the failure by a conflict if the process exists in another domain.
    async fn explain_other_domain(&self, failure: Failure, guid: &ProcessGuid, domain: &Domain) -> Failure {
        let known = self.client.lrp(guid).await.ok().map(|one| one.row.domain);
        find::exists_in_other_domain(failure, format!("process {guid}"), known, domain)
    }

    /// Returns the outcome of a command, based on the events that it recorded.
    async fn process_change(&self, guid: ProcessGuid, done: Ack) -> Result<ProcessChange, Failure> {
        let events = self.decided(&guid, &done).await?;
        let is_new = |event: &Event| matches!(event, Event::Desired(desired::Event::Desired(_)));
        if events.iter().any(is_new) {
            return Ok(ProcessChange { guid, done, action: "desired", target: None });
        }
        let action = if events.is_empty() { UNCHANGED } else { "updated" };
        let target = match rollout_target(&events) {
            Some(target) => Some(target),
            // If the command started no rollout, a rollout to the definition of the file may already be in
            // progress.
            None => find::lrp(&self.client, &guid).await?.row.definition_id,
        };
        Ok(ProcessChange { guid, done, action, target })
    }

    /// Prints the result of a change. Unless `detach` is set, first waits until the change has been carried
    /// out.
    pub(super) async fn finish(&self, change: ProcessChange, detach: bool) -> Result<(), Failure> {
        let ProcessChange { guid, done, action, target } = change;
        let asked = target.as_ref().map_or(WaitCondition::Instances, WaitCondition::Rollout);
        self.settle_and_print(&guid, done, action, asked, detach).await
    }

    /// Waits for a rollout to an earlier definition, and prints the result.
    pub(super) async fn finish_rollback(
        &self,
        guid: &ProcessGuid,
        done: Ack,
        detach: bool,
    ) -> Result<(), Failure> {
        let change = self.process_change(guid.clone(), done).await?;
        let action = if change.action == UNCHANGED { UNCHANGED } else { "rolled back" };
        self.finish(ProcessChange { action, ..change }, detach).await
    }

    /// Returns the events that a command recorded for a process.
    pub(super) async fn decided(&self, guid: &ProcessGuid, done: &Ack) -> Result<Vec<Event>, Failure> {
        Ok(events_of(&self.client, &format!("lrp:{guid}"), done).await?)
    }

    /// Returns the target definition of the rollout that a command started. `None` if the command started no
    /// rollout.
    pub(super) async fn started_rollout(
        &self,
        guid: &ProcessGuid,
        done: &Ack,
    ) -> Result<Option<DefinitionId>, Failure> {
        Ok(rollout_target(&self.decided(guid, done).await?))
    }

    /// Returns a process, and a client that acts in the domain of the process.
    pub(super) async fn existing(
        &self,
        guid: &ProcessGuid,
        doing: &str,
    ) -> Result<(LrpRow, Client), Failure> {
        let known = find::lrp(&self.client, guid).await;
        let row = known.map_err(|error| error.while_doing(format!("{doing} process {guid}")))?.row;
        let domain = find::check_domain(self.global, format!("process {guid}"), row.domain.clone())?;
        Ok((row, self.client.in_domain(domain)))
    }

    /// Replaces every instance by a new instance with the same definition.
    pub(super) async fn replace_all(
        &self,
        guid: &ProcessGuid,
        client: &Client,
        purpose: Purpose,
        detach: bool,
    ) -> Result<(), Failure> {
        let restarted = client.restart_lrp(guid.clone(), purpose).await.map_err(Failure::from);
        let done = restarted
            .map_err(|failure| failure.while_doing(format!("{} process {guid}", purpose.as_str())))?;
        let target = self.started_rollout(guid, &done).await?;
        let asked = target.as_ref().map_or(WaitCondition::Instances, WaitCondition::Rollout);
        self.settle_and_print(guid, done, purpose.rollout_reason(), asked, detach).await
    }

    /// Deletes a process. Its instances then stop.
    pub(super) async fn delete(&self, guid: &ProcessGuid) -> Result<ProcessChange, Failure> {
        let (_, client) = self.existing(guid, "delete").await?;
        let deleted = client.remove_lrp(guid.clone()).await;
        let done =
            deleted.map_err(|error| Failure::from(error).while_doing(format!("delete process {guid}")))?;
        Ok(ProcessChange { guid: guid.clone(), done, action: "deleted", target: None })
    }

    /// Prints the result of the change. Unless `detach` is set, first waits until the change has been carried
    /// out.
    pub(super) async fn settle_and_print(
        &self,
        guid: &ProcessGuid,
        done: Ack,
        action: &str,
        asked: WaitCondition<'_>,
        detach: bool,
    ) -> Result<(), Failure> {
        let watched = if detach {
            WaitResult::Detached
        } else {
            let limit = self.global.timeout;
            wait_until_settled(&self.client, (guid, done.position), asked, limit, self.output).await?
        };
        let definition_id = match asked {
            WaitCondition::Instances => None,
            WaitCondition::Rollout(target) => Some(target),
        };
        let (carried_out, end) = match watched {
            WaitResult::Settled { running: 0 } => (true, String::new()),
            WaitResult::Settled { running } => {
                let health = if self.is_monitored(guid).await { "" } else { " (no monitor: health unknown)" };
                (true, format!(": {} running{health}", count(running.into(), "instance")))
            }
            WaitResult::Detached | WaitResult::Interrupted if action == UNCHANGED => (false, String::new()),
            WaitResult::Detached => (false, "; the change is in progress".to_owned()),
            WaitResult::Interrupted => {
                (false, format!("; the change is still in progress, see muster lrp show {guid}"))
            }
        };
        let to = definition_id.map(|id| format!(" to {id}")).unwrap_or_default();
        let text = match action {
            UNCHANGED => format!("process {guid} unchanged{end}"),
            action => format!("process {guid} {action}{to}{end}"),
        };
        let Ack { position, version } = done;
        let changed =
            ChangeResult { process_guid: guid, action, definition_id, carried_out, position, version };
        self.tell(&changed, &text)?;
        // Ctrl-C ends the whole command, including its remaining steps.
        if watched == WaitResult::Interrupted { Err(Failure::silent(Exit::Interrupted)) } else { Ok(()) }
    }

    /// Returns `false` if the target definition has no monitor. Without a monitor, instances are RUNNING as
    /// soon as they start, even if they crash a moment later.
    async fn is_monitored(&self, guid: &ProcessGuid) -> bool {
        let lrp = self.client.lrp(guid).await.ok().and_then(|one| one.row.to_desired());
        lrp.is_none_or(|lrp| lrp.definition.monitor.is_some())
    }

    /// Prints the result.
    pub(super) fn tell(&self, changed: &ChangeResult<'_>, text: &str) -> Result<(), Failure> {
        self.output.add_result(changed, |_, _| text.to_owned())
    }
}

/// Returns the target definition of the last rollout that started in `events`.
pub(crate) fn rollout_target(events: &[Event]) -> Option<DefinitionId> {
    events.iter().rev().find_map(|event| {
        let Event::Rollout(rollout_events::Event::Started { target, .. }) = event else { return None };
        Some(target.clone())
    })
}
