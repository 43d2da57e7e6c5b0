//! Unpacked images that no container uses. Recently used ones are kept for later containers, and the others
//! are removed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::{CONFIG, FOLDER, Images, TREE};
use crate::clock;
use crate::folder::Folder;
use crate::isolation::Tree;

/// Number of unused images that are kept. It exceeds the number of containers that are created at once, so
/// that none of them loses its image before its spec is written.
const KEPT: usize = 8;
/// Retention time of an unused image.
const KEPT_FOR: Duration = Duration::from_hours(24);

/// Records that an image is used now.
pub(super) fn touch(home: &Path) {
    // If the write fails, only the time of the last use is lost.
    let touched = File::options().append(true).open(home.join(CONFIG));
    drop(touched.and_then(|file| file.set_modified(clock::wall())));
}

impl Images<'_> {
    /// Removes images that no container has used for a day, and the least recently used beyond eight unused
    /// images. The caller must prevent concurrent unpacking. A failure is logged, and the image stays until
    /// the next call.
    pub(crate) fn remove_unused(&self) {
        if let Err(error) = self.try_to_remove() {
            tracing::warn!(%error, "cannot remove images that no container uses");
        }
    }

    fn try_to_remove(&self) -> io::Result<()> {
        for home in too_many(unused(self.data)?, clock::wall()) {
            tracing::info!(image = %home.display(), "removes an image that no container uses");
            self.remove(&home)?;
        }
        Ok(())
    }
}

/// Selects the unused images to remove.
fn too_many(mut unused: Vec<(SystemTime, PathBuf)>, now: SystemTime) -> Vec<PathBuf> {
    unused.sort();
    let surplus = unused.len().saturating_sub(KEPT);
    let is_old = |used: SystemTime| now.duration_since(used).is_ok_and(|since| since > KEPT_FOR);
    let goes = unused.into_iter().enumerate().filter(|(at, (used, _))| *at < surplus || is_old(*used));
    goes.map(|(_, (_, home))| home).collect()
}

/// Returns the folders of all images.
pub(super) fn homes(data: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(data.join(FOLDER)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(vec![]),
        images => images?.map(|image| image.map(|image| image.path())).collect(),
    }
}

/// Returns the images that no container uses, with the time of their last use.
fn unused(data: &Path) -> io::Result<Vec<(SystemTime, PathBuf)>> {
    let used = used(data)?;
    let mut unused = vec![];
    for home in homes(data)? {
        if !used.contains(&home.join(TREE)) {
            let last = fs::metadata(home.join(CONFIG)).and_then(|config| config.modified());
            unused.push((last.unwrap_or(SystemTime::UNIX_EPOCH), home));
        }
    }
    Ok(unused)
}

/// Returns the image trees that containers use.
fn used(data: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut used = BTreeSet::new();
    for container in fs::read_dir(data.join("containers"))? {
        // A container without a spec is being created or deleted.
        let Ok(spec) = Folder::new(container?.path()).spec() else { continue };
        if let Some(Tree::Folder { path, .. }) = spec.plan.map(|plan| plan.tree) {
            used.insert(path);
        }
    }
    Ok(used)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_surplus_unused_images_are_selected_for_removal() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_hours(1_000);
        let image = |hours: u64| (now - Duration::from_hours(hours), PathBuf::from(hours.to_string()));
        let goes = |hours: &[u64]| too_many(hours.iter().copied().map(image).collect(), now);
        let names =
            |hours: &[u64]| hours.iter().map(|hours| PathBuf::from(hours.to_string())).collect::<Vec<_>>();
        assert_eq!(goes(&[1, 24, 3]), names(&[]));
        assert_eq!(goes(&[1, 25, 3, 40]), names(&[40, 25]));
        assert_eq!(goes(&[9, 1, 2, 3, 4, 5, 6, 7, 8, 10]), names(&[10, 9]));
    }
}
