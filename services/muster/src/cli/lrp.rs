//! `muster lrp`: commands for desired LRPs (processes).

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use client::{Client, ListFilter, own_definition_id};
use schemas::definition::{DesiredLrp, DesiredLrpUpdate, Routes};
use schemas::entry::Event;
use schemas::limits::INSTANCES;
use schemas::message::Ack;
use schemas::names::{DefinitionId, Domain, ProcessGuid};
use schemas::process::Purpose;
use schemas::query::LrpRow;
use schemas::spec::Item;
use schemas::{Position, desired, rollout as rollout_events};
use serde::Serialize;
use serde_json::Value;

use super::args::{Global, LrpVerb};
use super::connect::connect;
use super::events::events_of;
use super::failure::{Exit, Failure};
use super::file::ProcessInFile;
use super::output::{Output, note};
use super::planned::{Target, require_unchanged};
use super::progress::{WaitCondition, WaitResult, wait_until_settled};
use super::several::Batch;
use super::words::{InvalidValue, count, number};
use super::{diff, file, find, plan, rollback, rollout, rows};

/// Output of a command that changes a process.
#[derive(Serialize)]
pub(super) struct ChangeResult<'a> {
    pub(super) process_guid: &'a ProcessGuid,
    pub(super) did: &'a str,
    /// Target definition of the rollout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) definition_id: Option<&'a DefinitionId>,
    pub(super) carried_out: bool,
    pub(super) position: Position,
    pub(super) version: u64,
}

/// Value of `did` if the process already was in the requested state.
const UNCHANGED: &str = "unchanged";

/// Context that all commands for processes share.
pub(super) struct Session<'a> {
    pub(super) client: Client,
    global: &'a Global,
    pub(super) output: Output,
}

/// Outcome of applying a file to a process.
struct ApplyOutcome {
    guid: ProcessGuid,
    done: Ack,
    did: &'static str,
    /// Target definition of the rollout to wait for. `None` if the command started no rollout.
    target: Option<DefinitionId>,
}

pub(crate) async fn run(verb: LrpVerb, global: &Global) -> Result<(), Failure> {
    // Files are parsed before the client connects, so that an invalid file is reported without a cluster.
    match verb {
        LrpVerb::Desire { file, wait } => {
            let items = file::read_items(&file, global.domain.as_ref())?;
            Session::open(global).await?.desire(&file, items, ApplyMode::Desire, wait.detach).await
        }
        LrpVerb::Apply { file, planned, wait } => {
            let (items, named) = file::read_items_and_named(&file, global.domain.as_ref())?;
            let how = ApplyMode::Apply { planned: planned.if_position, named: &named };
            Session::open(global).await?.desire(&file, items, how, wait.detach).await
        }
        LrpVerb::Diff { file } => {
            let (items, named) = file::read_items_and_named(&file, global.domain.as_ref())?;
            diff::run(&connect(global).await?, &file, items, &named, Output::new(global)).await
        }
        LrpVerb::Plan { file } => {
            let (items, named) = file::read_items_and_named(&file, global.domain.as_ref())?;
            plan::run(&connect(global).await?, &file, items, &named, Output::new(global)).await
        }
        LrpVerb::List { .. } => Session::open(global).await?.list().await,
        LrpVerb::Show { guid, .. } => Session::open(global).await?.show(&guid).await,
        LrpVerb::Scale { what, wait } => {
            let wanted = parse_scale(&what)?;
            let session = Session::open(global).await?;
            let mut several = Batch::new(global, wanted.len());
            for (guid, instances) in wanted {
                let update = DesiredLrpUpdate { instances: Some(instances), ..DesiredLrpUpdate::default() };
                several.record(session.update(&guid, update, "scaled", wait.detach).await)?;
            }
            several.end()
        }
        LrpVerb::Update { guid, positional, file, instances, priority, routes, annotation, wait } => {
            let file = positional.or(file);
            let found =
                file.map(|file| file::read_process(&file, &guid, global.domain.as_ref())).transpose()?;
            let routes = routes.map(|file| read_routes(&file)).transpose()?;
            let update = DesiredLrpUpdate { instances, priority, routes, annotation, policies: None };
            if let Some(found) = found {
                let update = with(&found, update);
                return Session::open(global).await?.update_to(found, update, wait.detach).await;
            }
            if update == DesiredLrpUpdate::default() {
                let why = "no change is requested: expected a file, --instances, --priority, --routes \
                           or --annotation";
                return Err(Failure::usage(why));
            }
            Session::open(global).await?.update(&guid, update, "updated", wait.detach).await
        }
        LrpVerb::Activate { guid, definition, wait } => {
            Session::open(global).await?.activate(&guid, definition, wait.detach).await
        }
        LrpVerb::Restart { guid, wait } => Session::open(global).await?.restart(&guid, wait.detach).await,
        LrpVerb::Rebalance { guid, wait } => Session::open(global).await?.rebalance(&guid, wait.detach).await,
        LrpVerb::Rollback { guid, to, wait } => {
            let session = Session::open(global).await?;
            rollback::run(&session, &guid, to.as_deref(), wait.detach).await
        }
        LrpVerb::Rollout(verb) => rollout::run(verb, global).await,
        LrpVerb::Remove { guid, wait } => Session::open(global).await?.remove(&guid, wait.detach).await,
    }
}

