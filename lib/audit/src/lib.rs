//! Audit of a log. The crate performs no I/O. Its input is messages; its output is lines, hashes and
//! findings.
//!
//! | Module | Contents |
//! |---|---|
//! | [`export`] | export of the log as lines, and reading of an export, byte for byte |
//! | [`chain`] | hash chain: one hash covers everything up to a position |
//! | [`checkpoint`] | signed lines that confirm a hash of the chain |
//! | [`verify`] | verification of a log against its checkpoints |
//! | [`compare`] | differences between two logs |
//! | [`law`] | legality of each decision at its time, by the tables of the state machines |
//! | [`finding`] | findings of all these modules |

pub mod chain;
pub mod checkpoint;
pub mod compare;
pub mod export;
pub mod finding;
pub mod law;
pub mod verify;

use schemas::Position;
use schemas::names::EntryId;

pub use chain::{Chain, Hash};
pub use finding::{Finding, Kind};
pub use law::Law;

/// A message of a journal in its stored form. It may not be a valid entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub position: Position,
    pub subject: String,
    /// Id of the entry. `None` if another program wrote the message.
    pub id: Option<EntryId>,
    pub bytes: Vec<u8>,
}
