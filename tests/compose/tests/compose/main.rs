//! Tests the cluster of docker-compose.yml in real containers: commands, kills, evacuation, scaling, and
//! verification of the log.
//!
//! The test needs a Docker engine, Compose 2 or docker-compose 1.29, and `target/release/muster`. It reports
//! missing requirements. No image registry is needed: missing images are built from Debian packages.
//!
//! | file | content |
//! |---|---|
//! | `run.rs` | running programs, waiting |
//! | `engine.rs` | Docker engine, images |
//! | `project.rs` | one cluster, commands to it, its removal |
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the test takes minutes and prints its progress"
)]

mod engine;
mod project;
mod run;

use std::collections::BTreeSet;

use engine::Engine;
use project::Project;
use run::{ensure, eventually};

/// The clusters run one after the other, because each cluster uses a large part of a small machine.
#[test]
fn compose_cluster_works_like_a_cluster_of_processes() {
    let engine = Engine::prepare().unwrap_or_else(|why| panic!("{why}"));
    let project = Project::up(&engine, "muster-test", "");
    project.print_event("started");
    project.wait_for_cells(3);
    project.wait_until_containers_healthy();
    services_have_only_their_own_keys(&project);
    networks_separate_reps_from_database_and_monitoring(&project);
    check_desired_instances_run_in_both_zones(&project);
    check_exec_in_container(&project);
    check_lost_cell_returns(&project);
    check_bbs_failover(&project);
    check_log_survives_server_kill(&project);
    check_evacuated_cell_stays_down(&project);
    check_more_reps_can_be_added(&project);
    check_users_are_added_and_revoked(&project);
    check_log_and_tables_verify(&project);
    project.print_event("done");
    drop(project);
    check_three_servers_survive_loss_of_one(&engine);
}

/// Checks that each container has only the keys of its own role and cell. Also checks that only the services
/// that use the database know its passwords.
fn services_have_only_their_own_keys(project: &Project) {
    let keys = |container: &str| {
        let said = project.sh(container, "cd /etc/muster/auth && find . -type f | sort | tr '\\n' ' '");
        said.into_stdout().unwrap_or_else(|why| panic!("{why}"))
    };
    let rep = project.containers("rep-c2").into_iter().next().expect("cell c2 has a container");
    assert_eq!(
        keys(&rep),
        "./ca.crt ./secrets.keys ./users/rep-c2.crt ./users/rep-c2.key ./users/rep-c2.nk "
    );
    let client = project.container_for("client");
    let users = keys(&client);
    let foreign = |file: &&str| file.starts_with("./users/") && !file.starts_with("./users/client-");
    assert_eq!(users.split_whitespace().find(foreign), None, "{users}");
    assert!(!users.contains("secrets") && !users.contains("pgpass"), "{users}");
    let environment = project.sh(&client, "env").into_stdout().unwrap_or_else(|why| panic!("{why}"));
    assert!(!environment.contains("postgres"), "{environment}");
    let tables = project.operator("sql -o csv SELECT\tcount(*)\tFROM\tclusters");
    assert!(tables.trim_end().ends_with('1'), "the operator can read the tables: {tables}");
    let postgres = project.containers("postgres").into_iter().next().expect("the database has a container");
    let roles =
        "psql -U postgres -d fleet -Atc 'SELECT usename, usesuper, usecreatedb FROM pg_user ORDER BY 1'";
    let roles = project.sh(&postgres, roles).into_stdout().unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(roles, "postgres|t|t\nprojector|f|f\nreader|f|f\n");
    let owner = "psql -U postgres -d fleet -Atc \"SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'muster'\"";
    let owner = project.sh(&postgres, owner).into_stdout().unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(owner, "projector\n");
    for guess in ["muster", "postgres", ""] {
        let login = format!("PGPASSWORD='{guess}' psql -w -h postgres -U postgres -d fleet -c 'SELECT 1'");
        assert_ne!(
            project.sh(&postgres, &login).code,
            Some(0),
            "the database accepts the password {guess:?}"
        );
    }
    project.print_event("each service has its own keys only");
}

