//! Cells: what they have, who speaks for them, and how they are emptied.

use crate::dev::sleeper;
use crate::support::place::so;
use crate::support::{Cluster, eventually};

/// A process whose instances listen on one port each.
fn listener(name: &str, instances: usize) -> String {
    format!("{}ports = [8080]\n", sleeper(name, instances))
}

#[test]
fn host_ports_are_a_resource_of_the_cell() {
    let mut cluster = Cluster::start(&["bbs-1", "auctioneer-1"]);
    cluster.add_with("rep-c1", &["--ports", "28640-28641"]);
    cluster.ready(1);
    let (first, second) = (
        cluster.place.file("first.toml", listener("first", 2)),
        cluster.place.file("second.toml", listener("second", 1)),
    );
    cluster.muster().ok(&format!("lrp desire {}", first.display()));
    let said = cluster.muster().exits(6, &format!("lrp desire {}", second.display()));
    said.tells(&["second/0 is not placed: insufficient resources: ports"]);
    let rows = cluster.muster().instances("second").unwrap();
    assert_eq!((&rows[0]["state"], &rows[0]["crash_count"]), (&"UNCLAIMED".into(), &0.into()));
    cluster.muster().ok("cell show c1").tells(&["2/2"]);

    // As soon as a port is free, it is placed.
    cluster.muster().ok("lrp scale first=1");
    cluster.muster().runs("second", 1);
    eventually("the cell is full again", || {
        let cell = cluster.muster().try_json("cell show c1")?;
        so(cell["used"]["ports"] == 2, || cell.to_string())
    });
    let crashed = cluster.log().iter().any(|entry| entry.to_string().contains("crashed.v1"));
    assert!(!crashed, "nothing crashed");
}
