//! Numbers of candidates (cells that may run the work) that lack each resource. The numbers are kept up to
//! date while an auction fills the cells.

use schemas::resources::{Resources, Shortage};

use crate::board::Board;
use crate::view::View;

/// Free resources of a cell before and after a placement in an auction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocation {
    pub(crate) cell: u32,
    pub(crate) before: Resources,
    pub(crate) after: Resources,
}

/// Number of candidates with enough free resources for work of one size, and number of candidates that lack
/// each resource. All counts refer to one view: the list of cells as one constraint evaluates them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) fitting: u32,
    pub(crate) containers: u32,
    pub(crate) disk: u32,
    pub(crate) memory: u32,
    pub(crate) ports: u32,
    /// Number of placements that are included in the counts.
    applied: usize,
}

impl Tally {
    /// Counts all candidates.
    pub(crate) fn new(board: &Board, view: &View, size: Resources, taken: &[Allocation]) -> Self {
        let mut tally = Self { applied: taken.len(), ..Self::default() };
        for cell in &view.candidates {
            tally.add(board.free(*cell), size);
        }
        tally
    }

    /// Applies the placements since the last refresh. If a new count of all candidates is faster, counts all
    /// candidates again.
    pub(crate) fn refresh(&mut self, board: &Board, view: &View, size: Resources, taken: &[Allocation]) {
        let news = &taken[self.applied..];
        if news.len() > view.candidates.len() {
            *self = Self::new(board, view, size, taken);
            return;
        }
        for Allocation { cell, before, after } in news {
            if view.is_candidate(*cell) {
                self.subtract(*before, size);
                self.add(*after, size);
            }
        }
        self.applied = taken.len();
    }

    /// Returns the number of candidates that lack a resource.
    pub(crate) const fn lacking(&self, what: Shortage) -> u32 {
        match what {
            Shortage::Containers => self.containers,
            Shortage::Disk => self.disk,
            Shortage::Memory => self.memory,
            Shortage::Ports => self.ports,
        }
    }

    fn add(&mut self, free: Resources, size: Resources) {
        self.fitting += u32::from(free.fits(size));
        for what in free.shortages(size) {
            *self.counter(what) += 1;
        }
    }

    fn subtract(&mut self, free: Resources, size: Resources) {
        self.fitting -= u32::from(free.fits(size));
        for what in free.shortages(size) {
            *self.counter(what) -= 1;
        }
    }

    const fn counter(&mut self, what: Shortage) -> &mut u32 {
        match what {
            Shortage::Containers => &mut self.containers,
            Shortage::Disk => &mut self.disk,
            Shortage::Memory => &mut self.memory,
            Shortage::Ports => &mut self.ports,
        }
    }
}
