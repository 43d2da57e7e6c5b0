//! How the cluster is: who beats, and what isn't as it ought to be.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rows::{CellRow, ClusterRow, InstanceRow};
use crate::Timestamp;
use crate::cluster::Role;
use crate::message::Program;
use crate::names::ServiceId;
use crate::subject::Position;

/// A BBS or an auctioneer that beats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceRow {
    /// Its id, another one at each start.
    pub id: ServiceId,
    /// What it is.
    pub role: Role,
    /// Whether it leads; if not, it stands by.
    pub leads: bool,
    /// The term that it leads in, or the highest that it knows.
    pub term: u64,
    /// Which program it is, and where.
    pub program: Program,
    /// Up to where it had folded the log when it beat last.
    pub position: Position,
    /// How many entries behind the newest position known it was then.
    pub lag: u64,
    /// How long ago it beat last, in milliseconds.
    pub beat_ms_ago: u64,
    /// Trouble with appending to the log, of a BBS that has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append_trouble: Option<AppendTrouble>,
}

/// Trouble of a BBS with appending to the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AppendTrouble {
    /// When it began.
    pub since: Timestamp,
    /// `true` if appends fail, so that commands are refused; `false` if they take long.
    pub fails: bool,
    /// The reason, in the words of the server where it gave one.
    pub reason: String,
}

/// State of the stream that holds the log, as the BBS that answers read it last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogRow {
    /// Number of servers that should hold every entry.
    pub replicas: u32,
    /// Number of servers that do.
    pub replicas_in_sync: u32,
    /// Names of the servers that do not have every entry.
    pub behind: Vec<String>,
    /// Number of entries.
    pub entries: u64,
    /// Size of the entries in bytes.
    pub bytes: u64,
    /// Maximum size of the stream in bytes; none if it has no limit.
    pub max_bytes: Option<u64>,
    /// Reason for which entries cannot be read, in the words of the server where it gave one; none while they can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
    /// Reasons for which servers may destroy the stream as it is configured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hazards: Vec<String>,
}

/// The BBSs and auctioneers that beat now, as the BBS that answers hears them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Services {
    /// Those that beat, BBSs first, of each role who leads first.
    pub rows: Vec<ServiceRow>,
    /// Whether the BBS that answers has listened for long enough to have heard everybody. Until it has, nobody is called
    /// missing.
    pub complete: bool,
    /// Clocks of the cluster.
    #[serde(default)]
    pub clocks: ClocksRow,
}

/// Clocks of the cluster, as the BBS that answers compares them: those of the NATS server, of BBSs and auctioneers, and of cells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClocksRow {
    /// Number of clocks that are compared.
    pub compared: u32,
    /// Milliseconds by which the clock of the BBS that answers is ahead of the median; negative if it is behind.
    pub ahead_ms: i64,
    /// Clocks that differ from the median by more than 5 s, at most 10 of them.
    pub off: Vec<ClockOff>,
    /// Milliseconds by which the latest decision in the log is ahead of the clocks, if those are more than 5 s; else 0.
    pub log_ahead_ms: u64,
}

/// A clock that differs from the median.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClockOff {
    /// Its owner: `BBS b1`, `cell c1`, `the NATS server`.
    pub of: String,
    /// Milliseconds by which it is ahead; negative if it is behind.
    pub ahead_ms: i64,
}

/// How the cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Health {
    /// Everything is as it ought to be.
    Healthy,
    /// It works, but something isn't as it ought to be.
    Degraded,
    /// Nothing is decided or placed.
    Unhealthy,
}

