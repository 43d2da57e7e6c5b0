//! What is fetched and sent for a container (docs/model.md, "Downloads and uploads").
//!
//! ```text
//!   executor ── fetches, keeps, sends ──▶ web
//!      ▲  │ file
//!      │  ▼
//!     shim ──▶ program that unpacks, or opens what is sent: as a user of the container, within its walls
//! ```
//!
//! A shim knows no URL, and no container takes part in its connections: the shim asks its executor for one of the transfers
//! of its recipe by number, over a socket in its folder, and gets or gives an open file. What the archive holds only a program
//! of the container looks at. Who asked and is gone gets nothing: what was begun for it is stopped.

use std::path::Path;

use schemas::action::{Download, Transfer, Upload};
use schemas::container::Recipe;
use serde::{Deserialize, Serialize};

/// The name of the socket in the folder of a container.
pub(crate) const SOCKET: &str = "rep";

/// Asks for one of the transfers of a container. With an upload comes the file.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Question {
    /// Its number among [`transfers`].
    pub(crate) number: usize,
}

/// What came of it. With a download that was done comes the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// It was done.
    Done {
        /// Bytes that were fetched or sent.
        bytes: u64,
        /// Whether they were here already.
        kept: bool,
    },
    /// It was not, for this reason.
    Failed(String),
}

/// Everything that is fetched and sent for a container: what is fetched first, then as it stands in setup, action and monitor.
pub(crate) fn transfers(recipe: &Recipe) -> Vec<Transfer<'_>> {
    let mut all: Vec<_> = dependencies(recipe).iter().map(Transfer::Download).collect();
    for action in recipe.setup.iter().chain([&recipe.action]).chain(&recipe.monitor) {
        action.transfers(&mut |transfer| all.push(transfer));
    }
    all
}

/// What is fetched before anything runs.
pub(crate) fn dependencies(recipe: &Recipe) -> &[Download] {
    recipe.sandbox.as_deref().map_or(&[], |sandbox| &sandbox.cached_dependencies)
}

/// Which of the transfers of a container this is. Of two that are the same it may be either.
pub(crate) fn number_of(recipe: &Recipe, wanted: Transfer<'_>) -> Option<usize> {
    transfers(recipe).iter().position(|one| *one == wanted)
}

/// What a transfer is called where its reasons are told.
pub(crate) fn name_of(transfer: Transfer<'_>) -> &str {
    match transfer {
        Transfer::Download(Download { artifact, .. }) | Transfer::Upload(Upload { artifact, .. }) => artifact,
    }
}

/// Whether a path is one of a container's own file system, rather than below its work directory.
pub(crate) fn is_absolute(path: &str) -> bool {
    Path::new(path).is_absolute()
}
