//! Tests of `what-if` on a running cluster and on a stopped cluster.

use serde_json::{Value, json};

use crate::dev::{LocalCluster, sleeper};
use crate::support::{Muster, TestDir};

/// Returns the position of the newest event in the log.
fn last_position(muster: &Muster) -> u64 {
    let listed = muster.json("events list");
    listed.as_array().unwrap().iter().filter_map(|one| one["position"].as_u64()).max().unwrap()
}

/// Returns the moves of the instances of a process.
fn moves<'a>(answer: &'a Value, process: &str) -> Vec<&'a Value> {
    let all = answer["moves"].as_array().unwrap().iter();
    all.filter(|one| one["what"].as_str().unwrap().starts_with(&format!("{process}/"))).collect()
}

#[test]
fn what_if_reports_effects_and_writes_nothing() {
    let place = TestDir::new();
    let dev = LocalCluster::start(&place, &[]);
    let (muster, web) = (&dev.muster, place.write_file("web.toml", sleeper("web", 3)).display().to_string());
    muster.ok(&format!("apply {web}"));
    let rows = muster.wait_until_running("web", 3);
    let before = last_position(muster);

    let nothing = muster.ok("what-if -o json").json();
    assert_eq!((&nothing["moves"], &nothing["fits"]), (&json!([]), &json!(true)), "{nothing:#}");
    assert_eq!(nothing["position"], json!(before));
    muster.ok("what-if").expect_output(&["nothing would change (at rest after "]);

    // If a cell is lost, its instances move, and all other instances stay.
    let lost = rows[0]["cell_id"].as_str().unwrap();
    let answer = muster.exits(0, "what-if --help").expect_status(0);
    answer.expect_output(&["lose cell c2"]);
    let file =
        place.write_file("changes.txt", format!("# tomorrow\nlose cell {lost}\n")).display().to_string();
    let answer = muster.ok(&format!("what-if -f {file} -o json")).json();
    let [moved] = moves(&answer, "web")[..] else { panic!("expected one move: {answer:#}") };
    assert_eq!((&moved["before"]["cell_id"], &moved["anyway"]), (&json!(lost), &json!(false)));
    assert_eq!(moved["after"]["state"], "RUNNING");
    assert_ne!(moved["after"]["cell_id"], json!(lost));
    assert_eq!(answer["cells"], json!([{"cell_id": lost, "before": "present", "after": "absent"}]));
    assert_eq!(answer["processes"][0]["start_is_recorded"], true);

    // A process that does not fit is reported with the reason. With an additional cell, the process fits.
    let large = sleeper("large", 1).replace("memory_mb = 8", "memory_mb = 900000");
    let large = place.write_file("large.toml", large).display().to_string();
    let changes = place.write_file("large.txt", format!("apply {large}\n")).display().to_string();
    let full = muster.exits(6, &format!("what-if -f {changes} -o json")).json();
    assert_eq!(full["unplaced"][0]["what"], "large/0", "{full:#}");
    assert_eq!(full["unplaced"][0]["error"], "insufficient resources: memory");
    muster
        .exits(6, &format!("what-if -f {changes}"))
        .expect_output(&["large/0 would not be placed: insufficient resources"]);
    let room = format!("add cell big memory=1000000\napply {large}\n");
    let room = place.write_file("room.txt", room).display().to_string();
    let fits = muster.ok(&format!("what-if -f {room} -o json")).json();
    assert_eq!(moves(&fits, "large")[0]["after"]["cell_id"], "big", "{fits:#}");

    assert_past_and_invalid_changes(&place, muster);
    assert_eq!(last_position(muster), before, "nothing was written");
    dev.end(&place);

    // No service is running, so the command reads only the log.
    let muster = Muster::local(&place.path().join("data"));
    let gone = muster.ok(&format!("what-if -f {file} -o json")).json();
    assert_eq!(moves(&gone, "web").len(), 1, "{gone:#}");
}

fn assert_past_and_invalid_changes(place: &TestDir, muster: &Muster) {
    let first = muster.ok("what-if --as-of 1 -o json").json();
    assert_eq!(first["position"], 1);
    muster.exits(2, "what-if --as-of 999999").expect_output(&["position 999999 is beyond "]);
    muster
        .exits(2, "what-if --as-of 1999-01-01T00:00:00Z")
        .expect_output(&["the log starts after 1999-01-01"]);
    muster.exits(2, "what-if --as-of yesterday").expect_output(&["a position such as 41"]);
    muster
        .exits(2, "what-if loose")
        .expect_output(&["change 1 (loose): found `loose`, expected a change: lose cell,"]);
    let ask = |change: &str| {
        let file = place.write_file("bad.txt", format!("{change}\n")).display().to_string();
        muster.run(&["what-if", "-f", &file])
    };
    ask("scale wbe=3").expect_status(3).expect_output(&[
        "can't apply change 1 (scale wbe=3): process wbe does not exist",
        "did you mean web?",
    ]);
    ask("lose cell c9").expect_status(3).expect_output(&["cell c9 does not exist"]);
    ask("apply nowhere.toml").expect_status(1).expect_output(&["can't read nowhere.toml"]);
}
