//! `muster doctor`: checks a cluster and this host, and suggests what to do about problems. It changes
//! nothing.
//!
//! | file | content |
//! |---|---|
//! | `ask/` | collection of facts: all I/O |
//! | `facts.rs` | the collected facts |
//! | `judge/` | the checks: pure functions of the facts |
//! | `check.rs` | the report |

mod ask;
mod check;
mod facts;
mod judge;

use clap::Args;

use super::args::Global;
use super::failure::{Exit, Failure};
use super::output::Output;
use super::projection::OfDatabase;
use crate::serve::parse_replicas;
use ask::{Answers, Endpoint};
use check::{Check, Outcome, Report};

/// Options of `muster doctor`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    of: OfDatabase,
    /// Monitoring addresses of the NATS servers, separated by commas: they show whether the servers sync
    /// every write
    #[arg(long, value_delimiter = ',', value_name = "URL", env = "MUSTER_NATS_MONITORING")]
    monitoring: Vec<String>,
    /// NATS servers that must store each entry: 1, 3 or 5
    #[arg(long, default_value_t = 1, value_parser = parse_replicas, allow_negative_numbers = true, env = "MUSTER_REPLICAS")]
    replicas: usize,
    #[arg(
        help = "Where services serve their metrics (their --metrics), as 127.0.0.1:9464 or http://HOST:9464/metrics; may be given again. They tell what they were refused for want of permission",
        long,
        value_delimiter = ',', value_name = "ADDRESS", value_parser = Endpoint::parse)]
    metrics: Vec<Endpoint>,
}

pub(crate) async fn run(args: &DoctorArgs, global: &Global) -> Result<(), Failure> {
    let (report, exit) = match ask::all(args, global).await {
        Answers::Facts(facts) => (judge::all(&facts), Exit::Found),
        Answers::None { why, advice, host } => {
            let check = advice.into_iter().fold(judge::no_connection(&why), Check::advise);
            (judge::unconnected(check, &host), Exit::Unreachable)
        }
    };
    Output::new(global).one(&report, Report::text)?;
    match report.outcome {
        Outcome::Failed => Err(Failure::silent(exit)),
        Outcome::Ok | Outcome::Warning | Outcome::Skipped => Ok(()),
    }
}
