//! `muster secrets`: the files of keys. They are this program's alone: no cluster ever sees a key.

use std::path::{Path, PathBuf};

use ::secrets::{FileError, Key, Ring};
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

/// As many of those that use a key are named.
const NAMED: usize = 20;

/// What became of a file of keys.
#[derive(Serialize)]
struct Changed<'a> {
    file: &'a Path,
    did: &'a str,
    key: &'a str,
}

/// A key as it may be shown.
#[derive(Serialize)]
struct Shown {
    id: String,
    made: Timestamp,
    seals: bool,
}

pub(crate) async fn run(verb: SecretsVerb, global: &Global) -> Result<(), Failure> {
    match verb {
        SecretsVerb::Init { keys } => init(&file(keys, global)?, global),
        SecretsVerb::Rotate { keys } => rotate(&file(keys, global)?, global),
        SecretsVerb::List { keys } => list(&file(keys, global)?, global),
        SecretsVerb::Forget { key, keys, yes } => forget(&key, &file(keys, global)?, yes, global).await,
    }
}

/// The file that was named, or that of a local cluster.
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

fn rotate(path: &Path, global: &Global) -> Result<(), Failure> {
    let (mut ring, key) = (Ring::read(path)?, new_key()?);
    let id = key.id().to_owned();
    ring.add(key);
    ring.replace(path)?;
    told(path, "rotated", &id, global, |path| {
        format!("key {id} seals from now on: bring {path} to every rep before the BBSs get it")
    })
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
    let newest = ring.newest().map(Key::id);
    let shown =
        |key: &Key| Shown { id: key.id().to_owned(), made: key.made(), seals: newest == Some(key.id()) };
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
    let mut ring = Ring::read(path)?;
    if ring.find(key).is_none() {
        let known: Vec<&str> = ring.keys().iter().map(Key::id).collect();
        let advice =
            format!("its keys: {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") });
        return Err(Failure::not_found(format!("key {key} in {}", path.display())).advise(advice));
    }
    if ring.newest().is_some_and(|newest| newest.id() == key) {
        let why = "it is the one that seals";
        let advice = "first add another one, and desire anew what is to live on: muster secrets rotate FILE";
        return Err(doing(Failure::new(Exit::Conflict, "InUse", why).advise(advice)));
    }
    if !yes {
        return Err(doing(unconfirmed(key, global).await));
    }
    ring.take(key);
    ring.replace(path)?;
    told(path, "forgotten", key, global, |path| {
        format!(
            "key {key} is forgotten: what it sealed is erased once it is out of every copy of {path}, those of BBSs, reps and \
             backups"
        )
    })
}

/// What forgetting a key would mean.
async fn unconfirmed(key: &str, global: &Global) -> Failure {
    let confirm = "to forget it all the same: --yes";
    match users(key, global).await {
        Ok(users) if users.is_empty() => {
            let why = "nothing that is desired now uses it, and what it sealed before can't be opened any more then";
            Failure::new(Exit::Conflict, "NotConfirmed", why).advise(confirm)
        }
        Ok(users) => {
            users.iter().take(NAMED).for_each(|user| note(user));
            if users.len() > NAMED {
                note(&format!("and {} more", users.len() - NAMED));
            }
            let used = count(users.len() as u64, "thing");
            let why = format!("{used} would not start again, since secrets of them are sealed with it");
            let advice = "apply them again first: their secrets are then sealed with the newest key";
            Failure::new(Exit::Conflict, "InUse", why).advise(advice).advise(confirm)
        }
        Err(failure) => {
            let why =
                format!("what still uses it is not known, since no cluster says so: {}", failure.message);
            Failure::new(Exit::Conflict, "NotConfirmed", why).advise(confirm)
        }
    }
}

/// Everything that is desired with a secret that is sealed with a key.
async fn users(key: &str, global: &Global) -> Result<Vec<String>, Failure> {
    let client: Client = connect(global).await?;
    let all = Only::default();
    let mut found = vec![];
    let mut look = |name: String, row: Result<Value, serde_json::Error>| {
        let row = row.map_err(|error| Failure::new(Exit::Failed, "Output", error.to_string()))?;
        found.extend(is_sealed_with(&row, key).then_some(name));
        Ok::<_, Failure>(())
    };
    for row in client.lrps_with_definitions(&all).await?.rows {
        look(format!("process {}", row.process_guid), serde_json::to_value(&row))?;
    }
    for row in client.tasks_with_definitions(&all).await?.rows {
        look(format!("task {}", row.task_guid), serde_json::to_value(&row))?;
    }
    for row in client.periodics(&all).await?.rows {
        let row = client.periodic(&row.periodic_guid).await?.row;
        look(format!("periodic task {}", row.periodic_guid), serde_json::to_value(&row))?;
    }
    for row in client.parameterised(&all).await?.rows {
        let row = client.parameterised_one(&row.parameterised_guid).await?.row;
        look(format!("parameterised task {}", row.parameterised_guid), serde_json::to_value(&row))?;
    }
    Ok(found)
}

/// Whether something holds a value that is sealed with a key: `{"sealed": {"key": .., "data": ..}}`.
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
