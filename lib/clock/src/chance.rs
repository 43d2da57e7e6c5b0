//! The only source of randomness. Everywhere else, ids come from [`schemas::names::IdGenerator`] and its
//! seed.

use std::fs::File;
use std::io::{self, Read};

/// Returns a seed for a sequence of ids, from the operating system's random number generator. No two
/// processes share a seed.
///
/// # Errors
/// `/dev/urandom` cannot be read.
pub fn seed() -> io::Result<u64> {
    bytes().map(u64::from_le_bytes)
}

/// Returns a new random key for sealing secrets, from the same source as [`seed`].
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
    fn seeds_and_keys_are_unique() {
        assert_ne!(super::seed().unwrap(), super::seed().unwrap());
        assert_ne!(super::key().unwrap(), super::key().unwrap());
    }
}
