//! What runs is changed without stopping it: updates, bad updates, and the way back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::dev::Dev;
use crate::support::containers::{living_in, running_in};
use crate::support::place::so;
use crate::support::{Muster, Place, eventually};

/// The example that docs/updating.md walks through.
const ROLLING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/rolling.toml");
/// What runs until it is told to stop, and what fails at once.
const RUNS: &str = "exec sleep 100000";
const FAILS: &str = "exit 1";

/// The file of a process of three instances that runs a version by this script, with more of its fields.
fn file(place: &Place, version: &str, script: &str, policy: &str) -> String {
    let text = format!(
        "process_guid = \"web\"\ndomain = \"shop\"\ninstances = 3\nmemory_mb = 8\nenv = {{ VERSION = \"{version}\" }}\n\
         action.run = {{ path = \"sh\", args = [\"-c\", \"{script}\"] }}\n{policy}\n"
    );
    place.file(&format!("{version}.toml"), text).display().to_string()
}

/// A policy: its update part.
fn update(policy: &str) -> String {
    format!("[update]\n{policy}")
}

fn guids(rows: &[Value]) -> BTreeSet<String> {
    rows.iter().map(|row| row["instance_guid"].as_str().unwrap().to_owned()).collect()
}

/// Where the rollout of `web` stands.
fn rollout(muster: &Muster) -> Value {
    muster.json("lrp rollout status web")["lrp"]["rollout"].clone()
}

/// A cluster in which the first version runs.
fn first(place: &Place) -> (Dev, Vec<Value>) {
    let v1 = file(place, "v1", RUNS, "");
    let dev = Dev::start(place, &[&v1]);
    let rows = dev.muster.runs("web", 3);
    (dev, rows)
}

/// At every entry of the log since all of them ran, an instance of each index ran that nobody had asked to stop.
fn always_running(muster: &Muster, count: u64) {
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
    assert!(looked > 3, "{looked} entries");
}

#[test]
fn an_update_rolls_and_no_index_is_ever_without_a_running_instance() {
    let place = Place::new();
    let (dev, before) = first(&place);
    let muster = &dev.muster;
    let first_desired = muster.json("lrp show web")["last_decision"].clone();
    a_definition_that_is_named_is_not_renamed(&place, muster);
    let v2 = file(&place, "v2", RUNS, "");
    muster
        .exits(13, &format!("lrp diff {v2}"))
        .tells(&["environment_variables[0].value  \"v1\" -> \"v2\"", " would replace its instances"]);

    let over = AtomicBool::new(false);
    let looked = std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut looked = 0;
            while !over.load(Ordering::SeqCst) {
                // A look takes its time: who came meanwhile is not in it, and who went is neither. So two have to agree.
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
        let said = muster.run(&["lrp", "apply", &v2]);
        over.store(true, Ordering::SeqCst);
        said.exits(0).tells(&["web/0@", "starts on c", "process web updated to ", ": 3 instances running"]);
        looks.join().unwrap()
    });
    place.tell(&format!("updated; the processes were looked at {looked} times"));
    assert!(looked > 0);
    let after = muster.runs("web", 3);
    assert!(guids(&before).is_disjoint(&guids(&after)), "every instance is a new one");
    let row = muster.json("lrp show web");
    assert_eq!(row["healthy_definition_id"], row["definition_id"]);
    assert_eq!(after[0]["definition_id"], row["definition_id"]);
    let rollout = rollout(muster);
    assert_eq!((&rollout["status"], &rollout["replaced"]), (&"completed".into(), &3.into()), "{rollout}");
    always_running(muster, 3);

    the_same_again_changes_nothing(muster, &v2, &after);
    a_rollout_that_is_over_is_undone(muster, row["definition_id"].as_str().unwrap(), &first_desired);
    dev.end(&place);
}

fn a_rollout_that_is_over_is_undone(muster: &Muster, v2: &str, first_desired: &Value) {
    muster.ok("lrp rollback web").tells(&["process web rolled back to web: 3 instances running"]);
    assert_eq!(muster.json("lrp show web")["definition_id"], "web");
    let back = muster.json(&format!("lrp rollback web --to {v2}"));
    assert_eq!((&back["did"], &back["definition_id"]), (&"rolled back".into(), &v2.into()), "{back}");
    muster.exits(3, "lrp rollback web --to nothing").tells(&["the log has "]);
    muster
        .ok(&format!("lrp rollback web --to {first_desired} --no-wait"))
        .tells(&["process web rolled back to web"]);
}

