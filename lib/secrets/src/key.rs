//! Encryption key for secrets.
//!
//! A sealed secret is bound to a [`Binding`]: its domain, its owner (such as a process) and its use (such as
//! a variable). Sealing is AES-256 in SIV mode (RFC 5297) with the binding as associated data:
//!
//! ```text
//!   version  synthetic initialization vector  ciphertext
//!   1        16                               as long as the text
//! ```
//! SIV mode is deterministic: the vector authenticates binding and text, and depends on nothing else. Every
//! BBS therefore seals the same secret with the same binding to the same bytes, on every request. A repeated
//! request is recognised, and an unchanged file changes nothing. An observer of two sealed values with one
//! binding learns whether they are equal and how long they are, and nothing else.

use std::fmt;

use aes_siv::KeyInit;
use aes_siv::siv::Aes256Siv;
use data_encoding::{BASE64, HEXLOWER};
use ring::hkdf::{HKDF_SHA256, Prk, Salt};
use schemas::Timestamp;
use schemas::action::Sealed;
use schemas::secret::Binding;

use crate::keys::OpenError;

/// Length of a key in bytes.
pub(crate) const KEY_BYTES: usize = 32;
/// Length of a key id in bytes. The id is written in hexadecimal.
const ID_BYTES: usize = 4;
/// Length of a key of AES-256 in SIV mode: one half authenticates, the other half encrypts.
const SIV_KEY_BYTES: usize = 64;
/// Version of the sealed format, the first byte of a sealed value.
pub(crate) const FORMAT: u8 = 1;
/// Purposes of the subkeys that are derived from a key.
const SEAL: &[u8] = b"muster secrets: aes-256-siv";
const ID: &[u8] = b"muster secrets: id";

/// Key that seals secrets, and opens the secrets that it sealed.
pub struct Key {
    id: String,
    made: Timestamp,
    bytes: [u8; KEY_BYTES],
    siv: [u8; SIV_KEY_BYTES],
}

/// Output length of HKDF in bytes.
struct Length(usize);

impl ring::hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// Derives a subkey for one purpose. HKDF accepts all lengths that are used here.
fn derive<const N: usize>(key: &Prk, purpose: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let derived = key.expand(&[purpose], Length(N)).and_then(|okm| okm.fill(&mut bytes));
    derived.expect("HKDF gives up to 8160 bytes");
    bytes
}

impl Key {
    /// Creates a key from random bytes. The id of the key is derived from the same bytes.
    #[must_use]
    pub fn new(bytes: [u8; KEY_BYTES], made: Timestamp) -> Self {
        let root = Salt::new(HKDF_SHA256, &[]).extract(&bytes);
        Self { id: HEXLOWER.encode(&derive::<ID_BYTES>(&root, ID)), made, bytes, siv: derive(&root, SEAL) }
    }

    /// Returns the id by which a sealed value refers to this key.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the creation time of the key.
    #[must_use]
    pub const fn created(&self) -> Timestamp {
        self.made
    }

    pub(crate) const fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.bytes
    }

    fn cipher(&self) -> Aes256Siv {
        Aes256Siv::new(&self.siv.into())
    }

    /// Seals a text with a binding. The value can be opened only with the same binding.
    #[must_use]
    pub fn seal(&self, place: &Binding, text: &str) -> Sealed {
        let sealed = self.cipher().encrypt([place.bytes()], text.as_bytes());
        let sealed = sealed.expect("SIV mode seals any text with one associated value");
        let data = [&[FORMAT], sealed.as_slice()].concat();
        Sealed { key: self.id.clone(), data: BASE64.encode(&data) }
    }

    /// Opens a value that this key sealed with this binding.
    ///
    /// # Errors
    /// `Format` if another version of the program sealed the value in another format. `Foreign` if the value
    /// is damaged, or was sealed with another key or another binding.
    pub fn open(&self, place: &Binding, sealed: &Sealed) -> Result<String, OpenError> {
        let foreign = || OpenError::Foreign(sealed.key.clone());
        let data = BASE64.decode(sealed.data.as_bytes()).map_err(|_| foreign())?;
        let (format, data) = data.split_first().ok_or_else(foreign)?;
        if *format != FORMAT {
            return Err(OpenError::Format { key: sealed.key.clone(), format: *format });
        }
        let text = self.cipher().decrypt([place.bytes()], data).map_err(|_| foreign())?;
        String::from_utf8(text).map_err(|_| foreign())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.id)
    }
}

#[cfg(test)]
mod tests {
    use aes_siv::siv::Aes128Siv;

    use super::*;

    /// Deterministic example of RFC 5297, appendix A.1.
    #[test]
    fn library_matches_the_example_of_the_standard() {
        let hex = |text: &str| HEXLOWER.decode(text.as_bytes()).unwrap();
        let key = hex("fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff");
        let associated = hex("101112131415161718191a1b1c1d1e1f2021222324252627");
        let text = hex("112233445566778899aabbccddee");
        let mut cipher = Aes128Siv::new(key.as_slice().try_into().unwrap());
        let sealed = cipher.encrypt([&associated], &text).unwrap();
        assert_eq!(HEXLOWER.encode(&sealed), "85632d07c6e8f37f950acd320a2ecc9340c02b9690c4dc04daef7f6afe5c");
        assert_eq!(cipher.decrypt([&associated], &sealed).unwrap(), text);
    }
}
