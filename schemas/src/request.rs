//! Digests of requests. A repeated request has the same digest as the first.

use std::io;

use data_encoding::HEXLOWER;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// Number of bytes of the SHA-256 hash in a digest.
const DIGEST_BYTES: usize = 16;

/// Returns the digest of a command: its verb, and the first 128 bits of the SHA-256 hash of the JSON of its body.
/// The envelope of the command is not part of the digest.
#[must_use]
pub fn digest((noun, verb): (&str, &str), body: &impl Serialize) -> String {
    let mut hash = Hash(Sha256::new());
    serde_json::to_writer(&mut hash, body).expect("a command is plain data");
    format!("{noun}.{verb}#{}", HEXLOWER.encode(&hash.0.finalize()[..DIGEST_BYTES]))
}

/// Returns `true` if two digests can be those of the same request. Of a digest with 64 bits, which earlier versions
/// recorded, only the verb is compared.
#[must_use]
pub fn is_same(known: Option<&str>, digest: Option<&str>) -> bool {
    match (known.and_then(|known| known.split_once('#')), digest.and_then(|digest| digest.split_once('#'))) {
        (Some((known, hash)), Some((verb, _))) if hash.len() < 2 * DIGEST_BYTES => known == verb,
        (_, _) => known == digest,
    }
}

/// A writer that hashes its input.
struct Hash(Sha256);

impl io::Write for Hash {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn digest_depends_on_verb_and_body() {
        let digest = |verb, body| digest(("lrp", verb), &json!({"a": body}));
        assert_eq!(digest("desire", 1), "lrp.desire#015abd7f5cc57a2dd94b7590f04ad808");
        assert_ne!(digest("desire", 1), digest("desire", 2));
        let (first, old) = (digest("desire", 1), "lrp.desire#0123456789abcdef");
        assert!(is_same(Some(&first), Some(&digest("desire", 1))) && is_same(Some(old), Some(&first)));
        assert!(!is_same(Some(&first), Some(&digest("desire", 2))) && !is_same(Some(&first), None));
        assert!(!is_same(Some(old), Some(&digest("update", 1))));
    }
}
