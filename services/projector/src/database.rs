//! Generations of tables in a database, and the state of each generation. A generation is one complete set of
//! tables.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use projections::cluster_log::QuarantinedPositions;
use projections::tables::{Batch, Dialect, Moment, Table, sql, views};
use schemas::names::ClusterId;
use schemas::{Position, Timestamp};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::connection::Connection;
use crate::run::checksum_text;
use crate::{Error, Url, file, server};

/// Name of the database file in the data folder of a local cluster.
pub const FILE_NAME: &str = "projection.db";

/// State of a generation of tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// Number of the generation.
    pub number: i64,
    /// `true` if readers see this generation. Otherwise it is being built or was replaced.
    pub live: bool,
    /// `true` if this generation has the indexes for readers.
    pub indexed: bool,
    /// Fingerprint of the tables' shape.
    pub shape: String,
    /// Cluster of the tables. `None` if the cluster was not founded yet.
    pub cluster_id: Option<String>,
    /// Position and time of the last entry in the tables.
    pub end: Moment,
    /// Checksum of the last entry in the tables, or `None` if there is no entry.
    pub checksum: Option<String>,
}

/// Selection of the tables to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Tables that readers see.
    Live,
    /// Tables that are under construction beside the live tables, or new tables if there are none.
    Next,
    /// New tables. All existing tables that readers do not see are dropped first.
    Restart,
}

/// Database opened for writing one generation of its tables.
#[derive(Debug)]
pub struct Database {
    url: Url,
    connection: Connection,
    standing: Generation,
}

impl Generation {
    /// Returns `true` if the tables have the shape of this program version.
    #[must_use]
    pub fn is_of_this_program(&self, url: &Url) -> bool {
        self.shape == sql::fingerprint(url.dialect())
    }

    /// Checks that the tables belong to this cluster. Succeeds if the cluster of the tables or `cluster` is
    /// unknown.
    pub(crate) fn check_cluster(&self, cluster: Option<impl Display>) -> Result<(), Error> {
        match (&self.cluster_id, cluster.map(|cluster| cluster.to_string())) {
            (Some(found), Some(expected)) if *found != expected => {
                Err(Error::OtherCluster { found: found.clone(), expected })
            }
            (Some(_) | None, _) => Ok(()),
        }
    }

    fn read(row: &[Value]) -> Option<Self> {
        let [generation, live, indexed, shape, cluster_id, position, at, checksum] = row else { return None };
        let flag = |value: &Value| value.as_bool().or_else(|| value.as_i64().map(|flag| flag != 0));
        Some(Self {
            number: generation.as_i64()?,
            live: flag(live)?,
            indexed: flag(indexed)?,
            shape: shape.as_str()?.to_owned(),
            cluster_id: cluster_id.as_str().map(str::to_owned),
            end: Moment { position: Position(position.as_u64()?), at: Timestamp(at.as_u64()?) },
            checksum: checksum.as_str().map(str::to_owned),
        })
    }
}

/// Returns the state of all generations, oldest first. `None` if the database has no tables yet.
pub(crate) async fn read_generations(
    connection: &mut Connection,
    url: &Url,
) -> Result<Option<Vec<Generation>>, Error> {
    let doing = || Error::database(format!("can't read the database {url}"));
    // The schema is named explicitly, so that a role without the right to use it gets an error. Without the
    // name, the role would find no tables.
    let schema = url.schema();
    let known = match connection {
        Connection::Sqlite(_) => {
            "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'projection'".to_owned()
        }
        Connection::Postgres(_) => {
            format!("SELECT 1 FROM pg_tables WHERE tablename = 'projection' AND schemaname = '{schema}'")
        }
    };
    if connection.rows(&known).await.map_err(doing())?.is_empty() {
        return Ok(None);
    }
    let names: Vec<&str> = sql::PROJECTION_COLUMNS[..8].iter().map(|column| column.name).collect();
    let asked = format!("SELECT {} FROM {schema}.projection ORDER BY generation", names.join(", "));
    let other = || Error::OtherMetadata { schema: schema.to_owned() };
    let rows = match connection.rows(&asked).await {
        Ok(rows) => rows,
        Err(error) if is_unknown_column(&error) => return Err(other()),
        Err(error) => return Err(doing()(error)),
    };
    let all: Option<Vec<Generation>> = rows.iter().map(|row| Generation::read(row)).collect();
    all.ok_or_else(other).map(Some)
}

