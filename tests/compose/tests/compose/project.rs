//! Cluster of containers. Dropping it removes the containers and their volumes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;

use crate::engine::{Engine, docker, repository_root};
use crate::run::{Output, ensure, eventually, run, run_for};

/// Option that limits the logs printed after a failure.
const LOG_TAIL: &str = "--tail=60";

/// Compose project of a cluster.
pub(crate) struct Project {
    compose: Vec<String>,
    name: String,
    /// Contains the file with variables.
    folder: TempDir,
    started: Instant,
}

impl Project {
    /// Starts the services of docker-compose.yml. `lines` are added to the project's file with variables.
    pub(crate) fn up(engine: &Engine, name: &str, lines: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be created");
        let name = format!("{name}-{}", std::process::id());
        let project = Self { compose: engine.compose.clone(), name, folder, started: Instant::now() };
        let mut text = String::from(lines);
        for (name, value) in &engine.variables {
            text.push_str(&format!("\n{name}={value}"));
        }
        fs::write(project.variables(), text).expect("the file of variables can be written");
        project.compose(&["up", "-d"]);
        project.start_command_container("muster", "client");
        project.start_command_container("operator", "operator");
        project
    }

    fn variables(&self) -> PathBuf {
        self.folder.path().join("variables")
    }

    /// Prints an event with its time.
    pub(crate) fn print_event(&self, what: &str) {
        println!("{:5.1} s  {what}", self.started.elapsed().as_secs_f64());
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.compose[0]);
        command.args(&self.compose[1..]).arg("--project-name").arg(&self.name);
        command.arg("--env-file").arg(self.variables()).args(words).current_dir(repository_root());
        command
    }

    /// Runs a Compose command that must succeed, and returns its output.
    pub(crate) fn compose(&self, words: &[&str]) -> String {
        run(self.command(words)).into_stdout().unwrap_or_else(|why| panic!("{why}"))
    }

    /// Starts a container of a service for commands. It keeps running, because starting a container takes
    /// longer than a command.
    fn start_command_container(&self, service: &str, who: &str) {
        let name = self.command_container(who);
        self.compose(&["run", "-d", "--name", &name, "--entrypoint", "sleep", service, "infinity"]);
    }

    fn command_container(&self, who: &str) -> String {
        format!("{}-{who}", self.name)
    }

    /// Returns the name of the container for the commands of the client or the operator.
    pub(crate) fn container_for(&self, who: &str) -> String {
        self.command_container(who)
    }

    /// Runs a shell command in a container.
    pub(crate) fn sh(&self, container: &str, script: &str) -> Output {
        run(docker(&["exec", container, "sh", "-c", script]))
    }

    /// Returns the addresses of a container, one for each of its networks.
    pub(crate) fn addresses(&self, container: &str) -> Vec<String> {
        let listed = self.inspect(container, "range .NetworkSettings.Networks}}{{.IPAddress}} {{end");
        listed.split_whitespace().map(str::to_owned).collect()
    }

    fn exec(&self, who: &str, line: &str, input: &str) -> Output {
        let name = self.command_container(who);
        let mut words = vec!["exec", "-i", &name, "muster"];
        words.extend(line.split(' '));
        run_for(crate::run::TIMEOUT, docker(&words), input)
    }

    /// Runs a command of the client that must succeed, and returns its output.
    pub(crate) fn muster(&self, line: &str) -> String {
        self.exec("client", line, "").into_stdout().unwrap_or_else(|why| panic!("{why}"))
    }

    /// Runs a command of the client that must succeed, with this standard input. Returns its output.
    pub(crate) fn muster_with(&self, line: &str, input: &str) -> String {
        self.exec("client", line, input).into_stdout().unwrap_or_else(|why| panic!("{why}"))
    }

    /// Runs a command of the operator that must succeed, and returns its output.
    pub(crate) fn operator(&self, line: &str) -> String {
        self.exec("operator", line, "").into_stdout().unwrap_or_else(|why| panic!("{why}"))
    }

    /// Returns the JSON output of a command of the client.
    ///
    /// # Errors
    /// Returns an error if the command fails.
    pub(crate) fn json(&self, line: &str) -> Result<Value, String> {
        let said = self.exec("client", &format!("{line} -o json"), "").into_stdout()?;
        serde_json::from_str(&said).map_err(|error| format!("{line}: {error}: {said}"))
    }

    /// Returns the ids of all containers of a service, whether they run or not.
    pub(crate) fn containers(&self, service: &str) -> BTreeSet<String> {
        let project = format!("label=com.docker.compose.project={}", self.name);
        let service = format!("label=com.docker.compose.service={service}");
        let once = "label=com.docker.compose.oneoff=False";
        let listed = run(docker(&[
            "ps",
            "-aq",
            "--no-trunc",
            "--filter",
            &project,
            "--filter",
            &service,
            "--filter",
            once,
        ]));
        listed.into_stdout().unwrap_or_else(|why| panic!("{why}")).lines().map(str::to_owned).collect()
    }

    /// Returns a field of a container, such as `.State.Status`.
    pub(crate) fn inspect(&self, container: &str, what: &str) -> String {
        let said = run(docker(&["inspect", "--format", &format!("{{{{{what}}}}}"), container]));
        said.into_stdout().unwrap_or_else(|why| panic!("{why}")).trim().to_owned()
    }

    /// Stops a container gracefully.
    pub(crate) fn stop(&self, container: &str) {
        run(docker(&["stop", container])).into_stdout().unwrap_or_else(|why| panic!("{why}"));
    }

    /// Kills a container. The engine treats this as an order and does not restart it.
    pub(crate) fn kill(&self, container: &str) {
        run(docker(&["kill", container])).into_stdout().unwrap_or_else(|why| panic!("{why}"));
    }

    /// Starts a container again.
    pub(crate) fn start(&self, container: &str) {
        run(docker(&["start", container])).into_stdout().unwrap_or_else(|why| panic!("{why}"));
    }

    /// Waits until every container of the services is healthy.
    pub(crate) fn wait_until_containers_healthy(&self) {
        eventually("every container is healthy", || {
            for service in
                ["nats", "postgres", "bbs", "auctioneer", "rep-c1", "rep-c2", "rep-c3", "projector"]
            {
                for container in self.containers(service) {
                    let health = self.inspect(&container, ".State.Health.Status");
                    ensure(health == "healthy", || format!("{service} {container} is {health}"))?;
                }
            }
            Ok(())
        });
    }

    /// Returns the PRESENT cells with their zones.
    pub(crate) fn cells(&self) -> Result<BTreeMap<String, String>, String> {
        let rows = self.json("cell list")?;
        let present = rows.as_array().into_iter().flatten().filter(|row| row["state"] == "PRESENT");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(present.map(|row| (text(&row["cell_id"]), text(&row["presence"]["zone"]))).collect())
    }

    /// Waits until exactly `count` cells are present, with half of them in each zone.
    pub(crate) fn wait_for_cells(&self, count: usize) -> BTreeMap<String, String> {
        eventually(&format!("{count} cells are present"), || {
            let cells = self.cells()?;
            ensure(cells.len() == count, || format!("{cells:?}"))?;
            for zone in ["z1", "z2"] {
                let there = cells.values().filter(|of| *of == zone).count();
                ensure(there >= count / 2, || format!("{there} cells in {zone}: {cells:?}"))?;
            }
            Ok(cells)
        })
    }

    /// Returns the container of a cell's rep.
    pub(crate) fn rep_container(&self, cell: &str) -> String {
        let found = self.containers(&format!("rep-{cell}")).into_iter().next();
        found.unwrap_or_else(|| panic!("no container for cell {cell}"))
    }

    /// Returns the container of the leading service of a role.
    pub(crate) fn leader(&self, role: &str) -> String {
        eventually(&format!("a {role} leads"), || {
            let cluster = self.json("cluster show")?;
            let id = &cluster[role]["id"];
            let rows = cluster["services"]["rows"].as_array().cloned().unwrap_or_default();
            let row = rows.iter().find(|row| row["id"] == *id && row["leads"] == true);
            let host =
                row.and_then(|row| row["program"]["host"].as_str()).ok_or_else(|| cluster.to_string())?;
            let found = self.containers(role).into_iter().find(|container| container.starts_with(host));
            found.ok_or_else(|| format!("no container of this project has the id {host}"))
        })
    }

    /// Waits until exactly `count` instances of a process run, one for each index, and each answers over the
    /// container network. Returns their cells.
    pub(crate) fn wait_until_running(&self, process: &str, count: usize) -> BTreeSet<String> {
        eventually(&format!("{count} instances of {process} run and answer"), || {
            let rows = self.json(&format!("instance list --lrp {process}"))?;
            let rows = rows.as_array().cloned().unwrap_or_default();
            let fine = rows.iter().filter(|row| row["state"] == "RUNNING" && row["stopping"] == false);
            let indices: BTreeSet<u64> = fine.clone().filter_map(|row| row["index"].as_u64()).collect();
            let wanted: BTreeSet<u64> = (0..count as u64).collect();
            ensure(rows.len() == count && indices == wanted, || format!("{rows:#?}"))?;
            let cells = fine.clone().filter_map(|row| row["cell_id"].as_str().map(str::to_owned)).collect();
            rows.iter().try_for_each(|row| self.check_http_answer(row))?;
            Ok(cells)
        })
    }

    /// Sends an HTTP request to an instance from another container, and checks that this instance answers.
    fn check_http_answer(&self, row: &Value) -> Result<(), String> {
        let (address, port) = (row["address"].as_str().unwrap_or_default(), &row["ports"][0]["host_port"]);
        let script =
            format!("exec 3<>/dev/tcp/{address}/{port}; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3");
        let said =
            run(docker(&["exec", &self.command_container("client"), "timeout", "5", "bash", "-c", &script]))
                .into_stdout()?;
        let wanted =
            format!("instance {} on cell {}", row["index"], row["cell_id"].as_str().unwrap_or_default());
        ensure(said.contains(&wanted), || format!("no {wanted:?} in the answer: {said}"))
    }

    /// Waits until the cluster reports that it is healthy.
    pub(crate) fn wait_until_cluster_healthy(&self) {
        eventually("the cluster is healthy", || self.json("status").map(drop));
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        if thread::panicking() {
            for words in [&["ps", "-a"][..], &["logs", "--no-color", LOG_TAIL]] {
                let Output { out, err, .. } = run(self.command(words));
                eprintln!("{out}{err}");
            }
        }
        for who in ["client", "operator"] {
            // The container does not exist if starting the cluster failed.
            drop(run(docker(&["rm", "-f", &self.command_container(who)])));
        }
        let gone = run(self.command(&["down", "--volumes", "--remove-orphans", "--timeout", "5"]));
        if let Err(why) = gone.into_stdout() {
            eprintln!("can't remove the containers of this test: {why}");
        }
    }
}
