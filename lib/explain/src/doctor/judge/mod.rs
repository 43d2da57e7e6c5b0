//! Checks of the collected facts. All functions are pure: the same facts give the same report.
//!
//! | file | checks |
//! |---|---|
//! | `server.rs` | the connection, and the permissions of the credentials |
//! | `stream.rs` | the storage of the journal |
//! | `clock.rs` | the clocks |
//! | `cluster.rs` | leaders, versions, cells |
//! | `database.rs` | tables |
//! | `host.rs` | this host, as a cell |
//! | `denials.rs` | permission violations of services |

mod clock;
mod cluster;
mod database;
mod denials;
mod host;
mod server;
mod stream;

use text::words::bytes_text;

use super::check::{Check, Report};
use super::facts::{Fact, Facts, Host, NoConnection, Place, Unknown};

/// Checks that need a connection to a cluster, in report order.
const CLUSTER_CHECKS: [&str; 19] = [
    "certificate",
    "jetstream",
    "stream",
    "positions",
    "entries",
    "replicas",
    "durability",
    "storage",
    "health",
    "clock.server",
    "clock.bbs",
    "clock.cells",
    "rights",
    "bbs",
    "auctioneer",
    "appends",
    "versions",
    "cells",
    "isolation",
];

/// Runs all checks.
#[must_use]
pub fn run_checks(facts: &Facts) -> Report {
    let Facts { place, cluster, tables, host, metrics: told } = facts;
    let clocks = cluster.row.as_ref().ok().map(|row| &row.services.clocks);
    let mut checks = match place {
        Place::Nats(on) => {
            [server::checks(&on.server), stream::checks(on), clock::checks(on, clocks)].concat()
        }
        Place::Local(folder) => {
            [server::local_checks(folder), stream::local_checks(folder), clock::local_checks(clocks)].concat()
        }
    };
    checks.push(match place {
        Place::Nats(on) => server::rights(&on.permissions),
        Place::Local(folder) => server::local_rights(folder),
    });
    checks.extend(cluster::checks(cluster));
    checks.push(database::check(tables, cluster.row.as_ref().ok()));
    checks.push(host::check(host));
    checks.push(denials::check(told, place));
    Report::new(checks)
}

/// Returns the report if there is no connection to a cluster. `advice` is added to the advice for the kind of the
/// failure.
#[must_use]
pub fn unconnected_report(why: &NoConnection, advice: Vec<String>, host: &Fact<Host>) -> Report {
    let mut checks = vec![advice.into_iter().fold(server::no_connection(why), Check::advise)];
    let skipped = |check| Check::skipped(check, "no connection");
    checks.extend(CLUSTER_CHECKS.map(skipped));
    checks.push(skipped("database"));
    checks.push(host::check(host));
    checks.push(skipped("denials"));
    Report::new(checks)
}

/// Returns the check of an unknown fact.
fn unknown_fact(check: &'static str, why: &Unknown) -> Check {
    match why {
        Unknown::Skipped(why) => Check::skipped(check, why),
        Unknown::Failed(why) => Check::failed(check, why),
    }
}