fn is_unknown_column(error: &sqlx::Error) -> bool {
    let Some(said) = error.as_database_error() else { return false };
    said.code().as_deref() == Some("42703") || said.message().starts_with("no such column")
}

impl Database {
    /// Opens the tables that readers see, or creates them, and returns their state. In `PostgreSQL`, the call
    /// locks the tables against other writers.
    ///
    /// # Errors
    /// The database cannot be opened or written, its tables have another shape, or another projector has
    /// locked them.
    pub async fn open(url: &Url) -> Result<(Self, Generation), Error> {
        Self::open_target(url, Target::Live).await
    }

    /// Opens the selected tables, or creates them, and returns their state.
    pub(crate) async fn open_target(url: &Url, which: Target) -> Result<(Self, Generation), Error> {
        Self::open_with(Connection::open_for_writing(url).await?, url, which).await
    }

    async fn open_with(
        mut connection: Connection,
        url: &Url,
        which: Target,
    ) -> Result<(Self, Generation), Error> {
        let standing = prepare(&mut connection, url, which).await?;
        if !standing.is_of_this_program(url) {
            return Err(Error::OtherShape);
        }
        lock(&mut connection, standing.number, LockScope::Connection).await?;
        let database = Self { url: url.clone(), connection, standing: standing.clone() };
        Ok((database, standing))
    }

    /// Drops all tables that readers do not see, including the tables of this generation. Creates new tables.
    pub(crate) async fn restart(self) -> Result<Self, Error> {
        // The same connection is used because it has the lock on the tables that were built.
        Self::open_with(self.connection, &self.url, Target::Restart).await.map(|(database, _)| database)
    }

    /// Opens the same tables again. Fails if they were dropped or another writer has locked them.
    pub(crate) async fn reopen(url: &Url, generation: i64) -> Result<Self, Error> {
        let mut connection = Connection::open_for_writing(url).await?;
        let all = read_generations(&mut connection, url).await?.ok_or_else(|| Error::Empty(url.clone()))?;
        let standing = all.into_iter().find(|one| one.number == generation).ok_or(Error::Replaced)?;
        lock(&mut connection, generation, LockScope::Connection).await?;
        Ok(Self { url: url.clone(), connection, standing })
    }

    pub(crate) const fn url(&self) -> &Url {
        &self.url
    }

    pub(crate) const fn standing(&self) -> &Generation {
        &self.standing
    }

    /// Checks that the tables record every position that operators quarantined, up to the position of the
    /// tables. A missing position means that its entry was written to the tables before the quarantine.
    pub(crate) async fn check_quarantined(
        &mut self,
        quarantines: &QuarantinedPositions,
    ) -> Result<(), Error> {
        let passed: Vec<Position> =
            quarantines.range(..=self.standing.end.position).map(|(position, _)| *position).collect();
        if passed.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = passed.iter().map(Position::to_string).collect();
        let asked = format!(
            "SELECT position FROM {} WHERE position IN ({})",
            sql::quarantined_table(self.standing.number),
            names.join(", ")
        );
        let noted = self.connection.rows(&asked).await;
        let noted = noted.map_err(Error::database("can't read the table quarantined_entries"))?;
        let noted: BTreeSet<u64> = noted.iter().flatten().filter_map(Value::as_u64).collect();
        match passed.into_iter().find(|position| !noted.contains(&position.0)) {
            Some(position) => Err(Error::QuarantinedLater { position }),
            None => Ok(()),
        }
    }

