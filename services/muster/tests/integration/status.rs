//! Live services and the health of the cluster: on the screen, as JSON, and in the exit status.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::dev::sleeper;
use crate::support::test_dir::ensure;
use crate::support::{Cluster, eventually};

/// Returns the services that send heartbeats, according to `cluster show`.
fn service_rows(cluster: &Cluster) -> Vec<Value> {
    cluster.muster().json("cluster show")["services"]["rows"].as_array().unwrap().clone()
}

/// Returns the row of a service in `cluster show`.
pub(crate) fn service_row(cluster: &Cluster, name: &str) -> Result<Value, String> {
    let pid = cluster.services[name].pid();
    let rows = service_rows(cluster);
    let found = rows.iter().find(|row| row["program"]["pid"] == pid).cloned();
    found.ok_or_else(|| format!("{name} with pid {pid} is not in {rows:#?}"))
}

/// Waits until `muster status` exits with this code and prints these words.
fn wait_for_status(cluster: &Cluster, code: i32, words: &[&str]) {
    eventually(&format!("the status is {code} and shows {words:?}"), || {
        let said = cluster.muster().run(&["status"]);
        let tells = words.iter().all(|word| said.out.contains(word));
        ensure(said.code == code && tells, || format!("{said:?}"))
    });
}

#[test]
fn live_services_are_shown_and_missing_auctioneer_is_unhealthy() {
    let mut cluster = Cluster::start(&["bbs-1", "bbs-2", "auctioneer-1", "auctioneer-2", "rep-c1"]);
    let file = cluster.place.write_file("web.toml", sleeper("web", 1));
    cluster.muster().ok(&format!("apply {}", file.display()));
    wait_for_status(&cluster, 0, &["HEALTHY", "1 desired, 1 running", "1 PRESENT", "LEADS", "STANDBY"]);
    let names = ["bbs-1", "bbs-2", "auctioneer-1", "auctioneer-2"];
    let rows = eventually("every service has folded the whole log", || {
        let rows = names.map(|name| service_row(&cluster, name));
        let rows = rows.into_iter().collect::<Result<Vec<_>, _>>()?;
        ensure(rows.iter().all(|row| row["lag"] == 0), || format!("{rows:#?}")).map(|()| rows)
    });
    for role in ["bbs", "auctioneer"] {
        let leads = |row: &&Value| row["role"] == role && row["leads"] == true;
        assert_eq!(rows.iter().filter(leads).count(), 1, "{rows:#?}");
    }
    for row in &rows {
        assert!(!row["program"]["host"].as_str().unwrap().is_empty(), "{row}");
        assert_eq!(row["program"]["version"], env!("CARGO_PKG_VERSION"), "{row}");
        assert!(
            row["heartbeat_ms_ago"].as_u64().unwrap() < 6_000 && row["term"].as_u64().unwrap() > 0,
            "{row}"
        );
    }

    let (leading, standby) = match cluster.leader("auctioneer").as_str() {
        "auctioneer-1" => ("auctioneer-1", "auctioneer-2"),
        _ => ("auctioneer-2", "auctioneer-1"),
    };
    cluster.kill9(standby);
    cluster.kill9(leading);
    wait_for_status(&cluster, 12, &["UNHEALTHY: no auctioneer is alive: nothing is placed until one is"]);
    // Each BBS forgets the auctioneers at a different time, and either BBS may answer. With this many
    // queries, both BBSs have answered.
    let text = eventually("both BBSs report the missing auctioneers", || {
        let said = [0; 20].map(|_| cluster.muster().ok("cluster show").out);
        let missed = said.iter().all(|text| text.starts_with("UNHEALTHY: no auctioneer is alive"));
        ensure(missed, || format!("{said:#?}")).map(|()| said[0].clone())
    });
    assert!(text.contains(", but sends no heartbeats"), "the last leader is still shown: {text}");
    assert!(!text.contains('\u{1b}'), "no colour in a pipe: {text}");
    let loud = cluster.muster().ok("cluster show --color always").out;
    assert!(loud.starts_with("\u{1b}[1;31mUNHEALTHY"), "{loud:?}");
    let shown = cluster.muster().json("cluster show");
    assert_eq!(shown["problems"][0]["code"], "NO_AUCTIONEER", "{shown:#}");
    assert_eq!(shown["problems"][0]["severity"], "UNHEALTHY", "{shown:#}");
    let machine = cluster.muster().run(&["status", "-o", "json"]).expect_status(12).json();
    assert_eq!(
        (&machine["health"], &machine["cluster"]["bbs"]["term"].is_u64()),
        (&json!("UNHEALTHY"), &true)
    );

    // A waiting command reports the reason for its wait.
    let waits = cluster.muster().exits(8, "lrp scale web=2 --timeout 6s");
    waits.expect_output(&["waits: no auctioneer is alive: nothing is placed until one is"]);
    cluster.start_service("auctioneer-3");
    cluster.muster().wait_until_running("web", 2);
    wait_for_status(&cluster, 0, &["HEALTHY", "2 desired, 2 running"]);
}

