//! Connection to a database: a `SQLite` file or a `PostgreSQL` server.

use std::time::{Duration, Instant};

use futures::StreamExt;
use projections::tables::{Dialect, Kind};
use serde_json::Value;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteRow, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection as _, Executor, Row, TypeInfo, ValueRef};

use crate::url::PostgresUrl;
use crate::{Error, Url};

/// Time limit for connecting to a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time that a writer of a file waits for the lock of another writer.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which a server checks that its client is still connected.
const CLIENT_CHECK_INTERVAL: &str = "5s";
/// Instructions of `SQLite`'s virtual machine between two checks of the time limit. They take some tenths of
/// a millisecond.
const PROGRESS_INSTRUCTIONS: i32 = 10_000;
/// Error codes of a cancelled statement in `PostgreSQL` and of an interrupted statement in `SQLite`.
const CANCELLED_CODES: [&str; 2] = ["57014", "9"];
/// Codes of `PostgreSQL` for a missing table and a missing schema.
const MISSING_CODES: [&str; 2] = ["42P01", "3F000"];
/// Oldest supported version of `PostgreSQL`, as `server_version_num`.
const MIN_SERVER_VERSION: i64 = 150_000;

/// Connection to a database.
#[derive(Debug)]
pub(crate) enum Connection {
    Sqlite(SqliteConnection),
    Postgres(Box<PgConnection>),
}

/// Result of converting a row.
type Converted<T> = Result<T, sqlx::Error>;

/// A row as text, one element per column. `None` for NULL.
pub type TextRow = Vec<Option<String>>;

impl Connection {
    /// Opens a connection for writing. Creates the file or the schema if it does not exist.
    pub(crate) async fn open_for_writing(url: &Url) -> Result<Self, Error> {
        let doing = || Error::database(format!("can't open the database {url}"));
        match url {
            Url::Sqlite(file) => {
                let options = SqliteConnectOptions::new()
                    .filename(file)
                    .create_if_missing(true)
                    .journal_mode(SqliteJournalMode::Wal)
                    // Rows and position commit together. A transaction that a power cut loses is therefore
                    // written again.
                    .synchronous(SqliteSynchronous::Normal)
                    .busy_timeout(BUSY_TIMEOUT)
                    .disable_statement_logging();
                Ok(Self::Sqlite(SqliteConnection::connect_with(&options).await.map_err(doing())?))
            }
            Url::Postgres(place) => {
                let mut connection = Self::connect_to_server(url, place).await?;
                let schema = place.schema();
                connection.create_schema(schema).await.map_err(doing())?;
                // A transaction that a power cut loses is written again, as above. Ended rows are found by
                // key one by one. Without statistics on freshly copied rows, the planner would scan whole
                // tables.
                let settings = format!(
                    "SET search_path TO {schema}; SET synchronous_commit TO off; SET statement_timeout TO 0; \
                     SET lock_timeout TO '30s'; SET enable_seqscan TO off; SET enable_hashjoin TO off; \
                     SET enable_mergejoin TO off; SET jit TO off"
                );
                connection.run(&settings).await.map_err(doing())?;
                Ok(connection)
            }
        }
    }

    /// Opens a connection for reading only.
    pub(crate) async fn open_for_reading(url: &Url) -> Result<Self, Error> {
        let doing = || Error::database(format!("can't open the database {url}"));
        match url {
            Url::Sqlite(file) => {
                let options =
                    SqliteConnectOptions::new().filename(file).read_only(true).disable_statement_logging();
                Ok(Self::Sqlite(SqliteConnection::connect_with(&options).await.map_err(doing())?))
            }
            Url::Postgres(place) => {
                let mut connection = Self::connect_to_server(url, place).await?;
                let path = format!("SET search_path TO {}, public", place.schema());
                connection.run(&path).await.map_err(doing())?;
                Ok(connection)
            }
        }
    }

