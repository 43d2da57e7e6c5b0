//! `muster secrets`: manages key files. Keys are used locally and never sent to a cluster.

use std::path::{Path, PathBuf};

use ::secrets::{Key, Keys, Ring};
use clap::{Args, Subcommand};
use cli_base::connect::{connect, data_folder};
use cli_base::failure::Failure;
use cli_base::options::Global;
use cli_base::output::{Output, note};
use cli_base::table::{Cell, Table};
use client::{Client, ListFilter};
use host::error::ServiceError;
use runtime::exit::Exit;
use schemas::Timestamp;
use serde::Serialize;
use serde_json::Value;
use text::words::count;

/// Maximum number of users of a key that are listed.
const MAX_LISTED: usize = 20;

/// Output of a command that changes a key file.
#[derive(Serialize)]
struct ChangeResult<'a> {
    file: &'a Path,
    action: &'a str,
    key: &'a str,
}

/// Path of a key file.
#[derive(Clone, Debug, Args)]
pub struct KeyFile {
    /// Key file [default: the key file in the data folder of muster dev]
    #[arg(value_name = "FILE", env = "MUSTER_SECRETS")]
    pub(crate) file: Option<PathBuf>,
}

/// Subcommands of `muster secrets`.
#[derive(Clone, Debug, Subcommand)]
pub enum SecretsVerb {
    /// Create a key file with a first key
    Init {
        #[command(flatten)]
        keys: KeyFile,
    },
    /// Add a key to a file. The new key seals nothing yet: copy the file to every rep and BBS, then run the
    /// command again with --seal
    Rotate {
        #[command(flatten)]
        keys: KeyFile,
        /// Seal with this key from now on; every rep and BBS must already have it. The other keys still open
        /// the values that they sealed
        #[arg(long, value_name = "KEY")]
        seal: Option<String>,
    },
    /// List the ids of the keys in a file
    List {
        #[command(flatten)]
        keys: KeyFile,
    },
    /// Delete a key from a file. Values that it sealed are erased unless another copy of the key exists.
    /// Lists the objects that still use the key
    #[command(aliases = ["rm", "remove", "forget"])]
    Delete {
        /// Id of the key
        key: String,
        #[command(flatten)]
        keys: KeyFile,
        /// Delete the key even if it is still in use
        #[arg(long)]
        yes: bool,
    },
}

/// Key file of a command that computes decisions locally. Before it decides, the command seals the secrets of
/// the process or task, like a BBS.
#[derive(Clone, Debug, Args)]
pub struct LocalKeys {
    /// File of the cluster's keys for secrets [default: that of a local cluster, in its data folder]
    #[arg(long, value_name = "FILE", env = "MUSTER_SECRETS")]
    secrets: Option<PathBuf>,
}

impl LocalKeys {
    /// Reads the key file, or returns no keys if none is named.
    pub fn open(&self, global: &Global) -> Result<Keys, Failure> {
        let default_file = || {
            data_folder(global)
                .map(|folder| folder.join(::secrets::KEY_FILE_NAME))
                .filter(|file| file.exists())
        };
        let file = self.secrets.clone().or_else(default_file);
        Ok(file.as_deref().map(Keys::from_file).transpose()?.unwrap_or_default())
    }
}

/// Output row for a key, without the key itself.
#[derive(Serialize)]
struct KeyRow {
    id: String,
    created_at: Timestamp,
    seals: bool,
}

pub(crate) async fn run(verb: SecretsVerb, global: &Global) -> Result<(), Failure> {
    match verb {
        SecretsVerb::Init { keys } => init(&key_file(keys, global)?, global),
        SecretsVerb::Rotate { keys, seal: None } => add(&key_file(keys, global)?, global),
        SecretsVerb::Rotate { keys, seal: Some(key) } => seal_with(&key, &key_file(keys, global)?, global),
        SecretsVerb::List { keys } => list(&key_file(keys, global)?, global),
        SecretsVerb::Delete { key, keys, yes } => delete(&key, &key_file(keys, global)?, yes, global).await,
    }
}

/// Returns the selected key file, or the key file of a local cluster.
fn key_file(keys: KeyFile, global: &Global) -> Result<PathBuf, Failure> {
    let default_file = || data_folder(global).map(|folder| folder.join(::secrets::KEY_FILE_NAME));
    keys.file
        .or_else(default_file)
        .ok_or_else(|| Failure::usage("no key file: pass FILE, or set MUSTER_SECRETS"))
}