/// Checks that a rep reaches NATS. The rep must not reach the database, the monitoring of NATS or a BBS,
/// neither by name nor by address.
fn networks_separate_reps_from_database_and_monitoring(project: &Project) {
    let rep = project.containers("rep-c2").into_iter().next().expect("cell c2 has a container");
    let reaches = |host: &str, port: u16| {
        let dial = format!("timeout 1 bash -c 'exec 3<>/dev/tcp/{host}/{port}'");
        project.sh(&rep, &dial).code == Some(0)
    };
    assert!(reaches("nats", 4222), "the rep does not reach NATS");
    assert!(!reaches("nats", 8222), "the rep reaches the monitoring of NATS");
    for (service, port) in [("postgres", 5432), ("bbs", 9464), ("nats", 8222)] {
        for container in project.containers(service) {
            for address in project.addresses(&container) {
                assert!(!reaches(&address, port), "the rep reaches {service} at {address}:{port}");
            }
        }
    }
    project.print_event("a rep reaches NATS, but neither the database nor a BBS");
}

fn check_desired_instances_run_in_both_zones(project: &Project) {
    project.muster("apply /examples/web.json");
    project.wait_until_running("web", 2);
    project.muster("lrp scale web=6");
    let cells = project.wait_until_running("web", 6);
    let zones: BTreeSet<String> = project
        .cells()
        .unwrap_or_default()
        .into_iter()
        .filter(|(cell, _)| cells.contains(cell))
        .map(|(_, zone)| zone)
        .collect();
    assert_eq!(zones.len(), 2, "{cells:?} are all in {zones:?}");
    let said = project.muster("run /examples/hello.toml");
    assert!(said.contains("hello, world"), "{said}");
    project.wait_until_cluster_healthy();
    let rows = project.json("instance list --lrp web").unwrap_or_else(|why| panic!("{why}"));
    let walls: BTreeSet<&str> =
        rows.as_array().into_iter().flatten().filter_map(|row| row["isolation"].as_str()).collect();
    assert!(!walls.is_empty() && !walls.contains("none"), "the instances are not isolated: {rows:#}");
    project.print_event(&format!("six instances run in two zones, isolation {walls:?}, and a task has run"));
}

/// Checks that a program in a container has a separate terminal and sees only the processes of the container.
fn check_exec_in_container(project: &Project) {
    let said = project.muster_with("instance exec -t web/1 -- sh", "tty; cat /proc/1/comm; pwd; exit\n");
    for answer in ["/dev/pts/0", "shim", "/home/vcap"] {
        // The prompt of the shell may precede the answer.
        assert!(said.lines().any(|line| line.trim_end().ends_with(answer)), "no {answer} in {said}");
    }
    project.print_event("a shell has run in a container");
}

/// Checks that the instances of a lost cell run elsewhere until the cell's container is restarted. The
/// restarted container must have the same cell.
fn check_lost_cell_returns(project: &Project) {
    let cell = "c1";
    let container = project.rep_container(cell);
    // A restarted engine also restarts the containers with this policy, except containers that exited with
    // status 0.
    project.stop(&container);
    assert_eq!(project.inspect(&container, ".HostConfig.RestartPolicy.Name"), "on-failure");
    assert_eq!(project.inspect(&container, ".State.ExitCode"), "143");
    eventually("the cell is lost", || {
        let cells = project.cells()?;
        ensure(!cells.contains_key(cell), || format!("{cells:?}"))
    });
    project.print_event("a cell is lost");
    let cells = project.wait_until_running("web", 6);
    assert!(!cells.contains(cell), "{cells:?}");
    project.print_event("its instances run elsewhere");
    project.start(&container);
    project.wait_for_cells(3);
    assert_eq!(project.rep_container(cell), container);
    project.print_event("a cell was lost, its instances ran elsewhere, and it is back");
}

fn check_bbs_failover(project: &Project) {
    let leader = project.leader("bbs");
    project.kill(&leader);
    project.muster("lrp scale web=4 --timeout 60s");
    project.wait_until_running("web", 4);
    assert_ne!(project.leader("bbs"), leader);
    project.start(&leader);
    project.wait_until_containers_healthy();
    project.print_event("the leading BBS was killed, and another one led");
}

/// Checks that acknowledged commands are in the log, that running instances keep running, and that later
/// commands are carried out.
fn check_log_survives_server_kill(project: &Project) {
    let before = project.json("instance list --lrp web").unwrap_or_else(|why| panic!("{why}"));
    for server in project.containers("nats") {
        project.kill(&server);
        project.start(&server);
    }
    project.muster("lrp scale web=5 --timeout 60s");
    project.wait_until_running("web", 5);
    let after = project.json("instance list --lrp web").unwrap_or_else(|why| panic!("{why}"));
    let guids = |rows: &serde_json::Value| -> BTreeSet<String> {
        rows.as_array().into_iter().flatten().map(|row| row["instance_guid"].to_string()).collect()
    };
    assert!(guids(&before).is_subset(&guids(&after)), "{before:#}\n{after:#}");
    project.wait_until_containers_healthy();
    project.print_event("the NATS server was killed, and the instances kept running");
}

