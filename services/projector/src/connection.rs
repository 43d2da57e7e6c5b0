//! One connection to a database, whichever it is.

use std::time::{Duration, Instant};

use futures::StreamExt;
use projections::tables::{Dialect, Kind};
use serde_json::Value;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteRow, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection as _, Executor, Row, TypeInfo, ValueRef};

use crate::url::Place;
use crate::{Error, Url};

/// How long a server may take to answer who connects.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a writer of a file waits for another one.
const BUSY: Duration = Duration::from_secs(60);
/// How often a server looks whether who asked is still there.
const LOOK: &str = "5s";
/// Instructions of the virtual machine of `SQLite` between two looks at the clock: some tenths of a millisecond.
const STEPS: i32 = 10_000;
/// What a server calls a statement that was canceled, and a file one that was interrupted.
const CUT_OFF: [&str; 2] = ["57014", "9"];
/// What a server calls a table, and a schema, that isn't there.
const MISSING: [&str; 2] = ["42P01", "3F000"];
/// The oldest server that has what the tables need, as it numbers itself.
const OLDEST: i64 = 150_000;

/// A connection.
#[derive(Debug)]
pub(crate) enum Connection {
    Sqlite(SqliteConnection),
    Postgres(Box<PgConnection>),
}

/// A row as it was read.
type Fetched<T> = Result<T, sqlx::Error>;

/// A row as text, column by column; what is nothing is none.
pub type TextRow = Vec<Option<String>>;

