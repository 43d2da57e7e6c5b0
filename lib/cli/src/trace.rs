//! `muster trace`: everything that a command caused, read from the whole log.
//!
//! The log is read twice, and only relevant decisions are kept. The first read resolves the id, and the
//! second collects the decisions of its chain. [`tree`] arranges the decisions as a tree, and [`otlp`]
//! converts the tree to spans. For spans, the log is read once more if a decision of the chain joined an
//! evaluation of another chain.

mod otlp;
mod query;
mod tree;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use clap::Args;
use cli_base::connect::connect;
use cli_base::failure::Failure;
use cli_base::options::{Format, Global};
use cli_base::output::{self, Output};
use cli_base::table::Table;
use client::Client;
use host::otlp::span::joined_evaluations;
use host::otlp::{Collector, TraceContext};
use query::{Matches, Target};
use schemas::Position;
use schemas::entry::Event;
use schemas::names::EvaluationId;

use explain::decisions::{self, PositionedDecision, decisions_of};
pub(crate) use query::IdQuery;

/// Arguments of `muster trace`.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// Decision, correlation or evaluation id, instance guid (whole, or a prefix or suffix of at least 8
    /// characters), or request id
    #[arg(value_parser = IdQuery::parse)]
    id: IdQuery,
    /// Also send the trace as OpenTelemetry spans (OTLP over HTTP, JSON) to this collector; a URL without
    /// a path gets /v1/traces
    #[arg(long, value_parser = Collector::parse, value_name = "URL")]
    otlp: Option<Collector>,
}

pub(crate) async fn run(args: TraceArgs, global: &Global) -> Result<(), Failure> {
    let output = Output::new(global);
    let client = connect(global).await?;
    let target = find(&client, args.id).await?;
    let steps = tree::build_tree(chain(&client, &target).await?, &target.named_decisions);
    match output.format {
        Format::Table | Format::Csv | Format::Toml => output::write_line(&tree::text(&steps, output.look()))?,
        Format::Json | Format::Jsonl => output.write_rows(&steps, |_, _| Table::default())?,
    }
    match &args.otlp {
        Some(collector) => {
            let known = evaluations(&client, &steps).await?;
            otlp::send(collector, &steps, known, global.timeout).await
        }
        None => Ok(()),
    }
}

/// Returns the starts of the evaluations of other chains that a decision of this chain joined.
async fn evaluations(client: &Client, steps: &[tree::Step]) -> Result<TraceContext, Failure> {
    let mut known = TraceContext::with_capacity(usize::MAX);
    steps.iter().for_each(|step| known.record(&step.decision));
    let joined = steps.iter().flat_map(|step| joined_evaluations(&step.decision));
    let mut sought: BTreeSet<EvaluationId> = joined.filter(|id| known.origin(*id).is_none()).collect();
    if sought.is_empty() {
        return Ok(known);
    }
    decisions::for_each_entry(client, Position(0), None, |entry| {
        for PositionedDecision { decision, .. } in decisions_of(vec![entry]) {
            // The chain of the evaluation may belong to the trace of a client. The first decision of the
            // chain names that trace.
            if decision.traceparent.is_some() {
                known.record(&decision);
            }
            for event in decision.events.iter().filter_map(Event::as_evaluation) {
                // The first event of an evaluation marks its start.
                if sought.remove(&event.evaluation(decision.id)) {
                    known.record(&decision);
                }
            }
        }
        Ok::<_, Failure>(if sought.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })
    .await?;
    Ok(known)
}

/// Resolves an id.
async fn find(client: &Client, id: IdQuery) -> Result<Target, Failure> {
    let mut hits = Matches::new(id);
    decisions::for_each_entry(client, Position(0), None, |entry| {
        // A complete decision id is unique, so the search can stop.
        let named = decisions_of(vec![entry]).iter().any(|one| hits.take(one));
        Ok::<_, Failure>(if named { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })
    .await?;
    hits.target()
}

/// Returns the decisions of the traced chains, in the order of the log.
async fn chain(client: &Client, target: &Target) -> Result<Vec<PositionedDecision>, Failure> {
    let mut chain = vec![];
    decisions::for_each_entry(client, target.after, None, |entry| {
        let of_it = |one: &PositionedDecision| target.correlations.contains(&one.decision.correlation);
        chain.extend(decisions_of(vec![entry]).into_iter().filter(of_it));
        Ok::<_, Failure>(ControlFlow::Continue(()))
    })
    .await?;
    Ok(chain)
}
