//! Checkpoints: signed statements that vouch for every message up to a position. A file of checkpoints has
//! one JSON line per checkpoint. Each line contains the hash of the previous line.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use schemas::names::ClusterId;
use schemas::{Position, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{Chain, Hash};

/// Maximum length of a checkpoint line, in bytes. A typical line has about 600 bytes.
pub const LINE_BYTES: usize = 4 * 1024;
/// Prefix of the line with a secret key.
const SECRET_PREFIX: &str = "muster-audit-secret:";

/// Signing key. A process with this key can vouch for any content.
pub struct Key(SigningKey);

/// Public key of a signer. The text form has 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey(VerifyingKey);

/// Error for a text that is not a valid key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    /// The text is not the line of a secret key.
    #[error("no signing key found: create one with muster audit keygen FILE")]
    Secret,
    /// The text is not a valid public key.
    #[error(
        "invalid public key: expected 64 hexadecimal digits in lower case, as printed by muster audit keygen"
    )]
    Public,
}

/// Signed content of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    pub cluster: ClusterId,
    /// Position up to which the checkpoint vouches for the log.
    pub position: Position,
    /// Hash of the chain at `position`.
    pub hash: Hash,
    /// Time of the signature, as RFC 3339.
    pub time: String,
    /// Hash of the previous line. `None` in the first line.
    pub previous: Option<Hash>,
    /// Public key of the signer.
    pub key: PublicKey,
}

/// A statement with its signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Signed content. The signature covers its bytes in the line.
    pub checkpoint: Statement,
    /// Signature of the statement, as 128 hexadecimal digits.
    pub signature: String,
}

/// Error for a line that is not a valid checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a checkpoint: {0}")]
pub struct InvalidCheckpoint(String);

impl Key {
    /// Creates a key from 32 random bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(bytes))
    }

    /// Returns the line in which the key is stored.
    #[must_use]
    pub fn secret_line(&self) -> String {
        format!("{SECRET_PREFIX}{}\n", HEXLOWER.encode(&self.0.to_bytes()))
    }

    /// Returns the public key, which verifies signatures of this key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    /// Signs a chain. `before` is the line of the previous checkpoint. Returns the statement and its line.
    ///
    /// # Panics
    /// Never, because a checkpoint is plain data.
    #[must_use]
    pub fn sign(
        &self,
        cluster: ClusterId,
        chain: &Chain,
        at: Timestamp,
        before: Option<&[u8]>,
    ) -> (Statement, Vec<u8>) {
        let statement = Statement {
            cluster,
            position: chain.position(),
            hash: chain.hash(),
            time: at.to_string(),
            previous: before.map(Hash::compute),
            key: self.public(),
        };
        let signature = HEXLOWER.encode(&self.0.sign(&signed_bytes(&statement)).to_bytes());
        let checkpoint = Checkpoint { checkpoint: statement.clone(), signature };
        let mut line = serde_json::to_vec(&checkpoint).expect("a checkpoint is plain data");
        line.push(b'\n');
        (statement, line)
    }
}

/// Returns the signed bytes: the statement as it appears in its line.
fn signed_bytes(statement: &Statement) -> Vec<u8> {
    serde_json::to_vec(statement).expect("a statement is plain data")
}

impl Checkpoint {
    /// Parses a line.
    ///
    /// # Errors
    /// Returns an error if the line is not a valid checkpoint.
    pub fn read(line: &[u8]) -> Result<Self, InvalidCheckpoint> {
        serde_json::from_slice(line).map_err(|error| InvalidCheckpoint(error.to_string()))
    }

    /// Returns `true` if the statement was signed with the key that it names.
    #[must_use]
    pub fn is_genuine(&self) -> bool {
        let bytes = HEXLOWER.decode(self.signature.as_bytes()).ok();
        let signature = bytes.and_then(|bytes| Signature::from_slice(&bytes).ok());
        let PublicKey(key) = &self.checkpoint.key;
        signature
            .is_some_and(|signature| key.verify_strict(&signed_bytes(&self.checkpoint), &signature).is_ok())
    }
}

impl FromStr for Key {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        let digits = text.trim().strip_prefix(SECRET_PREFIX).ok_or(InvalidKey::Secret)?;
        let bytes = HEXLOWER.decode(digits.as_bytes()).map_err(|_| InvalidKey::Secret)?;
        let bytes: [u8; 32] = bytes.try_into().map_err(|_| InvalidKey::Secret)?;
        Ok(Self::from_bytes(&bytes))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Key").field(&self.public()).finish()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(self.0.as_bytes()))
    }
}

impl FromStr for PublicKey {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        let bytes = HEXLOWER.decode(text.as_bytes()).map_err(|_| InvalidKey::Public)?;
        let bytes: [u8; 32] = bytes.try_into().map_err(|_| InvalidKey::Public)?;
        VerifyingKey::from_bytes(&bytes).map(Self).map_err(|_| InvalidKey::Public)
    }
}

impl TryFrom<String> for PublicKey {
    type Error = InvalidKey;

    fn try_from(text: String) -> Result<Self, InvalidKey> {
        text.parse()
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        key.to_string()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn checkpoint_is_genuine_only_if_unchanged() {
        let key = Key::from_bytes(&[7; 32]);
        let again: Key = key.secret_line().parse().unwrap();
        assert_eq!(again.public(), key.public());
        let chain = Chain::resume(Position(41), Hash::compute(b"x"));
        let (statement, line) = key.sign(ClusterId(Uuid::nil()), &chain, Timestamp(0), Some(b"before"));
        let read = Checkpoint::read(&line).unwrap();
        assert_eq!(read.checkpoint, statement);
        assert!(read.is_genuine());
        let text = String::from_utf8(line).unwrap();
        let other = Key::from_bytes(&[8; 32]).public().to_string();
        for changed in [
            text.replace("\"position\":41", "\"position\":42"),
            text.replace(&key.public().to_string(), &other),
            text.replace("1970", "1971"),
        ] {
            assert!(!Checkpoint::read(changed.as_bytes()).unwrap().is_genuine(), "{changed}");
        }
        assert!(Checkpoint::read(b"{}").is_err());
        for bad in ["", "muster-audit-secret:", "muster-audit-secret:00"] {
            assert!(bad.parse::<Key>().is_err(), "{bad}");
        }
        assert!("00".parse::<PublicKey>().is_err());
    }
}
