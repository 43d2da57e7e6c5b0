//! Collects facts about the data folder of a local cluster.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use journal::Sqlite;
use schemas::Position;
use text::chain;

use explain::doctor::facts::{Fact, Folder, Unknown};

/// Mode bits that give access to the group and to other users.
const NON_OWNER_BITS: u32 = 0o077;

pub(super) async fn collect(path: &Path) -> Folder {
    let mode = fs::metadata(path).map(|found| found.permissions().mode());
    let disk = rustix::fs::statvfs(path).ok();
    Folder {
        path: path.to_owned(),
        open_to_others: mode.is_ok_and(|mode| mode & NON_OWNER_BITS != 0),
        journal: journal_facts(path).await,
        free: disk.map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize)),
    }
}

async fn journal_facts(path: &Path) -> Fact<(Position, u64)> {
    let failed = |error: journal::JournalError| Unknown::Failed(chain(&error));
    let journal = journal::Journal::Sqlite(Sqlite::open_read_only(path).await.map_err(failed)?);
    let end = journal.end().await.map_err(failed)?;
    journal.check_readable().await.map_err(failed)?;
    journal.close().await;
    let size = fs::metadata(path.join(journal::FILE)).map(|file| file.len()).unwrap_or_default();
    Ok((end, size))
}
