//! `muster bbs`, `muster auctioneer` and `muster rep`: each runs one service on NATS.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bus::Bus;
use bus::nats::{ConnectError, Settings};
use clap::Args;
use client::{Login, Tls};
use executor::process::IsolationPolicy;
use journal::{Durability, JetStream, Journal, JournalError, STREAM, StreamSettings};
use runtime::exit::Exit;
use schemas::attributes::{AttributeName, check_value};
use schemas::bus::Inbox;
use schemas::limits::{DEFAULT_HISTORY_KEPT, DEFAULT_HISTORY_SHOWN, RESOURCE_MB};
use schemas::names::{CellId, IdGenerator, PlacementTag, ServiceId, Stack, Zone};
use schemas::resources::Resources;
use schemas::{Position, Timestamp};
use secrets::Keys;
use text::chain;
use text::words::{InvalidValue, number};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::callback::allow::Rule;
use super::containers::Containers;
use super::drive::INPUT_CAPACITY;
use super::error::ServiceError;
use super::founding::report;
use super::inbox::no_journal::NoJournalResponder;
use super::monitoring::MetricsRegistry;
use super::monitoring::auctioneer::AuctioneerMetrics;
use super::monitoring::bbs::BbsMetrics;
use super::monitoring::rep::RepMetrics;
use super::past::{Cache, keep_newest};
use super::rep::{self, RunOutcome};
use super::run_error::RunError;
use super::telemetry_args::{MetricsArgs, TracesArgs};
use super::transfers::ArtifactsArgs;
use super::{auctioneer, bbs, driver, fingerprint, home};

/// Advice in every message about a missing log.
const NO_LOG_ADVICE: &str =
    "restore a backup with muster import, or found a new cluster with muster cluster found";

/// NATS servers, and the credentials for them.
#[derive(Clone, Debug)]
pub struct Nats {
    pub urls: Vec<String>,
    pub login: Login,
    pub tls: Tls,
    /// Number of permission violations on all connections.
    pub refused: Arc<AtomicU64>,
}

/// Run a BBS, which takes commands and writes the log. Start any number of them; one leads
#[derive(Clone, Debug, Args)]
pub struct BbsArgs {
    /// NATS servers that must store each entry: 1, 3 or 5
    #[arg(long, default_value_t = 1, value_parser = parse_replicas, allow_negative_numbers = true, env = "MUSTER_REPLICAS")]
    pub(crate) replicas: usize,
    /// Monitoring addresses of the NATS servers, separated by commas: used to check that they sync every write
    #[arg(long, value_delimiter = ',', value_name = "URL", env = "MUSTER_NATS_MONITORING")]
    pub(crate) monitoring: Vec<String>,
    /// Additional seconds before silent cells count as lost while most cells are silent, which indicates a
    /// network fault
    #[arg(long, default_value_t = 60, value_parser = number(0..=MAX_SECONDS), allow_negative_numbers = true, value_name = "SECONDS", env = "MUSTER_MASS_LOSS_WAIT")]
    pub(crate) mass_loss_wait: u64,
    /// Number of ended containers that queries show per index, the newest ones; a process may have a setting
    /// of its own
    #[arg(long, default_value_t = DEFAULT_HISTORY_SHOWN, value_parser = number(0..=DEFAULT_HISTORY_KEPT), allow_negative_numbers = true, value_name = "N", env = "MUSTER_HISTORY_LIMIT")]
    pub(crate) history_limit: u32,
    /// Credentials of a separate user that appends to the journal [default: the user of --creds, which also
    /// takes commands]
    #[arg(long, value_name = "FILE", env = "MUSTER_NATS_WRITER_CREDS")]
    pub(crate) writer_creds: Option<PathBuf>,
    /// Allowed target of completion callbacks; may be repeated. HOST, *.HOST, an address, a network such as
    /// 10.0.0.0/8, or * for every public address; a prefix http:// or https:// allows only that scheme. An
    /// address that is not public is allowed only by a rule with an address or a network [default: *]
    #[arg(long, value_name = "WHERE", value_delimiter = ',', env = "MUSTER_CALLBACK_ALLOW")]
    pub(crate) callback_allow: Vec<Rule>,
    #[command(flatten)]
    pub(crate) cache: CacheArgs,
    #[command(flatten)]
    pub(crate) keys: KeysArgs,
    #[command(flatten)]
    pub metrics: MetricsArgs,
    #[command(flatten)]
    pub(crate) traces: TracesArgs,
}

