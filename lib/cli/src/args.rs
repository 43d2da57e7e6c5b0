//! Command-line arguments of `muster`: clap definitions of its global options, commands and options.

use std::path::PathBuf;
use std::time::Duration;

use audit::checkpoint::PublicKey;
use clap::{Args, Subcommand, ValueEnum};
use cli_base::moment::{self, AsOfOption};
use host::otlp::Collector;
use host::serve::parse_replicas;
use schemas::Position;
use schemas::limits::{INSTANCES, MAX_PRIORITY, MIN_PRIORITY};
use schemas::names::{
    CellId, DefinitionId, DispatchKey, Domain, EvaluationId, ParameterisedGuid, PeriodicGuid, ProcessGuid,
    TaskGuid,
};
use schemas::priority::Priority;
use schemas::query::AsOf;
use schemas::subject::MAX_SHARDS;
use text::words::{InvalidValue, number, parse_duration};

use super::apply::{ApplyArgs, DeleteArgs};
use super::auth::AuthVerb;
use super::completion::CompletionShell;
use super::dead_letters::DeadLettersVerb;
use super::doctor::DoctorArgs;
use super::install::InstallArgs;
use super::logs::LogsArgs;
use super::probe::ProbeArgs;
use super::projection::{DatabaseOption, ProjectionVerb};
use super::ps::PsArgs;
use super::run::RunArgs;
use super::trace::IdQuery;
use super::what_if::WhatIfArgs;
use crate::founding::FoundArgs;

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
    Why {
        /// PROCESS/INDEX, PROCESS/INDEX@DEFINITION, a prefix or suffix of an instance guid, or a task
        id: String,
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Show changes between two moments, object by object: exits 0 if there are none, else 13
    Diff {
        /// Earlier moment: a log position, a time (UTC, or local as "2026-10-02 14:00"), or a time ago such
        /// as -10m
        #[arg(long, value_name = "MOMENT", value_parser = moment::parse, allow_hyphen_values = true)]
        from: AsOf,
        /// Later moment [default: now]
        #[arg(long, value_name = "MOMENT", value_parser = moment::parse, allow_hyphen_values = true)]
        to: Option<AsOf>,
        /// Only changes of this object: lrp:GUID with its instances, task:GUID, periodic:GUID,
        /// parameterised:GUID, cell:ID or domain:NAME
        #[arg(long, value_parser = parse_about, value_name = "THING")]
        about: Option<String>,
    },
    /// Simulate a change of the recorded cluster. Runs in virtual time; writes nothing; exits 6 if not
    /// everything can be placed
    WhatIf(WhatIfArgs),
    /// Query the tables of the cluster in SQL, read-only: every recorded event, and the current state
    Sql {
        /// SQL query, such as "SELECT count(*) FROM events"
        question: String,
        #[command(flatten)]
        of: DatabaseOption,
        /// Show the state at a past moment: a position of the log, a time (UTC, or local as "2026-10-02 14:00"),
        /// or a time ago such as -10m
        #[arg(id = "log_as_of", long = "as-of", value_name = "MOMENT", value_parser = moment::parse, allow_hyphen_values = true)]
        as_of: Option<AsOf>,
    },
    /// Verify and rebuild the tables of a database
    #[command(subcommand)]
    Projection(ProjectionVerb),
    /// List, retry and skip journal entries that projections skipped or cannot process
    #[command(subcommand)]
    DeadLetters(DeadLettersVerb),
    /// Show everything that one command caused: a tree with durations, however old the command is
    Trace {
        /// Decision, correlation or evaluation id, instance guid (whole, or a prefix or suffix of at least 8
        /// characters), or request id
        #[arg(value_parser = IdQuery::parse)]
        id: IdQuery,
        /// Also send the trace as OpenTelemetry spans (OTLP over HTTP, JSON) to this collector; a URL without
        /// a path gets /v1/traces
        #[arg(long, value_parser = Collector::parse, value_name = "URL")]
        otlp: Option<Collector>,
    },
    /// Write the log to a file: as lines that muster import restores byte for byte, or as events or columns
    /// for other programs
    Export {
        /// File to write; - is standard output
        file: PathBuf,
        /// First position to export, or the earliest decision time [default: the start of the log]
        #[arg(long, value_name = "MOMENT", value_parser = moment::parse, allow_hyphen_values = true)]
        from: Option<AsOf>,
        /// Last position to export, or the latest decision time [default: the end of the log]
        #[arg(long, value_name = "MOMENT", value_parser = moment::parse, allow_hyphen_values = true)]
        to: Option<AsOf>,
        /// Format of the file
        #[arg(long, value_enum, default_value_t)]
        format: ExportFormat,
    },
    /// Import an export into an empty journal: a data folder (--data) or a NATS server (--nats). Positions,
    /// bytes and state stay the same
    Import {
        /// File written by muster export
        file: PathBuf,
        /// Continue an interrupted import of the same file
        #[arg(long = "continue")]
        goes_on: bool,
        /// NATS servers that must store each entry, if the stream is created: 1, 3 or 5
        #[arg(long, default_value_t = 1, value_parser = parse_replicas, allow_negative_numbers = true, env = "MUSTER_REPLICAS")]
        replicas: usize,
    },
    /// Sign the log, and verify that it is unchanged
    #[command(subcommand)]
    Audit(AuditVerb),
    /// Pack an incident into a folder: the log from its start until --minutes after the incident, reports on
    /// the cluster, and replay instructions
    Bundle {
        /// Moment of the incident: a log position, a time, or a time ago such as -10m
        #[arg(long, value_name = "MOMENT", value_parser = moment::parse, allow_hyphen_values = true)]
        around: AsOf,
        /// Minutes to include before and after the moment
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = number(0..=MAX_MINUTES), allow_negative_numbers = true)]
        minutes: u64,
        /// Folder to create
        folder: PathBuf,
    },
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

