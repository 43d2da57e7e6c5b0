//! Keys: what seals secrets before the log has them, and opens them where they are needed (docs/model.md, "Secrets").
//!
//! | the file | holds |
//! |---|---|
//! | `key.rs` | one key: sealing and opening, AES-256-GCM by `ring` |
//! | `ring.rs` | several keys by their ids, the last of which seals; the file that holds them |
//! | `keys.rs` | the keys of a program: the file, read again when it changes |
//!
//! Nothing here is shown: neither a key nor what was opened is part of any error or of any `Debug`.

mod key;
mod keys;
mod ring;

pub use key::Key;
pub use keys::{Keys, OpenError, SealError};
pub use ring::{FileError, Ring};

/// What a file of keys is called in the data folder of a local cluster.
pub const FILE: &str = "secrets.keys";