    /// Writes a batch and its end position in one transaction.
    ///
    /// # Errors
    /// The database cannot be written, another projector has changed the position of the tables, or other
    /// tables have replaced these.
    pub async fn write(
        &mut self,
        begin: Position,
        batch: &Batch,
        cluster_id: Option<ClusterId>,
    ) -> Result<(), Error> {
        let generation = self.standing.number;
        let doing =
            || Error::database(format!("can't write the tables up to position {}", batch.end.position));
        self.connection.begin().await.map_err(doing())?;
        let (cluster_id, checksum) = (cluster_id.map(|id| id.to_string()), checksum_text(batch.checksum));
        let moves = format!(
            "UPDATE projection SET position = {}, at = {}, checksum = '{checksum}', cluster_id = {} \
             WHERE generation = {generation} AND position = {begin} AND live = {}",
            batch.end.position,
            batch.end.at.0,
            cluster_id.as_ref().map_or("NULL".to_owned(), |id| format!("'{id}'")),
            self.standing.live
        );
        if self.connection.run(&moves).await.map_err(doing())? != 1 {
            return Err(self.conflict().await?);
        }
        let written = match &mut self.connection {
            Connection::Sqlite(connection) => file::write(connection, generation, batch).await,
            Connection::Postgres(connection) => server::write(connection, generation, batch).await,
        };
        written.map_err(doing())?;
        self.connection.commit().await.map_err(doing())?;
        self.standing.end = batch.end;
        self.standing.checksum = Some(checksum);
        self.standing.cluster_id = cluster_id;
        Ok(())
    }

    /// Returns the reason that the tables are not at the position of this writer's last write.
    async fn conflict(&mut self) -> Result<Error, Error> {
        let all = read_generations(&mut self.connection, &self.url).await?.unwrap_or_default();
        let ours = all.iter().find(|one| one.number == self.standing.number);
        self.connection.run("ROLLBACK").await.map_err(Error::database("can't roll back the transaction"))?;
        let moved = ours.is_none_or(|ours| ours.live != self.standing.live);
        Ok(if moved { Error::Replaced } else { Error::LockedByOther })
    }

    /// Creates the indexes for readers, unless they exist.
    pub(crate) async fn create_indexes(&mut self) -> Result<(), Error> {
        if self.standing.indexed {
            return Ok(());
        }
        let generation = self.standing.number;
        let doing = || Error::database("can't create the indexes of the tables");
        if self.url.dialect() == Dialect::Postgres {
            // If this process is stopped, the server must not keep working with the tables locked. A server
            // on a system without connection checks refuses this setting, and finishes the statement.
            self.connection.run("SET client_connection_check_interval TO '1s'").await.ok();
        }
        self.connection.begin().await.map_err(doing())?;
        let made = sql::create_indexes(self.connection.dialect(), generation);
        self.connection.run_all(&made).await.map_err(doing())?;
        let noted = format!("UPDATE projection SET indexed = true WHERE generation = {generation}");
        self.connection.run(&noted).await.map_err(doing())?;
        self.connection.commit().await.map_err(doing())?;
        self.standing.indexed = true;
        Ok(())
    }

    /// Makes these tables the live tables that readers see, in one transaction. Returns `false` if the
    /// current live tables are at a later position.
    pub(crate) async fn switch(&mut self) -> Result<bool, Error> {
        let switched = self.try_switch().await;
        if switched.is_err() {
            // The caller gets the original error; a lost connection has rolled the transaction back.
            self.connection.run("ROLLBACK").await.ok();
        }
        switched
    }