/// Treatment of the processes in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ApplyMode<'a> {
    /// Create processes. A process that is already desired is refused.
    Desire,
    /// Create or update processes.
    Apply {
        /// Position of the plan. The command fails if one of the processes changed after it.
        planned: Option<Position>,
        /// Processes for which the file sets a definition id that equals the process guid.
        named: &'a BTreeSet<String>,
    },
}

impl<'a> Session<'a> {
    pub(super) async fn open(global: &'a Global) -> Result<Self, Failure> {
        Ok(Self { client: connect(global).await?, global, output: Output::new(global) })
    }

    async fn desire(
        &self,
        path: &Path,
        items: Vec<Item>,
        how: ApplyMode<'_>,
        detach: bool,
    ) -> Result<(), Failure> {
        let (mut lrps, mut domains, mut tasks, mut launching) = (vec![], vec![], 0, BTreeSet::new());
        for item in items {
            match item {
                Item::Lrp(lrp) => lrps.push(*lrp),
                Item::Domain { domain, ttl_ms } => domains.push((domain, ttl_ms.map(Duration::from_millis))),
                Item::Task(_) => tasks += 1,
                Item::Periodic(_) => _ = launching.insert("periodic"),
                Item::Parameterised(_) => _ = launching.insert("parameterised"),
            }
        }
        if lrps.is_empty() {
            let why = format!("{} contains no process", path.display());
            return Err(
                Failure::new(Exit::Failed, "InvalidRequest", why).advise("to run tasks: muster task run")
            );
        }
        if tasks > 0 {
            note(&format!(
                "the tasks in the file are not run; to run them: muster task run {}",
                path.display()
            ));
        }
        for kind in launching {
            let path = path.display();
            note(&format!(
                "the {kind} tasks in the file are not applied; to apply them: muster {kind} apply {path}"
            ));
        }
        let planned = match how {
            ApplyMode::Desire => None,
            ApplyMode::Apply { planned, .. } => planned,
        };
        let guids: Vec<ProcessGuid> = lrps.iter().map(|lrp| lrp.process_guid.clone()).collect();
        let things = guids.iter().map(Target::Process);
        let client = require_unchanged(&self.client, planned, things, self.global).await;
        let client = client.map_err(|failure| failure.while_doing(format!("apply {}", path.display())))?;
        let mut several = Batch::new(self.global, lrps.len() + domains.len());
        let mut all_made = vec![];
        for lrp in lrps {
            let guid = lrp.process_guid.clone();
            let became = match how {
                ApplyMode::Desire => {
                    self.desire_one(lrp).await.map_err(|failure| desire_failure(failure, &guid))
                }
                ApplyMode::Apply { named, .. } => {
                    self.apply_one(&client, lrp, named.contains(guid.as_str())).await
                }
            };
            all_made.extend(several.record(became)?);
        }
        let all = several.all_succeeded();
        for (domain, ttl) in domains {
            // The domain is refreshed only if every process was accepted. After a refresh, the cluster treats
            // a process that it does not know as deliberately absent.
            let became = if all {
                self.client.in_domain(domain.clone()).refresh_domain(ttl).await.map_err(Failure::from)
            } else {
                let why = "some processes in the file could not be desired";
                Err(Failure::new(Exit::Conflict, "NotRefreshed", why))
            };
            several
                .record(became.map_err(|failure| failure.while_doing(format!("refresh domain {domain}"))))?;
        }
        for made in all_made {
            // The results of the other processes are reported even if one process does not settle.
            several.record(self.made(made, detach).await)?;
        }
        several.end()
    }