/// A definition that the file itself names is called so, as over NATS: also like its process.
fn a_definition_that_is_named_is_not_renamed(place: &Place, muster: &Muster) {
    let named = file(place, "named", RUNS, "definition_id = \"web\"");
    let said = muster.exits(4, &format!("lrp apply {named}"));
    said.tells(&["can't apply process web", "ResourceExists"]);
}

/// Neither the same file nor the same definition under another name restarts anything.
fn the_same_again_changes_nothing(muster: &Muster, file: &str, before: &[Value]) {
    muster.ok(&format!("lrp diff {file}")).tells(&["process web is as the file says"]);
    let said = muster.ok(&format!("lrp apply {file}"));
    said.tells(&["process web is so already, nothing changed: 3 instances running"]);
    let again = muster.json(&format!("lrp apply {file} --no-wait"));
    assert_eq!(again["did"], "unchanged");
    let shown = muster.json(&format!("events show {}", again["position"]));
    let decisions = shown["entry"]["known"]["decisions"].as_array().unwrap();
    assert!(decisions.iter().all(|decision| decision["events"] == serde_json::json!([])), "{shown}");
    assert_eq!(guids(&muster.runs("web", 3)), guids(before));
    assert_eq!(rollout(muster)["number"], 1);
}

#[test]
fn a_bad_update_goes_back_by_itself_and_says_so() {
    let place = Place::new();
    let (dev, before) = first(&place);
    let muster = &dev.muster;
    let bad = file(&place, "bad", FAILS, &update("failure_action = \"rollback\"\nmonitor_ms = 1000"));
    let said = muster.exits(7, &format!("lrp apply {bad}"));
    let container = said.err.lines().last().unwrap().trim_start_matches("  see muster ").to_owned();
    said.tells(&[
        "was rolled back to web: 1 of 3 failed, the last at index 0: Exited with status 1 (RolledBack)",
        "see muster instance logs ",
    ]);
    muster.ok(&container);
    assert_eq!(guids(&muster.runs("web", 3)), guids(&before), "what ran runs on");
    always_running(muster, 3);
    assert_eq!(muster.json("lrp show web")["definition_id"], "web");
    let said = muster.exits(7, &format!("lrp apply {bad} -o json"));
    assert_eq!(said.refusal()["code"], "RolledBack");

    let history = muster.json("lrp rollout history web");
    let statuses: Vec<_> = history.as_array().unwrap().iter().map(|past| &past["status"]).collect();
    assert_eq!(statuses, ["rolled_back", "rollback_completed", "rolled_back", "rollback_completed"]);
    assert_eq!(history[0]["last_crash"]["reason"], "Exited with status 1");
    muster.ok("lrp rollout history web").tells(&["index 0 failed: Exited with status 1"]);
    muster.ok("history lrp web").tells(&["web: rollback to web begins", "web/0: the new instance failed"]);
    let why = muster.ok("why web/0");
    why.tells(&["web/0 is RUNNING"]);
    dev.end(&place);
}

#[test]
fn a_rollout_pauses_and_goes_on_or_back_when_somebody_says_so() {
    let place = Place::new();
    let (dev, before) = first(&place);
    let muster = &dev.muster;
    muster.exits(3, "lrp rollout status web").tells(&["process web had no rollout yet"]);
    muster.exits(4, "lrp rollout rollback web").tells(&["no rollout is under way"]);
    let canary = file(&place, "canary", RUNS, &update("pause_after = 1"));
    let said = muster.exits(14, &format!("lrp update web {canary}"));
    said.tells(&["is paused after 1 replaced, as the policy says (resume or roll back) (Paused)"]);
    muster.ok("lrp list").tells(&[", 1/3, paused"]);
    muster.ok("lrp rollout status web").tells(&["status    paused", "replaced  1 of 3", "back to   web"]);
    assert_eq!(guids(&muster.runs("web", 3)).intersection(&guids(&before)).count(), 2);
    muster.exits(14, "lrp rollout watch web");
    // What is scaled meanwhile runs.
    muster.ok("lrp scale web=4").tells(&["process web scaled: 4 instances running"]);
    muster.ok("lrp scale web=3");

    muster.ok("lrp rollout resume web").tells(&["process web resumed to ", ": 3 instances running"]);
    assert!(guids(&muster.runs("web", 3)).is_disjoint(&guids(&before)));
    muster.ok("lrp rollout watch web").tells(&["process web rolled out to "]);
    let restarted = muster.runs("web", 3);
    muster.ok("lrp update web --instances 3 --annotation canary");
    muster.exits(14, "lrp restart web").tells(&["is paused after 1 replaced"]);
    let said = muster.ok("lrp rollout rollback web");
    said.tells(&["process web rolled back to ", ": 3 instances running"]);
    assert_eq!(guids(&muster.runs("web", 3)).intersection(&guids(&restarted)).count(), 2);

    let active = muster.json("lrp show web")["definition_id"].as_str().unwrap().to_owned();
    let said = muster.ok(&format!("lrp activate web {active}"));
    said.tells(&["is so already, nothing changed"]);
    muster.exits(3, "lrp activate web nothing").tells(&["there is no definition nothing: the process has "]);
    always_running(muster, 3);
    dev.end(&place);
}

