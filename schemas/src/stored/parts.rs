//! Types that events of several aggregates share. These types are frozen. To change one, add a second type
//! beside it, and a second version of each event that contains the type.

use std::collections::{BTreeMap, BTreeSet};

use ecow::EcoString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use smallvec::SmallVec;

use super::conversion::{By, Stored, stored};
use crate::action::ChecksumAlgorithm;
use crate::definition::Network;
use crate::isolation::IsolationLayer;
use crate::names::{CellId, InstanceGuid, PlacementTag, Stack, Zone};
use crate::resources::CellClass;
use crate::rules::Rules;
use crate::{Position, action, container, definition, placement, resources};

stored! {
    /// A container and its cell.
    pub struct Instance = container::Instance {
        /// GUID of the container: it names one attempt to run the work.
        pub instance_guid: InstanceGuid,
        /// Cell of the container.
        pub cell_id: CellId,
    }
}

stored! {
    /// A container port of an instance, and the host port that serves it.
    pub struct PortMapping = container::PortMapping {
        /// Port as the definition names it.
        pub container_port: u16,
        /// Port of the host, as used by other machines.
        pub host_port: u16,
    }
}

stored! {
    /// The network address of a running instance.
    pub struct NetInfo = container::NetInfo {
        /// Address of the host.
        #[schemars(with = "String")]
        pub address: EcoString,
        /// One mapping for each port of the definition, in its order.
        pub ports: SmallVec<[PortMapping; 4]>,
    }
}

stored! {
    /// The explanation of a placement, or of its failure: counts by reason and the best candidates.
    pub struct Explanation = placement::Explanation {
        /// Number of cells that the auctioneer knew.
        pub cells: u32,
        /// Number of rejected cells by reason.
        pub rejected: BTreeMap<String, u32>,
        /// Best candidates, the winner first.
        pub best: Vec<Candidate>,
        /// Cell classes that were tried for work that could not be placed. `None` if the work was placed.
        pub eligibility: Option<Box<Eligibility>>,
    }
}

stored! {
    /// Cell classes that an auction tried for work that it could not place.
    pub struct Eligibility = placement::Eligibility {
        /// Journal position up to which the auctioneer had read.
        pub observed_position: Position,
        /// Classes whose cells may run the work once they have enough free resources.
        pub eligible: Vec<CellClass>,
        /// Classes whose cells can never run the work.
        pub ineligible: Vec<CellClass>,
        /// Number of classes beyond those listed.
        pub unlisted: u32,
        /// Constraints that the cells of one class may meet differently.
        pub escaped: Vec<String>,
    }
}

stored! {
    /// A cell that could run the work, with its scores.
    pub struct Candidate = placement::Candidate {
        /// Id of the cell.
        pub cell_id: CellId,
        /// Zone of the cell.
        pub zone: Zone,
        /// Spread score if the work is spread over attributes, otherwise 0. The score is the number of
        /// instances that the process would have if the share of every attribute value were as full as the
        /// share of this cell would be.
        pub spread: u32,
        /// Sum of the weights of the affinities that the cell matches.
        pub affinity: i32,
        /// Number of instances of the same process in the zone.
        pub siblings_in_zone: u32,
        /// Number of instances of the same process on the cell.
        pub siblings_on_cell: u32,
        /// Mean of the used fractions of memory, disk and containers after placement, in thousandths.
        pub used_permille: u32,
    }
}

stored! {
    /// The requirements of a definition on a cell, apart from resources.
    pub struct Constraint = resources::Constraint {
        /// Stack that the cell must offer. `None` if any cell is suitable.
        pub stack: Option<Stack>,
        /// Tags that the cell must carry. Every one is required.
        pub placement_tags: BTreeSet<PlacementTag>,
        /// Isolation layers that containers of the cell must have.
        #[serde(default)]
        pub isolation: BTreeSet<IsolationLayer>,
        /// Further placement rules. `None` if there are none.
        pub rules: Option<Box<Rules>>,
    }
}

