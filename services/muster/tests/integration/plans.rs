//! Plans, and carrying out only what was planned.

use serde_json::{Value, json};

use crate::dev::{Dev, sleeper};
use crate::support::place::so;
use crate::support::{Muster, Place, eventually};

/// How many entries the log has about the processes.
fn entries(muster: &Muster) -> usize {
    let about = |name| muster.json(&format!("events list --about lrp:{name}")).as_array().unwrap().len();
    about("web") + about("api")
}

/// The position that a plan names, which says so to people, too.
fn planned(muster: &Muster, exit: i32, what: &str, file: &str) -> u64 {
    let verb = if what == "lrp" { "apply" } else { "run" };
    let plan = muster.exits(exit, &format!("{what} plan {file} -o json")).json();
    let position = plan["position"].as_u64().unwrap();
    let told = muster.exits(exit, &format!("{what} plan {file}"));
    told.tells(&[&format!("muster {what} {verb} {file} --if-position "), &format!("position {position}")]);
    position
}

/// The file of a task that takes so much memory.
fn task(place: &Place, guid: &str, memory_mb: u64, more: &str) -> String {
    let text = format!(
        "task_guid = \"{guid}\"\ndomain = \"shop\"\nmemory_mb = {memory_mb}\nresult_file = \"\"\n\
         action.run = {{ path = \"true\" }}\n{more}\n"
    );
    place.file(&format!("{guid}.toml"), text).display().to_string()
}

#[test]
fn only_what_was_planned_is_applied() {
    let place = Place::new();
    let dev = Dev::start(&place, &[]);
    let muster = &dev.muster;
    let both =
        place.file("both.toml", format!("[[lrp]]\n{}[[lrp]]\n{}", sleeper("web", 1), sleeper("api", 1)));
    let both = both.display().to_string();
    let new = planned(muster, 13, "lrp", &both);
    let before = entries(muster);
    muster
        .exits(1, &format!("lrp apply {both} --if-position {}", new + 1_000))
        .tells(&["is behind the end of the log", "--if-position takes the position that a plan names"]);
    assert_eq!(entries(muster), before, "nothing was changed");
    muster.ok(&format!("lrp apply {both} --if-position {new}"));

    // Somebody else changes one of them after the plan: neither is touched.
    let larger = place.file("larger.toml", std::fs::read_to_string(&both).unwrap().replace("= 8", "= 9"));
    let larger = larger.display().to_string();
    let plan = planned(muster, 13, "lrp", &larger);
    muster.ok("lrp scale api=2");
    let before = entries(muster);
    let refused = muster.exits(4, &format!("lrp apply {larger} --if-position {plan} -o json")).refusal();
    assert_eq!(refused["code"], "ResourceConflict", "{refused}");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("process api has changed at position "), "{message}");
    assert!(
        message.ends_with(&format!(", after position {plan}: nothing was changed, plan again")),
        "{message}"
    );
    assert!(!message.contains("process web"), "{message}");
    assert_eq!(entries(muster), before);

    // The one that somebody planned anew, and asks for twice: it happens once.
    let web = place.file("web.toml", sleeper("web", 1).replace("= 8", "= 9")).display().to_string();
    let plan = planned(muster, 13, "lrp", &web);
    let line = format!("lrp apply {web} --if-position {plan} --request-id mine");
    muster.ok(&line).tells(&["process web updated to "]);
    let before = entries(muster);
    muster.ok(&line).tells(&["process web is so already"]);
    assert_eq!(entries(muster), before, "it was answered by what it did");
    muster.exits(4, &format!("lrp apply {web} --if-position {plan}"));

    // What is gone has changed: that nobody looks at beforehand.
    let same = muster.ok(&format!("lrp plan {web} -o json")).json();
    let plan = same["position"].as_u64().unwrap();
    muster.ok("lrp remove web");
    muster
        .exits(4, &format!("lrp apply {web} --if-position {plan}"))
        .tells(&["process web has changed since position", "the last decision about it stands at"]);
    dev.end(&place);
}

#[test]
fn a_plan_of_tasks_names_cells_and_what_is_missing() {
    let place = Place::new();
    let dev = Dev::start(&place, &[]);
    let muster = &dev.muster;
    let small = task(&place, "small", 8, "");
    let plan = muster.exits(13, &format!("task plan {small} -o json")).json();
    assert_eq!((&plan["changes"], &plan["fits"]), (&json!(true), &json!(true)), "{plan}");
    let cell = plan["tasks"][0]["fate"]["runs"]["cell_id"].as_str().unwrap();
    let position = planned(muster, 13, "task", &small);

    let large = task(&place, "large", 100_000_000, "");
    let large_plan = muster.exits(6, &format!("task plan {large} -o json")).json();
    let fails = &large_plan["tasks"][0]["fate"]["fails"];
    assert_eq!(fails["cells"]["c2"], json!(["memory"]), "{large_plan}");
    planned(muster, 6, "task", &large);
    let waits = task(&place, "waits", 100_000_000, "placement = { queue = { deadline_ms = 300000 } }");
    let said = muster.exits(6, &format!("task plan {waits}"));
    said.tells(&[
        "wait ",
        "for room, 5m at most: insufficient resources: memory (c1: memory; c2: memory; c3: memory)",
    ]);
    assert_eq!(muster.json("task list"), json!([]), "a plan changes nothing");

    muster.ok(&format!("task run {small} --if-position {position}"));
    let ended = eventually("the task ends", || {
        let row = muster.json("task show small");
        so(row["state"] == "COMPLETED", || format!("{row}"))?;
        Ok::<Value, String>(row)
    });
    assert_eq!(ended["cell_id"], *cell, "it ran where the plan said");
    muster
        .exits(4, &format!("task plan {small}"))
        .tells(&["can't plan task small: task small exists already", "muster task resolve small"]);
    muster.exits(4, &format!("task plan {small} --domain other")).tells(&["task small exists already"]);
    muster
        .exits(4, &format!("task run {small} --if-position {position}"))
        .tells(&["task small has changed at position"]);
    muster.ok("task resolve small");
    muster
        .exits(4, &format!("task run {small} --if-position {position}"))
        .tells(&["can't run task small: task small has changed since position"]);
    muster.exits(6, &format!("task run {large} --wait")).tells(&["insufficient resources: memory"]);
    let web = place.file("web.toml", sleeper("web", 1)).display().to_string();
    muster.exits(1, &format!("task plan {web}")).tells(&["holds no task"]);
    dev.end(&place);
}
