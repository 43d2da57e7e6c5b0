//! Downloads and uploads for a container (docs/internals/model/transfers.md, "Downloads and uploads").
//!
//! ```text
//!   executor ── downloads, caches, uploads ──▶ web
//!      ▲  │ file
//!      │  ▼
//!     shim ──▶ program that unpacks, or opens the file to upload: as a user of the container, within its isolation
//! ```
//!
//! A shim does not know any URL, and a container has no access to the executor's connections. The shim sends
//! the number of a transfer in its recipe over a socket in its folder. For an upload, the shim sends the open
//! file. For a download, the shim receives the open file. Only a program of the container reads the content
//! of an archive. If the shim closes the connection, the transfer is cancelled.

use std::path::Path;

use schemas::action::{Download, Transfer, Upload};
use schemas::container::Recipe;
use serde::{Deserialize, Serialize};

/// Name of the socket in a container's folder.
pub(crate) const SOCKET: &str = "rep";

/// Request for one of the transfers of a container. For an upload, the open file is attached.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct TransferRequest {
    /// Number of the transfer in [`transfers`].
    pub(crate) number: usize,
}

/// Reply to a request. For a completed download, the open file is attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TransferReply {
    /// The transfer is completed.
    Done {
        /// Number of transferred bytes.
        bytes: u64,
        /// `true` if the archive came from the cell's cache.
        from_cache: bool,
    },
    /// The transfer failed. Contains the reason.
    Failed(String),
}

/// Returns all transfers of a container in the order of their numbers: first the transfers of the
/// dependencies, followed by those of setup, action and monitor.
pub(crate) fn transfers(recipe: &Recipe) -> Vec<Transfer<'_>> {
    let mut all: Vec<_> = dependencies(recipe).iter().map(Transfer::Download).collect();
    for action in recipe.setup.iter().chain([&recipe.action]).chain(&recipe.monitor) {
        action.for_each_transfer(&mut |transfer| all.push(transfer));
    }
    all
}

/// Returns the downloads that must be completed before setup, action and monitor start.
pub(crate) fn dependencies(recipe: &Recipe) -> &[Download] {
    recipe.sandbox.as_deref().map_or(&[], |sandbox| &sandbox.cached_dependencies)
}

/// Returns the number of a transfer. Equal transfers may get the same number.
pub(crate) fn transfer_number(recipe: &Recipe, wanted: Transfer<'_>) -> Option<usize> {
    transfers(recipe).iter().position(|one| *one == wanted)
}

/// Returns the name of a transfer's artifact for messages. Empty if the artifact has no name.
pub(crate) fn artifact_name(transfer: Transfer<'_>) -> &str {
    match transfer {
        Transfer::Download(Download { artifact, .. }) | Transfer::Upload(Upload { artifact, .. }) => artifact,
    }
}

/// Returns `true` if a path is relative to the root of the container's file system. `false` if it is relative
/// to the work directory.
pub(crate) fn is_absolute(path: &str) -> bool {
    Path::new(path).is_absolute()
}
