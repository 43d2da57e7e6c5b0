//! An operator founds a cluster once. If the log is missing later, the log was lost, and no service founds
//! another cluster.

use serde_json::json;

use crate::support::test_dir::ensure;
use crate::support::{Cluster, eventually};
use crate::watching::{http_get, metrics_address};

const NO_STREAM: &str = "no cluster: the stream MUSTER does not exist: restore a backup with muster import, or found a new \
                         cluster with muster cluster found";

#[test]
fn lost_log_is_not_founded_again() {
    let mut cluster = Cluster::unfounded();
    let mark = cluster.place.path().join("founded").display().to_string();
    let marked = format!("cluster found --mark {mark}");
    let muster = cluster.muster();
    cluster.start_service_with("bbs-1", &["--metrics", "127.0.0.1:0"]);
    cluster.services.get_mut("bbs-1").unwrap().wait_for_log(NO_STREAM);
    muster.exits(5, "status").expect_output(&[NO_STREAM]);
    muster.exits(5, "domain refresh shop").expect_output(&[NO_STREAM]);
    assert_not_ready(&cluster);
    muster.exits(9, "doctor").expect_output(&["restore a backup first", "muster cluster found"]);

    let id = muster.json(&marked)["cluster_id"].as_str().unwrap().to_owned();
    ["auctioneer-1", "rep-c1"].iter().for_each(|name| cluster.start_service(name));
    cluster.wait_until_ready(1);
    assert_eq!(muster.json("cluster show")["cluster_id"], json!(id));
    muster.exits(4, "cluster found").expect_output(&["holds cluster", &id, "already"]);
    let again = muster.json(&marked);
    assert_eq!((&again["cluster_id"], &again["new"]), (&json!(id), &json!(false)));

    // Every service stops, and only the log is lost.
    ["bbs-1", "auctioneer-1", "rep-c1"].iter().for_each(|name| cluster.kill9(name));
    cluster.lose_log();
    ["bbs-1", "rep-c1"].iter().for_each(|name| cluster.start_service(name));
    cluster.services.get_mut("bbs-1").unwrap().wait_for_log("no cluster");
    muster.exits(4, &marked).expect_output(&["the log of cluster", &id, "is gone", "restore a backup first"]);
    eventually("the rep names its cluster", || {
        let said = muster.run(&["cluster", "found"]);
        ensure(said.code == 4 && said.err.contains(&format!("rep c1 belongs to cluster {id}")), || {
            format!("{said:?}")
        })
    });
    // Another cluster is founded once no service belongs to the lost cluster and the mark is removed.
    cluster.kill9("rep-c1");
    std::fs::remove_file(&mark).unwrap();
    let other = muster.json(&marked)["cluster_id"].as_str().unwrap().to_owned();
    assert_ne!(other, id);
    cluster.start_service("auctioneer-1");
    cluster.wait_until_ready(0);
    assert_eq!(muster.json("cluster show")["cluster_id"], json!(other));
    // The rep's containers belong to the lost cluster.
    cluster.start_service("rep-c1");
    cluster.services.get_mut("rep-c1").unwrap().wait_for_log("belongs to cluster");
}

fn assert_not_ready(cluster: &Cluster) {
    let at = metrics_address(&cluster.services["bbs-1"]);
    eventually("the BBS is not ready", || {
        let (status, body) = http_get(&at, "/readyz")?;
        ensure(status == 503 && body.contains(NO_STREAM), || format!("{status} {body}"))
    });
}
