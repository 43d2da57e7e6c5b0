//! Health of the cluster: active services, findings, and the overall status.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rows::{CellRow, ClusterRow, InstanceRow};
use crate::Timestamp;
use crate::cluster::Role;
use crate::message::Program;
use crate::names::ServiceId;
use crate::subject::Position;

/// A BBS or an auctioneer that sends heartbeats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceRow {
    /// Id of the service. It changes at each start.
    pub id: ServiceId,
    /// Role of the service.
    pub role: Role,
    /// `true` if the service leads, `false` if it is a standby.
    pub leads: bool,
    /// Term in which the service leads. For a standby, the highest term that the standby knows.
    pub term: u64,
    /// Version, host and process id of the program.
    pub program: Program,
    /// Position up to which the service had folded the log at its last heartbeat.
    pub position: Position,
    /// Number of entries between `position` and the newest position that was known at the last heartbeat.
    pub lag: u64,
    /// Age of the last heartbeat in milliseconds.
    pub heartbeat_ms_ago: u64,
    /// Problem of a BBS with appending to the log. `None` if the BBS has no such problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append_problem: Option<AppendProblem>,
}

/// A problem of a BBS with appending to the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AppendProblem {
    /// Time when the problem began.
    pub since: Timestamp,
    /// `true` if appends fail, so that commands are refused. `false` if appends are slow.
    pub failing: bool,
    /// Reason, in the server's words if it reported one.
    pub reason: String,
}

/// State of the stream that holds the log, as last read by the BBS that answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogRow {
    /// Number of servers that should hold every entry.
    pub replicas: u32,
    /// Number of servers that hold every entry.
    pub replicas_in_sync: u32,
    /// Names of the servers that do not have every entry.
    pub behind: Vec<String>,
    /// Number of entries.
    pub entries: u64,
    /// Size of the entries in bytes.
    pub bytes: u64,
    /// Maximum size of the stream in bytes. `None` if it has no limit.
    pub max_bytes: Option<u64>,
    /// Reason why entries cannot be read, in the server's words if it reported one. `None` while they can be
    /// read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
    /// Reasons why servers may destroy the stream with its current configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hazards: Vec<String>,
}

/// BBSs and auctioneers whose heartbeats the answering BBS currently receives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Services {
    /// Services that send heartbeats: BBSs first, and the leader of each role first.
    pub rows: Vec<ServiceRow>,
    /// `true` if the answering BBS has listened long enough to have received every heartbeat. While the value
    /// is `false`, no service is reported as missing.
    pub complete: bool,
    /// Clocks of the cluster.
    #[serde(default)]
    pub clocks: ClocksRow,
}

/// Clocks of the cluster, as compared by the BBS that answers: those of the NATS server, of BBSs and
/// auctioneers, and of cells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClocksRow {
    /// Number of clocks that are compared.
    pub compared: u32,
    /// Milliseconds by which the clock of the answering BBS is ahead of the median. Negative if it is behind.
    pub ahead_ms: i64,
    /// Clocks that differ from the median by more than 5 s, at most 10 of them.
    pub skewed: Vec<ClockSkew>,
    /// Milliseconds by which the latest decision in the log is ahead of the clocks. 0 if it is not ahead by
    /// more than 5 s.
    pub log_ahead_ms: u64,
}

/// A clock that differs from the median.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClockSkew {
    /// Owner of the clock: `BBS b1`, `cell c1`, `the NATS server`.
    pub clock: String,
    /// Milliseconds by which the clock is ahead. Negative if it is behind.
    pub ahead_ms: i64,
}

/// Overall health of the cluster.
#[derive(strum::IntoStaticStr, strum::Display)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE", const_into_str)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Health {
    /// No problems.
    Healthy,
    /// Working, but with problems.
    Degraded,
    /// No decisions or no placements are made.
    Unhealthy,
}

impl Health {
    /// Returns the health as shown in rows.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Severity {
    /// Worth knowing, but not a fault.
    Note,
    /// A problem.
    Degraded,
    /// No decisions or no placements are made.
    Unhealthy,
}

