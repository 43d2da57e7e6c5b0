//! Actions: the tree of steps that a container runs. The kinds of actions are those in the reference of
//! Diego's models: run, timeout, try, parallel, serial, codependent, emit progress, download, upload.

use ecow::EcoString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits::{ACTION_DEPTH, ACTION_NODES};

/// A step of a container's recipe.
///
/// In JSON an action is a nested tree. In postcard it is a flat list of nodes, so that depth and size are
/// checked before any recursion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// Runs a program. Any exit status other than 0 is a failure.
    Run(Run),
    /// Interrupts its action after a time limit. An interrupted action counts as failed.
    Timeout(Timeout),
    /// Runs its action and ignores a failure.
    Try(Try),
    /// Runs its actions concurrently and waits for all of them. Fails if any action failed.
    Parallel(Group),
    /// Runs its actions one after the other. Stops at the first failure.
    Serial(Group),
    /// Runs its actions concurrently. The exit of any action, even with status 0, is a failure and ends the
    /// other actions.
    Codependent(Group),
    /// Writes a line to the log before and after its action.
    EmitProgress(EmitProgress),
    /// Fetches an archive and unpacks it.
    Download(Download),
    /// Uploads a file.
    Upload(Upload),
}

/// A program to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Program to run: a path, or a name that is looked up in `PATH`.
    pub path: String,
    /// Arguments of the program.
    #[serde(default)]
    pub args: Vec<String>,
    /// Working directory of the program, relative to the container's work directory. If empty, the work
    /// directory.
    #[serde(default)]
    pub dir: String,
    /// Environment of this program. Overrides variables of the container.
    #[serde(default)]
    pub env: Vec<Variable>,
    /// Set to `true` to discard the output of the program.
    #[serde(default)]
    pub suppress_log_output: bool,
    /// Account of the program inside the container, by name or number, optionally followed by `:GROUP`. If
    /// empty, the owner of the work directory. If the containers of a cell have no users of their own, the
    /// cell ignores this field and runs the program as the cell's user.
    #[serde(default)]
    pub user: String,
    /// Source label of the program's lines in the log. If empty, the label of the definition.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log_source: String,
    /// Limits on the program's use of system resources.
    #[serde(default, skip_serializing_if = "ResourceLimits::is_default")]
    pub resource_limits: ResourceLimits,
}

/// Limits on a program's use of system resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResourceLimits {
    /// Maximum number of open files. If absent, the limit of the cell.
    #[serde(default)]
    pub nofile: Option<u64>,
}

impl ResourceLimits {
    /// Returns `true` if no limit is set.
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// An archive to fetch and unpack. The format (tar, tar with gzip, or zip) is detected from the content, not
/// from the name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Download {
    /// Name of the archive in the log. If empty, the transfer is not logged.
    #[serde(default)]
    pub artifact: String,
    /// URL of the archive, http or https.
    pub from: Secret,
    /// Destination folder, relative to the work directory. A container with its own file system also accepts
    /// an absolute path. The folder is created if it does not exist.
    pub to: String,
    /// Key under which the cell caches the archive. Later downloads of the same domain use the cached
    /// archive. If empty, the archive is not cached.
    #[serde(default)]
    pub cache_key: String,
    /// Source label of the transfer's lines in the log. If empty, the label of the definition.
    #[serde(default)]
    pub log_source: String,
    /// Owner of the unpacked files, in the same form as the `user` of a run action.
    #[serde(default)]
    pub user: String,
    /// Checksum algorithm. If absent, the archive is not verified.
    #[serde(default)]
    pub checksum_algorithm: Option<ChecksumAlgorithm>,
    /// Expected checksum, in hexadecimal digits.
    #[serde(default)]
    pub checksum_value: String,
}

/// Checksum algorithm of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChecksumAlgorithm {
    /// MD5: detects corruption, not tampering.
    Md5,
    /// SHA-1: detects corruption, not tampering.
    Sha1,
    /// SHA-256.
    Sha256,
}