/// Subcommands of `muster schema`.
#[derive(Clone, Debug, Subcommand)]
pub enum SchemaVerb {
    /// List the schemas
    #[command(alias = "ls")]
    List,
    /// Print a schema
    Show {
        /// Event type such as actual.claimed.v1, command such as lrp.desire, query such as lrp.list, row such as `LrpRow`, or entry
        name: String,
    },
}

/// Option that makes a command return before the command has taken effect.
#[derive(Clone, Copy, Debug, Args)]
pub struct WaitArgs {
    /// Return as soon as the command is in the log
    #[arg(long, short, visible_alias = "no-wait")]
    pub(crate) detach: bool,
}

/// Option that ties a command to a plan.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct PlanArgs {
    /// Refuse the command if a decision about an object in the file was recorded after this position; a plan
    /// prints the position to pass
    #[arg(long, value_name = "POSITION", value_parser = parse_position)]
    pub(crate) if_position: Option<Position>,
}

/// Subcommands of `muster lrp`.
#[derive(Clone, Debug, Subcommand)]
pub enum LrpVerb {
    /// List processes
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Show a process, its definition and its instances
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

/// Subcommands of `muster instance`.
#[derive(Clone, Debug, Subcommand)]
pub enum InstanceVerb {
    /// List instances
    #[command(alias = "ls")]
    List {
        /// Only instances of this process
        #[arg(long, visible_alias = "process", value_name = "GUID")]
        lrp: Option<ProcessGuid>,
        /// Only instances on this cell
        #[arg(long, value_name = "ID")]
        cell: Option<CellId>,
        /// List ended instances instead: the newest ones of each index, with the reason for their end
        #[arg(long, conflicts_with_all = ["state", "all"])]
        ended: bool,
        /// With --ended and --lrp: only this index of the process
        #[arg(long, value_name = "N")]
        index: Option<u32>,
        /// Only instances in this state: unclaimed, claimed, running, crashed
        #[arg(long, ignore_case = true, value_parser = ["unclaimed", "claimed", "running", "crashed"])]
        state: Option<String>,
        /// Both records of an evacuating instance, not only the one that counts
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Show an instance
    Show {
        /// PROCESS/INDEX, PROCESS/INDEX@DEFINITION, or a prefix or suffix of an instance guid
        id: String,
        #[command(flatten)]
        at: AsOfOption,
    },
    /// List a folder of an instance, or print a file. Paths are below its work directory
    Files {
        /// PROCESS/INDEX, PROCESS/INDEX@DEFINITION, or a prefix or suffix of an instance guid
        id: String,
        /// Path below the work directory [default: the work directory itself]
        #[arg(default_value = "", hide_default_value = true)]
        path: String,
    },
    /// Run a program in the container of an instance; exits with its status
    Exec(ExecArgs),
    /// Stop an instance; if it is still desired, a replacement starts
    Stop {
        /// PROCESS/INDEX, PROCESS/INDEX@DEFINITION, or a prefix or suffix of an instance guid
        id: String,
    },
}

/// Program to run in the container of an instance.
#[derive(Clone, Debug, Args)]
pub struct ExecArgs {
    /// PROCESS/INDEX, PROCESS/INDEX@DEFINITION, or a prefix or suffix of an instance guid
    pub(crate) id: String,
    /// Allocate a terminal [default: if standard input and output are terminals]
    #[arg(short, long)]
    pub(crate) tty: bool,
    /// Allocate no terminal
    #[arg(short = 'T', long, conflicts_with = "tty")]
    pub(crate) no_tty: bool,
    /// Send no standard input to the program
    #[arg(short = 'n', long)]
    pub(crate) no_stdin: bool,
    /// User that runs the program [default: the user of the action's first program]
    #[arg(short, long, value_name = "USER[:GROUP]", default_value = "", hide_default_value = true)]
    pub(crate) user: String,
    /// Folder to run in, below the work directory [default: the folder of the action's first program]
    #[arg(short = 'w', long, value_name = "FOLDER", default_value = "", hide_default_value = true)]
    pub(crate) dir: String,
    /// Program and its arguments; the log records them, so let the program read secrets itself
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<String>,
}

/// Subcommands of `muster task`.
#[derive(Clone, Debug, Subcommand)]
pub enum TaskVerb {
    /// List tasks
    #[command(alias = "ls")]
    List {
        /// List completed tasks that were deleted: the newest ones of each domain
        #[arg(long)]
        ended: bool,
        /// Only tasks on this cell
        #[arg(long, value_name = "ID")]
        cell: Option<CellId>,
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Show a task, its definition and its result
    Show {
        /// Guid of the task
        guid: TaskGuid,
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Cancel a task
    Cancel {
        /// Guid of the task
        guid: TaskGuid,
    },
    /// Resolve a completed task: acknowledge its outcome and delete it
    Resolve {
        /// Guid of the task
        guid: TaskGuid,
    },
}

/// Subcommands of `muster periodic`.
#[derive(Clone, Debug, Subcommand)]
pub enum PeriodicVerb {
    /// List periodic tasks
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Show a periodic task and its last launch
    Show {
        /// Guid of the periodic task
        guid: PeriodicGuid,
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Pause a periodic task: it launches nothing until it is resumed
    Pause {
        /// Guid of the periodic task
        guid: PeriodicGuid,
    },
    /// Resume a periodic task: its next launch is at the next due time
    Resume {
        /// Guid of the periodic task
        guid: PeriodicGuid,
    },
    /// Launch a task now, regardless of the schedule
    Launch {
        /// Guid of the periodic task
        guid: PeriodicGuid,
    },
    /// Delete a periodic task; tasks that it launched keep running
    #[command(aliases = ["rm", "remove"])]
    Delete {
        /// Guid of the periodic task
        guid: PeriodicGuid,
    },
}

/// Subcommands of `muster parameterised`.
#[derive(Clone, Debug, Subcommand)]
pub enum ParameterisedVerb {
    /// List parameterised tasks
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Show a parameterised task and its waiting dispatches
    Show {
        /// Guid of the parameterised task
        guid: ParameterisedGuid,
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Run a task from a template. It has its own payload and parameters
    Dispatch {
        /// Guid of the parameterised task
        guid: ParameterisedGuid,
        /// File with the payload, at most 16 KiB; - is standard input
        #[arg(long, value_name = "FILE")]
        payload: Option<PathBuf>,
        /// Parameter; may be repeated
        #[arg(long = "param", value_parser = parse_parameter, value_name = "NAME=VALUE")]
        parameters: Vec<(String, String)>,
        /// Idempotency key: a repeated dispatch with the same key creates no second task
        #[arg(long)]
        key: Option<DispatchKey>,
        /// Priority of the task, 1 to 100 [default: the priority in the template]
        #[arg(long, value_name = "N", value_parser = parse_priority, allow_negative_numbers = true)]
        priority: Option<Priority>,
        /// Wait until the task ends, and show its result
        #[arg(short, long)]
        wait: bool,
    },
    /// Cancel a waiting dispatch, so that it creates no task
    #[command(alias = "withdraw")]
    Cancel {
        /// Guid of the parameterised task
        guid: ParameterisedGuid,
        /// Number of the dispatch
        number: u64,
    },
    /// Delete a parameterised task; tasks that it launched keep running, waiting dispatches are cancelled
    #[command(aliases = ["rm", "remove"])]
    Delete {
        /// Guid of the parameterised task
        guid: ParameterisedGuid,
    },
}

/// Subcommands of `muster domain`.
#[derive(Clone, Debug, Subcommand)]
pub enum DomainVerb {
    /// List domains
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Show usage and quotas of a domain
    Show {
        /// Name of the domain
        #[arg(value_name = "DOMAIN")]
        name: Domain,
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Change quotas of a domain, as an operator; omitted quotas keep their values
    Limit {
        /// Name of the domain
        #[arg(value_name = "DOMAIN")]
        name: Domain,
        /// Desired instances of all processes
        #[arg(long, value_name = "N", value_parser = number(0..=u32::MAX), allow_negative_numbers = true)]
        instances: Option<u32>,
        /// Desired processes, tasks that are not deleted, periodic and parameterised tasks, counted together
        #[arg(long, value_name = "N", value_parser = number(0..=u32::MAX), allow_negative_numbers = true)]
        processes_and_tasks: Option<u32>,
        /// Commands per second of all clients together, at least 1
        #[arg(long, value_name = "N", value_parser = number(1..=u32::MAX), allow_negative_numbers = true)]
        commands_per_second: Option<u32>,
        /// Programs of `instance exec` that may run on one cell at the same time
        #[arg(long, value_name = "N", value_parser = number(0..=u32::MAX), allow_negative_numbers = true)]
        exec_sessions: Option<u32>,
    },
    /// Declare that the desired state is up to date: instances of the domain that are no longer desired are
    /// then stopped
    Refresh {
        /// Name of the domain
        #[arg(value_name = "DOMAIN")]
        name: Domain,
        /// Time for which the domain counts as up to date, such as 1h [default: without limit]
        #[arg(long, value_parser = parse_duration, value_name = "TIME")]
        ttl: Option<Duration>,
    },
}

/// Subcommands of `muster cell`.
#[derive(Clone, Debug, Subcommand)]
pub enum CellVerb {
    /// List cells
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Show a cell, with its instances and tasks
    Show {
        /// Id of the cell
        id: CellId,
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Move everything off a cell; it accepts no new work, and its rep exits when it is empty
    #[command(alias = "drain")]
    Evacuate {
        /// Id of the cell
        id: CellId,
        /// Wait until the containers of the cell are gone and its rep has left the cluster
        #[arg(long)]
        wait: bool,
    },
    /// Place no new work on a cell; running work stays
    Cordon {
        /// Id of the cell
        id: CellId,
    },
    /// Cancel a cordon or an evacuation: the cell accepts work again, and work that was not moved stays
    Uncordon {
        /// Id of the cell
        id: CellId,
    },
    /// Delete the record of an ABSENT cell: it is no longer listed
    #[command(aliases = ["rm", "remove", "forget"])]
    Delete {
        /// Id of the cell
        id: CellId,
    },
    /// Let a cell continue with a restored log. Without this command its rep accepts no leader, because the
    /// rep knows a later term from the lost log
    AcceptLog {
        /// Id of the cell
        id: CellId,
    },
}

/// Subcommands of `muster cluster`.
#[derive(Clone, Debug, Subcommand)]
pub enum ClusterVerb {
    /// Show services, leaders and counts of the cluster
    Show {
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Found a cluster on a NATS server that has none: creates the stream and writes its first entry
    Found(FoundArgs),
    /// Switch preemption on or off. With preemption, waiting work can stop running work whose priority is
    /// lower by 10 or more
    Preemption {
        /// New setting
        #[arg(value_enum)]
        switch: Switch,
    },
    /// Change the number of shards of the log. Shards are written concurrently; the number applies to the
    /// entries of processes and to those of tasks
    Shards {
        /// Number of shards, 1 to 1024; with more shards the log has more but smaller entries
        #[arg(value_name = "N", value_parser = number(1..=MAX_SHARDS), allow_negative_numbers = true)]
        number: u16,
    },
}

/// State of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Enabled
    On,
    /// Disabled
    Off,
}

/// Subcommands of `muster evaluation`.
#[derive(Clone, Debug, Subcommand)]
pub enum EvaluationVerb {
    /// List the open evaluations and the newest ended ones
    #[command(alias = "ls")]
    List {
        /// Only evaluations of this process
        #[arg(long, value_name = "GUID")]
        lrp: Option<ProcessGuid>,
        /// Only evaluations of this task
        #[arg(long, value_name = "GUID", conflicts_with = "lrp")]
        task: Option<TaskGuid>,
        /// Only open evaluations
        #[arg(long)]
        open: bool,
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Show an evaluation: its cause, its chain and its placements
    Show {
        /// Id of the evaluation, or a prefix or suffix of it
        id: String,
        #[command(flatten)]
        at: AsOfOption,
    },
    /// Follow an evaluation until it ends; or all evaluations
    Watch {
        /// Id of the evaluation, or a prefix or suffix of it [default: all evaluations]
        id: Option<String>,
    },
    /// Retry a delayed, blocked or failed evaluation now
    Retry {
        /// Id of the evaluation, or a prefix or suffix of it
        id: String,
    },
}

/// Subcommands of `muster journal`.
#[derive(Clone, Debug, Subcommand)]
pub enum JournalVerb {
    /// Quarantine a position: every service skips the entry. Use it for an entry that a newer
    /// version wrote, because every BBS stops at such an entry. If no BBS answers, the command writes the
    /// quarantine record directly to the journal
    #[command(aliases = ["set-aside", "skip"])]
    Quarantine {
        /// Position of the entry in the log
        #[arg(value_parser = parse_position)]
        position: Position,
    },
    /// Turn off compression of the journal's stream. The command needs
    /// the credentials of an admin of the NATS server. It changes no entry, and services may keep running
    Migrate,
}

/// Path of a key file.
#[derive(Clone, Debug, Args)]
pub struct KeyFile {
    /// Key file [default: the key file in the data folder of muster dev]
    #[arg(value_name = "FILE", env = "MUSTER_SECRETS")]
    pub(crate) file: Option<PathBuf>,
}

/// Subcommands of `muster secrets`.
#[derive(Clone, Debug, Subcommand)]
pub enum SecretsVerb {
    /// Create a key file with a first key
    Init {
        #[command(flatten)]
        keys: KeyFile,
    },
    /// Add a key to a file. The new key seals nothing yet: copy the file to every rep and BBS, then run the
    /// command again with --seal
    Rotate {
        #[command(flatten)]
        keys: KeyFile,
        /// Seal with this key from now on; every rep and BBS must already have it. The other keys still open
        /// the values that they sealed
        #[arg(long, value_name = "KEY")]
        seal: Option<String>,
    },
    /// List the ids of the keys in a file
    List {
        #[command(flatten)]
        keys: KeyFile,
    },
    /// Delete a key from a file. Values that it sealed are erased unless another copy of the key exists.
    /// Lists the objects that still use the key
    #[command(aliases = ["rm", "remove", "forget"])]
    Delete {
        /// Id of the key
        key: String,
        #[command(flatten)]
        keys: KeyFile,
        /// Delete the key even if it is still in use
        #[arg(long)]
        yes: bool,
    },
}

/// Format of an exported log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// The journal itself, one message per line, with a manifest: muster import reads it
    #[default]
    Jsonl,
    /// Events as CloudEvents 1.0, one per line
    Cloudevents,
    /// Events as columns, like the table events, in an Apache Parquet file: requires the feature parquet
    Parquet,
}

/// Maximum value of `muster bundle --minutes`: 366 days.
const MAX_MINUTES: u64 = 366 * 24 * 60;

/// Subcommands of `muster audit`.
#[derive(Clone, Debug, Subcommand)]
pub enum AuditVerb {
    /// Create a key that signs checkpoints. Keep it away from the machines that hold the log
    Keygen {
        /// File to create, readable by this user only
        file: PathBuf,
    },
    /// Sign the hash of the whole log: the checkpoint is appended to a file
    Checkpoint {
        /// Checkpoint file
        file: PathBuf,
        /// File with the signing key, created by muster audit keygen
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
    },
    /// Verify the log against checkpoints or an export. Also verifies that each decision was legal when it was
    /// made; exits 9 if there are findings
    Verify {
        /// Checkpoint file, or an export of the same log; may be repeated
        #[arg(long, value_name = "FILE")]
        against: Vec<PathBuf>,
        /// Public key of the trusted checkpoints [default: the key of the first checkpoint]
        #[arg(long, value_name = "KEY", value_parser = parse_key)]
        key: Option<PublicKey>,
        /// Verify this export instead of the cluster's journal
        #[arg(long, value_name = "FILE")]
        export: Option<PathBuf>,
    },
}

/// Subcommands of `muster events`.
#[derive(Clone, Debug, Subcommand)]
pub enum EventsVerb {
    /// Show new events as they arrive
    Tail {
        /// Start after this position [default: now]
        #[arg(long, value_parser = parse_position, value_name = "POSITION")]
        after: Option<Position>,
        /// Only events about this object: lrp:GUID, task:GUID, periodic:GUID, parameterised:GUID, cell:ID,
        /// domain:NAME or cluster
        #[arg(long, value_parser = parse_about, value_name = "THING")]
        about: Option<String>,
    },
    /// List events
    #[command(alias = "ls")]
    List {
        /// Start after this position [default: the start of the log]
        #[arg(long, value_parser = parse_position, value_name = "POSITION")]
        after: Option<Position>,
        /// Only events about this object: lrp:GUID, task:GUID, periodic:GUID, parameterised:GUID, cell:ID,
        /// domain:NAME or cluster
        #[arg(long, value_parser = parse_about, value_name = "THING")]
        about: Option<String>,
    },
    /// Show one entry of the log in full
    Show {
        /// Position of the entry in the log
        #[arg(value_parser = parse_position)]
        position: Position,
    },
}

/// Subcommands of `muster history`.
#[derive(Clone, Debug, Subcommand)]
pub enum History {
    /// History of a process and its instances
    #[command(alias = "desired-lrp")]
    Lrp {
        /// Guid of the process
        guid: ProcessGuid,
    },
    /// History of an instance: an index of a process, one definition at that index, or one container, even if
    /// the container is gone
    #[command(alias = "actual-lrp")]
    Instance {
        /// PROCESS/INDEX, PROCESS/INDEX@DEFINITION, or a prefix or suffix of an instance guid
        id: String,
    },
    /// History of a task
    Task {
        /// Guid of the task
        guid: TaskGuid,
    },
    /// History of a periodic task: its launches and skipped launches
    Periodic {
        /// Guid of the periodic task
        guid: PeriodicGuid,
    },
    /// History of a parameterised task: its dispatches, launches and withdrawals
    Parameterised {
        /// Guid of the parameterised task
        guid: ParameterisedGuid,
    },
    /// History of a cell
    #[command(alias = "node")]
    Cell {
        /// Id of the cell
        id: CellId,
    },
}

fn parse_key(text: &str) -> Result<PublicKey, InvalidValue> {
    let expected = "64 hexadecimal digits, as printed by muster audit keygen";
    text.parse().map_err(|_| InvalidValue::new("public key", text, expected))
}

fn parse_priority(text: &str) -> Result<Priority, InvalidValue> {
    let (least, greatest) = (MIN_PRIORITY, MAX_PRIORITY);
    let expected = || format!("{least} to {greatest}");
    let read = text.parse().ok().and_then(Priority::new);
    read.ok_or_else(|| InvalidValue::new("priority", text, expected()))
}

pub(super) fn parse_parameter(text: &str) -> Result<(String, String), InvalidValue> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| InvalidValue::new("parameter", text, "NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(super) fn parse_position(text: &str) -> Result<Position, InvalidValue> {
    let digits = text.strip_prefix('#').unwrap_or(text);
    digits.parse().map(Position).map_err(|_| InvalidValue::new("position", text, "a number such as 41"))
}

fn parse_about(text: &str) -> Result<String, InvalidValue> {
    // The names of all these kinds have the same syntax, so one parser checks them.
    let known = match text.split_once(':') {
        Some(("lrp" | "task" | "periodic" | "parameterised" | "cell" | "domain", name)) => {
            ProcessGuid::new(name).is_ok()
        }
        None => text == "cluster",
        Some(_) => false,
    };
    let expected = "lrp:GUID, task:GUID, periodic:GUID, parameterised:GUID, cell:ID, domain:NAME or cluster, with a name of 1 to 128 of A-Z a-z 0-9 _ -";
    if known { Ok(text.to_owned()) } else { Err(InvalidValue::new("filter", text, expected)) }
}

/// Parses a whole evaluation id. Returns `None` for any other text.
pub(crate) fn parse_full_id(text: &str) -> Option<EvaluationId> {
    (text.len() == 36).then(|| text.parse().ok()).flatten()
}
