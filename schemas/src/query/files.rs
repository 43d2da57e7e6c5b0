//! The files of a container, as a cell shows them: of its work directory, and of nothing else.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::names::InstanceGuid;

/// Asks what is at a path of an instance's work directory. Only who may see the environment of the instance is answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadFiles {
    /// Which: `PROCESS/INDEX`, `PROCESS/INDEX@DEFINITION` or an instance guid.
    pub id: String,
    /// A path below the work directory; empty: that itself.
    #[serde(default)]
    pub path: String,
    /// Of a file: the offset of the first byte; of a folder: how many entries of it are passed over.
    #[serde(default)]
    pub from: u64,
    /// Of a file: bytes at most; of a folder: entries at most. None: as many as fit into an answer.
    #[serde(default)]
    pub limit: Option<usize>,
}

/// What is at a path: the answer to [`ReadFiles`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Files {
    /// The container.
    pub instance_guid: InstanceGuid,
    /// What is there.
    pub found: FoundFile,
}

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FoundFile {
    /// A folder.
    Folder {
        /// What is in it, by name.
        entries: Vec<FileEntry>,
        /// How many entries it has in all.
        total: u64,
    },
    /// A file.
    File {
        /// Bytes of it, in base64 (RFC 4648, with padding).
        data: String,
        /// The offset behind them: where to read on.
        next: u64,
        /// How many bytes it has.
        bytes: u64,
    },
}

/// What is in a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileEntry {
    /// Its name. What is no UTF-8 in it is shown as a replacement character.
    pub name: String,
    /// What it is.
    pub kind: FileKind,
    /// Its permissions, as a number.
    pub mode: u32,
    /// How many bytes it has.
    pub bytes: u64,
    /// When it was written last.
    pub modified: Timestamp,
    /// Of a link, where it leads.
    pub target: Option<String>,
}

/// What something in a folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A file.
    File,
    /// A folder.
    Folder,
    /// A link, which may lead anywhere.
    Link,
    /// A pipe, a socket or a device.
    Other,
}
