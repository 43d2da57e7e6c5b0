//! `muster dev`: definition file, every command, shutdown and restart.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use serde_json::Value;

use crate::support::containers::{expect_exactly, indices, processes_in, running_in, signal};
use crate::support::test_dir::ensure;
use crate::support::{Muster, Service, TestDir, eventually};

/// First example of the README.
const HELLO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/hello.toml");

/// Returns a process that runs until it is stopped.
pub(crate) fn sleeper(guid: &str, instances: usize) -> String {
    format!(
        "process_guid = \"{guid}\"\ndomain = \"shop\"\ninstances = {instances}\nmemory_mb = 8\n\
         action.run = {{ path = \"sleep\", args = [\"100000\"] }}\n"
    )
}

/// Local cluster under test.
pub(crate) struct LocalCluster {
    pub(crate) service: Service,
    pub(crate) muster: Muster,
}

impl LocalCluster {
    /// Starts a local cluster with its data in `place`. `file` is appended to the arguments of the command.
    /// It can contain the path of a file that the cluster desires at the start.
    pub(crate) fn start(place: &TestDir, file: &[&str]) -> Self {
        Self::start_with(place, file, &[])
    }

    /// Starts a local cluster with additional environment variables.
    pub(crate) fn start_with(place: &TestDir, file: &[&str], variables: &[(&str, &str)]) -> Self {
        let data = place.path().join("data");
        let args: Vec<&str> = ["dev"].iter().chain(file).copied().collect();
        let args: Vec<&str> = args.into_iter().chain(["--plain", "--data", data.to_str().unwrap()]).collect();
        let service = Service::start("dev", &place.path().join("dev.log"), &args, variables);
        place.print_event("start dev");
        let muster = Muster::local(&data);
        eventually("three cells are present", || {
            let row = muster.try_json("cluster show")?;
            ensure(row["cells"]["PRESENT"] == 3, || row.to_string())
        });
        Self { service, muster }
    }

    /// Stops the cluster like Ctrl-C. No process, socket or lock may be left.
    pub(crate) fn end(self, place: &TestDir) {
        place.print_event("Ctrl-C");
        let status = self.service.interrupt();
        assert_eq!(status.code(), Some(0));
        assert_eq!(processes_in(place.path()), []);
        assert!(!place.path().join("data/muster.sock").exists());
        assert!(!place.path().join("data/owner.lock").exists());
    }
}

/// Sends a request to a web server and returns the body of the answer.
fn http(address: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{address}: {error}");
    let mut connection = TcpStream::connect(address).map_err(failed)?;
    connection.write_all(b"GET /here HTTP/1.1\r\nHost: localhost\r\n\r\n").map_err(failed)?;
    let mut text = String::new();
    connection.read_to_string(&mut text).map_err(failed)?;
    let body = text.strip_prefix("HTTP/1.1 200 OK\r\n").and_then(|rest| rest.split_once("\r\n\r\n"));
    body.map(|(_, body)| body.to_owned()).ok_or(text)
}

fn address(row: &Value) -> String {
    format!("{}:{}", row["address"].as_str().unwrap(), row["ports"][0]["host_port"])
}

/// Returns the instance guids of rows by index.
fn guids(rows: &[Value]) -> BTreeMap<u64, String> {
    let guid =
        |row: &Value| (row["index"].as_u64().unwrap(), row["instance_guid"].as_str().unwrap().to_owned());
    rows.iter().map(guid).collect()
}

#[test]
fn desired_file_runs_and_commands_show_it() {
    let place = TestDir::new();
    let dev = LocalCluster::start(&place, &[HELLO]);
    let muster = &dev.muster;

    let rows = muster.wait_until_running("web", 3);
    let cells: BTreeSet<&str> = rows.iter().map(|row| row["cell_id"].as_str().unwrap()).collect();
    assert_eq!(cells.len(), 3, "each instance is on another cell: {rows:#?}");
    for row in &rows {
        let said =
            format!("hello from instance {} on cell {}\n", row["index"], row["cell_id"].as_str().unwrap());
        assert_eq!(http(&address(row)).unwrap(), said);
    }
    place.print_event("three web servers answer");

    let task = eventually("the task succeeds", || {
        let row = muster.try_json("task show greet")?;
        ensure(row["state"] == "COMPLETED", || row.to_string()).map(|()| row)
    });
    assert_eq!((&task["failed"], &task["result"]), (&false.into(), &"hello, world\n".into()));

    instance_commands_work(&place, muster);
    log_commands_work(&place, muster);
    cluster_commands_work(muster);

    let crashed = eventually("the crasher waits for its delayed restart", || {
        let row = muster.instances("crasher")?.remove(0);
        ensure(row["state"] == "CRASHED", || row.to_string()).map(|()| row)
    });
    assert_eq!(crashed["crash_count"], 4, "three immediate restarts: {crashed}");
    assert_eq!(crashed["crash_reason"], "Exited with status 3");
    muster.ok("logs crasher/0").expect_output(&["attempt on c"]);
    assert!(crashed["restart_at"].as_str().unwrap() > crashed["since"].as_str().unwrap());
    let history = muster.json("history instance crasher/0");
    let started = history.to_string().matches("started.v1").count();
    assert_eq!(started, 4, "{history:#}");
    dev.end(&place);
}