#[test]
fn a_rollout_that_waits_says_why() {
    let place = Place::new();
    let (dev, before) = first(&place);
    let muster = &dev.muster;
    // Held: what ran runs on, and the new one is tried again.
    let bad = file(&place, "held", FAILS, &update("monitor_ms = 1000"));
    let said = muster.exits(1, &format!("lrp apply {bad}"));
    said.tells(&[
        "waits: index 0 crashed 4 times: Exited with status 1; restarts at ",
        "muster instance logs ",
    ]);
    assert_eq!(muster.json("lrp rollout status web")["last_crash"]["index"], 0);
    muster.ok("lrp show web").tells(&["waits        index 0 crashed 4 times", "healthy      web"]);
    muster.ok("lrp list").tells(&["rollout to ", ", 0/3"]);

    // No room: another update takes the place of the first.
    let big = file(&place, "big", RUNS, "");
    let text = std::fs::read_to_string(&big).unwrap().replace("memory_mb = 8", "memory_mb = 900000000");
    std::fs::write(&big, text).unwrap();
    let said = muster.exits(6, &format!("lrp apply {big}"));
    said.tells(&["waits: index 0 waits for room: insufficient resources: memory"]);
    let waits = muster.json("lrp rollout status web")["waits"].clone();
    assert_eq!(waits, "index 0 waits for room: insufficient resources: memory");

    // Too slow.
    let slow = file(&place, "slow", RUNS, &update("monitor_ms = 100000"));
    let said = muster.exits(8, &format!("lrp apply {slow} --timeout 2s"));
    said.tells(&["process web is not as desired after 2s: index 0 ", "it goes on"]);
    eventually("its new instance runs", || {
        let waits = muster.try_json("lrp rollout status web")?["waits"].to_string();
        so(waits.contains(" and is watched until it has run for 100s"), || waits)
    });
    let statuses = |past: &Value| past["status"].as_str().unwrap().to_owned();
    let history = muster.json("lrp rollout history web");
    let statuses: Vec<_> = history.as_array().unwrap().iter().map(statuses).collect();
    assert_eq!(statuses, ["superseded", "superseded", "updating"]);
    let newest = muster.json("lrp rollout history web --limit 1");
    assert_eq!((newest[0]["number"].clone(), newest.as_array().unwrap().len()), (3.into(), 1));
    muster.ok("lrp rollout rollback web");
    assert_eq!(guids(&muster.runs("web", 3)), guids(&before), "what ran first never stopped");
    always_running(muster, 3);
    dev.end(&place);
}