impl ChecksumAlgorithm {
    /// Every algorithm with its name.
    pub const ALL: [(&'static str, Self); 3] =
        [("md5", Self::Md5), ("sha1", Self::Sha1), ("sha256", Self::Sha256)];

    /// Returns the length of a checksum in hexadecimal digits.
    #[must_use]
    pub const fn digits(self) -> usize {
        match self {
            Self::Md5 => 32,
            Self::Sha1 => 40,
            Self::Sha256 => 64,
        }
    }
}

/// A file to upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Upload {
    /// Name of the file in the log. If empty, the transfer is not logged.
    #[serde(default)]
    pub artifact: String,
    /// File to upload, relative to the work directory. A container with its own file system also accepts an
    /// absolute path.
    pub from: String,
    /// URL that the file is posted to, http or https.
    pub to: Secret,
    /// Source label of the transfer's lines in the log. If empty, the label of the definition.
    #[serde(default)]
    pub log_source: String,
    /// User that reads the file, in the same form as the `user` of a run action.
    #[serde(default)]
    pub user: String,
}

/// An action with a time limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Timeout {
    /// Action that the limit applies to.
    pub action: Box<Action>,
    /// Time limit in milliseconds, at least 1.
    pub timeout_ms: u64,
}

/// An action whose failure is ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Try {
    /// Action to try.
    pub action: Box<Action>,
}

/// Several actions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Actions of the group, at least one.
    pub actions: Vec<Action>,
}

/// An action whose progress is logged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EmitProgress {
    /// Action to run.
    pub action: Box<Action>,
    /// Line to log before the action. If empty, no line is logged.
    #[serde(default)]
    pub start_message: String,
    /// Line to log after success. If empty, no line is logged.
    #[serde(default)]
    pub success_message: String,
    /// Prefix of the line to log after a failure. The line contains the reason of the failure. If empty, no
    /// line is logged.
    #[serde(default)]
    pub failure_message_prefix: String,
    /// Source label of these lines in the log. If empty, the label of the definition.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log_source: String,
}

/// An environment variable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    /// Name of the variable: not blank, without `=` and NUL.
    #[schemars(with = "String")]
    pub name: EcoString,
    /// Value of the variable.
    pub value: Secret,
}

/// A value that may be secret (docs/internals/model/secrets.md, "Secrets"). The log cannot be redacted, so
/// the log contains only sealed secrets.
///
/// In JSON, a plain value is the text itself, a secret is `{"secret": ..}`, and a sealed value is `{"sealed":
/// {"key": .., "data": ..}}`.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// A plain value: every reader of the log can read it.
    Plain(EcoString),
    /// An unsealed secret on its way from a client to the program that seals the secret. No decision reads an
    /// open secret, and no program stores or shows it.
    Open(EcoString),
    /// A secret that is encrypted for the cells that use it.
    Sealed(Box<Sealed>),
}

/// An encrypted value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sealed {
    /// Name of the sealing key.
    pub key: String,
    /// Version of the format, synthetic initialization vector and ciphertext, in base64.
    pub data: String,
}

impl Sealed {
    /// Bytes that sealing adds to a text: a version and a synthetic initialization vector.
    pub const OVERHEAD: usize = 1 + 16;

    /// Returns the length of the sealed text in bytes. Only this property is visible without the key.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        let padding = self.data.bytes().rev().take_while(|byte| *byte == b'=').count();
        (self.data.len() / 4 * 3).saturating_sub(padding + Self::OVERHEAD)
    }
}

