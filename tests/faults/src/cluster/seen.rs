//! What is seen of a cluster: who is there, who leads, what services say.

use schemas::cluster::Role;
use schemas::query::{CellState, ClusterRow};
use serde_json::Value;

use super::{Cluster, PER_ROLE, READY};
use crate::asker::Asker;
use crate::failed::{Failed, Result, so, until};
use crate::fault::Fault;

/// How many lines of the end of a log are told.
const LAST_LINES: usize = 10;

impl Cluster {
    /// Up to which position the tables go.
    ///
    /// # Errors
    /// Nobody answers, or there are none.
    pub async fn projected(&self) -> Result<u64> {
        let said = self.muster(&["projection", "list", "--database", &self.database(), "-o", "json"]).await?;
        let rows: Value = serde_json::from_str(&said).map_err(Failed::at("projection list"))?;
        let live = rows.as_array().into_iter().flatten().find(|row| row["state"] == "live");
        live.and_then(|row| row["position"].as_u64()).ok_or_else(|| Failed(format!("no live tables: {said}")))
    }

    /// The service that leads in a role, or one that stands by.
    ///
    /// # Errors
    /// Nobody answers, or there is none that was started here.
    pub async fn find(&self, asker: &Asker, role: Role, leads: bool) -> Result<String> {
        until(READY, &format!("a {role:?} is there, leading: {leads}"), async || {
            let row = asker.questions().cluster().await.map_err(Failed::at("cluster show"))?.row;
            let services = row.services.rows.iter().filter(|row| row.role == role && row.leads == leads);
            let pids: Vec<_> = services.filter_map(|row| i32::try_from(row.program.pid).ok()).collect();
            let found = self.programs.iter().find(|(_, program)| pids.contains(&program.pid()));
            found.map(|(name, _)| name.clone()).ok_or_else(|| Failed(format!("{:?}", row.services)))
        })
        .await
    }

    /// Waits until the status shows the finding of a fault, if it has one, or no longer shows it.
    ///
    /// # Errors
    /// That does not happen.
    pub async fn shows(&self, asker: &Asker, fault: Fault, expected: bool) -> Result<()> {
        let Some(code) = fault.row().status else { return Ok(()) };
        until(READY, &format!("the status shows {code:?}: {expected}"), async || {
            let row = asker.questions().status().await.map_err(Failed::at("status"))?.row;
            let shown = row.findings.iter().any(|finding| finding.code == code);
            so(shown == expected, || format!("{:?}", row.findings))
        })
        .await
    }

    /// Waits until everybody serves: somebody leads in each role, somebody stands by, all cells are present.
    ///
    /// # Errors
    /// It doesn't come to that.
    pub async fn serves(&mut self, asker: &Asker) -> Result<()> {
        let looked = until(READY, "every service is there", async || {
            let ended = self.all_run();
            if ended.is_err() {
                return Ok(ended);
            }
            let row = asker.questions().cluster().await.map_err(Failed::at("cluster show"))?.row;
            self.are_all_in(&row).map(Ok)
        });
        looked.await?
    }

    /// That a row has everybody.
    fn are_all_in(&self, row: &ClusterRow) -> Result<()> {
        for role in [Role::Bbs, Role::Auctioneer] {
            let beating: Vec<_> = row.services.rows.iter().filter(|row| row.role == role).collect();
            let led = beating.iter().filter(|row| row.leads).count() == 1;
            let ours = beating.iter().filter(|row| self.has(row.program.pid)).count();
            so(led && ours == PER_ROLE, || format!("{role:?}: {beating:?}"))?;
        }
        let present = row.cells.get(&CellState::Present).copied().unwrap_or_default();
        so(present as usize == self.shape.cells, || format!("cells: {:?}", row.cells))
    }

    fn has(&self, pid: u32) -> bool {
        self.programs.values().any(|program| u32::try_from(program.pid()) == Ok(pid))
    }

    /// Waits until a service says something.
    ///
    /// # Errors
    /// It doesn't, or it has no log.
    pub async fn says(&self, name: &str, word: &str) -> Result<()> {
        let log = self.log(name);
        until(READY, &format!("{name} says {word:?}"), async || {
            let said = std::fs::read(&log).map_err(Failed::at(log.display()))?;
            let said = String::from_utf8_lossy(&said);
            so(said.contains(word), || said.into_owned())
        })
        .await
    }

    /// That every service runs: none has ended by itself.
    ///
    /// # Errors
    /// One has: the end of its log says why.
    pub fn all_run(&mut self) -> Result<()> {
        for (name, program) in &mut self.programs {
            if let Some(status) = program.ended()? {
                let log = self.folder.path().join(format!("{name}.log"));
                let said = std::fs::read(&log).map_err(Failed::at(log.display()))?;
                let said = String::from_utf8_lossy(&said);
                let last: Vec<_> = said.lines().rev().take(LAST_LINES).collect();
                let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
                return Err(Failed(format!("{name} has ended with {status}:\n{last}")));
            }
        }
        Ok(())
    }
}