    async fn connect_to_server(url: &Url, place: &PostgresUrl) -> Result<Self, Error> {
        let doing = || Error::database(format!("can't open the database {url}"));
        let options = place.options().map_err(doing())?.disable_statement_logging();
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, PgConnection::connect_with(&options)).await;
        let silent = |_| sqlx::Error::Io(std::io::Error::from(std::io::ErrorKind::TimedOut));
        let connected = connected.map_err(silent).and_then(|connected| connected);
        let mut connection = Self::Postgres(Box::new(connected.map_err(doing())?));
        connection.run("SET client_min_messages TO warning").await.map_err(doing())?;
        let asked = "SELECT current_setting('server_version_num')::int8, current_setting('server_version'), \
                     current_setting('server_encoding')";
        let said = connection.rows(asked).await.map_err(doing())?;
        let said = said.first().map(Vec::as_slice).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match said {
            [number, version, _] if number.as_i64().is_none_or(|number| number < MIN_SERVER_VERSION) => {
                Err(Error::OldServer(text(version)))
            }
            [_, _, encoding] if encoding != "UTF8" => Err(Error::OtherEncoding(text(encoding))),
            _ => Ok(connection),
        }
    }

    /// Creates the schema if it does not exist. The check comes first because a role may have the right to
    /// write to an existing schema without the right to create schemas.
    async fn create_schema(&mut self, schema: &str) -> Result<(), sqlx::Error> {
        let known = self.rows(&format!("SELECT 1 FROM pg_namespace WHERE nspname = '{schema}'")).await?;
        if known.is_empty() {
            let made = format!(
                "CREATE SCHEMA IF NOT EXISTS {schema}; \
                 COMMENT ON SCHEMA {schema} IS 'Tables of the event log of a Muster cluster'"
            );
            self.run(&made).await?;
        }
        Ok(())
    }

    pub(crate) const fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite(_) => Dialect::Sqlite,
            Self::Postgres(_) => Dialect::Postgres,
        }
    }

    /// Runs statements and returns the number of rows that they changed.
    pub(crate) async fn run(&mut self, statements: &str) -> Result<u64, sqlx::Error> {
        let statements = sqlx::raw_sql(AssertSqlSafe(statements.to_owned()));
        Ok(match self {
            Self::Sqlite(connection) => statements.execute(&mut *connection).await?.rows_affected(),
            Self::Postgres(connection) => statements.execute(&mut **connection).await?.rows_affected(),
        })
    }

    /// Runs statements one after the other.
    pub(crate) async fn run_all(&mut self, statements: &[String]) -> Result<(), sqlx::Error> {
        if !statements.is_empty() {
            self.run(&statements.join(";\n")).await?;
        }
        Ok(())
    }

    /// Runs a statement and returns all its rows. Intended for statements with few rows.
    pub(crate) async fn rows(&mut self, statement: &str) -> Result<Vec<Vec<Value>>, sqlx::Error> {
        let mut rows = vec![];
        self.for_each_row(statement, |row| {
            rows.push(row);
            true
        })
        .await?;
        Ok(rows)
    }

    /// Runs a statement and passes its rows to `take` one by one, until `take` returns `false`.
    pub(crate) async fn for_each_row(
        &mut self,
        statement: &str,
        take: impl FnMut(Vec<Value>) -> bool,
    ) -> Result<(), sqlx::Error> {
        self.fetch(statement, (sqlite_values, postgres_values), take).await
    }

    /// Runs a statement, converts its rows from the row type of the database, and passes them to `take`.
    async fn fetch<T>(
        &mut self,
        statement: &str,
        (of_file, of_server): (impl Fn(&SqliteRow) -> Converted<T>, impl Fn(&PgRow) -> Converted<T>),
        mut take: impl FnMut(T) -> bool,
    ) -> Result<(), sqlx::Error> {
        let statement = sqlx::raw_sql(AssertSqlSafe(statement.to_owned()));
        match self {
            Self::Sqlite(connection) => {
                let mut rows = statement.fetch(&mut *connection);
                while let Some(row) = rows.next().await {
                    if !take(of_file(&row?)?) {
                        break;
                    }
                }
            }
            Self::Postgres(connection) => {
                let mut rows = statement.fetch(&mut **connection);
                while let Some(row) = rows.next().await {
                    if !take(of_server(&row?)?) {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Sets the time limit of each later statement on a server. The server also cancels statements of a
    /// disconnected client.
    pub(crate) async fn set_statement_timeout(&mut self, patience: Duration) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(_) => {
                // A timeout of 0 would mean no limit.
                let millis = patience.as_millis().clamp(1, i32::MAX.unsigned_abs().into());
                self.run(&format!("SET statement_timeout TO {millis}")).await?;
                // Servers on systems without connection checks refuse the setting. Only the time limit
                // applies there.
                self.run(&format!("SET client_connection_check_interval TO '{CLIENT_CHECK_INTERVAL}'"))
                    .await
                    .ok();
                Ok(())
            }
        }
    }

    /// Limits the total time of later statements on a file, starting with this call. Without the limit, a
    /// statement would continue on a thread of the library after its caller has given up.
    pub(crate) async fn set_deadline(&mut self, patience: Duration) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(connection) => {
                // An overflow of the clock is treated as no limit.
                let end = Instant::now().checked_add(patience);
                let goes_on = move || end.is_none_or(|end| Instant::now() < end);
                connection.lock_handle().await?.set_progress_handler(PROGRESS_INSTRUCTIONS, goes_on);
                Ok(())
            }
            Self::Postgres(_) => Ok(()),
        }
    }

    /// Returns `true` if a statement was cancelled by its time limit.
    pub(crate) fn is_timeout(error: &sqlx::Error) -> bool {
        is_one_of(error, &CANCELLED_CODES)
    }

    /// Starts a transaction that writes.
    pub(crate) async fn begin(&mut self) -> Result<(), sqlx::Error> {
        self.run(match self {
            Self::Sqlite(_) => "BEGIN IMMEDIATE",
            Self::Postgres(_) => "BEGIN",
        })
        .await
        .map(drop)
    }

    /// Starts a read-only transaction, which reads one snapshot of the database.
    pub(crate) async fn begin_reading(&mut self) -> Result<(), sqlx::Error> {
        self.run(match self {
            Self::Sqlite(_) => "BEGIN",
            Self::Postgres(_) => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        })
        .await
        .map(drop)
    }

    /// Starts a read-only transaction. The views show the same tables until its end.
    ///
    /// A server reads rows as of the first query of the transaction, but resolves views when a query uses
    /// them. Without a lock, another generation of the tables could be shown between these times, and the
    /// transaction could read that generation half built. The lock is therefore taken before the first query.
    /// A switch to another generation needs an exclusive lock on the same view.
    pub(crate) async fn begin_with_views(&mut self, schema: &str) -> Result<(), sqlx::Error> {
        self.begin_reading().await?;
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(_) => {
                match self.run(&format!("LOCK TABLE {schema}.events IN ACCESS SHARE MODE")).await {
                    // The views do not exist yet, so no lock is needed.
                    Err(error) if is_one_of(&error, &MISSING_CODES) => {
                        self.run("ROLLBACK").await?;
                        self.begin_reading().await
                    }
                    locked => locked.map(drop),
                }
            }
        }
    }

    pub(crate) async fn commit(&mut self) -> Result<(), sqlx::Error> {
        self.run("COMMIT").await.map(drop)
    }

    pub(crate) async fn close(self) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(connection) => connection.close().await,
            Self::Postgres(connection) => connection.close().await,
        }
    }

    /// Runs a statement and passes each row to `take`, as text. `kinds` are the kinds of the statement's
    /// columns.
    pub(crate) async fn for_each_text_row(
        &mut self,
        statement: &str,
        kinds: &[Kind],
        mut take: impl FnMut(TextRow),
    ) -> Result<(), sqlx::Error> {
        let of_file = |row: &SqliteRow| sqlite_text(row, kinds);
        let of_server = |row: &PgRow| postgres_text(row, kinds);
        self.fetch(statement, (of_file, of_server), |row| {
            take(row);
            true
        })
        .await
    }

    /// Returns the names of a statement's columns without running the statement. A server refuses several
    /// statements in one text; a file accepts them.
    pub(crate) async fn columns(&mut self, statement: &str) -> Result<Vec<String>, sqlx::Error> {
        use sqlx::{Column, SqlSafeStr, Statement};
        let statement = AssertSqlSafe(statement.to_owned()).into_sql_str();
        let name = |column: &str| column.to_owned();
        Ok(match self {
            Self::Sqlite(connection) => {
                let prepared = connection.prepare(statement).await?;
                prepared.columns().iter().map(|column| name(column.name())).collect()
            }
            Self::Postgres(connection) => {
                let prepared = connection.prepare(statement).await?;
                prepared.columns().iter().map(|column| name(column.name())).collect()
            }
        })
    }
}

