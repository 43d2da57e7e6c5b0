//! Every fault: its name, what it does, how it is undone, and what it needs.

use std::fmt;

use schemas::query::FindingCode;

use crate::cluster::Shape;

/// What happens to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The leading BBS is killed.
    KillBbsLeader,
    /// The BBS that stands by is killed.
    KillBbsStandby,
    /// The leading auctioneer is killed.
    KillAuctioneerLeader,
    /// The auctioneer that stands by is killed.
    KillAuctioneerStandby,
    /// A rep is killed.
    KillRep,
    /// The projector is killed.
    KillProjector,
    /// The shim of a container is killed.
    KillShim,
    /// A nats-server is killed.
    KillNats,
    /// PostgreSQL is killed.
    KillPostgres,
    /// The leading BBS stands still.
    PauseBbsLeader,
    /// The leading auctioneer stands still.
    PauseAuctioneerLeader,
    /// A rep stands still.
    PauseRep,
    /// What a rep sends and is sent stays on the way.
    CutRep,
    /// The connections of a rep are torn down.
    TearRep,
    /// The leading BBS is stopped by its supervisor.
    StopBbsLeader,
    /// The leading auctioneer is stopped by its supervisor.
    StopAuctioneerLeader,
    /// Every auctioneer is paused.
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
    /// Half of those who follow the log fall behind, and have to lead.
    HalfBehind,
    /// Every service is killed, and all start at once.
    StartAtOnce,
    /// One service after the other is asked to end and started again.
    RestartOneByOne,
    /// One service after the other goes over to this program from an earlier one.
    UpgradeOneByOne,
    /// One node of three is lost for a while.
    LoseOneNode,
    /// Two nodes of three are lost for a while.
    LoseTwoNodes,
}

/// What a fault needs of the cluster and of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing that is not there on every machine.
    Nothing,
    /// A network of each rep's own: one NATS server.
    Network,
    /// Disks of its own for the journal: root, and loop devices.
    Disks,
    /// Three NATS servers.
    ThreeNodes,
    /// Three NATS servers with disks of their own.
    ThreeDisks,
    /// An earlier build of the program.
    EarlierBuild,
}

/// What there is to say of a fault.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub does: &'static str,
    /// How it is undone.
    pub undone: &'static str,
    /// What it needs.
    pub needs: Needs,
    /// Finding that `muster status` must show during the fault, and not after it. `None` if no finding is certain.
    pub status: Option<FindingCode>,
}

const fn row(
    name: &'static str,
    needs: Needs,
    status: Option<FindingCode>,
    does: &'static str,
    undone: &'static str,
) -> Row {
    Row { name, does, undone, needs, status }
}

impl Fault {
    /// All of them.
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

