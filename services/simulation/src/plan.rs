//! Plan of a run, fixed before the run starts. A plan is drawn from a seed or written as a story, and is
//! shortened after a failure.

use std::time::Duration;

use crate::act::Act;
use crate::rates::Faults;
use crate::shape::Shape;
use crate::story::Expect;

/// Plan of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Seed of all random streams.
    pub seed: u64,
    pub shape: Shape,
    /// Fault rates until peace.
    pub faults: Faults,
    /// Acts of clients, operators and faults, sorted by time.
    pub acts: Vec<(Duration, Act)>,
    /// Expectations of a story, sorted by time. Plans drawn from seeds have none.
    pub expects: Vec<(Duration, Expect)>,
    /// Time of peace: all faults end, and minutes later the cluster must be at rest.
    pub peace_at: Duration,
}
