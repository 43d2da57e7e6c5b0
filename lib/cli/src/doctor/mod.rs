//! `muster doctor`: checks a cluster and this host, and suggests solutions for problems. The command changes
//! nothing.
//!
//! | file | content |
//! |---|---|
//! | `collect/` | collection of facts: all I/O |
//! | `report.rs` | text of the report |
//!
//! The checks of the facts are in [`explain::doctor`].

mod collect;
mod report;

use clap::Args;
use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::output::Output;
use explain::doctor::{Outcome, run_checks, unconnected_report};
use host::serve::parse_replicas;
use runtime::exit::Exit;

use super::projection::DatabaseOption;
use collect::{Collected, Endpoint};

/// Options of `muster doctor`.
#[derive(Clone, Debug, Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    of: DatabaseOption,
    /// Monitoring addresses of the NATS servers, separated by commas: they show whether the servers sync
    /// every write
    #[arg(long, value_delimiter = ',', value_name = "URL", env = "MUSTER_NATS_MONITORING")]
    monitoring: Vec<String>,
    /// NATS servers that must store each entry: 1, 3 or 5
    #[arg(long, default_value_t = 1, value_parser = parse_replicas, allow_negative_numbers = true, env = "MUSTER_REPLICAS")]
    replicas: usize,
    #[arg(
        help = "Metrics address of a service (its --metrics), such as 127.0.0.1:9464 or \
                http://HOST:9464/metrics; may be repeated. The metrics count permission violations",
        long,
        value_delimiter = ',', value_name = "ADDRESS", value_parser = Endpoint::parse)]
    metrics: Vec<Endpoint>,
}

pub(crate) async fn run(args: &DoctorArgs, global: &Global) -> Result<(), Failure> {
    let (report, exit) = match collect::collect(args, global).await {
        Collected::Facts(facts) => (run_checks(&facts), Exit::Found),
        Collected::None { why, advice, host } => (unconnected_report(&why, advice, &host), Exit::Unreachable),
    };
    Output::new(global).write_one(&report, report::text)?;
    match report.outcome {
        Outcome::Failed => Err(Failure::silent(exit)),
        Outcome::Ok | Outcome::Warning | Outcome::Skipped => Ok(()),
    }
}
