//! The words of the command line.

use std::path::PathBuf;
use std::time::Duration;

use audit::checkpoint::PublicKey;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Subcommand, ValueEnum};
use runtime::telemetry;
use schemas::Position;
use schemas::limits::{GREATEST_PRIORITY, INSTANCES, LEAST_PRIORITY};
use schemas::names::{
    CellId, ClientName, DefinitionId, DispatchKey, Domain, EvaluationId, ParameterisedGuid, PeriodicGuid,
    ProcessGuid, RequestId, TaskGuid,
};
use schemas::query::AsOf;
use schemas::rank::Priority;
use schemas::subject::MAX_SHARDS;

use super::auth::AuthVerb;
use super::dead_letters::DeadLettersVerb;
use super::decide::DecideArgs;
use super::doctor::DoctorArgs;
use super::install::InstallArgs;
use super::moment::{self, At, Shown};
use super::probe::ProbeArgs;
use super::projection::{OfDatabase, ProjectionVerb};
use super::reconcile::ReconcileArgs;
use super::replay::ReplayArgs;
use super::trace::Sought;
use super::what_if::WhatIfArgs;
use super::words::{Invalid, number, parse_duration};
use crate::founding::FoundArgs;
use crate::otlp::Collector;
use crate::serve::parse_replicas;

/// What may stand before or behind every command.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// NATS servers of the cluster, separated by commas
    #[arg(long, global = true, env = "MUSTER_NATS_URL", value_name = "URL")]
    pub(crate) nats: Option<String>,
    /// Credentials file for the NATS server, or a file with an nkey's seed
    #[arg(long, global = true, env = "MUSTER_NATS_CREDS", value_name = "FILE")]
    pub(crate) creds: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    /// Data folder; a local cluster is looked for there
    #[arg(long, global = true, env = "MUSTER_DATA", value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Unix socket of a local cluster [default: muster.sock in the data folder]
    #[arg(long, global = true, env = "MUSTER_SOCKET", value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Who named the places above.
    #[arg(skip)]
    pub(crate) named: Named,
    /// The moment of the past that is shown; none: now.
    #[arg(skip)]
    pub(crate) past: Option<Shown>,
    /// Format of answers
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
    /// Only show this domain; with a file, the domain of whatever names none
    #[arg(long, global = true, env = "MUSTER_DOMAIN")]
    pub(crate) domain: Option<Domain>,
    /// How long to wait, as 30s or 5m
    #[arg(long, global = true, value_parser = parse_duration, allow_negative_numbers = true, value_name = "TIME")]
    pub(crate) timeout: Option<Duration>,
    /// Reason of a change, in your words: kept in the log
    #[arg(long, global = true, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Id of this request: the same request with the same id is carried out once
    #[arg(long, global = true, value_name = "ID")]
    pub(crate) request_id: Option<RequestId>,
    /// Client name that the log records [default: the user's name]
    #[arg(long, global = true, env = "MUSTER_CLIENT", value_name = "NAME")]
    pub(crate) client: Option<ClientName>,
    /// When to colour answers
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) color: Color,
    #[arg(
        help = "TOML file with options by their long names; flags and the environment go before it [env: MUSTER_CONFIG]",
        long,
        global = true,
        value_name = "FILE"
    )]
    pub(crate) config: Option<PathBuf>,
    /// Print help, with the options that every command has
    #[arg(long, global = true, action = clap::ArgAction::HelpLong, help_heading = None::<&'static str>)]
    pub(crate) help_all: Option<bool>,
    /// Show ids in full
    #[arg(long, global = true)]
    pub(crate) full_ids: bool,
    /// Write text of programs to a terminal as it is, with what a terminal acts on
    #[arg(long, global = true)]
    pub(crate) raw: bool,
    #[arg(
        help = "Log filter of the program itself, as debug or bus=debug [env: RUST_LOG]",
        long,
        global = true,
        value_name = "FILTER"
    )]
    pub(crate) log: Option<String>,
    /// How the program itself writes what it says: lines for people, or a JSON object a line
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        env = "MUSTER_LOG_FORMAT"
    )]
    pub(crate) log_format: LogFormat,
}

/// How the program writes what it says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

impl From<LogFormat> for telemetry::Format {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}

/// How the connection to the NATS server is encrypted.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TlsArgs {
    /// Certificates of the authorities that the NATS server's certificate may be of [default: the system's]
    #[arg(long, global = true, env = "MUSTER_NATS_CA", value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Certificate that is shown to the NATS server, with --tls-key
    #[arg(long, global = true, env = "MUSTER_NATS_CERT", value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Key of that certificate
    #[arg(long, global = true, env = "MUSTER_NATS_KEY", value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
}