    async fn desire_one(&self, lrp: DesiredLrp) -> Result<ApplyOutcome, Failure> {
        let (guid, domain) = (lrp.process_guid.clone(), lrp.domain.clone());
        match self.client.desire_lrp(lrp).await {
            Ok(done) => Ok(ApplyOutcome { guid, done, did: "desired", target: None }),
            Err(error) => Err(self.explain_other_domain(error.into(), &guid, &domain).await),
        }
    }

    async fn apply_one(
        &self,
        client: &Client,
        lrp: DesiredLrp,
        is_named: bool,
    ) -> Result<ApplyOutcome, Failure> {
        let (guid, domain) = (lrp.process_guid.clone(), lrp.domain.clone());
        let doing = |failure: Failure| failure.while_doing(format!("apply process {guid}"));
        let published = if is_named {
            let id = lrp.definition_id.clone();
            client.publish_lrp_as(lrp, id).await
        } else {
            client.publish_lrp(lrp).await
        };
        match published {
            Ok(done) => self.apply_outcome(guid.clone(), done).await.map_err(doing),
            Err(error) => Err(doing(self.explain_other_domain(error.into(), &guid, &domain).await)),
        }
    }

    /// Replaces the failure by a conflict if the process exists in another domain.
    async fn explain_other_domain(&self, failure: Failure, guid: &ProcessGuid, domain: &Domain) -> Failure {
        let known = self.client.lrp(guid).await.ok().map(|one| one.row.domain);
        find::exists_in_other_domain(failure, format!("process {guid}"), known, domain)
    }

    /// Returns the outcome of a command, based on the events that it recorded.
    async fn apply_outcome(&self, guid: ProcessGuid, done: Ack) -> Result<ApplyOutcome, Failure> {
        let events = self.decided(&guid, &done).await?;
        let is_new = |event: &Event| matches!(event, Event::Desired(desired::Event::Desired(_)));
        if events.iter().any(is_new) {
            return Ok(ApplyOutcome { guid, done, did: "desired", target: None });
        }
        let did = if events.is_empty() { UNCHANGED } else { "updated" };
        let target = match target(&events) {
            Some(target) => Some(target),
            // If the command started no rollout, one to the definition of the file may already be in
            // progress.
            None => find::lrp(&self.client, &guid).await?.row.definition_id,
        };
        Ok(ApplyOutcome { guid, done, did, target })
    }

    async fn made(&self, made: ApplyOutcome, detach: bool) -> Result<(), Failure> {
        let ApplyOutcome { guid, done, did, target } = made;
        let asked = target.as_ref().map_or(WaitCondition::Instances, WaitCondition::Rollout);
        self.settle_and_print(&guid, done, did, asked, detach).await
    }

    /// Waits for a rollout to an earlier definition, and prints the result.
    pub(super) async fn finish_rollback(
        &self,
        guid: &ProcessGuid,
        done: Ack,
        detach: bool,
    ) -> Result<(), Failure> {
        let made = self.apply_outcome(guid.clone(), done).await?;
        let did = if made.did == UNCHANGED { UNCHANGED } else { "rolled back" };
        self.made(ApplyOutcome { did, ..made }, detach).await
    }

    /// Returns the events that a command recorded for a process.
    async fn decided(&self, guid: &ProcessGuid, done: &Ack) -> Result<Vec<Event>, Failure> {
        events_of(&self.client, &format!("lrp:{guid}"), done).await
    }

