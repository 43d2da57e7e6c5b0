//! Options of every command.

use std::path::PathBuf;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, ValueEnum};
use client::Client;
use runtime::telemetry;
use schemas::Timestamp;
use schemas::names::{ClientName, Domain, RequestId};
use schemas::query::AsOf;
use text::words::parse_duration;

/// Id of the option for a past moment to which all queries of a command are pinned. Commands that read the log or
/// the tables themselves have an option `--as-of` with another id.
pub(crate) const AS_OF: &str = "as_of";

/// A past moment that all queries of a command are pinned to.
#[derive(Clone, Debug)]
pub struct PastView {
    /// Client whose queries return the state at that moment.
    pub client: Client,
    /// Time of the moment, used to compute ages.
    pub(crate) at: Timestamp,
}

/// Options of every command.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Common options")]
pub struct Global {
    /// NATS servers of the cluster, separated by commas
    #[arg(long, global = true, env = "MUSTER_NATS_URL", value_name = "URL")]
    pub nats: Option<String>,
    /// Credentials file for the NATS server, or a file with an nkey seed
    #[arg(long, global = true, env = "MUSTER_NATS_CREDS", value_name = "FILE")]
    pub creds: Option<PathBuf>,
    #[command(flatten)]
    pub tls: TlsArgs,
    /// Data folder, searched for a local cluster
    #[arg(long, global = true, env = "MUSTER_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Unix socket of a local cluster [default: muster.sock in the data folder]
    #[arg(long, global = true, env = "MUSTER_SOCKET", value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Sources of the values of `nats`, `data`, `socket` and `domain`.
    #[arg(skip)]
    pub named: OptionSources,
    /// Path of the command, such as `lrp scale`.
    #[arg(skip)]
    pub command: String,
    /// Moment that `--as-of` names. `None` stands for the present.
    #[arg(skip)]
    pub as_of: Option<AsOf>,
    /// Past moment to show. `None` shows the present.
    #[arg(skip)]
    pub past: Option<PastView>,
    /// Output format
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
    /// Domain to show; for commands that read a file, the domain of entries in the file that name no domain
    #[arg(long, global = true, env = "MUSTER_DOMAIN")]
    pub domain: Option<Domain>,
    /// Maximum time to wait, such as 30s or 5m
    #[arg(long, global = true, value_parser = parse_duration, allow_negative_numbers = true, value_name = "TIME")]
    pub timeout: Option<Duration>,
    /// Reason for the change, kept in the log
    #[arg(long, global = true, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Id of this request: if the request is repeated with the same id, it is carried out only once
    #[arg(long, global = true, value_name = "ID")]
    pub request_id: Option<RequestId>,
    /// Client name that the log records [default: the user's name]
    #[arg(long, global = true, env = "MUSTER_CLIENT", value_name = "NAME")]
    pub client: Option<ClientName>,
    /// When to colour output
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub color: Color,
    #[arg(
        help = "TOML file with options by their long names; flags and the environment override it [env: MUSTER_CONFIG]",
        long,
        global = true,
        value_name = "FILE"
    )]
    pub config: Option<PathBuf>,
    /// Print help with all common options
    #[arg(long, global = true, action = clap::ArgAction::HelpLong, help_heading = None::<&'static str>)]
    pub help_all: Option<bool>,
    /// Show ids in full
    #[arg(long, global = true)]
    pub full_ids: bool,
    /// Write program output to a terminal unchanged, including control sequences
    #[arg(long, global = true)]
    pub raw: bool,
    #[arg(
        help = "Log filter of the program itself, such as debug or bus=debug [env: RUST_LOG]",
        long,
        global = true,
        value_name = "FILTER"
    )]
    pub log: Option<String>,
    /// Format of the program's own log: lines of text, or one JSON object per line
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        env = "MUSTER_LOG_FORMAT"
    )]
    pub log_format: LogFormat,
}

impl Global {
    /// Takes from a parsed command line what clap does not assign: the command, the sources of options, and the
    /// past moment.
    ///
    /// # Errors
    /// Options exclude each other, or one requires another.
    pub(crate) fn complete(&mut self, matches: &ArgMatches) -> Result<(), &'static str> {
        let named = OptionSources::from_matches(matches);
        if named.nats == OptionSource::Flag && named.socket == OptionSource::Flag {
            return Err("--nats and --socket are mutually exclusive: set one of them");
        }
        if self.tls.is_incomplete() {
            return Err("incomplete client certificate: set both --tls-cert and --tls-key");
        }
        let (path, leaf) = leaf(matches);
        self.as_of = leaf.try_get_one::<AsOf>(AS_OF).ok().flatten().copied();
        self.command = path;
        self.named = named;
        Ok(())
    }
}

/// Returns the command that was parsed, such as `lrp scale`, and its own arguments.
fn leaf(matches: &ArgMatches) -> (String, &ArgMatches) {
    let (mut words, mut leaf) = (vec![], matches);
    while let Some((name, matches)) = leaf.subcommand() {
        words.push(name);
        leaf = matches;
    }
    (words.join(" "), leaf)
}

/// Format of the program's own log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines of text
    #[default]
    Text,
    /// One JSON object per line
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

/// Encryption of the connection to the NATS server.
#[derive(Clone, Debug, Default, Args)]
pub struct TlsArgs {
    /// Certificates of the authorities that may sign the NATS server's certificate [default: the system's]
    #[arg(long, global = true, env = "MUSTER_NATS_CA", value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Client certificate presented to the NATS server, with --tls-key
    #[arg(long, global = true, env = "MUSTER_NATS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the client certificate
    #[arg(long, global = true, env = "MUSTER_NATS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
}

impl TlsArgs {
    /// Returns the TLS settings of the NATS connection. TLS is required if an authority or a certificate is
    /// configured.
    pub(crate) fn nats_tls(&self) -> client::Tls {
        let certificate = self.tls_cert.clone().zip(self.tls_key.clone());
        let required = self.tls_ca.is_some() || certificate.is_some();
        client::Tls { required, handshake_first: false, roots: self.tls_ca.clone(), certificate }
    }

    /// Returns `true` if a certificate is set without its key, or a key without its certificate.
    pub(crate) const fn is_incomplete(&self) -> bool {
        self.tls_cert.is_some() != self.tls_key.is_some()
    }
}

/// Source of an option's value, in ascending precedence: a flag overrides the environment, which overrides
/// the configuration file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum OptionSource {
    /// The configuration file, or no value at all.
    #[default]
    File,
    Environment,
    Flag,
}

/// Sources of the options that locate a cluster, and of the domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionSources {
    pub nats: OptionSource,
    pub data: OptionSource,
    pub socket: OptionSource,
    pub domain: OptionSource,
}

impl OptionSources {
    /// Reads the sources from parsed command-line arguments.
    #[must_use]
    pub fn from_matches(matches: &ArgMatches) -> Self {
        let strength = |name: &str| match matches.value_source(name) {
            Some(ValueSource::CommandLine) => OptionSource::Flag,
            Some(ValueSource::EnvVariable) => OptionSource::Environment,
            Some(_) | None => OptionSource::File,
        };
        Self {
            nats: strength("nats"),
            data: strength("data"),
            socket: strength("socket"),
            domain: strength("domain"),
        }
    }
}

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Human-readable table
    #[default]
    Table,
    /// One JSON value
    Json,
    /// One JSON value per line
    Jsonl,
    /// Comma-separated values with a header line
    #[value(hide = true)]
    Csv,
    /// A definition file
    #[value(hide = true)]
    Toml,
}

/// Use of colour in output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless the environment disables it
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}