    async fn try_switch(&mut self) -> Result<bool, Error> {
        let doing = || Error::database("can't switch to the rebuilt tables");
        let generation = self.standing.number;
        let all = read_generations(&mut self.connection, &self.url).await?.unwrap_or_default();
        let replaced = all.iter().find(|one| one.live).map(|one| one.number);
        self.connection.begin().await.map_err(doing())?;
        if self.url.dialect() == Dialect::Postgres {
            // A long transaction that reads the views blocks this transaction, which in turn blocks new
            // readers. The time-out keeps this blocking short.
            self.connection.run("SET LOCAL lock_timeout TO '3s'").await.map_err(doing())?;
            self.lock_views().await.map_err(doing())?;
        }
        // After this statement the writer of the old tables waits. When it continues, it finds that its
        // tables are no longer live.
        self.connection.run("UPDATE projection SET live = false WHERE live").await.map_err(doing())?;
        let all = read_generations(&mut self.connection, &self.url).await?.unwrap_or_default();
        if all.iter().all(|one| one.number != generation) {
            return Err(Error::Replaced);
        }
        let old = replaced.and_then(|replaced| all.into_iter().find(|one| one.number == replaced));
        if let Some(old) = &old {
            old.check_cluster(self.standing.cluster_id.as_ref())?;
        }
        if old.as_ref().is_some_and(|old| old.end.position > self.standing.end.position) {
            self.connection.run("ROLLBACK").await.map_err(doing())?;
            return Ok(false);
        }
        if old.is_some_and(|old| old.shape != self.standing.shape) {
            let shown = self.connection.rows(sql::select_views(self.connection.dialect())).await;
            let names = text_values(shown.map_err(doing())?);
            self.connection
                .run_all(&sql::drop_views(self.connection.dialect(), &names))
                .await
                .map_err(doing())?;
        }
        create_views(&mut self.connection, generation).await.map_err(doing())?;
        let live = format!("UPDATE projection SET live = true WHERE generation = {generation}");
        self.connection.run(&live).await.map_err(doing())?;
        self.connection.commit().await.map_err(doing())?;
        self.standing.live = true;
        Ok(true)
    }

    /// Locks the views exclusively for this transaction, one after the other. A query on a view locks it
    /// before the views that it reads, and `muster sql` locks `events` first. Any other order could deadlock.
    async fn lock_views(&mut self) -> Result<(), sqlx::Error> {
        let shown = self.connection.rows(sql::select_views(Dialect::Postgres)).await?;
        let mut names = text_values(shown);
        names.sort_by_cached_key(|name| lock_rank(name));
        // LOCK would also lock the relations that a view reads, but this statement locks the view alone. The
        // statement changes nothing: the switch to another generation resets the same option anyway.
        let locked: Vec<String> =
            names.iter().map(|name| format!("ALTER VIEW {name} RESET (security_barrier)")).collect();
        self.connection.run_all(&locked).await
    }

    /// Drops the generations before this one.
    pub(crate) async fn drop_replaced(&mut self) -> Result<(), Error> {
        let doing = || Error::database("can't drop the replaced tables");
        let all = read_generations(&mut self.connection, &self.url).await?.unwrap_or_default();
        self.connection.begin().await.map_err(doing())?;
        for one in all.iter().filter(|one| one.number < self.standing.number) {
            drop_tables(&mut self.connection, one.number).await.map_err(doing())?;
        }
        self.connection.commit().await.map_err(doing())
    }

    /// Closes the connection.
    ///
    /// # Errors
    /// The connection does not close cleanly. Committed data is in the database nevertheless.
    pub async fn close(self) -> Result<(), Error> {
        self.connection.close().await.map_err(Error::database("can't close the database"))
    }
}

