//! Where a page begins: who holds the World as it was when the first page was made, at which position, and behind
//! which row.

use std::fmt;

use crate::names::ServiceId;
use crate::refusal::{BadField, Refusal};
use crate::subject::Position;

/// A cursor, taken from its text: `BBS/POSITION/KEY`. Who gets one gives it back as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The BBS that holds the picture from which the pages are read.
    pub bbs: ServiceId,
    /// Where the World of that picture stands.
    pub position: Position,
    /// The last row of the page before, as its query names it.
    pub key: String,
}

impl Cursor {
    /// Reads a cursor.
    ///
    /// # Errors
    /// `InvalidRequest`, naming the value.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let mut parts = text.splitn(3, '/');
        let mut part = || parts.next().ok_or_else(|| Self::bad(text));
        let (bbs, position, key) = (part()?, part()?, part()?);
        let bbs = ServiceId::new(bbs).map_err(|_| Self::bad(text))?;
        let number: u64 = position.parse().map_err(|_| Self::bad(text))?;
        if number.to_string() != position {
            return Err(Self::bad(text));
        }
        Ok(Self { bbs, position: Position(number), key: key.to_owned() })
    }

    /// What text that is not a cursor is answered.
    #[must_use]
    pub fn bad(text: &str) -> Refusal {
        let shown = crate::limits::cut(text, 80);
        let problem =
            format!("{shown:?} is not a cursor of this query: use what `next` of the page before said");
        Refusal::invalid(vec![BadField { field: "cursor".into(), problem }])
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.bbs, self.position, self.key)
    }
}
