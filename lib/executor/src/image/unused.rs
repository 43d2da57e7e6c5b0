//! Unpacked images that no container uses. Recently used images are kept for later containers. All other
//! unused images are removed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::{CONFIG_FILE, IMAGES_DIR, Images, TREE_DIR};
use crate::clock;
use crate::folder::Folder;
use crate::isolation::RootFs;

/// Number of unused images that are kept. A container that is being created may not have a written spec yet,
/// so its image seems unused. Fewer containers than this number are created at once, so the image of such a
/// container is never removed.
const MAX_UNUSED: usize = 8;
/// Retention time of an unused image.
const UNUSED_RETENTION: Duration = Duration::from_hours(24);

/// Records that an image is used now.
pub(super) fn touch(home: &Path) {
    // If the write fails, only the time of the last use is not recorded.
    let touched = File::options().append(true).open(home.join(CONFIG_FILE));
    drop(touched.and_then(|file| file.set_modified(clock::system_time())));
}

impl Images<'_> {
    /// Removes the images that no container has used for a day. If more than eight unused images then remain,
    /// removes the least recently used ones. The caller must prevent concurrent unpacking. If the removal of
    /// an image fails, the failure is logged, and the image stays until the next call.
    pub(crate) fn remove_unused(&self) {
        if let Err(error) = self.try_remove_unused() {
            tracing::warn!(%error, "cannot remove unused images");
        }
    }

    fn try_remove_unused(&self) -> io::Result<()> {
        for home in select_removable(unused_images(self.data)?, clock::system_time()) {
            tracing::info!(image = %home.display(), "removing an unused image");
            self.remove(&home)?;
        }
        Ok(())
    }
}

/// Selects the unused images to remove.
fn select_removable(mut unused: Vec<(SystemTime, PathBuf)>, now: SystemTime) -> Vec<PathBuf> {
    unused.sort();
    let surplus = unused.len().saturating_sub(MAX_UNUSED);
    let is_old = |used: SystemTime| now.duration_since(used).is_ok_and(|since| since > UNUSED_RETENTION);
    let goes = unused.into_iter().enumerate().filter(|(at, (used, _))| *at < surplus || is_old(*used));
    goes.map(|(_, (_, home))| home).collect()
}

/// Returns the folders of all images.
pub(super) fn image_folders(data: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(data.join(IMAGES_DIR)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(vec![]),
        images => images?.map(|image| image.map(|image| image.path())).collect(),
    }
}

/// Returns the images that no container uses, with the time of their last use.
fn unused_images(data: &Path) -> io::Result<Vec<(SystemTime, PathBuf)>> {
    let used = used_trees(data)?;
    let mut unused = vec![];
    for home in image_folders(data)? {
        if !used.contains(&home.join(TREE_DIR)) {
            let last = fs::metadata(home.join(CONFIG_FILE)).and_then(|config| config.modified());
            unused.push((last.unwrap_or(SystemTime::UNIX_EPOCH), home));
        }
    }
    Ok(unused)
}

/// Returns the image trees that containers use.
fn used_trees(data: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut used = BTreeSet::new();
    for container in fs::read_dir(data.join("containers"))? {
        // A container without a spec is being created or deleted.
        let Ok(spec) = Folder::new(container?.path()).spec() else { continue };
        if let Some(RootFs::Folder { path, .. }) = spec.plan.map(|plan| plan.root_fs) {
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
        let goes = |hours: &[u64]| select_removable(hours.iter().copied().map(image).collect(), now);
        let names =
            |hours: &[u64]| hours.iter().map(|hours| PathBuf::from(hours.to_string())).collect::<Vec<_>>();
        assert_eq!(goes(&[1, 24, 3]), names(&[]));
        assert_eq!(goes(&[1, 25, 3, 40]), names(&[40, 25]));
        assert_eq!(goes(&[9, 1, 2, 3, 4, 5, 6, 7, 8, 10]), names(&[10, 9]));
    }
}
