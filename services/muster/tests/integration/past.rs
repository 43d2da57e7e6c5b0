//! Past states, selected by a position, a time or an age, and a cache of snapshots that is deleted and
//! damaged.

use std::fs;
use std::path::{Path, PathBuf};

use schemas::Timestamp;
use schemas::query::AsOf;
use serde_json::{Value, json};

use crate::dev::{LocalCluster, sleeper};
use crate::support::cluster::Cluster;
use crate::support::test_dir::ensure;
use crate::support::{Muster, TestDir, eventually};

/// Returns the output of a list or show command as of a moment.
fn as_of(muster: &Muster, line: &str, moment: &str) -> Value {
    muster.json(&format!("{line} --as-of {moment}"))
}

fn position(done: &Value) -> u64 {
    done["position"].as_u64().unwrap_or_else(|| panic!("no position in {done}"))
}

/// Returns the time of the decision at a position, with the precision of the log.
fn time_of(muster: &Muster, position: u64) -> String {
    let entry = muster.json(&format!("events show {position}"));
    let at = entry["entry"]["known"]["decisions"][0]["at"].as_str();
    at.unwrap_or_else(|| panic!("no time in {entry}")).to_owned()
}

#[test]
fn local_cluster_shows_past_states() {
    let place = TestDir::new();
    let file = place.write_file("web.toml", sleeper("web", 2));
    let dev = LocalCluster::start(&place, &[file.to_str().unwrap()]);
    let muster = &dev.muster;
    let before = muster.wait_until_running("web", 2);
    let done = muster.json("lrp scale web=3 --detach");
    let (here, earlier) = (position(&done), (position(&done) - 1).to_string());
    let after = muster.wait_until_running("web", 3);

    assert_eq!(as_of(muster, "instance list --lrp web", &earlier), json!(before));
    assert_eq!(as_of(muster, "lrp show web", &earlier)["instances"], 2);
    assert_eq!(as_of(muster, "lrp show web", &here.to_string())["instances"], 3);
    assert_eq!(as_of(muster, "lrp list", &time_of(muster, here))[0]["instances"], 3);
    assert_eq!(as_of(muster, "instance list --lrp web", "-0s"), json!(after));
    assert_eq!(as_of(muster, "lrp list", "1"), json!([]), "only the cluster was founded");
    let told = muster.ok(&format!("lrp list --as-of {earlier}"));
    told.expect_output(&[&format!("as of position {earlier}, ")]);

    // Heartbeats are not logged, so no cell of a past state is silent or missing.
    let cells = as_of(muster, "cell list", &earlier);
    assert!(cells.as_array().unwrap().iter().all(|cell| cell["state"] == "PRESENT"), "{cells}");
    assert!(cells[0]["heartbeat_ms_ago"].is_null(), "{cells}");
    muster.ok(&format!("status --as-of {earlier}"));
    let why = as_of(muster, "why web/0", &earlier);
    assert!(why["chain"].as_array().unwrap().iter().all(|step| position(step) < here), "{why}");
    muster.exits(3, &format!("why web/2 --as-of {earlier}")).expect_output(&["web/2"]);

    muster.exits(1, "lrp list --as-of 999999").expect_output(&["beyond the end of the log: use 1 to "]);
    muster.exits(1, "lrp list --as-of 0").expect_output(&["before the first entry of the log: use 1 to "]);
    muster.exits(1, "lrp list --as-of -9d").expect_output(&["is before the first entry of the log: use"]);
    muster.exits(1, "lrp list --as-of 2200-01-01T00:00:00Z").expect_output(&["is in the future: it is "]);
    muster
        .exits(2, "lrp list --as-of yesterday")
        .expect_output(&["invalid moment \"yesterday\": expected a position"]);
    muster.exits(2, "lrp scale web=1 --as-of 7").expect_output(&["--as-of"]);

    let changed = muster.exits(13, &format!("diff --from {earlier} --to {here} --about lrp:web"));
    assert!(changed.out.contains("~ web: ") && changed.out.contains("instances 2 → 3"), "{changed:?}");
    assert!(changed.out.contains("+ web/2: appeared, UNCLAIMED"), "{changed:?}");
    let nothing = muster.ok(&format!("diff --from {here} --to {here}"));
    assert!(nothing.out.contains("nothing changed"), "{nothing:?}");
    let nobody = muster.json(&format!("diff --from {earlier} --domain unused"));
    assert_eq!(nobody["changes"], json!([]));
    assert_domain_expires_without_decision(muster);
    dev.end(&place);
}

