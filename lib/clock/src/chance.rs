//! Chance: the one place that draws it. Everywhere else ids come from [`schemas::names::Ids`] and its seed.

use std::fs::File;
use std::io::{self, Read};

/// A seed for a row of ids, from the operating system's randomness. Two programs never share one.
///
/// # Errors
/// The operating system gives no randomness (`/dev/urandom` can't be read).
pub fn seed() -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    #[test]
    fn two_seeds_differ() {
        assert_ne!(super::seed().unwrap(), super::seed().unwrap());
    }
}
