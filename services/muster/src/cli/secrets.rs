//! `muster secrets`: manages key files. Keys are used locally and never sent to a cluster.

use std::path::{Path, PathBuf};

use ::secrets::{FileError, Key, Keys, Ring};
use clap::Args;
use client::{Client, Only};
use schemas::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::args::{Global, KeyFile, SecretsVerb};
use super::connect::{connect, data_folder};
use super::failure::{Exit, Failure};
use super::output::{Output, note};
use super::table::{Cell, Table};
use super::words::count;
use crate::error::{ServiceError, chain};

/// Maximum number of users of a key that are listed.
const NAMED: usize = 20;

/// Key file of a command that decides locally. Like in a BBS, secrets in desired work are sealed first.
#[derive(Clone, Debug, Args)]
pub(crate) struct KeysHere {
    /// File of the cluster's keys for secrets [default: that of a local cluster, in its data folder]
    #[arg(long, value_name = "FILE", env = "MUSTER_SECRETS")]
    secrets: Option<PathBuf>,
}

impl KeysHere {
    pub(crate) fn open(&self, global: &Global) -> Result<Keys, Failure> {
        let usual =
            || data_folder(global).map(|folder| folder.join(::secrets::FILE)).filter(|file| file.exists());
        let file = self.secrets.clone().or_else(usual);
        Ok(file.as_deref().map(Keys::of_file).transpose()?.unwrap_or_default())
    }
}

/// Output of a command that changes a key file.
#[derive(Serialize)]
struct Changed<'a> {
    file: &'a Path,
    did: &'a str,
    key: &'a str,
}

/// Output row for a key, without the key itself.
#[derive(Serialize)]
struct Shown {
    id: String,
    made: Timestamp,
    seals: bool,
}

pub(crate) async fn run(verb: SecretsVerb, global: &Global) -> Result<(), Failure> {
    match verb {
        SecretsVerb::Init { keys } => init(&file(keys, global)?, global),
        SecretsVerb::Rotate { keys, seal: None } => add(&file(keys, global)?, global),
        SecretsVerb::Rotate { keys, seal: Some(key) } => seal_with(&key, &file(keys, global)?, global),
        SecretsVerb::List { keys } => list(&file(keys, global)?, global),
        SecretsVerb::Forget { key, keys, yes } => forget(&key, &file(keys, global)?, yes, global).await,
    }
}

/// Returns the selected key file, or that of a local cluster.
fn file(keys: KeyFile, global: &Global) -> Result<PathBuf, Failure> {
    let usual = || data_folder(global).map(|folder| folder.join(::secrets::FILE));
    keys.file.or_else(usual).ok_or_else(|| {
        Failure::usage("no file of keys is named: give it behind the command, or set MUSTER_SECRETS")
    })
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        let why = chain(&error);
        match error {
            FileError::Exists { .. } => Self::new(Exit::Conflict, "Exists", why)
                .advise("to add a key to it: muster secrets rotate FILE"),
            FileError::Unreadable { .. }
            | FileError::Unwritable { .. }
            | FileError::Open { .. }
            | FileError::Malformed { .. }
            | FileError::Busy { .. } => Self::new(Exit::Failed, "Keys", why),
        }
    }
}

fn new_key() -> Result<Key, Failure> {
    let bytes = clock::key().map_err(|error| Failure::from(ServiceError::Randomness(error)))?;
    Ok(Key::new(bytes, clock::now()))
}

fn init(path: &Path, global: &Global) -> Result<(), Failure> {
    let key = new_key()?;
    let id = key.id().to_owned();
    Ring::of(key).create(path)?;
    told(path, "made", &id, global, |path| {
        format!(
            "{path} is made, with key {id}: keep a copy where the journal's backups are not\n\
             start each BBS and rep with it: --secrets {path}, or MUSTER_SECRETS"
        )
    })
}

/// Adds a key that only opens. Distributing the file first ensures that every process can open secrets once
/// the key seals.
fn add(path: &Path, global: &Global) -> Result<(), Failure> {
    let key = new_key()?;
    let id = key.id().to_owned();
    let sealing = Ring::change(path, |ring| {
        ring.add(key);
        Ok::<_, Failure>(ring.sealing().map(|key| key.id().to_owned()))
    })?;
    told(path, "added", &id, global, |path| {
        let seals = sealing.unwrap_or_default();
        format!(
            "key {id} is added to {path}, and {seals} still seals\n\
             bring the file to every rep and BBS, then: muster secrets rotate --seal {id} {path}"
        )
    })
}

fn seal_with(key: &str, path: &Path, global: &Global) -> Result<(), Failure> {
    Ring::change(path, |ring| if ring.seal_with(key) { Ok(()) } else { Err(unknown(key, path, ring)) })?;
    told(path, "seals", key, global, |path| {
        format!("key {key} seals from now on, wherever {path} is as it is here: bring it to every BBS")
    })
}

fn unknown(key: &str, path: &Path, ring: &Ring) -> Failure {
    let known: Vec<&str> = ring.keys().iter().map(Key::id).collect();
    let advice = format!("its keys: {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") });
    Failure::not_found(format!("key {key} in {}", path.display())).advise(advice)
}

