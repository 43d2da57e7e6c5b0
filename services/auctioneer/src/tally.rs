//! Counts of the resources that candidates lack, kept up to date while an auction fills the cells.

use schemas::resources::{Lack, Resources};

use crate::board::Board;
use crate::view::View;

/// Placement of an auction: free resources of a cell before and after.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) cell: u32,
    pub(crate) before: Resources,
    pub(crate) after: Resources,
}

/// Number of a view's candidates that have room for work of one size, and the number that lack each resource.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) fitting: u32,
    pub(crate) containers: u32,
    pub(crate) disk: u32,
    pub(crate) memory: u32,
    pub(crate) ports: u32,
    /// Number of placements that the counts include.
    seen: usize,
}

impl Tally {
    /// Counts all candidates.
    pub(crate) fn new(board: &Board, view: &View, size: Resources, taken: &[Taken]) -> Self {
        let mut tally = Self { seen: taken.len(), ..Self::default() };
        for cell in &view.candidates {
            tally.add(board.free(*cell), size);
        }
        tally
    }

    /// Applies the placements since the last refresh, or counts all candidates again if that is faster.
    pub(crate) fn refresh(&mut self, board: &Board, view: &View, size: Resources, taken: &[Taken]) {
        let news = &taken[self.seen..];
        if news.len() > view.candidates.len() {
            *self = Self::new(board, view, size, taken);
            return;
        }
        for Taken { cell, before, after } in news {
            if view.takes(*cell) {
                self.subtract(*before, size);
                self.add(*after, size);
            }
        }
        self.seen = taken.len();
    }

    /// Returns the number of candidates that lack a resource.
    pub(crate) const fn lacking(&self, what: Lack) -> u32 {
        match what {
            Lack::Containers => self.containers,
            Lack::Disk => self.disk,
            Lack::Memory => self.memory,
            Lack::Ports => self.ports,
        }
    }

    fn add(&mut self, free: Resources, size: Resources) {
        self.fitting += u32::from(free.fits(size));
        for what in free.lacks(size) {
            *self.counter(what) += 1;
        }
    }

    fn subtract(&mut self, free: Resources, size: Resources) {
        self.fitting -= u32::from(free.fits(size));
        for what in free.lacks(size) {
            *self.counter(what) -= 1;
        }
    }

    const fn counter(&mut self, what: Lack) -> &mut u32 {
        match what {
            Lack::Containers => &mut self.containers,
            Lack::Disk => &mut self.disk,
            Lack::Memory => &mut self.memory,
            Lack::Ports => &mut self.ports,
        }
    }
}