fn instance_commands_work(place: &TestDir, muster: &Muster) {
    let rows = muster.wait_until_running("web", 3);
    let guid = rows[1]["instance_guid"].as_str().unwrap();
    for id in ["web/1", "web/1@web", guid, &guid[28..]] {
        assert_eq!(muster.json(&format!("instance show {id}"))["instance_guid"], guid, "{id}");
    }
    muster.ok("instance list").expect_output(&["web/0", "web/1", "web/2", "crasher/0", "RUNNING"]);
    let running = muster.json("instance list --state running --cell c1");
    assert!(running.as_array().unwrap().iter().all(|row| row["cell_id"] == "c1"), "{running}");

    muster.ok("logs web/1").expect_output(&["instance 1 listens on"]);
    let follower = place.path().join("follower.log");
    let mut logs = muster.start(&follower, &["logs", "-f", "web/1"]);
    logs.wait_for_log("instance 1 listens on");
    http(&address(&rows[1])).unwrap();
    logs.wait_for_log("GET /here HTTP/1.1");
    assert_eq!(logs.interrupt().code(), Some(0));
    let all = muster.ok("logs web -o jsonl").out;
    for source in ["web/0", "web/1", "web/2"] {
        assert!(all.contains(&format!("\"source\":\"{source}\"")), "{all}");
    }

    muster.ok("instance stop web/1");
    eventually("another instance replaces it", || {
        let rows = muster.instances("web")?;
        let fine = rows.len() == 3 && rows.iter().all(|row| row["state"] == "RUNNING");
        ensure(fine && guids(&rows)[&1] != guid, || format!("{rows:#?}"))
    });
    let why = muster.json("why web/1");
    let steps = why["chain"].as_array().unwrap();
    let first = &steps.last().unwrap()["decision"];
    assert!(
        first["actor"]["client"].is_object() && first["cause"].is_null(),
        "the chain ends with a command: {why:#}"
    );
    muster.ok("why web/1").expect_output(&["web/1", "claimed by"]);
}

fn log_commands_work(place: &TestDir, muster: &Muster) {
    let before = muster.json("lrp update web --annotation told")["position"].as_u64().unwrap() - 1;
    let after = before.to_string();
    let args = ["events", "tail", "--about", "lrp:web", "--after", &after];
    let mut tail = muster.start(&place.path().join("tail.log"), &args);
    tail.wait_for_log("web: annotation changed");
    muster.ok("instance stop web/2");
    tail.wait_for_log("web/2: stop requested");
    assert_eq!(tail.interrupt().code(), Some(0));
    muster.wait_until_running("web", 3);

    let events = muster.json("events list");
    let events = events.as_array().unwrap();
    for (at, entry) in events.iter().enumerate() {
        assert_eq!(entry["position"], at as u64 + 1, "the positions have no gap");
        assert!(entry["entry"]["known"].is_object(), "{entry}");
    }
    let shown = muster.json("events show 1");
    assert_eq!(shown["entry"]["known"]["decisions"][0]["events"][0]["cluster"].as_object().unwrap().len(), 1);
    muster.exits(3, "events show 1000000000").expect_output(&["the log ends at position"]);
    let about = muster.json("events list --about task:greet");
    assert!(about.as_array().unwrap().len() >= 3, "{about:#}");

    for (what, least) in [("lrp web", 7), ("instance web/0", 3), ("task greet", 3), ("cell c1", 1)] {
        let history = muster.json(&format!("history {what}"));
        assert!(history.as_array().unwrap().len() >= least, "{what}: {history:#}");
        muster.ok(&format!("history {what}"));
    }
    let web = muster.json("instance show web/0");
    let guid = web["instance_guid"].as_str().unwrap();
    let history = muster.json(&format!("history instance {guid}")).to_string();
    assert!(history.contains("claimed.v1") && history.contains("started.v1"), "{history}");
    muster.exits(3, "history lrp nothing");
}