/// Options of the cache of snapshots. A snapshot is the cluster's state at a past position of the log.
#[derive(Clone, Debug, Args)]
pub(crate) struct CacheArgs {
    #[arg(
        help = "Folder for snapshots of the past, which may be deleted at any time [default: $XDG_CACHE_HOME/muster, else ~/.cache/muster]",
        long,
        value_name = "DIR",
        env = "MUSTER_CACHE"
    )]
    pub(crate) cache: Option<PathBuf>,
    /// Minimum number of log entries between two snapshots; the number increases with the length of the log
    #[arg(long, default_value_t = past::limits::MIN_SPACING, value_parser = number(1..=u64::MAX), allow_negative_numbers = true, value_name = "ENTRIES", env = "MUSTER_SNAPSHOT_EVERY")]
    pub(crate) snapshot_every: u64,
}

impl CacheArgs {
    /// Returns the cache. `None` if no folder for a cache is set.
    fn open(&self) -> Option<Cache> {
        let folder = self.cache.clone().or_else(home::default_cache_folder)?;
        Some(Cache { folder, spacing: self.snapshot_every })
    }
}

/// Option for the keys of secrets.
#[derive(Clone, Debug, Args)]
pub(crate) struct KeysArgs {
    /// Key file for secrets, created by muster secrets [default: no key file; specs with secrets are refused]
    #[arg(long = "secrets", value_name = "FILE", env = "MUSTER_SECRETS")]
    file: Option<PathBuf>,
}

impl KeysArgs {
    fn open(&self) -> Result<Keys, ServiceError> {
        Ok(self.file.as_deref().map(Keys::from_file).transpose()?.unwrap_or_default())
    }
}

/// Run an auctioneer, which places work on cells. Start any number of them; one leads
#[derive(Clone, Debug, Args)]
pub struct AuctioneerArgs {
    /// NATS servers that must store each entry: 1, 3 or 5
    #[arg(long, default_value_t = 1, value_parser = parse_replicas, allow_negative_numbers = true, env = "MUSTER_REPLICAS")]
    pub(crate) replicas: usize,
    #[command(flatten)]
    pub(crate) cache: CacheArgs,
    #[command(flatten)]
    pub metrics: MetricsArgs,
}