fn check_evacuated_cell_stays_down(project: &Project) {
    let cell = "c2";
    let container = project.rep_container(cell);
    project.operator(&format!("cell evacuate {cell} --wait --timeout 60s"));
    eventually("its rep has exited", || {
        let ended = project.inspect(&container, ".State.Status");
        ensure(ended == "exited", || ended.clone())
    });
    assert_eq!(project.inspect(&container, ".State.ExitCode"), "0");
    let cells = project.wait_until_running("web", 5);
    assert!(!cells.contains(cell), "{cells:?}");
    project.compose(&["up", "-d"]);
    project.wait_for_cells(3);
    project.print_event("a cell was evacuated, stayed down, and came back with docker compose up");
}

fn check_more_reps_can_be_added(project: &Project) {
    project.compose(&["up", "-d", "rep-c4", "rep-c5", "rep-c6"]);
    let cells = project.wait_for_cells(6);
    let expected: Vec<String> = (1..=6).map(|number| format!("c{number}")).collect();
    assert_eq!(cells.keys().cloned().collect::<Vec<_>>(), expected);
    project.muster("lrp scale web=12");
    assert_eq!(project.wait_until_running("web", 12).len(), 6);
    project.print_event("six reps have one cell and two instances each");
}

/// Checks that a new user can connect after the server has reloaded its users, and that the user's commands
/// act in the user's domain.
fn check_users_are_added_and_revoked(project: &Project) {
    project.compose(&["run", "--rm", "auth", "add", "client", "shop", "client"]);
    project.compose(&["kill", "-s", "HUP", "nats"]);
    let creds = "/etc/muster/auth/users/client-shop-client";
    let as_shop =
        format!("run - --creds {creds}.nk --tls-cert {creds}.crt --tls-key {creds}.key --domain shop");
    let task = r#"{"task_guid": "count", "domain": "shop", "result_file": "sum",
        "action": {"run": {"path": "sh", "args": ["-c", "echo $((6 * 7)) > sum"]}}}"#;
    let said = project.muster_with(&as_shop, task);
    assert!(said.contains("42"), "{said}");
    project.compose(&["run", "--rm", "auth", "revoke", "client-shop-client"]);
    project.compose(&["kill", "-s", "HUP", "nats"]);
    project.print_event("a user was added and revoked");
}

fn check_log_and_tables_verify(project: &Project) {
    let said = project.operator("audit verify");
    assert!(said.contains("every decision was legal"), "{said}");
    // The projector's container runs this command, because this service may follow the log.
    let tables = project.compose(&["run", "--rm", "projector", "projection", "verify"]);
    let wrong: Vec<&str> = tables.lines().filter(|line| line.trim_end().ends_with("no")).collect();
    assert!(tables.contains("instances") && wrong.is_empty(), "{tables}");
    let logs = project.compose(&["logs", "--no-color"]);
    let refused: Vec<&str> = logs.lines().filter(|line| line.contains("Permissions Violation")).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    project.print_event("the log is valid, the tables are its fold, and no permission was violated");
}

/// Checks the profile `cluster`: every entry is on three servers, and one server may fail.
fn check_three_servers_survive_loss_of_one(engine: &Engine) {
    let lines = std::fs::read_to_string(engine::repository_root().join("deploy/compose/cluster.env"))
        .unwrap_or_else(|why| panic!("{why}"));
    let project = Project::up(engine, "muster-three", &lines);
    project.wait_for_cells(3);
    project.muster("apply /examples/web.json");
    project.wait_until_running("web", 2);
    project.print_event("three servers hold the log");
    for server in project.containers("nats") {
        project.kill(&server);
    }
    project.muster("lrp scale web=3 --timeout 60s");
    project.wait_until_running("web", 3);
    for server in project.containers("nats") {
        project.start(&server);
    }
    project.wait_until_containers_healthy();
    project.operator("audit verify");
    project.print_event("one server was lost, commands were carried out, and it is back");
}