/// Encoding of a value that may be secret. Postcard always uses this form; JSON uses it unless the value is
/// plain text.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SecretForm {
    /// A value that is not secret.
    Plain(#[schemars(with = "String")] EcoString),
    /// A secret that a BBS seals before any decision. Answers never contain it.
    Secret(#[schemars(with = "String")] EcoString),
    /// A sealed secret.
    Sealed(Box<Sealed>),
}

impl Secret {
    /// Returns the value if it is plain text.
    #[must_use]
    pub fn plain(&self) -> Option<&str> {
        match self {
            Self::Plain(text) => Some(text),
            Self::Open(_) | Self::Sealed(_) => None,
        }
    }
}

impl Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Plain(text) if to.is_human_readable() => to.serialize_str(text),
            Self::Plain(text) => SecretForm::Plain(text.clone()).serialize(to),
            Self::Open(text) => SecretForm::Secret(text.clone()).serialize(to),
            Self::Sealed(sealed) => SecretForm::Sealed(sealed.clone()).serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> serde::de::Visitor<'de> for Either {
            type Value = Secret;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("text, a secret, or a sealed value")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Secret, E> {
                Ok(Secret::Plain(text.into()))
            }
            fn visit_map<M: serde::de::MapAccess<'de>>(self, map: M) -> Result<Secret, M::Error> {
                SecretForm::deserialize(serde::de::value::MapAccessDeserializer::new(map)).map(Secret::from)
            }
        }
        if from.is_human_readable() {
            from.deserialize_any(Either)
        } else {
            SecretForm::deserialize(from).map(Self::from)
        }
    }
}

impl From<SecretForm> for Secret {
    fn from(form: SecretForm) -> Self {
        match form {
            SecretForm::Plain(text) => Self::Plain(text),
            SecretForm::Secret(text) => Self::Open(text),
            SecretForm::Sealed(sealed) => Self::Sealed(sealed),
        }
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let form = generator.subschema_for::<SecretForm>();
        let description = "A value that may be secret: text, or an object that names its form.";
        schemars::json_schema!({"description": description, "anyOf": [{"type": "string"}, form]})
    }
}

impl std::fmt::Debug for Secret {
    /// Formats the variant without its value, so that secrets never reach a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain(..)",
            Self::Open(_) => "Open(..)",
            Self::Sealed(_) => "Sealed(..)",
        })
    }
}

/// Node of an action tree. Its children follow it in the list.
#[derive(Serialize, Deserialize)]
enum Node {
    Run(FullRun),
    Timeout(u64),
    Try,
    Parallel(u32),
    Serial(u32),
    Codependent(u32),
    EmitProgress([String; 4]),
    Download(Box<Download>),
    Upload(Box<Upload>),
}

/// A run with all of its fields, for postcard. Postcard cannot omit fields.
///
/// The JSON form of [`Run`] omits newer fields if they have their default value. This keeps the size, id and
/// digest of an old definition.
#[derive(Serialize, Deserialize)]
struct FullRun {
    path: String,
    args: Vec<String>,
    dir: String,
    env: Vec<Variable>,
    suppress_log_output: bool,
    user: String,
    log_source: String,
    resource_limits: ResourceLimits,
}

impl From<&Run> for FullRun {
    fn from(run: &Run) -> Self {
        let Run { path, args, dir, env, suppress_log_output, user, log_source, resource_limits } =
            run.clone();
        Self { path, args, dir, env, suppress_log_output, user, log_source, resource_limits }
    }
}

impl From<FullRun> for Run {
    fn from(whole: FullRun) -> Self {
        let FullRun { path, args, dir, env, suppress_log_output, user, log_source, resource_limits } = whole;
        Self { path, args, dir, env, suppress_log_output, user, log_source, resource_limits }
    }
}

/// Nodes of an action tree. The decoder reads at most `ACTION_NODES` nodes, even if the message announces a
/// longer list.
struct NodeList(Vec<Node>);

