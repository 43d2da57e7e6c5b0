//! The cluster of docker-compose.yml, in real containers: desires, kills, evacuates, scales, and proves what happened.
//!
//! It needs a Docker engine, Compose 2 or docker-compose 1.29, and `target/release/muster`; it says what is missing. No image
//! registry has to be reached: images that are not there are made of Debian's packages.
//!
//! | the file | holds |
//! |---|---|
//! | `run.rs` | programs that are run, and waiting |
//! | `engine.rs` | the engine, and the images |
//! | `project.rs` | one cluster, what is asked of it, and its end |
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it takes minutes, and tells how far it is")]

mod engine;
mod project;
mod run;

use std::collections::BTreeSet;

use engine::Engine;
use project::Project;
use run::{eventually, so};

/// One cluster after the other: each takes a good part of a small machine.
#[test]
fn a_cluster_of_containers_does_what_one_of_processes_does() {
    let engine = Engine::prepare().unwrap_or_else(|why| panic!("{why}"));
    let project = Project::up(&engine, "muster-test", "");
    project.tell("started");
    project.has_cells(3);
    project.is_healthy();
    services_have_only_their_own_keys(&project);
    networks_separate_reps_from_database_and_monitoring(&project);
    what_is_desired_runs_in_both_zones(&project);
    a_program_is_run_where_an_instance_is(&project);
    a_cell_that_is_lost_comes_back_as_it_was(&project);
    another_bbs_leads(&project);
    the_log_outlives_its_server(&project);
    an_evacuated_cell_stays_away(&project);
    there_may_be_more_reps(&project);
    users_come_and_go(&project);
    what_happened_is_proved(&project);
    project.tell("done");
    drop(project);
    three_servers_outlive_the_loss_of_one(&engine);
}

/// Each container has the keys of its own role and cell, and the passwords of the database are known to no other service.
fn services_have_only_their_own_keys(project: &Project) {
    let keys = |container: &str| {
        let said = project.sh(container, "cd /etc/muster/auth && find . -type f | sort | tr '\\n' ' '");
        said.done().unwrap_or_else(|why| panic!("{why}"))
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
    let environment = project.sh(&client, "env").done().unwrap_or_else(|why| panic!("{why}"));
    assert!(!environment.contains("postgres"), "{environment}");
    let tables = project.operator("sql -o csv SELECT\tcount(*)\tFROM\tclusters");
    assert!(tables.trim_end().ends_with('1'), "the operator reads the tables: {tables}");
    let postgres = project.containers("postgres").into_iter().next().expect("the database has a container");
    let roles =
        "psql -U postgres -d fleet -Atc 'SELECT usename, usesuper, usecreatedb FROM pg_user ORDER BY 1'";
    let roles = project.sh(&postgres, roles).done().unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(roles, "postgres|t|t\nprojector|f|f\nreader|f|f\n");
    let owner = "psql -U postgres -d fleet -Atc \"SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'muster'\"";
    let owner = project.sh(&postgres, owner).done().unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(owner, "projector\n");
    for guess in ["muster", "postgres", ""] {
        let login = format!("PGPASSWORD='{guess}' psql -w -h postgres -U postgres -d fleet -c 'SELECT 1'");
        assert_ne!(project.sh(&postgres, &login).code, Some(0), "the password is {guess:?}");
    }
    project.tell("each service has its own keys only");
}

/// A rep reaches NATS. It reaches neither the database nor the monitoring of NATS nor the BBS, by name or by address.
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
    project.tell("a rep reaches NATS, and neither the database nor a BBS");
}

fn what_is_desired_runs_in_both_zones(project: &Project) {
    project.muster("lrp desire /examples/web.json");
    project.runs("web", 2);
    project.muster("lrp scale web=6");
    let cells = project.runs("web", 6);
    let zones: BTreeSet<String> = project
        .cells()
        .unwrap_or_default()
        .into_iter()
        .filter(|(cell, _)| cells.contains(cell))
        .map(|(_, zone)| zone)
        .collect();
    assert_eq!(zones.len(), 2, "{cells:?} are all in {zones:?}");
    let said = project.muster("task run /examples/hello.toml --wait");
    assert!(said.contains("hello, world"), "{said}");
    project.is_well();
    let rows = project.json("instance list --lrp web").unwrap_or_else(|why| panic!("{why}"));
    let walls: BTreeSet<&str> =
        rows.as_array().into_iter().flatten().filter_map(|row| row["isolation"].as_str()).collect();
    assert!(!walls.is_empty() && !walls.contains("none"), "they are not kept apart: {rows:#}");
    project.tell(&format!("six instances run in two zones, isolation {walls:?}, and a task has run"));
}

/// On a terminal of the container's own, among its processes alone.
fn a_program_is_run_where_an_instance_is(project: &Project) {
    let said = project.muster_with("instance exec -t web/1 -- sh", "tty; cat /proc/1/comm; pwd; exit\n");
    for answer in ["/dev/pts/0", "shim", "/home/vcap"] {
        // The shell's prompt may stand before it.
        assert!(said.lines().any(|line| line.trim_end().ends_with(answer)), "no {answer} in {said}");
    }
    project.tell("a shell has run in a container");
}

