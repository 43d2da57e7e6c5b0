//! Services of a flood (the benchmark in which one client overloads a cluster). Each service is a separate
//! process of this program.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use host::error::ServiceError;
use host::serve::Nats;
use tokio::process::{Child, Command};

use super::loud::Loud;
use crate::bench::{BenchError, TempFolder};

/// Open-file limit of the BBS, a common default.
pub(super) const BBS_FILE_LIMIT: u32 = 1_024;
/// Timeout for the services to become ready.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout for a service to exit.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Running services, in the order of their start.
pub(super) struct Services {
    all: Vec<(&'static str, Child)>,
    folder: TempFolder,
}

impl Services {
    /// Founds a cluster and starts its services.
    pub(super) async fn start(nats: &Nats) -> Result<Self, BenchError> {
        // `muster` is built into the same folder as this program.
        let program = std::env::current_exe().map_err(ServiceError::Program)?.with_file_name("muster");
        if !program.is_file() {
            return Err(BenchError::NoProgram(program));
        }
        let folder = TempFolder::new()?;
        found(&program, nats, &folder.0.join("found.log")).await?;
        let cell = |id: &str| {
            let data = folder.0.join(id).display().to_string();
            let words = [
                "rep",
                "--cell",
                id,
                "--zone",
                id,
                "--memory-mb",
                "512",
                "--disk-mb",
                "512",
                "--data",
                &data,
            ];
            words.map(str::to_owned).to_vec()
        };
        let all = [
            ("bbs", ["bbs", "--callback-allow", "127.0.0.0/8"].map(str::to_owned).into()),
            ("auctioneer", vec!["auctioneer".to_owned()]),
            ("rep c1", cell("c1")),
            ("rep c2", cell("c2")),
        ];
        let all = all.map(|(name, words)| {
            let child = spawn(&program, &words, nats, &folder.0.join(format!("{name}.log")), name == "bbs");
            child.map(|child| (name, child)).map_err(|source| BenchError::Start { name, source })
        });
        let all = all.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(Self { all, folder })
    }

    /// Waits for an unexpected exit of a service. Returns the service's name, its status and the end of its
    /// log.
    pub(super) async fn wait_for_exit(&mut self) -> String {
        loop {
            for (name, child) in &mut self.all {
                if let Ok(Some(status)) = child.try_wait() {
                    let log = std::fs::read_to_string(self.folder.0.join(format!("{name}.log")))
                        .unwrap_or_default();
                    let last: Vec<&str> = log.lines().rev().take(5).collect();
                    return format!("{name} exited unexpectedly ({status}): {}", last.join(" | "));
                }
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Returns the number of open files of the BBS, or `None` if the system does not report it.
    pub(super) fn files_of_bbs(&self) -> Option<usize> {
        let (_, child) = self.all.first()?;
        let path: PathBuf = ["/proc", &child.id()?.to_string(), "fd"].iter().collect();
        Some(std::fs::read_dir(path).ok()?.count())
    }

    /// Stops the services, the reps first.
    pub(super) async fn stop(mut self) {
        while let Some((name, mut child)) = self.all.pop() {
            let pid =
                child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
            if let Some(pid) = pid
                && let Err(error) = rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            {
                tracing::debug!(name, %error, "can't send SIGTERM");
            }
            if tokio::time::timeout(STOP_TIMEOUT, child.wait()).await.is_err() {
                tracing::warn!(name, "a service did not exit in time");
            }
        }
    }
}

/// Waits until both leaders are elected and both cells are present.
pub(super) async fn wait_until_ready(client: &Loud) -> Result<(), BenchError> {
    let ready = async {
        loop {
            if let Some(answer) = client.cluster().await {
                let row = &answer["row"];
                let led = !row["bbs"].is_null() && !row["auctioneer"].is_null();
                if led && row["cells"]["PRESENT"] == 2 {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let late = |_| BenchError::Timeout { what: "the services".to_owned(), limit: START_TIMEOUT };
    tokio::time::timeout(START_TIMEOUT, ready).await.map_err(late)
}

/// Runs `muster cluster found`.
async fn found(program: &std::path::Path, nats: &Nats, log: &std::path::Path) -> Result<(), BenchError> {
    let failed = |source| BenchError::Start { name: "cluster found", source };
    let mut child =
        spawn(program, &["cluster", "found"].map(str::to_owned), nats, log, false).map_err(failed)?;
    if child.wait().await.map_err(failed)?.success() {
        return Ok(());
    }
    let said = std::fs::read_to_string(log).unwrap_or_default();
    Err(BenchError::ServiceEnded(format!("can't found a cluster: {}", said.trim())))
}

fn spawn(
    program: &std::path::Path,
    words: &[String],
    nats: &Nats,
    log: &std::path::Path,
    few_files: bool,
) -> std::io::Result<Child> {
    let log = std::fs::File::create(log)?;
    let limit = if few_files { format!("ulimit -n {BBS_FILE_LIMIT}; ") } else { String::new() };
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{limit}exec \"$0\" \"$@\"")]).arg(program).args(words);
    command.env("MUSTER_NATS_URL", nats.urls.join(","));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true).spawn()
}
