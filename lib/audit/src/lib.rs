//! What a log proves. Pure: messages come in, lines, hashes and findings go out; who reads and writes is elsewhere.
//!
//! | the file | says |
//! |---|---|
//! | [`export`] | how the whole log is written down as lines, and read again, byte for byte |
//! | [`chain`] | how one hash stands for everything up to a position |
//! | [`checkpoint`] | how somebody vouches for such a hash: signed lines |
//! | [`verify`] | what of a log isn't as the checkpoints say |
//! | [`compare`] | where two logs differ |
//! | [`law`] | whether each decision was legal when it was made, by the machines' own tables |
//! | [`finding`] | what any of them finds |

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

/// A message of a journal as it stands there, be it an entry or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Where it stands.
    pub position: Position,
    /// Its subject, as it is.
    pub subject: String,
    /// Its id; none: something else than Muster wrote it.
    pub id: Option<EntryId>,
    /// What it holds.
    pub bytes: Vec<u8>,
}