/// Its instances run elsewhere meanwhile; the container that starts again has the same cell.
fn a_cell_that_is_lost_comes_back_as_it_was(project: &Project) {
    let cell = "c1";
    let container = project.container_of(cell);
    // An engine that stops and starts again restarts a container with this policy unless it exited with 0.
    project.stop(&container);
    assert_eq!(project.inspect(&container, ".HostConfig.RestartPolicy.Name"), "on-failure");
    assert_eq!(project.inspect(&container, ".State.ExitCode"), "143");
    eventually("the cell is lost", || {
        let cells = project.cells()?;
        so(!cells.contains_key(cell), || format!("{cells:?}"))
    });
    project.tell("a cell is heard no more");
    let cells = project.runs("web", 6);
    assert!(!cells.contains(cell), "{cells:?}");
    project.tell("its instances run elsewhere");
    project.start(&container);
    project.has_cells(3);
    assert_eq!(project.container_of(cell), container);
    project.tell("a cell was lost, its instances ran elsewhere, and it is back");
}

fn another_bbs_leads(project: &Project) {
    let leader = project.leader("bbs");
    project.kill(&leader);
    project.muster("lrp scale web=4 --timeout 60s");
    project.runs("web", 4);
    assert_ne!(project.leader("bbs"), leader);
    project.start(&leader);
    project.is_healthy();
    project.tell("the leading BBS was killed, and another one led");
}

/// What was acknowledged is in the log, what runs runs on, and what is asked afterwards is done.
fn the_log_outlives_its_server(project: &Project) {
    let before = project.json("instance list --lrp web").unwrap_or_else(|why| panic!("{why}"));
    for server in project.containers("nats") {
        project.kill(&server);
        project.start(&server);
    }
    project.muster("lrp scale web=5 --timeout 60s");
    project.runs("web", 5);
    let after = project.json("instance list --lrp web").unwrap_or_else(|why| panic!("{why}"));
    let guids = |rows: &serde_json::Value| -> BTreeSet<String> {
        rows.as_array().into_iter().flatten().map(|row| row["instance_guid"].to_string()).collect()
    };
    assert!(guids(&before).is_subset(&guids(&after)), "{before:#}\n{after:#}");
    project.is_healthy();
    project.tell("the NATS server was killed, and what ran ran on");
}

fn an_evacuated_cell_stays_away(project: &Project) {
    let cell = "c2";
    let container = project.container_of(cell);
    project.operator(&format!("cell evacuate {cell} --wait --timeout 60s"));
    eventually("its rep has ended", || {
        let ended = project.inspect(&container, ".State.Status");
        so(ended == "exited", || ended.clone())
    });
    assert_eq!(project.inspect(&container, ".State.ExitCode"), "0");
    let cells = project.runs("web", 5);
    assert!(!cells.contains(cell), "{cells:?}");
    project.compose(&["up", "-d"]);
    project.has_cells(3);
    project.tell("a cell was evacuated, stayed away, and is back by docker compose up");
}

fn there_may_be_more_reps(project: &Project) {
    project.compose(&["up", "-d", "rep-c4", "rep-c5", "rep-c6"]);
    let cells = project.has_cells(6);
    let expected: Vec<String> = (1..=6).map(|number| format!("c{number}")).collect();
    assert_eq!(cells.keys().cloned().collect::<Vec<_>>(), expected);
    project.muster("lrp scale web=12");
    assert_eq!(project.runs("web", 12).len(), 6);
    project.tell("six reps have a cell each, and two instances");
}

/// A user that is added is let in once the server has read its users again, and speaks for its domain.
fn users_come_and_go(project: &Project) {
    project.compose(&["run", "--rm", "auth", "add", "client", "shop", "client"]);
    project.compose(&["kill", "-s", "HUP", "nats"]);
    let creds = "/etc/muster/auth/users/client-shop-client";
    let as_shop = format!(
        "task run - --wait --creds {creds}.nk --tls-cert {creds}.crt --tls-key {creds}.key --domain shop"
    );
    let task = r#"{"task_guid": "count", "domain": "shop", "result_file": "sum",
        "action": {"run": {"path": "sh", "args": ["-c", "echo $((6 * 7)) > sum"]}}}"#;
    let said = project.muster_with(&as_shop, task);
    assert!(said.contains("42"), "{said}");
    project.compose(&["run", "--rm", "auth", "revoke", "client-shop-client"]);
    project.compose(&["kill", "-s", "HUP", "nats"]);
    project.tell("a user was added and revoked");
}

fn what_happened_is_proved(project: &Project) {
    let said = project.operator("audit verify");
    assert!(said.contains("every decision was legal"), "{said}");
    // As the projector, who may follow the log.
    let tables = project.compose(&["run", "--rm", "projector", "projection", "verify"]);
    let wrong: Vec<&str> = tables.lines().filter(|line| line.trim_end().ends_with("no")).collect();
    assert!(tables.contains("instances") && wrong.is_empty(), "{tables}");
    let logs = project.compose(&["logs", "--no-color"]);
    let refused: Vec<&str> = logs.lines().filter(|line| line.contains("Permissions Violation")).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    project.tell("the log is legal, the tables are the fold, and nobody was refused anything");
}

/// The profile `cluster`: every entry on three servers, of which one may go.
fn three_servers_outlive_the_loss_of_one(engine: &Engine) {
    let lines = std::fs::read_to_string(engine::top().join("deploy/compose/cluster.env"))
        .unwrap_or_else(|why| panic!("{why}"));
    let project = Project::up(engine, "muster-three", &lines);
    project.has_cells(3);
    project.muster("lrp desire /examples/web.json");
    project.runs("web", 2);
    project.tell("three servers hold the log");
    for server in project.containers("nats") {
        project.kill(&server);
    }
    project.muster("lrp scale web=3 --timeout 60s");
    project.runs("web", 3);
    for server in project.containers("nats") {
        project.start(&server);
    }
    project.is_healthy();
    project.operator("audit verify");
    project.tell("one was lost, commands were carried out, and it is back");
}