impl<'de> Deserialize<'de> for NodeList {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Nodes;
        impl<'de> serde::de::Visitor<'de> for Nodes {
            type Value = NodeList;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("the nodes of an action tree")
            }
            fn visit_seq<S: serde::de::SeqAccess<'de>>(self, mut from: S) -> Result<NodeList, S::Error> {
                let mut row = vec![];
                while let Some(node) = from.next_element()? {
                    if row.len() >= ACTION_NODES {
                        return Err(serde::de::Error::custom("action tree has too many nodes"));
                    }
                    row.push(node);
                }
                Ok(NodeList(row))
            }
        }
        from.deserialize_seq(Nodes)
    }
}

impl Serialize for Action {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() {
            return Self::serialize(self, to);
        }
        let mut row = vec![];
        self.flatten(&mut row);
        row.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Action {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if from.is_human_readable() {
            return Self::deserialize(from);
        }
        let NodeList(row) = NodeList::deserialize(from)?;
        let mut nodes = row.into_iter();
        let tree = Self::unflatten(&mut nodes, ACTION_DEPTH).map_err(serde::de::Error::custom)?;
        if nodes.next().is_some() {
            return Err(serde::de::Error::custom("action tree is followed by extra nodes"));
        }
        Ok(tree)
    }
}

impl Action {
    fn flatten(&self, row: &mut Vec<Node>) {
        let count = |group: &Group| u32::try_from(group.actions.len()).unwrap_or(u32::MAX);
        row.push(match self {
            Self::Run(run) => Node::Run(run.into()),
            Self::Timeout(timeout) => Node::Timeout(timeout.timeout_ms),
            Self::Try(_) => Node::Try,
            Self::Parallel(group) => Node::Parallel(count(group)),
            Self::Serial(group) => Node::Serial(count(group)),
            Self::Codependent(group) => Node::Codependent(count(group)),
            Self::EmitProgress(EmitProgress {
                start_message,
                success_message,
                failure_message_prefix,
                log_source,
                action: _,
            }) => Node::EmitProgress(
                [start_message, success_message, failure_message_prefix, log_source].map(String::clone),
            ),
            Self::Download(download) => Node::Download(Box::new(download.clone())),
            Self::Upload(upload) => Node::Upload(Box::new(upload.clone())),
        });
        for child in self.children() {
            child.flatten(row);
        }
    }

