//! The hash chain. One hash covers every message up to a position, in order.
//!
//! ```text
//! h(0) = 32 zero bytes
//! h(n) = SHA-256(h(n-1) ‖ position ‖ length of subject ‖ subject ‖ length of bytes ‖ bytes)
//! ```
//! Positions and lengths are 64-bit big-endian integers. If a message is changed, dropped, added or moved,
//! every later hash changes.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use schemas::Position;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::Message;

/// A SHA-256 hash. The text form has 64 hexadecimal digits in lower case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hash(pub [u8; 32]);

/// Error for a text that is not a valid hash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid hash {0:?}: expected 64 hexadecimal digits in lower case")]
pub struct InvalidHash(pub String);

impl Hash {
    /// Returns the hash of `bytes`.
    #[must_use]
    pub fn compute(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl FromStr for Hash {
    type Err = InvalidHash;

    fn from_str(text: &str) -> Result<Self, InvalidHash> {
        let wrong = || InvalidHash(text.chars().take(80).collect());
        let bytes = HEXLOWER.decode(text.as_bytes()).map_err(|_| wrong())?;
        bytes.try_into().map(Self).map_err(|_| wrong())
    }
}

impl TryFrom<String> for Hash {
    type Error = InvalidHash;

    fn try_from(text: String) -> Result<Self, InvalidHash> {
        text.parse()
    }
}

impl From<Hash> for String {
    fn from(hash: Hash) -> Self {
        hash.to_string()
    }
}

/// Hash chain up to a position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    position: Position,
    hash: Hash,
}

impl Chain {
    /// Continues a chain after a position, from the hash at that position.
    #[must_use]
    pub const fn resume(position: Position, hash: Hash) -> Self {
        Self { position, hash }
    }

    /// Returns the position of the last message.
    #[must_use]
    pub const fn position(&self) -> Position {
        self.position
    }

    /// Returns the hash at the position of the last message.
    #[must_use]
    pub const fn hash(&self) -> Hash {
        self.hash
    }

    /// Appends a message. The position of the message is not checked.
    pub fn add(&mut self, message: &Message) {
        let mut next = Sha256::new();
        next.update(self.hash.0);
        next.update(message.position.0.to_be_bytes());
        for part in [message.subject.as_bytes(), &message.bytes] {
            next.update((part.len() as u64).to_be_bytes());
            next.update(part);
        }
        *self = Self { position: message.position, hash: Hash(next.finalize().into()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(position: u64, subject: &str, bytes: &[u8]) -> Message {
        Message { position: Position(position), subject: subject.into(), id: None, bytes: bytes.into() }
    }

    fn chain_hash(messages: &[Message]) -> Hash {
        let mut chain = Chain::default();
        messages.iter().for_each(|one| chain.add(one));
        chain.hash()
    }

    #[test]
    fn every_byte_position_and_subject_changes_the_hash() {
        let log = [message(1, "a", b"one"), message(2, "b", b"two"), message(3, "a", b"three")];
        let whole = chain_hash(&log);
        // Other programs may implement the computation, so it must never change: see
        // docs/guides/verify-the-log.md.
        assert_eq!(
            chain_hash(&log[..1]).to_string(),
            "20a4780db7e91bb37fc6575577e87b65f1feaa3e3ffad3d156f6e392dfd9d1eb"
        );
        let mut others = vec![log[..2].to_vec(), vec![log[0].clone(), log[2].clone(), log[1].clone()]];
        for other in [
            message(2, "b", b"twO"),
            message(2, "c", b"two"),
            message(4, "b", b"two"),
            message(2, "bt", b"wo"),
        ] {
            others.push(vec![log[0].clone(), other, log[2].clone()]);
        }
        for other in others {
            assert_ne!(chain_hash(&other), whole, "{other:?}");
        }
    }

    #[test]
    fn hash_text_round_trips() {
        let hash = Hash::compute(b"x");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        for bad in ["", "00", &"g".repeat(64), &"A".repeat(64), &"0".repeat(66)] {
            assert!(bad.parse::<Hash>().is_err(), "{bad}");
        }
    }
}
