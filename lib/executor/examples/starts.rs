//! Benchmark of the cost of isolation. It measures the time between two events: the order to start a
//! container that only runs `true`, and the end of this container. Isolated and non-isolated containers
//! alternate within one run.
//!
//! Run it as root to get every isolation layer: `cargo run --release -p executor --example starts
//! [CONTAINERS]`.

use std::error::Error;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use executor::process::{Executor, FIRST_ID, IsolationPolicy, Settings};
use schemas::action::{Action, Run};
use schemas::container::{Container, ContainerState, Epoch, Recipe, RunResult, WorkKey};
use schemas::names::{CellId, Domain, InstanceGuid, TaskGuid};
use schemas::resources::Resources;
use schemas::{Position, Timestamp};
use tokio::sync::mpsc::Receiver;

/// Default number of isolated containers, and of non-isolated ones.
const CONTAINERS: u64 = 200;

struct Cell {
    executor: Executor,
    changes: Receiver<Container>,
    durations: Vec<Duration>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // The executor also starts this program as the shim.
    let measured = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["shim", folder] => return executor::shim::run(Path::new(folder), None),
        ["shim", folder, stage] => return executor::shim::run(Path::new(folder), Some(stage.as_ref())),
        [] => measure(CONTAINERS),
        [number, ..] => number.parse().map_err(Into::into).and_then(measure),
    };
    match measured.and_then(|text| Ok(io::stdout().write_all(text.as_bytes())?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(io::stderr(), "{error}"));
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn measure(containers: u64) -> Result<String, Box<dyn Error>> {
    let root = tempfile::tempdir()?;
    let isolate = IsolationPolicy::BestEffort { first_id: FIRST_ID };
    let mut plain = Cell::open(&root.path().join("plain"), IsolationPolicy::Never).await?;
    let mut walled = Cell::open(&root.path().join("walled"), isolate).await?;
    for number in 0..containers {
        plain.run(number).await?;
        walled.run(number).await?;
    }
    let (without, with) = (plain.quartiles(), walled.quartiles());
    let text = format!(
        "{containers} containers each, from the order to the end of `true`, quartiles in ms\n\
         without isolation  {without:.2?}\nwith isolation     {with:.2?}  ({})\nratio of the medians: {:.2}\n",
        walled.executor.isolation(),
        with[1] / without[1],
    );
    plain.executor.delete_all().await;
    walled.executor.delete_all().await;
    Ok(text)
}

impl Cell {
    async fn open(data: &Path, isolate: IsolationPolicy) -> Result<Self, Box<dyn Error>> {
        let shim = vec![std::env::current_exe()?.into(), "shim".into()];
        let settings = Settings::new(data.to_owned(), CellId::new("starts")?, "127.0.0.1", shim);
        let (executor, changes) = Executor::open(Settings { isolate, ..settings }).await?;
        Ok(Self { executor, changes, durations: vec![] })
    }

    /// Runs a container until it ends, and deletes it.
    async fn run(&mut self, number: u64) -> Result<(), Box<dyn Error>> {
        let guid = InstanceGuid(uuid::Uuid::from_u64_pair(1, number));
        let begun = Instant::now();
        self.executor.run(recipe(guid)?);
        loop {
            let container = self.changes.recv().await.ok_or("the executor has stopped")?;
            match container.state {
                ContainerState::Completed(RunResult::Succeeded { .. }) => break,
                ContainerState::Completed(other) => return Err(format!("{other:?}").into()),
                ContainerState::Reserved
                | ContainerState::Initializing
                | ContainerState::Created
                | ContainerState::Running(_) => {}
            }
        }
        self.durations.push(begun.elapsed());
        self.executor.delete(guid);
        Ok(())
    }

    /// Returns the quartiles of the measured times, in milliseconds.
    fn quartiles(&mut self) -> [f64; 3] {
        self.durations.sort();
        let at = |quarter: usize| self.durations.get(self.durations.len() * quarter / 4);
        [1, 2, 3].map(|quarter| at(quarter).map_or(f64::NAN, |took| took.as_secs_f64() * 1_000.0))
    }
}

fn recipe(instance_guid: InstanceGuid) -> Result<Recipe, Box<dyn Error>> {
    Ok(Recipe {
        instance_guid,
        work: WorkKey::Task { task_guid: TaskGuid::new("true")?, epoch: Epoch(Timestamp(1)) },
        domain: Domain::new("starts")?,
        environment_variables: vec![],
        setup: None,
        action: Action::Run(Run { path: "true".into(), ..Run::default() }),
        monitor: None,
        start_timeout_ms: 0,
        grace_period_ms: 1_000,
        cpu_weight: 0,
        ports: vec![],
        result_file: String::new(),
        resources: Resources::for_container(16, 16, 0),
        sandbox: None,
        admitted_at: Position(1),
    })
}