impl TlsArgs {
    /// Who is told an authority or a certificate talks to no server that doesn't encrypt.
    pub(crate) fn of_nats(&self) -> client::Tls {
        let certificate = self.tls_cert.clone().zip(self.tls_key.clone());
        let required = self.tls_ca.is_some() || certificate.is_some();
        client::Tls { required, first: false, roots: self.tls_ca.clone(), certificate }
    }

    /// Whether a certificate is named without its key, or a key without its certificate.
    pub(crate) const fn is_half(&self) -> bool {
        self.tls_cert.is_some() != self.tls_key.is_some()
    }
}

/// How strongly something was named: a flag goes before the environment, that before the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Strength {
    /// By the file with options, or not at all.
    #[default]
    File,
    /// By the environment.
    Environment,
    /// By a flag.
    Flag,
}

/// How strongly each place was named where a cluster may be, and a domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) nats: Strength,
    pub(crate) data: Strength,
    pub(crate) socket: Strength,
    pub(crate) domain: Strength,
}

impl Named {
    /// As a command line was read.
    pub(crate) fn of(matches: &ArgMatches) -> Self {
        let strength = |name: &str| match matches.value_source(name) {
            Some(ValueSource::CommandLine) => Strength::Flag,
            Some(ValueSource::EnvVariable) => Strength::Environment,
            Some(_) | None => Strength::File,
        };
        Self {
            nats: strength("nats"),
            data: strength("data"),
            socket: strength("socket"),
            domain: strength("domain"),
        }
    }
}

/// How answers are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Table,
    /// One JSON value
    Json,
    /// One JSON value per line
    Jsonl,
    /// Comma-separated values, with a line of names
    #[value(hide = true)]
    Csv,
}

