//! Types that events of several aggregates share. These types are frozen. To change one, add a second type
//! beside it, and a second version of each event that contains the type.

use std::collections::{BTreeMap, BTreeSet};

use ecow::EcoString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::mirror::{Mirror, mirror};
use crate::action::ChecksumAlgorithm;
use crate::definition::Network;
use crate::isolation::IsolationLayer;
use crate::names::{CellId, InstanceGuid, PlacementTag, Stack, Zone};
use crate::resources::CellClass;
use crate::rules::Rules;
use crate::{Position, action, container, definition, placement, resources};

/// A container and its cell.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Instance {
    /// GUID of the container: it names one attempt to run the work.
    pub instance_guid: InstanceGuid,
    /// Cell of the container.
    pub cell_id: CellId,
}
mirror!(struct Instance = container::Instance { instance_guid, cell_id });

/// A container port of an instance, and the host port that serves it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PortMapping {
    /// Port as the definition names it.
    pub container_port: u16,
    /// Port of the host, as used by other machines.
    pub host_port: u16,
}
mirror!(struct PortMapping = container::PortMapping { container_port, host_port });

/// The network address of a running instance.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NetInfo {
    /// Address of the host.
    #[schemars(with = "String")]
    pub address: EcoString,
    /// One mapping for each port of the definition, in its order.
    pub ports: SmallVec<[PortMapping; 4]>,
}
mirror!(struct NetInfo = container::NetInfo { address, ports });

/// The explanation of a placement, or of its failure: counts by reason and the best candidates.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// Number of cells that the auctioneer knew.
    pub cells: u32,
    /// Number of rejected cells by reason.
    pub rejected: BTreeMap<String, u32>,
    /// Best candidates, the winner first.
    pub best: Vec<Candidate>,
    /// Cell classes that were tried for work that could not be placed. `None` if the work was placed.
    pub eligibility: Option<Box<Eligibility>>,
}
mirror!(struct Explanation = placement::Explanation { cells, rejected, best, eligibility });

/// Cell classes that an auction tried for work that it could not place.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Eligibility {
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
mirror!(struct Eligibility = placement::Eligibility { observed_position, eligible, ineligible, unlisted, escaped });

/// A cell that could run the work, with its scores.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Candidate {
    /// Id of the cell.
    pub cell_id: CellId,
    /// Zone of the cell.
    pub zone: Zone,
    /// Spread score if the work is spread over attributes, otherwise 0. The score is the number of instances
    /// that the process would have if the share of every attribute value were as full as the share of this
    /// cell would be.
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
mirror!(struct Candidate = placement::Candidate {
    cell_id, zone, spread, affinity, siblings_in_zone, siblings_on_cell, used_permille,
});

/// The requirements of a definition on a cell, apart from resources.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Constraint {
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
mirror!(struct Constraint = resources::Constraint { stack, placement_tags, isolation, rules });

/// Settings of a container's environment that differ from the defaults.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StoredSandbox")]
pub struct Sandbox {
    /// Root file system. Empty for the parts of the host's file system that programs need.
    pub root_fs: String,
    /// Network of the container.
    pub network: Network,
    /// Archives that are fetched before anything runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cached_dependencies: Vec<Download>,
    /// GUID that log lines of the container are attributed to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log_guid: String,
    /// Source name of log lines of the container.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log_source: String,
    /// GUID that metrics of the container are attributed to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub metrics_guid: String,
}
mirror!(struct Sandbox = definition::Sandbox {
    root_fs, network, cached_dependencies, log_guid, log_source, metrics_guid,
});

/// An environment variable.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StoredVariable")]
pub struct Variable {
    /// Name of the variable.
    #[schemars(with = "String")]
    pub name: EcoString,
    /// Value of the variable.
    pub value: Secret,
}
mirror!(struct Variable = action::Variable { name, value });

/// A value that may be secret. A plain value is text, and a sealed one is `{"sealed": {"key": .., "data":
/// ..}}`.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
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

/// An encrypted value.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StoredSealed")]
pub struct Sealed {
    /// Id of the key.
    pub key: String,
    /// Ciphertext, in base64.
    pub data: String,
}
mirror!(struct Sealed = action::Sealed { key, data });

