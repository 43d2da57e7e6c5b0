//! What an aggregate remembers of the requests that changed it, so that asking twice is asking once.
//!
//! A request is identified by who asks and the id that it gave. The verb and the body that it came with are remembered as
//! a digest: the same id with something else is another request by mistake, and refused. What was refused is not
//! remembered: it changed nothing, and may be asked again.

use serde::{Deserialize, Serialize};

use crate::entry::Actor;
use crate::limits::REMEMBERED_REQUESTS;
use crate::names::RequestId;
use crate::packed::Packed;
use crate::refusal::{Code, Refusal};

/// A request, told from every other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Who asks.
    pub actor: Actor,
    /// What the requester called it.
    pub id: RequestId,
    /// What it asks, as [`digest`] puts it.
    pub digest: Option<String>,
}

/// The verb of a command, and the FNV-1a hash (64 bits) of its body as [`crate::spec::ClientCommand::body`] writes it.
#[must_use]
pub fn digest((noun, verb): (&str, &str), body: &str) -> String {
    format!("{noun}.{verb}#{:016x}", crate::subject::fnv_1a(body))
}

/// The newest requests, the oldest first, each with the version that it made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests(Packed<(Identity, u64)>);

impl Requests {
    /// The version that a request made, if it is remembered.
    ///
    /// # Errors
    /// `RequestIdReused` if its requester gave the same id to something else.
    pub fn answer(&self, request: &Identity) -> Result<Option<u64>, Refusal> {
        let same = |known: &Identity| known.actor == request.actor && known.id == request.id;
        match self.0.iter().find(|(known, _)| same(known)) {
            None => Ok(None),
            Some((known, version)) if known.digest == request.digest => Ok(Some(version)),
            Some((known, _)) => {
                let verb = |of: &Identity| {
                    let digest = of.digest.as_deref().unwrap_or("a command");
                    digest.split('#').next().unwrap_or(digest).to_owned()
                };
                let (id, was, is) = (&request.id, verb(&known), verb(request));
                let why = format!(
                    "request id {id} was given to another command ({was}) and now comes with {is}: give each an id of its own"
                );
                Err(Refusal::new(Code::RequestIdReused, why))
            }
        }
    }

    /// How many are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().count()
    }

    /// Whether none is remembered.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Remembers a request; the oldest of more than 32 is forgotten.
    pub fn remember(&mut self, request: Identity, version: u64) {
        self.0.change(|all| {
            if all.len() >= REMEMBERED_REQUESTS {
                all.remove(0);
            }
            all.push((request, version));
        });
    }
}
