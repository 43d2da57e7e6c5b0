//! One cluster of containers, gone with its volumes when it is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;

use crate::engine::{Engine, docker, top};
use crate::run::{Said, eventually, run, run_for, so};

/// The last lines of each log that are shown when something fails.
const LINES: &str = "--tail=60";

/// A cluster.
pub(crate) struct Project {
    compose: Vec<String>,
    name: String,
    /// Has the file with variables.
    folder: TempDir,
    began: Instant,
}

impl Project {
    /// Starts the services of docker-compose.yml, with these lines besides in its file with variables.
    pub(crate) fn up(engine: &Engine, name: &str, lines: &str) -> Self {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let name = format!("{name}-{}", std::process::id());
        let project = Self { compose: engine.compose.clone(), name, folder, began: Instant::now() };
        let mut text = String::from(lines);
        for (name, value) in &engine.variables {
            text.push_str(&format!("\n{name}={value}"));
        }
        fs::write(project.variables(), text).expect("there is room for a file");
        project.compose(&["up", "-d"]);
        project.stay("muster", "client");
        project.stay("operator", "operator");
        project
    }

    fn variables(&self) -> PathBuf {
        self.folder.path().join("variables")
    }

    /// Says what happens, and when.
    pub(crate) fn tell(&self, what: &str) {
        println!("{:5.1} s  {what}", self.began.elapsed().as_secs_f64());
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.compose[0]);
        command.args(&self.compose[1..]).arg("--project-name").arg(&self.name);
        command.arg("--env-file").arg(self.variables()).args(words).current_dir(top());
        command
    }

    /// Does something by Compose, and gives what that said.
    pub(crate) fn compose(&self, words: &[&str]) -> String {
        run(self.command(words)).done().unwrap_or_else(|why| panic!("{why}"))
    }

    /// Starts a container of a service of the command line that stays, since starting one takes longer than any command.
    fn stay(&self, service: &str, who: &str) {
        let name = self.who(who);
        self.compose(&["run", "-d", "--name", &name, "--entrypoint", "sleep", service, "infinity"]);
    }

    fn who(&self, who: &str) -> String {
        format!("{}-{who}", self.name)
    }

    /// The name of the container in which the client's or the operator's commands run.
    pub(crate) fn container_for(&self, who: &str) -> String {
        self.who(who)
    }

    /// Runs a shell command in a container.
    pub(crate) fn sh(&self, container: &str, script: &str) -> Said {
        run(docker(&["exec", container, "sh", "-c", script]))
    }

    /// The addresses of a container, one for each of its networks.
    pub(crate) fn addresses(&self, container: &str) -> Vec<String> {
        let listed = self.inspect(container, "range .NetworkSettings.Networks}}{{.IPAddress}} {{end");
        listed.split_whitespace().map(str::to_owned).collect()
    }

    fn exec(&self, who: &str, line: &str, input: &str) -> Said {
        let name = self.who(who);
        let mut words = vec!["exec", "-i", &name, "muster"];
        words.extend(line.split(' '));
        run_for(crate::run::LIMIT, docker(&words), input)
    }

    /// A command of the client, which must succeed.
    pub(crate) fn muster(&self, line: &str) -> String {
        self.exec("client", line, "").done().unwrap_or_else(|why| panic!("{why}"))
    }

    /// The same, with a file as its standard input.
    pub(crate) fn muster_with(&self, line: &str, input: &str) -> String {
        self.exec("client", line, input).done().unwrap_or_else(|why| panic!("{why}"))
    }

    /// A command of the operator, which must succeed.
    pub(crate) fn operator(&self, line: &str) -> String {
        self.exec("operator", line, "").done().unwrap_or_else(|why| panic!("{why}"))
    }

    /// What a command answers.
    ///
    /// # Errors
    /// It fails.
    pub(crate) fn json(&self, line: &str) -> Result<Value, String> {
        let said = self.exec("client", &format!("{line} -o json"), "").done()?;
        serde_json::from_str(&said).map_err(|error| format!("{line}: {error}: {said}"))
    }

    /// The containers of a service that there are, whether they run or not.
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
        listed.done().unwrap_or_else(|why| panic!("{why}")).lines().map(str::to_owned).collect()
    }

    /// What the engine says of a container, as `.State.Status`.
    pub(crate) fn inspect(&self, container: &str, what: &str) -> String {
        let said = run(docker(&["inspect", "--format", &format!("{{{{{what}}}}}"), container]));
        said.done().unwrap_or_else(|why| panic!("{why}")).trim().to_owned()
    }

    /// Stops a container in an orderly way.
    pub(crate) fn stop(&self, container: &str) {
        run(docker(&["stop", container])).done().unwrap_or_else(|why| panic!("{why}"));
    }

    /// Kills a container. The engine takes that for an order, and doesn't start it again.
    pub(crate) fn kill(&self, container: &str) {
        run(docker(&["kill", container])).done().unwrap_or_else(|why| panic!("{why}"));
    }

    /// Starts it again.
    pub(crate) fn start(&self, container: &str) {
        run(docker(&["start", container])).done().unwrap_or_else(|why| panic!("{why}"));
    }

    /// Waits until each container of the services is healthy.
    pub(crate) fn is_healthy(&self) {
        eventually("every container is healthy", || {
            for service in
                ["nats", "postgres", "bbs", "auctioneer", "rep-c1", "rep-c2", "rep-c3", "projector"]
            {
                for container in self.containers(service) {
                    let health = self.inspect(&container, ".State.Health.Status");
                    so(health == "healthy", || format!("{service} {container} is {health}"))?;
                }
            }
            Ok(())
        });
    }

    /// The cells that are PRESENT, with their zones.
    pub(crate) fn cells(&self) -> Result<BTreeMap<String, String>, String> {
        let rows = self.json("cell list")?;
        let present = rows.as_array().into_iter().flatten().filter(|row| row["state"] == "PRESENT");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(present.map(|row| (text(&row["cell_id"]), text(&row["presence"]["zone"]))).collect())
    }

    /// Waits until so many cells are there, half of them in each zone.
    pub(crate) fn has_cells(&self, count: usize) -> BTreeMap<String, String> {
        eventually(&format!("{count} cells are there"), || {
            let cells = self.cells()?;
            so(cells.len() == count, || format!("{cells:?}"))?;
            for zone in ["z1", "z2"] {
                let there = cells.values().filter(|of| *of == zone).count();
                so(there >= count / 2, || format!("{there} in {zone}: {cells:?}"))?;
            }
            Ok(cells)
        })
    }

    /// The container that a cell's rep is in.
    pub(crate) fn container_of(&self, cell: &str) -> String {
        let found = self.containers(&format!("rep-{cell}")).into_iter().next();
        found.unwrap_or_else(|| panic!("{cell} is in no container"))
    }

    /// The container of the service that leads in a role.
    pub(crate) fn leader(&self, role: &str) -> String {
        eventually(&format!("a {role} leads"), || {
            let cluster = self.json("cluster show")?;
            let id = &cluster[role]["id"];
            let rows = cluster["services"]["rows"].as_array().cloned().unwrap_or_default();
            let row = rows.iter().find(|row| row["id"] == *id && row["leads"] == true);
            let host =
                row.and_then(|row| row["program"]["host"].as_str()).ok_or_else(|| cluster.to_string())?;
            let found = self.containers(role).into_iter().find(|container| container.starts_with(host));
            found.ok_or_else(|| format!("{host} is no container of ours"))
        })
    }

    /// Waits until exactly so many instances of a process run, each index once, and answers to each of them come from it over
    /// the network of the containers. Gives the cells that they are on.
    pub(crate) fn runs(&self, process: &str, count: usize) -> BTreeSet<String> {
        eventually(&format!("{count} instances of {process} run and answer"), || {
            let rows = self.json(&format!("instance list --lrp {process}"))?;
            let rows = rows.as_array().cloned().unwrap_or_default();
            let fine = rows.iter().filter(|row| row["state"] == "RUNNING" && row["stopping"] == false);
            let indices: BTreeSet<u64> = fine.clone().filter_map(|row| row["index"].as_u64()).collect();
            let wanted: BTreeSet<u64> = (0..count as u64).collect();
            so(rows.len() == count && indices == wanted, || format!("{rows:#?}"))?;
            let cells = fine.clone().filter_map(|row| row["cell_id"].as_str().map(str::to_owned)).collect();
            rows.iter().try_for_each(|row| self.answers(row))?;
            Ok(cells)
        })
    }

    /// Asks an instance over HTTP, from another container.
    fn answers(&self, row: &Value) -> Result<(), String> {
        let (address, port) = (row["address"].as_str().unwrap_or_default(), &row["ports"][0]["host_port"]);
        let script =
            format!("exec 3<>/dev/tcp/{address}/{port}; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3");
        let said =
            run(docker(&["exec", &self.who("client"), "timeout", "5", "bash", "-c", &script])).done()?;
        let wanted =
            format!("instance {} on cell {}", row["index"], row["cell_id"].as_str().unwrap_or_default());
        so(said.contains(&wanted), || format!("{wanted}: {said}"))
    }

    /// Waits until the cluster says that it is healthy.
    pub(crate) fn is_well(&self) {
        eventually("the cluster is healthy", || self.json("status").map(drop));
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        if thread::panicking() {
            for words in [&["ps", "-a"][..], &["logs", "--no-color", LINES]] {
                let Said { out, err, .. } = run(self.command(words));
                eprintln!("{out}{err}");
            }
        }
        for who in ["client", "operator"] {
            // It isn't there where starting failed.
            drop(run(docker(&["rm", "-f", &self.who(who)])));
        }
        let gone = run(self.command(&["down", "--volumes", "--remove-orphans", "--timeout", "5"]));
        if let Err(why) = gone.done() {
            eprintln!("what this test has started is left behind: {why}");
        }
    }
}
