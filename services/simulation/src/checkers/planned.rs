//! Commands that name a position: carried out only if nothing was decided about their thing after that.

use std::collections::BTreeMap;

use schemas::entry::Aggregate;
use schemas::names::RequestId;
use schemas::spec::ClientCommand;
use schemas::subject::Position;
use schemas::{Code, Decision, Refusal};

use super::Notes;
use super::heard::{Thing, thing};
use crate::asked::ClientRequest;
use crate::promises::{Broken, Promise};

/// What was planned, and where the last decision about each thing stands: of what is gone, too.
#[derive(Default)]
pub(super) struct Planned {
    asked: BTreeMap<RequestId, (Thing, Position)>,
    last: BTreeMap<Thing, Position>,
}

impl Planned {
    /// A client asks something, maybe as it was planned at a position.
    pub(super) fn asked(&mut self, request: &ClientRequest) {
        if let Some(at) = request.envelope.if_position {
            self.asked.insert(request.id(), (thing(&request.command), at));
        }
    }

    /// A decision is in the log.
    pub(super) fn decision(&mut self, decision: &Decision, position: Position, notes: &mut Notes) {
        let thing = match &decision.aggregate {
            Aggregate::Process { guid, .. } => Thing::Process(guid.clone()),
            Aggregate::Task { guid, .. } => Thing::Task(guid.clone()),
            Aggregate::Periodic { guid, .. } => Thing::Periodic(guid.clone()),
            Aggregate::Parameterised { guid, .. } => Thing::Parameterised(guid.clone()),
            Aggregate::Domain(domain) => Thing::Domain(domain.clone()),
            Aggregate::Cell(_) | Aggregate::Cluster => return,
        };
        let before = self.last.insert(thing.clone(), position).unwrap_or_default();
        let request = decision.request_id.as_ref();
        if let Some((_, planned)) = request.and_then(|request| self.asked.get(request)) {
            notes.must(Promise::AsPlanned, before <= *planned, || {
                format!("{request:?} was planned at {planned}, and {thing:?} has changed at {before}")
            });
        }
    }

    /// Where the last decision stands about what a command is about; 0: nowhere.
    pub(super) fn last(&self, command: &ClientCommand) -> Position {
        self.last.get(&thing(command)).copied().unwrap_or_default()
    }

    /// Whether a client is told that its thing has changed since.
    pub(super) fn is_outdated(&self, request: &RequestId, refusal: &Refusal) -> bool {
        let says_so = refusal.message.contains("has changed since position");
        says_so && refusal.code == Code::ResourceConflict && self.asked.contains_key(request)
    }

    /// A client is told that it is not done.
    pub(super) fn refused(&self, request: &RequestId, refusal: &Refusal) -> Option<Broken> {
        let (thing, planned) = self.asked.get(request).filter(|_| self.is_outdated(request, refusal))?;
        let last = self.last.get(thing).copied().unwrap_or_default();
        (last <= *planned).then(|| Broken {
            promise: Promise::AsPlanned,
            how: format!(
                "{request} is refused: {refusal}; the last decision about {thing:?} stands at {last}"
            ),
        })
    }
}
