//! The generations of tables in a database, and where each stands.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use projections::cluster_log::Positions;
use projections::tables::{Batch, Dialect, Moment, Table, sql, views};
use schemas::names::ClusterId;
use schemas::{Position, Timestamp};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::connection::Connection;
use crate::run::checksum_text;
use crate::{Error, Url, file, server};

/// The file in the data folder of a local cluster.
pub const FILE: &str = "projection.db";

/// Where a generation of tables stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Which generation of tables this is.
    pub generation: i64,
    /// Whether readers see it; else it is being built, or was replaced.
    pub live: bool,
    /// Whether it has the indexes that readers want.
    pub indexed: bool,
    /// Names the shape of its tables.
    pub shape: String,
    /// Of which cluster it is; none: the cluster was not founded yet.
    pub cluster_id: Option<String>,
    /// The last entry that is in it.
    pub end: Moment,
    /// A checksum of that entry; `None` if there is none.
    pub checksum: Option<String>,
}

/// Which tables are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// Those that readers see.
    Live,
    /// Those that are built beside them, or new ones.
    Next,
    /// New ones in place of all that readers don't see.
    Anew,
}

/// A database, one generation of whose tables is written.
#[derive(Debug)]
pub struct Database {
    url: Url,
    connection: Connection,
    standing: Standing,
}

impl Standing {
    /// Whether its tables have the shape that this program gives them.
    #[must_use]
    pub fn is_of_this_program(&self, url: &Url) -> bool {
        self.shape == sql::fingerprint(url.dialect())
    }

    /// Looks whether it is of this cluster, as far as either is known.
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
            generation: generation.as_i64()?,
            live: flag(live)?,
            indexed: flag(indexed)?,
            shape: shape.as_str()?.to_owned(),
            cluster_id: cluster_id.as_str().map(str::to_owned),
            end: Moment { position: Position(position.as_u64()?), at: Timestamp(at.as_u64()?) },
            checksum: checksum.as_str().map(str::to_owned),
        })
    }
}

/// Where all generations stand, the oldest first; none: there are no tables yet.
pub(crate) async fn standings(
    connection: &mut Connection,
    url: &Url,
) -> Result<Option<Vec<Standing>>, Error> {
    let doing = || Error::database(format!("can't read the database {url}"));
    // The schema is named: who may not use it is told so, and finds none otherwise.
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
    let names: Vec<&str> = sql::PROJECTION[..8].iter().map(|column| column.name).collect();
    let asked = format!("SELECT {} FROM {schema}.projection ORDER BY generation", names.join(", "));
    let other = || Error::OtherBooks { schema: schema.to_owned() };
    let rows = match connection.rows(&asked).await {
        Ok(rows) => rows,
        Err(error) if is_unknown_column(&error) => return Err(other()),
        Err(error) => return Err(doing()(error)),
    };
    let all: Option<Vec<Standing>> = rows.iter().map(|row| Standing::read(row)).collect();
    all.ok_or_else(other).map(Some)
}

fn is_unknown_column(error: &sqlx::Error) -> bool {
    let Some(said) = error.as_database_error() else { return false };
    said.code().as_deref() == Some("42703") || said.message().starts_with("no such column")
}

impl Database {
    /// Opens the tables that readers see, or makes them, and says where they stand. In `PostgreSQL` nobody else writes to
    /// them from now on.
    ///
    /// # Errors
    /// The database can't be opened or written; its tables have another shape; another projector has them.
    pub async fn open(url: &Url) -> Result<(Self, Standing), Error> {
        Self::open_one(url, Which::Live).await
    }

    /// Opens the tables that are built beside those, and says where they stand: those that were begun, or new ones.
    pub(crate) async fn open_one(url: &Url, which: Which) -> Result<(Self, Standing), Error> {
        Self::open_on(Connection::writing(url).await?, url, which).await
    }

