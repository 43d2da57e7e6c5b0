//! Changes of running processes without downtime: updates, failed updates, and rollbacks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::dev::LocalCluster;
use crate::support::containers::{processes_in, running_in};
use crate::support::test_dir::ensure;
use crate::support::{Muster, TestDir, eventually};

/// Example of docs/guides/rolling-update.md.
const ROLLING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/rolling.toml");
/// Script of a process that runs until it is stopped. `FAIL_SCRIPT` fails at once.
const SLEEP_SCRIPT: &str = "exec sleep 100000";
const FAIL_SCRIPT: &str = "exit 1";

/// Writes the file of a process with three instances, with this version, script and additional fields.
/// Returns the path of the file.
fn file(place: &TestDir, version: &str, script: &str, policy: &str) -> String {
    let text = format!(
        "process_guid = \"web\"\ndomain = \"shop\"\ninstances = 3\nmemory_mb = 8\nenv = {{ VERSION = \"{version}\" }}\n\
         action.run = {{ path = \"sh\", args = [\"-c\", \"{script}\"] }}\n{policy}\n"
    );
    place.write_file(&format!("{version}.toml"), text).display().to_string()
}

/// Returns the update section of a file.
fn update_section(policy: &str) -> String {
    format!("[update]\n{policy}")
}

fn guids(rows: &[Value]) -> BTreeSet<String> {
    rows.iter().map(|row| row["instance_guid"].as_str().unwrap().to_owned()).collect()
}

/// Returns the rollout of `web`.
fn rollout(muster: &Muster) -> Value {
    muster.json("lrp rollout status web")["lrp"]["rollout"].clone()
}

/// Starts a cluster that runs the first version. Returns the cluster and the instances.
fn first(place: &TestDir) -> (LocalCluster, Vec<Value>) {
    let v1 = file(place, "v1", SLEEP_SCRIPT, "");
    let dev = LocalCluster::start(place, &[&v1]);
    let rows = dev.muster.wait_until_running("web", 3);
    (dev, rows)
}