#[test]
fn a_policy_that_is_none_is_refused_with_its_path() {
    let place = Place::new();
    let (dev, before) = first(&place);
    let muster = &dev.muster;
    let refused = |policy: &str, told: &[&str]| {
        let bad = file(&place, "bad", RUNS, policy);
        muster.exits(1, &format!("lrp apply {bad}")).tells(told);
    };
    refused(&update("failure_acton = \"hold\""), &["update.failure_acton: ", "did you mean failure_action?"]);
    refused(&update("parallelism = \"120%\""), &["update.parallelism: must be a number of indices"]);
    refused(&update("max_failure_ratio = 2"), &["update.max_failure_ratio: must be a number from 0 to 1"]);
    refused("[rollback]\nfailure_action = \"rollback\"", &["rollback.failure_action: "]);
    refused(
        "min_running = 3\nupdate.order = \"stop-first\"",
        &["min_running: is as many as the 3 instances"],
    );
    let other = file(&place, "other", RUNS, "");
    let text = std::fs::read_to_string(&other).unwrap().replace("\"web\"", "\"api\"");
    std::fs::write(&other, text).unwrap();
    muster.exits(1, &format!("lrp update web {other}")).tells(&["says nothing of process web"]);
    muster.exits(3, &format!("lrp update api {other}")).tells(&["process api does not exist"]);
    muster.exits(2, &format!("lrp update web {other} --file {other}"));
    assert_eq!(guids(&muster.runs("web", 3)), guids(&before));
    // A policy alone restarts nothing.
    let policies = file(&place, "v1", RUNS, &update("parallelism = \"50%\""));
    muster
        .exits(13, &format!("lrp diff {policies}"))
        .tells(&["update.parallelism", "nothing would be restarted"]);
    muster.ok(&format!("lrp apply {policies}")).tells(&["process web updated to web: 3 instances running"]);
    assert_eq!(guids(&muster.runs("web", 3)), guids(&before));
    dev.end(&place);
}

#[test]
fn the_example_of_the_documentation_is_updated_and_goes_back() {
    let place = Place::new();
    let dev = Dev::start(&place, &[ROLLING]);
    let muster = &dev.muster;
    let before = muster.runs("shop", 3);
    let text = std::fs::read_to_string(ROLLING).unwrap();
    assert!(text.contains("VERSION = \"1\"") && text.contains("exec muster example-server\""));
    let v2 = text.replace("VERSION = \"1\"", "VERSION = \"2\"");
    let bad = v2.replace("exec muster example-server\"", "exit 1\"");
    let (v2, bad) = (place.file("v2.toml", v2), place.file("bad.toml", bad));
    muster.ok(&format!("lrp apply {ROLLING}")).tells(&["nothing changed"]);
    muster.ok(&format!("lrp apply {}", v2.display())).tells(&["process shop updated to "]);
    let after = muster.runs("shop", 3);
    assert!(guids(&before).is_disjoint(&guids(&after)));
    muster.ok("instance logs --all shop").tells(&["version 2"]);
    muster.exits(7, &format!("lrp apply {}", bad.display())).tells(&["was rolled back to "]);
    assert_eq!(guids(&muster.runs("shop", 3)), guids(&after));
    dev.end(&place);
    assert_eq!(living_in(place.path()), []);
}

/// How many entries the log has.
fn entries(muster: &Muster) -> usize {
    muster.json("events list").as_array().unwrap().len()
}

/// What a plan says starts where, and what an instance list says runs there.
fn started(plan: &Value) -> BTreeSet<(u64, String)> {
    let steps = plan["steps"].as_array().unwrap().iter().filter_map(|step| {
        let starts = step["does"]["starts"].as_object()?;
        Some((starts["place"]["index"].as_u64().unwrap(), starts["cell_id"].as_str().unwrap().to_owned()))
    });
    steps.collect()
}

fn placed(rows: &[Value]) -> BTreeSet<(u64, String)> {
    let place = |row: &Value| (row["index"].as_u64().unwrap(), row["cell_id"].as_str().unwrap().to_owned());
    rows.iter().map(place).collect()
}

#[test]
fn a_plan_says_what_applying_does_and_writes_nothing() {
    let place = Place::new();
    let dev = Dev::start(&place, &[]);
    let muster = &dev.muster;
    let v1 = file(&place, "v1", RUNS, "");
    let before = entries(muster);
    muster
        .exits(13, &format!("lrp plan {v1}"))
        .tells(&["process web would be desired: 3 instances", "starts"]);
    let plan = muster.exits(13, &format!("lrp plan {v1} -o json")).json();
    assert_eq!((&plan["changes"], &plan["fits"]), (&true.into(), &true.into()), "{plan}");
    assert_eq!(entries(muster), before, "nothing is written");
    muster.ok(&format!("lrp apply {v1}"));
    assert_eq!(placed(&muster.runs("web", 3)), started(&plan));
    muster.ok(&format!("lrp plan {v1}")).tells(&["process web is as the file says"]);

    let v2 = file(&place, "v2", RUNS, &update("parallelism = 2"));
    let said = muster.exits(13, &format!("lrp plan {v2}"));
    said.tells(&["would replace its instances", "TURN", "web/0@", "stops", "all of it would find its place"]);
    let plan = muster.exits(13, &format!("lrp plan {v2} -o json")).json();
    let turns: Vec<u64> =
        plan["steps"].as_array().unwrap().iter().map(|step| step["turn"].as_u64().unwrap()).collect();
    assert_eq!(turns, [1, 1, 1, 1, 2, 2], "two at a time: {plan}");
    muster.ok(&format!("lrp apply {v2}"));
    let said = muster.ok(&format!("lrp plan {v2} -o json")).json();
    assert_eq!((&said["changes"], said["steps"].as_array().unwrap().len()), (&false.into(), 0), "{said}");
    dev.end(&place);
}

