//! Cursors of paged queries. A cursor consists of the id of a BBS, a position, and the last row of the
//! previous page. The BBS keeps the World snapshot (the state folded from the log) of the first page. The
//! position is that of the snapshot.

use std::fmt;

use crate::names::ServiceId;
use crate::refusal::{BadField, Refusal};
use crate::subject::Position;

/// A cursor, parsed from its text `BBS/POSITION/KEY`. Clients return it unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// BBS that keeps the World snapshot from which the pages are read.
    pub bbs: ServiceId,
    /// Position of the World snapshot.
    pub position: Position,
    /// Key of the last row of the previous page. The format depends on the query.
    pub key: String,
}

impl Cursor {
    /// Parses a cursor.
    ///
    /// # Errors
    /// `InvalidRequest` with the invalid value.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let mut parts = text.splitn(3, '/');
        let mut part = || parts.next().ok_or_else(|| Self::invalid(text));
        let (bbs, position, key) = (part()?, part()?, part()?);
        let bbs = ServiceId::new(bbs).map_err(|_| Self::invalid(text))?;
        let number: u64 = position.parse().map_err(|_| Self::invalid(text))?;
        if number.to_string() != position {
            return Err(Self::invalid(text));
        }
        Ok(Self { bbs, position: Position(number), key: key.to_owned() })
    }

    /// Returns the refusal for text that is not a valid cursor.
    #[must_use]
    pub fn invalid(text: &str) -> Refusal {
        let shown = crate::limits::truncate(text, 80);
        let problem = format!("invalid cursor {shown:?}: use `next` of the previous page");
        Refusal::invalid(vec![BadField { field: "cursor".into(), problem }])
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.bbs, self.position, self.key)
    }
}
