//! Differences between a file and the cluster, several items in one file, and the options that locate the
//! cluster.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::dev::{LocalCluster, sleeper};
use crate::support::{Muster, Service, TestDir, eventually};

/// Writes a file with several processes and returns its path.
fn write_processes(place: &TestDir, name: &str, all: &[(&str, usize)]) -> String {
    let one = |(guid, instances): &(&str, usize)| format!("[[lrp]]\n{}", sleeper(guid, *instances));
    let text: Vec<String> = all.iter().map(one).collect();
    place.write_file(name, text.join("\n")).display().to_string()
}

#[test]
fn each_item_of_a_file_has_its_own_outcome() {
    let place = TestDir::new();
    let dev = LocalCluster::start(&place, &[]);
    let muster = &dev.muster;
    let first = write_processes(&place, "first.toml", &[("one", 1)]);
    muster.ok(&format!("apply {first}"));
    let both = write_processes(&place, "both.toml", &[("one", 1), ("two", 1)]);
    let text = std::fs::read_to_string(&both).unwrap().replacen("shop", "office", 1);
    std::fs::write(&both, text).unwrap();
    let said = muster.exits(4, &format!("apply {both}"));
    said.expect_output(&[
        "can't apply process one",
        "process two desired: 1 instance running",
        "1 of 2 failed",
    ]);
    let said = muster.exits(3, "lrp scale gone=1 two=2");
    said.expect_output(&["can't change process gone", "process two scaled: 2 instances running"]);

    let task = |guid: &str, script: &str| {
        format!(
            "[[task]]\ntask_guid = {guid:?}\ndomain = \"shop\"\nmemory_mb = 8\nresult_file = \"r\"\n\
                 action.run = {{ path = \"sh\", args = [\"-c\", {script:?}] }}\n"
        )
    };
    let tasks = [task("bad", "exit 7"), task("worse", "exit 8"), task("good", "echo fine > r")].join("\n");
    let tasks = place.write_file("tasks.toml", tasks).display().to_string();
    let said = muster.exits(1, &format!("run {tasks}"));
    said.expect_output(&[
        "task bad failed",
        "task worse failed",
        "Exited with status 8",
        "fine",
        "2 of 3 failed",
    ]);

    let other = sleeper("one", 1).replace("shop", "office");
    let other = place.write_file("other.toml", other).display().to_string();
    muster.exits(4, &format!("apply {other}")).expect_output(&["process one exists in domain shop"]);
    muster.exits(3, "lrp delete one --domain office").expect_output(&["in domain office does not exist"]);
    let doubled = place.write_file("doubled.json", r#"{"process_guid": "x", "process_guid": "y"}"#);
    muster
        .exits(1, &format!("apply {}", doubled.display()))
        .expect_output(&["process_guid", "is given twice"]);
    dev.end(&place);
}

#[test]
fn changed_file_is_reported_and_changes_nothing() {
    let place = TestDir::new();
    let file = write_processes(&place, "file.toml", &[("web", 1)]);
    let dev = LocalCluster::start(&place, &[&file]);
    dev.muster.wait_until_running("web", 1);
    dev.muster.ok(&format!("apply --dry-run {file}")).expect_output(&["process web matches the file"]);
    let changed = std::fs::read_to_string(&file).unwrap().replace("instances = 1", "instances = 2");
    std::fs::write(&file, changed.replace("memory_mb = 8", "memory_mb = 9")).unwrap();
    let said = dev.muster.exits(13, &format!("apply --dry-run {file}"));
    said.expect_output(&["instances", "1 -> 2", "memory_mb", "8 -> 9"]);
    let said = dev.muster.exits(13, &format!("apply --dry-run {file} -o json")).json();
    assert_eq!(said["processes"][0]["differences"].as_array().unwrap().len(), 2, "{said}");
    dev.end(&place);

    let mut dev = LocalCluster::start(&place, &[&file]);
    dev.service.wait_for_log("process web already exists and was not changed; 2 fields differ");
    dev.muster.wait_until_running("web", 1);
    assert_eq!(dev.muster.json("lrp show web")["instances"], 1);
    dev.end(&place);
    let new = write_processes(&place, "new.toml", &[("new", 1)]);
    let dev = LocalCluster::start(&place, &[]);
    dev.muster
        .exits(13, &format!("apply --dry-run {new}"))
        .expect_output(&["process new would be desired: 1 instance"]);
    dev.end(&place);
}

#[test]
fn scratch_cluster_refuses_foreign_folder_and_socket() {
    let place = TestDir::new();
    let home = place.path().display().to_string();
    let folder = place.path().join("muster");
    let start = |args: &[&str], log: &str| {
        let args: Vec<&str> = ["dev", "--plain"].iter().chain(args).copied().collect();
        Service::start("dev", &place.path().join(log), &args, &[("XDG_RUNTIME_DIR", &home)])
    };
    // The folder contains data of a user.
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::write(folder.join("journal.db"), "precious").unwrap();
    let mut refused = start(&[], "a.log");
    refused.wait_for_log("is not a scratch folder");
    assert_eq!(refused.wait().code(), Some(1));
    assert_eq!(std::fs::read_to_string(folder.join("journal.db")).unwrap(), "precious");
    // The folder is a link to another folder.
    std::fs::rename(&folder, place.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(place.path().join("elsewhere"), &folder).unwrap();
    let mut refused = start(&[], "b.log");
    refused.wait_for_log("is a link");
    assert_eq!(refused.wait().code(), Some(1));
    std::fs::remove_file(&folder).unwrap();

    let socket = place.path().join("own.sock");
    let dev = start(&["--socket", socket.to_str().unwrap()], "c.log");
    let muster = Muster::socket(&socket);
    eventually("the cluster is founded", || muster.try_json("cluster show"));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&folder.join("journal.db"))), (0o700, 0o600));
    assert!(dev.log().contains(socket.to_str().unwrap()) && dev.log().contains("logs: "), "{}", dev.log());
    assert_eq!(dev.interrupt().code(), Some(0));
    assert!(!folder.exists() && !socket.exists(), "the folder and the socket are removed");

    // A file at the path of the socket is left unchanged.
    std::fs::write(&socket, "precious").unwrap();
    let mut refused = start(&["--socket", socket.to_str().unwrap()], "d.log");
    refused.wait_for_log("is not a socket of this user");
    assert_eq!(refused.wait().code(), Some(1));
    assert_eq!(std::fs::read_to_string(&socket).unwrap(), "precious");
}

