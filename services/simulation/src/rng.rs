//! Random numbers, with one stream per concern. Another draw from one stream does not change the others.

use std::time::Duration;

/// Stream of random numbers (`SplitMix64`).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Returns the stream of a concern.
    #[must_use]
    pub const fn new(seed: u64, concern: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ concern.wrapping_mul(0xD1B5_4A32_D192_ED03))
    }

    /// Returns the next number.
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.draw() % bound }
    }

    /// Returns an index into a list of this length. `None` if the list is empty.
    pub fn place(&mut self, length: usize) -> Option<usize> {
        usize::try_from(self.below(length as u64)).ok().filter(|place| *place < length)
    }

    /// Returns `true` with this probability in thousandths.
    pub const fn chance(&mut self, permille: u64) -> bool {
        self.below(1_000) < permille
    }

    /// Returns a time from `from` up to but excluding `to`, in milliseconds.
    pub const fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to.saturating_sub(from)))
    }
}