    async fn open_on(mut connection: Connection, url: &Url, which: Which) -> Result<(Self, Standing), Error> {
        let standing = prepare(&mut connection, url, which).await?;
        if !standing.is_of_this_program(url) {
            return Err(Error::OtherShape);
        }
        lock(&mut connection, standing.generation, Lasting::Connection).await?;
        let database = Self { url: url.clone(), connection, standing: standing.clone() };
        Ok((database, standing))
    }

    /// Drops what was built beside those that readers see, these tables among it, and begins anew.
    pub(crate) async fn begin_anew(self) -> Result<Self, Error> {
        // The same connection: only this one is sure to have the lock on what was built.
        Self::open_on(self.connection, &self.url, Which::Anew).await.map(|(database, _)| database)
    }

    /// Opens the same tables again, which nobody else has written meanwhile.
    pub(crate) async fn open_again(url: &Url, generation: i64) -> Result<Self, Error> {
        let mut connection = Connection::writing(url).await?;
        let all = standings(&mut connection, url).await?.ok_or_else(|| Error::Empty(url.clone()))?;
        let standing = all.into_iter().find(|one| one.generation == generation).ok_or(Error::Replaced)?;
        lock(&mut connection, generation, Lasting::Connection).await?;
        Ok(Self { url: url.clone(), connection, standing })
    }

    pub(crate) const fn url(&self) -> &Url {
        &self.url
    }

    pub(crate) const fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Looks whether everything is noted here that operators set aside up to where the tables stand. What isn't was an
    /// entry when it was written.
    pub(crate) async fn check_set_aside(&mut self, set_aside: &Positions) -> Result<(), Error> {
        let passed: Vec<Position> =
            set_aside.range(..=self.standing.end.position).map(|(position, _)| *position).collect();
        if passed.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = passed.iter().map(Position::to_string).collect();
        let asked = format!(
            "SELECT position FROM {} WHERE position IN ({})",
            sql::set_aside_table(self.standing.generation),
            names.join(", ")
        );
        let noted = self.connection.rows(&asked).await;
        let noted = noted.map_err(Error::database("can't read the table set_aside"))?;
        let noted: BTreeSet<u64> = noted.iter().flatten().filter_map(Value::as_u64).collect();
        match passed.into_iter().find(|position| !noted.contains(&position.0)) {
            Some(position) => Err(Error::SetAsideLater { position }),
            None => Ok(()),
        }
    }