/// Run a rep, which runs the containers of a cell
#[derive(Clone, Debug, Args)]
pub struct RepArgs {
    /// Unique name of the cell
    #[arg(long, value_name = "ID", env = "MUSTER_CELL")]
    pub(crate) cell: CellId,
    /// Availability zone of the cell
    #[arg(long, value_name = "ZONE", env = "MUSTER_ZONE")]
    pub(crate) zone: Zone,
    /// Stack of the cell: definitions that name another stack are not placed here
    #[arg(long, default_value = "linux", env = "MUSTER_STACK")]
    pub(crate) stack: Stack,
    /// Placement tag, which work must name to be placed here; may be repeated
    #[arg(long = "tag", value_name = "TAG", env = "MUSTER_TAGS", value_delimiter = ',')]
    pub(crate) tags: Vec<PlacementTag>,
    /// Attribute of the cell for placement constraints, such as rack=r1. May be repeated; overrides an
    /// attribute that the rep detects
    #[arg(long = "attribute", value_name = "NAME=VALUE", env = "MUSTER_ATTRIBUTES", value_parser = parse_attributes)]
    pub(crate) attributes: Vec<GivenAttributes>,
    /// Memory for containers, in MiB [default: the host's memory]
    #[arg(long, value_parser = number(0..=RESOURCE_MB), allow_negative_numbers = true, value_name = "MIB", env = "MUSTER_MEMORY_MB")]
    pub(crate) memory_mb: Option<u64>,
    /// Disk for containers, in MiB [default: the free disk of the data folder]
    #[arg(long, value_parser = number(0..=RESOURCE_MB), allow_negative_numbers = true, value_name = "MIB", env = "MUSTER_DISK_MB")]
    pub(crate) disk_mb: Option<u64>,
    /// Maximum number of containers
    #[arg(long, default_value_t = 250, value_parser = number(0..=u32::MAX), allow_negative_numbers = true, env = "MUSTER_CONTAINERS")]
    pub(crate) containers: u32,
    /// Address at which other hosts reach this host
    #[arg(long, default_value = "127.0.0.1", env = "MUSTER_ADDRESS")]
    pub(crate) address: String,
    /// Host ports for containers, such as 20000-29999
    #[arg(long, value_parser = parse_ports, default_value = "20000-29999", value_name = "FROM-TO", env = "MUSTER_PORTS")]
    pub(crate) ports: std::ops::RangeInclusive<u16>,
    /// Isolation of containers from the host and each other: as much as the host allows (full), or none
    #[arg(long, value_enum, default_value_t = IsolationArg::Full, env = "MUSTER_ISOLATION")]
    pub(crate) isolation: IsolationArg,
    /// File system of containers whose definition names none: oci:FOLDER, oci:FOLDER:TAG or the path of a
    /// folder [default: the parts of the host's file system that programs need]
    #[arg(long, value_name = "ROOT", default_value = "", hide_default_value = true, env = "MUSTER_ROOT_FS")]
    pub(crate) root_fs: String,
    /// Folder with file systems that definitions may use, named as oci:FOLDER or by path; may be repeated
    /// [default: none]
    #[arg(long, value_name = "DIR", value_delimiter = ',', env = "MUSTER_IMAGES")]
    pub(crate) images: Vec<PathBuf>,
    /// First user id on the host for containers, used if the rep runs as root: each container gets 65536 ids
    #[arg(long, default_value_t = executor::process::FIRST_ID, value_parser = number(100_000..=MAX_FIRST_ID), allow_negative_numbers = true, value_name = "ID", env = "MUSTER_FIRST_ID")]
    pub(crate) first_id: u32,
    /// Maximum duration of an evacuation, in seconds
    #[arg(long, default_value_t = 600, value_parser = number(0..=MAX_SECONDS), allow_negative_numbers = true, value_name = "SECONDS", env = "MUSTER_EVACUATION_TIMEOUT")]
    pub(crate) evacuation_timeout: u64,
    /// Exit status after the cell is evacuated. Set 0 if the supervisor restarts a program after any failure,
    /// so that it does not restart an evacuated rep
    #[arg(long, default_value_t = Exit::Evacuated as u8, value_name = "STATUS", env = "MUSTER_EVACUATED_STATUS")]
    pub evacuated_status: u8,
    /// Exit status after a signal stops the rep. Set a status other than 0 if the supervisor restarts only
    /// failed programs, such as Docker's on-failure, so that it restarts a stopped rep
    #[arg(long, default_value_t = Exit::Done as u8, value_name = "STATUS", env = "MUSTER_STOPPED_STATUS")]
    pub stopped_status: u8,
    #[command(flatten)]
    pub(crate) artifacts: ArtifactsArgs,
    #[command(flatten)]
    pub(crate) keys: KeysArgs,
    #[command(flatten)]
    pub metrics: MetricsArgs,
}

/// Requested isolation of containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum IsolationArg {
    /// Full isolation, as far as the host supports it
    Full,
    /// No isolation
    None,
}

impl IsolationArg {
    /// Returns the corresponding setting of the executor.
    #[must_use]
    pub const fn isolate(self, first_id: u32) -> IsolationPolicy {
        match self {
            Self::Full => IsolationPolicy::BestEffort { first_id },
            Self::None => IsolationPolicy::Never,
        }
    }
}

/// Maximum first user id for containers. On nearly all systems, user ids must be below 2^31 - 1.
const MAX_FIRST_ID: u32 = i32::MAX as u32 - executor::process::RANGE_LEN;
/// Maximum value of options in seconds: ten years.
const MAX_SECONDS: u64 = 10 * 365 * 86_400;

/// Attributes from one `--attribute` option.
pub type GivenAttributes = Vec<(AttributeName, String)>;