/// Option, variable and value of each way to locate the cluster. The value appears in the error message.
const LOCATIONS: [(&str, &str, &str); 3] = [
    ("nats", "MUSTER_NATS_URL", "nats://127.0.0.1:1/"),
    ("socket", "MUSTER_SOCKET", "/nowhere/"),
    ("data", "MUSTER_DATA", "/nowhere/"),
];

#[test]
fn flags_override_environment_and_environment_overrides_file() {
    let place = TestDir::new();
    for (named, variable, at) in LOCATIONS {
        for (others, other_variable, _) in LOCATIONS {
            let (flag, environment, file) =
                (format!("{at}flag"), format!("{at}environment"), format!("{at}file"));
            let config = place.write_file("muster.toml", format!("{others} = \"/nowhere/other\"\n"));
            let config = config.to_str().unwrap().to_owned();
            // The flag takes precedence over the variable.
            let muster = Muster::with(other_variable, "/nowhere/other");
            let said = muster
                .run(&["cell", "list", &format!("--{named}"), &flag, "--config", &config])
                .expect_status(5);
            assert!(said.err.contains(&flag) && !said.err.contains("other"), "{named} {others}: {said:?}");
            // The variable takes precedence over the file.
            let muster = Muster::with(variable, &environment);
            let said = muster.run(&["cell", "list", "--config", &config]).expect_status(5);
            assert!(
                said.err.contains(&environment) && !said.err.contains("other"),
                "{named} {others}: {said:?}"
            );
            // An empty variable is ignored, so the file is used.
            let config = place.write_file("alone.toml", format!("{named} = {file:?}\n"));
            let said =
                Muster::with(variable, "").run(&["cell", "list", "--config", config.to_str().unwrap()]);
            assert!(said.expect_status(5).err.contains(&file), "{named}");
        }
    }
    // The credentials file is read before the connection is made.
    let config =
        place.write_file("muster.toml", "creds = \"/nowhere/file.creds\"\nnats = \"nats://127.0.0.1:1\"\n");
    let config = config.to_str().unwrap();
    let creds = |muster: &Muster, args: &[&str]| {
        let args: Vec<&str> = ["cell", "list", "--config", config].iter().chain(args).copied().collect();
        muster.run(&args).err
    };
    let (none, named) =
        (Muster::with("MUSTER_NATS_CREDS", ""), Muster::with("MUSTER_NATS_CREDS", "/nowhere/env.creds"));
    assert!(creds(&none, &[]).contains("/nowhere/file.creds"));
    assert!(creds(&named, &[]).contains("/nowhere/env.creds"));
    assert!(creds(&named, &["--creds", "/nowhere/flag.creds"]).contains("/nowhere/flag.creds"));
}
