//! `muster lrp rollout`: commands for the rollout of a process.

use clap::Subcommand;
use cli_base::failure::Failure;
use cli_base::moment::AsOfOption;
use cli_base::options::Global;
use cli_base::output::note;
use client::ListFilter;
use runtime::exit::Exit;
use schemas::Position;
use schemas::limits::INSTANCES;
use schemas::message::Ack;
use schemas::names::ProcessGuid;
use schemas::process::RolloutControl;
use schemas::query::LrpRow;
use schemas::rollout::Kind;
use text::describe::rollout_name;
use text::words::number;

use super::arguments::WaitArgs;
use super::progress::WaitCondition;
use super::rollout_history::{last_crash, past};
use super::rows::{self, RolloutStatus};
use super::session::{ChangeResult, Session};
use super::{find, waits};

/// Subcommands of `muster lrp rollout`.
#[derive(Clone, Debug, Subcommand)]
pub enum RolloutVerb {
    /// Show the progress of the rollout, and why it waits
    Status {
        /// Guid of the process
        guid: ProcessGuid,
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Follow the rollout until it ends
    Watch {
        /// Guid of the process
        guid: ProcessGuid,
    },
    /// Pause the rollout: no further index is replaced
    Pause {
        /// Guid of the process
        guid: ProcessGuid,
    },
    /// Resume a paused rollout
    Resume {
        /// Guid of the process
        guid: ProcessGuid,
        #[command(flatten)]
        wait: WaitArgs,
    },
    /// List the newest rollouts of a process. An existing process has those since its creation, a removed one all
    /// of its rollouts in the log
    History {
        /// Guid of the process
        guid: ProcessGuid,
        /// Maximum number of rollouts
        #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = number(1..=INSTANCES), allow_negative_numbers = true)]
        limit: u32,
        #[command(flatten)]
        at: AsOfOption,
    },
}

pub(crate) async fn run(verb: RolloutVerb, global: &Global) -> Result<(), Failure> {
    let session = Session::open(global).await?;
    match verb {
        RolloutVerb::Status { guid, .. } => session.rollout_status(&guid).await,
        RolloutVerb::Watch { guid } => session.watch_rollout(&guid).await,
        RolloutVerb::Pause { guid } => session.pause(&guid).await,
        RolloutVerb::Resume { guid, wait } => session.resume(&guid, wait.detach).await,
        RolloutVerb::History { guid, limit, .. } => session.rollout_history(&guid, limit).await,
    }
}

impl Session<'_> {
    async fn rollout_status(&self, guid: &ProcessGuid) -> Result<(), Failure> {
        let lrp = self.existing(guid, "show the rollout of").await?.0;
        let Some(rollout) = &lrp.rollout else { return Err(no_rollout(guid)) };
        let instances = self.client.instances(&ListFilter::process(guid.clone())).await?.rows;
        let last_crash = last_crash(&self.client, guid, rollout).await?;
        let status = RolloutStatus { waits: waits::waiting_reason(&lrp, &instances), last_crash, lrp };
        self.output.write_one(&status, rows::rollout)
    }

    async fn watch_rollout(&self, guid: &ProcessGuid) -> Result<(), Failure> {
        let (lrp, _) = self.existing(guid, "watch the rollout of").await?;
        let Some(rollout) = &lrp.rollout else { return Err(no_rollout(guid)) };
        let done = Ack { position: Position(0), version: lrp.version };
        let action = match rollout.kind {
            Kind::Update => "rolled out",
            Kind::Rollback => "rolled back",
        };
        self.settle_and_print(guid, done, action, WaitCondition::Rollout(&rollout.target), false).await
    }

    async fn pause(&self, guid: &ProcessGuid) -> Result<(), Failure> {
        let (done, lrp) = self.steer(guid, RolloutControl::Pause, "pause").await?;
        let rollout = lrp.rollout.as_ref();
        let name = rollout.map(|rollout| rollout_name(rollout.kind, &rollout.target)).unwrap_or_default();
        let changed = ChangeResult {
            process_guid: guid,
            action: "paused",
            definition_id: rollout.map(|rollout| &rollout.target),
            carried_out: true,
            position: done.position,
            version: done.version,
        };
        self.tell(&changed, &format!("the {name} of process {guid} is paused"))
    }

    async fn resume(&self, guid: &ProcessGuid, detach: bool) -> Result<(), Failure> {
        let (done, lrp) = self.steer(guid, RolloutControl::Resume, "resume").await?;
        let target = lrp.rollout.map(|rollout| rollout.target);
        let asked = target.as_ref().map_or(WaitCondition::Instances, WaitCondition::Rollout);
        self.settle_and_print(guid, done, "resumed", asked, detach).await
    }

    /// Ends the rollout in progress, and returns the process to the definition before the rollout.
    pub(super) async fn end_rollout(&self, guid: &ProcessGuid, detach: bool) -> Result<(), Failure> {
        let (done, _) = self.steer(guid, RolloutControl::RollBack, "roll back").await?;
        let target = self.started_rollout(guid, &done).await?;
        let asked = target.as_ref().map_or(WaitCondition::Instances, WaitCondition::Rollout);
        self.settle_and_print(guid, done, "rolled back", asked, detach).await
    }

    async fn rollout_history(&self, guid: &ProcessGuid, limit: u32) -> Result<(), Failure> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        // The log still has the rollouts of a removed process.
        let all = past(&self.client, guid, limit).await?;
        if all.is_empty() {
            self.existing(guid, "show the rollouts of").await?;
        }
        if all.first().is_some_and(|first| first.number > 1) && all.len() == limit {
            note("older rollouts are not shown: see --limit");
        }
        self.output.write_rows(&all, rows::rollouts)
    }

    /// Sends a steering command to the rollout of a process. Returns the updated row as well.
    async fn steer(
        &self,
        guid: &ProcessGuid,
        steer: RolloutControl,
        what: &str,
    ) -> Result<(Ack, LrpRow), Failure> {
        let what = format!("{what} the rollout of");
        let (_, client) = self.existing(guid, &what).await?;
        let doing = |failure: Failure| failure.while_doing(format!("{what} process {guid}"));
        let steered = client.steer_lrp(guid.clone(), steer).await.map_err(Failure::from).map_err(doing);
        let advice = match steer {
            RolloutControl::RollBack => {
                format!("if the rollout has just ended, try again: muster lrp rollback {guid}")
            }
            RolloutControl::Pause | RolloutControl::Resume => format!("see muster lrp rollout status {guid}"),
        };
        let done = steered.map_err(|failure| failure.advise_if_exit(Exit::Conflict, advice))?;
        Ok((done, find::lrp(&self.client, guid).await.map_err(Failure::from).map_err(doing)?.row))
    }
}

fn no_rollout(guid: &ProcessGuid) -> Failure {
    let why = format!("process {guid} has had no rollout yet");
    let failure = Failure::new(Exit::NotFound, "ResourceNotFound", why);
    failure.advise("rollouts are started by muster apply, muster lrp activate and muster lrp restart")
}