/// Whether answers are coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless the environment says otherwise
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// Commands to a running cluster.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Long-running processes: what shall run
    #[command(subcommand, alias = "desired-lrp")]
    Lrp(LrpVerb),
    /// Instances of processes: what runs
    #[command(subcommand, alias = "actual-lrp")]
    Instance(InstanceVerb),
    /// Tasks: what runs once
    #[command(subcommand)]
    Task(TaskVerb),
    /// Periodic tasks: what is launched again and again
    #[command(subcommand)]
    Periodic(PeriodicVerb),
    /// Parameterised tasks: templates of which each dispatch makes a task
    #[command(subcommand)]
    Parameterised(ParameterisedVerb),
    /// Domains, and whether what is desired in them is up to date
    #[command(subcommand)]
    Domain(DomainVerb),
    /// Cells: where things run
    #[command(subcommand, alias = "node")]
    Cell(CellVerb),
    /// The cluster as a whole
    #[command(subcommand)]
    Cluster(ClusterVerb),
    /// Show the health of the cluster on one screen: exits 0 if it is healthy, 11 if degraded, 12 if unhealthy
    Status {
        #[command(flatten)]
        at: At,
    },
    /// Look whether everything is as it ought to be, and say what to do: the connection, the stream, clocks, rights, the database,
    /// cells, this host. Changes nothing; exits 0 if no check failed, 9 if one did, 5 if nobody answers
    Doctor(DoctorArgs),
    /// Write units of systemd for services, and what they need beside them
    Install(InstallArgs),
    /// Evaluations: every scheduling attempt and its cause
    #[command(subcommand)]
    Evaluation(EvaluationVerb),
    /// Events: the log itself
    #[command(subcommand)]
    Events(EventsVerb),
    /// The journal that holds the log
    #[command(subcommand)]
    Journal(JournalVerb),
    /// Keys for secrets: the files of them that every BBS and rep is started with
    #[command(subcommand)]
    Secrets(SecretsVerb),
    /// Users of the NATS server: their roles, keys and certificates, and the server's configuration
    #[command(subcommand)]
    Auth(AuthVerb),
    /// Ask a service that was started with --metrics whether it does its work: exits 0 if so, 1 if not, 5 if nobody answers
    Probe(ProbeArgs),
    /// Everything that was decided about one process, instance, task, periodic or parameterised task or cell
    #[command(subcommand)]
    History(History),
    /// Show what runs and what happens, live
    Watch,
    /// Show the cluster on a terminal, live: cells, processes, rollouts, rates; keys lead further
    Top,
    /// Explain why an instance or a task is where it is, or what keeps it from a cell: from its state back to the first command
    Why {
        /// PROCESS/INDEX, PROCESS/INDEX@DEFINITION, the beginning or end of an instance guid, or a task
        id: String,
        #[command(flatten)]
        at: At,
    },
    /// Show what changed between two moments, object by object: exits 0 if nothing did, else 1
    Diff {
        /// The earlier moment: a position of the log, a time (UTC, or local as "2026-10-02 14:00"), or a time ago as -10m
        #[arg(long, value_name = "MOMENT", value_parser = moment::parse, allow_hyphen_values = true)]
        from: AsOf,
        /// The later moment [default: now]
        #[arg(long, value_name = "MOMENT", value_parser = moment::parse, allow_hyphen_values = true)]
        to: Option<AsOf>,
        /// Only of this: lrp:GUID with its instances, task:GUID, periodic:GUID, parameterised:GUID, cell:ID or domain:NAME
        #[arg(long, value_parser = parse_about, value_name = "THING")]
        about: Option<String>,
    },
    /// Say what would become of everything if something changed: the recorded cluster goes on here, in virtual time. Writes
    /// nothing; exits 6 if not all of it finds a place
    WhatIf(WhatIfArgs),
    /// Say what would have become of a part of the log with other settings: its recorded causes, in virtual time. Writes nothing
    Replay(ReplayArgs),
    /// Say what a BBS that knows the log decides on one command, as JSON; writes nothing
    Decide(DecideArgs),
    /// Say what a rep does about a container and its record, by its tables, as JSON; asks nobody
    Reconcile(ReconcileArgs),
    /// Ask the tables of the cluster in SQL, read only: everything that happened, and what holds now
    Sql {
        /// The question, as "SELECT count(*) FROM events"
        question: String,
        #[command(flatten)]
        of: OfDatabase,
        #[command(flatten)]
        at: At,
    },
    /// The tables of a database as a whole: whether they are right, and making them again
    #[command(subcommand)]
    Projection(ProjectionVerb),
    /// What of the journal is in no table, and what a projector can't get past
    #[command(subcommand)]
    DeadLetters(DeadLettersVerb),
    /// Show everything that one command caused, as a tree with durations, however long ago it was
    Trace {
        /// Decision, correlation or evaluation id, instance guid (whole, or 8 characters or more of its beginning or end), or
        /// request id
        #[arg(value_parser = Sought::parse)]
        id: Sought,
        /// Also send it as OpenTelemetry spans (OTLP over HTTP, JSON) to this collector; without a path to /v1/traces there
        #[arg(long, value_parser = Collector::parse, value_name = "URL")]
        otlp: Option<Collector>,
    },
    /// Write the log to a file: as lines that muster import reads again byte for byte, or as events or columns for
    /// other programs
    Export {
        /// File; - is the standard output
        file: PathBuf,
        /// Begin with this position, or with what was decided at this time or later [default: the beginning]
        #[arg(long, value_name = "MOMENT", value_parser = moment::parse, allow_hyphen_values = true)]
        from: Option<AsOf>,
        /// End with this position, or before anything that was decided later than this time [default: the end]
        #[arg(long, value_name = "MOMENT", value_parser = moment::parse, allow_hyphen_values = true)]
        to: Option<AsOf>,
        /// How it is written
        #[arg(long, value_enum, default_value_t)]
        format: ExportFormat,
    },
    /// Read an export into an empty journal: a data folder (--data) or a NATS server (--nats). The same positions, bytes and
    /// state
    Import {
        /// File that muster export wrote
        file: PathBuf,
        /// Go on with an import of the same file that was interrupted
        #[arg(long = "continue")]
        goes_on: bool,
        /// NATS servers that must hold every entry, if the stream is made: 1, 3 or 5
        #[arg(long, default_value_t = 1, value_parser = parse_replicas, allow_negative_numbers = true, env = "MUSTER_REPLICAS")]
        replicas: usize,
    },
    /// Proof of what happened: sign what the log says, and verify that it still does
    #[command(subcommand)]
    Audit(AuditVerb),
    /// Pack an incident into a folder: the log up to a while after a moment, how the cluster is, and how to replay it
    Bundle {
        /// Around which moment: a position, a time, or a time ago as -10m
        #[arg(long, value_name = "MOMENT", value_parser = moment::parse, allow_hyphen_values = true)]
        around: AsOf,
        /// How many minutes before and after it
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = number(0..=MOST_MINUTES), allow_negative_numbers = true)]
        minutes: u64,
        /// Folder to make
        folder: PathBuf,
    },
    /// JSON Schemas of events and commands, for other programs
    #[command(subcommand)]
    Schema(SchemaVerb),
    /// Print completions for a shell
    Completion {
        /// Shell to complete for
        shell: clap_complete::Shell,
    },
}

/// What can be asked of schemas.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SchemaVerb {
    /// List them: of each event, of each command, and of an entry of the log
    #[command(alias = "ls")]
    List,
    /// Print one
    Show {
        /// The type of an event, as actual.claimed.v1, a command, as lrp.desire, or entry
        name: String,
    },
}

/// Whether a command waits until it is carried out.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Wait {
    /// Return as soon as the command is in the log
    #[arg(long, short, visible_alias = "no-wait")]
    pub(crate) detach: bool,
}

