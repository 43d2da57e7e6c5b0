//! Collects facts from a BBS: the state of the cluster and of its cells.

use std::time::Duration;

use client::{Client, Error};
use schemas::Code;
use text::chain;

use explain::doctor::facts::{Cluster, Unknown};

/// Timeout of each query to the BBS.
const QUERY_TIMEOUT: Duration = Duration::from_secs(3);

pub(super) async fn collect(client: Result<Client, Error>) -> Cluster {
    let client = match client {
        Ok(client) => client.patience(QUERY_TIMEOUT),
        Err(error) => {
            let why = reason(&error);
            return Cluster { row: Err(why.clone()), cells: Err(why) };
        }
    };
    let (row, cells) = tokio::join!(client.cluster(), client.cells());
    Cluster {
        row: row.map(|one| one.row).map_err(|error| reason(&error)),
        cells: cells.map(|listed| listed.rows).map_err(|error| reason(&error)),
    }
}

fn reason(error: &Error) -> Unknown {
    match error.code() {
        // Missing permissions are reported by the check `rights`.
        Some(Code::Forbidden) => Unknown::Skipped(chain(error)),
        Some(_) | None => Unknown::Failed(chain(error)),
    }
}