    /// Returns the target definition of the rollout that a command started. `None` if it started no rollout.
    pub(super) async fn started_rollout(
        &self,
        guid: &ProcessGuid,
        done: &Ack,
    ) -> Result<Option<DefinitionId>, Failure> {
        Ok(target(&self.decided(guid, done).await?))
    }

    /// Returns a process, and a client that acts in the domain of the process.
    pub(super) async fn known(&self, guid: &ProcessGuid, doing: &str) -> Result<(LrpRow, Client), Failure> {
        let known = find::lrp(&self.client, guid).await;
        let row = known.map_err(|failure| failure.while_doing(format!("{doing} process {guid}")))?.row;
        let domain = find::whose(self.global, format!("process {guid}"), row.domain.clone())?;
        Ok((row, self.client.in_domain(domain)))
    }

    async fn update_to(
        &self,
        ProcessInFile { lrp, fields }: ProcessInFile,
        update: DesiredLrpUpdate,
        detach: bool,
    ) -> Result<(), Failure> {
        let (guid, domain) = (lrp.process_guid.clone(), lrp.domain.clone());
        let doing = |failure: Failure| failure.while_doing(format!("change process {guid}"));
        // An update never creates a process: this fails if it does not exist.
        let (row, client) = self.known(&guid, "change").await?;
        if row.domain != domain {
            let why =
                format!("process {guid} is in domain {}, but the file sets domain {domain}", row.domain);
            return Err(doing(Failure::new(Exit::Conflict, "ResourceConflict", why)));
        }
        if fields.contains("mode") {
            client::check_mode(&lrp, row.mode).map_err(|error| doing(error.into()))?;
        }
        let lrp = client.seal_lrp(lrp).await.map_err(|error| doing(error.into()))?;
        let is_named = fields.contains("definition_id");
        let id = if is_named { lrp.definition_id.clone() } else { own_definition_id(&lrp) };
        let deployed = client.deploy_lrp(guid.clone(), update, id, lrp.definition).await;
        let done = deployed.map_err(|error| doing(error.into()))?;
        let made = self.apply_outcome(guid.clone(), done).await.map_err(doing)?;
        self.made(made, detach).await
    }

    async fn activate(&self, guid: &ProcessGuid, id: DefinitionId, detach: bool) -> Result<(), Failure> {
        let doing =
            |failure: Failure| failure.while_doing(format!("activate definition {id} of process {guid}"));
        let (_, client) = self.known(guid, "change").await?;
        let done =
            client.activate_lrp(guid.clone(), id.clone()).await.map_err(|error| doing(error.into()))?;
        let did = if self.decided(guid, &done).await?.is_empty() { UNCHANGED } else { "updated" };
        self.settle_and_print(guid, done, did, WaitCondition::Rollout(&id), detach).await
    }

    async fn restart(&self, guid: &ProcessGuid, detach: bool) -> Result<(), Failure> {
        let (_, client) = self.known(guid, "restart").await?;
        self.replace_all(guid, &client, Purpose::Restart, detach).await
    }

