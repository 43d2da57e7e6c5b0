//! Compact storage for lists that every aggregate has and that are rarely read.

use std::fmt;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A sequence of values, stored as the concatenation of their postcard encodings. A value is decoded when it
/// is read. The serde representation is that of a `Vec<T>`.
#[derive(Clone, PartialEq, Eq)]
pub struct Packed<T> {
    bytes: Box<[u8]>,
    marker: PhantomData<T>,
}

impl<T> Default for Packed<T> {
    fn default() -> Self {
        Self { bytes: Box::default(), marker: PhantomData }
    }
}

impl<T> Packed<T> {
    /// Returns `true` if the sequence has no values.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl<T: DeserializeOwned> Packed<T> {
    /// Returns an iterator over the values, in order.
    ///
    /// # Panics
    /// Never: the bytes always hold complete values.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        let mut rest = &*self.bytes;
        std::iter::from_fn(move || {
            (!rest.is_empty()).then(|| {
                let (value, behind) = postcard::take_from_bytes(rest).expect("packed values can be decoded");
                rest = behind;
                value
            })
        })
    }

    /// Returns all values, in order.
    #[must_use]
    pub fn to_vec(&self) -> Vec<T> {
        self.iter().collect()
    }
}

impl<T: Serialize + DeserializeOwned> Packed<T> {
    /// Decodes the values into a `Vec`, applies `change` to it, and stores the result.
    pub fn modify(&mut self, change: impl FnOnce(&mut Vec<T>)) {
        let mut all = self.to_vec();
        change(&mut all);
        *self = all.into_iter().collect();
    }
}

impl<T: Serialize> FromIterator<T> for Packed<T> {
    /// # Panics
    /// Never: the values are plain data.
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Self {
        let mut bytes = Vec::with_capacity(256);
        for value in all {
            bytes = postcard::to_extend(&value, bytes).expect("a value is plain data");
        }
        // The bytes are copied to an allocation of the exact size. Shrinking the old allocation in place
        // would leave a gap in the heap that is too small for most allocations.
        Self { bytes: bytes.as_slice().into(), marker: PhantomData }
    }
}

impl<T: Serialize + DeserializeOwned> Serialize for Packed<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.to_vec().serialize(to)
    }
}

impl<'de, T: Serialize + DeserializeOwned> Deserialize<'de> for Packed<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Vec::deserialize(from).map(Self::from_iter)
    }
}

impl<T: DeserializeOwned + fmt::Debug> fmt::Debug for Packed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_values_round_trip_and_serialize_like_a_vec() {
        let row = vec![(1_u8, "a".to_owned()), (2, "b".to_owned())];
        let mut packed: Packed<(u8, String)> = row.iter().cloned().collect();
        assert!(packed.iter().eq(row.iter().cloned()));
        assert_eq!(postcard::to_stdvec(&packed), postcard::to_stdvec(&row));
        assert_eq!(serde_json::to_string(&packed).unwrap(), serde_json::to_string(&row).unwrap());
        assert_eq!(postcard::from_bytes(&postcard::to_stdvec(&row).unwrap()), Ok(packed.clone()));
        packed.modify(Vec::clear);
        assert!(packed.is_empty() && packed == Packed::default());
    }
}