#[test]
fn lagging_service_is_shown_and_forged_services_evict_none() {
    let cluster = Cluster::start(&["bbs-1", "auctioneer-1", "rep-c1"]);
    let end = cluster.muster().json("events list").as_array().unwrap().last().unwrap()["position"].clone();
    let end = end.as_u64().unwrap();
    let mut plain = cluster.plain("stranger");
    let alive = |id: &str, role: &str, position: u64| {
        let program = json!({"host": "elsewhere", "pid": 7, "version": "0.0.9"});
        let standing = json!({"position": position, "term": 1, "leads": false});
        json!({
            "id": id, "role": role, "program": program, "leadership": standing,
            "clock": clock::now(), "may_lead": true,
        })
        .to_string()
    };
    let found = eventually("the lagging BBS is shown", || {
        plain.publish("muster.alive.bbs", "", alive("slow", "bbs", 1).as_bytes());
        // The subject belongs to another role, so the message is ignored.
        plain.publish("muster.alive.bbs", "", alive("confused", "auctioneer", 1).as_bytes());
        let rows = service_rows(&cluster);
        ensure(!rows.iter().any(|row| row["id"] == "confused"), || format!("{rows:#?}"))?;
        rows.iter().find(|row| row["id"] == "slow").cloned().ok_or_else(|| format!("{rows:#?}"))
    });
    assert!(found["lag"].as_u64().unwrap() >= end - 1, "{found} of {end}");
    eventually("the versions are noted", || {
        plain.publish("muster.alive.bbs", "", alive("slow", "bbs", 1).as_bytes());
        let shown = cluster.muster().run(&["status"]);
        let note = "note: BBSs and auctioneers run different versions: 0.0.9, ";
        ensure(shown.code == 0 && shown.out.contains(note), || format!("{shown:?}"))
    });
    for number in 0..1_000 {
        let forged = alive(&format!("x{number}"), "auctioneer", 1);
        plain.publish("muster.alive.auctioneer", "", forged.as_bytes());
    }
    let rows = eventually("some forged services are shown", || {
        let rows = service_rows(&cluster);
        ensure(rows.len() > 3, || format!("{rows:#?}")).map(|()| rows)
    });
    assert!(rows.len() <= 2 * 64 + 1, "{}", rows.len());
    service_row(&cluster, "auctioneer-1").unwrap();
    eventually("the forged services are forgotten", || {
        let rows = service_rows(&cluster);
        ensure(rows.len() == 2, || format!("{} services are left", rows.len()))
    });
}

#[test]
fn problems_set_the_exit_status() {
    let mut cluster = Cluster::empty();
    let began = Instant::now();
    let nobody = cluster.muster().run(&["status"]).expect_status(5);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    nobody.expect_output(&["error: "]);
    ["bbs-1", "auctioneer-1"].iter().for_each(|name| cluster.start_service(name));
    cluster.wait_until_ready(0);
    wait_for_status(&cluster, 0, &["HEALTHY"]);
    let spec = |name: &str, script: &str, more: &str| {
        format!(
            "process_guid = \"{name}\"\ndomain = \"shop\"\nmemory_mb = 8\n{more}\
             action.run = {{ path = \"sh\", args = [\"-c\", \"{script}\"] }}\n"
        )
    };
    let bad = cluster.place.write_file("bad.toml", spec("bad", "exit 3", ""));
    cluster.muster().ok(&format!("apply {} --detach", bad.display()));
    wait_for_status(&cluster, 12, &["UNHEALTHY: no cell accepts work: start one: muster rep"]);
    cluster.start_service("rep-c1");
    wait_for_status(&cluster, 11, &["DEGRADED: 1 instance crashed", "bad/0", "1 crashed"]);
    let why = cluster.muster().exits(1, "lrp scale bad=1");
    why.expect_output(&["bad/0 crashed 4 times: ", "; restarts at "]);

    let big = cluster.place.write_file("big.toml", spec("big", "sleep 1000", "disk_mb = 999999\n"));
    let refused = cluster.muster().exits(6, &format!("apply {}", big.display()));
    refused.expect_output(&["big/0 is not placed: insufficient resources: disk"]);
    wait_for_status(
        &cluster,
        11,
        &["DEGRADED: 1 instance not placed", "1 blocked", "insufficient resources: disk"],
    );
    let sick = spec(
        "sick",
        "sleep 1000",
        "monitor.run = { path = \"sh\", args = [\"-c\", \"echo not yet; exit 1\"] }\n",
    );
    let sick = cluster.place.write_file("sick.toml", sick);
    cluster.muster().ok(&format!("apply {} --detach", sick.display()));
    let says = "Exited with status 1: not yet";
    wait_for_status(&cluster, 11, &["DEGRADED: the monitors of 1 starting instance fail", "sick/0", says]);
    let shown = cluster.muster().run(&["status", "-o", "json"]).expect_status(11).json();
    assert_eq!(shown["monitors"][0], json!({"instance": "sick/0", "message": says}));
    for name in ["bad", "big", "sick"] {
        cluster.muster().ok(&format!("lrp delete {name}"));
    }
    wait_for_status(&cluster, 0, &["HEALTHY", "0 desired"]);
}