/// Code of a finding. Codes never change their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FindingCode {
    /// Appends to the log fail, so commands are refused.
    AppendsFail,
    /// Appends to the log are slow.
    AppendsSlow,
    /// Entries of the log cannot be read, so services do not receive new ones.
    LogUnreadable,
    /// Servers may destroy the log with the current configuration of its stream.
    LogHazard,
    /// A replica of the log is offline or does not have every entry.
    ReplicasBehind,
    /// The log is near the limit of its stream. At the limit no command is accepted.
    LogNearlyFull,
    /// No active BBS leads, so commands are not accepted.
    NoBbsLeads,
    /// No auctioneer is active, so nothing is placed.
    NoAuctioneer,
    /// Auctioneers are active but none leads, so nothing is placed.
    NoAuctioneerLeads,
    /// A BBS or an auctioneer is far behind the log.
    ServiceBehind,
    /// BBSs and auctioneers of different versions run.
    VersionsDiffer,
    /// A clock differs from the median of all clocks by more than 5 s.
    ClockSkew,
    /// The log holds decisions with times in the future.
    LogAhead,
    /// Instances or tasks wait, and no cell accepts work.
    NoCell,
    /// A cell has sent no recent heartbeat.
    CellSilent,
    /// A cell is lost.
    CellLost,
    /// The self-test of a cell fails.
    CellUnhealthy,
    /// A cell is being evacuated.
    CellEvacuating,
    /// Instances crashed and wait for a restart, or are given up.
    InstancesCrashed,
    /// No cell accepts some of the desired instances.
    InstancesUnplaced,
    /// Instances have waited for placement for minutes, for any reason.
    InstancesWaiting,
    /// No cell accepts some of the waiting tasks.
    TasksUnplaced,
    /// Monitors of starting instances fail.
    MonitorsFail,
    /// Completion callbacks failed and are retried.
    CallbacksRetried,
    /// The journal holds messages that are not valid entries.
    QuarantinedEntries,
}

impl FindingCode {
    /// Returns the severity of the code.
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
            | Self::ClockSkew
            | Self::LogAhead
            | Self::CellSilent
            | Self::CellLost
            | Self::CellUnhealthy
            | Self::InstancesCrashed
            | Self::InstancesUnplaced
            | Self::InstancesWaiting
            | Self::TasksUnplaced
            | Self::MonitorsFail
            | Self::CallbacksRetried => Severity::Degraded,
            Self::VersionsDiffer | Self::CellEvacuating | Self::QuarantinedEntries => Severity::Note,
        }
    }
}

/// A problem, or something worth knowing, about the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Severity of the finding.
    pub severity: Severity,
    /// Code of the finding.
    pub code: FindingCode,
    /// Human-readable message.
    pub message: String,
}

impl Finding {
    /// Creates a finding with the severity of its code.
    #[must_use]
    pub fn new(code: FindingCode, message: impl Into<String>) -> Self {
        Self { severity: code.severity(), code, message: message.into() }
    }
}

/// The status of the cluster. `muster.query.<root>.cluster.status`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusRow {
    /// Overall health, as bad as the worst finding.
    pub health: Health,
    /// Findings, the worst first.
    pub findings: Vec<Finding>,
    /// The cluster.
    pub cluster: ClusterRow,
    /// Number of desired instances.
    pub instances_desired: u64,
    /// Number of instances that no cell accepts.
    pub instances_unplaced: u64,
    /// Number of tasks that no cell accepts.
    pub tasks_unplaced: u64,
    /// Number of evaluations that wait for room.
    pub evaluations_blocked: u64,
    /// Number of completed tasks whose callbacks are retried.
    pub callbacks_retried: u64,
    /// The worst instances: crashed and unplaced ones.
    pub worst: Vec<InstanceRow>,
    /// Starting instances as `PROCESS/INDEX`, the oldest first. Clients may query their monitors.
    pub starting: Vec<String>,
    /// Cells that are not PRESENT.
    pub cells: Vec<CellRow>,
    /// Stream that holds the log. `None` if the log is not a stream, or if its server has not answered yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogRow>,
}

impl StatusRow {
    /// Adds a finding and updates the overall health.
    pub fn add_finding(&mut self, finding: Finding) {
        self.findings.push(finding);
        self.update_health();
    }

    /// Sorts the findings, the worst first, and derives the overall health.
    pub fn update_health(&mut self) {
        self.findings.sort_by(|a, b| b.severity.cmp(&a.severity).then(a.code.cmp(&b.code)));
        self.health = match self.findings.first().map(|worst| worst.severity) {
            None | Some(Severity::Note) => Health::Healthy,
            Some(Severity::Degraded) => Health::Degraded,
            Some(Severity::Unhealthy) => Health::Unhealthy,
        };
    }
}
