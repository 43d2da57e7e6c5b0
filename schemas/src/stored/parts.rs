//! Parts that events of several aggregates hold. Frozen: a part that has to change gets a second type beside it, and
//! the events that hold it get a second version.

use std::collections::{BTreeMap, BTreeSet};

use ecow::EcoString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::mirror::{Mirror, mirror};
use crate::isolation::Wall;
use crate::names::{CellId, InstanceGuid, PlacementTag, Stack, Zone};
use crate::resources::CellClass;
use crate::rules::Rules;
use crate::{Position, action, container, definition, placement, resources};

/// A container and the cell it is on.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Instance {
    /// Names the attempt.
    pub instance_guid: InstanceGuid,
    /// The cell.
    pub cell_id: CellId,
}
mirror!(struct Instance = container::Instance { instance_guid, cell_id });

/// A port that an instance asked for, and the port of the host that leads to it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PortMapping {
    /// As the definition names it.
    pub container_port: u16,
    /// As others reach it.
    pub host_port: u16,
}
mirror!(struct PortMapping = container::PortMapping { container_port, host_port });

/// Where a running instance is reached.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NetInfo {
    /// The address of the host.
    #[schemars(with = "String")]
    pub address: EcoString,
    /// One mapping for each port of the definition, in its order.
    pub ports: SmallVec<[PortMapping; 4]>,
}
mirror!(struct NetInfo = container::NetInfo { address, ports });

/// The reason of a placement, or of its failure: counts by reason and the best candidates.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// Cells that the auctioneer knew.
    pub cells: u32,
    /// Cells that were passed over, by reason.
    pub passed_over: BTreeMap<String, u32>,
    /// The best candidates, the winner first.
    pub best: Vec<Candidate>,
    /// What was tried for what found no place.
    pub eligibility: Option<Box<Eligibility>>,
}
mirror!(struct Explanation = placement::Explanation { cells, passed_over, best, eligibility });

/// Which kinds of cells an auction tried for work that found no place.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Eligibility {
    /// The position of the journal that the auctioneer had followed to.
    pub judged: Position,
    /// Classes of which a cell may take it once it has room.
    pub eligible: Vec<CellClass>,
    /// Classes of which none may.
    pub ineligible: Vec<CellClass>,
    /// How many classes there were beside those.
    pub others: u32,
    /// Those of its constraints for which cells of one class may differ.
    pub escaped: Vec<String>,
}
mirror!(struct Eligibility = placement::Eligibility { judged, eligible, ineligible, others, escaped });

/// A cell that could take the work, and how well.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Candidate {
    /// The cell.
    pub cell_id: CellId,
    /// Its zone.
    pub zone: Zone,
    /// For what is spread over attributes: how many instances the process would have if the share of every value were as full
    /// as this cell's would be. Else 0.
    pub spread: u32,
    /// The weights of the affinities that hold there, together.
    pub affinity: i32,
    /// Instances of the same process in that zone.
    pub siblings_in_zone: u32,
    /// Instances of the same process on that cell.
    pub siblings_on_cell: u32,
    /// Mean of the used parts of memory, disk and containers after placement, in thousandths.
    pub used_permille: u32,
}
mirror!(struct Candidate = placement::Candidate {
    cell_id, zone, spread, affinity, siblings_in_zone, siblings_on_cell, used_permille,
});

/// What a definition demands of a cell, apart from resources.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Constraint {
    /// The stack that the cell must offer; none: any cell will do.
    pub stack: Option<Stack>,
    /// Tags that the cell must carry, all of them.
    pub placement_tags: BTreeSet<PlacementTag>,
    /// The walls that its containers must have.
    #[serde(default)]
    pub walls: BTreeSet<Wall>,
    /// What it asks for beside that; none: nothing.
    pub rules: Option<Box<Rules>>,
}
mirror!(struct Constraint = resources::Constraint { stack, placement_tags, walls, rules });

/// What of a container's surroundings is not as usual.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Sandbox {
    /// The file system that it gets; empty: what programs need of the host's.
    pub root_fs: String,
    /// The network that it is in.
    pub network: Network,
    /// What is fetched before anything runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cached_dependencies: Vec<Download>,
    /// Whose log its lines are part of.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log_guid: String,
    /// What its lines are told as.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log_source: String,
    /// Whose metrics its metrics are.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub metrics_guid: String,
}
mirror!(struct Sandbox = definition::Sandbox {
    root_fs, network, cached_dependencies, log_guid, log_source, metrics_guid,
});

/// The network that a container is in.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// The host's.
    Host,
    /// One of its own, which leads nowhere.
    None,
}
mirror!(enum Network = definition::Network { Host, None });

/// An environment variable.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Variable {
    /// Its name.
    #[schemars(with = "String")]
    pub name: EcoString,
    /// Its value.
    pub value: Secret,
}
mirror!(struct Variable = action::Variable { name, value });