impl Health {
    /// As rows say it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "HEALTHY",
            Self::Degraded => "DEGRADED",
            Self::Unhealthy => "UNHEALTHY",
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Severity {
    /// Worth knowing, and no fault.
    Note,
    /// Something isn't as it ought to be.
    Degraded,
    /// Nothing is decided or placed.
    Unhealthy,
}

/// What can be found. The word never changes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FindingCode {
    /// The log takes no entries: commands are refused.
    AppendsFail,
    /// Appends to the log take long.
    AppendsSlow,
    /// Entries of the log cannot be read: services do not learn of new ones.
    LogUnreadable,
    /// Servers may destroy the log as its stream is configured.
    LogHazard,
    /// A replica of the log is offline or does not have every entry.
    ReplicasBehind,
    /// The log is near the limit of its stream. At the limit no command is taken.
    LogNearlyFull,
    /// No BBS that beats leads: commands are not taken.
    NoBbsLeads,
    /// No auctioneer beats: nothing is placed.
    NoAuctioneer,
    /// Auctioneers beat, and none leads: nothing is placed.
    NoAuctioneerLeads,
    /// A BBS or an auctioneer is far behind the log.
    ServiceBehind,
    /// BBSs and auctioneers of several versions run.
    VersionsDiffer,
    /// A clock differs from the median of all clocks by more than 5 s.
    ClockOff,
    /// The log holds decisions of a time that is still to come.
    LogAhead,
    /// Instances are wanted or tasks wait, and no cell takes work.
    NoCell,
    /// A cell was not heard for a while.
    CellSilent,
    /// A cell is lost.
    CellLost,
    /// The self-test of a cell fails.
    CellUnhealthy,
    /// A cell is being evacuated.
    CellEvacuating,
    /// Instances crashed, and wait or are given up.
    InstancesCrashed,
    /// No cell takes instances that are wanted.
    InstancesUnplaced,
    /// Instances have waited for placement for minutes, for whatever reason.
    InstancesWaiting,
    /// No cell takes tasks that wait.
    TasksUnplaced,
    /// Monitors of instances that start fail.
    MonitorsFail,
    /// Owners of completed tasks could not be called and are called again.
    CallbacksRepeated,
    /// The journal holds what is no entry.
    MalformedEntries,
}

impl FindingCode {
    /// How bad it is.
    #[must_use]
    pub const fn severity(self) -> Severity {
        match self {
            Self::AppendsFail
            | Self::LogUnreadable
            | Self::NoBbsLeads
            | Self::NoAuctioneer
            | Self::NoAuctioneerLeads
            | Self::NoCell => Severity::Unhealthy,
            Self::AppendsSlow
            | Self::LogHazard
            | Self::ReplicasBehind
            | Self::LogNearlyFull
            | Self::ServiceBehind
            | Self::ClockOff
            | Self::LogAhead
            | Self::CellSilent
            | Self::CellLost
            | Self::CellUnhealthy
            | Self::InstancesCrashed
            | Self::InstancesUnplaced
            | Self::InstancesWaiting
            | Self::TasksUnplaced
            | Self::MonitorsFail
            | Self::CallbacksRepeated => Severity::Degraded,
            Self::VersionsDiffer | Self::CellEvacuating | Self::MalformedEntries => Severity::Note,
        }
    }
}

/// Something that isn't as it ought to be, or is worth knowing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is.
    pub code: FindingCode,
    /// The same for people.
    pub message: String,
}

impl Finding {
    /// Something that was found.
    #[must_use]
    pub fn new(code: FindingCode, message: impl Into<String>) -> Self {
        Self { severity: code.severity(), code, message: message.into() }
    }
}

/// How the cluster is. `muster.query.<root>.cluster.status`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusRow {
    /// All in one word: as bad as the worst finding.
    pub health: Health,
    /// What was found, the worst first.
    pub findings: Vec<Finding>,
    /// The cluster.
    pub cluster: ClusterRow,
    /// Instances that are desired.
    pub instances_wanted: u64,
    /// Instances that no cell takes.
    pub instances_unplaced: u64,
    /// Tasks that no cell takes.
    pub tasks_unplaced: u64,
    /// Evaluations that wait for room.
    pub evaluations_blocked: u64,
    /// Completed tasks whose owners are called again.
    pub callbacks_repeated: u64,
    /// The worst instances: crashed ones and unplaced ones.
    pub worst: Vec<InstanceRow>,
    /// Instances that are being started, `PROCESS/INDEX`, the oldest first: whose monitors may be asked about.
    pub starting: Vec<String>,
    /// Cells that are not PRESENT.
    pub cells: Vec<CellRow>,
    /// The stream that holds the log; none if it is not a stream, or its server has not answered yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogRow>,
}

impl StatusRow {
    /// Takes note of something that was found; the whole is at least as bad.
    pub fn find(&mut self, finding: Finding) {
        self.findings.push(finding);
        self.judge();
    }

    /// Puts the worst first, and says how the whole is.
    pub fn judge(&mut self) {
        self.findings.sort_by(|a, b| b.severity.cmp(&a.severity).then(a.code.cmp(&b.code)));
        self.health = match self.findings.first().map(|worst| worst.severity) {
            None | Some(Severity::Note) => Health::Healthy,
            Some(Severity::Degraded) => Health::Degraded,
            Some(Severity::Unhealthy) => Health::Unhealthy,
        };
    }
}
