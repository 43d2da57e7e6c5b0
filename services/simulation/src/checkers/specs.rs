//! What is desired is in the log word for word as its client wrote it, and nothing of what was wrong is there.

use std::collections::BTreeMap;

use schemas::entry::{Aggregate, Event};
use schemas::names::RequestId;
use schemas::spec::ClientCommand;
use schemas::{Decision, desired, parameterised, periodic, task};

use super::Notes;
use crate::asked::ClientRequest;
use crate::coverage::Situation;
use crate::promises::Promise as P;
use crate::spoiled;

/// What clients wrote.
#[derive(Default)]
pub(super) struct Specs {
    written: BTreeMap<RequestId, ClientCommand>,
}

impl Specs {
    /// A client asks something.
    pub(super) fn asked(&mut self, request: &ClientRequest) {
        self.written.insert(request.id(), request.command.clone());
    }

    /// A decision is in the log.
    pub(super) fn decided(&self, decision: &Decision, notes: &mut Notes) {
        let request = decision.request_id.as_ref().map(RequestId::as_str);
        let is_bad = request.into_iter().chain(decision.reason.as_deref()).any(spoiled::is_spoiled);
        notes.must(P::BadSpecsRefused, !is_bad, || {
            format!("{request:?}, {:?} is carried out", decision.reason)
        });
        let written = decision.request_id.as_ref().and_then(|request| self.written.get(request));
        let Some(written) = written else { return };
        for event in &decision.events {
            notes.must(P::GoodSpecsTaken, is_as_written(event, written), || {
                format!("{request:?} says {written:?}, and the log {event:?}")
            });
        }
        if is_utmost(&decision.aggregate) && !decision.events.is_empty() {
            notes.saw(Situation::UtmostDesired);
        }
    }
}

/// Whether an event of a command's decision says what the command does, where it says something of that kind.
fn is_as_written(event: &Event, written: &ClientCommand) -> bool {
    use ClientCommand as C;
    if let (Event::Desired(desired::Event::Desired(lrp)), C::LrpDesire(written)) = (event, written) {
        lrp == written
    } else if let (Event::Task(task::Event::Desired(task)), C::TaskDesire(written)) = (event, written) {
        task == written
    } else if let (Event::Periodic(periodic::Event::Desired { desired, .. }), C::PeriodicDesire(written))
    | (Event::Periodic(periodic::Event::Updated { desired, .. }), C::PeriodicUpdate(written)) =
        (event, written)
    {
        desired == written
    } else if let (
        Event::Parameterised(parameterised::Event::Desired { desired }),
        C::ParameterisedDesire(written),
    )
    | (
        Event::Parameterised(parameterised::Event::Updated { desired }),
        C::ParameterisedUpdate(written),
    ) = (event, written)
    {
        desired == written
    } else if let (
        Event::Parameterised(parameterised::Event::Dispatched { dispatch, .. }),
        C::ParameterisedDispatch { dispatch: written, .. },
    ) = (event, written)
    {
        dispatch == written
    } else if let (Event::Desired(desired::Event::Updated(found)), C::LrpUpdate { update, .. }) =
        (event, written)
    {
        // What is so already is left out.
        (found.instances.is_none() || found.instances == update.instances)
            && (found.priority.is_none() || found.priority == update.priority)
            && (found.routes.is_none() || found.routes == update.routes)
            && (found.annotation.is_none() || found.annotation == update.annotation)
            && (found.policies.is_none() || found.policies == update.policies)
    } else if let (
        Event::Desired(desired::Event::DefinitionAdded { definition_id, definition }),
        C::LrpUpdate { definition: written, .. },
    ) = (event, written)
    {
        written.as_ref().is_some_and(|(id, written)| id == definition_id && written == definition)
    } else {
        true
    }
}

/// Whether it is of the domain of what is as large as may be.
fn is_utmost(aggregate: &Aggregate) -> bool {
    match aggregate {
        Aggregate::Process { domain, .. } | Aggregate::Task { domain, .. } => *domain == spoiled::domain(),
        Aggregate::Periodic { .. }
        | Aggregate::Parameterised { .. }
        | Aggregate::Domain(_)
        | Aggregate::Cell(_)
        | Aggregate::Cluster => false,
    }
}