/// Whether only what was planned is carried out.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Planned {
    /// Only if nothing was decided about what the file names since this position, which a plan says: else it is refused
    #[arg(long, value_name = "POSITION", value_parser = parse_position)]
    pub(crate) if_position: Option<Position>,
}

/// What can be done with processes.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum LrpVerb {
    /// Desire the processes of a file
    Desire {
        /// TOML or JSON; - is the standard input
        file: PathBuf,
        #[command(flatten)]
        wait: Wait,
    },
    /// Make the processes of a file what it says: desire them, or change them; the same file twice changes nothing
    Apply {
        /// TOML or JSON; - is the standard input
        file: PathBuf,
        #[command(flatten)]
        planned: Planned,
        #[command(flatten)]
        wait: Wait,
    },
    /// Compare the processes of a file with those of the cluster: exits 0 if they are the same, else 1
    Diff {
        /// TOML or JSON; - is the standard input
        file: PathBuf,
    },
    /// Say what applying a file would do: what would go where, in which steps, and what would find no room. Changes nothing;
    /// exits 0 if nothing would change, 1 if something would, 6 if not all of it fits
    Plan {
        /// TOML or JSON; - is the standard input
        file: PathBuf,
    },
    /// List processes
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        at: At,
    },
    /// Show a process, its definition and its instances
    Show {
        /// Guid of the process
        guid: ProcessGuid,
        #[command(flatten)]
        at: At,
    },
    /// Change the number of instances: GUID=N..., or GUID N
    Scale {
        /// GUID=N..., or GUID N
        #[arg(required = true, value_name = "GUID=N")]
        what: Vec<String>,
        #[command(flatten)]
        wait: Wait,
    },
    /// Change a process: its instances, priority, routes and annotation at once, and to what a file says by a rollout
    Update {
        /// Guid of the process
        guid: ProcessGuid,
        /// TOML or JSON that says what the process shall be; - is the standard input
        #[arg(value_name = "FILE", conflicts_with = "file")]
        positional: Option<PathBuf>,
        /// The same, as an option
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Number of instances
        #[arg(long, value_name = "N", value_parser = number(0..=INSTANCES), allow_negative_numbers = true)]
        instances: Option<u32>,
        /// How urgent it is, 1 to 100: whose priority is greater is placed first
        #[arg(long, value_name = "N", value_parser = parse_priority, allow_negative_numbers = true)]
        priority: Option<Priority>,
        /// File with routing data, TOML or JSON: any value for each router
        #[arg(long, value_name = "FILE")]
        routes: Option<PathBuf>,
        /// Text of your own
        #[arg(long, value_name = "TEXT")]
        annotation: Option<String>,
        #[command(flatten)]
        wait: Wait,
    },
    /// Have every instance run a definition that the process has
    Activate {
        /// Guid of the process
        guid: ProcessGuid,
        /// Id of the definition: muster lrp show GUID lists them
        definition: DefinitionId,
        #[command(flatten)]
        wait: Wait,
    },
    /// Replace every instance by one that runs the same, by a rollout
    Restart {
        /// Guid of the process
        guid: ProcessGuid,
        #[command(flatten)]
        wait: Wait,
    },
    /// Spread the instances evenly over the cells, by a rollout that replaces all of them one after the other; does nothing
    /// where that would not make it better
    Rebalance {
        /// Guid of the process
        guid: ProcessGuid,
        #[command(flatten)]
        wait: Wait,
    },
    /// Go back to a definition that the process ran before, by a rollout. What else was changed stays as it is
    Rollback {
        /// Guid of the process
        guid: ProcessGuid,
        /// A definition, or a moment at which the process was to run it: a position of the log, a time, or a time ago as -10m
        /// [default: the last other definition that was not rolled back]
        #[arg(long, value_name = "DEFINITION|MOMENT", allow_hyphen_values = true)]
        to: Option<String>,
        #[command(flatten)]
        wait: Wait,
    },
    /// Rollouts: the replacement of instances by those of another definition
    #[command(subcommand)]
    Rollout(RolloutVerb),
    /// Remove a process: its instances are stopped
    #[command(alias = "rm")]
    Remove {
        /// Guid of the process
        guid: ProcessGuid,
        #[command(flatten)]
        wait: Wait,
    },
}

/// What can be done with the rollout of a process.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum RolloutVerb {
    /// Show where the rollout stands, and why it waits
    Status {
        /// Guid of the process
        guid: ProcessGuid,
        #[command(flatten)]
        at: At,
    },
    /// Follow the rollout to its end
    Watch {
        /// Guid of the process
        guid: ProcessGuid,
    },
    /// Pause the rollout: no index takes its turn any more
    Pause {
        /// Guid of the process
        guid: ProcessGuid,
    },
    /// Resume a paused rollout
    Resume {
        /// Guid of the process
        guid: ProcessGuid,
        #[command(flatten)]
        wait: Wait,
    },
    /// Roll back to the definition that was healthy when the rollout began
    Rollback {
        /// Guid of the process
        guid: ProcessGuid,
        #[command(flatten)]
        wait: Wait,
    },
    /// List the newest rollouts of a process: of its present life or, if it is gone, of all that the log tells of
    History {
        /// Guid of the process
        guid: ProcessGuid,
        /// How many at most
        #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = number(1..=INSTANCES), allow_negative_numbers = true)]
        limit: u32,
        #[command(flatten)]
        at: At,
    },
}

