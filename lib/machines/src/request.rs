//! Requests that changed an aggregate. The aggregate remembers these requests, so that a repeated request is
//! carried out only once.
//!
//! The actor and the request id identify a request. The verb and the body are remembered as a digest. If an
//! id is reused for another command, the digests differ and the request is refused. Refused requests are not
//! remembered, because they changed nothing and may be sent again.

use serde::{Deserialize, Serialize};

use schemas::limits::REMEMBERED_REQUESTS;
use schemas::packed::Packed;
use schemas::refusal::{Code, Refusal};
use schemas::request::is_same;
use schemas::stamp::Identity;

/// Most recent requests, the oldest first. Each request is stored with the version of the aggregate that the
/// request produced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests(Packed<(Identity, u64)>);

impl Requests {
    /// Returns the version that a request produced. `None` if the request is not remembered.
    ///
    /// # Errors
    /// `RequestIdReused` if the sender used the same id for another command.
    pub fn answer(&self, request: &Identity) -> Result<Option<u64>, Refusal> {
        let same = |known: &Identity| known.actor == request.actor && known.id == request.id;
        match self.0.iter().find(|(known, _)| same(known)) {
            None => Ok(None),
            Some((known, version)) if is_same(known.digest.as_deref(), request.digest.as_deref()) => {
                Ok(Some(version))
            }
            Some((known, _)) => {
                let verb = |of: &Identity| {
                    let digest = of.digest.as_deref().unwrap_or("a command");
                    digest.split('#').next().unwrap_or(digest).to_owned()
                };
                let (id, was, is) = (&request.id, verb(&known), verb(request));
                let why = format!(
                    "request id {id} was used for another command ({was}) and cannot be reused for {is}: \
                     use a new id for each command"
                );
                Err(Refusal::new(Code::RequestIdReused, why))
            }
        }
    }

    /// Returns the number of remembered requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().count()
    }

    /// Returns `true` if the history is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Remembers a request. If more than 32 requests are remembered afterwards, the oldest request is
    /// forgotten.
    pub fn remember(&mut self, request: Identity, version: u64) {
        self.0.modify(|all| {
            if all.len() >= REMEMBERED_REQUESTS {
                all.remove(0);
            }
            all.push((request, version));
        });
    }
}
