//! Landlock: restricts the files that a program and its descendants may read and write, and the abstract
//! sockets of other programs that they may connect to.

use std::io;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};

use super::WORK;

/// Landlock version that is used. Older kernels support less of it.
const KNOWN: ABI = ABI::V6;
/// Folders in which programs may write, unless a mount there is read-only.
const WRITTEN: [&str; 6] = [WORK, "/tmp", "/var/tmp", "/run", "/dev", "/proc"];

/// Returns the restrictions: everything that the known version offers.
fn rules(level: CompatLevel) -> Result<RulesetCreated, RulesetError> {
    Ruleset::default()
        .set_compatibility(level)
        .handle_access(AccessFs::from_all(KNOWN))?
        .scope(Scope::AbstractUnixSocket)?
        .create()
}

/// Returns `true` if this kernel supports all restrictions.
pub(super) fn is_there() -> bool {
    rules(CompatLevel::HardRequirement).is_ok()
}

/// Restricts this program and everything that it starts or executes, as far as this kernel can. `work` is
/// writable, too.
pub(super) fn hold(work: &Path) -> io::Result<()> {
    let (read, all) = (AccessFs::from_read(KNOWN), AccessFs::from_all(KNOWN));
    let mut rules = rules(CompatLevel::BestEffort).map_err(io::Error::other)?;
    let root = PathFd::new("/").map_err(io::Error::other)?;
    rules = rules.add_rule(PathBeneath::new(root, read)).map_err(io::Error::other)?;
    let written = WRITTEN.into_iter().map(Path::new).chain([work]);
    for path in written.filter(|path| path.exists()) {
        let beneath = PathBeneath::new(PathFd::new(path).map_err(io::Error::other)?, all);
        rules = rules.add_rule(beneath).map_err(io::Error::other)?;
    }
    rules.restrict_self().map_err(io::Error::other)?;
    Ok(())
}
