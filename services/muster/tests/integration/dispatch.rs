//! Parameterised tasks, on real processes: what a task is given, and in which order tasks run.

use crate::dev::Dev;
use crate::support::place::so;
use crate::support::{Place, eventually};

const TEMPLATES: &str = r#"
domain = "default"

[[parameterised]]
parameterised_guid = "tell"
payload = "required"
required_parameters = ["width"]
optional_parameters = ["height"]
env = { MUSTER_PARAM_height = "480" }
result_file = "result"
action.run = { path = "sh", args = ["-c", """
printf %s "$MUSTER_PAYLOAD_BASE64" | base64 -d > bytes
printf '%s|%s|%s|%s|%s|' "$MUSTER_PAYLOAD" "$MUSTER_PARAM_width" "$MUSTER_PARAM_height" "$MUSTER_DISPATCH_KEY" "$MUSTER_PARAMETERISED_GUID" > result
cksum < bytes >> result
"""] }

[[parameterised]]
parameterised_guid = "slow"
concurrency = 1
action.run = { path = "sleep", args = ["100000"] }
grace_period_ms = 100
"#;

#[test]
fn a_dispatched_task_finds_its_payload_and_its_parameters() {
    let place = Place::new();
    let file = place.file("templates.toml", TEMPLATES).display().to_string();
    let dev = Dev::start(&place, &[&file]);
    let muster = &dev.muster;
    let bytes: Vec<u8> = (0..=255).collect();
    let (text, bytes) = (place.file("text", "grüß dich"), place.file("bytes", &bytes));
    let (text, bytes) = (text.display(), bytes.display());

    let told =
        muster.ok(&format!("parameterised dispatch tell --payload {text} --param width=640 --key k1 --wait"));
    let told = format!("{told:?}");
    assert!(told.contains("grüß dich|640|480|k1|tell|"), "{told}");

    // Bytes that are no text are in base64 alone.
    let told = muster.ok(&format!(
        "parameterised dispatch tell --payload {bytes} --param width=1 --param height=2 --wait"
    ));
    let told = format!("{told:?}");
    assert!(told.contains("|1|2||tell|1313719201 256"), "{told}");

    // The same key is the same task, and with --wait its end is told again; something else with it is refused.
    let line = format!("parameterised dispatch tell --payload {text} --param width=640 --key k1");
    let again = muster.json(&line);
    let task = again["task_guid"].as_str().unwrap().to_owned();
    assert_eq!(again["number"], 2, "{again}");
    let told = format!("{:?}", muster.ok(&format!("{line} --wait")));
    assert!(told.contains("grüß dich|640|480|k1|tell|"), "{told}");
    muster.exits(4, &line.replace("640", "641")).tells(&["key k1 was given to dispatch 2 of tell"]);
    muster.exits(1, "parameterised dispatch tell --param depth=1").tells(&[
        "payload: is missing",
        "width is missing",
        "depth is none of tell",
    ]);
    muster.ok(&format!("why {task}")).tells(&["parameterised task tell", "dispatch 2 with key k1"]);
    muster.ok("parameterised show tell").tells(&["width", "height", "required"]);
    muster.ok("history parameterised tell").tells(&["dispatch 2 asked for again by its key"]);
}

#[test]
fn what_is_beyond_the_limit_runs_when_another_has_ended() {
    let place = Place::new();
    let file = place.file("templates.toml", TEMPLATES).display().to_string();
    let dev = Dev::start(&place, &[&file]);
    let muster = &dev.muster;
    let runs = |task: &str| {
        eventually(&format!("{task} runs"), || {
            let row = muster.try_json(&format!("task show {task}"))?;
            so(row["state"] == "RUNNING", || row.to_string())
        });
    };
    muster.ok("parameterised dispatch slow");
    runs("slow--dispatch-2");
    muster.ok("parameterised dispatch slow").tells(&["slow--dispatch-3", "waits until another has ended"]);
    muster.ok("parameterised dispatch slow").tells(&["slow--dispatch-4", "waits behind 1 other"]);
    let row = muster.json("parameterised show slow");
    assert_eq!((&row["waiting"], &row["running"]), (&2.into(), &1.into()), "{row}");
    muster.ok("parameterised withdraw slow 3").tells(&["dispatch 3 of slow withdrawn"]);
    muster.exits(3, "parameterised withdraw slow 3");
    muster.ok("task cancel slow--dispatch-2");
    runs("slow--dispatch-4");
    muster.exits(3, "task show slow--dispatch-3");
    muster.ok("parameterised remove slow");
    muster.exits(3, "parameterised dispatch slow");
    muster.ok("task cancel slow--dispatch-4");
}