/// Parses `rack=r1`, or several attributes such as `rack=r1,class=a` from a variable or a configuration file.
/// A part without `=` continues the value before it, because a value may be a list such as `a,b`.
pub fn parse_attributes(text: &str) -> Result<GivenAttributes, InvalidValue> {
    let wrong = || InvalidValue::new("attribute", text, "NAME=VALUE, such as rack=r1");
    let mut given = GivenAttributes::new();
    for piece in text.split(',') {
        match (piece.split_once('='), given.last_mut()) {
            (Some((name, value)), _) => given.push((name.parse().map_err(|_| wrong())?, value.to_owned())),
            (None, Some((_, value))) => value.extend([",", piece]),
            (None, None) => return Err(wrong()),
        }
    }
    let valid = given.iter().all(|(_, value)| check_value(value).is_ok());
    if valid { Ok(given) } else { Err(wrong()) }
}

/// Parses the number of NATS servers that must store each entry: 1, 3 or 5.
pub fn parse_replicas(text: &str) -> Result<usize, InvalidValue> {
    match text.parse() {
        Ok(replicas @ (1 | 3 | 5)) => Ok(replicas),
        Ok(_) | Err(_) => Err(InvalidValue::new("number of replicas", text, "1, 3 or 5")),
    }
}

fn parse_ports(text: &str) -> Result<std::ops::RangeInclusive<u16>, InvalidValue> {
    let wrong = || InvalidValue::new("port range", text, "FROM-TO, such as 20000-29999");
    let (from, to) = text.split_once('-').ok_or_else(wrong)?;
    let (from, to): (u16, u16) = (from.parse().map_err(|_| wrong())?, to.parse().map_err(|_| wrong())?);
    if from == 0 || from > to { Err(wrong()) } else { Ok(from..=to) }
}

impl Nats {
    /// Creates the settings of connections to these servers.
    #[must_use]
    pub fn new(urls: Vec<String>, login: Login, tls: Tls) -> Self {
        Self { urls, login, tls, refused: Arc::default() }
    }

    /// Waits until a server accepts a connection, because services and servers may be started in any order.
    /// Returns `false` if the service was stopped before a server accepted.
    ///
    /// # Errors
    /// Returns an error if the server rejects the login, or an address or file is not valid. Waiting does not
    /// resolve these errors.
    pub async fn wait_for_server(&self, stop: &CancellationToken) -> Result<bool, ServiceError> {
        let mut told = false;
        loop {
            let error = match self.settings("muster", PROBE_INBOX).connect().await {
                Ok(_) => return Ok(true),
                Err(error @ ConnectError::Unreachable { .. }) => error,
                Err(
                    error @ (ConnectError::Refused { .. }
                    | ConnectError::File { .. }
                    | ConnectError::Settings(_)),
                ) => return Err(error.into()),
            };
            if !std::mem::replace(&mut told, true) {
                tracing::warn!("{}; retrying", chain(&error));
            }
            tokio::select! {
                () = stop.cancelled() => return Ok(false),
                () = tokio::time::sleep(SERVER_RETRY_PAUSE) => {}
            }
        }
    }

    /// Returns the same servers with these credentials. `None` keeps the current credentials.
    fn with_credentials(&self, credentials: Option<&Path>) -> Self {
        let login =
            credentials.map_or_else(|| self.login.clone(), |file| Login::Credentials(file.to_owned()));
        Self { login, ..self.clone() }
    }

    /// Returns the files with the secrets that identify this program to the server.
    fn key_files(&self) -> impl Iterator<Item = PathBuf> {
        let login = match &self.login {
            Login::Anonymous => None,
            Login::Credentials(file) | Login::Nkey(file) | Login::Password { file, .. } => Some(file.clone()),
        };
        login.into_iter().chain(self.tls.certificate.clone().map(|(_, key)| key))
    }

    fn settings(&self, name: &str, inbox: &str) -> Settings {
        let mut settings = Settings::new(self.urls.clone(), name, inbox);
        settings.login = self.login.clone();
        settings.tls = self.tls.clone();
        settings.violation_count = Arc::clone(&self.refused);
        settings
    }