fn cluster_commands_work(muster: &Muster) {
    let cells = muster.json("cell list");
    let zones: Vec<_> = cells.as_array().unwrap().iter().map(|row| &row["presence"]["zone"]).collect();
    assert_eq!(zones, ["z1", "z2", "z1"]);
    assert_eq!(muster.json("cell show c2")["state"], "PRESENT");
    muster.ok("cell show c2").expect_output(&["c2", "web/"]);
    let cluster = muster.json("cluster show");
    assert_eq!((&cluster["durability"], &cluster["found_by_convergence"]), (&"synced".into(), &0.into()));

    muster.ok("domain refresh shop --ttl 1h");
    let domains = muster.json("domain list");
    let shop = domains.as_array().unwrap().iter().find(|row| row["domain"] == "shop").unwrap();
    assert!(shop["fresh"] == true && shop["expires_at"].is_string(), "{shop}");

    let evaluations = muster.json("evaluation list --lrp web");
    let id = evaluations[0]["evaluation"]["id"].as_str().unwrap();
    let one = muster.json(&format!("evaluation show {id}"));
    assert_eq!(one["evaluation"]["subject"]["process"], "web");
    muster.ok(&format!("evaluation show {}", &id[30..])).expect_output(&["process web"]);
}

#[test]
fn every_command_has_its_documented_effect() {
    let place = TestDir::new();
    let dev = LocalCluster::start(&place, &[]);
    let muster = &dev.muster;
    processes_are_changed(&place, muster);
    definition_ids_are_shown(&place, muster);
    tasks_are_run(&place, muster);
    periodic_task_is_applied_once(&place, muster);
    each_failure_has_its_exit_status(&place, muster);
    dev.end(&place);
}

/// Checks that every command shows a definition if the id of the definition differs from the guid of its
/// process.
fn definition_ids_are_shown(place: &TestDir, muster: &Muster) {
    assert!(!muster.ok("instance list").out.contains("DEFINITION"));
    let says =
        "action.run = { path = \"sh\", args = [\"-c\", \"echo runs $MUSTER_DEFINITION_ID; sleep 100000\"] }";
    let text = format!(
        "process_guid = \"blue\"\ndomain = \"shop\"\ndefinition_id = \"v2\"\nmemory_mb = 8\n{says}\n"
    );
    let file = place.write_file("blue.toml", text);
    muster
        .ok(&format!("apply {}", file.display()))
        .expect_output(&["process blue desired: 1 instance running"]);
    let row = muster.json("instance show blue/0@v2");
    assert_eq!((&row["index"], &row["definition_id"]), (&0.into(), &"v2".into()));
    assert_eq!(muster.json("instance show blue/0")["instance_guid"], row["instance_guid"]);
    muster.ok("instance list --lrp blue").expect_output(&["INSTANCE   DEFINITION", "blue/0     v2"]);
    eventually("its log shows its definition id", || {
        let logs = muster.run(&["logs", "blue/0@v2"]);
        ensure(logs.out.contains("runs v2"), || format!("{logs:?}"))
    });
    muster.ok("history instance blue/0").expect_output(&["blue/0@v2: created, waiting for placement"]);
    muster.ok("history instance blue/0@v2").expect_output(&["blue/0@v2: created, waiting for placement"]);
    muster.ok("why blue/0@v2").expect_output(&["blue/0@v2 is RUNNING on", "blue/0@v2: claimed by"]);
    let stopped = muster.json("instance stop blue/0@v2");
    assert_eq!((&stopped["index"], &stopped["definition_id"]), (&0.into(), &"v2".into()));

    for unknown in ["show", "stop", "logs"] {
        let said = muster.exits(3, &format!("instance {unknown} blue/0@v1"));
        said.expect_output(&["instance blue/0@v1 does not exist", "muster instance list --lrp blue"]);
    }
    muster.exits(3, "history instance blue/0@v1");
    for (bad, why) in [
        ("instance show blue/0@", "\"\" is not a valid definition id"),
        ("instance stop blue/0@v2@v3", "as in blue/0@v2"),
        ("logs blue/first@v2", "expected a number, as in blue/0"),
        ("why blue@v2", "PROCESS/INDEX[@DEFINITION]"),
    ] {
        let said = muster.exits(2, bad);
        assert!(said.err.contains(why), "{said:?}");
    }
    muster.ok("lrp delete blue");
}