fn is_one_of(error: &sqlx::Error, codes: &[&str]) -> bool {
    let code = error.as_database_error().and_then(|said| said.code());
    code.is_some_and(|code| codes.contains(&&*code))
}

fn sqlite_values(row: &SqliteRow) -> Result<Vec<Value>, sqlx::Error> {
    let value = |nth| {
        let raw = row.try_get_raw(nth)?;
        if raw.is_null() {
            return Ok(Value::Null);
        }
        // Each value in SQLite has its own type, which may differ from the type of its column.
        let kind = raw.type_info().name().to_owned();
        Ok(match kind.as_str() {
            "INTEGER" | "BOOLEAN" => row.try_get_unchecked::<i64, _>(nth)?.into(),
            "REAL" => row.try_get_unchecked::<f64, _>(nth)?.into(),
            "BLOB" => String::from_utf8_lossy(row.try_get_unchecked::<&[u8], _>(nth)?).into(),
            _ => row.try_get_unchecked::<String, _>(nth)?.into(),
        })
    };
    (0..row.len()).map(value).collect()
}

/// Converts a row of a server. The values arrive as text, the only format that is available for every type.
fn postgres_values(row: &PgRow) -> Result<Vec<Value>, sqlx::Error> {
    let value = |nth| {
        let raw = row.try_get_raw(nth)?;
        if raw.is_null() {
            return Ok(Value::Null);
        }
        let text = raw.as_str().map_err(sqlx::Error::Decode)?;
        let as_text = || Value::from(text);
        Ok(match raw.type_info().name() {
            "BOOL" => (text == "t").into(),
            "INT2" | "INT4" | "INT8" => text.parse::<i64>().map_or_else(|_| as_text(), Value::from),
            "FLOAT4" | "FLOAT8" => text.parse::<f64>().map_or_else(|_| as_text(), json_number),
            "NUMERIC" => match text.parse::<i64>() {
                Ok(whole) => whole.into(),
                Err(_) => text.parse::<f64>().map_or_else(|_| as_text(), json_number),
            },
            "JSON" | "JSONB" => serde_json::from_str(text).unwrap_or_else(|_| as_text()),
            "TIMESTAMPTZ" => format_time(text).into(),
            _ => as_text(),
        })
    };
    (0..row.len()).map(value).collect()
}