#[test]
fn what_a_plan_says_does_not_fit_does_not() {
    let place = Place::new();
    let (dev, before) = first(&place);
    let muster = &dev.muster;
    let text = std::fs::read_to_string(file(&place, "v2", RUNS, "")).unwrap();
    let large = place.file("large.toml", text.replace("memory_mb = 8", "memory_mb = 100000000"));
    let large = large.display().to_string();
    let said = muster.exits(6, &format!("lrp plan {large}"));
    said.tells(&[
        "web/0@",
        "would find no room: insufficient resources: memory (c1: memory; c2: memory; c3: memory)",
        "process web would not come to its end: 3 of 3 instances would run",
    ]);
    let plan = muster.exits(6, &format!("lrp plan {large} -o json")).json();
    assert_eq!(plan["left"][0]["cells"]["c2"], serde_json::json!(["memory"]), "{plan}");
    muster.exits(6, &format!("lrp apply {large}")).tells(&["insufficient resources: memory"]);
    let mut rows = muster.instances("web").unwrap();
    rows.retain(|row| row["state"] == "RUNNING");
    assert_eq!(guids(&before), guids(&rows), "what ran runs on");
    dev.end(&place);
}

#[test]
fn a_rebalance_evens_out_and_does_nothing_where_all_is_even() {
    let place = Place::new();
    let (dev, before) = first(&place);
    let muster = &dev.muster;
    muster.ok("lrp rebalance web").tells(&["process web stays as it is: 1 on c1, 1 on c2, 1 on c3"]);
    assert_eq!(guids(&before), guids(&muster.runs("web", 3)), "nothing was replaced");
    muster.exits(3, "lrp rebalance other");

    muster.ok("lrp scale web=6");
    muster.ok("cell cordon c3");
    for row in muster.runs("web", 6).iter().filter(|row| row["cell_id"] == "c3") {
        muster.ok(&format!("instance stop web/{}", row["index"]));
    }
    eventually("the cordoned cell is empty", || {
        let rows = muster.instances("web")?;
        let elsewhere = |row: &&Value| row["state"] == "RUNNING" && row["cell_id"] != "c3";
        so(rows.iter().filter(elsewhere).count() == 6, || format!("{rows:?}"))
    });
    muster.ok("cell uncordon c3");
    let on = |cell: &str| {
        let rows = muster.runs("web", 6);
        rows.iter().filter(|row| row["cell_id"] == cell).count()
    };
    assert_eq!(on("c3"), 0);
    let said = muster.ok("lrp rebalance web");
    said.tells(&["3 on c1, 3 on c2, 0 on c3; planned: ", "process web rebalanced to web-", "now: "]);
    let past = muster.ok("lrp rollout history web");
    past.tells(&["-rebalance-", "rebalanced"]);
    muster.ok("lrp rollout status web").tells(&["-rebalance-"]);
    let spread = ["c1", "c2", "c3"].map(on);
    place.tell(&format!("spread {spread:?}"));
    assert!(spread.iter().max().unwrap() - spread.iter().min().unwrap() < 3, "{spread:?}");
    dev.end(&place);
}

#[test]
fn an_update_under_requests_loses_none_of_them() {
    let place = Place::new();
    let muster = Muster::local(place.path());
    // However loaded the machine is: half a second is long for a router to hear of a stop.
    let said = muster.ok("bench --rolling --json --drain 500 --rate 5 --cells 5").json();
    let real = &said["real"];
    assert_eq!(real["failed_requests"], 0, "{said}");
    assert!(real["requests"].as_u64().unwrap() > 500, "{said}");
    assert_eq!((&real["instances"], &said["in_memory"]["instances"]), (&20.into(), &1_000.into()));
}