    fn unflatten(nodes: &mut std::vec::IntoIter<Node>, depth: usize) -> Result<Self, &'static str> {
        if depth == 0 {
            return Err("action tree is too deep");
        }
        let one = |nodes: &mut std::vec::IntoIter<Node>| Self::unflatten(nodes, depth - 1).map(Box::new);
        let many = |nodes: &mut std::vec::IntoIter<Node>, count: u32| {
            let actions: Result<_, _> = (0..count).map(|_| Self::unflatten(nodes, depth - 1)).collect();
            actions.map(|actions| Group { actions })
        };
        Ok(match nodes.next().ok_or("action tree is truncated")? {
            Node::Run(run) => Self::Run(run.into()),
            Node::Timeout(timeout_ms) => Self::Timeout(Timeout { action: one(nodes)?, timeout_ms }),
            Node::Try => Self::Try(Try { action: one(nodes)? }),
            Node::Parallel(count) => Self::Parallel(many(nodes, count)?),
            Node::Serial(count) => Self::Serial(many(nodes, count)?),
            Node::Codependent(count) => Self::Codependent(many(nodes, count)?),
            Node::EmitProgress([start_message, success_message, failure_message_prefix, log_source]) => {
                let action = one(nodes)?;
                Self::EmitProgress(EmitProgress {
                    action,
                    start_message,
                    success_message,
                    failure_message_prefix,
                    log_source,
                })
            }
            Node::Download(download) => Self::Download(*download),
            Node::Upload(upload) => Self::Upload(*upload),
        })
    }

    /// Returns the direct children of this action.
    #[must_use]
    pub fn children(&self) -> &[Self] {
        match self {
            Self::Run(_) | Self::Download(_) | Self::Upload(_) => &[],
            Self::Timeout(Timeout { action, .. })
            | Self::Try(Try { action })
            | Self::EmitProgress(EmitProgress { action, .. }) => std::slice::from_ref(action),
            Self::Parallel(group) | Self::Serial(group) | Self::Codependent(group) => &group.actions,
        }
    }

    /// Returns the direct children of this action for modification.
    pub fn children_mut(&mut self) -> &mut [Self] {
        match self {
            Self::Run(_) | Self::Download(_) | Self::Upload(_) => &mut [],
            Self::Timeout(Timeout { action, .. })
            | Self::Try(Try { action })
            | Self::EmitProgress(EmitProgress { action, .. }) => std::slice::from_mut(action),
            Self::Parallel(group) | Self::Serial(group) | Self::Codependent(group) => &mut group.actions,
        }
    }

    /// Returns the faults of this tree. Each fault has the path of its node, such as
    /// `action.serial.actions[2].run.path`.
    #[must_use]
    pub fn faults(&self, path: &str) -> Vec<(String, String)> {
        let mut faults = vec![];
        let mut nodes = 0;
        self.walk(path, 1, &mut nodes, &mut faults);
        if nodes > ACTION_NODES {
            faults.push((path.to_owned(), format!("has {nodes} nodes, more than {ACTION_NODES}")));
        }
        faults
    }

    /// Appends the faults of this subtree. The recursion is safe, because the decoder limits the depth of a
    /// tree (see [`depth_of_json`]).
    fn walk(&self, path: &str, depth: usize, nodes: &mut usize, faults: &mut Vec<(String, String)>) {
        *nodes += 1;
        if depth > ACTION_DEPTH {
            return faults.push((path.to_owned(), format!("is nested deeper than {ACTION_DEPTH}")));
        }
        let path = format!("{path}.{}", self.spec_name());
        match self {
            Self::Run(run) => run.faults(&path, faults),
            Self::Download(Download { to: inside, .. }) | Self::Upload(Upload { from: inside, .. }) => {
                let field = if matches!(self, Self::Download(_)) { "to" } else { "from" };
                faults.extend(path_fault(inside).map(|fault| (format!("{path}.{field}"), fault.to_owned())));
            }
            Self::Timeout(timeout) => {
                if timeout.timeout_ms == 0 {
                    faults.push((format!("{path}.timeout_ms"), "must be at least 1".into()));
                }
                timeout.action.walk(&format!("{path}.action"), depth + 1, nodes, faults);
            }
            Self::Try(Try { action }) | Self::EmitProgress(EmitProgress { action, .. }) => {
                action.walk(&format!("{path}.action"), depth + 1, nodes, faults);
            }
            Self::Parallel(group) | Self::Serial(group) | Self::Codependent(group) => {
                if group.actions.is_empty() {
                    faults.push((format!("{path}.actions"), "must contain at least one action".into()));
                }
                for (at, action) in group.actions.iter().enumerate() {
                    action.walk(&format!("{path}.actions[{at}]"), depth + 1, nodes, faults);
                }
            }
        }
    }

    /// Returns the field name of this action in a spec.
    #[must_use]
    pub const fn spec_name(&self) -> &'static str {
        match self {
            Self::Run(_) => "run",
            Self::Timeout(_) => "timeout",
            Self::Try(_) => "try",
            Self::Parallel(_) => "parallel",
            Self::Serial(_) => "serial",
            Self::Codependent(_) => "codependent",
            Self::EmitProgress(_) => "emit_progress",
            Self::Download(_) => "download",
            Self::Upload(_) => "upload",
        }
    }

    /// Returns the first program of the tree, from left to right, or `None` if the tree runs no program.
    #[must_use]
    pub fn first_run(&self) -> Option<&Run> {
        if let Self::Run(run) = self { Some(run) } else { self.children().iter().find_map(Self::first_run) }
    }

    /// Returns `true` if a transfer uses an absolute path. Such a path requires a container with its own file
    /// system.
    #[must_use]
    pub fn needs_own_file_system(&self) -> bool {
        let mut needs = false;
        self.for_each_transfer(&mut |transfer| needs |= transfer.path().starts_with('/'));
        needs
    }

    /// Calls `give` with each download and upload, from left to right. The recursion is safe, because specs
    /// and messages limit the depth of a tree.
    pub fn for_each_transfer<'a>(&'a self, give: &mut impl FnMut(Transfer<'a>)) {
        match self {
            Self::Download(download) => give(Transfer::Download(download)),
            Self::Upload(upload) => give(Transfer::Upload(upload)),
            Self::Run(_)
            | Self::Timeout(_)
            | Self::Try(_)
            | Self::Parallel(_)
            | Self::Serial(_)
            | Self::Codependent(_)
            | Self::EmitProgress(_) => self.children().iter().for_each(|child| child.for_each_transfer(give)),
        }
    }
}

