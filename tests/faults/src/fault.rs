//! Faults: names, effects, reversals and requirements.

use std::fmt;

use schemas::query::FindingCode;

use crate::cluster::Shape;

/// Fault that is injected into a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    KillBbsLeader,
    KillBbsStandby,
    KillAuctioneerLeader,
    KillAuctioneerStandby,
    KillRep,
    KillProjector,
    KillShim,
    KillNats,
    KillPostgres,
    PauseBbsLeader,
    PauseAuctioneerLeader,
    PauseRep,
    /// The traffic of a rep is held back in both directions.
    CutRep,
    /// The connections of a rep are closed. New connections are closed as soon as they are accepted.
    TearRep,
    StopBbsLeader,
    StopAuctioneerLeader,
    PauseAuctioneers,
    /// The wall clock of the leading BBS is an hour ahead.
    ShiftClock,
    /// No container can be created on a cell.
    BreakCell,
    /// The stream of the log has reached its limit.
    FillLog,
    /// The disk of the journal is full.
    FillDisk,
    /// Every node of the journal loses its power.
    CutPower,
    /// One node of the journal loses its power.
    CutPowerOfOne,
    /// The standbys fall behind in the log and must then lead.
    HalfBehind,
    /// Every service is killed. Then all services are started at once.
    StartAtOnce,
    /// Every service is stopped and restarted, one after the other.
    RestartOneByOne,
    /// Every service is upgraded from an earlier build, one after the other.
    UpgradeOneByOne,
    /// One node of three is lost for a while.
    LoseOneNode,
    /// Two nodes of three are lost for a while.
    LoseTwoNodes,
}

/// Requirements of a fault on the cluster and on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// No special requirement.
    Nothing,
    /// Separate network for each rep. These networks require a single NATS server.
    Network,
    /// Separate disks for the journal. These disks require root and loop devices.
    Disks,
    ThreeNodes,
    /// Three NATS servers with separate disks.
    ThreeDisks,
    EarlierBuild,
}

/// Description of a fault.
#[derive(Clone, Copy, Debug)]
pub struct FaultInfo {
    pub name: &'static str,
    /// Effect, as text.
    pub effect: &'static str,
    /// Description of the reversal.
    pub reversal: &'static str,
    pub needs: Requirement,
    /// Finding that `muster status` must show during the fault and must not show after the fault. `None` if
    /// no finding is certain.
    pub finding: Option<FindingCode>,
}

const fn info(
    name: &'static str,
    needs: Requirement,
    finding: Option<FindingCode>,
    effect: &'static str,
    undone: &'static str,
) -> FaultInfo {
    FaultInfo { name, effect, reversal: undone, needs, finding }
}

impl Fault {
    /// Faults in the order of their definition.
    pub const ALL: [Self; 29] = [
        Self::KillBbsLeader,
        Self::KillBbsStandby,
        Self::KillAuctioneerLeader,
        Self::KillAuctioneerStandby,
        Self::KillRep,
        Self::KillProjector,
        Self::KillShim,
        Self::KillNats,
        Self::KillPostgres,
        Self::PauseBbsLeader,
        Self::PauseAuctioneerLeader,
        Self::PauseRep,
        Self::CutRep,
        Self::TearRep,
        Self::StopBbsLeader,
        Self::StopAuctioneerLeader,
        Self::PauseAuctioneers,
        Self::ShiftClock,
        Self::BreakCell,
        Self::FillLog,
        Self::FillDisk,
        Self::CutPower,
        Self::CutPowerOfOne,
        Self::HalfBehind,
        Self::StartAtOnce,
        Self::RestartOneByOne,
        Self::UpgradeOneByOne,
        Self::LoseOneNode,
        Self::LoseTwoNodes,
    ];