impl Connection {
    /// A connection that writes. A file or a schema that isn't there is made.
    pub(crate) async fn writing(url: &Url) -> Result<Self, Error> {
        let doing = || Error::database(format!("can't open the database {url}"));
        match url {
            Url::Sqlite(file) => {
                let options = SqliteConnectOptions::new()
                    .filename(file)
                    .create_if_missing(true)
                    .journal_mode(SqliteJournalMode::Wal)
                    // What a power cut takes is written again: rows and position go together.
                    .synchronous(SqliteSynchronous::Normal)
                    .busy_timeout(BUSY)
                    .disable_statement_logging();
                Ok(Self::Sqlite(SqliteConnection::connect_with(&options).await.map_err(doing())?))
            }
            Url::Postgres(place) => {
                let mut connection = Self::to_server(url, place).await?;
                let schema = place.schema();
                connection.make_schema(schema).await.map_err(doing())?;
                // What a power cut takes is written again, as above. Rows that end are found by their keys one by one:
                // without statistics of what was just copied a plan would read whole tables.
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

    /// A connection that only reads.
    pub(crate) async fn reading(url: &Url) -> Result<Self, Error> {
        let doing = || Error::database(format!("can't open the database {url}"));
        match url {
            Url::Sqlite(file) => {
                let options =
                    SqliteConnectOptions::new().filename(file).read_only(true).disable_statement_logging();
                Ok(Self::Sqlite(SqliteConnection::connect_with(&options).await.map_err(doing())?))
            }
            Url::Postgres(place) => {
                let mut connection = Self::to_server(url, place).await?;
                let path = format!("SET search_path TO {}, public", place.schema());
                connection.run(&path).await.map_err(doing())?;
                Ok(connection)
            }
        }
    }

    async fn to_server(url: &Url, place: &Place) -> Result<Self, Error> {
        let doing = || Error::database(format!("can't open the database {url}"));
        let options = place.options().map_err(doing())?.disable_statement_logging();
        let connected = tokio::time::timeout(CONNECT, PgConnection::connect_with(&options)).await;
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
            [number, version, _] if number.as_i64().is_none_or(|number| number < OLDEST) => {
                Err(Error::OldServer(text(version)))
            }
            [_, _, encoding] if encoding != "UTF8" => Err(Error::Encoding(text(encoding))),
            _ => Ok(connection),
        }
    }

    /// Who may not make a schema may well write to one that is there.
    async fn make_schema(&mut self, schema: &str) -> Result<(), sqlx::Error> {
        let known = self.rows(&format!("SELECT 1 FROM pg_namespace WHERE nspname = '{schema}'")).await?;
        if known.is_empty() {
            let made = format!(
                "CREATE SCHEMA IF NOT EXISTS {schema}; \
                 COMMENT ON SCHEMA {schema} IS 'Tables of everything that happened in a cluster of muster'"
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

    /// Runs statements, and says how many rows they changed.
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

    /// The few rows that a statement answers.
    pub(crate) async fn rows(&mut self, statement: &str) -> Result<Vec<Vec<Value>>, sqlx::Error> {
        let mut rows = vec![];
        self.answer(statement, |row| {
            rows.push(row);
            true
        })
        .await?;
        Ok(rows)
    }

    /// Gives the rows that a statement answers one after the other, as long as they are taken.
    pub(crate) async fn answer(
        &mut self,
        statement: &str,
        take: impl FnMut(Vec<Value>) -> bool,
    ) -> Result<(), sqlx::Error> {
        self.fetch(statement, (of_file, of_server), take).await
    }

    /// The same, each row made of what either database gives.
    async fn fetch<T>(
        &mut self,
        statement: &str,
        (of_file, of_server): (impl Fn(&SqliteRow) -> Fetched<T>, impl Fn(&PgRow) -> Fetched<T>),
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

    /// From now on no statement of a server takes longer, nor much longer than who asked is there.
    pub(crate) async fn limit(&mut self, patience: Duration) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(_) => {
                // Nothing is as long as it takes.
                let millis = patience.as_millis().clamp(1, i32::MAX.unsigned_abs().into());
                self.run(&format!("SET statement_timeout TO {millis}")).await?;
                // Servers on systems that can't tell refuse it: there the time alone is the limit.
                self.run(&format!("SET client_connection_check_interval TO '{LOOK}'")).await.ok();
                Ok(())
            }
        }
    }

    /// From now on statements of a file take no longer, all together. One would run on, on a thread of the library's, when
    /// nobody waits for it any more.
    pub(crate) async fn limit_from_now(&mut self, patience: Duration) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(connection) => {
                // A time that the clock can't tell is no limit.
                let end = Instant::now().checked_add(patience);
                let goes_on = move || end.is_none_or(|end| Instant::now() < end);
                connection.lock_handle().await?.set_progress_handler(STEPS, goes_on);
                Ok(())
            }
            Self::Postgres(_) => Ok(()),
        }
    }

    /// Whether a statement was ended by its limit of time.
    pub(crate) fn took_too_long(error: &sqlx::Error) -> bool {
        is_one_of(error, &CUT_OFF)
    }

    /// Begins a transaction that writes.
    pub(crate) async fn begin(&mut self) -> Result<(), sqlx::Error> {
        self.run(match self {
            Self::Sqlite(_) => "BEGIN IMMEDIATE",
            Self::Postgres(_) => "BEGIN",
        })
        .await
        .map(drop)
    }

    /// Begins a transaction that sees one moment and writes nothing.
    pub(crate) async fn begin_reading(&mut self) -> Result<(), sqlx::Error> {
        self.run(match self {
            Self::Sqlite(_) => "BEGIN",
            Self::Postgres(_) => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        })
        .await
        .map(drop)
    }

    /// Begins the same, and the views go on showing what they show. A server reads rows as of the moment at which the first
    /// of them was asked for, but views as they are when they are read: another generation that was shown meanwhile would
    /// be seen as it stood at that moment, when it was half built. A lock is had before that moment, and what shows
    /// another generation needs the same one for itself alone.
    pub(crate) async fn begin_holding(&mut self, schema: &str) -> Result<(), sqlx::Error> {
        self.begin_reading().await?;
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(_) => {
                match self.run(&format!("LOCK TABLE {schema}.events IN ACCESS SHARE MODE")).await {
                    // Nothing is shown yet.
                    Err(error) if is_one_of(&error, &MISSING) => {
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

    /// Every row that a statement answers, one after the other, with columns of these kinds.
    pub(crate) async fn each(
        &mut self,
        statement: &str,
        kinds: &[Kind],
        mut take: impl FnMut(TextRow),
    ) -> Result<(), sqlx::Error> {
        let of_file = |row: &SqliteRow| text_of_file(row, kinds);
        let of_server = |row: &PgRow| text_of_server(row, kinds);
        self.fetch(statement, (of_file, of_server), |row| {
            take(row);
            true
        })
        .await
    }

    /// The names of the columns of a statement, which is not run. A server refuses several, a file does not.
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

fn of_file(row: &SqliteRow) -> Result<Vec<Value>, sqlx::Error> {
    let value = |nth| {
        let raw = row.try_get_raw(nth)?;
        if raw.is_null() {
            return Ok(Value::Null);
        }
        // Values of SQLite have their own type, whatever their column says.
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

/// Values come as text: only so do those of every type come.
fn of_server(row: &PgRow) -> Result<Vec<Value>, sqlx::Error> {
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
            "FLOAT4" | "FLOAT8" => text.parse::<f64>().map_or_else(|_| as_text(), number),
            "NUMERIC" => match text.parse::<i64>() {
                Ok(whole) => whole.into(),
                Err(_) => text.parse::<f64>().map_or_else(|_| as_text(), number),
            },
            "JSON" | "JSONB" => serde_json::from_str(text).unwrap_or_else(|_| as_text()),
            "TIMESTAMPTZ" => moment(text).into(),
            _ => as_text(),
        })
    };
    (0..row.len()).map(value).collect()
}

/// What is no number of JSON is its name.
fn number(number: f64) -> Value {
    serde_json::Number::from_f64(number).map_or_else(|| number.to_string().into(), Value::Number)
}

fn text_of_file(row: &SqliteRow, kinds: &[Kind]) -> Result<TextRow, sqlx::Error> {
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

fn text_of_server(row: &PgRow, kinds: &[Kind]) -> Result<TextRow, sqlx::Error> {
    let values = kinds.iter().enumerate().map(|(nth, kind)| {
        let raw = row.try_get_raw(nth)?;
        if raw.is_null() {
            return Ok(None);
        }
        let text = raw.as_str().map_err(sqlx::Error::Decode)?;
        Ok(Some(match kind {
            Kind::Boolean => (text == "t").to_string(),
            Kind::Time => moment(text),
            Kind::Integer | Kind::Text | Kind::Json => text.to_owned(),
        }))
    });
    values.collect()
}

/// A moment as `PostgreSQL` writes it in UTC, as it is written everywhere else; one that isn't of these times stays.
fn moment(text: &str) -> String {
    let parts = text.strip_suffix("+00").and_then(|text| text.split_once(' '));
    let Some((date, time)) = parts.filter(|(date, _)| date.len() == 10) else { return text.to_owned() };
    let (seconds, fraction) = time.split_once('.').unwrap_or((time, ""));
    format!("{date}T{seconds}.{fraction:0<6}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_of_a_server_are_written_as_everywhere() {
        for (said, expected) in [
            ("2027-01-15 08:00:00.1234+00", "2027-01-15T08:00:00.123400Z"),
            ("2027-01-15 08:00:00+00", "2027-01-15T08:00:00.000000Z"),
            ("infinity", "infinity"),
            ("12027-01-15 08:00:00+00", "12027-01-15 08:00:00+00"),
        ] {
            assert_eq!(moment(said), expected);
        }
    }
}
