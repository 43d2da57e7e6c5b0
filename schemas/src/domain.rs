//! Events of domains.

use crate::Timestamp;
use crate::quota::Quotas;

/// Event of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client confirmed that the desired state of the domain is up to date.
    Refreshed {
        /// End of the freshness. `None` if it has no end.
        expires_at: Option<Timestamp>,
    },
    /// An operator changed the quotas.
    Limited {
        /// Complete quotas, including the unchanged ones.
        quotas: Quotas,
    },
}
