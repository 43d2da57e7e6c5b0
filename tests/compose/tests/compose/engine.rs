//! The Docker engine, and the images that a cluster is made of.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::run::{run, run_for};

/// How long images may take that are made of packages.
const BUILDING: Duration = Duration::from_secs(600);
/// The image of this test.
const IMAGE: &str = "muster-test";
/// The variables of docker-compose.yml that name images, which somebody may have set already.
const IMAGES: [&str; 3] = ["RUNTIME_IMAGE", "MUSTER_NATS_IMAGE", "MUSTER_POSTGRES_IMAGE"];

const NO_ENGINE: &str = "\
this test needs a Docker engine and Compose, and none answers.
  on Debian: apt-get install docker.io cgroupfs-mount docker-compose mmdebstrap
  where no service manager runs, start the engine as root: mountpoint -q /sys/fs/cgroup || cgroupfs-mount; dockerd &
  then: cargo build --release -p muster && cargo test -p compose --test compose";

/// The top of the repository.
pub(crate) fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository is there")
}

/// What a cluster of containers is made with.
#[derive(Debug)]
pub(crate) struct Engine {
    /// The words by which Compose is run.
    pub(crate) compose: Vec<String>,
    /// Variables for docker-compose.yml.
    pub(crate) variables: Vec<(String, String)>,
}

impl Engine {
    /// Finds the engine, and makes the images that are not there.
    ///
    /// # Errors
    /// There is no engine, or something else is missing: what to do.
    pub(crate) fn prepare() -> Result<Self, String> {
        let compose = compose()?;
        let mut variables = base_images()?;
        let program = program()?;
        let runtime = variables.iter().find(|(name, _)| name == "RUNTIME_IMAGE").map(|(_, value)| value);
        let mut image = Command::new(top().join("deploy/compose/image"));
        image.arg(program).arg(IMAGE);
        image.envs(runtime.map(|value| ("RUNTIME_IMAGE", value)));
        run_for(BUILDING, image, "").done()?;
        variables.push(("MUSTER_IMAGE".into(), IMAGE.into()));
        Ok(Self { compose, variables })
    }
}

/// Compose in whichever version is there: `MUSTER_COMPOSE` names one, as `docker-compose`.
fn compose() -> Result<Vec<String>, String> {
    let answers = run(docker(&["version"])).done();
    answers.map_err(|why| format!("{NO_ENGINE}\n\n{why}"))?;
    let named = env::var("MUSTER_COMPOSE").ok();
    let known =
        named.map_or_else(|| vec!["docker compose".to_owned(), "docker-compose".to_owned()], |one| vec![one]);
    let mut tried = vec![];
    for words in known {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let mut version = Command::new(&words[0]);
        version.args(&words[1..]).arg("version");
        match run(version).done() {
            Ok(said) => {
                println!("{}", said.lines().next().unwrap_or_default());
                return Ok(words);
            }
            Err(why) => tried.push(why),
        }
    }
    Err(format!("{NO_ENGINE}\n\n{}", tried.join("\n")))
}

/// The images that docker-compose.yml begins with: those that the environment names, else some that are made here.
fn base_images() -> Result<Vec<(String, String)>, String> {
    let named = IMAGES.map(|name| Some((name.to_owned(), env::var(name).ok()?)));
    if named.iter().all(Option::is_some) {
        return Ok(named.into_iter().flatten().collect());
    }
    let made = run_for(BUILDING, Command::new(top().join("deploy/compose/base-images")), "").done()?;
    let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    Ok(made.lines().filter_map(pair).collect())
}

/// The program that the image is made of: built before, for that takes longer than this test.
fn program() -> Result<PathBuf, String> {
    let built = top().join("target/release/muster");
    let program = env::var_os("MUSTER_PROGRAM").map_or(built, PathBuf::from);
    if program.is_file() {
        return Ok(program);
    }
    Err(format!(
        "{} isn't there: cargo build --release -p muster, or name another by MUSTER_PROGRAM",
        program.display()
    ))
}

/// A command of the engine's client.
pub(crate) fn docker(words: &[&str]) -> Command {
    let mut docker = Command::new("docker");
    docker.args(words);
    docker
}