/// What can be done with instances.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum InstanceVerb {
    /// List instances
    #[command(alias = "ls")]
    List {
        /// Only of this process
        #[arg(long, visible_alias = "process", value_name = "GUID")]
        lrp: Option<ProcessGuid>,
        /// Only on this cell
        #[arg(long, value_name = "ID")]
        cell: Option<CellId>,
        /// Those that ended: the newest of each index, and how each of them ended
        #[arg(long, conflicts_with_all = ["state", "all"])]
        ended: bool,
        /// With --ended and --lrp: only this index of the process
        #[arg(long, value_name = "N")]
        index: Option<u32>,
        /// Only in this state: unclaimed, claimed, running, crashed
        #[arg(long, ignore_case = true, value_parser = ["unclaimed", "claimed", "running", "crashed"])]
        state: Option<String>,
        /// Both records of an instance that is being evacuated, not only the one that counts
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        at: At,
    },
    /// Show an instance
    Show {
        /// PROCESS/INDEX, PROCESS/INDEX@DEFINITION, or the beginning or end of an instance guid
        id: String,
        #[command(flatten)]
        at: At,
    },
    /// Show what an instance wrote
    Logs {
        /// PROCESS/INDEX, PROCESS/INDEX@DEFINITION, the beginning or end of an instance guid, or PROCESS for all its instances
        id: String,
        /// Wait for more lines
        #[arg(short, long)]
        follow: bool,
        /// Take the id for that of a process, whatever else it may name
        #[arg(long)]
        all: bool,
        /// Show the log of the container that crashed last, even while another runs
        #[arg(long, conflicts_with_all = ["follow", "all"])]
        previous: bool,
    },
    /// List a folder of an instance's work directory, or write a file of it to the standard output
    Files {
        /// PROCESS/INDEX, PROCESS/INDEX@DEFINITION, or the beginning or end of an instance guid
        id: String,
        /// Path below the work directory [default: that itself]
        #[arg(default_value = "", hide_default_value = true)]
        path: String,
    },
    /// Run one more program in an instance's container, and end as it does
    Exec(ExecArgs),
    /// Stop an instance; if it is still desired it starts again
    Stop {
        /// PROCESS/INDEX, PROCESS/INDEX@DEFINITION, or the beginning or end of an instance guid
        id: String,
    },
}

/// A program that is to be run in the container of an instance.
#[derive(Clone, Debug, Args)]
pub(crate) struct ExecArgs {
    /// PROCESS/INDEX, PROCESS/INDEX@DEFINITION, or the beginning or end of an instance guid
    pub(crate) id: String,
    /// Give it a terminal [default: where the standard input and output are one]
    #[arg(short, long)]
    pub(crate) tty: bool,
    /// Give it none
    #[arg(short = 'T', long, conflicts_with = "tty")]
    pub(crate) no_tty: bool,
    /// Give it nothing to read
    #[arg(short = 'n', long)]
    pub(crate) no_stdin: bool,
    /// Who runs it [default: who runs the first program of the action]
    #[arg(short, long, value_name = "USER[:GROUP]", default_value = "", hide_default_value = true)]
    pub(crate) user: String,
    /// Where it runs, below the work directory [default: where the first program of the action runs]
    #[arg(short = 'w', long, value_name = "FOLDER", default_value = "", hide_default_value = true)]
    pub(crate) dir: String,
    /// The program and its arguments: they are kept in the log, so what is secret is better read by the program
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<String>,
}

/// What can be done with tasks.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum TaskVerb {
    /// Run the tasks of a file
    #[command(alias = "desire")]
    Run {
        /// TOML or JSON; - is the standard input
        file: PathBuf,
        /// Wait until they end, and show the results
        #[arg(short, long)]
        wait: bool,
        #[command(flatten)]
        planned: Planned,
    },
    /// Say what running the tasks of a file would do: which cell each would get, or what keeps it from running, and whether it
    /// would wait or fail. Changes nothing; exits 1 if all of them would run, 6 if not
    Plan {
        /// TOML or JSON; - is the standard input
        file: PathBuf,
    },
    /// List tasks
    #[command(alias = "ls")]
    List {
        /// Those that completed and are deleted: the newest of each domain
        #[arg(long)]
        ended: bool,
        /// Only on this cell
        #[arg(long, value_name = "ID")]
        cell: Option<CellId>,
        #[command(flatten)]
        at: At,
    },
    /// Show a task, its definition and its result
    Show {
        /// Guid of the task
        guid: TaskGuid,
        #[command(flatten)]
        at: At,
    },
    /// Cancel a task
    Cancel {
        /// Guid of the task
        guid: TaskGuid,
    },
    /// Resolve a completed task: its outcome has been seen, and it is deleted
    Resolve {
        /// Guid of the task
        guid: TaskGuid,
    },
    /// Show what a task wrote
    Logs {
        /// Guid of the task
        guid: TaskGuid,
        /// Wait for more lines
        #[arg(short, long)]
        follow: bool,
    },
}