fn processes_are_changed(place: &TestDir, muster: &Muster) {
    let file = place.write_file("web.toml", sleeper("web", 2));
    let said = muster.ok(&format!("apply {}", file.display()));
    said.expect_output(&["process web desired: 2 instances running"]);
    expect_exactly(place.path(), &["web/0", "web/1"]).unwrap();
    let before = guids(&muster.wait_until_running("web", 2));

    let scaled = muster.json("lrp scale web=4 --reason holidays");
    assert_eq!((&scaled["action"], &scaled["carried_out"]), (&"scaled".into(), &true.into()));
    let works = indices("web", 4);
    expect_exactly(place.path(), &works.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    assert!(muster.json("history lrp web").to_string().contains("holidays"));

    muster.ok("lrp scale web 2");
    expect_exactly(place.path(), &["web/0", "web/1"]).unwrap();
    assert_eq!(guids(&muster.wait_until_running("web", 2)), before, "scaling keeps the other instances");

    let routes = place.write_file("routes.json", r#"{"my-router": [{"port": 1}]}"#);
    muster.ok(&format!("lrp update web --annotation new --routes {}", routes.display()));
    let row = muster.json("lrp show web");
    assert_eq!(
        (&row["annotation"], &row["instances"], &row["running"]),
        (&"new".into(), &2.into(), &2.into())
    );
    assert_eq!(row["routes"]["my-router"], r#"[{"port":1}]"#);
    assert_eq!(row["definitions"][row["definition_id"].as_str().unwrap()]["memory_mb"], 8);
    assert_eq!(guids(&muster.wait_until_running("web", 2)), before, "an update restarts nothing");
    let version = row["version"].as_u64().unwrap();

    // A repeated request is carried out once. Repeating a request after a later request does not undo the
    // later request.
    let first = muster.json("lrp scale web=3 --request-id first");
    muster.ok("lrp scale web=1 --request-id second");
    let again = muster.json("lrp scale web=3 --request-id first --detach");
    assert_eq!(first["version"], again["version"], "the version was {version} before");
    assert_eq!(muster.json("lrp show web")["instances"], 1);
    muster.wait_until_running("web", 1);

    muster.ok("lrp list").expect_output(&["web", "shop"]);
    muster.ok("lrp delete web").expect_output(&["process web deleted"]);
    expect_exactly(place.path(), &[]).unwrap();
    muster.exits(3, "lrp show web");
    // A guid that is free again can be reused.
    muster.ok(&format!("apply {} --detach", file.display()));
    muster.wait_until_running("web", 2);
    muster.ok("lrp delete web");
}

fn tasks_are_run(place: &TestDir, muster: &Muster) {
    let task = |guid: &str, script: &str| {
        let spec = serde_json::json!({
            "task_guid": guid, "domain": "shop", "memory_mb": 8, "result_file": "result",
            "action": {"run": {"path": "sh", "args": ["-c", script]}},
        });
        place.write_file(&format!("{guid}.json"), spec.to_string()).display().to_string()
    };
    let said = muster.ok(&format!("run {}", task("sum", "echo summing; echo 42 > result")));
    assert_eq!(said.out, "42\n");
    muster.ok("logs sum").expect_output(&["summing"]);
    muster.ok("task list").expect_output(&["sum", "SUCCEEDED"]);
    muster.ok("task resolve sum");
    muster.exits(3, "task show sum");
    assert!(muster.json("history task sum").as_array().unwrap().len() >= 4);

    let failed = muster.exits(1, &format!("run -o json {}", task("bad", "exit 7")));
    assert_eq!(failed.json()["failure_reason"], "Exited with status 7");
    assert_eq!(failed.refusal()["code"], "TaskFailed");

    muster.ok(&format!("run --detach {}", task("long", "echo begun; sleep 100000")));
    eventually("the long task runs", || expect_exactly(place.path(), &["task long"]));
    eventually("its output is logged", || {
        let logs = muster.run(&["logs", "long"]);
        ensure(logs.out.contains("begun"), || format!("{logs:?}"))
    });
    muster.exits(4, "task resolve long").expect_output(&["InvalidStateTransition"]);
    muster.ok("task cancel long");
    eventually("the container of the cancelled task is gone", || expect_exactly(place.path(), &[]));
    let row = muster.json("task show long");
    assert_eq!((&row["state"], &row["failure_reason"]), (&"COMPLETED".into(), &"cancelled".into()));
}

fn periodic_task_is_applied_once(place: &TestDir, muster: &Muster) {
    let text = |hour: u8| {
        format!(
            "periodic_guid = \"yearly\"\ndomain = \"shop\"\ncron = \"0 {hour} 1 1 *\"\nmemory_mb = 8\naction.run.path = \"true\"\n"
        )
    };
    let apply = |hour| muster.ok(&format!("apply {}", place.write_file("yearly.toml", text(hour)).display()));
    apply(1).expect_output(&["periodic task yearly desired"]);
    apply(1).expect_output(&["periodic task yearly unchanged"]);
    apply(2).expect_output(&["periodic task yearly updated"]);
    muster.ok("periodic delete yearly");
}

fn each_failure_has_its_exit_status(place: &TestDir, muster: &Muster) {
    muster.exits(2, "lrp scale web=many");
    for unknown in [
        "lrp show nothing",
        "lrp delete nothing",
        "instance show web/7",
        "task cancel nothing",
        "cell show c9",
        "evaluation show deadbeef",
        "logs nothing/0",
    ] {
        let said = muster.exits(3, unknown);
        assert!(said.err.contains("ResourceNotFound"), "{said:?}");
    }

    let file = place.write_file("one.toml", sleeper("one", 1)).display().to_string();
    muster.ok(&format!("apply {file}"));
    let foreign =
        place.write_file("foreign.toml", sleeper("one", 1).replace("shop", "office")).display().to_string();
    let said = muster.exits(4, &format!("apply {foreign} -o json"));
    assert_eq!(said.refusal()["code"], "ResourceExists");

    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    muster.exits(5, &format!("cell list --nats nats://{nowhere}")).expect_output(&["server unreachable"]);
    let nobody = place.path().join("no.sock").display().to_string();
    muster.exits(5, &format!("cell list --socket {nobody}")).expect_output(&["muster dev"]);

    let large = sleeper("large", 1).replace("memory_mb = 8", "memory_mb = 1000000000");
    let large = place.write_file("large.toml", large).display().to_string();
    let said = muster.exits(6, &format!("apply {large}"));
    said.expect_output(&["large/0 is not placed: insufficient resources: memory", "muster cell list"]);
    muster.ok("lrp delete large");

    let slow = format!("{}monitor.run.path = \"false\"\n", sleeper("slow", 1));
    let slow = place.write_file("slow.toml", slow).display().to_string();
    muster
        .exits(8, &format!("apply {slow} --timeout 1s"))
        .expect_output(&["did not reach the desired state within 1s"]);
    muster.ok("lrp delete slow");
    // Ctrl-C stops the client from waiting. The command is still carried out.
    let mut waits = muster.start(&place.path().join("waits.log"), &["apply", &slow]);
    waits.wait_for_log("slow/0 is not healthy yet");
    let said = place.path().join("waits.log");
    assert_eq!(waits.interrupt().code(), Some(130));
    let said = std::fs::read_to_string(said).unwrap();
    assert!(
        said.contains("process slow desired; the change is still in progress, see muster lrp show slow"),
        "{said}"
    );
    assert_eq!(muster.json("lrp show slow")["desired"], true);
    muster.ok("lrp delete slow");

    let data = place.path().join("data").display().to_string();
    let second = muster.exits(1, &format!("dev --data {data}"));
    second.expect_output(&["is in use by process"]);
    muster.ok("lrp show one");
}

#[test]
fn restart_resumes_processes_and_skips_finished_tasks() {
    let place = TestDir::new();
    let file = place.write_file("stack.toml", stack_with_task());
    let file = file.to_str().unwrap();
    let dev = LocalCluster::start(&place, &[file]);
    dev.muster.wait_until_running("web", 3);
    dev.muster.ok("lrp scale web=2 --reason fewer");
    let before = dev.muster.json("history lrp web");
    eventually("the task has ended", || dev.muster.try_json("task resolve migrate"));
    dev.end(&place);

    let dev = LocalCluster::start(&place, &[file]);
    eventually("dev reports that the task ran before", || {
        let log = std::fs::read_to_string(place.path().join("dev.log")).unwrap();
        ensure(log.contains("task migrate ran at an earlier start and is not run again"), || log.clone())
    });
    dev.muster.exits(3, "task show migrate");
    eventually("the desired instances run again", || expect_exactly(place.path(), &["web/0", "web/1"]));
    let after = dev.muster.json("history lrp web");
    let [before, after] = [before, after].map(|history| history.as_array().unwrap().clone());
    assert_eq!(after[..before.len()], before, "the history is kept");

    let (rows, running) = (dev.muster.wait_until_running("web", 2), running_in(place.path()));
    place.print_event(&format!("kill -9 dev (pid {})", dev.service.pid()));
    dev.service.kill9();
    assert_eq!(running_in(place.path()), running, "containers outlive dev");
    let dev = LocalCluster::start(&place, &["--rerun", file]);
    eventually("the task runs again", || dev.muster.try_json("task resolve migrate"));
    dev.muster.ok("lrp scale web=2");
    assert_eq!(
        guids(&dev.muster.wait_until_running("web", 2)),
        guids(&rows),
        "the same containers are adopted"
    );
    assert_eq!(running_in(place.path()), running);

    container_that_died_while_stopped_is_replaced(&place, dev);
}

/// Returns a file with a process of three instances, and a task that ends at once.
fn stack_with_task() -> String {
    let web = sleeper("web", 3).replace("domain = \"shop\"\n", "");
    format!(
        "domain = \"shop\"\n[[lrp]]\n{web}[[task]]\ntask_guid = \"migrate\"\nmemory_mb = 8\naction.run.path = \"true\"\n"
    )
}

fn container_that_died_while_stopped_is_replaced(place: &TestDir, dev: LocalCluster) {
    place.print_event("kill -9 dev, and a container");
    let old = guids(&dev.muster.wait_until_running("web", 2));
    dev.service.kill9();
    for process in processes_in(place.path()).iter().filter(|process| process.guid.as_ref() == Some(&old[&0]))
    {
        signal(process.pid, rustix::process::Signal::KILL);
    }
    eventually("the container has ended", || expect_exactly(place.path(), &["web/1"]));
    let dev = LocalCluster::start(place, &[]);
    let new = eventually("the instance is replaced", || {
        let new = guids(&dev.muster.instances("web")?.into_iter().filter(is_running).collect::<Vec<_>>());
        ensure(new.len() == 2 && new[&0] != old[&0], || format!("{new:?}")).map(|()| new)
    });
    assert_eq!(new[&1], old[&1]);
    eventually("each instance runs once", || expect_exactly(place.path(), &["web/0", "web/1"]));
    dev.end(place);
}

fn is_running(row: &Value) -> bool {
    row["state"] == "RUNNING"
}

/// Starts a local cluster without `--data`. The data of this cluster is in the user's runtime folder.
fn start_scratch(place: &TestDir, file: &Path) -> (Service, Muster) {
    let folder = place.path().display().to_string();
    let args = ["dev", "--plain", file.to_str().unwrap()];
    let service =
        Service::start("dev", &place.path().join("dev.log"), &args, &[("XDG_RUNTIME_DIR", &folder)]);
    (service, Muster::local(&place.path().join("muster")))
}

#[test]
fn start_without_data_folder_founds_a_new_cluster() {
    let place = TestDir::new();
    let file = place.write_file("web.toml", sleeper("web", 2));
    let (dev, muster) = start_scratch(&place, &file);
    let first = eventually("the cluster is founded", || muster.try_json("cluster show"));
    let old = guids(&muster.wait_until_running("web", 2));
    place.print_event("kill -9 dev");
    dev.kill9();

    let (dev, muster) = start_scratch(&place, &file);
    let second = eventually("the cluster is founded", || muster.try_json("cluster show"));
    assert_ne!(first["cluster_id"], second["cluster_id"]);
    let new = guids(&muster.wait_until_running("web", 2));
    assert!(new.values().all(|guid| !old.values().any(|gone| gone == guid)), "{old:?} {new:?}");
    expect_exactly(place.path(), &["web/0", "web/1"]).unwrap();
    assert_eq!(dev.interrupt().code(), Some(0));
    assert_eq!(processes_in(place.path()), []);
    assert!(!place.path().join("muster/journal.db").exists());
}