    /// Opens a connection that receives replies at this inbox.
    pub async fn connect(&self, name: &str, inbox: &Inbox) -> Result<bus::nats::Connection, ServiceError> {
        Ok(self.settings(name, &inbox.to_string()).connect().await?)
    }

    /// Opens a connection for diagnosis. The connection reports the reason of a failure, and may probe
    /// permissions.
    ///
    /// # Errors
    /// The connection cannot be made.
    pub async fn connect_for_diagnosis(
        &self,
        name: &str,
        inbox: &str,
    ) -> Result<bus::nats::Connection, ConnectError> {
        Settings { probes_permissions: true, ..self.settings(name, inbox) }.connect().await
    }

    /// Opens a bus connection that receives replies at this inbox.
    pub async fn bus(&self, name: &str, inbox: &Inbox) -> Result<Bus, ServiceError> {
        Ok(Bus::from(self.connect(name, inbox).await?))
    }

    /// Opens the journal over a separate connection, so that queries do not delay appends.
    ///
    /// # Errors
    /// There is no server or no stream, or access is denied.
    pub async fn journal(
        &self,
        name: &str,
        inbox: &Inbox,
        settings: &StreamSettings,
    ) -> Result<Journal, ServiceError> {
        let connection = self.connect(name, inbox).await?;
        Ok(Journal::JetStream(JetStream::open(connection, settings).await?))
    }

    /// Opens the journal for a service once the journal contains a cluster. The service waits in three cases:
    /// the NATS servers are still connecting to each other, the stream is missing or empty, or a log is being
    /// imported. A missing or empty stream may indicate a lost log, so a service never founds a new cluster.
    /// `waits` is called with each new reason. Returns `None` if the service was stopped before the journal
    /// was ready.
    pub(crate) async fn wait_for_journal(
        &self,
        name: &str,
        inbox: &Inbox,
        settings: &StreamSettings,
        stop: &CancellationToken,
        mut waits: impl FnMut(&str),
    ) -> Result<Option<Journal>, ServiceError> {
        let settings = StreamSettings { create: false, ..settings.clone() };
        let mut told = String::new();
        let connection = self.connect(name, inbox).await?;
        loop {
            let opened = async {
                let journal = Journal::JetStream(JetStream::open(connection.clone(), &settings).await?);
                let is_empty = journal.end().await? == Position(0);
                Ok::<_, JournalError>((journal, is_empty))
            };
            let opened = tokio::select! {
                opened = opened => opened,
                () = stop.cancelled() => return Ok(None),
            };
            let why = match opened {
                Ok((journal, false)) => return Ok(Some(journal)),
                Ok((_, true)) => {
                    format!("no cluster: the stream {STREAM} is empty: {NO_LOG_ADVICE}")
                }
                Err(JournalError::Absent) => {
                    format!("no cluster: {}: {}", JournalError::Absent, NO_LOG_ADVICE)
                }
                Err(error @ JournalError::Unavailable { .. }) => chain(&error),
                Err(error @ (JournalError::Refused(_) | JournalError::Damaged(_) | JournalError::Closed)) => {
                    return Err(error.into());
                }
            };
            if told != why {
                tracing::warn!("{why}; waiting");
                waits(&why);
                told = why;
            }
            tokio::select! {
                () = stop.cancelled() => return Ok(None),
                () = tokio::time::sleep(SERVER_RETRY_PAUSE) => {}
            }
        }
    }
}

/// Creates a unique name for a program, and a seed for the ids that it generates.
pub fn identity(role: &str) -> Result<(ServiceId, u64), ServiceError> {
    let seed = clock::seed().map_err(ServiceError::Randomness)?;
    let id = IdGenerator::new(seed).next(Timestamp(0)).simple().to_string();
    let name = format!("{role}-{}", &id[20..]);
    Ok((ServiceId::new(&name)?, seed))
}