/// A value that may be secret: a plain one is the text itself, a sealed one `{"sealed": {"key": .., "data": ..}}`.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Secret {
    /// Readable by everybody who reads the log.
    Plain(#[schemars(with = "String")] EcoString),
    /// Encrypted for the cell that runs it.
    Sealed {
        /// The encrypted value.
        sealed: Box<Sealed>,
    },
}

/// An encrypted value.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Sealed {
    /// Names the key.
    pub key: String,
    /// The ciphertext, in base64.
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

/// What stands where a key would, if a secret got here that nobody sealed: it is lost, and never stored.
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
    /// Shows that there is a value, never which.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain(..)",
            Self::Sealed { .. } => "Sealed(..)",
        })
    }
}

/// One step of a container's recipe, as a tree.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Runs a program.
    Run(Run),
    /// Interrupts its action after a time.
    Timeout(Timeout),
    /// Runs its action and swallows its failure.
    Try(Try),
    /// Runs all at once, waits for all.
    Parallel(Group),
    /// Runs one after the other.
    Serial(Group),
    /// Runs all at once; the exit of any ends the others.
    Codependent(Group),
    /// Writes a line to the log before and after its action.
    EmitProgress(EmitProgress),
    /// Fetches an archive and unpacks it.
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
pub struct Run {
    /// The program: a path, or a name looked up in `PATH`.
    pub path: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Where it runs, relative to the container's work directory; empty: there.
    pub dir: String,
    /// Environment of this program, over the container's.
    pub env: Vec<Variable>,
    /// Whether its output is thrown away.
    pub suppress_log_output: bool,
    /// Who runs it; empty: whoever runs programs that name nobody.
    #[serde(default)]
    pub user: String,
    /// What its lines are told as; empty: as the definition says.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log_source: String,
    /// What it may take of the system.
    #[serde(default, skip_serializing_if = "ResourceLimits::is_default")]
    pub resource_limits: ResourceLimits,
}
mirror!(struct Run = action::Run {
    path, args, dir, env, suppress_log_output, user, log_source, resource_limits,
});

/// What a program may take of the system.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ResourceLimits {
    /// How many files it may have open; none: as many as its cell lets it.
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
pub struct Download {
    /// What it is called.
    pub artifact: String,
    /// Where it is.
    pub from: Secret,
    /// The folder that it is unpacked into.
    pub to: String,
    /// By which a cell keeps it; empty: it doesn't.
    pub cache_key: String,
    /// What its lines are told as; empty: as the definition says.
    pub log_source: String,
    /// Who owns what is unpacked; empty: whoever runs programs that name nobody.
    pub user: String,
    /// How it is checked; none: it isn't.
    pub checksum_algorithm: Option<ChecksumAlgorithm>,
    /// What must come out.
    pub checksum_value: String,
}
mirror!(struct Download = action::Download {
    artifact, from, to, cache_key, log_source, user, checksum_algorithm, checksum_value,
});

/// How an archive is checked.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChecksumAlgorithm {
    /// MD5.
    Md5,
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
}
mirror!(enum ChecksumAlgorithm = action::ChecksumAlgorithm { Md5, Sha1, Sha256 });

/// A file to send.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Upload {
    /// What it is called.
    pub artifact: String,
    /// The file.
    pub from: String,
    /// Where it is posted to.
    pub to: Secret,
    /// What its lines are told as; empty: as the definition says.
    pub log_source: String,
    /// Who reads it; empty: whoever runs programs that name nobody.
    pub user: String,
}
mirror!(struct Upload = action::Upload { artifact, from, to, log_source, user });

/// An action with a time limit.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Timeout {
    /// What is limited.
    pub action: Box<Action>,
    /// The limit in milliseconds.
    pub timeout_ms: u64,
}
mirror!(struct Timeout = action::Timeout { action, timeout_ms });

/// An action whose failure doesn't count.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Try {
    /// What is tried.
    pub action: Box<Action>,
}
mirror!(struct Try = action::Try { action });

/// Several actions.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Group {
    /// At least one.
    pub actions: Vec<Action>,
}
mirror!(struct Group = action::Group { actions });

/// An action with progress in the log.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct EmitProgress {
    /// What is run.
    pub action: Box<Action>,
    /// Written before it; empty: nothing.
    pub start_message: String,
    /// Written when it succeeded; empty: nothing.
    pub success_message: String,
    /// Written before the reason when it failed; empty: nothing.
    pub failure_message_prefix: String,
    /// What these lines are told as; empty: as the definition says.
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
    fn what_nobody_sealed_is_not_stored() {
        let stored: Secret = action::Secret::Open("very-secret".into()).mirror();
        let text = serde_json::to_string(&stored).unwrap();
        assert_eq!(text, r#"{"sealed":{"key":"none","data":""}}"#);
    }
}
