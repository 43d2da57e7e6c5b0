//! Encryption key for secrets.
//!
//! A sealed secret is bound to a [`Binding`]: its domain, its owner (such as a process) and its use (such as
//! a variable). Sealing is deterministic: the nonce is a keyed hash (HMAC-SHA-256) of the binding and the
//! text. Every BBS therefore seals the same secret with the same binding to the same bytes, on every request.
//! A repeated request is recognised, and an unchanged file changes nothing. An observer of two sealed values
//! with one binding learns whether they are equal and how long they are, and nothing else. A nonce repeats
//! for the same binding and text. For different texts, a nonce repeats only if two 96-bit hashes are equal by
//! chance.

use std::fmt;

use data_encoding::{BASE64, HEXLOWER};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk, Salt};
use ring::hmac;
use schemas::Timestamp;
use schemas::action::Sealed;
use schemas::secret::Binding;

/// Length of a key in bytes.
pub(crate) const KEY_BYTES: usize = 32;
/// Length of a key id in bytes. The id is written in hexadecimal.
const ID_BYTES: usize = 4;
/// Purposes of the subkeys that are derived from a key.
const SEAL: &[u8] = b"muster secrets: seal";
const NONCE: &[u8] = b"muster secrets: nonce";
const ID: &[u8] = b"muster secrets: id";

/// Key that seals secrets, and opens the secrets that it sealed.
pub struct Key {
    id: String,
    made: Timestamp,
    bytes: [u8; KEY_BYTES],
    seal: LessSafeKey,
    nonce: hmac::Key,
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
        let seal = UnboundKey::new(&AES_256_GCM, &derive::<KEY_BYTES>(&root, SEAL));
        Self {
            id: HEXLOWER.encode(&derive::<ID_BYTES>(&root, ID)),
            made,
            bytes,
            seal: LessSafeKey::new(seal.expect("a key of AES-256 has 32 bytes")),
            nonce: hmac::Key::new(hmac::HMAC_SHA256, &derive::<KEY_BYTES>(&root, NONCE)),
        }
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

    /// Seals a text with a binding. The value can be opened only with the same binding.
    #[must_use]
    pub fn seal(&self, place: &Binding, text: &str) -> Sealed {
        let bound = place.bytes();
        let nonce = self.nonce_for(&bound, text);
        let mut data = nonce.to_vec();
        let mut sealed = text.as_bytes().to_vec();
        let bound = Aad::from(bound);
        let done =
            self.seal.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), bound, &mut sealed);
        done.expect("a text is far shorter than AES-GCM can seal");
        data.append(&mut sealed);
        Sealed { key: self.id.clone(), data: BASE64.encode(&data) }
    }

    /// Opens a value that this key sealed with this binding. Returns `None` if the value is damaged, or if it
    /// was sealed with another key or another binding.
    #[must_use]
    pub fn open(&self, place: &Binding, sealed: &Sealed) -> Option<String> {
        let data = BASE64.decode(sealed.data.as_bytes()).ok()?;
        let (nonce, sealed) = data.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let bound = Aad::from(place.bytes());
        let text = self.seal.open_in_place(Nonce::assume_unique_for_key(*nonce), bound, &mut sealed).ok()?;
        String::from_utf8(text.to_vec()).ok()
    }

    /// Returns the nonce for a binding and a text. The length prefix separates the two inputs.
    fn nonce_for(&self, bound: &[u8], text: &str) -> [u8; NONCE_LEN] {
        let mut hash = hmac::Context::with_key(&self.nonce);
        hash.update(&(bound.len() as u64).to_be_bytes());
        hash.update(bound);
        hash.update(text.as_bytes());
        let tag = hash.sign();
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&tag.as_ref()[..NONCE_LEN]);
        nonce
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.id)
    }
}