    /// Replaces every instance by one with the same definition.
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
        self.settle_and_print(guid, done, purpose.done(), asked, detach).await
    }

    async fn list(&self) -> Result<(), Failure> {
        let only = find::only(self.global.domain.as_ref());
        // A table has no room for definitions. Machine-readable output includes them.
        let listed = if self.output.is_human_readable() {
            self.client.lrps(&only).await?
        } else {
            self.client.lrps_with_definitions(&only).await?
        };
        self.output.rows(&listed.rows, rows::lrps)
    }

    async fn show(&self, guid: &ProcessGuid) -> Result<(), Failure> {
        let row = find::lrp(&self.client, guid).await?.row;
        find::whose(self.global, format!("process {guid}"), row.domain.clone())?;
        let instances = if self.output.is_human_readable() {
            self.client.instances(&ListFilter::process(guid.clone())).await?.rows
        } else {
            vec![]
        };
        self.output.one(&row, |row, look| rows::lrp(row, &instances, look))
    }

    async fn update(
        &self,
        guid: &ProcessGuid,
        update: DesiredLrpUpdate,
        did: &str,
        detach: bool,
    ) -> Result<(), Failure> {
        let (_, client) = self.known(guid, "change").await?;
        let changed = client.update_lrp(guid.clone(), update).await;
        let done =
            changed.map_err(|error| Failure::from(error).while_doing(format!("change process {guid}")))?;
        self.settle_and_print(guid, done, did, WaitCondition::Instances, detach).await
    }

    async fn remove(&self, guid: &ProcessGuid, detach: bool) -> Result<(), Failure> {
        let (_, client) = self.known(guid, "remove").await?;
        let removed = client.remove_lrp(guid.clone()).await;
        let done =
            removed.map_err(|error| Failure::from(error).while_doing(format!("remove process {guid}")))?;
        self.settle_and_print(guid, done, "removed", WaitCondition::Instances, detach).await
    }

    /// Waits until the change has been carried out, unless `detach` is set, and prints the result.
    pub(super) async fn settle_and_print(
        &self,
        guid: &ProcessGuid,
        done: Ack,
        did: &str,
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
            WaitResult::Detached | WaitResult::Interrupted if did == UNCHANGED => (false, String::new()),
            WaitResult::Detached => (false, "; the change is in progress".to_owned()),
            WaitResult::Interrupted => {
                (false, format!("; the change is still in progress, see muster lrp show {guid}"))
            }
        };
        let to = definition_id.map(|id| format!(" to {id}")).unwrap_or_default();
        let text = match did {
            UNCHANGED => format!("process {guid} unchanged{end}"),
            did => format!("process {guid} {did}{to}{end}"),
        };
        let Ack { position, version } = done;
        let changed = ChangeResult { process_guid: guid, did, definition_id, carried_out, position, version };
        self.tell(&changed, &text)?;
        // Ctrl-C ends the whole command, including the work that would follow.
        if watched == WaitResult::Interrupted { Err(Failure::silent(Exit::Interrupted)) } else { Ok(()) }
    }

    /// Returns `false` if the target definition has no monitor. Its instances are RUNNING as soon as they
    /// start, even if they crash a moment later.
    async fn is_monitored(&self, guid: &ProcessGuid) -> bool {
        let lrp = self.client.lrp(guid).await.ok().and_then(|one| one.row.to_desired());
        lrp.is_none_or(|lrp| lrp.definition.monitor.is_some())
    }

    /// Prints the result.
    pub(super) fn tell(&self, changed: &ChangeResult<'_>, text: &str) -> Result<(), Failure> {
        self.output.next(changed, |_, _| text.to_owned())
    }
}

/// Returns the target definition of the last rollout that started in `events`.
fn target(events: &[Event]) -> Option<DefinitionId> {
    events.iter().rev().find_map(|event| match event {
        Event::Rollout(rollout_events::Event::Started { target, .. }) => Some(target.clone()),
        Event::Rollout(_)
        | Event::Desired(_)
        | Event::Actual(_)
        | Event::Evacuating(_)
        | Event::Evaluation(_)
        | Event::Task(_)
        | Event::Periodic(_)
        | Event::Parameterised(_)
        | Event::Domain(_)
        | Event::Cell(_)
        | Event::Cluster(_) => None,
    })
}

/// Merges an update: the command line takes precedence over the file. Fields that neither sets stay
/// unchanged.
fn with(found: &ProcessInFile, update: DesiredLrpUpdate) -> DesiredLrpUpdate {
    let lrp = &found.lrp;
    let named = |fields: &[&str]| fields.iter().any(|field| found.fields.contains(*field));
    DesiredLrpUpdate {
        instances: update.instances.or_else(|| named(&["instances"]).then_some(lrp.instances)),
        priority: update.priority.or_else(|| named(&["priority"]).then_some(lrp.priority)),
        routes: update.routes.or_else(|| named(&["routes"]).then(|| lrp.routes.clone())),
        annotation: update.annotation.or_else(|| named(&["annotation"]).then(|| lrp.annotation.clone())),
        policies: named(&["update", "rollback", "min_running", "restart"]).then(|| lrp.policies.clone()),
    }
}