#[test]
fn a_router_that_is_slower_than_what_it_asks_drains_is_told_to_have_failed() {
    let place = Place::new();
    let muster = Muster::local(place.path());
    let said = muster.exits(1, "bench --rolling --drain 0 --lag 1000 --rate 20 --cells 5");
    said.tells(&["failed: index 0 of web: ", " requests failed"]);
}

#[test]
fn a_global_process_is_planned_and_applied_cell_by_cell() {
    let place = Place::new();
    let dev = Dev::start(&place, &[]);
    let muster = &dev.muster;
    let global = |version: &str| {
        let path = file(&place, version, RUNS, "");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("instances = 3", "mode = \"global\"")).unwrap();
        path
    };
    let v1 = global("v1");
    let plan = muster.exits(13, &format!("lrp plan {v1} -o json")).json();
    let cells = |plan: &Value| started(plan).into_iter().map(|(_, cell)| cell).collect::<BTreeSet<_>>();
    assert_eq!(cells(&plan), ["c1", "c2", "c3"].map(str::to_owned).into(), "{plan}");
    muster.ok(&format!("lrp apply {v1}"));
    assert_eq!(placed(&muster.runs("web", 3)), started(&plan));
    muster.ok(&format!("lrp plan {v1}")).tells(&["process web is as the file says"]);
    muster.ok(&format!("lrp apply {v1}")).tells(&["is so already, nothing changed"]);
    muster.ok("lrp rebalance web").tells(&["that is as even as can be"]);
    let replicated =
        place.file("replicated.toml", std::fs::read_to_string(&v1).unwrap().replace("mode = \"global\"", ""));
    muster
        .exits(4, &format!("lrp plan {}", replicated.display()))
        .tells(&["process web is global and can't become replicated"]);

    let v2 = global("v2");
    let plan = muster.exits(13, &format!("lrp plan {v2} -o json")).json();
    assert_eq!((&plan["fits"], plan["steps"].as_array().unwrap().len()), (&true.into(), 6), "{plan}");
    muster.ok(&format!("lrp apply {v2}"));
    muster.ok(&format!("lrp plan {v2}"));
    dev.end(&place);
}

#[test]
fn a_global_process_follows_the_cells_and_is_updated_cell_by_cell() {
    let place = Place::new();
    let file = |version: &str| {
        let text = format!(
            "process_guid = \"web\"\ndomain = \"shop\"\nmode = \"global\"\nmemory_mb = 8\n\
             env = {{ VERSION = \"{version}\" }}\naction.run = {{ path = \"sh\", args = [\"-c\", \"{RUNS}\"] }}\n"
        );
        place.file(&format!("{version}.toml"), text).display().to_string()
    };
    let v1 = file("v1");
    let replicated = std::fs::read_to_string(&v1).unwrap().replace("mode = \"global\"", "");
    let replicated = place.file("replicated.toml", replicated);
    let dev = Dev::start(&place, &[&v1]);
    let muster = &dev.muster;
    muster.runs("web", 3);
    muster.ok("cell cordon c1");
    let plan = muster.exits(13, &format!("lrp plan {} -o json", file("v2"))).json();
    assert_eq!(plan["changes"], true, "{plan}");
    muster.ok(&format!("lrp apply {}", file("v2")));
    let on = || -> BTreeMap<String, String> {
        let text = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
        let rows = muster.json("instance list").as_array().unwrap().clone();
        rows.iter().map(|row| (text(row, "cell_id"), text(row, "definition_id"))).collect()
    };
    let cordoned = on();
    assert_eq!(cordoned["c1"], "web", "it keeps what it runs: {cordoned:?}");
    assert!(cordoned["c2"] != "web" && cordoned["c2"] == cordoned["c3"], "{cordoned:?}");
    muster.ok("cell uncordon c1");
    eventually("the cell that takes work again is updated", || {
        let on = on();
        so(on.get("c1") == cordoned.get("c2"), || format!("{on:?}"))
    });
    muster.ok("cell evacuate c2 --wait");
    eventually("nothing takes its place elsewhere", || {
        let on = on();
        so(on.keys().eq(["c1", "c3"]), || format!("{on:?}"))
    });
    muster.ok("lrp restart web");
    muster.exits(4, &format!("lrp apply {}", replicated.display())).tells(&["can't become replicated"]);
    muster.exits(1, "lrp scale web=5").tells(&["a global process has one instance on each cell that fits"]);
}
