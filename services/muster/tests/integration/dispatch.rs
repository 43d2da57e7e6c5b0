//! Tests of parameterised tasks on real processes: their payload, their parameters, and the order of the
//! tasks.

use crate::dev::LocalCluster;
use crate::support::test_dir::ensure;
use crate::support::{TestDir, eventually};

const TEMPLATES: &str = r#"
domain = "default"

[[parameterised]]
parameterised_guid = "print"
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
fn dispatched_task_receives_payload_and_parameters() {
    let place = TestDir::new();
    let file = place.write_file("templates.toml", TEMPLATES).display().to_string();
    let dev = LocalCluster::start(&place, &[&file]);
    let muster = &dev.muster;
    let bytes: Vec<u8> = (0..=255).collect();
    let (text, bytes) = (place.write_file("text", "grüß dich"), place.write_file("bytes", &bytes));
    let (text, bytes) = (text.display(), bytes.display());

    let told = muster
        .ok(&format!("parameterised dispatch print --payload {text} --param width=640 --key k1 --wait"));
    let told = format!("{told:?}");
    assert!(told.contains("grüß dich|640|480|k1|print|"), "{told}");

    // A payload that is not text is passed only in base64.
    let told = muster.ok(&format!(
        "parameterised dispatch print --payload {bytes} --param width=1 --param height=2 --wait"
    ));
    let told = format!("{told:?}");
    assert!(told.contains("|1|2||print|1313719201 256"), "{told}");

    // The same key identifies the same task. With the same key, `--wait` returns the result of this task
    // again. Other arguments with this key are refused.
    let line = format!("parameterised dispatch print --payload {text} --param width=640 --key k1");
    let again = muster.json(&line);
    let task = again["task_guid"].as_str().unwrap().to_owned();
    assert_eq!(again["number"], 2, "{again}");
    let told = format!("{:?}", muster.ok(&format!("{line} --wait")));
    assert!(told.contains("grüß dich|640|480|k1|print|"), "{told}");
    muster.exits(4, &line.replace("640", "641")).expect_output(&["key k1 belongs to dispatch 2 of print"]);
    muster.exits(1, "parameterised dispatch print --param depth=1").expect_output(&[
        "payload: is missing",
        "width is missing",
        "depth is not a parameter of print",
    ]);
    muster.ok(&format!("why {task}")).expect_output(&["parameterised task print", "dispatch 2 with key k1"]);
    muster.ok("parameterised show print").expect_output(&["width", "height", "required"]);
    muster.ok("history parameterised print").expect_output(&["dispatch 2 repeated with the same key"]);
}

#[test]
fn dispatch_beyond_concurrency_limit_waits() {
    let place = TestDir::new();
    let file = place.write_file("templates.toml", TEMPLATES).display().to_string();
    let dev = LocalCluster::start(&place, &[&file]);
    let muster = &dev.muster;
    let runs = |task: &str| {
        eventually(&format!("{task} runs"), || {
            let row = muster.try_json(&format!("task show {task}"))?;
            ensure(row["state"] == "RUNNING", || row.to_string())
        });
    };
    eventually("the template exists", || muster.try_json("parameterised show slow"));
    muster.ok("parameterised dispatch slow");
    runs("slow--dispatch-2");
    muster
        .ok("parameterised dispatch slow")
        .expect_output(&["slow--dispatch-3", "waits until a running one has ended"]);
    muster.ok("parameterised dispatch slow").expect_output(&["slow--dispatch-4", "waits behind 1 other"]);
    let row = muster.json("parameterised show slow");
    assert_eq!((&row["waiting"], &row["running"]), (&2.into(), &1.into()), "{row}");
    muster.ok("parameterised cancel slow 3").expect_output(&["dispatch 3 of slow cancelled"]);
    muster.exits(3, "parameterised cancel slow 3");
    muster.ok("task cancel slow--dispatch-2");
    runs("slow--dispatch-4");
    muster.exits(3, "task show slow--dispatch-3");
    muster.ok("parameterised delete slow");
    muster.exits(3, "parameterised dispatch slow");
    muster.ok("task cancel slow--dispatch-4");
}
