//! Keys that seal secrets before they are written to the log, and open them where they are used
//! (docs/internals/model/secrets.md, "Secrets").
//!
//! | file | content |
//! |---|---|
//! | `key.rs` | one key: sealing and opening, AES-256-SIV |
//! | `ring.rs` | several keys by id, of which the last one seals; their file |
//! | `keys.rs` | keys of a program; reloads the file when it changes |
//!
//! Neither a key nor an opened secret is part of any error or `Debug` output.

mod key;
mod keys;
mod ring;

pub use key::Key;
pub use keys::{Keys, OpenError, SealError};
pub use ring::{FileError, Ring};

/// Name of the key file in the data folder of a local cluster.
pub const KEY_FILE_NAME: &str = "secrets.keys";