/// A domain expires without a decision, so the result depends only on the requested time.
fn assert_domain_expires_without_decision(muster: &Muster) {
    let done = muster.json("domain refresh brief --ttl 1s");
    let entry = muster.json(&format!("events show {}", position(&done)));
    let at = entry["entry"]["known"]["decisions"][0]["at"].as_str().unwrap().parse::<Timestamp>().unwrap();
    let moment = |after_ms: u64| AsOf::Time(at + std::time::Duration::from_millis(after_ms)).to_string();
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    let line = format!("diff --from {} --to {} --about domain:brief", moment(0), moment(1_200));
    let changed = muster.exits(13, &line);
    assert!(changed.out.contains("~ brief: fresh true → false"), "{changed:?}");
}

/// Returns the snapshot files of the only cluster in a cache.
fn snapshots(cache: &Path) -> Vec<PathBuf> {
    let clusters = fs::read_dir(cache).into_iter().flatten().flatten();
    let files = clusters.flat_map(|cluster| fs::read_dir(cluster.path()).into_iter().flatten().flatten());
    let mut all: Vec<PathBuf> = files
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|of| of == "rung"))
        .collect();
    all.sort();
    all
}

/// Checks the process before, at, and at the time of each position where it was scaled. `scaled` contains
/// these positions, and the number of instances from each position on.
fn assert_scaled(muster: &Muster, scaled: &[(u64, u64)]) {
    let shown = |moment: &str| as_of(muster, "lrp show web", moment)["instances"].clone();
    for (at, instances) in scaled.iter().rev().chain(scaled) {
        assert_eq!(shown(&at.to_string()), *instances, "at {at}");
        assert_eq!(shown(&(at - 1).to_string()), instances - 1, "before {at}");
        assert_eq!(shown(&time_of(muster, *at)), *instances, "at the time of {at}");
    }
}

#[test]
fn past_states_are_equal_with_and_without_snapshots() {
    let mut cluster = Cluster::empty();
    let cache = cluster.place.path().join("cache");
    let options = ["--cache", cache.to_str().unwrap(), "--snapshot-every", "4"];
    cluster.start_service_with("bbs-1", &options);
    let muster = cluster.muster();
    let file = cluster.place.write_file("web.toml", sleeper("web", 1));
    eventually("web is desired", || {
        let said = muster.run(&["apply", file.to_str().unwrap(), "--detach"]);
        ensure(said.code == 0, || format!("{said:?}"))
    });
    let scale = |instances: u64| {
        let done = muster.json(&format!("lrp scale web={instances} --detach"));
        (position(&done), instances)
    };
    let scaled: Vec<(u64, u64)> = (2..=16).map(scale).collect();
    eventually("snapshots are written", || {
        let found = snapshots(&cache).len();
        ensure(found >= 3, || format!("{found} snapshots"))
    });
    assert_scaled(&muster, &scaled);

    // Every page of a list has the same position, even if other clients change the cluster.
    let mut plain = cluster.plain("pager");
    let asked = json!({"as_of": scaled[9].0.to_string(), "limit": 4, "process_guid": "web"});
    let mut page = plain.request_json("muster.query.client.shop.me.instance.list", &asked)["ok"].clone();
    let mut rows = page["rows"].as_array().unwrap().len();
    while let Some(next) = page["next"].as_str() {
        muster.ok("domain refresh shop");
        let mut more = asked.clone();
        more["cursor"] = next.into();
        page = plain.request_json("muster.query.client.shop.me.instance.list", &more)["ok"].clone();
        assert_eq!(page["position"], scaled[9].0, "{page}");
        rows += page["rows"].as_array().unwrap().len();
    }
    assert_eq!(rows as u64, scaled[9].1);
    let both =
        plain.request_json("muster.query.client.shop.me.lrp.list", &json!({"as_of": "1", "at_least": 1}));
    assert!(both["refused"]["message"].as_str().unwrap().contains("set one of them"), "{both}");
    let typo = plain.request_json("muster.query.client.shop.me.lrp.list", &json!({"as_of": "-10"}));
    assert!(typo["refused"]["message"].as_str().unwrap().contains(": use a position such as"), "{typo}");

    // Snapshots that are damaged while the BBS runs are detected at its next start.
    for (nth, file) in snapshots(&cache).iter().enumerate() {
        let mut bytes = fs::read(file).unwrap();
        let at = if nth % 2 == 0 { 100 } else { 40 }.min(bytes.len() - 1);
        bytes[at] ^= 0x20;
        fs::write(file, bytes).unwrap();
    }
    cluster.kill9("bbs-1");
    cluster.start_service_with("bbs-1", &options);
    eventually("the BBS answers again", || muster.try_json("lrp list").map(drop));
    assert_scaled(&muster, &scaled);
    assert!(cluster.services["bbs-1"].log().contains("deleting a snapshot of the past"));
    fs::remove_dir_all(&cache).unwrap();
    assert_scaled(&muster, &scaled);
    eventually("snapshots are written again", || ensure(!snapshots(&cache).is_empty(), || "none".into()));
}