fn desire_failure(failure: Failure, guid: &ProcessGuid) -> Failure {
    failure
        .while_doing(format!("desire process {guid}"))
        .advise_if_exit(
            Exit::Conflict,
            format!("update it: muster lrp apply FILE, or scale it: muster lrp scale {guid}=N"),
        )
        .advise_if_exit(Exit::Conflict, format!("or remove it first: muster lrp remove {guid}"))
}

/// Parses `GUID=N ...` or `GUID N`.
fn parse_scale(words: &[String]) -> Result<Vec<(ProcessGuid, u32)>, Failure> {
    let one = |guid: &str, instances: &str| {
        let guid = ProcessGuid::new(guid).map_err(|bad| Failure::usage(bad.to_string()))?;
        let instances = number(0..=INSTANCES)(instances)
            .map_err(|bad| Failure::from(bad).while_doing(format!("scale process {guid}")))?;
        Ok((guid, instances))
    };
    match words {
        [guid, number] if !guid.contains('=') && !number.contains('=') => Ok(vec![one(guid, number)?]),
        words => words
            .iter()
            .map(|word| {
                let wrong = || InvalidValue::new("scale", word, "GUID=N, such as web=3");
                let (guid, instances) = word.split_once('=').ok_or_else(wrong)?;
                one(guid, instances)
            })
            .collect(),
    }
}

/// Reads routing data from a file: an object with one entry per router. The value of an entry may be any JSON
/// and is stored as text.
fn read_routes(path: &Path) -> Result<Routes, Failure> {
    match file::read_value(path)? {
        Value::Object(routers) => {
            Ok(routers.into_iter().map(|(name, data)| (name, data.to_string())).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            let why = format!(
                "{} is not routing data: expected an object with one entry for each router",
                path.display()
            );
            Err(Failure::new(Exit::Failed, "InvalidRequest", why))
        }
    }
}

#[cfg(test)]
mod tests {
    use schemas::rank::Priority;

    use super::*;

    #[test]
    fn parse_scale_accepts_pairs_and_rejects_invalid_ones() {
        let read = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            parse_scale(&words)
                .map(|all| all.iter().map(|(guid, n)| format!("{guid}:{n}")).collect::<Vec<_>>())
        };
        assert_eq!(read(&["web=3"]).unwrap(), ["web:3"]);
        assert_eq!(read(&["web", "3"]).unwrap(), ["web:3"]);
        assert_eq!(read(&["web=3", "api=0"]).unwrap(), ["web:3", "api:0"]);
        for bad in
            [&["web"][..], &["web=-1"], &["web=x"], &["a b=1"], &["web", "x"], &["web", "3", "4"], &["=3"]]
        {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn update_changes_only_named_fields() {
        let found = |fields: &[&str]| ProcessInFile {
            lrp: DesiredLrp { annotation: "of the file".into(), ..fixtures::lrp("web", "shop", 5) },
            fields: fields.iter().map(|field| (*field).to_owned()).collect(),
        };
        let nothing = DesiredLrpUpdate::default();
        assert_eq!(with(&found(&["action", "memory_mb"]), nothing.clone()), nothing);
        let all =
            with(&found(&["instances", "priority", "routes", "annotation", "min_running"]), nothing.clone());
        assert_eq!((all.instances, all.annotation.as_deref()), (Some(5), Some("of the file")));
        assert!(all.routes.is_some() && all.policies.is_some() && all.priority == Some(Priority::default()));
        let flag = DesiredLrpUpdate { instances: Some(2), ..nothing };
        assert_eq!(with(&found(&["instances"]), flag.clone()), flag, "the command line takes precedence");
    }

    #[test]
    fn desire_of_existing_process_fails_with_advice() {
        let refusal = schemas::Refusal::new(schemas::Code::ResourceExists, "process web is already desired");
        let failure = desire_failure(refusal.into(), &ProcessGuid::new("web").unwrap());
        assert_eq!(
            failure.text(false),
            "error: can't desire process web: process web is already desired (ResourceExists)\n  \
             update it: muster lrp apply FILE, or scale it: muster lrp scale web=N\n  \
             or remove it first: muster lrp remove web"
        );
    }
}
