//! Builds the mutated copy, and runs it once for each mutation.

use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::copy::PROGRAM;
use super::list::Mutation;
use super::schemata::VARIABLE;

/// So long one mutation's run may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// So much memory it may take, in KiB: what goes round for ever may also grow, and took every machine's memory.
const MEMORY_KIB: u64 = 4 * 1024 * 1024;
/// What the standard library says when there is no memory left.
const NO_MEMORY: &str = "memory allocation of ";

/// What a run of a mutation came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ran {
    /// A seed or a story broke what it was to break: which, and how.
    Broke(String, String),
    /// It panicked, and with which words.
    Panicked(String),
    /// Nothing broke what it was to break.
    Nothing,
    /// It was stopped, because it took too long.
    TookTooLong,
    /// It ended, because it took more memory than it may.
    TookTooMuch,
}

/// Builds the copy of the simulation, where other crates than ours are built already. Answers its program.
///
/// # Errors
/// It can't be built.
pub fn build(source: &Path, target: &Path) -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // The copy's lock file is the workspace's: it only loses the packages that the copy doesn't have.
    let built = Command::new(cargo)
        .args(["build", "--release", "--package", "simulation", "--bin", PROGRAM, "--manifest-path"])
        .arg(source.join("Cargo.toml"))
        .env("CARGO_TARGET_DIR", target)
        .status();
    match built {
        Ok(status) if status.success() => Ok(target.join("release").join(PROGRAM)),
        Ok(_) => Err(format!("{} can't be built", source.display())),
        Err(error) => Err(format!("cargo can't be run: {error}")),
    }
}

/// Runs seeds, and then the stories of a folder, with one mutation until they break what it is to break. Number 0 mutates
/// nothing, and is to break nothing at all. What is said is kept in files that begin with `said`.
///
/// # Errors
/// The program can't be run, or says what nobody understands.
pub fn run(
    program: &Path,
    (number, mutation): (usize, &Mutation),
    (seeds, stories): (&Range<u64>, &Path),
    said: &Path,
) -> Result<Ran, String> {
    let file = |ending: &str| {
        let path = said.with_extension(ending);
        File::create(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let promises: Vec<&str> = mutation.breaks.iter().map(|promise| promise.name()).collect();
    let until = if promises.is_empty() { String::new() } else { format!("={}", promises.join(",")) };
    let mut child = Command::new("sh")
        .args(["-c", &format!("ulimit -v {MEMORY_KIB} && exec \"$0\" \"$@\"")])
        .arg(program)
        .args(["--seeds", &format!("{}..{}", seeds.start, seeds.end), "--jobs", "1"])
        .arg(format!("--until-broken{until}"))
        .arg("--stories")
        .arg(stories)
        .env(VARIABLE, number.to_string())
        .stdin(Stdio::null())
        .stdout(file("out")?)
        .stderr(file("err")?)
        .spawn()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let status = wait(&mut child).map_err(|error| format!("{}: {error}", program.display()))?;
    let read = |ending: &str| fs::read_to_string(said.with_extension(ending)).unwrap_or_default();
    match status {
        None => Ok(Ran::TookTooLong),
        Some(status) => understand(status, &read("out"), &read("err"))
            .ok_or_else(|| format!("{} ended with {status}: see {}", mutation.name, said.display())),
    }
}

/// Waits for a child; one that takes too long is ended, and has no status.
fn wait(child: &mut Child) -> std::io::Result<Option<ExitStatus>> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if began.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a run says: `seed 17 breaks NeverStolen: web0/1 ...`, `story crashes breaks ...`, or that nothing is broken, or
/// why it panicked, or that there was no memory left.
fn understand(status: ExitStatus, said: &str, complained: &str) -> Option<Ran> {
    if status.success() {
        return Some(Ran::Nothing);
    }
    let broke = said.lines().find_map(|line| {
        let (name, how) = line.split_once(" breaks ")?;
        let is_one = name.starts_with("seed ") || name.starts_with("story ");
        is_one.then(|| Ran::Broke(name.to_owned(), how.to_owned()))
    });
    let panicked = || {
        let mut lines = complained.lines().skip_while(|line| !line.contains("panicked at"));
        lines.next()?;
        Some(Ran::Panicked(lines.next().unwrap_or_default().to_owned()))
    };
    let is_full = || complained.contains(NO_MEMORY).then_some(Ran::TookTooMuch);
    broke.or_else(panicked).or_else(is_full)
}
