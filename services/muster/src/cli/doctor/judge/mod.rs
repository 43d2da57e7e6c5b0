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

use super::super::words::bytes;
use super::check::{Check, Report};
use super::facts::{Asked, Facts, Host, NoConnection, Place, Unknown};

/// Checks that need a connection to a cluster, in report order.
const OF_CLUSTER: [&str; 19] = [
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
pub(super) fn all(facts: &Facts) -> Report {
    let Facts { place, cluster, tables, host, told } = facts;
    let clocks = cluster.row.as_ref().ok().map(|row| &row.services.clocks);
    let mut checks = match place {
        Place::Nats(on) => {
            [server::checks(&on.server), stream::checks(on), clock::checks(on, clocks)].concat()
        }
        Place::Local(folder) => {
            [server::of_folder(folder), stream::of_folder(folder), clock::of_folder(clocks)].concat()
        }
    };
    checks.push(match place {
        Place::Nats(on) => server::rights(&on.rights),
        Place::Local(folder) => server::rights_of_folder(folder),
    });
    checks.extend(cluster::checks(cluster));
    checks.push(database::check(tables, cluster.row.as_ref().ok()));
    checks.push(host::check(host));
    checks.push(denials::check(told, place));
    Report::of(checks)
}

/// Returns the report without a connection to a cluster.
pub(super) fn unconnected(failed: Check, host: &Asked<Host>) -> Report {
    let mut checks = vec![failed];
    let skipped = |check| Check::skipped(check, "there is no connection");
    checks.extend(OF_CLUSTER.map(skipped));
    checks.push(skipped("database"));
    checks.push(host::check(host));
    checks.push(skipped("denials"));
    Report::of(checks)
}

/// Returns the check of a missing connection, with advice.
pub(super) fn no_connection(why: &NoConnection) -> Check {
    server::no_connection(why)
}

/// Returns the check of an unknown fact.
fn unknown(check: &'static str, why: &Unknown) -> Check {
    match why {
        Unknown::Skipped(why) => Check::skipped(check, why),
        Unknown::Failed(why) => Check::failed(check, why),
    }
}