    /// Writes a batch, and where it ends, in one transaction.
    ///
    /// # Errors
    /// The database can't be written; it doesn't stand where the batch begins, for another projector writes to it; readers
    /// see other tables by now.
    pub async fn write(
        &mut self,
        begin: Position,
        batch: &Batch,
        cluster_id: Option<ClusterId>,
    ) -> Result<(), Error> {
        let generation = self.standing.generation;
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
            return Err(self.not_ours().await?);
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

    /// Why the tables don't stand where they were left.
    async fn not_ours(&mut self) -> Result<Error, Error> {
        let all = standings(&mut self.connection, &self.url).await?.unwrap_or_default();
        let ours = all.iter().find(|one| one.generation == self.standing.generation);
        self.connection
            .run("ROLLBACK")
            .await
            .map_err(Error::database("can't leave the tables as they are"))?;
        let moved = ours.is_none_or(|ours| ours.live != self.standing.live);
        Ok(if moved { Error::Replaced } else { Error::Another })
    }

    /// Makes the indexes that readers want, if there are none yet.
    pub(crate) async fn index(&mut self) -> Result<(), Error> {
        if self.standing.indexed {
            return Ok(());
        }
        let generation = self.standing.generation;
        let doing = || Error::database("can't make the indexes of the tables");
        if self.url.dialect() == Dialect::Postgres {
            // Who is stopped meanwhile doesn't leave a server at work that has the tables. Where a system can't tell who is
            // still there, it refuses this, and goes on to the end.
            self.connection.run("SET client_connection_check_interval TO '1s'").await.ok();
        }
        self.connection.begin().await.map_err(doing())?;
        let made = sql::index(self.connection.dialect(), generation);
        self.connection.run_all(&made).await.map_err(doing())?;
        let noted = format!("UPDATE projection SET indexed = true WHERE generation = {generation}");
        self.connection.run(&noted).await.map_err(doing())?;
        self.connection.commit().await.map_err(doing())?;
        self.standing.indexed = true;
        Ok(())
    }

    /// Shows readers these tables instead of those that they see, in one transaction. False: those are further by now.
    pub(crate) async fn switch(&mut self) -> Result<bool, Error> {
        let switched = self.try_switch().await;
        if switched.is_err() {
            // What failed it is told; a connection that is gone has rolled it back.
            self.connection.run("ROLLBACK").await.ok();
        }
        switched
    }

    async fn try_switch(&mut self) -> Result<bool, Error> {
        let doing = || Error::database("can't switch to the tables that were built");
        let generation = self.standing.generation;
        let all = standings(&mut self.connection, &self.url).await?.unwrap_or_default();
        let replaced = all.iter().find(|one| one.live).map(|one| one.generation);
        self.connection.begin().await.map_err(doing())?;
        if self.url.dialect() == Dialect::Postgres {
            // Who reads the views in a long transaction holds this up, and this who comes after: not for long.
            self.connection.run("SET LOCAL lock_timeout TO '3s'").await.map_err(doing())?;
            self.lock_views().await.map_err(doing())?;
        }
        // Who writes to the old ones waits from here on, and then sees that they are not live any more.
        self.connection.run("UPDATE projection SET live = false WHERE live").await.map_err(doing())?;
        let all = standings(&mut self.connection, &self.url).await?.unwrap_or_default();
        if all.iter().all(|one| one.generation != generation) {
            return Err(Error::Replaced);
        }
        let old = replaced.and_then(|replaced| all.into_iter().find(|one| one.generation == replaced));
        if let Some(old) = &old {
            old.check_cluster(self.standing.cluster_id.as_ref())?;
        }
        if old.as_ref().is_some_and(|old| old.end.position > self.standing.end.position) {
            self.connection.run("ROLLBACK").await.map_err(doing())?;
            return Ok(false);
        }
        if old.is_some_and(|old| old.shape != self.standing.shape) {
            let shown = self.connection.rows(sql::shown_views(self.connection.dialect())).await;
            let names = strings(shown.map_err(doing())?);
            self.connection.run_all(&sql::hide(self.connection.dialect(), &names)).await.map_err(doing())?;
        }
        show(&mut self.connection, generation).await.map_err(doing())?;
        let live = format!("UPDATE projection SET live = true WHERE generation = {generation}");
        self.connection.run(&live).await.map_err(doing())?;
        self.connection.commit().await.map_err(doing())?;
        self.standing.live = true;
        Ok(true)
    }

    /// Has the views for this transaction alone, one after the other. Who reads one of them has it before those that it
    /// reads, and `muster sql` has `events` before any: in another order both would wait for each other.
    async fn lock_views(&mut self) -> Result<(), sqlx::Error> {
        let shown = self.connection.rows(sql::shown_views(Dialect::Postgres)).await?;
        let mut names = strings(shown);
        names.sort_by_cached_key(|name| outer_first(name));
        // A LOCK would lock what a view reads together with it. This changes nothing: showing a generation takes such a
        // setting away anyhow.
        let locked: Vec<String> =
            names.iter().map(|name| format!("ALTER VIEW {name} RESET (security_barrier)")).collect();
        self.connection.run_all(&locked).await
    }

    /// Drops the generations that readers saw before this one.
    pub(crate) async fn drop_replaced(&mut self) -> Result<(), Error> {
        let doing = || Error::database("can't drop the tables that nobody reads any more");
        let all = standings(&mut self.connection, &self.url).await?.unwrap_or_default();
        self.connection.begin().await.map_err(doing())?;
        for one in all.iter().filter(|one| one.generation < self.standing.generation) {
            drop_tables(&mut self.connection, one.generation).await.map_err(doing())?;
        }
        self.connection.commit().await.map_err(doing())
    }

    /// Closes the connection.
    ///
    /// # Errors
    /// It doesn't close cleanly; what was committed is in the database.
    pub async fn close(self) -> Result<(), Error> {
        self.connection.close().await.map_err(Error::database("can't close the database"))
    }
}

/// Looks whether tables are still in a database, up to a position at least.
///
/// # Errors
/// [`Error::Replaced`] if others are there; [`Error::Lost`] if none are, or these are not as far; the database can't be read.
pub(crate) async fn check_there(url: &Url, generation: i64, position: Position) -> Result<(), Error> {
    let mut connection = Connection::reading(url).await?;
    let all = standings(&mut connection, url).await?.unwrap_or_default();
    connection.close().await.map_err(Error::database("can't close the database"))?;
    match all.iter().find(|one| one.generation == generation) {
        Some(one) if one.end.position >= position => Ok(()),
        None if !all.is_empty() => Err(Error::Replaced),
        Some(_) | None => Err(Error::Lost(url.clone())),
    }
}

/// How often is looked whether somebody asked.
const LOOK: Duration = Duration::from_secs(2);

/// Asks the projector of the live tables to read again what it can't get past.
///
/// # Errors
/// The database can't be written, or holds no tables of Muster.
pub async fn ask_again(url: &Url) -> Result<(), Error> {
    let mut connection = Connection::writing(url).await?;
    let asked = connection.run("UPDATE projection SET asked = asked + 1 WHERE live").await;
    asked.map_err(Error::database("can't ask the projector to read again"))?;
    connection.close().await.map_err(Error::database("can't close the database"))
}

/// Waits until somebody asks to read again; false: it was told to stop first.
///
/// # Errors
/// The database can't be read, and waiting doesn't mend it.
pub async fn asked(url: &Url, stop: &CancellationToken) -> Result<bool, Error> {
    let mut before = None;
    loop {
        match count_asked(url).await {
            Ok(now) if before.as_ref().is_some_and(|before| *before != now) => return Ok(true),
            Ok(now) => before = Some(now),
            Err(error) if error.passes() => {}
            Err(error) => return Err(error),
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(false),
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

async fn count_asked(url: &Url) -> Result<Vec<Vec<Value>>, Error> {
    let doing = || Error::database(format!("can't read the database {url}"));
    let mut connection = Connection::reading(url).await?;
    let count = connection.rows("SELECT asked FROM projection WHERE live").await.map_err(doing())?;
    connection.close().await.map_err(doing())?;
    Ok(count)
}

/// Lets a role read the tables, those of later generations, too, and nothing else.
///
/// # Errors
/// The database has no roles; the role isn't there; who asks may not grant it.
pub async fn grant(url: &Url, role: &str) -> Result<(), Error> {
    if url.dialect() == Dialect::Sqlite {
        return Err(Error::NoRoles(url.clone()));
    }
    let doing = || Error::database(format!("can't let {role} read the tables"));
    let mut connection = Connection::reading(url).await?;
    if standings(&mut connection, url).await?.is_none() {
        return Err(Error::Empty(url.clone()));
    }
    let (schema, named, role) = (url.schema(), role, identifier(role));
    let owner =
        "SELECT tableowner FROM pg_tables WHERE tablename = 'projection' AND schemaname = current_schema()";
    let owner = strings(connection.rows(owner).await.map_err(doing())?);
    // The past is shown by views that are temporary. Everybody may make those, unless that was taken away; who can't give it
    // back gives the rest.
    let temporary = format!(
        "SELECT current_database()::text WHERE NOT has_database_privilege({}, current_database(), 'TEMPORARY') \
         AND has_database_privilege(current_database(), 'TEMPORARY WITH GRANT OPTION')",
        sql::literal(named)
    );
    let temporary = strings(connection.rows(&temporary).await.map_err(doing())?);
    connection.begin().await.map_err(doing())?;
    let mut granted = vec![
        format!("GRANT USAGE ON SCHEMA {schema} TO {role}"),
        format!("GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}"),
    ];
    granted.extend(owner.iter().map(|owner| {
        let owner = identifier(owner);
        format!(
            "ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA {schema} GRANT SELECT ON TABLES TO {role}"
        )
    }));
    granted.extend(
        temporary.iter().map(|name| format!("GRANT TEMPORARY ON DATABASE {} TO {role}", identifier(name))),
    );
    connection.run_all(&granted).await.map_err(doing())?;
    connection.commit().await.map_err(doing())
}

/// A name of anything, as it stands in a statement.
fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The place of a view among those that are locked one after the other: `events`, then what another program showed, then
/// each before those that it reads.
fn outer_first(name: &str) -> usize {
    let tables = Table::ALL.into_iter();
    let inner = tables.flat_map(|table| [format!("{}_history", table.name()), table.name().to_owned()]);
    let outer = views::all(Dialect::Postgres).into_iter().map(|view| view.name.to_owned());
    let all: Vec<String> = inner.chain(["set_aside".to_owned()]).chain(outer).collect();
    match all.iter().rev().position(|one| one == name) {
        _ if name == "events" => 0,
        None => 1,
        Some(place) => place + 2,
    }
}

/// Drops every generation that readers don't see, within a transaction. What is newer than what they see, somebody may be
/// building: a server knows that by the lock.
async fn drop_unseen(connection: &mut Connection, all: &[Standing]) -> Result<(), Error> {
    let doing = || Error::database("can't drop the tables that were built");
    let live = all.iter().find(|one| one.live).map(|one| one.generation);
    for one in all.iter().filter(|one| !one.live) {
        if live.is_none_or(|live| live < one.generation) {
            lock(connection, one.generation, Lasting::Transaction).await?;
        }
        drop_tables(connection, one.generation).await.map_err(doing())?;
    }
    Ok(())
}

/// Drops a generation, within a transaction.
async fn drop_tables(connection: &mut Connection, generation: i64) -> Result<(), sqlx::Error> {
    let made = connection.rows(&sql::made_tables(connection.dialect(), generation)).await?;
    let mut dropped: Vec<String> = strings(made).iter().map(|name| format!("DROP TABLE {name}")).collect();
    dropped.push(format!("DELETE FROM projection WHERE generation = {generation}"));
    connection.run_all(&dropped).await
}

fn strings(rows: Vec<Vec<Value>>) -> Vec<String> {
    rows.into_iter().flatten().filter_map(|value| value.as_str().map(str::to_owned)).collect()
}

/// Makes what isn't there yet, in one transaction.
async fn prepare(connection: &mut Connection, url: &Url, which: Which) -> Result<Standing, Error> {
    let doing = || Error::database(format!("can't open the database {url}"));
    connection.begin().await.map_err(doing())?;
    if matches!(connection, Connection::Postgres(_)) {
        // Of several that find nothing one makes it.
        let alone = "SELECT pg_advisory_xact_lock(hashtext('muster projection'))";
        connection.rows(alone).await.map_err(doing())?;
    }
    let known = standings(connection, url).await?;
    if known.is_none() {
        connection.run_all(&sql::found(connection.dialect())).await.map_err(doing())?;
    }
    let known = known.unwrap_or_default();
    let live = known.iter().find(|one| one.live);
    let found = match which {
        Which::Live => live,
        Which::Next => {
            known.last().filter(|one| !one.live && live.is_none_or(|live| live.generation < one.generation))
        }
        Which::Anew => {
            drop_unseen(connection, &known).await?;
            None
        }
    };
    // The number of what was dropped here is not used again: who still writes to that finds it gone.
    let standing = match found {
        Some(standing) => standing.clone(),
        None => make(connection, url, which, known.last().map_or(1, |last| last.generation + 1))
            .await
            .map_err(doing())?,
    };
    connection.commit().await.map_err(doing())?;
    Ok(standing)
}

/// Makes the tables of a generation.
async fn make(
    connection: &mut Connection,
    url: &Url,
    which: Which,
    generation: i64,
) -> Result<Standing, sqlx::Error> {
    let (live, shape) = (which == Which::Live, sql::fingerprint(url.dialect()));
    connection.run_all(&sql::create(connection.dialect(), generation)).await?;
    let first = format!(
        "INSERT INTO projection VALUES ({generation}, {live}, false, '{shape}', NULL, 0, 0, NULL, 0)"
    );
    connection.run(&first).await?;
    if live {
        show(connection, generation).await?;
    }
    Ok(Standing {
        generation,
        live,
        indexed: false,
        shape,
        cluster_id: None,
        end: Moment::default(),
        checksum: None,
    })
}

/// Shows a generation to readers, with what its tables and columns say.
async fn show(connection: &mut Connection, generation: i64) -> Result<(), sqlx::Error> {
    let dialect = connection.dialect();
    connection.run_all(&sql::show(dialect, generation)).await?;
    connection.run_all(&sql::document(dialect, generation)).await
}

/// How long a lock lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lasting {
    /// As long as the connection.
    Connection,
    /// As long as the transaction.
    Transaction,
}

/// Has a generation of tables for oneself. A file is locked by each transaction alone: there a second projector is refused at
/// its first write.
async fn lock(connection: &mut Connection, generation: i64, lasting: Lasting) -> Result<(), Error> {
    let function = match (&connection, lasting) {
        (Connection::Sqlite(_), Lasting::Connection | Lasting::Transaction) => return Ok(()),
        (Connection::Postgres(_), Lasting::Connection) => "pg_try_advisory_lock",
        (Connection::Postgres(_), Lasting::Transaction) => "pg_try_advisory_xact_lock",
    };
    let asked = format!("SELECT {function}('projection'::regclass::oid::int4, {generation})");
    let had = connection.rows(&asked).await;
    let had = had.map_err(Error::database(format!("can't lock generation {generation} of the tables")))?;
    if had == [[Value::Bool(true)]] { Ok(()) } else { Err(Error::Another) }
}

/// Removes a file of tables with what belongs to it.
///
/// # Errors
/// A file is there and can't be removed.
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
    fn views_are_locked_before_those_that_they_read() {
        let queries =
            views::all(Dialect::Postgres).into_iter().map(|view| (view.name.to_owned(), view.query));
        let tables = Table::ALL.into_iter();
        let tables = tables.map(|table| (table.name().to_owned(), format!("{}_history", table.name())));
        let mut pairs = 0;
        for (name, query) in queries.chain(tables) {
            let mut words: BTreeSet<&str> =
                query.split(|next: char| !next.is_alphanumeric() && next != '_').collect();
            words.remove("events");
            let known = outer_first("no view of this program");
            for read in words.into_iter().filter(|word| *word != name && outer_first(word) > known) {
                assert!(outer_first(&name) < outer_first(read), "{name} reads {read}");
                pairs += 1;
            }
        }
        assert!(pairs > 20, "{pairs}");
        assert_eq!(outer_first("events"), 0);
    }

    #[tokio::test]
    async fn database_that_was_replaced_by_an_empty_one_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("tables.db");
        let url = Url::Sqlite(file.clone());
        let (database, standing) = Database::open(&url).await.expect("it is made");
        check_there(&url, standing.generation, Position(0)).await.expect("it is there");
        let other = check_there(&url, standing.generation + 1, Position(0)).await;
        assert!(matches!(other, Err(Error::Replaced)), "{other:?}");
        std::fs::remove_file(&file).expect("it is removed");
        std::fs::write(&file, "").expect("an empty one is there");
        let lost = check_there(&url, standing.generation, Position(0)).await;
        assert!(matches!(lost, Err(Error::Lost(_))), "{lost:?}");
        drop(database);
    }
}