/// A download or an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer<'a> {
    Download(&'a Download),
    Upload(&'a Upload),
}

impl<'a> Transfer<'a> {
    /// Returns the path of the transferred file or folder in the container.
    #[must_use]
    pub fn path(self) -> &'a str {
        match self {
            Self::Download(download) => &download.to,
            Self::Upload(upload) => &upload.from,
        }
    }
}

/// Returns the fault of a path in a container, or `None` if it is valid.
#[must_use]
pub fn path_fault(path: &str) -> Option<&'static str> {
    if path.is_empty() {
        Some("must name a path")
    } else if path.split('/').any(|part| part == "..") {
        Some("must not contain ..")
    } else if path.contains('\0') {
        Some("must not contain NUL")
    } else {
        None
    }
}

impl Run {
    fn faults(&self, path: &str, faults: &mut Vec<(String, String)>) {
        if self.path.is_empty() {
            faults.push((format!("{path}.path"), "must name a program".into()));
        }
        let texts = [&self.path, &self.dir].into_iter().chain(&self.args);
        if texts.into_iter().any(|text| text.contains('\0')) {
            faults.push((path.to_owned(), "must not contain NUL".into()));
        }
        faults.extend(variable_faults(&self.env, &format!("{path}.env")));
    }
}

/// Returns the faults of a list of environment variables. Each fault has its path below `path`.
#[must_use]
pub fn variable_faults(variables: &[Variable], path: &str) -> Vec<(String, String)> {
    use crate::limits::{ENVIRONMENT_BYTES, ENVIRONMENT_VALUES};
    let mut faults = vec![];
    let mut bytes = 0;
    for (at, Variable { name, value }) in variables.iter().enumerate() {
        let here = format!("{path}[{at}]");
        if name.trim().is_empty() || name.contains(['=', '\0']) {
            faults.push((format!("{here}.name"), "must not be blank or contain = or NUL".into()));
        }
        bytes += name.len();
        match value {
            Secret::Plain(text) | Secret::Open(text) => {
                bytes += text.len();
                if text.contains('\0') {
                    faults.push((format!("{here}.value"), "must not contain NUL".into()));
                }
            }
            Secret::Sealed(sealed) => bytes += sealed.text_bytes(),
        }
    }
    if variables.len() > ENVIRONMENT_VALUES {
        faults.push((path.to_owned(), format!("has more than {ENVIRONMENT_VALUES} values")));
    }
    if bytes > ENVIRONMENT_BYTES {
        faults.push((path.to_owned(), format!("is larger than {ENVIRONMENT_BYTES} bytes")));
    }
    faults
}

/// Returns the maximum nesting depth of arrays and objects in JSON text. The function does not recurse. Call
/// it before decoding a tree of unknown depth.
#[must_use]
pub fn depth_of_json(text: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for &byte in text {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b'{' | b'[') => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            (false, b'}' | b']') => depth = depth.saturating_sub(1),
            (true | false, _) => {}
        }
    }
    deepest
}
