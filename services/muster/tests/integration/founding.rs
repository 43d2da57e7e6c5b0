//! An operator founds a cluster once. If its log is missing later, the log was lost, and no service founds
//! another cluster.

use serde_json::json;

use crate::support::test_dir::so;
use crate::support::{Cluster, eventually};
use crate::watching::{address, get};

const NO_STREAM: &str = "no cluster: the stream MUSTER does not exist: restore a backup with muster import, or found a new \
                         cluster with muster cluster found";

#[test]
fn lost_log_is_not_founded_again() {
    let mut cluster = Cluster::unfounded();
    let mark = cluster.place.path().join("founded").display().to_string();
    let marked = format!("cluster found --mark {mark}");
    let muster = cluster.muster();
    cluster.start_service_with("bbs-1", &["--metrics", "127.0.0.1:0"]);
    cluster.services.get_mut("bbs-1").unwrap().says(NO_STREAM);
    muster.exits(5, "status").tells(&[NO_STREAM]);
    muster.exits(5, "domain refresh shop").tells(&[NO_STREAM]);
    assert_not_ready(&cluster);
    muster.exits(9, "doctor").tells(&["restore a backup first", "muster cluster found"]);

    let id = muster.json(&marked)["cluster_id"].as_str().unwrap().to_owned();
    ["auctioneer-1", "rep-c1"].iter().for_each(|name| cluster.add(name));
    cluster.ready(1);
    assert_eq!(muster.json("cluster show")["cluster_id"], json!(id));
    muster.exits(4, "cluster found").tells(&["holds cluster", &id, "already"]);
    let again = muster.json(&marked);
    assert_eq!((&again["cluster_id"], &again["new"]), (&json!(id), &json!(false)));

    // Every service stops, and only the log is lost.
    ["bbs-1", "auctioneer-1", "rep-c1"].iter().for_each(|name| cluster.kill9(name));
    cluster.lose_log();
    ["bbs-1", "rep-c1"].iter().for_each(|name| cluster.add(name));
    cluster.services.get_mut("bbs-1").unwrap().says("no cluster");
    muster.exits(4, &marked).tells(&["the log of cluster", &id, "is gone", "restore a backup first"]);
    eventually("the rep names its cluster", || {
        let said = muster.run(&["cluster", "found"]);
        so(said.code == 4 && said.err.contains(&format!("rep c1 belongs to cluster {id}")), || {
            format!("{said:?}")
        })
    });
    // Another cluster is founded once no service belongs to the lost one and the mark is removed.
    cluster.kill9("rep-c1");
    std::fs::remove_file(&mark).unwrap();
    let other = muster.json(&marked)["cluster_id"].as_str().unwrap().to_owned();
    assert_ne!(other, id);
    cluster.add("auctioneer-1");
    cluster.ready(0);
    assert_eq!(muster.json("cluster show")["cluster_id"], json!(other));
    // The rep's containers belong to the lost cluster.
    cluster.add("rep-c1");
    cluster.services.get_mut("rep-c1").unwrap().says("belongs to cluster");
}

fn assert_not_ready(cluster: &Cluster) {
    let at = address(&cluster.services["bbs-1"]);
    eventually("the BBS is not ready", || {
        let (status, body) = get(&at, "/readyz")?;
        so(status == 503 && body.contains(NO_STREAM), || format!("{status} {body}"))
    });
}