/// Checks that these tables still exist and end at or after a position.
///
/// # Errors
/// [`Error::Replaced`] if other tables exist. [`Error::Lost`] if no tables exist, or if these tables end
/// before `position`. Also fails if the database cannot be read.
pub(crate) async fn check_exists(url: &Url, generation: i64, position: Position) -> Result<(), Error> {
    let mut connection = Connection::open_for_reading(url).await?;
    let all = read_generations(&mut connection, url).await?.unwrap_or_default();
    connection.close().await.map_err(Error::database("can't close the database"))?;
    match all.iter().find(|one| one.number == generation) {
        Some(one) if one.end.position >= position => Ok(()),
        None if !all.is_empty() => Err(Error::Replaced),
        Some(_) | None => Err(Error::Lost(url.clone())),
    }
}

/// Interval at which the projector polls for requests to retry an entry.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Requests from the projector of the live tables a retry of the entry that it cannot process.
///
/// # Errors
/// The database cannot be written, or contains no tables of Muster.
pub async fn request_retry(url: &Url) -> Result<(), Error> {
    let mut connection = Connection::open_for_writing(url).await?;
    let asked = connection.run("UPDATE projection SET retry_requests = retry_requests + 1 WHERE live").await;
    asked.map_err(Error::database("can't request a retry from the projector"))?;
    connection.close().await.map_err(Error::database("can't close the database"))
}