/// Checks the log from the first entry at which all indices run. At every later entry, each index must have a
/// running instance without a stop request.
fn assert_always_running(muster: &Muster, count: u64) {
    let mut running: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    let (mut all, mut looked) = (false, 0);
    for entry in muster.json("events list --about lrp:web").as_array().unwrap() {
        for decision in entry["entry"]["known"]["decisions"].as_array().unwrap() {
            for event in decision["events"].as_array().unwrap() {
                let Some((kind, event)) = event["actual"].as_object().and_then(|one| one.iter().next())
                else {
                    continue;
                };
                let definition = event["definition_id"].as_str().unwrap().to_owned();
                match kind.as_str() {
                    "started.v1" => {
                        running.entry(event["index"].as_u64().unwrap()).or_default().insert(definition);
                    }
                    "crashed.v1" => {
                        running.entry(event["index"].as_u64().unwrap()).or_default().remove(&definition);
                    }
                    "stop_requested.v1" | "removed.v1" | "unclaimed.v1" => {
                        for range in event["indices"].as_array().unwrap() {
                            for index in range[0].as_u64().unwrap()..=range[1].as_u64().unwrap() {
                                running.entry(index).or_default().remove(&definition);
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
        let now = (0..count).filter(|index| running.get(index).is_some_and(|some| !some.is_empty())).count();
        all |= now as u64 == count;
        looked += usize::from(all);
        assert!(!all || now as u64 == count, "{running:?} at position {}", entry["position"]);
    }
    assert!(looked > 3, "only {looked} entries");
}

#[test]
fn update_keeps_every_index_running() {
    let place = TestDir::new();
    let (dev, before) = first(&place);
    let muster = &dev.muster;
    let first_desired = muster.json("lrp show web")["last_decision"].clone();
    assert_explicit_definition_id_is_kept(&place, muster);
    let v2 = file(&place, "v2", SLEEP_SCRIPT, "");
    muster
        .exits(13, &format!("apply --dry-run {v2}"))
        .expect_output(&["environment_variables[0].value  \"v1\" -> \"v2\"", " would replace its instances"]);

    let over = AtomicBool::new(false);
    let looked = std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut looked = 0;
            while !over.load(Ordering::SeqCst) {
                // A listing is not atomic: it misses processes that start or end during the listing.
                // Therefore two equal listings are required.
                let running = running_in(place.path());
                if running != running_in(place.path()) {
                    continue;
                }
                for index in 0..3 {
                    assert!(running.contains_key(&format!("web/{index}")), "{running:?}");
                }
                looked += 1;
            }
            looked
        });
        let said = muster.run(&["apply", &v2]);
        over.store(true, Ordering::SeqCst);
        said.expect_status(0).expect_output(&[
            "web/0@",
            "runs on c",
            "process web updated to ",
            ": 3 instances running",
        ]);
        looks.join().unwrap()
    });
    place.print_event(&format!("updated; the processes were listed {looked} times"));
    assert!(looked > 0);
    let after = muster.wait_until_running("web", 3);
    assert!(guids(&before).is_disjoint(&guids(&after)), "every instance was replaced");
    let row = muster.json("lrp show web");
    assert_eq!(row["healthy_definition_id"], row["definition_id"]);
    assert_eq!(after[0]["definition_id"], row["definition_id"]);
    let rollout = rollout(muster);
    assert_eq!((&rollout["status"], &rollout["replaced"]), (&"completed".into(), &3.into()), "{rollout}");
    assert_always_running(muster, 3);

    assert_reapply_changes_nothing(muster, &v2, &after);
    assert_completed_rollout_is_rolled_back(muster, row["definition_id"].as_str().unwrap(), &first_desired);
    dev.end(&place);
}

fn assert_completed_rollout_is_rolled_back(muster: &Muster, v2: &str, first_desired: &Value) {
    muster.ok("lrp rollback web").expect_output(&["process web rolled back to web: 3 instances running"]);
    assert_eq!(muster.json("lrp show web")["definition_id"], "web");
    let back = muster.json(&format!("lrp rollback web --to {v2}"));
    assert_eq!((&back["action"], &back["definition_id"]), (&"rolled back".into(), &v2.into()), "{back}");
    muster.exits(3, "lrp rollback web --to nothing").expect_output(&["recorded definitions: "]);
    muster
        .ok(&format!("lrp rollback web --to {first_desired} --no-wait"))
        .expect_output(&["process web rolled back to web"]);
}

/// Checks that a definition id in the file is used unchanged, as over NATS, even if the id equals the guid of
/// the process.
fn assert_explicit_definition_id_is_kept(place: &TestDir, muster: &Muster) {
    let named = file(place, "named", SLEEP_SCRIPT, "definition_id = \"web\"");
    let said = muster.exits(4, &format!("apply {named}"));
    said.expect_output(&["can't apply process web", "ResourceExists"]);
}

/// Checks that neither the same file nor the same definition under another id restarts an instance.
fn assert_reapply_changes_nothing(muster: &Muster, file: &str, before: &[Value]) {
    muster.ok(&format!("apply --dry-run {file}")).expect_output(&["process web matches the file"]);
    let said = muster.ok(&format!("apply {file}"));
    said.expect_output(&["process web unchanged: 3 instances running"]);
    let again = muster.json(&format!("apply {file} --no-wait"));
    assert_eq!(again["action"], "unchanged");
    let shown = muster.json(&format!("events show {}", again["position"]));
    let decisions = shown["entry"]["known"]["decisions"].as_array().unwrap();
    assert!(decisions.iter().all(|decision| decision["events"] == serde_json::json!([])), "{shown}");
    assert_eq!(guids(&muster.wait_until_running("web", 3)), guids(before));
    assert_eq!(rollout(muster)["number"], 1);
}

#[test]
fn failed_update_is_rolled_back_and_reported() {
    let place = TestDir::new();
    let (dev, before) = first(&place);
    let muster = &dev.muster;
    let bad =
        file(&place, "bad", FAIL_SCRIPT, &update_section("failure_action = \"rollback\"\nmonitor_ms = 1000"));
    let said = muster.exits(7, &format!("apply {bad}"));
    let container = said.err.lines().last().unwrap().trim_start_matches("  see muster ").to_owned();
    said.expect_output(&[
        "was rolled back to web: 1 of 3 failed, the last at index 0: Exited with status 1 (RolledBack)",
        "see muster logs ",
    ]);
    muster.ok(&container);
    assert_eq!(guids(&muster.wait_until_running("web", 3)), guids(&before), "the old instances keep running");
    assert_always_running(muster, 3);
    assert_eq!(muster.json("lrp show web")["definition_id"], "web");
    let said = muster.exits(7, &format!("apply {bad} -o json"));
    assert_eq!(said.refusal()["code"], "RolledBack");

    let history = muster.json("lrp rollout history web");
    let statuses: Vec<_> = history.as_array().unwrap().iter().map(|past| &past["status"]).collect();
    assert_eq!(statuses, ["rolled_back", "rollback_completed", "rolled_back", "rollback_completed"]);
    assert_eq!(history[0]["last_crash"]["reason"], "Exited with status 1");
    muster.ok("lrp rollout history web").expect_output(&["index 0 failed: Exited with status 1"]);
    muster
        .ok("history lrp web")
        .expect_output(&["web: rollback to web started", "web/0: the new instance failed"]);
    let why = muster.ok("why web/0");
    why.expect_output(&["web/0 is RUNNING"]);
    dev.end(&place);
}

#[test]
fn paused_rollout_resumes_or_rolls_back_on_command() {
    let place = TestDir::new();
    let (dev, before) = first(&place);
    let muster = &dev.muster;
    muster.exits(3, "lrp rollout status web").expect_output(&["process web has had no rollout yet"]);
    muster
        .exits(3, "lrp rollback web")
        .expect_output(&["an earlier definition of process web does not exist"]);
    let canary = file(&place, "canary", SLEEP_SCRIPT, &update_section("pause_after = 1"));
    let said = muster.exits(14, &format!("apply {canary}"));
    said.expect_output(&["is paused after 1 replaced, as set by pause_after (resume or roll back) (Paused)"]);
    muster.ok("lrp list").expect_output(&[", 1/3, paused"]);
    muster.ok("lrp rollout status web").expect_output(&[
        "status    paused",
        "replaced  1 of 3",
        "back to   web",
    ]);
    assert_eq!(guids(&muster.wait_until_running("web", 3)).intersection(&guids(&before)).count(), 2);
    muster.exits(14, "lrp rollout watch web");
    // A process can be scaled while its rollout is paused.
    muster.ok("lrp scale web=4").expect_output(&["process web scaled: 4 instances running"]);
    muster.ok("lrp scale web=3");

    muster.ok("lrp rollout resume web").expect_output(&["process web resumed to ", ": 3 instances running"]);
    assert!(guids(&muster.wait_until_running("web", 3)).is_disjoint(&guids(&before)));
    muster.ok("lrp rollout watch web").expect_output(&["process web rolled out to "]);
    let restarted = muster.wait_until_running("web", 3);
    muster.ok("lrp update web --instances 3 --annotation canary");
    muster.exits(14, "lrp restart web").expect_output(&["is paused after 1 replaced"]);
    let said = muster.ok("lrp rollback web");
    said.expect_output(&["process web rolled back to ", ": 3 instances running"]);
    assert_eq!(guids(&muster.wait_until_running("web", 3)).intersection(&guids(&restarted)).count(), 2);

    let active = muster.json("lrp show web")["definition_id"].as_str().unwrap().to_owned();
    let said = muster.ok(&format!("lrp activate web {active}"));
    said.expect_output(&["process web unchanged"]);
    muster
        .exits(
            3,
            "lrp activate web \
                     nothing",
        )
        .expect_output(&["definition nothing does not exist: the process has "]);
    assert_always_running(muster, 3);
    dev.end(&place);
}

#[test]
fn waiting_rollout_reports_its_reason() {
    let place = TestDir::new();
    let (dev, before) = first(&place);
    let muster = &dev.muster;
    // The rollout is held: the old instances keep running, and the new instance is tried again.
    let bad = file(&place, "held", FAIL_SCRIPT, &update_section("monitor_ms = 1000"));
    let said = muster.exits(1, &format!("apply {bad}"));
    said.expect_output(&[
        "waits: index 0 crashed 4 times: Exited with status 1; restarts at ",
        "muster logs ",
    ]);
    assert_eq!(muster.json("lrp rollout status web")["last_crash"]["index"], 0);
    muster.ok("lrp show web").expect_output(&["waits        index 0 crashed 4 times", "healthy      web"]);
    muster.ok("lrp list").expect_output(&["rollout to ", ", 0/3"]);

    // There are not enough resources. Another update supersedes the first update.
    let big = file(&place, "big", SLEEP_SCRIPT, "");
    let text = std::fs::read_to_string(&big).unwrap().replace("memory_mb = 8", "memory_mb = 900000000");
    std::fs::write(&big, text).unwrap();
    let said = muster.exits(6, &format!("apply {big}"));
    said.expect_output(&["waits: index 0 waits for room: insufficient resources: memory"]);
    let waits = muster.json("lrp rollout status web")["waits"].clone();
    assert_eq!(waits, "index 0 waits for room: insufficient resources: memory");

    // The command times out.
    let slow = file(&place, "slow", SLEEP_SCRIPT, &update_section("monitor_ms = 100000"));
    let said = muster.exits(8, &format!("apply {slow} --timeout 2s"));
    said.expect_output(&[
        "process web did not reach the desired state within 2s: index 0 ",
        "the change continues",
    ]);
    eventually("its new instance runs", || {
        let waits = muster.try_json("lrp rollout status web")?["waits"].to_string();
        ensure(waits.contains(" and must keep running for 100s"), || waits)
    });
    let statuses = |past: &Value| past["status"].as_str().unwrap().to_owned();
    let history = muster.json("lrp rollout history web");
    let statuses: Vec<_> = history.as_array().unwrap().iter().map(statuses).collect();
    assert_eq!(statuses, ["superseded", "superseded", "updating"]);
    let newest = muster.json("lrp rollout history web --limit 1");
    assert_eq!((newest[0]["number"].clone(), newest.as_array().unwrap().len()), (3.into(), 1));
    muster.ok("lrp rollback web");
    assert_eq!(
        guids(&muster.wait_until_running("web", 3)),
        guids(&before),
        "the first instances never stopped"
    );
    assert_always_running(muster, 3);
    dev.end(&place);
}

#[test]
fn invalid_policy_is_refused_with_its_path() {
    let place = TestDir::new();
    let (dev, before) = first(&place);
    let muster = &dev.muster;
    let refused = |policy: &str, told: &[&str]| {
        let bad = file(&place, "bad", SLEEP_SCRIPT, policy);
        muster.exits(1, &format!("apply {bad}")).expect_output(told);
    };
    refused(
        &update_section("failure_acton = \"hold\""),
        &["update.failure_acton: ", "did you mean failure_action?"],
    );
    refused(&update_section("parallelism = \"120%\""), &["update.parallelism: must be a number of indices"]);
    refused(
        &update_section("max_failure_ratio = 2"),
        &["update.max_failure_ratio: must be a number from 0 to 1"],
    );
    refused("[rollback]\nfailure_action = \"rollback\"", &["rollback.failure_action: "]);
    refused(
        "min_running = 3\nupdate.order = \"stop-first\"",
        &["min_running: lets stop-first stop none of the 3 instances"],
    );
    muster.exits(2, "lrp update web").expect_output(&["no change is requested", "muster apply FILE"]);
    assert_eq!(guids(&muster.wait_until_running("web", 3)), guids(&before));
    // A change of the policy alone restarts nothing.
    let policies = file(&place, "v1", SLEEP_SCRIPT, &update_section("parallelism = \"50%\""));
    muster
        .exits(13, &format!("apply --dry-run {policies}"))
        .expect_output(&["update.parallelism", "nothing would be restarted"]);
    muster
        .ok(&format!("apply {policies}"))
        .expect_output(&["process web updated to web: 3 instances running"]);
    assert_eq!(guids(&muster.wait_until_running("web", 3)), guids(&before));
    dev.end(&place);
}

#[test]
fn documentation_example_updates_and_rolls_back() {
    let place = TestDir::new();
    let dev = LocalCluster::start(&place, &[ROLLING]);
    let muster = &dev.muster;
    let before = muster.wait_until_running("shop", 3);
    let text = std::fs::read_to_string(ROLLING).unwrap();
    assert!(text.contains("VERSION = \"1\"") && text.contains("exec muster example-server\""));
    let v2 = text.replace("VERSION = \"1\"", "VERSION = \"2\"");
    let bad = v2.replace("exec muster example-server\"", "exit 1\"");
    let (v2, bad) = (place.write_file("v2.toml", v2), place.write_file("bad.toml", bad));
    muster.ok(&format!("apply {ROLLING}")).expect_output(&["unchanged"]);
    muster.ok(&format!("apply {}", v2.display())).expect_output(&["process shop updated to "]);
    let after = muster.wait_until_running("shop", 3);
    assert!(guids(&before).is_disjoint(&guids(&after)));
    muster.ok("logs shop").expect_output(&["version 2"]);
    muster.exits(7, &format!("apply {}", bad.display())).expect_output(&["was rolled back to "]);
    assert_eq!(guids(&muster.wait_until_running("shop", 3)), guids(&after));
    dev.end(&place);
    assert_eq!(processes_in(place.path()), []);
}

/// Returns the number of entries in the log.
fn entry_count(muster: &Muster) -> usize {
    muster.json("events list").as_array().unwrap().len()
}

/// Returns the index and the cell of each instance that a plan starts, for comparison with
/// [`actual_placement`].
fn planned_starts(plan: &Value) -> BTreeSet<(u64, String)> {
    let steps = plan["steps"].as_array().unwrap().iter().filter_map(|step| {
        let starts = step["action"]["starts"].as_object()?;
        Some((starts["place"]["index"].as_u64().unwrap(), starts["cell_id"].as_str().unwrap().to_owned()))
    });
    steps.collect()
}

fn actual_placement(rows: &[Value]) -> BTreeSet<(u64, String)> {
    let place = |row: &Value| (row["index"].as_u64().unwrap(), row["cell_id"].as_str().unwrap().to_owned());
    rows.iter().map(place).collect()
}

#[test]
fn plan_matches_apply_and_writes_nothing() {
    let place = TestDir::new();
    let dev = LocalCluster::start(&place, &[]);
    let muster = &dev.muster;
    let v1 = file(&place, "v1", SLEEP_SCRIPT, "");
    let before = entry_count(muster);
    muster
        .exits(13, &format!("apply --dry-run {v1}"))
        .expect_output(&["process web would be desired: 3 instances", "starts"]);
    let plan = muster.exits(13, &format!("apply --dry-run {v1} -o json")).json();
    assert_eq!((&plan["changes"], &plan["fits"]), (&true.into(), &true.into()), "{plan}");
    assert_eq!(entry_count(muster), before, "nothing is written");
    muster.ok(&format!("apply {v1}"));
    assert_eq!(actual_placement(&muster.wait_until_running("web", 3)), planned_starts(&plan));
    muster.ok(&format!("apply --dry-run {v1}")).expect_output(&["process web matches the file"]);

    let v2 = file(&place, "v2", SLEEP_SCRIPT, &update_section("parallelism = 2"));
    let said = muster.exits(13, &format!("apply --dry-run {v2}"));
    said.expect_output(&["would replace its instances", "TURN", "web/0@", "stops", "everything fits"]);
    let plan = muster.exits(13, &format!("apply --dry-run {v2} -o json")).json();
    let turns: Vec<u64> =
        plan["steps"].as_array().unwrap().iter().map(|step| step["turn"].as_u64().unwrap()).collect();
    assert_eq!(turns, [1, 1, 1, 1, 2, 2], "two at a time: {plan}");
    muster.ok(&format!("apply {v2}"));
    let said = muster.ok(&format!("apply --dry-run {v2} -o json")).json();
    assert_eq!((&said["changes"], said["steps"].as_array().unwrap().len()), (&false.into(), 0), "{said}");
    dev.end(&place);
}

#[test]
fn plan_without_room_matches_apply() {
    let place = TestDir::new();
    let (dev, before) = first(&place);
    let muster = &dev.muster;
    let text = std::fs::read_to_string(file(&place, "v2", SLEEP_SCRIPT, "")).unwrap();
    let large = place.write_file("large.toml", text.replace("memory_mb = 8", "memory_mb = 100000000"));
    let large = large.display().to_string();
    let said = muster.exits(6, &format!("apply --dry-run {large}"));
    said.expect_output(&[
        "web/0@",
        "would not be placed: insufficient resources: memory (c1: memory; c2: memory; c3: memory)",
        "process web would not reach the desired state: 3 of 3 instances would run",
    ]);
    let plan = muster.exits(6, &format!("apply --dry-run {large} -o json")).json();
    assert_eq!(plan["unplaced"][0]["cells"]["c2"], serde_json::json!(["memory"]), "{plan}");
    muster.exits(6, &format!("apply {large}")).expect_output(&["insufficient resources: memory"]);
    let mut rows = muster.instances("web").unwrap();
    rows.retain(|row| row["state"] == "RUNNING");
    assert_eq!(guids(&before), guids(&rows), "the old instances keep running");
    dev.end(&place);
}

#[test]
fn rebalance_spreads_instances_and_skips_even_process() {
    let place = TestDir::new();
    let (dev, before) = first(&place);
    let muster = &dev.muster;
    muster.ok("lrp rebalance web").expect_output(&["process web unchanged: 1 on c1, 1 on c2, 1 on c3"]);
    assert_eq!(guids(&before), guids(&muster.wait_until_running("web", 3)), "no instance was replaced");
    muster.exits(3, "lrp rebalance other");

    muster.ok("lrp scale web=6");
    muster.ok("cell cordon c3");
    for row in muster.wait_until_running("web", 6).iter().filter(|row| row["cell_id"] == "c3") {
        muster.ok(&format!("instance stop web/{}", row["index"]));
    }
    eventually("the cordoned cell is empty", || {
        let rows = muster.instances("web")?;
        let elsewhere = |row: &&Value| row["state"] == "RUNNING" && row["cell_id"] != "c3";
        ensure(rows.iter().filter(elsewhere).count() == 6, || format!("{rows:?}"))
    });
    muster.ok("cell uncordon c3");
    let on = |cell: &str| {
        let rows = muster.wait_until_running("web", 6);
        rows.iter().filter(|row| row["cell_id"] == cell).count()
    };
    assert_eq!(on("c3"), 0);
    let said = muster.ok("lrp rebalance web");
    said.expect_output(&["3 on c1, 3 on c2, 0 on c3; planned: ", "process web rebalanced to web-", "now: "]);
    let past = muster.ok("lrp rollout history web");
    past.expect_output(&["-rebalance-", "rebalanced"]);
    muster.ok("lrp rollout status web").expect_output(&["-rebalance-"]);
    let spread = ["c1", "c2", "c3"].map(on);
    place.print_event(&format!("instances per cell: {spread:?}"));
    assert!(spread.iter().max().unwrap() - spread.iter().min().unwrap() < 3, "{spread:?}");
    dev.end(&place);
}

#[test]
fn global_process_is_planned_and_applied_per_cell() {
    let place = TestDir::new();
    let dev = LocalCluster::start(&place, &[]);
    let muster = &dev.muster;
    let global = |version: &str| {
        let path = file(&place, version, SLEEP_SCRIPT, "");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("instances = 3", "mode = \"global\"")).unwrap();
        path
    };
    let v1 = global("v1");
    let plan = muster.exits(13, &format!("apply --dry-run {v1} -o json")).json();
    let cells =
        |plan: &Value| planned_starts(plan).into_iter().map(|(_, cell)| cell).collect::<BTreeSet<_>>();
    assert_eq!(cells(&plan), ["c1", "c2", "c3"].map(str::to_owned).into(), "{plan}");
    muster.ok(&format!("apply {v1}"));
    assert_eq!(actual_placement(&muster.wait_until_running("web", 3)), planned_starts(&plan));
    muster.ok(&format!("apply --dry-run {v1}")).expect_output(&["process web matches the file"]);
    muster.ok(&format!("apply {v1}")).expect_output(&["process web unchanged"]);
    muster.ok("lrp rebalance web").expect_output(&["already as even as possible"]);
    let replicated = place.write_file(
        "replicated.toml",
        std::fs::read_to_string(&v1).unwrap().replace("mode = \"global\"", ""),
    );
    muster
        .exits(4, &format!("apply --dry-run {}", replicated.display()))
        .expect_output(&["cannot change process web from global to replicated"]);

    let v2 = global("v2");
    let plan = muster.exits(13, &format!("apply --dry-run {v2} -o json")).json();
    assert_eq!((&plan["fits"], plan["steps"].as_array().unwrap().len()), (&true.into(), 6), "{plan}");
    muster.ok(&format!("apply {v2}"));
    muster.ok(&format!("apply --dry-run {v2}"));
    dev.end(&place);
}

#[test]
fn global_process_follows_cells_and_is_updated_per_cell() {
    let place = TestDir::new();
    let file = |version: &str| {
        let text = format!(
            "process_guid = \"web\"\ndomain = \"shop\"\nmode = \"global\"\nmemory_mb = 8\n\
             env = {{ VERSION = \"{version}\" }}\naction.run = {{ path = \"sh\", args = [\"-c\", \"{SLEEP_SCRIPT}\"] }}\n"
        );
        place.write_file(&format!("{version}.toml"), text).display().to_string()
    };
    let v1 = file("v1");
    let replicated = std::fs::read_to_string(&v1).unwrap().replace("mode = \"global\"", "");
    let replicated = place.write_file("replicated.toml", replicated);
    let dev = LocalCluster::start(&place, &[&v1]);
    let muster = &dev.muster;
    muster.wait_until_running("web", 3);
    muster.ok("cell cordon c1");
    let plan = muster.exits(13, &format!("apply --dry-run {} -o json", file("v2"))).json();
    assert_eq!(plan["changes"], true, "{plan}");
    muster.ok(&format!("apply {}", file("v2")));
    let on = || -> BTreeMap<String, String> {
        let text = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
        let rows = muster.json("instance list").as_array().unwrap().clone();
        rows.iter().map(|row| (text(row, "cell_id"), text(row, "definition_id"))).collect()
    };
    let cordoned = on();
    assert_eq!(cordoned["c1"], "web", "a cordoned cell keeps its instance: {cordoned:?}");
    assert!(cordoned["c2"] != "web" && cordoned["c2"] == cordoned["c3"], "{cordoned:?}");
    muster.ok("cell uncordon c1");
    eventually("the uncordoned cell is updated", || {
        let on = on();
        ensure(on.get("c1") == cordoned.get("c2"), || format!("{on:?}"))
    });
    muster.ok("cell evacuate c2 --wait");
    eventually("the instance is not replaced elsewhere", || {
        let on = on();
        ensure(on.keys().eq(["c1", "c3"]), || format!("{on:?}"))
    });
    muster.ok("lrp restart web");
    muster.exits(4, &format!("apply {}", replicated.display())).expect_output(&["from global to replicated"]);
    muster
        .exits(1, "lrp scale web=5")
        .expect_output(&["a global process has one instance on each cell that fits"]);
}