stored! {
    /// Settings of a container's environment that differ from the defaults.
    #[schemars(rename = "StoredSandbox")]
    pub struct Sandbox = definition::Sandbox {
        /// Root file system. Empty for the parts of the host's file system that programs need.
        pub root_fs: String,
        /// Network of the container.
        pub network: Network,
        /// Archives that are fetched before anything runs.
        #[serde(default)]
        #[written(skip_serializing_if = "By::is_default")]
        pub cached_dependencies: Vec<Download>,
        /// GUID that log lines of the container are attributed to.
        #[serde(default)]
        #[written(skip_serializing_if = "By::is_default")]
        pub log_guid: String,
        /// Source name of log lines of the container.
        #[serde(default)]
        #[written(skip_serializing_if = "By::is_default")]
        pub log_source: String,
        /// GUID that metrics of the container are attributed to.
        #[serde(default)]
        #[written(skip_serializing_if = "By::is_default")]
        pub metrics_guid: String,
    }
}

stored! {
    /// An environment variable.
    #[schemars(rename = "StoredVariable")]
    pub struct Variable = action::Variable {
        /// Name of the variable.
        #[schemars(with = "String")]
        pub name: EcoString,
        /// Value of the variable.
        pub value: Secret,
    }
}

/// A value that may be secret. A plain value is text, and a sealed one is `{"sealed": {"key": .., "data":
/// ..}}`.
#[derive(Clone, Deserialize, JsonSchema)]
#[schemars(rename = "StoredSecret")]
#[serde(untagged)]
pub enum Secret {
    /// A plain value, readable by every reader of the log.
    Plain(#[schemars(with = "String")] EcoString),
    /// An encrypted value, readable only with the key.
    Sealed {
        /// The encrypted value.
        sealed: Box<Sealed>,
    },
}

stored! {
    /// An encrypted value.
    #[schemars(rename = "StoredSealed")]
    pub struct Sealed = action::Sealed {
        /// Id of the key.
        pub key: String,
        /// Ciphertext, in base64.
        pub data: String,
    }
}

/// Key id of a secret that was not sealed before it was stored. The value of the secret is dropped and never
/// stored.
const NO_KEY: &str = "none";

impl Stored for Secret {
    type Today = action::Secret;

    fn read(self) -> action::Secret {
        match self {
            Self::Plain(text) => action::Secret::Plain(text),
            Self::Sealed { sealed } => action::Secret::Sealed(sealed.read()),
        }
    }

    fn write<S: Serializer>(today: &action::Secret, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(untagged)]
        enum Written<'a> {
            Plain(&'a str),
            Sealed { sealed: By<'a, Sealed> },
        }
        let unsealed = action::Sealed { key: NO_KEY.into(), data: String::new() };
        let written = match today {
            action::Secret::Plain(text) => Written::Plain(text),
            action::Secret::Open(_) => Written::Sealed { sealed: By(&unsealed) },
            action::Secret::Sealed(sealed) => Written::Sealed { sealed: By(&**sealed) },
        };
        written.serialize(to)
    }
}

impl std::fmt::Debug for Secret {
    /// Formats the kind of the value, but never the value.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain(..)",
            Self::Sealed { .. } => "Sealed(..)",
        })
    }
}

stored! {
    /// A step of a container's recipe, as a tree.
    #[schemars(rename = "StoredAction")]
    #[serde(rename_all = "snake_case")]
    pub enum Action = action::Action {
        /// Runs a program.
        Run(run: Run) = Run,
        /// Interrupts its action after a time limit.
        Timeout(timeout: Timeout) = Timeout,
        /// Runs its action and ignores a failure.
        Try(tried: Try) = Try,
        /// Runs its actions concurrently and waits for all of them.
        Parallel(group: Group) = Parallel,
        /// Runs its actions one after another.
        Serial(group: Group) = Serial,
        /// Runs its actions concurrently. When one exits, the others are stopped.
        Codependent(group: Group) = Codependent,
        /// Writes a line to the log before and after its action.
        EmitProgress(progress: EmitProgress) = EmitProgress,
        /// Fetches and unpacks an archive.
        Download(download: Download) = Download,
        /// Sends a file.
        Upload(upload: Upload) = Upload,
    }
}

