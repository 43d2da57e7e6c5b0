//! Downloads and uploads for a container (docs/model.md, "Downloads and uploads").
//!
//! ```text
//!   executor ── downloads, caches, uploads ──▶ web
//!      ▲  │ file
//!      │  ▼
//!     shim ──▶ program that unpacks, or opens the file to upload: as a user of the container, within its isolation
//! ```
//!
//! A shim knows no URL, and a container has no access to the connections. The shim requests a transfer of its
//! recipe by number, over a socket in its folder, and receives or sends an open file. Only a program of the
//! container reads the content of an archive. If the shim closes the connection, the transfer is cancelled.

use std::path::Path;

use schemas::action::{Download, Transfer, Upload};
use schemas::container::Recipe;
use serde::{Deserialize, Serialize};

/// Name of the socket in a container's folder.
pub(crate) const SOCKET: &str = "rep";

/// Request for one of the transfers of a container. An upload includes the file.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Question {
    /// Number of the transfer in [`transfers`].
    pub(crate) number: usize,
}

/// Reply to a request. A completed download includes the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// The transfer is completed.
    Done {
        /// Number of transferred bytes.
        bytes: u64,
        /// `true` if the archive came from the cell's cache.
        kept: bool,
    },
    /// The transfer failed, for this reason.
    Failed(String),
}

/// Returns all transfers of a container: first the dependencies, then those of setup, action and monitor in
/// their order.
pub(crate) fn transfers(recipe: &Recipe) -> Vec<Transfer<'_>> {
    let mut all: Vec<_> = dependencies(recipe).iter().map(Transfer::Download).collect();
    for action in recipe.setup.iter().chain([&recipe.action]).chain(&recipe.monitor) {
        action.transfers(&mut |transfer| all.push(transfer));
    }
    all
}

/// Returns the downloads that are completed before anything runs.
pub(crate) fn dependencies(recipe: &Recipe) -> &[Download] {
    recipe.sandbox.as_deref().map_or(&[], |sandbox| &sandbox.cached_dependencies)
}

/// Returns the number of a transfer. Equal transfers may get the same number.
pub(crate) fn number_of(recipe: &Recipe, wanted: Transfer<'_>) -> Option<usize> {
    transfers(recipe).iter().position(|one| *one == wanted)
}

/// Returns the name of a transfer's artifact for messages. Empty if it has none.
pub(crate) fn name_of(transfer: Transfer<'_>) -> &str {
    match transfer {
        Transfer::Download(Download { artifact, .. }) | Transfer::Upload(Upload { artifact, .. }) => artifact,
    }
}

/// Returns `true` if a path refers to the container's own file system rather than to its work directory.
pub(crate) fn is_absolute(path: &str) -> bool {
    Path::new(path).is_absolute()
}
