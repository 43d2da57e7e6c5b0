//! Chance: one stream for each concern, so that one more draw in one doesn't reshuffle the others.

use std::time::Duration;

/// A stream of numbers that its seed determines (`SplitMix64`).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream of a concern in a run.
    #[must_use]
    pub const fn new(seed: u64, concern: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ concern.wrapping_mul(0xD1B5_4A32_D192_ED03))
    }

    /// The next number.
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 to `bound` - 1; 0 if `bound` is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.draw() % bound }
    }

    /// A place in a row of this length; none if it is empty.
    pub fn place(&mut self, length: usize) -> Option<usize> {
        usize::try_from(self.below(length as u64)).ok().filter(|place| *place < length)
    }

    /// Whether something that happens so many times in a thousand happens now.
    pub const fn chance(&mut self, permille: u64) -> bool {
        self.below(1_000) < permille
    }

    /// A time between two, in milliseconds, the second left out.
    pub const fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to.saturating_sub(from)))
    }
}