fn told(
    path: &Path,
    did: &str,
    key: &str,
    global: &Global,
    text: impl FnOnce(std::path::Display<'_>) -> String,
) -> Result<(), Failure> {
    Output::new(global).one(&Changed { file: path, did, key }, |_, _| text(path.display()))
}

fn list(path: &Path, global: &Global) -> Result<(), Failure> {
    let ring = Ring::read(path)?;
    let sealing = ring.sealing().map(Key::id);
    let shown =
        |key: &Key| Shown { id: key.id().to_owned(), made: key.made(), seals: sealing == Some(key.id()) };
    let rows: Vec<Shown> = ring.keys().iter().map(shown).collect();
    Output::new(global).rows(&rows, |rows, _| {
        let mut table = Table::new(&["KEY", "MADE", "SEALS"]);
        for Shown { id, made, seals } in rows {
            let seals = if *seals { "yes" } else { "no, only opens" };
            table.row(vec![Cell::text(id), Cell::text(made), Cell::text(seals)]);
        }
        table
    })
}

async fn forget(key: &str, path: &Path, yes: bool, global: &Global) -> Result<(), Failure> {
    let doing = |failure: Failure| failure.doing(format!("forget key {key}"));
    check_forgettable(&Ring::read(path)?, key, path)?;
    if !yes {
        return Err(doing(unconfirmed(key, global).await));
    }
    Ring::change(path, |ring| {
        // Another process may have changed the file since the first check.
        check_forgettable(ring, key, path)?;
        ring.take(key);
        Ok::<_, Failure>(())
    })?;
    told(path, "forgotten", key, global, |path| {
        format!(
            "key {key} is forgotten: what it sealed is erased once it is out of every copy of {path}, those of BBSs, reps and \
             backups"
        )
    })
}

/// Fails if the key does not exist or is the sealing key.
fn check_forgettable(ring: &Ring, key: &str, path: &Path) -> Result<(), Failure> {
    if ring.find(key).is_none() {
        return Err(unknown(key, path, ring));
    }
    if ring.sealing().is_some_and(|sealing| sealing.id() == key) {
        let advice =
            "first have another one seal, and desire anew what is to live on: muster secrets rotate FILE";
        let failure = Failure::new(Exit::Conflict, "InUse", "it is the one that seals").advise(advice);
        return Err(failure.doing(format!("forget key {key}")));
    }
    Ok(())
}

/// Returns the failure without `--yes`, which describes the consequences of forgetting a key.
async fn unconfirmed(key: &str, global: &Global) -> Failure {
    let confirm = "to forget it all the same: --yes";
    match users(key, global).await {
        Ok(Users { certain, possible }) => {
            let told = certain.iter().chain(&possible);
            told.take(NAMED).for_each(|user| note(user));
            let number = certain.len() + possible.len();
            if number > NAMED {
                note(&format!("and {} more", number - NAMED));
            }
            let apply = "apply them again first: their secrets are then sealed with the key that seals";
            let (code, why, advice) = match (certain.len(), possible.len()) {
                (0, 0) => {
                    let why = "nothing that is desired now uses it, and what it sealed before can't be opened any more then";
                    ("NotConfirmed", why.to_owned(), None)
                }
                (0, possible) => {
                    let may = count(possible as u64, "thing");
                    let why =
                        format!("nothing uses it now, but {may} may need it to go back to what was before");
                    ("NotConfirmed", why, None)
                }
                (certain, _) => {
                    let used = count(certain as u64, "thing");
                    let why =
                        format!("{used} would not start again, since secrets of them are sealed with it");
                    ("InUse", why, Some(apply.to_owned()))
                }
            };
            Failure::new(Exit::Conflict, code, why).advise_some(advice).advise(confirm)
        }
        Err(failure) => {
            let why =
                format!("what still uses it is not known, since no cluster says so: {}", failure.message);
            Failure::new(Exit::Conflict, "NotConfirmed", why).advise(confirm)
        }
    }
}

/// Resources that need a key.
#[derive(Default)]
struct Users {
    /// Desired resources with a secret that is sealed with the key.
    certain: Vec<String>,
    /// Resources that may need the key for a definition that no row shows: a rollout's previous one, or that
    /// of a waiting dispatch.
    possible: Vec<String>,
}

impl Users {
    fn look(&mut self, key: &str, name: String, row: &impl Serialize) -> Result<bool, Failure> {
        let row = serde_json::to_value(row);
        let row = row.map_err(|error| Failure::new(Exit::Failed, "Output", error.to_string()))?;
        let uses = is_sealed_with(&row, key);
        self.certain.extend(uses.then_some(name));
        Ok(uses)
    }
}

/// Returns the desired resources with a secret that is sealed with a key, and those that may return to one.
async fn users(key: &str, global: &Global) -> Result<Users, Failure> {
    let client: Client = connect(global).await?;
    let all = Only::default();
    let mut users = Users::default();
    for row in client.lrps_with_definitions(&all).await?.rows {
        let name = format!("process {}", row.process_guid);
        let rollout = row.rollout.as_ref().filter(|rollout| !rollout.is_over());
        let kept = rollout.and_then(|rollout| rollout.rollback_to.as_ref());
        if !users.look(key, name.clone(), &row)? && kept.is_some_and(|id| !row.definitions.contains_key(id)) {
            users.possible.push(format!("{name} keeps 1 other definition, which may be sealed with it"));
        }
    }
    for row in client.tasks_with_definitions(&all).await?.rows {
        users.look(key, format!("task {}", row.task_guid), &row)?;
    }
    for row in client.periodics(&all).await?.rows {
        let row = client.periodic(&row.periodic_guid).await?.row;
        users.look(key, format!("periodic task {}", row.periodic_guid), &row)?;
    }
    for row in client.parameterised(&all).await?.rows {
        let row = client.parameterised_one(&row.parameterised_guid).await?.row;
        let name = format!("parameterised task {}", row.parameterised_guid);
        if !users.look(key, name.clone(), &row)? && row.waiting > 0 {
            let waiting = row.waiting;
            users
                .possible
                .push(format!("{name}: of its dispatches {waiting} wait, maybe with an earlier template"));
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
