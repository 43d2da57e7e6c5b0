//! Outcomes and logs of ended instances and tasks. The tests run real services and real containers.

use serde_json::Value;

use crate::dev::{LocalCluster, sleeper};
use crate::support::test_dir::ensure;
use crate::support::{Muster, TestDir, eventually};

/// Waits until at least `count` containers of an index have ended, and returns their rows.
fn wait_for_ended(muster: &Muster, process: &str, index: u32, count: usize) -> Vec<Value> {
    let line = format!("instance list --ended --process {process} --index {index}");
    eventually(&format!("{count} containers of {process}/{index} have ended"), || {
        let rows = muster.try_json(&line)?.as_array().unwrap().clone();
        ensure(rows.len() >= count, || format!("{rows:#?}")).map(|()| rows)
    })
}

fn field(row: &Value, name: &str) -> String {
    row[name].as_str().unwrap_or_else(|| panic!("no {name} in {row}")).to_owned()
}

#[test]
fn ended_instances_show_crash_scale_and_update() {
    let place = TestDir::new();
    let crashes = write_crashing(&place, 2);
    let sleeps = place.write_file("sleeps.toml", sleeper("web", 2)).display().to_string();
    let dev = LocalCluster::start(&place, &[&sleeps]);
    let muster = &dev.muster;
    let before = muster.wait_until_running("web", 2);
    assert_eq!(muster.json("instance list --ended"), serde_json::json!([]));

    // The process crashes repeatedly. Its history limit of 2 keeps the newest two crashes.
    muster.ok(&format!("apply {crashes} --detach"));
    eventually("the process has crashed four times", || {
        let rows = muster.instances("bad")?;
        ensure(rows[0]["crash_count"].as_u64() >= Some(4), || format!("{rows:#?}"))
    });
    let rows = wait_for_ended(muster, "bad", 0, 2);
    assert_eq!(rows.len(), 2, "{rows:#?}");
    let counts: Vec<u64> = rows.iter().map(|row| row["crash_count"].as_u64().unwrap()).collect();
    assert_eq!(counts, [3, 4], "the newest is last");
    for row in &rows {
        assert_eq!(
            (&row["end_kind"], &row["exit_status"], &row["stop_reason"]),
            (&"crashed".into(), &3.into(), &Value::Null)
        );
        assert!(field(row, "reason").contains("Exited with status 3"), "{row}");
        let ran = row["duration_ms"].as_u64().unwrap();
        assert!((100..30_000).contains(&ran), "it ran for {ran} ms");
    }
    muster.ok("instance list --ended").expect_output(&["CRASHED", "Exited with status 3", "bad/0"]);

    // A part of the guid is enough to show the ended instance and its log.
    let guid = field(&rows[0], "instance_guid");
    let part = &guid[24..];
    muster.ok(&format!("logs {part}")).expect_output(&["going"]);
    muster.ok(&format!("instance show {part}")).expect_output(&[
        "CRASHED",
        "exit status",
        &guid,
        "muster logs",
    ]);
    muster.exits(2, "instance list --index 0").expect_output(&["add --ended and --lrp GUID"]);
    muster.exits(3, "instance show ffffffffffff").expect_output(&["muster instance list --ended"]);

    // Scaling down stops the other instance. The row of the ended instance contains the reason as long as the
    // process is desired.
    muster.ok("lrp scale web=1");
    let rows = wait_for_ended(muster, "web", 1, 1);
    assert_eq!(field(&rows[0], "instance_guid"), field(&before[1], "instance_guid"));
    assert_eq!((&rows[0]["end_kind"], &rows[0]["stop_reason"]), (&"stopped".into(), &"scale".into()));
    assert_eq!(rows[0]["exit_status"], Value::Null);
    muster.ok("instance list --ended --lrp web").expect_output(&["STOPPED", "fewer instances are desired"]);

    // An update replaces the running instance.
    let update = place.write_file("update.toml", sleeper("web", 1).replace("100000", "200000"));
    muster.ok(&format!("apply {}", update.display()));
    let rows = wait_for_ended(muster, "web", 0, 1);
    assert_eq!(field(&rows[0], "instance_guid"), field(&before[0], "instance_guid"));
    assert_eq!((&rows[0]["end_kind"], &rows[0]["stop_reason"]), (&"stopped".into(), &"replaced".into()));
    assert_eq!(field(&rows[0], "definition_id"), "web");
    let position = rows[0]["position"].as_u64().unwrap();
    muster.ok(&format!("events show {position}")).expect_output(&["removed.v1", "replaced.v1"]);

    // A new limit takes effect at once and does not change the crash count.
    let none = write_crashing(&place, 0);
    muster.ok(&format!("apply {none} --detach"));
    eventually("no crash is kept", || {
        let rows = muster.try_json("instance list --ended --process bad")?;
        ensure(rows.as_array().unwrap().is_empty(), || rows.to_string())
    });
    assert!(muster.instances("bad").unwrap()[0]["crash_count"].as_u64() >= Some(4));
    dev.end(&place);
}

/// Writes the file of a process that crashes. The process has the history limit `limit`. Returns the path of
/// the file.
fn write_crashing(place: &TestDir, limit: u32) -> String {
    let text = format!(
        "process_guid = \"bad\"\ndomain = \"shop\"\nmemory_mb = 8\nhistory_limit = {limit}\n\
         action.run = {{ path = \"sh\", args = [\"-c\", \"echo going; sleep 0.2; exit 3\"] }}\n"
    );
    place.write_file(&format!("crashes-{limit}.toml"), text).display().to_string()
}

#[test]
fn resolved_task_is_shown_with_its_outcome() {
    let place = TestDir::new();
    let dev = LocalCluster::start(&place, &[]);
    let muster = &dev.muster;
    let task = |guid: &str, script: &str| {
        let text = format!(
            "task_guid = \"{guid}\"\ndomain = \"shop\"\nmemory_mb = 8\nresult_file = \"out\"\n\
             action.run = {{ path = \"sh\", args = [\"-c\", \"{script}\"] }}\n"
        );
        place.write_file(&format!("{guid}.toml"), text).display().to_string()
    };
    for (guid, script, code) in [("good", "sleep 0.2; echo fine > out", 0), ("bad", "exit 4", 1)] {
        let said = muster.run(&["run", &task(guid, script)]);
        place.print_event(&format!("{guid}: {said:?}"));
        assert_eq!(said.code == 0, code == 0, "{said:?}");
    }
    assert_eq!(muster.json("task list --ended"), serde_json::json!([]), "no task is resolved yet");
    muster.ok("task resolve good");
    muster.ok("task resolve bad");
    let rows = muster.json("task list --ended");
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 2, "{rows:#?}");
    let (good, bad) = (&rows[0], &rows[1]);
    assert_eq!(
        (&good["task_guid"], &good["failed"], &good["result"]),
        (&"good".into(), &false.into(), &"fine\n".into())
    );
    assert!(good["duration_ms"].as_u64().unwrap() >= 100, "{good}");
    assert_eq!(
        (&bad["task_guid"], &bad["failed"], &bad["resolved"]),
        (&"bad".into(), &true.into(), &true.into())
    );
    assert!(field(bad, "failure_reason").contains("Exited with status 4"), "{bad}");
    muster.ok("task list --ended").expect_output(&["SUCCEEDED", "FAILED", "fine", "Exited with status 4"]);
    dev.end(&place);
}
