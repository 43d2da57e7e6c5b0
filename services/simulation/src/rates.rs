//! Rates of faults. Each kind is off in most runs, so that it can be frequent in the others.

use std::time::Duration;

use crate::act::Act;
use crate::rng::Rng;
use crate::shape::{Node, Shape};

/// Declares rates with their names. Stories set them by name, and a failed plan is tried without each.
macro_rules! faults {
    ($($(#[doc = $words:literal])+ $name:ident: $calm:literal,)*) => {
        /// Rates of faults of single messages, appends and effects, in thousandths, and the maximum delay.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Faults {
            $($(#[doc = $words])+ pub $name: u64,)*
        }

        impl Faults {
            /// No faults.
            pub const NONE: Self = Self { $($name: $calm,)* };

            /// Returns each rate with its name and its value without faults.
            pub fn rates(&mut self) -> Vec<(&'static str, &mut u64, u64)> {
                vec![$((stringify!($name), &mut self.$name, $calm),)*]
            }
        }
    };
}

faults! {
    /// A message is lost.
    dropped: 0,
    /// A message arrives twice.
    doubled: 0,
    /// A message arrives seconds late.
    late: 0,
    /// A message arrives again seconds or minutes later, maybe at a later life of the node.
    repeated: 0,
    /// Maximum delay of a message in milliseconds.
    delay_ms: 1,
    /// An append is lost before it is stored.
    append_lost: 0,
    /// An append is stored seconds after its sender gave up.
    append_late: 0,
    /// An append is stored, and its acknowledgement is lost.
    ack_lost: 0,
    /// The journal refuses an entry for good.
    append_refused: 0,
    /// The BBS is killed when its entry is stored, before it folds the entry.
    killed_before_fold: 0,
    /// A service is killed between two effects of one step.
    killed_between: 0,
    /// A machine handles several inputs before its turn.
    gathered: 0,
    /// The self-test of a cell fails.
    sick: 0,
    /// A client sets the expected version.
    versioned: 0,
    /// A client sets the position of its plan.
    planned: 0,
    /// A report is repeated under the name of another cell, or a service that was never elected sends leader
    /// heartbeats.
    forged: 0,
    /// A client reuses a request id for another command.
    reused: 0,
    /// The executor does not receive an order to run, stop or delete a container.
    order_lost: 0,
    /// The executor cannot create a container.
    create_failed: 0,
    /// The executor cannot prepare a container.
    unprepared: 0,
    /// A client reads rows.
    read: 0,
    /// Maximum clock offset of a node in milliseconds.
    skew_ms: 0,
}

impl Faults {
    /// Draws the rates.
    #[must_use]
    pub const fn drawn(rng: &mut Rng) -> Self {
        Self {
            dropped: at_times(rng, 200),
            doubled: at_times(rng, 300),
            late: at_times(rng, 40),
            repeated: at_times(rng, 100),
            delay_ms: 1 + at_times(rng, 800),
            append_lost: at_times(rng, 100),
            append_late: at_times(rng, 60),
            ack_lost: at_times(rng, 100),
            append_refused: at_times(rng, 20),
            killed_before_fold: at_times(rng, 20),
            killed_between: at_times(rng, 3),
            gathered: at_times(rng, 500),
            sick: at_times(rng, 700),
            skew_ms: at_times(rng, 1_000),
            versioned: at_times(rng, 300),
            forged: at_times(rng, 100),
            reused: at_times(rng, 300),
            order_lost: at_times(rng, 50),
            create_failed: at_times(rng, 50),
            unprepared: at_times(rng, 50),
            read: 40,
            planned: 0,
        }
    }

    /// Returns the rates, with planned commands in some runs.
    #[must_use]
    pub const fn with_plans(self, rng: &mut Rng) -> Self {
        Self { planned: at_times(rng, 400), ..self }
    }
}

/// Draws a rate up to a bound in two of five runs, otherwise 0.
const fn at_times(rng: &mut Rng, bound: u64) -> u64 {
    let worst = 1 + rng.below(bound);
    if rng.below(5) < 2 { worst } else { 0 }
}

/// Rates of faults of nodes, cells, the journal and the network, in thousandths per second and target.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    killed: u64,
    lost: u64,
    cut_off: u64,
    parted: u64,
    paused: u64,
    lagging: u64,
    dark: u64,
    no_heartbeats: u64,
    clock: u64,
    slow: u64,
    sick: u64,
    full: u64,
    malformed: u64,
    power: u64,
    evacuated: u64,
    uncordoned: u64,
    forgotten: u64,
}

impl Rates {
    /// No acts.
    pub const NONE: Self = Self {
        killed: 0,
        lost: 0,
        cut_off: 0,
        parted: 0,
        paused: 0,
        lagging: 0,
        dark: 0,
        no_heartbeats: 0,
        clock: 0,
        slow: 0,
        sick: 0,
        full: 0,
        malformed: 0,
        power: 0,
        evacuated: 0,
        uncordoned: 0,
        forgotten: 0,
    };

    /// Draws the rates.
    #[must_use]
    pub const fn drawn(rng: &mut Rng) -> Self {
        Self {
            killed: at_times(rng, 20),
            lost: at_times(rng, 8),
            cut_off: at_times(rng, 15),
            parted: at_times(rng, 30),
            paused: at_times(rng, 15),
            lagging: at_times(rng, 15),
            dark: at_times(rng, 40),
            no_heartbeats: at_times(rng, 40),
            clock: at_times(rng, 10),
            slow: at_times(rng, 20),
            sick: at_times(rng, 15),
            full: at_times(rng, 15),
            malformed: at_times(rng, 30),
            power: at_times(rng, 20),
            evacuated: at_times(rng, 80),
            uncordoned: at_times(rng, 80),
            forgotten: at_times(rng, 80),
        }
    }

    /// Returns the rates with frequent and simultaneous evacuations and losses of cells.
    #[must_use]
    pub const fn with_evacuations(self) -> Self {
        Self { evacuated: 400, uncordoned: 100, no_heartbeats: 150, ..self }
    }

    /// Draws the acts of 200 ms.
    pub(crate) fn drawn_acts(self, rng: &mut Rng, shape: Shape) -> Vec<Act> {
        let mut acts = vec![];
        for node in shape.nodes() {
            self.of_node(rng, node, &mut acts);
        }
        for cell in 0..shape.cells {
            self.of_cell(rng, cell, &mut acts);
        }
        self.of_all(rng, shape, &mut acts);
        acts
    }

    fn of_node(self, rng: &mut Rng, node: Node, acts: &mut Vec<Act>) {
        if rng.chance(self.killed / 5) {
            acts.push(Act::Kill { node, away: time_away(rng) });
        }
        if rng.chance(self.cut_off / 5) {
            let time = rng.millis(1_000, 20_000);
            let (journal_too, notices) = (rng.chance(500), rng.chance(500));
            acts.push(Act::CutOff { node, time, journal_too, notices });
        }
        if rng.chance(self.paused / 5) {
            acts.push(Act::Pause { node, time: rng.millis(1_000, 30_000) });
        }
        let follows = !matches!(node, Node::Rep(_));
        if follows && rng.chance(self.lagging / 5) {
            acts.push(Act::Lag { node, time: rng.millis(1_000, 40_000) });
        }
        if rng.chance(self.clock / 5) {
            let millis = i64::try_from(rng.below(60_000)).unwrap_or(0) - 30_000;
            acts.push(Act::Clock { node, millis });
        }
    }

    fn of_cell(self, rng: &mut Rng, cell: usize, acts: &mut Vec<Act>) {
        if rng.chance(self.lost / 5) {
            // Only the lost cell may have room for waiting work, which therefore waits.
            let away = (!rng.chance(100)).then(|| time_away(rng));
            acts.push(Act::Lose { cell, away });
        }
        if rng.chance(self.slow / 5) {
            acts.push(Act::Slow { cell, time: rng.millis(2_000, 20_000) });
        }
        if rng.chance(self.sick / 5) {
            acts.push(Act::Sick { cell, time: rng.millis(5_000, 40_000) });
        }
        if rng.chance(self.full / 5) {
            acts.push(Act::Full { cell, time: rng.millis(5_000, 40_000) });
        }
    }

    fn of_all(self, rng: &mut Rng, shape: Shape, acts: &mut Vec<Act>) {
        if rng.chance(self.parted / 5) {
            acts.push(parted(rng, shape));
        }
        if rng.chance(self.dark / 5) {
            acts.push(Act::Dark(rng.millis(4_000, 9_000)));
        }
        if rng.chance(self.no_heartbeats / 5) {
            let time = rng.millis(5_000, 40_000);
            let cell = rng.place(shape.cells).filter(|_| rng.chance(600));
            acts.push(cell.map_or(Act::NoHeartbeats(time), |cell| Act::Unheard { cell, time }));
        }
        if rng.chance(self.malformed / 5) {
            acts.push(Act::Malformed);
        }
        if rng.chance(self.power / 5) {
            acts.push(Act::PowerCut { unsynced: rng.place(12).unwrap_or(0) });
        }
        if rng.chance(self.evacuated / 5) {
            acts.extend(rng.place(shape.cells).map(Act::Evacuate));
        }
        if rng.chance(self.uncordoned / 5) {
            acts.extend(rng.place(shape.cells).map(Act::Uncordon));
        }
        if rng.chance(self.forgotten / 5) {
            acts.extend(rng.place(shape.cells).map(Act::Forget));
        }
    }
}

/// Draws the time until a restart: mostly short, sometimes long enough to lose the cell.
const fn time_away(rng: &mut Rng) -> Duration {
    let long = rng.chance(300);
    if long { rng.millis(8_000, 45_000) } else { rng.millis(0, 8_000) }
}

/// Draws a partition, one way or both ways.
fn parted(rng: &mut Rng, shape: Shape) -> Act {
    let (from, to): (Vec<Node>, Vec<Node>) = shape.nodes().partition(|_| rng.chance(400));
    Act::Part { from, to, both_ways: rng.chance(500), time: rng.millis(1_000, 20_000) }
}
