//! Clocks that are set: of the BBS that leads, of the only BBS, of the one machine of `muster dev`.

use schemas::Timestamp;
use serde_json::Value;
use support::clock::Clock;

use crate::dev::{Dev, sleeper};
use crate::support::place::so;
use crate::support::{Cluster, Muster, Place, eventually};

const HOUR: i64 = 3_600;
/// Nanoseconds by which no decision may be ahead of the clock: those 5 s that clocks may differ, and a little more.
const AHEAD: u64 = 6_000_000_000;

/// Everything that has a time, done at once: nothing is refused because of a clock.
fn works(muster: &Muster, place: &Place, count: u32) {
    muster.ok(&format!("lrp scale web={count}"));
    muster.ok("cell cordon c1 --reason test");
    muster.ok("cell uncordon c1 --reason test");
    muster.ok("domain refresh shop --ttl 1h");
    let periodic = "periodic_guid = \"tick\"\ndomain = \"shop\"\ncron = \"* * * * *\"\nmemory_mb = 8\n\
                    action.run = { path = \"true\" }\n";
    let file = place.file("tick.toml", periodic);
    muster.ok(&format!("periodic apply {}", file.display()));
}

/// Waits until the status names this, or nothing of clocks.
fn status(muster: &Muster, words: Option<&str>) {
    eventually(&format!("the status says of clocks: {words:?}"), || {
        let text = muster.run(&["status"]).out;
        let found = words.map_or(!text.contains("the clock of"), |words| text.contains(words));
        so(found, || text)
    });
}

/// Every decision has a time that is no later than the right one.
fn log_is_not_ahead(cluster: &Cluster) {
    let times = |entry: &Value| -> Vec<u64> {
        let all = entry["entry"]["known"]["decisions"].as_array();
        all.into_iter()
            .flatten()
            .map(|decision| decision["at"].as_str().unwrap().parse::<Timestamp>().unwrap().0)
            .collect()
    };
    let read = cluster.plain("me").ask("muster.query.client.shop.me.events.read", br#"{"after": 0}"#).json();
    let latest = read["ok"]["entries"].as_array().unwrap().iter().flat_map(times).max().unwrap();
    assert!(latest < clock::now().0 + AHEAD, "{latest} {read}");
}

#[test]
fn jumps_of_the_leaders_clock_change_no_command_and_no_time_in_the_log() {
    let mut cluster = Cluster::empty();
    let clock = Clock::new(cluster.place.path()).unwrap();
    cluster.spawn_with("bbs-1", &["bbs"], &clock.variables());
    cluster.add("auctioneer-1");
    cluster.add("rep-c1");
    cluster.ready(1);
    let muster = cluster.muster();
    let file = cluster.place.file("web.toml", sleeper("web", 1));
    muster.ok(&format!("lrp desire {}", file.display()));
    eventually("all clocks are compared", || {
        let row = muster.try_json("cluster show")?;
        so(row["services"]["clocks"]["compared"].as_u64() >= Some(4), || row.to_string())
    });
    // Nobody else can lead.
    clock.set(HOUR).unwrap();
    works(&muster, &cluster.place, 2);
    status(&muster, Some("s ahead of the median of 4 clocks"));
    log_is_not_ahead(&cluster);
    clock.set(0).unwrap();
    works(&muster, &cluster.place, 3);
    status(&muster, None);
    // Another BBS takes over from one whose clock is off.
    cluster.add("bbs-2");
    eventually("both BBSs compare clocks", || {
        let row = muster.try_json("cluster show")?;
        so(row["services"]["clocks"]["compared"].as_u64() >= Some(5), || row.to_string())
    });
    clock.set(-HOUR).unwrap();
    eventually("the other BBS leads", || {
        let leader = cluster.leader("bbs");
        so(leader == "bbs-2", || leader)
    });
    status(&muster, Some("s behind the median of 5 clocks"));
    works(&muster, &cluster.place, 1);
    clock.set(0).unwrap();
    status(&muster, None);
    log_is_not_ahead(&cluster);
    cluster.settles(&[("web", 1)]);
}

#[test]
fn local_cluster_works_after_its_clock_was_ahead_and_says_that_its_log_is() {
    let place = Place::new();
    let clock = Clock::new(place.path()).unwrap();
    let file = place.file("web.toml", sleeper("web", 1));
    let dev = Dev::start_with(&place, &[file.to_str().unwrap()], &clock.variables());
    clock.set(24 * HOUR).unwrap();
    eventually("the log follows the only clock that there is", || {
        dev.muster.ok("domain refresh shop --ttl 1h");
        let row = dev.muster.try_json("cluster show")?;
        so(row["services"]["clocks"]["off"].as_array().is_some_and(Vec::is_empty), || row.to_string())
    });
    clock.set(0).unwrap();
    works(&dev.muster, &place, 2);
    status(&dev.muster, Some("ahead of the clocks"));
    works(&dev.muster, &place, 1);
    let report = dev.muster.run(&["doctor"]).out;
    assert!(report.contains("clock.bbs") && report.contains("ahead of the clocks"), "{report}");
    dev.end(&place);
}