fn new_key() -> Result<Key, Failure> {
    let bytes = clock::key().map_err(|error| Failure::from(ServiceError::Randomness(error)))?;
    Ok(Key::new(bytes, clock::now()))
}

fn init(path: &Path, global: &Global) -> Result<(), Failure> {
    let key = new_key()?;
    let id = key.id().to_owned();
    Ring::from_key(key).create(path)?;
    print_change(path, "created", &id, global, |path| {
        format!(
            "created {path} with key {id}: keep a copy apart from the backups of the journal\n\
             start each BBS and rep with --secrets {path}, or MUSTER_SECRETS"
        )
    })
}

/// Adds a key that opens secrets, but does not seal them yet. The operator distributes the file before the
/// key seals. Every BBS and rep can therefore open the secrets that the key seals later.
fn add(path: &Path, global: &Global) -> Result<(), Failure> {
    let key = new_key()?;
    let id = key.id().to_owned();
    let sealing = Ring::change(path, |ring| {
        ring.add(key);
        Ok::<_, Failure>(ring.sealing_key().map(|key| key.id().to_owned()))
    })?;
    print_change(path, "added", &id, global, |path| {
        let seals = sealing.unwrap_or_default();
        format!(
            "added key {id} to {path}; key {seals} still seals\n\
             copy the file to every rep and BBS, then run: muster secrets rotate --seal {id} {path}"
        )
    })
}

fn seal_with(key: &str, path: &Path, global: &Global) -> Result<(), Failure> {
    Ring::change(path, |ring| if ring.seal_with(key) { Ok(()) } else { Err(unknown_key(key, path, ring)) })?;
    print_change(path, "seals", key, global, |path| format!("key {key} now seals: copy {path} to every BBS"))
}

fn unknown_key(key: &str, path: &Path, ring: &Ring) -> Failure {
    let known: Vec<&str> = ring.keys().iter().map(Key::id).collect();
    let advice =
        format!("keys in the file: {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") });
    Failure::not_found(format!("key {key} in {}", path.display())).advise(advice)
}

