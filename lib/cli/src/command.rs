//! Commands of the client. Each verb defines its own arguments.

use std::path::PathBuf;

use clap::Subcommand;
use cli_base::moment::AsOfOption;

use super::apply::{ApplyArgs, DeleteArgs};
use super::audit::AuditVerb;
use super::auth::AuthVerb;
use super::bundle::BundleArgs;
use super::changes::DiffArgs;
use super::completion::CompletionShell;
use super::dead_letters::DeadLettersVerb;
use super::doctor::DoctorArgs;
use super::evaluation::EvaluationVerb;
use super::events::EventsVerb;
use super::fleet::{CellVerb, ClusterVerb, DomainVerb};
use super::history::History;
use super::install::InstallArgs;
use super::instance::InstanceVerb;
use super::journal::JournalVerb;
use super::log::{ExportArgs, ImportArgs};
use super::logs::LogsArgs;
use super::lrp::LrpVerb;
use super::parameterised::ParameterisedVerb;
use super::periodic::PeriodicVerb;
use super::probe::ProbeArgs;
use super::projection::ProjectionVerb;
use super::ps::PsArgs;
use super::run::RunArgs;
use super::schema::SchemaVerb;
use super::secrets::SecretsVerb;
use super::sql::SqlArgs;
use super::task::TaskVerb;
use super::trace::TraceArgs;
use super::what_if::WhatIfArgs;
use super::why::WhyArgs;

/// Commands of the client.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Create or update everything that files describe; applying the same files again changes nothing
    Apply(ApplyArgs),
    /// Delete everything that files describe
    Delete(DeleteArgs),
    /// Run a program or the tasks of a file; wait for the end
    Run(RunArgs),
    /// List instances and tasks
    Ps(PsArgs),
    /// Show the output of a process, an instance or a task
    #[command(alias = "log")]
    Logs(LogsArgs),
    /// Manage long-running processes (desired LRPs)
    #[command(subcommand, aliases = ["lrps", "process", "processes", "desired-lrp"])]
    Lrp(LrpVerb),
    /// Manage instances of processes (actual LRPs)
    #[command(subcommand, aliases = ["instances", "actual-lrp"])]
    Instance(InstanceVerb),
    /// Manage tasks, which run once
    #[command(subcommand, alias = "tasks")]
    Task(TaskVerb),
    /// Manage periodic tasks, which are launched on a schedule
    #[command(subcommand)]
    Periodic(PeriodicVerb),
    /// Manage parameterised tasks: templates that create a task for each dispatch
    #[command(subcommand)]
    Parameterised(ParameterisedVerb),
    /// Manage domains, their freshness and their quotas
    #[command(subcommand, aliases = ["domains", "namespace"])]
    Domain(DomainVerb),
    /// Manage cells, which run instances and tasks
    #[command(subcommand, aliases = ["cells", "node", "nodes"])]
    Cell(CellVerb),
    /// Manage the cluster as a whole
    #[command(subcommand)]
    Cluster(ClusterVerb),
    /// Show the health of the cluster on one screen: exits 0 if it is healthy, 11 if degraded, 12 if
    /// unhealthy
    Status {
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Diagnose the cluster and suggest fixes: checks the connection, the stream, clocks, permissions, the
    /// database, cells and this host. Changes nothing; exits 0 if no check failed, 9 if one did, 5 if the
    /// cluster does not answer
    Doctor(DoctorArgs),
    /// Write systemd units for services, and their files
    Install(InstallArgs),
    /// Inspect and retry evaluations: every scheduling attempt and its cause
    #[command(subcommand)]
    Evaluation(EvaluationVerb),
    /// Read events from the log
    #[command(subcommand)]
    Events(EventsVerb),
    /// Maintain the journal that stores the log
    #[command(subcommand)]
    Journal(JournalVerb),
    /// Manage key files for secrets, which every BBS and rep is started with
    #[command(subcommand)]
    Secrets(SecretsVerb),
    /// Manage users of the NATS server: their roles, keys and certificates, and the server's configuration
    #[command(subcommand)]
    Auth(AuthVerb),
    /// Check the health of a service: exits 0 if it works, 1 if not, 5 if it does not answer. The service was
    /// started with --metrics
    Probe(ProbeArgs),
    /// Show every decision about a process, an instance, a task, a periodic or parameterised task, or a cell
    #[command(subcommand)]
    History(History),
    /// Show instances and events, live
    Watch,
    /// Show the cluster on a terminal, live: cells, processes, rollouts and rates; keys open details
    Top,
    /// Explain why an instance or a task is where it is; or why no cell accepts it. The explanation starts at
    /// the current state and goes back to the first command
    Why(WhyArgs),
    /// Show changes between two moments, object by object: exits 0 if there are none, else 13
    Diff(DiffArgs),
    /// Simulate a change of the recorded cluster. Runs in virtual time; writes nothing; exits 6 if not
    /// everything can be placed
    WhatIf(WhatIfArgs),
    /// Query the tables of the cluster in SQL, read-only: every recorded event, and the current state
    Sql(SqlArgs),
    /// Verify and rebuild the tables of a database
    #[command(subcommand)]
    Projection(ProjectionVerb),
    /// List, retry and skip journal entries that projections skipped or cannot process
    #[command(subcommand)]
    DeadLetters(DeadLettersVerb),
    /// Show everything that one command caused: a tree with durations, however old the command is
    Trace(TraceArgs),
    /// Write the log to a file: as lines that muster import restores byte for byte, or as events or columns
    /// for other programs
    Export(ExportArgs),
    /// Import an export into an empty journal: a data folder (--data) or a NATS server (--nats). Positions,
    /// bytes and state stay the same
    Import(ImportArgs),
    /// Sign the log, and verify that it is unchanged
    #[command(subcommand)]
    Audit(AuditVerb),
    /// Pack an incident into a folder: the log from its start until --minutes after the incident, reports on
    /// the cluster, and replay instructions
    Bundle(BundleArgs),
    /// Print JSON Schemas of events, commands, queries and rows, for other programs
    #[command(subcommand)]
    Schema(SchemaVerb),
    /// Print a completion script for a shell
    ///
    /// bash: add `source <(muster completion bash)` to ~/.bashrc
    /// zsh: add `source <(muster completion zsh)` to ~/.zshrc, after compinit
    /// fish: muster completion fish > ~/.config/fish/completions/muster.fish
    ///
    /// Names of processes, instances, tasks and cells are read from the cluster
    /// that the options on the line or the environment select
    #[command(verbatim_doc_comment)]
    Completion {
        /// Shell to complete for
        shell: CompletionShell,
    },
    /// Write man pages to a folder
    Man {
        /// Existing folder
        folder: PathBuf,
    },
    /// Print the version of this program
    Version,
    /// Print the help of a command; muster help all lists every command
    #[command(disable_help_flag = true)]
    Help {
        /// Words of the command, or all
        #[arg(value_name = "COMMAND")]
        words: Vec<String>,
    },
}