/// Waits until a client requests a retry. Returns `false` if `stop` is cancelled first.
///
/// # Errors
/// The database cannot be read, and the error is not transient.
pub async fn wait_for_retry_request(url: &Url, stop: &CancellationToken) -> Result<bool, Error> {
    let mut before = None;
    loop {
        match retry_requests(url).await {
            Ok(now) if before.as_ref().is_some_and(|before| *before != now) => return Ok(true),
            Ok(now) => before = Some(now),
            Err(error) if error.is_transient() => {}
            Err(error) => return Err(error),
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(false),
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    }
}

async fn retry_requests(url: &Url) -> Result<Vec<Vec<Value>>, Error> {
    let doing = || Error::database(format!("can't read the database {url}"));
    let mut connection = Connection::open_for_reading(url).await?;
    let count = connection.rows("SELECT retry_requests FROM projection WHERE live").await.map_err(doing())?;
    connection.close().await.map_err(doing())?;
    Ok(count)
}

/// Grants a role the right to read the tables of this and later generations, and no other right.
///
/// # Errors
/// The database has no roles, the role does not exist, or the current role may not grant the right.
pub async fn grant(url: &Url, role: &str) -> Result<(), Error> {
    if url.dialect() == Dialect::Sqlite {
        return Err(Error::NoRoles(url.clone()));
    }
    let doing = || Error::database(format!("can't grant {role} access to the tables"));
    let mut connection = Connection::open_for_reading(url).await?;
    if read_generations(&mut connection, url).await?.is_none() {
        return Err(Error::Empty(url.clone()));
    }
    let (schema, named, role) = (url.schema(), role, quote_identifier(role));
    let owner =
        "SELECT tableowner FROM pg_tables WHERE tablename = 'projection' AND schemaname = current_schema()";
    let owner = text_values(connection.rows(owner).await.map_err(doing())?);
    // Queries as of a past position use temporary views. By default every role may create temporary views. If
    // that right was revoked and this role cannot grant it, only the other rights are granted.
    let temporary = format!(
        "SELECT current_database()::text WHERE NOT has_database_privilege({}, current_database(), \
         'TEMPORARY') AND has_database_privilege(current_database(), 'TEMPORARY WITH GRANT OPTION')",
        sql::literal(named)
    );
    let temporary = text_values(connection.rows(&temporary).await.map_err(doing())?);
    connection.begin().await.map_err(doing())?;
    let mut granted = vec![
        format!("GRANT USAGE ON SCHEMA {schema} TO {role}"),
        format!("GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}"),
    ];
    granted.extend(owner.iter().map(|owner| {
        let owner = quote_identifier(owner);
        format!(
            "ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA {schema} GRANT SELECT ON TABLES TO {role}"
        )
    }));
    granted.extend(
        temporary
            .iter()
            .map(|name| format!("GRANT TEMPORARY ON DATABASE {} TO {role}", quote_identifier(name))),
    );
    connection.run_all(&granted).await.map_err(doing())?;
    connection.commit().await.map_err(doing())
}

/// Quotes a name as an SQL identifier.
fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns the rank of a view in the lock order. `events` is first, followed by the views of other program
/// versions. Each remaining view precedes the views that it reads.
fn lock_rank(name: &str) -> usize {
    let tables = Table::ALL.into_iter();
    let inner = tables.flat_map(|table| [format!("{}_history", table.name()), table.name().to_owned()]);
    let outer = views::all(Dialect::Postgres).into_iter().map(|view| view.name.to_owned());
    let all: Vec<String> = inner.chain(["quarantined_entries".to_owned()]).chain(outer).collect();
    match all.iter().rev().position(|one| one == name) {
        _ if name == "events" => 0,
        None => 1,
        Some(place) => place + 2,
    }
}

/// Drops every generation that readers do not see, within a transaction. A generation that is newer than the
/// live one may be under construction. In `PostgreSQL` its lock shows the construction.
async fn drop_hidden(connection: &mut Connection, all: &[Generation]) -> Result<(), Error> {
    let doing = || Error::database("can't drop the unused tables");
    let live = all.iter().find(|one| one.live).map(|one| one.number);
    for one in all.iter().filter(|one| !one.live) {
        if live.is_none_or(|live| live < one.number) {
            lock(connection, one.number, LockScope::Transaction).await?;
        }
        drop_tables(connection, one.number).await.map_err(doing())?;
    }
    Ok(())
}

/// Drops a generation, within a transaction.
async fn drop_tables(connection: &mut Connection, generation: i64) -> Result<(), sqlx::Error> {
    let made = connection.rows(&sql::select_tables(connection.dialect(), generation)).await?;
    let mut dropped: Vec<String> =
        text_values(made).iter().map(|name| format!("DROP TABLE {name}")).collect();
    dropped.push(format!("DELETE FROM projection WHERE generation = {generation}"));
    connection.run_all(&dropped).await
}

fn text_values(rows: Vec<Vec<Value>>) -> Vec<String> {
    rows.into_iter().flatten().filter_map(|value| value.as_str().map(str::to_owned)).collect()
}

/// Creates the missing tables, in one transaction.
async fn prepare(connection: &mut Connection, url: &Url, which: Target) -> Result<Generation, Error> {
    let doing = || Error::database(format!("can't open the database {url}"));
    connection.begin().await.map_err(doing())?;
    if matches!(connection, Connection::Postgres(_)) {
        // The lock ensures that only one of several projectors creates missing tables.
        let alone = "SELECT pg_advisory_xact_lock(hashtext('muster projection'))";
        connection.rows(alone).await.map_err(doing())?;
    }
    let known = read_generations(connection, url).await?;
    if known.is_none() {
        connection.run_all(&sql::create_metadata(connection.dialect())).await.map_err(doing())?;
    }
    let known = known.unwrap_or_default();
    let live = known.iter().find(|one| one.live);
    let found = match which {
        Target::Live => live,
        Target::Next => {
            known.last().filter(|one| !one.live && live.is_none_or(|live| live.number < one.number))
        }
        Target::Restart => {
            drop_hidden(connection, &known).await?;
            None
        }
    };
    // The number of a dropped generation is not used again. The writer of that generation thereby notices the
    // drop.
    let standing = match found {
        Some(standing) => standing.clone(),
        None => create_generation(connection, url, which, known.last().map_or(1, |last| last.number + 1))
            .await
            .map_err(doing())?,
    };
    connection.commit().await.map_err(doing())?;
    Ok(standing)
}

/// Creates the tables of a generation.
async fn create_generation(
    connection: &mut Connection,
    url: &Url,
    which: Target,
    generation: i64,
) -> Result<Generation, sqlx::Error> {
    let (live, shape) = (which == Target::Live, sql::fingerprint(url.dialect()));
    connection.run_all(&sql::create(connection.dialect(), generation)).await?;
    let first = format!(
        "INSERT INTO projection VALUES ({generation}, {live}, false, '{shape}', NULL, 0, 0, NULL, 0)"
    );
    connection.run(&first).await?;
    if live {
        create_views(connection, generation).await?;
    }
    Ok(Generation {
        number: generation,
        live,
        indexed: false,
        shape,
        cluster_id: None,
        end: Moment::default(),
        checksum: None,
    })
}

/// Shows a generation to readers, and stores its documentation.
async fn create_views(connection: &mut Connection, generation: i64) -> Result<(), sqlx::Error> {
    let dialect = connection.dialect();
    connection.run_all(&sql::create_views(dialect, generation)).await?;
    connection.run_all(&sql::document(dialect, generation)).await
}

/// Duration of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LockScope {
    /// Until the connection ends.
    Connection,
    /// Until the transaction ends.
    Transaction,
}