/// Runs a BBS.
///
/// # Errors
/// The BBS cannot start, or fails.
pub async fn run_bbs(
    nats: &Nats,
    args: &BbsArgs,
    watching: MetricsRegistry,
    stop: CancellationToken,
) -> Result<(), ServiceError> {
    let (id, seed) = identity("bbs")?;
    let own = bbs::SharedResources::new(args.keys.open()?, args.callback_allow.iter().cloned().collect())?;
    let stream = StreamSettings {
        replicas: args.replicas,
        monitoring: args.monitoring.clone(),
        ..StreamSettings::default()
    };
    let bus = nats.bus(id.as_str(), &Inbox::Bbs(id.clone())).await?;
    let queries = nats.connect(&format!("{id} queries"), &Inbox::Bbs(id.clone())).await?;
    let watch = BbsMetrics::register_before_journal(&watching, bus.clone(), Arc::clone(&nats.refused));
    let writer = nats.with_credentials(args.writer_creds.as_deref());
    let (name, inbox) = (format!("{id} writer"), Inbox::BbsWriter(id.clone()));
    let waiting = NoJournalResponder::new(Bus::from(queries.clone()), bus.clone());
    let waits = |why: &str| {
        watch.set_waiting_reason(why);
        waiting.refuse(why);
    };
    let opened = writer.wait_for_journal(&name, &inbox, &stream, &stop, waits).await?;
    drop(waiting);
    let Some(journal) = opened else { return Ok(()) };
    let history = journal.with_connection(queries.clone()).await?;
    let cache = args.cache.open();
    match &cache {
        Some(cache) => {
            tracing::info!(%id, cache = %cache.folder.display(), "snapshots of the past are cached");
        }
        None => tracing::warn!(
            %id,
            "queries about the past are disabled: HOME is not set, and --cache is not given"
        ),
    }
    let traces = args.traces.otlp.clone();
    let lines = driver::Connections { journal, bus, queries: Bus::from(queries), history, cache, traces };
    watch.set_journal(&watching, lines.history.clone(), stop.child_token());
    let durability = lines.journal.durability();
    match &durability {
        Durability::Synced => tracing::info!(%id, "the journal syncs every write"),
        Durability::Unverified(why) => tracing::warn!(%id, why, "durability is unverified"),
        Durability::Volatile => {
            tracing::warn!(%id, "the journal is in memory: it is lost when this process exits");
        }
    }
    let presence = ::bbs::presence::Config {
        mass_loss_wait: std::time::Duration::from_secs(args.mass_loss_wait),
        ..::bbs::presence::Config::default()
    };
    let (durability, program) = (durability.to_string(), fingerprint::program());
    let history_limit = args.history_limit;
    let settings = ::bbs::Config {
        id,
        founding_shards: None,
        presence,
        durability,
        history_limit,
        program,
        slice_len: ::bbs::SLICE_LEN,
        bytes_in_flight: schemas::limits::BYTES_IN_FLIGHT,
        may_lead: true,
    };
    Ok(bbs::run(settings, seed, (lines, own), watch, stop).await?)
}

/// Pause between attempts to reach a server.
const SERVER_RETRY_PAUSE: std::time::Duration = std::time::Duration::from_millis(200);
/// Inbox of a connection that sends no requests.
const PROBE_INBOX: &str = "muster.inbox.start";

/// Runs an auctioneer.
///
/// # Errors
/// The auctioneer cannot start, or fails.
pub async fn run_auctioneer(
    nats: &Nats,
    args: &AuctioneerArgs,
    watching: MetricsRegistry,
    stop: CancellationToken,
) -> Result<(), ServiceError> {
    let (id, _) = identity("auctioneer")?;
    let stream = StreamSettings { replicas: args.replicas, ..StreamSettings::default() };
    let (name, inbox) = (format!("{id} reader"), Inbox::AuctioneerReader(id.clone()));
    let opened = nats.wait_for_journal(&name, &inbox, &stream, &stop, |_| {}).await?;
    let Some(journal) = opened else { return Ok(()) };
    let bus = nats.bus(id.as_str(), &Inbox::Auctioneer(id.clone())).await?;
    let cache = args.cache.open();
    if let Some(cache) = cache.clone() {
        tokio::spawn(keep_newest(journal.clone(), cache, stop.child_token()));
    }
    let watched = (bus.clone(), journal.clone());
    let watch =
        AuctioneerMetrics::register(&watching, watched, Arc::clone(&nats.refused), stop.child_token());
    Ok(auctioneer::run((id, fingerprint::program()), (journal, bus), cache, watch, stop).await?)
}

