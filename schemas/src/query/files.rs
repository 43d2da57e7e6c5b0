//! Queries for the files of a container. A cell serves the container's work directory only.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::names::InstanceGuid;

/// Reads a file or lists a folder in the work directory of an instance. Only clients that may read the
/// instance's environment get an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadFiles {
    /// The instance: `PROCESS/INDEX`, `PROCESS/INDEX@DEFINITION` or an instance guid.
    pub id: String,
    /// Path relative to the work directory. Empty for the work directory.
    #[serde(default)]
    pub path: String,
    /// For a file, the offset of the first byte. For a folder, the number of entries to skip.
    #[serde(default)]
    pub from: u64,
    /// Maximum number of bytes of a file, or of entries of a folder. `None` for the maximum that fits into an
    /// answer.
    #[serde(default)]
    pub limit: Option<usize>,
}

/// The file or folder at a path. This is the answer to [`ReadFiles`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Files {
    /// Container that the work directory belongs to.
    pub instance_guid: InstanceGuid,
    /// Content of the file or folder.
    pub content: FileContent,
}

/// Content of a file or folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileContent {
    /// A folder.
    Folder {
        /// Entries of the folder, sorted by name.
        entries: Vec<FileEntry>,
        /// Total number of entries in the folder.
        total: u64,
    },
    /// A file.
    File {
        /// Content, in base64 (RFC 4648, with padding).
        data: String,
        /// Offset of the first byte after the content. The next read starts there.
        next: u64,
        /// Size of the file in bytes.
        bytes: u64,
    },
}

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileEntry {
    /// Name of the entry. Invalid UTF-8 is shown as replacement characters.
    pub name: String,
    /// Type of the entry.
    pub kind: FileKind,
    /// Permission bits, as a number.
    pub mode: u32,
    /// Size in bytes.
    pub bytes: u64,
    /// Time of the last modification.
    pub modified: Timestamp,
    /// Target of a symbolic link. `None` for other entries.
    pub target: Option<String>,
}

/// Type of an entry of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link, which may point anywhere.
    Link,
    /// A pipe, a socket or a device.
    Other,
}