fn print_change(
    path: &Path,
    action: &str,
    key: &str,
    global: &Global,
    text: impl FnOnce(std::path::Display<'_>) -> String,
) -> Result<(), Failure> {
    Output::new(global).write_one(&ChangeResult { file: path, action, key }, |_, _| text(path.display()))
}

fn list(path: &Path, global: &Global) -> Result<(), Failure> {
    let ring = Ring::read(path)?;
    let sealing = ring.sealing_key().map(Key::id);
    let shown = |key: &Key| KeyRow {
        id: key.id().to_owned(),
        created_at: key.created(),
        seals: sealing == Some(key.id()),
    };
    let rows: Vec<KeyRow> = ring.keys().iter().map(shown).collect();
    Output::new(global).write_rows(&rows, |rows, _| {
        let headers = ["KEY", "CREATED", "SEALS"];
        Table::with_rows(headers, rows, |KeyRow { id, created_at, seals }| {
            let seals = if *seals { "yes" } else { "no, opens only" };
            [Cell::text(id), Cell::text(created_at), Cell::text(seals)]
        })
    })
}

async fn delete(key: &str, path: &Path, yes: bool, global: &Global) -> Result<(), Failure> {
    let doing = |failure: Failure| failure.while_doing(format!("delete key {key}"));
    check_deletable(&Ring::read(path)?, key, path)?;
    if !yes {
        return Err(doing(confirmation_failure(key, global).await));
    }
    Ring::change(path, |ring| {
        // Another process may have changed the file since the first check.
        check_deletable(ring, key, path)?;
        ring.take(key);
        Ok::<_, Failure>(())
    })?;
    print_change(path, "deleted", key, global, |path| {
        format!(
            "deleted key {key} from {path}: secrets that it sealed become unreadable once all copies of the \
             file are replaced: on BBSs, on reps and in backups"
        )
    })
}

/// Fails if the key does not exist or is the sealing key.
fn check_deletable(ring: &Ring, key: &str, path: &Path) -> Result<(), Failure> {
    if ring.find(key).is_none() {
        return Err(unknown_key(key, path, ring));
    }
    if ring.sealing_key().is_some_and(|sealing| sealing.id() == key) {
        let advice = "first make another key the sealing key (muster secrets rotate FILE), then apply desired work again";
        let failure = Failure::new(Exit::Conflict, "InUse", "it is the sealing key").advise(advice);
        return Err(failure.while_doing(format!("delete key {key}")));
    }
    Ok(())
}

/// Returns the failure of the command without `--yes`. The failure describes the consequences of deleting the
/// key.
async fn confirmation_failure(key: &str, global: &Global) -> Failure {
    let confirm = "to delete the key anyway: --yes";
    match users(key, global).await {
        Ok(KeyUsers { certain, possible }) => {
            let told = certain.iter().chain(&possible);
            told.take(MAX_LISTED).for_each(|user| note(user));
            let number = certain.len() + possible.len();
            if number > MAX_LISTED {
                note(&format!("and {} more", number - MAX_LISTED));
            }
            let apply = "apply them again first: this seals their secrets with the sealing key";
            let (code, why, advice) = match (certain.len(), possible.len()) {
                (0, 0) => {
                    let why =
                        "no desired work uses the key, but secrets that it sealed earlier become unreadable";
                    ("NotConfirmed", why.to_owned(), None)
                }
                (0, possible) => {
                    let may = count(possible as u64, "item");
                    let why = format!("no desired work uses the key now, but {may} may still need it");
                    ("NotConfirmed", why, None)
                }
                (certain, _) => {
                    let used = count(certain as u64, "item");
                    let why = format!("{used} could not start again: the key seals secrets of this work");
                    ("InUse", why, Some(apply.to_owned()))
                }
            };
            Failure::new(Exit::Conflict, code, why).advise_some(advice).advise(confirm)
        }
        Err(failure) => {
            let why = format!("can't determine what still uses the key: {}", failure.message);
            Failure::new(Exit::Conflict, "NotConfirmed", why).advise(confirm)
        }
    }
}

/// Resources that need a key.
#[derive(Default)]
struct KeyUsers {
    /// Resources with a secret that is sealed with the key.
    certain: Vec<String>,
    /// Resources that may need the key for a definition outside their rows. Such a definition is the previous
    /// one of a rollout, or the earlier template of a waiting dispatch.
    possible: Vec<String>,
}

impl KeyUsers {
    fn check_row(&mut self, key: &str, name: String, row: &impl Serialize) -> Result<bool, Failure> {
        let row = serde_json::to_value(row);
        let row = row.map_err(|error| Failure::new(Exit::Failed, "Output", error.to_string()))?;
        let uses = is_sealed_with(&row, key);
        self.certain.extend(uses.then_some(name));
        Ok(uses)
    }
}

/// Returns the resources with a secret that is sealed with a key, and the resources that may still use a
/// secret of this kind.
async fn users(key: &str, global: &Global) -> Result<KeyUsers, Failure> {
    let client: Client = connect(global).await?;
    let all = ListFilter::default();
    let mut users = KeyUsers::default();
    for row in client.lrps_with_definitions(&all).await?.rows {
        let name = format!("process {}", row.process_guid);
        let rollout = row.rollout.as_ref().filter(|rollout| !rollout.is_completed());
        let kept = rollout.and_then(|rollout| rollout.rollback_to.as_ref());
        if !users.check_row(key, name.clone(), &row)?
            && kept.is_some_and(|id| !row.definitions.contains_key(id))
        {
            users
                .possible
                .push(format!("{name} keeps 1 other definition, whose secrets may be sealed with the key"));
        }
    }
    for row in client.tasks_with_definitions(&all).await?.rows {
        users.check_row(key, format!("task {}", row.task_guid), &row)?;
    }
    for row in client.periodics(&all).await?.rows {
        let row = client.periodic(&row.periodic_guid).await?.row;
        users.check_row(key, format!("periodic task {}", row.periodic_guid), &row)?;
    }
    for row in client.parameterised(&all).await?.rows {
        let row = client.parameterised_one(&row.parameterised_guid).await?.row;
        let name = format!("parameterised task {}", row.parameterised_guid);
        if !users.check_row(key, name.clone(), &row)? && row.waiting > 0 {
            let waiting = row.waiting;
            users
                .possible
                .push(format!("{name}: waiting dispatches may use an earlier template ({waiting} waiting)"));
        }
    }
    Ok(users)
}

/// Returns `true` if the value contains a secret that is sealed with the key: `{"sealed": {"key": .., "data":
/// ..}}`.
fn is_sealed_with(value: &Value, key: &str) -> bool {
    match value {
        Value::Object(object) => {
            let of = object.get("sealed").and_then(|sealed| sealed.get("key")).and_then(Value::as_str);
            of == Some(key) || object.values().any(|value| is_sealed_with(value, key))
        }
        Value::Array(all) => all.iter().any(|value| is_sealed_with(value, key)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