/// What can be done with periodic tasks.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PeriodicVerb {
    /// Make the periodic tasks of a file what it says: desire them, or change them; the same file twice changes nothing
    #[command(alias = "desire")]
    Apply {
        /// TOML or JSON; - is the standard input
        file: PathBuf,
    },
    /// List periodic tasks
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        at: At,
    },
    /// Show a periodic task, its last launch and what it launches
    Show {
        /// Guid of the periodic task
        guid: PeriodicGuid,
        #[command(flatten)]
        at: At,
    },
    /// Pause a periodic task: it launches nothing until it is resumed
    Pause {
        /// Guid of the periodic task
        guid: PeriodicGuid,
    },
    /// Resume a periodic task, from the next time that is due
    Resume {
        /// Guid of the periodic task
        guid: PeriodicGuid,
    },
    /// Launch a task now, whatever the schedule says
    Launch {
        /// Guid of the periodic task
        guid: PeriodicGuid,
    },
    /// Remove a periodic task; what it launched runs on
    #[command(alias = "rm")]
    Remove {
        /// Guid of the periodic task
        guid: PeriodicGuid,
    },
}

/// What can be done with parameterised tasks.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ParameterisedVerb {
    /// Make the parameterised tasks of a file what it says: desire them, or change them; the same file twice changes
    /// nothing
    #[command(alias = "desire")]
    Apply {
        /// TOML or JSON; - is the standard input
        file: PathBuf,
    },
    /// List parameterised tasks
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        at: At,
    },
    /// Show a parameterised task, what waits and what its tasks run
    Show {
        /// Guid of the parameterised task
        guid: ParameterisedGuid,
        #[command(flatten)]
        at: At,
    },
    /// Run a task of it, with what only this task is given
    Dispatch {
        /// Guid of the parameterised task
        guid: ParameterisedGuid,
        /// File with the payload, at most 16 KiB; - is the standard input
        #[arg(long, value_name = "FILE")]
        payload: Option<PathBuf>,
        /// A parameter, any number of times
        #[arg(long = "param", value_parser = parse_parameter, value_name = "NAME=VALUE")]
        parameters: Vec<(String, String)>,
        /// The same key again is the same dispatch, and runs nothing
        #[arg(long)]
        key: Option<DispatchKey>,
        /// How urgent the task is, 1 to 100 [default: as its template says]
        #[arg(long, value_name = "N", value_parser = parse_priority, allow_negative_numbers = true)]
        priority: Option<Priority>,
        /// Wait until it ends, and show its result
        #[arg(short, long)]
        wait: bool,
    },
    /// Withdraw a dispatch that waits: it becomes no task
    Withdraw {
        /// Guid of the parameterised task
        guid: ParameterisedGuid,
        /// Number of the dispatch
        number: u64,
    },
    /// Remove a parameterised task; what it launched runs on, what waits is withdrawn
    #[command(alias = "rm")]
    Remove {
        /// Guid of the parameterised task
        guid: ParameterisedGuid,
    },
}

/// What can be done with domains.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum DomainVerb {
    /// List domains
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        at: At,
    },
    /// Show use and quotas of a domain
    Show {
        /// Name of the domain
        #[arg(value_name = "DOMAIN")]
        name: Domain,
        #[command(flatten)]
        at: At,
    },
    /// Change quotas of a domain, as an operator; quotas that are left out keep their values
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
        /// Programs that `instance exec` runs at the same time on one cell
        #[arg(long, value_name = "N", value_parser = number(0..=u32::MAX), allow_negative_numbers = true)]
        exec_sessions: Option<u32>,
    },
    /// Declare that what is desired in a domain is up to date: what nobody desires there is stopped
    Refresh {
        /// Name of the domain
        #[arg(value_name = "DOMAIN")]
        name: Domain,
        /// How long that holds, as 1h [default: for ever]
        #[arg(long, value_parser = parse_duration, value_name = "TIME")]
        ttl: Option<Duration>,
    },
}

