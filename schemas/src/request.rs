//! What a process or task remembers of the requests that changed it, so that asking twice is asking once.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::limits::REMEMBERED_REQUESTS;
use crate::names::RequestId;

/// The newest requests, the oldest first, each with the version that it made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests(VecDeque<(RequestId, u64)>);

impl Requests {
    /// The version that a request made, if it is remembered.
    #[must_use]
    pub fn answer(&self, request: &RequestId) -> Option<u64> {
        self.0.iter().find(|(known, _)| known == request).map(|(_, version)| *version)
    }

    /// Remembers a request; the oldest of more than 32 is forgotten.
    pub fn remember(&mut self, request: RequestId, version: u64) {
        if self.0.len() >= REMEMBERED_REQUESTS {
            self.0.pop_front();
        }
        self.0.push_back((request, version));
        if self.0.len() == 1 {
            self.0.shrink_to_fit();
        }
    }
}
