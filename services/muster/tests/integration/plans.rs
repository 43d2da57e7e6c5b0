//! Plans, and commands that apply only planned changes.

use serde_json::{Value, json};

use crate::dev::{LocalCluster, sleeper};
use crate::support::test_dir::ensure;
use crate::support::{Muster, TestDir, eventually};

/// Returns the number of entries about the two processes.
fn entry_count(muster: &Muster) -> usize {
    let about = |name| muster.json(&format!("events list --about lrp:{name}")).as_array().unwrap().len();
    about("web") + about("api")
}

/// Makes a plan and checks that the plan's text names the plan's position. Returns the position.
fn plan_position(muster: &Muster, exit: i32, file: &str) -> u64 {
    let plan = muster.exits(exit, &format!("apply --dry-run {file} -o json")).json();
    let position = plan["position"].as_u64().unwrap();
    let told = muster.exits(exit, &format!("apply --dry-run {file}"));
    told.expect_output(&[&format!("muster apply {file} --if-position "), &format!("position {position}")]);
    position
}

/// Writes the file of a task with this memory size and returns the path of the file.
fn task(place: &TestDir, guid: &str, memory_mb: u64, more: &str) -> String {
    let text = format!(
        "task_guid = \"{guid}\"\ndomain = \"shop\"\nmemory_mb = {memory_mb}\nresult_file = \"\"\n\
         action.run = {{ path = \"true\" }}\n{more}\n"
    );
    place.write_file(&format!("{guid}.toml"), text).display().to_string()
}

#[test]
fn apply_with_stale_plan_position_is_refused() {
    let place = TestDir::new();
    let dev = LocalCluster::start(&place, &[]);
    let muster = &dev.muster;
    let both = place
        .write_file("both.toml", format!("[[lrp]]\n{}[[lrp]]\n{}", sleeper("web", 1), sleeper("api", 1)));
    let both = both.display().to_string();
    let new = plan_position(muster, 13, &both);
    let before = entry_count(muster);
    muster.exits(1, &format!("apply {both} --if-position {}", new + 1_000)).expect_output(&[
        "is beyond the end of the log",
        "--if-position expects the position that the plan printed",
    ]);
    assert_eq!(entry_count(muster), before, "nothing was changed");
    muster.ok(&format!("apply {both} --if-position {new}"));

    // One of the two processes changes after the plan, so the command changes neither process.
    let larger =
        place.write_file("larger.toml", std::fs::read_to_string(&both).unwrap().replace("= 8", "= 9"));
    let larger = larger.display().to_string();
    let plan = plan_position(muster, 13, &larger);
    muster.ok("lrp scale api=2");
    let before = entry_count(muster);
    let refused = muster.exits(4, &format!("apply {larger} --if-position {plan} -o json")).refusal();
    assert_eq!(refused["code"], "ResourceConflict", "{refused}");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("process api changed at position "), "{message}");
    assert!(
        message.ends_with(&format!(", after the planned position {plan}; nothing was changed: plan again")),
        "{message}"
    );
    assert!(!message.contains("process web"), "{message}");
    assert_eq!(entry_count(muster), before);

    // A request based on a new plan is sent twice. It is carried out once.
    let web = place.write_file("web.toml", sleeper("web", 1).replace("= 8", "= 9")).display().to_string();
    let plan = plan_position(muster, 13, &web);
    let line = format!("apply {web} --if-position {plan} --request-id mine");
    muster.ok(&line).expect_output(&["process web updated to "]);
    let before = entry_count(muster);
    muster.ok(&line).expect_output(&["process web unchanged"]);
    assert_eq!(entry_count(muster), before, "a repeated request changes nothing");
    muster.exits(4, &format!("apply {web} --if-position {plan}"));

    // The removal of a process after the plan is a change as well. Only the BBS detects this change.
    let same = muster.ok(&format!("apply --dry-run {web} -o json")).json();
    let plan = same["position"].as_u64().unwrap();
    muster.ok("lrp delete web");
    muster
        .exits(4, &format!("apply {web} --if-position {plan}"))
        .expect_output(&["process web has changed since position", "its last decision is at position"]);
    dev.end(&place);
}

#[test]
fn task_plan_names_cells_and_missing_resources() {
    let place = TestDir::new();
    let dev = LocalCluster::start(&place, &[]);
    let muster = &dev.muster;
    let small = task(&place, "small", 8, "");
    let plan = muster.exits(13, &format!("apply --dry-run {small} -o json")).json();
    assert_eq!((&plan["changes"], &plan["fits"]), (&json!(true), &json!(true)), "{plan}");
    let cell = plan["tasks"][0]["outcome"]["runs"]["cell_id"].as_str().unwrap();
    let position = plan_position(muster, 13, &small);

    let large = task(&place, "large", 100_000_000, "");
    let large_plan = muster.exits(6, &format!("apply --dry-run {large} -o json")).json();
    let fails = &large_plan["tasks"][0]["outcome"]["fails"];
    assert_eq!(fails["cells"]["c2"], json!(["memory"]), "{large_plan}");
    plan_position(muster, 6, &large);
    let waits = task(&place, "waits", 100_000_000, "placement = { queue = { deadline_ms = 300000 } }");
    let said = muster.exits(6, &format!("apply --dry-run {waits}"));
    said.expect_output(&[
        "wait ",
        "for room, at most 5m: insufficient resources: memory (c1: memory; c2: memory; c3: memory)",
    ]);
    assert_eq!(muster.json("task list"), json!([]), "a plan changes nothing");

    muster.ok(&format!("run {small} --detach --if-position {position}"));
    let ended = eventually("the task ends", || {
        let row = muster.json("task show small");
        ensure(row["state"] == "COMPLETED", || format!("{row}"))?;
        Ok::<Value, String>(row)
    });
    assert_eq!(ended["cell_id"], *cell, "it ran on the planned cell");
    muster.ok(&format!("apply --dry-run {small}")).expect_output(&["task small exists or has run before"]);
    let changed = task(&place, "small", 9, "");
    muster
        .exits(4, &format!("apply --dry-run {changed}"))
        .expect_output(&["can't plan task small: task small exists with another definition"]);
    task(&place, "small", 8, "");
    muster
        .exits(4, &format!("run {small} --detach --if-position {position}"))
        .expect_output(&["task small changed at position"]);
    muster.ok("task resolve small");
    muster
        .exits(4, &format!("run {small} --detach --if-position {position}"))
        .expect_output(&["can't run task small: task small has changed since position"]);
    muster.exits(6, &format!("run {large}")).expect_output(&["insufficient resources: memory"]);
    let web = place.write_file("web.toml", sleeper("web", 1)).display().to_string();
    muster.exits(1, &format!("run {web}")).expect_output(&["describes no task", "muster apply"]);
    dev.end(&place);
}