/// What can be done with cells.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum CellVerb {
    /// List cells
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        at: At,
    },
    /// Show a cell, and what runs there
    Show {
        /// Id of the cell
        id: CellId,
        #[command(flatten)]
        at: At,
    },
    /// Move everything away from a cell; it takes no new work, and its rep ends when that is done
    Evacuate {
        /// Id of the cell
        id: CellId,
        /// Return when the containers of the cell are gone and its rep has left
        #[arg(long)]
        wait: bool,
    },
    /// Give a cell no new work; what runs there stays
    Cordon {
        /// Id of the cell
        id: CellId,
    },
    /// Cancel a cordon or an evacuation: the cell takes work again, and what was not moved stays
    Uncordon {
        /// Id of the cell
        id: CellId,
    },
    /// Forget an ABSENT cell: it is no longer listed
    Forget {
        /// Id of the cell
        id: CellId,
    },
    /// Have a cell go on with a log that was restored, though its rep knows a later term of the one that was lost
    AcceptLog {
        /// Id of the cell
        id: CellId,
    },
}

/// What can be done with the cluster.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ClusterVerb {
    /// Show which services are alive and which of them lead, and count cells, processes, instances and tasks
    Show {
        #[command(flatten)]
        at: At,
    },
    /// Found a cluster on a NATS server that has none: makes the stream, and writes its first entry
    Found(FoundArgs),
    /// Switch preemption on or off: whether what is less urgent by 10 or more may be stopped, so that what waits has room
    Preemption {
        /// On or off
        #[arg(value_enum)]
        switch: Switch,
    },
    /// Change the number of shards of the log: how many entries of processes, and of tasks, are written at the same time
    Shards {
        /// 1 to 1024; more shards mean more, smaller entries
        #[arg(value_name = "N", value_parser = number(1..=MAX_SHARDS), allow_negative_numbers = true)]
        number: u16,
    },
}

/// Whether something is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// It is
    On,
    /// It is not
    Off,
}

/// What can be done with evaluations.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum EvaluationVerb {
    /// List the open evaluations, and the newest that ended
    #[command(alias = "ls")]
    List {
        /// Only of this process
        #[arg(long, value_name = "GUID")]
        lrp: Option<ProcessGuid>,
        /// Only of this task
        #[arg(long, value_name = "GUID", conflicts_with = "lrp")]
        task: Option<TaskGuid>,
        /// Only the open ones
        #[arg(long)]
        open: bool,
        #[command(flatten)]
        at: At,
    },
    /// Show an evaluation: its cause, its chain, and what it placed where
    Show {
        /// Id of the evaluation, or its beginning or end
        id: String,
        #[command(flatten)]
        at: At,
    },
    /// Tell what happens to an evaluation until it ends, or to all of them
    Watch {
        /// Id of the evaluation, or its beginning or end; all, if left out
        id: Option<String>,
    },
    /// Have an evaluation tried again now: one that is delayed, blocked or failed
    Retry {
        /// Id of the evaluation, or its beginning or end
        id: String,
    },
}

/// What can be done with the journal.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum JournalVerb {
    /// Record that the journal holds no entry at a position: for an entry of a later program, which stops every BBS.
    /// If no BBS answers, the record is written into the journal directly
    SetAside {
        /// Position of the entry in the log
        #[arg(value_parser = parse_position)]
        position: Position,
    },
    /// Turn off compression of the stream that holds the journal, which an earlier version turned on. Needs the credentials
    /// of an admin of the NATS server. No entry changes, and services may run
    Migrate,
}

/// Which file of keys.
#[derive(Clone, Debug, Args)]
pub(crate) struct KeyFile {
    /// File of keys [default: that of muster dev, in its data folder]
    #[arg(value_name = "FILE", env = "MUSTER_SECRETS")]
    pub(crate) file: Option<PathBuf>,
}

/// What can be done with keys for secrets.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SecretsVerb {
    /// Make a file with a first key
    Init {
        #[command(flatten)]
        keys: KeyFile,
    },
    /// Add a key to a file, which only opens at first: bring the file to every rep and BBS, then have it seal
    Rotate {
        #[command(flatten)]
        keys: KeyFile,
        /// Have this key seal from now on, which every rep and BBS has by now; the others still open what they sealed
        #[arg(long, value_name = "KEY")]
        seal: Option<String>,
    },
    /// List the keys of a file by their ids
    List {
        #[command(flatten)]
        keys: KeyFile,
    },
    /// Take a key out of a file: what it sealed is erased, for whoever has no other copy of it. Says what still uses it
    Forget {
        /// Id of the key
        key: String,
        #[command(flatten)]
        keys: KeyFile,
        /// Forget it whatever still uses it
        #[arg(long)]
        yes: bool,
    },
}

