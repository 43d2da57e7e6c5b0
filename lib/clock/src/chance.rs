//! Chance: the one place that draws it. Everywhere else ids come from [`schemas::names::Ids`] and its seed.

use std::fs::File;
use std::io::{self, Read};

/// A seed for a row of ids, from the operating system's randomness. Two programs never share one.
///
/// # Errors
/// The operating system gives no randomness (`/dev/urandom` can't be read).
pub fn seed() -> io::Result<u64> {
    bytes().map(u64::from_le_bytes)
}

/// A new key for sealing secrets, from the same place.
///
/// # Errors
/// See [`seed`].
pub fn key() -> io::Result<[u8; 32]> {
    bytes()
}

fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn two_seeds_differ() {
        assert_ne!(super::seed().unwrap(), super::seed().unwrap());
        assert_ne!(super::key().unwrap(), super::key().unwrap());
    }
}
