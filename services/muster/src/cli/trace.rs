//! `muster trace`: everything that one command caused, from the log, however long ago it was.
//!
//! The log is read twice, and nothing is kept of it but what is wanted: first for what the id names, then for the decisions
//! of that chain. [`tree`] makes the tree of them, and [`otlp`] spans of the tree.

mod otlp;
mod sought;
mod tree;

use std::ops::ControlFlow;

use client::Client;
use schemas::Position;

use super::args::{Format, Global};
use super::connect::connect;
use super::events::{self, Decided, decided};
use super::failure::Failure;
use super::output::{self, Output};
use super::table::Table;

pub(crate) use otlp::Collector;
pub(crate) use sought::Sought;
use sought::{Hits, Target};

pub(crate) async fn run(id: Sought, to: Option<&Collector>, global: &Global) -> Result<(), Failure> {
    let output = Output::new(global);
    let client = connect(global).await?;
    let target = find(&client, id).await?;
    let steps = tree::tree(chain(&client, &target).await?, &target.asked);
    match output.format {
        Format::Table | Format::Csv => output::line(&tree::text(&steps, output.look()))?,
        Format::Json | Format::Jsonl => output.rows(&steps, |_, _| Table::default())?,
    }
    match to {
        Some(collector) => otlp::send(collector, &steps, global.timeout).await,
        None => Ok(()),
    }
}

/// What an id names.
async fn find(client: &Client, id: Sought) -> Result<Target, Failure> {
    let mut hits = Hits::of(id);
    events::each(client, Position(0), None, |entry| {
        // The whole id of a decision names that, and it stands in the log once.
        let named = decided(vec![entry]).iter().any(|one| hits.take(one));
        Ok(if named { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })
    .await?;
    hits.target()
}

/// The decisions of what is traced, in the order of the log.
async fn chain(client: &Client, target: &Target) -> Result<Vec<Decided>, Failure> {
    let mut chain = vec![];
    events::each(client, target.after, None, |entry| {
        let of_it = |one: &Decided| target.correlations.contains(&one.decision.correlation);
        chain.extend(decided(vec![entry]).into_iter().filter(of_it));
        Ok(ControlFlow::Continue(()))
    })
    .await?;
    Ok(chain)
}
