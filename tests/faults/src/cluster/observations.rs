//! Observations of a cluster: its services, its leaders, and its logs.

use schemas::cluster::Role;
use schemas::query::{CellState, ClusterRow};
use serde_json::Value;

use super::{Cluster, PER_ROLE, READY_TIMEOUT};
use crate::error::{Failed, Result, ensure, poll_until};
use crate::fault::Fault;
use crate::recording_client::RecordingClient;

/// Number of log lines in an error message.
const LAST_LINES: usize = 10;

impl Cluster {
    /// Returns the position of the live tables.
    ///
    /// # Errors
    /// Returns an error if the command fails or there are no live tables.
    pub async fn projected_position(&self) -> Result<u64> {
        let said = self.muster(&["projection", "list", "--database", &self.database(), "-o", "json"]).await?;
        let rows: Value = serde_json::from_str(&said).map_err(Failed::context("projection list"))?;
        let live = rows.as_array().into_iter().flatten().find(|row| row["state"] == "live");
        live.and_then(|row| row["position"].as_u64()).ok_or_else(|| Failed(format!("no live tables: {said}")))
    }

    /// Waits for the leader of a role, or for a standby if `leads` is `false`, and returns its name.
    ///
    /// # Errors
    /// Returns an error if no such service of this cluster is found in time.
    pub async fn find(&self, asker: &RecordingClient, role: Role, leads: bool) -> Result<String> {
        poll_until(READY_TIMEOUT, &format!("a {role:?} is alive, leading: {leads}"), async || {
            let row = asker.queries().cluster().await.map_err(Failed::context("cluster show"))?.row;
            let services = row.services.rows.iter().filter(|row| row.role == role && row.leads == leads);
            let pids: Vec<_> = services.filter_map(|row| i32::try_from(row.program.pid).ok()).collect();
            let found = self.programs.iter().find(|(_, program)| pids.contains(&program.pid()));
            found.map(|(name, _)| name.clone()).ok_or_else(|| Failed(format!("{:?}", row.services)))
        })
        .await
    }

    /// Waits until the status shows the finding of a fault, or no longer shows it if `expected` is `false`.
    /// Returns at once if the fault has no finding.
    ///
    /// # Errors
    /// Returns an error if that does not happen in time.
    pub async fn wait_for_finding(
        &self,
        asker: &RecordingClient,
        fault: Fault,
        expected: bool,
    ) -> Result<()> {
        let Some(code) = fault.row().finding else { return Ok(()) };
        poll_until(READY_TIMEOUT, &format!("the status shows {code:?}: {expected}"), async || {
            let row = asker.queries().status().await.map_err(Failed::context("status"))?.row;
            let shown = row.findings.iter().any(|finding| finding.code == code);
            ensure(shown == expected, || format!("{:?}", row.findings))
        })
        .await
    }

    /// Waits until the cluster is complete: each role has a leader and a standby, and all cells are present.
    ///
    /// # Errors
    /// Returns an error if that does not happen in time or a service has exited.
    pub async fn wait_until_complete(&mut self, asker: &RecordingClient) -> Result<()> {
        let looked = poll_until(READY_TIMEOUT, "every service is alive", async || {
            let ended = self.check_all_running();
            if ended.is_err() {
                return Ok(ended);
            }
            let row = asker.queries().cluster().await.map_err(Failed::context("cluster show"))?.row;
            self.check_complete(&row).map(Ok)
        });
        looked.await?
    }

    /// Checks that a row contains all services and cells.
    fn check_complete(&self, row: &ClusterRow) -> Result<()> {
        for role in [Role::Bbs, Role::Auctioneer] {
            let beating: Vec<_> = row.services.rows.iter().filter(|row| row.role == role).collect();
            let led = beating.iter().filter(|row| row.leads).count() == 1;
            let ours = beating.iter().filter(|row| self.runs_pid(row.program.pid)).count();
            ensure(led && ours == PER_ROLE, || format!("{role:?}: {beating:?}"))?;
        }
        let present = row.cells.get(&CellState::Present).copied().unwrap_or_default();
        ensure(present as usize == self.shape.cells, || format!("cells: {:?}", row.cells))
    }

    fn runs_pid(&self, pid: u32) -> bool {
        self.programs.values().any(|program| u32::try_from(program.pid()) == Ok(pid))
    }

    /// Waits until the log of a service contains a word.
    ///
    /// # Errors
    /// Returns an error if that does not happen in time, or the log can't be read.
    pub async fn wait_for_log(&self, name: &str, word: &str) -> Result<()> {
        let log = self.log(name);
        poll_until(READY_TIMEOUT, &format!("the log of {name} contains {word:?}"), async || {
            let said = std::fs::read(&log).map_err(Failed::context(log.display()))?;
            let said = String::from_utf8_lossy(&said);
            ensure(said.contains(word), || said.into_owned())
        })
        .await
    }

    /// Checks that every started service is still running.
    ///
    /// # Errors
    /// Returns an error with the end of the log if a service has exited.
    pub fn check_all_running(&mut self) -> Result<()> {
        for (name, program) in &mut self.programs {
            if let Some(status) = program.exit_status()? {
                let log = self.folder.path().join(format!("{name}.log"));
                let said = std::fs::read(&log).map_err(Failed::context(log.display()))?;
                let said = String::from_utf8_lossy(&said);
                let last: Vec<_> = said.lines().rev().take(LAST_LINES).collect();
                let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
                return Err(Failed(format!("{name} has exited ({status}):\n{last}")));
            }
        }
        Ok(())
    }
}
