//! Docker engine, and the images of a cluster.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::run::{run, run_for};

/// Timeout for building images from packages.
const BUILD_TIMEOUT: Duration = Duration::from_secs(600);
/// Image that this test builds.
const IMAGE: &str = "muster-test";
/// Variables of docker-compose.yml that name images. The environment may contain them already.
const IMAGE_VARIABLES: [&str; 3] = ["RUNTIME_IMAGE", "MUSTER_NATS_IMAGE", "MUSTER_POSTGRES_IMAGE"];

const NO_ENGINE: &str = "\
no Docker engine with Compose answers, which this test needs
  on Debian: apt-get install docker.io cgroupfs-mount docker-compose mmdebstrap
  without a service manager, start the engine as root: mountpoint -q /sys/fs/cgroup || cgroupfs-mount; dockerd &
  then: cargo build --release -p muster && cargo test -p compose --test compose";

/// Returns the root of the repository.
pub(crate) fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository exists")
}

/// Docker engine, prepared for a cluster of containers.
#[derive(Debug)]
pub(crate) struct Engine {
    /// Words of the Compose command.
    pub(crate) compose: Vec<String>,
    /// Variables for docker-compose.yml.
    pub(crate) variables: Vec<(String, String)>,
}

impl Engine {
    /// Finds the engine and builds the images that are missing.
    ///
    /// # Errors
    /// Returns an error with advice if there is no engine or something else is missing.
    pub(crate) fn prepare() -> Result<Self, String> {
        let compose = compose()?;
        let mut variables = base_images()?;
        let program = program()?;
        let runtime = variables.iter().find(|(name, _)| name == "RUNTIME_IMAGE").map(|(_, value)| value);
        let mut image = Command::new(repository_root().join("deploy/compose/image"));
        image.arg(program).arg(IMAGE);
        image.envs(runtime.map(|value| ("RUNTIME_IMAGE", value)));
        run_for(BUILD_TIMEOUT, image, "").into_stdout()?;
        variables.push(("MUSTER_IMAGE".into(), IMAGE.into()));
        Ok(Self { compose, variables })
    }
}

/// Returns the words of the available Compose command. `MUSTER_COMPOSE` selects one, such as
/// `docker-compose`.
fn compose() -> Result<Vec<String>, String> {
    let answers = run(docker(&["version"])).into_stdout();
    answers.map_err(|why| format!("{NO_ENGINE}\n\n{why}"))?;
    let named = env::var("MUSTER_COMPOSE").ok();
    let known =
        named.map_or_else(|| vec!["docker compose".to_owned(), "docker-compose".to_owned()], |one| vec![one]);
    let mut tried = vec![];
    for words in known {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let mut version = Command::new(&words[0]);
        version.args(&words[1..]).arg("version");
        match run(version).into_stdout() {
            Ok(said) => {
                println!("{}", said.lines().next().unwrap_or_default());
                return Ok(words);
            }
            Err(why) => tried.push(why),
        }
    }
    Err(format!("{NO_ENGINE}\n\n{}", tried.join("\n")))
}

/// Returns the base images of docker-compose.yml: the images in the environment if it names all of them, and
/// otherwise images that this function builds.
fn base_images() -> Result<Vec<(String, String)>, String> {
    let named = IMAGE_VARIABLES.map(|name| Some((name.to_owned(), env::var(name).ok()?)));
    if named.iter().all(Option::is_some) {
        return Ok(named.into_iter().flatten().collect());
    }
    let made = run_for(BUILD_TIMEOUT, Command::new(repository_root().join("deploy/compose/base-images")), "")
        .into_stdout()?;
    let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    Ok(made.lines().filter_map(pair).collect())
}

/// Returns the program for the image. The program must be built beforehand, because a build takes longer than
/// this test.
fn program() -> Result<PathBuf, String> {
    let built = repository_root().join("target/release/muster");
    let program = env::var_os("MUSTER_PROGRAM").map_or(built, PathBuf::from);
    if program.is_file() {
        return Ok(program);
    }
    Err(format!(
        "{} does not exist: run cargo build --release -p muster, or set MUSTER_PROGRAM to another program",
        program.display()
    ))
}

/// Returns a command of the Docker client.
pub(crate) fn docker(words: &[&str]) -> Command {
    let mut docker = Command::new("docker");
    docker.args(words);
    docker
}