/// How the log is written to a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// The journal itself, one message per line, with a manifest: muster import reads it
    #[default]
    Jsonl,
    /// Events as CloudEvents 1.0, one per line
    Cloudevents,
    /// Events as columns, those of the table events, in a file of Apache Parquet
    Parquet,
}

/// The longest time around a moment, in minutes: a year.
const MOST_MINUTES: u64 = 366 * 24 * 60;

/// What can be proved.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum AuditVerb {
    /// Make a key that signs checkpoints. Keep it away from the machines that hold the log
    Keygen {
        /// File to make, for this user alone
        file: PathBuf,
    },
    /// Sign the hash of the whole log as it is now, and append that to a file
    Checkpoint {
        /// File of checkpoints
        file: PathBuf,
        /// File with the key that signs: muster audit keygen
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
    },
    /// Verify the log against checkpoints or an export, and that each decision was legal when it was made: exits 9 if
    /// anything is found
    Verify {
        /// File of checkpoints, or an export of the same log; may be given again
        #[arg(long, value_name = "FILE")]
        against: Vec<PathBuf>,
        /// Public key whose checkpoints count [default: that of the first checkpoint]
        #[arg(long, value_name = "KEY", value_parser = parse_key)]
        key: Option<PublicKey>,
        /// Verify this export instead of the cluster's journal
        #[arg(long, value_name = "FILE")]
        export: Option<PathBuf>,
    },
}

/// What can be done with events.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum EventsVerb {
    /// Show events as they come
    Tail {
        /// Begin after this position [default: now]
        #[arg(long, value_parser = parse_position, value_name = "POSITION")]
        after: Option<Position>,
        /// Only about this: lrp:GUID, task:GUID, periodic:GUID, parameterised:GUID, cell:ID, domain:NAME or cluster
        #[arg(long, value_parser = parse_about, value_name = "THING")]
        about: Option<String>,
    },
    /// List events
    #[command(alias = "ls")]
    List {
        /// Begin after this position [default: the beginning]
        #[arg(long, value_parser = parse_position, value_name = "POSITION")]
        after: Option<Position>,
        /// Only about this: lrp:GUID, task:GUID, periodic:GUID, parameterised:GUID, cell:ID, domain:NAME or cluster
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

/// Whose history.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum History {
    /// History of a process and its instances
    #[command(alias = "desired-lrp")]
    Lrp {
        /// Guid of the process
        guid: ProcessGuid,
    },
    /// History of an index of a process, or of one definition there, or of one container, even if it is gone
    #[command(alias = "actual-lrp")]
    Instance {
        /// PROCESS/INDEX, PROCESS/INDEX@DEFINITION, or the beginning or end of an instance guid
        id: String,
    },
    /// History of a task
    Task {
        /// Guid of the task
        guid: TaskGuid,
    },
    /// History of a periodic task: its launches, and what it skipped
    Periodic {
        /// Guid of the periodic task
        guid: PeriodicGuid,
    },
    /// History of a parameterised task: what was dispatched, launched and withdrawn
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

fn parse_key(text: &str) -> Result<PublicKey, Invalid> {
    let expected = "64 hexadecimal digits, as muster audit keygen says";
    text.parse().map_err(|_| Invalid::new("public key", text, expected))
}

fn parse_priority(text: &str) -> Result<Priority, Invalid> {
    let (least, greatest) = (LEAST_PRIORITY, GREATEST_PRIORITY);
    let expected = || format!("{least} to {greatest}");
    let read = text.parse().ok().and_then(Priority::new);
    read.ok_or_else(|| Invalid::new("priority", text, expected()))
}

fn parse_parameter(text: &str) -> Result<(String, String), Invalid> {
    let (name, value) = text.split_once('=').ok_or_else(|| Invalid::new("parameter", text, "NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(super) fn parse_position(text: &str) -> Result<Position, Invalid> {
    let digits = text.strip_prefix('#').unwrap_or(text);
    digits.parse().map(Position).map_err(|_| Invalid::new("position", text, "a number, as 41"))
}

fn parse_about(text: &str) -> Result<String, Invalid> {
    // All of these have names of one kind.
    let known = match text.split_once(':') {
        Some(("lrp" | "task" | "periodic" | "parameterised" | "cell" | "domain", name)) => {
            ProcessGuid::new(name).is_ok()
        }
        None => text == "cluster",
        Some(_) => false,
    };
    let expected = "lrp:GUID, task:GUID, periodic:GUID, parameterised:GUID, cell:ID, domain:NAME or cluster, with a name of 1 to 128 of A-Z a-z 0-9 _ -";
    if known { Ok(text.to_owned()) } else { Err(Invalid::new("filter", text, expected)) }
}

/// An evaluation's whole id, if the text is one.
pub(crate) fn whole_id(text: &str) -> Option<EvaluationId> {
    (text.len() == 36).then(|| text.parse().ok()).flatten()
}
