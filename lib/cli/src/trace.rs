//! `muster trace`: everything that a command caused, as a tree of decisions. [`tree`] formats the tree, and [`otlp`]
//! converts it to spans. For spans, the log is read once more if a decision of the tree joined an evaluation of
//! another chain.

mod otlp;
mod tree;

use clap::Args;
use cli_base::connect::connect;
use cli_base::failure::Failure;
use cli_base::options::{Format, Global};
use cli_base::output::{self, Output};
use cli_base::table::Table;
use explain::trace::{IdQuery, read_evaluation_origins, trace};
use host::otlp::{Collector, TraceContext};

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
    let steps = trace(&client, args.id).await?;
    match output.format {
        Format::Table | Format::Csv | Format::Toml => output::write_line(&tree::text(&steps, output.look()))?,
        Format::Json | Format::Jsonl => output.write_rows(&steps, |_, _| Table::default())?,
    }
    match &args.otlp {
        Some(collector) => {
            let mut known = TraceContext::with_capacity(usize::MAX);
            read_evaluation_origins(&client, &steps, |decision| known.record(decision)).await?;
            otlp::send(collector, &steps, known, global.timeout).await
        }
        None => Ok(()),
    }
}