impl Mirror<action::Secret> for Secret {
    fn mirror(self) -> action::Secret {
        match self {
            Self::Plain(text) => action::Secret::Plain(text),
            Self::Sealed { sealed } => action::Secret::Sealed(sealed.mirror()),
        }
    }
}

/// Key id of a secret that was not sealed before it was stored. The value of the secret is dropped and never
/// stored.
const NO_KEY: &str = "none";

impl Mirror<Secret> for action::Secret {
    fn mirror(self) -> Secret {
        match self {
            Self::Plain(text) => Secret::Plain(text),
            Self::Open(_) => {
                Secret::Sealed { sealed: Box::new(Sealed { key: NO_KEY.into(), data: String::new() }) }
            }
            Self::Sealed(sealed) => Secret::Sealed { sealed: sealed.mirror() },
        }
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

/// A step of a container's recipe, as a tree.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StoredAction")]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Runs a program.
    Run(Run),
    /// Interrupts its action after a time limit.
    Timeout(Timeout),
    /// Runs its action and ignores a failure.
    Try(Try),
    /// Runs its actions concurrently and waits for all of them.
    Parallel(Group),
    /// Runs its actions one after another.
    Serial(Group),
    /// Runs its actions concurrently. When one exits, the others are stopped.
    Codependent(Group),
    /// Writes a line to the log before and after its action.
    EmitProgress(EmitProgress),
    /// Fetches and unpacks an archive.
    Download(Download),
    /// Sends a file.
    Upload(Upload),
}
mirror!(enum Action = action::Action {
    Run(run), Timeout(timeout), Try(tried), Parallel(group), Serial(group), Codependent(group),
    EmitProgress(progress), Download(download), Upload(upload),
});

/// A program to run.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StoredRun")]
pub struct Run {
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
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log_source: String,
    /// Resource limits of the program.
    #[serde(default, skip_serializing_if = "ResourceLimits::is_default")]
    pub resource_limits: ResourceLimits,
}
mirror!(struct Run = action::Run {
    path, args, dir, env, suppress_log_output, user, log_source, resource_limits,
});

/// The resource limits of a program.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StoredResourceLimits")]
pub struct ResourceLimits {
    /// Maximum number of open files. `None` for the limit of the cell.
    pub nofile: Option<u64>,
}
mirror!(struct ResourceLimits = action::ResourceLimits { nofile });

impl ResourceLimits {
    const fn is_default(&self) -> bool {
        self.nofile.is_none()
    }
}

/// An archive to fetch and unpack.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StoredDownload")]
pub struct Download {
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
mirror!(struct Download = action::Download {
    artifact, from, to, cache_key, log_source, user, checksum_algorithm, checksum_value,
});

/// A file to upload.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StoredUpload")]
pub struct Upload {
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
mirror!(struct Upload = action::Upload { artifact, from, to, log_source, user });

/// An action with a time limit.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StoredTimeout")]
pub struct Timeout {
    /// Action that is limited.
    pub action: Box<Action>,
    /// Time limit in milliseconds.
    pub timeout_ms: u64,
}
mirror!(struct Timeout = action::Timeout { action, timeout_ms });

/// An action whose failure is ignored.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StoredTry")]
pub struct Try {
    /// Action that is tried.
    pub action: Box<Action>,
}
mirror!(struct Try = action::Try { action });

/// A group of actions.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StoredGroup")]
pub struct Group {
    /// Actions of the group, at least one.
    pub actions: Vec<Action>,
}
mirror!(struct Group = action::Group { actions });

/// An action with progress messages in the log.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StoredEmitProgress")]
pub struct EmitProgress {
    /// Action to run.
    pub action: Box<Action>,
    /// Line written before the action. Empty for none.
    pub start_message: String,
    /// Line written after success. Empty for none.
    pub success_message: String,
    /// Text written before the reason of a failure. Empty for none.
    pub failure_message_prefix: String,
    /// Source name of these lines. Empty for the source name of the definition.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log_source: String,
}
mirror!(struct EmitProgress = action::EmitProgress {
    action, start_message, success_message, failure_message_prefix, log_source,
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsealed_secret_is_not_stored() {
        let stored: Secret = action::Secret::Open("very-secret".into()).mirror();
        let text = serde_json::to_string(&stored).unwrap();
        assert_eq!(text, r#"{"sealed":{"key":"none","data":""}}"#);
    }
}
