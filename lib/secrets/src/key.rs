//! One key.
//!
//! Sealing is deterministic: the nonce is a keyed hash (HMAC-SHA-256) of the place and the text, so the same secret at the
//! same place is sealed to the same bytes, by whichever BBS and however often it is sent. That is what lets a repeated request
//! be recognised and an unchanged file change nothing. Who sees two sealed values of one place learns whether they are the same,
//! and how long they are; nothing else. A nonce comes twice only for the same text, or by a collision of 96 bits.

use std::fmt;

use data_encoding::{BASE64, HEXLOWER};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk, Salt};
use ring::hmac;
use schemas::Timestamp;
use schemas::action::Sealed;
use schemas::secret::Place;

/// The length of a key, in bytes.
pub(crate) const KEY_BYTES: usize = 32;
/// The length of the id of a key, in bytes; it is written in hexadecimal.
const ID_BYTES: usize = 4;
/// What the keys for one use each are derived for.
const SEAL: &[u8] = b"muster secrets: seal";
const NONCE: &[u8] = b"muster secrets: nonce";
const ID: &[u8] = b"muster secrets: id";

/// A key: seals, and opens what it sealed.
pub struct Key {
    id: String,
    made: Timestamp,
    bytes: [u8; KEY_BYTES],
    seal: LessSafeKey,
    nonce: hmac::Key,
}

/// As many bytes as are asked for.
struct Length(usize);

impl ring::hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// Derives bytes for one use of a key. The lengths that are asked for here are all legal.
fn derive<const N: usize>(key: &Prk, purpose: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let derived = key.expand(&[purpose], Length(N)).and_then(|okm| okm.fill(&mut bytes));
    derived.expect("HKDF gives up to 8160 bytes");
    bytes
}

impl Key {
    /// A key of these bytes, which are drawn by chance. Its id is made of them.
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

    /// Its id: what a sealed value names it by.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// When it was made.
    #[must_use]
    pub const fn made(&self) -> Timestamp {
        self.made
    }

    pub(crate) const fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.bytes
    }

    /// Seals a text for a place.
    #[must_use]
    pub fn seal(&self, place: &Place, text: &str) -> Sealed {
        let bound = place.bytes();
        let nonce = self.nonce_of(&bound, text);
        let mut data = nonce.to_vec();
        let mut sealed = text.as_bytes().to_vec();
        let bound = Aad::from(bound);
        let done =
            self.seal.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), bound, &mut sealed);
        done.expect("a text is far shorter than AES-GCM can seal");
        data.append(&mut sealed);
        Sealed { key: self.id.clone(), data: BASE64.encode(&data) }
    }

    /// Opens what this key sealed for this place; none: it is something else, or damaged.
    #[must_use]
    pub fn open(&self, place: &Place, sealed: &Sealed) -> Option<String> {
        let data = BASE64.decode(sealed.data.as_bytes()).ok()?;
        let (nonce, sealed) = data.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let bound = Aad::from(place.bytes());
        let text = self.seal.open_in_place(Nonce::assume_unique_for_key(*nonce), bound, &mut sealed).ok()?;
        String::from_utf8(text.to_vec()).ok()
    }

    /// The first part is told apart from the second by its length.
    fn nonce_of(&self, bound: &[u8], text: &str) -> [u8; NONCE_LEN] {
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
