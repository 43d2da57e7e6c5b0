//! Nodes and the configuration of a cluster.

use schemas::Timestamp;
use schemas::names::{CellId, FolderId, PlacementTag, Stack, Zone};
use schemas::resources::Resources;
use scripted::{Behaviour, Scripted};
use std::fmt;
use std::time::Duration;

use crate::journal::Replicas;
use crate::layout;
use crate::layout::{cell_id, number_of};
use crate::rng::Rng;

/// Start time of every run.
pub const START: Timestamp = Timestamp::from_millis(1_790_000_000_000);
/// Number of ended containers that BBSs show for each index.
pub(crate) const HISTORY: u32 = 3;

/// Node with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    Bbs(usize),
    Auctioneer(usize),
    Rep(usize),
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bbs(at) => write!(f, "bbs-{}", at + 1),
            Self::Auctioneer(at) => write!(f, "auctioneer-{}", at + 1),
            Self::Rep(at) => write!(f, "rep-{}", cell_id(*at)),
        }
    }
}

/// One life of a node. Events for an earlier life are lost.
pub(crate) type Life = (Node, u64);

/// Maximum amount of unclaimed work per auctioneer in a narrow cluster.
pub const NARROW: usize = 8;

/// Size and configuration of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub bbss: usize,
    pub auctioneers: usize,
    /// Number of cells. Every second cell is in another zone.
    pub cells: usize,
    /// `true` if the last cell accepts only work that requires its tag.
    pub tagged: bool,
    /// `true` if cells have different sizes.
    pub mixed: bool,
    /// `true` if the last cell has room for a thousand instances.
    pub roomy: bool,
    /// `true` if auctioneers allow only [`NARROW`] pieces of unclaimed work.
    pub narrow: bool,
    /// Evacuation timeout.
    pub evacuation: Duration,
    /// Interval of the self-tests of reps.
    pub self_test: Duration,
    /// Number of journal servers.
    pub replicas: Replicas,
    /// `true` if the journal acknowledges only synced entries. Otherwise a power cut violates invariants.
    pub synced: bool,
}

impl Shape {
    /// Default shape: two BBSs, two auctioneers, three cells.
    pub const DEFAULT: Self = Self {
        bbss: 2,
        auctioneers: 2,
        cells: 3,
        tagged: false,
        mixed: false,
        roomy: false,
        narrow: false,
        evacuation: Duration::from_secs(30),
        self_test: Duration::from_secs(15),
        replicas: Replicas::One,
        synced: true,
    };

    /// Draws a shape.
    #[must_use]
    pub const fn drawn(rng: &mut Rng) -> Self {
        let tagged = rng.chance(400);
        let evacuation = rng.millis(3_000, 30_000);
        let self_test = if rng.chance(500) { Duration::from_secs(600) } else { Duration::from_secs(15) };
        let bbss = if rng.chance(200) { 3 } else { 2 };
        let auctioneers = if rng.chance(100) { 3 } else { 2 };
        let cells = match rng.below(6) {
            0 => 5,
            1 | 2 => 4,
            _ => 3,
        };
        let replicas = if rng.chance(500) { Replicas::One } else { Replicas::Three };
        let mixed = rng.chance(400);
        let narrow = rng.chance(250);
        Self {
            bbss,
            auctioneers,
            cells,
            tagged,
            mixed,
            roomy: false,
            narrow,
            evacuation,
            self_test,
            replicas,
            synced: true,
        }
    }

    /// Returns the shape with more time and more cells for evacuations.
    #[must_use]
    pub fn for_evacuations(self) -> Self {
        Self { evacuation: self.evacuation * 2, cells: self.cells + 2, ..self }
    }

    /// Returns all nodes.
    pub fn nodes(self) -> impl Iterator<Item = Node> {
        let bbss = (0..self.bbss).map(Node::Bbs);
        let auctioneers = (0..self.auctioneers).map(Node::Auctioneer);
        bbss.chain(auctioneers).chain((0..self.cells).map(Node::Rep))
    }

    /// Returns the settings of an auctioneer.
    #[must_use]
    pub fn auctioneer(self) -> auctioneer::Settings {
        let basic = auctioneer::Settings::default();
        auctioneer::Settings { outstanding: if self.narrow { NARROW } else { basic.outstanding }, ..basic }
    }

    /// Returns the settings of a cell.
    #[must_use]
    pub fn cell(self, at: usize) -> rep::Settings {
        let zone = Zone::new(if at.is_multiple_of(2) { "z1" } else { "z2" }).expect("a name");
        let roomy = self.roomy && at + 1 == self.cells;
        let total = match (self.mixed && !roomy, at % 4) {
            (false, _) if roomy => {
                Resources { memory_mb: 1_048_576, disk_mb: 1_048_576, containers: 1_000, ports: 1_000 }
            }
            (false, _) | (true, 0) => {
                Resources { memory_mb: 2_048, disk_mb: 4_096, containers: 12, ports: 10 }
            }
            (true, 1) => Resources { memory_mb: 4_096, disk_mb: 1_024, containers: 16, ports: 20 },
            (true, 2) => Resources { memory_mb: 1_024, disk_mb: 8_192, containers: 6, ports: 3 },
            (true, _) => Resources { memory_mb: 8_192, disk_mb: 512, containers: 4, ports: 10 },
        };
        let mut settings =
            rep::Settings::new(cell_id(at), folder(at), zone, Stack::new("linux").expect("a name"), total);
        if self.tagged && at + 1 == self.cells {
            settings.placement_tags.insert(tag());
        }
        settings.attributes = layout::attributes(at);
        settings.evacuation_timeout = self.evacuation;
        settings.self_test = self.self_test;
        settings
    }
}

/// Returns the tag that the last cell may have.
#[must_use]
pub fn tag() -> PlacementTag {
    PlacementTag::new("gpu").expect("a name")
}

/// Returns the address of the containers of a cell.
#[must_use]
fn address(at: usize) -> String {
    format!("10.0.0.{}", at + 1)
}

/// Returns the data folder of a cell's rep. It outlives the machine.
pub(crate) fn folder(cell: usize) -> FolderId {
    FolderId(uuid::Uuid::from_u64_pair(0, cell as u64))
}

/// Returns the rep of a cell.
pub(crate) fn rep_of(cell: &CellId) -> Node {
    Node::Rep(number_of(cell))
}

/// Returns the containers of a new cell.
pub(crate) fn containers(cell: usize) -> Scripted {
    Scripted::new(&address(cell), Behaviour::from_recipe).with_isolation(layout::layers(cell))
}

/// Returns the timeouts of the presence detection.
pub(crate) fn presence() -> bbs::presence::Config {
    let mass_loss_wait = Duration::from_secs(10);
    bbs::presence::Config { mass_loss_wait, ..bbs::presence::Config::default() }
}
