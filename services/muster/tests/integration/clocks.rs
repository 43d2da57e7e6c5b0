//! Changes of the system clock: on the host of the leading BBS, on the host of the only BBS, and on the
//! machine of `muster dev`.

use schemas::Timestamp;
use serde_json::Value;
use support::clock::Clock;

use crate::dev::{LocalCluster, sleeper};
use crate::support::test_dir::ensure;
use crate::support::{Cluster, Muster, TestDir, eventually};

const HOUR: i64 = 3_600;
/// Maximum time by which a decision may be ahead of the clock, in nanoseconds. It is the permitted difference
/// of clocks, 5 s, plus a margin.
const MAX_AHEAD_NANOS: u64 = 6_000_000_000;

/// Runs commands that use times. Fails if a command is refused because of a clock.
fn run_timed_commands(muster: &Muster, place: &TestDir, count: u32) {
    muster.ok(&format!("lrp scale web={count}"));
    muster.ok("cell cordon c1 --reason test");
    muster.ok("cell uncordon c1 --reason test");
    muster.ok("domain refresh shop --ttl 1h");
    let periodic = "periodic_guid = \"tick\"\ndomain = \"shop\"\ncron = \"* * * * *\"\nmemory_mb = 8\n\
                    action.run = { path = \"true\" }\n";
    let file = place.write_file("tick.toml", periodic);
    muster.ok(&format!("apply {}", file.display()));
}

/// Waits until the status contains these words. With `None`, waits until the status reports no clock.
fn wait_for_clock_status(muster: &Muster, words: Option<&str>) {
    eventually(&format!("the status shows the clock problem {words:?}"), || {
        let text = muster.run(&["status"]).out;
        let found = words.map_or(!text.contains("the clock of"), |words| text.contains(words));
        ensure(found, || text)
    });
}

/// Checks that no decision in the log has a time ahead of the correct clock.
fn assert_log_is_not_ahead(cluster: &Cluster) {
    let times = |entry: &Value| -> Vec<u64> {
        let all = entry["entry"]["known"]["decisions"].as_array();
        all.into_iter()
            .flatten()
            .map(|decision| decision["at"].as_str().unwrap().parse::<Timestamp>().unwrap().0)
            .collect()
    };
    let read =
        cluster.plain("me").request("muster.query.client.shop.me.events.read", br#"{"after": 0}"#).json();
    let latest = read["ok"]["entries"].as_array().unwrap().iter().flat_map(times).max().unwrap();
    assert!(latest < clock::now().0 + MAX_AHEAD_NANOS, "{latest} {read}");
}

#[test]
fn clock_jumps_of_leader_refuse_no_command_and_keep_log_times_correct() {
    let mut cluster = Cluster::empty();
    let clock = Clock::new(cluster.place.path()).unwrap();
    cluster.spawn_with("bbs-1", &["bbs"], &clock.variables());
    cluster.start_service("auctioneer-1");
    cluster.start_service("rep-c1");
    cluster.wait_until_ready(1);
    let muster = cluster.muster();
    let file = cluster.place.write_file("web.toml", sleeper("web", 1));
    muster.ok(&format!("apply {}", file.display()));
    eventually("all clocks are compared", || {
        let row = muster.try_json("cluster show")?;
        ensure(row["services"]["clocks"]["compared"].as_u64() >= Some(4), || row.to_string())
    });
    // No other BBS can lead.
    clock.set(HOUR).unwrap();
    run_timed_commands(&muster, &cluster.place, 2);
    wait_for_clock_status(&muster, Some("s ahead of the median of 4 clocks"));
    assert_log_is_not_ahead(&cluster);
    clock.set(0).unwrap();
    run_timed_commands(&muster, &cluster.place, 3);
    wait_for_clock_status(&muster, None);
    // Another BBS takes over from a leader whose clock is wrong.
    cluster.start_service("bbs-2");
    eventually("both BBSs compare clocks", || {
        let row = muster.try_json("cluster show")?;
        ensure(row["services"]["clocks"]["compared"].as_u64() >= Some(5), || row.to_string())
    });
    clock.set(-HOUR).unwrap();
    eventually("the other BBS leads", || {
        let leader = cluster.leader("bbs");
        ensure(leader == "bbs-2", || leader)
    });
    wait_for_clock_status(&muster, Some("s behind the median of 5 clocks"));
    run_timed_commands(&muster, &cluster.place, 1);
    clock.set(0).unwrap();
    wait_for_clock_status(&muster, None);
    assert_log_is_not_ahead(&cluster);
    cluster.wait_until_settled(&[("web", 1)]);
}

#[test]
fn local_cluster_works_after_clock_was_ahead_and_reports_it() {
    let place = TestDir::new();
    let clock = Clock::new(place.path()).unwrap();
    let file = place.write_file("web.toml", sleeper("web", 1));
    let dev = LocalCluster::start_with(&place, &[file.to_str().unwrap()], &clock.variables());
    clock.set(24 * HOUR).unwrap();
    eventually("the log follows the only clock", || {
        dev.muster.ok("domain refresh shop --ttl 1h");
        let row = dev.muster.try_json("cluster show")?;
        ensure(row["services"]["clocks"]["skewed"].as_array().is_some_and(Vec::is_empty), || row.to_string())
    });
    clock.set(0).unwrap();
    run_timed_commands(&dev.muster, &place, 2);
    wait_for_clock_status(&dev.muster, Some("ahead of the clocks"));
    run_timed_commands(&dev.muster, &place, 1);
    let report = dev.muster.run(&["doctor"]).out;
    assert!(report.contains("clock.bbs") && report.contains("ahead of the clocks"), "{report}");
    dev.end(&place);
}