    /// What there is to say of it.
    #[rustfmt::skip]
    #[must_use]
    pub const fn row(self) -> Row {
        use FindingCode::{AppendsFail, CellLost, CellUnhealthy, ClockOff, NoAuctioneer, ReplicasBehind};
        use Needs::{Disks, EarlierBuild, Network, Nothing, ThreeDisks, ThreeNodes};
        match self {
            Self::KillBbsLeader         => row("kill-bbs-leader",         Nothing,      None,                 "kill -9 of the leading BBS",                                             "started again at once"),
            Self::KillBbsStandby        => row("kill-bbs-standby",        Nothing,      None,                 "kill -9 of the BBS that stands by",                                      "started again at once"),
            Self::KillAuctioneerLeader  => row("kill-auctioneer-leader",  Nothing,      None,                 "kill -9 of the leading auctioneer",                                      "started again at once"),
            Self::KillAuctioneerStandby => row("kill-auctioneer-standby", Nothing,      None,                 "kill -9 of the auctioneer that stands by",                               "started again at once"),
            Self::KillRep               => row("kill-rep",                Nothing,      None,                 "kill -9 of a rep",                                                       "started again at once"),
            Self::KillProjector         => row("kill-projector",          Nothing,      None,                 "kill -9 of the projector",                                               "started again at once"),
            Self::KillShim              => row("kill-shim",               Nothing,      None,                 "kill -9 of the shim of a container",                                     "nothing to undo"),
            Self::KillNats              => row("kill-nats",               Nothing,      None,                 "kill -9 of a nats-server",                                               "started again at once"),
            Self::KillPostgres          => row("kill-postgres",           Nothing,      None,                 "kill -9 of PostgreSQL's first process",                                  "started again at once"),
            Self::PauseBbsLeader        => row("pause-bbs-leader",        Nothing,      None,                 "SIGSTOP of the leading BBS for 40 s",                                    "SIGCONT"),
            Self::PauseAuctioneerLeader => row("pause-auctioneer-leader", Nothing,      None,                 "SIGSTOP of the leading auctioneer for 40 s",                             "SIGCONT"),
            Self::PauseRep              => row("pause-rep",               Nothing,      Some(CellLost),       "SIGSTOP of a rep for 40 s: its cell is lost",                            "SIGCONT"),
            Self::CutRep                => row("cut-rep",                 Network,      Some(CellLost),       "what a rep sends and is sent stays on the way for 40 s",                 "it arrives"),
            Self::TearRep               => row("tear-rep",                Network,      Some(CellLost),       "every connection of a rep is torn down for 40 s",                        "it may connect"),
            Self::StopBbsLeader         => row("stop-bbs-leader",         Nothing,      None,                 "SIGTERM to the leading BBS",                                             "started again when it has stopped"),
            Self::StopAuctioneerLeader  => row("stop-auctioneer-leader",  Nothing,      None,                 "SIGTERM to the leading auctioneer",                                      "started again when it has stopped"),
            Self::PauseAuctioneers      => row("pause-auctioneers",       Nothing,      Some(NoAuctioneer),   "SIGSTOP of every auctioneer until `status` shows it",                    "SIGCONT"),
            Self::ShiftClock            => row("shift-clock",             Nothing,      Some(ClockOff),       "the clock of the leading BBS is an hour ahead until another BBS leads",  "the clock is right again"),
            Self::BreakCell             => row("break-cell",              Nothing,      Some(CellUnhealthy),  "the folder of containers of a cell is missing until `status` shows it",  "the folder is back"),
            Self::FillLog               => row("fill-log",                Nothing,      Some(AppendsFail),    "`max_bytes` of the stream is what the log has, until `status` shows it", "no limit"),
            Self::FillDisk              => row("fill-disk",               Disks,        Some(AppendsFail),    "the journal's disk is full until commands have waited for 10 s",         "room again, nats-server started again"),
            Self::CutPower              => row("cut-power",               Disks,        None,                 "power cut of every node of the journal",                                 "mounted and started again"),
            Self::CutPowerOfOne         => row("cut-power-of-one",        ThreeDisks,   None,                 "power cut of one node of three",                                         "mounted and started again"),
            Self::HalfBehind            => row("half-behind",             Nothing,      None,                 "who stands by is stopped for 1,000 entries, then who leads killed",      "SIGCONT; started again at once"),
            Self::StartAtOnce           => row("start-at-once",           Nothing,      None,                 "kill -9 of every service, and its snapshots are gone",                   "all started at once"),
            Self::RestartOneByOne       => row("restart-one-by-one",      Nothing,      None,                 "every service is asked to end, one by one",                              "started again, each before the next one ends"),
            Self::UpgradeOneByOne       => row("upgrade-one-by-one",      EarlierBuild, None,                 "every service goes over to the earlier build, one by one",               "and then to this one, one by one"),
            Self::LoseOneNode           => row("lose-one-node",           ThreeNodes,   Some(ReplicasBehind), "kill -9 of one NATS server of three for 20 s",                           "started again"),
            Self::LoseTwoNodes          => row("lose-two-nodes",          ThreeNodes,   Some(AppendsFail),    "kill -9 of two NATS servers of three for 20 s",                          "started again"),
        }
    }

    /// The fault of a name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.row().name == name)
    }

    /// Whether it can happen to a cluster of this shape.
    #[must_use]
    pub const fn fits(self, shape: Shape, earlier: bool) -> bool {
        match self.row().needs {
            Needs::Nothing => true,
            Needs::Network => shape.nodes == 1,
            Needs::Disks => shape.disks,
            Needs::ThreeNodes => shape.nodes == 3,
            Needs::ThreeDisks => shape.nodes == 3 && shape.disks,
            Needs::EarlierBuild => earlier,
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
    fn every_fault_has_a_name_of_its_own_and_fits_somewhere() {
        let single = Shape { nodes: 1, cells: 3, disks: true, past: 0 };
        let three = Shape { nodes: 3, ..single };
        for (at, fault) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(Fault::ALL.iter().position(|other| *other == fault), Some(at));
            assert_eq!(Fault::of(fault.row().name), Some(fault));
            assert!(fault.fits(single, true) || fault.fits(three, true), "{fault}");
        }
    }

    #[test]
    fn the_page_has_every_fault_as_it_is_here() {
        let page = include_str!("../../../docs/testing.md");
        for Row { name, does, undone, status, .. } in Fault::ALL.map(Fault::row) {
            let status = status.map_or_else(String::new, |code| format!("`{}`", code_name(code)));
            let line = format!("| `{name}` | {does} | {status} | {undone} |");
            assert!(page.contains(&line), "docs/testing.md has no line {line}");
        }
    }
}
