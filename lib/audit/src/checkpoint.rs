//! Checkpoints: somebody vouches with a key for everything up to a position. One line of JSON each, one after the other
//! in a file of their own, each with the hash of the one before it.

use std::fmt;
use std::str::FromStr;

use data_encoding::HEXLOWER;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use schemas::names::ClusterId;
use schemas::{Position, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{Chain, Hash};

/// The longest line that is read as a checkpoint, in bytes. One takes some six hundred.
pub const LINE_BYTES: usize = 4 * 1024;
/// How the line of a secret key begins.
const SECRET: &str = "muster-audit-secret:";

/// A key that signs. Whoever has it can vouch for anything.
pub struct Key(SigningKey);

/// Who signed: 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey(VerifyingKey);

/// Text that is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    /// It is not a secret key's line.
    #[error("it holds no key: make one with muster audit keygen FILE")]
    Secret,
    /// It is not a public key.
    #[error("it is no public key: 64 hexadecimal digits in lower case, as muster audit keygen says")]
    Public,
}

/// What is signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// The cluster.
    pub cluster: ClusterId,
    /// Up to where it vouches for the log.
    pub position: Position,
    /// The hash of the chain there.
    pub hash: Hash,
    /// When it was made, as RFC 3339.
    pub time: String,
    /// The hash of the line before it; none: it is the first.
    pub previous: Option<Hash>,
    /// Who signed.
    pub key: PublicKey,
}

/// A checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// What is signed: these very bytes of the line.
    pub checkpoint: Statement,
    /// The signature over them, 128 hexadecimal digits.
    pub signature: String,
}

/// Why a line is no checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no checkpoint: {0}")]
pub struct NotACheckpoint(String);

impl Key {
    /// Of 32 bytes of chance.
    #[must_use]
    pub fn of(bytes: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(bytes))
    }

    /// The line to be kept.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{SECRET}{}\n", HEXLOWER.encode(&self.0.to_bytes()))
    }

    /// Who signs with it.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    /// Vouches for a chain, behind the line of the checkpoint before. Answers the line.
    ///
    /// # Panics
    /// Never: a checkpoint is plain data.
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
            previous: before.map(Hash::of),
            key: self.public(),
        };
        let signature = HEXLOWER.encode(&self.0.sign(&signed(&statement)).to_bytes());
        let checkpoint = Checkpoint { checkpoint: statement.clone(), signature };
        let mut line = serde_json::to_vec(&checkpoint).expect("a checkpoint is plain data");
        line.push(b'\n');
        (statement, line)
    }
}

/// The bytes that are signed: a statement as it stands in its line.
fn signed(statement: &Statement) -> Vec<u8> {
    serde_json::to_vec(statement).expect("a statement is plain data")
}

impl Checkpoint {
    /// Reads a line.
    ///
    /// # Errors
    /// Why it is none.
    pub fn read(line: &[u8]) -> Result<Self, NotACheckpoint> {
        serde_json::from_slice(line).map_err(|error| NotACheckpoint(error.to_string()))
    }

    /// Whether its key signed what it says.
    #[must_use]
    pub fn is_genuine(&self) -> bool {
        let bytes = HEXLOWER.decode(self.signature.as_bytes()).ok();
        let signature = bytes.and_then(|bytes| Signature::from_slice(&bytes).ok());
        let PublicKey(key) = &self.checkpoint.key;
        signature.is_some_and(|signature| key.verify_strict(&signed(&self.checkpoint), &signature).is_ok())
    }
}

impl FromStr for Key {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<Self, BadKey> {
        let digits = text.trim().strip_prefix(SECRET).ok_or(BadKey::Secret)?;
        let bytes = HEXLOWER.decode(digits.as_bytes()).map_err(|_| BadKey::Secret)?;
        let bytes: [u8; 32] = bytes.try_into().map_err(|_| BadKey::Secret)?;
        Ok(Self::of(&bytes))
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
    type Err = BadKey;

    fn from_str(text: &str) -> Result<Self, BadKey> {
        let bytes = HEXLOWER.decode(text.as_bytes()).map_err(|_| BadKey::Public)?;
        let bytes: [u8; 32] = bytes.try_into().map_err(|_| BadKey::Public)?;
        VerifyingKey::from_bytes(&bytes).map(Self).map_err(|_| BadKey::Public)
    }
}

impl TryFrom<String> for PublicKey {
    type Error = BadKey;

    fn try_from(text: String) -> Result<Self, BadKey> {
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
    fn who_signed_is_told_from_who_did_not() {
        let key = Key::of(&[7; 32]);
        let again: Key = key.line().parse().unwrap();
        assert_eq!(again.public(), key.public());
        let chain = Chain::behind(Position(41), Hash::of(b"x"));
        let (statement, line) = key.sign(ClusterId(Uuid::nil()), &chain, Timestamp(0), Some(b"before"));
        let read = Checkpoint::read(&line).unwrap();
        assert_eq!(read.checkpoint, statement);
        assert!(read.is_genuine());
        let text = String::from_utf8(line).unwrap();
        let other = Key::of(&[8; 32]).public().to_string();
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
