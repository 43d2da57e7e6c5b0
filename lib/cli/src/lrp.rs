//! `muster lrp`: commands for desired LRPs (processes).

use std::path::{Path, PathBuf};

use clap::Subcommand;
use cli_base::failure::Failure;
use cli_base::file;
use cli_base::moment::AsOfOption;
use cli_base::options::Global;
use client::ListFilter;
use runtime::exit::Exit;
use schemas::definition::{DesiredLrpUpdate, Routes};
use schemas::limits::INSTANCES;
use schemas::names::{DefinitionId, ProcessGuid};
use schemas::priority::Priority;
use schemas::process::Purpose;
use schemas::query::LrpRow;
use schemas::spec::Item;
use serde_json::Value;
use text::words::{InvalidValue, number};

use super::arguments::{WaitArgs, parse_priority};
use super::batch::Batch;
use super::progress::WaitCondition;
use super::rollout::{self, RolloutVerb};
use super::session::{Session, UNCHANGED};
use super::{find, rollback, rows};

/// Subcommands of `muster lrp`.
#[derive(Clone, Debug, Subcommand)]
pub enum LrpVerb {
    /// List processes
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Show a process, its definition and its instances; -o toml writes the definition as a file for apply
    Show {
        /// Guid of the process
        guid: ProcessGuid,
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Change the number of instances: GUID=N..., or GUID N
    Scale {
        /// One or more GUID=N, or GUID N for a single process
        #[arg(required = true, value_name = "GUID=N")]
        counts: Vec<String>,
        #[command(flatten)]
        wait: WaitArgs,
    },
    /// Change single fields of a process: instances, priority, routes or annotation. Nothing is restarted
    Update {
        /// Guid of the process
        guid: ProcessGuid,
        /// Number of instances
        #[arg(long, value_name = "N", value_parser = number(0..=INSTANCES), allow_negative_numbers = true)]
        instances: Option<u32>,
        /// Priority, 1 to 100: a higher priority is placed first
        #[arg(long, value_name = "N", value_parser = parse_priority, allow_negative_numbers = true)]
        priority: Option<Priority>,
        /// TOML or JSON file with routing data: an arbitrary value for each router
        #[arg(long, value_name = "FILE")]
        routes: Option<PathBuf>,
        /// Annotation, any text
        #[arg(long, value_name = "TEXT")]
        annotation: Option<String>,
        #[command(flatten)]
        wait: WaitArgs,
    },
    /// Switch to a definition that the process already has
    Activate {
        /// Guid of the process
        guid: ProcessGuid,
        /// Id of the definition, as listed by muster lrp show GUID
        definition: DefinitionId,
        #[command(flatten)]
        wait: WaitArgs,
    },
    /// Replace every instance by one of the same definition: a rollout
    Restart {
        /// Guid of the process
        guid: ProcessGuid,
        #[command(flatten)]
        wait: WaitArgs,
    },
    /// Spread the instances evenly over the cells: a rollout replaces all of them one after the other. Does
    /// nothing if that would not improve the spread
    Rebalance {
        /// Guid of the process
        guid: ProcessGuid,
        #[command(flatten)]
        wait: WaitArgs,
    },
    /// Return to an earlier definition, by a rollout. Other changes stay. If a rollout is
    /// under way, it ends, and the process returns to the definition before it
    Rollback {
        /// Guid of the process
        guid: ProcessGuid,
        /// Definition to return to, or a moment at which that definition was active: a log position, a time,
        /// or a time ago such as -10m [default: the most recent other definition that was not rolled back]
        #[arg(long, value_name = "DEFINITION|MOMENT", allow_hyphen_values = true)]
        to: Option<String>,
        #[command(flatten)]
        wait: WaitArgs,
    },
    /// Manage rollouts, which replace the instances of one definition with instances of another
    #[command(subcommand)]
    Rollout(RolloutVerb),
    /// Delete processes and stop their instances
    #[command(aliases = ["rm", "remove"])]
    Delete {
        /// Guids of the processes
        #[arg(required = true, value_name = "GUID")]
        guids: Vec<ProcessGuid>,
        #[command(flatten)]
        wait: WaitArgs,
    },
}

pub(crate) async fn run(verb: LrpVerb, global: &Global) -> Result<(), Failure> {
    match verb {
        LrpVerb::List { .. } => Session::open(global).await?.list().await,
        LrpVerb::Show { guid, .. } => Session::open(global).await?.show(&guid).await,
        LrpVerb::Scale { counts, wait } => {
            let wanted = parse_scale(&counts)?;
            let session = Session::open(global).await?;
            let mut several = Batch::new(global, wanted.len());
            for (guid, instances) in wanted {
                let update = DesiredLrpUpdate { instances: Some(instances), ..DesiredLrpUpdate::default() };
                several.record(session.update(&guid, update, "scaled", wait.detach).await)?;
            }
            several.finish()
        }
        LrpVerb::Update { guid, instances, priority, routes, annotation, wait } => {
            // The file is parsed before the client connects, so an invalid file is reported even without a
            // cluster.
            let routes = routes.map(|file| read_routes(&file)).transpose()?;
            let update = DesiredLrpUpdate { instances, priority, routes, annotation, policies: None };
            if update == DesiredLrpUpdate::default() {
                let why =
                    "no change is requested: expected --instances, --priority, --routes or --annotation";
                return Err(Failure::usage(why).advise("to change the definition: muster apply FILE"));
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
        LrpVerb::Delete { guids, wait } => {
            let session = Session::open(global).await?;
            let mut batch = Batch::new(global, guids.len());
            let mut deleted = vec![];
            for guid in guids {
                deleted.extend(batch.record(session.delete(&guid).await)?);
            }
            for change in deleted {
                batch.record(session.finish(change, wait.detach).await)?;
            }
            batch.finish()
        }
    }
}

impl Session<'_> {
    async fn list(&self) -> Result<(), Failure> {
        let only = find::only(self.global.domain.as_ref());
        // A table is too narrow for definitions. Machine-readable output includes them.
        let listed = if self.output.is_human_readable() {
            self.client.lrps(&only).await?
        } else {
            self.client.lrps_with_definitions(&only).await?
        };
        self.output.write_rows(&listed.rows, rows::lrps)
    }

    async fn show(&self, guid: &ProcessGuid) -> Result<(), Failure> {
        let row = find::lrp(&self.client, guid).await?.row;
        find::check_domain(self.global, format!("process {guid}"), row.domain.clone())?;
        let instances = if self.output.is_human_readable() {
            self.client.instances(&ListFilter::process(guid.clone())).await?.rows
        } else {
            vec![]
        };
        let item = |row: &LrpRow| row.to_desired().map(|lrp| Item::Lrp(Box::new(lrp)));
        self.output.write_details(&row, item, |row, look| rows::lrp(row, &instances, look))
    }

    async fn update(
        &self,
        guid: &ProcessGuid,
        update: DesiredLrpUpdate,
        action: &str,
        detach: bool,
    ) -> Result<(), Failure> {
        let (_, client) = self.existing(guid, "change").await?;
        let changed = client.update_lrp(guid.clone(), update).await;
        let done =
            changed.map_err(|error| Failure::from(error).while_doing(format!("change process {guid}")))?;
        self.settle_and_print(guid, done, action, WaitCondition::Instances, detach).await
    }

    async fn activate(&self, guid: &ProcessGuid, id: DefinitionId, detach: bool) -> Result<(), Failure> {
        let doing =
            |failure: Failure| failure.while_doing(format!("activate definition {id} of process {guid}"));
        let (_, client) = self.existing(guid, "change").await?;
        let done =
            client.activate_lrp(guid.clone(), id.clone()).await.map_err(|error| doing(error.into()))?;
        let action = if self.decided(guid, &done).await?.is_empty() { UNCHANGED } else { "updated" };
        self.settle_and_print(guid, done, action, WaitCondition::Rollout(&id), detach).await
    }

    async fn restart(&self, guid: &ProcessGuid, detach: bool) -> Result<(), Failure> {
        let (_, client) = self.existing(guid, "restart").await?;
        self.replace_all(guid, &client, Purpose::Restart, detach).await
    }
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

/// Reads routing data from a file: an object with one entry per router. The value of an entry may be any
/// JSON, and is stored as text.
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
}