/// Converts a number. JSON has no NaN and infinity, so these become text.
fn json_number(number: f64) -> Value {
    serde_json::Number::from_f64(number).map_or_else(|| number.to_string().into(), Value::Number)
}

fn sqlite_text(row: &SqliteRow, kinds: &[Kind]) -> Result<TextRow, sqlx::Error> {
    let values = kinds.iter().enumerate().map(|(nth, kind)| {
        Ok(match kind {
            Kind::Integer => row.try_get_unchecked::<Option<i64>, _>(nth)?.map(|number| number.to_string()),
            Kind::Boolean => {
                row.try_get_unchecked::<Option<i64>, _>(nth)?.map(|flag| (flag != 0).to_string())
            }
            Kind::Text | Kind::Time | Kind::Json => row.try_get_unchecked::<Option<String>, _>(nth)?,
        })
    });
    values.collect()
}

fn postgres_text(row: &PgRow, kinds: &[Kind]) -> Result<TextRow, sqlx::Error> {
    let values = kinds.iter().enumerate().map(|(nth, kind)| {
        let raw = row.try_get_raw(nth)?;
        if raw.is_null() {
            return Ok(None);
        }
        let text = raw.as_str().map_err(sqlx::Error::Decode)?;
        Ok(Some(match kind {
            Kind::Boolean => (text == "t").to_string(),
            Kind::Time => format_time(text),
            Kind::Integer | Kind::Text | Kind::Json => text.to_owned(),
        }))
    });
    values.collect()
}

/// Converts a time from the UTC format of `PostgreSQL` to RFC 3339. Other values, such as `infinity`, stay
/// unchanged.
fn format_time(text: &str) -> String {
    let parts = text.strip_suffix("+00").and_then(|text| text.split_once(' '));
    let Some((date, time)) = parts.filter(|(date, _)| date.len() == 10) else { return text.to_owned() };
    let (seconds, fraction) = time.split_once('.').unwrap_or((time, ""));
    format!("{date}T{seconds}.{fraction:0<6}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_times_are_formatted_as_rfc3339() {
        for (said, expected) in [
            ("2027-01-15 08:00:00.1234+00", "2027-01-15T08:00:00.123400Z"),
            ("2027-01-15 08:00:00+00", "2027-01-15T08:00:00.000000Z"),
            ("infinity", "infinity"),
            ("12027-01-15 08:00:00+00", "12027-01-15 08:00:00+00"),
        ] {
            assert_eq!(format_time(said), expected);
        }
    }
}