/// Runs a rep.
///
/// # Errors
/// The rep cannot start, or fails.
pub async fn run_rep(
    nats: &Nats,
    data: PathBuf,
    args: &RepArgs,
    watching: MetricsRegistry,
    stop: CancellationToken,
) -> Result<RunOutcome, ServiceError> {
    let keys = args.keys.open()?;
    let bus = nats.bus(&format!("rep {}", args.cell), &Inbox::Rep(args.cell.clone())).await?;
    let watch = RepMetrics::begin(&watching, args.cell.clone(), bus.clone(), Arc::clone(&nats.refused));
    let folder = data.clone();
    let known = move || home::recorded_cluster(&folder);
    let _named = report(&bus, format!("rep {}", args.cell), known).await.map_err(RunError::from)?;
    let cluster_id = tokio::select! {
        () = stop.cancelled() => return Ok(RunOutcome::Stopped),
        checked = home::check_cluster(&bus, &args.cell, &data) => checked?,
    };
    fingerprint::raise_open_file_limit();
    let host = fingerprint::resources(&data);
    let total = Resources {
        memory_mb: args.memory_mb.unwrap_or(host.memory_mb),
        disk_mb: args.disk_mb.unwrap_or(host.disk_mb),
        containers: args.containers,
        ports: fingerprint::port_count(&args.ports),
    };
    let folder = home::folder_id(&data)?;
    tracing::info!(cell = %args.cell, %folder, data = %data.display(), "starting the rep");
    let (zone, stack) = (args.zone.clone(), args.stack.clone());
    let mut settings = ::rep::Settings::new(args.cell.clone(), folder, zone, stack, total);
    settings.placement_tags = args.tags.iter().cloned().collect::<BTreeSet<_>>();
    settings.evacuation_timeout = std::time::Duration::from_secs(args.evacuation_timeout);
    let (inputs, receiver) = mpsc::channel(INPUT_CAPACITY);
    let mut executor =
        executor::process::Settings::new(data, args.cell.clone(), &args.address, shim_command()?);
    executor.ports = args.ports.clone();
    executor.keys = keys;
    executor.isolate = args.isolation.isolate(args.first_id);
    executor.root_fs.clone_from(&args.root_fs);
    executor.images.clone_from(&args.images);
    executor.artifacts = args.artifacts.settings();
    executor.masked = nats.key_files().chain(args.keys.file.clone()).collect();
    let containers = Containers::process(executor, inputs.clone()).await?;
    watch.set_backend(&containers);
    let given = args.attributes.iter().flatten().cloned().collect();
    settings.attributes = fingerprint::attributes(given, containers.isolation())?;
    let (_, seed) = identity("rep")?;
    let channel = (inputs, receiver);
    let running = rep::run(settings, seed, (bus, containers, Some(cluster_id)), channel, watch, stop);
    Ok(running.await.map_err(RunError::from)?)
}

/// Returns the command that starts a shim, which is this program.
pub fn shim_command() -> Result<Vec<OsString>, ServiceError> {
    let program = std::env::current_exe().map_err(ServiceError::Program)?;
    Ok(vec![program.into(), "shim".into()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_parsed_with_lists_as_values() {
        let read = |text: &str| -> Option<Vec<String>> {
            let given = parse_attributes(text).ok()?;
            Some(given.iter().map(|(name, value)| format!("{name} is {value}")).collect())
        };
        assert_eq!(read("rack=r1").unwrap(), ["rack is r1"]);
        assert_eq!(read("rack=r1,class=a,b,size=2").unwrap(), ["rack is r1", "class is a,b", "size is 2"]);
        assert_eq!(read("note=a=b").unwrap(), ["note is a=b"]);
        for bad in ["rack", "rack=", "=r1", "ra ck=1", ".rack=1", "rack=\n"] {
            let said = parse_attributes(bad).unwrap_err().to_string();
            assert!(said.contains("NAME=VALUE, such as rack=r1"), "{said}");
        }
    }
}