stored! {
    /// A program to run.
    #[schemars(rename = "StoredRun")]
    pub struct Run = action::Run {
        /// Program: a path, or a name that is looked up in `PATH`.
        pub path: String,
        /// Arguments of the program.
        pub args: Vec<String>,
        /// Working directory, relative to the container's work directory. Empty for the work directory.
        pub dir: String,
        /// Environment of this program, which overrides that of the container.
        pub env: Vec<Variable>,
        /// `true` if the output is discarded.
        pub suppress_log_output: bool,
        /// User that runs the program. Empty for the default user.
        #[serde(default)]
        pub user: String,
        /// Source name of the program's log lines. Empty for the source name of the definition.
        #[serde(default)]
        #[written(skip_serializing_if = "By::is_default")]
        pub log_source: String,
        /// Resource limits of the program.
        #[serde(default)]
        #[written(skip_serializing_if = "By::is_default")]
        pub resource_limits: ResourceLimits,
    }
}

/// The resource limits of a program.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StoredResourceLimits")]
pub struct ResourceLimits {
    /// Maximum number of open files. `None` for the limit of the cell.
    pub nofile: Option<u64>,
}

impl Stored for ResourceLimits {
    type Today = action::ResourceLimits;

    fn read(self) -> action::ResourceLimits {
        let Self { nofile } = self;
        action::ResourceLimits { nofile }
    }

    fn write<S: Serializer>(today: &action::ResourceLimits, to: S) -> Result<S::Ok, S::Error> {
        let action::ResourceLimits { nofile } = *today;
        Self { nofile }.serialize(to)
    }

    fn is_default(today: &action::ResourceLimits) -> bool {
        *today == action::ResourceLimits::default()
    }
}

stored! {
    /// An archive to fetch and unpack.
    #[schemars(rename = "StoredDownload")]
    pub struct Download = action::Download {
        /// Display name of the archive.
        pub artifact: String,
        /// URL of the archive.
        pub from: Secret,
        /// Folder that the archive is unpacked into.
        pub to: String,
        /// Key under which the cell caches the archive. Empty if it is not cached.
        pub cache_key: String,
        /// Source name of the log lines. Empty for the source name of the definition.
        pub log_source: String,
        /// Owner of the unpacked files. Empty for the default user.
        pub user: String,
        /// Algorithm of the checksum. `None` if the archive is not verified.
        pub checksum_algorithm: Option<ChecksumAlgorithm>,
        /// Expected checksum.
        pub checksum_value: String,
    }
}

stored! {
    /// A file to upload.
    #[schemars(rename = "StoredUpload")]
    pub struct Upload = action::Upload {
        /// Display name of the file.
        pub artifact: String,
        /// Path of the file.
        pub from: String,
        /// URL that the file is posted to.
        pub to: Secret,
        /// Source name of the log lines. Empty for the source name of the definition.
        pub log_source: String,
        /// User that reads the file. Empty for the default user.
        pub user: String,
    }
}

stored! {
    /// An action with a time limit.
    #[schemars(rename = "StoredTimeout")]
    pub struct Timeout = action::Timeout {
        /// Action that is limited.
        pub action: Box<Action>,
        /// Time limit in milliseconds.
        pub timeout_ms: u64,
    }
}

stored! {
    /// An action whose failure is ignored.
    #[schemars(rename = "StoredTry")]
    pub struct Try = action::Try {
        /// Action that is tried.
        pub action: Box<Action>,
    }
}

stored! {
    /// A group of actions.
    #[schemars(rename = "StoredGroup")]
    pub struct Group = action::Group {
        /// Actions of the group, at least one.
        pub actions: Vec<Action>,
    }
}

stored! {
    /// An action with progress messages in the log.
    #[schemars(rename = "StoredEmitProgress")]
    pub struct EmitProgress = action::EmitProgress {
        /// Action to run.
        pub action: Box<Action>,
        /// Line written before the action. Empty for none.
        pub start_message: String,
        /// Line written after success. Empty for none.
        pub success_message: String,
        /// Text written before the reason of a failure. Empty for none.
        pub failure_message_prefix: String,
        /// Source name of these lines. Empty for the source name of the definition.
        #[serde(default)]
        #[written(skip_serializing_if = "By::is_default")]
        pub log_source: String,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsealed_secret_is_not_stored() {
        let text = serde_json::to_string(&By::<Secret>(&action::Secret::Open("very-secret".into()))).unwrap();
        assert_eq!(text, r#"{"sealed":{"key":"none","data":""}}"#);
    }
}
