//! Everything that a command caused, read from the whole log.
//!
//! The log is read twice, and only relevant decisions are kept. The first read resolves the id ([`IdQuery`]), and
//! the second collects the decisions of its chain, which become a tree ([`build_tree`]).

mod query;
mod tree;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use client::Client;
use schemas::entry::Event;
use schemas::names::EvaluationId;
use schemas::{Decision, Position};

use crate::Error;
use crate::decisions::{PositionedDecision, decisions_of, for_each_entry};
use query::{Matches, Target};

pub use query::IdQuery;
pub use tree::{Step, build_tree};

/// Returns the decisions that a command caused, as a tree. `id` is an id of one of these decisions, of the request,
/// or of an evaluation or an instance that one of the decisions created.
///
/// # Errors
/// A query fails, the log does not have the id, or the id belongs to several commands.
pub async fn trace(client: &Client, id: IdQuery) -> Result<Vec<Step>, Error> {
    let target = find(client, id).await?;
    Ok(build_tree(chain(client, &target).await?, &target.named_decisions))
}

/// Resolves an id.
async fn find(client: &Client, id: IdQuery) -> Result<Target, Error> {
    let mut hits = Matches::new(id);
    for_each_entry(client, Position(0), None, |entry| {
        // A complete decision id is unique, so the search can stop.
        let named = decisions_of(vec![entry]).iter().any(|one| hits.take(one));
        Ok::<_, Error>(if named { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })
    .await?;
    hits.target()
}

/// Returns the decisions of the traced chains, in the order of the log.
async fn chain(client: &Client, target: &Target) -> Result<Vec<PositionedDecision>, Error> {
    let mut chain = vec![];
    for_each_entry(client, target.after, None, |entry| {
        let of_it = |one: &PositionedDecision| target.correlations.contains(&one.decision.correlation);
        chain.extend(decisions_of(vec![entry]).into_iter().filter(of_it));
        Ok::<_, Error>(ControlFlow::Continue(()))
    })
    .await?;
    Ok(chain)
}

/// Passes decisions of other chains to `record`: the decisions that created evaluations which the steps joined, and
/// the decisions that belong to the trace of a client. If the steps joined no evaluation of another chain, there are
/// none, and the log is not read.
///
/// # Errors
/// A query fails.
pub async fn read_evaluation_origins(
    client: &Client,
    steps: &[Step],
    mut record: impl FnMut(&Decision),
) -> Result<(), Error> {
    let created: BTreeSet<EvaluationId> =
        steps.iter().flat_map(|step| step.decision.created_evaluations()).collect();
    let joined = steps.iter().flat_map(|step| step.decision.joined_evaluations());
    let mut sought: BTreeSet<EvaluationId> = joined.filter(|id| !created.contains(id)).collect();
    if sought.is_empty() {
        return Ok(());
    }
    for_each_entry(client, Position(0), None, |entry| {
        for PositionedDecision { decision, .. } in decisions_of(vec![entry]) {
            // The chain of the evaluation may belong to the trace of a client. The first decision of the
            // chain names that trace.
            let mut is_relevant = decision.traceparent.is_some();
            for event in decision.events.iter().filter_map(Event::as_evaluation) {
                // The first event of an evaluation marks its start.
                is_relevant |= sought.remove(&event.evaluation(decision.id));
            }
            if is_relevant {
                record(&decision);
            }
        }
        Ok(if sought.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })
    .await
}