    /// Returns the description of the fault.
    #[rustfmt::skip]
    #[must_use]
    pub const fn row(self) -> FaultInfo {
        use FindingCode::{AppendsFail, CellLost, CellUnhealthy, ClockSkew, NoAuctioneer, ReplicasBehind};
        use Requirement::{Disks, EarlierBuild, Network, Nothing, ThreeDisks, ThreeNodes};
        match self {
            Self::KillBbsLeader         => info("kill-bbs-leader",         Nothing,      None,                 "kill -9 of the leading BBS",                                        "restarted at once"),
            Self::KillBbsStandby        => info("kill-bbs-standby",        Nothing,      None,                 "kill -9 of the standby BBS",                                        "restarted at once"),
            Self::KillAuctioneerLeader  => info("kill-auctioneer-leader",  Nothing,      None,                 "kill -9 of the leading auctioneer",                                 "restarted at once"),
            Self::KillAuctioneerStandby => info("kill-auctioneer-standby", Nothing,      None,                 "kill -9 of the standby auctioneer",                                 "restarted at once"),
            Self::KillRep               => info("kill-rep",                Nothing,      None,                 "kill -9 of a rep",                                                  "restarted at once"),
            Self::KillProjector         => info("kill-projector",          Nothing,      None,                 "kill -9 of the projector",                                          "restarted at once"),
            Self::KillShim              => info("kill-shim",               Nothing,      None,                 "kill -9 of the shim of a container",                                "nothing to undo"),
            Self::KillNats              => info("kill-nats",               Nothing,      None,                 "kill -9 of a nats-server",                                          "restarted at once"),
            Self::KillPostgres          => info("kill-postgres",           Nothing,      None,                 "kill -9 of the main process of PostgreSQL",                         "restarted at once"),
            Self::PauseBbsLeader        => info("pause-bbs-leader",        Nothing,      None,                 "SIGSTOP of the leading BBS for 40 s",                               "SIGCONT"),
            Self::PauseAuctioneerLeader => info("pause-auctioneer-leader", Nothing,      None,                 "SIGSTOP of the leading auctioneer for 40 s",                        "SIGCONT"),
            Self::PauseRep              => info("pause-rep",               Nothing,      Some(CellLost),       "SIGSTOP of a rep for 40 s: its cell is lost",                       "SIGCONT"),
            Self::CutRep                => info("cut-rep",                 Network,      Some(CellLost),       "traffic of a rep held back in both directions for 40 s",            "held traffic delivered"),
            Self::TearRep               => info("tear-rep",                Network,      Some(CellLost),       "connections of a rep closed and refused for 40 s",                  "connections accepted"),
            Self::StopBbsLeader         => info("stop-bbs-leader",         Nothing,      None,                 "SIGTERM to the leading BBS",                                        "restarted after its exit"),
            Self::StopAuctioneerLeader  => info("stop-auctioneer-leader",  Nothing,      None,                 "SIGTERM to the leading auctioneer",                                 "restarted after its exit"),
            Self::PauseAuctioneers      => info("pause-auctioneers",       Nothing,      Some(NoAuctioneer),   "SIGSTOP of every auctioneer until `status` shows it",               "SIGCONT"),
            Self::ShiftClock            => info("shift-clock",             Nothing,      Some(ClockSkew),      "clock of the leading BBS one hour ahead until another BBS leads",   "clock set right"),
            Self::BreakCell             => info("break-cell",              Nothing,      Some(CellUnhealthy),  "container folder of a cell missing until `status` shows it",        "folder restored"),
            Self::FillLog               => info("fill-log",                Nothing,      Some(AppendsFail),    "`max_bytes` of the stream set to its size until `status` shows it", "limit removed"),
            Self::FillDisk              => info("fill-disk",               Disks,        Some(AppendsFail),    "disk of the journal full until no command succeeds for 10 s",       "space freed, nats-server restarted"),
            Self::CutPower              => info("cut-power",               Disks,        None,                 "power cut of every node of the journal",                            "mounted and restarted"),
            Self::CutPowerOfOne         => info("cut-power-of-one",        ThreeDisks,   None,                 "power cut of one node of three",                                    "mounted and restarted"),
            Self::HalfBehind            => info("half-behind",             Nothing,      None,                 "standbys paused for 1,000 entries, then the leaders killed",        "SIGCONT; restarted at once"),
            Self::StartAtOnce           => info("start-at-once",           Nothing,      None,                 "kill -9 of every service, caches removed",                          "all started at once"),
            Self::RestartOneByOne       => info("restart-one-by-one",      Nothing,      None,                 "SIGTERM to every service, one by one",                              "restarted, each before the next one stops"),
            Self::UpgradeOneByOne       => info("upgrade-one-by-one",      EarlierBuild, None,                 "every service restarted with the earlier build, one by one",        "restarted with this build, one by one"),
            Self::LoseOneNode           => info("lose-one-node",           ThreeNodes,   Some(ReplicasBehind), "kill -9 of one NATS server of three for 20 s",                      "restarted"),
            Self::LoseTwoNodes          => info("lose-two-nodes",          ThreeNodes,   Some(AppendsFail),    "kill -9 of two NATS servers of three for 20 s",                     "restarted"),
        }
    }

    /// Returns the fault with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.row().name == name)
    }

    /// Returns `true` if the fault can be injected into a cluster of this shape. `earlier` is `true` if an
    /// earlier build exists.
    #[must_use]
    pub const fn fits(self, shape: Shape, earlier: bool) -> bool {
        match self.row().needs {
            Requirement::Nothing => true,
            Requirement::Network => shape.nodes == 1,
            Requirement::Disks => shape.disks,
            Requirement::ThreeNodes => shape.nodes == 3,
            Requirement::ThreeDisks => shape.nodes == 3 && shape.disks,
            Requirement::EarlierBuild => earlier,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code_name(code: FindingCode) -> String {
        let name = serde_json::to_value(code).unwrap();
        name.as_str().unwrap().to_owned()
    }

    #[test]
    fn faults_have_unique_names_and_fit_a_shape() {
        let single = Shape { nodes: 1, cells: 3, disks: true, past: 0 };
        let three = Shape { nodes: 3, ..single };
        for (at, fault) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(Fault::ALL.iter().position(|other| *other == fault), Some(at));
            assert_eq!(Fault::from_name(fault.row().name), Some(fault));
            assert!(fault.fits(single, true) || fault.fits(three, true), "{fault}");
        }
    }

    #[test]
    fn testing_page_lists_every_fault() {
        let page = include_str!("../../../docs/internals/faults.md");
        for FaultInfo { name, effect, reversal: undone, finding: status, .. } in Fault::ALL.map(Fault::row) {
            let status = status.map_or_else(String::new, |code| format!("`{}`", code_name(code)));
            let line = format!("| `{name}` | {effect} | {status} | {undone} |");
            assert!(page.contains(&line), "docs/internals/faults.md has no line {line}");
        }
    }
}