/// Locks a generation of tables exclusively. A file is locked only during each transaction, so the first
/// write of a second projector on the file is refused.
async fn lock(connection: &mut Connection, generation: i64, lasting: LockScope) -> Result<(), Error> {
    let function = match (&connection, lasting) {
        (Connection::Sqlite(_), LockScope::Connection | LockScope::Transaction) => return Ok(()),
        (Connection::Postgres(_), LockScope::Connection) => "pg_try_advisory_lock",
        (Connection::Postgres(_), LockScope::Transaction) => "pg_try_advisory_xact_lock",
    };
    let asked = format!("SELECT {function}('projection'::regclass::oid::int4, {generation})");
    let had = connection.rows(&asked).await;
    let had = had.map_err(Error::database(format!("can't lock generation {generation} of the tables")))?;
    if had == [[Value::Bool(true)]] { Ok(()) } else { Err(Error::LockedByOther) }
}

/// Removes a database file with its companion files.
///
/// # Errors
/// A file exists and cannot be removed.
pub fn remove(file: &Path) -> Result<(), Error> {
    for end in ["", "-wal", "-shm"] {
        let mut name = file.as_os_str().to_owned();
        name.push(end);
        match std::fs::remove_file(&name) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::Remove { file: name.into(), source });
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_locked_before_their_dependencies() {
        let queries =
            views::all(Dialect::Postgres).into_iter().map(|view| (view.name.to_owned(), view.query));
        let tables = Table::ALL.into_iter();
        let tables = tables.map(|table| (table.name().to_owned(), format!("{}_history", table.name())));
        let mut pairs = 0;
        for (name, query) in queries.chain(tables) {
            let mut words: BTreeSet<&str> =
                query.split(|next: char| !next.is_alphanumeric() && next != '_').collect();
            words.remove("events");
            let known = lock_rank("a view of another version");
            for read in words.into_iter().filter(|word| *word != name && lock_rank(word) > known) {
                assert!(lock_rank(&name) < lock_rank(read), "{name} reads {read}");
                pairs += 1;
            }
        }
        assert!(pairs > 20, "{pairs}");
        assert_eq!(lock_rank("events"), 0);
    }

    #[tokio::test]
    async fn replaced_database_is_detected() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("tables.db");
        let url = Url::Sqlite(file.clone());
        let (database, standing) = Database::open(&url).await.expect("the database is created");
        check_exists(&url, standing.number, Position(0)).await.expect("the tables exist");
        let other = check_exists(&url, standing.number + 1, Position(0)).await;
        assert!(matches!(other, Err(Error::Replaced)), "{other:?}");
        std::fs::remove_file(&file).expect("the file can be removed");
        std::fs::write(&file, "").expect("the file can be created");
        let lost = check_exists(&url, standing.number, Position(0)).await;
        assert!(matches!(lost, Err(Error::Lost(_))), "{lost:?}");
        drop(database);
    }
}
